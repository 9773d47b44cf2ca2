"""The page that ``report`` writes: HTML and drawings in it, without a script, for the light, the dark and paper."""

import html
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformer_lib.files import one_line

if TYPE_CHECKING:
    from transformer_exercises.report import Example, Followed, Measured, Ribbons, Run

TUTORIAL = "https://github.com/bentrevett/pytorch-seq2seq"
TUTORIALS_BLEU = 35.08, 36.52  # the lowest and the highest of six published revisions: book/results.md
_LANGUAGES = {"de": "German", "en": "English", "es": "Spanish", "fr": "French"}
_WIDTH = 400  # of drawings, as units: on a telephone, one is a pixel, nearly
_LEAST = 0.05  # of a word's attention: a ribbon of less is not drawn
_COLOURS = 5  # of ribbons, by turns
_LETTERS, _LONGEST = 15, 150  # beside the ribbons: their size, and the room that a word gets
_STYLE = """
:root {
  color-scheme: light;
  --page: #fdfdfb; --ink: #1f2933; --faded: #55616e; --edge: #d5d9de; --panel: #f1f3f5; --band: #dcdfe4;
  --first: #31568c; --second: #a34a12; --link: #24569c;
  --ribbon-0: #31568c; --ribbon-1: #b4521a; --ribbon-2: #0f6d51; --ribbon-3: #8a3f6e; --ribbon-4: #7a6f06;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    color-scheme: dark;
    --page: #16191d; --ink: #e4e8ec; --faded: #a3aeb9; --edge: #3a424b; --panel: #20252b; --band: #39414a;
    --first: #8db4ea; --second: #eb9f6d; --link: #8db4ea;
    --ribbon-0: #8db4ea; --ribbon-1: #eb9f6d; --ribbon-2: #62c7a3; --ribbon-3: #dc98c2; --ribbon-4: #d2c653;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 46rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: break-word;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 0.3rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.4rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 0.2rem; }
p { margin: 0.4rem 0; }
a { color: var(--link); }
svg { display: block; width: 100%; height: auto; margin: 0.8rem 0; }
svg text { font-family: inherit; fill: var(--ink); }
svg .faded { fill: var(--faded); }
.faded { color: var(--faded); }
.missing { border-left: 3px solid var(--edge); padding-left: 0.8rem; color: var(--faded); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 0.8rem; margin: 0.3rem 0 0.9rem; }
dt { color: var(--faded); }
dd { margin: 0; grid-column: 2; }
dd.first { color: var(--faded); }
table { border-collapse: collapse; width: 100%; margin: 0.8rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem 0.3rem 0; border-top: 1px solid var(--edge); }
thead th { border-top: 0; font-weight: 600; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
code, pre { font: 0.85em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { overflow-wrap: anywhere; }
pre {
  background: var(--panel); border: 1px solid var(--edge); border-radius: 6px; padding: 0.6rem 0.8rem;
  margin: 0.2rem 0 0.8rem; white-space: pre-wrap; overflow-wrap: anywhere;
}
pre span { display: inline-block; max-width: 100%; }
.signature { border-top: 0; padding-top: 0; color: var(--faded); }
figure { margin: 0; }
figure svg { max-width: 34rem; }
@media (max-width: 30rem) {
  dl { grid-template-columns: 1fr; gap: 0; }
  dt { margin-top: 0.3rem; }
  dd { grid-column: 1; }
  td.number { white-space: normal; }
}
@page { size: A4; margin: 16mm 18mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; background: none; }
  h1, h2, h3 { break-after: avoid; }
  figure, dl, table, pre, .together { break-inside: avoid; }
  h2 { margin-top: 1.4rem; }
  figure svg { max-width: 26rem; }
  a[href^="http"]::after { content: " (" attr(href) ")"; color: var(--faded); }
}
"""


def page_of(run: "Run") -> str:
    """Return the whole page."""
    source, target = (_LANGUAGES.get(code, code or "text") for code in run.languages)
    about = " · ".join(
        part.replace(" ", "\N{NO-BREAK SPACE}") for part in (f"{source} → {target}", run.name, *run.facts)
    )
    measured = f"Measured on {run.sentences:,} sentences of {run.test}"
    measured += f"; {run.unusable:,} more it cannot read." if run.unusable else "."
    sections = [_curve(run), _followed(run), _scores(run), _examples(run), _ribbons(run), _whose(run), _again(run)]
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>A run: {_safe(run.name)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
        "<h1>A translator, and how it learned</h1>",
        f'<p class="faded">{_safe(about)}<br>{_safe(measured)}</p>',
        *sections,
        "</main>\n</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _safe(text: str) -> str:
    return html.escape(one_line(text))


def _sentence(text: str) -> str:
    """Return a sentence as HTML; one from right to left does not turn what stands around it."""
    return f"<bdi>{_safe(text)}</bdi>"


def _section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n" + "\n".join(parts) + "\n</section>"


def _missing(words: str) -> str:
    return f'<p class="missing">{words}</p>'


# How it learned


def _curve(run: "Run") -> str:
    title = "How it learned"
    if not run.train_losses:
        how = "Notebook 06 writes them beside its model, in its cell <code>save</code>; so does <code>fit</code>."
        return _section(title, _missing(f"This run has kept no losses, so there is no curve to draw. {how}"))
    first, last = run.val_losses[0], run.val_losses[-1]
    caption = (
        f"Look at the line of the validation sentences, from which nothing is learned. Its loss begins at {first:.2f} "
        f"nats per token and ends at {last:.2f}, a perplexity of {math.exp(min(last, 700)):.1f}. The training line "
        "also holds what training adds, such as label smoothing and dropout: follow its shape, and don't compare "
        "its height."
    )
    return _section(title, f"<p>{caption}</p>", f"<figure>{_lines(run)}</figure>")


@dataclass(frozen=True)
class _Axes:
    """A drawing's room for curves, and where numbers lie in it."""

    steps: int  # along x
    lowest: float
    highest: float
    height: int = 210
    left: int = 34
    right: int = _WIDTH - 74
    top: int = 8
    bottom: int = 174

    def x(self, step: int) -> float:
        """Return where a step lies, from 0 on; a single one in the middle."""
        return self.left + (self.right - self.left) * (step / (self.steps - 1) if self.steps > 1 else 0.5)

    def y(self, value: float) -> float:
        """Return where a value lies."""
        return self.top + (self.bottom - self.top) * (self.highest - value) / (self.highest - self.lowest)

    def drawn(self, unit: str) -> list[str]:
        """Return its lines and numbers."""
        parts = []
        for tick in _ticks(self.lowest, self.highest):
            y = self.y(tick)
            parts.append(f'<path d="M{self.left} {y:.1f}H{self.right}" stroke="var(--edge)"/>')
            parts.append(_text(self.left - 7, y + 4.5, f"{tick:g}", "end", "faded"))
        for step in range(0, self.steps, math.ceil(self.steps / 10)):
            parts.append(_text(self.x(step), self.bottom + 16, str(step + 1), "middle", "faded"))
        parts.append(_text((self.left + self.right) / 2, self.height - 4, unit, "middle", "faded"))
        return parts


def _lines(run: "Run") -> str:
    """Draw both losses, with a point for each epoch."""
    values = [*run.train_losses, *run.val_losses]
    lowest, highest = math.floor(min(values) * 2) / 2, math.ceil(max(values) * 2) / 2
    axes = _Axes(len(run.val_losses), lowest, max(highest, lowest + 0.5))
    parts = axes.drawn(f"{run.unit} · up: loss, in nats per token")
    ends = _apart(axes.y(run.train_losses[-1]), axes.y(run.val_losses[-1]), 16)
    looks = (
        ("training", run.train_losses, "var(--second)", "6 4", ends[0]),
        ("validation", run.val_losses, "var(--first)", "none", ends[1]),
    )
    for name, losses, colour, dashes, label in looks:
        points = [(axes.x(step), axes.y(loss)) for step, loss in enumerate(losses)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        stroke = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        parts.append(f'<polyline points="{line}" {stroke}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        parts.append(_text(points[-1][0] + 8, label + 4.5, name, "start", colour=colour))
    return _svg(_WIDTH, axes.height, f"Training and validation loss of {axes.steps} {run.unit}s", parts)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two, four to nine of them."""
    step = 10 ** math.floor(math.log10(high - low))
    step = next(step * part for part in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (step * part) <= 8)
    return [step * number for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _apart(one: float, other: float, least: float) -> tuple[float, float]:
    """Return two places, moved so that what is written there does not overlap."""
    short = max(0.0, least - abs(one - other)) / 2
    return (one - short, other + short) if one <= other else (one + short, other - short)


def _text(x: float, y: float, words: str, anchor: str, kind: str = "", colour: str = "", size: int = 13) -> str:
    look = f' class="{kind}"' if kind else ""
    look += f' style="fill: {colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{look}>{_safe(words)}</text>'


def _svg(width: float, height: float, described: str, parts: Iterable[str]) -> str:
    label = f'role="img" aria-label="{_safe(described)}"'
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" {label}>{"".join(parts)}</svg>'


# Sentences, epoch by epoch


def _followed(run: "Run") -> str:
    title = "The same sentences, epoch by epoch"
    if not run.followed or not run.followed[0].translations:
        how = (
            "<code>keep_epochs</code>, in <code>transformer_exercises.report</code>, writes them beside a model; "
            "notebook 06 calls it in its cell <code>save</code>."
        )
        return _section(title, _missing(f"This run has kept no translations from its training. {how}"))
    epochs = len(run.followed[0].translations)
    total = sum(len(row.tgt.split()) for row in run.followed)
    found = [
        sum(sum(map(bool, _in_both(row.translations[epoch], row.tgt))) for row in run.followed) for epoch in (0, -1)
    ]
    of_all = f"{found[0]} after epoch 1, and {found[1]} after epoch {epochs}" if epochs > 1 else f"{found[0]} of them"
    caption = (
        "Read one sentence downwards. Words that the person has used, too, are bold. Of their "
        f"{total} words, the model found {of_all}. What isn't bold may be wrong, or another way to say it."
    )
    return _section(title, f"<p>{caption}</p>", *(_one_followed(row) for row in run.followed))


def _in_both(translation: str, reference: str) -> list[bool]:
    """Return, for each word of a translation, whether the reference has it as well, each of its words once."""
    left = Counter(_bare(word) for word in reference.split())
    found = []
    for word in map(_bare, translation.split()):
        found.append(left[word] > 0)
        left[word] -= 1
    return found


def _bare(word: str) -> str:
    return word.strip(".,;:!?\"'“”„()").lower() or word


def _one_followed(row: "Followed") -> str:
    lines = [
        f'<dt>source</dt><dd class="first">{_sentence(row.src)}</dd>',
        f'<dt>a person</dt><dd class="first">{_sentence(row.tgt)}</dd>',
    ]
    for number, text in enumerate(row.translations, start=1):
        words = [
            f"<b>{_safe(word)}</b>" if shared else _safe(word)
            for word, shared in zip(text.split(), _in_both(text, row.tgt), strict=True)
        ]
        lines.append(f"<dt>epoch {number}</dt><dd><bdi>{' '.join(words)}</bdi></dd>")
    return f"<dl>{''.join(lines)}</dl>"


# How good it is


def _scores(run: "Run") -> str:
    greedy, beam, papers = run.scores
    link = f'<a href="{TUTORIAL}">tutorial</a>'
    low, high = TUTORIALS_BLEU
    if run.beside_tutorials:
        beside = (
            f"The grey band is the well-known {link} on the same sentences: six published revisions ended between "
            f"{low} and {high} BLEU. Those were translated greedily, so the first bar is the fair neighbour."
        )
    else:
        beside = (
            f"The well-known {link} ends between {low} and {high} BLEU, but on other sentences, Multi30k's "
            "test_2016_flickr: it can't be compared with these."
        )
    drawn = (
        "To see how far luck goes, 1,000 test sets were drawn from this one, each sentence put back before the next, "
        "with NumPy's <code>default_rng(0)</code>: a bar is the middle 95 % of their scores."
    )
    if beam.middle:
        begin = f"A dot is the score. With the beam it's {beam.value:.2f}, and its bar begins at {beam.middle[0]:.2f}."
    else:
        begin = f"With the beam it's {beam.value:.2f}. Where no four words in a row match, drawing says nothing."
    rows = "".join(_row(score) for score in (greedy, beam, papers))
    head = "<thead><tr><th>search</th><th>words cut by</th><th>BLEU</th><th>middle 95 %</th></tr></thead>"
    foot = "Below each row is sacreBLEU's signature. Compare two scores only if their signatures and sentences agree."
    return _section(
        "How good it is",
        f"<p>{begin} {drawn} {beside}</p>",
        f"<figure>{_bars(run)}</figure>",
        f"<table>{head}<tbody>{rows}</tbody></table>",
        f'<p class="faded">{foot}</p>',
    )


def _row(score: "Measured") -> str:
    between = f"{score.middle[0]:.2f} to {score.middle[1]:.2f}" if score.middle else "–"
    cells = f'<td class="number">{score.value:.2f}</td><td class="number">{between}</td>'
    first = f"<tr><td>{_safe(score.search)}</td><td>{_safe(score.words)}</td>{cells}</tr>"
    return f'{first}<tr><td class="signature" colspan="4"><code>{_safe(score.signature)}</code></td></tr>'


def _bars(run: "Run") -> str:
    """Draw the scores and their intervals on one line of numbers, with the tutorials' behind them."""
    width, left, right, pitch, top = _WIDTH, 92, 14, 30, 24
    rows = run.scores[:2]
    marks = [number for score in rows for number in (score.value, *(score.middle or ()))]
    marks += TUTORIALS_BLEU if run.beside_tutorials else ()
    low, high = math.floor(min(marks)), math.ceil(max(marks))
    high = max(high, low + 2)
    bottom = top + pitch * len(rows)

    def x_of(value: float) -> float:
        return left + (width - left - right) * (value - low) / (high - low)

    parts = []
    if run.beside_tutorials:
        begin, end = map(x_of, TUTORIALS_BLEU)
        parts.append(
            f'<rect x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" height="{bottom - top}" fill="var(--band)"/>'
        )
        parts.append(_text((begin + end) / 2, top - 8, "the tutorial", "middle", "faded"))
    for tick in _ticks(low, high):
        x = x_of(tick)
        parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="var(--faded)"/>')
        parts.append(_text(x, bottom + 20, f"{tick:g}", "middle", "faded"))
    parts.append(f'<path d="M{left} {bottom}H{width - right}" stroke="var(--faded)"/>')
    parts.append(_text(left - 14, bottom + 20, "BLEU", "end", "faded"))
    for number, score in enumerate(rows):
        y = top + pitch * (number + 0.5)
        if score.middle:
            begin, end = map(x_of, score.middle)
            parts.append(f'<path d="M{begin:.1f} {y}H{end:.1f}" stroke="var(--first)" stroke-width="4"/>')
        parts.append(f'<circle cx="{x_of(score.value):.1f}" cy="{y}" r="6" fill="var(--first)"/>')
        parts.append(_text(left - 12, y + 5, score.search.partition(",")[0], "end"))
    described = ", ".join(f"{score.search}: {score.value:.2f}" for score in rows)
    return _svg(width, bottom + 28, f"BLEU, {described}", parts)


# The best, the worst, and where it looks


def _examples(run: "Run") -> str:
    caption = (
        "BLEU is for many sentences at once, so these two were found by sacreBLEU's chrF, which compares strings of up "
        f"to six letters, from 0 to 100. The mean is {run.mean_chrf:.1f}, and the worst has "
        f"{run.worst.chrf:.1f}. Is the worst one wrong, or said in another way?"
    )
    best = f"The best of those that it hasn't learned from: {run.best.chrf:.1f}"
    return _section(
        "Its best and its worst",
        f"<p>{caption} Both are from the beam.</p>",
        _example(best, run.best),
        _example(f"The worst: {run.worst.chrf:.1f}", run.worst),
    )


def _example(title: str, row: "Example") -> str:
    lines = (("source", row.src), ("a person", row.tgt), ("the model", row.translation))
    body = "".join(f"<dt>{name}</dt><dd>{_sentence(text)}</dd>" for name, text in lines)
    return f'<div class="together"><h3>{title}</h3><dl>{body}</dl></div>'


def _ribbons(run: "Run") -> str:
    title = "Where it looks"
    ribbons = run.ribbons
    if ribbons is None:
        return _section(title, _missing("Its translation holds no words, so there is nothing to draw."))
    widest = max(
        (weight, source, target)
        for target, row in zip(ribbons.tgt, ribbons.weights, strict=True)
        for source, weight in zip(ribbons.src, row, strict=True)
    )
    _, source, target = widest
    ends = f"from <i>{_sentence(source)}</i> to <i>{_sentence(target)}</i>"
    which = f"layer {ribbons.layer} of {ribbons.layers}, the one with the widest ribbons"
    which = which if ribbons.layers > 1 else "its only layer"
    caption = (
        "A ribbon is as wide as the cross-attention of a word that is being written, at the right, to a word that was "
        f"read, at the left. The widest one leads {ends} with "
        f"{widest[0]:.2f}. What has less than {_LEAST} isn't drawn, and neither are punctuation and the sentence's "
        f"ends. This is {which}, as the mean of its {ribbons.heads} heads."
    )
    said = f'<p class="faded">It wrote: {_sentence(ribbons.text)}</p>'
    return _section(title, f"<p>{caption}</p>", f"<figure>{_draw_ribbons(ribbons)}</figure>", said)


def _draw_ribbons(ribbons: "Ribbons") -> str:
    """Draw words below each other at both sides, so that any number of them can be read on a telephone."""
    height = 8 + 30 * max(len(ribbons.src), len(ribbons.tgt))
    shown = [[weight if weight >= _LEAST else 0.0 for weight in row] for row in ribbons.weights]
    columns = [list(column) for column in zip(*shown, strict=True)]
    full = min(23.0, 30 / max(1.0, *map(sum, columns), *map(sum, shown)))  # so that no word's ribbons lie on another's
    sides = (ribbons.src, columns), (ribbons.tgt, shown)
    middles = [[height * (number + 0.5) / len(words) for number in range(len(words))] for words, _ in sides]
    room = [14 + min(_LONGEST, max(_width_of(word) for word in words)) for words, _ in sides]
    xs = room[0], _WIDTH - room[1]
    starts, ends = (
        [_side_by_side(y, [full * weight for weight in weights]) for y, weights in zip(ys, of_words, strict=True)]
        for ys, (_, of_words) in zip(middles, sides, strict=True)
    )
    parts = []
    for i, j in itertools.product(range(len(ribbons.tgt)), range(len(ribbons.src))):
        if shown[i][j]:
            name = f"{ribbons.tgt[i]} looks at {ribbons.src[j]}: {ribbons.weights[i][j]:.3f}"
            parts.append(_ribbon(xs, starts[j][i], ends[i][j], full * shown[i][j], _colour(j), name))
    for j, (word, y) in enumerate(zip(ribbons.src, middles[0], strict=True)):
        parts.append(_fitting(xs[0] - 8, y + 5.5, word, "end", _colour(j)))
    for word, y in zip(ribbons.tgt, middles[1], strict=True):
        parts.append(_fitting(xs[1] + 8, y + 5.5, word, "start"))
    return _svg(_WIDTH, height, f"Cross-attention of “{ribbons.text}”", parts)


def _ribbon(xs: tuple[float, float], start: float, end: float, width: float, colour: str, name: str) -> str:
    bend = sum(xs) / 2
    path = f"M{xs[0]:.1f} {start:.2f}C{bend:.1f} {start:.2f} {bend:.1f} {end:.2f} {xs[1]:.1f} {end:.2f}"
    look = f'fill="none" stroke="{colour}" stroke-opacity="0.7" stroke-width="{width:.2f}"'
    return f'<path d="{path}" {look}><title>{_safe(name)}</title></path>'


def _colour(number: int) -> str:
    return f"var(--ribbon-{number % _COLOURS})"


def _width_of(word: str) -> float:
    """Return about how wide a word is in a sans-serif font."""
    return _LETTERS * sum(0.3 if letter in "ijltfrI.,'" else 0.9 if letter in "mwMW" else 0.6 for letter in word)


def _fitting(x: float, y: float, word: str, anchor: str, colour: str = "") -> str:
    """Write a word; one without end, as small as it must be."""
    smaller = min(1.0, _LONGEST / _width_of(word))
    return _text(x, y, word, anchor, colour=colour, size=max(4, math.floor(_LETTERS * smaller)))


def _side_by_side(middle: float, widths: Sequence[float]) -> list[float]:
    """Return the middle of each ribbon, when they lie side by side around a word's."""
    return [
        middle + end - width / 2 - sum(widths) / 2
        for end, width in zip(itertools.accumulate(widths), widths, strict=True)
    ]


# Whose it is, and how to do it again


def _whose(run: "Run") -> str:
    title = "Whose it is"
    if run.trained_by_library:
        return _section(title, "<p>The library's: <code>fit</code> trained it, with the parts that came with it.</p>")
    if run.parts is None:
        if run.parts_file:
            why = f"The first lines of {_safe(run.parts_file)} don't count its parts as they were written"
            return _section(title, _missing(f"{why}. Run the last code cell of notebook 06, and it's written anew."))
        why = (
            "There's no <code>my_transformer.py</code> beside this run's folder, so nothing says which parts are yours."
        )
        return _section(title, _missing(f"{why} The last code cells of notebooks 03 to 09 write it."))
    mine = [name for name, (_, is_mine) in run.parts.items() if is_mine]
    verb = "are" if len(mine) > 1 else "is"
    of_all = f"{len(mine) or 'None'} of the {len(run.parts)} parts"
    caption = (
        f"{of_all} in {_safe(run.parts_file)} {verb} yours, as the file stands now. Where yours aren't right yet, the "
        "course's own stand in."
    )
    rows = []
    for wanted in dict.fromkeys(number for number, _ in run.parts.values()):
        lines = []
        for whose, side in (("yours", True), ("the course's", False)):
            names = [name for name, (number, is_mine) in run.parts.items() if (number, is_mine) == (wanted, side)]
            if names:
                lines.append(f"<dd>{whose}: {', '.join(f'<code>{name}</code>' for name in names)}</dd>")
        rows.append(f"<dt>notebook {wanted}</dt>{''.join(lines)}")
    return _section(title, f"<p>{caption}</p>", f"<dl>{''.join(rows)}</dl>")


def _again(run: "Run") -> str:
    if run.again:
        training = f"<h3>The training</h3>{_command(run.again)}"
    else:
        training = _missing(
            "Nothing in this run says how it was trained, so that command is missing. Notebook 06 writes it down in "
            "its cell <code>save</code>, and <code>transformer-lib train</code> in the model's notes."
        )
    lines = [f"<h3>{_safe(name[0].upper() + name[1:])}</h3>{_command(command)}" for name, command in run.commands]
    caption = "The same seed gives the same numbers on the same machine; another machine rounds in other places."
    return _section("Do it again", f"<p>{caption}</p>", training, *lines)


def _command(text: str) -> str:
    """Return a command whose lines break between words, and not at the hyphens of an option."""
    return f"<pre>{' '.join(f'<span>{_safe(word)}</span>' for word in text.split(' '))}</pre>"
