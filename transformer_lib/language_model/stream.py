"""Running text for a language model: one long stream of tokens, cut into rows and chunks. Notebook 11, section 5."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer_lib.data.batches import to_device
from transformer_lib.data.tokenizers import EOS, PAD, UNK, WordTokenizer


class StreamTokenizer(WordTokenizer):
    """Running text, as a language model reads it: nothing before a line, ``<eos>`` after it.

    Args:
        language: a language code, such as ``"en"``; None if tokens are between spaces already, as in WikiText.
        lower, tokenize: as in ``WordTokenizer``. A ``tokenize`` that gives characters needs a subclass whose own
            ``join`` is ``"".join``: this one puts spaces between them.
    """

    specials = (UNK, PAD)

    def __init__(self, language: str | None = None, lower: bool = False, tokenize=None):
        super().__init__(language, lower, tokenize)

    def stream(self, lines: Iterable[str]) -> list[str]:
        """Join lines into one long list of tokens, with ``<eos>`` after each line, empty ones too."""
        tokens = []
        for number, line in enumerate(lines, start=1):
            try:
                tokens += [*self.preprocess(line), EOS]
            except ValueError as error:
                raise ValueError(f"line {number} cannot be used: {error}") from None
        return tokens

    def encode(self, prompt: str) -> list[int]:
        """Turn a prompt, one line or several, into ids.

        Raises:
            ValueError: there is nothing in it, or a word is not in the vocabulary.
        """
        if not prompt.strip():
            raise ValueError(f"prompt is {prompt!r}, expected at least one word")
        tokens = []
        for line in prompt.strip().split("\n"):
            for part in re.split(f"({UNK})", line):  # spaCy would cut it up
                tokens += [UNK] if part == UNK else self.preprocess(part.strip())
            tokens.append(EOS)
        tokens.pop()  # the last line is to go on
        if unknown := sorted({token for token in tokens if token not in self.vocab}):
            raise ValueError(
                f"prompt holds {', '.join(map(repr, unknown))}, expected words among the {len(self.vocab):,} of the "
                f"vocabulary, which come from the training text{'' if self.lower else ' (upper case counts)'}; "
                f"write {UNK} where the word does not matter"
            )
        return [self.vocab[token] for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Turn ids into tokens, all of them."""
        return [self._token(i) for i in ids]

    def join(self, tokens: Iterable[str]) -> str:
        """Put the tokens of a line together: with spaces, or as people write the language."""
        line = " ".join(tokens).strip()
        return super().join(line.split()) if self.language else line


class TextDataset(torch.utils.data.Dataset):
    """A running text as one list of tokens, and what tokenised it; its vocabulary need not exist yet."""

    def __init__(self, tokens: list[str], tokenizer: StreamTokenizer):
        self.tokens = tokens
        self.tokenizers = {"text": tokenizer}

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> str:
        return self.tokens[i]

    def ids(self) -> Tensor:
        """Look up all tokens: ``[tokens]``."""
        vocab = self.tokenizers["text"].vocab
        return torch.tensor([vocab[token] for token in self.tokens], device="cpu")

    def batches_for(self, recipe: Any, device: torch.device, train: bool) -> "BPTTBatches":
        """Return chunks as a ``Recipe`` wants them; a short text to validate on may have fewer rows."""
        rows = recipe.batch_size if train else max(1, min(recipe.batch_size, len(self) // 2))
        return BPTTBatches(self, rows, recipe.bptt, device)


def make_stream(lines: Iterable[str], tokenizer: StreamTokenizer) -> TextDataset:
    """Tokenise lines, empty ones included, into one running text."""
    return TextDataset(tokenizer.stream(lines), tokenizer)


class Chunk(NamedTuple):
    """Ids of a piece of text, and of what comes one token later: ``[batch_size, seq_len]`` each."""

    text: Tensor
    target: Tensor


class BPTTBatches:
    """Cut a running text into rows, side by side, and go along them chunk by chunk, always in the same order.

    The name is torchtext's: recurrent networks are trained this way, by truncated backpropagation through time.
    Padding, which the loss does not count, fills what the text leaves of the last rows.

    Args:
        dataset: what ``make_stream`` returned.
        batch_size: number of rows.
        bptt: tokens of each row in a chunk; the last chunk of a text may be shorter.
        device: where the chunks are needed.

    Raises:
        ValueError: ``batch_size`` or ``bptt`` is not positive, or the text is too short for so many rows.
    """

    def __init__(
        self, dataset: TextDataset, batch_size: int = 20, bptt: int = 35, device: torch.device | str | None = None
    ):
        for name, value in {"batch_size": batch_size, "bptt": bptt}.items():
            if value < 1:
                raise ValueError(f"{name} is {value!r}, expected a positive whole number")
        if len(dataset) < 2 * batch_size:
            raise ValueError(
                f"dataset has {len(dataset)} tokens, expected at least {2 * batch_size}, two for each of batch_size="
                f"{batch_size} rows: take a longer text or fewer rows"
            )
        self.dataset, self.bptt, self.device = dataset, bptt, torch.device(device or "cpu")
        row = -(-len(dataset) // batch_size)
        pad_id = dataset.tokenizers["text"].pad_id
        ids = torch.full((batch_size * row,), pad_id, device="cpu")
        ids[: len(dataset)] = dataset.ids()
        self.rows = ids.view(batch_size, row)

    def __len__(self) -> int:
        """Return the number of chunks."""
        return -(-(self.rows.shape[1] - 1) // self.bptt)

    def __iter__(self) -> Iterator[Chunk]:
        for start in range(0, self.rows.shape[1] - 1, self.bptt):
            end = min(start + self.bptt, self.rows.shape[1] - 1)
            chunk = Chunk(self.rows[:, start:end].contiguous(), self.rows[:, start + 1 : end + 1].contiguous())
            yield to_device(chunk, self.device)
