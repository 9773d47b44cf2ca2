"""Checks of the exercises of notebook 11: RMSNorm, the turn of rotary positions, and an encoder of one's own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_exercises import (
    Wrong,
    call,
    close,
    exercise,
    expect,
    expect_any_device,
    expect_gradients,
    expect_tensor,
    question,
)
from transformer_exercises.course.notebook_11 import rotate as turned
from transformer_exercises.notebook_02 import OTHER_WITH_GRADIENT
from transformer_exercises.notebook_04 import WHERE_X_IS
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer

question(
    "11.a",
    right="rotary",
    replies={
        "RMSNorm": "its three dots lie among those of LayerNorm: it does less, and no harm that we can see.",
        "SwiGLU": "its three dots lie together, but on the other side: with every seed, the loss is higher.",
        "rotary": "from 2.156 to 2.117 in the mean. Only here, all three seeds are below those of 2017.",
        "grouped": "it is there for a smaller cache, and pays for it: with every seed, the loss is higher.",
        "all four": "what one of them gains, two others lose, and more: with every seed, the loss is higher.",
    },
)


@exercise("11.1")
def rms_norm(my_rms_norm: Callable[..., Tensor]) -> str:
    """``my_rms_norm(x, gain, eps)``: each vector divided by the root of the mean of its squares, times the gain."""
    torch.manual_seed(0)
    for shape, eps in (((2, 3, 8), 1e-6), ((5, 4), 0.5), ((16,), 1e-6)):
        x, gain = 3 * torch.randn(shape) + 1, torch.rand(shape[-1]) + 0.5
        squares = x.square()
        right = x / (squares.mean(dim=-1, keepdim=True) + eps).sqrt() * gain
        found = call(my_rms_norm, x.clone(), gain.clone(), eps)
        centred = x - x.mean(dim=-1, keepdim=True)
        layer_norm = centred / (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt() * gain
        mistakes = {
            "the mean is subtracted: that is LayerNorm. RMSNorm leaves the mean where it is.": layer_norm,
            "the gain is missing.": right / gain,
            "you divide by the root of the *sum* of the squares; it is their mean.": x
            / (squares.sum(dim=-1, keepdim=True) + eps).sqrt()
            * gain,
            "you divide by the mean of the squares; take its root.": x
            / (squares.mean(dim=-1, keepdim=True) + eps)
            * gain,
            "eps is added to the mean of the squares, under the root.": x
            / (squares.mean(dim=-1, keepdim=True).sqrt() + eps)
            * gain,
            "each vector has a root mean square of its own: take the mean over the last axis, dim=-1.": x
            / (squares.mean() + eps).sqrt()
            * gain,
        }
        for hint, mistake in mistakes.items():
            expect(close(found, right) or not close(found, mistake), hint)
        expect_tensor(found, right, f"x of shape {list(shape)}, eps {eps}: compare it with a vector done by hand.")
    return "half of LayerNorm's parameters, and one pass less over the numbers."


def wrong_turns(x: Tensor, start: int) -> dict[str, Tensor]:
    """Return what comes out of wrong turns of ``x``, by hint."""
    d_k = x.shape[-1]
    halves = torch.arange(d_k).view(2, -1).T.flatten()  # 0, d_k / 2, 1, d_k / 2 + 1, …
    back = halves.argsort()
    in_order = turned(x, start)
    angle = torch.arange(start, start + x.shape[-2])[:, None] * torch.ones(d_k // 2)
    a, b = x[..., ::2], x[..., 1::2]
    one_speed = torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)
    other_way = torch.cat([turned(x[..., p : p + 1, :], -start - p) for p in range(x.shape[-2])], dim=-2)
    return {
        "the first word is at position `start`, not at 0.": turned(x, 0),
        "positions are counted from `start`; yours are one too high.": turned(x, start + 1),
        "a pair is two neighbours, `x[..., ::2]` and `x[..., 1::2]`; yours lie half a head apart.": (
            turned(x[..., halves], start)[..., back]
        ),
        "turned, but in another order: a pair's two numbers stay neighbours, so `stack` them, then `flatten`.": (
            in_order[..., back]
        ),
        "it turns the other way round: the sine's minus belongs to the pair's first number.": other_way,
        "each pair has a speed of its own: the positions times `frequency`.": one_speed,
        "nothing has been turned yet.": x,
    }


@exercise("rotate")
def rotate(rotate: Callable[[Tensor, int], Tensor]) -> str:
    """``rotate(x, start)``: each pair of neighbours turned by its position, counted from ``start``, times its speed."""
    torch.manual_seed(0)
    for shape, start in (((2, 3, 5, 8), 3), ((1, 2, 4, 6), 0), ((2, 1, 1, 16), 104)):
        x = torch.randn(shape)
        found, right = call(rotate, x.clone(), start), turned(x, start)
        for hint, wrong in wrong_turns(x, start).items():
            expect(close(found, right) or not close(found, wrong), hint)
        if isinstance(found, Tensor) and found.shape == x.shape:
            length, same = found.detach().float().norm(dim=-1), x.norm(dim=-1)
            expect(close(length, same), "a turn makes no arrow longer or shorter: look at the signs.")
        hint = f"x of shape {list(shape)}, from position {start}: compare the last word's first pair with the formula."
        expect_tensor(found, right, hint)
    half = call(rotate, x.half(), 0)
    same_type = isinstance(half, Tensor) and half.dtype == torch.half
    expect(same_type, "x may be in 16 bits, and what comes out should be too: `.to(x.dtype)`.")
    expect_gradients(OTHER_WITH_GRADIENT, lambda x: rotate(x, 3), lambda x: turned(x, 3), x)
    expect_any_device(WHERE_X_IS, rotate, x, 3)
    return "no arrow becomes longer or shorter, and two that turn together keep their dot product."


@exercise("11.2")
def encoder_of_ones_own(MyEncoder: Callable[..., nn.Module]) -> str:
    """``MyEncoder(num_layers, d_model, num_heads, d_ff, …)``: an encoder that knows distances and no positions."""
    for norm_first in (True, False):
        _check_encoder(MyEncoder, norm_first)
    return (
        "it reads a sentence in the same way wherever it is. Exchange `model.encoder` for it, leave out the "
        "positions that are added, and train."
    )


def _check_encoder(make: Callable[..., nn.Module], norm_first: bool) -> None:
    torch.manual_seed(1)
    layers, d_model, heads = 2, 16, 4
    encoder = call(make, layers, d_model, heads, 32, 0.1, 0.1, norm_first)
    expect(isinstance(encoder, nn.Module), "an encoder is an nn.Module; begin with `class MyEncoder(nn.Module):`.")
    encoder.eval()
    for parameter in encoder.parameters():  # nothing may hide behind a beginning at zero
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, 6, d_model)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])[:, None, None, :]  # [batch, 1, 1, seq_len]

    def run(x: Tensor, mask: Tensor | None, need_weights: bool = False) -> Any:
        found = call(encoder, x, mask, need_weights)
        expect(
            isinstance(found, tuple | list) and len(found) == 2, "return two things: the memory, and a list of maps."
        )
        memory = found[0]
        expect(
            isinstance(memory, Tensor) and memory.shape == x.shape,
            f"the memory must have the shape of x, {list(x.shape)}.",
        )
        expect(not memory.isnan().any(), "there is nan in the memory: a word with nothing to look at?")
        return found

    memory, maps = run(x, mask, need_weights=True)
    expect(
        any(parameter.requires_grad for parameter in encoder.parameters()),
        "it has no parameters to train. Layers in a plain list do not count, those in an `nn.ModuleList` do.",
    )
    again = run(x, mask, need_weights=True)[0]
    expect(close(again, memory), "twice the same input, two outputs: dropout must be off in evaluation mode.")
    expect(memory.requires_grad, "no gradient leads back from the memory: nothing could be trained.")
    for parameter_name, parameter in _without_gradient(encoder, memory):
        raise Wrong(f"{parameter_name}, {list(parameter.shape)}, has no part in what comes out.")
    with torch.no_grad():
        shape = (2, heads, 6, 6)
        expect(
            isinstance(maps, list | tuple)
            and len(maps) == layers
            and all(isinstance(one, Tensor) and one.shape == shape for one in maps),
            f"with need_weights, the second thing is a list of {layers} maps, one a layer, each {list(shape)}.",
        )
        for one in maps:
            expect(close(one.sum(-1), torch.ones(2, heads, 6)), "the rows of a map are weights: they sum to 1.")
        expect(close(run(x, mask)[0], memory), "asking for the maps must not change the memory.")

        # padding changes nothing
        noisy = x.clone()
        noisy[1, 4:] = torch.randn(2, d_model)
        expect(
            close(run(noisy, mask)[0][1, :4], memory[1, :4]),
            "the padding is seen: other numbers there change what comes out for the real words. Is the mask passed on?",
        )
        expect(
            close(run(x[:1], None)[0], memory[:1]), "without a mask, all words are seen, as with one that hides none."
        )

        # order matters, in both directions
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        plain = run(x[:1], None)[0]
        expect(
            not close(run(x[:1, order], None)[0], plain[:, order], 1e-3),
            "the order of the words does not matter: shuffle them, and the outputs are shuffled, and otherwise "
            "the same. Where do distances come in?",
        )
        expect(
            not close(run(x[:1].flip(1), None)[0], plain.flip(1), 1e-3),
            "it cannot tell left from right: a sentence read backwards gives the same. A distance needs its sign.",
        )

        # and the beginning does not
        for shift in (1, 30):
            longer = torch.cat([torch.randn(1, shift, d_model), x[:1]], dim=1)
            real = (torch.arange(shift + 6) >= shift)[None, None, None, :]
            expect(
                close(run(longer, real)[0][:, shift:], plain, 1e-3),
                f"with {shift} hidden position{'s' * (shift > 1)} in front, the same words give something else. Only "
                "distances may count: nothing is added to x, and values are not turned.",
            )

        config = TransformerConfig(20, 20, d_model, heads, 32, layers, norm_first=norm_first)
        model = Transformer(config).eval()
        model.encoder = encoder
        ids = torch.randint(4, 20, (2, 7))
        call(model, ids, ids)
        call(model.attention_maps, ids, ids)


def _without_gradient(encoder: nn.Module, memory: Tensor) -> list[tuple[str, Tensor]]:
    named = [(name, parameter) for name, parameter in encoder.named_parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(memory.square().sum(), [parameter for _, parameter in named], allow_unused=True)
    return [pair for pair, gradient in zip(named, gradients, strict=True) if gradient is None]
