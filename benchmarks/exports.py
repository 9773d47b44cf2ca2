"""How fast ONNX Runtime translates with the shipped model's ONNX export, beside this library, and whether as it does.

Both search greedily, in turn, on the same sentences, on one thread each, in batches of sentences of similar length.
"Same text" is how many come out as the library translates them.

    pip install -e ".[export]"
    python benchmarks/exports.py --output build/exports.json
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from contenders import CORPUS, SMALL, TEST, few, machine, spread, write

from transformer_lib.data.batches import padded_ids
from transformer_lib.data.corpora import load_corpus
from transformer_lib.inference.search import EXTRA_LENGTH
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.onnx import to_onnx


def greedy(encoder: Any, decoder: Any, src: np.ndarray, translator: Translator) -> list[list[int]]:
    """Do what ``greedy_search`` does, with ONNX Runtime's sessions."""
    tokenizer, config = translator.tgt_tokenizer, translator.model.config
    limits = np.minimum((src != config.pad_id).sum(axis=1) + EXTRA_LENGTH, config.max_len)
    names = [output.name for output in encoder.get_outputs()]
    memory = dict(zip(names, encoder.run(None, {"src_ids": src}), strict=True))
    past = {
        one.name: np.zeros((len(src), one.shape[1], 0, one.shape[3]), np.float32)
        for one in decoder.get_inputs()
        if one.name.startswith("past_")
    }
    sentences, tgt = np.arange(len(src)), np.full((len(src), 1), tokenizer.sos_id)
    finished: dict[int, list[int]] = {}
    while len(sentences):
        logits, *present = decoder.run(None, {"tgt_ids": tgt[:, -1:], **memory, **past})
        logits[:, [config.pad_id, tokenizer.sos_id]] = -np.inf
        tgt = np.concatenate([tgt, logits.argmax(axis=1)[:, None]], axis=1)
        done = (tgt[:, -1] == tokenizer.eos_id) | (tgt.shape[1] > limits[sentences])
        past = dict(zip(past, present, strict=True))
        if done.any():
            finished |= dict(zip(sentences[done].tolist(), tgt[done, 1:].tolist(), strict=True))
            sentences, tgt = sentences[~done], tgt[~done]
            memory = {name: one[~done] for name, one in memory.items()}
            past = {name: one[~done] for name, one in past.items()}
    return [finished[i] for i in range(len(src))]


def main() -> None:
    """Measure, print, and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1 if SMALL else 5)
    parser.add_argument("--batch-size", type=int, default=64, help="of ONNX Runtime; the library chooses its own")
    parser.add_argument("--output", type=Path, help="a JSON file for the results")
    args = parser.parse_args()

    torch.set_num_threads(1)
    translator = Translator.load()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        difference = to_onnx(translator, folder)
        encoder, decoder = (
            onnxruntime.InferenceSession(Path(folder, name), options) for name in ("encoder.onnx", "decoder.onnx")
        )
    sentences = [pair.src for pair in few(load_corpus(CORPUS)[TEST])]

    def ours() -> list[str]:
        return [one.text for one in translator.translate(sentences, beam_size=1)]

    def with_onnxruntime() -> list[str]:
        tokens = [translator.source_tokens(sentence)[1:-1] for sentence in sentences]
        order, texts = sorted(range(len(tokens)), key=lambda i: len(tokens[i])), {}
        for start in range(0, len(order), args.batch_size):
            batch = order[start : start + args.batch_size]
            src = padded_ids(translator.src_tokenizer, [tokens[i] for i in batch]).numpy()
            for i, ids in zip(batch, greedy(encoder, decoder, src, translator), strict=True):
                texts[i] = translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(ids))
        return [texts[i] for i in range(len(tokens))]

    ways = {"this library": ours, "ONNX Runtime": with_onnxruntime}
    texts, seconds = {}, {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            texts[name] = way()
            seconds[name].append(time.perf_counter() - started)
    same = sum(a == b for a, b in zip(*texts.values(), strict=True))
    rows = [{"way": name, **spread(values)} for name, values in seconds.items()]
    for row in rows:
        print("{way:14}{seconds:8.2f} s ({seconds_min:.2f}–{seconds_max:.2f})".format(**row))
    print(f"same text: {same:,} of {len(sentences):,}; largest difference of logits when exported: {difference:.1e}")
    result = {"sentences": len(sentences), "same_text": same, "difference": difference, "batch_size": args.batch_size}
    result["ways"] = rows
    write(args.output, {**machine(torch.device("cpu")), "onnxruntime": onnxruntime.__version__, **result})


if __name__ == "__main__":
    main()
