"""Exercises that check themselves: ``check("06.1", my_shift)`` says whether it is right, or what to look at.

The boxes of the Transformer are exercises, too: ``target_mask = write(target_mask)`` checks what a reader wrote, and
goes on with it once it is right, until then with the library's own (``course``). ``keep`` and ``kept`` carry what was
written in one notebook to the next. ``guess`` asks what will come out before a cell is run.

The checks of a notebook's exercises are in a file of their own, ``notebook_03`` for example, and are loaded when the
first of them is asked for. A check compares with arithmetic, with the paper or with PyTorch, and names the likeliest
mistakes.
"""

import ast
import copy
import functools
import html
import importlib.util
import inspect
import io
import itertools
import os
import random
import re
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import transformer_lib
from transformer_exercises import course, keeping, taking_home

_MOST_ENTRIES = 1_000_000
NOTHING = {"text/html": "", "text/plain": ""}  # an output that takes no room
# In JupyterLab, a key that is pressed on such an element is no command, as `d` `d` is, which deletes the cell. Inside
# something with the second, it is one together with Shift or Ctrl: Shift+Enter goes on to the next cell.
KEYS_STAY_HERE = 'data-lm-suppress-shortcuts="true"'
_TOGGLE = "event.target.toggleAttribute('data-lm-suppress-shortcuts', !event.shiftKey && !event.ctrlKey)"
BUT_COMMANDS = f'onkeydown="{_TOGGLE}" onkeyup="{_TOGGLE}"'
_CHECKS: dict[str, Callable[..., str | None]] = {}
_REPLIES: dict[str, dict[str, str]] = {}
_SIGNS = {"right": "✓ ", "not yet": "✗ "}
_COLOURS = {"right": "#2f8f4e", "not yet": "#c9651f"}  # seen on white and on black
_NOT_READERS = tuple(  # where files lie that no reader has written
    str(folder) + os.sep
    for folder in (
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
        Path(torch.__file__).parent,
        Path(__file__).parent,
        Path(transformer_lib.__file__).parent,
    )
)
_MEANINGS = {  # what errors that beginners meet say, and the lines in which they meet them, as patterns; what is behind
    ("Tensor, not tuple|'Tensor' and 'tuple'|'tuple' object has", ""): (
        "A box returned several things at once: take them apart, as in `y, weights = …`."
    ),
    ("Boolean value of Tensor", r"\bmax\(|\bmin\("): (
        "`max` and `min` want one truth value: for each number of a tensor, there are `.relu()` and `.clamp(min=0)`."
    ),
    ("Boolean value of Tensor", r"^(?!.*\b(max|min)\()"): (
        "`and`, `or` and `not` want one truth value: for tensors, write `&`, `|` and `~`."
    ),
    (r"(max|min)\(\) received", ""): (
        "`torch.max` and `torch.min` want a tensor at each place: for each number of one, there are `.relu()` and "
        "`.clamp(min=0)`."
    ),
    ("first two dimensions of batch2", ""): (
        "Two stacks of matrices do not fit: print both shapes. There are as many keys as values, and they come from "
        "`key` and `value`, which may be longer than `query`."
    ),
    ("on the same device|the expected device", ""): (
        "Two devices met, and a check computes on the CPU: make your tensors where the inputs are, `device=x.device`."
    ),
    ("Fan in and fan out", ""): (
        "Xavier's values are for parameters with more than one axis: biases and norms have one."
    ),
    ("'float' object cannot be interpreted|type float|must be tuple of ints|not float|list of ints", ""): (
        "A size is a whole number: `/` makes 6.0 of 24 and 4, `//` makes 6."
    ),
    ("mat1 and mat2 shapes|size mismatch, got input", ""): (
        "A linear layer takes vectors as long as the first of its two sizes: here comes another length."
    ),
}


class Wrong(Exception):
    """An answer is not right yet; the message is a hint."""


class Unsolved(Exception):
    """There is no answer yet."""


@dataclass(frozen=True, repr=False)
class Verdict:
    """What ``check`` found: true if the answer is right. Shown by Jupyter as its message.

    Attributes:
        name: of the exercise, such as ``"03.2"``.
        state: ``"right"``, ``"not yet"`` or ``"not solved yet"``.
        message: a hint, or what is worth knowing once it is right.
    """

    name: str
    state: str
    message: str

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        message = re.sub(r"\*(\w[^*]*)\*", r"\1", self.message)
        return f"{_SIGNS.get(self.state, '')}{self.name} · {self.state}: {message}"

    def _repr_html_(self) -> str | None:
        """Return it with a colour for its sign, and with its code and its emphasis as such; none before an answer."""
        if self.state not in _SIGNS:
            return None
        message = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(self.message))
        message = re.sub(r"\*(\w[^*]*)\*(?![^<]*</code>)", r"<em>\1</em>", message)
        sign = f'<b style="color: {_COLOURS[self.state]}">{_SIGNS[self.state]}{self.name} · {self.state}</b>'
        return f'<div style="max-width: 50em">{sign}: {message}</div>'


def check(name: str, *answer: Any) -> Verdict:
    """Check the answer to an exercise. Random numbers, the default dtype and the grad mode are afterwards as before.

    Args:
        name: the notebook's and the exercise's number, such as ``"03.2"``; or the name of a box, such as
            ``"target_mask"``.
        answer: what the exercise asks for: functions, classes or values.

    Raises:
        ValueError: there is no such exercise.
        TypeError: it asks for another number of answers.
    """
    _load_notebook(name[:2] if re.fullmatch(r"\d\d\.\d", name) else course.notebook_of(name))
    if name not in _CHECKS:
        raise ValueError(f"name is {name!r}, expected an exercise such as '02.1', or a box such as 'target_mask'")
    checker = _CHECKS[name]
    wanted = list(inspect.signature(checker).parameters)
    if len(answer) != len(wanted):
        raise TypeError(f"exercise {name} asks for {', '.join(wanted)}, but {len(answer)} answers were given")
    try:
        if any(given is None or given is ... for given in answer):
            raise Unsolved
        with _left_as_it_was():
            return Verdict(name, "right", checker(*map(_on_the_cpu, answer)) or "well done.")
    except Unsolved as reason:
        message = str(reason) or "replace the dots by your answer, and run the cell again."
        return Verdict(name, "not solved yet", message)
    except Wrong as hint:
        return Verdict(name, "not yet", " ".join([_sentence(str(hint)), *_without_a_name(answer)]))
    except Exception as error:
        what = "the answer has another form than the exercise asks for"
        hint = f"{what}: the check stopped with {type(error).__name__}: {error}"
        return Verdict(name, "not yet", _sentence(hint))


@dataclass(frozen=True, repr=False)
class Guess:
    """What ``guess`` asks. Jupyter shows the choices; one that is pressed opens and says whether it is right.

    Attributes:
        name: of the question, such as ``"03.a"``.
        replies: to each choice.
    """

    name: str
    replies: dict[str, str]

    def __repr__(self) -> str:
        return "\n".join([f"{self.name} · your guess?", *(f"  – {choice}" for choice in self.replies)])

    def _repr_html_(self) -> str:
        """Return HTML that works without a kernel and without scripts, in light and in dark."""
        box = "border: 1px solid #8888; border-radius: 4px; margin: 4px 0; padding: 4px 10px; max-width: 40em"
        choices = (
            f'<details name="guess-{self.name}" style="{box}"><summary style="cursor: pointer" {KEYS_STAY_HERE}>'
            f'{html.escape(choice)}</summary><p style="margin: 6px 0 4px">{html.escape(reply)}</p></details>'
            for choice, reply in self.replies.items()
        )
        return f"<div {BUT_COMMANDS}>Your guess?{''.join(choices)}</div>"


def guess(name: str, *choices: str, cells: int = 1) -> Guess:
    """Ask what the next cell will show. Choose before you run it: each choice says why it is right, or why not.

    Args:
        name: the notebook's number and a letter, such as ``"03.a"``.
        choices: the possible answers.
        cells: how many cells after this one have an output that is hidden until it is wanted.

    Raises:
        ValueError: there is no such question, or it has other choices.
    """
    _load_notebook(name[:2])
    if set(_REPLIES.get(name, ())) != set(choices):
        expected = ", ".join(map(repr, _REPLIES.get(name, ()))) or "a name such as '03.a'"
        raise ValueError(f"guess got {name!r} with the choices {list(choices)}, expected {expected}")
    _begin_with_nothing(cells)
    return Guess(name, {choice: _REPLIES[name][choice] for choice in choices})


def _shell() -> Any:
    """Return the IPython that runs this, or None."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def _begin_with_nothing(cells: int) -> None:
    """Let the next cells' outputs begin with an empty one: JupyterLab shows the first line of what it hides."""
    shell, left = _shell(), itertools.count(cells - 1, -1)
    if shell is None:
        return

    def show_nothing(*_: Any) -> None:
        from IPython.display import display

        display(NOTHING, raw=True)
        if next(left) <= 0:
            shell.events.unregister("pre_run_cell", show_nothing)

    shell.events.register("pre_run_cell", show_nothing)


def write(written: Any, which: str = "") -> Any:
    """Check what a reader wrote, show the verdict, and return what the notebook goes on with.

    That is ``written`` if it is right; until then, what the library or the course has of that name, so that all later
    cells run.

    Args:
        written: a function or class, with the name that the notebook gives it.
        which: of two of this name is asked for, such as ``"without mask"``, before a later notebook asks for the whole.

    Raises:
        ValueError: no notebook asks for something of that name.
    """
    name = ", ".join([getattr(written, "__name__", type(written).__name__), *filter(None, [which])])
    own = course.own(name)
    verdict = check(name, written)
    if not verdict:
        verdict = replace(verdict, message=f"{verdict.message} {course.whose(name).capitalize()} own stands in.")
    show = print
    if _shell() is not None and verdict.state in _SIGNS:  # before there is an answer, there is nothing to colour
        from IPython.display import display as show
    show(verdict)
    return written if verdict else own


def keep(folder: str | Path, *written: Any) -> None:
    """Write the source of functions and classes to ``written.py`` in a folder, where ``kept`` finds it.

    With each come the imports, helpers and constants that it uses. What is written is read and checked before this says
    that it is kept; what is no longer right there is left out, with the reason. All else in the file stays.

    Args:
        folder: it is made if there is none.
        written: what ``write`` returned. What stands in is not written down.
    """
    keeping.keep(folder, written, check)


def kept(folder: str | Path, name: str) -> Any:
    """Return what a reader wrote under a name and ``keep`` wrote down, if it is right; else what stands in.

    A printed line says which of the two it is, and why it is not the reader's.
    """
    return keeping.kept(folder, name, check)


def my_transformer(folder: str | Path) -> None:
    """Write ``my_transformer.py``, the whole Transformer in one file, and print how many of its parts are the reader's.

    They are what ``keep`` wrote down, as far as it is right; ``the_transformer.py`` gives the rest. The file needs
    PyTorch alone: ``python my_transformer.py --help`` says how it trains, and translates. It is run once, tiny, before
    it replaces an older one; what does not fit is left out, with the reason. One that was changed by hand is set aside.

    Args:
        folder: where ``keep`` writes.
    """
    taking_home.write(folder, check)


def _load_notebook(number: str) -> None:
    """Load the checks and questions of a notebook, if there are any."""
    if importlib.util.find_spec(module := f"{__name__}.notebook_{number}"):
        importlib.import_module(module)


def _on_the_cpu(answer: Any, depth: int = 3) -> Any:
    """Return an answer, or what a function answers, with its tensors on the CPU, where the checks compute.

    Raises:
        Wrong: it is so long that no check would end.
    """
    if isinstance(answer, Tensor):
        return answer.cpu()
    if isinstance(answer, nn.Module):
        there = any(not tensor.is_cpu for tensor in (*answer.parameters(), *answer.buffers()))
        return copy.deepcopy(answer).cpu() if there else answer
    if isinstance(answer, Sized) and not isinstance(answer, np.ndarray) and len(answer) > _MOST_ENTRIES:
        raise Wrong(f"there are {len(answer):,} entries in it, far more than the exercise asks for.")
    if type(answer) in (list, tuple) and depth:
        return type(answer)(_on_the_cpu(one, depth - 1) for one in answer)
    if type(answer) is dict and depth:
        return {name: _on_the_cpu(one, depth - 1) for name, one in answer.items()}
    if inspect.isfunction(answer):
        return functools.wraps(answer)(lambda *given, **named: _on_the_cpu(answer(*given, **named)))
    return answer


@contextmanager
def _left_as_it_was() -> Iterator[None]:
    """Keep what a reader's code and a check do to global state from everybody else."""
    python, numpy, dtype = random.getstate(), np.random.get_state(), torch.get_default_dtype()
    devices = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
    apple = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    try:
        with torch.random.fork_rng(devices, device_type="cuda"), torch.enable_grad(), torch.device("cpu"):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_default_dtype(dtype)
        if apple is not None:
            torch.mps.set_rng_state(apple)


def exercise(name: str) -> Callable[[Callable[..., str | None]], Callable[..., str | None]]:
    """Register a function as the check of an exercise: it raises ``Wrong``, or returns what is worth knowing."""

    def register(checker: Callable[..., str | None]) -> Callable[..., str | None]:
        _CHECKS[name] = checker
        return checker

    return register


def question(name: str, right: str, replies: dict[str, str]) -> None:
    """Register the replies to the choices of a ``guess``; ``right`` is the one choice that is right."""
    _REPLIES[name] = {
        choice: f"{'✓ Right' if choice == right else '✗ Not this one'}: {reply}" for choice, reply in replies.items()
    }


def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a reader's function, whose errors are hints too; what a generator yields comes back as a list.

    Raises:
        Unsolved: it returns nothing, or computes with dots that are still there.
        Wrong: it is no function, or raises something.
    """
    if not callable(function):
        raise Wrong(f"a function was expected, but this is {_short(function)}.")
    # Numbers that a function alone was given may become others; masks, ids and what goes through a box are used again.
    tensors = [
        one
        for one in _tensors([*arguments, *named.values()])
        if isinstance(function, nn.Module) or not one.is_floating_point()
    ]
    versions = [tensor._version for tensor in tensors]
    try:
        found = function(*arguments, **named)
        if isinstance(found, Iterator):
            found = list(itertools.islice(found, _MOST_ENTRIES + 1))  # it may have no end
            expect(len(found) <= _MOST_ENTRIES, "what your code yields does not seem to end.")
    except NotImplementedError:
        raise Unsolved from None
    except Wrong:
        raise
    except Exception as error:
        if "ellipsis" in str(error):
            raise Unsolved from error
        raise Wrong(_stopped(error)) from error
    unchanged = versions == [tensor._version for tensor in tensors]
    expect(
        unchanged,
        "your code changes in place what it is given, as `x += 1` and `mask.logical_not_()` do: make a new tensor.",
    )
    if found is None and not _has_dots(function):
        raise Unsolved("your code returns nothing; is there a `return`?")
    if found is None or found is ...:
        raise Unsolved
    return found


def _stopped(error: Exception) -> str:
    """Return what stopped a reader's code, in which of its lines, and what is behind it if beginners often meet it."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_READERS)
    ]
    line = (frames[-1].line or "").strip() if frames else ""
    meanings = [
        meaning
        for (said, where), meaning in _MEANINGS.items()
        if re.search(said, str(error)) and (not line or re.search(where, line))
    ]
    where = []
    if line:
        named = f"That was in line {frames[-1].lineno}, `{line}`"
        here = [frame for frame in frames if frame.filename == frames[0].filename]  # the cell that is checked
        if here[-1] is not frames[-1]:
            named += f", of another cell; line {here[-1].lineno} here, `{(here[-1].line or '').strip()}`, calls it"
        where = [f"{named}."]
    said = str(error).split(", but expected one of:\n")[0]  # PyTorch lists all ways to call a function
    return " ".join([_sentence(f"your code stopped with {type(error).__name__}: {said}"), *where, *meanings])


_NEW_TENSORS = {
    "masked_fill",
    "softmax",
    "log_softmax",
    "transpose",
    "permute",
    "view",
    "reshape",
    "flatten",
    "unflatten",
}
_NEW_TENSORS |= {"relu", "clamp", "exp", "log", "tril", "triu", "squeeze", "unsqueeze", "float", "long", "bool"}


def _without_a_name(answers: Iterable[Any]) -> Iterator[str]:
    """Yield a hint if a line of a reader's makes a new tensor, and keeps it nowhere."""
    for answer in answers:
        parts = vars(answer).values() if inspect.isclass(answer) else [answer]
        for function in (inspect.unwrap(part) for part in parts if inspect.isfunction(part)):
            try:
                tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            except (OSError, TypeError, SyntaxError):
                continue
            for node in ast.walk(tree):
                value = node.value if isinstance(node, ast.Expr) else None
                if isinstance(value, ast.Call) and getattr(value.func, "attr", "") in _NEW_TENSORS:
                    line = function.__code__.co_firstlineno + node.lineno - 1
                    made = f"`{ast.unparse(value)}` makes a new tensor, and nothing keeps it"
                    yield f"In line {line}, {made}: give it a name."
                    return


def _has_dots(function: Any) -> bool:
    """Whether a statement or a value in a function's source is still dots; without a source, there may be some."""
    try:
        source = inspect.getsource(function.forward if isinstance(function, nn.Module) else function)
        nodes = [*ast.walk(ast.parse(textwrap.dedent(source)))]
    except (OSError, TypeError, SyntaxError):
        return True
    values = [getattr(node, "value", None) for node in nodes]  # not what is in brackets, as in `x[..., 0]`
    return any(isinstance(value, ast.Constant) and value.value is ... for value in values)


def build(kind: Any, *arguments: Any, **named: Any) -> nn.Module:
    """Make a module of a reader's class.

    Raises:
        Unsolved: it has no parts yet, or some of them are still dots.
        Wrong: it is no class of modules, or making one raises something.
    """
    expect(
        inspect.isclass(kind) and issubclass(kind, nn.Module), f"a class of modules is expected, not {_short(kind)}."
    )
    if kind.__init__ is nn.Module.__init__:  # a class that is nothing but dots
        raise Unsolved
    module = call(kind, *arguments, **named)
    if any(part is ... for box in module.modules() for part in vars(box).values()):
        raise Unsolved
    return module


def load(module: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """Give a module of a reader's class these weights, by name, and put it into evaluation mode.

    Raises:
        Wrong: its parts have other names, or other shapes.
    """
    own = module.state_dict()
    missing, more = sorted(weights.keys() - own.keys()), sorted(own.keys() - weights.keys())
    expect(not missing, f"there is no {missing[:1]} in it: parts have the names that the notebook gives them.")
    expect(not more, f"it has a {more[:1]}, which no part of this box is called.")
    for name, weight in weights.items():
        shapes = list(own[name].shape), list(weight.shape)
        expect(shapes[0] == shapes[1], f"{name} has the shape {shapes[0]}, expected {shapes[1]}.")
    module.load_state_dict(weights)
    return module.eval()


def expect(condition: Any, hint: str) -> None:
    """Raise ``Wrong`` with a hint unless the condition holds."""
    if not condition:
        raise Wrong(hint)


class _Devices(TorchFunctionMode):
    """Notice whether a tensor on the CPU meets one that is elsewhere, where a GPU would not have it."""

    mixed = False
    may_mix = frozenset({"to", "type_as", "copy_", "expand_as", "view_as", "reshape_as", "new_tensor", "tensor"})

    def __torch_function__(self, function: Any, types: Any, given: tuple = (), named: dict | None = None) -> Any:
        """Look at the arguments of each of PyTorch's functions. A number, which has no axis, may be anywhere."""
        name, named = getattr(function, "__name__", ""), named or {}
        if name in ("__getitem__", "__setitem__"):
            picked, index = given[0], _tensors(given[1])
            self.mixed |= picked.is_cpu and any(one.is_meta and one.dim() for one in index)  # only this way round
        elif name not in self.may_mix:
            tensors = [*_tensors(given), *_tensors([*named.values()])]
            on_cpu = any(one.is_cpu and one.dim() for one in tensors)
            self.mixed |= on_cpu and any(one.is_meta for one in tensors)
        return function(*given, **named)


def _tensors(found: Any) -> list[Tensor]:
    """Return a tensor, or all that are in lists and tuples."""
    if isinstance(found, list | tuple):
        return [tensor for one in found for tensor in _tensors(one)]
    return [found] if isinstance(found, Tensor) else []


def expect_any_device(remedy: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Raise ``Wrong`` if a reader's code makes a tensor on the CPU, wherever those are that it is given.

    It runs once more on PyTorch's ``meta`` device, which every machine has: tensors there have shapes, but no numbers.
    Code that asks for a number stops there, and what it would do next is not seen.

    Args:
        remedy: a sentence for the hint.
        function: or a module, which is moved, and stays there.
        arguments: tensors among them are moved.
    """
    meta, watch, found = torch.device("meta"), _Devices(), None
    if isinstance(function, nn.Module):
        for name, value in (pair for box in function.to(meta).modules() for pair in vars(box).items()):
            if isinstance(value, Tensor):
                remedy = f"`self.{name}` stays where it was made: it should be a number, or a buffer."
    function = inspect.unwrap(function)
    names = getattr(getattr(function, "forward", function), "__globals__", {})
    devices = {name: value for name, value in names.items() if isinstance(value, torch.device)}
    names.update(dict.fromkeys(devices, meta))  # a notebook's own `device` is where its model is
    try:
        with suppress(Exception), redirect_stdout(io.StringIO()), torch.no_grad(), watch:
            found = function(*(one.to(meta) if isinstance(one, Tensor) else one for one in arguments))
    finally:
        names.update(devices)
    stays = watch.mixed or any(tensor.is_cpu and tensor.dim() for tensor in _tensors(found))
    expect(not stays, f"on a GPU, it would stop: it makes a tensor on the CPU, wherever its inputs are. {remedy}")


def expect_tensor(found: Any, expected: Tensor, hint: str, tolerance: float = 1e-4) -> Tensor:
    """Compare a tensor with the right one: kind, shape, type, numbers; the hint is for other numbers only.

    Raises:
        Wrong: they differ.
    """
    expect(isinstance(found, Tensor), f"a tensor was expected, but your code returned {_short(found)}.")
    found = found.detach().cpu()
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


_CUT_OFF = "`detach`, `.data`, `.item()` and `torch.no_grad()` cut it off, and what lies before them is never trained."


def expect_gradients(hint: str, answer: Callable[..., Any], right: Callable[..., Any], *inputs: Tensor) -> None:
    """Raise ``Wrong`` unless an answer computes what is right, and hands back the same gradient.

    Args:
        hint: what to say of other numbers.
        answer: a reader's function, or module without dropout: it returns a tensor, or several things and it first.
        right: what computes the same.
        inputs: of both. The gradient is that of the floats among them; each parameter of a module gets one, too.
    """
    outputs, gradients = [], []
    for compute, parameters in ((right, []), (answer, [*answer.parameters()] if isinstance(answer, nn.Module) else [])):
        given = [one.detach().clone().requires_grad_(one.is_floating_point()) for one in inputs]
        with torch.enable_grad():
            output = call(compute, *(one.clone() for one in given))
            output = output[0] if isinstance(output, tuple) else output
            if outputs:
                expect_tensor(output, outputs[0].detach(), hint, 1e-3)
                expect(output.requires_grad, f"the numbers are right, but no gradient comes back. {_CUT_OFF}")
            weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
            leaves = [one for one in (*given, *parameters) if one.requires_grad]
            if leaves:
                gradients.append(torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True))
        outputs.append(output)
    found, expected = gradients[-1], gradients[0] if len(gradients) > 1 else ()
    same = all(close(one, other, 1e-3) for one, other in zip(found, expected, strict=False))
    lost = any(one is None for one in found)
    expect(same and not lost, f"the numbers are right, but some of the gradient does not come back. {_CUT_OFF}")


def expect_number(found: Any, expected: float, hint: str, tolerance: float = 1e-4) -> None:
    """Compare a number with the right one.

    Raises:
        Wrong: it is no number, or another one.
    """
    expect(abs(as_number(found) - expected) <= tolerance * max(1, abs(expected)), hint)


def diagnose(fault: Any, right: str, faults: dict[str, str], signs: dict[str, str], patient: str = "") -> None:
    """Raise ``Wrong`` unless what ails a patient of the clinic is named, with what a wrong guess would have shown.

    Args:
        fault: the reader's answer, one of the names in ``faults``.
        right: the name of the patient's fault.
        faults: from a name to what it means.
        signs: from each wrong name to what one would see.
        patient: who it is, such as ``"patient 3: "``, where there are several.
    """
    if not isinstance(fault, str):
        raise Wrong(f"{patient}the name of a fault was expected, such as {next(iter(faults))!r}.")
    name = {known.lower(): known for known in faults}.get(fault.strip().lower())
    expect(name, f"{patient}{fault!r} is not on the list: {', '.join(faults)}.")
    if name != right:
        raise Wrong(f"{patient}with {name!r}, {signs[name]}. Is that what you measure?")


def disguised(faulty: type) -> type:
    """Give a patient's class its parent's names, which is what ``print(model)`` and ``type(model)`` show."""
    base = faulty.__bases__[0]
    faulty.__name__, faulty.__qualname__, faulty.__module__ = base.__name__, base.__qualname__, base.__module__
    return faulty


def as_number(found: Any) -> float:
    """Return a number of Python's, NumPy's or PyTorch's as a float.

    Raises:
        Wrong: it is no number.
    """
    if isinstance(found, Tensor | np.ndarray) and np.prod(found.shape) == 1:
        found = found.item()
    if not isinstance(found, Real | Decimal):
        raise Wrong(f"a number was expected, but this is {_short(found)}.")
    expect(found == found, "a number was expected, but this is nan: infinity minus infinity, say, or 0 times infinity.")
    try:
        return float(found)
    except OverflowError:
        raise Wrong("that number is far too large.") from None


def as_list(found: Any) -> Any:
    """Return an array or a tensor as a list, and everything else as it is."""
    return found.tolist() if isinstance(found, Tensor | np.ndarray) else found


def as_letters(found: Any, known: str, what: str) -> list[str]:
    """Return letters, given one by one or in a string, as a list of capitals.

    Args:
        found: such as ``["B", "D"]``, ``{"b", "d"}``, ``"BD"`` or ``"B, D"``.
        known: all that there are.
        what: they stand for.

    Raises:
        Wrong: these are no letters, or others.
    """
    try:
        letters = re.findall(r"\w", " ".join(map(str, found)).upper())
    except TypeError:
        raise Wrong("a list of letters was expected, such as ['A', 'B'].") from None
    unknown = sorted(set(letters) - set(known))
    expect(not unknown, f"the {what} are called {', '.join(known[:-1])} and {known[-1]}; you wrote {unknown}.")
    return letters


def close(found: Any, expected: Tensor, tolerance: float = 1e-4) -> bool:
    """Whether this is a tensor with the expected shape and numbers, of whatever type and on whatever device."""
    if not isinstance(found, Tensor) or found.shape != expected.shape:
        return False
    found, expected = (tensor.detach().cpu().double() for tensor in (found, expected))
    return torch.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _sentence(text: str) -> str:
    """Return a text with a full stop, which an error's words mostly lack."""
    return text if text.rstrip(")'\"`").endswith((".", "?", "…")) else f"{text}."


def _short(value: Any) -> str:
    kind, text = type(value).__name__, repr(value)
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    return f"{article} {kind}, {text if len(text) < 80 else text[:77] + '…'}"
