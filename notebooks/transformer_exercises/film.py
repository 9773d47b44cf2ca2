"""A film of a training, for notebooks 00 and 06: a slider over epochs, and what the model had learned by then."""

import html
import math
from collections.abc import Sequence

import torch

from transformer_exercises import BUT_COMMANDS, KEYS_STAY_HERE
from transformer_lib.inference.translator import Translation
from transformer_lib.notebook.attention_viewer import readable

_CELL, _LABELS, _LETTER = 16, 76, 5.8  # pixels: a cell's side, the room for the words of rows, a letter's width
_WIDTH, _HEIGHT = 360, 150  # pixels of the curve
_LEFT, _RIGHT, _BOTTOM = 34, 64, 36  # and of what stands beside it and below
_LINE = 13  # from one line of text to the next
_LEGEND = (
    "Cross-attention: rows are tokens being written, columns source tokens looked at; a full cell is a weight of 1."
)
_HINT = "Scripts do not run here. In Jupyter or Colab, run this cell to see curves, maps and a slider."
_SCRIPT = """
for (const film of document.querySelectorAll(".training-film:not([data-ready])")) {
  film.dataset.ready = "";
  const slider = film.querySelector("input");
  const show = () => {
    for (const part of film.querySelectorAll("[data-epoch]")) {
      part.style.display = part.dataset.epoch === slider.value ? "" : "none";
    }
  };
  for (const drawing of film.querySelectorAll("script")) drawing.outerHTML = drawing.textContent;
  for (const part of film.querySelectorAll("label, small")) part.style.display = "";
  film.querySelector("em").remove();
  slider.addEventListener("input", show);
  show();
}
"""


class Film:
    """Losses, cross-attention of one sentence, and its translation, epoch by epoch: a cell's value shows it.

    It needs neither a server nor the network. Where scripts do not run, such as on GitHub or in a notebook that
    JupyterLab does not trust, there are only words: the losses and the translation of each epoch. There, what is drawn
    would lose its lines and keep its letters; scripts are left out whole, so drawings come in scripts.

    Args:
        train_losses, val_losses: of each epoch.
        translations: of the same sentence, after each epoch, made with ``attention=True``.

    Raises:
        ValueError: these are not the same number of epochs, or a translation has no attention.
    """

    def __init__(self, train_losses: Sequence[float], val_losses: Sequence[float], translations: Sequence[Translation]):
        sizes = len(train_losses), len(val_losses), len(translations)
        if len({*sizes}) > 1 or not translations:
            raise ValueError(
                f"train_losses, val_losses and translations are of {sizes} epochs, expected as many of each"
            )
        if any(translation.attention is None for translation in translations):
            raise ValueError("translations have no attention: translate with attention=True")
        self.losses = {"training": train_losses, "validation": val_losses}
        self.translations = translations

    def __repr__(self) -> str:
        return f"Film: {len(self.translations)} epochs, at last “{self.translations[-1].text}”"

    def _repr_html_(self) -> str:
        last = len(self.translations)
        epochs = "".join(self._epoch(number) for number in range(1, last + 1))
        style = 'style="vertical-align: middle"'
        slider = f'<input type="range" min="1" max="{last}" value="{last}" {style} {KEYS_STAY_HERE}>'
        return (
            f'<div class="training-film mathjax_ignore tex2jax_ignore" style="max-width: 100%" {BUT_COMMANDS}>\n'
            f'<label style="display: none">epoch {slider}</label>\n{self._curve()}\n{epochs}'
            f'<p><small style="display: none">{_LEGEND}</small><em>{_HINT}</em></p>\n</div>\n'
            f"<script>\n(() => {{{_SCRIPT}}})();\n</script>\n"
        )

    def _epoch(self, number: int) -> str:
        translation = self.translations[number - 1]
        losses = ", ".join(f"{name} {values[number - 1]:.3f}" for name, values in self.losses.items())
        said = f"<p>after epoch {number}: {losses}<br><b>{html.escape(translation.text)}</b></p>"
        return f'<div data-epoch="{number}">{said}{_map(translation)}</div>'

    def _curve(self) -> str:
        """Return both losses as lines, with a point on each at every epoch."""
        last, highest = len(self.translations), max(map(max, self.losses.values()))
        axes = f"M{_LEFT} 4V{_HEIGHT}H{_WIDTH - _RIGHT}"
        parts = [
            f'<path d="{axes}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>',
            _text(_LEFT - 4, 12, f"{highest:.1f}", "end"),
            _text(_LEFT - 4, _HEIGHT, "0", "end"),
            _text(_LEFT - 4, _HEIGHT / 2, "loss", "end"),
            _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT + _BOTTOM - 4, "epoch", "middle"),
        ]
        xs = [_LEFT + (_WIDTH - _LEFT - _RIGHT) * (number + 0.5) / last for number in range(last)]
        parts += [_text(x, _HEIGHT + 14, str(number), "middle") for number, x in enumerate(xs, start=1)]
        ends = [_HEIGHT - (_HEIGHT - 8) * values[-1] / highest for values in self.losses.values()]
        between = ends[1] - ends[0]
        apart = math.copysign(max(0.0, _LINE - abs(between)) / 2, between)  # so that no name lies on the other
        beside = ends[0] - apart, ends[1] + apart
        looks = zip(self.losses.items(), ("#3f7fc1", "#d9822b"), ("", "5 3"), beside, strict=True)
        for (name, values), colour, dash, label in looks:
            ys = [_HEIGHT - (_HEIGHT - 8) * value / highest for value in values]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
            parts.append(
                f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
            )
            parts += [
                f'<circle data-epoch="{number}" cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'
                for number, (x, y) in enumerate(zip(xs, ys, strict=True), start=1)
            ]
            parts.append(_text(xs[-1] + 9, label + 4, name, "start", colour))
        return _svg(_WIDTH, _HEIGHT + _BOTTOM, "training and validation loss against epoch", parts)


def _map(translation: Translation) -> str:
    """Return the mean of all heads of cross-attention: rows are written, columns are looked at."""
    weights = torch.cat(translation.attention.cross).flatten(0, 1).mean(dim=0).tolist()  # [tgt_len, src_len]
    rows, columns = readable(translation.tgt_tokens), readable(translation.src_tokens)
    top = _LETTER * max(map(len, columns)) + 10
    parts = [
        f'<text transform="translate({_LABELS + _CELL * (place + 0.7):.1f} {top - 6:.1f}) rotate(-90)" '
        f'font-size="11" fill="currentColor">{html.escape(word)}</text>'
        for place, word in enumerate(columns)
    ]
    for row, (word, of_word) in enumerate(zip(rows, weights, strict=True)):
        y = top + _CELL * row
        parts.append(_text(_LABELS - 5, y + 12, word, "end"))
        parts += [
            f'<rect x="{_LABELS + _CELL * column}" y="{y:.1f}" width="{_CELL - 1}" height="{_CELL - 1}" '
            f'fill="currentColor" fill-opacity="{0.05 + 0.95 * min(1.0, weight):.2f}"/>'
            for column, weight in enumerate(of_word)
        ]
    described = "cross-attention, mean of all heads: rows are tokens being written, columns source tokens looked at"
    return _svg(_LABELS + _CELL * len(columns), top + _CELL * len(rows), described, parts)


def _text(x: float, y: float, text: str, anchor: str, colour: str = "currentColor") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11" fill="{colour}"'
    return f"<text {place}>{html.escape(text)}</text>"


def _svg(width: float, height: float, described: str, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    style = "display: block; max-width: 100%; height: auto; font-family: sans-serif"
    drawing = f'<svg {size} style="{style}" role="img" aria-label="{described}">{"".join(parts)}</svg>'
    return f'<script type="image/svg+xml">{drawing}</script>'
