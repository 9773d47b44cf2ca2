"""Checks of the exercises of notebook 03: masks.

At the end is a patient of the clinic: what the notebook hides stands there in the open.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_exercises import (
    Wrong,
    as_letters,
    as_list,
    call,
    close,
    diagnose,
    disguised,
    exercise,
    expect,
    expect_any_device,
    expect_tensor,
    question,
)
from transformer_exercises.notebook_02 import LOW_ENOUGH, expect_any_size, masked_attention, wrong_scores
from transformer_lib.model.attention import MultiHeadAttention

question(
    "03.a",
    right="after: less than one, and Hund still counts",
    replies={
        "the same weights, before or after": "softmax divides by a sum over all words. What is hidden only afterwards "
        "has taken part in it.",
        "after: they sum to less than one": "that is true, but it is only half of it. Change the hidden word's key: "
        "do the other weights stay as they are?",
        "after: less than one, and Hund still counts": "the share of the hidden word is missing, and it was part of "
        "the sum by which all are divided. So the others still depend on it.",
    },
)
question(
    "03.b",
    right="nan · thirds · zeros",
    replies={
        "zeros · zeros · zeros": "softmax divides by the sum of its row. What does it make of three numbers that "
        "are equally low?",
        "nan · zeros · zeros": "the first is right. But the lowest number is a number: three equal scores, however "
        "low, get equal weights.",
        "nan · thirds · zeros": "e to the power of minus infinity is 0, and 0 divided by 0 is no number. Three equal "
        "numbers share the whole; and what is masked again is zero.",
    },
)
question(
    "03.c",
    right="the padding alone without a warning",
    replies={
        "none: an error stops it": "a mask of booleans has the right type and the right "
        "shape. Nobody but you knows what it means.",
        "the words as ever": "it is a mask of booleans here as there, but look at the table: the words, which are "
        "True, are what this module ignores.",
        "the padding alone without a warning": "True means ignore here, so the words are hidden, and type and shape "
        "are as they should be.",
    },
)


@exercise("03.1")
def attention_head(my_attention: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> str:
    """``my_attention(query, key, value, mask)``: one head, equation 1 of the paper, with a mask."""
    generator = torch.Generator().manual_seed(0)
    query, key = (3 * torch.randn(2, length, 16, generator=generator) for length in (3, 5))
    value = torch.randn(2, 5, 7, generator=generator)
    mask = torch.rand(2, 3, 5, generator=generator) > 0.4
    mask[..., 0] = True  # nobody sees nothing
    everything = torch.ones_like(mask)
    right = F.scaled_dot_product_attention(query, key, value, mask)
    found = call(my_attention, query.clone(), key.clone(), value.clone(), mask.clone())
    expect(
        not isinstance(found, tuple),
        "return the output alone: `return weights @ value`, without the weights.",
    )
    if isinstance(found, Tensor) and found.shape == right.shape:
        for hint, scores in wrong_scores(query, key, value).items():
            expect(not close(found, _mix(scores, mask, value)), hint)
        scaled = query @ key.mT / 4
        expect(not close(found, _mix(scaled, everything, value)), "the mask has no effect.")
        expect(not close(found, _mix(scaled, ~mask, value)), "True means *may attend*.")
        after = scaled.softmax(-1).masked_fill(~mask, 0) @ value
        expect(
            not close(found, after),
            "you mask after the softmax, so the weights do not sum to one. Put minus infinity into the scores.",
        )
        zeros = (scaled * mask).softmax(-1) @ value
        expect(not close(found, zeros), "a score of 0 hides nothing: e to the power of 0 is 1. Use minus infinity.")
        wrong_axis = scaled.masked_fill(~mask, -torch.inf).softmax(-2).nan_to_num() @ value
        expect(not close(found.nan_to_num(), wrong_axis), "softmax goes over the keys, the last axis.")
    expect_tensor(
        found, right, "go through equation 1 again: scores, root of d_k, mask, softmax, average of the values."
    )
    expect_any_size(lambda q, k, v: my_attention(q, k, v, torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)))
    low, high = -100 * query.abs(), key.abs()  # all scores are around -2000
    found = call(my_attention, low.clone(), high.clone(), value.clone(), mask.clone())
    expect_tensor(found, masked_attention(low, high, value, mask), LOW_ENOUGH)
    return (
        "that is PyTorch's `F.scaled_dot_product_attention`, by hand, for rows that may attend to something; section 4 "
        "has the others."
    )


def _mix(scores: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value


def rows_and_columns(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool)


HARD_CODED = "the id of padding is an argument; it need not be 1."


@exercise("padding_mask")
def hide_padding(padding_mask: Callable[[Tensor, int], Tensor]) -> str:
    """``padding_mask(ids, pad_id)``: True where there is a word, ``[batch, 1, 1, seq_len]``."""
    ids = torch.tensor([[7, 8, 9, 1], [7, 1, 1, 1], [0, 8, 9, 6]])
    words = ids != 1
    found = _on_cpu(call(padding_mask, ids.clone(), 1))
    if isinstance(found, Tensor):
        shape = list(found.shape)
        expect(shape != [3, 4], "the two axes of size 1 are missing, for heads and queries: [batch, 1, 1, seq_len].")
        expect(shape != [3, 1, 4, 1], "that hides queries. Masks hide keys, and the keys are the last axis.")
        if found.dtype == torch.bool and shape == [3, 1, 1, 4]:
            expect(not found.equal(~words[:, None, None]), "it is upside down: True means *may attend*.")
            expect(
                not found.equal((ids > 1)[:, None, None]), "0 is an id like others: compare with `!=`, not with `>`."
            )
    expect_tensor(found, words[:, None, None], "True at words, False at padding.")
    other = torch.tensor([[[[True, True, False]]]])
    expect_tensor(call(padding_mask, torch.tensor([[7, 1, 0]]), 0), other, HARD_CODED)
    in_front = torch.tensor([[5, 5, 7, 1, 0]])
    hint = "it counts the words; but they need not come first (exercise 03.2): compare each id with `pad_id`."
    expect_tensor(call(padding_mask, in_front, 5), (in_front != 5)[:, None, None], hint)
    expect_any_device("Say `device=ids.device`.", padding_mask, ids, 1)
    return "one row for each sentence, whatever the head and the query."


@exercise("causal_mask")
def hide_what_comes_later(causal_mask: Callable[[int], Tensor]) -> str:
    """``causal_mask(length)``: row i is True in columns 0 to i, ``[length, length]``."""
    everything = rows_and_columns(4)
    found = _on_cpu(call(causal_mask, 4))
    if isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == everything.shape:
        expect(not found.equal(everything.triu(1)), "it is upside down: True means *may attend*.")
        expect(not found.equal(everything.triu()), "queries are rows and keys are columns; yours are exchanged.")
        expect(not found.equal(everything.tril(-1)), "a word may see itself; otherwise the first one sees nothing.")
        expect(not found.equal(everything.tril(1)), "each word sees one word that comes later: look at the first row.")
    expect_tensor(found, everything.tril(), "row i is True in columns 0 to i.")
    for length in (6, 1, 120):
        hint = f"it is right for four positions, but not for {length}."
        expect_tensor(call(causal_mask, length), rows_and_columns(length).tril(), hint)
    return "a lower triangle, diagonal included; the same for all sentences and heads."


@exercise("target_mask")
def hide_both(target_mask: Callable[[Tensor, int], Tensor]) -> str:
    """``target_mask(ids, pad_id)``: who may look at whom in a decoder, ``[batch, 1, seq_len, seq_len]``."""
    ids = torch.tensor([[7, 8, 9, 1], [7, 1, 1, 1], [7, 8, 9, 6]])
    words = (ids != 1)[:, None, None, :].expand(3, 1, 4, 4)
    earlier = rows_and_columns(4).tril().expand(3, 1, 4, 4)
    may, six = words & earlier, torch.tensor([[7, 8, 9, 6, 5, 4]])
    try:
        found = _on_cpu(call(target_mask, ids.clone(), 1))
    except Wrong:
        of_one_sentence = call(target_mask, six, 1)
        hint = "ids is [batch, seq_len]: the causal mask is as long as a sentence, `ids.shape[1]`, not as the batch."
        expect(getattr(of_one_sentence, "shape", None) != (1, 1, 1, 6), hint)
        raise
    if isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == may.shape:
        for hint, wrong in {
            "it is upside down: True means *may attend*.": ~may,
            "queries are rows and keys are columns; yours are exchanged.": may.mT,
            "it hides what comes later, but the padding is still seen.": earlier,
            "it hides the padding, but not what comes later.": words,
            "a word may see itself; otherwise the first one sees nothing.": words & earlier.tril(-1),
            "each word sees one word that comes later: look at the first row.": words & rows_and_columns(4).tril(1),
            "both conditions must hold: `&`, not `|`.": words | earlier,
            "you have hidden the rows of padding too. Nobody reads them, but softmax of nothing is nan.": may
            & words.mT,
        }.items():
            expect(not found.equal(wrong), hint)
    expect_tensor(found, may, "compare the rows one by one: row i is what word i may see.")
    for length in (6, 1, 120):
        hint = f"it is right for four tokens, but not for {length}."
        found = call(target_mask, torch.full((1, length), 7), 1)
        expect_tensor(found, rows_and_columns(length).tril()[None, None], hint)
    other = torch.tensor([[[[True, False, False], [True, True, False], [True, True, False]]]])
    expect_tensor(call(target_mask, torch.tensor([[7, 1, 0]]), 0), other, HARD_CODED)
    expect_any_device("The causal mask? Send it `.to(ids.device)`.", target_mask, six, 1)
    return "for the decoder's self-attention; the two other places take the source's `padding_mask`."


@exercise("03.2")
def padding_in_front(seen_by: Sequence[Collection[int]]) -> str:
    """``seen_by``: the positions that each of five may see, if the first two are padding."""
    rows = as_list(seen_by)
    listed = isinstance(rows, list | tuple) and all(hasattr(row, "__iter__") for row in rows)
    expect(listed and len(rows) == 5, "five lists were expected, one for each position; some may be empty.")
    found = [sorted(as_list(row)) for row in rows]
    expect(any(found), "position 2 sees itself, at least.")
    expect([0, 1] not in [row[:2] for row in found], "positions 0 and 1 are padding: nobody may see them.")
    expect(
        not any(max(row, default=0) > i for i, row in enumerate(found)), "nobody may see a position that comes later."
    )
    expect(found[0] == found[1] == [], "who is at position 1 may see positions 0 and 1 only, and both are padding.")
    expect(found[2:] == [[2], [2, 3], [2, 3, 4]], "from position 2 on, each sees itself, and the words before it.")
    return "two rows are empty: section 4 is about them."


@exercise("03.3")
def shapes_of_cross_attention(mask_shape: Collection[int], weights_shape: Collection[int]) -> str:
    """``mask_shape, weights_shape``: in cross-attention of 2 sentences, 4 heads, 7 source and 5 target tokens."""
    mask, weights = (_sizes(shape) for shape in (mask_shape, weights_shape))
    expect(mask != [2, 1, 1, 5], "the mask hides keys. In cross-attention, the keys are the source's 7.")
    expect(mask != [2, 1, 5, 5], "that is the target mask, of the decoder's self-attention.")
    expect(mask != [2, 7], "two axes of size 1 are missing, for heads and queries.")
    expect(mask == [2, 1, 1, 7], "the mask is `padding_mask(src, pad_id)`: batch, 1, 1, and the number of keys.")
    expect(weights != [2, 4, 7, 5], "queries are rows and keys are columns; yours are exchanged.")
    expect(len(weights) == 4, "the weights have four axes: batch, heads, queries, keys.")
    expect(weights == [2, 4, 5, 7], "who asks? The 5 target tokens. Whom do they ask? The 7 source tokens.")
    return "the mask is stretched over 4 heads and 5 queries."


@exercise("03.4")
def leak(leaking: Collection[str]) -> str:
    """``leaking``: the masks, among four, with which a word sees what it should not."""
    found = as_letters(leaking, "ABCD", "masks")
    if "A" in found:
        raise Wrong(
            "A is right: row i is True up to column i. Change a later word, and see whether an earlier output moves."
        )
    if "C" in found:
        raise Wrong("C hides too much, which costs something, but lets nothing through. Look for outputs that move.")
    if "B" not in found:
        raise Wrong("one of them lets each word see one word too many. Look at the first row of each.")
    if "D" not in found:
        raise Wrong("in one of them, one of two conditions is enough, where both must hold.")
    return "B looks one word ahead (`diagonal=1`), D joins its conditions by *or*. Both train without an error."


@exercise("03.5")
def key_padding_mask(my_key_padding_mask: Callable[[Tensor, int], Tensor]) -> str:
    """``my_key_padding_mask(ids, pad_id)``: padding for ``nn.MultiheadAttention``, where True means "ignore"."""
    ids = torch.tensor([[2, 5, 6, 3], [2, 3, 1, 1]])
    found = _on_cpu(call(my_key_padding_mask, ids.clone(), 1))
    if isinstance(found, Tensor) and found.dtype == torch.bool:
        expect(not found.equal(ids != 1), "here, True means *ignore*: yours hides the words and shows the padding.")
        expect(found.dim() != 4, "`nn.MultiheadAttention` wants [batch, key_len], without the two axes of size 1.")
    expect_tensor(found, ids == 1, "True at padding, False elsewhere.")
    hint = "the id of padding is an argument; it need not be 1."
    expect_tensor(call(my_key_padding_mask, torch.tensor([[7, 1, 0]]), 0), torch.tensor([[False, False, True]]), hint)
    return "`transformer_lib.interop.pytorch.to_key_padding_mask` makes the same from a mask of this course."


@exercise("03.6")
def neighbours_only(my_local_mask: Callable[[int, int], Tensor]) -> str:
    """``my_local_mask(length, window)``: each position sees ``window`` positions, its own in the middle."""

    def right(length: int, window: int) -> Tensor:
        rows = [[abs(i - j) <= window // 2 for j in range(length)] for i in range(length)]
        return torch.tensor(rows)

    found = _on_cpu(call(my_local_mask, 6, 3))
    if isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == (6, 6):
        expect(not found.equal(right(6, 7)), "a window of 3 is one neighbour on each side, not three.")
        expect(not found.equal(right(6, 1)), "a window of 3 is the position itself *and* one on each side.")
        expect(not found.equal(right(6, 3).tril()), "a neighbour may also be to the right.")
        expect(not found.equal(~right(6, 3)), "it is upside down: True means *may attend*.")
        expect(not found.diagonal().logical_not().any(), "each position sees itself.")
    expect_tensor(found, right(6, 3), "position i sees j where i and j are at most window // 2 apart.")
    for length, window in ((8, 5), (3, 7), (1, 1)):
        hint = f"it is right for a window of 3, but not for a length of {length} and a window of {window}."
        expect_tensor(call(my_local_mask, length, window), right(length, window), hint)
    return (
        "Table 1 of the paper calls it restricted self-attention. Joined to `causal_mask` by `&`, it looks back only."
    )


# The patient. Read on when you have named its fault.

FAULTS = {
    "one word ahead": "the mask lets each word see one word that comes later",
    "zeros": "what is hidden gets the score 0",
    "too late": "what is hidden gets the weight 0, but only after the softmax",
    "exchanged": "queries and keys have changed places in the mask",
    "mean over words": "from each word's vector, the mean of all words' vectors is taken away first",
}
SIGNS = {
    "one word ahead": "output i would feel input i + 1, but no later one, and the map would show it",
    "zeros": "hidden words would have weights above 0",
    "too late": "every output would feel every input, but the rows of its map would sum to less than one",
    "exchanged": "the map would be 0 below the diagonal, not above it",
}


@disguised
class Patient(MultiHeadAttention):
    """A decoder's self-attention with one fault, made like the notebook's: ``Patient(d_model=8, num_heads=2)``."""

    def forward(  # type: ignore[override]
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output and the weights."""
        query, key, value = (x - x.mean(dim=1, keepdim=True) for x in (query, key, value))
        return super().forward(query, key, value, mask, need_weights=True)


@exercise("03.7")
def patient_of_the_clinic(fault: str) -> str:
    """``fault``: the name of the patient's fault in ``FAULTS``."""
    diagnose(fault, "mean over words", FAULTS, SIGNS)
    return (
        "its mask is right, and so is its map; but before any mask, every word has got a share of all the others. "
        "Norms do that if they work along the wrong axis. Only a test of what comes out finds it."
    )


def _on_cpu(found: Any) -> Any:
    return found.detach().cpu() if isinstance(found, Tensor) else found


def _sizes(shape: Any) -> list[int]:
    shape = as_list(shape)
    if isinstance(shape, str) or not hasattr(shape, "__iter__"):
        raise Wrong("a shape was expected, such as [2, 4, 5, 7].")
    sizes = [as_list(size) for size in shape]
    expect(all(isinstance(size, int) for size in sizes), "a shape is made of whole numbers, such as [2, 4, 5, 7].")
    return sizes
