"""What must be true of the trained model that comes with the library."""

from dataclasses import asdict

import pytest
from conftest import multi30k

from transformer_lib.checkpoint import SHIPPED_MODEL, load_model
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translator
from transformer_lib.model.config import TransformerConfig
from transformer_lib.training.recipe import RECIPES, Recipe


@pytest.fixture(scope="module")
def saved():
    return load_model(SHIPPED_MODEL)


@pytest.fixture(scope="module")
def translator(saved):
    return Translator.from_saved(saved)


def test_it_is_small(saved):
    assert SHIPPED_MODEL.stat().st_size < 20e6
    assert saved.model.num_parameters() < 10e6


def test_it_is_what_its_preset_trains(saved):
    """So that the command on its card is the one that made it."""
    recipe = {**asdict(Recipe()), **saved.notes["recipe"], "betas": tuple(saved.notes["recipe"]["betas"])}
    assert recipe.pop("subword_dropout") == 0  # which there was when it was trained
    assert recipe == asdict(RECIPES["multi30k_best"])
    assert saved.model.config == TransformerConfig.preset("multi30k_best", recipe["subwords"], recipe["subwords"])
    assert len(saved.notes["history"]["val_loss"]) <= recipe["epochs"]
    assert saved.notes["corpus"] == "multi30k" and saved.notes["search"]["beam_size"] == recipe["beam_size"]


def test_simple_captions(translator):
    captions = {
        "Zwei junge Männer spielen Fußball im Park.": "two young men are playing soccer in the park.",
        "Ein Hund läuft durch den Schnee.": "a dog runs through the snow.",
        "Eine Frau liest ein Buch.": "a woman is reading a book.",
    }
    assert translator(list(captions)) == list(captions.values())


def test_no_place_of_the_machine_that_trained_it_is_in_it(saved):
    assert not any(word in str(saved.notes) for word in ("/root", "/home", "/work", "/tmp"))


@pytest.mark.slow
def test_it_translates_the_validation_split_as_well_as_ever(translator):
    """300 pairs, if it is on this machine; nothing was chosen on it but the epoch and the length penalty."""
    pairs = multi30k("val")[:300]
    translations = translator.translate([pair.src for pair in pairs])
    measured = bleu.score(translations, [pair.tgt for pair in pairs], translator.tgt_tokenizer)
    assert measured[0].value > 40
