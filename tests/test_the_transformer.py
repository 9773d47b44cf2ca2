"""The whole Transformer in one file: it is the library's, it learns, and it loses nothing that it has saved."""

import ast
import gzip
import importlib.util
import inspect
import io
import math
import os
import random
import re
import runpy
import shlex
import signal
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
import sacrebleu
import torch
from conftest import PAIRS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from one_file import from_one_file, to_one_file
from weights import shake

from transformer_lib import Transformer, TransformerConfig, Translator
from transformer_lib.checkpoint import SHIPPED_MODEL, load_model, save_model
from transformer_lib.data.batches import Batch
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.files import CheckpointError, shipped
from transformer_lib.inference.bleu import by_definition
from transformer_lib.inference.search import beam_search, greedy_search
from transformer_lib.model import attention, decoder, embeddings, encoder, masks, sublayers
from transformer_lib.training.loop import train_epoch
from transformer_lib.training.loss import sequence_loss

FILE = Path(__file__).parents[1] / "the_transformer.py"
spec = importlib.util.spec_from_file_location("the_transformer", FILE)
one = importlib.util.module_from_spec(spec)
sys.modules["the_transformer"] = one  # dataclasses look for it
spec.loader.exec_module(one)

SAMPLE = shipped("data/sample")
TINY = "--epochs 2 --vocab_size 90 --d_model 16 --num_heads 2 --d_ff 32 --num_layers 1 --max_tokens 60"
MULTI30K = "train.de.gz", "train.en.gz", "test_2016_flickr.de.gz", "test_2016_flickr.en.gz"
PIECES = one.learn_pieces([side for pair in PAIRS for side in pair], 90)
ALL_ARE_EQUAL = {"rtol": 1e-5, "atol": 1e-5}


def new_models():
    """The file's model and the library's, with the same weights."""
    ours = one.Transformer(one.Config(len(PIECES), 32, 4, 64, 2)).eval()
    sizes = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2, "norm_first": True}
    sizes |= {"positions": "sinusoidal", "max_len": one.MAX_LEN, "tie_embeddings": True}
    theirs = Transformer(TransformerConfig(len(PIECES), len(PIECES), **sizes)).eval()
    theirs.load_state_dict(ours.state_dict(), strict=False)
    return ours, theirs


@pytest.fixture
def models():
    """The file's model and the library's, with the same weights, none at a special value."""
    torch.manual_seed(1)
    ours, theirs = new_models()
    shake(ours)
    theirs.load_state_dict(ours.state_dict(), strict=False)
    return ours, theirs


def batch(sentences=5, length=9, seed=0):
    """Random sentences, some of them padded: ``[sentences, length]``."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, len(PIECES), (sentences, length), generator=generator)
    ids[1, length // 2 :] = ids[3, length // 3 :] = one.PAD
    return ids


@pytest.fixture
def texts(tmp_path):
    """Four small files, the last two to test with."""
    paths = []
    for name, pairs in (("train", PAIRS), ("test", PAIRS[:6])):
        for side in ("src", "tgt"):
            paths.append(tmp_path / f"{name}.{side}")
            paths[-1].write_text("".join(f"{getattr(pair, side)}\n" for pair in pairs), encoding="utf-8")
    return paths


@pytest.fixture
def command(monkeypatch, capsys):
    """A function that runs a command in this process, and returns what it prints and the line that it ends with."""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", [str(FILE), *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        ended = None
        try:
            runpy.run_path(str(FILE), run_name="__main__")
        except SystemExit as error:
            ended = error.code
        return capsys.readouterr().out, ended

    return run


def train(texts, model):
    return ["--model", model, "train", "--texts", *texts[:2], "--test", *texts[2:], *TINY.split()]


# ---- The file ----


def test_it_is_short_and_needs_torch_alone():
    source = FILE.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 400
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in modules} - {"torch"} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("box", "room"),
    [
        ("scaled_dot_product_attention", attention),
        ("MultiHeadAttention", attention),
        ("padding_mask", masks),
        ("causal_mask", masks),
        ("target_mask", masks),
        ("SinusoidalPositionalEncoding", embeddings),
        ("PositionwiseFeedForward", sublayers),
        ("EncoderLayer", encoder),
        ("DecoderLayer", decoder),
    ],
)
def test_boxes_have_the_librarys_names_and_first_arguments(box, room):
    ours, theirs = getattr(one, box), getattr(room, box)
    pairs = [(ours, theirs)] if inspect.isfunction(ours) else [(ours, theirs), (ours.forward, theirs.forward)]
    for mine, its in pairs:
        names = [*inspect.signature(mine).parameters]
        assert names == [*inspect.signature(its).parameters][: len(names)]


# ---- Its boxes are the library's ----


def test_logits_are_the_librarys_with_the_files_weights(models):
    ours, theirs = models
    src, tgt = batch(length=40), batch(length=one.MAX_LEN, seed=1)  # to the last position
    torch.testing.assert_close(ours(src, tgt), theirs(src, tgt), **ALL_ARE_EQUAL)


def test_logits_are_the_librarys_with_the_librarys_weights(models):
    ours, theirs = models
    shake(theirs)
    unexpected = ours.load_state_dict(theirs.state_dict(), strict=False)
    assert not unexpected.missing_keys
    torch.testing.assert_close(ours(batch(), batch()), theirs(batch(), batch()), **ALL_ARE_EQUAL)


def test_positions_are_the_librarys():
    ours = one.SinusoidalPositionalEncoding(one.MAX_LEN, 32)
    theirs = embeddings.SinusoidalPositionalEncoding(one.MAX_LEN, 32)
    torch.testing.assert_close(ours(one.MAX_LEN), theirs(one.MAX_LEN), rtol=0, atol=1e-6)
    torch.testing.assert_close(ours(2)[1, :2], torch.tensor([math.sin(1), math.cos(1)]))


def test_attention_maps_are_the_librarys(models):
    ours, theirs = models
    src, tgt = batch(length=7), batch(length=5)
    maps = theirs.attention_maps(src, tgt)
    x, mask = ours.embed(src), one.padding_mask(src, one.PAD)
    for layer, expected in zip(ours.encoder.layers, maps.encoder, strict=True):
        x, weights = layer(x, mask)
        torch.testing.assert_close(weights, expected, **ALL_ARE_EQUAL)
    memory, x, tgt_mask = ours.encoder.norm(x), ours.embed(tgt), one.target_mask(tgt, one.PAD)
    for layer, *expected in zip(ours.decoder.layers, maps.decoder, maps.cross, strict=True):
        x, *weights = layer(x, memory, tgt_mask, mask)
        torch.testing.assert_close(weights, expected, **ALL_ARE_EQUAL)


def test_masks_by_hand():
    ids = torch.tensor([[2, 7, 3, 1], [2, 5, 8, 3]])  # 1 is padding
    assert one.padding_mask(ids, 1).shape == (2, 1, 1, 4)
    assert one.padding_mask(ids, 1).int().tolist() == [[[[1, 1, 1, 0]]], [[[1, 1, 1, 1]]]]
    first = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]
    second = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert one.target_mask(ids, 1).int().tolist() == [[first], [second]]


def test_attention_by_hand():
    query, key = torch.tensor([[2.0]]), torch.tensor([[0.0], [torch.tensor(3.0).log().item() / 2], [9.0]])
    value = torch.tensor([[4.0], [8.0], [100.0]])
    output, weights = one.scaled_dot_product_attention(query, key, value, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(weights, torch.tensor([[0.25, 0.75, 0.0]]))  # scores 0 and log 3
    torch.testing.assert_close(output, torch.tensor([[7.0]]))


def test_loss_is_the_librarys():
    logits, targets = torch.randn(2, 5, 11), torch.tensor([[4, 5, 6, 3, 1], [9, 3, 1, 1, 1]])
    for smoothing in (0.0, 0.1):
        expected = sequence_loss(logits, targets, 1, smoothing)
        torch.testing.assert_close(one.token_loss(logits, targets, 1, smoothing), expected)


def test_an_epoch_is_the_librarys(models):
    """With plain gradient descent: Adam would make the sign of a gradient near zero matter."""
    ours, theirs = models
    batches = [Batch(batch(seed=seed), batch(length=7, seed=seed + 1)) for seed in range(3)]
    losses = []
    for model, epoch in ((ours, one.train_one_epoch), (theirs, train_epoch)):
        model.requires_grad_(True)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            elif isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
        if epoch is train_epoch:
            losses.append(epoch(model, batches, optimizer, schedule, progress=False))
        else:
            losses.append(epoch(model, batches, optimizer, schedule, one.PAD))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(ours(batch(), batch()), theirs(batch(), batch()), rtol=1e-4, atol=1e-4)


# ---- Search and BLEU ----


@pytest.fixture(scope="module")
def half_taught():
    """The file's model and the library's, which know some English, but are not sure of it: outputs end, or do not."""
    torch.manual_seed(1)
    ours, theirs = new_models()
    tokenizer = one.Tokenizer(PIECES)
    pairs = [[tokenizer.encode(pair.src), tokenizer.encode(pair.tgt)] for pair in PAIRS]
    optimizer = torch.optim.Adam(ours.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    for _ in range(25):
        one.train_one_epoch(ours, one.make_batches(pairs, 60), optimizer, schedule, one.PAD, 0.1)
    theirs.load_state_dict(ours.state_dict(), strict=False)
    return ours.eval(), theirs, one.padded([src for src, _ in pairs])


@pytest.mark.parametrize("length_penalty", [0.0, 0.6])
@pytest.mark.parametrize("beam_size", [1, 2, 4])
@torch.no_grad()
def test_search_is_the_librarys(half_taught, beam_size, length_penalty):
    ours, theirs, src = half_taught

    def next_log_probs(tgt, memory, memory_mask):
        logits = ours.decode(tgt, memory, memory_mask)[:, -1]
        logits[:, [one.PAD, one.SOS]] = -torch.inf
        return logits.log_softmax(dim=-1)

    lengths = Counter()
    for max_len in (3, 9, 25):
        limits = beam_size, max_len, lambda length: ((5 + length) / 6) ** length_penalty
        found = one.beam(next_log_probs, *ours.encode(src), one.SOS, one.EOS, *limits)
        expected = beam_search(theirs, src, one.SOS, one.EOS, beam_size, length_penalty, max_len)
        assert [[ids for _, ids in some] for some in found] == [[each.ids for each in some] for some in expected]
        scores = [score for some in found for score, _ in some]
        assert scores == pytest.approx([each.score for some in expected for each in some], rel=1e-4)
        lengths.update(len(ids) for some in found for _, ids in some)
        if beam_size == 1:
            assert [some[0][1] for some in found] == [each.ids for each in greedy_search(theirs, src, 2, 3, max_len)]
    assert len(lengths) > 5  # or the search has not been tried


def test_a_beam_is_given_one_number_for_its_length(trained, monkeypatch):
    """As the beam of notebook 07 expects: room for 50 more than the longest source has, at most MAX_LEN."""
    limits = []
    search = one.beam
    monkeypatch.setattr(one, "beam", lambda *given: limits.append(given[6]) or search(*given))
    model, tokenizer, _ = one.load(trained)
    for sentences in (SENTENCES, ["hund " * 240]):
        translations = [*one.translate(model, tokenizer, sentences, 1, 0.0)]
        assert len(translations) == len(sentences)
    assert limits == [max(len(tokenizer.encode(sentence)) for sentence in SENTENCES) + 50, one.MAX_LEN]


def words(text):
    return re.sub(one.SIGNS, r" \g<0> ", text.lower()).split()


def test_bleu_is_by_definition_and_sacrebleus():
    references = [pair.tgt for pair in load_corpus("sample")["test"][:60]] + [
        'He said: "1,000.5 - it\'s (e.g.) 3-D, some .5 or ,7."'
    ] * 2
    generator = random.Random(0)
    worse = [" ".join(w for w in text.split() if generator.random() < 0.9) for text in references]
    again = [f"{text} {text} the the the the" for text in references]  # what is there once, counts once
    for hypotheses in (references, worse, worse[::-1], again, [""] * len(references)):
        tokens = [list(map(words, hypotheses)), list(map(words, references))]
        assert one.corpus_bleu(*tokens) == pytest.approx(by_definition(*tokens))
        sacre = sacrebleu.BLEU(lowercase=True, smooth_method="none").corpus_score(hypotheses, [references]).score
        assert one.corpus_bleu(*tokens) == pytest.approx(sacre)
    assert 20 < one.corpus_bleu(list(map(words, worse)), list(map(words, references))) < 95


# ---- Subwords ----


@example("Ein Ma\u0308dchen  re\u0301sume\u0301", 3)  # letters and their accents apart
@given(st.text(max_size=90), st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back(text, joins):
    """In lower case, with single spaces, accents with their letters, and ▁, which stands for a space, as one."""
    expected = " ".join(unicodedata.normalize("NFC", word) for word in text.replace("▁", " ").lower().split())
    if expected:
        pieces = one.learn_pieces([text, text], len(set(text)) + joins)
        assert len({*pieces}) == len(pieces)
        tokenizer = one.Tokenizer(pieces)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == expected
        assert (ids[0], ids[-1]) == (one.SOS, one.EOS)
        assert min(ids[1:-1]) > one.EOS  # nothing is unknown, and no text is a special token


def test_the_most_frequent_neighbours_are_joined_first():
    pieces = one.learn_pieces(["ab ab abc", "bc"], 100)
    assert pieces[4:8] == ["a", "b", "c", "▁"]
    assert pieces[8:] == ["▁a", "▁ab"]  # three times each (of a tie, what was seen first); then, all are there once
    tokenizer = one.Tokenizer(["<unk>", "<pad>", "<sos>", "<eos>", *"▁abc", "bc", "ab", "▁ab"])
    assert tokenizer.cut("▁abc") == ["▁", "a", "bc"]  # "bc" was learned before "ab"
    assert tokenizer.cut("▁abab") == ["▁ab", "ab"]
    assert tokenizer.encode("a?b") == [one.SOS, 4, 5, one.UNK, 6, one.EOS]


@pytest.mark.parametrize("unit", ["a", "ab.", "e\u0301\u0327", "\u0301", "▁", ".", "日", "a ", "<eos>"])
def test_hostile_text_takes_linear_work(unit):
    class Asked(dict):
        times = 0

        def get(self, *key):
            self.times += 1
            return super().get(*key)

    work = []
    for length in (2_000, 20_000):
        tokenizer = one.Tokenizer(PIECES)
        tokenizer.cut = tokenizer.cut.__wrapped__  # without its memory
        tokenizer.ids = Asked(tokenizer.ids)
        text = (unit * length)[:length]
        assert max(map(len, one.words_of(text)), default=0) <= 101
        tokenizer.encode(text)
        work.append(tokenizer.ids.times)
    assert work[1] <= 11 * work[0] + 100
    one.learn_pieces(["x" + (unit * 20_000)[:20_000]], 60)


def test_a_sentence_that_is_too_long_loses_its_end():
    ids = one.Tokenizer(PIECES).encode("ein hund " * 200)
    assert len(ids) == one.MAX_LEN
    assert ids[-1] == one.EOS


# ---- Translator can use what it trained, and the other way round ----


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A file that ``train`` could have saved: a tiny model that has learnt nothing."""
    path = tmp_path_factory.mktemp("trained") / "model.pt"
    config = one.Config(len(PIECES), 16, 2, 32, 2, beam_size=3)
    torch.manual_seed(0)
    model = one.Transformer(config)
    shake(model)
    torch.save({"config": vars(config), "pieces": PIECES, "weights": model.state_dict(), "epoch": 1}, path)
    return path


SENTENCES = ["Ein Hund schläft im Garten.", "Die Frau liest.", "Zwei Hunde spielen, ein Kind schläft."]


def test_translator_writes_what_the_file_writes(trained, tmp_path):
    model, tokenizer, _ = one.load(trained)
    translator = from_one_file(trained)
    assert [translator.src_tokenizer.encode(s) for s in SENTENCES] == [tokenizer.encode(s) for s in SENTENCES]
    for beam_size in (1, 3):
        alone = [one.translate(model, tokenizer, [sentence], beam_size, 0.6) for sentence in SENTENCES]
        expected = [text for (text,) in alone]  # in a batch, the longest source says how long all outputs may become
        assert translator(SENTENCES, beam_size) == expected
    assert translator(SENTENCES) == expected  # it searches as the file does
    save_model(
        tmp_path / "library", translator.model, {"src": translator.src_tokenizer, "tgt": translator.tgt_tokenizer}
    )
    assert Translator.load(tmp_path / "library")(SENTENCES, 3, 0.6) == expected


def test_the_file_writes_what_translator_writes(trained, tmp_path, command):
    translator = Translator.load()  # the one that is included
    to_one_file(translator, tmp_path / "included.pt")
    sentences = [pair.src for pair in load_corpus("sample")["test"][:3]]
    printed, ended = command("--model", tmp_path / "included.pt", "translate", *sentences)
    assert ended is None
    assert printed.splitlines() == translator(sentences)
    to_one_file(from_one_file(trained), tmp_path / "again.pt")
    (model, tokenizer, _), (expected, _, _) = one.load(tmp_path / "again.pt"), one.load(trained)
    assert tokenizer.pieces == PIECES
    torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"norm_first": False}, "norm_first"),
        ({"positions": "learned"}, "positions"),
        ({"activation": "gelu"}, "activation"),
    ],
)
def test_what_the_file_has_not_is_refused(trained, tmp_path, change, names):
    translator = from_one_file(trained)
    settings = {**vars(translator.model.config), **change}
    other = Translator(Transformer(TransformerConfig(**settings)), translator.src_tokenizer, translator.tgt_tokenizer)
    with pytest.raises(ValueError, match=names):
        to_one_file(other, tmp_path / "other.pt")


def test_other_tokenisers_are_refused(trained, tmp_path, tokenizers):
    translator = from_one_file(trained)
    cased = SubwordTokenizer("de", translator.src_tokenizer.pieces, lower=False)
    for src, tgt in ((cased, translator.tgt_tokenizer), (cased, cased)):
        with pytest.raises(ValueError, match="src_tokenizer"):
            to_one_file(Translator(translator.model, src, tgt), tmp_path / "other.pt")
    words_of = {"src": tokenizers[0], "tgt": tokenizers[0]}
    size = len(tokenizers[0].vocab)
    config = {**vars(translator.model.config), "src_vocab_size": size, "tgt_vocab_size": size}
    with pytest.raises(ValueError, match="src_tokenizer"):
        to_one_file(Translator(Transformer(TransformerConfig(**config)), *words_of.values()), tmp_path / "other.pt")


def test_a_damaged_file_is_refused(trained, tmp_path):
    whole, path = trained.read_bytes(), tmp_path / "damaged.pt"
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (b"", b"text", whole[:100], whole[:middle], whole[:-1], flipped):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=re.escape(str(path))):
            from_one_file(path)
    saved = torch.load(trained, weights_only=True)
    wrong = [{}, {**saved, "config": {}}, {**saved, "pieces": PIECES[:-1]}, {**saved, "weights": {}}, [1, 2]]
    wrong += [{**saved, "config": {**saved["config"], "num_layers": 10**9}}, {**saved, "pieces": ["x" * 20_000] * 90}]
    for content in wrong:
        torch.save(content, path)
        with pytest.raises(CheckpointError, match=re.escape(str(path))):
            from_one_file(path)
    with pytest.raises(FileNotFoundError):
        from_one_file(tmp_path / "missing.pt")
    with pytest.raises(CheckpointError):
        from_one_file(SHIPPED_MODEL)
    with pytest.raises(CheckpointError):
        load_model(trained)


# ---- Commands ----


def test_training_shows_what_it_learns_and_the_score_it_reports_is_sacrebleus(texts, tmp_path, command):
    model = tmp_path / "new" / "model.pt"
    printed, ended = command(*train(texts, model))
    assert ended is None
    epochs = printed.split("\nepoch ")[1:]
    assert [int(part.split(":")[0]) for part in epochs] == [1, 2]
    losses = [float(re.search(r"loss (\S+),", part).group(1)) for part in epochs]
    assert losses[1] < losses[0]
    assert len(epochs[0].splitlines()) == 6  # five translations
    assert not [*model.parent.glob("*.new")]
    references = texts[3].read_text().splitlines()
    found, tokenizer, _ = one.load(model)
    for beam_size in (1, 4):
        translations = [*one.translate(found, tokenizer, texts[2].read_text().splitlines(), beam_size, 0.6)]
        score = sacrebleu.BLEU(lowercase=True, smooth_method="none").corpus_score(translations, [references]).score
        assert f"beam of {beam_size}: {score:.2f}\n" in printed


def weights(path):
    return torch.load(path, weights_only=True)["weights"]


def assert_same_end(path, other):
    torch.testing.assert_close(weights(path), weights(other), rtol=0, atol=0)


def test_a_stopped_training_goes_on_as_if_nothing_had_happened(texts, tmp_path, command, monkeypatch):
    whole, stopped = tmp_path / "whole.pt", tmp_path / "stopped.pt"
    printed, _ = command(*train(texts, whole))
    save = torch.save

    def stop(state, path):
        if state["epoch"] == 2:
            Path(path).write_bytes(b"half of ")
            signal.raise_signal(signal.SIGINT)  # Ctrl-C
        save(state, path)

    with monkeypatch.context() as context:
        context.setattr(torch, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            command(*train(texts, stopped))
    assert torch.load(stopped, weights_only=True)["epoch"] == 1
    rest, ended = command(*train(texts, stopped))
    assert ended is None
    assert_same_end(stopped, whole)
    assert rest.partition("epoch 2")[2].split("\n")[1:] == printed.partition("epoch 2")[2].split("\n")[1:]
    before = stopped.read_bytes()
    rest, _ = command(*train(texts, stopped))
    assert "epoch" not in rest  # nothing is left to learn; it scores again
    assert stopped.read_bytes() == before


def test_another_training_does_not_overwrite_a_model(texts, tmp_path, command):
    model = tmp_path / "model.pt"
    command(*train(texts, model))
    before = model.read_bytes()
    for change in (["--seed", 2], ["--texts", *texts[2:]]):
        _, ended = command(*train(texts, model), *change)
        assert str(model) in ended
        assert model.read_bytes() == before


def test_seeds_differ_and_repeat(texts, tmp_path, command):
    for name, seed in (("first", 1), ("second", 1), ("third", 2)):
        command(*train(texts, tmp_path / name), "--seed", seed)
    assert_same_end(tmp_path / "first", tmp_path / "second")
    with pytest.raises(AssertionError):
        assert_same_end(tmp_path / "first", tmp_path / "third")


def test_seeds_begin_with_other_weights(texts, tmp_path, command):
    for seed in (1, 2):  # at a learning rate of 0, the first weights are the last
        command(*train(texts, tmp_path / f"{seed}"), "--learning_rate", 0, "--epochs", 1, "--seed", seed)
    with pytest.raises(AssertionError):
        assert_same_end(tmp_path / "1", tmp_path / "2")


def test_a_byte_order_mark_is_no_character_of_the_first_line(texts, tmp_path, command):
    texts[0].write_text(texts[0].read_text(encoding="utf-8"), encoding="utf-8-sig")
    command(*train(texts, tmp_path / "model.pt"))
    pieces = torch.load(tmp_path / "model.pt", weights_only=True)["pieces"]
    assert not [piece for piece in pieces if "\ufeff" in piece]


def test_translate_reads_arguments_or_lines(trained, command):
    printed, ended = command("--model", trained, "translate", *SENTENCES)
    assert (len(printed.splitlines()), ended) == (3, None)
    again, _ = command("--model", trained, "translate", stdin="\n".join(SENTENCES))
    assert again == printed


WRONG_TEXTS = {
    "missing": None,
    "no text": b"",
    "shorter": b"A dog is sleeping.\n" * 7,
    "longer": b"A dog is sleeping.\n" * 9,
    "an empty line": b"A dog is sleeping.\n" * 3 + b" \n" + b"A dog is sleeping.\n" * 4,
    "no UTF-8": b"\xff\n" * 8,
}


@pytest.mark.parametrize("content", WRONG_TEXTS.values(), ids=WRONG_TEXTS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_text_that_cannot_be_used_is_named_in_one_line(texts, tmp_path, command, content, which):
    texts[which].unlink()
    if content is not None:
        texts[which].write_bytes(content)
    printed, ended = command(*train(texts, tmp_path / "model.pt"))
    longer = content is not None and content.count(b"\n") == 9
    assert str(texts[1 - which if longer else which]) in ended  # of two lengths, the shorter lacks something
    assert "\n" not in ended
    assert not printed
    assert not (tmp_path / "model.pt").exists()


def test_a_truncated_archive_is_named_in_one_line(texts, tmp_path, command):
    packed = tmp_path / "train.src.gz"
    packed.write_bytes(gzip.compress(texts[0].read_bytes()))
    _, ended = command(*train([packed, *texts[1:]], tmp_path / "model.pt"))
    assert ended is None
    packed.write_bytes(packed.read_bytes()[:-20])
    _, ended = command(*train([packed, *texts[1:]], tmp_path / "other.pt"))
    assert str(packed) in ended
    assert "\n" not in ended


def test_a_model_that_cannot_be_used_is_named_in_one_line(trained, texts, tmp_path, command):
    whole, path = trained.read_bytes(), tmp_path / "model.pt"
    for content in (None, b"", b"text", whole[:100], whole[: len(whole) // 2], whole[:-1]):
        if content is not None:
            path.write_bytes(content)
        _, ended = command("--model", path, "translate", "Ein Hund.")
        assert str(path) in ended
        assert "\n" not in ended
        if content is not None:
            _, ended = command(*train(texts, path))
            assert str(path) in ended
            assert path.read_bytes() == content
    torch.save({**torch.load(trained, weights_only=True), "weights": {}}, path)
    _, ended = command("--model", path, "translate", "Ein Hund.")
    assert str(path) in ended
    assert "\n" not in ended


@pytest.mark.parametrize("sentences", [[], [""], ["Ein Hund.", " \n"], ["Hund " * 300]], ids=str)
def test_no_text_to_translate_is_said_in_one_line(trained, command, sentences):
    printed, ended = command("--model", trained, "translate", *sentences)
    assert not printed
    assert ended
    assert "\n" not in ended


def test_the_commands_of_the_docstring_run(texts, tmp_path, command, monkeypatch):
    lines = re.findall(r"^    (python .*)$", one.__doc__, re.MULTILINE)
    for text, *names in zip(texts, ("my.de", "my.en", "test.de", "test.en"), (*MULTI30K,), strict=True):
        (tmp_path / names[0]).write_bytes(text.read_bytes())
        (tmp_path / "multi30k").mkdir(exist_ok=True)
        (tmp_path / "multi30k" / names[1]).write_bytes(gzip.compress(text.read_bytes()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path))
    kinds = Counter()
    for line in lines:
        program, file, *arguments = shlex.split(line)
        assert (program, file) == ("python", FILE.name)
        kind = "train" if "train" in arguments else arguments[0]
        kinds[kind] += 1
        if kind == "train":
            arguments += TINY.split()
        printed, ended = command(*arguments)
        assert ended is None
        assert printed
    assert Path("the_transformer.pt").exists() and Path("my.pt").exists()
    assert kinds == {"train": 2, "translate": 1}
    printed, ended = command("--help")
    assert ended == 0
    assert all(line in printed for line in lines)


@pytest.mark.processes
def test_an_error_is_one_line_and_an_exit_code(tmp_path):
    command = [sys.executable, FILE, "--model", tmp_path / "nowhere.pt", "translate", "Hund"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode
    assert len(ended.stderr.splitlines()) == 1
    assert not ended.stdout


KILLED = """
import io, os, runpy, signal, sys, torch
save = torch.save
def half(state, path):
    if state["epoch"] == 2:
        buffer = io.BytesIO()
        save(state, buffer)
        with open(path, "wb") as file:
            file.write(buffer.getvalue()[: len(buffer.getvalue()) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    save(state, path)
torch.save = half
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no such signal")
def test_killed_in_the_middle_of_saving_it_leaves_the_older_file_whole(texts, tmp_path, command):
    whole, killed = tmp_path / "whole.pt", tmp_path / "killed.pt"
    command(*train(texts, whole))
    arguments = [sys.executable, "-c", KILLED, FILE, *map(str, train(texts, killed))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(arguments, env=environment, capture_output=True).returncode == -signal.SIGKILL
    assert torch.load(killed, weights_only=True)["epoch"] == 1
    _, ended = command("--model", killed, "translate", "Ein Hund.")
    assert ended is None
    command(*train(texts, killed))
    assert_same_end(killed, whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_it_uses_a_gpu(texts, tmp_path, kind):
    """On the stand-in of ``standin_device.py``."""
    code = "import standin_device; standin_device.install(); import runpy, sys; sys.argv = sys.argv[1:]"
    code += "; runpy.run_path(sys.argv[0], run_name='__main__')"
    path = os.pathsep.join([str(FILE.parent / "tests"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "STANDIN": kind, "PYTHONPATH": path}
    for _ in range(2):  # the second goes on, from a file
        arguments = [sys.executable, "-c", code, FILE, *map(str, train(texts, tmp_path / "model.pt"))]
        ended = subprocess.run(arguments, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert f"on {kind}" in ended.stdout


LEARNS = "--epochs 4 --vocab_size 600 --d_model 64 --num_heads 4 --d_ff 128 --num_layers 2 --dropout 0"
LEARNS += " --max_tokens 512 --learning_rate 4e-3"  # a minute on two cores


@pytest.mark.slow
def test_it_learns_the_sample_corpus_in_a_minute(tmp_path, command):
    files = [SAMPLE / f"{split}.{side}" for split in ("train", "test") for side in ("de", "en")]
    model = tmp_path / "model.pt"
    printed, _ = command("--model", model, "train", "--texts", *files[:2], "--test", *files[2:], *LEARNS.split())
    greedy, beam = map(float, re.findall(r"BLEU with a beam of \d: (\S+)", printed))
    assert greedy > 75  # seeds 1 and 2: 83.1 and 85.6, and 84.7 and 87.0 with the beam
    assert beam > 75
    sources = files[2].read_text(encoding="utf-8").splitlines()
    found, tokenizer, _ = one.load(model)
    expected = [*one.translate(found, tokenizer, sources[:100], 4, 0.6)]
    assert from_one_file(model)(sources[:100]) == expected
