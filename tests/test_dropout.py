import pytest
import torch

from transformer_lib.fast.dropout import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_share_that_is_dropped_is_p_and_the_mean_stays(p, dtype):
    torch.manual_seed(0)
    kept = dropout(torch.ones(1000, 1000, dtype=dtype), p)
    assert kept.dtype == dtype
    share = (kept == 0).double().mean().item()
    assert share == pytest.approx(p, abs=5 * (p * (1 - p) / 1e6) ** 0.5)  # five standard deviations
    assert kept[kept > 0].double().mean().item() == pytest.approx(
        1 / (1 - p), rel=4e-3 if dtype == torch.bfloat16 else 1e-3
    )


def test_neighbours_are_dropped_independently():
    """Four entries share a random number: no two of them may know of each other."""
    torch.manual_seed(0)
    kept = (dropout(torch.ones(500_000, 4), 0.3) != 0).double()
    correlation = torch.corrcoef(kept.T) - torch.eye(4)
    assert correlation.abs().max() < 5 / 500_000**0.5


def test_the_gradient_goes_where_the_values_went():
    x = torch.randn(7, 5, requires_grad=True)  # 35 entries: the last draw is not used up
    y = dropout(x, 0.4)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x, y)


def test_the_seed_decides():
    x = torch.ones(50, 50)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(dropout(x, 0.5))
    assert draws[0].equal(draws[1]) and not draws[0].equal(draws[2])


def test_nothing_and_everything():
    x = torch.randn(10)
    assert dropout(x, 0.0).equal(x) and dropout(x, 1.0).equal(torch.zeros(10))
    assert dropout(torch.randn(0, 3), 0.5).shape == (0, 3)


def test_the_module_drops_in_training_only():
    module, x = Dropout(0.5), torch.ones(100)
    assert 0 in module(x)
    assert module.eval()(x).equal(x)
