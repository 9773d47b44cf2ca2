"""PyTorch's fused attention kernels, where they are fast, and right."""

import functools
import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def without_cudnn(device: torch.device) -> AbstractContextManager[None]:
    """Return a context without cuDNN's kernel, which is first choice on an H100, and plans for each new shape anew."""
    others = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(others) if device.type == "cuda" else nullcontext()


def use_fused_kernel(q: Tensor, dropout: float) -> bool:
    """Return whether ``F.scaled_dot_product_attention`` suits queries ``q``, weights being dropped with ``dropout``.

    On a CPU, the kernel's backward pass is slow in half precision, and it cannot drop weights with cheap random bits
    (see ``dropout``). On some of Apple's GPUs it is wrong.
    """
    if torch.compiler.is_compiling():  # the compiler makes kernels of its own
        return True
    if q.device.type in ("cpu", "meta"):
        return not dropout and (q.dtype.itemsize >= 4 or not torch.is_grad_enabled())
    return fused_attention_is_right(q.device)


@functools.lru_cache
def fused_attention_is_right(device: torch.device) -> bool:
    """Compare the fused kernel with a CPU's on two short sentences, one of them padded; warn if they differ.

    On Apple's GPUs, PyTorch 2.8 to 2.12 hides from all sentences what the first one's mask hides (pytorch#184180).
    """
    q, k, v = torch.linspace(-1, 1, 3 * 2 * 4 * 3 * 64, device="cpu").view(3, 2, 4, 3, 64)  # each [2, 4 heads, 3, 64]
    mask = torch.tensor([[True, True, True], [True, False, False]], device="cpu")[:, None, None]
    with torch.no_grad(), torch.autocast(device.type, enabled=False), without_cudnn(device):  # inside autocast, too
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        result = F.scaled_dot_product_attention(*(x.to(device) for x in (q, k, v)), attn_mask=mask.to(device))
    is_right = torch.allclose(result.cpu(), expected, atol=1e-3)
    if not is_right:
        wrong = f"PyTorch {torch.__version__} computes masked attention wrongly on device {device.type!r}"
        warnings.warn(f"{wrong}: this library computes it step by step there, which takes longer", stacklevel=1)
    return is_right
