"""A training run that goes wrong stops, says so, and leaves the last good model."""

import copy
import dataclasses
import math

import pytest
import torch

from transformer_lib import Transformer
from transformer_lib.checkpoint import load_model
from transformer_lib.data.batches import BucketBatches
from transformer_lib.files import STATE_FILE, load_training_state
from transformer_lib.training import loop
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import train_epoch
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

RECIPE = Recipe(epochs=3, batch_size=3, learning_rate=2e-3)  # three steps an epoch
HALF = Recipe(precision="bfloat16")


def spoil(model, step, number):
    """Put a number into the gradient that one step, counted from the first of the training, computes."""
    backwards = []

    def replace(gradient):
        backwards.append(1)
        return torch.full_like(gradient, number) if len(backwards) == step else gradient

    model.output.bias.register_hook(replace)
    return model


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_after_a_gradient_that_is_nan_or_infinite_training_stops_and_the_best_weights_stay(
    dataset, tiny_config, tmp_path, number
):
    for step in (5, 6):  # the second step of the second epoch, and its last, after which only the validation is
        seed_everything(0)
        model, best, output = spoil(Transformer(tiny_config), step, number), [], tmp_path / str(step)

        def keep(line, model=model, best=best):
            best.append(copy.deepcopy(model.state_dict()))

        with pytest.raises(FloatingPointError, match="loss is nan"):
            fit(model, dataset, dataset, RECIPE, output, log=keep)
        assert len(best) == 1
        assert all(weights.equal(best[0][name]) for name, weights in model.state_dict().items())
        state, saved = load_training_state(output / STATE_FILE), load_model(output).model.state_dict()
        for weights in (*state["model"].values(), *saved.values()):
            assert weights.isfinite().all()


def test_a_run_that_breaks_in_its_first_epoch_leaves_the_model_it_began_with(dataset, tiny_config):
    seed_everything(0)
    model = spoil(Transformer(tiny_config), 2, math.nan)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(FloatingPointError, match="training has diverged"):
        fit(model, dataset, dataset, RECIPE, log=lambda line: None)
    assert all(weights.equal(before[name]) for name, weights in model.state_dict().items())


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # of a first step that was skipped
def test_in_float16_a_step_whose_gradient_overflows_changes_no_weight(dataset, tiny_config, monkeypatch):
    """As on a GPU from before bfloat16; the other steps count."""
    monkeypatch.setattr(loop, "fast_dtype", lambda device: torch.float16)
    seed_everything(0)
    model = spoil(Transformer(tiny_config), 1, math.inf)
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    train_epoch(model, BucketBatches(dataset, 8), torch.optim.SGD(model.parameters(), lr=0.1), recipe=HALF)
    assert all(weights.equal(before[name]) for name, weights in model.state_dict().items())

    recipe = dataclasses.replace(RECIPE, precision="bfloat16", epochs=2)
    for step in (1, 2):
        seed_everything(0)
        model = spoil(Transformer(dataclasses.replace(tiny_config, dropout=0.0)), step, math.inf)
        history = fit(model, dataset, dataset, recipe, log=lambda line: None)
        assert all(weights.isfinite().all() for weights in model.state_dict().values())
        assert history.val_loss[1] < history.val_loss[0]


def test_a_long_epoch_that_has_diverged_stops_before_its_end(dataset, tiny_config):
    model, seen = spoil(Transformer(tiny_config), 2, math.nan), []

    def batches():
        for batch in [*BucketBatches(dataset, 8)] * 150:
            seen.append(batch)
            yield batch

    with pytest.raises(FloatingPointError, match="training has diverged"):
        train_epoch(model, batches(), torch.optim.SGD(model.parameters(), lr=0.1))
    assert len(seen) == 100
