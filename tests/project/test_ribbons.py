"""The README's picture: its ribbons are the translator's attention, and it can be read on every page, also at rest."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import draw_ribbons
import pytest

from transformer_lib import Translator

ASSETS = Path(__file__).parents[2] / "assets"
SVG = "{http://www.w3.org/2000/svg}"
STORED = {path.name: path.read_text(encoding="utf-8") for path in ASSETS.glob("ribbons_*.svg")}
PICTURES = {name: ET.fromstring(source) for name, source in STORED.items()}


def sentences(picture):
    """German and English, as the picture's title has them."""
    return re.fullmatch("“(.+)” becomes “(.+)”", picture.find(f"{SVG}title").text).groups()


def attention_of(picture):
    """What each ribbon's title says: English word, German word and attention, with the element."""
    for path in picture.iter(f"{SVG}path"):
        german, english, attention = re.fullmatch(r"(\w+) → (\w+): (\d\.\d{3})", path[0].text).groups()
        yield english, german, float(attention), path


def words_of(sentence):
    return sentence.strip(".").split()


def luminance(colour):
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_script_draws_what_is_stored_from_what_the_ribbons_say():
    """So that it is the same file on every machine, whatever the last digits of its attention are."""
    german, english = sentences(PICTURES["ribbons_light.svg"])
    said = {(row, column): value for row, column, value, _ in attention_of(PICTURES["ribbons_light.svg"])}
    attention = [[said.get((row, column), 0.0) for column in words_of(german)] for row in words_of(english)]
    assert draw_ribbons.both(english, attention) == STORED, "not up to date: run python assets/draw_ribbons.py"


def test_ribbons_are_as_wide_as_the_attention_of_the_translator_that_is_included():
    for picture in PICTURES.values():
        german, english = sentences(picture)
        translation = Translator.load().translate([german], attention=True)[0]
        assert translation.text == english
        tokens = translation.src_tokens[1:-1], translation.tgt_tokens[:-1]
        assert tokens == tuple([*(f"▁{word}" for word in words_of(text.lower())), "."] for text in (german, english))
        attention = translation.attention.cross[1].mean(dim=1)[0]  # second layer; [tgt_len, src_len]
        drawn = {(english, german): (value, path) for english, german, value, path in attention_of(picture)}
        for row, word in zip(attention.tolist(), words_of(english), strict=False):  # not the full stop
            for weight, looked_at in zip(row[1:], words_of(german), strict=False):
                said, path = drawn.pop((word, looked_at), (0, None))
                if path is None:
                    assert weight < 0.0505, (word, looked_at)
                else:
                    assert said == pytest.approx(weight, abs=1e-3), (word, looked_at)
                    width = float(path.get("stroke-width"))
                    assert width / draw_ribbons.FULL == pytest.approx(weight, abs=1e-3), (word, looked_at)
        assert not drawn


def test_a_ribbon_ends_at_its_two_words():
    for picture in PICTURES.values():
        texts = list(picture.iter(f"{SVG}text"))
        places = {(text.text.strip("."), text.get("y")): float(text.get("x")) for text in texts}
        upper, lower = sorted({text.get("y") for text in texts}, key=float)
        for english, german, _, path in attention_of(picture):
            start, *_, end = (float(x) for x in re.findall(r"([\d.]+) [\d.]+", path.get("d")))
            for x, word, line in ((start, german, upper), (end, english, lower)):
                on_the_line = {other: place for (other, height), place in places.items() if height == line}
                assert min(on_the_line, key=lambda other: abs(on_the_line[other] - x)) == word


def test_words_are_large_enough_for_a_telephone_and_touch_neither_each_other_nor_the_edge():
    for picture in PICTURES.values():
        assert float(picture.get("font-size")) >= 12 and float(picture.get("width")) <= 390
        lines = {}
        for text in picture.iter(f"{SVG}text"):
            middle, width = float(text.get("x")), float(text.get("textLength"))
            lines.setdefault(text.get("y"), []).append((middle - width / 2, middle + width / 2))
        assert len(lines) == 2
        for words in lines.values():
            assert words[0][0] >= 12 and words[-1][1] <= float(picture.get("width")) - 12
            assert all(after[0] - before[1] >= 3 for before, after in pairwise(words))


def test_words_stand_out_from_the_card_in_the_light_and_in_the_dark():
    cards = {}
    for name, picture in PICTURES.items():
        cards[name] = luminance(picture.find(f"{SVG}rect").get("fill"))
        for text in picture.iter(f"{SVG}text"):
            dark, light = sorted((cards[name], luminance(text.get("fill"))))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, text.text)
    assert cards["ribbons_dark.svg"] < 0.05 < 0.9 < cards["ribbons_light.svg"]


def test_it_is_complete_at_rest_moves_only_for_those_who_want_it_and_loads_nothing():
    for name, source in STORED.items():
        style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)[1]
        rest, moving, frames = re.fullmatch(r"(.*)(@media .*?\n\})(.*)", style, re.DOTALL).groups()
        assert moving.startswith("@media (prefers-reduced-motion: no-preference)"), name
        assert "animation" not in rest + frames and "infinite" not in moving, name
        assert rest.split() == ["path", "{", "fill:", "none;", "opacity:", "0.7", "}"], name  # nothing is hidden
        assert moving.count("backwards") == moving.count("animation:") == 2, name  # nothing of it stays
        assert not re.search(r"url\(|href|@import|<script|\bon\w+=", source), name
