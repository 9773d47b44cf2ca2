import sys

import pytest

from transformer_lib import load_corpus, train_translator
from transformer_lib.checkpoint import MODEL_FILE, load_model
from transformer_lib.data.corpora import Pair
from transformer_lib.data.tokenizers import spacy_tokenizer
from transformer_lib.files import locked
from transformer_lib.inference.bleu import by_definition
from transformer_lib.inference.translator import Translator
from transformer_lib.training import train_translator as training
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.train_translator import tune_length_penalty

NARROW = {"d_model": 32, "d_ff": 64, "dropout": 0.0}


@pytest.fixture
def corpus(tmp_path, pairs):
    for split in ("train", "val"):
        for side in ("src", "tgt"):
            lines = "".join(f"{getattr(pair, side)}\n" for pair in pairs)
            (tmp_path / f"{split}.{'de' if side == 'src' else 'en'}").write_text(lines, encoding="utf-8")
    return load_corpus(tmp_path)


def test_a_corpus_goes_in_and_a_translator_comes_out(corpus, pairs, tmp_path):
    lines = []
    recipe = Recipe(epochs=15, batch_size=1, learning_rate=3e-3, warmup_steps=10)
    translator = train_translator(corpus, "small", recipe, tmp_path / "run", min_freq=1, log=lines.append, **NARROW)
    assert translator(pairs[0].src) == pairs[0].tgt.lower()
    assert Translator.load(tmp_path / "run")(pairs[0].src) == pairs[0].tgt.lower()
    assert load_model(tmp_path / "run").notes["preset"] == "small"
    assert any("8 pairs to train on, 8 to validate" in line for line in lines)


def test_the_validation_split_chooses_the_epoch_and_the_search(corpus, tmp_path, monkeypatch):
    put_line(tmp_path, "val", 3, "Ein Hund liest.", "A dog is reading.")
    chosen_by = []
    monkeypatch.setattr(training, "fit", lambda model, train, val, *rest, **named: chosen_by.append(val.pairs))
    monkeypatch.setattr(training, "tune_length_penalty", lambda _, pairs, *rest: chosen_by.append(pairs) or {0.0: 1.0})
    train_translator(corpus, "multi30k_fast", subwords=80, log=lambda line: None)
    assert chosen_by == [corpus["val"]] * 2 and corpus["val"] != corpus["train"]


LONG = "The dog is sleeping. " * 50
UNUSABLE = {  # a line, how many subwords there are, and why it is left out
    "nothing to be seen": ("\u200b", 80, "pair 3, Pair(src='\\u200b'"),
    "too long": ("Hund " * 300, 0, "pair 3, Pair(src='Hund Hund"),
}


def put_line(folder, split, number, de, en):
    for ending, line in (("de", de), ("en", en)):
        lines = (folder / f"{split}.{ending}").read_text(encoding="utf-8").splitlines()
        lines[number - 1] = line
        (folder / f"{split}.{ending}").write_text("\n".join(lines), encoding="utf-8")


def test_batches_of_so_many_sentences_take_the_place_of_batches_of_so_many_tokens(corpus, monkeypatch):
    recipes = []
    monkeypatch.setattr(training, "fit", lambda model, train, val, recipe, *rest, **named: recipes.append(recipe))
    train_translator(corpus, "multi30k_fast", batch_size=4, subwords=80, beam_size=1, log=lambda line: None)
    assert [(recipe.batch_size, recipe.max_tokens) for recipe in recipes] == [(4, 0)]


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_pair_that_cannot_be_used_is_left_out_and_shown(corpus, tmp_path, kind):
    line, subwords, reason = UNUSABLE[kind]
    put_line(tmp_path, "val", 3, line, "A dog." if len(line) < 9 else LONG)
    lines = []
    recipe = Recipe(epochs=1, subwords=subwords, beam_size=2)
    min_freq = None if subwords else 1
    train_translator(corpus, recipe=recipe, min_freq=min_freq, log=lines.append)  # its beam is tuned on the rest, too
    assert len(corpus["val"]) == 8
    assert lines[0].startswith(f"1 of 8 pairs left out: {reason}")
    assert any("8 pairs to train on, 7 to validate" in line for line in lines)


def test_files_of_your_own_become_a_translator_that_keeps_capitals_and_finds_its_test_split_again(tmp_path, pairs):
    """Where nothing is said about tokens, they are subwords."""
    many = [Pair(f"{a.src} {b.src}", f"{a.tgt} {b.tgt}") for a in pairs for b in pairs]
    for side, ending in (("src", "de"), ("tgt", "en")):
        (tmp_path / f"own.{ending}").write_text("".join(f"{getattr(p, side)}\n" for p in many), encoding="utf-8")
    corpus = load_corpus((tmp_path / "own.de", tmp_path / "own.en"), "de", "en")
    lines = []
    steps = {"epochs": 12, "batch_size": 4, "learning_rate": 3e-3, "warmup_steps": 20}
    train_translator(corpus, output=tmp_path / "run", lower=False, **NARROW, **steps, log=lines.append)
    saved = load_model(tmp_path / "run")
    config = saved.model.config
    assert (config.d_model, config.dropout, config.num_layers) == (32, 0.0, 2)  # changed, and the preset's
    assert saved.notes["recipe"]["epochs"] == 12 and saved.notes["recipe"]["subwords"] == config.src_vocab_size > 80
    assert any(line.startswith("subwords  ") for line in lines)
    again = load_corpus(saved.notes["corpus"], saved.tokenizers["src"].language, saved.tokenizers["tgt"].language)
    assert again["test"] == corpus["test"] and again["test"][0] not in corpus["train"]
    pair = corpus["train"][0]
    assert Translator.load(tmp_path / "run")(pair.src) == pair.tgt != pair.tgt.lower()


def test_words_are_what_you_get_if_you_ask_for_them(corpus):
    for options in (
        {"min_freq": 1},
        {"min_freq": 1, "preset": "multi30k_fast"},
        {"subwords": 0},
        {"recipe": Recipe(epochs=1)},
    ):
        translator = train_translator(corpus, **{"epochs": 1, **options}, lower=False, log=lambda line: None)
        assert translator.src_tokenizer.whole_words and not translator.tgt_tokenizer.lower
    assert not train_translator(corpus, epochs=1, log=lambda line: None).src_tokenizer.whole_words


def test_a_change_to_nothing_is_refused(corpus):
    with pytest.raises(TypeError, match="d_modle"):
        train_translator(corpus, d_modle=128)
    for name in ("src_vocab_size", "tgt_vocab_size"):
        with pytest.raises(ValueError, match=f"{name}.*5"):
            train_translator(corpus, **{name: 5})


def test_a_folder_that_holds_a_run_is_refused_before_anything_is_tokenised(corpus, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / MODEL_FILE).write_bytes(b"a run")
    monkeypatch.setattr(training, "train_subwords", lambda *arguments: pytest.fail("it tokenises"))
    with pytest.raises(FileExistsError, match="holds a training run"):
        train_translator(corpus, output=tmp_path / "run", log=str)


def test_no_other_run_enters_the_folder_before_the_tuned_search_is_saved(corpus, tmp_path, monkeypatch):
    """Else, its newer model would be overwritten by this run's, with the search that was tuned for it."""
    outcome, real = [], tune_length_penalty

    def meanwhile(*arguments):
        try:
            with locked(tmp_path / "run"):
                outcome.append("entered")
        except TimeoutError:
            outcome.append("refused")
        return real(*arguments)

    monkeypatch.setattr(training, "tune_length_penalty", meanwhile)
    train_translator(corpus, output=tmp_path / "run", epochs=1, subwords=80, beam_size=2, log=str)
    assert outcome == ["refused"]
    assert load_model(tmp_path / "run").notes["search"]["beam_size"] == 2
    with locked(tmp_path / "run"):  # it is free again
        pass


def test_the_same_seed_gives_the_same_translator(corpus):
    translators = [train_translator(corpus, recipe=Recipe(epochs=1), log=lambda line: None) for _ in range(2)]
    weights = [list(translator.model.parameters()) for translator in translators]
    assert all(first.equal(second) for first, second in zip(*weights, strict=True))


def test_an_unknown_preset_says_which_there_are(corpus):
    with pytest.raises(ValueError, match="preset is 'huge', expected one of tutorial, tutorial_original, small, "):
        train_translator(corpus, "huge")


@pytest.fixture
def subword_recipe():
    return Recipe(epochs=15, batch_size=1, learning_rate=3e-3, warmup_steps=10, subwords=80, beam_size=3)


def test_subwords_and_a_beam_from_the_corpus_to_the_file(corpus, pairs, tmp_path, subword_recipe):
    lines, output = [], tmp_path / "run"
    translator = train_translator(corpus, "multi30k_best", subword_recipe, output, log=lines.append, **NARROW)
    loaded = Translator.load(tmp_path / "run")
    assert translator(pairs[0].src) == loaded(pairs[0].src) == pairs[0].tgt.lower()
    assert loaded.beam_size == 3 and loaded.length_penalty == translator.length_penalty
    assert "subwords  80 de and 80 en types" in lines
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


def test_with_a_frequency_of_zero_every_word_has_an_id(corpus):
    sizes = []
    for min_freq in (0, 1, 2):
        translator = train_translator(corpus, recipe=Recipe(epochs=1), min_freq=min_freq, log=str)
        sizes.append(len(translator.src_tokenizer.vocab))
    assert sizes[0] == sizes[1] > sizes[2]


def test_pairs_of_ones_own_without_a_language_do_without_spacy(pairs, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    many = [Pair(f"{a.src} {b.src}", f"{a.tgt} {b.tgt}") for a in pairs for b in pairs]
    assert train_translator(load_corpus(many, None, None), epochs=1, log=str)("Ein Hund") is not None
    spacy_tokenizer.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"language is 'de'.*spacy"):
            train_translator(load_corpus(many, "de", None), subwords=0)
    finally:
        spacy_tokenizer.cache_clear()
