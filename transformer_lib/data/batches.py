"""Sentence pairs → padded batches of sentences that are about equally long. Notebook 01, sections 4 and 5."""

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.corpora import Pair, check_pair, usable
from transformer_lib.data.tokenizers import WordTokenizer

T = TypeVar("T")


class Example(NamedTuple):
    """A tokenised sentence and its translation, without ``<sos>`` and ``<eos>``."""

    src: list[str]
    tgt: list[str]


class Batch(NamedTuple):
    """Padded ids of sentences and their translations, from ``<sos>`` to ``<eos>``: ``[batch, seq_len]`` each."""

    src: Tensor
    tgt: Tensor


class PairDataset(torch.utils.data.Dataset):
    """Tokenised sentence pairs, for ``BucketBatches`` or for a ``DataLoader`` with ``collate_fn=dataset.collate``.

    Attributes:
        examples: the tokens.
        tokenizers: of ``src`` and ``tgt``.
        pairs: the sentences as they were written, if ``make_dataset`` made it.
    """

    def __init__(
        self, examples: Sequence[Example], src_tokenizer: WordTokenizer, tgt_tokenizer: WordTokenizer, pairs=()
    ):
        self.examples, self.pairs = list(examples), pairs
        self.tokenizers = {"src": src_tokenizer, "tgt": tgt_tokenizer}

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, i: int) -> Example:
        return self.examples[i]

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Look up the tokens of several examples, and fill the shorter sentences up with padding."""
        sides = zip(self.tokenizers.values(), zip(*examples, strict=True), strict=True)
        return Batch(*(padded_ids(tokenizer, sentences) for tokenizer, sentences in sides))

    def batches_for(self, recipe: Any, device: torch.device, train: bool) -> "BucketBatches":
        """Return batches as a ``Recipe`` wants them."""
        size = {"max_tokens": recipe.max_tokens} if train and recipe.max_tokens else {"batch_size": recipe.batch_size}
        return BucketBatches(self, **size, train=train, seed=recipe.seed, device=device)


def padded_ids(tokenizer: WordTokenizer, sentences: Iterable[Sequence[str]]) -> Tensor:
    """Look up tokens: ``[batch, seq_len]``, from ``<sos>`` to ``<eos>``, the shorter sentences filled up."""
    ids = [torch.tensor(tokenizer.ids(tokens), device="cpu") for tokens in sentences]
    return pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_id)


def make_dataset(
    pairs: Sequence[Pair],
    src_tokenizer: WordTokenizer,
    tgt_tokenizer: WordTokenizer,
    max_len: int | None = None,
    log: Callable[[str], None] = print,
) -> PairDataset:
    """Tokenise sentence pairs; the vocabularies need not exist yet.

    Where there is a vocabulary already, as in fine-tuning, its ``<unk>`` takes the place of what it lacks.

    Args:
        max_len: the model's number of positions, if no sentence may have more tokens with ``<sos>`` and ``<eos>``.
        log: called with a line that says which pairs are left out, because they are empty, too long or not text, and
            with one if a vocabulary lacks any subwords, which are meant to write everything, or a fifth of the words.

    Raises a ValueError if most pairs cannot be used.
    """

    def tokenise(pair: Any) -> tuple[Pair, Example]:
        pair = check_pair(pair)
        try:
            src, tgt = src_tokenizer.preprocess(pair.src), tgt_tokenizer.preprocess(pair.tgt)
        except ValueError as error:
            raise ValueError(f"not text: {error}") from None
        example = Example([*map(sys.intern, src)], [*map(sys.intern, tgt)])  # a word that occurs again takes no memory
        if not src or not tgt:
            raise ValueError("empty: a side has no tokens")
        if (length := _padded_length(example)) > (max_len or math.inf):
            raise ValueError(f"too long: {length} tokens with <sos> and <eos>, expected at most max_len={max_len}")
        return pair, example

    kept = usable(pairs, tokenise, log)
    examples = [example for _, example in kept]
    dataset = PairDataset(examples, src_tokenizer, tgt_tokenizer, [pair for pair, _ in kept])
    for side, tokenizer in dataset.tokenizers.items():
        if tokenizer.vocab is not None:
            counts = Counter(chain.from_iterable(getattr(example, side) for example in examples))
            lacking = Counter({token: count for token, count in counts.items() if token not in tokenizer.vocab})
            if lacking.total() > (counts.total() / 5 if tokenizer.whole_words else 0):
                frequent = ", ".join(f"{token!r} {count:,} times" for token, count in lacking.most_common(5))
                log(f"{side}: the vocabulary lacks {lacking.total():,} of {counts.total():,} tokens: {frequent}")
    return dataset


def build_vocabularies(dataset: PairDataset, min_freq: int = 2, joint: bool = False) -> None:
    """Give both tokenisers of a training set their vocabularies, the most frequent types first.

    Args:
        dataset: the training split, and nothing else.
        min_freq: rarer types become ``<unk>``.
        joint: one vocabulary over both sides, as tied embeddings need; and as one tokeniser for both sides gets.
    """
    src, tgt = dataset.tokenizers.values()
    src_sentences, tgt_sentences = [[getattr(e, side) for e in dataset.examples] for side in Example._fields]
    if joint or src is tgt:
        src.build_vocab([*src_sentences, *tgt_sentences], min_freq)
        tgt.vocab = src.vocab
    else:
        src.build_vocab(src_sentences, min_freq)
        tgt.build_vocab(tgt_sentences, min_freq)


class BucketBatches:
    """Iterate over a dataset in batches that hold little padding: sentences of similar length go together.

    Args:
        batch_size: sentences in a batch. Give this or ``max_tokens``.
        max_tokens: positions in a batch, padding included, on its larger side.
        train: shuffle, in an order that ``seed`` and the epoch's number decide; otherwise sort by length.
        device: where the batches are needed.

    Raises a ValueError if the dataset is empty, or the longest sentence does not fit into ``max_tokens``.
    """

    def __init__(
        self,
        dataset: PairDataset,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        train: bool = False,
        seed: int = 0,
        device: torch.device | str | None = None,
    ):
        if not len(dataset):
            raise ValueError("dataset is empty, expected at least one pair of sentences")
        if (batch_size is None) == (max_tokens is None) or (batch_size or max_tokens or 0) < 1:
            raise ValueError(f"batch_size={batch_size} and max_tokens={max_tokens}, expected one of them, 1 or more")
        if max_tokens and (longest := max(map(_padded_length, dataset.examples))) > max_tokens:
            raise ValueError(f"max_tokens is {max_tokens}, but the longest sentence has {longest} tokens")
        self.dataset, self.batch_size, self.max_tokens = dataset, batch_size, max_tokens
        self.train, self.seed, self.device = train, seed, torch.device(device or "cpu")
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epoch that starts next: a resumed run sees what an unbroken one would."""
        self.rng = random.Random(f"{self.seed}, {epoch}")

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._split(self.dataset.examples))

    def __iter__(self) -> Iterator[Batch]:
        examples = self.dataset.examples
        if self.train:
            # sorted within pools of a hundred batches, which leaves more to chance
            shuffled = self.rng.sample(examples, len(examples))
            pool = 100 * self.batch_size if self.batch_size else len(examples)
            pools = [self._split(shuffled[start : start + pool]) for start in range(0, len(shuffled), pool)]
            batches = [batch for pool in pools for batch in self.rng.sample(pool, len(pool))]
        else:
            batches = self._split(examples)
        for batch in batches:
            yield to_device(self.dataset.collate(sorted(batch, key=_length_key, reverse=True)), self.device)

    def _split(self, examples: Iterable[Example]) -> list[list[Example]]:
        """Sort examples by length, and split them into batches."""
        batches: list[list[Example]] = []
        longest, max_tokens = 0, self.max_tokens or math.inf
        for example in sorted(examples, key=_length_key):
            length = _padded_length(example)
            longest = max(longest, length)
            if not batches or len(batches[-1]) == self.batch_size or (len(batches[-1]) + 1) * longest > max_tokens:
                batches.append([])
                longest = length
            batches[-1].append(example)
        return batches


def _length_key(example: Example) -> tuple[int, int]:
    return len(example.src) // 2, len(example.tgt)


def _padded_length(example: Example) -> int:
    return max(len(example.src), len(example.tgt)) + 2  # <sos> and <eos> on its longer side


def to_device(batch: T, device: torch.device) -> T:
    """Return a named tuple of tensors on a device; to a GPU, they are copied while the CPU goes on."""
    if device.type == "cuda":
        return type(batch)(*(tensor.pin_memory().to(device, non_blocking=True) for tensor in batch))
    return type(batch)(*(tensor.to(device) for tensor in batch))


def tensors_of(batch: Any, names: Sequence[str], device: torch.device) -> list[Tensor]:
    """Pick the tensors that a model asks for by these names out of any kind of batch, and bring them to its device.

    A batch is a mapping, an object with attributes (a named tuple, a dataclass, torchtext's ``Batch``), or a tuple or
    list of the tensors in the order of ``names``, such as ``src`` and ``tgt``. Raises a ValueError if any is missing.
    """
    if isinstance(batch, Mapping):
        tensors = [batch.get(name) for name in names]
    elif isinstance(batch, tuple | list) and not hasattr(batch, "_asdict"):
        tensors = list(batch)
    else:
        tensors = [getattr(batch, name, None) for name in names]
    if len(tensors) != len(names) or not all(isinstance(tensor, Tensor) for tensor in tensors):
        wanted, kinds = ", ".join(names), ", ".join(type(tensor).__name__ for tensor in tensors)
        raise ValueError(
            f"batch (a {type(batch).__name__}) holds {kinds} for {wanted}, expected tensors of these names, or a tuple "
            "of them in this order: does the collate_fn return what the model asks for?"
        )
    return [tensor.to(device, non_blocking=True) for tensor in tensors]
