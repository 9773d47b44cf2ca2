import itertools
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from transformer_lib import MultiHeadAttention, Transformer, TransformerConfig
from transformer_lib.inference.search import beam_search, greedy_search

PAD, SOS, EOS = 1, 2, 3


@pytest.fixture(params=["learned post-LN", "sinusoidal pre-LN"])
def model(request):
    """An untrained model whose outputs end here and there; in float64, so that no tie hides behind rounding."""
    positions, norm = request.param.split()
    torch.manual_seed({"learned": 3, "sinusoidal": 4}[positions])
    config = TransformerConfig(
        30, 25, 16, 4, 32, 2, max_len=25, positions=positions, norm_first=norm == "pre-LN", pad_id=PAD
    )
    model = Transformer(config).double().eval()
    with torch.no_grad():
        model.output.bias[EOS] += {"learned": 0.5, "sinusoidal": 0.0}[positions]
        model.output.bias[[PAD, SOS]] += 50.0  # search must never choose these
    return model


class Scripted(nn.Module):
    """Predicts <eos>, 4 and 5 with the same shares at every step."""

    def __init__(self, *shares):
        super().__init__()
        self.shares, self.steps = shares, 0
        self.config = SimpleNamespace(tgt_vocab_size=6, max_len=9, pad_id=PAD)

    def encode(self, src):
        return src[..., None].float(), src[:, None, None] != PAD

    def decode(self, tgt, memory, memory_mask):
        self.steps += 1
        return torch.tensor([1e-9, 1e-9, 1e-9, *self.shares]).log().expand(*tgt.shape, 6).clone()

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))


def test_a_beam_by_hand():
    """Only partial hypotheses among the best two may end, and a sentence is done when two have ended."""
    src, model = torch.tensor([[4, 5]]), Scripted(0.5, 0.3, 0.2)
    (found,) = beam_search(model, src, SOS, EOS, beam_size=2, length_penalty=0.0)
    assert [one.ids for one in found] == [[EOS], [4, EOS]] and model.steps == 2
    (found,) = beam_search(Scripted(0.25, 0.4, 0.35), src, SOS, EOS, beam_size=2, length_penalty=0.0, max_len=2)
    assert found[0].ids == [4, 4]


@pytest.fixture
def src():
    ids = torch.randint(4, 30, (12, 9), generator=torch.Generator().manual_seed(1))
    for row, length in enumerate([9, 3, 5, 9, 2, 7, 1, 9, 4, 6, 8, 5]):
        ids[row, length:] = PAD
    return ids


def only_ids(results):
    return [[h.ids for h in beam] for beam in results] if isinstance(results[0], list) else [h.ids for h in results]


def test_the_cases_are_interesting(model, src):
    lengths = {len(h.ids) for h in greedy_search(model, src, SOS, EOS)}
    assert len(lengths) > 2, "sentences should finish at different steps, or the tests below show little"


def test_cached_search_equals_uncached_search(model, src):
    cached, uncached = (greedy_search(model, src, SOS, EOS, use_cache=use) for use in (True, False))
    assert only_ids(cached) == only_ids(uncached)
    assert [h.log_prob for h in cached] == pytest.approx([h.log_prob for h in uncached])
    for beam_size in (2, 4):
        cached, uncached = (beam_search(model, src, SOS, EOS, beam_size, use_cache=use) for use in (True, False))
        assert only_ids(cached) == only_ids(uncached)


def test_batched_search_equals_one_sentence_at_a_time(model, src):
    alone = [greedy_search(model, row[row != PAD][None], SOS, EOS)[0] for row in src]
    assert only_ids(greedy_search(model, src, SOS, EOS)) == only_ids(alone)
    alone = [beam_search(model, row[row != PAD][None], SOS, EOS, 3)[0] for row in src]
    assert only_ids(beam_search(model, src, SOS, EOS, 3)) == only_ids(alone)


def test_greedy_search_takes_the_most_probable_token_at_each_step(model, src):
    for row, hypothesis in zip(src, greedy_search(model, src, SOS, EOS), strict=True):
        ids, log_prob = [], 0.0
        while len(ids) < 25 and EOS not in ids:
            logits = model(row[row != PAD][None], torch.tensor([[SOS, *ids]]))[0, -1]
            logits[[PAD, SOS]] = -math.inf
            best, token = logits.log_softmax(-1).max(dim=-1)
            ids.append(token.item())
            log_prob += best.item()
        assert hypothesis.ids == ids
        assert hypothesis.log_prob == hypothesis.score == pytest.approx(log_prob)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6])
def test_a_wider_beam_never_scores_worse_in_these_cases(trained, length_penalty):
    words = [word for word in trained.src_tokenizer.vocab.itos[4:] if word != "."]
    rng = random.Random(0)
    sentences = [rng.sample(words, rng.randint(2, 8)) for _ in range(30)]  # nonsense: the model has to guess
    src = pad_sequence([torch.tensor(trained.src_tokenizer.encode(" ".join(s))) for s in sentences], True, PAD)
    best = [
        [beam[0].score for beam in beam_search(trained.model, src, SOS, EOS, n, length_penalty)] for n in (1, 4, 16)
    ]
    for narrow, wide in itertools.pairwise(best):
        assert all(w >= n - 1e-5 for n, w in zip(narrow, wide, strict=True))
    assert best[0] != best[-1]


def test_a_beam_as_wide_as_everything_finds_the_best_there_is(model):
    """Compared with listing all outputs of at most two tokens."""
    src = torch.tensor([[7, 9, 11]])
    memory, mask = model.encode(src)

    def log_probs(*prefix):
        logits = model.decode(torch.tensor([[SOS, *prefix]]), memory, mask)[0, -1].clone()
        logits[[PAD, SOS]] = -math.inf
        return logits.log_softmax(-1).tolist()

    first = log_probs()
    words = [w for w in range(25) if w not in (PAD, SOS, EOS)]
    everything = {(EOS,): first[EOS]}
    for word in words:
        second = log_probs(word)
        for last in [*words, EOS]:
            everything[word, last] = (first[word] + second[last]) / (7 / 6) ** 0.6
    found = beam_search(model, src, SOS, EOS, beam_size=25, length_penalty=0.6, max_len=2)[0]
    assert tuple(found[0].ids) == max(everything, key=everything.get)
    assert found[0].score == pytest.approx(max(everything.values()))
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_log_prob_is_what_the_model_says(model, src):
    for search in (greedy_search, lambda *arguments: [beam[0] for beam in beam_search(*arguments, 3)]):
        hypothesis = search(model, src[:1], SOS, EOS)[0]
        logits = model(src[:1], torch.tensor([[SOS, *hypothesis.ids[:-1]]]))[0]
        logits[:, [PAD, SOS]] = -math.inf
        expected = logits.log_softmax(-1)[range(len(hypothesis.ids)), hypothesis.ids].sum().item()
        assert hypothesis.log_prob == pytest.approx(expected)


def test_score_is_log_prob_over_gnmts_length_penalty(model, src):
    for hypothesis in beam_search(model, src, SOS, EOS, 3, length_penalty=0.6)[0]:
        assert hypothesis.score == pytest.approx(hypothesis.log_prob / ((5 + len(hypothesis.ids)) / 6) ** 0.6)


def test_padding_and_sos_are_never_chosen(model, src):
    results = [*greedy_search(model, src, SOS, EOS), *itertools.chain(*beam_search(model, src, SOS, EOS, 4))]
    assert not {PAD, SOS} & {i for h in results for i in h.ids}
    assert all(EOS not in h.ids[:-1] for h in results)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_model_that_begins_with_eos_may_end_with_it(beam_size):
    src = torch.tensor([[4, 5]])
    model = Scripted(0.9, 0.05, 0.05)
    (found,) = beam_search(model, src, EOS, EOS, beam_size, length_penalty=0.0)
    assert found[0].ids == greedy_search(model, src, EOS, EOS)[0].ids == [EOS]


def test_outputs_stop_at_the_limit(model, src):
    with torch.no_grad():
        model.output.bias[EOS] -= 100
    for max_len in (None, 99):
        assert {len(h.ids) for h in greedy_search(model, src, SOS, EOS, max_len)} == {25}  # as many as positions
    assert {len(h.ids) for h in greedy_search(model, src, SOS, EOS, max_len=4)} == {4}
    assert {len(h.ids) for beam in beam_search(model, src, SOS, EOS, 3, max_len=4) for h in beam} == {4}


def test_an_output_may_be_its_source_plus_fifty_long():
    model = Transformer(TransformerConfig(30, 25, 16, 4, 32, 1, max_len=100)).eval()
    with torch.no_grad():
        model.output.bias[EOS] -= 100
    src = torch.tensor([[5, 6, 7], [5, PAD, PAD]])
    assert [len(h.ids) for h in greedy_search(model, src, SOS, EOS)] == [53, 51]


@pytest.mark.parametrize("max_len", [0, -3])
def test_an_output_of_no_tokens_is_refused(model, src, max_len):
    with pytest.raises(ValueError, match=f"max_len is {max_len}"):
        greedy_search(model, src, SOS, EOS, max_len)


@pytest.mark.parametrize("beam_size", [0, 26, True, False, 2.0, "2", None, [2]])
def test_a_beam_size_that_is_impossible_is_refused(model, src, beam_size):
    with pytest.raises(ValueError, match=r"beam_size is .*, expected a whole number from 1 to 25"):
        beam_search(model, src, SOS, EOS, beam_size)


@pytest.mark.parametrize("length_penalty", [-0.1, 500.0, math.nan, math.inf, True, "0.6", None])  # (55 / 6)^500
def test_a_length_penalty_that_is_impossible_is_refused(model, src, length_penalty):
    with pytest.raises(ValueError, match=r"length_penalty is .*, expected 0"):
        beam_search(model, src, SOS, EOS, 2, length_penalty)


def test_numbers_of_other_libraries_are_numbers(model, src):
    found = beam_search(model, src, SOS, EOS, np.int64(2), np.float32(0.5))
    assert only_ids(found) == only_ids(beam_search(model, src, SOS, EOS, 2, 0.5))


def test_no_sentences_give_no_translations(model):
    assert greedy_search(model, torch.zeros(0, 3, dtype=torch.long), SOS, EOS) == []
    assert beam_search(model, torch.zeros(0, 3, dtype=torch.long), SOS, EOS) == []


class RelativeAttention(MultiHeadAttention):
    """Prefers what is near: a head's scores fall with the distance, as in ALiBi (Press et al. 2022)."""

    def attend(self, q, k, v, mask=None, need_weights=False):
        distances = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs()  # [query_len, key_len]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) - distances
        weights = (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(dim=-1)
        return weights @ v, weights


@pytest.mark.filterwarnings("ignore:RelativeAttention")
def test_attention_of_ones_own_is_searched_as_it_was_trained(model, src):
    """Step by step, a query would not know its position: a cache that it does not fit must not be used."""
    for layer in model.decoder.layers:
        layer.self_attn.__class__ = RelativeAttention
    for search in (greedy_search, beam_search):
        cached, uncached = (search(model, src, SOS, EOS, use_cache=use) for use in (True, False))
        assert only_ids(cached) == only_ids(uncached)


@pytest.mark.parametrize("search", [greedy_search, beam_search])
def test_a_model_in_training_mode_is_searched_without_dropout_and_stays_in_its_mode(search, src):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(30, 25, 16, 4, 32, 2, dropout=0.5, max_len=25, pad_id=PAD)).eval()
    expected = search(model, src, SOS, EOS)
    model.train().encoder.eval()  # as who freezes a part of it does
    modes = [module.training for module in model.modules()]
    for use_cache in (True, False):
        assert only_ids(search(model, src, SOS, EOS, use_cache=use_cache)) == only_ids(expected)
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("search", [greedy_search, beam_search])
def test_padding_before_a_token_is_refused(model, search):
    with pytest.raises(ValueError, match="src has padding before a token"):
        search(model, torch.tensor([[4, 5, 6], [PAD, 4, 5]]), SOS, EOS)
    search(model, torch.tensor([[4, 5, 6], [4, 5, PAD], [PAD, PAD, PAD]]), SOS, EOS)


@pytest.mark.parametrize("use_cache", [True, False])
def test_what_greedy_search_would_choose_is_a_prefix_that_changes_nothing(model, src, use_cache):
    found = greedy_search(model, src, SOS, EOS)
    given = [torch.tensor(h.ids[: min(i % 4, len(h.ids) - 1)]).long() for i, h in enumerate(found)]  # none, or up to 3
    prefix = pad_sequence(given, True, PAD)
    assert prefix.shape[1] > 1 and (prefix == PAD).any()
    forced = [h for (h,) in beam_search(model, src, SOS, EOS, 1, 0.0, use_cache=use_cache, prefix=prefix)]
    assert only_ids(forced) == only_ids(found)
    assert [h.log_prob for h in forced] == pytest.approx([h.log_prob for h in found])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_outputs_begin_with_any_prefix_and_score_as_the_model_scores_them(model, src, beam_size):
    prefix = torch.randint(4, 25, (len(src), 3), generator=torch.Generator().manual_seed(0))
    prefix[::2, 1:] = PAD  # of every other sentence, the first token alone
    results = [beam_search(model, src, SOS, EOS, beam_size, prefix=prefix, use_cache=use) for use in (True, False)]
    assert only_ids(results[0]) == only_ids(results[1])
    for row, given, beam in zip(src, prefix, results[0], strict=True):
        given = given[given != PAD].tolist()
        assert len({tuple(hypothesis.ids) for hypothesis in beam}) == beam_size
        for hypothesis in beam:
            assert hypothesis.ids[: len(given)] == given
            logits = model(row[row != PAD][None], torch.tensor([[SOS, *hypothesis.ids[:-1]]]))[0]
            logits[:, [PAD, SOS]] = -math.inf
            expected = logits.log_softmax(-1)[range(len(hypothesis.ids)), hypothesis.ids].sum().item()
            assert hypothesis.log_prob == pytest.approx(expected)


def test_a_prefix_that_no_output_can_begin_with_is_refused(model, src):
    for prefix, named in (([[EOS]], "<eos>"), ([[SOS, 4]], "<sos>"), ([[25]], "id 25"), ([[4]] * 2, "2 rows")):
        with pytest.raises(ValueError, match=f"prefix .*{named}"):
            beam_search(model, src[:1], SOS, EOS, prefix=torch.tensor(prefix))
    with pytest.raises(ValueError, match=r"prefix .* all 4 tokens"):
        beam_search(model, src[:1], SOS, EOS, max_len=4, prefix=torch.tensor([[5, 6, 7, 8]]))
    with pytest.raises(ValueError, match=r"prefix .* all 4 tokens"):
        beam_search(model, src[:1], SOS, EOS, max_len=4, prefix=torch.tensor([[PAD, PAD, PAD, 8]]))
    (found,) = beam_search(model, src[:1], SOS, EOS, max_len=4, prefix=torch.tensor([[5, 6, 7]]))
    assert found[0].ids[:3] == [5, 6, 7] and len(found[0].ids) == 4
