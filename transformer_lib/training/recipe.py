"""How to train: the numbers that a training run is made of, and named sets of them (sections 5.3 and 5.4)."""

import math
from dataclasses import dataclass, replace

from transformer_lib.checkpoint import MOST_BEAMS
from transformer_lib.fast.precision import PRECISIONS
from transformer_lib.model.config import make_plain

SCHEDULES = ("constant", "inverse_sqrt", "linear", "exponential")
OPTIMIZERS = ("adamw", "muon", "sgd")


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are what the well-known tutorials do; ``RECIPES`` names what suits each preset.

    Attributes:
        epochs: passes over the training split.
        batch_size: sentences in a batch; for a language model, rows of text.
        max_tokens: positions in a batch, padding included, on its larger side, instead of a number of sentences
            (section 5.1 has 25,000 tokens a side); 0 for none.
        bptt: tokens of each row in a batch, for a language model.
        optimizer: ``"adamw"``, whose ε is the paper's 1e-9; ``"muon"`` for the layers' matrices and AdamW for all else
            (see ``make_optimizer``); or ``"sgd"``, which follows the gradient and nothing else.
        learning_rate: the optimizer's, at its highest.
        warmup_steps: steps over which the learning rate grows to its highest.
        schedule: what follows the warm-up: ``"constant"``, ``"inverse_sqrt"`` (falls with the inverse square root of
            the step, section 5.3), ``"linear"`` (falls in a straight line to zero at the end of the last epoch) or
            ``"exponential"`` (is multiplied by ``lr_decay`` after each epoch).
        lr_decay: see ``"exponential"``.
        betas: decay rates of Adam's two moving averages (section 5.3: 0.9 and 0.98).
        weight_decay: share of each weight, times the learning rate, that Adam and Muon take off at every step.
        max_grad_norm: gradients with a larger norm are scaled down to it.
        label_smoothing: share of the probability that is spread evenly over all tokens (section 5.4).
        rdrop_weight: pass every sentence through the model twice, and count how much the two predictions differ with
            this weight (R-Drop; see ``rdrop_loss``); 0 for one pass.
        ema_decay: keep a moving average of the weights instead of the weights themselves: the highest decay rate, per
            step, of the old average; 0 for none. (Section 6.1 averages the last checkpoints, to the same end.)
        init_bias_from_unigrams: let a language model begin as a table of the tokens' frequencies; see
            ``TransformerLanguageModel.init_bias_from_unigrams``.
        precision: what matrices are multiplied in: ``"float32"``, or ``"bfloat16"`` (mixed precision: weights and loss
            stay in float32). On a GPU that is too old for it, float16 with scaled gradients.
        compile: let ``torch.compile`` make kernels for the layers first, which takes about a minute. It is meant for a
            GPU: on a CPU, dropout then draws its random numbers slowly.
        subwords: pieces in a vocabulary of subwords, one for both languages; 0 for words. See ``SubwordTokenizer``.
        subword_dropout: share of the merges that are left out, at random and anew in every epoch, when subwords are
            made of a sentence (BPE-dropout; see ``SubwordTokenizer``).
        beam_size: after training, find the length penalty with which a beam of this size translates the validation
            split best, and translate with both from then on; 1 for greedy search.
        seed: decides the initial weights, dropout and the order of the sentences.
    """

    epochs: int = 10
    batch_size: int = 128
    max_tokens: int = 0
    bptt: int = 35
    optimizer: str = "adamw"
    learning_rate: float = 5e-4
    warmup_steps: int = 0
    schedule: str = "constant"
    lr_decay: float = 0.95
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    label_smoothing: float = 0.0
    rdrop_weight: float = 0.0
    ema_decay: float = 0.0
    init_bias_from_unigrams: bool = False
    precision: str = "float32"
    compile: bool = False
    subwords: int = 0
    subword_dropout: float = 0.0
    beam_size: int = 1
    seed: int = 1234

    def __post_init__(self):
        make_plain(self)
        object.__setattr__(self, "betas", tuple(float(beta) for beta in self.betas))
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas is {self.betas!r}, expected two numbers from 0 to below 1")
        for name in ("epochs", "batch_size", "bptt", "beam_size"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value!r}, expected a positive whole number")
        if self.beam_size > MOST_BEAMS:
            raise ValueError(f"beam_size is {self.beam_size}, expected at most {MOST_BEAMS}")
        for name in ("learning_rate", "max_grad_norm", "lr_decay"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value!r}, expected a positive number")
        for name in ("warmup_steps", "max_tokens", "subwords", "weight_decay", "rdrop_weight"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value!r}, expected 0 or more")
        choices_of = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES, "precision": PRECISIONS}
        for name, choices in choices_of.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(choices)}")
        for name in ("label_smoothing", "ema_decay", "subword_dropout"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name} is {value!r}, expected a number from 0 to below 1")
        if self.subword_dropout and not self.subwords:
            raise ValueError(f"subword_dropout is {self.subword_dropout!r}, but subwords is 0: words have no parts")


_MULTI30K = Recipe(
    max_tokens=3072,
    optimizer="muon",
    learning_rate=4e-3,
    warmup_steps=60,
    schedule="linear",
    betas=(0.9, 0.98),
    weight_decay=0.1,
    label_smoothing=0.1,
    ema_decay=0.998,
    precision="bfloat16",
    subwords=4000,
    beam_size=4,
)

_PAPER = {"warmup_steps": 4000, "schedule": "inverse_sqrt", "betas": (0.9, 0.98), "label_smoothing": 0.1}

RECIPES = {
    # sentences of similar length share a batch, so batches are smaller, and averaging evens out their differences
    "tutorial": Recipe(batch_size=64, learning_rate=6e-4, warmup_steps=200, label_smoothing=0.1, ema_decay=0.998),
    "small": Recipe(
        epochs=12, batch_size=64, learning_rate=2e-3, warmup_steps=200, schedule="inverse_sqrt", betas=(0.9, 0.98)
    ),
    "multi30k_best": replace(_MULTI30K, epochs=22, rdrop_weight=1.5),
    "multi30k_fast": replace(_MULTI30K, epochs=3, max_tokens=2048),
    # peak learning rate d_model^-0.5 · warmup_steps^-0.5 (equation 3); the paper's own batches are far larger
    "paper_base": Recipe(batch_size=64, learning_rate=7e-4, **_PAPER),
    "paper_big": Recipe(batch_size=64, learning_rate=5e-4, **_PAPER),
}

LANGUAGE_MODEL_RECIPES = {
    # what PyTorch's tutorial does
    "tutorial": Recipe(
        epochs=3, batch_size=20, optimizer="sgd", learning_rate=5.0, schedule="exponential", max_grad_norm=0.5
    ),
    # Adam, from the tokens' frequencies on; it overfits where SGD has only just begun, so two epochs are enough
    "tuned": Recipe(
        epochs=2,
        batch_size=20,
        learning_rate=1.5e-3,
        warmup_steps=50,
        schedule="linear",
        max_grad_norm=0.5,
        init_bias_from_unigrams=True,
    ),
}
