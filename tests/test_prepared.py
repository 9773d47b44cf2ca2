"""A corpus that was tokenised once gives the batches that it would have given anyway."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import PAIRS
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors

from transformer_lib import Transformer, TransformerConfig, cli, load_corpus
from transformer_lib.cli import main
from transformer_lib.data import prepared
from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.corpora import PREPARED_FILE, CorpusError, Pair
from transformer_lib.data.prepared import PreparedDataset, prepare
from transformer_lib.data.subwords import train_subwords
from transformer_lib.data.tokenizers import UNK
from transformer_lib.files import STATE_FILE
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.train_translator import train_translator
from transformer_lib.training.trainer import fit

SENTENCES = [(f"{src} {i}", f"{tgt} {i}") for i in range(20) for src, tgt in PAIRS]
TINY = {"d_model": 32, "num_heads": 2, "d_ff": 32, "num_layers": 1, "max_len": 60, "epochs": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def corpus():
    return load_corpus([*SENTENCES, *((f"leer {i}", " ") for i in range(40))])  # most of them to train on


@pytest.fixture(scope="module")
def lines():
    return []


@pytest.fixture(scope="module")
def folder(corpus, lines, tmp_path_factory):
    return prepare(corpus, tmp_path_factory.mktemp("prepared") / "new", processes=1, log=lines.append)


@pytest.fixture(scope="module")
def plain(corpus, folder):
    """The same training split, tokenised as ever."""
    tokenizers = PreparedDataset(folder).tokenizers.values()
    return make_dataset(corpus["train"], *tokenizers, log=lambda line: None)


@pytest.mark.parametrize("sizes", [{"batch_size": 7}, {"max_tokens": 60}, {"batch_size": 7, "train": True}], ids=str)
def test_its_batches_are_those_of_the_text(folder, plain, sizes):
    pairs = zip(BucketBatches(PreparedDataset(folder), **sizes), BucketBatches(plain, **sizes), strict=True)
    assert all(ours.src.equal(theirs.src) and ours.tgt.equal(theirs.tgt) for ours, theirs in pairs)


def test_it_trains_the_model_that_the_text_trains(folder, plain):
    losses = []
    for dataset in (PreparedDataset(folder), plain):
        torch.manual_seed(0)
        size = len(plain.tokenizers["src"].vocab)
        model = Transformer(TransformerConfig(size, size, d_model=32, num_heads=2, d_ff=32, num_layers=1))
        losses.append(fit(model, dataset, plain, Recipe(epochs=1, batch_size=16), log=len).train_loss)
    assert losses[0] == losses[1]


def test_pairs_without_text_or_with_too_many_tokens_are_left_out_and_counted(corpus, folder, lines, plain):
    empty = sum(not all(pair) for pair in corpus["train"])
    assert len(PreparedDataset(folder)) == len(plain) == len(corpus["train"]) - empty
    assert empty and any(f"{empty} of {len(corpus['train'])} pairs left out" in line for line in lines)
    longest = int(plain.lengths.max()) + 2
    said = []
    dataset = PreparedDataset(folder, longest - 1, said.append)
    fits = [i for i, lengths in enumerate(plain.lengths) if max(lengths) + 2 < longest]
    assert len(dataset) == len(fits) < len(plain) and f"{len(plain) - len(fits)} of {len(plain)} pairs" in said[0]
    assert (dataset.lengths == plain.lengths[fits]).all()
    assert PreparedDataset(folder, longest, said.append) and len(said) == 1


def test_the_folder_is_a_corpus_whose_training_split_is_ids_only(corpus, folder):
    opened = load_corpus(folder)
    assert opened.prepared and not corpus.prepared and opened.splits == corpus.splits
    assert opened["val"] == corpus["val"] and opened["test"] == corpus["test"]
    with pytest.raises(CorpusError, match="split is 'train'"):
        opened["train"]
    with pytest.raises(CorpusError, match="fr"):
        load_corpus(folder, "fr", "en")


def test_only_a_corpus_that_was_opened_as_a_folder_is_prepared(corpus, folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / corpus.name)
    monkeypatch.chdir(tmp_path)
    assert load_corpus(corpus.name).prepared and not corpus.prepared


def test_it_is_not_taken_the_other_way_round(folder):
    with pytest.raises(ValueError, match="src is en"):
        train_translator(load_corpus(folder, "en", "de"), log=len, **TINY)


def test_a_chunk_without_a_usable_pair_is_left_out_like_any_other(corpus, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(prepared, "_CHUNK", 1)
    again = PreparedDataset(prepare(corpus, tmp_path / "new", processes=1, log=len))
    assert (again.lengths == PreparedDataset(folder).lengths).all()


def test_it_is_written_whole_or_not_at_all(corpus, folder, tmp_path, monkeypatch):
    said = []
    with pytest.raises(FileExistsError, match=folder.name):
        prepare(corpus, folder, processes=1, log=said.append)
    assert not said  # before the work

    def full(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(prepared, "save_file", full)
    with pytest.raises(OSError, match="no space"):
        prepare(corpus, tmp_path / "new", processes=1, log=len)
    assert not (tmp_path / "new").exists()


def _shorter(tensors):
    tensors["src"] = tensors["src"][:-1]


def _negative(tensors):
    tensors["lengths"][:2, 0] = [-1, tensors["lengths"][:2, 0].sum() + 1]


def _other_number(tensors):
    tensors["lengths"] = tensors["lengths"][:-1]


def _nothing(tensors):
    tensors.clear()


@pytest.mark.parametrize("damage", [_shorter, _negative, _other_number, _nothing])
def test_a_damaged_file_is_refused(folder, tmp_path, damage):
    tensors = load_file(folder / PREPARED_FILE)
    described = PreparedDataset(folder).tokenizers.values()
    damage(tensors)
    metadata = {"tokenizers": json.dumps([tokenizer.to_dict() for tokenizer in described])}
    save_file(tensors, tmp_path / PREPARED_FILE, metadata)
    with pytest.raises(CorpusError, match=PREPARED_FILE):
        PreparedDataset(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no safetensors", None])
def test_what_is_no_prepared_corpus_is_refused(tmp_path, content):
    if content is None:
        save_tensors({"a": torch.ones(1)}, tmp_path / PREPARED_FILE)
    else:
        (tmp_path / PREPARED_FILE).write_bytes(content)
    with pytest.raises(CorpusError, match=PREPARED_FILE):
        PreparedDataset(tmp_path)


@pytest.mark.parametrize("wish", [{"lower": False}, {"subwords": 77}, {"min_freq": 3}], ids=str)
def test_what_it_was_not_prepared_with_is_refused(folder, wish):
    (name,) = wish
    with pytest.raises(ValueError, match=name):
        train_translator(load_corpus(folder), log=len, **TINY, **wish)


def test_characters_that_no_subword_writes_are_counted(tmp_path, monkeypatch):
    """Subwords are learned from a part of a large corpus: here, from one that lacks a letter."""
    corpus = load_corpus(SENTENCES)
    known = corpus["train"]
    corpus.pairs["train"] = [*known, *[Pair("Ein Ж schläft.", "A dog sleeps.")] * 3]
    monkeypatch.setattr(prepared, "train_subwords", lambda sample, *options: train_subwords(known, *options))
    monkeypatch.setattr(prepared, "_CHUNK", 50)
    lines = []
    prepare(corpus, tmp_path / "new", processes=1, log=lines.append)
    assert [line.split()[:2] for line in lines if UNK in line] == [["src:", "3"]]


def test_what_is_no_text_is_left_out_and_counted(tmp_path):
    corpus = load_corpus(SENTENCES)
    usable = len(corpus["train"]), len(corpus["val"])
    for split in corpus.splits:
        corpus.pairs[split] = [Pair("kaputt \ud800", "broken"), *corpus[split]]
    lines = []
    opened = load_corpus(prepare(corpus, tmp_path / "new", processes=1, log=lines.append))
    assert (len(PreparedDataset(tmp_path / "new")), len(opened["val"])) == usable
    assert sum("pairs left out" in line for line in lines) == 3


UNGUARDED = """
import sys
from transformer_lib import load_corpus
from transformer_lib.data.prepared import prepare
prepare(load_corpus("sample"), sys.argv[1], processes=2)
"""


@pytest.mark.processes
def test_a_script_without_a_guard_ends_and_is_told_so(tmp_path):
    """Each process imports the script, which would start processes again: it once waited for them for ever."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    command = [sys.executable, str(script), str(tmp_path / "new")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 1 and "__main__" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "new").exists()
    script.write_text(UNGUARDED.replace("processes=2", "processes=1"))
    assert subprocess.run(command, capture_output=True, timeout=300).returncode == 0


def test_the_command_line_prepares_trains_and_goes_on(tmp_path, capsys):
    for side in (0, 1):
        lines = "".join(pair[side] + "\n" for pair in SENTENCES)
        (tmp_path / f"text.{('de', 'en')[side]}").write_text(lines, encoding="utf-8")
    files = [str(tmp_path / f"text.{language}") for language in ("de", "en")]
    assert main(["prepare", *files, "--output", str(tmp_path / "prepared"), "--subwords", "60"]) == 0  # in processes
    small = ["--set", *(f"{name}={value}" for name, value in TINY.items() if name not in ("epochs", "device"))]
    train = ["train", "--corpus", str(tmp_path / "prepared"), "--output", str(tmp_path / "run"), "--device", "cpu"]
    assert main([*train, "--epochs", "0.5", *small]) == 0
    assert main([*train, "--epochs", "1", "--resume", *small]) == 0
    assert "60 de and 60 en types" in capsys.readouterr().out
    assert (tmp_path / "run" / STATE_FILE).exists()


def test_a_large_corpus_is_to_be_prepared_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "_LARGE", 10)
    monkeypatch.setattr(prepared, "ProcessPoolExecutor", ThreadPoolExecutor)
    for side, language in enumerate(("de", "en")):
        lines = "".join(pair[side] + "\n" for pair in SENTENCES)
        (tmp_path / f"text.{language}").write_text(lines, encoding="utf-8")
    files = [str(tmp_path / f"text.{language}") for language in ("de", "en")]
    small = ["--set", *(f"{name}={value}" for name, value in TINY.items() if name not in ("epochs", "device"))]
    train = ["train", "--output", str(tmp_path / "run"), "--device", "cpu", "--epochs", "1", *small]
    assert main([*train, "--corpus", *files]) == 1
    assert "prepare" in capsys.readouterr().err and not (tmp_path / "run").exists()
    (tmp_path / "prepared" / ".unfinished").mkdir(parents=True)  # an earlier call was killed
    assert main(["prepare", *files, "--output", str(tmp_path / "prepared")]) == 0
    assert main([*train, "--corpus", str(tmp_path / "prepared")]) == 0
