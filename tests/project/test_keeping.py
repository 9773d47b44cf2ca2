"""What readers wrote is carried to the next notebook with all that it uses, or the reason why not is said."""

import ast
import linecache
import re
import threading
import types

import pytest
import torch
from torch import nn
from transformer_exercises import course, keep, keeping, kept

from transformer_lib.model import masks

FEED_FORWARD = """\
class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)  # W₁ and W₂
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.linear2(self.dropout({}))
"""
CAUSAL = "def causal_mask(length):\n    return {}\n"
TRIANGLE = "torch.ones(length, length, dtype=torch.bool).tril()"


TARGET = """\
def target_mask(ids, pad_id):
    return (ids != pad_id)[:, None, None] & causal_mask(ids.shape[1]).to(ids.device)
"""
TWICE = """\
def twice(function):
    @functools.wraps(function)
    def both(*x):
        return 2 * function(*x)
    return both
"""
OTHERS = '''\
"""My own file."""

import math

# a thought

RATE = math.tau  # mine


def helper():
    return RATE
'''
USES = """\
@wraps(a)
def f(x: T, y=b):
    z = x + c
    def g():
        return z + d + len(y)
    return [e for e in g()]
"""


class Kernel:
    """Runs cells as IPython does: in names of its own, and ``linecache`` alone knows their source."""

    def __init__(self, number=0):
        self.names, self.number, self.cells = {"__name__": "__main__", "torch": torch, "nn": nn}, number, 0

    def run(self, source):
        self.cells += 1
        file = f"/tmp/ipykernel_{self.number}/{self.cells}.py"
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        exec(compile(source, file, "exec"), self.names)

    def __getitem__(self, name):
        return self.names[name]


@pytest.fixture
def kernel():
    yield Kernel()
    for file in [file for file in linecache.cache if file.startswith("/tmp/ipykernel_")]:
        del linecache.cache[file]


def is_readers(folder, name):
    return kept(folder, name).__module__ == "written"


def test_what_a_box_uses_of_other_cells_comes_along(kernel, tmp_path, capsys):
    """Imports, also by another name, helpers and theirs, constants, decorators, and a class to inherit from."""
    kernel.run("import functools\nimport numpy as np\nimport torch.nn.functional as F\nfrom math import sqrt as root\n")
    kernel.run("# how far below the lowest\nLEAST, MOST = 0.0, 1e9  # numbers\n")
    kernel.run("def as_it_is(x):\n    return x * root(np.float64(4)) / 2\n")
    kernel.run("half = lambda x: as_it_is(x) / 2\n")
    kernel.run(TWICE)
    kernel.run("class Named(nn.Module):\n    pass\n")
    body = FEED_FORWARD.replace("nn.Module", "Named").format("twice(half)(self.linear1(x).clamp(LEAST, MOST))")
    kernel.run(body)
    kernel.run(f"def same(function):\n    return function\n\n\n# mine\n@same\n{CAUSAL.format(TRIANGLE)}")
    keep(tmp_path, kernel["PositionwiseFeedForward"], kernel["causal_mask"])
    assert capsys.readouterr().out == "written.py keeps what you wrote: PositionwiseFeedForward, causal_mask\n"
    text = (tmp_path / "written.py").read_text(encoding="utf-8")
    for part in (
        "import numpy as np\n",
        "from math import sqrt as root\n",
        "# how far below the lowest\nLEAST, MOST = 0.0, 1e9  # numbers\n",
        f"\n# mine\n@same\n{CAUSAL.format(TRIANGLE)}",  # lines and comments as they were
        body,
    ):
        assert part in text
    assert "functional" not in text  # nothing is taken along that is not used
    exec(compile(text, "written.py", "exec"), {"__name__": "another process"})
    assert is_readers(tmp_path, "PositionwiseFeedForward") and is_readers(tmp_path, "causal_mask")


def test_of_two_definitions_in_a_cell_the_one_that_counts_is_kept(kernel, tmp_path):
    kernel.run(CAUSAL.format("nonsense") + "\n\n" + CAUSAL.format(TRIANGLE))
    keep(tmp_path, kernel["causal_mask"])
    assert "nonsense" not in (tmp_path / "written.py").read_text(encoding="utf-8")
    assert is_readers(tmp_path, "causal_mask")


@pytest.mark.parametrize(
    ("before", "how", "name"),
    [
        ("session = types.SimpleNamespace(share=1.0)", "session.share * self.linear1(x).relu()", "session"),
        ("made = lambda x: x.relu()", "made(self.linear1(x))", None),
        ("lowest = session.share", "self.linear1(x).clamp(min=lowest)", None),  # a number is as good as what gave it
        ("big = torch.zeros(2000).requires_grad_()", "self.linear1(x).relu() + big[0]", "big"),
        ("", "(self.linear1(x) if self.training is None else self.linear1(x).relu())", None),
    ],
)
def test_what_cannot_come_along_is_said_by_name_and_line_and_takes_no_other_with_it(
    before, how, name, kernel, tmp_path, capsys
):
    kernel.names |= {"types": types, "session": types.SimpleNamespace(share=0.0)}
    kernel.run(before)
    kernel.run(FEED_FORWARD.format(how))
    kernel.run(CAUSAL.format(TRIANGLE))
    keep(tmp_path, kernel["PositionwiseFeedForward"], kernel["causal_mask"])
    said = capsys.readouterr().out
    assert is_readers(tmp_path, "causal_mask") and "keeps what you wrote: " in said
    assert is_readers(tmp_path, "PositionwiseFeedForward") == (name is None)
    if name:
        assert f"`{name}`" in said and how in said  # the name, and the line that it is in
        assert "PositionwiseFeedForward is not kept: " in said
        assert name not in (tmp_path / "written.py").read_text(encoding="utf-8")


def test_one_that_cannot_be_run_takes_no_other_with_it(kernel, tmp_path, capsys):
    kernel.run(CAUSAL.format(TRIANGLE))
    keep(tmp_path, kernel["causal_mask"])
    file = tmp_path / "written.py"
    file.write_text(f"{file.read_text(encoding='utf-8')}\n\nclass Head(nothing.Module):\n    pass\n", encoding="utf-8")
    assert is_readers(tmp_path, "causal_mask") and kept(tmp_path, "Head") is course.own("Head")
    assert "NameError" in capsys.readouterr().out.splitlines()[-1]


def test_a_file_that_is_no_python_is_set_aside_and_not_lost(kernel, tmp_path, capsys):
    file, mine = tmp_path / "written.py", "def causal_mask(length:\n    the work of an hour\n"
    for number in (1, 2):
        file.write_text(f"{number}{mine}", encoding="utf-8")
        kernel.run(CAUSAL.format(TRIANGLE))
        keep(tmp_path, kernel["causal_mask"])
        aside = tmp_path / f"written.unreadable{number}.py"
        assert aside.name in capsys.readouterr().out and aside.read_text(encoding="utf-8") == f"{number}{mine}"
        assert is_readers(tmp_path, "causal_mask")


def test_what_is_in_the_file_besides_stays_and_what_is_not_right_replaces_nothing(kernel, tmp_path, capsys):
    file = tmp_path / "written.py"
    file.write_text(f"{OTHERS}\n\n{CAUSAL.format(f'{TRIANGLE}  # old')}", encoding="utf-8")
    kernel.run(f"shape = (1, 2)\n{CAUSAL.format(TRIANGLE)}")
    keep(tmp_path, kernel["causal_mask"])
    text = file.read_text(encoding="utf-8")
    assert text.startswith('"""My own file') and all(part in text for part in OTHERS.split("\n\n")[1:])
    assert text.count("def causal_mask") == 1 and "# old" not in text
    kernel.run(CAUSAL.format(f"{TRIANGLE}.logical_not()"))
    keep(tmp_path, kernel["causal_mask"])
    assert "causal_mask is not kept: " in capsys.readouterr().out
    assert file.read_text(encoding="utf-8") == text


def test_a_class_comes_after_its_parent_even_if_that_is_kept_again_later(kernel, tmp_path):
    base = 'class Base(nn.Module):\n    """{}."""\n'
    kernel.run(base.format("first"))
    kernel.run(FEED_FORWARD.replace("nn.Module", "Base").format("self.linear1(x).relu()"))
    keep(tmp_path, kernel["PositionwiseFeedForward"])
    kernel.run(base.format("second"))
    kernel.run(f"class Head(Base):\n    {'course'}\n".replace("course", "pass"))
    text = keeping.merged(
        (tmp_path / "written.py").read_text(encoding="utf-8"),
        keeping.Collection("", {"Base": keeping.Block(("Base",), base.format("second").rstrip())}),
    )
    defined = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assert defined == ["Base", "PositionwiseFeedForward"] and "first" not in text


def test_of_two_notebooks_that_keep_at_once_neither_loses_the_others(kernel, tmp_path):
    """While the first checks what it is about to write, the second waits: for the file, and not for the clock."""
    other = Kernel(1)
    kernel.run(CAUSAL.format(TRIANGLE))
    other.run(FEED_FORWARD.format("self.linear1(x).relu()"))
    seconds = []

    def check(name, written):
        if not seconds:
            second = threading.Thread(target=keep, args=(tmp_path, other["PositionwiseFeedForward"]))
            seconds.append(second)
            second.start()
            second.join(timeout=0.5)  # it may have come as far as it can
            assert not (tmp_path / "written.py").exists()
        return True

    keeping.keep(tmp_path, [kernel["causal_mask"]], check)
    seconds[0].join()
    assert is_readers(tmp_path, "causal_mask") and is_readers(tmp_path, "PositionwiseFeedForward")


def test_what_another_notebook_has_kept_since_is_not_overwritten_by_what_this_one_loaded(kernel, tmp_path):
    kernel.run(CAUSAL.format(f"{TRIANGLE}  # first"))
    keep(tmp_path, kernel["causal_mask"])
    here = kept(tmp_path, "causal_mask")
    kernel.run(CAUSAL.format(f"{TRIANGLE}  # second"))
    keep(tmp_path, kernel["causal_mask"])
    kernel.names["causal_mask"] = here
    kernel.run(TARGET)
    keep(tmp_path, here, kernel["target_mask"])
    text = (tmp_path / "written.py").read_text(encoding="utf-8")
    assert "# second" in text and "# first" not in text and is_readers(tmp_path, "target_mask")


def test_what_stands_in_is_imported_where_a_box_uses_them_until_the_readers_are_there(kernel, tmp_path):
    kernel.names["causal_mask"] = course.own("causal_mask")
    kernel.run(TARGET)
    keep(tmp_path, kernel["target_mask"])
    file = tmp_path / "written.py"
    assert re.search(r"(?m)^from transformer_lib\.model\.masks import causal_mask$", file.read_text(encoding="utf-8"))
    kernel.run(CAUSAL.format(TRIANGLE))
    keep(tmp_path, kernel["causal_mask"])
    assert "import causal_mask" not in file.read_text(encoding="utf-8") and is_readers(tmp_path, "target_mask")


def test_what_stands_in_for_a_readers_own_is_not_kept(kernel, tmp_path, capsys):
    keep(tmp_path, course.own("causal_mask"), masks.padding_mask)
    assert not (tmp_path / "written.py").exists()
    kernel.run(CAUSAL.format(TRIANGLE))
    keep(tmp_path, kernel["causal_mask"], masks.padding_mask)
    assert "padding_mask" not in (tmp_path / "written.py").read_text(encoding="utf-8")


def test_names_that_a_statement_finds_around_it():
    assert sorted(keeping.names_used(USES)) == ["T", "a", "b", "c", "d", "wraps"]
    assert sorted(keeping.names_used(USES, at_once=True)) == ["T", "a", "b", "wraps"]
