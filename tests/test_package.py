"""What is true of the package as a whole: what importing it costs, who imports whom, and where each name lives."""

import ast
import functools
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import transformer_lib

PACKAGE = Path(transformer_lib.__file__).parent

# What stands at the root of the package: a folder or a module imports only from those before it, and from itself.
ORDER = [
    "model",
    "fast",
    "data",
    "files",
    "checkpoint",
    "inference",
    "training",
    "interop",
    "language_model",
    "notebook",
    "options",
    "console",
    "cli",
]
# Every module by its name without "transformer_lib."; "model" itself is model/__init__.py. The package's own
# __init__.py, which imports nothing until it is asked, and __main__.py are not among them.
FILES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent != PACKAGE or not path.stem.startswith("__")
}
MODULES = list(FILES)


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@functools.cache
def tree_of(module):
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def imports_of(module, at_the_top=False):
    """Full names of what a module imports, functions' own imports too unless only the top is asked for."""
    tree = tree_of(module)
    left_out = {
        id(inner)
        for node in ast.walk(tree)
        if (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        or (at_the_top and isinstance(node, ast.FunctionDef))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in left_out:
            assert not node.level, f"{module} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import) and id(node) not in left_out:
            yield from (alias.name for alias in node.names)


def users_of(package, at_the_top=False):
    imports = {module: [name.split(".")[0] for name in imports_of(module, at_the_top)] for module in MODULES}
    return {module for module, names in imports.items() if package in names}


# importing


def test_importing_the_library_loads_nothing_else():
    loaded = set(run_python("import sys, transformer_lib; print(*sys.modules)").split())
    assert not [name for name in loaded if name.startswith("transformer_lib.")]
    assert {name.split(".")[0] for name in loaded} <= {*sys.stdlib_module_names, "transformer_lib", *bare_python()}


def bare_python():
    """What Python loads before a program begins: here, the hooks of editable installs, for example."""
    return {name.split(".")[0] for name in run_python("import sys; print(*sys.modules)").split()}


@pytest.mark.parametrize("module", [module for module in MODULES if module.split(".")[0] in ("model", "fast")])
def test_the_model_and_what_makes_it_fast_need_torch_and_nothing_else(module):
    needed = {name.split(".")[0] for name in imports_of(module)}
    assert needed <= {*sys.stdlib_module_names, "torch", "transformer_lib"}


def test_importing_the_transformer_loads_torch_and_nothing_else():
    code = "import sys, torch; {}; print(*sys.modules)"
    with_torch = {name.split(".")[0] for name in run_python(code.format("pass")).split()}
    loaded = run_python(code.format("import transformer_lib.model.transformer")).split()
    assert {name.split(".")[0] for name in loaded} - with_torch - sys.stdlib_module_names == {"transformer_lib"}
    ours = {name.split(".")[1] for name in loaded if name.startswith("transformer_lib.")}
    assert ours == {"model"}


def test_a_name_is_loaded_when_it_is_asked_for():
    code = "import sys, transformer_lib as t; f = lambda: print('torch' in sys.modules); f(); t.Translator; f()"
    assert run_python(code).split() == ["False", "True"]
    assert {"Translator", "MultiHeadAttention"} <= set(dir(transformer_lib))
    with pytest.raises(AttributeError, match="has no attribute 'translater'"):
        transformer_lib.translater  # noqa: B018


def test_type_checkers_see_the_names_that_are_offered():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    seen = [(node.module, alias.name, alias.asname) for node in block.body for alias in node.names]
    table = [(f"transformer_lib.{module}", name) for module, names in transformer_lib._NAMES.items() for name in names]
    assert sorted(seen) == sorted((module, name, name) for module, name in table)


@pytest.mark.parametrize("name", transformer_lib.__all__)
def test_a_name_that_is_offered_is_defined_in_one_module_and_comes_from_there(name):
    definition = ast.FunctionDef | ast.ClassDef
    homes = [
        module
        for module in MODULES
        for node in tree_of(module).body
        if isinstance(node, definition) and node.name == name
    ]
    assert homes == [module for module, names in transformer_lib._NAMES.items() if name in names]
    assert getattr(transformer_lib, name) is getattr(importlib.import_module(f"transformer_lib.{homes[0]}"), name)


# who imports whom


def test_every_folder_has_its_place_in_the_order():
    assert {module.split(".")[0] for module in MODULES} == set(ORDER)


@pytest.mark.parametrize("module", MODULES)
def test_a_folder_imports_only_from_those_before_it(module):
    folder = module.split(".")[0]
    allowed = ORDER[: ORDER.index(folder) + 1]
    ours = [name.removeprefix("transformer_lib.") for name in imports_of(module) if name.startswith("transformer_lib.")]
    homes = {name: transformer_lib._MODULE_OF.get(name, name).split(".")[0] for name in ours}
    assert not [name for name, home in homes.items() if home not in allowed]


def test_the_library_does_not_know_the_exercises():
    for module in MODULES:
        assert not [name for name in imports_of(module) if name.startswith("transformer_exercises")], module


@pytest.mark.parametrize(
    ("package", "users"),
    [
        ("torchtext", {"data.torchtext", "inference.bleu"}),
        ("spacy", {"data.tokenizers"}),
        ("sentencepiece", {"data.subwords"}),
        ("matplotlib", {"notebook.plots"}),
        ("IPython", {"notebook.live_translator", "notebook.session"}),
        ("ipywidgets", {"notebook.live_translator"}),
        ("pooch", {"data.corpora"}),
        ("safetensors", {"checkpoint", "files"}),
        ("sacrebleu", {"inference.bleu"}),
        ("tqdm", {"training.loop"}),
    ],
)
def test_a_package_that_may_change_is_confined(package, users):
    assert users_of(package) == users


def test_torchtext_is_loaded_by_its_adapter_and_by_its_bleu_score_alone():
    """It is discontinued: everything else must work where it cannot be installed."""
    assert users_of("torchtext", at_the_top=True) == {"data.torchtext"}
    for module in MODULES:
        assert not [name for name in imports_of(module) if name.startswith("transformer_lib.data.torchtext")], module
