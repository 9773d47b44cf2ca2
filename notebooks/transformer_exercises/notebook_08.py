"""Checks of notebook 08: attention maps, switching heads off, swapping vectors of the memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_exercises import Unsolved, Wrong, call, close, exercise, expect, expect_tensor, question

question(
    "08.a",
    right="more",
    replies={
        "as much": "that would be so if each head did a job of its own, which no other can do.",
        "less": "that would be so if they failed at the same tokens, so that most of the damage is counted once. "
        "That is not how the decoder's first layer behaves.",
        "more": "with one head gone, the others do some of its work. With all four gone, nobody does: heads are "
        "redundant.",
    },
)

question(
    "08.b",
    right="it stays as it is",
    replies={
        "it becomes lift or hold": "so the grammar says, and so the map suggests: auf belongs to hebt. "
        "But do the training sentences force a model to learn it?",
        "it stays as it is": "in what this model has read, hebt, with a man and a ball, is enough to choose the "
        "verb. It never had to look at auf.",
        "there is no verb any more": "hebt is still there, and it is what the verb comes from, even if it is only "
        "half of the German one.",
    },
)

question(
    "08.c",
    right="the same as before",
    replies={
        "it goes down: all vectors know of hinunter": "a fair guess, since three layers of self-attention mix all "
        "words. But being able to know is not the same as being read for it.",
        "the stairs are garbled": "both sentences speak of the same stairs, and their vectors there are much alike.",
        "the same as before": "the vector is another, but what the decoder reads there, the stairs, is the same in "
        "both. That is what a control is for.",
    },
)


question(
    "08.d",
    right="they rise together, and part later",
    replies={
        "they part from the first step on": "that is what the sentences ask for. But to hear auf, many weights have to "
        "change; to say picking more often, only a few.",
        "they rise together, and part later": "how often a word is right is learned first, and what decides when it is "
        "right comes later.",
        "they never part": "after eight steps, that was so. But now there are pairs that differ in auf alone, and "
        "whoever does not hear it is wrong in every other sentence.",
    },
)


@exercise("looks_back")
def looks_back(written: Callable[[Tensor], Tensor]) -> str:
    """``looks_back(weights)``: of each head, the mean weight on the position before."""
    torch.manual_seed(0)
    for heads, length in ((4, 7), (2, 5), (3, 2)):
        weights = torch.randn(heads, length, length).mul(2).softmax(-1)
        back = weights.diagonal(-1, dim1=1, dim2=2)  # [heads, length - 1]
        found = call(written, weights.clone())
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
    return "a head near 1 looks back whatever the words are."


@exercise("08.1")
def read_maps(heads_do: Mapping[str, str], alignment: str) -> str:
    """``heads_do``: what each of four does; ``alignment``: of the one that writes, in the Pharaoh format."""
    kinds = {"writes", "reads", "order", "nothing"}
    expect(isinstance(heads_do, Mapping), "heads_do is a dictionary, from a letter to what that head does.")
    if any(kind is None or kind is ... for kind in heads_do.values()):
        raise Unsolved
    found = {str(letter).strip().upper(): str(kind).strip().lower() for letter, kind in heads_do.items()}
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


@exercise("silence")
def silence(written: Callable[[Tensor, Sequence[int], int], Tensor]) -> str:
    """``silence(joined, heads, num_heads)``: a copy, zero in the slices of these heads, which are counted from 1."""
    torch.manual_seed(0)
    for num_heads, d_k, heads in ((4, 3, [2]), (2, 4, [1]), (4, 2, [1, 4]), (3, 2, [1, 2, 3]), (2, 3, [])):
        joined = torch.randn(2, 5, num_heads * d_k)
        given = joined.clone()
        found = call(written, given, list(heads), num_heads)

        right = _without(joined, [(head - 1) * d_k + i for head in heads for i in range(d_k)])
        others = [head for head in range(1, num_heads + 1) if head not in heads]
        for wrong, hint in (
            (
                _without(joined, [(head - 1) * d_k + i for head in others for i in range(d_k)]),
                "these heads are to be silent, not the others.",
            ),
            (
                _without(joined, [head * d_k + i for head in heads for i in range(d_k)]),
                "heads are counted from 1: head 1 has the entries from 0 to d_k.",
            ),
            (_without(joined, [i for head in heads for i in range(head - 1, num_heads * d_k, num_heads)]), _SLICES),
            (
                _without(joined, [head - 1 for head in heads]),
                f"a head has d_model / num_heads = {d_k} numbers here, not one.",
            ),
            (
                _without(joined, [(head - 1) * num_heads + i for head in heads for i in range(num_heads)]),
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
    changed[..., [i for i in columns if 0 <= i < joined.shape[-1]]] = 0
    return changed


_SLICES = "the heads lie side by side: head h has the entries from (h − 1) · d_k up to h · d_k."


@exercise("patch")
def patch(written: Callable[[Tensor, Tensor, Sequence[int]], Tensor]) -> str:
    """``patch(memory, other, places)``: a copy of ``memory`` with the vectors of ``other`` at these places."""
    torch.manual_seed(0)
    for src_len, d_model, places in ((7, 8, [5]), (6, 8, [3, -3]), (5, 6, []), (5, 5, [0, 1, 2, 3, 4])):
        memory, other = torch.randn(2, 1, src_len, d_model)
        own, second = memory.clone(), other.clone()
        found = call(written, own, second, list(places))
        right = _mixed(memory, other, places)
        for wrong, hint in (
            (_mixed(other, memory, places), "the other way round: these places come from `other`, the rest stays."),
            (other, "that is the whole other memory: only these places come from it."),
            (memory, "nothing has been swapped yet."),
            (
                _mixed(memory, memory + other, places),
                "put the other vector in place of the own one instead of adding it.",
            ),
            (
                _mixed(memory.mT, other.mT, places).mT,
                "the places are along the second axis, the source tokens: whole vectors are swapped.",
            ),
        ):
            expect(not close(found, wrong) or close(wrong, right), hint)
        expect_tensor(found, right, "at these places the vectors of `other`, everywhere else those of `memory`.")
        expect(own.equal(memory) and second.equal(other), "you have changed what came in: clone `memory` first.")
    return "this is called activation patching."


def _mixed(memory: Tensor, other: Tensor, places: Sequence[int]) -> Tensor:
    changed = memory.clone()
    changed[:, places] = other[:, places]
    return changed


@exercise("08.2")
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
