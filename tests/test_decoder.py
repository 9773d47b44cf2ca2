import pytest
import torch
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
    norm = torch.nn.LayerNorm(16) if norm_first else None
    ours = Decoder((DecoderLayer(16, 4, 32, 0.0, 0.0, norm_first) for _ in range(2)), norm)
    shake(ours)
    theirs = to_torch(ours)
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
    output, _, _ = ours(x, memory, causal_mask(3))
    torch.testing.assert_close(output, theirs(x, memory, tgt_mask=pytorch.to_attn_mask(causal_mask(3))))
