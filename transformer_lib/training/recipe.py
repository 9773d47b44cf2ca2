"""How to train: all hyperparameters of a training run, and named sets of them (sections 5.3 and 5.4)."""

import math
from dataclasses import dataclass, replace

from transformer_lib.fast.precision import PRECISIONS
from transformer_lib.inference.search import MAX_SAVED_BEAM
from transformer_lib.model.config import coerce_types

SCHEDULES = ("constant", "inverse_sqrt", "linear", "exponential")
OPTIMIZERS = ("adamw", "muon", "sgd")


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the well-known tutorials'; ``RECIPES`` has one for each preset.

    Attributes:
        epochs: passes over the training split.
        batch_size: sentences in a batch; for a language model, rows of text.
        max_tokens: if not 0, it replaces ``batch_size``: the most positions that a batch has on its longer side, with
            padding (section 5.1: 25,000).
        bptt: for a language model, tokens of each row in a batch.
        optimizer: ``"adamw"``, with the paper's ε of 1e-9; ``"muon"`` (see ``make_optimizer``); or ``"sgd"``.
        learning_rate: the optimizer's, at its peak.
        warmup_steps: steps over which the learning rate rises to its peak.
        schedule, lr_decay: what follows the warm-up: ``"constant"``, ``"inverse_sqrt"`` (falls with the inverse square
            root of the step, section 5.3), ``"linear"`` (falls in a straight line to zero at the end of the last epoch)
            or ``"exponential"`` (is multiplied by ``lr_decay`` after each epoch).
        betas: decay rates of Adam's two moving averages (section 5.3: 0.9 and 0.98).
        weight_decay: share of each weight, times the learning rate, that AdamW and Muon subtract at each step.
        max_grad_norm: gradients with a larger norm are scaled down to it.
        label_smoothing: share of the probability that is spread evenly over all tokens (section 5.4).
        rdrop_weight: weight of the divergence between two passes of a sentence (see ``rdrop_loss``); 0 for one pass.
        ema_decay: if not 0, keep an exponential moving average of the weights with at most this decay rate per step
            (see ``MovingAverage``). Section 6.1 averages the last checkpoints, to the same end.
        init_bias_from_unigrams: start a language model with the frequencies of the tokens.
        precision: of matrix products, ``"float32"`` or ``"bfloat16"`` (where a device has it, see ``half_precision``);
            weights stay in float32.
        compile: compile the layers with ``torch.compile``, which takes about a minute; for GPUs.
        subwords: size of a subword vocabulary for both languages (see ``SubwordTokenizer``); 0 for words.
        beam_size: if above 1, find the length penalty with which a beam of this size translates the validation split
            best after training, and translate with both from then on.
        seed: decides dropout, the order of the sentences and, unless you call ``fit`` yourself, the initial weights.
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
    beam_size: int = 1
    seed: int = 1234

    def __post_init__(self):
        coerce_types(self)
        try:
            object.__setattr__(self, "betas", tuple(float(beta) for beta in self.betas))
        except (TypeError, ValueError):
            raise ValueError(f"betas is {self.betas!r}, expected two numbers from 0 to below 1") from None
        for names, is_valid, expected in VALID:
            for name in names.split():
                if not is_valid(value := getattr(self, name)):
                    raise ValueError(f"{name} is {value!r}, expected {expected}")


VALID = (  # names of fields, whether a value is possible, and what is expected
    ("epochs batch_size bptt", lambda n: n >= 1, "a positive whole number"),
    ("beam_size", lambda n: 1 <= n <= MAX_SAVED_BEAM, f"a whole number from 1 to {MAX_SAVED_BEAM}"),
    ("learning_rate max_grad_norm lr_decay", lambda x: 0 < x < math.inf, "a positive number"),
    ("warmup_steps max_tokens subwords weight_decay rdrop_weight", lambda x: 0 <= x < math.inf, "0 or more"),
    ("label_smoothing ema_decay", lambda x: 0 <= x < 1, "a number from 0 to below 1"),
    ("betas", lambda b: len(b) == 2 and all(0 <= x < 1 for x in b), "two numbers from 0 to below 1"),
    ("seed", lambda n: 0 <= n < 2**31, "0 to 2,147,483,647"),
    ("optimizer", OPTIMIZERS.__contains__, f"one of {', '.join(OPTIMIZERS)}"),
    ("schedule", SCHEDULES.__contains__, f"one of {', '.join(SCHEDULES)}"),
    ("precision", PRECISIONS.__contains__, f"one of {', '.join(PRECISIONS)}"),
)


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
    "tutorial_original": Recipe(),
    # sentences of similar length share a batch, so batches differ: small ones, and an average, even that out
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
    # AdamW, starting from the tokens' frequencies; it overfits long before SGD does, so two epochs are enough
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
