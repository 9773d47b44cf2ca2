"""The position-wise feed-forward network (section 3.3)."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.fast.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class PositionwiseFeedForward(nn.Module):
    """Two linear layers with an activation between: with ReLU, max(0, x W₁ + b₁) W₂ + b₂ (equation 2).

    Notebook 04, section 3.

    Args:
        d_model: size of the vectors that come in and go out.
        d_ff: size in between, four times ``d_model`` in the paper.
        dropout: probability with which an inner activation is dropped during training.
        activation: one of ``ACTIVATIONS``; the paper's is ``"relu"``.

    Raises:
        ValueError: there is no such activation.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0, activation: str = "relu"):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is {activation!r}, expected one of {', '.join(ACTIVATIONS)}")
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``, ``[batch, seq_len, d_model]``, position by position, to the same shape."""
        inner = ACTIVATIONS[self.activation](self.linear1(x))  # [batch, seq_len, d_ff]
        return self.linear2(self.dropout(inner))
