"""The training loop: one epoch, and evaluation (section 5). Notebook 05.

Any model can be trained that has a ``config`` and one method, ``logits_and_targets``. Its arguments are the tensors
that it needs of a batch, by their names (``src`` and ``tgt``, or whatever yours are called); it returns logits,
``[batch, seq_len, vocab_size]``, and the tokens that should have been predicted, ``[batch, seq_len]``. Targets equal
to ``config.pad_id`` (−100 if there is none) do not count. To be saved, its class needs a ``config_class`` as well.
"""

import inspect
import math
import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from transformer_lib.data.batches import BucketBatches, prefetch, tensors_of
from transformer_lib.fast.swap import parts_for, twin
from transformer_lib.fast.worker import Worker
from transformer_lib.training import distributed
from transformer_lib.training.loss import rdrop_loss, sequence_loss
from transformer_lib.training.optimizer import MovingAverage

DIVERGED = "training has diverged; try a lower learning rate or a longer warm-up"
_LOOK_EVERY = {"cpu": 1}  # so many steps; on other devices a hundred


class TrainedEpoch(NamedTuple):
    """What ``train_epoch`` returns: its mean loss per target token, in nats, and what ``History`` says."""

    loss: float
    skipped_steps: int


@dataclass
class History:
    """What happened in each epoch so far: loss in nats per token, time in seconds.

    Attributes:
        train_loss: mean over the epoch, dropout (and label smoothing and R-Drop, if any) included.
        val_loss: after the epoch, without these.
        seconds: time that the epoch took, evaluation included.
        skipped_steps: how many steps of all epochs changed nothing, since their gradients overflowed in float16.
        first_val_loss: of the model that the training started from.
    """

    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    skipped_steps: int = 0
    first_val_loss: float = math.inf

    @property
    def best_epoch(self) -> int:
        """The number of the epoch with the lowest validation loss; 0 if the model was never better than before."""
        losses = [self.first_val_loss, *self.val_loss]
        return min(range(len(losses)), key=losses.__getitem__)


def train_epoch(
    model: nn.Module,
    batches: Iterable[Any],
    optimizer: Optimizer,
    schedule: LRScheduler | None = None,
    max_grad_norm: float = 1.0,
    label_smoothing: float = 0.0,
    rdrop_weight: float = 0.0,
    worker: Worker | None = None,
    average: MovingAverage | None = None,
    progress: bool | None = None,
) -> TrainedEpoch:
    """Train on every batch once. Notebook 05, section 5.

    Args:
        model: any model that this module's docstring describes; it is left in training mode.
        batches: of any kind: ``BucketBatches``, a ``DataLoader``, a list (see ``tensors_of``).
        optimizer, schedule: what updates the model, and its learning rate after each step.
        max_grad_norm: gradients with a larger norm are scaled down to it.
        label_smoothing, rdrop_weight: see ``sequence_loss`` and ``rdrop_loss``.
        worker: what computes, in half precision or compiled; by default, in the model's own precision.
        average: of the model's weights, to be updated after each step.
        progress: show a progress bar; by default, on a terminal and in a notebook.

    Raises:
        FloatingPointError: a loss or a gradient is NaN or infinite, and then the weights probably are, too.
        ValueError: a batch lacks a tensor that the model asks for.
    """
    model.train()
    worker = worker or Worker(model)
    if not worker.compile:
        worker.make_twin()  # what has been changed since the last epoch counts
    worker.twin.train()
    device, pad_id, names = next(model.parameters()).device, getattr(model.config, "pad_id", -100), input_names(model)
    totals = torch.zeros(2, device=device)  # loss and tokens; to read numbers at each step would force a GPU sync
    unseen, most_unseen, skipped_steps = [], _LOOK_EVERY.get(device.type, 100), 0
    for number, batch in enumerate(_progress_bar(batches, "training", progress), start=1):
        whole = tensors_of(batch, names, device)
        tensors = [distributed.shard(tensor) for tensor in whole]
        if rdrop_weight:  # every sentence goes through the model twice, side by side
            logits, targets = worker.logits_and_targets([torch.cat([tensor, tensor]) for tensor in tensors])
            targets = targets.chunk(2)[0]
            loss = rdrop_loss(logits, targets, pad_id, label_smoothing, rdrop_weight)
        else:
            logits, targets = worker.logits_and_targets(tensors)
            loss = sequence_loss(logits, targets, pad_id, label_smoothing)
        tokens = (targets != pad_id).sum()
        sums = distributed.all_reduce_sum(torch.stack([loss.detach() * tokens, tokens]))  # over all processes
        totals += sums
        all_tokens = sums[1].clamp(min=1)
        worker.backward(loss * (tokens / all_tokens))
        distributed.add_gradients(model.parameters())
        norm = worker.step(optimizer, max_grad_norm)
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in zip(names, whole, strict=True))
        where = f"step {number} of the epoch (learning rate {optimizer.param_groups[0]['lr']:.3g}, batch {shapes})"
        unseen.append((where, torch.stack([sums[0] / all_tokens, norm])))
        if len(unseen) == most_unseen:
            skipped_steps += _look_at(unseen, worker.scaler.is_enabled())
        if schedule is not None:
            schedule.step()
        if average is not None:
            average.update_parameters(model)
    skipped_steps += _look_at(unseen, worker.scaler.is_enabled())
    return TrainedEpoch((totals[0] / totals[1]).item(), skipped_steps)


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Any], progress: bool | None = None) -> float:
    """Return the mean loss per target token, in nats, with dropout off (see ``perplexity``).

    The model keeps the mode (training or evaluation) that it was in.
    """
    device, pad_id, names = next(model.parameters()).device, getattr(model.config, "pad_id", -100), input_names(model)
    model = twin(model, parts_for(device)).eval()
    sums = torch.zeros(2, device=device)  # loss and tokens
    for batch in _progress_bar(batches, "evaluating", progress):
        tensors = [distributed.shard(tensor) for tensor in tensors_of(batch, names, device)]
        logits, targets = model.logits_and_targets(*tensors)
        sums += torch.stack([sequence_loss(logits, targets, pad_id, reduction="sum"), (targets != pad_id).sum()])
    loss, tokens = distributed.all_reduce_sum(sums)
    return (loss / tokens).item()


def perplexity(loss: float) -> float:
    """Return e to the power of a loss in nats: among how many tokens the model might as well have guessed."""
    return math.exp(loss) if loss < 700 else math.inf


def input_names(model: nn.Module) -> list[str]:
    """Return the names of the tensors that a model asks for: the arguments of its ``logits_and_targets``.

    Raises:
        TypeError: it has no such method.
    """
    if not hasattr(model, "logits_and_targets"):
        raise TypeError(
            f"model is a {type(model).__name__} without logits_and_targets, the method that says how a batch becomes "
            "predictions and targets: see transformer_lib/training/loop.py"
        )
    return list(inspect.signature(model.logits_and_targets).parameters)


def _look_at(steps: list[tuple[str, Tensor]], skips_overflow: bool) -> int:
    """Raise a FloatingPointError at the first of these steps whose loss or gradient is NaN or infinite.

    Args:
        steps: for each, where it was, its loss and its gradient's norm before clipping, ``[2]``; it is emptied.
        skips_overflow: whether a step whose gradient is infinite changes nothing, as in float16 with scaled gradients.

    Returns:
        How many steps changed nothing.
    """
    skipped = 0
    numbers = torch.stack([pair for _, pair in steps]).tolist() if steps else []
    for (where, _), (loss, norm) in zip(steps, numbers, strict=True):
        if not math.isfinite(loss):
            raise FloatingPointError(f"the training loss is {loss} in {where}: {DIVERGED}")
        if not math.isfinite(norm):
            if not skips_overflow:
                raise FloatingPointError(f"the gradient's norm is {norm} in {where}: {DIVERGED}")
            skipped += 1
    steps.clear()
    return skipped


def _progress_bar(batches: Iterable[Any], what: str, progress: bool | None) -> tqdm:
    """Run through batches, and show how far. Ours are made in a thread while the one before is used.

    Others might draw random numbers there, and then chance would decide whether they or dropout come first.
    """
    if progress is None:
        ipython = sys.modules.get("IPython")
        in_notebook = ipython is not None and ipython.get_ipython() is not None
        progress = (sys.stdout.isatty() or in_notebook) and distributed.is_first()
    total = operator.length_hint(batches) or None
    batches = prefetch(batches) if isinstance(batches, BucketBatches) else batches
    return tqdm(batches, what, total, unit="batch", leave=False, disable=not progress, file=sys.stdout)
