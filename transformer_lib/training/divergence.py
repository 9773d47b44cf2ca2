"""Noticing that a training has gone wrong: at which step, with which learning rate, on a batch of which size."""

import math

import torch
from torch import Tensor

ADVICE = "training has diverged; try a lower learning rate or a longer warm-up"
_STEPS_AT_ONCE = 100


class DivergenceWatch:
    """Looks at each step's loss and gradient, and stops the training at the first that is NaN or infinite.

    To read a number, Python waits until a GPU has done all that was asked of it, and meanwhile asks for nothing more.
    So what a GPU computes is looked at a hundred steps at a time; the message still names the first bad step.

    Args:
        device: where the training computes.
        skips_overflow: whether steps whose gradient is infinite change nothing, as in float16 with scaled gradients.

    Attributes:
        skipped_steps: how many of those seen so far changed nothing.
    """

    def __init__(self, device: torch.device, skips_overflow: bool = False):
        self.at_once = 1 if device.type == "cpu" else _STEPS_AT_ONCE
        self.skips_overflow = skips_overflow
        self.skipped_steps = 0
        self.steps = 0
        self.unseen: list[tuple[str, Tensor]] = []

    def step(self, loss: Tensor, norm: Tensor, learning_rate: float, batch: dict[str, Tensor]) -> None:
        """Take note of a step.

        Args:
            loss: a single number.
            norm: the gradient's, before it was clipped; a single number.
            learning_rate: the optimiser's.
            batch: what the step was computed from.

        Raises:
            FloatingPointError: this step's loss or gradient, or an earlier one's, is NaN or infinite.
        """
        self.steps += 1
        sizes = ", ".join(f"{name} {list(ids.shape)}" for name, ids in batch.items())
        where = f"step {self.steps} of the epoch (learning rate {learning_rate:.3g}, batch {sizes})"
        self.unseen.append((where, torch.stack([loss.detach().float(), norm.detach().float()])))
        if len(self.unseen) >= self.at_once:
            self.look()

    def look(self) -> None:
        """Look at the steps that nobody has looked at so far; to be called after the last one.

        Raises:
            FloatingPointError: as ``step``.
        """
        if not self.unseen:
            return
        numbers = torch.stack([pair for _, pair in self.unseen]).tolist()
        for (where, _), (loss, norm) in zip(self.unseen, numbers, strict=True):
            if not math.isfinite(loss):
                raise FloatingPointError(f"the training loss is {loss} in {where}: {ADVICE}")
            if not math.isfinite(norm):
                if not self.skips_overflow:
                    raise FloatingPointError(f"the gradient's norm is {norm} in {where}: {ADVICE}")
                self.skipped_steps += 1
        self.unseen.clear()
