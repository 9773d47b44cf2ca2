"""Several processes, one training run: each computes the gradient of its share of every batch. Notebook 14, section 7.

``torchrun`` starts the processes and tells each its rank. They work together within ``process_group``, which ``fit``
enters; outside it, and in a process that was started alone, nothing here changes anything. book/scaling.md has the
commands.
"""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

world_size = 1  # processes that work together at this moment


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Let the processes that torchrun has started work together for as long as the block lasts, on CPUs or on GPUs."""
    global world_size
    _, started = rank_and_world_size()
    if started > 1 and not dist.is_initialized():  # they can be connected only once
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    world_size = started
    try:
        yield
    except BaseException:  # with NCCL, destroying would wait for processes that wait for this one
        atexit.unregister(dist.destroy_process_group)
        raise
    finally:
        world_size = 1


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's number, from 0, and how many torchrun has started."""
    processes = int(os.environ.get("WORLD_SIZE", 1))
    return (int(os.environ["RANK"]) if processes > 1 else 0), processes  # a scheduler may number a lone one


def is_first() -> bool:
    """Return whether this is the process that writes, prints and decides."""
    return rank_and_world_size()[0] == 0


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """Return the sum of all processes' tensors."""
    if world_size > 1:
        tensor = tensor.clone()
        dist.all_reduce(tensor)
    return tensor


class _Replica(nn.Module):
    """DistributedDataParallel watches ``forward``, and models are trained by another method."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.logits_and_targets(*tensors)


def replicate(model: nn.Module) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return what computes a model's logits and targets in every process, and averages their gradients on the way back.

    That is PyTorch's DistributedDataParallel, which first gives every process the first one's parameters and buffers.
    """
    return DistributedDataParallel(_Replica(model)) if world_size > 1 else model.logits_and_targets
