import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from weights import shake

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.fast.precision import in_precision
from transformer_lib.fast.prepacking import prepack

packs = pytest.mark.skipif(prepack(large := nn.Linear(1024, 1024)) is large, reason="this machine has nothing to gain")


@pytest.fixture(autouse=True)
def _every_matrix_is_large(monkeypatch):
    monkeypatch.setattr("transformer_lib.fast.prepacking.LARGE", 1)


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(50, 60, 32, 4, 64, 2, max_len=20)).eval()
    shake(model)
    return model


@packs
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_a_twin_computes_the_same(model, dtype, tolerance):
    model = model.to(dtype)
    src, tgt = torch.randint(2, 50, (3, 7)), torch.randint(2, 60, (3, 5))
    twin = prepack(model)
    assert twin is not model
    with torch.inference_mode():
        expected, logits = model(src, tgt), twin(src, tgt)
    assert logits.dtype == dtype and logits.shape == expected.shape
    assert_close(logits, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


@packs
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(64,), (1, 64), (0, 64), (300, 64), (2, 3, 64), (2, 0, 64)])
def test_any_shape_goes_through_a_linear_layer(bias, shape):
    layer = nn.Linear(64, 48, bias=bias)
    x = torch.randn(shape)
    with torch.inference_mode():
        assert_close(prepack(layer)(x), layer(x), rtol=1e-5, atol=1e-5)


@packs
def test_vectors_that_do_not_lie_side_by_side_go_through_as_well():
    layer = nn.Linear(64, 48)
    x = torch.randn(64, 5, 3).transpose(0, 2)  # [3, 5, 64]
    with torch.inference_mode():
        assert_close(prepack(layer)(x), layer(x), rtol=1e-5, atol=1e-5)


@packs
def test_the_model_stays_as_it_was(model):
    before, modules = copy.deepcopy(model.state_dict()), list(model.modules())
    src, tgt = torch.randint(2, 50, (3, 7)), torch.randint(2, 60, (3, 5))
    with torch.inference_mode():
        expected = model(src, tgt)
        prepack(model)(src, tgt)
        assert torch.equal(model(src, tgt), expected)
    assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    model(src, tgt).sum().backward()  # it still learns


@packs
def test_a_twin_holds_its_weights_from_when_it_was_made():
    layer = nn.Linear(64, 48, bias=False)
    twin = prepack(layer)
    x = torch.randn(5, 64)
    with torch.inference_mode():
        before = twin(x)
        layer.weight.zero_()
        assert torch.equal(twin(x), before)
        assert not prepack(layer)(x).any()


@packs
def test_what_watches_the_model_sees_its_twin_at_work(model):
    seen = []
    model.output.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.inference_mode():
        logits = prepack(model)(torch.randint(2, 50, (3, 7)), torch.randint(2, 60, (3, 5)))
    assert len(seen) == 1 and seen[0] is logits


@packs
def test_a_layer_that_stands_at_two_places_or_is_missing_does_so_in_the_twin():
    layer = nn.Linear(64, 64)
    pair = nn.Sequential(layer, layer)
    pair.register_module("left_out", None)
    twin = prepack(pair)
    assert twin.left_out is None
    with torch.inference_mode():
        assert_close(twin[1](twin[0](torch.ones(2, 64))), layer(layer(torch.ones(2, 64))))


@packs
def test_a_linear_layer_of_another_kind_is_left_alone():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    both = nn.ModuleList([Doubled(8, 8), nn.Linear(8, 8)])
    twin = prepack(both)
    assert twin[0] is both[0] and twin[1] is not both[1]


@packs
def test_only_large_matrices_are_prepacked(monkeypatch):
    monkeypatch.setattr("transformer_lib.fast.prepacking.LARGE", 64)
    both = nn.ModuleList([nn.Linear(8, 7), nn.Linear(8, 8)])
    twin = prepack(both)
    assert twin[0] is both[0] and twin[1] is not both[1]


@pytest.mark.parametrize("kind", ["float64", "int8", "no linear layer", "another device"])
def test_where_there_is_nothing_to_gain_the_model_is_its_own_twin(model, kind):
    makers = {
        "float64": model.double,
        "int8": lambda: in_precision(model, "int8"),
        "no linear layer": lambda: nn.Sequential(nn.LayerNorm(8), nn.ReLU()),
        "another device": lambda: nn.Linear(8, 8, device="meta"),
    }
    model = makers[kind]()
    assert prepack(model) is model


def test_under_autocast_without_onednn_or_avx512_the_model_is_its_own_twin(model, monkeypatch):
    with torch.autocast("cpu", torch.bfloat16):
        assert prepack(model) is model
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", False)
        assert prepack(model) is model
    with monkeypatch.context() as patch:
        patch.setattr("transformer_lib.fast.prepacking._OPERATIONS", ("_one_that_this_pytorch_lacks",))
        assert prepack(model) is model
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    assert prepack(model) is model
