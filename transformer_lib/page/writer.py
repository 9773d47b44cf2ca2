"""The page *Try it* with any translator: one folder that a browser opens from a disk, and that needs no network.

A page that was opened from a disk may not fetch anything, but it may load scripts. So the weights are text in scripts,
a megabyte each, which is also how the page knows how far it has come. They keep their precision: int8 would halve those
of the shipped model, but change the translations of 37 in 1,000 sentences (`python benchmarks/translator_page.py`).
"""

import base64
import json
import struct
from collections.abc import Sequence
from pathlib import Path

import torch

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import WordTokenizer, spacy_rules
from transformer_lib.files import new_folder
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.ctranslate2 import check_parts
from transformer_lib.notebook.attention_viewer import VIEWER_FILES

_PART = 750_000  # bytes, which are a million letters in base64
# what computes: a page from a disk may start no worker from a file, but from text
_WORKER = ("tokenizer.js", "words.js", "model.js", "search.js", "worker.js")
_FILES = (
    *_WORKER,
    "about.js",
    "figure.js",
    "heads.js",
    "address.js",
    "page.js",
    "page.css",
)  # all that lie here and go with the page


def to_page(translator: Translator, folder: str | Path, corpus: str = "", examples: Sequence[str] = ()) -> None:
    """Write a translator as a page that anybody opens with a double click on its ``index.html``.

    Args:
        translator: its model in any precision, on any device.
        folder: a new or empty one, or one that this function wrote; otherwise, a FileExistsError.
        corpus: what it learned from, if that is ``"multi30k"`` or ``"sample"``: the page says so, and has examples.
        examples: sentences to begin with.

    Raises a TypeError if a part of the model was replaced, and a ValueError if it has an activation or a tokeniser that
    the page cannot compute.
    """
    about = describe(translator, corpus, examples)
    with new_folder(folder, ("index.html", "translator") if _is_earlier(Path(folder)) else ()) as temporary:
        write_scripts(translator, temporary / "translator", about)
        page = _read("index.html").replace("<!-- body.html -->", _read("body.html"))
        (temporary / "index.html").write_text(page, encoding="utf-8")


def describe(translator: Translator, corpus: str, examples: Sequence[str] = ()) -> dict:
    """Return what the page says of a translator, for JSON, or raise an error as ``to_page``.

    Of the shipped model, ``book/write_weights.py`` adds ``"heads"``, what ``benchmarks/heads.py`` has measured.
    """
    src, tgt = translator.src_tokenizer, translator.tgt_tokenizer
    described = {"src": src.to_dict(), "tgt": tgt.to_dict()}
    check_parts(translator.model)
    config = translator.model.config
    if config.activation != "relu":
        raise ValueError(f"the model has activation={config.activation!r}, expected 'relu', which the page computes")
    kinds = {type(src), type(tgt)}
    if kinds == {WordTokenizer}:
        described["src"]["rules"] = spacy_rules(src.language)
    elif kinds != {SubwordTokenizer} or not (src.is_byte_pair_encoding and tgt.is_byte_pair_encoding):
        raise ValueError(f"the tokenizers are {kinds}, expected spaCy's words, or byte pairs as train_subwords learns")
    return {
        "config": vars(config),
        "search": {"length_penalty": translator.length_penalty},
        "languages": [src.language, tgt.language],
        "wholeWords": src.whole_words,
        "corpus": corpus,
        "examples": examples,
        "tokenizers": described,
    }


def write_scripts(translator: Translator, folder: Path, about: dict) -> None:
    """Write into a new folder all that the page loads, with what ``describe`` returned."""
    folder.mkdir()
    for name in _FILES:
        (folder / name).write_text(_read(name), encoding="utf-8")
    content = _packed(translator, about)
    starts = range(0, len(content), _PART)
    for number, start in enumerate(starts):
        part = base64.b64encode(content[start : start + _PART]).decode()
        (folder / f"weights_{number:02}.js").write_text(f'receiveWeights("{part}");\n', encoding="ascii")
    style, viewer = VIEWER_FILES
    constants = {
        "WEIGHTS": {"parts": len(starts), "bytes": len(content)},
        "ABOUT": {**about, "tokenizers": None},  # which come with the weights
        "WORKER_SOURCE": "\n".join(map(_read, _WORKER)),
        "STYLE": style,
    }
    lines = [f"const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    script = f"// Written by writer.py of transformer_lib.\n{''.join(lines)}function startViewers() {{\n{viewer}}}\n"
    (folder / "generated.js").write_text(script, encoding="utf-8")


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _packed(translator: Translator, about: dict) -> bytes:
    """Return four bytes with a length, as much JSON, and the weights, in half precision if that changes none."""
    weights = {name: weight.detach().cpu().float() for name, weight in translator.model.named_parameters()}
    half = all(torch.equal(weight.half().float(), weight) for weight in weights.values())
    sizes = {name: weight.numel() for name, weight in weights.items()}
    text = json.dumps({**about, "half": half, "sizes": sizes}, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)  # numbers begin at multiples of 4
    numbers = ((weight.half() if half else weight).numpy().tobytes() for weight in weights.values())
    return struct.pack("<I", len(text)) + text + b"".join(numbers)


def _is_earlier(folder: Path) -> bool:
    """Say whether a folder holds what ``to_page`` wrote, and nothing else that somebody might miss."""
    names = {path.name for path in folder.rglob("*") if not path.match("translator/weights_[0-9]*.js")}
    return {"generated.js"} <= names <= {*_FILES, "index.html", "translator", "generated.js"}
