"""To CTranslate2, an engine that serves translation models without PyTorch; ``book/cookbook.md`` translates with it."""

import copy
from pathlib import Path

import torch
from torch import nn

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import EOS, SOS, UNK
from transformer_lib.files import new_folder
from transformer_lib.inference.translator import Translator
from transformer_lib.model.transformer import Transformer

LARGEST_HALF = torch.finfo(torch.float16).max  # number of half precision: 65,504


@torch.no_grad()
def to_ctranslate2(translator: Translator, folder: str | Path, quantization: str = "float32") -> None:
    """Write a translator as a CTranslate2 model, which writes the same text in greedy search.

    If it has subwords, their sentencepiece models lie beside it: ``src.model`` and ``tgt.model``.

    Args:
        translator: its model in any precision, on any device.
        folder: a new or empty folder; otherwise, a FileExistsError.
        quantization: how CTranslate2 is to store weights; ``"int8"`` takes a quarter of the space.

    Raises a TypeError if a part of the model was replaced: it may compute something else from the same weights; and a
    ValueError if there is no such quantization, or a weight is too large for it.
    """
    from ctranslate2.converters.fairseq import set_embeddings, set_layer_norm, set_linear, set_multi_head_attention
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation, LayerNormSpec

    check_parts(translator.model)
    # a copy, since quantizing changes weights in place
    model = copy.deepcopy(translator.model).to("cpu", torch.float32).requires_grad_(False)
    config = model.config
    largest = largest_weight(model)
    if "float16" in quantization and "bfloat16" not in quantization and not largest <= LARGEST_HALF:
        raise ValueError(f"quantization is {quantization!r}, in which a weight of {largest:,.0f} would be infinite")
    activation = Activation[{"silu": "SWISH"}.get(config.activation, config.activation.upper())]
    sizes = config.num_layers, config.num_heads
    spec = TransformerSpec.from_config(*sizes, pre_norm=config.norm_first, activation=activation)
    set_embeddings(spec.encoder.embeddings[0], model.src_embedding.tokens.table)
    set_embeddings(spec.decoder.embeddings, model.tgt_embedding.tokens.table)
    spec.encoder.position_encodings.encodings = model.src_embedding.positions(config.max_len)
    spec.decoder.position_encodings.encodings = model.tgt_embedding.positions(config.max_len)
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        for layer_spec, layer in zip(side.layer, stack.layers, strict=True):
            set_multi_head_attention(layer_spec.self_attention, layer.self_attn, self_attention=True)
            set_layer_norm(layer_spec.self_attention.layer_norm, layer.norm1)
            if stack is model.decoder:
                set_multi_head_attention(layer_spec.attention, layer.cross_attn)
                set_layer_norm(layer_spec.attention.layer_norm, layer.norm2)
            set_layer_norm(layer_spec.ffn.layer_norm, layer.norm3 if stack is model.decoder else layer.norm2)
            set_linear(layer_spec.ffn.linear_0, layer.feed_forward.linear1)
            set_linear(layer_spec.ffn.linear_1, layer.feed_forward.linear2)
        if isinstance(stack.norm, nn.LayerNorm):  # with post-LN the engine has one too, but the specification no option
            vars(side)["layer_norm"] = LayerNormSpec()
            set_layer_norm(side.layer_norm, stack.norm)
    set_linear(spec.decoder.projection, model.output)
    never_written = [translator.tgt_tokenizer.pad_id, translator.tgt_tokenizer.sos_id]
    spec.decoder.projection.bias[never_written] = -1e4  # a logit that float16 has, too

    spec.register_source_vocabulary(translator.src_tokenizer.vocab.itos)
    spec.register_target_vocabulary(translator.tgt_tokenizer.vocab.itos)
    spec.config.unk_token = UNK
    spec.config.bos_token = SOS
    spec.config.eos_token = EOS
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
                (temporary / f"{side}.model").write_bytes(tokenizer.pieces)


def largest_weight(model: nn.Module) -> float:
    """Return the largest weight of a model, without its sign, or nan if one is."""
    return torch.stack([tensor.abs().max().float() for tensor in model.state_dict().values()]).max().item()


def check_parts(model: Transformer) -> None:
    """Raise a TypeError if a part of a model was replaced: it may compute something else from the same weights."""
    with torch.device("meta"):  # without numbers
        plain = Transformer(model.config)
    if list(map(type, model.modules())) != list(map(type, plain.modules())):
        raise TypeError(f"model is a {type(model).__name__}, expected a Transformer, no subclass and no part replaced")
