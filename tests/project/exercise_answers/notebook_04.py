"""Answers to the exercises of notebook 04: the boxes of figure 1, shapes in cross-attention."""

import inspect
import math

import numpy as np
import torch
import torch.nn.functional as F
from exercise_answers import worked
from torch import nn

course = worked.notebook("04")


def with_lines(name, *changes, course=course, **more):
    """The course's class of this name, with some of its lines changed: each change is the old and the new text."""
    source = inspect.getsource(getattr(course, name))
    for old, new in changes:
        assert old in source, (name, old)
        source = source.replace(old, new)
    names = {**vars(course), "F": F, **more}
    exec(source, names)
    return names[name]


def wrong(name, *changes_and_hints, **where):
    """Wrong answers, each the course's with one piece of text changed: (old, new, hint), more pairs before the hint."""
    answers = []
    for *texts, hint in changes_and_hints:
        answers.append((with_lines(name, *zip(texts[::2], texts[1::2], strict=True), **where), hint))
    return answers


class TableByHand(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)

    def forward(self, ids):
        rows = self.table.weight[ids.flatten()].unflatten(0, ids.shape)
        return rows * rows.shape[-1] ** 0.5


class ExpLogPositions(nn.Module):
    """As the tutorials write it."""

    def __init__(self, max_len, d_model):
        super().__init__()
        table = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        table[:, 0::2] = torch.sin(position * div_term)
        table[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", table, persistent=False)

    def forward(self, length):
        return self.pe[:length]


class PositionsOnTheWay(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.d_model = d_model

    def forward(self, length):
        i = torch.arange(self.d_model)
        angle = torch.arange(length)[:, None] / 10_000 ** (2 * (i // 2) / self.d_model)
        return torch.where(i % 2 == 0, angle.sin(), angle.cos())


class OwnFrequencies(PositionsOnTheWay):
    def forward(self, length):
        i = torch.arange(self.d_model)
        angle = torch.arange(length)[:, None] / 10_000 ** (i / self.d_model)
        return torch.where(i % 2 == 0, angle.sin(), angle.cos())


class FunctionalEmbedding(nn.Module):
    def __init__(self, tokens, positions, dropout):
        super().__init__()
        self.tokens, self.positions, self.p = tokens, positions, dropout

    def forward(self, ids):
        batch, length = ids.shape
        x = self.tokens(ids)
        x = x + self.positions(length).expand(batch, -1, -1)
        return F.dropout(x, self.p, self.training)


class EinsumFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.linear1, self.linear2, self.p = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), dropout

    def forward(self, x):
        inner = torch.einsum("...i,oi->...o", x, self.linear1.weight) + self.linear1.bias
        inner = F.dropout(inner.clamp(min=0), self.p, self.training)
        return torch.einsum("...i,oi->...o", inner, self.linear2.weight) + self.linear2.bias


class WrappedEncoderLayer(nn.Module):
    """With one wrapper for both sub-layers."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.self_attn = course.MultiHeadAttention(d_model, num_heads, dropout)
        self.feed_forward = EinsumFeedForward(d_model, d_ff, dropout)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.p, self.norm_first = dropout, norm_first

    def wrap(self, x, norm, sublayer):
        y = F.dropout(sublayer(norm(x) if self.norm_first else x), self.p, self.training)
        return x + y if self.norm_first else norm(x + y)

    def forward(self, x, mask=None):
        maps = []

        def attend(y):
            y, weights = self.self_attn(y, y, y, mask)
            maps.append(weights)
            return y

        x = self.wrap(x, self.norm1, attend)
        return self.wrap(x, self.norm2, self.feed_forward), maps[0]


class WrappedDecoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.self_attn, self.cross_attn = (course.MultiHeadAttention(d_model, num_heads, dropout) for _ in range(2))
        self.feed_forward = course.PositionwiseFeedForward(d_model, d_ff, dropout)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.drop, self.norm_first = nn.Dropout(dropout), norm_first

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        before = [norm if self.norm_first else nn.Identity() for norm in (self.norm1, self.norm2, self.norm3)]
        after = [nn.Identity() if self.norm_first else norm for norm in (self.norm1, self.norm2, self.norm3)]
        q = before[0](x)
        y, looked_back = self.self_attn(q, q, q, tgt_mask)
        x = after[0](x + self.drop(y))
        y, looked_at = self.cross_attn(query=before[1](x), key=memory, value=memory, mask=memory_mask)
        x = after[1](x + self.drop(y))
        return after[2](x + self.drop(self.feed_forward(before[2](x)))), looked_back, looked_at


class ShortDecoder(nn.Module):
    def __init__(self, layers, norm):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(self, x, memory, *masks):
        maps = []
        for number in range(len(self.layers)):
            x, *both = self.layers[number](x, memory, *masks)
            maps.append(both)
        return self.norm(x), *map(list, zip(*maps, strict=True))


RIGHT = {
    "TokenEmbedding": [(course.TokenEmbedding,), (TableByHand,)],
    "SinusoidalPositionalEncoding": [(course.SinusoidalPositionalEncoding,), (ExpLogPositions,)],
    "InputEmbedding": [(course.InputEmbedding,), (FunctionalEmbedding,)],
    "PositionwiseFeedForward": [(course.PositionwiseFeedForward,), (EinsumFeedForward,)],
    "EncoderLayer": [(course.EncoderLayer,), (WrappedEncoderLayer,)],
    "DecoderLayer": [(course.DecoderLayer,), (WrappedDecoderLayer,)],
    "Decoder": [(course.Decoder,), (ShortDecoder,)],
    "04.1": [
        ([2, 8, 5, 32], [2, 8, 7, 32], [2, 8, 5, 7], [2, 5, 256]),
        (torch.Size([2, 8, 5, 32]), (2, 8, 7, 32), torch.tensor([2, 8, 5, 7]), np.array([2, 5, 256])),
    ],
}
LAYER_DROPOUT = (  # in the wrong place: of both layers
    ("self.norm1(x + self.dropout(y))", "self.norm1(x + y)", "what each sub-layer returns"),
    ("self.dropout(self.feed_forward(", "(self.feed_forward(", "what each sub-layer returns"),
    ("self.norm1(x + self.dropout(y))", "self.norm1(self.dropout(x + y))", "drops x, too"),
    ("self.norm1(x + self.dropout(y))", "self.dropout(self.norm1(x + y))", "drops x, too"),
    ("self.dropout(self.feed_forward(x))", "self.feed_forward(self.dropout(x))", "what each sub-layer returns"),
    ("self.dropout = nn.Dropout(dropout)", "self.dropout = nn.Dropout(0.1)", "what each sub-layer returns"),
    ("d_model, num_heads, dropout)", "d_model, num_heads)", "self_attn takes dropout"),
    ("(d_model, d_ff, dropout)", "(d_model, d_ff)", "feed_forward takes dropout"),
)
POST_LN = (  # of the encoder layer
    *LAYER_DROPOUT,
    ("y, weights = self.self_attn(x, x, x, mask)", "y = weights = self.self_attn(x, x, x, mask)", "take them apart"),
    (
        "y, weights = self.self_attn(x, x, x, mask)",
        "y = weights = self.self_attn(x, x, x, mask)",
        "x + self.dropout(y)",
        "x + y",
        "take them apart",
    ),
    ("self.self_attn(x, x, x, mask)", "self.self_attn(x, x, x)", "the mask does not reach"),
    ("self.norm1(x + ", "self.norm1(torch.zeros(x.shape) + x + ", "device=x.device"),
    (
        "x = self.norm1(x + self.dropout(y))",
        "x = self.norm1(self.dropout(y))",
        "x = self.norm2(x + self.dropout(self.feed_forward(x)))",
        "x = self.norm2(self.feed_forward(x))",
        "the residual connections are missing",
    ),
    ("self.norm2(x + self.dropout(self.feed_forward(x)))", "self.norm2(self.feed_forward(x))", "the second residual"),
    ("x = self.norm1(x + self.dropout(y))", "x = self.norm1(self.dropout(y))", "x is not added to what self_attn"),
    ("self.norm2(x + self.dropout", "self.norm1(x + self.dropout", "the second norm is norm2"),
    (
        "x = self.norm1(x + self.dropout(y))",
        "x = x + self.norm1(self.dropout(y))",
        "x = self.norm2(x + self.dropout(self.feed_forward(x)))",
        "x = x + self.norm2(self.feed_forward(x))",
        "the norm takes the sum",
    ),
    ("self.norm1(x + self.dropout(y))", "self.norm1(x - self.dropout(y))", "post-LN: attention, then feed-forward"),
    ("return x, weights", "return x", "two things are returned"),
    ("return x, weights", "return x, weights.mean(1)", "a map for each head"),
    ("self.norm2 = ", "self.norm3 = ", "self.norm2(", "self.norm3(", "no ['norm2"),
    (
        "self.dropout = nn.Dropout(dropout)",
        "self.dropout = nn.Dropout(0)",
        "(d_model, num_heads, dropout)",
        "(d_model, num_heads)",
        "(d_model, d_ff, dropout)",
        "(d_model, d_ff)",
        "dropout is nowhere at work",
    ),
    ("self.dropout(self.feed_forward(x))", "F.dropout(self.feed_forward(x))", "is dropout still on"),
)
SHAPES = RIGHT["04.1"][0]
WRONG = {  # answers that people give, and what the hint must speak of
    "TokenEmbedding": wrong(
        "TokenEmbedding",
        (" * self.scale", "", "still has to be multiplied by √d_model"),
        ("math.sqrt(d_model)", "d_model", "not by d_model"),
        ("* self.scale", "/ self.scale", "not divided"),
        ("* self.scale", "+ self.scale", "each id's row of the table, times"),
        ("self.table", "self.embedding", "no ['table.weight'] in it"),
        ("self.scale =", "self.more = nn.Linear(2, 2); self.scale =", "which no part of this box is called"),
        ("nn.Embedding(vocab_size, d_model)", "nn.Embedding(d_model, vocab_size)", "table.weight has the shape"),
        ("(nn.Module)", "", "a class of modules is expected"),
        ("math.sqrt(d_model)", "torch.sqrt(torch.FloatTensor([d_model]))", "`self.scale` stays where"),
        ("* self.scale", "* torch.full((1,), self.scale)", "device=ids.device"),
    ),
    "SinusoidalPositionalEncoding": [
        *wrong(
            "SinusoidalPositionalEncoding",
            (
                "torch.stack([angle.sin(), angle.cos()], dim=-1).flatten",
                "torch.cat([angle.sin(), angle.cos()], -1).view_as",
                "(1)",
                "(angle.repeat(1, 2))",
                "take turns",
            ),
            ("[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]", "even dimensions are sines"),
            ("torch.arange(max_len)", "torch.arange(1, max_len + 1)", "first position is 0"),
            ("/ d_model)", "* 2 / d_model)", "4i in the exponent"),
            ("10_000", "1_000", "row 0"),
            ("/ d_model)", "/ 12)", "both are arguments"),
            ("torch.arange(max_len)", "torch.arange(50)", "expected [300, 20]"),
            ("dim=-1).flatten(1)", "dim=-1)", "the shape is"),
            ("return self.table[:length]", "return self.table[length - 1]", "the shape is"),
            ("return self.table[:length]", "return self.table[None, :length]", "the shape is"),
            ("return self.table[:length]", "return self.table", "the shape is [50, 12], expected [7, 12]"),
            ("return self.table[:length]", "return self.table[-length:]", "the first 7 rows"),
            ("table.float()", "table", "expected torch.float32"),
            (
                'self.register_buffer("table", table.float(), persistent=False)',
                "self.table = nn.Parameter(table.float())",
                "would be trained",
            ),
            (
                'self.register_buffer("table", table.float(), persistent=False)',
                "self.table = table.float()",
                "stays behind",
            ),
            (", persistent=False", "", "persistent=False"),
        ),
        (OwnFrequencies, "have one frequency"),
        (PositionsOnTheWay, "A buffer moves with the model"),
    ],
    "InputEmbedding": wrong(
        "InputEmbedding",
        (" + self.positions(ids.shape[1])", "", "positions are missing"),
        ("self.tokens(ids) +", "4 * self.tokens(ids) +", "multiplied by √d_model already"),
        ("self.positions(ids.shape[1])", "self.positions(ids)", "positions takes a length"),
        ("ids.shape[1]", "len(ids)", "the number of sentences for their length"),
        ("self.tokens(ids) +", "self.tokens(ids) -", "plus its position's"),
        ("self.dropout(vectors)", "vectors", "dropout is nowhere at work"),
        ("self.dropout(vectors)", "F.dropout(vectors)", "is dropout still on"),
        ("self.tokens(ids) +", "self.dropout(self.tokens(ids)) +", "self.dropout(vectors)", "vectors", "comes last"),
        (
            "+ self.positions(ids.shape[1])",
            "+ self.dropout(self.positions(ids.shape[1]))",
            "self.dropout(vectors)",
            "vectors",
            "comes last",
        ),
        ("nn.Dropout(dropout)", "nn.Dropout(0.1)", "comes last"),
        ("self.tokens(ids) +", "self.tokens(ids) + torch.zeros(ids.shape)[..., None] +", "device=ids.device"),
    ),
    "PositionwiseFeedForward": wrong(
        "PositionwiseFeedForward",
        (".relu()", "", "where is the ReLU"),
        (
            "return self.linear2(self.dropout(self.linear1(x).relu()))",
            "return self.linear2(self.dropout(self.linear1(x))).relu()",
            "widen with linear1",
        ),
        ("(x).relu()))", "(x).relu())).relu()", "not after them"),
        ("return ", "return x + ", "wrapper's work"),
        (".relu()", ".sigmoid()", "widen with linear1"),
        ("self.dropout(self.linear1(x).relu())", "self.linear1(x).relu()", "dropout is nowhere at work"),
        ("self.dropout(self.linear1", "F.dropout(self.linear1", "is dropout still on"),
        ("self.linear2(self.dropout(", "self.dropout(self.linear2(", "between the two layers"),
        ("self.dropout(self.linear1(x).relu())", "self.linear1(self.dropout(x)).relu()", "between the two layers"),
        ("nn.Linear(d_model, d_ff)", "nn.Linear(d_ff, d_model)", "linear1.weight has the shape"),
        (".relu()", ".maximum(torch.zeros(1))", "device=x.device"),
    ),
    "EncoderLayer": wrong(
        "EncoderLayer",
        *POST_LN,
        ("if self.norm_first", "if not self.norm_first", "norm_first=False asks for post-LN, but this is pre-LN"),
        ("if self.norm_first", "if False", "norm_first=True asks for pre-LN, but this is post-LN"),
        (
            "y = self.norm1(x)",
            "x = y = self.norm1(x)",
            "x = x + self.dropout(self.feed_forward(self.norm2(x)))",
            "x = self.norm2(x); x = x + self.feed_forward(x)",
            "on the branches",
        ),
        ("y = self.norm1(x)", "x = y = self.norm1(x)", "x itself is what is added to"),
        ("self.self_attn(y, y, y, mask)", "self.self_attn(y, x, x, mask)", "all come from the norm's output"),
        ("self.feed_forward(self.norm2(x))", "self.feed_forward(x)", "the second sub-layer has its norm"),
        ("            x = x + self.dropout(y)", "            x = self.dropout(y)", "x is not added to what self_attn"),
        (
            "x = x + self.dropout(self.feed_forward(self.norm2(x)))",
            "x = self.dropout(self.feed_forward(self.norm2(x)))",
            "x is not added to what feed_forward",
        ),
        (
            "            x = x + self.dropout(y)",
            "            x = self.dropout(y)",
            "x = x + self.dropout(self.feed_forward(self.norm2(x)))",
            "x = self.dropout(self.feed_forward(self.norm2(x)))",
            "x is not added to what either",
        ),
        (
            "self.feed_forward(self.norm2(x))",
            "self.norm2(self.feed_forward(x))",
            "pre-LN: attention, then feed-forward",
        ),
    ),
    "DecoderLayer": wrong(
        "DecoderLayer",
        *LAYER_DROPOUT[:-2],
        ("self.norm1(x + ", "self.norm1(torch.zeros(x.shape) + x + ", "device=x.device"),
        (
            "self.self_attn = MultiHeadAttention(d_model, num_heads, dropout)",
            "self.self_attn = MultiHeadAttention(d_model, num_heads)",
            "self_attn takes dropout",
        ),
        (
            "self.cross_attn = MultiHeadAttention(d_model, num_heads, dropout)",
            "self.cross_attn = MultiHeadAttention(d_model, num_heads)",
            "cross_attn takes dropout",
        ),
        ("(d_model, d_ff, dropout)", "(d_model, d_ff)", "feed_forward takes dropout"),
        ("self.norm2(x + self.dropout(y))", "self.norm2(x + y)", "what each sub-layer returns"),
        (
            "self.cross_attn(x, memory, memory, memory_mask)",
            "self.cross_attn(memory, x, x, memory_mask)",
            "You have exchanged them",
        ),
        (
            "self.cross_attn(y, memory, memory, memory_mask)",
            "self.cross_attn(memory, y, y, memory_mask)",
            "You have exchanged them",
        ),
        ("self.self_attn(x, x, x, tgt_mask)", "self.self_attn(x, x, x)", "where is tgt_mask"),
        ("self.cross_attn(x, memory, memory, memory_mask)", "self.cross_attn(x, memory, memory)", "sees padding"),
        (
            "self.cross_attn(x, memory, memory, memory_mask)",
            "self.cross_attn(x, memory, memory, tgt_mask)",
            "tgt_mask is for self-attention",
        ),
        ("self.cross_attn(x, memory, memory, memory_mask)", "self.cross_attn(x, x, x)", "You took the target for both"),
        ("self.cross_attn(x, memory, memory, memory_mask)", "self.cross_attn(memory, x, x)", "You have exchanged them"),
        ("            x = self.norm2(x + self.dropout(y))\n", "", "cross-attention is missing"),
        ("x = self.norm2(x + self.dropout(y))", "x = self.norm2(self.dropout(y))", "residual connection, too"),
        ("x = self.norm1(x + self.dropout(y))", "x = self.norm1(self.dropout(y))", "x is not added to what self_attn"),
        (
            "x = self.norm3(x + self.dropout(self.feed_forward(x)))",
            "x = self.norm3(self.dropout(self.feed_forward(x)))",
            "x is not added to what feed_forward",
        ),
        ("x = self.norm2(x + self.dropout(y))", "x = self.norm1(x + self.dropout(y))", "the second norm is norm2"),
        ("if self.norm_first", "if False", "pre-LN: norm1, norm2 and norm3 before"),
        ("if self.norm_first", "if not self.norm_first", "post-LN: norm1, norm2 and norm3 after"),
        (
            "self.cross_attn(y, memory, memory,",
            "self.cross_attn(y, self.norm2(memory), self.norm2(memory),",
            "the encoder's last",
        ),
        ("return x, self_weights, cross_weights", "return x, cross_weights", "three things are returned"),
        (
            "return x, self_weights, cross_weights",
            "return x, cross_weights, self_weights",
            "the weights have the shapes",
        ),
        (
            "nn.Dropout(dropout)",
            "nn.Identity()",
            "MultiHeadAttention(d_model, num_heads, dropout)",
            "MultiHeadAttention(d_model, num_heads)",
            "(d_model, d_ff, dropout)",
            "(d_model, d_ff)",
            "dropout is nowhere at work",
        ),
    ),
    "Decoder": wrong(
        "Decoder",
        ("nn.ModuleList(layers)", "list(layers)", "in a plain list"),
        ("return self.norm(x), ", "return x, ", "the norm is missing"),
        ("return self.norm(x), self_maps, cross_maps", "return self.norm(x)", "three things are returned"),
        ("            self_maps.append(self_weights)\n", "", "the lists have 0 and 2 maps"),
        ("self_maps, cross_maps\n", "cross_maps, self_maps\n", "first the maps of self-attention"),
        (
            "self_maps, cross_maps = [], []",
            "self_maps, cross_maps, start = [], [], x",
            "layer(x, memory, tgt_mask, memory_mask)",
            "layer(start, memory, tgt_mask, memory_mask)",
            "each layer reads what the one before has written",
        ),
        ("layer(x, memory, tgt_mask, memory_mask)", "layer(x, memory)", "memory and masks are the same"),
        ("layer(x, memory, tgt_mask, memory_mask)", "layer(x, memory, memory_mask, tgt_mask)", "exchanged"),
        ("x, self_weights, cross_weights = layer", "memory, self_weights, cross_weights = layer", "is the new x"),
    ),
    "04.1": [
        (([2, 8, 7, 32], *SHAPES[1:]), "queries: they come from the target"),
        (([2, 5, 8, 32], *SHAPES[1:]), "moves the heads before the positions"),
        (([2, 5, 256], *SHAPES[1:]), "an axis of their own"),
        ((SHAPES[0], SHAPES[0], *SHAPES[2:]), "keys: they come from the memory"),
        ((*SHAPES[:2], [2, 8, 7, 5], SHAPES[3]), "a row for each query"),
        ((*SHAPES[:3], [2, 7, 256]), "one vector for each query"),
        ((*SHAPES[:3], 256), "a list of sizes was expected"),
    ],
}
