import math
import random
import unicodedata

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translation


def test_by_hand():
    hypotheses = [["the", "cat", "sat", "the", "mat"], ["a", "b", "c", "d", "e"]]
    references = [["the", "cat", "sat", "on", "a", "mat"], ["a", "b", "c", "d", "f"]]
    # matches: the second "the" is clipped, as the reference has one
    # 1-grams: 4 + 4 of 10; 2-grams: (the cat, cat sat) 2 + 3 of 8; 3-grams: 1 + 2 of 6; 4-grams: 0 + 1 of 4
    precisions = (8 / 10) * (5 / 8) * (3 / 6) * (1 / 4)
    expected = 100 * math.exp(1 - 11 / 10) * precisions**0.25
    assert bleu.by_definition(hypotheses, references) == pytest.approx(expected)


def test_clipping():
    assert bleu.by_definition([["the"] * 7], [["the", "cat", "is", "on", "the", "mat"]]) == 0.0


def test_a_perfect_translation_scores_100_and_a_longer_one_is_not_rewarded():
    reference = [["one", "two", "three", "four", "five"]]
    assert bleu.by_definition(reference, reference) == pytest.approx(100)
    precisions = (5 / 6) * (4 / 5) * (3 / 4) * (2 / 3)
    assert bleu.by_definition([[*reference[0], "six"]], reference) == pytest.approx(100 * precisions**0.25)


def random_corpus(seed):
    rng = random.Random(seed)
    words = [chr(ord("a") + i) for i in range(12)]
    references = [[rng.choice(words) for _ in range(rng.randint(4, 15))] for _ in range(60)]
    hypotheses = [[w if rng.random() < 0.8 else rng.choice(words) for w in r][: rng.randint(3, 15)] for r in references]
    return hypotheses, references


def test_all_three_agree_on_the_same_tokens():
    for seed in range(5):
        hypotheses, references = random_corpus(seed)
        ours = bleu.by_definition(hypotheses, references)
        joined = [[" ".join(tokens) for tokens in side] for side in (hypotheses, references)]
        theirs = sacrebleu.corpus_bleu(joined[0], [joined[1]], tokenize="none", smooth_method="none", force=True).score
        assert 5 < ours < 95
        assert ours == pytest.approx(theirs)
        assert bleu.torchtext_bleu(hypotheses, references).value == pytest.approx(theirs, rel=1e-5)


def test_sacrebleu_is_given_with_its_signature():
    score = bleu.sacre_bleu(["A dog is sleeping here ."], ["a dog is sleeping here ."], lowercase=True)
    assert score.value == pytest.approx(100)
    assert "case:lc" in score.signature and "tok:13a" in score.signature and "version:" in score.signature
    assert bleu.sacre_bleu(["A dog is sleeping."], ["a dog is sleeping."]).value < 100  # as sacreBLEU itself


def test_references_are_the_raw_texts_tokens_never_words_looked_up(trained):
    """A reference with an unknown word must not be matched by ``<unk>``."""
    translation = Translation("a <unk> is sleeping.", [], ["a", "<unk>", "is", "sleeping", ".", "<eos>"], 0.0, 0.0)
    reference = "A zebra is sleeping."
    assert "zebra" not in trained.tgt_tokenizer.vocab.stoi
    score, _ = bleu.score([translation] * 2, [reference] * 2, trained.tgt_tokenizer)
    assert score.value == 0.0  # no 4-gram without the unknown word; 100 if the reference were looked up


def test_an_endless_word_of_a_models_is_one_word_and_ends_nothing(pairs):
    tokenizer = SubwordTokenizer("en", train_subwords(pairs, 80, True))
    translations = [Translation(text, [], ["▁x"], 0.0, 0.0) for text in ("a dog is sleeping.", "x" * 20_000)]
    tokens, *_ = bleu.score(translations, ["a dog is sleeping.", "a cat sits."], tokenizer)
    assert 0 < tokens.value < 100


TEXTS = {  # as people type them: abbreviations, typographic spaces, letters and accents that are two characters each
    "de": ["Dr. Müller fährt z.B. um 5 Uhr.  Ein „Mädchen“ – mit T-Shirt – lacht!"],
    "en": ["Mr. Smith lives in the U.S., near St. Paul's.", "They don't\u200b wait  at the café."],
    "it": ["Gridano tutti\u202f!", "«\u00a0Sì\u00a0», dice l’uomo\u00a0: cos’è\u00a0?"],
    "ko": ["개가 집 앞에서 자고 있습니다."],
    "hi": ["ल\u095cका \u095bमीन पर ख\u095cा है।", "वह प\u095d रही है।"],  # in NFC, these are two characters each
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_perfect_translator_scores_100_by_all_measures(language):
    """Its translations are the references, sent through the tokeniser and back."""
    references = [*TEXTS[language], *(unicodedata.normalize("NFD", text) for text in TEXTS[language])]
    for lower in (True, False):
        pieces = train_subwords([(text, text) for text in references], lower=lower)
        tokenizers = [SubwordTokenizer(language, pieces, lower)]
        if language != "ko":  # for which spaCy needs a package
            tokenizers.append(WordTokenizer(language, lower))
            tokenizers[1].build_vocab(map(tokenizers[1].tokenize, references))
        for tokenizer in tokenizers:
            tokens = [tokenizer.decode(tokenizer.encode(text)) for text in references]
            translations = [Translation(tokenizer.join(one), [], [*one, "<eos>"], 0.0, 0.0) for one in tokens]
            scores = bleu.score(translations, references, tokenizer)
            assert [score.value for score in scores] == pytest.approx([100] * 2)


def test_a_word_of_the_translation_is_split_as_in_the_reference(pairs):
    """spaCy takes "U.S." for one word and "u.s." for two."""
    tokenizer = SubwordTokenizer("en", train_subwords(pairs, 80))
    translations = [Translation("in the u.s. they wait.", [], ["▁x"], 0.0, 0.0)]
    assert bleu.score(translations, ["In the U.S. they wait."], tokenizer)[0].value == pytest.approx(100)


def test_sacrebleu_itself_sees_normalised_text_and_says_so_where_that_changed_something():
    composed, decomposed = ["Das Mädchen hört zu."], ["Das Ma\u0308dchen ho\u0308rt\u00a0zu."]
    assert bleu.sacre_bleu(composed, decomposed).value == pytest.approx(100)
    assert bleu.sacre_bleu(composed, decomposed).signature.endswith("of normalised text")
    theirs = sacrebleu.BLEU()
    assert (
        bleu.sacre_bleu(composed, ["Ein Mädchen hört zu."]).value
        == theirs.corpus_score(composed, [["Ein Mädchen hört zu."]]).score
    )
    assert bleu.sacre_bleu(composed, composed).signature == f"sacreBLEU {theirs.get_signature()}"


def test_the_signature_says_what_was_counted(pairs):
    translations = [Translation("they don't wait", [], ["▁x"], 0.0, 0.0)]
    for language, counted in {
        "en_US": "spaCy's en words",
        "cy": "words of any language, as it has no rules for 'cy'",
        "pt-br": "spaCy's pt words",
        "ita": "spaCy's it words",
        "ko": "characters",
        "km": "characters",
    }.items():
        tokenizer = SubwordTokenizer(language, train_subwords(pairs, 80))
        assert counted in bleu.score(translations, ["They wait"], tokenizer)[0].signature


class SpaceTokenizer(WordTokenizer):
    """A tokeniser of one's own."""

    def split(self, sentence):
        return sentence.split()


def test_words_are_what_a_tokeniser_of_your_own_splits():
    tokenizer = SpaceTokenizer("en")
    tokenizer.build_vocab([["they", "wait."]])
    translations = [Translation("they wait.", [], ["they", "wait.", "<eos>"], 0.0, 0.0)]
    assert "lower-cased words by SpaceTokenizer" in bleu.score(translations, ["They wait."], tokenizer)[0].signature
    assert "words between spaces" in WordTokenizer(None).counted


def test_sacrebleu_tokenises_as_suits_the_language(pairs):
    codes = {"ko": "char", "kor": "char", "ja": "char", "jpn": "char", "zh": "zh", "zh_CN": "zh", "cmn": "zh"}
    for language, expected in {**codes, "en": "13a", "xx9": "13a"}.items():
        tokenizer = SubwordTokenizer(language, train_subwords(pairs, 80))
        translations = [Translation("개가 자고 있다", [], ["▁개가", "<eos>"], 0.0, 0.0)]
        assert f"tok:{expected}" in bleu.score(translations, ["개"], tokenizer)[1].signature


def test_case_counts_if_the_tokeniser_keeps_it(pairs):
    translation = [Translation("a dog is sleeping.", [], ["▁x"], 0.0, 0.0)]
    for lower in (True, False):
        tokenizer = SubwordTokenizer("en", train_subwords(pairs, 80, lower), lower)
        ours, sacre = bleu.score(translation, ["A dog is sleeping."], tokenizer)
        assert (sacre.value == pytest.approx(100)) == (ours.value == pytest.approx(100)) == lower
        assert ("case:lc" in sacre.signature) == lower


def test_sacrebleus_tokeniser_matters_where_there_are_no_spaces():
    hypotheses, references = ["今天老师在公园里看书。"], ["今天老师在学校里看书。"]
    assert bleu.sacre_bleu(hypotheses, references).value == pytest.approx(0)  # to 13a, the sentence is one word
    assert bleu.sacre_bleu(hypotheses, references, tokenize="zh").value > 50


def test_different_numbers_of_sentences_are_refused():
    with pytest.raises(ValueError, match="2 hypotheses and 1 references"):
        bleu.by_definition([["a"], ["b"]], [["a"]])
    for measure in (bleu.by_definition, bleu.torchtext_bleu, bleu.sacre_bleu):
        with pytest.raises(ValueError, match="0 hypotheses and 0 references"):
            measure([], [])


def test_counts_add_up_to_the_score_of_any_part_of_the_test_set():
    hypotheses, references = random_corpus(0)
    counts = bleu.sentence_counts(hypotheses, references)
    assert counts.shape == (60, 9)
    for part in (slice(0, 60), slice(10, 30)):
        expected = bleu.by_definition(hypotheses[part], references[part])
        assert bleu.bleu_from_ngram_counts(counts[part].sum(axis=0)) == pytest.approx(expected)
    assert bleu.bleu_from_ngram_counts(counts).shape == (
        60,
    )  # sentence by sentence: 0 where a precision is 0, without a warning
    assert bleu.by_definition([[], ["a"]], [["a"], ["a"]]) == 0.0


def test_the_bootstrap_is_sacrebleus():
    hypotheses, references = random_corpus(1)
    values = bleu.bootstrap(hypotheses, references, samples=400)
    joined = [[" ".join(tokens) for tokens in side] for side in (hypotheses, references)]
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    systems = [("ours", joined[0]), ("itself", joined[0])]
    _, scores = PairedTest(systems, {"BLEU": metric}, [joined[1]], test_type="bs", n_samples=400)()
    theirs = scores["BLEU"][0]
    cut = np.sort(values)[10:-10]
    assert values.shape == (400,)
    assert values.mean() == pytest.approx(theirs.mean)
    assert (cut[-1] - cut[0]) / 2 == pytest.approx(theirs.ci)


def test_the_bootstrap_draws_the_same_sentences_for_every_system():
    hypotheses, references = random_corpus(2)
    reversed_words = [tokens[::-1] for tokens in hypotheses], [tokens[::-1] for tokens in references]
    expected = bleu.bootstrap(hypotheses, references, samples=50)
    assert bleu.bootstrap(*reversed_words, samples=50) == pytest.approx(expected)
    assert bleu.bootstrap(hypotheses, references, samples=50, seed=1) != pytest.approx(expected)


@pytest.mark.parametrize("measure", [bleu.by_definition, bleu.torchtext_bleu, bleu.sacre_bleu])
def test_a_string_in_place_of_a_list_is_refused(measure):
    """A string holds characters, each of which would count as a sentence, or as a token."""
    with pytest.raises(TypeError, match="hypotheses is the string 'a dog'"):
        measure("a dog", "a cat")
    if measure in (bleu.by_definition, bleu.torchtext_bleu):
        with pytest.raises(TypeError, match=r"references\[0\] is 'a dog', expected a list of tokens"):
            measure([["a", "dog"]], ["a dog"])
