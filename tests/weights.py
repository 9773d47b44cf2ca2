"""Weights that are nothing special."""

import torch
from torch import nn


@torch.no_grad()
def shake(module: nn.Module) -> None:
    """Move every weight, so that none is at a special value (norms start at 1 and 0, biases at 0)."""
    for parameter in module.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
