"""The drawings in ``assets/figures``: what they promise to a notebook page, and to those who cannot see them."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from typing import NamedTuple

import draw_figures
import pytest
import torch
from drawings import notebook_03

from transformer_lib.model import masks

FIGURES = sorted(draw_figures.FOLDER.glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {SVG + name for name in ("svg", "title", "desc", "style", "rect", "circle", "path", "text")}

# em a character: what DejaVu Sans needs, the widest font that the stacks are likely to end in, and a little more
MONO_WIDTH, SANS_WIDTH, BOLD_WIDTH = 0.605, 0.6, 0.65

DRAWINGS = {path.stem: ET.parse(path).getroot() for path in FIGURES}


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


def test_the_script_draws_exactly_what_is_stored(tmp_path):
    draw_figures.write(draw_figures.draw_all(), tmp_path)
    drawn, stored = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (tmp_path, draw_figures.FOLDER)
    )
    assert drawn.keys() == stored.keys()
    stale = [name for name, content in drawn.items() if content != stored[name]]
    assert not stale, "not up to date: run python assets/draw_figures.py"


def test_check_names_what_is_changed_missing_or_left_behind_and_writes_nothing(tmp_path, monkeypatch):
    files = draw_figures.draw_all()
    draw_figures.write(files, tmp_path)
    monkeypatch.setattr(draw_figures, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["draw_figures.py", "--check"])
    draw_figures.main()
    (tmp_path / "masks.svg").write_bytes(b"another")
    (tmp_path / "ngrams.svg").unlink()
    (tmp_path / "of_old.svg").write_bytes(b"nobody draws it any more")
    with pytest.raises(SystemExit, match=r"masks\.svg, ngrams\.svg, of_old\.svg$"):
        draw_figures.main()
    assert (tmp_path / "masks.svg").read_bytes() == b"another"
    assert not (tmp_path / "ngrams.svg").exists()


def test_masks_are_those_of_the_library():
    batch = notebook_03.BATCH
    ids = torch.tensor([[token == "<pad>" for token in tokens] for tokens in batch]).int()
    padding = torch.tensor([notebook_03.real_tokens(tokens) for tokens in batch])
    target = torch.tensor([notebook_03.allowed_keys(tokens) for tokens in batch])
    assert padding[:, None, None, :].equal(masks.padding_mask(ids, pad_id=1))
    assert torch.tensor(notebook_03.earlier_keys(6)).equal(masks.causal_mask(6))
    assert target[:, None].equal(masks.target_mask(ids, pad_id=1))


def test_they_say_in_words_what_they_show():
    for name, root in DRAWINGS.items():
        title, desc = root[0], root[1]
        assert (title.tag, desc.tag) == (SVG + "title", SVG + "desc"), name
        assert title.text.strip() and desc.text.strip(), name
        assert root.get("role") == "img"
        assert root.get("aria-labelledby").split() == [title.get("id"), desc.get("id")], name


def test_they_have_a_size_of_their_own_that_fits_a_notebook():
    for name, root in DRAWINGS.items():
        width, height = int(root.get("width")), int(root.get("height"))
        left, top, *inside = map(int, root.get("viewBox").split())
        assert left == top == 0 and width <= 760, name
        assert width == inside[0] or (width == 342 and inside[0] < 400), name  # what is narrow fits a telephone's page
        assert height == round(inside[1] * width / inside[0]), name


def test_they_change_nothing_else_on_a_page():
    for path in FIGURES:
        source = path.read_text(encoding="utf-8")
        for element in DRAWINGS[path.stem].iter():
            assert element.tag in ELEMENTS, path  # no script, nothing that loads
            assert not [name for name in element.attrib if name.startswith("on") or name in ("style", "class")], path
        assert "url(" not in source and "href" not in source and "@import" not in source, path
        assert re.findall(r"\w+://[^\"]*", source) == ["http://www.w3.org/2000/svg"], path  # the name of the format
    ids = [element.get("id") for root in DRAWINGS.values() for element in root.iter() if element.get("id")]
    assert sorted(ids) == sorted(name + part for name in DRAWINGS for part in ("", "-title", "-desc"))


def test_on_a_dark_page_every_colour_has_its_dark_one_and_no_other_drawing_changes():
    for name, root in DRAWINGS.items():
        (style,) = root.iter(SVG + "style")
        rules = re.fullmatch(r"@media \(prefers-color-scheme: dark\) \{ (.*) \}", style.text)[1]
        dark = re.findall(rf"#{name} \[(fill|stroke)='(#\w+)'\] \{{ \1: (#\w+) \}}", rules)
        assert len(dark) == rules.count("{"), name  # each of them for this drawing only
        used = {
            (part, e.get(part)) for e in root.iter() for part in ("fill", "stroke") if e.get(part, "none") != "none"
        }
        assert {(part, colour) for part, colour, _ in dark} == used, name
        looks = {(part, colour): other for part, colour, other in dark}
        assert lightness(looks["fill", next(root.iter(SVG + "rect")).get("fill")]) < 0.2, name  # the card
        rectangles = list(zip(rectangle_areas(root), root.iter(SVG + "rect"), strict=True))
        for text, area in zip(root.iter(SVG + "text"), text_areas(root), strict=True):
            under = [rect for rectangle, rect in rectangles if rectangle.contains(area)][-1]
            ink, ground = (lightness(looks["fill", element.get("fill")]) for element in (text, under))
            assert abs(ink - ground) > 0.35, (name, text.text)


def lightness(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    return (max(parts) + min(parts)) / 2


def test_text_is_large_enough_inside_the_card_and_touched_by_nothing():
    for name, root in DRAWINGS.items():
        assert min(float(text.get("font-size")) for text in root.iter(SVG + "text")) >= 12, name
        x, y, right, bottom, _ = rectangle_areas(root)[0]
        card = Area(x + 16, y + 16, right - 16, bottom - 16, "card")
        texts = text_areas(root)
        assert not [text.name for text in texts if not card.contains(text)], name
        assert not [(a.name, b.name) for a, b in combinations(texts, 2) if a.overlaps(b)], name
        for text in texts:
            assert not [line.name for line in line_areas(root) if line.overlaps(text)], (name, text.name)
            boxes = rectangle_areas(root)
            assert not [box for box in boxes if box.overlaps(text) and not box.contains(text)], (name, text.name)


def test_arrows_end_at_the_edge_of_a_box():
    """A tip that points into the open is the figure's output: it leaves upwards, above every box."""
    for name, root in DRAWINGS.items():
        boxes = rectangle_areas(root)[1:]
        tips = [path.get("d") for path in root.iter(SVG + "path") if path.get("d").endswith("Z")]
        for tip in tips:
            x, y = (float(number) for number in re.match(r"M(\S+) (\S+)", tip).groups())
            at_side = any(x in (box.left, box.right) and box.top < y < box.bottom for box in boxes)
            at_bottom = any(y == box.bottom and box.left < x < box.right for box in boxes)
            assert at_side or at_bottom or y < min(box.top for box in boxes), (name, x, y)
