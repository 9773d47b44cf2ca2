"""Masks: which positions may attend to which (section 3.2.3). Notebook 03, section 2.

Every mask of this library is a boolean tensor in which **True means "may attend"**, as in
``torch.nn.functional.scaled_dot_product_attention``, and broadcasts against attention maps of shape
``[batch, heads, query_len, key_len]``. ``nn.Transformer`` means the opposite by True;
``interop/pytorch.py`` converts.
"""

import torch
from torch import Tensor


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Let every query see the real tokens of its own sentence, and none of the padding.

    Args:
        ids: token ids, ``[batch, seq_len]``.
        pad_id: the id that fills up short sentences.

    Returns:
        ``[batch, 1, 1, seq_len]``, True at real tokens. The two axes of size 1 broadcast over heads and queries.

    Raises:
        ValueError: ``ids`` does not have two dimensions.
    """
    if ids.dim() != 2:
        raise ValueError(f"ids has shape {list(ids.shape)}, expected [batch, seq_len]")
    return (ids != pad_id)[:, None, None, :]  # [batch, 1, 1, seq_len]


def causal_mask(length: int, device: torch.device | str | None = None) -> Tensor:
    """Let every position see itself and earlier positions, never later ones (section 3.2.3, point 3).

    Returns:
        ``[length, length]``; row i is True in columns 0 to i.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def target_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Combine both for the decoder's self-attention: real tokens only, and none that comes later.

    Args:
        ids: target token ids, ``[batch, tgt_len]``.
        pad_id: the id that fills up short sentences.

    Returns:
        ``[batch, 1, tgt_len, tgt_len]``.
    """
    return padding_mask(ids, pad_id) & causal_mask(ids.shape[1], ids.device)  # [batch, 1, tgt_len, tgt_len]


def local_mask(length: int, window: int, device: torch.device | str | None = None) -> Tensor:
    """Let every position see its neighbours only: restricted self-attention (section 4, Table 1).

    Args:
        length: number of positions.
        window: the paper's r, an odd number of positions centred on the query's own.

    Returns:
        ``[length, length]``; entry (i, j) is True where ``|i - j| <= window // 2``.

    Raises:
        ValueError: ``window`` is not a positive odd number, so that it could not be centred.
    """
    if window < 1 or window % 2 == 0:
        raise ValueError(f"window is {window}, expected a positive odd number: it is centred on each position")
    positions = torch.arange(length, device=device)
    return (positions[:, None] - positions[None, :]).abs() <= window // 2
