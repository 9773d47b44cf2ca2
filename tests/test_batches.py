import dataclasses
import itertools
import pickle
import random
import string
import subprocess
import sys
from collections import UserDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchtext.data import BucketIterator
from torchtext.datasets import LanguageModelingDataset

from transformer_lib import Transformer
from transformer_lib.data.batches import Batch, BucketBatches, build_vocabularies, make_dataset, tensors_of
from transformer_lib.data.corpora import Pair, read_text
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import EOS, SOS, UNK, WordTokenizer
from transformer_lib.data.torchtext import to_field, to_torchtext
from transformer_lib.language_model.stream import BPTTBatches, StreamTokenizer, TextDataset
from transformer_lib.training.loop import evaluate, train_epoch
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

PAD = 1


@pytest.fixture
def long_dataset():
    """2,000 pairs of random lengths, the two sides related as in a real corpus."""
    rng = random.Random(0)
    pairs = []
    for i in range(2000):
        length = rng.randint(3, 30)
        pairs.append(Pair(" ".join([f"s{i}"] * length), " ".join([f"t{i}"] * max(1, length + rng.randint(-3, 3)))))
    dataset = make_dataset(pairs, WordTokenizer("de"), WordTokenizer("en"))
    build_vocabularies(dataset, min_freq=1)
    return dataset


def contents(batches):
    return [sorted(batch.src[:, 1].tolist()) for batch in batches]


def test_batches_are_batch_first_between_sos_and_eos(dataset):
    batch = next(iter(BucketBatches(dataset, 3)))
    src_tokenizer = dataset.tokenizers["src"]
    assert batch.src.shape[0] == batch.tgt.shape[0] == 3
    assert batch.src[:, 0].eq(src_tokenizer.sos_id).all()
    assert batch.src.eq(src_tokenizer.eos_id).sum(dim=1).eq(1).all()


@pytest.mark.parametrize("arguments", [{"batch_size": 64}, {"max_tokens": 1000}])
@pytest.mark.parametrize("train", [True, False])
def test_every_pair_comes_once_and_stays_a_pair(long_dataset, arguments, train):
    seen = []
    src_words, tgt_words = (long_dataset.tokenizers[side].vocab.itos for side in ("src", "tgt"))
    for batch in BucketBatches(long_dataset, **arguments, train=train):
        for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
            assert src_words[src[1]][1:] == tgt_words[tgt[1]][1:]
            seen.append(src[1])
    assert len(seen) == len(set(seen)) == 2000


@pytest.mark.parametrize("arguments", [{"batch_size": 64}, {"max_tokens": 1000}])
def test_little_is_padding(long_dataset, arguments):
    padding = positions = 0
    for batch in BucketBatches(long_dataset, **arguments, train=True):
        padding += batch.src.eq(PAD).sum().item() + batch.tgt.eq(PAD).sum().item()
        positions += batch.src.numel() + batch.tgt.numel()
    assert padding / positions < 0.1


def test_small_batches_by_tokens_come_from_one_pool(long_dataset):
    """torchtext's pools of a hundred such batches would hold a few hundred sentences each, and pad twice as much."""
    batches = list(BucketBatches(long_dataset, max_tokens=150, train=True))
    shares = [torch.cat([b.src.eq(PAD).flatten(), b.tgt.eq(PAD).flatten()]).float().mean() for b in batches]
    assert sum(shares) / len(shares) < 0.03


def test_no_batch_has_more_tokens_than_asked_for(long_dataset):
    sizes = [
        max(batch.src.numel(), batch.tgt.numel()) for batch in BucketBatches(long_dataset, max_tokens=500, train=True)
    ]
    assert max(sizes) <= 500
    assert sum(sizes) / len(sizes) > 400  # and most are nearly full


def test_the_number_of_batches_is_known_beforehand(long_dataset):
    for arguments in ({"batch_size": 64}, {"max_tokens": 1000}):
        sorted_batches = BucketBatches(long_dataset, **arguments)
        assert len(sorted_batches) == len(list(sorted_batches))
        shuffled = BucketBatches(long_dataset, **arguments, train=True)
        assert len(shuffled) == len(list(shuffled))


def test_the_order_follows_from_seed_and_epoch(long_dataset):
    batches = BucketBatches(long_dataset, 64, train=True, seed=5)
    first = contents(batches)
    batches.set_epoch(2)
    second = contents(batches)
    assert first != second
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second))
    assert {tuple(b) for b in first} != {tuple(b) for b in second}  # not only the order: other sentences meet
    again = BucketBatches(long_dataset, 64, train=True, seed=5)
    again.set_epoch(2)
    assert contents(again) == second
    assert contents(BucketBatches(long_dataset, 64, train=True, seed=6)) != first


def test_training_order_is_not_sorted_by_length(long_dataset):
    widths = [batch.src.shape[1] for batch in BucketBatches(long_dataset, 64, train=True)]
    steps_up = sum(b > a for a, b in itertools.pairwise(widths))
    assert 0.25 < steps_up / (len(widths) - 1) < 0.75


def test_evaluation_always_has_the_same_order(long_dataset):
    batches = BucketBatches(long_dataset, 64)
    assert contents(batches) == contents(batches)


def test_impossible_sizes_are_refused(dataset):
    for size in ((None, None), (2, 9), (0, None)):
        with pytest.raises(ValueError, match=f"batch_size={size[0]} and max_tokens={size[1]}, expected one of them"):
            BucketBatches(dataset, *size)


def test_what_cannot_be_used_is_left_out_counted_and_named(pairs, tokenizers, capsys):
    bad = [("Ein Hund", " "), ("Ein Hund \ud83d", "A dog"), pairs[1], ("Hund " * 40, "dog"), ("\x1b[2J", "")]
    lines = []
    dataset = make_dataset([*pairs, *bad], *tokenizers, max_len=20, log=lines.append)
    assert dataset.pairs == [*pairs, pairs[1]]
    assert dataset.examples == make_dataset(dataset.pairs, *tokenizers).examples
    (line,) = lines
    assert line.startswith("4 of 13 pairs left out: pair 9, Pair(src='Ein Hund', tgt=''): a side is empty; pair 10, ")
    assert "surrogates not allowed; pair 12, " in line and line.endswith("expected at most max_len=20")
    assert line.isprintable()  # whatever the text holds
    make_dataset([*pairs, ("", "dog")], *tokenizers)
    assert "1 of 9 pairs left out: pair 9, " in capsys.readouterr().out  # where nobody says where to
    with pytest.raises(ValueError, match=r"most pairs .* 8 of 8 pairs left out: pair 1, .* max_len=3"):
        make_dataset(pairs, *tokenizers, max_len=3)


def test_what_is_no_pair_is_refused(pairs, tokenizers):
    for pair in ("Ein Hund schläft.", ("Hund", "dog", "chien"), {"de": "Hund", "en": "dog"}, ("Hund", None)):
        with pytest.raises(ValueError, match=r"pair 9 is .*, expected a sentence and its translation"):
            make_dataset([*pairs, pair], *tokenizers)


def test_a_word_that_occurs_in_several_sentences_is_in_memory_once(pairs, tokenizers):
    examples = make_dataset(pairs * 2, *tokenizers).examples
    tokens = [token for example in examples for side in example for token in side]
    assert len({id(token) for token in tokens}) == len(set(tokens))


@pytest.fixture
def alphabet():
    """The letters A to Z on one line."""
    tokenizer = StreamTokenizer()
    dataset = TextDataset([" ".join(string.ascii_uppercase)], tokenizer)
    tokenizer.build_vocab([dataset.tokens])
    return dataset


def test_a_text_is_cut_into_rows_and_the_target_comes_one_token_later(alphabet):
    """27 tokens with <eos>: four rows of seven, the last one filled up with padding."""
    tokenizer = alphabet.tokenizers["text"]
    chunks = BPTTBatches(alphabet, batch_size=4, bptt=4)
    assert len(chunks) == 2

    def letters(ids):
        return ["".join(tokenizer.decode(row)) for row in ids.tolist()]

    for _ in range(2):  # every epoch the same
        assert [letters(chunk.text) for chunk in chunks] == [
            ["ABCD", "HIJK", "OPQR", "VWXY"],
            ["EF", "LM", "ST", "Z<eos>"],
        ]
        assert [letters(chunk.target) for chunk in chunks] == [
            ["BCDE", "IJKL", "PQRS", "WXYZ"],
            ["FG", "MN", "TU", "<eos><pad>"],
        ]


def test_every_token_but_the_first_of_each_row_is_a_target_once():
    tokenizer = StreamTokenizer()
    dataset = TextDataset(["a b c d e f g", "", "h i j k l m n o p q"], tokenizer)
    tokenizer.build_vocab([dataset.tokens])
    tokens = len(dataset)
    assert tokens == 17 + 3
    for batch_size, bptt in itertools.product((1, 2, 3, 7), (1, 2, 3, 100)):
        chunks = list(BPTTBatches(dataset, batch_size, bptt))
        rows = torch.cat([chunk.target for chunk in chunks], dim=1)
        assert len(chunks) == len(BPTTBatches(dataset, batch_size, bptt))
        row_len = -(-tokens // batch_size)
        assert rows.shape == (batch_size, row_len - 1)
        begun = [row for row in range(batch_size) if row * row_len < tokens]  # the others are padding
        assert rows.ne(tokenizer.pad_id).sum() == tokens - len(begun)


def test_a_stream_is_what_torchtext_makes_of_a_file(tmp_path):
    lines = [" = Title = ", " ", " One two . ", ""]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    tokenizer = StreamTokenizer()
    stream = TextDataset(read_text(tmp_path / "text.txt"), tokenizer)
    theirs = LanguageModelingDataset(str(tmp_path / "text.txt"), to_field(tokenizer))
    assert stream.tokens == theirs[0].text
    assert stream.tokens == ["=", "Title", "=", "<eos>", "<eos>", "One", "two", ".", "<eos>"]


def test_a_text_that_is_too_short_is_refused(alphabet):
    with pytest.raises(ValueError, match="dataset has 27 tokens, expected at least two for each of 14 rows"):
        BPTTBatches(alphabet, batch_size=14)


def test_the_order_leaves_the_random_numbers_of_the_process_alone(dataset, monkeypatch):
    """Even for a moment: another thread might draw some."""
    monkeypatch.setattr(random, "setstate", lambda state: pytest.fail("the process's random numbers were changed"))
    before = random.getstate()
    orders = [[batch.tgt.tolist() for batch in BucketBatches(dataset, 2, train=True, seed=seed)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert random.getstate() == before


def as_ids(batches):
    """What is in batches: the pairs of sentences, as ids without padding, in no particular order."""
    rows = [pair for batch in batches for pair in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True)]
    return sorted(tuple(tuple(i for i in ids if i != PAD) for ids in pair) for pair in rows)


def test_a_data_loader_gives_the_ids_of_bucket_batches(dataset, pairs):
    expected = as_ids(BucketBatches(dataset, 3))
    assert len(expected) == len(pairs)
    for options in ({}, {"shuffle": True}):
        loader = DataLoader(dataset, batch_size=3, collate_fn=dataset.collate, **options)
        assert as_ids(loader) == expected


def test_collating_fills_the_shorter_sentences_up_with_padding(dataset):
    short, long = dataset[0], dataset[1]
    batch = dataset.collate([short, long])
    for side, ids in batch._asdict().items():
        tokenizer = dataset.tokenizers[side]
        expected = [tokenizer.ids([SOS, *getattr(example, side), EOS]) for example in (short, long)]
        assert ids.tolist() == [expected[0] + [PAD] * (len(expected[1]) - len(expected[0])), expected[1]]


def test_torchtexts_bucket_iterator_gives_the_same_ids_for_the_same_sentences(dataset):
    for options in ({}, {"train": False}, {"sort_within_batch": True}):
        assert as_ids(BucketIterator(to_torchtext(dataset), 3, **options)) == as_ids(BucketBatches(dataset, 3))


def test_a_field_tokenises_and_numbers_as_the_tokeniser_does(tokenizers):
    for tokenizer, sentence in zip(tokenizers, ("Ein Hund liest ein Zebra.", "A dog, a zebra!"), strict=True):
        field = to_field(tokenizer)
        tokens = field.preprocess(sentence)
        assert tokens == tokenizer.tokenize(sentence)
        assert field.process([tokens]).tolist() == [tokenizer.encode(sentence)]
        assert UNK in tokenizer.decode(tokenizer.encode(sentence))


def loaders(dataset):
    """The same batches, as several libraries would hand them over."""
    batches = list(BucketBatches(dataset, 8))
    return {
        "named tuples": batches,
        "tuples": [tuple(batch) for batch in batches],
        "lists": [list(batch) for batch in batches],
        "dictionaries": [batch._asdict() for batch in batches],
        "objects": [SimpleNamespace(**batch._asdict()) for batch in batches],
        "a DataLoader": DataLoader(dataset, 8, collate_fn=dataset.collate),
        "a DataLoader of tensors": DataLoader(TensorDataset(*batches[0]), 8),
        "torchtext's BucketIterator": BucketIterator(to_torchtext(dataset), 8),
    }


def one_step(config, batches):
    torch.manual_seed(0)
    model = Transformer(dataclasses.replace(config, dropout=0.0))
    loss = train_epoch(model, batches, torch.optim.SGD(model.parameters(), lr=0.1))
    return loss, evaluate(model, batches)


def test_an_epoch_is_the_same_whatever_hands_over_its_batches(dataset, tiny_config):
    kinds = loaders(dataset)
    expected = one_step(tiny_config, kinds.pop("named tuples"))
    for kind, batches in kinds.items():
        assert one_step(tiny_config, batches) == pytest.approx(expected, rel=1e-5), kind


@pytest.mark.parametrize("kind", ["a DataLoader", "torchtext's BucketIterator", "dictionaries"])
def test_fit_takes_any_sized_iterable_of_batches(dataset, tiny_config, kind):
    batches = loaders(dataset)[kind]
    history = fit(Transformer(tiny_config), batches, batches, Recipe(epochs=2), log=lambda line: None)
    assert history.val_loss[-1] < history.first_val_loss


SRC, TGT = torch.tensor([[2, 5, 3]]), torch.tensor([[2, 6, 7, 3]])
Pairs = namedtuple("Pairs", ["tgt", "extra", "src"])


@dataclasses.dataclass
class Sentences:
    tgt: torch.Tensor
    src: torch.Tensor
    extra: int = 0


@dataclasses.dataclass
class Slotted:
    __slots__ = ("src", "tgt")
    src: torch.Tensor
    tgt: torch.Tensor


class Properties:
    @property
    def src(self):
        return SRC

    @property
    def tgt(self):
        return TGT


def test_the_tensors_of_any_kind_of_batch_come_in_the_order_of_their_names():
    for batch in (
        Batch(SRC, TGT),
        (SRC, TGT),
        [SRC, TGT],
        {"tgt": TGT, "src": SRC, "text": ["Ein Hund", "A dog"]},
        UserDict(tgt=TGT, src=SRC),
        Pairs(TGT, None, SRC),
        Sentences(TGT, SRC),
        Slotted(SRC, TGT),
        Properties(),
        SimpleNamespace(tgt=TGT, src=SRC),
    ):
        src, tgt = tensors_of(batch, ["src", "tgt"], torch.device("cpu"))
        assert src is SRC and tgt is TGT, type(batch)


def test_what_a_batch_lacks_is_named():
    for batch in ({"source": SRC, "tgt": TGT}, SimpleNamespace(source=SRC, tgt=TGT), None):
        with pytest.raises((KeyError, AttributeError), match="'src'"):
            tensors_of(batch, ["src", "tgt"], torch.device("cpu"))


def test_the_tensors_are_brought_to_the_models_device():
    tensors = tensors_of({"src": SRC, "tgt": TGT}, ["src", "tgt"], torch.device("meta"))
    assert [tensor.device.type for tensor in tensors] == ["meta", "meta"]


def test_a_dataset_and_its_batches_can_be_pickled(dataset):
    """So that the processes of a DataLoader can have them, where a process starts from nothing."""
    again = pickle.loads(pickle.dumps(dataset))
    assert again.examples == dataset.examples
    for one, other in zip(BucketBatches(again, 3), pickle.loads(pickle.dumps(BucketBatches(dataset, 3))), strict=True):
        assert one.src.equal(other.src) and one.tgt.equal(other.tgt)


def test_a_running_text_can_be_pickled(alphabet):
    again = pickle.loads(pickle.dumps(alphabet))
    assert again.tokens == alphabet.tokens and again.ids().equal(alphabet.ids())


WITHOUT_TORCHTEXT = """
import sys
import transformer_lib.data.batches
assert "torchtext" not in sys.modules, "batches"
from transformer_lib import Transformer, TransformerConfig, Translator, WordTokenizer, fit, train_translator
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.training.recipe import Recipe
src, tgt = WordTokenizer(None), WordTokenizer(None)  # without spaCy, which takes a while to load
data = make_dataset([("Ein Hund schläft .", "A dog sleeps .")] * 3, src, tgt)
build_vocabularies(data)
model = Transformer(TransformerConfig(len(src.vocab), len(tgt.vocab), 8, 2, 8, 1, max_len=20))
fit(model, data, data, Recipe(epochs=1), log=lambda line: None)
assert "torchtext" not in sys.modules, "training"
Translator(model, src, tgt).translate(["Ein Hund schläft ."], beam_size=2)
assert "torchtext" not in sys.modules, "translating"
"""


@pytest.mark.processes
def test_neither_batches_nor_training_nor_translating_needs_torchtext():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCHTEXT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_one_tokeniser_for_both_sides_gets_one_vocabulary_over_both(pairs):
    both = WordTokenizer(None)
    dataset = make_dataset(pairs, both, both)
    build_vocabularies(dataset, min_freq=1)
    assert all(token in both.vocab for example in dataset.examples for token in (*example.src, *example.tgt))
    apart = make_dataset(pairs, WordTokenizer(None), WordTokenizer(None))
    build_vocabularies(apart, min_freq=1, joint=True)
    assert both.vocab.itos == apart.tokenizers["src"].vocab.itos


@pytest.fixture
def subwords(pairs):
    pieces = train_subwords(pairs, 80)
    return SubwordTokenizer("de", pieces), SubwordTokenizer("en", pieces)


def test_letters_that_a_fixed_vocabulary_lacks_are_counted_and_named(pairs, subwords):
    new = [*pairs, Pair("Das kostet 25 €.", "It is 25 €."), Pair("Ein € ist ein €.", "A dog.")]
    lines = []
    make_dataset(new, *subwords, log=lines.append)
    src, tgt = lines
    assert src.startswith("src: ") and "'€': 3" in src
    assert tgt.startswith("tgt: ") and "'€': 1" in tgt
    make_dataset(pairs, *subwords, log=lines.append)
    assert len(lines) == 2


def test_words_that_a_vocabulary_lacks_are_said_where_they_are_many(pairs, tokenizers):
    lines = []
    make_dataset([*pairs, Pair("Ein Zebra schläft.", "A zebra sleeps.")], *tokenizers, log=lines.append)
    assert not lines  # rare words are unknown in every vocabulary of words
    make_dataset([Pair("Mein Zebra singt.", "Our zebra sings.")], *tokenizers, log=lines.append)
    assert [line.split(": ")[:2] for line in lines] == [
        ["src", "the vocabulary lacks 3 of 4 tokens"],
        ["tgt", "the vocabulary lacks 3 of 4 tokens"],
    ]
