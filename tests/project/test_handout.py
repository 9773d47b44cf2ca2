"""A handout gives nothing away that its notebook asks for, and is otherwise the notebook."""

import json
import re
from pathlib import Path

import pytest
from transformer_exercises import handout
from transformer_exercises.__main__ import main
from transformer_exercises.handout import without_answers

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SERIES = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))}
FOLD = re.compile(r"(?s)<summary>Worked answer</summary>\n\n```python\n(.*?)\n```")


def sources(notebook, kind):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def lines_of(code):
    """Return a listing's lines, without indents and comments, that are long enough to tell something."""
    lines = (line.partition("  #")[0].strip() for line in code.splitlines())
    return {line for line in lines if len(line) > 20 and not line.startswith(("def ", "class "))}


@pytest.mark.parametrize("name", SERIES)
def test_nothing_of_a_worked_answer_is_left_and_nothing_sends_to_one(name):
    original = SERIES[name]
    copy = without_answers(original, SERIES)
    folds = [fold for source in sources(original, "markdown") for fold in FOLD.findall(source)]
    elsewhere = "\n".join([*sources(original, "code"), *(FOLD.sub("", one) for one in sources(original, "markdown"))])
    text = json.dumps([copy["cells"]], ensure_ascii=False)
    for line in (line for fold in folds for line in lines_of(fold) if line not in elsewhere):
        assert json.dumps(line, ensure_ascii=False)[1:-1] not in text
    assert not re.search(r"orked answer</summary>|orked answer (below|waits)|in the fold below|solutions/", text)
    assert sources(copy, "code") == sources(original, "code")  # so it runs as the notebook does
    for cell in copy["cells"]:
        if (
            re.search(r'(?m)^((\w+) = write\(\2[,)]|check\("\d\d\.\d")', "".join(cell["source"]))
            and cell["cell_type"] == "code"
        ):
            assert cell["outputs"] == [] and cell["execution_count"] is None
    assert any(cell.get("outputs") for cell in copy["cells"])


def test_guesses_stay_and_what_they_are_about_only_if_wanted():
    for original in SERIES.values():
        copy, bare = without_answers(original, SERIES), without_answers(original, SERIES, results=False)
        count = [source.count("<summary>What it shows") for source in map(str, (original, copy, bare))]
        assert count[0] == count[1] and count[2] == 0
        hidden = [cell for cell in bare["cells"] if cell["metadata"].get("jupyter", {}).get("outputs_hidden")]
        assert not any(cell["outputs"] for cell in hidden)
        guesses = [cell for cell in bare["cells"] if "\nguess(" in "\n" + "".join(cell["source"])]
        assert len(guesses) >= len(hidden) / 3 and all(
            cell["outputs"] for cell in guesses if cell["cell_type"] == "code"
        )


def test_links_lead_to_what_is_in_the_folder_and_code_is_left_alone(tmp_path, capsys):
    assert main(["handout", "2", "03", str(tmp_path / "class")]) == 0
    written = sorted((tmp_path / "class").iterdir())
    assert [str(path) for path in written] == capsys.readouterr().out.splitlines()
    assert [path.name for path in written] == ["02_attention.ipynb", "03_masks.ipynb"]
    for path in written:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        links = re.findall(r"\]\(([^)#\s]+\.\w+)(?:#[^)]*)?\)", "\n".join(sources(notebook, "markdown")))
        links = [link for link in links if not link.startswith("http")]
        assert links and set(links) <= {path.name for path in written}
    code = {
        "cell_type": "markdown",
        "metadata": {},
        "source": '`heads["a"](model.forward)` and [a book](../book/paper.md#x)',
    }
    (cell,) = without_answers({"cells": [code]}, [])["cells"]
    assert cell["source"] == ['`heads["a"](model.forward)` and a book']


def test_what_cannot_be_handed_out_is_named_and_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    for number in ("99", "2x", "../02"):
        assert main(["handout", "02", number, str(tmp_path)]) == 2
        assert repr(number) in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    mine = tmp_path / "03_masks.ipynb"
    mine.write_text("a student's work")
    assert main(["handout", "02", "03", str(tmp_path)]) == 2
    assert str(mine) in capsys.readouterr().err
    assert main(["handout", "02", str(mine)]) == 2
    assert mine.read_text() == "a student's work" and list(tmp_path.iterdir()) == [mine]
    monkeypatch.setattr(handout, "NOTEBOOKS", tmp_path / "site-packages")
    assert main(["handout", "02", str(tmp_path)]) == 2
    assert "installed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_handout_runs_with_its_dots(tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("TRANSFORMER_LIB_FAST_DEV_RUN", "1")
    monkeypatch.setenv("PYTHONPATH", f"{NOTEBOOKS}:{NOTEBOOKS.parent}")
    assert main(["handout", "03", str(tmp_path)]) == 0
    notebook = nbformat.read(tmp_path / "03_masks.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}).execute()
    assert str(notebook).count("not solved yet") == 12
