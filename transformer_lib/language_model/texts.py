"""Where running text comes from: a novel, WikiText-2, one side of a parallel corpus, or files of your own."""

from dataclasses import dataclass
from pathlib import Path

from transformer_lib.data.corpora import CORPORA, CorpusError, fetch, load_corpus, read_text
from transformer_lib.files import shipped

TEXTS = ("wikitext-2", "wikitext-2-valid", "pride-and-prejudice", *CORPORA)


@dataclass(frozen=True)
class Text:
    """Running text for a language model: ``lines`` of the training, the validation and the test splits, in this order.

    ``language`` is that whose spaCy tokeniser it needs, or None if spaces separate its tokens already.
    """

    name: str
    language: str | None
    lines: dict[str, list[str]]

    splits = property(lambda self: tuple(self.lines), doc="The names of the splits.")

    def __getitem__(self, split: str) -> list[str]:
        if split not in self.lines:
            raise CorpusError(f"split is {split!r}, but text {self.name!r} has {', '.join(self.lines)}")
        return self.lines[split]


def load_text(name: str | Path = "wikitext-2", language: str | None = None) -> Text:
    """Read running text by name, or your own by its path.

    Args:
        name: one of

            - ``"wikitext-2"``: articles from Wikipedia.
            - ``"wikitext-2-valid"``: nine tenths of its validation split to train on, the rest to validate.
            - ``"pride-and-prejudice"``: Jane Austen's novel, which comes with the library: a paragraph a line.
            - ``"sample"``, ``"multi30k"``: one side of the parallel corpus, English unless ``language`` says ``"de"``.
            - a text file: like the novel, nine tenths to train on, a twentieth to validate, a twentieth to test.
            - a folder with ``train.txt``, ``valid.txt`` and, if you have them, ``test….txt``.
        language: of your own text, whose spaCy tokeniser it needs; None if spaces separate its tokens already.
    """
    path = Path(name)
    if name == "wikitext-2":
        return Text(name, None, {split: _wikitext(split) for split in ("train", "valid", "test")})
    if name == "wikitext-2-valid":
        valid = _wikitext("valid")
        end = round(0.9 * len(valid))
        return Text(name, None, {"train": valid[:end], "valid": valid[end:], "test": _wikitext("test")})
    if name == "pride-and-prejudice":
        return Text(name, "en", _in_three(read_text(shipped("data/texts") / f"{name}.txt")))
    if name in CORPORA:
        corpus = load_corpus(name)
        language = language or "en"
        return Text(name, language, {split: corpus.lines(split, language) for split in corpus.splits[:3]})
    if path.is_dir():
        files = [path / "train.txt", path / "valid.txt", *sorted(path.glob("test*.txt"))]
        return Text(path.resolve().name, language, {file.stem: read_text(file) for file in files})
    if path.is_file():
        return Text(path.stem, language, _in_three(read_text(path)))
    raise CorpusError(f"text is '{name}', expected one of {', '.join(TEXTS)}, or a file or folder of your own")


def _wikitext(split: str) -> list[str]:
    return read_text(fetch("wikitext-2", f"{split}.txt"))


def _in_three(lines: list[str]) -> dict[str, list[str]]:
    test = min(round(0.95 * len(lines)), len(lines) - 1)  # a line each, at least
    valid = min(round(0.9 * len(lines)), test - 1)
    return {"train": lines[:valid], "valid": lines[valid:test], "test": lines[test:]}
