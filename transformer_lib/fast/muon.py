"""Muon for GPUs, which idle while they are given small matrices one by one, and for CPUs without bfloat16."""

import math
from collections import defaultdict

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from transformer_lib.fast.precision import half_precision


class BatchedMuon(getattr(torch.optim, "Muon", Optimizer)):  # PyTorch has it from 2.9 on
    """``torch.optim.Muon`` with ``adjust_lr_fn="match_rms_adamw"``, for all matrices of one shape at a time.

    On a device without bfloat16, it computes in float16 or float32, where PyTorch's emulates bfloat16.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update all matrices that have a gradient."""
        for group in self.param_groups:
            same_shape = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    same_shape[matrix.shape].append(matrix)
            for matrices in same_shape.values():
                self._step(matrices, group)

    def _step(self, matrices: list[Tensor], group: dict) -> None:
        """Update matrices of one shape."""
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
        momenta = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
        gradients = [matrix.grad for matrix in matrices]
        get_ema_multi_avg_fn(group["momentum"])(momenta, gradients, None)
        ahead = torch.stack(gradients).lerp_(torch.stack(momenta), group["momentum"])  # Nesterov's; [n, rows, columns]
        step = _orthogonalize(ahead, group["ns_coefficients"], group["ns_steps"], group["eps"])
        step_size = group["lr"] * 0.2 * math.sqrt(max(ahead.shape[1:]))
        updated = torch.stack(matrices).mul_(1 - group["lr"] * group["weight_decay"]).sub_(step, alpha=step_size)
        get_ema_multi_avg_fn(0.0)(matrices, updated.unbind(), None)  # copies them all at once


def _orthogonalize(matrices: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Return the nearest orthogonal matrix of each of ``[n, rows, columns]``, roughly (Newton–Schulz iteration)."""
    a, b, c = coefficients
    x = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=eps)  # before it may underflow
    x = x.to(half_precision(x.device))
    is_tall = x.shape[1] > x.shape[2]
    x = x.mT if is_tall else x
    for _ in range(steps):
        gram = x @ x.mT  # [n, rows, rows]
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
