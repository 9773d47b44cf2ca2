"""What each part of the recipe for Multi30k is worth, and the paper's Table 3 for this corpus.

Every row is a model trained from scratch with the same budget and scored on the validation split; no test split is
touched. A row's result is one small JSON file in ``benchmarks/results``, which notebook 13 makes its tables from. Rows
that have one are skipped, and a run that was interrupted goes on after its last complete epoch:

    python benchmarks/recipes.py --list
    python benchmarks/recipes.py                                  # everything; two runs at a time, one thread each
    python benchmarks/recipes.py base heads-1 --seeds 1 2 3
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from transformer_lib.checkpoint import load_model
from transformer_lib.data.corpora import load_corpus
from transformer_lib.files import STATE_FILE, replace_file
from transformer_lib.inference import bleu
from transformer_lib.model.config import PRESETS
from transformer_lib.training.loop import perplexity
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.train_translator import train_translator, tune_length_penalty

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
RUNS = ROOT / "runs" / "recipes"
EPOCHS = 3  # of a model of the base's size; larger and smaller ones get as many as take the same time


class Row(NamedTuple):
    """A model and a recipe: everything that is not the default of ``TransformerConfig`` and ``Recipe``."""

    config: Mapping[str, Any] = MappingProxyType({})
    recipe: Mapping[str, Any] = MappingProxyType({})

    def __add__(self, other: "Row") -> "Row":
        """Change this row as ``other`` says."""
        return Row({**self.config, **other.config}, {**self.recipe, **other.recipe})


def one_after_the_other(steps: dict[str, Row]) -> dict[str, Row]:
    """Add up steps: each row has all that stands before it."""
    rows, so_far = {}, Row()
    for name, step in steps.items():
        rows[name] = so_far = so_far + step
    return rows


# from what the tutorials do to the base model of the tables below; the preset multi30k_best goes on from there
STEPS = one_after_the_other(
    {
        "tutorial": Row({"max_len": 256}, {"epochs": EPOCHS, "precision": "bfloat16"}),
        "subwords": Row({}, {"subwords": 4000}),
        "tied": Row({"tie_embeddings": True}),
        "sinusoidal": Row({"positions": "sinusoidal"}),
        "pre-norm": Row({"norm_first": True}),
        "tokens": Row({}, {"max_tokens": 3072}),
        "schedule": Row({}, {"learning_rate": 2e-3, "warmup_steps": 60, "schedule": "linear", "betas": (0.9, 0.98)}),
        "smoothing": Row({}, {"label_smoothing": 0.1}),
        "average": Row({}, {"ema_decay": 0.998}),
        "muon": Row({}, {"optimizer": "muon", "learning_rate": 4e-3, "weight_decay": 0.1}),
        "base": Row({"num_heads": 4}),
    }
)

# the paper's Table 3 for this corpus: one thing at a time changed in the base model; the letters are the paper's
TABLE_3 = {
    name: STEPS["base"] + change
    for name, change in {
        **{f"heads-{h}": Row({"num_heads": h}) for h in (1, 16)},  # (A): d_k is 256 / h, so the cost is the same
        **{f"layers-{n}": Row({"num_layers": n}, {"epochs": e}) for n, e in ((1, 6), (6, 2))},  # (C)
        **{f"d_model-{d}": Row({"d_model": d}, {"epochs": e}) for d, e in ((128, 6), (384, 2))},  # (C)
        "d_ff-1024": Row({"d_ff": 1024}),  # (C)
        **{f"dropout-{p}": Row({"dropout": p}) for p in (0.0, 0.2)},  # (D)
        "smoothing-0.0": Row({}, {"label_smoothing": 0.0}),  # (D)
        "learned": Row({"positions": "learned"}),  # (E)
    }.items()
}

# what the paper does not ask; two passes make an epoch dearer, so there are fewer
MORE = {
    name: STEPS["base"] + change
    for name, change in {
        "subword-dropout": Row({}, {"subword_dropout": 0.1}),
        "rdrop": Row({}, {"rdrop_weight": 1.5, "epochs": 2}),
    }.items()
}
ROWS = {**STEPS, **TABLE_3, **MORE}


def result_file(name: str, seed: int) -> Path:
    """Return where the result of a row is kept."""
    return RESULTS / f"{name}-seed-{seed}.json"


def run(name: str, seed: int) -> None:
    """Train one row on one thread, score it on the validation split, and write the result down."""
    torch.set_num_threads(1)
    config, changes = ROWS[name]
    recipe = replace(Recipe(), **changes, seed=seed)
    PRESETS["row"] = config
    corpus = load_corpus("multi30k")
    output = RUNS / f"{name}-seed-{seed}"
    resume = (output / STATE_FILE).exists()
    started = time.process_time()
    translator = train_translator(
        corpus, "row", recipe, output, resume, "cpu", log=lambda line: print(line, flush=True)
    )
    cpu_seconds = time.process_time() - started
    sources, references = ([pair[side] for pair in corpus["val"]] for side in (0, 1))
    greedy = bleu.score(translator.translate(sources, beam_size=1), references, translator.tgt_tokenizer)[0].value
    beam = tune_length_penalty(translator, corpus["val"], length_penalties=(0.0, 1.0, 2.0))
    history = load_model(output).notes["history"]
    result = {
        "row": name,
        "seed": seed,
        "parameters": translator.model.num_parameters(),
        "epochs": recipe.epochs,
        "train_loss": history["train_loss"][-1],
        "val_loss": min(history["val_loss"]),
        "val_perplexity": perplexity(min(history["val_loss"])),
        "val_bleu_greedy": greedy,
        "val_bleu_beam_4": max(beam.values()),
        "length_penalty": translator.length_penalty,
        "cpu_seconds": None if resume else cpu_seconds,
        "config": asdict(translator.model.config),
        "recipe": asdict(recipe),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, 1 thread",
    }
    replace_file(result_file(name, seed), (json.dumps(result, indent=2) + "\n").encode())
    print(f"{name}, seed {seed}: val BLEU {greedy:.2f} greedy, {max(beam.values()):.2f} beam 4")


def main() -> None:
    """Run what is asked for and has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="row", help="which rows (all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="one run each (1)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (2)")
    parser.add_argument("--list", action="store_true", help="print the rows and whether they have results")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.rows if name not in ROWS]:
        parser.error(f"row is {unknown[0]!r}, expected one of {', '.join(ROWS)}")
    wanted = [(name, seed) for seed in options.seeds for name in options.rows]
    missing = [(name, seed) for name, seed in wanted if not result_file(name, seed).exists()]
    if options.list:
        for name, seed in wanted:
            print(f"{name:14} seed {seed}  {'to do' if (name, seed) in missing else 'done'}")
    elif options.here:
        for name, seed in missing:
            run(name, seed)
    else:
        with ThreadPoolExecutor(options.jobs) as pool:
            failed = [name for name, code in pool.map(start, missing) if code]
        if failed:
            sys.exit(f"failed, see runs/recipes: {', '.join(failed)}")


def start(task: tuple[str, int]) -> tuple[str, int]:
    """Run one row in a process of its own, with its output in a file beside the run."""
    name, seed = task
    RUNS.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, name, "--seeds", str(seed), "--here"]
    with open(RUNS / f"{name}-seed-{seed}.log", "a") as log:
        code = subprocess.run(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        ).returncode
    print(f"{name}, seed {seed}: {'failed' if code else 'done'}", flush=True)
    return name, code


if __name__ == "__main__":
    main()
