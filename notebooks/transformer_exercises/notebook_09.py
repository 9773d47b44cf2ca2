"""Checks of the exercises of notebook 09: BLEU by hand, wrong scorers, nonsense, and luck."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import sacrebleu

from transformer_exercises import (
    Unsolved,
    Wrong,
    as_list,
    as_number,
    call,
    exercise,
    expect,
    expect_number,
    question,
)
from transformer_lib.data.tokenizers import spacy_tokenizer
from transformer_lib.inference import bleu

Tokens = list[str]

question(
    "09.a",
    right="2–3–3",
    replies={
        "one each": "count the 2-grams that contain rides: one ends with it, another begins with it.",
        "two each": "a word is in as many n-grams as it has places in them. A 3-gram can have rides first, in "
        "the middle or last.",
        "2–3–3": "a word is in up to n n-grams. It would be in four 4-grams, but rides is the third "
        "word of the sentence, so none can have it last.",
        "2–3–4": "that is so in the middle of a long sentence. Here, is there a 4-gram that ends with the third word?",
    },
)

question(
    "09.b",
    right="characters",
    replies={
        "spaces only": "without cuts, a full stop hangs on the last word, and one wrong sign spoils the word that it "
        "hangs on. That does not help.",
        "characters": "most characters of a wrong word can be right, and 4-grams of characters are shorter than many "
        "a word.",
        "<unk> for rare words": "it helps, for an <unk> matches any other. But rare words are few, and most of them "
        "do not meet another <unk> at the right place.",
    },
)

question(
    "09.c",
    right="narrower",
    replies={
        "narrower": "most of an interval's width comes from easy and hard sentences. In one draw, both systems have "
        "the same ones, so this cancels out in the difference.",
        "as wide": "that would be so if the draw hardly mattered to the difference. But both systems get the same "
        "sentences in each draw, the easy as well as the hard.",
        "wider": "differences of independent numbers do vary more. These are not independent: both systems translate "
        "the same drawn sentences.",
    },
)

question(
    "09.d",
    right="right: other words and order",
    replies={
        "right: a synonym": "one other word costs as much as you found in section 1, and here it is the second of "
        "fourteen: it is in few n-grams.",
        "right: other words and order": "n-grams compare words and their order. This one has others of both, and all "
        "that BLEU would need to see that it is right is what they mean.",
        "the opposite": "a reader would put it last. But it has all words of the reference and one more, and BLEU does "
        "not know what not means.",
        "wrong: the place": "to BLEU, a roof for a street is one wrong word, near the end, where it is in few n-grams.",
    },
)


@exercise("09.1")
def with_a_pencil(precisions: Sequence[float], penalty: float, bleu_of_sentence: float) -> str:
    """p1 to p4, BP and BLEU of "the dogs run on the beach" for "two small dogs run on the beach ."."""
    precisions = as_list(precisions)
    expect(
        isinstance(precisions, list | tuple) and len(precisions) == 4,
        "four precisions are expected: of 1-grams, 2-grams, 3-grams and 4-grams.",
    )
    for order, (found, total) in enumerate(zip(map(as_number, precisions), (6, 5, 4, 3), strict=True), start=1):
        expect(found <= 1, f"p{order}: a precision is a share, at most 1. Write it as a fraction, not in per cent.")
        expect(
            order > 1 or not _near(found, 1),
            f"p{order}: *the* is twice in the translation, and once in the reference: clip.",
        )
        expect(
            not _near(found, (total - 1) / (9 - order)),
            f"p{order}: divide by the number of {order}-grams in the *translation*, not in the reference.",
        )
        expect_number(
            found, (total - 1) / total, f"p{order}: how many {order}-grams are there, how many are right?", 2e-3
        )
    penalty = as_number(penalty)
    expect(not _near(penalty, 1), "BP: the translation is shorter than the reference (the full stop is a token).")
    expect(not _near(penalty, math.exp(1 - 6 / 8)), "BP: c and r are exchanged; a penalty is never above 1.")
    expect(not _near(penalty, 6 / 8), "BP is e^(1 - r/c), not c/r.")
    expect(not _near(penalty, math.exp(1 - 7 / 6)), "BP: the full stop of the reference is a token too.")
    expect_number(penalty, math.exp(1 - 8 / 6), "BP: c is 6 and r is 8.", 2e-3)
    found, right = as_number(bleu_of_sentence), 100 * math.exp(1 - 8 / 6) * (1 / 3) ** 0.25
    expect(not _near(found, right / 100), "BLEU: right, as a fraction; the notebook's scale ends at 100.")
    expect(not _near(found, right / math.exp(1 - 8 / 6)), "BLEU: BP is missing.")
    expect(
        not _near(found, 100 * math.exp(1 - 8 / 6) * sum(n / (n + 1) for n in (5, 4, 3, 2)) / 4, 2e-4),
        "BLEU: the mean of the precisions is a geometric one: the fourth root of their product.",
    )
    expect(not _near(found, 100 * math.exp(1 - 8 / 6) / 3), "BLEU: the fourth root of the product is missing.")
    expect_number(
        found, right, "BLEU: the product of the four precisions is 1/3; take its fourth root, times BP.", 1e-3
    )
    return "one *the* too many costs nearly a quarter, by the precisions; two tokens too few cost more, by BP."


def _near(found: float, wrong: float, tolerance: float = 2e-3) -> bool:
    return abs(found - wrong) < tolerance * max(1, abs(wrong))


@exercise("clipped_matches")
def clipped_by_one(clipped_matches: Callable[[Tokens, Tokens, int], tuple[int, int]]) -> str:
    """``clipped_matches(hypothesis, reference, n)``: clipped matches, and n-grams of the hypothesis."""
    cases = (
        ("the the the the the cat", "the cat on the mat"),
        ("two dogs play in the snow .", "two dogs run in the snow ."),
        ("a b a b a b", "b a b a"),
        ("sleep", "sleep well"),
    )
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    for hypothesis, reference in cases:
        counted = metric.corpus_score([hypothesis], [[reference]])
        for n in range(1, 5):
            right = counted.counts[n - 1], counted.totals[n - 1]
            found = as_list(call(clipped_matches, hypothesis.split(), reference.split(), n))
            expect(isinstance(found, tuple | list) and len(found) == 2, "two numbers were expected: matches, n-grams.")
            matches, total = map(as_number, found)
            where = f"{n}-grams of {hypothesis!r} for {reference!r}"
            ours, theirs = (
                [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
                for tokens in (hypothesis.split(), reference.split())
            )
            for wrong, hint in (
                ((right[1], right[0]), f"{where}: matches come first, then the number of n-grams."),
                (
                    (sum(ngram in theirs for ngram in ours), len(ours)),
                    f"{where}: an n-gram is credited at most as often as the reference has it. Clip.",
                ),
                (
                    (len({*ours} & {*theirs}), len({*ours})),
                    f"{where}: a set forgets how often each n-gram occurs; a `Counter` does not.",
                ),
                ((right[0], len(theirs)), f"{where}: count the n-grams of the *hypothesis*: it is their precision."),
            ):
                expect((matches, total) == right or (matches, total) != wrong, hint)
            expect(
                (matches, total) == right,
                f"{where}: you count {matches:g} of {total:g}, expected {right[0]} of {right[1]}.",
            )
    return "the same counts as sacreBLEU's, for n-grams of one to four tokens."


@exercise("brevity_penalty")
def too_short(brevity_penalty: Callable[[int, int], float]) -> str:
    """``brevity_penalty(c, r)``, of hypotheses with c tokens for references with r."""
    for c, r in ((4, 8), (15, 16), (8, 8), (30, 20)):
        found, ratio = as_number(call(brevity_penalty, c, r)), r / c
        for wrong, hint in (
            (
                min(1, math.exp(1 - c / r)),
                "what is too *short* is punished, and *c* counts the hypotheses: are *c* and *r* exchanged?",
            ),
            (math.exp(1 - ratio), "what is too long needs no reward: BP is never above 1."),
            (min(1, c / r), "BP is e^(1 − *r*/*c*), not *c*/*r*."),
        ):
            expect(not _near(found, wrong) or _near(found, min(1, math.exp(1 - ratio))), f"c = {c}, r = {r}: {hint}")
        expect_number(found, min(1, math.exp(1 - ratio)), f"c = {c}, r = {r}: e^(1 − *r*/*c*), or 1 if *c* ≥ *r*.")
    _expect_zero("c = 0, r = 8: BP goes to 0 with *c*. Where that is 0, so is BP.", brevity_penalty, 0, 8)
    return "half the length leaves 37 % of the score, and twice the length costs nothing here."


@exercise("corpus_bleu")
def bleu_of_a_test_set(corpus_bleu: Callable[[list[Tokens], list[Tokens]], float]) -> str:
    """``corpus_bleu(hypotheses, references)``: of a test set, 0 to 100, without smoothing."""
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    for seed, share in ((0, 0.9), (1, 1.2)):
        hypotheses, references = _test_set(seed, 1, share)
        right = _sacre(metric, hypotheses, references)
        found = as_number(call(corpus_bleu, deepcopy(hypotheses), [list(many[0]) for many in references]))
        for hint, wrong in _wrong_scores(metric, hypotheses, references).items():
            expect(abs(wrong - right) < 0.05 or not _near(found, wrong, 1e-4), hint)
        expect_number(found, right, f"for {len(references)} sentences of the check's, it is {right:.2f}.", 1e-4)
    _expect_zero(
        "nothing in 'two dogs .' has four tokens, and no 3-gram matches: BLEU is 0.",
        corpus_bleu,
        [["two", "dogs", "."]],
        [["two", "dogs", "play", "."]],
    )
    _expect_zero("a translation can be empty: then *c* is 0, and BLEU is 0.", corpus_bleu, [[]], [["two", "dogs", "."]])
    return "sacreBLEU says the same, even of an empty translation."


def _expect_zero(why: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Expect 0 where the formula, as it stands, divides by 0 or takes the logarithm of 0."""
    try:
        found = call(function, *arguments)
    except Wrong as stopped:
        raise Wrong(f"{why} But {stopped}") from None
    expect_number(found, 0, why)


@exercise("09.2")
def clipped(my_matches: Callable[[Tokens, list[Tokens], int], tuple[int, int]]) -> str:
    """``my_matches(hypothesis, references, order)``: clipped matches, and n-grams of the hypothesis."""
    cases = (
        ("the the the the the cat", ["the cat on the mat", "the cat"]),
        ("two dogs play in the snow .", ["dogs play in the garden .", "two dogs run in the snow ."]),
        ("a dog .", ["a big dog ."]),
        ("a b a b a b", ["a b a", "b a b a", "c"]),
        ("x y z x y", ["z x y z", "x y x y z x y"]),
        ("sleep", ["sleep well"]),
    )
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    for hypothesis, references in cases:
        counted = metric.corpus_score([hypothesis], [[text] for text in references])
        for order in range(1, 5):
            right = counted.counts[order - 1], counted.totals[order - 1]
            tokens, many = hypothesis.split(), [text.split() for text in references]
            found = as_list(call(my_matches, list(tokens), [list(text) for text in many], order))
            expect(isinstance(found, tuple | list) and len(found) == 2, "two numbers were expected: matches, n-grams.")
            matches, total = map(as_number, found)
            if (matches, total) == right:
                continue
            where = f"{order}-grams of {hypothesis!r} for {' / '.join(map(repr, references))}"
            ngrams = [tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1)]
            theirs = [[tuple(text[i : i + order]) for i in range(len(text) - order + 1)] for text in many]
            expect(total != len(ngrams) - 1 or not ngrams, f"{where}: you leave out the last n-gram.")
            expect(total >= 0, f"{where}: there are none, and you count {total:g}.")
            expect(
                total != len(set(ngrams)) or total == right[1],
                f"{where}: you count *different* n-grams. A set forgets how often each occurs; a `Counter` does not.",
            )
            expect(
                total == right[1], f"{where}: you divide by {total:g}, but the hypothesis has {right[1]} {order}-grams."
            )
            expect(
                matches != sum(any(ngram in text for text in theirs) for ngram in ngrams),
                f"{where}: no n-gram is credited more often than one reference has it. Clip.",
            )
            added = sum(min(ngrams.count(n), sum(text.count(n) for text in theirs)) for n in set(ngrams))
            expect(
                matches != added,
                f"{where}: you add up what all references have; the one that has the n-gram most often decides.",
            )
            first = sum(min(ngrams.count(n), theirs[0].count(n)) for n in set(ngrams))
            expect(matches != first, f"{where}: an n-gram may match any of the references, not the first one alone.")
            best = max(sum(min(ngrams.count(n), text.count(n)) for n in set(ngrams)) for text in theirs)
            expect(
                matches != best,
                f"{where}: one n-gram may match one reference, the next another; do not choose one as a whole.",
            )
            raise Wrong(f"{where}: you count {matches:g} matches of {total:g}, expected {right[0]} of {right[1]}.")
    return "`Counter` has both steps: `|` keeps the larger of two counts, and `&` the smaller one, which clips."


@exercise("09.6")
def several_references(my_bleu: Callable[[list[Tokens], list[list[Tokens]]], float]) -> str:
    """``my_bleu(hypotheses, references)``: of a test set, 0 to 100, without smoothing."""
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    for seed, number, share in ((0, 1, 0.9), (1, 1, 1.2), (2, 3, 0.8), (3, 2, 0.8)):
        hypotheses, references = _test_set(seed, number, share)
        right = _sacre(metric, hypotheses, references)
        found = as_number(call(my_bleu, deepcopy(hypotheses), deepcopy(references)))
        for hint, wrong in _wrong_scores(metric, hypotheses, references).items():
            expect(abs(wrong - right) < 0.05 or not _near(found, wrong, 1e-4), hint)
        expect_number(
            found, right, f"with {number} reference{'s' * (number > 1)} per sentence, it is {right:.2f}.", 1e-4
        )
    _expect_zero(
        "no 3-gram matches in 'two dogs play .' for 'two dogs are playing .': BLEU is 0.",
        my_bleu,
        [["two", "dogs", "play", "."]],
        [[["two", "dogs", "are", "playing", "."]]],
    )
    _expect_zero("a translation can be empty: then *c* is 0, and BLEU is 0.", my_bleu, [[]], [[["two", "dogs", "."]]])
    return "that is sacreBLEU with `tokenize='none', smooth_method='none'`, for any number of references."


def _sacre(metric: sacrebleu.BLEU, hypotheses: list[Tokens], references: list[list[Tokens]]) -> float:
    by_set = [[" ".join(tokens) for tokens in one_set] for one_set in zip(*references, strict=True)]
    return metric.corpus_score([" ".join(tokens) for tokens in hypotheses], by_set).score


def _test_set(
    seed: int, number: int, share: float = 1.0, sentences: int = 30
) -> tuple[list[Tokens], list[list[Tokens]]]:
    """Return damaged sentences of made-up words, cut or drawn out to a share of their length, and references."""
    rng = random.Random(seed)
    words = [chr(97 + i) for i in range(12)]
    hypotheses, references = [], []
    for _ in range(sentences):
        original = rng.choices(words, k=rng.randint(6, 14))
        damaged = _damaged(original, 0.2, rng, words)
        hypotheses.append((damaged + words)[: math.ceil(share * len(damaged))])
        many = [original, *(_damaged(original, 0.3, rng, words) for _ in range(number - 1))]
        references.append(rng.sample(many, number))
    return hypotheses, references


def _damaged(tokens: Tokens, rate: float, rng: random.Random, words: Tokens) -> Tokens:
    """Drop some tokens, and replace as many by others; at least one is left."""
    kept = [token if rng.random() > rate else rng.choice(words) for token in tokens if rng.random() > rate / 2]
    return kept or tokens[:1]


def _wrong_scores(metric: sacrebleu.BLEU, hypotheses: list[Tokens], references: list[list[Tokens]]) -> dict[str, float]:
    pairs = list(zip(hypotheses, references, strict=True))
    counted = [metric.corpus_score([" ".join(h)], [[" ".join(tokens)] for tokens in many]) for h, many in pairs]
    matches, totals = (np.array([getattr(one, name) for one in counted]) for name in ("counts", "totals"))
    precisions = matches.sum(0) / totals.sum(0)
    averages = [np.mean(matches[totals[:, n] > 0, n] / totals[totals[:, n] > 0, n]) for n in range(4)]
    root, length = 100 * math.prod(precisions) ** 0.25, sum(map(len, hypotheses))

    def ratio(choose: Callable[[list[int], int], float]) -> float:
        return sum(choose([len(tokens) for tokens in many], len(h)) for h, many in pairs) / length

    def penalty(choose: Callable[[list[int], int], float]) -> float:
        return math.exp(min(0, 1 - ratio(choose)))

    def closest(lengths: list[int], own: int) -> int:
        return min(lengths, key=lambda n: (abs(n - own), n))

    bp = penalty(closest)
    wrong_length = "the length of a reference: of several, take the closest one's, not "
    sums = "Add up matches and n-grams of all sentences, then divide."
    of_sentences = [
        math.exp(min(0, 1 - closest([len(tokens) for tokens in many], len(h)) / len(h))) for h, many in pairs
    ]
    return {
        "that is the right number as a fraction; the scale ends at 100.": bp * root / 100,
        f"that is the mean of the sentences' BLEU. {sums}": np.mean([_sacre(metric, [h], [many]) for h, many in pairs]),
        f"you average precisions over sentences. {sums}": 100 * bp * math.prod(averages) ** 0.25,
        "the mean of the precisions is a geometric one.": 100 * bp * np.mean(precisions),
        "the brevity penalty is missing.": root,
        "you average the brevity penalties of the sentences. Add up all *c* and all *r*, then take one penalty.": root
        * np.mean(of_sentences),
        "the brevity penalty rewards what is too long; it is never above 1.": root * math.exp(1 - ratio(closest)),
        f"{wrong_length}the first one's.": root * penalty(lambda lengths, _: lengths[0]),
        f"{wrong_length}the shortest one's.": root * penalty(lambda lengths, _: min(lengths)),
        f"{wrong_length}the longest one's.": root * penalty(lambda lengths, _: max(lengths)),
        "if two references are equally close, the length of the shorter one counts.": root
        * penalty(lambda lengths, own: min(lengths, key=lambda n: (abs(n - own), -n))),
        f"{wrong_length}their mean.": root * penalty(lambda lengths, _: sum(lengths) / len(lengths)),
        "that is BLEU with 1-grams and 2-grams only.": 100 * bp * math.prod(precisions[:2]) ** 0.5,
        "the fourth root: the exponent is 1/4.": 100 * bp * math.prod(precisions),
    }


@exercise("09.4")
def narrower(times_as_many: float, plus_minus_of_250: float) -> str:
    """``times_as_many`` sentences for half the width; ``plus_minus_of_250``, if 1,000 sentences give 1.6."""
    times, half_width = as_number(times_as_many), as_number(plus_minus_of_250)
    expect(not _near(times, 2), "twice as many make it narrower by √2 only, not by 2.")
    expect(not _near(times, math.sqrt(2)), "the other way round: √n has to double. What does n do then?")
    expect(not _near(times, 4000), "that is a number of sentences; how many *times* as many was asked for.")
    expect(not _near(times, 1 / 4), "fewer sentences say less: the interval gets wider.")
    expect_number(times, 4, "1/√n is to be half of what it was. By what is n multiplied?", 1e-3)
    expect(not _near(half_width, 6.4), "a quarter of the sentences: the width goes with the root of that.")
    expect(not _near(half_width, 0.8), "fewer sentences say less: the interval gets wider, not narrower.")
    expect(not _near(half_width, 1.6), "250 sentences cannot say as much as 1,000.")
    expect_number(half_width, 3.2, "250 is a quarter of 1,000: use your first answer.", 1e-3)
    return "a tenth of the width takes a hundred times the sentences, so do not trust the decimals."


_REFERENCE = "a man in a red shirt is playing the guitar on the street ."


_STILL_RIGHT = ("", "on the street", "the guitar on the street")  # and the rest of the sentence behind the full stop


@exercise("09.5")
def nonsense(my_nonsense: str) -> str:
    """``my_nonsense``: the reference's words in another order, with BLEU above 85."""
    if isinstance(my_nonsense, list | tuple) and all(isinstance(token, str) for token in my_nonsense):
        my_nonsense = " ".join(my_nonsense)
    expect(isinstance(my_nonsense, str), "a string was expected, with a space between two tokens.")
    found, reference = my_nonsense.split(), _REFERENCE.split()
    missing, extra = (Counter(reference) - Counter(found), Counter(found) - Counter(reference))
    expect(not missing, f"use all words of the reference; these are missing: `{' '.join(missing.elements())}`.")
    expect(not extra, f"use the reference's words only; these are too many: `{' '.join(extra.elements())}`.")
    expect(found != reference, "that is the reference itself.")
    value = bleu.by_definition([found], [reference])
    expect(value > 85, f"BLEU is {value:.1f}. Each place where you cut costs n-grams: cut fewer times.")
    expect(
        " ".join(found[: found.index(".")]) not in _STILL_RIGHT,
        "read it aloud, without its full stop: it still says the same. Cut inside of a phrase.",
    )
    return "one cut breaks one 2-gram, two 3-grams and three 4-grams. BLEU does not ask where in the sentence they are."


def _whole(hypotheses: Sequence[str], references: Sequence[str], **options: bool) -> float:
    return sacrebleu.BLEU(**options).corpus_score(list(hypotheses), [list(references)]).score


def _averaged(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    metric = sacrebleu.BLEU(effective_order=True)
    scores = [metric.sentence_score(h, [r]).score for h, r in zip(hypotheses, references, strict=True)]
    return sum(scores) / len(scores)


SCORERS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {  # do not peek: that is exercise 09.3
    "A": lambda hypotheses, references: _whole(references, hypotheses),
    "B": _averaged,
    "C": lambda hypotheses, references: _whole(hypotheses, references),
    "D": lambda hypotheses, references: _whole(
        hypotheses, [" ".join(spacy_tokenizer("en")(text)) for text in references]
    ),
    "E": lambda hypotheses, references: _whole(hypotheses, references, lowercase=True),
}
_FAULTS = {"A": "exchanged", "B": "averaged", "C": "right", "D": "tokenised", "E": "lower-cased"}
_PROBES = {
    "lower-cased": "score a sentence against the same sentence in capitals.",
    "exchanged": "score a translation that is far too short, and then one that is far too long.",
    "averaged": "score a perfect long sentence together with a short one that is all wrong.",
    "tokenised": "score a sentence with *isn't* in it against itself.",
    "right": "the right one treats each of the other four probes as sacreBLEU does.",
}


@exercise("09.3")
def wrong_scorers(faults: Mapping[str, str]) -> str:
    """``faults``: what each of five scorers does wrong, if it does."""
    expect(isinstance(faults, Mapping), "the answer is a dictionary, from a letter to a word.")
    if any(fault is None or fault is ... for fault in faults.values()):
        raise Unsolved
    found = {str(letter).upper(): str(fault).strip().lower() for letter, fault in faults.items()}
    expect(set(found) == set(_FAULTS), "there are five scorers: A, B, C, D and E.")
    expect(set(found.values()) <= set(_PROBES), f"each of them is one of these: {', '.join(sorted(_FAULTS.values()))}.")
    for letter, fault in found.items():
        if fault != _FAULTS[letter]:
            raise Wrong(f"{letter} is not {fault!r}. A probe for that: {_PROBES[fault]}")
    return "all five would be quoted as BLEU. A scorer is a program like any other: try it on what you can predict."


@exercise("09.7")
def difference(my_interval: Callable[[list[Tokens], list[Tokens], list[Tokens]], tuple[float, float]]) -> str:
    """``my_interval(hypotheses_a, hypotheses_b, references)``: where BLEU of b minus BLEU of a lies, in 95 %."""
    a, references = _test_set(5, 1, sentences=100)
    references = [many[0] for many in references]
    rng = random.Random(7)
    b = [h if rng.random() < 0.8 else _damaged(r, 0.1, rng, r) for h, r in zip(a, references, strict=True)]
    low, high = _pair(call(my_interval, deepcopy(a), deepcopy(b), deepcopy(references)))
    drawn = [bleu.bootstrap(system, references, 2000) for system in (a, b)]
    right, free = drawn[1] - drawn[0], bleu.bootstrap(b, references, 2000, seed=1) - drawn[0]
    width, wanted = high - low, np.quantile(right, [0.025, 0.975])
    spread = wanted[1] - wanted[0]

    def like(values: np.ndarray, tolerance: float = 0.1) -> bool:
        edges = np.quantile(values, [0.025, 0.975])
        return max(abs(low - edges[0]), abs(high - edges[1])) < tolerance * spread

    expect(width >= 0, "low is above high.")
    expect(
        width > 0.02 * spread or width == 0,
        f"from {low:.4f} to {high:.4f}: is that a fraction? BLEU here goes from 0 to 100.",
    )
    expect(
        width > 0,
        "the interval has no width: all drawn test sets are the same. Draw many, and put each sentence back before you "
        "pick the next.",
    )
    expect(not like(-right), "that is a minus b; b minus a was asked for.")
    expect(not like(drawn[1]), "that is where BLEU of b lies, not where the difference does.")
    expect(
        abs(width / np.ptp(np.quantile(free, [0.025, 0.975])) - 1) > 0.15,
        "it is too wide: draw *the same sentences* for both systems, so that easy and hard draws cancel out.",
    )
    one_by_one = [bleu.bleu_from_ngram_counts(bleu.sentence_counts(system, references)) for system in (a, b)]
    picks = np.random.default_rng(0).choice(len(a), size=(2000, len(a)))
    means = (one_by_one[1] - one_by_one[0])[picks].mean(axis=1)
    expect(
        not like(means, 0.05) or like(right),
        "that is the mean of the sentences' differences. Each draw is a test set: score it as one.",
    )
    expect(
        not 0.75 < width / spread < 0.9,
        "it is a little narrow: of a thousand draws, leave out 2.5 % at each end, not 5 %.",
    )
    expect(
        0.9 <= width / spread < 1.3,
        f"it is {width / spread:.1f} times as wide as it should be: draw as many sentences as there are, a thousand "
        "times, and leave out 2.5 % at each end.",
    )
    expect(
        max(abs(low - wanted[0]), abs(high - wanted[1])) < 0.25 * spread,
        f"it goes from {low:.2f} to {high:.2f}, expected about {wanted[0]:.2f} to {wanted[1]:.2f}.",
    )
    low, high = _pair(call(my_interval, a[:20], a[:20], references[:20]))
    expect(low == high == 0, "for a system and itself, the difference is 0 in every draw.")
    return "0 lies outside of the interval: that b is better is more than luck, with these hundred sentences."


def _pair(found: Any) -> tuple[float, float]:
    try:
        low, high = (float(edge) for edge in found)
    except (TypeError, ValueError):
        raise Wrong("two numbers were expected: low, high.") from None
    expect(math.isfinite(low) and math.isfinite(high), "there is nan or infinity in it.")
    return low, high
