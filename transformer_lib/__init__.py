"""The Transformer of "Attention Is All You Need", step by step: a small library to read and to reuse.

Importing it loads the model half, which needs nothing but torch. The other modules (``transformer_lib.text``,
``transformer_lib.training`` …) and their packages load when they are first asked for.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version

from transformer_lib.add_norm import AddNorm
from transformer_lib.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lib.conversion import from_torch, to_torch
from transformer_lib.decoder import Decoder, DecoderLayer
from transformer_lib.embeddings import Embedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from transformer_lib.encoder import Encoder, EncoderLayer
from transformer_lib.feed_forward import PositionwiseFeedForward
from transformer_lib.language_model import LanguageModelConfig, TransformerLanguageModel
from transformer_lib.masks import causal_mask, local_mask, padding_mask, target_mask
from transformer_lib.transformer import AttentionMaps, Transformer, TransformerConfig

try:
    __version__ = version("transformer-lib")
except PackageNotFoundError:  # the folder was copied, not installed
    __version__ = "unknown"

_LAZY_MODULES = (
    "batching",
    "bleu",
    "checkpoint",
    "cli",
    "corpora",
    "generator",
    "live",
    "losses",
    "optimization",
    "parallel",
    "pipeline",
    "plots",
    "precision",
    "recipes",
    "search",
    "series",
    "subwords",
    "text",
    "training",
    "translator",
    "viewer",
)
_LAZY_NAMES = {
    "AttentionViewer": "viewer",
    "LiveTranslator": "live",
    "TextGenerator": "generator",
    "Translator": "translator",
    "load_corpus": "corpora",
    "load_text": "corpora",
    "train_language_model": "pipeline",
    "train_translator": "pipeline",
}

__all__ = [
    "AddNorm",
    "AttentionMaps",
    "Decoder",
    "DecoderLayer",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "LanguageModelConfig",
    "LearnedPositions",
    "MultiHeadAttention",
    "PositionwiseFeedForward",
    "SinusoidalPositions",
    "TokenEmbedding",
    "Transformer",
    "TransformerConfig",
    "TransformerLanguageModel",
    "causal_mask",
    "from_torch",
    "local_mask",
    "padding_mask",
    "scaled_dot_product_attention",
    "target_mask",
    "to_torch",
]


def __getattr__(name):
    """Load a module of the other half when it is first asked for (PEP 562)."""
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_LAZY_MODULES, *_LAZY_NAMES})
