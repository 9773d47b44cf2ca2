"""The command line: ``transformer-lib train · translate · train-lm · generate · evaluate · export · …``."""

import argparse
import dataclasses
import math
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

import torch

import transformer_lib
from transformer_lib.checkpoint import MODEL_FILE, SHIPPED_MODEL, SavedModel, load_model, save_model
from transformer_lib.console import log, read_lines, try_it
from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.corpora import CORPORA, CorpusError, Pair, cache_folder, load_corpus
from transformer_lib.data.tokenizers import UNK, one_line
from transformer_lib.files import STATE_FILE, CheckpointError
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.ctranslate2 import to_ctranslate2
from transformer_lib.language_model.generator import TextGenerator
from transformer_lib.language_model.model import TransformerLanguageModel
from transformer_lib.language_model.stream import BPTTBatches, make_stream
from transformer_lib.language_model.texts import TEXTS, load_text
from transformer_lib.language_model.train import train_language_model
from transformer_lib.options import parser
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device
from transformer_lib.training.loop import evaluate, perplexity
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, Recipe
from transformer_lib.training.train_translator import train_translator

# what a user can do something about; the rest are mistakes in this library, and keep their traceback
_ERRORS = CorpusError, CheckpointError, ValueError, OSError, ImportError, ArithmeticError, torch.OutOfMemoryError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for an error, 2 for wrong usage (``__main__``: 130 for Ctrl-C)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows no "ä" shows "?"; a file or a pipe loses nothing
            stream.reconfigure(errors="replace", **({} if stream.isatty() else {"encoding": "utf-8"}))
    commands = {"train": train, "translate": translate, "train-lm": train_lm, "generate": generate}
    commands |= {"evaluate": evaluate_model, "export": export, "download": download, "info": info}
    options = parser().parse_args(arguments)
    try:
        commands[options.command](options)
    except BrokenPipeError:  # whoever reads the output has had enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except _ERRORS as error:
        reason = " ".join(str(error).split())
        if isinstance(error, torch.OutOfMemoryError):
            reason = f"{reason.split('. ')[0]}; try a smaller --batch-size"
        print(one_line(f"transformer-lib {options.command}: error: {reason}"), file=sys.stderr)
        return 1
    return 0


def train(options: argparse.Namespace) -> None:
    """Train a model, then score it on the corpus's first test split."""
    names = ("epochs", "batch_size", "max_tokens", "learning_rate", "precision", "compile", "subwords", "seed")
    changes = _given(options, *names)
    if twice := changes.keys() & dict(options.set).keys():
        name = min(twice)
        raise ValueError(f"--{name.replace('_', '-')} and --set {name} say the same: give one of them")
    changes |= dict(options.set)
    for_multi30k = options.preset.startswith("multi30k_")
    corpus = load_corpus(options.corpus or ("multi30k" if for_multi30k else "sample"), options.src, options.tgt)
    for split in corpus.splits[:3]:
        corpus[split]  # what cannot be read is better reported before training than after it
    preset = options.preset.removeprefix("multi30k_") if corpus.name == "multi30k" else options.preset
    output = options.output or Path("runs") / f"{corpus.name}-{preset}"
    run = {"output": output, "resume": options.resume, "device": options.device, **_given(options, "min_freq")}
    translator = train_translator(corpus, options.preset, log=log, lower=not options.cased, **run, **changes)
    if not distributed.is_first():
        return
    for split in corpus.splits[2:3]:
        for pair in _print_scores(translator, corpus[split], split, options)[:3]:
            print(f"\n  {options.src}  {one_line(pair.src)}\n  {options.tgt}  {one_line(translator(pair.src))}")
    try_it("translate", output, min((pair.src for pair in corpus["val"][:10]), key=len))


def translate(options: argparse.Namespace) -> None:
    """Translate the sentences given, or the lines of a file or of the standard input, as they come."""
    for sentence in options.sentences:
        _refuse(options, "is for the lines of a file, but there are sentences as well", "input")
        if os.path.isfile(sentence):  # unlike Path.is_file, also where it is too long for a name
            print(one_line(f"{sentence} is a file, translated as a sentence: did you mean --input?"), file=sys.stderr)
    if options.input and str(options.input) != "-" and (options.input.is_dir() or not options.input.exists()):
        raise ValueError(f"--input is {options.input}, expected a file that exists, or - for the standard input")
    saved = load_model(options.model or SHIPPED_MODEL, device=pick_device(options.device))
    translator = _translator(saved, options)
    blocks = [options.sentences] if options.sentences else read_lines(translator, options.input)
    progress = sys.stderr.isatty() and not sys.stdout.isatty() and not options.sentences
    if with_attention := options.attention is not None:
        blocks = [[line for block in blocks for line in block]]
        if (number := len(list(filter(None, blocks[0])))) != 1:
            raise ValueError(f"--attention draws one sentence, but there are {number}")
    done = unusable = 0
    try:
        for block in blocks:
            wanted = block if options.sentences else list(filter(None, block))
            translations = translator.translate(wanted, attention=with_attention)
            remaining = iter(translations)
            for line in block:  # empty ones stay empty
                translation = next(remaining) if options.sentences or line else None
                scores = f"\t{translation.log_prob:.3f}" if translation and options.scores else ""
                print(one_line(translation.text if translation else "") + scores)
            done, unusable = done + len(block), unusable + block.count(None)
            sys.stdout.flush()  # an interruption loses nothing of this
            if progress:
                print(f"{done:,} lines", end="\r", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"{done:,} lines translated", file=sys.stderr)
        raise
    finally:
        if progress:
            print(file=sys.stderr)
    if with_attention:
        from transformer_lib.notebook import plots  # matplotlib takes a while to load

        plots.save(plots.attention_heads(translations[0]), options.attention)
        print(f"attention of the last layer: {options.attention}", file=sys.stderr)
    if unusable:
        raise ValueError(f"{unusable} of {done} lines could not be used, see above; their lines stay empty")


def train_lm(options: argparse.Namespace) -> None:
    """Train a language model, then score it on the text's first test split."""
    names = ("epochs", "batch_size", "bptt", "learning_rate", "seed")
    recipe = dataclasses.replace(LANGUAGE_MODEL_RECIPES[options.preset], **_given(options, *names))
    text = load_text(options.corpus, options.language)
    output = options.output or Path("runs") / f"{text.name}-{options.preset}-lm"
    for split in text.splits[:3]:
        text[split]  # a missing file is better reported before training than after it
    run = {"output": output, "resume": options.resume, "device": options.device, **_given(options, "min_freq")}
    generator = train_language_model(text, options.preset, recipe, log=log, **run)
    if not distributed.is_first():
        return
    for split in text.splits[2:3]:
        _print_perplexity(generator, text[split], f"{text.name} {split}", recipe.batch_size)
    word = next((token for token in generator.tokenizer.vocab.itos if token.isalpha()), UNK)
    try_it("generate", output, word)


def generate(options: argparse.Namespace) -> None:
    """Continue a text."""
    generator = TextGenerator.load(options.model, device=pick_device(options.device))
    text = generator(options.prompt, options.length, options.temperature, options.top_k, options.seed)
    print("\n".join(one_line(line) for line in text.split("\n")))


def evaluate_model(options: argparse.Namespace) -> None:
    """Print perplexity, and of a translator BLEU, on a split that the model was not trained on."""
    saved = load_model(options.model or SHIPPED_MODEL, device=pick_device(options.device))
    name = saved.notes.get("corpus", "pairs")  # two files are two lines
    if not options.corpus and name == "pairs":  # which load_corpus calls a list
        raise ValueError("the model does not say what it was trained on, or that was a list: give --corpus")
    if not options.corpus and any(path.startswith(("\\\\", "//")) for path in name.splitlines()):
        # an untrusted model must not make us log in there
        raise ValueError(f"the model was trained on {name!r}, which is on another machine: say so with --corpus")
    if isinstance(saved.model, TransformerLanguageModel):
        only = ("precision", "beam_size", "length_penalty", "sacrebleu_tokenize", "chrf")
        _refuse(options, "needs a translator, but this model is a language model", *only)
        if options.corpus and len(options.corpus) > 1:
            raise ValueError(f"--corpus has {len(options.corpus)} files, but a language model reads one text")
        tokenizer = saved.tokenizers["text"]
        text = load_text(options.corpus[0] if options.corpus else name, tokenizer.language)
        split = options.split or text.splits[2 if len(text.splits) > 2 else 1]
        batch_size = Recipe(batch_size=saved.notes.get("recipe", {}).get("batch_size", Recipe.batch_size)).batch_size
        _print_perplexity(TextGenerator(saved.model, tokenizer), text[split], f"{text.name} {split}", batch_size)
        return
    translator = _translator(saved, options)
    corpus = load_corpus(options.corpus or name, translator.src_tokenizer.language, translator.tgt_tokenizer.language)
    split = options.split or corpus.splits[2 if len(corpus.splits) > 2 else 1]
    _print_scores(translator, corpus[split], f"{corpus.name} {split}", options)


def export(options: argparse.Namespace) -> None:
    """Write a model for others: in half precision, or for CTranslate2."""
    source = options.model or SHIPPED_MODEL
    saved, file, model = load_model(source), options.file.resolve(), source.resolve()
    if file in (model, model / MODEL_FILE) or (file / MODEL_FILE).exists() or (file.parent / STATE_FILE).exists():
        raise ValueError(f"{file} is a model itself, or a training's, which would be lost (usage: export MODEL FILE)")
    if file.is_file():  # perhaps a model whose copy was to be named as well
        raise FileExistsError(f"{file} exists: name a new file, or remove it first (usage: export MODEL FILE)")
    if options.to != "ctranslate2":
        _refuse(options, "is for --to ctranslate2", "quantization")
    if options.to == "safetensors":
        save_model(options.file, saved.model, saved.tokenizers, _shareable(saved.notes), dtype=torch.float16)
    else:
        to_ctranslate2(Translator.from_saved(saved), options.file, options.quantization or "float32")
    files = options.file.iterdir() if options.file.is_dir() else [options.file]
    if size := sum(one.stat().st_size for one in files):  # a pipe has none, and only the model must go through it
        log(f"{options.file}: {size / 1e6:.1f} MB, from {source}")


def _shareable(notes: dict[str, Any]) -> dict[str, Any]:
    """Return notes without the path of a corpus: whoever gets a model need not know where yours is."""
    if "corpus" not in notes:
        return notes
    names = notes["corpus"].split("\n")  # two files are two lines
    paths = map(PureWindowsPath, names)  # which understands other systems' paths, too
    hidden = (f"…/{path.name}" if path.anchor else name for path, name in zip(paths, names, strict=True))
    return {**notes, "corpus": "\n".join(hidden)}


def download(options: argparse.Namespace) -> None:
    """Fetch a corpus into the cache folder, so that it can be used without a network later."""
    in_pairs = options.corpus in CORPORA
    corpus = load_corpus(options.corpus) if in_pairs else load_text(options.corpus)
    for split in corpus.splits:
        print(f"{split:20} {len(corpus[split]):6,} {'pairs' if in_pairs else 'lines'}", flush=True)
    print(f"in {cache_folder()}")


def info(options: argparse.Namespace) -> None:
    """Describe this installation, or a model."""
    if options.model is None:
        print(f"transformer-lib {transformer_lib.__version__}, torch {torch.__version__}, device {pick_device()}")
        print(f"Python {platform.python_version()} on {platform.platform()}")
        print(f"corpora: {', '.join(dict.fromkeys((*CORPORA, *TEXTS)))}; downloads are kept in {cache_folder()}")
        return
    saved = load_model(options.model)
    print(f"{saved.model.num_parameters():,} parameters")
    for name, tokenizer in saved.tokenizers.items():
        case = "lower case" if tokenizer.lower else "with capitals"
        log(f"{name}: {type(tokenizer).__name__}, {tokenizer.language}, {case}, {len(tokenizer.vocab):,} types")
    for section, values in (("configuration", dataclasses.asdict(saved.model.config)), *saved.notes.items()):
        log(section)
        for key, value in values.items() if isinstance(values, dict) else [("", values)]:
            log(f"  {key:18} {value}")


def _translator(saved: SavedModel, options: argparse.Namespace) -> Translator:
    """Make a translator that searches as the options say, or else as the model's notes do."""
    translator = Translator.from_saved(saved, options.precision)
    vars(translator).update(_given(options, "beam_size", "length_penalty"))
    if translator.beam_size == 1:
        _refuse(options, "is for a beam, but the search is greedy (see --beam-size)", "length_penalty")
    return translator


def _print_scores(translator: Translator, pairs: list[Pair], name: str, options: argparse.Namespace) -> Sequence[Pair]:
    """Print perplexity and BLEU on those pairs that the model has room for, and return them."""
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    dataset = make_dataset(pairs, *tokenizers, translator.model.config.max_len, log)
    pairs = dataset.pairs
    device = next(translator.model.parameters()).device
    loss = evaluate(translator.model, BucketBatches(dataset, 128, device=device))
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss}: are the model's weights damaged?")
    translations = translator.translate([pair.src for pair in pairs])
    texts, references = [translation.text for translation in translations], [pair.tgt for pair in pairs]
    scores = bleu.score(translations, references, translator.tgt_tokenizer, options.sacrebleu_tokenize)
    beam = f"beam {translator.beam_size}, length penalty {translator.length_penalty}"
    search = "greedy" if translator.beam_size == 1 else beam
    log(f"{name}: {len(pairs):,} pairs, perplexity {perplexity(loss):.3f}")
    for score in scores:
        print(f"BLEU, {search}: {score}")
    if options.chrf:
        print(f"chrF, {search}: {bleu.chrf(texts, references, translator.tgt_tokenizer.lower)}")
    return pairs


def _print_perplexity(generator: TextGenerator, lines: list[str], name: str, batch_size: int) -> None:
    stream = make_stream(lines, generator.tokenizer)
    tokens = stream.tokens
    unknown = sum(generator.tokenizer.vocab[token] == generator.tokenizer.vocab[UNK] for token in tokens)
    device = next(generator.model.parameters()).device
    batch_size = max(1, min(batch_size, len(tokens) // 2))
    loss = evaluate(generator.model, BPTTBatches(stream, batch_size, generator.model.config.max_len, device))
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss}: are the model's weights damaged?")
    log(
        f"{name}: {len(tokens):,} tokens, {unknown / len(tokens):.1%} of them {UNK}, loss {loss:.3f}, "
        f"perplexity {perplexity(loss):.2f}"
    )


def _refuse(options: argparse.Namespace, why: str, *names: str) -> None:
    """Raise a ValueError if one of these options was given: it would have no effect."""
    for name in names:
        value = getattr(options, name)
        if not (value is None or value is False or (name, value) == ("precision", "float32")):  # its default
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return those of these options that were given."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}
