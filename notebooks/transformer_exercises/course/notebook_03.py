"""What stands in for the masks of notebook 03: the library's."""

from transformer_lib.model.masks import causal_mask, padding_mask, target_mask

__all__ = ["causal_mask", "padding_mask", "target_mask"]
