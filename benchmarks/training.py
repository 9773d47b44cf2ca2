"""How fast training is, measured side by side on Multi30k against what people would otherwise run.

- ``tutorials``: attention weights always materialised, PyTorch's dropout, all logits at once, float32, and batches of
  128 sentences that torchtext sorts only roughly: what the well-known tutorials do.
- ``nn.Transformer``: PyTorch's own layers with the same weights, float32, on this library's batches of 128 sentences.
- ``this library``: ``train_epoch`` on these batches, in float32 and in bfloat16; with ``--compile``, that with
  ``torch.compile``, too.

All train the same model with Adam. They take turns, a few batches each, for several rounds in one process; the table
has medians and the spread. Then it measures how fast this machine multiplies matrices, and says what share of that rate
each contender reaches with the operations that are not spent on padding. Notebook 10 reads the JSON file.

    python benchmarks/training.py
    python benchmarks/training.py --preset multi30k_best --rounds 5 --output build/training.json
"""

import argparse
import copy
import itertools
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from contenders import PAD, TorchTransformer, as_the_tutorials_do, matrix_rate, most_resident, synchronize
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchtext.data import BucketIterator, Dataset

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.batching import Batches, make_dataset
from transformer_lib.checkpoint import replace_file
from transformer_lib.corpora import load_corpus
from transformer_lib.text import TextField, build_vocabularies
from transformer_lib.training import pick_device, seed_everything, train_epoch
from transformer_lib.transformer import PRESETS

BATCH_SIZE = 128


def train_plainly(model: nn.Module, batches: Iterable[Any], optimizer: torch.optim.Optimizer) -> float:
    """Do what every tutorial's training loop does, and return the mean loss of the batches."""
    model.train()
    total_loss, total_tokens = 0.0, 0
    for batch in batches:
        logits, targets = model(batch.src, batch.tgt[:, :-1]), batch.tgt[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens = (targets != PAD).sum().item()
        total_loss += loss.item() * tokens
        total_tokens += tokens
    return total_loss / total_tokens


class Contender(NamedTuple):
    """A way to train: what it trains on, and how."""

    batches: Callable[[], Iterable[Any]]
    train: Callable[[Iterable[Any]], Any]


COMPILED = "this library, compiled"


def make_contenders(
    model: Transformer, dataset: Dataset, device: torch.device, compiled: bool = False
) -> dict[str, Contender]:
    """Give each way to train its own copy of the model, and its optimiser."""

    def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=5e-4)

    def plain(make: Callable[[Transformer], nn.Module], batches: Callable[[], Iterable[Any]]) -> Contender:
        theirs = make(copy.deepcopy(model))
        optimizer = optimizer_of(theirs)
        return Contender(batches, lambda some: train_plainly(theirs, some, optimizer))

    def library(precision: str, compile: bool = False) -> Contender:
        ours = copy.deepcopy(model)
        optimizer = optimizer_of(ours)
        return Contender(
            our_batches,
            lambda some: train_epoch(ours, some, optimizer, precision=precision, compile=compile, progress=False),
        )

    def our_batches() -> Iterable[Any]:
        return Batches(dataset, BATCH_SIZE, train=True, device=device)

    def their_batches() -> Iterable[Any]:
        return BucketIterator(dataset, BATCH_SIZE, sort_key=lambda example: len(example.src), train=True, device=device)

    contenders = {
        "tutorials": plain(as_the_tutorials_do, their_batches),
        "nn.Transformer": plain(TorchTransformer, our_batches),
        "this library, float32": library("float32"),
        "this library, bfloat16": library("bfloat16"),
    }
    return contenders | ({COMPILED: library("bfloat16", compile=True)} if compiled else {})


def endlessly(batches: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Go through the data again and again."""
    while True:
        yield from batches()


def count_tokens(batches: Iterable[Any]) -> int:
    """Return how many tokens are to be predicted."""
    return sum((batch.tgt[:, 1:] != PAD).sum().item() for batch in batches)


def operations(model: Transformer, batch: Any) -> float:
    """Count the floating-point operations of a step that are not spent on padding, for each wanted token."""
    lengths = [(ids != PAD).sum(1) for ids in (batch.src, batch.tgt)]
    total = 0
    model.train()
    for src_len, tgt_len in zip(*(some.tolist() for some in lengths), strict=True):
        counter = FlopCounterMode(display=False)
        with counter:
            ids = [torch.full((1, length), 4, device=batch.src.device) for length in (src_len, tgt_len - 1)]
            model(*ids).sum().backward()
        total += counter.get_total_flops()
    return total / count_tokens([batch])


def load(corpus_name: str, preset: str, device: torch.device) -> tuple[Transformer, Dataset]:
    """Make the model of a preset, untrained, and the data that all contenders train on: words, as in the tutorials."""
    corpus = load_corpus(corpus_name)
    fields = TextField(corpus.src), TextField(corpus.tgt)
    config = PRESETS[preset]
    dataset = make_dataset(corpus["train"], *fields, config.get("max_len", TransformerConfig.max_len))
    build_vocabularies(dataset, joint=config.get("tie_embeddings", False))
    seed_everything(1)
    sizes = (len(field.vocab) for field in fields)
    return Transformer(TransformerConfig.preset(preset, *sizes)).to(device), dataset


def peak_memory(name: str, batches: int, corpus: str, preset: str, device: str) -> float:
    """Return by how many MB training grows a process of its own; on a GPU, how many MB it takes there."""
    model, dataset = load(corpus, preset, torch.device(device))
    contender = make_contenders(model, dataset, torch.device(device), name == COMPILED)[name]
    before = most_resident()
    contender.train(itertools.islice(endlessly(contender.batches), batches))
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 1e6
    return most_resident() - before


def growth(model: Transformer, device: torch.device) -> list[dict[str, float]]:
    """Measure a step of each kind on made-up batches of several sizes and lengths, in seconds."""
    rows = []
    for sentences, length in ((16, 16), (64, 16), (256, 16), (64, 8), (64, 32), (64, 64)):
        ids = torch.randint(4, model.config.tgt_vocab_size, (sentences, length), device=device)
        batch = SimpleNamespace(src=ids, tgt=ids)
        row = {"sentences": sentences, "length": length}
        for name, contender in make_contenders(model, None, device).items():
            contender.train([batch])
            started = time.perf_counter()
            contender.train([batch] * 2)
            synchronize(device)
            row[name] = (time.perf_counter() - started) / 2
        rows.append(row)
    return rows


def main() -> None:
    """Measure, print, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="tutorial", choices=sorted(PRESETS), help="the model (tutorial)")
    parser.add_argument("--corpus", default="multi30k", help="what to train on (multi30k)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender (5)")
    parser.add_argument("--batches", type=int, default=6, help="batches in a turn (6)")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile, which needs a C++ compiler")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args()

    device = pick_device(options.device)
    model, dataset = load(options.corpus, options.preset, device)
    contenders = make_contenders(model, dataset, device, options.compile)
    streams = {name: endlessly(contender.batches) for name, contender in contenders.items()}
    epoch_tokens = count_tokens(Batches(dataset, BATCH_SIZE))
    per_token: dict[str, list[float]] = {name: [] for name in contenders}  # seconds
    for round_number in range(options.rounds + 1):
        for name, contender in contenders.items():
            batches = list(itertools.islice(streams[name], options.batches))
            started = time.perf_counter()
            contender.train(batches)
            synchronize(device)
            seconds = time.perf_counter() - started
            if round_number:  # the first is for warming up
                per_token[name].append(seconds / count_tokens(batches))

    work = operations(model, next(iter(Batches(dataset, BATCH_SIZE, train=True))))
    rates = {"float32": matrix_rate(torch.float32, device), "bfloat16": matrix_rate(torch.bfloat16, device)}
    context = multiprocessing.get_context("spawn")
    slowest = statistics.median(per_token["tutorials"])
    rows = []
    for name, values in per_token.items():
        median = statistics.median(values)
        with context.Pool(1) as pool:
            arguments = (name, options.batches, options.corpus, options.preset, str(device))
            memory = pool.apply(peak_memory, arguments)
        rows.append(
            {
                "contender": name,
                "epoch_seconds": median * epoch_tokens,
                "epoch_seconds_min": min(values) * epoch_tokens,
                "epoch_seconds_max": max(values) * epoch_tokens,
                "times_as_fast": slowest / median,
                "share_of_limit": work / median / rates["bfloat16" if "bfloat16" in name else "float32"],
                "peak_memory_mb": memory,
            }
        )
    result = {
        "preset": options.preset,
        "parameters": model.num_parameters(),
        "corpus": options.corpus,
        "target_tokens": epoch_tokens,
        "batch_size": BATCH_SIZE,
        "rounds": options.rounds,
        "batches": options.batches,
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "operations_per_epoch": work * epoch_tokens,
        "operations_per_second": rates,
        "contenders": rows,
        "growth": growth(model, device),
    }
    show(result)
    if options.output is not None:
        replace_file(options.output, (json.dumps(result, indent=2) + "\n").encode())


def show(result: dict[str, Any]) -> None:
    """Print what was measured."""
    print(
        f"{result['preset']}: {result['parameters']:,} parameters, {result['target_tokens']:,} target tokens an epoch; "
        f"{result['device']}, {result['threads']} threads, torch {result['torch']}\n"
        f"{result['operations_per_epoch'] / 1e12:.1f} TFLOP an epoch; matrix products: "
        + ", ".join(f"{rate / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, rate in result["operations_per_second"].items())
    )
    print(f"{'':24}{'epoch, s':>10}{'min–max':>14}{'times as fast':>15}{'of the limit':>14}{'memory, MB':>12}")
    for row in result["contenders"]:
        spread = f"{row['epoch_seconds_min']:.0f}–{row['epoch_seconds_max']:.0f}"
        print(
            f"{row['contender']:24}{row['epoch_seconds']:10.0f}{spread:>14}{row['times_as_fast']:15.1f}"
            f"{row['share_of_limit']:14.0%}{row['peak_memory_mb']:12,.0f}"
        )
    print("\nseconds a step, by sentences × length")
    for row in result["growth"]:
        names = [row_["contender"] for row_ in result["contenders"]]
        print(f"{row['sentences']:5} × {row['length']:<3}" + "".join(f"  {name} {row[name]:.3f}" for name in names))


if __name__ == "__main__":
    main()
