import itertools
import random
import string
import threading
from threading import Event

import pytest
import torch
from torchtext.datasets import LanguageModelingDataset

from transformer_lib.data.batches import BucketBatches, build_vocabularies, make_dataset, prefetch
from transformer_lib.data.corpora import Pair, read_text
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.language_model.stream import BPTTBatches, StreamTokenizer, make_stream

PAD = 1


@pytest.fixture
def long_dataset():
    """2,000 pairs of random lengths, the two sides related as in a real corpus."""
    rng = random.Random(0)
    fields = WordTokenizer("de"), WordTokenizer("en")
    pairs = []
    for i in range(2000):
        length = rng.randint(3, 30)
        pairs.append(Pair(" ".join([f"s{i}"] * length), " ".join([f"t{i}"] * max(1, length + rng.randint(-3, 3)))))
    dataset = make_dataset(pairs, *fields)
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
    src_words, tgt_words = (long_dataset.fields[side].vocab.itos for side in ("src", "tgt"))
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "batch_size=None and max_tokens=None, expected exactly one"),
        ({"batch_size": 2, "max_tokens": 9}, "expected exactly one"),
        ({"batch_size": 0}, "expected a positive number"),
        ({"max_tokens": 5}, "max_tokens is 5, but the longest sentence has 13 tokens"),
    ],
)
def test_impossible_sizes_are_refused(dataset, arguments, message):
    with pytest.raises(ValueError, match=message):
        BucketBatches(dataset, **arguments)


def test_an_empty_dataset_is_refused(fields):
    with pytest.raises(ValueError, match="dataset is empty"):
        BucketBatches(make_dataset([], *fields), 4)


def test_a_sentence_that_cannot_be_used_is_named(pairs, fields):
    with pytest.raises(ValueError, match="the tgt side of pair 2 is empty"):
        make_dataset([pairs[0], Pair("Ein Hund", "")], *fields)
    with pytest.raises(ValueError, match=r"the src side of pair 1 has 6 tokens .* expected at most max_len=5"):
        make_dataset(pairs, *fields, max_len=5)


@pytest.fixture
def alphabet():
    """The letters A to Z on one line, and the field that reads them."""
    field = StreamTokenizer()
    dataset = make_stream([" ".join(string.ascii_uppercase)], field)
    field.build_vocab(dataset)
    return dataset, field


def test_a_text_is_cut_into_rows_and_the_target_comes_one_token_later(alphabet):
    """27 tokens with <eos>: four rows of seven, the last one filled up with padding."""
    dataset, field = alphabet
    chunks = BPTTBatches(dataset, batch_size=4, bptt=4)
    assert len(chunks) == 2

    def letters(ids):
        return ["".join(field.decode(row)) for row in ids.tolist()]

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
    field = StreamTokenizer()
    dataset = make_stream(["a b c d e f g", "", "h i j k l m n o p q"], field)
    field.build_vocab(dataset)
    tokens = len(dataset[0].text)
    assert tokens == 17 + 3
    for batch_size, bptt in itertools.product((1, 2, 3, 7), (1, 2, 3, 100)):
        chunks = list(BPTTBatches(dataset, batch_size, bptt))
        rows = torch.cat([chunk.target for chunk in chunks], dim=1)
        assert len(chunks) == len(BPTTBatches(dataset, batch_size, bptt))
        row_len = -(-tokens // batch_size)
        assert rows.shape == (batch_size, row_len - 1)
        begun = [row for row in range(batch_size) if row * row_len < tokens]  # the others are padding
        assert rows.ne(field.pad_id).sum() == tokens - len(begun)


def test_a_stream_is_what_torchtext_makes_of_a_file(tmp_path):
    lines = [" = Title = ", " ", " One two . ", ""]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    field = StreamTokenizer()
    theirs = LanguageModelingDataset(str(tmp_path / "text.txt"), field)
    assert make_stream(read_text(tmp_path / "text.txt"), field)[0].text == theirs[0].text
    assert theirs[0].text == ["=", "Title", "=", "<eos>", "<eos>", "One", "two", ".", "<eos>"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 14}, "dataset has 27 tokens, expected at least 28, two for each of batch_size=14 rows"),
        ({"batch_size": 0}, "batch_size is 0, expected a positive number"),
        ({"bptt": 0}, "bptt is 0, expected a positive number"),
    ],
)
def test_impossible_chunks_are_refused(alphabet, options, message):
    dataset, _ = alphabet
    with pytest.raises(ValueError, match=message):
        BPTTBatches(dataset, **{"batch_size": 2, "bptt": 3, **options})


def test_batches_prefetch_are_the_same_and_one_ahead():
    made = [Event() for _ in range(4)]

    def make():
        for number, event in enumerate(made):
            event.set()
            yield number

    seen = []
    for number in prefetch(make()):
        seen.append(number)
        # the next one is made, too, although nobody has asked for it
        assert all(event.wait(60) for event in made[: number + 2])
        assert not any(event.is_set() for event in made[number + 2 :])
    assert seen == [0, 1, 2, 3]


def test_an_error_in_a_batch_prefetch_arrives(dataset):
    def make():
        yield 1
        raise ValueError("no second batch")

    with pytest.raises(ValueError, match="no second batch"):
        list(prefetch(make()))
    assert list(prefetch([])) == []


def test_who_stops_early_leaves_no_thread_behind():
    before = threading.active_count()
    batches = prefetch(iter(range(10)))
    assert next(batches) == 0 and threading.active_count() == before + 1
    batches.close()
    assert threading.active_count() == before


def test_the_order_leaves_the_random_numbers_of_the_process_alone(dataset, monkeypatch):
    """Even for a moment: batches are made in a thread."""
    monkeypatch.setattr(random, "setstate", lambda state: pytest.fail("the process's random numbers were changed"))
    before = random.getstate()
    orders = [[batch.tgt.tolist() for batch in BucketBatches(dataset, 2, train=True, seed=seed)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert random.getstate() == before
