"""Computes predictions and gradients in training, while the model itself stays as its author wrote it."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_lib.fast.precision import half_precision
from transformer_lib.fast.swap import parts_for, twin
from transformer_lib.model.decoder import DecoderLayer
from transformer_lib.model.encoder import EncoderLayer


class Worker:
    """Computes with a twin of a model that shares its weights (see ``swap.py``), in mixed precision if asked to.

    In mixed precision (Micikevicius et al. 2018), matrices are multiplied in half precision; the weights stay in
    float32, where small updates are not rounded away. float16, unlike bfloat16, also rounds small gradients to zero, so
    the loss is scaled up before the backward pass, and the gradients are scaled down after it.

    Args:
        precision: ``"float32"`` or ``"bfloat16"``, which is float16 or float32 on a device that only emulates it.
        compile: compile the twin's layers with ``torch.compile``.
        ids_are_known: all ids come from the model's own vocabularies. Checking them would force a GPU sync.
    """

    def __init__(
        self, model: nn.Module, precision: str = "float32", compile: bool = False, ids_are_known: bool = False
    ):
        self.model, self.device = model, next(model.parameters()).device
        self.compile, self.ids_are_known = compile, ids_are_known
        self.make_twin()
        if compile:
            for module in self.twin.modules():
                if isinstance(module, EncoderLayer | DecoderLayer | nn.TransformerEncoderLayer):
                    module.compile(dynamic=True)  # all layers of a kind share their kernels
        dtype = half_precision(self.device) if precision == "bfloat16" else torch.float32
        mixed = dtype != torch.float32
        self.autocast = torch.autocast(self.device.type, dtype) if mixed else nullcontext()  # some devices have none
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=dtype == torch.float16)

    def make_twin(self) -> None:
        """Make the twin of the model as it is now: it copies settings such as a dropout's ``p``."""
        plain = self.compile and self.device.type == "cpu"  # torch.compile makes better kernels of the plain parts
        self.twin = twin(self.model, {} if plain else parts_for(self.device))
        if self.ids_are_known:
            self.twin.check_ids = lambda *ids: None

    def logits_and_targets(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Run the twin on a batch; see ``training/loop.py``."""
        with self.autocast:
            return self.twin.logits_and_targets(*tensors)

    def backward(self, loss: Tensor) -> None:
        """Compute the model's gradients of ``loss``."""
        self.model.zero_grad()
        self.scaler.scale(loss).backward()

    def step(self, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Clip the gradients' norm, update the model, and return the norm before clipping.

        In float16, a step whose norm is not finite changes nothing but the scale.
        """
        self.scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
        self.scaler.step(optimizer)
        # If the first step overflows, the scaler skips it, and the schedule would warn that it moves before the
        # optimizer has. PyTorch has no public way to tell it that the step was skipped on purpose.
        optimizer._opt_called = True
        self.scaler.update()
        return norm
