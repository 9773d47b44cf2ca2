"""The README: its wrong answer gets that hint; minutes are the notebooks', numbers the book's; its pictures fit."""

import re
from pathlib import Path

import pytest
import torch
from test_exercises import SERIES
from transformer_exercises import write

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "book" / "results.md").read_text(encoding="utf-8")


def test_the_wrong_answer_gets_the_hint_that_is_quoted(capsys):
    code, hint = re.search(r"^```python\n(def .*?)^```\n\n> (.+?)\n\n", PAGE, re.MULTILINE | re.DOTALL).groups()
    exec(code, {"torch": torch, "write": write})
    assert capsys.readouterr().out.split() == hint.split()


def test_the_minutes_of_the_table_are_those_at_the_notebooks_heads():
    rows = re.findall(r"^\| \[(\d\d) .+ \| (\d+), (\d+) \|$", PAGE, re.MULTILINE)
    assert [number for number, *_ in rows] == [f"{number:02}" for number in range(10)]
    for number, *minutes in rows:
        head = "".join(SERIES[number]["cells"][0]["source"])
        assert minutes == [*re.search(r"Reading time: (\d+) minutes, (\d+) with", head).groups()], number


def test_the_one_file_has_as_many_lines_as_is_said_and_the_scores_that_were_measured():
    lines, least, most = re.search(
        r"(\d+) lines that need PyTorch.*?([\d.]+) to ([\d.]+) BLEU", PAGE, re.DOTALL
    ).groups()
    assert abs(len((ROOT / "the_transformer.py").read_text(encoding="utf-8").splitlines()) - int(lines)) <= 10
    measured = re.search(r"\*\*The whole in one file.*?\| seed \|.*?\n\n", RESULTS, re.DOTALL)[0]
    greedy = [float(score) for score in re.findall(r"^\| \d \| ([\d.]+) \|", measured, re.MULTILINE)]
    assert f"{min(greedy):.1f}" == least and f"{max(greedy):.1f}" == most
    theirs = [float(score) for score in re.findall(r"\d\d\.\d\d", RESULTS.partition("published scores:")[2][:60])]
    assert f"have {min(theirs):.1f} to {max(theirs):.1f}" in PAGE
    for score in re.search(r"translator has ([\d.]+), and ([\d.]+) with a beam", PAGE).groups():
        shipped = re.search(r"^\| `multi30k_best`.*$", RESULTS, re.MULTILINE)[0]
        assert any(abs(float(score) - float(number)) < 0.051 for number in re.findall(r"\d\d\.\d\d", shipped)), score


def test_pictures_come_in_light_and_in_dark_say_what_they_show_and_are_small():
    pictures = re.findall(r"<picture>.*?</picture>", PAGE, re.DOTALL)
    assert len(pictures) == 2
    for picture in pictures:
        light, dark = re.search(r'src="([^"]+)"', picture)[1], re.search(r'srcset="([^"]+)"', picture)[1]
        assert dark == light.replace("light", "dark") and len(re.search(r'alt="([^"]+)"', picture)[1]) > 80
        for file in (light, dark):
            assert (ROOT / file).stat().st_size <= 150_000, file


def test_the_photographs_show_one_page_twice():
    Image = pytest.importorskip("PIL.Image")
    sizes, brightness = [], []
    for scheme in ("light", "dark"):
        with Image.open(ROOT / "assets" / f"try_it_{scheme}.webp") as picture:
            sizes.append(picture.size)
            brightness.append(picture.convert("L").resize((1, 1)).getpixel((0, 0)))
    assert sizes[0] == sizes[1]
    assert brightness[0] > 200 and brightness[1] < 70
