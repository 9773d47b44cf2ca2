import pytest

from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import Pair
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK, WordTokenizer, detokenize, spacy_tokenizer
from transformer_lib.language_model.stream import StreamTokenizer, make_stream


def test_spacy_cuts_without_a_model():
    assert spacy_tokenizer("de")("Zwei Männer, z.B. im Freien.") == ["Zwei", "Männer", ",", "z.B.", "im", "Freien", "."]
    assert spacy_tokenizer("en")("They don't play.") == ["They", "do", "n't", "play", "."]
    with pytest.raises(ValueError, match="language is 'xx9', expected a code that spaCy can tokenise"):
        spacy_tokenizer("xx9")


def test_encode_and_decode_are_inverse_on_known_words(fields):
    src_tokenizer, _ = fields
    ids = src_tokenizer.encode("Eine Frau liest.")
    assert (ids[0], ids[-1]) == (src_tokenizer.sos_id, src_tokenizer.eos_id)
    assert src_tokenizer.decode(ids) == ["eine", "frau", "liest", "."]


def test_an_unknown_word_becomes_unk_and_the_vocabulary_does_not_grow(fields):
    src_tokenizer, _ = fields
    size = len(src_tokenizer.vocab.stoi)
    assert src_tokenizer.decode(src_tokenizer.encode("Ein Zebra schläft.")) == ["ein", UNK, "schläft", "."]
    assert len(src_tokenizer.vocab.stoi) == size


def test_decode_stops_at_eos_and_refuses_ids_outside_the_vocabulary(fields):
    _, tgt_tokenizer = fields
    a, eos = tgt_tokenizer.vocab["a"], tgt_tokenizer.eos_id
    assert tgt_tokenizer.decode([tgt_tokenizer.sos_id, a, eos, a, tgt_tokenizer.pad_id]) == ["a"]
    with pytest.raises(ValueError, match="ids holds 9999"):
        tgt_tokenizer.decode([9999])


@pytest.mark.parametrize("sentence", ["", "   ", "\n"])
def test_an_empty_sentence_is_refused(fields, sentence):
    with pytest.raises(ValueError, match="expected at least one word"):
        fields[0].encode(sentence)


@pytest.mark.parametrize("typed", [SOS, EOS, PAD, UNK])
def test_special_tokens_that_a_user_types_are_ordinary_text(fields, typed):
    ids = fields[0].encode(f"Ein {typed} Hund")
    assert ids.count(fields[0].sos_id) == ids.count(fields[0].eos_id) == 1


def test_vocabularies_come_from_the_training_split_most_frequent_first():
    src_tokenizer, tgt_tokenizer = WordTokenizer("de"), WordTokenizer("en")
    train = make_dataset([Pair("b b b a a c", "x x"), Pair("a b", "y")], src_tokenizer, tgt_tokenizer)
    make_dataset([Pair("nur hier", "only here")], src_tokenizer, tgt_tokenizer)
    build_vocabularies(train, min_freq=2)
    assert src_tokenizer.vocab.itos == ["<unk>", "<pad>", "<sos>", "<eos>", "b", "a"]
    assert tgt_tokenizer.vocab.itos[4:] == ["x"]


def test_a_joint_vocabulary_is_shared():
    src_tokenizer, tgt_tokenizer = WordTokenizer("de"), WordTokenizer("en")
    build_vocabularies(
        make_dataset([Pair("hund", "dog"), Pair("in", "in")], src_tokenizer, tgt_tokenizer), 1, joint=True
    )
    assert src_tokenizer.vocab is tgt_tokenizer.vocab
    assert set(src_tokenizer.vocab.itos[4:]) == {"hund", "dog", "in"}


def test_a_field_survives_its_dictionary(fields):
    src_tokenizer, _ = fields
    copy = WordTokenizer.from_dict(src_tokenizer.to_dict())
    sentence = "Eine Frau liest ein unbekanntes Buch."
    assert copy.encode(sentence) == src_tokenizer.encode(sentence)
    assert copy.vocab.itos == src_tokenizer.vocab.itos


@pytest.mark.parametrize(
    "sentence",
    [
        "A man in a T-shirt, two dogs (brown) and a cat!",
        "The boy's dog doesn't like it; they're sad.",
        'A sign says "stop here" to everyone.',
        "Zwei Männer – einer groß, einer klein – warten.",
        "Is it 50% off? Yes: $5.",
        "He cannot stop.",
    ],
)
def test_detokenize_undoes_the_tokeniser(sentence):
    assert detokenize(spacy_tokenizer("en")(sentence)) == sentence


def test_running_text_ends_lines_and_frames_nothing():
    field = StreamTokenizer()
    lines = ["= A Title =", "", "It is @-@ so"]
    assert field.stream(lines) == ["=", "A", "Title", "=", EOS, EOS, "It", "is", "@-@", "so", EOS]
    field.build_vocab(make_stream([*lines, UNK], field))
    assert field.vocab.itos[:2] == [UNK, PAD]
    ids = field.encode("It is A Title")
    assert field.decode(ids) == ["It", "is", "A", "Title"]
    assert field.decode([field.vocab[EOS], field.vocab[UNK], 1]) == [EOS, UNK, PAD]  # nothing is left out
    assert field.encode(UNK) == [0]
    with pytest.raises(ValueError, match="ids holds 99, expected 0 to"):
        field.decode([99])


def test_running_text_in_a_language_is_cut_by_spacy_and_may_be_made_lower_case():
    field = StreamTokenizer("en", lower=True)
    assert field.stream(["They don't play."]) == ["they", "do", "n't", "play", ".", EOS]
    field.build_vocab(make_stream(["They don't play."], field))
    assert field.decode(field.encode("THEY play")) == ["they", "play"]
    copy = StreamTokenizer.from_dict(field.to_dict())
    assert copy.encode("They don't") == field.encode("They don't")
    with pytest.raises(ValueError, match="prompt holds 'dance', expected words among the 8 of the vocabulary"):
        copy.encode("They dance.")


@pytest.mark.parametrize("tokens", [["<unk>", "the", "<pad>"], ["<unk>", "<pad>", "the", "the"]])
def test_a_running_text_vocabulary_that_is_none_is_refused(tokens):
    with pytest.raises(ValueError, match="expected <unk>, <pad> first, and no type twice"):
        StreamTokenizer.from_dict({"language": None, "lower": False, "tokens": tokens})
