"""The command line's options, each with its help, and examples."""

import argparse
import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformer_lib
from transformer_lib.fast.precision import INFERENCE_PRECISIONS, PRECISIONS
from transformer_lib.inference.bleu import SACRE_TOKENIZERS
from transformer_lib.interop.ctranslate2 import QUANTIZATIONS
from transformer_lib.language_model.texts import TEXTS
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, RECIPES

DEFAULT_LM = Path("runs/wikitext-2-valid-tutorial-lm")
EXAMPLES = {
    "train": """examples:
  transformer-lib train
  transformer-lib train --preset multi30k-fast
  torchrun --nproc-per-node 2 -m transformer_lib train --preset multi30k-fast     (two processes, for cores or GPUs)
  transformer-lib train --corpus text.es text.en --src es --tgt en --cased --set d_model=128 dropout=0.3
  transformer-lib train --corpus my_folder     (my_folder/train.de, train.en; val.de, val.en, test.de, test.en)
  transformer-lib train --corpus my_folder --resume""",
    "translate": """examples:
  transformer-lib translate "Zwei junge Männer spielen Fußball im Park."
  transformer-lib translate --model runs/tutorial --beam-size 4 --attention map.png "Ein Kind schläft."
  transformer-lib translate --input german.txt --scores > english.txt     (line by line; empty lines stay empty)""",
    "train-lm": """examples:
  transformer-lib train-lm --preset tuned     (on a tenth of WikiText-2)
  transformer-lib train-lm --corpus my_novel.txt --language en
  transformer-lib train-lm --corpus my_folder --language en     (my_folder/train.txt, valid.txt, test.txt)""",
    "generate": """examples:
  transformer-lib generate --model runs/lm --length 100 --temperature 0.8 --top-k 40 --seed 1 "In the year\"""",
    "evaluate": """examples:
  transformer-lib evaluate --corpus multi30k --split test_2016_flickr
  transformer-lib evaluate runs/wikitext-2-valid-tutorial-lm""",
    "export": """examples:
  transformer-lib export runs/multi30k-best my_translator.safetensors
  transformer-lib export runs/multi30k-best my_folder --to ctranslate2 --quantization int8""",
    "download": """examples:
  transformer-lib download multi30k     (into the cache folder, or $TRANSFORMER_LIB_DATA)""",
    "info": """examples:
  transformer-lib info runs/tutorial""",
}


def _change(text: str) -> tuple[str, Any]:
    """Read ``FIELD=VALUE``; a value that is not a Python literal stays a string."""
    name, _, value = text.partition("=")
    if not (name.isidentifier() and value):
        raise argparse.ArgumentTypeError(f"{text!r}, expected FIELD=VALUE, such as d_model=128")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


OPTIONS: dict[str, dict[str, Any]] = {  # each once, whichever commands take it
    "--attention": {"type": Path, "metavar": "FILE", "help": "draw the attention (.png, .svg or .pdf)"},
    "--batch-size": {"type": int, "help": "sentences in a batch; rows of text for a language model (the preset's)"},
    "--beam-size": {"type": int, "help": "1 is greedy search (what the model was tuned for, else 1)"},
    "--bptt": {"type": int, "help": "tokens that the model can look back on (the preset's)"},
    "--cased": {"action": "store_true", "help": "keep capitals, as German nouns need them (no: all is lower-cased)"},
    "--chrf": {"action": "store_true", "help": "also print chrF, the character n-gram F-score"},
    "--compile": {"action": argparse.BooleanOptionalAction, "help": "compile the layers first, for a GPU (no)"},
    "--device": {"default": "auto", "help": "cpu, cuda, cuda:1, mps or auto, the best there is (auto)"},
    "--epochs": {"type": int, "help": "passes over the training split (the preset's)"},
    "--input": {"type": Path, "metavar": "FILE", "help": "translate its lines (those of the standard input, or -)"},
    "--language": {"help": "of your own text, for spaCy (none: cut at spaces); of sample, multi30k: the side (en)"},
    "--learning-rate": {"type": float, "help": "the highest learning rate (the preset's)"},
    "--length": {"type": int, "default": 50, "help": "tokens to add (50)"},
    "--length-penalty": {"type": float, "help": "of beam search (what the model was tuned for, else 0.6)"},
    "--max-tokens": {"type": int, "help": "positions in a batch, on its longer side, instead of sentences (preset's)"},
    "--min-freq": {"type": int, "help": "rarer words become <unk>; your corpus gets no subwords (2; train-lm: 1)"},
    "--output": {"type": Path, "help": "folder for the model (runs/CORPUS-PRESET)"},
    "--resume": {"action": "store_true", "help": "continue the training in the output folder"},
    "--sacrebleu-tokenize": {"choices": SACRE_TOKENIZERS, "help": "sacreBLEU's tokeniser (what suits the language)"},
    "--scores": {"action": "store_true", "help": "add, after a tab, the log-probability of the whole sentence"},
    "--seed": {"type": int, "help": "makes a run repeatable"},
    "--set": {
        "type": _change,
        "nargs": "+",
        "action": "extend",
        "default": [],
        "metavar": "FIELD=VALUE",
        "help": "any field of TransformerConfig or Recipe, such as d_model=128",
    },
    "--split": {"help": "which part of the corpus (the first test split)"},
    "--src": {"default": "de", "help": "language to translate from (de)"},
    "--subwords": {
        "type": int,
        "help": "pieces in a joint vocabulary, 0 for words (the preset's, or by your corpus's size)",
    },
    "--temperature": {"type": float, "default": 1.0, "help": "below 1 likely words become likelier (1.0)"},
    "--tgt": {"default": "en", "help": "language to translate to (en)"},
    "--top-k": {"type": int, "metavar": "K", "help": "choose among the K likeliest words only"},
}


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line; the command's name is in ``command``."""
    whole = argparse.ArgumentParser(
        prog="transformer-lib",
        description='Train and use the Transformer of "Attention Is All You Need".',
        epilog="Each command has a help of its own, with examples: transformer-lib train --help",
    )
    whole.add_argument("--version", action="version", version=f"%(prog)s {transformer_lib.__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, text: str, options: str) -> Callable[..., Any]:
        command = commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=EXAMPLES[name],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for option in options.split():
            command.add_argument(f"--{option}", **OPTIONS[f"--{option}"])
        return command.add_argument

    scoring = "sacrebleu-tokenize chrf"
    a_model = {"nargs": "?", "type": Path, "help": "folder or file (the model that comes with this library)"}
    training = "output resume epochs batch-size learning-rate min-freq seed device"

    argument = add("train", "train a model", f"src tgt cased {training} max-tokens compile subwords set {scoring}")
    corpora = "sample, multi30k; or of your own: a folder or two files"
    argument("--corpus", nargs="+", help=f"{corpora} (multi30k for its presets, else sample)")
    spelling = {"type": lambda name: name.replace("-", "_"), "choices": sorted(RECIPES)}
    argument("--preset", default="small", help="model and recipe (small)", **spelling)
    argument("--precision", choices=PRECISIONS, help="what to multiply matrices in (the preset's)")

    searching = "beam-size length-penalty device"
    precision = {"default": "float32", "choices": INFERENCE_PRECISIONS, "help": "what to compute in (float32)"}
    text = "translate sentences, or the lines of a file or of the standard input"
    argument = add("translate", text, f"input attention scores {searching}")
    argument("sentences", nargs="*", metavar="sentence", help="a sentence to translate")
    argument("--model", **{**a_model, "nargs": None})
    argument("--precision", **precision)

    argument = add("train-lm", "train a language model", f"language {training} bptt")
    text = f"{', '.join(TEXTS)}, or a text file or folder of your own (wikitext-2-valid)"
    argument("--corpus", default="wikitext-2-valid", help=text)
    argument("--preset", default="tutorial", choices=sorted(LANGUAGE_MODEL_RECIPES), help="how to train (tutorial)")

    argument = add("generate", "continue a text", "length temperature top-k seed device")
    argument("prompt", help="how the text begins")
    argument("--model", type=Path, default=DEFAULT_LM, help=f"folder or file ({DEFAULT_LM})")

    text = "measure perplexity, and a translator's BLEU"
    argument = add("evaluate", text, f"split {searching} {scoring}")
    argument("model", **a_model)
    argument("--corpus", nargs="+", help=f"{corpora} (what the model was trained on)")
    argument("--precision", **precision)

    argument = add("export", "write a model for others to use", "")
    argument("model", **a_model)
    argument("file", type=Path, help="what to write: a file, or a new folder for ctranslate2")
    kinds = ("safetensors", "ctranslate2")
    argument("--to", default=kinds[0], choices=kinds, help="for whom (safetensors: this library, in half precision)")
    argument("--quantization", choices=QUANTIZATIONS, help="how CTranslate2 stores weights (float32)")

    argument = add("download", "fetch a corpus into the cache", "")
    argument("corpus", choices=["multi30k", "wikitext-2"])

    argument = add("info", "describe this installation, or a model", "")
    argument("model", nargs="?", type=Path, help="folder or file (this installation)")
    return whole
