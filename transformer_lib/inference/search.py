"""Finding a good translation: greedy and beam search, batched, with a key/value cache (section 6.1)."""

import operator
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lib.inference.kv_cache import CachedDecoder, can_cache
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.embeddings import check_ids
from transformer_lib.model.evaluation import evaluation_mode
from transformer_lib.model.transformer import Transformer

MAX_SAVED_BEAM = 16  # that a saved model may ask for; a search itself may be as wide as the vocabulary


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one sentence.

    Attributes:
        ids: target ids without ``<sos>``; the last is ``<eos>``, unless the length ran out before.
        log_prob: natural logarithm of their probability, ``<pad>`` and ``<sos>`` ruled out: neither is ever written.
        score: what beam search maximises, ``log_prob`` divided by the length penalty; in greedy search, ``log_prob``.
    """

    ids: list[int]
    log_prob: float
    score: float


def greedy_search(
    model: Transformer, src: Tensor, sos_id: int, eos_id: int, max_len: int | None = None, use_cache: bool = True
) -> list[Hypothesis]:
    """Take the most probable token at each step: a beam of one. Arguments and errors as ``beam_search``."""
    return [beam[0] for beam in beam_search(model, src, sos_id, eos_id, 1, 0.0, max_len, use_cache)]


@torch.inference_mode()
def beam_search(
    model: Transformer,
    src: Tensor,
    sos_id: int,
    eos_id: int,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_len: int | None = None,
    use_cache: bool = True,
    prefix: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Follow the ``beam_size`` most probable partial hypotheses of each sentence, for all sentences at once.

    One that is among the best ``beam_size`` and ends in ``<eos>`` is finished; the others fill the beam. A sentence
    leaves the batch when ``beam_size`` of its hypotheses are finished and one of them scores at least as well as the
    best open one does so far. (With a length penalty, a longer one might still have overtaken it.)

    Args:
        model: computes in evaluation mode, and keeps the mode that it was in.
        src: source ids, ``[batch, src_len]``, padded on the right.
        length_penalty: α in GNMT's lp = ((5 + length) / 6)^α (Wu et al. 2016, equation 14), by which a hypothesis's
            ``log_prob`` is divided; its length includes ``<eos>``.
        max_len: most tokens of an output, ``<eos>`` included, as far as the model has positions; by default, its
            source's length + 50 (section 6.1).
        use_cache: keep keys and values instead of computing them again at every step, where ``can_cache``.
        prefix: ids that the outputs have to begin with, without ``<sos>``, ``[batch, prefix_len]``; where one is
            padding, the model chooses. They count in ``log_prob`` and length as if it had chosen them.

    Returns each sentence's ``beam_size`` best finished hypotheses, best score first. Raises a ValueError if a setting
    is impossible, padding comes before a token, or no output can begin with a prefix; a TypeError if the model's class
    has a ``forward`` but no ``decode``, and a FloatingPointError if the model predicts NaN.
    """
    owner = next(cls for cls in type(model).__mro__ if {"forward", "decode"} & vars(cls).keys())
    if "decode" not in vars(owner):  # what its forward adds would be left out of every translation
        raise TypeError(f"model is a {type(model).__name__}, which has a forward but no decode for it to call")
    vocab_size = model.config.tgt_vocab_size
    check_search(beam_size, length_penalty, vocab_size)
    is_token = src != model.config.pad_id
    if (is_token[:, 1:] & ~is_token[:, :-1]).any():
        raise ValueError("src has padding before a token, expected it on the right: it would move the positions")
    src_lengths = is_token.sum(dim=1)  # [batch], as are the most tokens that each output may have
    limits = src_lengths + 50 if max_len is None else torch.full_like(src_lengths, max_len)
    limits = limits.clamp(max=model.config.max_len)
    prefix = src[:, :0] if prefix is None or not prefix.numel() else prefix
    if prefix.numel():
        _check_prefix(prefix, model.config, limits, sos_id, eos_id)
    banned_ids = {model.config.pad_id, sos_id} - {eos_id}  # no training targets; some models begin with <eos>
    with evaluation_mode(model):
        memory, memory_mask = model.encode(src)
        cache = CachedDecoder(model, memory, memory_mask) if use_cache and can_cache(model) else None
        width = 1  # before the first step, the beam holds one partial hypothesis, <sos>
        tgt = torch.full((len(src), 1), sos_id, device=src.device)
        log_probs = torch.zeros(len(src), 1, device=src.device)  # [sentences, width]
        finished: list[list[Hypothesis]] = [[] for _ in range(len(src))]
        unfinished = finished  # of the sentences still in the batch; each has `width` rows

        while unfinished:
            if cache is not None:
                logits = cache.step(tgt[:, -1:])[:, -1]  # [sentences · width, tgt_vocab_size]
            else:
                memories = [x.repeat_interleave(width, dim=0) for x in (memory, memory_mask)]
                logits = model.decode(tgt, *memories)[:, -1]
            for i in banned_ids:
                logits[:, i] = -torch.inf
            step = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
            if tgt.shape[1] <= prefix.shape[1]:
                given = prefix[:, tgt.shape[1] - 1].repeat_interleave(width)[:, None]  # [sentences · width, 1]
                all_ids = torch.arange(vocab_size, device=src.device)
                step.masked_fill_((given != model.config.pad_id) & (given != all_ids), -torch.inf)
            if beam_size == 1:  # if it ends, so does the search
                best, index = step.max(dim=1, keepdim=True)  # faster than topk
                candidate_log_probs = log_probs + best  # [sentences, 1]
            else:  # twice the beam: even if half of them end here, the other half fills it again
                step = step.unflatten(0, (-1, width))  # [sentences, width, tgt_vocab_size]
                candidates = step.add_(log_probs[:, :, None]).flatten(1)  # [sentences, width · tgt_vocab_size]
                candidate_log_probs, index = candidates.topk(min(2 * beam_size, candidates.shape[1]), dim=1)
            candidate_rows = torch.arange(len(limits), device=src.device)[:, None] * width + index // vocab_size
            token = index % vocab_size  # [sentences, candidates], as are the rows that they continue
            length = tgt.shape[1]  # of a candidate, without <sos>
            penalty = ((5 + length) / 6) ** length_penalty
            is_eos = token == eos_id
            is_full = length >= limits  # [sentences]
            ends = ((is_eos | is_full[:, None]) & candidate_log_probs.isfinite())[:, :beam_size]
            i, j = ends.nonzero(as_tuple=True)
            ended = torch.cat([i[:, None], tgt[candidate_rows[i, j], 1:], token[i, j, None]], dim=1)
            log_probs, chosen = candidate_log_probs.masked_fill(is_eos, -torch.inf).topk(beam_size)  # [sentences, beam]
            best_open = (log_probs[:, 0] / penalty).masked_fill(is_full, -torch.inf)
            numbers = torch.cat([candidate_log_probs[i, j], best_open]).tolist()  # one wait for a GPU, not two
            for (n, *ids), log_prob in zip(ended.tolist(), numbers, strict=False):
                unfinished[n].append(Hypothesis(ids, log_prob, log_prob / penalty))
            going_on = [
                n
                for n, (its, best) in enumerate(zip(unfinished, numbers[len(ended) :], strict=True))
                if best > -torch.inf and (len(its) < beam_size or max(h.score for h in its) < best)
            ]
            unfinished = [unfinished[n] for n in going_on]
            going_on = torch.tensor(going_on, dtype=torch.long, device=src.device)
            rows = candidate_rows.gather(1, chosen)[going_on].flatten()  # [sentences · beam]
            token = token.gather(1, chosen)[going_on].flatten()
            tgt = torch.cat([tgt[rows], token[:, None]], dim=1)
            if cache is None:
                memory, memory_mask = memory[going_on], memory_mask[going_on]
            elif beam_size > 1 or len(going_on) < len(limits):  # or else, all rows stay where they are
                cache.select(rows, going_on)
            log_probs, limits, prefix, width = log_probs[going_on], limits[going_on], prefix[going_on], beam_size
    if not all(finished):
        raise FloatingPointError("the model predicts nan: are its weights damaged, or too large for its precision?")
    return [sorted(hypotheses, key=lambda h: -h.score)[:beam_size] for hypotheses in finished]


def check_search(beam_size: int, length_penalty: float, max_beam_size: int) -> None:
    """Raise a ValueError if no search is possible with these settings."""
    if not 0 <= length_penalty <= 10:
        raise ValueError(f"length_penalty is {length_penalty}, expected 0 (none) to 10, such as 0.6")
    if not 1 <= operator.index(beam_size) <= max_beam_size:
        raise ValueError(f"beam_size is {beam_size}, expected a whole number from 1 to {max_beam_size}")


def _check_prefix(prefix: Tensor, config: TransformerConfig, limits: Tensor, sos_id: int, eos_id: int) -> None:
    """Raise a ValueError unless every output can begin with its prefix."""
    check_ids("prefix", prefix, config.tgt_vocab_size)
    if len(prefix) != len(limits):
        raise ValueError(f"prefix has {len(prefix)} rows, expected one for each of {len(limits)} sentences")
    if ((prefix == sos_id) | (prefix == eos_id)).any():
        raise ValueError(f"prefix holds <sos> or <eos> ({sos_id} or {eos_id}), expected what comes between them")
    if (too_long := (prefix != config.pad_id).sum(dim=1) >= limits).any():
        raise ValueError(f"prefix fills all {limits[too_long][0]} tokens that an output may have, expected fewer")
