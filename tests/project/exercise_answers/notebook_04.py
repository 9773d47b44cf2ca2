"""Answers to the exercises of notebook 04: positions, sub-layers, shapes, parameters, a toy task."""

import math

import numpy as np
import torch

from transformer_lib.model.embeddings import SinusoidalPositionalEncoding


def sinusoids(start=0, exponent=lambda i: 2 * (i // 2), first=math.sin, second=math.cos, order=lambda table: table):
    def table(max_len, d_model):
        rows = [
            [(second if i % 2 else first)(pos / 10_000 ** (exponent(i) / d_model)) for i in range(d_model)]
            for pos in range(start, start + max_len)
        ]
        return order(torch.tensor(rows))

    return table


def halves(table):
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def rotary(speed=lambda d: 10_000 ** (-torch.arange(0, d, 2) / d), sign=-1, keep=1.0):
    def rotate(x, start):
        position = torch.arange(start, start + x.shape[-2])[:, None]
        angle = position * speed(x.shape[-1])
        a, b = x[..., 0::2], x[..., 1::2]
        turned = a * angle.cos() + sign * b * angle.sin(), a * angle.sin() + b * angle.cos()
        return keep * torch.stack(turned, dim=-1).flatten(-2)

    return rotate


def adding_in_place(x, sublayer, norm):
    x += sublayer(norm(x))
    return x


def complex_numbers(x, start):
    angle = torch.arange(start, start + x.shape[-2])[:, None] * 500_000 ** (
        -torch.arange(0, x.shape[-1], 2) / x.shape[-1]
    )
    hands = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(hands * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def all_first_then_all_second(x, start):
    turned = rotary()(x, start)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], dim=-1)


def halves_in_pairs(x, start):
    order = torch.arange(8).view(2, 4).T.flatten()  # dimensions i and i + 4 turn together
    return rotary()(x[..., order], start)[..., order.argsort()]


def sorting(count, low=4, high=14, ends=(2, 3), order=lambda digits: digits.sort(dim=1).values):
    digits = torch.randint(low, high, (count, 8))
    first, last = (torch.full((count, 1), end) for end in ends)
    return digits, torch.cat([first, order(digits), last], dim=1)


def sorting_in_one_tensor(count):
    digits = torch.randint(4, 14, (count, 8))
    target = torch.zeros(count, 10, dtype=torch.long)
    target[:, 0], target[:, 1:9], target[:, 9] = 2, digits.sort().values, 3
    return [digits, target]


def sorted_source(count):
    digits, target = sorting(count)
    return digits.sort(dim=1).values, target


def one_row(count):
    return tuple(tensor.expand(count, -1) for tensor in sorting_of_all_digits())


def sorting_of_all_digits():
    digits = torch.randperm(10)[None, :8] + 4
    return digits, torch.cat([torch.tensor([[2]]), digits.sort(dim=1).values, torch.tensor([[3]])], dim=1)


def mixed_up(count):
    digits, target = sorting(count)
    return digits, target.flip(0)


RIGHT = {
    "04.1": [
        (sinusoids(),),
        (lambda max_len, d_model: SinusoidalPositionalEncoding(max_len, d_model).table,),
        (lambda *sizes: sinusoids()(*sizes).double(),),
    ],
    "04.2": [
        (lambda x, sublayer, norm: x + sublayer(norm(x)),),
        (adding_in_place,),
    ],
    "04.3": [
        ([2, 8, 5, 32], [2, 8, 7, 32], [2, 8, 5, 7], [2, 5, 256]),
        (torch.Size([2, 8, 5, 32]), (2, 8, 7, 32), torch.tensor([2, 8, 5, 7]), np.array([2, 5, 256])),
    ],
    "04.4": [
        (3_570_176, 1_581_312, 2_372_352, 1_514_501),
        tuple(map(np.int64, (3_570_176, 1_581_312, 2_372_352, 1_514_501))),
    ],
    "04.5": [(sorting,), (sorting_in_one_tensor,)],
    "04.6": [
        (rotary(),),
        (rotary(speed=lambda d: 100 ** (-torch.arange(0, d, 2) / d)),),
        (complex_numbers,),
    ],
}
SHAPES = RIGHT["04.3"][0]
PARTS = RIGHT["04.4"][0]
WRONG = {  # answers that people give, and what the hint must speak of
    "04.1": [
        (sinusoids(order=halves), "take turns"),
        (sinusoids(first=math.cos, second=math.sin), "even dimensions are sines"),
        (sinusoids(exponent=lambda i: i), "one wavelength"),
        (sinusoids(start=1), "first position is 0"),
        (sinusoids(exponent=lambda i: 4 * (i // 2)), "row 0"),
        (lambda max_len, d_model: torch.zeros(d_model, max_len), "the shape is"),
        (lambda max_len, d_model: sinusoids()(max_len, d_model).T, "the shape is"),
        (lambda max_len, d_model: sinusoids()(max_len, d_model).tolist(), "a tensor was expected"),
    ],
    "04.2": [
        (lambda x, sublayer, norm: norm(x + sublayer(x)), "post-LN"),
        (lambda x, sublayer, norm: norm(x) + sublayer(norm(x)), "stream itself"),
        (lambda x, sublayer, norm: x + norm(sublayer(x)), "*before*"),
        (lambda x, sublayer, norm: sublayer(norm(x)), "residual connection"),
        (lambda x, sublayer, norm: x + sublayer(x), "nothing is normalised"),
        (lambda x, sublayer, norm: norm(x + sublayer(norm(x))), "which of them comes first"),
        (lambda x, sublayer, norm: (x, norm(x)), "a tensor was expected"),
    ],
    "04.3": [
        (([2, 8, 7, 32], *SHAPES[1:]), "queries: they come from the target"),
        (([2, 5, 8, 32], *SHAPES[1:]), "moves the heads before the positions"),
        (([2, 5, 256], *SHAPES[1:]), "an axis of their own"),
        ((SHAPES[0], SHAPES[0], *SHAPES[2:]), "keys: they come from the memory"),
        ((*SHAPES[:2], [2, 8, 7, 5], SHAPES[3]), "a row for each query"),
        ((*SHAPES[:3], [2, 7, 256]), "one vector for each query"),
        ((*SHAPES[:3], 256), "a list of sizes was expected"),
    ],
    "04.4": [
        ((3_518_976, *PARTS[1:]), "embeddings: words of both sides, and a hundred positions"),
        ((PARTS[0], 1_578_240, *PARTS[2:]), "encoder: three layers of an attention, a network, two norms"),
        ((*PARTS[:2], PARTS[1], PARTS[3]), "decoder: a layer has a second attention"),
        ((*PARTS[:3], 5_893 * 256), "output: each English word has 256 weights and a bias"),
        ((3_570_176, "many", *PARTS[2:]), "a number was expected"),
    ],
    "04.5": [
        (lambda count: sorting(count, order=lambda digits: digits.flip(1)), "still reversal"),
        (lambda count: sorting(count, order=lambda digits: digits), "unsorted"),
        (lambda count: sorting(count, order=lambda digits: digits.sort(descending=True).values), "smallest digit"),
        (lambda count: sorting(count, ends=(3, 2)), "`<sos>` (2)"),
        (lambda count: sorting(count, low=0, high=10), "from 4 to 13"),
        (lambda count: sorting(count)[1], "two tensors"),
        (lambda count: sorting(8), "expected [64, 8]"),
        (sorted_source, "sorted already"),
        (one_row, "by heart"),
        (mixed_up, "its own source"),
        (lambda: sorting(64), "stopped with TypeError"),
        (lambda count: sorting(64), "for a batch of 3"),
        (lambda count: tuple(one.float() for one in sorting(count)), "whole numbers"),
    ],
    "04.6": [
        (lambda x, start: x, "does not depend on the positions"),
        (rotary(sign=1), "with ±"),
        (rotary(keep=2.0), "nothing turns"),
        (lambda x, start: x + start, "no length"),
        (rotary(speed=lambda d: torch.full((d // 2,), 0.3)), "four different speeds"),
        (lambda x, start: rotary()(x[:, :1], start).expand_as(x), "one position further"),
        (all_first_then_all_second, "neighbours again"),
        (halves_in_pairs, "2i and 2i + 1"),
        (lambda x, start: rotary()(x, start).unflatten(-1, (-1, 2)), "keeps its shape"),
        (lambda x, start: rotary()(x, min(start, 10)), "only on the distance"),
        (lambda x, start: rotary()(x, 0), "does not depend on the positions"),
        (lambda x, start: rotary()(x, start + 1), "nothing turns"),
        (lambda x: x, "stopped with TypeError"),
    ],
}
