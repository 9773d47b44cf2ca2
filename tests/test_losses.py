import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib.fast.loss import chunked_cross_entropy
from transformer_lib.training import loss as loss_module
from transformer_lib.training.loss import sequence_loss

PAD = 1


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


def test_half_precision_logits_do_not_overflow_the_loss():
    logits = torch.zeros(128, 100, 50, dtype=torch.float16)
    targets = torch.full((128, 100), 4)
    expected = 128 * 100 * math.log(50)
    assert sequence_loss(logits, targets, PAD, reduction="sum").item() == pytest.approx(expected, rel=1e-4)


@pytest.fixture
def layer():
    return nn.Linear(6, 11).double()


@pytest.fixture
def targets():
    return torch.tensor([[4, 5, 3, 10], [6, 3, PAD, PAD], [3, PAD, PAD, PAD]])


def gradients_of(loss, hidden_states, layer):
    return torch.autograd.grad(loss, [hidden_states, layer.weight, layer.bias])


@pytest.fixture(params=[1, 3, 100], ids=lambda rows: f"{rows} rows at once")
def _slices(request, monkeypatch):
    monkeypatch.setitem(loss_module._LOGITS_AT_ONCE, "cpu", request.param * 11)


@pytest.fixture(params=[True, False], ids=["as on a CPU", "as on a GPU"])
def _padding(request, monkeypatch):
    monkeypatch.setattr(loss_module, "_leaves_padding_out", lambda device: request.param)


@pytest.mark.usefixtures("_slices", "_padding")
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_loss_in_slices_is_the_loss_and_so_are_its_gradients(layer, targets, label_smoothing):
    hidden_states = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
    mine = chunked_cross_entropy(layer, hidden_states, targets, PAD, label_smoothing)
    expected = F.cross_entropy(
        layer(hidden_states).flatten(0, 1), targets.flatten(), ignore_index=PAD, label_smoothing=label_smoothing
    )
    torch.testing.assert_close(mine, expected)
    for a, b in zip(
        gradients_of(3 * mine, hidden_states, layer), gradients_of(3 * expected, hidden_states, layer), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.usefixtures("_slices", "_padding")
def test_consistency_is_the_mean_of_both_divergences(layer, targets):
    """PyTorch's kl_div, over the real tokens, is the reference."""
    hidden_states = torch.randn(6, 4, 6, dtype=torch.float64, requires_grad=True)
    mine = chunked_cross_entropy(layer, hidden_states, targets, PAD, label_smoothing=0.1, rdrop_weight=0.7)
    first, second = (logits[targets != PAD] for logits in layer(hidden_states).chunk(2))  # [tokens, vocab_size] each
    words = targets[targets != PAD]
    entropies = [F.cross_entropy(logits, words, label_smoothing=0.1) for logits in (first, second)]
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    divergences = [F.kl_div(a, b, reduction="batchmean", log_target=True) for a, b in ((p, q), (q, p))]
    expected = sum(entropies) / 2 + 0.7 * sum(divergences) / 2
    torch.testing.assert_close(mine, expected)
    for a, b in zip(
        gradients_of(mine, hidden_states, layer), gradients_of(expected, hidden_states, layer), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_two_equal_passes_do_not_disagree(layer, targets):
    hidden_states = torch.randn(3, 4, 6, dtype=torch.float64)
    twice = chunked_cross_entropy(layer, hidden_states.repeat(2, 1, 1), targets, PAD, rdrop_weight=5.0)
    torch.testing.assert_close(twice, chunked_cross_entropy(layer, hidden_states, targets, PAD))


@pytest.mark.usefixtures("_padding")
def test_nothing_but_padding_costs_nothing(layer):
    hidden_states = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    loss = chunked_cross_entropy(layer, hidden_states, torch.full((2, 3), PAD), PAD)
    assert loss == 0 and all((gradient == 0).all() for gradient in gradients_of(loss, hidden_states, layer))


@pytest.mark.usefixtures("_padding")
def test_padding_does_not_count_and_gets_no_gradient(layer, targets):
    hidden_states = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
    loss = chunked_cross_entropy(layer, hidden_states, targets, PAD)
    (gradient,) = torch.autograd.grad(loss, hidden_states)
    assert (gradient[targets == PAD] == 0).all() and (gradient[targets != PAD] != 0).any(-1).all()


@pytest.mark.parametrize(("dtype", "scale"), [(torch.bfloat16, 1.0), (torch.float16, 4096.0)])
def test_in_half_precision_the_loss_and_its_gradients_are_nearly_the_same(dtype, scale):
    """Gradients of single hidden_states, which are tiny in a large batch, too: in float16, those of the scaled loss."""
    torch.manual_seed(0)
    layer, targets = nn.Linear(64, 500), torch.randint(2, 500, (40, 50))
    hidden_states = torch.randn(40, 50, 64, requires_grad=True)
    exact = chunked_cross_entropy(layer, hidden_states, targets, PAD, label_smoothing=0.1)
    rough_layer = copy.deepcopy(layer).to(dtype)
    rough_features = hidden_states.detach().to(dtype).requires_grad_()
    rough = chunked_cross_entropy(rough_layer, rough_features, targets, PAD, label_smoothing=0.1)
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=1e-3) and rough.item() != exact.item()
    gradients = gradients_of(scale * rough, rough_features, rough_layer)
    for a, b in zip(gradients, gradients_of(exact, hidden_states, layer), strict=True):
        assert a.dtype == dtype
        assert (a.float() / scale - b).norm() < 0.01 * b.norm()
