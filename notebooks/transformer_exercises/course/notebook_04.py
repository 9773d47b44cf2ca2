"""The remaining boxes and the whole Transformer, as notebook 04 writes them."""

import math

import torch
from torch import nn

from transformer_exercises.course.notebook_02 import MultiHeadAttention
from transformer_exercises.course.notebook_03 import padding_mask, target_mask


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, ids):  # [batch, seq_len] -> [batch, seq_len, d_model]
        return self.table(ids) * self.scale


class LearnedPositionalEncoding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(max_len, d_model))  # Transformer draws the starting values

    def forward(self, length):
        return self.table[:length]


class SinusoidalPositionalEncoding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        position = torch.arange(max_len).double()[:, None]  # [max_len, 1]
        frequency = 10_000 ** (-torch.arange(0, d_model, 2).double() / d_model)  # [d_model / 2]
        angle = position * frequency  # [max_len, d_model / 2]
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # sin, cos, sin, cos …
        self.register_buffer("table", table.float(), persistent=False)  # moves with the model, never trained or saved

    def forward(self, length):  # [length, d_model]
        return self.table[:length]


class InputEmbedding(nn.Module):
    def __init__(self, tokens, positions, dropout):
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):  # [batch, seq_len] -> [batch, seq_len, d_model]
        return self.dropout(self.tokens(ids) + self.positions(ids.shape[1]))


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        inner = self.linear1(x).relu()  # [batch, seq_len, d_ff]
        return self.linear2(self.dropout(inner))  # [batch, seq_len, d_model]


class EncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x, mask=None):  # [batch, src_len, d_model]
        if self.norm_first:
            y = self.norm1(x)
            y, weights = self.self_attn(y, y, y, mask)
            x = x + self.dropout(y)
            x = x + self.dropout(self.feed_forward(self.norm2(x)))
        else:
            y, weights = self.self_attn(x, x, x, mask)
            x = self.norm1(x + self.dropout(y))
            x = self.norm2(x + self.dropout(self.feed_forward(x)))
        return x, weights


class Encoder(nn.Module):
    def __init__(self, layers, norm):
        super().__init__()
        self.layers = nn.ModuleList(layers)  # parameters() would not see the layers in a plain list
        self.norm = norm

    def forward(self, x, mask=None):
        maps = []
        for layer in self.layers:
            x, weights = layer(x, mask)
            maps.append(weights)
        return self.norm(x), maps


class DecoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.cross_attn = MultiHeadAttention(d_model, num_heads, dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.norm3 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        if self.norm_first:
            y = self.norm1(x)
            y, self_weights = self.self_attn(y, y, y, tgt_mask)
            x = x + self.dropout(y)
            y, cross_weights = self.cross_attn(self.norm2(x), memory, memory, memory_mask)
            x = x + self.dropout(y)
            x = x + self.dropout(self.feed_forward(self.norm3(x)))
        else:
            y, self_weights = self.self_attn(x, x, x, tgt_mask)
            x = self.norm1(x + self.dropout(y))
            y, cross_weights = self.cross_attn(x, memory, memory, memory_mask)
            x = self.norm2(x + self.dropout(y))
            x = self.norm3(x + self.dropout(self.feed_forward(x)))
        return x, self_weights, cross_weights


class Decoder(nn.Module):
    def __init__(self, layers, norm):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, x, memory, tgt_mask=None, memory_mask=None):
        self_maps, cross_maps = [], []
        for layer in self.layers:
            x, self_weights, cross_weights = layer(x, memory, tgt_mask, memory_mask)
            self_maps.append(self_weights)
            cross_maps.append(cross_weights)
        return self.norm(x), self_maps, cross_maps


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.pad_id = config.pad_id
        tokens = TokenEmbedding(config.src_vocab_size, config.d_model)  # 1. what turns ids into vectors, on both sides
        tgt_tokens = tokens if config.tie_embeddings else TokenEmbedding(config.tgt_vocab_size, config.d_model)
        positions = {"sinusoidal": SinusoidalPositionalEncoding, "learned": LearnedPositionalEncoding}[config.positions]
        self.src_embedding = InputEmbedding(tokens, positions(config.max_len, config.d_model), config.dropout)
        self.tgt_embedding = InputEmbedding(tgt_tokens, positions(config.max_len, config.d_model), config.dropout)
        sizes = config.d_model, config.num_heads, config.d_ff, config.dropout, config.norm_first  # 2. the stacks
        norms = [nn.LayerNorm(config.d_model) if config.norm_first else nn.Identity() for _ in range(2)]
        self.encoder = Encoder([EncoderLayer(*sizes) for _ in range(config.num_layers)], norms[0])
        self.decoder = Decoder([DecoderLayer(*sizes) for _ in range(config.num_layers)], norms[1])
        self.output = nn.Linear(config.d_model, config.tgt_vocab_size)  # 3. back from vectors to words
        for p in self.parameters():  # 4. starting values, for all matrices
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        if config.tie_embeddings:  # 5. one table for both sides and the output
            nn.init.normal_(tgt_tokens.table.weight, std=config.d_model**-0.5)
            self.output.weight = tgt_tokens.table.weight

    def encode(self, src):
        mask = padding_mask(src, self.pad_id)
        return self.encoder(self.src_embedding(src), mask)[0], mask

    def decode(self, tgt, memory, memory_mask):
        x, _, _ = self.decoder(self.tgt_embedding(tgt), memory, target_mask(tgt, self.pad_id), memory_mask)
        return self.output(x)

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))


class MyTransformer(Transformer):
    """The blank page at the end of the notebook: the same, from memory."""
