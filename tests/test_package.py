"""What is true of the package as a whole: what importing it costs, who imports whom, and where each name lives."""

import ast
import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import transformer_lib

PACKAGE = Path(transformer_lib.__file__).parent

# The rooms from the bottom up: each imports only from those before it, and from itself.
ROOMS = [
    "fast",
    "model",
    "files",
    "data",
    "checkpoint",
    "inference",
    "training",
    "language_model",
    "interop",
    "notebook",
    "page",
    "cli",
]
# Every module by its name without "transformer_lib."; "model" itself is model/__init__.py. The package's own
# __init__.py and __main__.py stand in no room: they import from all.
FILES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
ABOVE_ALL = ("__init__", "__main__")
IN_ROOMS = [module for module in FILES if module not in ABOVE_ALL]
SLOW_OR_OPTIONAL = ("ctranslate2", "IPython", "ipywidgets", "matplotlib", "spacy", "torchtext")


def run_python(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **options).stdout


@functools.cache
def tree_of(module):
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def imports_of(tree, at_the_top=False):
    """Full names of what a module imports, functions' own imports too unless only the top is asked for."""
    typing_only = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node)]
    left_out = typing_only + [node for node in ast.walk(tree) if at_the_top and isinstance(node, ast.FunctionDef)]
    left_out = {id(inner) for node in left_out for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in left_out:
            assert not node.level, f"a relative import of {node.module}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import) and id(node) not in left_out:
            yield from (alias.name for alias in node.names)


@functools.cache
def packages_of(module):
    return {name.split(".")[0] for name in imports_of(tree_of(module))}


def users_of(package):
    return {module for module in FILES if package in packages_of(module)}


def functions_of(module):
    return [node for node in ast.walk(tree_of(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_the_library_is_small():
    """Syntax counts, not lines: packing gains nothing here, and taking something away does."""
    nodes = {module: sum(1 for _ in ast.walk(tree_of(module))) for module in FILES}
    largest = sorted(nodes, key=nodes.get, reverse=True)[:5]
    assert sum(nodes.values()) <= 46_000, f"{nodes}; the largest: {largest}"


def test_a_function_can_be_held_in_the_head():
    too_much = []
    for module in FILES:
        for function in functions_of(module):
            lines = function.end_lineno - function.lineno + 1
            if ast.get_docstring(function) is not None:
                lines -= function.body[0].end_lineno - function.body[0].lineno + 1
            stored = (node for node in ast.walk(function) if isinstance(getattr(node, "ctx", None), ast.Store))
            names = {node.id for node in stored if isinstance(node, ast.Name)}
            if lines > 60 or len(names) > 24:
                too_much.append(f"{module}.{function.name}: {lines} lines, {len(names)} assigned names")
    assert not too_much


@pytest.mark.processes
def test_importing_the_library_loads_nothing_that_is_slow_or_optional_and_loading_a_model_no_compiler():
    """PyTorch's would take longer than all the rest."""
    code = "import sys, transformer_lib as t, transformer_lib.cli; print(*sys.modules); {}; print(*sys.modules)"
    imported, loaded = (line.split() for line in run_python(code.format("t.Translator.load()")).splitlines())
    assert not {name.split(".")[0] for name in imported} & {*SLOW_OR_OPTIONAL}
    assert "sentencepiece" in loaded and not {"torch._dynamo", "sympy"} & {*loaded}


@pytest.mark.processes
def test_the_model_and_what_makes_it_fast_can_be_copied_to_where_there_is_only_torch(tmp_path):
    (tmp_path / "transformer_lib").mkdir()
    (tmp_path / "transformer_lib" / "__init__.py").touch()
    for room in ("model", "fast"):
        shutil.copytree(PACKAGE / room, tmp_path / "transformer_lib" / room)
        needed = {
            name.split(".")[0]
            for module in FILES
            if module.split(".")[0] == room
            for name in imports_of(tree_of(module))
        }
        assert needed <= {*sys.stdlib_module_names, "torch", "transformer_lib"}
    code = "import sys, torch; before = {*sys.modules}; import transformer_lib.model.transformer as model"
    loaded = run_python(f"{code}; print(model.__file__, *{{*sys.modules}} - before)", cwd=tmp_path).split()
    assert loaded[0].startswith(str(tmp_path))
    assert {name.split(".")[0] for name in loaded[1:]} - sys.stdlib_module_names == {"transformer_lib"}


def test_a_name_that_is_offered_is_defined_in_one_module_and_comes_from_there():
    offered = list(imports_of(tree_of("__init__")))
    offered = [name.removeprefix("transformer_lib.") for name in offered if name.startswith("transformer_lib.")]
    assert "inference.translator.Translator" in offered
    for module, name in (full.rsplit(".", 1) for full in offered):
        kinds = ast.FunctionDef | ast.ClassDef
        defined = [
            (home, node) for home in IN_ROOMS if home != "cli" for node in tree_of(home).body if isinstance(node, kinds)
        ]
        assert [home for home, node in defined if node.name == name] == [module], name


def place_of(name):
    """Return where a module's room stands, which is the first that it belongs to."""
    return next(place for place, room in enumerate(ROOMS) if f"{name}.".startswith(f"{room}."))


def test_a_room_imports_only_from_those_before_it():
    assert {ROOMS[place_of(module)] for module in IN_ROOMS} == {*ROOMS}
    for module in IN_ROOMS:
        for name in imports_of(tree_of(module)):
            package, _, home = name.partition(".")
            assert package != "transformer_exercises", module
            if package == "transformer_lib" and (home or module != "cli"):
                assert place_of(home) <= place_of(module), f"{module} imports {name}"


def test_one_module_knows_where_things_lie_that_come_with_the_library():
    """Others may name what lies beside them, as a wheel leaves it there."""
    for module in FILES:
        above = [node for node in ast.walk(tree_of(module)) if getattr(node, "attr", None) in ("parent", "parents")]
        of_the_package = [node for node in above if "__file__" in ast.dump(node)]
        assert not of_the_package or module == "files", module


def test_no_modules_import_each_other_in_a_circle():
    """Functions' own imports count, too: one that is hidden there is a circle all the same."""
    needs = {
        module: {
            known
            for name in imports_of(tree_of(module))
            for known in IN_ROOMS
            if f"{name}.".startswith(f"transformer_lib.{known}.")
        }
        - {module}
        for module in IN_ROOMS
    }
    while free := [module for module, needed in needs.items() if not needed & needs.keys()]:
        for module in free:
            del needs[module]
    assert not needs, f"in circles, or above one: {', '.join(needs)}"


def test_a_package_that_may_change_is_confined():
    for package, users in {
        "torchtext": {"data.torchtext", "inference.bleu"},
        "spacy": {"data.tokenizers"},
        "sentencepiece": {"data.subwords"},
        "matplotlib": {"notebook.plots"},
        "IPython": {"notebook.plots", "notebook.session"},
        "ipywidgets": set(),
        "pooch": {"data.corpora"},
        "safetensors": {"checkpoint", "files", "interop.hugging_face", "data.prepared"},
        "sacrebleu": {"inference.bleu"},
        "tqdm": {"training.loop", "data.prepared"},
    }.items():
        assert users_of(package) <= users, package


def test_torchtext_is_loaded_by_its_adapter_and_by_its_bleu_score_alone():
    """It is discontinued: everything else must work where it cannot be installed."""
    for module in FILES:
        for name in imports_of(tree_of(module), at_the_top=True):
            assert module == "data.torchtext" or not name.startswith(("torchtext", "transformer_lib.data.torchtext"))
        assert not any(name.startswith("transformer_lib.data.torchtext") for name in imports_of(tree_of(module)))
