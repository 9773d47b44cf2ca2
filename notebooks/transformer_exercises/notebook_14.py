"""Checks of the exercises of notebook 14: what a cache, a layer and a matrix product cost, and a batch in parts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_exercises import Wrong, as_number, call, close, exercise, expect, expect_number, question
from transformer_lib.data.batches import Batch
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer
from transformer_lib.training.loss import sequence_loss

question(
    "14.a",
    right="about a quarter",
    replies={
        "about a quarter": "so it was on our CPU. The rest goes to padding, to moving numbers, and to waiting.",
        "about a half": "so it would be if nothing were computed on padding.",
        "nearly all of it": "a processor that did nothing but large matrix products would get there.",
    },
)
question(
    "14.b",
    right="linear layers",
    replies={
        "linear layers": "four projections in each attention, two matrices in each feed-forward network, and the "
        "vocabulary at the end. That's where a Transformer computes.",
        "attention with its maps": "for long texts, some day. A caption's maps are small, 15 by 15 for each head, and "
        "its projections are linear layers.",
        "dropout": "it takes a lot of time for so little arithmetic, but not the most.",
    },
)
question(
    "14.c",
    right="a half",
    replies={
        "a tenth": "that is about what sorting leaves.",
        "a quarter": "the longest of 128 sentences is much longer than the others, and all are padded to its length.",
        "a half": "one long sentence among 128 makes all the others long.",
    },
)
question(
    "14.d",
    right="company",
    replies={
        "the cache": "it saves most in long texts, and captions are short.",
        "company": "a batch reads each weight once for all its sentences.",
        "each as much as the other": "they save different things: one computes less, the other reads less.",
    },
)
question(
    "14.e",
    right="CTranslate2",
    replies={
        "this library": "it comes second, and all of it is Python that you can read. Somebody does it in C++.",
        "PyTorch's layers": "they have no cache, so each word computes the whole prefix again.",
        "Hugging Face": "it has a cache, and a search that can do nearly anything, which takes its time.",
        "CTranslate2": "it is written in C++, for this and nothing else.",
    },
)
question(
    "14.f",
    right="higher for a while",
    replies={
        "the same": "the weights are the same in that moment, but the next step is not: Adam has forgotten its "
        "averages, and the schedule its place.",
        "higher for a while": "Adam's averages start from nothing, and the learning rate warms up once more. With "
        "time, such a run catches up.",
        "back at the beginning": "what has been learned is in the weights, and those are there.",
    },
)


@exercise("14.1")
def positions_and_scores(
    positions_without_cache: int, positions_with_cache: int, scores_without_cache: int, scores_with_cache: int
) -> str:
    """``positions_without_cache``, …: what a decoder computes to write 20 tokens."""
    positions_without_cache, positions_with_cache, scores_without_cache, scores_with_cache = map(
        as_number, (positions_without_cache, positions_with_cache, scores_without_cache, scores_with_cache)
    )
    steps = range(1, 21)
    once, all_again, squares = len(steps), sum(steps), sum(step**2 for step in steps)
    expect(positions_without_cache != 20 * 20, "positions_without_cache: the prefix grows: 1, then 2, then 3 …")
    expect(positions_without_cache != sum(range(20)), "positions_without_cache: the first step has a position too.")
    expect_number(positions_without_cache, all_again, "positions_without_cache: add up the 20 steps.", 0)
    expect(positions_with_cache != 1, "positions_with_cache: one for each step, and there are 20.")
    expect_number(positions_with_cache, once, "positions_with_cache: what is cached is not computed again.", 0)
    expect(
        scores_without_cache != sum(step * (step + 1) // 2 for step in steps),
        "scores_without_cache: those that the causal mask hides are computed as well, and thrown away.",
    )
    expect_number(
        scores_without_cache, squares, "scores_without_cache: at step t, each of t queries meets each of t keys.", 0
    )
    expect(scores_with_cache != once, "scores_with_cache: the newest query still meets every key so far.")
    expect_number(scores_with_cache, all_again, "scores_with_cache: at step t, one query meets t keys.", 0)
    return "positions grow with n² without a cache and with n with it; scores with n³ and n²."


@exercise("14.2")
def operations_of_a_layer(my_operations: Callable[[int, int, int], int]) -> str:
    """``my_operations(length, d_model, d_ff)``: of the matrix products of an encoder layer, for one sentence."""
    for length, d_model, d_ff in ((7, 24, 20), (16, 256, 512), (100, 512, 2048)):
        projection = 2 * length * d_model**2
        attention = 2 * length**2 * d_model
        feed_forward = 2 * length * d_model * d_ff
        right = 4 * projection + 2 * attention + 2 * feed_forward
        found = as_number(call(my_operations, length, d_model, d_ff))
        expect(
            not _same(found, right / 2),
            "every product of two numbers counts twice, as a multiplication and an addition.",
        )
        expect(not _same(found, 3 * right), "that is a training step's, the way back included; count the way there.")
        missing = {
            "attention's own two products, of queries with keys and of weights with values,": 2 * attention,
            "one of attention's own two products": attention,
            "one of the four projections": projection,
            "one of the two matrices of the feed-forward network": feed_forward,
            "the feed-forward network": 2 * feed_forward,
            "all four projections": 4 * projection,
        }
        for what, operations in missing.items():
            expect(not _same(found, right - operations), f"{what} {'are' if 'two p' in what else 'is'} missing.")
        expect_number(
            found, right, f"length {length}, d_model {d_model}, d_ff {d_ff}: list the products, with their shapes.", 0
        )
    return (
        "the heads do not occur. The maps take half of the work only with 2 · d_model + d_ff tokens, 1,024 for the "
        "tutorial model's layer."
    )


@exercise("14.3")
def roofline(my_seconds: Callable[..., float]) -> str:
    """``my_seconds(rows, inner, columns, rate, bandwidth)``: the least time of a matrix product in float32."""
    mistakes = {  # from the time to compute, and the times to move the weights, what comes in and what goes out
        "the processor computes while the memory delivers: the longer of the two times counts.": (
            lambda computing, *moving: computing + sum(moving)
        ),
        "it has to wait for the slower of the two, not for the faster one.": (
            lambda computing, *moving: min(computing, sum(moving))
        ),
        "a float32 takes four bytes.": lambda computing, *moving: max(computing, sum(moving) / 4),
        "a multiplication and an addition: two operations for each pair of numbers.": (
            lambda computing, *moving: max(computing / 2, sum(moving))
        ),
        "not only the weights travel: what comes in is read, and what goes out is written.": (
            lambda computing, weights, read, written: max(computing, weights)
        ),
        "the result has to be written as well.": (
            lambda computing, weights, read, written: max(computing, weights + read)
        ),
        "the numbers also have to be read from memory and written to it.": lambda computing, *moving: computing,
        "seconds were asked for, not milliseconds.": lambda computing, *moving: 1000 * max(computing, sum(moving)),
        "with many rows, computing takes longer than reading.": lambda computing, *moving: sum(moving),
    }
    times, found = [], []
    for rows, inner, columns, rate, bandwidth in (
        (1, 256, 512, 100e9, 10e9),
        (2048, 256, 512, 100e9, 10e9),
        (60, 100, 2000, 50e9, 5e9),
        (4, 64, 4000, 1e11, 2e10),
    ):
        numbers = inner * columns, rows * inner, rows * columns
        times.append((2 * rows * inner * columns / rate, *(4 * number / bandwidth for number in numbers)))
        found.append(as_number(call(my_seconds, rows, inner, columns, rate, bandwidth)))
    for hint, mistake in mistakes.items():
        expect(not all(_same(one, mistake(*parts)) for one, parts in zip(found, times, strict=True)), hint)
    for one, (computing, *moving) in zip(found, times, strict=True):
        expect(_same(one, max(computing, sum(moving))), "take the longer one of the times to compute and to move.")
    return (
        "with one row, a product waits for the memory; with many, for the processor. So sentences are translated "
        "together."
    )


@exercise("14.4")
def batch_in_parts(my_gradients: Callable[[Transformer, list[Batch], int], Tensor]) -> str:
    """``my_gradients(model, parts, pad_id)``: leave a large batch's gradient in the model, part by part."""
    torch.manual_seed(0)
    for pad_id, lengths in ((1, ((9, 9, 8), (3, 2), (5, 2, 2, 2))), (0, ((4, 2), (8, 8, 8)))):
        config = TransformerConfig(20, 20, d_model=16, num_heads=2, d_ff=16, num_layers=1, dropout=0.0, pad_id=pad_id)
        _check_parts(my_gradients, Transformer(config), [_part(some, pad_id) for some in lengths], pad_id)
    return "so a batch may be as large as you like, on any machine. It only takes longer."


def _check_parts(my_gradients: Callable[..., Any], model: Transformer, parts: list[Batch], pad_id: int) -> None:
    weights = list(model.parameters())
    before = [weight.detach().clone() for weight in weights]
    losses, gradients, tokens = [], [], []
    for part in parts:
        logits, targets = model.logits_and_targets(*part)
        loss = sequence_loss(logits, targets, pad_id)
        losses.append(loss.item())
        tokens.append((targets != pad_id).sum().item())
        gradients.append(_flat(torch.autograd.grad(loss, weights)))
    gradients, counts = torch.stack(gradients), torch.tensor(tokens, dtype=torch.float)[:, None]
    right = (gradients * counts).sum(dim=0) / counts.sum()

    for weight in weights:
        weight.grad = torch.ones_like(weight)  # what another step has left behind
    sizes, waiting, early = [], set(), []  # of each forward pass; parts whose gradient is still to come

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: tuple[Tensor, Any]) -> None:
        number, memory = len(sizes), output[0]
        sizes.append(len(inputs[0]))
        early.extend(waiting)
        if memory.requires_grad:
            waiting.add(number)
            memory.register_hook(lambda _: waiting.discard(number))

    hook = model.encoder.register_forward_hook(watch)
    try:
        loss = call(my_gradients, model, list(parts), pad_id)
    finally:
        hook.remove()
    expect(
        all(torch.equal(weight, old) for weight, old in zip(weights, before, strict=True)),
        "the weights have changed; leave the step to the optimiser.",
    )
    expect(
        max(sizes, default=0) <= max(len(part.src) for part in parts),
        "all sentences went through the model at once. The point is that they do not fit: one part at a time.",
    )
    expect(sizes, "no part has gone through the model: `model.logits_and_targets(part.src, part.tgt)` is the way.")
    called = all(weight.grad is not None for weight in weights)
    expect(called, "the model has no gradients afterwards: call `.backward()`.")
    found = _flat([weight.grad for weight in weights])
    if not close(found, right):
        expect(not close(found, torch.ones_like(found)), "nothing has been added to the gradients: `.backward()`.")
        expect(
            not close(found - 1, right),
            "the gradients of the step before are still in there: `zero_grad()`.",
        )
        expect(not close(found, gradients[-1]), "only the last part counts; clear the gradients once.")
        expect(
            not close(found, gradients.mean(dim=0)),
            "that is the mean of means: the parts have different numbers of tokens, and each token must count alike.",
        )
        expect(not close(found, gradients.sum(dim=0)), "the parts' means are added up, which is too large.")
        expect(
            not close(found, (gradients * counts).sum(dim=0)),
            "that is a sum over tokens; divide by their number.",
        )
        sentences = torch.tensor([len(part.src) for part in parts], dtype=torch.float)[:, None]
        expect(
            not close(found, (gradients * sentences).sum(dim=0) / sentences.sum()),
            "the parts are weighted by sentences, but the loss is a mean over tokens.",
        )
        raise Wrong("the gradients differ from those of the whole batch. Weight each part by its share of all tokens.")
    expect(not early, "a part begins before the one before it is done: call `backward()` for each, in the loop.")
    expect_number(
        loss,
        sum(loss * number for loss, number in zip(losses, tokens, strict=True)) / sum(tokens),
        "the gradients are right. The loss to return is the mean over all tokens, as a number.",
    )


def _part(lengths: tuple[int, ...], pad_id: int) -> Batch:
    ids = torch.randint(4, 20, (len(lengths), max(lengths)))
    for row, length in enumerate(lengths):
        ids[row, length:] = pad_id
    return Batch(src=ids, tgt=ids)


def _flat(tensors: Any) -> Tensor:
    return nn.utils.parameters_to_vector(tensor.detach() for tensor in tensors)


def _same(found: float, number: float) -> bool:
    return abs(found - number) <= 1e-6 * number
