"""The figures of notebook 03: masks."""

from collections.abc import Sequence

from drawings.kit import BODY, DASHED, HIDDEN, INK, KINDS, LINE, SEEN, WHITE, Figure

BATCH = (("<sos>", "a", "dog", "runs", "home", "."), ("<sos>", "look", "!", "<eos>", "<pad>", "<pad>"))


def real_tokens(tokens: Sequence[str]) -> list[bool]:
    """Return True at real tokens."""
    return [token != "<pad>" for token in tokens]


def earlier_keys(length: int) -> list[list[bool]]:
    """Return one row for each query, True at keys that do not come after it."""
    keys = range(length)
    return [[key <= query for key in keys] for query in range(length)]


def allowed_keys(tokens: Sequence[str]) -> list[list[bool]]:
    """Return what both masks allow."""
    real = real_tokens(tokens)
    rows = earlier_keys(len(tokens))
    return [[is_real and not_later for is_real, not_later in zip(real, row, strict=True)] for row in rows]


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
    row = [True, True, True, False, False]
    bus = 334
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
        figure.rectangle(20, y - 11, 22, 22, WHITE, LINE, radius=11)
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
        for position, (token, seen) in enumerate(zip(tokens, real_tokens(tokens), strict=True)):
            left = 52 + 49 * position
            fill = SEEN if seen else HIDDEN
            figure.rectangle(left + 1.5, top, 46, 24, fill, fill, radius=3)
            figure.text(left + 24.5, top + 12, token, "middle", code=True, colour=WHITE if seen else INK)
    _mask_heading(figure, 166, "&", "Causal mask", "causal_mask(len)", "[len, len]")
    figure.text(148, 210, "key", "middle")
    figure.text(55, 308, "query", "end")
    numbers(76, 226, 24)
    for position in range(6):
        figure.text(68, 236 + (position + 0.5) * 24, str(position), "end", code=True)
    _squares(figure, 76, 236, 24, earlier_keys(6))
    for top, seen, meaning in ((270, True, "may attend"), (300, False, "hidden")):
        _squares(figure, 240, top, 24, [[seen]])
        figure.text(270, top + 12, meaning)
    _mask_heading(figure, 418, "=", "Target mask", "target_mask(ids, pad_id)", "[batch, 1, len, len]")
    for left, tokens in zip((68, 238), BATCH, strict=True):
        numbers(left, 466, 18)
        for position, token in enumerate(tokens):
            figure.text(left - 6, 476 + (position + 0.5) * 18, token, "end", code=True)
        _squares(figure, left, 476, 18, allowed_keys(tokens))
    return figure


FIGURES = (mask_shapes, masks)
