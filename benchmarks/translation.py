"""How fast translating is, measured side by side on the same sentences against what people would otherwise run.

- ``tutorials``: what the well-known tutorials do: one sentence at a time, greedily, attention weights always
  materialised, the whole beginning and its logits computed again at every step.
- ``nn.Transformer``: PyTorch's own layers with the same weights, in batches, and without a cache, which they lack.
- ``this library``: one sentence at a time, in batches, and by beam search (with the model's own length penalty), each
  with a cache; then in lower precision.
- CTranslate2, on a CPU, if it is installed (the extra ``export``): the engine that people serve such models with,
  as many translations side by side as there are threads.

All take turns for several rounds, each in a process of its own, as people run it: in one process, each would throw out
matrix products that PyTorch has prepared for the others, since it keeps about a thousand. The table has medians and the
spread. A machine's pace varies, and the two that take one sentence after another need a minute each. So they translate
a quarter of the sentences in a turn, and the sum of four turns counts once; each of the others translates all of them,
and counts, in every turn.

"Same text" is how many sentences come out as the tutorials' way translates them. "Of limit" compares with how fast this
machine multiplies matrices at best and the operations that greedy search cannot do without. Then it measures how greedy
search grows with the batch and with the sentences' length. Notebook 14 reads the JSON file.

    python benchmarks/translation.py
    python benchmarks/translation.py runs/multi30k-tutorial --corpus multi30k --output build/translation.json
"""

import argparse
import functools
import importlib.util
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from contenders import (
    CORPUS,
    SMALL,
    TorchTransformer,
    as_the_tutorials_do,
    few,
    machine,
    matrix_rates,
    own_memory,
    own_process,
    spread,
    synchronize,
    write,
)
from torch.nn.utils.rnn import pad_sequence
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.checkpoint import SHIPPED_MODEL
from transformer_lib.data.corpora import Pair, load_corpus
from transformer_lib.data.tokenizers import EOS, WordTokenizer
from transformer_lib.fast.precision import half_precision
from transformer_lib.files import accept_any_text
from transformer_lib.inference import bleu
from transformer_lib.inference.search import greedy_search
from transformer_lib.inference.translator import Translation, Translator
from transformer_lib.interop.ctranslate2 import to_ctranslate2
from transformer_lib.model.masks import padding_mask
from transformer_lib.model.transformer import Transformer
from transformer_lib.training.device import pick_device

Way = Callable[[list[str]], Sequence[Translation]]
TUTORIALS, TORCH, ONE_BY_ONE = "tutorials, greedy", "nn.Transformer, greedy", "one at a time, greedy"
ENGINE = "CTranslate2"
TURNS = 1 if SMALL else 4  # in a round; see above


def translation(tokenizer: WordTokenizer, tokens: list[str]) -> Translation:
    """Return what another way wrote as the library returns it, for the same score; how likely it was is not asked."""
    return Translation(tokenizer.join(tokens), [], [*tokens, EOS], math.nan, math.nan)


@torch.no_grad()
def translate_like_the_tutorials(translator: Translator, sentences: list[str]) -> list[Translation]:
    """Translate one sentence after the other, as the tutorials' ``translate_sentence`` does."""
    model, tokenizer = translator.model, translator.tgt_tokenizer
    device = next(model.parameters()).device
    written = []
    for sentence in sentences:
        src = torch.tensor([translator.src_tokenizer.encode(sentence)], device=device)
        memory, memory_mask = model.encode(src)
        ids = [tokenizer.sos_id]
        for _ in range(min(src.shape[1] + 50, model.config.max_len)):
            logits = model.decode(torch.tensor([ids], device=device), memory, memory_mask)
            never = [tokenizer.pad_id, tokenizer.sos_id]  # the tutorials do not forbid them; so texts can be equal
            logits[:, -1, never] = -torch.inf
            ids.append(logits.argmax(-1)[0, -1].item())
            if ids[-1] == tokenizer.eos_id:
                break
        written.append(translation(tokenizer, tokenizer.decode(ids[1:])))
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


def names(device: torch.device) -> list[str]:
    """Name the ways to translate that there are on a device."""
    ours = [ONE_BY_ONE, "greedy", "beam of 4"]
    searches = ("greedy", "beam of 4")
    ways = [TUTORIALS, TORCH, *ours, *(f"{way}, bfloat16" for way in searches)]
    if device.type == "cpu" and importlib.util.find_spec("ctranslate2"):
        ways += [f"{ENGINE}, {way}{precision}" for precision in ("", ", int8") for way in searches]
    return ways


def translate_with_the_engine(translator: Translator, beam_size: int, precision: str) -> Way:
    """Translate with CTranslate2, which stops a beam earlier than this library does (see the cookbook)."""
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        to_ctranslate2(translator, folder, precision)
        engine = ctranslate2.Translator(folder, inter_threads=torch.get_num_threads(), intra_threads=1)
    settings = {
        "beam_size": beam_size,
        "length_penalty": translator.length_penalty * 16 / 21,  # captions have about 16 tokens
        "max_batch_size": 64,
        "min_decoding_length": 0,
        "max_decoding_length": translator.model.config.max_len,
    }

    def translate(sentences: list[str]) -> list[Translation]:
        tokens = [translator.src_tokenizer.tokenize(sentence) for sentence in sentences]
        results = engine.translate_batch(tokens, **settings)
        return [translation(translator.tgt_tokenizer, result.hypotheses[0]) for result in results]

    return translate


@functools.cache
def make_way(name: str, path: str, device: torch.device) -> Way:
    """Load the model anew for a way to translate, so that none gains from another."""
    if ENGINE in name:
        stored = "int8" if "int8" in name else "float32"
        return translate_with_the_engine(Translator.load(path), 4 if "beam" in name else 1, stored)
    translator = Translator.load(path, device=device)
    if "bfloat16" in name:
        translator.model.to(half_precision(device))
    if name == TUTORIALS:
        as_the_tutorials_do(translator.model)
        return lambda sentences: translate_like_the_tutorials(translator, sentences)
    settings = {"beam_size": 4 if "beam" in name else 1}
    if name == TORCH:
        translator.model = WithTorchLayers(translator.model).eval()
        settings["use_cache"] = False
    if name == ONE_BY_ONE:
        return lambda sentences: [translator.translate([sentence], **settings)[0] for sentence in sentences]
    return lambda sentences: translator.translate(sentences, **settings)


def take_turn(name: str, path: str, device: torch.device, sentences: list[str]) -> tuple[Sequence[Any], float]:
    """Return what a way writes, and its seconds; the first time in a process, the model is loaded before."""
    translate = make_way(name, path, device)
    return timed(lambda: translate(sentences), device)


def choose(corpus_name: str, split: str | None, number: int | None, translator: Translator) -> list[Pair]:
    """Pick sentences evenly."""
    corpus = load_corpus(corpus_name, translator.src_tokenizer.language, translator.tgt_tokenizer.language)
    pairs = few(corpus[split or corpus.splits[2 if len(corpus.splits) > 2 else 1]])
    number = min(number or len(pairs), len(pairs))
    return [pairs[i * len(pairs) // number] for i in range(number)]


def operations(path: str, translations: Sequence[Translation]) -> float:
    """Count the operations in the matrix products of greedy search, with a cache and without padding."""
    translator = Translator.load(path)
    model = as_the_tutorials_do(translator.model)  # a CPU's fused attention is not counted
    total = 0
    for one in translations:
        src = torch.tensor([[translator.src_tokenizer.vocab[token] for token in one.src_tokens]])
        ids = [translator.tgt_tokenizer.vocab[token] for token in one.tgt_tokens]
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(
                src, torch.tensor([[translator.tgt_tokenizer.sos_id, *ids[:-1]]])
            )  # the inputs of the decoder's steps
        total += counter.get_total_flops()
    return total


def translate_alone(name: str, path: str, device: str, sentences: list[str]) -> Iterator[None]:
    """Do what ``own_memory`` measures."""
    translate = make_way(name, path, torch.device(device))
    yield
    translate(sentences)


def timed(run: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """Return what a function returns, and the seconds that it takes."""
    synchronize(device)
    started = time.perf_counter()
    result = run()
    synchronize(device)
    return result, time.perf_counter() - started


def growth(translator: Translator, sentences: list[str], device: torch.device) -> dict[str, dict[str, float]]:
    """Measure greedy search's milliseconds a sentence, one batch after another, by their size and by length."""
    src_tokenizer, tgt_tokenizer = translator.src_tokenizer, translator.tgt_tokenizer

    def length(sentence: str) -> int:
        return len(src_tokenizer.tokenize(sentence))

    def milliseconds(some: list[str], size: int) -> float:
        ids = [torch.tensor(src_tokenizer.encode(sentence)) for sentence in some]
        batches = [
            pad_sequence(ids[start : start + size], True, src_tokenizer.pad_id).to(device)
            for start in range(0, len(ids), size)
        ]

        def search() -> None:
            for batch in batches:
                greedy_search(translator.model, batch, tgt_tokenizer.sos_id, tgt_tokenizer.eos_id)

        runs = [timed(search, device)[1] for _ in range(3)]
        return 1000 * statistics.median(runs) / len(some)

    by_length = sorted(sentences, key=length)
    fifth = max(1, len(by_length) // 5)
    fifths = {f"fifth {i + 1}": by_length[i * fifth : (i + 1) * fifth] for i in range(5) if by_length[i * fifth :]}
    lengths = {name: statistics.mean(map(length, some)) for name, some in fifths.items()}
    return {
        "batch_size": {
            str(size): milliseconds(sorted(sentences[:256], key=length), size) for size in (1, 4, 16, 64, 256)
        },
        "source_tokens": {f"{lengths[name]:.1f}": milliseconds(some, 64) for name, some in fifths.items()},
    }


def main() -> None:
    """Measure, print, and write the figures down."""
    accept_any_text()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(SHIPPED_MODEL), help="folder or file (the shipped model)")
    parser.add_argument("--corpus", default=CORPUS, help="what to translate (multi30k)")
    parser.add_argument("--split", help="which part of it (the first test split)")
    parser.add_argument("--sentences", type=int, help="how many to translate, evenly picked (all)")
    parser.add_argument("--rounds", type=int, default=1 if SMALL else 3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args()

    device = pick_device(options.device)
    translator = Translator.load(options.model, device=device)
    pairs = choose(options.corpus, options.split, options.sentences, translator)
    sentences, references = [pair.src for pair in pairs], [pair.tgt for pair in pairs]
    if device.type == "cpu" and not importlib.util.find_spec("ctranslate2"):
        print("without CTranslate2, which is not installed: pip install '.[export]'")
    processes = {name: own_process() for name in names(device)}

    def translate(name: str, some: list[str]) -> tuple[Sequence[Any], float]:
        return processes[name].submit(take_turn, name, options.model, device, some).result()

    seconds: dict[str, list[float]] = {name: [] for name in processes}
    written: dict[str, list[Any]] = {name: [None] * len(sentences) for name in processes}
    for name in processes:
        translate(name, sentences[:256])  # warm up, with the memory of full batches
    for _ in range(options.rounds):
        for turn in range(TURNS):
            for name in processes:
                some = slice(turn, None, TURNS) if name in (TUTORIALS, ONE_BY_ONE) else slice(None)
                written[name][some], took = translate(name, sentences[some])
                seconds[name].append(took)
    for process in processes.values():
        process.shutdown()
    for name in (TUTORIALS, ONE_BY_ONE):
        seconds[name] = [sum(seconds[name][start : start + TURNS]) for start in range(0, len(seconds[name]), TURNS)]

    texts = {name: [one.text for one in some] for name, some in written.items()}
    work, rates = operations(options.model, written["greedy"]), matrix_rates(device)
    slowest = statistics.median(seconds[TUTORIALS])
    hundred = sentences[:: max(1, len(sentences) // 100)]
    rows = []
    for name, values in seconds.items():
        median = statistics.median(values)
        rate = rates["bfloat16" if "bfloat16" in name else "float32"]
        rows.append(
            {
                "way": name,
                **spread(values),
                "times_as_fast": slowest / median,
                "same_text": sum(a == b for a, b in zip(texts[name], texts[TUTORIALS], strict=True)),
                "bleu": bleu.score(written[name], references, translator.tgt_tokenizer)[0].value,
                "share_of_limit": work / median / rate if "greedy" in name and "int8" not in name else None,
                "memory_mb": own_memory(translate_alone, (name, options.model, str(device), hundred), device),
            }
        )
    result = {
        "parameters": translator.model.num_parameters(),
        "corpus": options.corpus,
        "sentences": len(sentences),
        "tokens": sum(len(one.tgt_tokens) for one in written["greedy"]),
        "length_penalty": translator.length_penalty,
        "rounds": options.rounds,
        **machine(device),
        "operations": work,
        "operations_per_second": rates,
        "ways": rows,
        "growth": growth(translator, sentences, device),
    }
    write(options.output, result)
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print what was measured."""
    print(
        f"{result['parameters']:,} parameters; {result['sentences']:,} sentences of {result['corpus']}, "
        f"{result['tokens']:,} tokens written; {result['rounds']} rounds in turn; {result['device']}, "
        f"{result['threads']} threads, torch {result['torch']}"
    )
    print(f"{'':28}{'s':>8}{'min–max':>14}{'times':>8}{'same text':>11}{'BLEU':>7}{'of limit':>10}{'memory, MB':>12}")
    for row in result["ways"]:
        between = f"{row['seconds_min']:.2f}–{row['seconds_max']:.2f}"
        limit = "" if row["share_of_limit"] is None else f"{row['share_of_limit']:.0%}"
        print(
            f"{row['way']:28}{row['seconds']:8.2f}{between:>14}{row['times_as_fast']:8.1f}{row['same_text']:11,}"
            f"{row['bleu']:7.2f}{limit:>10}{row['memory_mb']:12,.0f}"
        )
    for what, values in result["growth"].items():
        print(f"greedy, ms a sentence by {what}: " + ", ".join(f"{key}: {value:.2f}" for key, value in values.items()))


if __name__ == "__main__":
    main()
