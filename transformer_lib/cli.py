"""The command line: ``transformer-lib train · translate · train-lm · generate · evaluate · export · …``."""

import argparse
import codecs
import dataclasses
import math
import os
import platform
import shlex
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import transformer_lib
from transformer_lib.checkpoint import MODEL_FILE, SHIPPED_MODEL, SavedModel, load_model, save_model
from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.corpora import CORPORA, CorpusError, Pair, cache_folder, load_corpus
from transformer_lib.data.tokenizers import UNK
from transformer_lib.files import STATE_FILE, CheckpointError, check_writable, replace_file
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translator
from transformer_lib.language_model.generator import TextGenerator
from transformer_lib.language_model.model import TransformerLanguageModel
from transformer_lib.language_model.stream import BPTTBatches, make_stream
from transformer_lib.language_model.texts import TEXTS, load_text
from transformer_lib.language_model.train import train_language_model
from transformer_lib.model.config import PRESETS, TransformerConfig
from transformer_lib.model.transformer import Transformer
from transformer_lib.options import parser
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device
from transformer_lib.training.loop import evaluate, perplexity
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, RECIPES, Recipe
from transformer_lib.training.train_translator import train_translator


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for an error, 2 for wrong usage (``__main__``: 130 for Ctrl-C)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows no "ä" shows "?", and nothing is lost
            stream.reconfigure(errors="replace")
    commands = {"train": train, "translate": translate, "train-lm": train_lm, "generate": generate}
    commands |= {"evaluate": evaluate_model, "export": export, "download": download, "info": info}
    options = parser(commands).parse_args(arguments)
    try:
        options.run(options)
    except BrokenPipeError:  # whoever reads the output has had enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CorpusError, CheckpointError, ValueError, OSError, FloatingPointError, torch.OutOfMemoryError) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, torch.OutOfMemoryError):
            reason = f"{reason.split('. ')[0]}; try a smaller --batch-size"
        print(_one_line(f"transformer-lib {options.command}: error: {reason}"), file=sys.stderr)
        return 1
    return 0


def train(options: argparse.Namespace) -> None:
    """Train a model, then score it on the corpus's first test split."""
    names = ("epochs", "batch_size", "max_tokens", "learning_rate", "precision", "compile", "subwords", "seed")
    recipe = dataclasses.replace(RECIPES[options.preset], **_given(options, *names))
    if options.batch_size is not None:
        _refuse(options, "says the same in another unit as --batch-size: give one of them", "max_tokens")
        recipe = dataclasses.replace(recipe, max_tokens=0)
    if recipe.subwords:
        _refuse(options, f"is for words, but there will be {recipe.subwords} subwords (see --subwords)", "min_freq")
    for_multi30k = options.preset.startswith("multi30k_")
    name = options.corpus or ("multi30k" if for_multi30k else "sample")
    corpus = load_corpus(name, options.src, options.tgt)
    preset = options.preset.removeprefix("multi30k_") if corpus.name == "multi30k" else options.preset
    output = options.output or Path("runs") / f"{corpus.name}-{preset}"
    run = {"output": output, "resume": options.resume, "device": options.device, **_given(options, "min_freq")}
    translator = train_translator(corpus, options.preset, recipe, log=_log, **run)
    if not distributed.is_first():
        return
    for split in corpus.splits[2:3]:
        pairs = corpus[split]
        _print_scores(translator, pairs, split)
        for pair in pairs[:3]:
            print(f"\n  {options.src}  {_one_line(pair.src)}\n  {options.tgt}  {_one_line(translator(pair.src))}")
    _try_it("translate", output, corpus["val"][0].src)


def translate(options: argparse.Namespace) -> None:
    """Translate the sentences given, or the lines of the standard input."""
    saved = load_model(options.model or SHIPPED_MODEL, device=pick_device(options.device))
    translator = _translator(saved, options)
    sentences, unusable = (options.sentences, 0) if options.sentences else _standard_input(translator)
    wanted = sentences if options.sentences else [line for line in sentences if not _is_empty(line)]
    with_attention = options.attention is not None
    if with_attention and len(wanted) != 1:
        raise ValueError(f"--attention draws one sentence, but there are {len(wanted)}")
    translations = translator.translate(wanted, attention=with_attention)
    remaining = iter(translations)
    for sentence in sentences:
        if options.sentences or not _is_empty(sentence):
            translation = next(remaining)
            print(_one_line(translation.text) + (f"\t{translation.log_prob:.3f}" if options.scores else ""))
        else:
            print()  # empty lines of the standard input stay empty
    if with_attention:
        from transformer_lib.notebook import plots  # matplotlib takes a while to load

        plots.save(plots.attention_heads(translations[0]), options.attention)
        print(f"attention of the last layer: {options.attention}", file=sys.stderr)
    if unusable:
        raise ValueError(f"{unusable} of {len(sentences)} lines could not be used, see above; their lines stay empty")


def train_lm(options: argparse.Namespace) -> None:
    """Train a language model, then score it on the text's first test split."""
    names = ("epochs", "batch_size", "bptt", "learning_rate", "seed")
    recipe = dataclasses.replace(LANGUAGE_MODEL_RECIPES[options.preset], **_given(options, *names))
    text = load_text(options.corpus, options.language)
    output = options.output or Path("runs") / f"{text.name}-{options.preset}-lm"
    for split in text.splits[:3]:
        text[split]  # a missing file is better reported before training than after it
    run = {"output": output, "resume": options.resume, "device": options.device, **_given(options, "min_freq")}
    generator = train_language_model(text, options.preset, recipe, log=_log, **run)
    if not distributed.is_first():
        return
    for split in text.splits[2:3]:
        _print_perplexity(generator, text[split], f"{text.name} {split}", recipe.batch_size)
    word = next((token for token in generator.tokenizer.vocab.itos if token.isalpha()), UNK)
    _try_it("generate", output, word)


def generate(options: argparse.Namespace) -> None:
    """Continue a text."""
    generator = TextGenerator.load(options.model, device=pick_device(options.device))
    text = generator(options.prompt, options.length, options.temperature, options.top_k, options.seed)
    print("\n".join(_one_line(line) for line in text.split("\n")))


def evaluate_model(options: argparse.Namespace) -> None:
    """Print perplexity, and of a translator BLEU, on a split that the model was not trained on."""
    saved = load_model(options.model or SHIPPED_MODEL, device=pick_device(options.device))
    name = options.corpus or saved.notes.get("corpus", "sample")
    if not options.corpus and name.startswith(("\\\\", "//")):  # an untrusted model must not make us log in there
        raise ValueError(f"the model was trained on {name!r}, which is on another machine: say so with --corpus")
    if isinstance(saved.model, TransformerLanguageModel):
        only = ("translations", "precision", "beam_size", "length_penalty")
        _refuse(options, "needs a translator, but this model is a language model", *only)
        tokenizer = saved.tokenizers["text"]
        text = load_text(name, tokenizer.language)
        split = options.split or text.splits[2 if len(text.splits) > 2 else 1]
        batch_size = Recipe(batch_size=saved.notes.get("recipe", {}).get("batch_size", Recipe.batch_size)).batch_size
        _print_perplexity(TextGenerator(saved.model, tokenizer), text[split], f"{text.name} {split}", batch_size)
        return
    translator = _translator(saved, options)
    if options.translations is not None:
        check_writable(options.translations)  # better known before than after
    corpus = load_corpus(name, translator.src_tokenizer.language, translator.tgt_tokenizer.language)
    split = options.split or corpus.splits[2 if len(corpus.splits) > 2 else 1]
    texts = _print_scores(translator, corpus[split], f"{corpus.name} {split}")
    if options.translations is not None:
        replace_file(options.translations, "".join(f"{_one_line(text)}\n" for text in texts).encode())


def export(options: argparse.Namespace) -> None:
    """Write a model's weights in half precision, so that the file is half as large."""
    saved = load_model(options.model)
    file, model = options.file.resolve(), options.model.resolve()
    if file in (model, model / MODEL_FILE) or (file.parent / STATE_FILE).exists():
        raise ValueError(f"{file} is the model itself, or a training's, which would be lost: name another file")
    corpus = Path(saved.notes.get("corpus", "sample"))  # whoever gets the file need not know where yours is
    notes = {**saved.notes, "corpus": f"…/{corpus.name}" if corpus.is_absolute() else str(corpus)}
    save_model(options.file, saved.model, saved.tokenizers, notes, dtype=torch.float16)
    print(f"{options.file}: {options.file.stat().st_size / 1e6:.1f} MB")


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
        print(f"language model presets: {', '.join(LANGUAGE_MODEL_RECIPES)}")
        print("translator presets, with their parameters (10,000 types a side):")
        for name in PRESETS:
            with torch.device("meta"):  # shapes without numbers
                model = Transformer(TransformerConfig.preset(name, 10_000, 10_000))
            print(f"  {name:14} {model.num_parameters():12,}")
        return
    saved = load_model(options.model)
    print(f"{saved.model.num_parameters():,} parameters")
    for section, values in (("configuration", dataclasses.asdict(saved.model.config)), *saved.notes.items()):
        print(_one_line(section))
        for key, value in values.items() if isinstance(values, dict) else [("", values)]:
            print(_one_line(f"  {key:18} {value}"))


def _translator(saved: SavedModel, options: argparse.Namespace) -> Translator:
    """Make a translator that searches as the options say, or else as the model's notes do."""
    translator = Translator.from_saved(saved, options.precision)
    vars(translator).update(_given(options, "beam_size", "length_penalty"))
    if translator.beam_size == 1:
        _refuse(options, "is for a beam, but the search is greedy (see --beam-size)", "length_penalty")
    return translator


def _print_scores(translator: Translator, pairs: list[Pair], name: str) -> list[str]:
    dataset = make_dataset(pairs, translator.src_tokenizer, translator.tgt_tokenizer, translator.model.config.max_len)
    device = next(translator.model.parameters()).device
    loss = evaluate(translator.model, BucketBatches(dataset, 128, device=device))
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss}: are the model's weights damaged?")
    translations = translator.translate([pair.src for pair in pairs])
    scores = bleu.score(translations, [pair.tgt for pair in pairs], translator.tgt_tokenizer)
    beam = f"beam {translator.beam_size}, length penalty {translator.length_penalty}"
    search = "greedy" if translator.beam_size == 1 else beam
    _log(f"{name}: {len(pairs):,} pairs, perplexity {perplexity(loss):.3f}")
    for score in scores:
        print(f"BLEU, {search}: {score}")
    return [translation.text for translation in translations]


def _print_perplexity(generator: TextGenerator, lines: list[str], name: str, batch_size: int) -> None:
    stream = make_stream(lines, generator.tokenizer)
    tokens = stream.tokens
    unknown = sum(generator.tokenizer.vocab[token] == generator.tokenizer.vocab[UNK] for token in tokens)
    device = next(generator.model.parameters()).device
    batch_size = max(1, min(batch_size, len(tokens) // 2))
    loss = evaluate(generator.model, BPTTBatches(stream, batch_size, generator.model.config.max_len, device))
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss}: are the model's weights damaged?")
    _log(
        f"{name}: {len(tokens):,} tokens, {unknown / len(tokens):.1%} of them {UNK}, loss {loss:.3f}, "
        f"perplexity {perplexity(loss):.2f}"
    )


def _standard_input(translator: Translator) -> tuple[list[str], int]:
    """Read lines, in UTF-8 whatever the locale says. Those that cannot be used are named, counted and left empty."""
    if sys.stdin is None:
        raise ValueError("the standard input is closed, expected sentences there, or as arguments")
    lines, unusable = [], 0
    for number, line in enumerate(sys.stdin.buffer.read().removeprefix(codecs.BOM_UTF8).splitlines(), start=1):
        text = ""
        try:
            text = line.decode().strip()
            if not _is_empty(text):
                if "\0" in text:
                    raise ValueError("it holds zero bytes, as UTF-16 does: convert it first")
                translator.source_tokens(text)
        except ValueError as error:
            text, unusable = "", unusable + 1
            reason = f"it is not UTF-8 ({error.reason}): convert it first" if hasattr(error, "reason") else error
            print(_one_line(f"line {number}: {reason}"), file=sys.stderr)
        lines.append(text)
    return lines, unusable


def _is_empty(line: str) -> bool:
    """Say whether there is nothing in a line but spaces, and letters that nobody sees."""
    return all(unicodedata.category(letter)[0] in "ZC" for letter in line)


def _one_line(text: str) -> str:
    """Return a text without control characters: an untrusted model could make a terminal do more than print."""
    return "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in text)


def _refuse(options: argparse.Namespace, why: str, *names: str) -> None:
    """Raise a ValueError if one of these options was given: it would have no effect."""
    for name in names:
        if getattr(options, name) not in (None, "float32"):  # the default of --precision
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return those of these options that were given."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _try_it(command: str, output: Path, text: str) -> None:
    """Print a command that can be pasted as it is, whatever is in the text."""
    print("\nTry it:  ", _one_line(shlex.join(["transformer-lib", command, "--model", str(output), text])))


def _log(line: str) -> None:
    print(_one_line(line), flush=True)  # a folder may be called anything
