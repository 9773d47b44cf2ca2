"""Checks of the exercise of notebook 11: RMSNorm."""

from collections.abc import Callable

import torch
from torch import Tensor

from transformer_exercises import call, close, exercise, expect, expect_tensor, question

question(
    "11.a",
    right="rotary",
    replies={
        "RMSNorm": "its three dots lie among those of LayerNorm: it does less, and no harm that we can see.",
        "SwiGLU": "its three dots lie together, but on the other side: with every seed, the loss is higher.",
        "rotary": "from 2.156 to 2.117 in the mean. Only here, all three seeds are below those of 2017.",
        "grouped": "it is there for a smaller cache, and pays for it: with every seed, the loss is higher.",
        "all four": "what one of them gains, two others lose, and more: with every seed, the loss is higher.",
    },
)


@exercise("11.1")
def rms_norm(my_rms_norm: Callable[..., Tensor]) -> str:
    """``my_rms_norm(x, gain, eps)``: each vector divided by the root of the mean of its squares, times the gain."""
    torch.manual_seed(0)
    for shape, eps in (((2, 3, 8), 1e-6), ((5, 4), 0.5), ((16,), 1e-6)):
        x, gain = 3 * torch.randn(shape) + 1, torch.rand(shape[-1]) + 0.5
        squares = x.square()
        right = x / (squares.mean(dim=-1, keepdim=True) + eps).sqrt() * gain
        found = call(my_rms_norm, x.clone(), gain.clone(), eps)
        centred = x - x.mean(dim=-1, keepdim=True)
        layer_norm = centred / (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt() * gain
        mistakes = {
            "the mean is subtracted: that is LayerNorm. RMSNorm leaves the mean where it is.": layer_norm,
            "the gain is missing.": right / gain,
            "you divide by the root of the *sum* of the squares; it is their mean.": x
            / (squares.sum(dim=-1, keepdim=True) + eps).sqrt()
            * gain,
            "you divide by the mean of the squares; take its root.": x
            / (squares.mean(dim=-1, keepdim=True) + eps)
            * gain,
            "eps is added to the mean of the squares, under the root.": x
            / (squares.mean(dim=-1, keepdim=True).sqrt() + eps)
            * gain,
            "each vector has a root mean square of its own: take the mean over the last axis, dim=-1.": x
            / (squares.mean() + eps).sqrt()
            * gain,
        }
        for hint, mistake in mistakes.items():
            expect(close(found, right) or not close(found, mistake), hint)
        expect_tensor(found, right, f"x of shape {list(shape)}, eps {eps}: compare it with a vector done by hand.")
    return "half of LayerNorm's parameters, and one pass less over the numbers."
