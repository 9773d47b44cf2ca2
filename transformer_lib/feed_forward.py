"""The position-wise feed-forward network (section 3.3)."""

from torch import Tensor, nn

from transformer_lib.dropout import Dropout


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
