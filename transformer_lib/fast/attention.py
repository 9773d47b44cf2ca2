"""Which attention kernel a CPU is to use."""

import math

import torch
from torch import Tensor

from transformer_lib.fast.dropout import dropout
from transformer_lib.model.attention import MultiHeadAttention, check_mask


class CPUAttention(MultiHeadAttention):
    """``MultiHeadAttention`` that leaves PyTorch's fused kernel aside where a CPU is faster without it.

    On a CPU, the fused kernel is slow in half precision, and cannot drop weights with cheap random bits.
    """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention in all heads at once; every tensor is ``[batch, heads, seq_len, d_k]``."""
        p = self.dropout if self.training else 0.0
        if need_weights or (not p and q.dtype.itemsize == 4):
            return super().attend(q, k, v, mask, need_weights)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [batch, heads, query_len, key_len]
        if mask is not None:
            check_mask(mask, scores.shape)
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
        return dropout(weights, p) @ v, None
