"""Draw the figures of the series into ``assets/figures``: ``python assets/draw_figures.py``.

Every drawing is a plain SVG on a card of its own, so that it can be read on a light and on a dark page: where the page
is dark, the card is, too. A figure is drawn from the bottom upwards, as the data flows: a box is placed by the middle
of its lower edge, and the next box by the upper edge of that one. Coordinates are pixels at natural size, with y
growing downwards.
"""

import colorsys
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "figures"

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
BODY, SMALL = 14, 12  # font sizes

CARD, CARD_EDGE = "#fcfcfa", "#d5d9de"
PANEL, PANEL_EDGE = "#f1f3f5", "#b4bcc5"
INK, FADED, LINE = "#1f2933", "#4d5966", "#3c4854"
SEEN, HIDDEN = "#31568c", "#e4e4ea"  # as in plots.py
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
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    saturation *= 0.75 if max(red, green, blue) - min(red, green, blue) > 0.1 else 0.2  # greys stay grey
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
        self.name, self.width, self.height = name, width, height
        self.title, self.description = title, description
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
        self.rectangle(box.left, box.top, width, height, *KINDS[kind], dash=dash)
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
        self.rectangle(panel.left, panel.top, width, height, fill, edge, radius=10)
        return panel

    def line(self, *points: tuple[float, float], dash: str = "", colour: str = LINE, width: float = 1.5) -> None:
        """Draw a line from point to point, with rounded corners."""
        steps = [f"M{points[0][0]:g} {points[0][1]:g}"]
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            (x1, y1), (x2, y2) = _towards(corner, before, 8), _towards(corner, after, 8)
            steps.append(f"L{x1:g} {y1:g} Q{corner[0]:g} {corner[1]:g} {x2:g} {y2:g}")
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
        across = ((neck[1] - tip[1]) * 0.45, (tip[0] - neck[0]) * 0.45)
        corners = [(neck[0] + across[0], neck[1] + across[1]), (neck[0] - across[0], neck[1] - across[1])]
        path = " ".join(f"L{x:g} {y:g}" for x, y in corners)
        self.elements.append(f'<path d="M{tip[0]:g} {tip[1]:g} {path} Z" fill="{colour}"/>')

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
        colours = sorted(set(re.findall(r'"(#[0-9a-f]{6})"', "".join([frame, *self.elements]))))
        dark = " ".join(
            f"#{self.name} [{part}='{colour}'] {{ {part}: {in_the_dark(colour)} }}"
            for colour in colours
            for part in ("fill", "stroke")
            if any(f'{part}="{colour}"' in element for element in [frame, *self.elements])
        )
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{round(scale * self.width)}" '
            f'height="{round(scale * self.height)}" '
            f'viewBox="0 0 {self.width} {self.height}" id="{self.name}" role="img" '
            f'aria-labelledby="{self.name}-title {self.name}-desc" font-family="{SANS}">',
            f'<title id="{self.name}-title">{escape(self.title)}</title>',
            f'<desc id="{self.name}-desc">{escape(self.description)}</desc>',
            f"<style>@media (prefers-color-scheme: dark) {{ {dark} }}</style>",
            frame,
            *self.elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def _towards(start: tuple[float, float], end: tuple[float, float], distance: float) -> tuple[float, float]:
    """Return the point that lies ``distance`` from ``start`` on the way to ``end``; lines are level or upright."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max(abs(dx), abs(dy))
    return start[0] + dx / length * distance, start[1] + dy / length * distance


LAYER_X, LAYER_BOX, RESIDUAL_X, OUTSIDE_X = 148, 196, 32, 313  # layers: column, box width, detour, what comes in
GREEN = KINDS["linear"][1]  # the straight path around a sub-layer


def _outside(figure: Figure, middle: float, *words: str, dash: str = "") -> Box:
    """Draw what enters a layer from its right, a word or two of one line each, around a y."""
    box = Box(OUTSIDE_X, middle + 11 * len(words), 86, 22 * len(words))
    figure.rectangle(box.left, box.top, box.width, box.height, *KINDS["data"], dash=dash)
    for number, word in enumerate(words):
        figure.text(box.x, box.middle + 17 * (number - (len(words) - 1) / 2), word, "middle", bold=True, colour=INK)
    return box


def _attention(figure: Figure, start: float, title: str, call: str, mask: str, memory: bool = False) -> Box:
    """Draw attention and its Add & Norm above the y of ``start``; keys and values are x's or the memory's."""
    fork, key_x, value_x = start - 60, LAYER_X + 30, LAYER_X + 62
    box = figure.box("attention", LAYER_X, start - 102, LAYER_BOX, 52, title, call)
    figure.arrow((LAYER_X, start), (LAYER_X, box.bottom))
    if memory:
        source = _outside(figure, fork, "memory")
        figure.arrow((source.left, fork), (key_x, fork), (key_x, box.bottom))
        figure.arrow((value_x, fork), (value_x, box.bottom))
        figure.dot(value_x, fork)
    else:
        figure.arrow((LAYER_X, fork), (value_x, fork), (value_x, box.bottom))
        figure.arrow((key_x, fork), (key_x, box.bottom))
        figure.dot(LAYER_X, fork)
        figure.dot(key_x, fork)
    figure.text(LAYER_X - 7, fork - 20, "query", "end")
    for label, x in (("key", key_x), ("value", value_x)):
        figure.text(x + 5, fork - 20, label)
    allowed = _outside(figure, box.middle, mask, "mask", dash=DASHED)
    figure.arrow((allowed.left, box.middle), (box.right, box.middle), dash=DASHED)
    return _add_norm(figure, start, box)


def _feed_forward(figure: Figure, start: float) -> Box:
    """Draw the feed-forward network and its Add & Norm above the y of ``start``."""
    box = figure.box("feed_forward", LAYER_X, start - 72, LAYER_BOX, 52, "Feed-forward", "y = feed_forward(x)")
    figure.arrow((LAYER_X, start), (LAYER_X, box.bottom))
    return _add_norm(figure, start, box)


def _add_norm(figure: Figure, start: float, sublayer: Box) -> Box:
    """Put Add & Norm on top of a sub-layer, and lead x from below the sub-layer around it."""
    box = figure.box("add_norm", LAYER_X, sublayer.top - 36, LAYER_BOX, 48, "Add & Norm", "LayerNorm(x + Dropout(y))")
    figure.text(LAYER_X + 10, start - 19, "x", code=True)
    figure.up(sublayer, box, "y")
    branch = start - 40
    figure.dot(LAYER_X, branch)
    figure.arrow(
        (LAYER_X, branch), (RESIDUAL_X, branch), (RESIDUAL_X, box.middle), (box.left, box.middle), colour=GREEN, width=3
    )
    return box


def _layer_panel(figure: Figure, height: float, title: str, shape: str, destination: str) -> float:
    """Draw a layer's background, what enters it from below, and where its output goes; return its lower edge."""
    bottom = figure.height - 84
    panel = figure.panel(137, bottom, 242, height)
    figure.text(LAYER_X - 8, panel.top + 22, title, "end", BODY, bold=True, colour=INK)
    figure.line((LAYER_X, bottom + 18), (LAYER_X, bottom - 8))
    figure.text(LAYER_X, bottom + 36, f"x {shape}", "middle", code=True)
    figure.text(LAYER_X, bottom + 56, "from the embedding, or below", "middle")
    figure.arrow((LAYER_X, panel.top + 44), (LAYER_X, panel.top - 24))
    figure.text(LAYER_X, panel.top - 40, destination, "middle")
    return bottom


def encoder_layer() -> Figure:
    """Draw one encoder layer, post-LN."""
    figure = Figure(
        "encoder_layer",
        368,
        652,
        "An encoder layer",
        "From bottom to top: x, of shape [batch, src_len, d_model], enters self-attention as query, key and value; the "
        "padding mask says which positions may be attended to. Add & Norm computes LayerNorm(x + Dropout(y)) from the "
        "attention's output y and from x, which a green residual path leads around the attention. The feed-forward "
        "network follows, with an Add & Norm and a residual path of its own. The result has the shape of x.",
    )
    bottom = _layer_panel(figure, 500, "One layer", "[batch, src_len, d_model]", "to the layer above, or the memory")
    box = _attention(figure, bottom - 8, "Self-attention", "y = self_attn(x, x, x)", "padding")
    _feed_forward(figure, box.top)
    return figure


def decoder_layer() -> Figure:
    """Draw one decoder layer, post-LN."""
    figure = Figure(
        "decoder_layer",
        368,
        890,
        "A decoder layer",
        "From bottom to top, each followed by Add & Norm with a green residual path around it: self-attention, whose "
        "query, key and value all come from the target x of shape [batch, tgt_len, d_model], under the target mask; "
        "cross-attention, whose query comes from the target and whose key and value come from the memory, under the "
        "source's padding mask; the feed-forward network.",
    )
    bottom = _layer_panel(figure, 738, "One layer", "[batch, tgt_len, d_model]", "to the layer above, or the output")
    box = _attention(figure, bottom - 8, "Self-attention", "y = self_attn(x, x, x)", "target")
    box = _attention(figure, box.top, "Cross-attention", "y = cross_attn(x, …)", "padding", memory=True)
    _feed_forward(figure, box.top)
    return figure


NARROW, LEFT_X, RIGHT_X = 140, 90, 272  # two stacks side by side: width of a box, middles of the columns


def _noted(figure: Figure, kind: str, x: float, bottom: float, title: str, *notes: str) -> Box:
    """Draw a box with its title and, under that, what it does in plain words, line by line."""
    box = Box(x, bottom, NARROW, 24 + 16 * len(notes))
    figure.rectangle(box.left, box.top, box.width, box.height, *KINDS[kind])
    figure.text(x, box.top + 13, title, "middle", bold=True, colour=INK)
    for number, note in enumerate(notes):
        figure.text(x, box.top + 30 + 16 * number, note, "middle", colour=INK)
    return box


def _stack(
    figure: Figure, below: Box, title: str, sublayers: Sequence[tuple[str, ...]], norms: bool = False
) -> list[Box]:
    """Draw N layers as a stack of cards with the sub-layers of the front one; return their boxes from bottom to top.

    Args:
        figure: where to draw.
        below: what the stack reads.
        title: of the stack.
        sublayers: the kind, the title and the notes of each.
        norms: whether each sub-layer has its Add & Norm on top.
    """
    heights = [24 + 16 * (len(sublayer) - 2) + (24 if norms else 0) for sublayer in sublayers]
    bottom, height = below.top - 22, sum(heights) + 16 * len(heights) + 24
    for offset in (6, 3, 0):
        panel = figure.panel(below.x + offset, bottom - offset, NARROW + 12, height)
    figure.text(below.x - 8, panel.top + 13, title, "end", bold=True, colour=INK)
    figure.text(below.x + 8, panel.top + 13, "× N", bold=True, colour=INK)
    boxes: list[Box] = []
    top = below
    for kind, name, *notes in sublayers:
        boxes.append(_noted(figure, kind, below.x, top.top - 16 if boxes else panel.bottom - 10, name, *notes))
        figure.up(top, boxes[-1])
        top = boxes[-1]
        if norms:
            top = Box(below.x, top.top, NARROW, 24)
            figure.rectangle(top.left, top.top, top.width, top.height, *KINDS["add_norm"])
            figure.text(top.x, top.middle, "Add & Norm", "middle", bold=True, colour=INK)
    return [*boxes, top]


def _words(figure: Figure, x: float, bottom: float, words: Sequence[str], padding: float = 16) -> Box:
    """Draw a row of words, each in a cell as wide as it needs, centred on x."""
    widths = [7.5 * len(word) + padding for word in words]
    row = Box(x, bottom, sum(widths), 34)
    figure.rectangle(row.left, row.top, row.width, row.height, *KINDS["data"])
    left = row.left
    for number, (word, width) in enumerate(zip(words, widths, strict=True)):
        if number:
            figure.line((left, row.top), (left, row.bottom), colour=CARD_EDGE)
        figure.text(left + width / 2, row.middle, word, "middle", code=True, colour=INK)
        left += width
    return row


def _two_rows(figure: Figure, x: float, bottom: float, words: Sequence[str]) -> Box:
    """Draw words in two rows of cells, centred on x."""
    half = (len(words) + 1) // 2
    lower = _words(figure, x, bottom, words[half:], 8)
    upper = _words(figure, x, lower.top, words[:half], 8)
    return Box(x, bottom, max(lower.width, upper.width), lower.height + upper.height)


def _crossing(figure: Figure, memory: Box, reader: Box) -> None:
    """Lead the memory, which lies higher, to the cross-attention that reads it."""
    bus = (LEFT_X + RIGHT_X) / 2 + 2
    figure.arrow(
        (memory.right, memory.middle), (bus, memory.middle), (bus, reader.middle), (reader.left, reader.middle)
    )


SOURCE, TARGET = ("<sos>", "er", "läuft", "<eos>"), ("<sos>", "he", "runs", "<eos>")


def transformer() -> Figure:
    """Draw the whole model."""
    figure = Figure(
        "transformer",
        368,
        632,
        "The Transformer",
        "Left, from bottom to top: the German source's token ids are embedded, multiplied by √d_model and added to "
        "positions, then pass N encoder layers, each of self-attention and feed-forward, each with Add & Norm. What "
        "leaves the last one is the memory. Right: the English target, shifted right so that it begins with <sos>, is "
        "embedded likewise and passes N decoder layers, each of masked self-attention, cross-attention and "
        "feed-forward, each with Add & Norm. The memory flows into the cross-attention of every decoder layer. A "
        "linear layer turns the last decoder layer's output into logits over the target vocabulary; softmax turns "
        "these into probabilities of the next token at every position.",
    )
    bottom = figure.height - 44

    def embedded(x: float, tokens: Sequence[str], note: str) -> Box:
        row = _words(figure, x, bottom, tokens, 5)
        figure.text(x, bottom + 18, note, "middle", bold=True, colour=INK)
        table = _noted(figure, "embedding", x, row.top - 20, "Token embedding", "× √d_model")
        figure.up(row, table)
        positions = Box(x, table.top, NARROW, 24)
        figure.rectangle(positions.left, positions.top, positions.width, positions.height, *KINDS["embedding"])
        figure.text(x, positions.middle, "+ Positions", "middle", bold=True, colour=INK)
        return positions

    encoder = (("attention", "Self-attention", "sees all words"), ("feed_forward", "Feed-forward"))
    start = embedded(LEFT_X, SOURCE, "German source")
    memory = _noted(
        figure,
        "data",
        LEFT_X,
        (last := _stack(figure, start, "Encoder", encoder, norms=True)[-1]).top - 60,
        "memory",
        "computed once",
    )
    figure.up(last, memory)

    decoder = (
        ("attention", "Self-attention", "sees the past"),
        ("attention", "Cross-attention", "asks the memory"),
        ("feed_forward", "Feed-forward"),
    )
    start = embedded(RIGHT_X, TARGET[:-1], "English, shifted")
    boxes = _stack(figure, start, "Decoder", decoder, norms=True)
    _crossing(figure, memory, boxes[1])
    linear = _noted(figure, "linear", RIGHT_X, boxes[-1].top - 46, "Linear", "a score per type")
    figure.up(boxes[-1], linear)
    softmax = _noted(figure, "operation", RIGHT_X, linear.top - 20, "Softmax")
    figure.up(linear, softmax)
    predicted = _words(figure, RIGHT_X, softmax.top - 20, TARGET[1:], 5)
    figure.up(softmax, predicted)
    figure.text(RIGHT_X, predicted.top - 16, "the next tokens", "middle", bold=True, colour=INK)
    return figure


GERMAN = ("der", "mann", "hebt", "den", "ball", "auf", ".")
ENGLISH = ("<sos>", "the", "man", "is", "raising", "the")
NEXT_WORD = ("ball 97 %,", "balloons 0.2 %, …")  # what the shipped model says here


def whole_model() -> Figure:
    """Draw the whole model for somebody who has not seen it before."""
    figure = Figure(
        "whole_model",
        368,
        614,
        "The whole model in one picture",
        "Left, from bottom to top: the German sentence 'der mann hebt den ball auf .' enters the embedding, which "
        "turns each word and its place into a vector; then the encoder, N layers of self-attention, in which each word "
        "looks at every word, and feed-forward, which works on each word by itself. The result is the memory: one "
        "vector per German word, in its context. Right: the English so far, '<sos> the man is raising the', "
        "enters an embedding and the decoder, N layers of self-attention, in which each word looks at itself and the "
        "words before it, cross-attention, in which it looks at the memory, and feed-forward. Linear and softmax give "
        f"each English word a probability of being next: {' '.join(NEXT_WORD)}. The word that is chosen joins "
        "the English so far, and the next round begins.",
    )
    bottom = figure.height - 44
    rows, stacks = {}, {}
    for x, words, note, title, sublayers in (
        (
            LEFT_X,
            GERMAN,
            "German sentence",
            "Encoder",
            (
                ("attention", "Self-attention", "each word looks", "at every word"),
                ("feed_forward", "Feed-forward", "each word by itself"),
            ),
        ),
        (
            RIGHT_X,
            ENGLISH,
            "English so far",
            "Decoder",
            (
                ("attention", "Self-attention", "looks at itself and", "the words before"),
                ("attention", "Cross-attention", "each word looks", "at the memory"),
                ("feed_forward", "Feed-forward", "each word by itself"),
            ),
        ),
    ):
        rows[x] = _two_rows(figure, x, bottom, words)
        figure.text(x, bottom + 18, note, "middle", bold=True, colour=INK)
        embedding = _noted(
            figure, "embedding", x, rows[x].top - 20, "Embedding", "a vector for each", "word and its place"
        )
        figure.up(rows[x], embedding)
        stacks[x] = _stack(figure, embedding, title, sublayers)
    read, boxes = stacks[LEFT_X][-1], stacks[RIGHT_X]
    memory = _noted(figure, "data", LEFT_X, read.top - 62, "Memory", "a vector per word,", "in its context")
    figure.up(read, memory)
    _crossing(figure, memory, boxes[1])
    output = _noted(figure, "linear", RIGHT_X, boxes[-1].top - 46, "Linear, softmax", "a probability for", "every word")
    figure.up(boxes[-1], output)
    chosen = _noted(figure, "data", RIGHT_X, output.top - 22, "Next word", *NEXT_WORD)
    figure.up(output, chosen)
    side = 360
    row = rows[RIGHT_X]
    figure.arrow(
        (chosen.right, chosen.middle), (side, chosen.middle), (side, row.middle + 17), (row.right, row.middle + 17)
    )
    return figure


# What the shipped model computes in layer 1 of cross-attention, head 1, when <sos> the man is has been written: scores,
# weights, and the probabilities of what may come next (a test computes them again).
OPENED = {
    "<sos>": (-2.34, 0.000),
    "der": (1.18, 0.005),
    "mann": (-1.46, 0.000),
    "hebt": (6.46, 0.985),
    "den": (0.87, 0.004),
    "ball": (-1.53, 0.000),
    "auf": (-0.94, 0.001),
    ".": (0.48, 0.002),
    "<eos>": (0.51, 0.003),
}
MAY_COME = "rais 38 %, picking 17 %, l 8 %, …"


def opened_box() -> Figure:
    """Draw one head of one box of the model for a sentence, with all its numbers."""
    line, width = 18, 328
    height = line * len(OPENED) + 58
    best = max(OPENED, key=lambda word: OPENED[word][1])
    figure = Figure(
        "opened_box",
        368,
        height + 176,
        "One box of the model, opened",
        "Head 1 of the cross-attention in layer 1, when '<sos> the man is' has been written. The query of 'is' meets "
        f"the key of each German word: scores, divided by √d_k, and the weights that softmax makes of them: "
        f"{'; '.join(f'{word} {score:.2f}, {weight:.3f}' for word, (score, weight) in OPENED.items())}. "
        f"After all layers, the next word's probabilities: {MAY_COME}",
    )
    written = _words(figure, 184, figure.height - 44, ("<sos>", "the", "man", "is"))
    figure.text(184, figure.height - 26, "English so far", "middle", bold=True, colour=INK)
    panel = figure.panel(184, written.top - 20, width, height, "heads")
    figure.arrow((written.right - 16, written.top), (written.right - 16, panel.bottom))
    figure.text(panel.left + 14, panel.top + 17, "Cross-attention, layer 1, head 1", bold=True, size=BODY, colour=INK)
    top = panel.top + 39
    for x, title in ((130, "score"), (190, "weight")):
        figure.text(x, top, title, "end", colour=INK)
    figure.text(panel.left + 14, top, "looks at", colour=INK)
    for number, (word, (score, weight)) in enumerate(OPENED.items(), start=1):
        y, bold = top + line * number, word == best
        figure.text(panel.left + 14, y, word, code=True, bold=bold, colour=INK)
        figure.text(130, y, f"{score:.2f}".replace("-", "−"), "end", bold=bold, colour=INK)
        figure.text(190, y, f"{weight:.3f}", "end", bold=bold, colour=INK)
        if weight >= 0.01:
            figure.rectangle(202, y - 6, max(1, 130 * weight), 12, *KINDS["attention"], radius=1)
    chosen = Box(184, panel.top - 22, 240, 40)
    figure.rectangle(chosen.left, chosen.top, chosen.width, chosen.height, *KINDS["data"])
    figure.text(184, chosen.top + 13, "Next word", "middle", bold=True, colour=INK)
    figure.text(184, chosen.top + 29, MAY_COME, "middle", colour=INK)
    figure.arrow((184, panel.top), (184, chosen.bottom))
    return figure


def multi_head_attention() -> Figure:
    """Draw multi-head attention, with the scaled dot product of every head opened up."""
    figure = Figure(
        "multi_head_attention",
        368,
        846,
        "Multi-head attention",
        "From bottom to top: query, key and value, each of shape [batch, len, d_model], pass a linear projection each "
        "and are split into heads of d_k = d_model / num_heads dimensions. In every head, queries times transposed "
        "keys, divided by √d_k, are scores of shape [query_len, key_len]; these become minus infinity where the mask "
        "hides; softmax turns them into weights, which are multiplied with the values. The heads' outputs are "
        "concatenated to [batch, query_len, d_model] and pass the output projection.",
    )
    columns, left, value_x = (70, 184, 298), 118, 320
    data = [
        figure.box("data", x, 806, 100, 30, name) for x, name in zip(columns, ("query", "key", "value"), strict=True)
    ]
    figure.text(184, 822, "each [batch, len, d_model]", "middle", code=True)
    split = figure.box("operation", 184, 682, 332, 46, "Split into heads", "[batch, heads, len, d_k]")
    for box in data:
        projection = figure.box("linear", box.x, box.top - 24, 100, 46, "Linear", f"{'qkv'[data.index(box)]}_proj")
        figure.up(box, projection)
        figure.up(projection, split, x=box.x)
    for offset in (12, 6, 0):
        panel = figure.panel(178 + offset, split.top - 24 - offset, 312, 368, "heads")
    figure.text(panel.left + 14, panel.top + 22, "Scaled dot-product attention", size=BODY, bold=True, colour=INK)
    figure.text(panel.left + 14, panel.top + 42, "in every head at once")
    products = figure.box("step", left, panel.bottom - 20, 176, 34, "queries × keysᵀ")
    scores = figure.box("step", left, products.top - 20, 176, 34, "÷ √d_k")
    masked = figure.box("step", left, scores.top - 38, 176, 34, "−∞ where hidden")
    softmax = figure.box("step", left, masked.top - 20, 176, 34, "softmax over keys")
    weighted = figure.box("step", 178, softmax.top - 38, 296, 34, "weights × values")
    for x, box in zip((columns[0], columns[1], value_x), (products, products, weighted), strict=True):
        figure.arrow((x, split.top), (x, box.bottom))
    figure.up(products, scores)
    figure.up(scores, masked, "[query_len, key_len]")
    figure.up(masked, softmax)
    figure.up(softmax, weighted, "[query_len, key_len]", x=left)
    mask = figure.box("data", 270, masked.middle + 15, 68, 30, "mask", dash=DASHED)
    figure.arrow((mask.left, mask.middle), (masked.right, mask.middle), dash=DASHED)
    concatenate = figure.box(
        "operation", 178, panel.top - 38, 282, 46, "Concatenate heads", "[batch, query_len, d_model]"
    )
    figure.up(weighted, concatenate, x=306)
    projection = figure.box("linear", 178, concatenate.top - 22, 282, 46, "Linear", "out_proj")
    figure.up(concatenate, projection)
    output = figure.box("data", 178, projection.top - 22, 282, 46, "output", "[batch, query_len, d_model]")
    figure.up(projection, output)
    return figure


BATCH = (("<sos>", "a", "dog", "runs", "home", "."), ("<sos>", "look", "!", "<eos>", "<pad>", "<pad>"))


def padding_mask(tokens: Sequence[str]) -> list[bool]:
    """Return True at real tokens."""
    return [token != "<pad>" for token in tokens]


def causal_mask(length: int) -> list[list[bool]]:
    """Return one row for each query, True at keys that do not come after it."""
    return [[key <= query for key in range(length)] for query in range(length)]


def target_mask(tokens: Sequence[str]) -> list[list[bool]]:
    """Return what both masks allow."""
    real = padding_mask(tokens)
    return [[a and b for a, b in zip(real, row, strict=True)] for row in causal_mask(len(tokens))]


def _vector(figure: Figure, start: tuple[float, float], tip: tuple[float, float], colour: str) -> None:
    """Draw a vector of any direction, with an open arrowhead."""
    dx, dy = tip[0] - start[0], tip[1] - start[1]
    length = math.hypot(dx, dy)
    dx, dy = 9 * dx / length, 9 * dy / length
    figure.line(start, tip, colour=colour, width=2.5)
    for side in (0.6, -0.6):
        figure.line((tip[0] - dx + side * dy, tip[1] - dy - side * dx), tip, colour=colour, width=2.5)


def query_and_keys() -> Figure:
    """Draw the query of *bellt* and three keys as arrows, and what softmax makes of their dot products."""
    figure = Figure(
        "query_and_keys",
        368,
        306,
        "A query among three keys",
        "A plane whose axes mean noun and verb. The query of bellt points two units to the right and one up. The key "
        "of Hund points one unit to the right, that of bellt one up, and that of Der is the point zero. Below, the dot "
        "products and the weights: Der 0 and 0.14, Hund 2 and 0.58, bellt 1 and 0.28.",
    )
    orange, (x, y), unit = KINDS["attention"][1], (96, 150), 84
    figure.line((x, y), (310, y), colour=PANEL_EDGE)
    figure.line((x, y), (x, 42), colour=PANEL_EDGE)
    figure.text(316, y, "noun")
    figure.text(x, 32, "verb", "middle")
    _vector(figure, (x, y), (x + 2 * unit, y - unit), orange)
    for tip in ((x + unit, y), (x, y - unit)):
        _vector(figure, (x, y), tip, SEEN)
    figure.rectangle(x - 4, y - 4, 8, 8, SEEN, SEEN, radius=4)
    figure.text(x + 2 * unit, y - unit - 18, "query of bellt", "middle", bold=True, colour=orange)
    figure.text(x - 10, y + 18, "Der", "end", bold=True, colour=SEEN)
    figure.text(x + unit, y + 18, "Hund", "middle", bold=True, colour=SEEN)
    figure.text(x - 12, y - unit, "bellt", "end", bold=True, colour=SEEN)
    for left, heading in ((24, "key"), (82, "query · key"), (222, "weight")):
        figure.text(left, 204, heading)
    scores = {"Der": (0, 0), "Hund": (1, 0), "bellt": (0, 1)}
    powers = {word: math.exp((2 * key[0] + key[1]) / math.sqrt(2)) for word, key in scores.items()}
    for row, (word, key) in enumerate(scores.items()):
        middle, weight = 230 + 26 * row, powers[word] / sum(powers.values())
        figure.text(24, middle, word, bold=True, colour=SEEN)
        figure.text(82, middle, f"(2, 1)·({key[0]}, {key[1]}) = {2 * key[0] + key[1]}", code=True, colour=INK)
        figure.rectangle(222, middle - 8, 130 * weight, 16, SEEN, SEEN, radius=2)
        figure.text(230 + 130 * weight, middle, f"{weight:.2f}", colour=INK)
    return figure


def heads_side_by_side() -> Figure:
    """Draw what one head makes of two neighbours, and how two heads keep them apart."""
    figure = Figure(
        "heads_side_by_side",
        368,
        326,
        "One head, and two side by side",
        "Two drawings, from bottom to top, of the words der, hund and und, where hund asks for both its neighbours. "
        "Left, one head takes half of der and half of und, and adds them up: what came first is lost. Right, head 1 "
        "takes der and head 2 takes und; their outputs lie side by side, and W^O mixes them.",
    )
    for left, title, note in ((24, "one head", "which came first?"), (200, "two heads", "kept apart")):
        figure.text(left, 32, title, size=BODY, bold=True, colour=INK)
        figure.text(left, 52, note)
    words = {}
    for first in (46, 222):
        for number, word in enumerate(("der", "hund", "und")):
            kind = "embedding" if word == "hund" else "data"
            words[first, word] = figure.box(kind, first + 50 * number, 284, 46, 28, word)
    one = figure.box("attention", 96, 222, 136, 34, "head")
    mixed = figure.box("data", 96, 160, 136, 30, "½ der + ½ und")
    figure.up(one, mixed)
    heads = [figure.box("attention", x, 222, 66, 34, f"head {number}") for number, x in ((1, 236), (2, 308))]
    joined = [figure.box("data", x, 160, 72, 30, word) for word, x in (("der", 236), ("und", 308))]
    for word in ("der", "und"):
        figure.up(words[46, word], one, x=words[46, word].x)
    for word, head, output in zip(("der", "und"), heads, joined, strict=True):
        figure.up(words[222, word], head, x=words[222, word].x)
        figure.up(head, output)
    mix = figure.box("linear", 272, 108, 144, 30, "W^O")
    figure.arrow((272, joined[0].top), (272, mix.bottom))
    figure.arrow((272, mix.top), (272, 62))
    figure.text(184, 302, "hund asks for both its neighbours", "middle")
    return figure


def _squares(figure: Figure, left: float, top: float, size: float, mask: Sequence[Sequence[bool]]) -> None:
    """Draw a mask of small squares with its upper left corner at (left, top)."""
    for y, row in enumerate(mask):
        for x, seen in enumerate(row):
            fill = SEEN if seen else HIDDEN
            figure.rectangle(left + x * size + 1, top + y * size + 1, size - 2, size - 2, fill, fill, radius=2)


def mask_shapes() -> Figure:
    """Draw how the shapes of masks line up with the scores', and what broadcasting makes of a padding mask."""
    figure = Figure(
        "mask_shapes",
        368,
        420,
        "How masks are stretched",
        "A table of shapes, aligned at the right: the scores have 2 sentences, 4 heads, 5 queries and 5 keys; the "
        "padding mask is 2, 1, 1, 5; the causal mask 5, 5, nothing at its left; the target mask 2, 1, 5, 5. "
        "What is 1 or missing is marked: it is repeated. Below, from bottom to top, the row of five keys that is "
        "sentence 2's padding mask, three filled and two empty, becomes five equal rows, one for each query, "
        "in each of four heads.",
    )
    columns = (176, 226, 276, 326)
    for x, name in zip(columns, ("batch", "heads", "query", "key"), strict=True):
        figure.text(x, 34, name, "middle")
    shapes = {"scores": "2455", "padding mask": "2115", "causal mask": "  55", "target mask": "2155"}
    for row, (name, sizes) in enumerate(shapes.items()):
        middle = 60 + 28 * row
        figure.text(24, middle, name, bold=True, colour=INK)
        for x, size in zip(columns, sizes, strict=True):
            stretched = size in " 1"
            fill, edge = KINDS["attention" if stretched else "data"]
            figure.rectangle(x - 21, middle - 11, 42, 22, fill, edge, radius=3, dash=DASHED if size == " " else "")
            if size != " ":
                figure.text(x, middle, size, "middle", code=True, colour=INK)
    figure.rectangle(24, 168, 16, 16, *KINDS["attention"], radius=3)
    figure.text(48, 176, "1, or missing: repeated")
    figure.text(24, 212, "sentence 2, for all heads and queries:", colour=INK)
    row, bus = [True, True, True, False, False], 334
    for head in range(4):
        frame = figure.panel(59 + 83 * head, 316, 70, 70)
        figure.text(frame.x, 232, f"head {head + 1}", "middle")
        _squares(figure, frame.left + 5, frame.top + 5, 12, [row] * 5)
        start = [(184, bus), (frame.x, bus)] if head in (0, 3) else [(frame.x, bus)]
        figure.arrow(*start, (frame.x, frame.bottom))
    figure.line((184, 356), (184, bus))
    _squares(figure, 129, 356, 22, [row])
    figure.text(184, 394, "its row of the padding mask: [1, 1, 5]", "middle", colour=INK)
    return figure


def _mask_heading(figure: Figure, y: float, sign: str, title: str, call: str, shape: str) -> None:
    """Write what a part of the picture shows, with the sign that joins it to the part above."""
    if sign:
        figure.rectangle(20, y - 11, 22, 22, "#ffffff", LINE, radius=11)
        figure.text(31, y, sign, "middle", BODY, bold=True, colour=INK)
    figure.text(52, y, title, size=BODY, bold=True, colour=INK)
    figure.text(350, y, shape, "end", code=True, colour=INK)
    figure.text(52, y + 21, call, code=True)


def masks() -> Figure:
    """Draw the masks of a batch of two sentences."""
    figure = Figure(
        "masks",
        368,
        612,
        "The masks of a batch",
        "A batch of two target sentences, '<sos> a dog runs home .' and '<sos> look ! <eos> <pad> <pad>'. The padding "
        "mask, [batch, 1, 1, len], is one row a sentence: filled, that is True or 'may attend', at real tokens, empty "
        "at padding. The causal mask, [len, len], is the same for all sentences: a filled lower triangle, so that "
        "a query sees itself and earlier keys. The target mask, [batch, 1, len, len], is filled where both are: what "
        "either mask hides stays hidden.",
    )

    def numbers(left: float, y: float, size: float) -> None:
        for position in range(6):
            figure.text(left + (position + 0.5) * size, y, str(position), "middle", code=True)

    _mask_heading(figure, 36, "", "Padding mask", "padding_mask(ids, pad_id)", "[batch, 1, 1, len]")
    for top, tokens in zip((76, 106), BATCH, strict=True):
        for position, (token, seen) in enumerate(zip(tokens, padding_mask(tokens), strict=True)):
            left, fill = 52 + 49 * position, SEEN if seen else HIDDEN
            figure.rectangle(left + 1.5, top, 46, 24, fill, fill, radius=3)
            figure.text(left + 24.5, top + 12, token, "middle", code=True, colour="#ffffff" if seen else INK)
    _mask_heading(figure, 166, "&", "Causal mask", "causal_mask(len)", "[len, len]")
    figure.text(148, 210, "key", "middle")
    figure.text(55, 308, "query", "end")
    numbers(76, 226, 24)
    for position in range(6):
        figure.text(68, 236 + (position + 0.5) * 24, str(position), "end", code=True)
    _squares(figure, 76, 236, 24, causal_mask(6))
    for top, seen, meaning in ((270, True, "may attend"), (300, False, "hidden")):
        _squares(figure, 240, top, 24, [[seen]])
        figure.text(270, top + 12, meaning)
    _mask_heading(figure, 418, "=", "Target mask", "target_mask(ids, pad_id)", "[batch, 1, len, len]")
    for left, tokens in zip((68, 238), BATCH, strict=True):
        numbers(left, 466, 18)
        for position, token in enumerate(tokens):
            figure.text(left - 6, 476 + (position + 0.5) * 18, token, "end", code=True)
        _squares(figure, left, 476, 18, target_mask(tokens))
    return figure


def memory_patch() -> Figure:
    """Draw how one vector of a memory takes the place of its counterpart in another."""
    figure = Figure(
        "memory_patch",
        368,
        284,
        "One vector of the memory changes places",
        "At the bottom, the memory of 'ein mann geht die treppe hinunter': six vectors, one for each word, all "
        "orange. Above it, the memory of the same sentence with 'hinauf': six vectors, of which five are blue; "
        "in place of the sixth, there is the orange one of 'hinunter', which an arrow brings up. From this row, an "
        "arrow leads up to the decoder, and from there to what it writes: 'a man … down the stairs'.",
    )

    def memory(bottom: float, kinds: Sequence[str], note: str) -> list[Box]:
        cells, left = [], 24.0
        for word, kind in zip(("ein", "mann", "geht", "die", "treppe", "hinunter"), kinds, strict=True):
            cells.append(cell := Box(left + 4 * len(word) + 6, bottom, 8 * len(word) + 12, 34))
            figure.rectangle(cell.left, cell.top, cell.width, cell.height, *KINDS[kind], radius=3)
            figure.text(cell.x, cell.middle, word, "middle", code=True, colour=INK)
            left = cell.right
        figure.text(24, bottom + 16, note)
        return cells

    patched = memory(168, [*["feed_forward"] * 5, "attention"], "memory of … hinauf, one swapped")
    other = memory(242, ["attention"] * 6, "memory of … hinunter")
    figure.arrow((other[-1].x, other[-1].top), (other[-1].x, patched[-1].bottom))
    decoder = figure.box("linear", 184, 108, 150, 34, "Decoder")
    figure.arrow((184, patched[0].top), (184, decoder.bottom))
    figure.arrow((184, decoder.top), (184, 52))
    figure.text(184, 36, "a man … down the stairs", "middle", BODY, code=True, colour=INK)
    return figure


FAMILY_WIDTH = 152  # of a box


def _sees(figure: Figure, x: float, top: float, causal: bool, note: str) -> None:
    """Draw which of three positions each of them may attend to, centred on x, with a line below."""
    cell = 18
    for query in range(3):
        for key in range(3):
            fill = HIDDEN if causal and key > query else SEEN
            left = x + (key - 1.5) * cell + 1
            figure.rectangle(left, top + query * cell + 1, cell - 2, cell - 2, fill, fill, radius=2)
    figure.text(x, top + 3 * cell + 14, note, "middle")


def _small_stack(figure: Figure, below: Box, sublayers: Sequence[tuple[str, str, str]]) -> list[Box]:
    """Draw N layers as a stack of cards above a row of words; return the sub-layers' boxes from bottom to top."""
    bottom, height = below.top - 24, len(sublayers) * 66 + 28
    for offset in (8, 4, 0):
        panel = figure.panel(below.x + offset, bottom - offset, FAMILY_WIDTH + 12, height)
    figure.text(panel.left + 12, panel.top + 18, "× N", bold=True, colour=INK)
    boxes: list[Box] = []
    for kind, name, note in sublayers:
        box = Box(below.x, boxes[-1].top - 18 if boxes else panel.bottom - 10, FAMILY_WIDTH, 48)
        figure.rectangle(box.left, box.top, box.width, box.height, *KINDS[kind])
        figure.text(box.x, box.middle - 10, name, "middle", BODY, bold=True, colour=INK)
        figure.text(box.x, box.middle + 10, note, "middle", colour=INK)
        figure.up(boxes[-1] if boxes else below, box)
        boxes.append(box)
    return boxes


def families() -> Figure:
    """Draw the three families side by side: encoder only, decoder only, both."""
    figure = Figure(
        "families",
        752,
        560,
        "Three families of Transformers",
        "Left, BERT, an encoder only: self-attention in which every token sees all tokens, then feed-forward. It reads "
        "'the [MASK] barks' and fills in 'dog'. Middle, GPT, a decoder without cross-attention: self-attention in "
        "which a token sees itself and those before it, then feed-forward. It reads 'once the dog' and predicts "
        "'barks'. Right, T5, as the paper's model: the encoder reads 'der hund bellt', where every token sees all, and "
        "makes the memory; the decoder reads '<sos> the dog', sees the past, looks at the memory by cross-attention, "
        "and predicts 'barks'. Below each stack, its self-attention's mask: all filled, or the lower triangle only.",
    )
    everything = ("attention", "Self-attention", "sees all tokens")
    past = ("attention", "Self-attention", "sees the past")
    cross = ("attention", "Cross-attention", "sees the memory")
    forward = ("feed_forward", "Feed-forward", "each by itself")
    drawn = []
    for x, words, sublayers, result in (
        (108, ("the", "[MASK]", "barks"), (everything, forward), "dog"),
        (288, ("once", "the", "dog"), (past, forward), "barks"),
        (468, ("der", "hund", "bellt"), (everything, forward), "memory"),
        (648, ("<sos>", "the", "dog"), (past, cross, forward), "barks"),
    ):
        row = _words(figure, x, figure.height - 112, words)
        causal = past in sublayers
        _sees(figure, x, row.bottom + 16, causal, "itself, and before" if causal else "all see all")
        boxes = _small_stack(figure, row, sublayers)
        top = figure.box("data", x, boxes[-1].top - 60, FAMILY_WIDTH, 34, result)
        figure.up(boxes[-1], top)
        drawn.append((boxes, top))
    memory, (_, reader, _) = drawn[2][1], drawn[3][0]
    between = (memory.right + reader.left) / 2 + 2
    figure.arrow(
        (memory.right, memory.middle), (between, memory.middle), (between, reader.middle), (reader.left, reader.middle)
    )
    for x, name, parts in ((108, "BERT", "encoder only"), (288, "GPT", "decoder only"), (558, "T5", "both")):
        figure.text(x, 36, name, "middle", BODY + 2, bold=True, colour=INK)
        figure.text(x, 58, parts, "middle")
    return figure


CACHE_STEPS, CACHE_CELL = 5, 24
KEPT = "#c3cad2"


def _steps(figure: Figure, left: float, top: float, title: str, keeps: bool) -> None:
    """Draw which positions go through the decoder at each step, and which are kept from earlier ones."""
    figure.text(left, top - 38, title, size=BODY, bold=True, colour=INK)
    for position in range(CACHE_STEPS):
        figure.text(left + (position + 0.5) * CACHE_CELL, top - 12, f"{position + 1}", "middle")
    for step in range(CACHE_STEPS):
        for position in range(step + 1):
            fill = KEPT if keeps and position < step else SEEN
            x, y = left + position * CACHE_CELL, top + step * CACHE_CELL
            figure.rectangle(x + 1.5, y + 1.5, CACHE_CELL - 3, CACHE_CELL - 3, fill, fill, radius=3)
    computed = CACHE_STEPS if keeps else CACHE_STEPS * (CACHE_STEPS + 1) // 2
    figure.text(left, top + CACHE_STEPS * CACHE_CELL + 16, f"computed: {computed}", colour=INK)


def kv_cache() -> Figure:
    """Draw what a key/value cache saves: positions computed at each step, without it and with it."""
    figure = Figure(
        "kv_cache",
        364,
        288,
        "What a key/value cache saves",
        "Five steps of writing, one below the other, each with a cell for every position of the prefix: one cell in "
        "step 1, five in step 5. Without a cache, all cells are blue: each step computes all positions again, fifteen "
        "in all. With a cache, only the last cell of each step is blue, five in all; the ten before them are grey: "
        "their keys and values are kept.",
    )
    for step in range(CACHE_STEPS):
        figure.text(64, 72 + (step + 0.5) * CACHE_CELL, f"step {step + 1}", "end")
    _steps(figure, 74, 72, "without a cache", False)
    _steps(figure, 226, 72, "with a cache", True)
    for y, fill, meaning in (
        (236, SEEN, "computed in this step"),
        (258, KEPT, "kept: keys and values"),
    ):
        figure.rectangle(74, y - 8, 16, 16, fill, fill, radius=3)
        figure.text(98, y, meaning)
    return figure


TOKEN_WIDTH, TOKEN_HEIGHT = 52, 26  # of a cell with a token


def _token(figure: Figure, x: float, bottom: float, token: str, kind: str = "data") -> Box:
    """Draw a cell with a token in it."""
    cell = Box(x, bottom, TOKEN_WIDTH, TOKEN_HEIGHT)
    figure.rectangle(cell.left, cell.top, cell.width, cell.height, *KINDS[kind], radius=4)
    figure.text(x, cell.middle, token, "middle", code=True, colour=INK)
    return cell


def target_shift() -> Figure:
    """Draw how decoder input and labels are cut from a target."""
    figure = Figure(
        "target_shift",
        368,
        240,
        "Decoder input and labels",
        "At the bottom, a target of six tokens: '<sos> a cat sleeps . <eos>'. Above it, the decoder input: the same "
        "without its last token, so that '<sos>' comes first. At the top, the labels: the same without its first "
        "token, moved one place to the left, so that '<eos>' comes last. An arrow leads from each token of the decoder "
        "input up to its label: from '<sos>' to 'a', from 'a' to 'cat', and so on, up to '<eos>'.",
    )
    tokens = ("<sos>", "a", "cat", "sleeps", ".", "<eos>")
    xs = [44 + 56 * place for place in range(len(tokens))]
    figure.text(18, 30, "labels: tgt[:, 1:]", code=True, colour=INK)
    labels = [_token(figure, x, 72, token, "linear") for x, token in zip(xs, tokens[1:], strict=False)]
    given = [_token(figure, x, 120, token, "feed_forward") for x, token in zip(xs, tokens[:-1], strict=False)]
    for below, above in zip(given, labels, strict=True):
        figure.up(below, above)
    figure.text(18, 138, "decoder input: tgt[:, :-1]", code=True, colour=INK)
    for x, token in zip(xs, tokens, strict=True):
        _token(figure, x, 200, token)
    figure.text(18, 216, "target: tgt", code=True, colour=INK)
    return figure


def teacher_forcing() -> Figure:
    """Draw what the decoder is given while it learns, and while it writes."""
    figure = Figure(
        "teacher_forcing",
        368,
        396,
        "Teacher forcing beside free writing",
        "Two drawings of four steps. In training, one pass of the decoder reads '<sos> the man picks', the reference, "
        "and says 'the dog picks up': it says 'dog' where 'man' is wanted, but 'man' is what it is given next. When it "
        "writes, there is a pass for each word, and an arrow leads from each word that it says to the next step's "
        "input: after '<sos> the' it says 'dog', is given 'dog', and goes on with 'sleeps' and a full stop, away from "
        "the reference.",
    )
    xs = [50 + 88 * step for step in range(4)]

    def row(bottom: float, words: Sequence[str], kinds: Sequence[str]) -> list[Box]:
        return [_token(figure, x, bottom, word, kind) for x, word, kind in zip(xs, words, kinds, strict=True)]

    figure.text(24, 30, "In training: the reference is given", size=BODY, bold=True, colour=INK)
    figure.text(24, 50, "it says")
    said = row(88, ("the", "dog", "picks", "up"), ("data", "attention", "data", "data"))
    figure.rectangle(24, 104, 316, 26, *KINDS["linear"])
    figure.text(182, 117, "Decoder: one pass", "middle", bold=True, colour=INK)
    for below, above in zip(row(172, ("<sos>", "the", "man", "picks"), ["feed_forward"] * 4), said, strict=True):
        figure.arrow((below.x, below.top), (below.x, 130))
        figure.arrow((below.x, 104), (below.x, above.bottom))
    figure.text(24, 190, "it is given", colour=INK)

    figure.text(24, 224, "Writing: its own words come back", size=BODY, bold=True, colour=INK)
    figure.text(24, 244, "it says")
    said = row(282, ("the", "dog", "sleeps", "."), ("data", "attention", "attention", "attention"))
    given = row(352, ("<sos>", "the", "dog", "sleeps"), ("feed_forward", "data", "attention", "attention"))
    for before, below, above in zip([None, *said], given, said, strict=False):
        figure.rectangle(below.left, 298, TOKEN_WIDTH, 16, *KINDS["linear"], radius=3)
        figure.arrow((below.x, below.top), (below.x, 314))
        figure.arrow((below.x, 298), (below.x, above.bottom))
        if before:
            gap, level = below.left - 18, below.middle
            figure.arrow((before.right, before.middle), (gap, before.middle), (gap, level), (below.left, level))
    figure.text(24, 370, "it is given", colour=INK)
    return figure


def label_smoothing() -> Figure:
    """Draw a target without and with label smoothing as bars."""
    figure = Figure(
        "label_smoothing",
        368,
        172,
        "A target without and with smoothing",
        "Two groups of four horizontal bars, for the tokens <pad>, a, dog and sleeps, of which 'a' is wanted. Left, "
        "the plain target: the bar of 'a' has the length 1, the others have none. Right, with label smoothing, ε = "
        "0.1: the bar of 'a' has the length 0.925, and each of the others 0.025.",
    )
    tokens, length, thick = ("<pad>", "a", "dog", "sleeps"), 84, 16
    for number, token in enumerate(tokens):
        figure.text(68, 64 + 26 * number, token, "end", code=True, colour=INK)
    for left, title, of_wanted, of_others in ((78, "plain", 1, 0), (212, "smoothed, ε = 0.1", 0.925, 0.025)):
        figure.text(left, 32, title, bold=True, colour=INK)
        figure.line((left, 50), (left, 156))
        for number, token in enumerate(tokens):
            share, y = of_wanted if token == "a" else of_others, 64 + 26 * number
            fill = SEEN if token == "a" else KINDS["attention"][1]
            if share:
                figure.rectangle(left + 1, y - thick / 2, length * share, thick, fill, fill, radius=0)
            figure.text(left + length * share + 9, y, f"{share:g}", colour=INK)
    return figure


def training_step() -> Figure:
    """Draw what a training loop does with each batch."""
    figure = Figure(
        "training_step",
        368,
        386,
        "What a loop does with each batch",
        "Eight boxes from bottom to top, joined by arrows, with what each of them changes beside it. Forward, in blue: "
        "shift the target, which makes decoder input and labels; predict: logits; compute the loss: one number. "
        "Backward, in orange: forget the old gradients: all are zero; compute new ones: one for each weight; clip "
        "them: at most as long as 1. Update, in green: the optimiser's step moves the weights, the schedule's step "
        "sets the next rate. An arrow leads from the last box back to the first: the next batch.",
    )
    steps = (
        ("feed_forward", "shift", "input and labels"),
        ("feed_forward", "predict", "logits"),
        ("feed_forward", "loss", "one number"),
        ("attention", "forget", "gradients: zero"),
        ("attention", "backward", "gradients: new"),
        ("attention", "clip", "gradients: ≤ 1 long"),
        ("linear", "optimiser", "weights"),
        ("linear", "schedule", "next learning rate"),
    )
    boxes: list[Box] = []
    for kind, title, changes in steps:
        box = Box(132, boxes[-1].top - 16 if boxes else 362, 108, 28)
        figure.rectangle(box.left, box.top, box.width, box.height, *KINDS[kind])
        figure.text(box.x, box.middle, title, "middle", bold=True, colour=INK)
        figure.text(box.right + 14, box.middle, changes)
        if boxes:
            figure.up(boxes[-1], box)
        boxes.append(box)
    first, last = boxes[0], boxes[-1]
    figure.arrow((last.left, last.middle), (50, last.middle), (50, first.middle), (first.left, first.middle))
    return figure


def greedy_or_beam() -> Figure:
    """Draw a language of five sentences as a tree, with what greedy search takes and what a beam of 2 keeps."""
    figure = Figure(
        "greedy_or_beam",
        368,
        322,
        "Greedy search, and a beam of 2",
        "A tree that grows from left to right. After <sos> come 'a' with 0.6 and 'the' with 0.4; after 'a', 'dog' with "
        "0.4, 'cat' with 0.35 and 'pet' with 0.25; after 'the', 'dog' with 0.9 and 'cat' with 0.1. The products are "
        "0.24, 0.21, 0.15, 0.36 and 0.04. A thick orange line, greedy search, goes by 'a' to 'dog' and ends at 0.24. A "
        "beam of 2 keeps the blue boxes, 'a' and 'the', then both 'dog'; the better of these is 'the dog' with 0.36.",
    )
    tree = {
        "a": (0.6, {"dog": 0.4, "cat": 0.35, "pet": 0.25}),
        "the": (0.4, {"dog": 0.9, "cat": 0.1}),
    }
    kept, cut, orange = KINDS["feed_forward"], ("#ffffff", PANEL_EDGE), KINDS["attention"][1]
    for x, words in ((132, "step 1"), (236, "step 2"), (320, "product")):
        figure.text(x, 32, words, "middle")

    def box(x: float, y: float, word: str, colours: tuple[str, str]) -> Box:
        drawn = Box(x, y + 13, 50, 26)
        figure.rectangle(drawn.left, drawn.top, drawn.width, drawn.height, *colours, radius=4)
        figure.text(x, y, word, "middle", code=True, colour=INK)
        return drawn

    def branch(start: Box, end: Box, probability: float, greedy: bool) -> None:
        fork = start.right + 9
        points = [(start.right, start.middle), (fork, start.middle), (fork, end.middle), (end.left, end.middle)]
        if start.middle == end.middle:
            points = points[::3]
        figure.line(*points, colour=orange if greedy else LINE, width=4 if greedy else 1.5)
        figure.text(end.left - 4, end.middle - 13, f"{probability:g}", "end", code=True)

    y, root = 66, Box(44, 139, 50, 26)
    for first, (p, following) in tree.items():
        last = y + 40 * (len(following) - 1)
        parent = box(132, (y + last) / 2, first, kept)
        branch(root, parent, p, first == "a")
        for word, q in following.items():
            greedy = first == "a" and word == "dog"
            child = box(236, y, word, kept if word == "dog" else cut)
            branch(parent, child, q, greedy)
            figure.text(320, y, f"{p * q:.2f}", "middle", bold=word == "dog", code=True, colour=INK)
            y += 40
    box(44, 126, "<sos>", cut)
    figure.line((24, 272), (52, 272), colour=orange, width=4)
    figure.text(64, 272, "greedy search: the best of each step")
    figure.rectangle(24, 286, 28, 14, *kept, radius=3)
    figure.text(64, 293, "kept by a beam of 2", colour=FADED)
    return figure


BEAM_VOCAB, BEAM_CELL = 5, 32
BEAM_CHOSEN = {"AB": (6, 9), "CD": (3, 8)}  # of each sentence's two prefixes, the candidates that go on


def batched_beam() -> Figure:
    """Draw one step of beam search for a batch: rows, candidates, and which rows and memories go on."""
    figure = Figure(
        "batched_beam",
        368,
        458,
        "A step of beam search for a batch",
        "Top: tgt has four rows, the prefixes A and B of sentence 0 and C and D of sentence 1, each beside its "
        "sentence's memory. Middle: each sentence has one long row of ten candidates, five tokens for each of its two "
        "prefixes, counted from 0 to 9. Chosen are 6 and 9 for sentence 0, both from B, and 3 and 8 for sentence 1, "
        "one from C and one from D. Bottom: the new rows. Row and token are 0 + 6 // 5 and 6 % 5: B with token 1. "
        "0 + 9 // 5 and 9 % 5: B with token 4. 2 + 3 // 5 and 3 % 5: C with token 3. 2 + 8 // 5 and 8 % 5: D with "
        "token 3. A is gone, and B is there twice, each time with the memory of sentence 0.",
    )
    colours = [KINDS["feed_forward"], KINDS["embedding"]]

    def rows(top: float, contents: Sequence[str], notes: Sequence[str]) -> None:
        for row, (words, note) in enumerate(zip(contents, notes, strict=True)):
            y, sentence = top + 27 * row, row // 2
            figure.text(24, y + 12, f"row {row}")
            figure.rectangle(70, y, 52, 24, *KINDS["data"], radius=3)
            figure.text(96, y + 12, words, "middle", code=True, colour=INK)
            figure.rectangle(128, y, 78, 24, *colours[sentence], radius=3)
            figure.text(167, y + 12, f"memory {sentence}", "middle", colour=INK)
            figure.text(216, y + 12, note, code="//" in note)

    figure.text(24, 32, "before", size=BODY, bold=True, colour=INK)
    rows(46, "ABCD", [f"sentence {row // 2}" for row in range(4)])
    figure.text(24, 178, "candidates", size=BODY, bold=True, colour=INK)
    figure.text(118, 178, "one long row a sentence")
    chosen = []
    for sentence, (prefixes, indices) in enumerate(BEAM_CHOSEN.items()):
        top = 210 + 58 * sentence
        for number, prefix in enumerate(prefixes):
            figure.text(24 + (number + 0.5) * BEAM_VOCAB * BEAM_CELL, top - 10, f"from {prefix}", "middle")
        for index in range(2 * BEAM_VOCAB):
            fill, edge = (SEEN, SEEN) if index in indices else colours[sentence]
            x = 24 + index * BEAM_CELL + (2 if index >= BEAM_VOCAB else -2)
            figure.rectangle(x + 2, top, BEAM_CELL - 4, 24, fill, edge, radius=3)
            ink = "#ffffff" if index in indices else INK
            figure.text(x + BEAM_CELL / 2, top + 12, f"{index}", "middle", code=True, colour=ink)
        for index in indices:
            row = f"{2 * sentence} + {index} // {BEAM_VOCAB}"
            chosen.append((f"{prefixes[index // BEAM_VOCAB]} {index % BEAM_VOCAB}", f"{row}, {index} % {BEAM_VOCAB}"))
    figure.text(24, 320, "after", size=BODY, bold=True, colour=INK)
    figure.text(216, 320, "from row, token", colour=FADED)
    rows(334, *zip(*chosen, strict=True))
    return figure


def silenced_head() -> Figure:
    """Draw the heads' outputs side by side, one of them zero, on their way through the output projection."""
    figure = Figure(
        "silenced_head",
        368,
        196,
        "A head that is switched off",
        "Four boxes side by side, head 1 to head 4, each d_k numbers wide, together d_model. Head 2's box is dashed "
        "and empty: its numbers are zero. An arrow leads from all four up to out_proj, and from there on.",
    )
    cells = []
    for head in range(1, 5):
        silent = head == 2
        cells.append(cell := Box(24 + 80 * (head - 0.5), 144, 80, 36))
        colours = ("#ffffff", KINDS["heads"][1]) if silent else KINDS["attention"]
        figure.rectangle(cell.left, cell.top, cell.width, cell.height, *colours, radius=3, dash=DASHED * silent)
        figure.text(cell.x, cell.middle, "0 0 … 0" if silent else f"head {head}", "middle", code=silent, colour=INK)
        figure.text(cell.x, 160, "d_k", "middle", code=True)
    out = figure.box("linear", 184, 84, 130, 34, "out_proj")
    figure.arrow((184, cells[0].top), (184, out.bottom))
    figure.arrow((184, out.top), (184, 26))
    return figure


HYPOTHESIS, REFERENCE = ("a man rides a brown horse .", "a man is riding a brown horse .")
NGRAM_WIDTH, NGRAM_LINE = 38, 14  # of a word; from one line of n-grams to the next
MISSED = ("#ffffff", "#b4521a")  # what the reference does not have: an empty frame, dashed


def ngrams() -> Figure:
    """Draw the n-grams of a translation under its words, and whether the reference has them."""
    figure = Figure(
        "ngrams",
        370,
        264,
        "The n-grams of a translation",
        "The words 'a man rides a brown horse .', and below them a bar for each n-gram, as wide as the words that it "
        "covers: seven 1-grams, six 2-grams, five 3-grams and four 4-grams. A bar is filled where the reference, 'a "
        "man is riding a brown horse .', has the n-gram: six, four, two and one of them. It is an empty, dashed frame "
        "where it has not: those are the n-grams that contain 'rides'.",
    )
    left, y = 57, 58
    for number, word in enumerate(HYPOTHESIS.split()):
        figure.text(left + (number + 0.5) * NGRAM_WIDTH, 34, word, "middle", colour=INK)
    for n in range(1, 5):
        ours, theirs = (
            [words[i : i + n] for i in range(len(words) - n + 1)] for words in (HYPOTHESIS.split(), REFERENCE.split())
        )
        middle = y + n * NGRAM_LINE / 2
        figure.text(left - 4, middle, f"n = {n}", "end", colour=INK)
        for first, ngram in enumerate(ours):
            fill, edge, dash = (SEEN, SEEN, "") if ngram in theirs else (*MISSED, DASHED)
            x, top = left + first * NGRAM_WIDTH + 3, y + first % n * NGRAM_LINE
            figure.rectangle(x, top + 2, n * NGRAM_WIDTH - 6, NGRAM_LINE - 4, fill, edge, radius=4, dash=dash)
        found = sum(ngram in theirs for ngram in ours)
        figure.text(left + len(HYPOTHESIS.split()) * NGRAM_WIDTH + 4, middle, f"{found}/{len(ours)}", colour=INK)
        y += n * NGRAM_LINE + 16
    return figure


def clipping() -> Figure:
    """Draw how often two translations have each word, and how often they are credited with it."""
    figure = Figure(
        "clipping",
        370,
        216,
        "Clipping",
        "A column for each word of two translations, a square for each time it occurs; a line marks how often the "
        "reference has the word. Left, 'the the the the': four squares, of which the line at two cuts off the upper "
        "two; they are empty and dashed: 2 of 4. Right, 'the dog sleeps on the the sofa .': three squares for 'the', "
        "of which the third is above the line; every other word has one square, below its line: 7 of 8.",
    )
    cheat, milder, reference = "the the the the", "the dog sleeps on the the sofa .", "the dog sleeps on the old sofa ."
    floor, square, column = 156, 22, 42
    for left, words in ((24, cheat.split()), (104, milder.split())):
        credited = 0
        for number, word in enumerate(dict.fromkeys(words)):
            x, most = left + (number + 0.5) * column, reference.split().count(word)
            for time in range(words.count(word)):
                fill, edge, dash = (SEEN, SEEN, "") if time < most else (*MISSED, DASHED)
                top = floor - (time + 1) * (square + 4)
                figure.rectangle(x - square / 2, top, square, square, fill, edge, radius=3, dash=dash)
                credited += time < most
            line = floor - most * (square + 4) - 2
            figure.line((x - 17, line), (x + 17, line), width=2.5)
            figure.text(x, floor + 12, word, "middle", colour=INK)
        figure.text(left + 4, floor + 34, f"{credited} of {len(words)}", size=BODY, bold=True, colour=INK)
    figure.line((206, 46), (240, 46), width=2.5)
    figure.text(248, 46, "reference has", colour=INK)
    return figure


DRAWS = ((0, 0, 2, 3, 3, 5, 6, 7), (1, 2, 2, 2, 4, 5, 5, 6), (0, 1, 3, 3, 4, 4, 7, 7))


def bootstrap() -> Figure:
    """Draw test sets that are drawn from one test set, sentence by sentence."""
    figure = Figure(
        "bootstrap",
        370,
        224,
        "The bootstrap",
        "At the top, a test set of eight sentences, eight cells numbered 1 to 8. Below it, three test sets that are "
        "drawn from it, eight cells each: some numbers come twice or three times, which are darker, and some are "
        "missing. At the right of each, its own BLEU.",
    )
    left, cell = 86, 27
    for row, (drawn, y) in enumerate(zip((tuple(range(8)), *DRAWS), (44, 96, 136, 176), strict=True)):
        figure.text(left - 10, y, f"draw {row}" if row else "test set", "end", colour=INK)
        for place, number in enumerate(drawn):
            again = drawn.count(number) > 1
            fill, colour = (SEEN, "#ffffff") if again else ("#ffffff", INK)
            figure.rectangle(left + place * cell + 1, y - 13, cell - 2, 26, fill, SEEN, radius=3)
            figure.text(left + (place + 0.5) * cell, y, str(number + 1), "middle", code=True, colour=colour)
        figure.text(left + 8 * cell + 6, y, "→ BLEU", colour=INK)
    return figure


TINY = ("ein mann schläft .", "ein hund schläft .", "der mann liest ein buch .")
TINY_IDS = {".": 4, "ein": 5, "mann": 6, "schläft": 7}  # what occurs at least twice; the specials come before
UNKNOWN = ("#fcf4ae", "#8f8206")
ID_CELL = 38


def _id_cell(figure: Figure, x: float, y: float, width: float, text: str, look: tuple[str, str, str]) -> None:
    """Draw a cell of a tensor with its upper left corner at (x, y); its look is fill, edge and the text's colour."""
    fill, edge, colour = look
    figure.rectangle(x + 1, y + 1, width - 2, 26, fill, edge, radius=3)
    figure.text(x + width / 2, y + 14, text, "middle", code=True, colour=colour)


def _ids(words: Sequence[str]) -> list[int]:
    """Return the ids of a sentence of the tiny corpus, between <sos> and <eos>."""
    return [2, *(TINY_IDS.get(word, 0) for word in words), 3]


def _look(token_id: int) -> tuple[str, str, str]:
    if token_id == 1:
        return HIDDEN, HIDDEN, FADED
    return (*UNKNOWN, INK) if token_id == 0 else ("#ffffff", SEEN, INK)


def text_to_ids() -> Figure:
    """Draw the way of a sentence to its ids."""
    figure = Figure(
        "text_to_ids",
        370,
        232,
        "From a sentence to ids",
        "From top to bottom: the sentence 'Ein Hund schläft.'; its four tokens ein, hund, schläft and the full stop; "
        "the same between <sos> and <eos>, with <unk>, on yellow, in place of hund, which is not in the vocabulary; "
        "and the six ids 2, 5, 0, 7, 4 and 3.",
    )
    words = TINY[1].split()
    tokens = ["<sos>", *(word if word in TINY_IDS else "<unk>" for word in words), "<eos>"]
    widths = [52, 38, 52, 66, 30, 52]
    edges = [40 + sum(widths[:number]) for number in range(len(widths))]
    figure.text(185, 32, "Ein Hund schläft.", "middle", BODY, bold=True, colour=INK)
    for y, step in ((58, "cut into tokens, lower case"), (120, "looked up in the vocabulary")):
        figure.text(40, y, step)
    for number, word in enumerate(words, start=1):
        _id_cell(figure, edges[number], 72, widths[number], word, ("#ffffff", SEEN, INK))
    for number, (token, token_id) in enumerate(zip(tokens, _ids(words), strict=True)):
        _id_cell(figure, edges[number], 132, widths[number], token, _look(token_id))
        _id_cell(figure, edges[number], 172, widths[number], str(token_id), _look(token_id))
    return figure


def padded_batch() -> Figure:
    """Draw three sentences of ids as one batch."""
    figure = Figure(
        "padded_batch",
        370,
        188,
        "A padded batch",
        "Three rows of eight cells. The first two hold six ids each, from 2, <sos>, to 3, <eos>, and end in two grey "
        "cells with a 1, <pad>. The third holds eight ids and no padding. Four cells with a 0, <unk>, are yellow. The "
        "rows are the batch's three sentences, the columns its eight positions: [batch, seq_len] is [3, 8].",
    )
    rows = [_ids(sentence.split()) for sentence in TINY]
    longest = max(map(len, rows))
    left, top = 46, 50
    figure.text(left + longest * ID_CELL / 2, 32, "batch: 3 sentences · seq_len: 8 positions", "middle", colour=INK)
    for row, ids in enumerate(rows):
        figure.text(left - 12, top + row * 28 + 14, str(row + 1), "end", colour=INK)
        for place, token_id in enumerate([*ids, *[1] * (longest - len(ids))]):
            _id_cell(figure, left + place * ID_CELL, top + row * 28, ID_CELL, str(token_id), _look(token_id))
    for x, token_id, meaning in ((46, 1, "1 <pad>"), (138, 0, "0 <unk>"), (230, 2, "other ids")):
        fill, edge, _ = _look(token_id)
        figure.rectangle(x, 148, 16, 16, fill, edge, radius=3)
        figure.text(x + 22, 156, meaning, code=True, colour=INK)
    return figure


def transposed() -> Figure:
    """Draw the same batch as it should be, and transposed."""
    figure = Figure(
        "transposed",
        370,
        238,
        "A batch, and the same transposed",
        "Left, the batch of three rows and eight columns: the first column, dark, is <sos>, 2, in every row. Right, "
        "the same transposed, eight rows and three columns: now the first row is 2, 2, 2, dark, and the other rows "
        "begin with words.",
    )
    rows = [_ids(sentence.split()) for sentence in TINY]
    padded = [[*ids, *[1] * (max(map(len, rows)) - len(ids))] for ids in rows]
    for left, name, shape, grid in (
        (20, "as it should be", "[batch, seq_len]", padded),
        (250, "transposed", "[seq_len, batch]", list(zip(*padded, strict=True))),
    ):
        figure.text(left, 30, name, bold=True, colour=INK)
        for row, ids in enumerate(grid):
            for place, token_id in enumerate(ids):
                x, y = left + place * 25, 44 + row * 21
                fill, edge, colour = (SEEN, SEEN, "#ffffff") if token_id == 2 else _look(token_id)
                figure.rectangle(x + 1, y + 1, 23, 19, fill, edge, radius=2)
                figure.text(x + 12.5, y + 10.5, str(token_id), "middle", code=True, colour=colour)
        if len(grid) == 3:
            figure.text(left, 124, shape, code=True)
            figure.text(left, 146, "every row starts with <sos>")
    return figure


def _lengths(figure: Figure, left: float, top: float, batches: Sequence[Sequence[int]], title: str) -> None:
    """Draw batches of sentences of these lengths, each sentence a row of cells, grey where it is padded."""
    figure.text(left, top - 16, title, bold=True, colour=INK)
    y, cell = top, 15
    for batch in batches:
        for length in batch:
            for place in range(max(batch)):
                fill = SEEN if place < length else "#c3cad2"
                figure.rectangle(left + place * cell + 1, y + 1, cell - 2, 14, fill, fill, radius=2)
            y += 17
        y += 12
    positions = sum(len(batch) * max(batch) for batch in batches)
    padding = positions - sum(map(sum, batches))
    figure.text(left, y + 2, f"{padding} of {positions} are padding", colour=INK)


def sorted_batches() -> Figure:
    """Draw four sentences in batches of two, as they come and sorted by length."""
    figure = Figure(
        "sorted_batches",
        370,
        172,
        "Batches as they come, and sorted",
        "Four sentences of 3, 9, 4 and 10 tokens in batches of two, a row of cells for each, grey where it is filled "
        "up. Left, as they come: 3 meets 9 and 4 meets 10, and 12 of 38 positions are padding. Right, sorted: 3 meets "
        "4 and 9 meets 10, and 2 of 28 are.",
    )
    _lengths(figure, 20, 50, ((3, 9), (4, 10)), "as they come")
    _lengths(figure, 194, 50, ((3, 4), (9, 10)), "sorted by length")
    return figure


POOL = (9, 5, 12, 7, 15, 6, 10, 4, 8, 13, 5, 11, 7, 20, 6, 9, 3, 14, 8, 12)  # lengths


def bucketing() -> Figure:
    """Draw a pool of sentences: shuffled, sorted, cut into batches, and these shuffled."""
    figure = Figure(
        "bucketing",
        370,
        356,
        "Bucketing",
        "Four rows of twenty bars, a bar for each sentence, as high as it is long. First, shuffled: long and short "
        "ones mixed. Second, sorted: from short to long. Third, cut: gaps after every four make five batches of "
        "similar heights. Fourth, the same five batches in another order.",
    )
    cut = [sorted(POOL)[start : start + 4] for start in range(0, 20, 4)]
    mixed = [cut[number] for number in (3, 0, 4, 2, 1)]
    steps = (("shuffle the pairs", [POOL]), ("sort a pool by length", [sorted(POOL)]))
    steps += (("cut it into batches", cut), ("shuffle the batches", mixed))
    for number, (step, groups) in enumerate(steps):
        floor, x = 88 + number * 82, 24.0
        figure.text(24, floor - 56, f"{number + 1}. {step}", bold=True, colour=INK)
        for group in groups:
            for length in group:
                figure.rectangle(x, floor - 2 * length, 10, 2 * length, SEEN, SEEN, radius=1)
                x += 14.5
            x += 10 if len(groups) > 1 else 0
    return figure


# what notebook 04 writes next: its name, and where it is in figure 1
HERE = {
    "embedding": ("Embeddings", "where ids become", "vectors, on both sides"),
    "feed_forward": ("Feed-forward", "in every layer,", "after attention"),
    "add_norm": ("Add & Norm", "around every attention", "and feed-forward"),
    "encoder": ("Encoder layer", "two sub-layers, and", "no look at the target"),
    "decoder": ("Decoder layer", "three sub-layers; one", "reads the memory"),
    "whole": ("The Transformer", "both stacks, and the", "way back to words"),
}


def here(part: str) -> Figure:
    """Draw figure 1 as a thumbnail, in which one part is coloured and the others are grey."""
    title, *notes = HERE[part]
    figure = Figure(
        f"here_{part}",
        356,
        190,
        f"Here in figure 1: {title}",
        "A small drawing of the Transformer without words: on the left the source's embedding and an encoder layer of "
        "two sub-layers, on the right the target's embedding, a decoder layer of three, and the output. "
        f"Coloured is what comes next: {title.lower()}, {' '.join(notes)}.",
    )

    def block(kind: str, x: float, bottom: float, height: float, side: str) -> Box:
        fill, edge = KINDS[kind] if part in (kind, side, "whole") else ("#ffffff", PANEL_EDGE)
        box = Box(x, bottom, 52, height)
        figure.rectangle(box.left, box.top, box.width, box.height, fill, edge, radius=3)
        return box

    columns = {}
    for side, x, kinds in (
        ("encoder", 50, ("attention", "feed_forward")),
        ("decoder", 132, ("attention", "attention", "feed_forward")),
    ):
        embedding = block("embedding", x, 166, 15, "")
        panel = figure.panel(x, 139, 64, len(kinds) * 31 + 5)
        figure.line((x, embedding.top), (x, panel.bottom))
        boxes: list[Box] = []
        for kind in kinds:
            boxes.append(block(kind, x, boxes[-1].top - 7 if boxes else panel.bottom - 6, 15, side))
            boxes.append(block("add_norm", x, boxes[-1].top, 9, side))
        columns[side] = panel, boxes
    (encoder, _), (decoder, boxes) = columns.values()
    output = block("linear", decoder.x, decoder.top - 10, 15, "")
    figure.line((decoder.x, decoder.top), (decoder.x, output.bottom))
    cross, bus = boxes[2], 88
    figure.arrow((encoder.x, encoder.top), (encoder.x, 56), (bus, 56), (bus, cross.middle), (cross.left, cross.middle))
    figure.text(180, 74, title, size=BODY, bold=True, colour=INK)
    for number, note in enumerate(notes):
        figure.text(180, 98 + 18 * number, note)
    return figure


def clock_hands() -> Figure:
    """Draw the pairs of a position's vector as the hands of clocks."""
    figure = Figure(
        "clock_hands",
        368,
        194,
        "Positions as the hands of clocks",
        "Two rows of clock faces, for the positions 0, 1, 2, 3 and 100. At position 0 both hands point up. The hand of "
        "pair 0 turns clockwise by one radian, 57 degrees, with each position; the hand of pair 1 turns by a hundredth "
        "of that, and has turned by one radian at position 100. Sine is how far to the right a hand's tip is, cosine "
        "how far up.",
    )
    columns = {0: 130, 1: 178, 2: 226, 3: 274, 100: 330}
    figure.text(20, 32, "position", code=True)
    for position, x in columns.items():
        figure.text(x, 32, str(position), "middle", code=True, colour=INK)
    for pair, y, turn in ((0, 74, "57° a step"), (1, 134, "0.57° a step")):
        figure.text(20, y - 9, f"pair {pair}", size=BODY, bold=True, colour=INK)
        figure.text(20, y + 11, turn)
        for position, x in columns.items():
            angle = position * 100.0**-pair
            tip = x + 15 * math.sin(angle), y - 15 * math.cos(angle)
            figure.rectangle(x - 20, y - 20, 40, 40, "#ffffff", KINDS["embedding"][1], radius=20)
            figure.line((x, y), tip, width=2.5)
            figure.dot(*tip)
    figure.text(184, 170, "sine: how far right · cosine: how far up", "middle")
    return figure


def _plus(figure: Figure, x: float, bottom: float) -> Box:
    """Draw a circle in which two things are added."""
    total = Box(x, bottom, 22, 22)
    figure.rectangle(total.left, total.top, 22, 22, "#ffffff", LINE, radius=11)
    figure.line((total.x - 6, total.middle), (total.x + 6, total.middle))
    figure.line((total.x, total.middle - 6), (total.x, total.middle + 6))
    return total


CLOCK = 40  # its radius


def clock_turn() -> Figure:
    """Draw the first hand at two positions and two positions on: the same turn."""
    figure = Figure(
        "clock_turn",
        368,
        184,
        "Two positions on: the same turn",
        "Two clock faces. In the left one, the hand of pair 0 turns from position 3, where it points down, to position "
        "5, where it points left and a little up. In the right one, it turns from position 40, right and down, to "
        "position 42, left and down. An arc in each face marks the turn: two radians clockwise, 115 degrees, in both.",
    )
    for x, start in ((100, 3), (268, 40)):
        y, end = 74, start + 2
        figure.rectangle(x - CLOCK, y - CLOCK, 2 * CLOCK, 2 * CLOCK, "#ffffff", KINDS["embedding"][1], radius=CLOCK)
        angles = [start + step / 20 for step in range(41)]
        arc = " L".join(f"{x + 22 * math.sin(angle):.1f} {y - 22 * math.cos(angle):.1f}" for angle in angles)
        figure.elements.append(f'<path d="M{arc}" fill="none" stroke="{GREEN}" stroke-width="4"/>')
        for position, colour in ((start, PANEL_EDGE), (end, LINE)):
            tip = x + 32 * math.sin(position), y - 32 * math.cos(position)
            figure.line((x, y), tip, width=2.5, colour=colour)
            figure.dot(*tip)
        figure.text(x, y + CLOCK + 22, f"position {start} → {end}", "middle", code=True, colour=INK)
    figure.text(184, 156, "both turn by two radians, 115°", "middle", colour=INK)
    return figure


def _numbers(
    figure: Figure, left: float, top: float, rows: Sequence[Sequence[object]], fills: Sequence[Sequence[str]]
) -> Box:
    """Draw a table of numbers with its upper left corner at (left, top), each cell filled as a kind of box is."""
    for y, (row, kinds) in enumerate(zip(rows, fills, strict=True)):
        for x, (value, kind) in enumerate(zip(row, kinds, strict=True)):
            figure.rectangle(left + 26 * x, top + 26 * y, 26, 26, *KINDS[kind], radius=2)
            figure.text(left + 26 * x + 13, top + 26 * y + 13, str(value), "middle", code=True, colour=INK)
    width, height = 26 * len(rows[0]), 26 * len(rows)
    return Box(left + width / 2, top + height, width, height)


def embedding_lookup() -> Figure:
    """Draw how ids pick rows of a table."""
    figure = Figure(
        "embedding_lookup",
        368,
        168,
        "An id picks a row of the table",
        "Left, three ids, one below the other: 2, 0 and 2. Middle, a table with the rows 0, 1 and 2, of four numbers "
        "each; row 0 is orange and row 2 is blue, like the ids that pick them, and row 1, which no id picks, is white. "
        "Right, what comes out: row 2, row 0 and row 2 of the table, times two.",
    )
    ids, table = (2, 0, 2), [[4 * row + column for column in range(4)] for row in range(3)]
    kind = {0: "attention", 1: "data", 2: "feed_forward"}
    picked = [[kind[row]] * 4 for row in ids]
    _numbers(figure, 20, 62, [[i] for i in ids], [[kind[i]] for i in ids])
    two = _numbers(figure, 98, 62, table, [[kind[row]] * 4 for row in range(3)])
    three = _numbers(figure, 242, 62, [[2 * value for value in table[row]] for row in ids], picked)
    for x in (69, 223):
        figure.text(x, 28, "→", "middle", BODY, bold=True, colour=INK)
    for row in (0, 2):
        figure.text(two.left - 9, 75 + 26 * row, str(row), "middle", code=True)
    for x, title, note in (
        (33, "ids", ""),
        (two.x, "table", "a row for each type"),
        (three.x, "vectors", "× √d_model"),
    ):
        figure.text(x, 28, title, "middle", bold=True, colour=INK)
        if note:
            figure.text(x, 46, note, "middle")
    return figure


def norm_axis() -> Figure:
    """Draw which numbers of a batch share a mean in layer normalisation, and in batch normalisation."""
    figure = Figure(
        "norm_axis",
        368,
        284,
        "Which numbers share a mean",
        "A batch of two sentences, 'ein hund bellt' and 'nein <pad> <pad>', as a grid for each: a row for each token, "
        "four columns for the numbers of its vector. It is drawn twice. Left, layer norm: one row is blue, that of "
        "'hund', 1 3 3 9, whose mean is 4. Right, batch norm: one column is orange, through both sentences and through "
        "their padding.",
    )
    numbers = ([[2, 0, 5, 1], [1, 3, 3, 9], [4, 1, 0, 3]], [[0, 2, 6, 4], [7, 7, 7, 7], [7, 7, 7, 7]])
    for left, title, note in ((74, "layer norm", "a mean for each row"), (238, "batch norm", "for each column")):
        by_row = title == "layer norm"
        figure.text(left + 52, 28, title, "middle", BODY, bold=True, colour=INK)
        for sentence, top in enumerate((68, 160)):
            kinds = [
                [
                    ("feed_forward" if (sentence, row) == (0, 1) else "data")
                    if by_row
                    else ("attention" if column == 1 else "data")
                    for column in range(4)
                ]
                for row in range(3)
            ]
            _numbers(figure, left, top, numbers[sentence], kinds)
        figure.text(left + 52, 52, "d_model", "middle", code=True)
        figure.text(left + 52, 258, note, "middle", colour=INK)
    for top, tokens in ((68, ("ein", "hund", "bellt")), (160, ("nein", "<pad>", "<pad>"))):
        for row, token in enumerate(tokens):
            figure.text(66, top + 13 + 26 * row, token, "end", code=True, colour=INK)
    return figure


def norm_placement() -> Figure:
    """Draw a sub-layer's wrapper with its norm after the sum, and before the sub-layer."""
    figure = Figure(
        "norm_placement",
        368,
        300,
        "Post-LN and pre-LN",
        "Two drawings of a sub-layer, from bottom to top; the straight path from input to output is a thick green "
        "line. Left, post-LN: a branch goes through the sub-layer and is added to the path; then the path itself "
        "passes a LayerNorm. Right, pre-LN: the branch passes a LayerNorm, then the sub-layer, and is added; nothing "
        "else lies on the path.",
    )

    def box(x: float, bottom: float, kind: str, title: str) -> Box:
        drawn = Box(x, bottom, 78, 30)
        figure.rectangle(drawn.left, drawn.top, drawn.width, drawn.height, *KINDS[kind])
        figure.text(x, drawn.middle, title, "middle", bold=True, colour=INK)
        return drawn

    for left, title, note, first, total_at in (
        (0, "post-LN", "a norm lies on the path", ("operation", "Sub-layer"), 158),
        (172, "pre-LN", "the path stays free", ("add_norm", "LayerNorm"), 128),
    ):
        path, branch, bottom, fork = left + 62, left + 140, 262, 248
        figure.text(left + 24, 32, title, size=BODY, bold=True, colour=INK)
        figure.text(left + 24, 52, note)
        figure.text(path, 276, "x", "middle", code=True, colour=INK)
        figure.arrow((path, 86), (path, 72))
        upper = box(branch, 232, *first)
        figure.arrow((path, fork), (branch, fork), (branch, upper.bottom))
        if title == "pre-LN":
            norm, upper = upper, box(branch, upper.top - 16, "operation", "Sub-layer")
            figure.up(norm, upper)
        total = _plus(figure, path, total_at + 11)
        stops = [bottom, total.bottom, total.top, 86]
        if title == "post-LN":
            norm = box(path, 131, "add_norm", "LayerNorm")
            stops[3:3] = norm.bottom, norm.top
        for start, end in zip(stops[::2], stops[1::2], strict=True):
            figure.line((path, start), (path, end), colour=GREEN, width=4)
        figure.arrow((branch, upper.top), (branch, total.middle), (total.right, total.middle))
    return figure


FIGURES: tuple[Callable[[], Figure], ...] = (
    whole_model,
    transformer,
    opened_box,
    memory_patch,
    encoder_layer,
    decoder_layer,
    multi_head_attention,
    query_and_keys,
    heads_side_by_side,
    mask_shapes,
    masks,
    families,
    clock_hands,
    clock_turn,
    embedding_lookup,
    norm_axis,
    norm_placement,
    *(partial(here, part) for part in HERE),
    target_shift,
    teacher_forcing,
    label_smoothing,
    training_step,
    greedy_or_beam,
    batched_beam,
    silenced_head,
    kv_cache,
    ngrams,
    text_to_ids,
    padded_batch,
    transposed,
    sorted_batches,
    bucketing,
    clipping,
    bootstrap,
)


def main() -> None:
    """Write all figures."""
    FOLDER.mkdir(exist_ok=True)
    for draw in FIGURES:
        figure = draw()
        (FOLDER / f"{figure.name}.svg").write_text(figure.svg(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
