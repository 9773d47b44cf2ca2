"""What readers wrote, from one notebook to the next: ``keep`` writes it down, in ``written.py``, and ``kept`` finds it.

A file of Python, to be read and changed by hand: each function or class as it stands in its cell, with its decorators
and comments, and, before it, the imports, helpers and constants of other cells that it uses. ``keep`` reads what it is
about to write, checks it, and leaves out what is no longer right there, with the reason. Whatever else is in the file
stays as it is.
"""

import ast
import builtins
import contextlib
import inspect
import itertools
import linecache
import symtable
import sys
import tempfile
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path
from typing import Any

import filelock
import torch

from transformer_exercises import course
from transformer_lib.files import replacing

FILE = "written.py"
Check = Callable[[str, Any], Any]  # says whether what is kept under a name is right: a ``Verdict``
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_MOST_NUMBERS = 1000  # in a tensor that is a constant


@dataclass
class Block:
    """A statement of a file or a cell, with the comments right above it, and the names that it gives."""

    names: tuple[str, ...]
    text: str
    imports: bool = False


@dataclass
class Collection:
    """What a function or class needs to run elsewhere, and what of it cannot be written down.

    Attributes:
        file: where it goes. What is there already is not collected again: somebody may have changed it since.
        blocks: definitions and constants, by their first name; what is needed comes before what needs it.
        imports: a line for each imported name.
        missing: a sentence for each name that leads to nothing that can be written down.
    """

    file: str
    blocks: dict[str, Block] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def keep(folder: str | Path, written: Iterable[Any], check: Check) -> None:
    """Write functions and classes to ``written.py``, with all that they use, and say what is kept and what is not."""
    items = {item.__name__: item for item in written if not is_a_stand_in(item)}
    if not items:
        print("Nothing is kept: none of it is yours yet.")
        return
    file = (Path(folder) / FILE).resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    refused: dict[str, str] = {}
    missing: dict[str, None] = {}
    with filelock.FileLock(file.parent / f".{FILE}.lock", timeout=60):  # two notebooks may keep at once
        before = _readable_text(file)
        while len(refused) < len(items):  # until all that is in it is right
            collection = Collection(str(file))
            for name, item in items.items():
                if name not in refused and _file_of(item) != str(file):
                    _collect(item, collection)
            missing |= dict.fromkeys(collection.missing)
            text = merged(before, collection)
            new = _not_right([name for name in items if name not in refused], text, check)
            refused |= new
            if not new:
                with replacing(file) as temporary:
                    temporary.write_text(text, encoding="utf-8")
                break
    for line in [*missing, *(f"{name} is not kept: {why}" for name, why in refused.items())]:
        print(line)
    if right := [name for name in items if name not in refused]:
        print(f"{FILE} keeps what you wrote: {', '.join(right)}")


def kept(folder: str | Path, name: str, check: Check) -> Any:
    """Return what ``keep`` wrote down under a name, if it is right; else what stands in. A line says which it is."""
    file, written, why_not = (Path(folder) / FILE).resolve(), None, "since you have kept none"
    try:
        module, stopped = run(file)
    except FileNotFoundError:
        pass
    except (OSError, SyntaxError, ValueError) as error:
        why_not = f"since {FILE} cannot be read: {type(error).__name__}: {error}"
    else:
        written = getattr(module, name, None)
        if written is not None and not is_a_stand_in(written):
            verdict = check(name, written)
            why_not = "" if verdict else f"since yours is not right: {verdict.message}"
        elif stopped:
            error = stopped.get(name, next(iter(stopped.values())))
            why_not = f"since what is kept cannot be run: {type(error).__name__}: {error}"
    print(f"{name}: {course.whose(name)} own, {why_not}" if why_not else f"{name}: yours")
    return course.own(name) if why_not else written


def is_a_stand_in(item: Any) -> bool:
    """Return whether this is the course's own or the library's, and nothing that a reader wrote."""
    where = getattr(item, "__module__", None) or ""
    return where.partition(".")[0] in ("transformer_exercises", "transformer_lib")


def _readable_text(file: Path) -> str:
    """Return what is in a file. One that is no Python is set aside, under another name: somebody wrote it."""
    try:
        text = file.read_text(encoding="utf-8")
        ast.parse(text)
        return text
    except FileNotFoundError:
        return ""
    except (SyntaxError, ValueError) as error:
        number = next(n for n in range(1, 10_000) if not file.with_name(f"{file.stem}.unreadable{n}.py").exists())
        aside = file.rename(file.with_name(f"{file.stem}.unreadable{number}.py"))
        print(f"{FILE} cannot be read ({error}): it is {aside.name} now, and a new one begins")
        return ""


def run(file: Path) -> tuple[types.ModuleType, dict[str, Exception]]:
    """Run a file statement by statement, and return its names, and what stopped those that stopped, by their names."""
    module, stopped = types.ModuleType(file.stem), {}
    text = file.read_text(encoding="utf-8")
    module.__file__ = str(file)
    linecache.checkcache(str(file))
    for node in ast.parse(text, str(file)).body:
        try:
            exec(compile(ast.Module([node], []), str(file), "exec", dont_inherit=True), vars(module))
        except Exception as error:  # one that cannot be run takes no other with it
            stopped |= dict.fromkeys(names_given(node) or [f"line {node.lineno}"], error)
    return module, stopped


def _not_right(names: Iterable[str], text: str, check: Check) -> dict[str, str]:
    """Return the names under which a file of this text would have nothing right, and why."""
    wrong = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, FILE)
        file.write_text(text, encoding="utf-8")
        module, stopped = run(file)
        for name in names:
            if name in stopped:
                wrong[name] = f"it cannot be run again: {type(stopped[name]).__name__}: {stopped[name]}"
            elif course.notebook_of(name) and not (verdict := check(name, getattr(module, name, None))):
                wrong[name] = f"written down, it is no longer right: {verdict.message}"
    return wrong


# From a function or a class to the source of all that it uses


def _file_of(item: Any) -> str:
    return getattr(_code_of(item), "co_filename", "")


def _code_of(item: Any) -> types.CodeType | None:
    """Return the code of a function, or of a class's first method: that knows its file and its line."""
    if inspect.isclass(item):
        parts = (getattr(part, "fget", None) or getattr(part, "__func__", part) for part in vars(item).values())
        codes = (_code_of(part) for part in parts if inspect.isfunction(part))
        return next((code for code in codes if code), None)
    return getattr(inspect.unwrap(item), "__code__", None)


def _globals_of(item: Any) -> dict[str, Any]:
    """Return the names that a function, or a class's methods, find around them."""
    parts = vars(item).values() if inspect.isclass(item) else [item]
    functions = [inspect.unwrap(part) for part in parts if inspect.isfunction(part)]
    return functions[0].__globals__ if functions else {}


def _sources(file: str = "") -> Iterator[tuple[list[str], ast.Module]]:
    """Yield lines and tree of a file, if there is one, and of all cells of this kernel, the newest first.

    IPython keeps the source of cells in ``linecache``; they are what no file on the disk has changed since.
    """
    cells = [name for name, known in linecache.cache.items() if len(known) == 4 and known[1] is None]
    for name in dict.fromkeys([file, *reversed(cells)]):
        source = "".join(linecache.getlines(name))
        with contextlib.suppress(SyntaxError):
            yield source.splitlines(), ast.parse(source)


def _lines_of(node: ast.stmt, lines: list[str]) -> tuple[int, int]:
    """Return the first and the last line of a statement, with its decorators and the comments right above it."""
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return first, node.end_lineno or node.lineno


def statements(lines: list[str], tree: ast.Module) -> Iterator[Block]:
    """Yield the statements of a cell or a file, and the comments that stand alone."""
    end = 0
    for node in tree.body:
        first, last = _lines_of(node, lines)
        if alone := "\n".join(lines[end : first - 1]).strip():
            yield Block((), alone)
        text = "\n".join(lines[first - 1 : last])
        yield Block(tuple(names_given(node)), text, isinstance(node, ast.Import | ast.ImportFrom))
        end = last
    if alone := "\n".join(lines[end:]).strip():
        yield Block((), alone)


def names_given(node: ast.stmt) -> list[str]:
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [part.id for target in targets if target for part in ast.walk(target) if isinstance(part, ast.Name)]


def _definition(item: Any) -> Block | None:
    """Return a function's or a class's own definition: of several in a cell, that which its code comes from."""
    code = _code_of(item)
    for lines, tree in _sources(_file_of(item)):
        for node in ast.walk(tree):
            if isinstance(node, _DEFINITIONS) and node.name == item.__name__:
                first, last = _lines_of(node, lines)
                if code is None or first <= code.co_firstlineno <= last:
                    return Block((item.__name__,), textwrap.dedent("\n".join(lines[first - 1 : last])))
        if code is not None:
            return None
    return None


def names_used(text: str, at_once: bool = False) -> list[str]:
    """Return the names that a statement finds around it; ``at_once``, only those that it needs as it is run."""

    def of(table: symtable.SymbolTable) -> Iterator[str]:
        yield from (
            symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()
        )
        for inner in table.get_children():
            if not at_once or inner.get_type() == "class":
                yield from of(inner)

    top = symtable.symtable(text, "cell", "exec")
    given = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned()}
    return [name for name in dict.fromkeys(of(top)) if name not in given and not hasattr(builtins, name)]


def _collect(item: Any, into: Collection, around: dict[str, Any] | None = None) -> None:
    """Add a function's or a class's definition, after all that it uses. A class without methods knows no names."""
    name = item.__name__
    block = _definition(item)
    if block is None:
        into.missing.append(f"The source of {name} is not to be found.")
        return
    into.blocks[name] = block  # now, so that what calls itself ends
    around = _globals_of(item) or around or vars(sys.modules[item.__module__])
    _collect_names(block, around, into)
    into.blocks[name] = into.blocks.pop(name)  # after what it uses


def _collect_names(block: Block, around: dict[str, Any], into: Collection) -> None:
    for name in names_used(block.text):
        if name in into.blocks or name in into.imports or name in block.names:
            continue
        value = around.get(name, into)  # anything that no name means
        own = getattr(value, "__module__", None) in ("__main__", "written") and getattr(value, "__name__", "") == name
        if own and _file_of(value) == into.file:
            continue
        if own:
            _collect(value, into, around)
        elif line := _import_of(name, value):
            into.imports[name] = line
        elif constant := _constant(name, value, around, into):
            into.blocks[constant.names[0]] = constant
        else:
            lines = block.text.splitlines()
            number = next((n for n, line in enumerate(lines, start=1) if name in line), 1)
            what = "is not defined" if value is into else f"is a {type(value).__name__}, and cannot be written down"
            line = f"in its line {number}, `{lines[number - 1].strip()}`"
            into.missing.append(f"{block.names[0]} uses `{name}` {line}: it {what}.")


def _import_of(name: str, value: Any) -> str:
    """Return the line that imports a name: the reader's, or another that leads to the same thing."""
    if isinstance(value, types.ModuleType):
        package, _, last = value.__name__.rpartition(".")
        if package and last == name:
            return f"from {package} import {name}"
        return f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
    for _, tree in _sources():
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level):
            for alias in node.names:
                there = getattr(sys.modules.get(node.module or ""), alias.name, None)
                if (alias.asname or alias.name) == name and there is value:
                    return ast.unparse(ast.ImportFrom(node.module, [alias], 0))
    where, known_as = getattr(value, "__module__", None) or "", getattr(value, "__name__", "")
    if known_as and where not in ("", "__main__", "written") and getattr(sys.modules[where], known_as, None) is value:
        return f"from {where} import {known_as}" + (f" as {name}" if known_as != name else "")
    return ""


def _is_plain(value: Any) -> bool:
    """Whether a value is a constant: numbers, texts, types and devices of PyTorch's, functions, and lists of these."""
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, torch.Tensor):
        return value.numel() <= _MOST_NUMBERS and not value.requires_grad
    plain = Number | str | bytes | None | torch.dtype | torch.device | types.FunctionType | range | slice
    return isinstance(value, plain)


def _constant(name: str, value: Any, around: dict[str, Any], into: Collection) -> Block | None:
    """Return the statement that gives a constant its value, if it can be run elsewhere; or else, the value."""
    for lines, tree in _sources() if _is_plain(value) else ():
        for block in reversed(list(statements(lines, tree))):
            if name in block.names and not block.imports:
                needed = Collection(into.file, dict(into.blocks), dict(into.imports))
                _collect_names(block, around, needed)
                if not needed.missing:
                    into.blocks, into.imports = needed.blocks, needed.imports
                    return block
                if not isinstance(value, torch.Tensor | types.FunctionType):
                    return Block((name,), f"{name} = {value!r}  # {' '.join(block.text.split())}")
    return None


# From what is in a file, and what comes, to what will be in it


def merged(before: str, collection: Collection) -> str:
    """Return the text of a file with these blocks and imports in it, each in place of an older one of its name."""
    blocks = list(statements(before.splitlines(), ast.parse(before)))
    new = list({id(block): block for block in collection.blocks.values()}.values())
    given = {name for block in new for name in block.names}
    blocks = [block for block in blocks if not (block.imports and set(block.names) <= given)]
    for block in new:
        older = [old for old in blocks if not old.imports and set(old.names) & set(block.names)]
        place = blocks.index(older[0]) if older else len(blocks)
        blocks = [old for old in blocks if old not in older]
        blocks.insert(place, block)
    defined = {name for block in blocks if not block.imports for name in block.names}
    known = {block.text for block in blocks if block.imports}
    lines = [line for name, line in collection.imports.items() if name not in defined and line not in known]
    head = next((place for place, block in enumerate(blocks) if block.names and not block.imports), len(blocks))
    last = max((place for place, block in enumerate(blocks[:head], start=1) if block.imports), default=0)
    blocks[last:last] = [Block((), line, imports=True) for line in dict.fromkeys(lines)]
    ordered = _in_order(blocks)
    text = "".join(
        block.text + ("\n" if block.imports and after.imports else "\n\n\n")
        for block, after in itertools.pairwise(ordered)
    )
    return f"{text}{ordered[-1].text}\n"


def _in_order(blocks: list[Block]) -> list[Block]:
    """Return the blocks, each after those that it needs as it is run, such as a parent class."""
    by_name = {name: block for block in blocks if not block.imports for name in block.names}
    ordered: list[Block] = []
    begun: set[int] = set()

    def put(block: Block) -> None:
        if id(block) in begun:
            return
        begun.add(id(block))
        for name in () if block.imports else names_used(block.text, at_once=True):
            if name in by_name:
                put(by_name[name])
        ordered.append(block)

    for block in blocks:
        put(block)
    return ordered
