import errno
import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from conftest import cookbook
from own_models import RelativeTransformer, ScaledLogits, SwiGLUTransformer
from packaging.version import Version
from weights import shake

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.data.batches import build_vocabularies, make_dataset, padded_ids
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.fast.precision import in_precision
from transformer_lib.inference.translator import Translator
from transformer_lib.interop import onnx
from transformer_lib.interop.onnx import to_onnx

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
needs_onnx = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PACKAGES)) or Version(torch.__version__) < Version("2.11"),
    reason="ONNX is not installed (pip install '.[export]'), or PyTorch too old: 2.5 cannot export batches of any size",
)


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    to_onnx(trained, folder)
    return folder


@pytest.fixture
def graphs(exported, monkeypatch):
    """Skip the exporter, which takes seconds: whatever the model is, these are the graphs of ``trained``."""
    made = [(exported / name).read_bytes() for name in ("encoder.onnx", "decoder.onnx")]
    monkeypatch.setattr(onnx, "_export", lambda model: made)


def sessions(folder):
    import onnxruntime

    return [onnxruntime.InferenceSession(folder / name) for name in ("encoder.onnx", "decoder.onnx")]


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def tiny_translator(model_class=Transformer, subwords=False, **changes):
    pairs = load_corpus("sample")["train"][:200]
    if subwords:
        model = train_subwords(pairs, 200)
        tokenizers = SubwordTokenizer("de", model), SubwordTokenizer("en", model)
    else:
        tokenizers = WordTokenizer("de"), WordTokenizer("en")
        build_vocabularies(make_dataset(pairs, *tokenizers))
    sizes = [len(tokenizer.vocab) for tokenizer in tokenizers]
    config = {"d_model": 16, "num_heads": 2, "d_ff": 24, "num_layers": 2, "max_len": 12}
    model = model_class(TransformerConfig(*sizes, **config | changes))
    shake(model)
    return Translator(model, *tokenizers, beam_size=3)


class OwnParts(SwiGLUTransformer):
    """With a feed-forward network of its own, and a norm after the target's embedding."""

    def __init__(self, config):
        super().__init__(config)
        self.tgt_embedding.dropout = torch.nn.LayerNorm(config.d_model)


# what the graphs compute


@needs_onnx
@pytest.mark.parametrize(
    ("model_class", "changes"),
    [
        (
            Transformer,
            {
                "subwords": True,
                "tie_embeddings": True,
                "norm_first": True,
                "positions": "sinusoidal",
                "activation": "gelu",
            },
        ),
        (OwnParts, {"num_layers": 1}),  # and as the tutorials have it: post-LN, learned positions, untied
    ],
    ids=["tied", "own parts"],
)
def test_logits_are_the_models_at_every_position_and_the_model_is_left_alone(model_class, changes, tmp_path, capfd):
    torch.manual_seed(0)
    translator = tiny_translator(model_class, **changes)
    model = translator.model.train()
    assert to_onnx(translator, tmp_path / "export") < 1e-4
    assert capfd.readouterr() == ("", "")  # the exporter's remarks on itself are nobody's concern
    assert model.training and all(parameter.requires_grad for parameter in model.parameters())

    encoder, decoder = sessions(tmp_path / "export")
    model.eval()
    for batch in (1, 4):
        src, tgt = torch.randint(4, 40, (batch, 12)), torch.randint(4, 40, (batch, 12))
        src[1:, 7:] = model.config.pad_id
        names = [output.name for output in encoder.get_outputs()]
        memory = dict(zip(names, encoder.run(None, {"src_ids": src.numpy()}), strict=True))
        inputs = {one.name: one.shape for one in decoder.get_inputs()}
        assert inputs["past_key_0"] == ["batch", 2, "past_len", 8] and inputs["cross_key_0"][2] == "src_len"
        past = {name: np.zeros((batch, 2, 0, 8), np.float32) for name in inputs if name.startswith("past_")}
        for i in range(12):  # to the last position that there is
            logits, *present = decoder.run(None, {"tgt_ids": tgt[:, i : i + 1].numpy(), **memory, **past})
            past = dict(zip(past, present, strict=True))
            torch.testing.assert_close(torch.from_numpy(logits), model(src, tgt[:, : i + 1])[:, -1], atol=1e-4, rtol=0)


@needs_onnx
def test_the_cookbooks_loop_translates_as_the_library_does(exported, trained):
    [code] = [code for code in cookbook("To ONNX") if "def greedy_search" in code]
    assert set(re.findall(r"^import (\w+)", code, re.MULTILINE)) == {"json", "numpy", "onnxruntime"}
    sentences = [pair.src for pair in load_corpus("sample")["test"]]
    sentences += ["Ein Hund schläft.", "Im Garten liest eine Frau ein Buch."]
    translations = trained.translate(sentences, beam_size=1)
    src_ids = padded_ids(trained.src_tokenizer, [one.src_tokens[1:-1] for one in translations]).numpy()
    names = {}
    exec(code, names)
    texts = []
    for ids, one in zip(names["greedy_search"](exported, src_ids)[:, 1:].tolist(), translations, strict=True):
        texts.append(trained.tgt_tokenizer.join(trained.tgt_tokenizer.decode(ids[: len(one.src_tokens) + 50])))
    assert texts == [one.text for one in translations]
    assert texts[-2] == "a dog is sleeping." and len(set(texts)) > 10


# the other files


@needs_onnx
def test_the_folder_has_what_tokenising_needs(exported, trained):
    config = json.loads((exported / "config.json").read_text(encoding="utf-8"))
    assert config["search"] == {"beam_size": 1, "length_penalty": 0.6} and config["max_len"] == 100
    src, tgt = config["tokenizers"]["src"], config["tokenizers"]["tgt"]
    assert [tgt["tokens"][tgt[name]] for name in ("pad_id", "sos_id", "eos_id")] == ["<pad>", "<sos>", "<eos>"]
    sentence = "Eine Katze liest 3 Bücher."
    assert WordTokenizer.from_dict(src).encode(sentence) == trained.src_tokenizer.encode(sentence)


@needs_onnx
def test_sentencepiece_alone_reads_the_subword_models(graphs, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "_difference", lambda *arguments: 0.0)  # the graphs are another model's
    translator = tiny_translator(subwords=True)
    to_onnx(translator, tmp_path / "export")
    config = json.loads((tmp_path / "export" / "config.json").read_text(encoding="utf-8"))["tokenizers"]["src"]
    assert "subwords" not in config and config["lower"]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "export" / config["sentencepiece"]))
    sentence = "Ein Hund schläft im Garten."
    ids = translator.src_tokenizer.encode(sentence)
    assert processor.encode(sentence.lower(), add_bos=True, add_eos=True) == ids
    assert processor.decode(ids) == sentence.lower()


# what is refused


@pytest.mark.parametrize("model_class", [ScaledLogits, RelativeTransformer])
def test_a_decoder_of_ones_own_is_refused(model_class, tmp_path):
    with pytest.raises(TypeError, match=f"model is a {model_class.__name__} whose decoder, .*, is not this library's"):
        to_onnx(tiny_translator(model_class), tmp_path / "export")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_other_precisions_are_refused(precision, tmp_path, with_bfloat16):
    translator = tiny_translator()
    translator.model = in_precision(translator.model, precision)
    with pytest.raises(ValueError, match=r"expected torch\.float32 and a Linear"):
        to_onnx(translator, tmp_path / "export")


def test_a_model_with_too_few_positions_to_be_tried_out_is_refused(tmp_path):
    with pytest.raises(ValueError, match="max_len is 4, expected at least 5"):
        to_onnx(tiny_translator(max_len=4), tmp_path / "export")


class Undecided(Transformer):
    """An encoder whose way depends on what it reads, so that no one graph can hold it."""

    def encode(self, src):
        memory, mask = super().encode(src)
        return (memory if memory.sum() > 0 else -memory), mask


@needs_onnx
def test_an_encoder_that_no_graph_can_hold_is_refused(tmp_path, capfd):
    with pytest.raises(
        ValueError, match=r"model is a Undecided, which ONNX cannot hold, or this PyTorch cannot export: \w+"
    ):
        to_onnx(tiny_translator(Undecided), tmp_path / "export")
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


@needs_onnx
@pytest.mark.parametrize("by", [0.1, torch.nan])
def test_graphs_that_compute_something_else_are_not_written(by, graphs, trained, tmp_path):
    weight = trained.model.decoder.layers[1].cross_attn.v_proj.weight
    before = weight.detach().clone()
    try:
        weight.data[3, 4] += by
        with pytest.raises(RuntimeError, match="ONNX Runtime's logits differ from PyTorch's by"):
            to_onnx(trained, tmp_path / "export")
    finally:
        weight.data.copy_(before)
    assert not list(tmp_path.iterdir())


def test_without_the_packages_the_error_names_the_extra(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="pip install onnx onnxruntime onnxscript"):
        to_onnx(trained, tmp_path / "export")


# the folder


@pytest.mark.parametrize("name", ["notes.txt", "config.json"])
def test_a_folder_that_holds_something_else_is_left_alone(name, trained, tmp_path):
    (tmp_path / name).write_text("{}")
    with pytest.raises(FileExistsError, match="exists, expected a new or empty folder"):
        to_onnx(trained, tmp_path)
    assert files(tmp_path) == {name: b"{}"}


@needs_onnx
def test_a_disk_that_fills_up_midway_leaves_nothing(graphs, trained, tmp_path, monkeypatch):
    write_bytes = Path.write_bytes

    def write(path, content):
        if path.name == "decoder.onnx":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(OSError, match="No space left on device"):
        to_onnx(trained, tmp_path / "export")
    assert not list(tmp_path.iterdir())
