"""Decoding one token at a time without computing earlier positions again. Notebook 07, section 6.

Under the causal mask, nothing that was computed for earlier positions changes, so their keys and values can be kept.
The model knows nothing of it: ``CachedDecoder`` takes its decoder's layers and exchanges the attention modules.
"""

import copy

import torch
from torch import Tensor, nn

from transformer_lib.fast.dropout import Dropout
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.decoder import Decoder, DecoderLayer
from transformer_lib.model.embeddings import POSITIONS, InputEmbedding, TokenEmbedding
from transformer_lib.model.sublayers import PositionwiseFeedForward
from transformer_lib.model.transformer import Transformer

# what computes a position from itself and the cache alone; other classes say so themselves (see ``can_cache``)
_EXACT = {Decoder, DecoderLayer, MultiHeadAttention, PositionwiseFeedForward, Dropout}
_EXACT |= {InputEmbedding, TokenEmbedding, *POSITIONS.values()}
_EXACT |= {nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.Identity}


class CachedAttention(nn.Module):
    """Attention of the newest position, ``[rows, 1, d_model]``, over keys and values that are kept.

    Those of self-attention, ``[rows, heads, length, d_k]``, grow by one position a step. Those of cross-attention come
    from the memory, ``[sentences, heads, src_len, d_k]``, and the rows of a beam share their sentence's.

    An attention of your own may say ``caches = True`` if it computes the same from what it then gets. In
    self-attention, ``attend`` gets all keys and the newest query, at position ``k.shape[2] - q.shape[2]``; without
    a cache, that is the first query's, 0. In cross-attention, its queries are those of a sentence's beam, side by
    side: none may know a position, or another query. The mask may be None. (Notebook 11, section 5.)
    """

    def __init__(self, attention: MultiHeadAttention):
        super().__init__()
        self.attention = attention
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, x: Tensor) -> None:
        """Keep the keys and values of further positions, ``[rows or sentences, length, d_model]``."""
        # contiguous, so that a head's vectors lie side by side: they are read at every step
        k = self.attention.split_heads(self.attention.k_proj(x)).contiguous()
        v = self.attention.split_heads(self.attention.v_proj(x)).contiguous()
        self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=2)
        self.values = v if self.values is None else torch.cat([self.values, v], dim=2)

    def forward(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Do what ``MultiHeadAttention.forward`` does; without a ``key``, over what is kept already."""
        if key is not None:
            self.append(key)
        beams = query.reshape(len(self.keys), -1, query.shape[-1])  # [rows or sentences, 1 or beam, d_model]
        q = self.attention.split_heads(self.attention.q_proj(beams))  # [rows or sentences, heads, 1 or beam, d_k]
        heads, weights = self.attention.attend(q, self.keys, self.values, mask, need_weights)
        return self.attention.out_proj(self.attention.join_heads(heads)).reshape(query.shape), weights

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        # index_select copies whole rows, which is several times as fast as keys[rows]
        self.keys = self.keys.index_select(0, rows)
        self.values = self.values.index_select(0, rows)


class CachedDecoder:
    """Predicts the next token of every row from its newest token, and remembers what it has seen.

    It is made of a model in evaluation mode that ``can_cache``, and of what the model's ``encode`` returned,
    ``[sentences, src_len, d_model]`` and ``[sentences, 1, 1, src_len]``.
    """

    def __init__(self, model: Transformer, memory: Tensor, memory_mask: Tensor):
        self.model = model
        self.memory_mask = memory_mask
        self.length = 0  # of the target so far
        self.layers = []
        for layer in model.decoder.layers:
            self_attn = CachedAttention(layer.self_attn)
            cross_attn = CachedAttention(layer.cross_attn)
            cross_attn.append(memory)
            cached = copy.copy(layer)  # shares all weights
            cached._modules = {**layer._modules, "self_attn": self_attn, "cross_attn": cross_attn}
            self.layers.append(cached)

    def step(self, newest: Tensor) -> Tensor:
        """Return logits of what follows the newest tokens, ``[rows, 1]``: ``[rows, 1, tgt_vocab_size]``."""
        if newest.shape[1] != 1:
            raise ValueError(f"newest has shape {list(newest.shape)}, expected [rows, 1]: one token at a time")
        self.length += 1
        embedding = self.model.tgt_embedding
        x = embedding.tokens(newest)  # [rows, 1, d_model]
        x = embedding.dropout((x + embedding.positions(self.length)[-1:]).to(x.dtype))
        for layer in self.layers:
            x, _, _ = layer(x, None, None, self.memory_mask)
        return self.model.output(self.model.decoder.norm(x))

    def select(self, rows: Tensor, sentences: Tensor) -> None:
        """Keep these rows of the target (one may come twice) and these sentences of the memory, in this order."""
        if len(sentences) < len(self.memory_mask):
            self.memory_mask = self.memory_mask.index_select(0, sentences)
            for layer in self.layers:
                layer.cross_attn.select(sentences)
        for layer in self.layers:
            layer.self_attn.select(rows)


class RecomputingDecoder:
    """Does what ``CachedDecoder`` does, for any model: remembers the tokens alone, and computes all positions again."""

    def __init__(self, model: nn.Module, memory: Tensor, memory_mask: Tensor):
        self.model = model
        self.memory = memory
        self.memory_mask = memory_mask
        self.tgt: Tensor | None = None  # so far, [rows, length]

    def step(self, newest: Tensor) -> Tensor:
        """Return logits of what follows the newest tokens, ``[rows, 1]``: ``[rows, 1, tgt_vocab_size]``."""
        self.tgt = newest if self.tgt is None else torch.cat([self.tgt, newest], dim=1)
        width = len(self.tgt) // len(self.memory)
        memory = self.memory.repeat_interleave(width, dim=0)
        memory_mask = self.memory_mask.repeat_interleave(width, dim=0)
        return self.model.decode(self.tgt, memory, memory_mask)[:, -1:]

    def select(self, rows: Tensor, sentences: Tensor) -> None:
        """Keep these rows of the target (one may come twice) and these sentences of the memory, in this order."""
        self.tgt = self.tgt[rows]
        self.memory = self.memory[sentences]
        self.memory_mask = self.memory_mask[sentences]


def make_decoder(
    model: nn.Module, memory: Tensor, memory_mask: Tensor, use_cache: bool = True
) -> CachedDecoder | RecomputingDecoder:
    """Return a decoder with a cache where ``can_cache``, or one without, which takes longer and computes the same.

    If a search with parts of yours is slow, ask ``can_cache``: it may be that their classes do not say ``caches``.
    """
    kind = CachedDecoder if use_cache and can_cache(model) else RecomputingDecoder
    return kind(model, memory, memory_mask)


def can_cache(model: nn.Module) -> bool:
    """Return whether a cache is exact for a model: each part of its decoder says so, and none was changed from outside.

    The library's own parts do. A part of yours says so by ``caches = True`` in its class, which a subclass does not
    inherit: it computes a position from that position alone; or it is an attention that keeps to ``CachedAttention``.
    A model with a ``decode`` of its own, or whose decoder has hooks or methods that were replaced, is not cached.
    """
    if getattr(model.decode, "__func__", None) is not Transformer.decode:
        return False
    modules = [module for part in (model.tgt_embedding, model.decoder, model.output) for module in part.modules()]
    for module in modules:
        kind = type(module)
        if kind not in _EXACT and vars(kind).get("caches") is not True:
            return False
        if module._forward_hooks or module._forward_pre_hooks or {"forward", "attend"} & vars(module).keys():
            return False
    return True
