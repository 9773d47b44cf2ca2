"""How weights change: optimisers, the learning rate over time, and an average of the weights (section 5.3)."""

import math
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from transformer_lib.fast.muon import BatchedMuon
from transformer_lib.fast.precision import half_precision
from transformer_lib.training.recipe import Recipe


def make_optimizer(model: nn.Module, recipe: Recipe) -> Optimizer:
    """Return the optimizer that a recipe names, for all parameters of a model.

    ``"muon"`` is two: Muon (Jordan et al. 2024) for the matrices of encoder and decoder, which replaces each step by
    the nearest orthogonal matrix, and AdamW for all else. Muon's steps are scaled to be as large as Adam's (Liu et al.
    2025), so that both follow one learning rate. Notebook 13, section 4.

    Raises:
        ValueError: Muon is asked for, but this version of PyTorch lacks it (2.9 was the first), or the model has no
            matrices in an ``encoder`` or a ``decoder``.
    """
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=recipe.learning_rate)
    matrices = []
    if recipe.optimizer == "muon":
        if not hasattr(torch.optim, "Muon"):
            raise ValueError(
                f"recipe.optimizer is 'muon', which needs PyTorch 2.9 or newer; this is {torch.__version__}"
            )
        layers = ("encoder.", "decoder.")
        matrices = [p for name, p in model.named_parameters() if name.startswith(layers) and p.dim() == 2]
        if not matrices:
            raise ValueError(
                f"recipe.optimizer is 'muon', which is for the matrices of an encoder or a decoder, but "
                f"{type(model).__name__} has none of these names: take 'adamw'"
            )
    others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    groups = [  # biases and norms do not decay
        {"params": [p for p in others if p.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in others if p.dim() < 2], "weight_decay": 0.0},
    ]
    device = others[0].device
    fused = device.type in ("cpu", "cuda") or None  # one pass over each parameter instead of a dozen
    adam = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, eps=1e-9, fused=fused)
    if not matrices:
        return adam
    is_fast = device.type == "cpu" and half_precision(device) == torch.bfloat16  # in which PyTorch's always computes
    muon = torch.optim.Muon if is_fast else BatchedMuon
    scaled = {"weight_decay": recipe.weight_decay, "adjust_lr_fn": "match_rms_adamw"}
    return _Combined(muon(matrices, lr=recipe.learning_rate, **scaled), adam)


class _Combined(Optimizer):
    """Several optimisers that look like one."""

    def __init__(self, *optimizers: Optimizer):
        self.optimizers = optimizers
        super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})

    def step(self, closure: None = None) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, state_dict["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        # loading makes new groups: let a learning rate that is changed here still change there
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]


def learning_rate_schedule(
    optimizer: Optimizer, kind: str, warmup_steps: int, total_steps: int, epochs: int = 1, decay: float = 1.0
) -> LambdaLR:
    """Grow the learning rate in a straight line to the optimiser's, then change it as ``Recipe.schedule`` says.

    With ``"inverse_sqrt"`` and a peak of ``d_model^-0.5 · warmup_steps^-0.5``, it is the paper's (equation 3).

    Args:
        kind: one of ``SCHEDULES``.
        warmup_steps: the step at which the highest is reached; 0 starts with it.
        total_steps: of the training, all epochs together.
        epochs, decay: for ``"exponential"``.
    """

    def factor(steps_taken: int) -> float:
        step = steps_taken + 1
        if step < warmup_steps:
            return step / warmup_steps
        if kind == "inverse_sqrt":
            return math.sqrt(max(warmup_steps, 1) / step)
        if kind == "linear":
            return max(0.0, (total_steps - steps_taken) / max(1, total_steps - warmup_steps + 1))
        if kind == "exponential":
            return decay ** (epochs * steps_taken // total_steps)
        return 1.0

    return LambdaLR(optimizer, factor)


class MovingAverage(AveragedModel):
    """An exponential moving average of a model's weights: the n-th update keeps (1 + n) / (10 + n) of the old average.

    It keeps ``decay`` at most. So it forgets the random beginning quickly, and reaches back over about the last tenth
    of the training. (``AveragedModel``'s own update would make a GPU wait.) ``.module`` is the average.
    """

    def __init__(self, model: nn.Module, decay: float):
        super().__init__(model)
        self.decay = decay

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Take in the weights of ``model`` after a step; the first ones are copied."""
        updates = self.n_averaged.item()
        keep = min(self.decay, (1 + updates) / (10 + updates)) if updates else 0.0
        get_ema_multi_avg_fn(keep)([*self.module.parameters()], [*model.parameters()], updates)
        for kept, buffer in zip(self.module.buffers(), model.buffers(), strict=True):  # a norm's statistics, say
            kept.copy_(buffer)
        self.n_averaged += 1
