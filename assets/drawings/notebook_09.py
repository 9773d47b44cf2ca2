"""The figures of notebook 09: BLEU."""

from collections.abc import Sequence

from drawings.kit import BODY, DASHED, INK, KINDS, SEEN, WHITE, Figure

HYPOTHESIS = ["a", "man", "rides", "a", "brown", "horse", "."]
REFERENCE = ["a", "man", "is", "riding", "a", "brown", "horse", "."]
NGRAM_WIDTH = 38  # of a word
NGRAM_LINE = 14  # from one line of n-grams to the next
MISSED = KINDS["step"]  # what the reference does not have: an empty frame, dashed


def _ngrams(words: Sequence[str], n: int) -> list[Sequence[str]]:
    """Return each stretch of n words."""
    return [words[start : start + n] for start in range(len(words) - n + 1)]


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
    left = 57
    y = 58
    for number, word in enumerate(HYPOTHESIS):
        figure.text(left + (number + 0.5) * NGRAM_WIDTH, 34, word, "middle", colour=INK)
    for n in range(1, 5):
        ours = _ngrams(HYPOTHESIS, n)
        theirs = _ngrams(REFERENCE, n)
        middle = y + n * NGRAM_LINE / 2
        figure.text(left - 4, middle, f"n = {n}", "end", colour=INK)
        for first, ngram in enumerate(ours):
            fill, edge, dash = (SEEN, SEEN, "") if ngram in theirs else (*MISSED, DASHED)
            x = left + first * NGRAM_WIDTH + 3
            top = y + first % n * NGRAM_LINE
            figure.rectangle(x, top + 2, n * NGRAM_WIDTH - 6, NGRAM_LINE - 4, fill, edge, radius=4, dash=dash)
        found = sum(ngram in theirs for ngram in ours)
        figure.text(left + len(HYPOTHESIS) * NGRAM_WIDTH + 4, middle, f"{found}/{len(ours)}", colour=INK)
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
    cheat = "the the the the"
    milder = "the dog sleeps on the the sofa ."
    reference = "the dog sleeps on the old sofa ."
    floor = 156
    square = 22
    column = 42
    for left, words in ((24, cheat.split()), (104, milder.split())):
        credited = 0
        for number, word in enumerate(dict.fromkeys(words)):
            x = left + (number + 0.5) * column
            most = reference.split().count(word)
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
    left = 86
    cell = 27
    for row, (drawn, y) in enumerate(zip((tuple(range(8)), *DRAWS), (44, 96, 136, 176), strict=True)):
        figure.text(left - 10, y, f"draw {row}" if row else "test set", "end", colour=INK)
        for place, number in enumerate(drawn):
            again = drawn.count(number) > 1
            fill, colour = (SEEN, WHITE) if again else (WHITE, INK)
            figure.rectangle(left + place * cell + 1, y - 13, cell - 2, 26, fill, SEEN, radius=3)
            figure.text(left + (place + 0.5) * cell, y, str(number + 1), "middle", code=True, colour=colour)
        figure.text(left + 8 * cell + 6, y, "→ BLEU", colour=INK)
    return figure


FIGURES = (ngrams, clipping, bootstrap)
