import pytest
import torch
from weights import shake

from transformer_lib import AddNorm, Encoder, EncoderLayer, causal_mask, padding_mask, to_torch
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
    norm = torch.nn.LayerNorm(16) if norm_first else None
    ours = Encoder((EncoderLayer(16, 4, 32, 0.0, 0.0, norm_first) for _ in range(3)), norm)
    shake(ours)
    theirs = to_torch(ours)
    x = torch.randn(2, 4, 16)
    output, maps = ours(x, MASK, need_weights=True)
    torch.testing.assert_close(output, theirs(x, src_key_padding_mask=pytorch.to_key_padding_mask(MASK)))
    assert [weights.shape for weights in maps] == [(2, 4, 4, 4)] * 3


def test_inner_dropout_is_separate_from_residual_dropout():
    layer = EncoderLayer(8, 2, 16, dropout=0.3, inner_dropout=0.0)
    assert (layer.self_attn.dropout, layer.feed_forward.dropout.p) == (0.0, 0.0)
    assert (layer.self_attention_add_norm.dropout.p, layer.feed_forward_add_norm.dropout.p) == (0.3, 0.3)


def test_add_norm_by_hand():
    x, y = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[0.0, 3.0]]])
    post, pre = AddNorm(2, 0.0, norm_first=False), AddNorm(2, 0.0, norm_first=True)
    torch.testing.assert_close(post.enter(x), x)
    torch.testing.assert_close(post.leave(x, y), torch.tensor([[[-1.0, 1.0]]]), atol=1e-5, rtol=0)  # norm of (1, 5)
    torch.testing.assert_close(pre.enter(x), torch.tensor([[[-1.0, 1.0]]]), atol=1e-4, rtol=0)
    torch.testing.assert_close(pre.leave(x, y), torch.tensor([[[1.0, 5.0]]]))
