"""To CTranslate2: a translator for the engine that people serve translation models with, without PyTorch.

The cookbook (``book/cookbook.md``) translates with a model of subwords, by CTranslate2 and sentencepiece alone. With a
model of words, ``tokens`` and ``join`` of a ``WordTokenizer`` make tokens of a sentence, and text of tokens. The engine
adds ``<sos>`` and ``<eos>`` itself. ``max_input_length=0`` makes it refuse a sentence that is too long, which it would
cut off. ``compute_type="int8"`` is faster, and now and then writes another word.

Greedy search with ``min_decoding_length=0`` (the engine's default, 1, forbids an empty translation) gives what
``Translator`` gives, except for a translation that does not end: here it stops 50 tokens after its source's length,
there at ``max_decoding_length``. Beam search is similar, but not the same: a hypothesis of n tokens is divided by n^α
there, and by ((5 + n) / 6)^α here. Around n tokens, α · n / (n + 5) ranks nearly as α does here. It also stops as soon
as ``beam_size`` hypotheses have ended, while ours goes on if a longer one could still win.
"""

import base64
import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.data.tokenizers import EOS, SOS, UNK
from transformer_lib.inference.translator import Translator
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.transformer import Transformer

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16")
_NEVER = -1e4  # a logit of what is never written; float16 has it, too
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}


def to_ctranslate2(translator: Translator, folder: str | Path, quantization: str = "float32") -> None:
    """Write a translator as a CTranslate2 model (see above).

    The folder gets the model, its vocabularies, and ``config.json``, which also says how this library's translator
    cuts text and searches; if the model has subwords, the sentencepiece models ``src.model`` and ``tgt.model``, too.

    Args:
        translator: its model in float32, on any device.
        folder: a new or empty folder.
        quantization: how weights are stored, one of ``QUANTIZATIONS``; ``"int8"`` takes a quarter of the space.

    Raises:
        ImportError: ctranslate2 is not installed.
        FileExistsError: the folder holds something; it is left alone.
        TypeError: the model is a subclass of ``Transformer``, which may compute something else from the same weights.
        ValueError: there is no such quantization, or a part of the model was replaced.
        OSError: the folder cannot be written.
    """
    try:
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation
    except ImportError as error:
        raise ImportError(f"{error}: `pip install ctranslate2`") from error
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization is {quantization!r}, expected one of {', '.join(QUANTIZATIONS)}")
    _check_new(folder)  # fail before the slow part
    model = translator.model
    if type(model) is not Transformer:
        raise TypeError(
            f"model is a {type(model).__name__}, expected this library's Transformer and no subclass: that may compute "
            "something else from the same weights"
        )
    config = model.config
    if config.activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ValueError(f"activation is {config.activation!r}, expected one that CTranslate2 has as well: {known}")
    spec = TransformerSpec.from_config(
        config.num_layers,
        config.num_heads,
        pre_norm=config.norm_first,
        activation=Activation[_ACTIVATIONS[config.activation]],
    )
    _fill(spec, model)
    for never in (translator.tgt_tokenizer.pad_id, translator.tgt_tokenizer.sos_id):
        spec.decoder.projection.bias[never] = _NEVER
    spec.register_source_vocabulary(translator.src_tokenizer.vocab.itos)
    spec.register_target_vocabulary(translator.tgt_tokenizer.vocab.itos)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, SOS, EOS
    spec.config.decoder_start_token = SOS
    spec.config.add_source_bos = spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.encoder.layers[0].norm1.eps
    description, files = _description_of(translator)
    for tokenizer in description["tokenizers"].values():
        tokenizer.pop("tokens", None)  # they are in the vocabularies' own files
    for name, value in description.items():
        spec.config.add_attribute(name, value)
    spec.validate()
    spec.optimize(quantization)
    with _new_folder(folder) as new:
        spec.save(str(new))
        for name, content in files.items():
            (new / name).write_bytes(content)


def _fill(spec, model: Transformer) -> None:
    """Copy a model's weights into a ``TransformerSpec``, in whose layers each sub-layer has its own norm."""
    spec.encoder.embeddings[0].weight = _copy(model.src_embedding.tokens.table.weight)
    spec.decoder.embeddings.weight = _copy(model.tgt_embedding.tokens.table.weight)
    spec.encoder.position_encodings.encodings = _copy(model.src_embedding.positions(model.config.max_len))
    spec.decoder.position_encodings.encodings = _copy(model.tgt_embedding.positions(model.config.max_len))
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        for theirs, ours in zip(side.layer, stack.layers, strict=True):
            _fill_attention(theirs.self_attention, ours.self_attn, ours.norm1, fused=3)
            if side is spec.decoder:
                _fill_attention(theirs.attention, ours.cross_attn, ours.norm2, fused=2)
            _fill_norm(theirs.ffn.layer_norm, ours.norm3 if side is spec.decoder else ours.norm2)
            _fill_linear(theirs.ffn.linear_0, [ours.feed_forward.linear1])
            _fill_linear(theirs.ffn.linear_1, [ours.feed_forward.linear2])
        if isinstance(stack.norm, nn.LayerNorm):
            _fill_norm(side.layer_norm, stack.norm)
    _fill_linear(spec.decoder.projection, [model.output])


def _fill_attention(spec, attention: MultiHeadAttention, norm: nn.LayerNorm, fused: int) -> None:
    """Copy attention and its norm; the last ``fused`` of the projections q, k and v are one matrix there."""
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    if fused == 2:
        _fill_linear(spec.linear[0], projections[:1])
    _fill_linear(spec.linear[-2], projections[-fused:])
    _fill_linear(spec.linear[-1], [attention.out_proj])
    _fill_norm(spec.layer_norm, norm)


def _fill_linear(spec, layers: Iterable[nn.Linear]) -> None:
    spec.weight = torch.cat([_copy(layer.weight) for layer in layers])
    spec.bias = torch.cat([_copy(layer.bias) for layer in layers])


def _fill_norm(spec, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _copy(tensor: Tensor) -> Tensor:
    """Copy weights, as NumPy can read them: quantizing would change the model's own in place."""
    return tensor.detach().to("cpu", torch.float32, copy=True)


def _description_of(translator: Translator) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what ``config.json`` says of a translator besides its numbers, and the sentencepiece models by file."""
    files, tokenizers = {}, {}
    for side, tokenizer in (("src", translator.src_tokenizer), ("tgt", translator.tgt_tokenizer)):
        tokenizers[side] = values = tokenizer.to_dict()
        if "subwords" in values:
            files[f"{side}.model"] = base64.b64decode(values.pop("subwords"))
            values["sentencepiece"] = f"{side}.model"
    search = {"beam_size": translator.beam_size, "length_penalty": translator.length_penalty}
    return {"max_len": translator.model.config.max_len, "search": search, "tokenizers": tokenizers}, files


def _check_new(folder: str | Path) -> None:
    """Raise a FileExistsError unless a folder is new or empty."""
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not os.listdir(folder)):
        raise FileExistsError(f"{folder} exists, expected a new or empty folder: choose another, or remove it")


@contextlib.contextmanager
def _new_folder(folder: str | Path) -> Iterator[Path]:
    """Give an empty folder to write to, which becomes ``folder``, new or empty, if nothing fails on the way.

    A process that is killed leaves a hidden folder beside it.

    Raises:
        FileExistsError: the folder holds something; it is left alone.
        OSError: it cannot be written.
    """
    folder = Path(os.path.realpath(folder))
    _check_new(folder)
    if folder.exists() and folder.samefile(Path.cwd()):
        raise FileExistsError(f"{folder} is the folder you are in, which would be replaced: name a new one in it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside:
        new = Path(beside) / "new"
        new.mkdir()
        yield new
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()  # an OSError if something has come into it meanwhile
        new.rename(folder)
