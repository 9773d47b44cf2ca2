"""Models that readers might write, for ``test_open_world.py`` to train, kill, resume, save, load and translate with."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from conftest import PAIRS
from torch import nn

from transformer_lib import MultiHeadAttention, PositionwiseFeedForward, Transformer, TransformerConfig, WordTokenizer
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.files import STATE_FILE
from transformer_lib.training.device import seed_everything
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

LEARNT = PAIRS[:3]
RECIPE = Recipe(epochs=20, batch_size=1, learning_rate=4e-3)


class ScaledLogits(Transformer):
    """One weight more than its parent: how sure it is of its predictions."""

    def __init__(self, config):
        super().__init__(config)
        self.logit_scale = nn.Parameter(torch.tensor(1.0))

    def decode(self, tgt, memory, memory_mask):
        return self.logit_scale * super().decode(tgt, memory, memory_mask)


class SwiGLU(PositionwiseFeedForward):
    """A feed-forward network whose activation has a gate of its own (Shazeer 2020)."""

    caches = True  # each position by itself

    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__(d_model, d_ff, dropout)
        self.gate = nn.Linear(d_model, d_ff)

    def forward(self, x):
        return self.linear2(self.dropout(F.silu(self.gate(x)) * self.linear1(x)))


class SwiGLUTransformer(Transformer):
    def __init__(self, config):
        super().__init__(config)
        for layer in (*self.encoder.layers, *self.decoder.layers):
            layer.feed_forward = SwiGLU(config.d_model, config.d_ff, config.dropout)


class RelativeAttention(MultiHeadAttention):
    """Each head learns what to add to a score for each distance, up to eight to either side (Raffel et al. 2020).

    It counts queries from 0, so that it must not say ``caches = True``.
    """

    farthest = 8

    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__(d_model, num_heads, dropout)
        self.distance_bias = nn.Parameter(torch.zeros(num_heads, 2 * self.farthest + 1))

    def attend(self, q, k, v, mask=None, need_weights=False):
        query_positions, key_positions = torch.arange(q.shape[2]), torch.arange(k.shape[2])
        distances = (key_positions - query_positions[:, None]).clamp(-self.farthest, self.farthest)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + self.distance_bias[:, distances + self.farthest]
        weights = F.dropout(scores.masked_fill(~mask, -torch.inf).softmax(-1), self.dropout, self.training)
        return weights @ v, weights if need_weights else None


class NoPositions(nn.Module):
    def forward(self, length):
        return 0.0


class RelativeTransformer(Transformer):
    """Its encoder, and its decoder among its own words, know distances and no positions."""

    def __init__(self, config):
        super().__init__(config)
        for embedding in (self.src_embedding, self.tgt_embedding):
            embedding.positions = NoPositions()
        for layer in (*self.encoder.layers, *self.decoder.layers):
            layer.self_attn = RelativeAttention(config.d_model, config.num_heads, config.dropout)


class TorchTransformer(nn.Module):
    """PyTorch's Transformer, in which True in a mask means "may not attend"."""

    config_class = TransformerConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tokens = nn.ModuleList(
            nn.Embedding(n, config.d_model) for n in (config.src_vocab_size, config.tgt_vocab_size)
        )
        self.positions = nn.Embedding(config.max_len, config.d_model)
        sizes = config.d_model, config.num_heads, config.num_layers, config.num_layers, config.d_ff, config.dropout
        self.transformer = nn.Transformer(*sizes, batch_first=True)
        self.output = nn.Linear(config.d_model, config.tgt_vocab_size)

    def embed(self, side, ids):
        return self.tokens[side](ids) + self.positions.weight[: ids.shape[1]], ids == self.config.pad_id

    def encode(self, src):
        x, padding = self.embed(0, src)
        return self.transformer.encoder(x, src_key_padding_mask=padding), padding

    def decode(self, tgt, memory, memory_mask):
        x, padding = self.embed(1, tgt)
        future = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        return self.output(self.transformer.decoder(x, memory, future, None, padding, memory_mask))

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))

    def logits_and_targets(self, src, tgt):
        return self(src, tgt[:, :-1]), tgt[:, 1:]


MODELS = (ScaledLogits, SwiGLUTransformer, RelativeTransformer, TorchTransformer)


def make_data():
    tokenizers = WordTokenizer("de"), WordTokenizer("en")
    dataset = make_dataset(LEARNT, *tokenizers)
    build_vocabularies(dataset, min_freq=1)
    return dataset


def make_model(model_class, dataset):
    """The same weights every time."""
    seed_everything(0)
    sizes = (len(tokenizer.vocab) for tokenizer in dataset.tokenizers.values())
    return model_class(TransformerConfig(*sizes, d_model=32, num_heads=4, d_ff=64, num_layers=1, max_len=40))


def train(model_class: type, output: Path, resume: bool = False, epochs: int = RECIPE.epochs) -> nn.Module:
    """Train, or go on, to the end."""
    dataset, recipe = make_data(), replace(RECIPE, epochs=epochs)
    model = make_model(model_class, dataset)
    fit(model, dataset, dataset, recipe, output, resume, log=lambda line: None)
    return model


def train_until_killed(model_class: type, output: Path, steps: int) -> None:
    """Train in a process that kills itself, as ``kill -9`` would, at the step after so many."""
    torch.set_num_threads(1)
    done, forward = 0, model_class.forward

    def forward_or_die(model, *arguments):
        nonlocal done
        done += model.training
        if done > steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return forward(model, *arguments)

    model_class.forward = forward_or_die
    train(model_class, output, (output / STATE_FILE).exists())
