"""Copies weights from this library's modules into PyTorch's own, which the tests take as their reference."""

import torch
from torch import nn

from transformer_lib import DecoderLayer, EncoderLayer, MultiHeadAttention


@torch.no_grad()
def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    projections = [ours.query_projection, ours.key_projection, ours.value_projection]
    theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
    theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
    theirs.out_proj.load_state_dict(ours.output_projection.state_dict())


@torch.no_grad()
def copy_encoder_layer(ours: EncoderLayer, theirs: nn.TransformerEncoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    theirs.norm1.load_state_dict(ours.self_attention_add_norm.norm.state_dict())
    theirs.norm2.load_state_dict(ours.feed_forward_add_norm.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())


@torch.no_grad()
def copy_decoder_layer(ours: DecoderLayer, theirs: nn.TransformerDecoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_attention(ours.cross_attention, theirs.multihead_attn)
    theirs.norm1.load_state_dict(ours.self_attention_add_norm.norm.state_dict())
    theirs.norm2.load_state_dict(ours.cross_attention_add_norm.norm.state_dict())
    theirs.norm3.load_state_dict(ours.feed_forward_add_norm.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.contract.state_dict())


@torch.no_grad()
def shake(module: nn.Module) -> None:
    """Move every weight, so that none is at a special value (norms start at 1 and 0, biases at 0)."""
    for parameter in module.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
