"""Every picture of the series, in one style. Each function returns a matplotlib figure and shows nothing by itself."""

import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib import font_manager
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from transformer_lib.inference.translator import Translation

Labels = Sequence[str]
# a character that the first lacks comes from the first that is installed and has it
_FONTS = ["DejaVu Sans", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Devanagari", "Arial Unicode MS"]
_FONTS += ["Hiragino Sans", "Apple SD Gothic Neo", "Yu Gothic", "Malgun Gothic", "Microsoft YaHei", "Segoe UI"]
STYLE: dict[Any, Any] = {
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "font.size": 10,
    "font.family": [name for name in _FONTS if name in font_manager.get_font_names()],
    "text.parse_math": False,  # a $ in a sentence is a dollar
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}
_INCHES_PER_TOKEN = 0.34
_UNDRAWABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")  # and must not be in an SVG
_MASK_COLOURS = ListedColormap(["#e4e4ea", "#31568c"])
_SIGNS = LinearSegmentedColormap.from_list("signs", ["#f0a860", "#f7f7f9", "#86b6e4"]).with_extremes(bad="#d8d8de")
_DASHES = ("-", "--", "-.", ":")  # curves can be told apart without their colours
_styled = plt.rc_context(STYLE)  # as a decorator: whatever a function draws is in this style


@_styled
def attention_map(weights: Tensor, columns: Labels, rows: Labels, title: str = "") -> Figure:
    """Draw one head's attention, ``[query_len, key_len]``: each row shows where one query looks."""
    return _grid(weights[None], columns, rows, [title], "tokens looked at", "token that looks")


@_styled
def attention_heads(translation: Translation) -> Figure:
    """Draw where each head of the last layer's cross-attention looks, in a translation with ``attention=True``."""
    if translation.attention is None:
        raise ValueError("translation has no attention: translate with attention=True")
    weights = translation.attention.cross[-1][0]  # [heads, tgt_len, src_len]
    titles = [f"head {head}" for head in range(1, len(weights) + 1)]
    labels = translation.src_tokens, translation.tgt_tokens
    return _grid(weights, *labels, titles, "source word looked at", "target word being written")


@_styled
def matrices(panels: Mapping[str, Tensor], rows: Labels = (), columns: Labels = (), between: Labels = ()) -> Figure:
    """Draw small matrices side by side with their numbers: blue above zero, orange below, grey where hidden.

    Args:
        panels: each matrix's title, and the matrix. False, ``nan`` and infinity count as hidden.
        rows: labels beside the first matrix.
        columns: labels above each matrix that has so many columns.
        between: the signs between the matrices, such as ``"="`` or ``"→"``.
    """
    depth = max(map(len, panels.values()))
    figure, axes = _axes(1, 1, grid=False)
    write = functools.partial(axes.text, ha="center", va="center", rotation_mode="anchor")
    values = [matrix.detach().cpu().double().numpy() for matrix in panels.values()]
    as_text = np.vectorize(lambda v, n: f"{round(v, n) + 0.0:.{n}f}".replace("-", "−").replace("inf", "∞"))
    texts = [as_text(panel, 0 if (panel == panel.round()).all() else 2) for panel in values]
    pitches = [_width(*panel.flat) + 0.16 for panel in texts]  # inches; rows are a third of one
    labelled = [pitch for panel, pitch in zip(texts, pitches, strict=True) if panel.shape[1] == len(columns)]
    length = _width(*columns)
    slanted = {"rotation": 60, "ha": "left"} if length > min(labelled, default=9) else {}
    ceiling = -(length * 0.87 + 0.15 if slanted else 0.25 if labelled else 0.03)
    x = _width(*rows) + 0.15
    for number, (title, matrix) in enumerate(panels.items()):
        panel, pitch, upper = texts[number], pitches[number], (depth - len(texts[number])) / 6
        width = max(pitch * panel.shape[1], 1.12 * _width(title))  # which is bold
        left = x + (width - pitch * panel.shape[1]) / 2
        hidden = values[number] == 0 if matrix.dtype == torch.bool else ~np.isfinite(values[number])
        shown = np.ma.array(values[number], mask=hidden)
        limit = abs(shown).max() or 1
        edges = left + pitch * np.arange(panel.shape[1] + 1), upper + np.arange(len(panel) + 1) / 3
        axes.pcolormesh(*edges, shown, cmap=_SIGNS, vmin=-limit, vmax=limit, edgecolors="white", linewidth=1.5)
        for (row, column), text in np.ndenumerate(panel):
            write(left + pitch * (column + 0.5), upper + (row + 0.5) / 3, text)
        for row, label in enumerate(() if number else rows):
            write(left - 0.07, upper + (row + 0.5) / 3, label, ha="right")
        for column, label in enumerate(columns if len(columns) == panel.shape[1] else ()):
            write(left + pitch * (column + 0.5), upper - 0.13, label, **slanted)
        write(x + width / 2, ceiling - 0.15, title, weight="bold")
        if number < len(between):
            write(x + width + 0.2, depth / 6, between[number], fontsize=14, weight="bold")
        x += width + 0.4
    x += (0.5 * length if slanted else 0) - 0.35
    axes.set(xlim=(0, x), ylim=(depth / 3, ceiling - 0.3))
    axes.set_axis_off()
    figure.set_size_inches(x, depth / 3 - ceiling + 0.3)
    return figure


@_styled
def padding(ids: Tensor, pad_id: int, title: str = "") -> Figure:
    """Draw a batch of ids, ``[batch, seq_len]``, one sentence a row: tokens are dark, padding is light."""
    figure, axes = _axes(6, 3, grid=False)
    tokens = (ids != pad_id).cpu().numpy()
    axes.imshow(tokens, aspect="auto", interpolation="none", cmap=_MASK_COLOURS, vmin=0, vmax=1)
    axes.locator_params(integer=True)
    axes.set(xlabel="position", ylabel="sentence in the batch", title=title)
    return figure


@_styled
def positions(table: Tensor, title: str = "") -> Figure:
    """Draw a table of position vectors, ``[positions, d_model]``, as a heat map."""
    values = table.detach().float().cpu().numpy()
    limit = float(abs(values).max())
    figure, axes = _axes(7, 3.6, grid=False)
    image = axes.imshow(values, aspect="auto", interpolation="none", cmap=_SIGNS, vmin=-limit, vmax=limit)
    axes.set(xlabel="dimension", ylabel="position", title=title)
    figure.colorbar(image, ax=axes, label="value")
    return figure


@_styled
def vectors(vectors: Mapping[str, Sequence[float]]) -> Figure:
    """Draw two-dimensional vectors as arrows from the origin, each with its name at its tip."""
    figure, axes = _axes(6.4, 4.2)
    for number, (name, (x, y)) in enumerate(vectors.items()):
        length = math.hypot(x, y)
        arrow = {"arrowstyle": "-|>", "color": f"C{number}", "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=(x, y), xytext=(0, 0), arrowprops=arrow, zorder=2 + 1 / (1 + length))
        beyond = (5 * x / (length or 1), 5 * y / (length or 1))  # where no arrow crosses it
        steep = {"ha": "center", "va": "bottom" if y >= 0 else "top"}
        sides = steep if abs(y) > abs(x) else {"ha": "left" if x >= 0 else "right", "va": "center"}
        axes.annotate(name, (x, y), xytext=beyond, textcoords="offset points", **sides)
    ends = np.array([(0, 0), *vectors.values()], dtype=float)
    (left, bottom), (right, top) = ends.min(0), ends.max(0)
    margin = 0.25 * max(right - left, top - bottom)
    axes.set(xlim=(left - 1.6 * margin, right + 1.6 * margin), ylim=(bottom - margin, top + margin))
    axes.set(xlabel="first number", ylabel="second number")
    axes.set_aspect("equal")
    return figure


@_styled
def lines(x: Sequence[float], curves: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, log: str = "") -> Figure:
    """Draw named curves over a common x; ``log`` says which axes are logarithmic: ``"x"``, ``"y"`` or ``"xy"``."""
    figure, axes = _axes(6.4, 3.8)
    for dashes, (name, values) in zip(itertools.cycle(_DASHES), curves.items(), strict=False):
        axes.plot(x, values, dashes, marker="o" if len(x) <= 20 else None, markersize=4, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    for name in log:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")  # plain numbers
        axis.set_minor_formatter(NullFormatter())
    if all(isinstance(value, int) for value in x):
        if len(x) <= 12:
            axes.set_xticks(x)
        elif "x" not in log:
            axes.locator_params("x", integer=True)
    if len(curves) > 1:
        axes.legend()
    return figure


@_styled
def bars(values: Mapping[str, float], xlabel: str, title: str = "", label: str = "{:.1f}") -> Figure:
    """Draw a horizontal bar for each value, from top to bottom, and beside it the number in the format ``label``."""
    figure, axes = _axes(6.4, 0.7 + 0.38 * len(values), grid=False)
    drawn = axes.barh(list(values), list(values.values()), height=0.65, color="C0")
    axes.get_yticklabels()  # makes them now, in the style
    axes.bar_label(drawn, labels=[label.format(value) for value in values.values()], padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel=xlabel, title=title)
    return figure


def _grid(weights: Tensor, columns: Labels, rows: Labels, titles: Labels, xlabel: str, ylabel: str) -> Figure:
    """Draw a panel for each map in ``weights``, ``[panels, rows, columns]``, all on the colour scale 0 to 1."""
    panels, num_rows, num_columns = weights.shape
    rows, columns = ([_UNDRAWABLE.sub("\ufffd", label) for label in labels] for labels in (rows, columns))
    across, down = min(4, panels), math.ceil(panels / 4)
    width = across * (num_columns * _INCHES_PER_TOKEN + 0.6) + 1.2
    height = down * (num_rows * _INCHES_PER_TOKEN + 0.7) + 0.8
    figure, grid = _axes(width, height, False, down, across)
    for axes in np.ravel(grid)[panels:]:
        axes.remove()
    maps = weights.detach().float().cpu().numpy()
    for number, (axes, panel, title) in enumerate(zip(np.ravel(grid), maps, titles, strict=False)):
        # darker is more, also in print and to the colour-blind
        image = axes.imshow(panel, vmin=0, vmax=1, cmap="Blues")
        axes.set_title(title, fontsize=10)
        axes.set_xticks(np.arange(num_columns), columns, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(num_rows), rows)
        axes.tick_params(length=0, labelbottom=number >= panels - across)  # the lowest of each column
    figure.supxlabel(xlabel)
    figure.supylabel(ylabel)
    figure.colorbar(image, ax=figure.axes, label="attention weight", shrink=0.6, aspect=30, pad=0.01)
    return figure


def _width(*texts: str) -> float:
    """Estimate the width of the widest of these texts in inches; characters of East Asian scripts count twice."""
    widths = (sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text) for text in texts)
    return 0.085 * max(widths, default=0)


def _axes(width: float, height: float, grid: bool = True, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """Return a figure of so many inches, and its axes: one, or an array of ``rows`` × ``columns``."""
    figure, axes = plt.subplots(rows, columns, sharex=True, sharey=True, figsize=(width, height), layout="constrained")
    for cell in np.ravel(axes):
        cell.grid(grid)
    plt.close(figure)  # off pyplot's list, so that a notebook shows it once: as the value of its cell
    return figure, axes
