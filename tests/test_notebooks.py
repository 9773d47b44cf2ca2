"""What must be true of every committed notebook; nbval, in `make test`, re-runs their cells."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("[0-9]*.ipynb"))
MACHINE_PATH = re.compile(r"/(?:root|home|work|tmp|Users)/|[A-Z]:\\\\|site-packages")


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def cells(request):
    return json.loads(request.param.read_text(encoding="utf-8"))["cells"]


def code_of(cells):
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_it_was_run_in_order_from_a_clean_kernel(cells):
    assert [cell["execution_count"] for cell in code_of(cells)] == list(range(1, len(code_of(cells)) + 1))


def test_no_cell_is_empty_and_none_ends_in_an_error(cells):
    for cell in cells:
        assert "".join(cell["source"]).strip()
        assert not [output for output in cell.get("outputs", []) if output["output_type"] == "error"]


def test_no_machine_path_and_no_warning_is_stored(cells):
    for cell in cells:
        for output in cell.get("outputs", []):
            assert not MACHINE_PATH.search(json.dumps(output))
            assert output.get("name") != "stderr", "".join(output["text"])


def test_progress_bars_left_nothing_behind(cells):
    for cell in code_of(cells):
        for output in cell["outputs"]:
            assert "\r" not in "".join(output.get("text", ""))


def test_it_opens_with_title_promise_and_badge(cells):
    opening = "".join(cells[0]["source"]).splitlines()
    assert re.match(r"# \d\d · \S", opening[0])
    assert re.match(r"\*\*.+\*\*$", opening[2])
    assert any("colab-badge.svg" in line for line in opening)
    assert any("You will be able to" in "".join(cell["source"]) for cell in cells[:3])


def test_badge_and_setup_lead_to_the_repository_that_pyproject_names(cells):
    pyproject = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    repository = re.search(r'^Repository = "https://github.com/(.+)"', pyproject, re.MULTILINE)[1]
    text = "".join("".join(cell["source"]) for cell in cells)
    assert set(re.findall(r"colab\.research\.google\.com/github/([^/]+/[^/]+)/", text)) == {repository}
    assert set(re.findall(r"git\+https://github\.com/([^/]+/[^\"/]+)", text)) == {repository}


def test_something_in_it_is_compared_with_what_is_stored(cells):
    compared = [cell for cell in code_of(cells) if "nbval-check-output" in cell["metadata"].get("tags", [])]
    assert compared
    assert all(cell["outputs"] for cell in compared)
