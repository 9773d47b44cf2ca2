"""A language model: one stack of layers under a causal mask that predicts the next token of a text."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_lib.checkpoint import saved
from transformer_lib.model.config import Configuration
from transformer_lib.model.embeddings import InputEmbedding, SinusoidalPositionalEncoding, TokenEmbedding, check_ids
from transformer_lib.model.encoder import Encoder, EncoderLayer
from transformer_lib.model.evaluation import evaluation_mode
from transformer_lib.model.masks import causal_mask


@dataclass(frozen=True)
class LanguageModelConfig(Configuration):
    """Every choice that shapes the language model; a ValueError names one that is impossible.

    The defaults are those of PyTorch's tutorial, except that there are only as many positions as a chunk has tokens.
    Fields mean what they do in ``TransformerConfig``: ``d_model`` is the tutorial's emsize, ``d_ff`` its nhid, and the
    model can look back on ``max_len`` tokens. Dropout follows the embedding and is where ``nn.TransformerEncoderLayer``
    has it. ``final_norm`` is what some models around ``nn.TransformerEncoder`` have after their stack.
    """

    vocab_size: int
    d_model: int = 200
    num_heads: int = 2
    d_ff: int = 200
    num_layers: int = 2
    dropout: float = 0.2
    max_len: int = 35
    final_norm: bool = False
    pad_id: int = 1

    def __post_init__(self):
        self.check("vocab_size", "d_model", "num_heads", "d_ff", "num_layers", "max_len")


@saved
class TransformerLanguageModel(nn.Module):
    """Embeddings and positions, an ``Encoder`` under a causal mask, and a linear layer. Notebook 10, section 1."""

    config_class = LanguageModelConfig

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.config = config
        tokens = TokenEmbedding(config.vocab_size, config.d_model)
        positions = SinusoidalPositionalEncoding(config.max_len, config.d_model)
        self.embedding = InputEmbedding(tokens, positions, config.dropout)
        layer = (config.d_model, config.num_heads, config.d_ff, config.dropout, config.dropout)
        norm = nn.LayerNorm(config.d_model) if config.final_norm else None
        self.encoder = Encoder((EncoderLayer(*layer) for _ in range(config.num_layers)), norm)
        self.output = nn.Linear(config.d_model, config.vocab_size)
        nn.init.uniform_(tokens.table.weight, -0.1, 0.1)
        nn.init.uniform_(self.output.weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)

    @torch.no_grad()
    def init_bias_from_unigrams(self, counts: Tensor) -> None:
        """Make an untrained model predict each token with its frequency in the text.

        The output's biases become the logarithms of the tokens' shares (each count raised by one, so that none is
        zero), and its weights zero. ``counts`` says how often each token occurs in the training text, ``[vocab_size]``.
        """
        self.output.bias.copy_(((counts + 1) / (counts + 1).sum()).log())
        self.output.weight.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """Predict, at every position, the token that comes next: ``ids`` are ``[batch, seq_len]``.

        Returns logits, ``[batch, seq_len, vocab_size]``; those of position i depend on ``ids[:, : i + 1]`` only.
        """
        check_ids("ids", ids, self.config.vocab_size)
        x, _ = self.encoder(self.embedding(ids), causal_mask(ids.shape[1], ids.device))  # [batch, seq_len, d_model]
        return self.output(x)

    def logits_and_targets(self, text: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Predict each token of a text from those before it; ``target`` is ``text`` one token later."""
        return self(text), target

    @torch.no_grad()
    def generate(
        self,
        prompt: Tensor,
        length: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        excluded: tuple[int, ...] = (),
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Continue a text one token at a time, each drawn from the model's distribution; dropout is off.

        The model sees the last ``max_len`` tokens so far. Returns prompt and continuation, ``[batch, prompt_len +
        length]``. Notebook 10, section 3. Raises a ValueError that names an impossible argument, and a
        FloatingPointError if the model predicts NaN.

        Args:
            prompt: what the text begins with, ``[batch, prompt_len]``.
            length: how many tokens to add; none if it is negative.
            temperature: what logits are divided by: below 1, likely tokens become likelier; 0 takes the likeliest.
            top_k: draw from so many of the likeliest tokens only.
            excluded: ids that are never drawn.
            generator: where random numbers come from; by default, the global generator.
        """
        if not 0 <= temperature < float("inf"):
            raise ValueError(f"temperature is {temperature}, expected 0 or more")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k is {top_k}, expected 1 or more")
        choices = self.config.vocab_size - len({*excluded})
        candidates = 1 if temperature == 0 else min(top_k or choices, choices)
        # by less, differences of float32 cannot be divided: the likeliest is certain long before that
        temperature = max(temperature, torch.finfo(torch.float32).tiny)
        never = torch.tensor(list(excluded), dtype=torch.long, device=prompt.device)
        ids = prompt
        with evaluation_mode(self):
            for _ in range(length):
                logits = self(ids[:, -self.config.max_len :])[:, -1].float()  # [batch, vocab_size]
                if not logits.isfinite().all():
                    raise FloatingPointError("the model predicts nan: are its weights damaged?")
                logits[:, never] = -torch.inf
                likeliest, tokens = logits.topk(candidates)  # [batch, candidates]
                below = likeliest - likeliest[:, :1]  # the best; without it, a small temperature would lead to infinity
                probabilities = (below / temperature).softmax(dim=-1)
                drawn = torch.multinomial(probabilities, 1, generator=generator)  # [batch, 1]
                ids = torch.cat([ids, tokens.gather(1, drawn)], dim=1)
        return ids

    def num_parameters(self) -> int:
        """Count the trainable numbers; a tied matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
