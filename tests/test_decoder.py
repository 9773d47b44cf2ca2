import pytest
import torch
from weights import shake

from transformer_lib import Decoder, DecoderLayer, causal_mask, padding_mask, to_torch
from transformer_lib.model import masks
from transformer_lib.model.decoder import concatenate_padded

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
        tgt_mask=masks.to_attn_mask(causal_mask(3)),
        tgt_key_padding_mask=masks.to_key_padding_mask(TGT_PADDING),
        memory_key_padding_mask=masks.to_key_padding_mask(MEMORY_MASK),
    )
    torch.testing.assert_close(output, expected)
    if need_weights:
        assert (self_weights.shape, cross_weights.shape) == ((2, 4, 3, 3), (2, 4, 3, 4))
    else:
        assert self_weights is cross_weights is None


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_equals_torch(norm_first):
    torch.manual_seed(0)
    ours = Decoder(2, 16, 4, 32, dropout=0.0, inner_dropout=0.0, norm_first=norm_first)
    shake(ours)
    theirs = to_torch(ours)
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
    output, _, _ = ours(x, memory, causal_mask(3))
    torch.testing.assert_close(output, theirs(x, memory, tgt_mask=masks.to_attn_mask(causal_mask(3))))


@pytest.mark.parametrize("norm_first", [False, True])
def test_with_a_cache_one_step_at_a_time_gives_what_all_steps_at_once_give(norm_first):
    torch.manual_seed(0)
    decoder = Decoder(2, 16, 4, 32, norm_first=norm_first).eval()
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    at_once, _, _ = decoder(x, memory, causal_mask(5), MEMORY_MASK)
    cache = decoder.start_cache(memory)
    steps = [decoder(x[:, i : i + 1], None, None, MEMORY_MASK, cache=cache)[0] for i in range(5)]
    torch.testing.assert_close(torch.cat(steps, dim=1), at_once)
    assert cache[0].length == 5


def test_a_cache_of_parts_is_the_cache_of_the_whole():
    torch.manual_seed(0)
    decoder = Decoder(2, 16, 4, 32).eval()
    memory = torch.randn(3, 5, 16)
    whole, parts = decoder.start_cache(memory), decoder.start_cache(memory[:1, :2], memory[1:])
    for one, other in zip(whole, parts, strict=True):
        for name in ("memory_keys", "memory_values"):
            expected, found = getattr(one, name), getattr(other, name)
            assert found.shape == expected.shape == (3, 4, 5, 4)
            torch.testing.assert_close(found[1:], expected[1:])
            torch.testing.assert_close(found[0, :, :2], expected[0, :, :2])
            assert not found[0, :, 2:].any()  # nothing is computed where there is no memory
            assert found.is_contiguous() and expected.is_contiguous()  # as the many reads want it


def test_batches_of_several_lengths_are_filled_up_with_zeros():
    short, long = torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[3.0], [4.0], [5.0]], [[6.0], [7.0], [8.0]]])
    together = concatenate_padded([short, long])
    assert together.squeeze(-1).tolist() == [[1, 2, 0], [3, 4, 5], [6, 7, 8]]
    assert concatenate_padded([long]).equal(long)


def test_several_rows_can_share_one_sentences_memory():
    torch.manual_seed(0)
    decoder = Decoder(2, 16, 4, 32).eval()
    x, memory = torch.randn(6, 1, 16), torch.randn(2, 4, 16)  # 2 sentences × beam of 3
    shared, _, _ = decoder(x, None, None, MEMORY_MASK, cache=decoder.start_cache(memory))
    own, _, _ = decoder(x, memory.repeat_interleave(3, dim=0), None, MEMORY_MASK.repeat_interleave(3, dim=0))
    torch.testing.assert_close(shared, own)


def test_selected_rows_take_their_past_along():
    torch.manual_seed(0)
    decoder = Decoder(1, 16, 4, 32).eval()
    x, memory = torch.randn(2, 2, 16), torch.randn(2, 4, 16)
    cache = decoder.start_cache(memory)
    decoder(x[:, :1], None, cache=cache)
    swap = torch.tensor([1, 0])
    cache[0].select_rows(swap)
    cache[0].select_sentences(swap)
    swapped, _, _ = decoder(x[swap, 1:], None, cache=cache)
    torch.testing.assert_close(swapped[swap], decoder(x, memory, causal_mask(2))[0][:, 1:])
