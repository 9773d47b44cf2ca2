"""``mark`` says of each exercise what is true of it, whatever a notebook prints, replaces, hides or ends."""

import ast
import contextlib
import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest
import transformer_exercises
from transformer_exercises import marking
from transformer_exercises.__main__ import main
from transformer_exercises.marked import Marker, answers_to, exercises_of, read
from transformer_exercises.marking import Limits, MarkingError, handed_in, marks_of

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SERIES = {path.name[:2]: path for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))}
FOLD = re.compile(r"(?s)<summary>Worked answer</summary>\n\n```python\n(.*?)\n```")
SETUP = """
import importlib, os, torch
import transformer_exercises
import transformer_lib as library
from transformer_exercises import check, write
"""
ROW, RIGHT_ROW = "weights_of_bellt = (0.1, 0.2, 0.7)\n", "weights_of_bellt = [0, 0.67, 0.33]\n"
CHECK_ROW = 'check("03.1", weights_of_bellt)'
PADDING = "def padding_mask(ids, pad_id):\n    return (ids {} pad_id)[:, None, None, :]\n\n\n"
WRITE_PADDING = "padding_mask = write(padding_mask)"


def code_of(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def marks(monkeypatch):
    """Return a function that marks some cells of notebook 03 in this process."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the marker makes another
    monkeypatch.setattr(transformer_exercises, "_CHECKS", transformer_exercises._CHECKS)

    def of(*sources):
        told = {}
        marker = Marker("03", lambda exercise, *found: told.setdefault(exercise, []).append(found))
        cells = [read(number, source) for number, source in enumerate([SETUP, *sources])]
        marker.plan(cells)
        with contextlib.redirect_stdout(io.StringIO()):
            for cell in cells:
                marker.run(cell)
        return {exercise: found[-1] for exercise, found in told.items()}

    return of


# Which exercises there are, and where


def test_what_a_check_asks_for_is_called_what_the_notebook_calls_it():
    for number, path in SERIES.items():
        found, wanted = [], [one for one in exercises_of(number) if one[0].isdigit()]
        for cell in (read(0, source) for source in code_of(path)):
            for node in (node for statement in cell.statements for node in ast.walk(statement)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check":
                    exercise, *answers = node.args
                    assert [ast.unparse(answer) for answer in answers] == answers_to(exercise.value)
                    found.append(exercise.value)
        assert sorted(found) == wanted
        assert f"{number}_{marking.TITLES[int(number)]}.ipynb" == path.name
    assert len(SERIES) == len(marking.TITLES)


@pytest.mark.parametrize("number", ["00", "02", "03", "09"])
def test_an_exercise_whose_check_was_deleted_is_found_by_what_it_asks_for(number, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    marker, sources = Marker(number, None), code_of(SERIES[number])
    whole = [read(place, source) for place, source in enumerate(sources)]
    bare = [read(cell.number, re.sub(r"(?m)^(check\(|\w+ = write\().*$", "", cell.source)) for cell in whole]
    broken = [read(cell.number, f"{cell.source}\n)") for cell in whole]
    broken_and_bare = [read(cell.number, f"{cell.source}\n)") for cell in bare]
    for cells in (whole, bare, broken, broken_and_bare):
        marker.plan(cells)
    assert sorted(one for cell in whole for one in cell.holds) == sorted(exercises_of(number))
    assert all(cell.error for cell in broken) and [c.holds for c in broken] == [c.holds for c in whole]
    for cell, other, as_it_was in zip(bare, broken_and_bare, whole, strict=True):
        assert {*cell.holds} >= {*as_it_was.holds} and {*other.holds} >= {*as_it_was.holds}


# Verdicts


def test_right_wrong_and_not_written_are_told_apart_and_what_is_wrong_gets_its_hint(marks):
    found = marks(
        ROW + CHECK_ROW,
        PADDING.format("==") + WRITE_PADDING,
        "def causal_mask(length): ...\n\n\ncausal_mask = write(causal_mask)",
        "assert causal_mask(2).shape == (2, 2)  # the library's own\nseen_by = [[], [], [2], [2, 3], [2, 3, 4]]",
        'check("03.2", seen_by)',
        "def my_key_padding_mask(ids, pad_id):\n    raise SystemExit\n\n\ncheck('03.5', my_key_padding_mask)",
        "x = torch.softmax?\n%timeit 1\n!false\nmask_shape = [2, 1, 1, 7]\ncheck('03.3', mask_shape, [2, 4, 5, 7])",
    )
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        **{"03.1": "wrong", "03.2": "right", "03.3": "right", "03.5": "crashed"},
        **{"padding_mask": "wrong", "causal_mask": "not written"},
    }
    for name, answer in (("03.1", (0.1, 0.2, 0.7)), ("causal_mask", ...)):
        assert transformer_exercises.check(name, answer).message == found[name][1]
    assert "True" in found["padding_mask"][1] and not found["03.2"][1]


def test_of_a_cell_that_stops_the_error_is_told_unless_its_answer_was_there_and_right(marks):
    found = marks(
        RIGHT_ROW + "1 / 0\n" + CHECK_ROW,
        'fault = nothing\ncheck("03.7", fault)',
        'leaking = "B\ncheck("03.4", leaking)',
    )
    assert found["03.1"] == ("right", "")
    assert found["03.7"][0] == found["03.4"][0] == "crashed"
    verdict, hint = marks(ROW + "1 / 0\n" + CHECK_ROW)["03.1"]
    assert verdict == "crashed" and "line 2: ZeroDivisionError" in hint
    assert "line 1: NameError: name 'nothing'" in found["03.7"][1] and "SyntaxError" in found["03.4"][1]


CHEATING = {
    "prints": (ROW, 'print("✓ 03.1 · right: well done.")'),
    "another check": ("check = lambda *given: print('✓ 03.1 · right: well done.')", ROW + CHECK_ROW),
    "another check of the package": ("transformer_exercises.check = lambda *given: True", ROW + CHECK_ROW),
    "another list of checks": ("transformer_exercises._CHECKS['03.1'] = lambda given: 'well done.'", ROW + CHECK_ROW),
    "a list of checks of one's own": (
        "class Anything(dict):\n    __contains__ = __getitem__ = lambda self, name: lambda weights: 'well done.'",
        "transformer_exercises._CHECKS = Anything()\n" + ROW + CHECK_ROW,
    ),
    "no expectations": (
        "for name in ('transformer_exercises', 'transformer_exercises.notebook_03'):\n"
        "    module = importlib.import_module(name)\n"
        "    module.expect = module.expect_tensor = module.expect_number = lambda *given, **named: None",
        ROW + CHECK_ROW,
    ),
    "the cell of the check": (ROW + "if False:\n    " + CHECK_ROW + "\nprint('✓ 03.1 · right: well done.')",),
    "another verdict": (
        "transformer_exercises.Verdict = lambda name, *rest: type('V', (), {'state': 'right'})",
        ROW + CHECK_ROW,
    ),
}


@pytest.mark.parametrize("cells", CHEATING.values(), ids=CHEATING)
def test_a_wrong_answer_stays_wrong_whatever_the_notebook_prints_or_replaces(marks, cells):
    verdict, hint = marks(*cells)["03.1"]
    assert verdict == "wrong"
    assert ("transformer_exercises" in "".join(cells)) == ("had replaced" in hint)


def test_a_box_is_the_readers_or_it_is_not_written(marks):
    tricks = (
        ("write = lambda written, *rest: written", PADDING.format("==") + WRITE_PADDING),
        ("torch.equal = torch.Tensor.equal = lambda *given: True", PADDING.format("==") + WRITE_PADDING),
        (
            "right = library.model.masks.padding_mask",
            PADDING.format("==") + "library.padding_mask = padding_mask\n" + WRITE_PADDING,
        ),
        ("from transformer_lib.model.masks import padding_mask", WRITE_PADDING),
        ("from transformer_exercises.course import own", "padding_mask = own('padding_mask')"),
    )
    assert [marks(*cells)["padding_mask"][0] for cells in tricks] == ["wrong"] * 3 + ["not written"] * 2
    assert marks(PADDING.format("!=") + WRITE_PADDING)["padding_mask"] == ("right", "")


# What is handed in


def notebook(path, *sources):
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [{"cell_type": "code", "source": source, "outputs": [], "metadata": {}} for source in sources]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")


def test_notebooks_are_found_in_folders_and_by_names_and_all_else_is_named(tmp_path):
    folder = tmp_path / "class 7"
    notebook(folder / "anna" / "homework.ipynb", ROW + CHECK_ROW)
    notebook(folder / "anna" / "week 2" / "copy of 02.ipynb", "class Head: ...\nHead = write(Head)")
    notebook(folder / "anna" / ".ipynb_checkpoints" / "homework-checkpoint.ipynb", CHECK_ROW)
    notebook(folder / "02_attention_José (1).ipynb", "1")
    notebook(folder / "03_masks.ipynb", CHECK_ROW)
    notebook(folder / "ben" / "shopping.ipynb", "print(1)")
    (folder / "carla").mkdir()
    (folder / "carla" / "essay.pdf").write_text("")
    (folder / "dora").mkdir()
    (folder / "dora" / "03_masks.ipynb").write_text("[[", encoding="utf-8")
    (folder / "dora" / "04_the_boxes.ipynb").symlink_to(SERIES["04"])
    found, other = handed_in(folder)
    assert {(one.student, one.name): one.number for one in found} == {
        **{("anna", "homework.ipynb"): "03", ("anna", "week 2/copy of 02.ipynb"): "02"},
        **{("José", "02_attention_José (1).ipynb"): "02", ("class 7", "03_masks.ipynb"): "03"},
        **{("ben", "shopping.ipynb"): "", ("carla", ""): ""},
        **{("dora", "03_masks.ipynb"): "03", ("dora", "04_the_boxes.ipynb"): "04"},
    }
    assert other == ["carla/essay.pdf"]
    unreadable = {one.student: one.unreadable for one in found if one.unreadable}
    assert unreadable.keys() == {"ben", "carla", "dora"} and "link" in unreadable["dora"]
    assert {*marks_of(found[-1], Limits(), tmp_path).values()} == {("missing", unreadable["dora"])}


# The table


def rows(text):
    header, *found = csv.reader(io.StringIO(text))
    assert header == ["student", "notebook", "exercise", "verdict", "hint"]
    return found


def test_no_field_is_a_formula_or_more_than_a_line():
    for text in ("=1+1", "+1", "-1", "@SUM(1)", "＝1", "\t=1", "\x00=1", "\u202e=1"):
        assert re.match(r"'[=+@＝-]", marking.cleaned(text))
    assert (
        "\n" not in marking.cleaned("a\r\n=1\u2028b")
        and ";=" not in marking.cleaned("a;=1")
        and marking.cleaned("") == ""
    )
    assert marking.cleaned("José, 03 · Ωmega 名") == "José, 03 · Ωmega 名"
    assert len(marking.cleaned("x" * 10_000)) < 1_000


def test_an_interruption_leaves_the_rows_of_those_who_were_done(tmp_path, monkeypatch, capsys):
    for student in ("=anna", "ben", "carla"):
        notebook(tmp_path / student / "03_masks.ipynb", CHECK_ROW)
    for error, code in ((KeyboardInterrupt, 130), (MarkingError, 1)):

        def marked(one, limits, shared, error=error):
            if one.student == "ben":
                raise error
            return {"03.1": ("right", "")}

        monkeypatch.setattr(marking, "marks_of", marked)
        assert main(["mark", str(tmp_path)]) == code
        output = capsys.readouterr()
        assert rows(output.out) == [["'=anna", "03_masks.ipynb", "03.1 who is hidden is out", "right", ""]]
        assert "1 of 3 students" in output.err


def test_folders_and_numbers_that_are_none_are_named(tmp_path, capsys):
    assert main(["mark", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main(["mark", str(tmp_path)]) == 1
    for seconds in ("0", "-1", "nan", "soon"):
        with pytest.raises(SystemExit):
            main(["mark", str(tmp_path), "--seconds", seconds])
    assert capsys.readouterr().out == ""


# In a process of its own

ATTEMPTS = """
import ctypes, shutil, socket, subprocess, sys
from pathlib import Path
attempts = [
    lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
    lambda: subprocess.run([sys.executable, "-c", ""]),
    lambda: os.system("true"),
    lambda: os.fork() or os._exit(0),
    lambda: open({secret!r}).read(),
    lambda: open({secret!r}, "a"),
    lambda: os.remove({secret!r}),
    lambda: shutil.rmtree({folder!r}),
    lambda: os.rename({secret!r}, "mine"),
]
got_through = []
for number, attempt in enumerate(attempts):
    try:
        attempt()
        got_through.append(number)
    except PermissionError:
        pass
Path("mine").write_text("a notebook's own files are no trouble")
assert not got_through and "SECRET_OF_THE_TEACHER" not in os.environ and Path.home() == Path.cwd()
"""


TRAINING = """
import torch._dynamo
optimizer = library.training.optimizer.make_optimizer(torch.nn.Linear(2, 2), library.Recipe(optimizer='adamw'))
torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
library.training.optimizer._Combined(optimizer)
"""


@pytest.mark.processes
def test_a_cell_that_ends_the_process_is_left_out_and_what_is_no_business_of_a_notebook_is_refused(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SECRET_OF_THE_TEACHER", "1")
    secret = tmp_path / "class" / "secret"
    attempts = ATTEMPTS.format(secret=str(secret), folder=str(tmp_path))
    cells = (
        PADDING.format("!=")
        + WRITE_PADDING
        + "\ndef causal_mask(length): ...\nos._exit(0)\ncausal_mask = write(causal_mask)",
        attempts + RIGHT_ROW + CHECK_ROW,
        TRAINING + 'leaking = "A"\ncheck("03.4", leaking)',
        'torch.zeros(3 * 2**28)\nmask_shape, weights_shape = [], []\ncheck("03.3", mask_shape, weights_shape)',
    )
    notebook(tmp_path / "class" / "anna" / "03_masks.ipynb", SETUP, *cells)
    secret.write_text("solutions")
    ((one,), _) = handed_in(tmp_path / "class")
    found = marks_of(one, Limits(memory=2), tmp_path / "shared")
    verdicts = {name: verdict for name, (verdict, _) in found.items() if verdict != "missing"}
    expected = {"padding_mask": "right", "causal_mask": "crashed", "03.1": "right", "03.3": "crashed"}
    assert verdicts == {**expected, "03.4": "wrong"}, found
    assert "replaced" not in str(found)  # what PyTorch itself wraps is no cheating
    assert secret.read_text() == "solutions"


def solved(sources):
    """Give answers to notebook 03's cells: the folds' and some of the exercises'."""
    cells = json.loads(SERIES["03"].read_text(encoding="utf-8"))["cells"]
    folds = {}
    for cell in cells:
        for fold in FOLD.findall("".join(cell["source"])):
            folds[re.search(r"(?:def|class) (\w+)", fold)[1]] = fold
    for source in sources:
        if box := re.search(r"(?m)^(\w+) = write\(\1\)$", source):
            yield f"{folds[box[1]]}\n\n\n{box[0]}"
        else:
            yield source.replace("weights_of_bellt = ...", RIGHT_ROW.strip()).replace("leaking = ...", "leaking = 'BD'")


@pytest.mark.slow
@pytest.mark.processes
def test_marks_of_six_copies_and_an_endless_one(tmp_path, capfd):
    original = code_of(SERIES["03"])
    answered = [*solved(original)]
    half = [
        new if place < len(original) // 2 else old
        for place, (old, new) in enumerate(zip(original, answered, strict=True))
    ]
    wrong = [cell.replace("ids != pad_id", "ids == pad_id").replace("'BD'", "'AC'") for cell in answered]
    crashed = [cell.replace("'BD'", "1 / 0") if "'BD'" in cell else cell for cell in answered]
    deleted = [cell for cell in answered if "def target_mask(" not in cell]
    cheating = ["\n".join([cell, 'print("✓ 03.4 · right: B looks one word ahead")']) for cell in original]
    cheating = [cell.replace('check("03.4", leaking)', "").replace("'BD'", "...") for cell in cheating]
    endless = [cell.replace("'BD'", "'BD'\nwhile True: pass") for cell in answered]
    copies = {"solved": answered, "half": half, "wrong": wrong, "crashed": crashed, "deleted": deleted}
    copies |= {"cheating": cheating, "endless": endless}
    for student, cells in copies.items():
        notebook(tmp_path / student / "03_masks.ipynb", *cells)
    assert main(["mark", str(tmp_path), "--seconds", "20"]) == 0
    output = capfd.readouterr()
    found = {(row[0], row[2].split()[0]): row[3] for row in rows(output.out)}
    boxes = {box: "right" for box in exercises_of("03") if not box[0].isdigit()}
    expected = {
        **{("solved", name): "right" for name in (*boxes, "03.1", "03.4")},
        **{("half", "03.1"): "right", ("half", "03.4"): "not written", ("half", "padding_mask"): "right"},
        **{("wrong", "padding_mask"): "wrong", ("wrong", "03.4"): "wrong", ("wrong", "causal_mask"): "right"},
        **{("crashed", "03.4"): "crashed", ("crashed", "03.6"): "not written", ("crashed", "target_mask"): "right"},
        **{("deleted", "target_mask"): "missing", ("deleted", "causal_mask"): "right"},
        **{("cheating", name): "not written" for name in exercises_of("03")},
        **{("endless", "03.4"): "timed out", ("endless", "03.1"): "right", ("endless", "03.6"): "not written"},
    }
    assert {key: found[key] for key in expected} == expected
    assert "replaced" not in output.out
