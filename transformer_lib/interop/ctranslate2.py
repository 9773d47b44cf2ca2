"""To CTranslate2, an engine that serves translation models without PyTorch; ``book/cookbook.md`` translates with it."""

import copy
from pathlib import Path

import torch
from torch import nn

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import EOS, SOS, UNK
from transformer_lib.files import new_folder
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.pytorch import to_torch
from transformer_lib.model.transformer import Transformer


@torch.no_grad()
def to_ctranslate2(translator: Translator, folder: str | Path, quantization: str = "float32") -> None:
    """Write a translator as a CTranslate2 model, which writes the same text in greedy search.

    If it has subwords, their sentencepiece models lie beside it: ``src.model`` and ``tgt.model``.

    Args:
        translator: its model in any precision, on any device.
        folder: a new or empty folder; otherwise, a FileExistsError.
        quantization: how CTranslate2 is to store weights; ``"int8"`` takes a quarter of the space.

    Raises a TypeError if a part of the model was replaced: it may compute something else from the same weights.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation, LayerNormSpec

    model, config = translator.model, translator.model.config
    check_parts(model)

    model = copy.deepcopy(model).to("cpu", torch.float32)  # quantizing changes weights in place
    stacks, sizes = to_torch(model), (config.num_layers, config.num_heads)
    activation = Activation[{"silu": "SWISH"}.get(config.activation, config.activation.upper())]
    spec = TransformerSpec.from_config(*sizes, pre_norm=config.norm_first, activation=activation)
    spec.encoder.embeddings[0].weight = model.src_embedding.tokens.table.weight
    spec.decoder.embeddings.weight = model.tgt_embedding.tokens.table.weight
    spec.encoder.position_encodings.encodings = model.src_embedding.positions(config.max_len)
    spec.decoder.position_encodings.encodings = model.tgt_embedding.positions(config.max_len)
    for side, stack in ((spec.encoder, stacks.encoder), (spec.decoder, stacks.decoder)):
        for layer_spec, layer in zip(side.layer, stack.layers, strict=True):
            _fill_layer(layer_spec, layer)
        if stack.norm is not None:  # with post-LN the engine has one too, but the specification has no option for it
            vars(side)["layer_norm"] = LayerNormSpec()
            _fill(side.layer_norm, stack.norm)
    _fill(spec.decoder.projection, model.output)
    never_written = [translator.tgt_tokenizer.pad_id, translator.tgt_tokenizer.sos_id]
    spec.decoder.projection.bias[never_written] = -1e4  # a logit that float16 has, too

    spec.register_source_vocabulary(translator.src_tokenizer.vocab.itos)
    spec.register_target_vocabulary(translator.tgt_tokenizer.vocab.itos)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, SOS, EOS
    spec.config.decoder_start_token = SOS
    spec.config.add_source_bos = spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.encoder.layers[0].norm1.eps
    spec.config.add_attribute("max_len", config.max_len)
    spec.config.add_attribute("lower", translator.src_tokenizer.lower)
    spec.validate()
    spec.optimize(quantization)
    with new_folder(folder) as temporary:
        spec.save(str(temporary))
        for side, tokenizer in (("src", translator.src_tokenizer), ("tgt", translator.tgt_tokenizer)):
            if isinstance(tokenizer, SubwordTokenizer):
                (temporary / f"{side}.model").write_bytes(tokenizer.model)


def check_parts(model: Transformer) -> None:
    """Raise a TypeError if a part of a model was replaced: it may compute something else from the same weights."""
    with torch.device("meta"):  # without numbers
        plain = Transformer(model.config)
    if list(map(type, model.modules())) != list(map(type, plain.modules())):
        raise TypeError(f"model is a {type(model).__name__}, expected a Transformer, no subclass and no part replaced")


def _fill_layer(spec, layer: nn.Module) -> None:
    """Give a specification a layer of PyTorch's; there, each sub-layer has its own norm."""
    _fill_attention(spec.self_attention, layer.self_attn, layer.norm1)
    if isinstance(layer, nn.TransformerDecoderLayer):
        _fill_attention(spec.attention, layer.multihead_attn, layer.norm2)
    _fill(spec.ffn.layer_norm, getattr(layer, "norm3", layer.norm2))
    _fill(spec.ffn.linear_0, layer.linear1)
    _fill(spec.ffn.linear_1, layer.linear2)


def _fill_attention(spec, attention: nn.MultiheadAttention, norm: nn.LayerNorm) -> None:
    """Give it attention and its norm; in cross-attention, the projection of queries stands alone."""
    *projections, out = spec.linear
    rows = [attention.embed_dim * number for number in ([3] if len(projections) == 1 else [1, 2])]
    packed = zip(projections, attention.in_proj_weight.split(rows), attention.in_proj_bias.split(rows), strict=True)
    for projection, weight, bias in packed:
        projection.weight, projection.bias = weight, bias
    _fill(out, attention.out_proj)
    _fill(spec.layer_norm, norm)


def _fill(spec, part: nn.Linear | nn.LayerNorm) -> None:
    if isinstance(part, nn.LayerNorm):
        spec.gamma, spec.beta = part.weight, part.bias
    else:
        spec.weight, spec.bias = part.weight, part.bias
