"""The whole model (figure 1): the encoder-decoder Transformer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.decoder import Decoder, DecoderLayer
from transformer_lib.model.embeddings import POSITIONS, InputEmbedding, TokenEmbedding, check_ids
from transformer_lib.model.encoder import Encoder, EncoderLayer
from transformer_lib.model.masks import padding_mask, target_mask


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
    """The encoder-decoder Transformer; the tutorials call it Seq2Seq. Notebook 04, section 5."""

    config_class = TransformerConfig  # load_model builds the model of it again
    check_ids = staticmethod(check_ids)  # a method, so that a training whose ids are known can do without

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        positions = POSITIONS[config.positions]
        src_tokens = TokenEmbedding(config.src_vocab_size, config.d_model)
        tgt_tokens = src_tokens if config.tie_embeddings else TokenEmbedding(config.tgt_vocab_size, config.d_model)
        self.src_embedding = InputEmbedding(src_tokens, positions(config.max_len, config.d_model), config.dropout)
        self.tgt_embedding = InputEmbedding(tgt_tokens, positions(config.max_len, config.d_model), config.dropout)

        layer = {
            "d_model": config.d_model,
            "num_heads": config.num_heads,
            "d_ff": config.d_ff,
            "dropout": config.dropout,
            "inner_dropout": config.dropout if config.inner_dropout else 0.0,
            "norm_first": config.norm_first,
            "activation": config.activation,
        }
        src_norm = nn.LayerNorm(config.d_model) if config.norm_first else None
        tgt_norm = nn.LayerNorm(config.d_model) if config.norm_first else None
        self.encoder = Encoder((EncoderLayer(**layer) for _ in range(config.num_layers)), src_norm)
        self.decoder = Decoder((DecoderLayer(**layer) for _ in range(config.num_layers)), tgt_norm)

        self.output = nn.Linear(config.d_model, config.tgt_vocab_size)
        if config.tie_embeddings:
            self.output.weight = tgt_tokens.table.weight
        self._initialise()

    def _initialise(self) -> None:
        """Xavier for every matrix; a tied one gets N(0, 1/d_model): times √d_model it embeds, alone it gives logits."""
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
        memory, memory_mask = self.encode(src)
        return self.decode(tgt, memory, memory_mask)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Read the source, ``[batch, src_len]``.

        Returns:
            The memory, ``[batch, src_len, d_model]``, and its mask, ``[batch, 1, 1, src_len]``.
        """
        self.check_ids("src", src, self.config.src_vocab_size)
        mask = padding_mask(src, self.config.pad_id)
        memory, _ = self.encoder(self.src_embedding(src), mask)
        return memory, mask

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """Predict the next tokens from the target so far, ``[batch, tgt_len]``, and from what ``encode`` returned.

        Returns:
            Logits, ``[batch, tgt_len, tgt_vocab_size]``.
        """
        self._check_target(tgt, memory)
        mask = target_mask(tgt, self.config.pad_id)
        x, _, _ = self.decoder(self.tgt_embedding(tgt), memory, mask, memory_mask)
        return self.output(x)

    def logits_and_targets(self, src: Tensor, tgt: Tensor) -> tuple[Tensor, Tensor]:
        """Predict each token of the target from the true ones before it (teacher forcing). Notebook 05, section 1.

        Args:
            src: source ids, ``[batch, src_len]``.
            tgt: target ids from ``<sos>`` to ``<eos>``, ``[batch, tgt_len]``.

        Returns:
            Logits, ``[batch, tgt_len - 1, tgt_vocab_size]``, and the tokens that should have been predicted,
            ``[batch, tgt_len - 1]``: given ``<sos>`` …, the model has to say … ``<eos>``.
        """
        return self(src, tgt[:, :-1]), tgt[:, 1:]

    @torch.no_grad()
    def attention_maps(self, src: Tensor, tgt: Tensor) -> AttentionMaps:
        """Show what every head attends to, with dropout off; arguments and errors as ``forward``."""
        if type(self).encode is not Transformer.encode:
            raise TypeError(f"{type(self).__name__} overrides encode: override attention_maps, too, to show its maps")
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            self.check_ids("src", src, self.config.src_vocab_size)
            self._check_target(tgt, src)
            src_mask, tgt_mask = padding_mask(src, self.config.pad_id), target_mask(tgt, self.config.pad_id)
            memory, encoder = self.encoder(self.src_embedding(src), src_mask, need_weights=True)
            x = self.tgt_embedding(tgt)
            _, decoder, cross = self.decoder(x, memory, tgt_mask, src_mask, need_weights=True)
        finally:
            for module, training in modes:
                module.training = training
        return AttentionMaps(encoder, decoder, cross)

    def _check_target(self, tgt: Tensor, source: Tensor) -> None:
        """Check the target's ids, and that there are as many sentences as in the source (its ids, or the memory)."""
        self.check_ids("tgt", tgt, self.config.tgt_vocab_size)
        if tgt.shape[0] != source.shape[0]:  # len() would make a constant of it for torch.export
            raise ValueError(f"tgt has {len(tgt)} sentences but src has {len(source)}")

    def num_parameters(self) -> int:
        """Count the trainable numbers; a tied matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
