"""What each part of the recipe for Multi30k is worth, and the paper's Table 3 for this corpus.

The complete recipe is the preset ``multi30k_fast``. Every other row changes one thing in it, and nothing else is tuned
anew. A row is trained from scratch with each of three seeds, and scored on the validation split. The test split is for
two rows only, which book/results.md holds against published figures; nothing is chosen by it. On a CPU that only
emulates bfloat16 (``machine`` says AVX2), all rows compute in float32, as "without bfloat16" does.

Results go to ``benchmarks/results/recipes.json``, which notebook 13 makes its table of, or to ``--output``; trainings
to ``runs/recipes``. What has a result is not run again, and a run that was interrupted goes on after its last complete
epoch:

    python benchmarks/recipes.py --list
    python benchmarks/recipes.py                                  # everything; two runs at a time, one thread each
    python benchmarks/recipes.py complete "heads 1" --seeds 1 2
    python benchmarks/recipes.py untied "untied no factor" "untied words" "untied words no factor"
    python benchmarks/recipes.py --table                          # what has been measured, as book/results.md shows it
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import mean, variance
from typing import Any

import torch
from contenders import CORPUS, SMALL, TEST, few
from torch import nn
from torch.optim.swa_utils import AveragedModel

from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import Corpus, load_corpus
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.files import STATE_FILE, replacing
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translator
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer
from transformer_lib.training import loop
from transformer_lib.training import run as training_run
from transformer_lib.training.device import seed_everything
from transformer_lib.training.recipe import RECIPES
from transformer_lib.training.train_translator import tune_length_penalty
from transformer_lib.training.trainer import fit

RESULTS = Path(__file__).parent / "results" / "recipes.json"
RUNS = Path("runs", "recipes")


@dataclass(frozen=True)
class Row:
    """What a row changes in a preset.

    Attributes:
        config, recipe: fields of the config (see ``model_class``) and of ``Recipe`` that are different.
        preset: what they are different from.
        checkpoints: average the last five checkpoints, as section 6.1 does, instead of all weights.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    preset: str = "multi30k_fast"
    checkpoints: bool = False


def recipe(**changes: Any) -> Row:
    """Return a row that changes the recipe."""
    return Row(recipe=changes)


def config(**changes: Any) -> Row:
    """Return a row that changes the model."""
    return Row(config=changes)


# one part is left out, and what the tutorials do takes its place
WITHOUT = {
    "complete": Row(),
    "without subwords": recipe(subwords=0),
    "without tying": config(tie_embeddings=False),
    "without pre-LN": config(norm_first=False),
    "without sinusoids": config(positions="learned"),
    "without batches by tokens": recipe(max_tokens=0, batch_size=105),  # as many steps
    "without warm-up": recipe(warmup_steps=0),
    "without falling rate": recipe(schedule="constant"),
    "without smoothing": recipe(label_smoothing=0.0),
    "without average": recipe(ema_decay=0.0),
    "without Muon": recipe(optimizer="adamw", learning_rate=2e-3),  # a usual rate for AdamW and a model of this size
    "without weight decay": recipe(weight_decay=0.0),
    "without bfloat16": recipe(precision="float32"),
}

# the paper's way instead of the recipe's
PAPER = {
    "inverse_sqrt": recipe(schedule="inverse_sqrt"),
    "checkpoints": Row(recipe={"ema_decay": 0.5}, checkpoints=True),  # any rate: it only says that there is an average
}

# what the recipe leaves out, and the larger preset of the shipped model has; and other rates for "without Muon"
MORE = {
    "AdamW 0.001": recipe(optimizer="adamw", learning_rate=1e-3),
    "AdamW 0.004": recipe(optimizer="adamw"),  # the recipe's own rate
    # "subword dropout", 0.1, was measured at commit 3c9b6f2; the library no longer has it
    "R-Drop": Row({"dropout": 0.1}, {"rdrop_weight": 1.5}),
    "6 epochs": recipe(epochs=6),
}

# the tutorials' model and training, as they have it
TUTORIAL = {"tutorials": Row(preset="tutorial_original")}

# the paper's Table 3 for this corpus: one thing at a time is changed in the complete recipe, which has 4 heads,
# d_k = 32, 3 layers, d_model = 128, d_ff = 512 and no dropout; rows of (D) and (E) that stand above are not repeated
TABLE_3 = {
    **{f"heads {h}": config(num_heads=h) for h in (1, 2, 8, 16)},  # (A): d_k = 128 / h, so the cost stays the same
    **{f"d_k {d}": config(d_k=d) for d in (4, 8, 16)},  # (B)
    **{f"layers {n}": config(num_layers=n) for n in (1, 2, 6)},  # (C)
    **{f"d_model {d}": config(d_model=d) for d in (64, 256)},  # (C)
    **{f"d_ff {d}": config(d_ff=d) for d in (128, 1024)},  # (C)
    **{f"dropout {p}": config(dropout=p) for p in (0.1, 0.2)},  # (D)
    "smoothing 0.2": recipe(label_smoothing=0.2),  # (D)
}

# "Hard to train without √d_model"? With one matrix for all three uses, its start and the factor depend on each other,
# so it has three here. All four rows are in float32, and compared among themselves: on any processor
FACTOR = {
    f"untied{words}{factor}": Row({"tie_embeddings": False, **leave_out}, {"precision": "float32", **no_pieces})
    for words, no_pieces in (("", {}), (" words", {"subwords": 0}))
    for factor, leave_out in (("", {}), (" no factor", {"factor": False}))
}
ROWS = {**WITHOUT, **PAPER, **TUTORIAL, **TABLE_3, **MORE, **FACTOR}


class LastCheckpoints(AveragedModel):
    """The mean of a model's weights after some ``steps``; before the first of them, it follows the model."""

    def __init__(self, model: nn.Module, decay: float, steps: list[int]):
        super().__init__(model)
        self.steps = steps

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Take in the weights of ``model`` after a step."""
        self.n_averaged += 1
        step = self.n_averaged.item()
        if step <= self.steps[0] or step in self.steps:
            share = 1 / (1 + self.steps.index(step)) if step in self.steps else 1.0
            for mean, weights in zip(self.module.parameters(), model.parameters(), strict=True):
                mean.lerp_(weights, share)


@dataclass(frozen=True)
class NarrowConfig(TransformerConfig):
    """With a size for every head's queries and keys; that of its values stays d_model / num_heads."""

    d_k: int = 0


class NarrowTransformer(Transformer):
    """The Transformer with queries and keys of another size, for part (B) of Table 3."""

    config_class = NarrowConfig

    def __init__(self, config: NarrowConfig):
        super().__init__(config)
        for attention in (module for module in self.modules() if isinstance(module, MultiHeadAttention)):
            for name in ("q_proj", "k_proj"):
                projection = nn.Linear(config.d_model, attention.num_heads * config.d_k)
                nn.init.xavier_uniform_(projection.weight)
                setattr(attention, name, projection)


@dataclass(frozen=True)
class FactorConfig(TransformerConfig):
    """Says whether an embedding is multiplied by √d_model."""

    factor: bool = True


class FactorTransformer(Transformer):
    """The Transformer that can do without √d_model; all else begins and goes on as it does."""

    config_class = FactorConfig

    def __init__(self, config: FactorConfig):
        super().__init__(config)
        if not config.factor:
            self.src_embedding.tokens.scale = self.tgt_embedding.tokens.scale = 1.0


def model_class(row: Row) -> type[Transformer]:
    """Return the class of a row's model: the library's, or one that can do what the library cannot."""
    return NarrowTransformer if "d_k" in row.config else FactorTransformer if "factor" in row.config else Transformer


def run(name: str, seed: int) -> dict[str, Any]:
    """Train one row on one thread, and score it."""
    torch.set_num_threads(1)
    row, corpus, output = ROWS[name], load_corpus(CORPUS), folder(name, seed)
    recipe = replace(RECIPES[row.preset], **row.recipe, seed=seed)
    if SMALL:
        recipe = replace(recipe, epochs=1)
    resume = (output / STATE_FILE).exists()
    started = time.process_time()
    seed_everything(seed)
    if recipe.subwords:
        pieces = train_subwords(corpus["train"], None if SMALL else recipe.subwords)
        tokenizers = SubwordTokenizer(corpus.src, pieces), SubwordTokenizer(corpus.tgt, pieces)
    else:
        tokenizers = WordTokenizer(corpus.src), WordTokenizer(corpus.tgt)
    kind = model_class(row)
    configure = partial(kind.config_class.preset, row.preset, **row.config)
    max_len = configure(2, 2).max_len
    train_set, val_set, test_set = (
        make_dataset(few(corpus[split]), *tokenizers, max_len) for split in ("train", "val", TEST)
    )
    if not recipe.subwords:
        build_vocabularies(train_set, min_freq=2, joint=configure(2, 2).tie_embeddings)
    model = kind(configure(*(len(tokenizer.vocab) for tokenizer in tokenizers)))
    steps = recipe.epochs * len(train_set.batches_for(recipe, torch.device("cpu"), train=True))
    if row.checkpoints:  # section 6.1: at intervals of 10 minutes in 12 hours
        last = [steps - round(steps * i / 72) for i in range(4, -1, -1)]
        training_run.MovingAverage = partial(LastCheckpoints, steps=last)
    history = fit(model, train_set, val_set, recipe, output, resume, log=partial(print, flush=True))
    cpu_seconds = time.process_time() - started
    translator = Translator(model, *tokenizers)
    scores = {"val": score(translator, corpus, "val")}
    if name in ("complete", *TUTORIAL):
        batches = test_set.batches_for(recipe, torch.device("cpu"), train=False)
        scores["test"] = {**score(translator, corpus, TEST), "loss": loop.evaluate(model, batches, progress=False)}
    return {
        "row": name,
        "seed": seed,
        "changes": {**row.config, **row.recipe},
        "parameters": model.num_parameters(),
        "epochs": recipe.epochs,
        "steps": steps,
        "train_loss": history.train_loss,
        "val_loss": history.val_loss,
        **scores,
        "cpu_seconds": None if resume else round(cpu_seconds, 1),
        "config": asdict(model.config),
        "recipe": asdict(recipe),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, 1 thread",
    }


def score(translator: Translator, corpus: Corpus, split: str) -> dict[str, Any]:
    """Return BLEU over words of a split: greedily, and with a beam of 4 by length penalty."""
    pairs = few(corpus[split])
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    tokenizer = translator.tgt_tokenizer
    greedy = bleu.score(translator.translate(sources, beam_size=1), references, tokenizer)[0].value
    if split == "val":
        beam = tune_length_penalty(translator, pairs)
    else:  # with what was best on the validation split
        translations = translator.translate(sources, 4, translator.length_penalty)
        beam = {translator.length_penalty: bleu.score(translations, references, tokenizer)[0].value}
    return {"greedy": greedy, "beam_4": beam}


def folder(name: str, seed: int) -> Path:
    """Return where a run keeps its training, and at last its result."""
    return RUNS / f"{name.replace(' ', '-')}-seed-{seed}"


def read_results(output: Path) -> list[dict[str, Any]]:
    """Return all results so far."""
    return json.loads(output.read_text("utf-8")) if output.exists() else []


def baseline(name: str, runs: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the row that a row is compared with: one that differs in one thing, and not in the numbers' format."""
    if name in FACTOR:
        return name.removesuffix(" no factor")
    return "complete" if "AVX512" in runs[name][0]["machine"] else "without bfloat16"


def spread(scores: Iterable[list[float]]) -> float:
    """Return the standard deviation between seeds, pooled over rows that have several."""
    several = [row for row in scores if len(row) > 1]
    degrees = sum(len(row) - 1 for row in several)
    return math.sqrt(sum((len(row) - 1) * variance(row) for row in several) / degrees) if several else 0.0


def table(output: Path) -> str:
    """Return a line for each row that has results but the tutorials': BLEU, and what it gains over its baseline."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for result in read_results(output):
        runs.setdefault(result["row"], []).append(result)
    beam = {name: [max(result["val"]["beam_4"].values()) for result in runs[name]] for name in runs}
    # without the factor, seeds differ more than elsewhere: these four rows are compared among themselves
    between = {group: spread(beam[name] for name in beam if (name in FACTOR) == group) for group in (True, False)}
    lines = [f"{'':28}parameters   greedy   beam of 4     gain ± 2 s.e."]
    for name in [name for name in runs if name not in TUTORIAL and baseline(name, runs) in runs]:
        base = baseline(name, runs)
        greedy = mean(result["val"]["greedy"] for result in runs[name])
        line = f"{name + ' *' * (base == 'without bfloat16'):28}{runs[name][0]['parameters']:10,}{greedy:9.2f}"
        line += f"{mean(beam[name]):12.2f}"
        if name != base:
            gain = mean(beam[name]) - mean(beam[base])
            error = 2 * between[name in FACTOR] * math.sqrt(1 / len(beam[name]) + 1 / len(beam[base]))
            line += f"{gain:+11.2f} ± {error:.2f}" + "  not seen" * (abs(gain) <= error)
        lines.append(line)
    return "\n".join(lines)


_writing = threading.Lock()


def start(output: Path, task: tuple[str, int]) -> tuple[str, int]:
    """Run one row in a process of its own, its output in a file beside the run, and take its result in."""
    name, seed = task
    RUNS.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, name, "--seeds", str(seed), "--here"]
    with open(f"{folder(name, seed)}.log", "a") as log:
        code = subprocess.run(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        ).returncode
    if not code:
        with _writing:
            result = json.loads((folder(name, seed) / "result.json").read_text("utf-8"))
            others = [old for old in read_results(output) if (old["row"], old["seed"]) != task]
            order = list(
                dict.fromkeys([*ROWS, *(old["row"] for old in others)])
            )  # what once was a row stays, at the end
            results = sorted([*others, result], key=lambda r: (order.index(r["row"]), r["seed"]))
            text = "[\n" + ",\n".join(json.dumps(one) for one in results) + "\n]\n"  # one line a run
            with replacing(output) as temporary:
                temporary.write_text(text, encoding="utf-8")
        print(f"{name}, seed {seed}: {result['val']['greedy']:.2f} BLEU greedily", flush=True)
    else:
        print(f"{name}, seed {seed}: failed", flush=True)
    return name, code


def main() -> None:
    """Run what is asked for and has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="row", help="which rows (all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="one run each (1 2 3)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (2)")
    results = RUNS / "results.json" if SMALL else RESULTS  # not beside real ones
    parser.add_argument("--output", type=Path, default=results, help="JSON file (benchmarks/results/recipes.json)")
    parser.add_argument("--list", action="store_true", help="print the rows and whether they have results")
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(options.output))
        return
    if unknown := [name for name in options.rows if name not in ROWS]:
        parser.error(f"row is {unknown[0]!r}, expected one of {', '.join(map(repr, ROWS))}")
    wanted = [(name, seed) for name in options.rows for seed in options.seeds]
    if options.here:
        ((name, seed),) = wanted
        result = json.dumps(run(name, seed))
        with replacing(folder(name, seed) / "result.json") as temporary:
            temporary.write_text(result, encoding="utf-8")
        return
    done = {(result["row"], result["seed"]) for result in read_results(options.output)}
    missing = [task for task in wanted if task not in done]
    if options.list:
        for name, seed in wanted:
            print(f"{name:26} seed {seed}  {'to do' if (name, seed) in missing else 'done'}")
        return
    with ThreadPoolExecutor(options.jobs) as pool:
        failed = [name for name, code in pool.map(partial(start, options.output), missing) if code]
    if failed:
        sys.exit(f"failed, see runs/recipes: {', '.join(failed)}")


if __name__ == "__main__":
    main()
