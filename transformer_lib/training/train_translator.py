"""A corpus in, a translator out: the whole way in one call. It also tunes the search on the validation split."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from transformer_lib.checkpoint import MODEL_FILE, load_model, save_model
from transformer_lib.data.batches import PairDataset, build_vocabularies, make_dataset
from transformer_lib.data.corpora import CORPORA, Corpus, Pair
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference.bleu import score
from transformer_lib.inference.translator import Translator
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.loop import History
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
    min_freq: int | None = None,
    log: Callable[[str], None] = print,
    lower: bool = True,
    on_epoch: Callable[[History], None] | None = None,
    **changes: Any,
) -> Translator:
    """Build vocabularies from a corpus's training split and a model for them, and train it.

    Pairs that cannot be used are left out: those with too many tokens for the model, for example; ``log`` hears of it.

    Args:
        corpus: with the splits ``train`` and ``val``.
        preset: the model; one of ``PRESETS``.
        recipe: how to train; by default, the one that is named like the preset. A corpus of your own is then cut into
            subwords, as many as ``train_subwords`` chooses, unless ``subwords`` or ``min_freq`` is given.
        output, resume: as in ``fit``.
        device: where to train; see ``pick_device``.
        min_freq: a word must occur this often in the training split to get an id of its own (2). Not for subwords.
        log: called with a line for each thing that happens, in the first of several processes.
        lower: make everything lower case; German nouns, for example, need their capitals.
        on_epoch: as in ``fit``, whose history the translator keeps as ``history``.
        changes: fields of the preset's ``TransformerConfig`` or ``Recipe`` that are to be different, such as
            ``d_model=128`` or ``epochs=3``.

    Raises:
        ValueError, OSError, FloatingPointError: as ``fit``; or most sentences do not fit the model, or one of
            ``changes`` is no such field.
        CorpusError: the corpus is unavailable.
    """
    config_changes, recipe_changes = _sorted_changes(changes)
    if "batch_size" in changes:
        if changes.get("max_tokens"):
            given = f"batch_size is {changes['batch_size']} and max_tokens is {changes['max_tokens']}"
            raise ValueError(f"{given}, expected one of them: they measure the same in two units")
        recipe_changes["max_tokens"] = 0  # in which a preset may measure batches
    shape = TransformerConfig.preset(preset, 2, 2, **config_changes)  # how large the vocabularies will be is not known
    # words or a number of subwords, if anybody has said so; else, a corpus of your own gets subwords that suit its size
    suits_corpus = corpus.source not in CORPORA and recipe is None and min_freq is None and "subwords" not in changes
    recipe = replace(recipe or RECIPES[preset], **recipe_changes)
    suits_corpus = suits_corpus and not recipe.subwords
    if recipe.subwords and min_freq is not None:
        raise ValueError(f"min_freq is {min_freq}, which is for words, but there will be {recipe.subwords} subwords")
    log = log if distributed.is_first() else lambda line: None
    device = pick_device(str(device))
    seed_everything(recipe.seed)

    if recipe.subwords or suits_corpus:
        pieces = train_subwords(corpus["train"], recipe.subwords or None, lower)
        src_tokenizer, tgt_tokenizer = (SubwordTokenizer(code, pieces, lower) for code in (corpus.src, corpus.tgt))
        recipe = replace(recipe, subwords=len(src_tokenizer.vocab))
    else:
        src_tokenizer, tgt_tokenizer = (WordTokenizer(code, lower) for code in (corpus.src, corpus.tgt))
    train_set, val_set = (
        dataset_of_split(
            corpus, split, lambda pairs: make_dataset(pairs, src_tokenizer, tgt_tokenizer, shape.max_len, log)
        )
        for split in ("train", "val")
    )
    if not recipe.subwords:
        build_vocabularies(train_set, 2 if min_freq is None else min_freq, joint=shape.tie_embeddings)
        _warn_of_unknown_words(train_set, log)
    sizes = len(src_tokenizer.vocab), len(tgt_tokenizer.vocab)
    model = Transformer(TransformerConfig.preset(preset, *sizes, **config_changes)).to(device)
    log(f"corpus    {corpus.name}: {len(train_set):,} pairs to train on, {len(val_set):,} to validate")
    kind = "subwords " if recipe.subwords else "words    "
    log(f"{kind} {sizes[0]:,} {corpus.src} and {sizes[1]:,} {corpus.tgt} types")
    log_model(preset, model, output, log)

    notes = {"corpus": corpus.source, "preset": preset}
    history = fit(model, train_set, val_set, recipe, output, resume, notes, on_epoch=on_epoch, log=log)
    translator = Translator(model, src_tokenizer, tgt_tokenizer)
    translator.history = history
    if recipe.beam_size > 1:
        scores = tune_length_penalty(translator, val_set.pairs, recipe.beam_size)
        tried = ", ".join(f"{length_penalty} {value:.2f}" for length_penalty, value in scores.items())
        log(f"beam {recipe.beam_size}, BLEU on val by length penalty: {tried}")
        if output is not None and distributed.is_first():
            saved = load_model(output)
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


def _sorted_changes(changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell the configuration's fields from the recipe's."""
    names = [{field.name for field in fields(kind)} for kind in (TransformerConfig, Recipe)]
    names[0] -= {"src_vocab_size", "tgt_vocab_size", "pad_id"}  # they follow from the corpus
    if unknown := changes.keys() - names[0] - names[1]:
        close = difflib.get_close_matches(min(unknown), names[0] | names[1], 1) or ["d_model=128"]
        raise ValueError(
            f"changes holds {min(unknown)!r}, expected fields of TransformerConfig or Recipe, such as {close[0]}"
        )
    config, recipe = ({name: value for name, value in changes.items() if name in known} for known in names)
    return config, recipe


def _warn_of_unknown_words(dataset: PairDataset, log: Callable[[str], None]) -> None:
    """Say if the vocabularies have so few words that little can be learned."""
    for side, tokenizer in dataset.tokenizers.items():
        words = len(tokenizer.vocab) - len(tokenizer.specials)
        tokens = [token for example in dataset.examples for token in getattr(example, side)]
        unknown = sum(token not in tokenizer.vocab for token in tokens) / len(tokens)
        if words < 50 or unknown > 0.2:
            log(
                f"warning   {side}: {words:,} words in the vocabulary, so that {unknown:.0%} of the text is <unk>; "
                "a lower min_freq, or subwords, or more text would help"
            )
