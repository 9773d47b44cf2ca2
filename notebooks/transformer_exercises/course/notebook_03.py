"""What stands in for the masks of notebook 03, and for the attention that takes them: the library's."""

from transformer_exercises.course.notebook_02 import MultiHeadAttention
from transformer_lib.model.attention import scaled_dot_product_attention
from transformer_lib.model.masks import causal_mask, padding_mask, target_mask

__all__ = ["MultiHeadAttention", "causal_mask", "padding_mask", "scaled_dot_product_attention", "target_mask"]
