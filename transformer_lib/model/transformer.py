"""The whole model (figure 1): the encoder-decoder Transformer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.decoder import Decoder, LayerCache
from transformer_lib.model.embeddings import Embedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from transformer_lib.model.encoder import Encoder
from transformer_lib.model.masks import padding_mask, target_mask

POSITIONS = {"learned": LearnedPositions, "sinusoidal": SinusoidalPositions}


class AttentionMaps(NamedTuple):
    """What every head of every layer attended to: three lists with one tensor for each layer.

    Attributes:
        encoder: self-attention of the source, ``[batch, heads, src_len, src_len]`` each.
        decoder: self-attention of the target, ``[batch, heads, tgt_len, tgt_len]`` each.
        cross: the target's attention to the source, ``[batch, heads, tgt_len, src_len]`` each.
    """

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class Transformer(nn.Module):
    """The encoder-decoder Transformer, the papers' Seq2Seq.

    Args:
        config: every choice that shapes it.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        stack = {
            "num_layers": config.num_layers,
            "d_model": config.d_model,
            "num_heads": config.num_heads,
            "d_ff": config.d_ff,
            "dropout": config.dropout,
            "inner_dropout": config.dropout if config.inner_dropout else 0.0,
            "norm_first": config.norm_first,
        }
        positions = POSITIONS[config.positions]
        src_tokens = TokenEmbedding(config.src_vocab_size, config.d_model)
        tgt_tokens = src_tokens if config.tie_embeddings else TokenEmbedding(config.tgt_vocab_size, config.d_model)
        self.src_embedding = Embedding(src_tokens, positions(config.max_len, config.d_model), config.dropout)
        self.tgt_embedding = Embedding(tgt_tokens, positions(config.max_len, config.d_model), config.dropout)
        self.encoder = Encoder(**stack)
        self.decoder = Decoder(**stack)
        self.output = nn.Linear(config.d_model, config.tgt_vocab_size)
        if config.tie_embeddings:
            self.output.weight = tgt_tokens.table.weight
        self._initialise()

    def _initialise(self) -> None:
        """Xavier for every matrix; a tied one gets N(0, 1/d_model), since it must also give logits of size one."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        if self.config.tie_embeddings:
            nn.init.normal_(self.output.weight, std=self.config.d_model**-0.5)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Predict, at every target position, the token that comes next.

        Args:
            src: source ids, ``[batch, src_len]``.
            tgt: target ids that begin with ``<sos>``, ``[batch, tgt_len]``.

        Returns:
            Logits over the target vocabulary, ``[batch, tgt_len, tgt_vocab_size]``. Those of position i depend on
            ``tgt[:, : i + 1]`` only.

        Raises:
            ValueError: a side is not ``[batch, seq_len]``, is longer than ``max_len``, holds an id outside its
                vocabulary, or the two have different batch sizes.
        """
        return self.output(self.features(src, tgt))

    def features(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Do what ``forward`` does, up to the output layer: return ``[batch, tgt_len, d_model]``."""
        memory, memory_mask = self.encode(src)
        return self._decode(tgt, memory, memory_mask)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Read the source, ``[batch, src_len]``.

        Returns:
            The memory, ``[batch, src_len, d_model]``, and its mask, ``[batch, 1, 1, src_len]``.
        """
        x = self.src_embedding(src)
        mask = padding_mask(src, self.config.pad_id)
        memory, _ = self.encoder(x, mask)
        return memory, mask

    def decode(
        self, tgt: Tensor, memory: Tensor | None, memory_mask: Tensor, cache: list[LayerCache] | None = None
    ) -> Tensor:
        """Predict the next tokens from the target so far and the memory.

        Args:
            tgt: target ids, ``[batch, tgt_len]``; with a cache, the newest token of each row only, ``[rows, 1]``.
            memory, memory_mask: what ``encode`` returned; the memory is not used with a cache, which has its keys.
            cache: what ``start_cache`` returned, with all earlier positions in it; it is updated in place.

        Returns:
            Logits, ``[batch, tgt_len, tgt_vocab_size]``.

        Raises:
            ValueError: ``tgt`` does not fit the memory, or brings several tokens to a cache, or there is neither memory
                nor cache.
        """
        return self.output(self._decode(tgt, memory, memory_mask, cache))

    def _decode(
        self, tgt: Tensor, memory: Tensor | None, memory_mask: Tensor, cache: list[LayerCache] | None = None
    ) -> Tensor:
        if cache is None:
            if memory is None:
                raise ValueError("memory is None, expected what encode returned: only a cache does without it")
            _check_batch_sizes(tgt, memory)
            x = self.tgt_embedding(tgt)
            x, _, _ = self.decoder(x, memory, target_mask(tgt, self.config.pad_id), memory_mask)
        else:
            if tgt.shape[1] != 1:
                raise ValueError(
                    f"tgt has shape {list(tgt.shape)}, expected [rows, 1]: a cache takes one token at a time"
                )
            x = self.tgt_embedding(tgt, start=cache[0].length)
            x, _, _ = self.decoder(x, None, None, memory_mask, cache=cache)
        return x

    def start_cache(self, *memories: Tensor) -> list[LayerCache]:
        """Prepare decoding one position at a time, without computing earlier positions again (see ``LayerCache``).

        Args:
            memories: what ``encode`` returned, ``[sentences, src_len, d_model]``, for all sentences or for some each.
        """
        return self.decoder.start_cache(*memories)

    @torch.no_grad()
    def attention_maps(self, src: Tensor, tgt: Tensor) -> AttentionMaps:
        """Show what every head attends to, with dropout off.

        Args:
            src: source ids, ``[batch, src_len]``.
            tgt: target ids, ``[batch, tgt_len]``.

        Returns:
            The maps of every layer; see ``AttentionMaps``.

        Raises:
            ValueError: as ``forward``.
        """
        was_training = self.training
        self.eval()
        try:
            x = self.src_embedding(src)
            memory_mask = padding_mask(src, self.config.pad_id)
            memory, encoder = self.encoder(x, memory_mask, need_weights=True)
            _check_batch_sizes(tgt, memory)
            x = self.tgt_embedding(tgt)
            tgt_mask = target_mask(tgt, self.config.pad_id)
            _, decoder, cross = self.decoder(x, memory, tgt_mask, memory_mask, need_weights=True)
        finally:
            self.train(was_training)
        return AttentionMaps(encoder, decoder, cross)

    def num_parameters(self) -> int:
        """Count the trainable numbers; a tied matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


def _check_batch_sizes(tgt: Tensor, memory: Tensor) -> None:
    if len(tgt) != len(memory):
        raise ValueError(f"tgt has {len(tgt)} sentences but src has {len(memory)}")
