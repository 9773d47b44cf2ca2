"""Files that are never half-written or lost, and the state that a training run resumes from."""

import contextlib
import errno
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import safetensors
import torch

from transformer_lib.data.tokenizers import one_line

STATE_FILE = "training_state.pt"
_LOCK_FILE = ".training.lock"
_STATE_FORMAT = "transformer_lib training state, version 4"


class CheckpointError(RuntimeError):
    """A file does not hold what it should. The message says which file, and why, without control characters."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary file to write; it becomes ``path`` if nothing fails, so that half of it is never there.

    Raises:
        OSError: it cannot be written (a full disk, a folder without permission); what was there before is unchanged.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")  # another for each process and thread
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())  # on the disk before the name changes, even if the power fails
        os.replace(temporary, path)
    except (OSError, safetensors.SafetensorError) as error:
        reason = f"{getattr(error, 'strerror', None) or error}; what was there before is unchanged"
        raise OSError(getattr(error, "errno", None) or errno.EIO, reason, str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # the error before matters more
            temporary.unlink()


def save_training_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write everything that a training run needs to resume (see ``replacing``)."""
    buffer = io.BytesIO()  # torch.save itself would not say why a file cannot be written
    torch.save({"format": _STATE_FORMAT, **state}, buffer)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def load_training_state(path: str | Path) -> dict[str, Any]:
    """Read what ``save_training_state`` wrote, onto the CPU: only tensors and plain values, so that no code runs.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
        CheckpointError: it is truncated, damaged or something else.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist: there is no training run to resume")
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
    """Keep every other training run out of ``folder``. The lock of a killed process is released.

    Raises:
        FileExistsError: another process, or another run in this one, holds the lock.
        OSError: the folder cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / _LOCK_FILE, timeout=1):
            yield
    except filelock.Timeout:
        raise FileExistsError(
            f"{folder} is in use by another training run: wait until it has ended, or choose another output folder "
            "(--output)"
        ) from None
