"""Checks of the exercises of notebook 13: the recipe's numbers, and an average."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_exercises import Wrong, as_number, call, close, exercise, expect, expect_number, question

question(
    "13.a",
    right="five",
    replies={
        "all twelve": "each was put in for a reason, most with a table to show for it. But those tables were made with "
        "other corpora, other sizes and longer trainings.",
        "about nine": "that leaves room for some bad luck, and still trusts the reasons more than they deserve.",
        "five": "and of the other seven, some even do harm. Which ones?",
    },
)

question(
    "13.b",
    right="by about a tenth of a point",
    replies={
        "not at all": "it would need luck: that both splits like the same α best.",
        "by about a tenth of a point": "seven settings, most of them nearly as good: there is little luck to be had.",
        "by about one point": "that much is between a bad α and a good one. But we start from a good one.",
    },
)

question(
    "13.c",
    right="1.0",
    replies={
        "1.001953125": "that is the sum, but it needs 9 binary digits behind the point. How many has bfloat16?",
        "1.0078125": "that is 1 + 2⁻⁷, the next number there is. The sum is nearer to another one.",
        "1.0": "7 binary digits reach down to 2⁻⁷, and 2⁻⁹ is a quarter of that: it is rounded away.",
    },
)


@exercise("13.1")
def numbers_of_the_recipe(highest_rate: float, rate_at_step_16_000: float, saved_by_tying: int) -> str:
    """``highest_rate``, …: what section 5.3 and section 3.4 of the paper come to for its base model."""
    right = 512**-0.5 * 4000**-0.5
    highest, later, saved = map(as_number, (highest_rate, rate_at_step_16_000, saved_by_tying))
    expect(not _near(highest, 4000**-0.5), "highest_rate: the first factor, d_model^-0.5, is missing.")
    expect(not _near(highest, 512**-0.5), "highest_rate: the second factor, a step's, is missing.")
    hint = "highest_rate: both terms of the minimum are equal where the warm-up ends."
    expect_number(highest, right, hint, tolerance=5e-6)
    expect(
        not _near(later, right / 4),
        "rate_at_step_16_000: it falls with the *root* of the step, so four times the steps do not make a quarter.",
    )
    expect(
        not _near(later, 4 * right),
        "rate_at_step_16_000: the warm-up has ended long before; take the smaller term of the minimum.",
    )
    expect_number(later, right / 2, "rate_at_step_16_000: compare it with the highest rate.", 5e-6)
    matrix = 37_000 * 512
    saved = 1e6 * saved if 0 < saved < 1000 else saved  # in millions
    expect(not _near(saved, matrix), "saved_by_tying: three matrices become one, so more than one is saved.")
    expect(not _near(saved, 3 * matrix), "saved_by_tying: one of the three is still there.")
    expect(saved != 2 * matrix + 37_000, "saved_by_tying: the output's biases are not part of the matrix.")
    expect_number(saved, 2 * matrix, "saved_by_tying: a matrix has a row of 512 for each piece.", 5e-4)
    return "four times the steps, half the rate. Without tying, more than a third of the weights would be two copies."


@exercise("13.2")
def average_of_checkpoints(my_average: Callable[[list[dict[str, Tensor]]], dict[str, Tensor]]) -> str:
    """``my_average(states)``: the mean of several models' ``state_dict()``, weight by weight."""
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)) for _ in range(5)]
    for parameter in nn.ModuleList(models).parameters():
        nn.init.normal_(parameter)
    for number in (5, 3):
        states = [model.state_dict() for model in models[:number]]
        before = [{name: tensor.clone() for name, tensor in state.items()} for state in states]
        found = call(my_average, [dict(state) for state in states])
        expect(isinstance(found, dict), "a dictionary was expected, from the weights' names to tensors.")
        expect(
            found.keys() == before[0].keys(),
            f"the names of the weights are {', '.join(map(str, found))}, expected {', '.join(before[0])}.",
        )
        for state, old in zip(states, before, strict=True):
            expect(
                all(state[name].equal(old[name]) for name in old),
                "a model's weights have changed: what `state_dict()` gives *are* the weights, no copies. Add without "
                "writing into them.",
            )
        for name, tensor in found.items():
            expect(isinstance(tensor, Tensor), f"{name}: a tensor was expected, but this is a {type(tensor).__name__}.")
            all_of_it = torch.stack([state[name] for state in before])
            right = all_of_it.mean(dim=0)
            expect(tensor.shape == right.shape, f"{name}: the shape is {list(tensor.shape)}, not {list(right.shape)}.")
            if not close(tensor, right):
                expect(not close(tensor, all_of_it.sum(dim=0)), "you have added them up; divide by their number.")
                expect(
                    not (number != 5 and close(tensor, all_of_it.sum(dim=0) / 5)),
                    "the paper averages five checkpoints, but you may be given another number.",
                )
                expect(not close(tensor, all_of_it[-1]), "that is the last checkpoint, without the others.")
                running = all_of_it[0]
                for one in all_of_it[1:]:
                    running = (running + one) / 2
                expect(
                    not close(tensor, running),
                    "each checkpoint must count alike. Halving again and again gives the last one half of the say.",
                )
                raise Wrong(f"{name}: compare it with the mean over the checkpoints, number by number.")
    return "the base model's last five checkpoints, ten minutes apart, became the paper's model in this way."


def _near(found: float, number: float) -> bool:
    return abs(found - number) < 0.01 * number
