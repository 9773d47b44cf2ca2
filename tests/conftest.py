"""What several test files use: a tiny corpus, a translator that has learnt it by heart, the cookbook's listings."""

import contextlib
import os
import re
import tempfile
from pathlib import Path

import pytest
import torch
from browser import _chromium, browser  # noqa: F401 - fixtures

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import CorpusError, Pair, load_corpus
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference.translator import Translator
from transformer_lib.training.device import seed_everything
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

try:
    import resource
except ImportError:  # on Windows
    resource = None

OPTIMIZER = "muon" if hasattr(torch.optim, "Muon") else "adamw"  # before PyTorch 2.9, there is none
NOBODY = 65534  # a user that has nothing
PAIRS = [
    Pair("Ein Hund schläft.", "A dog is sleeping."),
    Pair("Eine Katze schläft im Garten.", "A cat is sleeping in the garden."),
    Pair("Zwei Hunde spielen im Garten.", "Two dogs are playing in the garden."),
    Pair("Ein Kind liest ein Buch.", "A child is reading a book."),
    Pair("Im Garten liest eine Frau ein Buch.", "In the garden, a woman is reading a book."),
    Pair("Die Frau spielt mit dem Hund.", "The woman is playing with the dog."),
    Pair("Das Kind schläft.", "The child is sleeping."),
    Pair("Der Mann und die Frau lesen.", "The man and the woman are reading."),
]


PLOT = r'(?s)^.*id="figure_1".*$'  # Matplotlib's SVG, and no drawing's


class PlotsByTheirText:
    """Let nbval compare a plot by its text, numbers and all: each Matplotlib draws it a little differently."""

    @staticmethod
    def pytest_collectstart(collector):
        if hasattr(collector, "sanitize_patterns"):  # nbval's, of one notebook
            collector.sanitize_patterns[PLOT] = "a plot"


def pytest_configure(config):
    config.pluginmanager.register(PlotsByTheirText())


def cookbook(heading):
    """Return the listings of one recipe."""
    page = (Path(__file__).parents[1] / "book" / "cookbook.md").read_text(encoding="utf-8")
    recipe = page.partition(f"### {heading}\n")[2].partition("\n##")[0]
    return re.findall(r"^```\w*\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)


def multi30k(split):
    """Return a split of Multi30k; skip the test where it is neither on this machine nor to be had."""
    try:
        return load_corpus("multi30k")[split]
    except CorpusError:
        pytest.skip("Multi30k cannot be had here")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tiny tensors are fastest on one thread, above all when something else is running."""
    torch.set_num_threads(1)


@pytest.fixture
def almost_full_disk():
    """A context in which no file of this process can grow beyond 1,000 bytes: the kernel refuses to write more."""
    if resource is None:
        pytest.skip("Windows has no limit to set")

    @contextlib.contextmanager
    def context():
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    return context


@pytest.fixture
def guest_folder():
    """An empty folder that an ordinary user may enter, as those of ``tmp_path`` need not be."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextlib.contextmanager
def as_guest(folder):
    """Be an ordinary user, whose folder it is: to root, nothing is forbidden.

    What has not been imported before may not be found, since Python itself may lie where only root can read.
    """
    if not hasattr(os, "geteuid"):
        pytest.skip("permissions work differently here")
    paths = (folder, *folder.rglob("*"))
    root = os.geteuid() == 0
    if root:
        for path in paths:
            os.chown(path, NOBODY, -1)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def pairs():
    return list(PAIRS)


@pytest.fixture
def tokenizers():
    """German and English tokenisers with the tiny corpus's vocabularies."""
    src_tokenizer, tgt_tokenizer = WordTokenizer("de"), WordTokenizer("en")
    build_vocabularies(make_dataset(PAIRS, src_tokenizer, tgt_tokenizer), min_freq=1)
    return src_tokenizer, tgt_tokenizer


@pytest.fixture
def dataset(tokenizers):
    return make_dataset(PAIRS, *tokenizers)


@pytest.fixture
def tiny_config(tokenizers):
    src_tokenizer, tgt_tokenizer = tokenizers
    return TransformerConfig(
        len(src_tokenizer.vocab), len(tgt_tokenizer.vocab), d_model=32, num_heads=4, d_ff=64, num_layers=1, max_len=40
    )


@pytest.fixture(scope="session")
def trained():
    """A translator that knows the tiny corpus by heart. Shared by all tests: do not train it further."""
    src_tokenizer, tgt_tokenizer = WordTokenizer("de"), WordTokenizer("en")
    dataset = make_dataset(PAIRS, src_tokenizer, tgt_tokenizer)
    build_vocabularies(dataset, min_freq=1)
    seed_everything(0)
    config = TransformerConfig(
        len(src_tokenizer.vocab), len(tgt_tokenizer.vocab), d_model=32, num_heads=4, d_ff=64, num_layers=2, dropout=0.0
    )
    model = Transformer(config)
    recipe = Recipe(epochs=60, batch_size=4, learning_rate=3e-3, warmup_steps=0, schedule="constant")
    fit(model, dataset, dataset, recipe, log=lambda line: None)
    return Translator(model, src_tokenizer, tgt_tokenizer)


@pytest.fixture
def with_bfloat16(monkeypatch):
    """Have bfloat16 computed on a CPU that only emulates it, too."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
