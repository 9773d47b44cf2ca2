"""PyTorch's own layers and this library's are the same thing: weights and settings go both ways.

Their masks mean the opposite of each other: here True means "may attend", there it means "ignore".
"""

import copy

import torch
from torch import Tensor, nn

from transformer_lib.fast.dropout import Dropout
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.decoder import Decoder, DecoderLayer
from transformer_lib.model.encoder import Encoder, EncoderLayer
from transformer_lib.model.sublayers import ACTIVATIONS, PositionwiseFeedForward
from transformer_lib.model.transformer import Transformer

# what this library calls a part of a layer, and what PyTorch calls it
ENCODER_LAYER = {
    "self_attn": "self_attn",
    "norm1": "norm1",
    "feed_forward.linear1": "linear1",
    "feed_forward.dropout": "dropout",
    "feed_forward.linear2": "linear2",
    "norm2": "norm2",
}
DECODER_LAYER = {**ENCODER_LAYER, "cross_attn": "multihead_attn", "norm3": "norm3"}


def to_torch(ours: nn.Module) -> nn.Module:
    """Build PyTorch's counterpart of a module, with a copy of its weights and settings, on its device, in its mode.

    It takes ``[batch, seq_len, d_model]`` (``batch_first=True``), and all its weights are trainable. An
    ``nn.Transformer`` has no embeddings and no output layer. Of a model of your own, convert encoder and decoder.

    Args:
        ours: ``MultiHeadAttention``, ``EncoderLayer``, ``DecoderLayer``, ``Encoder``, ``Decoder`` or ``Transformer``.

    Raises:
        TypeError: it, or a part of it, is of another class; a subclass may compute something else.
    """
    kind = type(ours)
    theirs: nn.Module
    if kind in (nn.Linear, nn.LayerNorm):
        theirs = copy.deepcopy(ours)
    elif kind is Dropout:
        theirs = nn.Dropout(ours.p)
    elif kind is MultiHeadAttention:
        theirs = _attention_to_torch(ours)
    elif kind is EncoderLayer:
        theirs = _layer_to_torch(ours, nn.TransformerEncoderLayer, ENCODER_LAYER)
    elif kind is DecoderLayer:
        theirs = _layer_to_torch(ours, nn.TransformerDecoderLayer, DECODER_LAYER)
    elif kind in (Encoder, Decoder):
        layers = nn.ModuleList(map(to_torch, ours.layers))
        if kind is Encoder:  # its nested tensors would put zeros where padding is, in evaluation mode
            theirs = nn.TransformerEncoder(layers[0], num_layers=0, enable_nested_tensor=False)
        else:
            theirs = nn.TransformerDecoder(layers[0], num_layers=0)
        theirs.layers, theirs.num_layers = layers, len(layers)
        theirs.norm = None if isinstance(ours.norm, nn.Identity) else to_torch(ours.norm)
    elif kind is Transformer:
        sizes, nothing = (ours.config.d_model, ours.config.num_heads), nn.Identity()
        # it draws new weights for whatever it is built of, so ours come after that
        theirs = nn.Transformer(*sizes, custom_encoder=nothing, custom_decoder=nothing, batch_first=True)
        theirs.encoder, theirs.decoder = to_torch(ours.encoder), to_torch(ours.decoder)
    else:
        raise TypeError(f"ours has a {kind.__module__}.{kind.__name__}, expected this library's own classes throughout")
    return theirs.train(ours.training).requires_grad_(True)


def from_torch(theirs: nn.Module) -> nn.Module | tuple[Encoder, Decoder]:
    """Build this library's counterpart of a PyTorch module, as ``to_torch`` does the other way.

    An ``nn.Transformer`` gives an encoder and a decoder: ``model.encoder, model.decoder = from_torch(theirs)``.

    Args:
        theirs: ``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer``, ``nn.TransformerDecoderLayer``,
            ``nn.TransformerEncoder``, ``nn.TransformerDecoder`` or ``nn.Transformer``, batch first or not.

    Raises:
        TypeError: it, or a part of it, is of another class; a subclass may compute something else.
        ValueError: it was built with an option that this library does not have, such as ``bias=False``.
    """
    kind = type(theirs)
    ours: nn.Module
    if kind in (nn.Linear, nn.LayerNorm):
        ours = copy.deepcopy(theirs)
    elif kind is nn.Dropout:
        ours = Dropout(theirs.p)
    elif kind is nn.MultiheadAttention:
        ours = _attention_from_torch(theirs)
    elif kind is nn.TransformerEncoderLayer:
        ours = _layer_from_torch(theirs, EncoderLayer, ENCODER_LAYER)
    elif kind is nn.TransformerDecoderLayer:
        ours = _layer_from_torch(theirs, DecoderLayer, DECODER_LAYER)
    elif kind in (nn.TransformerEncoder, nn.TransformerDecoder):
        stack = Encoder if kind is nn.TransformerEncoder else Decoder
        ours = stack(map(from_torch, theirs.layers), theirs.norm and from_torch(theirs.norm))
    elif kind is nn.Transformer:
        return from_torch(theirs.encoder), from_torch(theirs.decoder)
    else:
        raise TypeError(f"theirs has a {kind.__module__}.{kind.__name__}, expected PyTorch's own classes throughout")
    return ours.train(theirs.training).requires_grad_(True)


@torch.no_grad()
def _attention_to_torch(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """Put the projections of queries, keys and values on top of each other."""
    q, k, v, out = map(to_torch, (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj))
    weight = torch.cat([q.weight, k.weight, v.weight])  # [3 · d_model, d_model]
    theirs = nn.MultiheadAttention(weight.shape[1], ours.num_heads, ours.dropout, batch_first=True).to(weight)
    theirs.in_proj_weight.copy_(weight)
    theirs.in_proj_bias.copy_(torch.cat([q.bias, k.bias, v.bias]))  # [3 · d_model]
    theirs.out_proj.load_state_dict(out.state_dict())
    return theirs


@torch.no_grad()
def _attention_from_torch(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    """Cut the packed projection into those of queries, keys and values."""
    weight, bias = theirs.in_proj_weight, theirs.in_proj_bias  # None with kdim or vdim, and with bias=False
    if weight is None or bias is None or theirs.bias_k is not None or theirs.add_zero_attn:
        raise ValueError("theirs has bias=False, kdim, vdim, add_bias_kv or add_zero_attn, expected none of these")
    ours = MultiHeadAttention(theirs.embed_dim, theirs.num_heads, theirs.dropout).to(weight)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    for projection, w, b in zip(projections, weight.chunk(3), bias.chunk(3), strict=True):
        projection.load_state_dict({"weight": w, "bias": b})  # [d_model, d_model] and [d_model]
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    return ours


def _layer_to_torch(ours: EncoderLayer | DecoderLayer, counterpart: type, names: dict[str, str]) -> nn.Module:
    if type(ours.feed_forward) is not PositionwiseFeedForward:
        raise TypeError(f"ours has a {type(ours.feed_forward).__name__} as its feed_forward, expected this library's")
    linear1, activation = ours.feed_forward.linear1, ACTIVATIONS[ours.feed_forward.activation]
    sizes = (linear1.in_features, ours.self_attn.num_heads, linear1.out_features)
    theirs = counterpart(*sizes, ours.dropout.p, activation, batch_first=True, norm_first=ours.norm_first)
    for our_name, their_name in names.items():
        setattr(theirs, their_name, to_torch(ours.get_submodule(our_name)))
    return theirs


def _layer_from_torch(theirs: nn.Module, counterpart: type, names: dict[str, str]) -> EncoderLayer | DecoderLayer:
    sizes = (theirs.self_attn.embed_dim, theirs.self_attn.num_heads, theirs.linear1.out_features)
    settings = {"norm_first": theirs.norm_first, "activation": _activation_of(theirs)}
    ours = counterpart(*sizes, theirs.dropout1.p, **settings)
    for our_name, their_name in names.items():
        ours.set_submodule(our_name, from_torch(theirs.get_submodule(their_name)))
    return ours


def _activation_of(theirs: nn.Module) -> str:
    """Return the name of a layer's activation, a function or a module, which what it computes tells."""
    x = torch.linspace(-9, 9, 99).to(theirs.linear1.weight)
    for name, activation in ACTIVATIONS.items():
        if torch.allclose(theirs.activation(x.clone()), activation(x), atol=1e-6):  # a clone: it may work in place
            return name
    raise ValueError(f"theirs has activation={theirs.activation}, expected one of {', '.join(ACTIVATIONS)}")


def to_key_padding_mask(mask: Tensor) -> Tensor:
    """Convert a ``padding_mask``, ``[batch, 1, 1, seq_len]``, to PyTorch's ``key_padding_mask``, ``[batch, seq_len]``.

    Raises:
        ValueError: the mask is not boolean, or has another shape.
    """
    _check_boolean("mask", mask, "mask == 0")
    if mask.dim() != 4 or mask.shape[1:3] != (1, 1):
        raise ValueError(f"mask has shape {list(mask.shape)}, expected [batch, 1, 1, seq_len] as padding_mask gives")
    return ~mask[:, 0, 0, :]


def to_attn_mask(mask: Tensor) -> Tensor:
    """Convert a ``causal_mask`` or ``local_mask`` to PyTorch's ``attn_mask``; both are ``[query_len, key_len]``.

    Raises:
        ValueError: the mask is not boolean, or has another shape.
    """
    _check_boolean("mask", mask, "mask == 0")
    if mask.dim() != 2:
        raise ValueError(f"mask has shape {list(mask.shape)}, expected [query_len, key_len]")
    return ~mask


def from_torch_masks(key_padding_mask: Tensor | None = None, attn_mask: Tensor | None = None) -> Tensor | None:
    """Convert ``nn.Transformer``'s masks, where True means "ignore", to one mask of this library.

    Args:
        key_padding_mask: ``[batch, key_len]``, boolean, or None.
        attn_mask: ``[query_len, key_len]``, boolean, or None.

    Returns:
        ``[batch, 1, 1, key_len]``, ``[query_len, key_len]`` or both at once, ``[batch, 1, query_len, key_len]``; True
        means "may attend". None if both are None.

    Raises:
        ValueError: a mask is not boolean.
    """
    for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if mask is not None:
            _check_boolean(name, mask, "mask == -inf")
    ignored = attn_mask
    if key_padding_mask is not None:
        padding = key_padding_mask[:, None, None, :]  # [batch, 1, 1, key_len]
        ignored = padding if attn_mask is None else padding | attn_mask
    return None if ignored is None else ~ignored


def _check_boolean(name: str, mask: Tensor, of_additive: str) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"{name} has dtype {mask.dtype}, expected torch.bool; of an additive float mask, take {of_additive}"
        )
