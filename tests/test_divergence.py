"""A training that goes wrong stops at once, says where, and leaves the last good model."""

import copy
import dataclasses
import math

import pytest
import torch

from transformer_lib import Transformer
from transformer_lib.checkpoint import load_model
from transformer_lib.data.batches import BucketBatches
from transformer_lib.fast import worker
from transformer_lib.fast.worker import Worker
from transformer_lib.training import loop
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import evaluate, train_epoch
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

RECIPE = Recipe(epochs=3, batch_size=3, learning_rate=2e-3)  # three steps an epoch


def spoil(model, step, number):
    """Put a number into the gradient that one step, counted from the first of the training, computes."""
    backwards = []

    def replace(gradient):
        backwards.append(1)
        return torch.full_like(gradient, number) if len(backwards) == step else gradient

    model.output.bias.register_hook(replace)
    return model


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_gradient_that_is_nan_or_infinite_is_named_and_the_best_weights_stay(
    dataset, tiny_config, tmp_path, kept, number, tried
):
    seed_everything(0)
    model = spoil(Transformer(tiny_config), 5, number)  # the second step of the second epoch
    output = tmp_path / "run" if kept else None
    best = []

    def keep(history):
        best.append(copy.deepcopy(model.state_dict()))

    with pytest.raises(FloatingPointError) as error:
        fit(model, dataset, dataset, RECIPE, output, on_epoch=keep, log=lambda line: None)
    assert str(error.value).startswith(
        f"the gradient's norm is {number} in step 2 of the epoch (learning rate 0.002, batch src ["
    )
    assert len(best) == 1
    assert all(weights.equal(best[0][name]) for name, weights in model.state_dict().items())
    if kept:
        assert evaluate(load_model(output).model, BucketBatches(dataset, 8)) == evaluate(
            model, BucketBatches(dataset, 8)
        )
    tried(f"numbers: a gradient of {number}", 1, "nothing: the best weights stay", f"FloatingPointError: {error.value}")


def test_a_training_that_breaks_in_its_first_epoch_leaves_the_model_it_began_with(dataset, tiny_config):
    seed_everything(0)
    model = spoil(Transformer(tiny_config), 2, math.nan)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(FloatingPointError, match="in step 2 of the epoch"):
        fit(model, dataset, dataset, RECIPE, log=lambda line: None)
    assert all(weights.equal(before[name]) for name, weights in model.state_dict().items())


@pytest.mark.parametrize(("most", "steps"), [(1, 2), (3, 3), (100, 3)])
def test_steps_are_checked_some_at_a_time_and_the_last_ones_too(dataset, tiny_config, monkeypatch, most, steps):
    """As on a GPU, which should not be waited for at every step; the message names the bad one all the same."""
    monkeypatch.setattr(loop, "_CHECK_EVERY", {"cpu": most})
    model = spoil(Transformer(tiny_config), 2, math.nan)
    batches, made = BucketBatches(dataset, 3), []
    with pytest.raises(FloatingPointError, match="the gradient's norm is nan in step 2 of the epoch"):
        train_epoch(model, (made.append(1) or batch for batch in batches), torch.optim.SGD(model.parameters()))
    assert len(made) == steps


@pytest.fixture
def old_gpu(monkeypatch):
    """Half precision is float16, as on a GPU from before bfloat16."""
    monkeypatch.setattr(worker, "half_precision", lambda device: torch.float16)


@pytest.mark.parametrize(("step", "optimizer"), [(1, "sgd"), (2, "adamw")])  # 1: no warning about the order of calls
def test_in_float16_a_gradient_that_overflows_is_skipped_and_counted(
    dataset, tiny_config, old_gpu, tried, step, optimizer
):
    recipe = dataclasses.replace(RECIPE, precision="bfloat16", epochs=2, optimizer=optimizer)
    seed_everything(0)
    model, lines = spoil(Transformer(dataclasses.replace(tiny_config, dropout=0.0)), step, math.inf), []
    history = fit(model, dataset, dataset, recipe, log=lines.append)
    assert history.skipped_steps == 1
    assert [line.endswith("(steps skipped so far: 1)") for line in lines] == [True, True]
    assert all(weights.isfinite().all() for weights in model.state_dict().values())
    assert history.val_loss[1] < history.val_loss[0]  # the other steps count
    tried("numbers: a float16 gradient overflows", 1, "the step, counted", lines[1].strip())


def test_a_skipped_step_changes_no_weight(dataset, tiny_config, old_gpu):
    seed_everything(0)
    model = spoil(Transformer(tiny_config), 1, math.inf)
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trained = train_epoch(model, BucketBatches(dataset, 8), optimizer, worker=Worker(model, "bfloat16"))
    assert trained.skipped_steps == 1 and math.isfinite(trained.loss)
    assert all(weights.equal(before[name]) for name, weights in model.state_dict().items())
    assert train_epoch(model, BucketBatches(dataset, 8), optimizer).skipped_steps == 0
