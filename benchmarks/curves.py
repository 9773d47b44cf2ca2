"""Whether faster ways to train learn the same: the loss on the same batches, from the same weights, in every way.

In most of them, dropout draws other numbers, so the curves cannot be equal. How far apart chance alone takes them is
shown by another seed for dropout. Notebook 14 reads the JSON file.

    python benchmarks/curves.py
    python benchmarks/curves.py --batches 227 --compile --output build/curves.json
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from contenders import CORPUS, PRESET, SMALL, as_the_tutorials_do, compile_layers, few, machine, write
from training import BATCH_SIZE, LEARNING_RATE, endlessly, load, train_plainly

from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.corpora import load_corpus
from transformer_lib.model.config import PRESETS
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.loop import evaluate, train_epoch
from transformer_lib.training.optimizer import make_optimizer
from transformer_lib.training.recipe import Recipe

EVERY = 10  # batches between two points of a curve
TWO = "two processes"


def curve(way: str, batches: int, corpus: str, preset: str, device: torch.device) -> dict[str, Any]:
    """Train in one way, and return the mean training loss of every few batches and the validation loss at the end."""
    model, dataset = load(corpus, preset, device)
    val_set = make_dataset(few(load_corpus(corpus)["val"]), *dataset.tokenizers.values())
    theirs = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, eps=1e-9)  # the library's eps: only the way differs
    optimizer = make_optimizer(model, Recipe(learning_rate=LEARNING_RATE))

    def library(precision: str = "float32") -> Callable[[Iterable[Any]], float]:
        return lambda some: train_epoch(model, some, optimizer, recipe=Recipe(precision=precision), progress=False)

    def compiled(some: Iterable[Any]) -> float:
        compile_layers(model)
        return library()(some)

    def tutorials(some: Iterable[Any]) -> float:
        return train_plainly(as_the_tutorials_do(model), some, theirs)

    ways = {
        "tutorials": tutorials,
        "tutorials, other dropout": tutorials,
        "float32": library(),
        "float32, other dropout": library(),
        "bfloat16": library("bfloat16"),
        "compiled": compiled,
        TWO: library(),
    }
    seed_everything(2 if "other" in way else 1, distributed.rank_and_world_size()[0])
    points, stream = [], endlessly(lambda: BucketBatches(dataset, BATCH_SIZE, train=True, device=device))
    with distributed.process_group(device):
        for start in range(0, batches, EVERY):
            points.append(ways[way](list(itertools.islice(stream, min(EVERY, batches - start)))))
        val_loss = evaluate(model, BucketBatches(val_set, BATCH_SIZE, device=device), progress=False)
    return {"way": way, "train_loss": points, "val_loss": val_loss}


def in_two_processes(arguments: list[str]) -> dict[str, Any]:
    """Let torchrun start this script twice."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "curve.json"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run(
            [*torchrun, __file__, *arguments, "--only", TWO, "--output", str(file)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return json.loads(file.read_text())["curves"][0]


def main() -> None:
    """Train in each way, print, and write the curves down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default=PRESET, choices=sorted(PRESETS), help="the model (tutorial)")
    parser.add_argument("--corpus", default=CORPUS, help="what to train on (multi30k)")
    parser.add_argument("--batches", type=int, default=1 if SMALL else 110, help="how many to train on (110)")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile, which needs a C++ compiler")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()

    device = pick_device(options.device)
    ways = [f"{way}{dropout}" for way in ("tutorials", "float32") for dropout in ("", ", other dropout")]
    ways += ["bfloat16", *(["compiled"] * options.compile)]
    if device.type == "cpu" or torch.cuda.device_count() > 1:
        ways.append(TWO)
    same = ["--batches", str(options.batches), "--corpus", options.corpus, "--preset", options.preset]
    curves = []
    for way in [options.only] if options.only else ways:
        if way == TWO and not options.only:
            curves.append(in_two_processes([*same, "--device", options.device]))
        else:
            curves.append(curve(way, options.batches, options.corpus, options.preset, device))
        if distributed.is_first():
            points = curves[-1]["train_loss"]
            print(f"{way:24}" + " ".join(f"{loss:6.3f}" for loss in points[:: max(1, len(points) // 8)]), end="")
            print(f"   validation loss {curves[-1]['val_loss']:.4f}", flush=True)
            result = {"preset": options.preset, "corpus": options.corpus, "every": EVERY, **machine(device)}
            write(options.output, {**result, "curves": curves})


if __name__ == "__main__":
    main()
