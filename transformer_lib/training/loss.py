"""What training minimises: cross-entropy with label smoothing (section 5.4), and R-Drop."""

import torch
import torch.nn.functional as F
from torch import Tensor


def sequence_loss(
    logits: Tensor, targets: Tensor, pad_id: int, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Compute the cross-entropy, in nats, of predicting ``targets``; padding does not count.

    Args:
        logits: ``[batch, tgt_len, tgt_vocab_size]``.
        targets: the tokens that should have been predicted, ``[batch, tgt_len]``.
        pad_id: id of padding.
        label_smoothing: share of the probability that is spread evenly over all tokens (section 5.4).
        reduction: ``"mean"`` over the tokens that are not padding, or their ``"sum"``.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # a sum of float16 would overflow
    logits = logits.flatten(0, 1)  # [batch · tgt_len, tgt_vocab_size]
    how = {"ignore_index": pad_id, "label_smoothing": label_smoothing, "reduction": "sum"}
    total = F.cross_entropy(logits, targets.flatten(), **how)
    if reduction == "sum":
        return total
    return total / (targets != pad_id).sum().clamp(min=1)  # one of several processes may have no tokens


def rdrop_loss(
    logits: Tensor, targets: Tensor, pad_id: int, label_smoothing: float = 0.0, rdrop_weight: float = 0.0
) -> Tensor:
    """Compute R-Drop's loss (Liang et al. 2021, equation 4, halved) of two passes that differ by their dropout.

    It is the mean of both passes' ``sequence_loss``, plus ``rdrop_weight`` (half of the paper's α) times the mean of
    the two Kullback-Leibler divergences between their predictions. Notebook 13, section 5.

    Args:
        logits: the first pass's, then the second's, ``[2 · batch, tgt_len, tgt_vocab_size]``.
        targets, pad_id, label_smoothing: as in ``sequence_loss``, for one pass.
        rdrop_weight: weight of the divergences.
    """
    cross_entropy = sequence_loss(logits, targets.repeat(2, 1), pad_id, label_smoothing)
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_p, log_q = logits.log_softmax(dim=-1, dtype=wide).chunk(2)  # [batch, tgt_len, tgt_vocab_size] each
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1) / 2  # [batch, tgt_len]
    real = targets != pad_id
    return cross_entropy + rdrop_weight * divergence.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)
