"""Checks of the exercises of notebook 01: a leak, a vocabulary, padding, one long caption, batches by token count."""

import operator
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_exercises import (
    Wrong,
    as_number,
    call,
    close,
    exercise,
    expect,
    expect_number,
    expect_tensor,
    question,
)
from transformer_lib.data.corpora import Pair
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK

_SPECIALS = [UNK, PAD, SOS, EOS]

question(
    "01.a",
    right="40 in 100",
    replies={
        "4 in 100": "that is the share of tokens. It would be the share of sentences, too, if all unknown tokens kept "
        "together in a few of them.",
        "40 in 100": "twelve tokens are twelve chances. Spread at random, they would leave 0.956 to the power of 12 of "
        "the sentences without one: 58 %.",
        "nearly all": "twelve tokens are twelve chances, but each is small: twelve times 4.4 % is about a half, and "
        "some sentences have two.",
    },
)

question(
    "01.b",
    right="more than a third",
    replies={
        "less than a tenth": "captions are of similar length, but the width of a batch is not set by the typical "
        "sentence.",
        "about a fifth": "that would be so if the longest sentence had a fourth more tokens than the average. Among "
        "128, there is always one that has far more.",
        "more than a third": "the longest of 128 sentences sets the width for all. In Multi30k, it is about twice as "
        "long as the average, so that half of the batch stays empty.",
    },
)

question(
    "01.c",
    right="as much as a random order",
    replies={
        "as little as bucketed": "that is what its name promises, and what it does once sort_within_batch is true. "
        "What does it do by default?",
        "about half as much as a random order": "it does make pools of 100 batches, but without a sort inside, a pool "
        "is as mixed as the whole.",
        "as much as a random order": "by default, it makes its pools, and then leaves them unsorted in training. No "
        "message tells you.",
    },
)


@exercise("01.1")
def leaks(my_leaks: Callable[[list[Pair], list[Pair]], Collection[int]]) -> str:
    """``my_leaks(train, test)``: numbers of the test pairs whose source the model has read in training."""
    train = [
        Pair("Ein Hund bellt.", "A dog barks."),
        Pair("Zwei Männer essen.", "Two men are eating."),
        Pair("Das Essen, das er kocht, ist gut.", "The food that he cooks is good."),
    ]
    test = [
        Pair("Eine Frau liest.", "A woman reads."),
        Pair("Ein Hund bellt.", "A dog is barking."),
        Pair("Ein Köter bellt.", "A dog barks."),
        Pair("zwei männer essen .", "Two men eat."),
        Pair("Ein Hund bellt", "A dog barks"),
        Pair("Zwei Männer essen Eis.", "Two men are eating ice cream."),
        Pair("Das Essen , das er kocht, ist gut .", "The food that he cooks is good."),
        Pair("Bellt ein Hund.", "Does a dog bark."),
    ]
    try:
        found = list(call(my_leaks, list(train), list(test)))
    except TypeError:
        raise Wrong("a list of numbers was expected.") from None
    found = set(_indices(found, "return the numbers of the test pairs, from 0: neither the pairs, nor True and False."))
    expect(found != {2, 4, 7}, "the numbers are those of test pairs, counted from 0.")
    expect(found <= set(range(len(test))), "the numbers are those of test pairs, counted from 0.")
    expect(not found & {0, 5}, "a German sentence is a leak if *all* of it is the same as a German sentence of train.")
    expect(2 not in found, "number 2 has an English side that is in train. What the model reads is the German one.")
    expect(4 not in found, "number 4 lacks the full stop. It is a token, so the model reads another sentence.")
    expect(7 not in found, "number 7 has the same tokens in another order: it is another sentence.")
    expect(1 in found, "number 1 is a leak: the model has read this German sentence. Its English side may differ.")
    expect(3 in found, "number 3 is a leak, although its letters differ: compare tokens in lower case.")
    expect(6 in found, "number 6 is a leak, although its spaces differ: compare tokens, not strings.")
    expect(not list(call(my_leaks, train[:1], test[2:5])), "where nothing leaks, the list is empty.")
    return "run it on every new corpus: what was collected from the web can hold the test sentences, too."


@exercise("01.2")
def vocabulary(my_vocabulary: Callable[[list[list[str]], float], Sequence[str]]) -> str:
    """``my_vocabulary(sentences, coverage)``: the shortest list that leaves that share of the tokens known."""
    small = (
        "der mann schläft . | der hund schläft . | ein mann liest ein buch . | der hund bellt . | ein hund bellt nicht "
        ". | die frau liest , und sie lacht laut ."
    )
    rng = random.Random(0)
    large = [[f"w{int(rng.paretovariate(0.6)) % 60}" for _ in range(4)] for _ in range(64)]  # 256: no share is rounded
    for sentences in ([sentence.split() for sentence in small.split(" | ")], large):
        counts = Counter(chain.from_iterable(sentences))
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        for coverage in (0.5, 15 / 32, 0.75, 0.93, 1.0):
            found = call(my_vocabulary, [list(sentence) for sentence in sentences], coverage)
            expect(
                isinstance(found, list | tuple), f"a list of tokens was expected, but this is a {type(found).__name__}."
            )
            found = list(found)
            expect(all(isinstance(token, str) for token in found), "a list of tokens was expected, each a string.")
            where = f"with {len(sentences)} sentences and a coverage of {coverage}, "
            expect(set(_SPECIALS) <= set(found), f"the four specials are missing: {' '.join(_SPECIALS)}.")
            expect(found[:4] == _SPECIALS, f"the specials come first, in this order: {' '.join(_SPECIALS)}.")
            kept = found[4:]
            expect(len(set(kept)) == len(kept), "a type is in the list twice.")
            expect(set(kept) <= set(counts), "the list holds something that no sentence holds.")
            numbers = [counts[token] for token in kept]
            expect(numbers == sorted(numbers, reverse=True), "the most frequent types come first.")
            right = _shortest(ranked, counts, coverage)
            if len(kept) != len(right):
                known = sum(numbers) / counts.total()
                by_types = coverage * len(counts)
                expect(
                    abs(len(kept) - by_types) > 1 or abs(len(kept) - len(right)) < 2,
                    where + "you count types. Coverage is about tokens: a frequent type covers many.",
                )
                if known < coverage:
                    raise Wrong(where + f"only {100 * known:.1f} % of the tokens are known: it lacks a type or more.")
                raise Wrong(where + "a shorter list is enough: the last type that you took is not needed.")
            expect(kept == right, where + "types with equal counts come in alphabetical order, as in section 3.")
    return "the last few per cent cost most of the entries. This is Zipf's law."


def _shortest(ranked: list[str], counts: Counter[str], coverage: float) -> list[str]:
    known = 0
    for place, token in enumerate(ranked, start=1):
        known += counts[token]
        if known >= coverage * counts.total() - 1e-9:
            return ranked[:place]
    return ranked


@exercise("01.3")
def padded(my_padded: Callable[[list[list[int]], int], Tensor]) -> str:
    """``my_padded(rows, pad_id)``: the rows as one tensor, filled up on the right."""
    for rows, pad_id in (([[2, 5, 3], [2, 7, 8, 9, 3], [2, 3]], 1), ([[4, 1, 6, 1], [5]], 9), ([[2, 6, 3]], 1)):
        given = [list(row) for row in rows]
        found = call(my_padded, given, pad_id)
        expect(given == rows, "your function changes the lists that it was given: pad copies of them.")
        expected = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)
        longest = expected.shape[1]
        expect(isinstance(found, Tensor), "a tensor was expected: torch.tensor makes one of a list of equal lists.")
        expect(
            not close(found, expected.T) or found.shape == expected.shape,
            "that is [seq_len, batch]: the batch lies on its side. One sentence a row was asked for.",
        )
        expect(
            found.dim() != 2 or found.shape[1] >= longest,
            "it is as wide as a shorter row. Pad to the *longest*, and cut nothing off.",
        )
        left = torch.stack([torch.tensor([pad_id] * (longest - len(row)) + row) for row in rows])
        expect(close(found, expected) or not close(found, left), "that is padded on the left. Padding goes to the end.")
        zeros = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        expect(close(found, expected) or not close(found, zeros), f"fill up with pad_id, here {pad_id}, not with 0.")
        expect_tensor(found, expected, "each row should be its ids, then padding, and nothing else.")
        expect(not found.is_floating_point(), "ids are whole numbers: an embedding cannot look up 5.0.")
    return "that is `pad_sequence`, and what torchtext's `Field.process` does."


@exercise("01.4")
def one_long_caption(my_padding: float, my_padding_apart: float) -> str:
    """``my_padding`` of a batch with one long caption, in per cent; ``my_padding_apart``, when it is left out."""
    together, apart = (_percent(given) for given in (my_padding, my_padding_apart))
    for wrong, hint in {
        100 * 50 / 90: "`<sos>` and `<eos>` take positions too, but they are no padding: each row has two more tokens.",
        100: "divide by all positions of the rectangle, not by the tokens.",
        60: "`<sos>` and `<eos>` are tokens that the model reads, not padding.",
    }.items():
        expect(abs(together - wrong) > 0.2, hint)
    expect_number(
        together, 50, "draw the rectangle: five rows, as wide as the longest with `<sos>` and `<eos>`.", 0.005
    )
    for wrong, hint in {
        100 * 6 / 46: "`<sos>` and `<eos>` take positions in these batches too.",
        100 * 6 / 36: "the long caption is computed too, in a batch of its own: count its positions.",
        100
        * 3
        / 36: "an average of two shares counts a small batch as much as a large one. Add up the positions first.",
        100 * 6 / 50: "divide by all positions of both rectangles, not by the tokens.",
    }.items():
        expect(abs(apart - wrong) > 0.2, hint)
    expect_number(apart, 100 * 6 / 56, "two rectangles: four rows of 9, and one of 20.", 0.03)
    return "one long caption made half of the work padding. A random order wastes as much on Multi30k."


@exercise("01.5")
def batches(my_batches: Callable[[list[tuple[int, int]], int, int], Iterable[Iterable[int]]]) -> str:
    """``my_batches(lengths, max_tokens, seed)``: numbers of the pairs of each batch, for one epoch."""
    _valid(my_batches, [(5, 4), (6, 6), (10, 9)], 20, 0)
    expect(any(map(list, call(my_batches, [(5, 30)], 30, 0))), "a pair of just max_tokens fits.")
    _valid(my_batches, [(5, 30)], 30, 0)
    lengths = _lengths(6000)
    first = _valid(my_batches, lengths, 1000, 0)
    least = sum(map(max, lengths)) / 1000
    if len(first) > 1.25 * least:
        _explain(first, lengths, 1000, least)
    full = _valid(my_batches, [(10, 9), (9, 10)], 20, 0)
    expect(len(full) == 1, "two pairs of 10 are just max_tokens=20, so they fit into one batch.")
    widths = [max(max(lengths[number]) for number in batch) for batch in first]
    expect(
        widths not in (sorted(widths), sorted(widths, reverse=True)),
        "the batches come in order of length. Shuffle them, so that training sees short and long ones mixed.",
    )
    expect(_valid(my_batches, lengths, 1000, 0) == first, "the same seed should give the same batches again.")
    second = _valid(my_batches, lengths, 1000, 1)
    expect(second != first, "another seed should give another order.")
    expect(
        set(map(frozenset, first)) != set(map(frozenset, second)),
        "another order, but the same sentences meet in every epoch. Shuffle before you sort, too: the sort "
        "leaves pairs with equal keys in the order in which they were.",
    )
    return "that is `BucketBatches` with `max_tokens`, and the paper's way to make batches (section 5.1)."


def _lengths(count: int) -> list[tuple[int, int]]:
    """Lengths like those of captions, of both sides."""
    rng = random.Random(0)
    sources = [min(44, max(4, round(rng.lognormvariate(2.45, 0.35)))) for _ in range(count)]
    return [(length + 2, min(44, max(4, round(length * rng.lognormvariate(0.05, 0.2)))) + 2) for length in sources]


def _valid(
    my_batches: Callable[..., Any], lengths: list[tuple[int, int]], max_tokens: int, seed: int
) -> list[list[int]]:
    """Call a reader's function, and see that its batches hold every pair once and are not too large."""
    try:
        found = [list(batch) for batch in call(my_batches, list(lengths), max_tokens, seed)]
    except TypeError:
        raise Wrong("a list of lists was expected: the numbers of the pairs of each batch.") from None
    found = [_indices(batch, "a batch should hold the numbers of its pairs, from 0.") for batch in found]
    numbers = list(chain.from_iterable(found))
    expect(all(found), "one of the batches is empty.")
    expect(
        set(numbers) <= set(range(len(lengths))), f"for {len(lengths)} pairs, the numbers are 0 to {len(lengths) - 1}."
    )
    missing = len(lengths) - len(set(numbers))
    expect(
        not missing, f"{missing} of {len(lengths)} pairs are in no batch. Was the last batch lost when the loop ended?"
    )
    expect(len(numbers) == len(lengths), "a pair is in more than one batch, or twice in one.")
    for batch in found:
        longest = [max(lengths[number][side] for number in batch) for side in (0, 1)]
        tokens = max(sum(lengths[number][side] for number in batch) for side in (0, 1))
        size = len(batch) * max(longest)
        if size > max_tokens >= tokens:
            raise Wrong(
                f"a batch of {len(batch)} pairs, the longest side of which is {max(longest)}, takes {size} positions, "
                f"more than {max_tokens}: all rows are padded to the longest."
            )
        expect(
            size <= max_tokens, f"a batch takes {size} positions on its larger side, at most {max_tokens} are allowed."
        )
    return found


def _explain(found: list[list[int]], lengths: list[tuple[int, int]], max_tokens: int, least: float) -> None:
    """Say why there are more batches than needed."""
    start = f"{len(found)} batches, where {round(least)} would do without padding: "
    wide = [[max(lengths[number][side] for number in batch) for batch in found] for side in (0, 1)]
    larger = sum(len(batch) * max(both) for batch, *both in zip(found, *wide, strict=True))
    expect(
        larger > 0.75 * max_tokens * len(found),
        start + "most are not full. Add pairs until the next one would not fit.",
    )
    padding = []
    for side in (0, 1):
        positions = sum(len(batch) * width for batch, width in zip(found, wide[side], strict=True))
        padding.append(100 * (1 - sum(pair[side] for pair in lengths) / positions))
    raise Wrong(
        f"{start}{padding[0]:.0f} % of the source positions and {padding[1]:.0f} % of the target's are padding. "
        + ("Sort by both sides, not by one." if min(padding) < 10 else "Let pairs of similar length meet.")
    )


def _percent(value: Any) -> float:
    number = as_number(value)
    return 100 * number if 0 < number < 1 else number


def _indices(found: Iterable[Any], hint: str) -> list[int]:
    """Return whole numbers of Python's, NumPy's or PyTorch's as Python's."""
    found = list(found)
    try:
        expect(not any(isinstance(number, bool | np.bool_) for number in found), hint)
        return [operator.index(number) for number in found]
    except TypeError:
        raise Wrong(hint) from None
