"""Answers to the exercises of notebook 02: masks, and one attention head."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from transformer_lib.model import masks


def attention(scale=lambda query: 1 / math.sqrt(query.shape[-1]), mask_scores=None, dim=-1):
    def attend(query, key, value, mask):
        scores = query @ key.transpose(-1, -2) * scale(query)
        hide = mask_scores or (lambda scores, mask: scores.masked_fill(~mask, -torch.inf))
        return hide(scores, mask).softmax(dim) @ value

    return attend


def masked_after(query, key, value, mask):
    weights = (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])).softmax(-1)
    return weights.masked_fill(~mask, 0) @ value


def scaling_in_place(query, key, value, mask):
    query /= math.sqrt(query.shape[-1])
    return (query @ key.mT).masked_fill_(mask.logical_not_(), -1e9).softmax(-1) @ value


def in_double(*given):
    return F.scaled_dot_product_attention(*(x if x.dtype == torch.bool else x.double() for x in given))


def causal(ids):
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()


def seen(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]


def marking_padding(ids, pad_id):
    ids[ids == pad_id] = -1
    return causal(ids) & (ids >= 0)[:, None, None, :]


RIGHT = {
    "02.1": [
        (masks.target_mask,),
        (lambda ids, pad_id: causal(ids) & seen(ids, pad_id),),
        (marking_padding,),
    ],
    "02.2": [
        (attention(),),
        (lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask),),
        (scaling_in_place,),
        (in_double,),
    ],
    "02.3": [
        (["B", "D"],),
        ({"D", "B"},),
        ("BD",),
        ("b, d",),
        (np.array(["B", "D"]),),
    ],
    "02.4": [
        (16_640, 16_640),
        (np.int64(16_640), torch.tensor(16_640)),
        (16_640.0, 16_640.0),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "02.1": [
        (lambda ids, pad_id: causal(ids).expand(len(ids), 1, -1, -1), "the padding is still seen"),
        (lambda ids, pad_id: seen(ids, pad_id).expand(-1, -1, ids.shape[1], -1), "not what comes later"),
        (lambda ids, pad_id: ~masks.target_mask(ids, pad_id), "upside down"),
        (
            lambda ids, pad_id: torch.ones(ids.shape[1], ids.shape[1]).tril(1).bool() & seen(ids, pad_id),
            "one word that comes later",
        ),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id).mT, "rows and keys are columns"),
        (lambda ids, pad_id: causal(ids).tril(-1) & seen(ids, pad_id), "may see itself"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id) & seen(ids, pad_id).mT, "rows of padding"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id)[:, 0], "the shape is"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id).float(), "torch.bool"),
        (lambda ids, pad_id: masks.target_mask(ids, 1), "an argument"),
        (lambda ids, pad_id: masks.causal_mask(4) & seen(ids, pad_id), "stopped with RuntimeError"),
        (5, "a function was expected"),
        (
            lambda ids, pad_id: masks.target_mask(torch.tensor([[7, 8, 9, 1], [7, 1, 1, 1], [7, 8, 9, 6]]), 1),
            "shape is",
        ),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id).tolist(), "a tensor was expected"),
        (lambda ids: masks.target_mask(ids, 1), "stopped with TypeError"),
    ],
    "02.2": [
        (attention(scale=lambda query: 1), "have not divided"),
        (attention(scale=lambda query: 1 / query.shape[-1]), "not by its root"),
        (attention(scale=lambda query: 1 / math.sqrt(5)), "length of a key"),
        (attention(mask_scores=lambda scores, mask: scores), "no effect"),
        (attention(mask_scores=lambda scores, mask: scores.masked_fill(mask, -torch.inf)), "may attend"),
        (masked_after, "after the softmax"),
        (attention(dim=-2), "over the keys"),
        (lambda query, key, value, mask: query, "the shape is"),
        (attention(scale=lambda query: 1 / math.sqrt(3)), "length of a key"),
        (attention(mask_scores=lambda scores, mask: scores * mask), "a score of 0"),
        (lambda *given: in_double(*given) * math.nan, "there is nan"),
        (lambda *given: in_double(*given).half() * 2, "equation 1 again"),
    ],
    "02.3": [
        (["B"], "one of two conditions"),
        (["D"], "one word too many"),
        (["A", "B"], "A is right"),
        ("C", "hides too much"),
        (["x"], "A, B, C and D"),
        ([], "one word too many"),
        (5, "a list of letters"),
        ("ABCD", "A is right"),
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
}
