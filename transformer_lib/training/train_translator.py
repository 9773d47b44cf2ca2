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
from transformer_lib.model.config import PRESETS, TransformerConfig
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
        output, resume: where to write, and whether to resume what is there; see ``fit``.
        device: where to train; see ``pick_device``.
        min_freq: a word must occur this often in the training split to get an id of its own.
        notes: anything to write down in the saved model besides the names of corpus and preset.
        log: called with a line for each thing that happens, in the first of several processes.

    Raises:
        ValueError: the preset is unknown, or a sentence does not fit the model.
        CorpusError: the corpus is unavailable.
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
        src_tokenizer, tgt_tokenizer = SubwordTokenizer(corpus.src, pieces), SubwordTokenizer(corpus.tgt, pieces)
    else:
        src_tokenizer, tgt_tokenizer = WordTokenizer(corpus.src), WordTokenizer(corpus.tgt)
    train_set, val_set = (
        dataset_of_split(split, lambda pairs: make_dataset(pairs, src_tokenizer, tgt_tokenizer, max_len), corpus)
        for split in ("train", "val")
    )
    if not recipe.subwords:
        build_vocabularies(train_set, min_freq, joint=PRESETS[preset].get("tie_embeddings", False))
    config = TransformerConfig.preset(preset, len(src_tokenizer.vocab), len(tgt_tokenizer.vocab))
    model = Transformer(config).to(device)
    log(f"corpus    {corpus.name}: {len(train_set):,} pairs to train on, {len(val_set):,} to validate")
    if recipe.subwords:
        log(f"subwords  {len(tgt_tokenizer.vocab):,} types, for {corpus.src} and {corpus.tgt}")
    else:
        log(f"words     {len(src_tokenizer.vocab):,} {corpus.src} and {len(tgt_tokenizer.vocab):,} {corpus.tgt} types")
    log_model(preset, model, output, log)
    notes = {"corpus": corpus.path or corpus.name, "preset": preset, **(notes or {})}
    fit(model, train_set, val_set, recipe, output, resume, notes, log=log)
    translator = Translator(model, src_tokenizer, tgt_tokenizer)
    if recipe.beam_size > 1:
        with distributed.process_group(device):
            scores = tune_length_penalty(translator, corpus["val"], recipe.beam_size)
        log(
            f"beam {recipe.beam_size}, BLEU on val by length penalty: "
            + ", ".join(f"{a} {scores[a]:.2f}" for a in scores)
        )
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

    Raises:
        ValueError: there is nothing to try, or a sentence does not fit the model.
    """
    if not length_penalties:
        raise ValueError("length_penalties is empty, expected at least one length penalty to try")
    mine = {}
    for length_penalty in distributed.shard(length_penalties):
        translations = translator.translate([pair.src for pair in pairs], beam_size, length_penalty)
        mine[length_penalty] = score(translations, [pair.tgt for pair in pairs], translator.tgt_tokenizer)[0].value
    everyones = {
        length_penalty: value for some in distributed.all_gather(mine) for length_penalty, value in some.items()
    }
    scores = {length_penalty: everyones[length_penalty] for length_penalty in length_penalties}
    translator.beam_size, translator.length_penalty = beam_size, max(scores, key=scores.__getitem__)
    return scores


def dataset_of_split(split: str, make: Callable[[Any], T], corpus: Any) -> T:
    """Make a data set of a split, which is named if something in it cannot be used."""
    try:
        return make(corpus[split])
    except ValueError as error:
        raise ValueError(f"split {split!r} of {corpus.name!r}: {error}") from None


def log_model(preset: str, model: torch.nn.Module, output: str | Path | None, log: Callable[[str], None]) -> None:
    """Say how large the model is, and where it goes."""
    log(f"model     {preset}: {model.num_parameters():,} parameters, on {next(model.parameters()).device}")
    if output is not None:
        log(f"output    {output}")
