"""Answers to the exercises of notebook 15: layers, costs, the paper's model, attention that saves something."""

import inspect
import math
from fractions import Fraction

import numpy as np
import torch
from exercise_answers import worked
from torch import nn

from transformer_lib.model.masks import local_mask

boxes = worked.notebook("05")
course = worked.notebook("15")


def multiplications(projections=4, mixing=2, feed_forward=2):
    return lambda n, d_model, d_ff: (
        projections * n * d_model**2 + mixing * n**2 * d_model + feed_forward * n * d_model * d_ff
    )


def blocks_and_columns(n):
    side, place = math.ceil(math.sqrt(n)), torch.arange(n)
    row, column = place // side, place % side
    return (row[:, None] == row) | (column[:, None] == column)


def one_hub(n):
    """All look at the first √n positions, each of which looks at √n others."""
    side = math.ceil(math.sqrt(n))
    mask = torch.zeros(n, n, dtype=torch.bool)
    mask[:, :side] = True
    for hub in range(side):
        mask[hub, hub * side : (hub + 1) * side] = True
    return mask


def fewer_rows(n):
    row, column = np.divmod(np.arange(n), math.isqrt(n))
    return torch.from_numpy((row[:, None] == row) | (column[:, None] == column))


def blocks(n):
    row = torch.arange(n) // math.ceil(math.sqrt(n))
    return row[:, None] == row


def columns(n):
    column = torch.arange(n) % math.ceil(math.sqrt(n))
    return column[:, None] == column


def paper(*changes):
    """The course's class, with some of its text changed: each change is the old and the new text."""
    source = inspect.getsource(course.PaperTransformer)
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    names = dict(vars(course))
    exec(source, names)
    return names["PaperTransformer"]


class OfEarlierBoxes(nn.Module):
    """With the boxes of notebooks 02 to 05, and an output layer that has biases."""

    def __init__(self, config):
        super().__init__()
        tokens, sizes = boxes.TokenEmbedding(config.src_vocab_size, config.d_model), (config.d_model, config.num_heads)
        positions = boxes.SinusoidalPositionalEncoding(config.max_len, config.d_model)
        self.embedding, sizes = boxes.InputEmbedding(tokens, positions, config.dropout), (*sizes, config.d_ff)
        encoder, decoder = (
            [layer(*sizes, config.dropout) for _ in range(config.num_layers)]
            for layer in (boxes.EncoderLayer, boxes.DecoderLayer)
        )
        self.encoder, self.decoder = boxes.Encoder(encoder, nn.Identity()), boxes.Decoder(decoder, nn.Identity())
        self.output = nn.Linear(config.d_model, config.src_vocab_size)
        self.output.weight = tokens.table.weight
        self.pad_id = config.pad_id

    def forward(self, src, tgt):
        mask = boxes.padding_mask(src, self.pad_id)
        memory = self.encoder(self.embedding(src), mask)[0]
        return self.output(self.decoder(self.embedding(tgt), memory, boxes.target_mask(tgt, self.pad_id), mask)[0])


class LastNorms(boxes.Transformer):
    def __init__(self, config):
        super().__init__(config)
        self.encoder.norm, self.decoder.norm = nn.LayerNorm(config.d_model), nn.LayerNorm(config.d_model)


NORM_FIRST = (
    (
        'layer["norm1"](memory + self.dropout(self.attend(layer["self_attn"], memory, memory, src_mask)))',
        'memory + self.dropout(self.attend(layer["self_attn"], *[layer["norm1"](memory)] * 2, src_mask))',
    ),
    (
        'layer["norm2"](memory + self.dropout(self.feed(layer, memory)))',
        'memory + self.dropout(self.feed(layer, layer["norm2"](memory)))',
    ),
    (
        'layer["norm1"](x + self.dropout(self.attend(layer["self_attn"], x, x, tgt_mask)))',
        'x + self.dropout(self.attend(layer["self_attn"], *[layer["norm1"](x)] * 2, tgt_mask))',
    ),
    (
        'layer["norm2"](x + self.dropout(self.attend(layer["cross_attn"], x, memory, src_mask)))',
        'x + self.dropout(self.attend(layer["cross_attn"], layer["norm2"](x), memory, src_mask))',
    ),
    (
        'layer["norm3"](x + self.dropout(self.feed(layer, x)))',
        'x + self.dropout(self.feed(layer, layer["norm3"](x)))',
    ),
)
IN_SELF_ATTENTION = (
    'self.attend(layer["self_attn"], memory, memory, src_mask)',
    ('self.attend(layer["self_attn"], memory, memory, src_mask | True)'),
)
IN_CROSS_ATTENTION = 'layer["cross_attn"], x, memory, src_mask', 'layer["cross_attn"], x, memory, src_mask | True'

RIGHT = {
    "PaperTransformer": [(course.PaperTransformer,), (boxes.Transformer,), (OfEarlierBoxes,)],
    "15.1": [(50, 25, 7), (np.int64(50), Fraction(25), torch.tensor(7)), (50.0, 25.0, 7.0)],
    "15.2": [(multiplications(), 3072), (lambda n, d, d_ff: 2 * n * d * (2 * d + n + d_ff), torch.tensor(3072.0))],
    "15.3": [
        (blocks_and_columns,),
        (one_hub,),
        (fewer_rows,),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "PaperTransformer": [
        (paper(*NORM_FIRST), "that is pre-LN"),
        (paper((" * self.config.d_model**0.5", "")), "multiplied by √d_model"),
        (paper((" + self.positions[: ids.shape[1]]", "")), "the positions are missing"),
        (paper((" / q.shape[-1] ** 0.5", "")), "not divided by √d_k"),
        (paper((".tril()", "")), "a word of the target"),
        (paper(IN_CROSS_ATTENTION), "cross-attention sees padding"),
        (paper(IN_SELF_ATTENTION), "the encoder sees padding"),
        (paper(IN_SELF_ATTENTION, IN_CROSS_ATTENTION), "in the encoder and in cross-attention"),
        (paper(("return x @ self.table.weight.T", "return (x @ self.table.weight.T).softmax(-1)")), "return logits"),
        (paper(("layer in self.decoder", "layer in reversed(self.decoder)")), "read section 3 once more"),
        (paper((".relu()", "")), "read section 3 once more"),
        (paper(("nn.Dropout(config.dropout)", "nn.Dropout(0.1)")), "in training, drop"),
        (paper(("self.dropout(self.table(ids)", "(self.table(ids)")), "in training, drop"),
        (paper(("x + self.dropout(self.feed(layer, x))", "x + self.feed(layer, x)")), "in training, drop"),
        (paper(("self.dropout(self.feed(", "nn.functional.dropout(self.feed(")), "is dropout still on"),
        (paper((", device=tgt.device", "")), "device=src.device"),
        (
            paper(('self.register_buffer("positions", positions, persistent=False)', "self.positions = positions")),
            "buffer",
        ),
        (LastNorms, "each of its layers ends in one"),
        (
            paper(
                ("self.dropout =", "self.output = nn.Linear(d_model, config.src_vocab_size); self.dropout ="),
                ("return x @ self.table.weight.T", "return self.output(x)"),
            ),
            "but here are 2",
        ),
        (paper(("q_proj", "w_q")), "there is no ['decoder.0.cross_attn.q_proj.bias']"),
        (course.torch.relu, "a class of modules is expected"),
    ],
    "15.1": [
        ((99, 25, 7), "that is k = 3"),
        ((20, 25, 7), "two positions to each side"),
        ((49.5, 25, 7), "Round up"),
        ((49, 25, 7), "one too few"),
        ((33, 25, 7), "not three"),
        ((40, 25, 7), "how far does each layer reach"),
        ((50, 11, 7), "leaves that factor out"),
        ((50, 24.75, 7), "Round up"),
        ((50, 24, 7), "three too few"),
        ((50, 13, 7), "not half of it"),
        ((50, 20, 7), "its own in the middle"),
        ((50, 25, 6), "63 positions"),
        ((50, 25, 5), "the base is 2"),
        ((50, 25, 8), "which is enough"),
        ((50, 25, 99), "twice as far"),
    ],
    "15.2": [
        ((multiplications(projections=3), 3072), "four projections"),
        ((multiplications(projections=0), 3072), "the output, are missing"),
        ((multiplications(mixing=1), 3072), "two products"),
        ((multiplications(mixing=0), 3072), "n · n"),
        ((multiplications(mixing=16), 3072), "eight heads"),
        ((multiplications(feed_forward=0), 3072), "the feed-forward network is missing"),
        ((multiplications(feed_forward=1), 3072), "two matrices"),
        ((multiplications(8, 4, 4), 3072), "multiplications only"),
        ((lambda n, d, d_ff: multiplications()(n, d, d_ff) // n, 3072), "for one word"),
        ((lambda n, d, d_ff: 4 * n * d * d + 2 * n * d + 2 * n * d * d_ff, 3072), "all n words"),
        ((lambda n, d, d_ff: 12 * n * d * d + 2 * n * n * d, 3072), "product by product"),
        ((multiplications(), 512), "compared with itself"),
        ((multiplications(), 1024), "feed-forward network belongs"),
        ((multiplications(), 2048), "four projections and *two*"),
        ((multiplications(), 6144), "two products grow"),
        ((multiplications(), 4000), "solve for n"),
        (([12], 3072), "a function was expected"),
        ((multiplications(), 1536), "solve for n"),
        ((lambda n, d, d_ff: [n, d], 3072), "a number was expected"),
    ],
    "15.3": [
        (lambda n: torch.ones(n, n, dtype=torch.bool), "full attention"),
        (lambda n: local_mask(n, 3), "some keys must be far away"),
        (blocks, "some keys must be far away"),
        (columns, "does not depend on input"),
        (lambda n: torch.ones(n, n, dtype=torch.bool).tril(), "are allowed"),
        (lambda n: columns(n) & ~blocks(n), "does not depend"),
        (lambda n: blocks(n).float(), "torch.bool"),
        (lambda n: blocks_and_columns(16), "the shape is"),
        (lambda n: torch.zeros(n, n, dtype=torch.bool), "sees nothing"),
        (lambda n: [[True]], "a tensor was expected"),
        (lambda n: blocks_and_columns(n).tril(), "does not depend on input"),
        (lambda n: one_hub(n) & one_hub(n).T, "does not depend on input"),
    ],
}
