"""Two processes, and what each does in ``test_distributed.py``: it leaves what it finds in the folder given to it."""

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from conftest import PAIRS
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.utils.data import DataLoader

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.data.batches import BucketBatches, build_vocabularies, make_dataset
from transformer_lib.data.prepared import PreparedDataset
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.training import distributed
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import evaluate, train_epoch
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

# Muon, where PyTorch has it
OPTIMIZER = "muon" if hasattr(torch.optim, "Muon") else "adamw"
RECIPE = Recipe(epochs=2, batch_size=2, learning_rate=2e-3, warmup_steps=2, optimizer=OPTIMIZER)
RECIPE = replace(RECIPE, accumulate_steps=2, save_every=1)


def torchrun(*arguments):
    """Run two processes to their end."""
    if sys.platform == "win32":
        pytest.skip("torchrun cannot start on Windows: pytorch/pytorch#178600")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)


def make_data():
    tokenizers = WordTokenizer("de"), WordTokenizer("en")
    dataset = make_dataset(PAIRS, *tokenizers)
    build_vocabularies(dataset, min_freq=1)
    return dataset


def make_model(dataset, dropout=0.0):
    """The same weights every time."""
    seed_everything(0)
    sizes = (len(tokenizer.vocab) for tokenizer in dataset.tokenizers.values())
    return Transformer(TransformerConfig(*sizes, d_model=32, num_heads=4, d_ff=64, num_layers=2, dropout=dropout))


def one_epoch(dataset, precision, accumulate_steps=1):
    """Three sentences at a time of seven, so that the last batch has one, and a process nothing to do.

    Nothing is clipped, which would hide how long the gradient is. ``sent`` counts how often gradients travel.
    """
    model = make_model(dataset)
    share = distributed.rank_and_world_size()
    batches = BucketBatches(make_dataset(PAIRS[:7], *dataset.tokenizers.values()), batch_size=3, share=share)
    optimizer, sent = torch.optim.SGD(model.parameters(), lr=0.1), []
    # bfloat16 is computed on a CPU that only emulates it, too
    with patch.object(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512"):
        recipe = Recipe(precision=precision, accumulate_steps=accumulate_steps, max_grad_norm=1e9)
        replica = distributed.replicate(model)
        if distributed.world_size > 1:
            replica.register_comm_hook(
                None, lambda _, bucket: sent.append(bucket.index()) or allreduce_hook(None, bucket)
            )
        loss = train_epoch(model, batches, optimizer, recipe=recipe, replica=replica)
    found = {"train loss": loss, "val loss": evaluate(model, batches), "weights": model.state_dict()}
    return {**found, "sent": sent.count(0)}


def main(folder):
    dataset, rank, found = make_data(), distributed.rank_and_world_size()[0], {}
    with distributed.process_group(torch.device("cpu")):
        found["world size"] = distributed.world_size
        model = make_model(dataset)
        torch.nn.init.constant_(model.output.bias, rank)  # other weights in each process
        distributed.replicate(model)
        found["copied"] = model.output.bias.detach()
        for precision in ("float32", "bfloat16"):
            found[precision] = one_epoch(dataset, precision)
        found["accumulated"] = one_epoch(dataset, "float32", accumulate_steps=2)

    model = make_model(dataset)
    found["history"] = asdict(fit(model, dataset, dataset, RECIPE, folder / "two", log=str))
    found["fitted"] = model.state_dict()
    prepared = PreparedDataset(folder / "prepared")
    found["prepared"] = asdict(fit(make_model(prepared).double(), prepared, prepared, RECIPE, log=str))
    longer = replace(RECIPE, epochs=3)
    found["resumed"] = asdict(fit(make_model(dataset), dataset, dataset, longer, folder / "one", resume=True, log=str))

    found["lines"] = []
    once = replace(RECIPE, epochs=1, batch_size=2)
    fit(make_model(dataset, 0.5), dataset, dataset, once, log=found["lines"].append)
    found["random state"] = torch.get_rng_state()
    loader = DataLoader(dataset, 4, shuffle=True, collate_fn=dataset.collate)
    try:
        fit(make_model(dataset), loader, dataset, once, log=str)
    except ValueError as error:
        found["loader"] = str(error)
    model, too_fast = make_model(dataset), replace(RECIPE, epochs=9, learning_rate=1e30, optimizer="adamw")
    try:
        fit(model, dataset, dataset, too_fast, log=str)
    except FloatingPointError as error:
        found["diverged"] = str(error), model.state_dict()
    torch.save(found, folder / f"rank-{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
