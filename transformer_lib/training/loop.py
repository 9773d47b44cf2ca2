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
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from transformer_lib.data.batches import tensors_of
from transformer_lib.fast.precision import half_precision
from transformer_lib.model.evaluation import evaluation_mode
from transformer_lib.training import distributed
from transformer_lib.training.loss import rdrop_loss, sequence_loss
from transformer_lib.training.optimizer import MovingAverage

_NO_TOKENS = (
    "batches hold no token to predict: is the data set empty, has its iterator been used up, or did a DataLoader with "
    "drop_last=True drop the only batch?"
)


@dataclass
class History:
    """What happened in each epoch so far.

    Attributes:
        train_loss: mean over the epoch, in nats per target token, with dropout, label smoothing and R-Drop.
        val_loss: after the epoch, without these.
        seconds: how long the epoch took, validation included.
        first_val_loss: validation loss before the first epoch.
    """

    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
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
    precision: str = "float32",
    scaler: torch.amp.GradScaler | None = None,
    average: MovingAverage | None = None,
    progress: bool | None = None,
) -> float:
    """Train on every batch once, and return the mean loss, in nats per target token. Notebook 05, section 5.

    Args:
        model: any model that this module's docstring describes; it is left in training mode.
        batches: ``BucketBatches``, a ``DataLoader``, a list: any iterable of batches (see ``tensors_of``).
        optimizer, schedule: update the model, and the learning rate, at each step.
        max_grad_norm: gradients with a larger norm are scaled down to it.
        label_smoothing, rdrop_weight: see ``sequence_loss`` and ``rdrop_loss``.
        precision: what matrices are multiplied in (Micikevicius et al. 2018), ``"float32"`` or ``"bfloat16"`` (see
            ``half_precision``); the weights stay in float32, where small updates are not rounded away.
        scaler: keeps small gradients from being rounded to zero in float16 (see ``make_scaler``).
        average: moving average of the weights, updated at each step.
        progress: show a progress bar; by default, on a terminal and in a notebook.

    Raises:
        FloatingPointError: the loss is NaN or infinite, and so, probably, are the weights.
        ValueError: a batch lacks a tensor that the model asks for, or there is no token to predict.
    """
    model.train()
    device, pad_id, names = next(model.parameters()).device, getattr(model.config, "pad_id", -100), input_names(model)
    dtype = half_precision(device) if precision == "bfloat16" else torch.float32
    autocast = nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)
    scaler = scaler or make_scaler(device, precision)
    check_every = 1 if device.type == "cpu" else 100  # steps; to read a number of a GPU's, the CPU has to wait
    totals = torch.zeros(2, device=device, dtype=torch.float32)  # loss and tokens of the epoch
    for step, batch in enumerate(_progress_bar(batches, "training", progress), start=1):
        tensors = [distributed.shard(tensor) for tensor in tensors_of(batch, names, device)]
        if rdrop_weight:  # every sentence goes through the model twice, in one batch
            tensors = [torch.cat([tensor, tensor]) for tensor in tensors]
        with autocast:
            logits, targets = model.logits_and_targets(*tensors)
        if rdrop_weight:
            targets = targets.chunk(2)[0]
            loss = rdrop_loss(logits, targets, pad_id, label_smoothing, rdrop_weight)
        else:
            loss = sequence_loss(logits, targets, pad_id, label_smoothing)
        tokens = (targets != pad_id).sum()
        sums = distributed.all_reduce_sum(torch.stack([loss.detach() * tokens, tokens]))  # over all processes
        totals += sums
        if step % check_every == 0 and not totals[0].isfinite():
            _diverged(totals[0].item(), step, label_smoothing)

        model.zero_grad()
        scaler.scale(loss * (tokens / sums[1].clamp(min=1))).backward()
        distributed.add_gradients(model.parameters())
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        scaler.step(optimizer)  # in float16, not if a gradient is infinite: then update() lowers the scale
        scaler.update()
        if schedule is not None:
            schedule.step()
        if average is not None:
            average.update_parameters(model)
    loss, tokens = totals.tolist()
    if not tokens:
        raise ValueError(_NO_TOKENS)
    if not math.isfinite(loss):
        _diverged(loss, step, label_smoothing)
    return loss / tokens


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Any], progress: bool | None = None) -> float:
    """Return the mean loss per target token, in nats, with dropout off (see ``perplexity``).

    The model keeps the mode (training or evaluation) that it was in.

    Raises:
        ValueError: a batch lacks a tensor that the model asks for, or there is no token to predict.
    """
    device, pad_id, names = next(model.parameters()).device, getattr(model.config, "pad_id", -100), input_names(model)
    sums = torch.zeros(2, device=device, dtype=torch.float32)  # loss and tokens
    with evaluation_mode(model):
        for batch in _progress_bar(batches, "evaluating", progress):
            tensors = [distributed.shard(tensor) for tensor in tensors_of(batch, names, device)]
            logits, targets = model.logits_and_targets(*tensors)
            sums += torch.stack([sequence_loss(logits, targets, pad_id, reduction="sum"), (targets != pad_id).sum()])
    loss, tokens = distributed.all_reduce_sum(sums).tolist()
    if not tokens:
        raise ValueError(_NO_TOKENS)
    return loss / tokens


def perplexity(loss: float) -> float:
    """Return e to the power of a loss in nats: the model is as unsure as if it guessed among so many tokens."""
    return math.exp(loss) if loss < 700 else math.inf


def make_scaler(device: torch.device, precision: str) -> torch.amp.GradScaler:
    """Return what scales the loss up before the backward pass, and the gradients down after it, in float16 only."""
    is_float16 = precision == "bfloat16" and half_precision(device) == torch.float16
    return torch.amp.GradScaler(device.type, enabled=is_float16)


def input_names(model: nn.Module) -> list[str]:
    """Return the names of the tensors that a model asks for: the arguments of its ``logits_and_targets``."""
    if not hasattr(model, "logits_and_targets"):
        raise TypeError(
            f"model is a {type(model).__name__} without logits_and_targets, the method that turns a batch into logits "
            "and targets: see transformer_lib/training/loop.py"
        )
    return list(inspect.signature(model.logits_and_targets).parameters)


def _diverged(loss: float, step: int, label_smoothing: float) -> None:
    advice = "try a lower learning rate or a longer warm-up"
    if loss == math.inf and label_smoothing:  # which gives every token a share
        advice += f", or label_smoothing=0 (it is {label_smoothing}) if the model rules a token out by a logit of -inf"
    raise FloatingPointError(f"training has diverged: by step {step} of the epoch, the loss is {loss}; {advice}")


def _progress_bar(batches: Iterable[Any], what: str, progress: bool | None) -> tqdm:
    """Iterate over batches, and show how far."""
    if progress is None:
        ipython = sys.modules.get("IPython")
        in_notebook = ipython is not None and ipython.get_ipython() is not None
        on_terminal = getattr(sys.stdout, "isatty", bool)()  # a service may have no standard output
        progress = (on_terminal or in_notebook) and distributed.is_first()
    return tqdm(batches, what, unit="batch", leave=False, disable=not progress, file=sys.stdout)
