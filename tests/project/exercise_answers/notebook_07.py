"""Answers to the exercises of notebook 07: searching for a translation."""

import inspect
import math
import re

import numpy as np
import torch
from exercise_answers import worked
from transformer_exercises.course import notebook_07 as stand_ins

from transformer_lib.inference.search import greedy_search

course = worked.notebook("07")


def on_the_cpu(function):
    """Return one of the course's functions without what it says of the device."""
    names = dict(vars(course))
    exec(re.sub(r", device=\w+\.device", "", inspect.getsource(function)), names)
    return names[function.__name__]


SELECT = "decoder.select(rows, going_on.nonzero().flatten())"


def cached(of="", to="", change=lambda found, sos_id: found):
    """Return the course's search with a cache, with one thing changed."""
    names, source = dict(vars(course)), inspect.getsource(course.my_cached_beam)
    assert of in source
    exec(source.replace(of, to) if of else source, names)
    search = names["my_cached_beam"]
    return lambda decoder, pad_id, sos_id, *rest: change(search(decoder, pad_id, sos_id, *rest), sos_id)


STOP = "len(finished) >= beam_size and max(finished)[0] >= prefixes[0][0] / lp(length)"


def of_one(*texts, change=lambda found: found):
    """Return the course's beam for one sentence, with some pieces of text changed: old, new, old, new …"""
    names, source = dict(vars(course)), inspect.getsource(course.beam_one)
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    exec(source, names)
    return lambda *given: change(names["beam_one"](*given))


def prefix_by_prefix(next_log_probs, memory, memory_mask, *rest):
    """Ask about each prefix by itself."""

    def ask(tgt, memory, memory_mask):
        given = zip(tgt.split(1), memory.split(1), memory_mask.split(1), strict=True)
        return torch.cat([next_log_probs(*one) for one in given])

    return course.beam_one(ask, memory, memory_mask, *rest)


def for_each_sentence(rows=lambda x: x.split(1), searched=course.beam_one, change=lambda found: found):
    """Return a search that goes from sentence to sentence, with one thing changed."""

    def search(next_log_probs, memory, memory_mask, *rest):
        sentences = zip(rows(memory), rows(memory_mask), strict=True)
        return change([searched(next_log_probs, *one, *rest) for one in sentences])

    return search


def cached_by_hand(decoder, pad_id, sos_id, eos_id, beam_size, max_len=50):
    """Ask the notebook's ``beam`` what it wants to know next, and let the cache follow what it asks."""
    mask, known = decoder.memory_mask, []
    memory = torch.arange(len(mask), device=mask.device)[:, None]  # in its place, each sentence's number

    def next_log_probs(tgt, memory, memory_mask):
        if known:
            before, owners = known[-1]
            rows = [
                next(i for i, ids in enumerate(before) if ids == one[:-1] and owners[i] == owner)
                for one, owner in zip(tgt.tolist(), memory[:, 0].tolist(), strict=True)
            ]
            order = sorted(set(owners))
            left = [order.index(owner) for owner in sorted({*memory[:, 0].tolist()})]
            decoder.select(torch.tensor(rows), torch.tensor(left))
        known.append((tgt.tolist(), memory[:, 0].tolist()))
        logits = decoder.step(tgt[:, -1:])[:, -1]
        logits[:, [pad_id, sos_id]] = -math.inf
        return logits.log_softmax(dim=-1)

    return [
        pairs[0][1]
        for pairs in stand_ins.beam_batch(next_log_probs, memory, memory, sos_id, eos_id, beam_size, max_len)
    ]


def one(
    first=None, given=lambda ids: ids, room=0, pick=torch.argmax, add=lambda steps: sum(steps), change=lambda ids: ids
):
    """Return a greedy search for one sentence, with one thing changed."""

    def search(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len=50):
        ids, steps = [sos_id if first is None else first], []
        while ids[-1] != eos_id and len(ids) <= max_len + room:
            tgt = torch.tensor([given(ids)], device=memory.device)
            log_probs = next_log_probs(tgt, memory, memory_mask)[0]
            ids.append(pick(log_probs).item())
            steps.append(log_probs[ids[-1]].item())
        return change(ids[1:]), add(steps)

    return search


def with_tensors(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len=50):
    tgt, total = torch.tensor([[sos_id]]).to(memory.device), 0
    for _ in range(max_len):
        step = next_log_probs(tgt, memory, memory_mask).topk(1)
        tgt, total = torch.cat([tgt, step.indices], dim=1), total + step.values[0, 0]
        if step.indices == eos_id:
            break
    return tgt[0, 1:].tolist(), total


def forever(next_log_probs, memory, memory_mask, sos_id, *rest):
    while True:
        next_log_probs(torch.full((len(memory), 1), sos_id), memory, memory_mask)


def many(change=lambda found, sos_id, eos_id, max_len: found, **changed):
    """Return a greedy search that goes from sentence to sentence, and changes what it has found."""

    def search(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len=50):
        given = zip(memory.split(1), memory_mask.split(1), strict=True)
        found = [one(**changed)(next_log_probs, *row, sos_id, eos_id, max_len)[0] for row in given]
        return change(found, sos_id, eos_id, max_len)

    return search


def until_the_first_is_done(found, sos_id, eos_id, max_len):
    return [ids[: min(map(len, found))] for ids in found]


def everybody_stays(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len=50):
    tgt = torch.full((len(memory), 1), sos_id)
    for _ in range(max_len):
        token = next_log_probs(tgt, memory, memory_mask).argmax(dim=-1, keepdim=True)
        tgt = torch.cat([tgt, token], dim=1)
    return [ids[: ids.index(eos_id) + 1] if eos_id in ids else ids for ids in tgt[:, 1:].tolist()]


def rows_leave(follows=True, start=None):
    def search(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len=50):
        tgt = torch.full((len(memory), 1), sos_id, device=memory.device)
        left, found = list(range(len(memory))), [None] * len(memory)
        for _ in range(max_len):
            token = next_log_probs(tgt, memory, memory_mask).max(dim=-1).indices
            tgt = torch.hstack([tgt, token[:, None]])
            for sentence, ids in zip(left, tgt[:, 1:].tolist(), strict=True):
                found[sentence] = ids
            rows = (token != eos_id).nonzero().flatten()
            left, tgt = [left[row] for row in rows], tgt[rows]
            if follows is True:
                memory, memory_mask = memory[rows], memory_mask[rows]
            elif follows == "from the top":
                memory, memory_mask = memory[: len(rows)], memory_mask[: len(rows)]
            if not left:
                break
        return found

    return search


def beam_step(log_probs, step, beam_size):
    best, index = (log_probs[:, :, None] + step).flatten(1).topk(min(2 * beam_size, step[0].numel()))
    first = torch.arange(len(step), device=step.device)[:, None] * step.shape[1]
    return best, first + index // step.shape[-1], index % step.shape[-1]


def beam(
    ended=lambda token, eos_id, last: (token == eos_id) | last,
    masked=lambda best, ends: best.masked_fill(ends, -math.inf),
    prefixes=lambda tgt, rows, beam_size: tgt[rows],
    memory_of=lambda memory, rows, beam_size: memory[rows],
    leave=True,
    scored=lambda log_prob, length, lp: log_prob / lp(length),
    result=lambda pairs, beam_size: sorted(pairs, reverse=True)[:beam_size],
    whole=lambda found: found,
    first_row=True,
    possible=lambda best: best > -math.inf,
):
    """Return a batched beam search, with one thing changed."""

    def search(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50, lp=lambda length: 1.0):
        left = torch.arange(len(memory)).to(memory.device)
        tgt, log_probs = torch.full_like(left[:, None], sos_id), memory.new_zeros(len(memory), 1)
        finished, answers = [[] for _ in left], {}
        for length in range(1, max_len + 1):
            step = next_log_probs(tgt, memory, memory_mask).unflatten(0, log_probs.shape)
            best, rows, token = beam_step(log_probs, step, beam_size)
            if not first_row:
                rows = rows % log_probs.shape[1]
            ends = ended(token, eos_id, length == max_len)
            for s, j in (ends & possible(best))[:, :beam_size].nonzero().tolist():
                ids = torch.cat([tgt[rows[s, j], 1:], token[s, j, None]]).tolist()
                finished[left[s]].append((scored(best[s, j].item(), length, lp), ids))
            log_probs, chosen = masked(best, ends).topk(min(beam_size, best.shape[1]))
            rows, token = rows.gather(1, chosen), token.gather(1, chosen)
            stays = []
            for s, open_score in zip(left.tolist(), (log_probs[:, 0] / lp(length)).tolist(), strict=True):
                stays.append(len(finished[s]) < beam_size or max(finished[s])[0] < open_score)
                if not stays[-1]:
                    answers.setdefault(s, list(finished[s]))
            stays = torch.tensor(stays) if leave else torch.ones(len(left), dtype=torch.bool)
            left, log_probs, rows, token = left[stays], log_probs[stays], rows[stays].flatten(), token[stays].flatten()
            tgt = torch.cat([prefixes(tgt, rows, beam_size), token[:, None]], dim=1)
            memory, memory_mask = memory_of(memory, rows, beam_size), memory_of(memory_mask, rows, beam_size)
            if not len(left):
                break
        return whole([result(answers.get(s, pairs), beam_size) for s, pairs in enumerate(finished)])

    return search


def by_hand(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50, lp=lambda length: 1.0):
    """Search sentence by sentence, with lists; a beam of one sentence asks for its prefixes alone."""
    answer = []
    for row, row_mask in zip(memory, memory_mask, strict=True):
        prefixes, finished = [(0.0, [])], []
        while prefixes:
            tgt = torch.tensor([[sos_id, *ids] for _, ids in prefixes], device=row.device)
            asked = next_log_probs(
                tgt, row.expand(len(tgt), *row.shape), row_mask.expand(len(tgt), *row_mask.shape)
            ).tolist()
            length = tgt.shape[1]
            candidates = [
                (log_prob + step, [*ids, token])
                for (log_prob, ids), steps in zip(prefixes, asked, strict=True)
                for token, step in enumerate(steps)
            ]
            candidates = sorted((one for one in candidates if one[0] > -math.inf), reverse=True)
            for log_prob, ids in candidates[:beam_size]:
                if ids[-1] == eos_id or length == max_len:
                    finished.append((log_prob / lp(length), ids))
            prefixes = [one for one in candidates if one[1][-1] != eos_id][:beam_size] if length < max_len else []
            if prefixes and len(finished) >= beam_size and max(finished)[0] >= prefixes[0][0] / lp(length):
                break
        answer.append([[score, ids] for score, ids in sorted(finished, reverse=True)[:beam_size]])
    return answer


def blank(of=None, change=lambda found, sos_id, eos_id: found):
    """Return a search that keeps the best translation of each sentence, with one thing changed."""

    def search(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50):
        found = (of or beam())(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len)
        return change([max(pairs)[1] if pairs else [] for pairs in found], sos_id, eos_id)

    return search


def from_the_beam(*given):
    return [pairs[0][1] for pairs in stand_ins.beam_batch(*given)]


def greedy_of(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50):
    return rows_leave()(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len)


def too_wide_for_a_toy(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50):
    found = blank()(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len)
    return [[4, 1]] * len(found) if memory.dim() == 2 else found


def in_a_tensor(log_prob, length, lp):
    return torch.tensor([log_prob / lp(length)])


def limit(pick, unfinished=10**6, beside=0):
    def shortest(model, src, sos_id, eos_id, share):
        found = greedy_search(model, src, sos_id, eos_id)
        lengths = [len(one.ids) if one.ids[-1] == eos_id else unfinished or len(one.ids) for one in found]
        return pick(sorted(lengths), share) + beside

    return shortest


def quantile(lengths, share):
    return lengths[math.ceil(share * len(lengths)) - 1]


def by_trying(model, src, sos_id, eos_id, share):
    for max_len in range(1, model.config.max_len + 1):
        found = greedy_search(model, src, sos_id, eos_id, max_len)
        if sum(one.ids[-1] == eos_id for one in found) >= share * len(found):
            return max_len


def total(pick=lambda steps: steps.sum(), shift=1, logits=False, model_first=True):
    """Return a function that scores a translation, with one thing changed."""

    def log_prob(model, src, tgt):
        found = model(src, tgt[:, :-1] if model_first else tgt)
        steps = found if logits else found.log_softmax(dim=-1)
        wanted = tgt[:, shift:][:, : steps.shape[1]]
        return pick(steps[:, : wanted.shape[1]].gather(2, wanted[:, :, None])[0, :, 0])

    return log_prob


RIGHT = {
    "07.1": [(total(),), (lambda *given: total()(*given).item(),), (lambda *given: np.float64(total()(*given)),)],
    "07.2": [
        (["A", "B", "C"], -1.529),
        ("abc", -2.2 / (11 / 6) ** 0.6),
        ("A, B, C", np.float32(-1.529)),
        (np.array(["a", "b", "c"]), torch.tensor(-1.53)),
    ],
    "greedy": [(course.greedy,), (one(),), (with_tensors,)],
    "greedy_batch": [
        (course.greedy_batch,),
        (rows_leave(),),
        (many(),),
        (lambda *given: [list(np.array(ids)) for ids in many()(*given)],),
    ],
    "beam_one": [
        (course.beam_one,),
        (lambda *given: by_hand(*given)[0],),
        (prefix_by_prefix,),
        (lambda *given: stand_ins.beam_batch(*given)[0],),
    ],
    "beam": [
        (course.beam,),
        (stand_ins.beam_batch,),
        (beam(),),
        (beam(leave=False),),
        (by_hand,),
        (for_each_sentence(searched=prefix_by_prefix),),
    ],
    "my_beam": [(course.my_beam,), (blank(),), (from_the_beam,)],
    "my_cached_beam": [(course.my_cached_beam,), (cached_by_hand,)],
    "07.3": [
        (lambda config, src_len, tgt_len: 2 * config.num_layers * config.d_model * (src_len + tgt_len),),
        (lambda config, *lengths: torch.tensor(2 * config.num_layers * config.d_model * sum(lengths)),),
    ],
    "07.4": [
        (limit(quantile),),
        (by_trying,),
        (lambda *given: np.float64(by_trying(*given)),),
        (lambda *given: torch.tensor(by_trying(*given)),),
    ],
    "07.5": [("repeat",), (" Repeat ",)],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "07.1": [
        (total(lambda steps: -steps.sum()), "never positive"),
        (total(lambda steps: steps.mean()), "their mean"),
        (total(lambda steps: -steps.mean()), "the mean loss"),
        (total(lambda steps: steps.exp().sum()), "not probabilities"),
        (total(lambda steps: steps.sum().exp()), "Its logarithm"),
        (total(lambda steps: steps[:-1].sum()), "`<eos>` is written"),
        (total(shift=0), "shift the two"),
        (total(shift=0, model_first=False), "shift the two"),
        (total(logits=True), "log-softmax is missing"),
        (total(lambda steps: steps.max()), "give the model all tokens but the last"),
        (total(lambda steps: steps), "a number was expected"),
    ],
    "07.2": [
        ((["B", "B", "C"], -1.529), "closest to 0"),
        ((["A", "A", "A"], -1.529), "*Divide* by it"),
        ((["A", "C", "C"], -1.529), "(5 + length) / 6"),
        ((["A", "A", "C"], -1.529), "it is not A, whose score is -1.568"),
        ((["A", "B", "C"], -1.6193), "count `<eos>`"),
        ((["A", "B", "C"], -1.2), "with α = 1"),
        ((["A", "B", "C"], -3.1649), "instead of multiplying"),
        ((["A", "B", "C"], -2.2), "divided by its lp"),
        ((["A", "B"], -1.529), "three letters"),
        ((["x", "B", "C"], -1.529), "called A, B and C"),
        ((["A", "B", "C"], torch.tensor(-1.2)), "with α = 1"),
        ((["A", "B", "C"], 1.529), "divided by its lp"),
        (([], -1.529), "three letters"),
        ((2, -1.529), "a list of letters"),
    ],
    "greedy": [
        (one(change=lambda ids: [2, *ids]), "leave out `<sos>`"),
        (one(change=lambda ids: ids[:-1] if ids[-1] == 3 else ids), "leave `<eos>` in"),
        (one(room=-1), "`<sos>` is not one of them"),
        (one(room=1), "max_len="),
        (one(first=6), "starts with `<sos>`"),
        (one(given=lambda ids: ids[-1:]), "starts with `<sos>`"),
        (one(given=lambda ids: [ids[0], ids[-1]]), "all that is written so far"),
        (one(pick=torch.argmin), "the most probable token"),
        (one(add=lambda steps: -sum(steps)), "never above 0"),
        (one(add=lambda steps: sum(steps) / len(steps)), "that is their mean"),
        (one(add=lambda steps: steps[-1]), "the sum of the steps'"),
        (forever, "does not end"),
        (lambda ask, memory, mask, sos_id, *rest: ask([[sos_id]], memory, mask), "as a tensor of ids"),
        (lambda *given: one()(*given)[0], "a pair was expected"),
        (lambda *given: ("ids", 1), "a list of lists"),
        (lambda *given: (torch.tensor(one()(*given)[0]), 1.0), "yours holds a Tensor"),
        (lambda *given: ([4.0, 3.0], -1.0), "a whole number"),
        (on_the_cpu(course.greedy), "device=memory.device"),
    ],
    "greedy_batch": [
        (everybody_stays, "let a row leave"),
        (rows_leave(follows=False), "rows, the memory"),
        (rows_leave(follows="from the top"), "lose the same rows"),
        (many(lambda found, sos, eos, max_len: [[sos, *ids] for ids in found]), "leave out `<sos>`"),
        (many(lambda found, sos, eos, max_len: [[i for i in ids if i != eos] for ids in found]), "leave `<eos>` in"),
        (many(lambda found, sos, eos, max_len: [(ids + [6] * max_len)[:max_len] for ids in found]), "go on behind"),
        (many(until_the_first_is_done), "the *first* sentence"),
        (many(lambda found, *rest: sorted(found, key=len)), "in another order"),
        (many(lambda found, *rest: found[:-1]), "there are 5 sentences"),
        (many(lambda found, *rest: found[0]), "a list of lists"),
        (many(room=-1), "cut off too early"),
        (many(pick=torch.argmin), "the first token is wrong"),
        (lambda *given: [["a"]] * 5, "a list of lists"),
        (lambda *given: [tuple(ids) for ids in many()(*given)], "yours holds a tuple"),
        (lambda *given: (ids for ids in many()(*given)), "yours is a generator"),
        (lambda next_log_probs, memory: [], "stopped with TypeError"),
        (on_the_cpu(course.greedy_batch), "device=memory.device"),
    ],
    "beam_one": [
        (of_one("(log_prob + more,", "(more,"), "last token"),
        (of_one("min(beam_size + 1, step.shape[1])", "1 if length > 1 else beam_size"), "a prefix may have several"),
        (of_one("in candidates if one", "in candidates[:beam_size] if one"), "leaves a gap"),
        (of_one("min(beam_size + 1,", "min(beam_size,"), "look at one more"),
        (of_one("candidates[:beam_size]:", "candidates:"), "below the best"),
        (of_one(STOP, "len(finished) >= beam_size"), "too early"),
        (of_one(STOP, STOP.replace(" / lp(length)", "")), "divide the log-probability of what is open"),
        (of_one(f" or ({STOP})", ""), "too long"),
        (of_one(" or length == max_len", ""), "is lost"),
        (of_one("ids[1:]", "ids"), "leave out `<sos>`"),
        (of_one("ids[1:]", "[i for i in ids[1:] if i != eos_id]"), "leave `<eos>` in"),
        (of_one(" if one[1][-1] != eos_id]", "]"), "go on behind"),
        (of_one("sorted(finished, reverse=True)", "sorted(finished)[::-1][::-1]"), "the best comes first"),
        (of_one("prefixes, finished = [", "beam_size = 1\n    prefixes, finished = ["), "that is greedy search"),
        (of_one("(log_prob / lp(length), ids[1:])", "(log_prob, ids[1:])"), "a score: log-probability"),
        (of_one("log_prob / lp(length), ids", "2 * log_prob / lp(length), ids"), "a score: log-probability"),
        (of_one("candidates.sort(reverse=True)", "candidates.sort()"), "the best candidates of *all*"),
        (of_one("reverse=True)[:beam_size]", "reverse=True)[: beam_size - 1]"), "as many as the beam is wide"),
        (of_one(" if more > -math.inf]", "]"), "is no candidate"),
        (of_one("memory[same],", "memory,"), "needs a row of the memory"),
        (of_one("memory[same], memory_mask[same]", "memory[0], memory_mask[0]"), "loses the first axis"),
        (of_one(change=lambda found: found[0]), "a list of pairs was expected"),
        (of_one(change=lambda found: [(ids, score) for score, ids in found]), "yours holds a float"),
        (of_one(change=lambda found: [(torch.tensor(score), ids) for score, ids in found]), "no tensor"),
        (of_one(change=lambda found: [(score, torch.tensor(ids)) for score, ids in found]), "`.tolist()`"),
        (lambda *given: course.greedy(*given[:5]), "a list of pairs was expected"),
        (on_the_cpu(course.beam_one), "device=memory.device"),
    ],
    "beam": [
        (beam(ended=lambda token, eos_id, last: token == eos_id), "is lost"),
        (beam(masked=lambda best, ends: best), "go on behind"),
        (beam(prefixes=lambda tgt, rows, beam_size: tgt[rows.flip(0)]), "tgt[rows]"),
        (beam(memory_of=lambda memory, rows, beam_size: memory), "the memory 5"),
        (beam(memory_of=lambda memory, rows, beam_size: memory[rows % len(memory) // 2]), "mixed up"),
        (beam(first_row=False), "mixed up"),
        (beam(scored=lambda log_prob, length, lp: 2 * log_prob / lp(length)), "a score: log-probability"),
        (beam(result=lambda pairs, beam_size: sorted(pairs)[-beam_size:]), "the best comes first"),
        (beam(result=lambda pairs, beam_size: [max(pairs)]), "as many as the beam is wide"),
        (beam(result=lambda pairs, beam_size: [(s, [2, *ids]) for s, ids in sorted(pairs)[::-1]]), "leave out `<sos>`"),
        (beam(whole=lambda found: found[::-1]), "in another order"),
        (for_each_sentence(rows=lambda x: [x] * len(x)), "translations of the first sentence"),
        (for_each_sentence(rows=list), "`memory[s : s + 1]` keeps it"),
        (for_each_sentence(searched=lambda *given: course.beam_one(*given[:-1])), "a score: log-probability"),
        (for_each_sentence(searched=lambda *given: course.beam_one(*given[:6])), "max_len="),
        (for_each_sentence(change=lambda found: found[0]), "for each sentence, a list of pairs"),
        (beam(whole=lambda found: found[1:]), "there are 5 sentences"),
        (lambda *given: [[1]] * 5, "such as (-1.25, [4, 7, 3])"),
        (lambda *given: 1, "such as (-1.25, [4, 7, 3])"),
        (beam(possible=lambda best: best == best), "is not finished"),
        (beam(result=lambda pairs, beam_size: sorted(pairs)[: -beam_size - 1 : -1], scored=in_a_tensor), "no tensor"),
        (lambda *given: iter(beam()(*given)), "such as (-1.25, [4, 7, 3])"),
        (on_the_cpu(stand_ins.beam_batch), "device=memory.device"),
    ],
    "my_beam": [
        (greedy_of, "that is greedy search"),
        (blank(change=lambda found, sos_id, eos_id: [[sos_id, *ids] for ids in found]), "leave out `<sos>`"),
        (
            blank(change=lambda found, sos_id, eos_id: [[i for i in x if i != eos_id] for x in found]),
            "leave `<eos>` in",
        ),
        (blank(change=lambda found, *rest: found[1:]), "there are 5 sentences"),
        (blank(change=lambda found, *rest: [tuple(ids) for ids in found]), "yours holds a tuple"),
        (blank(change=lambda found, *rest: [[]] * len(found)), "is lost"),
        (blank(of=beam(ended=lambda token, eos_id, last: token == eos_id)), "is lost"),
        (blank(of=beam(first_row=False)), "mixed up"),
        (blank(of=beam(prefixes=lambda tgt, rows, beam_size: tgt[rows.flip(0)])), "other translations win"),
        (blank(of=beam(scored=lambda log_prob, length, lp: log_prob / length)), "other translations win"),
        (blank(of=beam(memory_of=lambda memory, rows, beam_size: memory)), "the memory 5"),
        (blank(of=by_hand), "ask once a step"),
        (too_wide_for_a_toy, "of the toy's five sentences"),
        (lambda *given: beam()(*given), "a whole number"),
        (on_the_cpu(course.my_beam), "device=memory.device"),
    ],
    "my_cached_beam": [
        (cached(SELECT, "pass"), "and the cache holds"),
        (cached("select(rows,", "select(rows.sort().values,"), "`tgt[rows]`"),
        (cached("select(rows,", "select(rows - rows % width,"), "`tgt[rows]`"),
        (cached("going_on.nonzero().flatten())", "torch.arange(len(going_on))[: going_on.sum()])"), "mixed up"),
        (cached("first_row + index", "index"), "with a beam of 1"),
        (cached("        logits[:, [pad_id, sos_id]] = -math.inf\n"), "rule them out"),
        (cached("tgt[:, -1:]", "tgt"), "the newest token of each row"),
        (cached("== max_len)", "== 0)"), "does not end"),
        (cached(change=lambda found, sos_id: [[sos_id, *ids] for ids in found]), "leave out `<sos>`"),
        (cached(change=lambda found, sos_id: found[1:]), "there are 5 sentences"),
        (cached(", device=device"), "device=decoder.memory_mask.device"),
    ],
    "07.3": [
        (
            lambda config, src_len, tgt_len: config.num_layers * config.d_model * (src_len + tgt_len),
            "key *and* a value",
        ),
        (lambda config, src_len, tgt_len: 2 * config.d_model * (src_len + tgt_len), "a cache of its own"),
        (lambda config, src_len, tgt_len: 2 * config.num_layers * (src_len + tgt_len), "not one number"),
        (
            lambda config, *lengths: 2 * config.num_layers * config.num_heads * config.d_model * sum(lengths),
            "share d_model",
        ),
        (
            lambda config, *lengths: 2 * config.num_layers * config.d_model // config.num_heads * sum(lengths),
            "one head's",
        ),
        (lambda config, src_len, tgt_len: 2 * config.num_layers * config.d_model * tgt_len, "those of the source"),
        (lambda config, src_len, tgt_len: 2 * config.num_layers * config.d_model * src_len, "those of the target"),
        (lambda config, *lengths: 4 * config.num_layers * config.d_model * sum(lengths), "encoder has finished"),
        (lambda config, src_len, tgt_len: 2 * config.num_layers * config.d_model * src_len * tgt_len, "not to pairs"),
        (lambda config, src_len, tgt_len: 1, "two tensors"),
    ],
    "07.4": [
        (limit(quantile, beside=-1), "the `<eos>` of some has no room"),
        (limit(quantile, beside=1), "would do"),
        (limit(lambda lengths, share: max(lengths), unfinished=0), "longest of all"),
        (limit(lambda lengths, share: max(n for n in lengths if n < 10**6)), "all that ever finish"),
        (limit(lambda lengths, share: sum(lengths) / len(lengths), unfinished=0), "max_len="),
        (limit(lambda lengths, share: 1), "are cut off"),
        (lambda *arguments: [3], "a number was expected"),
        (lambda *arguments: math.inf, "would do"),
        (limit(lambda lengths, share: lengths[int(share * len(lengths))]), "one sentence more"),
        (lambda *arguments: 10**400, "far too large"),
    ],
    "07.5": [
        (("order",), "with a beam of 1"),
        (("mask",), "equally many tokens"),
        (("one beam",), "beam_size rows"),
        (("first row",), "a beam of 1 would go wrong"),
        (("dropout",), "not on the list"),
        ((3,), "the name of a fault"),
    ],
}
