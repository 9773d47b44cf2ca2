import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from weights import shake

from transformer_lib import MultiHeadAttention, causal_mask, padding_mask, scaled_dot_product_attention, to_torch
from transformer_lib.interop import pytorch


def test_attention_by_hand():
    query = torch.tensor([[1.0, 0.0]])
    key = torch.tensor([[math.sqrt(2) * math.log(3), 5.0], [0.0, -7.0]])  # scores log 3 and 0: weights 3/4 and 1/4
    value = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    output, weights = scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(output, torch.tensor([[3.0, 2.0]]))


def random_mask(shape, generator):
    return torch.rand(shape, generator=generator) < 0.6


@settings(max_examples=50, deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    query_len=st.integers(1, 6),
    key_len=st.integers(1, 6),
    d_k=st.integers(1, 8),
    mask_shape=st.sampled_from(["none", "full", "padding", "queries"]),
    seed=st.integers(0, 1000),
)
def test_equals_torch_for_all_shapes_and_masks(batch, heads, query_len, key_len, d_k, mask_shape, seed):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, heads, query_len, d_k, generator=generator)
    key, value = torch.randn(2, batch, heads, key_len, d_k, generator=generator)
    shape = {
        "none": None,
        "full": (batch, heads, query_len, key_len),
        "padding": (batch, 1, 1, key_len),
        "queries": (query_len, key_len),
    }[mask_shape]
    mask = None if shape is None else random_mask(shape, generator)
    output, weights = scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(query, key, value, mask))
    if mask is not None:
        assert not weights[~mask.broadcast_to(weights.shape)].any()
    sums = weights.sum(-1)
    nothing_to_see = (
        torch.zeros_like(sums, dtype=torch.bool) if mask is None else ~mask.any(-1).broadcast_to(sums.shape)
    )
    torch.testing.assert_close(sums, (~nothing_to_see).float())


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_row_with_nothing_to_attend_to_gives_zeros_not_nan(need_weights):
    attention = MultiHeadAttention(8, 2)
    x = torch.randn(1, 3, 8, requires_grad=True)
    mask = torch.tensor([[True, True, True], [False, False, False], [True, False, False]])
    output, weights = attention(x, x, x, mask, need_weights)
    torch.testing.assert_close(output[0, 1], attention.out_proj.bias)  # zeros, then the last projection
    if need_weights:
        assert weights[0, :, 1].eq(0).all()
    output.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["none", "padding", "causal", "both"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_equals_torch_multihead_attention(kind, need_weights):
    torch.manual_seed(0)
    ours = MultiHeadAttention(16, 4)
    shake(ours)
    theirs = to_torch(ours)
    x = torch.randn(2, 5, 16)
    padding = padding_mask(torch.tensor([[5, 5, 5, 5, 5], [5, 5, 5, 1, 1]]), pad_id=1)
    causal = causal_mask(5)
    mask = {"none": None, "padding": padding, "causal": causal, "both": padding & causal}[kind]
    output, weights = ours(x, x, x, mask, need_weights)
    expected, expected_weights = theirs(
        x,
        x,
        x,
        key_padding_mask=pytorch.to_key_padding_mask(padding) if kind in ("padding", "both") else None,
        attn_mask=pytorch.to_attn_mask(causal) if kind in ("causal", "both") else None,
        average_attn_weights=False,
    )
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights)
    else:
        assert weights is None


def test_equals_torch_when_query_key_and_value_differ():
    torch.manual_seed(0)
    ours = MultiHeadAttention(16, 4)
    shake(ours)
    theirs = to_torch(ours)
    query, key, value = torch.randn(2, 3, 16), torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    torch.testing.assert_close(ours(query, key, value)[0], theirs(query, key, value)[0])


def test_both_paths_agree_gradients_included():
    torch.manual_seed(0)
    attention = MultiHeadAttention(12, 3).double()
    x, memory = torch.randn(2, 4, 12).double(), torch.randn(2, 6, 12).double()
    mask = padding_mask(torch.tensor([[5, 5, 5, 5, 5, 1], [5, 5, 1, 1, 1, 1]]), pad_id=1)
    gradients = []
    for need_weights in (True, False):
        inputs = [x.clone().requires_grad_(), memory.clone().requires_grad_()]
        output, _ = attention(inputs[0], inputs[1], inputs[1], mask, need_weights)
        wanted = [*inputs, *attention.parameters()]
        gradients.append((output, *torch.autograd.grad(output.pow(3).sum(), wanted)))
    for readable, fused in zip(*gradients, strict=True):
        torch.testing.assert_close(readable, fused)


@pytest.mark.parametrize(
    ("dtype", "grad", "sentences", "queries", "fused"),
    [
        (torch.float32, True, 2, 2, 1),
        (torch.float32, False, 2, 1, 0),
        (torch.float32, False, 1, 1, 1),
        (torch.bfloat16, True, 2, 2, 0),
        (torch.float16, True, 2, 2, 0),
        (torch.bfloat16, True, 1, 2, 0),
        (torch.bfloat16, False, 2, 2, 0),
        (torch.bfloat16, False, 1, 2, 1),
    ],
)
def test_a_cpu_leaves_the_fused_kernel_aside_where_it_is_slower(monkeypatch, dtype, grad, sentences, queries, fused):
    """In half precision, and for the only query of each of several sentences (notebook 10, sections 5 and 11)."""
    calls = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *vectors: calls.append(1) or kernel(*vectors))
    attention, x = MultiHeadAttention(16, 4).to(dtype), torch.randn(sentences, 5, 16).to(dtype)
    with torch.set_grad_enabled(grad):
        output, _ = attention(x[:, :queries], x, x)
        assert len(calls) == fused
        readable, _ = attention(x[:, :queries], x, x, need_weights=True)
    torch.testing.assert_close(output, readable, atol=1e-5 if dtype == torch.float32 else 0.02, rtol=0)


def test_attending_to_prepared_keys_and_values_is_the_same():
    attention = MultiHeadAttention(8, 2)
    query, memory = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    prepared = attention.project_keys_values(memory, memory)
    assert prepared[0].shape == (2, 2, 4, 4)  # [batch, heads, key_len, d_k]
    torch.testing.assert_close(attention.attend(query, *prepared)[0], attention(query, memory, memory)[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_acts_in_training_only(need_weights):
    attention = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not attention(x, x, x, need_weights=need_weights)[0].equal(attention(x, x, x, need_weights=need_weights)[0])
    attention.eval()
    assert attention(x, x, x, need_weights=need_weights)[0].equal(attention(x, x, x, need_weights=need_weights)[0])


def test_d_model_must_be_divisible_by_num_heads():
    with pytest.raises(ValueError, match="d_model=10 is not divisible by num_heads=4"):
        MultiHeadAttention(10, 4)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(3, 3), "mask has dtype torch.float32, expected torch.bool"),
        (torch.ones(3, 4, dtype=torch.bool), r"mask has shape \[3, 4\].*\[2, 2, 3, 3\]"),
        (torch.ones(2, 3, dtype=torch.bool), r"mask has shape \[2, 3\].*\[2, 2, 3, 3\]"),
        (torch.ones(1, 1, 1, 1, 3, dtype=torch.bool), r"mask has shape \[1, 1, 1, 1, 3\]"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, message):
    x = torch.randn(2, 3, 8)
    for need_weights in (True, False):
        with pytest.raises(ValueError, match=message):
            MultiHeadAttention(8, 2)(x, x, x, mask, need_weights)
    heads = torch.randn(2, 2, 3, 4)
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(heads, heads, heads, mask)
