"""The turn of notebook 11: rotary positions."""

import torch


def rotate(x, start):
    frequency = 10_000 ** (-torch.arange(0, x.shape[-1], 2, device=x.device) / x.shape[-1])
    positions = torch.arange(start, start + x.shape[-2], device=x.device)
    angle = positions[:, None] * frequency  # [seq_len, d_k / 2]
    first, second = x[..., ::2], x[..., 1::2]  # neighbours are a pair: [batch, heads, seq_len, d_k / 2] each
    turned = first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)  # back to back: first, second, first, second …
