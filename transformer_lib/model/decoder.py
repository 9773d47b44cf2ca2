"""The decoder, the right half of figure 1: it writes the target while it reads the memory (section 3.1)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.sublayers import AddNorm, PositionwiseFeedForward


class LayerCache:
    """Keys and values that one decoder layer need not compute again while a translation grows.

    Self-attention's grow by one position a step. Cross-attention's depend on the source only and are computed once.
    In beam search, several rows (hypotheses) share one sentence's memory: there are ``rows = sentences × beam``.

    Attributes:
        keys, values: of the target so far, ``[rows, heads, length, d_k]``, or None before the first step.
        memory_keys, memory_values: of the memory, ``[sentences, heads, src_len, d_k]``.
    """

    def __init__(self, memory_keys: Tensor, memory_values: Tensor):
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.memory_keys, self.memory_values = memory_keys, memory_values

    @property
    def length(self) -> int:
        """Number of target positions that are in the cache."""
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions' keys and values, ``[rows, heads, new, d_k]``, and return those of all positions."""
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], dim=2)  # [rows, heads, length, d_k]
        self.values = values if self.values is None else torch.cat([self.values, values], dim=2)
        return self.keys, self.values

    def select_rows(self, rows: Tensor) -> None:
        """Keep these rows, in this order (a row may come twice); sentences stay as they are."""
        # index_select copies whole rows, which is several times as fast as self.keys[rows]
        self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep these sentences' memory, in this order; the rows are not touched."""
        self.memory_keys = self.memory_keys.index_select(0, sentences)
        self.memory_values = self.memory_values.index_select(0, sentences)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention over the memory, feed-forward, each inside Add & Norm (section 3.1).

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
        self.cross_attention = MultiHeadAttention(d_model, num_heads, inner_dropout)
        self.cross_attention_add_norm = AddNorm(d_model, dropout, norm_first)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, inner_dropout)
        self.feed_forward_add_norm = AddNorm(d_model, dropout, norm_first)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        need_weights: bool = False,
        cache: LayerCache | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Let every target position look at those before it, then at the source, then think for itself.

        Args:
            x: ``[batch, tgt_len, d_model]``; with a cache, the new position only, ``[rows, 1, d_model]``.
            memory: the encoder's output, ``[batch, src_len, d_model]``; not used with a cache, which holds its keys.
            tgt_mask: broadcastable to ``[batch, heads, tgt_len, tgt_len]``; True means "may attend". None with a
                cache, since everything that it holds comes before the new position.
            memory_mask: broadcastable to ``[batch, heads, tgt_len, src_len]``; True means "may attend".
            need_weights: also return the attention maps.
            cache: see ``LayerCache``; it is updated in place.

        Returns:
            The new vectors, in the shape of ``x``, and the maps, or None and None: of self-attention,
            ``[batch, heads, tgt_len, tgt_len]``, and of cross-attention, ``[batch, heads, tgt_len, src_len]``.
        """
        y = self.self_attention_add_norm.enter(x)
        keys, values = self.self_attention.project_keys_values(y, y)
        if cache is not None:
            keys, values = cache.append(keys, values)
        y, self_weights = self.self_attention.attend(y, keys, values, tgt_mask, need_weights)
        x = self.self_attention_add_norm.leave(x, y)

        y = self.cross_attention_add_norm.enter(x)
        if cache is None:
            keys, values = self.cross_attention.project_keys_values(memory, memory)
        else:
            keys, values = cache.memory_keys, cache.memory_values
            y = y.reshape(keys.shape[0], -1, y.shape[-1])  # [sentences, beam, d_model]: hypotheses side by side
        y, cross_weights = self.cross_attention.attend(y, keys, values, memory_mask, need_weights)
        x = self.cross_attention_add_norm.leave(x, y.reshape(x.shape))

        y = self.feed_forward_add_norm.enter(x)
        y = self.feed_forward(y)
        x = self.feed_forward_add_norm.leave(x, y)
        return x, self_weights, cross_weights


class Decoder(nn.Module):
    """A stack of decoder layers.

    Args:
        num_layers: how many.
        norm_first: pre-LN; the sum that leaves the last layer is then normalised once more.
        (the others): as in ``DecoderLayer``.
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
            DecoderLayer(d_model, num_heads, d_ff, dropout, inner_dropout, norm_first) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        need_weights: bool = False,
        cache: list[LayerCache] | None = None,
    ) -> tuple[Tensor, list[Tensor | None], list[Tensor | None]]:
        """Return the vectors that predict the next tokens, ``[batch, tgt_len, d_model]``, and each layer's two maps.

        The arguments are those of ``DecoderLayer.forward``; ``cache`` is what ``start_cache`` gave.
        """
        self_maps, cross_maps = [], []
        for layer, layer_cache in zip(self.layers, cache or [None] * len(self.layers), strict=True):
            x, self_weights, cross_weights = layer(x, memory, tgt_mask, memory_mask, need_weights, layer_cache)
            self_maps.append(self_weights)
            cross_maps.append(cross_weights)
        return self.norm(x), self_maps, cross_maps

    def start_cache(self, *memories: Tensor) -> list[LayerCache]:
        """Compute what depends on the memory only: one ``LayerCache`` a layer, for all sentences.

        Args:
            memories: ``[sentences, src_len, d_model]`` each. Their lengths may differ, so that little is computed for
                padding.
        """
        caches = []
        for layer in self.layers:
            projected = [layer.cross_attention.project_keys_values(memory, memory) for memory in memories]
            # copied, so that a head's vectors lie side by side: they are read at every step
            caches.append(LayerCache(*map(concatenate_padded, zip(*projected, strict=True))))
        return caches


def concatenate_padded(parts: Sequence[Tensor]) -> Tensor:
    """Put batches below each other, the shorter ones filled up with zeros.

    Args:
        parts: ``[sentences, ..., seq_len, d]`` each; they may differ in number of sentences and in length.

    Returns:
        ``[all sentences, ..., longest seq_len, d]``.
    """
    longest = max(part.shape[-2] for part in parts)
    return torch.cat([F.pad(part, (0, 0, 0, longest - part.shape[-2])) for part in parts])
