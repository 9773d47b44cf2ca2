"""Where to compute, and the seed of all random numbers."""

import os
import random

import numpy as np
import torch


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; for ``"auto"``, the best that there is: CUDA, else Apple's MPS, else the CPU.

    Of several processes on one machine, each gets a GPU of its own. Raises a ValueError if there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and "WORLD_SIZE" in os.environ:
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    try:
        torch.empty(1, device=name)
        return torch.device(name)
    except (AssertionError, RuntimeError) as error:  # the former where PyTorch was built without CUDA
        raise ValueError(f"device is {name!r}, which this machine does not have: {error}") from None


def seed_everything(seed: int, *numbers: int) -> None:
    """Seed the random numbers of Python, NumPy and torch, on all devices; with more numbers, as an epoch's, others."""
    if numbers:
        seed = random.Random(str((seed, *numbers))).getrandbits(32)  # no sum, which other pairs have too
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
