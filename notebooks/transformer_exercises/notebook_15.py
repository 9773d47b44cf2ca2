"""Checks of the exercises of notebook 15: the paper's model and numbers, and attention that saves something."""

import copy
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_exercises import (
    Wrong,
    as_list,
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
)
from transformer_exercises.notebook_02 import OTHER_IN_TRAINING
from transformer_exercises.notebook_03 import LOW_ENOUGH
from transformer_exercises.notebook_04 import ALL, EACH_SIZE, OTHERS, SIZES, expect_steady, sinusoids, weights_of
from transformer_lib import TransformerConfig


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


@exercise("15.2")
def sharing(my_millions: float, my_vocabulary: int) -> str:
    """``my_millions`` of base without sharing; ``my_vocabulary``, with which words cost as much as all layers."""
    words, layers = 18.9, 44.2
    millions, vocabulary = as_number(my_millions), as_number(my_vocabulary)
    if millions > 1e6:
        millions /= 1e6
    for wrong, hint in {
        layers + 2 * words: "one matrix is used in three places: both embeddings, and the output.",
        layers + 4 * words: "63.1 million holds the shared matrix once already.",
        3 * words: "the layers are part of the model too.",
        layers + words: "that is the model as it is, with one matrix for three places.",
        layers: "each of the three places needs a matrix of its own; none of them can go.",
    }.items():
        expect(not _near(millions, wrong), hint)
    expect_number(
        millions, layers + 3 * words, "three matrices of 37,000 × 512 instead of one, beside the layers.", 0.003
    )
    for wrong, hint in {
        layers * 1e6 / 512 / 3: "the matrix is shared: a token type costs 512 numbers, once.",
        layers * 1e6 / 1024: "base has a d_model of 512.",
        (layers + words) * 1e6 / 512: "compare with the layers alone, without the matrix for 37,000 types.",
        (layers - words) * 1e6 / 512: "that many types come on top of the 37,000. How many are there then?",
    }.items():
        expect(not _near(vocabulary, wrong), hint)
    expect_number(vocabulary, layers * 1e6 / 512, "how many times do 512 numbers go into the layers?", 0.005)
    return "60 % more, all of it in word vectors. Multilingual models have 250,000 types: mostly a dictionary, then."


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


@exercise("15.3")
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


@exercise("15.4")
def equation_3(my_peak: float, my_half_steps: Sequence[int], my_warmup: int) -> str:
    """``my_peak`` of big's rate; ``my_half_steps``, with half of it; ``my_warmup``, which would halve it."""
    peak = (1024 * 4000) ** -0.5
    highest, warmup = as_number(my_peak), as_number(my_warmup)
    for wrong, hint in {
        (512 * 4000) ** -0.5: "that is base. Big has a d_model of 1024.",
        4000**-0.5: "d_model lowers the rate too.",
        1 / (1024 * 4000): "the exponent is −0.5: take the root.",
        1024**-0.5: "put step = warmup_steps = 4,000 into equation 3.",
    }.items():
        expect(not _near(highest, wrong), hint)
    expect_number(highest / peak, 1, "put step = warmup_steps = 4,000 and d_model = 1024 into equation 3.", 0.015)
    my_half_steps = as_list(my_half_steps)
    expect(
        isinstance(my_half_steps, list | tuple | set) and len(my_half_steps) == 2,
        "the rate passes half of its peak twice: on the way up, and on the way down.",
    )
    up, down = sorted(map(as_number, my_half_steps))
    expect_number(up, 2000, "on the way up, the rate is a straight line from zero.", 0.001)
    expect(not _near(down, 8000), "at twice the steps, the rate is the peak by √2, not by 2.")
    expect_number(down, 16_000, "on the way down, the rate is one over the root of the step.", 0.001)
    expect(not _near(warmup, 8000), "twice the warm-up divides the peak by √2 only.")
    expect(not _near(warmup, 2000), "a shorter warm-up *raises* the peak.")
    expect_number(warmup, 16_000, "the peak is one over the root of d_model · warmup_steps.", 0.001)
    return "16,000 twice, for one reason: a longer warm-up cuts off the top of the same falling curve."


@exercise("15.5")
def lowest_loss(my_lowest_loss: Callable[[int, float], float]) -> str:
    """``my_lowest_loss(vocab_size, smoothing)``: the smoothed loss of a model that gives just the smoothed targets."""
    for vocab_size, smoothing in ((5, 0.1), (37_000, 0.1), (100, 0.3), (5, 0.0)):
        target = torch.full((1, vocab_size), smoothing / vocab_size, dtype=torch.float64)
        target[0, 2] += 1 - smoothing
        right = F.cross_entropy(target.log().clamp(min=-1e9), torch.tensor([2]), label_smoothing=smoothing).item()
        try:
            found = as_number(call(my_lowest_loss, vocab_size, smoothing))
        except Wrong:
            expect(smoothing, "without smoothing, the others get 0 · ln 0. It counts as 0.")
            raise
        if smoothing == 0:
            expect_number(found, 0, "without smoothing, the model may be certain, and its loss is 0.", 1e-6)
            break
        largest, other = target[0, 2].item(), smoothing / vocab_size
        of_right, of_another = -largest * math.log(largest), -other * math.log(other)
        over_others = (vocab_size - 1) / smoothing
        mistakes = {
            -math.log(largest): "that is the loss against the hard target. The smoothed one asks for the others too.",
            of_right: "that is the term of the right token. The others have terms too.",
            of_right + of_another: "there are vocab_size − 1 other tokens.",
            of_right + vocab_size * of_another: "one token less: the right one is not among the others.",
            -(1 - smoothing) * math.log(1 - smoothing) + smoothing * math.log(over_others): "ε is spread over all "
            "tokens, the right one included: it gets a little more than 1 − smoothing.",
            right / math.log(2): "losses are in nats: the natural logarithm.",
            math.exp(right): "that is e to the power of the loss.",
            -right: "a loss is minus the logarithm.",
            0.0: "with the smoothed targets, certainty is punished: the loss cannot reach 0.",
        }
        for wrong, hint in mistakes.items():
            expect(abs(found - wrong) > 1e-5 or abs(wrong - right) < 1e-5, hint)
        expect_number(
            found,
            right,
            "sum over all tokens: minus the target times the logarithm of the probability, equal here.",
            1e-4,
        )
    return "for 37,000 tokens it is 1.38 nats, so compare smoothed losses only with losses smoothed alike."


@exercise("15.6")
def days(my_days: float, my_base_models: float) -> str:
    """``my_days`` of 8 GPUs for 1.1e21 operations; ``my_base_models`` for the same."""
    found, models = as_number(my_days), as_number(my_base_models)
    right = 1.1e21 / (8 * 9.5e12) / 86_400
    for wrong, hint in {
        8 * right: "the machine has 8 GPUs.",
        24 * right: "that is hours.",
        86_400 * right: "that is seconds.",
        right / 8: "the operations of 8 GPUs *add up*: divide by 8 once.",
    }.items():
        expect(not _near(found, wrong), f"days: {hint}")
    expect_number(found / right, 1, "days: operations / (8 · 9.5 · 10¹²) are seconds.", 0.01)
    expect(not _near(models, 1.1e21 / 2.3e19), "models: that is big. Base cost 3.3 · 10¹⁸.")
    expect_number(models / (1.1e21 / 3.3e18), 1, "models: 1.1 · 10²¹ over the cost of base, 3.3 · 10¹⁸.", 0.01)
    return (
        "half a year against twelve hours for base, which is 3 BLEU worse there (38.1 against 41.16). The abstract's "
        '"small fraction" is about big, after 3.5 days.'
    )


@exercise("15.7")
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


def _near(found: float, wrong: float) -> bool:
    """Whether somebody meant this number, and rounded it."""
    return abs(found - wrong) <= 0.003 * abs(wrong)
