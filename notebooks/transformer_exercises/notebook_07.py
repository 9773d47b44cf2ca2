"""Checks of the exercises of notebook 07: attention maps, and switching heads off."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_exercises import Unsolved, Wrong, call, close, exercise, expect, expect_tensor


@exercise("07.1")
def looks_back(my_looks_back: Callable[[Tensor], Tensor]) -> str:
    """``my_looks_back(weights)``: of each head, the mean weight on the position before."""
    torch.manual_seed(0)
    for heads, length in ((4, 7), (2, 5), (3, 2)):
        weights = torch.randn(heads, length, length).mul(2).softmax(-1)
        back = weights.diagonal(-1, dim1=1, dim2=2)  # [heads, length - 1]
        found = call(my_looks_back, weights.clone())
        for wrong, hint in (
            (weights.diagonal(0, dim1=1, dim2=2).mean(-1), "that is the weight of a position on *itself*."),
            (weights.diagonal(1, dim1=1, dim2=2).mean(-1), "that looks one *ahead*: rows look, columns are looked at."),
            (back.sum(-1) / length, f"{length} positions have {length - 1} before them: the first row does not count."),
            (back.sum(-1), "that is the sum; the *mean* is asked for."),
            (back, "take the mean over the positions: one number for each head."),
            (back.mean(), "one number for each head is asked for, not one for all."),
        ):
            expect(not close(found, wrong) or close(wrong, back.mean(-1)), hint)
        expect_tensor(
            found, back.mean(-1), "row i looks at column i - 1: these entries are a diagonal, one below the main one."
        )
    return "a head near 1 looks back whatever the words are; of the shipped model's encoder, none is that strict."


@exercise("07.2")
def read_maps(heads: Mapping[str, str], alignment: str) -> str:
    """``heads``: what each of four does; ``alignment``: of the one that writes, in the Pharaoh format."""
    kinds = {"writes", "reads", "order", "nothing"}
    expect(isinstance(heads, Mapping), "heads is a dictionary, from a letter to what that head does.")
    if any(kind is None or kind is ... for kind in heads.values()):
        raise Unsolved
    found = {str(letter).strip().upper(): str(kind).strip().lower() for letter, kind in heads.items()}
    expect(set(found) == set("ABCD"), "there are four heads: A, B, C and D.")
    expect(set(found.values()) <= kinds, f"each head does one of these: {', '.join(sorted(kinds))}.")
    expect(found["B"] == "nothing", "one head looks at the same places whatever is written. Which?")
    expect(
        found["D"] == "order", "one head moves on from left to right with every step, whatever the words mean. Which?"
    )
    expect(
        (found["A"], found["C"]) != ("writes", "reads"),
        "you have exchanged two. In the step that reads *a* and writes *dog*, where does each head look?",
    )
    expect((found["A"], found["C"]) == ("reads", "writes"), "A and C follow the words: which one is a step late?")
    links = _links(alignment)
    for wrong, hint in (
        ({(i + 1, j) for i, j in _GOLD}, "the first source *word* is 0: `<sos>` does not count."),
        ({(i + 1, j + 1) for i, j in _GOLD}, "words are counted from 0, and `<sos>` does not count."),
        ({(i, j + 1) for i, j in _GOLD}, "the first target *word* is 0: `<sos>` does not count."),
        ({(j, i) for i, j in _GOLD}, "the source word comes first, then the target word."),
        (_GOLD | {(7, 9)}, "`<eos>` is no word: it has no link."),
        (_GOLD | {(8, 9)}, "`<eos>` is no word: it has no link."),
    ):
        expect(links != wrong, hint)
    if missing := _GOLD - links:
        word = min(j for _, j in missing)
        raise Wrong(
            f"target word {word}, *{_ENGLISH[word]}*, is linked with the word that head C looks at in that row."
        )
    expect(links == _GOLD, "there is a link too many: each target word has one.")
    return "A aligns as well as C, one step later: labelled with the wrong rows, a good head looks bad."


_ENGLISH = ("a", "dog", "is", "playing", "in", "the", "garden", "today", ".")
_GOLD = {(2, 0), (3, 1), (1, 2), (1, 3), (4, 4), (4, 5), (5, 6), (0, 7), (6, 8)}


def _links(text: Any) -> set[tuple[int, int]]:
    try:
        pairs = text.split() if isinstance(text, str) else text
        split = [pair.split("-") if isinstance(pair, str) else pair for pair in pairs]
        return {(int(i), int(j)) for i, j in split}
    except (TypeError, ValueError):
        raise Wrong("the alignment is a string such as '0-0 1-2', of source and target words counted from 0.") from None


@exercise("07.3")
def silence(my_silence: Callable[[Tensor, Sequence[int], int], Tensor]) -> str:
    """``my_silence(joined, heads, num_heads)``: a copy, zero in the slices of these heads."""
    torch.manual_seed(0)
    for num_heads, d_k, heads in ((4, 3, [1]), (2, 4, [0]), (4, 2, [0, 3]), (3, 2, [0, 1, 2]), (2, 3, [])):
        joined = torch.randn(2, 5, num_heads * d_k)
        given = joined.clone()
        found = call(my_silence, given, list(heads), num_heads)

        right = _without(joined, [head * d_k + i for head in heads for i in range(d_k)])
        others = [head for head in range(num_heads) if head not in heads]
        for wrong, hint in (
            (
                _without(joined, [head * d_k + i for head in others for i in range(d_k)]),
                "these heads are to be silent, not the others.",
            ),
            (_without(joined, [i for head in heads for i in range(head, num_heads * d_k, num_heads)]), _SLICES),
            (_without(joined, heads), f"a head has d_model / num_heads = {d_k} numbers here, not one."),
            (
                _without(joined, [head * num_heads + i for head in heads for i in range(num_heads)]),
                f"the slices are d_k = {d_k} wide.",
            ),
            (joined, "nothing is zero yet."),
        ):
            expect(not close(found, wrong) or close(wrong, right), hint)
        expect_tensor(found, right, _SLICES)
        expect(given.equal(joined), "you have changed `joined` itself: clone it first.")
    return "the residual connection carries everything else past the attention: that is why the model survives."


def _without(joined: Tensor, columns: Iterable[int]) -> Tensor:
    changed = joined.clone()
    changed[..., [i for i in columns if i < joined.shape[-1]]] = 0
    return changed


_SLICES = "the heads lie side by side: head h has the entries from h · d_k up to (h + 1) · d_k."


@exercise("07.4")
def leave_one_out(my_leave_one_out: Callable[[Tensor], Tensor]) -> str:
    """``my_leave_one_out(src)``: each row lacks another word."""
    for ids in ([2, 5, 6, 7, 8, 3], [2, 9, 3], [2, 4, 4, 11, 3]):
        src = torch.tensor([ids])
        rows = [ids[:i] + ids[i + 1 :] for i in range(len(ids))]
        found = call(my_leave_one_out, src.clone())
        expect(not close(found, torch.tensor(rows)), "`<sos>` and `<eos>` are no words: leave them in every row.")
        right = torch.tensor(rows[1:-1])
        expect(not close(found, right.flip(0)) or close(right, right.flip(0)), "the first row lacks the *first* word.")
        for place in range(-1, 12):
            hidden = src.repeat(len(ids) - 2, 1)
            hidden[torch.arange(len(ids) - 2), torch.arange(1, len(ids) - 1)] = place
            expect(not close(found, hidden), "remove the word instead of replacing it: each row is one shorter.")
        expect_tensor(found, right, "row i is `src` without the token at position i + 1.")
    return "a word can matter although no head looks at it much, and the other way round."
