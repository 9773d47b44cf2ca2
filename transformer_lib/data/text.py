"""What is true of text before and after tokens: one spelling, codes of languages, and back to readable sentences."""

import re
import unicodedata
from collections.abc import Iterable

WITHOUT_SPACES = ("zh", "ja", "th", "lo", "km", "my")  # languages that are written without spaces between words
_TWO_LETTERS = {"zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo"}
_TWO_LETTERS |= {"khm": "km", "mya": "my", "bur": "my", "fra": "fr", "fre": "fr", "ita": "it", "cat": "ca"}


def two_letters(language: str | None) -> str:
    """Return what ISO 639-1 calls a language, as far as it matters here: ``"zh"`` for ``"zh_CN"`` and ``"cmn"``."""
    code = re.split("[-_]", language or "")[0].lower()
    return _TWO_LETTERS.get(code, code)


def normalize(text: str) -> str:
    """Return text in Unicode's form NFC (a letter and its accent are one character), with single spaces."""
    text = text.translate({0x200B: " ", 0xFEFF: None})  # a zero-width space, a byte-order mark
    return " ".join(unicodedata.normalize("NFC", text).split())


def detokenize(tokens: Iterable[str]) -> str:
    """Join spaCy tokens into a sentence as people write it: no space before a full stop, none around a hyphen."""
    text = " ".join(tokens)
    text = re.sub(r" ([.,!?;:)\]}%…؟،؛۔।])", r"\1", text)
    text = re.sub(r"([(\[{#$¿¡]) ", r"\1", text)
    text = re.sub(r" (n['’]t|['’](?:s|m|re|ve|ll|d))\b", r"\1", text)
    text = re.sub(r"\b(can) (not)\b|\b(gon) (na)\b", r"\1\2\3\4", text)
    text = re.sub(r"(?<=\w) ([-/]) (?=\w)", r"\1", text)
    text = re.sub(r'(["“”„]) (.*?) (["“”])', r"\1\2\3", text)
    return " ".join(text.split())
