"""Checks of the exercises of notebook 02: masks, and one attention head."""

from collections.abc import Callable, Collection

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lib.exercises import (
    Wrong,
    as_letters,
    as_number,
    call,
    close,
    exercise,
    expect,
    expect_number,
    expect_tensor,
)


@exercise("02.1")
def padding_and_causal_mask(my_target_mask: Callable[[Tensor, int], Tensor]) -> str:
    """``my_target_mask(ids, pad_id)``: who may look at whom in a decoder, ``[batch, 1, seq_len, seq_len]``."""
    ids = torch.tensor([[7, 8, 9, 1], [7, 1, 1, 1], [7, 8, 9, 6]])
    may = torch.tensor([[[k <= q and row[k] != 1 for k in range(4)] for q in range(4)] for row in ids.tolist()])
    may = may[:, None]  # [batch, 1, seq_len, seq_len]
    found = call(my_target_mask, ids.clone(), 1)
    if isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == may.shape:
        expect(not found.equal(~may), "it is upside down: True means *may attend*.")
        expect(not found.equal(may.transpose(-1, -2)), "queries are rows and keys are columns; yours are exchanged.")
        no_padding = torch.ones(4, 4, dtype=torch.bool).tril().expand_as(may)
        expect(not found.equal(no_padding), "it hides what comes later, but the padding is still seen.")
        padding_only = (ids != 1)[:, None, None, :].expand_as(may)
        expect(not found.equal(padding_only), "it hides the padding, but not what comes later.")
        strict = may & ~torch.eye(4, dtype=torch.bool)
        expect(not found.equal(strict), "a word may see itself; otherwise the first one sees nothing.")
        ahead = torch.ones(4, 4, dtype=torch.bool).tril(1) & padding_only
        expect(not found.equal(ahead), "each word sees one word that comes later: look at the first row.")
        no_queries = may & (ids != 1)[:, None, :, None]
        expect(
            not found.equal(no_queries),
            "you have hidden the rows of padding too. Nobody reads them, but softmax of nothing is nan.",
        )
    expect_tensor(found, may, "compare the rows one by one: row i is what word i may see.")
    longer = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    hint = "it is right for four tokens, but not for six."
    expect_tensor(call(my_target_mask, torch.tensor([[7, 8, 9, 6, 5, 4]]), 1), longer, hint)
    other = torch.tensor([[[[True, False, False], [True, True, False], [True, True, False]]]])
    hint = "the id of padding is an argument; it need not be 1."
    expect_tensor(call(my_target_mask, torch.tensor([[7, 1, 0]]), 0), other, hint)
    return "compare it with `transformer_lib.model.masks.target_mask`, which is two lines."


@exercise("02.2")
def attention_head(my_attention: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> str:
    """``my_attention(query, key, value, mask)``: one head, equation 1 of the paper, with a mask."""
    generator = torch.Generator().manual_seed(0)
    query, key = (3 * torch.randn(2, length, 16, generator=generator) for length in (4, 5))
    value = torch.randn(2, 5, 3, generator=generator)
    mask = torch.rand(2, 4, 5, generator=generator) > 0.4
    mask[..., 0] = True  # nobody sees nothing
    everything = torch.ones_like(mask)
    right = F.scaled_dot_product_attention(query, key, value, mask)
    found = call(my_attention, query.clone(), key.clone(), value.clone(), mask.clone())
    if isinstance(found, Tensor) and found.shape == right.shape:
        scores = query @ key.transpose(-1, -2)
        mistakes = {
            "you have not divided by √d_k.": scores,
            "you have divided by d_k, not by its root.": scores / 16,
            **{
                f"√d_k is the root of the *length of a key*, 16 here, not of {size}, another size.": scores / size**0.5
                for size in (2, 3, 4, 5)
            },
        }
        for hint, wrong in mistakes.items():
            expect(not close(found, _mix(wrong, mask, value)), hint)
        scaled = scores / 4
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
    return "that is PyTorch's `F.scaled_dot_product_attention`, by hand."


def _mix(scores: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value


@exercise("02.3")
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


@exercise("02.4")
def heads_cost(parameters_of_8_heads: int, parameters_of_1_head: int) -> str:
    """How many weights and biases a MultiHeadAttention of d_model 64 has, with eight heads and with one."""
    right = 4 * (64 * 64 + 64)
    for given, heads in ((parameters_of_8_heads, 8), (parameters_of_1_head, 1)):
        number = as_number(given)
        expect(number != 3 * (64 * 64 + 64), "there are four projections: query, key, value, and the output.")
        expect(number != 4 * 64 * 64, "each projection has biases too, one for each of its outputs.")
        expect(number != 8 * right, "heads share the width: each of the 8 works on 64 / 8 dimensions.")
        expect(number != right / 8, "one head is not an eighth of eight: it is eight times as wide.")
        expect_number(
            number, right, f"count the projections of {heads} head{'s' * (heads > 1)}: each maps 64 numbers to 64.", 0
        )
    return "heads cost nothing: the same matrices, cut into more pieces."
