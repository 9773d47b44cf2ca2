"""How fast training is, measured side by side on Multi30k against what people would otherwise run.

- ``tutorials``: attention weights always materialised, PyTorch's dropout, all logits at once, float32, and batches of
  128 sentences that torchtext sorts only roughly: what the well-known tutorials do.
- ``nn.Transformer``: PyTorch's own layers with the same weights, float32, on this library's batches of 128 sentences.
- ``this library``: ``train_epoch`` on these batches, in float32 and in bfloat16; with ``--compile``, that with
  ``torch.compile``, too.

All train the same model with Adam. They take turns, a few batches each (making them counts), for several rounds in one
process, and an epoch is worked out from the seconds for each target token; the table has medians and the spread. Then
it measures how fast this machine multiplies matrices, and says what share of that rate each contender reaches with the
operations that are not spent on padding. Notebook 14 reads the JSON file.

    python benchmarks/training.py
    python benchmarks/training.py --preset multi30k_best --rounds 5 --output build/training.json
"""

import argparse
import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from contenders import (
    CORPUS,
    PAD,
    PRESET,
    SMALL,
    TorchTransformer,
    as_the_tutorials_do,
    compile_layers,
    few,
    machine,
    matrix_rates,
    own_memory,
    spread,
    synchronize,
    write,
)
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchtext.data import BucketIterator

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.data.batches import BucketBatches, PairDataset, build_vocabularies, make_dataset
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.data.torchtext import to_torchtext
from transformer_lib.files import accept_any_text
from transformer_lib.model.config import PRESETS
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.loop import train_epoch
from transformer_lib.training.optimizer import make_optimizer
from transformer_lib.training.recipe import Recipe

BATCH_SIZE = 128
LEARNING_RATE = 5e-4


def train_plainly(model: nn.Module, batches: Iterable[Any], optimizer: torch.optim.Optimizer) -> float:
    """Do what every tutorial's training loop does, and return the mean loss per token."""
    model.train()
    total_loss = total_tokens = 0
    for batch in batches:
        logits = model(batch.src, batch.tgt[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch.tgt[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens = (batch.tgt[:, 1:] != PAD).sum().item()
        total_loss += loss.item() * tokens
        total_tokens += tokens
    return total_loss / total_tokens


class Contender(NamedTuple):
    """A way to train: what it trains on, how, and in which precision."""

    batches: Callable[[], Iterable[Any]]
    train: Callable[[Iterable[Any]], Any]
    precision: str = "float32"


def names(compiled: bool) -> list[str]:
    """Name the contenders."""
    return ["tutorials", "nn.Transformer", "this library, float32", "this library, bfloat16"] + (
        ["this library, bfloat16, compiled"] if compiled else []
    )


def make_contender(name: str, model: Transformer, dataset: PairDataset | None, device: torch.device) -> Contender:
    """Give a way to train its own copy of the model, and its optimiser."""
    model = copy.deepcopy(model)
    if name in ("tutorials", "nn.Transformer"):
        theirs = as_the_tutorials_do(model) if name == "tutorials" else TorchTransformer(model)
        adam = torch.optim.Adam(theirs.parameters(), lr=LEARNING_RATE)

        def train(batches: Iterable[Any]) -> float:
            return train_plainly(theirs, batches, adam)

        if name == "nn.Transformer":
            return Contender(lambda: BucketBatches(dataset, BATCH_SIZE, train=True, device=device), train)
        examples = to_torchtext(dataset) if dataset else None
        by_source = {"sort_key": lambda example: len(example.src), "train": True, "device": device}
        return Contender(lambda: BucketIterator(examples, BATCH_SIZE, **by_source), train)

    precision = "bfloat16" if "bfloat16" in name else "float32"
    optimizer = make_optimizer(model, Recipe(learning_rate=LEARNING_RATE))
    if "compiled" in name:
        compile_layers(model)

    def train(batches: Iterable[Any]) -> float:
        return train_epoch(model, batches, optimizer, recipe=Recipe(precision=precision), progress=False)

    return Contender(lambda: BucketBatches(dataset, BATCH_SIZE, train=True, device=device), train, precision)


def endlessly(batches: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Go through the data again and again."""
    while True:
        yield from batches()


def count_tokens(batches: Iterable[Any]) -> int:
    """Return how many tokens are to be predicted."""
    return sum((batch.tgt[:, 1:] != PAD).sum().item() for batch in batches)


def remembering(batches: Iterable[Any], seen: list[Any]) -> Iterator[Any]:
    """Put batches aside as they pass."""
    for batch in batches:
        seen.append(batch)
        yield batch


def operations(model: Transformer, dataset: PairDataset, device: torch.device, sentences: int = 200) -> float:
    """Count the operations in matrix products that a training step cannot do without, for each wanted token."""
    model = as_the_tutorials_do(copy.deepcopy(model))  # a CPU's fused attention is not counted
    total = tokens = 0
    for example in dataset.examples[:: max(1, len(dataset) // sentences)]:
        src_len, tgt_len = len(example.src) + 2, len(example.tgt) + 1  # the target's <eos> is only predicted
        src, tgt = (torch.full((1, length), 4, device=device) for length in (src_len, tgt_len))
        with FlopCounterMode(display=False) as counter:
            model(src, tgt).sum().backward()
        total += counter.get_total_flops()
        tokens += tgt_len
    return total / tokens


def load(corpus_name: str, preset: str, device: torch.device) -> tuple[Transformer, PairDataset]:
    """Make the model of a preset, untrained, and the data that all contenders train on: words, as in the tutorials."""
    corpus = load_corpus(corpus_name)
    tokenizers = WordTokenizer(corpus.src), WordTokenizer(corpus.tgt)
    config = PRESETS[preset]
    dataset = make_dataset(few(corpus["train"]), *tokenizers, config.get("max_len", TransformerConfig.max_len))
    build_vocabularies(dataset, joint=config.get("tie_embeddings", False))
    seed_everything(1)
    sizes = (len(tokenizer.vocab) for tokenizer in tokenizers)
    return Transformer(TransformerConfig.preset(preset, *sizes)).to(device), dataset


def train_alone(name: str, batches: int, corpus: str, preset: str, device: str) -> Iterator[None]:
    """Do what ``own_memory`` measures."""
    model, dataset = load(corpus, preset, torch.device(device))
    contender = make_contender(name, model, dataset, torch.device(device))
    yield
    contender.train(itertools.islice(endlessly(contender.batches), batches))


def growth(model: Transformer, compiled: bool, device: torch.device) -> list[dict[str, float]]:
    """Measure a step of each kind on made-up batches of several sizes and lengths, in seconds."""
    rows = []
    contenders = {name: make_contender(name, model, None, device) for name in names(compiled)}
    sizes = [(16, 16), (64, 16), (256, 16), (64, 8), (64, 32), (64, 64)]
    for sentences, length in sizes[:1] if SMALL else sizes:
        ids = torch.randint(4, min(model.config.src_vocab_size, model.config.tgt_vocab_size), (sentences, length))
        batch = SimpleNamespace(src=ids.to(device), tgt=ids.to(device))
        row = {"sentences": sentences, "length": length}
        for name, contender in contenders.items():
            contender.train([batch])
            times = []
            for _ in range(3):
                synchronize(device)
                started = time.perf_counter()
                contender.train([batch])
                synchronize(device)
                times.append(time.perf_counter() - started)
            row[name] = statistics.median(times)
        rows.append(row)
    return rows


def main() -> None:
    """Measure, print, and write the figures down."""
    accept_any_text()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default=PRESET, choices=sorted(PRESETS), help="the model (tutorial)")
    parser.add_argument("--corpus", default=CORPUS, help="what to train on (multi30k)")
    parser.add_argument("--rounds", type=int, default=1 if SMALL else 5, help="turns of each contender (5)")
    parser.add_argument("--batches", type=int, default=1 if SMALL else 6, help="batches in a turn (6)")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile, which needs a C++ compiler")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args()

    device = pick_device(options.device)
    model, dataset = load(options.corpus, options.preset, device)
    contenders = {name: make_contender(name, model, dataset, device) for name in names(options.compile)}
    streams = {name: endlessly(contender.batches) for name, contender in contenders.items()}
    epoch_tokens = count_tokens(BucketBatches(dataset, BATCH_SIZE))
    per_token: dict[str, list[float]] = {name: [] for name in contenders}  # seconds
    for round_number in range(options.rounds + 1):
        for name, contender in contenders.items():
            seen: list[Any] = []
            synchronize(device)
            started = time.perf_counter()
            contender.train(itertools.islice(remembering(streams[name], seen), options.batches))
            synchronize(device)
            seconds = time.perf_counter() - started
            if round_number:  # the first is for warming up
                per_token[name].append(seconds / count_tokens(seen))

    work = operations(model, dataset, device)
    rates = matrix_rates(device)
    slowest = statistics.median(per_token["tutorials"])
    rows = []
    for name, values in per_token.items():
        median = statistics.median(values)
        arguments = (name, options.batches, options.corpus, options.preset, str(device))
        rows.append(
            {
                "contender": name,
                **spread(values, epoch_tokens),
                "times_as_fast": slowest / median,
                "share_of_limit": work / median / rates[contenders[name].precision],
                "memory_mb": own_memory(train_alone, arguments, device),
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
        **machine(device),
        "operations_per_epoch": work * epoch_tokens,
        "operations_per_second": rates,
        "contenders": rows,
        "growth": growth(model, options.compile, device),
    }
    write(options.output, result)
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print what was measured."""
    print(
        f"{result['preset']}: {result['parameters']:,} parameters, {result['target_tokens']:,} target tokens an epoch; "
        f"{result['device']}, {result['threads']} threads, torch {result['torch']}\n"
        f"{result['operations_per_epoch'] / 1e12:.1f} TFLOP an epoch; matrix products: "
        + ", ".join(f"{rate / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, rate in result["operations_per_second"].items())
    )
    print(f"{'':34}{'epoch, s':>10}{'min–max':>14}{'times as fast':>15}{'of the limit':>14}{'memory, MB':>12}")
    for row in result["contenders"]:
        between = f"{row['seconds_min']:.0f}–{row['seconds_max']:.0f}"
        print(
            f"{row['contender']:34}{row['seconds']:10.0f}{between:>14}{row['times_as_fast']:15.1f}"
            f"{row['share_of_limit']:14.0%}{row['memory_mb']:12,.0f}"
        )
    print("\nseconds a step, by sentences × length")
    for row in result["growth"]:
        steps = {name: seconds for name, seconds in row.items() if name not in ("sentences", "length")}
        print(f"{row['sentences']:5} × {row['length']:<3}" + "".join(f"  {name} {steps[name]:.3f}" for name in steps))


if __name__ == "__main__":
    main()
