"""Finding a good translation: greedy and beam search, batched, with a key/value cache (section 6.1)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.inference.kv_cache import make_decoder
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
    _check_decode(model)
    check_search(beam_size, length_penalty, model.config.tgt_vocab_size)
    limits = _length_limits(src, model.config, max_len)  # [sentences]
    prefix = src[:, :0] if prefix is None else prefix
    _check_prefix(prefix, model.config, limits, sos_id, eos_id)
    never = list({model.config.pad_id, sos_id} - {eos_id})  # no training targets; some models begin with <eos>
    finished: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    sentences = list(range(len(src)))  # numbers of those that are still in the batch
    with evaluation_mode(model):
        decoder = make_decoder(model, *model.encode(src), use_cache)
        tgt = torch.full((len(src), 1), sos_id, device=src.device)  # [rows, length]: a sentence's rows are its beam
        log_probs = torch.zeros(len(src), 1, device=src.device)  # [sentences, width]; soon, width is beam_size
        while sentences:
            length = tgt.shape[1]  # of what this step writes, without <sos>
            step = _log_probs(decoder.step(tgt[:, -1:])[:, -1], never).unflatten(0, log_probs.shape)
            step = _force(step, prefix, length, model.config.pad_id)  # [sentences, width, tgt_vocab_size]
            best, rows, token = beam_step(log_probs, step, beam_size)  # each [sentences, candidates]
            ends = (token == eos_id) | (length >= limits)[:, None]
            log_probs, chosen = best.masked_fill(ends, -torch.inf).topk(beam_size)  # the best that go on

            penalty = ((5 + length) / 6) ** length_penalty
            ended = best.masked_fill(~ends, -torch.inf)[:, :beam_size]
            numbers = torch.cat([ended, log_probs[:, :1] / penalty], dim=1).tolist()  # one wait for a GPU, not two
            for n, hypothesis in _hypotheses(numbers, tgt, rows, token, penalty):
                finished[sentences[n]].append(hypothesis)
            going_on = [
                n
                for n in range(len(sentences))
                if _may_improve(finished[sentences[n]], best_open=numbers[n][-1], beam_size=beam_size)
            ]
            sentences = [sentences[n] for n in going_on]

            kept = torch.tensor(going_on, dtype=torch.long, device=src.device)
            rows = rows.gather(1, chosen)[kept].flatten()  # [sentences · beam]
            token = token.gather(1, chosen)[kept].flatten()
            if beam_size > 1 or len(kept) < len(limits):  # or else, all rows stay where they are
                decoder.select(rows, kept)
            tgt = torch.cat([tgt[rows], token[:, None]], dim=1)
            log_probs = log_probs[kept]
            limits = limits[kept]
            prefix = prefix[kept]
    if not all(finished):
        raise FloatingPointError("the model predicts nan: are its weights damaged, or too large for its precision?")
    return [sorted(hypotheses, key=lambda one: -one.score)[:beam_size] for hypotheses in finished]


def beam_step(log_probs: Tensor, step: Tensor, beam_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find each sentence's best candidates: one token more for one of its partial hypotheses. Notebook 07, section 5.

    Args:
        log_probs: of the partial hypotheses, ``[sentences, width]``.
        step: of each token that may follow, ``[sentences, width, tgt_vocab_size]``; it is overwritten.

    Returns twice the beam, so that it is full again even if half of them end here: log-probabilities, the row of
    ``tgt`` that each continues, and its token, ``[sentences, candidates]``. In greedy search, one candidate is enough.
    """
    sentences, width, vocab_size = step.shape
    candidates = step.add_(log_probs[:, :, None]).flatten(1)  # [sentences, width · tgt_vocab_size]
    if beam_size == 1:
        best, index = candidates.max(dim=1, keepdim=True)  # faster than topk
    else:
        best, index = candidates.topk(min(2 * beam_size, candidates.shape[1]), dim=1)
    first_row = torch.arange(sentences, device=step.device)[:, None] * width
    return best, first_row + index // vocab_size, index % vocab_size


def _log_probs(logits: Tensor, never: list[int]) -> Tensor:
    """Turn logits, ``[rows, tgt_vocab_size]``, into log-probabilities in which these ids are ruled out."""
    logits[:, never] = -torch.inf
    wide = torch.promote_types(logits.dtype, torch.float32)
    return logits.to(wide).log_softmax(dim=-1)


def _force(step: Tensor, prefix: Tensor, length: int, pad_id: int) -> Tensor:
    """Rule out all tokens but those that the outputs have to begin with."""
    if length > prefix.shape[1]:
        return step
    given = prefix[:, length - 1, None, None]  # [sentences, 1, 1]
    all_ids = torch.arange(step.shape[-1], device=step.device)
    return step.masked_fill_((given != pad_id) & (given != all_ids), -torch.inf)


def _hypotheses(
    numbers: list[list[float]], tgt: Tensor, rows: Tensor, token: Tensor, penalty: float
) -> Iterator[tuple[int, Hypothesis]]:
    """Yield each candidate that ends here, and the place of its sentence in the batch.

    ``numbers`` are of each sentence: the log-probabilities of its candidates, if they end, and one number more.
    """
    places = [(n, j) for n, row in enumerate(numbers) for j, ends in enumerate(row[:-1]) if math.isfinite(ends)]
    if not places:
        return
    sentence, candidate = torch.tensor(places, device=tgt.device).T
    ids = torch.cat([tgt[rows[sentence, candidate], 1:], token[sentence, candidate, None]], dim=1)
    for (n, j), hypothesis_ids in zip(places, ids.tolist(), strict=True):
        yield n, Hypothesis(hypothesis_ids, numbers[n][j], numbers[n][j] / penalty)


def _may_improve(finished: list[Hypothesis], best_open: float, beam_size: int) -> bool:
    """Return whether a sentence is searched on: its beam is not full, or an open hypothesis is ahead of all."""
    if not best_open > -torch.inf:  # there is none, or the model predicts NaN
        return False
    return len(finished) < beam_size or max(hypothesis.score for hypothesis in finished) < best_open


def _length_limits(src: Tensor, config: TransformerConfig, max_len: int | None) -> Tensor:
    """Return how many tokens each sentence's output may have, ``[sentences]``."""
    is_token = src != config.pad_id
    if (is_token[:, 1:] & ~is_token[:, :-1]).any():
        raise ValueError("src has padding before a token, expected it on the right: it would move the positions")
    if max_len is not None and max_len < 1:
        raise ValueError(f"max_len is {max_len}, expected 1 or more tokens")
    src_lengths = is_token.sum(dim=1)
    limits = src_lengths + 50 if max_len is None else torch.full_like(src_lengths, max_len)
    return limits.clamp(max=config.max_len)


def _check_decode(model: nn.Module) -> None:
    """Raise a TypeError if a class has a ``forward`` of its own and no ``decode``, which is what a search calls."""
    owner = next(cls for cls in type(model).__mro__ if {"forward", "decode"} & vars(cls).keys())
    if "decode" not in vars(owner):  # what its forward adds would be left out of every translation
        raise TypeError(f"model is a {type(model).__name__}, which has a forward but no decode for it to call")


def check_search(beam_size: int, length_penalty: float, max_beam_size: int) -> None:
    """Raise a ValueError if no search is possible with these settings."""
    if not _is_number(length_penalty, Real) or not 0 <= length_penalty <= 10:
        raise ValueError(f"length_penalty is {length_penalty!r}, expected 0 (none) to 10, such as 0.6")
    if not _is_number(beam_size, Integral) or not 1 <= beam_size <= max_beam_size:
        raise ValueError(f"beam_size is {beam_size!r}, expected a whole number from 1 to {max_beam_size}")


def _is_number(value: Any, kind: type) -> bool:
    """Return whether a value, which may come from anybody's file, is a number of a kind; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _check_prefix(prefix: Tensor, config: TransformerConfig, limits: Tensor, sos_id: int, eos_id: int) -> None:
    """Raise a ValueError unless every output can begin with its prefix, if there is any."""
    if not prefix.numel():
        return
    check_ids("prefix", prefix, config.tgt_vocab_size)
    if len(prefix) != len(limits):
        raise ValueError(f"prefix has {len(prefix)} rows, expected one for each of {len(limits)} sentences")
    if ((prefix == sos_id) | (prefix == eos_id)).any():
        raise ValueError(f"prefix holds <sos> or <eos> ({sos_id} or {eos_id}), expected what comes between them")
    places = torch.arange(1, prefix.shape[1] + 1, device=prefix.device)
    is_too_long = ((prefix != config.pad_id) * places).amax(dim=1) >= limits  # where its last token stands
    if is_too_long.any():
        limit = limits[is_too_long][0]
        raise ValueError(f"prefix fills all {limit} tokens that an output may have, expected fewer")
