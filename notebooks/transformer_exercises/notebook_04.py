"""Checks of the exercises of notebook 04: positions, every box of figure 1, shapes, parameters, a toy task."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import transformer_lib as library
from transformer_exercises import (
    Wrong,
    as_list,
    build,
    call,
    close,
    exercise,
    expect,
    expect_number,
    expect_tensor,
    load,
)
from transformer_lib import TransformerConfig
from transformer_lib.checkpoint import SHIPPED_MODEL, load_model


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


def expect_dropout(module: nn.Module, *inputs: Tensor) -> None:
    """Raise ``Wrong`` unless dropout is at work in training, and only there."""
    first, second = (call(module.eval(), *inputs) for _ in range(2))
    first, second = (found[0] if isinstance(found, tuple) else found for found in (first, second))
    expect(close(first, second), "in evaluation mode, it computes something else each time: is dropout still on?")
    trained = call(module.train(), *inputs)
    trained = trained[0] if isinstance(trained, tuple) else trained
    module.eval()
    expect(not close(trained, first), "dropout is nowhere at work in training mode.")


@exercise("TokenEmbedding")
def token_embedding(TokenEmbedding: type[nn.Module]) -> str:
    """Look ids up in a table, times √d_model."""
    torch.manual_seed(0)
    ids, table = torch.tensor([[3, 5, 3], [0, 6, 1]]), torch.randn(7, 16)
    module = load(build(TokenEmbedding, 7, 16), {"table.weight": table})
    found, right = call(module, ids), 4 * table[ids]
    expect(not close(found, table[ids]), "that is the row of the table; it still has to be multiplied by √d_model.")
    expect(not close(found, 16 * table[ids]), "multiplied by the square root of d_model, not by d_model.")
    expect(not close(found, table[ids] / 4), "multiplied, not divided, by √d_model.")
    expect_tensor(found, right, "each id's row of the table, times √d_model.")
    return "a row for each type: with 7,853 of them and d_model 256, two million numbers."


@exercise("PositionwiseFeedForward")
def feed_forward(PositionwiseFeedForward: type[nn.Module]) -> str:
    """Compute max(0, x W₁ + b₁) W₂ + b₂."""
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(16, 4, 32)
    weights = {name[13:]: weight for name, weight in weights_of(theirs).items() if name.startswith("feed_forward.")}
    module, x = load(build(PositionwiseFeedForward, 16, 32, 0.5), weights), torch.randn(2, 5, 16)
    with torch.no_grad():
        found, right = call(module, x), theirs.linear2(theirs.linear1(x).relu())
        expect(not close(found, theirs.linear2(theirs.linear1(x))), "where is the ReLU? Two linear layers are one.")
        expect(not close(found, right.relu()), "the ReLU comes between the two layers, not after them.")
        expect(not close(found, x + right), "adding x is the wrapper's work: this is the box inside it.")
        expect_tensor(found, right, "widen with linear1, ReLU, narrow with linear2.")
        expect_dropout(module, x)
    return "as in `nn.TransformerEncoderLayer`. With the paper's sizes, two thirds of a layer's parameters are here."


def encoder_variants(theirs: nn.TransformerEncoderLayer, x: Tensor, ignored: Tensor) -> dict[str, Tensor]:
    """Return what an encoder layer computes in the right way, by ``post`` and ``pre``, and in wrong ones, by hint."""

    def attend(y: Tensor, padding: Tensor | None = ignored) -> Tensor:
        return theirs.self_attn(y, y, y, key_padding_mask=padding)[0]

    def feed(y: Tensor) -> Tensor:
        return theirs.linear2(theirs.linear1(y).relu())

    norm1, norm2 = theirs.norm1, theirs.norm2
    after, unmasked, bare = norm1(x + attend(x)), norm1(x + attend(x, None)), norm1(attend(x))
    stream, first = x + attend(norm1(x)), norm1(x)
    return {
        "post": norm2(after + feed(after)),
        "pre": stream + feed(norm2(stream)),
        "the mask does not reach the attention.": norm2(unmasked + feed(unmasked)),
        "the residual connections are missing: x + …, for both sub-layers.": norm2(feed(bare)),
        "the second residual connection is missing: x + feed_forward(x).": norm2(feed(after)),
        "the second norm is norm2: each has its own gain and bias.": norm1(after + feed(after)),
        "pre-LN: the norm of x goes into the sub-layer; x itself is what is added to.": (
            (first + attend(first)) + feed(norm2(first + attend(first)))
        ),
        "pre-LN: queries, keys and values all come from the norm's output.": (
            (mixed := x + theirs.self_attn(first, x, x, key_padding_mask=ignored)[0]) + feed(norm2(mixed))
        ),
    }


@exercise("EncoderLayer")
def encoder_layer(EncoderLayer: type[nn.Module]) -> str:
    """Compute what ``nn.TransformerEncoderLayer`` does, post-LN and pre-LN."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 16)
    ignored = torch.tensor([[False] * 5, [False, False, False, True, True]])
    for norm_first in (False, True):
        theirs = nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=norm_first)
        module = load(build(EncoderLayer, 16, 4, 32, 0.5, norm_first), weights_of(theirs))
        with torch.no_grad():
            found = call(module, x, ~ignored[:, None, None, :])
            pair = isinstance(found, tuple) and len(found) == 2
            expect(pair, "two things are returned: the new vectors, and the attention's weights.")
            variants = encoder_variants(theirs, x, ignored)
            right, other = variants.pop("pre"), variants.pop("post")
            if not norm_first:
                right, other = other, right
            same = close(found[0], other)
            expect(not same, f"with norm_first={norm_first}, this is {'post' if norm_first else 'pre'}-LN.")
            for hint, wrong in variants.items():
                expect(not close(found[0], wrong), hint)
            name = "pre-LN" if norm_first else "post-LN"
            expect_tensor(found[0], theirs(x, src_key_padding_mask=ignored), f"{name}: attention, then feed-forward.")
            expect_tensor(found[0], right, f"{name}: attention, then feed-forward.")
            shape = list(getattr(found[1], "shape", []))
            expect(shape == [2, 4, 5, 5], f"the weights have the shape {shape}, expected all heads': [2, 4, 5, 5].")
            expect_dropout(module, x)
    return "equal to `nn.TransformerEncoderLayer`, post-LN and pre-LN."


def decoder_variants(
    theirs: nn.TransformerDecoderLayer, x: Tensor, memory: Tensor, future: Tensor, ignored: Tensor
) -> dict[str, Tensor]:
    """Return what a decoder layer computes in wrong ways, by hint; post-LN."""

    def attend(y: Tensor, mask: Tensor | None = future) -> Tensor:
        return theirs.self_attn(y, y, y, attn_mask=mask)[0]

    def cross(q: Tensor, kv: Tensor, padding: Tensor | None = ignored) -> Tensor:
        return theirs.multihead_attn(q, kv, kv, key_padding_mask=padding)[0]

    def feed(y: Tensor) -> Tensor:
        return theirs.norm3(y + theirs.linear2(theirs.linear1(y).relu()))

    y = theirs.norm1(x + attend(x))
    unmasked = theirs.norm1(x + attend(x, None))
    return {
        "self-attention sees later positions: where is tgt_mask?": (
            feed(theirs.norm2(unmasked + cross(unmasked, memory)))
        ),
        "cross-attention sees padding: its keys are the memory's, and so is its mask.": (
            feed(theirs.norm2(y + cross(y, memory, None)))
        ),
        "cross-attention is missing: between the two others, the target looks at the memory.": feed(y),
        "cross-attention has a residual connection, too.": feed(theirs.norm2(cross(y, memory))),
        "the second norm is norm2: each has its own gain and bias.": feed(theirs.norm1(y + cross(y, memory))),
    }


@exercise("DecoderLayer")
def decoder_layer(DecoderLayer: type[nn.Module]) -> str:
    """Compute what ``nn.TransformerDecoderLayer`` does, post-LN and pre-LN."""
    torch.manual_seed(0)
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 5, 16)
    ignored = torch.tensor([[False] * 5, [False, False, False, True, True]])
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    for norm_first in (False, True):
        theirs = nn.TransformerDecoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=norm_first)
        module = load(build(DecoderLayer, 16, 4, 32, 0.5, norm_first), weights_of(theirs))
        with torch.no_grad():
            found = call(module, x, memory, ~future[None, None], ~ignored[:, None, None, :])
            three = isinstance(found, tuple) and len(found) == 3
            expect(three, "three things are returned: vectors, the weights of self-attention, and of cross-attention.")
            right = theirs(x, memory, tgt_mask=future, memory_key_padding_mask=ignored)
            if not norm_first:
                for hint, wrong in decoder_variants(theirs, x, memory, future, ignored).items():
                    expect(not close(found[0], wrong), hint)
            where = "pre-LN: norm1, norm2 and norm3 before" if norm_first else "post-LN: norm1, norm2 and norm3 after"
            expect_tensor(found[0], right, f"{where} self-attention, cross-attention and feed-forward.")
            shapes = [list(getattr(weights, "shape", [])) for weights in found[1:]]
            wanted = [[2, 4, 4, 4], [2, 4, 4, 5]]  # self-attention's, cross-attention's
            expect(shapes == wanted, f"the weights have the shapes {shapes}, expected {wanted}.")
    return "equal to `nn.TransformerDecoderLayer`, post-LN and pre-LN. Cross-attention is the only door to the source."


def expect_encoder_decoder(model: nn.Module, reference: nn.Module, sizes: tuple[int, int]) -> None:
    """Raise ``Wrong`` unless a model computes what the library's does, which has its weights."""
    src = torch.randint(4, sizes[0], (2, 6))
    src[1, 4:] = 1  # <pad>
    tgt = torch.randint(4, sizes[1], (2, 5))
    tgt[:, 0] = 2
    with torch.no_grad():
        found = call(model, src, tgt)
        expect(isinstance(found, Tensor), "forward returns the logits, a tensor.")
        shapes = list(found.shape), [2, 5, sizes[1]]
        expect(shapes[0] == shapes[1], f"the logits have the shape {shapes[0]}, expected {shapes[1]}.")
        right = reference(src, tgt)
        expect(not close(found, right.softmax(-1)), "softmax belongs to the loss and the search: return logits.")
        changed = tgt.clone()
        changed[:, 3] = 4 + (tgt[:, 3] - 3) % (sizes[1] - 4)
        before = call(model, src, changed)[:, :3]
        expect(close(before, found[:, :3]), "a later target word changes earlier logits: where is target_mask?")
        longer = call(model, nn.functional.pad(src, (0, 2), value=1), tgt)
        expect(
            close(longer, found, 1e-3),
            "padding changes the logits: both encoder and cross-attention need its mask.",
        )
        other = call(model, src.flip(0), tgt)
        expect(not close(other, found), "the source plays no part: does the decoder get the memory?")
        expect_tensor(found, right, "encode the source, decode the target, then the output layer.", 1e-3)


@exercise("Transformer")
def transformer(Transformer: type[nn.Module]) -> str:
    """Put the boxes together: pre-LN with tied tables and sinusoids, and post-LN with learned positions."""
    torch.manual_seed(0)
    sizes = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2, "dropout": 0.1, "max_len": 20}
    for tied, positions in ((False, "learned"), (True, "sinusoidal")):
        numbers = (30, 30) if tied else (30, 40)
        config = TransformerConfig(*numbers, **sizes, norm_first=tied, tie_embeddings=tied, positions=positions)
        model, reference = build(Transformer, config), library.Transformer(config).eval()
        start = max(parameter.std().item() for parameter in model.parameters() if parameter.dim() > 1)
        expect(start < 0.5, "the matrices start too large: xavier_uniform_, and N(0, 1 / d_model) for a tied table.")
        with torch.no_grad():
            for parameter in reference.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        load(model, reference.state_dict())
        if tied:
            tables = [weight for weight in model.parameters() if weight.shape == (30, 32)]
            expect(len(tables) == 1, f"with tie_embeddings there is one table, but here are {len(tables)}.")
        expect_encoder_decoder(model, reference, numbers)
    return "every box is in its place: the logits are those of the library, which notebook 10 compares with PyTorch's."


@exercise("MyTransformer")
def blank_page(MyTransformer: type[nn.Module]) -> str:
    """Load the shipped weights into it, and let it translate."""
    torch.manual_seed(0)
    saved = load_model(SHIPPED_MODEL)
    config, german, english = saved.model.config, saved.tokenizers["src"], saved.tokenizers["tgt"]
    model = load(build(MyTransformer, config), saved.model.state_dict())
    expect_encoder_decoder(model, saved.model, (config.src_vocab_size, config.tgt_vocab_size))
    src = torch.tensor([german.encode("Ein Hund läuft durch den Schnee.")])
    tgt = torch.tensor([[english.sos_id]])
    with torch.no_grad():
        while tgt.shape[1] < 30 and tgt[0, -1] != english.eos_id:
            tgt = torch.cat([tgt, call(model, src, tgt)[:, -1:].argmax(-1)], dim=1)
    text = english.join(english.decode(tgt[0].tolist()))
    return f"all {sum(weight.numel() for weight in model.parameters()):,} weights found their place. Yours says: {text}"
