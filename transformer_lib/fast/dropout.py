"""Dropout (section 5.4), with random numbers that cost a CPU little."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 2**16  # a random number takes two bytes


def dropout(x: Tensor, p: float) -> Tensor:
    """Set entries of ``x`` to zero with probability ``p``, and divide the others by 1 − p, so that the mean stays.

    On a CPU, PyTorch's kernel draws a number for every entry. Here, 64 random bits decide on four entries, and ``p``,
    from 0 to 1, is rounded to the nearest 1/65,536.
    """
    dropped = round(p * _LEVELS)
    if x.device.type != "cpu" or dropped in (0, _LEVELS) or torch.compiler.is_compiling():
        return F.dropout(x, p)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device="cpu").random_(-(2**63), None)
    numbers = bits.view(torch.int16)[: x.numel()].view(x.shape)  # each of -32768 to 32767 equally likely
    keep = torch.empty_like(x, requires_grad=False)
    torch.ge(numbers, dropped - _LEVELS // 2, out=keep)  # at once in x's dtype: converting a Boolean is slow
    return x * keep.mul_(_LEVELS / (_LEVELS - dropped))


class CheapDropout(nn.Dropout):
    """``nn.Dropout`` that drops with ``dropout``, in training mode only."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``, of any shape, without what is dropped."""
        return dropout(x, self.p) if self.training else x
