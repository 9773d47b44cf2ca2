"""How preparing a corpus, starting, batching and saving grow with the number of its pairs.

The pairs are Multi30k's, two drawn at random after each other: some 27 tokens a side. Each stage of each size runs in a
process of its own, whose memory, with that of the processes that it starts, is looked at ten times a second. Results
go to ``benchmarks/results/scale.json``, or to ``--output``, and what has a result is not run again; ``--draw`` makes
the picture of ``book/scaling.md`` of them.

    python benchmarks/scale.py
    python benchmarks/scale.py --pairs 4500000
    python benchmarks/scale.py --draw
    python benchmarks/scale.py --plan
"""

import argparse
import contextlib
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import torch
from contenders import CORPUS, SMALL, machine, matrix_rates, synchronize
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib import Transformer, TransformerConfig, load_corpus
from transformer_lib.data.prepared import PreparedDataset, prepare
from transformer_lib.files import STATE_FILE, load_training_state, replacing, save_training_state
from transformer_lib.notebook import plots
from transformer_lib.training.device import pick_device
from transformer_lib.training.loop import train_epoch
from transformer_lib.training.optimizer import make_optimizer
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.train_translator import train_translator

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "scale.json" if SMALL else ROOT / "benchmarks" / "results" / "scale.json"
SIZES = [300, 600] if SMALL else [29_000, 125_000, 500_000, 1_000_000]
STAGES = {
    "prepare": "read two files, learn subwords, tokenise, write",
    "start": "open what was prepared, build a model, validate it, make a step",
    "batch": "make the batches of an epoch, of 25,000 tokens, and pad those of 10,000 pairs",
    "save": "write what a run resumes from",
}
MODEL = {"d_model": 128, "num_layers": 2, "max_len": 256}


def generate(pairs: int, folder: Path) -> None:
    """Write so many pairs, each two of Multi30k's training split."""
    draw, train = random.Random(pairs), load_corpus(CORPUS)["train"]
    with open(folder / "text.de", "w", encoding="utf-8") as src, open(folder / "text.en", "w", encoding="utf-8") as tgt:
        for one, other in zip(*(draw.choices(train, k=pairs) for _ in range(2)), strict=True):
            src.write(f"{one.src} {other.src}\n")
            tgt.write(f"{one.tgt} {other.tgt}\n")


def stage(name: str, folder: Path) -> float:
    """Do a stage, and return its seconds."""
    prepared, run = folder / "prepared", folder / "run"
    started = time.perf_counter()
    if name == "prepare":
        prepare(load_corpus((folder / "text.de", folder / "text.en")), prepared)
    elif name == "start":
        recipe = Recipe(epochs=1e-9, max_tokens=2048, schedule="constant")  # one step
        train_translator(load_corpus(prepared), "small", recipe, run, device="cpu", **MODEL)
    elif name == "batch":
        recipe = Recipe(max_tokens=200 if SMALL else 25_000)
        batches = PreparedDataset(prepared).batches_for(recipe, torch.device("cpu"), train=True)
        left = 10_000
        for batch in batches:
            left -= len(batch.src)
            if left < 0:
                break
        print(f"{len(batches):,} batches")
    else:
        state = load_training_state(run / STATE_FILE)
        started = time.perf_counter()
        save_training_state(run / STATE_FILE, {name: part for name, part in state.items() if name != "format"})
    return time.perf_counter() - started


def measure(pairs: int, name: str, folder: Path) -> dict[str, float]:
    """Run a stage in a process of its own: its seconds, without and with Python's start and imports, and its GB."""
    command = [sys.executable, __file__, "--stage", name, str(folder)]
    started, most = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, memory(process.pid))
            time.sleep(0.1)
        took = time.perf_counter() - started
        printed = process.stdout.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    seconds = float(printed.splitlines()[-1])
    row = {"pairs": pairs, "stage": name, "seconds": seconds, "with_imports": took, "gb": most / 1e9}
    print(f"{pairs:9,} {name:8}{row['seconds']:9.1f} s{row['gb']:7.2f} GB", flush=True)
    return row | machine(torch.device("cpu"))


def memory(pid: int) -> int:
    """Return the bytes in memory of a process and of those that it started; what they share counts in each.

    (The kernel's own maximum would not do: that of a process that has been started holds what its parent had then.)
    """
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
    return total


def draw(rows: list[dict]) -> None:
    """Draw seconds by the number of pairs, one line a stage, and print the table."""
    sizes = sorted({row["pairs"] for row in rows})
    found = {(row["pairs"], row["stage"]): row for row in rows}
    seconds = {name: [found[size, name]["seconds"] for size in sizes] for name in STAGES}
    picture = plots.lines([size / 1e6 for size in sizes], seconds, "millions of pairs", "seconds", log="xy").svg()
    (ROOT / "assets" / "growth.svg").write_text(picture, encoding="utf-8")
    print("| pairs | " + " | ".join(STAGES) + " |\n| --- |" + " --- |" * len(STAGES))
    for size in sizes:
        cells = (found[size, name] for name in STAGES)
        print(f"| {size:,} | " + " | ".join(f"{cell['seconds']:.1f} s, {cell['gb']:.1f} GB" for cell in cells) + " |")


def plan() -> None:
    """Print what the paper's base model on WMT14 costs: operations, counted, and hours at several speeds."""
    steps, tokens, pairs, length = (
        100_000,
        25_000,
        4_500_000,
        27,
    )  # sections 5.1 and 5.2; the length is Multi30k's twice
    with torch.device("meta"):
        model = Transformer(TransformerConfig.preset("paper_base", 37_000, 37_000))
        ids = torch.zeros(tokens // length, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(ids, ids).sum().backward()
    operations = counter.get_total_flops()
    print(
        f"{model.num_parameters():,} parameters, {operations / 1e12:.1f} TFLOP a step, {steps * operations:.1e} in all"
    )
    epoch = pairs * length / tokens  # in steps
    print(f"{epoch:,.0f} steps an epoch of {pairs:,} pairs, {steps / epoch:.0f} epochs")
    print(f"the paper's 0.4 s a step: {steps * 0.4 / 3600:.0f} hours, {operations / 0.4e12:.0f} TFLOP/s on 8 GPUs")
    device = pick_device()
    rates = {f"this machine's {name}": rate for name, rate in matrix_rates(device).items()}
    for name, rate in {**rates, "100 TFLOP/s": 1e14, "8 × 100 TFLOP/s": 8e14}.items():
        print(f"{name}, all of it: {steps * operations / rate / 3600:,.1f} hours")
    for share in (1, 4) if device.type == "cuda" else ():  # elsewhere, a step would take minutes
        seconds, memory_gb = step(model.config, tokens // length // share, length, device)
        print(
            f"a training step of {tokens // share:,} tokens, measured: {seconds:.3f} s, {memory_gb:.1f} GB, "
            f"{operations / share / seconds / 1e12:.0f} TFLOP/s; {steps * share:,} of them: "
            f"{steps * share * seconds / 3600:.1f} hours"
        )


def step(config: TransformerConfig, sentences: int, length: int, device: torch.device) -> tuple[float, float]:
    """Train on a GPU in half precision; return a step's seconds, the best of three times ten, and the most GB."""
    torch.cuda.reset_peak_memory_stats()
    model = Transformer(config).to(device)
    recipe = Recipe(learning_rate=1e-4, label_smoothing=0.1, precision="bfloat16")
    optimizer, seconds = make_optimizer(model, recipe), []
    ids = torch.randint(4, config.src_vocab_size, (10, sentences, length)).to(device)
    batches = [SimpleNamespace(src=one, tgt=one) for one in ids]
    for _ in range(4):  # the first time, CUDA loads its kernels
        synchronize(device)
        started = time.perf_counter()
        train_epoch(model, batches, optimizer, recipe=recipe, progress=False)
        synchronize(device)
        seconds.append((time.perf_counter() - started) / len(batches))
    return min(seconds[1:]), torch.cuda.max_memory_allocated() / 1e9


def main() -> None:
    """Measure what has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", type=int, default=SIZES, help="sizes of the corpus")
    parser.add_argument("--output", type=Path, default=RESULTS, help="JSON file (benchmarks/results/scale.json)")
    parser.add_argument("--draw", action="store_true", help="only draw assets/growth.svg, and print the table")
    parser.add_argument("--plan", action="store_true", help="only calculate what the paper's base model costs")
    parser.add_argument("--stage", nargs=2, metavar=("NAME", "FOLDER"), help="for the processes that this one starts")
    options = parser.parse_args()
    if options.stage:
        print(stage(options.stage[0], Path(options.stage[1])))
        return
    rows = json.loads(options.output.read_text("utf-8")) if options.output.exists() else []
    if options.draw or options.plan:
        return draw(rows) if options.draw else plan()
    done = {(row["pairs"], row["stage"]) for row in rows}
    for pairs in options.pairs:
        if all((pairs, name) in done for name in STAGES):
            continue
        folder = ROOT / "build" / "scale" / str(pairs)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        generate(pairs, folder)
        rows = [row for row in rows if row["pairs"] != pairs]
        rows += [measure(pairs, name, folder) for name in STAGES]
        rows.sort(key=lambda row: (row["pairs"], list(STAGES).index(row["stage"])))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with replacing(options.output) as temporary:
            temporary.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
        shutil.rmtree(folder)  # gigabytes


if __name__ == "__main__":
    main()
