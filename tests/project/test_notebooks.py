"""What must be true of every committed notebook; nbval, in `make test`, re-runs their cells."""

import base64
import html
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = list((ROOT / "transformer_lib").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
CORE = tuple(f"{number:02}" for number in range(9))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("[0-9]*.ipynb"))


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "notebooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


set_repository = load_script("set_repository")

MACHINE_PATH = re.compile(r"/(?:root|home|work|tmp|Users)/|[A-Z]:\\\\|site-packages")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def cells(request):
    return read(request.param)


@pytest.fixture(params=NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def any_cells(request):
    return read(request.param)


def code_of(cells):
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_it_was_run_in_order_from_a_clean_kernel(any_cells):
    assert [cell["execution_count"] for cell in code_of(any_cells)] == list(range(1, len(code_of(any_cells)) + 1))


def test_no_cell_is_empty_and_none_ends_in_an_error(any_cells):
    for cell in any_cells:
        assert "".join(cell["source"]).strip()
        assert not [output for output in cell.get("outputs", []) if output["output_type"] == "error"]


def test_no_machine_path_and_no_warning_is_stored(any_cells):
    for cell in any_cells:
        for output in cell.get("outputs", []):
            assert not MACHINE_PATH.search(json.dumps(output))
            assert output.get("name") != "stderr", "".join(output["text"])


SHOWN = ("text/html", "image/svg+xml", "image/png", "text/markdown", "text/plain")  # the first that an output has


def read_by_people(page):
    return "".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())


@pytest.fixture(scope="module")
def page_maker():
    return pytest.importorskip("nbconvert", reason="Jupyter is not installed").HTMLExporter()


@pytest.mark.parametrize("path", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_its_page_shows_every_stored_output_and_waits_for_no_widget(path, page_maker):
    page, _ = page_maker.from_filename(str(path))
    assert "widget-view+json" not in page  # it would need its kernel, and shows nothing without
    page, text = "".join(page.split()), read_by_people(page)
    for output in (output for cell in code_of(read(path)) for output in cell["outputs"]):
        data = {kind: "".join(lines) for kind, lines in output.get("data", {"text/plain": output.get("text")}).items()}
        kind = next(kind for kind in SHOWN if kind in data)
        if kind == "image/png":
            assert "".join(data[kind].split()) in page
        elif kind == "image/svg+xml":
            assert base64.b64encode(data[kind].encode()).decode() in page
        elif kind == "text/html":
            assert read_by_people(data[kind]) in text
        else:
            assert "".join(re.sub(r"```\w*|</?(details|summary)>", "", data[kind]).split()) in text


@pytest.mark.parametrize("path", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_state_of_widgets_is_stored(path):
    """Nor what else a program keeps in a notebook: a new run leaves it as it is, stale."""
    assert set(json.loads(path.read_text(encoding="utf-8"))["metadata"]) == {"kernelspec", "language_info"}


def test_progress_bars_left_nothing_behind(any_cells):
    for cell in code_of(any_cells):
        for output in cell["outputs"]:
            assert "\r" not in "".join(output.get("text", ""))


def text_of(cells):
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_it_opens_with_title_promise_time_badge_neighbours_and_paths(cells, request):
    path = request.node.callspec.params["cells"]
    title, promise, time_and_badge, neighbours, paths = "".join(cells[0]["source"]).strip().split("\n\n")
    assert re.fullmatch(rf"# {path.name[:2]} · \S.*", title)
    assert re.fullmatch(r"\*\*[^*]+\*\*", promise)
    assert f"/blob/main/notebooks/{path.name})" in time_and_badge
    where = NOTEBOOKS.index(path)
    for word, neighbour in (("Previous", where - 1), ("Next", where + 1)):
        if 0 <= neighbour < len(NOTEBOOKS):
            assert f"{word}: [{titles()[neighbour]}]({NOTEBOOKS[neighbour].name})" in neighbours
    for marked in ("**30 minutes**: ", "**3 hours**: ", "**everything**: ", "You need: "):
        assert marked in paths
    assert re.match(r"(# |## What you built)", "".join(cells[-1]["source"]))
    assert "".join(cells[-1]["source"]).splitlines()[-1] in neighbours  # it ends with the link to the next one


def words_of(cells):
    return sum(len("".join(cell["source"]).split()) for cell in cells if cell["cell_type"] == "markdown")


def test_its_reading_time_is_honest(cells):
    """Two hundred words a minute, and five seconds for a line of code; the setup cell is not read."""
    lines = [line for cell in code_of(cells)[1:] for line in "".join(cell["source"]).splitlines() if line.strip()]
    minutes = round(words_of(cells) / 200 + len(lines) * 5 / 60)
    assert f"Reading time: {minutes} minutes" in "".join(cells[0]["source"])


# What prose may quote though no output of its notebook prints it: facts about others, and labels in pictures.
QUOTED = {
    "00": {"29,000", "43.71"},  # Multi30k; `transformer-lib evaluate`
    "01": {"31,014", "0.95"},  # Multi30k; an example
    "02": {"1.61"},  # ln 5
    "04": {"25.7", "25.8", "29,000"},  # the paper's Table 3, row (E); Multi30k
    "05": {"29,000", "0.599", "0.004", "1.15", "1.610", "2.018", "4.51", "4.75"},  # its curve; a published log; StepLR
    "06": {"1.08", "1.35", "0.09", "2.2", "2.7"},  # its tree of hypotheses; an exercise's table
    "08": {"0.51", "28.4", "1.6"},  # another scale; the paper's Table 2; a rounded interval
    "09": {"1706.03762", "3.1", "3.2", "3.4", "5.4", "6.3"}  # the paper's address and sections
    | {
        "16,000",
        "25,000",
        "32,000",
        "36,000",
        "37,000",
        "40,000",
        "41.0",
        "1.2",
    }  # its sizes and BLEU, PyTorch's version
    | {"1.11", "2.04"},  # 1 / 0.9; 28.4 - 26.36
    "10": {"1.2"},  # PyTorch's version
    "11": {"0.95", "2.5", "2.9", "6.26", "1,024"},  # a published recipe and perplexity; ln 524.3; GPT-2's length
    "12": {"4.5", "37,000", "5.1"},  # the paper's corpus, and its section
    "13": {"5.1", "6.1", "6.2", "6.3", "16,000", "25.8", "37,000"}  # the paper's sections and figures; an exercise
    | {"2.1", "2.2", "36.52", "37.25", "38.10"}  # others' figures, and the command line's
    | {"1.9", "3.1", "2,048", "13,582"},  # sizes in benchmarks/results/recipes.json
    "14": {"1.13", "1.20", "0.99", "1.03", "5,900", "20,000", "80,000"},  # book/results.md; earlier runs; data sheets
    "15": {"0.6"},  # the paper's length penalty
}


def numbers_in(text):
    return re.findall(r"(?<![\w.^/])\d[\d,]*(?:\.\d+)?(?!\w*\.?\d)", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_prose_quotes_is_what_the_outputs_say(path):
    """Numbers with decimals or thousands, up to rounding, also as percentages."""
    printed = [float(number.replace(",", "")) for number in numbers_in(everything_printed(read(path)))]
    prose = re.sub(
        r"```.*?```|`[^`]*`|\]\([^)]*\)|<details>.*?</details>", "", text_of(read(path)[1:]), flags=re.DOTALL
    )
    for number in set(re.findall(r"(?<![\w.·^/\d])(\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+)(?![\w.]*\d)", prose)):
        decimals, value = len(number.partition(".")[2]), float(number.replace(",", ""))
        close = any(abs(round(scale * one, decimals) - value) < 1e-9 for one in printed for scale in (1, 100))
        assert close or number in QUOTED.get(path.name[:2], ()), number


def everything_printed(cells):
    parts = []
    for cell in code_of(cells):
        parts.append("".join(cell["source"]))
        for output in cell["outputs"]:
            data = output.get("data", {})
            parts += [
                "".join(output.get("text", "")),
                *("".join(data.get(f"text/{kind}", "")) for kind in ("plain", "html")),
            ]
    return "\n".join(parts)


def test_notebooks_are_short():
    words = {path.name[:2]: words_of(read(path)) for path in NOTEBOOKS}
    most = dict(zip(CORE, (1300, 2200, 3000, 2200, 3200, 3000, 2600, 2200, 2600), strict=True))
    assert {number: count for number, count in words.items() if count > most.get(number, 3500)} == {}


def titles():
    first_cells = [json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"] for path in NOTEBOOKS]
    return ["".join(source).splitlines()[0].removeprefix("# ") for source in first_cells]


def test_it_says_what_one_will_be_able_to_do_and_what_goes_wrong(cells):
    assert "".join(cells[1]["source"]).startswith("## You will be able to …\n\n- ")
    assert 3 <= re.match(r"## .+?\n\n((?:- .+\n?)+)", "".join(cells[1]["source"]))[1].count("- ") <= 5
    assert "\n## What goes wrong\n" in text_of(cells)


def test_headings_come_in_order(any_cells):
    levels = [len(hashes) for hashes in re.findall(r"^(#+) ", text_of(any_cells), re.MULTILINE)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    numbers = re.findall(r"^## (\d+)\. ", text_of(any_cells), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


def test_links_lead_somewhere_and_images_have_alternative_texts(any_cells, request):
    folder = request.node.callspec.params["any_cells"].parent
    prose = re.sub(r"`[^`]*`", "", text_of(any_cells))
    for alternative, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", prose):
        assert alternative.strip(), f"{target} has no alternative text"
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not target.startswith("https://"):
            assert (folder / target.split("#")[0]).is_file(), target
    for cell in code_of(any_cells):
        for output in cell["outputs"]:
            if svg := "".join(output.get("data", {}).get("image/svg+xml", "")):
                assert "<title" in svg and "<desc" in svg


def test_the_setup_cell_installs_the_library_only_where_it_is_missing(cells):
    setup = "".join(code_of(cells)[0]["source"])
    assert re.match(
        r"import importlib\.util\n(import \w+\n)*\n"
        r"if importlib\.util\.find_spec\(.transformer_lib.\) is None:\n    %pip install ",
        setup,
    )
    assert "device: " in "".join("".join(output.get("text", "")) for output in code_of(cells)[0]["outputs"])


def test_what_it_shows_is_stored(cells):
    for cell in code_of(cells):
        shows = re.search(r"^(print\(|plots\.|show_source\(|figure\()", "".join(cell["source"]), re.MULTILINE)
        assert cell["outputs"] or not shows, "".join(cell["source"])


def test_only_what_the_reader_writes_is_defined_twice(any_cells, request):
    """``test_readers_code.py`` holds those classes and functions equal to the library's."""
    number = request.node.callspec.params["any_cells"].name[:2]
    source = "\n".join("".join(cell["source"]) for cell in code_of(any_cells))
    for name in re.findall(r"^(?:class|def) (\w+)", source, re.MULTILINE):
        definition = re.compile(rf"^(?:class|def) {name}\b", re.MULTILINE)
        owners = [path for path in MODULES if definition.search(path.read_text(encoding="utf-8"))]
        if number not in ("02", "03", "04") or any(path.parent.name != "model" for path in owners):
            assert not owners, f"{name} is defined in {owners}"


def test_badge_and_setup_lead_to_the_repository_that_pyproject_names(any_cells):
    repository = set_repository.named_repository((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = "".join("".join(cell["source"]) for cell in any_cells)
    assert set(re.findall(r"colab\.research\.google\.com/github/([^/]+/[^/]+)/", text)) == {repository}
    assert set(re.findall(r"git\+https://github\.com/([^/]+/[^\"/]+)", text)) == {repository}


def test_the_repository_is_written_wherever_it_stands_and_can_be_changed_again(tmp_path, capsys):
    others = (ROOT / name for name in ("pyproject.toml", "README.md"))
    files = [*others, *NOTEBOOKS, *SOLUTIONS]
    for file in files:
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    before = set_repository.named_repository((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    set_repository.main("https://github.com/some-one/the.transformer.git", tmp_path)
    for file in files:
        changed = (tmp_path / file.relative_to(ROOT)).read_text(encoding="utf-8")
        assert before not in changed and "some-one/the.transformer" in changed
    set_repository.main(f"https://github.com/{before}", tmp_path)
    for file in files:
        assert (tmp_path / file.relative_to(ROOT)).read_text(encoding="utf-8") == file.read_text(encoding="utf-8")
    for url in ("", "nonsense", "https://github.com/../..", "https://me@github.com/a/b", "https://github.com/a/b/c"):
        with pytest.raises(SystemExit, match=f"URL is '{url}', expected"):
            set_repository.main(url, tmp_path)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize(("given", "kept"), [("my data", f"{ROOT}/my data"), ("/my data", None), ("~/data", None)])
def test_make_hands_on_where_the_corpora_are(given, kept):
    show = '--eval=show: ; @printf "%s" "$$TRANSFORMER_LIB_DATA"'
    make = subprocess.run(
        ["make", "-C", ROOT, "--no-print-directory", show, "show"],
        env={**os.environ, "TRANSFORMER_LIB_DATA": given},
        capture_output=True,
        text=True,
    )
    assert make.stdout == (kept or given), make.stderr


def test_something_in_it_is_compared_with_what_is_stored(cells):
    compared = [cell for cell in code_of(cells) if "nbval-check-output" in cell["metadata"].get("tags", [])]
    assert compared
    assert all(cell["outputs"] for cell in compared)


def exercises_of(cells):
    return re.findall(r"^### ((?:Exercise|Project) \d\d\.\d · .+)$", text_of(cells), re.MULTILINE)


def checks_of(cells):
    """The last line of each cell that checks an exercise, and what it said."""
    for cell in code_of(cells):
        if found := re.match(r'check\("(\d\d\.\d)"', "".join(cell["source"]).splitlines()[-1]):
            results = [output for output in cell["outputs"] if output["output_type"] == "execute_result"]
            yield found[1], "".join(results[-1]["data"]["text/plain"])


def test_its_exercises_are_not_solved_yet(cells, request):
    path = request.node.callspec.params["cells"]
    sections = re.findall(r"^## (.+)$", text_of(cells), re.MULTILINE)
    assert sections[-1] == "What you built" and "What goes wrong" in sections
    headings = exercises_of(cells)
    assert len(headings) >= 2 and headings[0].startswith(("Exercise", "Project"))
    verdicts = list(checks_of(cells))
    assert [name for name, _ in verdicts] == [heading.split()[1] for heading in headings]
    assert [name for name, _ in verdicts] == [f"{path.name[:2]}.{k}" for k in range(1, len(verdicts) + 1)]
    assert all(said.startswith(f"{name} · not solved yet: ") for name, said in verdicts)


def test_each_main_section_of_the_core_has_an_exercise_right_there():
    for path in NOTEBOOKS:
        if path.name[:2] in CORE:
            sections = re.split(r"^## ", text_of(read(path)), flags=re.MULTILINE)
            assert sum("### Exercise" in section for section in sections if section[0].isdigit()) >= 2, path.name


def test_each_exercise_has_a_solution_that_is_right(cells, request):
    path = request.node.callspec.params["cells"]
    solutions = read(path.parent / "solutions" / path.name)
    assert "".join(solutions[0]["source"]).startswith(f"# {path.name[:2]} · Solutions: ")
    assert f"](../{path.name})" in "".join(solutions[0]["source"])
    assert exercises_of(solutions) == exercises_of(cells)
    verdicts = list(checks_of(solutions))
    assert [name for name, _ in verdicts] == [name for name, _ in checks_of(cells)]
    assert all(said.startswith(f"{name} · right: ") for name, said in verdicts)
