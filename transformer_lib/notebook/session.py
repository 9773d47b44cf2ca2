"""What the notebooks of the series start with: a device, a corpus, drawings, the library's source."""

import inspect
import itertools
import json
import os
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from IPython.display import SVG, Markdown

from transformer_lib.data.corpora import CorpusError, load_corpus
from transformer_lib.language_model.texts import load_text
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, RECIPES, Recipe

_FOLDERS = {"figures": "assets/figures", "results": "benchmarks/results"}  # in the repository; in a wheel, beside this


@dataclass(frozen=True)
class Session:
    """What a notebook works with.

    Attributes:
        device: the fastest that there is.
        corpus: what ``start`` or ``start_with_text`` found.
        preset: the model that suits the corpus: ``"tutorial"`` or ``"small"``.
        recipe: how to train it; a single epoch in a fast development run.
        test: the corpus's first test split.
        runs: folder for what is trained on this corpus: below ``runs/``, or what ``TRANSFORMER_LIB_RUNS`` says, such as
            a folder of Google Drive; a temporary one in a fast development run.
        fast_dev_run: whether ``TRANSFORMER_LIB_FAST_DEV_RUN`` asks for tiny budgets, as the tests do.
    """

    device: torch.device
    corpus: Any
    preset: str
    recipe: Recipe
    test: str
    runs: Path
    fast_dev_run: bool


def start(corpus: str = "multi30k") -> Session:
    """Seed the random numbers, pick the device, find the corpus, and print the outcome.

    Args:
        corpus: the corpus to work with. The sample corpus takes its place in a fast development run, where
            ``TRANSFORMER_LIB_CORPUS`` says ``sample``, and if it is unavailable; a printed line says so.
    """
    return _start(load_corpus, [corpus, "sample"], RECIPES)


def start_with_text(text: str | None = None) -> Session:
    """Do what ``start`` does, with running text, for a notebook that trains a language model.

    Args:
        text: the text to work with; by default, ``"wikitext-2"`` on a GPU, and a tenth of it, ``"wikitext-2-valid"``,
            on a CPU, or if the whole is unavailable. What takes the place of both is the sample corpus's English side.
    """
    text = text or ("wikitext-2-valid" if pick_device().type == "cpu" else "wikitext-2")
    return _start(load_text, list(dict.fromkeys((text, "wikitext-2-valid", "sample"))), LANGUAGE_MODEL_RECIPES)


def show_source(*objects: Any) -> Markdown:
    """Show the library's own source of functions, classes or methods."""
    listings = (textwrap.dedent(inspect.getsource(item)).rstrip() for item in objects)
    return Markdown("\n\n".join(f"```python\n{listing}\n```" for listing in listings))


def figure(name: str) -> SVG:
    """Show one of the drawings of the series; see ``assets/figures``.

    Raises:
        ValueError: there is none of that name.
    """
    return SVG(_read("figures", name, "svg"))


def results(name: str) -> Any:
    """Return what a benchmark has measured, on a machine that it names; see ``benchmarks/results``.

    Raises:
        ValueError: there is none of that name.
    """
    return json.loads(_read("results", name, "json"))


def _read(kind: str, name: str, suffix: str) -> str:
    """Read a file that comes with the series."""
    folder = Path(__file__).parent / kind
    if not folder.is_dir():
        folder = Path(__file__).parents[2] / _FOLDERS[kind]
    path = folder / f"{name}.{suffix}"
    if not path.is_file():
        names = sorted(path.stem for path in folder.glob(f"*.{suffix}"))
        raise ValueError(f"name is {name!r}, expected one of {', '.join(names)}")
    return path.read_text(encoding="utf-8")


def _start(load: Callable[[str], Any], names: list[str], recipes: dict[str, Recipe]) -> Session:
    """Begin with the first of these names that is available."""
    fast_dev_run = os.environ.get("TRANSFORMER_LIB_FAST_DEV_RUN", "") not in ("", "0")
    seed_everything(Recipe.seed)
    device = pick_device()
    if fast_dev_run or os.environ.get("TRANSFORMER_LIB_CORPUS") == "sample":
        names = ["sample"]
    for name, substitute in itertools.zip_longest(names, names[1:]):
        found = load(name)
        try:
            for split in found.splits[:3]:
                found[split]  # fetches it
            break
        except CorpusError as error:
            if substitute is None:
                raise
            print(f"{name} is unavailable, so this notebook uses {substitute}: {error}")
    print(f"device: {device}, corpus: {found.name}" + (", fast development run" if fast_dev_run else ""))
    preset = "small" if found.name == "sample" and "small" in recipes else "tutorial"
    recipe = replace(recipes[preset], epochs=1) if fast_dev_run else recipes[preset]
    runs = Path(tempfile.mkdtemp() if fast_dev_run else os.environ.get("TRANSFORMER_LIB_RUNS") or "runs").expanduser()
    return Session(device, found, preset, recipe, found.splits[2], runs / f"{found.name}-{preset}", fast_dev_run)
