"""Pictures that one notebook alone shows, in the style of ``transformer_lib.notebook.plots``."""

import itertools
import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from transformer_lib.data.tokenizers import SOS
from transformer_lib.notebook.plots import STYLE, WIDTH, new_axes

Prefix = tuple[str, ...]  # of a translation, as tokens
_TREE_LOOKS = {  # text, box, line, line width
    "best": ("white", "#31568c", "#31568c", 2.5),
    "in the beam": ("black", "white", "#31568c", 1.2),
    "cut": ("#5f5f6b", "white", "#d0d0d8", 1.0),
}
_MASK_COLOURS = ListedColormap(["#e4e4ea", "#31568c"])
_SIGNS = LinearSegmentedColormap.from_list("signs", ["#b35806", "#f7f7f9", "#31568c"])
_styled = plt.rc_context(STYLE)  # as a decorator: whatever a function draws is in this style


@_styled
def padding(ids: Tensor, pad_id: int, title: str = "") -> Figure:
    """Notebook 01: draw a batch of ids, ``[batch, seq_len]``, one sentence a row: tokens are dark, padding is light."""
    figure, axes = new_axes(WIDTH, 2.8, grid=False)
    tokens = (ids != pad_id).cpu().numpy()
    axes.imshow(tokens, aspect="auto", interpolation="none", cmap=_MASK_COLOURS, vmin=0, vmax=1)
    axes.locator_params(integer=True)
    axes.set(xlabel="position", ylabel="sentence in the batch", title=title)
    return figure


@_styled
def positions(table: Tensor, title: str = "") -> Figure:
    """Notebook 04: draw a table of position vectors, ``[positions, d_model]``, as a heat map."""
    values = table.detach().float().cpu().numpy()
    limit = float(abs(values).max())
    figure, axes = new_axes(WIDTH, 3.2, grid=False)
    image = axes.imshow(values, aspect="auto", interpolation="none", cmap=_SIGNS, vmin=-limit, vmax=limit)
    axes.set(xlabel="dimension", ylabel="position", title=title)
    figure.colorbar(image, ax=axes, label="value")
    return figure


@_styled
def vectors(vectors: Mapping[str, Sequence[float]]) -> Figure:
    """Notebook 02: draw two-dimensional vectors as arrows from the origin, each with its name at its tip."""
    figure, axes = new_axes(WIDTH, 3.4)
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
def histogram(samples: Mapping[str, Sequence[float]], xlabel: str, ylabel: str) -> Figure:
    """Notebook 09: draw how often values occur, several samples over each other, each as an outline of 30 bins."""
    figure, axes = new_axes(WIDTH, 3.2)
    flat = {name: np.ravel(values) for name, values in samples.items()}
    edges = np.histogram_bin_edges(np.concatenate([*flat.values()]), 30)
    for dashes, (name, values) in zip(itertools.cycle(("-", "--", "-.", ":")), flat.items(), strict=False):
        axes.hist(values, edges, histtype="step", linewidth=1.8, linestyle=dashes, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if len(samples) > 1:
        axes.legend()
    return figure


@_styled
def beam_tree(
    asked: Mapping[tuple[int, ...], Tensor], tokens: Sequence[str], best: Sequence[int], shown: int = 6
) -> Figure:
    """Notebook 07: draw the first steps of a beam search as a tree that grows from left to right, one column a step.

    Args:
        asked: of each prefix in the beam, as ids without ``<sos>``, the log-probabilities of what may follow,
            ``[vocab_size]``; shorter prefixes first. What may follow and is no such prefix itself is pale.
        tokens: from an id to its token.
        best: ids of the translation that won, as many as there are to be steps; its path is dark, along the top.
        shown: how many prefixes a step shows, the most probable ones.
    """
    log_probs: dict[Prefix, float] = {(): 0.0}
    for ids, answer in asked.items():
        path, (values, following) = tuple(tokens[i] for i in ids), answer.topk(min(shown, len(answer)))
        for log_prob, i in zip(values.tolist(), following.tolist(), strict=True):
            log_probs[(*path, tokens[i])] = log_probs[path] + log_prob
    winner, kept, steps = tuple(tokens[i] for i in best), {tuple(tokens[i] for i in ids) for ids in asked}, len(best)
    columns = [[path for path in log_probs if len(path) == step] for step in range(steps + 1)]
    log_probs = {path: log_probs[path] for each in columns for path in sorted(each, key=log_probs.__getitem__)[-shown:]}
    rows: dict[Prefix, int] = {(): 0}
    for step in range(1, steps + 1):  # in the order of their parents, so that no lines cross
        column = [path for path in log_probs if len(path) == step]
        column.sort(key=lambda path: (path != winner[: len(path)], rows[path[:-1]], -log_probs[path]))
        rows |= {path: row for row, path in enumerate(column)}
    pitch = 0.07 * max(map(len, (SOS, *itertools.chain(*log_probs)))) + 0.27  # inches from one column to the next
    depth = max(rows.values())
    figure, axes = new_axes(max(pitch * (steps + 1) + 0.3, WIDTH), 0.5 * (depth + 1) + 0.9, grid=False)
    axes.spines.left.set_visible(False)
    for path, row in rows.items():
        look = "best" if path == winner[: len(path)] else "in the beam" if path in kept else "cut"
        text, fill, line, linewidth = _TREE_LOOKS[look]
        if path:  # a line leaves its parent's box level, bends between the columns, and comes in level
            level, bend = rows[path[:-1]], np.linspace(0, 1, 20)
            x = [len(path) - 1, *(len(path) - 0.62 + 0.24 * bend), len(path)]
            y = [level, *(level + (row - level) * (3 * bend**2 - 2 * bend**3)), row]
            axes.plot(x, y, color=line, linewidth=linewidth, zorder=1)
        label = f"{path[-1]}\n{round(log_probs[path], 2) + 0.0:.2f}" if path else SOS
        box = {"boxstyle": "round,pad=0.25", "facecolor": fill, "edgecolor": line}
        looks = {"fontsize": 9, "linespacing": 1.05, "color": text, "bbox": box}
        axes.text(len(path), row, label, ha="center", va="center", **looks)
    axes.set(xlim=(-0.55, steps + 0.55), ylim=(depth + 0.6, -0.6), yticks=[], xticks=range(1, steps + 1))
    axes.set_xlabel("step (below each token: log-probability of all up to it)")
    handles = [Patch(facecolor=fill, edgecolor=line) for _, fill, line, _ in _TREE_LOOKS.values()]
    figure.legend(handles, list(_TREE_LOOKS), loc="outside upper right", ncols=3)
    return figure
