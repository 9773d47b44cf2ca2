"""Finding a good translation: greedy and beam search, batched, with a key/value cache (section 6.1)."""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from transformer_lib.inference.kv_cache import CachedDecoder, can_cache
from transformer_lib.model.evaluation import evaluation_mode
from transformer_lib.model.transformer import Transformer

Search = TypeVar("Search", bound=Callable[..., Any])
MAX_LENGTH_PENALTY = 10
MAX_SAVED_BEAM = 16  # that a saved model may ask for; a search itself may be as wide as the vocabulary
EXTRA_LENGTH = 50  # the paper lets an output be this much longer than its input
_PREDICTS_NAN = "the model predicts nan: are its weights damaged, or too large for the precision that it computes in?"


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one sentence.

    Attributes:
        ids: target ids without ``<sos>``; the last is ``<eos>``, unless the length ran out before.
        log_prob: natural logarithm of their probability, ``<pad>`` and ``<sos>`` ruled out: neither is ever written.
        score: what beam search maximises: ``log_prob`` divided by the length penalty; greedy search has none, so that
            it is ``log_prob`` there.
    """

    ids: list[int]
    log_prob: float
    score: float


def length_penalty_factor(length: int, length_penalty: float) -> float:
    """Compute GNMT's lp = ((5 + length) / 6)^α (Wu et al. 2016, equation 14), for a length that includes ``<eos>``."""
    return ((5 + length) / 6) ** length_penalty


def _without_dropout(search: Search) -> Search:
    """Let a search compute in evaluation mode and without gradients; the model gets its mode back."""

    @functools.wraps(search)
    @torch.inference_mode()
    def searching(model: Transformer, *args: Any, **kwargs: Any) -> Any:
        with evaluation_mode(model):
            return search(model, *args, **kwargs)

    return cast(Search, searching)


@_without_dropout
def greedy_search(
    model: Transformer, src: Tensor, sos_id: int, eos_id: int, max_len: int | None = None, use_cache: bool = True
) -> list[Hypothesis]:
    """Take the most probable token at each step, for all sentences at once; finished ones leave the batch.

    Args:
        model: computes in evaluation mode, and keeps the mode that it was in.
        src: source ids, ``[batch, src_len]``, padded with ``model.config.pad_id`` on the right.
        max_len: most tokens of an output, ``<eos>`` included; by default a source's length + 50 (section 6.1), as
            far as there are positions.
        use_cache: keep keys and values instead of computing them again at every step.

    Raises:
        ValueError: ``src`` or ``max_len`` does not fit the model, or padding comes before a token.
        TypeError: see ``check_decodes``.
        FloatingPointError: the model predicts NaN or infinity.
    """
    decoder = _StepDecoder(model, src, sos_id, eos_id, use_cache)
    limits = _length_limits(model, src, max_len)
    sentences = torch.arange(len(src), device=src.device)  # which sentence each row of the batch translates
    tgt = torch.full((len(src), 1), sos_id, device=src.device)
    log_probs = torch.zeros(len(src), device=src.device)
    finished: dict[int, Hypothesis] = {}
    while len(sentences):
        step = decoder.next_log_probs(tgt)  # [rows, tgt_vocab_size]
        token = step.argmax(dim=1)
        log_probs = log_probs + step.gather(1, token[:, None])[:, 0]
        tgt = torch.cat([tgt, token[:, None]], dim=1)  # [rows, length + 1]
        done = (token == eos_id) | (tgt.shape[1] > limits[sentences])
        if done.any():
            for sentence, ids, log_prob in zip(
                sentences[done].tolist(), tgt[done, 1:].tolist(), log_probs[done].tolist(), strict=True
            ):
                finished[sentence] = Hypothesis(ids, log_prob, log_prob)
            rows = (~done).nonzero().flatten()
            sentences, tgt, log_probs = sentences[rows], tgt[rows], log_probs[rows]
            decoder.select(rows, rows)
    if not all(math.isfinite(hypothesis.log_prob) for hypothesis in finished.values()):
        raise FloatingPointError(_PREDICTS_NAN)
    return [finished[sentence] for sentence in range(len(src))]


@_without_dropout
def beam_search(
    model: Transformer,
    src: Tensor,
    sos_id: int,
    eos_id: int,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_len: int | None = None,
    use_cache: bool = True,
) -> list[list[Hypothesis]]:
    """Follow the ``beam_size`` most probable partial hypotheses of each sentence, for all sentences at once.

    One that is among the best ``beam_size`` and ends in ``<eos>`` is finished; the others fill the beam. A sentence is
    done when ``beam_size`` of its hypotheses are finished and one of them scores at least as well as the
    best open one does so far. (With a length penalty, a longer one might still have overtaken it.) With a beam of 1
    this is greedy search.

    Arguments and errors are those of ``greedy_search``; ``length_penalty`` is the ``length_penalty_factor``'s exponent.

    Returns:
        For each sentence, in order, its ``beam_size`` best finished hypotheses, best score first.
    """
    vocab_size = model.config.tgt_vocab_size
    check_search(beam_size, length_penalty, vocab_size)
    decoder = _StepDecoder(model, src, sos_id, eos_id, use_cache)
    limits = _length_limits(model, src, max_len)
    sentences = torch.arange(len(src), device=src.device)  # those still in the batch; each has `width` rows
    width = 1  # before the first step, the beam holds one partial hypothesis, <sos>
    tgt = torch.full((len(src), 1), sos_id, device=src.device)
    log_probs = torch.zeros(len(src), 1, device=src.device)  # [sentences, width]
    finished: list[list[Hypothesis]] = [[] for _ in range(len(src))]

    while len(sentences):
        step = decoder.next_log_probs(tgt).unflatten(0, (-1, width))  # [sentences, width, tgt_vocab_size]
        candidates = (log_probs[:, :, None] + step).flatten(1)  # [sentences, width · tgt_vocab_size]
        # twice the beam: even if half of them end here, the other half fills it again
        candidate_log_probs, index = candidates.topk(min(2 * beam_size, candidates.shape[1]), dim=1)
        first_rows = torch.arange(len(sentences), device=src.device)[:, None] * width
        candidate_rows = first_rows + index // vocab_size  # [sentences, candidates]: the row that each continues
        token = index % vocab_size
        length = tgt.shape[1]  # of a candidate, without <sos>
        is_eos = token == eos_id
        out_of_length = (length >= limits[sentences])[:, None]
        ends = ((is_eos | out_of_length) & candidate_log_probs.isfinite())[:, :beam_size]
        i, j = ends.nonzero(as_tuple=True)
        ended = torch.cat([tgt[candidate_rows[i, j], 1:], token[i, j, None]], dim=1)  # [ended, length]
        for sentence, ids, log_prob in zip(  # three transfers from a GPU, however many have ended
            sentences[i].tolist(), ended.tolist(), candidate_log_probs[i, j].tolist(), strict=True
        ):
            score = log_prob / length_penalty_factor(length, length_penalty)
            finished[sentence].append(Hypothesis(ids, log_prob, score))

        open_candidates = candidate_log_probs.masked_fill(is_eos, -torch.inf)
        log_probs, chosen = open_candidates.topk(beam_size, dim=1)  # [sentences, beam]
        best_open = (log_probs[:, 0] / length_penalty_factor(length, length_penalty)).tolist()
        done = [
            len(finished[sentence]) >= beam_size and max(h.score for h in finished[sentence]) >= score
            for sentence, score in zip(sentences.tolist(), best_open, strict=True)
        ]
        going_on = (~(torch.tensor(done, device=src.device) | out_of_length[:, 0])).nonzero().flatten()
        rows = candidate_rows.gather(1, chosen)[going_on].flatten()  # [sentences · beam]
        token = token.gather(1, chosen)[going_on].flatten()
        tgt = torch.cat([tgt[rows], token[:, None]], dim=1)
        log_probs, sentences, width = log_probs[going_on], sentences[going_on], beam_size
        decoder.select(rows, going_on)
    if not all(finished):
        raise FloatingPointError(_PREDICTS_NAN)
    return [sorted(hypotheses, key=lambda h: -h.score)[:beam_size] for hypotheses in finished]


class _StepDecoder:
    """Predicts the next token of every row, with a cache or without; rows of one sentence lie side by side."""

    def __init__(self, model: Transformer, src: Tensor, sos_id: int, eos_id: int, use_cache: bool):
        check_decodes(model)
        self.banned_ids = {model.config.pad_id, sos_id} - {eos_id}  # no training targets; some models begin with <eos>
        self.model = model
        self.memory, self.memory_mask = model.encode(src)
        self.cache = CachedDecoder(model, self.memory, self.memory_mask) if use_cache and can_cache(model) else None

    def next_log_probs(self, tgt: Tensor) -> Tensor:
        """Return log-probabilities of what follows ``tgt``, ``[rows, length]``: ``[rows, tgt_vocab_size]``."""
        if self.cache is not None:
            logits = self.cache.step(tgt[:, -1:])[:, -1]
        else:
            width = len(tgt) // len(self.memory)
            memory = self.memory.repeat_interleave(width, dim=0)  # [rows, src_len, d_model]
            memory_mask = self.memory_mask.repeat_interleave(width, dim=0)
            logits = self.model.decode(tgt, memory, memory_mask)[:, -1]
        for i in self.banned_ids:
            logits[:, i] = -torch.inf
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)

    def select(self, rows: Tensor, sentences: Tensor) -> None:
        """Keep these rows, which belong to these sentences, in this order."""
        if self.cache is not None:
            self.cache.select(rows, sentences)
        elif len(sentences) < len(self.memory):
            self.memory, self.memory_mask = self.memory[sentences], self.memory_mask[sentences]


def check_search(beam_size: int, length_penalty: float, max_beam_size: int) -> None:
    """Raise a ValueError if no search is possible with these settings: a beam may be as wide as the vocabulary."""
    if not 0 <= length_penalty <= MAX_LENGTH_PENALTY:
        raise ValueError(f"length_penalty is {length_penalty}, expected 0 (none) to {MAX_LENGTH_PENALTY}, such as 0.6")
    if not 1 <= operator.index(beam_size) <= max_beam_size:
        raise ValueError(f"beam_size is {beam_size}, expected a whole number from 1 to {max_beam_size}")


def check_decodes(model: nn.Module) -> None:
    """Raise a TypeError if a model's class has a ``forward`` of its own, but no ``decode``, which a search calls."""
    for cls in type(model).__mro__:
        if "decode" in vars(cls):
            return
        if "forward" in vars(cls):
            raise TypeError(
                f"model is a {type(model).__name__}, which has a forward but no decode, which a search calls: it would "
                "translate without what forward adds. Write encode and decode, which forward calls"
            )


def _length_limits(model: Transformer, src: Tensor, max_len: int | None) -> Tensor:
    """Return how many tokens each sentence's output may have, ``[batch]``."""
    positions = model.config.max_len
    if max_len is not None and not 1 <= max_len <= positions:
        raise ValueError(f"max_len is {max_len}, expected 1 to the model's {positions} positions")
    is_token = src != model.config.pad_id
    if (is_token[:, 1:] & ~is_token[:, :-1]).any():
        raise ValueError("src has padding before a token, expected it on the right: it would move the positions")
    src_lengths = is_token.sum(dim=1)  # [batch]
    limits = src_lengths + EXTRA_LENGTH if max_len is None else torch.full_like(src_lengths, max_len)
    return limits.clamp(max=positions)
