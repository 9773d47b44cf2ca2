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
    """Compare the fused kernel with a CPU's, as training and translating use it; warn if they differ.

    Two short sentences are tried, one of which is padded, and a query that may attend to nothing: their outputs, the
    gradients, and dropout. On Apple's GPUs, PyTorch 2.8 to 2.12 hides from all sentences what the first one's mask
    hides (pytorch#184180).
    """
    mask = torch.tensor([[[True, True, True]] * 3, [[True, False, False]] * 2 + [[False] * 3]], device="cpu")[:, None]
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        x = torch.linspace(-1, 1, 3 * 2 * 4 * 3 * 64, device="cpu").view(3, 2, 4, 3, 64)  # q, k, v: [2, 4 heads, 3, 64]
        expected, expected_gradient = _attend(x, mask)
        result, gradient = _attend(x.to(device), mask.to(device))
        is_right = (
            torch.allclose(result.cpu(), expected, atol=1e-3)
            and torch.allclose(gradient.cpu(), expected_gradient, atol=1e-3)
            and _drops_rightly(mask.to(device))
        )
    if not is_right:
        wrong = f"PyTorch {torch.__version__} computes masked attention wrongly on device {device.type!r}"
        warnings.warn(f"{wrong}: this library computes it step by step there, which takes longer", stacklevel=1)
    return is_right


def _attend(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the fused kernel's output as it is in translating, and the gradient of ``x`` as it is in training."""
    with without_cudnn(x.device):
        with torch.no_grad():
            output = F.scaled_dot_product_attention(*x, attn_mask=mask)
        x = x.detach().requires_grad_()
        F.scaled_dot_product_attention(*x, attn_mask=mask).square().sum().backward()
    return output, x.grad


def _drops_rightly(mask: Tensor) -> bool:
    """Return whether the fused kernel drops about half of equal weights, doubles the others, and shows nothing else."""
    device = mask.device
    q = torch.zeros(2, 64, 3, 64, device=device)  # many heads, so that chance decides nothing
    v = torch.eye(3, 64, device="cpu").to(device).expand(2, 64, 3, 64)  # the output is the weights
    backend = torch if device.type == "cpu" else getattr(torch, device.type)
    random_state = backend.get_rng_state()  # a training run's, which nobody else draws from
    with torch.no_grad(), without_cudnn(device):
        weights = F.scaled_dot_product_attention(q, q, v, attn_mask=mask, dropout_p=0.5)[..., :3].cpu()
    backend.set_rng_state(random_state)
    visible = mask.cpu().expand_as(weights)
    doubled = 2 * visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)
    is_kept = torch.isclose(weights, doubled, atol=1e-3)
    is_dropped = weights.abs() < 1e-3
    return bool((is_kept | is_dropped).all()) and 0.3 < is_kept[visible].float().mean() < 0.7
