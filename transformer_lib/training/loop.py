"""The training loop: one epoch, and evaluation (section 5). Notebook 06.

Any model can be trained that has a ``config`` and one method, ``logits_and_targets``. The names of its arguments say
which tensors of a batch it takes (``src`` and ``tgt``, or whatever yours are called); it returns logits,
``[batch, seq_len, vocab_size]``, and the tokens that should have been predicted, ``[batch, seq_len]``. Targets equal
to ``config.pad_id`` (−100 if there is none) do not count. To be saved, its class needs a ``config_class`` as well.
"""

import inspect
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from transformer_lib.checkpoint import check_class
from transformer_lib.data.batches import tensors_of
from transformer_lib.fast.precision import fast_dtype
from transformer_lib.model.evaluation import evaluation_mode
from transformer_lib.training import distributed
from transformer_lib.training.loss import rdrop_loss, sequence_loss
from transformer_lib.training.optimizer import MovingAverage
from transformer_lib.training.recipe import Recipe


@dataclass
class History:
    """What each validation found; losses in nats per target token.

    There is one after each epoch, or if the recipe says ``validate_every``, after so many steps and at the end.
    """

    train_loss: list[float] = field(default_factory=list)  # with dropout, label smoothing and R-Drop
    val_loss: list[float] = field(default_factory=list)  # afterwards, without these
    seconds: list[float] = field(default_factory=list)  # of training and validation
    steps: list[int] = field(default_factory=list)  # made by then, since the run began
    first_val_loss: float = math.inf  # before the first epoch

    @property
    def best_epoch(self) -> int:
        """Number of the validation with the lowest loss, from 1 on: the epoch's, unless there are several in one.

        It is 0 if the initial model was never beaten.
        """
        losses = [self.first_val_loss, *self.val_loss]
        return min(range(len(losses)), key=losses.__getitem__)


def train_epoch(model: nn.Module, batches: Iterable[Any], optimizer: Optimizer, *more: Any, **options: Any) -> float:
    """Train on every batch once, and return the mean loss, in nats per target token. Notebook 06, section 3.

    Arguments and errors are those of ``train_steps``.
    """
    totals = torch.zeros(2, device=next(model.parameters()).device, dtype=torch.float32)
    for sums in train_steps(model, batches, optimizer, *more, **options):
        totals += sums
    return mean_loss(totals)


def train_steps(
    model: nn.Module,
    batches: Iterable[Any],
    optimizer: Optimizer,
    schedule: LRScheduler | None = None,
    recipe: Recipe = Recipe(),  # noqa: B008 (it cannot change)
    scaler: torch.amp.GradScaler | None = None,
    average: MovingAverage | None = None,
    progress: bool | None = None,
    replica: Callable[..., tuple[Tensor, Tensor]] | None = None,
) -> Iterator[Tensor]:
    """Train on every batch once; after each step, yield its loss, summed over target tokens, and their number, ``[2]``.

    Whoever iterates may look at the model, save it, or stop between two steps.

    Args:
        model: any model that this module's docstring describes; it is left in training mode.
        batches: ``BucketBatches``, a ``DataLoader``, a list: any iterable of batches (see ``tensors_of``); or a data
            set, cut into batches as the recipe says.
        optimizer, schedule, average: updated at each step.
        recipe: its ``max_grad_norm``, ``label_smoothing``, ``rdrop_weight``, ``accumulate_steps`` and ``precision``. In
            bfloat16, matrices are multiplied (Micikevicius et al. 2018); weights stay in float32, which rounds no small
            update away.
        scaler: keeps small gradients from being rounded to zero in float16 (see ``make_scaler``).
        progress: show a progress bar; by default, on a terminal and in a notebook.
        replica: of several processes, what ``distributed.replicate`` returned for the model.

    Raises a FloatingPointError if the loss is NaN or infinite, and a ValueError if there is no token to predict.
    """
    check_class(model, "logits_and_targets")
    model.train()
    device = next(model.parameters()).device
    batches = batches_of(batches, recipe, device, train=True)
    scaler = scaler or make_scaler(device, recipe.precision)
    replica = replica or model.logits_and_targets
    inputs = _inputs(model, batches, "training", progress)
    totals = torch.zeros(2, device=device, dtype=torch.float32)  # loss and tokens of all steps so far
    step = 0
    while group := list(itertools.islice(inputs, recipe.accumulate_steps)):  # a step's batches; the last may have fewer
        model.zero_grad()  # forget the gradients of the step before
        sums = add_up_gradients(model, replica, group, recipe, scaler)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        scaler.step(optimizer)  # in float16, not if a gradient is infinite: then update() lowers the scale
        scaler.update()
        if schedule is not None:
            schedule.step()
        if average is not None:
            average.update_parameters(model)
        totals += sums
        step += 1
        if step % 100 == 0:  # seldom, since the CPU has to wait for a GPU's numbers
            mean_loss(totals)
        yield sums
    if step:
        mean_loss(totals)


def add_up_gradients(
    model: nn.Module,
    replica: Callable[..., tuple[Tensor, Tensor]],
    group: list[list[Tensor]],
    recipe: Recipe,
    scaler: torch.amp.GradScaler,
) -> Tensor:
    """Compute the gradients of the mean loss over all tokens of several batches, in all processes; return its sums.

    How many tokens there are is known after the last batch only. So the first batch's number stands in for it until
    then, and the gradients are corrected in the end.
    """
    device = next(model.parameters()).device
    pad_id = getattr(model.config, "pad_id", -100)
    sums = torch.zeros(2, device=device, dtype=torch.float32)  # loss and tokens
    for number, tensors in enumerate(group, start=1):
        is_last = number == len(group)  # then DistributedDataParallel sends the gradients, and averages them
        with nullcontext() if is_last or distributed.world_size == 1 else replica.no_sync():
            loss, tokens = _loss_of_batch(replica, tensors, pad_id, recipe, device)
            sums += distributed.all_reduce_sum(torch.stack([loss.detach() * tokens, tokens]))
            if number == 1:
                first_tokens = sums[1].clamp(min=1)
            scaler.scale(loss * (tokens * distributed.world_size / first_tokens)).backward()
    if len(group) > 1:
        correction = first_tokens / sums[1].clamp(min=1)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad *= correction
    return sums


def _loss_of_batch(
    replica: Callable[..., tuple[Tensor, Tensor]], tensors: list[Tensor], pad_id: int, recipe: Recipe, device: Any
) -> tuple[Tensor, Tensor]:
    """Return the mean loss over a batch's target tokens, and how many there are."""
    dtype = fast_dtype(device) if recipe.precision == "bfloat16" else torch.float32
    autocast = nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)
    if recipe.rdrop_weight:  # every sentence goes through the model twice, in one batch
        tensors = [torch.cat([tensor, tensor]) for tensor in tensors]
    with autocast:
        logits, targets = replica(*tensors)
    if recipe.rdrop_weight:
        targets = targets.chunk(2)[0]
        loss = rdrop_loss(logits, targets, pad_id, recipe.label_smoothing, recipe.rdrop_weight)
    else:
        loss = sequence_loss(logits, targets, pad_id, recipe.label_smoothing)
    return loss, (targets != pad_id).sum()


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Any], progress: bool | None = None) -> float:
    """Return the mean loss per target token, in nats, with dropout off (see ``perplexity``).

    ``batches`` are what ``fit`` takes to validate: batches of any kind, or a data set. The model keeps the mode
    (training or evaluation) that it was in. BLEU is ``bleu.score``; the command ``evaluate`` prints both. Raises what
    ``train_epoch`` raises.
    """
    check_class(model, "logits_and_targets")
    device = next(model.parameters()).device
    batches = batches_of(batches, Recipe(), device, train=False)
    pad_id = getattr(model.config, "pad_id", -100)
    totals = torch.zeros(2, device=device, dtype=torch.float32)  # loss and tokens
    with evaluation_mode(model):
        for tensors in _inputs(model, batches, "evaluating", progress):
            logits, targets = model.logits_and_targets(*tensors)
            loss = sequence_loss(logits, targets, pad_id, reduction="sum")
            totals += torch.stack([loss, (targets != pad_id).sum()])
    return mean_loss(distributed.all_reduce_sum(totals))


def perplexity(loss: float) -> float:
    """Return e to the power of a loss in nats: the model is as unsure as if it guessed among so many tokens."""
    return math.exp(loss) if loss < 700 else math.inf


def make_scaler(device: torch.device, precision: str) -> torch.amp.GradScaler:
    """Return what scales the loss up before the backward pass, and the gradients down after it, in float16 only."""
    is_float16 = precision == "bfloat16" and fast_dtype(device) == torch.float16
    return torch.amp.GradScaler(device.type, enabled=is_float16)


def batches_of(data: Any, recipe: Recipe, device: torch.device, train: bool) -> Iterable[Any]:
    """Return a data set's batches, of which each process has its share; or what makes batches itself, as it is."""
    if not hasattr(data, "batches_for"):
        return data
    if distributed.world_size == 1:  # outside a process group, nobody adds up what the processes find
        return data.batches_for(recipe, device, train)
    return data.batches_for(recipe, device, train, distributed.rank_and_world_size())


def _inputs(model: nn.Module, batches: Iterable[Any], what: str, progress: bool | None) -> Iterator[list[Tensor]]:
    """Yield what the model takes of each batch, on its device, and show how far it is."""
    if progress is None:
        in_notebook = type(sys.stdout).__module__.startswith("ipykernel")
        is_watched = in_notebook or getattr(sys.stdout, "isatty", bool)()  # there may be no standard output
        progress = distributed.is_first() and is_watched
    device = next(model.parameters()).device
    names = list(inspect.signature(model.logits_and_targets).parameters)
    for batch in tqdm(batches, what, unit="batch", leave=False, disable=not progress, file=sys.stdout):
        yield tensors_of(batch, names, device)


def mean_loss(totals: Tensor) -> float:
    """Divide the loss by the number of tokens, and raise an error if there are none, or if training has diverged."""
    loss, tokens = totals.tolist()
    if not tokens:
        raise ValueError("batches hold no token to predict: is the data set empty, or its iterator used up?")
    if not math.isfinite(loss):
        raise FloatingPointError(f"loss is {loss}: training has diverged (lower learning_rate), or weights are damaged")
    return loss / tokens
