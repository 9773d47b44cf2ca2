"""Attention: a weighted average of values, with weights that queries and keys decide (section 3.2)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.fast.dropout import dropout as drop


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Compute softmax(Q Kᵀ / √d_k) V (section 3.2.1, equation 1), the readable way.

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
        ValueError: the mask is not boolean or does not fit.
    """
    if mask is not None:
        _check_mask(mask, (*query.shape[:-1], key.shape[-2]))
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # [..., query_len, key_len]
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # a row of nothing but -inf came out as NaN
    weights = drop(weights, dropout)
    return weights @ value, weights


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in a small space of its own (section 3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O, with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). The matrices
    W_i of all heads are stacked into one ``d_model × d_model`` projection, whose output is cut into heads.

    Args:
        d_model: size of the vectors that come in and go out.
        num_heads: h; each head works with ``d_model / num_heads`` dimensions.
        dropout: probability with which an attention weight is dropped during training.

    Raises:
        ValueError: ``d_model`` is not divisible by ``num_heads``.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0):
        super().__init__()
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(
                f"d_model={d_model} is not divisible by num_heads={num_heads}: "
                "every head gets d_model / num_heads dimensions"
            )
        self.num_heads = num_heads
        self.dropout = dropout
        self.query_projection = nn.Linear(d_model, d_model)
        self.key_projection = nn.Linear(d_model, d_model)
        self.value_projection = nn.Linear(d_model, d_model)
        self.output_projection = nn.Linear(d_model, d_model)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Let each query gather from the values whose keys match it.

        Args:
            query: ``[batch, query_len, d_model]``.
            key: ``[batch, key_len, d_model]``.
            value: ``[batch, key_len, d_model]``.
            mask: boolean, broadcastable to ``[batch, heads, query_len, key_len]``; True means "may attend".
            need_weights: also return the attention map. Without it, PyTorch's fused kernel does the work.

        Returns:
            The output, ``[batch, query_len, d_model]``, and the attention map, ``[batch, heads, query_len, key_len]``,
            or None if it was not asked for.

        Raises:
            ValueError: the mask is not boolean or does not fit.
        """
        return self.attend(query, *self.project_keys_values(key, value), mask, need_weights)

    def project_keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Compute what a key/value cache keeps: K W^K and V W^V in heads, each ``[batch, heads, key_len, d_k]``."""
        return self._split_heads(self.key_projection(key)), self._split_heads(self.value_projection(value))

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Do the second half of ``forward``, with keys and values that ``project_keys_values`` has prepared."""
        queries = self._split_heads(self.query_projection(query))  # [batch, heads, query_len, d_k]
        if mask is not None:
            _check_mask(mask, (*queries.shape[:3], keys.shape[2]))
        dropout = self.dropout if self.training else 0.0
        half, several = queries.dtype.itemsize < 4, len(queries) > 1
        # a CPU's fused kernel cannot drop; in half precision, it is slow for several sentences and on the way back, and
        # in any precision for several sentences of one query each
        not_on_cpu = dropout or (half and queries.requires_grad) or (several and (half or queries.shape[2] == 1))
        if need_weights or (not_on_cpu and queries.device.type == "cpu"):
            heads, weights = scaled_dot_product_attention(queries, keys, values, mask, dropout)
        else:
            heads, weights = F.scaled_dot_product_attention(queries, keys, values, mask, dropout), None
        concatenated = heads.transpose(1, 2).flatten(2)  # [batch, query_len, d_model]
        return self.output_projection(concatenated), weights if need_weights else None

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [batch, heads, seq_len, d_k]


def _check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask has dtype {mask.dtype}, expected torch.bool with True for 'may attend' (see model/masks.py)"
        )
    fits = mask.dim() <= len(shape) and all(
        m in (1, s) for m, s in zip(reversed(mask.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise ValueError(
            f"mask has shape {list(mask.shape)}, expected one that broadcasts to "
            f"[…, query_len, key_len] = {list(shape)}"
        )
