"""The figures of notebook 06: training."""

from collections.abc import Sequence

from drawings.kit import BODY, INK, KINDS, SEEN, Box, Figure

TOKEN_WIDTH = 52  # of a cell with a token
TOKEN_HEIGHT = 26


def _token(figure: Figure, x: float, bottom: float, token: str, kind: str = "data") -> Box:
    """Draw a cell with a token in it."""
    cell = Box(x, bottom, TOKEN_WIDTH, TOKEN_HEIGHT)
    figure.frame(cell, *KINDS[kind], radius=4)
    figure.text(x, cell.middle, token, "middle", code=True, colour=INK)
    return cell


def target_shift() -> Figure:
    """Draw how decoder input and labels are cut from a target."""
    figure = Figure(
        "target_shift",
        368,
        240,
        "Decoder input and labels",
        "At the bottom, a target of six tokens: '<sos> a cat sleeps . <eos>'. Above it, the decoder input: the same "
        "without its last token, so that '<sos>' comes first. At the top, the labels: the same without its first "
        "token, moved one place to the left, so that '<eos>' comes last. An arrow leads from each token of the decoder "
        "input up to its label: from '<sos>' to 'a', from 'a' to 'cat', and so on, up to '<eos>'.",
    )
    tokens = ("<sos>", "a", "cat", "sleeps", ".", "<eos>")
    xs = [44 + 56 * place for place in range(len(tokens))]
    figure.text(18, 30, "labels: tgt[:, 1:]", code=True, colour=INK)
    labels = [_token(figure, x, 72, token, "linear") for x, token in zip(xs, tokens[1:], strict=False)]
    given = [_token(figure, x, 120, token, "feed_forward") for x, token in zip(xs, tokens[:-1], strict=False)]
    for below, above in zip(given, labels, strict=True):
        figure.up(below, above)
    figure.text(18, 138, "decoder input: tgt[:, :-1]", code=True, colour=INK)
    for x, token in zip(xs, tokens, strict=True):
        _token(figure, x, 200, token)
    figure.text(18, 216, "target: tgt", code=True, colour=INK)
    return figure


def teacher_forcing() -> Figure:
    """Draw what the decoder is given while it learns, and while it writes."""
    figure = Figure(
        "teacher_forcing",
        368,
        396,
        "Teacher forcing beside free writing",
        "Two drawings of four steps. In training, one pass of the decoder reads '<sos> the man picks', the reference, "
        "and says 'the dog picks up': it says 'dog' where 'man' is wanted, but 'man' is what it is given next. When it "
        "writes, there is a pass for each word, and an arrow leads from each word that it says to the next step's "
        "input: after '<sos> the' it says 'dog', is given 'dog', and goes on with 'sleeps' and a full stop, away from "
        "the reference.",
    )
    xs = [50 + 88 * step for step in range(4)]

    def row(bottom: float, words: Sequence[str], kinds: Sequence[str]) -> list[Box]:
        return [_token(figure, x, bottom, word, kind) for x, word, kind in zip(xs, words, kinds, strict=True)]

    figure.text(24, 30, "In training: the reference is given", size=BODY, bold=True, colour=INK)
    figure.text(24, 50, "it says")
    said = row(88, ("the", "dog", "picks", "up"), ("data", "attention", "data", "data"))
    figure.rectangle(24, 104, 316, 26, *KINDS["linear"])
    figure.text(182, 117, "Decoder: one pass", "middle", bold=True, colour=INK)
    for below, above in zip(row(172, ("<sos>", "the", "man", "picks"), ["feed_forward"] * 4), said, strict=True):
        figure.arrow((below.x, below.top), (below.x, 130))
        figure.arrow((below.x, 104), (below.x, above.bottom))
    figure.text(24, 190, "it is given", colour=INK)

    figure.text(24, 224, "Writing: its own words come back", size=BODY, bold=True, colour=INK)
    figure.text(24, 244, "it says")
    said = row(282, ("the", "dog", "sleeps", "."), ("data", "attention", "attention", "attention"))
    given = row(352, ("<sos>", "the", "dog", "sleeps"), ("feed_forward", "data", "attention", "attention"))
    for before, below, above in zip([None, *said], given, said, strict=False):
        figure.rectangle(below.left, 298, TOKEN_WIDTH, 16, *KINDS["linear"], radius=3)
        figure.arrow((below.x, below.top), (below.x, 314))
        figure.arrow((below.x, 298), (below.x, above.bottom))
        if before:
            gap = below.left - 18
            level = below.middle
            figure.arrow((before.right, before.middle), (gap, before.middle), (gap, level), (below.left, level))
    figure.text(24, 370, "it is given", colour=INK)
    return figure


def label_smoothing() -> Figure:
    """Draw a target without and with label smoothing as bars."""
    figure = Figure(
        "label_smoothing",
        368,
        172,
        "A target without and with smoothing",
        "Two groups of four horizontal bars, for the tokens <pad>, a, dog and sleeps, of which 'a' is wanted. Left, "
        "the plain target: the bar of 'a' has the length 1, the others have none. Right, with label smoothing, ε = "
        "0.1: the bar of 'a' has the length 0.925, and each of the others 0.025.",
    )
    tokens = ("<pad>", "a", "dog", "sleeps")
    length = 84
    thick = 16
    for number, token in enumerate(tokens):
        figure.text(68, 64 + 26 * number, token, "end", code=True, colour=INK)
    for left, title, of_wanted, of_others in ((78, "plain", 1, 0), (212, "smoothed, ε = 0.1", 0.925, 0.025)):
        figure.text(left, 32, title, bold=True, colour=INK)
        figure.line((left, 50), (left, 156))
        for number, token in enumerate(tokens):
            share = of_wanted if token == "a" else of_others
            y = 64 + 26 * number
            fill = SEEN if token == "a" else KINDS["attention"][1]
            if share:
                figure.rectangle(left + 1, y - thick / 2, length * share, thick, fill, fill, radius=0)
            figure.text(left + length * share + 9, y, f"{share:g}", colour=INK)
    return figure


def training_step() -> Figure:
    """Draw what a training loop does with each batch."""
    figure = Figure(
        "training_step",
        368,
        386,
        "What a loop does with each batch",
        "Eight boxes from bottom to top, joined by arrows, with what each of them changes beside it. Forward, in blue: "
        "shift the target, which makes decoder input and labels; predict: logits; compute the loss: one number. "
        "Backward, in orange: forget the old gradients: all are zero; compute new ones: one for each weight; clip "
        "them: at most as long as 1. Update, in green: the optimiser's step moves the weights, the schedule's step "
        "sets the next rate. An arrow leads from the last box back to the first: the next batch.",
    )
    steps = (
        ("feed_forward", "shift", "input and labels"),
        ("feed_forward", "predict", "logits"),
        ("feed_forward", "loss", "one number"),
        ("attention", "forget", "gradients: zero"),
        ("attention", "backward", "gradients: new"),
        ("attention", "clip", "gradients: ≤ 1 long"),
        ("linear", "optimiser", "weights"),
        ("linear", "schedule", "next learning rate"),
    )
    boxes: list[Box] = []
    for kind, title, changes in steps:
        box = Box(132, boxes[-1].top - 16 if boxes else 362, 108, 28)
        figure.frame(box, *KINDS[kind])
        figure.text(box.x, box.middle, title, "middle", bold=True, colour=INK)
        figure.text(box.right + 14, box.middle, changes)
        if boxes:
            figure.up(boxes[-1], box)
        boxes.append(box)
    first = boxes[0]
    last = boxes[-1]
    figure.arrow((last.left, last.middle), (50, last.middle), (50, first.middle), (first.left, first.middle))
    return figure


FIGURES = (target_shift, teacher_forcing, label_smoothing, training_step)
