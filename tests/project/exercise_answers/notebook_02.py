"""Answers to the exercises of notebook 02: softmax, attention, queries, keys and values, heads, additive attention."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from exercise_answers import worked
from torch import nn

course = worked.notebook("02")


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


def attention(scale=lambda query: 1 / math.sqrt(query.shape[-1]), dim=-1, back=lambda *both: both):
    def attend(query, key, value):
        weights = (query @ key.mT * scale(query)).softmax(dim)
        return back(weights @ value, weights)

    return attend


def with_einsum(query, key, value):
    scores = torch.einsum("...qd,...kd->...qk", query, key) * query.size(-1) ** -0.5
    weights = F.softmax(scores, -1)
    return torch.einsum("...qk,...kd->...qd", weights, value), weights


def transposed(query, key, value):
    weights = (query @ key.T / math.sqrt(query.shape[-1])).softmax(-1)
    return weights @ value, weights


def with_root_in_a_tensor(query, key, value):
    weights = (query @ key.mT / torch.sqrt(torch.tensor(query.shape[-1]))).softmax(-1)  # a number may be anywhere
    print(f"scores up to {weights.max():.2f}", weights.sum().item())
    return weights @ value, weights


def root_on_the_cpu(query, key, value):
    weights = (query @ key.mT / torch.sqrt(torch.FloatTensor([query.shape[-1]]))).softmax(-1)
    return weights @ value, weights


def head(made_from=(0, 1, 2), by="QKV", pair=False):
    """A head whose queries, keys and values are made from these inputs, by these matrices."""

    class Head(nn.Module):
        def __init__(self, d_model, d_k):
            super().__init__()
            self.W_K, self.W_V, self.W_Q = (nn.Linear(d_model, d_k) for _ in range(3))

        def forward(self, *inputs):
            projections = (getattr(self, f"W_{letter}", nn.Identity()) for letter in by)
            three = (project(inputs[place]) for project, place in zip(projections, made_from, strict=True))
            output = F.scaled_dot_product_attention(*three)
            return (output, output) if pair else output

    return Head


class HeadWithoutBiases(course.Head):
    def __init__(self, d_model, d_k):
        super().__init__(d_model, d_k)
        self.W_Q, self.W_K, self.W_V = (nn.Linear(d_model, d_k, bias=False) for _ in range(3))


class HeadOfOtherNames(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_k) for _ in range(3))


class AddingToZeros(course.Head):
    def forward(self, query, key, value):
        return torch.zeros(*query.shape[:-1], self.W_V.out_features) + super().forward(query, key, value)


def in_a_list(join=None, many=nn.ModuleList, sizes=lambda d_model, heads: (d_model // heads, heads), inputs=slice(3)):
    class HeadsInAList(nn.Module):
        def __init__(self, d_model, num_heads):
            super().__init__()
            d_k, count = sizes(d_model, num_heads)
            self.heads = many([course.Head(d_model, d_k) for _ in range(count)])
            self.W_O = nn.Linear(count * d_k, d_model)

        def forward(self, *given):
            outputs = [head(*(given[inputs] * 3)[:3]) for head in self.heads]
            return join(self.W_O, outputs) if join else self.W_O(torch.cat(outputs, -1))

    return HeadsInAList


class AddingSlices(course.HeadsInAList):
    """The same without joining: each head adds its own contribution."""

    def forward(self, query, key, value):
        slices = zip(self.heads, self.W_O.weight.chunk(len(self.heads), dim=1), strict=True)
        return sum(head(query, key, value) @ part.T for head, part in slices) + self.W_O.bias


class WithEinsum(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))
        self.num_heads = num_heads

    def forward(self, query, key, value):
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (x.view(*x.shape[:2], self.num_heads, -1) for x in projected)
        weights = (torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out_proj(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2)), weights


class WithChunk(WithEinsum):
    """Heads in a new axis, cut by ``chunk``."""

    def forward(self, query, key, value):
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        heads, weights = course.attention(*(torch.stack(x.chunk(self.num_heads, -1), 1) for x in projected))
        return self.out_proj(torch.cat(heads.unbind(1), -1)), weights


class Contiguous(course.MultiHeadAttention):
    """As the tutorials write it."""

    def forward(self, query, key, value):
        batch, length, width = query.shape
        three = (self.q_proj(query), self.k_proj(key), self.v_proj(value))
        q, k, v = (x.view(batch, -1, self.num_heads, width // self.num_heads).permute(0, 2, 1, 3) for x in three)
        weights = (torch.matmul(q, k.permute(0, 1, 3, 2)) / math.sqrt(width // self.num_heads)).softmax(-1)
        return self.out_proj((weights @ v).permute(0, 2, 1, 3).contiguous().view(batch, length, width)), weights


class RootInAPlainTensor(course.MultiHeadAttention):
    """As the tutorials write it, but for their ``.to(device)``."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.scale = torch.sqrt(torch.FloatTensor([d_model // num_heads]))

    def forward(self, query, key, value):
        q, k, v = map(self.split_heads, (self.q_proj(query), self.k_proj(key), self.v_proj(value)))
        weights = (q @ k.mT / self.scale).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


class OutputAlone(course.MultiHeadAttention):
    def forward(self, query, key, value):
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        heads = F.scaled_dot_product_attention(*map(self.split_heads, projected))
        return self.out_proj(heads.transpose(1, 2).flatten(2))


class DividedWithoutRemainder(course.MultiHeadAttention):
    def split_heads(self, x):
        return x.view(*x.shape[:2], self.num_heads, x.shape[-1] / self.num_heads).transpose(1, 2)


def multi_head(
    split=course.MultiHeadAttention.split_heads,
    join=lambda heads: heads.transpose(1, 2).flatten(2),
    attend=course.attention,
    last=lambda self, joined: self.out_proj(joined),
    back=lambda *both: both,
    inputs=lambda query, key, value: (query, key, value),
    values=lambda self, value, k: self.v_proj(value),
    more=lambda self: None,
):
    """The worked answer, in which a piece may be another."""

    class MultiHeadAttention(course.MultiHeadAttention):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            more(self)

        def forward(self, query, key, value):
            query, key, value = inputs(query, key, value)
            q, k = self.q_proj(query), self.k_proj(key)
            heads, weights = attend(*(split(self, x) for x in (q, k, values(self, value, k))))
            return back(last(self, join(heads)), weights)

    return MultiHeadAttention


def exchanging(self, x):
    return x.unflatten(-1, (-1, self.num_heads)).transpose(1, 2)


def viewed(self, x):
    return x.view(len(x), self.num_heads, x.shape[1], -1)


def reshaped(heads):
    return heads.reshape(len(heads), heads.shape[2], -1)


def taking_turns(self, x):
    return x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)


def divided_by(size):
    def attend(q, *others):
        return course.attention(q * math.sqrt(q.shape[-1] / size), *others)

    return attend


def softmax_over(axis):
    def attend(q, k, v):
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(axis)
        return weights @ v, weights

    return attend


def renamed(self):
    self.W_O = self.out_proj
    del self.out_proj


def without_biases(self):
    for name, linear in list(self.named_children()):
        setattr(self, name, nn.Linear(linear.in_features, linear.out_features, bias=False))


MISTAKES_WITH_HEADS = [
    (multi_head(split=viewed), "on the way in"),
    (multi_head(split=viewed, join=reshaped), "as to the way back"),
    (multi_head(join=reshaped), "on the way back: transpose"),
    (multi_head(split=taking_turns, join=lambda heads: heads.permute(0, 2, 3, 1).flatten(2)), "side by side"),
    (multi_head(split=exchanging), "heads and their width are exchanged"),
    (multi_head(attend=divided_by(24)), "not of d_model"),
    (multi_head(attend=divided_by(4)), "not of the number of heads"),
    (multi_head(attend=divided_by(1)), "are not divided"),
    (multi_head(attend=softmax_over(-2)), "over the keys"),
    (multi_head(attend=softmax_over(1)), "axis 1 holds the heads"),
    (multi_head(last=lambda self, joined: joined), "out_proj is missing"),
    (multi_head(split=lambda self, x: x[:, None]), "a single head"),
    (multi_head(values=lambda self, value, k: k), "by v_proj"),
    (multi_head(inputs=lambda query, key, value: (query, query, query)), "another sentence's"),
    (multi_head(last=lambda self, joined: 2 * self.out_proj(joined)), "compare with the heads in a list"),
    (multi_head(more=renamed), "there is no ['out_proj.bias']"),
    (multi_head(more=without_biases), "have biases"),
    (RootInAPlainTensor, "`self.scale` stays where"),
    (DividedWithoutRemainder, "`//` makes 6"),
    (course.attention, "a class of modules is expected"),
]


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
    "02.6": [("root of d_model",), (" Root of d_model ",)],
    "attention": [
        (course.attention,),
        (attention(),),
        (with_einsum,),
        (with_root_in_a_tensor,),
        (worked.answer("scaled_dot_product_attention"),),
    ],
    "Head": [(course.Head,), (head(),)],
    "HeadsInAList": [(course.HeadsInAList,), (in_a_list(),), (AddingSlices,)],
    "MultiHeadAttention, without mask": [
        (course.MultiHeadAttention,),
        (WithEinsum,),
        (WithChunk,),
        (Contiguous,),
        (multi_head(),),
        (worked.answer("MultiHeadAttention"),),
    ],
    "MyMultiHeadAttention": [
        (course.MyMultiHeadAttention,),
        (course.MultiHeadAttention,),
        (OutputAlone,),
        (WithEinsum,),
        (Contiguous,),
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
        (lambda scores: scores.softmax(dim=1), "the last is `dim=-1`"),
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
    "02.6": [
        ("no root", "with 'no root', one head would differ from yours"),
        ("softmax over queries", "would not sum to one"),
        ("values from keys", "would be equal to yours"),
        ("no W_O", "even with one head"),
        ("dropout", "not on the list"),
        (4, "the name of a fault was expected"),
    ],
    "attention": [
        (attention(scale=lambda query: 1), "have not divided"),
        (attention(scale=lambda query: 1 / query.shape[-1]), "not by its root"),
        (attention(scale=lambda query: math.sqrt(query.shape[-1])), "not multiplied"),
        (attention(scale=lambda query: 1 / math.sqrt(query.shape[-2])), "length of a key"),
        (lambda query, key, value: ((scores := query @ key.mT / 4) @ value, scores), "need a softmax"),
        (attention(scale=lambda query: 1 / math.sqrt(2)), "√2 is for keys of two numbers"),
        (attention(dim=-2), "over the keys"),
        (attention(dim=1), "axis 1 holds the queries"),
        (attention(back=lambda output, weights: (weights, output)), "yours are exchanged"),
        (attention(back=lambda output, weights: output), "two things are returned"),
        (lambda query, key, value: (value[:3], query), "the four steps"),
        (lambda query, key, value: (attention()(query, key, value)[0], query @ key.mT), "out of the softmax"),
        (transposed, "not for a batch"),
        (root_on_the_cpu, "device=query.device"),
        (lambda query, key: query, "your code stopped with TypeError"),
    ],
    "Head": [
        (head(pair=True), "the output alone"),
        (head(made_from=(0, 0, 0)), "another sentence's"),
        (head(made_from=(0, 1, 1)), "not from `key`"),
        (head(by="QK_"), "projected, too"),
        (head(by="QKK"), "W_V the values"),
        (head(by="KQV"), "yours are exchanged"),
        (head(by="KKV"), "then `attention`"),
        (HeadWithoutBiases, "have biases"),
        (HeadOfOtherNames, "there is no ['W_K.bias']"),
        (AddingToZeros, "device=query.device"),
    ],
    "HeadsInAList": [
        (in_a_list(many=list), "nn.ModuleList"),
        (in_a_list(many=lambda heads: nn.ModuleList(heads[:1] * len(heads))), "make each anew"),
        (in_a_list(sizes=lambda d_model, heads: (heads, d_model // heads)), "as many heads"),
        (in_a_list(sizes=lambda d_model, heads: (d_model, heads)), "not with all d_model"),
        (in_a_list(lambda W_O, outputs: torch.cat(outputs, -1)), "W_O is missing"),
        (in_a_list(lambda W_O, outputs: W_O(torch.stack(outputs, -1).flatten(2))), "torch.stack"),
        (in_a_list(lambda W_O, outputs: W_O(torch.cat(outputs, 1))), "your code stopped with RuntimeError"),
        (in_a_list(lambda W_O, outputs: (W_O(torch.cat(outputs, -1)), outputs)), "the output alone"),
        (in_a_list(lambda W_O, outputs: W_O(torch.cat(outputs[::-1], -1))), "the same inputs"),
        (in_a_list(inputs=slice(1)), "need `key` and `value`"),
        (in_a_list(lambda W_O, outputs: W_O(torch.zeros(2, 3, 24) + torch.cat(outputs, -1))), "device=query.device"),
    ],
    "MultiHeadAttention, without mask": [
        *MISTAKES_WITH_HEADS,
        (multi_head(back=lambda output, weights: output), "the weights of all heads"),
        (multi_head(back=lambda output, weights: (output, weights.mean(1))), "the shape is"),
        (multi_head(back=lambda output, weights: (output, weights.sqrt())), "for each head"),
        (multi_head(last=lambda self, joined: F.dropout(self.out_proj(joined))), "self.training is True"),
    ],
    "MyMultiHeadAttention": MISTAKES_WITH_HEADS,
}
