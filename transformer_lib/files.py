"""Files that are never half-written or lost, and the state that a training resumes from."""

import contextlib
import errno
import glob
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import safetensors
import torch
from torch import Tensor

STATE_FILE = "training_state.pt"
LOCK_FILE = ".training.lock"
_STATE_FORMAT = "transformer_lib training state, version 2"


class CheckpointError(RuntimeError):
    """A file does not hold what it should. The message says which file, and why."""


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
        pass  # a file that may not be read is not a broken one
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


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other training out of ``folder``. A process that is killed holds no lock any more.

    Raises:
        FileExistsError: another process, or another training of this one, holds the lock; the message says which.
    """
    path, lock, holder, is_new = folder / LOCK_FILE, filelock.FileLock(folder / LOCK_FILE), "", not folder.exists()
    with contextlib.suppress(OSError, ValueError):  # Windows lets nobody read a file that is locked
        holder = f" (process {int(path.read_text())})"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise FileExistsError(
            f"{folder} is in use by another training{holder}: wait until it has ended, or choose another output "
            "folder (--output)"
        ) from None
    except OSError as error:
        reason = f"{error.strerror or error}; what was there before is unchanged"
        raise OSError(error.errno, reason, str(folder)) from error
    with contextlib.suppress(OSError):
        path.write_text(str(os.getpid()))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows keeps a file that is open; a disk may have become read-only
            path.unlink()
        lock.release()
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty: something came of the training
                folder.rmdir()


@contextlib.contextmanager
def open_tensors(path: str | Path) -> Iterator[safetensors.safe_open]:
    """Open a safetensors file for reading.

    Raises:
        OSError: it cannot be read.
        CheckpointError: it is cut off, or something else.
    """
    with open(path, "rb"):
        pass  # a file that may not be read is reported as such; to safetensors, it does not exist
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path} is not a complete safetensors file ({error})") from error


def check_finite(tensors: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Raise a ValueError unless all numbers are finite, and still are in the precision that is wanted."""
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool):
            raise ValueError(f"{name} has dtype {tensor.dtype}, expected float64, float32, bfloat16 or float16")
        if tensor.is_floating_point() and not tensor.to(dtype).isfinite().all():
            raise ValueError(f"{name} is NaN or infinite somewhere in {dtype}: has training diverged?")


def remove_unfinished(path: str | Path) -> None:
    """Remove what ``replace_file`` had not finished for ``path`` when its process was killed."""
    path = Path(os.path.realpath(path))
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        temporary.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise an OSError if ``replace_file`` could not write to ``path``, before time is spent on what it is to write."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder, expected a file", str(path))
    if target.is_file() or not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=target.parent).close()


def replace_file(path: str | Path, content: bytes) -> None:
    """Write a whole file under a temporary name, then rename it: ``path`` holds the old content or the new, never half.

    What a link points to is replaced, and not the link. What is not a file, such as ``/dev/stdout``, is written into.

    Raises:
        OSError: it cannot be written (a full disk, a folder without permission); what was there before is unchanged.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file() and not target.is_dir():
        target.write_bytes(content)
        return
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")  # no other thread's
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:  # and no link that somebody has put there
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
