"""A training run for ``test_reproducible.py`` to repeat in other processes: prints a digest of all that came of it."""

import hashlib
import json
import os
import random
import sys

import numpy as np
import torch

from transformer_lib.data.corpora import load_corpus
from transformer_lib.files import load_training_state
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.train_translator import train_translator


def main(output: str, seed: int, threads: int, **recipe) -> None:
    """Train by the way that users go, and print losses, weights' digest, the translations and random numbers after."""
    torch.set_num_threads(threads)
    corpus = load_corpus(load_corpus("sample")["train"][:60], "de", "en")
    recipe = Recipe(**{"epochs": 2, "batch_size": 6, "learning_rate": 2e-3, "seed": seed, **recipe})
    small = {"d_model": 32, "d_ff": 64, "num_heads": 4, "num_layers": 2}
    least = None if recipe.subwords else 1
    translator = train_translator(
        corpus, "small", recipe, output, device="cpu", min_freq=least, log=lambda line: None, **small
    )
    state = load_training_state(os.path.join(output, "training_state.pt"))
    digest = hashlib.sha256()
    for name, weights in [*state["model"].items(), *translator.model.state_dict().items()]:
        digest.update(name.encode() + weights.numpy().tobytes())
    outcome = {
        "losses": [*state["history"]["train_loss"], *state["history"]["val_loss"]],
        "weights": digest.hexdigest(),
        "translations": translator([pair.src for pair in corpus["train"][:8]]),
        "random": [random.random(), np.random.random(), torch.rand(()).item()],
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
