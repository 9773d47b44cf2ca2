import pytest
import torch

from transformer_lib import causal_mask, padding_mask, target_mask
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
