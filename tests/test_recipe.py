import math

import pytest

from transformer_lib.model.config import PRESETS
from transformer_lib.training.recipe import RECIPES, Recipe


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs is 0, expected more than 0"),
        ({"epochs": math.inf}, "epochs is inf"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"accumulate_steps": 0}, "accumulate_steps is 0"),
        ({"save_every": -1}, "save_every is -1"),
        ({"validate_every": -1}, "validate_every is -1"),
        ({"rdrop_weight": -1}, "rdrop_weight is -1"),
        ({"subwords": -1}, "subwords is -1"),
        ({"learning_rate": math.nan}, "learning_rate is nan, expected more than 0"),
        ({"max_grad_norm": 0}, "max_grad_norm is 0"),
        ({"schedule": "cosine"}, "schedule is 'cosine', expected one of constant, inverse_sqrt, linear"),
        ({"precision": "float16"}, "precision is 'float16', expected one of float32, bfloat16"),
        ({"optimizer": "lion"}, "optimizer is 'lion', expected one of adamw, muon, sgd"),
        ({"betas": 5}, "betas is 5, expected two numbers"),
        ({"betas": (0.9,)}, r"betas is \(0.9,\), expected two"),
        ({"betas": (0.9, 0.98, 0.99)}, "betas is .*, expected two"),
        ({"betas": (0.9, 1)}, "betas is .*, expected two"),
        ({"betas": ("0.9", "0.98")}, "betas is .*, expected two"),
        ({"betas": "ab"}, "betas is 'ab', expected two"),
        ({"betas": (math.nan, 0.9)}, "betas is .*, expected two"),
        ({"label_smoothing": 2}, "label_smoothing is 2.0, expected less than 1"),
        ({"ema_decay": 5}, "ema_decay is 5.0, expected less than 1"),
        ({"ema_decay": 1}, "ema_decay is 1.0, expected less than 1"),
        ({"beam_size": 0}, "beam_size is 0"),
        ({"beam_size": 17}, "beam_size is 17, expected one of 1, 2, 3"),
    ],
)
def test_an_impossible_recipe_says_why(values, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**values)


def test_every_preset_has_its_recipe():
    assert set(RECIPES) == set(PRESETS)


def test_the_tutorials_own_preset_is_trained_as_they_do():
    """Batches of 128, Adam at a constant 5e-4, gradients clipped at 1, 10 epochs, and none of what came later."""
    theirs = Recipe(
        epochs=10, batch_size=128, optimizer="adamw", learning_rate=5e-4, weight_decay=0.0, max_grad_norm=1.0
    )
    assert RECIPES["tutorial_original"] == theirs
    extras = ("max_tokens", "warmup_steps", "label_smoothing", "rdrop_weight", "ema_decay", "subwords")
    assert not any(getattr(theirs, name) for name in extras)
    assert (theirs.schedule, theirs.precision, theirs.beam_size) == ("constant", "float32", 1)
    assert PRESETS["tutorial_original"] == PRESETS["tutorial"]
