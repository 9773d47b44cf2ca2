"""Answers to the exercises of notebook 13: the recipe's numbers, an average, an encoder of one's own, a parser."""

import re

import numpy as np
import torch
from torch import nn

from transformer_lib.data.corpora import load_corpus
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.embeddings import SinusoidalPositionalEncoding
from transformer_lib.model.encoder import Encoder, EncoderLayer
from transformer_lib.model.masks import causal_mask

PEAK = 512**-0.5 * 4000**-0.5
MATRIX = 37_000 * 512


def mean(states):
    return {name: sum(state[name] for state in states) / len(states) for name in states[0]}


def in_place(states):
    total = states[0]
    for state in states[1:]:
        for name in total:
            total[name] += state[name]
    return {name: tensor / len(states) for name, tensor in total.items()}


def halving(states):
    average = states[0]
    for state in states[1:]:
        average = {name: (average[name] + state[name]) / 2 for name in average}
    return average


def popping(states):
    count = len(states)
    total = states.pop()
    for name in list(total):
        total[name] = torch.stack([total[name], *(state.pop(name) for state in states)]).sum(0) / count
    return total


def rotate(x):
    position = torch.arange(x.shape[-2])[:, None]
    angle = position * 10_000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1).flatten(-2)


class Rotary(MultiHeadAttention):
    turns = "qk"

    def forward(self, query, key, value, mask=None, need_weights=False):
        parts = {
            "q": (self.q_proj, query),
            "k": (self.k_proj, key),
            "v": (self.v_proj, value),
        }
        q, k, v = (
            rotate(self.split_heads(projection(x))) if name in self.turns else self.split_heads(projection(x))
            for name, (projection, x) in parts.items()
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights if need_weights else None


class RotaryValues(Rotary):
    turns = "qkv"


class RotaryQueries(Rotary):
    turns = "q"


class Relative(MultiHeadAttention):
    """Shaw et al. 2018, with one vector for each distance up to four, for the keys."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.distances = nn.Parameter(torch.zeros(9, self.q_proj.in_features // self.num_heads))

    def distance(self, length):
        place = torch.arange(length)
        return (place[None, :] - place[:, None]).clamp(-4, 4) + 4

    def forward(self, query, key, value, mask=None, need_weights=False):
        q, k, v = map(
            self.split_heads,
            (self.q_proj(query), self.k_proj(key), self.v_proj(value)),
        )
        by_distance = self.distances[self.distance(query.shape[1])]  # [len, len, d_k]
        scores = (q @ k.mT + torch.einsum("bhqd,qkd->bhqk", q, by_distance)) / q.shape[-1] ** 0.5
        weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights if need_weights else None


class Symmetric(Relative):
    def distance(self, length):
        place = torch.arange(length)
        return (place[None, :] - place[:, None]).abs().clamp(max=4)


class Blind(Rotary):
    def forward(self, query, key, value, mask=None, need_weights=False):
        return super().forward(query, key, value, None, need_weights)


class MasksForMaps(Rotary):
    def forward(self, query, key, value, mask=None, need_weights=False):
        return super().forward(query, key, value, mask if need_weights else None, need_weights)


class CausalByDefault(Rotary):
    def forward(self, query, key, value, mask=None, need_weights=False):
        mask = causal_mask(query.shape[1]) if mask is None else mask
        return super().forward(query, key, value, mask, need_weights)


class Dropping(Rotary):
    def forward(self, query, key, value, mask=None, need_weights=False):
        output, weights = super().forward(query, key, value, mask, need_weights)
        return nn.functional.dropout(output, 0.1), weights


def encoder_with(attention, before=lambda x: x, after=lambda memory, maps: (memory, maps), unused=False):
    class Mine(Encoder):
        def __init__(self, num_layers, d_model, num_heads, d_ff, dropout=0.1, inner_dropout=0.1, norm_first=False):
            sizes = (d_model, num_heads, d_ff, dropout, inner_dropout, norm_first)
            norm = nn.LayerNorm(d_model) if norm_first else None
            super().__init__((EncoderLayer(*sizes) for _ in range(num_layers)), norm)
            for layer in self.layers:
                layer.self_attn = attention(d_model, num_heads, inner_dropout)
            if unused:
                self.spare = nn.Linear(d_model, d_model)

        def forward(self, x, mask=None, need_weights=False):
            return after(*super().forward(before(x), mask, need_weights))

    return Mine


class PlainList(encoder_with(Rotary)):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        layers = list(self.layers)
        del self.layers, self.norm
        self.layers, self.norm = layers, nn.Identity()


def with_positions(x):
    return x + SinusoidalPositionalEncoding(100, x.shape[-1])(x.shape[1])


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
    "13.1": [
        (PEAK, PEAK / 2, 2 * MATRIX),
        (7.0e-4, 3.5e-4, 37_888_000),
        (np.float32(PEAK), torch.tensor(PEAK / 2), 37.9),
        (0.0007, 0.00035, 3.79e7),
    ],
    "13.2": [
        (mean,),
        (popping,),
    ],
    "13.3": [
        (encoder_with(Rotary),),
        (encoder_with(Relative),),
        (encoder_with(Rotary, after=lambda *both: list(both)),),
    ],
    "13.4": [
        (write, read),
        (plain, read_plain),
        (write, read_and_pop),
    ],
    "13.5": [
        (lookup(),),
        (seldom_wrong,),
        (lambda sentences: (GOLD[sentences.pop(0)] for _ in range(500)),),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "13.1": [
        ((4000**-0.5, PEAK / 2, 2 * MATRIX), "first factor"),
        ((512**-0.5, PEAK / 2, 2 * MATRIX), "second factor"),
        ((1e-3, PEAK / 2, 2 * MATRIX), "where the warm-up ends"),
        ((PEAK, PEAK / 4, 2 * MATRIX), "*root* of the step"),
        ((PEAK, 4 * PEAK, 2 * MATRIX), "warm-up has ended"),
        ((PEAK, PEAK, 2 * MATRIX), "compare it with the highest rate"),
        ((PEAK, PEAK / 2, MATRIX), "three matrices become one"),
        ((PEAK, PEAK / 2, 3 * MATRIX), "still there"),
        ((PEAK, PEAK / 2, 4 * MATRIX), "a row of 512"),
        ((PEAK, PEAK / 2, 2 * MATRIX + 37_000), "biases"),
        ((np.float32(4000**-0.5), PEAK / 2, 2 * MATRIX), "first factor"),
        ((PEAK, PEAK / 2, 18.9), "three matrices become one"),
        ((PEAK, PEAK / 2, "38 million"), "a number was expected"),
    ],
    "13.2": [
        (in_place, "weights have changed"),
        (halving, "count alike"),
        (lambda states: states[-1], "last checkpoint"),
        (lambda states: {name: tensor * len(states) for name, tensor in mean(states).items()}, "divide"),
        (lambda states: {name: tensor * len(states) / 5 for name, tensor in mean(states).items()}, "another number"),
        (lambda states: [tensor for tensor in mean(states).values()], "a dictionary"),
        (lambda states: {name: tensor.mean() for name, tensor in mean(states).items()}, "the shape is []"),
        (lambda states: {"weights": torch.zeros(3)}, "the names of the weights"),
        (lambda states: {name: tensor.tolist() for name, tensor in mean(states).items()}, "a tensor was expected"),
        (lambda states: {name: states[0][name] + states[-1][name] for name in states[0]}, "number by number"),
    ],
    "13.3": [
        (encoder_with(MultiHeadAttention), "order of the words does not matter"),
        (encoder_with(MultiHeadAttention, before=with_positions), "hidden position in front"),
        (encoder_with(RotaryValues), "hidden position in front"),
        (encoder_with(RotaryQueries), "hidden position in front"),
        (encoder_with(Symmetric), "left from right"),
        (encoder_with(Blind), "padding is seen"),
        (encoder_with(Dropping), "evaluation mode"),
        (encoder_with(MasksForMaps), "asking for the maps"),
        (encoder_with(CausalByDefault), "without a mask, all words are seen"),
        (encoder_with(Rotary, after=lambda memory, maps: (memory[:, 0], maps)), "the shape of x"),
        (encoder_with(Rotary, after=lambda memory, maps: (memory, [one.mT for one in maps])), "they sum to 1"),
        (PlainList, "it has no parameters"),
        (encoder_with(Rotary, after=lambda memory, maps: (memory.detach(), maps)), "no gradient leads back"),
        (encoder_with(Rotary, after=lambda memory, maps: (memory, None)), "list of 2 maps"),
        (encoder_with(Rotary, unused=True), "no part in what comes out"),
        (encoder_with(Rotary, after=lambda memory, maps: memory), "return two things"),
        (encoder_with(Rotary, after=lambda memory, maps: (memory, maps[-1:])), "list of 2 maps"),
        (nn.Linear, "stopped with TypeError"),
        (lambda *sizes: "an encoder", "an encoder is an nn.Module"),
        (encoder_with(Rotary, before=lambda x: 0 * x / 0), "there is nan"),
    ],
    "13.4": [
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
    "13.5": [
        (right_branching, "0 of 500"),
        (lookup(lambda tree: re.sub(r" [^\s()]+\)", lambda word: word[0].lower(), tree)), "lower-case"),
        (lambda sentences: [GOLD[sentence] for sentence in sorted(sentences)], "not in the sentences' order"),
        (lookup(lambda tree: " ".join(write(tree))), "words are not in the trees"),
        (lambda sentences: lookup()(sentences)[:100], "100 trees came back"),
        (lambda sentences: [write(GOLD[sentence]) for sentence in sentences], "a list of trees"),
        (lambda sentences: [None] * 500, "a list of trees"),
    ],
}
