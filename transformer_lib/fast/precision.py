"""Fewer bits: half of them compute while all of them learn (Micikevicius et al. 2018), or a quarter translates."""

import copy
import warnings

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_lib.model.decoder import DecoderLayer
from transformer_lib.model.encoder import EncoderLayer
from transformer_lib.training import distributed
from transformer_lib.training.recipe import PRECISIONS

INFERENCE_PRECISIONS = (*PRECISIONS, "int8")


class MixedPrecision:
    """Computes with a copy of a model in half precision, and learns in the model itself.

    A step is often too small for a half-precision weight: added to it, it would be rounded away. So the copy's
    gradients are brought to the model, the optimiser's steps are added up there, and the copy is made equal to the
    model again. In float32 there is no copy. float16, unlike bfloat16, also rounds small gradients to zero; there, the
    loss is scaled up before they are computed, and they are scaled down after.

    Args:
        model: what learns.
        precision: ``"float32"`` or ``"bfloat16"``; see ``Recipe``.
        compile: let ``torch.compile`` make kernels for the layers; see ``Recipe``.

    Attributes:
        worker: what computes: the copy, or the model itself. If it is compiled, the model itself never is.
    """

    def __init__(self, model: nn.Module, precision: str = "float32", compile: bool = False):
        device = next(model.parameters()).device
        dtype = half_precision(device) if precision == "bfloat16" else None
        self.model = model
        self.worker = model
        if dtype is not None:
            self.worker = copy.deepcopy(model).to(dtype)
        elif compile:  # other modules with the same parameters
            self.worker = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
        if compile:
            for module in self.worker.modules():
                if isinstance(module, EncoderLayer | DecoderLayer | nn.TransformerEncoderLayer):
                    module.compile(dynamic=True)  # all layers of a kind share their kernels
        self.pairs = [] if dtype is None else list(zip(model.parameters(), self.worker.parameters(), strict=True))
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)

    def backward(self, loss: Tensor) -> None:
        """Compute the model's gradients of ``loss``, or of the sum of all processes' (see ``parallel``)."""
        self.worker.zero_grad()
        self.scaler.scale(loss).backward()
        for weights, working in self.pairs:
            weights.grad = None if working.grad is None else working.grad.to(weights.dtype)  # None if frozen
        distributed.add_gradients(self.model.parameters())

    def step(self, optimizer: Optimizer, clip: float) -> Tensor:
        """Clip the norm of the gradients, and let the optimiser update the model.

        Returns:
            The norm before. In float16, a step whose norm is infinite has changed nothing but the scale.
        """
        self.scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.scaler.step(optimizer)
        self.scaler.update()
        with torch.no_grad():
            for weights, working in self.pairs:
                working.copy_(weights)
        return norm


def half_precision(device: torch.device) -> torch.dtype:
    """Return bfloat16, or float16 for a GPU that is older than bfloat16 (before NVIDIA's Ampere)."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return torch.float16
    return torch.bfloat16


def in_precision(model: nn.Module, precision: str) -> nn.Module:
    """Return a model to translate with, which computes nearly the same, faster: ``model`` itself if that is float32.

    With ``"int8"``, the weights of linear layers are rounded to 8 bits once, and what they are multiplied by each time
    (dynamic quantisation, which PyTorch has for CPUs); the rest stays float32.

    Args:
        model: in float32 and evaluation mode.
        precision: one of ``INFERENCE_PRECISIONS``.

    Raises:
        ValueError: there is no such precision, or not on this device or in this version of PyTorch.
    """
    device = next(model.parameters()).device
    if precision not in INFERENCE_PRECISIONS:
        raise ValueError(f"precision is {precision!r}, expected one of {', '.join(INFERENCE_PRECISIONS)}")
    if precision == "float32":
        return model
    if precision == "bfloat16":
        return copy.deepcopy(model).to(half_precision(device))
    if device.type != "cpu":
        raise ValueError(f"precision is 'int8', which PyTorch quantises to on a CPU only, but the device is {device}")
    try:
        from torch.ao.quantization import quantize_dynamic  # to move to torchao one day, another dependency
    except ImportError:
        raise ValueError(f"precision is 'int8', but PyTorch {torch.__version__} has no torch.ao.quantization") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is to move
        return quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
