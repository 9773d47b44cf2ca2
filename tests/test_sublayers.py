import torch

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
