"""Answers to the exercises of notebook 14: what a cache, a layer and a matrix product cost, and a batch in parts."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from transformer_lib.training.loss import sequence_loss


def operations(length, d_model, d_ff, projections=4, attention=2, feed_forward=2, each=2):
    products = (
        projections * length * d_model**2 + attention * length**2 * d_model + feed_forward * length * d_model * d_ff
    )
    return each * products


def times(rows, inner, columns, rate, bandwidth, each=2, size=4, read=True, written=True):
    numbers = inner * columns + read * rows * inner + written * rows * columns
    return each * rows * inner * columns / rate, size * numbers / bandwidth


def gradients(weight=lambda tokens, all_tokens, part: tokens / all_tokens, clear="first", result=float):
    def compute(model, parts, pad_id):
        if clear == "first":
            model.zero_grad()
        all_tokens = sum((part.tgt[:, 1:] != pad_id).sum() for part in parts)
        total = 0.0
        for part in parts:
            if clear == "always":
                model.zero_grad()
            logits, targets = model.logits_and_targets(*part)
            tokens = (targets != pad_id).sum()
            loss = sequence_loss(logits, targets, pad_id)
            (loss * weight(tokens, all_tokens, part)).backward()
            total += loss.item() * tokens / all_tokens
        return result(total)

    return compute


def by_autograd(model, parts, pad_id):
    """Without ``backward``: the gradients of each part are added up, and left in the model at the end."""
    weights, tokens = list(model.parameters()), sum((part.tgt[:, 1:] != pad_id).sum() for part in parts)
    total, summed = 0, [torch.zeros_like(weight) for weight in weights]
    while parts:
        loss = sequence_loss(*model.logits_and_targets(*parts.pop()), pad_id, reduction="sum") / tokens
        total += loss.detach()
        for one, gradient in zip(summed, torch.autograd.grad(loss, weights), strict=True):
            one += gradient
    for weight, one in zip(weights, summed, strict=True):
        weight.grad = one
    return total.numpy()


def sums(model, parts, pad_id):
    model.zero_grad()
    tokens = sum((part.tgt[:, 1:] != pad_id).sum() for part in parts)
    loss = sum(sequence_loss(*model.logits_and_targets(*part), pad_id, reduction="sum") for part in parts) / tokens
    loss.backward()
    return loss


def at_once(model, parts, pad_id):
    model.zero_grad()
    longest = max(part.src.shape[1] for part in parts)
    ids = torch.cat([F.pad(part.src, (0, longest - part.src.shape[1]), value=pad_id) for part in parts])
    loss = sequence_loss(*model.logits_and_targets(ids, ids), pad_id)
    loss.backward()
    return loss


def stepping(model, parts, pad_id):
    loss = gradients()(model, parts, pad_id)
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.1 * weight.grad
    return loss


def only_looking(model, parts, pad_id):
    return sum(sequence_loss(*model.logits_and_targets(*part), pad_id) for part in parts) / len(parts)


def without_way_back(model, parts, pad_id):
    model.zero_grad()
    return sum(sequence_loss(*model.logits_and_targets(*part), pad_id).item() for part in parts)


RIGHT = {
    "14.1": [
        (210, 20, 2870, 210),
        (np.int64(210), 20.0, torch.tensor(2870), 210),
    ],
    "14.2": [
        (operations,),
        (lambda n, d, f: 2.0 * n * d * (4 * d + 2 * n + 2 * f),),
        (lambda *sizes: np.int64(operations(*sizes)),),
    ],
    "14.3": [
        (lambda *sizes: max(times(*sizes)),),
        (lambda *sizes: torch.tensor(times(*sizes)).double().amax(),),
        (lambda *sizes: np.float32(max(times(*sizes))),),
    ],
    "14.4": [
        (gradients(),),
        (gradients(result=lambda total: total),),
        (by_autograd,),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "14.1": [
        ((400, 20, 2870, 210), "the prefix grows"),
        ((7777, 20, 2870, 210), "add up the 20 steps"),
        ((190, 20, 2870, 210), "the first step has a position"),
        ((210, 1, 2870, 210), "one for each step"),
        ((210, 210, 2870, 210), "is not computed again"),
        ((210, 20, 1540, 210), "causal mask hides"),
        ((210, 20, 8000, 210), "each of t queries"),
        ((210, 20, 2870, 20), "every key so far"),
        ((210, 20, 2870, 400), "one query meets t keys"),
        ((210, [20], 2870, 210), "a number was expected"),
    ],
    "14.2": [
        (lambda *sizes: operations(*sizes, each=1), "counts twice"),
        (lambda *sizes: operations(*sizes, each=6), "training step"),
        (lambda *sizes: operations(*sizes, attention=0), "attention's own two products, of"),
        (lambda *sizes: operations(*sizes, attention=1), "one of attention's own"),
        (lambda *sizes: operations(*sizes, projections=3), "one of the four projections"),
        (lambda *sizes: operations(*sizes, feed_forward=1), "one of the two matrices"),
        (lambda length, d_model, d_ff: operations(length, d_model, 512), "with their shapes"),
        (lambda *sizes: (operations(*sizes),), "a number was expected"),
        (lambda *sizes: operations(*sizes, projections=0), "all four projections"),
    ],
    "14.3": [
        (lambda *sizes: sum(times(*sizes)), "the longer of the two"),
        (lambda *sizes: min(times(*sizes)), "slower of the two"),
        (lambda *sizes: max(times(*sizes, size=1)), "four bytes"),
        (lambda *sizes: max(times(*sizes, each=1)), "two operations"),
        (lambda *sizes: max(times(*sizes, read=False, written=False)), "not only the weights"),
        (lambda *sizes: max(times(*sizes, written=False)), "written as well"),
        (lambda *sizes: times(*sizes)[0], "read from memory"),
        (lambda *sizes: times(*sizes)[1], "computing takes longer"),
        (lambda *sizes: times(*sizes), "a number was expected"),
        (lambda *sizes: max(times(*sizes, size=8)), "the longer one"),
        (lambda *sizes: 1000 * max(times(*sizes)), "not milliseconds"),
        (lambda *sizes: math.nan, "this is nan"),
    ],
    "14.4": [
        (gradients(weight=lambda tokens, all_tokens, part: 1 / 3 if all_tokens > 26 else 0.5), "mean of means"),
        (gradients(weight=lambda tokens, all_tokens, part: 1.0), "added up"),
        (gradients(weight=lambda tokens, all_tokens, part: tokens), "divide by their number"),
        (gradients(weight=lambda tokens, all_tokens, part: len(part.src) / 9), "weighted by sentences"),
        (gradients(weight=lambda tokens, all_tokens, part: 1.0, clear="always"), "only the last part"),
        (gradients(clear="never"), "step before"),
        (gradients(result=lambda total: 3 * total), "gradients are right"),
        (at_once, "at once"),
        (lambda model, parts, pad_id: 1.0, "no part has gone through"),
        (only_looking, "nothing has been added"),
        (sums, "call `backward()` for each"),
        (stepping, "weights have changed"),
        (without_way_back, "no gradients afterwards"),
        (lambda model, parts, pad_id: [gradients()(model, parts, pad_id)], "a number was expected"),
        (lambda model, parts, pad_id: gradients()(model, parts[:-1], pad_id), "the gradients differ"),
    ],
}
