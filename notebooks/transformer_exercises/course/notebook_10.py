"""The block of a GPT, as notebook 10 writes it: its decoder layer, without what needs a source."""

from torch import nn

from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.sublayers import PositionwiseFeedForward


class Block(nn.Module):
    def __init__(self, d_model, num_heads, d_ff, dropout):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        y = self.norm1(x)
        y, _ = self.self_attn(y, y, y, mask)
        x = x + self.dropout(y)
        return x + self.dropout(self.feed_forward(self.norm2(x)))
