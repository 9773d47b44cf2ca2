"""Models in one file that can be shared: weights, configuration, vocabularies and notes."""

import importlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer_lib.data.tokenizers import WordTokenizer, check_vocabularies, name_of
from transformer_lib.files import CheckpointError, open_tensors, replace_file

MODEL_FILE = "model.safetensors"
SHIPPED_MODEL = Path(__file__).parent / "multi30k_best.safetensors"  # in a wheel; in the repository, it is in assets/
if not SHIPPED_MODEL.is_file():
    SHIPPED_MODEL = Path(__file__).parent.parent / "assets" / SHIPPED_MODEL.name
MOST_BEAMS, MOST_LENGTH_PENALTY = 16, 10  # that a model's notes may ask for; ``translate`` itself takes more beams
_MOST_LAYERS = 256
_MODEL_FORMAT = "transformer_lib model, version 2"
_OURS = {  # what load_model knows already: imported by these names, never by a name in a file
    "Transformer": "transformer_lib.model.transformer",
    "TransformerLanguageModel": "transformer_lib.language_model.model",
    "FinalNormTransformer": "transformer_lib.interop.tutorials",
    "WordTokenizer": "transformer_lib.data.tokenizers",
    "SubwordTokenizer": "transformer_lib.data.subwords",
    "StreamTokenizer": "transformer_lib.language_model.stream",
}


class _Tokenizers(dict[str, WordTokenizer]):
    def __missing__(self, name: str) -> WordTokenizer:
        raise CheckpointError(f"the model was saved without the tokeniser {name!r}: pass it, or save it with the model")


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
        model: a ``Transformer`` or any other module that is built from its ``config`` alone.
        tokenizers: those that the model was trained with, as in the ``tokenizers`` of a data set.
        notes: anything that JSON can hold; ``corpus``, ``preset``, ``recipe``, ``history`` and ``search`` are what
            ``fit`` and ``train_translator`` write.
        dtype: the floating-point type of the weights in the file; by default, the model's.

    Raises:
        ValueError: ``load_model`` could not bring it back: the vocabularies are not the model's, its layers are not
            those that its class builds from its config, a weight is NaN or infinite, or a note is of another kind.
        TypeError: the model has no ``config``, or its class no ``config_class``.
        OSError: the file cannot be written.
    """
    config, expected = getattr(model, "config", None), getattr(type(model), "config_class", None)
    if type(config) is not expected:
        raise TypeError(
            f"model is a {type(model).__name__}, expected a module with a config, whose class has a config_class: "
            f"its config is a {type(config).__name__}, its config_class {expected}"
        )
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype is {dtype}, expected one that has fractions, such as torch.float16")
    check_vocabularies(config, tokenizers)
    check_structure(model)
    tensors = {
        name: tensor.to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
        for name, tensor in _tensors(model).items()
    }
    _check_finite(tensors)
    metadata = {
        "format": _MODEL_FORMAT,
        "model": _recorded_name(type(model)),
        "config": json.dumps(asdict(config)),
        "tokenizers": json.dumps({name: _describe_tokenizer(one) for name, one in tokenizers.items()}),
        "notes": json.dumps(_checked_notes(_from_json(json.dumps(notes or {})))),
    }
    replace_file(path, safetensors.torch.save(tensors, metadata))


def load_model(
    path: str | Path,
    *custom: type | Callable,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> SavedModel:
    """Read what ``save_model`` wrote. The file may come from anybody: it never runs code (see ``SECURITY.md``).

    Args:
        path: the file, or the folder that training wrote.
        custom: the classes and functions of your own that the model needs: its class, a tokeniser's class, or the
            function that a ``WordTokenizer`` splits sentences with.
        device, dtype: where to compute, and in which precision, whatever the file's is.

    Raises:
        FileNotFoundError, OSError: there is no such file, or it cannot be read.
        CheckpointError: it is not a complete model of this library, or needs something that is not in ``custom``.
        ValueError: there is no such device.
    """
    path = Path(path)
    if path.is_dir():
        path = path / MODEL_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: train a model first, with `transformer-lib train` (a translator) or "
            "`transformer-lib train-lm` (a language model)"
        )
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype is {dtype!r}, expected a torch.dtype, such as torch.float32")
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise ValueError(
            f"device is {str(device)!r}, expected one that this machine has: training.device.pick_device('auto') finds "
            "the best"
        ) from error
    with open_tensors(path) as file:
        try:
            saved = _read_model(file, {name_of(one): one for one in custom}, dtype)
        # ArithmeticError: a size that is too large for torch; RuntimeError: JSON that is nested too deeply
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            # of a stranger's file, a traceback would print names that are not clean
            cause = error if custom else None
            raise CheckpointError(f"{path} does not hold a model that fits together ({error})") from cause
    saved.model.to(device)
    return saved


def load_weights(path: str | Path, model: nn.Module) -> dict[str, Any]:
    """Load the weights that ``save_model`` wrote into a model of the same class and config, and return its own."""
    with open_tensors(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dictionary)
    if _shapes(tensors) != _shapes(_tensors(model)):
        raise CheckpointError(f"{path} holds another model's weights")
    model.load_state_dict(tensors, strict=False)  # a tied matrix has several names, of which the file holds one
    return model.state_dict()


def _read_model(file: safetensors.safe_open, custom: dict[str, Any], dtype: torch.dtype) -> SavedModel:
    """Build what a file describes; no tensor is read before its shape is known to be the model's."""
    metadata = file.metadata() or {}
    if metadata.get("format") != _MODEL_FORMAT:
        raise ValueError(
            f"its format is {metadata.get('format')!r}, expected {_MODEL_FORMAT!r}: another program or version wrote it"
        )
    model_class = _find(metadata["model"], "model", custom)
    config = model_class.config_class(**_from_json(metadata["config"]))
    described = _from_json(metadata["tokenizers"])
    tokenizers = _Tokenizers({name: _read_tokenizer(values, custom) for name, values in described.items()})
    notes = _checked_notes(_from_json(metadata["notes"]))
    check_vocabularies(config, tokenizers)
    shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no dictionary)
    _skeleton(model_class, config, shapes)
    with torch.device("cpu"):  # whatever the default device is
        model = model_class(config).to(dtype)
    model.load_state_dict({name: file.get_tensor(name) for name in shapes}, strict=False)  # see load_weights
    _check_finite(model.state_dict())
    return SavedModel(model.eval(), tokenizers, notes)


def _from_json(text: str) -> Any:
    """Read JSON, and raise a ValueError if a string in it holds half a character, which cannot be printed."""
    value = json.loads(text)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _recorded_name(cls: type) -> str:
    """Return a class's name, with its module unless it is ours: a reader's class may be called Transformer, too."""
    return cls.__name__ if _OURS.get(cls.__name__) == cls.__module__ else f"{cls.__module__}.{cls.__name__}"


def _describe_tokenizer(tokenizer: WordTokenizer) -> dict[str, Any]:
    """Return what a file says of a tokeniser; a ValueError if that does not bring it back."""
    values = {"class": _recorded_name(type(tokenizer)), **tokenizer.to_dict()}
    pieces = {name_of(piece): piece for piece in (type(tokenizer), tokenizer.tokenize) if piece}
    try:
        again = _read_tokenizer(_from_json(json.dumps(values)), pieces)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a {type(tokenizer).__name__} among the tokenizers could not be restored: {error}") from error
    if again.to_dict() != tokenizer.to_dict() or list(again.vocab.itos) != list(tokenizer.vocab.itos):
        raise ValueError(f"{type(tokenizer).__name__}.from_dict does not rebuild what to_dict describes")
    return values


def _read_tokenizer(values: dict[str, Any], custom: dict[str, Any]) -> WordTokenizer:
    """Build the tokeniser that ``_describe_tokenizer`` described."""
    tokenizer_class, options = _find(values.pop("class"), "tokenizer", custom), {}
    if "tokenize" in values:
        options["tokenize"] = _find(values.pop("tokenize"), "tokenizer's function", custom)
    return tokenizer_class.from_dict(values, **options)


def _find(name: str, what: str, custom: dict[str, Any]) -> Any:
    """Return the class or function that a file names, if it is this library's or in ``custom``."""
    if name in _OURS:
        return getattr(importlib.import_module(_OURS[name]), name)
    if (short := name.rpartition(".")[2]) in custom:
        return custom[short]
    raise ValueError(f"its {what} is {short}, which is not this library's: load_model(path, {short}) hands it over")


def _checked_notes(notes: Any) -> dict[str, Any]:
    """Return notes if those that the library itself reads are what it writes."""
    if not isinstance(notes, dict):
        raise ValueError(f"notes is a {type(notes).__name__}, expected a dictionary")
    for name, kind in {"corpus": str, "preset": str, "recipe": dict, "history": dict, "search": dict}.items():
        if not isinstance(notes.get(name, kind()), kind):
            raise ValueError(f"notes[{name!r}] is a {type(notes[name]).__name__}, expected a {kind.__name__}")
    search = {"beam_size": 1, "length_penalty": 0.0, **notes.get("search", {})}
    beam_size, penalty = search["beam_size"], search["length_penalty"]
    numbers = len(search) == 2 and type(beam_size) is int and type(penalty) in (int, float)
    if not (numbers and 1 <= beam_size <= MOST_BEAMS and 0 <= penalty <= MOST_LENGTH_PENALTY):
        raise ValueError(
            f"notes['search'] is {notes['search']}, expected a beam_size from 1 to {MOST_BEAMS} and a length_penalty "
            f"from 0 to {MOST_LENGTH_PENALTY}"
        )
    return notes


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers; one with several names comes once."""
    first_name: dict[Tensor, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: one.detach() for name, one in state.items() if first_name.setdefault(one, name) == name}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def _check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} is NaN or infinite somewhere in {tensor.dtype}: has training diverged?")


def _skeleton(model_class: type[nn.Module], config: Any, shapes: dict[str, list[int]]) -> nn.Module:
    """Build a model without memory for its weights, if its class allows that, and compare their shapes.

    Raises:
        ValueError: the shapes differ, or the configuration asks for too many layers or positions.
    """
    size, layers = sum(map(math.prod, shapes.values())), getattr(config, "num_layers", 1)
    if layers > _MOST_LAYERS:
        raise ValueError(f"num_layers is {layers:,}, expected at most {_MOST_LAYERS}")
    ours = _recorded_name(model_class) in _OURS  # a reader's own class may have no positions
    if ours and (table := config.max_len * config.d_model) > 2 * size + 2**18:  # sinusoids are computed, not stored
        raise ValueError(f"max_len is {config.max_len:,}, which takes {table:,} numbers, but all weights only {size:,}")
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("cpu"), _WithoutWeights():
                model = model_class(config)
        except (NotImplementedError, RuntimeError):
            if ours:
                raise
            model = model_class(config)  # its constructor reads numbers, which the meta device lacks
    expected = _shapes(_tensors(model))
    for name in sorted(expected | shapes):
        if (found := shapes.get(name)) != (wanted := expected.get(name)):
            raise ValueError(f"tensors differ, the first of them {name!r}: shape {found}, expected {wanted}")
    return model


class _WithoutWeights(TorchFunctionMode):
    """Parameters take no memory, since they are on the meta device. All else there would import PyTorch's compiler."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = (kwargs or {}) | ({"device": "meta"} if func is torch.empty else {})
        return (*args, *kwargs.values())[0] if func.__name__ == "normal_" else func(*args, **kwargs)


def check_structure(model: nn.Module) -> None:
    """Raise a ValueError unless a model is what its class builds from its config, so that loading brings it back."""
    config_class = type(model.config)
    try:
        config = config_class(**_from_json(json.dumps(asdict(model.config))))
        again = _skeleton(type(model), config, _shapes(_tensors(model)))
    except (AttributeError, KeyError, TypeError) as error:  # JSON makes a dictionary of a dataclass in it, for example
        raise ValueError(f"{config_class.__name__} is not the same when it comes back from JSON ({error})") from error
    built = dict(again.named_modules())
    theirs = {name: _kind(module, {*vars(module)}) for name, module in built.items()}
    mine = {name: _kind(module, {*vars(built.get(name, module))}) for name, module in model.named_modules()}
    for name in mine | theirs:
        if mine.get(name) != theirs.get(name):
            raise ValueError(
                f"{name} is {mine.get(name)}, but {type(model).__name__} makes {theirs.get(name)} of its config: write "
                "a subclass that builds what you have replaced, so that load_model can build it again"
            )


def _kind(module: nn.Module, settings: set[str]) -> str:
    """Describe a module by its class and its ``settings``, such as ``num_heads``, except for dropout's probability."""
    kind = type(module)
    known = kind.__module__.startswith(("torch.", "transformer_lib."))  # in a reader's class, they may be counters
    names = [
        name for name in vars(module) if known and name[0] != "_" and name in settings - {"training", "p", "dropout"}
    ]
    plain = {name: v for name in names if type(v := getattr(module, name)) in (int, float, bool, str)}
    if (activation := getattr(module, "activation", None)) and "activation" not in plain:
        plain["activation"] = getattr(activation, "__name__", type(activation).__name__)
    return f"{kind.__qualname__}({', '.join(f'{name}={value}' for name, value in plain.items())})"
