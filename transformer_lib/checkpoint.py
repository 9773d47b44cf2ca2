"""Models in one file that can be shared: weights, configuration, vocabularies and notes."""

import json
import math
from collections.abc import Container, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import safe_open
from torch import nn
from torch.overrides import TorchFunctionMode

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.files import CheckpointError, replacing, shipped
from transformer_lib.model.transformer import Transformer

MODEL_FILE = "model.safetensors"
SHIPPED_MODEL = shipped("assets/multi30k_best.safetensors")
_FORMAT = "transformer_lib model, version 2"
Tokenizers = Mapping[str, WordTokenizer]
_LAYERS = 32  # that a model may have although its file has fewer tensors: they may be a class's own, and share them
_COMPUTED = 2**22  # numbers of positions that it may have although its file has none: sinusoids
_OURS: dict[str, type] = {}  # the library's own classes, which a file names without their module


def saved(cls: type) -> type:
    """Let files name one of this library's classes: a decorator."""
    return _OURS.setdefault(cls.__name__, cls)


for _cls in (Transformer, WordTokenizer, SubwordTokenizer):  # those that are below; others use the decorator
    saved(_cls)


class SavedModel(NamedTuple):
    """What ``load_model`` returns. The tokenisers are ``src`` and ``tgt``, or ``text`` for a language model."""

    model: nn.Module
    tokenizers: dict[str, WordTokenizer]
    notes: dict[str, Any]


def save_model(path: str | Path, model: nn.Module, tokenizers: Tokenizers, notes: dict[str, Any] | None = None) -> None:
    """Write weights, configuration and vocabularies to one safetensors file, or leave what was there untouched.

    The model is a ``Transformer``, or any module that its class builds of its ``config`` alone; ``tokenizers`` are its
    data set's, and ``notes`` anything that JSON can hold. Raises an OSError, or errors as ``describe_model``.
    """
    metadata = describe_model(model, tokenizers, notes)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        safetensors.torch.save_model(model, str(temporary), metadata)


def describe_model(model: nn.Module, tokenizers: Tokenizers, notes: dict[str, Any] | None = None) -> dict[str, str]:
    """Return what a file says of a model besides its weights, or raise an error if it could not be loaded again."""
    check_class(model, "config_class")
    config = model.config
    if type(config) is not type(model).config_class:  # of which load_model will build it
        raise TypeError(f"config is a {type(config).__name__}, expected a {type(model).config_class.__name__}")
    check_vocabularies(config, tokenizers)
    _check_shapes(type(model), config, _shapes(model))
    described = {name: {"class": _name(type(each)), **each.to_dict()} for name, each in tokenizers.items()}
    return {
        "format": _FORMAT,
        "model": _name(type(model)),
        "config": json.dumps(asdict(config)),
        "tokenizers": json.dumps(described),
        "notes": json.dumps(notes or {}),
    }


def check_class(model: nn.Module, needed: str) -> None:
    """Raise a TypeError if a model's class lacks something, as that of a wrapper around the model does."""
    if needed not in getattr(model, "__dict__", {}) and not hasattr(type(model), needed):
        hint = "is it a wrapper? Hand over the model in it; model.compile() compiles a model in place"
        raise TypeError(f"model is a {type(model).__name__}, which has no {needed}: {hint}")


def load_model(path: str | Path, *custom: type, device: torch.device | str = "cpu") -> SavedModel:
    """Read what ``save_model`` wrote. The file may come from anybody: it never runs code (see ``SECURITY.md``).

    Args:
        path: the file, or the folder that training wrote.
        custom: the classes of your own that the model needs: its class, a tokeniser's class.
        device: where to compute; in float32, whatever the file's precision is.

    Raises a FileNotFoundError, or a CheckpointError if it is no complete model, or needs what is not in ``custom``.
    Names and shapes are compared before the model is made, unless a class of your own needs numbers to be built.
    """
    path = Path(path) / MODEL_FILE if Path(path).is_dir() else Path(path)
    open(path, "rb").close()  # an OSError says why it cannot be read; safetensors would say that it does not exist
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        if metadata.get("format") != _FORMAT:
            raise ValueError(f"its format is {metadata.get('format')!r}, expected {_FORMAT!r}")
        model_class = _find(metadata["model"], custom)
        config = model_class.config_class(**json.loads(metadata["config"]))
        tokenizers = {}
        for name, values in json.loads(metadata["tokenizers"]).items():
            tokenizers[name] = _find(values.pop("class"), custom).from_dict(values)
        check_vocabularies(config, tokenizers)
        notes = dict(json.loads(metadata["notes"]))
        _check_shapes(model_class, config, shapes)
        model = model_class(config).float()
        safetensors.torch.load_model(model, path)
    except Exception as error:  # whatever a stranger's values make of it
        raise CheckpointError(f"{path} does not hold a model that fits together ({error})") from None
    return SavedModel(model.to(device).eval(), tokenizers, notes)


def _check_shapes(model_class: Any, config: Any, shapes: Mapping[str, list[int]]) -> None:
    """Raise a ValueError unless a class makes exactly these tensors of a configuration, before any number is made."""
    layers = getattr(config, "num_layers", 0)
    table = getattr(config, "max_len", 0) * getattr(config, "d_model", 0)
    stored = sum(map(math.prod, shapes.values()))
    if layers > max(_LAYERS, len(shapes)) or table > stored + _COMPUTED:
        raise ValueError(f"its {layers:,} layers and {table:,} numbers of positions are more than the file could hold")
    model = _without_numbers(model_class, config)
    expected = _shapes(model, shapes)
    for name in sorted({*expected, *shapes}):
        if shapes.get(name) != expected.get(name):
            raise ValueError(
                f"{model_class.__name__}(config) would not make this model's weights: merge what was added (LoRA, "
                "pruning), or replace parts in the __init__ of a subclass. "
                f"Its {name} is {shapes.get(name)}, expected {expected.get(name)}"
            )


def _shapes(model: nn.Module, stored: Container[str] = ()) -> dict[str, list[int]]:
    """Return the shapes of a model's tensors; one that is shared has one of its names, that which is ``stored``."""
    tensors = model.state_dict(keep_vars=True)
    names = {id(tensors[name]): name for name in sorted(tensors, key=stored.__contains__)}
    return {name: list(tensors[name].shape) for name in names.values()}


class _WithoutNumbers(TorchFunctionMode):
    """In this context, weights have shapes and no numbers: layers make them by ``torch.empty``, and nothing is drawn.

    Positions that are computed have their numbers. (On the meta device, PyTorch would load its compiler for both.)
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        if function is torch.empty:
            kwargs["device"] = "meta"
        return function(*args, **kwargs)


def _without_numbers(model_class: Any, config: Any) -> nn.Module:
    """Build a model without its weights' numbers; or, if it is of a reader's class that needs them, with all."""
    with torch.random.fork_rng(devices=[]):
        try:
            with _WithoutNumbers():
                return model_class(config)
        except (RuntimeError, TypeError) as error:
            if model_class in _OURS.values() or "meta" not in str(error).lower():
                raise
        return model_class(config)


def _name(cls: type) -> str:
    """Return a class's name, with its module unless it is ours: a reader's class may be called Transformer, too."""
    return cls.__name__ if cls in _OURS.values() else f"{cls.__module__}.{cls.__name__}"


def _find(name: str, custom: tuple[type, ...]) -> Any:
    """Return the class that a file names, if it is this library's or was handed over."""
    if name in _OURS:
        return _OURS[name]
    short = name.rpartition(".")[2]
    for cls in custom:
        if cls.__name__ == short:
            return cls
    raise ValueError(f"it needs {short}, which is not this library's: load_model(path, {short}) hands it over")
