"""Exercises that check themselves: ``check("03.1", my_target_mask)`` says whether it is right, or what to look at.

The checks of a notebook's exercises are in a file of their own, ``notebook_03`` for example, and are loaded when the
first of them is asked for. A check compares with arithmetic, with the paper or with PyTorch, and names the likeliest
mistakes.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_CHECKS: dict[str, Callable[..., str | None]] = {}


class Wrong(Exception):
    """An answer is not right yet; the message is a hint."""


class Unsolved(Exception):
    """There is no answer yet."""


@dataclass(frozen=True, repr=False)
class Verdict:
    """What ``check`` found: true if the answer is right. Shown by Jupyter as its message.

    Attributes:
        name: of the exercise, such as ``"03.1"``.
        state: ``"right"``, ``"not yet"`` or ``"not solved yet"``.
        message: a hint, or what is worth knowing once it is right.
    """

    name: str
    state: str
    message: str

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        return f"{self.name} · {self.state}: {self.message}"


def check(name: str, *answer: Any) -> Verdict:
    """Check the answer to an exercise.

    Args:
        name: the notebook's and the exercise's number, such as ``"03.1"``.
        answer: what the exercise asks for: functions, classes or values.

    Raises:
        ValueError: there is no such exercise.
        TypeError: it asks for another number of answers.
    """
    if not re.fullmatch(r"\d\d\.\d", name):
        raise ValueError(f"name is {name!r}, expected a notebook and an exercise, such as '03.1'")
    try:
        importlib.import_module(f"{__name__}.notebook_{name[:2]}")
        checker = _CHECKS[name]
    except (ModuleNotFoundError, KeyError):
        raise ValueError(f"name is {name!r}, expected an exercise that there is, such as '03.1'") from None
    wanted = list(inspect.signature(checker).parameters)
    if len(answer) != len(wanted):
        raise TypeError(f"exercise {name} asks for {', '.join(wanted)}, but {len(answer)} answers were given")
    try:
        if any(given is None or given is ... for given in answer):
            raise Unsolved
        return Verdict(name, "right", checker(*answer) or "well done.")
    except Unsolved:
        return Verdict(name, "not solved yet", "replace the dots by your answer, and run the cell again.")
    except Wrong as hint:
        return Verdict(name, "not yet", str(hint))


def exercise(name: str) -> Callable[[Callable[..., str | None]], Callable[..., str | None]]:
    """Register a function as the check of an exercise: it raises ``Wrong``, or returns what is worth knowing."""

    def register(checker: Callable[..., str | None]) -> Callable[..., str | None]:
        _CHECKS[name] = checker
        return checker

    return register


def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a reader's function, whose errors are hints too.

    Raises:
        Unsolved: it returns nothing.
        Wrong: it is no function, or raises something.
    """
    if not callable(function):
        raise Wrong(f"a function was expected, but this is {_short(function)}.")
    try:
        found = function(*arguments, **named)
    except NotImplementedError:
        raise Unsolved from None
    except Exception as error:
        raise Wrong(f"your code stopped with {type(error).__name__}: {error}") from error
    if found is None or found is ...:
        raise Unsolved
    return found


def expect(condition: Any, hint: str) -> None:
    """Raise ``Wrong`` with a hint unless the condition holds."""
    if not condition:
        raise Wrong(hint)


def expect_tensor(found: Any, expected: Tensor, hint: str, tolerance: float = 1e-4) -> Tensor:
    """Compare a tensor with the right one: kind, shape, type, numbers; the hint is for other numbers only.

    Raises:
        Wrong: they differ.
    """
    expect(isinstance(found, Tensor), f"a tensor was expected, but your code returned {_short(found)}.")
    expect(
        found.shape == expected.shape,
        f"the shape is {list(found.shape)}, expected {list(expected.shape)}.",
    )
    if expected.dtype == torch.bool:
        expect(
            found.dtype == torch.bool,
            f"the type is {found.dtype}, expected torch.bool: a mask is made of True and False.",
        )
        expect(found.equal(expected), hint)
    else:
        expect(not found.isnan().any(), f"there is nan in it. {hint}")
        expect(torch.allclose(found.double(), expected.double(), rtol=tolerance, atol=tolerance), hint)
    return found


def expect_number(found: Any, expected: float, hint: str, tolerance: float = 1e-4) -> None:
    """Compare a number with the right one.

    Raises:
        Wrong: it is no number, or another one.
    """
    if isinstance(found, Tensor) and found.numel() == 1:
        found = found.item()
    expect(isinstance(found, int | float), f"a number was expected, but this is {_short(found)}.")
    expect(abs(found - expected) <= tolerance * max(1, abs(expected)), hint)


def _short(value: Any) -> str:
    text = repr(value)
    return f"a {type(value).__name__}, {text if len(text) < 80 else text[:77] + '…'}"
