"""Where sentences come from: the embedded sample corpus, Multi30k, or your own files."""

import gzip
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pooch

_REPOSITORY_DATA = Path(__file__).parent.parent / "data"
_INSTALLED_SAMPLE = Path(__file__).parent / "sample"
_IN_REPOSITORY = (_REPOSITORY_DATA / "sample").is_dir() and not _INSTALLED_SAMPLE.is_dir()
_SAMPLE = _REPOSITORY_DATA / "sample" if _IN_REPOSITORY else _INSTALLED_SAMPLE

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
CORPORA = ("sample", "multi30k")
_TIMEOUT_S = 30


class CorpusError(RuntimeError):
    """A corpus cannot be had, or what is in its files cannot be used. The message says what to do."""


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
            CorpusError: there is no such split, its files cannot be had, or they are not two aligned UTF-8 texts.
        """
        return read_pairs(self._path(split, self.src), self._path(split, self.tgt))

    def lines(self, split: str, ending: str) -> list[str]:
        """Read what stands beside a split, such as the sample corpus's ``align`` and ``tree`` files."""
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
    """Read the lines of a text file, plain or ``.gz``, stripped of white space at both ends.

    Raises:
        CorpusError: the file is missing, empty or not UTF-8, or a line is empty.
    """
    try:
        content = Path(path).read_bytes()
        if str(path).endswith(".gz"):
            content = gzip.decompress(content)
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
    if lines == [""]:
        raise CorpusError(f"{path} is empty")
    if "" in lines:
        raise CorpusError(f"{path} has nothing in line {lines.index('') + 1}: remove that line on both sides")
    return lines


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


def _locate_multi30k(file: str) -> Path:
    return _fetch("multi30k", f"{file}.gz", MULTI30K_URL, MULTI30K_SHA256[f"{file}.gz"])


def _fetch(corpus: str, file: str, base_url: str, sha256: str) -> Path:
    """Return the path of a file that has this checksum, downloaded if it is not in the cache yet."""
    path = cache_folder() / corpus / file
    if path.exists():
        if (found := pooch.file_hash(str(path))) != sha256:
            raise CorpusError(
                f"{path} has SHA-256 {found}, expected {sha256}: it is cut off or changed. "
                "Remove it, and it will be downloaded again"
            )
        return path
    pooch.get_logger().setLevel("WARNING")  # the progress bar says enough
    try:
        pooch.retrieve(
            base_url + file,
            known_hash=sha256,
            fname=file,
            path=path.parent,
            downloader=pooch.HTTPDownloader(timeout=_TIMEOUT_S, progressbar=True),
        )
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
        raise CorpusError(
            f"{file} of corpus {corpus!r} could not be downloaded from {base_url + file} ({error}). Two ways out: set "
            f"TRANSFORMER_LIB_DATA to a folder that holds {corpus}/{file}, or use the corpus 'sample', which needs no "
            "network"
        ) from error
    return path
