"""Translating in fewer bits than the 32 of the trained weights."""

import copy
import warnings

import torch
from torch import nn

PRECISIONS = ("float32", "bfloat16")
INFERENCE_PRECISIONS = (*PRECISIONS, "int8")


def half_precision(device: torch.device) -> torch.dtype:
    """Return bfloat16, or what is faster where a device only emulates it.

    A GPU older than NVIDIA's Ampere takes float16. A CPU without AVX512 (or ARM's SVE), as in many laptops, takes
    float32.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return torch.float16
    if device.type == "cpu" and not torch.backends.cpu.get_cpu_capability().startswith(("AVX512", "SVE")):
        return torch.float32
    return torch.bfloat16


def in_precision(model: nn.Module, precision: str) -> nn.Module:
    """Return a model to translate with, which computes nearly the same, faster: ``model`` itself if that is float32.

    With ``"int8"``, the weights of linear layers are rounded to 8 bits once, and their inputs each time (dynamic
    quantisation); the rest stays float32.

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
    with warnings.catch_warnings(), torch.device("cpu"):
        warnings.simplefilter("ignore")  # that it is to move
        return quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
