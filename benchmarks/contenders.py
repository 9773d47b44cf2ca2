"""What the benchmarks share: models to compare this library with, what a machine can do at best, and bookkeeping."""

import contextlib
import json
import math
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib import Transformer
from transformer_lib.fast.dropout import Dropout
from transformer_lib.fast.precision import fast_dtype
from transformer_lib.files import replacing
from transformer_lib.interop.pytorch import to_torch
from transformer_lib.model.attention import MultiHeadAttention

PAD = 1

# TRANSFORMER_LIB_FAST_DEV_RUN=1 asks for the fewest of everything, to see that a benchmark runs to its end: its times
# mean nothing then
SMALL = os.environ.get("TRANSFORMER_LIB_FAST_DEV_RUN", "") not in ("", "0")
CORPUS, PRESET, TEST = ("sample", "small", "test") if SMALL else ("multi30k", "tutorial", "test_2016_flickr")
# what runs functions in a process of its own, which takes seconds to start
own_process = partial(ProcessPoolExecutor, 1, multiprocessing.get_context("spawn"))
if SMALL:
    own_process = partial(ThreadPoolExecutor, 1)


def few(examples: Sequence[Any]) -> Sequence[Any]:
    """Return all examples, or a few of them where few are enough."""
    return examples[:2] if SMALL else examples


class PlainAttention(MultiHeadAttention):
    """The same weights, the tutorials' way: the map of every head is computed and kept, always."""

    def attend(self, q, k, v, mask=None, need_weights=False):
        """Do what the library's own does."""
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e10)
        weights = scores.softmax(dim=-1)
        return F.dropout(weights, self.dropout, self.training) @ v, weights


def as_the_tutorials_do(model: Transformer) -> Transformer:
    """Let a model compute the same from the same weights in the tutorials' way."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.__class__ = PlainAttention
        elif isinstance(module, Dropout):
            module.__class__ = nn.Dropout
    return model


def compile_layers(model: Transformer) -> None:
    """Let ``torch.compile`` make kernels for a model's layers, which all layers of a kind share."""
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.compile(dynamic=True)


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


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


def matrix_rates(device: torch.device) -> dict[str, float]:
    """Measure how many operations a second matrix products reach at best, in both precisions of ``Recipe``."""
    return {
        "float32": _matrix_rate(torch.float32, device),
        "bfloat16": _matrix_rate(fast_dtype(device), device),
    }


def _matrix_rate(dtype: torch.dtype, device: torch.device, seconds: float = 0.01 if SMALL else 0.5) -> float:
    # shapes of the models; a GPU is only busy with larger ones
    sizes = [(2048, 256, 256), (2048, 256, 512), (2048, 512, 512), (512, 256, 4096)]
    if device.type != "cpu" and not SMALL:
        sizes = [(4096, 4096, 4096), (8192, 8192, 8192)]
    best = 0.0
    for rows, inner, columns in sizes:
        a, b = (torch.randn(*size, device=device).to(dtype) for size in ((rows, inner), (inner, columns)))
        for _ in range(10):
            a @ b
        synchronize(device)
        started, products = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            for _ in range(10):
                a @ b
            synchronize(device)
            products += 10
        best = max(best, products * 2 * rows * inner * columns / (time.perf_counter() - started))
    return best


def own_memory(run: Callable[..., None], arguments: Sequence[Any], device: torch.device) -> float:
    """Return how many MB a function needs beyond what is there when it begins, in a process of its own.

    Args:
        run: a generator function of a module: what comes before its only ``yield`` is not counted.
        arguments: what it is given.
        device: on a GPU, its memory is meant.
    """
    with own_process() as pool:
        return pool.submit(_measure_memory, run, arguments, str(device)).result()


def _measure_memory(run: Callable[..., Any], arguments: Sequence[Any], device: str) -> float:
    steps = run(*arguments)
    next(steps)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        list(steps)
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # on Linux, forget the most memory so far
    before = _most_resident()
    list(steps)
    return _most_resident() - before


def _most_resident() -> float:
    """Return the most memory that this process has had, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # what Linux says by way of getrusage includes the parent's, from before the program was loaded
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def spread(values: Sequence[float], factor: float = 1.0) -> dict[str, float]:
    """Return median, smallest and largest of measured seconds."""
    return {
        "seconds": statistics.median(values) * factor,
        "seconds_min": min(values) * factor,
        "seconds_max": max(values) * factor,
    }


def machine(device: torch.device) -> dict[str, Any]:
    """Say what was measured on."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else device.type
    return {
        "device": f"{name}, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        **({"small": True} if SMALL else {}),
    }


def write(path: Path | None, result: dict[str, Any]) -> None:
    """Write a result down, if that is wanted."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
