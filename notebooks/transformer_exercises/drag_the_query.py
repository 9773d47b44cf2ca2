"""Notebook 02: a query that one can drag, and what attention makes of it. Its script lies beside this file."""

import base64
import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformer_exercises import BUT_COMMANDS, KEYS_STAY_HERE
from transformer_exercises.pictures import vectors
from transformer_lib.notebook.attention_viewer import html_table

Vector = Sequence[float]
_HINT = (
    "Scripts do not run here, so the picture stands still. Run this cell (Shift+Enter), and you can drag the query. "
    "On GitHub, no cell runs: open the notebook in Jupyter or Colab."
)


class DragTheQuery:
    """A query to drag by mouse, finger or arrow keys; dot products, weights and the values' average move along.

    Switches leave √d_k out and hide a word. It needs neither a server nor the network. Where scripts do not run, such
    as on GitHub, it is a picture and a table of what it begins with.

    Args:
        query: two numbers. Whatever else there is in a query or a key of ``d_k`` numbers counts as 0.
        keys: two numbers for each word.
        values: two numbers for each word, too.
        d_k: scores are divided by its root.
        hidden: the word that the mask hides once it is switched on.
    """

    def __init__(self, query: Vector, keys: Mapping[str, Vector], values: Sequence[Vector], d_k: int, hidden: str):
        self.query, self.keys, self.values, self.d_k, self.hidden = query, keys, values, d_k, hidden
        self.dots = [query[0] * x + query[1] * y for x, y in keys.values()]
        powers = [math.exp(dot / math.sqrt(d_k)) for dot in self.dots]
        self.weights = [power / sum(powers) for power in powers]

    def __repr__(self) -> str:
        weights = zip(self.keys, self.weights, strict=True)
        return f"query {self.query}, weights: {', '.join(f'{word} {weight:.3f}' for word, weight in weights)}"

    def _repr_html_(self) -> str:
        """Return everything that it needs: each output is self-contained."""
        words, script = [*map(html.escape, self.keys)], Path(__file__).with_suffix(".js").read_text("utf-8")
        given = {"words": words, "query": self.query, "keys": [*self.keys.values()], "values": self.values}
        given |= {"d_k": self.d_k, "hidden": list(self.keys).index(self.hidden)}
        picture = io.BytesIO()
        vectors({"query": self.query, **self.keys}).savefig(picture, format="png")
        rows = [
            (word, f"{dot:.1f}", f"{dot / math.sqrt(self.d_k):.3f}", f"{weight:.3f}", value)
            for word, dot, weight, value in zip(words, self.dots, self.weights, self.values, strict=True)
        ]
        headings = "".join(f"<th>{name}</th>" for name in ("key", "query · key", "÷ √d_k", "weight", "value"))
        return f"""<div class="drag-the-query mathjax_ignore tex2jax_ignore" {KEYS_STAY_HERE} {BUT_COMMANDS}
data-given="{html.escape(json.dumps(given))}">
<img style="max-width: 100%" alt="{html.escape(repr(self))}"
src="data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}">
{html_table(headings, rows)}<p>{_HINT}</p></div>
<script>(() => {{
{script}}})();</script>"""
