"""How much faster batches and a key/value cache make greedy translation, measured side by side on the same sentences.

The slow way is what the tutorials do: one sentence at a time, the whole prefix computed again at every step. Both ways
run in turn, several times, in one process; the table shows medians and the spread.
"""

import argparse
import statistics
import time

import torch

from transformer_lib.corpora import load_corpus
from transformer_lib.training import pick_device
from transformer_lib.translator import Translator


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder or file of a trained model")
    parser.add_argument("--corpus", default="sample")
    parser.add_argument("--split", help="which part of the corpus (the last)")
    parser.add_argument("--sentences", type=int, help="how many to translate, evenly picked (all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    device = pick_device(options.device)
    translator = Translator.load(options.model, device)
    corpus = load_corpus(options.corpus, translator.src_field.language, translator.tgt_field.language)
    pairs = corpus[corpus.splits[-1] if options.split is None else options.split]
    wanted = min(options.sentences or len(pairs), len(pairs))
    sentences = [pairs[i * len(pairs) // wanted].src for i in range(wanted)]

    ways = {
        "one at a time, no cache": {"batch_size": 1, "use_cache": False, "beam_size": 1},
        "one at a time, cached": {"batch_size": 1, "use_cache": True, "beam_size": 1},
        "batched, no cache": {"batch_size": 128, "use_cache": False, "beam_size": 1},
        "batched, cached": {"batch_size": 128, "use_cache": True, "beam_size": 1},
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    texts: dict[str, list[str]] = {}
    translator.translate(sentences[:16], beam_size=1)  # warm up
    for _ in range(options.rounds):
        for way, settings in ways.items():
            started = time.perf_counter()
            texts[way] = [translation.text for translation in translator.translate(sentences, **settings)]
            seconds[way].append(time.perf_counter() - started)

    slowest = statistics.median(seconds["one at a time, no cache"])
    same = {way: sum(a == b for a, b in zip(texts[way], texts["batched, cached"], strict=True)) for way in ways}
    print(
        f"{translator.model.num_parameters():,} parameters; {len(sentences)} sentences of {corpus.name}, greedy; "
        f"{options.rounds} rounds in turn; {device}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    print(f"{'way':26}{'median s':>10}{'min–max s':>16}{'times as fast':>15}{'same text':>11}")
    for way, values in seconds.items():
        median = statistics.median(values)
        spread = f"{min(values):.2f}–{max(values):.2f}"
        print(f"{way:26}{median:10.2f}{spread:>16}{slowest / median:15.1f}{same[way]:>7}/{len(sentences)}")


if __name__ == "__main__":
    main()
