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


def multi_head_attention() -> Figure:
    """Draw multi-head attention, with the scaled dot product of every head opened up."""
    figure = Figure(
        "multi_head_attention",
        750,
        946,
        "Multi-head attention",
        "From bottom to top: query, of shape [batch, query_len, d_model], and key and value, of shape [batch, "
        "key_len, d_model], each pass a linear projection and are split into heads of d_k = d_model / num_heads "
        "dimensions. In every head, queries times transposed keys, divided by √d_k, are scores of shape [batch, "
        "heads, query_len, key_len]; these become minus infinity where the mask is False; softmax turns them into "
        "weights, which are multiplied with the values. The heads' outputs are concatenated to [batch, query_len, "
        "d_model] and pass the output projection.",
    )
    columns, middle, scores_x, bottom = (150, 375, 600), 375, 262, figure.height - 24
    split = Box(middle, bottom - 150, 662, 46)
    for x, name, length in zip(columns, ("query", "key", "value"), ("query_len", "key_len", "key_len"), strict=True):
        data = figure.box("data", x, bottom, 212, 46, name, f"[batch, {length}, d_model]")
        projection = figure.box("linear", x, data.top - 28, 212, 46, "Linear", f"{name[0]}_proj")
        figure.up(data, projection)
        figure.up(projection, split, x=x)
        figure.line((x, split.top), (x, split.top - 12))
        figure.text(x, split.top - 22, f"[batch, heads, {length}, d_k]", "middle", code=True)
    figure.box(
        "operation", split.x, split.bottom, split.width, split.height, "Split into heads", "d_k = d_model / num_heads"
    )

    for offset in (16, 8, 0):
        panel = figure.panel(middle + offset, split.top - 50 - offset, 570, 408, "heads")
    figure.text(panel.left + 20, panel.top + 26, "Scaled dot-product attention", size=BODY, bold=True, colour=INK)
    figure.text(panel.left + 20, panel.top + 46, "in every head at once")
    products = figure.box("step", scores_x, panel.bottom - 30, 250, 34, "queries × keysᵀ")
    scores = figure.box("step", scores_x, products.top - 24, 250, 34, "÷ √d_k")
    masked = figure.box("step", scores_x, scores.top - 44, 250, 34, "−∞ where mask is False")
    softmax = figure.box("step", scores_x, masked.top - 24, 250, 34, "softmax over keys")
    weighted = figure.box("step", middle, softmax.top - 38, 510, 34, "weights × values")
    for x, box in zip(columns, (products, products, weighted), strict=True):
        figure.arrow((x, split.top - 32), (x, box.bottom))
    figure.up(products, scores)
    figure.up(scores, masked, "scores [batch, heads, query_len, key_len]")
    figure.up(masked, softmax)
    figure.up(softmax, weighted, "weights [batch, heads, query_len, key_len]", x=scores_x)
    mask = figure.box("data", 501, masked.middle + 23, 150, 46, "mask", "True: may attend", dash=DASHED)
    figure.arrow((mask.left, mask.middle), (masked.right, mask.middle), dash=DASHED)

    concatenate = figure.box("operation", middle, panel.top - 56, 270, 32, "Concatenate heads")
    figure.up(weighted, concatenate)
    figure.text(middle + 10, concatenate.bottom + 20, "[batch, heads, query_len, d_k]", code=True)
    projection = figure.box("linear", middle, concatenate.top - 34, 270, 46, "Linear", "out_proj")
    figure.up(concatenate, projection, "[batch, query_len, d_model]")
    output = figure.box("data", middle, projection.top - 28, 270, 46, "output", "[batch, query_len, d_model]")
    figure.up(projection, output)
    return figure


BATCH = (("<sos>", "a", "dog", "runs", "home", "."), ("<sos>", "look", "!", "<eos>", "<pad>", "<pad>"))
CELL, ROW = 46, 26


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


def _cell(figure: Figure, left: float, top: float, seen: bool) -> None:
    """Draw one entry of a mask."""
    fill = SEEN if seen else HIDDEN
    figure.rectangle(left + 1.5, top + 1.5, CELL - 3, ROW - 3, fill, fill, radius=3)


def _grid(
    figure: Figure, left: float, top: float, mask: Sequence[Sequence[bool]], keys: Sequence[str], queries: Sequence[str]
) -> None:
    """Draw a mask with its upper left corner at (left, top), keys above it and queries to its left."""
    for number, label in enumerate(keys):
        figure.text(left + (number + 0.5) * CELL, top - 12, label, "middle", code=True, colour=INK)
    for number, label in enumerate(queries):
        figure.text(left - 8, top + (number + 0.5) * ROW, label, "end", code=True, colour=INK)
    for y, row in enumerate(mask):
        for x, seen in enumerate(row):
            _cell(figure, left + x * CELL, top + y * ROW, seen)


def _mask_heading(figure: Figure, y: float, sign: str, title: str, call: str, shape: str, note: str) -> None:
    """Write what a row of the picture shows, with the sign that joins it to the row above."""
    if sign:
        figure.rectangle(28, y - 13, 26, 26, "#ffffff", LINE, radius=13)
        figure.text(41, y, sign, "middle", BODY + 2, bold=True, colour=INK)
    figure.text(68, y, title, size=BODY, bold=True, colour=INK)
    figure.text(232, y, call, code=True)
    figure.text(722, y, shape, "end", code=True, colour=INK)
    figure.text(68, y + 22, note)


def masks() -> Figure:
    """Draw the masks of a batch of two sentences."""
    figure = Figure(
        "masks",
        750,
        716,
        "The masks of a batch",
        "A batch of two target sentences, '<sos> a dog runs home .' and '<sos> look ! <eos> <pad> <pad>'. The padding "
        "mask, [batch, 1, 1, len], is one row a sentence: filled, that is True or 'may attend', at real tokens, empty "
        "at padding. The look-ahead mask, [len, len], is the same for all sentences: a filled lower triangle, so that "
        "a query sees itself and earlier keys. The target mask, [batch, 1, len, len], is filled where both are: what "
        "either mask hides stays hidden.",
    )
    lefts, positions = (76, 446), "012345"
    note = "one row for each sentence, whatever the head and the query"
    _mask_heading(figure, 40, "", "Padding mask", "padding_mask(ids, pad_id)", "[batch, 1, 1, len]", note)
    for left, tokens in zip(lefts, BATCH, strict=True):
        _grid(figure, left, 104, [padding_mask(tokens)], tokens, [])
    note = "one grid for all sentences and heads: a query sees itself and what comes before it"
    _mask_heading(figure, 176, "&", "Look-ahead mask", "causal_mask(len)", "[len, len]", note)
    left, top = 375 - 3 * CELL, 262
    _grid(figure, left, top, causal_mask(6), positions, positions)
    figure.text(left + 3 * CELL, top - 34, "key", "middle")
    figure.text(left - 28, top + 3 * ROW, "query", "end")
    for row, seen, meaning in ((2, True, "True: may attend"), (3, False, "False: hidden")):
        _cell(figure, 550, top + row * ROW, seen)
        figure.text(604, top + (row + 0.5) * ROW, meaning)
    note = "one grid for each sentence, for all heads: what either mask hides stays hidden"
    _mask_heading(figure, 464, "=", "Target mask", "target_mask(ids, pad_id)", "[batch, 1, len, len]", note)
    for left, tokens in zip(lefts, BATCH, strict=True):
        _grid(figure, left, 528, target_mask(tokens), tokens, tokens)
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


HYPOTHESIS, REFERENCE = ("a man rides a brown horse .", "a man is riding a brown horse .")
NGRAM_WIDTH, NGRAM_LINE = 56, 14  # of a word; from one line of n-grams to the next


def ngrams() -> Figure:
    """Draw the n-grams of a translation under its words, and whether the reference has them."""
    figure = Figure(
        "ngrams",
        556,
        264,
        "The n-grams of a translation",
        "The words 'a man rides a brown horse .', and below them a bar for each n-gram, as wide as the words that it "
        "covers: seven 1-grams, six 2-grams, five 3-grams and four 4-grams. A bar is filled where the reference, 'a "
        "man is riding a brown horse .', has the n-gram: six, four, two and one of them. It is an empty, dashed frame "
        "where it has not: those are the n-grams that contain 'rides'.",
    )
    left, y = 88, 58
    for number, word in enumerate(HYPOTHESIS.split()):
        figure.text(left + (number + 0.5) * NGRAM_WIDTH, 34, word, "middle", BODY, bold=True, colour=INK)
    for n in range(1, 5):
        ours, theirs = (
            [words[i : i + n] for i in range(len(words) - n + 1)] for words in (HYPOTHESIS.split(), REFERENCE.split())
        )
        middle = y + n * NGRAM_LINE / 2
        figure.text(left - 14, middle, f"{n}-grams", "end", colour=INK)
        for first, ngram in enumerate(ours):
            fill, edge, dash = (SEEN, SEEN, "") if ngram in theirs else ("#ffffff", "#b4521a", DASHED)
            x, top = left + first * NGRAM_WIDTH + 3, y + first % n * NGRAM_LINE
            figure.rectangle(x, top + 2, n * NGRAM_WIDTH - 6, NGRAM_LINE - 4, fill, edge, radius=4, dash=dash)
        found = sum(ngram in theirs for ngram in ours)
        figure.text(left + len(HYPOTHESIS.split()) * NGRAM_WIDTH + 8, middle, f"{found} of {len(ours)}", colour=INK)
        y += n * NGRAM_LINE + 16
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
    memory_patch,
    encoder_layer,
    decoder_layer,
    multi_head_attention,
    masks,
    families,
    clock_hands,
    clock_turn,
    embedding_lookup,
    norm_axis,
    norm_placement,
    *(partial(here, part) for part in HERE),
    kv_cache,
    ngrams,
)


def main() -> None:
    """Write all figures."""
    FOLDER.mkdir(exist_ok=True)
    for draw in FIGURES:
        figure = draw()
        (FOLDER / f"{figure.name}.svg").write_text(figure.svg(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
