import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from weights import shake

from transformer_lib import Decoder, DecoderLayer, causal_mask, padding_mask, to_torch
from transformer_lib.interop import pytorch

MEMORY_MASK = padding_mask(torch.tensor([[5, 5, 5, 5], [5, 5, 1, 1]]), pad_id=1)
TGT_PADDING = padding_mask(torch.tensor([[5, 5, 5], [5, 5, 1]]), pad_id=1)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_layer_equals_torch(norm_first, need_weights):
    torch.manual_seed(0)
    ours = DecoderLayer(16, 4, 32, dropout=0.0, inner_dropout=0.0, norm_first=norm_first)
    shake(ours)
    theirs = to_torch(ours)
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
    output, self_weights, cross_weights = ours(x, memory, TGT_PADDING & causal_mask(3), MEMORY_MASK, need_weights)
    expected = theirs(
        x,
        memory,
        tgt_mask=pytorch.to_attn_mask(causal_mask(3)),
        tgt_key_padding_mask=pytorch.to_key_padding_mask(TGT_PADDING),
        memory_key_padding_mask=pytorch.to_key_padding_mask(MEMORY_MASK),
    )
    torch.testing.assert_close(output, expected)
    if need_weights:
        assert (self_weights.shape, cross_weights.shape) == ((2, 4, 3, 3), (2, 4, 3, 4))
    else:
        assert self_weights is cross_weights is None


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_equals_torch(norm_first):
    torch.manual_seed(0)
    norm = nn.LayerNorm(16) if norm_first else None
    ours = Decoder((DecoderLayer(16, 4, 32, 0.0, 0.0, norm_first) for _ in range(2)), norm)
    shake(ours)
    theirs = to_torch(ours)
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
    output, _, _ = ours(x, memory, causal_mask(3))
    torch.testing.assert_close(output, theirs(x, memory, tgt_mask=pytorch.to_attn_mask(causal_mask(3))))


@pytest.mark.parametrize(("name", "function"), [("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_layer_with_any_activation_equals_torch(name, function, norm_first):
    torch.manual_seed(0)
    ours = DecoderLayer(16, 4, 32, dropout=0.0, inner_dropout=0.0, norm_first=norm_first, activation=name)
    shake(ours)
    theirs = nn.TransformerDecoderLayer(16, 4, 32, 0.0, function, batch_first=True, norm_first=norm_first)
    theirs.load_state_dict(to_torch(ours).state_dict())
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
    output, _, _ = ours(x, memory, causal_mask(3))
    torch.testing.assert_close(output, theirs(x, memory, tgt_mask=pytorch.to_attn_mask(causal_mask(3))))


def is_random(layer, x):
    return not layer(x, x)[0].equal(layer(x, x)[0])


def test_both_kinds_of_dropout_act_on_their_own_and_in_training_only():
    for dropout, inner_dropout in itertools.product((0.0, 0.3), repeat=2):
        layer, x = DecoderLayer(8, 2, 16, dropout=dropout, inner_dropout=inner_dropout), torch.randn(2, 4, 8)
        assert is_random(layer, x) == (dropout > 0 or inner_dropout > 0), (dropout, inner_dropout)
        assert not is_random(layer.eval(), x)


def test_what_is_dropped_is_what_sub_layers_add_never_what_goes_past_them():
    """With all of it dropped, a pre-LN layer returns what came in."""
    layer, x = DecoderLayer(8, 2, 16, norm_first=True), torch.randn(2, 4, 8)
    layer.dropout.p = 1.0
    assert layer(x, torch.randn(2, 5, 8))[0].equal(x)


class Adding(nn.Module):
    def forward(self, x, memory, tgt_mask=None, memory_mask=None, need_weights=False):
        return x + memory, None, None


def test_a_stack_takes_layers_of_your_own():
    x, memory = torch.randn(2, 2, 4, 8)
    output, self_maps, cross_maps = Decoder([Adding(), Adding()])(x, memory, need_weights=True)
    assert output.equal(x + memory + memory) and self_maps == cross_maps == [None, None]
