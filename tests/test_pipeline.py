import pytest

from transformer_lib import load_corpus, train_translator
from transformer_lib.checkpoint import load_model
from transformer_lib.recipes import Recipe
from transformer_lib.translator import Translator


@pytest.fixture
def corpus(tmp_path, pairs):
    for split in ("train", "val"):
        for side in ("src", "tgt"):
            lines = "".join(f"{getattr(pair, side)}\n" for pair in pairs)
            (tmp_path / f"{split}.{'de' if side == 'src' else 'en'}").write_text(lines, encoding="utf-8")
    return load_corpus(tmp_path)


def test_a_corpus_goes_in_and_a_translator_comes_out(corpus, pairs, tmp_path):
    lines = []
    recipe = Recipe(epochs=40, batch_size=4, learning_rate=2e-3, warmup_steps=10)
    translator = train_translator(corpus, "small", recipe, tmp_path / "run", min_freq=1, log=lines.append)
    assert translator(pairs[0].src) == pairs[0].tgt.lower()
    assert Translator.load(tmp_path / "run")(pairs[0].src) == pairs[0].tgt.lower()
    assert load_model(tmp_path / "run").notes["preset"] == "small"
    assert any("8 pairs to train on, 8 to validate" in line for line in lines)


def test_the_same_seed_gives_the_same_translator(corpus):
    translators = [train_translator(corpus, recipe=Recipe(epochs=1), log=lambda line: None) for _ in range(2)]
    weights = [list(translator.model.parameters()) for translator in translators]
    assert all(first.equal(second) for first, second in zip(*weights, strict=True))


def test_an_unknown_preset_says_which_there_are(corpus):
    with pytest.raises(ValueError, match="preset is 'huge', expected one of tutorial, small, multi30k_best, paper_b"):
        train_translator(corpus, "huge")
