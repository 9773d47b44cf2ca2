import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from weights import shake

from transformer_lib import MultiHeadAttention, causal_mask, padding_mask, scaled_dot_product_attention, to_torch
from transformer_lib.fast.attention import use_fused_kernel
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


SOME_SEE_NOTHING = torch.tensor([[True, True, True], [False, False, False], [True, False, False]])


def heads_of(attend):
    """Output and gradients of attention in which the second of three queries may attend to nothing."""
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(2, 2, 3, 4, generator=generator, requires_grad=True) for _ in range(3)]
    output = attend(*vectors)
    return output, *torch.autograd.grad(output.pow(3).sum() + output.sum(), vectors)


WAYS = {
    "readable": lambda q, k, v: scaled_dot_product_attention(q, k, v, SOME_SEE_NOTHING)[0],
    "fused": lambda q, k, v: MultiHeadAttention(8, 2).attend(q, k, v, SOME_SEE_NOTHING)[0],
    "with dropout": lambda q, k, v: MultiHeadAttention(8, 2, dropout=1e-9).attend(q, k, v, SOME_SEE_NOTHING)[0],
}


@pytest.mark.parametrize("attend", WAYS.values(), ids=WAYS)
def test_a_query_that_may_attend_to_nothing_gets_zeros_and_has_no_gradient(attend):
    output, to_query, to_key, to_value = heads_of(attend)
    assert output[..., 1, :].eq(0).all()
    assert to_query[..., 1, :].eq(0).all()
    assert to_query[..., 0, :].ne(0).all()
    assert all(gradient.isfinite().all() for gradient in (to_query, to_key, to_value))


@pytest.mark.parametrize("attend", WAYS.values(), ids=WAYS)
def test_a_query_that_may_attend_to_nothing_changes_no_other_gradient(attend):
    def without_it(q, k, v):
        return scaled_dot_product_attention(q[..., [0, 2], :], k, v, SOME_SEE_NOTHING[[0, 2]])[0]

    _, *gradients = heads_of(attend)
    _, *expected = heads_of(without_it)
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_module_whose_query_may_attend_to_nothing_stays_finite(need_weights):
    attention = MultiHeadAttention(8, 2)
    x = torch.randn(1, 3, 8, requires_grad=True)
    output, weights = attention(x, x, x, SOME_SEE_NOTHING, need_weights)
    torch.testing.assert_close(output[0, 1], attention.out_proj.bias)  # zeros, then the last projection
    if need_weights:
        assert weights[0, :, 1].eq(0).all()
    output.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in [x, *attention.parameters()])


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_with_the_fused_kernel_and_without_the_gradients_are_the_same(dtype, monkeypatch):
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 4).to(dtype)
    mask = padding_mask(torch.tensor([[5, 5, 5, 5, 1], [5, 5, 1, 1, 1], [5] * 5]), pad_id=1)
    tolerance = {} if dtype.itemsize >= 4 else {"atol": 0.05, "rtol": 0.05}
    for sentences, queries, masked in itertools.product((1, 3), (1, 4), (False, True)):
        x = torch.randn(sentences, 5, 16, dtype=dtype)
        results = []
        for fused in (True, False):
            monkeypatch.setattr(
                "transformer_lib.model.attention.use_fused_kernel", lambda q, dropout, fused=fused: fused
            )
            output, _ = attention(x[:, :queries], x, x, mask[:sentences] if masked else None)
            results.append([output, *torch.autograd.grad(output.sum(), list(attention.parameters()))])
        for without, expected in zip(*results, strict=True):
            torch.testing.assert_close(without, expected, **tolerance)


def test_with_the_fused_kernel_and_without_as_many_weights_are_dropped(monkeypatch):
    """With a value of one for each key, the output is the sum of the weights that were not dropped, over 1 - p."""
    for fused in (True, False):
        torch.manual_seed(0)
        monkeypatch.setattr("transformer_lib.model.attention.use_fused_kernel", lambda q, dropout, fused=fused: fused)
        q, k, v = torch.zeros(50, 4, 100, 8), torch.zeros(50, 4, 100, 8), torch.ones(50, 4, 100, 8)
        output, _ = MultiHeadAttention(32, 4, dropout=0.3).attend(q, k, v)  # all weights are 1/100
        assert output.mean().item() == pytest.approx(1, abs=5e-3)
        assert output[..., 0].std().item() == pytest.approx((0.3 / 0.7 / 100) ** 0.5, rel=0.05)


def test_a_cpu_has_the_fused_kernel_where_it_is_fast():
    single, half = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4, dtype=torch.bfloat16)
    assert use_fused_kernel(single, 0.0) and not use_fused_kernel(single, 0.1) and not use_fused_kernel(half, 0.0)
    with torch.no_grad():
        assert use_fused_kernel(half, 0.0)


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_acts_in_training_only(need_weights):
    attention = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not attention(x, x, x, need_weights=need_weights)[0].equal(attention(x, x, x, need_weights=need_weights)[0])
    attention.eval()
    assert attention(x, x, x, need_weights=need_weights)[0].equal(attention(x, x, x, need_weights=need_weights)[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_keys_and_values_of_different_lengths_are_refused(need_weights):
    query, key, value = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 4, 8)
    with pytest.raises(ValueError, match=r"key has shape \[2, 2, 5, 4\] but value \[2, 2, 4, 4\] in heads, expected"):
        MultiHeadAttention(8, 2)(query, key, value, need_weights=need_weights)


@pytest.mark.parametrize(("d_model", "num_heads"), [(10, 4), (8, 0), (8, -2)])
def test_d_model_must_be_divisible_by_num_heads(d_model, num_heads):
    with pytest.raises(ValueError, match=f"d_model={d_model} is not divisible by num_heads={num_heads}"):
        MultiHeadAttention(d_model, num_heads)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 30])
def test_dropout_must_be_a_probability_below_one(dropout):
    with pytest.raises(ValueError, match=f"dropout is {dropout}, expected a probability"):
        MultiHeadAttention(8, 2, dropout)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(3, 3), "mask has dtype torch.float32, expected torch.bool"),
        (torch.ones(3, 4, dtype=torch.bool), r"mask has shape \[3, 4\].*\[2, 2, 3, 3\]"),
        (torch.ones(2, 3, dtype=torch.bool), r"mask has shape \[2, 3\].*\[2, 2, 3, 3\]"),
        (torch.ones(1, 1, 1, 1, 3, dtype=torch.bool), r"mask has shape \[1, 1, 1, 1, 3\]"),
        (torch.ones(2, 3, 3, dtype=torch.bool), r"mask has shape \[2, 3, 3\].*mask\[:, None\]"),  # batch, or heads?
        (torch.ones(3, dtype=torch.bool), r"mask has shape \[3\].*\[2, 2, 3, 3\]"),  # of the keys, or of the queries?
        (torch.tensor(True), r"mask has shape \[\].*\[2, 2, 3, 3\]"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, message):
    x = torch.randn(2, 3, 8)
    for need_weights in (True, False):
        for dropout in (0.0, 0.1):  # without PyTorch's fused kernel
            with pytest.raises(ValueError, match=message):
                MultiHeadAttention(8, 2, dropout)(x, x, x, mask, need_weights)
    heads = torch.randn(2, 2, 3, 4)
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(heads, heads, heads, mask)
