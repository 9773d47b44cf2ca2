"""The decoder, the right half of figure 1: it writes the target while it reads the memory (section 3.1)."""

from collections.abc import Iterable

from torch import Tensor, nn

from transformer_lib.fast.dropout import Dropout
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.sublayers import PositionwiseFeedForward


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention over the memory, feed-forward, each followed by Add & Norm (section 3.1).

    Notebook 04, section 4. Arguments as in ``EncoderLayer``.
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
        self.cross_attn = MultiHeadAttention(d_model, num_heads, inner_dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, inner_dropout, activation)
        self.norm3 = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Let every target position look at itself and earlier ones, then at the source; transform each on its own.

        Args:
            x: ``[batch, tgt_len, d_model]``.
            memory: the encoder's output, ``[batch, src_len, d_model]``.
            tgt_mask: broadcastable to ``[batch, heads, tgt_len, tgt_len]``; True means "may attend".
            memory_mask: broadcastable to ``[batch, heads, tgt_len, src_len]``; True means "may attend".
            need_weights: also return the attention maps.

        Returns:
            The new vectors, ``[batch, tgt_len, d_model]``, and the maps, or None and None: of self-attention,
            ``[batch, heads, tgt_len, tgt_len]``, and of cross-attention, ``[batch, heads, tgt_len, src_len]``.
        """
        if self.norm_first:
            y = self.norm1(x)
            y, self_weights = self.self_attn(y, y, y, tgt_mask, need_weights)
            x = x + self.dropout(y)
            y, cross_weights = self.cross_attn(self.norm2(x), memory, memory, memory_mask, need_weights)
            x = x + self.dropout(y)
            x = x + self.dropout(self.feed_forward(self.norm3(x)))
        else:
            y, self_weights = self.self_attn(x, x, x, tgt_mask, need_weights)
            x = self.norm1(x + self.dropout(y))
            y, cross_weights = self.cross_attn(x, memory, memory, memory_mask, need_weights)
            x = self.norm2(x + self.dropout(y))
            x = self.norm3(x + self.dropout(self.feed_forward(x)))
        return x, self_weights, cross_weights


class Decoder(nn.Module):
    """A stack of decoder layers.

    Args:
        layers, norm: as in ``Encoder``.
    """

    def __init__(self, layers: Iterable[nn.Module], norm: nn.Module | None = None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, list[Tensor | None], list[Tensor | None]]:
        """Return the vectors that predict the next tokens, ``[batch, tgt_len, d_model]``, and each layer's two maps.

        Arguments as in ``DecoderLayer.forward``.
        """
        self_maps, cross_maps = [], []
        for layer in self.layers:
            x, self_weights, cross_weights = layer(x, memory, tgt_mask, memory_mask, need_weights)
            self_maps.append(self_weights)
            cross_maps.append(cross_weights)
        return self.norm(x), self_maps, cross_maps
