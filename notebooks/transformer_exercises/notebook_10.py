"""Checks of the exercises of notebook 10: the block of a GPT, a mask for a prompt, and top-p."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_exercises import (
    build,
    call,
    close,
    exercise,
    expect,
    expect_any_device,
    expect_gradients,
    expect_tensor,
    load,
    question,
)
from transformer_exercises.notebook_02 import OTHER_IN_TRAINING
from transformer_exercises.notebook_04 import (
    ALL,
    OTHER_SIZES,
    WHERE_X_IS,
    encoder_variants,
    expect_layer_dropout,
    expect_steady,
    weights_of,
)
from transformer_lib.model.masks import causal_mask

question(
    "10.a",
    right="6 to 9",
    replies={
        "only 6": "predictions 7 to 9 see token 6, too: the mask hides what comes after a position, and nothing else.",
        "6 to 9": "prediction 6 is made at token 6, of what comes next. Those after it see token 6 as their past.",
        "7 to 9": "what does prediction 6 predict? The token *after* token 6, and for that it may look at token 6.",
        "all nine": "so it would be without a mask: then the earlier predictions would read their own answers.",
    },
)
question(
    "10.b",
    right="close to 1",
    replies={
        "far above 26": "to be worse than a guess, it would have to be sure of wrong letters. What does it get to see?",
        "about 26": "that is what an honest model gets. What does this mask let through at the first position?",
        "close to 1": "it sees what comes after each position, the wanted letter included, and copies it.",
    },
)


@exercise("Block")
def block(Block: type[nn.Module]) -> str:
    """A decoder layer, pre-LN, without cross-attention: ``nn.TransformerEncoderLayer`` under a causal mask."""
    torch.manual_seed(0)
    for d_model, num_heads, d_ff in ((24, 4, 40), (20, 2, 12)):
        theirs = nn.TransformerEncoderLayer(d_model, num_heads, d_ff, 0.0, batch_first=True, norm_first=True)
        weights, x = weights_of(theirs), torch.randn(2, 5, d_model)
        made = build(Block, d_model, num_heads, d_ff, 0.5)
        hint = "cross-attention is still among its parts. A text without a source has nothing for it to look at."
        expect(not hasattr(made, "cross_attn"), hint)
        hint = "two sub-layers are left, and each has a norm: norm1 and norm2. What does norm3 belong to?"
        expect(not hasattr(made, "norm3"), hint)
        module, without, dropping = (
            load(build(Block, d_model, num_heads, d_ff, dropout), weights) for dropout in (0.5, 0.0, ALL)
        )
        with torch.no_grad():
            expect_steady(module, x, causal_mask(5))
            ignored = torch.tensor([[False] * 5, [False, False, False, True, True]])
            found = call(module, x, ~ignored[:, None, None, :])  # any mask will do to find out what it does
            expect(not isinstance(found, tuple), "the new vectors come back alone: self_attn returns two things.")
            expect(not close(found, theirs(x)), "the mask does not reach the attention: each word sees all others.")
            variants = encoder_variants(theirs, x, ignored)
            right, post = variants.pop("pre"), variants.pop("post")
            expect(not close(found, post), "that is post-LN: here each norm comes before its sub-layer.")
            for wrong_hint, wrong in variants.items():
                expect(not close(found, wrong), wrong_hint)
            expect_tensor(
                found,
                right,
                "x + self_attn of its norm, then that + feed_forward of *its* norm." * (num_heads == 4) or OTHER_SIZES,
            )
            expect_layer_dropout(dropping, weights, x, x, causal_mask(5))

        def right_of(x: Tensor, mask: Tensor, theirs: nn.Module = theirs) -> Tensor:
            return theirs(x, src_mask=~mask)

        expect_gradients(OTHER_IN_TRAINING, without.train(), right_of, x, causal_mask(5))
    expect_any_device(WHERE_X_IS, module, x, causal_mask(5))
    return "equal to PyTorch's `nn.TransformerEncoderLayer`, pre-LN, under the same causal mask."


@exercise("10.1")
def prefix_mask(my_prefix_mask: Callable[[int, int], Tensor]) -> str:
    """``my_prefix_mask(length, prefix)``: causal, except that the first ``prefix`` tokens all see one another."""
    for length, prefix in ((5, 3), (4, 1), (6, 4), (3, 3), (4, 0)):
        right = causal_mask(length)
        right[:prefix, :prefix] = True
        found = call(my_prefix_mask, length, prefix)
        if isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == right.shape:
            found = found.cpu()
            expect(found.equal(right) or not found.equal(~right), "it is the wrong way round: True means may attend.")
            expect(
                found.equal(right) or not found.equal(right.T),
                "rows are queries and columns are keys; yours is turned on its side.",
            )
            expect(
                found.equal(right) or not found.equal(causal_mask(length)),
                "that is the causal mask: the tokens of the prompt do not see those of the prompt after them yet.",
            )
            expect(
                not found[:prefix, prefix:].any(),
                "the prompt sees what comes after it, which is what is to be written.",
            )
            expect(prefix == length or found[prefix:, :prefix].all(), "what comes after the prompt must see all of it.")
        expect_tensor(
            found, right, f"length {length}, prefix {prefix}: compare it with the causal mask, square by square."
        )
    return "with a prefix of 0 or 1 it is the causal mask, with a prefix of all tokens it is an encoder's."


@exercise("10.2")
def top_p(my_top_p: Callable[[Tensor, float], Tensor]) -> str:
    """``my_top_p(logits, p)``: the probabilities that are left when the unlikely tail is cut off."""
    for probabilities, p in (
        ((0.1, 0.5, 0.3, 0.06, 0.04), 0.7),
        ((0.1, 0.5, 0.3, 0.06, 0.04), 0.4),
        ((0.05, 0.15, 0.25, 0.2, 0.35), 0.9),
        ((0.7, 0.2, 0.1), 1.0),
    ):
        whole = torch.tensor(probabilities)
        ranked, order = whole.sort(descending=True)
        before = ranked.cumsum(dim=0) - ranked  # what the likelier ones have together
        kept = torch.zeros_like(whole).index_copy(0, order, ranked * (before < p - 1e-6))
        right = kept / kept.sum()
        found = call(my_top_p, whole.log(), p)
        fewer = torch.zeros_like(whole).index_copy(0, order, ranked * (ranked.cumsum(dim=0) <= p + 1e-6))
        hint = "the set must reach p: the token that takes the sum to p or over it still belongs to it."
        for almost in (fewer, fewer / fewer.sum()):
            expect(close(found, right) or not close(found, almost), hint)
        expect(close(found, right) or not close(found, kept), "what is left must sum to 1 again: divide it by its sum.")
        expect(
            close(found, right) or not close(found, ranked / ranked.sum() * (before < p - 1e-6) / kept.sum()),
            "the probabilities are sorted; return them in the order of the logits.",
        )
        if isinstance(found, Tensor) and found.shape == whole.shape:
            expect(
                not close(found, whole) or close(right, whole), "nothing has been cut off: unlikely tokens must get 0."
            )
        numbers = ", ".join(map(str, probabilities))
        expect_tensor(found, right, f"probabilities {numbers} and p = {p}: begin with the likeliest, and add them up.")
    return "where the model is sure, one token is left; where it is not, many are."
