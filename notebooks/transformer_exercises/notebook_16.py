"""Checks of the exercises of notebook 16: packed weights, a test of batches, PyTorch's masks, a conversion."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformer_exercises import Wrong, as_number, call, close, exercise, expect, expect_number, question
from transformer_lib.model.encoder import EncoderLayer
from transformer_lib.model.masks import causal_mask, padding_mask, target_mask

question(
    "16.a",
    right="words 1 to 4",
    replies={
        "words 4 and 5": "that is what the mask means here. What does True mean to PyTorch's layer?",
        "words 1 to 4": "to PyTorch's layer, True hides. So each word sees only what comes after it, and keeps itself "
        "by the residual connection.",
        "all five": "so it would be without a mask. This one does hide something, only not what we mean.",
    },
)

question(
    "16.b",
    right="all five",
    replies={
        "words 4 and 5": "that is what a mask that hides would do. How does a float hide a score?",
        "all five": "a mask of floats is added to the scores: 1 makes a score larger, and 0 hides nothing.",
        "none: it raises an error": "masks of floats are allowed. They mean something else.",
    },
)
question(
    "16.c",
    right="zeros, then nan",
    replies={
        "zeros, twice": "so it would be if both took the same path.",
        "nan, twice": "that is what the arithmetic says, and in training somebody takes care of it.",
        "zeros, then nan": "in training, the fused kernel makes zeros of 0 divided by 0. The fast path does not.",
    },
)


@exercise("16.1")
def packed_rows(first_row: int, last_row: int) -> str:
    """``first_row`` and ``last_row`` of ``in_proj_weight``, [1536, 512], that make the keys of the third of 8 heads."""
    d_model, d_k = 512, 64
    start = d_model + 2 * d_k
    first_row, last_row = map(as_number, (first_row, last_row))
    interleaved = 2 * 3 * d_k + d_k
    expect(
        first_row != interleaved, "all queries come first, then all keys: a head's three parts are not side by side."
    )
    expect(first_row >= d_model, "those rows make queries; the keys are the second third.")
    expect(first_row < 2 * d_model, "those rows make values; the keys are the second third.")
    expect((first_row, last_row) != (start + 1, start + d_k), "rows are counted from 0.")
    expect(first_row != start + d_k, "that is the fourth head: two heads come before the third.")
    expect(last_row != start + d_k, "`last_row` is the last one that belongs to the head, not the one after it.")
    expect_number(first_row, start, "first_row: all queries come before it, and the keys of two heads.", 0)
    expect_number(last_row, start + d_k - 1, "last_row: a head has 512 / 8 rows.", 0)
    return "so one head can be taken out of a trained module by slicing."


@exercise("16.2")
def does_it_mix(my_mixes_sentences: Callable[[nn.Module, Tensor], bool]) -> str:
    """``my_mixes_sentences(module, x)``: whether an output, ``[batch, …]``, depends on another sentence's input."""

    class SelfAttention(nn.Module):
        def __init__(self, batch_first: bool):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    class Neighbour(nn.Module):
        def __init__(self, sentence: int):
            super().__init__()
            self.sentence = sentence

        def forward(self, x: Tensor) -> Tensor:
            others = torch.zeros_like(x)
            others[self.sentence] = x[self.sentence - 1]
            return x + others

    class Bias(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linspace(0, 1, x.numel()).view(x.shape) + x.sin()

    torch.manual_seed(0)
    modules = {
        "an attention with batch_first=True": (SelfAttention(True), False),
        "an attention that forgot batch_first": (SelfAttention(False), True),
        "nn.TransformerEncoderLayer(…, batch_first=True)": (
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            False,
        ),
        "nn.TransformerEncoderLayer(…)": (nn.TransformerEncoderLayer(8, 2, 16), True),
        "nn.Linear": (nn.Linear(8, 8), False),
        "a module that adds another number to each sentence": (Bias(), False),
        "a module where only the last sentence sees the one before it": (Neighbour(-1), True),
        "a module where only the first sentence sees the last": (Neighbour(0), True),
    }
    for name, (module, right) in modules.items():
        for shape in ((4, 4, 8), (3, 5, 8)):
            x = torch.randn(shape)
            before = x.clone()
            found = call(my_mixes_sentences, module.eval(), x)
            expect(x.equal(before), "your function has changed x itself; clone it first.")
            found = found.item() if isinstance(found, Tensor | np.bool_) and np.prod(found.shape) == 1 else found
            expect(isinstance(found, bool), f"True or False was expected, but this is {found!r}.")
            expect(
                found == right,
                f"{name}, on x of shape {list(shape)}: your function says {found}, and {right} is right. "
                + (
                    "Change one sentence after the other, each time another one."
                    if right
                    else "Keep the batch as it is, and change one sentence at a time; its own output may move."
                ),
            )
    return "run it on every model that you take over. No shape and no error would tell."


@exercise("16.3")
def additive_mask(my_additive_mask: Callable[[Tensor, int], Tensor]) -> str:
    """``my_additive_mask(mask, num_heads)``: floats to add, ``[batch · heads, L, L]``, from this library's mask."""
    for ids, heads in (
        (torch.tensor([[5, 6, 7, 8], [5, 6, 1, 1], [5, 6, 7, 1]]), 2),
        (torch.tensor([[5, 1], [5, 6]]), 4),
    ):
        mask = target_mask(ids, 1)  # [batch, 1, L, L]
        length = ids.shape[1]
        found = call(my_additive_mask, mask.clone(), heads)
        expect(isinstance(found, Tensor), "a tensor was expected.")
        expect(
            found.is_floating_point(),
            f"the type is {found.dtype}; a mask that is added is made of floats, 0 and minus infinity.",
        )
        shape = [len(ids) * heads, length, length]
        expect(list(found.shape) == shape, f"the shape is {list(found.shape)}, expected {shape}.")
        expect(not found.isnan().any(), "there is nan in it: 0 times minus infinity is no number. Do not multiply.")
        may = mask.repeat_interleave(heads, dim=0)[:, 0]
        seen, hidden = found == 0, found < -1e4
        expect(not (seen.equal(~may) and hidden.equal(may)), "it is upside down: what may be seen gets 0.")
        if not seen.equal(may):
            other = mask.repeat(heads, 1, 1, 1)[:, 0]
            expect(
                not seen.equal(other),
                "sentences get each other's masks: the heads of sentence 1 come first, then those of sentence 2.",
            )
        expect(seen.equal(may), "what may be seen gets exactly 0; compare the rows one by one.")
        expect(hidden.equal(~may), "what is hidden must get so little that its softmax is 0: minus infinity.")
    return "this is what `attn_mask` accepts if each sentence has a mask of its own."


@exercise("16.4")
def no_blind_queries(my_safe_mask: Callable[[Tensor], Tensor]) -> str:
    """``my_safe_mask(mask)``: the same mask, except that no query is left without a key."""
    left_padded = torch.tensor([[1, 1, 5, 6, 7], [1, 5, 6, 7, 8], [5, 6, 7, 8, 9]])
    strict = torch.ones(5, 5, dtype=torch.bool).tril(-1)[None, None].expand(3, 1, 5, 5)
    masks = [target_mask(left_padded, 1), strict, padding_mask(left_padded, 1).expand(3, 1, 5, 5)]
    for mask in masks:
        found = call(my_safe_mask, mask.clone())
        expect(
            isinstance(found, Tensor) and found.dtype == torch.bool and found.shape == mask.shape,
            f"a mask was expected, of booleans, {list(mask.shape)}.",
        )
        sees = mask.any(dim=-1)
        expect(
            found.any(dim=-1).all(),
            "a query is left that may attend to nothing: its weights are 0 divided by 0. Which rows have no True?",
        )
        if not found[sees].equal(mask[sees]):
            raise Wrong(
                "a query that had something to look at sees something else now. Change only rows without a True."
            )
    return "where such a query is padding, nobody reads what it collects. It only must not be nan."


@exercise("16.5")
def conversion_by_hand(my_from_torch: Callable[[nn.TransformerEncoderLayer], EncoderLayer]) -> str:
    """``my_from_torch(theirs)``: this library's layer with the weights of an ``nn.TransformerEncoderLayer``."""
    torch.manual_seed(0)
    for d_model, heads, d_ff, norm_first in ((16, 4, 24, False), (8, 2, 8, True)):
        theirs = nn.TransformerEncoderLayer(
            d_model, heads, d_ff, dropout=0.2, norm_first=norm_first, batch_first=True
        ).eval()
        for parameter in theirs.parameters():
            nn.init.normal_(parameter, std=0.5)
        _compare(my_from_torch, theirs, torch.randn(2, 5, d_model), norm_first)
    return "with that, any encoder layer of PyTorch's can be opened with this library's tools, map by map."


def _compare(convert: Callable[..., Any], theirs: nn.TransformerEncoderLayer, x: Tensor, norm_first: bool) -> None:
    kept = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    ours = call(convert, theirs)
    expect(
        isinstance(ours, EncoderLayer),
        f"an EncoderLayer of this library was expected, but this is a {type(ours).__name__}.",
    )
    ours.eval()
    d_model, heads = theirs.self_attn.embed_dim, theirs.self_attn.num_heads
    expect(
        ours.self_attn.num_heads == heads,
        f"it has {ours.self_attn.num_heads} heads, PyTorch's has {heads}: `theirs.self_attn.num_heads`.",
    )
    expect(
        ours.feed_forward.linear1.weight.shape == theirs.linear1.weight.shape,
        "the feed-forward network has another size: `theirs.linear1.out_features`.",
    )
    expect(
        ours.norm_first == norm_first,
        "one is post-LN and the other pre-LN: `theirs.norm_first` says which.",
    )
    for mine, place, argument in (
        (ours.dropout.p, "after the sub-layers", "dropout"),
        (ours.self_attn.dropout, "on attention weights", "inner_dropout"),
        (ours.feed_forward.dropout.p, "inside the feed-forward network", "inner_dropout"),
    ):
        expect(
            mine == theirs.dropout1.p,
            f"the dropout {place} is {mine}, PyTorch's is {theirs.dropout1.p} everywhere: give `{argument}`, "
            "`theirs.dropout1.p`. It shows only in training.",
        )
    attention, names = theirs.self_attn, {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
    for kind, packed in (("weight", attention.in_proj_weight), ("bias", attention.in_proj_bias)):
        parts = dict(zip(names, packed.split(d_model), strict=True))
        for name in names:
            mine = getattr(getattr(ours.self_attn, name), kind)
            for other, part in parts.items():
                expect(
                    name == other or not torch.equal(mine, part),
                    f"the {kind} of {name} is that of the {names[other]} projection: in_proj_{kind} has query, key, "
                    "value.",
                )
                expect(
                    kind == "bias" or not torch.equal(mine, part.T),
                    f"{name} is transposed; both keep [out, in].",
                )
    expect(
        not torch.equal(ours.norm2.weight, theirs.norm1.weight),
        "the norms are exchanged: in an encoder layer, norm2 belongs to the feed-forward network.",
    )
    wrong = [
        name
        for name, parameter in ours.named_parameters()
        if not any(parameter.shape == one.shape and torch.equal(parameter, one) for one in _pieces(theirs))
    ]
    expect(not wrong, f"there is nothing like these in PyTorch's layer: {', '.join(wrong)}.")
    mask = padding_mask(torch.tensor([[5] * 5, [5, 5, 1, 1, 1]]), 1)
    with torch.no_grad():
        for ours_mask, named in (
            (mask, {"src_key_padding_mask": ~mask[:, 0, 0]}),
            (causal_mask(5), {"src_mask": ~causal_mask(5)}),
        ):
            found = call(ours, x, ours_mask)[0]
            expect(close(found, theirs(x, **named)), "all weights are there, but some in the wrong place.")
        for parameter in ours.parameters():
            parameter.fill_(math.pi)
    expect(
        all(torch.equal(tensor, kept[name]) for name, tensor in theirs.state_dict().items()),
        "the two share their weights: training one would change the other. Copy them.",
    )


def _pieces(theirs: nn.TransformerEncoderLayer) -> list[Tensor]:
    whole = [parameter for name, parameter in theirs.named_parameters() if "in_proj" not in name]
    return [*whole, *theirs.self_attn.in_proj_weight.chunk(3), *theirs.self_attn.in_proj_bias.chunk(3)]
