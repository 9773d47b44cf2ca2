import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from transformer_lib import Transformer
from transformer_lib.checkpoint import load_model, save_model
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.tokenizers import SOS, UNK, WordTokenizer
from transformer_lib.inference.search import Hypothesis
from transformer_lib.inference.translator import Translator
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit


def test_a_translator_can_be_pickled(trained):
    assert pickle.loads(pickle.dumps(trained))("Ein Hund schläft.") == "a dog is sleeping."


def test_the_default_device_does_not_matter(trained, dataset, tmp_path):
    save_model(tmp_path / "model", trained.model, {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer})
    model = Transformer(trained.model.config)
    translator = Translator.load(tmp_path / "model")
    with torch.device("meta"):  # where there are no numbers
        translation = translator.translate(["Ein Hund schläft."], 2, attention=True)[0]
        assert translation.text == "a dog is sleeping."
        fit(model, dataset, dataset, Recipe(epochs=1, optimizer="sgd"), tmp_path / "run", log=lambda line: None)
    assert load_model(tmp_path / "run").model.output.weight.equal(model.output.weight)


def test_what_was_learnt_by_heart_is_translated(trained, pairs):
    assert trained([pair.src for pair in pairs]) == [pair.tgt.lower() for pair in pairs]
    assert trained("Ein Hund schläft.") == "a dog is sleeping."


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("together", [3, 100])
def test_order_and_batches_do_not_matter(trained, pairs, beam_size, together):
    sentences = [pair.src for pair in pairs]
    expected = {s: trained(s, beam_size=beam_size) for s in sentences}
    shuffled = sentences[::-1] + sentences[:3]
    portions = [shuffled[start : start + together] for start in range(0, len(shuffled), together)]
    translations = [t for portion in portions for t in trained.translate(portion, beam_size)]
    assert [t.text for t in translations] == [expected[s] for s in shuffled]


def threads_of_a_new_thread():
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_several_cores_translate_the_same_and_keep_their_threads(trained, pairs, beam_size):
    sentences = [pair.src for pair in pairs] * 10  # several batches
    expected = trained(sentences, beam_size)
    torch.set_num_threads(4)
    try:
        translations = trained.translate(sentences, beam_size)
        assert threads_of_a_new_thread() == torch.get_num_threads() == 4
        with pytest.raises(ValueError, match="beam_size is 0"):
            trained.translate(sentences, beam_size=0)
        assert threads_of_a_new_thread() == torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(1)
    assert [translation.text for translation in translations] == expected


def test_weights_that_change_between_two_calls_count(trained, pairs):
    translator = Translator(copy.deepcopy(trained.model), trained.src_tokenizer, trained.tgt_tokenizer)
    sentences = [pair.src for pair in pairs]
    assert translator(sentences) == trained(sentences)
    with torch.no_grad():
        translator.model.output.weight.zero_()
        translator.model.output.bias.zero_()
        translator.model.output.bias[trained.tgt_tokenizer.eos_id] = 1.0
    assert set(translator(sentences)) == {""}


def test_impossible_settings_are_refused(trained):
    for settings in ({"beam_size": 0}, {"beam_size": 2, "length_penalty": -3}, {"beam_size": "4"}):
        for sentences in (["Ein Hund schläft."], []):
            with pytest.raises(ValueError, match=r"(beam_size|length_penalty) is (0|-3|'4'), expected"):
                trained.translate(sentences, **settings)


def test_an_n_best_list_is_the_beams_best_first(trained, pairs):
    sentences = [pair.src for pair in pairs]
    for translation, sentence in zip(trained.translate(sentences, beam_size=4, n_best=3), sentences, strict=True):
        found = [translation, *translation.alternatives]
        assert len(found) == 3 and len({tuple(one.tgt_tokens) for one in found}) == 3
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert all(one.src_tokens == trained.source_tokens(sentence) for one in found)
        assert translation.text == trained(sentence, beam_size=4)
    for n_best in (0, 5):
        with pytest.raises(ValueError, match=f"n_best is {n_best}"):
            trained.translate(sentences, beam_size=4, n_best=n_best)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_translations_own_words_as_its_prefix_give_it_again(trained, pairs, beam_size):
    sentences = [pair.src for pair in pairs]
    translations = trained.translate(sentences, beam_size)
    for words in range(5):
        prefixes = [" ".join(translation.text.split()[:words]) for translation in translations]
        again = trained.translate(sentences, beam_size, prefix=prefixes)
        assert [one.tgt_tokens for one in again] == [one.tgt_tokens for one in translations]
        assert [one.log_prob for one in again] == pytest.approx([one.log_prob for one in translations], abs=1e-4)


def test_one_prefix_for_all_is_where_every_text_begins(trained, pairs):
    for translation in trained.translate([pair.src for pair in pairs], 4, prefix="The woman", n_best=2):
        assert [translation.text[:9], translation.alternatives[0].text[:9]] == ["the woman"] * 2
    assert trained.translate([], prefix="the woman") == []


def test_a_prefix_that_the_model_cannot_write_is_refused(trained):
    for prefix, named in (("a zebra", "'zebra'"), (["a"], "list of 1"), (["a", "a", "a"], "list of 3")):
        with pytest.raises(ValueError, match=f"prefix is .*{named}"):
            trained.translate(["Ein Hund.", "Ein Kind."], prefix=prefix)


@pytest.mark.parametrize("threads", [1, 4])
def test_several_threads_may_share_a_translator(trained, pairs, threads):
    """As in a web service: requests of different sizes at the same time, each with PyTorch's threads or with one."""
    requests = [[pair.src for pair in pairs[start:]] * (1 + 9 * (start % 2)) for start in range(len(pairs))] * 2
    expected = [trained(request) for request in requests]
    torch.set_num_threads(threads)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(trained, requests)) == expected
        assert not any(module.training for module in trained.model.modules())
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(("beam_size", "expected"), [(1, 192), (4, 128), (20, 25)])
def test_memory_does_not_grow_with_the_beam(trained, monkeypatch, beam_size, expected):
    most = []

    def search(model, src, *others, **settings):
        most.append(len(src))
        return [[Hypothesis([trained.tgt_tokenizer.eos_id], 0.0, 0.0)]] * len(src)

    monkeypatch.setattr("transformer_lib.inference.translator.beam_search", search)
    trained.translate(["Ein Hund schläft."] * (4 * expected), beam_size)
    assert max(most) == expected


def test_scores_and_tokens(trained):
    (translation,) = trained.translate(["Ein Zebra schläft."])
    assert translation.src_tokens == ["<sos>", "ein", "zebra", "schläft", ".", "<eos>"]  # as written, though unknown
    assert translation.tgt_tokens[-1] == "<eos>"
    assert translation.tokens == translation.tgt_tokens[:-1]
    assert translation.attention is None
    assert translation.log_prob < 0
    assert str(translation) == translation.text
    assert "zebra" not in trained.src_tokenizer.vocab.stoi and UNK not in translation.src_tokens


def test_attention_covers_every_token(trained):
    sentence = "Im Garten liest eine Frau ein Buch."
    (translation,) = trained.translate([sentence], beam_size=3, attention=True)
    given = [
        trained.tgt_tokenizer.ids([SOS, *translation.tokens])
    ]  # from <sos> on: a row for what it was predicted from
    maps = trained.model.attention_maps(torch.tensor([trained.src_tokenizer.encode(sentence)]), torch.tensor(given))
    torch.testing.assert_close(translation.attention, maps)
    src, tgt = len(translation.src_tokens), len(translation.tgt_tokens)
    layers, heads = trained.model.config.num_layers, trained.model.config.num_heads
    assert [m.shape for m in translation.attention.encoder] == [(1, heads, src, src)] * layers
    assert [m.shape for m in translation.attention.decoder] == [(1, heads, tgt, tgt)] * layers
    assert [m.shape for m in translation.attention.cross] == [(1, heads, tgt, src)] * layers


def test_what_a_notebook_shows_of_a_translation_and_a_corpus_is_short(trained, pairs):
    plain, looked_into = (trained.translate([pairs[0].src], attention=attention)[0] for attention in (False, True))
    assert repr(looked_into) == repr(plain) and len(repr(plain)) < 400
    assert looked_into == plain
    assert len(repr(load_corpus(pairs * 1000))) < 200


def test_a_sentence_that_cannot_be_translated_is_named(trained):
    with pytest.raises(ValueError, match="sentence 2: sentence is '  ', expected at least one word"):
        trained.translate(["Ein Hund.", "  "])
    with pytest.raises(ValueError, match="sentence 1: sentence has 201 tokens, expected at most 100"):
        trained("Hund " * 199)
    with pytest.raises(TypeError, match="sentences is one string"):
        trained.translate("Ein Hund.")


def between_spaces(trained):
    """A translator whose tokens lie between spaces, so that anybody can type those that it reads as its own."""
    tokenizers = WordTokenizer(None), WordTokenizer(None)
    for tokenizer, vocab in zip(tokenizers, (trained.src_tokenizer.vocab, trained.tgt_tokenizer.vocab), strict=True):
        tokenizer.vocab = vocab
    return Translator(trained.model, *tokenizers)


def test_a_line_that_names_a_special_token_is_refused_by_its_number_and_harms_no_other(trained):
    translator, line = between_spaces(trained), "ein hund schläft ."
    for special in ("<pad>", "<sos>", "<eos>"):
        for typed in (f"{special} hund", f"ein {special} hund", f"ein hund {special}", special):
            with pytest.raises(ValueError, match=rf"sentence 2: .*{special}"):
                translator([line, typed, line])
    assert translator([line, "ein <unk> schläft .", line])[::2] == [translator(line)] * 2
    assert trained("Ein <pad> schläft.")  # spaCy makes three tokens of it


def test_no_sentences_give_no_translations(trained):
    assert trained([]) == []


def test_translating_changes_nothing(trained):
    before = {name: weights.clone() for name, weights in trained.model.state_dict().items()}
    vocabulary_size = len(trained.src_tokenizer.vocab.stoi)
    trained.translate(["Ein völlig unbekannter Satz."], attention=True)
    assert not trained.model.training
    assert all(weights.equal(before[name]) for name, weights in trained.model.state_dict().items())
    assert len(trained.src_tokenizer.vocab.stoi) == vocabulary_size


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_gives_the_same_translations(trained, pairs):
    on_gpu = Translator(copy.deepcopy(trained.model).cuda(), trained.src_tokenizer, trained.tgt_tokenizer)
    assert on_gpu([pair.src for pair in pairs], beam_size=4) == [pair.tgt.lower() for pair in pairs]


def test_a_translator_searches_as_it_was_told_unless_told_otherwise(trained, pairs):
    translator = Translator(
        trained.model, trained.src_tokenizer, trained.tgt_tokenizer, beam_size=3, length_penalty=1.5
    )
    sentences = [pair.src for pair in pairs]
    (own, *_), (asked, *_) = (
        translator.translate(sentences),
        trained.translate(sentences, beam_size=3, length_penalty=1.5),
    )
    assert own.score == asked.score  # a greedy search's is the plain log-probability
    assert translator.translate(sentences, 1)[0].score == trained.translate(sentences)[0].score != own.score


@pytest.mark.parametrize("beam_size", [1, 4])
def test_in_bfloat16_what_was_learnt_by_heart_is_translated_the_same(trained, pairs, beam_size):
    lower = copy.deepcopy(trained)
    lower.model.to(torch.bfloat16)
    sentences = [pair.src for pair in pairs]
    translations = lower.translate(sentences, beam_size)
    assert [translation.text for translation in translations] == trained(sentences, beam_size)
    exact = [translation.log_prob for translation in trained.translate(sentences, beam_size)]
    assert [translation.log_prob for translation in translations] == pytest.approx(exact, abs=0.05)
    assert [translation.log_prob for translation in translations] != exact  # it did compute in another precision


def test_a_translator_made_before_training_translates_without_dropout_while_the_model_trains(trained, pairs):
    model = copy.deepcopy(trained.model)
    translator = Translator(model, trained.src_tokenizer, trained.tgt_tokenizer)
    model.train()
    sentences = [pair.src for pair in pairs]
    assert [t.log_prob for t in translator.translate(sentences)] == [t.log_prob for t in trained.translate(sentences)]
    assert model.training and all(module.training for module in model.modules())
