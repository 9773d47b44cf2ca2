"""What readers wrote stands in one file that runs without this project, and nothing of theirs is lost."""

import ast
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_keeping import Kernel
from transformer_exercises import check, course, keep, keeping, my_transformer, taking_home

import transformer_lib

ROOT = Path(transformer_lib.__file__).parents[1]
OWN = (ROOT / "the_transformer.py").read_text(encoding="utf-8")
IMPORTS = """\
import copy
import math
from collections import Counter
import torch.nn.functional as F
from transformer_lib import TransformerConfig
"""
HELPERS = "Encoder", "LearnedPositionalEncoding", "ngrams"  # which notebooks define, and their answers use
WITH = ("MyTransformer",)  # kept, too, though no part of the file
REMARK = "# I found this one myself: ½ + ½"
PAIRS = {
    "de": ["Ein Hund schläft.", "Zwei Hunde spielen.", "Ein Kind liest.", "Zwei Kinder lachen."] * 2,
    "en": ["A dog is sleeping.", "Two dogs are playing.", "A child is reading.", "Two children laugh."] * 2,
}
TINY = "--epochs 2 --vocab_size 60 --d_model 16 --num_heads 2 --d_ff 32 --num_layers 1 --max_tokens 40"
ALL = set(taking_home.PARTS)


def sources():
    """The worked answers of the notebooks, by name, and before them the helpers that cells define."""
    helpers, answers = {}, {}
    for path in sorted((ROOT / "notebooks").glob("0[2-9]*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            fold = re.match(r"<details><summary>Worked answer</summary>\n\n```python\n(.*?)\n```", text, re.DOTALL)
            if cell["cell_type"] == "markdown" and fold:
                for name in re.findall(r"(?m)^(?:def|class) (\w+)", fold[1]):
                    answers[name] = fold[1]
            elif cell["cell_type"] == "code" and not text.lstrip().startswith("import importlib"):
                for name in HELPERS:
                    if found := re.search(rf"(?ms)^(def|class) {name}\b.*?(?=^\S|\Z)", text):
                        helpers[name] = found[0].rstrip()
    return helpers, {name: text for name, text in answers.items() if name in ALL | {*WITH}}


def kernel_with(names, changes=()):
    """Cells in which a reader wrote these parts, in the notebooks' words; for the rest, the course's own stands in."""
    kernel = Kernel()
    helpers, answers = sources()
    kernel.run(IMPORTS)
    for name, text in {**helpers, **answers}.items():
        for before, after in changes:
            text = text.replace(before, after)
        kernel.run(f"{REMARK}\n{text}\n")
        if name in ALL and name not in names:
            kernel.names[name] = course.own(name)
    return kernel


def kept(folder, names, changes=()):
    """Keep these parts in a folder."""
    kernel = kernel_with(names, changes)
    others = [name for name in WITH if name in kernel.names]
    keep(folder, *(kernel[name] for name in [*others, *sorted(names)]))


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """What ``keep`` writes of all parts."""
    folder = tmp_path_factory.mktemp("kept")
    kept(folder, ALL)
    return (folder / "written.py").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path, everything):
    """A folder in which all parts are kept."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "written.py").write_text(everything, encoding="utf-8")
    return tmp_path / "runs"


def change(folder, before, after):
    """Change ``written.py`` by hand."""
    file = folder / "written.py"
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")


def text_of(folder):
    return (folder / "my_transformer.py").read_text(encoding="utf-8")


def written_by_hand(text):
    """The source of each definition of a file, with the comments right above it."""
    blocks = keeping.statements(text.splitlines(), ast.parse(text))
    return {name: block.text for block in blocks if not block.imports for name in block.names}


@pytest.fixture
def elsewhere(tmp_path):
    """A function that runs a file in a process that does not find this project, from a folder of its own."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    for side, lines in PAIRS.items():
        (place / f"my.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(file, *arguments):
        command = [sys.executable, "-I", "-X", "utf8", str(file), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, encoding="utf-8")
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


def assert_it_needs_torch_alone(text):
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"torch"}
    assert "transformer_lib" not in text and "transformer_exercises" not in text and "TRANSFORMER_LIB" not in text


def assert_it_trains_translates_and_scores(folder, run):
    assert_it_needs_torch_alone(text_of(folder))
    texts = ["my.de", "my.en"]
    printed = run(folder / "my_transformer.py", "train", "--texts", *texts, "--test", *texts, *TINY.split())
    assert len(re.findall(r"BLEU with a beam of \d: \d", printed)) == 2
    losses = [float(loss) for loss in re.findall(r"loss (\S+),", printed)]
    assert losses[1] < losses[0]
    return run(folder / "my_transformer.py", "translate", *PAIRS["de"][:3]).splitlines()


# ---- The file ----


@pytest.mark.processes
def test_with_nothing_kept_it_is_the_file_of_the_project(tmp_path, elsewhere, capsys):
    my_transformer(tmp_path / "runs")
    said = capsys.readouterr().out
    assert "0 of 20 " in said and len(said.splitlines()) == 1
    text = text_of(tmp_path / "runs")
    for after, before in {'"my_transformer.pt"': '"the_transformer.pt"', 'folder = "multi30k"': "folder = os."}.items():
        assert text.count(after) == OWN.count(before) == 1
    ours, theirs = ([*map(ast.dump, ast.parse(source).body)] for source in (text, OWN))
    assert ours[1:-1] == theirs[1:-1]  # all but head and command line
    assert len(text.split('"""')[2].splitlines()) == len(OWN.split('"""')[2].splitlines()) + 2
    assert len(assert_it_trains_translates_and_scores(tmp_path / "runs", elsewhere)) == 3


@pytest.mark.processes
def test_with_all_parts_kept_it_is_the_readers_and_runs_without_this_project(folder, elsewhere, everything, capsys):
    capsys.readouterr()
    my_transformer(folder)
    said = capsys.readouterr().out
    assert "20 of 20 " in said and len(said.splitlines()) == 1
    text = text_of(folder)
    ours, theirs = written_by_hand(text), written_by_hand(everything)
    for name in ALL:
        assert ours[name] == theirs[name] and REMARK in ours[name]  # lines and comments as they were
    assert "20 of 20 " in ast.get_docstring(ast.parse(text))
    assert "from transformer_lib import TransformerConfig" in everything and "config_class = TransformerConfig" in text
    assert len(assert_it_trains_translates_and_scores(folder, elsewhere)) == 3


HALVES = [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(3)]


@pytest.mark.processes
@pytest.mark.parametrize("seed", HALVES)
def test_with_half_of_the_parts_kept_the_rest_is_the_files_own(seed, tmp_path, elsewhere, capsys):
    """Those that are built of others wait for them, and are not counted."""
    names = set(random.Random(seed).sample(sorted(ALL), 10))
    kept(tmp_path, names)
    capsys.readouterr()
    my_transformer(tmp_path)
    head, *reasons = capsys.readouterr().out.splitlines()
    ours, theirs = written_by_hand(text_of(tmp_path)), written_by_hand((tmp_path / "written.py").read_text("utf-8"))
    in_it = {name for name in names if ours.get(name) == theirs[name]}
    waiting = {name for reason in reasons for name in reason.partition(":")[0].split(", ")}
    assert f" {len(in_it)} of 20 " in head
    assert waiting == names - in_it and all("waiting for" in reason for reason in reasons)
    assert in_it >= {name for name in names if not taking_home.PARTS[name][1]} - {
        "target_mask", "Transformer", "beam", "corpus_bleu", "DecoderLayer"
    }  # fmt: skip
    listed = ast.get_docstring(ast.parse(text_of(tmp_path))).partition("Not yours:")[2].partition("\n\n")[0]
    assert {*re.findall(r"\w+", listed)} & ALL == ALL - in_it
    assert len(assert_it_trains_translates_and_scores(tmp_path, elsewhere)) == 3


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("layer", ["EncoderLayer", "DecoderLayer"])
def test_one_layer_of_the_readers_works_beside_one_of_the_files(layer, tmp_path, elsewhere):
    kept(tmp_path, {layer})
    my_transformer(tmp_path)
    assert f"{layer}(*sizes, norm_first=True)" in text_of(tmp_path)
    assert_it_trains_translates_and_scores(tmp_path, elsewhere)


def test_parts_stand_in_the_order_of_the_files_own(folder):
    written = taking_home.read(folder / "written.py", lambda name, answer: True)
    for mine in (ALL, ALL - {"Transformer", "TokenEmbedding", "InputEmbedding", "Decoder"}, set()):
        text = taking_home.assembled(written, mine)
        own = [name for name in written_by_hand(OWN) if name not in ("beam_one",)]
        assert [name for name in written_by_hand(text) if name in own] == own
        for layer in ("EncoderLayer", "DecoderLayer"):  # the file's own model has its norms first
            assert (f"{layer}(*sizes, norm_first=True)" in text) == (layer in mine and "Transformer" not in mine)


def test_the_files_own_boxes_are_right_answers_to_the_notebooks():
    """Or a reader's box might ask for what they cannot do."""
    module = {"__name__": "the_transformer"}
    sys.modules["the_transformer"] = type(sys)("the_transformer")  # dataclasses look for it
    exec(compile(OWN, str(ROOT / "the_transformer.py"), "exec"), module)
    del sys.modules["the_transformer"]
    for name in (
        "padding_mask",
        "causal_mask",
        "target_mask",
        "MultiHeadAttention",
        "PositionwiseFeedForward",
        "SinusoidalPositionalEncoding",
        "token_loss",
        "beam",
        "corpus_bleu",
    ):
        verdict = check(name, module[name])
        assert verdict, verdict.message


def test_the_search_that_notebook_07_shows_is_the_files_own():
    (shown,) = (
        "".join(cell["source"])
        for cell in json.loads((ROOT / "notebooks" / "07_translating.ipynb").read_text(encoding="utf-8"))["cells"]
        if cell["id"] == "beam-batch"
    )
    own = written_by_hand(OWN)["beam"].replace("def beam(", "def beam_batch(")
    assert shown == own


@pytest.mark.processes
@pytest.mark.slow
def test_what_notebook_07_ends_with_can_be_typed_and_picks_up_the_ball(folder):
    my_transformer(folder)
    cells = json.loads((ROOT / "notebooks" / "07_translating.ipynb").read_text(encoding="utf-8"))["cells"]
    (text,) = ("".join(cell["source"]) for cell in cells if cell["id"] == "next-07")
    activate, enter, *commands = re.search(r"```\n(.*?)\n```", text, re.DOTALL)[1].splitlines()
    assert (activate, enter) == ("source .venv/bin/activate", "cd notebooks/runs") and len(commands) == 2
    for command in commands:
        words = shlex.split(command.replace("../../data", f"{ROOT.as_posix()}/data"))
        assert words[0] == "python"
        run = [sys.executable, "-I", "-X", "utf8", *words[1:]]
        said = subprocess.run(run, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    assert said.splitlines() == ["two dogs are playing in the snow.", "the man is picking up the ball."]


# ---- What does not fit ----


def test_a_part_that_is_no_longer_right_is_left_out_and_said(folder, capsys):
    change(folder, "dtype=torch.bool).tril()", "dtype=torch.bool).triu()")
    my_transformer(folder)
    head, *reasons = capsys.readouterr().out.splitlines()
    assert " 19 of 20 " in head
    assert [reason.partition(":")[0] for reason in reasons] == ["causal_mask"]
    assert ".tril()" in text_of(folder) and ".triu()" not in text_of(folder)


def test_a_part_with_which_the_file_does_not_run_is_left_out_and_said(tmp_path, capsys):
    """It is right by its check, which gives ``norm_first`` no name; the file does."""
    kept(tmp_path, {"EncoderLayer", "causal_mask"}, [("norm_first", "pre_norm")])
    assert "EncoderLayer" in (tmp_path / "written.py").read_text("utf-8")
    capsys.readouterr()
    my_transformer(tmp_path)
    head, *reasons = capsys.readouterr().out.splitlines()
    assert " 1 of 20 " in head
    assert [reason.partition(":")[0] for reason in reasons] == ["EncoderLayer"] and "norm_first" in reasons[0]
    assert "pre_norm" not in text_of(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (
            "def causal_mask(length):",
            "def padded():\n    return 1\n\n\ndef causal_mask(length):\n    padded()",
            "padded",
        ),
        ("def causal_mask(length):", "import numpy as np\n\n\ndef causal_mask(length):\n    np.ones(1)", "numpy"),
        ("def causal_mask(length):", "def causal_mask(length):\n    import numpy", "numpy"),
        ("def causal_mask(length):", "import json as math_\n\n\ndef causal_mask(length):\n    math_", ""),
        ("def causal_mask(length):", "import json as cache\n\n\ndef causal_mask(length):\n    cache", "cache"),
        ("def causal_mask(length):", "def causal_mask(length):\n    None and nowhere", "nowhere"),
    ],
)
def test_what_a_part_uses_and_the_file_cannot_have_is_said(before, after, named, folder):
    change(folder, before, after)
    written = taking_home.read(folder / "written.py", lambda name, answer: True)
    mine, reasons = taking_home.chosen(written, written.right)
    assert mine == ALL - ({"causal_mask"} if named else set())
    assert named in reasons.get("causal_mask", "")


@pytest.mark.parametrize("missing", ["TokenEmbedding", "EncoderLayer"])
def test_a_model_waits_for_its_boxes_and_they_for_it(missing, folder):
    """The file has no part of the first name; of the second, it has one, which knows one order of norm and box."""
    written = taking_home.read(folder / "written.py", lambda name, answer: True)
    mine, reasons = taking_home.chosen(written, ALL - {missing})
    assert mine == ALL - {"TokenEmbedding", "InputEmbedding", "Decoder", "Transformer", missing}
    assert missing in reasons["Transformer"]
    assert "Transformer" in reasons["Decoder"] and reasons["Decoder"] == reasons["InputEmbedding"]


def test_of_several_parts_the_one_that_does_not_fit_is_found(folder, monkeypatch):
    """Even where a traceback ends elsewhere, as where a beam hands a model what it cannot read."""
    written = taking_home.read(folder / "written.py", lambda name, answer: True)
    marks = {name: written.blocks[name].text for name in ALL}

    def fail(texts, together):
        lines = [text[: text.index("class Transformer")].count("\n") + 1 for text in texts]
        wrong = [all(marks[name] in text for name in together) for text in texts]
        return [("no", [line]) if is_wrong else ("", []) for line, is_wrong in zip(lines, wrong, strict=True)]

    monkeypatch.setattr(taking_home, "_outcomes", lambda texts: fail(texts, ["beam"]))
    mine, reasons = taking_home.fitting(written)
    assert mine == ALL - {"beam", "beam_one"} and "beam" in reasons["beam_one"]
    monkeypatch.setattr(taking_home, "_outcomes", lambda texts: fail(texts, ["beam", "Transformer"]))
    mine, reasons = taking_home.fitting(written)  # each runs alone: that in which the traceback ends is left out
    assert mine == ALL - {"Transformer", "TokenEmbedding", "InputEmbedding", "Decoder"}


@pytest.mark.processes
def test_a_file_that_ends_its_process_is_told_from_those_beside_it(tmp_path, monkeypatch):
    (tmp_path / "found.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # which the process is not to look into
    texts = [
        "import os\nos.write(1, b'not mine')\nos._exit(0)",
        "def f():\n    1 / 0\n\n\nf()",
        "import sys\nsys.exit('one line')",
        "x = 'loss nan'",
    ]
    texts += ["import found", f"import sys\nsys.path.append({str(ROOT)!r})\nimport transformer_lib"]
    first, second, third, fourth, fifth, sixth = taking_home._outcomes(texts)
    assert first[0] and "ZeroDivisionError" in second[0] and third[0] == "one line" and not fourth[0]
    assert second[1][-1] == 2
    assert "ModuleNotFoundError" in fifth[0] and "transformer_lib" in sixth[0]


# ---- What is not lost ----


@pytest.fixture
def few(folder, everything):
    """A folder in which three parts are kept."""
    parts = [block for name, block in written_by_hand(everything).items() if name in taking_home.PARTS]
    masks = [block for block in parts if "_mask(" in block.splitlines()[1]]
    assert len(masks) == 3
    (folder / "written.py").write_text("import torch\n\n\n" + "\n\n\n".join(masks) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def quick(monkeypatch):
    """Without the process in which a file is run."""
    monkeypatch.setattr(taking_home, "_outcomes", lambda texts: [("", [])] * len(texts))


def test_the_same_parts_give_the_same_bytes(folder, quick):
    my_transformer(folder)
    file = folder / "my_transformer.py"
    first = file.read_bytes()
    my_transformer(folder)
    assert file.read_bytes() == first
    file.unlink()
    my_transformer(folder)
    assert file.read_bytes() == first
    assert b"\r" not in first


EDITS = {
    "a line more": lambda text: text + "\n# mine\n",
    "another number": lambda text: text.replace("seed: int = 1", "seed: int = 2"),
    "all of it": lambda text: "my notes",
    "nothing left": lambda text: "",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_file_that_was_changed_by_hand_is_set_aside(edit, few, quick, capsys):
    file = few / "my_transformer.py"
    my_transformer(few)
    first = file.read_text("utf-8")
    for number in (1, 2):
        file.write_text(edit(first), encoding="utf-8")
        capsys.readouterr()
        my_transformer(few)
        aside = few / f"my_transformer.{number}.py"
        assert aside.name in capsys.readouterr().out
        assert aside.read_text("utf-8") == edit(first)
        assert file.read_text("utf-8") == first
    change(few, "dtype=torch.bool).tril()", "dtype=torch.bool).tril()  # better")
    my_transformer(few)  # what the notebooks wrote themselves is replaced
    assert "# better" in file.read_text("utf-8") and not (few / "my_transformer.3.py").exists()


def test_a_file_is_never_half_written(few, quick, monkeypatch):
    my_transformer(few)
    first = text_of(few)
    change(few, "dtype=torch.bool).tril()", "dtype=torch.bool).tril()  # better")

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            my_transformer(few)
    assert text_of(few) == first
    assert {path.name for path in few.iterdir() if not path.name.startswith(".my_transformer.py.lock")} == {
        "my_transformer.py", "written.py"
    }  # fmt: skip


QUICK = """
import os, signal, sys
from transformer_exercises import my_transformer, taking_home
taking_home._outcomes = lambda texts: [("", [])] * len(texts)
"""
KILLED = f"""{QUICK}
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
my_transformer(sys.argv[1])
"""


def in_a_process(code, folder, **environment):
    path = os.pathsep.join([str(ROOT), str(ROOT / "notebooks")])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, "-c", code, str(folder)], env=environment, capture_output=True)


@pytest.mark.slow
@pytest.mark.processes
def test_the_same_parts_give_the_same_bytes_and_words_in_another_process(folder):
    modules = "copy, json, random, string"
    change(folder, "def causal_mask(length):", f"import {modules}\n\n\ndef causal_mask(length):\n    {modules}")
    for part in ("TokenEmbedding", "DecoderLayer"):
        change(folder, f"class {part}(", f"class {part}2(")
    for part in ("beam", "corpus_bleu"):
        change(folder, f"def {part}(", f"def {part}2(")
    found = set()
    for seed in "123":
        ended = in_a_process(f"{QUICK}\nmy_transformer(sys.argv[1])", folder, PYTHONHASHSEED=seed)
        found.add((ended.stdout, (folder / "my_transformer.py").read_bytes()))
        (folder / "my_transformer.py").unlink()
    ((said, text),) = found
    assert len(said.splitlines()) == 5  # how many are the reader's; what waits for four others
    assert b"\nimport copy\nimport json\nimport random\nimport string\n" in text


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no such signal")
def test_one_that_is_killed_leaves_the_old_file_and_keeps_no_other_waiting(few, quick):
    my_transformer(few)
    first = text_of(few)
    change(few, "dtype=torch.bool).tril()", "dtype=torch.bool).tril()  # better")
    ended = in_a_process(KILLED, few)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert text_of(few) == first
    my_transformer(few)
    assert "# better" in text_of(few)


def test_with_nothing_readable_kept_the_file_stays_as_it_is(few, quick, capsys):
    my_transformer(few)
    first = text_of(few)
    (few / "written.py").write_text("def causal_mask(length:\n", encoding="utf-8")
    capsys.readouterr()
    my_transformer(few)
    assert "written.py" in capsys.readouterr().out and text_of(few) == first
    (few / "my_transformer.py").unlink()
    my_transformer(few)
    assert "0 of 20 " in text_of(few)
