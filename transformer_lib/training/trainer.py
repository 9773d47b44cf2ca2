"""Training: the loss, one epoch, evaluation, and a whole run that survives interruptions (section 5)."""

import contextlib
import copy
import hashlib
import json
import math
import operator
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from transformer_lib.checkpoint import (
    MODEL_FILE,
    STATE_FILE,
    CheckpointError,
    Model,
    check_vocabularies,
    load_model,
    load_training_state,
    remove_unfinished,
    save_model,
    save_training_state,
)
from transformer_lib.data.batches import Batches, Chunks, Dataset, prefetch, resegment
from transformer_lib.fast.precision import MixedPrecision
from transformer_lib.language_model.model import TransformerLanguageModel
from transformer_lib.model.embeddings import ids_are_known
from transformer_lib.training import distributed
from transformer_lib.training.divergence import ADVICE, DivergenceWatch
from transformer_lib.training.loss import output_loss, sequence_loss
from transformer_lib.training.optimizer import MovingAverage, learning_rate_schedule, make_optimizer
from transformer_lib.training.recipe import Recipe


class TrainedEpoch(NamedTuple):
    """What ``train_epoch`` returns.

    Attributes:
        loss: mean per target token, in nats: what is minimised, label smoothing and consistency included.
        skipped_steps: how many steps changed nothing, since their gradients overflowed; never any but in float16.
    """

    loss: float
    skipped_steps: int


@dataclass
class History:
    """What happened in each epoch so far: loss in nats per token, time in seconds.

    Attributes:
        train_loss: mean over the epoch, dropout (and label smoothing, if any) included.
        val_loss: after the epoch, without either.
        seconds: time that the epoch took, evaluation included.
        skipped_steps: how many steps of all epochs changed nothing, since their gradients overflowed in float16.
    """

    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    skipped_steps: int = 0

    @property
    def best_epoch(self) -> int:
        """The number, from 1, of the epoch with the lowest validation loss; there must have been one."""
        return 1 + min(range(len(self.val_loss)), key=self.val_loss.__getitem__)


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; for ``"auto"``, the best there is: CUDA, else Apple's MPS, else the CPU.

    Of several processes on one machine, each gets a GPU of its own (see ``parallel``).

    Raises:
        ValueError: there is no such device on this machine, or not one for each process.
    """
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        number, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if number >= gpus:
            raise ValueError(
                f"there is no GPU for process {number + 1} of this machine, which has {gpus}: start no more processes "
                "(--nproc-per-node), or train on CPUs (--device cpu). If each process sees only its own GPU, say so "
                "(--device cuda:0)"
            )
        name = f"cuda:{number}"
    try:
        device = torch.device(name)
        if available.get(device.type) and (device.type != "cuda" or (device.index or 0) < torch.cuda.device_count()):
            return device
    except RuntimeError:  # not a device's name at all
        pass
    choices = [kind for kind, there in available.items() if there]
    raise ValueError(f"device is {name!r}, but this machine has {', '.join(choices)}; 'auto' picks one")


def seed_everything(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and torch, on all devices."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def predict_targets(model: Model, batch: Any) -> tuple[Tensor, Tensor]:
    """Let the model predict each token of a batch from the true ones before it (teacher forcing).

    Args:
        model: a ``Transformer``, or a ``TransformerLanguageModel``.
        batch: with ``src`` and ``tgt``, ``[batch, seq_len]``; or with ``text`` and ``target``.

    Returns:
        Logits, ``[batch, tgt_len, vocab_size]``, and the tokens that should have been predicted, ``[batch, tgt_len]``.
    """
    features, targets = target_features(model, batch)
    return model.output(features), targets


def target_features(model: Model, batch: Any, passes: int = 1) -> tuple[Tensor, Tensor]:
    """Do what ``predict_targets`` does, up to the output layer.

    Args:
        model, batch: as in ``predict_targets``.
        passes: how often every sentence goes through the model, side by side; dropout makes the passes different.

    Returns:
        Features, ``[passes · batch, tgt_len, d_model]``, and targets, ``[batch, tgt_len]``.
    """
    if isinstance(model, TransformerLanguageModel):
        return model.features(batch.text.repeat(passes, 1)), batch.target
    given, wanted = batch.tgt[:, :-1], batch.tgt[:, 1:]  # given <sos> …, the decoder has to say … <eos>
    return model.features(batch.src.repeat(passes, 1), given.repeat(passes, 1)), wanted


def train_epoch(
    model: Model,
    batches: Batches | Chunks,
    optimizer: Optimizer,
    schedule: LRScheduler | None = None,
    clip: float = 1.0,
    label_smoothing: float = 0.0,
    consistency: float = 0.0,
    mixed: MixedPrecision | None = None,
    average: MovingAverage | None = None,
    progress: bool | None = None,
) -> TrainedEpoch:
    """Train on every batch once.

    Args:
        model: is left in training mode.
        batches: what ``predict_targets`` takes, on the model's device.
        optimizer: what updates the model.
        schedule: what changes the learning rate after each step, if anything.
        clip: gradients with a larger norm are scaled down to it.
        label_smoothing: see ``sequence_loss``.
        consistency: see ``output_loss``.
        mixed: what computes, in half precision or compiled; by default, the model itself.
        average: of the model's weights, to be updated after each step.
        progress: show a progress bar; by default, on a terminal and in a notebook.

    Raises:
        FloatingPointError: a loss or a gradient is not a number any more, and the model's weights, probably, neither.
    """
    model.train()
    pad_id = model.config.pad_id
    device = next(model.parameters()).device
    mixed = mixed or MixedPrecision(model)
    mixed.worker.train()
    watch = DivergenceWatch(device, mixed.scaler.is_enabled())
    total_loss = torch.zeros((), device=device)  # stays on the device: reading it each step would stop a GPU
    total_tokens = torch.zeros((), dtype=torch.long, device=device)
    for batch in _progress_bar(batches, "training", progress):
        features, targets = target_features(mixed.worker, distributed.share(batch), passes=2 if consistency else 1)
        loss = output_loss(mixed.worker.output, features, targets, pad_id, label_smoothing, consistency)
        tokens = (targets != pad_id).sum()
        sums = distributed.total(torch.stack([loss.detach() * tokens, tokens]))  # over all processes' shares
        all_tokens = sums[1].clamp(min=1)
        mixed.backward(loss * (tokens / all_tokens))
        norm = mixed.step(optimizer, clip)
        watch.step(sums[0] / all_tokens, norm, optimizer.param_groups[0]["lr"], batch)
        if schedule is not None:
            schedule.step()
        if average is not None:
            average.update_parameters(model)
        total_loss += loss.detach() * tokens
        total_tokens += tokens
    watch.look()
    return TrainedEpoch((distributed.total(total_loss) / distributed.total(total_tokens)).item(), watch.skipped_steps)


@torch.no_grad()
def evaluate(model: Model, batches: Batches | Chunks, progress: bool | None = None) -> float:
    """Return the mean loss per target token, in nats, with dropout off (see ``perplexity``).

    The model keeps the mode (training or evaluation) that it was in.
    """
    was_training = model.training
    model.eval()
    pad_id = model.config.pad_id
    device = next(model.parameters()).device
    total_loss, total_tokens = torch.zeros((), device=device), torch.zeros((), dtype=torch.long, device=device)
    try:
        for batch in _progress_bar(batches, "evaluating", progress):
            logits, targets = predict_targets(model, distributed.share(batch))
            total_loss += sequence_loss(logits, targets, pad_id, reduction="sum")
            total_tokens += (targets != pad_id).sum()
    finally:
        model.train(was_training)
    return (distributed.total(total_loss) / distributed.total(total_tokens)).item()


def perplexity(loss: float) -> float:
    """Return e to the power of a loss in nats: among how many tokens the model might as well have guessed."""
    return math.exp(loss) if loss < 700 else math.inf


def fit(
    model: Model,
    train_set: Dataset,
    val_set: Dataset,
    recipe: Recipe,
    output: str | Path | None = None,
    resume: bool = False,
    notes: dict[str, Any] | None = None,
    progress: bool | None = None,
    on_epoch: Callable[[History], None] | None = None,
    log: Callable[[str], None] = print,
) -> History:
    """Train for ``recipe.epochs`` epochs and leave the model with the weights (or their average) that validated best.

    With ``output``, that folder holds after every epoch the best model so far (``model.safetensors``) and what
    ``resume=True`` goes on from (``training_state.pt``). Each epoch's order and dropout follow from the recipe's seed
    and the epoch's number, so that on a CPU a resumed run ends with the same numbers as one that was never interrupted.

    Args:
        model: on the device to train on; its initial weights are yours to seed (``seed_everything``).
        train_set, val_set: what ``make_dataset`` (``make_stream`` for a language model) returned, with the vocabularies
            that the model was built for.
        recipe: how to train.
        output: folder to write to, if anything is to be kept.
        resume: go on with what ``output`` holds. ``recipe.epochs`` may have grown since, unless the recipe's schedule
            is ``"linear"``, which ends where it was told to end.
        notes: anything to write down in the saved model, such as the corpus's name.
        progress: show progress bars; by default, on a terminal and in a notebook.
        on_epoch: called with the history after each epoch, to draw it, say; in each of several processes.
        log: called with a line for each epoch, in the first of several processes.

    Returns:
        What happened in each epoch.

    Raises:
        FileExistsError: ``output`` holds a training already, and ``resume`` is False.
        ValueError: the training to resume had another configuration, vocabulary or recipe; or torch.compile is asked
            for, but does not work here (it needs a C++ compiler, for example).
        FloatingPointError: a loss or a gradient is not a number any more; the message says at which step. The model
            gets the best weights so far, and the folder keeps what it held before that epoch.
        OSError: the folder cannot be written to, or is gone, or another process has stopped (see ``parallel``); the
            folder keeps what it held before.
        KeyboardInterrupt: as always, but with a model and a state on disk that resuming goes on from.
    """
    log = log if distributed.is_first() else lambda line: None
    with distributed.together(next(model.parameters()).device), contextlib.ExitStack() as stack:
        run = _Run(model, train_set, val_set, recipe, None if output is None else Path(output), notes or {})
        for trained in (model, run.candidate):
            stack.enter_context(ids_are_known(trained))
        if resume:
            run.restore()
        else:
            run.start()
        try:
            while len(run.history.val_loss) < recipe.epochs:
                run.epoch(progress)
                history = run.history
                log(
                    f"epoch {len(history.val_loss):3d}/{recipe.epochs}  {history.seconds[-1]:5.0f} s  "
                    f"train loss {history.train_loss[-1]:.3f}  val loss {history.val_loss[-1]:.3f}  "
                    f"val perplexity {perplexity(history.val_loss[-1]):.2f}"
                    + ("  (best)" if history.best_epoch == len(history.val_loss) else "")
                    + (f"  (steps skipped so far: {history.skipped_steps})" if history.skipped_steps else "")
                )
                if on_epoch is not None:
                    on_epoch(history)
        except FloatingPointError:
            run.load_best()  # all processes look at the same sums, so that all are here
            raise
        except (KeyboardInterrupt, OSError):
            if output is not None and (Path(output) / STATE_FILE).is_file():
                log(
                    f"interrupted in epoch {run.saved_epochs + 1}; "
                    f"the epochs before it are in {output}, resume=True (--resume) goes on from there"
                )
            raise
        except Exception as error:
            if recipe.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                reason = " ".join(str(error).splitlines()[:2])
                raise ValueError(
                    f"recipe.compile is True (--compile), but torch.compile does not work here: {reason}"
                ) from error
            raise
        run.load_best()
    return run.history


class _Run:
    """The state of one training, in memory and on disk."""

    def __init__(
        self,
        model: Model,
        train_set: Dataset,
        val_set: Dataset,
        recipe: Recipe,
        output: Path | None,
        notes: dict[str, Any],
    ):
        self.model, self.recipe, self.output, self.notes = model, recipe, output, notes
        self.fields = train_set.fields
        for dataset in (train_set, val_set):
            check_vocabularies(model.config, dataset.fields)
        device = next(model.parameters()).device
        if isinstance(model, TransformerLanguageModel):
            self.train_batches = Chunks(train_set, recipe.batch_size, recipe.bptt, device)
            val_rows = max(1, min(recipe.batch_size, len(val_set[0].text) // 2))
            self.val_batches = Chunks(val_set, val_rows, recipe.bptt, device)
        elif recipe.from_counts:
            raise ValueError("recipe.from_counts is True, but only a language model can start from counts")
        else:
            self.train_set = train_set
            self.train_batches = self.pair_batches(epoch=1)
            self.val_batches = Batches(val_set, recipe.batch_size, device=device)
        self.optimizer = make_optimizer(model, recipe)
        steps = recipe.epochs * len(self.train_batches)
        self.schedule = learning_rate_schedule(
            self.optimizer, recipe.schedule, recipe.warmup_steps, steps, recipe.epochs, recipe.decay
        )
        self.average = MovingAverage(model, recipe.average) if recipe.average else None
        self.history = History()
        self.best_weights: dict[str, Tensor] | None = None
        self.saved_epochs = 0

    def pair_batches(self, epoch: int) -> Batches:
        """Make the batches of an epoch, in which every sentence may be cut into other subwords than before."""
        recipe = self.recipe
        data = self.train_set
        if recipe.subword_dropout:
            data = resegment(data, recipe.subword_dropout, recipe.seed + epoch, self.model.config.max_len)
        size = {"max_tokens": recipe.max_tokens} if recipe.max_tokens else {"batch_size": recipe.batch_size}
        device = next(self.model.parameters()).device
        return Batches(data, **size, train=True, seed=recipe.seed, device=device)

    def start(self) -> None:
        """Write the untrained model down, so that an interruption in the first epoch loses nothing either."""
        first, *others = distributed.from_all(self.identity())
        if any(other != first for other in others):
            raise ValueError("the processes have different configurations, recipes or vocabularies, expected the same")
        distributed.from_first(self.check_output)
        self.model.load_state_dict(distributed.from_first(self.model.state_dict))
        if self.recipe.from_counts:
            text = self.train_batches.dataset[0].text
            ids = torch.tensor([self.fields["text"].vocab[token] for token in text])
            self.model.start_from_counts(ids.bincount(minlength=self.model.config.vocab_size))
        self.mixed = MixedPrecision(self.model, self.recipe.precision, self.recipe.compile)
        self.save_state()
        self.keep_best()

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
        """Go on where the folder's training stopped."""
        if self.output is None:
            raise ValueError("resume=True needs the output folder of the training to resume, but output is None")
        state = distributed.from_first(lambda: load_training_state(self.output / STATE_FILE))
        path, identity = self.output / STATE_FILE, self.identity()
        parts = (*identity, "model", "optimizer", "schedule", "history")
        if lacking := [name for name in parts if not isinstance(state.get(name), dict)]:
            raise CheckpointError(f"{path} has no {lacking[0]}: it is not a complete training state")
        for name, mine in identity.items():
            # files written before a field of Recipe existed were trained with what is its default now
            theirs = {**asdict(Recipe()), **state[name]} if name == "recipe" else state[name]
            if different := sorted(key for key in mine if mine[key] != theirs.get(key)):
                key = different[0]
                raise ValueError(
                    f"{self.output} was trained with another {name}: "
                    f"{key} was {theirs.get(key)!r}, now it is {mine[key]!r}"
                )
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            self.history = History(**state["history"])
            self.check_state()
            self.mixed = MixedPrecision(self.model, self.recipe.precision, self.recipe.compile)
            if state.get("scaler"):
                self.mixed.scaler.load_state_dict(state["scaler"])
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path} does not hold what this training needs to go on ({error})") from error
        self.saved_epochs = len(self.history.val_loss)
        if distributed.from_first(lambda: self.tidy_up() or not (self.output / MODEL_FILE).exists()):
            if self.saved_epochs:
                raise FileNotFoundError(
                    f"{self.output} has no {MODEL_FILE} any more, the best model of its {self.saved_epochs} "
                    "epochs: put it back, or choose another output folder (--output)"
                )
            self.keep_best()  # interrupted between the first two files
        distributed.from_first(lambda: load_model(self.output / MODEL_FILE) and None)
        if self.saved_epochs < self.recipe.epochs:
            self.save_state()  # a folder that cannot be written to is better known now than after an epoch

    def check_state(self) -> None:
        """Raise a ValueError unless the history and the optimiser's numbers can be this training's.

        The optimisers themselves do not look, and would write beyond the end of what is too small.
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
        number = self.saved_epochs + 1
        started = time.perf_counter()
        if self.recipe.subword_dropout:
            self.train_batches = self.pair_batches(number)
        self.train_batches.set_epoch(number)
        torch.manual_seed(
            self.recipe.seed + number + 1_000_000 * distributed.rank()
        )  # dropout differs between processes
        trained = train_epoch(
            self.model,
            self.train_batches,
            self.optimizer,
            self.schedule,
            self.recipe.clip,
            self.recipe.label_smoothing,
            self.recipe.consistency,
            self.mixed,
            self.average,
            progress,
        )
        val_loss = evaluate(self.candidate, self.val_batches, progress)
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

    @property
    def candidate(self) -> Model:
        """What is validated and kept: the averaged model, if there is one, else the model that is being trained."""
        return self.model if self.average is None else self.average.module

    def keep_best(self) -> None:
        """Put the candidate's present weights aside as the best so far."""
        if self.output is None:
            self.best_weights = copy.deepcopy(self.candidate.state_dict())
        elif distributed.is_first():
            notes = {**self.notes, "recipe": asdict(self.recipe), "history": asdict(self.history)}
            save_model(self.output / MODEL_FILE, self.candidate, self.fields, notes)

    def load_best(self) -> None:
        """Give the model the best weights so far."""
        self.check_folder()
        if self.output is not None:
            dtype = next(self.model.parameters()).dtype
            self.best_weights = distributed.from_first(
                lambda: load_model(self.output / MODEL_FILE, dtype=dtype).model.state_dict()
            )
        self.model.load_state_dict(self.best_weights)

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
                "scaler": self.mixed.scaler.state_dict(),  # empty, except in float16
                "history": asdict(self.history),
                **self.identity(),
            }
            save_training_state(self.output / STATE_FILE, state)

    def identity(self) -> dict[str, dict[str, Any]]:
        """Say what must be the same for a resumed training to be the same training."""
        digests = {
            side: hashlib.sha256(json.dumps(field.to_dict()).encode()).hexdigest()[:12]
            for side, field in self.fields.items()
        }
        recipe = asdict(self.recipe)
        del recipe["compile"]  # another way to compute the same, which may change from run to run
        if self.recipe.schedule != "linear":
            del recipe["epochs"]  # more may be added, since the learning rate does not depend on when it ends
        return {"configuration": self.model.config.to_dict(), "recipe": recipe, "vocabulary (SHA-256)": digests}


def _progress_bar(batches: Iterable[Any], what: str, progress: bool | None) -> tqdm:
    """Run through batches, each of which is made while the one before it is used, and show how far."""
    if progress is None:
        ipython = sys.modules.get("IPython")
        in_notebook = ipython is not None and ipython.get_ipython() is not None
        progress = (sys.stdout.isatty() or in_notebook) and distributed.is_first()
    total = operator.length_hint(batches) or None
    return tqdm(prefetch(batches), what, total, unit="batch", leave=False, disable=not progress, file=sys.stdout)
