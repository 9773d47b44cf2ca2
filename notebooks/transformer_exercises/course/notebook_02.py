"""Attention, as notebook 02 writes it."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def scaled_dot_product_attention(query, key, value, mask=None, dropout=0.0):
    scores = query @ key.transpose(-2, -1)  # each query's dot product with each key: [..., query_len, key_len]
    scores = scores / math.sqrt(query.shape[-1])  # √d_k keeps them of size 1, where softmax still has a slope
    if mask is not None:  # True means "may attend"
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # e to the power of this is 0
    weights = scores.softmax(dim=-1)  # over the keys: each query's weights sum to 1
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # only changes a row that may attend to nothing
    weights = F.dropout(weights, dropout)  # always drops: the caller passes 0.0 outside training
    return weights @ value, weights  # a weighted average of the values for each query: [..., query_len, d_v]


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
