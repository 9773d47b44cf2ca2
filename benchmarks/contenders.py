"""What both benchmarks share: the models that this library is compared with, and what this machine can do at best."""

import resource
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib import Transformer
from transformer_lib.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lib.conversion import to_torch
from transformer_lib.dropout import Dropout

PAD = 1


class PlainAttention(MultiHeadAttention):
    """The same weights, the tutorials' way: the map of every head is computed and kept, always."""

    def attend(self, query, keys, values, mask=None, need_weights=False):
        """Do what the library's own does."""
        queries = self._split_heads(self.query_projection(query))
        _, weights = scaled_dot_product_attention(queries, keys, values, mask)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.output_projection((weights @ values).transpose(1, 2).flatten(2)), weights


def as_the_tutorials_do(model: Transformer) -> Transformer:
    """Let a model compute the same from the same weights in the tutorials' way."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.__class__ = PlainAttention
        elif isinstance(module, Dropout):
            module.__class__ = nn.Dropout
    return model


class TorchTransformer(nn.Module):
    """``nn.Transformer`` with a model's own weights, between its embeddings and its output layer."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.src_embedding, self.tgt_embedding, self.output = model.src_embedding, model.tgt_embedding, model.output
        self.encoder, self.decoder = to_torch(model.encoder), to_torch(model.decoder)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits, ``[batch, tgt_len, tgt_vocab_size]``."""
        length = tgt.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=tgt.device).triu(1)
        memory = self.encoder(self.src_embedding(src), src_key_padding_mask=src == PAD)
        x = self.decoder(
            self.tgt_embedding(tgt),
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
        )
        return self.output(x)


def matrix_rate(dtype: torch.dtype, device: torch.device, seconds: float = 2.0) -> float:
    """Measure how many operations a second products of the model's shapes reach at best."""
    best = 0.0
    for rows, inner, columns in ((2048, 256, 256), (2048, 256, 512), (2048, 512, 512), (512, 256, 4096)):
        a, b = (
            torch.randn(rows, inner, dtype=dtype, device=device),
            torch.randn(inner, columns, dtype=dtype, device=device),
        )
        for _ in range(10):
            a @ b
        started, products = time.perf_counter(), 0
        while time.perf_counter() - started < seconds / 4:
            for _ in range(10):
                c = a @ b
            c.sum().item()
            products += 10
        best = max(best, products * 2 * rows * inner * columns / (time.perf_counter() - started))
    return best


def most_resident() -> float:
    """Return the most memory that this process has had, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # what Linux says by way of getrusage includes the parent's, from before the program was loaded
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()
