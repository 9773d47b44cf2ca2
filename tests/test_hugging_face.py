"""Hugging Face's ``generate``, from a folder that ``from_pretrained`` opens, writes what this library writes."""

import importlib.util
import io
import random
import subprocess
import sys

import pytest
import sentencepiece
import torch
from conftest import PAIRS
from own_models import ScaledLogits
from test_ctranslate2 import make_translator

from transformer_lib import Transformer, TransformerConfig, Translator, load_corpus
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import Vocabulary
from transformer_lib.interop.hugging_face import to_hugging_face

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        importlib.util.find_spec("transformers") is None,
        reason="transformers is not installed: pip install '.[export]'",
    ),
]
TIED = {"tie_embeddings": True, "positions": "sinusoidal"}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")


def opened(folder):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model, loaded = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loaded.values())  # missing, unexpected, mismatched
    return model, AutoTokenizer.from_pretrained(folder)


def their_logits(model, src, tgt):
    with torch.no_grad():
        return model(input_ids=src, attention_mask=(src != 1).long(), decoder_input_ids=tgt).logits


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_first": True},
        {"norm_first": True, "activation": "gelu"},
        {"norm_first": False},
        {"norm_first": False, "activation": "silu"},
    ],
    ids=["pre-LN", "pre-LN, GELU", "post-LN", "post-LN, SiLU"],
)
def test_logits_and_tokens_are_the_same(tokenizers, tmp_path, changes):
    translator = make_translator(tokenizers, **TIED, **changes)
    to_hugging_face(translator, tmp_path / "theirs")
    model, tokenizer = opened(tmp_path / "theirs")
    sentences = [pair.src for pair in PAIRS]
    words = [" ".join(translator.src_tokenizer.tokenize(sentence)) for sentence in sentences]
    batch = tokenizer(words, return_tensors="pt", padding=True)
    expected = [translator.src_tokenizer.encode(sentence) for sentence in sentences]
    assert [row[row != 1].tolist() for row in batch["input_ids"]] == expected

    tgt = torch.tensor([[2, 4, 7, 5]] * len(sentences))
    with torch.no_grad():
        ours = translator.model(batch["input_ids"], tgt)
    torch.testing.assert_close(their_logits(model, batch["input_ids"], tgt), ours, atol=1e-4, rtol=1e-4)
    written = model.generate(**batch, num_beams=1, max_length=20)
    tokens = [[token for token in row if token not in (1, 2, 3)] for row in written.tolist()]
    itos = translator.tgt_tokenizer.vocab.itos
    theirs = [[itos[token] for token in row][:18] for row in tokens]
    assert theirs == [
        [t for t in found.tgt_tokens if t != "<eos>"][:18] for found in translator.translate(sentences, beam_size=1)
    ]


def test_what_they_save_again_is_the_same_model(tokenizers, tmp_path):
    for name, norm_first in (("pegasus", True), ("marian", False)):
        translator = make_translator(tokenizers, **TIED, norm_first=norm_first)
        to_hugging_face(translator, tmp_path / name)
        model, _ = opened(tmp_path / name)
        model.save_pretrained(tmp_path / f"{name} again")
        from transformers import AutoModelForSeq2SeqLM

        again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / f"{name} again")
        src, tgt = torch.tensor([[2, 5, 6, 3]]), torch.tensor([[2, 9]])
        torch.testing.assert_close(their_logits(again, src, tgt), their_logits(model, src, tgt))


@pytest.mark.slow  # imports transformers once more; in this process, the first test compares what both write
def test_three_lines_in_a_fresh_process_translate_as_the_included_translator_does(tmp_path):
    translator = Translator.load()
    to_hugging_face(translator, tmp_path / "theirs")
    sentences = [pair.src for pair in load_corpus("sample")["test"][:20]]
    lines = f"""
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("theirs"), AutoTokenizer.from_pretrained("theirs")
ids = model.generate(**tokenizer({sentences!r}, return_tensors="pt", padding=True), num_beams=1)
print(*tokenizer.batch_decode(ids, skip_special_tokens=True), sep="\\n")
import sys; assert "transformer_lib" not in sys.modules
"""
    found = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == translator(sentences, beam_size=1)


def test_their_tokeniser_cuts_as_ours_does_whatever_it_is_given(tmp_path):
    pairs = load_corpus("sample")["train"][:500]
    texts = [text for pair in pairs for text in pair]
    texts += [
        "Ein <sos> Mann </s> läuft",
        "a\u0308  ö\u200bü",
        "\ufeffHund",
        "漢字 ☃☃ und ŒUVRE",
        "Straße\tSTRASSE",
    ]
    for lower in (True, False):
        ours = SubwordTokenizer("de", train_subwords(pairs, 400, lower=lower), lower=lower)
        torch.manual_seed(1)
        sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "num_layers": 1}
        model = Transformer(TransformerConfig(400, 400, **sizes, **TIED))
        to_hugging_face(Translator(model, ours, ours), tmp_path / str(lower))
        _, theirs = opened(tmp_path / str(lower))
        for text in texts:
            assert theirs(text)["input_ids"] == ours.encode(text), text
            if 0 not in ours.encode(text):  # <unk>, which sentencepiece writes as ⁇
                assert theirs.decode(ours.encode(text), skip_special_tokens=True) == ours.join(ours.tokenize(text))


def test_their_tokeniser_lower_cases_as_ours_does_also_a_greek_word_in_capitals(tmp_path):
    """A capital sigma is another small letter where it ends a word, as far as signs and accents go."""
    draw = random.Random(0)
    texts = ["".join(draw.choices("ΣΣΣΑας .'’·:\u0301\u00adA1-٠ʰ\u0345İß", k=draw.randint(1, 9))) for _ in range(2000)]
    texts = [text for text in texts if text.strip(" \u00ad")] + ["ΟΔΟΣ ΣΑΣ Σ", "ΕΊΝΑΙ Ο ΣΚΎΛΟΣ."]
    pairs = [(text, text) for text in texts]
    ours = SubwordTokenizer("el", train_subwords(pairs, 60))
    model = Transformer(TransformerConfig(60, 60, d_model=16, num_heads=4, d_ff=32, num_layers=1, **TIED))
    to_hugging_face(Translator(model, ours, ours), tmp_path / "theirs")
    _, theirs = opened(tmp_path / "theirs")
    assert theirs("ΟΔΟΣ")["input_ids"] == ours.encode("ΟΔΟΣ") == ours.encode("οδος") != ours.encode("οδοσ")
    assert [text for text in texts if theirs(text)["input_ids"] != ours.encode(text)] == []


def test_special_tokens_may_have_any_ids(tmp_path):
    """As those of a sentencepiece model that somebody else has trained."""
    pairs, pieces = load_corpus("sample")["train"][:500], io.BytesIO()
    ids = {"unk_id": 9, "pad_id": 0, "bos_id": 20, "eos_id": 5}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.lower() for pair in pairs for text in pair]),
        normalization_rule_name="identity",
        model_writer=pieces,
        model_type="bpe",
        vocab_size=400,
        character_coverage=1.0,
        **ids,
        **{"unk_piece": "<unk>", "pad_piece": "<pad>", "bos_piece": "<sos>", "eos_piece": "<eos>"},
        minloglevel=2,
    )
    ours = SubwordTokenizer("de", pieces.getvalue())
    assert [ours.vocab[token] for token in ("<unk>", "<pad>", "<sos>", "<eos>")] == [*ids.values()]
    config = TransformerConfig(400, 400, d_model=16, num_heads=4, d_ff=32, num_layers=1, pad_id=0, **TIED)
    translator = Translator(Transformer(config), ours, ours)
    to_hugging_face(translator, tmp_path / "theirs")
    model, theirs = opened(tmp_path / "theirs")
    sentences = [pair.src for pair in pairs]
    assert theirs(sentences)["input_ids"] == [ours.encode(sentence) for sentence in sentences]
    assert theirs("☃")["input_ids"][-2] == 9
    batch = theirs(sentences[:4], return_tensors="pt", padding=True)
    written = model.generate(**batch, num_beams=1, max_length=12)
    expected = [translation.text for translation in translator.translate(sentences[:4], beam_size=1)]
    found = theirs.batch_decode(written, skip_special_tokens=True)
    assert all(text.startswith(start) for text, start in zip(expected, found, strict=True))


def test_two_vocabularies_of_one_size_are_not_taken_for_one(tokenizers, tmp_path):
    translator = make_translator(tokenizers, **TIED)
    words = translator.tgt_tokenizer.vocab.itos
    translator.tgt_tokenizer.vocab = Vocabulary([*words[:4], *reversed(words[4:])])
    with pytest.raises(ValueError, match="two vocabularies"):
        to_hugging_face(translator, tmp_path / "theirs")


def test_what_has_no_counterpart_is_named(tokenizers, tmp_path):
    for changes, name in (
        ({**TIED, "positions": "learned"}, "positions='learned'"),
        ({"positions": "sinusoidal", "norm_first": True}, "tie_embeddings=False"),
        ({**TIED, "final_norm": True}, "final_norm=True"),
    ):
        with pytest.raises(ValueError, match=name):
            to_hugging_face(make_translator(tokenizers, **changes), tmp_path / "theirs")
    with pytest.raises(TypeError, match="ScaledLogits"):
        to_hugging_face(make_translator(tokenizers, ScaledLogits, **TIED), tmp_path / "theirs")
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="holds something"):
        to_hugging_face(make_translator(tokenizers, **TIED), tmp_path)


def test_a_failure_leaves_nothing(tokenizers, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr("transformer_lib.interop.hugging_face.save_file", fail)  # the last that is written
    with pytest.raises(OSError, match="no space left"):
        to_hugging_face(make_translator(tokenizers, **TIED), tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
