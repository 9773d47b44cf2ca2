"""Attention, as notebook 02 writes it."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def attention(query, key, value):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # each query meets each key; √d_k: section 4
    weights = scores.softmax(dim=-1)  # along a row, over the keys: each query's weights sum to 1
    return weights @ value, weights  # for each query, an average of all values in these shares


class Head(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.W_Q = nn.Linear(d_model, d_k)  # from a word's vector to its query: what it looks for
        self.W_K = nn.Linear(d_model, d_k)  # to its key: what it offers
        self.W_V = nn.Linear(d_model, d_k)  # to its value: what it hands over

    def forward(self, query, key, value):
        output, _ = attention(self.W_Q(query), self.W_K(key), self.W_V(value))
        return output  # [batch, query_len, d_k]


class HeadsInAList(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        d_k = d_model // num_heads  # the heads share the width
        self.heads = nn.ModuleList([Head(d_model, d_k) for _ in range(num_heads)])  # parameters() skips a plain list
        self.W_O = nn.Linear(d_model, d_model)

    def forward(self, query, key, value):
        outputs = [head(query, key, value) for head in self.heads]  # each [batch, query_len, d_k]
        return self.W_O(torch.cat(outputs, dim=-1))  # end to end, they are as long as d_model again


def scaled_dot_product_attention(query, key, value, mask=None, dropout=0.0):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # [..., query_len, key_len]
    if mask is not None:  # new
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # new: e to the power of this is 0
    weights = scores.softmax(dim=-1)
    if mask is not None:  # new
        weights = weights.masked_fill(~mask, 0.0)  # new: only changes a row that may attend to nothing
    weights = F.dropout(weights, dropout)  # new: always drops; the caller passes 0.0 outside training
    return weights @ value, weights


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model)  # the W_Q of all heads, side by side
        self.k_proj = nn.Linear(d_model, d_model)  # W_K
        self.v_proj = nn.Linear(d_model, d_model)  # W_V
        self.out_proj = nn.Linear(d_model, d_model)  # W_O, which mixes what the heads have found
        self.dropout = dropout

    def split_heads(self, x):  # [batch, seq_len, d_model] -> [batch, heads, seq_len, d_k]
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # cut the vectors, then put heads before positions

    def forward(self, query, key, value, mask=None):
        q = self.split_heads(self.q_proj(query))  # [batch, heads, query_len, d_k]
        k = self.split_heads(self.k_proj(key))  # [batch, heads, key_len, d_k]
        v = self.split_heads(self.v_proj(value))
        dropout = self.dropout if self.training else 0.0
        heads, weights = scaled_dot_product_attention(q, k, v, mask, dropout)  # all heads in one product
        joined = heads.transpose(1, 2).flatten(2)  # the way back: [batch, query_len, d_model]
        return self.out_proj(joined), weights


class MyMultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)  # [batch, seq_len, d_model]
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))  # heads before words
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [batch, heads, query_len, key_len]
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        heads = scores.softmax(dim=-1) @ v  # [batch, heads, query_len, d_k]
        return self.out_proj(heads.transpose(1, 2).flatten(2))  # [batch, query_len, d_model]
