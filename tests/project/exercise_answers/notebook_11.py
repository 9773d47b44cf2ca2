"""Answers to the exercise of notebook 11: RMSNorm."""

import torch


def rms(x, gain, eps=1e-6):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * gain


def layer_norm(x, gain, eps=1e-6):
    return torch.nn.functional.layer_norm(x, gain.shape, gain, eps=eps)


RIGHT = {
    "11.1": [
        (rms,),
        (lambda x, gain, eps: torch.nn.functional.normalize(x, dim=-1) * 0 + rms(x.double(), gain, eps),),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "11.1": [
        (layer_norm, "LayerNorm"),
        (lambda x, gain, eps: rms(x, 1, eps), "gain is missing"),
        (lambda x, gain, eps: x / (x.square().sum(-1, keepdim=True) + eps).sqrt() * gain, "their mean"),
        (lambda x, gain, eps: x / (x.square().mean(-1, keepdim=True) + eps) * gain, "take its root"),
        (lambda x, gain, eps: x / (x.square().mean() + eps).sqrt() * gain, "over the last axis"),
        (lambda x, gain, eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * gain, "under the root"),
        (lambda x, gain, eps: x / (x.std(-1, keepdim=True) + eps) * gain, "a vector done by hand"),
        (lambda x, gain, eps: rms(x, gain, eps)[0], "the shape is"),
    ],
}
