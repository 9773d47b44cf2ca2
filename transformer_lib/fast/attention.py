"""PyTorch's fused attention kernels, where they are fast, and right."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def without_cudnn(device: torch.device) -> AbstractContextManager[None]:
    """Return a context without cuDNN's kernel, which is first choice on an H100, and plans for each new shape anew."""
    others = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(others) if device.type == "cuda" else nullcontext()


def use_fused_kernel(q: Tensor, dropout: float) -> bool:
    """Return whether ``F.scaled_dot_product_attention`` suits queries ``q``, weights being dropped with ``dropout``.

    On a CPU, the kernel's backward pass is slow in half precision, and it cannot drop weights with cheap random bits
    (see ``dropout``). On Apple's GPUs, PyTorch 2.8 to 2.12 hides from all sentences what the first one's mask hides
    (pytorch#184180): there, and wherever else nobody has tried it, attention is computed step by step.
    """
    if torch.compiler.is_compiling():  # the compiler makes kernels of its own
        return True
    if q.device.type in ("cpu", "meta"):
        return not dropout and (q.dtype.itemsize >= 4 or not torch.is_grad_enabled())
    return q.device.type == "cuda"
