"""Corpora of millions of pairs: tokenised once, into ids on disk of which training reads what a batch needs."""

import itertools
import json
import multiprocessing
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from transformer_lib.data.batches import Batch, TranslationDataset, log_left_out, log_unknown
from transformer_lib.data.corpora import PREPARED_FILE, Corpus, CorpusError, Pair
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.text import is_text
from transformer_lib.files import new_folder, say

_SAMPLE = 500_000  # pairs from which subwords are learned
_CHUNK = 10_000  # pairs that a process tokenises at a time


class PreparedDataset(TranslationDataset):
    """The training pairs of a folder that ``prepare`` wrote, mapped into memory; in their place, only ids are there.

    Pairs with a side of more than ``max_len`` tokens with ``<sos>`` and ``<eos>`` are left out, and ``log`` hears how
    many. Raises a CorpusError if the file is not what ``prepare`` writes.
    """

    def __init__(self, folder: str | Path, max_len: int | None = None, log: Callable[[str], None] = say):
        path = Path(folder) / PREPARED_FILE
        try:
            with safe_open(path, "pt") as file:
                described = json.loads(file.metadata()["tokenizers"])
                src_tokenizer, tgt_tokenizer = map(SubwordTokenizer.from_dict, described)
                self.ids = [file.get_tensor(side) for side in Batch._fields]
                lengths = np.stack([file.get_tensor(f"{side}_lengths").numpy() for side in Batch._fields], axis=1)
            ends = lengths.cumsum(axis=0, dtype=np.int64)
            if [*ends[-1]] != [len(ids) for ids in self.ids] or lengths.min() < 1:
                raise ValueError(f"{ends[-1]} tokens by their lengths, but {[len(ids) for ids in self.ids]} ids")
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, IndexError) as error:
            raise CorpusError(f"{path} is no prepared corpus ({error!r:.100}): prepare it anew") from None
        fits = lengths.max(axis=1) + 2 <= (max_len or lengths.max() + 2)
        if not fits.all():
            log(f"{(~fits).sum():,} of {len(fits):,} pairs left out: more than max_len={max_len} tokens")
        super().__init__(src_tokenizer, tgt_tokenizer, lengths[fits])
        self.starts = (ends - lengths)[fits]

    def __getitem__(self, i: int) -> list[Tensor]:
        """Return the ids of both sides of a pair, from ``<sos>`` to ``<eos>``."""
        sides = []
        for side, tokenizer in enumerate(self.tokenizers.values()):
            start, length = self.starts[i, side], self.lengths[i, side]
            ids = self.ids[side][start : start + length].long()
            sides.append(torch.cat([torch.tensor([tokenizer.sos_id]), ids, torch.tensor([tokenizer.eos_id])]))
        return sides

    def collate(self, examples: Sequence[Sequence[Tensor]]) -> Batch:
        """Fill the shorter sentences up with padding."""
        sides = zip(self.tokenizers.values(), zip(*examples, strict=True), strict=True)
        return Batch(*(pad_sequence(list(ids), batch_first=True, padding_value=t.pad_id) for t, ids in sides))


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
        parts = list(_encoded(pairs, described, processes or os.cpu_count() or 1))
        tensors = {name: np.concatenate([part.tensors[name] for part in parts]) for name in parts[0].tensors}
        kept = len(tensors["src_lengths"])
        log_left_out(log, len(pairs) - kept, len(pairs), "a side is empty, or not text")
        for side, tokenizer in zip(Batch._fields, tokenizers, strict=True):
            unknown = sum((part.unknown[side] for part in parts), Counter())
            log_unknown(log, side, tokenizer, unknown, len(tensors[side]))
        for split in corpus.splits[1:]:
            _write_text(corpus, split, folder, log)
        save_file(tensors, folder / PREPARED_FILE, {"tokenizers": described})
    log(f"{output}: {kept:,} pairs, {len(tensors['src']) + len(tensors['tgt']):,} tokens")
    return Path(output)


def _write_text(corpus: Corpus, split: str, folder: Path, log: Callable[[str], None]) -> None:
    """Write both sides of a split; pairs that are no text are left out."""
    pairs = corpus[split]
    usable = [pair for pair in pairs if all(map(is_text, pair))]
    log_left_out(log, len(pairs) - len(usable), len(pairs), f"a side in {split} is not text")
    for side, language in enumerate((corpus.src, corpus.tgt)):
        lines = [" ".join(pair[side].split()) + "\n" for pair in usable]
        (folder / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")


class _Part(NamedTuple):
    """What becomes of some pairs: ids and lengths of both sides, and how often a token was in no vocabulary."""

    tensors: dict[str, np.ndarray]
    unknown: dict[str, Counter[str]]


def _encoded(pairs: Sequence[Pair], described: str, processes: int) -> Iterator[_Part]:
    """Tokenise pairs, in order, some at a time."""
    chunks = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
    bar = {"desc": "tokenising", "total": len(chunks), "unit": f" x {_CHUNK:,} pairs"}
    if processes == 1:
        _begin(described)
        yield from tqdm(map(_encode, chunks), **bar)
        return
    with tempfile.TemporaryDirectory() as folder:
        # a process that ends at its start would never take more than a little that is handed to it, nor this one go on
        path = Path(folder) / "tokenizers.json"
        path.write_text(described, encoding="utf-8")
        context = multiprocessing.get_context("spawn")  # a copy of this process would share PyTorch's threads
        try:
            with ProcessPoolExecutor(processes, context, _begin_from, (path,)) as pool:
                yield from tqdm(pool.map(_encode, chunks), **bar)
        except BrokenProcessPool:
            raise ChildProcessError(
                "the processes that tokenise could not start, or were killed: a script has to call prepare below "
                '`if __name__ == "__main__":`, or with processes=1'
            ) from None


def _begin_from(path: Path) -> None:
    """Build the tokenisers of a process of several."""
    _begin(path.read_text(encoding="utf-8"))


def _begin(described: str) -> None:
    """Build the tokenisers of a process."""
    global tokenizers
    tokenizers = [SubwordTokenizer.from_dict(values) for values in json.loads(described)]


def _encode(pairs: Sequence[Pair]) -> _Part:
    """Return the ids of the pairs that can be used."""
    kept: dict[str, list[list[int]]] = {side: [] for side in Batch._fields}
    unknown: dict[str, Counter[str]] = {side: Counter() for side in Batch._fields}
    for pair in pairs:
        try:
            tokens = [tokenizer.tokenize(sentence) for tokenizer, sentence in zip(tokenizers, pair, strict=True)]
        except ValueError:
            continue
        if all(tokens):
            for side, tokenizer, of_side in zip(Batch._fields, tokenizers, tokens, strict=True):
                kept[side].append(tokenizer.ids(of_side))
                unknown[side].update(token for token in of_side if token not in tokenizer.vocab)
    dtype = np.int16 if len(tokenizers[0].vocab) <= 2**15 else np.int32
    tensors = {}
    for side, ids in kept.items():
        tensors[side] = np.fromiter(itertools.chain.from_iterable(ids), dtype)
        tensors[f"{side}_lengths"] = np.array([len(sentence) for sentence in ids], np.int32)
    return _Part(tensors, unknown)
