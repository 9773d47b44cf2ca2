import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_notebooks import NOTEBOOKS, load_script

from transformer_lib import MultiHeadAttention
from transformer_lib.data import corpora
from transformer_lib.notebook.session import figure, results, show_source, start, start_with_text

listings = load_script("listings")


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """No settings of the user's, no cache, no network, an empty working folder."""
    for name in [name for name in os.environ if name.startswith("TRANSFORMER_LIB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path / "cache"))
    for corpus, (_, checksums) in corpora.DOWNLOADS.items():
        monkeypatch.setitem(corpora.DOWNLOADS, corpus, ("http://127.0.0.1:9/", checksums))  # nothing listens there
    monkeypatch.chdir(tmp_path)


def test_where_multi30k_cannot_be_had_the_sample_corpus_takes_its_place_and_a_line_says_so(capsys):
    session = start()
    printed = capsys.readouterr().out
    assert (session.corpus.name, session.preset, session.test) == ("sample", "small", "test")
    assert printed.startswith("multi30k is unavailable, so this notebook uses sample: ")
    assert f"\ndevice: {session.device}" in printed and printed.endswith(", corpus: sample\n")  # a GPU's name between


def test_where_a_text_cannot_be_had_the_sample_takes_its_place_and_by_default_it_is_the_novel(capsys):
    session = start_with_text("wikitext-2")
    assert (session.corpus.name, session.test, str(session.runs)) == (
        "sample",
        "test",
        str(Path("runs/sample-tutorial")),
    )
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("wikitext-2 is unavailable, so this notebook uses sample: ")
    assert printed[1].startswith(f"device: {session.device}") and printed[1].endswith(", corpus: sample")
    assert start_with_text().corpus.name == "pride-and-prejudice"
    assert "is unavailable" not in capsys.readouterr().out  # it comes with the library


def test_a_language_models_fast_development_run_takes_a_tenth_of_an_epoch_of_the_sample(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TRANSFORMER_LIB_FAST_DEV_RUN", "1")
    session = start_with_text()
    assert (session.corpus.name, session.recipe.epochs, session.fast_dev_run) == ("sample", 0.1, True)
    assert not session.runs.resolve().is_relative_to(tmp_path)


def test_the_sample_corpus_can_be_asked_for(monkeypatch, capsys):
    monkeypatch.setenv("TRANSFORMER_LIB_CORPUS", "sample")
    assert start().corpus.name == "sample"
    assert "is unavailable" not in capsys.readouterr().out


def test_a_fast_development_run_takes_a_tenth_of_an_epoch_and_leaves_the_folder_alone(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TRANSFORMER_LIB_FAST_DEV_RUN", "1")
    session = start()
    assert session.fast_dev_run
    assert session.recipe.epochs == 0.1
    assert not session.runs.resolve().is_relative_to(tmp_path)
    monkeypatch.setenv("TRANSFORMER_LIB_FAST_DEV_RUN", "0")
    assert not start().fast_dev_run


def test_what_is_trained_goes_where_the_environment_says(monkeypatch, tmp_path, capsys):
    assert start("sample").runs == Path("runs/sample-small")
    monkeypatch.setenv("TRANSFORMER_LIB_RUNS", str(tmp_path / "drive"))
    assert start("sample").runs == tmp_path / "drive" / "sample-small"
    monkeypatch.setenv("TRANSFORMER_LIB_FAST_DEV_RUN", "1")
    assert not start("sample").runs.is_relative_to(tmp_path)


def test_a_folder_without_a_test_split_is_scored_on_what_it_validates_on(tmp_path, capsys):
    for split in ("train", "val"):
        (tmp_path / f"{split}.de").write_text("Ein Hund\n" * 3, encoding="utf-8")
        (tmp_path / f"{split}.en").write_text("A dog\n" * 3, encoding="utf-8")
    assert start(str(tmp_path)).test == "val"


def test_starting_seeds_the_random_numbers(capsys):
    start("sample")
    first = torch.rand(3)
    start("sample")
    assert torch.equal(first, torch.rand(3))


def test_source_is_the_librarys_own_and_still_python():
    shown = show_source(MultiHeadAttention, MultiHeadAttention.forward, figure).data
    listings = re.findall(r"```python\n(.*?)\n```", shown, re.DOTALL)
    assert len(listings) == 3
    assert [ast.parse(listing).body[0].name for listing in listings] == ["MultiHeadAttention", "forward", "figure"]
    assert "self.q_proj(query)" in listings[1]


def test_listings_stored_in_the_notebooks_are_what_the_source_says_today():
    """Where this alone fails, ``python tools/listings.py`` brings them up to date."""
    stale = []
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        stale += [(path.stem, "".join(cell["source"]).splitlines()[-1]) for cell, *_ in listings.outdated(notebook)]
    assert not stale


def test_drawings_and_what_benchmarks_measured_come_with_the_series():
    assert figure("masks").data.startswith("<svg")
    assert "causal mask" in repr(figure("masks")) and "<sos>" in repr(figure("masks"))  # where no picture is shown
    assert results("training")["contenders"]
    for read, wrong in ((figure, "mask.svg"), (results, "trainings.json")):
        with pytest.raises(FileNotFoundError, match=wrong):
            read(wrong.partition(".")[0])


@pytest.mark.processes
def test_a_notebook_without_ipywidgets_gets_no_red_warning():
    """As that of tqdm's bars, where they find a kernel and nothing to draw them with."""
    kernel = "import ipykernel.zmqshell, sys; sys.modules['ipywidgets'] = None; import transformer_lib"
    found = subprocess.run([sys.executable, "-W", "default", "-c", kernel], capture_output=True, text=True, check=True)
    assert "IProgress" not in found.stderr
