"""Several batches at a time on a CPU: a single batch of a translation is too small for all cores to share."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")
MIN_PER_WORKER = 32  # sentences; fewer are done sooner in one batch


def batches_by_length(lengths: Sequence[int], batch_size: int, workers: int) -> list[list[int]]:
    """Put sentences of similar length together, in as many batches for each worker.

    Args:
        lengths: tokens of each sentence.
        batch_size: most sentences in a batch.
        workers: how many batches are computed at a time.

    Returns:
        Indices of the sentences of each batch, the longest first.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    rounds = math.ceil(len(order) / (batch_size * workers))
    size = max(math.ceil(len(order) / max(1, rounds * workers)), min(batch_size, MIN_PER_WORKER))
    return [order[start : start + size] for start in range(0, len(order), size)]


def parallel_map(function: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """Do what ``map`` does, in as many threads, among which PyTorch's own are divided."""
    threads, workers = torch.get_num_threads(), min(workers, len(items))
    if workers < 2:
        yield from map(function, items)
        return
    try:
        with ThreadPoolExecutor(
            workers, initializer=torch.set_num_threads, initargs=(max(1, threads // workers),)
        ) as pool:
            yield from pool.map(function, items)
    finally:
        torch.set_num_threads(threads)
