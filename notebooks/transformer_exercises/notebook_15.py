"""Checks of notebook 15: who reaches whom, what attention costs, the paper's model, a mask that saves, a parser."""

import copy
import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_exercises import (
    Unsolved,
    Wrong,
    as_number,
    build,
    call,
    close,
    exercise,
    expect,
    expect_any_device,
    expect_gradients,
    expect_number,
    expect_tensor,
    load,
    question,
)
from transformer_exercises.notebook_02 import OTHER_IN_TRAINING
from transformer_exercises.notebook_03 import LOW_ENOUGH
from transformer_exercises.notebook_04 import ALL, expect_steady, sinusoids, weights_of
from transformer_exercises.notebook_05 import EACH_SIZE, OTHERS, SIZES
from transformer_lib import TransformerConfig
from transformer_lib.data.corpora import load_corpus

WORD = re.compile(r"\([^\s()]+ [^\s()]+\)")  # a leaf, such as (DT The)
EXACT = 0.9  # share of the test trees that a parser must get right

question(
    "15.a",
    right="attention's only",
    replies={
        "none": "that is true of the two that mix with fixed numbers. Where do attention's weights come from?",
        "recurrence's and attention's": "recurrence hands on other numbers, but with the same weights: ½, ¼, ⅛.",
        "attention's only": "its weights are computed from the words, so another word means another mixture.",
    },
)


@exercise("15.1")
def layers(my_contiguous: int, my_restricted: int, my_dilated: int) -> str:
    """Layers that connect 100 positions: kernels of 5, windows of 9, and kernels of 3 with gaps that double."""
    for name, answer, right, mistakes in (
        (
            "contiguous",
            my_contiguous,
            50,
            {
                99: "that is k = 3. A kernel of 5 passes information two positions on to each side.",
                100 / 5: "a kernel of 5 reaches two positions to each side, not five.",
                25: "the way from one end to the other is 99 positions, not half of it.",
                49.5: "half a layer? Round up.",
                49: "49 layers reach 98 positions, one too few.",
                33: "a kernel of 5 reaches two positions to each side, not three.",
            },
        ),
        (
            "restricted",
            my_restricted,
            25,
            {
                100 / 9: "a window of 9 reaches four positions to each side; n / r leaves that factor out.",
                11: "a window of 9 reaches four positions to each side; n / r leaves that factor out.",
                12: "a window of 9 reaches four positions to each side; n / r leaves that factor out.",
                99 / 4: "three quarters of a layer? Round up.",
                24: "24 layers reach 96 positions, three too few.",
                13: "the way from one end to the other is 99 positions, not half of it.",
                20: "a window of 9 reaches four positions to each side, and has its own in the middle.",
            },
        ),
        (
            "dilated",
            my_dilated,
            7,
            {
                6: "six layers reach 1 + 2 + 4 + 8 + 16 + 32 = 63 positions.",
                5: "that is log₃ 100: with gaps that double, the base is 2.",
                99: "with gaps that double, each layer reaches twice as far as the one before.",
                8: "seven layers reach 1 + 2 + … + 64 = 127 positions, which is enough.",
                50: "with gaps that double, each layer reaches twice as far as the one before.",
            },
        ),
    ):
        found = as_number(answer)
        for wrong, hint in mistakes.items():
            expect(not _near(found, wrong), f"{name}: {hint}")
        expect_number(found, right, f"{name}: how far does each layer reach, and how far is it from end to end?", 1e-6)
    return "and self-attention needs one. That is the last column of Table 1, with its constant factors."


def _reference(sizes: dict[str, Any]) -> tuple[nn.Transformer, Tensor, dict[str, Tensor]]:
    """Return an ``nn.Transformer`` without the norms that PyTorch puts behind its stacks, a table, and its weights."""
    d_model, heads, layers, d_ff = (sizes[name] for name in ("d_model", "num_heads", "num_layers", "d_ff"))
    theirs = nn.Transformer(d_model, heads, layers, layers, d_ff, batch_first=True).eval()
    theirs.encoder.norm = theirs.decoder.norm = None
    return theirs, torch.randn(30, d_model) / 4, _weights_of(theirs)


def _weights_of(theirs: nn.Transformer) -> dict[str, Tensor]:
    """Give its weights some noise, and return them by the names of notebook 15."""
    return {
        f"{side}.{number}.{name.removeprefix('feed_forward.')}": weight
        for side in ("encoder", "decoder")
        for number, layer in enumerate(getattr(theirs, side).layers)
        for name, weight in weights_of(layer).items()
    }


def _lend(module: nn.Module, table: Tensor, weights: dict[str, Tensor]) -> nn.Module:
    """Give a reader's model these weights, whether its layers are in ``encoder`` or in ``encoder.layers``.

    Raises:
        Wrong: its parts have other names, or it has more than one table, or none.
    """
    own = module.state_dict()
    names = {re.sub(r"\b(layers|feed_forward)\.", "", name): name for name in own}
    last = any(re.search(r"(en|de)coder.*\.norm\.", name) for name in own)
    expect(not last, "a stack of post-LN layers has no norm of its own: each of its layers ends in one.")
    count = sum(parameter.shape == table.shape for parameter in module.parameters())
    expect(count == 1, f"section 3.4 has one table for source, target and output, but here are {count}.")
    lent = {names.get(name, name): weight for name, weight in weights.items()}
    lent |= {name: table for name, value in own.items() if value.shape == table.shape}
    lent |= {name: torch.zeros(len(table)) for name, value in own.items() if value.shape == table.shape[:1]}
    return load(module, lent)


def _expect_other_model(kind: type[nn.Module]) -> None:
    """Raise ``Wrong`` unless a model is right with other sizes, another padding, and scores far from 0; and trained."""
    config = TransformerConfig(30, 30, **{**OTHERS, "dropout": 0.0}, positions="sinusoidal", tie_embeddings=True)
    theirs, table, weights = _reference(OTHERS)
    src, tgt = torch.randint(4, 30, (2, 6)), torch.randint(4, 30, (2, 5))
    src[0, 1], tgt[0, 1], src[1, 4:] = 1, 1, config.pad_id  # 1 is a word like others here
    padding, future = src == config.pad_id, torch.ones(5, 5, dtype=torch.bool).triu(1)

    def run(src: Tensor, tgt: Tensor) -> Tensor:
        masks = {"tgt_mask": future, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        source, target = (
            config.d_model**0.5 * table[ids] + sinusoids(ids.shape[1], config.d_model) for ids in (src, tgt)
        )
        return theirs(source, target, **masks) @ table.T

    with torch.no_grad():
        module = _lend(build(kind, config), table, weights)
        expect_tensor(call(module, src, tgt), run(src, tgt), f"{EACH_SIZE} So is `pad_id`.", 1e-3)
    expect_gradients(OTHER_IN_TRAINING, module.train(), run, src, tgt)
    with torch.no_grad():
        for layer in (*theirs.encoder.layers, *theirs.decoder.layers):  # scores around -1000, all alike
            for attention in (layer.self_attn, getattr(layer, "multihead_attn", layer.self_attn)):
                both = 2 * config.d_model
                attention.in_proj_weight[:both], attention.in_proj_bias[:both] = 0, 40
                attention.in_proj_bias[: config.d_model] = -40
        module = _lend(build(kind, config), table, _weights_of(theirs))
        expect_tensor(call(module, src, tgt), run(src, tgt), LOW_ENOUGH, 1e-3)


@exercise("PaperTransformer")
def the_papers_model(PaperTransformer: type[nn.Module]) -> str:
    """Compute what an ``nn.Transformer`` does between embeddings and output: post-LN, with sinusoids and one table."""
    torch.manual_seed(0)
    config = TransformerConfig(30, 30, **SIZES, positions="sinusoidal", tie_embeddings=True)
    module = build(PaperTransformer, config)
    theirs, table, weights = _reference(SIZES)
    _lend(module, table, weights)
    src, tgt = torch.randint(4, 30, (2, 6)), torch.randint(4, 30, (2, 5))
    src[1, 4:] = config.pad_id
    padding, future = src == config.pad_id, torch.ones(5, 5, dtype=torch.bool).triu(1)

    def run(of: nn.Transformer = theirs, scale: float = config.d_model**0.5, waves: float = 1, **masks: Any) -> Tensor:
        masks = {"tgt_mask": future, "src_key_padding_mask": padding, "memory_key_padding_mask": padding, **masks}
        source, target = (scale * table[ids] + waves * sinusoids(ids.shape[1], config.d_model) for ids in (src, tgt))
        return of(source, target, **masks) @ table.T

    def changed(change: Callable[[Any], Any]) -> nn.Transformer:
        other = copy.deepcopy(theirs)
        for layer in (*other.encoder.layers, *other.decoder.layers):
            change(layer)
        return other

    def norms_first(layer: Any) -> None:
        layer.norm_first = True

    def no_root(layer: Any) -> None:
        for attention in (layer.self_attn, getattr(layer, "multihead_attn", None)):
            if attention:
                attention.in_proj_weight[: config.d_model] *= (config.d_model / config.num_heads) ** 0.5
                attention.in_proj_bias[: config.d_model] *= (config.d_model / config.num_heads) ** 0.5

    with torch.no_grad():
        expect_steady(module, src, tgt)
        found, right = call(module, src, tgt), run()
        for hint, wrong in {
            "that is pre-LN: the paper's norm takes the sum, LayerNorm(x + Sublayer(x)).": run(changed(norms_first)),
            "the vectors of the table are multiplied by √d_model (3.4).": run(scale=1),
            "the positions are missing (3.5).": run(waves=0),
            "the scores are not divided by √d_k (3.2.1).": run(changed(no_root)),
            "a word of the target sees those after it (3.2.3).": run(tgt_mask=None),
            "cross-attention sees padding: it needs the source's mask, too.": run(memory_key_padding_mask=None),
            "the encoder sees padding.": run(src_key_padding_mask=None),
            "padding is seen, in the encoder and in cross-attention.": run(
                src_key_padding_mask=None, memory_key_padding_mask=None
            ),
            "softmax belongs to the loss and the search: return logits.": right.softmax(-1),
        }.items():
            expect(not close(found, wrong, 1e-3), hint)
        expect_tensor(found, right, "read section 3 once more, from 3.1 on, beside your code.", 1e-3)
        difference = (found - right).abs().max().item()

        whole = TransformerConfig(30, 30, **{**SIZES, "dropout": ALL}, positions="sinusoidal", tie_embeddings=True)
        x, dropped = torch.zeros(2, 5, config.d_model), _lend(build(PaperTransformer, whole), table, weights).train()
        for layer in theirs.decoder.layers:
            x = layer.norm3(layer.norm2(layer.norm1(x)))  # all that is left
        hint = "in training, drop of the sums of embedding and position, and of what each sub-layer returns (5.4)."
        expect(close(call(dropped, src, tgt), x @ table.T, 1e-3), hint)
    _expect_other_model(PaperTransformer)
    expect_any_device("Say `device=src.device`.", module, src, tgt)
    return (
        f"with the weights of an `nn.Transformer`, the logits differ by at most {difference:.0e}. (PyTorch puts a norm "
        "behind each stack, after post-LN, too: the check has taken it away.)"
    )


@exercise("15.2")
def work(my_multiplications: Callable[[int, int, int], int], my_length: int) -> str:
    """``my_multiplications(n, d_model, d_ff)`` of an encoder layer, and the length where mixing is half of them."""
    for n, d_model, d_ff in ((9, 12, 20), (50, 512, 2048)):
        found = as_number(call(my_multiplications, n, d_model, d_ff))
        projections, mixing, feed_forward = 4 * n * d_model**2, 2 * n * n * d_model, 2 * n * d_model * d_ff
        right = projections + mixing + feed_forward
        mistakes = {
            projections + mixing: "the feed-forward network is missing.",
            mixing + feed_forward: "the projections to queries, keys and values, and of the output, are missing.",
            right - n * d_model**2: "there are four projections: query, key, value, and the output.",
            right
            - n * n * d_model: "there are two products of size n · n: scores, and then the average of the values.",
            right - n * d_model * d_ff: "the feed-forward network has two matrices.",
            2 * right: "count multiplications only: with the additions there are twice as many.",
            right - mixing: "comparing and averaging are missing: what grows with n · n.",
            right / n: "that is the work for one word. There are n.",
            right - mixing + 8 * mixing: "eight heads share d_model, so they cost as much as one.",
            right - mixing + 2 * n * d_model: "each word is compared with all n words.",
        }
        expect(found not in mistakes, mistakes.get(found, ""))
        expect_number(
            found,
            right,
            f"with n = {n}, d_model = {d_model} and d_ff = {d_ff}, go through the layer product by product: one of "
            "[a, b] and [b, c] has a · b · c multiplications.",
            0,
        )
    length = as_number(my_length)
    for wrong, hint in {
        512: "at n = d, a whole attention layer and a GRU break even. Here the layer is compared with itself.",
        1024: "the feed-forward network belongs to the layer too.",
        2048: "the rest of the layer has four projections and *two* matrices of 512 × 2048.",
        6144: "two products grow with n · n: scores, and average.",
    }.items():
        expect(not _near(length, wrong), hint)
    expect_number(
        length, 3072, "set 2 · n² · d equal to the rest, n · (4 · d² + 2 · d · d_ff), and solve for n.", 0.001
    )
    return (
        "6 · d_model. An LSTM layer has 8 · n · d² multiplications, fewer at any length: what the Transformer saves is "
        "waiting, not work."
    )


@exercise("15.3")
def sparse(my_sparse_mask: Callable[[int], Tensor]) -> str:
    """``my_sparse_mask(n)``: about 2 · √n keys for each query, such that two layers connect everybody."""
    for n in (16, 64, 50, 100, 7):
        mask = call(my_sparse_mask, n)
        expect(isinstance(mask, Tensor), f"a tensor was expected, but what came back is of type {type(mask).__name__}.")
        expect(mask.shape == (n, n), f"for n = {n}, the shape is {list(mask.shape)}, expected {[n, n]}.")
        expect(mask.dtype == torch.bool, f"the type is {mask.dtype}, expected torch.bool: True means *may attend*.")
        budget = 2 * math.ceil(math.sqrt(n))
        keys = mask.sum(dim=-1)
        where = f"for n = {n}, position {keys.argmin().item()}"
        expect(keys.min() > 0, f"{where} sees nothing, and softmax of nothing is nan.")
        where = f"for n = {n}, position {keys.argmax().item()}"
        expect(
            not mask.all() or n <= budget, "that is full attention: one layer connects everybody, for n keys a query."
        )
        expect(keys.max() <= budget, f"{where} sees {keys.max().item()} positions, at most {budget} are allowed.")
        twice = (mask.float() @ mask.float()) > 0
        if not twice.all():
            i, j = (~twice).nonzero()[0].tolist()
            reach = torch.arange(n)
            band = (reach[:, None] - reach).abs()[mask].max().item() < n // 2
            raise Wrong(
                f"for n = {n}, output {i} does not depend on input {j} after two layers. "
                + (
                    "Neighbours of neighbours are near as well: some keys must be far away."
                    if band
                    else f"Which position could see {j}, and be seen by {i}?"
                )
            )
    return "n · √n instead of n · n: Child et al. 2019, *Sparse Transformers*. The path is two layers instead of one."


@exercise("15.4")
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


@exercise("15.5")
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


def _near(found: float, wrong: float) -> bool:
    """Whether somebody meant this number, and rounded it."""
    return abs(found - wrong) <= 0.003 * abs(wrong)
