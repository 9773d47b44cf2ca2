"""From token ids to vectors: token embeddings and positions (sections 3.4 and 3.5)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from transformer_lib.fast.dropout import Dropout


class TokenEmbedding(nn.Module):
    """Look up a vector for each token and multiply it by √d_model (section 3.4).

    Args:
        vocab_size: number of rows of the table.
        d_model: length of each vector.
    """

    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.scale = math.sqrt(d_model)
        self.checks_ids = True  # except within ids_are_known

    def forward(self, ids: Tensor) -> Tensor:
        """Embed ``ids``, ``[batch, seq_len]``, as ``[batch, seq_len, d_model]``.

        Raises:
            ValueError: an id lies outside the table. A GPU would report that later and elsewhere, as
                ``CUBLAS_STATUS_NOT_INITIALIZED`` or a device-side assert.
        """
        if self.checks_ids and ids.numel() and not ids.is_meta and not torch.compiler.is_compiling():
            lowest, highest = torch.stack([ids.min(), ids.max()]).tolist()  # one transfer from a GPU, not two
            if lowest < 0 or highest >= self.table.num_embeddings:
                raise ValueError(
                    f"ids holds {lowest if lowest < 0 else highest}, expected 0 to {self.table.num_embeddings - 1}: "
                    "were they made with another vocabulary than the model's?"
                )
        return self.table(ids) * self.scale


@contextmanager
def ids_are_known(model: nn.Module) -> Iterator[None]:
    """Do not look for unknown ids for as long as the block lasts, since a GPU stops to answer.

    Args:
        model: is given only ids that come from vocabularies of its size.
    """
    before = {module: module.checks_ids for module in model.modules() if isinstance(module, TokenEmbedding)}
    for embedding in before:
        embedding.checks_ids = False
    try:
        yield
    finally:
        for embedding, checked in before.items():
            embedding.checks_ids = checked


class _Positions(nn.Module):
    """What both kinds of positions share: a table with one row a position, and an error when it ends."""

    def __init__(self, max_len: int):
        super().__init__()
        self.max_len = max_len

    def forward(self, length: int, start: int = 0) -> Tensor:
        """Return the vectors of positions ``start`` to ``start + length - 1``, ``[length, d_model]``.

        Raises:
            ValueError: there are not that many positions.
        """
        if start + length > self.max_len:
            raise ValueError(
                f"length is {start + length}, expected at most max_len={self.max_len} positions: "
                "is a sentence or chunk too long, or is the batch not [batch, seq_len] (a torchtext Field without "
                "batch_first=True gives [seq_len, batch])?"
            )
        return self.table[start : start + length]


class LearnedPositions(_Positions):
    """One trainable vector for each position (section 3.5; the paper found them as good as sinusoids).

    Args:
        max_len: number of positions.
        d_model: length of each vector.
    """

    def __init__(self, max_len: int, d_model: int):
        super().__init__(max_len)
        self.table = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.table, std=d_model**-0.5)


class SinusoidalPositions(_Positions):
    """Sines and cosines of geometrically growing wavelengths (section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).

    Args:
        max_len: number of positions.
        d_model: length of each vector, even.

    Raises:
        ValueError: ``d_model`` is odd, so that a sine would have no cosine.
    """

    def __init__(self, max_len: int, d_model: int):
        super().__init__(max_len)
        if d_model % 2:
            raise ValueError(f"d_model is {d_model}, expected an even number: sines and cosines come in pairs")
        position = torch.arange(max_len, dtype=torch.float64)[:, None]  # [max_len, 1]
        frequency = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # [d_model / 2]
        angle = position * frequency  # [max_len, d_model / 2]
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # [max_len, d_model]
        self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)


class Embedding(nn.Module):
    """What enters the encoder and the decoder: token embedding plus position, then dropout (section 5.4).

    Args:
        tokens: the token embedding, which two sides may share (section 3.4).
        positions: learned or sinusoidal positions.
        dropout: probability with which an entry of the sum is dropped during training.
    """

    def __init__(self, tokens: TokenEmbedding, positions: LearnedPositions | SinusoidalPositions, dropout: float):
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed ``ids``, ``[batch, seq_len]``, whose first column is position ``start``: ``[batch, seq_len, d_model]``.

        Raises:
            ValueError: ``ids`` is not ``[batch, seq_len]``, is longer than the positions or holds an unknown id.
        """
        if ids.dim() != 2 or ids.shape[1] == 0:
            raise ValueError(f"ids has shape {list(ids.shape)}, expected [batch, seq_len] with at least one position")
        if ids.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"ids has dtype {ids.dtype}, expected torch.int64")
        return self.dropout(self.tokens(ids) + self.positions(ids.shape[1], start))
