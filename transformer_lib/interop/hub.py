"""To the Hugging Face Hub: a folder with a model and its card, ready to upload.

The cookbook (``book/cookbook.md``) has the lines that upload it and those that load it. Such a file runs no code (see
``SECURITY.md``).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path, PureWindowsPath
from typing import Any

import torch

from transformer_lib.checkpoint import MODEL_FILE, SavedModel, save_model
from transformer_lib.inference.bleu import Score
from transformer_lib.interop.folders import new_folder

REPOSITORY = "https://github.com/OWNER/NAME"  # `make repository` replaces it


def write_hub_folder(
    saved: SavedModel,
    folder: str | Path,
    repo_id: str,
    license: str,
    data: str,
    scores: Mapping[str, Score | Iterable[Score]] | None = None,
) -> None:
    """Write ``model.safetensors``, in half precision, and its card, ``README.md``: what it is, how made, its scores.

    The card says what the model and its notes say and what is handed over, and nothing else: a section of which nothing
    is known is left out. What the model cannot do, only you can add. Read the card before you upload it: where this
    library is, it knows from ``make repository``.

    Args:
        saved: what ``load_model`` returned.
        folder: a new or empty folder.
        repo_id: the repository on the Hub, ``"you/name-of-the-model"``.
        license: the Hub's word for the licence of the weights, such as ``"mit"``, ``"cc-by-nc-4.0"`` or ``"other"``.
        data: what it was trained on, and what that allows, in your own words.
        scores: what ``bleu.score`` returned, or one score, under the name of what was translated and how.

    Raises:
        FileExistsError: the folder holds something; it is left alone.
        ValueError: ``repo_id`` is not a repository's name, ``license`` or ``data`` is empty, or ``save_model`` refuses.
        TypeError: ``scores`` holds anything but scores; or as ``save_model``.
        OSError: the folder cannot be written.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id, re.ASCII):
        raise ValueError(f"repo_id is {repo_id!r}, expected your name on the Hub and the model's, such as 'you/de-en'")
    for name, value in {"license": license, "data": data}.items():
        if not value.strip():
            raise ValueError(f"{name} is empty: whoever finds the model has to know what it may be used for")
    some = {what: one if isinstance(one, Iterable) else [one] for what, one in (scores or {}).items()}
    measured = [(what, score) for what, listed in some.items() for score in listed]
    if others := [score for _, score in measured if not isinstance(score, Score)]:
        raise TypeError(
            f"scores holds {others[0]!r}, expected what bleu.score returned, which knows how it was measured"
        )
    card = _card(saved, repo_id, license, data, measured)
    with new_folder(folder) as new:
        save_model(new / MODEL_FILE, saved.model, saved.tokenizers, shareable(saved.notes), torch.float16)
        (new / "README.md").write_bytes(card.encode())


def shareable(notes: dict[str, Any]) -> dict[str, Any]:
    """Return notes without the path of a corpus: whoever gets a model need not know where yours is."""
    if "corpus" not in notes:
        return notes
    names = notes["corpus"].split("\n")  # two files are two lines
    paths = map(PureWindowsPath, names)  # which understands other systems' paths, too
    hidden = (f"…/{path.name}" if path.anchor else name for path, name in zip(paths, names, strict=True))
    return {**notes, "corpus": "\n".join(hidden)}


def _card(saved: SavedModel, repo_id: str, license: str, data: str, scores: list[tuple[str, Score]]) -> str:
    model, tokenizers = saved.model, saved.tokenizers
    if "text" in tokenizers:
        loader, task, what = "TextGenerator", "text-generation", "Continues text"
    else:
        loader, task, what = "Translator", "translation", "Translates"
    languages = [tokenizer.language for tokenizer in tokenizers.values() if tokenizer.language]
    if languages and len(languages) == len(tokenizers):
        what += f" from {' to '.join(languages)}" if task == "translation" else f" in {languages[0]}"
    front_matter = {
        "language": list(dict.fromkeys(languages)),
        "license": license,
        "library_name": "transformer_lib",
        "pipeline_tag": task,
        "tags": [task, "transformer", "pytorch"],
    }
    own = "".join(f", {name}" for name in _own_names(saved))
    training = {key: value for key, value in shareable(saved.notes).items() if key in ("corpus", "preset", "recipe")}
    parts = [
        # JSON is YAML, whatever a value holds
        "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in front_matter.items() if value), "---"]),
        f"# {repo_id.partition('/')[2]}",
        f"{what}. A {type(model).__name__} with {sum(p.numel() for p in model.parameters()):,} parameters:",
        _fenced("json", json.dumps(asdict(model.config), indent=2)),
        "## How to load it",
        _fenced("bash", f'pip install huggingface_hub "transformer-lib @ git+{REPOSITORY}"'),
        _fenced(
            "python",
            "from huggingface_hub import hf_hub_download\n"
            f"from transformer_lib import {loader}\n\n"
            f'model = {loader}.load(hf_hub_download("{repo_id}", "{MODEL_FILE}"){own})\n'
            'print(model("…"))',
        ),
        "## How it was made",
        data.strip(),
        *([_fenced("json", json.dumps(training, indent=2, ensure_ascii=False))] if training else []),
        *(["## What it scores", "\n".join(f"- {what}: {score}" for what, score in scores)] if scores else []),
    ]
    return "\n\n".join(parts) + "\n"


def _own_names(saved: SavedModel) -> list[str]:
    """Name what ``load_model`` has to be given: classes and functions that are not this library's."""
    classes = dict.fromkeys(type(one) for one in (saved.model, *saved.tokenizers.values()))
    names = [one.__name__ for one in classes if not one.__module__.startswith("transformer_lib.")]
    functions = (tokenizer.to_dict().get("tokenize") for tokenizer in saved.tokenizers.values())
    return [*names, *dict.fromkeys(name for name in functions if name)]


def _fenced(language: str, code: str) -> str:
    return f"```{language}\n{code}\n```"
