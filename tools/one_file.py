"""To and from ``the_transformer.py``, the whole Transformer in one file at the top of the repository."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK
from transformer_lib.files import CheckpointError, replacing
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.ctranslate2 import check_parts
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer

_ARCHITECTURE: dict[str, Any] = {
    "norm_first": True,
    "positions": "sinusoidal",
    "tie_embeddings": True,
    "activation": "relu",
}
_TABLES = "src_embedding.tokens.table.weight", "tgt_embedding.tokens.table.weight"  # in one file, output.weight alone
_SETTINGS = "d_model", "num_heads", "d_ff", "num_layers", "dropout"


def from_one_file(path: str | Path, src: str = "de", tgt: str = "en") -> Translator:
    """Build a translator of what ``the_transformer.py train`` saved; ``save_model`` can write its parts.

    It writes the same text, except where the file cut a word of over 100 characters or a sentence of over 256 pieces,
    and where a translation finds no end: that of a short sentence beside long ones is longer there.

    Args:
        path: the file. It may come from anybody: reading never runs code.
        src, tgt: codes of the languages that it translates from and to.

    Raises an OSError, or a CheckpointError if it is not such a file, or damaged.
    """
    open(path, "rb").close()  # an OSError says why it cannot be read
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # by checksums, which torch.load ignores
        saved = torch.load(path, map_location="cpu", weights_only=True)
        theirs, pieces, weights = saved["config"], saved["pieces"], saved["weights"]
        layers = sum(name.endswith(".norm3.weight") for name in weights)
        sizes = len(pieces), theirs["d_model"], theirs["d_ff"], theirs["num_layers"]
        d_ff, d_model = weights["encoder.layers.0.feed_forward.linear1.weight"].shape
        if damaged or sizes != (len(weights["output.weight"]), d_model, d_ff, layers):  # before anything is made
            raise ValueError(f"damaged: {damaged}, or of other sizes than {sizes}")
        settings = {name: theirs[name] for name in _SETTINGS} | {"max_len": 256}
        model = Transformer(TransformerConfig(len(pieces), len(pieces), **settings, **_ARCHITECTURE))
        model.load_state_dict({**weights, **dict.fromkeys(_TABLES, weights["output.weight"])})
        src_tokenizer, tgt_tokenizer = (SubwordTokenizer(each, _sentencepiece_model(pieces)) for each in (src, tgt))
        return Translator(model, src_tokenizer, tgt_tokenizer, theirs["beam_size"], theirs["length_penalty"])
    except Exception as error:  # torch.load raises whatever its parsers stumble over
        raise CheckpointError(f"{path} is nothing that the_transformer.py saved ({error!r:.100})") from None


def to_one_file(translator: Translator, path: str | Path) -> None:
    """Write a translator for ``the_transformer.py translate``, which writes the same text.

    Raises a ValueError if the one file computes something else: it has pre-LN, sinusoids, ReLU, one table for all, and
    lower-cased subwords of both languages. A TypeError says that a part of the model was replaced.
    """
    config, tokenizer, other = translator.model.config, translator.src_tokenizer, translator.tgt_tokenizer
    check_parts(translator.model)
    for name, value in _ARCHITECTURE.items():
        if (actual := getattr(config, name)) != value:
            raise ValueError(f"the model has {name}={actual!r}, expected {value!r}, as in the_transformer.py")
    alike = {**tokenizer.to_dict(), "language": other.language} == other.to_dict()
    if not isinstance(tokenizer, SubwordTokenizer) or not tokenizer.lower or not alike:
        raise ValueError("src_tokenizer and tgt_tokenizer are not the same lower-cased subwords, expected those")
    pieces, scores = tokenizer.vocab.itos, map(tokenizer.processor.get_score, range(4, len(tokenizer.vocab)))
    if pieces[:4] != [UNK, PAD, SOS, EOS] or any(score != -i for i, score in enumerate(scores)):
        raise ValueError("src_tokenizer has pieces in another order than byte-pair encoding learns them in")
    settings = {name: getattr(config, name) for name in _SETTINGS} | {"vocab_size": len(pieces)}
    search = {"beam_size": translator.beam_size, "length_penalty": translator.length_penalty}
    weights = {name: tensor for name, tensor in translator.model.state_dict().items() if name not in _TABLES}
    buffer = io.BytesIO()  # torch.save itself would not say why a file cannot be written
    torch.save({"config": settings | search, "pieces": pieces, "weights": weights}, buffer)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def _sentencepiece_model(pieces: list[str]) -> bytes:
    """Write pieces down as sentencepiece does, in protocol buffers: https://protobuf.dev/programming-guides/encoding."""

    def text(number: int, content: bytes) -> bytes:
        size = len(content)  # seven bits a byte; the highest bit says that more follow
        length = bytes([size % 128 + 128, size // 128]) if size > 127 else bytes([size])
        return bytes([number << 3 | 2]) + length + content

    model = b""
    for i, piece in enumerate(pieces):  # its text, its score (what is learned first is joined first) and its kind
        kind = 2 if piece == UNK else 3 if piece in (PAD, SOS, EOS) else 1
        content = text(1, piece.encode()) + b"\x15" + struct.pack("<f", min(0, 4 - i)) + bytes([3 << 3, kind])
        model += text(1, content)
    byte_pair_encoding = bytes([3 << 3, 2])
    return model + text(2, byte_pair_encoding) + text(3, text(1, b"identity"))
