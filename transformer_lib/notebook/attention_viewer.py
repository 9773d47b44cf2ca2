"""An attention viewer for notebooks and web pages: pick a kind, a layer, a head and a word, and see where it looks."""

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from transformer_lib.data.tokenizers import SOS
from transformer_lib.inference.translator import Translation
from transformer_lib.model.transformer import AttentionMaps

_FOLDER = Path(__file__).parent
_SPACE = "▁"  # how sentencepiece writes it
_STRONGEST = 3  # links a word, where scripts do not run
_MOST_WEIGHTS = 3_000_000  # about 10 MB of HTML, which every copy of the notebook carries along
_HINT = "Scripts do not run here. Run the notebook in Jupyter or Colab to pick a kind, a layer and a head."
# no formulas in it, and JupyterLab leaves the arrow keys to it
_HOST = 'class="attention-viewer mathjax_ignore tex2jax_ignore" data-lm-suppress-shortcuts="true"'


_KINDS = {  # the name of each, and what its rows and columns are
    "self": ("Self-attention", "Word", "Words it looks at"),
    "encoder": ("Encoder self-attention", "Source word", "Source words it looks at"),
    "decoder": ("Decoder self-attention", "Target word read", "Words it looks at"),
    "cross": ("Cross-attention", "Target word being written", "Source words looked at"),
}
_FIELDS = "name", "rowTitle", "columnTitle", "rows", "columns", "layers"  # of a kind, as viewer.js reads them


class AttentionViewer:
    """Every head of every layer for one sentence: the value of a notebook's cell shows it, ready to be explored.

    It needs neither a server nor the network, so that it works in exported pages too. Where scripts do not run, such as
    on GitHub, it is a table of where each word looks most.

    Args:
        attention: an ``AttentionMaps`` of one sentence, or a mapping from some of the kinds ``"encoder"``,
            ``"decoder"`` and ``"cross"`` to the weights of each layer, ``[1, heads, rows, columns]`` or
            ``[heads, rows, columns]``, each from 0 to 1. The one kind of a model with a single stack, such as BERT or
            GPT, is ``"self"``. Hugging Face's ``attentions``, ``decoder_attentions`` and so on fit as they are.
        src_tokens: what the encoder saw: rows and columns of ``"self"`` and ``"encoder"``, columns of ``"cross"``.
        tgt_tokens: what the decoder wrote: rows of ``"cross"``. It read ``<sos>`` and all of them but the last: rows
            and columns of ``"decoder"``.

    Raises:
        ValueError: a kind is unknown, weights do not fit the tokens or are not between 0 and 1, or there are too many
            for one page.
    """

    def __init__(
        self,
        attention: AttentionMaps | Mapping[str, Sequence[Tensor]],
        src_tokens: Sequence[str] = (),
        tgt_tokens: Sequence[str] = (),
    ):
        maps = attention._asdict() if isinstance(attention, AttentionMaps) else attention
        if not maps or not set(maps) <= set(_KINDS):
            raise ValueError(f"attention has the kinds {list(maps)}, expected some of {', '.join(_KINDS)}")
        maps = {kind: [] if layers is None else [*layers] for kind, layers in maps.items()}
        source, target, read = map(readable, (src_tokens, tgt_tokens, [SOS, *tgt_tokens[:-1]]))
        encoder, decoder, cross = (source, source), (read, read), (target, source)
        tokens = {"self": encoder, "encoder": encoder, "decoder": decoder, "cross": cross}
        kinds = [kind for kind in _KINDS if kind in maps]
        for kind in kinds:
            _check_weights(kind, maps[kind], *map(len, tokens[kind]))
        size = sum(weights.numel() for kind in kinds for weights in maps[kind])
        if size > _MOST_WEIGHTS:
            raise ValueError(
                f"attention has {size:,} weights, expected at most {_MOST_WEIGHTS:,}, all of which the page holds: "
                "show a shorter text, fewer kinds, or the first heads only, such as [layer[:, :2] for layer in layers]"
            )
        self.kinds = []
        for kind in kinds:
            rows, columns = tokens[kind]
            thousandths = ((1000 * weights.detach().cpu().double()).round().int() for weights in maps[kind])
            layers = [layer.reshape(-1, len(rows) * len(columns)).tolist() for layer in thousandths]  # a list a head
            self.kinds.append(dict(zip(_FIELDS, (*_KINDS[kind], rows, columns, layers), strict=True)))

    @classmethod
    def of_translation(cls, translation: Translation) -> "AttentionViewer":
        """Show what the heads looked at.

        Raises:
            ValueError: the translation has no attention: it was not made with ``attention=True``.
        """
        if translation.attention is None:
            raise ValueError("translation has no attention: translate with attention=True")
        return cls(translation.attention, translation.src_tokens, translation.tgt_tokens)

    def __repr__(self) -> str:
        return f"AttentionViewer: {', '.join(kind['name'] for kind in self.kinds)}"

    def _repr_html_(self) -> str:
        """Return everything that the viewer needs: each output is self-contained."""
        data = json.dumps(self.kinds, ensure_ascii=False, separators=(",", ":"))
        data = data.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")  # no tag can end the script
        style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("viewer.css", "viewer.js"))
        return (
            f"<div {_HOST}>\n{self._table()}\n"
            f'<script type="application/json">{data}</script>\n</div>\n'
            f"<script>\n(() => {{\nconst STYLE = {json.dumps(style)};\n{script}}})();\n</script>\n"
        )

    def _table(self) -> str:
        """Return the table for where scripts do not run: the first head of the layer that the viewer opens with."""
        name, row_title, column_title, rows, columns, layers = self.kinds[-1].values()
        caption = f"{name}, layer {len(layers)}, head 1: the largest weights of each word. {_HINT}"
        lines = [f'<tr><th scope="col">{row_title}</th><th scope="col">{column_title}</th></tr>']
        words = [html.escape(column) for column in columns]
        for row, word in enumerate(rows):
            weights = layers[-1][0][row * len(words) :][: len(words)]
            strongest = sorted(zip(weights, words, strict=True), key=lambda link: -link[0])[:_STRONGEST]
            looks = "; ".join(f"{other} {weight / 1000:.3f}" for weight, other in strongest)
            lines.append(f'<tr><th scope="row">{html.escape(word)}</th><td>{looks}</td></tr>')
        return "\n".join(["<table>", f"<caption>{caption}</caption>", *lines, "</table>"])


def _check_weights(kind: str, layers: Sequence[Tensor], rows: int, columns: int) -> None:
    """Raise a ValueError if these are not the weights of one sentence, with so many rows and columns."""
    if not layers or any(weights is None for weights in layers):
        raise ValueError(
            f"attention: {kind} has no weights: was the model asked for them? One of Hugging Face's is made with "
            "attn_implementation='eager' and called with output_attentions=True"
        )
    for number, weights in enumerate(layers, start=1):
        where, shape = f"attention: {kind}, layer {number},", list(weights.shape)
        if len(shape) not in (3, 4) or shape[-2:] != [rows, columns] or shape[:-3] not in ([], [1]) or 0 in shape:
            raise ValueError(f"{where} has shape {shape}, expected [heads, {rows}, {columns}], of one sentence")
        if not (weights.min() >= 0 and weights.max() <= 1.001):  # 1 may have been rounded up; nan is neither
            found = f"goes from {weights.min():.3g} to {weights.max():.3g}"
            raise ValueError(f"{where} {found}, expected 0 to 1: are these scores from before the softmax?")


def readable(tokens: Sequence[str]) -> list[str]:
    """Write tokens as people read them.

    Of subwords, those that begin a word lose their ``▁``, and letters that continue one get a ``·`` before them. Spaces
    alone become ``␣``.
    """
    subwords = any(token.startswith(_SPACE) for token in tokens)
    texts = []
    for token in tokens:
        text = token.replace(_SPACE, " ").strip()
        continues = subwords and not token.startswith(_SPACE) and text[:1].isalnum()
        texts.append(("·" if continues else "") + text or "␣")
    return texts
