"""Checks of the exercises of notebook 04: every box of figure 1, and shapes in cross-attention."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from transformer_exercises import (
    Wrong,
    as_list,
    build,
    call,
    close,
    course,
    exercise,
    expect,
    expect_any_device,
    expect_gradients,
    expect_tensor,
    load,
    question,
)
from transformer_exercises.notebook_02 import OTHER_IN_TRAINING, first

question(
    "04.a",
    right="next to 0 and more than 1",
    replies={
        "next to 0 and about 1": "the first half is right. The second would be true if the networks let nothing "
        "through; but each adds a gradient of its own to what the path carries, and twelve of them add up.",
        "next to 0 and more than 1": "each network weakens what goes through it, twelve times over. The path alone "
        "carries 1 to the bottom, and every network adds something to it.",
        "about 1 and about 12": "Xavier's values are made to keep sizes, but the ReLU silences about half of the "
        "hidden numbers, and in twelve networks that half counts twelve times.",
    },
)
question(
    "04.b",
    right="the same result both times",
    replies={
        "doubled: twice the result; plus 100: the result plus 100": "that would be so if nothing were taken away. But "
        "the mean is, first of all: what is the mean of 101, 103, 103 and 109, and how far from it is each?",
        "doubled: twice the result; plus 100: the same result": "the second half is right, since the mean takes the "
        "100 along. Of 2, 6, 6 and 18, the mean is 8, which leaves −6, −2, −2 and 10. By what do we divide these?",
        "the same result both times": "the mean takes the 100 along, and what the four are divided by has doubled with "
        "them.",
    },
)
question(
    "04.c",
    right="in post-LN",
    replies={
        "in post-LN": "there, each norm lies on the straight path, and what comes down has to pass all of them.",
        "in pre-LN": "its norms lie on the branches. On the straight path itself nothing is in the gradient's way, "
        "from the last layer to the first.",
        "in both": "both have the same boxes, but not in the same places: look at the green line in section 3's "
        "drawing. In one of the two, it is free from end to end.",
    },
)


@exercise("04.1")
def shapes(
    split_queries: Sequence[int], split_keys: Sequence[int], cross_weights: Sequence[int], cross_output: Sequence[int]
) -> str:
    """Shapes in cross-attention, of queries and keys by head, weights and output: 2 sentences, source 7, target 5."""
    right = {
        "queries": ([2, 8, 5, 32], "they come from the target, and each head gets 256 / 8 dimensions"),
        "keys": ([2, 8, 7, 32], "they come from the memory, which has the source's length"),
        "weights": ([2, 8, 5, 7], "in each head, a row for each query and a column for each key"),
        "output": ([2, 5, 256], "the heads are joined again, and there is one vector for each query"),
    }
    answers = split_queries, split_keys, cross_weights, cross_output
    for (name, (shape, hint)), given in zip(right.items(), answers, strict=True):
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


WHERE_X_IS = "Say `device=x.device`."


def weights_of(theirs: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a layer of PyTorch's, with some noise, by the names that notebook 04 gives them."""
    names = {"multihead_attn": "cross_attn", "linear1": "feed_forward.linear1", "linear2": "feed_forward.linear2"}
    weights = {}
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            weight.add_(0.3 * torch.randn_like(weight))  # biases and gains, too, so that a mix-up shows
            part, _, rest = name.partition(".")
            if rest.startswith("in_proj_"):
                for letter, third in zip("qkv", weight.chunk(3), strict=True):
                    weights[f"{names.get(part, part)}.{letter}_proj.{rest[8:]}"] = third.clone()
            else:
                weights[f"{names.get(part, part)}.{rest}"] = weight.clone()
    return weights


def expect_steady(module: nn.Module, *inputs: Tensor) -> None:
    """Raise ``Wrong`` if dropout is at work in evaluation mode, too."""
    found, again = (first(call(module.eval(), *inputs)) for _ in range(2))
    steady = not isinstance(found, Tensor) or close(found, again)
    expect(steady, "in evaluation mode, it computes something else each time: is dropout still on?")


OTHER_SIZES = "right with d_model 24, 4 heads and d_ff 40, but not with 20, 2 and 12: all of them are arguments."
ALL = 1 - 2**-24  # dropout that leaves nothing: what then comes out shows where it is. (1 - p must not be 0.)


def expect_dropout(module: nn.Module, right: Tensor, hint: str, *inputs: Tensor) -> None:
    """Raise ``Wrong`` unless a module that was made with the dropout ``ALL`` computes this in training."""
    trained, steady = (first(call(module.train(mode), *inputs)) for mode in (True, False))
    expect(not close(trained, steady), "dropout is nowhere at work in training mode.")
    expect(close(trained, right), hint)


def expect_layer_dropout(module: nn.Module, weights: dict[str, Tensor], right: Tensor, *inputs: Tensor) -> None:
    """Raise ``Wrong`` unless a layer, made with the dropout ``ALL``, drops what its sub-layers return, and in them.

    Args:
        module: the layer.
        weights: that it has.
        right: what is left of ``x`` if all sub-layers return zeros.
        inputs: ``x`` and, for a decoder's layer, the memory.
    """
    trained = first(call(module.train(), *inputs))
    nothing_of_x = isinstance(trained, Tensor) and close(trained[:, :1].expand_as(trained), trained)
    expect(not nothing_of_x, "dropout is for what a sub-layer returns, before it is added: yours drops x, too.")
    hint = "dropout is for what each sub-layer returns, before it is added to x (section 5.4 of the paper)."
    expect_dropout(module, right, hint, *inputs)
    x, memory = inputs[0], inputs[-1]
    for name, sources in {"self_attn": (x, x), "cross_attn": (memory, memory), "feed_forward": ()}.items():
        bias = weights.get(f"{name}.out_proj.bias", weights.get(f"{name}.linear2.bias"))
        if bias is not None:
            found = first(call(getattr(module, name).train(), x, *sources))
            expect(close(found, bias.expand_as(x)), f"{name} takes dropout, too: pass the layer's on to it.")


@exercise("TokenEmbedding")
def token_embedding(TokenEmbedding: type[nn.Module]) -> str:
    """Look ids up in a table, times √d_model."""
    torch.manual_seed(0)
    ids = torch.tensor([[3, 5, 3], [0, 6, 1]])
    for d_model in (16, 30, 2):
        table, root = torch.randn(7, d_model), d_model**0.5
        module = load(build(TokenEmbedding, 7, d_model), {"table.weight": table})
        found, right = call(module, ids), root * table[ids]
        expect(not close(found, table[ids]), "that is the row of the table; it still has to be multiplied by √d_model.")
        expect(not close(found, d_model * table[ids]), "multiplied by the square root of d_model, not by d_model.")
        expect(not close(found, table[ids] / root), "multiplied, not divided, by √d_model.")
        expect(root == 4 or not close(found, 4 * table[ids]), f"4 is √d_model for 16 numbers; here are {d_model}.")
        whole = "√d_model is rarely a whole number: leave out `int`, and `//`."
        expect(root == 4 or not close(found, int(root) * table[ids]), whole)
        expect_tensor(found, right, "each id's row of the table, times √d_model.")
        expect_gradients(OTHER_IN_TRAINING, module.train(), lambda ids, right=right: right, ids)
    expect_any_device("Say `device=ids.device`.", module, ids)
    return "a row for each type: with 7,853 of them and d_model 256, two million numbers."


def sinusoids(length: int, d_model: int, exponent: Callable[[int], int] = lambda i: i // 2 * 2) -> Tensor:
    """Return the table of section 3.5, ``[length, d_model]``, a number at a time."""
    rows = [
        [(math.cos if i % 2 else math.sin)(pos / 10_000 ** (exponent(i) / d_model)) for i in range(d_model)]
        for pos in range(length)
    ]
    return torch.tensor(rows)


@exercise("SinusoidalPositionalEncoding")
def sinusoidal_positions(SinusoidalPositionalEncoding: type[nn.Module]) -> str:
    """``[length, d_model]``: sines and cosines of the first positions, section 3.5."""
    module, right = build(SinusoidalPositionalEncoding, 50, 12), sinusoids(50, 12)
    found = call(module, 50)
    if isinstance(found, Tensor) and found.shape == right.shape:
        halves = torch.cat([right[:, 0::2], right[:, 1::2]], dim=1)
        expect(not close(found, halves), "sines and cosines take turns: dimension 0 is a sine, 1 a cosine, 2 a sine …")
        swapped = right.unflatten(1, (-1, 2)).flip(-1).flatten(1)
        expect(not close(found, swapped), "even dimensions are sines, and odd ones cosines.")
        hint = "the sine and the cosine of a pair have one frequency: the exponent is 2i / d_model for both."
        expect(not close(found, sinusoids(50, 12, lambda i: i)), hint)
        hint = "`torch.arange(0, d_model, 2)` is 2i already: yours has 4i in the exponent."
        expect(not close(found, sinusoids(50, 12, lambda i: i // 2 * 4)), hint)
        expect(not close(found[:-1], right[1:]), "the first position is 0, not 1: sin 0 = 0 and cos 0 = 1.")
    expect_tensor(found, right, "look at row 0 (0, 1, 0, 1 …) and row 1 first, then at how fast each column turns.")
    expect_tensor(call(module, 7), right[:7], "forward(7) returns the first 7 rows.")
    for max_len, d_model in ((300, 20), (6, 2)):
        other = call(build(SinusoidalPositionalEncoding, max_len, d_model), max_len)
        hint = f"right for 50 positions and d_model 12, but not for {max_len} and {d_model}: both are arguments."
        expect_tensor(other, sinusoids(max_len, d_model), hint, 1e-3)
    expect(
        found.dtype == torch.float32, f"the numbers are {found.dtype}, expected torch.float32, as vectors have them."
    )
    expect(not list(module.parameters()), "a parameter would be trained: these numbers are computed, so use a buffer.")
    plain = [name for name, value in vars(module).items() if isinstance(value, Tensor)]
    expect(not plain, f"{plain[:1]} is a plain tensor, which stays behind when the model moves to a GPU: use a buffer.")
    expect(not module.state_dict(), "persistent=False: what can be computed need not be saved, and no weights have it.")
    expect_any_device("A buffer moves with the model.", module, 7)
    return "the same distance is the same turn of every hand, wherever it starts."


@exercise("InputEmbedding")
def input_embedding(InputEmbedding: type[nn.Module]) -> str:
    """Add a token's vector and its position's."""
    torch.manual_seed(0)

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(9, 16))

        def forward(self, length: int) -> Tensor:
            expect(isinstance(length, int), "positions takes a length: how many tokens there are in a row of ids.")
            expect(length != 2, "ids.shape is [batch, seq_len]: you took the number of sentences for their length.")
            return self.table[:length]

    tokens, positions, ids = nn.Embedding(7, 16), Positions(), torch.tensor([[3, 5, 3, 0, 1], [0, 6, 1, 1, 1]])
    weights = {"tokens.weight": tokens.weight, "positions.table": positions.table}
    weights = {name: weight.clone() for name, weight in weights.items()}
    module = load(build(InputEmbedding, tokens, positions, 0.5), weights)
    trained = load(build(InputEmbedding, tokens, positions, 0.0), weights).train()
    with torch.no_grad():
        expect_steady(module, ids)
        found, right = call(module, ids), tokens(ids) + positions(5)
        expect(not close(found, tokens(ids)), "the positions are missing: without them, nobody knows the order.")
        expect(not close(found, right + 3 * tokens(ids)), "tokens has multiplied by √d_model already.")
        expect_tensor(found, right, "the token's vector plus its position's, in every sentence.")
        module = load(build(InputEmbedding, tokens, positions, ALL), weights)
        expect_dropout(module, 0 * right, "dropout comes last: it is for the sum of token and position.", ids)
    expect_gradients(OTHER_IN_TRAINING, trained, lambda ids: tokens(ids) + positions(5), ids)
    expect_any_device("Say `device=ids.device`.", module, ids)
    return "what a token is, and where it is, in one vector of d_model numbers."


@exercise("PositionwiseFeedForward")
def feed_forward(PositionwiseFeedForward: type[nn.Module]) -> str:
    """Compute max(0, x W₁ + b₁) W₂ + b₂."""
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(24, 4, 40)
    weights = {name[13:]: weight for name, weight in weights_of(theirs).items() if name.startswith("feed_forward")}
    module, x = load(build(PositionwiseFeedForward, 24, 40, 0.5), weights), torch.randn(2, 5, 24)
    with torch.no_grad():
        expect_steady(module, x)
        found, right = call(module, x), theirs.linear2(theirs.linear1(x).relu())
        expect(not close(found, theirs.linear2(theirs.linear1(x))), "where is the ReLU? Two linear layers are one.")
        expect(not close(found, right.relu()), "the ReLU comes between the two layers, not after them.")
        expect(not close(found, x + right), "adding x is the wrapper's work: this is the box inside it.")
        expect_tensor(found, right, "widen with linear1, ReLU, narrow with linear2.")
        large = theirs.linear2(theirs.linear1(100 * x).relu())
        expect_tensor(call(module, 100 * x), large, "it is right for small numbers, but a ReLU has no upper end.", 1e-3)
        trained = load(build(PositionwiseFeedForward, 24, 40, 0.0), weights).train()
        module = load(build(PositionwiseFeedForward, 24, 40, ALL), weights)
        hint = "dropout is for the hidden numbers: between the two layers."
        expect_dropout(module, weights["linear2.bias"].expand_as(x), hint, x)
    expect_gradients(OTHER_IN_TRAINING, trained, lambda x: theirs.linear2(theirs.linear1(x).relu()), x)
    expect_any_device(WHERE_X_IS, module, x)
    return (
        "as in `nn.TransformerEncoderLayer`. With the paper's sizes, two thirds of an encoder layer's parameters are "
        "here."
    )


def encoder_variants(theirs: nn.TransformerEncoderLayer, x: Tensor, ignored: Tensor) -> dict[str, Tensor]:
    """Return what an encoder layer computes in the right way, by ``post`` and ``pre``, and in wrong ones, by hint."""

    def attend(y: Tensor, padding: Tensor | None = ignored) -> Tensor:
        return theirs.self_attn(y, y, y, key_padding_mask=padding)[0]

    def feed(y: Tensor) -> Tensor:
        return theirs.linear2(theirs.linear1(y).relu())

    norm1, norm2 = theirs.norm1, theirs.norm2
    after, unmasked, bare = norm1(x + attend(x)), norm1(x + attend(x, None)), norm1(attend(x))
    stream, first, late = x + attend(norm1(x)), norm1(x), x + norm1(attend(x))
    return {
        "post": norm2(after + feed(after)),
        "pre": stream + feed(norm2(stream)),
        "the mask does not reach the attention.": norm2(unmasked + feed(unmasked)),
        "the residual connections are missing: x + …, for both sub-layers.": norm2(feed(bare)),
        "the second residual connection is missing: x + feed_forward(x).": norm2(feed(after)),
        "x is not added to what self_attn returns: norm1(x + …).": norm2(bare + feed(bare)),
        "pre-LN: x is not added to what either sub-layer returns: x + ….": feed(norm2(attend(first))),
        "pre-LN: x is not added to what self_attn returns: x + ….": (alone := attend(first)) + feed(norm2(alone)),
        "pre-LN: x is not added to what feed_forward returns: x + ….": feed(norm2(stream)),
        "the second norm is norm2: each has its own gain and bias.": norm1(after + feed(after)),
        "post-LN: the norm takes the sum, x + …, not the sub-layer's output alone.": late + norm2(feed(late)),
        "pre-LN: the norm of x goes into the sub-layer; x itself is what is added to.": (
            (first + attend(first)) + feed(norm2(first + attend(first)))
        ),
        "pre-LN: norm1 and norm2 are on the branches; on the straight path, x stays as it came.": (
            (between := norm2(first + attend(first))) + feed(between)
        ),
        "pre-LN: queries, keys and values all come from the norm's output.": (
            (mixed := x + theirs.self_attn(first, x, x, key_padding_mask=ignored)[0]) + feed(norm2(mixed))
        ),
        "pre-LN: the second sub-layer has its norm, too: norm2 of what goes into it.": stream + feed(stream),
    }


def expect_encoder_layer(kind: type[nn.Module], norm_first: bool) -> None:
    """Raise ``Wrong`` unless a class computes what ``nn.TransformerEncoderLayer`` does, with the same weights."""
    torch.manual_seed(0)
    for d_model, num_heads, d_ff in ((24, 4, 40), (20, 2, 12)):
        x = torch.randn(2, 5, d_model)
        ignored = torch.tensor([[False] * 5, [False, False, False, True, True]])
        mask = ~ignored[:, None, None, :]
        theirs = nn.TransformerEncoderLayer(d_model, num_heads, d_ff, 0.0, batch_first=True, norm_first=norm_first)
        weights = weights_of(theirs)
        module, without, dropping = (
            load(build(kind, d_model, num_heads, d_ff, dropout, norm_first), weights) for dropout in (0.5, 0.0, ALL)
        )
        with torch.no_grad():
            expect_steady(module, x)
            found = call(module, x, mask)
            pair = isinstance(found, tuple) and len(found) == 2
            expect(pair, "two things are returned: the new vectors, and the attention's weights.")
            variants = encoder_variants(theirs, x, ignored)
            names = ("post", "pre") if norm_first else ("pre", "post")
            other, _ = (variants.pop(name) for name in names)
            same = close(found[0], other)
            expect(not same, f"norm_first={norm_first} asks for {names[1]}-LN, but this is {names[0]}-LN.")
            for hint, wrong in variants.items():
                expect(not close(found[0], wrong), hint)
            right = theirs(x, src_key_padding_mask=ignored)
            hint = f"{names[1]}-LN: attention, then feed-forward, each with its sum and its norm."
            expect_tensor(found[0], right, hint if num_heads == 4 else OTHER_SIZES)
            shape = list(getattr(found[1], "shape", []))
            hint = f"the weights have the shape {shape}, expected a map for each head: {[2, num_heads, 5, 5]}."
            expect(shape == [2, num_heads, 5, 5], hint)
            left = x if norm_first else theirs.norm2(theirs.norm1(x))
            expect_layer_dropout(dropping, weights, left, x)

        def right_of(x: Tensor, mask: Tensor, theirs: nn.Module = theirs) -> Tensor:
            return theirs(x, src_key_padding_mask=~mask[:, 0, 0])

        expect_gradients(OTHER_IN_TRAINING, without.train(), right_of, x, mask)
    expect_any_device(WHERE_X_IS, module, x, mask)


@exercise("EncoderLayer")
def encoder_layer(EncoderLayer: type[nn.Module]) -> str:
    """Compute what ``nn.TransformerEncoderLayer`` does, post-LN and pre-LN."""
    for norm_first in (False, True):
        expect_encoder_layer(EncoderLayer, norm_first)
    return "equal to `nn.TransformerEncoderLayer`, post-LN and pre-LN."


def decoder_variants(
    theirs: nn.TransformerDecoderLayer, x: Tensor, memory: Tensor, future: Tensor, ignored: Tensor
) -> dict[str, Tensor]:
    """Return what a decoder layer computes in wrong ways, by hint; post-LN or pre-LN, as ``theirs`` is."""
    norm1, norm2, norm3 = theirs.norm1, theirs.norm2, theirs.norm3

    def attend(y: Tensor, mask: Tensor | None = future) -> Tensor:
        return theirs.self_attn(y, y, y, attn_mask=mask)[0]

    def cross(q: Tensor, kv: Tensor, padding: Tensor | None = ignored, mask: Tensor | None = None) -> Tensor:
        return theirs.multihead_attn(q, kv, kv, key_padding_mask=padding, attn_mask=mask)[0]

    def feed(y: Tensor) -> Tensor:
        return theirs.linear2(theirs.linear1(y).relu())

    def wrap(x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + sublayer(norm(x)) if theirs.norm_first else norm(x + sublayer(x))

    def alone(x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return sublayer(norm(x)) if theirs.norm_first else norm(sublayer(x))

    y, unmasked = wrap(x, norm1, attend), wrap(x, norm1, lambda y: attend(y, None))
    between = {  # what self-attention and cross-attention make of x
        "self-attention sees later positions: where is tgt_mask?": wrap(unmasked, norm2, lambda q: cross(q, memory)),
        "cross-attention sees padding: its keys are the memory's, and so is its mask.": (
            wrap(y, norm2, lambda q: cross(q, memory, None))
        ),
        "cross-attention is missing: between the two others, the target looks at the memory.": y,
        "x is not added to what self_attn returns: x + ….": (
            wrap(alone(x, norm1, attend), norm2, lambda q: cross(q, memory))
        ),
        "cross-attention has a residual connection, too.": alone(y, norm2, lambda q: cross(q, memory)),
        "the second norm is norm2: each has its own gain and bias.": wrap(y, norm1, lambda q: cross(q, memory)),
        "cross-attention: queries from the target, keys and values from the memory. You took the target for both.": (
            wrap(y, norm2, lambda q: cross(q, q, None))
        ),
    }
    if theirs.norm_first:
        hint = "pre-LN: norm2 is for the target; the memory has had a norm, the encoder's last."
        between[hint] = wrap(y, norm2, lambda q: cross(q, norm2(memory)))
    if memory.shape == x.shape:  # with other lengths, these would stop with an error
        hint = "cross-attention: queries from the target, keys and values from the memory. You have exchanged them."
        between[hint] = wrap(y, norm2, lambda q: cross(memory, q))
        hint = "cross-attention takes memory_mask: tgt_mask is for self-attention."
        between[hint] = wrap(y, norm2, lambda q: cross(q, memory, None, future))
    wrong = {hint: wrap(so_far, norm3, feed) for hint, so_far in between.items()}
    right = wrap(y, norm2, lambda q: cross(q, memory))
    return wrong | {"x is not added to what feed_forward returns: x + ….": alone(right, norm3, feed)}


@exercise("DecoderLayer")
def decoder_layer(DecoderLayer: type[nn.Module]) -> str:
    """Compute what ``nn.TransformerDecoderLayer`` does, post-LN and pre-LN."""
    torch.manual_seed(0)
    future = torch.ones(3, 3, dtype=torch.bool).triu(1)
    paddings = torch.zeros(2, 3, dtype=torch.bool), torch.tensor([[False] * 5, [False, False, False, True, True]])
    for norm_first, (d_model, num_heads, d_ff) in itertools.product((False, True), ((24, 4, 40), (20, 2, 12))):
        x = torch.randn(2, 3, d_model)
        memories = torch.randn(2, 3, d_model), torch.randn(2, 5, d_model)  # as long as the target: nothing stops then
        theirs = nn.TransformerDecoderLayer(d_model, num_heads, d_ff, 0.0, batch_first=True, norm_first=norm_first)
        weights = weights_of(theirs)
        module, without, dropping = (
            load(build(DecoderLayer, d_model, num_heads, d_ff, dropout, norm_first), weights)
            for dropout in (0.5, 0.0, ALL)
        )
        where = "pre-LN: norm1, norm2 and norm3 before" if norm_first else "post-LN: norm1, norm2 and norm3 after"
        with torch.no_grad():
            expect_steady(module, x, memories[0])
            for memory, ignored in zip(memories, paddings, strict=True):
                masks = ~future[None, None], ~ignored[:, None, None, :]
                found = call(module, x, memory, *masks)
                three = isinstance(found, tuple) and len(found) == 3
                hint = "three things are returned: vectors, the weights of self-attention, and of cross-attention."
                expect(three, hint)
                right = theirs(x, memory, tgt_mask=future, memory_key_padding_mask=ignored)
                for hint, wrong in decoder_variants(theirs, x, memory, future, ignored).items():
                    expect(close(wrong, right) or not close(found[0], wrong), hint)
                hint = f"{where} self-attention, cross-attention and feed-forward."
                expect_tensor(found[0], right, hint if num_heads == 4 else OTHER_SIZES)
            shapes = [list(getattr(weights, "shape", [])) for weights in found[1:]]
            wanted = [[2, num_heads, 3, 3], [2, num_heads, 3, 5]]  # self-attention's, cross-attention's
            expect(shapes == wanted, f"the weights have the shapes {shapes}, expected {wanted}.")
            left = x if norm_first else theirs.norm3(theirs.norm2(theirs.norm1(x)))
            expect_layer_dropout(dropping, weights, left, x, memory)

        def right_of(x: Tensor, memory: Tensor, *masks: Tensor, theirs: nn.Module = theirs) -> Tensor:
            return theirs(x, memory, tgt_mask=~masks[0][0, 0], memory_key_padding_mask=~masks[1][:, 0, 0])

        expect_gradients(OTHER_IN_TRAINING, without.train(), right_of, x, memory, *masks)
        expect_any_device(WHERE_X_IS, module, x, memory, *masks)
    return "equal to `nn.TransformerDecoderLayer`, post-LN and pre-LN. Cross-attention is the only door to the source."


@exercise("Decoder")
def decoder(Decoder: type[nn.Module]) -> str:
    """Compute what ``nn.TransformerDecoder`` does, with two layers."""
    torch.manual_seed(0)
    x, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
    ignored = torch.tensor([[False] * 5, [False, False, False, True, True]])
    future = torch.ones(3, 3, dtype=torch.bool).triu(1)
    tgt_mask, memory_mask = ~future[None, None], ~ignored[:, None, None, :]
    theirs, layers, norm = stack_of(2)
    module = build(Decoder, layers, norm)
    found = len(list(module.parameters())) > len(list(norm.parameters()))
    expect(found, "parameters() finds no layers in a plain list, and nothing would train them: nn.ModuleList.")
    with torch.no_grad():
        exchanged, masks = x, (memory_mask[..., :3], tgt_mask)
        for layer in layers:
            exchanged, *_ = layer(exchanged, x, *masks)
        found = first(call(module, x, x, *reversed(masks)))  # a memory as long as the target: nothing stops then
        expect(not close(found, norm(exchanged)), "the masks are exchanged: a layer takes tgt_mask, then memory_mask.")
        expect(not close(found, norm(x)), "a layer's first result is the new x: the memory stays what it is.")
        found = call(module, x, memory, tgt_mask, memory_mask)
        three = isinstance(found, tuple) and len(found) == 3
        expect(
            three, "three things are returned: vectors, a list of self-attention's maps, a list of cross-attention's."
        )
        lengths = [len(maps) if isinstance(maps, list | tuple) else 0 for maps in found[1:]]
        expect(
            lengths == [2, 2], f"the lists have {lengths[0]} and {lengths[1]} maps, expected one for each of 2 layers."
        )
        right = theirs(x, memory, tgt_mask=future, memory_key_padding_mask=ignored)
        expect(not close(norm(found[0]), right), "the norm is missing: it comes once, after the last layer.")
        expect(
            not close(found[0], norm(layers[1](x, memory, tgt_mask, memory_mask)[0])),
            "each layer reads what the one before has written: x changes on the way.",
        )
        expect_tensor(found[0], right, "x goes from layer to layer; memory and masks are the same for all of them.")
        shapes = [list(getattr(maps[0], "shape", [])) for maps in found[1:]]
        expect(
            shapes == [[2, 4, 3, 3], [2, 4, 3, 5]], "first the maps of self-attention, then those of cross-attention."
        )
    theirs, layers, norm = stack_of(3)

    def right_of(x: Tensor, memory: Tensor, *masks: Tensor) -> Tensor:
        return theirs(x, memory, tgt_mask=~masks[0][0, 0], memory_key_padding_mask=~masks[1][:, 0, 0])

    hint = "right for two layers in evaluation mode, but not for three, in training mode."
    expect_gradients(hint, build(Decoder, layers, norm).train(), right_of, x, memory, tgt_mask, memory_mask)
    return "equal to `nn.TransformerDecoder`: every layer asks the same memory."


def stack_of(count: int) -> tuple[nn.TransformerDecoder, list[nn.Module], nn.LayerNorm]:
    """Return PyTorch's decoder of so many layers, without dropout, the course's with its weights, and its norm."""
    norm = nn.LayerNorm(24).requires_grad_(False)
    norm.weight.uniform_(0.5, 2)
    layer = nn.TransformerDecoderLayer(24, 4, 40, 0.0, batch_first=True, norm_first=True)
    theirs = nn.TransformerDecoder(layer, count, norm).eval()
    layers = [course.own("DecoderLayer")(24, 4, 40, 0.0, norm_first=True) for _ in range(count)]
    for one, other in zip(layers, theirs.layers, strict=True):
        one.load_state_dict(weights_of(other))
    return theirs, layers, norm
