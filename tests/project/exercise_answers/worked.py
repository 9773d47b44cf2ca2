"""The worked answers, which stand in the closed folds below the notebooks' ``write`` cells, as modules.

Each has its notebook's imports, what it takes from other notebooks (``kept``), the functions and classes that it gives
and that its folds use, and the code of the folds. So a fold that cannot be run, or that is wrong, makes tests fail.
"""

import ast
import functools
import json
import linecache
import re
import sys
from pathlib import Path
from types import ModuleType

from transformer_exercises import course

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
WRITES = re.compile(r'(?m)^((\w+) = write\(\2(?:, "(.+)")?\))$')
FOLD = re.compile(r"<details><summary>Worked answer</summary>\n\n```python\n(.*?)\n```\n\n</details>", re.DOTALL)


def notebook(number: str) -> ModuleType:
    """Return the module of a notebook, such as ``"04"``."""
    return _module(f"worked answers of notebook {number}", number)


def asked_for(source: str) -> dict[str, str]:
    """Return what the cell of a notebook lets its readers write, by name, and the lines that check it."""
    return {", ".join(filter(None, found[1:])): found[0] for found in WRITES.findall(source)}


def answer(name: str) -> object:
    """Return the worked answer of a name that a notebook lets its readers write."""
    return getattr(notebook(course.notebook_of(name)), name.partition(",")[0])


@functools.cache
def _module(file: str, number: str) -> ModuleType:
    imports, given, folds, names = [], {}, [], {}
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            folds += FOLD.findall(source)
            continue
        names |= {name: answer(name) for name in re.findall(r'(?m)^(\w+) = kept\(.*, "\1"\)', source)}
        source = re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", source)  # without shell commands
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.append(ast.get_source_segment(source, node))
            elif isinstance(node, ast.ClassDef | ast.FunctionDef) and "= write(" not in source:
                given[node.name] = ast.get_source_segment(source, node)
    used = {node.id for node in ast.walk(ast.parse("\n".join(folds))) if isinstance(node, ast.Name)}
    text = "\n\n\n".join(["\n".join(imports), *(given[name] for name in given if name in used), *folds]) + "\n"
    module = sys.modules[file] = ModuleType(file)
    module.__file__ = file
    vars(module).update(names)
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), vars(module))
    return module
