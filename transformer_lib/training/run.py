"""The state of a training run: all that changes from step to step, and that a resumed run finds again."""

import copy
import itertools
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.training import distributed
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import History, evaluate, make_scaler, mean_loss, perplexity, train_steps
from transformer_lib.training.optimizer import MovingAverage, learning_rate_schedule, make_optimizer
from transformer_lib.training.recipe import Recipe


class Stop(NamedTuple):
    """Where a run pauses to be saved: the epoch that it is in, or that has just ended, and whether to validate."""

    epoch: int
    validates: bool


class Run:
    """A training run between two steps. ``stops`` trains; ``state_dict`` is what a file keeps of the run."""

    def __init__(self, model: nn.Module, train_batches: Any, val_batches: Iterable[Any], recipe: Recipe):
        device = next(model.parameters()).device
        self.model, self.recipe = model, recipe
        self.train_batches, self.val_batches = train_batches, val_batches
        self.replica = distributed.replicate(model)
        self.optimizer = make_optimizer(model, recipe)
        self.steps = max(1, round(recipe.epochs * math.ceil(len(train_batches) / recipe.accumulate_steps)))
        self.schedule = learning_rate_schedule(
            self.optimizer, recipe.schedule, recipe.warmup_steps, self.steps, recipe.epochs, recipe.lr_decay
        )
        self.scaler = make_scaler(device, recipe.precision)
        self.average = MovingAverage(model, recipe.ema_decay) if recipe.ema_decay else None
        self.candidate = model if self.average is None else self.average.module  # what is validated and kept
        self.best = copy.deepcopy(self.candidate)
        self.history = History()
        self.epoch, self.step = 1, 0  # this epoch, and the steps taken in it
        self.seconds = 0.0  # since the last validation, as are loss and target tokens
        self.since = torch.zeros(2, device=device, dtype=torch.float32)

    @property
    def taken(self) -> int:
        """Steps taken since the run began."""
        return self.schedule.last_epoch

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done; of the last, perhaps only a part was asked for."""
        is_in_part = self.recipe.epochs % 1
        return self.epoch > math.ceil(self.recipe.epochs) or (bool(is_in_part) and self.taken >= self.steps)

    @property
    def is_validated(self) -> bool:
        """Whether the last step was validated."""
        return self.history.steps[-1:] == [self.taken]

    def stops(self) -> Iterator[Stop]:
        """Train to the end; pause at the end of each epoch, and after as many steps as the recipe says."""
        recipe = self.recipe
        while not self.is_over:
            started = time.perf_counter()
            for sums in self._rest_of_epoch():
                self.since += sums
                self.step += 1
                validates, saves = (n and self.taken % n == 0 for n in (recipe.validate_every, recipe.save_every))
                if validates or saves:
                    self.seconds += time.perf_counter() - started
                    yield Stop(self.epoch, bool(validates))
                    started = time.perf_counter()
                    self._seed()  # where a run that resumes begins
                if self.is_over:
                    break
            self.seconds += time.perf_counter() - started
            if not self.is_over:
                self.epoch, self.step = self.epoch + 1, 0
                validates = (self.is_over or not recipe.validate_every) and not self.is_validated
                yield Stop(self.epoch - 1, validates)
        if not self.is_validated:  # it ended in the middle of an epoch
            yield Stop(self.epoch, True)

    def _rest_of_epoch(self) -> Iterator[Tensor]:
        """Take the steps of this epoch that a run before an interruption has not taken."""
        self._seed(at_the_start=True)
        if hasattr(self.train_batches, "set_epoch"):
            self.train_batches.set_epoch(self.epoch)  # which decides their order, so that a resumed run sees the same
        batches: Iterable[Any] = self.train_batches
        if self.step:
            batches = _without_first(batches, self.step * self.recipe.accumulate_steps)
            self._seed()
        more = self.scaler, self.average
        yield from train_steps(
            self.model, batches, self.optimizer, self.schedule, self.recipe, *more, replica=self.replica
        )

    def _seed(self, at_the_start: bool = False) -> None:
        """Seed the random numbers of what comes next, others in each process, which has its own dropout."""
        rank, _ = distributed.share()
        where = (self.epoch,) if at_the_start else (self.epoch, self.step)
        seed_everything(self.recipe.seed, *where, rank)

    def begin(self) -> None:
        """Measure the model as it is, which may remain the best."""
        self.history.first_val_loss = evaluate(self.candidate, self.val_batches)

    def validate(self, epoch: int) -> str:
        """Measure the loss, keep the weights if they are the best so far, and return a line about it."""
        started = time.perf_counter()
        self.history.train_loss.append(mean_loss(self.since))
        self.history.val_loss.append(evaluate(self.candidate, self.val_batches))
        self.history.steps.append(self.taken)
        if self.history.best_epoch == len(self.history.val_loss):
            self.best.load_state_dict(self.candidate.state_dict())
        self.history.seconds.append(self.seconds + time.perf_counter() - started)
        line = self._report(epoch)
        self.since.zero_()
        self.seconds = 0.0
        return line

    def _report(self, epoch: int) -> str:
        columns = self.history.train_loss, self.history.val_loss, self.history.seconds
        train_loss, val_loss, seconds = (values[-1] for values in columns)
        line = f"epoch {epoch:3d}/{self.recipe.epochs:g}  "
        if self.recipe.validate_every:
            line += f"step {self.taken:,}/{self.steps:,}  "
        line += f"{seconds:5.0f} s  train loss {train_loss:.3f}  val loss {val_loss:.3f}  "
        line += f"val perplexity {perplexity(val_loss):.2f}  "
        line += "(best)  " if self.history.best_epoch == len(self.history.val_loss) else ""
        line += f"{self.since[1].item() / seconds:,.0f} tokens/s"
        steps_validated = self.taken - sum(self.history.steps[-2:-1])
        minutes_left = (self.steps - self.taken) / steps_validated * seconds / 60
        return line + (f", {minutes_left:.0f} min left" if minutes_left >= 1 else "")

    def _parts(self) -> dict[str, Any]:
        names = "model", "best", "optimizer", "schedule", "scaler", "average"
        return {name: part for name in names if (part := getattr(self, name)) is not None}

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        state = {name: part.state_dict() for name, part in self._parts().items()}
        at = {"epoch": self.epoch, "step": self.step, "seconds": self.seconds}
        return {**state, "history": asdict(self.history), "at": at, "since": self.since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another run was."""
        for name, part in self._parts().items():
            if state[name]:  # a scaler's is empty, except in float16
                part.load_state_dict(state[name])
        for optimizer in getattr(self.optimizer, "optimizers", [self.optimizer]):
            for weights, moments in optimizer.state.items():
                if any(m.shape != weights.shape for m in moments.values() if isinstance(m, Tensor) and m.dim()):
                    raise ValueError("the optimizer's moments have other shapes than the weights")  # a step writes
        self.history = History(**state["history"])
        self.epoch, self.step, self.seconds = (state["at"][name] for name in ("epoch", "step", "seconds"))
        self.since.copy_(state["since"])


def _without_first(batches: Iterable[Any], number: int) -> Iterator[Any]:
    """Return what remains of an epoch's batches after so many."""
    if hasattr(batches, "start"):
        batches.start = number  # BucketBatches need not make them
        return iter(batches)
    rest = iter(batches)
    for _ in itertools.islice(rest, number):  # now, since torch's random numbers may decide what comes
        pass
    return rest
