"""What stands in for the attention of notebook 02: the library's, and two steps on the way to it."""

import torch
from torch import nn

from transformer_lib.model import attention as library


def attention(query, key, value):
    return library.scaled_dot_product_attention(query, key, value)


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


class MultiHeadAttention(library.MultiHeadAttention):
    """The library's, which computes its map only if it is asked for; notebooks want it always."""

    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, mask, need_weights=True)


class MyMultiHeadAttention(library.MultiHeadAttention):
    def forward(self, query, key, value):
        return super().forward(query, key, value)[0]
