"""What this library does on a GPU, in eight minutes: tests, time to a good translator, speed, float16, the notebooks.

Each stage runs in a process of its own and leaves its result in the JSON file. When the time is over, the stage at work
is stopped; the same command then goes on from there, and a training from its last epoch. Without a GPU, ``--stand-in``
takes a stand-in for one and tiny budgets, to see that everything runs to its end; its times mean nothing.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --only training translation --output build/gpu.json
    python benchmarks/gpu.py --stand-in
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from contenders import CORPUS, PRESET, SMALL, TEST, few, machine, synchronize, write

from transformer_lib import Transformer, Translator, load_corpus
from transformer_lib.data.batches import BucketBatches, PairDataset
from transformer_lib.fast.precision import fast_dtype
from transformer_lib.files import STATE_FILE
from transformer_lib.inference import bleu
from transformer_lib.training.device import pick_device
from transformer_lib.training.loop import train_epoch
from transformer_lib.training.optimizer import make_optimizer
from transformer_lib.training.recipe import RECIPES, Recipe
from transformer_lib.training.train_translator import train_translator

ROOT = Path(__file__).parents[1]
STAND_IN = "TRANSFORMER_LIB_STAND_IN"  # set in the processes of --stand-in
NAME = "stand_in" if STAND_IN in os.environ else "gpu"  # of the results: those of a stand-in are no GPU's
GOALS = {"36.5 BLEU": "multi30k_fast", "41 BLEU": "multi30k_best"}
TINY = {"epochs": 1, "d_model": 32, "max_tokens": 30_000, "rdrop_weight": 0.0, "beam_size": 1}


def score(translator: Translator) -> float:
    """Return the BLEU of a test split, translated greedily."""
    pairs = few(load_corpus(CORPUS)[TEST])
    written = translator.translate([pair.src for pair in pairs], beam_size=1)
    return bleu.score(written, [pair.tgt for pair in pairs], translator.tgt_tokenizer)[0].value


def reach(goal: str, folder: Path) -> dict[str, Any]:
    """Train a translator from nothing, its vocabulary and the tuning of its search included."""
    preset, output, changes = GOALS[goal], folder / GOALS[goal], TINY if SMALL else {}
    resumed, started = (output / STATE_FILE).exists(), time.perf_counter()
    translator = train_translator(load_corpus(CORPUS), preset, None, output, resumed, **changes)
    seconds = time.perf_counter() - started
    found = {"preset": preset, "seconds": None if resumed else seconds, "bleu_greedy": score(translator)}
    pairs = few(load_corpus(CORPUS)[TEST])
    written = translator.translate([pair.src for pair in pairs])
    return {**found, "bleu": bleu.score(written, [pair.tgt for pair in pairs], translator.tgt_tokenizer)[0].value}


def float16() -> dict[str, Any]:
    """Let this GPU compute as one that is older than bfloat16, such as a T4: an epoch, and the test set."""
    from training import BATCH_SIZE, load  # torchtext, which the other stages can do without

    device, found = pick_device("cuda"), {}
    for name, capability in (("bfloat16", torch.cuda.get_device_capability()), ("float16", (7, 5))):
        with mock.patch.object(torch.cuda, "get_device_capability", lambda *_, told=capability: told):
            loss, seconds = epoch(*load(CORPUS, PRESET, device), BATCH_SIZE, device)
            translator = Translator.load(device=device)
            translator.model.to(fast_dtype(device))
            translated = score(translator)
        found[name] = {"train_loss": loss, "seconds": seconds, "bleu": translated}
    return {**found, "float32": {"bleu": score(Translator.load(device=device))}}


def epoch(model: Transformer, dataset: PairDataset, batch_size: int, device: torch.device) -> tuple[float, float]:
    """Train for an epoch in half precision, and return the mean loss and the seconds."""
    batches = list(BucketBatches(dataset, batch_size, train=True, device=device))[: 4 if SMALL else None]
    synchronize(device)
    started = time.perf_counter()
    loss = train_epoch(model, batches, make_optimizer(model, RECIPES["tutorial"]), recipe=Recipe(precision="bfloat16"))
    synchronize(device)
    return loss, time.perf_counter() - started


def stages(folder: Path) -> dict[str, list[str]]:
    """Return the commands of all stages, the most telling first; ``PYTHON`` comes before each."""
    pytest = ["-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:benchmark"]  # warns beside xdist
    few = ["-k", "picks or searches"] if SMALL else []
    notebooks = ["notebooks/07_translating.ipynb"] if SMALL else ["notebooks"]
    side_by_side = ["--numprocesses", "2" if SMALL else "8", "--dist", "loadfile"]  # each notebook in one process
    here = [__file__, "--folder", str(folder), "--here"]
    return {
        "tests": [*pytest, "tests/project/on_a_device.py", *few],
        "36.5 BLEU": [*here, "36.5 BLEU"],
        "training": ["benchmarks/training.py", "--rounds", "1"],
        "translation": ["benchmarks/translation.py", "--rounds", "1"],
        "float16": [*here, "float16"],
        "41 BLEU": [*here, "41 BLEU"],
        "notebooks": [*pytest, "--nbval-lax", *side_by_side, *notebooks],
    }


def run(name: str, command: list[str], file: Path, seconds: float) -> dict[str, Any]:
    """Run a stage for so many seconds at most, and return what it found: its JSON file's, or the last line printed."""
    file.unlink(missing_ok=True)
    command = [sys.executable, *command]
    if command[1] != "-m":
        command += ["--output", str(file)]
    environment = {**os.environ, "TRANSFORMER_LIB_FAST_DEV_RUN": "1" if SMALL or name == "notebooks" else ""}
    started = time.perf_counter()
    with open(file.with_suffix(".log"), "w", encoding="utf-8") as log:
        group = {"start_new_session": True}  # of processes, since a stage starts others
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, **group)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return {"ended": "out of time"}
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    found = {"ended": "well" if not code else f"with {code}", "stage_seconds": time.perf_counter() - started}
    if file.exists():
        return {**found, "found": json.loads(file.read_text(encoding="utf-8"))}
    lines = file.with_suffix(".log").read_text(encoding="utf-8").split("\n")
    return {**found, "found": next((line for line in reversed(lines) if line.strip()), "")}


def put_stand_in(folder: Path) -> None:
    """Let every Python that is started from here on take the stand-in for a GPU; ``sitecustomize`` is Python's way."""
    (folder / "sitecustomize.py").write_text("import standin_device\nstandin_device.install()\n", encoding="utf-8")
    os.environ |= {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT / "tests"))), STAND_IN: "1"}
    os.environ["TRANSFORMER_LIB_FAST_DEV_RUN"] = "1"


def main() -> None:
    """Run the stages that have no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="STAGE", help=f"some of: {', '.join(stages(Path()))}")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all stages together (8)")
    parser.add_argument("--stand-in", action="store_true", help="without a GPU: see that all runs to its end")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / f"{NAME}.json", help="JSON file (build/gpu.json)"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / NAME, help=argparse.SUPPRESS)
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.here:
        write(options.output, float16() if options.here == "float16" else reach(options.here, options.folder))
        return
    if options.stand_in and STAND_IN not in os.environ:
        put_stand_in(options.folder)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    device = pick_device()
    if device.type != "cuda":
        parser.exit(1, f"there is no NVIDIA GPU, but {device}: --stand-in tries this with a stand-in\n")
    result = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    result.setdefault("stages", {})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: the stage at work ends, too
    until = time.perf_counter() + 60 * options.minutes
    for name, command in stages(options.folder).items():
        done = result["stages"].get(name, {}).get("ended") == "well"
        if (options.only and name not in options.only) or (done and not options.only):
            continue
        seconds = until - time.perf_counter()
        file = options.folder / f"{name.replace(' ', '-')}.json"
        found = run(name, command, file, seconds) if seconds > 0 else {"ended": "out of time"}
        result["stages"][name] = found
        write(options.output, {**result, **machine(device), "stand_in": STAND_IN in os.environ})
        print(f"{name:12} {found['ended']:12} {found.get('stage_seconds', 0):5.0f} s", flush=True)
    if failed := [name for name, found in result["stages"].items() if found["ended"].startswith("with ")]:
        parser.exit(1, f"failed, see {options.folder}: {', '.join(failed)}\n")


if __name__ == "__main__":
    main()
