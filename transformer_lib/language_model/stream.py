"""Running text for a language model: one long stream of tokens, split into rows and chunks."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lib.checkpoint import saved
from transformer_lib.data.batches import to_device
from transformer_lib.data.tokenizers import EOS, PAD, UNK, WordTokenizer


@saved
class StreamTokenizer(WordTokenizer):
    """Running text, as a language model reads it: nothing before a line, ``<eos>`` after it."""

    specials = (UNK, PAD)

    def __init__(self, language: str | None = None, lower: bool = False):
        super().__init__(language, lower)

    def stream(self, lines: Iterable[str]) -> list[str]:
        """Join lines into one long list of tokens, with ``<eos>`` after each line, empty ones too."""
        return [token for line in lines for token in (*self.tokenize(line), EOS)]

    def encode(self, prompt: str) -> list[int]:
        """Turn a prompt, one line or several, into ids; a ValueError if it is empty, or names unknown words."""
        tokens = self.stream(prompt.strip().split("\n"))[:-1]  # the last line is to go on
        if not tokens:
            raise ValueError(f"prompt is {prompt!r}, expected at least one word")
        if unknown := sorted({token for token in tokens if token not in self.vocab}):
            raise ValueError(f"prompt holds {unknown}, expected words of the training text (case counts), or {UNK}")
        return self.ids(tokens)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Turn ids into tokens, all of them."""
        return [self.vocab.itos[i] for i in ids]


class TextDataset:
    """Lines as one list of tokens, and what tokenised them; its vocabulary need not exist yet."""

    def __init__(self, lines: Iterable[str], tokenizer: StreamTokenizer):
        self.tokens = tokenizer.stream(lines)
        self.tokenizers = {"text": tokenizer}

    def __len__(self) -> int:
        return len(self.tokens)

    def ids(self) -> Tensor:
        """Look up all tokens: ``[tokens]``."""
        return torch.tensor(self.tokenizers["text"].ids(self.tokens), device="cpu")

    def batches_for(
        self, recipe: Any, device: torch.device, train: bool, share: tuple[int, int] = (0, 1)
    ) -> "BPTTBatches":
        """Return chunks as a ``Recipe`` wants them; a short text to validate on may have fewer rows.

        Of n processes, process r takes every n-th row from the r-th on, for a ``share`` of ``(r, n)``.
        """
        rows = recipe.batch_size if train else max(1, min(recipe.batch_size, len(self) // 2))
        return BPTTBatches(self, rows, recipe.bptt, device, share)


class Chunk(NamedTuple):
    """Ids of a piece of text, and of what comes one token later: ``[batch_size, seq_len]`` each."""

    text: Tensor
    target: Tensor


class BPTTBatches:
    """Split a running text into ``batch_size`` rows, and go along them in chunks of ``bptt`` tokens, always in order.

    The name is torchtext's: recurrent networks are trained this way, by truncated backpropagation through time.
    Padding, which the loss does not count, fills what the text leaves of the last rows.
    """

    def __init__(
        self,
        dataset: TextDataset,
        batch_size: int = 20,
        bptt: int = 35,
        device: torch.device | str = "cpu",
        share: tuple[int, int] = (0, 1),
    ):
        if len(dataset) < 2 * batch_size:
            raise ValueError(f"dataset has {len(dataset)} tokens, expected at least two for each of {batch_size} rows")
        self.dataset = dataset
        self.bptt = bptt
        self.device = torch.device(device)
        pad_id = dataset.tokenizers["text"].pad_id
        rows = F.pad(dataset.ids(), (0, -len(dataset) % batch_size), value=pad_id).view(batch_size, -1)
        rank, processes = share
        self.rows = rows[rank::processes]

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self.rows[:, 1:].split(self.bptt, dim=1))

    def __iter__(self) -> Iterator[Chunk]:
        texts = self.rows[:, :-1].split(self.bptt, dim=1)
        targets = self.rows[:, 1:].split(self.bptt, dim=1)
        for text, target in zip(texts, targets, strict=True):
            yield to_device(Chunk(text.contiguous(), target.contiguous()), self.device)
