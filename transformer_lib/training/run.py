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
from torch.optim import Optimizer

from transformer_lib.training import distributed
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import History, evaluate, make_scaler, mean_loss, perplexity, train_steps
from transformer_lib.training.optimizer import (
    MovingAverage,
    learning_rate_schedule,
    make_optimizer,
    steps_to_warm_up,
)
from transformer_lib.training.recipe import Recipe


class Stop(NamedTuple):
    """Where a run pauses to be saved: the epoch that it is in, or that has just ended, and whether to validate."""

    epoch: int
    validates: bool


class Run:
    """A training run between two steps. ``stops`` trains; ``state_dict`` is what a file keeps of the run."""

    def __init__(self, model: nn.Module, train_batches: Any, val_batches: Iterable[Any], recipe: Recipe):
        device = next(model.parameters()).device
        self.model = model
        self.train_batches = train_batches
        self.val_batches = val_batches
        self.recipe = recipe
        self.replica = distributed.replicate(model)
        self.optimizer = make_optimizer(model, recipe)
        steps_per_epoch = math.ceil(len(train_batches) / recipe.accumulate_steps)
        self.total_steps = max(1, round(recipe.epochs * steps_per_epoch))
        self.warmup_steps = steps_to_warm_up(recipe.warmup_steps, self.total_steps)
        self.schedule = learning_rate_schedule(
            self.optimizer, recipe.schedule, recipe.warmup_steps, self.total_steps, recipe.epochs, recipe.lr_decay
        )
        self.scaler = make_scaler(device, recipe.precision)
        self.average = MovingAverage(model, recipe.ema_decay) if recipe.ema_decay else None
        self.candidate = model if self.average is None else self.average.module  # what is validated and kept
        self.best = copy.deepcopy(self.candidate)
        self.history = History()
        self.epoch = 1
        self.step = 0  # steps taken in this epoch
        self.totals = torch.zeros(2, device=device, dtype=torch.float32)  # loss and tokens since the last validation
        self.seconds = 0.0  # of training since the last validation

    @property
    def steps_taken(self) -> int:
        """Steps taken since the run began."""
        return self.schedule.last_epoch

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done; of the last, perhaps only a part was asked for."""
        ends_within_an_epoch = self.recipe.epochs % 1 > 0
        if ends_within_an_epoch and self.steps_taken >= self.total_steps:
            return True
        return self.epoch > math.ceil(self.recipe.epochs)

    @property
    def is_validated(self) -> bool:
        """Whether the last step was validated."""
        return self.history.steps[-1:] == [self.steps_taken]

    def stops(self) -> Iterator[Stop]:
        """Train to the end; pause at the end of each epoch, and after as many steps as the recipe says."""
        recipe = self.recipe
        while not self.is_over:
            for _ in self._steps_of_epoch():
                validates = self._is_due(recipe.validate_every)
                if validates or self._is_due(recipe.save_every):
                    yield Stop(self.epoch, validates)
                    self.model.train()  # whoever translated in between has switched dropout off
                    self._seed(self.epoch, self.step)  # as a run that resumes here does
            if self.is_over:
                break
            ended = self.epoch
            self.epoch += 1
            self.step = 0
            validates = self.is_over or not recipe.validate_every
            yield Stop(ended, validates and not self.is_validated)
        if not self.is_validated:  # it ended within an epoch, or was killed before it had validated
            yield Stop(self.epoch, validates=True)

    def _is_due(self, every: int) -> bool:
        return every > 0 and self.steps_taken % every == 0

    def _steps_of_epoch(self) -> Iterator[None]:
        """Take the steps of this epoch that are left, one at a time, and keep account of loss and time."""
        started = time.perf_counter()
        steps = train_steps(
            self.model,
            self._rest_of_epoch(),
            self.optimizer,
            self.schedule,
            self.recipe,
            self.scaler,
            self.average,
            replica=self.replica,
        )
        for sums in steps:
            self.totals += sums
            self.step += 1
            self.seconds += time.perf_counter() - started
            yield
            started = time.perf_counter()
            if self.is_over:  # of this epoch, only a part was asked for
                return
        self.seconds += time.perf_counter() - started

    def _rest_of_epoch(self) -> Iterable[Any]:
        """Return the batches of this epoch that are left, and seed what the next step draws."""
        self._seed(self.epoch)
        if hasattr(self.train_batches, "set_epoch"):
            self.train_batches.set_epoch(self.epoch)  # which decides their order, so that a resumed run sees the same
        if self.step == 0:
            return self.train_batches
        rest = _without_first(self.train_batches, self.step * self.recipe.accumulate_steps)
        self._seed(self.epoch, self.step)  # after the batches that are skipped, which may draw random numbers
        return rest

    def _seed(self, *place: int) -> None:
        """Seed all random numbers by the epoch, or the epoch and the step; each process gets a dropout of its own."""
        rank, _ = distributed.rank_and_world_size()
        seed_everything(self.recipe.seed, *place, rank)

    def begin(self) -> None:
        """Measure the model as it is, which may remain the best."""
        self.history.first_val_loss = evaluate(self.candidate, self.val_batches)

    def validate(self, epoch: int) -> str:
        """Measure the loss, keep the weights if they are the best so far, and return a line about it."""
        started = time.perf_counter()
        history = self.history
        history.train_loss.append(mean_loss(self.totals))
        history.val_loss.append(evaluate(self.candidate, self.val_batches))
        history.steps.append(self.steps_taken)
        if history.best_epoch == len(history.val_loss):
            self.best.load_state_dict(self.candidate.state_dict())
        history.seconds.append(self.seconds + time.perf_counter() - started)
        line = self._report(epoch)
        self.totals.zero_()
        self.seconds = 0.0
        return line

    def _report(self, epoch: int) -> str:
        """Say what the newest validation found."""
        history = self.history
        val_loss = history.val_loss[-1]
        seconds = history.seconds[-1]
        tokens = self.totals[1].item()
        steps_before = history.steps[-2] if len(history.steps) > 1 else 0
        seconds_per_step = seconds / (self.steps_taken - steps_before)
        minutes_left = (self.total_steps - self.steps_taken) * seconds_per_step / 60
        parts = [f"epoch {epoch:3d}/{self.recipe.epochs:g}"]
        if self.recipe.validate_every:
            parts.append(f"step {self.steps_taken:,}/{self.total_steps:,}")
        parts.append(f"{seconds:5.0f} s")
        parts.append(f"train loss {history.train_loss[-1]:.3f}")
        parts.append(f"val loss {val_loss:.3f}")
        parts.append(f"val perplexity {perplexity(val_loss):.2f}")
        if history.best_epoch == len(history.val_loss):
            parts.append("(best)")
        speed = f"{tokens / seconds:,.0f} tokens/s"
        parts.append(f"{speed}, {minutes_left:.0f} min left" if minutes_left >= 1 else speed)
        return "  ".join(parts)

    def _parts(self) -> dict[str, Any]:
        """Return what has a state of its own."""
        parts = {
            "model": self.model,
            "best": self.best,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "scaler": self.scaler,
        }
        if self.average is not None:
            parts["average"] = self.average
        return parts

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        state = {name: part.state_dict() for name, part in self._parts().items()}
        place = {"epoch": self.epoch, "step": self.step}
        return {**state, **place, "history": asdict(self.history), "totals": self.totals, "seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another run was."""
        for name, part in self._parts().items():
            if state[name]:  # a scaler's is empty, except in float16
                part.load_state_dict(state[name])
        for optimizer in getattr(self.optimizer, "optimizers", [self.optimizer]):
            _check_moments(optimizer)
        self.history = History(**state["history"])
        self.epoch = state["epoch"]
        self.step = state["step"]
        self.totals.copy_(state["totals"])
        self.seconds = state["seconds"]


def _check_moments(optimizer: Optimizer) -> None:
    """Raise a ValueError unless what an optimiser remembers of weights has their shape: a step would write beyond."""
    for weights, moments in optimizer.state.items():
        for moment in moments.values():
            if isinstance(moment, Tensor) and moment.dim() and moment.shape != weights.shape:
                raise ValueError("the optimizer's moments have other shapes than the weights")


def _without_first(batches: Iterable[Any], number: int) -> Iterator[Any]:
    """Return what remains of an epoch's batches after so many, which are skipped now, not when they are asked for."""
    if hasattr(batches, "start"):
        batches.start = number  # BucketBatches need not make them
        return iter(batches)
    rest = iter(batches)
    for _ in itertools.islice(rest, number):
        pass
    return rest
