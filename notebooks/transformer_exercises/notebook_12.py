"""Checks of the exercises of notebook 12: a merge in code, merges with a pencil, and BERT's way to cut a word."""

from collections.abc import Callable, Iterable

from transformer_exercises import Wrong, call, exercise, expect, question
from transformer_exercises.course.notebook_12 import join_pair as joined
from transformer_lib.data.tokenizers import UNK

question(
    "12.a",
    right="▁ wagen hu nd",
    replies={
        "▁wagen hund": "which line of the table joins ▁ and wagen? There is none: the text has the two too seldom.",
        "▁ wagen hund": "look for the line that completes the dog: it joins ▁hu and nd. Is there a ▁hu here?",
        "▁ wagen hu nd": "the only merge that completes the dog has a ▁ in front, and this dog doesn't begin the word.",
    },
)


def _as_pieces(found: Iterable[str], name: str) -> list[str]:
    """Return a reader's pieces as a list of strings."""
    if not isinstance(found, list | tuple) or not all(isinstance(piece, str) for piece in found):
        raise Wrong(f"{name}: a list of strings was expected, such as ['▁t', 'ie'].")
    return list(found)


def wrong_joins(pieces: list[str], pair: tuple[str, str]) -> dict[str, list[str]]:
    """Return what comes out if a pair is joined in wrong ways, by hint."""
    first, second = pair
    once, last = [*pieces], [*pieces]
    places = [i for i in range(len(pieces) - 1) if (pieces[i], pieces[i + 1]) == pair]
    if places:
        once[places[0] : places[0] + 2] = ["".join(pair)]
        last[places[-1] : places[-1] + 2] = ["".join(pair)]
    new = [
        "".join(pair) if (piece, after) == pair else piece
        for piece, after in zip(pieces, [*pieces[1:], ""], strict=True)
    ]
    text = " ".join(pieces).replace(f"{first} {second}", first + second).split()
    from_the_right = [
        piece[::-1] for piece in joined([piece[::-1] for piece in pieces[::-1]], (second[::-1], first[::-1]))
    ]
    return {
        "nothing has been joined yet.": pieces,
        "that joins them once; the pair may be there several times.": once,
        "from left to right, please: of three equal pieces, the first two are joined.": from_the_right[::-1],
        "that joins the last of them only.": last,
        "the second of the two is still there beside the joined piece: leave it out.": new,
        "each of them has been joined with what stands on its other side, too: both must be whole pieces.": text,
        "the other way round: the pair's first piece comes first.": joined(pieces, (second, first)),
    }


@exercise("join_pair")
def join_pair(join_pair: Callable[[list[str], tuple[str, str]], list[str]]) -> str:
    """``join_pair(pieces, pair)``: a new list, in which two neighbours are one piece wherever they are the pair."""
    for text, pair in (
        ("▁ a n n a n a s", ("a", "n")),
        ("▁ h u n d e h u n d", ("u", "n")),
        ("▁ s s s t", ("s", "s")),
        ("▁ e s s s s e n", ("s", "s")),
        ("▁ un n u n d", ("u", "n")),
        ("▁ hu nd hu n d", ("u", "n")),
        ("▁ w a g en", ("e", "n")),
        ("▁hund e n", ("▁hund", "e")),
        ("a", ("a", "a")),
    ):
        pieces, right = text.split(), joined(text.split(), pair)
        given = [*pieces]
        found = _as_pieces(call(join_pair, given, pair), "join_pair")
        expect(given == pieces, "the list that comes in is changed: make a new one, since others may hold the old one.")
        if found == right:
            continue
        case = f"{' '.join(pieces)}, and the pair {pair}: yours are {found}"
        for hint, wrong in wrong_joins(pieces, pair).items():
            expect(found != wrong, f"{case}. {hint[0].upper()}{hint[1:]}")
        expect("".join(found) == "".join(pieces), f"{case}. Put together, they must give the same word as before.")
        raise Wrong(f"{case}. Look at each piece and its neighbour: are they the pair?")
    return "this one step, repeated some thousand times, makes a vocabulary."


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
