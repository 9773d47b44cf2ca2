"""Every exercise takes right answers, and sends wrong ones back with a hint that helps; so does every box to write.

The answers are in ``exercise_answers``, a file for each notebook: ``RIGHT[name]`` is a list of tuples of answers,
``WRONG[name]`` one of (answer or tuple of answers, words of the hint).
"""

import ast
import importlib
import importlib.util
import inspect
import itertools
import json
import linecache
import math
import os
import pkgutil
import random
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformer_exercises
from exercise_answers import passed_once, worked
from torch import nn
from transformer_exercises import Verdict, check, course, guess, keep, kept, write

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def answers(name):
    number = course.notebook_of(name) or name[:2]  # a box's name, or an exercise's
    return importlib.import_module(f"exercise_answers.notebook_{number}")


def names():
    modules = [module.name for module in pkgutil.iter_modules(transformer_exercises.__path__)]
    for module in modules:
        importlib.import_module(f"transformer_exercises.{module}")
    return sorted(transformer_exercises._CHECKS)


NAMES = names()
BOXES = [name for name in NAMES if not name[0].isdigit()]
# The checks of these build models, train or translate, and take two thirds of the time of all. One right and one wrong
# answer to each are checked here (to a box, where what is written goes on); all of them, every night.
LONG = {"MyTransformer", "Transformer", "DecoderLayer", "EncoderLayer", "Decoder", "my_training", "greedy"}
LONG |= {"beam_one", "beam", "my_beam", "greedy_batch", "01.5", "06.4", "07.4", "09.7"}
QUICK = [name for name in NAMES if name not in LONG]


def hints(name):
    """Sentences in the calls, dictionaries and tuples of a check, but not in the functions that it calls."""
    nodes = ast.walk(ast.parse(inspect.getsource(transformer_exercises._CHECKS[name])))
    inside = itertools.chain.from_iterable(ast.walk(n) for n in nodes if isinstance(n, ast.Call | ast.Dict | ast.Tuple))
    texts = {node.value for node in inside if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if re.search(r"^[^A-Z].*\w[.?]$", text)}


@pytest.mark.parametrize("names", [QUICK, pytest.param(NAMES, marks=pytest.mark.slow)], ids=["quick", "all"])
def test_right_answers_are_right(names):
    for name in names:
        for answer in answers(name).RIGHT[name]:
            verdict = check(name, *answer)
            assert verdict and verdict.state == "right", verdict


@pytest.mark.parametrize("names", [QUICK, pytest.param(NAMES, marks=pytest.mark.slow)], ids=["quick", "all"])
def test_wrong_answers_get_a_hint_that_helps(names):
    for name in names:
        once = [(answer, hint) for _, answer, hint in passed_once.PASSED.get(name, ())]
        wrong_answers, messages = [*answers(name).WRONG[name], *once], ""
        assert len(wrong_answers) >= 2, name
        for answer, hint in wrong_answers:
            verdict = check(name, *(answer if isinstance(answer, tuple) else (answer,)))
            assert not verdict and verdict.state == "not yet", verdict
            assert hint in verdict.message, verdict
            assert re.search(r"[.?…][)'\"`]*$", verdict.message), f"a hint is a sentence: {verdict}"
            messages += verdict.message
        assert not {hint for hint in hints(name) if hint not in messages}, f"{name}: no wrong answer gets these hints"


def test_a_right_and_a_wrong_answer_to_what_takes_long_are_told_apart():
    for name in sorted(LONG - {*BOXES}):
        (right, *_), ((wrong, hint), *_) = answers(name).RIGHT[name], answers(name).WRONG[name]
        assert check(name, *right).state == "right", name
        verdict = check(name, *(wrong if isinstance(wrong, tuple) else (wrong,)))
        assert verdict.state == "not yet" and hint in verdict.message, verdict


def with_dots(kind):
    """Return a class of modules as it is before somebody has written in it, or has written in half of it."""

    class SomePartIsDots(nn.Module):
        def __init__(self, *sizes):
            super().__init__()
            self.part = ...

        def forward(self, *inputs): ...

    class ForwardIsDots(kind):
        def forward(self, *inputs): ...

    return SomePartIsDots, ForwardIsDots, type("AllIsDots", kind.__bases__, {})


def test_dots_are_no_answer_yet():
    for name in NAMES:
        right = answers(name).RIGHT[name][0]
        dots = [lambda *arguments: None, lambda *arguments: ..., lambda *arguments: ... + 1]
        if inspect.isclass(right[0]) and name in BOXES:
            dots = with_dots(right[0])
        for nothing in (None, ..., *(dots if callable(right[0]) else ())):
            assert check(name, *[nothing] * len(right)).state == "not solved yet", (name, nothing)


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


# Boxes that readers write, and go on with


@contextmanager
def called(written, name):
    """Give a function or a class the name that the notebook gives it."""
    before, written.__name__ = written.__name__, name
    try:
        yield written
    finally:
        written.__name__ = before


def test_what_is_right_goes_on_and_the_courses_own_in_place_of_all_else(capsys):
    for name in BOXES:
        (right,), (wrong, _) = answers(name).RIGHT[name][-1], answers(name).WRONG[name][0]
        with called(right, name):
            assert write(right) is right
        assert capsys.readouterr().out.startswith(f"✓ {name} · right: ")
        own, worked_out = course.own(name), worked.answer(name)
        with called(with_dots(worked_out)[-1] if inspect.isclass(own) else lambda *arguments: None, name) as dots:
            assert write(dots) is own
        whose = "course" if own.__module__.startswith("transformer_exercises") and name in course.STEPS else "library"
        assert re.fullmatch(rf"{name} · not solved yet: .* The {whose}'s own stands in.\n", capsys.readouterr().out)
        with called(wrong, name):
            assert write(wrong) is own
        assert capsys.readouterr().out.startswith(f"✗ {name} · not yet: ")
    with pytest.raises(ValueError, match="written is called 'careless', expected"):
        write(careless)


IMPORTS = "import torch.nn.functional as F\nfrom torch import nn\n"
FEED_FORWARD = """
class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.p = dropout

    def forward(self, x):
        return self.linear2(F.dropout(F.relu(self.linear1(x)), self.p, self.training))
"""
LAYER = inspect.getsource(worked.answer("EncoderLayer"))


def run_cell(source, file):
    """Run the source of a cell, and return its names. As in IPython, only ``linecache`` knows the lines."""
    linecache.cache[str(file)] = len(source), None, source.splitlines(keepends=True), str(file)
    standing_in = {name: course.own(name) for number in ("02", "03", "04", "05") for name in course.WRITTEN[number]}
    names = {**standing_in, "__name__": "__main__", "torch": torch, "nn": nn, "F": F}
    exec(compile(source, str(file), "exec"), names)
    return names


def test_a_missing_return_is_told_from_dots(tmp_path):
    function = "def causal_mask(length):\n    mask = torch.ones(length, length)\n    mask[..., 0] = 1\n    {}\n"
    method = "class MultiHeadAttention(MultiHeadAttention):\n    def forward(self, *given):\n        {}\n"
    for number, (name, source) in enumerate((("causal_mask", function), ("MultiHeadAttention", method))):
        for rest, named in (("pass", True), ("...", False), ("y = ...", False), ("return ...", False)):
            written = run_cell(source.format(rest), tmp_path / f"{number}{rest}")[name]
            verdict = check(name, written)
            assert verdict.state == "not solved yet"
            assert ("`return`" in verdict.message) == named, (name, rest, verdict)


def test_what_is_kept_is_found_in_another_process(tmp_path, capsys):
    first, second = (run_cell(source, tmp_path / str(len(source))) for source in (FEED_FORWARD, LAYER))
    keep(tmp_path, first["PositionwiseFeedForward"])
    keep(tmp_path, second["EncoderLayer"], course.own("Decoder"))  # of a later notebook: the first stays
    assert capsys.readouterr().out.endswith("written.py keeps what you wrote: EncoderLayer\n")
    program = f"""
from transformer_exercises import keep, kept
for _ in range(2):
    boxes = [kept({str(tmp_path)!r}, name) for name in ("PositionwiseFeedForward", "EncoderLayer", "Decoder")]
    keep({str(tmp_path)!r}, *boxes)  # what was found can be kept again
print(*(box.__module__ for box in boxes), type(boxes[1](8, 2, 16).feed_forward).__module__)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert "PositionwiseFeedForward: yours\nEncoderLayer: yours\nDecoder: the library's own" in run.stdout, run
    assert run.stdout.splitlines()[-1] == "written written transformer_exercises.course.notebook_04 written"


def test_of_a_class_that_two_notebooks_ask_for_each_takes_what_it_has_explained_and_the_whole_is_kept(tmp_path, capsys):
    keys, name = ("MultiHeadAttention, without mask", "MultiHeadAttention"), "MultiHeadAttention"
    early, whole = (run_cell(inspect.getsource(worked.answer(key)), tmp_path / key)[name] for key in keys)
    assert write(early, "without mask") is early and write(whole, "without mask") is whole
    assert write(whole) is whole and write(early) is course.own(name)
    capsys.readouterr()
    keep(tmp_path, whole)
    assert capsys.readouterr().out == f"written.py keeps what you wrote: {name}\n"
    keep(tmp_path, early)  # notebook 02, run again
    assert f"{name} is not kept: " in capsys.readouterr().out
    kept(tmp_path, name)
    assert capsys.readouterr().out == f"{name}: yours\n"


def test_where_nothing_right_is_kept_the_courses_own_is_found(tmp_path, capsys):
    name, file = "PositionwiseFeedForward", tmp_path / "written.py"
    assert kept(tmp_path / "nowhere", name) is course.own(name)
    keep(tmp_path, course.own(name))
    assert not file.exists()
    for text, why in (
        ("class", "SyntaxError"),
        ("", "none"),
        ("nonsense", "NameError"),
        (f"{name} = None", "none"),
        (FEED_FORWARD, "NameError"),  # it imports nothing
        (f"{IMPORTS}{FEED_FORWARD.replace('F.relu', '')}", "ReLU"),
        ("from torch import nn", "none"),
    ):
        file.write_text(text, encoding="utf-8")
        capsys.readouterr()
        assert kept(tmp_path, name) is course.own(name)
        assert re.search(rf"^{name}: .*{re.escape(why)}", capsys.readouterr().out)  # in a line, and nothing else
        keep(tmp_path, run_cell(FEED_FORWARD, tmp_path / "cell")[name])  # what cannot be read is no obstacle
        assert kept(tmp_path, name).__module__ == "written"


def load_listings():
    spec = importlib.util.spec_from_file_location("listings", NOTEBOOKS.parent / "tools" / "listings.py")
    listings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(listings)
    return listings


SERIES = {path.name[:2]: json.loads(path.read_text(encoding="utf-8")) for path in NOTEBOOKS.glob("[0-9]*.ipynb")}


def test_below_each_cell_to_write_in_is_its_worked_answer():
    listings = load_listings()
    assert not [names for notebook in SERIES.values() for names, *_ in listings.outdated_folds(notebook)]
    for notebook in SERIES.values():
        for cell in notebook["cells"]:
            if names := [*worked.asked_for("".join(cell["source"]))]:
                said = "".join(text for output in cell["outputs"] for text in output.get("text", ()))
                assert re.findall(r"(?m)^(\w.*) · not solved yet: ", said) == names


def test_each_question_is_asked_once_and_what_answers_it_is_hidden_until_it_is_wanted():
    asked = []
    for notebook in SERIES.values():
        for cell, following in itertools.pairwise(c for c in notebook["cells"] if c["cell_type"] == "code"):
            for node in ast.walk(ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", "".join(cell["source"])))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "guess":
                    name, *choices = (argument.value for argument in node.args)
                    assert list(guess(name, *choices).replies) == choices
                    assert "hide-output" in following["metadata"]["tags"], name
                    assert following["metadata"]["jupyter"]["outputs_hidden"], name  # its code may be hidden, too
                    asked.append(name)
        assert not list(load_listings().telling(notebook))
    assert sorted(asked) == sorted(transformer_exercises._REPLIES)


def test_what_follows_a_guess_begins_with_nothing_of_which_jupyterlab_would_show_a_line(monkeypatch):
    display = pytest.importorskip("IPython.display", reason="IPython is not installed")
    shown, waiting = [], []
    events = SimpleNamespace(
        register=lambda when, call: waiting.append((when, call)),
        unregister=lambda when, call: waiting.remove((when, call)),
    )
    monkeypatch.setattr(transformer_exercises, "_shell", lambda: SimpleNamespace(events=events))
    monkeypatch.setattr(display, "display", lambda data, raw: shown.append(data))
    name, replies = next(iter(transformer_exercises._REPLIES.items()))
    for cells in (1, 2):
        guess(name, *replies, cells=cells)
        for _ in range(cells):
            ((when, call),) = waiting
            call()
        assert when == "pre_run_cell" and not waiting
    assert shown == [{"text/html": "", "text/plain": ""}] * 3


def test_a_verdict_has_a_sign_and_its_code_and_emphasis_are_marked_or_left_out():
    verdict = Verdict("03.1", "not yet", "say `a * b` where *may* means 2 * 3 < 7.")
    assert repr(verdict) == "✗ 03.1 · not yet: say `a * b` where may means 2 * 3 < 7."
    assert "<code>a * b</code> where <em>may</em> means 2 * 3 &lt; 7." in verdict._repr_html_()
    assert repr(Verdict("03.1", "right", "yes.")) == "✓ 03.1 · right: yes."
    assert Verdict("03.1", "not solved yet", "replace the dots")._repr_html_() is None  # what is stored stays text


def test_where_a_readers_code_stops_its_own_line_is_named(tmp_path):
    source = "def causal_mask(length):\n    half = length / 2\n    return torch.ones([*range(half)])  # here\n"
    verdict = check("causal_mask", run_cell(source, tmp_path / "cell")["causal_mask"])
    assert "in line 3, `return torch.ones([*range(half)])  # here`" in verdict.message and "`//`" in verdict.message


@pytest.mark.parametrize(("call", "hint"), [("max(0, …)", "`max` and"), ("torch.max(0, …)", "`torch.max` and")])
def test_who_takes_a_maximum_is_led_to_relu_and_spared_the_list_of_all_ways_to_call_it(tmp_path, call, hint):
    source = inspect.getsource(worked.answer("PositionwiseFeedForward"))
    source = source.replace("self.linear1(x).relu()", call.replace("…", "self.linear1(x)"))
    verdict = check("PositionwiseFeedForward", run_cell(source, tmp_path / "cell")["PositionwiseFeedForward"])
    assert hint in verdict.message and "`.relu()`" in verdict.message and "\n" not in verdict.message


def test_where_a_cells_code_stops_in_a_function_of_another_cell_both_lines_are_named(tmp_path):
    head = inspect.getsource(worked.answer("Head")).replace("self.W_K(key)", "self.W_K(query)")
    names = run_cell(f"import math\n{inspect.getsource(worked.answer('attention'))}", tmp_path / "first")
    names |= {"nn": torch.nn}
    (tmp_path / "second").write_text(head, encoding="utf-8")
    exec(compile(head, tmp_path / "second", "exec"), names)
    verdict = check("Head", names["Head"])
    assert "`return weights @ value, weights" in verdict.message and "of another cell; line 9 here" in verdict.message
    assert "`output, _ = attention(self.W_Q(query), self.W_K(query), self.W_V(value))`" in verdict.message
    assert "There are as many keys as values" in verdict.message


def test_a_new_tensor_without_a_name_is_named(tmp_path):
    body = inspect.getsource(worked.answer("attention")).replace(
        "weights = scores.softmax(dim=-1)", "scores.softmax(dim=-1)"
    )
    body = body.replace("return weights @ value, weights", "return scores @ value, scores")
    verdict = check("attention", run_cell(f"import math\n{body}", tmp_path / "cell")["attention"])
    assert "In line 4, `scores.softmax(dim=-1)` makes a new tensor, and nothing keeps it" in verdict.message


def test_one_choice_of_a_guess_is_right_and_each_has_its_reply():
    for replies in transformer_exercises._REPLIES.values():
        assert len(replies) >= 2 and all(len(reply) > 40 for reply in replies.values())
        assert sum(reply.startswith("✓") for reply in replies.values()) == 1


def test_a_guess_shows_its_choices_and_names_a_question_or_choices_that_it_does_not_know():
    name, replies = next(iter(transformer_exercises._REPLIES.items()))
    asked = guess(name, *replies)
    assert all(choice in repr(asked) for choice in replies)
    page = asked._repr_html_()
    assert page.count("<details") == len(replies) and "✓" not in re.sub(r"(?s)<p.*?</p>", "", page)
    for wrong in ((name, "something else"), ("99.a", "yes", "no")):
        with pytest.raises(ValueError, match=re.escape(repr(wrong[0]))):
            guess(*wrong)


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted(course.WRITTEN))
def test_notebooks_run_with_the_worked_answers_in_place_of_the_dots(number, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("TRANSFORMER_LIB_FAST_DEV_RUN", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    notebook, written = nbformat.read(path, as_version=4), []
    for cell, below in itertools.pairwise(notebook.cells):
        if asked := worked.asked_for(cell.source):
            (answer,) = re.findall(r"(?s)```python\n(.*?)\n```", below.source)
            cell.source = "\n".join([answer, *asked.values()])
            written += asked
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    said = "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)
    assert re.findall(r"(?m)^✓ (\w.*) · right: ", said) == written
    keeps = any(re.search(r"(?m)^keep\(", cell.source) for cell in notebook.cells)
    assert ("written.py keeps what you wrote: " in said) == keeps
