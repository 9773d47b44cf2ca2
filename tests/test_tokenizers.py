import copy
import itertools
import pickle

import pytest

from transformer_lib import TransformerConfig
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import Pair
from transformer_lib.data.tokenizers import (
    EOS,
    PAD,
    SOS,
    UNK,
    Vocabulary,
    WordTokenizer,
    check_vocabularies,
    spacy_tokenizer,
)
from transformer_lib.data.torchtext import to_field
from transformer_lib.language_model.stream import StreamTokenizer


class CommaTokenizer(WordTokenizer):
    """A tokeniser of one's own, which splits at commas."""

    def split(self, sentence):
        return [word.strip() for word in sentence.split(",")]


def test_spacy_tokenises_without_a_trained_model():
    assert spacy_tokenizer("de")("Zwei Männer, z.B. im Freien.") == ["Zwei", "Männer", ",", "z.B.", "im", "Freien", "."]
    assert spacy_tokenizer("en")("They don't play.") == ["They", "do", "n't", "play", "."]


def test_a_language_that_spacy_does_not_know_is_refused():
    for language in ("xx9", "os", "../de", ""):
        with pytest.raises(ValueError, match=f"language is '{language}', expected one that spaCy can tokenise"):
            WordTokenizer(language)


def test_without_a_language_tokens_are_what_is_between_spaces():
    assert WordTokenizer(None, lower=False).tokenize("It is @-@ so .") == ["It", "is", "@-@", "so", "."]


@pytest.mark.parametrize("types", [*itertools.permutations([UNK, PAD, "dog", "cat"])])
def test_a_vocabulary_maps_types_to_ids_and_unknown_ones_to_that_of_unk(types):
    vocab = Vocabulary(types)
    for look_up in (vocab.__getitem__, vocab.get, vocab.stoi.__getitem__, vocab.stoi.get):
        assert [look_up(token) for token in (*types, "zebra")] == [0, 1, 2, 3, types.index(UNK)]
    assert vocab.get("zebra", -1) == -1 and vocab.get("dog", -1) == vocab["dog"]
    assert "dog" in vocab and "zebra" not in vocab
    assert len(vocab) == 4 and vocab.itos[vocab["cat"]] == "cat"


def test_without_unk_an_unknown_type_is_an_error():
    for look_up in (Vocabulary(["dog"]).__getitem__, Vocabulary(["dog"]).get):
        with pytest.raises(KeyError, match="zebra"):
            look_up("zebra")


@pytest.mark.parametrize("specials", [(SOS, EOS, PAD, UNK), (PAD, UNK, EOS, SOS)], ids=str)
def test_special_tokens_may_have_any_ids(tokenizers, specials):
    """The Annotated Transformer, for one, has them in another order."""
    again = copy.deepcopy(tokenizers[0])
    again.vocab = Vocabulary([*specials, *again.vocab.itos[4:]])
    sentence = "Eine Frau liest ein unbekanntes Buch."
    assert again.decode(again.encode(sentence)) == tokenizers[0].decode(tokenizers[0].encode(sentence))
    assert again.encode(sentence).count(specials.index(UNK)) == 1
    field = to_field(again)
    assert field.process([field.preprocess(sentence)]).tolist() == [again.encode(sentence)]


def test_encode_and_decode_are_inverse_on_known_words(tokenizers):
    src_tokenizer, _ = tokenizers
    ids = src_tokenizer.encode("Eine Frau liest.")
    assert (ids[0], ids[-1]) == (src_tokenizer.sos_id, src_tokenizer.eos_id)
    assert src_tokenizer.decode(ids) == ["eine", "frau", "liest", "."]


def test_an_unknown_word_becomes_unk_and_the_vocabulary_does_not_grow(tokenizers):
    src_tokenizer, _ = tokenizers
    size = len(src_tokenizer.vocab.stoi)
    assert src_tokenizer.decode(src_tokenizer.encode("Ein Zebra schläft.")) == ["ein", UNK, "schläft", "."]
    assert len(src_tokenizer.vocab.stoi) == size


def test_decode_stops_at_eos_and_refuses_ids_outside_the_vocabulary(tokenizers):
    _, tgt_tokenizer = tokenizers
    a, eos = tgt_tokenizer.vocab["a"], tgt_tokenizer.eos_id
    assert tgt_tokenizer.decode([tgt_tokenizer.sos_id, a, eos, a, tgt_tokenizer.pad_id]) == ["a"]
    with pytest.raises(IndexError):
        tgt_tokenizer.decode([9999])


def test_an_empty_sentence_is_refused(tokenizers):
    for sentence in ("", "   ", "\n"):
        with pytest.raises(ValueError, match="expected at least one word"):
            tokenizers[0].encode(sentence)


def test_special_tokens_that_a_user_types_are_ordinary_text(tokenizers):
    ids = tokenizers[0].encode(f"Ein {SOS} Hund {EOS} {PAD} {UNK}")
    assert ids.count(tokenizers[0].sos_id) == ids.count(tokenizers[0].eos_id) == 1


def test_vocabularies_come_from_the_training_split_most_frequent_first():
    src_tokenizer, tgt_tokenizer = WordTokenizer("de"), WordTokenizer("en")
    train = make_dataset([Pair("b b b a a c", "x x"), Pair("a b", "y")], src_tokenizer, tgt_tokenizer)
    make_dataset([Pair("nur hier", "only here")], src_tokenizer, tgt_tokenizer)
    assert src_tokenizer.vocab is None
    build_vocabularies(train, min_freq=2)
    assert src_tokenizer.vocab.itos == ["<unk>", "<pad>", "<sos>", "<eos>", "b", "a"]
    assert tgt_tokenizer.vocab.itos[4:] == ["x"]


def test_a_joint_vocabulary_is_shared():
    src_tokenizer, tgt_tokenizer = WordTokenizer("de"), WordTokenizer("en")
    pairs = [Pair("hund", "dog"), Pair("in", "in")]
    build_vocabularies(make_dataset(pairs, src_tokenizer, tgt_tokenizer), min_freq=1, joint=True)
    assert src_tokenizer.vocab is tgt_tokenizer.vocab
    assert set(src_tokenizer.vocab.itos[4:]) == {"hund", "dog", "in"}


def test_a_tokeniser_survives_its_dictionary(tokenizers):
    src_tokenizer, _ = tokenizers
    again = WordTokenizer.from_dict(src_tokenizer.to_dict())
    sentence = "Eine Frau liest ein unbekanntes Buch."
    assert again.encode(sentence) == src_tokenizer.encode(sentence)
    assert again.vocab.itos == src_tokenizer.vocab.itos


def test_a_tokeniser_can_be_copied_and_pickled(tokenizers):
    src_tokenizer, _ = tokenizers
    for again in (copy.deepcopy(src_tokenizer), pickle.loads(pickle.dumps(src_tokenizer))):
        assert again.encode("Eine Frau liest.") == src_tokenizer.encode("Eine Frau liest.")
        assert again.vocab is not src_tokenizer.vocab


def test_chinese_is_written_without_spaces():
    tokenizer = WordTokenizer("zh")
    assert tokenizer.join(tokenizer.tokenize("我爱你。")) == "我爱你。"


def test_a_tokeniser_of_your_own_splits_sentences_in_another_way():
    tokenizer = CommaTokenizer("de")
    assert tokenizer.tokenize("Ein Hund, eine Katze") == ["ein hund", "eine katze"]
    tokenizer.build_vocab([["ein hund", "eine katze"]])
    assert tokenizer.decode(tokenizer.encode("eine katze, ein zebra")) == ["eine katze", UNK]
    for again in (pickle.loads(pickle.dumps(tokenizer)), CommaTokenizer.from_dict(tokenizer.to_dict())):
        assert again.encode("ein hund, x") == tokenizer.encode("ein hund, x")


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        pytest.param("fr", "L'homme n'a pas d'argent.", marks=pytest.mark.slow),  # spaCy's French takes four seconds
        ("it", "All'ombra dell’albero, c'è un cane."),
        ("es", "¿Dónde está? ¡Aquí!"),
        ("ar", "هل الكلب نائم؟ نعم، هو نائم."),
        ("hi", "कुत्ता सो रहा है।"),
        ("en", "They don’t say it’s theirs."),
    ],
)
def test_join_writes_the_signs_of_other_languages_as_people_do(language, sentence):
    tokenizer = WordTokenizer(language, lower=False)
    assert tokenizer.join(tokenizer.tokenize(sentence)) == sentence


def test_a_language_has_several_codes():
    for language in ("zh", "zh_CN", "zh-Hant", "cmn", "ja_JP", "jpn"):
        assert CommaTokenizer(language).join(["两", "只", "狗"]) == "两只狗"


def test_pieces_of_words_are_no_words_to_be_scored():
    class CharacterTokenizer(WordTokenizer):
        whole_words = False

        def split(self, sentence):
            return list(sentence)

    tokenizer = CharacterTokenizer("en")
    assert tokenizer.tokenize("Dogs") == ["d", "o", "g", "s"]
    assert tokenizer.words("Dogs don't.") == ["dogs", "do", "n't", "."]


def test_a_vocabulary_without_the_special_tokens_is_refused(tokenizers, tiny_config):
    src, tgt = tokenizers
    tgt.vocab = Vocabulary(["<pad>", "<s>", "</s>", *map(str, range(tiny_config.tgt_vocab_size - 3))])
    with pytest.raises(ValueError, match="tgt_tokenizer has no <eos> in its vocabulary"):
        check_vocabularies(tiny_config, {"src": src, "tgt": tgt})


def test_running_text_has_nothing_before_a_line_and_eos_after_it():
    tokenizer = StreamTokenizer()
    lines = ["= A Title =", "", "It is @-@ so"]
    assert tokenizer.stream(lines) == ["=", "A", "Title", "=", EOS, EOS, "It", "is", "@-@", "so", EOS]
    tokenizer.build_vocab([tokenizer.stream([*lines, UNK])])
    assert tokenizer.vocab.itos[:2] == [UNK, PAD]
    ids = tokenizer.encode("It is A Title")
    assert tokenizer.decode(ids) == ["It", "is", "A", "Title"]
    assert tokenizer.decode([tokenizer.vocab[EOS], tokenizer.vocab[UNK], 1]) == [EOS, UNK, PAD]  # nothing is left out
    assert tokenizer.encode(UNK) == [0]


def test_running_text_in_a_language_is_cut_by_spacy_and_may_be_made_lower_case():
    tokenizer = StreamTokenizer("en", lower=True)
    tokens = tokenizer.stream(["They don't play."])
    assert tokens == ["they", "do", "n't", "play", ".", EOS]
    tokenizer.build_vocab([tokens])
    assert tokenizer.decode(tokenizer.encode("THEY play")) == ["they", "play"]
    again = StreamTokenizer.from_dict(tokenizer.to_dict())
    assert again.encode("They don't") == tokenizer.encode("They don't")
    with pytest.raises(ValueError, match=r"prompt holds \['dance'\], expected words of the training text"):
        again.encode("They dance.")


def test_vocabularies_that_are_not_the_models_are_refused(tokenizers, tiny_config):
    src_tokenizer, tgt_tokenizer = tokenizers
    check_vocabularies(tiny_config, {"src": src_tokenizer, "tgt": tgt_tokenizer})
    with pytest.raises(ValueError, match="src_tokenizer has no vocabulary yet"):
        check_vocabularies(tiny_config, {"src": WordTokenizer("de")})
    with pytest.raises(ValueError, match=r"src_tokenizer has \d+ types, expected the model's 99"):
        check_vocabularies(TransformerConfig(99, 99), {"src": src_tokenizer})
    with pytest.raises(ValueError, match="src_tokenizer pads with 1, expected the model's 0"):
        check_vocabularies(TransformerConfig(len(src_tokenizer.vocab), 99, pad_id=0), {"src": src_tokenizer})


def test_a_type_too_long_for_a_file_is_unknown_so_that_what_is_saved_loads():
    tokenizer = WordTokenizer(None)
    tokenizer.build_vocab([["a", "b" * 10_001]])
    assert WordTokenizer.from_dict(tokenizer.to_dict()).vocab.itos[-1] == "a"
