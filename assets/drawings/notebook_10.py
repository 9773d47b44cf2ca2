"""The figures of notebook 10: three families."""

from collections.abc import Sequence

from drawings.kit import BODY, HIDDEN, INK, KINDS, SEEN, Box, Figure
from drawings.two_stacks import row_of_words

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
    bottom = below.top - 24
    height = len(sublayers) * 66 + 28
    for offset in (8, 4, 0):
        panel = figure.panel(below.x + offset, bottom - offset, FAMILY_WIDTH + 12, height)
    figure.text(panel.left + 12, panel.top + 18, "× N", bold=True, colour=INK)
    boxes: list[Box] = []
    for kind, name, note in sublayers:
        box = Box(below.x, boxes[-1].top - 18 if boxes else panel.bottom - 10, FAMILY_WIDTH, 48)
        figure.frame(box, *KINDS[kind])
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
        row = row_of_words(figure, x, figure.height - 112, words)
        causal = past in sublayers
        _sees(figure, x, row.bottom + 16, causal, "itself, and before" if causal else "all see all")
        boxes = _small_stack(figure, row, sublayers)
        top = figure.box("data", x, boxes[-1].top - 60, FAMILY_WIDTH, 34, result)
        figure.up(boxes[-1], top)
        drawn.append((boxes, top))
    _, memory = drawn[2]
    (_, reader, _), _ = drawn[3]
    between = (memory.right + reader.left) / 2 + 2
    figure.arrow(
        (memory.right, memory.middle), (between, memory.middle), (between, reader.middle), (reader.left, reader.middle)
    )
    for x, name, parts in ((108, "BERT", "encoder only"), (288, "GPT", "decoder only"), (558, "T5", "both")):
        figure.text(x, 36, name, "middle", BODY + 2, bold=True, colour=INK)
        figure.text(x, 58, parts, "middle")
    return figure


FIGURES = (families,)
