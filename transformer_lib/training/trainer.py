"""A whole training run, which survives interruptions (section 5). Notebook 05, section 7."""

import contextlib
import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from transformer_lib.checkpoint import MODEL_FILE, describe_model, save_model
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.files import STATE_FILE, CheckpointError, load_training_state, locked, save_training_state
from transformer_lib.model.decoder import DecoderLayer
from transformer_lib.model.encoder import EncoderLayer
from transformer_lib.training import distributed
from transformer_lib.training.device import seed_everything, seed_of
from transformer_lib.training.loop import History, evaluate, input_names, make_scaler, perplexity, train_epoch
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
    progress: bool | None = None,
    on_epoch: Callable[[History], None] | None = None,
    log: Callable[[str], None] = print,
) -> History:
    """Train for ``recipe.epochs`` epochs and leave the model with the weights (or their average) that validated best.

    With ``output``, that folder holds after every epoch the best model so far (``model.safetensors``) and what
    ``resume=True`` continues from (``training_state.pt``). On a CPU, a resumed run ends with the same numbers as one
    that was never interrupted.

    Args:
        model: any model that ``loop.py`` describes, on the device to train on. You seed its initial weights
            (``seed_everything``); they are the first candidate for the best.
        train_set, val_set: what ``make_dataset`` (``TextDataset`` for a language model) returned, with the vocabularies
            that the model was built for; or a ``DataLoader`` or any other sized iterable of batches, used as it is
            (not by several processes). Before each epoch, the global random numbers are seeded, and its ``set_epoch``
            called if it has one: an order that comes from elsewhere is another one in a resumed run.
        recipe: how to train. A warm-up that would outlast the run is cut to a tenth of its steps.
        output: folder to write to; by default, nothing is written.
        resume: continue what ``output`` holds. ``recipe.epochs`` may have grown, unless the schedule is ``"linear"``.
        notes: anything to save with the model, such as the corpus's name. When fine-tuning, pass on the ``search`` of
            the notes that the model came with, and it keeps its search settings.
        tokenizers: to be saved with the model; by default, those of ``train_set``, if it has any.
        progress: show progress bars; by default, on a terminal and in a notebook.
        on_epoch: called with the history after each epoch, in every process.
        log: called with a line for each epoch, and with warnings before the first, in the first process.

    Raises:
        FileExistsError: ``output`` holds a run already, and ``resume`` is False; or another process trains there.
        TypeError, ValueError: the model cannot be trained or saved (see ``describe_model``), or the run to resume had
            another configuration, recipe or vocabulary.
        FloatingPointError: the loss is NaN or infinite.
        OSError: the folder cannot be written to.
        KeyboardInterrupt: after this or the two before, the model has the best weights so far, and the folder holds
            what it held after the last complete epoch.
    """
    log = log if distributed.is_first() else lambda line: None
    output = None if output is None else Path(output)
    if resume and output is None:
        raise ValueError("resume is True, which needs the output folder of the run to resume, but output is None")
    device = next(model.parameters()).device
    tokenizers = tokenizers or getattr(train_set, "tokenizers", {})
    with contextlib.ExitStack() as stack:
        stack.enter_context(distributed.process_group(device))
        input_names(model)  # a TypeError if it cannot be trained
        for known in (tokenizers, getattr(val_set, "tokenizers", {})):
            check_vocabularies(model.config, known, to_train=True)
        if distributed.world_size() > 1 and not hasattr(train_set, "batches_for"):
            raise ValueError(
                f"train_set is a {type(train_set).__name__}, but several processes share a data set's batches"
            )
        train_batches, val_batches = (
            data.batches_for(recipe, device, train) if hasattr(data, "batches_for") else data
            for data, train in ((train_set, True), (val_set, False))
        )
        steps = recipe.epochs * len(train_batches)
        if not steps:
            raise ValueError("train_set has no batches: is it empty, or smaller than one batch (drop_last=True)?")
        if output is not None:
            description = describe_model(model, tokenizers, notes)  # what cannot be saved need not be trained
            if distributed.is_first():
                stack.enter_context(locked(output))
                _check_folder(output, resume)

        distributed.copy_from_first(model)
        if recipe.init_bias_from_unigrams:
            model.init_bias_from_unigrams(train_set.ids().bincount(minlength=model.config.vocab_size))
        optimizer = make_optimizer(model, recipe)
        schedule = learning_rate_schedule(
            optimizer, recipe.schedule, _warmup_steps(recipe, steps, log), steps, recipe.epochs, recipe.lr_decay
        )
        scaler = make_scaler(device, recipe.precision)
        average = MovingAverage(model, recipe.ema_decay) if recipe.ema_decay else None
        evaluated = model if average is None else average.module  # what is validated and kept
        best = copy.deepcopy(evaluated)
        parts = {"model": model, "best": best, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
        parts |= {} if average is None else {"average": average}
        if recipe.compile:
            compile_layers(model)

        def save_best() -> None:
            if output is not None and distributed.is_first():
                kept_notes = {**(notes or {}), "recipe": asdict(recipe), "history": asdict(history)}
                save_model(output / MODEL_FILE, best, tokenizers, kept_notes)

        if resume:
            state = load_training_state(output / STATE_FILE)
            _check_same_run(output, state, _identity(description, recipe))
            history = _restore(parts, state)
            save_best()  # a process may have been killed after it had written the state, and before the model
        else:
            history = History(first_val_loss=evaluate(evaluated, val_batches, progress))

        try:
            for epoch in range(len(history.val_loss) + 1, recipe.epochs + 1):
                started = time.perf_counter()
                if hasattr(train_batches, "set_epoch"):
                    train_batches.set_epoch(epoch)  # which decides their order, so that a resumed run sees the same
                seed_everything(seed_of(recipe.seed, epoch, distributed.rank()))  # each process has its own dropout
                how = optimizer, schedule, recipe.max_grad_norm, recipe.label_smoothing, recipe.rdrop_weight
                train_loss = train_epoch(model, train_batches, *how, recipe.precision, scaler, average, progress)
                val_loss = evaluate(evaluated, val_batches, progress)
                if not math.isfinite(val_loss):
                    raise FloatingPointError(f"training has diverged: the validation loss is {val_loss}")
                history.train_loss.append(train_loss)
                history.val_loss.append(val_loss)
                history.seconds.append(time.perf_counter() - started)
                if is_best := history.best_epoch == epoch:
                    best.load_state_dict(evaluated.state_dict())
                if output is not None and distributed.is_first():
                    state = {name: part.state_dict() for name, part in parts.items()}
                    state |= {"history": asdict(history), "run": _identity(description, recipe)}
                    save_training_state(output / STATE_FILE, state)
                save_best()
                log(
                    f"epoch {epoch:3d}/{recipe.epochs}  {history.seconds[-1]:5.0f} s  "
                    f"train loss {train_loss:.3f}  val loss {val_loss:.3f}  "
                    f"val perplexity {perplexity(val_loss):.2f}" + ("  (best)" if is_best else "")
                )
                if on_epoch is not None:
                    on_epoch(history)
        except (KeyboardInterrupt, OSError):
            if output is not None and (output / STATE_FILE).is_file():
                log(f"interrupted: resume=True (--resume) continues from the last complete epoch, which is in {output}")
            raise
        finally:
            model.load_state_dict(best.state_dict())
    return history


def compile_layers(model: nn.Module) -> None:
    """Let ``torch.compile`` make kernels for a model's layers, which all layers of a kind share."""
    for module in model.modules():
        if isinstance(module, EncoderLayer | DecoderLayer):
            module.compile(dynamic=True)


def _check_folder(output: Path, resume: bool) -> None:
    """Raise a FileExistsError if a new run would replace an earlier one, or a model; remove what killed ones left."""
    for name, what in ((STATE_FILE, "a training run: resume it (--resume), or"), (MODEL_FILE, "a model:")):
        if not resume and (output / name).exists():
            raise FileExistsError(f"{output} holds {what} choose another output folder (--output)")
        for unfinished in output.glob(f".{name}.*.tmp"):  # see ``replacing``
            unfinished.unlink()


def _warmup_steps(recipe: Recipe, steps: int, log: Callable[[str], None]) -> int:
    """Return the recipe's warm-up, or a tenth of the run if it would not end within it."""
    if recipe.warmup_steps <= steps:
        return recipe.warmup_steps
    fewer = max(1, steps // 10)
    log(f"warning: warmup_steps is {recipe.warmup_steps}, but the whole run has {steps} steps: it is cut to {fewer}")
    return fewer


def _identity(description: dict[str, str], recipe: Recipe) -> dict[str, str]:
    """Return what must be the same for a resumed run to be the same run."""
    settings = asdict(recipe)
    del settings["compile"]  # another way to compute the same
    if recipe.schedule != "linear":
        del settings["epochs"]  # there may be more, since the learning rate does not depend on when it ends
    config = json.loads(description["config"])
    same = {name: description[name] for name in ("model", "tokenizers")}
    same |= {f"config {name}": repr(value) for name, value in config.items()}
    return same | {f"recipe {name}": repr(value) for name, value in settings.items()}


def _check_same_run(output: Path, state: dict[str, Any], now: dict[str, str]) -> None:
    """Raise a ValueError if the folder's run was given other settings."""
    before = state.get("run", {})
    for name in sorted(before | now):
        if before.get(name) != now.get(name):
            values = [str(values.get(name))[:60] for values in (before, now)]
            raise ValueError(
                f"{output} holds a run with another {name}: it was {values[0]}, now it is {values[1]}; to resume a "
                "run, give it all that it was given at first"
            )


def _restore(parts: dict[str, Any], state: dict[str, Any]) -> History:
    """Put a saved state into the parts of a run, and return its history."""
    try:
        for name, part in parts.items():
            if state[name]:  # a scaler's is empty, except in float16
                part.load_state_dict(state[name])
        for optimizer in getattr(parts["optimizer"], "optimizers", [parts["optimizer"]]):
            for weights, moments in optimizer.state.items():
                tensors = [moment for moment in moments.values() if isinstance(moment, Tensor) and moment.dim()]
                if any(tensor.shape != weights.shape for tensor in tensors):  # a step would write beyond their end
                    raise ValueError("the optimizer's moments have other shapes than the weights")
        return History(**state["history"])
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{STATE_FILE} does not hold what this run needs to go on ({error})") from error
