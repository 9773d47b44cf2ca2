"""Every picture of the series, in one style. Each function returns a matplotlib figure and shows nothing by itself."""

import functools
import io
import itertools
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display
from matplotlib import font_manager
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from transformer_lib.inference.translator import Translation

Labels = Sequence[str]
# a character that the first lacks comes from the first that is installed and has it
_FONTS = ["DejaVu Sans", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Devanagari", "Arial Unicode MS"]
_FONTS += ["Hiragino Sans", "Apple SD Gothic Neo", "Yu Gothic", "Malgun Gothic", "Microsoft YaHei", "Segoe UI"]
STYLE: dict[Any, Any] = {
    "savefig.dpi": 200,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "#fcfcfa",
    "axes.facecolor": "none",
    **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], "#1f2933"),
    "axes.prop_cycle": plt.cycler(color=["#0072b2", "#d55e00", "#009e73", "#b0508a", "#8a6d00", "#4d5966"]),
    **dict.fromkeys(["axes.titlesize", "figure.labelsize", "figure.titlesize"], "medium"),
    "font.size": 10,
    "font.family": [name for name in _FONTS if name in font_manager.get_font_names()],
    "text.parse_math": False,  # a $ in a sentence is a dollar
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d5d9de",
    "legend.frameon": False,
}
WIDTH = 4.7  # inches, so that a telephone 390 pixels wide shows letters of ten pixels
_INCHES_PER_TOKEN = 0.2
_UNDRAWABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")  # and must not be in an SVG
_ROW = 1 / 3  # inches from one row of a matrix to the next
_CENTRED = {"ha": "center", "va": "center", "rotation_mode": "anchor"}
_SIGNS = LinearSegmentedColormap.from_list("signs", ["#f0a860", "#f7f7f9", "#86b6e4"]).with_extremes(bad="#d8d8de")
_LOOKS = list(zip(("-", "--", "-.", ":", (0, (6, 2, 1, 2, 1, 2))), "osD^v", strict=True))  # told apart without colours
# A page is light or dark, and so is the card behind the picture, as that of the drawings in assets/figures.
_CARD = """<style>
#figure_1 text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif !important }
@media (prefers-color-scheme: dark) { #figure_1 { filter: invert(0.92) hue-rotate(180deg) } }
</style><g id="figure_1"><rect width="100%" height="100%" rx="9" fill="#fcfcfa" stroke="#d5d9de" stroke-width="2"/>"""
_styled = plt.rc_context(STYLE)  # as a decorator: whatever a function draws is in this style


class Picture(Figure):
    """A figure that notebooks show as an SVG: sharp, with letters as letters, light or dark as the page.

    Where none is shown, as in a terminal or in a notebook that came from somebody else, ``alt`` is: what is written in
    the picture, or something better.
    """

    alt = ""

    def __repr__(self) -> str:
        texts = [text.get_text() for text in self.findobj(Text) if text.get_visible()]
        return "Picture: " + (self.alt or "  ".join(filter(None, texts)))

    def _ipython_display_(self) -> None:
        display({"image/svg+xml": self.svg(), "text/plain": repr(self)}, raw=True)

    def svg(self) -> str:
        """Return the picture as an SVG on a card; the same picture gives the same text."""
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "", **STYLE}):
            self.savefig(file, format="svg", facecolor="none", metadata=nothing, bbox_inches="tight", pad_inches=0.12)
        return file.getvalue().replace('<g id="figure_1">', _CARD, 1)


@_styled
def attention_map(weights: Tensor, columns: Labels, rows: Labels, title: str = "") -> Picture:
    """Draw one head's attention, ``[query_len, key_len]``: each row shows where one query looks."""
    return _grid(weights[None], columns, rows, [title], "tokens looked at", "token that looks")


@_styled
def attention_heads(translation: Translation) -> Picture:
    """Draw where each head of the last layer's cross-attention looks, in a translation with ``attention=True``."""
    if translation.attention is None:
        raise ValueError("translation has no attention: translate with attention=True")
    weights = translation.attention.cross[-1][0]  # [heads, tgt_len, src_len]
    titles = [f"head {head}" for head in range(1, len(weights) + 1)]
    labels = translation.src_tokens, translation.tgt_tokens
    return _grid(weights, *labels, titles, "source word looked at", "target word being written")


@_styled
def matrices(panels: Mapping[str, Tensor], rows: Labels = (), columns: Labels = (), between: Labels = ()) -> Picture:
    """Draw small matrices side by side with their numbers: blue above zero, orange below, grey where hidden.

    With signs between them, each has a colour scale of its own; without, they are there to be compared, and share one.
    A matrix for which a line has no room begins the next one, and the sign before it stands there, before its title.

    Args:
        panels: each matrix's title, and the matrix. False, ``nan`` and infinity count as hidden.
        rows: labels beside the first matrix of each line, if it has so many rows.
        columns: labels above each matrix that has so many columns.
        between: the signs between the matrices, such as ``"="`` or ``"→"``.
    """
    signs = ["", *between, *[""] * len(panels)]
    shown = [_Panel(title, matrix) for title, matrix in panels.items()]
    depth = _ROW * max(len(panel.texts) for panel in shown)  # inches, as all lengths here; y grows down
    headed = [panel.pitch for panel in shown if panel.texts.shape[1] == len(columns)]
    slanted = _width(*columns) > min(headed, default=math.inf)
    above = 0.03  # the matrices, for the labels of their columns
    if headed:
        above = 0.87 * _width(*columns) + 0.15 if slanted else 0.25
    largest = max(panel.largest for panel in shown)
    figure, axes = new_axes(1, 1, grid=False)
    write = functools.partial(axes.text, **_CENTRED)
    indent = _width(*rows) + 0.15
    x = indent
    line = 0.0  # y of where the highest matrices begin
    right = 0.0
    for panel, sign in zip(shown, signs, strict=False):
        if x > indent and x + panel.width > WIDTH:  # no telephone would show it beside those before it
            x = indent
            line += depth + above + 0.35
            panel.width = max(panel.width, panel.title_width + 0.6)  # the sign stands beside the title
        middle = x + panel.width / 2
        title_y = line - above - 0.15
        sign_xy = x - 0.2, line + depth / 2
        if x == indent:
            sign_xy = middle - panel.title_width / 2 - 0.15, title_y
            sign = sign.replace("→", "↳")  # which leads down from the line above
        if sign:
            write(*sign_xy, sign, fontsize=14, weight="bold")
        write(middle, title_y, panel.title, weight="bold")
        labels = rows if x == indent else (), columns
        panel.draw(axes, middle, line + depth / 2, *labels, slanted, (panel.largest if between else largest) or 1)
        x += panel.width + 0.4
        right = max(right, x - 0.25)
    if slanted:
        right += 0.5 * _width(*columns)  # the last label leans over the edge
    axes.set(xlim=(0, right), ylim=(line + depth + 0.05, -above - 0.3))
    axes.set_axis_off()
    figure.set_size_inches(right, line + depth + above + 0.35)
    return figure


class _Panel:
    """A matrix that ``matrices`` draws, and its size."""

    def __init__(self, title: str, matrix: Tensor):
        numbers = matrix.double().numpy(force=True)
        hidden = numbers == 0 if matrix.dtype == torch.bool else ~np.isfinite(numbers)
        digits = 0 if (numbers == numbers.round()).all() else 2
        self.title = title
        self.numbers = np.ma.array(numbers, mask=hidden)
        self.largest = abs(numbers[~hidden]).max(initial=0)
        as_text = np.vectorize(lambda number: f"{round(number, digits) + 0.0:.{digits}f}")  # + 0.0: −0.0 becomes 0.0
        self.texts = np.char.replace(np.char.replace(as_text(numbers), "-", "−"), "inf", "∞")
        self.pitch = _width(*self.texts.flat) + 0.16  # from one column to the next
        self.title_width = 1.12 * _width(title)  # it is bold
        self.width = max(self.pitch * self.texts.shape[1], self.title_width)

    def draw(self, axes: Any, x: float, y: float, rows: Labels, columns: Labels, slanted: bool, limit: float) -> None:
        """Draw coloured cells around (x, y), a number in each, and those labels of which there are as many."""
        num_rows, num_columns = self.texts.shape
        x = x + self.pitch * (np.arange(num_columns + 1) - num_columns / 2)
        y = y + _ROW * (np.arange(num_rows + 1) - num_rows / 2)
        axes.pcolormesh(x, y, self.numbers, cmap=_SIGNS, vmin=-limit, vmax=limit, edgecolors="white", linewidth=1.5)
        write = functools.partial(axes.text, **_CENTRED)
        if num_columns == len(columns):
            for left, label in zip(x, columns, strict=False):
                look = {"rotation": 60, "ha": "left"} if slanted else {}
                write(left + self.pitch / 2, y[0] - 0.13, label, **look)
        for row, texts in enumerate(self.texts):
            if num_rows == len(rows):
                write(x[0] - 0.07, y[row] + _ROW / 2, rows[row], ha="right")
            for left, text in zip(x, texts, strict=False):
                write(left + self.pitch / 2, y[row] + _ROW / 2, text)


@_styled
def lines(
    x: Sequence[float], curves: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, log: str = ""
) -> Picture:
    """Draw named curves over a common x; ``log`` says which axes are logarithmic: ``"x"``, ``"y"`` or ``"xy"``."""
    across = max(1, min(len(curves), int(4.4 / (_width(*curves) + 0.5))))
    figure, axes = new_axes(WIDTH, 3.2 + 0.2 * math.ceil(len(curves) / across))
    for (dashes, marker), (name, values) in zip(itertools.cycle(_LOOKS), curves.items(), strict=False):
        axes.plot(x, values, linestyle=dashes, marker=marker if len(x) <= 20 else None, markersize=4.5, label=name)
    axes.set_xlabel(xlabel + ", log scale" * ("x" in log))
    axes.set_ylabel(ylabel + ", log scale" * ("y" in log), rotation=0, ha="left", va="bottom")  # nobody tilts a head
    axes.yaxis.set_label_coords(0, 1.02)
    for name in log:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        decades = np.ptp(np.log10(axis.get_data_interval()))
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.8 else (1,)))
        axis.set_major_formatter("{x:.10g}")  # plain numbers
        axis.set_minor_formatter(NullFormatter())
    whole = all(isinstance(value, int) for value in x)
    if whole and len(x) * (_width(str(max(x))) + 0.12) < WIDTH - 0.8:
        axes.set_xticks(x)
    elif "x" not in log:
        axes.locator_params("x", integer=whole, nbins=6)
    if len(curves) > 1:
        figure.legend(loc="outside upper left", ncols=across, handlelength=3)  # covers no curve
    return figure


@_styled
def bars(values: Mapping[str, float], xlabel: str, title: str = "", label: str = "{:.1f}") -> Picture:
    """Draw a horizontal bar for each value, from top to bottom, and beside it the number in the format ``label``."""
    figure, axes = new_axes(WIDTH, 0.8 + 0.26 * len(values), grid=False)
    drawn = axes.barh(list(values), list(values.values()), height=0.65)
    axes.get_yticklabels()  # makes them now, in the style
    numbers = [label.format(value).replace("-", "−") for value in values.values()]
    axes.bar_label(drawn, labels=numbers, padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.3)  # for the numbers, on either side
    axes.tick_params(axis="y", length=0)
    figure.supxlabel(xlabel)  # of the figure, since long names leave little room to the axes
    figure.suptitle(title)
    figure.alt = "  ".join([title or xlabel, *map(" ".join, zip(values, numbers, strict=True))])
    return figure


@_styled
def new_axes(width: float, height: float, grid: bool = True, rows: int = 1, columns: int = 1) -> tuple[Picture, Any]:
    """Return a figure of so many inches in the style of the series, and its axes: one, or ``rows`` × ``columns``."""
    figure, axes = plt.subplots(rows, columns, sharex=True, sharey=True, FigureClass=Picture)
    figure.set_size_inches(width, height)
    for cell in np.ravel(axes):
        cell.grid(grid)
    plt.close(figure)  # off pyplot's list, so that a notebook shows it once: as the value of its cell
    return figure, axes


def _grid(weights: Tensor, columns: Labels, rows: Labels, titles: Labels, xlabel: str, ylabel: str) -> Picture:
    """Draw a panel for each map in ``weights``, ``[panels, rows, columns]``, all from 0 to 1: darker is more."""
    panels, num_rows, num_columns = weights.shape
    rows = [_UNDRAWABLE.sub("\ufffd", label) for label in rows]
    columns = [_UNDRAWABLE.sub("\ufffd", label) for label in columns]
    slanted = 0.5 * _width(*columns)  # how far such a label reaches to the left
    margin = _width(*rows) + 0.3
    panel_width = max(num_columns * _INCHES_PER_TOKEN, _width(*titles), slanted) + 0.1
    most = min(panels, max(2, int((WIDTH - margin) / panel_width)))  # that a telephone can show
    across = next((number for number in range(most, 1, -1) if panels % number == 0), most)  # in even rows
    down = math.ceil(panels / across)
    height = down * (num_rows * _INCHES_PER_TOKEN + 0.4) + 1.7 * slanted + 1.5
    figure, grid = new_axes(max(across * panel_width + margin, 2.8), height, False, down, across)
    figure.set_layout_engine("compressed")
    for axes in np.ravel(grid)[panels:]:
        axes.remove()
    maps = weights.float().numpy(force=True)
    for number, (axes, panel, title) in enumerate(zip(np.ravel(grid), maps, titles, strict=False)):
        image = axes.imshow(panel, vmin=0, vmax=1, cmap="Blues", interpolation="none")
        axes.set_title(title)
        axes.set_xticks(np.arange(num_columns), columns, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(num_rows), rows)
        axes.tick_params(length=0, labelbottom=number >= panels - across)  # the lowest of each column
    figure.supxlabel(xlabel)
    figure.supylabel(ylabel)
    figure.colorbar(image, ax=figure.axes, label="attention weight", location="top", shrink=0.8, aspect=30, pad=0.02)
    return figure


def _width(*texts: str) -> float:
    """Estimate the width of the widest of these texts in inches; characters of East Asian scripts count twice."""
    widths = (sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text) for text in texts)
    return 0.085 * max(widths, default=0)
