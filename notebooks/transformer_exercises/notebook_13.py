"""Checks of the exercises of notebook 13: the recipe's numbers, an average, an encoder of one's own, a parser."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_exercises import Unsolved, Wrong, as_number, call, close, exercise, expect, expect_number, question
from transformer_lib.data.corpora import load_corpus
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer

WORD = re.compile(r"\([^\s()]+ [^\s()]+\)")  # a leaf, such as (DT The)
EXACT = 0.9  # share of the test trees that a parser must get right

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
    right="1.0",
    replies={
        "1.001953125": "that is the sum, but it needs 9 binary digits behind the point. How many has bfloat16?",
        "1.0078125": "that is 1 + 2⁻⁷, the next number there is. The sum is nearer to another one.",
        "1.0": "7 binary digits reach down to 2⁻⁷, and 2⁻⁹ is a quarter of that: it is rounded away.",
    },
)

question(
    "13.c",
    right="by about a tenth of a point",
    replies={
        "not at all": "it would need luck: that both splits like the same α best.",
        "by about a tenth of a point": "seven settings, most of them nearly as good: there is little luck to be had.",
        "by about one point": "that much is between a bad α and a good one. But we start from a good one.",
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


@exercise("13.3")
def encoder_of_ones_own(MyEncoder: Callable[..., nn.Module]) -> str:
    """``MyEncoder(num_layers, d_model, num_heads, d_ff, …)``: an encoder that knows distances and no positions."""
    for norm_first in (True, False):
        _check_encoder(MyEncoder, norm_first)
    return (
        "it reads a sentence in the same way wherever it is. Exchange `model.encoder` for it, leave out the "
        "positions that are added, and train."
    )


def _check_encoder(make: Callable[..., nn.Module], norm_first: bool) -> None:
    torch.manual_seed(1)
    layers, d_model, heads = 2, 16, 4
    encoder = call(make, layers, d_model, heads, 32, 0.1, 0.1, norm_first)
    expect(isinstance(encoder, nn.Module), "an encoder is an nn.Module; begin with `class MyEncoder(nn.Module):`.")
    encoder.eval()
    for parameter in encoder.parameters():  # nothing may hide behind a beginning at zero
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, 6, d_model)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])[:, None, None, :]  # [batch, 1, 1, seq_len]

    def run(x: Tensor, mask: Tensor | None, need_weights: bool = False) -> Any:
        found = call(encoder, x, mask, need_weights)
        expect(
            isinstance(found, tuple | list) and len(found) == 2, "return two things: the memory, and a list of maps."
        )
        memory = found[0]
        expect(
            isinstance(memory, Tensor) and memory.shape == x.shape,
            f"the memory must have the shape of x, {list(x.shape)}.",
        )
        expect(not memory.isnan().any(), "there is nan in the memory: a word with nothing to look at?")
        return found

    memory, maps = run(x, mask, need_weights=True)
    expect(
        any(parameter.requires_grad for parameter in encoder.parameters()),
        "it has no parameters to train. Layers in a plain list do not count, those in an `nn.ModuleList` do.",
    )
    again = run(x, mask, need_weights=True)[0]
    expect(close(again, memory), "twice the same input, two outputs: dropout must be off in evaluation mode.")
    expect(memory.requires_grad, "no gradient leads back from the memory: nothing could be trained.")
    for parameter_name, parameter in _without_gradient(encoder, memory):
        raise Wrong(f"{parameter_name}, {list(parameter.shape)}, has no part in what comes out.")
    with torch.no_grad():
        shape = (2, heads, 6, 6)
        expect(
            isinstance(maps, list | tuple)
            and len(maps) == layers
            and all(isinstance(one, Tensor) and one.shape == shape for one in maps),
            f"with need_weights, the second thing is a list of {layers} maps, one a layer, each {list(shape)}.",
        )
        for one in maps:
            expect(close(one.sum(-1), torch.ones(2, heads, 6)), "the rows of a map are weights: they sum to 1.")
        expect(close(run(x, mask)[0], memory), "asking for the maps must not change the memory.")

        # padding changes nothing
        noisy = x.clone()
        noisy[1, 4:] = torch.randn(2, d_model)
        expect(
            close(run(noisy, mask)[0][1, :4], memory[1, :4]),
            "the padding is seen: other numbers there change what comes out for the real words. Is the mask passed on?",
        )
        expect(
            close(run(x[:1], None)[0], memory[:1]), "without a mask, all words are seen, as with one that hides none."
        )

        # order matters, in both directions
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        plain = run(x[:1], None)[0]
        expect(
            not close(run(x[:1, order], None)[0], plain[:, order], 1e-3),
            "the order of the words does not matter: shuffle them, and the outputs are shuffled, and otherwise "
            "the same. Where do distances come in?",
        )
        expect(
            not close(run(x[:1].flip(1), None)[0], plain.flip(1), 1e-3),
            "it cannot tell left from right: a sentence read backwards gives the same. A distance needs its sign.",
        )

        # and the beginning does not
        for shift in (1, 30):
            longer = torch.cat([torch.randn(1, shift, d_model), x[:1]], dim=1)
            real = (torch.arange(shift + 6) >= shift)[None, None, None, :]
            expect(
                close(run(longer, real)[0][:, shift:], plain, 1e-3),
                f"with {shift} hidden position{'s' * (shift > 1)} in front, the same words give something else. Only "
                "distances may count: nothing is added to x, and values are not turned.",
            )

        config = TransformerConfig(20, 20, d_model, heads, 32, layers, norm_first=norm_first)
        model = Transformer(config).eval()
        model.encoder = encoder
        ids = torch.randint(4, 20, (2, 7))
        call(model, ids, ids)
        call(model.attention_maps, ids, ids)


def _without_gradient(encoder: nn.Module, memory: Tensor) -> list[tuple[str, Tensor]]:
    named = [(name, parameter) for name, parameter in encoder.named_parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(memory.square().sum(), [parameter for _, parameter in named], allow_unused=True)
    return [pair for pair, gradient in zip(named, gradients, strict=True) if gradient is None]


@exercise("13.4")
def trees_as_sentences(my_write: Callable[[str], list[str]], my_read: Callable[[list[str], list[str]], str]) -> str:
    """``my_write(tree)`` without the words, and ``my_read(tokens, words)``, which puts them back."""
    trees = load_corpus("sample").lines("val", "tree")[:50]
    for tree in trees:
        words = _words(tree)
        tokens = call(my_write, tree)
        expect(
            isinstance(tokens, list | tuple) and all(isinstance(token, str) for token in tokens),
            "my_write: a list of tokens was expected.",
        )
        tokens = list(tokens)
        expect(
            not any(" " in token or not token for token in tokens),
            "my_write: a token has a space in it, or nothing at all.",
        )
        other = _with_words(tree, [f"word{number}" for number in range(len(words))])
        expect(
            list(call(my_write, other)) == tokens,
            "my_write: the same tree over other words must give the same tokens; the words come back in my_read.",
        )
        found = call(my_read, list(tokens), list(words))
        expect(isinstance(found, str), "my_read: a tree was expected, as a string.")
        if _normal(found) != tree:
            expect(_words(found), f"my_read: there are no words in {found[:60]!r}: each tag needs its own.")
            expect(
                _words(found) == words,
                "my_read: the words are different, or in another order; the first tag gets the first one.",
            )
            raise Wrong(f"what comes back is {found!r}, but what went in was {tree!r}.")
        for place in range(len(tokens)):
            damaged = _read_damaged(my_read, tokens[:place] + tokens[place + 1 :], words)
            expect(
                damaged == "",
                f"my_read: without its token {place}, {tokens[place]!r}, this is no tree for these words: {tree!r}. A "
                "model may write anything; return an empty string then.",
            )
        for extra in (tokens[0], tokens[-1], *tokens):
            for wrong in ([extra, *tokens], [*tokens, extra]):
                expect(
                    _read_damaged(my_read, wrong, words) == "",
                    f"my_read: with one more {extra!r} at an end, it is no tree for these words any more.",
                )
    return "a tree is a sentence in a language with few words. A model that translates can learn it."


def _read_damaged(my_read: Callable[[list[str], list[str]], str], tokens: list[str], words: list[str]) -> Any:
    try:
        return call(my_read, tokens, list(words))
    except Unsolved:
        raise Wrong("my_read: where there is no tree, return an empty string; yours returned nothing.") from None


@exercise("13.5")
def parser(my_parse: Callable[[list[str]], list[str]]) -> str:
    """``my_parse(sentences)``: a bracketed tree for each; scored on the sample corpus's test split."""
    corpus = load_corpus("sample")
    sentences, trees = corpus.lines("test", "en"), corpus.lines("test", "tree")
    found = call(my_parse, list(sentences))
    expect(
        isinstance(found, list | tuple) and all(isinstance(tree, str) for tree in found),
        "a list of trees was expected, each a string.",
    )
    expect(len(found) == len(sentences), f"there are {len(sentences)} sentences, but {len(found)} trees came back.")
    found = [_normal(tree) for tree in found]
    well_formed = sum(_is_tree_of(tree, _words(right)) for tree, right in zip(found, trees, strict=True))
    exact = sum(map(str.__eq__, found, trees))
    score = f"{exact} of {len(trees)} test sentences have exactly the right tree, {well_formed} a well-formed one"
    if exact < EXACT * len(trees):
        has_words = any({*_words(tree)} & {*_words(right)} for tree, right in zip(found, trees, strict=True))
        expect(has_words or not any(found), f"{score}: the words are not in the trees.")
        expect(
            sum(map(str.__eq__, sorted(found), sorted(trees))) < EXACT * len(trees),
            f"{score}: the trees are right, but not in the sentences' order.",
        )
        lower = [_with_words(tree, [word.lower() for word in _words(tree)]) for tree in trees]
        expect(
            sum(map(str.__eq__, found, lower)) < EXACT * len(trees),
            f"{score}: the words have become lower-case. The tree has them as they are written.",
        )
        raise Wrong(
            f"{score}; {EXACT:.0%} were asked for. Does the validation loss still fall? Then train for longer. If it "
            "is low, compare some trees with the right ones, token by token."
        )
    return f"{score}. Nothing in the model is about trees."


def _normal(tree: str) -> str:
    """Put one space between the parts of a tree, as the corpus has it."""
    return re.sub(r"\s+\)", ")", " ".join(tree.split())).replace("( ", "(")


def _words(tree: str) -> list[str]:
    return [leaf[1:-1].split()[1] for leaf in WORD.findall(tree)]


def _with_words(tree: str, words: list[str]) -> str:
    new = iter(words)
    return WORD.sub(lambda leaf: f"{leaf[0].split()[0]} {next(new)})", tree)


def _is_tree_of(tree: str, words: list[str]) -> bool:
    """Say whether brackets open and close as they should, around these words."""
    if _words(tree) != words:
        return False
    left = WORD.sub("x", tree)
    while left != (left := re.sub(r"\([^\s()]+ x(?: x)*\)", "x", left)):
        pass
    return left == "x"


def _near(found: float, number: float) -> bool:
    return abs(found - number) < 0.01 * number
