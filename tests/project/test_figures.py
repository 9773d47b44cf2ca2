"""The drawings in ``assets/figures``: what they promise to a notebook page, and to those who cannot see them."""

import importlib.util
import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from transformer_lib.model import masks

ASSETS = Path(__file__).parents[2] / "assets"
FIGURES = sorted((ASSETS / "figures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {SVG + name for name in ("svg", "title", "desc", "rect", "circle", "path", "text")}

# em a character: what DejaVu Sans needs, the widest font that the stacks are likely to end in, and a little more
MONO_WIDTH, SANS_WIDTH, BOLD_WIDTH = 0.605, 0.6, 0.65

every_figure = pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)


class Area(NamedTuple):
    """A rectangle, and what it is."""

    left: float
    top: float
    right: float
    bottom: float
    name: str

    def overlaps(self, other: "Area") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def contains(self, other: "Area") -> bool:
        return (
            self.left <= other.left
            and self.top <= other.top
            and self.right >= other.right
            and self.bottom >= other.bottom
        )


def text_areas(root: ET.Element) -> list[Area]:
    """Where each text lies; its width is estimated, rather too wide than too narrow."""
    areas = []
    for text in root.iter(SVG + "text"):
        size, x, y = (float(text.get(name)) for name in ("font-size", "x", "y"))
        em = MONO_WIDTH if text.get("font-family") else BOLD_WIDTH if text.get("font-weight") else SANS_WIDTH
        width = em * size * len(text.text)
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor")]
        areas.append(Area(left, y - 0.76 * size, left + width, y + 0.22 * size, text.text))
    return areas


def rectangle_areas(root: ET.Element) -> list[Area]:
    areas = []
    for rect in root.iter(SVG + "rect"):
        x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        areas.append(Area(x, y, x + width, y + height, "rectangle"))
    return areas


def line_areas(root: ET.Element) -> list[Area]:
    """What each stretch of each line covers; lines run level or upright, and so do the sides of what a bend covers."""
    areas = []
    for path in root.iter(SVG + "path"):
        points = [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d"))]
        for (x1, y1), (x2, y2) in pairwise(points):
            areas.append(Area(min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1, path.get("d")))
    return areas


@pytest.fixture(scope="module")
def draw_figures():
    spec = importlib.util.spec_from_file_location("draw_figures", ASSETS / "draw_figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_draws_exactly_what_is_stored(draw_figures):
    drawn = {figure.name: figure.svg() for figure in (draw() for draw in draw_figures.FIGURES)}
    assert sorted(drawn) == [path.stem for path in FIGURES]
    for path in FIGURES:
        stored = path.read_bytes().decode()
        assert stored == drawn[path.stem], f"{path.name} is not up to date: run python assets/draw_figures.py"


def test_masks_are_those_of_the_library(draw_figures):
    ids = torch.tensor([[token == "<pad>" for token in tokens] for tokens in draw_figures.BATCH]).int()
    padding = torch.tensor([draw_figures.padding_mask(tokens) for tokens in draw_figures.BATCH])
    target = torch.tensor([draw_figures.target_mask(tokens) for tokens in draw_figures.BATCH])
    assert padding[:, None, None, :].equal(masks.padding_mask(ids, pad_id=1))
    assert torch.tensor(draw_figures.causal_mask(6)).equal(masks.causal_mask(6))
    assert target[:, None].equal(masks.target_mask(ids, pad_id=1))


@every_figure
def test_says_in_words_what_it_shows(path):
    root = ET.parse(path).getroot()
    title, desc = root[0], root[1]
    assert (title.tag, desc.tag) == (SVG + "title", SVG + "desc")
    assert 0 < len(title.text) <= 40
    assert len(desc.text) > 100
    assert root.get("role") == "img"
    assert root.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]


@every_figure
def test_has_a_size_of_its_own_that_fits_a_notebook(path):
    root = ET.parse(path).getroot()
    width, height = int(root.get("width")), int(root.get("height"))
    assert root.get("viewBox") == f"0 0 {width} {height}"
    assert width <= 760


@every_figure
def test_changes_nothing_else_on_the_page(path):
    source = path.read_text(encoding="utf-8")
    for element in ET.fromstring(source).iter():
        assert element.tag in ELEMENTS  # no style, no script, nothing that loads
        assert not [name for name in element.attrib if name.startswith("on") or name in ("style", "class")]
    assert "url(" not in source
    assert "href" not in source
    assert re.findall(r"\w+://[^\"]*", source) == ["http://www.w3.org/2000/svg"]  # the name of the format


def test_no_two_elements_of_a_page_with_all_figures_share_an_id():
    ids = [element.get("id") for path in FIGURES for element in ET.parse(path).iter() if element.get("id")]
    assert sorted(ids) == sorted(f"{path.stem}-{part}" for path in FIGURES for part in ("title", "desc"))


@every_figure
def test_text_is_large_enough_to_read(path):
    sizes = {float(text.get("font-size")) for text in ET.parse(path).iter(SVG + "text")}
    assert min(sizes) >= 12


@every_figure
def test_text_stays_inside_the_card_with_a_margin(path):
    root = ET.parse(path).getroot()
    x, y, right, bottom, _ = rectangle_areas(root)[0]
    card = Area(x + 16, y + 16, right - 16, bottom - 16, "card")
    assert [text.name for text in text_areas(root) if not card.contains(text)] == []


@every_figure
def test_no_text_touches_another(path):
    texts = text_areas(ET.parse(path).getroot())
    assert [(a.name, b.name) for a, b in combinations(texts, 2) if a.overlaps(b)] == []


@every_figure
def test_no_line_and_no_edge_runs_through_text(path):
    root = ET.parse(path).getroot()
    for text in text_areas(root):
        assert [line.name for line in line_areas(root) if line.overlaps(text)] == [], text.name
        crossed = [box for box in rectangle_areas(root) if box.overlaps(text) and not box.contains(text)]
        assert crossed == [], text.name


@every_figure
def test_arrows_end_at_the_edge_of_a_box(path):
    """A tip that points into the open is the figure's output: it leaves upwards, above every box."""
    root = ET.parse(path).getroot()
    boxes = rectangle_areas(root)[1:]
    tips = [path.get("d") for path in root.iter(SVG + "path") if path.get("d").endswith("Z")]
    for tip in tips:
        x, y = (float(number) for number in re.match(r"M(\S+) (\S+)", tip).groups())
        at_side = any(x in (box.left, box.right) and box.top < y < box.bottom for box in boxes)
        at_bottom = any(y == box.bottom and box.left < x < box.right for box in boxes)
        assert at_side or at_bottom or y < min(box.top for box in boxes), (x, y)
