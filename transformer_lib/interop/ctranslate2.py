"""To CTranslate2: a translator for the engine that people serve translation models with, without PyTorch.

``book/cookbook.md`` translates with it, and says where the engine's search differs from this library's.
"""

import base64
import tempfile
from collections.abc import Iterable
from pathlib import Path

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
    """Write a translator as a CTranslate2 model, which writes the same text in greedy search.

    The folder gets the model, its vocabularies, and ``config.json``, which also says how this library's translator
    tokenises text and searches; if the model has subwords, the sentencepiece models ``src.model`` and ``tgt.model``,
    too.

    Args:
        translator: its model in any precision, on any device.
        folder: a new or empty folder.
        quantization: how weights are stored, one of ``QUANTIZATIONS``; ``"int8"`` takes a quarter of the space.

    Raises:
        ImportError: ctranslate2 is not installed.
        FileExistsError: the folder holds something; it is left alone.
        TypeError: the model is a subclass of ``Transformer``, or a part of it was replaced, which may compute something
            else from the same weights.
        ValueError: there is no such quantization.
        OSError: the folder cannot be written.
    """
    try:
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation, LayerNormSpec
    except ImportError as error:
        raise ImportError(f"{error}: `pip install ctranslate2`") from error
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization is {quantization!r}, expected one of {', '.join(QUANTIZATIONS)}")
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists, expected a new or empty folder")
    model, config = translator.model, translator.model.config
    with torch.device("meta"):  # without numbers
        plain = Transformer(config)
    if type(model) is not Transformer or list(map(type, model.modules())) != list(map(type, plain.modules())):
        raise TypeError(f"model is a {type(model).__name__}, expected a Transformer, no subclass and no part replaced")
    activation = Activation[_ACTIVATIONS[config.activation]]
    sizes = (config.num_layers, config.num_heads)
    spec = TransformerSpec.from_config(*sizes, pre_norm=config.norm_first, activation=activation)
    if config.final_norm:  # with post-LN the engine has one too, but the specification has no option for it
        vars(spec.encoder)["layer_norm"], vars(spec.decoder)["layer_norm"] = LayerNormSpec(), LayerNormSpec()
    _fill(spec, model)
    for never in (translator.tgt_tokenizer.pad_id, translator.tgt_tokenizer.sos_id):
        spec.decoder.projection.bias[never] = _NEVER
    spec.register_source_vocabulary(translator.src_tokenizer.vocab.itos)
    spec.register_target_vocabulary(translator.tgt_tokenizer.vocab.itos)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, SOS, EOS
    spec.config.decoder_start_token = SOS
    spec.config.add_source_bos = spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.encoder.layers[0].norm1.eps
    tokenizers = {"src": translator.src_tokenizer.to_dict(), "tgt": translator.tgt_tokenizer.to_dict()}
    subwords = {side: values.pop("subwords") for side, values in tokenizers.items() if "subwords" in values}
    for values in tokenizers.values():
        values.pop("tokens", None)  # they are in the vocabularies' own files
    spec.config.add_attribute("max_len", config.max_len)
    search = {"beam_size": translator.beam_size, "length_penalty": translator.length_penalty}
    spec.config.add_attribute("search", search)
    spec.config.add_attribute("tokenizers", tokenizers)
    spec.validate()
    spec.optimize(quantization)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside:
        new = Path(beside) / "new"  # it becomes the folder if nothing fails on the way
        new.mkdir()
        spec.save(str(new))
        for side, content in subwords.items():
            (new / f"{side}.model").write_bytes(base64.b64decode(content))
        if folder.exists():
            folder.rmdir()  # an OSError if something has come into it meanwhile
        new.rename(folder)


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
