"""Checks of the exercises of notebook 02: softmax, attention, queries, keys and values, heads, additive attention.

At the end is a patient of the clinic: what the notebook hides stands there in the open.
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_exercises import (
    Unsolved,
    Wrong,
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
    expect_number,
    expect_tensor,
    load,
    question,
)
from transformer_lib.model.attention import MultiHeadAttention, scaled_dot_product_attention

question(
    "02.a",
    right="plus 100: the same; times 20: one winner",
    replies={
        "plus 100: the same; times 20: the same": "adding 100 multiplies every power, and so the sum, by the same "
        "number, and that cancels. Times 20 takes each power to its 20th, and the largest leaves all others behind.",
        "plus 100: one winner; times 20: the same": "it is the other way round. Whoever is 1 behind has e times less, "
        "at a height of 2 as at a height of 102.",
        "plus 100: the same; times 20: one winner": "softmax sees differences only. Plus 100 leaves them as they are, "
        "times 20 makes them 20 times as large, and e to the power of −20 is next to nothing.",
    },
)
question(
    "02.b",
    right="ball",
    replies={
        "der as before": "its query still asks for position 0. Is there a key left that says so?",
        "ball": "it asks for number 0. A key that holds a content says which word it is, and number 0 of the "
        "vocabulary is ball.",
        "hund itself": "a word's query matches its own key only if both were made to be alike. This query was made "
        "from a position, and is compared with contents.",
    },
)
question(
    "02.c",
    right="nearly 0 with positions and in between without",
    replies={
        "nearly 0 with positions and without": "without positions, the five words are a bag: nothing says which one "
        "came before. No query can ask for what no key tells.",
        "nearly 0 with positions and 1.61 without": "ln 5 is the loss of somebody who has not seen the "
        "sentence. This one sees its five words, and the word before is one of them.",
        "nearly 0 with positions and in between without": "without positions, it can guess among the words that are "
        "there, and the word before is always one of them. That beats guessing among all five of the vocabulary.",
    },
)


@exercise("02.1")
def stable_softmax(my_softmax: Callable[[Tensor], Tensor]) -> str:
    """``my_softmax(scores)``: softmax over the last axis, for scores of any size."""
    small = torch.tensor([[2.0, 1.0, 0.0], [0.5, -1.0, 3.0]])
    found = call(my_softmax, small.clone())
    if isinstance(found, Tensor) and found.shape == small.shape:
        hint = "small scores give nan: 1000 taken away, each power of theirs is 0. Take away each row's own largest."
        expect(not found.isnan().any(), hint)
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
    far_apart = torch.tensor([[300.0, 0.0, 100.0], [-200.0, 200.0, 200.0], [0.0, -1000.0, 1.0]])
    hint = (
        "right as long as a row's scores lie together; 300 above the others, one overflows still. Which one of a row "
    )
    hint += "must be taken away, so that no power is above e⁰?"
    found = call(my_softmax, far_apart.clone())
    expect(not isinstance(found, Tensor) or found.detach().isfinite().all(), hint)
    expect_tensor(found, far_apart.softmax(-1), hint)
    cube = torch.arange(24.0).reshape(2, 3, 4).sin()
    hint = "it is right for two axes, not for three: the last is `dim=-1`."
    expect_tensor(call(my_softmax, cube.clone()), cube.softmax(-1), hint)
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
    return (
        "tanh keeps each term between −1 and 1, whatever d_k is. How many terms there are, the hidden size says: the "
        "larger it is, the smaller v has to be. It needs more work than a dot product, too."
    )


def wrong_scores(query: Tensor, key: Tensor, value: Tensor) -> dict[str, Tensor]:
    """Return scores that are not divided by √d_k, by what is wrong with them."""
    scores, d_k = query @ key.transpose(-2, -1), query.shape[-1]
    other_sizes = sorted({*query.shape, *key.shape, *value.shape} - {d_k, 1})
    return {
        "you have not divided by √d_k.": scores,
        "you have divided by d_k, not by its root.": scores / d_k,
        "divided, not multiplied, by √d_k.": scores * d_k**0.5,
        f"√2 is for keys of two numbers, as in section 3; these have {d_k}: `query.shape[-1]`.": scores / 2**0.5,
        **(
            {}
            if d_k**0.5 == int(d_k**0.5)
            else {"the root is no whole number: leave out `int`.": scores / int(d_k**0.5)}
        ),
        **{
            f"√d_k is the root of the *length of a key*, {d_k} here, not of {size}, another size.": scores / size**0.5
            for size in other_sizes
        },
    }


def expect_pair(found: Any) -> tuple[Any, Any]:
    """Return output and weights, as a reader's code has returned them.

    Raises:
        Unsolved: one of them is still dots.
        Wrong: it returned something else.
    """
    pair = isinstance(found, tuple) and len(found) == 2
    expect(pair, "two things are returned: the averages of the values, and the weights.")
    if any(part is None or part is ... for part in found):
        raise Unsolved
    return found


WHERE_QUERY_IS = "Say `device=query.device`."


def queries_keys_and_values(*axes: int, d_k: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    """Return what three words ask, and what five others offer and hand over, d_v 7; of two sentences, if not said."""
    torch.manual_seed(0)
    axes = axes or (2,)
    return 3 * torch.randn(*axes, 3, d_k), 3 * torch.randn(*axes, 5, d_k), torch.randn(*axes, 5, 7)


def expect_any_size(attend: Callable[[Tensor, Tensor, Tensor], Any], axes: Sequence[Sequence[int]] = ((2,),)) -> None:
    """Raise ``Wrong`` unless attention, which is right for keys of 16 numbers, is so for others, and in training.

    Args:
        attend: returns the averages alone.
        axes: that are tried in front of words and numbers.
    """
    for in_front, d_k in [*((one, 6) for one in axes), (axes[-1], 10)]:
        query, key, value = queries_keys_and_values(*in_front, d_k=d_k)
        heads = (
            "right for a batch; heads are one more axis in front. `transpose(-2, -1)` and `dim=-1` count from the end."
        )
        try:
            found = call(attend, query.clone(), key.clone(), value.clone())
        except Wrong as stopped:
            expect(len(in_front) == 1, f"{heads} {stopped}")
            raise
        for hint, scores in wrong_scores(query, key, value).items():
            expect(not close(found, scores.softmax(-1) @ value), hint)
        of_16 = f"4 is √d_k for keys of 16 numbers; these have {d_k}: `query.shape[-1]`."
        expect(not close(found, (query @ key.mT / 4).softmax(-1) @ value), of_16)
        right = F.scaled_dot_product_attention(query, key, value)
        expect_tensor(found, right, heads if len(in_front) > 1 else f"right for d_k = 16, but not for {d_k}.")
    found = call(attend, 300 * query, key.clone(), value.clone())
    expect(not isinstance(found, Tensor) or found.isfinite().all(), TAKES_THE_LARGEST_AWAY)
    expect_gradients(OTHER_WITH_GRADIENT, attend, F.scaled_dot_product_attention, query, key, value)


@exercise("attention")
def three_lines(attention: Callable[..., tuple[Tensor, Tensor]]) -> str:
    """Compute softmax(Q Kᵀ / √d_k) V, for one sentence and for a batch."""
    queries, keys, values = queries_keys_and_values()
    query, key, value = queries[0], keys[0], values[0]
    output, weights = expect_pair(call(attention, query.clone(), key.clone(), value.clone()))
    scaled = query @ key.T / 4
    for hint, scores in wrong_scores(query, key, value).items():
        expect(not close(output, scores.softmax(-1) @ value), hint)
    expect(not close(output, scaled @ value), "the scores need a softmax.")
    expect(not close(output, scaled.softmax(-2) @ value), "softmax goes over the keys, the last axis.")
    expect(not close(output, scaled.softmax(-1)), "the averages come first, then the weights; yours are exchanged.")
    expect_tensor(output, scaled.softmax(-1) @ value, "go through the four steps: score, scale, weigh, average.")
    expect_tensor(weights, scaled.softmax(-1), "the weights are what comes out of the softmax.")
    try:
        several = call(attention, queries.clone(), keys.clone(), values.clone())
    except Wrong:
        several = (None, None)
    over_queries = (queries @ keys.mT / 4).softmax(1) @ values
    hint = "right for one sentence, but in a batch, axis 1 holds the queries: softmax goes over the last, `dim=-1`."
    expect(not close(several[0], over_queries), hint)
    right = F.scaled_dot_product_attention(queries, keys, values)
    hint = "right for one sentence, but not for a batch: `.T` turns all axes round, `transpose(-2, -1)` the last two."
    expect(close(several[0], right), hint)
    expect_any_size(lambda *given: expect_pair(attention(*given))[0], axes=((2,), (2, 4)))
    expect_any_device(WHERE_QUERY_IS, attention, queries, keys, values)
    return "equal to PyTorch's `F.scaled_dot_product_attention`."


COMPARE_WITH_A_LIST = "project, split, attend, join, project: compare with the heads in a list."
TAKES_THE_LARGEST_AWAY = (
    "large scores give nan: e to the power of 89 is too much. `softmax` takes the largest away first."
)


def first(found: Any) -> Any:
    """Return the first of several things, such as vectors without the maps."""
    return found[0] if isinstance(found, tuple) else found


def with_other_weights(theirs: nn.MultiheadAttention) -> nn.MultiheadAttention:
    """Give weights and biases other numbers, so that a mix-up shows."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return theirs.eval()


def projections_of(theirs: nn.MultiheadAttention) -> dict[str, tuple[Tensor, Tensor]]:
    """Return weight and bias of PyTorch's projections: q, k, v and out."""
    three = zip("qkv", theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True)
    projections = {letter: (weight.detach(), bias.detach()) for letter, weight, bias in three}
    return {**projections, "out": (theirs.out_proj.weight.detach(), theirs.out_proj.bias.detach())}


def by_name(projections: dict[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Return weights and biases as a state_dict has them."""
    weights = {f"{name}.weight": weight for name, (weight, _) in projections.items()}
    return weights | {f"{name}.bias": bias for name, (_, bias) in projections.items()}


def words_and_others(d_model: int = 24, queries: int = 3, keys: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Return three words that look at five others: queries, keys and values, of two sentences and 24 numbers a word.

    No two sizes are alike, with four heads of 6 numbers each: what is exchanged shows.
    """
    return torch.randn(2, queries, d_model), torch.randn(2, keys, d_model), torch.randn(2, keys, d_model)


OTHER_WITH_GRADIENT = "right, but where a gradient is wanted, other numbers come out."
OTHER_IN_TRAINING = "right in evaluation mode, but without dropout, training mode should compute the same."


def expect_biases(module: nn.Module) -> None:
    """Raise ``Wrong`` if the projections have none."""
    names = list(module.state_dict())
    expect(
        not names or any(name.endswith("bias") for name in names), "projections have biases here, as PyTorch's have."
    )


@exercise("Head")
def one_head(Head: type[nn.Module]) -> str:
    """Project to queries, keys and values, and attend."""
    torch.manual_seed(0)
    module = build(Head, 24, 6)
    expect_biases(module)
    w_q, w_k, w_v = ((torch.randn(6, 24) / 4, torch.randn(6)) for _ in range(3))
    load(module, by_name({"W_Q": w_q, "W_K": w_k, "W_V": w_v}))
    query, key, value = words_and_others()
    q, k, v = F.linear(query, *w_q), F.linear(key, *w_k), F.linear(value, *w_v)
    with torch.no_grad():
        output = call(module, query, key, value)
    expect(not isinstance(output, tuple), "return the output alone: `attention` returns the weights, too.")
    mistakes = {
        "keys and values are made from `key` and `value`, which may be another sentence's.": (
            q,
            F.linear(query, *w_k),
            F.linear(query, *w_v),
        ),
        "values are made from `value`, not from `key`.": (q, k, F.linear(key, *w_v)),
        "W_V makes the values: they are projected, too.": (q, k, value),
        "W_K makes the keys, and W_V the values.": (q, k, F.linear(value, *w_k)),
        "W_Q makes the queries, and W_K the keys; yours are exchanged.": (
            F.linear(query, *w_k),
            F.linear(key, *w_q),
            v,
        ),
    }
    for hint, (queries, keys, values) in mistakes.items():
        expect(not close(output, F.scaled_dot_product_attention(queries, keys, values)), hint)
    expect_tensor(output, F.scaled_dot_product_attention(q, k, v), "project with W_Q, W_K and W_V, then `attention`.")
    for d_model, d_k in ((24, 6), (10, 4)):
        module = build(Head, d_model, d_k)
        weights = {name: torch.randn(shape) for name, shape in _shapes_of_head(d_model, d_k).items()}
        load(module, weights).train()

        def right(*inputs: Tensor, weights: dict[str, Tensor] = weights) -> Tensor:
            projected = (
                F.linear(x, weights[f"W_{letter}.weight"], weights[f"W_{letter}.bias"])
                for letter, x in zip("QKV", inputs, strict=True)
            )
            return F.scaled_dot_product_attention(*projected)

        expect_gradients(OTHER_IN_TRAINING, module, right, *words_and_others(d_model))
    expect_any_device(WHERE_QUERY_IS, module, *words_and_others(d_model))
    return "one head: three matrices, and your attention."


def _shapes_of_head(d_model: int, d_k: int) -> dict[str, tuple[int, ...]]:
    return {
        f"W_{letter}.{of}": (d_k, d_model)[: 2 if of == "weight" else 1]
        for letter in "QKV"
        for of in ("weight", "bias")
    }


@exercise("HeadsInAList")
def heads_in_a_list(HeadsInAList: type[nn.Module]) -> str:
    """Compute what ``nn.MultiheadAttention`` does, one head after the other."""
    torch.manual_seed(0)
    for d_model, num_heads in ((24, 4), (10, 2)):
        theirs = with_other_weights(nn.MultiheadAttention(d_model, num_heads, batch_first=True))
        module = build(HeadsInAList, d_model, num_heads)
        expect_biases(module)
        expect_heads(module, d_model, num_heads)
        projections = projections_of(theirs)
        weights = {"W_O": projections.pop("out")}
        for letter, (weight, bias) in projections.items():
            for number, rows in enumerate(zip(weight.chunk(num_heads), bias.chunk(num_heads), strict=True)):
                weights[f"heads.{number}.W_{letter.upper()}"] = rows
        load(module, by_name(weights))
        query, key, value = words_and_others(d_model)
        with torch.no_grad():
            output, right = call(module, query, key, value), theirs(query, key, value)[0]
            expect(not isinstance(output, tuple), "return the output alone.")
            split = each_head(theirs, query, key, value)
            expect(
                not close(output, split.transpose(1, 2).flatten(2)), "W_O is missing: it mixes what the heads found."
            )
            taking_turns = theirs.out_proj(split.permute(0, 2, 3, 1).flatten(2))
            expect(
                not close(output, taking_turns), "all of head 1, then all of head 2: `torch.cat`, not `torch.stack`."
            )
            expect(not close(output, theirs(query, query, query)[0]), "the heads need `key` and `value`, too.")
        hint = "each head gets the same inputs; join their outputs along the last axis, then W_O."
        expect_tensor(output, right, hint)
        expect_gradients(OTHER_IN_TRAINING, module.train(), theirs, query, key, value)
    expect_any_device(WHERE_QUERY_IS, module, query, key, value)
    return "equal to `nn.MultiheadAttention`, one head after the other."


def expect_heads(module: nn.Module, d_model: int, num_heads: int) -> None:
    """Raise ``Wrong`` unless a module has so many heads, each of its own width and with weights of its own."""
    heads = getattr(module, "heads", None)
    expect(not isinstance(heads, list | tuple), "parameters() does not see the heads in a plain list: `nn.ModuleList`.")
    if isinstance(heads, nn.ModuleList):
        expect(len(heads) == num_heads, "there are as many heads as num_heads says.")
        hint = "`[Head(…)] * num_heads` is one head, several times over: make each anew, `for _ in range(num_heads)`."
        expect(len(set(heads)) == num_heads, hint)
    widths = {len(weight) for name, weight in module.state_dict().items() if name.startswith("heads.0.W_Q")}
    expect(widths != {d_model}, "each head works with d_k = d_model // num_heads entries, not with all d_model.")


def each_head(theirs: nn.MultiheadAttention, *inputs: Tensor) -> Tensor:
    """Return the output of each of PyTorch's heads, before they are joined: ``[batch, heads, query_len, d_k]``."""
    projected = (F.linear(x, *projections_of(theirs)[letter]) for letter, x in zip("qkv", inputs, strict=True))
    return F.scaled_dot_product_attention(*(x.unflatten(-1, (theirs.num_heads, -1)).transpose(1, 2) for x in projected))


def multi_head_mistakes(theirs: nn.MultiheadAttention, *inputs: Tensor) -> dict[str, Tensor]:
    """Return what a ``MultiHeadAttention`` computes in which something is wrong, by hint."""
    out, count, projected = theirs.out_proj, theirs.num_heads, projections_of(theirs)
    q, k, v = (F.linear(x, *projected[letter]) for letter, x in zip("qkv", inputs, strict=True))

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (count, -1)).transpose(1, 2)

    def view(x: Tensor) -> Tensor:
        return x.reshape(len(x), count, x.shape[1], -1)

    def take_turns(x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, count)).permute(0, 3, 1, 2)

    def exchange(x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, count)).transpose(1, 2)

    def join(heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    def attend(cut: Callable[[Tensor], Tensor], stretch: float = 1.0) -> Tensor:
        return F.scaled_dot_product_attention(stretch * cut(q), cut(k), cut(v))

    d_k = q.shape[-1] // count
    heads, scores = attend(split), split(q) @ split(k).mT / d_k**0.5
    of_query = F.linear(inputs[0], *projected["k"])
    way_in = "words are scrambled on the way in: cut the last axis in two, then transpose heads and words."
    way_back = "words are scrambled on the way back: transpose heads and words, then flatten the last two axes."
    return (
        {
            way_in: out(join(attend(view))),
            f"{way_in} And as to the way back: transpose first, then flatten the last two axes.": out(
                attend(view).reshape(inputs[0].shape)
            ),
            way_back: out(heads.reshape(inputs[0].shape)),
            "a head's numbers lie side by side: (num_heads, -1), not (-1, num_heads).": out(
                attend(take_turns).permute(0, 2, 3, 1).flatten(2)
            ),
            "heads and their width are exchanged: (num_heads, -1), not (-1, num_heads).": out(join(attend(exchange))),
            "√d_k is the root of a head's width, d_model / num_heads, not of d_model.": (
                out(join(attend(split, count**-0.5)))
            ),
            "√d_k is the root of a head's width, d_model / num_heads, not of the number of heads.": (
                out(join(attend(split, (d_k / count) ** 0.5)))
            ),
            "the scores are not divided by √d_k.": out(join(attend(split, d_k**0.5))),
            "softmax goes over the keys, the last axis.": out(join(scores.softmax(-2) @ split(v))),
            "softmax goes over the keys, the last axis; axis 1 holds the heads.": out(
                join(scores.softmax(1) @ split(v))
            ),
            "out_proj is missing, the W^O that mixes what the heads found.": join(heads),
            "this is a single head, as wide as all: split queries, keys and values.": out(
                F.scaled_dot_product_attention(q, k, v)
            ),
            "values are made from `value` by v_proj.": out(
                join(F.scaled_dot_product_attention(split(q), split(k), split(k)))
            ),
            "v_proj gets `value`, not `key`: what is handed over need not be what is compared.": out(
                join(F.scaled_dot_product_attention(split(q), split(k), split(F.linear(inputs[1], *projected["v"]))))
            ),
        }
        | (
            {}
            if of_query.shape != v.shape
            else {  # with other lengths, this stops with an error
                "k_proj gets `key`, not `query`.": out(
                    join(F.scaled_dot_product_attention(split(q), split(of_query), split(v)))
                ),
            }
        )
        | {
            "keys and values are made from `key` and `value`, which may be another sentence's.": (
                theirs(inputs[0], inputs[0], inputs[0])[0]
            ),
        }
    )


def multi_head_weights(theirs: nn.MultiheadAttention) -> dict[str, Tensor]:
    """Return PyTorch's weights and biases under the names that they have here."""
    return by_name({f"{name}_proj": weight_and_bias for name, weight_and_bias in projections_of(theirs).items()})


def beside_pytorchs(kind: type[nn.Module], d_model: int, num_heads: int, *more: float) -> tuple[nn.Module, Any]:
    """Return a reader's module and an ``nn.MultiheadAttention`` with the same weights, both in evaluation mode."""
    module = build(kind, d_model, num_heads, *more)
    expect_biases(module)
    theirs = with_other_weights(nn.MultiheadAttention(d_model, num_heads, batch_first=True))
    return load(module, multi_head_weights(theirs)), theirs


def output_and_weights(module: nn.Module, *inputs: Tensor) -> tuple[Any, Any]:
    """Return what a module computes: the output, and the weights, or None if it returns the output alone."""
    found = call(module, *inputs)
    return found if isinstance(found, tuple) and len(found) == 2 else (found, None)


def with_scores_far_below(module: nn.Module, theirs: nn.MultiheadAttention) -> nn.MultiheadAttention:
    """Give a module weights with which all its scores are alike, and far below −1000; return PyTorch's with 0 there."""
    d_model, weights = theirs.embed_dim, multi_head_weights(theirs)
    for letter, size in (("q", -40.0), ("k", 40.0)):
        weights[f"{letter}_proj.weight"] = torch.zeros(d_model, d_model)
        weights[f"{letter}_proj.bias"] = torch.full((d_model,), size)
    load(module, weights)
    alike = copy.deepcopy(theirs)
    alike.in_proj_weight[: 2 * d_model], alike.in_proj_bias[: 2 * d_model] = 0, 0
    return alike


def expect_multi_head(kind: type[nn.Module], d_model: int, num_heads: int, *more: float) -> tuple[Any, ...]:
    """Raise ``Wrong`` unless a class computes what ``nn.MultiheadAttention`` does with the same weights, without masks.

    Returns:
        Its output, and the weights if it returns them, and PyTorch's.
    """
    module, theirs = beside_pytorchs(kind, d_model, num_heads, *more)
    inputs = words_and_others(d_model)
    with torch.no_grad():
        try:
            output, weights = output_and_weights(module, *inputs)
        except Wrong:
            expect_no_mistake_that_stops(module, theirs)
            raise
        right, maps = theirs(*inputs, average_attn_weights=False)
        if output is ...:
            raise Unsolved
        again = output_and_weights(module, *inputs)[0]
        expect(not isinstance(output, Tensor) or close(again, output), "dropout only where self.training is True.")
        for hint, wrong in multi_head_mistakes(theirs, *inputs).items():
            expect(not close(output, wrong), hint)
        sizes = f"right with d_model 24 and 4 heads, but not with {d_model} and {num_heads}: both are arguments."
        expect_tensor(output, right, COMPARE_WITH_A_LIST if num_heads == 4 else sizes)
        alike = with_scores_far_below(module, theirs)
        found = output_and_weights(module, *inputs)[0]
        expect(not isinstance(found, Tensor) or found.isfinite().all(), TAKES_THE_LARGEST_AWAY)
        expect_tensor(found, alike(*inputs)[0], COMPARE_WITH_A_LIST)
    trained = load(build(kind, d_model, num_heads, *(0.0 for _ in more)), multi_head_weights(theirs)).train()
    expect_gradients(OTHER_IN_TRAINING, trained, lambda *given: theirs(*given)[0], *inputs)
    return output, weights, right, maps


def expect_no_mistake_that_stops(module: nn.Module, theirs: nn.MultiheadAttention) -> None:
    """Raise ``Wrong`` if a module, which stops with an error, does not with as many keys as queries, and heads."""
    inputs, wrong = words_and_others(theirs.embed_dim, queries=theirs.num_heads, keys=theirs.num_heads), []
    with suppress(Wrong):
        found = first(call(module, *inputs))
        wrong = [hint for hint, one in multi_head_mistakes(theirs, *inputs).items() if close(found, one)]
    expect(not wrong, "".join(wrong[:1]))


@exercise("MultiHeadAttention, without mask")
def all_heads_at_once(MultiHeadAttention: type[nn.Module]) -> str:
    """Compute what ``nn.MultiheadAttention`` does, all heads at once."""
    torch.manual_seed(0)
    for d_model, num_heads in ((24, 4), (20, 2)):
        _, weights, _, maps = expect_multi_head(MultiHeadAttention, d_model, num_heads)
        expect(weights is not None, "two things are returned: the output, and the weights of all heads.")
        expect_tensor(weights, maps, "the weights are what comes out of the softmax, for each head.")
    expect_any_device(WHERE_QUERY_IS, build(MultiHeadAttention, 24, 4), *words_and_others())
    return "equal to `nn.MultiheadAttention`: the same output, the same weights."


@exercise("MyMultiHeadAttention")
def from_memory(MyMultiHeadAttention: type[nn.Module]) -> str:
    """Give it the weights of an ``nn.MultiheadAttention``, and compare the outputs."""
    if getattr(MyMultiHeadAttention, "__init__", None) is nn.Module.__init__:
        raise Unsolved  # the page is still blank
    torch.manual_seed(0)
    for d_model, num_heads in ((24, 4), (20, 2)):
        output, _, right, _ = expect_multi_head(MyMultiHeadAttention, d_model, num_heads)
    expect_any_device(WHERE_QUERY_IS, build(MyMultiHeadAttention, 24, 4), *words_and_others())
    difference = (output - right).abs().max().item()
    return f"with the weights of an `nn.MultiheadAttention`, the outputs differ by at most {difference:.0e}."


# The patient. Read on when you have named its fault.

FAULTS = {
    "no root": "the scores are not divided at all",
    "root of d_model": "the scores are divided by √d_model",
    "softmax over queries": "the weights of a column sum to one, not those of a row",
    "values from keys": "k_proj makes the values, too",
    "no W_O": "the heads' outputs are joined, and returned as they are",
}
SIGNS = {
    "no root": "one head would differ from yours, too, and more heads would choose more sharply, not less",
    "softmax over queries": "the rows of the weights would not sum to one",
    "values from keys": "the weights would be equal to yours, and only the output would differ",
    "no W_O": "the weights would be equal to yours; the output would differ, even with one head",
}


@disguised
class Patient(MultiHeadAttention):
    """Multi-head attention with one fault, made like the notebook's: ``Patient(d_model=16, num_heads=4)``."""

    def forward(  # type: ignore[override]
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the output and the weights."""
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (self.split_heads(x) for x in (q, k, v))
        heads, weights = scaled_dot_product_attention(q / self.num_heads**0.5, k, v, mask)
        return self.out_proj(self.join_heads(heads)), weights


@exercise("02.6")
def patient_of_the_clinic(fault: str) -> str:
    """``fault``: the name of the patient's fault in ``FAULTS``."""
    diagnose(fault, "root of d_model", FAULTS, SIGNS)
    return (
        "a head's keys have d_model / num_heads entries, and √d_k is the root of *that*. Divided by √d_model, the "
        "scores of four heads are half as large as they should be, and every head looks everywhere a little."
    )
