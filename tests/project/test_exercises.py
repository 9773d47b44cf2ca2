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
from transformer_exercises import check, course


def answers(name):
    number = course.notebook_of(name) or name[:2]  # a box's name, or an exercise's
    return importlib.import_module(f"exercise_answers.notebook_{number}")


def names():
    modules = [module.name for module in pkgutil.iter_modules(transformer_exercises.__path__)]
    for module in modules:
        importlib.import_module(f"transformer_exercises.{module}")
    return sorted(transformer_exercises._CHECKS)


NAMES = names()


def hints(name):
    """Sentences in the calls, dictionaries and tuples of a check, but not in the functions that it calls."""
    nodes = ast.walk(ast.parse(inspect.getsource(transformer_exercises._CHECKS[name])))
    inside = itertools.chain.from_iterable(ast.walk(n) for n in nodes if isinstance(n, ast.Call | ast.Dict | ast.Tuple))
    texts = {node.value for node in inside if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if re.search(r"^[^A-Z].*\w[.?]$", text)}


def test_right_answers_are_right():
    for name in NAMES:
        for answer in answers(name).RIGHT[name]:
            verdict = check(name, *answer)
            assert verdict and verdict.state == "right", verdict


def test_wrong_answers_get_a_hint_that_helps():
    for name in NAMES:
        wrong_answers, messages = answers(name).WRONG[name], ""
        assert len(wrong_answers) >= 2, name
        for answer, hint in wrong_answers:
            verdict = check(name, *(answer if isinstance(answer, tuple) else (answer,)))
            assert not verdict and verdict.state == "not yet", verdict
            assert hint in verdict.message, verdict
            messages += verdict.message
        assert not {hint for hint in hints(name) if hint not in messages}, f"{name}: no wrong answer gets these hints"


def test_dots_are_no_answer_yet():
    for name in NAMES:
        right = answers(name).RIGHT[name][0]
        functions = [lambda *arguments: None, lambda *arguments: ...] if callable(right[0]) else []
        for nothing in (None, ..., *functions):
            assert check(name, *[nothing] * len(right)).state == "not solved yet", name


def careless(*arguments):
    """Change all that a function can change for everybody else, and return something useless."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    for argument in arguments:
        if isinstance(argument, list):
            argument.clear()
        elif isinstance(argument, torch.Tensor):
            argument.fill_(1)
    return arguments


def failing_late(*arguments):
    yield 1
    raise RuntimeError("too late")


def endless(*arguments):
    return itertools.count()


VALUES = ("", "?", [], [None], [[]], [1, "x"], {}, {1: [2]}, 10**400, math.nan, 1j, torch.zeros(2, 0), range(3))
RETURNED = ("", [], [[None]], [[], ["x"]], (1, 2), {}, math.inf, 1j, torch.tensor([[1.0, math.nan]]), np.zeros(3))
FUNCTIONS = (
    careless,
    failing_late,
    lambda: 1,
    lambda *given: 1 / 0,
    *(lambda *_, value=value: value for value in RETURNED),
)


@pytest.mark.slow
def test_nonsense_raises_nothing_and_changes_nothing():
    def state():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    for name in NAMES:
        right = answers(name).RIGHT[name][0]
        for place, nonsense in itertools.product(range(len(right)), (*VALUES, *FUNCTIONS, range(10**9), endless)):
            before = state()
            verdict = check(name, *right[:place], nonsense, *right[place + 1 :])
            assert not verdict, (nonsense, verdict)
            assert state() == before, (name, nonsense)
            assert torch.get_default_dtype() == torch.float32
            assert torch.is_grad_enabled()


def test_what_is_no_exercise_is_named():
    for name in ("3.1", "03.9", "99.1", "mask"):
        with pytest.raises(ValueError, match=f"name is '{name}', expected"):
            check(name, None)
    with pytest.raises(TypeError, match=r"exercise 02\.4 asks for parameters_of_8_heads, parameters_of_1_head"):
        check("02.4", 1)
