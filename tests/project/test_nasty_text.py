"""Whatever is pasted into the translator, or is in a training text, has a defined meaning, and hurts nothing else.

``SECURITY.md`` has the same table in words.
"""

import io
import itertools
import sys
import unicodedata
from xml.etree import ElementTree

import pytest
import torch
from conftest import PAIRS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transformer_lib import Transformer, TransformerConfig, cli
from transformer_lib.checkpoint import load_model, save_model
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import Pair
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK, WordTokenizer
from transformer_lib.inference.bleu import score
from transformer_lib.inference.translator import Translator
from transformer_lib.notebook import plots
from transformer_lib.training.device import seed_everything
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

NO_SPACE, MARKS = "expected at most one of 1,000", "more than 499 combining marks in a row"
NOTHING, TOO_LONG, NO_TEXT = "expected at least one word", "expected at most", "surrogates not allowed"
WORD, PIECES = "translated as one unknown word", "translated in pieces"
NASTY = {  # name: the text, what a model of words does with it, and one of subwords
    "empty": ("", NOTHING, NOTHING),
    "spaces only": (" \t\u3000\n", NOTHING, NOTHING),
    "zero-width space only": ("\u200b", WORD, NOTHING),
    "one character": ("x", WORD, PIECES),
    "10,000 words": ("hund " * 10_000, TOO_LONG, TOO_LONG),
    "10,000 letters": ("a" * 10_000, NO_SPACE, TOO_LONG),
    "100 words of brackets": (" ".join(f"{'(' * 990}{i}" for i in range(100)), NO_SPACE, TOO_LONG),  # three minutes
    "10,000,000 letters": ("hund " * 2_000_000, TOO_LONG, TOO_LONG),
    "10,000 brackets": ("(" * 10_000, NO_SPACE, PIECES),  # spaCy would take 17 seconds
    "emoji": ("👩\u200d👩\u200d👧", "translated as five unknown words", PIECES),
    "right to left": ("مرحبا", WORD, PIECES),
    "told to run right to left": ("\u202eein hund", "translated", PIECES),
    "combining marks": ("e" + "\u0301" * 50, WORD, PIECES),
    "64,000 combining marks": ("e" + "\u0301\u0323" * 32_000, MARKS, MARKS),  # Unicode's rules would take a minute
    "control characters": ("\x01\x1b[2J\x07", "translated", PIECES),
    "control characters only": ("\x01\x1b\x07", WORD, PIECES),
    "zero-width space inside": ("ein\u200bhund", WORD, PIECES),
    "newlines inside": ("ein\nhund\r\nschläft", "translated", PIECES),
    "several spaces": ("ein   hund\xa0\xa0schläft", "translated", PIECES),
    "NUL": ("ein \0 hund", "translated", PIECES),
    "<sos>, typed": ("<sos> ein hund <eos> <pad> <unk>", "translated", PIECES),
    "▁, typed": ("▁ein▁hund", "translated", PIECES),
    "unknown words only": ("qxz wvk", "translated", PIECES),
    "mixed scripts": ("ein собака 犬 schläft", "translated", PIECES),
    "an unpaired surrogate": ("ein \ud83d hund", NO_TEXT, NO_TEXT),
    "not a character": ("\uffff \ue000", "translated", PIECES),
    "byte order mark": ("\ufeffein hund", "translated", PIECES),
}
REFUSED = (NOTHING, TOO_LONG, NO_SPACE, NO_TEXT, MARKS)


@pytest.fixture(scope="module")
def words(trained):
    return trained


@pytest.fixture(scope="module")
def subwords():
    """A translator in subwords that knows the tiny corpus by heart."""
    pieces = train_subwords(PAIRS, 80)
    tokenizers = SubwordTokenizer("de", pieces), SubwordTokenizer("en", pieces)
    data = make_dataset(PAIRS, *tokenizers)
    config = TransformerConfig(80, 80, 32, 4, 64, 2, 0.0, norm_first=True, tie_embeddings=True)
    seed_everything(0)
    model = Transformer(config)
    recipe = Recipe(epochs=80, batch_size=4, learning_rate=3e-3)
    fit(model, data, data, recipe, log=lambda line: None)
    return Translator(model, *tokenizers)


@pytest.fixture(params=["words", "subwords"])
def translator(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_nasty_sentence_does_what_the_table_says_and_the_others_do_not_notice(translator, pairs, beam_size, tried):
    good, of_words = [pair.src for pair in pairs], translator.src_tokenizer.whole_words
    outcomes = {name: by_words if of_words else by_subwords for name, (_, by_words, by_subwords) in NASTY.items()}
    for name, outcome in outcomes.items():
        if outcome in REFUSED:
            with pytest.raises(ValueError, match=f"^sentence 5.*{outcome}"):
                translator.translate([*good[:4], NASTY[name][0], *good[4:]], beam_size)
    accepted = [name for name, outcome in outcomes.items() if outcome not in REFUSED]
    together = translator.translate([*good[:4], *(NASTY[name][0] for name in accepted), *good[4:]], beam_size)
    texts = [translation.text for translation in together]
    assert [*texts[:4], *texts[4 + len(accepted) :]] == [pair.tgt.lower() for pair in pairs]
    for name, translation in zip(accepted, together[4:], strict=False):
        alone = translator.translate([NASTY[name][0]], beam_size)[0]
        assert translation.text == alone.text, name  # nor does it notice the others
        if outcomes[name] == WORD:
            assert len(alone.src_tokens) == 3, name
            assert translator.src_tokenizer.vocab[alone.src_tokens[1]] == translator.src_tokenizer.vocab[UNK], name
    if of_words:
        for name, outcome in outcomes.items():
            saw = f"{outcome} (a model of words)"
            tried(f"text to translate: {name}", 4, "nothing; the sentences beside it come out the same", saw)


def test_the_special_tokens_that_somebody_types_are_none(translator):
    ids = translator.src_tokenizer.encode("<sos> hund <eos> <pad> <unk>")
    vocab = translator.src_tokenizer.vocab
    assert ids[0] == vocab[SOS] and ids[-1] == vocab[EOS]
    assert not {vocab[SOS], vocab[EOS], vocab[PAD]} & set(ids[1:-1])


def test_white_space_counts_only_if_the_vocabulary_has_it(words, subwords):
    for tokenizer in (words.src_tokenizer, subwords.src_tokenizer):
        assert tokenizer.encode("ein \n  hund\t schläft") == tokenizer.encode("ein hund schläft")
    spaced = WordTokenizer("de")
    build_vocabularies(make_dataset([Pair("ein  hund", "x")], spaced, WordTokenizer("en")), min_freq=1)
    assert spaced.tokenize("ein  hund") == ["ein", " ", "hund"]


def test_a_long_text_is_read_as_it_is_in_pieces(words, subwords):
    """A line of thousands of letters, its accents apart from them, is no reason to refuse anything."""
    line, times = unicodedata.normalize("NFD", "Die Bäume blühen früh, sagt «Müller». "), 500
    for tokenizer in (words.src_tokenizer, subwords.src_tokenizer):
        assert tokenizer.tokenize(line * times) == tokenizer.tokenize(line) * times


ANYTHING = st.text(st.characters(exclude_categories=()), max_size=200)
ONCE = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
FEW, MANY = settings(ONCE, max_examples=25), settings(ONCE, max_examples=2000)


def check_anything(translator, text):
    tokenizer = translator.src_tokenizer
    vocab = tokenizer.vocab
    size = len(vocab.itos), len(vocab.stoi)
    try:
        ids = tokenizer.encode(text)
    except ValueError as error:
        assert any(reason in str(error) for reason in REFUSED)
        return
    assert ids == tokenizer.encode(text)
    assert (ids[0], ids[-1]) == (vocab[SOS], vocab[EOS]) and len(ids) > 2
    assert not {vocab[SOS], vocab[EOS], vocab[PAD]} & set(ids[1:-1])
    assert all(0 <= i < len(vocab) for i in ids)
    assert (len(vocab.itos), len(vocab.stoi)) == size
    if len(ids) <= 100:
        alone, beside = "Ein Hund schläft.", translator.translate([text, "Ein Hund schläft."])
        assert beside[1].text == translator(alone)
        assert not {SOS, EOS, PAD} & set(beside[0].tokens)


@pytest.mark.parametrize("kind", ["words", "subwords"])
@FEW
@given(text=ANYTHING)
def test_any_text_becomes_ids_or_is_refused_and_its_neighbour_does_not_notice(request, kind, text):
    check_anything(request.getfixturevalue(kind), text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_thousands_of_texts_become_ids_or_are_refused(request, kind, tried):
    translator, seen = request.getfixturevalue(kind), []

    @MANY
    @given(text=ANYTHING)
    def check(text):
        seen.append(text)
        check_anything(translator, text)

    check()
    assert len(seen) >= 2000
    tried(
        f"text: whatever hypothesis finds, through a model of {kind}", len(seen), "nothing", "a translation or why not"
    )


TRAINABLE = [text for text, *outcomes in NASTY.values() if not set(outcomes) & set(REFUSED)]


@pytest.mark.parametrize("cut", ["words", "subwords"])
def test_a_training_text_full_of_it_can_be_learnt_saved_and_scored(tmp_path, pairs, cut, tried):
    nasty = [*pairs, *(Pair(text, f"{text} {text}") for text in TRAINABLE)]
    recipe = Recipe(epochs=2, batch_size=8, subwords=200 * (cut == "subwords"))
    if cut == "subwords":
        pieces = train_subwords(nasty, recipe.subwords)
        tokenizers = SubwordTokenizer("de", pieces), SubwordTokenizer("en", pieces)
        lines = []
        data = make_dataset(nasty, *tokenizers, log=lines.append)
        assert all("the vocabulary lacks" in line and "'\\x00'" in line for line in lines)  # which no subword can write
    else:
        tokenizers = WordTokenizer("de"), WordTokenizer("en")
        data = make_dataset(nasty, *tokenizers)
        build_vocabularies(data, min_freq=1)
    config = TransformerConfig(*(len(tokenizer.vocab) for tokenizer in tokenizers), 16, 2, 16, 1, max_len=400)
    seed_everything(0)
    model = Transformer(config)
    fit(model, data, data, recipe, tmp_path, log=lambda line: None)
    saved = load_model(tmp_path)
    assert saved.tokenizers["src"].vocab.itos == tokenizers[0].vocab.itos
    translations = Translator.from_saved(saved).translate([pair.src for pair in nasty])
    assert translations == Translator(model, *tokenizers).translate([pair.src for pair in nasty])
    assert all(0 <= found.value <= 100 for found in score(translations, [pair.tgt for pair in nasty], tokenizers[1]))
    tried(f"text: a training text full of it, in {cut}", len(TRAINABLE), "nothing", "a model that loads and translates")


@pytest.mark.filterwarnings("ignore:Glyph")  # matplotlib's font lacks some, and draws a box
def test_its_attention_can_be_drawn(words, tmp_path):
    translations = words.translate([text for text, by_words, _ in NASTY.values() if by_words not in REFUSED])
    columns, rows = (
        list(dict.fromkeys(itertools.chain.from_iterable(tokens)))
        for tokens in zip(*((one.src_tokens, one.tgt_tokens) for one in translations), strict=True)
    )
    plots.attention_map(torch.rand(len(rows), len(columns)), columns, rows).savefig(tmp_path / "map.svg")
    ElementTree.parse(tmp_path / "map.svg")  # a viewer would say that the file is damaged


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("Ein Hund schläft.\n\n\u200b\n \t\nDas Kind schläft.\n", ["a dog", "", "", "", "the child"]),
        ("Ein Hund schläft.\r\n\0\nDas Kind schläft.", ["a dog", "", "the child"]),
    ],
)
def test_lines_in_are_lines_out(words, tmp_path, monkeypatch, capsys, typed, written):
    path = tmp_path / "model.safetensors"
    save_model(path, words.model, {"src": words.src_tokenizer, "tgt": words.tgt_tokenizer})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8"))
    assert cli.main(["translate", "--model", str(path), "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.removesuffix("\n").split("\n")
    assert len(lines) == len(written)
    assert all(
        line.startswith(beginning) and bool(line) >= bool(beginning)
        for line, beginning in zip(lines, written, strict=True)
    )


def test_lines_in_another_encoding_are_named(words, tmp_path, monkeypatch, capsys):
    path = tmp_path / "model.safetensors"
    save_model(path, words.model, {"src": words.src_tokenizer, "tgt": words.tgt_tokenizer})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("schläft".encode("latin1")), encoding="utf-8"))
    assert cli.main(["translate", "--model", str(path), "--device", "cpu"]) == 1
    assert "line 1: it is not UTF-8" in capsys.readouterr().err
