"""The page of the paper's numbers shows what ``benchmarks/paper.py`` prints."""

import re
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="Windows measures memory in another way")
import paper

PAGE = (Path(__file__).parents[2] / "book" / "paper.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
VARY = {"times", "scores", "adam", "warmup"}  # with the machine, or with PyTorch's random numbers


def test_each_block_is_what_one_part_prints():
    assert len(BLOCKS) == len(paper.PARTS)
    for name in paper.PARTS.keys() - VARY:
        assert paper.printed_by(name) in BLOCKS, name


def without_numbers(text):
    return re.sub(r"[-\d.]+ *", "#", text)


def test_blocks_that_vary_say_the_same_with_other_numbers(monkeypatch):
    monkeypatch.setattr(paper, "SMALL", True)
    for name in VARY - {"times"}:  # which names the sizes that it has
        assert without_numbers(paper.printed_by(name)) in map(without_numbers, BLOCKS), name
