"""The wheel: what it carries, and that installing it leaves alone what is there."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import transformer_lib

pytestmark = pytest.mark.slow
PACKAGE = Path(transformer_lib.__file__).parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=PACKAGE.parent, capture_output=True, check=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_says_that_the_translator_is_not_for_commerce(wheel):
    """Its code is free, but what it was trained on is not: those who look only at PyPI must learn it, too."""
    archive = zipfile.ZipFile(wheel)
    assert "transformer_lib/py.typed" in archive.namelist()  # type checkers look for it
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    licence = metadata.replace("METADATA", "licenses/assets/MODEL_CARD.md")
    assert "License-Expression: MIT AND LicenseRef-Multi30k-noncommercial" in archive.read(metadata).decode()
    assert "non-commercial research" in archive.read(licence).decode()


def test_the_wheel_carries_all_that_a_notebook_needs(wheel, tmp_path):
    """Built as pip would, unpacked elsewhere, and imported from another directory."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = """
import transformer_lib as t
from transformer_lib.checkpoint import SHIPPED_MODEL
from transformer_lib.data.corpora import cache_folder
from transformer_lib.notebook.session import figure, results
from transformer_exercises import check
print(check("02.1", ...), check.__code__.co_filename, sep=" in ")
print(t.__file__, len(t.load_corpus()["train"]), cache_folder(), len(figure("transformer").data))
print(len(t.load_text("pride-and-prejudice")["train"]))
from transformer_lib.files import shipped
assert "class Transformer" in shipped("the_transformer.py").read_text(encoding="utf-8")
print(SHIPPED_MODEL, t.Translator.load()("Ein Hund läuft."), sep="\\n")
translation = t.Translator.load().translate(["Ein Hund läuft."], attention=True)[0]
print(len(t.AttentionViewer.of_translation(translation)._repr_html_()), len(results("training")["contenders"]))
from transformer_lib.page.writer import to_page
to_page(t.Translator.load(), "page")
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TRANSFORMER_LIB_DATA": ""}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    exercise, *lines = result.stdout.splitlines()
    assert "02.1" in exercise and f" in {tmp_path}" in exercise
    (path, size, cache, figure), novel, model, translation, (viewer, rows) = (line.split() for line in lines)
    assert model[0].startswith(str(tmp_path)) and "dog" in translation
    assert path.startswith(str(tmp_path))
    assert size == "8000" and novel == ["1906"]
    assert not cache.startswith((str(tmp_path), str(PACKAGE.parent)))  # the user's own cache, not site-packages
    assert (tmp_path / "page" / "translator" / "page.js").exists() and (tmp_path / "page" / "index.html").exists()
    assert int(figure) > 1000 and int(viewer) > 1000 and int(rows) > 2


@pytest.mark.parametrize(("torch", "numpy"), [("2.6.0+cu124", "2.0.2"), ("2.5.1+cu121", "1.26.4")])
def test_installing_leaves_torch_and_numpy_alone(wheel, tmp_path, torch, numpy):
    """Ask pip what it would do where other versions are installed than constraints.txt names, as in Colab.

    Only what others ask for may replace NumPy: what new versions of spaCy stand on asks for 2.0.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "colab")], check=True)
    python = tmp_path / "colab" / ("Scripts" if os.name == "nt" else "bin") / "python"
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
    installed = {
        package["metadata"]["name"].lower(): package["metadata"]
        for package in json.loads(report.read_text())["install"]
    }
    assert {"transformer-step-by-step", "torchtext", "spacy"} <= set(installed)
    others = set(installed) - {"transformer-step-by-step"}
    needs = [line for name in others for line in installed[name].get("requires_dist", [])]
    asked = [need for need in map(Requirement, needs) if need.marker is None or need.marker.evaluate({"extra": ""})]
    numpy_may_stay = all(need.specifier.contains(numpy) for need in asked if need.name == "numpy")
    assert not set(installed) & ({"torch", "numpy"} if numpy_may_stay else {"torch"})
