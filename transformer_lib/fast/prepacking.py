"""Matrices laid out once, the way in which a CPU multiplies by them."""

import copy
from functools import partial

import torch
from torch import Tensor, nn

# of oneDNN, which PyTorch calls by its old name; private, so another version may lack them
_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise")

LARGE = 2**19  # weights, 2 MB in float32; smaller matrices are soon laid out


def prepack(model: nn.Module) -> nn.Module:
    """Return a twin of a model that multiplies by large matrices faster on a CPU.

    Before a CPU multiplies by a matrix, it copies the matrix into blocks of the size of its registers and caches, anew
    each time. If the matrix is large and is to be multiplied by a few rows, that takes as long as multiplying. The twin
    has such a copy of the weights of each large linear layer, made once (*weight prepacking*, which PyTorch's compiler
    does for models that no longer learn). So it rounds a little differently. All else, hooks too, is the model's own.

    Args:
        model: in evaluation mode. The twin does not see it when its weights change.

    Returns:
        The twin, for inference only; or the model itself where there is nothing to gain: without a large linear
        layer, on a GPU or a processor without AVX-512, in float64 or int8, under autocast, or without oneDNN, which
        PyTorch does this with.
    """
    children = {name: child if child is None else prepack(child) for name, child in model._modules.items()}
    packable = type(model) is nn.Linear and _can_be_packed(model.weight)
    if not packable and children == model._modules:
        return model
    twin = copy.copy(model)
    twin._modules = children
    if packable:
        weight = torch.ops.mkldnn._reorder_linear_weight(model.weight.detach())
        twin.forward = partial(_multiply, weight=weight, bias=model.bias)
    return twin


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _can_be_packed(weight: Tensor) -> bool:
    return (
        weight.numel() >= LARGE
        and weight.device.type == "cpu"
        and weight.dtype in (torch.float32, torch.bfloat16)
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkldnn.enabled
        and torch.backends.cpu.get_cpu_capability() == "AVX512"  # with AVX2 alone, it gained nothing
        and all(hasattr(torch.ops.mkldnn, name) for name in _OPERATIONS)
    )
