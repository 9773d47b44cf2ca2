"""Answers to the exercises of notebook 06: target, loss, learning rate, loop, when to stop, and the other direction."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from exercise_answers import worked
from torch.optim.lr_scheduler import LambdaLR

from transformer_lib.data.corpora import load_corpus

course = worked.notebook("06")


def shift(before=lambda ids, sos, eos: [sos, *ids], after=lambda ids, sos, eos: [*ids, eos], end=()):
    def cut(sentences, sos_id, eos_id, pad_id):
        length = max(map(len, sentences)) + 1

        def padded(frame, last):
            rows = [frame(ids, sos_id, eos_id) for ids in sentences]
            return torch.tensor([row + [pad_id] * (length - len(row) - len(last)) + list(last) for row in rows])

        return padded(before, ()), padded(after, end)

    return cut


def eos_behind_padding(sentences, sos_id, eos_id, pad_id):
    return shift(after=lambda ids, sos, eos: list(ids), end=[eos_id])(sentences, sos_id, eos_id, pad_id)


def two_slices(sentences, sos_id, eos_id, pad_id):
    length = max(map(len, sentences)) + 2
    tgt = [[sos_id, *ids, eos_id, *[pad_id] * (length - 2 - len(ids))] for ids in sentences]
    return [row[:-1] for row in tgt], [row[1:] for row in tgt]  # lists, and a short sentence is given <eos>


def inserting(sentences, sos_id, eos_id, pad_id):
    given, wanted = shift()(sentences, sos_id, eos_id, pad_id)
    for ids in sentences:
        ids.insert(0, sos_id)
    return torch.stack([given, wanted]).int()


def smoothed(mix=lambda wanted, everything, ε, V: (1 - ε) * wanted + ε / V * everything, mean=torch.Tensor.mean):
    def loss(logits, targets, pad_id, smoothing):
        surprise = -logits.log_softmax(-1)
        real = targets != pad_id
        wanted = surprise.gather(-1, targets[..., None])[..., 0][real]
        return mean(mix(wanted, surprise.sum(-1)[real], smoothing, logits.shape[-1]))

    return loss


def by_torch(logits, targets, pad_id, smoothing):
    flat, options = logits.flatten(0, 1), {"ignore_index": pad_id, "label_smoothing": smoothing}
    return F.cross_entropy(flat, targets.flatten(), **options)


def filling_in_place(logits, targets, pad_id, smoothing):
    real = targets != pad_id
    targets[~real] = 0
    surprise = -logits.log_softmax(-1)
    wanted = surprise.gather(-1, targets[..., None])[..., 0]
    each = (1 - smoothing) * wanted + smoothing * surprise.mean(-1)
    return (each * real).sum() / real.sum()


def counting_padding(logits, targets, pad_id, smoothing):
    return smoothed()(logits, targets, -100, smoothing)


def divided_by_all(logits, targets, pad_id, smoothing):
    return smoothed(mean=torch.Tensor.sum)(logits, targets, pad_id, smoothing) / targets.numel()


def mean_of_means(logits, targets, pad_id, smoothing):
    pairs = zip(logits.split(1), targets.split(1), strict=True)
    return torch.stack([by_torch(*pair, pad_id, smoothing) for pair in pairs]).mean()


def nothing_for_padding(logits, targets, pad_id, smoothing):
    surprise, types = -logits.log_softmax(-1), logits.shape[-1]
    share = torch.full_like(surprise, smoothing / (types - 1))
    share[..., pad_id] = 0
    share += (1 - smoothing) * F.one_hot(targets, types)
    return (share * surprise).sum(-1)[targets != pad_id].mean()


def target_on_the_cpu(logits, targets, pad_id, smoothing):
    target = torch.full(logits.shape, smoothing / logits.shape[-1])
    target = target + (1 - smoothing) * F.one_hot(targets, logits.shape[-1])
    real = targets != pad_id
    return ((target * -logits.log_softmax(-1)).sum(-1) * real).sum() / real.sum()


def summed_on_the_cpu(logits, targets, pad_id, label_smoothing=0.0):
    losses = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=pad_id, label_smoothing=label_smoothing, reduction="none"
    )
    total = torch.zeros(1) + losses.sum()
    return total / (targets != pad_id).sum()


def unsafe(logits, targets, pad_id, smoothing):
    safe = (logits.softmax(-1)).log()
    real = targets != pad_id
    wanted = safe.gather(-1, targets[..., None])[..., 0][real]
    return -((1 - smoothing) * wanted + smoothing * safe.mean(-1)[real]).mean()


def schedule(first=1, floor=0, better=min, base=lambda optimizer: optimizer.param_groups[0]["lr"], size=-0.5):
    def make(optimizer, d_model, warmup_steps):
        rate = base(optimizer)

        def factor(taken):
            step = max(taken + first, floor)
            return d_model**size * better(step**-0.5, step * warmup_steps**-1.5) / rate

        return LambdaLR(optimizer, factor)

    return make


class ByHand:
    """A schedule that is no ``LambdaLR``."""

    def __init__(self, optimizer, d_model, warmup_steps):
        self.taken, self.optimizer, self.sizes = 0, optimizer, (d_model, warmup_steps)
        self.step()

    def step(self):
        self.taken += 1
        d_model, warmup_steps = self.sizes
        for group in self.optimizer.param_groups:
            group["lr"] = d_model**-0.5 * min(self.taken**-0.5, self.taken * warmup_steps**-1.5)


def from_zero(optimizer, d_model, warmup_steps):
    rate = optimizer.param_groups[0]["lr"]
    return LambdaLR(optimizer, lambda t: t and d_model**-0.5 * min(t**-0.5, t * warmup_steps**-1.5) / rate)


def doubled_ramp(optimizer, d_model, warmup_steps):
    return LambdaLR(optimizer, lambda taken: taken / warmup_steps)


def stop(late=0, never=False, ties=False):
    def early(val_losses, patience):
        best = 1
        for epoch, loss in enumerate(val_losses, start=1):
            if loss < val_losses[best - 1] or (ties and loss == val_losses[best - 1]):
                best = epoch
            elif epoch - best == patience + late and not never:
                return best, epoch
        return best, len(val_losses)

    return early


def since_the_epoch_before(val_losses, patience):
    bad = 0
    for epoch in range(2, len(val_losses) + 1):
        bad = bad + 1 if val_losses[epoch - 1] >= val_losses[epoch - 2] else 0
        if bad == patience:
            break
    return val_losses.index(min(val_losses[:epoch])) + 1, epoch


def memory(side):
    """Return a translator that has learned the test split by heart."""
    return {pair.src: pair[side] for pair in load_corpus("sample", src="en", tgt="de")["test"]}


def by_heart(sentences):
    return [memory(1)[sentence].lower() for sentence in sentences]


def half_of_it(sentences):
    return [" ".join(text.split()[::2]) for text in by_heart(sentences)]


LN_2 = math.log(2)


def by_hand(logits, targets, pad_id, label_smoothing=0.0):
    surprise, real = -logits.log_softmax(-1), targets != pad_id
    wanted = surprise.gather(-1, targets.unsqueeze(-1)).squeeze(-1)[real]
    return ((1 - label_smoothing) * wanted + label_smoothing * surprise.mean(-1)[real]).mean()


def entropy(prepare=lambda logits: logits, ignored=lambda pad_id: pad_id, **options):
    def loss(logits, targets, pad_id, label_smoothing=0.0):
        smoothing = options.get("label_smoothing", label_smoothing)
        how = {"ignore_index": ignored(pad_id), "reduction": options.get("reduction", "mean")}
        return F.cross_entropy(prepare(logits).transpose(1, 2), targets, label_smoothing=smoothing, **how)

    return loss


def not_flat(logits, targets, pad_id, label_smoothing=0.0):
    return F.cross_entropy(logits, targets, ignore_index=pad_id, label_smoothing=label_smoothing)


def sentence_by_sentence(logits, targets, pad_id, label_smoothing=0.0):
    pairs = zip(logits, targets, strict=True)
    return torch.stack([course.token_loss(x[None], y[None], pad_id, label_smoothing) for x, y in pairs]).mean()


def shifted(tgt):
    return tgt[:, :-1], tgt[:, 1:]


def unshifted(tgt):
    return tgt[:, :-1], tgt[:, :-1]


def whole(tgt):
    return tgt, tgt


def backwards(tgt):
    return tgt[:, 1:], tgt[:, :-1]


def loop(
    leave_out=(),
    order=(),
    split=shifted,
    mode=True,
    by_batch=False,
    sign=1,
    smooth=lambda share: share,
    low=lambda half: half,
    loss_of=course.token_loss,
    returned=lambda loss: loss,
):
    def epoch(model, batches, optimizer, schedule, pad_id, label_smoothing=0.0, half=False):
        if mode is not None:
            model.train(mode)
        losses, counts = [], []
        for src, tgt in batches:
            given, wanted = split(tgt)
            with torch.autocast(src.device.type, torch.bfloat16, enabled=low(half)):
                logits = model(src, given)
            loss = loss_of(logits.float(), wanted, pad_id, smooth(label_smoothing))
            steps = {
                "zero_grad": optimizer.zero_grad,
                "backward": (sign * loss).backward,
                "clip": lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1),
                "step": optimizer.step,
                "schedule": schedule.step,
            }
            for name in order or steps:
                if name not in leave_out:
                    steps[name]()
            losses.append(loss.item())
            counts.append(1 if by_batch else (wanted != pad_id).sum().item())
        return returned(sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts))

    return epoch


def nothing_is_called(model, batches, optimizer, schedule, pad_id):
    return 1.0


BEFORE_THE_OPTIMISER = ["zero_grad", "backward", "clip", "schedule", "step"]


def measure(model, batches, pad_id, by_batch=False, split=shifted, ignored=None):
    losses, counts = [], []
    for src, tgt in batches:
        given, wanted = split(tgt)
        loss = course.token_loss(model(src, given), wanted, pad_id if ignored is None else ignored)
        losses.append(loss.item())
        counts.append(1 if by_batch else (wanted != pad_id).sum().item())
    return sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)


def training(
    shuffles=False,
    trains=True,
    evals=True,
    grads=False,
    keep=copy.deepcopy,
    restore=True,
    by_epoch=False,
    epochs_more=0,
    validates=True,
    better=lambda loss, best: loss < best,
    measures=None,
    returned=lambda train_losses, val_losses: (train_losses, val_losses),
    **how,
):
    """Return a whole training, right or with mistakes; ``how`` are those of its loop."""

    def whole(model, train_batches, val_batches, optimizer, schedule, epochs, pad_id):
        train_losses, val_losses, best, weights = [], [], math.inf, None
        leave_out = [*how.get("leave_out", ()), *(["schedule"] if by_epoch else [])]
        epoch_of = loop(**{**how, "leave_out": leave_out, "mode": None})
        for epoch in range(epochs + epochs_more):
            if shuffles:
                train_batches.set_epoch(epoch)
            if trains is True or (trains == "once" and not epoch):
                model.train()
            train_losses.append(epoch_of(model, train_batches, optimizer, schedule, pad_id))
            if by_epoch:
                schedule.step()
            if not validates:
                continue
            if evals:
                model.eval()
            with torch.set_grad_enabled(grads):
                val_losses.append(measure(model, val_batches, pad_id, **(measures or {})))
            if better(val_losses[-1], best):
                best, weights = val_losses[-1], keep(model.state_dict())
        if restore and weights:
            model.load_state_dict(weights)
        return returned(train_losses, val_losses)

    return whole


def with_a_deque(model, train_batches, val_batches, optimizer, schedule, epochs, pad_id):
    """Keep the weights of all epochs, return arrays, and leave the gradients' zeros for the end of the step."""
    kept, losses = [], []
    for _ in range(epochs):
        model.train()
        loss = loop(order=["backward", "clip", "step", "schedule", "zero_grad"])(
            model, train_batches, optimizer, schedule, pad_id
        )
        model.eval()
        with torch.inference_mode():
            losses.append((loss, measure(model, val_batches, pad_id)))
        kept.append({name: weight.clone() for name, weight in model.state_dict().items()})
    model.load_state_dict(kept[int(np.argmin([val_loss for _, val_loss in losses]))])
    return np.array(losses).T


def training_that_is_not_flat(model, train_batches, *rest):
    for src, tgt in train_batches:
        F.cross_entropy(model(src, tgt[:, :-1]), tgt[:, 1:])


def with_named_batches(model, batches, *rest):
    for batch in batches:
        assert batch.src is batch[0] and batch.tgt is batch[1]
    return course.train_one_epoch(model, batches, *rest)


def unsmoothed_number(logits, targets, pad_id, label_smoothing):
    smoothed, plain = (course.token_loss(logits, targets, pad_id, share) for share in (label_smoothing, 0.0))
    return smoothed + (plain - smoothed).detach()  # the gradient of the one, the value of the other


RIGHT = {
    "token_loss": [(course.token_loss,), (by_hand,), (entropy(),)],
    "train_one_epoch": [(course.train_one_epoch,), (loop(),), (loop(returned=np.float64),), (with_named_batches,)],
    "my_training": [
        (course.my_training,),
        (training(),),
        (training(shuffles=True),),
        (training(returned=lambda *losses: [torch.tensor(one) for one in losses]),),
        (training(returned=lambda *losses: torch.tensor(losses)),),
        (with_a_deque,),
    ],
    "06.7": [("slow schedule",), (" Slow schedule ",)],
    "06.1": [
        (shift(),),
        (two_slices,),
        (inserting,),
        (lambda *given: (np.array(ids) for ids in two_slices(*given)),),
    ],
    "06.2": [
        (2 * LN_2, 4, 8),
        (1.386, 4.0, 8.0),
        (np.float32(2 * LN_2), torch.tensor(4.0), np.float32(8)),
    ],
    "06.3": [
        (smoothed(),),
        (by_torch,),
        (lambda logits, *rest: by_torch(logits.double(), *rest)[None],),
    ],
    "06.4": [(schedule(),), (ByHand,)],
    "06.5": [(stop(),), (lambda *given: list(stop()(*given)),), (lambda *given: torch.tensor(stop()(*given)),)],
    "06.6": [
        (by_heart,),
        (lambda sentences: tuple(by_heart(sentences)),),
        (lambda sentences: map(str, by_heart(sentences)),),
    ],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "token_loss": [
        (entropy(ignored=lambda pad_id: -100), "what to ignore"),
        (entropy(prepare=lambda logits: logits.softmax(-1)), "takes logits"),
        (entropy(reduction="sum"), "is the sum"),
        (sentence_by_sentence, "each *token*"),
        (entropy(label_smoothing=0.0), "does not arrive"),
        (entropy(prepare=lambda logits: -logits), "-log of the wanted"),
        (entropy(reduction="none"), "one number"),
        (not_flat, "in one row"),
        (lambda logits, targets, *rest: F.cross_entropy(logits.flatten(0, 1), targets), "in one row"),
        (lambda logits, targets, *rest: F.cross_entropy(logits.flatten(1), targets.flatten()), "`flatten(0, 1)` joins"),
        (lambda logits, targets, *rest: F.cross_entropy(logits.flatten(1).T, targets.flatten()), "stay side by side"),
        (lambda logits, *rest: course.token_loss(logits[:, 1:], *rest), "both come in shifted"),
        (lambda logits, targets, *rest: logits.gather(-1, targets), "stopped with"),
        (summed_on_the_cpu, "device=logits.device"),
    ],
    "train_one_epoch": [
        (loop(leave_out=["zero_grad"]), "zero_grad"),
        (loop(leave_out=["clip"]), "clipped"),
        (loop(split=unshifted), "shift the target"),
        (loop(split=whole), "without a shift"),
        (loop(split=backwards), "the wrong way"),
        (loop(split=lambda tgt: (tgt, tgt[:, 1:])), "without a shift"),
        (loop(split=lambda tgt: (tgt[:, :-1], tgt)), "but the *first*"),
        (loop(split=lambda tgt: (tgt[:, :-1], 1 / 0)), "ZeroDivisionError"),
        (loop(leave_out=["backward"]), "no weight has changed"),
        (loop(leave_out=["schedule"]), "step after each batch"),
        (loop(sign=-1), "gradient descent's"),
        (loop(mode=False), "training mode"),
        (loop(by_batch=True), "over all *tokens*"),
        (loop(returned=torch.tensor), "no picture can draw"),
        (loop(smooth=lambda share: 0.0), "`label_smoothing` makes no difference"),
        (loop(smooth=lambda share: 2 * share), "other weights were expected"),
        (loop(loss_of=unsmoothed_number), "smoothed or not"),
        (loop(low=lambda half: False), "`torch.autocast`"),
        (loop(low=lambda half: True), "and only then"),
        (loop(leave_out=["backward", "clip"], returned=lambda loss: "low"), "a number was expected"),
        (nothing_is_called, "never called"),
        (loop(order=BEFORE_THE_OPTIMISER), "before the optimiser does"),
    ],
    "my_training": [
        (training(leave_out=["zero_grad"]), "zero_grad"),
        (training(leave_out=["clip"]), "clipped"),
        (training(split=unshifted), "shift the target"),
        (training(split=whole), "without a shift"),
        (training(split=backwards), "the wrong way"),
        (training(split=lambda tgt: (tgt[:, :-1], tgt)), "but the *first*"),
        (training_that_is_not_flat, "in one row"),
        (training(leave_out=["backward"]), "no weight has changed"),
        (training(order=["backward", "zero_grad", "clip", "step", "schedule"]), "no weight has changed"),
        (training(order=BEFORE_THE_OPTIMISER), "before the optimiser does"),
        (training(by_epoch=True), "has taken 4 steps in 12 batches"),
        (training(leave_out=["schedule"]), "has taken 0 steps in 12 batches"),
        (training(sign=-1), "others than gradient descent's"),
        (training(trains=False), "not in training mode"),
        (training(trains="once"), "at the beginning of each"),
        (training(evals=False), "dropout is on in validation"),
        (training(grads=True), "`torch.no_grad()`"),
        (training(validates=False), "nobody measures"),
        (training(epochs_more=-1), "4 epochs have 12"),
        (training(restore=False), "the weights of the last epoch"),
        (training(keep=lambda weights: weights), "is no copy"),
        (training(better=lambda loss, best: True), "the weights of the last epoch"),
        (training(by_batch=True), "the training loss is a mean over batches"),
        (training(measures={"by_batch": True}), "the validation loss is a mean over batches"),
        (training(measures={"ignored": -100}), "the validation loss is no mean"),
        (training(measures={"split": unshifted}), "the validation loss asks for"),
        (training(measures={"split": backwards}), "the wrong way"),
        (training(returned=lambda train_losses, val_losses: val_losses), "two lists"),
        (training(returned=lambda train_losses, val_losses: (train_losses, val_losses[-1])), "one an epoch"),
        (training(returned=lambda train_losses, val_losses: (val_losses, train_losses)), "the training loss is"),
        (
            training(keep=lambda weights: {name: weight / 2 for name, weight in weights.items()}),
            "the weights of epoch 1",
        ),
        (lambda *given: ([1.0] * 4, [1.0] * 4), "never gets a training batch"),
    ],
    "06.7": [
        ("kept gradients", "constant learning rate"),
        ("no clipping", "a long gradient"),
        ("no dropout", "without dropout"),
        ("mean over batches", "only the number"),
        ("no shift", "not on the list"),
        (7, "the name of a fault"),
    ],
    "06.1": [
        (shift(before=lambda ids, sos, eos: [*ids, eos], after=lambda ids, sos, eos: [sos, *ids]), "exchanged them"),
        (shift(before=lambda ids, sos, eos: [*ids, eos]), "the same"),
        (shift(after=lambda ids, sos, eos: [sos, *ids]), "the same"),
        (shift(before=lambda ids, sos, eos: list(ids)), "begins with `<sos>`"),
        (shift(after=lambda ids, sos, eos: list(ids)), "exactly one"),
        (eos_behind_padding, "right after the last word"),
        (shift(after=lambda ids, sos, eos: [*ids[1:], eos]), "the words, `<eos>`"),
        (shift(before=lambda ids, sos, eos: [sos, *reversed(ids)]), "one place later"),
        (lambda sentences, *ids: torch.zeros(3, 4), "two tensors"),
        (lambda sentences, *ids: (torch.zeros(3, 5), torch.zeros(3, 5)), "the shape"),
        (lambda sentences, *ids: (sentences, sentences), "rows of one length"),
        (lambda *given: shift()(*given)[0], "two tensors"),
        (lambda *given: torch.tensor(1), "another form than the exercise asks for"),
        (lambda *given: [ids[:, :-1] for ids in shift()(*given)], "the shape"),
        (shift(after=lambda ids, sos, eos: [*ids, sos]), "`<sos>`"),
        (lambda sentences, sos, eos: sentences, "stopped with TypeError"),
    ],
    "06.2": [
        ((2.0, 4, 8), "bits"),
        ((7.77, 4, 8), "the mean of them"),
        ((8 * LN_2, 4, 8), "the sum"),
        ((14 / 5 * LN_2, 4, 8), "neither in the sum"),
        ((8 / 5 * LN_2, 4, 8), "number of tokens either"),
        ((4 / 3 * LN_2, 4, 8), "`<eos>` is wanted"),
        ((1.114, 4, 8), "logarithm of each"),
        ((-1.386, 4, 8), "at most 1"),
        ((1.386, 6, 8), "mean of 4, 2, 2, 16"),
        ((1.386, 4, 64), "whole number"),
        ((1.386, 2.614, 8), "powers of e"),
        (("ln 4", 4, 8), "a number was expected"),
        ((np.float32(2), 4, 8), "bits"),
        ((1.386, 4, 13.5), "mean of 4, 32, 2, 16"),
        ((1.386, 4, 4), "perplexity_after"),
        ((1.386, [4], 8), "a number was expected"),
    ],
    "06.3": [
        (filling_in_place, "changes in place"),
        (smoothed(mix=lambda wanted, everything, ε, V: wanted), "no smoothing"),
        (counting_padding, "padding counts"),
        (divided_by_all, "divided by all positions"),
        (smoothed(mean=torch.Tensor.sum), "sum over tokens"),
        (mean_of_means, "first the mean of each sentence"),
        (smoothed(mix=lambda wanted, all_, ε, V: (1 - ε) * wanted + ε * all_), "take its mean"),
        (smoothed(mix=lambda w, all_, ε, V: (1 - ε) * w + ε / (V - 1) * (all_ - w)), "but the wanted one"),
        (nothing_for_padding, "but `<pad>`"),
        (smoothed(mix=lambda wanted, all_, ε, V: wanted + ε / V * all_), "taken from somewhere"),
        (smoothed(mix=lambda wanted, all_, ε, V: ε * wanted + (1 - ε) / V * all_), "exchanged ε"),
        (smoothed(mean=lambda x: -x.mean()), "the sign"),
        (smoothed(mean=lambda x: x), "one number was expected"),
        (unsafe, "`log_softmax` is safe"),
        (target_on_the_cpu, "device=logits.device"),
        (lambda *arguments: by_torch(*arguments).detach(), "no gradient"),
        (lambda *arguments: by_torch(*arguments).item(), "a tensor was expected"),
        (lambda logits, targets, pad_id, smoothing: by_torch(logits, targets, 1, smoothing), "padding counts"),
        (lambda *arguments: by_torch(*arguments)[None].expand(2), "one number was expected"),
        (lambda *arguments: by_torch(*arguments) * math.nan, "there is nan"),
    ],
    "06.4": [
        (schedule(base=lambda optimizer: 1.0), "multiplies the rate"),
        (schedule(first=0), "stopped with ZeroDivisionError"),
        (from_zero, "one step late"),
        (schedule(first=0, floor=1), "one step late"),
        (schedule(first=2), "one step ahead"),
        (schedule(better=max), "*smaller* one"),
        (schedule(size=0), "d_model^-0.5"),
        (schedule(base=lambda optimizer: 1 / optimizer.param_groups[0]["lr"]), "the optimiser's own rate"),
        (schedule(base=lambda optimizer: 1.0, better=max), "*smaller* one"),
        (lambda optimizer, d_model, warmup_steps: 1e-3, "a method `step`"),
        (lambda optimizer, d_model, warmup_steps: LambdaLR(optimizer, lambda taken: 1.0), "step 1 has the rate"),
        (doubled_ramp, "step 1 has the rate"),
        (lambda optimizer, d_model, warmup_steps: LambdaLR(optimizer, lambda taken: 0.0), "step 1 has the rate"),
        (lambda optimizer, d_model, warmup_steps: optimizer, "step 1 has the rate"),
    ],
    "06.5": [
        (lambda losses, patience: stop()(losses, patience)[::-1], "exchanged the two"),
        (lambda losses, patience: tuple(n - 1 for n in stop()(losses, patience)), "Python counts from 0"),
        (lambda losses, patience: (stop()(losses, patience)[0] - 1, stop()(losses, patience)[1]), "counts from 0"),
        (stop(late=1), "one epoch too late"),
        (stop(late=-1), "you stop after epoch 4, expected 5"),
        (stop(never=True), "go on to the end"),
        (
            lambda losses, patience: (losses.index(min(losses)) + 1, stop()(losses, patience)[1]),
            "has stopped before it",
        ),
        (stop(ties=True), "only equals the best"),
        (since_the_epoch_before, "the epoch before"),
        (lambda losses, patience: (stop()(losses, patience)[1],) * 2, "the first with the lowest"),
        (lambda losses, patience: stop()(losses, patience)[0], "two numbers were expected"),
    ],
    "06.6": [
        (lambda sentences: list(sentences), "is English"),
        (lambda sentences: ["der mann schläft ."] * len(sentences), "again and again"),
        (half_of_it, "expected 60 or more"),
        (lambda sentences: " ".join(by_heart(sentences)), "a list of 100 strings"),
        (lambda sentences: by_heart(sentences)[:3], "a list of 100 strings"),
        (lambda sentences: [""] * len(sentences), "empty"),
    ],
}
