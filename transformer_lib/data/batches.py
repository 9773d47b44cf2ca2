"""Sentence pairs → padded batches of sentences that are about equally long. Notebook 01, sections 4 and 5."""

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.corpora import Pair, as_pairs
from transformer_lib.data.tokenizers import EOS, SOS, WordTokenizer
from transformer_lib.files import say


class Example(NamedTuple):
    """A tokenised sentence and its translation, without ``<sos>`` and ``<eos>``."""

    src: list[str]
    tgt: list[str]


class Batch(NamedTuple):
    """Padded ids of sentences and their translations, from ``<sos>`` to ``<eos>``: ``[batch, seq_len]`` each."""

    src: Tensor
    tgt: Tensor


class TranslationDataset(torch.utils.data.Dataset):
    """What data sets of sentence pairs share: ``tokenizers`` of ``src`` and ``tgt``, and ``lengths``, ``[pairs, 2]``.

    Those are how many tokens both sides have, without ``<sos>`` and ``<eos>``.
    """

    def __init__(self, src_tokenizer: WordTokenizer, tgt_tokenizer: WordTokenizer, lengths: np.ndarray):
        self.tokenizers = {"src": src_tokenizer, "tgt": tgt_tokenizer}
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Look up the tokens of several examples, between ``<sos>`` and ``<eos>``, with padding after the shorter."""
        sides = zip(*examples, strict=True)
        with_ends = [[[SOS, *tokens, EOS] for tokens in side] for side in sides]
        return Batch(*map(padded_ids, self.tokenizers.values(), with_ends))

    def batches_for(
        self, recipe: Any, device: torch.device, train: bool, share: tuple[int, int] = (0, 1)
    ) -> "BucketBatches":
        """Return batches as a ``Recipe`` wants them; of each, a process's share (see ``BucketBatches``)."""
        size = {"max_tokens": recipe.max_tokens} if train and recipe.max_tokens else {"batch_size": recipe.batch_size}
        return BucketBatches(self, **size, train=train, seed=recipe.seed, device=device, share=share)


class PairDataset(TranslationDataset):
    """Tokenised sentence pairs, for ``BucketBatches`` or for a ``DataLoader`` with ``collate_fn=dataset.collate``.

    Its ``examples`` are tokens, its ``pairs`` the same as they were written.
    """

    def __init__(self, examples: list[Example], src_tokenizer: WordTokenizer, tgt_tokenizer: WordTokenizer, pairs=()):
        lengths = np.array([[len(side) for side in example] for example in examples]).reshape(-1, 2)
        super().__init__(src_tokenizer, tgt_tokenizer, lengths)
        self.examples = examples
        self.pairs = pairs

    def __getitem__(self, i: int) -> Example:
        return self.examples[i]


def padded_ids(tokenizer: WordTokenizer, sentences: Iterable[Iterable[str]]) -> Tensor:
    """Look up the tokens of several sentences, and fill the shorter ones up with padding: ``[batch, seq_len]``."""
    ids = [torch.tensor(tokenizer.ids(tokens), device="cpu") for tokens in sentences]
    return pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_id)


def make_dataset(
    pairs: Sequence[Pair],
    src_tokenizer: WordTokenizer,
    tgt_tokenizer: WordTokenizer,
    max_len: int | None = None,
    log: Callable[[str], None] = say,
) -> PairDataset:
    """Tokenise sentence pairs; the vocabularies need not exist yet.

    Pairs with a side that is empty, not text, or of more than ``max_len`` tokens (the model's positions) with ``<sos>``
    and ``<eos>`` are left out: ``log`` is called with a line that says how many, and why the first three, and with one
    if a vocabulary that is there already lacks tokens. Raises a ValueError if they are most of the pairs.
    """
    kept, examples, left_out = [], [], []
    for number, pair in enumerate(as_pairs(pairs), start=1):
        try:
            examples.append(tokenised(pair, src_tokenizer, tgt_tokenizer, max_len))
            kept.append(pair)
        except ValueError as error:
            left_out.append(f"pair {number}, {pair!r:.60}: {error}")  # repr has no control characters
    log_left_out(log, len(left_out), len(left_out) + len(kept), "; ".join(left_out[:3]))
    dataset = PairDataset(examples, src_tokenizer, tgt_tokenizer, kept)
    for side, tokenizer in dataset.tokenizers.items():
        if tokenizer.vocab is not None:
            tokens = [token for example in examples for token in getattr(example, side)]
            unknown = Counter(token for token in tokens if token not in tokenizer.vocab)
            if unknown.total() > (len(tokens) / 5 if tokenizer.whole_words else 0):  # subwords write everything
                frequent = dict(unknown.most_common(5))
                log(f"{side}: the vocabulary lacks {unknown.total():,} of {len(tokens):,} tokens: {frequent}")
    return dataset


def tokenised(
    pair: Pair, src_tokenizer: WordTokenizer, tgt_tokenizer: WordTokenizer, max_len: int | None = None
) -> Example:
    """Return the tokens of both sides; a ValueError if the pair cannot be used."""
    src, tgt = src_tokenizer.tokenize(pair.src), tgt_tokenizer.tokenize(pair.tgt)
    if not src or not tgt:
        raise ValueError("a side is empty")
    length = max(len(src), len(tgt)) + 2
    if length > (max_len or length):
        raise ValueError(f"{length} tokens with <sos> and <eos>, expected at most max_len={max_len}")
    return Example([*map(sys.intern, src)], [*map(sys.intern, tgt)])  # a repeated word takes no memory


def log_left_out(log: Callable[[str], None], left_out: int, pairs: int, why: str) -> None:
    """Say how many pairs were left out, if any; a ValueError if they are most."""
    line = f"{left_out:,} of {pairs:,} pairs left out: {why}"
    if left_out * 2 > pairs:
        raise ValueError(f"most pairs cannot be used, {line}")
    if left_out:
        log(line)


def build_vocabularies(dataset: PairDataset, min_freq: int = 2, joint: bool = False) -> None:
    """Give both tokenisers of a training set their vocabularies, the most frequent types first.

    Types rarer than ``min_freq`` become ``<unk>``. Tied embeddings need one vocabulary over both sides (``joint``).
    """
    src, tgt = dataset.tokenizers.values()
    if joint or src is tgt:
        src.build_vocab(itertools.chain.from_iterable(dataset.examples), min_freq)
        tgt.vocab = src.vocab
    else:
        src.build_vocab([example.src for example in dataset.examples], min_freq)
        tgt.build_vocab([example.tgt for example in dataset.examples], min_freq)


class BucketBatches:
    """Iterate over a dataset in batches that hold little padding: sentences of similar length go together.

    Args:
        dataset: with ``lengths``, items by number, and a ``collate`` for some of them, as a ``PairDataset`` has.
        batch_size: sentences in a batch. Give this or ``max_tokens``.
        max_tokens: positions in a batch, padding included, on its larger side; a sentence may have more, alone.
        train: shuffle, in an order that ``seed`` and the epoch's number decide; otherwise sort by length.
        share: of each batch, every n-th sentence from the r-th on, for ``(r, n)``: what process r of n takes, so that
            all get sentences of similar length.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        train: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        share: tuple[int, int] = (0, 1),
    ):
        if (batch_size is None) == (max_tokens is None) or (batch_size or max_tokens or 0) < 1:
            raise ValueError(f"batch_size={batch_size} and max_tokens={max_tokens}, expected one of them, 1 or more")
        self.dataset = dataset
        self.lengths = dataset.lengths
        self.batch_size = batch_size or math.inf
        self.max_tokens = max_tokens or math.inf
        self.train = train
        self.seed = seed
        self.device = torch.device(device)
        self.share = share
        self._number = len(self._split(np.arange(len(self.lengths))))
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epoch that starts next: a resumed run sees what an unbroken one would."""
        self.rng = random.Random(f"{self.seed}, {epoch}")
        self.start = 0  # the batch that this epoch begins with

    def __len__(self) -> int:
        """Return the number of batches; with ``max_tokens``, an epoch may happen to have a few more or fewer."""
        return self._number

    def __iter__(self) -> Iterator[Batch]:
        batches = self._order()[self.start :]
        self.start = 0
        first, step = self.share
        for batch in batches:
            batch = self._sort(batch, -1)
            share = batch[first::step]
            # a process of several may have none: it then gets the shape of the batch, with no sentences
            padded = self.dataset.collate([self.dataset[i] for i in (share if len(share) else batch)])
            yield to_device(type(padded)(*(side[: len(share)] for side in padded)), self.device)

    def _order(self) -> list[np.ndarray]:
        """Return the numbers of the sentences in each batch of an epoch."""
        numbers = np.arange(len(self.lengths))
        if not self.train:
            return self._split(numbers)
        numbers = np.array(self.rng.sample(range(len(numbers)), len(numbers)), dtype=int)
        # sorted within pools of a hundred batches, which leaves more to chance
        size = max(1, min(100 * self.batch_size, len(numbers)))
        batches = []
        for start in range(0, len(numbers), size):
            pool = self._split(numbers[start : start + size])
            batches += self.rng.sample(pool, len(pool))
        return batches

    def _sort(self, order: np.ndarray, sign: int = 1) -> np.ndarray:
        """Sort sentences by length, or from the longest on; those that are equally long stay in their order."""
        src, tgt = self.lengths[order].T
        return order[np.lexsort((sign * tgt, sign * (src // 2)))]

    def _split(self, order: np.ndarray) -> list[np.ndarray]:
        """Sort sentences by length, and split them into batches."""
        order = self._sort(order)
        lengths = self.lengths[order].max(axis=1) + 2  # with <sos> and <eos>
        starts = []
        number = longest = 0
        for i, length in enumerate(lengths.tolist()):
            number += 1
            longest = max(longest, length)
            if i == 0 or number > self.batch_size or number * longest > self.max_tokens:
                starts.append(i)
                number = 1
                longest = length
        return np.split(order, starts)[1:]


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a named tuple of tensors on a device; to a GPU, they are copied while the CPU goes on."""
    if device.type == "cuda":
        return type(batch)(*(tensor.pin_memory().to(device, non_blocking=True) for tensor in batch))
    return type(batch)(*(tensor.to(device) for tensor in batch))


def tensors_of(batch: Any, names: Sequence[str], device: torch.device) -> list[Tensor]:
    """Pick the tensors that a model asks for by name out of any kind of batch, and bring them to its device.

    A batch is a mapping, an object with attributes (a named tuple, torchtext's ``Batch``), or a tuple or list of them.
    """
    if isinstance(batch, Mapping):
        tensors = [batch[name] for name in names]
    elif isinstance(batch, tuple | list) and not hasattr(batch, "_fields"):
        tensors = batch
    else:
        tensors = [getattr(batch, name) for name in names]
    return [tensor.to(device, non_blocking=True) for tensor in tensors]
