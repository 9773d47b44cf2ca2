"""The two sub-layers that are not attention: feed-forward (section 3.3), and Add & Norm (sections 3.1 and 5.4)."""

from torch import Tensor, nn

from transformer_lib.fast.dropout import Dropout


class PositionwiseFeedForward(nn.Module):
    """Two linear layers with a ReLU between, the same at every position: max(0, x W₁ + b₁) W₂ + b₂ (equation 2).

    Args:
        d_model: size of the vectors that come in and go out.
        d_ff: size in between, four times ``d_model`` in the paper.
        dropout: probability with which an inner activation is dropped during training.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0):
        super().__init__()
        self.expand = nn.Linear(d_model, d_ff)
        self.contract = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``, ``[batch, seq_len, d_model]``, position by position, to the same shape."""
        return self.contract(self.dropout(self.expand(x).relu()))


class AddNorm(nn.Module):
    """Wrap a sub-layer: LayerNorm(x + Dropout(Sublayer(x))), or pre-LN, x + Dropout(Sublayer(LayerNorm(x))).

    Every sub-layer has an ``AddNorm`` of its own, used in two steps around it::

        y = self.add_norm.enter(x)
        y = self.sublayer(y)
        x = self.add_norm.leave(x, y)

    Args:
        d_model: size of the vectors.
        dropout: probability with which an entry of the sub-layer's output is dropped during training.
        norm_first: normalise what enters the sub-layer (pre-LN) instead of the sum that leaves (post-LN, the paper's).
    """

    def __init__(self, d_model: int, dropout: float, norm_first: bool):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def enter(self, x: Tensor) -> Tensor:
        """Return what the sub-layer is given; ``x`` and result ``[batch, seq_len, d_model]``."""
        return self.norm(x) if self.norm_first else x

    def leave(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        """Add the sub-layer's output to ``x``, what the sub-layer was wrapped around; ``[batch, seq_len, d_model]``."""
        x = x + self.dropout(sublayer_output)
        return x if self.norm_first else self.norm(x)
