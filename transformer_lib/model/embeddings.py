"""From token ids to vectors: token embeddings and positional encodings (sections 3.4 and 3.5)."""

import math

import torch
from torch import Tensor, nn

from transformer_lib.fast.dropout import Dropout


class TokenEmbedding(nn.Module):
    """Look up a vector for each token and multiply it by √d_model (section 3.4). Notebook 04, section 2."""

    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, ids: Tensor) -> Tensor:
        """Embed ``ids``, ``[batch, seq_len]``, as ``[batch, seq_len, d_model]``."""
        return self.table(ids) * self.scale


class _PositionalEncoding(nn.Module):
    """What both kinds share: a ``table`` with one row per position, and an error beyond its end."""

    def forward(self, length: int) -> Tensor:
        """Return the vectors of the first ``length`` positions, ``[length, d_model]``, to be added to the tokens'.

        Raises:
            ValueError: there are not that many positions.
        """
        if length > len(self.table):
            raise ValueError(
                f"length is {length}, expected at most max_len={len(self.table)} positions: is a sentence or chunk too "
                "long, or is the batch not [batch, seq_len] (a torchtext Field without batch_first=True gives "
                "[seq_len, batch])?"
            )
        return self.table[:length]


class LearnedPositionalEncoding(_PositionalEncoding):
    """One trainable vector per position (section 3.5; as good as sinusoids in the paper). Notebook 04, section 2."""

    def __init__(self, max_len: int, d_model: int):
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.table, std=d_model**-0.5)  # a Transformer initialises all its matrices again


class SinusoidalPositionalEncoding(_PositionalEncoding):
    """Sines and cosines of geometrically growing wavelengths (section 3.5). Notebook 04, section 2.

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).

    Raises:
        ValueError: ``d_model`` is odd, so that a sine would have no cosine.
    """

    def __init__(self, max_len: int, d_model: int):
        super().__init__()
        if d_model % 2:
            raise ValueError(f"d_model is {d_model}, expected an even number: sines and cosines come in pairs")
        position = torch.arange(max_len, dtype=torch.float64)[:, None]  # [max_len, 1]
        frequency = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # [d_model / 2]
        angle = position * frequency  # [max_len, d_model / 2]
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # [max_len, d_model]: sin, cos, sin, cos …
        dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)  # a bfloat16 has 8 bits for a position
        self.register_buffer("table", table.to(dtype), persistent=False)


POSITIONS = {"learned": LearnedPositionalEncoding, "sinusoidal": SinusoidalPositionalEncoding}


class InputEmbedding(nn.Module):
    """What enters the encoder and the decoder: token embedding plus position, then dropout (section 5.4).

    Notebook 04, section 2.

    Args:
        tokens: the token embedding, which both sides may share (section 3.4).
        positions: learned or sinusoidal.
        dropout: probability with which an entry of the sum is dropped during training.
    """

    def __init__(self, tokens: TokenEmbedding, positions: nn.Module, dropout: float):
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Embed ``ids``, ``[batch, seq_len]``, as ``[batch, seq_len, d_model]``.

        Raises:
            ValueError: ``ids`` is longer than the positions.
        """
        x = self.tokens(ids)  # [batch, seq_len, d_model]
        # sinusoids are in float32 even in a model that was made in bfloat16, which then goes on in bfloat16
        return self.dropout((x + self.positions(ids.shape[1])).to(x.dtype))


def check_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """Raise a ValueError unless ids are ``[batch, seq_len]`` and in range. Notebook 04, "Ids outside the vocabulary".

    A GPU would report a wrong one later and elsewhere, as ``CUBLAS_STATUS_NOT_INITIALIZED`` or a device-side assert. In
    training, it is not asked for the lowest and the highest: the CPU would have to wait for the answer at each step.
    """
    if ids.dim() != 2 or ids.shape[1] == 0:
        raise ValueError(f"{name} has shape {list(ids.shape)}, expected [batch, seq_len] with at least one position")
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} has dtype {ids.dtype}, expected torch.int64")
    trains_on_a_gpu = ids.device.type != "cpu" and torch.is_grad_enabled()
    if torch.compiler.is_compiling() or trains_on_a_gpu or not ids.numel():
        return
    try:
        lowest, highest = torch.stack(ids.aminmax()).tolist()  # one transfer from a GPU, not two
    except RuntimeError:  # no values to look at: on the meta device, or inside of torch.vmap
        return
    if lowest < 0 or highest >= vocab_size:
        raise ValueError(
            f"{name} holds the id {lowest if lowest < 0 else highest}, expected 0 to {vocab_size - 1}: was it made "
            "with another vocabulary than the model's?"
        )
