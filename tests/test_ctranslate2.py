"""CTranslate2 against this library: it writes the same tokens with the same probabilities, from the same weights."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from conftest import PAIRS, cookbook
from own_models import ScaledLogits
from torch import nn
from weights import shake

from transformer_lib import Transformer, TransformerConfig, Translator, load_corpus
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.interop.ctranslate2 import to_ctranslate2
from transformer_lib.model.embeddings import POSITIONS

SENTENCES = [pair.src for pair in PAIRS]
needs_ctranslate2 = pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None,
    reason="ctranslate2 is not installed: pip install '.[export]'",
)


def make_translator(tokenizers, model_class=Transformer, **changes):
    """A random model whose outputs are far from each other; both sides have one vocabulary if it is tied."""
    src, tgt = tokenizers
    if changes.get("tie_embeddings"):
        joint = sorted({*src.vocab.itos, *tgt.vocab.itos} - {*WordTokenizer.specials})
        for tokenizer in tokenizers:
            tokenizer.build_vocab([joint])
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "num_layers": 2, "max_len": 20}
    torch.manual_seed(1)
    model = model_class(TransformerConfig(len(src.vocab), len(tgt.vocab), **sizes, **changes))
    shake(model)
    with torch.no_grad():
        model.output.bias[tgt.eos_id] -= 1.0  # so that translations have some length
    return Translator(model, src, tgt)


def greedily(translator, folder, sentences=SENTENCES, **options):
    """CTranslate2's tokens and their log-probabilities."""
    import ctranslate2

    tokens = [translator.src_tokenizer.tokenize(sentence) for sentence in sentences]
    options = {"beam_size": 1, "length_penalty": 0, "min_decoding_length": 0, "max_decoding_length": 20} | options
    results = ctranslate2.Translator(str(folder), intra_threads=1).translate_batch(
        tokens, return_end_token=True, return_scores=True, max_input_length=0, **options
    )
    return [result.hypotheses[0] for result in results], [result.scores[0] for result in results]


def assert_equal_translations(translator, folder):
    expected = translator.translate(SENTENCES, beam_size=1)
    assert sum(len(one.tgt_tokens) for one in expected) > 5 * len(SENTENCES)
    tokens, log_probs = greedily(translator, folder)
    assert tokens == [one.tgt_tokens for one in expected]
    assert log_probs == pytest.approx([one.log_prob for one in expected], abs=1e-4)


NORMS = {"post-LN": {}, "pre-LN": {"norm_first": True}, "post-LN, final norms": {"final_norm": True}}


@needs_ctranslate2
@pytest.mark.parametrize("tie_embeddings", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("norms", NORMS.values(), ids=NORMS)
def test_every_configuration_writes_the_same_tokens(tokenizers, tmp_path, norms, tie_embeddings):
    for positions, activation in (("learned", "relu"), ("sinusoidal", "gelu"), ("learned", "silu")):
        changes = {"positions": positions, "activation": activation, "tie_embeddings": tie_embeddings}
        translator = make_translator(tokenizers, **norms, **changes)
        to_ctranslate2(translator, tmp_path / activation)
        assert_equal_translations(translator, tmp_path / activation)


class Slopes(nn.Module):
    """Positions of one's own, made from what `POSITIONS` are made from, without a table."""

    def __init__(self, max_len, d_model):
        super().__init__()
        self.slope = nn.Parameter(torch.linspace(-1, 1, d_model))

    def forward(self, length):
        return torch.arange(length)[:, None] * self.slope


@needs_ctranslate2
def test_positions_of_ones_own_are_exported_too(tokenizers, tmp_path, monkeypatch):
    monkeypatch.setitem(POSITIONS, "slopes", Slopes)
    translator = make_translator(tokenizers, positions="slopes")
    to_ctranslate2(translator, tmp_path / "engine")
    assert_equal_translations(translator, tmp_path / "engine")


@needs_ctranslate2
def test_padding_and_the_start_are_never_written_and_take_no_probability(tokenizers, tmp_path):
    translator = make_translator(tokenizers)
    with torch.no_grad():
        translator.model.output.bias[[1, 2]] = 50.0  # <pad> and <sos>
    to_ctranslate2(translator, tmp_path / "engine")
    assert_equal_translations(translator, tmp_path / "engine")


@needs_ctranslate2
def test_a_trained_model_of_words_writes_what_it_learnt(trained, tmp_path):
    to_ctranslate2(trained, tmp_path / "engine")
    tokens, _ = greedily(trained, tmp_path / "engine", max_decoding_length=40)
    assert [trained.tgt_tokenizer.join(one[:-1]) for one in tokens] == [pair.tgt.lower() for pair in PAIRS]


@needs_ctranslate2
def test_the_cookbooks_lines_translate_as_the_shipped_model_does(tmp_path, monkeypatch):
    translator = Translator.load()
    to_ctranslate2(translator, tmp_path / "ct2")
    sentences = [pair.src for pair in load_corpus("sample")["test"][:20]]
    [code] = [code for code in cookbook("To CTranslate2") if "translate_batch" in code]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(re.sub("^sentences = .*", f"sentences = {sentences}", code, count=1, flags=re.MULTILINE), names)
    assert names["texts"] == translator(sentences, beam_size=1)


@needs_ctranslate2
def test_a_sentence_with_too_many_tokens_is_refused_and_not_cut_off(tokenizers, tmp_path):
    translator = make_translator(tokenizers, positions="sinusoidal")
    to_ctranslate2(translator, tmp_path / "engine")
    fits, too_long = " ".join(["Hund"] * 18), " ".join(["Hund"] * 19)  # with <sos> and <eos>, 20 and 21
    greedily(translator, tmp_path / "engine", [fits])
    with pytest.raises(RuntimeError, match="position 20"):
        greedily(translator, tmp_path / "engine", [too_long])


@needs_ctranslate2
@pytest.mark.parametrize("quantization", ["int8", "int16", "float16"])
def test_fewer_bits_take_less_space_and_leave_the_model_alone(tokenizers, tmp_path, quantization):
    translator = make_translator(tokenizers)
    before = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    to_ctranslate2(translator, tmp_path / "full")
    to_ctranslate2(translator, tmp_path / "fewer", quantization)
    full, fewer = ((tmp_path / name / "model.bin").stat().st_size for name in ("full", "fewer"))
    assert fewer < 0.75 * full
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    tokens, _ = greedily(translator, tmp_path / "fewer")
    assert all(token in translator.tgt_tokenizer.vocab for sentence in tokens for token in sentence)


@needs_ctranslate2
def test_a_weight_that_half_precision_lacks_is_refused_and_not_written_as_infinite(tokenizers, tmp_path):
    translator = make_translator(tokenizers)
    with torch.no_grad():
        translator.model.encoder.layers[0].feed_forward.linear1.weight[0, 0] = 70_000.0
    for quantization in ("float16", "int8_float16"):
        with pytest.raises(ValueError, match=f"{quantization}.* 70,000"):
            to_ctranslate2(translator, tmp_path / "engine", quantization)
    assert not list(tmp_path.iterdir())
    for quantization in ("float32", "bfloat16", "int8", "int8_bfloat16"):
        to_ctranslate2(translator, tmp_path / quantization, quantization)


class OtherOrder(WordTokenizer):
    specials = ("<pad>", "<sos>", "<eos>", "<unk>")  # as in the Annotated Transformer


@needs_ctranslate2
def test_special_tokens_may_have_any_ids(tmp_path):
    src, tgt = OtherOrder("de"), OtherOrder("en")
    build_vocabularies(make_dataset(PAIRS, src, tgt), min_freq=1)
    translator = make_translator((src, tgt), pad_id=0)
    to_ctranslate2(translator, tmp_path / "engine")
    assert_equal_translations(translator, tmp_path / "engine")


@needs_ctranslate2
def test_a_model_in_bfloat16_is_written_as_it_is(tokenizers, tmp_path):
    translator = make_translator(tokenizers)
    translator.model.bfloat16()
    to_ctranslate2(translator, tmp_path / "engine")
    translator.model.float()  # the same numbers
    assert_equal_translations(translator, tmp_path / "engine")


class LowRank(nn.Linear):
    """What LoRA puts in a linear layer's place."""


@needs_ctranslate2
def test_what_computes_something_else_is_refused(tokenizers, tmp_path):
    with pytest.raises(TypeError, match="model is a ScaledLogits"):
        to_ctranslate2(make_translator(tokenizers, ScaledLogits), tmp_path / "engine")
    for name, part in (
        ("encoder.layers.1.self_attn.q_proj", LowRank(16, 16)),
        ("decoder.norm", nn.LayerNorm(16)),
    ):
        translator = make_translator(tokenizers)
        translator.model.set_submodule(name, part)
        with pytest.raises(TypeError, match="no part replaced"):
            to_ctranslate2(translator, tmp_path / "engine")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"int4 .*int8_float16"):
        to_ctranslate2(make_translator(tokenizers), tmp_path / "engine", "int4")


@needs_ctranslate2
def test_an_empty_folder_is_as_good_as_none(tokenizers, tmp_path):
    (tmp_path / "engine").mkdir()
    translator = make_translator(tokenizers)
    to_ctranslate2(translator, tmp_path / "engine")
    assert_equal_translations(translator, tmp_path / "engine")


@needs_ctranslate2
def test_a_model_of_another_converter_is_left_alone(tokenizers, tmp_path):
    (tmp_path / "engine").mkdir()
    for name in ("config.json", "model.bin"):
        (tmp_path / "engine" / name).write_text("{}")
    with pytest.raises(FileExistsError, match="engine holds something, expected a new or empty folder"):
        to_ctranslate2(make_translator(tokenizers), tmp_path / "engine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="file"):
        to_ctranslate2(make_translator(tokenizers), tmp_path / "file")


@needs_ctranslate2
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_nothing(tokenizers, tmp_path, monkeypatch, error):
    original = Path.rename

    def fail(path, *arguments):
        if path.is_relative_to(tmp_path):
            raise error("no space left")
        return original(path, *arguments)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(error, match="no space left"):
        to_ctranslate2(make_translator(tokenizers), tmp_path / "engine", "int8")
    assert not (tmp_path / "engine").exists()  # or the next call would be refused
