"""The figures of notebook 01: from text to batches."""

from collections.abc import Sequence

from drawings.kit import BODY, FADED, HIDDEN, INK, KINDS, PALE, SEEN, WHITE, Figure

TINY = ("ein mann schläft .", "ein hund schläft .", "der mann liest ein buch .")
TINY_IDS = {".": 4, "ein": 5, "mann": 6, "schläft": 7}  # what occurs at least twice; the specials come before
UNKNOWN = KINDS["add_norm"]  # yellow
ID_CELL = 38


def _id_cell(figure: Figure, x: float, y: float, width: float, text: str, look: tuple[str, str, str]) -> None:
    """Draw a cell of a tensor with its upper left corner at (x, y); its look is fill, edge and the text's colour."""
    fill, edge, colour = look
    figure.rectangle(x + 1, y + 1, width - 2, 26, fill, edge, radius=3)
    figure.text(x + width / 2, y + 14, text, "middle", code=True, colour=colour)


def _ids(words: Sequence[str]) -> list[int]:
    """Return the ids of a sentence of the tiny corpus, between <sos> and <eos>."""
    return [2, *(TINY_IDS.get(word, 0) for word in words), 3]


def _padded(sentences: Sequence[str]) -> list[list[int]]:
    """Return the ids of sentences, filled up with <pad> to the longest."""
    rows = [_ids(sentence.split()) for sentence in sentences]
    longest = max(map(len, rows))
    return [ids + [1] * (longest - len(ids)) for ids in rows]


def _look(token_id: int) -> tuple[str, str, str]:
    """Return how an id's cell looks: <pad> is grey, <unk> is yellow."""
    if token_id == 1:
        return HIDDEN, HIDDEN, FADED
    if token_id == 0:
        return *UNKNOWN, INK
    return WHITE, SEEN, INK


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
        _id_cell(figure, edges[number], 72, widths[number], word, (WHITE, SEEN, INK))
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
    rows = _padded(TINY)
    left = 46
    top = 50
    middle = left + len(rows[0]) * ID_CELL / 2
    figure.text(middle, 32, "batch: 3 sentences · seq_len: 8 positions", "middle", colour=INK)
    for row, ids in enumerate(rows):
        figure.text(left - 12, top + row * 28 + 14, str(row + 1), "end", colour=INK)
        for place, token_id in enumerate(ids):
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
    padded = _padded(TINY)
    for left, name, shape, grid in (
        (20, "as it should be", "[batch, seq_len]", padded),
        (250, "transposed", "[seq_len, batch]", list(zip(*padded, strict=True))),
    ):
        figure.text(left, 30, name, bold=True, colour=INK)
        for row, ids in enumerate(grid):
            for place, token_id in enumerate(ids):
                x = left + place * 25
                y = 44 + row * 21
                fill, edge, colour = (SEEN, SEEN, WHITE) if token_id == 2 else _look(token_id)
                figure.rectangle(x + 1, y + 1, 23, 19, fill, edge, radius=2)
                figure.text(x + 12.5, y + 10.5, str(token_id), "middle", code=True, colour=colour)
        if len(grid) == 3:
            figure.text(left, 124, shape, code=True)
            figure.text(left, 146, "every row starts with <sos>")
    return figure


def _lengths(figure: Figure, left: float, top: float, batches: Sequence[Sequence[int]], title: str) -> None:
    """Draw batches of sentences of these lengths, each sentence a row of cells, grey where it is padded."""
    figure.text(left, top - 16, title, bold=True, colour=INK)
    y = top
    cell = 15
    for batch in batches:
        for length in batch:
            for place in range(max(batch)):
                fill = SEEN if place < length else PALE
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
    steps = (
        ("shuffle the pairs", [POOL]),
        ("sort a pool by length", [sorted(POOL)]),
        ("cut it into batches", cut),
        ("shuffle the batches", mixed),
    )
    for number, (step, groups) in enumerate(steps):
        floor = 88 + number * 82
        x = 24.0
        figure.text(24, floor - 56, f"{number + 1}. {step}", bold=True, colour=INK)
        for group in groups:
            for length in group:
                figure.rectangle(x, floor - 2 * length, 10, 2 * length, SEEN, SEEN, radius=1)
                x += 14.5
            x += 10 if len(groups) > 1 else 0
    return figure


FIGURES = (text_to_ids, padded_batch, transposed, sorted_batches, bucketing)
