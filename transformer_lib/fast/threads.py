"""Several batches at a time on a CPU: a single batch of a translation is too small for all cores to share."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")
WORTH_A_WORKER = 32  # sentences; fewer are done sooner in one batch


def num_workers(device: torch.device) -> int:
    """Return how many batches can be computed at a time."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def balanced_batches(lengths: Sequence[int], batch_size: int, workers: int) -> list[list[int]]:
    """Put sentences of similar length together, about as many tokens in each batch, so that workers end together.

    Args:
        lengths: tokens of each sentence.
        batch_size: most sentences in a batch.
        workers: how many batches are computed at a time; each worker gets as many.

    Returns:
        Indices of the sentences of each batch, the longest first.
    """
    number = math.ceil(len(lengths) / batch_size)
    if workers > 1:  # a batch of short sentences holds more than the average
        rounds = math.ceil(len(lengths) / (0.75 * batch_size * workers))
        number = max(number, min(rounds * workers, len(lengths) // WORTH_A_WORKER))
    share = sum(lengths) / max(1, number)
    batches: list[list[int]] = []
    tokens = math.inf  # of the last batch; there is none yet
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if tokens >= share or len(batches[-1]) == batch_size:
            batches.append([])
            tokens = 0
        batches[-1].append(i)
        tokens += lengths[i]
    return batches


def side_by_side(function: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
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
