"""A question and two interventions, as notebook 08 writes them."""


def looks_back(weights):
    before = weights.diagonal(-1, dim1=1, dim2=2)  # row i, column i - 1: one below the main diagonal
    return before.mean(dim=-1)  # of length - 1 positions: the first has none before it


def silence(joined, heads, num_heads):
    d_k = joined.shape[-1] // num_heads  # how wide a head's slice is
    silent = joined.clone()  # what came in stays as it is
    for head in heads:
        silent[..., (head - 1) * d_k : head * d_k] = 0  # heads are counted from 1
    return silent


def patch(memory, other, places):
    patched = memory.clone()  # the sentence's own memory is needed again
    patched[:, places] = other[:, places]  # whole vectors: nothing but their places is chosen
    return patched
