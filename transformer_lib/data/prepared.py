"""Corpora of millions of pairs: tokenised once, into ids on disk of which training reads what a batch needs."""

import itertools
import json
import multiprocessing
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from transformer_lib.data.batches import Batch, PairDataset
from transformer_lib.data.corpora import PREPARED_FILE, Corpus, CorpusError, Pair
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.files import new_folder

_SAMPLE = 500_000  # pairs from which subwords are learned
_CHUNK = 10_000  # pairs that a process tokenises at a time


class PreparedDataset(PairDataset):
    """The training pairs of a folder that ``prepare`` wrote, mapped into memory; in their place, only ids are there.

    Pairs with a side of more than ``max_len`` tokens with ``<sos>`` and ``<eos>`` are left out, and ``log`` hears how
    many. Raises a CorpusError if the file is not what ``prepare`` writes.
    """

    def __init__(self, folder: str | Path, max_len: int | None = None, log: Callable[[str], None] = print):
        path = Path(folder) / PREPARED_FILE
        try:
            with safe_open(path, "pt") as file:
                described = json.loads(file.metadata()["tokenizers"])
                super().__init__([], *(SubwordTokenizer.from_dict(values) for values in described))
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
        self.lengths, self.starts = lengths[fits], (ends - lengths)[fits]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> Any:
        """Return the ids of both sides of a pair, from ``<sos>`` to ``<eos>``."""
        sides = zip(self.tokenizers.values(), self.ids, self.starts[i], self.lengths[i], strict=True)
        return [
            torch.cat([torch.tensor([t.sos_id]), ids[start : start + length].long(), torch.tensor([t.eos_id])])
            for t, ids, start, length in sides
        ]

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
    log: Callable[[str], None] = print,
) -> Path:
    """Write a folder that ``load_corpus`` opens like any other, with its training split as ids. book/scaling.md.

    Args:
        corpus: with a training split in memory once; the other splits are written as text.
        output: a new or empty folder; otherwise, a FileExistsError.
        subwords: how many; by default, as many as suit the text (see ``train_subwords``), learned on 500,000 pairs.
        lower: make everything lower case.
        processes: that tokenise at the same time; by default, one for each core.

    Pairs with a side that is empty or no text are left out, and ``log`` hears of it; a ValueError if they are most.
    """
    with new_folder(output) as folder:
        pairs = corpus["train"]
        sample = random.Random(1234).sample(pairs, min(_SAMPLE, len(pairs)))
        log(f"learning subwords from {len(sample):,} of {len(pairs):,} pairs …")
        pieces = train_subwords(sample, subwords, lower)
        described = [SubwordTokenizer(language, pieces, lower).to_dict() for language in (corpus.src, corpus.tgt)]
        chunks = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
        context = multiprocessing.get_context("spawn")  # a copy of this process would share PyTorch's threads
        with ProcessPoolExecutor(processes or os.cpu_count(), context, _begin, (described,)) as pool:
            parts = list(tqdm(pool.map(_encode, chunks), "tokenising", len(chunks), unit=f" × {_CHUNK:,} pairs"))
        tensors = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if left_out := len(pairs) - len(tensors["src_lengths"]):
            line = f"{left_out:,} of {len(pairs):,} pairs left out: a side is empty, or not text"
            if left_out * 2 > len(pairs):
                raise ValueError(f"most pairs cannot be used, {line}")
            log(line)
        for split in corpus.splits[1:]:
            for side, language in enumerate((corpus.src, corpus.tgt)):
                lines = [" ".join(pair[side].split()) + "\n" for pair in corpus[split]]
                (folder / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")
        save_file(tensors, folder / PREPARED_FILE, {"tokenizers": json.dumps(described)})
    log(f"{output}: {len(pairs) - left_out:,} pairs, {len(tensors['src']) + len(tensors['tgt']):,} tokens")
    return Path(output)


def _begin(described: list[dict[str, Any]]) -> None:
    """Build the tokenisers of a process."""
    global tokenizers
    tokenizers = [SubwordTokenizer.from_dict(values) for values in described]


def _encode(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """Return ids and lengths of both sides of the pairs that can be used."""
    kept = []
    for pair in pairs:
        try:
            ids = [t.ids(t.tokenize(sentence)) for t, sentence in zip(tokenizers, pair, strict=True)]
        except ValueError:
            continue
        if all(ids):
            kept.append(ids)
    dtype = np.int16 if len(tokenizers[0].vocab) <= 2**15 else np.int32
    tensors = {}
    for side, name in enumerate(Batch._fields):
        tensors[name] = np.fromiter(itertools.chain.from_iterable(ids[side] for ids in kept), dtype)
        tensors[f"{name}_lengths"] = np.array([len(ids[side]) for ids in kept], np.int32)
    return tensors
