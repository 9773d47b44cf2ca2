"""Languages in other scripts, all the way: pairs, subwords, training, a file, a translation, its score, a plot."""

import warnings

import pytest
from other_scripts import sentence_pairs

from transformer_lib import Translator, load_corpus, train_translator
from transformer_lib.inference import bleu
from transformer_lib.notebook import plots

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("language", "tokenize"), [("ko", "char"), ("zh", "zh"), ("ar", "13a")])
def test_a_translator_into_another_script(language, tokenize, tmp_path):
    corpus = load_corpus(sentence_pairs(language), "en", language)
    small = {"d_model": 64, "d_ff": 128, "dropout": 0.0}
    recipe = {"epochs": 14, "batch_size": 16, "learning_rate": 4e-3, "warmup_steps": 30}
    options = {"output": tmp_path / "run", "lower": False, "device": "cpu", "log": lambda line: None}
    train_translator(corpus, "small", **options, **small, **recipe)
    translator = Translator.load(tmp_path / "run")
    unseen = [*corpus["val"], *corpus["test"]]
    translations = translator.translate([pair.src for pair in unseen])
    words, sacre = bleu.score(translations, [pair.tgt for pair in unseen], translator.tgt_tokenizer)
    assert f"tok:{tokenize}" in sacre.signature
    assert min(words.value, sacre.value) > 50, (words, sacre)
    drawn = translator.translate([unseen[0].src], attention=True)[0]
    with warnings.catch_warnings(record=True) as hints:  # matplotlib's, where no font has the characters
        warnings.simplefilter("always")
        plots.attention_heads(drawn).savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 10_000
    assert all("Glyph" in str(hint.message) for hint in hints)
    assert any(translation.text == pair.tgt for translation, pair in zip(translations, unseen, strict=True))
