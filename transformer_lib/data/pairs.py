"""Sentence pairs of your own: what cannot be used is counted and left out, and held-out splits are taken off."""

import contextlib
import csv
import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from transformer_lib.data.tokenizers import check_text, frequent_words, normalize

_SEED = 1234  # of the splits
_MOST_HELD_OUT = 1000
_SHOWN = 3
# what pairs may be left out for, and what is likely to be wrong if most of them are
KINDS = {
    "empty": "A side is empty: is it the right file, or the right columns?",
    "no pair": "They are not two texts: does a file have another delimiter, or a list anything but (source, target)?",
    "not aligned": "One side is ten times as long as the other: is a line missing in a file, so that the rest moved?",
    "too long": "There are more tokens than the model has positions (max_len): is it one paragraph a line?",
    "not text": "It is not text: was the file written in another encoding?",
}


class UnusablePair(ValueError):
    """A pair that cannot be trained on; ``kind`` is one of ``KINDS``."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def report_left_out(left_out: Mapping[str, list[tuple[int, object]]], total: int, log: Callable[[str], None]) -> None:
    """Say which of ``total`` pairs have been left out: a line for each of ``KINDS``, with the first three.

    Raises:
        ValueError: it is more than half of them; the message says the likely cause.
    """
    lines = {}
    for kind, found in sorted(left_out.items(), key=lambda item: -len(item[1])):
        texts = [(number, repr(pair)) for number, pair in found[:_SHOWN]]  # repr has no control characters
        shown = [f"{number} {text if len(text) <= 60 else f'{text[:59]}…'}" for number, text in texts]
        lines[kind] = f"{len(found):,} of {total:,} pairs left out, {kind}: {'; '.join(shown)}"
    if 2 * sum(map(len, left_out.values())) > total:
        worst = next(iter(lines))
        raise ValueError(f"most pairs cannot be used: {lines[worst]}. {KINDS[worst]}")
    for line in lines.values():
        log(line)


def usable(rows: Iterable[tuple[int, Sequence[str]]], log: Callable[[str], None]) -> list[tuple[str, str]]:
    """Return the pairs that have two sides which could be translations of each other.

    Args:
        rows: numbers of lines, and what is in their columns.
        log: called with a line for each kind of pairs that are left out.

    Raises:
        ValueError: most cannot be used.
    """
    rows, pairs = list(rows), []
    left_out: dict[str, list[tuple[int, object]]] = defaultdict(list)
    for number, row in rows:
        if not isinstance(row, tuple | list) or len(row) != 2 or not all(isinstance(side, str) for side in row):
            left_out["no pair"].append((number, row))
            continue
        shorter, longer = sorted(len(side.strip()) for side in row)
        if not shorter:
            left_out["empty"].append((number, row))
        elif longer > 10 * shorter + 30:
            left_out["not aligned"].append((number, row))
        else:
            try:
                check_text("\n".join(row))
            except ValueError:
                left_out["not text"].append((number, row))
            else:
                pairs.append((row[0].strip(), row[1].strip()))
    report_left_out(left_out, len(rows), log)
    if not pairs:
        raise ValueError("there are no pairs")
    return pairs


def split_off(pairs: Sequence[tuple[str, str]], names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Take held-out splits off the training pairs: a twentieth of the source sentences each, at most 1,000.

    A sentence's hash decides where it goes, not its place: the splits hardly change if lines are added or moved. All
    translations of a source sentence go together, and so do spellings that a lower-casing model cannot tell apart
    (case, white space, how an accent is encoded), so that nothing in ``train`` is held out as well.

    Raises:
        ValueError: there are too few different source sentences.
    """
    seen = [normalize(src.lower()) for src, _ in pairs]
    sources = {src: hashlib.sha256(f"{_SEED} {src}".encode("utf-8", "surrogatepass")).digest() for src in seen}
    size = max(1, min(_MOST_HELD_OUT, len(sources) // 20))
    if len(sources) < 2 * size * len(names):
        raise ValueError(
            f"it has {len(sources)} different source sentences, expected at least {2 * size * len(names)}, to hold out "
            f"{' and '.join(names)}: add more, or make a folder with files for each split"
        )
    order = sorted(sources, key=sources.__getitem__)
    split_of = {src: name for i, name in enumerate(names) for src in order[i * size : (i + 1) * size]}
    parts: dict[str, list[tuple[str, str]]] = {"train": [], **{name: [] for name in names}}
    for src, pair in zip(seen, pairs, strict=True):
        parts[split_of.get(src, "train")].append(pair)
    return {name: part if name == "train" else list(dict.fromkeys(part)) for name, part in parts.items()}


def first_misaligned_line(longer: Sequence[str], shorter: Sequence[str]) -> int | None:
    """Find the first line of ``longer`` that seems to have no partner, by the lengths of the lines (from 1).

    Before it, line n fits line n; after it, line n fits line n − k, k being how many lines there are more. Returns None
    if it fits neither way.
    """
    extra = len(longer) - len(shorter)
    logs = [[math.log(1 + len(line)) for line in side] for side in (longer, shorter)]
    unmoved = [abs(a - b) for a, b in zip(logs[0], logs[1], strict=False)]
    moved = [abs(a - b) for a, b in zip(logs[0][extra:], logs[1], strict=True)]
    gains = [0.0, *accumulate(b - a for a, b in zip(unmoved, moved, strict=True))]  # of not moving the first i lines
    best = max(range(len(gains)), key=gains.__getitem__)
    found, first, last = sum(moved) - gains[best], sum(moved), sum(unmoved)
    return best + 1 if found <= 0.8 * max(first, last) or best == len(shorter) else None


def table_rows(lines: list[str], name: str, src: str, tgt: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number of each line of a table, and its source and target sentence; ``name`` is its file's."""
    names = [f"{language}".lower() for language in (src, tgt)]  # a tokeniser may have no language
    if name.removesuffix(".gz").endswith(".csv"):

        def read(delimiter: str, line: str, strict: bool = False) -> list[str]:
            """Read a line on its own, so that a quotation mark too many costs one line."""
            return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=strict), [])

        def fit(delimiter: str) -> tuple[bool, int, int]:
            """Say whether line 1 names both languages, how many lines have columns, and how many the usual number."""
            header, columns = {cell.strip().lower() for cell in read(delimiter, lines[0])}, Counter()
            for line in lines[:100]:
                with contextlib.suppress(csv.Error):  # of strict: a quotation mark that this delimiter does not explain
                    columns[len(read(delimiter, line, strict=True))] += 1
            columns = Counter({number: count for number, count in columns.items() if number >= 2})
            return {*names} <= header, columns.total(), max(columns.values(), default=0)

        try:
            delimiter = max(";,", key=fit)
            rows = [read(delimiter, line) for line in lines]
        except csv.Error as error:
            raise ValueError(f"{name} cannot be read as CSV ({error})") from None
    else:
        rows = [line.split("\t") for line in lines]
    header, columns = [cell.strip().lower() for cell in rows[0]], [0, 1]
    if has_header := all(header.count(one) >= names.count(one) for one in names):
        columns = [header.index(names[0]), len(header) - 1 - header[::-1].index(names[1])]  # one code, two columns
    for number, row in enumerate(rows[has_header:], start=1 + has_header):
        yield number, tuple(row[column] for column in columns) if len(row) > max(columns) else tuple(row[:1])


def check_languages(pairs: Sequence[tuple[str, str]], src: str | None, tgt: str | None) -> None:
    """Raise a ValueError if the most frequent words of the two languages say that the sides are swapped."""
    src_words, tgt_words = frequent_words(src), frequent_words(tgt)
    sides = [re.findall(r"\w+", " ".join(side).lower()) for side in zip(*pairs[:500], strict=True)]
    hits = [
        [sum(w in known for w in side) for known in (src_words - tgt_words, tgt_words - src_words)] for side in sides
    ]
    straight, swapped = hits[0][0] + hits[1][1], hits[0][1] + hits[1][0]
    if src_words and tgt_words and swapped > 10 + 4 * straight:
        raise ValueError(
            f"the languages look swapped: src is {src!r}, but the source side reads like {tgt!r}. Swap the files or "
            f"columns, or give src={tgt!r} and tgt={src!r}"
        )
