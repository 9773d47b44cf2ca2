"""Several processes, one training run: each computes the gradient of its share of every batch. Notebook 14, section 12.

``torchrun`` starts the processes and tells each its rank. They work together within ``process_group``, which ``fit``
enters; outside it, and in a process that was started alone, everything here returns its argument as it is.
"""

import atexit
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

T = TypeVar("T")

_together = False


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Let the processes that torchrun has started work together for as long as the block lasts.

    Raises:
        ValueError: the device is neither a CPU (gloo) nor NVIDIA's GPU (NCCL).
    """
    global _together
    if _are_several() and not dist.is_initialized():
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"device is {device}, expected cpu or cuda: PyTorch connects no others (--device cpu)")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if sys.platform == "win32":  # whose PyTorch lacks libuv, which older ones ask for even so
            os.environ.setdefault("USE_LIBUV", "0")
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)  # and not at the block's end: it can be connected only once
    _together = _are_several()
    try:
        yield
    except BaseException:  # with NCCL, destroying would wait for processes that wait for this one
        atexit.unregister(dist.destroy_process_group)
        raise
    finally:
        _together = False


def _are_several() -> bool:
    return int(os.environ.get("WORLD_SIZE") or 1) > 1


def rank() -> int:
    """Return this process's number, from 0; of a process that is alone, a scheduler's number does not count."""
    return int(os.environ["RANK"]) if _are_several() else 0


def is_first() -> bool:
    """Return whether this is the process that writes, prints and decides."""
    return rank() == 0


def world_size() -> int:
    """Return the number of processes that work together."""
    return dist.get_world_size() if _together else 1


def shard(batch: Sequence[T]) -> Sequence[T]:
    """Return this process's share: every n-th item for n processes, so that all get items of similar size."""
    return batch if world_size() == 1 else batch[rank() :: world_size()]


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """Return the sum of all processes' tensors."""
    if world_size() > 1:
        tensor = tensor.clone()
        dist.all_reduce(tensor)
    return tensor


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each parameter's gradient by the sum of all processes' gradients, sent as one tensor."""
    if world_size() > 1:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        vector_to_parameters(all_reduce_sum(parameters_to_vector(gradients)), gradients)


def copy_from_first(model: nn.Module) -> None:
    """Give every process the first one's parameters and buffers, and wait until all have them."""
    if world_size() > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
