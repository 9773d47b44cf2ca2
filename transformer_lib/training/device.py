"""Where to compute, and the seed of all random numbers."""

import os
import random
import warnings

import numpy as np
import torch

from transformer_lib.fast.attention import fused_attention_is_right

_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")  # torchrun's, srun's, mpirun's


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; for ``"auto"``, the best that computes: CUDA, else Apple's MPS, else the CPU.

    Of several processes on one machine, each gets a GPU of its own (see ``training/distributed.py``).

    Raises:
        ValueError: there is no such device on this machine, or not one for each process.
    """
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind] and _computes(kind))
    local_ranks = [os.environ[variable] for variable in _LOCAL_RANKS if variable in os.environ]
    if name == "cuda" and (local_ranks or "WORLD_SIZE" in os.environ):
        number, gpus = int(local_ranks[0]) if local_ranks else 0, torch.cuda.device_count()
        if number >= gpus:
            raise ValueError(
                f"there is no GPU for process {number + 1} of this machine, which has {gpus}: start no more processes "
                "(--nproc-per-node), or train on CPUs (--device cpu)"
            )
        name = f"cuda:{number}"
    try:
        device = torch.device(name)
        if available.get(device.type) and (device.type != "cuda" or (device.index or 0) < torch.cuda.device_count()):
            return device
    except RuntimeError:  # not a device's name at all
        pass
    choices = [kind for kind, there in available.items() if there]
    raise ValueError(f"device is {name!r}, but this machine has {', '.join(choices)}; 'auto' picks one")


def _computes(kind: str) -> bool:
    """Return whether a device computes; this PyTorch may have no kernels for a GPU as old as Kaggle's P100.

    One whose fused attention is wrong computes, but its user is told (see ``fused_attention_is_right``).
    """
    try:
        fused_attention_is_right(torch.device(kind))
        return True
    except RuntimeError as error:
        warnings.warn(f"there is a device {kind!r}, but it cannot compute: {str(error).splitlines()[0]}", stacklevel=3)
        return False


def seed_of(*numbers: int) -> int:
    """Return one seed for several numbers, such as a recipe's seed and an epoch: no sum, which other pairs have too."""
    return random.Random(str(numbers)).getrandbits(32)


def seed_everything(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and torch, on all devices."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
