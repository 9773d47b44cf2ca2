"""The figures of notebook 04: the Transformer and its parts."""

import math
from collections.abc import Sequence
from functools import partial

from drawings.kit import BODY, DASHED, INK, KINDS, LINE, PANEL_EDGE, WHITE, Box, Figure
from drawings.two_stacks import LEFT_X, NARROW, RIGHT_X, lead_memory, noted_box, row_of_words, stack_of_layers

LAYER_X = 148  # of a layer: the middle of its boxes, and how wide they are
LAYER_BOX = 196
RESIDUAL_X = 32  # of the path around a sub-layer
OUTSIDE_X = 313  # of what comes in
GREEN = KINDS["linear"][1]  # the straight path around a sub-layer


def _outside(figure: Figure, middle: float, *words: str, dash: str = "") -> Box:
    """Draw what enters a layer from its right, a word or two of one line each, around a y."""
    box = Box(OUTSIDE_X, middle + 11 * len(words), 86, 22 * len(words))
    figure.frame(box, *KINDS["data"], dash=dash)
    for number, word in enumerate(words):
        figure.text(box.x, box.middle + 17 * (number - (len(words) - 1) / 2), word, "middle", bold=True, colour=INK)
    return box


def _attention(figure: Figure, start: float, title: str, call: str, mask: str, memory: bool = False) -> Box:
    """Draw attention and its Add & Norm above the y of ``start``; keys and values are x's or the memory's."""
    fork = start - 60
    key_x = LAYER_X + 30
    value_x = LAYER_X + 62
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


SOURCE = ("<sos>", "er", "läuft", "<eos>")
TARGET = ("<sos>", "he", "runs", "<eos>")


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
        row = row_of_words(figure, x, bottom, tokens, 5)
        figure.text(x, bottom + 18, note, "middle", bold=True, colour=INK)
        table = noted_box(figure, "embedding", x, row.top - 20, "Token embedding", "× √d_model")
        figure.up(row, table)
        positions = Box(x, table.top, NARROW, 24)
        figure.frame(positions, *KINDS["embedding"])
        figure.text(x, positions.middle, "+ Positions", "middle", bold=True, colour=INK)
        return positions

    encoder = (("attention", "Self-attention", "sees all words"), ("feed_forward", "Feed-forward"))
    start = embedded(LEFT_X, SOURCE, "German source")
    last = stack_of_layers(figure, start, "Encoder", encoder, norms=True)[-1]
    memory = noted_box(figure, "data", LEFT_X, last.top - 60, "memory", "computed once")
    figure.up(last, memory)

    decoder = (
        ("attention", "Self-attention", "sees the past"),
        ("attention", "Cross-attention", "asks the memory"),
        ("feed_forward", "Feed-forward"),
    )
    start = embedded(RIGHT_X, TARGET[:-1], "English, shifted")
    boxes = stack_of_layers(figure, start, "Decoder", decoder, norms=True)
    lead_memory(figure, memory, boxes[1])
    linear = noted_box(figure, "linear", RIGHT_X, boxes[-1].top - 46, "Linear", "a score per type")
    figure.up(boxes[-1], linear)
    softmax = noted_box(figure, "operation", RIGHT_X, linear.top - 20, "Softmax")
    figure.up(linear, softmax)
    predicted = row_of_words(figure, RIGHT_X, softmax.top - 20, TARGET[1:], 5)
    figure.up(softmax, predicted)
    figure.text(RIGHT_X, predicted.top - 16, "the next tokens", "middle", bold=True, colour=INK)
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
    line = 18
    width = 328
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
    written = row_of_words(figure, 184, figure.height - 44, ("<sos>", "the", "man", "is"))
    figure.text(184, figure.height - 26, "English so far", "middle", bold=True, colour=INK)
    panel = figure.panel(184, written.top - 20, width, height, "heads")
    figure.arrow((written.right - 16, written.top), (written.right - 16, panel.bottom))
    figure.text(panel.left + 14, panel.top + 17, "Cross-attention, layer 1, head 1", bold=True, size=BODY, colour=INK)
    top = panel.top + 39
    for x, title in ((130, "score"), (190, "weight")):
        figure.text(x, top, title, "end", colour=INK)
    figure.text(panel.left + 14, top, "looks at", colour=INK)
    for number, (word, (score, weight)) in enumerate(OPENED.items(), start=1):
        y = top + line * number
        bold = word == best
        figure.text(panel.left + 14, y, word, code=True, bold=bold, colour=INK)
        figure.text(130, y, f"{score:.2f}".replace("-", "−"), "end", bold=bold, colour=INK)
        figure.text(190, y, f"{weight:.3f}", "end", bold=bold, colour=INK)
        if weight >= 0.01:
            figure.rectangle(202, y - 6, max(1, 130 * weight), 12, *KINDS["attention"], radius=1)
    chosen = Box(184, panel.top - 22, 240, 40)
    figure.frame(chosen, *KINDS["data"])
    figure.text(184, chosen.top + 13, "Next word", "middle", bold=True, colour=INK)
    figure.text(184, chosen.top + 29, MAY_COME, "middle", colour=INK)
    figure.arrow((184, panel.top), (184, chosen.bottom))
    return figure


# what notebooks 04 and 05 write next: its name, and where it is in figure 1
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
        fill, edge = KINDS[kind] if part in (kind, side, "whole") else (WHITE, PANEL_EDGE)
        box = Box(x, bottom, 52, height)
        figure.frame(box, fill, edge, radius=3)
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
    cross = boxes[2]
    bus = 88
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
            figure.rectangle(x - 20, y - 20, 40, 40, WHITE, KINDS["embedding"][1], radius=20)
            figure.line((x, y), tip, width=2.5)
            figure.dot(*tip)
    figure.text(184, 170, "sine: how far right · cosine: how far up", "middle")
    return figure


def _plus(figure: Figure, x: float, bottom: float) -> Box:
    """Draw a circle in which two things are added."""
    total = Box(x, bottom, 22, 22)
    figure.rectangle(total.left, total.top, 22, 22, WHITE, LINE, radius=11)
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
        y = 74
        end = start + 2
        figure.rectangle(x - CLOCK, y - CLOCK, 2 * CLOCK, 2 * CLOCK, WHITE, KINDS["embedding"][1], radius=CLOCK)
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
    width = 26 * len(rows[0])
    height = 26 * len(rows)
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
    ids = (2, 0, 2)
    table = [list(range(4 * row, 4 * row + 4)) for row in range(3)]
    kind = {0: "attention", 1: "data", 2: "feed_forward"}
    picked = [[kind[row]] * 4 for row in ids]
    _numbers(figure, 20, 62, [[i] for i in ids], [[kind[i]] for i in ids])
    two = _numbers(figure, 98, 62, table, [[kind[row]] * 4 for row in range(3)])
    doubled = [[2 * value for value in row] for row in table]
    three = _numbers(figure, 242, 62, [doubled[row] for row in ids], picked)
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
        figure.text(left + 52, 28, title, "middle", BODY, bold=True, colour=INK)
        for sentence, top in enumerate((68, 160)):
            kinds = [["data"] * 4 for _ in range(3)]
            if title == "batch norm":
                for row in kinds:
                    row[1] = "attention"
            elif sentence == 0:
                kinds[1] = ["feed_forward"] * 4
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
        figure.frame(drawn, *KINDS[kind])
        figure.text(x, drawn.middle, title, "middle", bold=True, colour=INK)
        return drawn

    for left, title, note, first, total_at in (
        (0, "post-LN", "a norm lies on the path", ("operation", "Sub-layer"), 158),
        (172, "pre-LN", "the path stays free", ("add_norm", "LayerNorm"), 128),
    ):
        path = left + 62
        branch = left + 140
        bottom = 262
        fork = 248
        figure.text(left + 24, 32, title, size=BODY, bold=True, colour=INK)
        figure.text(left + 24, 52, note)
        figure.text(path, 276, "x", "middle", code=True, colour=INK)
        figure.arrow((path, 86), (path, 72))
        upper = box(branch, 232, *first)
        figure.arrow((path, fork), (branch, fork), (branch, upper.bottom))
        if title == "pre-LN":
            norm = upper
            upper = box(branch, upper.top - 16, "operation", "Sub-layer")
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


FIGURES = (
    embedding_lookup,
    clock_hands,
    clock_turn,
    norm_axis,
    norm_placement,
    encoder_layer,
    decoder_layer,
    transformer,
    opened_box,
    *(partial(here, part) for part in HERE if part != "whole"),
)
