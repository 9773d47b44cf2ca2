"""What all figures are drawn with: colours, boxes, and the figure itself, with its lines, arrows and words.

Every drawing is a plain SVG on a card of its own, so that it can be read on a light and on a dark page: where the page
is dark, the card is, too. A figure is drawn from the bottom upwards, as the data flows: a box is placed by the middle
of its lower edge, and the next box by the upper edge of that one. Coordinates are pixels at natural size, with y
growing downwards.
"""

import colorsys
import re
from dataclasses import dataclass
from html import escape

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
BODY = 14  # font sizes
SMALL = 12

CARD = "#fcfcfa"
CARD_EDGE = "#d5d9de"
PANEL = "#f1f3f5"
PANEL_EDGE = "#b4bcc5"
WHITE = "#ffffff"
INK = "#1f2933"  # words
FADED = "#4d5966"  # words beside the drawing
LINE = "#3c4854"
PALE = "#c3cad2"  # cells that are only filled up, or only kept
SEEN = "#31568c"  # as in plots.py
HIDDEN = "#e4e4ea"
DASHED = "5 4"  # masks: they steer the flow, but do not flow themselves
# fill and edge of each kind of box: Okabe and Ito's colour-blind-safe palette, softened
KINDS = {
    "attention": ("#f8c5a0", "#b4521a"),  # vermilion
    "heads": ("#fef3ea", "#b4521a"),  # the same, paler: the background of what attention does
    "step": ("#ffffff", "#b4521a"),  # one step of that
    "feed_forward": ("#b9def7", "#2b76a8"),  # sky blue
    "add_norm": ("#fcf4ae", "#8f8206"),  # yellow
    "embedding": ("#dcafcd", "#8a3f6e"),  # reddish purple
    "linear": ("#92d0b7", "#0f6d51"),  # bluish green
    "operation": ("#eceef0", "#66727f"),  # grey: no parameters
    "data": ("#ffffff", "#66727f"),  # white: a tensor
}


def in_the_dark(colour: str) -> str:
    """Return what a colour becomes on a dark page: the same hue, with light and dark exchanged."""
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    is_grey = max(red, green, blue) - min(red, green, blue) <= 0.1
    saturation *= 0.2 if is_grey else 0.75
    mixed = colorsys.hls_to_rgb(hue, 0.08 + 0.9 * (1 - lightness) ** 1.2, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed)


@dataclass(frozen=True)
class Box:
    """Where a box lies: the middle of its lower edge, and its size."""

    x: float
    bottom: float
    width: float
    height: float

    @property
    def left(self) -> float:
        """The x of its left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """The x of its right edge."""
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        """The y of its upper edge."""
        return self.bottom - self.height

    @property
    def middle(self) -> float:
        """The y half way up."""
        return self.bottom - self.height / 2


class Figure:
    """An SVG that is being drawn.

    Args:
        name: file name without its suffix; it begins every id, so that two figures can share a page.
        width, height: natural size in pixels.
        title: what the figure is, in a few words.
        description: what the figure shows, for those who cannot see it.
    """

    def __init__(self, name: str, width: int, height: int, title: str, description: str):
        self.name = name
        self.width = width
        self.height = height
        self.title = title
        self.description = description
        self.elements: list[str] = []

    def rectangle(
        self, x: float, y: float, width: float, height: float, fill: str, edge: str, radius: float = 6, dash: str = ""
    ) -> None:
        """Draw a rectangle with its upper left corner at (x, y)."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'fill="{fill}" stroke="{edge}" stroke-width="1.5"{dashes}/>'
        )

    def frame(self, box: Box, fill: str, edge: str, radius: float = 6, dash: str = "") -> None:
        """Draw a box's rectangle."""
        self.rectangle(box.left, box.top, box.width, box.height, fill, edge, radius, dash)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        align: str = "start",
        size: int = SMALL,
        bold: bool = False,
        code: bool = False,
        colour: str = FADED,
    ) -> None:
        """Write one line, vertically centred on y."""
        weight = ' font-weight="600"' if bold else ""
        family = f' font-family="{MONO}"' if code else ""
        self.elements.append(
            f'<text x="{x:g}" y="{y + 0.36 * size:g}" text-anchor="{align}" font-size="{size}"{weight}{family} '
            f'fill="{colour}">{escape(words)}</text>'
        )

    def box(
        self,
        kind: str,
        x: float,
        bottom: float,
        width: float,
        height: float,
        title: str,
        code: str = "",
        dash: str = "",
    ) -> Box:
        """Draw a box of a kind with its title and, under that, its name in the code or its shape."""
        box = Box(x, bottom, width, height)
        self.frame(box, *KINDS[kind], dash=dash)
        if code:
            self.text(x, box.middle - 9, title, "middle", BODY, bold=True, colour=INK)
            self.text(x, box.middle + 10, code, "middle", code=True, colour=INK)
        else:
            self.text(x, box.middle, title, "middle", BODY, bold=True, colour=INK)
        return box

    def panel(self, x: float, bottom: float, width: float, height: float, kind: str = "") -> Box:
        """Draw the background of a group of boxes."""
        panel = Box(x, bottom, width, height)
        fill, edge = KINDS[kind] if kind else (PANEL, PANEL_EDGE)
        self.frame(panel, fill, edge, radius=10)
        return panel

    def line(self, *points: tuple[float, float], dash: str = "", colour: str = LINE, width: float = 1.5) -> None:
        """Draw a line from point to point, with rounded corners."""
        steps = [f"M{points[0][0]:g} {points[0][1]:g}"]
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            bend_x, bend_y = _towards(corner, before, 8)
            steps.append(f"L{bend_x:g} {bend_y:g}")
            end_x, end_y = _towards(corner, after, 8)
            steps.append(f"Q{corner[0]:g} {corner[1]:g} {end_x:g} {end_y:g}")
        steps.append(f"L{points[-1][0]:g} {points[-1][1]:g}")
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.elements.append(
            f'<path d="{" ".join(steps)}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashes}/>'
        )

    def arrow(self, *points: tuple[float, float], dash: str = "", colour: str = LINE, width: float = 1.5) -> None:
        """Draw a line whose last point is the tip of an arrowhead."""
        tip = points[-1]
        neck = _towards(tip, points[-2], 9)
        self.line(*points[:-1], neck, dash=dash, colour=colour, width=width)
        across_x = (neck[1] - tip[1]) * 0.45
        across_y = (tip[0] - neck[0]) * 0.45
        one = f"L{neck[0] + across_x:g} {neck[1] + across_y:g}"
        other = f"L{neck[0] - across_x:g} {neck[1] - across_y:g}"
        self.elements.append(f'<path d="M{tip[0]:g} {tip[1]:g} {one} {other} Z" fill="{colour}"/>')

    def dot(self, x: float, y: float, radius: float = 3) -> None:
        """Mark the point where a line branches."""
        self.elements.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{LINE}"/>')

    def up(self, below: Box, above: Box, shape: str = "", x: float | None = None) -> None:
        """Draw an arrow from box to box, straight up, with the shape of what flows to its right."""
        x = above.x if x is None else x
        self.arrow((x, below.top), (x, above.bottom))
        if shape:
            self.text(x + 10, (below.top + above.bottom) / 2, shape, code=True)

    def svg(self) -> str:
        """Return the whole file."""
        # a page that nbconvert makes lets drawings run over the edge of a telephone, where 342 pixels are for them
        scale = min(1, 342 / self.width) if self.width < 400 else 1
        frame = (
            f'<rect x="1" y="1" width="{self.width - 2}" height="{self.height - 2}" rx="14" '
            f'fill="{CARD}" stroke="{CARD_EDGE}"/>'
        )
        drawn = "".join([frame, *self.elements])
        rules = [
            f"#{self.name} [{part}='{colour}'] {{ {part}: {in_the_dark(colour)} }}"
            for colour in sorted(set(re.findall(r'"(#[0-9a-f]{6})"', drawn)))
            for part in ("fill", "stroke")
            if f'{part}="{colour}"' in drawn
        ]
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{round(scale * self.width)}" '
            f'height="{round(scale * self.height)}" '
            f'viewBox="0 0 {self.width} {self.height}" id="{self.name}" role="img" '
            f'aria-labelledby="{self.name}-title {self.name}-desc" font-family="{SANS}">',
            f'<title id="{self.name}-title">{escape(self.title)}</title>',
            f'<desc id="{self.name}-desc">{escape(self.description)}</desc>',
            f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>",
            frame,
            *self.elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def _towards(start: tuple[float, float], end: tuple[float, float], distance: float) -> tuple[float, float]:
    """Return the point that lies ``distance`` from ``start`` on the way to ``end``; lines are level or upright."""
    to_the_right = end[0] - start[0]
    downwards = end[1] - start[1]
    length = max(abs(to_the_right), abs(downwards))
    return start[0] + to_the_right / length * distance, start[1] + downwards / length * distance
