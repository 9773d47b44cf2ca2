import dataclasses
import json
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from transformer_lib import Transformer, TransformerConfig, WordTokenizer
from transformer_lib.checkpoint import SHIPPED_MODEL, load_model, save_model
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import Vocabulary
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


def test_a_model_loads_whatever_the_length_of_its_header_spells(tmp_path, trained):
    """The file begins with that length: with the letters PK, as a zip archive does, if it is 0x4B50 modulo 65,536."""

    def header(padding):
        save_model(tmp_path / "model.safetensors", trained.model, tokenizers_of(trained), {"padding": "x" * padding})
        return int.from_bytes((tmp_path / "model.safetensors").read_bytes()[:8], "little")

    padding = (0x4B50 - header(0)) % 2**16
    assert header(padding) % 2**16 == 0x4B50
    assert load_model(tmp_path).notes == {"padding": "x" * padding}


def test_loading_a_model_imports_no_compiler():
    """It would take longer than all the rest."""
    code = "import sys; from transformer_lib import Translator; Translator.load(); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = result.stdout.split()
    assert "transformer_lib.checkpoint" in loaded and not {"torch._dynamo", "sympy"} & {*loaded}


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


def set_tokenizer(metadata, **values):
    tokenizers = json.loads(metadata["tokenizers"])
    metadata["tokenizers"] = json.dumps({**tokenizers, "src": {**tokenizers["src"], **values}})


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        (
            None,
            lambda m: m.update(format="pt"),
            "its format is 'pt', expected 'transformer_lib model",
        ),
        (None, lambda m: m.pop("config"), "does not hold a model that fits together .*config"),
        (None, lambda m: m.update(config="{"), "does not hold a model that fits together"),
        (None, lambda m: set_config(m, d_ff=128), r"linear1\.bias': shape \[64\], expected \[128\]"),
        (
            None,
            lambda m: set_config(m, tgt_vocab_size=9999),
            "tgt_tokenizer has .* types, but .*tgt_vocab_size is 9999",
        ),
        (None, lambda m: set_config(m, num_layers=10**9), "num_layers is 1,000,000,000, expected at most 256"),
        (None, lambda m: set_config(m, d_ff=10**18), "does not hold a model that fits together"),
        (None, lambda m: m.update(notes="[1]"), "does not hold a model that fits together"),
        (None, lambda m: set_tokenizer(m, tokens=["<unk>", "<pad>", "<sos>", "<eos>", "a", "a"]), "no type twice"),
        (None, lambda m: set_tokenizer(m, tokens=["a", "b", "c", "d"]), "expected <unk>, <pad>, <sos>, <eos> first"),
        (
            None,
            lambda m: set_tokenizer(m, tokens=["<unk>", "<pad>", "<sos>", "<eos>", "a\ud800"]),
            r"does not hold .*'\\ud800'",
        ),
        (None, lambda m: m.update(notes=json.dumps({"corpus": "\ud800"})), r"does not hold .*'\\ud800'"),
        (None, lambda m: set_config(m, num_heads=5), "not divisible by num_heads=5"),
        (
            None,
            lambda m: m.update(tokenizers='{"src": {"language": "de"}}'),
            "does not hold a model that fits together",
        ),
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
            save_model(path, trained.model, tokenizers_of(trained))
        else:
            save_training_state(path, {"model": trained.model.state_dict()})
    assert path.read_bytes() == b"the last good one"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_model_with_other_vocabularies_is_not_saved(tmp_path, trained):
    with pytest.raises(ValueError, match="src_tokenizer has a vocabulary of"):
        save_model(tmp_path / "model", trained.model, {"src": trained.tgt_tokenizer, "tgt": trained.src_tokenizer})
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_configuration_is_not_saved(tmp_path, trained):
    with pytest.raises(TypeError, match="model is a Linear, expected a module with a config, whose class has a config"):
        save_model(tmp_path / "other", torch.nn.Linear(2, 2), tokenizers_of(trained))
    assert list(tmp_path.iterdir()) == []


def test_translators_load_from_a_file(model_file):
    assert Translator.load(model_file)("Ein Hund schläft.") == "a dog is sleeping."


def test_half_precision_halves_the_file_and_hardly_changes_the_weights(tmp_path, trained, pairs):
    for name, dtype in (("full", None), ("half", torch.float16)):
        save_model(tmp_path / name, trained.model, tokenizers_of(trained), dtype=dtype)
    full, half = (load_model(tmp_path / name) for name in ("full", "half"))
    weights = sum(parameter.numel() for parameter in trained.model.parameters())
    sizes = [(tmp_path / name).stat().st_size for name in ("full", "half")]
    assert sizes[0] - sizes[1] == pytest.approx(2 * weights, rel=0.05)
    for a, b in zip(full.model.parameters(), half.model.parameters(), strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
    assert next(trained.model.parameters()).dtype == torch.float32  # the model itself is left alone
    with pytest.raises(ValueError, match=r"dtype is torch\.int64, expected one that has fractions"):
        save_model(tmp_path / "whole", trained.model, tokenizers_of(trained), dtype=torch.int64)
    assert Translator.from_saved(half)([pair.src for pair in pairs]) == [pair.tgt.lower() for pair in pairs]


def test_subwords_come_back_with_the_model(tmp_path, pairs, tiny_config):
    pieces = train_subwords(pairs, 80)
    tokenizers = {"src": SubwordTokenizer("de", pieces), "tgt": SubwordTokenizer("en", pieces)}
    model = Transformer(dataclasses.replace(tiny_config, src_vocab_size=80, tgt_vocab_size=80, tie_embeddings=True))
    save_model(tmp_path / "model", model, tokenizers)
    again = load_model(tmp_path / "model").tokenizers
    assert isinstance(again["src"], SubwordTokenizer) and again["tgt"].language == "en"
    assert again["src"].encode(pairs[0].src) == tokenizers["src"].encode(pairs[0].src)


def test_broken_subwords_are_named(tmp_path, pairs, tiny_config):
    pieces = train_subwords(pairs, 80)
    tokenizers = {"src": SubwordTokenizer("de", pieces), "tgt": SubwordTokenizer("en", pieces)}
    model = Transformer(dataclasses.replace(tiny_config, src_vocab_size=80, tgt_vocab_size=80, tie_embeddings=True))
    tokenizers["src"].model = b"broken"
    with pytest.raises(ValueError, match="SubwordTokenizer among the tokenizers could not be restored"):
        save_model(tmp_path / "model", model, tokenizers)
    with pytest.raises(ValueError, match="model is not a sentencepiece model"):
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


def test_half_a_character_is_not_saved(tmp_path, trained):
    tokenizer = WordTokenizer("de")
    tokenizer.vocab = Vocabulary([*trained.src_tokenizer.vocab.itos[:-1], "\ud800"])
    for tokenizers, notes in (
        ({**tokenizers_of(trained), "src": tokenizer}, {}),
        (tokenizers_of(trained), {"corpus": "\ud800"}),
    ):
        with pytest.raises(ValueError, match=r"\\ud800"):
            save_model(tmp_path / "model.safetensors", trained.model, tokenizers, notes)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "types",
    [
        ["<unk>", "<pad>", "<sos>", "<eos>", "a", "a"],
        ["<unk>", "<pad>", "<eos>", "<sos>", "a", "b"],
        ["<unk>", "<pad>", "<sos>", "<eos>", "a", 5],
    ],
)
def test_a_vocabulary_that_could_not_be_loaded_is_not_saved(tmp_path, trained, types):
    tokenizer = WordTokenizer("de")
    tokenizer.vocab = Vocabulary(types)
    model = Transformer(dataclasses.replace(trained.model.config, src_vocab_size=len(types)))
    with pytest.raises(ValueError, match="expected <unk>, <pad>, <sos>, <eos> first, and no type twice"):
        save_model(tmp_path / "model.safetensors", model, {"src": tokenizer, "tgt": trained.tgt_tokenizer})
    assert not any(tmp_path.iterdir())


@dataclasses.dataclass(frozen=True)
class Adapter:
    width: int = 3


@dataclasses.dataclass(frozen=True)
class NestedConfig(TransformerConfig):
    adapter: Adapter = Adapter()


class NestedModel(Transformer):
    config_class = NestedConfig

    def __init__(self, config):
        super().__init__(config)
        self.adapter = torch.nn.Linear(config.adapter.width, 2)


def test_a_configuration_that_json_changes_too_much_is_not_saved(tmp_path, trained):
    """JSON makes a dictionary of a configuration within a configuration."""
    model = NestedModel(NestedConfig(**dataclasses.asdict(trained.model.config)))
    with pytest.raises(
        ValueError,
        match=r"NestedConfig is not the same .* comes back from JSON .*'dict' object has no attribute 'width'",
    ):
        save_model(tmp_path / "model.safetensors", model, tokenizers_of(trained))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"device": "auto"}, ValueError, "device is 'auto', expected one that this machine has"),
        ({"device": "cuda:99"}, ValueError, "device is 'cuda:99', expected one that this machine has"),
        ({"dtype": "float16"}, TypeError, "dtype is 'float16', expected a torch.dtype"),
    ],
)
def test_a_wrong_argument_is_not_called_a_damaged_file(arguments, error, message):
    with pytest.raises(error, match=message):
        load_model(SHIPPED_MODEL, **arguments)


class Characters(WordTokenizer):
    """Hands its own function on, which nobody can hand to ``from_dict`` again."""

    def __init__(self, language, lower=True):
        super().__init__(language, lower, tokenize=list)


def test_a_tokeniser_that_could_not_be_restored_is_refused_on_saving(tmp_path):
    tokenizer = Characters("de")
    tokenizer.build_vocab([list("ein hund")])
    config = TransformerConfig(
        len(tokenizer.vocab), len(tokenizer.vocab), d_model=16, num_heads=2, d_ff=16, num_layers=1
    )
    with pytest.raises(ValueError, match=r"a Characters among the tokenizers could not be restored: .*tokenize"):
        save_model(tmp_path / "model.safetensors", Transformer(config), {"src": tokenizer, "tgt": tokenizer})
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_that_would_not_come_back_is_refused_on_saving(tmp_path):
    tokenizer = Translator.load(SHIPPED_MODEL).src_tokenizer
    size = len(tokenizer.vocab)
    model = Transformer(TransformerConfig(size, size, d_model=16, num_heads=2, d_ff=16, num_layers=1))
    tokenizer.vocab = Vocabulary([*tokenizer.vocab.itos[:4], *reversed(tokenizer.vocab.itos[4:])])
    with pytest.raises(ValueError, match=r"SubwordTokenizer.from_dict does not rebuild what to_dict describes"):
        save_model(tmp_path / "model.safetensors", model, {"src": tokenizer, "tgt": tokenizer})
    assert not list(tmp_path.iterdir())


def test_a_file_of_torch_save_is_named_as_such(tmp_path):
    torch.save({"encoder.tok_embedding.weight": torch.zeros(2, 2)}, tmp_path / "tut6-model.pt")
    with pytest.raises(CheckpointError, match=r"is a file of torch\.save: .*from_tutorial"):
        load_model(tmp_path / "tut6-model.pt")
