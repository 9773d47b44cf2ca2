"""What docstrings and pages say of where a thing is explained is so."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_notebooks import set_repository

import transformer_lib

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(transformer_lib.__file__).parent
REFERENCE = re.compile(r"Notebook\s+(\d\d),\s+(?:sections?\s+(\d+)(?:\s+(to|and)\s+(\d+))?|\"(.+?)\")")


def references():
    for path in sorted(LIBRARY.rglob("*.py")):
        for notebook, first, word, last, heading in REFERENCE.findall(path.read_text(encoding="utf-8")):
            numbers = range(int(first), int(last) + 1) if word == "to" else [int(n) for n in (first, last) if n]
            for section in [f"{number}. " for number in numbers] or [heading]:
                yield path.relative_to(LIBRARY).as_posix(), notebook, section


def test_the_sections_that_docstrings_name_exist():
    named = sorted(set(references()))
    assert {module for module, _, _ in named} >= {"model/attention.py", "model/encoder.py"}
    for module, notebook, section in named:
        (path,) = (ROOT / "notebooks").glob(f"{notebook}_*.ipynb")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        start = r"##+ " + re.escape(section) + ("" if section.endswith(". ") else "$")
        assert re.search(f"^{start}", text, flags=re.MULTILINE), f"{module} names section {section} of {path.name}"


def test_links_of_the_pages_lead_to_files():
    pages = [*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md"), *(ROOT / "assets").glob("*.md")]
    assert len(pages) > 10
    for page in pages:
        text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_leads_to_colab_and_to_the_book_where_they_can_be_found():
    readme = set_repository.with_address((ROOT / "README.md").read_text(encoding="utf-8"), "")
    on_github = set_repository.with_address(readme, "https://github.com/some-one/the.transformer")
    elsewhere = set_repository.with_address(on_github, "https://codeberg.org/another/one")
    links = [set(re.findall(r"\]\((https://\S+?)\)", text)) for text in (readme, on_github, elsewhere)]
    assert links[1] - links[0] == {
        "https://some-one.github.io/the.transformer/try_it.html",
        "https://colab.research.google.com/assets/colab-badge.svg",
        "https://colab.research.google.com/github/some-one/the.transformer/blob/main/notebooks/00_quick_tour.ipynb",
    }
    assert links[2] == links[0] and elsewhere.count("https://codeberg.org/another/one") == 2
    assert set_repository.with_address(elsewhere, "") == readme


def test_the_books_settings_suit_the_sphinx_that_is_installed():
    """Each Python gets another Sphinx and another MyST; the book itself is built by slow tests only."""
    for package in ("sphinx", "myst_nb", "sphinx_book_theme"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[book]'")
    subprocess.run([sys.executable, "conf.py"], cwd=ROOT / "book", check=True)
