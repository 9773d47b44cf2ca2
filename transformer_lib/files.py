"""Files that are never half-written or lost, and the state that a training resumes from."""

import contextlib
import errno
import glob
import io
import os
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import safetensors
import torch

from transformer_lib.data.tokenizers import one_line

STATE_FILE = "training_state.pt"
LOCK_FILE = ".training.lock"
_STATE_FORMAT = "transformer_lib training state, version 3"


class CheckpointError(RuntimeError):
    """A file does not hold what it should. The message says which file, and why, without control characters."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


def save_training_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write everything that training needs to resume (see ``replace_file``)."""
    buffer = io.BytesIO()
    torch.save({"format": _STATE_FORMAT, **state}, buffer)
    replace_file(path, buffer.getvalue())


def load_training_state(path: str | Path) -> dict[str, Any]:
    """Read what ``save_training_state`` wrote, onto the CPU: only tensors and plain values, so that no code runs.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        CheckpointError: it is truncated, damaged or something else.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist: there is no training to resume")
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:  # torch.save's format, whose checksums torch.load ignores
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    raise ValueError("it is compressed, as torch.save never does")
                if (damaged := archive.testzip()) is not None:
                    raise ValueError(f"its part {damaged} is damaged")
            file.seek(0)
            state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises whatever its parsers stumble over
            reason = str(error).strip().split("\n")[0]
            raise CheckpointError(f"{path} is not a complete training state ({reason})") from None
    if not isinstance(state, dict) or state.get("format") != _STATE_FORMAT:
        raise CheckpointError(f"{path} is not a training state of this library: another program or version wrote it")
    return state


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other training out of ``folder``. The lock of a killed process is released.

    Raises:
        FileExistsError: another process, or another training in this one, holds the lock.
        OSError: the folder cannot be made or written to.
    """
    path, lock, is_new = folder / LOCK_FILE, filelock.FileLock(folder / LOCK_FILE), not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=1, poll_interval=0.05)  # where there is no flock, a first try removes a dead lock
    except filelock.Timeout:
        raise FileExistsError(
            f"{folder} is in use by another training: wait until it has ended, or choose another output folder "
            "(--output)"
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOLCK):
            raise _unchanged(error, folder) from error
        reason = f"its file system cannot lock files ({error.strerror})"
        warnings.warn(f"{folder} is open to other trainings at the same time: {reason}", stacklevel=2)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows keeps an open file, and the disk may have become read-only
            path.unlink()
        lock.release()
        if is_new:
            with contextlib.suppress(OSError):  # not empty: the training has left something
                folder.rmdir()


@contextlib.contextmanager
def open_tensors(path: str | Path) -> Iterator[safetensors.safe_open]:
    """Open a safetensors file for reading.

    Raises:
        OSError: it cannot be read.
        CheckpointError: it is truncated or something else.
    """
    with open(path, "rb"):
        pass  # safetensors would say that a file without read permission does not exist
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except safetensors.SafetensorError as error:
        if zipfile.is_zipfile(path):
            raise CheckpointError(
                f"{path} is a file of torch.save: save_model writes what can be loaded here, and "
                "interop.tutorials.from_tutorial takes the weights of well-known tutorials (see book/from_tutorials.md)"
            ) from None
        raise CheckpointError(f"{path} is not a complete safetensors file ({error})") from None  # which quotes the file


def remove_unfinished(path: str | Path) -> None:
    """Remove the temporary files of ``replace_file`` for ``path`` that killed processes have left."""
    path = Path(os.path.realpath(path))
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        temporary.unlink(missing_ok=True)


def replace_file(path: str | Path, content: bytes) -> None:
    """Write a whole file under a temporary name, then rename it: ``path`` holds the old content or the new, never half.

    A link stays a link: what it points to is replaced. A pipe or a device, such as ``/dev/stdout``, is written to.

    Raises:
        OSError: it cannot be written (a full disk, a folder without permission); what was there before is unchanged.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")  # each thread has its own
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:  # "x" refuses a link that somebody has put there
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # on the disk before the name changes, even if the power fails
        if target.is_file():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise _unchanged(error, path) from error
    finally:
        with contextlib.suppress(OSError):  # the error before matters more
            temporary.unlink(missing_ok=True)


def _unchanged(error: OSError, path: str | Path) -> OSError:
    """Return an error of the operating system with the name of a file, saying that nothing is lost."""
    return OSError(error.errno, f"{error.strerror or error}; what was there before is unchanged", str(path))
