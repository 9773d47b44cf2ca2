import dataclasses
import json
import os
import subprocess
import sys
import threading

import pytest
import safetensors.torch
import torch

from transformer_lib import Transformer, checkpoint
from transformer_lib.checkpoint import load_model, save_model
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.files import CheckpointError, load_training_state, replace_file, save_training_state
from transformer_lib.inference.translator import Translator


def fields_of(translator):
    return {"src": translator.src_tokenizer, "tgt": translator.tgt_tokenizer}


@pytest.fixture
def model_file(tmp_path, trained):
    path = tmp_path / "model.safetensors"
    save_model(path, trained.model, fields_of(trained), {"corpus": "tiny"})
    return path


def test_a_model_comes_back_as_it_was(model_file, trained):
    saved = load_model(model_file)
    assert saved.model.config == trained.model.config
    assert not saved.model.training
    assert saved.notes == {"corpus": "tiny"}
    for name, weights in trained.model.state_dict().items():
        assert saved.model.state_dict()[name].equal(weights), name
    assert saved.tokenizers["src"].vocab.itos == trained.src_tokenizer.vocab.itos
    assert load_model(model_file.parent).model.config == trained.model.config  # the folder will do


def test_another_process_gives_the_same_translations(model_file, trained, pairs):
    sentences = [pair.src for pair in pairs]
    code = (
        "import json, sys; from transformer_lib.inference.translator import Translator; "
        "print(json.dumps(Translator.load(sys.argv[1])(json.loads(sys.argv[2]), beam_size=3)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(model_file), json.dumps(sentences)], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == trained(sentences, beam_size=3) == [pair.tgt.lower() for pair in pairs]


def test_tied_weights_are_stored_once_and_tied_again(tmp_path, fields, tiny_config):
    src_tokenizer, tgt_tokenizer = fields
    tgt_tokenizer.vocab = src_tokenizer.vocab
    config = dataclasses.replace(tiny_config, tie_embeddings=True, tgt_vocab_size=tiny_config.src_vocab_size)
    model = Transformer(config)
    save_model(tmp_path / "tied", model, {"src": src_tokenizer, "tgt": tgt_tokenizer})
    matrix = model.output.weight
    assert sum(t.shape == matrix.shape for t in safetensors.torch.load_file(tmp_path / "tied").values()) == 1
    loaded = load_model(tmp_path / "tied").model
    assert loaded.output.weight is loaded.src_embedding.tokens.table.weight
    assert loaded.output.weight.equal(matrix)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_model_is_refused(model_file, kept):
    content = model_file.read_bytes()
    model_file.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(CheckpointError, match="is not a complete safetensors file"):
        load_model(model_file)


def rewritten(path, change_tensors=None, change_metadata=None):
    with safetensors.safe_open(path, "pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if change_tensors:
        change_tensors(tensors)
    if change_metadata:
        change_metadata(metadata)
    path.write_bytes(safetensors.torch.save(tensors, metadata))


def set_config(metadata, **values):
    metadata["config"] = json.dumps({**json.loads(metadata["config"]), **values})


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        (None, lambda m: m.update(format="pt"), "says format 'pt', expected one of 'transformer_lib model, version 1'"),
        (None, lambda m: m.pop("config"), "does not hold a model that fits together .*config"),
        (None, lambda m: m.update(config="{"), "does not hold a model that fits together"),
        (None, lambda m: set_config(m, d_ff=128), r"shape \[32, 64\], expected \[32, 128\]"),
        (
            None,
            lambda m: set_config(m, tgt_vocab_size=9999),
            "tgt_tokenizer has .* types, but .*tgt_vocab_size is 9999",
        ),
        (None, lambda m: set_config(m, num_layers=10**9), r"promises [\d,]+ weights in 1,000,000,000 layers, but"),
        (None, lambda m: set_config(m, d_ff=10**18), "does not hold a model that fits together"),
        (None, lambda m: m.update(notes="[1]"), "does not hold a model that fits together"),
        (
            None,
            lambda m: m.update(src_tokenizer='{"language": "de", "lower": true, "tokens": ["a", "a"]}'),
            "no type twice",
        ),
        (None, lambda m: set_config(m, num_heads=5), "not divisible by num_heads=5"),
        (None, lambda m: m.update(src_tokenizer='{"language": "de"}'), "does not hold a model that fits together"),
        (lambda t: t.pop("output.bias"), None, r"'output\.bias': shape None, expected"),
        (lambda t: t.update(extra=torch.zeros(2)), None, r"'extra': shape \[2\], expected None"),
    ],
)
def test_a_model_that_does_not_fit_together_is_refused(model_file, tensors, metadata, message):
    rewritten(model_file, tensors, metadata)
    with pytest.raises(CheckpointError, match=message):
        load_model(model_file)


def test_a_small_file_cannot_claim_a_huge_model(model_file):
    rewritten(model_file, None, lambda m: set_config(m, d_ff=10**9))  # would take 256 GB a layer
    with pytest.raises(CheckpointError, match="does not hold a model that fits together"):
        load_model(model_file)


def test_a_missing_model_says_how_to_make_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist: train a model first"):
        load_model(tmp_path)


@pytest.mark.parametrize("what", ["model", "state"])
def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path, trained, what, almost_full_disk):
    path = tmp_path / "file"
    path.write_bytes(b"the last good one")
    with pytest.raises(OSError, match=r"what was there before is unchanged: '.*file'"), almost_full_disk():
        if what == "model":
            save_model(path, trained.model, fields_of(trained))
        else:
            save_training_state(path, {"model": trained.model.state_dict()})
    assert path.read_bytes() == b"the last good one"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be replaced there")
def test_whoever_has_the_old_file_open_reads_it_to_the_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old" * 1000)
    with open(path, "rb", buffering=0) as reader:
        reader.read(3)
        replace_file(path, b"new")
        assert reader.read() == b"old" * 999
    assert path.read_bytes() == b"new"


def test_an_interruption_while_writing_leaves_what_was_there(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    path = tmp_path / "file"
    path.write_bytes(b"before")
    monkeypatch.setattr(checkpoint.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, b"after")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_training_state_comes_back_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "state"
    save_training_state(path, {"weights": torch.arange(1000), "epoch": 3})
    assert load_training_state(path)["weights"].equal(torch.arange(1000))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match="is not a complete training state"):
        load_training_state(path)
    with pytest.raises(FileNotFoundError, match="there is no training to resume"):
        load_training_state(tmp_path / "other")


@pytest.mark.parametrize("content", [[1, 2], {"weights": torch.zeros(2)}])
def test_what_is_no_training_state_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "state")
    with pytest.raises(CheckpointError, match="is not a training state of this library"):
        load_training_state(tmp_path / "state")


def test_a_model_with_other_vocabularies_is_not_saved(tmp_path, trained):
    with pytest.raises(ValueError, match="src_tokenizer has a vocabulary of"):
        save_model(tmp_path / "model", trained.model, {"src": trained.tgt_tokenizer, "tgt": trained.src_tokenizer})
    assert list(tmp_path.iterdir()) == []


def test_a_subclass_of_a_model_is_saved_as_the_model_and_anything_else_refused(tmp_path, trained):
    class Mine(Transformer):
        pass

    model = Mine(trained.model.config)
    save_model(tmp_path / "model", model, fields_of(trained))
    assert type(load_model(tmp_path / "model").model) is Transformer
    with pytest.raises(TypeError, match="model is a Linear, expected a Transformer or a TransformerLanguageModel"):
        save_model(tmp_path / "other", torch.nn.Linear(2, 2), fields_of(trained))


@pytest.mark.skipif(sys.platform == "win32", reason="links and modes are something else there")
def test_a_link_stays_a_link_and_a_private_file_private(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    replace_file(pipe, b"content")
    reader.join()
    assert read == [b"content"] and pipe.is_fifo()


def test_a_path_below_a_file_says_so(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="what was there before is unchanged"):
        replace_file(tmp_path / "file" / "model", b"content")


def test_reading_a_training_state_runs_no_code(tmp_path):
    class Malicious:
        def __reduce__(self):
            return print, ("this must not be printed",)

    torch.save({"model": Malicious()}, tmp_path / "state")
    with pytest.raises(CheckpointError):
        load_training_state(tmp_path / "state")


def test_translators_load_from_a_file(model_file):
    assert Translator.load(model_file)("Ein Hund schläft.") == "a dog is sleeping."


def test_half_precision_halves_the_file_and_hardly_changes_the_weights(tmp_path, trained, pairs):
    for name, dtype in (("full", None), ("half", torch.float16)):
        save_model(tmp_path / name, trained.model, fields_of(trained), dtype=dtype)
    full, half = (load_model(tmp_path / name) for name in ("full", "half"))
    weights = sum(parameter.numel() for parameter in trained.model.parameters())
    sizes = [(tmp_path / name).stat().st_size for name in ("full", "half")]
    assert sizes[0] - sizes[1] == pytest.approx(2 * weights, rel=0.05)
    for a, b in zip(full.model.parameters(), half.model.parameters(), strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
    assert next(trained.model.parameters()).dtype == torch.float32  # the model itself is left alone
    assert Translator.from_saved(half)([pair.src for pair in pairs]) == [pair.tgt.lower() for pair in pairs]


def test_subwords_come_back_with_the_model(tmp_path, pairs, tiny_config):
    pieces = train_subwords(pairs, 80)
    fields = {"src": SubwordTokenizer("de", pieces), "tgt": SubwordTokenizer("en", pieces)}
    model = Transformer(dataclasses.replace(tiny_config, src_vocab_size=80, tgt_vocab_size=80, tie_embeddings=True))
    save_model(tmp_path / "model", model, fields)
    again = load_model(tmp_path / "model").tokenizers
    assert isinstance(again["src"], SubwordTokenizer) and again["tgt"].language == "en"
    assert again["src"].encode(pairs[0].src) == fields["src"].encode(pairs[0].src)


def test_broken_subwords_are_named(tmp_path, pairs, tiny_config):
    pieces = train_subwords(pairs, 80)
    fields = {"src": SubwordTokenizer("de", pieces), "tgt": SubwordTokenizer("en", pieces)}
    model = Transformer(dataclasses.replace(tiny_config, src_vocab_size=80, tgt_vocab_size=80, tie_embeddings=True))
    fields["src"].model = b"broken"
    save_model(tmp_path / "model", model, fields)
    with pytest.raises(CheckpointError, match=r"a model that fits together \(model is not a sentencepiece"):
        load_model(tmp_path / "model")
