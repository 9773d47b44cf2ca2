"""The series in a real JupyterLab, as ``make lab`` opens it from a fresh clone: by keys and mouse, in Chromium."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import torch
from transformer_exercises.film import Film

from transformer_lib.inference.translator import Translation
from transformer_lib.model.transformer import AttentionMaps

pytestmark = [pytest.mark.slow, pytest.mark.processes]

ROOT = Path(__file__).parents[2]
RECIPE = re.search(r"(?m)^lab: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"))[1]
ACTIVE = "cells => cells.findIndex(cell => cell.classList.contains('jp-mod-active'))"
SCROLLED = (
    "() => (document.querySelector('.jp-WindowedPanel-outer') ?? document.querySelector('.jp-Notebook')).scrollTop"
)


def film(first_loss=3.0):
    cross = [torch.full((1, 1, 2, 2), 0.5) for _ in range(3)]
    made = [
        Translation(f"dog {n}", ["a", "b"], ["c", "d"], -1.0, -1.0, AttentionMaps([], [], [cross[n]])) for n in range(3)
    ]
    return Film([first_loss, 2.0, 1.0], [3.0, 2.0, 1.0], made)


def notebook_of(shown):
    """A notebook with one cell, which has this output, between much else."""
    notebook = json.loads((ROOT / "notebooks" / "03_masks.ipynb").read_text(encoding="utf-8"))
    many = [{"cell_type": "markdown", "id": f"m{n}", "metadata": {}, "source": ["text\n\n"] * 9} for n in range(8)]
    data = {"text/html": shown._repr_html_().splitlines(keepends=True), "text/plain": [repr(shown)]}
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}
    cell = {
        "cell_type": "code",
        "id": "shown",
        "execution_count": 1,
        "metadata": {},
        "outputs": [output],
        "source": ["0"],
    }
    return json.dumps({**notebook, "cells": [*many[:4], cell, *many[4:]]})


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a server, started by the commands of ``make lab`` in a copy, for somebody who has nothing yet."""
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: pip install jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    for part in ("notebooks", "book", "tools"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns(".*", "__pycache__", "runs"))
    (folder / "notebooks" / "98_film.ipynb").write_text(notebook_of(film()), encoding="utf-8")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    home = {f"JUPYTER_{name}_DIR": str(folder / ".jupyter" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "notebooks")))
    environment = {**os.environ, **home, "IPYTHONDIR": str(folder / ".ipython"), "PYTHONPATH": paths}
    trust, start = (line.lstrip("\t@").split() for line in RECIPE.splitlines() if "$(BIN)" in line)
    subprocess.run([sys.executable, *trust[1:]], cwd=folder, env=environment, check=True)
    (folder / "notebooks" / "99_film_that_nobody_trusts.ipynb").write_text(notebook_of(film(4.0)), encoding="utf-8")
    options = [
        "--no-browser",
        "--allow-root",
        "--IdentityProvider.token=t",
        f"--port={port}",
        "--ServerApp.port_retries=0",
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyter", *start[1:], *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                urlopen(f"{address}/api", timeout=1).read()
                break
            except URLError:
                assert server.poll() is None
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait()


class Lab:
    """A JupyterLab with one notebook open, and nothing of what others had open before."""

    def __init__(self, browser, address, name):
        self.page, _ = browser.open(f"{address}/lab/tree/notebooks/{name}.ipynb?token=t&reset", height=1000)
        self.page.wait_for_selector(".jp-Notebook .jp-mod-active", timeout=60_000)
        self.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status='idle']", timeout=60_000)
        count = -1
        while count < (count := self.cells().count()):  # they come in portions
            self.page.wait_for_timeout(1000)

    def cells(self):
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")

    def cell(self, word):
        """The first cell with this in it, scrolled to."""
        cell = self.cells().filter(has_text=word).first
        cell.scroll_into_view_if_needed()
        return cell

    def active(self):
        return self.cells().evaluate_all(ACTIVE)

    def run(self, cell, text):
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Control+Enter")


def test_make_lab_opens_the_first_notebook(browser, lab):
    page, _ = browser.open(f"{lab}/?token=t")
    page.wait_for_selector(".jp-Notebook h1:has-text('00 · Quick tour')", timeout=60_000)


@pytest.mark.parametrize(("name", "pictures"), [("00_quick_tour", 1), ("02_attention", 8)])
def test_opened_without_running_it_shows_its_pictures_hides_what_is_hidden_and_has_nothing_to_save(
    name, pictures, browser, lab
):
    opened = Lab(browser, lab, name)
    cells = opened.cells()
    for place in range(cells.count()):
        cells.nth(place).scroll_into_view_if_needed()
    opened.page.wait_for_timeout(1000)
    shown = opened.page.locator(".jp-OutputArea-output:is(.jp-RenderedSVG, .jp-RenderedImage) :is(img, svg)")
    assert len([1 for picture in shown.all() if picture.bounding_box()]) >= pictures
    assert "IPython.core.display" not in " ".join(opened.page.locator(".jp-OutputArea-output").all_inner_texts())
    hidden = opened.page.locator(".jp-OutputPlaceholder").all_inner_texts()
    assert len(hidden) >= 2 and not "".join(hidden).strip()
    stored = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["metadata"]
    if stored["language_info"]["version"] == ".".join(map(str, sys.version_info[:3])):
        assert not opened.page.locator("#jp-main-dock-panel .lm-TabBar-tab.jp-mod-dirty").count()


def test_a_guess_keeps_its_keys_but_for_those_that_run_it(browser, lab):
    opened = Lab(browser, lab, "00_quick_tour")
    guess, before = opened.cell('guess("00.a"'), opened.cells().count()
    guess.locator("summary").last.click()
    for key in ("d", "d", "x"):
        opened.page.keyboard.press(key)
    assert opened.cells().count() == before and guess.locator("details[open]").count() == 1
    here = opened.active()
    opened.page.keyboard.press("Shift+Enter")
    opened.page.wait_for_function(f"here => ({ACTIVE})([...document.querySelectorAll('.jp-Cell')]) > here", arg=here)


def test_arrow_keys_move_the_film_and_not_the_notebook(browser, lab):
    opened = Lab(browser, lab, "98_film")
    slider = opened.page.locator(".training-film input")
    slider.scroll_into_view_if_needed()
    slider.click(position={"x": 100, "y": 5})
    opened.page.keyboard.press("End")
    scrolled = opened.page.evaluate(SCROLLED)
    shown = opened.page.locator(".training-film div[data-epoch]:visible")
    for epoch in (2, 1):
        opened.page.keyboard.press("ArrowLeft")
        assert slider.input_value() == str(epoch) and f"after epoch {epoch}" in shown.inner_text()
    assert opened.page.evaluate(SCROLLED) == scrolled
    assert opened.page.locator(".training-film svg:visible").count() == 2  # the curves, and a map


def test_a_film_that_is_not_trusted_is_sentences(browser, lab):
    opened = Lab(browser, lab, "99_film_that_nobody_trusts")
    said = opened.cell("after epoch 1").inner_text()
    assert "run this cell" in said and "dog 2" in said and "loss" not in said.replace("losses", "")


def test_links_lead_to_a_heading_at_the_first_click_and_to_the_book(browser, lab):
    opened = Lab(browser, lab, "12_subwords")
    opened.page.locator(".jp-Notebook a[href$='#cell-id=5-the-whole-model']").first.click()
    heading = opened.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) h2", has_text="5. The whole model")
    heading.wait_for(timeout=60_000)
    opened.page.wait_for_function(  # within a screen or two: what is above it is still being drawn
        "heading => Math.abs(heading.getBoundingClientRect().top) < 2000", arg=heading.element_handle()
    )
    opened = Lab(browser, lab, "09_bleu")
    opened.page.locator(".jp-Notebook a[href*='results.md']").first.click()
    opened.page.locator(".jp-MarkdownViewer h1").wait_for(timeout=60_000)


def test_a_wrong_answer_and_a_right_one_have_their_signs_and_no_asterisks(browser, lab):
    opened = Lab(browser, lab, "02_attention")
    opened.cell("import importlib.util").locator(".cm-content").click()
    opened.page.keyboard.press("Control+Enter")
    exercise = opened.cell("query_of_der = ...")
    place = opened.cells().evaluate_all("(cells, one) => cells.indexOf(one)", exercise.element_handle())
    exercise = opened.cells().nth(place)  # whatever it will say
    for answer, sign, said in (("(9, 0)", "✗", "now Der looks at Hund"), ("(0, 5)", "✓", "from bellt")):
        opened.run(exercise, f'check("02.2", {answer})')
        shown = exercise.locator(".jp-OutputArea-output b", has_text=sign)
        shown.wait_for(timeout=120_000)
        text = exercise.locator(".jp-OutputArea-output").inner_text()
        assert said in text and "*" not in text
