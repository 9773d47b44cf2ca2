"""Checks of the exercises of notebook 04: positions, sub-layers, shapes, parameters, a toy task."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from transformer_exercises import Wrong, as_list, call, close, exercise, expect, expect_number, expect_tensor


@exercise("04.1")
def sinusoids(my_positions: Callable[[int, int], Tensor]) -> str:
    """``my_positions(max_len, d_model)``: the table of section 3.5, ``[max_len, d_model]``."""
    length, d_model = 50, 12
    right = torch.tensor(
        [
            [(math.cos if i % 2 else math.sin)(pos / 10_000 ** (i // 2 * 2 / d_model)) for i in range(d_model)]
            for pos in range(length)
        ]
    )
    found = call(my_positions, length, d_model)
    if isinstance(found, Tensor) and found.shape == right.shape:
        halves = torch.cat([right[:, 0::2], right[:, 1::2]], dim=1)
        expect(not close(found, halves), "sines and cosines take turns: dimension 0 is a sine, 1 a cosine, 2 a sine …")
        swapped = right.unflatten(1, (-1, 2)).flip(-1).flatten(1)
        expect(not close(found, swapped), "even dimensions are sines, and odd ones cosines.")
        own_frequency = torch.tensor(
            [
                [(math.cos if i % 2 else math.sin)(pos / 10_000 ** (i / d_model)) for i in range(d_model)]
                for pos in range(length)
            ]
        )
        expect(
            not close(found, own_frequency), "a sine and its cosine have one wavelength: the exponent is 2i for both."
        )
        expect(not close(found[:-1], right[1:]), "the first position is 0, not 1: sin 0 = 0 and cos 0 = 1.")
    expect_tensor(found, right, "look at row 0 (0, 1, 0, 1 …) and row 1 first, then at how fast each column turns.")
    return (
        "that is `SinusoidalPositionalEncoding`, whose table is a buffer: it moves with the model, and is not trained."
    )


@exercise("04.2")
def sublayer(my_pre_norm: Callable[[Tensor, Callable[[Tensor], Tensor], nn.Module], Tensor]) -> str:
    """``my_pre_norm(x, sublayer, norm)``: what a sub-layer adds to the stream, with the norm first."""
    torch.manual_seed(0)
    x, norm, layer = torch.randn(2, 3, 8), nn.LayerNorm(8), nn.Linear(8, 8)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        right = x + layer(norm(x))
        found = call(my_pre_norm, x.clone(), layer, norm)
        if isinstance(found, Tensor) and found.shape == right.shape:
            expect(
                not close(found, norm(x + layer(x))), "that is post-LN, the paper's: the norm is outside of the sum."
            )
            expect(
                not close(found, norm(x) + layer(norm(x))), "the stream itself is not normalised: add to x as it came."
            )
            expect(not close(found, x + norm(layer(x))), "the norm comes *before* the sub-layer, not after it.")
            expect(not close(found, layer(norm(x))), "the residual connection is missing: x itself goes on as well.")
            expect(not close(found, x + layer(x)), "nothing is normalised: where does the norm go?")
        expect_tensor(found, right, "norm, sub-layer, sum: which of them comes first, and what is added to what?")
    return "through the sum, a gradient reaches the first layer unchanged; that is why pre-LN trains deep stacks."


@exercise("04.3")
def shapes(queries: Sequence[int], keys: Sequence[int], weights: Sequence[int], output: Sequence[int]) -> str:
    """Shapes in cross-attention, of queries and keys by head, weights and output: 2 sentences, source 7, target 5."""
    right = {
        "queries": ([2, 8, 5, 32], "they come from the target, and each head gets 256 / 8 dimensions"),
        "keys": ([2, 8, 7, 32], "they come from the memory, which has the source's length"),
        "weights": ([2, 8, 5, 7], "in each head, a row for each query and a column for each key"),
        "output": ([2, 5, 256], "the heads are joined again, and there is one vector for each query"),
    }
    for (name, (shape, hint)), given in zip(right.items(), (queries, keys, weights, output), strict=True):
        try:
            found = [int(size) for size in as_list(given)]
        except (TypeError, ValueError, OverflowError):
            raise Wrong(f"{name}: a list of sizes was expected, such as [2, 7, 256].") from None
        if len(shape) == 4:
            unsplit = [2, shape[2], 8, 32]
            expect(found != unsplit or found == shape, f"{name}: `split_heads` moves the heads before the positions.")
            expect(len(found) == 4, f"{name}: the heads have an axis of their own, the second of four.")
        expect(found == shape, f"{name}: {hint}.")
    return "whatever the source's length is, what comes out has the target's: one vector read for each query."


@exercise("04.4")
def where_the_parameters_are(embeddings: int, encoder: int, decoder: int, output: int) -> str:
    """``embeddings``, ``encoder``, …: the 9,038,341 parameters of the tutorial model, by part."""
    layer_attention, d_model, d_ff = 4 * (256 * 256 + 256), 256, 512
    feed_forward, norm = 2 * d_model * d_ff + d_ff + d_model, 2 * d_model
    right = {
        "embeddings": ((7_853 + 5_893) * 256 + 2 * 100 * 256, "words of both sides, and a hundred positions for each"),
        "encoder": (
            3 * (layer_attention + feed_forward + 2 * norm),
            "three layers of an attention, a network, two norms",
        ),
        "decoder": (
            3 * (2 * layer_attention + feed_forward + 3 * norm),
            "a layer has a second attention, and a third norm",
        ),
        "output": (5_893 * 256 + 5_893, "each English word has 256 weights and a bias"),
    }
    for (name, (number, hint)), given in zip(right.items(), (embeddings, encoder, decoder, output), strict=True):
        expect_number(given, number, f"{name}: {hint}.", tolerance=0)
    return "more than half of the model is about single words: their vectors on the way in, and the output layer."


@exercise("04.5")
def sorting(my_sorting: Callable[[int], tuple[Tensor, Tensor]]) -> str:
    """``my_sorting(batch_size)``: digits, ``[batch, 8]``, and ``<sos>``, the digits sorted, ``<eos>``."""
    found = call(my_sorting, 64)
    pair = isinstance(found, tuple | list) and len(found) == 2 and all(isinstance(one, Tensor) for one in found)
    expect(pair, "two tensors were expected: the digits, and the target.")
    digits, target = (one.detach().cpu() for one in found)
    expect(
        not (digits.is_floating_point() or target.is_floating_point()), "ids are whole numbers: use `torch.randint`."
    )
    expect(digits.shape == (64, 8), f"the digits have shape {list(digits.shape)}, expected [64, 8].")
    expect(len(digits.unique(dim=0)) > 60, "each row needs digits of its own: the model would learn one by heart.")
    expect(
        digits.min() >= 4 and digits.max() <= 13 and len(digits.unique()) == 10,
        "the digits are random ids, from 4 to 13.",
    )
    expect((digits.diff(dim=1) < 0).any(), "the source is sorted already: there is nothing left to learn.")
    expect(
        target.shape == (64, 10) and (target[:, 0] == 2).all() and (target[:, -1] == 3).all(),
        "the target is [64, 10]: `<sos>` (2), eight digits, `<eos>` (3).",
    )
    inner = target[:, 1:-1]
    expect(not inner.equal(digits.flip(1)), "that is still reversal: the target's digits are to be in order.")
    expect(not inner.equal(digits), "the target's digits are those of the source, unsorted.")
    expect(not inner.equal(digits.sort(dim=1, descending=True).values), "ascending: the smallest digit comes first.")
    expect(inner.equal(digits.sort(dim=1).values), "each row of the target has the digits of its own source, sorted.")
    few = [list(one.shape) for one in call(my_sorting, 3)]
    expect(few == [[3, 8], [3, 10]], f"for a batch of 3, the shapes are {few}, expected [[3, 8], [3, 10]].")
    return "it learns that, too. Its map shows no line now: where to look depends on the digits, not on the position."


@exercise("04.6")
def rotary(my_rotate: Callable[[Tensor, int], Tensor]) -> str:
    """``my_rotate(x, start)``: rotary positions of ``x``, ``[…, seq_len, d]``, the first of which is ``start``."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 8), torch.randn(2, 1, 8)
    found = call(my_rotate, query, 3)
    expect(isinstance(found, Tensor) and found.shape == query.shape, "what is rotated keeps its shape.")
    unturned = call(my_rotate, query, 0)
    apart = torch.cat([query[..., 0::2], query[..., 1::2]], dim=-1)
    expect(not close(unturned, apart), "each number belongs where it was: the two of a pair are neighbours again.")
    expect(close(unturned, query), "at position 0, nothing turns.")
    expect(
        close(found.norm(dim=-1), query.norm(dim=-1)), "turning changes no length: check that cos and sin go with ±."
    )
    scores = [(call(my_rotate, query, i) * call(my_rotate, key, j)).sum(-1) for i, j in ((7, 3), (14, 10), (4, 0))]
    expect(not close(scores[0], (query * key).sum(-1)), "the score does not depend on the positions at all.")
    for score in scores[1:]:
        expect(
            close(score, scores[0]),
            "a score may depend only on the distance of the two positions: each pair of dimensions turns by its own "
            "angle times the position.",
        )
    far = torch.cat([query, query], dim=1)
    both = call(my_rotate, far, 5)
    expect(close(both[:, 1:], call(my_rotate, query, 6)), "each row is one position further than the one before it.")
    turned = torch.cat([call(my_rotate, row[None, None], 1)[0] for row in torch.eye(8)]).detach()
    pairs = torch.block_diag(*[torch.ones(2, 2)] * 4)
    expect(close(turned * pairs, turned), "dimensions 2i and 2i + 1 are a pair, and turn together.")
    sines = turned.fill_diagonal_(0).norm(dim=-1).sort().values  # of the angles, each once for both of its dimensions
    expect((sines.diff() > 1e-3 * sines[1:]).sum() >= 3, "four pairs of dimensions need four different speeds.")
    return "positions that are never added to anything: Llama and many models after it have them."
