"""Answers to the exercises of notebook 13: the recipe's numbers, and an average."""

import numpy as np
import torch

PEAK = 512**-0.5 * 4000**-0.5
MATRIX = 37_000 * 512


def mean(states):
    return {name: sum(state[name] for state in states) / len(states) for name in states[0]}


def in_place(states):
    total = states[0]
    for state in states[1:]:
        for name in total:
            total[name] += state[name]
    return {name: tensor / len(states) for name, tensor in total.items()}


def halving(states):
    average = states[0]
    for state in states[1:]:
        average = {name: (average[name] + state[name]) / 2 for name in average}
    return average


def popping(states):
    count = len(states)
    total = states.pop()
    for name in list(total):
        total[name] = torch.stack([total[name], *(state.pop(name) for state in states)]).sum(0) / count
    return total


RIGHT = {
    "13.1": [
        (PEAK, PEAK / 2, 2 * MATRIX),
        (7.0e-4, 3.5e-4, 37_888_000),
        (np.float32(PEAK), torch.tensor(PEAK / 2), 37.9),
        (0.0007, 0.00035, 3.79e7),
    ],
    "13.2": [
        (mean,),
        (popping,),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "13.1": [
        ((4000**-0.5, PEAK / 2, 2 * MATRIX), "first factor"),
        ((512**-0.5, PEAK / 2, 2 * MATRIX), "second factor"),
        ((1e-3, PEAK / 2, 2 * MATRIX), "where the warm-up ends"),
        ((PEAK, PEAK / 4, 2 * MATRIX), "*root* of the step"),
        ((PEAK, 4 * PEAK, 2 * MATRIX), "warm-up has ended"),
        ((PEAK, PEAK, 2 * MATRIX), "compare it with the highest rate"),
        ((PEAK, PEAK / 2, MATRIX), "three matrices become one"),
        ((PEAK, PEAK / 2, 3 * MATRIX), "still there"),
        ((PEAK, PEAK / 2, 4 * MATRIX), "a row of 512"),
        ((PEAK, PEAK / 2, 2 * MATRIX + 37_000), "biases"),
        ((np.float32(4000**-0.5), PEAK / 2, 2 * MATRIX), "first factor"),
        ((PEAK, PEAK / 2, 18.9), "three matrices become one"),
        ((PEAK, PEAK / 2, "38 million"), "a number was expected"),
    ],
    "13.2": [
        (in_place, "weights have changed"),
        (halving, "count alike"),
        (lambda states: states[-1], "last checkpoint"),
        (lambda states: {name: tensor * len(states) for name, tensor in mean(states).items()}, "divide"),
        (lambda states: {name: tensor * len(states) / 5 for name, tensor in mean(states).items()}, "another number"),
        (lambda states: [tensor for tensor in mean(states).values()], "a dictionary"),
        (lambda states: {name: tensor.mean() for name, tensor in mean(states).items()}, "the shape is []"),
        (lambda states: {"weights": torch.zeros(3)}, "the names of the weights"),
        (lambda states: {name: tensor.tolist() for name, tensor in mean(states).items()}, "a tensor was expected"),
        (lambda states: {name: states[0][name] + states[-1][name] for name in states[0]}, "number by number"),
    ],
}
