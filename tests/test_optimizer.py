import copy
import dataclasses
import itertools

import pytest
import torch

from transformer_lib import Transformer
from transformer_lib.fast.muon import BatchedMuon
from transformer_lib.training.optimizer import MovingAverage, learning_rate_schedule, make_optimizer
from transformer_lib.training.recipe import SCHEDULES, Recipe

needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")
MUON = Recipe(optimizer="muon", learning_rate=0.01, weight_decay=0.1)


def learning_rates(kind, peak, warmup, total):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    schedule = learning_rate_schedule(optimizer, kind, warmup, total)
    rates = []
    for _ in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def test_the_learning_rate_warms_up_and_falls_as_in_the_paper():
    d_model, warmup = 512, 400
    rates = learning_rates("inverse_sqrt", d_model**-0.5 * warmup**-0.5, warmup, 2000)
    for step in (1, 100, 399, 400, 401, 2000):
        assert rates[step - 1] == pytest.approx(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))  # equation 3


def test_a_linear_schedule_peaks_after_the_warm_up_and_ends_next_to_zero():
    rates = learning_rates("linear", 0.5, warmup=10, total=100)
    assert rates[9] == max(rates) == 0.5
    steps_up, steps_down = rates[1:10], rates[10:]
    assert [b - a for a, b in itertools.pairwise(steps_up)] == pytest.approx([0.05] * 8)
    assert [a - b for a, b in itertools.pairwise(steps_down)] == pytest.approx([0.5 / 91] * 89)
    assert rates[-1] == pytest.approx(0.5 / 91)


def test_an_exponential_schedule_falls_after_each_epoch_and_only_then():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=5.0)
    schedule = learning_rate_schedule(optimizer, "exponential", 0, total_steps=12, epochs=3, decay=0.95)
    rates = []
    for _ in range(12):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([5.0] * 4 + [5.0 * 0.95] * 4 + [5.0 * 0.95**2] * 4)


@pytest.mark.parametrize("warmup", [0, 4])
def test_a_constant_schedule_stays_at_its_peak(warmup):
    assert learning_rates("constant", 0.3, warmup, 10)[warmup:] == [0.3] * (10 - warmup)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_warm_up_that_would_outlast_the_run_is_cut_so_that_the_learning_rate_gets_to_its_peak(kind):
    rates = learning_rates(kind, 0.3, warmup=1000, total=50)
    assert max(rates) == rates[4] == 0.3 and rates[0] == pytest.approx(0.3 / 5)


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1])
def test_without_a_warm_up_the_first_step_is_at_the_peak(kind, warmup):
    rates = learning_rates(kind, 0.3, warmup, 5)
    assert rates[0] == max(rates) == 0.3


def test_the_average_of_the_weights_is_what_arithmetic_says(tiny_config):
    model = Transformer(tiny_config)
    average = MovingAverage(model, decay=0.3)
    weights, averaged = model.output.bias, average.module.output.bias
    by_hand = None
    for n, value in enumerate([1.0, 5.0, 2.0, -4.0]):
        with torch.no_grad():
            weights.fill_(value)
        average.update_parameters(model)
        keep = min(0.3, (1 + n) / (10 + n))  # 2/11, 3/12, then 0.3
        by_hand = value if n == 0 else keep * by_hand + (1 - keep) * value
        torch.testing.assert_close(averaged, torch.full_like(averaged, by_hand))


@pytest.fixture
def model(tiny_config):
    torch.manual_seed(0)
    return Transformer(tiny_config)


def give_gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def test_adam_without_decay_is_pytorchs_adam(model, tiny_config):
    theirs = Transformer(tiny_config)
    theirs.load_state_dict(model.state_dict())
    mine = make_optimizer(model, Recipe(learning_rate=0.01, betas=(0.9, 0.98)))
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    for step in range(3):
        for m, optimizer in ((model, mine), (theirs, reference)):
            give_gradients(m, step)
            optimizer.step()
    torch.testing.assert_close([*model.parameters()], [*theirs.parameters()])


def test_matrices_decay_and_biases_and_norms_do_not(model):
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    optimizer = make_optimizer(model, dataclasses.replace(MUON, optimizer="adamw"))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, weights in model.state_dict().items():
        expected = before[name] * (1 - 0.01 * 0.1) if weights.dim() > 1 else before[name]
        torch.testing.assert_close(weights, expected, msg=name)


@needs_muon
def test_muon_turns_the_layers_matrices_and_adam_does_the_rest(model):
    """A step of Muon's goes equally far in all directions: its singular values are all about the same."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = make_optimizer(model, dataclasses.replace(MUON, weight_decay=0.0))
    give_gradients(model, 0)
    optimizer.step()
    for name, parameter in model.named_parameters():
        step = parameter.detach() - before[name]
        if parameter.dim() == 2 and name.startswith(("encoder.", "decoder.")):
            lengths = torch.linalg.svdvals(step)
            assert lengths.max() < 1.7 * lengths.median(), name  # about 2.4 times in a square gradient
            assert step.square().mean().sqrt() == pytest.approx(0.2 * 0.01, rel=0.5), name  # as large as Adam's
        else:
            torch.testing.assert_close(step.abs(), torch.full_like(step, 0.01), atol=1e-5, rtol=1e-3, msg=name)


@needs_muon
def test_a_schedule_moves_both_learning_rates(model):
    optimizer = make_optimizer(model, MUON)
    schedule = learning_rate_schedule(optimizer, "linear", 2, 10)
    for _ in range(6):
        give_gradients(model, 0)
        optimizer.step()
        schedule.step()
    rates = {group["lr"] for part in optimizer.optimizers for group in part.param_groups}
    assert len(rates) == 1 and rates.pop() == pytest.approx(0.01 * 4 / 9)


@needs_muon
def test_two_optimisers_go_on_from_their_state(model, tiny_config):
    other = Transformer(tiny_config)
    optimizers = [make_optimizer(m, MUON) for m in (model, other)]
    schedules = [learning_rate_schedule(optimizer, "linear", 2, 10) for optimizer in optimizers]
    for seed in (0, 1):
        give_gradients(model, seed)
        optimizers[0].step()
        schedules[0].step()
    other.load_state_dict(model.state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    schedules[1].load_state_dict(schedules[0].state_dict())
    for seed in (2, 3):
        for m, optimizer, schedule in zip((model, other), optimizers, schedules, strict=True):
            give_gradients(m, seed)
            optimizer.step()
            schedule.step()
    assert all(a.equal(b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@needs_muon
def test_muon_in_batches_obeys_its_options(monkeypatch):
    monkeypatch.setattr("transformer_lib.fast.muon.fast_dtype", lambda device: torch.bfloat16)
    options = {"lr": 0.05, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}
    ours, theirs, start = (torch.eye(6, 9).requires_grad_() for _ in range(3))
    optimizers = [BatchedMuon([ours], **options), torch.optim.Muon([theirs], **options)]
    for seed in range(3):
        ours.grad = theirs.grad = torch.randn(6, 9, generator=torch.Generator().manual_seed(seed))
        for optimizer in optimizers:
            optimizer.step()
    assert (ours - theirs).norm() <= 0.05 * (theirs - start).norm()  # they round in another order


def test_a_pytorch_without_muon_is_named(model, monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(ValueError, match=r"optimizer is 'muon', which needs PyTorch 2\.9 or newer; this is"):
        make_optimizer(model, MUON)
