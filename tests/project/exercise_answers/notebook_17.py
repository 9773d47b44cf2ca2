"""Answers to the exercises of notebook 17: the padding test, and the names of eleven faults."""

import torch


def padded(ids, pad_id, columns=5, in_front=False):
    extra = torch.full((ids.shape[0], columns), pad_id)
    return torch.cat([extra, ids] if in_front else [ids, extra], dim=1)


def padding_test(loss, src, tgt, pad_id):
    before = loss(src, tgt)
    return loss(padded(src, pad_id), tgt) - before, loss(src, padded(tgt, pad_id)) - before


def by_absolute_value(loss, src, tgt, pad_id):
    return [abs(change.item()) for change in padding_test(loss, src, tgt, pad_id)]


def exchanged(loss, src, tgt, pad_id):
    return padding_test(loss, src, tgt, pad_id)[::-1]


def losses(loss, src, tgt, pad_id):
    return loss(padded(src, pad_id), tgt), loss(src, padded(tgt, pad_id))


def one_after_the_other(loss, src, tgt, pad_id):
    before, src = loss(src, tgt), padded(src, pad_id)
    return loss(src, tgt) - before, loss(src, padded(tgt, pad_id)) - before


def always_one(loss, src, tgt, pad_id):
    return padding_test(loss, src, tgt, 1)


def in_front(loss, src, tgt, pad_id):
    before = loss(src, tgt)
    changed = loss(padded(src, pad_id, in_front=True), tgt), loss(src, padded(tgt, pad_id, in_front=True))
    return [after - before for after in changed]


RIGHT = {
    "17.1": [(padding_test,), (by_absolute_value,)],
    "17.2": [("leak", "no shift", "padding in the loss"), ("Leak", " no shift ", "Padding in the loss")],
    "17.3": [("mask upside down", "positions along the batch", "heads without transpose")],
    "17.4": [("one norm", "no root of d_model")],
    "17.5": [("no eval", "hasty beam")],
    "17.6": [("no transpose back",)],
}
WRONG = {  # answers that people give, and what the hint must speak of
    "17.1": [
        (exchanged, "exchanged source and target"),
        (losses, "their *change*"),
        (one_after_the_other, "both sides at once"),
        (always_one, "it need not be 1"),
        (in_front, "at the end"),
        (lambda loss, src, tgt, pad_id: 0.0, "two numbers"),
        (lambda loss, src, tgt, pad_id: (0.0, 0.0), "source's padding: with five columns"),
    ],
    "17.2": [
        (("no shift", "leak", "padding in the loss"), "patient 1: with 'no shift', what is wanted would begin with"),
        (("no causal mask", "no shift", "padding in the loss"), "every answer, even the first"),
        (("leak", "leak", "padding in the loss"), "patient 2: with 'leak', the answers of one or two positions"),
        (("leak", "no shift", "mask upside down"), "patient 3: with 'mask upside down', neither a neighbour's source"),
        (("leak", "no shift", "no source mask"), "patient 3: with 'no source mask', more padding on the source's"),
        (("leak", "shift", "padding in the loss"), "patient 2: 'shift' is not on the list"),
        ((1, 2, 3), "the name of a fault was expected"),
    ],
    "17.3": [
        (("no source mask", "positions along the batch", "heads without transpose"), "patient 4"),
        (("mask upside down", "no positions", "heads without transpose"), "and company none"),
        (("positions along the batch", "mask upside down", "heads without transpose"), "other answers alone"),
        (("mask upside down", "heads without transpose", "positions along the batch"), "padding on either side"),
        (("mask upside down", "positions along the batch", "padding in the loss"), "patient 6"),
    ],
    "17.4": [
        (("no root of d_model", "one norm"), "patient 7: with 'no root of d_model', the loss of the untrained"),
        (("one norm", "one norm"), "fewer parameters than the formula says"),
        (("one norm", "learning rate"), "the untrained model would be in order"),
    ],
    "17.5": [
        (("hasty beam", "no eval"), "the same each time"),
        (("no eval", "no eval"), "patient 10: with 'no eval', the same sentence"),
        (("no eval", "no length penalty"), "less probable to the model than the greedy one"),
    ],
    "17.6": [
        (("no causal mask",), "padding would change nothing"),
        (("leak",), "the answers of one or two positions"),
        (("heads without transpose",), "no answer would feel a later word"),
        (("padding in the loss",), "on the source's side it would not"),
    ],
}
