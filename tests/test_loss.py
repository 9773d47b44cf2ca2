import math

import pytest
import torch
import torch.nn.functional as F

from transformer_lib.training.loss import rdrop_loss, sequence_loss

PAD = 1


@pytest.fixture
def targets():
    return torch.tensor([[4, 5, 3, 10], [6, 3, PAD, PAD], [3, PAD, PAD, PAD]])


def test_the_loss_is_the_mean_over_real_tokens_only():
    logits = torch.randn(2, 3, 7)
    targets = torch.tensor([[4, 5, 3], [6, PAD, PAD]])
    by_hand = [-logits[i, j].log_softmax(-1)[targets[i, j]] for i, j in [(0, 0), (0, 1), (0, 2), (1, 0)]]
    torch.testing.assert_close(sequence_loss(logits, targets, PAD), torch.stack(by_hand).mean())
    torch.testing.assert_close(sequence_loss(logits, targets, PAD, reduction="sum"), torch.stack(by_hand).sum())


def test_label_smoothing_spreads_its_share_over_all_tokens():
    logits, targets = torch.randn(1, 1, 7), torch.tensor([[4]])
    log_probs = logits[0, 0].log_softmax(-1)
    expected = -(0.9 * log_probs[4] + 0.1 * log_probs.mean())
    torch.testing.assert_close(sequence_loss(logits, targets, PAD, label_smoothing=0.1), expected)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_is_pytorchs_and_so_is_its_gradient(targets, label_smoothing):
    logits = torch.randn(3, 4, 11, requires_grad=True)
    ours = sequence_loss(logits, targets, PAD, label_smoothing)
    theirs = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, label_smoothing=label_smoothing)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, theirs)))


def test_half_precision_logits_do_not_overflow_the_loss():
    logits = torch.zeros(128, 100, 50, dtype=torch.float16)
    targets = torch.full((128, 100), 4)
    expected = 128 * 100 * math.log(50)
    assert sequence_loss(logits, targets, PAD, reduction="sum").item() == pytest.approx(expected, rel=1e-4)


def test_rdrop_adds_the_mean_of_both_divergences(targets):
    """PyTorch's kl_div, over the real tokens, is the reference."""
    logits = torch.randn(6, 4, 11, dtype=torch.float64, requires_grad=True)
    mine = rdrop_loss(logits, targets, PAD, label_smoothing=0.1, rdrop_weight=0.7)
    first, second = (one[targets != PAD] for one in logits.chunk(2))  # [tokens, vocab_size] each
    words = targets[targets != PAD]
    entropies = [F.cross_entropy(one, words, label_smoothing=0.1) for one in (first, second)]
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    divergences = [F.kl_div(a, b, reduction="batchmean", log_target=True) for a, b in ((p, q), (q, p))]
    expected = sum(entropies) / 2 + 0.7 * sum(divergences) / 2
    torch.testing.assert_close(mine, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (mine, expected)))


def test_two_equal_passes_do_not_disagree(targets):
    logits = torch.randn(3, 4, 11)
    twice = rdrop_loss(logits.repeat(2, 1, 1), targets, PAD, rdrop_weight=5.0)
    torch.testing.assert_close(twice, sequence_loss(logits, targets, PAD))


def test_without_weight_rdrop_is_the_loss_of_both_passes(targets):
    logits = torch.randn(6, 4, 11)
    torch.testing.assert_close(rdrop_loss(logits, targets, PAD), sequence_loss(logits, targets.repeat(2, 1), PAD))


LOSSES = {
    "one pass": lambda logits, targets: sequence_loss(logits, targets, PAD, 0.1),
    "R-Drop": lambda logits, targets: rdrop_loss(torch.cat([logits, -logits]), targets, PAD, 0.1, 1.0),
}


@pytest.mark.parametrize("sentences", [2, 0])  # of a small batch, one of several processes may get none
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_nothing_but_padding_costs_nothing(loss, sentences):
    logits = torch.randn(sentences, 3, 11, requires_grad=True)
    cost = loss(logits, torch.full((sentences, 3), PAD))
    assert cost == 0 and (torch.autograd.grad(cost, logits)[0] == 0).all()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_padding_gets_no_gradient(targets, loss):
    logits = torch.randn(3, 4, 11, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(logits, targets), logits)
    assert (gradient[targets == PAD] == 0).all() and (gradient[targets != PAD] != 0).any(-1).all()
