"""The command line: a function for each command; its arguments are the options, its docstring is the help."""

import argparse
import ast
import inspect
import itertools
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

import transformer_lib
from transformer_lib.checkpoint import SHIPPED_MODEL, load_model, save_model
from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.corpora import CORPORA, CorpusError, cache_folder, load_corpus
from transformer_lib.data.prepared import prepare as write_prepared
from transformer_lib.data.text import two_letters
from transformer_lib.fast.precision import PRECISIONS
from transformer_lib.files import CheckpointError, accept_any_text, one_line, replacing, say
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.ctranslate2 import LARGEST_HALF, largest_weight, to_ctranslate2
from transformer_lib.interop.hugging_face import needed
from transformer_lib.language_model.texts import load_text
from transformer_lib.model.config import TransformerConfig
from transformer_lib.page.writer import to_page
from transformer_lib.training import distributed, loop
from transformer_lib.training.device import pick_device
from transformer_lib.training.recipe import RECIPES, Recipe
from transformer_lib.training.train_translator import train_translator

_STANDARD_INPUT = Path("-")
_LARGE = 1_000_000  # pairs that ``train`` takes unless they are prepared
_MODEL_FIELDS = {field.name for field in fields(TransformerConfig)}
_FIELDS = _MODEL_FIELDS | {field.name for field in fields(Recipe)}
_FIELDS -= {"bptt", "init_bias_from_unigrams"}  # a language model's
# what a user can do something about; the rest are mistakes in this library, and keep their traceback
_ERRORS = CorpusError, CheckpointError, ValueError, OSError, ImportError, ArithmeticError, torch.OutOfMemoryError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    accept_any_text()
    options = vars(parser().parse_args(arguments))
    command = options.pop("command")
    try:
        command(**options)
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except _ERRORS as error:
        complain(f"transformer-lib: error: {' '.join(str(error).split())}")
        return 1
    return 0


def log(line: str) -> None:
    """Print a line at once, in the first of several processes, without control characters: a file has any name.

    Unlike ``say``, it fails where a line that somebody has asked for cannot be written: on a full disk, for one.
    """
    if distributed.is_first():
        print(one_line(line), flush=True)


def complain(line: str) -> None:
    """Print a line for a person, apart from what the command prints."""
    print(one_line(line), file=sys.stderr)


def train(
    corpus=(), preset="small", src=None, tgt=None, cased=False, output=None, changes=(), device="auto", **options
):
    """Train a translator, then score it on the corpus's first test split.

    transformer-lib train --corpus text.es text.en --src es --tgt en --set d_model=128 dropout=0.3
    torchrun --nproc-per-node 2 -m transformer_lib train --preset multi30k-fast
    """
    corpus = corpus or ["multi30k" if preset.startswith("multi30k-") else "sample"]
    options |= {"lower": not cased, **dict(changes)}
    data = load_corpus(corpus, *_languages(corpus, src, tgt))
    if not data.prepared and len(data["train"]) > _LARGE:
        raise ValueError(f"corpus has {len(data['train']):,} pairs: prepare it first (transformer-lib prepare)")
    output = output or Path("runs") / f"{data.name}-{preset.removeprefix(f'{data.name}-')}"
    preset = preset.replace("-", "_")
    shape = {name: options[name] for name in _MODEL_FIELDS & options.keys()}
    for name, value in needed(replace(TransformerConfig.preset(preset, 2, 2), **shape)).items():
        log(f"export    to CTranslate2 is possible; to Hugging Face's transformers, if you --set {name}={value}")
    train_translator(data, preset, output=output, device=device, log=say, **options)
    if distributed.is_first():
        evaluate(output, data.source, device=device)
        log("Try it:  " + shlex.join(["transformer-lib", "translate", "--model", str(output), data["val"][0].src]))


def _languages(corpus, src, tgt):
    """Return the languages of a corpus: as they are given, or as the names of two files end, or German and English."""
    languages = []
    for file, given, default in zip(corpus if len(corpus) == 2 else ("", ""), (src, tgt), ("de", "en"), strict=True):
        ending = two_letters(file.removesuffix(".gz").rpartition(".")[2])
        is_code = re.fullmatch("[a-z]{2}", ending)
        language = given or (ending if is_code else default)
        if is_code and ending != two_letters(language):
            log(f"languages {file} is read as {language!r}, though its name ends in .{ending}")
        languages.append(language)
    return languages


def prepare(corpus, output, src=None, tgt=None, cased=False, **options):
    """Tokenise a large corpus once, for training runs that then start at once.

    transformer-lib prepare text.de text.en --output prepared
    transformer-lib train --corpus prepared
    """
    data = load_corpus(corpus, *_languages(corpus, src, tgt))
    write_prepared(data, output, lower=not cased, log=say, **options)


def translate(sentences, model, input, scores=False, attention=None, device="auto", **search):
    """Translate sentences, or the lines of a file or the standard input, a thousand at a time; empty ones stay empty.

    transformer-lib translate --beam-size 4 --attention map.png "Ein Kind schläft."
    transformer-lib translate --input german.txt --scores > english.txt
    """
    if attention and len(sentences) != 1:
        raise ValueError(f"--attention draws one sentence, but there are {len(sentences)}")
    if sentences and input != _STANDARD_INPUT:
        raise ValueError(f"--input is {input}, but there are sentences, too: expected one of both")
    translator = Translator.load(model, device=pick_device(device))
    done = unusable = 0
    for lines in [sentences] if sentences else _read(input):
        texts = []
        for line in lines:
            done += 1
            text = line.strip()
            try:
                if text:
                    translator.source_tokens(text)
            except ValueError as error:
                complain(f"line {done}: {'it is not UTF-8' if isinstance(error, UnicodeError) else error}")
                unusable += 1
                text = ""
            texts.append(text)
        translations = iter(translator.translate([text for text in texts if text], **search))
        for text in texts:
            translation = next(translations) if text else ""
            score = f"\t{translation.log_prob:.3f}" if text and scores else ""
            print(one_line(str(translation)) + score, flush=True)
    if unusable:
        raise ValueError(f"{unusable} of {done} lines could not be used, see above; their lines stay empty")
    if attention:
        from transformer_lib.notebook import plots  # matplotlib takes a while to load

        (translation,) = translator.translate(sentences, **search, attention=True)
        attention.parent.mkdir(parents=True, exist_ok=True)
        with replacing(attention) as temporary:
            plots.attention_heads(translation).savefig(temporary, format=attention.suffix[1:] or "png")


def _read(path: Path) -> Iterator[list[str]]:
    """Yield the lines of a file, or of the standard input (``-``), some at a time; what is typed, at once."""
    with sys.stdin.buffer if path == _STANDARD_INPUT else open(path, "rb") as file:
        while lines := list(itertools.islice(file, 1 if file.isatty() else 1000)):
            yield [line.decode("utf-8-sig", "surrogateescape") for line in lines]  # translators refuse what is no UTF-8


def evaluate(model, corpus=(), split=None, device="auto", **search):
    """Measure perplexity and BLEU on a split that the model was not trained on."""
    device = pick_device(device)
    saved = load_model(model, device=device)
    sources = list(corpus) or trained_on(saved.notes)
    translator = Translator.from_saved(saved)
    vars(translator).update(search)  # beam_size and length_penalty, if they are given
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    corpus = load_corpus(sources, *_languages(sources, *(tokenizer.language for tokenizer in tokenizers)))
    split = split or corpus.splits[:3][-1]
    dataset = make_dataset(corpus[split], *tokenizers, translator.model.config.max_len, log)
    perplexity = loop.perplexity(loop.evaluate(translator.model, BucketBatches(dataset, 128, device=device)))
    log(f"{corpus.name} {split}: {len(dataset):,} pairs, perplexity {perplexity:.3f}")
    translations = translator.translate([pair.src for pair in dataset.pairs])
    references = [pair.tgt for pair in dataset.pairs]
    for score in bleu.score(translations, references, translator.tgt_tokenizer):
        log(f"BLEU, beam {translator.beam_size}, length penalty {translator.length_penalty}: {score}")


def trained_on(notes: dict[str, Any]) -> list[str]:
    """Return what opens a model's corpus again, by its notes, which anybody may have written."""
    noted = notes.get("corpus")
    parts = noted.split("\n") if isinstance(noted, str) else noted  # as version 0.2.0 wrote it: two files are two lines
    is_text = isinstance(parts, list) and all(isinstance(part, str) for part in parts)
    # two slashes are another machine's, which would be sent a login
    if not is_text or "".join(parts) in ("", "pairs") or "//" in " ".join(parts).replace("\\", "/"):
        raise ValueError(f"the model's corpus is {noted!r}, a list, or is on another machine: say so with --corpus")
    return parts


def export(model, file, to="safetensors", quantization="float32", examples=()):
    """Write a model for others to use: in half precision for this library, for CTranslate2, or as a page to open.

    transformer-lib export runs/mine my_page --to page --examples "Ein Kind schläft."
    """
    if (quantization != "float32" and to != "ctranslate2") or (examples and to != "page"):
        raise ValueError(
            f"--to is {to} and --quantization is {quantization}: ctranslate2 alone has that, page alone --examples"
        )
    if to == "safetensors" and file.exists():  # perhaps a model whose copy was to be named, too
        raise FileExistsError(f"{file} exists: name a new file, or remove it first (usage: export MODEL FILE)")
    saved = load_model(model)
    if to == "ctranslate2":
        to_ctranslate2(Translator.from_saved(saved), file, quantization)
    elif to == "page":
        corpus = str(saved.notes.get("corpus")).strip("[']")  # a name, or a list with one
        to_page(Translator.from_saved(saved), file, corpus if corpus in CORPORA else "", examples)
    else:
        saved.notes.pop("corpus", None)  # which may say where your files are
        largest = largest_weight(saved.model)
        if largest <= LARGEST_HALF:
            saved.model.half()
        else:
            log(f"kept in float32: a weight of {largest:,.0f} would be infinite in half precision")
        save_model(file, saved.model, saved.tokenizers, saved.notes)
    log(f"{file}: {model}, for {to}")


def download(corpus):
    """Fetch a corpus into the cache folder, or $TRANSFORMER_LIB_DATA, to use it without a network later."""
    data = load_corpus(corpus) if corpus in CORPORA else load_text(corpus)
    for split in data.splits:
        log(f"{split:20} {len(data[split]):6,} lines")
    log(f"in {cache_folder()}")


def _change(text: str) -> tuple[str, Any]:
    """Read ``FIELD=VALUE``; a value that is not a Python literal stays a string."""
    name, _, value = text.partition("=")
    if name not in _FIELDS:
        raise argparse.ArgumentTypeError(f"{name!r} is no field of TransformerConfig or Recipe")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line. Options that are not given are left out: the commands know their defaults."""
    whole = argparse.ArgumentParser("transformer-lib", description=transformer_lib.__doc__)
    version = (
        f"transformer-lib {transformer_lib.__version__}, torch {torch.__version__}, Python {platform.python_version()} "
        f"on {platform.platform()}; downloads are kept in {cache_folder()}"
    )
    whole.add_argument("--version", action="version", version=version)
    commands = whole.add_subparsers(required=True, metavar="command")
    parsers = {}
    for command in (train, prepare, translate, evaluate, export, download):
        name = command.__name__.replace("_", "-")
        text = inspect.getdoc(command) or ""
        raw = {"formatter_class": argparse.RawDescriptionHelpFormatter, "argument_default": argparse.SUPPRESS}
        parsers[command] = commands.add_parser(name, help=text.split("\n")[0], description=text, **raw)
        parsers[command].set_defaults(command=command)

    def add(name: str, *commands: Callable, **settings: Any) -> None:
        for command in commands:
            parsers[command].add_argument(name, **settings)

    _add_options(add)
    return whole


def _add_options(add: Callable) -> None:
    shipped = {"type": Path, "default": SHIPPED_MODEL, "help": "folder or file (the model of this library)"}
    add("sentences", translate, nargs="*", default=[], metavar="sentence", help="a sentence to translate")
    add("model", evaluate, export, nargs="?", **shipped)
    add("file", export, type=Path, help="what to write: a new file, or a new folder for ctranslate2 and page")
    add("corpus", download, choices=["multi30k", "wikitext-2"])
    add("corpus", prepare, nargs="+", help="a folder, or two files")
    add("--corpus", train, evaluate, nargs="+", help="sample, multi30k; or of your own: a folder, or two files")
    add("--split", evaluate, help="which part of the corpus (the first test split)")
    add("--src", train, prepare, help="language to translate from (what the first file's name ends in, else de)")
    add("--tgt", train, prepare, help="language to translate to (what the second file's name ends in, else en)")
    add("--cased", train, prepare, action="store_true", help="keep capitals, as German nouns need them (lower-cased)")
    add("--preset", train, choices=[name.replace("_", "-") for name in RECIPES], help="model and recipe (small)")
    add("--output", train, type=Path, help="folder for the model (runs/CORPUS-PRESET)")
    add("--output", prepare, type=Path, required=True, help="a new folder")
    add("--subwords", prepare, type=int, help="how many (what suits the text, at most 32,000)")
    add("--processes", prepare, type=int, help="that tokenise at the same time (as many as there are cores)")
    add("--resume", train, action="store_true", help="continue the training run in the output folder")
    add("--epochs", train, type=float, help="passes over the training split (the preset's)")
    add("--min-freq", train, type=int, help="rarer words become <unk>; no subwords (2)")
    change = {"dest": "changes", "nargs": "+", "action": "extend", "metavar": "FIELD=VALUE"}
    add("--set", train, type=_change, **change, help="of TransformerConfig or Recipe, such as d_model=128")
    add("--seed", train, type=int, help="makes a run repeatable")
    add("--input", translate, type=Path, default=_STANDARD_INPUT, help="file with lines (the standard input)")
    add("--model", translate, **shipped)
    add("--scores", translate, action="store_true", help="add, after a tab, the log-probability of the whole sentence")
    add("--attention", translate, type=Path, metavar="FILE", help="draw the attention (.png, .svg or .pdf)")
    add("--beam-size", translate, evaluate, type=int, help="1 is greedy search (what the model was tuned for, else 1)")
    add("--length-penalty", translate, evaluate, type=float, help="of beam search (what the model was tuned for)")
    add("--precision", train, choices=PRECISIONS, help="of matrix products")
    add("--device", train, translate, evaluate, help="cpu, cuda, cuda:1, mps or auto (auto)")
    add(
        "--to", export, choices=["safetensors", "ctranslate2", "page"], help="page: a folder for browsers (safetensors)"
    )
    add("--examples", export, nargs="+", help="to begin with, on the page (those of the corpus)")
    add("--quantization", export, help="how CTranslate2 stores weights, such as int8 (float32)")
