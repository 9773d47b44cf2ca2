"""Answers to the exercises of notebook 10: the block of a GPT, a mask for a prompt, and top-p."""

import inspect

import torch
from exercise_answers import worked
from torch import nn
from transformer_exercises import course

from transformer_lib import DecoderLayer, causal_mask

SOURCE = inspect.getsource(course.own("Block"))


def block(*texts):
    """The worked answer with some pieces of text changed: old, new, old, new …"""
    source, names = SOURCE, dict(vars(worked.notebook("10")))
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        assert old in source, old
        source = source.replace(old, new)
    exec(source, names)
    return names["Block"]


class StillADecoderLayer(DecoderLayer):
    def __init__(self, d_model, num_heads, d_ff, dropout):
        super().__init__(d_model, num_heads, d_ff, dropout, norm_first=True)

    def forward(self, x, mask):
        return super().forward(x, x, mask)[0]


class OneNormTooMany(block()):
    def __init__(self, d_model, *sizes):
        super().__init__(d_model, *sizes)
        self.norm3 = nn.LayerNorm(d_model)


class PostLN(block()):
    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.self_attn(x, x, x, mask)[0]))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class InOneLine(block()):
    def forward(self, x, mask):
        x = x + self.dropout(self.self_attn(*[self.norm1(x)] * 3, mask)[0])
        return self.dropout(self.feed_forward(self.norm2(x))) + x


def prefix(length, prefix):
    return causal_mask(length) | (torch.arange(length) < prefix)


def prefix_by_blocks(length, prefix):
    mask = torch.ones(length, length).tril().bool()
    mask[:prefix, :prefix] = True
    return mask


def sees_the_answer(length, prefix):
    mask = causal_mask(length)
    mask[:prefix] = True
    return mask


def only_itself(length, prefix):
    mask = prefix_by_blocks(length, prefix)
    mask[prefix:, :prefix] = False
    return mask


def nucleus(logits, p):
    probabilities, order = logits.softmax(-1).sort(descending=True)
    tail = probabilities.cumsum(-1) - probabilities >= p - 1e-6
    kept = probabilities.masked_fill(tail, 0)
    return torch.empty_like(kept).scatter(0, order, kept / kept.sum())


def one_by_one(logits, p):
    probabilities, total = logits.double().softmax(-1), 0.0
    kept = torch.zeros_like(probabilities)
    for i in probabilities.argsort(descending=True).tolist():
        if total < p - 1e-6:
            kept[i] = probabilities[i]
            total += probabilities[i].item()
    return kept / total


def one_too_few(logits, p):
    probabilities, order = logits.softmax(-1).sort(descending=True)
    kept = probabilities * (probabilities.cumsum(-1) <= p + 1e-6)
    return torch.empty_like(kept).scatter(0, order, kept)


def not_divided(logits, p):
    return logits.softmax(-1) * (nucleus(logits, p) > 0)


RIGHT = {
    "Block": [(course.own("Block"),), (InOneLine,), (block(),)],
    "10.1": [(prefix,), (prefix_by_blocks,)],
    "10.2": [(nucleus,), (one_by_one,)],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "Block": [
        (block("(y, y, y, mask)", "(y, y, y)"), "the mask does not reach"),
        (StillADecoderLayer, "cross-attention is still among its parts"),
        (OneNormTooMany, "What does norm3 belong to?"),
        (PostLN, "that is post-LN"),
        (block("return x + self.dropout", "return self.dropout"), "x is not added to what feed_forward"),
        (block("x = x + self.dropout(y)", "x = self.dropout(y)"), "x is not added to what self_attn"),
        (block("y = self.norm1(x)", "y = x = self.norm1(x)"), "x itself is what is added to"),
        (block("self.norm2(x)))", "x))"), "the second sub-layer has its norm, too"),
        (block("(y, y, y, mask)", "(y, x, x, mask)"), "all come from the norm's output"),
        (block("self.norm2(x)))", "self.norm1(x)))"), "then that + feed_forward of *its* norm"),
        (block("return x + self.dropout(", "return (x + "), "before it is added to x"),
        (block("num_heads, dropout)", "num_heads)"), "self_attn takes dropout, too"),
        (block("self.feed_forward(self.norm2(x)))", "self.feed_forward(self.norm2(x))), y"), "come back alone"),
        (block("d_ff, dropout)\n        self.norm2", "40, dropout)\n        self.norm2"), "expected"),
        (block("def forward(self, x, mask):", "def forward(self, x, memory, mask):"), "stopped"),
    ],
    "10.1": [
        (lambda length, prefix: causal_mask(length), "that is the causal mask"),
        (lambda length, prefix_: ~prefix(length, prefix_), "wrong way round"),
        (lambda length, prefix_: prefix(length, prefix_).T, "turned on its side"),
        (sees_the_answer, "the prompt sees what comes after it"),
        (only_itself, "must see all of it"),
        (lambda length, prefix_: prefix(length, prefix_ - 1), "compare it with the causal mask"),
        (lambda length, prefix_: prefix(length, prefix_).float(), "expected torch.bool"),
        (lambda length, prefix_: prefix(length, prefix_)[None, None], "the shape is"),
    ],
    "10.2": [
        (one_too_few, "still belongs to it"),
        (lambda logits, p: one_too_few(logits, p) / one_too_few(logits, p).sum(), "still belongs to it"),
        (not_divided, "divide it by its sum"),
        (lambda logits, p: nucleus(logits, p).sort(descending=True).values, "in the order of the logits"),
        (lambda logits, p: logits.softmax(-1), "nothing has been cut off"),
        (lambda logits, p: (logits.softmax(-1) >= 1 - p) * 1.0, "begin with the likeliest"),
        (lambda logits, p: nucleus(logits, p).tolist(), "a tensor was expected"),
    ],
}
