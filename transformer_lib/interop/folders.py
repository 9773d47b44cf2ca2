"""Folders that hold a model for others to use: written whole or not at all, with what makes tokens of text."""

import base64
import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from transformer_lib.inference.translator import Translator


def description_of(translator: Translator, format_name: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what ``config.json`` says of a translator besides its numbers, and the sentencepiece models by file."""
    files, tokenizers = {}, {}
    for side, tokenizer in (("src", translator.src_tokenizer), ("tgt", translator.tgt_tokenizer)):
        tokenizers[side] = values = tokenizer.to_dict()
        if "subwords" in values:
            files[f"{side}.model"] = base64.b64decode(values.pop("subwords"))
            values["sentencepiece"] = f"{side}.model"
    config = {
        "format": format_name,
        "max_len": translator.model.config.max_len,
        "search": {"beam_size": translator.beam_size, "length_penalty": translator.length_penalty},
        "tokenizers": tokenizers,
    }
    return config, files


def check_replaceable(folder: str | Path, format_name: str = "", names: Collection[str] = ()) -> None:
    """Raise a FileExistsError unless a folder is new, empty, or an earlier export and nothing else.

    Args:
        folder: what is to be written.
        format_name: the ``format`` in the ``config.json`` of an earlier export; without it, none is replaced.
        names: all the files that such an export may hold.
    """
    folder = Path(folder)
    if not folder.exists():
        return
    found = sorted(os.listdir(folder)) if folder.is_dir() else []
    is_export = False
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        is_export = json.loads((folder / "config.json").read_bytes()).get("format") == format_name
    others = [name for name in found if name not in names or not is_export]
    if others or not folder.is_dir():
        what = f"holds {others[0]}" if others else "is a file"
        earlier = ", or an earlier export of this kind" if names else ""
        raise FileExistsError(f"{folder} {what}, expected a new or empty folder{earlier}: choose another")


@contextlib.contextmanager
def replace_folder(folder: str | Path, format_name: str = "", names: Collection[str] = ()) -> Iterator[Path]:
    """Give an empty folder to write to, which takes the place of ``folder`` if nothing fails on the way.

    Arguments are those of ``check_replaceable``. A process that is killed leaves a hidden folder beside it.

    Raises:
        FileExistsError: the folder holds something else; it is left alone.
        OSError: it cannot be written; what was there before is unchanged.
    """
    folder = Path(os.path.realpath(folder))
    check_replaceable(folder, format_name, names)
    beside = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.tmp")
    new, old = beside / "new", beside / "old"
    try:
        new.mkdir(parents=True)
        yield new
        check_replaceable(folder, format_name, names)  # writing takes a while
        try:
            if folder.exists():
                shutil.copymode(folder, new)
                folder.rename(old)
            new.rename(folder)
        except BaseException:  # Ctrl-C, too
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise
    finally:
        if folder.exists() or not old.exists():
            shutil.rmtree(beside, ignore_errors=True)
