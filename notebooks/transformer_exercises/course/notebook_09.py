"""The paper's model in one class, as notebook 09 writes it."""

import torch
from torch import nn


class PaperTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, d_model = config, config.d_model
        self.table = nn.Embedding(config.src_vocab_size, d_model)  # 3.4: for source, target and output
        angle = torch.arange(config.max_len)[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)  # 3.5
        positions = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # [max_len, d_model]
        self.register_buffer("positions", positions, persistent=False)
        self.dropout = nn.Dropout(config.dropout)  # 5.4

        def layer(*attentions):  # 3.1: each sub-layer has a norm of its own
            projections = "q_proj", "k_proj", "v_proj", "out_proj"
            parts = {name: nn.ModuleDict({p: nn.Linear(d_model, d_model) for p in projections}) for name in attentions}
            parts |= {"linear1": nn.Linear(d_model, config.d_ff), "linear2": nn.Linear(config.d_ff, d_model)}
            return nn.ModuleDict(parts | {f"norm{n}": nn.LayerNorm(d_model) for n in range(1, len(attentions) + 2)})

        self.encoder = nn.ModuleList(layer("self_attn") for _ in range(config.num_layers))
        self.decoder = nn.ModuleList(layer("self_attn", "cross_attn") for _ in range(config.num_layers))

    def embed(self, ids):  # [batch, seq_len] -> [batch, seq_len, d_model]
        return self.dropout(self.table(ids) * self.config.d_model**0.5 + self.positions[: ids.shape[1]])

    def attend(self, part, x, memory, mask):  # 3.2: x asks, the memory answers
        q, k, v = part["q_proj"](x), part["k_proj"](memory), part["v_proj"](memory)
        q, k, v = (y.unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2) for y in (q, k, v))  # a head each
        scores = q @ k.mT / q.shape[-1] ** 0.5  # [batch, heads, query_len, key_len]
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return part["out_proj"]((weights @ v).transpose(1, 2).flatten(2))

    def feed(self, layer, x):  # 3.3
        return layer["linear2"](layer["linear1"](x).relu())

    def forward(self, src, tgt):  # -> logits, [batch, tgt_len, vocab_size]
        memory, x = self.embed(src), self.embed(tgt)
        src_mask = (src != self.config.pad_id)[:, None, None, :]
        tgt_mask = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool, device=tgt.device).tril()  # padding is last
        for layer in self.encoder:
            memory = layer["norm1"](memory + self.dropout(self.attend(layer["self_attn"], memory, memory, src_mask)))
            memory = layer["norm2"](memory + self.dropout(self.feed(layer, memory)))
        for layer in self.decoder:
            x = layer["norm1"](x + self.dropout(self.attend(layer["self_attn"], x, x, tgt_mask)))
            x = layer["norm2"](x + self.dropout(self.attend(layer["cross_attn"], x, memory, src_mask)))
            x = layer["norm3"](x + self.dropout(self.feed(layer, x)))  # the last norm is a layer's, not the stack's
        return x @ self.table.weight.T
