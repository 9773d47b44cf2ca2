"""The state of one training, in memory and on disk: how it starts, resumes, and keeps its best."""

import copy
import hashlib
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.checkpoint import MODEL_FILE, config_to_dict, load_weights, save_model
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.fast.worker import Worker
from transformer_lib.files import (
    STATE_FILE,
    CheckpointError,
    load_training_state,
    remove_unfinished,
    save_training_state,
)
from transformer_lib.training import distributed, loop
from transformer_lib.training.device import seed_everything
from transformer_lib.training.divergence import ADVICE
from transformer_lib.training.optimizer import MovingAverage, learning_rate_schedule, make_optimizer
from transformer_lib.training.recipe import Recipe

_SAMPLERS = ("sampler", "batch_sampler")  # of a DataLoader, which may have an order of their own


class Run:
    """One training; see ``fit``, whose arguments these are."""

    def __init__(
        self,
        model: nn.Module,
        train_set: Any,
        val_set: Any,
        recipe: Recipe,
        output: Path | None,
        notes: dict[str, Any] | None = None,
        tokenizers: dict[str, WordTokenizer] | None = None,
    ):
        loop.input_names(model)  # says so if there are none
        self.model, self.recipe, self.output, self.notes = model, recipe, output, notes or {}
        self.train_set, self.val_set = train_set, val_set
        self.tokenizers = tokenizers or getattr(train_set, "tokenizers", {})
        for known in (self.tokenizers, getattr(val_set, "tokenizers", {})):
            check_vocabularies(model.config, known)
        data = {"training": train_set, "validation": val_set}  # a loader's order is its own, and it may be endless
        self.digests = {name: _digest([*part]) for name, part in data.items() if hasattr(part, "batches_for")}
        self.train_batches = self._batches(train_set, train=True)
        self.val_batches = self._batches(val_set, train=False)
        self.optimizer = make_optimizer(model, recipe)
        steps = recipe.epochs * len(self.train_batches)
        self.schedule = learning_rate_schedule(
            self.optimizer, recipe.schedule, recipe.warmup_steps, steps, recipe.epochs, recipe.lr_decay
        )
        self.average = MovingAverage(model, recipe.ema_decay) if recipe.ema_decay else None
        self.history = loop.History()
        self.best_weights: dict[str, Tensor] | None = None
        self.saved_epochs = 0

    def _batches(self, data: Any, train: bool, epoch: int = 1) -> Any:
        """Return what makes an epoch's batches: a data set cuts them as the recipe says; batches stay as they are."""
        if not hasattr(data, "batches_for"):
            return data
        max_len = getattr(self.model.config, "max_len", math.inf)
        return data.batches_for(self.recipe, next(self.model.parameters()).device, train, epoch, max_len)

    def start(self, progress: bool | None = None) -> None:
        """Write the untrained model down, so that an interruption in the first epoch loses nothing either."""
        first, *others = distributed.all_gather(self.identity())
        if any(other != first for other in others):
            raise ValueError("the processes have different configurations, recipes or vocabularies, expected the same")
        distributed.broadcast(self.check_output)
        self.model.load_state_dict(distributed.broadcast(self.model.state_dict))
        if self.recipe.init_bias_from_unigrams:
            if not hasattr(self.model, "init_bias_from_unigrams"):
                raise ValueError(
                    "recipe.init_bias_from_unigrams is True, but only a language model can start from counts"
                )
            counts = self.train_set.ids().bincount(minlength=self.model.config.vocab_size)
            self.model.init_bias_from_unigrams(counts)
        self.start_worker()
        self.history.first_val_loss = loop.evaluate(self.eval_model, self.val_batches, progress)
        self.save_state()
        try:
            self.keep_best()
        except (TypeError, ValueError):  # a model that cannot be saved leaves no training behind
            if self.output is not None and distributed.is_first():
                (self.output / STATE_FILE).unlink()
            raise

    def start_worker(self) -> None:
        """Make what computes, of the model as it is now."""
        known = hasattr(self.train_set, "batches_for")  # a data set's ids come from its vocabularies
        self.worker = Worker(self.model, self.recipe.precision, self.recipe.compile, ids_are_known=known)

    def check_output(self) -> None:
        """Refuse to write over a training or a model."""
        if self.output is not None:
            if (self.output / STATE_FILE).exists():
                raise FileExistsError(
                    f"{self.output} holds a training: resume it (--resume), or choose another output folder (--output)"
                )
            if (self.output / MODEL_FILE).exists():
                raise FileExistsError(f"{self.output} holds a model: choose another output folder (--output)")
            self.output.mkdir(parents=True, exist_ok=True)
            self.tidy_up()

    def tidy_up(self) -> None:
        """Remove what a process that was killed in the middle of writing has left."""
        for name in (MODEL_FILE, STATE_FILE):
            remove_unfinished(self.output / name)

    def restore(self) -> None:
        """Continue where the folder's training stopped."""
        if self.output is None:
            raise ValueError("resume=True needs the output folder of the training to resume, but output is None")
        state = distributed.broadcast(lambda: load_training_state(self.output / STATE_FILE))
        path, identity = self.output / STATE_FILE, self.identity()
        parts = (*identity, "model", "optimizer", "schedule", "history")
        if lacking := [name for name in parts if not isinstance(state.get(name), dict)]:
            raise CheckpointError(f"{path} has no {lacking[0]}: it is not a complete training state")
        for name, mine in identity.items():
            theirs = state[name]
            if different := sorted(key for key in {**theirs, **mine} if mine.get(key) != theirs.get(key)):
                key = different[0]
                raise ValueError(
                    f"{self.output} was trained with another {name}: "
                    f"{key} was {theirs.get(key)!r}, now it is {mine.get(key)!r}"
                )
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            vars(self.history).update(vars(loop.History(**state["history"])))
            self.check_state()
            self.start_worker()
            if state.get("scaler"):
                self.worker.scaler.load_state_dict(state["scaler"])
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path} does not hold what this training needs to go on ({error})") from error
        self.saved_epochs = len(self.history.val_loss)
        if distributed.broadcast(lambda: self.tidy_up() or not (self.output / MODEL_FILE).exists()):
            if self.saved_epochs:
                raise FileNotFoundError(
                    f"{self.output} has no {MODEL_FILE} any more, the best model of its {self.saved_epochs} "
                    "epochs: put it back, or choose another output folder (--output)"
                )
            self.keep_best()  # interrupted between the first two files
        distributed.broadcast(lambda: load_weights(self.output / MODEL_FILE, copy.deepcopy(self.eval_model)))
        if self.saved_epochs < self.recipe.epochs:
            self.save_state()  # a folder that cannot be written to is better known now than after an epoch

    def check_state(self) -> None:
        """Raise a ValueError unless the history and the optimizer's numbers can be this training's.

        The optimizers themselves do not look, and would write beyond the end of what is too small.
        """
        lists = (self.history.train_loss, self.history.val_loss, self.history.seconds)
        if len({len(numbers) for numbers in lists}) > 1 or not all(
            isinstance(number, float) for numbers in lists for number in numbers
        ):
            raise ValueError("the history has other than one loss for each epoch")
        for optimizer in getattr(self.optimizer, "optimizers", [self.optimizer]):
            for weights, kept in getattr(optimizer, "optim", optimizer).state.items():
                for name, numbers in kept.items():
                    if isinstance(numbers, Tensor) and numbers.dim() and numbers.shape != weights.shape:
                        raise ValueError(f"{name} has shape {list(numbers.shape)}, expected {list(weights.shape)}")

    def check_folder(self) -> None:
        """Say so if the output folder is not there any more."""
        if distributed.is_first() and self.output is not None and not self.output.is_dir():
            raise FileNotFoundError(f"{self.output} is gone: was it removed, or unmounted, during the training?")

    def epoch(self, progress: bool | None) -> None:
        """Train one epoch, evaluate, and write down what came of it."""
        recipe, number = self.recipe, self.saved_epochs + 1
        started = time.perf_counter()
        if recipe.subword_dropout:
            self.train_batches = self._batches(self.train_set, train=True, epoch=number)
        self.choose_order(number)
        seed_everything(recipe.seed + number + 1_000_000 * distributed.rank())  # each process its own dropout
        trained = loop.train_epoch(
            self.model,
            self.train_batches,
            self.optimizer,
            self.schedule,
            recipe.max_grad_norm,
            recipe.label_smoothing,
            recipe.rdrop_weight,
            self.worker,
            self.average,
            progress,
        )
        val_loss = loop.evaluate(self.eval_model, self.val_batches, progress)
        if not math.isfinite(val_loss):
            raise FloatingPointError(f"the validation loss is {val_loss}: {ADVICE}")
        self.check_folder()
        self.history.train_loss.append(trained.loss)
        self.history.val_loss.append(val_loss)
        self.history.seconds.append(time.perf_counter() - started)
        self.history.skipped_steps += trained.skipped_steps
        if self.history.best_epoch == number:
            self.keep_best()
        self.save_state()
        self.saved_epochs = number

    def choose_order(self, epoch: int) -> None:
        """Let the order of the batches follow from the epoch, so that a resumed training sees them in the same one."""
        for part in (self.train_batches, *(getattr(self.train_batches, name, None) for name in _SAMPLERS)):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
            if isinstance(getattr(part, "generator", None), torch.Generator):
                part.generator.manual_seed(self.recipe.seed + epoch)

    @property
    def eval_model(self) -> nn.Module:
        """What is validated and kept: the averaged model, if there is one, else the model that is being trained."""
        return self.model if self.average is None else self.average.module

    def keep_best(self) -> None:
        """Put the present weights aside as the best so far."""
        if self.output is None:
            self.best_weights = copy.deepcopy(self.eval_model.state_dict())
        elif distributed.is_first():
            notes = {**self.notes, "recipe": asdict(self.recipe), "history": asdict(self.history)}
            save_model(self.output / MODEL_FILE, self.eval_model, self.tokenizers, notes)

    def load_best(self) -> None:
        """Give the model the best weights so far."""
        self.check_folder()
        if self.output is None:
            self.model.load_state_dict(self.best_weights)
        else:
            if distributed.is_first():
                load_weights(self.output / MODEL_FILE, self.model)
            self.model.load_state_dict(distributed.broadcast(self.model.state_dict))

    def save_state(self) -> None:
        """Write down everything that ``restore`` needs."""
        if self.output is None:
            return
        optimizer = self.optimizer.state_dict()  # which all processes have a share of
        if distributed.is_first():
            state = {
                "model": self.model.state_dict(),
                "optimizer": optimizer,
                "schedule": self.schedule.state_dict(),
                "average": None if self.average is None else self.average.state_dict(),
                "scaler": self.worker.scaler.state_dict(),  # empty, except in float16
                "history": asdict(self.history),
                **self.identity(),
            }
            save_training_state(self.output / STATE_FILE, state)

    def identity(self) -> dict[str, dict[str, Any]]:
        """Say what must be the same for a resumed training to be the same training."""
        vocabularies = {side: _digest(tokenizer.to_dict()) for side, tokenizer in self.tokenizers.items()}
        recipe = asdict(self.recipe)
        del recipe["compile"]  # another way to compute the same, which may change from run to run
        if self.recipe.schedule != "linear":
            del recipe["epochs"]  # more may be added, since the learning rate does not depend on when it ends
        configuration = {"model": type(self.model).__name__, **config_to_dict(self.model.config)}
        return {
            "configuration": configuration,
            "recipe": recipe,
            "vocabulary (SHA-256)": vocabularies,
            "data set (SHA-256)": self.digests,
        }


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]
