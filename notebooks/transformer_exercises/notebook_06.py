"""Checks of the exercises of notebook 06: target, loss, learning rate, loop, when to stop, and the other direction.

What its patient has stands here in the open, too: read ``patient`` when you have named it.
"""

import copy
import math
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer_exercises import (
    Wrong,
    as_list,
    as_number,
    call,
    close,
    course,
    diagnose,
    exercise,
    expect,
    expect_any_device,
    expect_gradients,
    expect_number,
    expect_tensor,
    question,
)
from transformer_exercises.notebook_02 import OTHER_WITH_GRADIENT
from transformer_lib.data.batches import Batch, BucketBatches, build_vocabularies, make_dataset
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference.bleu import sacre_bleu
from transformer_lib.inference.translator import Translator
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer

ENOUGH_BLEU = 60

question(
    "06.a",
    right="ln V",
    replies={
        "ln V": "fresh weights give logits that are small and much alike, so each token gets about 1/V. Which words "
        "are common, the model has yet to learn.",
        "the unigram loss": "for that, somebody must have counted the words. No weight has seen a sentence yet.",
        "far above both": "that is what weights do that start too large: the model is sure of itself, and wrong. One "
        "that starts well is merely undecided.",
    },
)
question(
    "06.b",
    right="something from the eight",
    replies={
        "a rough translation": "eight sentences are enough to learn eight sentences by heart. What a German word "
        "means can be told only from many sentences that share it.",
        "something from the eight": "it has learned to write eight English sentences, and has nothing else to say.",
        "one word again and again": "so does a model that has learned to copy what it is given. This one had to "
        "find eight sentences word by word.",
    },
)
question(
    "06.c",
    right="90 %",
    replies={
        "50 %": "the smoothed target still asks for the wanted token with 0.9 and a little. Half is too modest.",
        "90 %": "the target gives the wanted token 0.900025, and a loss is lowest where the probabilities are those "
        "of the target.",
        "99.99 %": "of the plain loss, yes. The smoothed one also counts the surprise at the 3,983 others, and they "
        "have become next to impossible.",
    },
)
question(
    "06.d",
    right="one word again and again",
    replies={
        "words at random": "it does learn something, and quickly: to copy its last input, where the answer is. What "
        "does that give, when its last input is its own last word?",
        "the eight sentences, as before": "the loss falls as before, indeed. But what must the model know of German, "
        "if it is given the token that it must say?",
        "one word again and again": "it has learned to copy its last input. When it writes, its last input is its "
        "own last word.",
    },
)
question(
    "06.e",
    right="too high and never the same",
    replies={
        "right": "no weight changes, but dropout still sets numbers to zero on the way through.",
        "too high but twice the same": "which numbers dropout sets to zero is drawn anew in each pass.",
        "too high and never the same": "each pass goes through the model with other numbers set to zero.",
    },
)
question(
    "06.f",
    right="falls but the model is no good",
    replies={
        "becomes nan": "clipping and Adam bound the length of a step. It is a hundred times too long, but finite.",
        "rises": "steps that long destroy much, but the commonest words are found again quickly, and the loss, "
        "terrible after the first steps, falls from there.",
        "falls but the model is no good": "a loss that falls says only that it was worse before. Compare with the "
        "baseline: what does counting words reach?",
    },
)


@exercise("06.1")
def shift(my_shift: Callable[[list[list[int]], int, int, int], tuple[Tensor, Tensor]]) -> str:
    """``my_shift(sentences, sos_id, eos_id, pad_id)``: what the decoder is given, and what it must say."""
    for sentences, sos_id, eos_id, pad_id in (([[7, 8, 9], [5], [6, 4]], 2, 3, 1), ([[4, 6], [5, 7, 8, 4]], 9, 0, 3)):
        length = max(map(len, sentences)) + 1
        right_given, right_wanted = (
            torch.tensor([row + [pad_id] * (length - len(row)) for row in rows])
            for rows in ([[sos_id, *ids] for ids in sentences], [[*ids, eos_id] for ids in sentences])
        )
        found = call(my_shift, [list(ids) for ids in sentences], sos_id, eos_id, pad_id)
        expect(
            isinstance(found, tuple | list | Tensor) and len(found) == 2, "two tensors were expected: given, wanted."
        )
        given, wanted = (_as_ids(ids) for ids in found)
        for name, ids in (("given", given), ("wanted", wanted)):
            expect(
                ids.shape == right_wanted.shape,
                f"{name} has the shape {list(ids.shape)}, expected {list(right_wanted.shape)}: the longest sentence "
                "with `<sos>` or with `<eos>`, but not with both.",
            )
        real = right_wanted != pad_id
        expect(
            not (given.equal(right_wanted) and wanted.equal(right_given)),
            "you have exchanged them: what is given begins with `<sos>`, what is wanted ends in `<eos>`.",
        )
        expect(not wanted[real].equal(given[real]), "they are the same, so the decoder is given what it must say.")
        expect((given[:, 0] == sos_id).all(), "what is given begins with `<sos>`, in every sentence.")
        expect(not (wanted == sos_id).any(), "nobody ever has to say `<sos>`.")
        expect(
            ((wanted == eos_id).sum(dim=1) == 1).all(),
            "what is wanted ends in `<eos>`, in every sentence: exactly one.",
        )
        expect(
            not (wanted[:, -1] == eos_id).all(),
            "`<eos>` comes right after the last word, and padding after `<eos>`.",
        )
        expect(wanted.equal(right_wanted), "look at what is wanted: the words, `<eos>`, then padding.")
        expect(given[real].equal(right_given[real]), "look at what is given: `<sos>`, then the words, one place later.")
    return "`<eos>` is learned like any word. A model that was never asked for it would never stop."


def _as_ids(ids: Any) -> Tensor:
    try:
        return torch.as_tensor(ids).long().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise Wrong("a tensor of ids was expected: rows of one length, filled up with padding.") from None


@exercise("06.2")
def surprise(loss_of_sentence: float, perplexity_of_sentence: float, perplexity_after: float) -> str:
    """Loss and perplexity of wanted tokens that got 1/4, 1/2, 1/2, 1/16; then with 1/32 in place of a half."""
    bit = math.log(2)  # a half surprises by so many nats
    hints = {
        2.0: "those are bits. A nat comes from the natural logarithm.",
        8 * bit: "that is the sum; a loss is the mean over tokens.",
        14 / 5 * bit: "`<pad>` does not count: neither in the sum nor in the number of tokens.",
        8 / 5 * bit: "`<pad>` does not count in the number of tokens either.",
        4 / 3 * bit: "`<eos>` is wanted too: it is a token like any other.",
        -math.log(21 / 64): "take the logarithm of each probability first, and the mean after that.",
        -2 * bit: "a probability is at most 1, so its logarithm is negative, and a surprise takes minus that.",
    }
    loss = as_number(loss_of_sentence)
    for wrong, hint in hints.items():
        expect(not _near(loss, wrong), f"the loss: {hint}")
    expect_number(loss, 2 * bit, "the loss: -ln of each of the four probabilities, and the mean of them.", 5e-3)
    for name, given, right, of_each in (
        ("perplexity_of_sentence", perplexity_of_sentence, 4, "4, 2, 2, 16"),
        ("perplexity_after", perplexity_after, 8, "4, 32, 2, 16"),
    ):
        found = as_number(given)
        expect(not _near(found, 2 ** math.log(right)), f"{name}: nats go with powers of e, bits with powers of 2.")
        expect(
            not _near(found, sum(map(int, of_each.split(", "))) / 4),
            f"{name}: that is the mean of {of_each}. The mean of the *logarithms* goes into e^loss.",
        )
        expect_number(
            found, right, f"{name} is e to the power of the loss; here, it comes out as a whole number.", 5e-3
        )
    return (
        "a single token that is sixteen times less likely doubles the perplexity of four: the fourth root of 16 is 2."
    )


def _near(found: float, wrong: float) -> bool:
    return abs(found - wrong) < 2e-3 * max(1, abs(wrong))


@exercise("06.3")
def label_smoothing(my_smoothed_loss: Callable[[Tensor, Tensor, int, float], Tensor]) -> str:
    """``my_smoothed_loss(logits, targets, pad_id, smoothing)``: section 5.4, without counting padding."""
    generator = torch.Generator().manual_seed(0)
    for pad_id, smoothing in ((1, 0.1), (0, 0.3), (1, 0.0)):
        logits = 3 * torch.randn(3, 5, 7, generator=generator)  # [batch, tgt_len, vocabulary]
        targets = torch.randint(2, 7, (3, 5), generator=generator)
        targets[1, 3:], targets[2, 1:] = pad_id, pad_id
        right = _cross_entropy(logits, targets, pad_id, smoothing)
        found = call(my_smoothed_loss, logits.clone().requires_grad_(), targets.clone(), pad_id, smoothing)
        expect(isinstance(found, Tensor), "a tensor was expected, so that PyTorch can compute the gradient.")
        expect(found.numel() == 1, f"one number was expected, the mean over tokens; yours has {found.numel()}.")
        for hint, wrong in _mistakes(logits, targets, pad_id, smoothing).items():
            same = abs(wrong - right) < 1e-4  # without smoothing, some mistakes make no difference
            expect(same or not torch.allclose(found.detach().double(), wrong.double(), atol=1e-4), hint)
        expect_tensor(
            found.detach().reshape(()), right, "the surprise at the wanted token, and the mean of the surprise at all."
        )
        expect(found.requires_grad, "the number is right, but it has no gradient: keep it a tensor all the way.")
    far = torch.tensor([[[300.0, 0.0, -300.0]]])
    found, right = call(my_smoothed_loss, far, torch.tensor([[2]]), 1, 0.1), _cross_entropy(far, [[2]], 1, 0.1)
    expect_tensor(
        torch.as_tensor(found).reshape(()),
        right,
        "large logits give inf or nan: `log_softmax` is safe, log of a softmax is not.",
    )
    expect_any_device("Say `device=logits.device`.", my_smoothed_loss, logits, targets, 1, 0.1)
    return "the smallest loss that a model can reach is now the entropy of its smoothed target, and not 0."


def _cross_entropy(logits: Tensor, targets: Any, pad_id: int, smoothing: float, **options: Any) -> Tensor:
    options = {"ignore_index": pad_id, "label_smoothing": smoothing, **options}
    return F.cross_entropy(logits.detach().flatten(0, 1), torch.as_tensor(targets).flatten(), **options)


def _mistakes(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> dict[str, Tensor]:
    log_p = logits.log_softmax(-1)
    real, types = targets != pad_id, logits.shape[-1]
    wanted = -log_p.gather(-1, targets[..., None])[..., 0][real]  # [real tokens]
    everything = -log_p.sum(-1)[real]
    but_padding = everything + log_p[..., pad_id][real]
    right = ((1 - smoothing) * wanted + smoothing / types * everything).mean()
    per_token = _cross_entropy(logits, targets, pad_id, smoothing, reduction="none").view_as(targets)
    return {
        "there is no smoothing in it.": wanted.mean(),
        "padding counts in it: leave those positions out.": _cross_entropy(logits, targets, -100, smoothing),
        "padding is out of the sum, but the sum is divided by all positions.": right * real.sum() / real.numel(),
        "that is the sum over tokens; a loss is their mean.": right * real.sum(),
        "first the mean of each sentence, then of these: so words of short sentences weigh more. Take one mean over "
        "all real tokens.": (per_token.sum(1) / real.sum(1)).mean(),
        "you add up the surprise at all tokens; take its mean.": (
            (1 - smoothing) * wanted + smoothing * everything
        ).mean(),
        "you spread ε over all tokens *but the wanted one*. Here, as in PyTorch, the wanted one gets its share too.": (
            (1 - smoothing) * wanted + smoothing / (types - 1) * (everything - wanted)
        ).mean(),
        "you spread ε over all tokens but `<pad>`. It is one of the vocabulary, and gets its share too.": (
            (1 - smoothing) * wanted + smoothing / (types - 1) * but_padding
        ).mean(),
        "what is spread must be taken from somewhere: the wanted token keeps 1 - ε.": (
            wanted + smoothing / types * everything
        ).mean(),
        "you have exchanged ε and 1 - ε.": (smoothing * wanted + (1 - smoothing) / types * everything).mean(),
        "the sign: a surprise is *minus* a logarithm.": -right,
    }


@exercise("06.4")
def paper_schedule(my_paper_schedule: Callable[[Optimizer, int, int], Any]) -> str:
    """``my_paper_schedule(optimizer, d_model, warmup_steps)``: a scheduler with the rates of equation 3."""
    for d_model, warmup_steps, given_rate in ((64, 10, 1.0), (256, 8, 0.5), (100, 5, 2e-3)):
        right = [d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5) for step in range(1, 41)]
        rates = _rates(my_paper_schedule, d_model, warmup_steps, given_rate)
        if _same(rates, right):
            continue
        scaled = [rate / given_rate for rate in rates]
        expect(
            not _same(scaled, right),
            f"the rates are those of equation 3, times {given_rate:g}: `LambdaLR` multiplies the rate that the "
            "optimiser was made with.",
        )
        for found in (rates, scaled):
            expect(
                not _same(found[1:], right[:-1]),
                "you are one step late: `LambdaLR` counts the steps that have been taken, from 0; the paper from 1.",
            )
            expect(not _same(found[:-1], right[1:]), "you are one step ahead: the first step is step 1.")
            expect(
                not _same(found, [d_model**-0.5 * max(step**-0.5, step * warmup_steps**-1.5) for step in range(1, 41)]),
                "of the two branches, the *smaller* one counts.",
            )
            if found[0] and _same([rate * right[0] for rate in found], [rate * found[0] for rate in right]):
                raise Wrong(
                    f"the curve has the right form, but its first rate is {found[0]:.3g}, expected {right[0]:.3g}: "
                    "look at d_model^-0.5, and at what the optimiser's own rate does."
                )
        raise Wrong(
            f"with d_model={d_model} and warmup_steps={warmup_steps}, step 1 has the rate {rates[0]:.3g}, expected "
            f"{right[0]:.3g}, and step {warmup_steps} has {rates[warmup_steps - 1]:.3g}, expected "
            f"{right[warmup_steps - 1]:.3g}."
        )
    return (
        "`LambdaLR` multiplies: the library gives the optimiser the peak, and the schedule only says which share of it."
    )


def _rates(
    make: Callable[[Optimizer, int, int], Any], d_model: int, warmup_steps: int, given_rate: float
) -> list[float]:
    """Return the learning rates of forty steps."""
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=given_rate)
    schedule = call(make, optimizer, d_model, warmup_steps)
    expect(hasattr(schedule, "step"), "return the schedule itself, such as a `LambdaLR`: it has a method `step`.")
    rates = []
    for _ in range(40):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        call(lambda: schedule.step() or True)
    return rates


def _same(found: list[float], right: list[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(found, right, strict=True))


@exercise("06.5")
def when_to_stop(my_stop: Callable[[list[float], int], tuple[int, int]]) -> str:
    """``my_stop(val_losses, patience)``: the epoch whose weights to keep, and the one after which to stop."""
    cases = (
        ([3.0, 2.0, 1.5, 1.6, 1.7, 1.8, 1.4], 2, (3, 5)),
        ([3.0, 2.0, 2.1, 1.9, 2.5, 2.4, 2.3, 1.0], 3, (4, 7)),  # falling again is not yet better than the best
        ([2.0, 1.9, 1.8, 1.7], 2, (4, 4)),
        ([2.0, 1.0, 1.5, 1.0, 1.5, 1.6, 0.5], 2, (2, 4)),  # a tie is no improvement
        ([1.0, 2.0, 0.5], 1, (1, 2)),
    )
    compare = "Compare with the best so far, not with the epoch before; a new best starts the count again."
    for losses, patience, right in cases:
        given = f"my_stop({losses}, patience={patience})"
        found = as_list(call(my_stop, list(losses), patience))
        expect(
            isinstance(found, list | tuple) and len(found) == 2, f"{given}: two numbers were expected, best and last."
        )
        best, last = (as_number(number) for number in found)
        expect((best, last) != right[::-1] or best == last, f"{given}: you have exchanged the two.")
        expect(
            (best + 1, last + 1) != right and (best + 1, last) != right,
            f"{given}: Python counts from 0, epochs count from 1.",
        )
        expect(
            (best, last) != (4, 6) or losses[3] != losses[1],
            f"{given}: a loss that only equals the best so far is no improvement.",
        )
        expect(
            last == right[1] or last != len(losses),
            f"{given}: you go on to the end, but after epoch {right[1]}, there has been no new *best* for {patience} "
            f"epochs in a row. {compare}",
        )
        expect(
            best != losses.index(min(losses)) + 1 or best == right[0],
            f"{given}: epoch {best:.0f} is the best of the list, but training has stopped before it.",
        )
        expect(
            best == right[0],
            f"{given}: the best epoch is {right[0]}, the first with the lowest validation loss before training stops.",
        )
        expect(
            last != right[1] + 1,
            f"{given}: one epoch too late: with a patience of 1, the first epoch without a new best is the last.",
        )
        expect(
            last == right[1],
            f"{given}: you stop after epoch {last:.0f}, expected {right[1]}. {compare}",
        )
    return "this is early stopping. It costs `patience` epochs for nothing, and the copy of the best weights."


@exercise("06.6")
def other_direction(my_translator: Callable[[list[str]], Sequence[str]]) -> str:
    """``my_translator(sentences)``: English in, German out, for sentences of the sample corpus's test split."""
    corpus = load_corpus("sample", src="en", tgt="de")
    pairs = corpus["test"][:100]
    found = call(my_translator, [pair.src for pair in pairs])
    expect(
        isinstance(found, list | tuple) and len(found) == len(pairs) and all(isinstance(text, str) for text in found),
        f"given a list of {len(pairs)} sentences, it must return a list of {len(pairs)} strings.",
    )
    english, german = ({word.lower() for pair in corpus["val"] for word in pair[side].split()} for side in (0, 1))
    words = [word for text in found for word in text.lower().split()]
    expect(words, "it returns empty sentences.")
    in_english, in_german = (sum(word in side for word in words) for side in (english, german))
    expect(
        in_english < in_german,
        "what it writes is English. Source and target change places in the corpus, in the tokenisers, in the sizes of "
        "the model's vocabularies, and in the Translator: which one is missing?",
    )
    expect(
        len(set(found)) > len(found) / 4,
        "it says the same again and again, whatever it reads: has it been trained? Look at the validation loss.",
    )
    bleu = sacre_bleu(found, [pair.tgt for pair in pairs], lowercase=True).value
    expect(
        bleu >= ENOUGH_BLEU,
        f"those are German words, but BLEU (notebook 09) is {bleu:.0f}, expected {ENOUGH_BLEU} or more: train longer.",
    )
    return "nothing in the model knows a language: only the data, the tokenisers and their vocabularies do."


ANY_PADDING = "right as long as padding is 1; it is an argument, `pad_id`, and need not be."


@exercise("token_loss")
def mean_surprise(token_loss: Callable[[Tensor, Tensor, int, float], Tensor]) -> str:
    """``token_loss(logits, targets, pad_id, label_smoothing=0.0)``: the mean over all real tokens."""
    torch.manual_seed(0)
    logits, targets = 3 * torch.randn(3, 5, 7), torch.randint(2, 7, (3, 5))  # [batch, tgt_len, vocabulary]
    targets[1, 3:], targets[2, 1:] = 1, 1
    rows = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0].neg()  # the surprise at each token
    real = targets != 1
    right = rows[real].mean()
    try:
        found = call(token_loss, logits.clone().requires_grad_(), targets.clone(), 1)
    except Wrong as stopped:
        _expect_shapes_of_loss(
            stopped, logits.shape[-1], "There must be as many: both come in shifted, and with the same positions."
        )
        raise
    expect(isinstance(found, Tensor) and found.numel() == 1, "one number was expected, as a tensor.")
    probabilities = logits.softmax(-1)
    twice = F.cross_entropy(probabilities.flatten(0, 1), targets.flatten(), ignore_index=1)
    hints = {
        "padding counts: which argument says what to ignore?": rows.mean(),
        "`cross_entropy` takes logits: it computes the softmax itself.": twice,
        "that is the sum; the loss is the mean over the real tokens.": rows[real].sum(),
        "each sentence weighs the same here; each *token* should.": torch.stack(
            [row[kept].mean() for row, kept in zip(rows, real, strict=True)]
        ).mean(),
    }
    for hint, wrong in hints.items():
        expect(not torch.allclose(found.detach(), wrong, atol=1e-4), hint)
    expect_number(found, right.item(), "-log of the wanted token's probability, in the mean over all real tokens.")
    smoothed = call(token_loss, logits, targets, 1, 0.1)
    smooth = 0.9 * right + 0.1 * logits.log_softmax(-1).mean(-1).neg()[real].mean()
    expect_number(smoothed, smooth.item(), "label_smoothing does not arrive in `cross_entropy`.")
    for pad_id in (0, 5):
        others = torch.where(real, targets, pad_id)
        expected = _cross_entropy(logits, others, pad_id, 0.1)
        expect_number(call(token_loss, logits.clone(), others.clone(), pad_id, 0.1), expected.item(), ANY_PADDING)
    far = torch.tensor([[[300.0, 0.0, -300.0]]])
    hint = "large logits give inf or nan: `log_softmax` is safe, log of a softmax is not."
    expect_tensor(torch.as_tensor(call(token_loss, far, torch.tensor([[2]]), 1)).reshape(()), torch.tensor(600.0), hint)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return token_loss(logits, targets, 1, 0.1).reshape(())

    def by_hand(logits: Tensor, targets: Tensor) -> Tensor:
        options = {"ignore_index": 1, "label_smoothing": 0.1}
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), **options)

    expect_gradients(OTHER_WITH_GRADIENT, loss, by_hand, logits, targets)
    expect_any_device("Say `device=logits.device`.", token_loss, logits, targets, 1, 0.1)
    return "`cross_entropy` does softmax, logarithm, choice and mean in one go."


class _Thing:
    """Something that a weak reference may lead to."""


class _Traced(torch.autograd.Function):
    """Does nothing, and keeps a thing as long as somebody keeps the graph that leads here."""

    @staticmethod
    def forward(context: Any, x: Tensor, thing: Any) -> Tensor:
        context.thing = thing
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class Bilinear(nn.Module):
    """The smallest model that a loop can train: it looks at the token before, and at the source's first."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.source, self.drop = nn.Embedding(9, 9), nn.Embedding(9, 9), nn.Dropout(0.0)
        self.calls: list[SimpleNamespace] = []

    def __deepcopy__(self, memo: dict) -> "Bilinear":
        """Return one with the same weights, which has not been called."""
        other = Bilinear()
        other.load_state_dict(self.state_dict())
        return other

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits, ``[batch, tgt_len, 9]``."""
        state = {"src_len": src.shape[1], "training": self.training, "learns": torch.is_grad_enabled()}
        state["half"] = torch.is_autocast_enabled(src.device.type)
        state["kept"] = sum(one.graph() is not None for one in self.calls)  # of the batches before
        thing = _Thing()
        state["graph"] = weakref.ref(thing)
        self.calls.append(SimpleNamespace(**state, given=tgt.clone(), table=self.table.weight.detach().clone()))
        return _Traced.apply(3 * (self.table(tgt) + self.source(src[:, :1])), thing)


class _InSixteenBits(Bilinear):
    """Its logits have 16 bits, as those of a larger model under ``torch.autocast``."""

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits, ``[batch, tgt_len, 9]``."""
        return super().forward(src, tgt).bfloat16()


class _Rounded(_InSixteenBits):
    """The same logits, back in 32 bits."""

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits, ``[batch, tgt_len, 9]``."""
        return super().forward(src, tgt).float()


def _share(taken: int) -> float:
    return 1 / (taken + 1)


def _rate(taken: int) -> float:
    return 0.5 * _share(taken)


def _expect_no_graph_kept(model: Bilinear) -> None:
    """Raise ``Wrong`` if, in the third batch, the graph of the first is still there: the second's goes only then."""
    kept = any(one.kept > 1 for one in model.calls)
    hint = (
        "the sum of losses keeps the graph of every batch, and memory grows: add up `loss.item()` or `loss.detach()`."
    )
    expect(not kept, hint)


class _Batches(list[Batch]):
    """Batches that take what a ``BucketBatches`` takes, and keep their order."""

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: in a check, each epoch has the same order."""


def _batches(*sizes: tuple[int, int], src_len: int = 3, pad_id: int = 1) -> _Batches:
    """Return random batches of so many sentences and so many target tokens, with padding in the first sentence."""
    batches = _Batches()
    for size, length in sizes:
        src, tgt = torch.randint(2, 9, (size, src_len)), torch.randint(2, 9, (size, length))
        tgt[tgt == pad_id] = 1  # a word like others, where it is no padding
        tgt[0, -2:] = pad_id
        batches.append(Batch(src, tgt))
    return batches


def _losses(
    model: nn.Module, batches: list, shifts: bool = True, ignored: int = 1, smoothing: float = 0.0
) -> Iterable[tuple[Tensor, int]]:
    """Yield each batch's loss, and how many tokens it is a mean of."""
    for src, tgt in batches:
        wanted = tgt[:, 1:] if shifts else tgt[:, :-1]
        logits, options = model(src, tgt[:, :-1]), {"ignore_index": ignored, "label_smoothing": smoothing}
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), **options)
        yield loss, int((wanted != ignored).sum())


def _epoch(
    model: nn.Module,
    batches: list,
    forgets: bool = True,
    clips: bool = True,
    rate: Callable[[int], float] = _rate,
    taken: int = 0,
    **options: Any,
) -> list[tuple[float, int]]:
    """Train a model for an epoch by gradient descent, as a loop should or in a wrong way.

    Returns:
        the loss of each batch, and its tokens.
    """
    losses, kept = [], [torch.zeros_like(p) for p in model.parameters()]
    for loss, tokens in _losses(model, batches, **options):
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        kept = [new if forgets else old + new for old, new in zip(kept, gradients, strict=True)]
        length = torch.stack([gradient.norm() for gradient in kept]).norm()
        scale = (1 / (length + 1e-6)).clamp(max=1.0) if clips else torch.tensor(1.0)
        kept = [gradient * scale for gradient in kept]
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), kept, strict=True):
                parameter -= rate(taken + len(losses)) * gradient
        losses.append((loss.item(), tokens))
    return losses


def _mean(losses: list[tuple[float, int]]) -> float:
    return sum(loss * tokens for loss, tokens in losses) / sum(tokens for _, tokens in losses)


_WRONG_WAYS: dict[str, dict[str, Any]] = {
    "the gradients of earlier batches are still there: where is `optimizer.zero_grad()`?": {"forgets": False},
    "gradients with a norm above 1 are to be clipped to 1, between `backward` and `step`.": {"clips": False},
    "the decoder is asked for the token that it is given: shift the target by one.": {"shifts": False},
    "the schedule takes its step before the optimiser does, so the first learning rate is never used.": {
        "rate": lambda taken: _rate(taken + 1)
    },
}


@exercise("train_one_epoch")
def loop(train_one_epoch: Callable[..., float]) -> str:
    """``train_one_epoch(model, batches, optimizer, schedule, pad_id, …)``: what every weight is after an epoch."""
    torch.manual_seed(0)
    first, batches = Bilinear(), _batches((2, 6), (5, 4), (3, 7))

    def trained(*options: Any) -> tuple[Bilinear, Any, Any]:
        model = copy.deepcopy(first)
        optimizer = SGD(model.parameters(), lr=0.5)
        schedule = LambdaLR(optimizer, _share)
        found = _trained(train_one_epoch, model.eval(), batches, optimizer, schedule, 1, *options)
        return model, schedule, found

    model, schedule, found = trained()
    loss = as_number(found)
    expect(model.calls, "the model is never called.")
    expect(all(one.training for one in model.calls), "the model is not in training mode, in which dropout is on.")
    right = copy.deepcopy(first)
    right_loss = _mean(_epoch(right, batches))
    _expect_no_wrong_way(model.table.weight, first, batches)
    rate = schedule.get_last_lr()[0]
    expect(
        abs(rate - 0.125) < 1e-6, f"after three steps the schedule is at {rate:.3f}: it takes a step after each batch."
    )
    expect_tensor(model.table.weight, right.table.weight, "the weights are others than gradient descent's.", 1e-5)
    expect_number(loss, right_loss, "returned is the mean loss over all *tokens*, as a number.", 1e-5)
    _expect_no_graph_kept(model)
    expect(
        not isinstance(found, Tensor),
        "what is returned is right, but a tensor, which on a GPU no picture can draw: `.item()` makes it a number.",
    )

    in_half, _, smoothed_loss = trained(0.1, True)
    expect(
        not close(in_half.table.weight, model.table.weight, 1e-5),
        "`label_smoothing` makes no difference: hand it to `token_loss`.",
    )
    smoothed = copy.deepcopy(first)
    right_loss = _mean(_epoch(smoothed, batches, smoothing=0.1))
    expect_tensor(
        in_half.table.weight, smoothed.table.weight, "with `label_smoothing`, other weights were expected.", 1e-5
    )
    expect_number(
        smoothed_loss, right_loss, "returned is the loss that you take the gradient of, smoothed or not.", 1e-5
    )
    others = _batches((3, 6), (2, 5), pad_id=5)
    other, right = copy.deepcopy(first), copy.deepcopy(first)
    optimizer = SGD(other.parameters(), lr=0.5)
    found = _trained(train_one_epoch, other, others, optimizer, LambdaLR(optimizer, _share), 5)
    right_loss = _mean(_epoch(right, others, ignored=5))
    expect_tensor(other.table.weight, right.table.weight, ANY_PADDING, 1e-5)
    expect_number(found, right_loss, ANY_PADDING, 1e-5)
    expect(
        all(one.half for one in in_half.calls) and not any(one.half for one in model.calls),
        "the model is to be called under `torch.autocast` if `half` is true, and only then: keep the `with` line.",
    )
    rounded, halved = _Rounded(), _InSixteenBits()
    halved.load_state_dict(rounded.state_dict())
    optimizer = SGD(halved.parameters(), lr=0.0)
    found = _trained(train_one_epoch, halved, batches, optimizer, LambdaLR(optimizer, _share), 1, 0.0, True)
    right_loss = _mean([(loss.item(), tokens) for loss, tokens in _losses(rounded, batches)])
    expect_number(
        found,
        right_loss,
        "under autocast the logits have 16 bits, and so has a loss that is made of them: "
        "hand `logits.float()` to `token_loss`.",
        1e-4,
    )
    return "every weight is where a loop by hand puts it. Nearly all training code that you'll meet is this."


def _trained(function: Callable[..., Any], model: Bilinear, *arguments: Any) -> Any:
    """Call a reader's training without PyTorch's warning of a schedule that steps too early: the hint says it.

    Raises:
        Wrong: it raises something, or gives the decoder the whole target, or all but its first token.
    """
    batches = [batch for argument in arguments if isinstance(argument, list) for batch in argument]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found = call(function, model, *arguments)
        except Wrong as stopped:
            _expect_shifted(model, batches)
            _expect_shapes_of_loss(
                stopped,
                model.table.num_embeddings,
                "There must be as many: given are all tokens but the last, and wanted all but the *first*.",
            )
            raise
    _expect_shifted(model, batches)
    return found


def _expect_shifted(model: Bilinear, batches: list) -> None:
    for given in (one.given for one in model.calls):
        expect(
            not any(given.equal(tgt) for _, tgt in batches),
            "the decoder is given the whole target, without a shift: leave out its last token, and, in what is wanted, "
            "its first.",
        )
        expect(
            not any(given.equal(tgt[:, 1:]) for _, tgt in batches),
            "the shift goes the wrong way: *given* are all tokens but the last, from `<sos>` on, and *wanted* all but "
            "the first.",
        )


def _expect_shapes_of_loss(stopped: Wrong, vocab_size: int, hint: str) -> None:
    """Look at what PyTorch's loss was given, if it is where a reader's code stopped.

    Args:
        stopped: what was raised there.
        vocab_size: how many logits a position has.
        hint: what to say of other numbers of positions.

    Raises:
        Wrong: the shapes do not fit.
    """
    for frame, _ in traceback.walk_tb(stopped.__cause__.__traceback__ if stopped.__cause__ else None):
        if frame.f_code.co_name in ("cross_entropy", "nll_loss"):
            logits, wanted = (list(getattr(frame.f_locals[name], "shape", ())) for name in ("input", "target"))
            got = f"PyTorch's loss was given logits {logits} and targets {wanted}"
            expect(
                (len(logits), len(wanted)) == (2, 1),
                f"{got}, and wants all positions in one row, [positions, vocab_size] and [positions]: `flatten` both.",
            )
            expect(
                logits[1] == vocab_size,
                f"{got}. A position's {vocab_size} logits stay side by side: `flatten(0, 1)` joins the two axes before "
                "them, and no others.",
            )
            expect(logits[0] == wanted[0], f"{got}. {hint}")


def _expect_no_wrong_way(table: Tensor, first: nn.Module, batches: list) -> None:
    """Compare weights after the first epoch with those of the known mistakes.

    Raises:
        Wrong: they are the same.
    """
    pairs = [(hint, way | other) for hint, way in _WRONG_WAYS.items() for other in _WRONG_WAYS.values()]
    for hint, way in [*_WRONG_WAYS.items(), *pairs]:  # alone, or two at once
        other = copy.deepcopy(first)
        _epoch(other, batches, **way)
        expect(not close(table, other.table.weight, 1e-5), hint)
    expect(not close(table, first.table.weight), "no weight has changed: `backward`, then `optimizer.step()`.")


@exercise("my_training")
def blank_page(my_training: Callable[..., Any]) -> str:
    """``my_training(model, train_batches, val_batches, optimizer, schedule, epochs, pad_id)``: both losses an epoch.

    The model ends with the weights of the best epoch.
    """
    torch.manual_seed(16)
    first, epochs = Bilinear(), 4
    nn.init.normal_(first.table.weight, std=0.1)
    nn.init.normal_(first.source.weight, std=0.1)
    train, val = _batches((2, 6), (5, 4), (3, 7)), _batches((4, 7), (1, 4), src_len=4)
    for _, tgt in train:
        tgt[tgt == 8] = 7
    val[0][1][1:, 1:4] = 8  # which is never wanted in training, so that the first epoch is the best
    model, right = copy.deepcopy(first), copy.deepcopy(first)
    optimizer = SGD(model.parameters(), lr=0.5)
    schedule = LambdaLR(optimizer, _share)
    found = _trained(my_training, model.eval(), train, val, optimizer, schedule, epochs, 1)
    tables, losses, unshifted = [], [], []
    for epoch in range(epochs):
        trained = _epoch(right, train, taken=epoch * len(train))
        losses.append((trained, [(loss.item(), tokens) for loss, tokens in _losses(right, val)]))
        unshifted.append(_mean([(loss.item(), tokens) for loss, tokens in _losses(right, val, shifts=False)]))
        tables.append(right.table.weight.detach().clone())

    training, validation = ([one for one in model.calls if one.src_len == length] for length in (3, 4))
    learning = [one for one in training if one.learns]
    expect(learning, "the model never gets a training batch.")
    expect(validation, "nobody measures: after each epoch, the loss of `val_batches`.")
    expect(learning[0].training, "the model is not in training mode, in which dropout is on.")
    expect(
        all(one.training for one in learning),
        "validation leaves the model in evaluation mode, and in the second epoch dropout is still off: `model.train()` "
        "at the beginning of each.",
    )
    expect(not any(one.training for one in validation), "dropout is on in validation: `model.eval()` before it.")
    expect(
        not any(one.learns for one in validation),
        "validation keeps all that a `backward` would need. `torch.no_grad()` saves that memory and time.",
    )
    _expect_no_wrong_way(validation[0].table, first, train)
    expect(
        len(learning) == epochs * len(train),
        f"{epochs} epochs have {epochs * len(train)} training batches; the model learned from {len(learning)}.",
    )
    expect(
        schedule.last_epoch == epochs * len(train),
        f"the schedule has taken {schedule.last_epoch} steps in {epochs * len(train)} batches: one after each.",
    )
    expect_tensor(validation[0].table, tables[0], "after an epoch, the weights are others than gradient descent's.")

    found = as_list(found)
    expect(
        isinstance(found, list | tuple) and len(found) == 2,
        "two lists were expected: the training losses and the validation losses.",
    )
    for name, numbers, of_epochs in zip(("training", "validation"), found, zip(*losses, strict=True), strict=True):
        numbers = as_list(numbers)
        expect(
            isinstance(numbers, list | tuple) and len(numbers) == epochs,
            f"the {name} losses: a list of {epochs} numbers was expected, one an epoch.",
        )
        expect(
            name != "validation" or not _near(as_number(numbers[0]), unshifted[0]),
            "the validation loss asks for the token that is given: shift the target there, too.",
        )
        for number, of_batches in zip(numbers, of_epochs, strict=True):
            found_loss, by_batch = as_number(number), sum(loss for loss, _ in of_batches) / len(of_batches)
            expect(
                abs(found_loss - by_batch) > 1e-4,
                f"the {name} loss is a mean over batches, in which a small batch weighs as much as a large one. Take "
                "it over tokens.",
            )
            expect_number(found_loss, _mean(of_batches), f"the {name} loss is no mean over all real tokens.")
    best = min(range(epochs), key=lambda epoch: _mean(losses[epoch][1]))
    expect(
        not close(model.table.weight, tables[-1]),
        f"the model ends with the weights of the last epoch; epoch {best + 1} was the best. (`model.state_dict()` "
        "alone is no copy: it goes on changing.)",
    )
    expect_tensor(model.table.weight, tables[best], f"the model should end with the weights of epoch {best + 1}.")
    _expect_no_graph_kept(model)
    _expect_any_padding(my_training, first)
    return _learn_by_heart(my_training)


def _expect_any_padding(my_training: Callable[..., Any], first: Bilinear) -> None:
    """Raise ``Wrong`` unless a training, which is right with 1 for padding, is so with another id."""
    train, val = _batches((3, 6), (2, 5), pad_id=5), _batches((2, 7), src_len=4, pad_id=5)
    model, right = copy.deepcopy(first), copy.deepcopy(first)
    optimizer = SGD(model.parameters(), lr=0.5)
    found = _trained(my_training, model, train, val, optimizer, LambdaLR(optimizer, _share), 1, 5)
    train_loss = _mean(_epoch(right, train, ignored=5))
    val_loss = _mean([(loss.item(), tokens) for loss, tokens in _losses(right, val, ignored=5)])
    for number, expected in zip(as_list(found), (train_loss, val_loss), strict=True):
        expect_number(as_list(number)[0], expected, ANY_PADDING)


def _learn_by_heart(my_training: Callable[..., Any]) -> str:
    """Train a small Transformer with a loop that is right, and say what it says."""
    pairs = load_corpus("sample")["train"][:8]
    german, english = WordTokenizer("de"), WordTokenizer("en")
    dataset = make_dataset(pairs, german, english)
    build_vocabularies(dataset, min_freq=1)
    sizes = {"d_model": 64, "num_heads": 4, "d_ff": 64, "num_layers": 1, "dropout": 0.0}
    model = Transformer(TransformerConfig.preset("small", len(german.vocab), len(english.vocab), **sizes))
    optimizer, batches = Adam(model.parameters(), lr=8e-3), BucketBatches(dataset, batch_size=4)
    schedule = LambdaLR(optimizer, lambda taken: min(1.0, (taken + 1) / 10))
    _, losses = my_training(model, batches, batches, optimizer, schedule, 20, english.pad_id)
    said = Translator(model.eval(), german, english)(pairs[0].src)
    return (
        "every weight is where a loop by hand puts it. With yours, a small Transformer has learned eight sentences, "
        f"loss {losses[0]:.2f} at first and {min(losses):.2f} at last. Asked for “{pairs[0].src}”, it says: “{said}”"
    )


FAULTS = {
    "kept gradients": "those of earlier batches are never set to zero",
    "no clipping": "a gradient is used however long it is",
    "no dropout": "the model learns in evaluation mode",
    "mean over batches": "the loss that is returned weighs small batches like large ones",
    "slow schedule": "the learning rate moves once an epoch, not once a batch",
}

_SIGNS = {
    "kept gradients": "the second of two batches would end in other weights even at a constant learning rate",
    "no clipping": "a single batch with a long gradient would end in other weights",
    "no dropout": "a model without dropout, as here, would end in the same weights",
    "mean over batches": "all weights would be right, and only the number that is returned would not",
}


def patient(
    model: nn.Module,
    batches: Iterable,
    optimizer: Optimizer,
    schedule: Any,
    pad_id: int,
    label_smoothing: float = 0.0,
    half: bool = False,
) -> float:
    """Train for an epoch, as somebody brings it to the clinic."""
    standing = SimpleNamespace(step=lambda: None)
    own = course.own("train_one_epoch")
    loss = own(model, batches, optimizer, standing, pad_id, label_smoothing, half)
    schedule.step()  # expected: after each batch
    return loss


@exercise("06.7")
def diagnosis(fault: str) -> str:
    """``fault``: the name of the patient's in ``FAULTS``."""
    diagnose(fault, "slow schedule", FAULTS, _SIGNS)
    return (
        "`schedule.step()` stands outside the loop over the batches. With a single batch, an epoch is a step, so the "
        "test of eight sentences cannot see it."
    )
