"""The loss without ever having all logits at once, and how much two passes of R-Drop disagree."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_LOGITS_AT_ONCE = {"cpu": 2**20, "other": 2**27}  # 4 MB, which a CPU's cache holds a few times; 512 MB


def chunked_cross_entropy(
    output: nn.Linear,
    hidden_states: Tensor,
    targets: Tensor,
    pad_id: int,
    label_smoothing: float = 0.0,
    rdrop_weight: float = 0.0,
) -> Tensor:
    """Compute ``sequence_loss(output(hidden_states), targets, …)`` a few hundred positions at a time.

    The logits of a batch are by far its largest tensor, and are read and written several times between the hidden
    states and the gradient. Here they are never there all at once: the gradient of each slice is computed together
    with its loss, while a CPU still has it in its cache. A CPU also leaves padding out; a GPU would have to wait to
    know how much is left, so there, padding is computed and weighs nothing.

    With ``rdrop_weight``, the hidden states hold two passes of the same sentences, which dropout has made different,
    and the loss is R-Drop's (Liang et al. 2021, equation 4, halved): the mean of both passes' cross-entropies, plus
    ``rdrop_weight`` times the mean of the two Kullback-Leibler divergences between what the passes predict (so it is
    half of the paper's α).

    Args:
        output: the layer that makes logits of hidden_states.
        hidden_states: ``[batch, tgt_len, d_model]``; with ``rdrop_weight``, ``[2 · batch, tgt_len, d_model]``.
        targets: the tokens that should have been predicted, ``[batch, tgt_len]``.
        pad_id, label_smoothing: as in ``sequence_loss``.
        rdrop_weight: weight of the disagreement; 0 for one pass.
    """
    real = targets != pad_id
    passes = hidden_states.unflatten(0, (2 if rdrop_weight else 1, -1))  # [passes, batch, tgt_len, d_model]
    if _leaves_padding_out(hidden_states.device):
        passes, targets, padding = passes[:, real], targets[real], None
    else:
        passes, targets, padding = passes.flatten(1, 2), targets.flatten(), ~real.flatten()
    return _OutputLoss.apply(passes, output.weight, output.bias, targets, padding, label_smoothing, rdrop_weight)


def _leaves_padding_out(device: torch.device) -> bool:
    return device.type == "cpu"


class _OutputLoss(torch.autograd.Function):
    """The mean loss over tokens, given their hidden states, ``[passes, tokens, d_model]``, and which are padding."""

    @staticmethod
    def forward(ctx, passes, weight, bias, targets, padding, label_smoothing, rdrop_weight):
        num_passes, num_tokens, _ = passes.shape
        vocab_size = len(weight)
        wide = torch.promote_types(passes.dtype, torch.float32)
        loss = torch.zeros((), dtype=wide, device=passes.device)
        to_passes = torch.empty_like(passes)
        to_weight, to_bias = torch.zeros_like(weight, dtype=wide), torch.zeros_like(bias, dtype=wide)
        at_once = _LOGITS_AT_ONCE["cpu" if passes.device.type == "cpu" else "other"]
        step = max(1, at_once // (num_passes * vocab_size))
        for start in range(0, num_tokens, step):
            rows = slice(start, start + step)
            x = passes[:, rows]  # [passes, rows, d_model]
            target = targets[rows].expand(num_passes, -1)[..., None]  # [passes, rows, 1]
            log_p = F.linear(x, weight, bias).log_softmax(dim=-1, dtype=wide)  # [passes, rows, vocab_size]
            each = (1 - label_smoothing) * log_p.gather(-1, target) + label_smoothing * log_p.mean(-1, keepdim=True)
            p = log_p.exp()
            gradient = p  # of the cross-entropy: what is predicted minus what should be
            if rdrop_weight:
                difference = log_p - log_p.flip(0)
                divergence = (p * difference).sum(-1, keepdim=True)  # KL(this pass ‖ the other), [passes, rows, 1]
                each -= rdrop_weight * divergence
                gradient = difference.sub_(divergence).mul_(p).add_(p).sub_(p.flip(0))  # of both divergences
                gradient = gradient.mul_(rdrop_weight).add_(p)
            gradient.sub_(label_smoothing / vocab_size)
            gradient.scatter_add_(-1, target, torch.full_like(target, label_smoothing - 1, dtype=wide))
            if padding is not None:
                hidden = padding[rows, None]
                x = x.masked_fill(hidden, 0)
                each.masked_fill_(hidden, 0)
                gradient.masked_fill_(hidden, 0)
            low_gradient = gradient.to(passes.dtype)
            loss -= each.sum()
            to_passes[:, rows] = low_gradient @ weight
            to_weight += low_gradient.flatten(0, 1).T @ x.flatten(0, 1)
            to_bias += gradient.sum((0, 1))
        ctx.save_for_backward(to_passes, to_weight, to_bias)
        ctx.dtypes = passes.dtype, weight.dtype, bias.dtype
        real_tokens = torch.tensor(num_tokens) if padding is None else (~padding).sum()
        ctx.count = (num_passes * real_tokens).clamp(min=1).to(wide)  # a process may have none
        return loss / ctx.count

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        factor = gradient / ctx.count  # float16 would round a token's share alone to nothing
        pairs = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        wide = factor.dtype  # a GPU would round the factor to a tensor's precision
        return *((factor * tensor.to(wide)).to(dtype) for tensor, dtype in pairs), None, None, None, None
