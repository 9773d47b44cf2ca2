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
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from transformer_lib.data.batches import BucketBatches, prefetch, tensors_of
from transformer_lib.fast.swap import parts_for, twin
from transformer_lib.fast.worker import Worker
from transformer_lib.training import distributed
from transformer_lib.training.divergence import DivergenceWatch
from transformer_lib.training.loss import rdrop_loss, sequence_loss
from transformer_lib.training.optimizer import MovingAverage


class TrainedEpoch(NamedTuple):
    """What ``train_epoch`` returns.

    Attributes:
        loss: mean per target token, in nats: what is minimised, label smoothing and R-Drop included.
        skipped_steps: how many steps changed nothing, since their gradients overflowed; never any but in float16.
    """

    loss: float
    skipped_steps: int


@dataclass
class History:
    """What happened in each epoch so far: loss in nats per token, time in seconds.

    Attributes:
        train_loss: mean over the epoch, dropout (and label smoothing, if any) included.
        val_loss: after the epoch, without either.
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
        optimizer: what updates the model.
        schedule: what changes the learning rate after each step, if anything.
        max_grad_norm: gradients with a larger norm are scaled down to it.
        label_smoothing: see ``sequence_loss``.
        rdrop_weight: see ``rdrop_loss``.
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
    device, pad_id, names = next(model.parameters()).device, pad_id_of(model), input_names(model)
    watch = DivergenceWatch(device, worker.scaler.is_enabled())
    total_loss = torch.zeros((), device=device)  # stays on the device: reading it at each step would force a GPU sync
    total_tokens = torch.zeros((), dtype=torch.long, device=device)
    for batch in _progress_bar(batches, "training", progress):
        whole = tensors_of(batch, names, device)
        tensors = distributed.shard_tensors(whole)
        if rdrop_weight:  # every sentence goes through the model twice, side by side
            logits, targets = worker.logits_and_targets([torch.cat([tensor, tensor]) for tensor in tensors])
            targets = targets.chunk(2)[0]
            loss = rdrop_loss(logits, targets, pad_id, label_smoothing, rdrop_weight)
        else:
            logits, targets = worker.logits_and_targets(tensors)
            loss = sequence_loss(logits, targets, pad_id, label_smoothing)
        tokens = (targets != pad_id).sum()
        sums = distributed.all_reduce_sum(torch.stack([loss.detach() * tokens, tokens]))  # over all processes
        all_tokens = sums[1].clamp(min=1)
        worker.backward(loss * (tokens / all_tokens))
        distributed.add_gradients(model.parameters())
        norm = worker.step(optimizer, max_grad_norm)
        sizes = dict(zip(names, whole, strict=True))
        watch.step(sums[0] / all_tokens, norm, optimizer.param_groups[0]["lr"], sizes)
        if schedule is not None:
            schedule.step()
        if average is not None:
            average.update_parameters(model)
        total_loss += loss.detach() * tokens
        total_tokens += tokens
    watch.look()
    mean = distributed.all_reduce_sum(total_loss) / distributed.all_reduce_sum(total_tokens)
    return TrainedEpoch(mean.item(), watch.skipped_steps)


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Any], progress: bool | None = None) -> float:
    """Return the mean loss per target token, in nats, with dropout off (see ``perplexity``).

    The model keeps the mode (training or evaluation) that it was in.
    """
    device, pad_id, names = next(model.parameters()).device, pad_id_of(model), input_names(model)
    model = twin(model, parts_for(device)).eval()
    total_loss, total_tokens = torch.zeros((), device=device), torch.zeros((), dtype=torch.long, device=device)
    for batch in _progress_bar(batches, "evaluating", progress):
        logits, targets = model.logits_and_targets(*distributed.shard_tensors(tensors_of(batch, names, device)))
        total_loss += sequence_loss(logits, targets, pad_id, reduction="sum")
        total_tokens += (targets != pad_id).sum()
    return (distributed.all_reduce_sum(total_loss) / distributed.all_reduce_sum(total_tokens)).item()


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


def pad_id_of(model: nn.Module) -> int:
    """Return the id of targets that do not count; PyTorch's −100 if the model's configuration has no ``pad_id``."""
    return getattr(model.config, "pad_id", -100)


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
