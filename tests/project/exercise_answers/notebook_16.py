"""Answers to the exercises of notebook 16: packed weights, a test of batches, PyTorch's masks, a conversion."""

import numpy as np
import torch
from torch import nn

from transformer_lib import from_torch
from transformer_lib.model.encoder import EncoderLayer


def additive(mask, num_heads, hidden=-torch.inf):
    floats = torch.zeros(mask.shape).masked_fill(~mask, hidden)
    return floats[:, 0].repeat_interleave(num_heads, dim=0)


def times_infinity(mask, num_heads):
    return ((~mask).float() * -torch.inf)[:, 0].repeat_interleave(num_heads, dim=0)


def repeated(mask, num_heads):
    return torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)[:, 0].repeat(num_heads, 1, 1)


def sees_itself(mask):
    blind = ~mask.any(dim=-1, keepdim=True)
    return mask | (blind & torch.eye(mask.shape[-1], dtype=torch.bool))


def in_place(mask):
    mask[~mask.any(dim=-1)] = True
    return mask


def mixes(module, x, change=lambda one: torch.randn_like(one), sentences=None, keep=True):
    before = module(x)
    for sentence in range(len(x)) if sentences is None else sentences:
        changed = x.clone() if keep else x
        changed[sentence] = change(changed[sentence])
        moved = (module(changed) - before).abs().flatten(1).amax(dim=1) > 1e-5
        moved[sentence] = False
        if moved.any():
            return True
    return False


def any_moves(module, x):
    changed = x.clone()
    changed[0] += 1
    return bool((module(changed) - module(x)).abs().max() > 1e-5)


def asks(module, x):
    return not all(getattr(part, "batch_first", True) for part in module.modules())


def alone(module, x):
    apart = torch.cat([module(one[None]) for one in x])
    return not torch.allclose(apart, module(x), atol=1e-5)


def converted(
    order=("q_proj", "k_proj", "v_proj"),
    norms=("norm1", "norm2"),
    sizes=None,
    share=False,
    biases=True,
    dropouts=("dropout", "inner_dropout"),
):
    def convert(theirs):
        attention, d_model = theirs.self_attn, theirs.self_attn.embed_dim
        arguments = sizes or (d_model, attention.num_heads, theirs.linear1.out_features)
        dropout = dict.fromkeys(dropouts, theirs.dropout1.p)
        ours = EncoderLayer(*arguments, **dropout, norm_first=sizes is None and theirs.norm_first)
        parts = {
            "self_attn.out_proj": attention.out_proj,
            "norm1": getattr(theirs, norms[0]),
            "feed_forward.linear1": theirs.linear1,
            "feed_forward.linear2": theirs.linear2,
            "norm2": getattr(theirs, norms[1]),
        }
        kinds = ("weight", "bias") if biases else ("weight",)
        for kind in kinds:
            packed = getattr(attention, f"in_proj_{kind}").chunk(3)
            for name, part in zip(order, packed, strict=True):
                getattr(getattr(ours.self_attn, name), kind).data = part.data.clone()
            for name, part in parts.items():
                weights = getattr(part, kind).data
                getattr(ours.get_submodule(name), kind).data = weights if share else weights.clone()
        return ours

    return convert


def with_attention_dropout_only(theirs):
    ours = converted(dropouts=("dropout",))(theirs)
    ours.self_attn.dropout = theirs.self_attn.dropout
    return ours


def by_gradients(module, x):
    x.requires_grad_()
    output = module(x)
    for sentence in range(len(x)):
        reached = torch.autograd.grad(output[sentence].square().sum(), x, retain_graph=True)[0].flatten(1).any(dim=1)
        reached[sentence] = False
        if reached.any():
            return np.True_
    return np.False_


def with_biases_mixed(*names):
    def convert(theirs):
        ours = converted()(theirs)
        first, second = map(ours.get_submodule, names)
        first.bias, second.bias = second.bias, first.bias
        return ours

    return convert


def transposed(theirs):
    ours = converted()(theirs)
    for projection in (ours.self_attn.q_proj, ours.self_attn.k_proj, ours.self_attn.v_proj):
        projection.weight.data = projection.weight.data.T
    return ours


def always_post_norm(theirs):
    ours = converted()(theirs)
    ours.norm_first = False
    return ours


RIGHT = {
    "16.1": [
        (640, 703),
        (1536 / 3 + 2 * 64, np.int64(703)),
        (torch.tensor(640), torch.tensor(703)),
    ],
    "16.2": [
        (mixes,),
        (lambda module, x: torch.tensor(mixes(module, x, change=lambda one: one + 1)),),
        (by_gradients,),
    ],
    "16.3": [
        (additive,),
        (lambda mask, num_heads: additive(mask, num_heads, hidden=-1e9).double(),),
        (lambda mask, num_heads: additive(mask, num_heads, hidden=torch.finfo(torch.float32).min),),
    ],
    "16.4": [
        (sees_itself,),
        (lambda mask: mask | ~mask.any(dim=-1, keepdim=True),),
        (lambda mask: torch.where(mask.any(-1, keepdim=True), mask, torch.eye(mask.shape[-1]).bool()),),
    ],
    "16.5": [(converted(),), (from_torch,)],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "16.1": [
        ((128, 191), "make queries"),
        ((1152, 1215), "make values"),
        ((704, 767), "fourth head"),
        ((448, 511), "not side by side"),
        ((640, 704), "not the one after it"),
        ((640, 800), "last_row: a head has"),
        ((600, 703), "first_row"),
        (("640", "703"), "a number was expected"),
        ((641, 704), "counted from 0"),
        ((576, 639), "first_row"),
        (([640], [703]), "a number was expected"),
    ],
    "16.2": [
        (any_moves, "own output may move"),
        (alone, "Keep the batch as it is"),
        (asks, "each time another one"),
        (lambda module, x: mixes(module, x, sentences=[0]), "each time another one"),
        (lambda module, x: mixes(module, x, sentences=range(len(x) - 1)), "only the first sentence sees the last"),
        (lambda module, x: mixes(module, x, keep=False), "clone it first"),
        (lambda module, x: "no", "True or False"),
        (lambda module, x: module(x) != module(x.flip(0)).flip(0), "True or False"),
        (
            lambda module, x: bool((module(x) - module(x.flip(0)).flip(0)).abs().max() > 1e-5),
            "each time another one",
        ),
    ],
    "16.3": [
        (times_infinity, "0 times minus infinity"),
        (repeated, "each other's masks"),
        (lambda mask, num_heads: additive(~mask, num_heads), "upside down"),
        (lambda mask, num_heads: additive(mask, num_heads, hidden=-1.0), "so little"),
        (lambda mask, num_heads: additive(mask, num_heads) + 1, "exactly 0"),
        (lambda mask, num_heads: ~mask[:, 0].repeat_interleave(num_heads, dim=0), "made of floats"),
        (lambda mask, num_heads: additive(mask, 1), "the shape is"),
        (lambda mask, num_heads: additive(mask, num_heads).numpy(), "a tensor was expected"),
        (lambda mask, num_heads: additive(mask, num_heads).unflatten(0, (-1, num_heads)), "the shape is"),
    ],
    "16.4": [
        (lambda mask: mask, "attend to nothing"),
        (lambda mask: mask | torch.eye(mask.shape[-1], dtype=torch.bool), "sees something else now"),
        (lambda mask: torch.ones_like(mask), "sees something else now"),
        (lambda mask: in_place(mask.contiguous()), "changes in place"),
        (lambda mask: sees_itself(mask).float(), "of booleans"),
    ],
    "16.5": [
        (converted(order=("k_proj", "q_proj", "v_proj")), "q_proj is that of the key"),
        (converted(norms=("norm2", "norm1")), "norms are exchanged"),
        (converted(biases=False), "nothing like these"),
        (converted(sizes=(16, 8, 24)), "8 heads"),
        (lambda theirs: EncoderLayer(theirs.self_attn.embed_dim, theirs.self_attn.num_heads, 32), "another size"),
        (converted(share=True), "share their weights"),
        (converted(dropouts=()), "after the sub-layers is 0.1, PyTorch's is 0.2"),
        (converted(dropouts=("dropout",)), "on attention weights is 0.1, PyTorch's is 0.2"),
        (with_attention_dropout_only, "inside the feed-forward network is 0.1"),
        (lambda theirs: theirs, "an EncoderLayer of this library"),
        (nn.Identity(), "an EncoderLayer of this library"),
        (with_biases_mixed("self_attn.q_proj", "self_attn.k_proj"), "the bias of q_proj is that of the key"),
        (with_biases_mixed("norm1", "norm2"), "some in the wrong place"),
        (transposed, "q_proj is transposed"),
        (always_post_norm, "one is post-LN and the other pre-LN"),
        (lambda: None, "stopped with TypeError"),
    ],
}
