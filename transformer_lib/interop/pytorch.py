"""PyTorch's own layers and this library's are the same thing: weights and settings go both ways.

Their masks mean the opposite of each other: here True means "may attend", there it means "ignore".
"""

import copy

import torch
from torch import Tensor, nn

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
_PARTS = (MultiHeadAttention, PositionwiseFeedForward, nn.LayerNorm, nn.Linear, nn.Dropout)  # of which layers are built


def to_torch(ours: nn.Module) -> nn.Module:
    """Build PyTorch's counterpart of a module, with a copy of its weights and settings, on its device, in its mode.

    It takes ``[batch, seq_len, d_model]`` (``batch_first=True``), and all its weights are trainable. An
    ``nn.Transformer`` has no embeddings and no output layer. Of a model of your own, convert encoder and decoder.

    Args:
        ours: ``MultiHeadAttention``, ``EncoderLayer``, ``DecoderLayer``, ``Encoder``, ``Decoder`` or ``Transformer``.

    Raises:
        TypeError: it is none of these, or a subclass, or a part of it is of another class.
    """
    if type(ours) is MultiHeadAttention:  # a subclass may compute something else from the same weights
        theirs = _pack(ours)
    elif type(ours) is EncoderLayer:
        theirs = _layer_to_torch(ours, nn.TransformerEncoderLayer, ENCODER_LAYER)
    elif type(ours) is DecoderLayer:
        theirs = _layer_to_torch(ours, nn.TransformerDecoderLayer, DECODER_LAYER)
    elif type(ours) in (Encoder, Decoder):
        layers = nn.ModuleList(map(to_torch, ours.layers))
        if isinstance(ours, Encoder):  # its nested tensors would put zeros where padding is, in evaluation mode
            theirs = nn.TransformerEncoder(layers[0], num_layers=0, enable_nested_tensor=False)
        else:
            theirs = nn.TransformerDecoder(layers[0], num_layers=0)
        theirs.layers, theirs.num_layers = layers, len(layers)
        theirs.norm = None if isinstance(ours.norm, nn.Identity) else copy.deepcopy(ours.norm)
    elif type(ours) is Transformer:
        sizes, nothing = (ours.config.d_model, ours.config.num_heads), nn.Identity()
        # it draws new weights for whatever it is built of, so ours come after that
        theirs = nn.Transformer(*sizes, custom_encoder=nothing, custom_decoder=nothing, batch_first=True)
        theirs.encoder, theirs.decoder = to_torch(ours.encoder), to_torch(ours.decoder)
    else:
        known = "this library's MultiHeadAttention, EncoderLayer, DecoderLayer, Encoder, Decoder or Transformer"
        raise TypeError(f"ours is a {_name(ours)}, expected {known}, and no subclass, which may compute otherwise")
    return theirs.train(ours.training).requires_grad_(True)


def from_torch(theirs: nn.Module) -> nn.Module | tuple[Encoder, Decoder]:
    """Build this library's counterpart of a PyTorch module, as ``to_torch`` does the other way.

    An ``nn.Transformer`` gives an encoder and a decoder: ``model.encoder, model.decoder = from_torch(theirs)``.

    Args:
        theirs: ``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer``, ``nn.TransformerDecoderLayer``,
            ``nn.TransformerEncoder``, ``nn.TransformerDecoder`` or ``nn.Transformer``, batch first or not.

    Raises:
        TypeError: it is none of these, or a subclass.
        ValueError: it was built with an option that this library does not have, such as ``bias=False``.
    """
    if type(theirs) is nn.MultiheadAttention:  # there are subclasses that do not use the weights they inherit
        ours = _unpack(theirs)
    elif type(theirs) is nn.TransformerEncoderLayer:
        ours = _layer_from_torch(theirs, EncoderLayer, ENCODER_LAYER)
    elif type(theirs) is nn.TransformerDecoderLayer:
        ours = _layer_from_torch(theirs, DecoderLayer, DECODER_LAYER)
    elif type(theirs) in (nn.TransformerEncoder, nn.TransformerDecoder):
        stack = Encoder if type(theirs) is nn.TransformerEncoder else Decoder
        ours = stack(map(from_torch, theirs.layers), copy.deepcopy(theirs.norm))
    elif type(theirs) is nn.Transformer:
        return from_torch(theirs.encoder), from_torch(theirs.decoder)
    else:
        known = "PyTorch's MultiheadAttention or Transformer, or a layer or stack of one"
        raise TypeError(f"theirs is a {_name(theirs)}, expected {known}, and no subclass, which may compute otherwise")
    return ours.train(theirs.training).requires_grad_(True)


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


def _name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__name__}"


def _check_parts(ours: nn.Module) -> None:
    """Raise a TypeError if a part was replaced, since its counterpart would compute something else."""
    for name, part in ours.named_modules():
        if name and type(part) not in _PARTS:
            known = ", ".join(kind.__name__ for kind in _PARTS)
            raise TypeError(f"ours has a {_name(part)} as its {name}, expected one of {known}, and no subclass")


@torch.no_grad()
def _pack(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """Put the projections of queries, keys and values on top of each other."""
    _check_parts(ours)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    weight = torch.cat([projection.weight for projection in projections])  # [3 · d_model, d_model]
    theirs = nn.MultiheadAttention(weight.shape[1], ours.num_heads, ours.dropout, batch_first=True)
    theirs.to(weight)  # its device and precision
    theirs.in_proj_weight.copy_(weight)
    theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))  # [3 · d_model]
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    return theirs


@torch.no_grad()
def _unpack(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    """Cut the packed projection into those of queries, keys and values."""
    usual = theirs.in_proj_weight is not None and theirs.in_proj_bias is not None
    if not usual or theirs.bias_k is not None or theirs.add_zero_attn:
        raise ValueError(
            "theirs was built with bias=False, kdim, vdim, add_bias_kv or add_zero_attn, expected none of these: this "
            "library's attention has no such options"
        )
    ours = MultiHeadAttention(theirs.embed_dim, theirs.num_heads, theirs.dropout).to(theirs.in_proj_weight)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    parts = zip(projections, theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True)
    for projection, weight, bias in parts:  # [d_model, d_model] and [d_model]
        projection.load_state_dict({"weight": weight, "bias": bias})
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    return ours


def _layer_to_torch(ours: EncoderLayer | DecoderLayer, counterpart: type, names: dict[str, str]) -> nn.Module:
    _check_parts(ours)
    linear1 = ours.feed_forward.linear1
    theirs = counterpart(
        linear1.in_features,
        ours.self_attn.num_heads,
        linear1.out_features,
        ours.dropout.p,
        ACTIVATIONS[ours.feed_forward.activation],
        batch_first=True,
        norm_first=ours.norm_first,
    )
    for our_name, their_name in names.items():
        part = ours.get_submodule(our_name)
        setattr(theirs, their_name, to_torch(part) if isinstance(part, MultiHeadAttention) else copy.deepcopy(part))
    return theirs


def _layer_from_torch(theirs: nn.Module, counterpart: type, names: dict[str, str]) -> EncoderLayer | DecoderLayer:
    attention = theirs.self_attn
    dropouts = {module.p for name, module in theirs.named_children() if name in ("dropout1", "dropout2", "dropout3")}
    if len(dropouts) > 1:
        raise ValueError(f"theirs drops {sorted(dropouts)} after its sub-layers, expected one probability for all")
    ours = counterpart(
        attention.embed_dim,
        attention.num_heads,
        theirs.linear1.out_features,
        dropouts.pop(),
        norm_first=theirs.norm_first,
        activation=_activation_of(theirs),
    )
    for our_name, their_name in names.items():
        part = theirs.get_submodule(their_name)
        parent, _, child = our_name.rpartition(".")
        part = from_torch(part) if isinstance(part, nn.MultiheadAttention) else copy.deepcopy(part)
        setattr(ours.get_submodule(parent), child, part)
    return ours


def _activation_of(theirs: nn.Module) -> str:
    """Return the name of a layer's activation, a function or a module."""
    activation, names = theirs.activation, {function: name for name, function in ACTIVATIONS.items()}
    names |= {torch.relu: "relu", nn.ReLU: "relu", nn.SiLU: "silu", nn.GELU: "gelu"}
    name = names.get(type(activation) if isinstance(activation, nn.Module) else activation)
    if name is None or getattr(activation, "approximate", "none") != "none":
        found, known = getattr(activation, "__name__", activation), " or ".join(dict.fromkeys(names.values()))
        raise ValueError(f"theirs has activation={found}, expected {known}: this library has no other")
    return name


def _check_boolean(name: str, mask: Tensor, of_additive: str) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"{name} has dtype {mask.dtype}, expected torch.bool; of an additive float mask, take {of_additive}"
        )
