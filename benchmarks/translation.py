"""How fast translating is, measured side by side on the same sentences against what people would otherwise run.

- ``tutorials``: what the well-known tutorials do: one sentence at a time, greedily, attention weights always
  materialised, the whole beginning and its logits computed again at every step.
- ``nn.Transformer``: PyTorch's own layers with the same weights, in batches, and without a cache, which they lack.
- ``this library``: one sentence at a time, in batches, and by beam search, each with a cache; then in lower precision.

All take turns for several rounds in one process; the table has medians and the spread. "Same text" is how many
sentences come out as the tutorials' way translates them. The last column of rates is how fast this machine multiplies
matrices at best, compared with the operations that greedy search cannot do without. Notebook 10 reads the JSON file.

    python benchmarks/translation.py
    python benchmarks/translation.py runs/multi30k-tutorial --corpus multi30k --output build/translation.json
"""

import argparse
import copy
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from contenders import TorchTransformer, as_the_tutorials_do, matrix_rate, most_resident, synchronize
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib import bleu
from transformer_lib.checkpoint import SHIPPED_MODEL, replace_file
from transformer_lib.corpora import Pair, load_corpus
from transformer_lib.masks import padding_mask
from transformer_lib.training import pick_device
from transformer_lib.transformer import Transformer
from transformer_lib.translator import Translation, Translator


class Written(NamedTuple):
    """What a ``Translation`` has to say here."""

    text: str
    tokens: list[str]


Way = Callable[[list[str]], Sequence[Written | Translation]]
TUTORIALS = "tutorials, greedy"


@torch.no_grad()
def translate_like_the_tutorials(translator: Translator, sentences: list[str]) -> list[Written]:
    """Translate one sentence after the other, as the tutorials' ``translate_sentence`` does."""
    model, field = translator.model, translator.tgt_field
    device = next(model.parameters()).device
    written = []
    for sentence in sentences:
        src = torch.tensor([translator.src_field.encode(sentence)], device=device)
        memory, memory_mask = model.encode(src)
        ids = [field.sos_id]
        for _ in range(min(src.shape[1] + 50, model.config.max_len)):
            logits = model.decode(torch.tensor([ids], device=device), memory, memory_mask)
            logits[:, -1, [field.pad_id, field.sos_id]] = -torch.inf  # the tutorials do not; so that texts can be equal
            ids.append(logits.argmax(-1)[0, -1].item())
            if ids[-1] == field.eos_id:
                break
        tokens = field.decode(ids[1:])
        written.append(Written(field.join(tokens), tokens))
    return written


class WithTorchLayers(TorchTransformer):
    """``nn.Transformer``'s layers behind the interface that the search needs."""

    def __init__(self, model: Transformer):
        super().__init__(model)
        self.config = model.config

    def encode(self, src: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Do what ``Transformer.encode`` does."""
        mask = padding_mask(src, self.config.pad_id)
        return self.encoder(self.src_embedding(src), src_key_padding_mask=~mask[:, 0, 0]), mask

    def decode(self, tgt: torch.Tensor, memory: torch.Tensor, memory_mask: torch.Tensor) -> torch.Tensor:
        """Do what ``Transformer.decode`` does."""
        future = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool, device=tgt.device).triu(1)
        hidden = ~memory_mask[:, 0, 0]
        return self.output(self.decoder(self.tgt_embedding(tgt), memory, future, memory_key_padding_mask=hidden))


def make_ways(path: str, device: torch.device) -> dict[str, Way]:
    """Load the model anew for each way to translate, so that none gains from another."""

    def library(precision: str = "float32", **settings: Any) -> Way:
        translator = Translator.load(path, device, precision)
        return lambda sentences: translator.translate(sentences, **settings)

    plain = Translator.load(path, device)
    as_the_tutorials_do(plain.model)
    torchs = Translator.load(path, device)
    torchs.model = WithTorchLayers(copy.deepcopy(torchs.model)).eval()

    alpha = max(plain.alpha, 0.6)
    ways = {
        TUTORIALS: lambda sentences: translate_like_the_tutorials(plain, sentences),
        "nn.Transformer, greedy": lambda sentences: torchs.translate(sentences, beam_size=1, use_cache=False),
        "one at a time, greedy": library(beam_size=1, batch_size=1),
        "greedy": library(beam_size=1),
        "beam of 4": library(beam_size=4, alpha=alpha),
    }
    for precision in ("bfloat16", "int8") if device.type == "cpu" else ("bfloat16",):
        ways[f"greedy, {precision}"] = library(precision, beam_size=1)
        ways[f"beam of 4, {precision}"] = library(precision, beam_size=4, alpha=alpha)
    return ways


def choose(corpus_name: str, split: str | None, number: int | None, translator: Translator) -> list[Pair]:
    """Pick sentences evenly."""
    corpus = load_corpus(corpus_name, translator.src_field.language, translator.tgt_field.language)
    pairs = corpus[split or corpus.splits[2 if len(corpus.splits) > 2 else 1]]
    number = min(number or len(pairs), len(pairs))
    return [pairs[i * len(pairs) // number] for i in range(number)]


def operations(translator: Translator, sentences: list[str], texts: list[str]) -> float:
    """Count the floating-point operations of greedy search with a cache and without padding."""
    total = 0
    for sentence, text in zip(sentences, texts, strict=True):
        src = torch.tensor([translator.src_field.encode(sentence)])
        tgt = torch.tensor([translator.tgt_field.encode(text)[:-1]])  # the inputs of the decoder's steps
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            translator.model(src, tgt)
        total += counter.get_total_flops()
    return total


def peak_memory(way: str, path: str, device: str, sentences: list[str]) -> float:
    """Return by how many MB translating grows a process of its own; on a GPU, how many MB it takes there."""
    translate = make_ways(path, torch.device(device))[way]
    before = most_resident()
    translate(sentences)
    return torch.cuda.max_memory_allocated() / 1e6 if device.startswith("cuda") else most_resident() - before


def main() -> None:
    """Measure, print, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(SHIPPED_MODEL), help="folder or file (the shipped model)")
    parser.add_argument("--corpus", default="multi30k", help="what to translate (multi30k)")
    parser.add_argument("--split", help="which part of it (the first test split)")
    parser.add_argument("--sentences", type=int, help="how many to translate, evenly picked (all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args()

    device = pick_device(options.device)
    translator = Translator.load(options.model, device)
    pairs = choose(options.corpus, options.split, options.sentences, translator)
    sentences, references = [pair.src for pair in pairs], [pair.tgt for pair in pairs]
    ways = make_ways(options.model, device)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    written: dict[str, Sequence[Written | Translation]] = {}
    for translate in ways.values():
        translate(sentences[:16])  # warm up
    for _ in range(options.rounds):
        for name, translate in ways.items():
            started = time.perf_counter()
            written[name] = translate(sentences)
            synchronize(device)
            seconds[name].append(time.perf_counter() - started)

    texts = {name: [one.text for one in some] for name, some in written.items()}
    work = operations(Translator.load(options.model), sentences, texts["greedy"])
    rates = {"float32": matrix_rate(torch.float32, device), "bfloat16": matrix_rate(torch.bfloat16, device)}
    slowest = statistics.median(seconds[TUTORIALS])
    context = multiprocessing.get_context("spawn")
    rows = []
    for name, values in seconds.items():
        median = statistics.median(values)
        rate = rates["bfloat16" if "bfloat16" in name else "float32"]
        with context.Pool(1) as pool:
            memory = pool.apply(peak_memory, (name, options.model, str(device), sentences))
        rows.append(
            {
                "way": name,
                "seconds": median,
                "seconds_min": min(values),
                "seconds_max": max(values),
                "times_as_fast": slowest / median,
                "same_text": sum(a == b for a, b in zip(texts[name], texts[TUTORIALS], strict=True)),
                "bleu": bleu.score(written[name], references, translator.tgt_field)[0].value,
                "share_of_limit": work / median / rate if "greedy" in name and "int8" not in name else None,
                "peak_memory_mb": memory,
            }
        )
    result = {
        "parameters": translator.model.num_parameters(),
        "corpus": options.corpus,
        "sentences": len(sentences),
        "tokens": sum(len(translator.tgt_field.encode(text)) - 1 for text in texts["greedy"]),
        "rounds": options.rounds,
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "operations": work,
        "operations_per_second": rates,
        "ways": rows,
    }
    show(result)
    if options.output is not None:
        replace_file(options.output, (json.dumps(result, indent=2) + "\n").encode())


def show(result: dict[str, Any]) -> None:
    """Print what was measured."""
    print(
        f"{result['parameters']:,} parameters; {result['sentences']:,} sentences of {result['corpus']}, "
        f"{result['tokens']:,} tokens written; {result['rounds']} rounds in turn; {result['device']}, "
        f"{result['threads']} threads, torch {result['torch']}"
    )
    print(f"{'':24}{'s':>8}{'min–max':>14}{'times':>8}{'same text':>11}{'BLEU':>7}{'of limit':>10}{'memory, MB':>12}")
    for row in result["ways"]:
        spread = f"{row['seconds_min']:.2f}–{row['seconds_max']:.2f}"
        limit = "" if row["share_of_limit"] is None else f"{row['share_of_limit']:.0%}"
        print(
            f"{row['way']:24}{row['seconds']:8.2f}{spread:>14}{row['times_as_fast']:8.1f}{row['same_text']:11,}"
            f"{row['bleu']:7.2f}{limit:>10}{row['peak_memory_mb']:12,.0f}"
        )


if __name__ == "__main__":
    main()
