"""Checks of the exercises of notebook 10: a mask for a prompt, RMSNorm, and top-p."""

from collections.abc import Callable

import torch
from torch import Tensor

from transformer_exercises import call, close, exercise, expect, expect_tensor
from transformer_lib.model.masks import causal_mask


@exercise("10.1")
def prefix_mask(my_prefix_mask: Callable[[int, int], Tensor]) -> str:
    """``my_prefix_mask(length, prefix)``: causal, except that the first ``prefix`` tokens all see one another."""
    for length, prefix in ((5, 3), (4, 1), (6, 4), (3, 3), (4, 0)):
        right = causal_mask(length)
        right[:prefix, :prefix] = True
        found = call(my_prefix_mask, length, prefix)
        if isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == right.shape:
            found = found.cpu()
            expect(found.equal(right) or not found.equal(~right), "it is the wrong way round: True means may attend.")
            expect(
                found.equal(right) or not found.equal(right.T),
                "rows are queries and columns are keys; yours is turned on its side.",
            )
            expect(
                found.equal(right) or not found.equal(causal_mask(length)),
                "that is the causal mask: the tokens of the prompt do not see those of the prompt after them yet.",
            )
            expect(
                not found[:prefix, prefix:].any(),
                "the prompt sees what comes after it, which is what is to be written.",
            )
            expect(prefix == length or found[prefix:, :prefix].all(), "what comes after the prompt must see all of it.")
        expect_tensor(
            found, right, f"length {length}, prefix {prefix}: compare it with the causal mask, square by square."
        )
    return "with a prefix of 0 or 1 it is the causal mask, with a prefix of all tokens it is an encoder's."


@exercise("10.2")
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


@exercise("10.3")
def top_p(my_top_p: Callable[[Tensor, float], Tensor]) -> str:
    """``my_top_p(logits, p)``: the probabilities that are left when the unlikely tail is cut off."""
    for probabilities, p in (
        ((0.1, 0.5, 0.3, 0.06, 0.04), 0.7),
        ((0.1, 0.5, 0.3, 0.06, 0.04), 0.4),
        ((0.05, 0.15, 0.25, 0.2, 0.35), 0.9),
        ((0.7, 0.2, 0.1), 1.0),
    ):
        whole = torch.tensor(probabilities)
        ranked, order = whole.sort(descending=True)
        before = ranked.cumsum(dim=0) - ranked  # what the likelier ones have together
        kept = torch.zeros_like(whole).index_copy(0, order, ranked * (before < p - 1e-6))
        right = kept / kept.sum()
        found = call(my_top_p, whole.log(), p)
        fewer = torch.zeros_like(whole).index_copy(0, order, ranked * (ranked.cumsum(dim=0) <= p + 1e-6))
        hint = "the set must reach p: the token that takes the sum to p or over it still belongs to it."
        for almost in (fewer, fewer / fewer.sum()):
            expect(close(found, right) or not close(found, almost), hint)
        expect(close(found, right) or not close(found, kept), "what is left must sum to 1 again: divide it by its sum.")
        expect(
            close(found, right) or not close(found, ranked / ranked.sum() * (before < p - 1e-6) / kept.sum()),
            "the probabilities are sorted; return them in the order of the logits.",
        )
        if isinstance(found, Tensor) and found.shape == whole.shape:
            expect(
                not close(found, whole) or close(right, whole), "nothing has been cut off: unlikely tokens must get 0."
            )
        numbers = ", ".join(map(str, probabilities))
        expect_tensor(found, right, f"probabilities {numbers} and p = {p}: begin with the likeliest, and add them up.")
    return "where the model is sure, one token is left; where it is not, many are."
