"""Answers to the exercises of notebook 03: masks."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from exercise_answers import worked

from transformer_lib.model import masks

course = worked.notebook("03")


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
    return (query @ key.mT).masked_fill_(~mask, -1e9).softmax(-1) @ value


def inverting_in_place(query, key, value, mask):
    return scaling_in_place(query, key, value, ~mask.logical_not_())


def in_double(*given):
    return F.scaled_dot_product_attention(*(x if x.dtype == torch.bool else x.double() for x in given))


def causal(ids):
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()


def seen(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]


def marking_padding(ids, pad_id):
    ids[ids == pad_id] = -1
    return causal(ids) & (ids >= 0)[:, None, None, :]


def banded(length, window):
    everything = torch.ones(length, length, dtype=torch.bool)
    return everything.tril(window // 2) & everything.triu(-(window // 2))


RIGHT = {
    "03.1": [
        (attention(),),
        (lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask),),
        (scaling_in_place,),
        (in_double,),
    ],
    "03.2": [
        ([[], [], [2], [2, 3], [2, 3, 4]],),
        ([(), (), {2}, range(2, 4), torch.tensor([4, 3, 2])],),
        (tuple(np.arange(2, max(i, 1) + 1) for i in range(5)),),
    ],
    "padding_mask": [
        (course.padding_mask,),
        (masks.padding_mask,),
        (lambda ids, pad_id: ids.ne(pad_id).unsqueeze(1).unsqueeze(2),),
        (lambda ids, pad_id: ~(ids == pad_id).view(len(ids), 1, 1, -1),),
    ],
    "causal_mask": [
        (course.causal_mask,),
        (masks.causal_mask,),
        (lambda length: torch.arange(length) <= torch.arange(length)[:, None],),
        (lambda length: ~torch.triu(torch.ones(length, length), diagonal=1).bool(),),
        (lambda length: torch.tensor([[key <= query for key in range(length)] for query in range(length)]),),
    ],
    "target_mask": [
        (course.target_mask,),
        (masks.target_mask,),
        (lambda ids, pad_id: causal(ids) & seen(ids, pad_id),),
        (lambda ids, pad_id: torch.logical_and(seen(ids, pad_id), masks.causal_mask(ids.size(1)).to(ids.device)),),
    ],
    "03.3": [
        ([2, 1, 1, 7], [2, 4, 5, 7]),
        ((2, 1, 1, 7), torch.Size([2, 4, 5, 7])),
        (np.array([2, 1, 1, 7]), torch.tensor([2, 4, 5, 7])),
    ],
    "03.4": [
        (["B", "D"],),
        ({"D", "B"},),
        ("BD",),
        ("b, d",),
        (np.array(["B", "D"]),),
    ],
    "03.5": [
        (lambda ids, pad_id: ids == pad_id,),
        (lambda ids, pad_id: ~masks.padding_mask(ids, pad_id)[:, 0, 0],),
    ],
    "03.6": [
        (masks.local_mask,),
        (banded,),
    ],
    "03.7": [("mean over words",), ("Mean over words ",)],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "03.1": [
        (attention(scale=lambda query: 1), "have not divided"),
        (attention(scale=lambda query: 1 / query.shape[-1]), "not by its root"),
        (attention(scale=lambda query: 1 / math.sqrt(5)), "length of a key"),
        (attention(mask_scores=lambda scores, mask: scores), "no effect"),
        (inverting_in_place, "changes in place"),
        (attention(mask_scores=lambda scores, mask: scores.masked_fill(mask, -torch.inf)), "may attend"),
        (masked_after, "after the softmax"),
        (attention(dim=-2), "over the keys"),
        (lambda *given: (in_double(*given), None), "the output alone"),
        (lambda q, k, v, mask: v if mask else k, "write `&`"),
        (lambda query, key, value, mask: query, "the shape is"),
        (attention(scale=lambda query: 1 / math.sqrt(3)), "length of a key"),
        (attention(mask_scores=lambda scores, mask: scores * mask), "a score of 0"),
        (lambda *given: in_double(*given) * math.nan, "there is nan"),
        (lambda *given: in_double(*given).half() * 2, "equation 1 again"),
    ],
    "03.2": [
        ([[], [], [2], [2, 3]], "five lists"),
        (5, "five lists"),
        ([[], [], 2, 3, 4], "five lists"),
        ([[]] * 5, "sees itself"),
        ([[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]], "nobody may see them"),
        ([[2, 3, 4]] * 5, "comes later"),
        ([[0], [1], [2], [2, 3], [2, 3, 4]], "both are padding"),
        ([[], [], [], [2], [2, 3]], "each sees itself"),
    ],
    "padding_mask": [
        (lambda ids, pad_id: ids != pad_id, "two axes of size 1"),
        (lambda ids, pad_id: (ids != pad_id)[:, None, :, None], "hides queries"),
        (lambda ids, pad_id: (ids == pad_id)[:, None, None], "upside down"),
        (lambda ids, pad_id: (ids > pad_id)[:, None, None], "0 is an id"),
        (lambda ids, pad_id: (ids != 1)[:, None, None], "an argument"),
        (lambda ids, pad_id: (ids != 7)[:, None, None], "True at words"),
        (lambda ids, pad_id: (ids != pad_id)[:, None, None].float(), "torch.bool"),
        (lambda ids, pad_id: (ids != pad_id)[:, None], "the shape is"),
        (lambda ids: ids, "stopped with TypeError"),
        (lambda ids, pad_id: (ids != torch.full(ids.shape, pad_id))[:, None, None], "device=ids.device"),
    ],
    "causal_mask": [
        (lambda length: torch.ones(length, length, dtype=torch.bool).triu(1), "upside down"),
        (lambda length: torch.ones(length, length, dtype=torch.bool).triu(), "are exchanged"),
        (lambda length: torch.ones(length, length, dtype=torch.bool).tril(-1), "may see itself"),
        (lambda length: torch.ones(length, length, dtype=torch.bool).tril(1), "one word that comes later"),
        (lambda length: torch.ones(length, length, dtype=torch.bool), "columns 0 to i"),
        (lambda length: torch.ones(4, 4, dtype=torch.bool).tril(), "the shape is"),
        (lambda length: torch.ones(length, length, dtype=torch.bool).tril().triu(-3), "not for 6"),
        (lambda length: torch.ones(length, length).tril(), "torch.bool"),
        (lambda length: torch.ones(length, dtype=torch.bool), "the shape is"),
    ],
    "target_mask": [
        (marking_padding, "changes in place"),
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
        (lambda ids, pad_id: causal(ids) | seen(ids, pad_id), "not `|`"),
        (lambda ids, pad_id: causal(ids).T & seen(ids, pad_id), "row i is what word i may see"),
        (lambda ids, pad_id: causal(ids).triu(-3) & seen(ids, pad_id), "not for 6"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id)[:, 0], "the shape is"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id).float(), "torch.bool"),
        (lambda ids, pad_id: masks.target_mask(ids, 1), "an argument"),
        (lambda ids, pad_id: masks.causal_mask(4) & seen(ids, pad_id), "stopped with RuntimeError"),
        (lambda ids, pad_id: seen(ids, pad_id) & masks.causal_mask(ids.shape[0]), "`ids.shape[1]`"),
        (lambda ids, pad_id: masks.causal_mask(len(ids)) & seen(ids, pad_id), "`ids.shape[1]`"),
        (lambda ids, pad_id: seen(ids, pad_id) and causal(ids), "write `&`"),
        (lambda ids, pad_id: seen(ids, pad_id) & masks.causal_mask(ids.shape[1]), "on a GPU"),
        (lambda ids, pad_id: seen(ids, pad_id) & causal(ids).to("meta"), "where the inputs are"),
        (5, "a function was expected, but this is an int, 5."),
        (
            lambda ids, pad_id: masks.target_mask(torch.tensor([[7, 8, 9, 1], [7, 1, 1, 1], [7, 8, 9, 6]]), 1),
            "shape is",
        ),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id).tolist(), "a tensor was expected"),
        (lambda ids: masks.target_mask(ids, 1), "stopped with TypeError"),
    ],
    "03.3": [
        (([2, 1, 1, 5], [2, 4, 5, 7]), "the source's 7"),
        (([2, 1, 5, 5], [2, 4, 5, 7]), "the target mask"),
        (([2, 7], [2, 4, 5, 7]), "axes of size 1"),
        (([2, 1, 1, 7], [2, 4, 7, 5]), "are exchanged"),
        (([2, 1, 1, 7], [2, 5, 7]), "four axes"),
        (([2, 4, 5, 7], [2, 4, 5, 7]), "padding_mask(src"),
        (([2, 1, 1, 7], [2, 4, 5, 5]), "who asks"),
        ((7, [2, 4, 5, 7]), "a shape was expected"),
        (([2, 1, 1, 7.5], [2, 4, 5, 7]), "whole numbers"),
    ],
    "03.4": [
        (["B"], "one of two conditions"),
        (["D"], "one word too many"),
        (["A", "B"], "A is right"),
        ("C", "hides too much"),
        (["x"], "A, B, C and D"),
        ([], "one word too many"),
        (5, "a list of letters"),
        ("ABCD", "A is right"),
    ],
    "03.5": [
        (lambda ids, pad_id: ids != pad_id, "True means *ignore*"),
        (lambda ids, pad_id: (ids == pad_id)[:, None, None, :], "without the two axes"),
        (lambda ids, pad_id: ids == 1, "an argument"),
        (lambda ids, pad_id: (ids == pad_id).float(), "torch.bool"),
        (lambda ids, pad_id: ids == 2, "True at padding"),
    ],
    "03.6": [
        (lambda length, window: masks.local_mask(length, 2 * window + 1), "not three"),
        (lambda length, window: masks.local_mask(length, 2 * window - 1), "at most window // 2 apart"),
        (lambda length, window: masks.local_mask(length, 1), "*and* one on each side"),
        (lambda length, window: masks.local_mask(length, window).tril(), "to the right"),
        (lambda length, window: ~masks.local_mask(length, window), "upside down"),
        (lambda length, window: masks.local_mask(length, window).fill_diagonal_(False), "sees itself"),
        (lambda length, window: masks.local_mask(length, 3), "not for a length of 8"),
        (lambda length, window: masks.local_mask(length, window)[None], "the shape is"),
    ],
    "03.7": [
        ("one word ahead", "with 'one word ahead', output i would feel"),
        ("zeros", "weights above 0"),
        ("too late", "sum to less than one"),
        ("exchanged", "below the diagonal"),
        ("leak", "not on the list"),
        ([1], "the name of a fault was expected"),
    ],
}
