"""Checks of the exercises of notebook 07: searching for a translation."""

import math
import operator
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_exercises import (
    Unsolved,
    Wrong,
    as_letters,
    as_number,
    call,
    close,
    diagnose,
    exercise,
    expect,
    expect_any_device,
    expect_number,
    question,
)
from transformer_exercises.course.notebook_07 import beam_batch
from transformer_lib.inference.kv_cache import CachedDecoder
from transformer_lib.inference.search import beam_search, greedy_search
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer

question(
    "07.a",
    right="the dog: greedy search misses it",
    replies={
        "a dog: greedy search writes it": "it takes the best word at each step, and ends there. But multiply: is "
        "0.6 × 0.4 more than 0.4 × 0.9?",
        "the dog: greedy search writes it": "the dog is the most probable, with 0.36. But it begins with the less "
        "probable word, and greedy search never takes that.",
        "the dog: greedy search misses it": "0.4 × 0.9 = 0.36. Greedy search begins with a, for 0.6, and "
        "gets to 0.24 at best: it does not look ahead.",
    },
)

question(
    "07.b",
    right="long ones",
    replies={
        "long ones": "lp grows with the length, and a negative number divided by more comes closer to 0. A higher "
        "score is better, so long translations gain.",
        "short ones": "that would be so if scores were positive. Try it with log P = −4, and lp = 1 or lp = 2.",
        "neither: all are divided by the same": "α is the same for all, but lp depends on the length.",
    },
)

question(
    "07.c",
    right="at least as probable and no longer",
    replies={
        "at least as probable and no longer": "a wider beam finds what a narrow one cuts. What else it finds is "
        "often short, since each token costs: more probable does not mean better.",
        "more probable and longer": "it does find more, but each further token lowers the probability. What wins "
        "without a length penalty is rather short.",
        "less probable: ten share the work": "each of the ten prefixes is extended by all tokens, so more is looked "
        "at. A single sentence can lose by it, but hardly the mean.",
    },
)

question(
    "07.d",
    right="much less",
    replies={
        "about that": "it would be so if all time went into positions. But each step has a fixed price: Python, and "
        "the launch of each operation.",
        "much less": "each step has a fixed price, whatever it computes, and a machine does twenty positions at once "
        "almost as fast as one. At thousands of tokens, the clock comes closer to the cells.",
        "even more": "reading and appending keys and values takes time as well, so the cache saves less than it "
        "counts.",
    },
)


@exercise("07.1")
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


NextLogProbs = Callable[[Tensor, Tensor, Tensor], Tensor]


def _next_log_probs(
    model: Transformer, sos_id: int, max_len: int, sentences: int = 1
) -> tuple[NextLogProbs, list[int]]:
    """Return what a search asks, for a model, and a list that grows by the number of rows of each question."""
    rows: list[int] = []

    def next_log_probs(tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        expect(
            isinstance(tgt, Tensor) and tgt.dim() == 2 and tgt.dtype == torch.long,
            "`next_log_probs` takes `tgt` as a tensor of ids, [rows, length].",
        )
        expect((tgt[:, 0] == sos_id).all(), "each row of `tgt` starts with `<sos>`.")
        expect(
            tgt.shape[1] <= max_len, f"you ask for token number {tgt.shape[1]} of a translation, but max_len={max_len}."
        )
        expect(len(rows) < 20 * max_len * sentences, "your search asks again and again, and does not end.")
        expect(
            memory.dim() == 3 and memory_mask.dim() == 4,
            f"the memory has the shape {list(memory.shape)}, expected [rows, src_len, d_model], and its mask one axis "
            "more: `memory[s]` loses the first axis, `memory[s : s + 1]` keeps it.",
        )
        sizes = len(tgt), len(memory), len(memory_mask)
        expect(
            len(set(sizes)) == 1,
            f"`tgt` has {sizes[0]} rows, the memory {sizes[1]} and its mask {sizes[2]}: each row of `tgt` "
            "needs a row of the memory and one of its mask. Where rows leave, or are copied, these follow.",
        )
        rows.append(len(tgt))
        logits = model.decode(tgt, memory, memory_mask)[:, -1]
        logits[:, [model.config.pad_id, sos_id]] = -math.inf
        return logits.log_softmax(-1)

    return next_log_probs, rows


def _expect_any_device(search: Callable[..., Any], *more: int) -> None:
    """Raise ``Wrong`` if a search makes a tensor on the CPU, wherever the memory is, until it first reads a number."""

    def next_log_probs(tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        return F.embedding(tgt[:, -1], torch.zeros(9, 9, device=memory.device))

    memory, memory_mask = torch.zeros(1, 4, 8), torch.ones(1, 1, 1, 4, dtype=torch.bool)
    expect_any_device("Say `device=memory.device`.", search, next_log_probs, memory, memory_mask, 2, 3, *more)


@exercise("greedy")
def greedy_search_of_one(greedy: Callable[..., tuple[list[int], float]]) -> str:
    """``greedy(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len)``: ids without ``<sos>``, log P."""
    for seed, sos_id, eos_id, max_len in ((2, 2, 3, 12), (7, 2, 3, 8), (29, 4, 5, 12)):
        model, src = _tiny(seed, 5, sos_id, eos_id)
        for sentence in src.split(1):
            right = greedy_search(model, sentence, sos_id, eos_id, max_len)[0]
            next_log_probs, _ = _next_log_probs(model, sos_id, max_len)
            answer = _returned(greedy, next_log_probs, *model.encode(sentence), sos_id, eos_id, max_len)
            pair = isinstance(answer, tuple | list) and len(answer) == 2
            expect(pair, "a pair was expected: ids, and the log-probability of them all.")
            if answer[0] == []:
                raise Unsolved
            (ids,), total = _lists([answer[0]]), as_number(answer[1])
            expect(ids != [sos_id, *right.ids], "leave out `<sos>`, which is given and not written.")
            finished = right.ids[-1] == eos_id
            expect(ids != right.ids[:-1] or not finished, "leave `<eos>` in: it is written, and it counts.")
            expect(
                ids != right.ids[:-1],
                f"max_len={max_len} tokens may be written; `<sos>` is not one of them, `<eos>` is.",
            )
            expect(
                len(ids) == 1 or ids[:1] != right.ids[:1] or ids == right.ids,
                "the first token is right, a later one is not: ask with all that is written so far.",
            )
            expect(ids == right.ids, "take the most probable token at each step, until it is `<eos>`.")
            expect(
                total <= 0 or right.log_prob == 0, "a log-probability is never above 0: *add* the steps' as they are."
            )
            mean = right.log_prob / len(ids)
            expect(abs(total - mean) > 1e-4 or len(ids) == 1, "add the steps' log-probabilities; that is their mean.")
            expect_number(total, right.log_prob, "the log-probability of the whole is the sum of the steps'.", 1e-3)
    _expect_any_device(greedy)
    return "that is the library's greedy search, token by token."


@exercise("greedy_batch")
def greedy_search_of_many(greedy_batch: Callable[..., list[list[int]]]) -> str:
    """``greedy_batch(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len)``: ids of each sentence."""
    for seed, sos_id, eos_id, max_len in ((2, 2, 3, 12), (7, 2, 3, 8), (29, 4, 5, 12)):
        model, src = _tiny(seed, 5, sos_id, eos_id)
        right = [one.ids for one in greedy_search(model, src, sos_id, eos_id, max_len)]
        next_log_probs, rows = _next_log_probs(model, sos_id, max_len)
        found = _lists(_returned(greedy_batch, next_log_probs, *model.encode(src), sos_id, eos_id, max_len))
        expect(len(found) == len(right), f"there are {len(right)} sentences, but you return {len(found)}.")
        expect(found != [[sos_id, *ids] for ids in right], "leave out `<sos>`, which is given and not written.")
        expect(
            found != [ids[:-1] if ids[-1] == eos_id else ids for ids in right],
            "leave `<eos>` in: it tells a translation that is finished from one that was cut off.",
        )
        pairs = list(zip(found, right, strict=True))
        if all(ids[: len(wanted)] == wanted for ids, wanted in pairs) and found != right:
            raise Wrong("some go on behind their `<eos>`: what comes there means nothing.")
        if all(wanted[: len(ids)] == ids for ids, wanted in pairs) and found != right:
            expect(
                any(len(ids) < len(wanted) < max_len for ids, wanted in pairs),
                f"they are cut off too early: max_len is {max_len} tokens, `<eos>` included and `<sos>` not.",
            )
            raise Wrong("you stop when the *first* sentence has its `<eos>`; the others need more steps.")
        expect(
            sorted(found) != sorted(right) or found == right,
            "the translations are right, but in another order than the sentences: remember which row is which.",
        )
        expect(
            any(ids[:1] != wanted[:1] for ids, wanted in pairs) or found == right,
            "the first tokens are right, the later ones are not. Do `tgt`, memory and mask lose the same rows, and do "
            "you ask with all that is written so far?",
        )
        expect(found == right, "the first token is wrong: take the most probable one of each row.")
        needed = sum(map(len, right))
        expect(
            sum(rows) <= needed,
            f"every id is right, but {sum(rows)} rows were computed, and {needed} are needed: let a row leave `tgt`, "
            "the memory and its mask as soon as it has its `<eos>`.",
        )
    _expect_any_device(greedy_batch)
    return "translations of one batch never influence each other, and nobody pays for a neighbour that is longer."


def _tiny(seed: int, sentences: int, sos_id: int = 2, eos_id: int = 3, pad_id: int = 1) -> tuple[Transformer, Tensor]:
    """Return a model that has learned nothing, but has strong opinions, and ids of sentences of different lengths."""
    torch.manual_seed(seed)
    config = TransformerConfig(9, 9, d_model=16, num_heads=2, d_ff=32, num_layers=1, max_len=24, pad_id=pad_id)
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


def _returned(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a reader's function as ``call`` does, but leave a generator what it is: later cells want a list."""
    (found,) = call(lambda *given: [function(*given)], *arguments)
    if found is None or found is ...:
        raise Unsolved
    return found


def _lists(found: Any) -> list[list[int]]:
    """Return lists of ids. Later cells compare lists, and would not take a tensor or a tuple for one."""
    hint = "a list of lists of ids was expected, one for each sentence"
    if not isinstance(found, list):
        raise Wrong(f"{hint}; yours is a {type(found).__name__}.")
    for ids in found:
        if not isinstance(ids, list):
            raise Wrong(f"{hint}; yours holds a {type(ids).__name__}. Of a tensor, `.tolist()` makes a list.")
    try:
        return [[operator.index(i) for i in ids] for ids in found]
    except (TypeError, ValueError):
        raise Wrong(f"{hint}, and an id is a whole number.") from None


_BEAMS = (  # seed, <sos>, <eos>, beam size, max_len, α
    (2, 2, 3, 2, 12, 0.0),
    (3, 2, 3, 2, 5, 0.0),  # where nothing ends
    (7, 2, 3, 3, 8, 0.6),
    (29, 4, 5, 2, 12, 0.6),
    (1, 2, 3, 3, 6, 0.0),
    (2, 2, 3, 9, 3, 0.0),  # as wide as the vocabulary
    (11, 2, 3, 3, 12, 0.0),  # where what ends leaves gaps
)
_NOTHING = torch.zeros(2, 1)  # the memory of two sentences, for a language that needs no source: that of section 2
_TOY_WORDS = ["<sos>", "<eos>", "a", "the", "dog", "cat", "pet"]
_TOY_SENTENCES = {"a dog": 0.24, "a cat": 0.21, "a pet": 0.15, "the dog": 0.36, "the cat": 0.04}


def _toy_ids(sentence: str) -> list[int]:
    return [*map(_TOY_WORDS.index, sentence.split()), 1]


def _toy(tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
    """Answer from the sentences that begin with a prefix; where none does, with ``<eos>``."""
    answers = torch.zeros(len(tgt), len(_TOY_WORDS))
    for answer, (_, *ids) in zip(answers, tgt.tolist(), strict=True):
        for whole, p in ((_toy_ids(sentence), p) for sentence, p in _TOY_SENTENCES.items()):
            if whole[: len(ids)] == ids and len(ids) < len(whole):
                answer[whole[len(ids)]] += p
        if not answer.any():
            answer[1] = 1.0
    return (answers / answers.sum(dim=1, keepdim=True)).log()


SCORE = "a score: log-probability of all tokens, `<eos>` included, by `lp(length)`."


def _log_prob(model: Transformer, src: Tensor, ids: list[int], sos_id: int) -> float:
    """Return the log-probability of a translation, where ``<pad>`` and ``<sos>`` are impossible."""
    logits = model(src, torch.tensor([[sos_id, *ids[:-1]]]))[0]
    logits[:, [model.config.pad_id, sos_id]] = -math.inf
    return logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum().item()


_MISTAKES = {  # what goes wrong in a beam for one sentence, and what is said of it
    "last": "that ranks candidates by their last token: add the log-probability of the prefix.",
    "each": "each prefix keeps its own best. All candidates compete, in one list: a prefix may have several, or none.",
    "full": "what ends leaves a gap in your beam. Fill it: the new prefixes are the best {beam_size} that do not end.",
    "short": "of a prefix's best {beam_size} tokens, one may be `<eos>`, which does not go on: look at one more.",
    "deep": "what ends below the best {beam_size} candidates is put aside, too. Only those above count.",
    "undivided": "your search stops too early: `lp(length)` divides the score of what is finished, so divide the "
    "log-probability of what is open by it, too, before you compare.",
    "first": "your search stops too early: go on until {beam_size} are finished *and* no prefix is ahead of the best "
    "of them.",
    "late": "your search goes on too long: stop as soon as {beam_size} are finished and no prefix is ahead of the best "
    "of them.",
}


def _with_a_mistake(
    mistake: str,
    next_log_probs: NextLogProbs,
    memory: Tensor,
    memory_mask: Tensor,
    sos_id: int,
    eos_id: int,
    beam_size: int,
    max_len: int,
    lp: Callable[[int], float],
) -> list[list[int]]:
    """Return the ids that a beam for one sentence finds with one of ``_MISTAKES``, the best first."""
    prefixes: list[tuple[float, list[int]]] = [(0.0, [sos_id])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, max_len + 1):
        same = [0] * len(prefixes)
        step = next_log_probs(torch.tensor([ids for _, ids in prefixes]), memory[same], memory_mask[same])
        offered = beam_size if mistake == "short" else beam_size + 1
        if mistake == "each" and length > 1:
            offered = 1
        candidates = []
        for (log_prob, ids), best, tokens in zip(prefixes, *step.topk(min(offered, step.shape[1])), strict=True):
            before = 0.0 if mistake == "last" else log_prob
            candidates += [
                (before + more, [*ids, token])
                for more, token in zip(best.tolist(), tokens.tolist(), strict=True)
                if more > -math.inf
            ]
        candidates.sort(reverse=True)
        for log_prob, ids in candidates if mistake == "deep" and length < max_len else candidates[:beam_size]:
            if ids[-1] == eos_id or length == max_len:
                finished.append((log_prob / lp(length), ids[1:]))
        prefixes = candidates[:beam_size] if mistake == "full" else candidates
        prefixes = [one for one in prefixes if one[1][-1] != eos_id][:beam_size]
        enough = len(finished) >= beam_size
        by = 1.0 if mistake == "undivided" else lp(length)
        ahead = enough and bool(prefixes) and max(finished)[0] < prefixes[0][0] / by
        if not prefixes or (enough and mistake != "late" and (mistake == "first" or not ahead)):
            break
    return [ids for _, ids in sorted(finished, reverse=True)[:beam_size]]


@exercise("beam_one")
def beam_search_of_one(beam_one: Callable[..., list[tuple[float, list[int]]]]) -> str:
    """``beam_one(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len, lp)``: score and ids."""
    by_hand = [[_toy_ids(sentence), p] for sentence, p in sorted(_TOY_SENTENCES.items(), key=lambda one: -one[1])]
    toy = _found_by_one(beam_one, _toy, _NOTHING[:1], _NOTHING[:1], 0, 1, 2, 6)
    if not toy:
        raise Unsolved
    for seed, sos_id, eos_id, beam_size, max_len, alpha in _BEAMS:
        model, src = _tiny(seed, 5, sos_id, eos_id)

        def lp(length: int, alpha: float = alpha) -> float:
            return ((5 + length) / 6) ** alpha

        settings = sos_id, eos_id, beam_size, max_len, lp
        rows = [(_next_log_probs(model, sos_id, max_len)[0], *model.encode(row)) for row in src.split(1)]
        found = [_found_by_one(beam_one, *row, *settings) for row in rows]
        hypotheses = beam_search(model, src, sos_id, eos_id, beam_size, alpha, max_len)
        found_ids, right = [[ids for _, ids in pairs] for pairs in found], [[one.ids for one in h] for h in hypotheses]
        ended = [[ids for ids in many if ids[-1] == eos_id] for many in right]
        expect(
            all(found) and (found_ids != ended or ended == right),
            f"what has not ended after max_len={max_len} tokens is lost: keep the best beam_size as they are.",
        )
        everything = [ids for many in found_ids for ids in many]
        expect(not any(ids[:1] == [sos_id] for ids in everything), "leave out `<sos>`, which is given and not written.")
        without = [[ids[:-1] if ids[-1] == eos_id else ids for ids in many] for many in right]
        expect(found_ids != without or without == right, "leave `<eos>` in: it is written, and it counts.")
        expect(
            not any(eos_id in ids[:-1] for ids in everything),
            "some go on behind their `<eos>`: what is finished leaves the beam.",
        )
        expect(all(sorted(pairs, reverse=True) == pairs for pairs in found), "the best comes first.")
        greedy = [one.ids for one in greedy_search(model, src, sos_id, eos_id, max_len)]
        expect(
            not all(ids == one for many, one in zip(found_ids, greedy, strict=True) for ids in many),
            f"that is greedy search: the beam goes on with the best {beam_size} prefixes, not with one.",
        )
        for mistake, hint in _MISTAKES.items() if found_ids != right else ():
            wrong = [_with_a_mistake(mistake, *row, *settings) for row in rows]
            expect(found_ids != wrong, hint.format(beam_size=beam_size))
        expect(
            all(len(many) == beam_size for many in found_ids),
            f"return the {beam_size} best that are finished, as many as the beam is wide.",
        )
        for row, pairs in zip(src.split(1), found, strict=True):
            for score, ids in pairs:
                expect(abs(score - _log_prob(model, row, ids, sos_id) / lp(len(ids))) < 1e-3, SCORE)
        expect(found_ids == right, "others are better: in each step, the best candidates of *all* prefixes go on.")
    for beam_size in (len(_TOY_WORDS), len(_TOY_WORDS) + 1):
        found = _found_by_one(beam_one, _toy, _NOTHING[:1], _NOTHING[:1], 0, 1, beam_size, 6)
        expect(
            [[ids, round(math.exp(score), 4)] for score, ids in found] == by_hand,
            f"the toy has five sentences, and a beam of {beam_size} finds these and no others: what is impossible, "
            "with a log-probability of -inf, is no candidate.",
        )
    _expect_any_device(beam_one, 2)
    return "that is the library's beam search, for one sentence, and nothing is lost at max_len."


def _found_by_one(search: Callable[..., Any], *arguments: Any) -> list[tuple[float, list[int]]]:
    """Return what a beam search of one sentence finds: pairs of score and ids."""
    hint = "a list of pairs was expected, the best first, such as [(-1.25, [4, 7, 3])]: score and ids."
    return _as_pairs([_returned(search, *arguments)], hint)[0]


@exercise("beam")
def beam_search_of_many(beam: Callable[..., list[list[tuple[float, list[int]]]]]) -> str:
    """``beam(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len, lp)``: pairs of score and ids."""
    for seed, sos_id, eos_id, *settings in _BEAMS:
        model, src = _tiny(seed, 5, sos_id, eos_id)
        found = _beams(beam, model, src, sos_id, eos_id, *settings)
        beam_size, max_len, alpha = settings
        hypotheses = beam_search(model, src, sos_id, eos_id, beam_size, alpha, max_len)
        right = [[(one.score, one.ids) for one in many] for many in hypotheses]
        expect(len(found) == len(right), f"there are {len(right)} sentences, but you return {len(found)}.")
        found_ids, right_ids = ([[ids for _, ids in pairs] for pairs in some] for some in (found, right))
        greedy = [one.ids for one in greedy_search(model, src, sos_id, eos_id, max_len)]
        one_by_one = all(many and all(ids == one for ids in many) for many, one in zip(found_ids, greedy, strict=True))
        expect(
            not one_by_one, f"that is greedy search: the beam goes on with the best {beam_size} prefixes, not with one."
        )
        ended = [[ids for ids in many if ids[-1] == eos_id] for many in right_ids]
        expect(
            found_ids != ended or found_ids == right_ids,
            f"what has not ended after max_len={max_len} tokens is lost: keep the best beam_size as they are.",
        )
        everything = [ids for many in found_ids for ids in many]
        expect(not any(ids[:1] == [sos_id] for ids in everything), "leave out `<sos>`, which is given and not written.")
        expect(
            not any(eos_id in ids[:-1] for ids in everything),
            "some go on behind their `<eos>`: what is finished leaves the beam.",
        )
        expect(
            all(len(ids) == beam_size for ids in found_ids),
            f"return the {beam_size} best translations of each sentence, as many as the beam is wide.",
        )
        expect(
            [sorted(pairs, reverse=True) for pairs in found] == found,
            "of each sentence's translations, the best comes first.",
        )
        expect(
            sorted(found_ids) != sorted(right_ids) or found_ids == right_ids,
            "the translations are right, but in another order than the sentences: remember which row is which.",
        )
        if found_ids != right_ids:
            expect(
                found_ids != right_ids[:1] * len(right_ids),
                "all are translations of the first sentence: each needs its own row of the memory and the mask.",
            )
            alone = [_beams(beam, model, row, sos_id, eos_id, *settings)[0] for row in src.split(1)]
            expect(
                [[ids for _, ids in pairs] for pairs in alone] != right_ids,
                "each sentence alone is right; in a batch, they get mixed up: which rows belong to which sentence?",
            )
            for row, many in zip(src.split(1), found, strict=True):
                for score, ids in many:
                    log_prob, penalty = _log_prob(model, row, ids, sos_id), ((5 + len(ids)) / 6) ** alpha
                    expect(abs(score - log_prob) > 1e-3 or abs(log_prob / penalty - log_prob) < 1e-3, SCORE)
            raise Wrong(
                "others are better: each new token continues the prefix of its row, `tgt[rows]`, and its memory."
            )
        scores, right_scores = (
            torch.tensor([[score for score, _ in pairs] for pairs in some]) for some in (found, right)
        )
        expect(close(scores, right_scores, 1e-3), SCORE)
    by_hand = [[_toy_ids(sentence), p] for sentence, p in sorted(_TOY_SENTENCES.items(), key=lambda one: -one[1])]
    for beam_size in (len(_TOY_WORDS), len(_TOY_WORDS) + 1):
        (found,) = _pairs(beam, _toy, _NOTHING[:1], _NOTHING[:1], 0, 1, beam_size, 6)
        expect(
            [[ids, round(math.exp(score), 4)] for score, ids in found] == by_hand,
            f"the toy has five sentences, and a beam of {beam_size} finds these and no others: what is impossible, "
            "with a log-probability of -inf, is not finished.",
        )
    _expect_any_device(beam, 2)
    return "every sentence of the batch has its own beam, and the library finds the same."


def _beams(
    search: Callable[..., Any],
    model: Transformer,
    src: Tensor,
    sos_id: int,
    eos_id: int,
    beam_size: int,
    max_len: int,
    alpha: float,
) -> list[list[tuple[float, list[int]]]]:
    """Return what a beam search finds, pairs of score and ids."""
    next_log_probs, _ = _next_log_probs(model, sos_id, max_len, len(src))

    def lp(length: int) -> float:
        return ((5 + length) / 6) ** alpha

    return _pairs(search, next_log_probs, *model.encode(src), sos_id, eos_id, beam_size, max_len, lp)


def _pairs(search: Callable[..., Any], *arguments: Any) -> list[list[tuple[float, list[int]]]]:
    """Return what a beam search finds, pairs of score and ids."""
    hint = "for each sentence, a list of pairs was expected, such as (-1.25, [4, 7, 3]): score and ids."
    return _as_pairs(_returned(search, *arguments), hint)


def _as_pairs(found: Any, hint: str) -> list[list[tuple[float, list[int]]]]:
    try:
        expect(isinstance(found, list) and all(isinstance(pairs, list) for pairs in found), hint)
        scores = [[score for score, _ in pairs] for pairs in found]
        ids = [_lists([ids for _, ids in pairs]) for pairs in found]
    except (TypeError, ValueError):
        raise Wrong(hint) from None
    number = all(isinstance(score, Real) for of_one in scores for score in of_one)
    expect(number, "a score is a number, and no tensor: `.item()`.")
    return [[*zip(map(float, some), many, strict=True)] for some, many in zip(scores, ids, strict=True)]


@exercise("my_beam")
def blank_page(my_beam: Callable[..., list[list[int]]]) -> str:
    """``my_beam(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len)``: the best ids of each."""
    for seed, sos_id, eos_id, beam_size, max_len, _ in _BEAMS:
        model, src = _tiny(seed, 5, sos_id, eos_id)

        def answer(src: Tensor, settings: tuple = (sos_id, eos_id, beam_size, max_len), model: Transformer = model):
            next_log_probs, rows = _next_log_probs(model, settings[0], settings[3])
            return _lists(_returned(my_beam, next_log_probs, *model.encode(src), *settings)), len(rows)

        found, asked = answer(src)
        right = [many[0].ids for many in beam_search(model, src, sos_id, eos_id, beam_size, 0.0, max_len)]
        expect(len(found) == len(right), f"there are {len(right)} sentences, but you return {len(found)}.")
        expect(found != [[sos_id, *ids] for ids in right], "leave out `<sos>`, which is given and not written.")
        without = [ids[:-1] if ids[-1] == eos_id else ids for ids in right]
        expect(found != without or found == right, "leave `<eos>` in: it is written, and it counts.")
        expect(all(found), f"what has not ended after max_len={max_len} tokens is lost: it counts as it is.")
        greedy = [one.ids for one in greedy_search(model, src, sos_id, eos_id, max_len)]
        expect(found != greedy or found == right, f"that is greedy search: the beam holds {beam_size} prefixes.")
        if found != right:
            expect(
                [answer(row)[0][0] for row in src.split(1)] != right,
                "each sentence alone is right; in a batch, they get mixed up: which rows belong to which sentence?",
            )
            raise Wrong(
                "other translations win. Rank whole prefixes; of the best beam_size, what ends is put aside, and the "
                "best of the rest go on, until none of them is more probable than the best that has ended."
            )
        expect(asked <= max_len, f"right, but you ask {asked} times: ask once a step, about all sentences.")
    for beam_size in (2, len(_TOY_WORDS), len(_TOY_WORDS) + 1):
        found = _lists(_returned(my_beam, _toy, _NOTHING, _NOTHING, 0, 1, beam_size, 6))
        best = max(_TOY_SENTENCES, key=_TOY_SENTENCES.__getitem__)
        expect(found == [_toy_ids(best)] * 2, f"of the toy's five sentences, a beam of {beam_size} finds *{best}*.")
    _expect_any_device(my_beam, 2)
    return "beam search on a blank page, and every id is the library's."


class _Watched(CachedDecoder):
    """The library's cache, which says what is wrong where rows and cache do not match."""

    def step(self, newest: Tensor) -> Tensor:
        expect(
            isinstance(newest, Tensor) and newest.dim() == 2 and newest.dtype == torch.long and newest.shape[1] == 1,
            "`decoder.step` takes the newest token of each row, [rows, 1]: the others went through it before.",
        )
        expect(self.length < self.model.config.max_len, "your search asks again and again, and does not end.")
        rows = len(self.layers[0].self_attn.keys) if self.length else len(self.memory_mask)
        expect(
            len(newest) == rows,
            f"`decoder.step` is given {len(newest)} rows, and the cache holds {rows}: where rows leave, or are copied, "
            "the cache's do. `decoder.select`.",
        )
        return super().step(newest)


class _OnAnyDevice:
    """Answers like a decoder with a cache, wherever its mask is."""

    def __init__(self, memory_mask: Tensor):
        self.memory_mask = memory_mask

    def step(self, newest: Tensor) -> Tensor:
        return F.embedding(newest, torch.zeros(9, 9, device=self.memory_mask.device))

    def select(self, rows: Tensor, sentences: Tensor) -> None:
        pass


@exercise("my_cached_beam")
def blank_page_with_a_cache(my_cached_beam: Callable[..., list[list[int]]]) -> str:
    """``my_cached_beam(decoder, pad_id, sos_id, eos_id, beam_size, max_len)``: the best ids of each sentence."""
    for seed, sos_id, eos_id, beam_size, max_len, pad_id in (
        (2, 2, 3, 1, 12, 1),
        (2, 2, 3, 3, 12, 1),
        (7, 2, 3, 2, 9, 0),
        (29, 4, 5, 4, 12, 0),
    ):
        model, src = _tiny(seed, 5, sos_id, eos_id, pad_id)
        model.output.bias[eos_id] -= 3  # long translations: two tokens would forgive a cache that has lost its rows
        model.output.bias[[pad_id, sos_id]] += 4  # whoever does not rule them out writes them

        def answer(src: Tensor, settings: tuple = (pad_id, sos_id, eos_id, beam_size, max_len), model: Any = model):
            return _lists(_returned(my_cached_beam, _Watched(model, *model.encode(src)), *settings))

        found = answer(src)
        several = beam_search(model, src, sos_id, eos_id, beam_size, 0.0, max_len, use_cache=False)
        right = [many[0].ids for many in several]
        expect(len(found) == len(right), f"there are {len(right)} sentences, but you return {len(found)}.")
        expect(found != [[sos_id, *ids] for ids in right], "leave out `<sos>`, which is given and not written.")
        expect(
            not any({pad_id, sos_id} & {*ids} for ids in found), "`<pad>` and `<sos>` are never written: rule them out."
        )
        if found != right and beam_size == 1:
            raise Wrong("even with a beam of 1, the ids are not those of `my_beam`. Which sentences go on?")
        if found != right:
            expect(
                [answer(row)[0] for row in src.split(1)] != right,
                "each sentence alone is right; in a batch, they get mixed up: which rows belong to which sentence?",
            )
            raise Wrong(
                "other translations win than without a cache. A new row continues some row of this step, and that "
                "one's keys and values are what it needs: `decoder.select(rows, …)`, the same rows as in `tgt[rows]`."
            )
    mask = torch.ones(1, 1, 1, 4, dtype=torch.bool)
    remedy = "Say `device=decoder.memory_mask.device`."
    expect_any_device(remedy, lambda mask: my_cached_beam(_OnAnyDevice(mask), 1, 2, 3, 2), mask)
    return "every id is that of the search without a cache: the cache follows its rows."


@exercise("07.2")
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


@exercise("07.3")
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


@exercise("07.4")
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


# The patient: how its signs would differ from those of the other four

FAULTS = {
    "one beam": "all sentences of the batch share one beam",
    "first row": "each row is counted from its sentence's first row, which is not added",
    "repeat": "from the second step on, memory and mask are in the order 0 1 0 1, but tgt in the order 0 0 1 1",
    "mask": "the memory follows its row, but the mask stays where it was",
    "order": "translations are returned in the order in which they end",
}
_SIGNS = {
    "one beam": "next_log_probs would be asked about beam_size rows, however many sentences there are",
    "first row": "a beam of 1 would go wrong in a batch, too",
    "mask": "sentences of equally many tokens, which have no padding, would come out right, with a beam of 2 as well",
    "order": "each translation would be in the list, beside the wrong sentence, with a beam of 1 as well",
}


def patient(
    next_log_probs: NextLogProbs,
    memory: Tensor,
    memory_mask: Tensor,
    sos_id: int,
    eos_id: int,
    beam_size: int,
    max_len: int = 50,
    lp: Callable[[int], float] = lambda length: 1.0,
) -> list[list[tuple[float, list[int]]]]:
    """Search with a beam as notebook 07's ``beam`` does, but for one fault. Find it by what it does."""

    def asked(tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        width = 1 if tgt.shape[1] == 1 else beam_size
        memory, memory_mask = memory[::width], memory_mask[::width]  # one row a sentence
        return next_log_probs(tgt, memory.repeat(width, 1, 1), memory_mask.repeat(width, 1, 1, 1))

    return beam_batch(asked, memory, memory_mask, sos_id, eos_id, beam_size, max_len, lp)


@exercise("07.5")
def diagnosis(fault: str) -> str:
    """``fault``: what ails ``patient``, as it is called in ``FAULTS``."""
    diagnose(fault, "repeat", FAULTS, _SIGNS)
    return "it has `memory.repeat(beam_size, 1, 1)` where `repeat_interleave(beam_size, dim=0)` belongs."
