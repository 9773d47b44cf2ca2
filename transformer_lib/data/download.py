"""Files from the network, which may send anything: what is kept is what was published, to the last bit."""

import contextlib
import hashlib
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pooch

MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
MULTI30K_SHA256 = {
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_mscoco.de.gz": "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    "test_2017_mscoco.en.gz": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
}
WIKITEXT2_URL = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/"
WIKITEXT2_CHECKSUMS = {
    "train.txt": "git-blob:2d84b35af79e411d73ea7cae83c73964c6ac83b4",
    "valid.txt": "sha256:f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    "test.txt": "sha256:d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
}

_TIMEOUT_S = 5, 30  # to connect, and without a single byte
_MOST_BYTES = 2**26  # six times the largest file that there is to download


def download(url: str, path: Path, checksum: str) -> None:
    """Download a file under another name, verify it, and rename it to ``path``.

    Raises:
        OSError: it cannot be downloaded or written.
        ValueError: something else was sent.
    """

    def download_and_verify(url: str, output: str, pooch_instance: Any) -> None:
        with open(output, "wb") as file, contextlib.ExitStack() as stack:
            closed = {"response": [lambda response, **_: stack.callback(response.close) and None]}  # also if too long
            downloader = pooch.HTTPDownloader(timeout=_TIMEOUT_S, progressbar=True, hooks=closed)
            downloader(url, _Limited(file), pooch_instance)
        verify(Path(output), checksum)  # still under its temporary name, which pooch removes if this raises

    pooch.get_logger().setLevel("WARNING")  # the line below and the progress bar say enough
    print(f"downloading {url}", file=sys.stderr, flush=True)
    pooch.retrieve(url, known_hash=None, fname=path.name, path=path.parent, downloader=download_and_verify)


def verify(path: Path, checksum: str) -> None:
    """Compare a file with its checksum, ``sha256:…``, or ``git-blob:…``, the name that git has for its content.

    Raises:
        ValueError: the checksum is another one; the message says what the file may be instead.
    """
    kind, expected = checksum.split(":")
    content = path.read_bytes()
    git_blob = b"blob %d\0" % len(content) + content
    found = (hashlib.sha1(git_blob) if kind == "git-blob" else hashlib.sha256(content)).hexdigest()
    if found != expected:
        is_page = content[:200].lstrip().lower().startswith((b"<!doctype html", b"<html"))
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
