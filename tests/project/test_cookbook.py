"""The book's cookbook: every recipe runs as it stands, and prints what the page says."""

import contextlib
import io
import re
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
    monkeypatch.setattr(Corpus, "__getitem__", lambda self, split: complete(self, split)[:100])  # to end in seconds
    names = {"__name__": "recipe"}
    for (kind, code), (next_kind, expected) in zip(fences, [*fences[1:], ("", "")], strict=True):
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, heading, "exec"), names)
            if next_kind == "text":
                assert printed.getvalue() == expected
