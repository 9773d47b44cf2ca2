"""The whole model (figure 1): its configuration, and the encoder-decoder Transformer itself."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_lib.configuration import Configuration
from transformer_lib.decoder import Decoder, LayerCache
from transformer_lib.embeddings import Embedding, LearnedPositions, SinusoidalPositions, TokenEmbedding
from transformer_lib.encoder import Encoder
from transformer_lib.masks import padding_mask, target_mask

POSITIONS = {"learned": LearnedPositions, "sinusoidal": SinusoidalPositions}

_MULTI30K = {"num_heads": 4, "norm_first": True, "positions": "sinusoidal", "max_len": 256, "tie_embeddings": True}

PRESETS: dict[str, dict[str, Any]] = {
    # the model that the tutorials teach; it is what the fields of TransformerConfig default to
    "tutorial": {},
    # for the sample corpus: learns it in two minutes on two cores
    "small": {
        "d_model": 128,
        "num_heads": 4,
        "d_ff": 256,
        "num_layers": 2,
        "norm_first": True,
        "positions": "sinusoidal",
    },
    # for Multi30k: 5 million parameters with 4,000 subwords, and 1.9 million, which a few epochs cannot overfit
    "multi30k_best": {**_MULTI30K, "dropout": 0.2},
    "multi30k_fast": {**_MULTI30K, "d_model": 128, "dropout": 0.0},
    # the paper's models (Table 3, rows "base" and "big")
    "paper_base": {
        "d_model": 512,
        "num_heads": 8,
        "d_ff": 2048,
        "num_layers": 6,
        "inner_dropout": False,
        "positions": "sinusoidal",
        "max_len": 1024,
        "tie_embeddings": True,
    },
    "paper_big": {
        "d_model": 1024,
        "num_heads": 16,
        "d_ff": 4096,
        "num_layers": 6,
        "dropout": 0.3,
        "inner_dropout": False,
        "positions": "sinusoidal",
        "max_len": 1024,
        "tie_embeddings": True,
    },
}


@dataclass(frozen=True)
class TransformerConfig(Configuration):
    """Every choice that shapes the model. The defaults are the tutorials' model; ``PRESETS`` names other choices.

    Attributes:
        src_vocab_size, tgt_vocab_size: number of token types a side, special tokens included.
        d_model: size of the vectors that flow through the model.
        num_heads: heads of every attention; divides ``d_model``.
        d_ff: inner size of the feed-forward networks.
        num_layers: layers of the encoder, and of the decoder.
        dropout: probability of residual and embedding dropout (section 5.4).
        inner_dropout: also drop attention weights and inner activations, as the tutorials and ``nn.Transformer`` do.
        norm_first: pre-LN instead of the paper's post-LN.
        positions: ``"learned"`` or ``"sinusoidal"`` (section 3.5).
        max_len: number of positions; no sentence may be longer, ``<sos>`` and ``<eos>`` included.
        tie_embeddings: source, target and output share one matrix (section 3.4); needs a joint vocabulary.
        pad_id: the id of padding, on both sides.

    Raises:
        ValueError: a value is impossible, or two do not go together.
    """

    src_vocab_size: int
    tgt_vocab_size: int
    d_model: int = 256
    num_heads: int = 8
    d_ff: int = 512
    num_layers: int = 3
    dropout: float = 0.1
    inner_dropout: bool = True
    norm_first: bool = False
    positions: str = "learned"
    max_len: int = 100
    tie_embeddings: bool = False
    pad_id: int = 1

    def __post_init__(self):
        self._check_sizes("src_vocab_size", "tgt_vocab_size", "d_model", "num_heads", "d_ff", "num_layers", "max_len")
        if self.positions not in POSITIONS:
            raise ValueError(f"positions is {self.positions!r}, expected one of {', '.join(map(repr, POSITIONS))}")
        if self.tie_embeddings and self.src_vocab_size != self.tgt_vocab_size:
            raise ValueError(
                f"tie_embeddings=True needs one joint vocabulary, but src_vocab_size={self.src_vocab_size} and "
                f"tgt_vocab_size={self.tgt_vocab_size}"
            )
        if not 0 <= self.pad_id < min(self.src_vocab_size, self.tgt_vocab_size):
            raise ValueError(f"pad_id is {self.pad_id!r}, expected an id that both vocabularies have")

    def num_parameters(self) -> int:
        """Compute how many trainable numbers the model has, without building it; a tied matrix counts once."""
        embeddings = self.src_vocab_size * self.d_model
        if not self.tie_embeddings:
            embeddings += 2 * self.tgt_vocab_size * self.d_model  # the target's, and the output's
        positions = 2 * self.max_len * self.d_model if self.positions == "learned" else 0
        layers = self.num_layers * (self._layer_parameters(attentions=1) + self._layer_parameters(attentions=2))
        norms = 2 * 2 * self.d_model if self.norm_first else 0
        return embeddings + positions + layers + norms + self.tgt_vocab_size

    @classmethod
    def preset(cls, name: str, src_vocab_size: int, tgt_vocab_size: int, **changes: Any) -> "TransformerConfig":
        """Build a named configuration, with ``changes`` to any of its fields.

        Raises:
            ValueError: there is no preset of that name.
        """
        if name not in PRESETS:
            raise ValueError(f"preset is {name!r}, expected one of {', '.join(PRESETS)}")
        return cls(src_vocab_size, tgt_vocab_size, **{**PRESETS[name], **changes})


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
