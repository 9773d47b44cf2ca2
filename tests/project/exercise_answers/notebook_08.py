"""Answers of notebook 08: attention maps, switching heads off, swapping vectors of the memory."""

import torch
from exercise_answers import worked

course = worked.notebook("08")


def looks_back(offset=-1, pick=lambda found, length: found.mean(-1)):
    return lambda weights: pick(weights.diagonal(offset, dim1=1, dim2=2), weights.shape[1])


def by_loop(weights):
    length = weights.shape[1]
    return torch.stack([sum(of_head[i, i - 1] for i in range(1, length)) / (length - 1) for of_head in weights])


def silent(columns):
    """Return a function that sets some columns, which depend on a head and the sizes, to zero in a copy."""

    def silence(joined, heads, num_heads):
        changed, d_k = joined.clone(), joined.shape[-1] // num_heads
        for head in heads:
            changed[..., [i for i in columns(head, d_k, num_heads) if 0 <= i < joined.shape[-1]]] = 0
        return changed

    return silence


def silent_in_place(joined, heads, num_heads):
    d_k = joined.shape[-1] // num_heads
    for head in heads:
        joined[..., (head - 1) * d_k : head * d_k] = 0
    return joined


def by_mask(joined, heads, num_heads):
    on = torch.ones(num_heads, 1)
    on[[head - 1 for head in heads]] = 0
    return (joined.unflatten(-1, (num_heads, -1)) * on).flatten(-2)


def the_others(joined, heads, num_heads):
    return by_mask(joined, [head for head in range(1, num_heads + 1) if head not in heads], num_heads)


def slices(head, d_k, num_heads):
    return range((head - 1) * d_k, head * d_k)


def by_where(memory, other, places):
    from_other = torch.zeros(memory.shape[1], 1, dtype=torch.bool)
    from_other[places] = True
    return torch.where(from_other, other, memory)


def by_list(memory, other, places):
    length = memory.shape[1]
    places = {place % length for place in places}
    return torch.stack([(other if place in places else memory)[:, place] for place in range(length)], dim=1)


def patched_in_place(memory, other, places):
    memory[:, places] = other[:, places]
    return memory


def added(memory, other, places):
    sum_of_both = memory.clone()
    sum_of_both[:, places] += other[:, places]
    return sum_of_both


def along_d_model(memory, other, places):
    swapped = memory.clone()
    swapped[..., places] = other[..., places]
    return swapped


def left_out(src, start=1, end=-1):
    length = src.shape[1]
    return torch.stack([torch.cat([src[0, :i], src[0, i + 1 :]]) for i in range(length)[start:end]])


def hidden(src):
    words = src.shape[1] - 2
    found = src.repeat(words, 1)
    found[torch.arange(words), torch.arange(words) + 1] = 0
    return found


HEADS = {"A": "reads", "B": "nothing", "C": "writes", "D": "order"}
ALIGNMENT = "0-7 1-2 1-3 2-0 3-1 4-4 4-5 5-6 6-8"
RIGHT = {
    "looks_back": [(course.looks_back,), (looks_back(),), (by_loop,)],
    "08.1": [(HEADS, ALIGNMENT), (HEADS, [(0, 7), (1, 2), (1, 3), (2, 0), (3, 1), (4, 4), (4, 5), (5, 6), (6, 8)])],
    "silence": [(course.silence,), (silent(slices),), (by_mask,)],
    "patch": [(course.patch,), (by_where,), (by_list,)],
    "08.2": [(left_out,), (lambda src: left_out(src).int(),)],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "looks_back": [
        (looks_back(0), "on *itself*"),
        (looks_back(1), "one *ahead*"),
        (looks_back(pick=lambda found, length: found.sum(-1) / length), "the first row does not count"),
        (looks_back(pick=lambda found, length: found.sum(-1)), "the *mean*"),
        (looks_back(pick=lambda found, length: found), "one number for each head"),
        (looks_back(pick=lambda found, length: found.mean()), "not one for all"),
        (lambda weights: weights[:, 1:, 0].mean(-1), "a diagonal"),
        (lambda weights: 0.5, "a tensor was expected"),
    ],
    "08.1": [
        (({**HEADS, "A": "writes", "C": "reads"}, ALIGNMENT), "exchanged two"),
        (({**HEADS, "A": "writes"}, ALIGNMENT), "a step late"),
        (({**HEADS, "B": "reads"}, ALIGNMENT), "same places"),
        (({**HEADS, "D": "writes"}, ALIGNMENT), "from left to right"),
        (({**HEADS, "D": "aligns"}, ALIGNMENT), "each head does one of these"),
        (({"A": "reads"}, ALIGNMENT), "four heads"),
        ((HEADS, "1-7 2-2 2-3 3-0 4-1 5-4 5-5 6-6 7-8"), "first source *word* is 0"),
        ((HEADS, "1-8 2-3 2-4 3-1 4-2 5-5 5-6 6-7 7-9"), "counted from 0"),
        ((HEADS, "7-0 2-1 3-1 0-2 1-3 4-4 5-4 6-5 8-6"), "source word comes first"),
        ((HEADS, ALIGNMENT + " 7-9"), "`<eos>` is no word"),
        ((HEADS, "0-7 1-2 2-0 3-1 4-4 4-5 5-6 6-8"), "target word 3, *playing*"),
        ((HEADS, ALIGNMENT + " 5-5"), "a link too many"),
        ((HEADS, "today heute"), "a string such as"),
        ((HEADS, ALIGNMENT.replace(" ", ", ")), "a string such as"),
        ((HEADS, [0, 7]), "a string such as"),
        ((HEADS, "0-8 1-3 1-4 2-1 3-2 4-5 4-6 5-7 6-9"), "first target *word* is 0"),
        ((["reads", "nothing", "writes", "order"], ALIGNMENT), "a dictionary"),
    ],
    "silence": [
        (the_others, "not the others"),
        (silent(lambda head, d_k, num_heads: range(head * d_k, (head + 1) * d_k)), "counted from 1"),
        (silent(lambda head, d_k, num_heads: range(head - 1, num_heads * d_k, num_heads)), "side by side"),
        (silent(lambda head, d_k, num_heads: [head - 1]), "numbers here, not one"),
        (silent(lambda head, d_k, num_heads: range((head - 1) * num_heads, head * num_heads)), "wide"),
        (silent(lambda head, d_k, num_heads: []), "nothing is zero yet"),
        (silent(lambda head, d_k, num_heads: range((head - 2) * d_k, (head - 1) * d_k)), "side by side"),
        (silent_in_place, "clone it first"),
    ],
    "patch": [
        (lambda memory, other, places: course.patch(other, memory, places), "the other way round"),
        (lambda memory, other, places: other, "the whole other memory"),
        (lambda memory, other, places: memory, "nothing has been swapped"),
        (added, "instead of adding it"),
        (along_d_model, "along the second axis"),
        (lambda memory, other, places: torch.zeros_like(memory), "at these places the vectors"),
        (patched_in_place, "clone `memory` first"),
    ],
    "08.2": [
        (lambda src: left_out(src, 0, None), "are no words"),
        (lambda src: left_out(src).flip(0), "lacks the *first* word"),
        (hidden, "instead of replacing it"),
        (lambda src: left_out(src)[:, 1:], "the shape is"),
        (lambda src: src[:, 1:].repeat(src.shape[1] - 2, 1), "without the token at position"),
    ],
}
