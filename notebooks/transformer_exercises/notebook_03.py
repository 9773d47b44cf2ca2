"""Checks of the exercises of notebook 03: masks, and the attention that takes them.

At the end is a patient of the clinic: what the notebook hides stands there in the open.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_exercises import (
    Wrong,
    as_letters,
    as_list,
    as_number,
    build,
    call,
    close,
    diagnose,
    disguised,
    exercise,
    expect,
    expect_any_device,
    expect_gradients,
    expect_tensor,
    load,
    question,
)
from transformer_exercises.notebook_02 import (
    OTHER_IN_TRAINING,
    WHERE_QUERY_IS,
    beside_pytorchs,
    expect_any_size,
    expect_multi_head,
    expect_pair,
    first,
    multi_head_weights,
    output_and_weights,
    queries_keys_and_values,
    with_scores_far_below,
    words_and_others,
    wrong_scores,
)
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
def who_is_hidden_is_out(weights_of_bellt: Sequence[float]) -> str:
    """``weights_of_bellt``: of Der, Hund and bellt, where *Der* is hidden from *bellt*."""
    numbers = as_list(weights_of_bellt)
    three = isinstance(numbers, list | tuple) and len(numbers) == 3
    expect(three, "three numbers were expected, the weights of *Der*, *Hund* and *bellt*.")
    found = torch.tensor([as_number(number) for number in numbers])
    powers = (torch.tensor([0.0, 2.0, 1.0]) / 2**0.5).exp()
    left = powers * torch.tensor([0.0, 1.0, 1.0])

    def same(row: Tensor) -> bool:
        return torch.allclose(found, row, rtol=0, atol=0.0051)  # two decimals are enough

    expect(not same(powers / powers.sum()), "that is the row of notebook 02, in which nobody is hidden.")
    taken_out = "the hidden weight is taken out, and those left sum to 0.86: divide by the sum of what is *left*."
    expect(not same(left / powers.sum()), taken_out)
    expect(not same(left), "the powers are right; now divide by their sum, so that the weights sum to one.")
    expect(found[0].abs() < 0.0051, "who is hidden gets no weight at all.")
    expect((found.sum() - 1).abs() < 0.0151, "the weights of a row sum to one, with a mask or without.")
    expect(
        same(left / left.sum()), "two powers are left, 4.113 of *Hund* and 2.028 of *bellt*; divide each by their sum."
    )
    return (
        "the two that are left share the whole, about two to one, as before: a mask takes a word out, and leaves the "
        "others' proportions as they were."
    )


LOWEST = torch.finfo(torch.float32).min
LOW_ENOUGH = "a score can be lower than that number: what is hidden gets the lowest there is, `torch.finfo(…).min`."
DROPS_THE_OUTPUT = "dropout is for the weights, before they meet the values; yours drops what comes out."


def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Return what comes out where what the mask hides gets the lowest number; each row may attend to something."""
    return (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~mask, LOWEST).softmax(-1) @ value


@exercise("scaled_dot_product_attention")
def mask_and_dropout(scaled_dot_product_attention: Callable[..., tuple[Tensor, Tensor]]) -> str:
    """Compute what PyTorch's function of this name does, and return the weights, too."""
    query, key, value = queries_keys_and_values()
    scaled = query @ key.mT / 4

    def run(*more: Tensor) -> tuple[Any, Any]:
        return expect_pair(call(scaled_dot_product_attention, query.clone(), key.clone(), value.clone(), *more))

    output, weights = run()
    for hint, scores in wrong_scores(query, key, value).items():
        expect(not close(output, scores.softmax(-1) @ value), hint)
    expect(not close(output, scaled.softmax(-2) @ value), "softmax goes over the keys, the last axis.")
    expect_tensor(output, scaled.softmax(-1) @ value, "without mask and dropout, it is what `attention` computes.")
    expect_tensor(weights, scaled.softmax(-1), "the weights are what comes out of the softmax.")
    expect_any_size(lambda *given: expect_pair(scaled_dot_product_attention(*given))[0], axes=((2,), (2, 4)))

    mask = torch.rand(2, 3, 5) > 0.4
    mask[..., 0] = True  # every query may attend to something
    output, _ = run(mask.clone())
    expect(not close(output, scaled.softmax(-1) @ value), "the mask has no effect.")
    for hint, scores in {
        "True means *may attend*; yours hides what may be seen.": scaled.masked_fill(mask, -1e9),
        "a score of 0 hides nothing: e to the power of 0 is 1. Put the lowest number there.": scaled * mask,
    }.items():
        expect(not close(output, scores.softmax(-1) @ value), hint)
        expect(not close(output, (scores.softmax(-1) * mask) @ value), hint)
    after = scaled.softmax(-1) * mask @ value
    expect(not close(output, after), "with a mask, the weights no longer sum to one: hide scores *before* the softmax.")
    right = F.scaled_dot_product_attention(query, key, value, mask)
    expect_tensor(output, right, "where the mask is False, the score becomes the lowest number that there is.")
    low, high = -100 * query.abs(), key.abs()  # all scores are around -2000
    found = first(call(scaled_dot_product_attention, low.clone(), high.clone(), value.clone(), mask.clone()))
    expect_tensor(found, masked_attention(low, high, value, mask), LOW_ENOUGH)

    mask[1, 2] = False
    output, weights = run(mask.clone())
    nothing, right = output[1, 2], scaled.masked_fill(~mask, LOWEST).softmax(-1) * mask
    hint = "a row that may attend to nothing is nan: put the lowest *number* there, not minus infinity."
    expect(not nothing.isnan().any(), hint)
    expect(not nothing.any(), "a row that may attend to nothing collects something: hide again, after the softmax.")
    expect_tensor(weights, right, "the weights are those that meet the values: 0 for all that is hidden.")

    one_row = torch.tensor([True, True, False, True, True])  # for all queries
    try:
        trained = query.clone().requires_grad_()
        scaled_dot_product_attention(trained, key, value, one_row)[0].sum().backward()
    except (IndexError, RuntimeError):
        raise Wrong(
            "a mask may have fewer rows than the scores, and scores may not be changed in place: use `masked_fill`."
        ) from None

    alike, ones = torch.zeros(1, 100, 16), torch.ones(1, 100, 7)  # each weight is 1/100, and what is kept is added up
    output, _ = expect_pair(call(scaled_dot_product_attention, alike, alike, ones, None, 0.75))
    expect(close(output, output[..., :1].expand_as(ones)), DROPS_THE_OUTPUT)
    output, _ = expect_pair(call(scaled_dot_product_attention, alike, alike, torch.eye(100), None, 0.75))
    dropped = (output == 0).double().mean().item()  # with these values, the output is the weights
    expect(dropped, "dropout has no effect. This function always drops: who calls it says 0.0 outside training.")
    expect(0.7 < dropped < 0.8, "dropout is the share of the weights to set to zero, not the share to keep.")
    largest = torch.as_tensor(output).max()
    expect(close(largest, torch.tensor(0.04)), "drop weights, after the softmax; `F.dropout` enlarges what it keeps.")
    for mask_or_none in (mask, None):
        expect_any_device(WHERE_QUERY_IS, scaled_dot_product_attention, query, key, value, mask_or_none, 0.5)
    return "equal to PyTorch's `F.scaled_dot_product_attention`, and the weights can be looked at."


def expect_mask(kind: type[nn.Module], d_model: int, num_heads: int, *more: float) -> None:
    """Raise ``Wrong`` unless a class that is right without a mask is so with one, and hands back the same gradient."""
    module, theirs = beside_pytorchs(kind, d_model, num_heads, *more)
    inputs = words_and_others(d_model)
    mask = torch.rand(2, 1, 3, 5) > 0.5
    mask[..., 0], mask[..., 1] = True, False  # so that upside down, too, each row may attend to something
    hidden = ~mask.expand(2, num_heads, 3, 5).flatten(0, 1)  # for PyTorch, whose True means "ignore"
    with torch.no_grad():
        output, maps = output_and_weights(module, *inputs, mask)
        expect(not close(output, theirs(*inputs)[0]), "the mask does not reach the attention.")
        expect(not close(output, theirs(*inputs, attn_mask=~hidden)[0]), "True in a mask means *may attend*.")
        right, right_maps = theirs(*inputs, attn_mask=hidden, average_attn_weights=False)
        expect_tensor(output, right, "it is right without a mask, but not with one: hide scores before the softmax.")
        expect_tensor(maps, right_maps, "with a mask, the weights are others than those that meet the values.")
        alike = with_scores_far_below(module, theirs)
        found = output_and_weights(module, *inputs, mask)[0]
        expect_tensor(found, alike(*inputs, attn_mask=hidden)[0], LOW_ENOUGH)
    trained = load(build(kind, d_model, num_heads, *(0.0 for _ in more)), multi_head_weights(theirs)).train()
    expect_gradients(OTHER_IN_TRAINING, trained, lambda q, k, v, _: theirs(q, k, v, attn_mask=hidden)[0], *inputs, mask)


def expect_dropout_of_weights(kind: type[nn.Module]) -> None:
    """Raise ``Wrong`` unless a class drops its weights in training, by the share that it is told, and nothing else.

    All of its 20 weights are alike, each value is 1, and what comes out is what the heads collect: so many of the 20.
    """
    for share in (0.5, 0.2):
        module, ones, zeros = build(kind, 24, 4, share).train(), torch.ones(24), torch.zeros(24, 24)
        weights = {f"{name}_proj.weight": zeros for name in "qkv"} | {"out_proj.weight": torch.eye(24)}
        biases = {f"{name}_proj.bias": 0 * ones for name in ("q", "k", "out")} | {"v_proj.bias": ones}
        module.load_state_dict(weights | biases)
        with torch.no_grad():
            heads = expect_pair(call(module, *[torch.randn(3, 20, 24)] * 3))[0].unflatten(-1, (4, 6))
        expect(close(heads, heads[..., :1].expand_as(heads)), DROPS_THE_OUTPUT)
        kept = heads * 20 * (1 - share)
        expect(not close(heads, torch.ones_like(heads)), "in training mode, dropout is nowhere at work.")
        expect(close(kept, kept.round(), 1e-3), "another share is dropped than `__init__` was told: `self.dropout`.")


def expect_other_dropout(kind: type[nn.Module]) -> None:
    """Raise ``Wrong`` if a class drops numbers before the weights are there."""
    torch.manual_seed(0)
    module, words = build(kind, 24, 4, 0.5), torch.randn(3, 20, 24)
    with torch.no_grad():
        before, after = (expect_pair(call(module.train(mode), words, words, words))[1] for mode in (False, True))
    kept = torch.where(after == 0, 0.0, before)  # tutorials return the weights before dropout, which is right, too
    hint = "in training, the weights are others, not only fewer: drop them after the softmax, and nothing before it."
    expect(close(after, before) or close(after, 2 * kept), hint)


@exercise("MultiHeadAttention")
def with_mask_and_dropout(MultiHeadAttention: type[nn.Module]) -> str:
    """Compute what ``nn.MultiheadAttention`` does, with a mask as without, and drop weights in training."""
    torch.manual_seed(0)
    for d_model, num_heads in ((24, 4), (20, 2)):
        _, weights, _, maps = expect_multi_head(MultiHeadAttention, d_model, num_heads, 0.5)
        expect(weights is not None, "two things are returned: the output, and the weights of all heads.")
        expect_tensor(weights, maps, "the weights are what comes out of the softmax, for each head.")
        expect_mask(MultiHeadAttention, d_model, num_heads, 0.5)
    expect_dropout_of_weights(MultiHeadAttention)
    expect_other_dropout(MultiHeadAttention)
    module, words = build(MultiHeadAttention, 24, 4, 0.5), torch.randn(3, 20, 24)
    expect_any_device(WHERE_QUERY_IS, module, words, words, words, torch.ones(20, 20).tril() > 0)
    return "equal to `nn.MultiheadAttention`, with a mask and without; and it drops weights in training only."


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
