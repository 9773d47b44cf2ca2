"""Where to compute, and the seed of all random numbers."""

import os
import random

import numpy as np
import torch


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; for ``"auto"``, the best there is: CUDA, else Apple's MPS, else the CPU.

    Of several processes on one machine, each gets a GPU of its own (see ``training/distributed.py``).

    Raises:
        ValueError: there is no such device on this machine, or not one for each process.
    """
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        number, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if number >= gpus:
            raise ValueError(
                f"there is no GPU for process {number + 1} of this machine, which has {gpus}: start no more processes "
                "(--nproc-per-node), or train on CPUs (--device cpu). If each process sees only its own GPU, say so "
                "(--device cuda:0)"
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


def seed_everything(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and torch, on all devices."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
