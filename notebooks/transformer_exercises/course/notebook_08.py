"""BLEU, as notebook 08 writes it."""

import math
from collections import Counter


def ngrams(tokens, n):
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def clipped_matches(hypothesis, reference, n):
    found, wanted = Counter(ngrams(hypothesis, n)), Counter(ngrams(reference, n))
    return (found & wanted).total(), found.total()  # & keeps the smaller of two counts, which clips


def brevity_penalty(c, r):
    if c >= r:
        return 1.0  # what is too long is punished by its precisions
    return math.exp(1 - r / c) if c else 0.0  # c is 0 where nothing was written


def corpus_bleu(hypotheses, references):
    product = 1.0
    for n in range(1, 5):
        counts = [clipped_matches(*pair, n) for pair in zip(hypotheses, references, strict=True)]
        matches, total = map(sum, zip(*counts, strict=True))  # over all sentences, before the one division
        product *= matches / max(total, 1)  # 1 where all sentences are too short to have an n-gram
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * brevity_penalty(c, r) * product ** (1 / 4)  # the fourth root: a geometric mean
