"""Decoding one token at a time without computing earlier positions again. Notebook 06, section 5.

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
from transformer_lib.model.masks import causal_mask
from transformer_lib.model.sublayers import PositionwiseFeedForward
from transformer_lib.model.transformer import Transformer

# what computes a position from itself and the cache alone, if unchanged (as a feed-forward network of any kind does)
_EXACT = {InputEmbedding, TokenEmbedding, *POSITIONS.values(), Decoder, DecoderLayer, MultiHeadAttention, Dropout}
_EXACT |= {nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.Identity}


class CachedAttention(nn.Module):
    """Attention of the newest position, ``[rows, 1, d_model]``, over keys and values that are kept.

    Those of self-attention, ``[rows, heads, length, d_k]``, grow by one position a step. Those of cross-attention come
    from the memory, ``[sentences, heads, src_len, d_k]``, and the rows of a beam share their sentence's.
    An ``attend`` of your own gets all keys and the newest query, whose position is ``k.shape[2] - q.shape[2]``; without
    a cache, that is the first query's, 0. (Notebook 11, section 6.)
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
        self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


class CachedDecoder:
    """Predicts the next token of every row from its newest token, and remembers what it has seen.

    It is made of a model in evaluation mode that ``can_cache`` is true of, and of what the model's ``encode`` returned,
    ``[sentences, src_len, d_model]`` and ``[sentences, 1, 1, src_len]``.
    """

    def __init__(self, model: Transformer, memory: Tensor, memory_mask: Tensor):
        self.model = model
        self.memory_mask = memory_mask
        self.length = 0  # of the target so far
        self.layers = []
        for layer in model.decoder.layers:
            self_attn, cross_attn = CachedAttention(layer.self_attn), CachedAttention(layer.cross_attn)
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
        self.model, self.memory, self.memory_mask = model, memory, memory_mask
        self.tgt: Tensor | None = None  # so far, [rows, length]

    def step(self, newest: Tensor) -> Tensor:
        """Return logits of what follows the newest tokens, ``[rows, 1]``: ``[rows, 1, tgt_vocab_size]``."""
        self.tgt = newest if self.tgt is None else torch.cat([self.tgt, newest], dim=1)
        width = len(self.tgt) // len(self.memory)
        memories = (x.repeat_interleave(width, dim=0) for x in (self.memory, self.memory_mask))
        return self.model.decode(self.tgt, *memories)[:, -1:]

    def select(self, rows: Tensor, sentences: Tensor) -> None:
        """Keep these rows of the target (one may come twice) and these sentences of the memory, in this order."""
        self.tgt, self.memory, self.memory_mask = self.tgt[rows], self.memory[sentences], self.memory_mask[sentences]


def can_cache(model: nn.Module) -> bool:
    """Return whether caching is exact: nothing in a decoder was overridden, replaced or given a hook that forbids it.

    A subclass of ``PositionwiseFeedForward`` is trusted to keep to its name: each position by itself. One of
    ``MultiHeadAttention`` is tried out.
    """
    if getattr(model.decode, "__func__", None) is not Transformer.decode:
        return False
    modules = [module for part in (model.tgt_embedding, model.decoder, model.output) for module in part.modules()]
    changed = any(m._forward_hooks or m._forward_pre_hooks or {"forward", "attend"} & {*vars(m)} for m in modules)
    known = (type(m) in _EXACT or isinstance(m, PositionwiseFeedForward | MultiHeadAttention) for m in modules)
    own = [(name, m) for name, m in model.decoder.named_modules(remove_duplicate=False) if type(m) not in _EXACT]
    tried = (_is_exact(m, "self_attn" in name, model) for name, m in own if isinstance(m, MultiHeadAttention))
    return not changed and all(known) and all(tried)


@torch.no_grad()
def _is_exact(attention: MultiHeadAttention, over_itself: bool, model: Transformer) -> bool:
    """Try whether a random position gets the same alone, over what is kept, as among all that the model can have."""
    x = torch.randn(1, model.config.max_len, model.config.d_model, generator=torch.Generator().manual_seed(0))
    try:
        x = x.to(next(attention.parameters()))
        together, _ = attention(x, x, x, causal_mask(x.shape[1], x.device) if over_itself else None)
        for i in (x.shape[1] // 2, x.shape[1] - 1):
            cached, newest = CachedAttention(attention), x[:, i : i + 1]
            cached.append(x[:, :i] if over_itself else x)
            alone, _ = cached(newest, *[newest if over_itself else None] * 2, None, False)
            if not (alone[:, 0] - together[:, i]).norm() <= torch.finfo(x.dtype).eps ** 0.5 * together[:, i].norm():
                return False
    except Exception:  # it needs what a step has not: a mask, for example
        return False
    return True
