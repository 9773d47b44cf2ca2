"""Encoder and decoder side by side, each a stack of layers, as several notebooks draw them."""

from collections.abc import Sequence

from drawings.kit import CARD_EDGE, INK, KINDS, Box, Figure

NARROW = 140  # width of a box
LEFT_X = 90  # middles of the two columns
RIGHT_X = 272


def noted_box(figure: Figure, kind: str, x: float, bottom: float, title: str, *notes: str) -> Box:
    """Draw a box with its title and, under that, what it does in plain words, line by line."""
    box = Box(x, bottom, NARROW, 24 + 16 * len(notes))
    figure.frame(box, *KINDS[kind])
    figure.text(x, box.top + 13, title, "middle", bold=True, colour=INK)
    for number, note in enumerate(notes):
        figure.text(x, box.top + 30 + 16 * number, note, "middle", colour=INK)
    return box


def stack_of_layers(
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
    bottom = below.top - 22
    height = sum(heights) + 16 * len(heights) + 24
    for offset in (6, 3, 0):
        panel = figure.panel(below.x + offset, bottom - offset, NARROW + 12, height)
    figure.text(below.x - 8, panel.top + 13, title, "end", bold=True, colour=INK)
    figure.text(below.x + 8, panel.top + 13, "× N", bold=True, colour=INK)
    boxes: list[Box] = []
    top = below
    for kind, name, *notes in sublayers:
        bottom = top.top - 16 if boxes else panel.bottom - 10
        box = noted_box(figure, kind, below.x, bottom, name, *notes)
        figure.up(top, box)
        boxes.append(box)
        top = box
        if norms:
            top = Box(below.x, top.top, NARROW, 24)
            figure.frame(top, *KINDS["add_norm"])
            figure.text(top.x, top.middle, "Add & Norm", "middle", bold=True, colour=INK)
    return [*boxes, top]


def row_of_words(figure: Figure, x: float, bottom: float, words: Sequence[str], padding: float = 16) -> Box:
    """Draw a row of words, each in a cell as wide as it needs, centred on x."""
    widths = [7.5 * len(word) + padding for word in words]
    row = Box(x, bottom, sum(widths), 34)
    figure.frame(row, *KINDS["data"])
    left = row.left
    for number, (word, width) in enumerate(zip(words, widths, strict=True)):
        if number:
            figure.line((left, row.top), (left, row.bottom), colour=CARD_EDGE)
        figure.text(left + width / 2, row.middle, word, "middle", code=True, colour=INK)
        left += width
    return row


def two_rows_of_words(figure: Figure, x: float, bottom: float, words: Sequence[str]) -> Box:
    """Draw words in two rows of cells, centred on x."""
    half = (len(words) + 1) // 2
    lower = row_of_words(figure, x, bottom, words[half:], 8)
    upper = row_of_words(figure, x, lower.top, words[:half], 8)
    return Box(x, bottom, max(lower.width, upper.width), lower.height + upper.height)


def lead_memory(figure: Figure, memory: Box, reader: Box) -> None:
    """Lead the memory, which lies higher, to the cross-attention that reads it."""
    bus = (LEFT_X + RIGHT_X) / 2 + 2
    figure.arrow(
        (memory.right, memory.middle), (bus, memory.middle), (bus, reader.middle), (reader.left, reader.middle)
    )
