"""Where to compute, and the seed of all random numbers."""

import os
import random
import warnings

import numpy as np
import torch


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name; for ``"auto"``, the best that there is: CUDA, else Apple's MPS, else the CPU.

    Of several processes on one machine, each gets a GPU of its own. A device must be able to train: a GPU may be too
    old for this PyTorch. Then ``"auto"`` is the CPU, and a warning says so, unless several processes work together.
    Raises a ValueError if a device that was named is not there, or cannot train.
    """
    chosen = name
    if name == "auto":
        chosen = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    is_alone = "WORLD_SIZE" not in os.environ
    if chosen == "cuda" and not is_alone:
        chosen = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    try:
        _train_a_little(chosen)
    except (AssertionError, RuntimeError) as error:  # the former where PyTorch was built without CUDA
        problem = f"device is {chosen!r}, which this machine does not have, or cannot use: {error}".partition("\n")[0]
        if name != "auto" or not is_alone:
            raise ValueError(problem) from None
        warnings.warn(f"{problem}; the CPU takes its place", stacklevel=2)
        chosen = "cpu"
    return torch.device(chosen)


def _train_a_little(device: str) -> None:
    """Compute a matrix product, a softmax and their gradients; an error says that a device cannot."""
    x = torch.ones(2, 2, device=device, requires_grad=True)
    (x @ x).softmax(dim=-1).sum().backward()
    x.grad.tolist()  # until now, a GPU may not have begun


def seed_everything(seed: int, *numbers: int) -> None:
    """Seed the random numbers of Python, NumPy and torch, on all devices; with more numbers, as an epoch's, others."""
    if numbers:
        seed = random.Random(str((seed, *numbers))).getrandbits(32)  # no sum, which other pairs have too
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
