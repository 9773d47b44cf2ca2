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
    """Compare the fused kernel with a CPU's, as translating and training use it; warn if they differ.

    Of two short sentences, one is padded, and one of its queries may attend to nothing. On Apple's GPUs, PyTorch 2.8 to
    2.12 hides from all sentences what the first one's mask hides (pytorch#184180), if ``d_k`` is 64, for example.
    """
    padded = [[True, False, False], [True, False, False], [False, False, False]]
    generators = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(generators), torch.inference_mode(False), torch.autocast(device.type, enabled=False):
        mask = torch.tensor([[[True] * 3] * 3, padded], device="cpu")[:, None]
        numbers = torch.arange(3 * 2 * 512 * 3 * 64, device="cpu").sin()
        qkv = numbers.view(3, 2, 512, 3, 64)  # [3, batch, heads, length, d_k]: many heads, so that chance evens out
        expected = _try_kernel(qkv, mask)
        results = _try_kernel(qkv.to(device), mask.to(device))
    is_right = True
    for result, reference, tolerance in zip(results, expected, (1e-3, 1e-2, 0.4, 0.4), strict=True):
        is_right = is_right and torch.allclose(result.cpu(), reference, atol=tolerance)
    if not is_right:
        wrong = f"PyTorch {torch.__version__} computes masked attention wrongly on device {device.type!r}"
        warnings.warn(f"{wrong}: this library computes it step by step there, which takes longer", stacklevel=1)
    return is_right


def _try_kernel(qkv: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Return outputs, gradients, and what dropout makes of the weights' sum: its mean and deviation over all heads."""
    kernel = functools.partial(F.scaled_dot_product_attention, attn_mask=mask)
    q, k, v = qkv
    with without_cudnn(qkv.device):
        with torch.no_grad():
            outputs = kernel(q, k, v)
            sums = kernel(q, k, torch.ones_like(v), dropout_p=0.5)
        with torch.enable_grad():
            leaves = qkv.detach().requires_grad_()
            kernel(*leaves).square().sum().backward()
    return outputs, leaves.grad, sums.mean(dim=1), sums.std(dim=1)
