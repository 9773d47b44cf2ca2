"""Every exercise takes right answers, and sends wrong ones back with a hint that helps."""

import importlib
import math
import pkgutil

import pytest
import torch
import torch.nn.functional as F

from transformer_lib import exercises, masks
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


RIGHT = {
    "03.1": [(masks.target_mask,), (lambda ids, pad_id: causal(ids) & seen(ids, pad_id),)],
    "03.2": [(attention(),), (lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask),)],
    "03.3": [(["B", "D"],), ({"D", "B"},)],
    "03.4": [(16_640, 16_640)],
}
WRONG = {  # answers that people give, and what the hint must speak of
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
