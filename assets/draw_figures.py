"""Draw the figures of the series into ``assets/figures``: ``python assets/draw_figures.py``.

Every drawing is a plain SVG on a card of its own, so that it can be read on a light and on a dark page. A figure is
drawn from the bottom upwards, as the data flows: a box is placed by the middle of its lower edge, and the next box by
the upper edge of that one. Coordinates are pixels at natural size, with y growing downwards.
"""

import math
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

    def arrow(self, *points: tuple[float, float], dash: str = "") -> None:
        """Draw a line whose last point is the tip of an arrowhead."""
        tip = points[-1]
        neck = _towards(tip, points[-2], 9)
        self.line(*points[:-1], neck, dash=dash)
        across = ((neck[1] - tip[1]) * 0.45, (tip[0] - neck[0]) * 0.45)
        corners = [(neck[0] + across[0], neck[1] + across[1]), (neck[0] - across[0], neck[1] - across[1])]
        path = " ".join(f"L{x:g} {y:g}" for x, y in corners)
        self.elements.append(f'<path d="M{tip[0]:g} {tip[1]:g} {path} Z" fill="{LINE}"/>')

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
        frame = (
            f'<rect x="1" y="1" width="{self.width - 2}" height="{self.height - 2}" rx="14" '
            f'fill="{CARD}" stroke="{CARD_EDGE}"/>'
        )
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-labelledby="{self.name}-title {self.name}-desc" font-family="{SANS}">',
            f'<title id="{self.name}-title">{escape(self.title)}</title>',
            f'<desc id="{self.name}-desc">{escape(self.description)}</desc>',
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


LAYER_X, LAYER_BOX, RESIDUAL_X, OUTSIDE_X = 250, 300, 64, 594  # layers: column, box width, detour, what comes in


def _attention(
    figure: Figure, start: float, title: str, call: str, shape: str, mask: tuple[str, str], memory: bool = False
) -> Box:
    """Draw attention and its Add & Norm above the y of ``start``; keys and values are x's or the memory's."""
    fork, key_x, value_x = start - 60, LAYER_X + 54, LAYER_X + 108
    box = figure.box("attention", LAYER_X, start - 102, LAYER_BOX, 52, title, call)
    figure.arrow((LAYER_X, start), (LAYER_X, box.bottom))
    if memory:
        source = figure.box("data", OUTSIDE_X, fork + 22, 220, 44, "memory", "[batch, src_len, d_model]")
        figure.arrow((source.left, fork), (key_x, fork), (key_x, box.bottom))
        figure.arrow((value_x, fork), (value_x, box.bottom))
        figure.dot(value_x, fork)
    else:
        figure.arrow((LAYER_X, fork), (value_x, fork), (value_x, box.bottom))
        figure.arrow((key_x, fork), (key_x, box.bottom))
        figure.dot(LAYER_X, fork)
        figure.dot(key_x, fork)
    for label, x in (("query", LAYER_X), ("key", key_x), ("value", value_x)):
        figure.text(x + 9, fork - 20, label)
    allowed = figure.box("data", OUTSIDE_X, box.middle + 22, 220, 44, *mask, dash=DASHED)
    figure.arrow((allowed.left, box.middle), (box.right, box.middle), dash=DASHED)
    return _add_norm(figure, start, box, shape)


def _feed_forward(figure: Figure, start: float, shape: str) -> Box:
    """Draw the feed-forward network and its Add & Norm above the y of ``start``."""
    box = figure.box("feed_forward", LAYER_X, start - 72, LAYER_BOX, 52, "Feed-forward", "y = feed_forward(x)")
    figure.arrow((LAYER_X, start), (LAYER_X, box.bottom))
    figure.text(OUTSIDE_X - 110, box.middle - 9, "d_model → d_ff → d_model,", code=True)
    figure.text(OUTSIDE_X - 110, box.middle + 10, "at each position by itself")
    return _add_norm(figure, start, box, shape)


def _add_norm(figure: Figure, start: float, sublayer: Box, shape: str) -> Box:
    """Put Add & Norm on top of a sub-layer, and lead x from below the sub-layer around it."""
    box = figure.box(
        "add_norm", LAYER_X, sublayer.top - 36, LAYER_BOX, 48, "Add & Norm", "x = LayerNorm(x + Dropout(y))"
    )
    figure.text(LAYER_X + 10, start - 19, f"x {shape}", code=True)
    figure.up(sublayer, box, f"y {shape}")
    branch = start - 40
    figure.dot(LAYER_X, branch)
    figure.arrow((LAYER_X, branch), (RESIDUAL_X, branch), (RESIDUAL_X, box.middle), (box.left, box.middle))
    figure.text(RESIDUAL_X + 12, (branch + box.middle) / 2, "x", code=True)
    return box


def _layer_panel(figure: Figure, bottom: float, height: float, title: str, source: str, destination: str) -> None:
    """Draw a layer's background, what enters it from below, and where its output goes."""
    panel = figure.panel(LAYER_X, bottom, 428, height)
    figure.text(panel.left + 20, panel.top + 24, title, size=BODY, bold=True, colour=INK)
    figure.text(panel.right - 20, panel.top + 24, "norm_first=False", "end", code=True)
    figure.line((LAYER_X, bottom + 28), (LAYER_X, bottom - 8))
    figure.text(LAYER_X, bottom + 42, source, "middle")
    figure.arrow((LAYER_X, panel.top + 48), (LAYER_X, panel.top - 28))
    figure.text(LAYER_X, panel.top - 42, destination, "middle")


def encoder_layer() -> Figure:
    """Draw one encoder layer, post-LN."""
    figure = Figure(
        "encoder_layer",
        728,
        642,
        "An encoder layer",
        "From bottom to top: x, of shape [batch, src_len, d_model], enters multi-head self-attention as query, key "
        "and value; the source padding mask says which positions may be attended to. Add & Norm computes LayerNorm(x "
        "+ Dropout(y)) from the attention's output y and from x, which a residual path leads around the attention. "
        "The feed-forward network follows, with an Add & Norm and a residual path of its own. The result has the "
        "shape of x.",
    )
    shape = "[batch, src_len, d_model]"
    bottom = figure.height - 70
    _layer_panel(
        figure,
        bottom,
        502,
        "Encoder layer",
        "from the embedding, or the layer below",
        "to the layer above, or the memory",
    )
    box = _attention(
        figure,
        bottom - 8,
        "Multi-head self-attention",
        "y = self_attn(x, x, x)",
        shape,
        ("source padding mask", "[batch, 1, 1, src_len]"),
    )
    _feed_forward(figure, box.top, shape)
    return figure


def decoder_layer() -> Figure:
    """Draw one decoder layer, post-LN."""
    figure = Figure(
        "decoder_layer",
        728,
        880,
        "A decoder layer",
        "From bottom to top, each followed by Add & Norm with a residual path around it: masked multi-head "
        "self-attention, whose query, key and value all come from the target x of shape [batch, tgt_len, d_model], "
        "under the target mask; cross-attention, whose query comes from the target and whose key and value come from "
        "the memory of shape [batch, src_len, d_model], under the source's padding mask; the feed-forward network.",
    )
    shape = "[batch, tgt_len, d_model]"
    bottom = figure.height - 70
    _layer_panel(
        figure,
        bottom,
        740,
        "Decoder layer",
        "from the embedding, or the layer below",
        "to the layer above, or the output layer",
    )
    box = _attention(
        figure,
        bottom - 8,
        "Masked multi-head self-attention",
        "y = self_attn(x, x, x)",
        shape,
        ("target mask", "[batch, 1, tgt_len, tgt_len]"),
    )
    box = _attention(
        figure,
        box.top,
        "Multi-head cross-attention",
        "y = cross_attn(x, memory, memory)",
        shape,
        ("source padding mask", "[batch, 1, 1, src_len]"),
        memory=True,
    )
    _feed_forward(figure, box.top, shape)
    return figure


# tokens with their ids in the sample corpus's vocabularies
SOURCE = (("<sos>", 2), ("ein", 8), ("hund", 27), ("läuft", 155), ("<eos>", 3))
TARGET = (("<sos>", 2), ("a", 7), ("dog", 24), ("runs", 621), ("<eos>", 3))
ENCODER_LAYER = (("attention", "Self-attention"), ("feed_forward", "Feed-forward"))
DECODER_LAYER = (
    ("attention", "Masked self-attention"),
    ("attention", "Cross-attention"),
    ("feed_forward", "Feed-forward"),
)


def _tokens(figure: Figure, x: float, bottom: float, tokens: Sequence[tuple[str, int]]) -> Box:
    """Draw a row of tokens and their ids, centred on x."""
    row = Box(x, bottom, len(tokens) * 54, 42)
    figure.rectangle(row.left, row.top, row.width, row.height, *KINDS["data"])
    for number, (token, token_id) in enumerate(tokens):
        left = row.left + number * 54
        if number:
            figure.line((left, row.top), (left, row.bottom), colour=CARD_EDGE)
        figure.text(left + 27, row.middle - 8, token, "middle", code=True, colour=INK)
        figure.text(left + 27, row.middle + 9, str(token_id), "middle", code=True)
    return row


def _plus(figure: Figure, x: float, bottom: float) -> Box:
    """Draw a circle in which two things are added."""
    total = Box(x, bottom, 22, 22)
    figure.rectangle(total.left, total.top, 22, 22, "#ffffff", LINE, radius=11)
    figure.line((total.x - 6, total.middle), (total.x + 6, total.middle))
    figure.line((total.x, total.middle - 6), (total.x, total.middle + 6))
    return total


def _embedding(figure: Figure, tokens: Box, positions_x: float, length: str) -> Box:
    """Draw the embedding of a row of tokens; return the circle in which positions are added."""
    table = figure.box("embedding", tokens.x, tokens.top - 32, 200, 46, "Token embedding", "× √d_model")
    figure.up(tokens, table, f"[batch, {length}]")
    total = Box(tokens.x, table.top - 20, 22, 22)
    figure.up(table, total)
    positions = figure.box("embedding", positions_x, total.middle + 15, 96, 30, "Positions")
    tip, tail = (total.left, positions.right) if positions_x < tokens.x else (total.right, positions.left)
    figure.arrow((tail, total.middle), (tip, total.middle))
    return _plus(figure, total.x, total.bottom)


def _layer(figure: Figure, x: float, bottom: float, sublayers: Sequence[tuple[str, str]]) -> list[Box]:
    """Draw a layer's sub-layers, each with its Add & Norm on top; return all boxes from bottom to top."""
    boxes: list[Box] = []
    for kind, title in sublayers:
        box = figure.box(kind, x, boxes[-1].top - 18 if boxes else bottom, 200, 32, title)
        if boxes:
            figure.up(boxes[-1], box)
        boxes += [box, figure.box("add_norm", x, box.top, 200, 26, "Add & Norm")]
    return boxes


def _stack(
    figure: Figure,
    start: Box,
    edges: tuple[float, float],
    label: tuple[float, str],
    shape: str,
    sublayers: Sequence[tuple[str, str]],
    gap: float,
) -> tuple[list[Box], list[Box]]:
    """Draw the first and the last of N layers, ``gap`` apart, with dots between; return the boxes of both.

    Args:
        figure: where to draw.
        start: what enters the first layer from below.
        edges: the left and the right edge of the layers' background.
        label: the middle and the words of what stands beside each layer.
        shape: of what enters.
        sublayers: the kind and the title of each.
        gap: between the layers.
    """
    x, height = start.x, len(sublayers) * 76 - 18 + 24
    layers, bottom = [], start.top - 38
    for number in ("1", "N"):
        panel = figure.panel(sum(edges) / 2, bottom, edges[1] - edges[0], height)
        figure.text(label[0], panel.middle - 10, label[1], "middle", BODY, bold=True, colour=INK)
        figure.text(label[0], panel.middle + 10, f"layer {number}", "middle")
        layers.append(_layer(figure, x, bottom - 12, sublayers))
        bottom = panel.top - gap
    first, last = layers
    figure.up(start, first[0])
    figure.text(x + 10, start.top - 21, shape, code=True)
    lower, upper = first[-1].top - 12, last[0].bottom + 12  # the edges of the panels
    figure.line((x, first[-1].top), (x, lower - 12))
    figure.arrow((x, upper + 12), (x, last[0].bottom))
    for step in (-7, 0, 7):
        figure.dot(x, (lower + upper) / 2 + step, 2)
    return first, last


def transformer() -> Figure:
    """Draw the whole model."""
    figure = Figure(
        "transformer",
        760,
        1056,
        "The Transformer",
        "Left, from bottom to top: the German source's token ids are embedded, multiplied by √d_model and added to "
        "positions, then pass N encoder layers, each of self-attention and feed-forward, each with Add & Norm. What "
        "leaves the last one is the memory. Right: the English target, shifted right so that it begins with <sos>, is "
        "embedded likewise and passes N decoder layers, each of masked self-attention, cross-attention and "
        "feed-forward, each with Add & Norm. The memory flows into the cross-attention of every decoder layer. A "
        "linear layer turns the last decoder layer's output into logits over the target vocabulary; softmax turns "
        "these into probabilities of the next token at every position.",
    )
    source_x, target_x, bottom = 228, 500, figure.height - 50

    source = _tokens(figure, source_x, bottom, SOURCE)
    figure.text(source_x, bottom + 20, "German source", "middle", bold=True, colour=INK)
    start = _embedding(figure, source, 76, "src_len")
    _, last = _stack(figure, start, (24, 340), (76, "Encoder"), "[batch, src_len, d_model]", ENCODER_LAYER, 56)
    memory = figure.box("data", source_x, last[-1].top - 34, 200, 46, "memory", "[batch, src_len, d_model]")
    figure.up(last[-1], memory)
    figure.text(source_x, memory.top - 34, "computed once,", "middle")
    figure.text(source_x, memory.top - 16, "read by every decoder layer", "middle")

    target = _tokens(figure, target_x, bottom, TARGET[:-1])
    figure.text(target_x, bottom + 20, "English target, shifted right", "middle", bold=True, colour=INK)
    start = _embedding(figure, target, 668, "tgt_len")
    first, last = _stack(figure, start, (388, 736), (668, "Decoder"), "[batch, tgt_len, d_model]", DECODER_LAYER, 79)

    bus = (memory.right + last[2].left) / 2
    figure.arrow((memory.right, memory.middle), (last[2].left, last[2].middle))
    figure.arrow((bus, memory.middle), (bus, first[2].middle), (first[2].left, first[2].middle))
    figure.dot(bus, memory.middle)

    linear = figure.box("linear", target_x, last[-1].top - 46, 200, 46, "Linear", "output")
    figure.up(last[-1], linear)
    figure.text(target_x + 10, linear.bottom + 17, "[batch, tgt_len, d_model]", code=True)
    softmax = figure.box("operation", target_x, linear.top - 34, 200, 32, "Softmax")
    figure.up(linear, softmax, "[batch, tgt_len, tgt_vocab_size]")
    figure.text(softmax.right + 14, softmax.middle - 9, "part of the loss")
    figure.text(softmax.right + 14, softmax.middle + 9, "and of the search")
    predicted = _tokens(figure, target_x, softmax.top - 28, TARGET[1:])
    figure.up(softmax, predicted)
    figure.text(target_x, predicted.top - 16, "at every position: the next token", "middle", bold=True, colour=INK)
    return figure


GERMAN = ("der", "mann", "hebt", "den", "ball", "auf", ".")
ENGLISH = ("<sos>", "the", "man", "is", "raising", "the")
NEXT_WORD = "ball 97 %, balloons 0.2 %, …"  # what the shipped model says here


def _words(figure: Figure, x: float, bottom: float, words: Sequence[str]) -> Box:
    """Draw a row of words, each in a cell as wide as it needs, centred on x."""
    widths = [7.5 * len(word) + 16 for word in words]
    row = Box(x, bottom, sum(widths), 34)
    figure.rectangle(row.left, row.top, row.width, row.height, *KINDS["data"])
    left = row.left
    for number, (word, width) in enumerate(zip(words, widths, strict=True)):
        if number:
            figure.line((left, row.top), (left, row.bottom), colour=CARD_EDGE)
        figure.text(left + width / 2, row.middle, word, "middle", code=True, colour=INK)
        left += width
    return row


def _noted(figure: Figure, kind: str, x: float, bottom: float, title: str, note: str) -> Box:
    """Draw a box with its title and, under that, what it does in plain words."""
    box = Box(x, bottom, 274, 48)
    figure.rectangle(box.left, box.top, box.width, box.height, *KINDS[kind])
    figure.text(x, box.middle - 10, title, "middle", BODY, bold=True, colour=INK)
    figure.text(x, box.middle + 10, note, "middle", colour=INK)
    return box


def _noted_stack(figure: Figure, below: Box, title: str, sublayers: Sequence[tuple[str, str, str]]) -> list[Box]:
    """Draw N layers as a stack of cards with the sub-layers of the front one; return their boxes from bottom to top."""
    bottom, height = below.top - 26, len(sublayers) * 66 + 40
    for offset in (12, 6, 0):
        panel = figure.panel(below.x + offset, bottom - offset, 304, height)
    figure.text(panel.left + 16, panel.top + 22, title, size=BODY, bold=True, colour=INK)
    boxes: list[Box] = []
    for kind, name, note in sublayers:
        boxes.append(_noted(figure, kind, below.x, boxes[-1].top - 18 if boxes else panel.bottom - 12, name, note))
        figure.up(boxes[-2] if len(boxes) > 1 else below, boxes[-1])
    return boxes


def whole_model() -> Figure:
    """Draw the whole model for somebody who has not seen it before."""
    figure = Figure(
        "whole_model",
        752,
        606,
        "The whole model in one picture",
        "Left, from bottom to top: the German sentence 'der mann hebt den ball auf .' enters the embedding, which "
        "turns each word and its place into a vector; then the encoder, N layers of self-attention, in which each word "
        "looks at every word, and feed-forward, which works on each word by itself. The result is the memory: one "
        "vector per German word, in its context. Right: the English so far, '<sos> the man is raising the', "
        "enters an embedding and the decoder, N layers of self-attention, in which each word looks at itself and the "
        "words before it, cross-attention, in which it looks at the memory, and feed-forward. Linear and softmax give "
        f"each English word a probability of being next: {NEXT_WORD}. The word that is chosen joins "
        "the English so far, and the next round begins.",
    )
    source_x, target_x, bottom = 190, 540, figure.height - 56

    source = _words(figure, source_x, bottom, GERMAN)
    figure.text(source_x, bottom + 22, "German sentence", "middle", bold=True, colour=INK)
    embedding = _noted(
        figure, "embedding", source_x, source.top - 26, "Embedding", "a vector for each word and its place"
    )
    figure.up(source, embedding)
    encoder = (
        ("attention", "Self-attention", "each word looks at every word"),
        ("feed_forward", "Feed-forward", "each word by itself"),
    )
    boxes = _noted_stack(figure, embedding, "Encoder × N", encoder)
    memory = _noted(figure, "data", source_x, boxes[-1].top - 84, "Memory", "one vector per word, in its context")
    figure.up(boxes[-1], memory)

    target = _words(figure, target_x, bottom, ENGLISH)
    figure.text(target_x, bottom + 22, "English so far", "middle", bold=True, colour=INK)
    embedding = _noted(
        figure, "embedding", target_x, target.top - 26, "Embedding", "a vector for each word and its place"
    )
    figure.up(target, embedding)
    decoder = (
        ("attention", "Self-attention", "looks at itself and the words before"),
        ("attention", "Cross-attention", "each word looks at the memory"),
        ("feed_forward", "Feed-forward", "each word by itself"),
    )
    boxes = _noted_stack(figure, embedding, "Decoder × N", decoder)
    bus = (source_x + target_x) / 2 + 2
    figure.arrow(
        (memory.right, memory.middle), (bus, memory.middle), (bus, boxes[1].middle), (boxes[1].left, boxes[1].middle)
    )
    output = _noted(
        figure, "linear", target_x, boxes[-1].top - 72, "Linear and softmax", "a probability for every word"
    )
    figure.up(boxes[-1], output)
    chosen = _noted(figure, "data", target_x, output.top - 26, "Next word", NEXT_WORD)
    figure.up(output, chosen)
    side = 722
    figure.arrow(
        (chosen.right, chosen.middle), (side, chosen.middle), (side, target.middle), (target.right, target.middle)
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
    green = KINDS["linear"][1]

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
            figure.line((path, start), (path, end), colour=green, width=4)
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
    norm_placement,
    *(partial(here, part) for part in HERE),
    greedy_or_beam,
    batched_beam,
    silenced_head,
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
