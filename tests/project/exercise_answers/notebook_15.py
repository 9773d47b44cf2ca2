"""Answers to the exercises of notebook 15: layers, costs, the paper's model, attention that saves, a parser."""

import inspect
import math
import re
from fractions import Fraction

import numpy as np
import torch
from exercise_answers import worked
from torch import nn

from transformer_lib.data.corpora import load_corpus
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


def write(tree):
    tokens, open_phrases = [], []
    for part in re.findall(r"\([^\s()]+ [^\s()]+\)|\([^\s()]+|\)", tree):
        if part == ")":
            tokens.append(f"){open_phrases.pop()}")
        elif part.endswith(")"):
            tokens.append(part[1:].split()[0])
        else:
            open_phrases.append(part[1:])
            tokens.append(part)
    return tokens


def read(tokens, words, check_labels=True):
    open_phrases, parts, words = [], [], list(words)
    for number, token in enumerate(tokens):
        if token[0] == "(":
            if number and not open_phrases:
                return ""
            open_phrases.append(token[1:])
            parts.append(f" {token}")
        elif token[0] == ")":
            if not open_phrases or (open_phrases.pop() != token[1:] and check_labels):
                return ""
            parts.append(")")
        elif open_phrases and words:
            parts.append(f" ({token} {words.pop(0)})")
        else:
            return ""
    return "" if open_phrases or words or not tokens else "".join(parts).strip()


def read_and_pop(tokens, words, to_the_end=True):
    """Read one phrase after the other, and take from the lists what has been read."""

    def phrase():
        token = tokens.pop(0)
        if token[0] == ")":
            raise IndexError
        if token[0] != "(":
            return f"({token} {words.pop(0)})"
        parts = [token]
        while tokens[0][0] != ")":
            parts.append(phrase())
        if tokens.pop(0)[1:] != token[1:] or len(parts) == 1:
            raise IndexError
        return " ".join(parts) + ")"

    try:
        tree = phrase()
    except IndexError:
        return ""
    return "" if words or (tokens and to_the_end) else tree


def careless(tokens, words):
    words = iter(words)
    parts = [f" {t}" if t[0] == "(" else ")" if t[0] == ")" else f" ({t} {next(words, 'nothing')})" for t in tokens]
    return "".join(parts).strip()


def plain(tree):
    """Write a tree with brackets that do not say what they close."""
    return [")" if token[0] == ")" else token for token in write(tree)]


def read_plain(tokens, words):
    return read(tokens, words, check_labels=False)


GOLD = dict(zip(load_corpus("sample").lines("test", "en"), load_corpus("sample").lines("test", "tree"), strict=True))


def lookup(change=lambda tree: tree):
    return lambda sentences: [change(GOLD[sentence]) for sentence in sentences]


def seldom_wrong(sentences):
    return ["" if number % 20 == 0 else GOLD[sentence] for number, sentence in enumerate(sentences)]


def right_branching(sentences):
    return ["(S " + " ".join(f"(NN {word})" for word in sentence.split()) + ")" for sentence in sentences]


RIGHT = {
    "PaperTransformer": [(course.PaperTransformer,), (boxes.Transformer,), (OfEarlierBoxes,)],
    "15.1": [(50, 25, 7), (np.int64(50), Fraction(25), torch.tensor(7)), (50.0, 25.0, 7.0)],
    "15.2": [(multiplications(), 3072), (lambda n, d, d_ff: 2 * n * d * (2 * d + n + d_ff), torch.tensor(3072.0))],
    "15.3": [
        (blocks_and_columns,),
        (one_hub,),
        (fewer_rows,),
    ],
    "15.4": [
        (write, read),
        (plain, read_plain),
        (write, read_and_pop),
    ],
    "15.5": [
        (lookup(),),
        (seldom_wrong,),
        (lambda sentences: (GOLD[sentences.pop(0)] for _ in range(500)),),
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
    "15.4": [
        ((str.split, lambda tokens, words: " ".join(tokens)), "over other words"),
        ((write, careless), "no tree for these words"),
        ((write, lambda tokens, words: read(tokens, words[: len(words)]) or tokens), "no tree for these words"),
        ((write, lambda tokens, words: read(tokens, words[::-1])), "in another order"),
        ((write, lambda tokens, words: " ".join(tokens)), "each tag needs its own"),
        ((lambda tree: " ".join(write(tree)), read), "a list of tokens"),
        ((lambda tree: [" ".join(write(tree))], read), "a space in it"),
        ((write, lambda tokens, words: [read(tokens, words)]), "a tree was expected"),
        ((write, lambda tokens, words: read(tokens, words)[:-1]), "what comes back is"),
        ((write, lambda tokens, words: read_and_pop(tokens, words, to_the_end=False)), "one more '(S' at an end"),
        ((write, lambda tokens, words: read(tokens, words) or None), "return an empty string"),
        ((write, lambda tokens, words: read(tokens, words).lower()), "the words are different"),
        ((write, lambda tokens: read(tokens, [])), "stopped with TypeError"),
    ],
    "15.5": [
        (right_branching, "0 of 500"),
        (lookup(lambda tree: re.sub(r" [^\s()]+\)", lambda word: word[0].lower(), tree)), "lower-case"),
        (lambda sentences: [GOLD[sentence] for sentence in sorted(sentences)], "not in the sentences' order"),
        (lookup(lambda tree: " ".join(write(tree))), "words are not in the trees"),
        (lambda sentences: lookup()(sentences)[:100], "100 trees came back"),
        (lambda sentences: [write(GOLD[sentence]) for sentence in sentences], "a list of trees"),
        (lambda sentences: [None] * 500, "a list of trees"),
    ],
}
