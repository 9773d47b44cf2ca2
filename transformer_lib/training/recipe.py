"""How to train: all hyperparameters of a training run, and named sets of them (sections 5.3 and 5.4)."""

import math
from dataclasses import dataclass
from numbers import Real

from transformer_lib.fast.precision import PRECISIONS
from transformer_lib.inference.search import MAX_SAVED_BEAM
from transformer_lib.model.config import coerce_types

SCHEDULES = ("constant", "inverse_sqrt", "linear", "exponential")
CHOICES = {"optimizer": ("adamw", "muon", "sgd"), "schedule": SCHEDULES, "precision": PRECISIONS}
CHOICES["beam_size"] = range(1, MAX_SAVED_BEAM + 1)  # a saved model may ask for no more


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the well-known tutorials'; ``RECIPES`` has one for each preset."""

    epochs: float = 10  # passes over the training split; the last one may be a part
    batch_size: int = 128  # sentences in a batch; for a language model, rows of text
    max_tokens: int = 0  # if not 0, instead of batch_size: positions in a batch, with padding (section 5.1: 25,000)
    accumulate_steps: int = 1  # batches that make one step, as if they were one: for what is too large for the memory
    bptt: int = 35  # for a language model, tokens of each row in a batch
    optimizer: str = "adamw"  # with the paper's ε of 1e-9; or "muon" (see ``make_optimizer``), or "sgd"
    learning_rate: float = 5e-4  # the optimizer's, at its peak
    warmup_steps: int = 0  # steps over which the learning rate rises to its peak (a tenth of a run that is shorter)
    # what follows: "constant"; "inverse_sqrt", falling with the step's square root (section 5.3); "linear", to zero at
    # the last epoch's end; "exponential", multiplied by lr_decay after each epoch
    schedule: str = "constant"
    lr_decay: float = 0.95
    betas: tuple[float, float] = (0.9, 0.999)  # decay rates of Adam's two moving averages (section 5.3: 0.9 and 0.98)
    weight_decay: float = 0.0  # share of a weight, times the learning rate, that AdamW and Muon subtract at each step
    max_grad_norm: float = 1.0  # gradients with a larger norm are scaled down to it
    label_smoothing: float = 0.0  # share of the probability that is spread evenly over all tokens (section 5.4)
    rdrop_weight: float = 0.0  # of the divergence between two passes of a sentence (see ``rdrop_loss``); 0 for one pass
    ema_decay: float = 0.0  # if not 0, average the weights (see ``MovingAverage``), as section 6.1 averages checkpoints
    init_bias_from_unigrams: bool = False  # start a language model with the frequencies of the tokens
    precision: str = "float32"  # of matrix products; or "bfloat16" (see ``fast_dtype``)
    subwords: int = 0  # size of a subword vocabulary for both languages (see ``SubwordTokenizer``); 0 for words
    beam_size: int = 1  # if above 1, a beam to translate with, and the length penalty that validates best with it
    validate_every: int = 0  # validate after so many steps, and at the end; 0: after each epoch
    save_every: int = 0  # save what a run resumes from after so many steps, besides each epoch's end; 0: then alone
    seed: int = 1234  # decides dropout, the order of the sentences and, unless you call ``fit``, the initial weights

    def __post_init__(self):
        coerce_types(self)
        betas = tuple(self.betas) if isinstance(self.betas, tuple | list) else ()  # a file has a list
        if len(betas) != 2 or not all(isinstance(beta, Real) and 0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas is {self.betas!r}, expected two numbers from 0 up to, but not including, 1")
        object.__setattr__(self, "betas", betas)
        if self.epochs % 1 == 0:
            object.__setattr__(self, "epochs", int(self.epochs))
        for name in ("epochs", "batch_size", "accumulate_steps", "bptt", "learning_rate", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected more than 0")
        for name, value in vars(self).items():
            if isinstance(value, int | float) and name != "seed" and not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value!r}, expected 0 or more")
        for name in ("label_smoothing", "ema_decay"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected less than 1")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(map(str, choices))}")


_MULTI30K = {
    "optimizer": "muon",
    "learning_rate": 4e-3,
    "warmup_steps": 60,
    "schedule": "linear",
    "weight_decay": 0.1,
    "betas": (0.9, 0.98),
    "label_smoothing": 0.1,
    "ema_decay": 0.998,
    "precision": "bfloat16",
    "subwords": 4000,
    "beam_size": 4,
}
_PAPER = {"warmup_steps": 4000, "schedule": "inverse_sqrt", "betas": (0.9, 0.98), "label_smoothing": 0.1}
_TEXT = {"batch_size": 20, "max_grad_norm": 0.5}

RECIPES = {
    "tutorial_original": Recipe(),
    # sentences of similar length share a batch, so batches differ: small ones, and an average, even that out
    "tutorial": Recipe(batch_size=64, learning_rate=6e-4, warmup_steps=200, label_smoothing=0.1, ema_decay=0.998),
    "small": Recipe(
        epochs=12, batch_size=64, learning_rate=2e-3, warmup_steps=200, schedule="inverse_sqrt", betas=(0.9, 0.98)
    ),
    "multi30k_best": Recipe(epochs=22, max_tokens=3072, rdrop_weight=1.5, **_MULTI30K),
    "multi30k_fast": Recipe(epochs=3, max_tokens=2048, **_MULTI30K),
    # peak learning rate d_model^-0.5 · warmup_steps^-0.5 (equation 3); the paper's own batches are far larger
    "paper_base": Recipe(batch_size=64, learning_rate=7e-4, **_PAPER),
    "paper_big": Recipe(batch_size=64, learning_rate=5e-4, **_PAPER),
}
LANGUAGE_MODEL_RECIPES = {
    # what PyTorch's tutorial does
    "tutorial": Recipe(epochs=3, optimizer="sgd", learning_rate=5.0, schedule="exponential", **_TEXT),
    # AdamW, starting from the tokens' frequencies; it overfits long before SGD does, so two epochs are enough
    "tuned": Recipe(
        epochs=2, learning_rate=1.5e-3, warmup_steps=50, schedule="linear", init_bias_from_unigrams=True, **_TEXT
    ),
}
