"""``python -m transformer_exercises handout 02 04 FOLDER``: notebooks for a class, without the worked answers.

Gone are the closed folds "Worked answer", the stored outputs of cells that check or write, the sentences that send to
a worked answer, and links to what is not in the folder: only their words stay. The guesses stay, with their hidden
outputs and the folds "What it shows": they answer no exercise, and who has guessed wants to know. Without them, too:
``--without-results``.

What is not hidden: the library that the class installs holds right code (``transformer_lib``, and ``course`` beside
this file). And a notebook may begin with what the one before asked for, as 03 does with ``MultiHeadAttention`` of 02:
hand out one after the other.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformer_lib.files import one_line, replacing

NOTEBOOKS = Path(__file__).resolve().parents[1]  # in the repository; an installed package has none
_WORKED = re.compile(r"<details><summary>Worked answer</summary>.*?</details>\s*", re.DOTALL)
_RESULT = re.compile(r"<details><summary>What it shows</summary>.*?</details>\s*", re.DOTALL)
_CHECKS = re.compile(r"""(?m)\bcheck\(\s*["']\d\d\.\d["']|^(\w+) = write\(\1[,)]""")
_SENDING = re.compile(  # what sends to answers that are not there
    r" Where there's code to write, read the worked answer below it\."
    r"|, of which there are \[worked solutions\]\([^)]*\)"
    r"| A worked answer waits in the fold below\. If you skip a part, read it there\."
)
_LINK = re.compile(r"\[([^\[\]]+)\]\(([\w./-]+\.(?:ipynb|md|py|html|svg|png))(#[^)\s]*)?\)")


def without_answers(notebook: dict[str, Any], names: Iterable[str], results: bool = True) -> dict[str, Any]:
    """Return a copy of a notebook without what gives answers away.

    Args:
        notebook: as nbformat 4 stores it.
        names: of the files to which links may lead.
        results: whether what guesses are about stays: the folds "What it shows", and the outputs before them.
    """
    copy, known = json.loads(json.dumps(notebook)), set(names)
    cells = []
    for cell in copy["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = _SENDING.sub("", _WORKED.sub("", source))
            text = text if results else _RESULT.sub("", text)
            text = _LINK.sub(lambda link: link[0] if link[2] in known else link[1], text)
            if not text.strip():
                continue
            cell["source"] = text.splitlines(keepends=True)
        elif cell["cell_type"] == "code":
            hidden = cell["metadata"].get("jupyter", {}).get("outputs_hidden")
            if _CHECKS.search(source) or (hidden and not results):
                cell["outputs"], cell["execution_count"] = [], None
        cells.append(cell)
    return {**copy, "cells": cells}


def add_handout(commands: Any) -> None:
    """Add the command ``handout``."""
    parser = commands.add_parser(
        "handout",
        help="copy notebooks for a class, without worked answers",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("numbers", nargs="+", metavar="NUMBER", help="of a notebook, such as 02")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the copies go; it is made if there is none")
    parser.add_argument(
        "--without-results",
        action="store_true",
        help='also without the folds "What it shows", and without the hidden outputs that guesses are about',
    )
    parser.set_defaults(run=handout)


_DESCRIPTION = """\
Write copies of notebooks without worked answers: their folds are gone, the stored outputs of cells that check or write
are cleared, and links to what is not in the folder are plain words. Guesses, and the folds that follow them, stay.

Not hidden: the installed library holds right code. A notebook may begin with what the one before asked for, as 03 does
with MultiHeadAttention of 02: hand out one after the other.
"""


def handout(options: argparse.Namespace) -> int:
    """Write the copies, say where they are, and return the exit code."""
    paths = []
    for number in options.numbers:
        found = sorted(NOTEBOOKS.glob(f"{number.zfill(2)}_*.ipynb")) if re.fullmatch(r"\d{1,2}", number) else []
        if len(found) != 1:
            there = sorted(path.name[:2] for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
            expected = (
                f"expected one of {', '.join(there)}"
                if there
                else ("but the installed package has no notebooks: run this in the folder notebooks of the repository")
            )
            return _refuse(f"handout: number is {number!r}, {expected}")
        paths += found
    for path in paths:
        if (options.folder / path.name).exists():
            return _refuse(f"handout: {options.folder / path.name} is there already, expected a folder without it")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            notebook = json.loads(path.read_text(encoding="utf-8"))
            copy = without_answers(notebook, [path.name for path in paths], not options.without_results)
            with replacing(options.folder / path.name) as temporary:
                temporary.write_text(json.dumps(copy, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(options.folder / path.name)
    except OSError as error:
        return _refuse(f"handout: folder is {options.folder}, expected one to write to: {error}")
    return 0


def _refuse(line: str) -> int:
    print(one_line(line), file=sys.stderr)
    return 2
