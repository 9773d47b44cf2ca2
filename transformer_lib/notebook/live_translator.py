"""A live translator for notebooks: type a sentence, and see each token chosen, the beam, and the attention."""

import html
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from transformer_lib.data.tokenizers import UNK
from transformer_lib.inference.search import Hypothesis, beam_search
from transformer_lib.inference.translator import Translator
from transformer_lib.model.transformer import AttentionMaps
from transformer_lib.notebook.attention_viewer import AttentionViewer, readable

_BEAM_SIZE = 4  # the paper's
_ALTERNATIVES = 5
_SECONDS_PER_TOKEN = 0.15  # slow enough to watch
_BAR = '<span style="display:inline-block;height:0.5em;width:{:.2f}em;background:currentColor;opacity:0.45"></span>'
_BAR_WIDTH = 4  # em, for a probability of 1


class Trace(NamedTuple):
    """How a sentence was translated.

    Attributes:
        src_tokens: what the encoder saw.
        unknown: those that the vocabulary lacks; the model saw ``<unk>`` in their place.
        steps: of the best translation: the token that was written, its probability, and the most probable tokens.
        beams: what beam search returned, best score first: text and hypothesis of each.
        attention: of the best translation.
    """

    src_tokens: list[str]
    unknown: list[str]
    steps: list[tuple[str, float, dict[str, float]]]
    beams: list[tuple[str, Hypothesis]]
    attention: AttentionMaps


@torch.inference_mode()
def trace(translator: Translator, sentence: str) -> Trace:
    """Translate a sentence with beam search, and ask the model what else it might have written at each step.

    As in the search, ``<pad>`` and ``<sos>`` are ruled out, so that the steps' probabilities multiply to that of the
    translation.

    Raises:
        ValueError: as ``Translator.translate``.
    """
    model, src_vocab, tokenizer = translator.model, translator.src_tokenizer.vocab, translator.tgt_tokenizer
    src_tokens, itos = translator.source_tokens(sentence), tokenizer.vocab.itos
    src = torch.tensor([[src_vocab[token] for token in src_tokens]], device=next(model.parameters()).device)
    hypotheses = beam_search(model, src, tokenizer.sos_id, tokenizer.eos_id, _BEAM_SIZE, translator.length_penalty)[0]
    tgt = torch.tensor([[tokenizer.sos_id, *hypotheses[0].ids[:-1]]], device=src.device)
    logits = model(src, tgt)[0].float()  # [tgt_len, tgt_vocab_size]
    logits[:, [tokenizer.pad_id, tokenizer.sos_id]] = -torch.inf
    steps = []
    for written, probabilities in zip(hypotheses[0].ids, logits.softmax(dim=-1), strict=True):
        largest, best = probabilities.topk(min(_ALTERNATIVES, len(itos)))
        alternatives = dict(zip([itos[i] for i in best.tolist()], largest.tolist(), strict=True))
        steps.append((itos[written], probabilities[written].item(), alternatives))
    beams = [(tokenizer.join(tokenizer.decode(hypothesis.ids)), hypothesis) for hypothesis in hypotheses]
    unknown = [token for token in src_tokens if token not in src_vocab]
    return Trace(src_tokens, unknown, steps, beams, model.attention_maps(src, tgt))


def to_html(trace: Trace, num_steps: int | None = None) -> str:
    """Write a trace as HTML without scripts: its first ``num_steps`` steps, or all of them and the beam."""
    source = f"The model reads: {' '.join(readable(trace.src_tokens))}"
    if trace.unknown:
        source += f" (unknown to it, so read as {UNK}: {', '.join(trace.unknown)})"
    tokens = [token for written, _, alternatives in trace.steps for token in (written, *alternatives)]
    names = dict(zip(tokens, map(html.escape, readable(tokens)), strict=True))
    steps = []
    for number, (written, probability, alternatives) in enumerate(trace.steps[:num_steps], start=1):
        row = [number, f"<strong>{names[written]}</strong> {probability:.1%}"]
        for token, share in alternatives.items():
            tag = "strong" if token == written else "span"
            row.append(f"<{tag}>{names[token]} {share:.1%}</{tag}><br>{_BAR.format(_BAR_WIDTH * share)}")
        steps.append(row)
    shown = f"<p>{html.escape(source)}</p>" + _table(("Step", "Written", "Most probable tokens"), steps)
    if num_steps is None:
        beams = [
            (rank, html.escape(text), f"{beam.log_prob:.3f}", f"{beam.score:.3f}")
            for rank, (text, beam) in enumerate(trace.beams, start=1)
        ]
        shown += _table(("Rank", "In the beam", "Log-probability", "Score"), beams)
    return f'<div class="mathjax_ignore tex2jax_ignore">{shown}</div>'


def _table(headings: Sequence[str], rows: Sequence[Sequence]) -> str:
    """Return a table of cells that are HTML already; its last heading spans the remaining columns."""
    style = 'style="text-align:left;vertical-align:top;white-space:nowrap;padding:0.2em 0.8em 0.2em 0"'
    *first, last = headings
    lines = ["".join(f'<th scope="col" {style}>{heading}</th>' for heading in first)]
    lines[0] += f'<th colspan="{len(rows[0]) - len(first)}" scope="col" {style}>{last}</th>'
    lines += ["".join(f"<td {style}>{cell}</td>" for cell in row) for row in rows]
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div style="overflow-x:auto"><table style="margin:0 0 1em">{table}</table></div>'  # narrow pages scroll it


class LiveTranslator:
    """A field to type a sentence in, and below it, its translation as it grows, the beam, and the attention.

    The value of a notebook's cell shows it. Where no widgets run, as on GitHub or in an exported page, it shows the
    same for the last sentence, without the field. It needs ipywidgets.

    Args:
        translator: what translates.
        sentence: the first one to translate.
    """

    def __init__(self, translator: Translator, sentence: str):
        import ipywidgets

        self.translator = translator
        self.trace: Trace | None = None
        wide = ipywidgets.Layout(width="100%", max_width="40em")
        self.field = ipywidgets.Text(sentence, description="Sentence", continuous_update=False, layout=wide)
        self.steps = ipywidgets.HTML()
        self.attention = ipywidgets.Output()
        self.widget = ipywidgets.VBox([self.field, self.steps, self.attention])
        self._translate(seconds_per_token=0)
        self.field.observe(lambda change: self._translate(), "value")  # with Enter, or when the field is left

    def _translate(self, seconds_per_token: float = _SECONDS_PER_TOKEN) -> None:
        """Translate the text in the field; on an error, show it and stay usable."""
        self.attention.outputs = ()
        try:
            found = trace(self.translator, self.field.value)
        except Exception as error:  # a model of the reader's may fail in any way
            message = html.escape(f"Not translated ({type(error).__name__}): {error}")
            self.trace, self.steps.value = None, f'<p role="alert">{message}</p>'
            return
        for number in range(1, len(found.steps) + 1 if seconds_per_token else 1):
            self.steps.value = to_html(found, number)
            time.sleep(seconds_per_token)
        self.trace, self.steps.value = found, to_html(found)
        viewer = AttentionViewer(found.attention, found.src_tokens, [token for token, _, _ in found.steps])
        data = {"text/html": viewer._repr_html_(), "text/plain": repr(viewer)}
        self.attention.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _repr_mimebundle_(self, **kwargs) -> dict:
        """Return the widget, and a static version for where none can run."""
        static = self.steps.value + "".join(output["data"]["text/html"] for output in self.attention.outputs)
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        plain = f"LiveTranslator: {self.field.value}"
        return {"application/vnd.jupyter.widget-view+json": view, "text/html": static, "text/plain": plain}
