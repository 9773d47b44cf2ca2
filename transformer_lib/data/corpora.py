"""Where sentences and texts come from: the embedded sample corpus, Multi30k, WikiText-2, or your own files."""

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pooch

from transformer_lib.data import pairs as own
from transformer_lib.data.download import MULTI30K_SHA256, MULTI30K_URL, download, verify
from transformer_lib.data.tokenizers import one_line

_REPOSITORY_DATA = Path(__file__).parent.parent.parent / "data"
_INSTALLED_SAMPLE = Path(__file__).parent / "sample"
_IN_REPOSITORY = (_REPOSITORY_DATA / "sample").is_dir() and not _INSTALLED_SAMPLE.is_dir()
_SAMPLE = _REPOSITORY_DATA / "sample" if _IN_REPOSITORY else _INSTALLED_SAMPLE

CORPORA = ("sample", "multi30k")
_HELD_OUT = ("val", "test")  # what is taken off a corpus that has nothing held out
_MOST_UNPACKED = 2**26, 100  # bytes, or times its size, that a packed text may have; gzip makes text a third as large


class CorpusError(RuntimeError):
    """A corpus is unavailable, or its files cannot be used. The message says what to do."""

    def __init__(self, message: str):
        super().__init__(one_line(message))  # a file may be called anything


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
        source: a folder, a table, two files or a list of pairs; None if it is downloaded.
        held_out: those of its splits that are taken off the training pairs, because they have no files.
    """

    name: str
    src: str
    tgt: str
    splits: tuple[str, ...]
    source: Path | tuple[Path, Path] | list[Any] | None = field(repr=False)
    held_out: tuple[str, ...] = ()
    _pairs: dict[str, list[Pair]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_own(self) -> bool:
        """Whether the sentences are the user's own."""
        return self.source not in (None, _SAMPLE)

    @property
    def path(self) -> str:
        """What ``load_corpus`` opens files of your own by again, absolute: one path a line. Else, it is empty."""
        if not self.is_own or isinstance(self.source, list):
            return ""
        return "\n".join(map(str, self.source if isinstance(self.source, tuple) else (self.source,)))

    def __getitem__(self, split: str) -> list[Pair]:
        """Return the pairs of a split. What cannot be used is left out; the standard error says how much, and where.

        Raises:
            CorpusError: there is no such split, its file is unavailable or not UTF-8, its two sides differ in length,
                or most of it cannot be used.
        """
        self._check(split)
        if split not in self._pairs:
            from_train = split in ("train", *self.held_out)
            try:
                rows = self._rows("train" if from_train else split)
                pairs = own.usable(rows, self._log) if self.is_own else [row for _, row in rows]
                if self.is_own:
                    own.check_languages(pairs, self.src, self.tgt)
                parts = own.split_off(pairs, self.held_out) if from_train and self.held_out else {split: pairs}
            except ValueError as error:
                raise CorpusError(f"corpus {self.name!r}: {error}") from None
            self._pairs.update({name: [Pair(*pair) for pair in part] for name, part in parts.items()})
            if len(parts) > 1:
                self._log(", ".join(f"{len(part):,} pairs for {name}" for name, part in parts.items()))
        return list(self._pairs[split])

    def lines(self, split: str, ending: str) -> list[str]:
        """Read a file that belongs to a split, such as the sample corpus's ``align`` and ``tree`` files.

        Raises:
            CorpusError: there is no such split, it has no file of its own, or that is unavailable or not UTF-8.
        """
        self._check(split)
        file = f"{split}.{ending}"
        if self.source is None:
            path = fetch("multi30k", f"{file}.gz", MULTI30K_URL, f"sha256:{MULTI30K_SHA256[f'{file}.gz']}")
        elif isinstance(self.source, Path) and self.source.is_dir() and split not in self.held_out:
            path = self.source / (file if (self.source / file).exists() else f"{file}.gz")
        else:
            raise CorpusError(f"corpus {self.name!r} has no file for {split!r} alone: corpus[{split!r}] has its pairs")
        return read_text(path)

    def _check(self, split: str) -> None:
        if split not in self.splits:
            raise CorpusError(f"split is {split!r}, but corpus {self.name!r} has {', '.join(self.splits)}")

    def _log(self, line: str) -> None:
        if os.environ.get("RANK") in (None, "", "0"):  # the first of several processes
            print(one_line(f"corpus {self.name!r}: {line}"), file=sys.stderr, flush=True)

    def _rows(self, split: str) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield the number of each line, and what is in its columns."""
        if isinstance(self.source, list):
            return enumerate(self.source, start=1)
        if isinstance(self.source, Path) and self.source.is_file():
            lines = read_text(self.source, strip=" \r")  # an empty first column is a column
            return own.table_rows(lines, self.source.name, self.src, self.tgt)
        if isinstance(self.source, tuple):
            sides = list(zip(map(read_text, self.source), (self.src, self.tgt), strict=True))
        else:
            sides = [(self.lines(split, language), language) for language in (self.src, self.tgt)]
        (longer, language), (shorter, other) = sorted(sides, key=lambda side: -len(side[0]))
        if len(longer) > len(shorter):
            line = own.first_misaligned_line(longer, shorter)
            raise ValueError(
                f"{split} has {len(longer):,} lines in {language!r} but {len(shorter):,} in {other!r}: line n of one "
                "must be the translation of line n of the other"
                + (f". By the lengths of the lines, {language!r} has one too many near line {line}" if line else "")
            )
        return enumerate(zip(sides[0][0], sides[1][0], strict=True), start=1)


def load_corpus(source: str | Path | Iterable[Any] = "sample", src: str = "de", tgt: str = "en") -> Corpus:
    """Open a corpus by name, or your own.

    Where your own has nothing held out, ``val`` and ``test`` are taken off its training pairs: the same ones each time,
    a twentieth of the source sentences each and at most 1,000. Text is UTF-8; all files may end in ``.gz``.

    Args:
        source: one of

            - ``"sample"``, ``"multi30k"``.
            - a folder with ``train.<src>``, ``train.<tgt>`` and, if you have them, ``val.<src>``, ``val.<tgt>``,
              ``test….<src>``, ``test….<tgt>``.
            - two files, ``("text.de", "text.en")``: line n of one is the translation of line n of the other.
            - a table with a pair in each line: ``pairs.tsv``, with a tab between the columns, or ``pairs.csv``, with
              a comma or a semicolon. A first line with the language codes says which columns they are; without one,
              they are the first two.
            - a list of pairs, or any other iterable of them, ``[("Ein Hund", "A dog"), …]``.
        src, tgt: codes of the languages to translate from and to.

    Raises:
        CorpusError: there is no such corpus, or it does not have these languages.
    """

    def whole(name: str, source: Path | tuple[Path, Path] | list[Any]) -> Corpus:
        return Corpus(name, src, tgt, ("train", *_HELD_OUT), source, _HELD_OUT)

    if isinstance(source, str) and "\n" in source:  # two files, as Corpus.path writes them
        source = source.split("\n")
    if not isinstance(source, str | Path):
        source = list(source)  # it may be a zip, or rows of a csv.reader
        if len(source) == 1 and isinstance(source[0], str | Path):
            source = source[0]
    if not isinstance(source, str | Path):
        if not all(isinstance(file, str | Path) for file in source):
            return whole("pairs", source)
        if len(source) != 2 or not all(Path(file).is_file() for file in source):
            found = ", ".join(str(file)[:60] for file in source[:3]) or "empty"
            raise CorpusError(f"corpus is {found}, expected two files that exist, one for {src} and one for {tgt}")
        files = Path(source[0]).resolve(), Path(source[1]).resolve()
        corpus = whole(files[0].name.split(".")[0], files)
        endings = [Path(file.name.removesuffix(".gz")).suffixes[-1:] for file in files]
        if endings != [[f".{src}"], [f".{tgt}"]] and all(one and len(one[0]) == 3 for one in endings):
            corpus._log(f"{files[0].name} is read as {src!r}, {files[1].name} as {tgt!r}: is that right?")
        return corpus
    if source == "multi30k":  # a Path of that name is a folder
        if {src, tgt} != {"de", "en"}:
            raise CorpusError(f"src={src!r} and tgt={tgt!r}, but corpus 'multi30k' has 'de' and 'en' here")
        splits = tuple(dict.fromkeys(file.split(".")[0] for file in MULTI30K_SHA256))
        return Corpus("multi30k", src, tgt, splits, None)
    path = _SAMPLE if source == "sample" else Path(source).resolve()
    if path.is_file():
        return whole(path.name.split(".")[0], path)
    if not path.is_dir():
        raise CorpusError(
            f"corpus is {str(source)!r}, expected one of {', '.join(CORPORA)}, or a folder or file of your own"
        )
    if src == tgt:
        raise CorpusError(f"src and tgt are both {src!r}, but a folder has one file for a language: give two files")
    files = sorted({file.name.removesuffix(".gz") for file in path.iterdir()})
    found = dict.fromkeys(
        file.removesuffix(f".{code}") for file in files for code in (src, tgt) if file.endswith(f".{code}")
    )
    tests, val = [split for split in found if split.startswith("test")], ["val"] if "val" in found else []
    for split in ("train", *val, *tests):
        for language in (src, tgt):
            if f"{split}.{language}" not in files:
                raise CorpusError(f"corpus {path.name!r} has no {split}.{language} or {split}.{language}.gz")
    held_out = () if val else _HELD_OUT[:1] if tests else _HELD_OUT
    corpus = Corpus(path.name, src, tgt, ("train", *val, *held_out, *tests), path, held_out)
    if "val" in held_out and (others := [split for split in found if split.startswith(("valid", "dev"))]):
        corpus._log(f"{others[0]}.{src} is not read: the pairs to validate on are called val.{src} and val.{tgt}")
    return corpus


def cache_folder() -> Path:
    """Return where downloads are looked for and kept: ``$TRANSFORMER_LIB_DATA``, else the project's or user's cache."""
    if folder := os.environ.get("TRANSFORMER_LIB_DATA"):
        return Path(folder).expanduser()
    return _REPOSITORY_DATA / "cache" if _IN_REPOSITORY else Path(pooch.os_cache("transformer-lib"))


def read_text(path: str | Path, strip: str | None = None) -> list[str]:
    """Read the lines of a text file, plain or ``.gz``; some may be empty.

    Args:
        strip: what is taken off both ends of a line: these characters, or else all white space.

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
    lines = [line.strip(strip) for line in text.removesuffix(end).split(end)]
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
