"""What computes a training's losses and gradients, while the model itself stays as its author wrote it."""

import copy

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_lib.fast.precision import half_precision
from transformer_lib.fast.swap import ON_A_CPU, twin, with_modules
from transformer_lib.model.decoder import DecoderLayer
from transformer_lib.model.encoder import EncoderLayer
from transformer_lib.model.transformer import Transformer

# classes whose logits are ``output(…)`` as long as a subclass overrides none of these methods
ENDS_IN_OUTPUT: dict[type[nn.Module], tuple[str, ...]] = {Transformer: ("forward", "decode", "logits_and_targets")}


class Worker:
    """Computes with a twin of a model, in half precision if that is wanted; the model itself learns.

    A step is often too small for a half-precision weight: added to it, it would be rounded away. So the twin's
    gradients are brought to the model, the optimizer's steps are added up there, and the twin is made equal to the
    model again (mixed precision, Micikevicius et al. 2018). In float32 both share their weights. float16, unlike
    bfloat16, also rounds small gradients to zero; there, the loss is scaled up before they are computed, and they are
    scaled down after.

    Args:
        model: what learns.
        precision: ``"float32"`` or ``"bfloat16"``; see ``Recipe``.
        compile: let ``torch.compile`` make kernels for the layers; see ``Recipe``.
        ids_are_known: all ids come from the model's own vocabularies, so that none needs to be checked, which forces a
            GPU sync.

    Attributes:
        twin: what computes. If it is compiled, the model itself never is.
    """

    def __init__(
        self, model: nn.Module, precision: str = "float32", compile: bool = False, ids_are_known: bool = False
    ):
        device = next(model.parameters()).device
        dtype = half_precision(device) if precision == "bfloat16" else None
        self.model = model
        computing = model if dtype is None else copy.deepcopy(model).to(dtype)
        self.twin = twin(computing, ON_A_CPU if device.type == "cpu" and not compile else {})
        if ids_are_known:
            self.twin.check_ids = lambda *ids: None
        if compile:
            for module in self.twin.modules():
                if isinstance(module, EncoderLayer | DecoderLayer | nn.TransformerEncoderLayer):
                    module.compile(dynamic=True)  # all layers of a kind share their kernels
        self.without_output = with_modules(self.twin, output=nn.Identity()) if ends_in_output(model) else None
        self.pairs = [] if dtype is None else list(zip(model.parameters(), self.twin.parameters(), strict=True))
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)

    def backward(self, loss: Tensor) -> None:
        """Compute the model's gradients of ``loss``."""
        self.twin.zero_grad()
        self.scaler.scale(loss).backward()
        for weights, working in self.pairs:
            weights.grad = None if working.grad is None else working.grad.to(weights.dtype)  # None if frozen

    def step(self, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Clip the norm of the gradients, and let the optimizer update the model.

        Returns:
            The norm before. In float16, a step whose norm is infinite has changed nothing but the scale.
        """
        self.scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
        self.scaler.step(optimizer)
        self.scaler.update()
        with torch.no_grad():
            for weights, working in self.pairs:
                working.copy_(weights)
        return norm


def ends_in_output(model: nn.Module) -> bool:
    """Say whether a model's logits are what its ``output``, a linear layer, returns, and nothing comes after it."""
    return type(getattr(model, "output", None)) is nn.Linear and any(
        isinstance(model, known) and all(getattr(type(model), name) is getattr(known, name) for name in methods)
        for known, methods in ENDS_IN_OUTPUT.items()
    )
