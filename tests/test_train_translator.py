import dataclasses

import pytest

from transformer_lib import load_corpus, train_translator
from transformer_lib.checkpoint import load_model
from transformer_lib.data.corpora import Pair
from transformer_lib.inference.bleu import by_definition
from transformer_lib.inference.translator import Translator
from transformer_lib.language_model.texts import load_text
from transformer_lib.language_model.train import train_language_model
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.train_translator import tune_length_penalty


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


@pytest.mark.parametrize(
    ("line", "subwords", "reason"),
    [
        ("a" * 1200, 0, "pair 3 cannot be used: sentence has 1,200 letters without a space"),
        ("\u200b", 80, "the src side of pair 3 is empty"),
        ("Hund " * 300, 0, "the src side of pair 3 has 302 tokens"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_with_its_split(corpus, tmp_path, line, subwords, reason):
    for split in ("train", "val"):
        lines = (tmp_path / f"{split}.de").read_text(encoding="utf-8").splitlines()
        lines[2] = line if split == "val" else lines[2]
        (tmp_path / f"{split}.de").write_text("\n".join(lines), encoding="utf-8")
    recipe = Recipe(epochs=1, subwords=subwords)
    with pytest.raises(ValueError, match=f"split 'val' of .*: pairs: {reason}"):
        train_translator(corpus, "small", recipe, min_freq=1, log=lambda line: None)


def test_a_line_of_a_running_text_is_named_too(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a b c\n" * 9 + "x" * 1200, encoding="utf-8")
    with pytest.raises(ValueError, match="split 'test' of 'text': line 1 cannot be used: sentence has 1,200 letters"):
        train_language_model(dataclasses.replace(load_text(path, "en"), splits=("train", "test")))


def test_the_same_seed_gives_the_same_translator(corpus):
    translators = [train_translator(corpus, recipe=Recipe(epochs=1), log=lambda line: None) for _ in range(2)]
    weights = [list(translator.model.parameters()) for translator in translators]
    assert all(first.equal(second) for first, second in zip(*weights, strict=True))


def test_an_unknown_preset_says_which_there_are(corpus):
    with pytest.raises(ValueError, match="preset is 'huge', expected one of tutorial, small, multi30k_best, multi"):
        train_translator(corpus, "huge")


@pytest.fixture
def subword_recipe():
    return Recipe(epochs=40, batch_size=4, learning_rate=2e-3, warmup_steps=10, subwords=80, beam_size=3)


def test_subwords_and_a_beam_from_the_corpus_to_the_file(corpus, pairs, tmp_path, subword_recipe):
    lines = []
    translator = train_translator(corpus, "multi30k_best", subword_recipe, tmp_path / "run", log=lines.append)
    loaded = Translator.load(tmp_path / "run")
    assert translator(pairs[0].src) == loaded(pairs[0].src) == pairs[0].tgt.lower()
    assert loaded.beam_size == 3 and loaded.length_penalty == translator.length_penalty
    assert "subwords  80 types, for de and en" in lines
    assert sum(line.startswith("beam 3, BLEU on val by length penalty: 0.0 ") for line in lines) == 1
    notes = load_model(tmp_path / "run").notes
    assert (
        notes["search"] == {"beam_size": 3, "length_penalty": translator.length_penalty}
        and notes["history"]["val_loss"]
    )


def test_the_length_penalty_is_the_best_on_what_it_is_shown(trained, pairs, monkeypatch):
    translator = Translator(trained.model, trained.src_tokenizer, trained.tgt_tokenizer)
    translate = translator.translate

    def worse_with_a_high_penalty(sentences, beam_size, length_penalty):
        return translate(sentences if length_penalty < 10 else sentences[::-1], beam_size, length_penalty)

    monkeypatch.setattr(translator, "translate", worse_with_a_high_penalty)
    shown = [Pair(pair.src, pair.tgt) for pair in pairs]
    scores = tune_length_penalty(translator, shown, beam_size=2, length_penalties=(10.0, 0.6))
    assert scores[0.6] == pytest.approx(100) and scores[10.0] < scores[0.6]
    assert (translator.beam_size, translator.length_penalty) == (2, max(scores, key=scores.get))
    for length_penalty, value in scores.items():
        translations = translator.translate([pair.src for pair in shown], 2, length_penalty)
        words = [translator.tgt_tokenizer.words(pair.tgt) for pair in shown]
        assert value == pytest.approx(by_definition([t.tokens for t in translations], words))
