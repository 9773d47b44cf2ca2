"""Both directions, against PyTorch's own modules: outputs and gradients agree to 1e-5 in float32."""

import pytest
import torch
from torch import nn
from weights import shake

from transformer_lib import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    Transformer,
    TransformerConfig,
    causal_mask,
    from_torch,
    padding_mask,
    to_torch,
)
from transformer_lib.interop import pytorch
from transformer_lib.interop.pytorch import DECODER_LAYER, ENCODER_LAYER

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
        "encoder": lambda: Encoder(2, **options),
        "decoder": lambda: Decoder(2, **options),
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


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_to_torch(kind, norm_first):
    torch.manual_seed(0)
    ours = our_module(kind, norm_first)
    shake(ours)
    theirs = to_torch(ours)
    assert type(theirs).__module__.startswith("torch.nn")
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
    assert_same(ours, theirs, call_ours(kind, ours, x, memory), call_theirs(kind, theirs, x, memory))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_from_torch_even_if_it_was_sequence_first(kind, norm_first):
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
    assert str(back) == str(ours)  # sizes, dropout rates and epsilons
    assert not any(module.training for module in back.modules())
    assert [module.dropout for module in back.modules() if isinstance(module, MultiHeadAttention)] == [
        module.dropout for module in ours.modules() if isinstance(module, MultiHeadAttention)
    ]
    assert list(back.state_dict()) == list(ours.state_dict())
    for name, weight in ours.state_dict().items():
        assert back.state_dict()[name].equal(weight), name


@pytest.fixture(params=[False, True], ids=["post-LN", "pre-LN"])
def model(request):
    torch.manual_seed(0)
    config = TransformerConfig(12, 13, **SIZES, num_layers=2, dropout=0.0, norm_first=request.param, max_len=10)
    model = Transformer(config)
    shake(model)
    return model


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
def test_an_nn_transformer_built_with_its_defaults_comes_whole(model, norm_first):
    """Final norms included, which PyTorch puts after both stacks, post-LN or not."""
    theirs = nn.Transformer(16, 4, 3, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    shake(theirs)
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
def test_precision_stays_and_what_is_frozen_stays_frozen(frozen):
    ours = our_module("decoder layer", True).double().requires_grad_(not frozen)
    for module in (to_torch(ours), from_torch(to_torch(ours))):
        assert {parameter.dtype for parameter in module.parameters()} == {torch.float64}
        assert {parameter.requires_grad for parameter in module.parameters()} == {not frozen}
        assert all(parameter.is_leaf for parameter in module.parameters())


def test_queries_keys_and_values_are_frozen_together_or_not_at_all():
    ours = our_module("attention", False)
    ours.out_proj.requires_grad_(False)
    assert not to_torch(ours).out_proj.weight.requires_grad and to_torch(ours).in_proj_weight.requires_grad
    assert not from_torch(to_torch(ours)).out_proj.bias.requires_grad
    ours.k_proj.bias.requires_grad_(False)
    with pytest.raises(
        ValueError, match="ours has a bias that is frozen in some of its query, key and value projections"
    ):
        to_torch(ours)


def test_padding_in_evaluation_mode_changes_nothing():
    """PyTorch's nested tensors would leave zeros at padded positions."""
    ours = our_module("encoder", False).eval()
    x = torch.randn(2, 4, 16)
    with torch.inference_mode():
        theirs = call_theirs("encoder", to_torch(ours), None, x)
    torch.testing.assert_close(call_ours("encoder", ours, None, x), theirs, atol=1e-5, rtol=0)


def test_the_tables_name_every_part_of_a_layer_once():
    for names, ours, theirs in (
        (ENCODER_LAYER, our_module("encoder layer", False), their_module("encoder layer", False)),
        (DECODER_LAYER, our_module("decoder layer", False), their_module("decoder layer", False)),
    ):
        our_parameters = {name.rpartition(".")[0] for name, _ in ours.named_parameters()}
        assert all(any(f"{name}.".startswith(f"{part}.") for part in names) for name in our_parameters)
        assert len(set(names.values())) == len(names)
        assert set(names.values()) == {name for name, _ in theirs.named_children()}


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (nn.TransformerEncoderLayer(*THEIR_SIZES, activation="gelu"), "activation=gelu, expected relu"),
        (nn.TransformerDecoderLayer(*THEIR_SIZES, activation=nn.GELU()), "activation=GELU.*, expected relu"),
        (nn.TransformerEncoderLayer(*THEIR_SIZES, bias=False), "bias=False"),
        (nn.MultiheadAttention(16, 4, bias=False), "bias=False"),
        (nn.MultiheadAttention(16, 4, add_bias_kv=True), "add_bias_kv"),
        (nn.MultiheadAttention(16, 4, add_zero_attn=True), "add_zero_attn"),
        (nn.MultiheadAttention(16, 4, kdim=8), "kdim"),
    ],
)
def test_an_option_that_this_library_does_not_have_is_refused(theirs, message):
    with pytest.raises(ValueError, match=message):
        from_torch(theirs)


@pytest.mark.parametrize("activation", [nn.ReLU(), torch.relu, torch.nn.functional.relu])
def test_every_relu_is_relu(activation):
    assert isinstance(from_torch(nn.TransformerEncoderLayer(*THEIR_SIZES, activation=activation)), EncoderLayer)


def test_a_subclass_is_refused_since_it_may_not_use_the_weights_it_inherits():
    quantizable = torch.ao.nn.quantizable.MultiheadAttention(16, 4)
    with pytest.raises(TypeError, match=r"theirs is a torch\.ao\..*MultiheadAttention, expected .* no subclass"):
        from_torch(quantizable)

    class Mine(EncoderLayer):
        pass

    with pytest.raises(TypeError, match=r"ours is a .*Mine, expected .* no subclass"):
        to_torch(Mine(**SIZES))


def test_anything_else_says_what_was_expected():
    with pytest.raises(TypeError, match=r"ours is a .*Linear, expected this library's MultiHeadAttention"):
        to_torch(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"theirs is a .*EncoderLayer, expected PyTorch's MultiheadAttention"):
        from_torch(our_module("encoder layer", False))
