"""What ``write`` goes on with until the reader's own is right: the library's own functions and classes.

There is a module for each notebook. Where the reader's takes or returns something else than the library's, an adaptor
of a few lines stands in; where the library has no such thing, since it is a step on the way to one, the worked answer.

Where two notebooks ask for something of the same name, the earlier one's has an addition, as in ``"MultiHeadAttention,
without mask"``. ``keep``, ``kept`` and the reader's file ask for the whole, under the name alone.
"""

import importlib
from typing import Any

WRITTEN = {  # by the notebook that asks for them
    "02": (
        *("attention", "Head", "HeadsInAList", "MultiHeadAttention, without mask"),
        "MyMultiHeadAttention",
    ),
    "03": (
        *("scaled_dot_product_attention", "MultiHeadAttention"),
        *("padding_mask", "causal_mask", "target_mask"),
    ),
    "04": (
        *("TokenEmbedding", "SinusoidalPositionalEncoding", "InputEmbedding", "PositionwiseFeedForward"),
        *("EncoderLayer", "DecoderLayer", "Decoder"),
    ),
    "05": ("Transformer", "MyTransformer"),
    "06": ("token_loss", "train_one_epoch", "my_training"),
    "07": ("greedy", "beam_one", "greedy_batch", "beam", "my_beam", "my_cached_beam"),
    "08": ("looks_back", "silence", "patch"),
    "09": ("clipped_matches", "brevity_penalty", "corpus_bleu"),
    "10": ("Block",),
    "11": ("rotate",),
    "12": ("join_pair",),
    "15": ("PaperTransformer",),
}
STEPS = {  # of which the library has no like
    *("Head", "HeadsInAList", "greedy", "beam_one", "greedy_batch", "beam", "my_beam", "my_cached_beam"),
    *("looks_back", "silence", "patch", "clipped_matches", "brevity_penalty"),
    *("Block", "rotate", "join_pair"),
}


def notebook_of(name: str) -> str:
    """Return the number of the notebook in which something of this name is written; an empty string if none."""
    return next((number for number, names in WRITTEN.items() if name in names), "")


def own(name: str) -> Any:
    """Return what stands in for a function or class of this name.

    Raises:
        ValueError: there is none.
    """
    if not (number := notebook_of(name)):
        raise ValueError(f"written is called {name!r}, expected the name that the notebook gives it")
    return getattr(importlib.import_module(f"{__name__}.notebook_{number}"), name.partition(",")[0])


def whose(name: str) -> str:
    """Return whose stands in under a name: ``"the library's"``, or ``"the course's"`` where the library has none."""
    return "the course's" if name in STEPS else "the library's"


def has(item: Any) -> bool:
    """Return whether a function or class is one that stands in."""
    name = getattr(item, "__name__", "")
    return bool(notebook_of(name)) and item is own(name)
