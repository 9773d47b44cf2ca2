"""The same seed on the same machine gives the same numbers: to the last bit on a CPU, within a bound elsewhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import conftest
import pytest
import torch

from transformer_lib import Transformer
from transformer_lib.training.device import seed_everything
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

pytestmark = pytest.mark.slow
PLAIN = {}
EVERYTHING = {
    "max_tokens": 200,
    "optimizer": "muon",
    "schedule": "linear",
    "label_smoothing": 0.1,
    "rdrop_weight": 0.5,
    "ema_decay": 0.9,
    "precision": "bfloat16",
    "subwords": 200,
    "beam_size": 2,
}


def train(folder, hash_seed, seed=1234, threads=1, **recipe):
    """Train in a process of its own, where Python's sets have an order of their own."""
    arguments = json.dumps({"seed": seed, "threads": threads, **recipe})
    result = subprocess.run(
        [sys.executable, Path(__file__).parent / "training_to_repeat.py", str(folder), arguments],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(Path(conftest.__file__).parent)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("recipe", [PLAIN, EVERYTHING], ids=["plain", "everything"])
def test_the_same_seed_gives_the_same_numbers_in_another_process(tmp_path, recipe):
    """Python's, NumPy's and torch's random numbers, the order of the data, dropout, the subwords, the translations."""
    first, second = (train(tmp_path / str(i), hash_seed=i, **recipe) for i in (1, 2))
    assert first == second


def test_another_seed_gives_other_numbers(tmp_path):
    first, other = (train(tmp_path / str(seed), hash_seed=1, seed=seed, **EVERYTHING) for seed in (1234, 5))
    assert other["weights"] != first["weights"] and other["losses"] != first["losses"]
    assert all(a != b for a, b in zip(other["random"], first["random"], strict=True))


def test_another_number_of_threads_changes_no_more_than_rounding(tmp_path):
    """Sums are added up in another order then; what is random is the same."""
    single, double = (train(tmp_path / str(threads), hash_seed=0, threads=threads) for threads in (1, 2))
    assert single["losses"] == pytest.approx(double["losses"], rel=1e-4)
    assert single["random"] == double["random"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda_the_same_seed_gives_nearly_the_same_numbers(dataset, tiny_config):
    """A GPU adds up the embedding's gradients in whatever order they come."""
    histories = []
    for _ in range(2):
        seed_everything(1)
        model = Transformer(tiny_config).to("cuda")
        histories.append(fit(model, dataset, dataset, Recipe(epochs=3, batch_size=3), log=lambda line: None))
    assert histories[0].train_loss == pytest.approx(histories[1].train_loss, rel=1e-3)
    assert histories[0].val_loss == pytest.approx(histories[1].val_loss, rel=1e-3)
