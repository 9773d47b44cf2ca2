import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.model.config import PRESETS
from transformer_lib.training.loss import sequence_loss

PAD = 1


def small_model(**changes):
    return Transformer(TransformerConfig(20, 20, 16, 4, 32, 2, max_len=20, **changes)).double().eval()


kinds = st.fixed_dictionaries(
    {
        "norm_first": st.booleans(),
        "positions": st.sampled_from(["learned", "sinusoidal"]),
        "tie_embeddings": st.booleans(),
    }
)
lengths = st.integers(1, 8)


def random_ids(length, seed, batch=2):
    return torch.randint(2, 20, (batch, length), generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40, deadline=None)
@given(kinds, lengths, lengths, st.data())
def test_a_later_target_token_never_changes_an_earlier_output(kind, src_len, tgt_len, data):
    model = small_model(**kind)
    src, tgt = random_ids(src_len, 0), random_ids(tgt_len, 1)
    position = data.draw(st.integers(0, tgt_len - 1))
    changed = tgt.clone()
    changed[:, position] = (changed[:, position] - 2 + data.draw(st.integers(1, 17))) % 18 + 2  # another real token
    before, after = model(src, tgt), model(src, changed)
    torch.testing.assert_close(before[:, :position], after[:, :position], rtol=0, atol=0)
    assert not before[:, position].allclose(after[:, position])


@settings(max_examples=40, deadline=None)
@given(kinds, lengths, lengths, st.integers(1, 5), st.integers(1, 5))
def test_padding_never_changes_an_output(kind, src_len, tgt_len, src_padding, tgt_padding):
    model = small_model(**kind)
    src, tgt = random_ids(src_len, 0), random_ids(tgt_len, 1)
    padded_src = torch.cat([src, torch.full((2, src_padding), PAD)], dim=1)
    padded_tgt = torch.cat([tgt, torch.full((2, tgt_padding), PAD)], dim=1)
    torch.testing.assert_close(model(padded_src, padded_tgt)[:, :tgt_len], model(src, tgt))


@settings(max_examples=20, deadline=None)
@given(kinds, lengths, st.integers(1, 5))
def test_what_stands_at_a_padded_position_has_no_influence(kind, length, padding):
    """Whatever the embedding of padding is."""
    model = small_model(**kind)
    src, tgt = random_ids(length, 0), random_ids(length, 1)
    filler = torch.full((2, padding), PAD)
    padded_src, padded_tgt = torch.cat([src, filler], dim=1), torch.cat([tgt, filler], dim=1)
    with torch.no_grad():
        model.src_embedding.tokens.table.weight[PAD] += 3.0
        model.tgt_embedding.tokens.table.weight[PAD] += 3.0
    torch.testing.assert_close(model(padded_src, padded_tgt)[:, :length], model(src, tgt))


def test_sentences_of_a_batch_do_not_see_each_other():
    model = small_model()
    src, tgt = random_ids(6, 0, batch=3), random_ids(5, 1, batch=3)
    torch.testing.assert_close(model(src[1:2], tgt[1:2]), model(src, tgt)[1:2])


@pytest.mark.parametrize(("src_types", "parameters"), [(7855, 9_038_853), (7853, 9_038_341)])
def test_the_tutorial_model_has_the_tutorials_parameters(src_types, parameters):
    assert Transformer(TransformerConfig.preset("tutorial", src_types, 5893)).num_parameters() == parameters


@pytest.mark.parametrize(("preset", "millions"), [("paper_base", 65), ("paper_big", 213)])
def test_the_papers_models_have_about_the_papers_parameters(preset, millions):
    with torch.device("meta"):
        model = Transformer(TransformerConfig.preset(preset, 37_000, 37_000))
    assert abs(model.num_parameters() / 1e6 - millions) < 0.03 * millions


def test_the_activation_is_one_field_and_reaches_both_stacks():
    src, tgt = random_ids(6, 0), random_ids(5, 1)
    plain = small_model()
    seen = [plain.encode(src)[0], plain(src, tgt)]
    for activation in ("gelu", "silu"):
        model = small_model(activation=activation)
        model.load_state_dict(plain.state_dict())  # what it has learnt goes from one to the other
        memory, memory_mask = plain.encode(src)
        assert not model.encode(src)[0].allclose(seen[0])
        assert not model.decode(tgt, memory, memory_mask).allclose(seen[1])
        assert model.num_parameters() == plain.num_parameters()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_model_can_be_copied_and_pickled(activation):
    model, src, tgt = small_model(activation=activation), random_ids(6, 0), random_ids(5, 1)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert again.config == model.config
        assert again(src, tgt).equal(model(src, tgt))


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # the fused kernel has no batching rule
def test_per_sentence_gradients_of_functorch_are_those_of_backward():
    model, src, tgt = small_model(), random_ids(6, 0), random_ids(5, 1)

    def loss(parameters, src, tgt):
        logits = torch.func.functional_call(model, parameters, (src[None], tgt[None, :-1]))
        return sequence_loss(logits, tgt[None, 1:], pad_id=1, label_smoothing=0.1)

    found = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(dict(model.named_parameters()), src, tgt)
    for i in range(len(src)):
        model.zero_grad()
        logits, targets = model.logits_and_targets(src[i : i + 1], tgt[i : i + 1])
        sequence_loss(logits, targets, pad_id=1, label_smoothing=0.1).backward()
        for name, parameter in model.named_parameters():
            assert found[name][i].allclose(parameter.grad, atol=1e-5), name


@pytest.mark.slow  # imports PyTorch's compiler, and traces the model
def test_a_model_can_be_exported_for_batches_of_any_size():
    model = small_model()
    batch, src_len, tgt_len = (torch.export.Dim(name, min=2, max=20) for name in ("batch", "src_len", "tgt_len"))
    shapes = ({0: batch, 1: src_len}, {0: batch, 1: tgt_len})
    exported = torch.export.export(model, (random_ids(6, 0, 3), random_ids(5, 1, 3)), dynamic_shapes=shapes).module()
    src, tgt = random_ids(9, 2, 4), random_ids(7, 3, 4)
    assert exported(src, tgt).allclose(model(src, tgt))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_computes_in_the_default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        model = Transformer(small_model().config).train()  # with dropout
    finally:
        torch.set_default_dtype(torch.float32)
    loss = sequence_loss(*model.logits_and_targets(random_ids(6, 0), random_ids(5, 1)), pad_id=1, label_smoothing=0.1)
    loss.backward()
    assert loss.isfinite() and {parameter.grad.dtype for parameter in model.parameters()} == {dtype}


def test_tied_embeddings_are_one_matrix_that_counts_once():
    tied, untied = small_model(tie_embeddings=True), small_model()
    assert tied.output.weight is tied.src_embedding.tokens.table.weight is tied.tgt_embedding.tokens.table.weight
    assert untied.num_parameters() - tied.num_parameters() == 2 * 20 * 16


def test_the_targets_are_the_tokens_one_step_later():
    model = small_model()
    src, tgt = random_ids(6, 0), random_ids(5, 1)
    logits, targets = model.logits_and_targets(src, tgt)
    assert targets.equal(tgt[:, 1:])
    assert logits.equal(model(src, tgt[:, :-1]))


@pytest.mark.parametrize("name", ["encode", "decode"])
def test_maps_of_another_computation_are_not_shown(name):
    other = type("Other", (Transformer,), {name: lambda self, *arguments: getattr(Transformer, name)(self, *arguments)})
    model = other(TransformerConfig(9, 9, d_model=8, num_heads=2, d_ff=8, num_layers=1))
    with pytest.raises(TypeError, match=f"Other overrides {name}: override attention_maps, too"):
        model.attention_maps(torch.tensor([[2, 4, 3]]), torch.tensor([[2, 4]]))


def test_attention_maps_of_every_kind_layer_and_head():
    model = small_model().train()
    model.encoder.eval()  # as people do with a part that shall not change
    src = torch.tensor([[5, 6, 7, 8], [5, 6, PAD, PAD]])
    tgt = torch.tensor([[2, 9, 10], [2, 9, PAD]])
    maps = model.attention_maps(src, tgt)
    assert model.training and model.decoder.layers[0].training and not model.encoder.training  # as it was
    assert [m.shape for m in maps.encoder] == [(2, 4, 4, 4)] * 2
    assert [m.shape for m in maps.decoder] == [(2, 4, 3, 3)] * 2
    assert [m.shape for m in maps.cross] == [(2, 4, 3, 4)] * 2
    for kind in maps:
        for weights in kind:
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))  # dropout is off
    assert not maps.cross[0][1, :, :, 2:].any()  # nobody looks at padding
    assert not maps.decoder[0].triu(1).any()  # nor ahead


def test_the_model_runs_without_the_maps_as_with_them():
    model = small_model()
    src = random_ids(6, 0)
    memory, mask = model.encode(src)
    memory_with_maps, _ = model.encoder(model.src_embedding(src), mask, need_weights=True)
    torch.testing.assert_close(memory, memory_with_maps)


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        (torch.zeros(2, 21), torch.zeros(2, 3), "length is 21, expected at most max_len=20"),
        (torch.zeros(2, 3), torch.zeros(2, 21), "length is 21, expected at most max_len=20"),
        (torch.full((2, 3), 20), torch.zeros(2, 3), "src holds the id 20, expected 0 to 19"),
        (torch.zeros(2, 3), torch.full((2, 3), -1), "tgt holds the id -1, expected 0 to 19"),
        (torch.zeros(3), torch.zeros(2, 3), r"src has shape \[3\], expected \[batch, seq_len\]"),
        (torch.zeros(3, 3), torch.zeros(2, 3), "tgt has 2 sentences but src has 3"),
        (torch.zeros(1, 3), torch.zeros(2, 3), "tgt has 2 sentences but src has 1"),
        (torch.zeros(2, 0), torch.zeros(2, 3), r"src has shape \[2, 0\], expected .* at least one position"),
    ],
)
def test_bad_input_is_named_before_any_kernel_sees_it(src, tgt, message):
    model = small_model()
    with pytest.raises(ValueError, match=message):
        model(src.long(), tgt.long())
    with pytest.raises(ValueError, match=message):
        model.attention_maps(src.long(), tgt.long())


def test_ids_must_be_integers():
    with pytest.raises(ValueError, match=r"src has dtype torch.float32, expected torch.int64"):
        small_model()(torch.zeros(2, 3), torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 10, "num_heads": 4}, "d_model=10 is not divisible by num_heads=4"),
        ({"num_layers": 0}, "num_layers is 0, expected a positive whole number"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"positions": "rotary"}, "positions is 'rotary', expected one of 'learned', 'sinusoidal'"),
        ({"activation": "swish"}, "activation is 'swish', expected one of 'relu', 'gelu', 'silu'"),
        ({"tie_embeddings": True}, "needs one joint vocabulary, but src_vocab_size=20 and tgt_vocab_size=30"),
        ({"pad_id": 25}, "pad_id is 25"),
    ],
)
def test_an_impossible_configuration_says_why(changes, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig(20, 30, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 2.5}, "d_model is 2.5, expected a whole number"),
        ({"d_model": "256"}, "d_model is '256', expected a whole number"),
        ({"num_layers": True}, "num_layers is True, expected a whole number"),
        ({"num_heads": np.float64(8)}, r"num_heads is .*8.0.*, expected a whole number"),
        ({"d_ff": None}, "d_ff is None, expected a whole number"),
        ({"dropout": "0.1"}, "dropout is '0.1', expected a number"),
        ({"norm_first": 1}, "norm_first is 1, expected True or False"),
        ({"positions": 3}, "positions is 3, expected a name"),
        ({"activation": torch.relu}, "activation is .*relu.*, expected a name"),
    ],
)
def test_a_value_of_another_type_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig(20, 20, **changes)


def test_numbers_of_numpys_become_plain_ones():
    config = TransformerConfig(np.int64(20), np.int32(30), num_layers=np.uint8(2), dropout=np.float32(0.25), max_len=50)
    assert config == TransformerConfig(20, 30, num_layers=2, dropout=0.25, max_len=50)
    again = TransformerConfig(**json.loads(json.dumps(dataclasses.asdict(config))))
    assert again == config
    kinds = {int, float, bool, str}
    assert {type(value) for value in dataclasses.asdict(config).values()} == kinds


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match="preset is 'huge', expected one of tutorial, tutorial_original, small, "):
        TransformerConfig.preset("huge", 10, 10)


@pytest.mark.parametrize("name", PRESETS)
def test_a_configuration_survives_its_dictionary(name):
    config = TransformerConfig.preset(name, 37, 37, pad_id=3)
    assert TransformerConfig(**dataclasses.asdict(config)) == config


def test_a_configuration_cannot_change_under_a_model():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small_model().config.d_model = 32


def test_another_id_for_padding_is_padding_too():
    model = Transformer(TransformerConfig(20, 20, 16, 4, 32, 2, max_len=20, pad_id=0)).double().eval()
    src, tgt = torch.tensor([[2, 5, 6]]), torch.tensor([[2, 7, 8]])
    padded = [torch.cat([ids, torch.zeros(1, 2, dtype=torch.long)], dim=1) for ids in (src, tgt)]
    torch.testing.assert_close(model(*padded)[:, :3], model(src, tgt))


def test_dropout_inside_of_the_sublayers_can_be_left_out():
    layer = Transformer(TransformerConfig(9, 9, 16, 4, 32, 1, dropout=0.3, inner_dropout=False)).decoder.layers[0]
    inner = layer.self_attn.dropout, layer.cross_attn.dropout, layer.feed_forward.dropout.p
    assert layer.dropout.p == 0.3 and inner == (0, 0, 0)
