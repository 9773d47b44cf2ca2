"""Ids → padded batches of sentences that are about equally long; or a running text, in chunks."""

import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torchtext.data import BPTTIterator, BucketIterator, Dataset, Example, batch
from torchtext.data.utils import RandomShuffler

from transformer_lib.data.corpora import Pair
from transformer_lib.data.tokenizers import RunningTextField, TextField

T = TypeVar("T")


def make_dataset(
    pairs: Sequence[Pair], src_field: TextField, tgt_field: TextField, max_len: int | None = None
) -> Dataset:
    """Tokenise sentence pairs into a torchtext ``Dataset`` with the columns ``src`` and ``tgt``.

    Args:
        pairs: sentences and their translations.
        src_field, tgt_field: how to tokenise each side; their vocabularies need not exist yet.
        max_len: the model's number of positions, if sentences that do not fit are to be reported now.

    Raises:
        ValueError: a sentence is empty, has more than ``max_len`` tokens with ``<sos>`` and ``<eos>``, or is not text;
            the message says which.
    """
    columns = [("src", src_field), ("tgt", tgt_field)]
    examples = []
    for number, pair in enumerate(pairs, start=1):
        try:
            example = Example.fromlist([sentence.strip() for sentence in pair], columns)
        except ValueError as error:
            raise ValueError(f"pairs: pair {number} cannot be used: {error}") from None
        for side, tokens in (("src", example.src), ("tgt", example.tgt)):
            if not tokens:
                raise ValueError(f"pairs: the {side} side of pair {number} is empty")
            if max_len is not None and len(tokens) + 2 > max_len:
                raise ValueError(
                    f"pairs: the {side} side of pair {number} has {len(tokens) + 2} tokens with <sos> and <eos>, "
                    f"expected at most max_len={max_len}; shorten it, or give the model more positions"
                )
        examples.append(example)
    return Dataset(examples, columns)


def resegment(dataset: Dataset, dropout: float, seed: int, max_len: int) -> Dataset:
    """Cut all sentences of a dataset anew, each merge left out with probability ``dropout``.

    Args:
        dataset: what ``make_dataset`` returned, with a ``SubwordField`` on both sides.
        dropout: 0 for the same pieces as before. Provilkov et al. 2020 (BPE-dropout) use 0.1.
        seed: the same seed gives the same pieces.
        max_len: a sentence that would get more pieces, ``<sos>`` and ``<eos>`` included, stays as it is.
    """
    rng = random.Random(seed)
    fields = list(dataset.fields.items())
    examples = []
    for old in dataset.examples:
        new = Example()
        for name, field in fields:
            pieces = field.resample(getattr(old, name), dropout, rng)
            setattr(new, name, pieces if len(pieces) + 2 <= max_len else getattr(old, name))
        examples.append(new)
    return Dataset(examples, fields)


class _Shuffler(RandomShuffler):
    """torchtext's, except that it leaves the random numbers of the whole process alone, even for a moment."""

    def __call__(self, data: Sequence[T]) -> list[T]:
        rng = random.Random()
        rng.setstate(self.random_state)
        shuffled = rng.sample(data, len(data))
        self.random_state = rng.getstate()
        return shuffled


class Batches(BucketIterator):
    """Iterate over a dataset in batches that hold little padding; each has ``src`` and ``tgt``, ``[batch, seq_len]``.

    torchtext's ``BucketIterator`` sorts what it trains on only if told to (``sort_within_batch=True``); without that,
    half of Multi30k's positions are padding. This one does, by source length in steps of two, then by target length.

    Args:
        dataset: what ``make_dataset`` returned.
        batch_size: sentences in a batch. Give this or ``max_tokens``.
        max_tokens: positions in a batch, padding included, on its larger side.
        train: shuffle, in another order each epoch; otherwise sort by length, always in the same order.
        seed: decides the order of every epoch, together with the epoch's number.
        device: where the batches are needed.

    Raises:
        ValueError: the dataset is empty, not exactly one of ``batch_size`` and ``max_tokens`` is given, or the longest
            sentence does not fit into ``max_tokens``.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        train: bool = False,
        seed: int = 0,
        device: torch.device | str | None = None,
    ):
        if not len(dataset):
            raise ValueError("dataset is empty, expected at least one pair of sentences")
        if (batch_size is None) == (max_tokens is None):
            raise ValueError(f"batch_size={batch_size} and max_tokens={max_tokens}, expected exactly one of them")
        if (size := batch_size or max_tokens) is None or size < 1:
            raise ValueError(f"batch_size={batch_size}, max_tokens={max_tokens}, expected a positive number")
        if max_tokens is not None and (longest := max(map(padded_length, dataset.examples))) > max_tokens:
            raise ValueError(f"max_tokens is {max_tokens}, but the longest sentence has {longest} tokens")
        super().__init__(
            dataset,
            size,
            sort_key=lambda example: (len(example.src) // 2, len(example.tgt)),
            batch_size_fn=count_tokens if max_tokens is not None else None,
            train=train,
            sort_within_batch=True,
            device=device,
        )
        self.seed = seed
        self.random_shuffler = _Shuffler()
        self.set_epoch(1)

    def __len__(self) -> int:
        """Return the number of batches."""
        if self.batch_size_fn is None:
            return super().__len__()
        return len(self._sorted_batches(self.dataset))

    def _sorted_batches(self, examples: Iterable[Example]) -> list[list[Example]]:
        return list(batch(sorted(examples, key=self.sort_key), self.batch_size, self.batch_size_fn))

    def create_batches(self) -> None:
        """Cut the data into batches for the pass that begins; torchtext calls this.

        torchtext sorts within pools of a hundred batches, whose sizes it counts as if all their sentences were as long
        as the longest one; with ``max_tokens`` such pools are small and pad more. So here, all data is one pool.
        """
        super().create_batches()
        if self.batch_size_fn is not None and self.shuffle:
            self.batches = iter(self.random_shuffler(self._sorted_batches(self.data())))  # in another order each epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epoch that starts next: a resumed training sees what an unbroken one would."""
        self.random_shuffler.random_state = random.Random(f"{self.seed}, {epoch}").getstate()


def padded_length(example: Example) -> int:
    """Return the positions that a pair takes on its longer side, ``<sos>`` and ``<eos>`` included."""
    return max(len(example.src), len(example.tgt)) + 2


def count_tokens(example: Example, count: int, size_so_far: int) -> int:
    """Return the padded size of a batch, in tokens on its larger side, once ``example`` is its ``count``-th."""
    longest_so_far = size_so_far // (count - 1) if count > 1 else 0
    return max(longest_so_far, padded_length(example)) * count


def prefetch(batches: Iterable[T]) -> Iterator[T]:
    """Yield batches, each of which a thread has made while the one before it was being used."""
    waiting, end = iter(batches), object()
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, waiting, end)
        while (one := coming.result()) is not end:
            coming = thread.submit(next, waiting, end)
            yield one


def make_stream(lines: Iterable[str], field: RunningTextField) -> Dataset:
    """Turn lines into what torchtext's ``LanguageModelingDataset`` makes of a file: one long example, column ``text``.

    Args:
        lines: of the text, empty ones included.
        field: how to tokenise them; its vocabulary need not exist yet.
    """
    columns = [("text", field)]
    return Dataset([Example.fromlist([field.stream(lines)], columns)], columns)


class Chunks(BPTTIterator):
    """Cut a running text into rows, side by side, and go along them chunk by chunk, always in the same order.

    Each chunk has ``text`` and ``target``, ``[batch_size, seq_len]``; ``target`` is what comes one token later.
    PyTorch's tutorial has the batch second, so it calls the rows columns, and it drops the tokens that fill no column;
    torchtext fills the last rows with padding, which the loss does not count.

    Args:
        dataset: what ``make_stream`` returned.
        batch_size: number of rows.
        bptt: tokens of each row in a chunk; the last chunk of a text may be shorter.
        device: where the chunks are needed.

    Raises:
        ValueError: a number is not positive, or the text is too short for so many rows.
    """

    def __init__(
        self, dataset: Dataset, batch_size: int = 20, bptt: int = 35, device: torch.device | str | None = None
    ):
        for name, value in (("batch_size", batch_size), ("bptt", bptt)):
            if value < 1:
                raise ValueError(f"{name} is {value!r}, expected a positive number")
        if (tokens := len(dataset[0].text)) < 2 * batch_size:
            raise ValueError(
                f"dataset has {tokens} tokens, expected at least {2 * batch_size}, two for each of batch_size="
                f"{batch_size} rows: take a longer text or fewer rows"
            )
        super().__init__(dataset, batch_size, bptt, device=device, train=False)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: a text is always read in order."""
