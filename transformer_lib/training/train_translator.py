"""A corpus in, a translator out: the whole way in one call. It also tunes the search on the validation split."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from transformer_lib.checkpoint import MODEL_FILE, load_model, save_model
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import Corpus, Pair
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference.bleu import score
from transformer_lib.inference.translator import Translator
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.recipe import RECIPES, Recipe
from transformer_lib.training.trainer import fit

T = TypeVar("T")


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
        output, resume: as in ``fit``.
        device: where to train; see ``pick_device``.
        min_freq: a word must occur this often in the training split to get an id of its own.
        notes: anything to write down in the saved model besides the names of corpus and preset.
        log: called with a line for each thing that happens, in the first of several processes.

    Raises:
        ValueError, OSError, FloatingPointError: as ``fit``; or a sentence does not fit the model.
        CorpusError: the corpus is unavailable.
    """
    shape = TransformerConfig.preset(preset, 2, 2)  # how large the vocabularies will be is not known yet
    recipe = recipe or RECIPES[preset]
    log = log if distributed.is_first() else lambda line: None
    device = pick_device(str(device))
    seed_everything(recipe.seed)
    if recipe.subwords:
        pieces = train_subwords(corpus["train"], recipe.subwords)
        src_tokenizer, tgt_tokenizer = SubwordTokenizer(corpus.src, pieces), SubwordTokenizer(corpus.tgt, pieces)
    else:
        src_tokenizer, tgt_tokenizer = WordTokenizer(corpus.src), WordTokenizer(corpus.tgt)
    train_set, val_set = (
        dataset_of_split(corpus, split, lambda pairs: make_dataset(pairs, src_tokenizer, tgt_tokenizer, shape.max_len))
        for split in ("train", "val")
    )
    if not recipe.subwords:
        build_vocabularies(train_set, min_freq, joint=shape.tie_embeddings)
    types = len(src_tokenizer.vocab), len(tgt_tokenizer.vocab)
    model = Transformer(TransformerConfig.preset(preset, *types)).to(device)
    log(f"corpus    {corpus.name}: {len(train_set):,} pairs to train on, {len(val_set):,} to validate")
    if recipe.subwords:
        log(f"subwords  {types[0]:,} types, for {corpus.src} and {corpus.tgt}")
    else:
        log(f"words     {types[0]:,} {corpus.src} and {types[1]:,} {corpus.tgt} types")
    log_model(preset, model, output, log)
    notes = {"corpus": corpus.path or corpus.name, "preset": preset, **(notes or {})}
    fit(model, train_set, val_set, recipe, output, resume, notes, log=log)
    translator = Translator(model, src_tokenizer, tgt_tokenizer)
    if recipe.beam_size > 1:
        scores = tune_length_penalty(translator, corpus["val"], recipe.beam_size)
        tried = ", ".join(f"{length_penalty} {value:.2f}" for length_penalty, value in scores.items())
        log(f"beam {recipe.beam_size}, BLEU on val by length penalty: {tried}")
        if output is not None and distributed.is_first():
            saved = load_model(Path(output) / MODEL_FILE)
            search = {"beam_size": translator.beam_size, "length_penalty": translator.length_penalty}
            save_model(Path(output) / MODEL_FILE, saved.model, saved.tokenizers, {**saved.notes, "search": search})
    return translator


def tune_length_penalty(
    translator: Translator,
    pairs: Sequence[Pair],
    beam_size: int = 4,
    length_penalties: Sequence[float] = (0.0, 0.6, 1.2, 1.8, 2.4, 3.0, 3.6),
) -> dict[float, float]:
    """Find the length penalty whose translations score the highest BLEU, and let the translator search with it.

    Args:
        translator: its ``beam_size`` and ``length_penalty`` are set.
        pairs: the validation split; never a test split, which would then measure nothing.
        beam_size: size of the beam.
        length_penalties: what to try; of equals, the first wins.

    Returns:
        For each of them, BLEU-4 over the words of ``pairs`` (see ``bleu.score``), in percent.
    """
    scores = {}
    for length_penalty in length_penalties:
        translations = translator.translate([pair.src for pair in pairs], beam_size, length_penalty)
        scores[length_penalty] = score(translations, [pair.tgt for pair in pairs], translator.tgt_tokenizer)[0].value
    translator.beam_size, translator.length_penalty = beam_size, max(scores, key=scores.__getitem__)
    return scores


def dataset_of_split(corpus: Any, split: str, make: Callable[[Any], T]) -> T:
    """Make a data set of a split of a corpus or text, both of which are named if something in it cannot be used."""
    try:
        return make(corpus[split])
    except ValueError as error:
        raise ValueError(f"split {split!r} of {corpus.name!r}: {error}") from None


def log_model(preset: str, model: torch.nn.Module, output: str | Path | None, log: Callable[[str], None]) -> None:
    """Say how large the model is, and where it goes."""
    log(f"model     {preset}: {model.num_parameters():,} parameters, on {next(model.parameters()).device}")
    if output is not None:
        log(f"output    {output}")
