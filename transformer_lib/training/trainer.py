"""A whole training that survives interruptions (section 5)."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.files import STATE_FILE, locked
from transformer_lib.training import distributed
from transformer_lib.training.loop import History, perplexity
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
    progress: bool | None = None,
    on_epoch: Callable[[History], None] | None = None,
    log: Callable[[str], None] = print,
) -> History:
    """Train for ``recipe.epochs`` epochs and leave the model with the weights (or their average) that validated best.

    With ``output``, that folder holds after every epoch the best model so far (``model.safetensors``) and what
    ``resume=True`` continues from (``training_state.pt``). Each epoch's order and dropout follow from the recipe's seed
    and the epoch's number, so that on a CPU a resumed run ends with the same numbers as one that was never interrupted.
    Notebook 05, section 7.

    Args:
        model: any model that ``loop.py`` describes, on the device to train on; its initial weights are
            yours to seed (``seed_everything``), and are the first candidate for the best.
        train_set, val_set: what ``make_dataset`` (``make_stream`` for a language model) returned, with the vocabularies
            that the model was built for; or a ``DataLoader`` or any other sized iterable of batches, used as it is. Its
            generator is seeded and its sampler's ``set_epoch`` called before each epoch.
        recipe: how to train.
        output: folder to write to, if anything is to be kept.
        resume: continue what ``output`` holds. ``recipe.epochs`` may have grown since, unless the recipe's schedule is
            ``"linear"``, which ends where it was told to end.
        notes: anything to write down in the saved model, such as the corpus's name. To fine-tune a model, hand over
            those that it came with, and it will go on searching as it did.
        tokenizers: to be saved with the model; by default, those of ``train_set``, if it has any.
        progress: show progress bars; by default, on a terminal and in a notebook.
        on_epoch: called with the history after each epoch, to draw it, say; in each of several processes.
        log: called with a line for each epoch, in the first of several processes.

    Returns:
        What happened in each epoch.

    Raises:
        FileExistsError: ``output`` holds a training already, and ``resume`` is False; or another process trains there.
        TypeError, ValueError: the model cannot be trained or saved (see ``save_model``); the training to resume had
            another configuration, vocabulary, data or recipe; or torch.compile is asked for, but does not work here (it
            needs a C++ compiler, for example).
        FloatingPointError: a loss or a gradient is NaN or infinite; the message says at which step. The model
            gets the best weights so far, and the folder keeps what it held before that epoch.
        OSError: the folder cannot be written to, or is gone, or another process has stopped (see ``distributed.py``);
            the folder keeps what it held before.
        KeyboardInterrupt: as always, but with a model and a state on disk to resume from.
    """
    log = log if distributed.is_first() else lambda line: None
    output = None if output is None else Path(output)
    with distributed.process_group(next(model.parameters()).device), contextlib.ExitStack() as stack:
        run = Run(model, train_set, val_set, recipe, output, notes, tokenizers)
        if output is not None:
            distributed.broadcast(lambda: stack.enter_context(locked(output)))
        if resume:
            run.restore()
        else:
            run.start(progress)
        history = run.history
        try:
            while len(history.val_loss) < recipe.epochs:
                run.epoch(progress)
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
            run.load_best()  # all processes look at the same sums, so that all get here
            raise
        except (KeyboardInterrupt, OSError):
            if output is not None and (output / STATE_FILE).is_file():
                log(
                    f"interrupted in epoch {run.saved_epochs + 1}; "
                    f"the epochs before it are in {output}, resume=True (--resume) continues from there"
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
    return history
