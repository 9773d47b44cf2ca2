"""A corpus in, a translator out, or a text in, a text generator out: the whole way in one call."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from transformer_lib.checkpoint import MODEL_FILE, Model, load_model, save_model
from transformer_lib.data.batches import Dataset, make_dataset, make_stream
from transformer_lib.data.corpora import Corpus, Pair, Text
from transformer_lib.data.subwords import SubwordField, train_subwords
from transformer_lib.data.tokenizers import RunningTextField, TextField, build_vocabularies
from transformer_lib.inference.bleu import score
from transformer_lib.inference.translator import Translator
from transformer_lib.language_model.generator import TextGenerator
from transformer_lib.language_model.model import LanguageModelConfig, TransformerLanguageModel
from transformer_lib.model.config import PRESETS, TransformerConfig
from transformer_lib.model.transformer import Transformer
from transformer_lib.training import distributed
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, RECIPES, Recipe
from transformer_lib.training.trainer import fit, pick_device, seed_everything


def train_translator(
    corpus: Corpus,
    preset: str = "small",
    recipe: Recipe | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    device: torch.device | str = "auto",
    min_freq: int = 2,
    notes: dict[str, Any] | None = None,
    log: Callable[[str], None] = print,
) -> Translator:
    """Build vocabularies from a corpus's training split and a model for them, and train it.

    Args:
        corpus: with the splits ``train`` and ``val``.
        preset: the model; one of ``PRESETS``.
        recipe: how to train; by default, the one that is named like the preset.
        output, resume: what to keep, and whether to go on with it; see ``fit``.
        device: where to train; see ``pick_device``.
        min_freq: a word must occur this often in the training split to get an id of its own.
        notes: anything to write down in the saved model besides the names of corpus and preset.
        log: called with a line for each thing that happens, in the first of several processes.

    Raises:
        ValueError: the preset is unknown, or a sentence does not fit the model.
        CorpusError: the corpus cannot be had.
        OSError, FileExistsError, FloatingPointError, KeyboardInterrupt: as ``fit``.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset is {preset!r}, expected one of {', '.join(PRESETS)}")
    recipe = recipe or RECIPES[preset]
    log = log if distributed.is_first() else lambda line: None
    device = pick_device(str(device))
    seed_everything(recipe.seed)
    max_len = PRESETS[preset].get("max_len", TransformerConfig.max_len)
    if recipe.subwords:
        pieces = train_subwords(corpus["train"], recipe.subwords)
        src_field, tgt_field = SubwordField(corpus.src, pieces), SubwordField(corpus.tgt, pieces)
    else:
        src_field, tgt_field = TextField(corpus.src), TextField(corpus.tgt)
    train_set, val_set = (
        _of_split(split, lambda pairs: make_dataset(pairs, src_field, tgt_field, max_len), corpus)
        for split in ("train", "val")
    )
    if not recipe.subwords:
        build_vocabularies(train_set, min_freq, joint=PRESETS[preset].get("tie_embeddings", False))
    config = TransformerConfig.preset(preset, len(src_field.vocab), len(tgt_field.vocab))
    model = Transformer(config).to(device)
    log(f"corpus    {corpus.name}: {len(train_set):,} pairs to train on, {len(val_set):,} to validate")
    if recipe.subwords:
        log(f"subwords  {len(tgt_field.vocab):,} types, for {corpus.src} and {corpus.tgt}")
    else:
        log(f"words     {len(src_field.vocab):,} {corpus.src} and {len(tgt_field.vocab):,} {corpus.tgt} types")
    _log_model(preset, model, output, log)
    notes = {"corpus": corpus.name, "preset": preset, **(notes or {})}
    fit(model, train_set, val_set, recipe, output, resume, notes, log=log)
    translator = Translator(model, src_field, tgt_field)
    if recipe.beam_size > 1:
        with distributed.together(device):
            scores = tune_length_penalty(translator, corpus["val"], recipe.beam_size)
        log(
            f"beam {recipe.beam_size}, BLEU on val by length penalty: "
            + ", ".join(f"{a} {scores[a]:.2f}" for a in scores)
        )
        if output is not None and distributed.is_first():
            saved = load_model(Path(output) / MODEL_FILE)
            search = {"beam_size": translator.beam_size, "alpha": translator.alpha}
            save_model(Path(output) / MODEL_FILE, saved.model, saved.fields, {**saved.notes, "search": search})
    return translator


def tune_length_penalty(
    translator: Translator,
    pairs: Sequence[Pair],
    beam_size: int = 4,
    alphas: Sequence[float] = (0.0, 0.6, 1.2, 1.8, 2.4, 3.0, 3.6),
) -> dict[float, float]:
    """Find the length penalty whose translations score the highest BLEU, and let the translator search with it.

    Args:
        translator: its ``beam_size`` and ``alpha`` are set.
        pairs: the validation split; never a test split, which would then measure nothing.
        beam_size: size of the beam.
        alphas: what to try; of equals, the first wins.

    Returns:
        For each of them, BLEU-4 over the words of ``pairs`` (see ``bleu.score``), in percent.

    Raises:
        ValueError: there is nothing to try, or a sentence does not fit the model.
    """
    if not alphas:
        raise ValueError("alphas is empty, expected at least one length penalty to try")
    mine = {}
    for alpha in distributed.share(alphas):
        translations = translator.translate([pair.src for pair in pairs], beam_size, alpha)
        mine[alpha] = score(translations, [pair.tgt for pair in pairs], translator.tgt_field)[0].value
    everyones = {alpha: value for some in distributed.from_all(mine) for alpha, value in some.items()}
    scores = {alpha: everyones[alpha] for alpha in alphas}
    translator.beam_size, translator.alpha = beam_size, max(scores, key=scores.__getitem__)
    return scores


def train_language_model(
    text: Text,
    preset: str = "tutorial",
    recipe: Recipe | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    device: torch.device | str = "auto",
    min_freq: int = 1,
    notes: dict[str, Any] | None = None,
    log: Callable[[str], None] = print,
) -> TextGenerator:
    """Build a vocabulary from a text's training split and a language model for it, and train it.

    Args:
        text: its first two splits are trained on and validated on.
        preset: how to train; one of ``LANGUAGE_MODEL_RECIPES``. The model is the same, with ``recipe.bptt`` positions.
        recipe: how to train, if it is to be another recipe than the preset's.
        output, resume, device, min_freq, log: as in ``train_translator``.
        notes: anything to write down in the saved model besides the names of text and preset.

    Raises:
        ValueError: the preset is unknown, or the text too short.
        CorpusError: the text cannot be had.
        OSError, FileExistsError, FloatingPointError, KeyboardInterrupt: as ``fit``.
    """
    if preset not in LANGUAGE_MODEL_RECIPES:
        raise ValueError(f"preset is {preset!r}, expected one of {', '.join(LANGUAGE_MODEL_RECIPES)}")
    recipe = recipe or LANGUAGE_MODEL_RECIPES[preset]
    log = log if distributed.is_first() else lambda line: None
    device = pick_device(str(device))
    seed_everything(recipe.seed)
    field = RunningTextField(text.language)
    train_set, val_set = (_of_split(split, lambda lines: make_stream(lines, field), text) for split in text.splits[:2])
    field.build_vocab(train_set, min_freq=min_freq)
    config = LanguageModelConfig(len(field.vocab), max_len=recipe.bptt)
    model = TransformerLanguageModel(config).to(device)
    log(f"text      {text.name}: {len(train_set[0].text):,} tokens to train on, {len(val_set[0].text):,} to validate")
    log(f"words     {len(field.vocab):,} types")
    _log_model(preset, model, output, log)
    notes = {"corpus": text.name, "preset": preset, **(notes or {})}
    fit(model, train_set, val_set, recipe, output, resume, notes, log=log)
    return TextGenerator(model, field)


def _of_split(split: str, make: Callable[[Any], Dataset], corpus: Corpus | Text) -> Dataset:
    """Make a data set of a split, which is named if something in it cannot be used."""
    try:
        return make(corpus[split])
    except ValueError as error:
        raise ValueError(f"split {split!r} of {corpus.name!r}: {error}") from None


def _log_model(preset: str, model: Model, output: str | Path | None, log: Callable[[str], None]) -> None:
    log(f"model     {preset}: {model.num_parameters():,} parameters, on {next(model.parameters()).device}")
    if output is not None:
        log(f"output    {output}")
