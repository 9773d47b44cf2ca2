"""Several processes, one training run: each computes the gradient of its share of every batch. Notebook 14, section 12.

``torchrun`` starts the processes and tells each its rank. They work together within ``process_group``, which ``fit``
enters; outside it, and in a process that was started alone, everything here returns its argument as it is.
"""

import atexit
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

world_size = 1  # processes that work together at this moment


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Let the processes that torchrun has started work together for as long as the block lasts, on CPUs or on GPUs."""
    global world_size
    started = int(os.environ.get("WORLD_SIZE", 1))
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


def rank() -> int:
    """Return this process's number, from 0."""
    is_alone = int(os.environ.get("WORLD_SIZE", 1)) == 1  # a scheduler may number it all the same
    return 0 if is_alone else int(os.environ["RANK"])


def is_first() -> bool:
    """Return whether this is the process that writes, prints and decides."""
    return rank() == 0


def shard(batch: Tensor) -> Tensor:
    """Return this process's share: every n-th row for n processes, so that all get sentences of similar length."""
    return batch[rank() :: world_size] if world_size > 1 else batch


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """Return the sum of all processes' tensors."""
    if world_size > 1:
        tensor = tensor.clone()
        dist.all_reduce(tensor)
    return tensor


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each parameter's gradient by the sum of all processes' gradients, sent as one tensor."""
    if world_size > 1:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        vector_to_parameters(all_reduce_sum(parameters_to_vector(gradients)), gradients)


def copy_from_first(model: nn.Module) -> None:
    """Give every process the first one's parameters and buffers, and wait until all have them."""
    if world_size > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
