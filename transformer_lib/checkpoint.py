"""Models in one file that can be shared: weights, configuration, vocabularies and notes."""

import contextlib
import copy
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import nn

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies
from transformer_lib.files import CheckpointError, replacing
from transformer_lib.language_model.model import TransformerLanguageModel
from transformer_lib.language_model.stream import StreamTokenizer
from transformer_lib.model.transformer import Transformer

MODEL_FILE = "model.safetensors"
SHIPPED_MODEL = Path(__file__).parent / "multi30k_best.safetensors"  # in a wheel; in the repository, it is in assets/
if not SHIPPED_MODEL.is_file():
    SHIPPED_MODEL = Path(__file__).parent.parent / "assets" / SHIPPED_MODEL.name
_FORMAT = "transformer_lib model, version 2"
_CLASSES = (Transformer, TransformerLanguageModel, WordTokenizer, SubwordTokenizer, StreamTokenizer)
_NOTES = {"corpus": str, "preset": str, "recipe": dict, "history": dict, "search": dict}  # what the library reads


class SavedModel(NamedTuple):
    """What ``load_model`` returns.

    Attributes:
        model: in evaluation mode.
        tokenizers: those that it was saved with: ``src`` and ``tgt``, or ``text`` for a language model.
        notes: whatever was saved with it.
    """

    model: nn.Module
    tokenizers: dict[str, WordTokenizer]
    notes: dict[str, Any]


def save_model(
    path: str | Path,
    model: nn.Module,
    tokenizers: Mapping[str, WordTokenizer],
    notes: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write weights, configuration and vocabularies to one safetensors file, or leave what was there untouched.

    Args:
        path: the file.
        model: a ``Transformer``, or any other module that its class builds of its ``config`` alone.
        tokenizers: those that the model was trained with, as in the ``tokenizers`` of a data set.
        notes: anything that JSON can hold; ``corpus``, ``preset``, ``recipe``, ``history`` and ``search`` are what
            ``fit`` and ``train_translator`` write.
        dtype: the floating-point type of the weights in the file; by default, the model's.

    Raises:
        ValueError, TypeError: see ``describe_model``.
        OSError: the file cannot be written.
    """
    metadata = describe_model(model, tokenizers, notes)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if dtype is not None:
        model = copy.deepcopy(model).to(dtype)
    with replacing(path) as temporary:
        safetensors.torch.save_model(model, str(temporary), metadata)


def describe_model(
    model: nn.Module, tokenizers: Mapping[str, WordTokenizer], notes: dict[str, Any] | None = None
) -> dict[str, str]:
    """Return what a file says of a model besides its weights; arguments as in ``save_model``.

    Raises:
        ValueError: the vocabularies are not the model's.
        TypeError: the model has no ``config`` of its class's ``config_class``, or the notes are not JSON.
    """
    config, config_class = getattr(model, "config", None), getattr(type(model), "config_class", None)
    if config_class is None or type(config) is not config_class:
        raise TypeError(
            f"model is a {type(model).__name__}, expected a module with a config, whose class has a config_class: "
            f"its config is a {type(config).__name__}, its config_class {config_class}"
        )
    check_vocabularies(config, tokenizers)
    described = {
        name: {"class": _recorded_name(type(tokenizer)), **tokenizer.to_dict()}
        for name, tokenizer in tokenizers.items()
    }
    return {
        "format": _FORMAT,
        "model": _recorded_name(type(model)),
        "config": json.dumps(asdict(config)),
        "tokenizers": json.dumps(described),
        "notes": json.dumps(notes or {}),
    }


def load_model(path: str | Path, *custom: type, device: torch.device | str = "cpu") -> SavedModel:
    """Read what ``save_model`` wrote. The file may come from anybody: it never runs code (see ``SECURITY.md``).

    Args:
        path: the file, or the folder that training wrote.
        custom: the classes of your own that the model needs: its class, a tokeniser's class.
        device: where to compute; in float32, whatever the file's precision is.

    Raises:
        FileNotFoundError, OSError: there is no such file, or it cannot be read.
        CheckpointError: it is not a complete model of this library, or needs something that is not in ``custom``.
    """
    path = Path(path) / MODEL_FILE if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: train a model first, with `transformer-lib train` (a translator) or "
            "`transformer-lib train-lm` (a language model)"
        )
    known = {item.__name__: item for item in custom}
    with _explained(path):
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            sizes = [math.prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118 (no dict)
        if metadata.get("format") != _FORMAT:
            raise ValueError(
                f"its format is {metadata.get('format')!r}, expected {_FORMAT!r}: another program wrote it"
            )
        model_class = _find(metadata["model"], known)
        config = model_class.config_class(**json.loads(metadata["config"]))
        descriptions = json.loads(metadata["tokenizers"])
        tokenizers = {name: _read_tokenizer(values, known) for name, values in descriptions.items()}
        check_vocabularies(config, tokenizers)
        notes = json.loads(metadata["notes"])
        for name, kind in _NOTES.items():
            if not isinstance(notes.get(name, kind()), kind):
                raise ValueError(f"notes[{name!r}] is a {type(notes[name]).__name__}, expected a {kind.__name__}")
        _check_size(config, sizes)
        with torch.device("cpu"):  # whatever the default device is
            model = model_class(config).float()
        safetensors.torch.load_model(model, path)  # names and shapes must be the model's
    return SavedModel(model.to(device).eval(), tokenizers, notes)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn whatever a file that does not fit together makes parsers and constructors raise into a CheckpointError."""
    open(path, "rb").close()  # safetensors would say that a file without read permission does not exist
    try:
        yield
    except (ArithmeticError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not hold a model that fits together ({error})") from None
    except safetensors.SafetensorError as error:
        if zipfile.is_zipfile(path):
            raise CheckpointError(
                f"{path} is a file of torch.save: save_model writes what can be loaded here, and "
                "interop.tutorials.from_tutorial takes the weights of well-known tutorials (see book/from_tutorials.md)"
            ) from None
        raise CheckpointError(f"{path} is not a complete safetensors file ({error})") from None


def _check_size(config: Any, sizes: list[int]) -> None:
    """Raise a ValueError if a configuration asks for far more than its file holds: it would take memory, and time.

    ``sizes`` are the numbers of numbers in each of its tensors.
    """
    layers, d_model, d_ff, max_len = (getattr(config, x, 0) for x in ("num_layers", "d_model", "d_ff", "max_len"))
    vocabularies = sum(value for name, value in vars(config).items() if name.endswith("vocab_size"))
    needed = d_model * (vocabularies + layers * (d_model + d_ff) + max_len)
    if layers > 256 + len(sizes) or needed > 4 * sum(sizes) + 2**20:  # sinusoids are computed, and a class may share
        raise ValueError(
            f"num_layers is {layers:,}, and the configuration needs at least {needed:,} numbers, but the file holds "
            f"{sum(sizes):,} in {len(sizes):,} tensors"
        )


def _recorded_name(cls: type) -> str:
    """Return a class's name, with its module unless it is ours: a reader's class may be called Transformer, too."""
    return cls.__name__ if cls in _CLASSES else f"{cls.__module__}.{cls.__name__}"


def _read_tokenizer(values: dict[str, Any], known: dict[str, Any]) -> WordTokenizer:
    return _find(values.pop("class"), known).from_dict(values)


def _find(name: str, known: dict[str, Any]) -> Any:
    """Return the class that a file names, if it is this library's or was handed over."""
    ours = {cls.__name__: cls for cls in _CLASSES}
    if name in ours:
        return ours[name]
    if (short := name.rpartition(".")[2]) in known:
        return known[short]
    raise ValueError(f"it needs {short}, which is not this library's: load_model(path, {short}) hands it over")
