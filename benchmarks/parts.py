"""What each part of ``the_transformer.py`` takes, in seconds, on this machine: on Multi30k, with its own settings.

The parts are timed one after another in one process, with nothing else running: reading, subwords, ids, one epoch of
the eight, the file that is saved after it, and both searches over the whole test set, with the model that ``train`` has
written, if it is given (one that has learned little writes longer sentences, and takes longer).

    python the_transformer.py --model runs/the_transformer.pt train
    python benchmarks/parts.py runs/the_transformer.pt
"""

import argparse
import importlib.util
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from contenders import CORPUS, SMALL, machine, write

from transformer_lib.data.corpora import fetch
from transformer_lib.files import shipped


def load_file() -> Any:
    """Return ``the_transformer.py`` as a module."""
    spec = importlib.util.spec_from_file_location(
        "the_transformer", Path(__file__).parent.parent / "the_transformer.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["the_transformer"] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


class Stopwatch:
    """Prints what a part has taken as soon as it is over, and notes it in ``seconds``."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.began = time.perf_counter()

    def lap(self, part: str) -> None:
        """End a part, and begin the next."""
        self.seconds[part] = time.perf_counter() - self.began
        print(f"{part:44} {self.seconds[part]:7.1f} s", flush=True)
        self.began = time.perf_counter()


def texts(split: str) -> list[str]:
    """Return the paths of a split's two files: Multi30k's, or the sample corpus's in a small run."""
    if CORPUS == "sample":
        return [str(shipped("data/sample") / f"{split.partition('_')[0]}.{side}") for side in ("de", "en")]
    return [str(fetch("multi30k", f"{split}.{side}.gz")) for side in ("de", "en")]


def main() -> None:
    """Time every part once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="what train has written; otherwise, one epoch's model searches")
    parser.add_argument("--output", type=Path, help="a JSON file for the seconds")
    args = parser.parse_args()
    one = load_file()
    print(f"on {one.DEVICE}: {machine(torch.device(one.DEVICE))}")
    config = one.Config(vocab_size=300, d_model=16, num_layers=1) if SMALL else one.Config()
    few = 50 if SMALL else None
    watch = Stopwatch()
    train_src, train_tgt = (side[:few] for side in one.read(*texts("train")))
    test_src, test_tgt = (side[:few] for side in one.read(*texts("test_2016_flickr")))
    watch.lap("reading four files")
    pieces = one.learn_pieces(train_src + train_tgt, config.vocab_size)
    watch.lap(f"learning {len(pieces):,} subwords")
    config.vocab_size = len(pieces)
    tokenizer = one.Tokenizer(pieces)
    pairs = list(zip(map(tokenizer.encode, train_src), map(tokenizer.encode, train_tgt), strict=True))
    watch.lap(f"ids of {len(pairs):,} pairs")
    torch.manual_seed(config.seed)
    model = one.Transformer(config).to(one.DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)
    batches = one.make_batches(pairs, config.max_tokens)
    watch.lap(f"a model, and {len(batches):,} batches")
    one.train_one_epoch(model, batches, optimizer, schedule, one.PAD, config.label_smoothing)
    watch.lap(f"an epoch, of {config.epochs}")
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"weights": model.state_dict(), "optimizer": optimizer.state_dict()}, Path(folder) / "model.pt")
    watch.lap("saving")
    if args.model and not SMALL:
        model, tokenizer, _ = one.load(args.model)
    watch.lap("loading")
    for beam_size in (1, config.beam_size):
        found = list(one.translate(model, tokenizer, test_src, beam_size, config.length_penalty))
        watch.lap(f"{len(found):,} sentences, with a beam of {beam_size}")
    words = [[text.lower().split() for text in side] for side in (found, test_tgt)]
    one.corpus_bleu(*words)
    watch.lap("BLEU")
    write(args.output, {**machine(torch.device(one.DEVICE)), "seconds": watch.seconds})


if __name__ == "__main__":
    main()
