"""Attention: a weighted average of values, with weights that queries and keys decide (section 3.2)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.fast.attention import use_fused_kernel, without_cudnn
from transformer_lib.fast.dropout import dropout as drop


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Compute softmax(Q Kᵀ / √d_k) V (section 3.2.1, equation 1). Notebook 02, sections 1 to 4.

    Args:
        query: ``[..., query_len, d_k]``.
        key: ``[..., key_len, d_k]``.
        value: ``[..., key_len, d_v]``.
        mask: boolean, broadcastable to ``[..., query_len, key_len]``; True means "may attend".
        dropout: probability with which a weight is dropped; for training only.

    Returns:
        The output, ``[..., query_len, d_v]``, and the weights after dropout, ``[..., query_len, key_len]``. A query
        that may attend to nothing gets weights and output of zero.

    Raises:
        ValueError: the mask is not boolean, or its shape does not broadcast.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # [..., query_len, key_len]
    if mask is not None:
        check_mask(mask, scores.shape)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # its exp is 0; -inf could make a row NaN
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # only changes a query that may attend to nothing
    weights = drop(weights, dropout)  # the caller passes 0 outside training
    return weights @ value, weights


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in a smaller space of its own (section 3.2.2). Notebook 02, section 6.

    MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O, with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). The matrices
    W_i of all heads are stacked into one ``d_model × d_model`` projection, whose output is split into heads.

    Args:
        d_model: size of the vectors that come in and go out.
        num_heads: h; each head works with d_k = ``d_model / num_heads`` dimensions.
        dropout: probability with which an attention weight is dropped during training.

    Raises:
        ValueError: ``d_model`` is not divisible by ``num_heads``, or ``dropout`` is not a probability.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0):
        super().__init__()
        check_heads(d_model, num_heads, dropout)
        self.num_heads = num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Let each query gather from the values whose keys match it.

        Args:
            query: ``[batch, query_len, d_model]``.
            key: ``[batch, key_len, d_model]``.
            value: ``[batch, key_len, d_model]``.
            mask: boolean, broadcastable to ``[batch, heads, query_len, key_len]``; True means "may attend".
            need_weights: also return the attention map, computed by the readable function above. Without it, PyTorch's
                fused kernel of the same name does it all at once: scale by 1/√d_k, mask, softmax, dropout.

        Returns:
            The output, ``[batch, query_len, d_model]``, and the attention map, ``[batch, heads, query_len, key_len]``,
            or None if it was not asked for.

        Raises:
            ValueError: keys and values differ in length, or the mask is not boolean or does not broadcast.
        """
        q = self.split_heads(self.q_proj(query))  # [batch, heads, query_len, d_k]
        k = self.split_heads(self.k_proj(key))  # [batch, heads, key_len, d_k]
        v = self.split_heads(self.v_proj(value))  # [batch, heads, key_len, d_k]
        heads, weights = self.attend(q, k, v, mask, need_weights)
        return self.out_proj(self.join_heads(heads)), weights

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention in all heads at once; q and k are ``[…, seq_len, d_k]``, v may have another last size."""
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError(f"key has shape {list(k.shape)} but value {list(v.shape)} in heads, expected the same")
        dropout = self.dropout if self.training else 0.0
        if need_weights or not use_fused_kernel(q, dropout):
            heads, weights = scaled_dot_product_attention(q, k, v, mask, dropout)
            return heads, weights if need_weights else None
        if mask is not None:
            check_mask(mask, (*q.shape[:3], k.shape[2]))
        with without_cudnn(q.device):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout), None

    def split_heads(self, x: Tensor) -> Tensor:
        """Split ``[batch, seq_len, d_model]`` into ``[batch, heads, seq_len, d_k]``."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def join_heads(self, x: Tensor) -> Tensor:
        """Concatenate ``[batch, heads, seq_len, d_k]`` to ``[batch, seq_len, d_model]``."""
        return x.transpose(1, 2).flatten(2)


def check_heads(d_model: int, num_heads: int, dropout: float) -> None:
    """Raise a ValueError unless ``d_model`` is divisible by ``num_heads``, and ``dropout`` is from 0 to below 1."""
    if num_heads < 1 or d_model % num_heads:
        raise ValueError(
            f"d_model={d_model} is not divisible by num_heads={num_heads}: "
            "every head gets d_model / num_heads dimensions"
        )
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout!r}, expected a probability from 0 up to, but not including, 1")


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless ``mask`` is boolean and broadcasts to ``shape``, ``[..., query_len, key_len]``."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask has dtype {mask.dtype}, expected torch.bool, True for 'may attend' (model/masks.py)")
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)  # from the last dimension, as broadcasting does
    fits = 2 <= mask.dim() <= len(shape) and all(m in (1, s) for m, s in sizes)
    lacks_an_axis = 2 < mask.dim() < len(shape) and mask.shape[0] > 1  # [batch, query_len, key_len] would be heads'
    if not fits or lacks_an_axis:
        raise ValueError(
            f"mask has shape {list(mask.shape)}, expected one that broadcasts to […, query_len, key_len] = "
            f"{list(shape)} (one for each sentence, all heads: mask[:, None])"
        )
