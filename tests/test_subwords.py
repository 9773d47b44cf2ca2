import base64
import copy
import json
import pickle
import random

import pytest
import torch

from transformer_lib.data.batches import build_vocabularies, make_dataset, resegment
from transformer_lib.data.corpora import Pair
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK
from transformer_lib.training.recipe import Recipe

SIZE = 80


@pytest.fixture
def pieces(pairs):
    return train_subwords(pairs, SIZE)


@pytest.fixture
def tokenizers(pieces):
    return SubwordTokenizer("de", pieces), SubwordTokenizer("en", pieces)


@pytest.fixture
def dataset(pairs, tokenizers):
    return make_dataset(pairs, *tokenizers)


def test_one_vocabulary_of_the_size_asked_for_with_the_specials_first(tokenizers):
    src_tokenizer, tgt_tokenizer = tokenizers
    assert src_tokenizer.vocab.itos == tgt_tokenizer.vocab.itos
    assert len(src_tokenizer.vocab) == SIZE
    assert src_tokenizer.vocab.itos[:4] == [UNK, PAD, SOS, EOS]


def test_the_same_text_gives_the_same_model_to_the_byte(pairs, pieces):
    assert train_subwords(pairs, SIZE) == pieces  # by which two processes know that they train the same


def test_what_was_cut_is_put_together_again(tokenizers, pairs):
    for tokenizer, side in zip(tokenizers, ("src", "tgt"), strict=True):
        for pair in pairs:
            sentence = getattr(pair, side)
            tokens = tokenizer.tokens(sentence)
            assert tokenizer.join(tokens) == sentence.lower()
            assert tokenizer.decode(tokenizer.encode(sentence)) == tokens


def test_every_letter_of_the_training_text_can_be_written():
    sentences = ["Дом № 7, при 20 ℃, марка™", "两只狗，一只猫！（…）", "می‌خواهم", "½ m² und 3 Ａ"]
    tokenizer = SubwordTokenizer("de", train_subwords([Pair(one, one) for one in sentences], lower=False), lower=False)
    for sentence in sentences:
        tokens = tokenizer.tokens(sentence)
        assert tokenizer.join(tokens) == sentence
        assert UNK not in tokenizer.decode(tokenizer.encode(sentence))


@pytest.mark.parametrize(
    "written",
    ["Ein Ma\u0308dchen", "Ein\tMädchen", "Ein\xa0\u3000Mädchen", "\ufeffEin\u200bMädchen", " Ein  Mädchen "],
)
def test_accents_and_white_space_have_one_spelling(written):
    tokenizer = SubwordTokenizer("de", train_subwords([Pair("Ein Mädchen", "A girl")]))
    assert tokenizer.tokens(written) == tokenizer.tokens("Ein Mädchen")


def test_a_word_that_was_never_seen_falls_into_pieces_and_none_is_unknown(tokenizers):
    _, tgt_tokenizer = tokenizers
    tokens = tgt_tokenizer.tokens("Dogs in gardens")
    assert len(tokens) > 3 and UNK not in tgt_tokenizer.decode(tgt_tokenizer.encode("Dogs in gardens"))
    assert tgt_tokenizer.join(tokens) == "dogs in gardens"


def test_a_letter_that_was_never_seen_is_unknown_but_stands_as_it_was_written(tokenizers):
    _, tgt_tokenizer = tokenizers
    assert "漢" in tgt_tokenizer.tokens("a 漢")
    assert tgt_tokenizer.vocab.itos[0] in tgt_tokenizer.decode(tgt_tokenizer.encode("a 漢"))


def test_no_other_vocabulary_can_be_built_since_it_would_not_be_saved(dataset):
    with pytest.raises(ValueError, match="a SubwordTokenizer cannot build a vocabulary: it has that of its pieces"):
        build_vocabularies(dataset, min_freq=1, joint=True)


def test_bleu_counts_words_and_not_pieces(tokenizers):
    _, tgt_tokenizer = tokenizers
    assert tgt_tokenizer.words("In the garden, they don't play.") == [
        *("in", "the", "garden", ",", "they", "do", "n't", "play", "."),
    ]


def test_upper_case_stays_if_asked_for(pairs):
    tokenizer = SubwordTokenizer("de", train_subwords(pairs, SIZE, lower=False), lower=False)
    assert tokenizer.join(tokenizer.tokens("Der Hund")) == "Der Hund"
    assert tokenizer.words("Der Hund") == ["Der", "Hund"]


def test_a_tokeniser_survives_its_dictionary_as_json(tokenizers):
    src_tokenizer, _ = tokenizers
    again = SubwordTokenizer.from_dict(json.loads(json.dumps(src_tokenizer.to_dict())))
    assert again.vocab.itos == src_tokenizer.vocab.itos and again.language == "de"
    assert again.encode("Ein Hund schläft.") == src_tokenizer.encode("Ein Hund schläft.")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_tokeniser_can_be_copied_and_pickled(tokenizers, copied):
    again = copied(tokenizers[0])
    assert again.encode("Ein Hund schläft.") == tokenizers[0].encode("Ein Hund schläft.")
    assert again.join(again.tokens("Ein Hund")) == "ein hund"


def test_an_empty_sentence_is_named(tokenizers):
    with pytest.raises(ValueError, match="sentence is '  ', expected at least one word"):
        tokenizers[0].tokens("  ")


@pytest.mark.parametrize("size", [10, 8000])
def test_a_size_that_the_text_does_not_allow_is_named(pairs, size):
    with pytest.raises(ValueError, match=f"subwords is {size}, which does not suit the training split"):
        train_subwords(pairs, size)


def test_without_a_size_the_text_decides(pairs):
    def pieces(pairs):
        return len(SubwordTokenizer("de", train_subwords(pairs)).vocab)

    letters = {letter for pair in pairs for letter in "".join(pair).lower()}
    length = sum(len("".join(pair)) for pair in pairs)
    assert pieces(pairs) == len(letters) + 2 * int(length**0.5) + 5
    assert pieces(pairs * 100) > pieces(pairs)
    assert pieces([("aa", "ab")] * 100) < 20  # there are no more, and that is no error


def test_bytes_that_are_not_a_sentencepiece_model_are_refused():
    with pytest.raises(ValueError, match="model is not a sentencepiece model"):
        SubwordTokenizer("de", b"something else")
    with pytest.raises(ValueError, match="model is not a sentencepiece model"):
        SubwordTokenizer.from_dict({"language": "de", "lower": True, "subwords": base64.b64encode(b"x").decode()})


def test_cutting_anew_changes_pieces_and_no_text(dataset, tokenizers):
    again = resegment(dataset, 0.3, seed=1, max_len=100)
    assert len(again) == len(dataset) and again.tokenizers == dataset.tokenizers
    for old, new in zip(dataset.examples, again.examples, strict=True):
        for tokenizer, side in zip(tokenizers, ("src", "tgt"), strict=True):
            assert tokenizer.join(getattr(old, side)) == tokenizer.join(getattr(new, side))
            assert len(getattr(old, side)) <= len(getattr(new, side))
    assert any(old.src != new.src for old, new in zip(dataset.examples, again.examples, strict=True))


def test_the_seed_decides_how_sentences_are_cut(dataset):
    cuts = [[example.tgt for example in resegment(dataset, 0.3, seed, 100).examples] for seed in (1, 2, 1)]
    assert cuts[0] == cuts[2] != cuts[1]


NASTY = "ein 😀😀hund\u200b ñandú! ﬁsch 漢字 ▁x"


def test_without_dropout_nothing_changes(dataset, tokenizers):
    """Our merges find what sentencepiece found, unknown letters included."""
    again = resegment(dataset, 0.0, seed=1, max_len=100)
    assert [e.src for e in again.examples] == [e.src for e in dataset.examples]
    pieces = tokenizers[0].tokens(NASTY)
    assert tokenizers[0].resample(pieces, 0.0, random.Random(1)) == pieces


def test_the_more_is_left_out_the_smaller_the_pieces_down_to_letters(dataset, tokenizers):
    sizes = [
        sum(len(e.src) + len(e.tgt) for e in resegment(dataset, dropout, seed=1, max_len=1000).examples)
        for dropout in (0.0, 0.2, 0.5, 0.8, 1.0)
    ]
    assert sizes == sorted(sizes) and len(set(sizes)) == len(sizes)
    pieces = tokenizers[0].tokens("Zwei Hunde")
    assert tokenizers[0].resample(pieces, 1.0, random.Random(1)) == list("▁zwei▁hunde")


def test_a_merge_is_left_out_as_often_as_was_asked_for(tokenizers):
    """Of two letters that merge into one piece, only one merge can be left out, and only once."""
    pair = next(piece for piece in tokenizers[0].vocab.itos[4:] if len(piece) == 2)
    rng = random.Random(1)
    kept = sum(tokenizers[0].resample(list(pair), 0.3, rng) == [pair] for _ in range(2000))
    assert kept / 2000 == pytest.approx(0.7, abs=0.04)  # four standard deviations


def test_a_sentence_that_would_not_fit_any_more_stays_as_it_is(dataset):
    longest = max(len(e.tgt) for e in dataset.examples) + 2
    again = resegment(dataset, 0.1, seed=1, max_len=longest)
    assert max(len(e.tgt) for e in again.examples) + 2 <= longest
    assert any(len(new.tgt) > len(old.tgt) for old, new in zip(dataset.examples, again.examples, strict=True))


def test_cut_anew_a_sentence_still_fits_a_batch(dataset):
    longest = max(len(side) for example in dataset.examples for side in example) + 2
    recipe = Recipe(max_tokens=longest, subwords=SIZE, subword_dropout=0.3)
    for epoch in range(1, 6):  # of max_tokens positions on a side, padding included
        for batch in dataset.batches_for(recipe, torch.device("cpu"), train=True, epoch=epoch):
            assert max(side.numel() for side in batch) <= longest
