"""The figures of notebook 07: search."""

from collections.abc import Sequence

from drawings.kit import BODY, FADED, INK, KINDS, LINE, PALE, PANEL_EDGE, SEEN, WHITE, Box, Figure


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
    kept = KINDS["feed_forward"]
    cut = (WHITE, PANEL_EDGE)
    orange = KINDS["attention"][1]
    for x, words in ((132, "step 1"), (236, "step 2"), (320, "product")):
        figure.text(x, 32, words, "middle")

    def box(x: float, y: float, word: str, colours: tuple[str, str]) -> Box:
        drawn = Box(x, y + 13, 50, 26)
        figure.frame(drawn, *colours, radius=4)
        figure.text(x, y, word, "middle", code=True, colour=INK)
        return drawn

    def branch(start: Box, end: Box, probability: float, greedy: bool) -> None:
        fork = start.right + 9
        points = [(start.right, start.middle), (fork, start.middle), (fork, end.middle), (end.left, end.middle)]
        if start.middle == end.middle:
            points = points[::3]
        figure.line(*points, colour=orange if greedy else LINE, width=4 if greedy else 1.5)
        figure.text(end.left - 4, end.middle - 13, f"{probability:g}", "end", code=True)

    y = 66
    root = Box(44, 139, 50, 26)
    for first, (probability, following) in tree.items():
        last = y + 40 * (len(following) - 1)
        parent = box(132, (y + last) / 2, first, kept)
        branch(root, parent, probability, first == "a")
        for word, next_probability in following.items():
            greedy = first == "a" and word == "dog"
            child = box(236, y, word, kept if word == "dog" else cut)
            branch(parent, child, next_probability, greedy)
            product = f"{probability * next_probability:.2f}"
            figure.text(320, y, product, "middle", bold=word == "dog", code=True, colour=INK)
            y += 40
    box(44, 126, "<sos>", cut)
    figure.line((24, 272), (52, 272), colour=orange, width=4)
    figure.text(64, 272, "greedy search: the best of each step")
    figure.rectangle(24, 286, 28, 14, *kept, radius=3)
    figure.text(64, 293, "kept by a beam of 2", colour=FADED)
    return figure


BEAM_VOCAB = 5  # tokens, each of which may follow each prefix
BEAM_CELL = 32
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
            y = top + 27 * row
            sentence = row // 2
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
            ink = WHITE if index in indices else INK
            figure.text(x + BEAM_CELL / 2, top + 12, f"{index}", "middle", code=True, colour=ink)
        for index in indices:
            row = f"{2 * sentence} + {index} // {BEAM_VOCAB}"
            chosen.append((f"{prefixes[index // BEAM_VOCAB]} {index % BEAM_VOCAB}", f"{row}, {index} % {BEAM_VOCAB}"))
    figure.text(24, 320, "after", size=BODY, bold=True, colour=INK)
    figure.text(216, 320, "from row, token", colour=FADED)
    rows(334, *zip(*chosen, strict=True))
    return figure


CACHE_STEPS = 5
CACHE_CELL = 24


def _steps(figure: Figure, left: float, top: float, title: str, keeps: bool) -> None:
    """Draw which positions go through the decoder at each step, and which are kept from earlier ones."""
    figure.text(left, top - 38, title, size=BODY, bold=True, colour=INK)
    for position in range(CACHE_STEPS):
        figure.text(left + (position + 0.5) * CACHE_CELL, top - 12, f"{position + 1}", "middle")
    for step in range(CACHE_STEPS):
        for position in range(step + 1):
            fill = PALE if keeps and position < step else SEEN
            x = left + position * CACHE_CELL
            y = top + step * CACHE_CELL
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
        (258, PALE, "kept: keys and values"),
    ):
        figure.rectangle(74, y - 8, 16, 16, fill, fill, radius=3)
        figure.text(98, y, meaning)
    return figure


FIGURES = (greedy_or_beam, batched_beam, kv_cache)
