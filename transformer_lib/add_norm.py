"""The box "Add & Norm" of figure 1: residual connection, dropout and layer normalisation (sections 3.1 and 5.4)."""

from torch import Tensor, nn

from transformer_lib.dropout import Dropout


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
