"""Checks of the exercises of notebook 06: searching for a translation, and reading an attention map."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_lib.exercises import Unsolved, Wrong, as_letters, as_number, call, exercise, expect, expect_number
from transformer_lib.inference.search import greedy_search
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer


@exercise("06.1")
def length_penalties(winners: Sequence[str], best_score: float) -> str:
    """``winners`` for alpha 0, 0.6 and 1, of A (3 words, -2.0), B (5, -2.2), C (8, -2.7); the score of the second."""
    scores = [
        {name: log_prob / ((5 + words + 1) / 6) ** alpha for name, words, log_prob in _FINISHED}
        for alpha in (0.0, 0.6, 1.0)
    ]
    right = [max(of_alpha, key=of_alpha.__getitem__) for of_alpha in scores]
    found = as_letters(winners, "ABC", "translations")
    expect(len(found) == 3, "three letters are expected: for α = 0, for α = 0.6 and for α = 1.")
    expect(found[0] == "A", "with α = 0, nothing is divided: the highest log-probability wins, the one closest to 0.")
    expect(
        found != ["A"] * 3, "you multiply by lp, or do not use it. *Divide* by it: that brings long ones closer to 0."
    )
    expect(
        found != ["A", "C", "C"], "that is dividing by the length to the power of α; the formula has (5 + length) / 6."
    )
    for alpha, letter, winner, of_alpha in zip((0.0, 0.6, 1.0), found, right, scores, strict=True):
        expect(letter == winner, f"α = {alpha:g}: it is not {letter}, whose score is {of_alpha[letter]:.3f}.")
    best_score = as_number(best_score)
    expect(
        not _near(best_score, -2.2 / (10 / 6) ** 0.6),
        "the length is that of all tokens which were written: count `<eos>`.",
    )
    expect(not _near(best_score, -2.2 * (11 / 6) ** 0.6), "divide by lp instead of multiplying by it.")
    expect(not _near(best_score, -2.2 / (11 / 6)), "that is its score with α = 1.")
    expect_number(
        best_score,
        scores[1]["B"],
        "the score is the winner's log P, divided by its lp: formula and length are in section 4.",
        2e-3,
    )
    return "the larger α, the longer what wins. It is chosen on the validation split, like the size of the beam."


_FINISHED = (("A", 3, -2.0), ("B", 5, -2.2), ("C", 8, -2.7))


def _near(found: float, wrong: float) -> bool:
    return abs(found - wrong) < 2e-3


@exercise("06.2")
def greedy(my_greedy: Callable[[Transformer, Tensor, int, int, int], list[list[int]]]) -> str:
    """``my_greedy(model, src, sos_id, eos_id, max_len)``: ids without ``<sos>``, to ``<eos>``, for each sentence."""
    for seed, sos_id, eos_id, max_len in ((2, 2, 3, 12), (7, 2, 3, 8), (29, 4, 5, 12)):
        model, src = _tiny(seed, 5, sos_id, eos_id)
        right = [one.ids for one in greedy_search(model, src, sos_id, eos_id, max_len)]
        found = _lists(call(my_greedy, model, src.clone(), sos_id, eos_id, max_len))
        expect(len(found) == len(right), f"there are {len(right)} sentences, but you return {len(found)}.")
        expect(found != [[sos_id, *ids] for ids in right], "leave out `<sos>`, which is given and not written.")
        expect(
            found != [ids[:-1] if ids[-1] == eos_id else ids for ids in right],
            "leave `<eos>` in: it tells a translation that is finished from one that was cut off.",
        )
        pairs = list(zip(found, right, strict=True))
        if all(ids[: len(wanted)] == wanted for ids, wanted in pairs) and found != right:
            expect(
                any(wanted[-1] != eos_id and ids != wanted for ids, wanted in pairs),
                "some go on behind their `<eos>`: what comes there means nothing.",
            )
        if all(wanted[: len(ids)] == ids for ids, wanted in pairs) and found != right:
            expect(
                any(len(ids) < len(wanted) < max_len for ids, wanted in pairs),
                f"they are cut off too early: max_len is {max_len} tokens, `<eos>` included and `<sos>` not.",
            )
            raise Wrong("you stop when the *first* sentence has its `<eos>`; the others need more steps.")
        expect(max(map(len, found)) <= max_len, f"nothing may have more than max_len={max_len} tokens.")
        expect(
            sorted(found) != sorted(right) or found == right,
            "the translations are right, but in another order than the sentences: remember which row is which.",
        )
        expect(
            not any({model.config.pad_id, sos_id} & set(ids) for ids in found),
            "`<pad>` and `<sos>` are never written: rule them out before you take the most probable token.",
        )
        expect(
            any(ids[:1] != wanted[:1] for ids, wanted in pairs) or found == right,
            "the first tokens are right, the later ones are not. Give the decoder all that is written so far, and read "
            "the logits of the *last* position.",
        )
        expect(found == right, "the first token is wrong: start each row with `<sos>`, and take the largest logit.")
    return "translations of one batch never influence each other, and a shorter max_len only cuts them off."


def _tiny(seed: int, sentences: int, sos_id: int = 2, eos_id: int = 3) -> tuple[Transformer, Tensor]:
    """Return a model that has learnt nothing, but has strong opinions, and ids of sentences of different lengths."""
    torch.manual_seed(seed)
    config = TransformerConfig(9, 9, d_model=16, num_heads=2, d_ff=32, num_layers=1, max_len=24)
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= 2
        model.output.bias[[config.pad_id, sos_id, eos_id]] += 1
    src = torch.randint(4, 9, (sentences, 6))
    for sentence in range(sentences):
        src[sentence, 2 + sentence % 5 :] = config.pad_id
    return model.requires_grad_(False), src


def _lists(found: Any) -> list[list[int]]:
    try:
        return [[int(i) for i in ids] for ids in found]
    except (TypeError, ValueError):
        raise Wrong("a list of lists of ids was expected, one for each sentence.") from None


@exercise("06.3")
def beam_step(my_beam_step: Callable[[list, Tensor, int, int], tuple[list, list]]) -> str:
    """``my_beam_step(beam, log_probs, eos_id, beam_size)``: the new beam, and what is finished."""
    generator = torch.Generator().manual_seed(0)
    for case in range(12):
        beam_size = 2 + case % 2
        beginnings = [([], 0.0)] if case == 0 else [([4, i], -1.5 * (i + 1) / beam_size) for i in range(beam_size)]
        logits = 2 * torch.randn(len(beginnings), 6, generator=generator)
        logits[:, 3] += case % 4  # sometimes, <eos> is likely
        log_probs = logits.log_softmax(-1)
        candidates = [
            ([*ids, token], log_prob + step, step)
            for (ids, log_prob), row in zip(beginnings, log_probs.tolist(), strict=True)
            for token, step in enumerate(row)
        ]
        best = _sorted([(ids, log_prob) for ids, log_prob, _ in candidates])
        open_ones = [one for one in best if one[0][-1] != 3]
        right_beam, right_finished = open_ones[:beam_size], [one for one in best[:beam_size] if one[0][-1] == 3]
        given = [(list(ids), log_prob) for ids, log_prob in beginnings]
        answer = call(my_beam_step, given, log_probs.clone(), 3, beam_size)
        expect(isinstance(answer, tuple | list) and len(answer) == 2, "two lists were expected: beam, finished.")
        beam, finished = (_hypotheses(some) for some in answer)
        expect(
            not _match(beam, right_finished) or not _match(finished, right_beam), "you have exchanged the two lists."
        )
        expect(not any(ids[-1:] == [3] for ids, _ in beam), "what ends in `<eos>` is finished, and leaves the beam.")
        by_last = sorted(candidates, key=lambda one: -one[2])
        last_only = [ids for ids, *_ in by_last if ids[-1] != 3][:beam_size]
        if case:
            expect(
                [ids for ids, _ in beam] != last_only or last_only == [ids for ids, _ in right_beam],
                "rank the candidates by the log-probability of the whole beginning, not by that of the last token.",
            )
            one_each = _sorted([next(o for o in open_ones if o[0][:-1] == ids) for ids, _ in beginnings])
            expect(
                not _match(beam, one_each) or _match(one_each, right_beam),
                "you keep one candidate of each beginning. All candidates compete: one beginning may have several.",
            )
        expect(len(beam) <= beam_size, f"the beam has {len(beam)} beginnings, more than {beam_size}.")
        expect(
            len(beam) == beam_size,
            f"the beam has {len(beam)} beginnings, expected {beam_size}: what is finished takes no place in it.",
        )
        expect(
            _match(_sorted(beam), right_beam)
            or {tuple(ids) for ids, _ in beam} != {tuple(ids) for ids, _ in right_beam},
            "the right beginnings, but not their log-probabilities: add the last step's to the beginning's.",
        )
        expect(not _match(_sorted(beam), right_beam) or _match(beam, right_beam), "the best one comes first.")
        expect(_match(beam, right_beam), "sort all candidates of all beginnings; the best that do not end go on.")
        everything = [one for one in best if one[0][-1] == 3]
        expect(
            not _match(_sorted(finished), everything) or everything == right_finished,
            "only a candidate among the best `beam_size` can finish; others that end in `<eos>` are too improbable.",
        )
        wider = [one for one in best[: 2 * beam_size] if one[0][-1] == 3]
        expect(
            not _match(_sorted(finished), wider) or wider == right_finished,
            "finished is what ends among the best `beam_size` candidates, not among twice as many.",
        )
        expect(
            _match(_sorted(finished), right_finished), "finished are those of the best `beam_size` that end in `<eos>`."
        )
    return "on tensors, that is one `topk` over all rows and tokens: `index // vocab_size` is the row it came from."


def _sorted(hypotheses: list) -> list:
    return sorted(hypotheses, key=lambda one: -one[1])


def _match(found: list, right: list) -> bool:
    return len(found) == len(right) and all(
        list(ids) == list(wanted) and math.isclose(log_prob, expected, abs_tol=1e-4)
        for (ids, log_prob), (wanted, expected) in zip(found, right, strict=True)
    )


def _hypotheses(found: Any) -> list[tuple[list[int], float]]:
    try:
        return [([int(i) for i in ids], float(log_prob)) for ids, log_prob in found]
    except (TypeError, ValueError):
        raise Wrong("each list holds pairs, such as ([4, 7], -1.25): ids and a log-probability.") from None


@exercise("06.4")
def read_maps(heads: Mapping[str, str], alignment: str) -> str:
    """``heads``: what each of four does; ``alignment``: of the one that writes, in the Pharaoh format."""
    kinds = {"writes", "reads", "order", "nothing"}
    expect(isinstance(heads, Mapping), "heads is a dictionary, from a letter to what that head does.")
    if any(kind is None or kind is ... for kind in heads.values()):
        raise Unsolved
    found = {str(letter).strip().upper(): str(kind).strip().lower() for letter, kind in heads.items()}
    expect(set(found) == set("ABCD"), "there are four heads: A, B, C and D.")
    expect(set(found.values()) <= kinds, f"each head does one of these: {', '.join(sorted(kinds))}.")
    expect(found["B"] == "nothing", "one head looks at the same places whatever is written. Which?")
    expect(
        found["D"] == "order", "one head moves on from left to right with every step, whatever the words mean. Which?"
    )
    expect(
        (found["A"], found["C"]) != ("writes", "reads"),
        "you have exchanged two. In the step that reads *a* and writes *dog*, where does each head look?",
    )
    expect((found["A"], found["C"]) == ("reads", "writes"), "A and C follow the words: which one is a step late?")
    links = _links(alignment)
    for wrong, hint in (
        ({(i + 1, j) for i, j in _GOLD}, "the first source *word* is 0: `<sos>` does not count."),
        ({(i + 1, j + 1) for i, j in _GOLD}, "words are counted from 0, and `<sos>` does not count."),
        ({(i, j + 1) for i, j in _GOLD}, "the first target *word* is 0: `<sos>` does not count."),
        ({(j, i) for i, j in _GOLD}, "the source word comes first, then the target word."),
        (_GOLD | {(7, 9)}, "`<eos>` is no word: it has no link."),
        (_GOLD | {(8, 9)}, "`<eos>` is no word: it has no link."),
    ):
        expect(links != wrong, hint)
    if missing := _GOLD - links:
        word = min(j for _, j in missing)
        raise Wrong(
            f"target word {word}, *{_ENGLISH[word]}*, is linked with the word that head C looks at in that row."
        )
    expect(links == _GOLD, "there is a link too many: each target word has one.")
    return "A aligns as well as C, one step later: labelled with the wrong rows, a good head looks bad."


_ENGLISH = ("a", "dog", "is", "playing", "in", "the", "garden", "today", ".")
_GOLD = {(2, 0), (3, 1), (1, 2), (1, 3), (4, 4), (4, 5), (5, 6), (0, 7), (6, 8)}


def _links(text: Any) -> set[tuple[int, int]]:
    try:
        pairs = text.split() if isinstance(text, str) else text
        split = [pair.split("-") if isinstance(pair, str) else pair for pair in pairs]
        return {(int(i), int(j)) for i, j in split}
    except (TypeError, ValueError):
        raise Wrong("the alignment is a string such as '0-0 1-2', of source and target words counted from 0.") from None


@exercise("06.5")
def shortest_limit(my_shortest_limit: Callable[[Transformer, Tensor, int, int, float], int]) -> str:
    """``my_shortest_limit(model, src, sos_id, eos_id, share)``: the least max_len for so many finished sentences."""
    for seed, sos_id, eos_id, share in ((27, 4, 5, 0.625), (7, 2, 3, 0.5), (7, 2, 3, 0.75), (1, 2, 3, 0.625)):
        model, src = _tiny(seed, 16, sos_id, eos_id)
        written = [one.ids for one in greedy_search(model, src, sos_id, eos_id)]
        lengths = sorted(len(ids) if ids[-1] == eos_id else 10**6 for ids in written)
        enough = math.ceil(share * len(lengths))
        right = lengths[enough - 1]
        found = as_number(call(my_shortest_limit, model, src.clone(), sos_id, eos_id, share))
        finished = sum(length <= found for length in lengths) / len(lengths)
        expect(found != right - 1, f"with max_len={found:g}, the `<eos>` of some has no room: it counts as a token.")
        longest = max(map(len, written))
        expect(found != longest or right == longest, "that is the longest of all, also of those that never finish.")
        expect(
            found != lengths[enough] or found == right,
            f"that is one sentence more than needed: in a sorted list, number {enough} is the one after the first "
            f"{enough}.",
        )
        expect(
            found != max(n for n in lengths if n < 10**6) or found == right, "that is room for all that ever finish."
        )
        expect(
            found >= right,
            f"with max_len={found:g}, only {finished:.1%} of the sentences finish, and {share:.1%} should; the others "
            "are cut off.",
        )
        expect(found == right, f"max_len={found:g} is enough, but {right} would do. (`<sos>` does not count.)")
    return "one generous search is enough to know: the log-probability of what is cut off even looks better."
