"""Where sentence pairs come from: the embedded sample corpus, Multi30k, or your own. Notebook 01, section 1."""

import gzip
import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from transformer_lib.data.text import normalize
from transformer_lib.files import IS_INSTALLED, OneLineError, say, shipped

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "IProgress not found")  # notebooks without ipywidgets get a bar of text
    import pooch

CORPORA = ("sample", "multi30k")
PREPARED_FILE = "train.safetensors"  # what ``prepare`` writes in place of a training split
# of each corpus, the address, and its files' checksums
DOWNLOADS = json.loads(Path(__file__).with_name("downloads.json").read_text("utf-8"))
_TIMEOUT_S = 5, 30  # to connect, and without a single byte


class CorpusError(OneLineError):
    """A corpus is unavailable, or its files cannot be used. The message says what to do."""


class Pair(NamedTuple):
    """A sentence and its translation."""

    src: str
    tgt: str


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs in splits; files are read (and downloaded) when a split is first asked for.

    Attributes:
        name: what messages call it.
        src, tgt: language codes, which are also the endings of its files.
        splits: the training split first, then the validation split, then those for testing.
        source: what ``load_corpus`` opens it by again: one of ``CORPORA``, the path of a folder, or those of two files;
            of a list of pairs, nothing.
        pairs: of the splits that have been read.
    """

    name: str
    src: str
    tgt: str
    splits: tuple[str, ...] = ("train", "val", "test")
    source: tuple[str, ...] = ()
    pairs: dict[str, list[Pair]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def prepared(self) -> bool:
        """Whether the training split is there as ids only, which a ``PreparedDataset`` reads."""
        file = Path(*self.source, PREPARED_FILE)
        return file.is_absolute() and file.is_file()

    def __getitem__(self, split: str) -> list[Pair]:
        """Return the pairs of a split; a CorpusError if it is unavailable, or its two files differ in length."""
        if split not in self.splits:
            raise CorpusError(f"split is {split!r}, but corpus {self.name!r} has {', '.join(self.splits)}")
        if split == "train" and self.prepared:
            raise CorpusError(
                f"split is 'train', of which {self.source[0]} holds ids only: it was prepared, perhaps for other "
                f"languages than {self.src} to {self.tgt} (--src and --tgt, or src and tgt, say which)"
            )
        if split not in self.pairs:
            self.pairs[split] = _read_pairs(self._file(split, self.src), self._file(split, self.tgt))
        return list(self.pairs[split])

    def lines(self, split: str, ending: str) -> list[str]:
        """Read a file of a split, such as the sample corpus's ``align`` and ``tree``; see ``read_text``."""
        return read_text(self._file(split, ending))

    def _file(self, split: str, ending: str) -> Path:
        match self.source:
            case ["multi30k"]:
                return fetch("multi30k", f"{split}.{ending}.gz")
            case ["sample"]:
                return shipped("data/sample") / f"{split}.{ending}"
            case [folder]:
                return Path(folder) / f"{split}.{ending}"
            case _:  # two files, or pairs
                raise CorpusError(f"split is {split!r}, of which corpus {self.name!r} has no file {split}.{ending}")

    def _hold_out(self, pairs: Sequence[Pair], names: Sequence[str] = ("val", "test")) -> "Corpus":
        """Take held-out splits off training pairs: a twentieth of the source sentences each, at most 1,000.

        A sentence's hash decides where it goes, not its place: the splits hardly change if lines are added or moved.
        All pairs whose sources a model may read alike go together, in one split: sources that differ in case, in white
        space, as a copy does whose tokens are between spaces, or in how Unicode spells a letter.
        """
        read_alike = []
        hashes: dict[str, bytes] = {}  # the least of a sentence's spellings
        for pair in pairs:
            source = normalize(pair.src.lower())
            key = "".join(source.split())
            digest = hashlib.sha256(f"1234 {source}".encode(errors="surrogatepass")).digest()
            hashes[key] = min(digest, hashes.get(key, digest))
            read_alike.append(key)
        order = sorted(hashes, key=hashes.__getitem__)
        size = max(1, min(1000, len(order) // 20))
        least = 2 * size * len(names)
        if len(order) < least:
            raise CorpusError(f"corpus {self.name!r} has {len(order)} different source sentences, expected {least}")
        held_out = [name for name in names for _ in range(size)]
        split_of = dict(zip(order, held_out, strict=False))  # all others are trained on
        self.pairs.update({split: [] for split in ("train", *names)})
        for key, pair in zip(read_alike, pairs, strict=True):
            self.pairs[split_of.get(key, "train")].append(pair)
        return self


def load_corpus(source: str | Path | Iterable[Any] = "sample", src: str = "de", tgt: str = "en") -> Corpus:
    """Open a corpus by name, or your own: text in UTF-8, plain or ``.gz``, and taken as it is.

    ``&amp;``, for example, stays ``&amp;``: Multi30k's captions have some, and a model trained on them writes it.

    Where your own has nothing held out, ``val`` and ``test`` are taken off its training pairs: the same ones each time,
    a twentieth of the source sentences each and at most 1,000.

    Args:
        source: ``"sample"`` or ``"multi30k"``; or a folder with ``train.<src>``, ``train.<tgt>`` and, if you have them,
            the same of ``val`` and ``test…``; two files, ``("text.de", "text.en")``, line n of one the translation of
            line n of the other; or any iterable of pairs, ``[("Ein Hund", "A dog"), …]``.
        src, tgt: codes of the languages to translate from and to.

    Raises a CorpusError if there is no such corpus, or a ValueError that names what is no pair.
    """
    match [source] if isinstance(source, str | Path) else list(source):
        case ["multi30k"]:
            splits = dict.fromkeys(file.split(".")[0] for file in DOWNLOADS["multi30k"][1])
            return Corpus("multi30k", src, tgt, tuple(splits), ("multi30k",))
        case ["sample"]:
            return Corpus("sample", src, tgt, source=("sample",))
        case [str() | Path() as folder]:
            return _open_folder(folder, src, tgt)
        case [str() | Path() as src_file, str() | Path() as tgt_file]:
            files = Path(src_file).resolve(), Path(tgt_file).resolve()
            name = files[0].name.split(".")[0]
            return Corpus(name, src, tgt, source=(str(files[0]), str(files[1])))._hold_out(_read_pairs(*files))
        case rows:
            return Corpus("pairs", src, tgt)._hold_out(as_pairs(rows))


def _open_folder(name: str | Path, src: str, tgt: str) -> Corpus:
    folder = Path(name).resolve()
    if not folder.is_dir():
        raise CorpusError(f"corpus is '{name}', expected {', '.join(CORPORA)}, a folder, two files, or pairs")
    files = {file.name.removesuffix(".gz") for file in folder.iterdir()}
    tests = sorted(file[: -len(src) - 1] for file in files if file.startswith("test") and file.endswith(f".{src}"))
    held_out = [] if f"val.{src}" in files else ["val"] if tests else ["val", "test"]
    splits = ("train", "val", *(tests or held_out[1:]))
    corpus = Corpus(folder.name, src, tgt, splits, (str(folder),))
    return corpus._hold_out(corpus["train"], held_out) if held_out else corpus


def as_pairs(rows: Iterable[Any]) -> list[Pair]:
    """Return rows as pairs without white space around the sentences; a ValueError names the first that is none."""
    pairs = []
    for number, row in enumerate(rows, start=1):
        match row:
            case [str() as src, str() as tgt]:
                pairs.append(Pair(src.strip(), tgt.strip()))
            case _:
                raise ValueError(f"pair {number} is {row!r:.60}, expected a sentence and its translation")
    return pairs


def _read_pairs(src: Path, tgt: Path) -> list[Pair]:
    """Read two files, line n of one the translation of line n of the other."""
    src_lines, tgt_lines = read_text(src), read_text(tgt)
    if len(src_lines) != len(tgt_lines):
        raise CorpusError(f"{src} has {len(src_lines):,} lines but {tgt} has {len(tgt_lines):,}, expected as many")
    return list(map(Pair, src_lines, tgt_lines))


def read_text(path: Path) -> list[str]:
    """Read the lines of a text file, or of the one with ``.gz`` at its end, without white space around them.

    A CorpusError if it is not UTF-8; UTF-16 without a byte-order mark looks like it, with a zero in every other place.
    """
    packed = path.with_name(f"{path.name}.gz")
    if packed.exists() and not path.exists():
        path = packed
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CorpusError(f"{path} cannot be read as UTF-8 text: {error}") from error
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def cache_folder() -> Path:
    """Return where downloads are looked for and kept: ``$TRANSFORMER_LIB_DATA``, else the project's or user's cache."""
    default = pooch.os_cache("transformer-lib") if IS_INSTALLED else shipped("data/cache")
    return Path(os.environ.get("TRANSFORMER_LIB_DATA") or default).expanduser()


def fetch(corpus: str, file: str) -> Path:
    """Return the path of a corpus's file in the cache; what is not there as it was published is downloaded.

    Another file of that name stays, as ``….refused``: somebody has put it there.
    """
    path = cache_folder() / corpus / file
    url, checksums = DOWNLOADS[corpus]
    try:
        expected = checksums[file]
        if path.exists() and _checksum(path, expected) != expected:
            path.replace(path.with_name(f"{file}.refused"))
            say(f"{path}.refused is what was there: it is not the published file")
        download = pooch.HTTPDownloader(progressbar=True, timeout=_TIMEOUT_S)
        pooch.create(path.parent, url, registry={file: None}).fetch(file, downloader=download)
        found = _checksum(path, expected)
        if found != expected:
            path.unlink()
            raise ValueError(f"its checksum is {found}, expected {expected}")
    except (OSError, KeyError, ValueError) as error:
        raise CorpusError(
            f"{file} of corpus {corpus!r} could not be downloaded from {url}{file} ({error}). Set TRANSFORMER_LIB_DATA "
            f"to a folder that holds {corpus}/{file}, or use the corpus 'sample', which needs no network"
        ) from error
    return path


def _checksum(path: Path, like: str) -> str:
    """Return a file's checksum, of the kind of another: git's of a blob, or SHA-256."""
    if not like.startswith("git-blob:"):
        return pooch.file_hash(path)
    content = path.read_bytes()
    header = b"blob %d\0" % len(content)
    return f"git-blob:{hashlib.sha1(header + content).hexdigest()}"
