"""Answers to the exercises of notebook 12: a merge in code, merges with a pencil, and BERT's way to cut a word."""

from transformer_exercises import course


def cut(word, pieces, longest=True, mark="▁", whole=True):
    rest, found = mark + word, []
    while rest:
        ends = range(len(rest), 0, -1) if longest else range(1, len(rest) + 1)
        fitting = [end for end in ends if rest[:end] in pieces]
        if not fitting:
            if whole:
                return ["<unk>"]
            found.append("<unk>")
            rest = rest[1:]
            continue
        found.append(rest[: fitting[0]])
        rest = rest[fitting[0] :]
    return found


def by_recursion(word, pieces):
    def go_on(rest):
        if not rest:
            return []
        for end in range(len(rest), 0, -1):
            if rest[:end] in pieces:
                left = go_on(rest[end:])
                return None if left is None else [rest[:end], *left]
        return None

    return tuple(go_on("▁" + word) or ["<unk>"])


def letters_left_out(word, pieces):
    return [piece for piece in cut(word, pieces, whole=False) if piece != "<unk>"]


def by_index(pieces, pair):
    joined, i = [], 0
    while i < len(pieces):
        fits = tuple(pieces[i : i + 2]) == pair
        joined.append("".join(pieces[i : i + 1 + fits]))
        i += 1 + fits
    return joined


def by_text(pieces, pair):
    text = "  ".join(["", *pieces, ""])
    return text.replace(f" {pair[0]}  {pair[1]} ", f" {''.join(pair)} ").split()


def in_place(pieces, pair, times=None, leave=False, reverse=False):
    """Join the pair where it is found, at most so often; from the right, or leaving the second piece where it was."""
    found = pieces if times == "here" else [*pieces]
    places = range(len(found) - 2, -1, -1) if reverse else [*range(len(found) - 1)]
    done = 0
    for i in places:
        if tuple(found[i : i + 2]) == pair and done != times:
            found[i : i + 2 - leave] = ["".join(pair)]
            done += 1
    return found


def both_stay(pieces, pair):
    after = [*pieces[1:], ""]
    return ["".join(pair) if (piece, next_) == pair else piece for piece, next_ in zip(pieces, after, strict=True)]


RIGHT = {
    "join_pair": [(course.own("join_pair"),), (by_text,), (by_index,)],
    "12.1": [
        (["ie", "▁t", "▁tie", "▁tief"], ["▁tie", "r"]),
        (("ie", "▁t", "▁tie", "▁tief"), ("▁tie", "r")),
    ],
    "12.2": [(cut,), (by_recursion,)],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "join_pair": [
        (lambda pieces, pair: pieces, "has been joined yet"),
        (lambda pieces, pair: in_place(pieces, pair, 1), "joins them once"),
        (lambda pieces, pair: in_place(pieces, pair, 1, reverse=True), "the last of them only"),
        (both_stay, "still there beside the joined piece"),
        (lambda pieces, pair: " ".join(pieces).replace(" ".join(pair), "".join(pair)).split(), "whole pieces"),
        (lambda pieces, pair: in_place(pieces, pair, reverse=True), "rom left to right"),
        (lambda pieces, pair: by_index(pieces, pair[::-1]), "other way round"),
        (lambda pieces, pair: in_place(pieces, pair, "here"), "list that comes in is changed"),
        (lambda pieces, pair: [piece for piece in by_index(pieces, pair) if piece != "▁"], "must give the same word"),
        (lambda pieces, pair: ["".join(pieces)], "each piece and its neighbour"),
        (lambda pieces, pair: " ".join(by_index(pieces, pair)), "a list of strings"),
        (lambda pieces, pair: by_index(pieces, pair)[5], "a list of strings"),
    ],
    "12.1": [
        ((["ti", "tie", "▁tie", "▁tief"], ["▁tie", "r"]), "The alphabet decides"),
        ((["ie", "tie", "▁tie", "▁tief"], ["▁tie", "r"]), "the shorter piece is next"),
        ((["_t", "ie", "▁tie", "▁tief"], ["▁tie", "r"]), "not an underscore"),
        ((["ef", "▁t", "▁tie", "▁tief"], ["▁tie", "r"]), "count each pair"),
        ((["ie", "ef", "▁tie", "▁tief"], ["▁tie", "r"]), "the second"),
        ((["ie", "▁t", "ief", "▁tief"], ["▁tie", "r"]), "the third"),
        ((["ie", "▁t", "▁tie", "fe"], ["▁tie", "r"]), "the fourth"),
        ((["ie", "▁t", "▁tie"], ["▁tie", "r"]), "four were asked for"),
        ((["ie", "▁t", "▁tie", "▁tief"], ["▁tier"]), "never join the two"),
        ((["ie", "▁t", "▁tie", "▁tief"], ["tie", "r"]), "must give ▁tier"),
        ((["ie", "▁t", "▁tie", "▁tief"], ["▁t", "ie", "r"]), "in their order"),
        ((["ie", "▁t", "▁tie", "▁tief"], "▁tie r"), "a list of strings"),
        (([("▁tie", "f")] * 4, ["▁tie", "r"]), "a list of strings"),
    ],
    "12.2": [
        (lambda word, pieces: cut(word, pieces, longest=False), "a longer piece goes before"),
        (lambda word, pieces: cut(word, pieces, mark=""), "put it in front"),
        (lambda word, pieces: cut(word, pieces, whole=False), "the whole word is unknown"),
        (letters_left_out, "no piece fits"),
        (lambda word, pieces: cut(word, pieces)[:1], "they must give '▁hundewagen'"),
        (lambda word, pieces: ["<unk>"], "there are pieces that fit"),
        (lambda word, pieces: ["▁" + word], "not all of them are in `pieces`"),
        (lambda word, pieces: " ".join(cut(word, pieces)), "a list of strings"),
    ],
}
