"""The book's cookbook: every recipe runs as it stands, and prints what the page says."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_lib.data.corpora import Corpus

PAGE = (Path(__file__).resolve().parents[2] / "book" / "cookbook.md").read_text(encoding="utf-8")
RECIPES_OF_THE_PAGE = {
    heading: re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    for heading, text in re.findall(r"^### (.+)\n((?:(?!^##).*\n)*)", PAGE, re.M)
}
EXTRAS = {
    "datasets",
    "tokenizers",
    "ctranslate2",
    "onnxruntime",
    "onnx",
    "onnxscript",
    "huggingface_hub",
    "transformers",
    "fastapi",
    "pandas",
    "tensorboard",
}


def test_the_overview_leads_to_every_recipe():
    headings = re.findall(r"^##+ (.+)$", PAGE, re.M)
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]  # as MyST makes them
    assert re.findall(r"\]\(#([^)]+)\)", PAGE.partition("\n## ")[0]) == anchors
    assert {*re.findall(r"\]\(#([^)]+)\)", PAGE)} == {*anchors}


@pytest.mark.filterwarnings("ignore:.*(axis name|LeafSpec)")  # PyTorch's ONNX exporter's own
@pytest.mark.parametrize(
    "heading",
    [
        pytest.param(heading, marks=pytest.mark.slow)
        if heading in ("To ONNX", "Fine-tune the shipped translator")
        else heading
        for heading in RECIPES_OF_THE_PAGE
    ],
)
def test_a_recipe_runs_and_prints_what_the_page_says(heading, tmp_path, monkeypatch):
    fences = RECIPES_OF_THE_PAGE[heading]
    assert fences, f"{heading} has no code"
    imported = re.findall(r"^\s*(?:import|from) ([\w.]+)", "".join(code for _, code in fences), re.M)
    for package in EXTRAS & {part for name in imported for part in name.split(".")}:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    monkeypatch.chdir(tmp_path)
    complete = Corpus.__getitem__
    if "text" not in dict(fences):  # what the page quotes is of the whole; anything else ends in seconds
        monkeypatch.setattr(Corpus, "__getitem__", lambda self, split: complete(self, split)[:100])
    names = {"__name__": "recipe"}
    for (kind, code), (next_kind, expected) in zip(fences, [*fences[1:], ("", "")], strict=True):
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, heading, "exec"), names)
            if next_kind == "text":
                assert printed.getvalue() == expected


def test_the_command_that_scores_a_file_ignores_case_in_every_measure(tmp_path):
    (command,) = re.findall(r"^(sacrebleu .+)$", PAGE, re.M)
    for file, text in (
        ("english.txt", "A Dog Sleeps In The Garden.\n"),
        ("translated.txt", "a dog sleeps in the garden.\n"),
    ):
        (tmp_path / file).write_text(text, encoding="utf-8")
    said = subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=tmp_path, capture_output=True, check=True)
    scores = {one["name"]: round(one["score"]) for one in json.loads(said.stdout)}
    assert scores == {"BLEU": 100, "chrF2": 100}


@pytest.mark.slow  # four times, matplotlib looks for all fonts of the machine
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, matplotlib looks for fonts in other folders")
def test_a_font_that_is_new_is_found_after_the_two_lines_of_the_recipe_and_not_before(tmp_path):
    font_tools = pytest.importorskip("fontTools.ttLib")
    font_manager = pytest.importorskip("matplotlib.font_manager")
    (recipe,) = re.findall(r"^```\n(import matplotlib, shutil\n.*?)^```$", PAGE, re.M | re.S)
    environment = {**os.environ, "HOME": str(tmp_path), "MPLCONFIGDIR": str(tmp_path / "settings")}
    environment.pop("XDG_DATA_HOME", None)

    def fonts():
        code = "from transformer_lib.notebook.plots import STYLE; print(STYLE['font.family'])"
        said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return said.stdout

    name = "Noto Sans Devanagari"
    if name in fonts():
        pytest.skip(f"{name} is installed on this machine")
    font = font_tools.TTFont(font_manager.findfont("DejaVu Sans"))
    for record in font["name"].names:
        record.string = name
    folder = tmp_path / ".local" / "share" / "fonts"
    folder.mkdir(parents=True)
    font.save(folder / "new.ttf")
    assert name not in fonts()  # so it does not help to install it, and to restart Python
    subprocess.run([sys.executable, "-c", recipe], env=environment, check=True)
    assert name in fonts()
