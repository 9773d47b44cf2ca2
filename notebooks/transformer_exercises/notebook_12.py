"""Checks of the exercises of notebook 12: merges with a pencil, and BERT's way to cut a word."""

from collections.abc import Callable, Iterable

from transformer_exercises import Wrong, call, exercise, expect
from transformer_lib.data.tokenizers import UNK


def _as_pieces(found: Iterable[str], name: str) -> list[str]:
    """Return a reader's pieces as a list of strings."""
    if not isinstance(found, list | tuple) or not all(isinstance(piece, str) for piece in found):
        raise Wrong(f"{name}: a list of strings was expected, such as ['▁t', 'ie'].")
    return list(found)


@exercise("12.1")
def first_merges(four_pieces: list[str], tier: list[str]) -> str:
    """``four_pieces`` that byte-pair encoding joins first in "tief tiefe tiefer tiere", and the pieces of ``tier``."""
    found, cut = _as_pieces(four_pieces, "four_pieces"), _as_pieces(tier, "tier")
    expect(
        "_" not in "".join(found + cut), "the sign in front of a word is ▁, not an underscore; copy it from the text."
    )
    expect(len(found) == 4, f"four_pieces: four were asked for, and there are {len(found)}.")
    first, second, third, fourth = found
    expect(
        first not in ("▁t", "ti"),
        "four_pieces: three pairs occur four times at first. The alphabet decides, and ▁ comes last in it.",
    )
    expect(first == "ie", "four_pieces: count each pair of neighbours in all four words; three pairs occur four times.")
    expect(
        second != "tie",
        "four_pieces: after the first merge, two pairs occur four times; the one that makes the shorter piece is next.",
    )
    expect(second == "▁t", "four_pieces: the second. Count again after the first merge; ▁ is a piece like any other.")
    expect(third == "▁tie", "four_pieces: the third. All four words begin alike, so far with two pieces.")
    expect(fourth == "▁tief", "four_pieces: the fourth. Which pair is left in three of the four words?")
    expect(cut != ["▁tier"], "tier: its r occurs after `tie` in one word only, so these merges never join the two.")
    expect("".join(cut) == "▁tier", "tier: put together, the pieces must give ▁tier.")
    expect(cut == ["▁tie", "r"], "tier: do the four merges in their order, wherever they fit.")
    return "nobody said that tief is a word; three words out of four did."


@exercise("12.2")
def longest_first(my_cut: Callable[[str, set[str]], list[str]]) -> str:
    """``my_cut(word, pieces)``: from left to right the longest piece that fits, or ``["<unk>"]``."""
    dogs = {*"▁hundewag", "▁hund", "▁hunde", "hund", "wagen", "wa", "en"}
    for word, pieces in (
        ("hunde", dogs),
        ("hundewagen", dogs),
        ("wagenhund", dogs),
        ("handwagen", dogs),
        ("hundezug", dogs),
        ("abc", {"▁", "▁a", "ab", "bc", "abc", "c"}),
        ("abcd", {"▁a", "bc", "b", "cd", "c"}),
        ("aaa", {"▁a", "a", "aa"}),
    ):
        right = _longest_first("▁" + word, pieces)
        found = _as_pieces(call(my_cut, word, set(pieces)), "my_cut")
        case = f"{word!r} with the pieces {', '.join(sorted(pieces))}: your pieces are {found}"
        if found == right:
            continue
        expect(found != _longest_first(word, pieces), f"{case}. A word begins with ▁: put it in front first.")
        expect(
            right != [UNK] or UNK not in found,
            f"{case}. Where no piece fits, the whole word is unknown: {[UNK]}, and nothing else.",
        )
        expect(right != [UNK], f"{case}, but at one place no piece fits, so the word is unknown: {[UNK]}.")
        expect(found != [UNK], f"{case}, but there are pieces that fit at each place.")
        expect("".join(found) == "▁" + word, f"{case}. Put together, they must give {'▁' + word!r}.")
        expect(set(found) <= pieces, f"{case}, and not all of them are in `pieces`.")
        raise Wrong(f"{case}. At each place, a longer piece goes before a shorter one, and nothing is taken back.")
    return "WordPiece, BERT's tokeniser, cuts this way. (It marks pieces inside a word with ## instead.)"


def _longest_first(rest: str, pieces: set[str]) -> list[str]:
    found = []
    while rest:
        fitting = [piece for piece in pieces if rest.startswith(piece)]
        if not fitting:
            return [UNK]
        found.append(max(fitting, key=len))
        rest = rest.removeprefix(found[-1])
    return found
