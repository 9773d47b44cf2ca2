"""The remaining boxes and the whole Transformer, as notebook 04 writes them."""

import math

import torch
from torch import nn

from transformer_exercises.course.notebook_02 import MultiHeadAttention
from transformer_exercises.course.notebook_03 import padding_mask, target_mask


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)  # a row for each type
        self.scale = math.sqrt(d_model)

    def forward(self, ids):  # [batch, seq_len] -> [batch, seq_len, d_model]
        return self.table(ids) * self.scale  # each id's row


class SinusoidalPositionalEncoding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        position = torch.arange(max_len).double()[:, None]  # [max_len, 1]
        frequency = 10_000 ** (-torch.arange(0, d_model, 2).double() / d_model)  # [d_model / 2]: one for each hand
        angle = position * frequency  # [max_len, d_model / 2]: where each hand points at each position
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # sin, cos, sin, cos …
        self.register_buffer("table", table.float(), persistent=False)  # moves with the model, never trained or saved

    def forward(self, length):  # -> [length, d_model]
        return self.table[:length]


class LearnedPositionalEncoding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(max_len, d_model))  # the whole model draws its initial values

    def forward(self, length):
        return self.table[:length]


class InputEmbedding(nn.Module):
    def __init__(self, tokens, positions, dropout):
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):  # [batch, seq_len] -> [batch, seq_len, d_model]
        vectors = self.tokens(ids) + self.positions(ids.shape[1])  # the same positions for every sentence
        return self.dropout(vectors)


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)  # W₁ and b₁
        self.linear2 = nn.Linear(d_ff, d_model)  # W₂ and b₂
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        inner = self.linear1(x).relu()  # [batch, seq_len, d_ff]: max(0, …)
        return self.linear2(self.dropout(inner))  # [batch, seq_len, d_model]


class PostLNEncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)  # a norm for each sub-layer, with a gain and a bias of its own
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)  # one is enough for both: it has no weights

    def forward(self, x, mask=None):  # [batch, src_len, d_model]
        y, weights = self.self_attn(x, x, x, mask)  # queries, keys and values from the same vectors
        x = self.norm1(x + self.dropout(y))  # y is only a correction of x
        x = self.norm2(x + self.dropout(self.feed_forward(x)))
        return x, weights


class EncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout=0.1, norm_first=False):  # new: norm_first
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first  # new

    def forward(self, x, mask=None):  # [batch, src_len, d_model]
        if self.norm_first:
            y = self.norm1(x)  # new: the norm is on the branch …
            y, weights = self.self_attn(y, y, y, mask)  # new
            x = x + self.dropout(y)  # new: … and x itself goes on as it came
            x = x + self.dropout(self.feed_forward(self.norm2(x)))  # new
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
            y = self.norm2(x)  # queries only: the encoder's last norm has normalised the memory
            y, cross_weights = self.cross_attn(y, memory, memory, memory_mask)
            x = x + self.dropout(y)
            x = x + self.dropout(self.feed_forward(self.norm3(x)))
        else:
            y, self_weights = self.self_attn(x, x, x, tgt_mask)
            x = self.norm1(x + self.dropout(y))
            y, cross_weights = self.cross_attn(x, memory, memory, memory_mask)  # the target asks, the source answers
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
            x, self_weights, cross_weights = layer(x, memory, tgt_mask, memory_mask)  # x moves on, the memory stays
            self_maps.append(self_weights)
            cross_maps.append(cross_weights)
        return self.norm(x), self_maps, cross_maps


class Wiring(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.pad_id = config.pad_id
        positions = SinusoidalPositionalEncoding if config.positions == "sinusoidal" else LearnedPositionalEncoding

        def embedding(vocab_size):  # two of them: each side has words and positions of its own
            tokens = TokenEmbedding(vocab_size, config.d_model)
            return InputEmbedding(tokens, positions(config.max_len, config.d_model), config.dropout)

        def stack(whole, layer):  # num_layers layers, each with weights of its own
            sizes = config.d_model, config.num_heads, config.d_ff, config.dropout, config.norm_first
            last_norm = nn.LayerNorm(config.d_model) if config.norm_first else nn.Identity()
            return whole([layer(*sizes) for _ in range(config.num_layers)], last_norm)

        self.src_embedding = embedding(config.src_vocab_size)
        self.tgt_embedding = embedding(config.tgt_vocab_size)
        self.encoder = stack(Encoder, EncoderLayer)
        self.decoder = stack(Decoder, DecoderLayer)
        self.output = nn.Linear(config.d_model, config.tgt_vocab_size)  # back from vectors to words

    def encode(self, src):  # [batch, src_len] -> the memory, [batch, src_len, d_model], and its mask
        mask = padding_mask(src, self.pad_id)
        memory, _ = self.encoder(self.src_embedding(src), mask)
        return memory, mask  # cross-attention reads the same padding, so it needs the same mask

    def decode(self, tgt, memory, memory_mask):  # -> logits, [batch, tgt_len, tgt_vocab_size]
        mask = target_mask(tgt, self.pad_id)
        x, _, _ = self.decoder(self.tgt_embedding(tgt), memory, mask, memory_mask)
        return self.output(x)

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))


class Transformer(Wiring):
    def __init__(self, config):
        super().__init__(config)
        for parameter in self.parameters():  # new
            if parameter.dim() > 1:  # new: biases, and gains and biases of norms, stay as they are
                nn.init.xavier_uniform_(parameter)  # new
        if config.tie_embeddings:
            self.tgt_embedding.tokens = self.src_embedding.tokens  # new: one table for both sides …
            self.output.weight = self.src_embedding.tokens.table.weight  # new: … and for the output
            nn.init.normal_(self.output.weight, std=config.d_model**-0.5)  # new: after Xavier, or it would be lost


class MyTransformer(nn.Module):
    def __init__(self, config):  # pre-LN, sinusoids and one table, as the shipped model has them
        super().__init__()
        d_model, max_len, dropout = config.d_model, config.max_len, config.dropout
        tokens = TokenEmbedding(config.tgt_vocab_size, d_model)
        self.src_embedding = InputEmbedding(tokens, SinusoidalPositionalEncoding(max_len, d_model), dropout)
        self.tgt_embedding = InputEmbedding(tokens, SinusoidalPositionalEncoding(max_len, d_model), dropout)
        sizes = d_model, config.num_heads, config.d_ff, dropout, True
        self.encoder = Encoder([EncoderLayer(*sizes) for _ in range(config.num_layers)], nn.LayerNorm(d_model))
        self.decoder = Decoder([DecoderLayer(*sizes) for _ in range(config.num_layers)], nn.LayerNorm(d_model))
        self.output = nn.Linear(d_model, config.tgt_vocab_size)
        self.output.weight = tokens.table.weight
        self.pad_id = config.pad_id

    def forward(self, src, tgt):
        src_mask, tgt_mask = padding_mask(src, self.pad_id), target_mask(tgt, self.pad_id)
        memory, _ = self.encoder(self.src_embedding(src), src_mask)
        x, _, _ = self.decoder(self.tgt_embedding(tgt), memory, tgt_mask, src_mask)
        return self.output(x)
