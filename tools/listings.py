"""Bring what the notebooks store and the source alone decides up to date: ``python tools/listings.py``.

A listing is what a cell that ends in ``show_source(…)`` prints, or in ``folded(…)``: it can be made
again without running the cells before it. So can what ``guess(…)`` shows, the empty output that hides what answers it
(JupyterLab prints the first line of a hidden output), and the closed fold below each ``box = write(box)``, which shows
the worked answer. Everything else in a notebook comes from a full run (``make outputs``).
"""

import ast
import inspect
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from transformer_exercises import NOTHING, course

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
ONE_FILE = (ROOT / "the_transformer.py").read_text(encoding="utf-8")
THE_SAME = (  # what the notebooks ask for as it is in the one file
    *("padding_mask", "causal_mask", "target_mask"),
    *("PositionwiseFeedForward", "SinusoidalPositionalEncoding"),
)


def outdated(notebook: dict) -> Iterator[tuple[dict, dict, dict]]:
    """Yield each cell whose stored listing or question is not what it would show today, its data, and the new ones."""
    names: dict = {}
    for cell in (cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        tree = ast.parse(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", "".join(cell["source"])))  # without shell commands
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom) or getattr(node, "name", "") == "folded":
                exec(compile(ast.Module([node], []), "cell", "exec"), names)
        last = ast.unparse(tree.body[-1]) if tree.body and isinstance(tree.body[-1], ast.Expr) else ""
        if last.startswith(("show_source(", "folded(", "guess(")):
            shown = eval(last, names)
            if last.startswith("guess("):
                new = {"text/html": shown._repr_html_(), "text/plain": repr(shown)}
            else:
                new = {"text/markdown": shown.data}
            new = {kind: text.splitlines(keepends=True) for kind, text in new.items()}
            (data,) = (output["data"] for output in cell["outputs"] if output["output_type"] == "execute_result")
            if any(data[kind] != lines for kind, lines in new.items()):
                yield cell, data, new


EMPTY = {kind: text.splitlines() for kind, text in NOTHING.items()}


def telling(notebook: dict) -> Iterator[dict]:
    """Yield the cells whose hidden output does not begin with nothing."""
    for cell in notebook["cells"]:
        hidden = cell["metadata"].get("jupyter", {}).get("outputs_hidden")
        if hidden and cell["outputs"] and cell["outputs"][0].get("data") != EMPTY:
            yield cell


WRITES = re.compile(r"(?m)^(\w+) = write\(\1\)$")
FOLD = "<details><summary>Worked answer</summary>\n\n```python\n{}\n```\n\n</details>"


def source_of(name: str) -> str:
    """Return the worked answer that has its home elsewhere, or nothing: all others have theirs in their folds."""
    if name in THE_SAME:
        return ast.get_source_segment(ONE_FILE, definitions_of(ONE_FILE)[name])
    return inspect.getsource(course.own(name)).rstrip() if name in course.STEPS else ""


def definitions_of(source: str) -> dict[str, ast.stmt]:
    """Return a file's functions and classes by their names."""
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def outdated_folds(notebook: dict) -> Iterator[tuple[str, dict, list[str]]]:
    """Yield the boxes below whose ``write`` there is not the worked answer, the cell there, and what it should be."""
    for cell, below in itertools.pairwise(notebook["cells"]):
        names = WRITES.findall("".join(cell["source"])) if cell["cell_type"] == "code" else []
        if names:
            sources = [source_of(name) for name in names]
            fold = FOLD.format("\n\n\n".join(sources)).splitlines(keepends=True)
            if all(sources) and below["source"] != fold:
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
        for cell, data, new in outdated(notebook):
            data.update(new)
            print(f"{path.name}: {''.join(cell['source']).splitlines()[-1]}")
        for cell in telling(notebook):
            cell["outputs"].insert(0, {"data": EMPTY, "metadata": {}, "output_type": "display_data"})
            print(f"{path.name}: {cell['id']}")
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
