import pytest
import torch
import torch.nn.functional as F

from transformer_lib import PositionwiseFeedForward


def test_by_hand():
    network = PositionwiseFeedForward(1, 2)
    with torch.no_grad():
        network.linear1.weight.copy_(torch.tensor([[2.0], [-1.0]]))
        network.linear1.bias.copy_(torch.tensor([1.0, 0.0]))
        network.linear2.weight.copy_(torch.tensor([[1.0, 10.0]]))
        network.linear2.bias.copy_(torch.tensor([0.5]))
    x = torch.tensor([[[3.0], [-3.0]]])
    # relu(2·3+1)=7, relu(-3)=0 → 7·1+0·10+0.5;  relu(-5)=0, relu(3)=3 → 30.5
    torch.testing.assert_close(network(x), torch.tensor([[[7.5], [30.5]]]))


def test_positions_do_not_see_each_other():
    network = PositionwiseFeedForward(8, 16)
    x = torch.randn(1, 5, 8)
    changed = x.clone()
    changed[0, 2] += 1
    torch.testing.assert_close(network(x)[0, [0, 1, 3, 4]], network(changed)[0, [0, 1, 3, 4]])


@pytest.mark.parametrize(("name", "function"), [("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)])
def test_the_activation_is_chosen_by_name(name, function):
    network = PositionwiseFeedForward(8, 16, activation=name)
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(network(x), network.linear2(function(network.linear1(x))))


def test_an_unknown_activation_lists_the_known_ones():
    with pytest.raises(ValueError, match="activation is 'swish', expected one of relu, gelu, silu"):
        PositionwiseFeedForward(8, 16, activation="swish")


def test_dropout_acts_in_training_only():
    network, x = PositionwiseFeedForward(8, 16, dropout=0.5), torch.randn(1, 5, 8)
    assert not network(x).equal(network(x))
    network.eval()
    assert network(x).equal(network(x))
