"""Draw the figures of the series into ``assets/figures``: ``python assets/draw_figures.py``.

Every drawing is a plain SVG on a card of its own, so that it can be read on a light and on a dark page. A figure is
drawn from the bottom upwards, as the data flows: a box is placed by the middle of its lower edge, and the next box by
the upper edge of that one. Coordinates are pixels at natural size, with y growing downwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "figures"

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
BODY, SMALL = 14, 12  # font sizes

CARD, CARD_EDGE = "#fcfcfa", "#d5d9de"
PANEL, PANEL_EDGE = "#f1f3f5", "#b4bcc5"
INK, FADED, LINE = "#1f2933", "#4d5966", "#3c4854"
SEEN, HIDDEN = "#31568c", "#e4e4ea"  # as plots.masks has them

# fill and edge of each kind of box: Okabe and Ito's colour-blind-safe palette, softened
KINDS = {
    "attention": ("#fbdcc4", "#b4521a"),  # vermilion
    "heads": ("#fef1e6", "#b4521a"),  # the same, paler: what lies inside attention
    "feed_forward": ("#cfe6f7", "#2b76a8"),  # sky blue
    "add_norm": ("#fbf3b4", "#8f8206"),  # yellow
    "embedding": ("#efd5e5", "#984b7c"),  # reddish purple
    "linear": ("#c5e6da", "#117a5b"),  # bluish green
    "operation": ("#e3e7eb", "#66727f"),  # grey: no parameters
    "data": ("#ffffff", "#66727f"),  # white: tensors
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
        self, x: float, y: float, words: str, align: str = "start", size: int = SMALL, bold: bool = False,
        code: bool = False, colour: str = FADED,
    ) -> None:
        """Write one line, vertically centred on y."""
        weight = ' font-weight="600"' if bold else ""
        family = f' font-family="{MONO}"' if code else ""
        self.elements.append(
            f'<text x="{x:g}" y="{y + 0.36 * size:g}" text-anchor="{align}" font-size="{size}"{weight}{family} '
            f'fill="{colour}">{escape(words)}</text>'
        )

    def box(
        self, kind: str, x: float, bottom: float, width: float, height: float, title: str, code: str = "",
        dash: str = "",
    ) -> Box:
        """Draw a box of a kind with its title and, under that, its name in the code or its shape."""
        box = Box(x, bottom, width, height)
        self.rectangle(box.left, box.top, width, height, *KINDS[kind], dash=dash)
        if code:
            self.text(x, box.middle - 9, title, "middle", BODY, bold=True, colour=INK)
            self.text(x, box.middle + 10, code, "middle", code=True)
        else:
            self.text(x, box.middle, title, "middle", BODY, bold=True, colour=INK)
        return box

    def panel(self, x: float, bottom: float, width: float, height: float, kind: str = "") -> Box:
        """Draw the background of a group of boxes."""
        panel = Box(x, bottom, width, height)
        fill, edge = KINDS[kind] if kind else (PANEL, PANEL_EDGE)
        self.rectangle(panel.left, panel.top, width, height, fill, edge, radius=10)
        return panel

    def line(self, *points: tuple[float, float], dash: str = "") -> None:
        """Draw a line from point to point, with rounded corners."""
        steps = [f"M{points[0][0]:g} {points[0][1]:g}"]
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            (x1, y1), (x2, y2) = _towards(corner, before, 8), _towards(corner, after, 8)
            steps.append(f"L{x1:g} {y1:g} Q{corner[0]:g} {corner[1]:g} {x2:g} {y2:g}")
        steps.append(f"L{points[-1][0]:g} {points[-1][1]:g}")
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.elements.append(f'<path d="{" ".join(steps)}" fill="none" stroke="{LINE}" stroke-width="1.5"{dashes}/>')

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
            self.text(x + 12, (below.top + above.bottom) / 2, shape, code=True)

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


DASHED = "5 4"  # masks: they steer the flow, but do not flow themselves
LAYER_X, LAYER_BOX, RESIDUAL_X, OUTSIDE_X = 248, 280, 72, 572  # both layers: column, box width, detour, what comes in


def _residual(figure: Figure, branch: float, add_norm: Box) -> None:
    """Lead x from the branch, around the sub-layer, into its Add & Norm."""
    figure.dot(LAYER_X, branch)
    figure.arrow((LAYER_X, branch), (RESIDUAL_X, branch), (RESIDUAL_X, add_norm.middle), (add_norm.left, add_norm.middle))
    figure.text(RESIDUAL_X + 12, (branch + add_norm.middle) / 2, "x", code=True)


def _add_norm(figure: Figure, below: Box, name: str, shape: str) -> Box:
    """Put Add & Norm on top of a sub-layer."""
    box = figure.box("add_norm", LAYER_X, below.top - 36, LAYER_BOX, 48, "Add & Norm", name)
    figure.up(below, box, f"y  {shape}")
    figure.text(OUTSIDE_X - 112, box.middle, "LayerNorm(x + Dropout(y))", code=True)
    return box


def _attention(
    figure: Figure, start: float, title: str, name: str, shape: str, mask: tuple[str, str], memory: bool = False
) -> Box:
    """Draw attention and its Add & Norm above the y of ``start``; keys and values are the queries' or the memory's."""
    fork, columns = start - 58, {"query": LAYER_X, "key": LAYER_X + 54, "value": LAYER_X + 108}
    box = figure.box("attention", LAYER_X, start - 100, LAYER_BOX, 52, title, name)
    figure.text(LAYER_X + 12, start - 20, f"x  {shape}", code=True)
    figure.arrow((LAYER_X, start), (LAYER_X, box.bottom))
    if memory:
        source = figure.box("data", OUTSIDE_X, fork + 22, 224, 44, "memory", "[batch, src_len, d_model]")
        figure.arrow((source.left, fork), (columns["key"], fork), (columns["key"], box.bottom))
        figure.arrow((columns["value"], fork), (columns["value"], box.bottom))
        figure.dot(columns["value"], fork)
    else:
        figure.dot(LAYER_X, fork)
        figure.arrow((LAYER_X, fork), (columns["value"], fork), (columns["value"], box.bottom))
        figure.arrow((columns["key"], fork), (columns["key"], box.bottom))
        figure.dot(columns["key"], fork)
    for label, x in columns.items():
        figure.text(x + 9, fork - 20, label)
    allowed = figure.box("data", OUTSIDE_X, box.middle + 22, 224, 44, *mask, dash=DASHED)
    figure.arrow((allowed.left, box.middle), (box.right, box.middle), dash=DASHED)
    add_norm = _add_norm(figure, box, f"{name}_add_norm", shape)
    _residual(figure, start - 40, add_norm)
    return add_norm


def _feed_forward(figure: Figure, start: float, shape: str) -> Box:
    """Draw the feed-forward network and its Add & Norm above the y of ``start``."""
    box = figure.box("feed_forward", LAYER_X, start - 72, LAYER_BOX, 52, "Feed-forward", "feed_forward")
    figure.text(LAYER_X + 12, start - 20, f"x  {shape}", code=True)
    figure.arrow((LAYER_X, start), (LAYER_X, box.bottom))
    figure.text(OUTSIDE_X - 112, box.middle - 9, "d_model → d_ff → d_model", code=True)
    figure.text(OUTSIDE_X - 112, box.middle + 9, "each position by itself")
    add_norm = _add_norm(figure, box, "feed_forward_add_norm", shape)
    _residual(figure, start - 40, add_norm)
    return add_norm


def encoder_layer() -> Figure:
    """Draw one encoder layer, post-LN."""
    figure = Figure(
        "encoder_layer", 712, 560, "An encoder layer",
        "From bottom to top: x, of shape [batch, src_len, d_model], enters multi-head self-attention as query, key and "
        "value; the padding mask says which positions may be attended to. Add & Norm computes LayerNorm(x + Dropout(y)) "
        "from the attention's output y and from x, which a residual path leads around the attention. The feed-forward "
        "network follows, with an Add & Norm and a residual path of its own. The result has the shape of x.",
    )  # fmt: skip
    shape = "[batch, src_len, d_model]"
    start = figure.height - 52
    figure.panel(240, start - 8, 400, 468)
    figure.text(56, start - 456, "Encoder layer", size=BODY, bold=True, colour=INK)
    figure.text(LAYER_X, start + 22, "from the embedding, or from the layer below", "middle")
    box = _attention(
        figure, start, "Multi-head self-attention", "self_attention", shape, ("padding mask", "[batch, 1, 1, src_len]")
    )
    box = _feed_forward(figure, box.top, shape)
    figure.arrow((LAYER_X, box.top), (LAYER_X, box.top - 60))
    return figure


def decoder_layer() -> Figure:
    """Draw one decoder layer, post-LN."""
    figure = Figure(
        "decoder_layer", 712, 790, "A decoder layer",
        "From bottom to top, each followed by Add & Norm with a residual path around it: masked multi-head "
        "self-attention, whose query, key and value all come from the target x of shape [batch, tgt_len, d_model] under "
        "the target mask; cross-attention, whose query comes from the target and whose key and value come from the "
        "memory of shape [batch, src_len, d_model] under the source's padding mask; the feed-forward network.",
    )  # fmt: skip
    shape = "[batch, tgt_len, d_model]"
    start = figure.height - 52
    figure.panel(240, start - 8, 400, 700)
    figure.text(56, start - 690, "Decoder layer", size=BODY, bold=True, colour=INK)
    figure.text(LAYER_X, start + 22, "from the embedding, or from the layer below", "middle")
    box = _attention(
        figure, start, "Masked multi-head self-attention", "self_attention", shape,
        ("target mask", "[batch, 1, tgt_len, tgt_len]"),
    )  # fmt: skip
    box = _attention(
        figure, box.top, "Multi-head cross-attention", "cross_attention", shape,
        ("padding mask", "[batch, 1, 1, src_len]"), memory=True,
    )  # fmt: skip
    box = _feed_forward(figure, box.top, shape)
    figure.arrow((LAYER_X, box.top), (LAYER_X, box.top - 60))
    return figure


def _token_row(figure: Figure, x: float, bottom: float, tokens: Sequence[str]) -> Box:
    """Draw tokens side by side, centred on x."""
    left = x - (len(tokens) * 56 - 4) / 2
    for number, token in enumerate(tokens):
        figure.rectangle(left + number * 56, bottom - 26, 52, 26, *KINDS["data"], radius=5)
        figure.text(left + number * 56 + 26, bottom - 13, token, "middle", code=True, colour=INK)
    return Box(x, bottom, len(tokens) * 56 - 4, 26)


def _embedding(figure: Figure, tokens: Box, positions_x: float, length: str) -> Box:
    """Draw the embedding of a row of tokens; return the sum of embeddings and positions."""
    table = figure.box("embedding", tokens.x, tokens.top - 32, 200, 44, "Token embedding", "× √d_model")
    figure.up(tokens, table, f"[batch, {length}]")
    total = Box(tokens.x, table.top - 22, 22, 22)
    figure.up(table, total)
    positions = figure.box("embedding", positions_x, total.middle + 15, 92, 30, "Positions")
    inner, outer = (positions.right, total.left) if positions_x < tokens.x else (positions.left, total.right)
    figure.arrow((inner, total.middle), (outer, total.middle))
    figure.elements.append(
        f'<circle cx="{total.x:g}" cy="{total.middle:g}" r="11" fill="#ffffff" stroke="{LINE}" stroke-width="1.5"/>'
    )
    figure.line((total.x - 6, total.middle), (total.x + 6, total.middle))
    figure.line((total.x, total.middle - 6), (total.x, total.middle + 6))
    return total


def _layer(figure: Figure, x: float, bottom: float, sublayers: Sequence[tuple[str, str]]) -> list[Box]:
    """Draw a layer's sub-layers, each with its Add & Norm on top; return all boxes from bottom to top."""
    boxes: list[Box] = []
    for kind, title in sublayers:
        if boxes:
            bottom = boxes[-1].top - 16
        box = figure.box(kind, x, bottom, 200, 30, title)
        if boxes:
            figure.up(boxes[-1], box)
        boxes += [box, figure.box("add_norm", x, box.top, 200, 24, "Add & Norm")]
    return boxes


def _stack(
    figure: Figure, x: float, start: Box, sublayers: Sequence[tuple[str, str]], name: str, gap: float, label_x: float
) -> tuple[list[Box], list[Box]]:
    """Draw the first and the last of N layers, with dots between; return the boxes of both."""
    height = len(sublayers) * 70 - 16 + 24
    panel_x = (label_x + x) / 2 + (12 if label_x > x else -12)
    layers, bottom = [], start.top - 24
    for number in ("1", "N"):
        figure.panel(panel_x, bottom, 312, height)
        figure.text(label_x, bottom - height / 2 - 9, name, "middle", BODY, bold=True, colour=INK)
        figure.text(label_x, bottom - height / 2 + 10, f"layer {number}", "middle")
        layers.append(_layer(figure, x, bottom - 12, sublayers))
        bottom -= height + gap
    first, last = layers
    figure.up(start, first[0])
    below, above = first[-1].top, last[0].bottom
    figure.line((x, below), (x, below - 12 - 8))
    for step in (-8, 0, 8):
        figure.dot(x, (below - 20 + above + 26) / 2 + step, 2)
    figure.arrow((x, above + 26), (x, above))
    return first, last


def transformer() -> Figure:
    """Draw the whole model."""
    figure = Figure(
        "transformer", 760, 985, "The Transformer",
        "Left, from bottom to top: the German source's token ids are embedded, multiplied by √d_model and added to "
        "positions, then pass N encoder layers, each of self-attention and feed-forward, each with Add & Norm. What "
        "leaves the last one is the memory. Right: the English target, shifted right so that it begins with <sos>, is "
        "embedded likewise and passes N decoder layers, each of masked self-attention, cross-attention and "
        "feed-forward, each with Add & Norm. The memory flows into the cross-attention of every decoder layer. A linear "
        "layer turns the last decoder layer's output into logits over the target vocabulary; softmax turns these into "
        "probabilities of the next token at every position.",
    )  # fmt: skip
    encoder = [("attention", "Self-attention"), ("feed_forward", "Feed-forward")]
    decoder = [("attention", "Masked self-attention"), ("attention", "Cross-attention"), ("feed_forward", "Feed-forward")]
    source_x, target_x, bottom = 214, 500, figure.height - 52

    source = _token_row(figure, source_x, bottom, ["<sos>", "ein", "hund", "schläft", "<eos>"])
    figure.text(source_x, bottom + 20, "German source", "middle", bold=True, colour=INK)
    start = _embedding(figure, source, 78, "src_len")
    _, last = _stack(figure, source_x, start, encoder, "Encoder", 56, 70)
    memory = figure.box("data", source_x, last[-1].top - 40, 200, 44, "memory", "[batch, src_len, d_model]")
    figure.up(last[-1], memory)

    target = _token_row(figure, target_x, bottom, ["<sos>", "a", "dog", "sleeps"])
    figure.text(target_x, bottom + 20, "English target, shifted right", "middle", bold=True, colour=INK)
    start = _embedding(figure, target, 664, "tgt_len")
    first, last = _stack(figure, target_x, start, decoder, "Decoder", 56, 664)

    bus = 360
    for cross in (last[2], first[2]):
        figure.arrow((memory.right, memory.middle), (bus, memory.middle), (bus, cross.middle), (cross.left, cross.middle))

    linear = figure.box("linear", target_x, last[-1].top - 50, 200, 44, "Linear", "output")
    figure.up(last[-1], linear, "[batch, tgt_len, d_model]")
    softmax = figure.box("operation", target_x, linear.top - 32, 200, 30, "Softmax")
    figure.up(linear, softmax, "[batch, tgt_len, tgt_vocab_size]")
    predicted = _token_row(figure, target_x, softmax.top - 28, ["a", "dog", "sleeps", "<eos>"])
    figure.up(softmax, predicted)
    figure.text(target_x, predicted.top - 14, "the next token, at every position", "middle", bold=True, colour=INK)
    return figure


def multi_head_attention() -> Figure:
    """Draw multi-head attention, with the scaled dot product of every head opened up."""
    figure = Figure(
        "multi_head_attention", 750, 960, "Multi-head attention",
        "From bottom to top: query, key and value, of shapes [batch, query_len, d_model] and [batch, key_len, d_model], "
        "each pass a linear projection and are split into heads of d_k = d_model / heads dimensions. In every head, "
        "queries times transposed keys give scores of shape [batch, heads, query_len, key_len]; these are divided by "
        "√d_k, masked, and turned by softmax into weights, which are multiplied with the values. The heads' outputs are "
        "concatenated to [batch, query_len, d_model] and pass the output projection.",
    )  # fmt: skip
    columns, middle, scores_x = (160, 375, 590), 375, 267
    bottom = figure.height - 24
    lengths = ("query_len", "key_len", "key_len")
    split_top = 0.0
    split = Box(middle, bottom - 172, 630, 32)
    for x, name, length in zip(columns, ("query", "key", "value"), lengths, strict=True):
        data = figure.box("data", x, bottom, 200, 44, name, f"[batch, {length}, d_model]")
        projection = figure.box("linear", x, data.top - 28, 200, 44, "Linear", f"{name}_projection")
        figure.up(data, projection)
        figure.up(projection, split, x=x)
        figure.line((x, split.top), (x, split.top - 12))
        figure.text(x, split.top - 22, f"[batch, heads, {length}, d_k]", "middle", code=True)
    figure.box("operation", split.x, split.bottom, split.width, split.height, "Split into heads")

    panel_bottom, panel_height = split.top - 48, 384
    for offset in (16, 8, 0):
        panel = figure.panel(middle + offset, panel_bottom - offset, 560, panel_height, "heads")
    figure.text(panel.left + 16, panel.top + 22, "Scaled dot-product attention, in every head", size=BODY, bold=True, colour=INK)

    scores = figure.box("data", scores_x, panel_bottom - 28, 240, 36, "queries × keysᵀ")
    scaled = figure.box("data", scores_x, scores.top - 40, 180, 32, "÷ √d_k")
    masked = figure.box("data", scores_x, scaled.top - 22, 180, 32, "mask")
    softmax = figure.box("data", scores_x, masked.top - 22, 180, 32, "softmax over keys")
    weighted = figure.box("data", middle, softmax.top - 40, 500, 36, "weights × values")
    for x, box in zip(columns, (scores, scores, weighted), strict=True):
        figure.arrow((x, split.top - 32), (x, box.bottom))
    figure.up(scores, scaled, "[batch, heads, query_len, key_len]")
    figure.up(scaled, masked)
    figure.up(masked, softmax)
    figure.up(softmax, weighted, "[batch, heads, query_len, key_len]")
    mask = figure.box("data", 482, masked.middle + 22, 180, 44, "mask", "True: may attend", dash=DASHED)
    figure.arrow((mask.left, mask.middle), (masked.right, masked.middle), dash=DASHED)

    concatenate = figure.box("operation", middle, panel.top - 50, 260, 32, "Concatenate heads")
    figure.up(weighted, concatenate)
    figure.text(middle + 12, panel.top - 30, "[batch, heads, query_len, d_k]", code=True)
    output = figure.box("linear", middle, concatenate.top - 32, 260, 44, "Linear", "output_projection")
    figure.up(concatenate, output, "[batch, query_len, d_model]")
    figure.arrow((middle, output.top), (middle, output.top - 40))
    figure.text(middle + 12, output.top - 20, "[batch, query_len, d_model]", code=True)
    return figure


BATCH = (("<sos>", "a", "dog", "runs", "home", "."), ("<sos>", "look", "!", "<eos>", "<pad>", "<pad>"))
CELL, ROW = 46, 24


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


def _grid(
    figure: Figure, left: float, top: float, mask: Sequence[Sequence[bool]], columns: Sequence[str], rows: Sequence[str]
) -> None:
    """Draw a mask with its upper left corner at (left, top), keys above it and queries to its left."""
    for number, label in enumerate(columns):
        figure.text(left + number * CELL + CELL / 2, top - 12, label, "middle", code=True, colour=INK)
    for number, label in enumerate(rows):
        figure.text(left - 8, top + number * ROW + ROW / 2, label, "end", code=True, colour=INK)
    for y, row in enumerate(mask):
        for x, seen in enumerate(row):
            fill = SEEN if seen else HIDDEN
            figure.elements.append(
                f'<rect x="{left + x * CELL + 1:g}" y="{top + y * ROW + 1:g}" width="{CELL - 2}" height="{ROW - 2}" '
                f'rx="3" fill="{fill}"/>'
            )


def masks() -> Figure:
    """Draw the masks of a batch of two sentences."""
    figure = Figure(
        "masks", 750, 620, "The masks of a batch",
        "A batch of two target sentences, '<sos> a dog runs home .' and '<sos> look ! <eos> <pad> <pad>'. The padding "
        "mask, [batch, 1, 1, len], is one row a sentence: filled, that is True or 'may attend', at real tokens, empty at "
        "padding. The look-ahead mask, [len, len], is the same for all sentences: a filled lower triangle, so that a "
        "query sees itself and earlier keys. The target mask, [batch, 1, len, len], is filled where both are: what "
        "either mask hides stays hidden.",
    )  # fmt: skip
    width = CELL * 6
    lefts = (80, 450)

    def heading(y: float, title: str, code: str) -> None:
        figure.text(28, y, title, size=BODY, bold=True, colour=INK)
        figure.text(722, y, code, "end", code=True)

    heading(34, "Padding mask", "padding_mask(ids, pad_id)  [batch, 1, 1, len]")
    for left, tokens in zip(lefts, BATCH, strict=True):
        _grid(figure, left, 84, [padding_mask(tokens)], tokens, [])
    heading(150, "Look-ahead mask", "causal_mask(len)  [len, len]")
    _grid(figure, 375 - width / 2, 200, causal_mask(6), "012345", "012345")
    heading(386, "Both: the target mask", "target_mask(ids, pad_id)  [batch, 1, len, len]")
    for left, tokens in zip(lefts, BATCH, strict=True):
        _grid(figure, left, 436, target_mask(tokens), tokens, tokens)
    return figure


FIGURES: tuple[Callable[[], Figure], ...] = (transformer, encoder_layer, decoder_layer, multi_head_attention, masks)


def main() -> None:
    """Write all figures."""
    FOLDER.mkdir(exist_ok=True)
    for draw in FIGURES:
        figure = draw()
        (FOLDER / f"{figure.name}.svg").write_text(figure.svg(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
