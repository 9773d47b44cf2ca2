"""Every choice that shapes the model, and named sets of choices (``PRESETS``)."""

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from transformer_lib.model.attention import check_heads
from transformer_lib.model.embeddings import POSITIONS
from transformer_lib.model.sublayers import ACTIVATIONS

_KINDS = {int: Integral, float: Real, bool: bool, str: str}
_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a name"}


def make_plain(config: Any) -> None:
    """Check the kinds of a frozen dataclass's fields, and turn numbers of other libraries into plain ones.

    Raises:
        ValueError: a field is of another kind; the message says which.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type not in _KINDS:  # a subclass may have fields of any kind
            continue
        if isinstance(value, bool) != (field.type is bool) or not isinstance(value, _KINDS[field.type]):
            raise ValueError(f"{field.name} is {value!r}, expected {_WORDS[field.type]}")
        object.__setattr__(config, field.name, field.type(value))


class Configuration:
    """The base of configurations, which are frozen dataclasses."""

    def check(self, *positive: str) -> None:
        """Raise a ValueError unless all fields are of their kind, these positive, and heads and dropout possible."""
        make_plain(self)
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected a positive whole number")
        check_heads(self.d_model, self.num_heads, self.dropout)


_PAPER = {"num_layers": 6, "inner_dropout": False, "positions": "sinusoidal", "max_len": 1024, "tie_embeddings": True}
_MULTI30K = {"num_heads": 4, "norm_first": True, "positions": "sinusoidal", "max_len": 256, "tie_embeddings": True}

PRESETS: dict[str, dict[str, Any]] = {
    # the model that the tutorials teach; it is what the fields of TransformerConfig default to
    "tutorial": {},
    # for the sample corpus: learns it in two minutes on two cores
    "small": {
        "d_model": 128,
        "num_heads": 4,
        "d_ff": 256,
        "num_layers": 2,
        "norm_first": True,
        "positions": "sinusoidal",
    },
    # for Multi30k: 5 million parameters with 4,000 subwords, and 1.9 million, which a few epochs cannot overfit
    "multi30k_best": {**_MULTI30K, "dropout": 0.2},
    "multi30k_fast": {**_MULTI30K, "d_model": 128, "dropout": 0.0},
    # the paper's models (Table 3, rows "base" and "big")
    "paper_base": {**_PAPER, "d_model": 512, "num_heads": 8, "d_ff": 2048},
    "paper_big": {**_PAPER, "d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3},
}


@dataclass(frozen=True)
class TransformerConfig(Configuration):
    """Every choice that shapes the model. The defaults are the tutorials' model; ``PRESETS`` names other choices.

    Attributes:
        src_vocab_size, tgt_vocab_size: number of token types per side, special tokens included.
        d_model: size of the vectors that flow through the model.
        num_heads: heads of every attention; divides ``d_model``.
        d_ff: inner size of the feed-forward networks.
        num_layers: layers of the encoder, and of the decoder.
        dropout: probability of residual and embedding dropout (section 5.4).
        inner_dropout: also drop attention weights and inner activations, as the tutorials and ``nn.Transformer`` do.
        norm_first: pre-LN instead of the paper's post-LN.
        positions: ``"learned"`` or ``"sinusoidal"`` (section 3.5).
        activation: of the feed-forward networks, ``"relu"``, ``"gelu"`` or ``"silu"``; the paper's is ``"relu"``.
        max_len: number of positions; no sentence may be longer, ``<sos>`` and ``<eos>`` included.
        tie_embeddings: source, target and output share one matrix (section 3.4); needs a joint vocabulary.
        pad_id: the id of padding, on both sides.

    Raises:
        ValueError: a value is impossible, or two do not go together.
    """

    src_vocab_size: int
    tgt_vocab_size: int
    d_model: int = 256
    num_heads: int = 8
    d_ff: int = 512
    num_layers: int = 3
    dropout: float = 0.1
    inner_dropout: bool = True
    norm_first: bool = False
    positions: str = "learned"
    activation: str = "relu"
    max_len: int = 100
    tie_embeddings: bool = False
    pad_id: int = 1

    def __post_init__(self):
        self.check("src_vocab_size", "tgt_vocab_size", "d_model", "num_heads", "d_ff", "num_layers", "max_len")
        for name, choices in (("positions", POSITIONS), ("activation", ACTIVATIONS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(map(repr, choices))}")
        if self.tie_embeddings and self.src_vocab_size != self.tgt_vocab_size:
            raise ValueError(
                f"tie_embeddings=True needs one joint vocabulary, but src_vocab_size={self.src_vocab_size} and "
                f"tgt_vocab_size={self.tgt_vocab_size}"
            )
        if not 0 <= self.pad_id < min(self.src_vocab_size, self.tgt_vocab_size):
            raise ValueError(f"pad_id is {self.pad_id!r}, expected an id that both vocabularies have")

    @classmethod
    def preset(cls, name: str, src_vocab_size: int, tgt_vocab_size: int, **changes: Any) -> "TransformerConfig":
        """Build a named configuration, with ``changes`` to any of its fields.

        Raises:
            ValueError: there is no preset of that name.
        """
        if name not in PRESETS:
            raise ValueError(f"preset is {name!r}, expected one of {', '.join(PRESETS)}")
        return cls(src_vocab_size, tgt_vocab_size, **{**PRESETS[name], **changes})
