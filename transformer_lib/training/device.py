"""Where to compute, and the seed of all random numbers."""

import os
import random
import warnings

import numpy as np
import torch

from transformer_lib.fast.attention import fused_attention_is_right


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; for ``"auto"``, the best that computes: CUDA, else Apple's MPS, else the CPU.

    Of several processes on one machine, each gets a GPU of its own (see ``training/distributed.py``).

    Raises:
        ValueError: there is no such device on this machine, or not one for each process.
    """
    numbers = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if numbers[kind] and _computes(kind))
    if name == "cuda" and "WORLD_SIZE" in os.environ:
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    try:
        device = torch.device(name)
    except RuntimeError:  # not a device's name at all
        device = torch.device("meta")
    if (device.index or 0) < numbers.get(device.type, 0):
        return device
    choices = ", ".join(f"{number} {kind}" for kind, number in numbers.items() if number)
    raise ValueError(f"device is {name!r}, but this machine has {choices}; 'auto' picks one (or one for each process)")


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
