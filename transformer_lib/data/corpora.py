"""Where sentence pairs come from: the embedded sample corpus, Multi30k, or your own. Notebook 01, section 1."""

import gzip
import hashlib
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pooch

from transformer_lib.data.tokenizers import check_text, normalize, one_line

T = TypeVar("T")

DOWNLOADS = {  # where each corpus is published, and the SHA-256 sums of its files, or git's blob id
    "multi30k": (
        "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",
        {
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
        },
    ),
    "wikitext-2": (
        "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/",
        {
            "train.txt": "git-blob:2d84b35af79e411d73ea7cae83c73964c6ac83b4",
            "valid.txt": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test.txt": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
    ),
}
CORPORA = ("sample", "multi30k")
_TIMEOUT_S = 5, 30  # to connect, and without a single byte
_INSTALLED, _REPOSITORY = Path(__file__).parent, Path(__file__).parents[2] / "data"
_IN_REPOSITORY = not (_INSTALLED / "sample").is_dir()
_SAMPLE = (_REPOSITORY if _IN_REPOSITORY else _INSTALLED) / "sample"
_MAX_HELD_OUT = 1000


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
    """Aligned sentences in splits; a split's files are read (and downloaded) when it is first asked for.

    Attributes:
        name: what messages call it.
        src, tgt: language codes, which are also the endings of its files.
        splits: the training split first, then the validation split, then those for testing.
        is_own: whether the sentences are the user's own.
        path: what ``load_corpus`` opens files of your own by again: an absolute path, or two in two lines.
        folder: where the files are, if they are in a folder.
        pairs: of the splits that have been read, or taken off the training split.
    """

    name: str
    src: str
    tgt: str
    splits: tuple[str, ...] = ("train", "val", "test")
    is_own: bool = True
    path: str = ""
    folder: Path | None = None
    pairs: dict[str, list[Pair]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, split: str) -> list[Pair]:
        """Return the pairs of a split. What cannot be used is left out; the standard error says how much, and where.

        Raises a CorpusError if there is no such split, its files cannot be read or differ in length, or most of it
        cannot be used.
        """
        if split not in self.splits:
            raise CorpusError(f"split is {split!r}, but corpus {self.name!r} has {', '.join(self.splits)}")
        if split not in self.pairs:
            sides = [self.lines(split, code) for code in (self.src, self.tgt)]
            self.pairs[split] = self._usable(_aligned([f"{split}.{self.src}", f"{split}.{self.tgt}"], sides))
        return list(self.pairs[split])

    def lines(self, split: str, ending: str) -> list[str]:
        """Read a file of a split, such as the sample corpus's ``align`` and ``tree``; see ``read_text``."""
        if split not in self.splits or (self.is_own and not self.folder):
            raise CorpusError(f"corpus {self.name!r} has no file {split}.{ending}")
        file = self.folder / f"{split}.{ending}" if self.folder else fetch(self.name, f"{split}.{ending}.gz")
        return read_text(file if file.exists() else f"{file}.gz")

    def _hold_out(self, rows: Iterable[Any], names: Sequence[str] = ("val", "test")) -> "Corpus":
        """Take held-out splits off training pairs: a twentieth of the source sentences each, at most 1,000.

        A sentence's hash decides where it goes, not its place: the splits hardly change if lines are added or moved.
        All translations of a source sentence go together, and so do spellings that a lower-casing model cannot tell
        apart (case, white space, how an accent is encoded), so that nothing in ``train`` is held out as well.
        """
        pairs = self._usable(rows)
        sources = [normalize(pair.src.lower()) for pair in pairs]
        order = sorted({*sources}, key=lambda source: hashlib.sha256(f"1234 {source}".encode()).digest())
        size = max(1, min(_MAX_HELD_OUT, len(order) // 20))
        if len(order) < (least := 2 * size * len(names)):
            raise CorpusError(f"corpus {self.name!r} has {len(order)} different source sentences, expected {least}")
        split_of = {source: name for i, name in enumerate(names) for source in order[i * size : (i + 1) * size]}
        for split in ("train", *names):
            part = [pair for pair, at in zip(pairs, sources, strict=True) if split_of.get(at, "train") == split]
            self.pairs[split] = part if split == "train" else list(dict.fromkeys(part))
            self._log(f"{len(self.pairs[split]):,} pairs for {split}")
        return self

    def _usable(self, rows: Iterable[Any]) -> list[Pair]:
        try:
            return usable(rows, check_pair, self._log)
        except ValueError as error:
            raise CorpusError(f"corpus {self.name!r}: {error}") from None

    def _log(self, line: str) -> None:
        if os.environ.get("RANK", "0") in ("", "0"):  # the first of several processes
            print(one_line(f"corpus {self.name!r}: {line}"), file=sys.stderr, flush=True)


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
            - a list of pairs, or any other iterable of them, ``[("Ein Hund", "A dog"), …]``.
        src, tgt: codes of the languages to translate from and to.

    Raises a CorpusError if there is no such corpus, it does not have these languages, or what is split cannot be used.
    """
    if isinstance(source, str | Path):
        source = [source] if isinstance(source, Path) else source.split("\n")  # two files are two lines in Corpus.path
    entries = list(source)
    if not all(isinstance(entry, str | Path) for entry in entries):
        return Corpus("pairs", src, tgt)._hold_out(entries)
    if len(entries) == 2:
        files = [Path(entry).resolve() for entry in entries]
        if src != tgt and [Path(file.name.removesuffix(".gz")).suffix for file in files] == [f".{tgt}", f".{src}"]:
            raise CorpusError(f"src={src!r} and tgt={tgt!r}, but the files are {files[0].name} and {files[1].name}")
        corpus = Corpus(files[0].name.split(".")[0], src, tgt, path="\n".join(map(str, files)))
        return corpus._hold_out(_aligned(files, [read_text(file) for file in files]))
    if entries == ["multi30k"]:  # a Path of that name is a folder
        if {src, tgt} != {"de", "en"}:
            raise CorpusError(f"src={src!r} and tgt={tgt!r}, but corpus 'multi30k' has 'de' and 'en' here")
        splits = dict.fromkeys(file.split(".")[0] for file in DOWNLOADS["multi30k"][1])
        return Corpus("multi30k", src, tgt, tuple(splits), is_own=False)
    folder = _SAMPLE if entries == ["sample"] else Path(*entries[:1]).resolve()
    if len(entries) != 1 or not folder.is_dir() or src == tgt:
        expected = f"{', '.join(CORPORA)}, a folder with files for two languages, two files, or pairs"
        raise CorpusError(
            f"corpus is {', '.join(map(str, entries))[:80]!r} for {src!r} and {tgt!r}, expected one of {expected}"
        )
    files = {file.name.removesuffix(".gz") for file in folder.iterdir()}
    named = {file.removesuffix(f".{code}") for code in (src, tgt) for file in files if file.endswith(f".{code}")}
    tests = sorted(split for split in named if split.startswith("test"))
    given = ("train", "val", *tests) if "val" in named else ("train", *tests)
    for file in (f"{split}.{code}" for split in given for code in (src, tgt)):
        if file not in files:
            raise CorpusError(f"corpus {folder.name!r} has no {file} or {file}.gz")
    held_out = () if "val" in named else ("val",) if tests else ("val", "test")
    splits = given if "val" in named else ("train", *held_out, *tests)
    path = "" if folder == _SAMPLE else str(folder)
    corpus = Corpus(folder.name, src, tgt, splits, folder != _SAMPLE, path, folder)
    return corpus._hold_out(corpus["train"], held_out) if held_out else corpus


def _aligned(files: Sequence[str | Path], sides: Sequence[list[str]]) -> Iterable[tuple[str, ...]]:
    """Return the lines of two files side by side; raise a CorpusError that names both if one has more."""
    if len(sides[0]) != len(sides[1]):
        counts = " but ".join(f"{file} has {len(lines):,} lines" for file, lines in zip(files, sides, strict=True))
        raise CorpusError(f"{counts}: line n of one must be the translation of line n of the other")
    return zip(*sides, strict=True)


def check_pair(pair: Any) -> Pair:
    """Return a pair of sentences without white space around them, or raise a ValueError that says why it is none."""
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
        raise ValueError("no pair: expected a sentence and its translation")
    src, tgt = pair[0].strip(), pair[1].strip()
    if not src or not tgt:
        raise ValueError(f"empty: the {'tgt' if src else 'src'} side has no words")
    try:
        check_text(f"{src}\n{tgt}")
    except ValueError as error:
        raise ValueError(f"not text: {error}") from None
    return Pair(src, tgt)


def usable(pairs: Iterable[Any], make: Callable[[Any], T], log: Callable[[str], None]) -> list[T]:
    """Return what ``make`` makes of each pair, without those for which it raises a ValueError.

    ``log`` is called with a line for each kind of error, which is the message up to a colon: how many, and the first
    three. Raises a ValueError if most pairs cannot be used.
    """
    made: list[T] = []
    left_out: dict[str, list[str]] = defaultdict(list)
    for number, pair in enumerate(pairs, start=1):
        try:
            made.append(make(pair))
        except ValueError as error:
            kind, _, reason = str(error).partition(": ")
            left_out[kind].append(f"pair {number}, {pair!r:.60}: {reason}")  # repr has no control characters
    unusable = sum(map(len, left_out.values()))
    total = unusable + len(made)
    lines = [
        f"{len(some):,} of {total:,} pairs left out, {kind}: {'; '.join(some[:3])}" for kind, some in left_out.items()
    ]
    if unusable > len(made):
        raise ValueError(f"most pairs cannot be used: {'. '.join(lines)}")
    for line in lines:
        log(line)
    return made


def read_text(path: str | Path) -> list[str]:
    """Read the lines of a text file, plain or ``.gz``, without white space around them; some may be empty.

    Raises a CorpusError if the file is missing, empty or not UTF-8.
    """
    path = Path(path)
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = [line.strip() for line in content.decode("utf-8-sig").removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        byte = f"0x{error.object[error.start]:02x}"
        raise CorpusError(f"{path} is not UTF-8: line {line} holds the byte {byte}; is it latin1? Convert it") from None
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} cannot be read ({error}); was it copied or downloaded completely?") from error
    if b"\0" in content:
        raise CorpusError(f"{path} holds zero bytes, as UTF-16 does; if it is that: `iconv -f utf-16 -t utf-8`")
    if not any(lines):
        raise CorpusError(f"{path} is empty")
    return lines


def cache_folder() -> Path:
    """Return where downloads are looked for and kept: ``$TRANSFORMER_LIB_DATA``, else the project's or user's cache."""
    if folder := os.environ.get("TRANSFORMER_LIB_DATA"):
        return Path(folder).expanduser()
    return _REPOSITORY / "cache" if _IN_REPOSITORY else Path(pooch.os_cache("transformer-lib"))


def fetch(corpus: str, file: str) -> Path:
    """Return the path of a corpus's file in the cache; what is not there as it was published is downloaded.

    Raises a CorpusError if it cannot be downloaded, or something else was sent.
    """
    url, checksums = DOWNLOADS[corpus]
    sha256 = checksums[file] if ":" not in checksums[file] else None
    try:
        cache = pooch.create(cache_folder() / corpus, url, registry={file: sha256})
        path = Path(cache.fetch(file, downloader=pooch.HTTPDownloader(progressbar=True, timeout=_TIMEOUT_S)))
        blob = b"blob %d\0" % path.stat().st_size + path.read_bytes()
        if sha256 is None and (checksum := f"git-blob:{hashlib.sha1(blob).hexdigest()}") != checksums[file]:
            path.unlink()
            raise ValueError(f"its checksum is {checksum}, expected {checksums[file]}")
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{file} of corpus {corpus!r} could not be downloaded from {url}{file} ({error}). Set TRANSFORMER_LIB_DATA "
            f"to a folder that holds {corpus}/{file}, or use the corpus 'sample', which needs no network"
        ) from error
    return path
