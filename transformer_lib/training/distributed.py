"""Several processes, one training: each computes the gradient of its share of every batch. Notebook 14, section 12.

``torchrun`` starts the processes and tells each its rank. They work together within ``process_group``, which ``fit``
enters; outside it, and in a process that was started alone, everything here returns its argument as it is.
"""

import atexit
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        ConnectionError: another process does not come or has stopped, as gloo notices. (With NCCL, torchrun ends this
            process as well.)
    """
    global _together
    if _are_several():
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"device is {device}, expected cpu or cuda: PyTorch connects no others (--device cpu)")
        if device.type == "cuda":
            torch.cuda.set_device(device)  # objects travel by way of it
        if not dist.is_initialized():
            if sys.platform == "win32":  # whose PyTorch lacks libuv, which older ones ask for even so
                os.environ.setdefault("USE_LIBUV", "0")
            with _peers_reachable():
                dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
            atexit.register(dist.destroy_process_group)  # and not at the block's end: it can be connected only once
    _together = _are_several()
    try:
        yield
    except BaseException:
        if _together:  # with NCCL, destroying would wait for processes that wait for this one
            atexit.unregister(dist.destroy_process_group)
        raise
    finally:
        _together = False


def _are_several() -> bool:
    return int(os.environ.get("WORLD_SIZE") or 1) > 1


@contextmanager
def _peers_reachable() -> Iterator[None]:
    """Turn PyTorch's RuntimeError about an exchange that failed into a ConnectionError that says what to do."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:1000]  # NCCL's comes last
        raise ConnectionError(
            "another process of this training has stopped, or cannot be reached; if it could, it said why. An output "
            "folder holds all complete epochs: resume the training (--resume), with any number of processes. "
            f"({reason})"
        ) from error


def rank() -> int:
    """Return this process's number, from 0; a ValueError if there are several and it has none."""
    if not _are_several():
        return 0
    if "RANK" not in os.environ:
        raise ValueError(f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but RANK is not set: start with torchrun")
    return int(os.environ["RANK"])


def is_first() -> bool:
    """Say whether this is the process that writes, prints and decides."""
    return rank() == 0


def world_size() -> int:
    """Return the number of processes that work together."""
    return dist.get_world_size() if _together else 1


def shard(whole: Sequence[T]) -> Sequence[T]:
    """Return what this process has to do: every n-th item for n processes, so that all get items of similar size."""
    return whole if world_size() == 1 else whole[rank() :: world_size()]


def all_reduce_sum(mine: Tensor) -> Tensor:
    """Return the sum of all processes' tensors."""
    if world_size() == 1:
        return mine
    mine = mine.clone()
    with _peers_reachable():
        dist.all_reduce(mine)
    return mine


def check_same(batch: Iterable[Tensor]) -> None:
    """Raise a ValueError unless all processes have the same batch, of which each is to take its part."""
    if world_size() > 1:
        bytes_of = (tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy() for tensor in batch)
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        mine = torch.tensor([zlib.crc32(b"".join(map(bytes, bytes_of)))], device=device)
        if all_reduce_sum(mine) != world_size() * mine:
            raise ValueError(
                "the processes have different batches, expected the same in all, each of which takes its part of them: "
                "leave out the DistributedSampler, and seed what shuffles"
            )


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each parameter's gradient by the sum of all processes' gradients, sent as one tensor."""
    if world_size() > 1:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        vector_to_parameters(all_reduce_sum(parameters_to_vector(gradients)), gradients)


def broadcast(make: Callable[[], T]) -> T:
    """Return what ``make`` returns in the first process; the others do not call it, and get tensors on the CPU."""
    if world_size() == 1:
        return make()
    made, file = None, io.BytesIO()
    if is_first():
        made = make()
        torch.save(made, file)  # pickle would write what several tensors share once for each of them
    sent = [file.getvalue()]
    with _peers_reachable():
        dist.broadcast_object_list(sent)
    return made if is_first() else torch.load(io.BytesIO(sent[0]), map_location="cpu", weights_only=True)
