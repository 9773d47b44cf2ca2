"""Files from the network, which may send anything: what is kept is what was published, to the last bit."""

import contextlib
import hashlib
from pathlib import Path
from typing import Any, BinaryIO

import pooch

_TIMEOUT_S = 30  # without a single byte
_MOST_BYTES = 2**26  # six times the largest file that there is to download


def download(url: str, path: Path, checksum: str) -> None:
    """Download a file under another name, verify it, and rename it; its folder is made if need be.

    Args:
        url: where it is.
        path: where to put it.
        checksum: as in ``verify``.

    Raises:
        OSError: it cannot be had, or not be written.
        ValueError: something else was sent.
    """

    def download_and_verify(url: str, output: str, pooch_instance: Any) -> None:
        with open(output, "wb") as file, contextlib.ExitStack() as stack:
            closed = {"response": [lambda response, **_: stack.callback(response.close) and None]}  # also if too long
            downloader = pooch.HTTPDownloader(timeout=_TIMEOUT_S, progressbar=True, hooks=closed)
            downloader(url, _Limited(file), pooch_instance)
        verify(Path(output), checksum)  # still under its temporary name, which pooch removes if this raises

    pooch.get_logger().setLevel("WARNING")  # the progress bar says enough
    pooch.retrieve(url, known_hash=None, fname=path.name, path=path.parent, downloader=download_and_verify)


def verify(path: Path, checksum: str) -> None:
    """Compare a file with its checksum.

    Args:
        path: the file.
        checksum: ``sha256:`` and its SHA-256, or ``git-blob:`` and the name that git has for its content.

    Raises:
        ValueError: the checksum is another one; the message says what the file may be instead.
    """
    kind, expected = checksum.split(":")
    if kind == "git-blob":
        found = hashlib.sha1(b"blob %d\0" % path.stat().st_size + path.read_bytes()).hexdigest()
    else:
        found = pooch.file_hash(str(path), alg=kind)
    if found != expected:
        with open(path, "rb") as file:
            is_page = file.read(200).lstrip().lower().startswith((b"<!doctype html", b"<html"))
        cause = "it is a web page, perhaps one to log in to this network" if is_page else "it is cut off or changed"
        raise ValueError(f"its {kind} checksum is {found}, expected {expected}: {cause}")


class _Limited:
    """A file that a server cannot fill a disk with: requests unpacks what it sends, which may be without end."""

    def __init__(self, file: BinaryIO):
        self.file = file
        self.flush = file.flush

    def write(self, chunk: bytes) -> None:
        if self.file.tell() + len(chunk) > _MOST_BYTES:
            raise ValueError(f"what was sent is longer than {_MOST_BYTES:,} bytes, far more than the file has")
        self.file.write(chunk)
