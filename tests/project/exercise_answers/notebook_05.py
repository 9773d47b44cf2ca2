"""Answers to the exercises of notebook 05: the whole model, its parameters, a toy task."""

import functools

import numpy as np
import torch
import torch.nn.functional as F
from exercise_answers import notebook_04, worked
from exercise_answers.notebook_04 import (
    ExpLogPositions,
    FunctionalEmbedding,
    ShortDecoder,
    WrappedDecoderLayer,
    WrappedEncoderLayer,
)
from torch import nn

course = worked.notebook("05")


class Untold(course.Encoder):
    """One that keeps its maps to itself."""

    def forward(self, x, mask=None):
        return super().forward(x, mask)[0]


class UntoldDecoder(course.Decoder):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        return super().forward(x, memory, tgt_mask, memory_mask)[0]


wrong = functools.partial(notebook_04.wrong, course=course, Untold=Untold, UntoldDecoder=UntoldDecoder)


class AllAtOnce(nn.Module):
    """The whole model in one class, with everything in ``__init__``."""

    config_class = course.TransformerConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        d, tied = config.d_model, config.tie_embeddings
        table = course.TokenEmbedding(config.src_vocab_size, d)
        tables = [table, table if tied else course.TokenEmbedding(config.tgt_vocab_size, d)]
        kind = {"sinusoidal": ExpLogPositions, "learned": course.LearnedPositionalEncoding}[config.positions]
        self.src_embedding, self.tgt_embedding = (
            FunctionalEmbedding(tokens, kind(config.max_len, d), config.dropout) for tokens in tables
        )
        layer = (d, config.num_heads, config.d_ff, config.dropout, config.norm_first)
        norm = nn.LayerNorm if config.norm_first else lambda size: nn.Identity()
        self.encoder = course.Encoder((WrappedEncoderLayer(*layer) for _ in range(config.num_layers)), norm(d))
        self.decoder = ShortDecoder((WrappedDecoderLayer(*layer) for _ in range(config.num_layers)), norm(d))
        self.output = nn.Linear(d, config.tgt_vocab_size)
        if tied:
            self.output.weight = table.table.weight
        self.apply(self.start)
        if tied:
            with torch.no_grad():
                table.table.weight.copy_(torch.randn_like(table.table.weight) / d**0.5)

    def start(self, box):
        for parameter in box.parameters(recurse=False):
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def encode(self, src):
        hidden = (src == self.config.pad_id)[:, None, None, :]
        return self.encoder(self.src_embedding(src), ~hidden)[0], ~hidden

    def decode(self, tgt, memory, memory_mask):
        length = tgt.shape[1]
        seen = (
            torch.ones(1, 1, length, length, device=tgt.device).tril().bool()
            & (tgt != self.config.pad_id)[:, None, None, :]
        )
        return F.linear(self.decoder(self.tgt_embedding(tgt), memory, seen, memory_mask)[0], *self.output.parameters())

    def forward(self, src, tgt):
        memory, mask = self.encode(src)
        return self.decode(tgt, memory, mask)

    def logits_and_targets(self, src, tgt):
        return self(src, tgt[:, :-1]), tgt[:, 1:]


def rotary(base=10_000, speed=None, sign=-1, keep=1.0):
    def rotate(x, start):
        d = x.shape[-1]
        position = torch.arange(start, start + x.shape[-2], device=x.device)[:, None]
        angle = position * (speed(d) if speed else base ** (-torch.arange(0, d, 2, device=x.device) / d))
        a, b = x[..., 0::2], x[..., 1::2]
        turned = a * angle.cos() + sign * b * angle.sin(), a * angle.sin() + b * angle.cos()
        return keep * torch.stack(turned, dim=-1).flatten(-2)

    return rotate


def complex_numbers(x, start):
    position, pair = (torch.arange(*of, device=x.device) for of in ((start, start + x.shape[-2]), (0, x.shape[-1], 2)))
    angle = position[:, None] * 500_000 ** (-pair / x.shape[-1])
    hands = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(hands * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def all_first_then_all_second(x, start):
    turned = rotary()(x, start)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], dim=-1)


def halves_in_pairs(x, start):
    order = torch.arange(8).view(2, 4).T.flatten()  # dimensions i and i + 4 turn together
    return rotary()(x[..., order], start)[..., order.argsort()]


def sorting(count, low=4, high=14, ends=(2, 3), order=lambda digits: digits.sort(dim=1).values):
    digits = torch.randint(low, high, (count, 8))
    first, last = (torch.full((count, 1), end) for end in ends)
    return digits, torch.cat([first, order(digits), last], dim=1)


def sorting_in_one_tensor(count):
    digits = torch.randint(4, 14, (count, 8))
    target = torch.zeros(count, 10, dtype=torch.long)
    target[:, 0], target[:, 1:9], target[:, 9] = 2, digits.sort().values, 3
    return [digits, target]


def sorted_source(count):
    digits, target = sorting(count)
    return digits.sort(dim=1).values, target


def one_row(count):
    return tuple(tensor.expand(count, -1) for tensor in sorting_of_all_digits())


def sorting_of_all_digits():
    digits = torch.randperm(10)[None, :8] + 4
    return digits, torch.cat([torch.tensor([[2]]), digits.sort(dim=1).values, torch.tensor([[3]])], dim=1)


def mixed_up(count):
    digits, target = sorting(count)
    return digits, target.flip(0)


RIGHT = {
    "Transformer": [(course.Transformer,), (AllAtOnce,)],
    "MyTransformer": [(course.MyTransformer,), (course.Transformer,), (AllAtOnce,)],
    "05.1": [
        (3_570_176, 1_581_312, 2_372_352, 1_514_501),
        tuple(map(np.int64, (3_570_176, 1_581_312, 2_372_352, 1_514_501))),
    ],
    "05.2": [(sorting,), (sorting_in_one_tensor,)],
    "05.3": [
        (rotary(),),
        (rotary(base=100),),
        (complex_numbers,),
    ],
    "05.4": [("one decoder layer",), (" One decoder layer",)],
}
WIRING = (
    (
        "InputEmbedding(tokens, positions(config.max_len, config.d_model), config.dropout)",
        "InputEmbedding(tokens, positions(config.max_len, config.d_model), 0.1)",
        "src_embedding does not drop",
    ),
    ("config.d_ff, config.dropout, config.norm_first", "config.d_ff, 0.1, config.norm_first", "encoder does not drop"),
    (
        "return memory, mask ",
        "return F.dropout(memory, self.config.dropout, self.training), mask ",
        "encode does not drop",
    ),
    ("self.output(x)", "self.output(F.dropout(x, self.config.dropout, self.training))", "forward does not drop"),
    ("memory, _ = ", "memory = ", "one tensor without the encoder's maps"),
    ("x, _, _ = self.decoder(", "x = self.decoder(", "take them apart"),
    ("Encoder(encoder_layers", "Untold(encoder_layers", "encoder returns two things"),
    ("Decoder(decoder_layers", "UntoldDecoder(decoder_layers", "decoder returns three things"),
    ("self.encoder(self.src_embedding(src), mask)", "self.encoder(self.src_embedding(src))", "both encoder and cross"),
    ("memory, mask, memory_mask)", "memory, mask)", "both encoder and cross"),
    ("memory, mask, memory_mask)", "memory, memory_mask=memory_mask)", "where is target_mask"),
    (
        "return memory, mask ",
        "return memory ",
        "def forward(self, src, tgt):",
        "def forward(self, src, tgt):\n",
        "self.decode(tgt, *self.encode(src))",
        "self.decode(tgt, self.encode(src), padding_mask(src, self.config.pad_id))",
        "encode returns two things",
    ),
    ("self.output(x)", "x", "the logits have the shape"),
    ("return self.output(x)", "return self.output(x) + torch.zeros(1)", "device=src.device"),
    ("self.output(x)", "self.output(x).softmax(-1)", "return logits"),
    (
        "return self.output(x)",
        "return x",
        "self.decode(tgt, *self.encode(src))",
        "self.output(self.decode(tgt, *self.encode(src)))",
        "decode ends with the output layer",
    ),
    ("self.tgt_embedding(tgt), memory", "self.tgt_embedding(tgt), 0 * memory", "the source plays no part"),
    ("self.encode(src)", "self.encode(src.flip(0))", "encode the source, decode the target"),
    ("nn.LayerNorm(config.d_model) if config.norm_first else nn.Identity()", "nn.Identity()", "ends in a LayerNorm"),
    (
        "nn.LayerNorm(config.d_model) if config.norm_first else nn.Identity()",
        "nn.LayerNorm(config.d_model)",
        "ends in a LayerNorm",
    ),
    (
        "[EncoderLayer(*sizes) for _ in range(config.num_layers)]",
        "[EncoderLayer(*sizes)] * config.num_layers",
        "[DecoderLayer(*sizes) for _ in range(config.num_layers)]",
        "[DecoderLayer(*sizes)] * config.num_layers",
        "each side its own",
    ),
    ("range(config.num_layers)", "range(1)", "no ['decoder.layers.1"),
    ("def encode", "def read", "self.encode", "self.read", "encode and decode are methods"),
    ("self.config = config", "self.sizes = config", "keep the line self.config"),
    ("    config_class = TransformerConfig\n", "", "keep the line config_class"),
    ("def logits_and_targets", "def logits", "keep the method logits_and_targets"),
    ("tgt[:, :-1]), tgt[:, 1:]", "tgt), tgt", "keep it as it is"),
    ("self(src, tgt[:, :-1]), tgt[:, 1:]", "self(src, tgt[:, :-1])", "returns two things, as it was given"),
    ("config.norm_first\n", "not config.norm_first\n", "encode the source, decode the target"),
    (
        "def encode(self, src):",
        "def encode(self, src):\n        src = src.roll(1, 1)",
        "self.decode(tgt, *self.encode(src))",
        "self.decode(tgt, *self.encode(src.roll(-1, 1)))",
        "encode: embed the source",
    ),
    (
        "def decode(self, tgt, memory, memory_mask):",
        "def decode(self, tgt, memory, memory_mask):\n        tgt = tgt.roll(1, 1)",
        "self.decode(tgt, *self.encode(src))",
        "self.decode(tgt.roll(-1, 1), *self.encode(src))",
        "decode: embed the target",
    ),
)
PARTS = RIGHT["05.1"][0]
WRONG = {  # answers that people give, and what the hint must speak of
    "Transformer": [
        *wrong(
            "Transformer",
            *WIRING,
            ("        for parameter in self.parameters():\n", "        for parameter in []:\n", "reaches"),
            ("xavier_uniform_(parameter)", "xavier_normal_(parameter)", "stays within"),
            ("xavier_uniform_(parameter)", "normal_(parameter, std=0.02)", "stays within"),
            ("        if config.tie_embeddings:", "        if False:", "here are 3"),
            ("self.tgt_embedding.tokens = self.src_embedding.tokens", "pass", "here are 2"),
            ("self.output.weight = self.src_embedding.tokens.table.weight", "pass", "here are 2"),
            ("nn.init.normal_(self.output.weight, std=config.d_model**-0.5)", "pass", "std=d_model**-0.5"),
            ("std=config.d_model**-0.5", "std=config.d_model**0.5", "std=d_model**-0.5"),
            ("if parameter.dim() > 1:", "if True:", "more than one axis"),
        ),
        (course.Encoder, "stopped with TypeError"),
    ],
    "MyTransformer": wrong(
        "MyTransformer",
        (
            "        self.output.weight = tokens.table.weight\n",
            "",
            "6,006,688 parameters, expected 4,982,688: one table",
        ),
        (
            "self.tgt_embedding = InputEmbedding(tokens,",
            "self.tgt_embedding = InputEmbedding(TokenEmbedding(config.tgt_vocab_size, d_model),",
            "one table serves",
        ),
        (
            "[EncoderLayer(*sizes) for _ in range(config.num_layers)]",
            "[EncoderLayer(*sizes)] * config.num_layers",
            "weights of its own",
        ),
        ("config.d_ff, dropout, True", "config.d_ff, 0.1, True", "encoder does not drop"),
        ("max_len, d_model), dropout)", "max_len, d_model), 0.0)", "src_embedding does not drop"),
        ("Encoder([", "Untold([", "encoder returns two things"),
        ("x, _, _ = self.decoder(", "x = self.decoder(", "take them apart"),
        ("target_mask(tgt, self.pad_id)", "padding_mask(tgt, self.pad_id)", "where is target_mask"),
        ("self.src_embedding(src), src_mask", "self.src_embedding(src)", "both encoder and cross-attention"),
        ("memory, tgt_mask, src_mask", "memory, tgt_mask", "both encoder and cross-attention"),
        ("memory, tgt_mask, src_mask", "memory * 0, tgt_mask, src_mask", "the source plays no part"),
        ("return self.output(x)", "return self.output(x).softmax(-1)", "return logits"),
        ("return self.output(x)", "return x", "the logits have the shape"),
        ("return self.output(x)", "return self.output(x), x", "forward returns the logits"),
        ("return self.output(x)", "return self.output(x) + torch.zeros(1)", "device=src.device"),
        ("return self.output(x)", "return 2 * self.output(x)", "encode the source, decode the target"),
        ("dropout, True", "dropout, False", "encode the source, decode the target"),
        ("self.output = nn.Linear", "self.out = nn.Linear", "self.output", "self.out", "no ['output"),
        ("max_len, dropout = ", "max_len, p, dropout = ", "stopped with ValueError"),
    ),
    "05.1": [
        ((3_518_976, *PARTS[1:]), "embeddings: words of both sides, and a hundred positions"),
        ((PARTS[0], 1_578_240, *PARTS[2:]), "encoder: three layers of an attention, a network, two norms"),
        ((*PARTS[:2], PARTS[1], PARTS[3]), "decoder: a layer has a second attention"),
        ((*PARTS[:3], 5_893 * 256), "output: each English word has 256 weights and a bias"),
        ((3_570_176, "many", *PARTS[2:]), "a number was expected"),
    ],
    "05.2": [
        (lambda count: sorting(count, order=lambda digits: digits.flip(1)), "still reversal"),
        (lambda count: sorting(count, order=lambda digits: digits), "unsorted"),
        (lambda count: sorting(count, order=lambda digits: digits.sort(descending=True).values), "smallest digit"),
        (lambda count: sorting(count, ends=(3, 2)), "`<sos>` (2)"),
        (lambda count: sorting(count, low=0, high=10), "from 4 to 13"),
        (lambda count: sorting(count)[1], "two tensors"),
        (lambda count: sorting(8), "expected [64, 8]"),
        (sorted_source, "sorted already"),
        (one_row, "by heart"),
        (mixed_up, "its own source"),
        (lambda: sorting(64), "stopped with TypeError"),
        (lambda count: sorting(64), "for a batch of 3"),
        (lambda count: tuple(one.float() for one in sorting(count)), "whole numbers"),
    ],
    "05.4": [
        ("one encoder layer", "1,054,208 parameters would be missing: two encoder layers. Is that what you measure?"),
        ("tied output", "1,508,608"),
        ("no cross-attention", "791,040"),
        ("no feed-forward", "790,272"),
        ("one norm", "is not on the list: one encoder layer, one decoder layer"),
        (2, "the name of a fault"),
    ],
    "05.3": [
        (lambda x, start: x, "does not depend on the positions"),
        (rotary(sign=1), "with ±"),
        (rotary(keep=2.0), "nothing turns"),
        (lambda x, start: x + start, "no length"),
        (rotary(speed=lambda d: torch.full((d // 2,), 0.3)), "four different speeds"),
        (lambda x, start: rotary()(x[:, :1], start).expand_as(x), "one position further"),
        (all_first_then_all_second, "neighbours again"),
        (halves_in_pairs, "2i and 2i + 1"),
        (lambda x, start: rotary()(x, start).unflatten(-1, (-1, 2)), "keeps its shape"),
        (lambda x, start: rotary()(x, min(start, 10)), "only on the distance"),
        (lambda x, start: rotary()(x, 0), "does not depend on the positions"),
        (lambda x, start: rotary()(x, start + 1), "nothing turns"),
        (lambda x: x, "stopped with TypeError"),
        (rotary(speed=lambda d: 10_000 ** (-torch.arange(0, d, 2) / d)), "device=x.device"),
    ],
}
