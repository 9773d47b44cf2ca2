"""Where sentences and texts come from: the embedded sample corpus, Multi30k, WikiText-2, or your own files."""

import gzip
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pooch

from transformer_lib.data.download import MULTI30K_SHA256, MULTI30K_URL, download, verify

_REPOSITORY_DATA = Path(__file__).parent.parent.parent / "data"
_INSTALLED_SAMPLE = Path(__file__).parent / "sample"
_IN_REPOSITORY = (_REPOSITORY_DATA / "sample").is_dir() and not _INSTALLED_SAMPLE.is_dir()
_SAMPLE = _REPOSITORY_DATA / "sample" if _IN_REPOSITORY else _INSTALLED_SAMPLE

CORPORA = ("sample", "multi30k")
_MOST_UNPACKED = 2**26, 100  # bytes, or times its size, that a packed text may have; packed, it is a third as large


class CorpusError(RuntimeError):
    """A corpus is unavailable, or its files cannot be used. The message says what to do."""


class Pair(NamedTuple):
    """A sentence and its translation."""

    src: str
    tgt: str


@dataclass(frozen=True)
class Corpus:
    """Aligned sentences in splits; files are read (and downloaded) when a split is asked for.

    Attributes:
        name: what messages call it.
        src, tgt: language codes, which are also the files' endings.
        splits: the training split first, then the validation split, then those for testing.
        folder: where its files are; None if they are downloaded.
        path: of a corpus of your own, absolute: a folder called ``sample`` is not the sample corpus.
    """

    name: str
    src: str
    tgt: str
    splits: tuple[str, ...]
    folder: Path | None
    path: str = ""

    def __getitem__(self, split: str) -> list[Pair]:
        """Read the pairs of a split; raises a CorpusError as ``lines``, or if the two sides differ in length."""
        src_lines, tgt_lines = self.lines(split, self.src), self.lines(split, self.tgt)
        if len(src_lines) != len(tgt_lines):
            raise CorpusError(
                f"corpus {self.name!r}: {split}.{self.src} has {len(src_lines)} lines but {split}.{self.tgt} has "
                f"{len(tgt_lines)}: line n of one must be the translation of line n of the other"
            )
        return [Pair(src, tgt) for src, tgt in zip(src_lines, tgt_lines, strict=True)]

    def lines(self, split: str, ending: str) -> list[str]:
        """Read a file that belongs to a split, such as the sample corpus's ``align`` and ``tree`` files.

        Raises:
            CorpusError: there is no such split, its file is unavailable or not UTF-8, or a line is empty.
        """
        if split not in self.splits:
            raise CorpusError(f"split is {split!r}, but corpus {self.name!r} has {', '.join(self.splits)}")
        file = f"{split}.{ending}"
        if self.folder is None:
            path = fetch("multi30k", f"{file}.gz", MULTI30K_URL, f"sha256:{MULTI30K_SHA256[f'{file}.gz']}")
        else:
            path = self.folder / (file if (self.folder / file).exists() else f"{file}.gz")
        lines = read_text(path)
        if "" in lines:
            raise CorpusError(f"{path} has nothing in line {lines.index('') + 1}: remove that line on both sides")
        return lines


def load_corpus(name: str | Path = "sample", src: str = "de", tgt: str = "en") -> Corpus:
    """Open a corpus by name, or your own by its folder.

    Args:
        name: ``"sample"``, ``"multi30k"``, or a folder that holds ``train.<src>``, ``train.<tgt>``, ``val.<src>``,
            ``val.<tgt>`` and, if you have them, ``test….<src>`` and ``test….<tgt>``, each also with ``.gz``.

    Raises:
        CorpusError: there is no such corpus, or it does not have these languages.
    """
    if str(name) == "multi30k":
        if {src, tgt} != {"de", "en"}:
            raise CorpusError(f"src={src!r} and tgt={tgt!r}, but corpus 'multi30k' has 'de' and 'en' here")
        splits = tuple(dict.fromkeys(file.split(".")[0] for file in MULTI30K_SHA256))
        return Corpus("multi30k", src, tgt, splits, None)
    folder = _SAMPLE if str(name) == "sample" else Path(name).resolve()
    if not folder.is_dir():
        raise CorpusError(f"corpus is {str(name)!r}, expected one of {', '.join(CORPORA)}, or the folder of your own")
    files = sorted({path.name.removesuffix(".gz") for path in folder.iterdir()})
    tests = [file.removesuffix(f".{src}") for file in files if file.startswith("test") and file.endswith(f".{src}")]
    splits = ("train", "val", *tests)
    for split in splits:
        for language in (src, tgt):
            if f"{split}.{language}" not in files:
                raise CorpusError(f"corpus {folder.name!r} has no {split}.{language} or {split}.{language}.gz")
    return Corpus(folder.name, src, tgt, splits, folder, "" if folder == _SAMPLE else str(folder))


def cache_folder() -> Path:
    """Return where downloads are looked for and kept: ``$TRANSFORMER_LIB_DATA``, else the project's or user's cache."""
    if folder := os.environ.get("TRANSFORMER_LIB_DATA"):
        return Path(folder).expanduser()
    return _REPOSITORY_DATA / "cache" if _IN_REPOSITORY else Path(pooch.os_cache("transformer-lib"))


def read_text(path: str | Path) -> list[str]:
    """Read the lines of a text file, plain or ``.gz``, each stripped of white space at both ends; some may be empty.

    Raises:
        CorpusError: the file is missing, empty or not UTF-8.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise CorpusError(f"{path} is not a file")  # but a pipe, for example, which one would wait for
    try:
        content = _unpack(path) if path.suffix == ".gz" else path.read_bytes()
    except FileNotFoundError:
        raise CorpusError(f"{path} does not exist") from None
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} cannot be read ({error}); was it copied or downloaded completely?") from error
    if b"\0" in content:
        raise CorpusError(f"{path} holds zero bytes, as UTF-16 does; if it is that: `iconv -f utf-16 -t utf-8`")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CorpusError(
            f"{path} is not UTF-8: line {line} holds the byte 0x{error.object[error.start]:02x}; "
            f"convert it, for example with `iconv -f latin1 -t utf-8` if that is what it is"
        ) from None
    end = "\n" if "\n" in text else "\r"  # as old Macs wrote it
    lines = [line.strip() for line in text.removesuffix(end).split(end)]
    if not any(lines):
        raise CorpusError(f"{path} is empty")
    return lines


def _unpack(path: Path) -> bytes:
    """Return what is in a gzip file, unless it is far too much for a text."""
    most = max(_MOST_UNPACKED[0], _MOST_UNPACKED[1] * path.stat().st_size)
    with gzip.open(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise CorpusError(
            f"{path} has {path.stat().st_size:,} bytes but holds more than {most:,}, which no text does: is it a gzip "
            "bomb? If it is what you want, unpack it yourself"
        )
    return content


def fetch(corpus: str, file: str, base_url: str, checksum: str) -> Path:
    """Return the path of a file that has this checksum, downloaded if it is not in the cache yet."""
    path = cache_folder() / corpus / file
    if path.exists():
        try:
            verify(path, checksum)
        except ValueError as error:
            raise CorpusError(f"{path}: {error}. Remove it, and it will be downloaded again") from None
        return path
    try:
        download(base_url + file, path, checksum)
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{file} of corpus {corpus!r} could not be downloaded from {base_url + file} ({error}). Two ways out: set "
            f"TRANSFORMER_LIB_DATA to a folder that holds {corpus}/{file}, or use the corpus 'sample', which needs no "
            "network"
        ) from error
    return path
