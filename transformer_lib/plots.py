"""Every picture of the series, in one style. Each function returns a matplotlib figure and shows nothing by itself."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
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
) -> Figure:
    """Draw one panel for each map in ``weights``, ``[panels, rows, columns]``, all on the colour scale 0 to 1."""
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
            image = axes.imshow(panel, vmin=0, vmax=1, cmap=COLOUR_MAP)
            axes.set_title(title, fontsize=10)
            axes.set_xticks(np.arange(num_columns), columns, rotation=60, ha="right", rotation_mode="anchor")
            axes.set_yticks(np.arange(num_rows), rows)
            axes.tick_params(length=0)
            for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
                label.set_parse_math(False)  # a $ in a sentence is a dollar
        figure.supxlabel(axis_labels[0])
        figure.supylabel(axis_labels[1])
        figure.colorbar(image, ax=grid, label="attention weight", shrink=0.6, aspect=30, pad=0.01)
    return _close(figure)


def _close(figure: Figure) -> Figure:
    """Take the figure off pyplot's list, so that a notebook shows it once: as the value of its cell."""
    plt.close(figure)
    return figure
