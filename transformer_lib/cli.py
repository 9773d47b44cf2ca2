"""The command line: ``transformer-lib train · translate · train-lm · generate · evaluate · export · …``."""

import argparse
import dataclasses
import math
import shlex
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import torch

import transformer_lib
from transformer_lib.checkpoint import MODEL_FILE, SHIPPED_MODEL, load_model, save_model
from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.corpora import CORPORA, TEXTS, CorpusError, Pair, cache_folder, load_corpus, load_text
from transformer_lib.data.tokenizers import UNK
from transformer_lib.fast.precision import INFERENCE_PRECISIONS, PRECISIONS
from transformer_lib.files import CheckpointError, replace_file
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translator
from transformer_lib.language_model.generator import TextGenerator
from transformer_lib.language_model.model import LanguageModelConfig, TransformerLanguageModel
from transformer_lib.language_model.stream import BPTTBatches, make_stream
from transformer_lib.language_model.train import train_language_model
from transformer_lib.model.config import PRESETS, TransformerConfig
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device
from transformer_lib.training.loop import evaluate, perplexity
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, RECIPES, Recipe
from transformer_lib.training.train_translator import train_translator

DEFAULT_LM_OUTPUT = Path("runs/wikitext-2-valid-tutorial-lm")
EXAMPLES = {
    "train": """examples:
  transformer-lib train
  transformer-lib train --preset multi30k-best
  torchrun --nproc-per-node 2 -m transformer_lib train --preset multi30k-fast     (two processes, for cores or GPUs)
  transformer-lib train --corpus multi30k --preset tutorial --epochs 10 --output runs/tutorial
  transformer-lib train --corpus my_folder --output runs/mine     (my_folder/train.de, train.en, val.de, val.en)
  transformer-lib train --output runs/tutorial --corpus multi30k --preset tutorial --resume""",
    "translate": """examples:
  transformer-lib translate "Zwei junge Männer spielen Fußball im Park."
  transformer-lib translate --model runs/tutorial --beam-size 4 "Zwei Männer spielen Fußball." "Es regnet."
  transformer-lib translate --attention map.png "Ein Kind schläft."
  transformer-lib translate --model runs/tutorial < german.txt > english.txt""",
    "train-lm": """examples:
  transformer-lib train-lm --corpus wikitext-2-valid                  (a tenth of it)
  transformer-lib train-lm --corpus wikitext-2 --output runs/lm       (all of it)
  transformer-lib train-lm --corpus wikitext-2-valid --preset tuned
  transformer-lib train-lm --corpus my_novel.txt --language en
  transformer-lib train-lm --corpus my_folder --language en     (my_folder/train.txt, valid.txt, test.txt)""",
    "generate": """examples:
  transformer-lib generate "The"
  transformer-lib generate --model runs/lm --length 100 --temperature 0.8 --top-k 40 --seed 1 "In the year\"""",
    "evaluate": """examples:
  transformer-lib evaluate
  transformer-lib evaluate runs/tutorial --corpus multi30k --split test_2016_flickr
  transformer-lib evaluate runs/tutorial --beam-size 4 --translations output.txt
  transformer-lib evaluate runs/wikitext-2-valid-tutorial-lm""",
    "export": """examples:
  transformer-lib export runs/multi30k-best my_translator.safetensors
  transformer-lib translate --model my_translator.safetensors "Ein Kind schläft.\"""",
    "download": """examples:
  transformer-lib download multi30k
  transformer-lib download wikitext-2
  TRANSFORMER_LIB_DATA=~/corpora transformer-lib download multi30k""",
    "info": """examples:
  transformer-lib info
  transformer-lib info runs/tutorial""",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (CorpusError, CheckpointError, ValueError, OSError, FloatingPointError) as error:
        print(_one_line(f"transformer-lib {options.command}: error: {' '.join(str(error).split())}"), file=sys.stderr)
        return 1
    except torch.OutOfMemoryError as error:
        reason = str(error).split(". ")[0]
        print(f"transformer-lib {options.command}: error: {reason}; try a smaller --batch-size", file=sys.stderr)
        return 1
    return 0


def train(options: argparse.Namespace) -> None:
    """Train a model, then score it on the corpus's first test split."""
    names = ("epochs", "batch_size", "max_tokens", "learning_rate", "precision", "compile", "subwords", "seed")
    recipe = _changed(RECIPES[options.preset], options, *names)
    if options.batch_size is not None:
        recipe = dataclasses.replace(recipe, max_tokens=options.max_tokens or 0)
    for_multi30k = options.preset.startswith("multi30k_")
    name = options.corpus or ("multi30k" if for_multi30k else "sample")
    corpus = load_corpus(name, options.src, options.tgt)
    preset = options.preset.removeprefix("multi30k_") if corpus.name == "multi30k" else options.preset
    output = options.output or Path("runs") / f"{corpus.name}-{preset}"
    own = {} if name in CORPORA else {"corpus": str(Path(name).resolve())}
    translator = train_translator(
        corpus, options.preset, recipe, output, options.resume, options.device, options.min_freq, notes=own, log=_log
    )
    if not distributed.is_first():
        return
    for split in corpus.splits[2:3]:
        pairs = corpus[split]
        _print_scores(translator, pairs, split)
        for pair in pairs[:3]:
            print(f"\n  {options.src}  {_one_line(pair.src)}\n  {options.tgt}  {_one_line(translator(pair.src))}")
    print(f'\nTry it:   transformer-lib translate --model {output} "{corpus["val"][0].src}"')


def translate(options: argparse.Namespace) -> None:
    """Translate the sentences given, or the lines of the standard input."""
    translator = Translator.load(
        options.model or SHIPPED_MODEL, device=pick_device(options.device), precision=options.precision
    )
    sentences = options.sentences or _standard_input()
    wanted = [sentence for sentence in sentences if not _is_empty(sentence) or options.sentences]
    with_attention = options.attention is not None
    if with_attention and len(wanted) != 1:
        raise ValueError(f"--attention draws one sentence, but there are {len(wanted)}")
    translations = translator.translate(wanted, options.beam_size, options.length_penalty, attention=with_attention)
    remaining = iter(translations)
    for sentence in sentences:
        if _is_empty(sentence):  # empty lines stay empty
            print()
            continue
        translation = next(remaining)
        print(_one_line(translation.text) + (f"\t{translation.log_prob:.3f}" if options.scores else ""))
    if with_attention:
        from transformer_lib.notebook import plots  # matplotlib takes a while to load

        plots.save(plots.attention_heads(translations[0]), options.attention)
        print(f"attention of the last layer: {options.attention}", file=sys.stderr)


def train_lm(options: argparse.Namespace) -> None:
    """Train a language model, then score it on the text's first test split."""
    recipe = _changed(
        LANGUAGE_MODEL_RECIPES[options.preset], options, "epochs", "batch_size", "bptt", "learning_rate", "seed"
    )
    text = load_text(options.corpus, options.language)
    output = options.output or Path("runs") / f"{text.name}-{options.preset}-lm"
    for split in text.splits[:3]:
        text[split]  # what cannot be had is better known before training than after it
    own = {} if options.corpus in TEXTS else {"corpus": str(Path(options.corpus).resolve())}
    generator = train_language_model(
        text, options.preset, recipe, output, options.resume, options.device, options.min_freq, notes=own, log=_log
    )
    if not distributed.is_first():
        return
    for split in text.splits[2:3]:
        _print_perplexity(generator, text[split], f"{text.name} {split}", recipe.batch_size)
    word = next((token for token in generator.tokenizer.vocab.itos if token.isalpha()), UNK)
    print(f"\nTry it:   transformer-lib generate --model {shlex.quote(str(output))} {word}")


def generate(options: argparse.Namespace) -> None:
    """Go on with a text."""
    generator = TextGenerator.load(options.model, device=pick_device(options.device))
    text = generator(options.prompt, options.length, options.temperature, options.top_k, options.seed)
    print("\n".join(_one_line(line) for line in text.split("\n")))


def evaluate_model(options: argparse.Namespace) -> None:
    """Print perplexity, and of a translator BLEU, on a split that the model was not trained on."""
    saved = load_model(options.model or SHIPPED_MODEL, device=pick_device(options.device))
    name = options.corpus or saved.notes.get("corpus", "sample")
    if not options.corpus and name.startswith(("\\\\", "//")):  # a stranger's model must not make us log in there
        raise ValueError(f"the model was trained on {name!r}, which is on another machine: say so with --corpus")
    if isinstance(saved.model, TransformerLanguageModel):
        if options.translations is not None:
            raise ValueError("--translations needs a translator, but this model is a language model")
        if options.precision != "float32":
            raise ValueError(f"--precision {options.precision} needs a translator, but this model is a language model")
        tokenizer = saved.tokenizers["text"]
        text = load_text(name, tokenizer.language)
        split = options.split or text.splits[2 if len(text.splits) > 2 else 1]
        batch_size = Recipe(batch_size=saved.notes.get("recipe", {}).get("batch_size", Recipe.batch_size)).batch_size
        _print_perplexity(TextGenerator(saved.model, tokenizer), text[split], f"{text.name} {split}", batch_size)
        return
    translator = Translator.from_saved(saved, options.precision)
    corpus = load_corpus(name, translator.src_tokenizer.language, translator.tgt_tokenizer.language)
    split = options.split or corpus.splits[2 if len(corpus.splits) > 2 else 1]
    texts = _print_scores(
        translator, corpus[split], f"{corpus.name} {split}", options.beam_size, options.length_penalty
    )
    if options.translations is not None:
        replace_file(options.translations, "".join(f"{_one_line(text)}\n" for text in texts).encode())


def export(options: argparse.Namespace) -> None:
    """Write a model's weights in half precision, so that the file is half as large."""
    saved = load_model(options.model)
    save_model(options.file, saved.model, saved.tokenizers, saved.notes, dtype=torch.float16)
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
        print(f"corpora   {', '.join(dict.fromkeys((*CORPORA, *TEXTS)))}; downloads are kept in {cache_folder()}")
        print("translators (parameters with 10,000 types a side)")
        for name in PRESETS:
            print(f"  {name:14} {TransformerConfig.preset(name, 10_000, 10_000).num_parameters():12,}")
        print(f"language model (presets {', '.join(LANGUAGE_MODEL_RECIPES)})")
        print(f"  {'':14} {LanguageModelConfig(10_000).num_parameters():12,}")
        return
    saved = load_model(options.model)
    print(f"{saved.model.num_parameters():,} parameters")
    for section, values in (("configuration", saved.model.config.to_dict()), *saved.notes.items()):
        print(_one_line(section))
        for key, value in values.items() if isinstance(values, dict) else [("", values)]:
            print(_one_line(f"  {key:18} {value}"))


def _print_scores(
    translator: Translator,
    pairs: list[Pair],
    name: str,
    beam_size: int | None = None,
    length_penalty: float | None = None,
) -> list[str]:
    beam_size = translator.beam_size if beam_size is None else beam_size
    length_penalty = translator.length_penalty if length_penalty is None else length_penalty
    dataset = make_dataset(pairs, translator.src_tokenizer, translator.tgt_tokenizer, translator.model.config.max_len)
    device = next(translator.model.parameters()).device
    loss = evaluate(translator.model, BucketBatches(dataset, 128, device=device))
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss}: are the model's weights damaged?")
    translations = translator.translate([pair.src for pair in pairs], beam_size, length_penalty)
    scores = bleu.score(translations, [pair.tgt for pair in pairs], translator.tgt_tokenizer)
    search = "greedy" if beam_size == 1 else f"beam {beam_size}, length penalty {length_penalty}"
    print(f"{name}: {len(pairs):,} pairs, perplexity {perplexity(loss):.3f}")
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
    print(
        f"{name}: {len(tokens):,} tokens, {unknown / len(tokens):.1%} of them {UNK}, loss {loss:.3f}, "
        f"perplexity {perplexity(loss):.2f}"
    )


def _standard_input() -> list[str]:
    try:
        return [line.strip() for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the standard input is not UTF-8 ({error}): convert it, for example with `iconv -f latin1 -t utf-8`"
        ) from None


def _is_empty(line: str) -> bool:
    """Say whether there is nothing in a line but spaces, and letters that nobody sees."""
    return all(unicodedata.category(letter)[0] in "ZC" for letter in line)


def _one_line(text: str) -> str:
    """Return what a terminal can show of a text: a model of a stranger's could make it do other things than print."""
    return "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in text)


def _changed(recipe: Recipe, options: argparse.Namespace, *names: str) -> Recipe:
    changes = {name: getattr(options, name) for name in names}
    return dataclasses.replace(recipe, **{name: value for name, value in changes.items() if value is not None})


def _log(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="transformer-lib",
        description='Train and use the Transformer of "Attention Is All You Need".',
        epilog="Each command has a help of its own, with examples: transformer-lib train --help",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {transformer_lib.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, run, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=EXAMPLES[name],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=run)
        return command

    def add_device(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--device", default="auto", help="cpu, cuda, cuda:1, mps or auto, the best there is (auto)"
        )

    def add_search(command: argparse.ArgumentParser) -> None:
        command.add_argument("--beam-size", type=int, help="1 is greedy search (what the model was tuned for, else 1)")
        command.add_argument(
            "--length-penalty",
            type=float,
            help="exponent of beam search's length penalty (what the model was tuned for, else 0.6)",
        )
        command.add_argument(
            "--precision", default="float32", choices=INFERENCE_PRECISIONS, help="what to compute in (float32)"
        )

    command = add("train", train, "train a model")
    command.add_argument(
        "--corpus", help="sample, multi30k, or a folder of your own (multi30k for its presets, else sample)"
    )
    command.add_argument("--src", default="de", help="language to translate from (de)")
    command.add_argument("--tgt", default="en", help="language to translate to (en)")
    command.add_argument(
        "--preset",
        default="small",
        type=lambda name: name.replace("-", "_"),
        choices=sorted(RECIPES),
        help="model and recipe (small)",
    )
    command.add_argument("--output", type=Path, help="folder for the model (runs/CORPUS-PRESET)")
    command.add_argument("--resume", action="store_true", help="go on with the training in the output folder")
    command.add_argument("--epochs", type=int, help="passes over the training split (the preset's)")
    command.add_argument("--batch-size", type=int, help="sentences in a batch (the preset's)")
    command.add_argument("--max-tokens", type=int, help="or positions in a batch, on its larger side (the preset's)")
    command.add_argument("--learning-rate", type=float, help="the highest learning rate (the preset's)")
    command.add_argument("--precision", choices=PRECISIONS, help="what to multiply matrices in (the preset's)")
    command.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, help="generate kernels first, which suits a GPU (no)"
    )
    command.add_argument("--subwords", type=int, help="pieces in a joint vocabulary, 0 for words (the preset's)")
    command.add_argument("--min-freq", type=int, default=2, help="rarer words become <unk> (2)")
    command.add_argument("--seed", type=int, help="makes a run repeatable (1234)")
    add_device(command)

    command = add("translate", translate, "translate sentences, or the lines of the standard input")
    command.add_argument("sentences", nargs="*", metavar="sentence", help="a sentence to translate")
    command.add_argument("--model", type=Path, help="folder or file (the model that comes with this library)")
    command.add_argument("--attention", type=Path, metavar="FILE", help="draw the attention (.png, .svg or .pdf)")
    command.add_argument("--scores", action="store_true", help="add the natural logarithm of the probability")
    add_search(command)
    add_device(command)

    command = add("train-lm", train_lm, "train a language model")
    command.add_argument(
        "--corpus",
        default="wikitext-2-valid",
        help=f"{', '.join(TEXTS)}, or a text file or folder of your own (wikitext-2-valid)",
    )
    command.add_argument(
        "--language",
        help="of your own text, for spaCy to tokenise it (default: tokens stand between spaces); of sample and "
        "multi30k, which side (en)",
    )
    command.add_argument(
        "--preset", default="tutorial", choices=sorted(LANGUAGE_MODEL_RECIPES), help="how to train (tutorial)"
    )
    command.add_argument("--output", type=Path, help="folder for the model (runs/CORPUS-PRESET-lm)")
    command.add_argument("--resume", action="store_true", help="go on with the training in the output folder")
    command.add_argument("--epochs", type=int, help="passes over the training text (the preset's)")
    command.add_argument("--batch-size", type=int, help="rows of text (the preset's)")
    command.add_argument("--bptt", type=int, help="tokens that the model can look back on (the preset's)")
    command.add_argument("--learning-rate", type=float, help="the highest learning rate (the preset's)")
    command.add_argument("--min-freq", type=int, default=1, help="rarer words become <unk> (1)")
    command.add_argument("--seed", type=int, help="makes a run repeatable (1234)")
    add_device(command)

    command = add("generate", generate, "go on with a text")
    command.add_argument("prompt", help="how the text begins")
    command.add_argument("--model", type=Path, default=DEFAULT_LM_OUTPUT, help=f"folder or file ({DEFAULT_LM_OUTPUT})")
    command.add_argument("--length", type=int, default=50, help="tokens to add (50)")
    command.add_argument("--temperature", type=float, default=1.0, help="below 1 likely words become likelier (1.0)")
    command.add_argument("--top-k", type=int, metavar="K", help="choose among the K likeliest words only")
    command.add_argument("--seed", type=int, help="makes the text repeatable")
    add_device(command)

    command = add("evaluate", evaluate_model, "measure perplexity, and a translator's BLEU")
    command.add_argument("model", nargs="?", type=Path, help="folder or file (the model that comes with this library)")
    command.add_argument("--corpus", help="a corpus's name, file or folder (what the model was trained on)")
    command.add_argument("--split", help="which part of the corpus (the first test split)")
    command.add_argument("--translations", type=Path, metavar="FILE", help="also write the translations, one a line")
    add_search(command)
    add_device(command)

    command = add("export", export, "write a model in half precision, to one small file")
    command.add_argument("model", type=Path, help="folder or file")
    command.add_argument("file", type=Path, help="what to write, such as my_translator.safetensors")

    command = add("download", download, "fetch a corpus into the cache")
    command.add_argument("corpus", choices=["multi30k", "wikitext-2"])

    command = add("info", info, "describe this installation, or a model")
    command.add_argument("model", nargs="?", type=Path, help=f"folder or file that ends in {MODEL_FILE}")
    return parser
