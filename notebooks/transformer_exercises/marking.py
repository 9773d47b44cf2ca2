"""``python -m transformer_exercises mark FOLDER > marks.csv``: what a class has right, and which hints it got.

Students' code runs on your machine, as you. Each notebook runs in a process of its own, without its stored outputs, and
verdicts come from the checks alone: this program calls them itself, after it has put back what the notebook may have
replaced, and gets their verdicts by lines that carry a random word. So nothing is won by printing "right", by another
``check`` or ``write``, by editing the cell that checks, or by editing what is stored.

What is limited: the time of a cell and of a notebook; memory, where Linux counts it; the size of a file. The folder to
work in and the home are empty ones, variables of the environment and GPUs are out of sight, and Python's own ways to
open a connection, to start a program, to change files elsewhere, and to read files of your home, of the marked folder
and of this course's ``runs`` and ``solutions`` are refused. Where Linux allows it, the process has no network at all.

What is not: all of this is a fence and no wall. Code that means harm, in C, say, gets past it, and then it may do
whatever you may; code that takes the marking process apart from inside can mark itself. For strangers' notebooks, use a
container or a machine that holds nothing else. And no program sees whether an answer was copied: the installed library
holds right ones.
"""

import argparse
import contextlib
import csv
import functools
import json
import os
import queue
import re
import secrets
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformer_exercises
import transformer_lib
from transformer_exercises import _CHECKS, course
from transformer_exercises.marked import CRASHED, MISSING, NOT_WRITTEN, RIGHT, TIMED_OUT, WRONG, exercises_of
from transformer_lib.files import IS_INSTALLED, one_line, shipped

COLUMNS = ("student", "notebook", "exercise", "verdict", "hint")
_BETTER = (MISSING, NOT_WRITTEN, TIMED_OUT, CRASHED, WRONG, RIGHT)  # of several cells that answer, the best counts
_LARGEST_NOTEBOOK = 100_000_000
_LONGEST_HINT = 500
_FORMULA = "=+@＝＋－＠-"  # what a spreadsheet may take for the beginning of one
_MOST_STARTS = 4  # of a process for one notebook: each starts without the cell that ended the one before
_TRAINED = {"13.5"}  # asks for a model that is good, which a tiny budget does not give
_SECONDS_TO_START = 120.0  # PyTorch alone takes some, more on a cold disk
_ENDED = {
    TIMED_OUT: "its cell took too long.",
    CRASHED: "its cell ended the process: by itself, or for want of memory.",
}
TITLES = (  # of the notebooks' files, after their numbers
    *("quick_tour", "from_sentences_to_batches", "attention", "masks", "the_boxes", "the_transformer", "training"),
    *("translating", "looking_inside", "bleu", "from_here_to_gpt", "a_block_since_2017", "subwords"),
    *("what_is_a_change_worth", "fast", "why_attention", "pytorchs_transformer", "the_clinic"),
)
_PASSED_ON = {  # variables of the environment: what a Python needs to start, and nobody's keys
    *("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS"),
}


@dataclass
class Handed:
    """A notebook that a student has handed in.

    Attributes:
        folder: with all that was handed in.
        student: the name of a subfolder, or what is left of a file's name.
        path: of the file.
        name: the same, for people: below the student's folder.
        number: of the notebook of the series that it is a copy of; empty if it is none.
        cells: the sources of its cells with code.
        unreadable: why there are none.
    """

    folder: Path
    student: str
    path: Path
    name: str
    number: str = ""
    cells: list[str] = field(default_factory=list)
    unreadable: str = ""


_DESCRIPTION = """\
Run the notebooks of a class, and write a table to the standard output: student, notebook, exercise, verdict, hint.

Verdicts: right, wrong, not written (dots, or the library's own), crashed, timed out, missing (no cell answers it).
FOLDER has one subfolder for each student. A notebook beside them is the student's whom its name names besides the
notebook, as in 02_attention_anna.ipynb. Stored outputs count for nothing: all cells run again, with the small budgets
and the sample corpus of a fast development run. If several cells answer an exercise, the best counts.
"""
_EPILOG = """\
STUDENTS' CODE RUNS ON YOUR MACHINE, AS YOU, in a process of its own for each notebook. Limited: time; memory and the
size of files, on Linux; the folder and the home, which are empty ones; variables of the environment, of which most are
dropped; Python's own ways to open a connection, to start a program, to change files elsewhere, to read your home.
Not limited: code that means harm gets past this fence, through C for one, and may then do whatever you may; code that
takes the marking process apart from inside can mark itself. For strangers' notebooks, use a container, or a machine
that holds nothing else. No program sees whether an answer was copied: the library itself holds right ones.

Exit codes: 0, all is marked; 1, something was no notebook of the series, or marking did not work; 2, wrong arguments;
130, interrupted: the table has those who were done.
"""


# What was handed in


def handed_in(folder: Path) -> tuple[list[Handed], list[str]]:
    """Return the notebooks in a folder, by student, and the names of what else is there.

    Each subfolder is a student's, with notebooks anywhere in it. A notebook that lies in the folder itself belongs to
    whom its name names besides the notebook, as in ``02_attention_anna.ipynb``; or else, to whom the folder is called
    after. A student without any notebook has an entry that says so.
    """
    found, other = [], []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            student = _student_of(entry.stem) or folder.resolve().name
            if entry.suffix == ".ipynb":
                found.append(_read(folder, student, entry, entry.name))
            else:
                other.append(entry.name)
        elif entry.is_dir():
            files = sorted(path for path in entry.rglob("*") if path.is_file())
            files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(entry).parts)]
            notebooks = [path for path in files if path.suffix == ".ipynb"]
            found += [_read(folder, entry.name, path, path.relative_to(entry).as_posix()) for path in notebooks]
            other += [path.relative_to(folder).as_posix() for path in files if path.suffix != ".ipynb"]
            if not notebooks:
                found.append(Handed(folder, entry.name, entry, "", unreadable="there is no notebook in this folder."))
    return sorted(found, key=lambda one: (one.student, one.name)), other


def _student_of(stem: str) -> str:
    """Return what a file's name says besides the number and the title of a notebook of the series."""
    return re.sub(rf"(?<!\d)\d\d[ _-]+({'|'.join(TITLES)})", "", stem, flags=re.IGNORECASE).strip(" _-.()0123456789")


def _read(folder: Path, student: str, path: Path, name: str) -> Handed:
    """Read a notebook as far as marking needs it. Which it is, its exercises say, or else its name."""
    one = Handed(folder, student, path, name)
    try:
        if path.is_symlink():
            raise ValueError("it is a link to another file")
        if path.stat().st_size > _LARGEST_NOTEBOOK:
            raise ValueError(f"it has more than {_LARGEST_NOTEBOOK // 10**6} MB")
        cells = json.loads(path.read_text(encoding="utf-8-sig"))["cells"]
        one.cells = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        one.unreadable = f"this file cannot be read as a notebook: {type(error).__name__}: {error}"
    one.number = _number_of(one)
    if not one.number and not one.unreadable:
        one.unreadable = "this notebook has no exercise of the series."
    return one


def _number_of(one: Handed) -> str:
    text = "\n".join(one.cells)
    asked = re.findall(r"""\bcheck\(\s*["'](\d\d)\.\d["']""", text)
    for box, which in re.findall(r"""= write\((\w+)(?:, ["']([\w ]+)["'])?\)""", text):
        asked.append(course.notebook_of(", ".join(filter(None, [box, which]))))
    counted = Counter(number for number in asked if number.isdigit() and int(number) < len(TITLES))
    if counted:
        return counted.most_common(1)[0][0]
    named = re.search(r"(?<!\d)(\d\d)[ _-]", one.path.name)
    return named[1] if named and int(named[1]) < len(TITLES) else ""


# One notebook


@dataclass
class Limits:
    """What a notebook may take: seconds for a cell with its checks, ten times that in all, and GiB of memory."""

    seconds: float = 60
    memory: float = 4


@dataclass
class Outcome:
    """What a process has said, and how it ended.

    Attributes:
        marks: of each exercise that it marked, a verdict and a hint.
        holds: of each cell, the exercises that it answers.
        cell: where it was at last.
        ended: empty if it came to the end of the notebook; or else ``"crashed"`` or ``"timed out"``.
    """

    marks: dict[str, tuple[str, str]] = field(default_factory=dict)
    holds: dict[int, list[str]] = field(default_factory=dict)
    cell: int = -1
    ended: str = ""


class MarkingError(RuntimeError):
    """The process that should mark a notebook has not even begun."""


def marks_of(one: Handed, limits: Limits, shared: Path) -> dict[str, tuple[str, str]]:
    """Return the verdict and the hint of each exercise that a notebook of the series has.

    Args:
        one: what was handed in.
        limits: of its process.
        shared: a folder for what matplotlib writes down the first time it is used.

    Raises:
        MarkingError: the process did not start.
    """
    marks = dict.fromkeys(exercises_of(one.number), (MISSING, one.unreadable or "no cell answers it."))

    def note(exercise: str, verdict: str, hint: str) -> None:
        if _BETTER.index(verdict) > _BETTER.index(marks[exercise][0]):
            marks[exercise] = verdict, hint

    left_out: list[int] = []
    answered: set[str] = set()  # by some cell or other
    until, outcome = time.monotonic() + 10 * limits.seconds + _SECONDS_TO_START, Outcome()
    while not one.unreadable and len(left_out) < _MOST_STARTS and time.monotonic() < until:
        outcome = _run(one, left_out, limits, shared, until)
        answered.update(*outcome.holds.values())
        for exercise, (verdict, hint) in outcome.marks.items():
            if exercise in _TRAINED and verdict == WRONG:
                hint = f"{hint} (Marking trains with a tiny budget: look at this one yourself.)"
            note(exercise, verdict, hint)
        if not outcome.ended:
            return marks
        for exercise in set(outcome.holds.get(outcome.cell, [])) - outcome.marks.keys():
            note(exercise, outcome.ended, _ENDED[outcome.ended])
        left_out.append(outcome.cell)
        if answered and all(marks[exercise][0] != MISSING for exercise in answered):
            return marks
    for exercise in answered or marks if outcome.ended else ():
        if marks[exercise][0] == MISSING:
            marks[exercise] = outcome.ended, "it was not reached: cells before it took too long, or ended the process."
    return marks


def _run(one: Handed, left_out: list[int], limits: Limits, shared: Path, until: float) -> Outcome:
    """Run a notebook in a process and an empty folder of its own, without some of its cells."""
    with tempfile.TemporaryDirectory(prefix="marked-", ignore_cleanup_errors=True) as folder:
        word = secrets.token_hex(16)
        job = {"word": word, "number": one.number, "cells": one.cells, "left_out": left_out, "memory": limits.memory}
        job |= {"seconds": 10 * limits.seconds, "writable": [folder, str(shared)]}
        job |= {"readable": _readable(), "hidden": _hidden(one.folder)}
        process = subprocess.Popen(
            [*_without_network(), sys.executable, "-W", "ignore", "-m", "transformer_exercises.marked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=_environment(folder, shared),
            start_new_session=True,
        )
        lines: queue.Queue[bytes | None] = queue.Queue()
        reader = threading.Thread(target=lambda: [*map(lines.put, process.stdout), lines.put(None)], daemon=True)
        try:
            reader.start()
            with contextlib.suppress(OSError), process.stdin:
                process.stdin.write(json.dumps(job).encode())
            return _listen(lines, word, limits.seconds, until)
        finally:
            with contextlib.suppress(OSError):  # it has ended
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()
            reader.join(timeout=10)
            if not reader.is_alive():
                process.stdout.close()


def _listen(lines: queue.Queue, word: str, seconds: float, until: float) -> Outcome:
    """Gather what a process says until it ends, or is silent for too long."""
    outcome, deadline = Outcome(), time.monotonic() + _SECONDS_TO_START
    while True:
        try:
            line = lines.get(timeout=max(0.0, min(deadline, until) - time.monotonic()))
        except queue.Empty:
            outcome.ended = TIMED_OUT
            break
        if line is None:
            outcome.ended = CRASHED
            break
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if not isinstance(said, dict) or said.get("word") != word:
                continue
            if "end" in said:
                break
            if "holds" in said:
                outcome.holds = {int(cell): held for cell, held in said["holds"].items()}
            elif "cell" in said:
                outcome.cell, deadline = said["cell"], time.monotonic() + seconds
            elif said["marked"] not in outcome.marks or said["found"][0] == RIGHT:
                outcome.marks[said["marked"]] = tuple(said["found"])
    if outcome.cell < 0 and outcome.ended:
        raise MarkingError(f"the process that should mark a notebook has not begun: it {outcome.ended}")
    return outcome


@functools.cache
def _without_network() -> tuple[str, ...]:
    """Return the words before a command by which it has no network, where the system lets everybody have that."""
    words = "unshare", "--map-root-user", "--net"
    try:
        subprocess.run([*words, sys.executable, "-I", "-c", ""], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ()
    return words


def _environment(folder: str, shared: Path) -> dict[str, str]:
    packages = (Path(package.__file__).parents[1] for package in (transformer_exercises, transformer_lib))
    return {
        **{name: value for name, value in os.environ.items() if name.upper() in _PASSED_ON},
        **dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "IPYTHONDIR"), folder),
        "MPLCONFIGDIR": str(shared),
        "MPLBACKEND": "Agg",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, packages))),
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRANSFORMER_LIB_FAST_DEV_RUN": "1",
    }


def _readable() -> list[str]:
    """Return where Python, its packages and this course lie."""
    own = ["data/sample", "data/texts", "assets", "benchmarks/results", "the_transformer.py"]
    places = [*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, site.getusersitepackages()]
    places += [Path(package.__file__).parent for package in (transformer_exercises, transformer_lib)]
    return [str(place) for place in (*places, *map(shipped, own)) if Path(place).resolve().parent != Path(place)]


def _hidden(handed_in: Path) -> list[str]:
    """Return where nothing may be read else: home, what was handed in, and where runs and solutions lie."""
    places = [Path.home(), handed_in, Path.cwd() / "runs"]
    places += [Path(os.environ["TRANSFORMER_LIB_RUNS"]).expanduser()] if os.environ.get("TRANSFORMER_LIB_RUNS") else []
    places += [] if IS_INSTALLED else [Path(transformer_lib.__file__).parents[1]]
    return [str(place) for place in places if place.resolve() != Path(place.anchor)]


# The table


def cleaned(text: str, most: int = _LONGEST_HINT) -> str:
    """Return a text as one line without control characters, which no spreadsheet takes for a formula."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    line = re.sub(rf";(?=\s*[{_FORMULA}])", ",", line)  # where a semicolon ends a field, it would begin the next
    line = line if len(line) <= most else f"{line[: most - 1]}…"
    return f"'{line}" if re.match(f"[{_FORMULA}]", line) else line


def called(exercise: str) -> str:
    """Return an exercise's number and name, or the name of what is written."""
    return f"{exercise} {_CHECKS[exercise].__name__.replace('_', ' ')}" if exercise[0].isdigit() else exercise


def rows_of(one: Handed, limits: Limits, shared: Path) -> Iterator[tuple[str, ...]]:
    """Yield a notebook's rows of the table; of what is no notebook of the series, there is one."""
    marks = marks_of(one, limits, shared) if one.number else {"": (MISSING, one.unreadable)}
    for exercise, (verdict, hint) in marks.items():
        yield one.student, one.name, called(exercise) if exercise else "", verdict, hint


def add_mark(commands: Any) -> None:
    """Add the command ``mark``."""
    parser = commands.add_parser(
        "mark",
        help="mark the notebooks of a class: a table of what is right, and of the hints",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="one subfolder for each student, with notebooks in it")
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=60.0,
        help="for one cell with its checks; a notebook gets ten times that (60)",
    )
    parser.add_argument(
        "--memory", type=_positive, default=4.0, help="GiB for a notebook, besides Python and PyTorch; on Linux (4)"
    )
    parser.set_defaults(run=mark)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"it is {text}, expected a number above 0")
    return number


def mark(options: argparse.Namespace) -> int:
    """Mark a folder, write the table to the standard output, and return the exit code."""
    if not options.folder.is_dir():
        _say(f"mark: folder is {options.folder}, expected a folder with a subfolder for each student")
        return 2
    handed, other = handed_in(options.folder)
    students = {one.student: [also for also in handed if also.student == one.student] for one in handed}
    if not any(one.number for one in handed):
        _say(f"mark: there is no notebook of the series in {options.folder}, nor in its subfolders")
        return 1
    _say(f"found: {_count(len(students), 'student')}, {_count(sum(bool(one.cells) for one in handed), 'notebook')}")
    if other:
        _say(f"not looked at: {_count(len(other), 'other file')} ({', '.join(other[:3])}{', …' if other[3:] else ''})")
    network = "it has no network" if _without_network() else "a network is refused, but only in Python's own ways"
    _say(f"Their code runs on this machine, as you; {network}. What is limited, and what not: mark --help")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", newline="")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    limits, done = Limits(options.seconds, options.memory), 0
    try:
        with tempfile.TemporaryDirectory(prefix="marked-", ignore_cleanup_errors=True) as shared:
            for notebooks in students.values():
                rows = [row for one in notebooks for row in _with_progress(one, limits, Path(shared))]
                table.writerows([*map(cleaned, row)] for row in rows)
                sys.stdout.flush()
                done += 1
    except KeyboardInterrupt:
        _say(f"stopped: the table has {done} of {_count(len(students), 'student')}")
        return 130
    except BrokenPipeError:  # whoever reads the table has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MarkingError as error:
        _say(f"mark: {error}; the table has {done} of {_count(len(students), 'student')}")
        return 1
    return int(any(one.unreadable for one in handed))


def _with_progress(one: Handed, limits: Limits, shared: Path) -> list[tuple[str, ...]]:
    start = time.monotonic()
    rows = [*rows_of(one, limits, shared)]
    right = sum(row[3] == RIGHT for row in rows)
    said = one.unreadable or f"{right} of {len(rows)} right ({time.monotonic() - start:.0f} s)"
    _say(f"{one.student}: {one.name or 'no notebook'}: {said}")
    return rows


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _say(line: str) -> None:
    print(one_line(line), file=sys.stderr, flush=True)
