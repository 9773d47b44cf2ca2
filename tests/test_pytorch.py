"""Both directions, against PyTorch's own modules: outputs and gradients agree to 1e-5 in float32. And their masks."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from weights import shake

from transformer_lib import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    PositionwiseFeedForward,
    Transformer,
    TransformerConfig,
    causal_mask,
    from_torch,
    padding_mask,
    to_torch,
)
from transformer_lib.fast.dropout import Dropout
from transformer_lib.interop import pytorch

SRC_IDS = torch.tensor([[5, 6, 7, 8], [9, 4, 1, 1]])
TGT_IDS = torch.tensor([[2, 5, 6], [2, 7, 1]])
SRC_MASK = padding_mask(SRC_IDS, pad_id=1)
TGT_PADDING = padding_mask(TGT_IDS, pad_id=1)
TGT_MASK = TGT_PADDING & causal_mask(3)
THEIR_TGT_MASKS = {
    "tgt_mask": pytorch.to_attn_mask(causal_mask(3)),
    "tgt_key_padding_mask": pytorch.to_key_padding_mask(TGT_PADDING),
    "memory_key_padding_mask": pytorch.to_key_padding_mask(SRC_MASK),
}
SIZES = {"d_model": 16, "num_heads": 4, "d_ff": 32}
THEIR_SIZES = (16, 4, 32)
KINDS = ["attention", "encoder layer", "decoder layer", "encoder", "decoder"]


def our_module(kind, norm_first):
    options = {**SIZES, "dropout": 0.0, "inner_dropout": 0.0, "norm_first": norm_first}
    return {
        "attention": lambda: MultiHeadAttention(16, 4),
        "encoder layer": lambda: EncoderLayer(**options),
        "decoder layer": lambda: DecoderLayer(**options),
        "encoder": lambda: Encoder((EncoderLayer(**options) for _ in range(2)), nn.LayerNorm(16)),
        "decoder": lambda: Decoder(DecoderLayer(**options) for _ in range(2)),
    }[kind]()


def their_module(kind, norm_first):
    options = {"dropout": 0.0, "norm_first": norm_first}
    encoder_layer = nn.TransformerEncoderLayer(*THEIR_SIZES, **options)  # sequence first, PyTorch's default
    decoder_layer = nn.TransformerDecoderLayer(*THEIR_SIZES, **options)
    return {
        "attention": lambda: nn.MultiheadAttention(16, 4),
        "encoder layer": lambda: encoder_layer,
        "decoder layer": lambda: decoder_layer,
        "encoder": lambda: nn.TransformerEncoder(encoder_layer, 2, nn.LayerNorm(16), enable_nested_tensor=False),
        "decoder": lambda: nn.TransformerDecoder(decoder_layer, 2),
    }[kind]()


def call_ours(kind, module, x, memory):
    if kind == "attention":
        return module(x, memory, memory, SRC_MASK)[0]
    if kind.startswith("encoder"):
        return module(memory, SRC_MASK)[0]
    return module(x, memory, TGT_MASK, SRC_MASK)[0]


def call_theirs(kind, module, x, memory):
    padding = pytorch.to_key_padding_mask(SRC_MASK)
    if kind == "attention":
        return module(x, memory, memory, key_padding_mask=padding)[0]
    if kind.startswith("encoder"):
        return module(memory, src_key_padding_mask=padding)
    return module(x, memory, **THEIR_TGT_MASKS)


def gradients(output, module):
    """Return each parameter's gradient of the same arbitrary loss, sorted, since the parts have other names."""
    loss = (output * torch.linspace(-1, 1, output.numel()).view(output.shape)).sum()
    found = torch.autograd.grad(loss, list(module.parameters()))
    return torch.cat([gradient.flatten() for gradient in found]).sort().values


def assert_same(ours, theirs, our_output, their_output):
    torch.testing.assert_close(our_output, their_output, atol=1e-5, rtol=0)
    torch.testing.assert_close(gradients(our_output, ours), gradients(their_output, theirs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_to_torch(kind):
    for norm_first in (False, True):
        torch.manual_seed(0)
        ours = our_module(kind, norm_first)
        shake(ours)
        theirs = to_torch(ours)
        assert type(theirs).__module__.startswith("torch.nn")
        x, memory = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
        assert_same(ours, theirs, call_ours(kind, ours, x, memory), call_theirs(kind, theirs, x, memory))


@pytest.mark.parametrize("kind", KINDS)
def test_from_torch_even_if_it_was_sequence_first(kind):
    for norm_first in (False, True):
        torch.manual_seed(0)
        theirs = their_module(kind, norm_first)
        shake(theirs)
        ours = from_torch(theirs)
        assert type(ours) is type(our_module(kind, norm_first))
        x, memory = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
        their_output = call_theirs(kind, theirs, x.transpose(0, 1), memory.transpose(0, 1)).transpose(0, 1)
        assert_same(ours, theirs, call_ours(kind, ours, x, memory), their_output)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_again_gives_the_same_weights_and_settings(kind, norm_first):
    ours = our_module(kind, norm_first).eval()
    for number, module in enumerate(ours.modules()):
        if isinstance(module, nn.Dropout):
            module.p = number / 100
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-3 * (1 + number)
        if isinstance(module, MultiHeadAttention):
            module.dropout = number / 100
    shake(ours)
    back = from_torch(to_torch(ours))
    assert str(back) == str(ours)  # classes, sizes, dropout rates and epsilons
    assert not any(module.training for module in back.modules())
    assert [module.dropout for module in back.modules() if isinstance(module, MultiHeadAttention)] == [
        module.dropout for module in ours.modules() if isinstance(module, MultiHeadAttention)
    ]
    assert list(back.state_dict()) == list(ours.state_dict())
    for name, weight in ours.state_dict().items():
        assert back.state_dict()[name].equal(weight), name


NORMS = {"post-LN": {}, "pre-LN": {"norm_first": True}, "post-LN, final norms": {"final_norm": True}}


def make_model(**changes):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(12, 13, **SIZES, num_layers=2, dropout=0.0, max_len=10, **changes))
    shake(model)
    return model


@pytest.fixture(params=NORMS.values(), ids=NORMS)
def model(request):
    return make_model(**request.param)


def their_forward(theirs, model):
    decoded = theirs(
        model.src_embedding(SRC_IDS),
        model.tgt_embedding(TGT_IDS),
        src_key_padding_mask=pytorch.to_key_padding_mask(SRC_MASK),
        **THEIR_TGT_MASKS,
    )
    return model.output(decoded)


def test_the_whole_model_to_torch(model):
    theirs = to_torch(model)
    logits = model(SRC_IDS, TGT_IDS)
    torch.testing.assert_close(their_forward(theirs, model), logits, atol=1e-5, rtol=0)
    halves = nn.ModuleList([model.encoder, model.decoder])
    assert_same(halves, theirs, logits, their_forward(theirs, model))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_an_nn_transformer_built_with_its_defaults_comes_whole(norm_first):
    """Final norms included, which PyTorch puts after both stacks, post-LN or not."""
    theirs = nn.Transformer(16, 4, 3, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    shake(theirs)
    model = make_model()
    model.encoder, model.decoder = from_torch(theirs)
    assert len(model.encoder.layers) == 3 and len(model.decoder.layers) == 2
    assert isinstance(model.encoder.norm, nn.LayerNorm) and isinstance(model.decoder.norm, nn.LayerNorm)
    halves = nn.ModuleList([model.encoder, model.decoder])
    assert_same(halves, theirs, model(SRC_IDS, TGT_IDS), their_forward(theirs, model))


def test_the_copy_is_a_copy():
    ours = our_module("encoder layer", False)
    theirs = to_torch(ours)
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    shake(theirs)
    assert all(weight.equal(before[name]) for name, weight in ours.state_dict().items())
    again = from_torch(theirs)
    before = {name: weight.clone() for name, weight in theirs.state_dict().items()}
    shake(again)
    assert all(weight.equal(before[name]) for name, weight in theirs.state_dict().items())


@pytest.mark.parametrize("frozen", [False, True])
def test_precision_stays_and_the_copy_is_trainable(frozen):
    ours = our_module("decoder layer", True).double().requires_grad_(not frozen)
    for module in (to_torch(ours), from_torch(to_torch(ours))):
        assert {parameter.dtype for parameter in module.parameters()} == {torch.float64}
        assert all(parameter.requires_grad and parameter.is_leaf for parameter in module.parameters())
    assert {parameter.requires_grad for parameter in ours.parameters()} == {not frozen}


def test_padding_in_evaluation_mode_changes_nothing():
    """PyTorch's nested tensors would leave zeros at padded positions."""
    ours = our_module("encoder", False).eval()
    x = torch.randn(2, 4, 16)
    with torch.inference_mode():
        theirs = call_theirs("encoder", to_torch(ours), None, x)
    torch.testing.assert_close(call_ours("encoder", ours, None, x), theirs, atol=1e-5, rtol=0)


def test_an_option_that_this_library_does_not_have_is_refused():
    for theirs, message in (
        (nn.TransformerEncoderLayer(*THEIR_SIZES, activation=torch.tanh), "activation=.*tanh"),
        (nn.TransformerDecoderLayer(*THEIR_SIZES, activation=nn.GELU("tanh")), "activation=GELU.*tanh"),
        (nn.TransformerEncoderLayer(*THEIR_SIZES, activation=nn.Hardtanh(0, 10)), "activation=Hardtanh"),  # ReLU to 10
        (nn.TransformerEncoderLayer(*THEIR_SIZES, bias=False), "bias=False"),
        (nn.MultiheadAttention(16, 4, bias=False), "bias=False"),
        (nn.MultiheadAttention(16, 4, add_bias_kv=True), "add_bias_kv"),
        (nn.MultiheadAttention(16, 4, add_zero_attn=True), "add_zero_attn"),
        (nn.MultiheadAttention(16, 4, kdim=8), "kdim"),
    ):
        with pytest.raises(ValueError, match=message):
            from_torch(theirs)


SPELLINGS = {
    "relu": ["relu", nn.ReLU(), nn.ReLU(inplace=True), torch.relu, F.relu],
    "gelu": ["gelu", nn.GELU(), F.gelu],
    "silu": [nn.SiLU(), F.silu, lambda x: x * x.sigmoid()],
}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_an_activation_is_recognised_however_it_is_written(kind, name):
    for activation in SPELLINGS[name]:
        theirs = kind(*THEIR_SIZES, dropout=0.0, activation=activation, batch_first=True)
        shake(theirs)
        ours = from_torch(theirs)
        x = torch.randn(2, 3, 16)
        both = (x, x) if kind is nn.TransformerDecoderLayer else (x,)
        torch.testing.assert_close(ours(*both)[0], theirs(*both), atol=1e-5, rtol=0)
        assert ours.feed_forward.activation == name


@pytest.mark.parametrize("mode", ["training", "evaluation"])  # PyTorch has another path for each
@pytest.mark.parametrize("activation", SPELLINGS)
def test_the_whole_model_goes_to_torch_with_any_activation(activation, mode):
    model = make_model(activation=activation).train(mode == "training")
    with torch.no_grad():
        torch.testing.assert_close(their_forward(to_torch(model), model), model(SRC_IDS, TGT_IDS), atol=1e-5, rtol=0)


def test_what_becomes_ours_drops_as_ours_does():
    theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(*THEIR_SIZES, dropout=0.3), 2, enable_nested_tensor=False)
    drops = [module for module in from_torch(theirs).modules() if isinstance(module, nn.Dropout)]
    assert len(drops) == 4 and {(type(drop), drop.p) for drop in drops} == {(Dropout, 0.3)}


class OwnLayer(EncoderLayer):
    pass


class OwnTransformer(Transformer):
    pass


class SwiGLU(PositionwiseFeedForward):
    pass


class OwnAttention(MultiHeadAttention):
    pass


class LowRank(nn.Linear):
    """What LoRA puts in a linear layer's place."""


class TheirTransformer(nn.Transformer):
    pass


def test_a_subclass_is_refused_since_it_may_compute_something_else_from_the_same_weights():
    for ours in (OwnLayer(**SIZES), OwnTransformer(make_model().config), nn.Embedding(2, 2)):
        with pytest.raises(TypeError, match=rf"ours has a .*{type(ours).__name__}"):
            to_torch(ours)
    for theirs in (
        torch.ao.nn.quantizable.MultiheadAttention(16, 4),  # which does not use the weights it inherits
        TheirTransformer(16, 4, 1, 1, 32, batch_first=True),
        our_module("encoder layer", False),
    ):
        with pytest.raises(TypeError, match=rf"theirs has a .*{type(theirs).__name__}"):
            from_torch(theirs)


@pytest.mark.parametrize("kind", ["encoder layer", "decoder layer", "encoder", "decoder"])
def test_a_layer_with_a_part_of_your_own_is_refused(kind):
    for name, part in (
        ("feed_forward", SwiGLU(16, 32)),
        ("self_attn", OwnAttention(16, 4)),
        ("self_attn.q_proj", LowRank(16, 16)),
        ("feed_forward.linear2", LowRank(32, 16)),
        ("norm1", nn.Identity()),
    ):
        ours = our_module(kind, False)
        layer = ours.layers[1] if hasattr(ours, "layers") else ours
        layer.set_submodule(name, part)
        with pytest.raises(TypeError, match=rf"ours has a .*{type(part).__name__}"):
            to_torch(ours)


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


def test_a_mask_of_another_kind_is_not_taken_for_padding():
    for other in (causal_mask(3), TGT_MASK):  # [3, 3] and [2, 1, 3, 3]
        with pytest.raises((ValueError, RuntimeError)):
            pytorch.to_key_padding_mask(other)


def test_an_additive_mask_is_refused_and_what_the_docstring_advises_is_right():
    additive = nn.Transformer.generate_square_subsequent_mask(4)
    for convert in (pytorch.to_attn_mask, lambda mask: pytorch.from_torch_masks(attn_mask=mask)):
        with pytest.raises((TypeError, RuntimeError)):
            convert(additive)
    assert pytorch.from_torch_masks(attn_mask=additive == -torch.inf).equal(causal_mask(4))


def test_integers_never_pass_for_a_converted_mask():
    """``~`` of 0 and 1 is -1 and -2: neither side may take that for a mask."""
    ours, x = our_module("attention", False), torch.randn(2, 4, 16)
    with pytest.raises(ValueError, match="mask has dtype"):
        ours(x, x, x, pytorch.from_torch_masks(torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]])))
    with pytest.raises((AssertionError, RuntimeError)):
        to_torch(ours)(x, x, x, key_padding_mask=pytorch.to_key_padding_mask(SRC_MASK.int()))
