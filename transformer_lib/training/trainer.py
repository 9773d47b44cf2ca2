"""A whole training run, which survives interruptions (section 5). Notebook 05, section 7."""

import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_lib.checkpoint import MODEL_FILE, describe_model, save_model
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.files import STATE_FILE, load_training_state, locked, save_training_state, say
from transformer_lib.training import distributed
from transformer_lib.training.loop import History
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.run import Run


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
    log: Callable[[str], None] = say,
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
    folder = None if output is None else RunFolder(output, model, recipe, tokenizers, notes or {})
    writes = folder is not None and distributed.is_first()
    train_batches = batches_of(train_set, recipe, device, train=True)
    val_batches = batches_of(val_set, recipe, device, train=False)
    with distributed.process_group(device), locked(folder.path) if writes else nullcontext():
        if writes and not resume:
            folder.refuse_another_run()
        if train_batches is train_set:
            kind = type(train_set).__name__
            if distributed.world_size > 1:
                raise ValueError(f"train_set is a {kind}, expected a data set that processes can share")
            if folder is not None:
                log(f"train_set is a {kind}: a resumed run repeats its order only if torch's random numbers decide it")
        if recipe.init_bias_from_unigrams:
            model.init_bias_from_unigrams(train_set.ids().bincount(minlength=model.config.vocab_size))
        run = Run(model, train_batches, val_batches, recipe)
        if recipe.warmup_steps > run.steps:
            log(f"warning: warmup_steps is {recipe.warmup_steps}, but the run has {run.steps} steps: a tenth warms up")
        if resume:
            folder.load(run)
            if writes and run.history.val_loss:
                folder.save_best(run)  # a process may have been killed after it had written the state, and before that
        else:
            run.begin()
        try:
            for epoch, validates in run.stops():
                line = run.validate(epoch) if validates else ""
                if writes:
                    folder.save_state(run)
                if validates:
                    if writes:
                        folder.save_best(run)
                    log(line)
                    if on_epoch is not None and on_epoch(run.history, run.candidate):
                        break
        finally:
            model.load_state_dict(run.best.state_dict())
    return run.history


def batches_of(data: Any, recipe: Recipe, device: torch.device, train: bool) -> Iterable[Any]:
    """Return a data set's batches, of which each process has its share; or what makes batches itself, as it is."""
    return data.batches_for(recipe, device, train, distributed.share()) if hasattr(data, "batches_for") else data


class RunFolder:
    """The folder of a run: its best model, what it resumes from, and the settings that must then be the same."""

    def __init__(self, path: str | Path, model: nn.Module, recipe: Recipe, tokenizers: Any, notes: dict[str, Any]):
        self.path, self.tokenizers, self.notes, self.recipe = Path(path), tokenizers, notes, asdict(recipe)
        description = describe_model(model, tokenizers, notes)  # what cannot be saved is not trained
        settings = {**json.loads(description["config"]), **self.recipe}
        settings |= {"model": description["model"], "tokenizers": description["tokenizers"]}
        if recipe.schedule != "linear":
            del settings["epochs"]  # there may be more, since the learning rate does not depend on when it ends
        self.settings = {name: repr(value) for name, value in settings.items()}

    def refuse_another_run(self) -> None:
        """Raise a FileExistsError if there is a run already."""
        if any((self.path / name).exists() for name in (STATE_FILE, MODEL_FILE)):
            raise FileExistsError(
                f"{self.path} holds a training run: resume it (--resume), or choose another (--output)"
            )

    def load(self, run: Run) -> None:
        """Let a run go on where that of the folder was; a ValueError if that had other settings."""
        state = load_training_state(self.path / STATE_FILE)
        for name, now in self.settings.items():
            if (before := state["settings"].get(name)) != now:
                raise ValueError(f"{self.path} had another {name}: it was {before!s:.60}, now it is {now:.60}")
        run.load_state_dict(state)

    def save_state(self, run: Run) -> None:
        """Write what the run resumes from."""
        save_training_state(self.path / STATE_FILE, {**run.state_dict(), "settings": self.settings})

    def save_best(self, run: Run) -> None:
        """Write the best model so far."""
        notes = {**self.notes, "recipe": self.recipe, "history": asdict(run.history)}
        save_model(self.path / MODEL_FILE, run.best, self.tokenizers, notes)
