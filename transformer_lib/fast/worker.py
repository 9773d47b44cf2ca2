"""What computes a training's predictions and gradients, while the model itself stays as its author wrote it."""

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
    """Computes with a twin of a model that shares its weights, in mixed precision if that is wanted.

    In mixed precision (Micikevicius et al. 2018), matrices are multiplied in half precision; the weights stay in
    float32, where small steps are not rounded away. float16, unlike bfloat16, also rounds small gradients to zero, so
    there the loss is scaled up before they are computed, and they are scaled down after.

    Args:
        model: what learns.
        precision: ``"float32"`` or ``"bfloat16"``; on a GPU that is too old for it, that means float16.
        compile: let ``torch.compile`` make kernels for the layers of the twin.
        ids_are_known: all ids come from the model's own vocabularies. To check them would force a GPU sync.
    """

    def __init__(
        self, model: nn.Module, precision: str = "float32", compile: bool = False, ids_are_known: bool = False
    ):
        self.device = next(model.parameters()).device
        dtype = half_precision(self.device) if precision == "bfloat16" else None
        self.model, self.compile, self.ids_are_known = model, compile, ids_are_known
        self.make_twin()
        if compile:
            for module in self.twin.modules():
                if isinstance(module, EncoderLayer | DecoderLayer | nn.TransformerEncoderLayer):
                    module.compile(dynamic=True)  # all layers of a kind share their kernels
        self.autocast = (
            nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)
        )  # not on every device
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=dtype == torch.float16)

    def make_twin(self) -> None:
        """Make the twin of the model as it is now: settings such as a dropout's ``p`` are copies."""
        plain = self.compile and self.device.type == "cpu"  # torch.compile makes better kernels of the plain parts
        self.twin = twin(self.model, {} if plain else parts_for(self.device))
        if self.ids_are_known:
            self.twin.check_ids = lambda *ids: None

    def logits_and_targets(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Let the twin predict a batch; see ``training/loop.py``."""
        with self.autocast:
            return self.twin.logits_and_targets(*tensors)

    def backward(self, loss: Tensor) -> None:
        """Compute the model's gradients of ``loss``."""
        self.model.zero_grad()
        self.scaler.scale(loss).backward()

    def step(self, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Clip the norm of the gradients, let the optimizer update the model, and return the norm before.

        In float16, a step whose norm is infinite changes nothing but the scale.
        """
        self.scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
        self.scaler.step(optimizer)
        optimizer._opt_called = True  # unless it overflowed, for which a schedule would blame the caller
        self.scaler.update()
        return norm
