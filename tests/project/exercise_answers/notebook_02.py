"""Answers to the exercises of notebook 02: softmax, queries, keys and values, heads, additive attention."""

import numpy as np
import torch


def stable(scores):
    powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return powers / powers.sum(dim=-1, keepdim=True)


def divided_in_place(scores):
    scores -= scores.max(-1, keepdim=True).values
    return scores.exp_().div_(scores.sum(-1, keepdim=True))


def additive(inner=torch.tanh, weigh=lambda scores: scores.softmax(-1)):
    def attend(query, key, value, W_q, W_k, v):
        hidden = inner((query @ W_q.T).unsqueeze(2) + (key @ W_k.T).unsqueeze(1))
        return weigh(hidden @ v) @ value

    return attend


def word_by_word(query, key, value, W_q, W_k, v):
    outputs = []
    for q in query.unbind(1):
        scores = torch.stack([torch.tanh(q @ W_q.T + k @ W_k.T) @ v for k in key.unbind(1)], dim=-1)
        outputs.append((scores.softmax(-1)[..., None] * value).sum(1))
    return torch.stack(outputs, dim=1)


ONE_BEFORE = torch.diag(torch.ones(4), -1)

RIGHT = {
    "02.1": [
        (stable,),
        (divided_in_place,),
        (lambda scores: (scores - torch.logsumexp(scores, -1, keepdim=True)).exp(),),
    ],
    "02.2": [
        ((0, 5),),
        ([-20, 4],),
        (torch.tensor([0.0, 6.0]),),
        (np.array([1, 9]),),
    ],
    "02.3": [
        (ONE_BEFORE @ ONE_BEFORE,),
        (torch.eye(5).roll(-2, 1).tril(),),
        (torch.diag(torch.ones(3), -2).double(),),
        (torch.eye(5).roll(2, 0),),  # the first two rows may have anything
    ],
    "02.4": [
        (16_640, 16_640),
        (np.int64(16_640), torch.tensor(16_640)),
        (16_640.0, 16_640.0),
    ],
    "02.5": [
        (additive(),),
        (word_by_word,),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "02.1": [
        (lambda scores: scores.exp() / scores.exp().sum(-1, keepdim=True), "take the largest score"),
        (lambda scores: scores.exp() / scores.exp().sum(), "a sum of its own"),
        (lambda scores: scores.softmax(0), "the first"),
        (lambda scores: scores.exp(), "divide by the sum"),
        (lambda scores: (scores - scores.max()).softmax(-1) * (scores.min() > -9), "its own largest"),
        (lambda scores: stable(scores.flatten(1)).reshape(scores.shape), "not for three"),
        (lambda scores: scores, "e to the power"),
    ],
    "02.2": [
        (((0, 2),), "A longer query"),
        (((9, 0),), "looks at *Hund*"),
        (((0, 5, 0),), "two numbers"),
        (5, "two numbers"),
        ((("a", 5),), "a number was expected"),
    ],
    "02.3": [
        (torch.diag(torch.ones(3), 2), "two *after*"),
        (ONE_BEFORE, "that is `one_before`"),
        (torch.eye(5), "copies itself"),
        (torch.diag(torch.full((3,), 0.5), -2), "a single 1"),
        (torch.zeros(3, 3), "the shape is"),
        ([[0, 0], [1, 0]], "a tensor was expected"),
    ],
    "02.4": [
        ((12_480, 12_480), "four projections"),
        ((16_384, 16_384), "biases"),
        ((133_120, 16_640), "share the width"),
        ((16_640, 2_080), "an eighth"),
        ((16_640, [16_640, 1]), "a number was expected"),
        ((np.array([16_640, 1]), 16_640), "a number was expected"),
        ((16_448, 16_640), "each maps 64 numbers"),
    ],
    "02.5": [
        (additive(inner=lambda hidden: hidden), "the tanh"),
        (additive(weigh=lambda scores: scores.softmax(-2)), "over the keys"),
        (additive(weigh=lambda scores: scores), "need a softmax"),
        (additive(weigh=lambda scores: (scores / 6**0.5).softmax(-1)), "not scaled"),
        (additive(inner=torch.relu), "for each query with each key"),
        (lambda query, key, value, W_q, W_k, v: value, "the shape is"),
    ],
}
