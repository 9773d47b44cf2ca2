"""What the notebooks of the series start with: a device, a corpus, drawings, the library's source."""

import inspect
import itertools
import os
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from IPython.display import SVG, Markdown

from transformer_lib.data.corpora import Corpus, CorpusError, load_corpus
from transformer_lib.language_model.texts import Text, load_text
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, RECIPES, Recipe

_FIGURES = Path(__file__).parent / "figures"  # in a wheel; in the repository, they lie in assets/
if not _FIGURES.is_dir():
    _FIGURES = Path(__file__).parent.parent.parent / "assets" / "figures"


@dataclass(frozen=True)
class Session:
    """What a notebook works with.

    Attributes:
        device: the fastest that there is.
        corpus: Multi30k if it is available, else the sample corpus.
        preset: the model that suits the corpus: ``"tutorial"`` or ``"small"``.
        recipe: how to train it; a single epoch in a fast development run.
        test: the corpus's first test split.
        runs: folder for what is trained on this corpus: below ``runs/``, or one that is thrown away after a fast
            development run.
        fast_dev_run: whether ``TRANSFORMER_LIB_FAST_DEV_RUN`` asks for tiny budgets, as the tests do.
    """

    device: torch.device
    corpus: Corpus
    preset: str
    recipe: Recipe
    test: str
    runs: Path
    fast_dev_run: bool


@dataclass(frozen=True)
class TextSession:
    """What a notebook about a language model works with.

    Attributes:
        device: the fastest that there is.
        text: WikiText-2, a part of it, or the sample corpus's English sentences; see ``start_with_text``.
        recipe: PyTorch's tutorial's; a single epoch in a fast development run.
        test: the text's test split.
        runs: folder for what is trained: ``runs/``, or one that is thrown away after a fast development run.
        fast_dev_run: whether ``TRANSFORMER_LIB_FAST_DEV_RUN`` asks for tiny budgets, as the tests do.
    """

    device: torch.device
    text: Text
    recipe: Recipe
    test: str
    runs: Path
    fast_dev_run: bool


def start(corpus: str = "multi30k") -> Session:
    """Seed the random numbers, pick the device, find the corpus, and print what came of it.

    Args:
        corpus: the corpus to work with. The sample corpus takes its place in a fast development run, where
            ``TRANSFORMER_LIB_CORPUS`` says ``sample``, and if it is unavailable; a printed line says so.
    """
    device, found, fast_dev_run = _start(load_corpus, (corpus, "sample"))
    return _session(device, found, fast_dev_run)


def start_with_text(text: str | None = None) -> TextSession:
    """Do what ``start`` does, for a notebook that trains a language model.

    Args:
        text: the text to work with; by default, ``"wikitext-2"`` on a GPU, and ``"wikitext-2-valid"`` on a CPU: a
            tenth of the text. ``"wikitext-2-valid"`` also takes its place where its training split cannot
            be had, then the English side of the sample corpus; a printed line says so. See ``start`` for when it is the
            sample anyway.
    """
    text = text or ("wikitext-2-valid" if pick_device().type == "cpu" else "wikitext-2")
    device, found, fast_dev_run = _start(load_text, tuple(dict.fromkeys((text, "wikitext-2-valid", "sample"))))
    recipe = LANGUAGE_MODEL_RECIPES["tutorial"]
    recipe = replace(recipe, epochs=1) if fast_dev_run else recipe
    return TextSession(device, found, recipe, found.splits[2], _runs(fast_dev_run), fast_dev_run)


def show_source(*objects: Any) -> Markdown:
    """Show the library's own source of functions, classes or methods."""
    listings = (textwrap.dedent(inspect.getsource(item)).rstrip() for item in objects)
    return Markdown("\n\n".join(f"```python\n{listing}\n```" for listing in listings))


def figure(name: str) -> SVG:
    """Show one of the drawings of the series; see ``assets/figures``.

    Raises:
        ValueError: there is none of that name.
    """
    path = _FIGURES / f"{name}.svg"
    if not path.is_file():
        raise ValueError(
            f"name is {name!r}, expected one of {', '.join(sorted(p.stem for p in _FIGURES.glob('*.svg')))}"
        )
    return SVG(path.read_text(encoding="utf-8"))


def _start(load: Callable[[str], Any], names: Sequence[str]) -> tuple[torch.device, Any, bool]:
    """Seed, pick the device, load the first of these names that is available, and print what was found."""
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
    return device, found, fast_dev_run


def _runs(fast_dev_run: bool) -> Path:
    return Path(tempfile.mkdtemp()) if fast_dev_run else Path("runs")


def _session(device: torch.device, corpus: Corpus, fast_dev_run: bool) -> Session:
    preset = "small" if corpus.name == "sample" else "tutorial"
    recipe = replace(RECIPES[preset], epochs=1) if fast_dev_run else RECIPES[preset]
    runs = _runs(fast_dev_run) / f"{corpus.name}-{preset}"
    return Session(device, corpus, preset, recipe, corpus.splits[2], runs, fast_dev_run)
