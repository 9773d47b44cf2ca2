"""Files from strangers: whatever is in them, no code runs, nothing crashes or hangs, and no memory is taken for it."""

import ast
import copy
import dataclasses
import io
import json
import math
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import pytest
import safetensors.torch
import sentencepiece
import spacy
import torch
from files_to_break import attack_subwords, read_broken

import transformer_lib
from transformer_lib import LanguageModelConfig, Transformer, TransformerLanguageModel, cli
from transformer_lib.checkpoint import load_model, save_model
from transformer_lib.data.batches import make_dataset
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import Vocabulary, spacy_tokenizer
from transformer_lib.files import STATE_FILE, CheckpointError
from transformer_lib.inference.translator import Translator
from transformer_lib.language_model.stream import BPTTBatches, StreamTokenizer, TextDataset
from transformer_lib.training.loop import evaluate
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

LIBRARY = Path(transformer_lib.__file__).parent
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to measure memory")


def rewritten(path, **metadata):
    """Give a model file other metadata."""
    with safetensors.safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        path.write_bytes(safetensors.torch.save(tensors, {**file.metadata(), **metadata}))


@pytest.fixture
def subword_model(tmp_path, pairs, tiny_config):
    """A file of a model in subwords, untrained, with notes like those that training writes."""
    pieces = train_subwords(pairs, 80)
    tokenizers = {"src": SubwordTokenizer("de", pieces), "tgt": SubwordTokenizer("en", pieces)}
    config = dataclasses.replace(
        tiny_config, src_vocab_size=80, tgt_vocab_size=80, tie_embeddings=True, positions="sinusoidal"
    )
    notes = {"corpus": "sample", "recipe": {"batch_size": 3}, "search": {"beam_size": 3, "length_penalty": 0.6}}
    torch.manual_seed(0)
    save_model(tmp_path / "subwords.safetensors", Transformer(config), tokenizers, notes)
    return tmp_path / "subwords.safetensors"


@pytest.fixture
def word_model(tmp_path, trained):
    path = tmp_path / "words.safetensors"
    save_model(path, trained.model, {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}, {"corpus": "sample"})
    return path


@pytest.fixture
def language_model(tmp_path):
    tokenizer = StreamTokenizer()
    tokenizer.build_vocab(tokenizer.stream(["a b c d e", "b c a"]))
    path = tmp_path / "language.safetensors"
    config = LanguageModelConfig(len(tokenizer.vocab), 8, 2, 8, 1, max_len=5)
    save_model(path, TransformerLanguageModel(config), {"text": tokenizer})
    return path


@pytest.fixture
def training_state(tmp_path, pairs, subword_model):
    saved = load_model(subword_model)
    dataset = make_dataset(pairs, saved.tokenizers["src"], saved.tokenizers["tgt"])
    fit(saved.model, dataset, dataset, Recipe(epochs=1, batch_size=8), tmp_path / "run", log=lambda line: None)
    return tmp_path / "run" / STATE_FILE


@linux_only
@pytest.mark.parametrize("each", [30, pytest.param(3_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["subword_model", "word_model", "language_model", "training_state"])
def test_a_broken_file_is_refused_or_read_and_nothing_else_happens(kind, each, request, tmp_path):
    path = request.getfixturevalue(kind)
    results, number = tmp_path / "results", 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["files_to_break"])
    while number < each:  # a new process now and then, so that what one takes does not add up
        last = min(each, number + 1000)
        process = context.Process(target=read_broken, args=(path, number, last, results))
        process.start()
        process.join()
        lines = results.read_text().splitlines()
        assert process.exitcode == 0, f"after {lines[-1:]}, a process ended with {process.exitcode}"
        number = last
    outcomes = Counter(line.partition(" ")[2] for line in results.read_text().splitlines())
    assert outcomes.total() == each
    assert set(outcomes) == {"refused", "loaded"}


@linux_only
def test_subwords_that_were_made_to_crash_do_not():
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=attack_subwords, args=(Translator.load().src_tokenizer.pieces, 0, 200))
    process.start()
    process.join()
    assert process.exitcode == 0


class Own(Transformer):
    """What a reader hands over to load a file of somebody else's with."""


def test_a_file_that_promises_more_than_it_holds_is_refused_before_memory_or_time_is_taken(tmp_path, subword_model):
    saved = load_model(subword_model)
    for path, model_class, custom in ((subword_model, Transformer, ()), (tmp_path / "own", Own, (Own,))):
        save_model(path, model_class(saved.model.config), saved.tokenizers)
        for changes in (
            {"max_len": 10**8},
            {"num_layers": 10**9},
            {"num_layers": 5_000, "d_model": 2, "num_heads": 1, "d_ff": 1},
            {"d_ff": 10**9},
            {"max_len": 10**8, "positions": "learned", "d_ff": 10**18},
            {"d_model": 10**18},
            {"d_ff": 10**40},
        ):
            rewritten(path, config=json.dumps({**dataclasses.asdict(saved.model.config), **changes}))
            with pytest.raises(CheckpointError, match="does not hold a model that fits together"):
                load_model(path, *custom)


def test_a_tensor_too_many_is_refused_unread(subword_model):
    content = subword_model.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    end = max(tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__")
    for shape in ([1] * 30_000, [2**64 - 1, 0], [0], []):
        size = 4 * math.prod(shape)
        header["extra"] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        changed = json.dumps(header).encode()
        subword_model.write_bytes(len(changed).to_bytes(8, "little") + changed + content[8 + length :] + bytes(size))
        with pytest.raises(CheckpointError, match="does not hold a model that fits together"):
            load_model(subword_model)


def test_another_id_of_padding_than_the_vocabularys_is_refused(subword_model):
    """Or else what is padding in a batch would be a word."""
    with safetensors.safe_open(subword_model, "pt") as file:
        config = json.loads(file.metadata()["config"])
    rewritten(subword_model, config=json.dumps({**config, "pad_id": 5}))
    with pytest.raises(CheckpointError, match="src_tokenizer pads with 1, expected the model's 5"):
        load_model(subword_model)


def test_a_language_model_that_predicts_nan_gets_no_score(language_model):
    saved = load_model(language_model)
    with torch.no_grad():
        for weights in saved.model.parameters():
            weights.fill_(1e38)
    text = TextDataset(["a b c"] * 20, saved.tokenizers["text"])
    with pytest.raises(ArithmeticError, match="loss is nan: "):
        evaluate(saved.model, BPTTBatches(text, 2, 5))


def test_a_model_cannot_send_us_to_another_machine(word_model, capsys):
    rewritten(word_model, notes=json.dumps({"corpus": "\\\\host\\share"}))
    assert cli.main(["evaluate", str(word_model), "--device", "cpu"]) == 1
    assert "is on another machine: say so with --corpus" in capsys.readouterr().err


def test_a_model_that_predicts_nan_says_so(subword_model):
    saved = load_model(subword_model)
    with torch.no_grad():
        for weights in saved.model.encoder.parameters():
            weights.mul_(1e30)  # finite, but not for long
    for dtype in (torch.float32, torch.bfloat16):
        translator = Translator(saved.model.to(dtype), *saved.tokenizers.values())
        for beam_size in (1, 3):
            with pytest.raises(FloatingPointError, match="the model predicts nan"):
                translator.translate(["Ein Hund schläft."], beam_size)


def test_a_file_cannot_ask_for_an_impossible_search(subword_model):
    for search in (
        {"beam_size": 10**6},
        {"beam_size": "4"},
        {"beam_size": 4.0},
        {"length_penalty": "x"},
        {"length_penalty": float("nan")},
    ):
        rewritten(subword_model, notes=json.dumps({"search": search}))
        with pytest.raises(CheckpointError, match="search"):
            Translator.load(subword_model)


def test_notes_of_another_kind_are_refused(subword_model):
    for notes in ([1], "x"):
        rewritten(subword_model, notes=json.dumps(notes))
        with pytest.raises(CheckpointError, match="does not hold a model that fits together"):
            load_model(subword_model)


def test_a_language_that_is_no_code_is_never_looked_up_as_a_module(monkeypatch):
    monkeypatch.setattr(spacy, "blank", lambda language: pytest.fail(f"spaCy was asked for {language}"))
    for language in ("de.examples", "..os", "os/../de", "", "x"):
        with pytest.raises(ValueError, match="expected one that spaCy can tokenise"):
            spacy_tokenizer(language)


def test_what_a_strangers_model_writes_cannot_give_orders_to_the_terminal(word_model, capsys):
    saved = load_model(word_model)
    words = saved.tokenizers["tgt"].vocab.itos
    words[words.index("dog")] = "\x1b[2J\x9bdog\x07"
    save_model(word_model, saved.model, saved.tokenizers, {"corpus": "\x1b]0;title\x07"})
    assert cli.main(["translate", "--model", str(word_model), "--device", "cpu", "Ein Hund schläft."]) == 0
    assert cli.main(["evaluate", str(word_model), "--device", "cpu"]) == 1
    out, err = capsys.readouterr()
    content = word_model.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].replace(b'"F32"', b'"\\u001b[2J"')  # safetensors says which type it does not know
    word_model.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    assert cli.main(["evaluate", str(word_model), "--device", "cpu"]) == 1
    out += err + capsys.readouterr().err
    assert "[2J" in out
    assert "dog" in out and "title" in out
    assert not [letter for letter in out if letter != "\n" and not letter.isprintable()]


def test_what_is_said_of_a_strangers_model_cannot_give_orders_to_the_terminal_either(word_model):
    content = word_model.read_bytes()
    length = int.from_bytes(content[:8], "little")
    for change in (
        lambda header: header["__metadata__"].update(format="\x1b[2J"),
        lambda header: header["__metadata__"].update(model="my.\x1b[2J"),
        lambda header: header["__metadata__"].update(config=json.dumps({"\x1b[2J": 1})),
        lambda header: header["__metadata__"].update(tokenizers=json.dumps({"\x1b[2J": {"class": "WordTokenizer"}})),
        lambda header: header["__metadata__"].update(tokenizers=json.dumps({"src": {"class": "\x1b[2J"}})),
        lambda header: header["output.bias"].update(dtype="\x1b[2J"),
        lambda header: header.update({"\x1b[2J": header.pop("output.bias")}),
    ):
        header = json.loads(content[8 : 8 + length])
        change(header)
        changed = json.dumps(header).encode()
        word_model.write_bytes(len(changed).to_bytes(8, "little") + changed + content[8 + length :])
        with pytest.raises(CheckpointError) as caught:
            load_model(word_model)
        printed = "".join(traceback.format_exception(caught.value))
        assert not [letter for letter in printed if letter != "\n" and not letter.isprintable()]


def calls(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_nothing_in_the_library_reads_a_file_that_could_run_code():
    """torch.load is called with weights_only=True, and nothing that unpickles is imported."""
    loads = 0
    for path in LIBRARY.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"pickle", "dill", "joblib", "marshal", "shelve"}
        for call in calls(tree):
            function = ast.unparse(call.func)
            assert function not in ("eval", "exec", "np.load", "numpy.load", "__import__"), path
            if function == "torch.load":
                loads += 1
                assert {"weights_only": "True"}.items() <= {k.arg: ast.unparse(k.value) for k in call.keywords}.items()
    assert loads == 2  # a training state, a tutorial's weights


def test_subwords_whose_rules_turn_a_character_into_thousands_are_refused(tmp_path, pairs):
    (tmp_path / "rules.tsv").write_text(f"61\t{' '.join(['62'] * 1000)}\n")  # a becomes b, a thousand times
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        normalization_rule_tsv=str(tmp_path / "rules.tsv"),
        sentence_iterator=iter([pair.src for pair in pairs]),
        model_writer=model,
        model_type="bpe",
        vocab_size=40,
        **{"unk_id": 0, "pad_id": 1, "pad_piece": "<pad>", "bos_id": 2, "bos_piece": "<sos>"},
        **{"eos_id": 3, "eos_piece": "<eos>", "minloglevel": 2},
    )
    assert len(sentencepiece.SentencePieceNormalizer(model_proto=model.getvalue()).normalize("a")) >= 1000
    with pytest.raises(ValueError, match=r"pieces hold .* 1,0\d\d bytes"):
        SubwordTokenizer("de", model.getvalue())


def test_a_vocabulary_whose_words_are_books_is_refused(word_model):
    with safetensors.safe_open(word_model, "pt") as file:
        tokenizers = json.loads(file.metadata()["tokenizers"])
    tokenizers["tgt"]["tokens"][-1] = "a" * 2_000_000
    rewritten(word_model, tokenizers=json.dumps(tokenizers))
    with pytest.raises(CheckpointError, match="more than 10,000 characters"):
        load_model(word_model)


@pytest.mark.parametrize("opening", ["„ ", "“ ", "( ", "l' "])
def test_a_vocabulary_of_opening_signs_takes_no_longer_than_any_other(tmp_path, trained, opening):
    """What is written is put together in one pass: here, a million signs, of which none is ever closed."""
    model, english = copy.deepcopy(trained.model), copy.deepcopy(trained.tgt_tokenizer)
    english.vocab = Vocabulary([*english.vocab.itos[:-1], opening * (10_000 // len(opening))])
    with torch.no_grad():
        model.output.bias[-1] += 1000  # it writes nothing else, as long as it may
    path = tmp_path / "hostile.safetensors"
    save_model(path, model.half(), {"src": trained.src_tokenizer, "tgt": english})
    began = time.process_time()
    assert len(Translator.load(path)("Ein Hund schläft.")) >= 100_000
    assert time.process_time() - began < 20  # within a second, or else hours


@pytest.mark.parametrize("types", [["\ud800"], ["twice", "twice"]])
def test_a_vocabulary_that_is_not_text_or_has_a_type_twice_is_refused(word_model, types):
    with safetensors.safe_open(word_model, "pt") as file:
        tokenizers = json.loads(file.metadata()["tokenizers"])
    tokenizers["tgt"]["tokens"][-len(types) :] = types
    rewritten(word_model, tokenizers=json.dumps(tokenizers))
    with pytest.raises(CheckpointError, match=r"surrogates|twice"):
        load_model(word_model)
