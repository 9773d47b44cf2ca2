"""A whole training, which survives interruptions (section 5)."""

import contextlib
import copy
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from transformer_lib.checkpoint import MODEL_FILE, load_weights, save_model
from transformer_lib.data.batches import PairDataset
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.fast.worker import Worker
from transformer_lib.files import (
    STATE_FILE,
    CheckpointError,
    load_training_state,
    locked,
    remove_unfinished,
    save_training_state,
)
from transformer_lib.training import distributed, loop
from transformer_lib.training.device import seed_everything, seed_of
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
    on_epoch: Callable[[loop.History], None] | None = None,
    log: Callable[[str], None] = print,
) -> loop.History:
    """Train for ``recipe.epochs`` epochs and leave the model with the weights (or their average) that validated best.

    With ``output``, that folder holds after every epoch the best model so far (``model.safetensors``) and what
    ``resume=True`` continues from (``training_state.pt``). On a CPU, a resumed run ends with the same numbers as one
    that was never interrupted. Notebook 05, section 7.

    Args:
        model: any model that ``loop.py`` describes, on the device to train on. You seed its initial weights
            (``seed_everything``); they are the first candidate for the best.
        train_set, val_set: what ``make_dataset`` (``make_stream`` for a language model) returned, with the vocabularies
            that the model was built for; or a ``DataLoader`` or any other sized iterable of batches, used as it is. Its
            generator is seeded and its sampler's ``set_epoch`` called before each epoch; ``log`` hears if its order may
            be another when resumed. Several processes share each batch among them, so that there must be no
            ``DistributedSampler``.
        recipe: how to train. A warm-up that would outlast the run is cut to a tenth of its steps.
        output: folder to write to; by default, nothing is written.
        resume: continue what ``output`` holds. ``recipe.epochs`` may have grown, unless the schedule is ``"linear"``;
            if the warm-up was cut for fewer epochs, the run goes on, but not as an unbroken one would have.
        notes: anything to save with the model, such as the corpus's name. When fine-tuning, pass on the ``search`` of
            the notes that the model came with, and it keeps its search settings.
        tokenizers: to be saved with the model; by default, those of ``train_set``, if it has any.
        progress: show progress bars; by default, on a terminal and in a notebook.
        on_epoch: called with the history after each epoch, in every process.
        log: called with a line for each epoch, and with warnings before the first, in the first process.

    Raises:
        FileExistsError: ``output`` holds a training already, and ``resume`` is False; or another process trains there.
        TypeError, ValueError: the model cannot be trained or saved (see ``save_model``); the training to resume had
            another configuration, vocabulary, data or recipe; or ``torch.compile`` does not work here.
        FloatingPointError: a loss or a gradient is NaN or infinite; the message says at which step.
        OSError: the folder cannot be written to, or is gone, or another process has stopped (see ``distributed.py``).
        KeyboardInterrupt: after this or the two before, the model has the best weights so far, and the folder holds
            what it held after the last complete epoch.
    """
    log = log if distributed.is_first() else lambda line: None
    output = None if output is None else Path(output)
    if resume and output is None:
        raise ValueError("resume=True needs the output folder of the training to resume, but output is None")
    if output is not None and output.is_file():
        raise FileExistsError(f"output is {output}, a file, expected a folder")
    with distributed.process_group(next(model.parameters()).device), contextlib.ExitStack() as stack:
        run = _Run(model, train_set, val_set, recipe, output, notes, tokenizers, progress, log)
        if output is not None:
            distributed.broadcast(lambda: stack.enter_context(_open(output, resume)))
        if resume:
            run.restore()
        else:
            run.start()
        history = run.history
        try:
            while len(history.val_loss) < recipe.epochs:
                run.epoch()
                log(
                    f"epoch {len(history.val_loss):3d}/{recipe.epochs}  {history.seconds[-1]:5.0f} s  "
                    f"train loss {history.train_loss[-1]:.3f}  val loss {history.val_loss[-1]:.3f}  "
                    f"val perplexity {loop.perplexity(history.val_loss[-1]):.2f}"
                    + ("  (best)" if history.best_epoch == len(history.val_loss) else "")
                    + (f"  (steps skipped so far: {history.skipped_steps})" if history.skipped_steps else "")
                )
                if on_epoch is not None:
                    on_epoch(history)
            run.check_folder()
        except (KeyboardInterrupt, OSError):
            if output is not None and (output / STATE_FILE).is_file():
                where = f"in epoch {run.saved_epochs + 1}; the epochs before it are in {output}"
                log(f"interrupted {where}, resume=True (--resume) continues from there")
            raise
        except Exception as error:
            if not (resume or run.saved_epochs or isinstance(error, FloatingPointError)):
                run.forget()
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            reason = " ".join(str(error).splitlines()[:2])
            raise ValueError(f"recipe.compile is True, but torch.compile does not work here: {reason}") from error
        finally:
            model.load_state_dict(run.best_weights)
    return history


@contextlib.contextmanager
def _open(output: Path, resume: bool) -> Iterator[None]:
    """Lock the output folder, and remove the temporary files that killed processes have left in it."""
    with locked(output):
        for name, what in ((STATE_FILE, "a training: resume it (--resume), or"), (MODEL_FILE, "a model:")):
            if not resume and (output / name).exists():
                raise FileExistsError(f"{output} holds {what} choose another output folder (--output)")
            remove_unfinished(output / name)
        yield


class _Run:
    """The state of one training, in memory and on disk; see ``fit``, whose arguments these are."""

    def __init__(self, model, train_set, val_set, recipe, output, notes, tokenizers, progress, log):
        loop.input_names(model)  # raises an error if there are none
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError("model has no parameter with requires_grad=True, expected one at least: are all frozen?")
        for field, fits, expected in (
            ("init_bias_from_unigrams", hasattr(model, "init_bias_from_unigrams"), "a language model"),
            ("init_bias_from_unigrams", hasattr(train_set, "ids"), "a text"),
        ):
            if (value := getattr(recipe, field)) and not fits:
                kinds = f"{type(model).__name__} and a {type(train_set).__name__}"
                raise ValueError(f"{field} is {value}, but this trains a {kinds}: expected {expected}")
        self.model, self.train_set, self.recipe = model, train_set, recipe
        self.output, self.notes, self.progress = output, notes or {}, progress
        self.tokenizers = tokenizers or getattr(train_set, "tokenizers", {})
        for known in (self.tokenizers, getattr(val_set, "tokenizers", {})):
            check_vocabularies(model.config, known, to_train=True)
        _check_lengths(train_set, val_set, getattr(model.config, "max_len", math.inf))
        self.train_batches, self.val_batches = self.batches(train_set, train=True), self.batches(val_set, train=False)
        self.optimizer = make_optimizer(model, recipe)
        try:
            steps = recipe.epochs * len(self.train_batches)
        except TypeError:
            kind = type(self.train_batches).__name__
            raise TypeError(
                f"train_set is a {kind} without a length, expected one: list(…) of it, for example"
            ) from None
        if not steps:
            raise ValueError("train_set has no batches: is it empty, or smaller than one batch (drop_last=True)?")
        warmup_steps = recipe.warmup_steps
        if warmup_steps > steps:
            warmup_steps = max(1, steps // 10)
            log(
                f"warning   warmup_steps is {recipe.warmup_steps}, but the whole run has {steps} steps: "
                f"the warm-up is cut to {warmup_steps}"
            )
        if output is not None and (part := _unrestored(train_set)):
            log(f"warning   train_set's {part} has no set_epoch: if it shuffles, a resumed run sees another order")
        self.schedule = learning_rate_schedule(
            self.optimizer, recipe.schedule, warmup_steps, steps, recipe.epochs, recipe.lr_decay
        )
        ids_are_known = hasattr(train_set, "batches_for")  # a data set's come from its vocabularies
        self.worker = Worker(model, recipe.precision, recipe.compile, ids_are_known)
        self.parts = {"model": model, "optimizer": self.optimizer, "schedule": self.schedule}  # what is resumed
        self.parts["scaler"] = self.worker.scaler  # whose state is empty, except in float16
        self.average = None
        if recipe.ema_decay:
            self.average = self.parts["average"] = MovingAverage(model, recipe.ema_decay)
        self.eval_model = self.average.module if self.average else model  # what is validated and kept
        self.identity = self.describe(val_set)
        self.history = loop.History()
        self.saved_epochs = 0
        self.best_weights: dict[str, Tensor] = {}

    def batches(self, data: Any, train: bool) -> Any:
        """Return the batches: a data set makes them as the recipe says; other batches stay as they are."""
        if not hasattr(data, "batches_for"):
            return data
        return data.batches_for(self.recipe, next(self.model.parameters()).device, train)

    def describe(self, val_set: Any) -> dict[str, dict[str, str]]:
        """Return what must be the same for a resumed training to be the same training."""
        recipe = asdict(self.recipe)
        del recipe["compile"]  # another way to compute the same, which may change from run to run
        if recipe["schedule"] != "linear":
            del recipe["epochs"]  # there may be more, since the learning rate does not depend on when it ends
        data = {"training": self.train_set, "validation": val_set}
        # a loader is left out: its order is its own, and it may be endless
        data = {name: part for name, part in data.items() if hasattr(part, "batches_for")}
        identity = {
            "configuration": {"model": type(self.model).__name__, **asdict(self.model.config)},
            "recipe": recipe,
            "vocabulary (SHA-256)": {side: _digest(one.to_dict()) for side, one in self.tokenizers.items()},
            "data set (SHA-256)": {name: _digest([*part]) for name, part in data.items()},
        }
        # as text, which any value has, and in which NaN equals NaN
        return {name: {key: json.dumps(one, default=repr) for key, one in p.items()} for name, p in identity.items()}

    def start(self) -> None:
        """Validate and save the untrained model, so that an interruption in the first epoch loses nothing either."""
        if distributed.broadcast(lambda: self.identity) != self.identity:
            raise ValueError("the first process has another configuration, recipe, vocabulary or data")
        self.model.load_state_dict(distributed.broadcast(self.model.state_dict))
        if self.recipe.init_bias_from_unigrams:
            counts = self.train_set.ids().bincount(minlength=self.model.config.vocab_size)
            self.model.init_bias_from_unigrams(counts)
        self.history.first_val_loss = loop.evaluate(self.eval_model, self.val_batches, self.progress)
        self.save_state()
        try:
            self.keep_best()
        except Exception as error:
            if not isinstance(error, OSError):
                self.forget()
            raise

    def forget(self) -> None:
        """Remove the untrained model: what cannot be trained or saved leaves no training behind."""
        if self.output is not None and distributed.is_first():
            for file in (STATE_FILE, MODEL_FILE):
                (self.output / file).unlink(missing_ok=True)

    def restore(self) -> None:
        """Continue where the folder's training stopped."""
        path = self.output / STATE_FILE
        state = distributed.broadcast(lambda: load_training_state(path))
        for name, mine in self.identity.items():
            for key in sorted({**state[name], **mine}):
                if (before := state[name].get(key)) != (now := mine.get(key)):
                    change = f"{key} was {before}, now it is {now}"
                    hint = "to resume a training, give it all that it was given at first"
                    raise ValueError(f"{self.output} was trained with another {name}: {change}; {hint}")
        try:
            for name, part in self.parts.items():
                if state[name]:
                    part.load_state_dict(state[name])
            for optimizer in getattr(self.optimizer, "optimizers", [self.optimizer]):
                for weights, kept in optimizer.state.items():
                    for name, numbers in kept.items():  # a fused optimizer would write beyond the end of a shorter one
                        if isinstance(numbers, Tensor) and numbers.dim() and numbers.shape != weights.shape:
                            raise ValueError(f"{name} has shape {[*numbers.shape]}, expected {[*weights.shape]}")
            self.history = loop.History(**state["history"])
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path} does not hold what this training needs to go on ({error})") from error
        self.saved_epochs = len(self.history.val_loss)
        if self.saved_epochs:
            file, copied = self.output / MODEL_FILE, copy.deepcopy(self.eval_model)
            self.best_weights = distributed.broadcast(lambda: load_weights(file, copied))
        else:  # it may have been interrupted between writing the first two files
            self.keep_best()

    def epoch(self) -> None:
        """Train one epoch, validate, and save."""
        recipe, history, number = self.recipe, self.history, self.saved_epochs + 1
        started = time.perf_counter()
        self.choose_order(number)
        seed_everything(seed_of(recipe.seed, number, distributed.rank()))  # each process has its own dropout
        how = self.optimizer, self.schedule, recipe.max_grad_norm, recipe.label_smoothing, recipe.rdrop_weight
        trained = loop.train_epoch(self.model, self.train_batches, *how, self.worker, self.average, self.progress)
        val_loss = loop.evaluate(self.eval_model, self.val_batches, self.progress)
        if not math.isfinite(val_loss):
            raise FloatingPointError(f"the validation loss is {val_loss}: {loop.DIVERGED}")
        self.check_folder()
        history.train_loss.append(trained.loss)
        history.val_loss.append(val_loss)
        history.seconds.append(time.perf_counter() - started)
        history.skipped_steps += trained.skipped_steps
        if history.best_epoch == number:
            self.keep_best()
        self.save_state()
        self.saved_epochs = number

    def choose_order(self, epoch: int) -> None:
        """Let the epoch's number decide the order of the batches, so that a resumed training sees the same one."""
        samplers = (getattr(self.train_batches, name, None) for name in ("sampler", "batch_sampler"))  # a DataLoader's
        for part in (self.train_batches, *samplers):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
            if isinstance(part, RandomSampler) and part.generator is None:
                part.generator = torch.Generator()  # the global random numbers differ between processes
            if isinstance(getattr(part, "generator", None), torch.Generator):
                part.generator.manual_seed(seed_of(self.recipe.seed, epoch))

    def plain_history(self) -> dict[str, Any]:
        """Return the history as plain numbers; ``on_epoch`` may have put others into it."""
        return json.loads(json.dumps(asdict(self.history), default=float))

    def keep_best(self) -> None:
        """Keep the present weights as the best so far."""
        self.best_weights = copy.deepcopy(self.eval_model.state_dict())
        if self.output is not None and distributed.is_first():
            notes = {**self.notes, "recipe": asdict(self.recipe), "history": self.plain_history()}
            save_model(self.output / MODEL_FILE, self.eval_model, self.tokenizers, notes)

    def save_state(self) -> None:
        """Write everything that ``restore`` needs."""
        if self.output is not None and distributed.is_first():
            state = {name: part.state_dict() for name, part in self.parts.items()}
            state |= {"history": self.plain_history(), **self.identity}
            save_training_state(self.output / STATE_FILE, state)

    def check_folder(self) -> None:
        """Raise an error if the output folder has gone: a new one would lack the best model."""
        if distributed.is_first() and self.output is not None and not self.output.is_dir():
            raise FileNotFoundError(f"{self.output} is gone: was it removed, or unmounted, during the training?")


def _check_lengths(train_set: Any, val_set: Any, max_len: float) -> None:
    """Raise a ValueError if a sentence has more tokens than the model has positions."""
    for name, data in {"train_set": train_set, "val_set": val_set}.items():
        for number, (src, tgt) in enumerate(data.examples if isinstance(data, PairDataset) else (), start=1):
            if (longer := max(len(src) + 2, len(tgt) + 1)) > max_len:  # a target's <eos> is not read
                raise ValueError(
                    f"{name}: pair {number} takes {longer} positions, but the model's max_len is {max_len}; "
                    "make_dataset(…, max_len=…, log=print) leaves such pairs out"
                )


def _unrestored(batches: Any) -> str | None:
    """Return the name of what may order batches by random numbers that ``choose_order`` does not reach."""
    reached = [part for name in ("batch_sampler", "sampler") if (part := getattr(batches, name, None)) is not None]
    reached.append(batches)
    orders = reached[0]
    while type(orders) is BatchSampler:
        orders = orders.sampler
    is_seeded = hasattr(orders, "set_epoch") or isinstance(getattr(orders, "generator", None), torch.Generator)
    is_reached = any(orders is part for part in reached) and (is_seeded or isinstance(orders, RandomSampler))
    is_known = isinstance(orders, Sequence | SequentialSampler) or hasattr(batches, "set_epoch")
    return None if is_reached or is_known or hasattr(orders, "batches_for") else type(orders).__name__


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]
