"""The masks, as notebook 03 writes them. True means "may attend"."""

import torch


def padding_mask(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]  # [batch, 1, 1, seq_len]: the same for every head and every query


def causal_mask(length):
    return torch.ones(length, length, dtype=torch.bool).tril()  # row i: True in columns 0 to i


def target_mask(ids, pad_id):
    causal = causal_mask(ids.shape[1]).to(ids.device)
    return padding_mask(ids, pad_id) & causal  # both must allow it: [batch, 1, tgt_len, tgt_len]
