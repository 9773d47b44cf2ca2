"""Answers to the exercises of notebook 10: a mask for a prompt, and top-p."""

import torch

from transformer_lib import causal_mask


def prefix(length, prefix):
    return causal_mask(length) | (torch.arange(length) < prefix)


def prefix_by_blocks(length, prefix):
    mask = torch.ones(length, length).tril().bool()
    mask[:prefix, :prefix] = True
    return mask


def sees_the_answer(length, prefix):
    mask = causal_mask(length)
    mask[:prefix] = True
    return mask


def only_itself(length, prefix):
    mask = prefix_by_blocks(length, prefix)
    mask[prefix:, :prefix] = False
    return mask


def nucleus(logits, p):
    probabilities, order = logits.softmax(-1).sort(descending=True)
    tail = probabilities.cumsum(-1) - probabilities >= p - 1e-6
    kept = probabilities.masked_fill(tail, 0)
    return torch.empty_like(kept).scatter(0, order, kept / kept.sum())


def one_by_one(logits, p):
    probabilities, total = logits.double().softmax(-1), 0.0
    kept = torch.zeros_like(probabilities)
    for i in probabilities.argsort(descending=True).tolist():
        if total < p - 1e-6:
            kept[i] = probabilities[i]
            total += probabilities[i].item()
    return kept / total


def one_too_few(logits, p):
    probabilities, order = logits.softmax(-1).sort(descending=True)
    kept = probabilities * (probabilities.cumsum(-1) <= p + 1e-6)
    return torch.empty_like(kept).scatter(0, order, kept)


def not_divided(logits, p):
    return logits.softmax(-1) * (nucleus(logits, p) > 0)


RIGHT = {
    "10.1": [(prefix,), (prefix_by_blocks,)],
    "10.2": [(nucleus,), (one_by_one,)],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "10.1": [
        (lambda length, prefix: causal_mask(length), "that is the causal mask"),
        (lambda length, prefix_: ~prefix(length, prefix_), "wrong way round"),
        (lambda length, prefix_: prefix(length, prefix_).T, "turned on its side"),
        (sees_the_answer, "the prompt sees what comes after it"),
        (only_itself, "must see all of it"),
        (lambda length, prefix_: prefix(length, prefix_ - 1), "compare it with the causal mask"),
        (lambda length, prefix_: prefix(length, prefix_).float(), "expected torch.bool"),
        (lambda length, prefix_: prefix(length, prefix_)[None, None], "the shape is"),
    ],
    "10.2": [
        (one_too_few, "still belongs to it"),
        (lambda logits, p: one_too_few(logits, p) / one_too_few(logits, p).sum(), "still belongs to it"),
        (not_divided, "divide it by its sum"),
        (lambda logits, p: nucleus(logits, p).sort(descending=True).values, "in the order of the logits"),
        (lambda logits, p: logits.softmax(-1), "nothing has been cut off"),
        (lambda logits, p: (logits.softmax(-1) >= 1 - p) * 1.0, "begin with the likeliest"),
        (lambda logits, p: nucleus(logits, p).tolist(), "a tensor was expected"),
    ],
}
