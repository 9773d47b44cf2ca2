"""PyTorch's own layers and this library's are the same thing: weights and settings go both ways. Notebook 16.

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

_PARTS = ("self_attn", "norm1", "feed_forward.linear1", "feed_forward.dropout", "feed_forward.linear2", "norm2")
# what this library calls a part of a layer, and what PyTorch calls it
ENCODER_LAYER = {part: part.removeprefix("feed_forward.") for part in _PARTS}
DECODER_LAYER = {**ENCODER_LAYER, "cross_attn": "multihead_attn", "norm3": "norm3"}


def to_torch(ours: nn.Module) -> nn.Module:
    """Build PyTorch's counterpart of a module, with a copy of its weights and settings, on its device, in its mode.

    It is batch first, and trainable. An ``nn.Transformer`` has no embeddings and no output layer. Raises a TypeError if
    a part is of any other class than this library's: a subclass may compute something else.
    """
    kind = type(ours)
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
        theirs.layers = layers
        theirs.num_layers = len(layers)
        theirs.norm = None if isinstance(ours.norm, nn.Identity) else to_torch(ours.norm)
    elif kind is Transformer:
        sizes = ours.config.d_model, ours.config.num_heads
        nothing = nn.Identity()
        # it draws new weights for whatever it is built of, so ours come after that
        theirs = nn.Transformer(*sizes, custom_encoder=nothing, custom_decoder=nothing, batch_first=True)
        theirs.encoder = to_torch(ours.encoder)
        theirs.decoder = to_torch(ours.decoder)
    else:
        raise TypeError(f"ours has a {kind}, expected this library's own classes throughout")
    return theirs.train(ours.training).requires_grad_(True)


def from_torch(theirs: nn.Module) -> nn.Module | tuple[Encoder, Decoder]:
    """Build this library's counterpart of a PyTorch module, batch first or not, as ``to_torch`` does the other way.

    An ``nn.Transformer`` gives an encoder and a decoder. Raises a TypeError if a part is of any other class than
    PyTorch's, and a ValueError if it has an option that this library does not have, such as ``bias=False``.
    """
    kind = type(theirs)
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
        raise TypeError(f"theirs has a {kind}, expected PyTorch's own classes throughout")
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
    """Split the packed projection into those of queries, keys and values."""
    weight = theirs.in_proj_weight  # None with kdim or vdim
    bias = theirs.in_proj_bias  # None with bias=False
    if weight is None or bias is None or theirs.bias_k is not None or theirs.add_zero_attn:
        raise ValueError("theirs has bias=False, kdim, vdim, add_bias_kv or add_zero_attn, expected none of these")
    ours = MultiHeadAttention(theirs.embed_dim, theirs.num_heads, theirs.dropout).to(weight)
    projections = ours.q_proj, ours.k_proj, ours.v_proj
    for projection, its_weight, its_bias in zip(projections, weight.chunk(3), bias.chunk(3), strict=True):
        projection.load_state_dict({"weight": its_weight, "bias": its_bias})  # [d_model, d_model] and [d_model]
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    return ours


def _layer_to_torch(ours: EncoderLayer | DecoderLayer, counterpart: type, names: dict[str, str]) -> nn.Module:
    if type(ours.feed_forward) is not PositionwiseFeedForward:
        raise TypeError(f"ours has a {type(ours.feed_forward).__name__} as its feed_forward, expected this library's")
    linear1 = ours.feed_forward.linear1
    activation = ACTIVATIONS[ours.feed_forward.activation]
    sizes = (linear1.in_features, ours.self_attn.num_heads, linear1.out_features)
    theirs = counterpart(*sizes, ours.dropout.p, activation, batch_first=True, norm_first=ours.norm_first)
    for our_name, their_name in names.items():
        setattr(theirs, their_name, to_torch(ours.get_submodule(our_name)))
    return theirs


def _layer_from_torch(theirs: nn.Module, counterpart: type, names: dict[str, str]) -> EncoderLayer | DecoderLayer:
    x = torch.linspace(-99, 99, 999).to(theirs.linear1.weight)
    values = theirs.activation(x.clone())  # it tells which activation it is; a clone, since it may work in place
    same = [name for name, activation in ACTIVATIONS.items() if torch.allclose(values, activation(x), atol=1e-6)]
    if not same:
        raise ValueError(f"theirs has activation={theirs.activation}, expected one of {', '.join(ACTIVATIONS)}")
    sizes = (theirs.self_attn.embed_dim, theirs.self_attn.num_heads, theirs.linear1.out_features)
    ours = counterpart(*sizes, theirs.dropout1.p, norm_first=theirs.norm_first, activation=same[0])
    for our_name, their_name in names.items():
        ours.set_submodule(our_name, from_torch(theirs.get_submodule(their_name)))
    return ours


def to_key_padding_mask(mask: Tensor) -> Tensor:
    """Convert a ``padding_mask``, ``[batch, 1, 1, seq_len]``, to a ``key_padding_mask``, ``[batch, seq_len]``."""
    batch, _, _, seq_len = mask.shape
    return ~mask.reshape(batch, seq_len)


def to_attn_mask(mask: Tensor) -> Tensor:
    """Convert a ``causal_mask`` or ``local_mask`` to PyTorch's ``attn_mask``; both are ``[query_len, key_len]``."""
    return ~mask


def from_torch_masks(key_padding_mask: Tensor | None = None, attn_mask: Tensor | None = None) -> Tensor | None:
    """Convert PyTorch's masks, ``[batch, key_len]`` and ``[query_len, key_len]``, to one of this library.

    It broadcasts to ``[batch, heads, query_len, key_len]``. Of an additive float mask, pass ``mask == -torch.inf``.
    """
    if key_padding_mask is None:
        return None if attn_mask is None else ~attn_mask
    padding = ~key_padding_mask[:, None, None, :]  # [batch, 1, 1, key_len]
    return padding if attn_mask is None else padding & ~attn_mask
