"""What training minimises: cross-entropy with label smoothing (section 5.4)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lib.fast.loss import chunked_cross_entropy
from transformer_lib.fast.worker import Worker


def sequence_loss(
    logits: Tensor, targets: Tensor, pad_id: int, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Compute the cross-entropy, in nats, of predicting ``targets``; padding does not count.

    Args:
        logits: ``[batch, tgt_len, tgt_vocab_size]``.
        targets: the tokens that should have been predicted, ``[batch, tgt_len]``.
        pad_id: id of padding.
        label_smoothing: share of the probability that goes to all tokens alike (section 5.4).
        reduction: ``"mean"`` over the real tokens, or their ``"sum"``.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # sums of many halves would overflow
    return F.cross_entropy(
        logits.flatten(0, 1),  # [batch · tgt_len, tgt_vocab_size]
        targets.flatten(),
        ignore_index=pad_id,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )


def rdrop_loss(
    logits: Tensor, targets: Tensor, pad_id: int, label_smoothing: float = 0.0, rdrop_weight: float = 0.0
) -> Tensor:
    """Compute R-Drop's loss (Liang et al. 2021, equation 4, halved) of two passes that dropout has made different.

    It is the mean of both passes' ``sequence_loss``, plus ``rdrop_weight`` (half of the paper's α) times the mean of
    the two Kullback-Leibler divergences between what the passes predict. Notebook 09, section 6.

    Args:
        logits: of both passes, one below the other, ``[2 · batch, tgt_len, tgt_vocab_size]``.
        targets: the tokens that should have been predicted, ``[batch, tgt_len]``.
        pad_id, label_smoothing: as in ``sequence_loss``.
        rdrop_weight: weight of the disagreement.
    """
    cross_entropy = sequence_loss(logits, targets.repeat(2, 1), pad_id, label_smoothing)
    log_p, log_q = logits.float().log_softmax(dim=-1).chunk(2)  # [batch, tgt_len, tgt_vocab_size] each
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1) / 2  # [batch, tgt_len]
    real = targets != pad_id
    return cross_entropy + rdrop_weight * divergence.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)


def batch_loss(
    worker: Worker, tensors: Sequence[Tensor], pad_id: int, label_smoothing: float = 0.0, rdrop_weight: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Let a model predict a batch, and say how well it did.

    Args:
        worker: what computes.
        tensors: what the model's ``logits_and_targets`` takes, on its device.
        pad_id, label_smoothing: as in ``sequence_loss``.
        rdrop_weight: as in ``rdrop_loss``; 0 for one pass.

    Returns:
        The mean loss per real token, in nats, and the number of real tokens.
    """
    if rdrop_weight:
        tensors = [torch.cat([tensor, tensor]) for tensor in tensors]
    if worker.without_output is not None:
        hidden_states, targets = worker.without_output.logits_and_targets(*tensors)
    else:
        logits, targets = worker.twin.logits_and_targets(*tensors)
    if rdrop_weight:
        targets = targets.chunk(2)[0]
    if worker.without_output is not None:
        output = worker.twin.output
        loss = chunked_cross_entropy(output, hidden_states, targets, pad_id, label_smoothing, rdrop_weight)
    elif rdrop_weight:
        loss = rdrop_loss(logits, targets, pad_id, label_smoothing, rdrop_weight)
    else:
        loss = sequence_loss(logits, targets, pad_id, label_smoothing)
    return loss, (targets != pad_id).sum()
