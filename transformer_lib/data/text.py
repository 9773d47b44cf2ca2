"""What is true of text before and after tokens: one spelling, codes of languages, and back to readable sentences."""

import re
import unicodedata
from collections.abc import Iterable

WITHOUT_SPACES = ("zh", "ja", "th", "lo", "km", "my")  # languages that are written without spaces between words
_TWO_LETTERS = {"zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo"}
_TWO_LETTERS |= {"khm": "km", "mya": "my", "bur": "my", "fra": "fr", "fre": "fr", "ita": "it", "cat": "ca"}
_MAX_MARKS = 499  # in a row: Unicode's time to bring them into order grows with the square of their number


def two_letters(language: str | None) -> str:
    """Return what ISO 639-1 calls a language, as far as it matters here: ``"zh"`` for ``"zh_CN"`` and ``"cmn"``."""
    code = re.split("[-_]", language or "")[0].lower()
    return _TWO_LETTERS.get(code, code)


def check_text(text: str) -> None:
    """Raise a ValueError if a text holds half of a pair of surrogates, which is no character, or marks without end."""
    text.encode()
    if _has_endless_marks(text):
        raise ValueError(f"sentence has more than {_MAX_MARKS} combining marks in a row: is it text?")


def can_be_written(text: str) -> bool:
    """Return whether a text is without halves of pairs of surrogates, which are no characters."""
    return re.search("[\ud800-\udfff]", text) is None


def _has_endless_marks(text: str) -> bool:
    starts = range(0, len(text) - _MAX_MARKS, _MAX_MARKS + 1)
    return any(all(map(unicodedata.combining, text[start : start + _MAX_MARKS + 1])) for start in starts)


def normalize(text: str) -> str:
    """Return text in Unicode's form NFC (a letter and its accent are one character), with single spaces.

    What has hundreds of combining marks in a row keeps them as they are: it is no text (see ``check_text``).
    """
    text = text.translate({0x200B: " ", 0xFEFF: None})  # a zero-width space, a byte-order mark
    if not _has_endless_marks(text):
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def detokenize(tokens: Iterable[str]) -> str:
    """Join spaCy tokens into a sentence as people write it: no space before a full stop, none around a hyphen.

    It is a guess, since tokens do not tell: "5 - 3" becomes "5-3", and an apostrophe that ends a word, as in "the dogs'
    tails", stands alone. The time it takes grows with the length alone, whatever the tokens are.
    """
    text = " ".join(tokens)
    text = re.sub(r" ([.,!?;:)\]}%…؟،؛۔।])", r"\1", text)
    text = re.sub(r"([(\[{#$¿¡]) ", r"\1", text)
    text = re.sub(r" (n['’]t|['’](?:s|m|re|ve|ll|d))\b", r"\1", text)
    text = re.sub(r"\b(can) (not)\b|\b(gon) (na)\b", r"\1\2\3\4", text)
    text = re.sub(r"(?<=\w) ([-/]) (?=\w)", r"\1", text)
    text = re.sub(r'(["“”„]) ([^"“”„]+) (["“”])', r"\1\2\3", text)
    return " ".join(text.split())
