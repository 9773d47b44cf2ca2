"""A block of 2017 against a block of today: what four parts change in a small translator.

Every row is trained from scratch on Multi30k with each seed and the same recipe, and scored greedily on the validation
split. "2017" has the paper's parts, pre-LN: LayerNorm, ReLU, sinusoids, and keys and values of its own for every head.
Each other row exchanges one part, the last one all four. A difference is *seen* where all seeds of a row lie on one
side of those of "2017". (With three seeds each, chance alone does that in one of ten comparisons.)

Results go to ``benchmarks/results/blocks.json``, of which notebook 11 makes its table, or to ``--output``. What has a
result is not run again, so an interrupted benchmark goes on with the run that it was in:

    python benchmarks/blocks.py
    python benchmarks/blocks.py --only 2017 rotary --seeds 1 2
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from contenders import CORPUS, SMALL, few, machine
from torch import nn
from transformer_exercises.course.notebook_11 import rotate

from transformer_lib import MultiHeadAttention, PositionwiseFeedForward, Transformer, TransformerConfig, Translator
from transformer_lib.data.batches import make_dataset
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.files import replacing
from transformer_lib.inference import bleu
from transformer_lib.training.device import seed_everything
from transformer_lib.training.recipe import RECIPES
from transformer_lib.training.trainer import fit

RESULTS = Path("build", "blocks.json") if SMALL else Path(__file__).parent / "results" / "blocks.json"
PRESET, LAYERS = "multi30k_fast", 2  # one layer fewer than the preset, so that a run takes two minutes
PARTS = ("RMSNorm", "SwiGLU", "rotary", "grouped")
ROWS = {"2017": (), **{part: (part,) for part in PARTS}, "all four": PARTS}


class SwiGLU(PositionwiseFeedForward):
    """Two linear layers, one of them through SiLU as a gate, multiplied before the last one (Shazeer 2020)."""

    caches = True

    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        self.gate = nn.Linear(d_model, d_ff)

    def forward(self, x):
        """Transform ``x``, ``[batch, seq_len, d_model]``, position by position."""
        gate = F.silu(self.gate(x))
        return self.linear2(self.dropout(gate * self.linear1(x)))


class RotaryAttention(MultiHeadAttention):
    """Self-attention whose scores depend on the distance of query and key (RoFormer: Su et al. 2021)."""

    caches = True

    def attend(self, q, k, v, mask=None, need_weights=False):
        """Do what the library's own does, with queries and keys turned by their positions."""
        start = k.shape[-2] - q.shape[-2]
        return super().attend(rotate(q, start), rotate(k, 0), v, mask, need_weights)


class GroupedAttention(MultiHeadAttention):
    """Several heads of queries share a head of keys and values, which a cache keeps once (Ainslie et al. 2023)."""

    caches = True

    def __init__(self, d_model, num_heads, dropout=0.0, kv_heads=2):
        super().__init__(d_model, num_heads, dropout)
        self.d_k = d_model // num_heads
        self.k_proj, self.v_proj = (nn.Linear(d_model, kv_heads * self.d_k) for _ in range(2))

    def split_heads(self, x):
        """Split ``[batch, seq_len, heads · d_k]`` into as many heads as there are."""
        return x.unflatten(-1, (-1, self.d_k)).transpose(1, 2)

    def attend(self, q, k, v, mask=None, need_weights=False):
        """Do what the library's own does, with each head of keys and values for several of queries."""
        k, v = (heads.repeat_interleave(self.num_heads // heads.shape[1], dim=1) for heads in (k, v))
        return super().attend(q, k, v, mask, need_weights)


class RotaryGroupedAttention(GroupedAttention, RotaryAttention):
    """Both."""

    caches = True


def with_parts(model, parts):
    """Exchange parts of a model with sinusoidal positions, and draw the weights of its layers anew."""
    d_model, d_ff = model.config.d_model, model.config.d_ff
    dropout = model.config.dropout if model.config.inner_dropout else 0.0
    attention = d_model, model.config.num_heads, dropout
    if "RMSNorm" in parts:
        for module in list(model.modules()):
            for name, part in module.named_children():
                if isinstance(part, nn.LayerNorm):
                    setattr(module, name, nn.RMSNorm(d_model))
    for layer in (*model.encoder.layers, *model.decoder.layers):
        if "SwiGLU" in parts:
            layer.feed_forward = SwiGLU(d_model, d_ff * 2 // 3 // 8 * 8, dropout)
        if "rotary" in parts:
            layer.self_attn = RotaryAttention(*attention)
    if "grouped" in parts:
        for layer in model.decoder.layers:
            kind = RotaryGroupedAttention if "rotary" in parts else GroupedAttention
            layer.self_attn, layer.cross_attn = kind(*attention), GroupedAttention(*attention)
    for matrix in (*model.encoder.parameters(), *model.decoder.parameters()):
        if matrix.dim() > 1:
            nn.init.xavier_uniform_(matrix)
    if "rotary" in parts:
        for embedding in (model.src_embedding, model.tgt_embedding):
            embedding.positions.table.zero_()
    return model


def load_data() -> tuple[Any, Any]:
    """Return the training and validation split of Multi30k in subwords, which all rows share."""
    corpus, recipe = load_corpus(CORPUS), RECIPES[PRESET]
    pieces = train_subwords(corpus["train"], None if SMALL else recipe.subwords)
    tokenizers = SubwordTokenizer(corpus.src, pieces), SubwordTokenizer(corpus.tgt, pieces)
    max_len = TransformerConfig.preset(PRESET, 2, 2).max_len
    train_set, val_set = (make_dataset(few(corpus[split]), *tokenizers, max_len) for split in ("train", "val"))
    return train_set, val_set


def run(row: str, seed: int, epochs: int, train_set: Any, val_set: Any) -> dict[str, Any]:
    """Train one row, and score it."""
    recipe = replace(RECIPES[PRESET], epochs=epochs, seed=seed)
    seed_everything(seed)
    tokenizers = train_set.tokenizers
    sizes = (len(tokenizer.vocab) for tokenizer in tokenizers.values())
    model = with_parts(Transformer(TransformerConfig.preset(PRESET, *sizes, num_layers=LAYERS)), ROWS[row])
    history = fit(model, train_set, val_set, recipe, log=partial(print, flush=True))
    translator = Translator(model, *tokenizers.values())
    sources, references = zip(*val_set.pairs, strict=True)
    started = time.perf_counter()
    translations = translator.translate(sources, beam_size=1)
    return {
        "row": row,
        "seed": seed,
        "parameters": model.num_parameters(),
        "epochs": epochs,
        "val_loss": history.val_loss,
        "bleu": bleu.score(translations, references, translator.tgt_tokenizer)[0].value,
        "seconds_per_epoch": statistics.mean(history.seconds),
        "seconds_to_translate": time.perf_counter() - started,
        **machine(torch.device("cpu")),
    }


def compare(values: Sequence[float], base: Sequence[float], decimals: int) -> str:
    """Return the mean of a row's seeds, their lowest and highest, and whether a difference from ``base`` is seen."""
    mean, lowest, highest = (f"{get(values):.{decimals}f}" for get in (statistics.mean, min, max))
    text = f"{mean} ({lowest} to {highest})"
    if min(len(values), len(base)) < 3:  # where chance alone would do
        return text
    return f"{text} {'seen' if max(values) < min(base) or max(base) < min(values) else 'not seen'}"


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Return a line for each row: its size, its seconds an epoch, and both measures against those of "2017"."""
    lines = [f"{'':9}{'parameters':>11}{'s/epoch':>8}  {'validation loss':34}BLEU"]
    by_row = {row: [one for one in runs if one["row"] == row] for row in ROWS}
    for row, ours in by_row.items():
        if ours:
            base = by_row["2017"] if row != "2017" else []
            seconds = statistics.mean(one["seconds_per_epoch"] for one in ours)
            loss = compare(*([min(one["val_loss"]) for one in some] for some in (ours, base)), decimals=3)
            score = compare(*([one["bleu"] for one in some] for some in (ours, base)), decimals=2)
            lines.append(f"{row:9}{ours[0]['parameters']:11,}{seconds:8.1f}  {loss:34}{score}")
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for and has no result yet, and print the table of all results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(ROWS), choices=list(ROWS), help="which rows (all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="one run each (1 2 3)")
    parser.add_argument("--epochs", type=int, default=1 if SMALL else 2, help="of each run (2)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="JSON file (benchmarks/results/blocks.json)")
    options = parser.parse_args()

    runs = json.loads(options.output.read_text("utf-8")) if options.output.exists() else []
    done = {(run["row"], run["seed"]) for run in runs if run["epochs"] == options.epochs}
    if len(done) < len(runs):
        parser.error(f"--epochs is {options.epochs}, but {options.output} holds runs of other lengths")
    missing = [(row, seed) for seed in options.seeds for row in options.only if (row, seed) not in done]
    data = load_data() if missing else None
    for number, (row, seed) in enumerate(missing, start=1):
        print(f"{row}, seed {seed}: run {number} of {len(missing)}", flush=True)
        runs.append(run(row, seed, options.epochs, *data))
        runs.sort(key=lambda run: (list(ROWS).index(run["row"]), run["seed"]))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with replacing(options.output) as temporary:  # one line a run
            temporary.write_text("[\n" + ",\n".join(map(json.dumps, runs)) + "\n]\n", encoding="utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()
