"""The machine room computes what the plain parts compute, and leaves the model as its author wrote it."""

import copy

import pytest
import torch
from torch import nn
from weights import shake

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.fast.attention import CPUAttention, fused_attention_is_right
from transformer_lib.fast.dropout import CheapDropout
from transformer_lib.fast.muon import BatchedMuon
from transformer_lib.fast.precision import in_precision
from transformer_lib.fast.swap import ON_A_CPU, parts_for, twin
from transformer_lib.fast.threads import balanced_batches, side_by_side
from transformer_lib.fast.worker import Worker
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.training.loop import evaluate
from transformer_lib.training.optimizer import make_optimizer
from transformer_lib.training.recipe import Recipe

FUSED = torch.nn.functional.scaled_dot_product_attention
SRC = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 1, 1]])
TGT = torch.tensor([[2, 9, 10, 11], [2, 12, 13, 1]])


def build(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "num_layers": 2, "max_len": 12}
    model = Transformer(TransformerConfig(20, 20, **{**sizes, **changes}))
    shake(model)
    return model


def classes_of(model):
    return [type(module) for module in model.modules()]


def apples(query, key, value, attn_mask=None, dropout_p=0.0):
    """Do what PyTorch 2.8 to 2.12 did on Apple's GPUs: take the first sentence's mask for all."""
    return FUSED(query, key, value, attn_mask=None if attn_mask is None else attn_mask[:1], dropout_p=dropout_p)


def test_where_the_fused_kernel_is_wrong_the_readable_path_computes(monkeypatch):
    model, cpu = build().eval(), torch.device("cpu")
    expected, loss = model(SRC, TGT), evaluate(model, [(SRC, TGT)])
    assert fused_attention_is_right(cpu)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", apples)
    fused_attention_is_right.cache_clear()
    try:
        with pytest.warns(UserWarning, match="computes masked attention wrongly on device 'cpu'"):
            assert not fused_attention_is_right(cpu)
        assert not torch.allclose(model(SRC, TGT), expected, atol=1e-3)  # the second sentence is padded
        torch.testing.assert_close(twin(model, parts_for(cpu))(SRC, TGT), expected)
        assert evaluate(model, [(SRC, TGT)]) == pytest.approx(loss)
    finally:
        monkeypatch.undo()
        fused_attention_is_right.cache_clear()


def test_a_twin_computes_the_same_with_other_classes_and_the_model_keeps_its_own():
    model = build().eval()
    before = classes_of(model)
    faster = twin(model, ON_A_CPU)
    torch.testing.assert_close(faster(SRC, TGT), model(SRC, TGT))
    assert classes_of(model) == before and MultiHeadAttention not in classes_of(faster)
    assert {CPUAttention, CheapDropout} <= set(classes_of(faster))


@pytest.mark.parametrize("part", ["all of it", "a part"])
def test_a_model_that_torch_compile_has_wrapped_computes_the_same_and_stays_whole(part):
    model = build().eval()
    expected, names = model(SRC, TGT), list(model.state_dict())
    if part == "all of it":
        compiled = torch.compile(model, backend="eager")
    else:
        compiled = copy.copy(model)
        compiled._modules = {**model._modules, "encoder": torch.compile(model.encoder, backend="eager")}
    torch.testing.assert_close(twin(compiled, ON_A_CPU)(SRC, TGT), expected)
    assert list(model.state_dict()) == names
    torch.testing.assert_close(model(SRC, TGT), expected)


def test_a_layer_with_a_parametrization_has_a_twin_too():
    model = build().eval()
    expected = model(SRC, TGT)
    torch.nn.utils.parametrizations.weight_norm(model.output)
    torch.testing.assert_close(twin(model, ON_A_CPU)(SRC, TGT), expected)


def test_a_twin_has_the_models_weights_for_ever():
    model = build(tie_embeddings=True).eval()
    faster = twin(model, ON_A_CPU)
    with torch.no_grad():
        model.output.weight.mul_(2)
    assert faster.output.weight is model.output.weight is faster.src_embedding.tokens.table.weight
    assert faster.src_embedding.tokens is faster.tgt_embedding.tokens
    assert list(map(id, faster.parameters())) == list(map(id, model.parameters()))


def test_a_twin_has_a_mode_of_its_own():
    model = build().train()
    twin(model, ON_A_CPU).eval()
    assert all(module.training for module in model.modules())


class Louder(MultiHeadAttention):
    def attend(self, q, k, v, mask=None, need_weights=False):
        heads, weights = super().attend(q, k, v, mask, need_weights)
        return 2 * heads, weights


def test_a_users_subclass_is_never_exchanged():
    model = build().eval()
    model.encoder.layers[0].self_attn.__class__ = Louder
    faster = twin(model, ON_A_CPU)
    assert type(faster.encoder.layers[0].self_attn) is Louder
    torch.testing.assert_close(faster(SRC, TGT), model(SRC, TGT))


def test_pytorchs_own_layers_keep_their_parts():
    """They read attributes of their parts, past their forward."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    faster = twin(nn.Sequential(layer), ON_A_CPU)
    assert classes_of(faster[0]) == classes_of(layer)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_the_cpus_attention_equals_the_plain_one(dtype, masked):
    torch.manual_seed(0)
    plain = MultiHeadAttention(16, 4).to(dtype).eval()
    faster = twin(plain, ON_A_CPU)
    x = torch.randn(3, 5, 16, dtype=dtype)
    mask = torch.ones(5, 5, dtype=torch.bool).tril() if masked else None
    torch.testing.assert_close(faster(x, x, x, mask)[0], plain(x, x, x, mask)[0], atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(("p", "dtype"), [(0.3, torch.float32), (0.3, torch.bfloat16)])
def test_the_cpus_attention_drops_weights_in_training(p, dtype):
    """Values of one give the sum of the weights that are kept: 1 in the mean, and seldom exactly."""
    torch.manual_seed(0)
    attention = twin(MultiHeadAttention(16, 4, dropout=p), ON_A_CPU).train()
    q, k = torch.randn(50, 4, 20, 4, dtype=dtype), torch.randn(50, 4, 20, 4, dtype=dtype)
    sums, _ = attention.attend(q, k, torch.ones_like(k))
    assert sums.float().mean().item() == pytest.approx(1, abs=0.02)
    assert sums.float().std() > 0.05


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.1)])
def test_a_worker_brings_the_models_gradients(precision, tolerance, with_bfloat16):
    model = build(dropout=0.0)
    expected = copy.deepcopy(model)
    expected(SRC, TGT).square().mean().backward()
    worker = Worker(model, precision)
    logits, _ = worker.logits_and_targets([SRC, torch.cat([TGT, TGT[:, :1]], dim=1)])
    worker.backward(logits.float().square().mean())
    assert logits.dtype == getattr(torch, precision)
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}
    mine, theirs = (torch.cat([p.grad.flatten() for p in one.parameters()]) for one in (model, expected))
    assert (mine - theirs).norm() <= tolerance * theirs.norm()


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [("AVX512", torch.bfloat16), ("SVE256", torch.bfloat16), ("AVX2", torch.float32), ("DEFAULT", torch.float32)],
)
def test_a_cpu_that_emulates_bfloat16_computes_in_float32(capability, dtype, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    model = build()
    logits, _ = Worker(model, "bfloat16").logits_and_targets([SRC, torch.cat([TGT, TGT[:, :1]], dim=1)])
    assert logits.dtype == dtype
    assert in_precision(model, "bfloat16")(SRC, TGT).dtype == dtype
    if hasattr(torch.optim, "Muon"):  # PyTorch's multiplies in bfloat16 everywhere
        muon, _ = make_optimizer(model, Recipe(optimizer="muon")).optimizers
        assert type(muon) is (torch.optim.Muon if dtype == torch.bfloat16 else BatchedMuon)


def test_ids_are_checked_unless_they_are_known():
    bad = [SRC, TGT + 30]
    with pytest.raises(ValueError, match="tgt holds the id 4"):
        Worker(build()).logits_and_targets(bad)
    model = build()
    with pytest.raises(IndexError):  # PyTorch's own, on a CPU
        Worker(model, ids_are_known=True).logits_and_targets(bad)
    with pytest.raises(ValueError, match="tgt holds the id 4"):
        model(*bad)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_sentence_is_in_exactly_one_batch_of_at_most_the_size(workers):
    lengths = [(7 * i) % 23 + 1 for i in range(200)]
    batches = balanced_batches(lengths, 40, workers)
    assert sorted(i for batch in batches for i in batch) == list(range(200))
    assert max(map(len, batches)) <= 40
    in_order = [lengths[i] for batch in batches for i in batch]
    assert in_order == sorted(lengths, reverse=True)
    assert len(batches) >= workers


def test_side_by_side_is_a_map_and_leaves_the_threads_alone():
    before = torch.get_num_threads()
    assert list(side_by_side(lambda x: x * x, range(7), workers=3)) == [x * x for x in range(7)]
    assert torch.get_num_threads() == before


def make_matrices():
    generator = torch.Generator().manual_seed(0)
    shapes = [(8, 24), (24, 8), (8, 24), (16, 16), (8, 24), (16, 16)]
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has Muon from 2.9 on")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_muon_in_batches_takes_pytorchs_steps(dtype, monkeypatch):
    monkeypatch.setattr("transformer_lib.fast.muon.half_precision", lambda device: dtype)
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


def test_a_twin_has_a_mode_of_its_own_inside_pytorchs_layers_too():
    """Evaluating in the middle of an epoch must not switch off the dropout of the rest."""
    model = nn.Sequential(nn.TransformerEncoderLayer(16, 4, 32)).train()
    twin(model, ON_A_CPU).eval()
    assert all(module.training for module in model.modules())
