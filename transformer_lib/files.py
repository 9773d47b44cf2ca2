"""Files that are never half-written or lost, and the state that a training run resumes from."""

import contextlib
import io
import os
import tempfile
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import torch
from safetensors import SafetensorError

STATE_FILE = "training_state.pt"
_STATE_FORMAT = "transformer_lib training state, version 6"


def one_line(text: str) -> str:
    """Return a text without control characters, by which a file could make a terminal do more than print."""
    return "".join(" " if unicodedata.category(character) == "Cc" else character for character in text)


class CheckpointError(RuntimeError):
    """A file does not hold what it should. The message says which file, and why, without control characters."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary file to write, which becomes ``path`` if nothing fails; or else, an OSError says what did."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")  # another for each process and thread
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())  # on the disk before the name changes, even if the power fails
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise OSError(f"{path} cannot be written ({error}); what was there before is unchanged") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Yield where to write what a new or empty folder is to hold: all of it in the end, or after an error nothing.

    Raises a FileExistsError if the folder holds something.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} holds something, expected a new or empty folder")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        yield Path(temporary)
        for file in Path(temporary).iterdir():
            file.rename(folder / file.name)


def save_training_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write everything that a training run needs to resume (see ``replacing``)."""
    buffer = io.BytesIO()  # torch.save itself would not say why a file cannot be written
    torch.save({"format": _STATE_FORMAT, **state}, buffer)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def load_training_state(path: str | Path) -> dict[str, Any]:
    """Read what ``save_training_state`` wrote, onto the CPU: only tensors and plain values, so that no code runs.

    Raises a CheckpointError if it is not there, truncated, damaged or something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # by checksums, which torch.load ignores
        state = torch.load(path, map_location="cpu", weights_only=True)
        if damaged or state["format"] != _STATE_FORMAT:
            raise ValueError(f"damaged: {damaged}, format: {state['format']}")
        return state
    except Exception as error:  # torch.load raises whatever its parsers stumble over
        raise CheckpointError(f"{path} is not a complete training state of this library ({error!r:.100})") from None


def locked(folder: Path) -> filelock.FileLock:
    """Return what keeps every other training run out of a folder, and makes it, while it is entered.

    Another one for the same folder then raises a TimeoutError.
    """
    return filelock.FileLock(folder / ".training.lock", timeout=1)
