"""Checks of the exercises of notebook 02: softmax, queries, keys and values, heads, additive attention."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_exercises import as_list, as_number, call, close, exercise, expect, expect_number, expect_tensor


@exercise("02.1")
def stable_softmax(my_softmax: Callable[[Tensor], Tensor]) -> str:
    """``my_softmax(scores)``: softmax over the last axis, for scores of any size."""
    small = torch.tensor([[2.0, 1.0, 0.0], [0.5, -1.0, 3.0]])
    found = call(my_softmax, small.clone())
    if isinstance(found, Tensor) and found.shape == small.shape:
        expect(not close(found, small.softmax(0)), "the last axis is `dim=-1`; yours sum to one over the first.")
        whole = small.exp() / small.exp().sum()
        expect(not close(found, whole), "each row has a sum of its own: `sum(dim=-1, keepdim=True)`.")
        expect(not close(found, small.exp()), "divide by the sum, so that each row sums to one.")
    expect_tensor(found, small.softmax(-1), "e to the power of each score, divided by the sum of its row.")
    large = torch.tensor([[1000.0, 999.0, 998.0], [-1000.0, -1001.0, -1002.0]])
    found = call(my_softmax, large.clone())
    if isinstance(found, Tensor):
        expect(
            found.detach().isfinite().all(),
            "it is right for small scores, but not for 1000 or −1000: take the largest score of each row away first.",
        )
    expect_tensor(found, large.softmax(-1), "each row needs its own largest score taken away.")
    cube = torch.arange(24.0).reshape(2, 3, 4).sin()
    expect_tensor(call(my_softmax, cube.clone()), cube.softmax(-1), "it is right for two axes, but not for three.")
    return "PyTorch does the same: the largest score becomes 0, and e⁰ is 1."


@exercise("02.2")
def ask_for_the_verb(query_of_der: Sequence[float]) -> str:
    """``query_of_der``: two numbers with which *Der* takes more than 90 % from *bellt*."""
    numbers: Any = as_list(query_of_der)
    expect(isinstance(numbers, list | tuple) and len(numbers) == 2, "two numbers were expected, such as (0, 2).")
    noun, verb = (as_number(number) for number in numbers)
    scores = torch.tensor([0.0, noun, verb], dtype=torch.double) / 2**0.5
    weight = scores.softmax(0)[2].item()
    expect(not noun > verb, "now *Der* looks at *Hund*. Which of the two numbers asks for a verb?")
    expect(
        weight > 0.9,
        f"*Der* takes {weight:.0%} from *bellt*. A longer query makes the choice sharper: think of section 2.",
    )
    return f"*Der* takes {weight:.1%} from *bellt*. The direction says what is looked for, the length how sharply."


@exercise("02.3")
def copy_two_before(two_before: Tensor) -> str:
    """``two_before``: the matrix that turns position i into position i − 2."""
    right = torch.diag(torch.ones(3), -2)
    expect(not close(two_before, right.T), "that copies the word two *after*: transpose it.")
    expect(not close(two_before, torch.diag(torch.ones(4), -1)), "that is `one_before`.")
    expect(not close(two_before, torch.eye(5)), "with that, each word copies itself.")
    if isinstance(two_before, Tensor) and two_before.shape == right.shape:
        two_before = torch.cat([right[:2], two_before[2:]])  # the first two may get anything
    expect_tensor(two_before, right, "from row 2 on, row i needs a single 1, in column i − 2.")
    return "`one_before @ one_before` is the same: one back, and one back again."


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


@exercise("02.5")
def additive_attention(my_additive_attention: Callable[..., Tensor]) -> str:
    """``my_additive_attention(query, key, value, W_q, W_k, v)``: scores from a small network, softmax, average."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    query, key, value, w_q, w_k, v = (
        random(*shape) for shape in ((2, 4, 6), (2, 5, 6), (2, 5, 6), (3, 6), (3, 6), (3,))
    )
    given = (query, key, value, w_q, w_k, v)
    inner = (query @ w_q.T)[:, :, None] + (key @ w_k.T)[:, None]  # [2, 4, 5, 3]
    right = (inner.tanh() @ v).softmax(-1) @ value
    found = call(my_additive_attention, *(tensor.clone() for tensor in given))
    expect(not close(found, (inner @ v).softmax(-1) @ value), "the tanh is missing.")
    expect(not close(found, (inner.tanh() @ v).softmax(-2) @ value), "softmax goes over the keys, the last axis.")
    expect(not close(found, (inner.tanh() @ v) @ value), "the scores need a softmax.")
    expect(not close(found, (inner.tanh() @ v / 6**0.5).softmax(-1) @ value), "additive attention is not scaled.")
    expect_tensor(
        found, right, "scores [batch, query_len, key_len]: v · tanh(W_q q + W_k k) for each query with each key."
    )
    return "tanh keeps each term between −1 and 1, so the scores do not grow with d_k. It needs more work, though."
