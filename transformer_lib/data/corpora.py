"""Where sentences and texts come from: the embedded sample corpus, Multi30k, WikiText-2, or your own files."""

import gzip
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pooch

from transformer_lib.data.download import (
    MULTI30K_SHA256,
    MULTI30K_URL,
    WIKITEXT2_CHECKSUMS,
    WIKITEXT2_URL,
    download,
    verify,
)

_REPOSITORY_DATA = Path(__file__).parent.parent.parent / "data"
_INSTALLED_SAMPLE = Path(__file__).parent / "sample"
_IN_REPOSITORY = (_REPOSITORY_DATA / "sample").is_dir() and not _INSTALLED_SAMPLE.is_dir()
_SAMPLE = _REPOSITORY_DATA / "sample" if _IN_REPOSITORY else _INSTALLED_SAMPLE

CORPORA = ("sample", "multi30k")
TEXTS = ("wikitext-2", "wikitext-2-valid", *CORPORA)
_MOST_UNPACKED = 2**26, 100  # bytes, or times its size, that a packed text may have; packed, it is a third as large


class CorpusError(RuntimeError):
    """A corpus is unavailable, or its files cannot be used. The message says what to do."""


class Pair(NamedTuple):
    """A sentence and its translation."""

    src: str
    tgt: str


@dataclass(frozen=True)
class Corpus:
    """Aligned sentences in splits; files are read (and downloaded) when a split is first asked for.

    Attributes:
        name: what messages call it.
        src, tgt: language codes, which are also the files' endings.
        splits: names of the splits, the training split first, then the validation split, then one or more for testing.
    """

    name: str
    src: str
    tgt: str
    splits: tuple[str, ...]
    _locate: Callable[[str], Path]

    def __getitem__(self, split: str) -> list[Pair]:
        """Read one split.

        Raises:
            CorpusError: there is no such split, its files are unavailable, or they are not two aligned UTF-8 texts.
        """
        return read_pairs(self._path(split, self.src), self._path(split, self.tgt))

    def lines(self, split: str, ending: str) -> list[str]:
        """Read a file that belongs to a split, such as the sample corpus's ``align`` and ``tree`` files."""
        return read_lines(self._path(split, ending))

    def _path(self, split: str, ending: str) -> Path:
        if split not in self.splits:
            raise CorpusError(f"split is {split!r}, but corpus {self.name!r} has {', '.join(self.splits)}")
        return self._locate(f"{split}.{ending}")


def load_corpus(name: str | Path = "sample", src: str = "de", tgt: str = "en") -> Corpus:
    """Open a corpus by name, or your own by its folder.

    Args:
        name: ``"sample"``, ``"multi30k"``, or a folder that holds ``train.<src>``, ``train.<tgt>``, ``val.<src>``,
            ``val.<tgt>`` and, if you have them, ``test….<src>`` and ``test….<tgt>``, each also with ``.gz``.
        src, tgt: language codes.

    Raises:
        CorpusError: there is no such corpus, or it does not have these languages.
    """
    if str(name) == "sample":
        return _open_folder("sample", _SAMPLE, src, tgt)
    if str(name) == "multi30k":
        if {src, tgt} != {"de", "en"}:
            raise CorpusError(f"src={src!r} and tgt={tgt!r}, but corpus 'multi30k' has 'de' and 'en' here")
        splits = tuple(dict.fromkeys(file.split(".")[0] for file in MULTI30K_SHA256))
        return Corpus("multi30k", src, tgt, splits, _locate_multi30k)
    if Path(name).is_dir():
        return _open_folder(Path(name).resolve().name, Path(name), src, tgt)
    raise CorpusError(f"corpus is {str(name)!r}, expected one of {', '.join(CORPORA)}, or the folder of your own")


@dataclass(frozen=True)
class Text:
    """Running text in splits, for a language model; files are read (and downloaded) when a split is first asked for.

    Attributes:
        name: what messages call it.
        language: the language that spaCy is to tokenise it as; None if tokens are between spaces already.
        splits: names of the splits, the training split first, then the validation split, then one or more for testing.
    """

    name: str
    language: str | None
    splits: tuple[str, ...]
    _read: Callable[[str], list[str]]

    def __getitem__(self, split: str) -> list[str]:
        """Read the lines of one split, empty ones too.

        Raises:
            CorpusError: there is no such split, or its file is unavailable or is not UTF-8 text.
        """
        if split not in self.splits:
            raise CorpusError(f"split is {split!r}, but text {self.name!r} has {', '.join(self.splits)}")
        return self._read(split)


def load_text(name: str | Path = "wikitext-2", language: str | None = None) -> Text:
    """Open running text by name, or your own by its path.

    Args:
        name: one of

            - ``"wikitext-2"``: articles from Wikipedia; splits ``train``, ``valid`` and ``test``.
            - ``"wikitext-2-valid"``: trains on the first nine tenths of its file ``valid.txt`` and validates on the
              rest; for when the training file, ten times as large, is unavailable.
            - ``"sample"``, ``"multi30k"``: one side of the parallel corpus, English unless ``language`` says ``"de"``.
            - a text file: its first eight tenths to train on, a tenth to validate, a tenth to test.
            - a folder with ``train.txt``, ``valid.txt`` and, if you have them, ``test….txt``.

            Your own files may end in ``.gz``.
        language: what spaCy is to tokenise your own text as; None if tokens are between spaces already.

    Raises:
        CorpusError: there is no such text, or a file of it is missing.
    """
    path = Path(name)
    if str(name).startswith("wikitext-2") and str(name) in TEXTS and language is not None:
        raise CorpusError(f"language is {language!r}, but text {str(name)!r} is cut into tokens already: leave it out")
    if str(name) == "wikitext-2":
        return Text("wikitext-2", None, ("train", "valid", "test"), lambda split: read_text(_locate_wikitext2(split)))
    if str(name) == "wikitext-2-valid":
        cut = _cut_file(lambda: _locate_wikitext2("valid"), {"train": (0.0, 0.9), "valid": (0.9, 1.0)})
        return Text(
            "wikitext-2-valid",
            None,
            ("train", "valid", "test"),
            lambda split: read_text(_locate_wikitext2("test")) if split == "test" else cut(split),
        )
    if str(name) in CORPORA:
        language = language or "en"
        corpus = load_corpus(name)
        if language not in (corpus.src, corpus.tgt):
            raise CorpusError(f"language is {language!r}, but corpus {corpus.name!r} has {corpus.src} and {corpus.tgt}")
        return Text(corpus.name, language, corpus.splits, lambda split: corpus.lines(split, language))
    if path.is_file():
        parts = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0)}
        return Text(
            path.name.removesuffix(".gz").removesuffix(".txt"), language, tuple(parts), _cut_file(lambda: path, parts)
        )
    if path.is_dir():
        files = {  # the plain file, where there are both
            file.name.removesuffix(ending): file for ending in (".txt.gz", ".txt") for file in path.glob(f"*{ending}")
        }
        for split in ("train", "valid"):
            if split not in files:
                raise CorpusError(f"text {path.resolve().name!r} has no {split}.txt or {split}.txt.gz in {path}")
        splits = ("train", "valid", *(split for split in sorted(files) if split.startswith("test")))
        return Text(path.resolve().name, language, splits, lambda split: read_text(files[split]))
    raise CorpusError(f"text is {str(name)!r}, expected one of {', '.join(TEXTS)}, or a file or folder of your own")


def cache_folder() -> Path:
    """Return where downloads are looked for and kept: ``$TRANSFORMER_LIB_DATA``, else the project's or user's cache."""
    if folder := os.environ.get("TRANSFORMER_LIB_DATA"):
        return Path(folder).expanduser()
    return _REPOSITORY_DATA / "cache" if _IN_REPOSITORY else Path(pooch.os_cache("transformer-lib"))


def read_pairs(src_path: str | Path, tgt_path: str | Path) -> list[Pair]:
    """Read two aligned text files, one sentence a line.

    Raises:
        CorpusError: a file is missing, empty or not UTF-8, a line is empty, or the numbers of lines differ.
    """
    src_lines, tgt_lines = read_lines(src_path), read_lines(tgt_path)
    if len(src_lines) != len(tgt_lines):
        raise CorpusError(
            f"{src_path} has {len(src_lines)} lines but {tgt_path} has {len(tgt_lines)}: "
            "line n of one must be the translation of line n of the other"
        )
    return [Pair(src, tgt) for src, tgt in zip(src_lines, tgt_lines, strict=True)]


def read_lines(path: str | Path) -> list[str]:
    """Read the lines of a file that holds one sentence a line, plain or ``.gz``, stripped of white space at both ends.

    Raises:
        CorpusError: the file is missing, empty or not UTF-8, or a line is empty.
    """
    lines = read_text(path)
    if "" in lines:
        raise CorpusError(f"{path} has nothing in line {lines.index('') + 1}: remove that line on both sides")
    return lines


def read_text(path: str | Path) -> list[str]:
    """Read the lines of a text file, plain or ``.gz``, stripped of white space at both ends; lines may be empty.

    Raises:
        CorpusError: the file is missing, empty or not UTF-8.
    """
    if Path(path).exists() and not Path(path).is_file():
        raise CorpusError(f"{path} is no file")  # but a pipe, for example, which one would wait for
    try:
        content = _unpack(Path(path)) if str(path).endswith(".gz") else Path(path).read_bytes()
    except FileNotFoundError:
        raise CorpusError(f"{path} does not exist") from None
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} cannot be read ({error}); was it copied or downloaded completely?") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CorpusError(
            f"{path} is not UTF-8: line {line} holds the byte 0x{error.object[error.start]:02x}; "
            f"convert it, for example with `iconv -f latin1 -t utf-8` if that is what it is"
        ) from None
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    if not any(lines):
        raise CorpusError(f"{path} is empty")
    return lines


def _unpack(path: Path) -> bytes:
    """Return what is in a gzip file, unless that is so much more than the file that it can be no text."""
    most = max(_MOST_UNPACKED[0], _MOST_UNPACKED[1] * path.stat().st_size)
    with gzip.open(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise CorpusError(
            f"{path} has {path.stat().st_size:,} bytes but holds more than {most:,}, which no text does: is it a gzip "
            "bomb? If it is what you want, unpack it yourself"
        )
    return content


def _open_folder(name: str, folder: Path, src: str, tgt: str) -> Corpus:
    if not folder.is_dir():
        raise CorpusError(f"corpus {name!r} is not installed: {folder} does not exist")
    files = sorted({path.name.removesuffix(".gz") for path in folder.iterdir()})
    tests = [file.removesuffix(f".{src}") for file in files if file.startswith("test") and file.endswith(f".{src}")]
    splits = ("train", "val", *tests)

    def locate(file: str) -> Path:
        return folder / file if (folder / file).exists() else folder / f"{file}.gz"

    for split in splits:
        for language in (src, tgt):
            if f"{split}.{language}" not in files:
                raise CorpusError(f"corpus {name!r} has no {split}.{language} or {split}.{language}.gz")
    return Corpus(name, src, tgt, splits, locate)


def _cut_file(locate: Callable[[], Path], parts: dict[str, tuple[float, float]]) -> Callable[[str], list[str]]:
    """Return what reads a part of a file's lines; a part goes from one share of them to another."""

    def read(split: str) -> list[str]:
        path = locate()
        lines = read_text(path)
        start, end = (round(share * len(lines)) for share in parts[split])
        if not any(lines[start:end]):
            raise CorpusError(
                f"{path} has {len(lines)} lines, and no text in those from {start + 1} to {end}, its part {split!r}: "
                "break the text into more lines, or put train.txt, valid.txt and test.txt into a folder"
            )
        return lines[start:end]

    return read


def _locate_multi30k(file: str) -> Path:
    return _fetch("multi30k", f"{file}.gz", MULTI30K_URL, f"sha256:{MULTI30K_SHA256[f'{file}.gz']}")


def _locate_wikitext2(split: str) -> Path:
    return _fetch("wikitext-2", f"{split}.txt", WIKITEXT2_URL, WIKITEXT2_CHECKSUMS[f"{split}.txt"])


def _fetch(corpus: str, file: str, base_url: str, checksum: str) -> Path:
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
