"""A training for ``test_killed.py`` to kill: by the second, or at one of the lines of the library that it executes."""

import os
import signal
import sys
from pathlib import Path

import torch
from conftest import PAIRS

import transformer_lib
from transformer_lib import Transformer, TransformerConfig
from transformer_lib.data.batches import make_dataset
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.files import STATE_FILE
from transformer_lib.training.device import seed_everything
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

LIBRARY = str(Path(transformer_lib.__file__).parent)
RECIPE = Recipe(
    epochs=3,
    max_tokens=60,
    optimizer="muon",
    learning_rate=2e-3,
    schedule="linear",
    ema_decay=0.9,
    subwords=80,
    save_every=2,
)


def train(folder: Path, kill_at: int = 0, files: str | tuple[str, ...] = LIBRARY) -> None:
    """Train into a folder, going on with what is there, and append a line to ``epochs`` for each completed epoch.

    Args:
        folder: for the training.
        kill_at: die before this line is executed, counted from 1 among the lines of ``files``; 0 for never.
        files: what the file names begin with whose lines count; their number goes to the file ``lines``.
    """
    torch.set_num_threads(1)
    lines = 0

    def line_by_line(frame, event, argument):
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return line_by_line

    sys.settrace(lambda frame, *rest: line_by_line if frame.f_code.co_filename.startswith(files) else None)
    pieces = train_subwords(PAIRS, RECIPE.subwords)
    dataset = make_dataset(PAIRS, SubwordTokenizer("de", pieces), SubwordTokenizer("en", pieces))
    seed_everything(RECIPE.seed)
    config = TransformerConfig(80, 80, 16, 2, 32, 1, tie_embeddings=True, norm_first=True, max_len=60)
    run = folder / "run"
    with open(folder / "epochs", "a", buffering=1) as epochs:
        resume = (run / STATE_FILE).exists()
        fit(Transformer(config), dataset, dataset, RECIPE, run, resume, log=lambda line: print(line, file=epochs))
    sys.settrace(None)
    (folder / "lines").write_text(str(lines))
