"""The live translator in a running notebook: JupyterLab, or the classic one with ipywidgets 7, as Colab has it."""

import re
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from urllib.request import urlopen

import pytest
from browser import press_keys

nbformat = pytest.importorskip("nbformat", reason="Jupyter is not installed")
ipywidgets = pytest.importorskip("ipywidgets", reason="ipywidgets is not installed")
pytestmark = pytest.mark.slow
CLASSIC = ipywidgets.__version__.startswith("7.")  # newer notebooks cannot show the widgets of version 7
PROGRAM, PATH = ("notebook", "notebooks") if CLASSIC else ("jupyterlab", "lab/tree")
CELL = """from transformer_exercises.live_translator import LiveTranslator
from transformer_lib import Translator
LiveTranslator(Translator.load(), "Ein Hund schläft.")"""
SHUT_DOWN = """async () => {
  const headers = {"X-XSRFToken": document.cookie.match(/_xsrf=([^;]*)/)[1]}
  for (const {id} of await (await fetch("/api/sessions")).json())
    await fetch(`/api/sessions/${id}`, {method: "DELETE", headers})
}"""  # all kernels
MILLISECONDS = 60_000  # that a step may take on a machine that does much else


@pytest.fixture
def notebook(tmp_path):
    """The address of a notebook with one cell, at a server of its own that nobody else can reach."""
    if not find_spec(PROGRAM):
        pytest.skip(f"{PROGRAM} is not installed")
    here = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    here.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(here, tmp_path / "live.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = ["--ip=127.0.0.1", f"--port={port}", "--no-browser", "--allow-root"]
    settings += [f"--{app}.{name}=" for app in ("ServerApp", "NotebookApp") for name in ("token", "password")]
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "-m", PROGRAM, *settings]
        server = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(MILLISECONDS // 100):
            try:
                urlopen(f"{address}api").close()
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)
        yield f"{address}{PATH}/live.ipynb"
    finally:
        server.terminate()
        server.wait()


def test_a_sentence_that_is_typed_is_translated(notebook, browser, tmp_path):
    page, _ = browser.open(notebook)  # whose own problems are not ours
    page.set_default_timeout(MILLISECONDS)
    cell = page.locator(".jp-CodeCell .cm-content, .code_cell .CodeMirror-lines").first
    prompt = page.locator(".jp-CodeCell .jp-InputArea-prompt, .code_cell .input_prompt").first
    if CLASSIC:  # which waits for ever for what it asked of a kernel that was not there yet
        page.locator(".kernel_idle_icon").wait_for()
    running = re.compile(r"\[[*\d]")
    for _ in range(MILLISECONDS // 5_000):  # until the kernel is there, JupyterLab forgets what it was asked to run
        cell.click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(5_000)
        if running.search(prompt.inner_text()):
            break
    field = page.locator(".widget-text input")
    page.get_by_text("a dog is sleeping.").first.wait_for()
    cells = page.locator(".jp-CodeCell, .code_cell").count()
    field.click()
    page.keyboard.press("ControlOrMeta+A")
    press_keys(page, "Zwei Kinder spielen Fußballl")
    page.keyboard.press("Backspace")
    press_keys(page, ".")
    page.keyboard.press("Enter")
    page.get_by_text("two children are playing soccer.").first.wait_for()
    assert field.input_value() == "Zwei Kinder spielen Fußball."
    viewer = page.locator(".attention-viewer").last
    assert "children" in viewer.locator(".queries").inner_text()
    before = viewer.locator(".keys .word + span").all_inner_texts()
    viewer.get_by_role("combobox", name="Head").focus()
    page.keyboard.press("ArrowDown")
    head = viewer.locator(".keys .word + span").all_inner_texts()
    assert head != before
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert viewer.locator(".keys .word + span").all_inner_texts() != head
    for key in ("b", "x"):  # keys with which the notebook adds and cuts cells, where nobody types
        page.keyboard.press(key)
    assert page.locator(".jp-CodeCell, .code_cell").count() == cells
    if CLASSIC:
        return
    prompt.click()
    page.locator('[data-command="docmanager:save"]:visible').first.click()
    for _ in range(MILLISECONDS // 100):
        if "LiveTranslator: Zwei Kinder" in (tmp_path / "live.ipynb").read_text(encoding="utf-8"):
            break
        page.wait_for_timeout(100)
    page.evaluate(SHUT_DOWN)
    page.reload()  # with another kernel, which has no field
    page.get_by_text("Error displaying widget").wait_for(state="attached")
    assert not page.get_by_text("Error displaying widget").is_visible()
    assert page.get_by_text("two children are playing soccer.").first.is_visible()
