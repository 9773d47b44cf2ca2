"""Answers to the exercises of notebook 11: RMSNorm, the turn of rotary positions, and an encoder of one's own."""

import inspect

import torch
from torch import nn
from transformer_exercises import course

from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.embeddings import SinusoidalPositionalEncoding
from transformer_lib.model.encoder import Encoder, EncoderLayer
from transformer_lib.model.masks import causal_mask


def rms(x, gain, eps=1e-6):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * gain


def layer_norm(x, gain, eps=1e-6):
    return torch.nn.functional.layer_norm(x, gain.shape, gain, eps=eps)


def rotate(x):
    position = torch.arange(x.shape[-2])[:, None]
    angle = position * 10_000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1).flatten(-2)


def turn(*texts):
    """The worked answer with some pieces of text changed: old, new, old, new …"""
    source, names = inspect.getsource(course.own("rotate")), {"torch": torch}
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        assert old in source, old
        source = source.replace(old, new)
    exec(source, names)
    return names["rotate"]


def by_complex_numbers(x, start):
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    speeds = 1e4 ** -(torch.arange(x.shape[-1] // 2, device=x.device) * 2 / x.shape[-1])
    angles = torch.outer(torch.arange(x.shape[-2], device=x.device) + start, speeds)
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2).type_as(x)


def by_matrices(x, start):
    turned = torch.empty_like(x)
    for p in range(x.shape[2]):
        for i in range(0, x.shape[3], 2):
            angle = torch.tensor((start + p) / 10_000 ** (i / x.shape[3]))
            a, b = x[:, :, p, i], x[:, :, p, i + 1]
            turned[:, :, p, i] = a * angle.cos() - b * angle.sin()
            turned[:, :, p, i + 1] = a * angle.sin() + b * angle.cos()
    return turned


HALVES = "x[..., ::2], x[..., 1::2]", "x.chunk(2, dim=-1)"
JOINED = "torch.stack(turned, dim=-1).flatten(-2)", "torch.cat(turned, dim=-1)"


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


RIGHT = {
    "rotate": [(course.own("rotate"),), (by_complex_numbers,), (by_matrices,), (turn(),)],
    "11.1": [
        (rms,),
        (lambda x, gain, eps: torch.nn.functional.normalize(x, dim=-1) * 0 + rms(x.double(), gain, eps),),
    ],
    "11.2": [
        (encoder_with(Rotary),),
        (encoder_with(Relative),),
        (encoder_with(Rotary, after=lambda *both: list(both)),),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "rotate": [
        (turn("torch.arange(start, start + x.shape[-2]", "torch.arange(0, x.shape[-2]"), "at position `start`"),
        (
            turn("torch.arange(start, start + x.shape[-2]", "1 + torch.arange(start, start + x.shape[-2]"),
            "one too high",
        ),
        (turn(*HALVES, *JOINED), "half a head apart"),
        (turn(*JOINED), "in another order"),
        (turn("positions[:, None] *", "-positions[:, None] *"), "the other way round"),
        (turn("angle.cos() - ", "angle.cos() + "), "look at the signs"),
        (turn("* frequency", "* frequency**0"), "a speed of its own"),
        (lambda x, start: x, "nothing has been turned"),
        (turn("0, x.shape[-1], 2, device=x.device)", "0, x.shape[-1], 2, device=x.device) * 2"), "the formula"),
        (turn(".to(x.dtype)", ""), "in 16 bits"),
        (turn(".to(x.dtype)", ".to(x.dtype).detach()"), "no gradient comes back"),
        (turn(", device=x.device", ""), "on a GPU"),
        (turn("dim=-1).flatten(-2)", "dim=-1)"), "the shape is"),
        (turn("x.shape[-2]", "x.shape[1]"), "stopped"),
    ],
    "11.1": [
        (layer_norm, "LayerNorm"),
        (lambda x, gain, eps: rms(x, 1, eps), "gain is missing"),
        (lambda x, gain, eps: x / (x.square().sum(-1, keepdim=True) + eps).sqrt() * gain, "their mean"),
        (lambda x, gain, eps: x / (x.square().mean(-1, keepdim=True) + eps) * gain, "take its root"),
        (lambda x, gain, eps: x / (x.square().mean() + eps).sqrt() * gain, "over the last axis"),
        (lambda x, gain, eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * gain, "under the root"),
        (lambda x, gain, eps: x / (x.std(-1, keepdim=True) + eps) * gain, "a vector done by hand"),
        (lambda x, gain, eps: rms(x, gain, eps)[0], "the shape is"),
    ],
    "11.2": [
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
}
