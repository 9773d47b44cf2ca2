"""What stands in for the blank page of notebook 15: the library's model."""

from transformer_lib.model.transformer import Transformer


class PaperTransformer(Transformer):
    pass
