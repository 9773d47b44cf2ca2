"""The encoder, the left half of figure 1: it turns source vectors into the memory (section 3.1)."""

from torch import Tensor, nn

from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.sublayers import AddNorm, PositionwiseFeedForward


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside Add & Norm (section 3.1).

    Args:
        d_model: size of the vectors.
        num_heads: attention heads.
        d_ff: inner size of the feed-forward network.
        dropout: dropped from each sub-layer's output (section 5.4).
        inner_dropout: dropped from attention weights and inner activations; 0 in the paper's text.
        norm_first: pre-LN instead of post-LN.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        inner_dropout: float = 0.1,
        norm_first: bool = False,
    ):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads, inner_dropout)
        self.self_attention_add_norm = AddNorm(d_model, dropout, norm_first)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, inner_dropout)
        self.feed_forward_add_norm = AddNorm(d_model, dropout, norm_first)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Let every position look at all others, then think for itself.

        Args:
            x: ``[batch, src_len, d_model]``.
            mask: boolean, broadcastable to ``[batch, heads, src_len, src_len]``; True means "may attend".
            need_weights: also return the attention map.

        Returns:
            The new vectors, ``[batch, src_len, d_model]``, and the map, ``[batch, heads, src_len, src_len]``, or None.
        """
        y = self.self_attention_add_norm.enter(x)
        y, weights = self.self_attention(y, y, y, mask, need_weights)
        x = self.self_attention_add_norm.leave(x, y)

        y = self.feed_forward_add_norm.enter(x)
        y = self.feed_forward(y)
        x = self.feed_forward_add_norm.leave(x, y)
        return x, weights


class Encoder(nn.Module):
    """A stack of encoder layers.

    Args:
        num_layers: how many.
        norm_first: pre-LN; the sum that leaves the last layer is then normalised once more.
        (the others): as in ``EncoderLayer``.
    """

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        inner_dropout: float = 0.1,
        norm_first: bool = False,
    ):
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, d_ff, dropout, inner_dropout, norm_first) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()

    def forward(
        self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the memory, ``[batch, src_len, d_model]``, and each layer's attention map (see ``EncoderLayer``)."""
        maps = []
        for layer in self.layers:
            x, weights = layer(x, mask, need_weights)
            maps.append(weights)
        return self.norm(x), maps
