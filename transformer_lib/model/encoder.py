"""The encoder, the left half of figure 1: it turns source vectors into the memory (section 3.1)."""

from collections.abc import Iterable

from torch import Tensor, nn

from transformer_lib.fast.dropout import Dropout
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.sublayers import PositionwiseFeedForward


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each followed by Add & Norm (section 3.1). Notebook 04, sections 3 and 4.

    Args:
        d_model: size of the vectors.
        num_heads: attention heads.
        d_ff: inner size of the feed-forward network.
        dropout: probability of dropping an entry of a sub-layer's output (section 5.4).
        inner_dropout: the same for attention weights and inner activations; 0 in the paper's text.
        norm_first: pre-LN, normalise what enters a sub-layer; else the paper's post-LN, normalise the sum that leaves.
        activation: of the feed-forward network.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        inner_dropout: float = 0.1,
        norm_first: bool = False,
        activation: str = "relu",
    ):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads, inner_dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, inner_dropout, activation)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def forward(
        self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Let every position look at all positions, then transform each on its own.

        Args:
            x: ``[batch, src_len, d_model]``.
            mask: boolean, broadcastable to ``[batch, heads, src_len, src_len]``; True means "may attend".
            need_weights: also return the attention map.

        Returns:
            The new vectors, ``[batch, src_len, d_model]``, and the map, ``[batch, heads, src_len, src_len]``, or None.
        """
        if self.norm_first:
            y = self.norm1(x)
            y, weights = self.self_attn(y, y, y, mask, need_weights)
            x = x + self.dropout(y)
            x = x + self.dropout(self.feed_forward(self.norm2(x)))
        else:
            y, weights = self.self_attn(x, x, x, mask, need_weights)
            x = self.norm1(x + self.dropout(y))
            x = self.norm2(x + self.dropout(self.feed_forward(x)))
        return x, weights


class Encoder(nn.Module):
    """A stack of encoder layers.

    Args:
        layers: each an ``EncoderLayer``, or a layer of yours with the same ``forward``.
        norm: applied to what leaves the last layer. Pre-LN needs a LayerNorm here, post-LN has had one.
    """

    def __init__(self, layers: Iterable[nn.Module], norm: nn.Module | None = None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()

    def forward(
        self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the memory, ``[batch, src_len, d_model]``, and each layer's attention map (see ``EncoderLayer``)."""
        maps = []
        for layer in self.layers:
            x, weights = layer(x, mask, need_weights)
            maps.append(weights)
        return self.norm(x), maps
