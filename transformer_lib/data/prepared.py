"""Corpora of millions of pairs: tokenised once, into ids on disk of which training reads what a batch needs."""

import itertools
import json
import multiprocessing
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from tqdm import tqdm

from transformer_lib.data.batches import Batch, Example, PairDataset, TranslationDataset, log_left_out, tokenised
from transformer_lib.data.corpora import PREPARED_FILE, Corpus, CorpusError, Pair
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.text import can_be_written
from transformer_lib.data.tokenizers import UNK
from transformer_lib.files import new_folder, say

_SAMPLE = 500_000  # pairs from which subwords are learned
_CHUNK = 10_000  # pairs that a process tokenises at a time
Encoded = dict[str, np.ndarray]


class PreparedDataset(TranslationDataset):
    """The training pairs of a folder that ``prepare`` wrote, mapped into memory; in their place, only ids are there.

    Pairs with a side of more than ``max_len`` tokens with ``<sos>`` and ``<eos>`` are left out, and ``log`` hears how
    many. Raises a CorpusError if the file is not what ``prepare`` writes, and a ValueError if they are most.
    """

    def __init__(self, folder: str | Path, max_len: int | None = None, log: Callable[[str], None] = say):
        path = Path(folder) / PREPARED_FILE
        try:
            with safe_open(path, "pt") as file:
                described = json.loads(file.metadata()["tokenizers"])
                src_tokenizer, tgt_tokenizer = map(SubwordTokenizer.from_dict, described)
                self.ids = [file.get_tensor(side) for side in Batch._fields]
                lengths = file.get_tensor("lengths").numpy()
            ends = lengths.cumsum(axis=0, dtype=np.int64)
            if [*ends[-1]] != [*map(len, self.ids)] or lengths.min() < 1:
                raise ValueError("its lengths are not those of its ids")
        except Exception as error:  # whatever is wrong with it
            raise CorpusError(f"{path} is no prepared corpus ({error!r:.100}): prepare it anew") from None
        fits = lengths.max(axis=1) + 2 <= (max_len or lengths.max() + 2)
        log_left_out(log, (~fits).sum(), len(fits), f"more than max_len={max_len} tokens")
        super().__init__(src_tokenizer, tgt_tokenizer, lengths[fits])
        self.starts = (ends - lengths)[fits]

    def __getitem__(self, i: int) -> Example:
        """Return the tokens of both sides of a pair."""
        sides = []
        for side, tokenizer in enumerate(self.tokenizers.values()):
            start = self.starts[i, side]
            ids = self.ids[side][start : start + self.lengths[i, side]]
            sides.append(tokenizer.decode(ids.tolist()))
        return Example(*sides)


def prepare(
    corpus: Corpus,
    output: str | Path,
    subwords: int | None = None,
    lower: bool = True,
    processes: int | None = None,
    log: Callable[[str], None] = say,
) -> Path:
    """Write a folder that ``load_corpus`` opens like any other, with its training split as ids. book/scaling.md.

    Args:
        corpus: with a training split in memory once; the other splits are written as text.
        output: a new or empty folder; otherwise, a FileExistsError.
        subwords: how many; by default, as many as suit the text (see ``train_subwords``), learned on 500,000 pairs.
        lower: make everything lower case.
        processes: that tokenise at the same time; by default, one for each core. More than one import the script that
            calls this, which has to do so below ``if __name__ == "__main__":``; otherwise, a ChildProcessError.

    Pairs with a side that is empty or no text are left out, and ``log`` hears of it, and of characters that no subword
    writes; a ValueError if those pairs are most.
    """
    with new_folder(output) as folder:
        pairs = corpus["train"]
        sample = random.Random(1234).sample(pairs, min(_SAMPLE, len(pairs)))
        log(f"learning subwords from {len(sample):,} of {len(pairs):,} pairs …")
        pieces = train_subwords(sample, subwords, lower)
        tokenizers = [SubwordTokenizer(language, pieces, lower) for language in (corpus.src, corpus.tgt)]
        described = json.dumps([tokenizer.to_dict() for tokenizer in tokenizers])
        chunks = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
        parts = _encoded(chunks, tokenizers, processes or os.cpu_count() or 1)
        tensors = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        kept = len(tensors["lengths"])
        log_left_out(log, len(pairs) - kept, len(pairs), "a side is empty, or not text")
        for side in Batch._fields:
            unknown = (tensors[side] == tokenizers[0].vocab[UNK]).sum()
            if unknown:
                log(f"{side}: {unknown:,} of {len(tensors[side]):,} tokens are {UNK}: characters outside the sample")
        for split in corpus.splits[1:]:
            _write_text(corpus, split, folder, log)
        save_file(tensors, folder / PREPARED_FILE, {"tokenizers": described})
    log(f"{output}: {kept:,} pairs, {len(tensors['src']) + len(tensors['tgt']):,} tokens")
    return Path(output)


def _write_text(corpus: Corpus, split: str, folder: Path, log: Callable[[str], None]) -> None:
    """Write both sides of a split; pairs that are no text are left out."""
    pairs = corpus[split]
    usable = [pair for pair in pairs if all(map(can_be_written, pair))]
    log_left_out(log, len(pairs) - len(usable), len(pairs), f"a side in {split} is not text")
    for side, language in enumerate((corpus.src, corpus.tgt)):
        lines = [" ".join(pair[side].split()) + "\n" for pair in usable]
        (folder / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")


def _encoded(chunks: list[list[Pair]], tokenizers: list[SubwordTokenizer], processes: int) -> list[Encoded]:
    """Tokenise pairs: what ``_encode`` returns for each chunk."""
    encode = partial(_encode, tokenizers)
    bar = partial(tqdm, desc="tokenising", total=len(chunks))
    if processes == 1:
        return list(bar(map(encode, chunks)))
    context = multiprocessing.get_context("spawn")  # a copy of this process would share PyTorch's threads
    trial = context.Process(target=os.getpid)  # older Pythons wait for ever for a pool that cannot start
    trial.start()
    trial.join()
    if trial.exitcode:
        raise ChildProcessError(
            "the processes that tokenise could not start: a script has to call prepare below "
            '`if __name__ == "__main__":`, or with processes=1'
        )
    with ProcessPoolExecutor(processes, context) as pool:
        return list(bar(pool.map(encode, chunks)))


def _encode(tokenizers: list[SubwordTokenizer], pairs: Sequence[Pair]) -> Encoded:
    """Return ids and lengths of both sides of the pairs that can be used."""
    kept = []
    for pair in pairs:
        try:
            kept.append(tokenised(pair, *tokenizers))
        except ValueError:
            continue
    dtype = np.int16 if len(tokenizers[0].vocab) <= 2**15 else np.int32
    tensors = {"lengths": PairDataset(kept, *tokenizers).lengths.astype(np.int32)}
    for name, tokenizer in zip(Batch._fields, tokenizers, strict=True):
        tokens = itertools.chain.from_iterable(getattr(example, name) for example in kept)
        tensors[name] = np.array(tokenizer.ids(tokens), dtype)
    return tensors
