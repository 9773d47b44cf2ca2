"""Sentence pairs → padded batches of sentences that are about equally long. Notebook 01, sections 4 and 5."""

import itertools
import math
import random
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.corpora import Pair
from transformer_lib.data.pairs import UnusablePair, report_left_out
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
        self,
        examples: Sequence[Example],
        src_tokenizer: WordTokenizer,
        tgt_tokenizer: WordTokenizer,
        pairs: Sequence[Pair] = (),
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

    def batches_for(
        self, recipe: Any, device: torch.device, train: bool, epoch: int = 1, max_len: float = math.inf
    ) -> "BucketBatches":
        """Return batches as a ``Recipe`` wants them; with BPE-dropout, each epoch's sentences are segmented again."""
        if not train:
            return BucketBatches(self, recipe.batch_size, device=device)
        dropout = recipe.subword_dropout
        most = min(max_len, recipe.max_tokens or math.inf)
        data = resegment(self, dropout, f"{recipe.seed}, {epoch}", most) if dropout else self
        size = {"max_tokens": recipe.max_tokens} if recipe.max_tokens else {"batch_size": recipe.batch_size}
        return BucketBatches(data, **size, train=True, seed=recipe.seed, device=device)


def padded_ids(tokenizer: WordTokenizer, sentences: Iterable[Sequence[str]]) -> Tensor:
    """Look up tokens: ``[batch, seq_len]``, from ``<sos>`` to ``<eos>``, the shorter sentences filled up."""
    ids = [torch.tensor(tokenizer.ids(tokens), device="cpu") for tokens in sentences]
    return pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_id)


def make_dataset(
    pairs: Sequence[Pair],
    src_tokenizer: WordTokenizer,
    tgt_tokenizer: WordTokenizer,
    max_len: int | None = None,
    log: Callable[[str], None] | None = None,
) -> PairDataset:
    """Tokenise sentence pairs; the vocabularies need not exist yet.

    Where there is a vocabulary already, as in fine-tuning, its ``<unk>`` takes the place of what it lacks. That is said
    if it lacks any subwords, which are meant to write everything, or more than a fifth of the words.

    Args:
        max_len: the model's number of positions, if no sentence may have more tokens with ``<sos>`` and ``<eos>``.
        log: leave out what cannot be used, and call this with a line that says which, instead of raising an error. By
            default, what is lost as ``<unk>`` is a warning.

    Raises:
        ValueError: a sentence is empty, too long or not text, or with ``log``, most are; the message says which.
    """
    examples, kept = [], []
    left_out: dict[str, list[tuple[int, object]]] = defaultdict(list)
    for number, pair in enumerate(pairs, start=1):
        try:
            examples.append(_example(number, pair, (src_tokenizer, tgt_tokenizer), max_len or math.inf))
        except UnusablePair as error:
            if log is None:
                raise
            left_out[error.kind].append((number, pair))
        else:
            kept.append(pair)
    if log is not None:
        report_left_out(left_out, len(pairs), log)
    dataset = PairDataset(examples, src_tokenizer, tgt_tokenizer, kept)
    for line in _unknown(dataset):
        log(line) if log is not None else warnings.warn(line, stacklevel=2)
    return dataset


def _unknown(dataset: PairDataset) -> Iterator[str]:
    """Yield a line for each side of which a vocabulary that exists lacks more than it is meant to."""
    for side, tokenizer in dataset.tokenizers.items():
        if tokenizer.vocab is not None:
            sentences = [getattr(example, side) for example in dataset.examples]
            lacking = [[token for token in tokens if token not in tokenizer.vocab.stoi] for tokens in sentences]
            counts, total = Counter(itertools.chain(*lacking)), sum(map(len, sentences))
            if counts.total() > (total / 5 if tokenizer.whole_words else 0):
                frequent = ", ".join(f"{token!r} {count:,} times" for token, count in counts.most_common(5))
                yield (
                    f"{side}: the vocabulary lacks {counts.total():,} of {total:,} tokens, which become <unk>, "
                    f"in {sum(map(bool, lacking)):,} of {len(sentences):,} sentences: {frequent}"
                )


def _example(number: int, pair: Pair, tokenizers: tuple[WordTokenizer, WordTokenizer], max_len: float) -> Example:
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(side, str) for side in pair)):
        message = f"pairs: pair {number} is {pair!r}, expected a sentence and its translation"
        raise UnusablePair("no pair", message)
    try:
        example = Example(*(one.preprocess(side.strip()) for one, side in zip(tokenizers, pair, strict=True)))
    except ValueError as error:
        raise UnusablePair("not text", f"pairs: pair {number} cannot be used: {error}") from None
    for side, tokens in example._asdict().items():
        if not tokens:
            raise UnusablePair("empty", f"pairs: the {side} side of pair {number} is empty")
        if len(tokens) + 2 > max_len:
            raise UnusablePair(
                "too long",
                f"pairs: the {side} side of pair {number} has {len(tokens) + 2} tokens with <sos> and <eos>, "
                f"expected at most max_len={max_len}; shorten it, or give the model more positions",
            )
    return example


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


def resegment(dataset: PairDataset, dropout: float, seed: int | str, max_len: float) -> PairDataset:
    """Cut all sentences of a dataset again, each merge left out with probability ``dropout``.

    This is BPE-dropout (Provilkov et al. 2020, who use 0.1). A sentence that would get more than ``max_len`` pieces,
    ``<sos>`` and ``<eos>`` included, stays as it is.

    Raises:
        ValueError: a side has no ``SubwordTokenizer``.
    """
    for side, tokenizer in dataset.tokenizers.items():
        if not hasattr(tokenizer, "resample"):
            kind = type(tokenizer).__name__
            raise ValueError(f"subword_dropout is {dropout}, but {side} has a {kind}, expected a SubwordTokenizer")
    rng = random.Random(seed)

    def resample(side: str, old: list[str]) -> list[str]:
        new = dataset.tokenizers[side].resample(old, dropout, rng)
        return new if len(new) + 2 <= max_len else old

    examples = [Example(*(resample(side, getattr(old, side)) for side in Example._fields)) for old in dataset.examples]
    return PairDataset(examples, *dataset.tokenizers.values())


class BucketBatches:
    """Iterate over a dataset in batches that hold little padding: sentences of similar length go together.

    Args:
        batch_size: sentences in a batch. Give this or ``max_tokens``.
        max_tokens: positions in a batch, padding included, on its larger side.
        train: shuffle, in an order that ``seed`` and the epoch's number decide; otherwise sort by length.
        device: where the batches are needed.

    Raises:
        ValueError: the dataset is empty, not exactly one of ``batch_size`` and ``max_tokens`` is given, or the longest
            sentence does not fit into ``max_tokens``.
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
        if max_tokens is not None and (longest := max(map(_padded_length, dataset.examples))) > max_tokens:
            raise ValueError(f"max_tokens is {max_tokens}, but the longest sentence has {longest} tokens")
        self.dataset, self.batch_size, self.max_tokens = dataset, batch_size, max_tokens
        self.train, self.seed, self.device = train, seed, torch.device(device or "cpu")
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epoch that starts next: a resumed training sees what an unbroken one would."""
        self.rng = random.Random(f"{self.seed}, {epoch}")

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._cut(self.dataset.examples))

    def __iter__(self) -> Iterator[Batch]:
        examples = self.dataset.examples
        if self.train:
            # sorted within pools of a hundred batches, which leaves more to chance
            shuffled = self.rng.sample(examples, len(examples))
            pool = 100 * self.batch_size if self.batch_size else len(examples)
            pools = [self._cut(shuffled[start : start + pool]) for start in range(0, len(shuffled), pool)]
            batches = [batch for pool in pools for batch in self.rng.sample(pool, len(pool))]
        else:
            batches = self._cut(examples)
        for batch in batches:
            yield to_device(self.dataset.collate(sorted(batch, key=_length_key, reverse=True)), self.device)

    def _cut(self, examples: Iterable[Example]) -> list[list[Example]]:
        """Sort examples by length, and cut them into batches."""
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

    Args:
        batch: a mapping, an object with attributes (a named tuple, a dataclass, torchtext's ``Batch``), or a tuple or
            list with the tensors in the order of ``names``, such as ``src`` and ``tgt``.

    Raises:
        ValueError: one of them is missing or not a tensor, or a tuple has more than were asked for.
    """
    if isinstance(batch, Mapping):
        there = dict(batch)
    elif isinstance(batch, tuple | list) and not hasattr(batch, "_asdict"):
        if len(batch) > len(names):
            raise ValueError(
                f"batch (a {type(batch).__name__}) has {len(batch)} entries, expected {len(names)}, "
                f"{', '.join(names)}, in this order: to have more, give them names, in a dictionary for example"
            )
        there = dict(zip(names, batch, strict=False))
    else:
        there = {name: getattr(batch, name) for name in names if hasattr(batch, name)}
    for name in names:
        if not isinstance(there.get(name), Tensor):
            missing = f"missing among {', '.join(map(str, there))}" if there else "missing"
            found = f"a {type(there[name]).__name__}" if name in there else missing
            raise ValueError(
                f"batch (a {type(batch).__name__}): {name} is {found}, expected tensors called {', '.join(names)}, "
                "or a tuple of them in this order: does the collate_fn return what the model asks for?"
            )
    return [there[name].to(device, non_blocking=True) for name in names]
