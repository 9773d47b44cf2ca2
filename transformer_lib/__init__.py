"""The Transformer of "Attention Is All You Need", step by step: a small library to read and to reuse."""

from importlib.metadata import PackageNotFoundError, version

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
from transformer_lib.training.loop import evaluate as evaluate
from transformer_lib.training.recipe import Recipe as Recipe
from transformer_lib.training.train_translator import train_translator as train_translator
from transformer_lib.training.trainer import fit as fit

try:
    __version__ = version("transformer-step-by-step")
except PackageNotFoundError:  # the folder was copied, not installed
    __version__ = "unknown"
