import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from weights import shake

from transformer_lib import Encoder, EncoderLayer, causal_mask, padding_mask, to_torch
from transformer_lib.interop import pytorch

MASK = padding_mask(torch.tensor([[5, 5, 5, 5], [5, 5, 1, 1]]), pad_id=1)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_layer_equals_torch(norm_first, need_weights, causal):
    torch.manual_seed(0)
    ours = EncoderLayer(16, 4, 32, dropout=0.0, inner_dropout=0.0, norm_first=norm_first)
    shake(ours)
    theirs = to_torch(ours)
    x = torch.randn(2, 4, 16)
    output, weights = ours(x, MASK & causal_mask(4) if causal else MASK, need_weights)
    expected = theirs(
        x,
        src_mask=pytorch.to_attn_mask(causal_mask(4)) if causal else None,
        src_key_padding_mask=pytorch.to_key_padding_mask(MASK),
    )
    torch.testing.assert_close(output, expected)
    assert (weights is not None) == need_weights


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_equals_torch(norm_first):
    torch.manual_seed(0)
    norm = nn.LayerNorm(16) if norm_first else None
    ours = Encoder((EncoderLayer(16, 4, 32, 0.0, 0.0, norm_first) for _ in range(3)), norm)
    shake(ours)
    theirs = to_torch(ours)
    x = torch.randn(2, 4, 16)
    output, maps = ours(x, MASK, need_weights=True)
    torch.testing.assert_close(output, theirs(x, src_key_padding_mask=pytorch.to_key_padding_mask(MASK)))
    assert [weights.shape for weights in maps] == [(2, 4, 4, 4)] * 3


@pytest.mark.parametrize(("name", "function"), [("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_layer_with_any_activation_equals_torch(name, function, norm_first):
    torch.manual_seed(0)
    ours = EncoderLayer(16, 4, 32, dropout=0.0, inner_dropout=0.0, norm_first=norm_first, activation=name)
    shake(ours)
    theirs = nn.TransformerEncoderLayer(16, 4, 32, 0.0, function, batch_first=True, norm_first=norm_first)
    theirs.load_state_dict(to_torch(ours).state_dict())
    x = torch.randn(2, 4, 16)
    torch.testing.assert_close(ours(x, MASK)[0], theirs(x, src_key_padding_mask=pytorch.to_key_padding_mask(MASK)))


def is_random(layer, x):
    return not layer(x)[0].equal(layer(x)[0])


def test_both_kinds_of_dropout_act_on_their_own_and_in_training_only():
    for dropout, inner_dropout in itertools.product((0.0, 0.3), repeat=2):
        layer, x = EncoderLayer(8, 2, 16, dropout=dropout, inner_dropout=inner_dropout), torch.randn(2, 4, 8)
        assert is_random(layer, x) == (dropout > 0 or inner_dropout > 0), (dropout, inner_dropout)
        assert not is_random(layer.eval(), x)


def test_what_is_dropped_is_what_sub_layers_add_never_what_goes_past_them():
    """With all of it dropped, a pre-LN layer returns what came in."""
    layer, x = EncoderLayer(8, 2, 16, norm_first=True), torch.randn(2, 4, 8)
    layer.dropout.p = 1.0
    assert layer(x)[0].equal(x)


class Doubling(nn.Module):
    def forward(self, x, mask=None, need_weights=False):
        return 2 * x, None


def test_a_stack_takes_layers_of_your_own():
    x = torch.randn(2, 4, 8)
    output, maps = Encoder([Doubling(), Doubling(), Doubling()])(x, need_weights=True)
    assert output.equal(8 * x) and maps == [None] * 3
