"""Answers to the exercises of notebook 09: BLEU by hand, wrong scorers, and luck."""

import math
from collections import Counter
from fractions import Fraction
from functools import reduce

import numpy as np
import torch
from exercise_answers import worked

from transformer_lib.inference import bleu

course = worked.notebook("09")


def ngrams(tokens, order):
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def matches(
    merge=lambda counts: reduce(lambda a, b: a | b, counts),
    clip=lambda found, wanted: (found & wanted).total(),
    total=lambda found, tokens, order: found.total(),
    ngrams=ngrams,
):
    def count(hypothesis, references, order):
        found, wanted = ngrams(hypothesis, order), merge([ngrams(tokens, order) for tokens in references])
        return clip(found, wanted), total(found, hypothesis, order)

    return count


def best_reference(hypothesis, references, order):
    return max(matches()(hypothesis, [tokens], order) for tokens in references)


def without_the_last(tokens, order):
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order))


def closest(lengths, length):
    return min(lengths, key=lambda n: (abs(n - length), n))


def corpus_bleu(
    choose=closest,
    mean=lambda p: math.prod(p) ** 0.25,
    penalty=lambda ratio: min(1, math.exp(1 - ratio)),
    scale=100,
    least=1,
):
    def score(hypotheses, references):
        pairs = list(zip(hypotheses, references, strict=True))
        precisions = []
        for order in range(1, 5):
            sums = np.sum([matches()(h, many, order) for h, many in pairs], axis=0)
            precisions.append(sums[0] / max(1, sums[1]))
        length = max(least, sum(map(len, hypotheses)))
        wanted = sum(choose([len(tokens) for tokens in many], len(h)) for h, many in pairs)
        return scale * penalty(wanted / length) * mean(precisions)

    return score


def mean_of_sentences(hypotheses, references):
    return sum(corpus_bleu()([h], [many]) for h, many in zip(hypotheses, references, strict=True)) / len(hypotheses)


def mean_of_precisions(hypotheses, references):
    product = 1
    for order in range(1, 5):
        counts = [matches()(h, many, order) for h, many in zip(hypotheses, references, strict=True)]
        shares = [found / total for found, total in counts if total]
        product *= sum(shares) / max(1, len(shares))
    penalty = corpus_bleu(mean=lambda p: 1)(hypotheses, references)
    return penalty * product**0.25


def penalty_of_each(hypotheses, references):
    without = corpus_bleu(penalty=lambda ratio: 1)(hypotheses, references)
    penalties = [
        corpus_bleu(mean=lambda p: 1, scale=1)([h], [many]) for h, many in zip(hypotheses, references, strict=True)
    ]
    return without * sum(penalties) / len(penalties)


def with_logarithms(hypotheses, references):
    return corpus_bleu(mean=lambda p: math.exp(sum(map(math.log, p)) / 4))(hypotheses, references)


def interval(
    draws=1000,
    edges=(2.5, 97.5),
    size=1.0,
    replace=True,
    paired=True,
    score=bleu.bleu_from_ngram_counts,
    of=lambda a, b: b - a,
):
    def find(hypotheses_a, hypotheses_b, references):
        rng = np.random.default_rng(7)
        counts = [bleu.sentence_counts(system, references) for system in (hypotheses_a, hypotheses_b)]
        n = len(references)

        def pick():
            return rng.choice(n, size=int(n * size), replace=replace)

        values = []
        for _ in range(draws):
            first = pick()
            second = first if paired else pick()
            values.append(of(score(counts[0][first].sum(axis=0)), score(counts[1][second].sum(axis=0))))
        return tuple(np.percentile(values, edges))

    return find


def of_sentences(hypotheses_a, hypotheses_b, references):
    scores = [
        bleu.bleu_from_ngram_counts(bleu.sentence_counts(system, references)) for system in (hypotheses_a, hypotheses_b)
    ]
    picks = np.random.default_rng(7).choice(len(references), size=(1000, len(references)))
    return np.percentile((scores[1] - scores[0])[picks].mean(axis=1), [2.5, 97.5])


def popping(hypothesis, references, order):
    found, allowed = ngrams(hypothesis, order), Counter()
    while references:
        allowed |= ngrams(references.pop(), order)
    hypothesis.clear()
    return np.array([(found & allowed).total(), found.total()])


def sorting(hypotheses, references):
    for h, many in zip(hypotheses, references, strict=True):
        many.sort(key=lambda tokens: (abs(len(tokens) - len(h)), len(tokens)))
    return np.float32(corpus_bleu(choose=lambda lengths, length: lengths[0])(hypotheses, references))


def with_global_random_numbers(*systems):
    np.random.seed(1)
    counts, differences = [bleu.sentence_counts(system, systems[2]) for system in systems[:2]], []
    for _ in range(1000):
        drawn = np.random.randint(len(systems[2]), size=len(systems[2]))
        differences.append(
            np.subtract(*(bleu.bleu_from_ngram_counts(each[drawn].sum(axis=0)) for each in counts[::-1]))
        )
    return np.quantile(differences, [0.025, 0.975])


def of_one(function, **changed):
    """Return what takes one reference a sentence, made of what takes several."""

    def changed_function(hypothesis, reference, n):
        return function(**changed)(hypothesis, [reference], n)

    return changed_function


def of_a_set(score):
    return lambda hypotheses, references: score(hypotheses, [[reference] for reference in references])


def with_lists(hypothesis, reference, n):
    found = [" ".join(hypothesis[i : i + n]) for i in range(len(hypothesis) + 1 - n)]
    left = [" ".join(reference[i : i + n]) for i in range(len(reference) + 1 - n)]
    matches = 0
    for ngram in found:
        if ngram in left:
            left.remove(ngram)
            matches += 1
    return [matches, len(found)]


PRECISIONS = [5 / 6, 4 / 5, 3 / 4, 2 / 3]
FAULTS = {"A": "exchanged", "B": "averaged", "C": "right", "D": "tokenised", "E": "lower-cased"}
RIGHT = {
    "09.1": [
        (PRECISIONS, 0.7165, 54.44),
        ([Fraction(n, n + 1) for n in (5, 4, 3, 2)], math.exp(-1 / 3), 54.4448),
        (np.array(PRECISIONS), np.float32(0.7165), torch.tensor(54.4)),
    ],
    "clipped_matches": [(course.clipped_matches,), (with_lists,), (of_one(matches),)],
    "brevity_penalty": [
        (course.brevity_penalty,),
        (lambda c, r: 1 if c >= r else 0 if c == 0 else np.exp(1 - r / c),),
        (lambda c, r: (1 - r / torch.tensor(c)).clamp(max=0).exp(),),
    ],
    "corpus_bleu": [(course.corpus_bleu,), (of_a_set(corpus_bleu()),), (bleu.by_definition,)],
    "09.2": [
        (matches(),),
        (lambda *arguments: list(matches()(*arguments)),),
        (popping,),
    ],
    "09.3": [(FAULTS,), ({letter.lower(): fault.title() for letter, fault in FAULTS.items()},)],
    "09.4": [(4, 3.2), (Fraction(4), np.float32(3.2)), (torch.tensor(4), torch.tensor(3.2))],
    "09.5": [
        ("a red shirt is playing the guitar on the street . a man in",),
        (["guitar", "on", "the", "street", ".", "a", "man", "in", "a", "red", "shirt", "is", "playing", "the"],),
    ],
    "09.6": [
        (corpus_bleu(),),
        (sorting,),
    ],
    "09.7": [
        (interval(),),
        (interval(draws=400),),
        (with_global_random_numbers,),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "09.1": [
        (([1, *PRECISIONS[1:]], 0.7165, 54.44), "clip"),
        (([5 / 8, 4 / 7, 3 / 6, 2 / 5], 0.7165, 54.44), "not in the reference"),
        (([5 / 6, 4 / 5, 3 / 4, 1 / 3], 0.7165, 54.44), "p4"),
        ((PRECISIONS[:3], 0.7165, 54.44), "four precisions"),
        ((PRECISIONS, 1, 75.98), "shorter than the reference"),
        ((PRECISIONS, 1.284, 97.6), "exchanged"),
        ((PRECISIONS, 0.75, 56.99), "not c/r"),
        ((PRECISIONS, 0.8465, 64.3), "full stop of the reference"),
        ((PRECISIONS, 0.7165, 0.5444), "as a fraction"),
        ((PRECISIONS, 0.7165, 75.98), "BP is missing"),
        ((PRECISIONS, 0.7165, 54.634), "geometric one"),
        ((PRECISIONS, 0.7165, 41.37), "take its fourth root, times BP"),
        ((PRECISIONS, 0.7165, 23.88), "root of the product is missing"),
        (([83.3, 80, 75, 66.7], 0.7165, 54.44), "not in per cent"),
        (([5 / 6, 1, 3 / 4, 2 / 3], 0.7165, 54.44), "how many 2-grams"),
        (([5 / 6, "4/5", 3 / 4, 2 / 3], 0.7165, 54.44), "a number was expected"),
        ((PRECISIONS, math.exp(-1 / 4), 54.44), "c is 6 and r is 8"),
    ],
    "clipped_matches": [
        (of_one(matches, clip=lambda found, wanted: sum(n for g, n in found.items() if g in wanted)), "Clip"),
        (
            of_one(
                matches, clip=lambda found, wanted: len({*found} & {*wanted}), total=lambda found, *_: len({*found})
            ),
            "a set forgets",
        ),
        (lambda hypothesis, reference, n: with_lists(hypothesis, reference, n)[::-1], "matches come first"),
        (
            lambda hypothesis, reference, n: (with_lists(hypothesis, reference, n)[0], max(0, len(reference) + 1 - n)),
            "of the *hypothesis*",
        ),
        (of_one(matches, ngrams=without_the_last), "you count"),
        (lambda *given: with_lists(*given)[0], "two numbers"),
    ],
    "brevity_penalty": [
        (lambda c, r: min(1, math.exp(1 - c / r)), "exchanged"),
        (lambda c, r: math.exp(1 - r / c), "never above 1"),
        (lambda c, r: min(1, c / r), "not *c*/*r*"),
        (lambda c, r: 1, "too *short* is punished"),
        (lambda c, r: 0.4, "or 1 if"),
        (lambda c, r: "1", "a number was expected"),
        (lambda c, r: min(1, math.exp(1 - r / c)), "goes to 0 with *c*"),
        (lambda c, r: min(1, math.exp(1 - r / max(c, 1))), "goes to 0 with *c*"),
    ],
    "corpus_bleu": [
        (of_a_set(corpus_bleu(scale=1)), "as a fraction"),
        (of_a_set(mean_of_sentences), "mean of the sentences' BLEU"),
        (of_a_set(mean_of_precisions), "average precisions over sentences"),
        (of_a_set(corpus_bleu(mean=lambda p: sum(p) / 4)), "geometric one"),
        (of_a_set(corpus_bleu(mean=math.prod)), "exponent is 1/4"),
        (of_a_set(corpus_bleu(penalty=lambda ratio: 1)), "penalty is missing"),
        (of_a_set(penalty_of_each), "penalties of the sentences"),
        (of_a_set(with_logarithms), "no 3-gram matches"),
        (of_a_set(corpus_bleu(least=0)), "can be empty"),
        (of_a_set(corpus_bleu(mean=lambda p: math.prod(one or 1 for one in p) ** 0.25)), "BLEU is 0"),
        (lambda hypotheses, references: course.corpus_bleu(references, hypotheses), "sentences of the check's"),
    ],
    "09.2": [
        (matches(clip=lambda found, wanted: sum(n for g, n in found.items() if g in wanted)), "Clip"),
        (matches(merge=lambda counts: sum(counts, Counter())), "add up what all references have"),
        (matches(merge=lambda counts: counts[0]), "not the first one alone"),
        (best_reference, "as a whole"),
        (matches(clip=lambda found, wanted: len(set(found) & set(wanted)), total=lambda f, *_: len(f)), "*different*"),
        (matches(clip=lambda found, wanted: len(set(found) & set(wanted))), "matches of"),
        (matches(total=lambda found, tokens, order: len(tokens) - order + 1), "there are none"),
        (matches(total=lambda found, tokens, order: len(tokens)), "divide by"),
        (matches(ngrams=without_the_last), "the last n-gram"),
        (lambda *arguments: matches()(*arguments)[0], "two numbers"),
        (lambda *arguments: ("many", 3), "a number was expected"),
        (lambda *arguments: [matches()(*arguments)], "two numbers"),
        (lambda *arguments: matches()(*arguments)[::-1], "divide by"),
    ],
    "09.3": [
        ({**FAULTS, "A": "right", "C": "exchanged"}, "A is not 'right'"),
        ({**FAULTS, "B": "exchanged", "A": "averaged"}, "perfect long sentence"),
        ({**FAULTS, "B": "exchanged"}, "far too short"),
        ({**FAULTS, "D": "lower-cased", "E": "tokenised"}, "in capitals"),
        ({**FAULTS, "E": "tokenised"}, "*isn't*"),
        ({**FAULTS, "E": "smoothed"}, "one of these"),
        ({"A": "exchanged"}, "five scorers"),
        ("A", "a dictionary"),
    ],
    "09.4": [
        ((2, 3.2), "by √2 only"),
        ((math.sqrt(2), 3.2), "√n has to double"),
        ((4000, 3.2), "how many *times*"),
        ((1 / 4, 3.2), "fewer sentences say less"),
        ((3, 3.2), "By what is n multiplied"),
        ((4, 6.4), "the root of that"),
        ((4, 0.8), "wider, not narrower"),
        ((4, 1.6), "cannot say as much"),
        ((4, 2.0), "use your first answer"),
    ],
    "09.5": [
        ("a man in a red shirt is playing the guitar on the street .", "the reference itself"),
        ("street the on guitar the playing is shirt red a in man a .", "cut fewer times"),
        ("on the street a man in a red shirt is playing the guitar", "missing: `.`"),
        ("on the street a man in a red shirt is playing the guitar .", "cut fewer times"),
        ("on the street . a man in a red shirt is playing the guitar", "still says the same"),
        ("the guitar on the street . a man in a red shirt is playing", "still says the same"),
        (". a man in a red shirt is playing the guitar on the street", "still says the same"),
        ("on the street . a man in a red shirt is not playing the guitar", "too many: `not`"),
        (7, "a string was expected"),
    ],
    "09.6": [
        (corpus_bleu(scale=1), "as a fraction"),
        (mean_of_sentences, "mean of the sentences' BLEU"),
        (mean_of_precisions, "average precisions over sentences"),
        (corpus_bleu(mean=lambda p: sum(p) / 4), "geometric one"),
        (corpus_bleu(mean=math.prod), "exponent is 1/4"),
        (corpus_bleu(mean=lambda p: math.sqrt(p[0] * p[1])), "2-grams only"),
        (corpus_bleu(penalty=lambda ratio: 1), "penalty is missing"),
        (penalty_of_each, "penalties of the sentences"),
        (corpus_bleu(penalty=lambda ratio: math.exp(1 - ratio)), "never above 1"),
        (corpus_bleu(choose=lambda lengths, length: lengths[0]), "not the first one's"),
        (corpus_bleu(choose=lambda lengths, length: min(lengths)), "not the shortest"),
        (corpus_bleu(choose=lambda lengths, length: max(lengths)), "not the longest"),
        (corpus_bleu(choose=lambda lengths, length: sum(lengths) / len(lengths)), "not their mean"),
        (corpus_bleu(choose=lambda lengths, own: min(lengths, key=lambda n: (abs(n - own), -n))), "equally close"),
        (corpus_bleu(mean=lambda p: math.prod(one or 1 for one in p) ** 0.25), "no 3-gram matches in"),
        (with_logarithms, "stopped with ValueError"),
        (corpus_bleu(least=0), "stopped with ZeroDivisionError"),
        (lambda hypotheses, references: "37", "a number was expected"),
        (lambda hypotheses, references: 50.0, "with 1 reference per sentence"),
        (lambda hypotheses, references: math.nan, "this is nan"),
        (lambda hypotheses, references: corpus_bleu()(references, hypotheses), "stopped with"),
    ],
    "09.7": [
        (interval(paired=False), "*the same sentences*"),
        (interval(replace=False), "put each sentence back"),
        (interval(of=lambda a, b: a - b), "a minus b"),
        (interval(edges=(5, 95)), "2.5 % at each"),
        (interval(edges=(97.5, 2.5)), "low is above high"),
        (interval(edges=(0, 100)), "times as wide"),
        (interval(size=0.5), "times as wide"),
        (interval(of=lambda a, b: (b - a) / 100), "is that a fraction"),
        (interval(of=lambda a, b: b), "BLEU of b lies"),
        (interval(draws=1), "Draw many"),
        (of_sentences, "the sentences' differences"),
        (interval(of=lambda a, b: b - a + 2), "expected about"),
        (interval(of=lambda a, b: round(b, 1) - a), "the difference is 0 in every draw"),
        (lambda *systems: 0.01, "two numbers"),
        (lambda *systems: (math.nan, math.nan), "nan or infinity"),
        (lambda *systems: bleu.bootstrap(*systems), "stopped with"),
    ],
}
