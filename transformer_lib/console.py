"""What the command line reads and prints: UTF-8 lines in, and lines out that no terminal obeys."""

import codecs
import shlex
import sys
import unicodedata
from pathlib import Path

from transformer_lib.inference.translator import Translator


def read_lines(translator: Translator, path: Path | None) -> tuple[list[str], int]:
    """Read the lines of a file or the standard input, in UTF-8 whatever the locale says.

    Those that cannot be used are named, counted and left empty.
    """
    if path is None and sys.stdin is None:
        raise ValueError("the standard input is closed, expected sentences there, or as arguments")
    content = sys.stdin.buffer.read() if path is None else path.read_bytes()
    lines, unusable = [], 0
    end = b"\n" if b"\n" in content else b"\r"  # as old Macs wrote it
    content = content.removeprefix(codecs.BOM_UTF8).removesuffix(end)
    for number, line in enumerate(content.split(end) if content else [], start=1):
        try:
            text = line.decode().strip()
            if all(unicodedata.category(letter)[0] in "ZC" for letter in text):  # nothing, or nothing visible
                text = ""
            elif "\0" in text:
                raise ValueError("it holds zero bytes, as UTF-16 does: convert it first")
            else:
                translator.source_tokens(text)
        except ValueError as error:
            text, unusable = "", unusable + 1
            reason = f"it is not UTF-8 ({error.reason}): convert it first" if hasattr(error, "reason") else error
            print(one_line(f"line {number}: {reason}"), file=sys.stderr)
        lines.append(text)
    return lines, unusable


def one_line(text: str) -> str:
    """Return a text without control characters: an untrusted model could make a terminal do more than print."""
    return "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in text)


def try_it(command: str, output: Path, text: str) -> None:
    """Print a command that can be pasted as it is, whatever is in the text."""
    print("\nTry it:  ", one_line(shlex.join(["transformer-lib", command, "--model", str(output), text])))


def log(line: str) -> None:
    """Print a line at once, without control characters."""
    print(one_line(line), flush=True)  # a folder may be called anything
