"""One notebook of one student, run and marked: what ``mark`` starts, in a process of its own.

It gets its job from the standard input, and answers with lines of JSON, each with a word that only the two know. What
the notebook prints goes nowhere, and what it has stored is never read. The cells run statement by statement; in the
place of each ``check`` and ``write`` stands this module's own call, after all that the notebook may have replaced in
the checks has been put back.

All of this happens inside one process of Python's, and code that takes the process apart can do with it what it wants:
see ``marking`` for what that means.
"""

import ast
import builtins
import contextlib
import importlib
import inspect
import json
import linecache
import math
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from IPython.core.inputtransformer2 import TransformerManager
from torch import nn

import transformer_exercises
from transformer_exercises import _CHECKS, _load_notebook, check, course
from transformer_exercises.keeping import is_a_stand_in, names_given

RIGHT, WRONG, NOT_WRITTEN = "right", "wrong", "not written"
CRASHED, TIMED_OUT, MISSING = "crashed", "timed out", "missing"
_OWN = "transformer_exercises", "transformer_lib"
_CHANGES_BY_ITSELF = ("manual_seed",)  # PyTorch wraps it once its compiler is loaded
_VERDICTS = {"right": RIGHT, "not yet": WRONG, "not solved yet": NOT_WRITTEN}
_LARGEST_FILE = 2**28
_PASSED_OVER = {"keep", "my_transformer"}  # what they write down is for the reader, and they check all of it again
_AROUND_PYTHON = ("time", "timeit", "capture", "prun")  # cell magics; what others hold is not run
_CHECK = re.compile(r"""check\(\s*["'](\d\d\.\d)["']""")
_WRITE = re.compile(r"write\(\s*(\w+)")
_GIVEN = re.compile(r"(?m)^(?:def |class |)(\w+)(?=[ \t]*[=(:])")


def exercises_of(number: str) -> list[str]:
    """Return all that a notebook asks for: its exercises' numbers, then the names of what is written in it."""
    _load_notebook(number)
    return [*sorted(name for name in _CHECKS if name.startswith(f"{number}.")), *course.WRITTEN.get(number, ())]


def answers_to(exercise: str) -> list[str]:
    """Return the names that an exercise's notebook gives to its answers: those of its check's arguments."""
    if exercise[0].isdigit():
        return list(inspect.signature(_CHECKS[exercise]).parameters)
    return [exercise.partition(",")[0]]


# What a notebook may have replaced


class Originals:
    """The functions and classes by which answers are checked, as they were before a notebook ran."""

    def __init__(self) -> None:
        own = [module for name, module in sys.modules.items() if name.partition(".")[0] in _OWN]
        inside = [part for module in own for part in vars(module).values() if inspect.isclass(part)]
        inside = [part for part in inside if part.__module__.partition(".")[0] in _OWN]
        inside = [part for part in inside if not issubclass(part, torch.optim.Optimizer)]  # PyTorch wraps their `step`
        others = [builtins, math, inspect, torch, nn, nn.functional, torch.testing, torch.Tensor, nn.Module]
        self.callables = [
            (
                place,
                {
                    name: value
                    for name, value in vars(place).items()
                    if callable(value) and name not in _CHANGES_BY_ITSELF
                },
            )
            for place in dict.fromkeys([*own, *inside, *others])
        ]
        self.checks = dict(_CHECKS)

    def put_back(self) -> list[str]:
        """Put back what is another now, and return the names of all that was."""
        replaced = []
        for place, callables in self.callables:
            now = {name: value for name, value in vars(place).items() if callable(value)}
            for name in [name for name, value in callables.items() if now.get(name) is not value]:
                replaced.append(f"{place.__name__}.{name}")
                setattr(place, name, callables[name])
            if inspect.isclass(place):
                for name in [name for name in now.keys() - callables.keys() if hasattr(super(place, place), name)]:
                    replaced.append(f"{place.__name__}.{name}")
                    delattr(place, name)  # what it inherits is seen again
        if transformer_exercises._CHECKS is not _CHECKS or self.checks != _CHECKS:
            replaced.append("the list of checks")
            transformer_exercises._CHECKS = _CHECKS
            _CHECKS.clear()
            _CHECKS.update(self.checks)
        return replaced


# From a notebook's cells to verdicts


@dataclass
class Cell:
    """A cell of a notebook.

    Attributes:
        number: its place among the cells with code.
        source: in Python.
        statements: none if it is no Python.
        error: why it is none.
        holds: the exercises that it answers.
    """

    number: int
    source: str
    statements: list[ast.stmt] = field(default_factory=list)
    error: str = ""
    holds: list[str] = field(default_factory=list)


def read(number: int, source: str) -> Cell:
    """Return a cell, in which magics and shell commands are calls of ``get_ipython()``."""
    first, _, rest = source.lstrip().partition("\n")
    if first.startswith("%%"):
        source = f"\n{rest}" if first[2:].partition(" ")[0] in _AROUND_PYTHON else ""
    try:
        source = TransformerManager().transform_cell(source)
        return Cell(number, source, ast.parse(source).body)
    except Exception as error:
        return Cell(number, source, error=_described(error))


class Marker:
    """Run the cells of one notebook, and mark each exercise where it stands.

    Args:
        number: of the notebook, such as ``"02"``.
        tell: gets an exercise, a verdict and a hint; more than once if several cells answer it.
    """

    def __init__(self, number: str, tell: Callable[[str, str, str], None]):
        self.answers = {exercise: answers_to(exercise) for exercise in exercises_of(number)}
        self.boxes = {names[0]: exercise for exercise, names in self.answers.items() if not exercise[0].isdigit()}
        self.tell = tell
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        self.names = vars(module)
        self.names["get_ipython"] = _NoShell
        self.originals = Originals()

    def plan(self, cells: list[Cell]) -> None:
        """Find out what each cell holds: the exercises that it checks, or, if none checks them, that it answers."""
        for cell in cells:
            if cell.error:  # no Python: what it looks like has to do
                found = [*_CHECK.findall(cell.source), *map(self.boxes.get, _WRITE.findall(cell.source))]
                cell.holds = [one for one in self.answers if one in found]
            else:
                cell.holds = [*dict.fromkeys(one for node in cell.statements for one, _ in self.asked(node))]
        checked = {exercise for cell in cells for exercise in cell.holds}
        for cell in cells:
            given = {name for node in cell.statements if not _is_import(node) for name in names_given(node)}
            given |= set(_GIVEN.findall(cell.source)) if cell.error else set()
            cell.holds += [one for one in self.answers if one not in checked and given.intersection(self.answers[one])]

    def asked(self, statement: ast.stmt) -> Iterator[tuple[str, list[ast.expr]]]:
        """Yield each exercise that a statement checks, and the expressions that it gives as an answer."""
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        for call in ast.walk(statement):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            called, first = getattr(call.func, "id", getattr(call.func, "attr", "")), call.args[0]
            if called == "check" and isinstance(first, ast.Constant) and first.value in self.answers:
                yield first.value, call.args[1:]
            elif called == "write" and getattr(first, "id", "") in self.boxes:
                yield self.boxes[first.id], [first]

    def run(self, cell: Cell) -> None:
        """Run a cell, and mark what it holds.

        What an error kept from being checked is right if the cell had given a right answer before; or else, it crashed.
        """
        file = f"<cell {cell.number + 1}>"
        linecache.cache[file] = len(cell.source), None, cell.source.splitlines(keepends=True), file
        left, stopped = [*cell.holds], cell.error and f"its cell is no Python: {cell.error}"
        before = {name: self.names.get(name) for exercise in left for name in self.answers[exercise]}
        for statement in cell.statements:
            asked = [] if hasattr(statement, "body") else [*self.asked(statement)]
            try:
                if asked:
                    self._mark(statement, asked, file)
                    left = [exercise for exercise in left if exercise not in dict(asked)]
                elif not _is_passed_over(statement):
                    exec(compile(ast.Module([statement], []), file, "exec", dont_inherit=True), self.names)
            except BaseException as error:
                stopped = f"its cell stopped in line {_line(error, file) or statement.lineno}: {_described(error)}"
                break
        for exercise in left:
            values = [self.names.get(name) for name in self.answers[exercise]]
            fresh = all(self.names.get(name) is not before[name] for name in self.answers[exercise])
            verdict, hint = self._verdict(exercise, values) if fresh or not stopped else (CRASHED, stopped)
            self.tell(exercise, *((verdict, hint) if verdict == RIGHT or not stopped else (CRASHED, stopped)))

    def _mark(self, statement: ast.stmt, asked: list[tuple[str, list[ast.expr]]], file: str) -> None:
        """Mark what a statement checks, in its place, and give its target what ``write`` would return."""
        for exercise, expressions in asked:
            given = ast.Expression(ast.Tuple(expressions, ast.Load()))
            ast.copy_location(given.body, statement)
            values = [*eval(compile(given, file, "eval", dont_inherit=True), self.names)]
            verdict, hint = self._verdict(exercise, values)
            self.tell(exercise, verdict, hint)
            goes_on_with = verdict  # as a text: some notebooks give a verdict a name, and print it
            if exercise in self.boxes.values():
                goes_on_with = values[0] if verdict == RIGHT else course.own(exercise)
            self.names.update(dict.fromkeys(names_given(statement), goes_on_with))

    def _verdict(self, exercise: str, values: list[Any]) -> tuple[str, str]:
        """Return the verdict on an answer, and the hint, if it is not right."""
        replaced = self.originals.put_back()
        if any((inspect.isfunction(value) or inspect.isclass(value)) and is_a_stand_in(value) for value in values):
            return NOT_WRITTEN, "this is the library's own, and nothing that was written in the notebook."
        try:
            found = check(exercise, *values)
        except BaseException as error:
            return CRASHED, f"the check stopped: {_described(error)}"
        hint = "" if found.state == "right" else found.message
        if replaced:
            more = f" and {len(replaced) - 3} more" if len(replaced) > 3 else ""
            hint += f" (The notebook had replaced {', '.join(replaced[:3])}{more}; marked with the original.)"
        return _VERDICTS[found.state], hint.strip()


class _NoShell:
    """What ``get_ipython()`` returns: commands for a shell, and magics, do nothing here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: None


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_passed_over(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and getattr(call.func, "id", "") in _PASSED_OVER


def _line(error: BaseException, file: str) -> int | None:
    """Return the last line of a cell that an error has come through."""
    line, trace = None, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _described(error: BaseException) -> str:
    """Return what an error is called and says; one that cannot say it is no obstacle."""
    said = ""
    with contextlib.suppress(BaseException):
        said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


# The fence

_REFUSED = {  # events of Python's that stand for a network, for another program, or for the way out of Python
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"),
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"),
    *("os.fork", "os.forkpty", "os.kill", "os.killpg", "ctypes.dlopen"),
}
_CHANGES = {  # events of Python's that change files, and how many of their arguments are paths
    **dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), 1),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink", "shutil.move"), 2),
    "shutil.rmtree": 1,
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def fence(writable: Iterable[str], readable: Iterable[str], hidden: Iterable[str]) -> None:
    """From here on, refuse what a notebook has no need for, with a PermissionError.

    Args:
        writable: folders in which files may be written; all others are left alone.
        readable: folders and files that may be read although they lie in a hidden one.
        hidden: folders in which no other file may be opened.
    """
    real = os.path.realpath
    may_change = tuple(real(folder) + os.sep for folder in writable)
    may_read = (*may_change, *(real(place) + os.sep for place in readable))
    mine = tuple(real(folder) + os.sep for folder in hidden)
    refused, changes, writing, nothing = frozenset(_REFUSED), dict(_CHANGES), _WRITING, real(os.devnull)

    def look(event: str, given: tuple) -> None:
        if event in refused:
            raise PermissionError(f"{event} is refused while a notebook is marked")
        if event == "open":
            paths, changing = given[:1], bool((given[2] or 0) & writing)
        elif event in changes:
            paths, changing = given[: changes[event]], True
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                place = real(os.fsdecode(path)) + os.sep
                outside = not place.startswith(may_change) and place != nothing + os.sep
                if outside and (changing or (place.startswith(mine) and not place.startswith(may_read))):
                    raise PermissionError(f"{place[:-1]} is out of bounds while a notebook is marked")

    sys.addaudithook(look)


def limit(memory: float, seconds: float) -> None:
    """Limit this process, for good: memory beyond what it has already, size of files, and time, where this can be."""
    try:
        import resource
    except ImportError:  # on Windows
        return
    wanted = {resource.RLIMIT_FSIZE: _LARGEST_FILE, resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: int(seconds) + 60}
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        wanted[resource.RLIMIT_AS] = pages * resource.getpagesize() + int(memory * 2**30)
    for kind, most in wanted.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def main() -> None:
    """Read a job, run the notebook, and end the process, with all that the notebook may have left running in it."""
    job = json.load(sys.stdin)
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)

    def tell(**said: Any) -> None:
        channel.write(json.dumps({"word": job["word"], **said}) + "\n")
        channel.flush()

    importlib.import_module("matplotlib.pyplot")
    marker = Marker(job["number"], lambda exercise, *found: tell(marked=exercise, found=found))
    limit(job["memory"], job["seconds"])
    fence(job["writable"], job["readable"], job["hidden"])
    os.dup2(nowhere, 2)
    cells = []
    for number, source in enumerate(job["cells"]):
        if number not in job["left_out"]:
            tell(cell=number)  # to read it may end the process, too
            cells.append(read(number, source))
    marker.plan(cells)
    tell(holds={cell.number: cell.holds for cell in cells})
    last = max((cell.number for cell in cells if cell.holds), default=-1)
    for cell in cells:
        if cell.number <= last:
            tell(cell=cell.number)
            marker.run(cell)
            sys.modules["matplotlib.pyplot"].close("all")
    tell(end=True)
    os._exit(0)


if __name__ == "__main__":
    main()
