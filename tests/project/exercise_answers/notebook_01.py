"""Answers to the exercises of notebook 01: a leak, a vocabulary, padding, one long caption, batches by token count."""

import random
from collections import Counter
from itertools import chain, cycle

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.tokenizers import WordTokenizer, spacy_tokenizer

SPECIALS = ["<unk>", "<pad>", "<sos>", "<eos>"]


def alphabetical(counts):
    return sorted(counts, key=lambda token: (-counts[token], token))


def shortest(rank=alphabetical, enough=lambda known, total, coverage: known / total >= coverage, extra=0):
    def vocabulary(sentences, coverage):
        counts = Counter(chain.from_iterable(sentences))
        kept, known = [], 0
        for token in rank(counts):
            if known and enough(known, counts.total(), coverage):
                break
            kept.append(token)
            known += counts[token]
        return SPECIALS + (kept[:extra] if extra < 0 else kept)

    return vocabulary


def adding_shares(sentences, coverage):
    counts = Counter(chain.from_iterable(sentences))
    yield from SPECIALS
    known = 0.0
    for token in alphabetical(counts):
        if known < coverage:
            yield token
        known += counts[token] / counts.total()


def one_more(sentences, coverage):
    ranked = alphabetical(Counter(chain.from_iterable(sentences)))
    return SPECIALS + ranked[: len(shortest()(sentences, coverage)) - 3]


def share_of_types(sentences, coverage):
    ranked = alphabetical(Counter(chain.from_iterable(sentences)))
    return SPECIALS + ranked[: round(coverage * len(ranked) + 0.5)]


def lower_tokens(text):
    return [token.lower() for token in spacy_tokenizer("de")(text)]


def leaking(read=lower_tokens, side=0):
    def leaks(train, test):
        seen = {tuple(read(pair[side])) for pair in train}
        return [number for number, pair in enumerate(test) if tuple(read(pair[side])) in seen]

    return leaks


def some_token_is_seen(train, test):
    seen = {token for pair in train for token in lower_tokens(pair.src)}
    return [number for number, pair in enumerate(test) if seen & set(lower_tokens(pair.src))]


def batcher(key=max, shuffle=True, mix=True, fits=lambda size, limit: size <= limit, last=True, pad=True):
    """Return a function that makes batches; each argument leaves something out."""

    def make(lengths, max_tokens, seed):
        rng = random.Random(seed)
        numbers = list(range(len(lengths)))
        if mix:
            rng.shuffle(numbers)
        if key:
            numbers.sort(key=lambda number: key(lengths[number]))
        batches, batch = [], []
        for number in numbers:
            sides = [max(lengths[each]) for each in [*batch, number]]
            if batch and not fits(len(sides) * max(sides) if pad else sum(sides), max_tokens):
                batches.append(batch)
                batch = []
            batch.append(number)
        if last:
            batches.append(batch)
        if shuffle:
            rng.shuffle(batches)
        return batches

    return make


def with_torch(lengths, max_tokens, seed):
    torch.manual_seed(seed)
    order = torch.randperm(len(lengths)).tolist()
    order.sort(key=lambda number: (lengths[number][0] // 2, lengths[number][1]))
    batches = [[]]
    for number in order:
        if max(max(lengths[each]) for each in [*batches[-1], number]) * (len(batches[-1]) + 1) > max_tokens:
            batches.append([])
        batches[-1].append(number)
    return [batches[place] for place in torch.randperm(len(batches)).tolist()]


def with_numpy(lengths, max_tokens, seed):
    np.random.seed(seed)
    lengths[:] = [max(pair) for pair in lengths]
    order = np.random.permutation(len(lengths))
    order = order[np.argsort(np.array(lengths)[order], kind="stable")]
    batches, start = [], 0
    for end in range(1, len(order) + 1):
        if end == len(order) or lengths[order[end]] * (end + 1 - start) > max_tokens:
            batches.append(order[start:end])
            start = end
    return (batches[place] for place in np.random.permutation(len(batches)))


def without_the_longest(lengths, max_tokens, seed):
    short = [number for number, pair in enumerate(lengths) if max(pair) < max_tokens]
    found = batcher(last=bool(short))([lengths[number] for number in short], max_tokens, seed)
    return [[short[place] for place in batch] for batch in found]


def not_seeded():
    seeds = iter(range(1000))
    return lambda lengths, max_tokens, seed: batcher()(lengths, max_tokens, next(seeds))


def by_lists(rows, pad_id):
    longest = max(map(len, rows))
    return torch.tensor([row + [pad_id] * (longest - len(row)) for row in rows])


def filled(rows, pad_id):
    batch = torch.full((len(rows), max(map(len, rows))), pad_id)
    for number, row in enumerate(rows):
        batch[number, : len(row)] = torch.tensor(row)
    return batch


def changing(rows, pad_id):
    longest = max(map(len, rows))
    for row in rows:
        row += [pad_id] * (longest - len(row))
    return torch.tensor(rows)


def before_eos(rows, pad_id):
    longest = max(map(len, rows))
    return torch.tensor([row[:-1] + [pad_id] * (longest - len(row)) + row[-1:] for row in rows])


RIGHT = {
    "01.1": [
        (leaking(),),
        (leaking(WordTokenizer("de").tokenize),),
        (lambda train, test: set(leaking()(train, test)),),
        (lambda *pairs: np.array(leaking()(*pairs), dtype=int),),
        (lambda *pairs: torch.tensor(leaking()(*pairs)).long(),),
    ],
    "01.2": [
        (shortest(),),
        (lambda sentences, coverage: tuple(shortest()(sentences, coverage)),),
        (adding_shares,),
    ],
    "01.3": [
        (by_lists,),
        (lambda rows, pad_id: pad_sequence([torch.tensor(row) for row in rows], True, pad_id),),
        (filled,),
        (lambda *given: by_lists(*given).int(),),
    ],
    "01.4": [
        (50, 10.7),
        (0.5, 6 / 56),
        (50.0, torch.tensor(10.71)),
        (np.float32(50), 11),
    ],
    "01.5": [
        (batcher(),),
        (batcher(key=sum),),
        (batcher(key=lambda pair: (max(pair), min(pair))),),
        (with_torch,),
        (with_numpy,),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "01.1": [
        (lambda train, test: [test.index(pair) for pair in test if pair in train], "number 1 is a leak"),
        (leaking(lambda text: [text]), "number 3"),
        (leaking(lambda text: [text.lower()]), "number 3"),
        (leaking(lambda text: text.lower().replace(" .", ".").split()), "number 6"),
        (leaking(side=1), "the German one"),
        (leaking(lambda text: lower_tokens(text.rstrip(". "))), "full stop"),
        (leaking(lambda text: sorted(lower_tokens(text))), "another order"),
        (lambda train, test: [test[number] for number in leaking()(train, test)], "neither the pairs"),
        (lambda train, test: leaking()(test, test), "*all* of it"),
        (some_token_is_seen, "*all* of it"),
        (lambda train, test: [1, 3, 6], "the list is empty"),
        (lambda train, test: 3, "a list of numbers"),
        (lambda train, test: [number + 1 for number in leaking()(train, test)], "counted from 0"),
        (lambda train, test: [number + len(train) for number in leaking()(train, test)], "counted from 0"),
        (lambda train, test: range(10**9), "far more than"),
        (lambda train, test: [number in leaking()(train, test) for number in range(len(test))], "nor True and False"),
        (lambda train, test: [[number] for number in leaking()(train, test)], "neither the pairs"),
    ],
    "01.2": [
        (share_of_types, "you count types"),
        (lambda *given: shortest()(*given)[4:], "specials are missing"),
        (lambda *given: shortest()(*given)[4:] + SPECIALS, "come first"),
        (lambda *given: SPECIALS[::-1] + shortest()(*given)[4:], "in this order"),
        (shortest(extra=-1), "only"),
        (one_more, "a shorter list"),
        (shortest(enough=lambda known, total, coverage: known / total > coverage), "a shorter list"),
        (shortest(rank=lambda counts: [token for token, _ in counts.most_common()]), "alphabetical"),
        (shortest(rank=sorted), "the most frequent"),
        (lambda sentences, coverage: [*SPECIALS, *chain.from_iterable(sentences)], "twice"),
        (lambda *given: SPECIALS + shortest()(*given), "no sentence holds"),
        (lambda sentences, coverage: set(shortest()(sentences, coverage)), "a list of tokens"),
        (lambda *given: [(token, 1) for token in shortest()(*given)], "each a string"),
        (lambda *given: [[token] for token in shortest()(*given)], "each a string"),
        (lambda *given: [*shortest()(*given), None], "each a string"),
    ],
    "01.3": [
        (lambda rows, pad_id: by_lists(rows, 0), "not with 0"),
        (lambda *given: by_lists(*given).T, "on its side"),
        (before_eos, "then padding"),
        (lambda *given: by_lists(*given).float(), "whole numbers"),
        (lambda rows, pad_id: by_lists([row[::-1] for row in rows], pad_id).flip(1), "on the left"),
        (lambda rows, pad_id: torch.tensor([row[: min(map(len, rows))] for row in rows]), "cut nothing off"),
        (lambda rows, pad_id: [row + [pad_id] * (max(map(len, rows)) - len(row)) for row in rows], "a tensor was"),
        (lambda rows, pad_id: torch.tensor(rows), "stopped with ValueError"),
        (lambda rows, pad_id: by_lists([[*row, 3] for row in rows], pad_id), "the shape is"),
        (changing, "pad copies"),
    ],
    "01.4": [
        ((55.6, 13.0), "take positions too"),
        ((100, 12), "not by the tokens"),
        ((60, 10.7), "not padding"),
        ((40, 10.7), "draw the rectangle"),
        ((50, 13.0), "in these batches too"),
        ((50, 16.7), "in a batch of its own"),
        ((50, 8.3), "Add up the positions"),
        ((50, 12), "both rectangles"),
        (("half", 10.7), "a number was expected"),
        ((50, 44.6), "two rectangles"),
        ((10.7, 50), "draw the rectangle"),
        ((50, 10**400), "far too large"),
    ],
    "01.5": [
        (batcher(key=None), "Let pairs of similar length meet"),
        (batcher(key=lambda pair: pair[0]), "Sort by both sides"),
        (batcher(shuffle=False), "in order of length"),
        (batcher(mix=False), "the same sentences meet"),
        (batcher(mix=False, shuffle=False), "in order of length"),
        (lambda lengths, max_tokens, seed: batcher()(lengths, max_tokens, 0), "another seed"),
        (not_seeded(), "the same seed"),
        (batcher(last=False), "lost when the loop ended"),
        (batcher(pad=False), "padded to the longest"),
        (batcher(fits=lambda size, limit: size <= 1.1 * limit), "are allowed"),
        (lambda lengths, max_tokens, seed: [[number] for number in range(len(lengths))], "are not full"),
        (lambda lengths, max_tokens, seed: batcher()(lengths, max(max_tokens // 2, 20), seed), "are not full"),
        (lambda lengths, max_tokens, seed: [[0], *batcher()(lengths, max_tokens, seed)], "more than one batch"),
        (lambda lengths, max_tokens, seed: [[], *batcher()(lengths, max_tokens, seed)], "is empty"),
        (lambda lengths, max_tokens, seed: list(range(len(lengths))), "a list of lists"),
        (batcher(fits=lambda size, limit: size < limit), "just max_tokens"),
        (without_the_longest, "a pair of just max_tokens fits"),
        (lambda *given: cycle(batcher()(*given)), "does not seem to end"),
        (lambda lengths, *rest: batcher()([(src, src) for src, _ in lengths], *rest), "on its larger side"),
        (lambda *given: [[number + 1 for number in batch] for batch in batcher()(*given)], "the numbers are 0 to"),
        (lambda *given: [["0"] for _ in given], "the numbers of its pairs"),
    ],
}
