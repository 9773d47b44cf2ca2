"""An attention viewer for notebooks and web pages: pick a kind, a layer, a head and a word, and see where it looks."""

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_lib.data.tokenizers import SOS
from transformer_lib.inference.translator import Translation, Translator
from transformer_lib.model.transformer import AttentionMaps

_FOLDER = Path(__file__).parent
_SPACE = "▁"  # how sentencepiece writes it
_CONTINUES = "·"
_STRONGEST = 3  # links a word, where scripts do not run
_HINT = "Scripts do not run here. Run the notebook in Jupyter or Colab to pick a kind, a layer and a head."
# no formulas in it, and JupyterLab leaves the arrow keys to it
_HOST = 'class="attention-viewer mathjax_ignore tex2jax_ignore" data-lm-suppress-shortcuts="true"'


class _Kind(NamedTuple):
    """A kind of attention: its name, what rows and columns are, and the argument that holds the tokens of each."""

    name: str
    row_title: str
    column_title: str
    rows: str
    columns: str


_KINDS = {
    "encoder": _Kind("Encoder self-attention", "Source word", "Source words it looks at", "src_tokens", "src_tokens"),
    "decoder": _Kind("Decoder self-attention", "Target word read", "Words it looks at", "tgt_inputs", "tgt_inputs"),
    "cross": _Kind(
        "Cross-attention", "Target word being written", "Source words looked at", "tgt_tokens", "src_tokens"
    ),
}


class AttentionViewer:
    """Every head of every layer for one sentence: the value of a notebook's cell shows it, ready to be explored.

    It needs neither a server nor the network, so that it works in exported pages too. Where scripts do not run, such as
    on GitHub, it is a table of where each word looks most.

    Args:
        attention: an ``AttentionMaps`` of one sentence, or a mapping from some of its kinds (``"encoder"``,
            ``"decoder"``, ``"cross"``) to the weights of each layer, ``[1, heads, rows, columns]`` or
            ``[heads, rows, columns]``, each from 0 to 1.
        src_tokens: what the encoder saw: rows and columns of ``"encoder"``, columns of ``"cross"``.
        tgt_tokens: what the decoder wrote: rows of ``"cross"``.
        tgt_inputs: what the decoder read: rows and columns of ``"decoder"``. By default, ``<sos>`` and all of
            ``tgt_tokens`` but the last.

    Raises:
        ValueError: a kind is unknown, or weights do not fit the tokens or are no weights.
    """

    def __init__(
        self,
        attention: AttentionMaps | Mapping[str, Sequence[Tensor]],
        src_tokens: Sequence[str] = (),
        tgt_tokens: Sequence[str] = (),
        tgt_inputs: Sequence[str] | None = None,
    ):
        maps = attention._asdict() if isinstance(attention, AttentionMaps) else attention
        if not maps or not set(maps) <= set(_KINDS):
            raise ValueError(f"attention has the kinds {list(maps)}, expected some of {', '.join(_KINDS)}")
        if tgt_inputs is None:
            tgt_inputs = [SOS, *tgt_tokens[:-1]]
        self.tokens = {
            "src_tokens": readable(src_tokens),
            "tgt_tokens": readable(tgt_tokens),
            "tgt_inputs": readable(tgt_inputs),
        }
        self.weights = {kind: self._layers(kind, maps[kind]) for kind in _KINDS if kind in maps}

    @classmethod
    def of(cls, translator: Translator, sentence: str) -> "AttentionViewer":
        """Translate a sentence and show what the heads looked at.

        Raises:
            ValueError: as ``Translator.translate``.
        """
        return cls.of_translation(translator.translate([sentence], attention=True)[0])

    @classmethod
    def of_translation(cls, translation: Translation) -> "AttentionViewer":
        """Show what the heads looked at.

        Args:
            translation: made with ``attention=True``.

        Raises:
            ValueError: the translation has no attention.
        """
        if translation.attention is None:
            raise ValueError("translation has no attention: translate with attention=True")
        return cls(translation.attention, translation.src_tokens, translation.tgt_tokens)

    def __repr__(self) -> str:
        kinds = (
            f"{_KINDS[kind].name}: {len(layers)} layers of {len(layers[0])} heads, {layers[0].shape[1]} rows, "
            f"{layers[0].shape[2]} columns"
            for kind, layers in self.weights.items()
        )
        return "\n".join(["AttentionViewer", *kinds])

    def _repr_html_(self) -> str:
        """Return everything that the viewer needs: each output is self-contained."""
        data = json.dumps([self._data(kind) for kind in self.weights], ensure_ascii=False, separators=(",", ":"))
        data = data.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")  # no tag can end the script
        style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("viewer.css", "viewer.js"))
        return (
            f"<div {_HOST}>\n{self._table()}\n"
            f'<script type="application/json">{data}</script>\n</div>\n'
            f"<script>\n(() => {{\nconst STYLE = {json.dumps(style)};\n{script}}})();\n</script>\n"
        )

    def _layers(self, kind: str, layers: Sequence[Tensor]) -> list[Tensor]:
        """Return the weights of each layer, ``[heads, rows, columns]``, once they are known to fit."""
        _, _, _, rows, columns = _KINDS[kind]
        expected = (len(self.tokens[rows]), len(self.tokens[columns]))
        checked = []
        for number, weights in enumerate(layers, start=1):
            shape = list(weights.shape)
            if len(shape) == 4 and shape[0] == 1:
                weights = weights[0]
            if weights.dim() != 3 or not len(weights) or tuple(weights.shape[1:]) != expected or not all(expected):
                raise ValueError(
                    f"attention: {kind}, layer {number}, has shape {shape}, expected [heads, rows, columns] with "
                    f"{expected[0]} rows for {rows} and {expected[1]} columns for {columns}, of one sentence"
                )
            weights = weights.detach().cpu().double()
            smallest, largest = weights.min().item(), weights.max().item()
            if not (smallest >= 0 and largest <= 1.001):  # 1 may have been rounded up; nan is neither
                raise ValueError(
                    f"attention: {kind}, layer {number}, goes from {smallest:.3g} to {largest:.3g}, expected weights "
                    "from 0 to 1: are these scores from before the softmax?"
                )
            checked.append(weights)
        if not checked:
            raise ValueError(f"attention: {kind} has no layers")
        return checked

    def _data(self, kind: str) -> dict:
        """Return what viewer.js reads: a kind's words, and its weights in thousandths, row after row."""
        name, row_title, column_title, rows, columns = _KINDS[kind]
        return {
            "name": name,
            "rowTitle": row_title,
            "columnTitle": column_title,
            "rows": self.tokens[rows],
            "columns": self.tokens[columns],
            "layers": [torch.round(1000 * layer).int().flatten(1).tolist() for layer in self.weights[kind]],
        }

    def _table(self) -> str:
        """Return the table for where scripts do not run: the first head of the layer that the viewer opens with."""
        kind, layers = list(self.weights.items())[-1]
        name, row_title, column_title, rows, columns = _KINDS[kind]
        caption = f"{name}, layer {len(layers)}, head 1: the largest weights of each word. {_HINT}"
        lines = []
        for word, weights in zip(self.tokens[rows], layers[-1][0], strict=True):
            weights, places = weights.topk(min(_STRONGEST, len(weights)))
            links = zip(places.tolist(), weights.tolist(), strict=True)
            looks = "; ".join(f"{html.escape(self.tokens[columns][i])} {weight:.3f}" for i, weight in links)
            lines.append(f'<tr><th scope="row">{html.escape(word)}</th><td>{looks}</td></tr>')
        return (
            f"<table>\n<caption>{caption}</caption>\n"
            f'<tr><th scope="col">{row_title}</th><th scope="col">{column_title}</th></tr>\n'
            + "\n".join(lines)
            + "\n</table>"
        )


def readable(tokens: Sequence[str]) -> list[str]:
    """Write tokens as people read them.

    Of subwords, those that begin a word lose their ``▁``, and letters that continue one get a ``·`` before them. Spaces
    alone become ``␣``.
    """
    subwords = any(token.startswith(_SPACE) for token in tokens)
    return [_readable(token, subwords) for token in tokens]


def _readable(token: str, subwords: bool) -> str:
    text = token.replace(_SPACE, " ").strip()
    continues = subwords and not token.startswith(_SPACE) and text[:1].isalnum()
    return (_CONTINUES if continues else "") + text or "␣"
