"""Every exercise takes right answers, and sends wrong ones back with a hint that helps.

The answers are in ``exercise_answers``, a file for each notebook: ``RIGHT[name]`` is a list of tuples of answers,
``WRONG[name]`` one of (answer or tuple of answers, words of the hint).
"""

import ast
import importlib
import inspect
import itertools
import math
import pkgutil
import random
import re

import numpy as np
import pytest
import torch
import transformer_exercises
from transformer_exercises import check


def answers(name):
    return importlib.import_module(f"exercise_answers.notebook_{name[:2]}")


def names():
    modules = [module.name for module in pkgutil.iter_modules(transformer_exercises.__path__)]
    for module in modules:
        importlib.import_module(f"transformer_exercises.{module}")
    return sorted(transformer_exercises._CHECKS)


def hints(name):
    """Sentences in the calls, dictionaries and tuples of a check, but not in the functions that it calls."""
    nodes = ast.walk(ast.parse(inspect.getsource(transformer_exercises._CHECKS[name])))
    inside = itertools.chain.from_iterable(ast.walk(n) for n in nodes if isinstance(n, ast.Call | ast.Dict | ast.Tuple))
    texts = {node.value for node in inside if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if re.search(r"^[^A-Z].*\w[.?]$", text)}


@pytest.mark.parametrize("name", names())
def test_right_answers_are_right(name):
    for answer in answers(name).RIGHT[name]:
        verdict = check(name, *answer)
        assert verdict and verdict.state == "right", verdict


@pytest.mark.parametrize("name", names())
def test_wrong_answers_get_a_hint_that_helps(name, counted):
    assert len(answers(name).WRONG[name]) >= 2
    messages = ""
    for answer, hint in answers(name).WRONG[name]:
        verdict = check(name, *(answer if isinstance(answer, tuple) else (answer,)))
        assert not verdict and verdict.state == "not yet"
        assert hint in verdict.message, verdict
        messages += verdict.message
        counted(wrong_answers_sent_back_with_a_hint=1)
    assert not {hint for hint in hints(name) if hint not in messages}, "no wrong answer gets these hints"
    counted(exercises=1)


@pytest.mark.parametrize("name", names())
def test_dots_are_no_answer_yet(name):
    count = len(answers(name).RIGHT[name][0])
    for nothing in (None, ..., lambda *arguments: None, lambda *arguments: ...):
        if callable(nothing) and not callable(answers(name).RIGHT[name][0][0]):
            continue
        assert check(name, *[nothing] * count).state == "not solved yet"


def careless(*arguments):
    """Change all that a function can change for everybody else, and return something useless."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    for one in arguments:
        if isinstance(one, list):
            one.clear()
        elif isinstance(one, torch.Tensor):
            one.fill_(1)
    return arguments


def failing_late(*arguments):
    yield 1
    raise RuntimeError("too late")


def endless(*arguments):
    return itertools.count()


VALUES = ("", "?", [], [None], [[]], [1, "x"], {}, {1: [2]}, 10**400, math.nan, 1j, torch.zeros(2, 0), range(3))
RETURNED = ("", [], [[None]], [[], ["x"]], (1, 2), {}, math.inf, 1j, torch.tensor([[1.0, math.nan]]), np.zeros(3))
FUNCTIONS = (careless, failing_late, lambda: 1, lambda *given: 1 / 0, *(lambda *_, one=one: one for one in RETURNED))


@pytest.mark.parametrize("name", names())
def test_nonsense_raises_nothing_and_changes_nothing(name):
    def state():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    right = answers(name).RIGHT[name][0]
    for place in range(len(right)):
        for nonsense in (*VALUES, *FUNCTIONS, range(10**9), endless):
            before = state()
            verdict = check(name, *right[:place], nonsense, *right[place + 1 :])
            assert not verdict, (nonsense, verdict)
            assert state() == before
            assert torch.get_default_dtype() == torch.float32
            assert torch.is_grad_enabled()


def test_what_is_no_exercise_is_named():
    for name in ("3.1", "03.9", "99.1", "mask"):
        with pytest.raises(ValueError, match=f"name is '{name}', expected"):
            check(name, None)
    with pytest.raises(TypeError, match=r"exercise 02\.4 asks for parameters_of_8_heads, parameters_of_1_head"):
        check("02.4", 1)
