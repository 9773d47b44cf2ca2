"""What is true of the package as a whole: what importing it costs, and who imports whom."""

import ast
import importlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import transformer_lib

PACKAGE = Path(transformer_lib.__file__).parent

# the design's order: a module imports only modules that stand before it
ORDER = [
    "model.masks",
    "fast.dropout",
    "model.attention",
    "model.embeddings",
    "model.sublayers",
    "model.encoder",
    "model.decoder",
    "model.config",
    "model.transformer",
    "interop.pytorch",
    "language_model.model",
    "data.download",
    "data.corpora",
    "data.tokenizers",
    "data.subwords",
    "data.batches",
    "checkpoint",
    "training.recipe",
    "training.loss",
    "training.distributed",
    "training.optimizer",
    "fast.precision",
    "fast.prepacking",
    "training.divergence",
    "training.trainer",
    "inference.search",
    "inference.translator",
    "language_model.generator",
    "inference.bleu",
    "training.pipeline",
    "notebook.plots",
    "notebook.attention_viewer",
    "notebook.live_translator",
    "notebook.session",
    "cli",
]


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_the_library_loads_nothing_else():
    loaded = set(run_python("import sys, transformer_lib; print(*sys.modules)").split())
    ours = {name.removeprefix("transformer_lib.") for name in loaded if name.startswith("transformer_lib.")}
    assert not ours
    for package in ("torch", "torchtext", "spacy", "matplotlib", "sacrebleu", "safetensors", "pooch"):
        assert package not in loaded


def test_the_other_half_loads_when_it_is_asked_for():
    code = "import sys, transformer_lib as t; f = lambda: print('torchtext' in sys.modules); f(); t.Translator; f()"
    assert run_python(code).split() == ["False", "True"]
    assert transformer_lib.Translator is importlib.import_module("transformer_lib.inference.translator").Translator
    assert {"Translator", "MultiHeadAttention"} <= set(dir(transformer_lib))
    with pytest.raises(AttributeError, match="has no attribute 'translater'"):
        transformer_lib.translater  # noqa: B018


def test_every_name_that_is_offered_exists():
    for name in transformer_lib.__all__:
        assert getattr(transformer_lib, name) is not None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=PACKAGE.parent, capture_output=True, check=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_the_sample_corpus_the_figures_the_viewer_and_the_model(wheel, tmp_path):
    """Built as pip would, unpacked elsewhere, and imported from another directory."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = """
import transformer_lib as t
from transformer_lib.checkpoint import SHIPPED_MODEL
from transformer_lib.data.corpora import cache_folder
from transformer_lib.notebook.session import figure
print(t.__file__, len(t.load_corpus()["train"]), cache_folder(), len(figure("transformer").data))
print(SHIPPED_MODEL, t.Translator.load()("Ein Hund läuft."), sep="\\n")
print(len(t.AttentionViewer.of(t.Translator.load(), "Ein Hund läuft.")._repr_html_()))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TRANSFORMER_LIB_DATA": ""}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    (path, size, cache, figure), model, translation, (viewer,) = (line.split() for line in result.stdout.splitlines())
    assert model[0].startswith(str(tmp_path)) and "dog" in translation
    assert path.startswith(str(tmp_path))
    assert size == "8000"
    assert not cache.startswith((str(tmp_path), str(PACKAGE.parent)))  # the user's own cache, not site-packages
    assert int(figure) > 1000 and int(viewer) > 1000


@pytest.mark.parametrize(("torch", "numpy"), [("2.6.0+cu124", "2.0.2"), ("2.5.1+cu121", "1.26.4")])
def test_installing_leaves_torch_and_numpy_alone(wheel, tmp_path, torch, numpy):
    """Ask pip what it would do where other versions are installed than constraints.txt names, as in Colab."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "colab")], check=True)
    python = tmp_path / "colab" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    for name, version in (("torch", torch), ("numpy", numpy)):  # all that pip looks at of an installed package
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "INSTALLER").write_text("pip")
        (info / "RECORD").write_text("")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--dry-run", "--quiet"]
    report = tmp_path / "report.json"
    result = subprocess.run([*pip, "--report", str(report), str(wheel)], capture_output=True, text=True)
    if "connection" in result.stderr.lower() and result.returncode:
        pytest.skip("the package index cannot be reached")
    assert result.returncode == 0, result.stderr
    installed = {package["metadata"]["name"].lower() for package in json.loads(report.read_text())["install"]}
    assert {"transformer-lib", "torchtext", "spacy"} <= installed
    assert not installed & {"torch", "numpy"}


def is_folder(module):
    return module.startswith("transformer_lib") and (PACKAGE.parent / module.replace(".", "/")).is_dir()


def imports_of(module):
    tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    type_checking = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in type_checking:
            continue
        if isinstance(node, ast.ImportFrom):
            yield from [
                f"{node.module}.{alias.name}" if node.module.count(".") == 0 or is_folder(node.module) else node.module
                for alias in node.names
            ]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("module", ORDER)
def test_imports_only_point_up_the_table(module):
    for name in imports_of(module):
        if name.startswith("transformer_lib."):
            imported = name.removeprefix("transformer_lib.")
            if imported not in ORDER:  # a name of the package itself
                continue
            assert ORDER.index(imported) < ORDER.index(module), f"{module} imports {imported}"


def test_every_module_is_in_the_table():
    found = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    assert {m for m in found if not m.startswith("exercises") and "__" not in m} == set(ORDER)


def test_the_library_does_not_know_the_exercises():
    for module in ORDER:
        assert not any(name.startswith("transformer_lib.exercises") for name in imports_of(module))


@pytest.mark.parametrize(
    ("package", "users"),
    [
        ("torchtext", {"data.tokenizers", "data.batches", "inference.bleu"}),
        ("spacy", {"data.tokenizers"}),
        ("sentencepiece", {"data.subwords"}),
        ("matplotlib", {"notebook.plots"}),
        ("IPython", {"notebook.session"}),
        ("ipywidgets", {"notebook.live_translator"}),
        ("pooch", {"data.download", "data.corpora"}),
        ("safetensors", {"checkpoint"}),
        ("sacrebleu", {"inference.bleu"}),
    ],
)
def test_a_package_that_may_change_is_confined(package, users):
    assert {module for module in ORDER if any(name.split(".")[0] == package for name in imports_of(module))} == users


def test_the_model_half_needs_nothing_but_torch():
    for module in ORDER[: ORDER.index("language_model.model") + 1]:
        packages = {name.split(".")[0] for name in imports_of(module)} - set(sys.stdlib_module_names)
        assert packages <= {"torch", "transformer_lib"}


def test_translating_loads_neither_spacy_nor_pytorchs_compiler(tmp_path):
    """Neither is needed for it, and both take long to load."""
    code = """
import sys
from transformer_lib import cli
from transformer_lib.checkpoint import save_model
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer
pieces = train_subwords(load_corpus()["val"], 300)
fields = {"src": SubwordTokenizer("de", pieces), "tgt": SubwordTokenizer("en", pieces)}
sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "max_len": 200, "positions": "sinusoidal"}
model = Transformer(TransformerConfig(300, 300, tie_embeddings=True, **sizes))
if len(sys.argv) > 2:
    save_model(sys.argv[1], model, fields)
else:
    assert cli.main(["translate", "--model", sys.argv[1], "Ein Hund."]) == 0
    print(*sorted({"spacy", "torch._dynamo", "matplotlib", "sympy"} & set(sys.modules)), sep="\\n")
"""
    file = str(tmp_path / "model.safetensors")
    for arguments in ([file, "save"], [file]):
        result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert len(result.stdout.splitlines()) == 2 and not result.stdout.splitlines()[1], result.stdout
