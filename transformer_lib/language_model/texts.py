"""Where running text comes from: a novel, WikiText-2, one side of a parallel corpus, or files of your own."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformer_lib.data.corpora import CORPORA, CorpusError, fetch, load_corpus, read_text

TEXTS = ("wikitext-2", "wikitext-2-valid", "pride-and-prejudice", *CORPORA)
_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "data" / "texts", _PACKAGE.parent / "data" / "texts")  # in a wheel; in the repository


@dataclass(frozen=True)
class Text:
    """Running text in splits, for a language model; files are read (and downloaded) when a split is first asked for.

    Attributes:
        name: what messages call it.
        language: the language whose spaCy tokeniser it needs; None if spaces separate its tokens already.
        splits: names of the splits, the training split first, then the validation split, then one or more for testing.
        path: of a text of your own, absolute.
    """

    name: str
    language: str | None
    splits: tuple[str, ...]
    _read: Callable[[str], list[str]]
    path: str = ""

    def __reduce__(self) -> tuple:  # pickled by its name or path, and opened again
        return load_text, (self.path or self.name, self.language)

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

            - ``"wikitext-2"``: articles from Wikipedia.
            - ``"wikitext-2-valid"``: trains on the first nine tenths of its file ``valid.txt`` and validates on the
              rest; the training file is ten times as large.
            - ``"pride-and-prejudice"``: Jane Austen's novel, which comes with the library: a paragraph a line, nine
              tenths to train on, a twentieth to validate, a twentieth to test.
            - ``"sample"``, ``"multi30k"``: one side of the parallel corpus, English unless ``language`` says ``"de"``.
            - a text file: its first eight tenths to train on, a tenth to validate, a tenth to test.
            - a folder with ``train.txt``, ``valid.txt`` and, if you have them, ``test….txt``.

            Your own files may end in ``.gz``.
        language: of your own text, whose spaCy tokeniser it needs; None if spaces separate its tokens already.

    Raises:
        CorpusError: there is no such text, or a file of it is missing.
    """
    path = Path(name).resolve()
    name = name if isinstance(name, str) else str(path)  # a Path is no name of ours
    if name in ("wikitext-2", "wikitext-2-valid"):
        if language is not None:
            raise CorpusError(f"language is {language!r}, but text {name!r} is cut into tokens already: leave it out")
        parts = {"train": (0.0, 0.9), "valid": (0.9, 1.0)} if name == "wikitext-2-valid" else {}

        def read(split: str) -> list[str]:
            file = f"{'valid' if split in parts else split}.txt"
            located = fetch("wikitext-2", file)
            return _read_part(located, split, *parts.get(split, (0.0, 1.0)))

        return Text(name, None, ("train", "valid", "test"), read)
    if name == "pride-and-prejudice":
        if language not in (None, "en"):
            raise CorpusError(f"language is {language!r}, but text {name!r} is in English")
        shares = {"train": (0.0, 0.9), "valid": (0.9, 0.95), "test": (0.95, 1.0)}
        novel = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0]) / f"{name}.txt"
        return Text(name, "en", tuple(shares), lambda split: _read_part(novel, split, *shares[split]))
    if name in CORPORA:
        side, corpus = language or "en", load_corpus(name)
        if side not in (corpus.src, corpus.tgt):
            raise CorpusError(f"language is {side!r}, but corpus {name!r} has {corpus.src} and {corpus.tgt}")
        return Text(name, side, corpus.splits, lambda split: corpus.lines(split, side))
    if path.is_file():
        parts = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0)}
        title = path.name.removesuffix(".gz").removesuffix(".txt")
        return Text(title, language, tuple(parts), lambda split: _read_part(path, split, *parts[split]), str(path))
    if path.is_dir():
        files = {  # the plain file, where there are both
            file.name.removesuffix(ending): file for ending in (".txt.gz", ".txt") for file in path.glob(f"*{ending}")
        }
        for split in ("train", "valid"):
            if split not in files:
                raise CorpusError(f"text {path.name!r} has no {split}.txt or {split}.txt.gz in {path}")
        splits = ("train", "valid", *(split for split in sorted(files) if split.startswith("test")))
        return Text(path.name, language, splits, lambda split: read_text(files[split]), str(path))
    raise CorpusError(f"text is {name!r}, expected one of {', '.join(TEXTS)}, or a file or folder of your own")


def _read_part(path: Path, split: str, start: float, end: float) -> list[str]:
    """Read the lines of a file from one share of them to another."""
    lines = read_text(path)
    first, last = round(start * len(lines)), round(end * len(lines))
    if not any(lines[first:last]):
        raise CorpusError(
            f"{path} has {len(lines)} lines, and no text in those from {first + 1} to {last}, its part {split!r}: "
            "break the text into more lines, or put train.txt, valid.txt and test.txt into a folder"
        )
    return lines[first:last]
