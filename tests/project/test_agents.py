"""AGENTS.md: each file, cell, command and name that it sends assistants to is there, and each exercise has its row."""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

from exercise_answers import worked
from test_commands import named_in
from test_contributing import PACKAGE
from test_exercises import NAMES
from transformer_exercises import course

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| .+ \| .+ \|$", re.MULTILINE)
NOTEBOOKS = {path.name[:2]: path for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}


def section(heading):
    return re.split(r"\n##? ", PAGE.partition(f"\n## {heading}\n")[2])[0]


def cells(path):
    return {cell["id"]: "".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}


def slugs(page):
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def chapters():
    """Pairs of the notebooks' numbers and the rows of their exercises, in the order of the page."""
    for heading, text in re.findall(r"^### (\d\d.*?)\n(.*?)(?=^#)", PAGE, re.MULTILINE | re.DOTALL):
        first, last = re.match(r"(\d\d)(?: to (\d\d))?", heading).groups()
        yield [f"{number:02}" for number in range(int(first), int(last or first) + 1)], ROW.findall(text)


def test_links_lead_to_files_and_to_cells_and_headings_in_them():
    targets = re.findall(r"\]\(([^)\s]+)\)", PAGE)
    assert len(targets) > 50
    for target in targets:
        path, _, place = target.partition("#")
        file = ROOT / (path or "AGENTS.md")
        assert file.exists(), target
        if place.startswith("cell-id="):
            assert place.removeprefix("cell-id=") in cells(file), target
        elif place:
            assert place in slugs(file), target


def test_every_exercise_has_a_row_with_its_cell_and_no_other_has():
    listed = []
    for numbers, rows in chapters():
        holding = {cell: source for number in numbers for cell, source in cells(NOTEBOOKS[number]).items()}
        for name, cell in rows:
            if len(numbers) > 1:  # a chapter of several notebooks
                number = name[:2] if name[:2].isdigit() else course.notebook_of(name)
                holding = cells(NOTEBOOKS[number])
            assert cell in holding, f"{name}: no cell is called {cell}"
            asked = [*re.findall(r'check\("([^"]+)"', holding[cell]), *worked.asked_for(holding[cell])]
            assert name in asked, f"{name} is not asked for in {cell}"
            listed.append(name)
    assert sorted(listed) == NAMES


def test_the_library_has_the_names_where_the_table_of_ideas_says():
    places = re.findall(r"((?:`[\w.]+`(?:, )?)+) \(`([\w/]+\.py)`\)", section("Where each idea stands"))
    assert len(places) > 25
    for names, module in places:
        source = (PACKAGE / module).read_text(encoding="utf-8")
        for name in re.findall(r"[\w.]+", names):
            for part in name.split("."):
                assert re.search(rf"^ *(def|class) {part}\b", source, re.MULTILINE), f"{name} is not in {module}"


def test_the_files_that_it_names_are_there():
    code = re.findall(r"`([\w./*-]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
    paths = {path for path in code if re.fullmatch(r"(?!\.venv)[\w./*-]+/[\w.*-]*|[\w*]+\.(py|md|txt)", path)}
    assert len(paths) > 20
    for path in paths:
        assert (PACKAGE / path).is_file() or any(ROOT.glob(path.rstrip("/"))), path


def test_what_holds_answers_is_never_opened():
    kept_shut = re.findall(r"`([\w./*-]+)`", section("What you never open for a learner"))
    assert {
        "notebooks/solutions",
        course.__name__.replace("transformer_exercises.", "notebooks/transformer_exercises/"),
        Path(worked.__file__).parent.relative_to(ROOT).as_posix(),
        "notebooks/transformer_exercises/notebook_*.py",
        "the_transformer.py",
    } <= set(kept_shut)


def test_what_it_runs_takes_the_place_of_the_dots_for_an_answer():
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {"__name__": "__main__"})
    assert re.match(r"Head · not solved yet: ", printed.getvalue())


def test_its_commands_start_programs_that_are_there():
    commands = [*named_in(PAGE)]
    assert {"make check", "make lint", "make test"} <= set(commands)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for command in commands:
        program, *words = command.split()
        if program == "make":
            assert {word for word in words if "=" not in word} <= targets, command
        elif words[0] == "-m":
            found = subprocess.run([sys.executable, "-c", f"import {words[1]}.__main__"], capture_output=True)
            assert found.returncode == 0, command
        elif words[0].endswith(".py"):
            assert (ROOT / words[0]).is_file(), command
