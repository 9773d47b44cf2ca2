"""A text in, a text generator out: the whole way in one call."""

from collections.abc import Callable
from pathlib import Path

import torch

from transformer_lib.files import say
from transformer_lib.language_model.generator import TextGenerator
from transformer_lib.language_model.model import LanguageModelConfig, TransformerLanguageModel
from transformer_lib.language_model.stream import StreamTokenizer, TextDataset
from transformer_lib.language_model.texts import Text
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, Recipe
from transformer_lib.training.trainer import fit


def train_language_model(
    text: Text,
    preset: str = "tutorial",
    recipe: Recipe | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    device: torch.device | str = "auto",
    min_freq: int = 1,
    log: Callable[[str], None] = say,
) -> TextGenerator:
    """Build a vocabulary from a text's training split and a language model for it, and train it.

    Args:
        text: its first two splits are trained on and validated on.
        preset: how to train; one of ``LANGUAGE_MODEL_RECIPES``. The model is the same, with ``recipe.bptt`` positions.
        recipe: how to train, if it is to be another recipe than the preset's.
        output, resume, device, min_freq, log: as in ``train_translator``, also for errors.
    """
    if preset not in LANGUAGE_MODEL_RECIPES:
        raise ValueError(f"preset is {preset!r}, expected one of {', '.join(LANGUAGE_MODEL_RECIPES)}")
    recipe = recipe or LANGUAGE_MODEL_RECIPES[preset]
    log = log if distributed.is_first() else lambda line: None
    device = pick_device(str(device))
    seed_everything(recipe.seed)
    tokenizer = StreamTokenizer(text.language)
    train_split, val_split, *_ = text.splits
    train_set = TextDataset(text[train_split], tokenizer)
    val_set = TextDataset(text[val_split], tokenizer)
    tokenizer.build_vocab([train_set.tokens], min_freq)
    config = LanguageModelConfig(len(tokenizer.vocab), max_len=recipe.bptt, pad_id=tokenizer.pad_id)
    model = TransformerLanguageModel(config).to(device)
    log(f"text      {text.name}: {len(train_set):,} tokens to train on, {len(val_set):,} to validate")
    log(f"words     {len(tokenizer.vocab):,} types")
    log(f"model     {preset}: {model.num_parameters():,} parameters, on {device}")
    notes = {"corpus": text.name, "preset": preset}
    fit(model, train_set, val_set, recipe, output, resume, notes, log=log)
    return TextGenerator(model, tokenizer)
