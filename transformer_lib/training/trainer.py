"""A whole training run, which survives interruptions (section 5). Notebook 14, section 8."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from transformer_lib.checkpoint import MODEL_FILE, check_class, describe_model, save_model
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.files import STATE_FILE, load_training_state, locked, save_training_state, say
from transformer_lib.training import distributed
from transformer_lib.training.loop import History, batches_of
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.run import Run


def fit(
    model: nn.Module,
    train_set: Any,
    val_set: Any,
    recipe: Recipe,
    output: "str | Path | RunFolder | None" = None,
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
        model: any model that ``loop.py`` describes, on the device to train on, with its initial weights in float32 and
            some that require a gradient; a data set's sentences fit into its ``max_len`` (see ``make_dataset``).
        train_set, val_set: what ``make_dataset`` (``TextDataset`` for a language model) returned; or a ``DataLoader``
            or another sized iterable of batches, used as it is.
        recipe: how to train.
        output: folder to write to; by default, nothing is written.
        resume: continue what ``output`` holds. ``recipe.epochs`` may have grown, unless the schedule is ``"linear"``.
            (A run that was shorter than its warm-up goes on with ``warmup_steps`` set to those that it had.)
        notes: anything to save with the model, such as the corpus's name; when fine-tuning, its ``search``.
        tokenizers: to be saved with the model; by default, those of ``train_set``.
        on_epoch: called after each validation, in every process, with the history and the model that was validated: at
            the end of an epoch, or after ``recipe.validate_every`` steps. If it returns True, training ends.
        log: called with a line after each validation, in the first of several processes.

    Raises a FileExistsError if ``output`` holds a run that is not to be resumed; a ValueError if the run to resume had
    other settings, a vocabulary is not the model's, or it could not be loaded again from ``output``; a TypeError if it
    is a wrapper; and a FloatingPointError if the loss diverges.
    """
    log = log if distributed.is_first() else lambda line: None
    tokenizers = tokenizers or getattr(train_set, "tokenizers", {})
    check_class(model, "logits_and_targets")
    check_vocabularies(model.config, tokenizers, to_train=True)
    folder = output if isinstance(output, RunFolder) else RunFolder(output)
    if resume and folder.path is None:
        raise ValueError("resume is True and output None, expected the folder of the run to resume")
    folder.describe(model, recipe, tokenizers, notes or {})
    device = next(model.parameters()).device
    with distributed.process_group(device), folder.lock:
        train_batches = batches_of(train_set, recipe, device, train=True)
        val_batches = batches_of(val_set, recipe, device, train=False)
        if not resume:
            folder.refuse_another_run()
        if train_batches is train_set:
            kind = type(train_set).__name__
            if distributed.world_size > 1:
                raise ValueError(f"train_set is a {kind}, expected a data set that processes can share")
            if folder.path is not None:
                log(
                    f"train_set is a {kind}: a resumed run repeats it only if torch's random numbers decide it "
                    "(no generator of its own, no persistent workers)"
                )
        if recipe.init_bias_from_unigrams:
            model.init_bias_from_unigrams(train_set.ids().bincount(minlength=model.config.vocab_size))
        run = Run(model, train_batches, val_batches, recipe)
        if recipe.warmup_steps != run.warmup_steps:
            steps = f"the run has {run.total_steps} steps: {run.warmup_steps} warm up"
            log(f"warning: warmup_steps is {recipe.warmup_steps}, but {steps}")
        if resume:
            folder.load(run)
        else:
            run.begin()
        try:
            for stop in run.stops():
                line = run.validate(stop.epoch) if stop.validates else ""
                folder.save_state(run)
                if stop.validates:
                    folder.save_best(run.best, run.history)
                    log(line)
                    if on_epoch is not None and on_epoch(run.history, run.candidate):
                        break
        finally:
            model.load_state_dict(run.best.state_dict())
    return run.history


class RunFolder:
    """The folder of a run: its best model, what it resumes from, and the settings that must then be the same.

    Its ``lock`` keeps every other run out, and may be entered again inside. Of several processes, the first one writes;
    without a path, nobody does.
    """

    def __init__(self, path: str | Path | None):
        self.path = None if path is None else Path(path)
        self.writes = self.path is not None and distributed.is_first()
        self.notes: dict[str, Any] = {}
        self.lock = locked(self.path) if self.writes else nullcontext()

    def describe(self, model: nn.Module, recipe: Recipe, tokenizers: Any, notes: dict[str, Any]) -> None:
        """Note down what is saved with the model; an error if it could not be loaded again, before it is trained."""
        if self.path is None:
            return
        self.tokenizers = tokenizers
        self.notes = {**notes, "recipe": asdict(recipe)}
        description = describe_model(model, tokenizers, notes)
        settings = {
            **json.loads(description["config"]),
            **asdict(recipe),
            "model": description["model"],
            "tokenizers": description["tokenizers"],
        }
        if recipe.schedule != "linear":
            del settings["epochs"]  # there may be more, since the learning rate does not depend on when it ends
        self.settings = {name: repr(value) for name, value in settings.items()}

    def refuse_another_run(self) -> None:
        """Raise a FileExistsError if there is a run already."""
        if self.writes and any((self.path / name).exists() for name in (STATE_FILE, MODEL_FILE)):
            raise FileExistsError(
                f"{self.path} holds a training run: resume it (--resume), or choose another (--output)"
            )

    def load(self, run: Run) -> None:
        """Let a run go on where that of the folder was; a ValueError if that had other settings."""
        state = load_training_state(self.path / STATE_FILE)
        for name, now in self._settings_of(run).items():
            before = str(state["settings"].get(name))
            if before != now:
                raise ValueError(f"{self.path} had another {name}: it was {before:.60}, now it is {now:.60}")
        run.load_state_dict(state)
        if run.history.val_loss:  # a process may have been killed after it had written the state, and before the model
            self.save_best(run.best, run.history)

    def save_state(self, run: Run) -> None:
        """Write what the run resumes from."""
        if self.writes:
            save_training_state(self.path / STATE_FILE, {**run.state_dict(), "settings": self._settings_of(run)})

    def _settings_of(self, run: Run) -> dict[str, str]:
        """Return what must be the same when a run is resumed; of its warm-up, what a short run has made of it."""
        return {**self.settings, "warmup_steps": repr(run.warmup_steps)}

    def save_best(self, model: nn.Module, history: History) -> None:
        """Write the best model so far, with what ``notes`` say and its history."""
        if self.writes:
            save_model(self.path / MODEL_FILE, model, self.tokenizers, {**self.notes, "history": asdict(history)})
