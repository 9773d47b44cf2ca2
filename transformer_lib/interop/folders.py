"""Folders that hold a model for others to use: written whole or not at all, with what makes tokens of text."""

import base64
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_lib.inference.translator import Translator


def description_of(translator: Translator) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what ``config.json`` says of a translator besides its numbers, and the sentencepiece models by file."""
    files, tokenizers = {}, {}
    for side, tokenizer in (("src", translator.src_tokenizer), ("tgt", translator.tgt_tokenizer)):
        tokenizers[side] = values = tokenizer.to_dict()
        if "subwords" in values:
            files[f"{side}.model"] = base64.b64decode(values.pop("subwords"))
            values["sentencepiece"] = f"{side}.model"
    search = {"beam_size": translator.beam_size, "length_penalty": translator.length_penalty}
    return {"max_len": translator.model.config.max_len, "search": search, "tokenizers": tokenizers}, files


def check_new(folder: str | Path) -> None:
    """Raise a FileExistsError unless a folder is new or empty."""
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not os.listdir(folder)):
        raise FileExistsError(f"{folder} exists, expected a new or empty folder: choose another, or remove it")


@contextlib.contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Give an empty folder to write to, which becomes ``folder``, new or empty, if nothing fails on the way.

    A process that is killed leaves a hidden folder beside it.

    Raises:
        FileExistsError: the folder holds something; it is left alone.
        OSError: it cannot be written.
    """
    folder = Path(os.path.realpath(folder))
    check_new(folder)
    if folder.exists() and folder.samefile(Path.cwd()):
        raise FileExistsError(f"{folder} is the folder you are in, which would be replaced: name a new one in it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside:
        new = Path(beside) / "new"
        new.mkdir()
        yield new
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()  # an OSError if something has come into it meanwhile
        new.rename(folder)
