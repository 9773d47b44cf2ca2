"""What the command line reads and prints: UTF-8 lines in, and lines out that no terminal obeys."""

import codecs
import contextlib
import shlex
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from transformer_lib.data.tokenizers import one_line
from transformer_lib.inference.translator import Translator


def read_lines(translator: Translator, path: Path | None) -> Iterator[list[str | None]]:
    """Yield the lines of a file or the standard input, as many at a time as there are, up to 64 KiB.

    They are in UTF-8, whatever the locale says. Those that cannot be used are named, and become None.
    """
    path = None if path == Path("-") else path
    if path is None and sys.stdin is None:
        raise ValueError("the standard input is closed, expected sentences there, or as arguments")
    number = 0
    with contextlib.nullcontext(sys.stdin.buffer) if path is None else open(path, "rb") as file:
        for block in _blocks(file):
            lines = [_usable(translator, number + i, line) for i, line in enumerate(block, start=1)]
            number += len(lines)
            yield lines


def _blocks(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yield whole lines, without their ends, as soon as they are there."""
    rest, end = bytearray(), b""
    while block := file.read1(2**16):
        rest += block
        if b"\n" in block:
            *lines, rest = rest.split(b"\n")
            yield [lines[0].removeprefix(b"" if end else codecs.BOM_UTF8), *lines[1:]]
            end = b"\n"
    if rest:
        rest = rest.removeprefix(b"" if end else codecs.BOM_UTF8)
        yield [rest] if end else rest.removesuffix(b"\r").split(b"\r")  # as old Macs ended lines


def _usable(translator: Translator, number: int, line: bytes) -> str | None:
    """Return a line as text, or say why it cannot be translated; one with nothing visible is empty."""
    try:
        text = line.decode().strip()
        if all(unicodedata.category(letter)[0] in "ZC" for letter in text):
            return ""
        if "\0" in text:
            raise ValueError("it holds zero bytes, as UTF-16 does: convert it first")
        translator.source_tokens(text)
        return text
    except ValueError as error:
        reason = f"it is not UTF-8 ({error.reason}): convert it first" if hasattr(error, "reason") else error
        print(one_line(f"line {number}: {reason}"), file=sys.stderr)
        return None


def try_it(command: str, output: Path, text: str) -> None:
    """Print a command that can be pasted as it is, whatever is in the text."""
    print("\nTry it:  ", one_line(shlex.join(["transformer-lib", command, "--model", str(output), text])))


def log(line: str) -> None:
    """Print a line at once, without control characters."""
    print(one_line(line), flush=True)  # a folder may be called anything
