"""Two interventions, as notebook 07 writes them: switch heads off, and swap vectors of the memory."""


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
