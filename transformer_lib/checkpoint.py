"""Models in one file that can be shared: weights, configuration, vocabularies and notes."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.files import CheckpointError, replacing
from transformer_lib.model.transformer import Transformer

MODEL_FILE = "model.safetensors"
SHIPPED_MODEL = Path(__file__).parent / "multi30k_best.safetensors"  # in a wheel; in the repository, it is in assets/
if not SHIPPED_MODEL.is_file():
    SHIPPED_MODEL = Path(__file__).parent.parent / "assets" / SHIPPED_MODEL.name
_FORMAT = "transformer_lib model, version 2"
Tokenizers = Mapping[str, WordTokenizer]
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
    if type(config := model.config) is not type(model).config_class:  # of which load_model will build it
        raise TypeError(f"config is a {type(config).__name__}, expected a {type(model).config_class.__name__}")
    check_vocabularies(config, tokenizers)
    _check_weights(model)
    described = {name: {"class": _name(type(each)), **each.to_dict()} for name, each in tokenizers.items()}
    parts = {"config": asdict(config), "tokenizers": described, "notes": notes or {}}
    return {"format": _FORMAT, "model": _name(type(model)), **{name: json.dumps(part) for name, part in parts.items()}}


def check_class(model: nn.Module, needed: str) -> None:
    """Raise a TypeError if a model's class lacks something, as that of a wrapper around the model does."""
    if needed not in vars(model) and not hasattr(type(model), needed):
        hint = "is it a wrapper? Hand over the model in it; model.compile() compiles a model in place"
        raise TypeError(f"model is a {type(model).__name__}, which has no {needed}: {hint}")


def _check_weights(model: nn.Module) -> None:
    """Raise a ValueError if a model has other weights than its class makes of its ``config``, as load_model will."""
    kind = type(model)
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                rebuilt = kind(model.config)
        except Exception:  # it looks at numbers while it is built, of which there are none
            rebuilt = kind(model.config)
    try:
        if len([*rebuilt.parameters()]) != len([*model.parameters()]):
            raise RuntimeError("weights were added, removed, tied or untied")
        rebuilt.load_state_dict(model.state_dict(), assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        advice = "merge what was added (LoRA, pruning), or replace parts in the __init__ of a subclass"
        raise ValueError(
            f"{kind.__name__}(config) would not make this model's weights: {advice} ({reason:.200})"
        ) from None


def load_model(path: str | Path, *custom: type, device: torch.device | str = "cpu") -> SavedModel:
    """Read what ``save_model`` wrote. The file may come from anybody: it never runs code (see ``SECURITY.md``).

    Args:
        path: the file, or the folder that training wrote.
        custom: the classes of your own that the model needs: its class, a tokeniser's class.
        device: where to compute; in float32, whatever the file's precision is.

    Raises a FileNotFoundError, or a CheckpointError if it is no complete model, or needs what is not in ``custom``.
    """
    path = Path(path) / MODEL_FILE if Path(path).is_dir() else Path(path)
    open(path, "rb").close()  # an OSError says why it cannot be read; safetensors would say that it does not exist
    known = {item.__name__: item for item in custom}
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
        if metadata.get("format") != _FORMAT:
            raise ValueError(f"its format is {metadata.get('format')!r}, expected {_FORMAT!r}")
        model_class = _find(metadata["model"], known)
        config = model_class.config_class(**json.loads(metadata["config"]))
        _check_size(config, path.stat().st_size)
        tokenizers = {}
        for name, values in json.loads(metadata["tokenizers"]).items():
            tokenizers[name] = _find(values.pop("class"), known).from_dict(values)
        check_vocabularies(config, tokenizers)
        notes = dict(json.loads(metadata["notes"]))
        model = model_class(config).float()
        safetensors.torch.load_model(model, path)  # names and shapes must be the model's
    except (ArithmeticError, AttributeError, KeyError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not hold a model that fits together ({error})") from None
    return SavedModel(model.to(device).eval(), tokenizers, notes)


def _check_size(config: Any, file_size: int) -> None:
    """Raise a ValueError if a configuration asks for far more numbers than its file has bytes, before they are made."""
    layers, d_model, d_ff, max_len = (getattr(config, x, 0) for x in ("num_layers", "d_model", "d_ff", "max_len"))
    vocabularies = sum(value for name, value in vars(config).items() if name.endswith("vocab_size"))
    needed = d_model * (vocabularies + layers * (d_model + d_ff) + max_len) + 4096 * layers  # a layer takes time, too
    if needed > file_size + 2**24:
        raise ValueError(f"its configuration needs at least {needed:,} numbers, but the file has {file_size:,} bytes")


def _name(cls: type) -> str:
    """Return a class's name, with its module unless it is ours: a reader's class may be called Transformer, too."""
    return cls.__name__ if cls in _OURS.values() else f"{cls.__module__}.{cls.__name__}"


def _find(name: str, custom: dict[str, Any]) -> Any:
    """Return the class that a file names, if it is this library's or was handed over."""
    known, short = _OURS if name in _OURS else custom, name.rpartition(".")[2]
    if short not in known:
        raise ValueError(f"it needs {short}, which is not this library's: load_model(path, {short}) hands it over")
    return known[short]
