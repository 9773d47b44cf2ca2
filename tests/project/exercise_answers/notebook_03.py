"""Answers to the exercises of notebook 03: masks, and the attention that takes them."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from exercise_answers import notebook_02, worked
from torch import nn

from transformer_lib.model import masks

course = worked.notebook("03")


LOWEST = torch.finfo(torch.float32).min


def keep(weights, mask):
    return weights


def hide(scores, mask):
    return scores.masked_fill(~mask, LOWEST)


def masked(before=hide, after=torch.mul, drop=F.dropout, root=None, dim=-1):
    def attend(query, key, value, mask=None, dropout=0.0):
        scores = query @ key.mT / (root or math.sqrt(query.shape[-1]))
        scores = scores if mask is None else before(scores, mask)
        weights = scores.softmax(dim)
        weights = weights if mask is None else after(weights, mask)
        weights = drop(weights, dropout)
        return weights @ value, weights

    return attend


def with_where(query, key, value, mask=None, dropout=0.0):
    everything = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
    mask = everything if mask is None else mask
    scores = torch.where(mask, query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]), -torch.inf)
    weights = F.dropout(scores.softmax(-1).nan_to_num(), dropout)
    return weights @ value, weights


DEVICE = torch.device("cpu")  # as in a notebook that says at the top where everything is


def where_the_notebook_says(query, key, value, mask=None, dropout=0.0):
    kept = (torch.rand(query.shape[-2], key.shape[-2], device=DEVICE) >= dropout) / (1 - dropout)
    _, weights = course.scaled_dot_product_attention(query, key, value, mask)
    return (kept * weights) @ value, kept * weights


def mask_on_the_cpu(query, key, value, mask=None, dropout=0.0):
    mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool) if mask is None else mask
    return course.scaled_dot_product_attention(query, key, value, mask, dropout)


def dropping_on_the_cpu(weights, share):
    return weights * (torch.rand(weights.shape) >= share) / (1 - share)


def dropping_scores(query, key, value, mask=None, dropout=0.0):
    dropped = torch.rand(query.shape[-2], key.shape[-2]) < dropout
    return masked(after=keep)(query, key, value, ~dropped) if dropout else masked()(query, key, value, mask)


def without_broadcasting(scores, mask):
    scores[~mask] = torch.finfo(scores.dtype).min
    return scores


def in_place(weights, mask):
    weights[~mask.expand_as(weights)] = 0.0
    return weights


class WithEinsum(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))
        self.num_heads, self.drop = num_heads, nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (x.view(*x.shape[:2], self.num_heads, -1) for x in projected)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        scores = scores if mask is None else scores.masked_fill(mask == 0, -1e9)
        weights = self.drop(scores.softmax(-1))
        return self.out_proj(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2)), weights


class WithChunk(WithEinsum):
    """Heads in a new axis, cut by ``chunk``."""

    def forward(self, query, key, value, mask=None):
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (torch.stack(x.chunk(self.num_heads, -1), 1) for x in projected)
        heads, weights = course.scaled_dot_product_attention(q, k, v, mask, self.drop.p * self.training)
        return self.out_proj(torch.cat(heads.unbind(1), -1)), weights


class Contiguous(course.MultiHeadAttention):
    """As the tutorials write it."""

    def forward(self, query, key, value, mask=None):
        batch, length, width = query.shape
        three = (self.q_proj(query), self.k_proj(key), self.v_proj(value))
        q, k, v = (x.view(batch, -1, self.num_heads, width // self.num_heads).permute(0, 2, 1, 3) for x in three)
        energy = torch.matmul(q, k.permute(0, 1, 3, 2)) / math.sqrt(width // self.num_heads)
        if mask is not None:
            energy = energy.masked_fill(mask == 0, -1e10)
        weights = torch.dropout(energy.softmax(-1), self.dropout, self.training)
        return self.out_proj((weights @ v).permute(0, 2, 1, 3).contiguous().view(batch, length, width)), weights


class RootInAPlainTensor(course.MultiHeadAttention):
    """As the tutorials write it, but for their ``.to(device)``."""

    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__(d_model, num_heads, dropout)
        self.scale = torch.sqrt(torch.FloatTensor([d_model // num_heads]))

    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.split_heads, (self.q_proj(query), self.k_proj(key), self.v_proj(value)))
        scores = q @ k.mT / self.scale
        weights = (scores if mask is None else scores.masked_fill(~mask, LOWEST)).softmax(-1)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


def multi_head(
    split=course.MultiHeadAttention.split_heads,
    join=lambda heads: heads.transpose(1, 2).flatten(2),
    attend=course.scaled_dot_product_attention,
    last=lambda self, joined: self.out_proj(joined),
    back=lambda *both: both,
    dropout=lambda self: self.dropout if self.training else 0.0,
    masks=lambda mask: mask,
    inputs=lambda query, key, value: (query, key, value),
):
    """The worked answer, in which a piece may be another."""

    class MultiHeadAttention(course.MultiHeadAttention):
        def forward(self, query, key, value, mask=None):
            query, key, value = inputs(query, key, value)
            q, k, v = (split(self, x) for x in (self.q_proj(query), self.k_proj(key), self.v_proj(value)))
            heads, weights = attend(q, k, v, None if mask is None else masks(mask), dropout(self))
            return back(last(self, join(heads)), weights)

    return MultiHeadAttention


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
        ([0, 0.670, 0.330],),
        ((0.0, 0.67, 0.33),),
        (torch.tensor([0, 4.113, 2.028]) / 6.141,),
        (np.array([0, 0.6698, 0.3302]),),
    ],
    "scaled_dot_product_attention": [
        (course.scaled_dot_product_attention,),
        (masked(),),
        (with_where,),
        (where_the_notebook_says,),
    ],
    "MultiHeadAttention": [(course.MultiHeadAttention,), (WithEinsum,), (WithChunk,), (Contiguous,), (multi_head(),)],
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
        ([0.140, 0.576, 0.284], "in which nobody is hidden"),
        ([0, 0.576, 0.284], "the sum of what is *left*"),
        ([0, 4.113, 2.028], "divide by their sum"),
        ([0.33, 0.67, 0], "no weight at all"),
        ([0, 0.7, 0.35], "sum to one"),
        ([0, 0.5, 0.5], "two powers are left"),
        ([0.670, 0.330], "three numbers"),
        (0.67, "three numbers"),
        ([0, "a", 1], "a number was expected"),
    ],
    "scaled_dot_product_attention": [
        (masked(root=1), "have not divided"),
        (masked(root=math.sqrt(2)), "√2 is for keys of two numbers"),
        (masked(dim=-2), "over the keys"),
        (lambda *given: (masked()(*given)[0] + 1, 0), "what `attention` computes"),
        (lambda *given: (masked()(*given)[0], given[0] @ given[1].mT), "out of the softmax"),
        (lambda *given: masked()(*given)[0], "two things are returned"),
        (masked(before=keep, after=keep), "no effect"),
        (masked(before=lambda scores, mask: hide(scores, ~mask), after=keep), "may be seen"),
        (masked(before=torch.mul, after=keep), "a score of 0"),
        (masked(before=torch.mul), "a score of 0"),
        (masked(before=keep), "no longer sum to one"),
        (masked(before=lambda scores, mask: scores.masked_fill(~mask, -1)), "the lowest number that there is"),
        (masked(before=lambda scores, mask: scores.masked_fill(~mask, -torch.inf)), "is nan"),
        (masked(after=keep), "hide again"),
        (masked(before=without_broadcasting), "fewer rows"),
        (masked(after=in_place), "changed in place"),
        (masked(drop=lambda weights, share: weights), "dropout has no effect"),
        (masked(drop=lambda weights, share: F.dropout(weights, 1 - share if share else 0.0)), "not the share to keep"),
        (masked(drop=lambda weights, share: weights * (torch.rand_like(weights) >= share)), "enlarges"),
        (dropping_scores, "drop weights"),
        (mask_on_the_cpu, "device=query.device"),
        (masked(drop=dropping_on_the_cpu), "device=query.device"),
        (lambda query, key, value: masked()(query, key, value), "your code stopped with TypeError"),
    ],
    "MultiHeadAttention": [
        (multi_head(split=notebook_02.viewed), "on the way in"),
        (multi_head(join=notebook_02.reshaped), "on the way back: transpose"),
        (multi_head(last=lambda self, joined: joined), "out_proj is missing"),
        (multi_head(inputs=lambda query, key, value: (query, query, query)), "another sentence's"),
        (multi_head(last=lambda self, joined: 2 * self.out_proj(joined)), "compare with the heads in a list"),
        (multi_head(masks=lambda mask: None), "does not reach"),
        (multi_head(masks=lambda mask: ~mask), "*may attend*"),
        (multi_head(masks=lambda mask: mask.roll(1, -1)), "hide scores before"),
        (multi_head(back=lambda output, weights: output), "the weights of all heads"),
        (multi_head(back=lambda output, weights: (output, weights.mean(1))), "the shape is"),
        (multi_head(back=lambda output, weights: (output, weights.sqrt())), "for each head"),
        (multi_head(dropout=lambda self: self.dropout), "self.training is True"),
        (multi_head(dropout=lambda self: 0.0), "nowhere at work"),
        (RootInAPlainTensor, "`self.scale` stays where"),
        (notebook_02.course.MultiHeadAttention, "positional arguments"),
        (course.scaled_dot_product_attention, "a class of modules is expected"),
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
