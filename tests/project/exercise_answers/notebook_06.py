"""Answers to the exercises of notebook 06: searching for a translation."""

import math

import numpy as np
import torch

from transformer_lib.inference.search import greedy_search


def greedy(banned=True, first=None, last=-1, whole=True, room=0):
    """Return a greedy search, one sentence at a time, with one thing changed."""

    def search(model, src, sos_id, eos_id, max_len):
        found = []
        for row in src:
            memory, mask = model.encode(row[None])
            ids = [sos_id if first is None else first]
            while len(ids) == 1 or (ids[-1] != eos_id and len(ids) <= max_len + room):
                logits = model.decode(torch.tensor([ids if whole else ids[-1:]]), memory, mask)[0, last]
                if banned:
                    logits[[model.config.pad_id, sos_id]] = -math.inf
                ids.append(logits.argmax().item())
            found.append(ids[1:])
        return found

    return search


def by_library(model, src, sos_id, eos_id, max_len):
    return [torch.tensor(one.ids) for one in greedy_search(model, src, sos_id, eos_id, max_len)]


def changed(change):
    """Return a greedy search whose right translations are changed."""

    def search(model, src, sos_id, eos_id, max_len):
        return change(greedy()(model, src, sos_id, eos_id, max_len), sos_id, eos_id, max_len)

    return search


def until_the_first_is_done(found, sos_id, eos_id, max_len):
    return [ids[: min(map(len, found))] for ids in found]


def beam_step(
    rank=lambda log_prob, step: log_prob + step,
    total=lambda log_prob, step: log_prob + step,
    finish=lambda best, size: best[:size],
    extend=lambda best, size, eos_id: [one for one in best if one[0][-1] != eos_id][:size],
    each=None,
):
    def one_step(beam, log_probs, eos_id, beam_size):
        candidates = []
        for (ids, log_prob), row in zip(beam, log_probs.tolist(), strict=True):
            of_this = [((*ids, i), total(log_prob, step), rank(log_prob, step)) for i, step in enumerate(row)]
            if each and len(beam) > 1:
                going_on = [one for one in of_this if one[0][-1] != eos_id]
                of_this = [of_this[eos_id], *sorted(going_on, key=lambda one: -one[2])[:each]]
            candidates += of_this
        best = [one[:2] for one in sorted(candidates, key=lambda one: -one[2])]
        return extend(best, beam_size, eos_id), [one for one in finish(best, beam_size) if one[0][-1] == eos_id]

    return one_step


def on_tensors(beam, log_probs, eos_id, beam_size):
    scores = torch.tensor([log_prob for _, log_prob in beam])[:, None] + log_probs
    values, indices = scores.flatten().topk(min(2 * beam_size, scores.numel()))
    best = [
        ([*beam[i // log_probs.shape[1]][0], int(i % log_probs.shape[1])], value)
        for value, i in zip(values, indices, strict=True)
    ]
    ends = [one for one in best[:beam_size] if one[0][-1] == eos_id]
    return [one for one in best if one[0][-1] != eos_id][:beam_size], ends


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


def all_that_go_on(beam, log_probs, eos_id, beam_size):
    return beam_step(extend=lambda best, size, eos: [one for one in best if one[0][-1] != eos])(
        beam, log_probs, eos_id, beam_size
    )


def total(pick=lambda steps: steps.sum(), shift=1, logits=False, model_first=True):
    """Return a function that scores a translation, with one thing changed."""

    def log_prob(model, src, tgt):
        found = model(src, tgt[:, :-1] if model_first else tgt)
        steps = found if logits else found.log_softmax(dim=-1)
        wanted = tgt[:, shift:][:, : steps.shape[1]]
        return pick(steps[:, : wanted.shape[1]].gather(2, wanted[:, :, None])[0, :, 0])

    return log_prob


def everybody_stays(model, src, sos_id, eos_id, max_len):
    memory, memory_mask = model.encode(src)
    tgt = torch.full((len(src), 1), sos_id)
    for _ in range(max_len):
        logits = model.decode(tgt, memory, memory_mask)[:, -1]
        logits[:, [model.config.pad_id, sos_id]] = -math.inf
        tgt = torch.cat([tgt, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return [ids[: ids.index(eos_id) + 1] if eos_id in ids else ids for ids in tgt[:, 1:].tolist()]


def rows_leave(model, src, sos_id, eos_id, max_len):
    memory, memory_mask = model.encode(src)
    tgt, sentences, found = torch.full((len(src), 1), sos_id), torch.arange(len(src)), [None] * len(src)
    while len(sentences):
        logits = model.decode(tgt, memory, memory_mask)[:, -1]
        logits[:, [model.config.pad_id, sos_id]] = -math.inf
        tgt = torch.cat([tgt, logits.argmax(dim=-1, keepdim=True)], dim=1)
        done = (tgt[:, -1] == eos_id) | (tgt.shape[1] > max_len)
        for sentence, ids in zip(sentences[done].tolist(), tgt[done, 1:].tolist(), strict=True):
            found[sentence] = ids
        tgt, sentences, memory, memory_mask = tgt[~done], sentences[~done], memory[~done], memory_mask[~done]
    return found


RIGHT = {
    "06.1": [(total(),), (lambda *given: total()(*given).item(),), (lambda *given: np.float64(total()(*given)),)],
    "06.4": [
        (["A", "B", "C"], -1.529),
        ("abc", -2.2 / (11 / 6) ** 0.6),
        ("A, B, C", np.float32(-1.529)),
        (np.array(["a", "b", "c"]), torch.tensor(-1.53)),
    ],
    "06.2": [
        (rows_leave,),
        (greedy(),),
        (by_library,),
        (lambda *given: (np.array(ids) for ids in greedy()(*given)),),
    ],
    "06.3": [(beam_step(),), (on_tensors,)],
    "06.5": [
        (lambda config, src_len, tgt_len: 2 * config.num_layers * config.d_model * (src_len + tgt_len),),
        (lambda config, *lengths: torch.tensor(2 * config.num_layers * config.d_model * sum(lengths)),),
    ],
    "06.6": [
        (limit(quantile),),
        (by_trying,),
        (lambda *given: np.float64(by_trying(*given)),),
        (lambda *given: torch.tensor(by_trying(*given)),),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "06.1": [
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
    "06.4": [
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
    "06.2": [
        (everybody_stays, "let a row leave"),
        (changed(lambda found, sos, eos, max_len: [[sos, *ids] for ids in found]), "leave out `<sos>`"),
        (changed(lambda found, sos, eos, max_len: [[i for i in ids if i != eos] for ids in found]), "leave `<eos>` in"),
        (changed(lambda found, sos, eos, max_len: [(ids + [6] * max_len)[:max_len] for ids in found]), "go on behind"),
        (changed(until_the_first_is_done), "the *first* sentence"),
        (changed(lambda found, *rest: sorted(found, key=len)), "in another order"),
        (changed(lambda found, *rest: found[:-1]), "there are 5 sentences"),
        (changed(lambda found, *rest: found[0]), "a list of lists"),
        (greedy(room=-1), "cut off too early"),
        (greedy(room=1), "more than max_len"),
        (greedy(banned=False), "never written"),
        (greedy(whole=False), "the *last* position"),
        (greedy(last=0), "the *last* position"),
        (greedy(first=3), "start each row with `<sos>`"),
        (lambda model, src, sos_id, eos_id, max_len: [[], [4], [], [9], []], "the first token is wrong"),
        (lambda model, src, sos_id, eos_id, max_len: [["a"]] * 5, "a list of lists"),
        (lambda model, src, sos_id: [], "stopped with TypeError"),
    ],
    "06.3": [
        (beam_step(rank=lambda log_prob, step: step), "not by that of the last token"),
        (beam_step(each=1), "one candidate of each prefix"),
        (beam_step(rank=lambda log_prob, step: -log_prob - step), "sort all candidates"),
        (beam_step(total=lambda log_prob, step: step), "add the last step's"),
        (beam_step(extend=lambda best, size, eos_id: best[:size]), "leaves the beam"),
        (
            beam_step(extend=lambda best, size, eos_id: [one for one in best[:size] if one[0][-1] != eos_id]),
            "takes no place",
        ),
        (beam_step(finish=lambda best, size: best), "too improbable"),
        (beam_step(finish=lambda best, size: best[: 2 * size]), "twice as many"),
        (beam_step(finish=lambda best, size: []), "end in `<eos>`"),
        (lambda *arguments: tuple(on_tensors(*arguments)[::-1]), "exchanged"),
        (lambda *arguments: (on_tensors(*arguments)[0][::-1], on_tensors(*arguments)[1]), "best one comes first"),
        (lambda *arguments: on_tensors(*arguments)[0], "such as ([4, 7], -1.25)"),
        (lambda *arguments: 1, "two lists"),
        (all_that_go_on, "more than 2"),
        (lambda *arguments: ([], []), "takes no place"),
        (lambda *arguments: ([([4], None)], []), "such as ([4, 7], -1.25)"),
    ],
    "06.5": [
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
    "06.6": [
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
}
