"""Checks of the exercises of notebook 06: searching for a translation."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_exercises import Wrong, as_letters, as_number, call, exercise, expect, expect_number
from transformer_lib.inference.search import greedy_search
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer


@exercise("06.1")
def log_prob_of_a_translation(my_log_prob: Callable[[Transformer, Tensor, Tensor], float]) -> str:
    """``my_log_prob(model, src, tgt)``: of all tokens after ``<sos>``, given the source."""
    for seed, length in ((2, 7), (7, 4), (29, 9)):
        model, src = _tiny(seed, 1)
        tgt = torch.tensor([[2, *torch.randint(4, 9, (length,)).tolist(), 3]])
        logits, targets = model.logits_and_targets(src, tgt)
        steps = logits.log_softmax(-1).gather(2, targets[:, :, None]).flatten()
        right = steps.sum().item()
        found = as_number(call(my_log_prob, model, src.clone(), tgt.clone()))
        shifted = model(src, tgt).log_softmax(-1).gather(2, tgt[:, :, None]).sum().item()
        unshifted = logits.log_softmax(-1).gather(2, tgt[:, :-1, None]).sum().item()
        for wrong, hint in (
            (-right, "a log-probability is never positive: that is the loss, its negative."),
            (steps.mean().item(), "*add* the steps' log-probabilities; that is their mean."),
            (-steps.mean().item(), "that is the mean loss: *add* the steps' log-probabilities."),
            (steps.exp().sum().item(), "add log-probabilities, not probabilities."),
            (math.exp(right), "that is the probability. Its logarithm is asked for."),
            (right - steps[-1].item(), "the `<eos>` is written, too: it counts."),
            (shifted, "row i of the logits is about token i + 1: shift the two against each other by one."),
            (unshifted, "row i of the logits is about token i + 1: shift the two against each other by one."),
            (logits.gather(2, targets[:, :, None]).sum().item(), "these are sums of logits: a log-softmax is missing."),
        ):
            expect(not math.isclose(found, wrong, rel_tol=1e-4, abs_tol=1e-4), hint)
        expect_number(
            found,
            right,
            "give the model all tokens but the last, take the log-softmax of its logits, and pick, in each row, the "
            "entry of the token that comes next.",
        )
    return "one pass scores all steps, because the causal mask hides what each row has to predict."


@exercise("06.2")
def greedy(my_greedy: Callable[[Transformer, Tensor, int, int, int], list[list[int]]]) -> str:
    """``my_greedy(model, src, sos_id, eos_id, max_len)``: ids without ``<sos>``, to ``<eos>``, for each sentence."""
    for seed, sos_id, eos_id, max_len in ((2, 2, 3, 12), (7, 2, 3, 8), (29, 4, 5, 12)):
        model, src = _tiny(seed, 5, sos_id, eos_id)
        right = [one.ids for one in greedy_search(model, src, sos_id, eos_id, max_len)]
        rows = _count_rows(model)
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
        needed = sum(map(len, right))
        expect(
            sum(rows) <= needed,
            f"every id is right, but model.decode computed {sum(rows)} rows, and {needed} are needed: let a row leave "
            "`tgt`, the memory and its mask as soon as it has its `<eos>`.",
        )
    return "translations of one batch never influence each other, and nobody pays for a neighbour that is longer."


def _count_rows(model: Transformer) -> list[int]:
    """Make a model note the number of rows of each of its ``decode``'s calls."""
    decode, rows = model.decode, []

    def counting(tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        rows.append(len(tgt))
        return decode(tgt, memory, memory_mask)

    model.decode = counting
    return rows


def _tiny(seed: int, sentences: int, sos_id: int = 2, eos_id: int = 3) -> tuple[Transformer, Tensor]:
    """Return a model that has learned nothing, but has strong opinions, and ids of sentences of different lengths."""
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
        prefixes = [([], 0.0)] if case == 0 else [([4, i], -1.5 * (i + 1) / beam_size) for i in range(beam_size)]
        logits = 2 * torch.randn(len(prefixes), 6, generator=generator)
        logits[:, 3] += case % 4  # sometimes, <eos> is likely
        log_probs = logits.log_softmax(-1)
        candidates = [
            ([*ids, token], log_prob + step, step)
            for (ids, log_prob), row in zip(prefixes, log_probs.tolist(), strict=True)
            for token, step in enumerate(row)
        ]
        best = _sorted([(ids, log_prob) for ids, log_prob, _ in candidates])
        open_ones = [one for one in best if one[0][-1] != 3]
        right_beam, right_finished = open_ones[:beam_size], [one for one in best[:beam_size] if one[0][-1] == 3]
        given = [(list(ids), log_prob) for ids, log_prob in prefixes]
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
                "rank the candidates by the log-probability of the whole prefix, not by that of the last token.",
            )
            one_each = _sorted([next(o for o in open_ones if o[0][:-1] == ids) for ids, _ in prefixes])
            expect(
                not _match(beam, one_each) or _match(one_each, right_beam),
                "you keep one candidate of each prefix. All candidates compete: one prefix may have several.",
            )
        expect(len(beam) <= beam_size, f"the beam has {len(beam)} prefixes, more than {beam_size}.")
        expect(
            len(beam) == beam_size,
            f"the beam has {len(beam)} prefixes, expected {beam_size}: what is finished takes no place in it.",
        )
        expect(
            _match(_sorted(beam), right_beam)
            or {tuple(ids) for ids, _ in beam} != {tuple(ids) for ids, _ in right_beam},
            "the right prefixes, but not their log-probabilities: add the last step's to the prefix's.",
        )
        expect(not _match(_sorted(beam), right_beam) or _match(beam, right_beam), "the best one comes first.")
        expect(_match(beam, right_beam), "sort all candidates of all prefixes; the best that do not end go on.")
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


@exercise("06.5")
def cache_size(my_cache_size: Callable[[TransformerConfig, int, int], int]) -> str:
    """``my_cache_size(config, src_len, tgt_len)``: numbers in all layers' caches for one sentence."""
    for layers, d_model, heads, src_len, tgt_len in ((3, 256, 4, 9, 6), (2, 16, 2, 5, 11), (6, 512, 8, 40, 30)):
        config = TransformerConfig(9, 9, d_model=d_model, num_heads=heads, num_layers=layers)
        found = as_number(call(my_cache_size, config, src_len, tgt_len))
        right = 2 * layers * d_model * (src_len + tgt_len)
        for wrong, hint in (
            (right // 2, "each position has a key *and* a value."),
            (right // layers, "each layer has a cache of its own."),
            (right // d_model, "a key is not one number but d_model of them, over all heads."),
            (right * heads, "the heads share d_model: each key of a head has d_model / num_heads numbers."),
            (right // heads, "that is one head's; all of them together have d_model numbers per position."),
            (2 * layers * d_model * tgt_len, "cross-attention has keys and values, too: those of the source."),
            (2 * layers * d_model * src_len, "self-attention has keys and values, too: those of the target."),
            (2 * right, "the encoder has finished: only the decoder's layers need a cache."),
            (2 * layers * d_model * src_len * tgt_len, "keys and values belong to a position, not to pairs of them."),
        ):
            expect(found != wrong or wrong == right, hint)
        expect(
            found == right, "there are two tensors for each layer and each kind of attention: what are their shapes?"
        )
    return "in float32, that is four bytes each. A beam of 4 needs four times the target's part."


@exercise("06.6")
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
    return "one generous search is enough to know: the log-probability of a truncated translation even looks better."
