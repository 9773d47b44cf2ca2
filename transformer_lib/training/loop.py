"""The training loop: one epoch, and evaluation (section 5). Notebook 05.

Any model can be trained that has a ``config`` and one method, ``logits_and_targets``. The names of its arguments say
which tensors of a batch it takes (``src`` and ``tgt``, or whatever yours are called); it returns logits,
``[batch, seq_len, vocab_size]``, and the tokens that should have been predicted, ``[batch, seq_len]``. Targets equal
to ``config.pad_id`` (−100 if there is none) do not count. To be saved, its class needs a ``config_class`` as well.
"""

import inspect
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from transformer_lib.data.batches import tensors_of
from transformer_lib.fast.swap import evaluating, hand_back
from transformer_lib.fast.worker import Worker
from transformer_lib.training import distributed
from transformer_lib.training.loss import rdrop_loss, sequence_loss
from transformer_lib.training.optimizer import MovingAverage

DIVERGED = "training has diverged; try a lower learning rate or a longer warm-up"
_NO_TOKENS = (
    "batches hold no token to predict: is the data set empty, has its iterator been used up, or did a DataLoader with "
    "drop_last=True drop the only batch?"
)
_CHECK_EVERY = {"cpu": 1}  # steps; on other devices 100, since reading a number there makes the CPU wait


class TrainedEpoch(NamedTuple):
    """The mean training loss, in nats per target token, and the number of skipped steps (see ``History``)."""

    loss: float
    skipped_steps: int


@dataclass
class History:
    """What happened in each epoch so far.

    Attributes:
        train_loss: mean over the epoch, in nats per target token, with dropout, label smoothing and R-Drop.
        val_loss: after the epoch, without these.
        seconds: how long the epoch took, validation included.
        skipped_steps: steps of all epochs that changed nothing, because their gradients overflowed in float16.
        first_val_loss: validation loss before the first epoch.
    """

    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    skipped_steps: int = 0
    first_val_loss: float = math.inf

    @property
    def best_epoch(self) -> int:
        """The epoch with the lowest validation loss, counted from 1; 0 if the initial model was never beaten."""
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
        batches: ``BucketBatches``, a ``DataLoader``, a list: any iterable of batches (see ``tensors_of``).
        optimizer, schedule: update the model, and the learning rate, at each step.
        max_grad_norm: gradients with a larger norm are scaled down to it.
        label_smoothing, rdrop_weight: see ``sequence_loss`` and ``rdrop_loss``.
        worker: computes in mixed precision, or compiled; by default, in the model's own precision.
        average: moving average of the weights, updated at each step.
        progress: show a progress bar; by default, on a terminal and in a notebook.

    Raises:
        FloatingPointError: a loss or a gradient is NaN or infinite, and so, probably, are the weights.
        ValueError: a batch lacks a tensor that the model asks for, or there is no token to predict.
    """
    model.train()
    worker = worker or Worker(model)
    if not worker.compile:
        worker.make_twin()  # the model may have been changed since the last epoch
    worker.twin.train()
    device, pad_id, names = next(model.parameters()).device, getattr(model.config, "pad_id", -100), input_names(model)
    # loss and tokens, whatever the default dtype; reading them at each step would force a GPU sync
    totals = torch.zeros(2, device=device, dtype=torch.float32)
    unchecked, skipped_steps = [], 0
    for number, batch in enumerate(_progress_bar(batches, "training", progress), start=1):
        whole = tensors_of(batch, names, device)
        if number == 1:
            distributed.check_same(whole)
        tensors = [distributed.shard(tensor) for tensor in whole]
        if rdrop_weight:  # every sentence goes through the model twice, in one batch
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
        unchecked.append((where, torch.stack([sums[0] / all_tokens, norm])))
        if len(unchecked) == _CHECK_EVERY.get(device.type, 100):
            skipped_steps += _check_finite(unchecked, worker.scaler.is_enabled(), label_smoothing)
        if schedule is not None:
            schedule.step()
        if average is not None:
            average.update_parameters(model)
    skipped_steps += _check_finite(unchecked, worker.scaler.is_enabled(), label_smoothing)
    hand_back(worker.twin, model)
    if math.isnan(loss := (totals[0] / totals[1]).item()):  # 0 / 0, since each step's loss is finite
        raise ValueError(_NO_TOKENS)
    return TrainedEpoch(loss, skipped_steps)


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Any], progress: bool | None = None) -> float:
    """Return the mean loss per target token, in nats, with dropout off (see ``perplexity``).

    The model keeps the mode (training or evaluation) that it was in.

    Raises:
        ValueError: a batch lacks a tensor that the model asks for, or there is no token to predict.
    """
    device, pad_id, names = next(model.parameters()).device, getattr(model.config, "pad_id", -100), input_names(model)
    sums = torch.zeros(2, device=device, dtype=torch.float32)  # loss and tokens
    with evaluating(model) as twin:
        for number, batch in enumerate(_progress_bar(batches, "evaluating", progress), start=1):
            whole = tensors_of(batch, names, device)
            if number == 1:
                distributed.check_same(whole)
            tensors = [distributed.shard(tensor) for tensor in whole]
            logits, targets = twin.logits_and_targets(*tensors)
            sums += torch.stack([sequence_loss(logits, targets, pad_id, reduction="sum"), (targets != pad_id).sum()])
    loss, tokens = distributed.all_reduce_sum(sums)
    if not tokens:
        raise ValueError(_NO_TOKENS)
    return (loss / tokens).item()


def perplexity(loss: float) -> float:
    """Return e to the power of a loss in nats: the model is as unsure as if it guessed among so many tokens."""
    return math.exp(loss) if loss < 700 else math.inf


def input_names(model: nn.Module) -> list[str]:
    """Return the names of the tensors that a model asks for: the arguments of its ``logits_and_targets``."""
    if not hasattr(model, "logits_and_targets"):
        raise TypeError(
            f"model is a {type(model).__name__} without logits_and_targets, the method that turns a batch into logits "
            "and targets: see transformer_lib/training/loop.py"
        )
    return list(inspect.signature(model.logits_and_targets).parameters)


def _check_finite(steps: list[tuple[str, Tensor]], skips_overflow: bool, label_smoothing: float) -> int:
    """Raise a FloatingPointError at the first step whose loss or gradient is NaN or infinite, and empty the list.

    Each step has a description, and its loss and gradient norm, ``[2]``. With ``skips_overflow``, as in float16, a step
    whose norm is not finite has changed nothing; the number of these is returned.
    """
    skipped = 0
    numbers = torch.stack([pair for _, pair in steps]).tolist() if steps else []
    for (where, _), (loss, norm) in zip(steps, numbers, strict=True):
        if loss == math.inf and label_smoothing:
            raise FloatingPointError(
                f"the training loss is inf in {where}: label_smoothing is {label_smoothing}, which gives every token a "
                "share, but the model seems to rule one out, with a logit of -inf: give one of the two up"
            )
        if not math.isfinite(loss):
            raise FloatingPointError(f"the training loss is {loss} in {where}: {DIVERGED}")
        if not math.isfinite(norm):
            if not skips_overflow:
                raise FloatingPointError(f"the gradient's norm is {norm} in {where}: {DIVERGED}")
            skipped += 1
    steps.clear()
    return skipped


def _progress_bar(batches: Iterable[Any], what: str, progress: bool | None) -> tqdm:
    """Iterate over batches, and show how far."""
    if progress is None:
        ipython = sys.modules.get("IPython")
        in_notebook = ipython is not None and ipython.get_ipython() is not None
        on_terminal = getattr(sys.stdout, "isatty", bool)()  # a service may have no standard output, or one of its own
        progress = (on_terminal or in_notebook) and distributed.is_first()
    return tqdm(batches, what, unit="batch", leave=False, disable=not progress, file=sys.stdout)
