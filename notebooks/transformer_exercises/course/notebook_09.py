"""What stands in for the BLEU of notebook 09: two steps on the way to the library's, and the library's."""

import math
from collections import Counter

from transformer_lib.inference.bleu import by_definition


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
    return by_definition(hypotheses, references)
