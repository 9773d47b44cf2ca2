"""Every exercise takes right answers, and sends wrong ones back with a hint that helps."""

import importlib
import math
import pkgutil

import pytest
import torch
import torch.nn.functional as F

from transformer_lib import exercises, masks
from transformer_lib.embeddings import SinusoidalPositions
from transformer_lib.exercises import check


def attention(scale=lambda query: 1 / math.sqrt(query.shape[-1]), mask_scores=None, dim=-1):
    def attend(query, key, value, mask):
        scores = query @ key.transpose(-1, -2) * scale(query)
        hide = mask_scores or (lambda scores, mask: scores.masked_fill(~mask, -torch.inf))
        return hide(scores, mask).softmax(dim) @ value

    return attend


def masked_after(query, key, value, mask):
    weights = (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])).softmax(-1)
    return weights.masked_fill(~mask, 0) @ value


def causal(ids):
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()


def seen(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]


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


RIGHT = {
    "04.1": [(sinusoids(),), (lambda max_len, d_model: SinusoidalPositions(max_len, d_model).table,)],
    "04.2": [(lambda x, sublayer, norm: x + sublayer(norm(x)),)],
    "04.3": [(3_570_176, 1_581_312, 2_372_352, 1_514_501)],
    "04.4": [(rotary(),), (rotary(speed=lambda d: 100 ** (-torch.arange(0, d, 2) / d)),)],
    "03.1": [(masks.target_mask,), (lambda ids, pad_id: causal(ids) & seen(ids, pad_id),)],
    "03.2": [(attention(),), (lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask),)],
    "03.3": [(["B", "D"],), ({"D", "B"},)],
    "03.4": [(16_640, 16_640)],
}
PARTS = RIGHT["04.3"][0]
WRONG = {  # answers that people give, and what the hint must speak of
    "04.1": [
        (sinusoids(order=halves), "take turns"),
        (sinusoids(first=math.cos, second=math.sin), "even dimensions are sines"),
        (sinusoids(exponent=lambda i: i), "one wavelength"),
        (sinusoids(start=1), "first position is 0"),
        (sinusoids(exponent=lambda i: 4 * (i // 2)), "row 0"),
        (lambda max_len, d_model: torch.zeros(d_model, max_len), "the shape is"),
    ],
    "04.2": [
        (lambda x, sublayer, norm: norm(x + sublayer(x)), "post-LN"),
        (lambda x, sublayer, norm: norm(x) + sublayer(norm(x)), "stream itself"),
        (lambda x, sublayer, norm: x + norm(sublayer(x)), "*before*"),
        (lambda x, sublayer, norm: sublayer(norm(x)), "residual connection"),
    ],
    "04.3": [
        ((3_518_976, *PARTS[1:]), "embeddings: words of both sides, and a hundred positions"),
        ((*PARTS[:2], PARTS[1], PARTS[3]), "decoder: a layer has a second attention"),
        ((*PARTS[:3], 5_893 * 256), "output: each English word has 256 weights and a bias"),
        ((3_570_176, "many", *PARTS[2:]), "a number was expected"),
    ],
    "04.4": [
        (lambda x, start: x, "does not depend on the positions"),
        (rotary(sign=1), "with ±"),
        (rotary(keep=2.0), "nothing turns"),
        (lambda x, start: x + start, "no length"),
        (rotary(speed=lambda d: torch.full((d // 2,), 0.3)), "four different speeds"),
        (lambda x, start: rotary()(x[:, :1], start).expand_as(x), "one position further"),
    ],
    "03.1": [
        (lambda ids, pad_id: causal(ids).expand(len(ids), 1, -1, -1), "the padding is still seen"),
        (lambda ids, pad_id: seen(ids, pad_id).expand(-1, -1, ids.shape[1], -1), "not what comes later"),
        (lambda ids, pad_id: ~masks.target_mask(ids, pad_id), "upside down"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id).mT, "rows and keys are columns"),
        (lambda ids, pad_id: causal(ids).tril(-1) & seen(ids, pad_id), "may see itself"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id) & seen(ids, pad_id).mT, "rows of padding"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id)[:, 0], "the shape is"),
        (lambda ids, pad_id: masks.target_mask(ids, pad_id).float(), "torch.bool"),
        (lambda ids, pad_id: masks.target_mask(ids, 1), "an argument"),
        (lambda ids, pad_id: masks.causal_mask(4) & seen(ids, pad_id), "stopped with RuntimeError"),
        (5, "a function was expected"),
    ],
    "03.2": [
        (attention(scale=lambda query: 1), "have not divided"),
        (attention(scale=lambda query: 1 / query.shape[-1]), "not by its root"),
        (attention(scale=lambda query: 1 / math.sqrt(5)), "length of a key"),
        (attention(mask_scores=lambda scores, mask: scores), "no effect"),
        (attention(mask_scores=lambda scores, mask: scores.masked_fill(mask, -torch.inf)), "may attend"),
        (masked_after, "after the softmax"),
        (attention(dim=-2), "over the keys"),
        (lambda query, key, value, mask: query, "the shape is"),
    ],
    "03.3": [
        (["B"], "full length"),
        (["D"], "one word too many"),
        (["A", "B"], "A is right"),
        ("C", "hides too much"),
        (["x"], "A, B, C and D"),
    ],
    "03.4": [
        ((12_480, 12_480), "four projections"),
        ((16_384, 16_384), "biases"),
        ((133_120, 16_640), "share the width"),
        ((16_640, 2_080), "an eighth"),
    ],
}


def names():
    modules = [module.name for module in pkgutil.iter_modules(exercises.__path__)]
    for module in modules:
        importlib.import_module(f"transformer_lib.exercises.{module}")
    return sorted(exercises._CHECKS)


@pytest.mark.parametrize("name", names())
def test_right_answers_are_right(name):
    for answer in RIGHT[name]:
        verdict = check(name, *answer)
        assert verdict and verdict.state == "right", verdict


@pytest.mark.parametrize("name", names())
def test_wrong_answers_get_a_hint_that_helps(name):
    assert len(WRONG[name]) >= 2
    for answer, hint in WRONG[name]:
        verdict = check(name, *(answer if isinstance(answer, tuple) else (answer,)))
        assert not verdict and verdict.state == "not yet"
        assert hint in verdict.message, verdict


@pytest.mark.parametrize("name", names())
def test_dots_are_no_answer_yet(name):
    count = len(RIGHT[name][0])
    for nothing in (None, ..., lambda *arguments: None, lambda *arguments: ...):
        if callable(nothing) and not callable(RIGHT[name][0][0]):
            continue
        assert check(name, *[nothing] * count).state == "not solved yet"


def test_what_is_no_exercise_is_named():
    for name in ("3.1", "03.9", "99.1", "mask"):
        with pytest.raises(ValueError, match=f"name is '{name}', expected"):
            check(name, None)
    with pytest.raises(TypeError, match="exercise 03.4 asks for parameters_of_8_heads, parameters_of_1_head"):
        check("03.4", 1)
