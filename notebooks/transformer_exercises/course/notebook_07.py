"""Searches, as notebook 07 writes them: steps on the way to the library's, which also shares a cache among them."""

import math
import runpy

import torch

from transformer_lib.files import shipped

beam_batch = runpy.run_path(str(shipped("the_transformer.py")))["beam"]  # which the notebook shows


def greedy(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len=50):
    ids, total = [sos_id], 0.0
    while ids[-1] != eos_id and len(ids) <= max_len:  # <sos> does not count
        tgt = torch.tensor([ids], device=memory.device)  # [1, length]: all that is written so far
        log_prob, token = next_log_probs(tgt, memory, memory_mask)[0].max(dim=0)  # the best of [vocab]
        ids.append(token.item())
        total += log_prob.item()
    return ids[1:], total


def greedy_batch(next_log_probs, memory, memory_mask, sos_id, eos_id, max_len=50):
    tgt = torch.full((len(memory), 1), sos_id, device=memory.device)  # [rows, 1]
    sentences = torch.arange(len(memory), device=memory.device)  # new: which sentence each row translates
    found = {}  # new: from a sentence to its translation
    while len(sentences):
        token = next_log_probs(tgt, memory, memory_mask).argmax(dim=1)  # [rows]
        tgt = torch.cat([tgt, token[:, None]], dim=1)  # [rows, length + 1]
        done = (token == eos_id) | (tgt.shape[1] > max_len)  # new
        found.update(zip(sentences[done].tolist(), tgt[done, 1:].tolist(), strict=True))  # new
        sentences, tgt = sentences[~done], tgt[~done]  # new: rows leave …
        memory, memory_mask = memory[~done], memory_mask[~done]  # new: … and their memory leaves with them
    return [found[sentence] for sentence in range(len(found))]


def beam_one(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50, lp=lambda length: 1.0):
    prefixes, finished = [(0.0, [sos_id])], []  # pairs: log-probability and ids; score and ids
    for length in range(1, max_len + 1):  # of what this step writes, without <sos>
        tgt = torch.tensor([ids for _, ids in prefixes], device=memory.device)  # [prefixes, length]
        same = [0] * len(tgt)  # there is one sentence: row 0, once for each prefix
        step = next_log_probs(tgt, memory[same], memory_mask[same])  # [prefixes, vocab]
        candidates = []
        for (log_prob, ids), best, tokens in zip(prefixes, *step.topk(min(beam_size + 1, step.shape[1])), strict=True):
            offers = zip(best.tolist(), tokens.tolist(), strict=True)  # one more than the beam holds: one may be <eos>
            candidates += [(log_prob + more, [*ids, token]) for more, token in offers if more > -math.inf]
        candidates.sort(reverse=True)  # all of them compete, by the log-probability of the whole
        for log_prob, ids in candidates[:beam_size]:
            if ids[-1] == eos_id or length == max_len:  # without room for more, it is kept as it is
                finished.append((log_prob / lp(length), ids[1:]))
        prefixes = [one for one in candidates if one[1][-1] != eos_id][:beam_size]  # the others fill the beam
        if not prefixes or (len(finished) >= beam_size and max(finished)[0] >= prefixes[0][0] / lp(length)):
            break  # nothing that is open is ahead
    return sorted(finished, reverse=True)[:beam_size]


def beam(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50, lp=lambda length: 1.0):
    sentences = zip(memory.split(1), memory_mask.split(1), strict=True)  # each a batch of one: [1, src_len, d_model]
    return [beam_one(next_log_probs, *one, sos_id, eos_id, beam_size, max_len, lp) for one in sentences]


def my_beam(next_log_probs, memory, memory_mask, sos_id, eos_id, beam_size, max_len=50):
    sentences = torch.arange(len(memory), device=memory.device)  # those that are not done
    tgt = torch.full((len(memory), 1), sos_id, device=memory.device)  # [sentences · width, length]
    log_probs = torch.zeros(len(memory), 1, device=memory.device)  # [sentences, width]
    finished = [(-math.inf, [])] * len(memory)  # the best of each sentence: its log-probability and ids
    while len(sentences):
        step = next_log_probs(tgt, memory, memory_mask).unflatten(0, log_probs.shape)  # [sentences, width, vocab]
        width, vocab = step.shape[1:]
        candidates = (log_probs[:, :, None] + step).flatten(1)  # those of a sentence compete, in one row
        best, index = candidates.topk(min(2 * beam_size, width * vocab))  # half of them may end
        first_row = torch.arange(len(sentences), device=memory.device)[:, None] * width
        rows, token = first_row + index // vocab, index % vocab
        ends = (token == eos_id) | (tgt.shape[1] == max_len)
        for s, j in ends[:, :beam_size].nonzero().tolist():
            one = best[s, j].item(), [*tgt[rows[s, j], 1:].tolist(), token[s, j].item()]
            finished[sentences[s]] = max(finished[sentences[s]], one)
        log_probs, chosen = best.masked_fill(ends, -math.inf).topk(min(beam_size, best.shape[1]))
        to_beat = torch.tensor([finished[s][0] for s in sentences.tolist()], device=memory.device)
        going_on = log_probs[:, 0] > to_beat  # a prefix that is behind cannot catch up
        sentences, log_probs, chosen = sentences[going_on], log_probs[going_on], chosen[going_on]
        rows, token = (x[going_on].gather(1, chosen).flatten() for x in (rows, token))
        tgt = torch.cat([tgt[rows], token[:, None]], dim=1)
        memory, memory_mask = memory[rows], memory_mask[rows]
    return [ids for _, ids in finished]


def my_cached_beam(decoder, pad_id, sos_id, eos_id, beam_size, max_len=50):  # as many sentences as memory_mask has
    device, number = decoder.memory_mask.device, len(decoder.memory_mask)
    sentences = torch.arange(number, device=device)  # those that are not done
    tgt = torch.full((number, 1), sos_id, device=device)  # [sentences · width, length]
    log_probs = torch.zeros(number, 1, device=device)  # [sentences, width]
    finished = [(-math.inf, [])] * number  # the best of each sentence: its log-probability and ids
    while len(sentences):
        logits = decoder.step(tgt[:, -1:])[:, -1]  # the newest tokens alone; what they come after is in the cache
        logits[:, [pad_id, sos_id]] = -math.inf
        step = logits.log_softmax(dim=-1).unflatten(0, log_probs.shape)  # [sentences, width, vocab]
        width, vocab = step.shape[1:]
        candidates = (log_probs[:, :, None] + step).flatten(1)  # those of a sentence compete, in one row
        best, index = candidates.topk(min(2 * beam_size, width * vocab))  # half of them may end
        first_row = torch.arange(len(sentences), device=device)[:, None] * width
        rows, token = first_row + index // vocab, index % vocab
        ends = (token == eos_id) | (tgt.shape[1] == max_len)
        for s, j in ends[:, :beam_size].nonzero().tolist():
            one = best[s, j].item(), [*tgt[rows[s, j], 1:].tolist(), token[s, j].item()]
            finished[sentences[s]] = max(finished[sentences[s]], one)
        log_probs, chosen = best.masked_fill(ends, -math.inf).topk(min(beam_size, best.shape[1]))
        to_beat = torch.tensor([finished[s][0] for s in sentences.tolist()], device=device)
        going_on = log_probs[:, 0] > to_beat  # a prefix that is behind cannot catch up
        rows, token = (x.gather(1, chosen)[going_on].flatten() for x in (rows, token))
        decoder.select(rows, going_on.nonzero().flatten())  # keys and values follow their rows, as tgt does
        sentences, log_probs = sentences[going_on], log_probs[going_on]
        tgt = torch.cat([tgt[rows], token[:, None]], dim=1)
    return [ids for _, ids in finished]
