import base64
import copy
import json
import pickle

import pytest

from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import Pair
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK

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


def test_what_was_split_is_put_together_again(tokenizers, pairs):
    for tokenizer, side in zip(tokenizers, ("src", "tgt"), strict=True):
        for pair in pairs:
            sentence = getattr(pair, side)
            tokens = tokenizer.tokenize(sentence)
            assert tokenizer.join(tokens) == sentence.lower()
            assert tokenizer.decode(tokenizer.encode(sentence)) == tokens


def test_every_character_of_the_training_text_can_be_written():
    sentences = ["Дом № 7, при 20 ℃, марка™", "两只狗，一只猫！（…）", "می‌خواهم", "½ m² und 3 Ａ"]
    tokenizer = SubwordTokenizer("de", train_subwords([Pair(one, one) for one in sentences], lower=False), lower=False)
    for sentence in sentences:
        tokens = tokenizer.tokenize(sentence)
        assert tokenizer.join(tokens) == sentence
        assert UNK not in tokenizer.decode(tokenizer.encode(sentence))


def test_accents_and_white_space_have_one_spelling():
    tokenizer = SubwordTokenizer("de", train_subwords([Pair("Ein Mädchen", "A girl")]))
    for written in (
        "Ein Ma\u0308dchen",
        "Ein\tMädchen",
        "Ein\xa0\u3000Mädchen",
        "\ufeffEin\u200bMädchen",
        " Ein  Mädchen ",
    ):
        assert tokenizer.tokenize(written) == tokenizer.tokenize("Ein Mädchen")


def test_a_word_that_was_never_seen_falls_into_pieces_and_none_is_unknown(tokenizers):
    _, tgt_tokenizer = tokenizers
    tokens = tgt_tokenizer.tokenize("Dogs in gardens")
    assert len(tokens) > 3 and UNK not in tgt_tokenizer.decode(tgt_tokenizer.encode("Dogs in gardens"))
    assert tgt_tokenizer.join(tokens) == "dogs in gardens"


def test_a_character_that_was_never_seen_is_unknown_but_stands_as_it_was_written(tokenizers):
    _, tgt_tokenizer = tokenizers
    assert "漢" in tgt_tokenizer.tokenize("a 漢")
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
    assert tokenizer.join(tokenizer.tokenize("Der Hund")) == "Der Hund"
    assert tokenizer.words("Der Hund") == ["Der", "Hund"]


def test_a_tokeniser_survives_its_dictionary_as_json(tokenizers):
    src_tokenizer, _ = tokenizers
    again = SubwordTokenizer.from_dict(json.loads(json.dumps(src_tokenizer.to_dict())))
    assert again.vocab.itos == src_tokenizer.vocab.itos and again.language == "de"
    assert again.encode("Ein Hund schläft.") == src_tokenizer.encode("Ein Hund schläft.")


def test_a_tokeniser_can_be_copied_and_pickled(tokenizers):
    for again in (copy.deepcopy(tokenizers[0]), pickle.loads(pickle.dumps(tokenizers[0]))):
        assert again.encode("Ein Hund schläft.") == tokenizers[0].encode("Ein Hund schläft.")
        assert again.join(again.tokenize("Ein Hund")) == "ein hund"


def test_an_empty_sentence_is_named(tokenizers):
    with pytest.raises(ValueError, match="sentence is '  ', expected at least one word"):
        tokenizers[0].encode("  ")


def test_a_size_that_the_text_does_not_allow_is_named(pairs):
    for size in (10, 8000):
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
    with pytest.raises(ValueError, match="pieces are no sentencepiece model"):
        SubwordTokenizer("de", b"something else")
    with pytest.raises(ValueError, match="pieces are no sentencepiece model"):
        SubwordTokenizer.from_dict({"language": "de", "lower": True, "subwords": base64.b64encode(b"x").decode()})
