"""A whole training run, which survives interruptions (section 5). Notebook 05, section 7."""

import contextlib
import copy
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from transformer_lib.checkpoint import MODEL_FILE, describe_model, save_model
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.files import STATE_FILE, load_training_state, locked, save_training_state
from transformer_lib.training import distributed
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import History, evaluate, make_scaler, perplexity, train_epoch
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

    Args:
        model: any model that ``loop.py`` describes, on the device to train on, with its initial weights.
        train_set, val_set: what ``make_dataset`` (``TextDataset`` for a language model) returned; or a ``DataLoader``
            or another sized iterable of batches, used as it is.
        recipe: how to train.
        output: folder to write to; by default, nothing is written.
        resume: continue what ``output`` holds. ``recipe.epochs`` may have grown, unless the schedule is ``"linear"``.
        notes: anything to save with the model, such as the corpus's name; when fine-tuning, its ``search``.
        tokenizers: to be saved with the model; by default, those of ``train_set``.
        on_epoch: called with the history and the model that was validated after each epoch, in every process; if it
            returns True, training ends.
        log: called with a line after each epoch, in the first of several processes.

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
    train_batches, val_batches = (
        data.batches_for(recipe, device, train) if hasattr(data, "batches_for") else data
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
        distributed.copy_from_first(model)
        if recipe.init_bias_from_unigrams:
            model.init_bias_from_unigrams(train_set.ids().bincount(minlength=model.config.vocab_size))
        optimizer = make_optimizer(model, recipe)
        steps = recipe.epochs * len(train_batches)
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

        def save_best() -> None:
            all_notes = {**(notes or {}), "recipe": asdict(recipe), "history": asdict(history)}
            save_model(output / MODEL_FILE, best, tokenizers, all_notes)

        if resume:
            state = load_training_state(output / STATE_FILE)
            for name, now in settings.items():
                if (before := state["settings"].get(name)) != now:
                    raise ValueError(f"{output} had another {name}: it was {before!s:.60}, now it is {now:.60}")
            history = _restore(parts, state)
            if writes:
                save_best()  # a process may have been killed after it had written the state, and before the model
        else:
            history = History(first_val_loss=evaluate(evaluated, val_batches))

        try:
            for epoch in range(len(history.val_loss) + 1, recipe.epochs + 1):
                started = time.perf_counter()
                if hasattr(train_batches, "set_epoch"):
                    train_batches.set_epoch(epoch)  # which decides their order, so that a resumed run sees the same
                seed_everything(recipe.seed, epoch, distributed.rank())  # each process has its own dropout
                train_loss = train_epoch(model, train_batches, optimizer, schedule, recipe, scaler, average)
                val_loss = evaluate(evaluated, val_batches)
                history.train_loss.append(train_loss)
                history.val_loss.append(val_loss)
                history.seconds.append(time.perf_counter() - started)
                if is_best := history.best_epoch == epoch:
                    best.load_state_dict(evaluated.state_dict())
                if writes:
                    state = {name: part.state_dict() for name, part in parts.items()}
                    state |= {"history": asdict(history), "settings": settings}
                    save_training_state(output / STATE_FILE, state)
                    save_best()
                log(
                    f"epoch {epoch:3d}/{recipe.epochs}  {history.seconds[-1]:5.0f} s  "
                    f"train loss {train_loss:.3f}  val loss {val_loss:.3f}  "
                    f"val perplexity {perplexity(val_loss):.2f}" + ("  (best)" if is_best else "")
                )
                if on_epoch is not None and on_epoch(history, evaluated):
                    break
        finally:
            model.load_state_dict(best.state_dict())
    return history


def _settings(description: dict[str, str], recipe: Recipe) -> dict[str, str]:
    """Return what must be the same for a resumed run to be the same run."""
    settings = {**json.loads(description["config"]), **asdict(recipe)}
    settings |= {"model": description["model"], "tokenizers": description["tokenizers"]}
    if recipe.schedule != "linear":
        del settings["epochs"]  # there may be more, since the learning rate does not depend on when it ends
    return {name: repr(value) for name, value in settings.items()}


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
