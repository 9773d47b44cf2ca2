import time
import unicodedata

import pytest

from transformer_lib.data.text import can_be_written, check_text, detokenize, normalize, two_letters
from transformer_lib.data.tokenizers import WordTokenizer, spacy_tokenizer

MANY = 100_000


def test_detokenize_undoes_the_tokeniser():
    for sentence in (
        "A man in a T-shirt, two dogs (brown) and a cat!",
        "The boy's dog doesn't like it; they're sad.",
        'A sign says "stop here" to everyone.',
        "Zwei Männer – einer groß, einer klein – warten.",
        "Is it 50% off? Yes: $5.",
        "He cannot stop.",
    ):
        assert detokenize(spacy_tokenizer("en")(sentence)) == sentence


def test_quotation_marks_go_in_pairs_and_one_that_is_left_stays_where_it_was():
    for tokens, text in (
        (["„", "Halt", "“", ",", "sagt", "er"], "„Halt“, sagt er"),
        (["he", "is", "5", '"', "tall"], 'he is 5 " tall'),
        (['"', "a", '"', "b", '"', "c"], '"a" b " c'),
        (["„", "„", "a", "“"], "„ „a“"),
    ):
        assert detokenize(tokens) == text


@pytest.mark.parametrize("token", [*"„“”\"(){}[]#$¿¡-/'’.a", "„ ", "„x", "n't", "can", "not", "l'", "-a"])
@pytest.mark.parametrize("language", ["en", "fr", "zh", None])
def test_no_token_takes_more_time_than_its_length(token, language):
    """A model's vocabulary may come from anybody; one of „ alone once took hours."""
    tokenizer = WordTokenizer.__new__(WordTokenizer)  # without spaCy's rules, which nothing here needs
    tokenizer.language = language
    began = time.process_time()
    assert len(tokenizer.join([token] * MANY)) >= MANY
    assert time.process_time() - began < 10  # a tenth of a second, or else minutes


def test_marks_without_end_take_no_time_and_are_no_text():
    """Unicode brings them into order one by one: the square of their number."""
    text = "a" + "\u0301\u0327" * MANY
    began = time.process_time()
    assert normalize(text) == text
    assert time.process_time() - began < 10
    assert normalize("Ma\u0308dchen\xa0 \u200bda\ufeff") == "Mädchen da"


def test_what_is_no_text_is_named():
    check_text("ein Mädchen 한 👍🏽" + "a\u0301" * MANY)
    with pytest.raises(ValueError, match="surrogates"):
        check_text("ein \ud800")
    with pytest.raises(ValueError, match="combining marks"):
        check_text("e" + "\u0301" * 2000)
    assert [can_be_written(text) for text in ("", "ä👍🏽", "\udc80", "a\ud800b")] == [True, True, False, False]


def test_a_language_has_one_code_of_two_letters():
    assert [two_letters(code) for code in ("zh_CN", "cmn", "DE", "kor", None)] == ["zh", "zh", "de", "ko", ""]
    assert unicodedata.is_normalized("NFC", normalize("e\u0301"))
