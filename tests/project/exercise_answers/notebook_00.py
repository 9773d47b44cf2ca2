"""Answers to the exercises of notebook 00: what a model reads, an attention map, BLEU by hand, a weakness."""

from fractions import Fraction

import numpy as np
import torch


def links(join=lambda weights: weights.mean(0), pick=torch.argmax):
    def linked(weights, src_tokens, tgt_tokens):
        places = pick(join(weights), dim=-1).tolist()
        return [(token, src_tokens[place]) for token, place in zip(tgt_tokens, places, strict=True)]

    return linked


def by_loops(weights, src_tokens, tgt_tokens):
    found = []
    for row, token in enumerate(tgt_tokens):
        looked_at = [sum(head[row][column].item() for head in weights) for column in range(len(src_tokens))]
        found.append([token, src_tokens[looked_at.index(max(looked_at))]])
    return found


def columns_first(weights, src_tokens, tgt_tokens):
    places = weights.mean(0).argmax(dim=0).tolist()
    return [(tgt_tokens[place], token) for place, token in zip(places, src_tokens, strict=True)]


def places(weights, src_tokens, tgt_tokens):
    return list(enumerate(weights.mean(0).argmax(dim=-1).tolist()))


def adding_in_place(weights, src_tokens, tgt_tokens):
    for head in weights[1:]:
        weights[0] += head
    yield from links(lambda sums: sums[0])(weights, src_tokens, tgt_tokens)


def most_votes(weights, src_tokens, tgt_tokens):
    return list(zip(tgt_tokens, [src_tokens[i] for i in weights.argmax(-1).mode(dim=0).values], strict=True))


RIGHT_SHARES = [7 / 8, 5 / 7, 3 / 6, 1 / 5]
READS = "Ein Mann liest ein Buch."

RIGHT = {
    "00.1": [
        (["A", "C"],),
        ({"C", "A"},),
        ("AC",),
        ("a, c",),
        (np.array(["A", "C"]),),
    ],
    "00.2": [
        (links(),),
        (links(lambda weights: weights.sum(0)),),
        (by_loops,),
        (adding_in_place,),
    ],
    "00.3": [
        (RIGHT_SHARES, 0.5),
        ([Fraction(7, 8), Fraction(5, 7), Fraction(1, 2), Fraction(1, 5)], Fraction(1, 2)),
        ((0.875, 0.714, 0.5, 0.2), torch.tensor(0.5)),
        (torch.tensor(RIGHT_SHARES), np.float32(0.5)),
    ],
    "00.4": [
        (READS, "Ein Mann liest kein Buch.", "no"),
        ("Ein Hund schläft.", "Ein Hund schläft nicht.", "not"),
        ("Ein Hund schläft.", "Ein Nilpferd schläft.", "hippo"),
        ("Der große Hund schläft.", "Das große Nilpferd schläft.", "hippo"),
        ("Eine Frau füttert eine Katze.", "Eine Frau füttert einen Pinguin.", "a penguin"),
        ("Ein Mädchen hält eine Zeitung.", "Ein Mädchen hält eine Schere.", "scissors"),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "00.1": [
        (["A"], "does not hold"),
        (["C"], "capital letters"),
        (["A", "B", "C"], "Ball"),
        (["A", "C", "D"], "at the end"),
        (["A", "C", "E"], "another order"),
        (["F"], "called A, B, C, D and E"),
        (2, "a list of letters"),
        ([], "capital letters"),
        ("A and C", "called A, B, C, D and E"),
        (["A", None], "called A, B, C, D and E"),
    ],
    "00.2": [
        (links(lambda weights: weights[0]), "what one head looks at"),
        (links(lambda weights: weights.amax(0)), "the largest weight of any head"),
        (links(pick=torch.argmin), "look least"),
        (columns_first, "a row for each"),
        (places, "not their places"),
        (lambda *given: [pair[::-1] for pair in links()(*given)], "English token first"),
        (lambda *given: [token for _, token in links()(*given)], "a pair of tokens"),
        (lambda *given: [], "but 0 pairs"),
        (lambda *given: 3, "a list of pairs"),
        (lambda weights, src, tgt: links()(weights, tgt, src), "stopped with"),
        (most_votes, "the average over the heads"),
        (lambda weights, src, tgt: dict(links()(weights, src, tgt)), "a pair of tokens"),
    ],
    "00.3": [
        (([7 / 9, 5 / 8, 3 / 7, 1 / 6], 0.43), "not the reference"),
        (([7 / 8, 5 / 8, 3 / 8, 1 / 8], 0.38), "fewer than eight"),
        (([87.5, 71.4, 50, 20], 50), "at most 1"),
        ((RIGHT_SHARES, sum(RIGHT_SHARES) / 4), "the usual mean"),
        ((RIGHT_SHARES, 1 / 16), "fourth root"),
        ((RIGHT_SHARES, 0.25), "square root"),
        ((RIGHT_SHARES, 50), "is a share"),
        ((RIGHT_SHARES, 0.441), "lowered"),
        ((RIGHT_SHARES, 0.419), "multiply the four shares"),
        (([7 / 8, 6 / 7, 3 / 6, 1 / 5], 0.5), "runs of two"),
        ((0.5, 0.5), "a list of four"),
        ((RIGHT_SHARES, 10**400), "far too large"),
        ((RIGHT_SHARES, [0.5, 0.5]), "a number was expected"),
        (([7 / 8, 5 / 7, 3 / 6, "1/5"], 0.5), "a number was expected"),
    ],
    "00.4": [
        ((READS, "Ein Mann liest eine Zeitung.", "newspaper"), "the model passes"),
        ((READS, "Zwei Frauen lesen keine Bücher.", "no"), "one word only"),
        (("Ein Hund schläft.", "Ein Nilpferd tanzt.", "hippo"), "one word only"),
        ((READS, "ein mann  liest ein buch.", "book"), "are the same"),
        (("Ein Hund schläft.", "Eine Katze schläft.", "katze"), "in English"),
        (("Ein Mann sieht einen Hund.", "Ein Mann sieht Hunde.", "dog"), "in another form"),
        (("Ein Hund schläft.", "Eine Katze schläft.", "dog"), "the *second* one"),
        ((READS, "Ein Mann liest " + "l" * 1001 + " Buch.", "no"), "stopped with ValueError"),
        ((READS, 3, "no"), "three strings"),
        (("Ein Hund schläft.", "Ein Hamster schläft.", "hamster"), "the same in both languages"),
    ],
}
