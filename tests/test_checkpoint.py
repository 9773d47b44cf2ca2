import contextlib
import copy
import dataclasses
import json

import pytest
import safetensors.torch
import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.checkpoint import SavedModel, load_model, save_model
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.files import CheckpointError, save_training_state
from transformer_lib.inference.translator import Translator


def tokenizers_of(translator):
    return {"src": translator.src_tokenizer, "tgt": translator.tgt_tokenizer}


@pytest.fixture
def model_file(tmp_path, trained):
    path = tmp_path / "model.safetensors"
    save_model(path, trained.model, tokenizers_of(trained), {"corpus": "tiny"})
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


def test_a_file_whose_first_letters_are_those_of_a_zip_archive_loads(tmp_path, trained):
    path, tokenizers = tmp_path / "model.safetensors", {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}
    save_model(path, trained.model, tokenizers, {"why": ""})
    length = int.from_bytes(path.read_bytes()[:8], "little")  # of the header
    save_model(path, trained.model, tokenizers, {"why": "x" * ((int.from_bytes(b"PK", "little") - length) % 2**16)})
    assert path.read_bytes()[:2] == b"PK"
    assert load_model(path).tokenizers["src"].vocab.itos == trained.src_tokenizer.vocab.itos


def test_tied_weights_are_stored_once_and_tied_again(tmp_path, tokenizers, tiny_config):
    src_tokenizer, tgt_tokenizer = tokenizers
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
    with pytest.raises(CheckpointError, match="does not hold a model that fits together"):
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


def set_tokenizer(metadata, **values):
    tokenizers = json.loads(metadata["tokenizers"])
    metadata["tokenizers"] = json.dumps({**tokenizers, "src": {**tokenizers["src"], **values}})


DAMAGES = [  # a change to the tensors or to the metadata, and what the error names
    (None, lambda m: m.update(format="pt"), "its format is 'pt', expected 'transformer_lib model"),
    (None, lambda m: m.pop("config"), "config"),
    (None, lambda m: m.update(config="{"), ""),
    (None, lambda m: m.update(notes="[1]"), ""),
    (None, lambda m: m.update(tokenizers='{"src": {"language": "de"}}'), "class"),
    (None, lambda m: set_config(m, d_ff=128), "linear1"),
    (None, lambda m: set_config(m, tgt_vocab_size=9999), "expected the model's 9999"),
    (None, lambda m: set_config(m, num_heads=5), "num_heads=5"),
    (None, lambda m: set_tokenizer(m, tokens=["a", "b", "c", "d"]), "4 types"),
    (lambda t: t.pop("output.bias"), None, "output.bias"),
    (lambda t: t.update(extra=torch.zeros(2)), None, "extra"),
]


def test_a_model_that_does_not_fit_together_is_refused(model_file):
    whole = model_file.read_bytes()
    for tensors, metadata, message in DAMAGES:
        model_file.write_bytes(whole)
        rewritten(model_file, tensors, metadata)
        with pytest.raises(CheckpointError, match=f"does not hold a model that fits together .*{message}"):
            load_model(model_file)


def test_a_small_file_cannot_claim_a_huge_model(model_file):
    """Nothing of that size may be made: d_ff alone would take 256 GB a layer."""
    whole = model_file.read_bytes()
    for size, named in (
        ({"d_ff": 10**9}, "linear1.*1000000000"),
        ({"num_layers": 10**9}, "1,000,000,000 layers"),
        ({"num_layers": 32}, r"layers\.\d+\..* is None, expected \[32"),
        ({"max_len": 10**9}, "numbers of positions"),
        ({"d_model": 32 * 10**8}, "numbers of positions"),
        ({"d_ff": 10**18}, "overflow"),
        ({"d_ff": 10**40}, "does not hold a model"),
    ):
        model_file.write_bytes(whole)
        rewritten(model_file, None, lambda m, size=size: set_config(m, **size))
        with pytest.raises(CheckpointError, match=named):
            load_model(model_file)


@pytest.mark.parametrize(
    "size",
    [
        {"d_model": 3700, "num_heads": 1},
        {"num_layers": 900},
        {"d_model": 1200, "d_ff": 1200},
        {"tgt_vocab_size": 10**6},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_before_a_number_of_it_is_made(tmp_path, size):
    """These would once have taken 700 MB, or a minute, although each asks for fewer numbers than 64 MB could hold."""
    config = TransformerConfig(8, 8, d_model=8, num_heads=2, d_ff=8, num_layers=1, max_len=16)
    save_model(tmp_path / "model.safetensors", Transformer(config), {})
    rewritten(tmp_path / "model.safetensors", None, lambda m: set_config(m, **size))
    parts = []

    def count(*arguments):
        parts.append(arguments)

    with contextlib.ExitStack() as stack:
        for register in (register_module_parameter_registration_hook, register_module_buffer_registration_hook):
            stack.callback(register(lambda module, name, tensor: count(tensor.device.type)).remove)
        with pytest.raises(CheckpointError):
            load_model(tmp_path)
    assert {device for (device,) in parts} <= {"meta"} and len(parts) < 2000


def test_a_table_that_no_file_stores_cannot_be_huge(tmp_path):
    config = TransformerConfig(8, 8, d_model=8, num_heads=2, d_ff=8, num_layers=1, positions="sinusoidal")
    save_model(tmp_path / "model.safetensors", Transformer(config), {})
    rewritten(tmp_path / "model.safetensors", None, lambda m: set_config(m, max_len=2_000_000))
    with pytest.raises(CheckpointError, match="numbers of positions"):
        load_model(tmp_path)


class NeedsNumbers(Transformer):
    """A reader's own, which cannot be built without numbers."""

    def __init__(self, config):
        super().__init__(config)
        self.largest = self.output.weight.max().item()


class OneLayerThrice(Transformer):
    """A reader's own, whose layers share their weights, as ALBERT's do."""

    def __init__(self, config):
        super().__init__(config)
        for stack in (self.encoder, self.decoder):
            stack.layers = torch.nn.ModuleList([stack.layers[0]] * config.num_layers)


@pytest.mark.parametrize("own", [NeedsNumbers, OneLayerThrice])
def test_a_class_of_ones_own_may_need_numbers_or_share_layers(tmp_path, tokenizers, tiny_config, own):
    model = own(dataclasses.replace(tiny_config, num_layers=3))
    save_model(tmp_path / "model.safetensors", model, dict(zip(("src", "tgt"), tokenizers, strict=True)))
    loaded = load_model(tmp_path, own).model
    assert type(loaded) is own
    for name, weights in model.state_dict().items():
        assert loaded.state_dict()[name].equal(weights), name


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "sinusoidal", "max_len": 4000},
        {"positions": "sinusoidal", "max_len": 65_536, "d_model": 64},
        {"tie_embeddings": True},
        pytest.param({"num_layers": 400}, marks=pytest.mark.slow),  # ten seconds, for thousands of modules
    ],
    ids=str,
)
def test_no_honest_model_is_taken_for_too_large(tmp_path, changes):
    """Of few weights or many, in half precision, tied or not; sinusoids are not stored."""
    config = TransformerConfig(8, 8, **{"d_model": 4, "num_heads": 2, "d_ff": 4, "num_layers": 1, **changes})
    save_model(tmp_path / "model.safetensors", Transformer(config).half(), {})
    assert load_model(tmp_path).model.config == config


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        load_model(tmp_path)


@pytest.mark.parametrize("what", ["model", "state"])
def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path, trained, what, almost_full_disk):
    path = tmp_path / "file"
    path.write_bytes(b"the last good one")
    with pytest.raises(OSError, match=r"file cannot be written .*before is unchanged"), almost_full_disk():
        if what == "model":
            save_model(path, trained.model, tokenizers_of(trained))
        else:
            save_training_state(path, {"model": trained.model.state_dict()})
    assert path.read_bytes() == b"the last good one"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_model_with_other_vocabularies_is_not_saved(tmp_path, trained):
    with pytest.raises(ValueError, match=r"src_tokenizer has \d+ types"):
        save_model(tmp_path / "model", trained.model, {"src": trained.tgt_tokenizer, "tgt": trained.src_tokenizer})
    assert list(tmp_path.iterdir()) == []


class LongerConfig(TransformerConfig):
    """A configuration of one's own, which the model's class does not name."""


def test_what_could_not_be_built_again_is_not_saved(tmp_path, trained):
    with pytest.raises(TypeError, match="model is a Linear, which has no config_class"):
        save_model(tmp_path / "other", torch.nn.Linear(2, 2), tokenizers_of(trained))
    with pytest.raises(TypeError, match="model is a str, which has no config_class"):
        save_model(tmp_path / "other", "model.safetensors", tokenizers_of(trained))
    model = Transformer(trained.model.config)
    model.config = LongerConfig(**dataclasses.asdict(model.config))
    with pytest.raises(TypeError, match="config is a LongerConfig, expected a TransformerConfig"):
        save_model(tmp_path / "other", model, tokenizers_of(trained))
    assert list(tmp_path.iterdir()) == []


def test_translators_load_from_a_file(model_file):
    assert Translator.load(model_file)("Ein Hund schläft.") == "a dog is sleeping."


def test_half_precision_halves_the_file_and_hardly_changes_the_weights(tmp_path, trained, pairs):
    for name, model in (("full", trained.model), ("half", copy.deepcopy(trained.model).half())):
        save_model(tmp_path / name, model, tokenizers_of(trained))
    full, half = (load_model(tmp_path / name) for name in ("full", "half"))
    weights = sum(parameter.numel() for parameter in trained.model.parameters())
    sizes = [(tmp_path / name).stat().st_size for name in ("full", "half")]
    assert sizes[0] - sizes[1] == pytest.approx(2 * weights, rel=0.05)
    for a, b in zip(full.model.parameters(), half.model.parameters(), strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
    assert Translator.from_saved(half)([pair.src for pair in pairs]) == [pair.tgt.lower() for pair in pairs]


def test_subwords_come_back_with_the_model(tmp_path, pairs, tiny_config):
    pieces = train_subwords(pairs, 80)
    tokenizers = {"src": SubwordTokenizer("de", pieces), "tgt": SubwordTokenizer("en", pieces)}
    model = Transformer(dataclasses.replace(tiny_config, src_vocab_size=80, tgt_vocab_size=80, tie_embeddings=True))
    save_model(tmp_path / "model", model, tokenizers)
    again = load_model(tmp_path / "model").tokenizers
    assert isinstance(again["src"], SubwordTokenizer) and again["tgt"].language == "en"
    assert again["src"].encode(pairs[0].src) == tokenizers["src"].encode(pairs[0].src)


def test_broken_subwords_are_named():
    with pytest.raises(ValueError, match="pieces are no sentencepiece model"):
        SubwordTokenizer("de", b"broken")


class SharedBuffer(Transformer):
    """One table of positions for both sides, as a buffer that belongs to the state."""

    def __init__(self, config):
        super().__init__(config)
        self.src_embedding.register_buffer("extra", torch.randn(3))
        self.tgt_embedding.register_buffer("extra", self.src_embedding.extra)


def test_a_buffer_with_two_names_is_saved_once_and_comes_back_in_both_places(tmp_path, trained):
    model = SharedBuffer(trained.model.config)
    save_model(tmp_path / "model.safetensors", model, tokenizers_of(trained))
    again = load_model(tmp_path, SharedBuffer).model
    assert again.src_embedding.extra.equal(model.src_embedding.extra)
    assert again.tgt_embedding.extra.equal(model.src_embedding.extra)


class OwnTransformer(Transformer):
    """A reader's model, which is built of the same configuration."""


class Reader:
    class Transformer(Transformer):
        """It may even be called as ours is."""


def test_a_class_of_ones_own_has_to_be_handed_over(tmp_path, trained):
    for own in (OwnTransformer, Reader.Transformer):
        save_model(tmp_path / "model.safetensors", own(trained.model.config), tokenizers_of(trained))
        with pytest.raises(CheckpointError, match=f"it needs {own.__name__}, which is not this library's"):
            load_model(tmp_path)
        assert type(load_model(tmp_path, own).model) is own
    save_model(tmp_path / "model.safetensors", trained.model, tokenizers_of(trained))
    assert type(load_model(tmp_path, Reader.Transformer).model) is Transformer


def test_a_translator_searches_as_its_notes_say_and_refuses_what_nobody_would_ask_for(trained):
    def translator(**search):
        return Translator.from_saved(SavedModel(trained.model, tokenizers_of(trained), {"search": search}))

    assert translator(beam_size=3, length_penalty=1.5).beam_size == 3
    for search in ({"beam_size": 10**9}, {"beam_size": "4"}, {"length_penalty": -1}, {"length_penalty": [1]}):
        with pytest.raises(CheckpointError, match="search"):
            translator(**search)
    for tokenizers in ({}, {"text": trained.src_tokenizer}):
        with pytest.raises(CheckpointError, match="expected a translator's, src and tgt"):
            Translator.from_saved(SavedModel(trained.model, tokenizers, {}))
