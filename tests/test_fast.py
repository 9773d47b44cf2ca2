"""The machine room computes what the plain parts compute."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from weights import shake

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.fast.attention import use_fused_kernel
from transformer_lib.fast.muon import BatchedMuon
from transformer_lib.fast.precision import fast_dtype
from transformer_lib.inference.translator import parallel_map
from transformer_lib.training.loop import evaluate, train_epoch
from transformer_lib.training.optimizer import make_optimizer
from transformer_lib.training.recipe import Recipe

SRC = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 1, 1]])
TGT = torch.tensor([[2, 9, 10, 11], [2, 12, 13, 1]])


def build(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "num_layers": 2, "max_len": 12}
    model = Transformer(TransformerConfig(20, 20, **{**sizes, **changes}))
    shake(model)
    return model


@pytest.mark.parametrize(("kind", "is_used"), [("cuda", True), ("cpu", True), ("mps", False), ("xpu", False)])
def test_the_fused_kernel_is_used_where_it_is_known_to_be_right(kind, is_used):
    """On Apple's GPUs, PyTorch 2.8 to 2.12 take the first sentence's mask for all."""
    query = SimpleNamespace(device=torch.device(kind), dtype=torch.float32)
    assert use_fused_kernel(query, 0.0) == is_used


def test_without_the_fused_kernel_a_model_computes_the_same(monkeypatch):
    model = build().eval()
    expected, loss = model(SRC, TGT), evaluate(model, [(SRC, TGT)])
    monkeypatch.setattr("transformer_lib.model.attention.use_fused_kernel", lambda q, dropout: False)
    torch.testing.assert_close(model(SRC, TGT), expected)
    assert evaluate(model, [(SRC, TGT)]) == pytest.approx(loss)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.1)])
def test_a_step_in_mixed_precision_is_nearly_that_in_full(precision, tolerance, with_bfloat16):
    """The weights stay in float32."""
    plain, mixed = build(dropout=0.0), build(dropout=0.0)
    before = torch.cat([weights.detach().flatten() for weights in plain.parameters()])
    for model, name in ((plain, "float32"), (mixed, precision)):
        train_epoch(model, [(SRC, TGT)], torch.optim.SGD(model.parameters(), lr=0.1), recipe=Recipe(precision=name))
    assert {weights.dtype for weights in mixed.parameters()} == {torch.float32}
    expected, step = (torch.cat([w.detach().flatten() for w in m.parameters()]) - before for m in (plain, mixed))
    assert (step - expected).norm() <= tolerance * expected.norm()
    assert step.equal(expected) == (precision == "float32")


def test_a_cpu_that_emulates_bfloat16_computes_in_float32(monkeypatch):
    full, half = torch.float32, torch.bfloat16
    for capability, dtype in {"AVX512": half, "SVE256": half, "AVX2": full, "DEFAULT": full}.items():
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        model = build()
        assert fast_dtype(torch.device("cpu")) == dtype
        if hasattr(torch.optim, "Muon"):  # PyTorch's multiplies in bfloat16 everywhere
            muon, _ = make_optimizer(model, Recipe(optimizer="muon")).optimizers
            assert type(muon) is (torch.optim.Muon if dtype == half else BatchedMuon)


def test_a_parallel_map_is_a_map_and_leaves_the_threads_alone():
    before = torch.get_num_threads()
    assert list(parallel_map(lambda x: x * x, range(7), workers=3)) == [x * x for x in range(7)]
    assert torch.get_num_threads() == before


def make_matrices():
    generator = torch.Generator().manual_seed(0)
    shapes = [(8, 24), (24, 8), (8, 24), (16, 16), (8, 24), (16, 16)]
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has Muon from 2.9 on")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_muon_in_batches_takes_pytorchs_steps(dtype, monkeypatch):
    monkeypatch.setattr("transformer_lib.fast.muon.fast_dtype", lambda device: dtype)
    ours, theirs = make_matrices(), make_matrices()
    same = {"lr": 0.05, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    optimizers = [BatchedMuon(ours, **same), torch.optim.Muon(theirs, **same)]
    generator = torch.Generator().manual_seed(1)
    for step in range(4):
        before = [[matrix.detach().clone() for matrix in matrices] for matrices in (ours, theirs)]
        if step == 2:  # each goes on with what the other has kept
            states = [optimizer.state_dict() for optimizer in optimizers]
            for optimizer, state in zip(optimizers, reversed(states), strict=True):
                optimizer.load_state_dict(state)
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            size = 1e-6 if number == 3 else 1.0  # float16 would round most of it away
            gradient = size * torch.randn(pair[0].shape, generator=generator)
            for matrix in pair:
                matrix.grad = None if number == step else gradient  # one matrix is left out
        for optimizer in optimizers:
            optimizer.step()
        for number, (mine, other, mine_before, other_before) in enumerate(zip(ours, theirs, *before, strict=True)):
            my_step, other_step = mine - mine_before, other - other_before
            assert (number == step) == (not my_step.any())
            assert (my_step - other_step).norm() <= 0.05 * other_step.norm(), number  # they round in another order
