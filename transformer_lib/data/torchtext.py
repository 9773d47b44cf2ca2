"""The adapter to torchtext 0.6, with the objects that tutorials teach. Notebook 01, "If you come from torchtext"."""

from collections import Counter

from torchtext.data import Dataset, Example, Field
from torchtext.vocab import Vocab

from transformer_lib.data.batches import PairDataset
from transformer_lib.data.tokenizers import EOS, PAD, SOS, UNK, WordTokenizer


def to_field(tokenizer: WordTokenizer) -> Field:
    """Return a ``Field`` that tokenises and numbers as ``tokenizer`` does; batches come out as ``[batch, seq_len]``."""
    specials = {"init_token": SOS, "eos_token": EOS, "unk_token": UNK, "pad_token": PAD}
    field = Field(tokenize=tokenizer.tokenize, batch_first=True, **specials)
    if tokenizer.vocab is not None:
        field.vocab = Vocab(Counter(), specials=list(tokenizer.vocab.itos))
    return field


def to_torchtext(dataset: PairDataset) -> Dataset:
    """Return the same sentence pairs as a torchtext ``Dataset`` with the columns ``src`` and ``tgt``."""
    columns = [(side, to_field(tokenizer)) for side, tokenizer in dataset.tokenizers.items()]
    data = Dataset([Example.fromlist(list(example), columns) for example in dataset.examples], columns)
    data.sort_key = lambda example: (len(example.src), len(example.tgt))  # what a BucketIterator sorts by
    return data
