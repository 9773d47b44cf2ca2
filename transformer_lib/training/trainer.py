"""A whole training run, which survives interruptions (section 5). Notebook 05, section 7."""

import collections
import contextlib
import copy
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.checkpoint import MODEL_FILE, describe_model, save_model
from transformer_lib.data.batches import BucketBatches
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.files import STATE_FILE, load_training_state, locked, save_training_state
from transformer_lib.training import distributed
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import History, evaluate, make_scaler, mean_loss, perplexity, train_epoch
from transformer_lib.training.optimizer import MovingAverage, learning_rate_schedule, make_optimizer
from transformer_lib.training.recipe import Recipe


def fit(
    model: nn.Module,
    train_set: Any,
    val_set: Any,
    recipe: Recipe,
    output: str | Path | None = None,
    resume: bool = False,
    notes: dict[str, Any] | None = None,
    tokenizers: dict[str, WordTokenizer] | None = None,
    on_epoch: Callable[[History, nn.Module], bool | None] | None = None,
    log: Callable[[str], None] = print,
) -> History:
    """Train for ``recipe.epochs`` epochs and leave the model with the weights (or their average) that validated best.

    After every epoch, the folder ``output`` holds the best model so far (``model.safetensors``) and what
    ``resume=True`` continues from (``training_state.pt``): on a CPU, to the same numbers as without the interruption.
    Where an epoch takes hours, the recipe's ``validate_every`` and ``save_every`` do this after so many steps.

    Args:
        model: any model that ``loop.py`` describes, on the device to train on, with its initial weights.
        train_set, val_set: what ``make_dataset`` (``TextDataset`` for a language model) returned; or a ``DataLoader``
            or another sized iterable of batches, used as it is.
        recipe: how to train.
        output: folder to write to; by default, nothing is written.
        resume: continue what ``output`` holds. ``recipe.epochs`` may have grown, unless the schedule is ``"linear"``.
        notes: anything to save with the model, such as the corpus's name; when fine-tuning, its ``search``.
        tokenizers: to be saved with the model; by default, those of ``train_set``.
        on_epoch: called with the history and the model that was validated after each validation, in every process; if
            it returns True, training ends.
        log: called with a line after each validation, in the first of several processes.

    Raises a FileExistsError if ``output`` holds a run that is not to be resumed, a ValueError if the run to resume had
    other settings or a vocabulary is not the model's, and a FloatingPointError if the loss diverges.
    """
    log = log if distributed.is_first() else lambda line: None
    device = next(model.parameters()).device
    tokenizers = tokenizers or getattr(train_set, "tokenizers", {})
    check_vocabularies(model.config, tokenizers, to_train=True)
    if output is not None:
        output = Path(output)
        settings = _settings(describe_model(model, tokenizers, notes), recipe)  # what cannot be saved is not trained
    writes = output is not None and distributed.is_first()
    rank, processes = distributed.share()
    train_batches, val_batches = (
        data.batches_for(recipe, device, train, (rank, processes)) if hasattr(data, "batches_for") else data
        for data, train in ((train_set, True), (val_set, False))
    )
    with distributed.process_group(device), locked(output) if writes else contextlib.nullcontext():
        if writes and not resume and any((output / name).exists() for name in (STATE_FILE, MODEL_FILE)):
            raise FileExistsError(f"{output} holds a training run: resume it (--resume), or choose another (--output)")
        if distributed.world_size > 1 and not hasattr(train_set, "batches_for"):
            raise ValueError(f"train_set is a {type(train_set).__name__}, expected a data set that processes can share")
        if output is not None and not hasattr(train_set, "batches_for"):
            kind = type(train_set).__name__
            log(f"train_set is a {kind}: a resumed run repeats its order only if torch's random numbers decide it")
        replica = distributed.replicate(model)
        if recipe.init_bias_from_unigrams:
            model.init_bias_from_unigrams(train_set.ids().bincount(minlength=model.config.vocab_size))
        optimizer = make_optimizer(model, recipe)
        epoch_steps = math.ceil(len(train_batches) / recipe.accumulate_steps)
        steps = max(1, round(recipe.epochs * epoch_steps))
        if recipe.warmup_steps > steps:
            log(f"warning: warmup_steps is {recipe.warmup_steps}, but the run has {steps} steps: a tenth warms up")
        how = recipe.schedule, recipe.warmup_steps, steps, recipe.epochs, recipe.lr_decay
        schedule = learning_rate_schedule(optimizer, *how)
        scaler = make_scaler(device, recipe.precision)
        average = MovingAverage(model, recipe.ema_decay) if recipe.ema_decay else None
        evaluated = model if average is None else average.module  # what is validated and kept
        best = copy.deepcopy(evaluated)
        parts = {"model": model, "best": best, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
        parts |= {} if average is None else {"average": average}

        at = {"epoch": 1, "step": 0, "seconds": 0.0}  # this epoch, steps taken in it, and seconds since validation
        since = torch.zeros(2, device=device, dtype=torch.float32)  # loss and target tokens since validation
        last_step = steps if recipe.epochs % 1 else math.inf  # the last epoch may be a part of one

        def save_best() -> None:
            all_notes = {**(notes or {}), "recipe": asdict(recipe), "history": asdict(history)}
            save_model(output / MODEL_FILE, best, tokenizers, all_notes)

        if resume:
            state = load_training_state(output / STATE_FILE)
            for name, now in settings.items():
                if (before := state["settings"].get(name)) != now:
                    raise ValueError(f"{output} had another {name}: it was {before!s:.60}, now it is {now:.60}")
            history, at = _restore(parts, state), state["at"]
            since += state["since"].to(device)
            if writes and history.val_loss:
                save_best()  # a process may have been killed after it had written the state, and before the model
        else:
            history = History(first_val_loss=evaluate(evaluated, val_batches))
        started, ends = time.perf_counter(), False

        def pause(validates: bool, epoch_ends: bool = False) -> None:
            """Validate, if it is time to; save; and let ``on_epoch`` end the run."""
            nonlocal started, ends
            if validates:
                history.train_loss.append(mean_loss(since))
                history.val_loss.append(evaluate(evaluated, val_batches))
                history.steps.append(schedule.last_epoch)
                if history.best_epoch == len(history.val_loss):
                    best.load_state_dict(evaluated.state_dict())
            at["seconds"] += time.perf_counter() - started
            if validates:
                history.seconds.append(at["seconds"])
                line = _report(at["epoch"], recipe, history, since[1].item(), steps)
                since.zero_()
                at["seconds"] = 0.0
            if epoch_ends:
                at.update(epoch=at["epoch"] + 1, step=0)
            if writes:
                state = {name: part.state_dict() for name, part in parts.items()}
                state |= {"history": asdict(history), "settings": settings, "at": at, "since": since}
                save_training_state(output / STATE_FILE, state)
                if validates:
                    save_best()
            if validates:
                log(line)
                ends = on_epoch is not None and bool(on_epoch(history, evaluated))
            started = time.perf_counter()

        def on_step(sums: Tensor) -> bool:
            """Count a step, pause after it if the recipe says so, and return whether the run ends with it."""
            since.add_(sums)
            at["step"] += 1
            validates, saves = (n and schedule.last_epoch % n == 0 for n in (recipe.validate_every, recipe.save_every))
            if validates or saves:
                pause(bool(validates))
                seed_everything(recipe.seed, at["epoch"], at["step"], rank)  # where a run that resumes begins
            return ends or schedule.last_epoch >= last_step

        try:
            for epoch in range(at["epoch"], math.ceil(recipe.epochs) + 1):
                seed_everything(recipe.seed, epoch, rank)  # each process has its own dropout
                if hasattr(train_batches, "set_epoch"):
                    train_batches.set_epoch(epoch)  # which decides their order, so that a resumed run sees the same
                batches = train_batches
                if at["step"]:  # resume in the middle of the epoch, or at its end
                    batches = _skip(batches, at["step"] * recipe.accumulate_steps)
                    seed_everything(recipe.seed, epoch, at["step"], rank)
                    first = [*itertools.islice(batches, 1)]
                    batches = itertools.chain(first, batches) if first else None
                if batches is not None and schedule.last_epoch < last_step:
                    train_epoch(
                        model, batches, optimizer, schedule, recipe, scaler, average, replica=replica, on_step=on_step
                    )
                is_last = epoch >= recipe.epochs or schedule.last_epoch >= last_step
                if not ends:
                    validates = is_last or not recipe.validate_every
                    has_validated = history.steps[-1:] == [schedule.last_epoch]
                    pause(validates and not has_validated, epoch_ends=schedule.last_epoch < last_step)
                if ends or is_last:
                    break
        finally:
            model.load_state_dict(best.state_dict())
    return history


def _report(epoch: int, recipe: Recipe, history: History, tokens: float, steps: int) -> str:
    """Return a line about what has just been validated, after so many tokens."""
    columns = history.train_loss, history.val_loss, history.seconds, history.steps
    train_loss, val_loss, seconds, taken = (values[-1] for values in columns)
    line = f"epoch {epoch:3d}/{recipe.epochs:g}  "
    if recipe.validate_every:
        line += f"step {taken:,}/{steps:,}  "
    line += f"{seconds:5.0f} s  train loss {train_loss:.3f}  val loss {val_loss:.3f}  "
    line += f"val perplexity {perplexity(val_loss):.2f}  "
    line += "(best)  " if history.best_epoch == len(history.val_loss) else ""
    line += f"{tokens / seconds:,.0f} tokens/s"
    minutes_left = (steps - taken) / (taken - sum(history.steps[-2:-1])) * seconds / 60
    return line + (f", {minutes_left:.0f} min left" if minutes_left >= 1 else "")


def _settings(description: dict[str, str], recipe: Recipe) -> dict[str, str]:
    """Return what must be the same for a resumed run to be the same run."""
    settings = {**json.loads(description["config"]), **asdict(recipe)}
    settings |= {"model": description["model"], "tokenizers": description["tokenizers"]}
    if recipe.schedule != "linear":
        del settings["epochs"]  # there may be more, since the learning rate does not depend on when it ends
    return {name: repr(value) for name, value in settings.items()}


def _skip(batches: Iterable[Any], number: int) -> Iterator[Any]:
    """Return what remains of an epoch's batches after so many."""
    if isinstance(batches, BucketBatches):
        batches.start = number  # they need not be made
        return iter(batches)
    rest = iter(batches)
    collections.deque(itertools.islice(rest, number), maxlen=0)
    return rest


def _restore(parts: dict[str, Any], state: dict[str, Any]) -> History:
    """Put a saved state into the parts of a run, and return its history."""
    for name, part in parts.items():
        if state[name]:  # a scaler's is empty, except in float16
            part.load_state_dict(state[name])
    for optimizer in getattr(parts["optimizer"], "optimizers", [parts["optimizer"]]):
        for weights, moments in optimizer.state.items():
            if any(m.shape != weights.shape for m in moments.values() if isinstance(m, Tensor) and m.dim()):
                raise ValueError("the optimizer's moments have other shapes than the weights")  # a step writes to them
    return History(**state["history"])
