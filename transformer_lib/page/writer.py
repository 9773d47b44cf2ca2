"""The page *Try it* with any translator: one folder that a browser opens from a disk, and that needs no network.

A page that was opened from a disk may not fetch anything, but it may load scripts. So the weights are text in scripts,
a megabyte each, which is also how the page knows how far it has come. They keep their precision: int8 would quarter
them, but change the shipped model's translations of 37 in 1,000 sentences (`python benchmarks/translator_page.py`).
"""

import base64
import json
import re
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.data.tokenizers import WordTokenizer, spacy_rules
from transformer_lib.files import new_folder
from transformer_lib.inference.translator import Translator
from transformer_lib.interop.ctranslate2 import check_parts
from transformer_lib.notebook.attention_viewer import viewer_files

_PART = 750_000  # bytes, which are a million letters in base64
_SCRIPTS = "translator"  # the folder beside the page that it loads its scripts from
_GENERATED = "generated.js"
_WRITTEN = "// Written by transformer_lib/page/writer.py: "  # what that file begins with
# what computes: a page from a disk may start no worker from a file, but from text
_WORKER = ("tokenizer", "words", "model", "search", "worker")


def to_page(translator: Translator, folder: str | Path, corpus: str = "", examples: Sequence[str] = ()) -> None:
    """Write a translator as a page that anybody opens with a double click on its ``index.html``.

    Args:
        translator: its model in any precision, on any device.
        folder: a new or empty one, or one that this function wrote; otherwise, a FileExistsError.
        corpus: what it learned from, if that is ``"multi30k"`` or ``"sample"``: the page says so, and has examples.
        examples: sentences to begin with.

    Raises a TypeError if a part of the model was replaced, and a ValueError if it has an activation or tokenisers that
    the page cannot compute.
    """
    folder = Path(folder)
    about = describe(translator, corpus, examples)
    with new_folder(folder, ("index.html", _SCRIPTS) if _is_earlier(folder) else ()) as temporary:
        write_scripts(translator, temporary / _SCRIPTS, about)
        page, body = (_beside(name).read_text(encoding="utf-8") for name in ("index.html", "body.html"))
        (temporary / "index.html").write_text(page.replace("<!-- body.html -->", body), encoding="utf-8")


def describe(
    translator: Translator, corpus: str = "", examples: Sequence[str] = (), heads: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what the page says of a translator, or raise an error as ``to_page``.

    ``heads`` is what ``benchmarks/heads.py`` has measured of it, which is the shipped model.
    """
    config = translator.model.config
    tokenizers = translator.src_tokenizer, translator.tgt_tokenizer
    check_parts(translator.model)
    if config.activation != "relu":
        raise ValueError(f"the model has activation={config.activation!r}, expected 'relu', which the page computes")
    kinds = [type(tokenizer) for tokenizer in tokenizers]
    if kinds not in ([WordTokenizer] * 2, [SubwordTokenizer] * 2):
        names = " and ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"the model has tokenizers of the classes {names}, expected two WordTokenizer or two "
                         "SubwordTokenizer, which the page computes")
    for tokenizer in tokenizers:
        if isinstance(tokenizer, SubwordTokenizer) and not tokenizer.is_byte_pair_encoding:
            raise ValueError("the model has subwords that are no byte-pair encoding, expected train_subwords' own, "
                             "which the page computes")
    return {
        "config": vars(config),
        "search": {"beam_size": translator.beam_size, "length_penalty": translator.length_penalty},
        "languages": [tokenizer.language for tokenizer in tokenizers],
        "wholeWords": tokenizers[0].whole_words,
        "parameters": translator.model.num_parameters(),
        "corpus": corpus,
        "examples": list(examples),
        "heads": heads,
    }


def write_scripts(translator: Translator, folder: Path, about: dict[str, Any]) -> None:
    """Write into a folder all that the page loads, with what ``describe`` returned."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _files():
        shutil.copyfile(_beside(name), folder / name)
    for old in folder.glob("weights_*.js"):
        old.unlink()
    content = _packed(translator, about)
    size = 0
    parts = range(0, len(content), _PART)
    for number, start in enumerate(parts):
        part = base64.b64encode(content[start : start + _PART]).decode()
        size += (folder / f"weights_{number:02}.js").write_text(f'receiveWeights("{part}");\n', encoding="ascii")
    constants = {
        "WEIGHTS": {"parts": len(parts), "megabytes": round(size / 1e6, 1)},
        "ABOUT": about,
        "WORKER_SOURCE": "\n".join(_beside(f"{name}.js").read_text(encoding="utf-8") for name in _WORKER),
    }
    lines = [f"const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    style, viewer = viewer_files()
    lines.append(f"function startViewers() {{\nconst STYLE = {json.dumps(style)};\n{viewer}}}\n")
    first = f"{_WRITTEN}sizes, what is said of the model, what the worker runs, the notebooks' viewer.\n"
    (folder / _GENERATED).write_text(first + "".join(lines), encoding="utf-8")


def _beside(name: str) -> Path:
    return Path(__file__).with_name(name)


def _files() -> set[str]:
    """Return the names of the scripts and the style sheet that lie here and go with the page."""
    body = _beside("body.html").read_text(encoding="utf-8")
    used = re.findall(rf'"{_SCRIPTS}/(\w+\.\w+)"', body)
    return {*used, *(f"{name}.js" for name in _WORKER)} - {_GENERATED}


def _packed(translator: Translator, about: dict[str, Any]) -> bytes:
    """Return four bytes with a length, as much JSON, and the weights, in half precision if that changes none."""
    weights = {name: weight.detach().cpu().float() for name, weight in translator.model.named_parameters()}
    half = all(torch.equal(weight.half().float(), weight) for weight in weights.values())
    src, tgt = translator.src_tokenizer.to_dict(), translator.tgt_tokenizer.to_dict()
    if about["wholeWords"]:
        src["rules"] = spacy_rules(translator.src_tokenizer.language)
    header = {
        **{name: about[name] for name in ("config", "search", "languages", "corpus")},
        "isShipped": about["heads"] is not None,
        "src": src,
        "tgt": {name: value for name, value in tgt.items() if value != src[name]},
        "half": half,
        "sizes": {name: weight.numel() for name, weight in weights.items()},
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)  # numbers begin at multiples of 4
    body = ((weight.half() if half else weight).numpy().tobytes() for weight in weights.values())
    return struct.pack("<I", len(text)) + text + b"".join(body)


def _is_earlier(folder: Path) -> bool:
    """Say whether a folder holds what ``to_page`` wrote, and nothing else that somebody might miss."""
    generated = folder / _SCRIPTS / _GENERATED
    if not generated.is_file() or not generated.read_text(encoding="utf-8").startswith(_WRITTEN):
        return False
    ours = _files() | {_GENERATED, "index.html", _SCRIPTS}
    names = {re.sub(r"^weights_\d+\.js$", _GENERATED, path.name) for path in folder.rglob("*")}
    return names <= ours
