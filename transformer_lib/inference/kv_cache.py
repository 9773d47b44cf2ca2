"""Decoding one token at a time without computing earlier positions again. Notebook 06, section 5.

A search asks the decoder for one more token at every step. Under the causal mask nothing that was computed for earlier
positions changes, so their keys and values can be kept, and those of the memory are computed only once. The model knows
nothing of it: ``CachedDecoder`` is a twin of its decoder, with the same weights and other attention modules.
"""

import torch
from torch import Tensor, nn

from transformer_lib.fast.attention import CPUAttention
from transformer_lib.fast.swap import with_modules
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.decoder import Decoder, DecoderLayer
from transformer_lib.model.embeddings import POSITIONS, InputEmbedding
from transformer_lib.model.sublayers import PositionwiseFeedForward
from transformer_lib.model.transformer import Transformer


class CachedSelfAttention(nn.Module):
    """Self-attention of the newest position; keys and values of all earlier ones are kept.

    Attributes:
        keys, values: ``[rows, heads, length, d_k]``, or None before the first step.
    """

    def __init__(self, attention: MultiHeadAttention):
        super().__init__()
        self.attention = attention
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Do what ``MultiHeadAttention.forward`` does for one new position, ``[rows, 1, d_model]``."""
        attention = self.attention
        q = attention.split_heads(attention.q_proj(query))  # [rows, heads, 1, d_k]
        k = attention.split_heads(attention.k_proj(key))
        v = attention.split_heads(attention.v_proj(value))
        self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=2)  # [rows, heads, length, d_k]
        self.values = v if self.values is None else torch.cat([self.values, v], dim=2)
        heads, weights = attention.attend(q, self.keys, self.values, mask, need_weights)
        return attention.out_proj(attention.join_heads(heads)), weights


class CachedCrossAttention(nn.Module):
    """Cross-attention whose keys and values, which depend on the memory only, are computed once.

    Several rows (the hypotheses of a beam) may share one sentence's memory: ``rows = sentences × beam``.

    Attributes:
        keys, values: of the memory, ``[sentences, heads, src_len, d_k]``.
    """

    def __init__(self, attention: MultiHeadAttention, memory: Tensor):
        super().__init__()
        self.attention = attention
        # contiguous, so that a head's vectors lie side by side: they are read at every step
        self.keys = attention.split_heads(attention.k_proj(memory)).contiguous()
        self.values = attention.split_heads(attention.v_proj(memory)).contiguous()

    def forward(
        self, query: Tensor, key: None, value: None, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Do what ``MultiHeadAttention.forward`` does, for queries ``[rows, 1, d_model]`` over the memory."""
        attention = self.attention
        beams = query.reshape(len(self.keys), -1, query.shape[-1])  # [sentences, beam, d_model]
        q = attention.split_heads(attention.q_proj(beams))  # [sentences, heads, beam, d_k]
        heads, weights = attention.attend(q, self.keys, self.values, mask, need_weights)
        return attention.out_proj(attention.join_heads(heads)).reshape(query.shape), weights


class CachedDecoder:
    """Predicts the next token of every row from its newest token, and remembers what it has seen.

    Args:
        model: in evaluation mode, one that ``can_cache`` is true of.
        memory: what ``model.encode`` returned, ``[sentences, src_len, d_model]``.
        memory_mask: its mask, ``[sentences, 1, 1, src_len]``.
    """

    def __init__(self, model: Transformer, memory: Tensor, memory_mask: Tensor):
        self.model = model
        self.memory_mask = memory_mask
        self.length = 0  # of the target so far
        self.layers = [
            with_modules(
                layer,
                self_attn=CachedSelfAttention(layer.self_attn),
                cross_attn=CachedCrossAttention(layer.cross_attn, memory),
            )
            for layer in model.decoder.layers
        ]
        self.decoder = with_modules(model.decoder, layers=self.layers)

    def step(self, newest: Tensor) -> Tensor:
        """Return logits of what follows the newest tokens, ``[rows, 1]``: ``[rows, 1, tgt_vocab_size]``."""
        if newest.shape[1] != 1:
            raise ValueError(f"newest has shape {list(newest.shape)}, expected [rows, 1]: one token at a time")
        self.length += 1
        embedding = self.model.tgt_embedding
        x = embedding.tokens(newest) + embedding.positions(self.length)[-1:]  # [rows, 1, d_model]
        x, _, _ = self.decoder(x, None, None, self.memory_mask)
        return self.model.output(x)

    def select(self, rows: Tensor, sentences: Tensor) -> None:
        """Go on with these rows of the target (one may come twice), and with these sentences' memory, in this order."""
        for layer in self.layers:
            cache = layer.self_attn
            # index_select copies whole rows, which is several times as fast as keys[rows]
            cache.keys, cache.values = cache.keys.index_select(0, rows), cache.values.index_select(0, rows)
        if len(sentences) < len(self.memory_mask):
            self.memory_mask = self.memory_mask.index_select(0, sentences)
            for layer in self.layers:
                cache = layer.cross_attn
                cache.keys, cache.values = (
                    cache.keys.index_select(0, sentences),
                    cache.values.index_select(0, sentences),
                )


def can_cache(model: nn.Module) -> bool:
    """Say whether caching is exact for a model: its decoder is built of this library's parts, none of them overridden.

    Only the feed-forward network may be a subclass: it works position by position, as its name says.
    """
    return (
        isinstance(model, Transformer)
        and type(model).decode is Transformer.decode
        and type(model.tgt_embedding) is InputEmbedding
        and type(model.tgt_embedding.positions) in POSITIONS.values()
        and type(model.decoder) is Decoder
        and all(
            type(layer) is DecoderLayer
            and type(layer.self_attn) in (MultiHeadAttention, CPUAttention)
            and type(layer.cross_attn) in (MultiHeadAttention, CPUAttention)
            and isinstance(layer.feed_forward, PositionwiseFeedForward)
            for layer in model.decoder.layers
        )
    )
