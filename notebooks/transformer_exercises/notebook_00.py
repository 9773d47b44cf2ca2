"""Checks of the exercises of notebook 00: what a model reads, an attention map, BLEU by hand, a weakness."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from transformer_exercises import (
    Wrong,
    as_letters,
    as_list,
    as_number,
    call,
    exercise,
    expect,
    expect_number,
    question,
)
from transformer_lib.inference.translator import Translator

question(
    "00.a",
    right="nonsense",
    replies={
        "a good translation": "the words are everyday German, but a model knows only what it has read, and it has read "
        "captions. Nobody calls back in a photo.",
        "a fluent sentence about something else": "larger models do this, and it is the more dangerous mistake. This "
        "one has read too little to be fluent about anything but photos.",
        "nonsense": "nearly everything here is rare in captions: a promise, the future, being called. So it has "
        "little to go by, word after word.",
    },
)

question(
    "00.b",
    right="hebt",
    replies={
        "hebt": "it carries the verb's stem, and whether the man picks something up or does something else to it "
        "could be read off its vector alone: the encoder has let it look at auf already.",
        "auf": "auf makes lifting into picking up, so a person would need it. But the encoder may have carried it "
        "over to the vector of hebt before the decoder looks.",
        "both alike": "a head can split its weight, and you know both halves to be one verb. The model was only told "
        "to get the next word right, and one place is enough for that.",
    },
)


@exercise("00.1")
def the_same_to_the_model(my_letters: Iterable[str]) -> str:
    """``my_letters``: the sentences, among five, that the model cannot tell from the one with *Roboter*."""
    found = as_letters(my_letters, "ABCDE", "sentences")
    expect("B" not in found, "the model knows *Ball*: it has an id of its own.")
    expect("D" not in found, "in D, something is missing at the end, and it is a token like any other.")
    expect("E" not in found, "E has the same tokens in another order, and the model sees the order.")
    expect("A" in found, "capital letters and spaces are gone before anything gets an id.")
    expect("C" in found, "which id does a word get that the vocabulary does not hold?")
    return "of both, `der mann hebt den <unk> auf .` is left. What reads the same is translated the same."


@exercise("00.2")
def links(my_links: Callable[[Tensor, list[str], list[str]], Sequence[Sequence[str]]]) -> str:
    """``my_links(weights, src_tokens, tgt_tokens)``: the source token that each target token looks at most."""
    generator = torch.Generator().manual_seed(0)
    for heads, rows, columns in ((4, 6, 5), (3, 4, 7)):
        weights = (3 * torch.randn(heads, rows, columns, generator=generator)).softmax(dim=-1)
        src_tokens = [f"german{number}" for number in range(columns)]
        tgt_tokens = [f"english{number}" for number in range(rows)]

        def right(map_of_all: Tensor, src: list[str] = src_tokens, tgt: list[str] = tgt_tokens) -> list[tuple]:
            return [(token, src[place]) for token, place in zip(tgt, map_of_all.argmax(dim=-1).tolist(), strict=True)]

        found = call(my_links, weights.clone(), list(src_tokens), list(tgt_tokens))
        try:
            pairs = [tuple(pair) for pair in found]
        except TypeError:
            raise Wrong("a list of pairs was expected, such as [('a', 'ein'), ('dog', 'hund')].") from None
        expect(
            all(len(pair) == 2 for pair in pairs),
            "each entry should be a pair of tokens, the English one and the German one.",
        )
        expect(
            all(isinstance(token, str) for pair in pairs for token in pair),
            "the pairs should hold the tokens themselves, not their places.",
        )
        expect(pairs != [pair[::-1] for pair in right(weights.mean(0))], "put the English token first in each pair.")
        expect(len(pairs) == rows, f"there are {rows} English tokens, a row for each, but {len(pairs)} pairs.")
        for head in range(heads):
            expect(pairs != right(weights[head]), "that is what one head looks at. Take the average of all heads.")
        expect(
            pairs != right(weights.amax(0)), "that is the largest weight of any head. Take the average of all heads."
        )
        expect(pairs != right(-weights.mean(0)), "that is where they look least.")
        expect(
            pairs == right(weights.mean(0)),
            "take the average over the heads, the first axis; then, in each row, the place of the largest number.",
        )
    return "try it on other sentences. The average of the heads is a rough map of which word translates which."


@exercise("00.3")
def bleu_by_hand(my_shares: Sequence[float], my_mean: float) -> str:
    """``my_shares``: of runs of one to four tokens that the reference has too; ``my_mean``: their geometric mean."""
    my_shares = as_list(my_shares)
    expect(isinstance(my_shares, list | tuple) and len(my_shares) == 4, "my_shares should be a list of four numbers.")
    shares = [as_number(share) for share in my_shares]
    expect(max(shares) <= 1, "a share is at most 1: write 0.25 or 1 / 4, not 25.")
    kinds = ("tokens", "runs of two", "runs of three", "runs of four")
    matches, runs = (7, 5, 3, 1), (8, 7, 6, 5)
    for kind, found, matching, count in zip(kinds, shares, matches, runs, strict=True):
        expect(abs(found - matching / 8) > 1e-3 or count == 8, f"{kind}: eight tokens have fewer than eight of them.")
        expect(
            abs(found - matching / (count + 1)) > 1e-3,
            f"{kind}: divide by how many the *translation* has, not the reference, which is one token longer.",
        )
        expect_number(found, matching / count, f"{kind}: write all of them down, and underline those that match.", 2e-3)
    mean = as_number(my_mean)
    mistakes = {
        sum(shares) / 4: "that is the usual mean. A geometric mean multiplies.",
        1 / 16: "that is the product of the four. Now the fourth root.",
        1 / 4: "that is the square root of the product. Of four numbers, it is the fourth root.",
        50: "BLEU is written as 50, but the mean of four shares is a share.",
        math.exp(1 - 9 / 8) / 2: "that is lowered for the missing token already. The mean alone is asked for.",
    }
    for wrong, hint in mistakes.items():
        expect(abs(mean - wrong) > 2e-3, hint)
    expect_number(mean, 0.5, "multiply the four shares, and take the fourth root.", 2e-3)
    return "one wrong word, and half is gone: it spoils all runs of four but one. For the missing token, BLEU is 44.1."


@exercise("00.4")
def a_weakness(my_sentence: str, my_changed: str, my_lost: str) -> str:
    """Two German sentences one word apart, and the English for the change, which the shipped model does not write."""
    for text in (my_sentence, my_changed, my_lost):
        expect(
            isinstance(text, str) and re.search(r"\w", text),
            "three strings were expected: two sentences, and English words.",
        )
    before, after = _words(my_sentence), _words(my_changed)
    expect(
        before != after, "the two sentences are the same to the model: capital letters and spaces make no difference."
    )
    expect(
        _one_word_apart(before, after),
        "change one word only, and its article if need be, so that you know what made the difference.",
    )
    lost = _words(my_lost)
    expect(
        not set(lost) & (set(after) - set(before)),
        f"{my_lost!r} is in the German sentence. Write what it should be in English, and choose a word that is not "
        "the same in both languages.",
    )
    first, second = (call(_shipped(), sentence) for sentence in (my_sentence, my_changed))
    expect(
        not _holds(_words(second), lost),
        f"the model passes: it writes {second!r} Try what no photo shows, or what few people photograph.",
    )
    for ending in ("s", "es"):
        expect(
            not _holds(_words(second), [*lost[:-1], lost[-1] + ending]),
            f"it does come out, in another form: {second!r}",
        )
    expect(
        not _holds(_words(first), lost),
        f"the model writes {my_lost!r} for the first sentence. Write what the *second* one should bring in.",
    )
    return "a pair like this is a test case. The score of a whole test set would hardly have moved."


@lru_cache
def _shipped() -> Translator:
    return Translator.load()


_ARTICLE = re.compile("d(er|ie|as|en|em|es)|k?ein(e|en|em|er|es)?|dies(er|e|es|en|em)")


def _words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+|[^\w\s]", text.lower())


def _one_word_apart(before: list[str], after: list[str]) -> bool:
    """Whether one word was changed, and its article if need be; or where words came or went, at most two in a row."""
    if len(before) == len(after):
        others = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        return len(others) <= 1 or (len(others) == 2 and any(all(map(_ARTICLE.fullmatch, pair)) for pair in others))
    shorter = min(len(before), len(after))
    same = next((place for place in range(shorter) if before[place] != after[place]), shorter)
    rests = before[same:], after[same:]
    while all(rests) and rests[0][-1] == rests[1][-1]:
        rests = rests[0][:-1], rests[1][:-1]
    return max(map(len, rests)) <= 2


def _holds(words: list[str], run: list[str]) -> bool:
    return any(words[place : place + len(run)] == run for place in range(len(words)))
