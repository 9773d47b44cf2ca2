"""Putting faster parts into a model from outside: a twin with the same weights, and other classes in some places."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from transformer_lib.fast.attention import CPUAttention, ReadableAttention, fused_attention_is_right
from transformer_lib.fast.dropout import CheapDropout
from transformer_lib.model.attention import MultiHeadAttention

ON_A_CPU: dict[type[nn.Module], type[nn.Module]] = {MultiHeadAttention: CPUAttention, nn.Dropout: CheapDropout}

_A_TWINS_OWN = {*vars(nn.Module()), "check_ids", "_compiled_call_impl", "_copied_from"}


def parts_for(device: torch.device) -> Mapping[type[nn.Module], type[nn.Module]]:
    """Return what ``twin`` is to exchange on a device."""
    if not fused_attention_is_right(device):
        return {MultiHeadAttention: ReadableAttention}
    return ON_A_CPU if device.type == "cpu" else {}


def twin(model: nn.Module, classes: Mapping[type[nn.Module], type[nn.Module]]) -> nn.Module:
    """Return a copy of a model that shares its parameters, buffers and hooks, with other classes for some modules.

    ``classes`` has, for each class, a subclass that computes the same with the same attributes. Only modules of exactly
    this class are exchanged, since a user's subclass may compute something else, and none inside of PyTorch's own
    layers, which look into their parts.
    """
    twins: dict[nn.Module, nn.Module] = {}

    def twin_of(module: nn.Module, classes: Mapping[type[nn.Module], type[nn.Module]]) -> nn.Module:
        module = vars(module)["_modules"].get("_orig_mod", module)  # what torch.compile has wrapped
        if module not in twins:  # one module may be in several places, such as a shared embedding
            twins[module] = copied = _copied(module)
            copied._copied_from = dict(vars(module))
            copied.__class__ = classes.get(type(module), type(module))
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                classes = {}
            copied._modules = {
                name: child if child is None else twin_of(child, classes) for name, child in module._modules.items()
            }
        return twins[module]

    return twin_of(model, classes)


def hand_back(copied: nn.Module, model: nn.Module) -> None:
    """Give a model the plain attributes that its twin's ``forward`` has set, such as a counter of steps."""
    twins = dict(copied.named_modules())
    for path, module in model.named_modules():
        if isinstance(its_twin := twins.get(path), type(module)):
            before = its_twin._copied_from
            for name, value in vars(its_twin).items():
                if name not in _A_TWINS_OWN and value is not before.get(name, before):
                    before[name] = value
                    # a tensor's graph would keep the batch in memory, and stop deepcopy
                    vars(module)[name] = value.detach() if isinstance(value, torch.Tensor) else value


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for as long as the block lasts; each of its modules gets its mode back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Lend a twin of a model in evaluation mode; the model itself gets its modes back.

    Until then, it is in evaluation mode too: a user's ``forward`` may reach a module of it by way of a plain list.
    """
    with evaluation_mode(model):
        copied = twin(model, parts_for(next(model.parameters()).device))
        yield copied
        hand_back(copied, model)


def with_modules(module: nn.Module, **replacements: nn.Module) -> nn.Module:
    """Return a copy of a module that shares all its weights, but has other modules in place of some."""
    copied = _copied(module)
    copied._modules = {**module._modules, **replacements}
    return copied


def _copied(module: nn.Module) -> nn.Module:
    """Return a shallow copy; ``copy.copy`` refuses a module with parametrizations, such as a weight norm."""
    copied = object.__new__(type(module))
    vars(copied).update(vars(module))
    return copied
