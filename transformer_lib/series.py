"""What the notebooks of the series start with: a device, a corpus, a trained model, drawings, the library's source."""

import inspect
import os
import tempfile
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from IPython.display import SVG, Markdown

from transformer_lib.checkpoint import MODEL_FILE, STATE_FILE, load_model
from transformer_lib.corpora import Corpus, CorpusError, load_corpus
from transformer_lib.pipeline import train_translator
from transformer_lib.recipes import RECIPES, Recipe
from transformer_lib.training import pick_device, seed_everything
from transformer_lib.translator import Translator

_FIGURES = Path(__file__).parent / "figures"  # in a wheel; in the repository, they lie in assets/
if not _FIGURES.is_dir():
    _FIGURES = Path(__file__).parent.parent / "assets" / "figures"


@dataclass(frozen=True)
class Session:
    """What a notebook works with.

    Attributes:
        device: the fastest that there is.
        corpus: Multi30k where it can be had, else the sample corpus.
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


def start(corpus: str = "multi30k") -> Session:
    """Seed the random numbers, pick the device, find the corpus, and print what came of it.

    Args:
        corpus: the corpus to work with. The sample corpus takes its place in a fast development run, where
            ``TRANSFORMER_LIB_CORPUS`` says ``sample``, and where it cannot be had; a printed line says so.
    """
    fast_dev_run = os.environ.get("TRANSFORMER_LIB_FAST_DEV_RUN", "") not in ("", "0")
    seed_everything(Recipe.seed)
    device = pick_device()
    wanted = "sample" if fast_dev_run or os.environ.get("TRANSFORMER_LIB_CORPUS") == "sample" else corpus
    found = load_corpus(wanted)
    try:
        for split in found.splits[:3]:
            found[split]  # fetches it
    except CorpusError as error:
        print(f"{wanted} cannot be had, so this notebook goes on with the sample corpus: {error}")
        found = load_corpus("sample")
    session = _session(device, found, fast_dev_run)
    print(f"device: {device}, corpus: {found.name}" + (", fast development run" if fast_dev_run else ""))
    return session


def start_with_model(corpus: str = "multi30k") -> tuple[Session, Translator]:
    """Do what ``start`` does, and load the model that notebook 05 trained on the corpus.

    Where there is none, a ``small`` model on the sample corpus takes its place: an earlier one, or a new one, which
    takes two minutes to train on two cores. Printed lines say which.

    Args:
        corpus: as in ``start``; ``"sample"`` for the small model even where there is one on Multi30k.
    """
    session = start(corpus)
    if not _is_trained(session.runs):
        if session.corpus.name != "sample":
            print(
                f"There is no trained model in {session.runs} (notebook 05 trains it), so this notebook goes on with "
                "a small one on the sample corpus."
            )
            session = _session(session.device, load_corpus("sample"), session.fast_dev_run)
        if not _is_trained(session.runs):
            interrupted = (session.runs / STATE_FILE).exists()
            train_translator(session.corpus, session.preset, session.recipe, session.runs, interrupted, session.device)
    saved = load_model(session.runs, session.device)
    history = saved.notes["history"]["val_loss"]
    print(f"model: {session.preset}, {len(history)} epochs to its best validation loss, {min(history):.3f}")
    return session, Translator(saved.model, saved.fields["src"], saved.fields["tgt"])


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


def _session(device: torch.device, corpus: Corpus, fast_dev_run: bool) -> Session:
    preset = "small" if corpus.name == "sample" else "tutorial"
    recipe = replace(RECIPES[preset], epochs=1) if fast_dev_run else RECIPES[preset]
    runs = Path(tempfile.mkdtemp()) if fast_dev_run else Path("runs")
    return Session(device, corpus, preset, recipe, corpus.splits[2], runs / f"{corpus.name}-{preset}", fast_dev_run)


def _is_trained(folder: Path) -> bool:
    return (folder / MODEL_FILE).exists() and bool(load_model(folder).notes["history"]["val_loss"])
