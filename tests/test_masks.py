import pytest
import torch
from torch import nn

from transformer_lib import causal_mask, padding_mask, target_mask
from transformer_lib.interop import pytorch
from transformer_lib.model.masks import local_mask


def test_padding_mask_is_true_at_real_tokens_only():
    ids = torch.tensor([[2, 7, 3], [2, 3, 1]])
    assert padding_mask(ids, pad_id=1).tolist() == [[[[True, True, True]]], [[[True, True, False]]]]


def test_causal_mask_lets_a_position_see_itself_and_the_past():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_target_mask_allows_what_both_allow():
    ids = torch.tensor([[2, 7, 1]])
    assert target_mask(ids, pad_id=1).tolist() == [[[[True, False, False], [True, True, False], [True, True, False]]]]


def test_local_mask_sees_a_window_centred_on_each_position():
    assert local_mask(4, window=3).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert local_mask(5, window=1).equal(torch.eye(5, dtype=torch.bool))


@pytest.mark.parametrize("window", [0, 2, -3])
def test_local_mask_refuses_a_window_without_a_centre(window):
    with pytest.raises(ValueError, match=f"window is {window}"):
        local_mask(4, window)


def test_padding_mask_refuses_ids_of_another_shape():
    with pytest.raises(ValueError, match=r"ids has shape \[3\]"):
        padding_mask(torch.tensor([2, 7, 3]), pad_id=1)


def test_conversion_to_torch_and_back_changes_nothing():
    padding, causal = padding_mask(torch.tensor([[2, 7, 3], [2, 3, 1]]), pad_id=1), causal_mask(3)
    key_padding_mask, attn_mask = pytorch.to_key_padding_mask(padding), pytorch.to_attn_mask(causal)
    assert key_padding_mask.tolist() == [[False, False, False], [False, False, True]]
    assert pytorch.from_torch_masks(key_padding_mask).equal(padding)
    assert pytorch.from_torch_masks(attn_mask=attn_mask).equal(causal)
    assert pytorch.from_torch_masks(key_padding_mask, attn_mask).equal(padding & causal)
    assert pytorch.from_torch_masks() is None


def test_attn_mask_means_what_torch_means():
    theirs = nn.Transformer.generate_square_subsequent_mask(4)  # -inf where attention is forbidden
    assert pytorch.to_attn_mask(causal_mask(4)).equal(theirs.isinf())


def test_conversions_refuse_masks_of_the_other_kind():
    with pytest.raises(ValueError, match=r"mask has shape \[3, 3\], expected \[batch, 1, 1, seq_len\]"):
        pytorch.to_key_padding_mask(causal_mask(3))
    with pytest.raises(ValueError, match=r"expected \[query_len, key_len\]"):
        pytorch.to_attn_mask(padding_mask(torch.tensor([[2, 3]]), pad_id=1))
    with pytest.raises(ValueError, match=r"attn_mask has dtype torch.float32"):
        pytorch.from_torch_masks(attn_mask=torch.zeros(3, 3))


def test_what_the_errors_advise_for_an_additive_mask_is_right():
    additive = nn.Transformer.generate_square_subsequent_mask(4)
    with pytest.raises(ValueError, match="of an additive float mask, take mask == 0"):
        pytorch.to_attn_mask(additive)
    assert pytorch.to_attn_mask(additive == 0).equal(pytorch.to_attn_mask(causal_mask(4)))
    with pytest.raises(ValueError, match="of an additive float mask, take mask == -inf"):
        pytorch.from_torch_masks(attn_mask=additive)
    assert pytorch.from_torch_masks(attn_mask=additive == -torch.inf).equal(causal_mask(4))
