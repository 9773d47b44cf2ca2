"""Every picture of the series, in one style. Each function returns a matplotlib figure and shows nothing by itself."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatter, NullFormatter
from torch import Tensor

from transformer_lib.checkpoint import replace_file
from transformer_lib.text import SOS
from transformer_lib.training import History
from transformer_lib.translator import Translation

COLOUR_MAP = "viridis"  # even steps in brightness, readable for colour-blind people and in print
STYLE = {
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
_INCHES_PER_TOKEN = 0.34
_MASK_COLOURS = ListedColormap(["#e4e4ea", "#31568c"])
_DASHES = ("-", "--", "-.", ":")  # curves can be told apart without their colours


def attention_map(weights: Tensor, columns: Sequence[str], rows: Sequence[str], title: str = "") -> Figure:
    """Draw one head's attention: each row shows where one query looks.

    Args:
        weights: ``[query_len, key_len]``.
        columns: a label for each key, ``key_len`` of them.
        rows: a label for each query, ``query_len`` of them.
        title: what stands above it.

    Raises:
        ValueError: the labels do not fit the weights.
    """
    return _grid(weights[None], columns, rows, [title], columns_of_panels=1)


def attention_heads(
    translation: Translation, kind: str = "cross", layer: int = -1, columns_of_panels: int = 4
) -> Figure:
    """Draw all heads of one layer for one translated sentence.

    Args:
        translation: made with ``attention=True``.
        kind: ``"cross"`` (target looks at source), ``"encoder"`` or ``"decoder"`` (each looks at itself).
        layer: index of the layer; the last by default.
        columns_of_panels: panels side by side.

    Raises:
        ValueError: the translation has no attention, or there is no such kind or layer.
    """
    if translation.attention is None:
        raise ValueError("translation has no attention: translate with attention=True")
    if kind not in translation.attention._fields:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(translation.attention._fields)}")
    layers = getattr(translation.attention, kind)
    if not -len(layers) <= layer < len(layers):
        raise ValueError(f"layer is {layer}, expected {-len(layers)} to {len(layers) - 1}")
    inputs = [SOS, *translation.tgt_tokens[:-1]]
    columns = inputs if kind == "decoder" else translation.src_tokens
    rows = {"encoder": translation.src_tokens, "decoder": inputs, "cross": translation.tgt_tokens}[kind]
    weights = layers[layer][0]  # [heads, rows, columns]
    titles = [f"head {head}" for head in range(1, len(weights) + 1)]
    axis_labels = {
        "encoder": ("source word looked at", "source word"),
        "decoder": ("target word looked at", "target word"),
        "cross": ("source word looked at", "target word being written"),
    }[kind]
    return _grid(weights, columns, rows, titles, columns_of_panels, axis_labels)


def masks(masks: Mapping[str, Tensor], columns: Sequence[str], rows: Sequence[str] | None = None) -> Figure:
    """Draw masks side by side: a filled square where the row's token may attend to the column's.

    Args:
        masks: each mask's title, and the mask, boolean, ``[query_len, key_len]``; True means "may attend".
        columns: a label for each key.
        rows: a label for each query; those of the keys by default.

    Raises:
        ValueError: the labels do not fit a mask.
    """
    stacked = torch.stack(list(masks.values()))  # [panels, rows, columns]
    return _grid(
        stacked, columns, rows or columns, list(masks), len(masks), ("key", "query"), _MASK_COLOURS, ("hidden", "seen")
    )


def padding(ids: Tensor, pad_id: int, title: str = "") -> Figure:
    """Draw a batch of ids, ``[batch, seq_len]``, one sentence a row: dark where there is a token, light for padding."""
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        axes.imshow((ids != pad_id).cpu(), aspect="auto", interpolation="none", cmap=_MASK_COLOURS, vmin=0, vmax=1)
        axes.set(xlabel="position", ylabel="sentence in the batch", title=title)
        axes.set_facecolor("white")
    return _close(figure)


def positions(table: Tensor, title: str = "") -> Figure:
    """Draw a table of position vectors, ``[positions, d_model]``, as a heat map."""
    values = table.detach().float().cpu().numpy()
    limit = float(abs(values).max())
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
        image = axes.imshow(values, aspect="auto", interpolation="none", cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set(xlabel="dimension", ylabel="position", title=title)
        figure.colorbar(image, ax=axes, label="value")
    return _close(figure)


def lines(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    log: str = "",
    title: str = "",
) -> Figure:
    """Draw curves over a common x.

    Args:
        x: where they were measured or computed.
        curves: each curve's name, and its values.
        xlabel, ylabel: what the axes show, with the unit.
        log: the axes that are logarithmic: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
        title: what stands above it.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
        for number, (name, values) in enumerate(curves.items()):
            style = _DASHES[number % len(_DASHES)]
            axes.plot(x, values, linestyle=style, marker="o" if len(x) <= 20 else None, markersize=4, label=name)
        axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if name in log:
                axes.set(**{f"{name}scale": "log"})
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter(NullFormatter() if name == "x" else LogFormatter(minor_thresholds=(1, 0.4)))
        if "x" in log and len(x) <= 12:
            axes.set_xticks(x)
        if len(curves) > 1:
            axes.legend(frameon=False)
    return _close(figure)


def bars(values: Mapping[str, float], xlabel: str, title: str = "", label: str = "{:.1f}") -> Figure:
    """Draw one horizontal bar for each value, from top to bottom, with its number written beside it.

    Args:
        values: each bar's name, and its length.
        xlabel: what the lengths are, with the unit.
        title: what stands above it.
        label: how the numbers are written.
    """
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(figsize=(6.4, 0.7 + 0.38 * len(values)), layout="constrained")
        drawn = axes.barh(list(values), list(values.values()), height=0.65, color="C0")
        axes.bar_label(drawn, labels=[label.format(value) for value in values.values()], padding=4)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.tick_params(axis="y", length=0)
        axes.set(xlabel=xlabel, title=title)
    return _close(figure)


def histogram(samples: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, bins: int | Sequence = 30) -> Figure:
    """Draw how often values occur, several samples over each other, each as an outline.

    Args:
        samples: each sample's name, and its values.
        xlabel, ylabel: what the axes show, with the unit.
        bins: how many, or their edges.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
        edges = np.histogram_bin_edges(np.concatenate([np.asarray(values) for values in samples.values()]), bins)
        for number, (name, values) in enumerate(samples.items()):
            style = _DASHES[number % len(_DASHES)]
            axes.hist(values, edges, histtype="step", linewidth=1.8, linestyle=style, label=name)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if len(samples) > 1:
            axes.legend(frameon=False)
    return _close(figure)


def learning_curve(history: History) -> Figure:
    """Draw training and validation loss over the epochs, and mark the epoch that validated best."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
        epochs = range(1, len(history.val_loss) + 1)
        axes.plot(epochs, history.train_loss, marker="o", markersize=3, label="training")
        axes.plot(epochs, history.val_loss, marker="s", markersize=3, label="validation")
        if history.val_loss:
            best = history.best_epoch
            loss = history.val_loss[best - 1]
            axes.plot(best, loss, "o", markersize=11, fillstyle="none", color="C1", label="best epoch")
        axes.set(xlabel="epoch", ylabel="loss (nats per token)", yscale="log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False)
    return _close(figure)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, in the format of its ending, or leave what was there untouched.

    Raises:
        ValueError: the ending is not a format that matplotlib writes.
        OSError: the file cannot be written.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.removeprefix("."), bbox_inches="tight")
    replace_file(path, buffer.getvalue())


def _grid(
    weights: Tensor,
    columns: Sequence[str],
    rows: Sequence[str],
    titles: Sequence[str],
    columns_of_panels: int,
    axis_labels: tuple[str, str] = ("what is looked at", "what looks"),
    colour_map: str | ListedColormap = COLOUR_MAP,
    key: tuple[str, str] | None = None,
) -> Figure:
    """Draw one panel for each map in ``weights``, ``[panels, rows, columns]``, all on the colour scale 0 to 1.

    A ``key`` names the two colours of maps that hold nothing but 0 and 1; without it, there is a colour bar.
    """
    panels, num_rows, num_columns = weights.shape
    if (len(rows), len(columns)) != (num_rows, num_columns):
        raise ValueError(
            f"rows has {len(rows)} and columns {len(columns)} labels, but weights has shape {[num_rows, num_columns]}"
        )
    columns_of_panels = min(columns_of_panels, panels)
    rows_of_panels = -(-panels // columns_of_panels)
    width = columns_of_panels * (num_columns * _INCHES_PER_TOKEN + 0.6) + 1.2
    height = rows_of_panels * (num_rows * _INCHES_PER_TOKEN + 0.7) + 0.8
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, grid = plt.subplots(
            rows_of_panels,
            columns_of_panels,
            figsize=(width, height),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for axes in grid.flat[panels:]:
            axes.remove()
        for axes, panel, title in zip(grid.flat, weights.detach().float().cpu().numpy(), titles, strict=False):
            image = axes.imshow(panel, vmin=0, vmax=1, cmap=colour_map)
            axes.set_title(title, fontsize=10)
            axes.set_xticks(np.arange(num_columns), columns, rotation=60, ha="right", rotation_mode="anchor")
            axes.set_yticks(np.arange(num_rows), rows)
            axes.tick_params(length=0)
            for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
                label.set_parse_math(False)  # a $ in a sentence is a dollar
            if key:
                axes.set_xticks(np.arange(-0.5, num_columns), minor=True)
                axes.set_yticks(np.arange(-0.5, num_rows), minor=True)
                axes.grid(which="minor", color="white", linewidth=1.5)
                axes.tick_params(which="minor", length=0)
        figure.supxlabel(axis_labels[0])
        figure.supylabel(axis_labels[1])
        if key:
            handles = [Patch(color=colour_map(value), label=name) for value, name in enumerate(key)]
            figure.legend(handles=handles, loc="outside right upper", frameon=False)
        else:
            figure.colorbar(image, ax=grid, label="attention weight", shrink=0.6, aspect=30, pad=0.01)
    return _close(figure)


def _close(figure: Figure) -> Figure:
    """Take the figure off pyplot's list, so that a notebook shows it once: as the value of its cell."""
    plt.close(figure)
    return figure
