"""Which attention kernel a device is to use."""

import functools
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lib.fast.dropout import dropout
from transformer_lib.model.attention import MultiHeadAttention, scaled_dot_product_attention


class CPUAttention(MultiHeadAttention):
    """``MultiHeadAttention`` that bypasses PyTorch's fused kernel where a CPU is faster without it.

    On a CPU, the fused kernel's backward pass is slow in half precision, and the kernel cannot drop weights with cheap
    random bits.
    """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention in all heads at once; every tensor is ``[batch, heads, seq_len, d_k]``."""
        p = self.dropout if self.training else 0.0
        if need_weights or not (p or (q.dtype.itemsize < 4 and torch.is_grad_enabled())):
            return super().attend(q, k, v, mask, need_weights)
        _, weights = scaled_dot_product_attention(q, k, v[..., :0], mask)  # for the weights alone, no values
        return dropout(weights, p) @ v, None


class ReadableAttention(MultiHeadAttention):
    """``MultiHeadAttention`` without PyTorch's fused kernel, for devices where that is wrong."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention in all heads at once; every tensor is ``[batch, heads, seq_len, d_k]``."""
        heads, weights = super().attend(q, k, v, mask, need_weights=True)
        return heads, weights if need_weights else None


@functools.lru_cache
def fused_attention_is_right(device: torch.device) -> bool:
    """Try PyTorch's fused kernel on two short sentences, one of them padded, against the readable function on the CPU.

    Where they differ, a warning says so. On Apple's GPUs, PyTorch 2.8 to 2.12 hides from all sentences what the first
    one's mask hides (pytorch#184180).
    """
    if device.type == "meta":  # has no numbers
        return True
    q, k, v = torch.linspace(-1, 1, 3 * 2 * 4 * 3 * 64, device="cpu").view(3, 2, 4, 3, 64)  # each [2, 4 heads, 3, 64]
    mask = torch.tensor([[True, True, True], [True, False, False]], device="cpu")[:, None, None]
    with torch.no_grad():
        found = F.scaled_dot_product_attention(*(x.to(device) for x in (q, k, v)), attn_mask=mask.to(device))
    is_right = torch.allclose(found.cpu(), scaled_dot_product_attention(q, k, v, mask)[0], atol=1e-3)
    if not is_right:
        warnings.warn(
            f"PyTorch {torch.__version__} computes masked attention wrongly on device {device.type!r}: this library "
            "computes it step by step there, which is right but slower (a newer PyTorch may have a right kernel)",
            stacklevel=1,  # always this line, so that Python shows it once
        )
    return is_right
