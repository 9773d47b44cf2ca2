"""What is kept on disk: one-file models that can be shared, and the state that a training resumes from."""

import contextlib
import glob
import io
import json
import math
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch

from transformer_lib.data.subwords import SubwordField
from transformer_lib.data.tokenizers import RunningTextField, TextField
from transformer_lib.language_model.model import LanguageModelConfig, TransformerLanguageModel
from transformer_lib.model.config import Configuration, TransformerConfig
from transformer_lib.model.transformer import Transformer

MODEL_FILE = "model.safetensors"
STATE_FILE = "training_state.pt"
SHIPPED_MODEL = Path(__file__).parent / "multi30k_best.safetensors"  # in a wheel; in the repository, it lies in assets/
if not SHIPPED_MODEL.is_file():
    SHIPPED_MODEL = Path(__file__).parent.parent / "assets" / SHIPPED_MODEL.name
MOST_BEAMS, MOST_ALPHA = 16, 10  # that a model's notes may ask for; who wants more can say so to translate
_MOST_LAYERS = 256
_STATE_FORMAT = "transformer_lib training state, version 1"


Model = Transformer | TransformerLanguageModel


class _Kind(NamedTuple):
    """What there is to know about the files of one class of models."""

    format: str
    config_class: type[Configuration]
    fields: dict[str, type[TextField]]


_KINDS = {
    Transformer: _Kind("transformer_lib model, version 1", TransformerConfig, {"src": TextField, "tgt": TextField}),
    TransformerLanguageModel: _Kind(
        "transformer_lib language model, version 1", LanguageModelConfig, {"text": RunningTextField}
    ),
}


class CheckpointError(RuntimeError):
    """A file does not hold what it should. The message says which file, and why."""


class SavedModel(NamedTuple):
    """What ``load_model`` returns.

    Attributes:
        model: in evaluation mode; a ``Transformer`` or a ``TransformerLanguageModel``.
        fields: tokenisers and vocabularies that belong to it: ``src`` and ``tgt``, or, for a language model, ``text``.
        notes: what whoever saved it wrote down.
    """

    model: Model
    fields: dict[str, TextField]
    notes: dict[str, Any]


def save_model(
    path: str | Path,
    model: Model,
    fields: Mapping[str, TextField],
    notes: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write weights, configuration and vocabularies to one safetensors file, or leave what was there untouched.

    Args:
        path: the file.
        model: what to save.
        fields: the fields whose vocabularies the model was trained with, as in the ``fields`` of a data set.
        notes: anything worth knowing that JSON can hold. What ``fit`` and ``train_translator`` write there has its
            meaning: ``corpus``, ``preset``, ``recipe``, ``history`` and ``search``.
        dtype: the precision of the weights in the file, if it is to be another than the model's.

    Raises:
        ValueError: ``load_model`` would refuse the file: the vocabularies are not the model's, its weights are not what
            its configuration says (were layers replaced?), one of them is no number, or a note has another kind.
        TypeError: it is another model.
        OSError: the file cannot be written.
    """
    model_class = next((known for known in _KINDS if isinstance(model, known)), None)
    if model_class is None:
        raise TypeError(f"model is a {type(model).__name__}, expected a Transformer or a TransformerLanguageModel")
    kind = _KINDS[model_class]
    check_vocabularies(model.config, fields)
    tensors = {name: parameter.detach().to("cpu", dtype).contiguous() for name, parameter in model.named_parameters()}
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    _check_sizes(model.config, shapes)
    with torch.device("meta"):  # shapes without numbers
        _check_shapes(model_class(model.config), shapes)
    _check_numbers(tensors, torch.float64)
    metadata = {
        "format": kind.format,
        "config": json.dumps(model.config.to_dict()),
        **{f"{name}_field": json.dumps(fields[name].to_dict()) for name in kind.fields},
        "notes": json.dumps(_checked_notes(notes or {})),
    }
    replace_file(path, safetensors.torch.save(tensors, metadata))


def load_model(path: str | Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> SavedModel:
    """Read what ``save_model`` wrote. The file may come from anybody: see ``SECURITY.md``.

    Reading never runs code that is in the file, and takes no more memory than a few times its size (words: thirty).

    Args:
        path: the file, or the folder that training wrote.
        device: where the model is needed.
        dtype: the precision to compute in, whatever the file's is.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        CheckpointError: it is not a complete model of this library.
    """
    path = Path(path)
    if path.is_dir():
        path = path / MODEL_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: train a model first, with `transformer-lib train` (a translator) or "
            "`transformer-lib train-lm` (a language model)"
        )
    with open(path, "rb"):
        pass  # a file that may not be read is reported as such; to safetensors, it does not exist
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            return _read_model(path, file, device, dtype)
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path} is not a complete safetensors file ({error})") from error


def _read_model(path: Path, file: safetensors.safe_open, device: torch.device | str, dtype: torch.dtype) -> SavedModel:
    """Do what ``load_model`` promises; no tensor is read before its shape is known to be the model's."""
    metadata = file.metadata() or {}
    kinds = {kind.format: (model_class, kind) for model_class, kind in _KINDS.items()}
    if metadata.get("format") not in kinds:
        raise CheckpointError(
            f"{path} says format {metadata.get('format')!r}, expected one of {', '.join(map(repr, kinds))}: "
            "another program or version wrote it"
        )
    model_class, kind = kinds[metadata["format"]]
    try:
        config = kind.config_class.from_dict(json.loads(metadata["config"]))
        fields = {
            name: _read_field(field_class, json.loads(metadata[f"{name}_field"]))
            for name, field_class in kind.fields.items()
        }
        notes = _checked_notes(json.loads(metadata["notes"]))
        check_vocabularies(config, fields)
        shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no dictionary)
        _check_sizes(config, shapes)
        model = model_class(config).to(dtype)
        _check_shapes(model, shapes)
        tensors = {name: file.get_tensor(name) for name in shapes}
        _check_numbers(tensors, dtype)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:  # RuntimeError: JSON that is nested too deeply
        raise CheckpointError(f"{path} does not hold a model that fits together ({error})") from error
    model.load_state_dict(tensors, strict=False)  # a tied matrix has several names, of which the file holds one
    return SavedModel(model.to(device).eval(), fields, notes)


def _read_field(field_class: type[TextField], values: dict[str, Any]) -> TextField:
    return (SubwordField if "subwords" in values else field_class).from_dict(values)


def _checked_notes(notes: Any) -> dict[str, Any]:
    """Return notes if those that the library itself reads are what it writes."""
    kinds = {"corpus": str, "preset": str, "recipe": dict, "history": dict, "search": dict}
    if not isinstance(notes, dict):
        raise ValueError(f"notes is a {type(notes).__name__}, expected a dictionary")
    for name, kind in kinds.items():
        if not isinstance(notes.get(name, kind()), kind):
            raise ValueError(f"notes[{name!r}] is a {type(notes[name]).__name__}, expected a {kind.__name__}")
    search = {"beam_size": 1, "alpha": 0.0, **notes.get("search", {})}
    numbers = len(search) == 2 and type(search["beam_size"]) is int and type(search["alpha"]) in (int, float)
    if not (numbers and 1 <= search["beam_size"] <= MOST_BEAMS and 0 <= search["alpha"] <= MOST_ALPHA):
        raise ValueError(
            f"notes['search'] is {notes['search']}, expected a beam_size from 1 to {MOST_BEAMS} and an alpha from 0 to "
            f"{MOST_ALPHA}"
        )
    return notes


def check_vocabularies(config: Configuration, fields: Mapping[str, TextField]) -> None:
    """Compare the vocabularies with the sizes that the model was built for.

    Raises:
        ValueError: they differ, or a field has no vocabulary yet.
    """
    for name, field in fields.items():
        size_name = "vocab_size" if name == "text" else f"{name}_vocab_size"
        if not hasattr(config, size_name):
            raise ValueError(
                f"fields holds {name!r}, but {type(config).__name__} has no {size_name}: sentence pairs (make_dataset) "
                "are for a Transformer, running text (make_stream) for a language model"
            )
        if not hasattr(field, "vocab"):
            raise ValueError(
                f"{name}_field has no vocabulary yet, expected one: build it from the training split first"
            )
        if config.pad_id != field.pad_id:
            raise ValueError(
                f"{name}_field has padding with the id {field.pad_id}, but the model's pad_id is {config.pad_id}"
            )
        size = getattr(config, size_name)
        if len(field.vocab) != size:
            raise ValueError(
                f"{name}_field has a vocabulary of {len(field.vocab)} types, but the model's {size_name} is {size}"
            )


def _check_sizes(config: Configuration, shapes: dict[str, list[int]]) -> None:
    """Raise a ValueError unless a model of this configuration could have weights of these shapes.

    The configuration of a file from a stranger may promise anything. So its numbers are compared with what is there
    before anything of that size, or that takes that long, is made.
    """
    promised, found = config.num_parameters(), sum(map(math.prod, shapes.values()))
    if promised > 2 * found or config.num_layers > _MOST_LAYERS:
        raise ValueError(
            f"the configuration promises {promised:,} weights in {config.num_layers:,} layers, but there are {found:,} "
            f"weights, and at most {_MOST_LAYERS} layers are expected"
        )
    if (table := config.max_len * config.d_model) > 2 * found + 2**18:  # sinusoids are computed, and not stored
        raise ValueError(
            f"max_len={config.max_len:,} positions of d_model={config.d_model} numbers are {table:,} numbers, far more "
            f"than the model's {found:,} weights"
        )


def _check_shapes(model: Model, found: dict[str, list[int]]) -> None:
    """Compare the shapes of a model's weights with those of others."""
    expected = {name: list(parameter.shape) for name, parameter in model.named_parameters()}
    if different := sorted(name for name in expected | found if expected.get(name) != found.get(name)):
        name = different[0]
        raise ValueError(
            f"{len(different)} tensors differ; the first is {name!r}: "
            f"shape {found.get(name)}, expected {expected.get(name)}"
        )


def _check_numbers(tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    """Raise a ValueError unless these are numbers, and still are in the precision that is wanted."""
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            raise ValueError(f"{name} has dtype {tensor.dtype}, expected float64, float32, bfloat16 or float16")
        if not tensor.to(dtype).isfinite().all():
            raise ValueError(f"{name} holds what is no number (nan or inf) in {dtype}: has training diverged?")


def save_training_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write everything that training needs to go on, or leave what was there untouched.

    Raises:
        OSError: the file cannot be written.
    """
    buffer = io.BytesIO()
    torch.save({"format": _STATE_FORMAT, **state}, buffer)
    replace_file(path, buffer.getvalue())


def load_training_state(path: str | Path) -> dict[str, Any]:
    """Read what ``save_training_state`` wrote, onto the CPU; only tensors and plain values: reading never runs code.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        CheckpointError: it is cut off, or something else.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: there is no training to resume")
    with open(path, "rb"):
        pass  # a file that may not be read is no broken one
    try:
        with zipfile.ZipFile(path) as archive:  # which is what torch.save writes; torch.load checks no checksums
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("it is compressed, as torch.save never does")
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"its part {damaged} is damaged")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises whatever its parsers stumble over
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(f"{path} is not a complete training state ({reason})") from error
    if not isinstance(state, dict) or state.get("format") != _STATE_FORMAT:
        raise CheckpointError(f"{path} is not a training state of this library: another program or version wrote it")
    return state


def remove_unfinished(path: str | Path) -> None:
    """Remove what ``replace_file`` had not finished for ``path`` when its process was killed."""
    path = Path(os.path.realpath(path))
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        temporary.unlink(missing_ok=True)


def replace_file(path: str | Path, content: bytes) -> None:
    """Write a whole file under a temporary name, then rename it: ``path`` holds the old content or the new, never half.

    What a link points to is replaced, and not the link. Into what is no file, such as ``/dev/stdout``, it is written.

    Raises:
        OSError: it cannot be written (a full disk, a folder without permission); what was there before is unchanged.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file() and not target.is_dir():
        target.write_bytes(content)
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # on the disk before the name changes, also if the power fails
        if target.is_file():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"{reason}; what was there before is unchanged", str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # what happened before matters more
            temporary.unlink(missing_ok=True)
