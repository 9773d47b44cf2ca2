"""Bring the listings that the notebooks store up to date with the source: ``python notebooks/listings.py``.

A listing is what a cell that ends in ``show_source(…)`` prints, or in notebook 14's own ``folded(…)``: it follows from
the source alone, so it can be made again without running the cells before it. So does the closed fold below each
``box = write(box)``, which shows the worked answer. Everything else in a notebook comes from a full run
(``make outputs``).
"""

import ast
import inspect
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from transformer_exercises import course

NOTEBOOKS = sorted(Path(__file__).parent.glob("[0-9]*.ipynb"))


def outdated(notebook: dict) -> Iterator[tuple[dict, dict, list[str]]]:
    """Yield each cell whose stored listing is not what it would print today, its output, and what it would print."""
    names: dict = {}
    for cell in (cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        tree = ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", "".join(cell["source"])))  # without shell commands
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom) or getattr(node, "name", "") == "folded":
                exec(compile(ast.Module([node], []), "cell", "exec"), names)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr) and ast.unparse(last).startswith(("show_source(", "folded(")):
            listing = eval(ast.unparse(last), names).data.splitlines(keepends=True)
            (output,) = (output for output in cell["outputs"] if output["output_type"] == "execute_result")
            if output["data"]["text/markdown"] != listing:
                yield cell, output, listing


FOLD = "<details><summary>Worked answer</summary>\n\n```python\n{}\n```\n\n</details>"


def outdated_folds(notebook: dict) -> Iterator[tuple[str, dict, list[str]]]:
    """Yield the boxes below whose ``write`` there is not the worked answer, the cell there, and what it should be."""
    for cell, below in itertools.pairwise(notebook["cells"]):
        names = re.findall(r"(?m)^(\w+) = write\(\1\)$", "".join(cell["source"])) if cell["cell_type"] == "code" else []
        if names:
            code = "\n\n\n".join(inspect.getsource(course.own(name)).rstrip() for name in names)
            if below["source"] != (fold := FOLD.format(code).splitlines(keepends=True)):
                yield ", ".join(names), below, fold


if __name__ == "__main__":
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for names, below, fold in outdated_folds(notebook):
            if not "".join(below["source"]).startswith("<details><summary>Worked answer"):
                raise SystemExit(
                    f"{path.name}: below {names} = write(…), there is no markdown cell for the worked answer"
                )
            below["source"] = fold
            print(f"{path.name}: {names}")
        for cell, output, listing in outdated(notebook):
            output["data"]["text/markdown"] = listing
            print(f"{path.name}: {''.join(cell['source']).splitlines()[-1]}")
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
