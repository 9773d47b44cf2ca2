"""Text in, more text out: a language model with its vocabulary."""

from collections.abc import Callable
from pathlib import Path

import torch

from transformer_lib.checkpoint import load_model
from transformer_lib.data.tokenizers import EOS, PAD, UNK, check_vocabularies
from transformer_lib.files import CheckpointError
from transformer_lib.language_model.model import TransformerLanguageModel
from transformer_lib.language_model.stream import StreamTokenizer


class TextGenerator:
    """A trained language model, which is put into evaluation mode, and the tokeniser that it was trained with.

    Raises:
        ValueError: the vocabulary does not have the model's size.
    """

    def __init__(self, model: TransformerLanguageModel, tokenizer: StreamTokenizer):
        check_vocabularies(model.config, {"text": tokenizer})
        self.model = model.eval()
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, path: str | Path, *custom: type | Callable, device: torch.device | str = "cpu") -> "TextGenerator":
        """Load a language model that training wrote: its folder, or its ``.safetensors`` file (see ``load_model``).

        Raises:
            FileNotFoundError, CheckpointError: as ``load_model``; also if it is a translator.
        """
        saved = load_model(path, *custom, device=device)
        if "text" not in saved.tokenizers:
            raise CheckpointError(
                f"{path} holds a translator, expected a language model; see `transformer-lib translate`"
            )
        return cls(saved.model, saved.tokenizers["text"])

    def __call__(
        self, prompt: str, length: int = 50, temperature: float = 1.0, top_k: int | None = None, seed: int | None = None
    ) -> str:
        """Continue a text.

        Args:
            prompt: how it begins; words of the vocabulary.
            length: tokens to add, ends of lines included.
            temperature, top_k: see ``TransformerLanguageModel.generate``.
            seed: makes the text repeatable; by default, torch's global random numbers decide.

        Returns:
            Prompt and continuation; ``<unk>`` is never written unless the prompt has it.

        Raises:
            ValueError: the prompt is empty or holds a word outside the vocabulary, or an argument is impossible.
        """
        device = next(self.model.parameters()).device
        ids = torch.tensor([self.tokenizer.encode(prompt)], device=device)  # [1, prompt_len]
        excluded = tuple(self.tokenizer.vocab.stoi[token] for token in (UNK, PAD))
        generator = None if seed is None else torch.Generator(device).manual_seed(seed)
        ids = self.model.generate(ids, length, temperature, top_k, excluded, generator)  # [1, prompt_len + length]
        lines = " ".join(self.tokenizer.decode(ids[0].tolist())).split(EOS)
        return "\n".join(
            self.tokenizer.join(line.split()) if self.tokenizer.language else line.strip() for line in lines
        ).rstrip()
