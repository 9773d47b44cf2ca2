import itertools

import pytest
import torch
from torch import nn
from weights import shake

from transformer_lib import DecoderLayer, Transformer, TransformerConfig
from transformer_lib.inference.kv_cache import CachedDecoder, can_cache
from transformer_lib.inference.search import greedy_search
from transformer_lib.model.attention import MultiHeadAttention
from transformer_lib.model.sublayers import PositionwiseFeedForward

SIZES = {"d_model": 16, "num_heads": 4, "d_ff": 32, "num_layers": 2, "max_len": 12}
SRC = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 1, 1]])
TGT = torch.tensor([[2, 9, 10, 11], [2, 12, 13, 14]])


def build(**changes):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(20, 20, **{**SIZES, **changes})).eval()
    shake(model)
    return model


@torch.no_grad()
def test_one_step_at_a_time_gives_what_all_steps_at_once_give():
    for norm_first, positions in itertools.product((False, True), ("learned", "sinusoidal")):
        model = build(norm_first=norm_first, positions=positions)
        cache = CachedDecoder(model, *model.encode(SRC))
        steps = [cache.step(TGT[:, i : i + 1]) for i in range(TGT.shape[1])]
        torch.testing.assert_close(torch.cat(steps, dim=1), model(SRC, TGT))
        assert cache.length == TGT.shape[1]


@torch.no_grad()
def test_several_rows_can_share_one_sentences_memory():
    model = build()
    beams = TGT.repeat_interleave(3, dim=0)
    beams[:, 1] += torch.arange(6) % 3  # three hypotheses of each sentence
    cache = CachedDecoder(model, *model.encode(SRC))
    steps = [cache.step(beams[:, i : i + 1]) for i in range(4)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(SRC.repeat_interleave(3, dim=0), beams))


@torch.no_grad()
def test_selected_rows_take_their_past_along():
    model = build()
    cache = CachedDecoder(model, *model.encode(SRC))
    cache.step(TGT[:, :1])
    cache.step(TGT[:, 1:2])
    second = torch.tensor([1])
    cache.select(second, second)
    torch.testing.assert_close(cache.step(TGT[second, 2:3])[:, 0], model(SRC[second], TGT[second, :3])[:, -1])


@torch.no_grad()
def test_the_model_itself_is_left_as_it_was():
    model = build()
    before = model(SRC, TGT)
    CachedDecoder(model, *model.encode(SRC)).step(TGT[:, :1])
    assert all(type(layer.self_attn) is MultiHeadAttention for layer in model.decoder.layers)
    assert model(SRC, TGT).equal(before)


def test_a_cache_takes_one_token_at_a_time():
    model = build()
    with pytest.raises(ValueError, match=r"newest has shape \[2, 4\], expected \[rows, 1\]"):
        CachedDecoder(model, *model.encode(SRC)).step(TGT)


class OtherDecode(Transformer):
    def decode(self, tgt, memory, memory_mask):
        return 2 * super().decode(tgt, memory, memory_mask)


class OtherAttention(MultiHeadAttention):
    def forward(self, query, key, value, mask=None, need_weights=False):
        return super().forward(query, key.flip(1), value, mask, need_weights)


class OtherLayer(DecoderLayer):
    def forward(self, x, *arguments):
        return super().forward(x.cumsum(1), *arguments)


class SwiGLU(PositionwiseFeedForward):
    caches = True

    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.gate = nn.Linear(d_model, d_ff)

    def forward(self, x):
        return self.linear2(nn.functional.silu(self.gate(x)) * self.linear1(x))


def test_what_a_cache_cannot_know_to_be_exact_is_not_cached():
    """A model of the reader's may compute anything from earlier positions."""
    assert can_cache(build())
    assert not can_cache(OtherDecode(TransformerConfig(20, 20, **SIZES)))
    model = build()
    model.decoder.layers[1].self_attn = OtherAttention(16, 4)
    assert not can_cache(model)
    model = build()
    model.decoder.layers[1] = OtherLayer(16, 4, 32)
    assert not can_cache(model)
    model = build()
    model.tgt_embedding.tokens = nn.Sequential(model.tgt_embedding.tokens, RunningSum())
    assert not can_cache(model)


@torch.no_grad()
def test_another_position_wise_network_is_cached():
    model = build()
    for layer in model.decoder.layers:
        layer.feed_forward = SwiGLU(16, 32)
    assert can_cache(model)
    cache = CachedDecoder(model, *model.encode(SRC))
    steps = [cache.step(TGT[:, i : i + 1]) for i in range(4)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(SRC, TGT))


class RunningSum(nn.Module):
    """Uses earlier positions, as a causal convolution would."""

    def forward(self, x):
        return x.cumsum(1)


def negated(module, arguments, output):
    return (-output[0], *output[1:]) if isinstance(output, tuple) else -output


def negate(module, method):
    own = getattr(module, method)
    setattr(module, method, lambda *arguments, **named: negated(module, arguments, own(*arguments, **named)))


def look_back_one_word(attention):
    own = attention.attend

    def attend(q, k, v, mask=None, need_weights=False):
        near = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril().triu(-1)
        return own(q, k, v, near if mask is None else mask & near, need_weights)

    attention.attend = attend


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.decoder.layers[0].self_attn.register_forward_hook(negated),
        lambda model: model.decoder.layers[0].cross_attn.register_forward_pre_hook(lambda m, x: (-x[0], *x[1:])),
        lambda model: model.tgt_embedding.register_forward_hook(negated),
        lambda model: model.decoder.register_forward_hook(lambda m, given, output: (output[0].cumsum(1), *output[1:])),
        lambda model: negate(model.decoder.layers[0].self_attn, "forward"),
        lambda model: look_back_one_word(model.decoder.layers[0].self_attn),
        lambda model: negate(model.tgt_embedding, "forward"),
        lambda model: negate(model, "decode"),
        lambda model: setattr(model.tgt_embedding, "dropout", nn.LayerNorm(16)),
        lambda model: setattr(model.tgt_embedding, "dropout", RunningSum()),
        lambda model: setattr(model.decoder.layers[0], "norm2", RunningSum()),
        lambda model: setattr(model.decoder, "norm", RunningSum()),
        lambda model: setattr(model, "output", nn.Sequential(RunningSum(), model.output)),
    ],
)  # fmt: skip
def test_what_is_changed_from_outside_counts_with_a_cache_as_without(change):
    """To switch a head off, people register a hook, or replace a method of one module."""
    model = build()
    before = greedy_search(model, SRC, 2, 3)
    change(model)
    plain, cached = (greedy_search(model, SRC, 2, 3, use_cache=use_cache) for use_cache in (False, True))
    assert [one.log_prob for one in plain] != pytest.approx([one.log_prob for one in before])
    assert [one.ids for one in cached] == [one.ids for one in plain]
    assert [one.log_prob for one in cached] == pytest.approx([one.log_prob for one in plain], rel=1e-4)


@torch.no_grad()
def test_one_step_at_a_time_computes_in_the_models_own_precision():
    """Sinusoids are as exact as float32, but make no float32 of what a bfloat16 model computes."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = build(positions="sinusoidal")
    finally:
        torch.set_default_dtype(torch.float32)
    cache = CachedDecoder(model, *model.encode(SRC))
    steps = torch.cat([cache.step(TGT[:, i : i + 1]) for i in range(TGT.shape[1])], dim=1)
    assert steps.dtype == torch.bfloat16
    torch.testing.assert_close(steps, model(SRC, TGT), rtol=0.1, atol=0.1)


def turn(x, start):
    """Rotary positions, the first of which is ``start`` (Su et al. 2021)."""
    angle = torch.arange(start, start + x.shape[-2])[:, None] * torch.tensor([1.0, 0.1])  # [seq_len, d_k / 2]
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


class Rotary(MultiHeadAttention):
    caches = True

    def attend(self, q, k, v, mask=None, need_weights=False):
        return super().attend(turn(q, k.shape[2] - q.shape[2]), turn(k, 0), v, mask, need_weights)


class RotaryFromZero(MultiHeadAttention):
    """As most people write it first: right for whole sentences, wrong for a query that comes alone."""

    def attend(self, q, k, v, mask=None, need_weights=False):
        return super().attend(turn(q, 0), turn(k, 0), v, mask, need_weights)


class Grouped(MultiHeadAttention):
    """Two heads of queries share one of keys and values (Ainslie et al. 2023)."""

    caches = True

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.k_proj, self.v_proj = nn.Linear(d_model, d_model // 2), nn.Linear(d_model, d_model // 2)

    def split_heads(self, x):
        return x.unflatten(-1, (-1, 4)).transpose(1, 2)

    def attend(self, q, k, v, mask=None, need_weights=False):
        return super().attend(q, k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1), mask, need_weights)


class RotaryGrouped(Grouped, Rotary):
    caches = True


class RotaryAndMore(Rotary):
    """A subclass speaks for itself: what it adds is not known."""

    def attend(self, q, k, v, mask=None, need_weights=False):
        return super().attend(q - q.mean(dim=2, keepdim=True), k, v, mask, need_weights)


class FromZeroToo(nn.Module):
    """Positions of one's own, which say nothing."""

    def __init__(self, positions):
        super().__init__()
        self.positions = positions

    def forward(self, length):
        return self.positions(length) * length


class Stated(FromZeroToo):
    caches = True

    def forward(self, length):
        return 2 * self.positions(length)


def build_with(attention, *places):
    model = build()
    for layer in model.decoder.layers:
        for place in places:
            setattr(layer, place, attention(16, 4))
    shake(model)
    return model.eval()


def with_positions(kind):
    model = build()
    model.tgt_embedding.positions = kind(model.tgt_embedding.positions)
    return model


OWN = {
    "rotary": (lambda: build_with(Rotary, "self_attn"), True),
    "grouped": (lambda: build_with(Grouped, "self_attn", "cross_attn"), True),
    "both": (lambda: build_with(RotaryGrouped, "self_attn"), True),
    "positions": (lambda: with_positions(Stated), True),
    "rotary that says nothing": (lambda: build_with(RotaryFromZero, "self_attn"), False),
    "a subclass of rotary": (lambda: build_with(RotaryAndMore, "self_attn"), False),
    "positions that say nothing": (lambda: with_positions(FromZeroToo), False),
}


@pytest.mark.parametrize("name", OWN)
def test_what_a_reader_writes_is_cached_if_its_class_says_so_and_found_the_same_without(name):
    make, says_so = OWN[name]
    model = make()
    assert can_cache(model) == says_so
    plain, default = (greedy_search(model, SRC, 2, 3, use_cache=use_cache) for use_cache in (False, True))
    assert [one.ids for one in default] == [one.ids for one in plain]
    assert [one.log_prob for one in default] == pytest.approx([one.log_prob for one in plain], rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("attention", [Rotary, Grouped, RotaryGrouped])
def test_rotary_and_grouped_attention_step_by_step_give_what_all_steps_at_once_give(attention):
    model = build_with(attention, "self_attn")
    cache = CachedDecoder(model, *model.encode(SRC))
    steps = [cache.step(TGT[:, i : i + 1]) for i in range(4)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(SRC, TGT))
    kept = cache.layers[0].self_attn.keys
    assert kept.shape == (2, 4 if attention is Rotary else 2, 4, 4)  # what grouped queries share is kept once
