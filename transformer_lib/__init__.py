"""The Transformer of "Attention Is All You Need", step by step: a small library to read and to reuse.

The names below are loaded when they are first asked for; everything else is imported from its module, such as
``transformer_lib.model.embeddings``. ``transformer_lib.model`` needs nothing but torch.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see; a test compares it with the table below
    from transformer_lib.checkpoint import load_model as load_model
    from transformer_lib.checkpoint import save_model as save_model
    from transformer_lib.data.corpora import load_corpus as load_corpus
    from transformer_lib.data.tokenizers import WordTokenizer as WordTokenizer
    from transformer_lib.inference.bleu import sacre_bleu as sacre_bleu
    from transformer_lib.inference.translator import Translator as Translator
    from transformer_lib.interop.pytorch import from_torch as from_torch
    from transformer_lib.interop.pytorch import to_torch as to_torch
    from transformer_lib.language_model.generator import TextGenerator as TextGenerator
    from transformer_lib.language_model.model import LanguageModelConfig as LanguageModelConfig
    from transformer_lib.language_model.model import TransformerLanguageModel as TransformerLanguageModel
    from transformer_lib.language_model.texts import load_text as load_text
    from transformer_lib.language_model.train import train_language_model as train_language_model
    from transformer_lib.model.attention import MultiHeadAttention as MultiHeadAttention
    from transformer_lib.model.attention import scaled_dot_product_attention as scaled_dot_product_attention
    from transformer_lib.model.config import TransformerConfig as TransformerConfig
    from transformer_lib.model.decoder import Decoder as Decoder
    from transformer_lib.model.decoder import DecoderLayer as DecoderLayer
    from transformer_lib.model.encoder import Encoder as Encoder
    from transformer_lib.model.encoder import EncoderLayer as EncoderLayer
    from transformer_lib.model.masks import causal_mask as causal_mask
    from transformer_lib.model.masks import padding_mask as padding_mask
    from transformer_lib.model.masks import target_mask as target_mask
    from transformer_lib.model.sublayers import PositionwiseFeedForward as PositionwiseFeedForward
    from transformer_lib.model.transformer import Transformer as Transformer
    from transformer_lib.notebook.attention_viewer import AttentionViewer as AttentionViewer
    from transformer_lib.notebook.live_translator import LiveTranslator as LiveTranslator
    from transformer_lib.training.loop import evaluate as evaluate
    from transformer_lib.training.recipe import Recipe as Recipe
    from transformer_lib.training.train_translator import train_translator as train_translator
    from transformer_lib.training.trainer import fit as fit

_NAMES = {
    "checkpoint": ("load_model", "save_model"),
    "data.corpora": ("load_corpus",),
    "data.tokenizers": ("WordTokenizer",),
    "inference.bleu": ("sacre_bleu",),
    "inference.translator": ("Translator",),
    "interop.pytorch": ("from_torch", "to_torch"),
    "language_model.generator": ("TextGenerator",),
    "language_model.model": ("LanguageModelConfig", "TransformerLanguageModel"),
    "language_model.texts": ("load_text",),
    "language_model.train": ("train_language_model",),
    "model.attention": ("MultiHeadAttention", "scaled_dot_product_attention"),
    "model.config": ("TransformerConfig",),
    "model.decoder": ("Decoder", "DecoderLayer"),
    "model.encoder": ("Encoder", "EncoderLayer"),
    "model.masks": ("causal_mask", "padding_mask", "target_mask"),
    "model.sublayers": ("PositionwiseFeedForward",),
    "model.transformer": ("Transformer",),
    "notebook.attention_viewer": ("AttentionViewer",),
    "notebook.live_translator": ("LiveTranslator",),
    "training.loop": ("evaluate",),
    "training.recipe": ("Recipe",),
    "training.train_translator": ("train_translator",),
    "training.trainer": ("fit",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = list(_MODULE_OF)

try:
    __version__ = version("transformer-lib")
except PackageNotFoundError:  # the folder was copied, not installed
    __version__ = "unknown"


def __getattr__(name: str) -> Any:
    """Load a name when it is first asked for (PEP 562)."""
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
