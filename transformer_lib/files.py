"""Where files lie that come with the library; others that are never half-written; what a training run resumes from."""

import contextlib
import io
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import filelock
import torch
from safetensors import SafetensorError

STATE_FILE = "training_state.pt"
_STATE_FORMAT = "transformer_lib training state, version 6"
_PACKAGE = Path(__file__).parent
IS_INSTALLED = (_PACKAGE / "shipped").is_dir()  # from a wheel; otherwise, the library lies in its repository


def shipped(path: str) -> Path:
    """Return where a file or folder lies that comes with the library, which has ``path`` in the repository.

    What that can be, ``pyproject.toml`` lists: ``"data/sample"``, for one.
    """
    return (_PACKAGE / "shipped" if IS_INSTALLED else _PACKAGE.parent) / path


def say(line: str) -> None:
    """Print a line at once. What the console cannot write becomes ``?``, and one that is gone ends nothing."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError, ValueError):
        print(one_line(line).encode(encoding, "replace").decode(encoding), flush=True)


def accept_any_text() -> None:
    """Let both output streams write ``?`` for what a console lacks. A file or a pipe gets UTF-8, and loses nothing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")


def one_line(text: str) -> str:
    """Return a text without control characters, by which a file could make a terminal do more than print."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)


class OneLineError(RuntimeError):
    """An error whose message holds no control characters, whatever the file is called or holds."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


class CheckpointError(OneLineError):
    """A file does not hold what it should. The message says which file, and why, without control characters."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary file to write, which becomes ``path`` if nothing fails; or else, an OSError says what did.

    It keeps the permissions of the file that was there before; a new one gets those of any new file.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")  # another for each process and thread
    try:
        temporary.touch()
        mode = (path if path.exists() else temporary).stat().st_mode
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())  # on the disk before the name changes, even if the power fails
        temporary.chmod(mode)  # safetensors makes a file that its owner alone can read
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise OSError(f"{path} cannot be written ({error}); what was there before is unchanged") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(folder: str | Path, replaces: Collection[str] = ()) -> Iterator[Path]:
    """Yield where to write what a new or empty folder is to hold: all of it in the end, or after an error nothing.

    What a killed process has left there is removed, and what is there by the names in ``replaces`` in the end. Raises a
    FileExistsError if the folder holds anything else, or another process is writing it.
    """
    folder = Path(folder)
    unfinished = folder / ".unfinished"
    lock_file = folder / ".unfinished.lock"
    lock = filelock.FileLock(lock_file, timeout=0)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if {path.name for path in folder.iterdir()} - {unfinished.name, lock_file.name, *replaces}:
        raise FileExistsError(f"{folder} holds something, expected a new or empty folder")
    try:
        lock.acquire()
    except TimeoutError:
        raise FileExistsError(f"{folder} is being written by another process, expected an empty folder") from None
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        mode = unfinished.stat().st_mode & 0o666  # that of any new file
        yield unfinished
        for path in filter(Path.is_file, unfinished.rglob("*")):
            path.chmod(mode)
        for path in [*unfinished.iterdir()]:
            place = folder / path.name
            if place.exists():  # it is one of those that are replaced
                place.rename(unfinished / f"{path.name}.old")
            path.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        lock.release()
        lock_file.unlink(missing_ok=True)
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


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
