"""What must be true of every committed notebook; nbval, in `make test`, re-runs their cells.

A test is a property of all notebooks: it fails with a list of those that lack it.
"""

import ast
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
from types import SimpleNamespace

import pytest
from conftest import PlotsByTheirText

ROOT = Path(__file__).parents[2]
MODULES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "transformer_lib").rglob("*.py")}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("[0-9]*.ipynb"))
MACHINE_PATH = re.compile(r"/(?:root|home|work|tmp|Users)/|[A-Z]:\\\\|site-packages")


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


set_repository = load_script("set_repository")
HOST, REPOSITORY = set_repository.address((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ADDRESSES = {f"https://{HOST}/{REPOSITORY}"} if REPOSITORY != set_repository.UNNAMED else set()
BADGES = {REPOSITORY} if ADDRESSES and HOST == "github.com" else set()  # Colab opens notebooks from there alone
CELLS = {path: json.loads(path.read_text(encoding="utf-8"))["cells"] for path in NOTEBOOKS + SOLUTIONS}
SERIES = {path: CELLS[path] for path in NOTEBOOKS}


TWICE = {  # besides the boxes of 02 to 05: what may be called as something in the library
    ("06", "train_steps"),  # readers write this one
    ("08", "say"),  # other things, and no copies
    ("17", "batches_of"),
}


def source_of(cell):
    return "".join(cell["source"])


def code_of(cells):
    return [cell for cell in cells if cell["cell_type"] == "code"]


def text_of(cells):
    return "\n\n".join(source_of(cell) for cell in cells if cell["cell_type"] == "markdown")


def outputs_of(cells):
    return [output for cell in code_of(cells) for output in cell["outputs"]]


def without(holds, notebooks=CELLS):
    """The notebooks for whose cells a property does not hold."""
    return [f"{path.parent.name}/{path.stem}" for path, cells in notebooks.items() if not holds(cells)]


# What is stored of a run


def test_notebooks_were_run_in_order_from_a_clean_kernel():
    def in_order(cells):
        counts = [cell["execution_count"] for cell in code_of(cells)]
        return counts and counts == list(range(1, len(counts) + 1))

    assert CELLS and not without(in_order)


def test_no_cell_is_empty_and_none_ends_in_an_error_or_a_warning():
    assert not without(lambda cells: all(source_of(cell).strip() for cell in cells))
    assert not without(lambda cells: not any(output["output_type"] == "error" for output in outputs_of(cells)))
    assert not without(lambda cells: not any(output.get("name") == "stderr" for output in outputs_of(cells)))


def test_no_path_of_a_machine_no_progress_bar_and_no_state_of_a_widget_is_stored():
    assert not without(lambda cells: not MACHINE_PATH.search(json.dumps(outputs_of(cells))))
    assert not without(lambda cells: not any("\r" in "".join(output.get("text", "")) for output in outputs_of(cells)))
    for path in CELLS:
        kept = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        assert kept.keys() - {"accelerator"} == {"kernelspec", "language_info"}, path


def test_the_series_is_trusted_once_and_only_as_it_is(tmp_path, monkeypatch):
    sign = pytest.importorskip("nbformat.sign", reason="Jupyter is not installed")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks" / "solutions", folder / "solutions")
    shutil.copy(NOTEBOOKS[0], folder)
    (folder / "01_broken.ipynb").write_text("{", encoding="utf-8")
    trust = load_script("trust_notebooks").trust
    assert len(trust(folder)) == len(SOLUTIONS) + 1 and trust(folder) == []
    mine = folder / NOTEBOOKS[0].name
    mine.write_text(mine.read_text(encoding="utf-8").replace("<svg", "<svg onload='…'", 1), encoding="utf-8")
    notary = sign.NotebookNotary()
    assert not notary.check_signature(sign.reads(mine.read_text(encoding="utf-8"), 4))
    notary.store.close()


def test_jupyterlab_and_colab_find_in_the_metadata_what_they_would_write_there():
    """Where something differs, such as a kernel's name, JupyterLab has "unsaved changes" seconds after it opens one."""
    ipkernel = pytest.importorskip("ipykernel.ipkernel", reason="Jupyter is not installed")
    from ipykernel.kernelspec import get_kernel_dict

    says = {"language_info": ipkernel.IPythonKernel.language_info}
    says["kernelspec"] = {"name": "python3", **{key: get_kernel_dict()[key] for key in ("display_name", "language")}}
    versions, with_gpu = set(), set()
    for path in CELLS:
        kept = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        versions.add(kept["language_info"]["version"])  # of the Python that ran it: with another, there is no help
        says["language_info"]["version"] = kept["language_info"]["version"]
        assert {kind: kept[kind] for kind in says} == says, path
        if kept.get("accelerator") == "GPU":  # which Colab lends for so many hours a day
            with_gpu.add(path.name[:2])
    assert len(versions) == 1
    assert with_gpu == {"06", "10", "13", "14"}  # what trains on Multi30k or a novel, and what measures speed


def test_what_a_cell_shows_is_stored():
    def stored(cells):
        shows = re.compile(r"^(print\(|plots\.|show_source\(|figure\()", re.MULTILINE)
        return all(cell["outputs"] for cell in code_of(cells) if shows.search(source_of(cell)))

    assert not without(stored)


def test_pictures_are_stored_as_svgs():
    """``plots`` shows nothing else: a PNG, a white slab on a dark page, is an output of a time before that."""
    assert not without(lambda cells: not any("image/png" in output.get("data", {}) for output in outputs_of(cells)))


def is_compared(cell):
    return "nbval-check-output" in cell["metadata"].get("tags", [])


def test_something_in_each_notebook_is_compared_with_what_is_stored():
    def compared(cells):
        tagged = [cell for cell in code_of(cells) if is_compared(cell)]
        return tagged and all(cell["outputs"] for cell in tagged)

    assert not without(compared, SERIES)


def test_nbval_compares_a_plot_by_its_text_and_a_drawing_to_the_last_line():
    nbval = SimpleNamespace(sanitize_patterns={})
    PlotsByTheirText.pytest_collectstart(nbval)
    ((pattern, instead),) = nbval.sanitize_patterns.items()
    compared = {"Picture": [], "Drawing": []}
    cells = [cell for cell in code_of(itertools.chain(*SERIES.values())) if is_compared(cell)]
    for output in outputs_of(cells):
        data = {kind: "".join(lines) for kind, lines in output.get("data", {}).items()}
        if "image/svg+xml" in data:
            kind, _, text = data["text/plain"].partition(":")
            assert text.strip() and re.sub(pattern, instead, data["text/plain"]) == data["text/plain"]
            compared[kind].append(re.sub(pattern, instead, data["image/svg+xml"]))
    assert set(compared["Picture"]) == {instead} and not any(instead == svg for svg in compared["Drawing"])
    assert compared["Drawing"] and all("<svg" in svg for svg in compared["Drawing"])


SHOWN = ("text/html", "image/svg+xml", "image/png", "text/markdown", "text/plain")  # the first that an output has


def read_by_people(page):
    return "".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())


def test_nothing_that_is_shown_between_a_guess_and_its_fold_gives_the_answer_away():
    for path, cells in SERIES.items():
        for number, cell in enumerate(cells):
            if not source_of(cell).startswith("guess("):
                continue
            rest = cells[number + 1 :]
            following = list(itertools.takewhile(lambda one: one["cell_type"] == "code", rest))
            hidden = [one["metadata"].get("jupyter", {}).get("outputs_hidden") for one in following]
            assert following and all(hidden), (path.name, number)
            assert source_of(rest[len(following)]).startswith("<details>"), (path.name, number)


def test_no_key_that_moves_a_stored_slider_is_jupyterlabs():
    for path, cells in CELLS.items():
        for output in outputs_of(cells):
            page = "".join(output.get("data", {}).get("text/html", ""))
            for slider in re.findall(r'<input type="range"[^>]*>', page):
                assert "data-lm-suppress-shortcuts" in slider, path


@pytest.mark.slow  # makes a page of each notebook
def test_pages_show_every_stored_output_and_wait_for_no_widget():
    nbconvert = pytest.importorskip("nbconvert", reason="Jupyter is not installed")
    for path in CELLS:
        page, _ = nbconvert.HTMLExporter().from_filename(str(path))
        assert "widget-view+json" not in page, path  # it would need its kernel, and shows nothing without
        page, text = "".join(page.split()), read_by_people(page)
        for output in outputs_of(CELLS[path]):
            stored = output.get("data", {"text/plain": output.get("text")})
            data = {kind: "".join(lines) for kind, lines in stored.items()}
            kind = next(kind for kind in SHOWN if kind in data)
            if kind == "image/png":
                assert "".join(data[kind].split()) in page, path
            elif kind == "image/svg+xml":
                assert base64.b64encode(data[kind].encode()).decode() in page, path
            elif kind == "text/html":
                assert read_by_people(data[kind]) in text, path
            else:
                assert "".join(re.sub(r"```\w*|</?(details|summary)>", "", data[kind]).split()) in text, path


# What readers are told


def test_they_open_with_their_number_and_lead_to_their_neighbours():
    titles = [source_of(cells[0]).splitlines()[0].removeprefix("# ") for cells in SERIES.values()]
    for place, (path, cells) in enumerate(SERIES.items()):
        first, last = source_of(cells[0]), source_of(cells[-1])
        assert re.fullmatch(rf"{path.name[:2]} · \S.*", titles[place]), path
        assert (f"/blob/main/notebooks/{path.name})" in first) == bool(BADGES), path
        links = {
            number: f"[{titles[number]}]({NOTEBOOKS[number].name})"
            for number in (place - 1, place + 1)
            if 0 <= number < len(titles)
        }
        assert all(link in first for link in links.values()), path
        assert links.get(place + 1, "") in last, path  # which ends with the way on


def test_headings_come_in_order():
    def ordered(cells):
        levels = [len(hashes) for hashes in re.findall(r"^(#+) ", text_of(cells), re.MULTILINE)]
        numbers = re.findall(r"^## (\d+)\. ", text_of(cells), re.MULTILINE)
        steps = all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
        one_title = levels[0] == 1 and levels.count(1) == 1
        return steps and one_title and numbers == [str(number) for number in range(1, len(numbers) + 1)]

    assert not without(ordered)


def leads_to_a_heading(folder, target):
    """Whether a link to another notebook's heading lands there.

    JupyterLab finds a heading's name only where that notebook is open already, and a cell's id at once. So a cell that
    is linked to begins with its heading, and is called as GitHub and the book call that.
    """
    name, _, anchor = target.partition("#cell-id=")
    cells = [cell for cell in CELLS.get((folder / name).resolve(), ()) if cell["id"] == anchor]
    return len(cells) == 1 and slug(source_of(cells[0]).splitlines()[0]) == anchor


def slug(heading):
    """What GitHub, and MyST with it, makes of a heading."""
    assert heading.startswith("#"), heading
    return re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower()).replace(" ", "-")


def test_links_lead_somewhere_and_images_have_alternative_texts():
    for path, cells in CELLS.items():
        prose = re.sub(r"`[^`]*`", "", text_of(cells))
        for alternative, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", prose):
            assert alternative.strip(), f"{path.name}: {target} has no alternative text"
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if not target.startswith("https://"):
                assert (path.parent / target.split("#")[0]).is_file(), f"{path.name}: {target}"
            if ".ipynb#" in target:
                assert leads_to_a_heading(path.parent, target), f"{path.name}: {target}"
        for output in outputs_of(cells):
            svg = "".join(output.get("data", {}).get("image/svg+xml", ""))
            if svg and 'id="figure_1"' not in svg:  # a drawing; what a plot shows, a caption or the metadata say
                assert "<title" in svg and "<desc" in svg, path


# What prose may quote though no output of its notebook prints it: facts about others, and labels in pictures.
QUOTED = {
    "00": "29,000 43.71",  # Multi30k; `transformer-lib evaluate`
    "01": "31,014 0.95",  # Multi30k; an example
    "02": "1.61 0.88",  # ln 5; e² / (e² + 1)
    "03": "4.113 2.028",  # notebook 02's table
    "04": "3.5 25.7 25.8",  # the paper's section, its Table 3, row (E)
    "05": "29,000",  # Multi30k
    "06": "29,000 40.2 1.15 1.671 5.316 36.52"  # book/results.md; a published log;
    " 4.2 5.3 5.4 1.2 3.0 1.0078",  # notebook 13; the paper's sections; −ln 0.3 and −ln 0.05; 1 + 2⁻⁷
    "07": "2.2 2.7 8,000",  # an exercise's table; the sample corpus
    "09": "0.51 28.4 1.6 36.52"  # another scale; the paper's Table 2; a rounded interval; the tutorial;
    " 36.85 37.27 37.25",  # book/results.md
    "15": "1706.03762 6.3",  # the paper's address, and its section
    "16": "1.2",  # PyTorch's version
    "10": "6.26 1,024",  # ln 524.3; GPT-2's length
    "11": "12.5 3.54",  # (9 + 16) / 2, and its root
    "12": "4.5 37,000 5.1",  # the paper's corpus, and its section
    "13": "5.1 6.1 16,000 37,000 35.08 36.52 38.10",  # the paper's sections; an exercise; book/results.md
    "14": "1.85 100,000",  # book/results.md; a large vocabulary
    "17": "0.6",  # the paper's length penalty
}


def numbers_in(text):
    return re.findall(r"(?<![\w.^/])\d[\d,]*(?:\.\d+)?(?!\w*\.?\d)", text)


def everything_printed(cells):
    parts = [source_of(cell) for cell in code_of(cells)]
    for output in outputs_of(cells):
        data = output.get("data", {})
        texts = (output.get("text", ""), data.get("text/plain", ""), data.get("text/html", ""))
        parts += ["".join(text) for text in texts]
    return "\n".join(parts)


def test_what_prose_quotes_is_what_the_outputs_say():
    """Numbers with decimals or thousands, up to rounding, also as percentages."""
    wrong = []
    for path, cells in SERIES.items():
        printed = [float(number.replace(",", "")) for number in numbers_in(everything_printed(cells))]
        not_prose = r"```.*?```|`[^`]*`|\]\([^)]*\)|<details>.*?</details>"
        prose = re.sub(not_prose, "", text_of(cells[1:]), flags=re.DOTALL)
        for number in set(re.findall(r"(?<![\w.·^/\d])(\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+)(?![\w.]*\d)", prose)):
            decimals, value = len(number.partition(".")[2]), float(number.replace(",", ""))
            close = any(abs(round(scale * shown, decimals) - value) < 1e-9 for shown in printed for scale in (1, 100))
            if not close and number not in QUOTED.get(path.name[:2], "").split():
                wrong.append((path.stem, number))
    assert not wrong


# Exercises


def exercises_of(cells):
    return re.findall(r"^### ((?:Exercise|Project) \d\d\.\d · .+)$", text_of(cells), re.MULTILINE)


def verdicts_of(cells):
    """The exercise that each checking cell names in its last line, and what it said."""
    for cell in code_of(cells):
        if checked := re.match(r'check\("(\d\d\.\d)"', source_of(cell).splitlines()[-1]):
            results = [output for output in cell["outputs"] if output["output_type"] == "execute_result"]
            yield checked[1], "".join(results[-1]["data"]["text/plain"])


def test_exercises_are_numbered_checked_and_not_solved_yet():
    for path, cells in SERIES.items():
        verdicts = list(verdicts_of(cells))
        names = [f"{path.name[:2]}.{number}" for number in range(1, len(verdicts) + 1)]
        assert names and [name for name, _ in verdicts] == names, path
        assert [heading.split()[1] for heading in exercises_of(cells)] == names
        assert not [said for name, said in verdicts if not said.startswith(f"{name} · not solved yet: ")]


def test_each_exercise_has_a_solution_that_is_right():
    for path, cells in SERIES.items():
        solutions = CELLS[path.parent / "solutions" / path.name]
        assert source_of(solutions[0]).startswith(f"# {path.name[:2]} · Solutions: ")
        assert f"](../{path.name})" in source_of(solutions[0])
        assert exercises_of(solutions) == exercises_of(cells)
        verdicts = list(verdicts_of(solutions))
        assert [name for name, _ in verdicts] == [name for name, _ in verdicts_of(cells)]
        assert not [said for name, said in verdicts if not said.startswith(f"✓ {name} · right: ")]


# The library and the repository that they lead to


def test_setup_cells_install_the_library_only_where_it_is_missing():
    def installs(cells):
        setup, way = code_of(cells)[0], set_repository.SETUP.findall(source_of(code_of(cells)[0]))
        said = "".join("".join(output.get("text", "")) for output in setup["outputs"])
        begins = re.match(r"import importlib\.util\n(import \w+\n)*\nif ", source_of(setup))
        return begins and len(way) == 1 and ("device: " in said or cells not in SERIES.values())

    assert not without(installs)
    for written in (set_repository.WHEEL, set_repository.ADDRESS.format(url="https://github.com/some-one/it")):
        assert set_repository.SETUP.fullmatch(written) and len(written.splitlines()) <= 9  # it is in every notebook


def run_setup(way, comes, tmp_path, monkeypatch):
    """Run a setup cell in a folder of files, with a pip that brings the library if it likes what it is given."""
    found = []

    def pip(line):
        file = Path(line.removeprefix("install --quiet "))
        if file.is_file() and file.name == "transformer_step_by_step-0.2.0-py3-none-any.whl":
            found.append(file.read_text(encoding="utf-8"))
        return found

    finder = SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: found or None))
    monkeypatch.chdir(tmp_path)
    for name in comes:
        Path(name).write_text(name, encoding="utf-8")
    code = re.sub(r"(?m)^( +)%pip (.*)$", r"\1pip(f'\2')", way)
    exec(code, {"importlib": finder, "pip": pip})
    return found


def test_the_setup_cell_finds_the_wheel_also_as_a_browser_calls_it_or_asks_for_it(tmp_path, monkeypatch):
    wheel = "transformer_step_by_step-0.2.0-py3-none-any{}.whl"
    for place, comes in enumerate(
        ([wheel.format("")], [wheel.format(" (1)")], [wheel.format(""), wheel.format(" (2)")])
    ):
        folder = tmp_path / str(place)
        folder.mkdir()
        assert run_setup(set_repository.WHEEL, comes, folder, monkeypatch)[0] == comes[-1]
    (tmp_path / "without").mkdir()
    for way, words in ((set_repository.WHEEL, "upload transformer_step_by_step"), (set_repository.ADDRESS, "pip says")):
        with pytest.raises(ModuleNotFoundError, match=words) as asked:
            run_setup(way.format(url="https://x") if "{url}" in way else way, [], tmp_path / "without", monkeypatch)
        assert "uv pip install" in str(asked.value)  # in an environment without pip, `%pip` says so and goes on


def test_only_what_the_reader_writes_is_defined_twice():
    """``test_readers_code.py`` holds those classes and functions equal to the library's.

    What only its own module uses may be called as something in a notebook, by chance.
    """
    imports = [node for text in MODULES.values() for node in ast.walk(ast.parse(text)) if hasattr(node, "module")]
    shared = {alias.name for node in imports for alias in node.names}
    for path, cells in CELLS.items():
        source = "\n".join(source_of(cell) for cell in code_of(cells))
        for name in shared & {*re.findall(r"^(?:class|def) (\w+)", source, re.MULTILINE)}:
            definition = re.compile(rf"^(?:class|def) {name}\b", re.MULTILINE)
            owners = [module for module, text in MODULES.items() if definition.search(text)]
            is_a_box = path.name[:2] in ("02", "03", "04", "05") and all(
                module.parent.name == "model" for module in owners
            )
            if not is_a_box and (path.name[:2], name) not in TWICE:
                assert not owners, f"{path.name} defines {name}, as do {owners}"


def test_badge_and_setup_lead_to_the_repository_that_pyproject_names_and_nowhere_as_long_as_it_names_none():
    def leads(cells):
        text = "".join(source_of(cell) for cell in cells)
        badges = set(re.findall(r"colab\.research\.google\.com/github/([^/]+/[^/]+)/", text))
        return badges == BADGES and set(re.findall(r"git\+(https://[^\"]+)", text)) == ADDRESSES

    def says_how_to_install_what_has_no_address(cells):
        return bool(ADDRESSES) or "pip wheel" in source_of(code_of(cells)[0])

    assert not without(leads)
    assert not without(says_how_to_install_what_has_no_address)
    if not ADDRESSES:
        assert set_repository.UNNAMED not in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_repository_is_written_wherever_it_stands_and_can_be_changed_again(tmp_path):
    files = [ROOT / "pyproject.toml", ROOT / "README.md", *CELLS]
    for file in files:
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    set_repository.main("https://github.com/some-one/the.transformer.git", tmp_path)
    for file in files:
        changed = (tmp_path / file.relative_to(ROOT)).read_text(encoding="utf-8")
        assert REPOSITORY not in changed and "some-one/the.transformer" in changed
        if file in CELLS:  # in its head, one badge that leads to itself
            head = json.loads(changed)["cells"][0]["source"]
            address = f"some-one/the.transformer/blob/main/{file.relative_to(ROOT).as_posix()}"
            assert [line.endswith(f"/{address})\n") or line.endswith(f"/{address})") for line in head].count(True) == 1
    set_repository.main("https://github.com/another/one", tmp_path)
    assert not [file for file in files if "some-one" in (tmp_path / file.relative_to(ROOT)).read_text(encoding="utf-8")]
    set_repository.main(f"https://{HOST}/{REPOSITORY}", tmp_path)
    for file in files:
        assert (tmp_path / file.relative_to(ROOT)).read_text(encoding="utf-8") == file.read_text(encoding="utf-8")
    for url in ("", "nonsense", "https://github.com/../..", "https://me@github.com/a/b", "https://github.com/a/b/c"):
        with pytest.raises(SystemExit, match=f"URL is '{url}', expected"):
            set_repository.main(url, tmp_path)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_hands_on_where_the_corpora_are():
    show = '--eval=show: ; @printf "%s" "$$TRANSFORMER_LIB_DATA"'
    command = ["make", "-C", ROOT, "--no-print-directory", show, "show"]
    for given, expected in {"my data": f"{ROOT}/my data", "/my data": "/my data", "~/data": "~/data"}.items():
        environment = {**os.environ, "TRANSFORMER_LIB_DATA": given}
        make = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert make.stdout == expected, make.stderr
