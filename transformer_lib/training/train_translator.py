"""A corpus in, a translator out: the whole way in one call. It also tunes the search on the validation split."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.batches import PairDataset, build_vocabularies, make_dataset
from transformer_lib.data.corpora import CORPORA, Corpus, Pair
from transformer_lib.data.prepared import PreparedDataset
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.files import say
from transformer_lib.inference.bleu import score
from transformer_lib.inference.translator import Translator
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.recipe import RECIPES, Recipe
from transformer_lib.training.trainer import RunFolder, fit


def train_translator(
    corpus: Corpus,
    preset: str = "small",
    recipe: Recipe | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    device: torch.device | str = "auto",
    min_freq: int | None = None,
    log: Callable[[str], None] = say,
    lower: bool = True,
    **changes: Any,
) -> Translator:
    """Build vocabularies from a corpus's training split and a model for them, and train it.

    Pairs that cannot be used are left out: those with too many tokens for the model, for example; ``log`` hears of it.

    Args:
        corpus: with the splits ``train`` and ``val``; or one that ``prepare`` has written, for millions of pairs.
        preset: the model; one of ``PRESETS``.
        recipe: how to train; by default, the one that is named like the preset. A corpus of your own then gets as many
            subwords as ``train_subwords`` chooses, unless ``subwords`` or ``min_freq`` is given.
        output, resume, log: as in ``fit``, whose history is in the saved model's notes.
        device: where to train; see ``pick_device``.
        min_freq: a word must occur this often in the training split to get an id of its own (2); then, no subwords.
        lower: make everything lower case; German nouns, for example, need their capitals.
        changes: fields of the preset's ``TransformerConfig`` or ``Recipe`` that are to be different, such as
            ``d_model=128`` or ``epochs=3``.

    Raises what ``fit`` raises, and a ValueError if most pairs cannot be used, a change is impossible, or a prepared
    corpus was prepared otherwise.
    """
    changes_recipe = {} if min_freq is None else {"subwords": 0}
    changes_recipe |= {field.name: changes.pop(field.name) for field in fields(Recipe) if field.name in changes}
    if "batch_size" in changes_recipe:
        changes_recipe.setdefault("max_tokens", 0)  # in which a preset may measure batches
    # a corpus of your own gets subwords that suit its size, unless anybody has said what its tokens are to be
    is_own = corpus.source not in [(name,) for name in CORPORA] and recipe is None
    suits_size = is_own and min_freq is None and "subwords" not in changes_recipe
    if {"src_vocab_size", "tgt_vocab_size"} & changes.keys():
        raise ValueError(f"changes are {changes}, but the corpus decides src_vocab_size and tgt_vocab_size")
    shape = TransformerConfig.preset(preset, 2, 2, **changes)  # how large the vocabularies will be is not known
    recipe = replace(recipe or RECIPES[preset], **changes_recipe)
    log = log if distributed.is_first() else lambda line: None
    device = pick_device(str(device))
    folder = RunFolder(output)
    if not resume:
        folder.refuse_another_run()
    seed_everything(recipe.seed)

    if corpus.prepared:
        train_set = PreparedDataset(corpus.source[0], shape.max_len, log)
        wanted = {"src": corpus.src, "lower": lower, "min_freq": min_freq, **changes_recipe}
        _check_preparation(train_set, corpus, wanted)
    else:
        subwords = recipe.subwords or (None if suits_size else 0)
        train_set = _tokenise(corpus, subwords, lower, 2 if min_freq is None else min_freq, shape, log)
    tokenizers = list(train_set.tokenizers.values())
    val_set = make_dataset(corpus["val"], *tokenizers, shape.max_len, log)
    sizes = [len(tokenizer.vocab) for tokenizer in tokenizers]
    if not tokenizers[0].whole_words:
        recipe = replace(recipe, subwords=sizes[0])
    model = Transformer(TransformerConfig.preset(preset, *sizes, **changes)).to(device)
    log(f"corpus    {corpus.name}: {len(train_set):,} pairs to train on, {len(val_set):,} to validate")
    log(f"{'subwords' if recipe.subwords else 'words':9} {sizes[0]:,} {corpus.src} and {sizes[1]:,} {corpus.tgt} types")
    log(f"model     {preset}: {model.num_parameters():,} parameters, on {device}")

    notes = {"corpus": corpus.source, "preset": preset}
    with folder.lock:  # until the tuned search is saved, too, no other run writes into it
        history = fit(model, train_set, val_set, recipe, folder, resume, notes, log=log)
        translator = Translator(model, *tokenizers)
        if recipe.beam_size > 1:
            folder.notes["search"] = _tune_search(translator, val_set.pairs, recipe.beam_size, log)
            folder.save_best(model, history)
    return translator


def _tokenise(
    corpus: Corpus,
    subwords: int | None,
    lower: bool,
    min_freq: int,
    shape: TransformerConfig,
    log: Callable[[str], None],
) -> PairDataset:
    """Return the training split with its vocabularies: so many subwords (None: as suit its size), or words (0)."""
    languages = corpus.src, corpus.tgt
    if subwords == 0:
        train_set = make_dataset(corpus["train"], *(WordTokenizer(x, lower) for x in languages), shape.max_len, log)
        build_vocabularies(train_set, min_freq, joint=shape.tie_embeddings)
        return train_set
    pieces = train_subwords(corpus["train"], subwords, lower)
    tokenizers = (SubwordTokenizer(language, pieces, lower) for language in languages)
    return make_dataset(corpus["train"], *tokenizers, shape.max_len, log)


def _check_preparation(train_set: PreparedDataset, corpus: Corpus, wanted: dict[str, Any]) -> None:
    """Raise a ValueError if a prepared corpus is not what is wanted of it."""
    tokenizer = train_set.tokenizers["src"]
    prepared = {"src": tokenizer.language, "lower": tokenizer.lower, "min_freq": None, "subwords": len(tokenizer.vocab)}
    for name, value in prepared.items():
        if wanted.get(name) not in (None, value):
            raise ValueError(f"{name} is {wanted[name]}, but {corpus.source[0]} was prepared with {value}")


def _tune_search(
    translator: Translator, pairs: Sequence[Pair], beam_size: int, log: Callable[[str], None]
) -> dict[str, Any]:
    """Let a translator search with what validates best, say what was tried, and return it for the model's notes."""
    scores = tune_length_penalty(translator, pairs, beam_size)
    tried = ", ".join(f"{length_penalty} {value:.2f}" for length_penalty, value in scores.items())
    log(f"beam {beam_size}, BLEU on val by length penalty: {tried}")
    return {"beam_size": translator.beam_size, "length_penalty": translator.length_penalty}


def tune_length_penalty(
    translator: Translator,
    pairs: Sequence[Pair],
    beam_size: int = 4,
    length_penalties: Sequence[float] = (0.0, 0.6, 1.2, 1.8, 2.4, 3.0, 3.6),
) -> dict[float, float]:
    """Find the length penalty whose translations score the highest BLEU, and let the translator search with it.

    ``pairs`` are the validation split: a test split would then measure nothing. Returns BLEU-4 over their words, in
    percent (see ``bleu.score``), for each length penalty; of equals, the first wins.
    """
    scores = {}
    for length_penalty in length_penalties:
        translations = translator.translate([pair.src for pair in pairs], beam_size, length_penalty)
        tokens_bleu, *_ = score(translations, [pair.tgt for pair in pairs], translator.tgt_tokenizer)
        scores[length_penalty] = tokens_bleu.value
    translator.beam_size = beam_size
    translator.length_penalty = max(scores, key=scores.__getitem__)
    return scores
