"""What each part of ``transformer_lib/fast`` is worth on this device: the same work with it and without, in turn.

The training rows take steps with the ``tutorial`` model on Multi30k, the translating rows translate its 1,000 test
sentences greedily with the model that comes with the library. With and without take turns in one process; the table has
medians, and the gain is the median of the pairs' ratios (and their range). A part that gains less than a tenth on every
device that it was measured on is deleted.

    python benchmarks/fast.py
    python benchmarks/fast.py --rounds 5 --output build/fast.json
"""

import argparse
import contextlib
import copy
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from contenders import CORPUS, PRESET, SMALL, TEST, compile_layers, few, machine, synchronize, write
from torch import nn

from transformer_lib import Transformer, TransformerConfig, Translator, WordTokenizer, load_corpus
from transformer_lib.data.batches import BucketBatches, build_vocabularies, make_dataset
from transformer_lib.fast.muon import BatchedMuon
from transformer_lib.fast.precision import fast_dtype
from transformer_lib.inference import translator as translating
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.training import optimizer as optimizing
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.loop import train_epoch
from transformer_lib.training.optimizer import make_optimizer
from transformer_lib.training.recipe import RECIPES, Recipe

Pair = tuple[Callable[[], object], Callable[[], object]]  # the same work with a part, and without it
STEPS = 1 if SMALL else 5  # in a turn


def without_cheap_dropout() -> contextlib.AbstractContextManager:
    """Let PyTorch's own function drop entries and weights."""
    stack = contextlib.ExitStack()
    for place in ("fast.dropout", "model.attention"):
        name = "drop" if place == "model.attention" else "dropout"
        stack.enter_context(mock.patch(f"transformer_lib.{place}.{name}", F.dropout))
    return stack


def with_the_fused_kernel() -> contextlib.AbstractContextManager:
    """Take PyTorch's fused attention always."""
    return mock.patch("transformer_lib.model.attention.use_fused_kernel", lambda q, dropout: True)


def training_rows(device: torch.device) -> dict[str, Pair]:
    """Make the rows about training: a few steps each."""
    corpus, src, tgt = load_corpus(CORPUS), WordTokenizer("de"), WordTokenizer("en")
    dataset = make_dataset(few(corpus["train"]), src, tgt)
    build_vocabularies(dataset)
    recipe = RECIPES["tutorial"]
    seed_everything(recipe.seed)
    start = Transformer(TransformerConfig.preset(PRESET, len(src.vocab), len(tgt.vocab))).to(device)
    batches = list(BucketBatches(dataset, recipe.batch_size, train=True, device=device))[:100]

    def steps(
        precision: str = "float32",
        dropout: float = 0.1,
        without: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
        muon: type | None = None,
        emulated: bool = False,
        number: int = STEPS,
        compiled: bool = False,
    ) -> Callable[[], object]:
        model = copy.deepcopy(start)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
            elif isinstance(module, MultiHeadAttention):
                module.dropout = dropout
        claimed = "AVX512" if emulated else torch.backends.cpu.get_cpu_capability()
        capability = mock.patch.object(torch.backends.cpu, "get_cpu_capability", lambda: claimed)
        with capability, mock.patch.object(optimizing, "BatchedMuon", muon):
            optimizer = make_optimizer(model, replace(recipe, optimizer="muon") if muon else recipe)
        if compiled:
            compile_layers(model)
        endless = itertools.cycle(batches)  # both of a pair take the same ones in a turn: their lengths differ by half

        def take() -> None:
            some = itertools.islice(endless, number)
            with mock.patch.object(torch.backends.cpu, "get_cpu_capability", lambda: claimed), without():
                train_epoch(model, some, optimizer, recipe=Recipe(precision=precision), progress=False)

        return take

    if fast_dtype(device) == torch.float32:
        muon = partial(steps, "bfloat16", muon=BatchedMuon, number=1)  # that may take half a minute
        return {
            "training: cheap random bits for dropout": (steps(), steps(without=without_cheap_dropout)),
            "training with Muon: float32 where bfloat16 is emulated": (muon(), muon(emulated=True)),
        }
    rows = {"training: bfloat16 (autocast)": (steps("bfloat16"), steps())}
    if device.type == "cpu":
        rows |= {
            "training: cheap random bits for dropout": (steps(), steps(without=without_cheap_dropout)),
            "training in bfloat16: cheap random bits": (
                steps("bfloat16"),
                steps("bfloat16", without=without_cheap_dropout),
            ),
            "training in bfloat16 without dropout: choice of the attention kernel": (
                steps("bfloat16", dropout=0.0),
                steps("bfloat16", dropout=0.0, without=with_the_fused_kernel),
            ),
        }
    else:
        rows |= {
            "training in bfloat16: compiled layers": (steps("bfloat16", compiled=True), steps("bfloat16")),
            "training with Muon: all matrices of a shape at a time": (
                steps(muon=BatchedMuon),
                steps(muon=torch.optim.Muon),
            ),
        }
    return rows


def translating_rows(device: torch.device) -> dict[str, Pair]:
    """Make the rows about translating: the whole test split."""
    sentences = [pair.src for pair in few(load_corpus(CORPUS)[TEST])]

    def way(
        precision: str = "float32", *patches: Callable[[], contextlib.AbstractContextManager]
    ) -> Callable[[], object]:
        translator = Translator.load(device=device)
        if precision == "bfloat16":
            translator.model.to(fast_dtype(device))

        def translate() -> object:
            with contextlib.ExitStack() as stack:
                for patch in patches:
                    stack.enter_context(patch())
                return translator.translate(sentences, beam_size=1)

        return translate

    def one_batch_at_a_time() -> contextlib.AbstractContextManager:
        return mock.patch.object(translating, "parallel_map", lambda function, items, workers: map(function, items))

    rows = {} if fast_dtype(device) == torch.float32 else {"translating: bfloat16": (way("bfloat16"), way())}
    if device.type == "cpu":
        rows |= {
            "translating: several batches at a time": (way(), way("float32", one_batch_at_a_time)),
        }
    return rows


def measure(pair: Pair, rounds: int, device: torch.device) -> dict[str, float | list[float]]:
    """Let both take turns, in another order each round."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            synchronize(device)
            started = time.perf_counter()
            pair[which]()
            synchronize(device)
            if number:  # the first round warms up
                seconds[which].append(time.perf_counter() - started)
    ratios = [off / on for on, off in zip(*seconds, strict=True)]
    return {
        "on": statistics.median(seconds[0]),
        "off": statistics.median(seconds[1]),
        "gain": statistics.median(ratios),
        "range": [min(ratios), max(ratios)],
    }


def main() -> None:
    """Measure, print the table, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1 if SMALL else 9)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    device = pick_device(options.device)
    results = {}
    print(f"{'':72} {'on, s':>7} {'off, s':>7}  gain (range)")
    for make_rows in (training_rows, translating_rows):
        for name, pair in make_rows(device).items():
            row = results[name] = measure(pair, options.rounds, device)
            low, high = row["range"]
            print(
                f"{name:72} {row['on']:7.3f} {row['off']:7.3f}  {row['gain']:.2f} ({low:.2f} to {high:.2f})", flush=True
            )
    write(options.output, {"machine": machine(device), "rounds": options.rounds, "rows": results})


if __name__ == "__main__":
    main()
