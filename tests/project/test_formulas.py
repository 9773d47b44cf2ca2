"""Formulas: each of the notebooks' and pages' can be drawn, by the book without a script; a broken one is noticed."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "book").glob("*.md"), *(ROOT / "notebooks").rglob("[0-9]*.ipynb")])
CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "book")!r})
extensions = ["myst_parser", "formulas"]
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = False
html_math_renderer = "mathml"
"""


@pytest.fixture(scope="module", autouse=True)
def of_the_book():
    for package in ("sphinx", "myst_parser"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[book]'")


@pytest.fixture(scope="module")
def formulas():
    spec = importlib.util.spec_from_file_location("formulas", ROOT / "book" / "formulas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(path):
    """What markdown there is: a page, or a notebook's cells, one by one."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return [text]
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]


def formulas_in(text):
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    reader = MarkdownIt("gfm-like", {"linkify": False})
    reader.use(dollarmath_plugin, allow_space=False)
    for token in reader.parse(text):
        for one in (token, *(token.children or ())):
            if one.type.startswith("math"):
                yield one.content, one.type.startswith("math_block")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_formula_can_be_drawn(path, formulas):
    wrong = []
    for text in texts(path):
        for tex, block in formulas_in(text):
            try:
                formulas.mathml(tex, block)
            except (formulas.MathError, IndexError) as error:
                wrong.append(f"{tex}: {error}")
    assert not wrong


@pytest.mark.parametrize("tex", [r"\frac{1", "a_{", "a}", r"\foo", r"\frac{a}", r"\begin{pmatrix} 1", r"\left( x"])
def test_a_formula_that_is_not_whole_is_no_formula(tex, formulas):
    with pytest.raises(formulas.MathError):
        formulas.mathml(tex, False)


@pytest.mark.parametrize(
    ("ours", "docutils"),
    [
        (r"a, \dots, b", r"a, \ldots, b"),
        (r"\Big(x\Big)", r"\Bigl(x\Bigr)"),
        (r"\tfrac12", r"\tfrac{1}{2}"),
        (r"\texttt{pad}", r"\mathtt{pad}"),
    ],
)
def test_what_jupyterlab_knows_and_docutils_does_not_is_said_in_its_words(ours, docutils, formulas):
    assert formulas.mathml(ours, True) == formulas.mathml(docutils, True)


def build(folder, text):
    source = folder / "source"
    source.mkdir()
    (source / "index.md").write_text(f"# Formulas\n\n{text}\n", encoding="utf-8")
    (source / "conf.py").write_text(CONF, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", source, folder / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    page = folder / "out" / "index.html"
    return done, page.read_text(encoding="utf-8") if page.is_file() else ""


@pytest.mark.processes
def test_a_page_has_its_formulas_in_it_and_no_script_that_draws_them(tmp_path):
    done, page = build(tmp_path, "From $5 to $10: $\\sqrt{d_k}$, and\n\n$$\n\\frac{QK^\\top}{\\sqrt{d_k}}\n$$")
    assert done.returncode == 0, done.stderr
    assert "From $5 to $10:" in page and page.count("<msqrt>") == 2
    assert re.search(r'<div class="formula"><math [^>]*display="block"', page)
    assert re.search(r'class="whole"><math .*?</math>,</span>', page, re.DOTALL)
    assert not re.search(r"<script[^>]*(mathjax|https?:)", page, re.IGNORECASE)


@pytest.mark.processes
@pytest.mark.parametrize("broken", [r"$\frac{1$", r"$$\sqroot{2}$$"])
def test_a_broken_formula_fails_the_build(tmp_path, broken):
    done, _ = build(tmp_path, broken)
    assert done.returncode != 0 and "cannot be drawn" in done.stderr and "index.md" in done.stderr
