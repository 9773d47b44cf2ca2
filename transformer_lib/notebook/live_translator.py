"""A live translator for notebooks: type a sentence, and see each token chosen, the beam, and the attention."""

import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from transformer_lib.data.tokenizers import UNK
from transformer_lib.inference.search import Hypothesis, beam_search
from transformer_lib.inference.translator import Translation, Translator
from transformer_lib.notebook.attention_viewer import AttentionViewer, readable

_BEAM_SIZE = 4  # the paper's
_ALTERNATIVES = 5
_SECONDS_PER_TOKEN = 0.15  # slow enough to watch
_BAR = "display:inline-block;height:0.5em;width:{:.2f}em;background:currentColor;opacity:0.45"
_BAR_WIDTH = 4  # em, for a probability of 1


@dataclass(frozen=True)
class Step:
    """One step of the decoder.

    Attributes:
        token: what was written.
        probability: the model's, given the source and all that was written before.
        alternatives: the most probable tokens of this step with their probabilities, the most probable first. What was
            written is among them, unless the beam preferred something unlikely.
    """

    token: str
    probability: float
    alternatives: list[tuple[str, float]]


@dataclass(frozen=True)
class Trace:
    """How a sentence was translated.

    Attributes:
        translation: the best of the beam, with attention.
        steps: one for each of its ``tgt_tokens``.
        beams: what beam search returned, best score first: text and hypothesis of each.
        unknown: source tokens that the vocabulary lacks; the model saw ``<unk>`` in their place.
    """

    translation: Translation
    steps: list[Step]
    beams: list[tuple[str, Hypothesis]]
    unknown: list[str]


@torch.inference_mode()
def trace(translator: Translator, sentence: str) -> Trace:
    """Translate a sentence with beam search, and ask the model what else it might have written at each step.

    As in the search, ``<pad>`` and ``<sos>`` are ruled out, so that the steps' probabilities multiply to that of the
    translation.

    Raises:
        ValueError: as ``Translator.translate``.
    """
    translation = translator.translate([sentence], _BEAM_SIZE, attention=True)[0]
    model, field = translator.model, translator.tgt_tokenizer
    src_ids = [translator.src_tokenizer.vocab[token] for token in translation.src_tokens]
    src = torch.tensor([src_ids], device=next(model.parameters()).device)
    hypotheses = beam_search(model, src, field.sos_id, field.eos_id, _BEAM_SIZE, translator.length_penalty)[0]
    ids = hypotheses[0].ids
    logits = model(src, torch.tensor([[field.sos_id, *ids[:-1]]], device=src.device))[0]  # [tgt_len, tgt_vocab_size]
    logits[:, [field.pad_id, field.sos_id]] = -torch.inf
    probabilities = logits.float().softmax(dim=-1)
    largest, tokens = probabilities.topk(min(_ALTERNATIVES, len(field.vocab)))
    steps = [
        Step(
            field.vocab.itos[written],
            row[written].item(),
            [(field.vocab.itos[i], probability) for i, probability in zip(best.tolist(), values.tolist(), strict=True)],
        )
        for written, row, best, values in zip(ids, probabilities, tokens, largest, strict=True)
    ]
    beams = [(field.join(field.decode(hypothesis.ids)), hypothesis) for hypothesis in hypotheses]
    itos = translator.src_tokenizer.vocab.itos
    unknown = [token for token, i in zip(translation.src_tokens, src_ids, strict=True) if itos[i] != token]
    return Trace(translation, steps, beams, unknown)


def to_text(trace: Trace) -> str:
    """Write a trace as plain text."""
    names = _names(trace.steps)
    lines = [_heading(trace)]
    for number, step in enumerate(trace.steps, start=1):
        others = ", ".join(f"{names[token]} {probability:.1%}" for token, probability in step.alternatives)
        lines.append(f"{number:4}  {names[step.token]:16}{step.probability:7.1%}   of {others}")
    lines += [
        f"beam  {text}  (log-probability {beam.log_prob:.3f}, score {beam.score:.3f})" for text, beam in trace.beams
    ]
    return "\n".join(lines)


def to_html(trace: Trace, num_steps: int | None = None) -> str:
    """Write a trace as HTML without scripts: its first ``num_steps`` steps, or all of them and the beam."""
    names = {token: html.escape(name) for token, name in _names(trace.steps).items()}
    steps = [
        (number, f"<strong>{names[step.token]}</strong> {step.probability:.1%}", *_bars(step, names))
        for number, step in enumerate(trace.steps[:num_steps], start=1)
    ]
    parts = [f"<p>{html.escape(_heading(trace))}</p>"]
    parts.append(_table(("Step", "Written", "Most probable tokens"), steps))
    if num_steps is None:
        beams = [
            (rank, html.escape(text), f"{beam.log_prob:.3f}", f"{beam.score:.3f}")
            for rank, (text, beam) in enumerate(trace.beams, start=1)
        ]
        parts.append(_table(("Rank", "In the beam", "Log-probability", "Score"), beams))
    return f'<div class="mathjax_ignore tex2jax_ignore">{"".join(parts)}</div>'


def _heading(trace: Trace) -> str:
    source = f"The model reads: {' '.join(readable(trace.translation.src_tokens))}"
    if trace.unknown:
        source += f" (unknown to it, so read as {UNK}: {', '.join(trace.unknown)})"
    return source


def _names(steps: Sequence[Step]) -> dict[str, str]:
    """Return the steps' tokens as people read them; together, since one alone may not tell that it is a subword."""
    tokens = list(dict.fromkeys(token for step in steps for token in (step.token, *dict(step.alternatives))))
    return dict(zip(tokens, readable(tokens), strict=True))


def _bars(step: Step, names: Mapping[str, str]) -> list[str]:
    """Return the alternatives, each above a bar as long as it is probable; what was written is bold."""
    bars = []
    for token, probability in step.alternatives:
        tag = "strong" if token == step.token else "span"
        bar = f'<span style="{_BAR.format(_BAR_WIDTH * probability)}"></span>'
        bars.append(f"<{tag}>{names[token]} {probability:.1%}</{tag}><br>{bar}")
    return bars


def _table(headings: Sequence[str], rows: Sequence[Sequence]) -> str:
    """Return a table of cells that are HTML already; a narrow page scrolls it sideways.

    The last heading spans the remaining columns.
    """
    style = 'style="text-align:left;vertical-align:top;white-space:nowrap;padding:0.2em 0.8em 0.2em 0"'
    span = len(rows[0]) - len(headings) + 1
    *first, last = [f'<th scope="col" {style}>{heading}</th>' for heading in headings]
    lines = ["".join([*first, last.replace("<th", f'<th colspan="{span}"')])]
    lines += ["".join(f"<td {style}>{cell}</td>" for cell in row) for row in rows]
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div style="overflow-x:auto"><table style="margin:0 0 1em">{table}</table></div>'


class LiveTranslator:
    """A field to type a sentence in, and below it, its translation as it grows, the beam, and the attention.

    The value of a notebook's cell shows it. Where no widgets run, as on GitHub or in an exported page, it shows the
    same for the last sentence, without the field.

    Args:
        translator: what translates.
        sentence: the first one to translate.

    Raises:
        ImportError: ipywidgets is not installed.
    """

    def __init__(self, translator: Translator, sentence: str):
        try:
            import ipywidgets
        except ImportError:
            raise ImportError("LiveTranslator needs ipywidgets: pip install ipywidgets") from None
        self.translator = translator
        self.trace: Trace | None = None
        self._shown = ""
        wide = ipywidgets.Layout(width="100%", max_width="40em")
        self.field = ipywidgets.Text(sentence, description="Sentence", continuous_update=False, layout=wide)
        self.button = ipywidgets.Button(description="Translate")
        self.steps = ipywidgets.HTML()
        self.attention = ipywidgets.Output()
        self.widget = ipywidgets.VBox([self.field, self.button, self.steps, self.attention])
        self._translate(seconds_per_token=0)
        self.field.observe(lambda change: self._translate(), "value")  # with Enter, or when the field is left
        self.button.on_click(lambda button: self._translate())

    def _translate(self, seconds_per_token: float = _SECONDS_PER_TOKEN) -> None:
        """Translate the text in the field; on an error, show it and stay usable."""
        sentence = self.field.value
        if self.trace and sentence == self._shown:  # leaving the field for the button has translated it
            return None
        self.attention.outputs = ()
        if not sentence.strip():
            return self._complain("Type a sentence first.")
        try:
            found = trace(self.translator, sentence)
        except ValueError as error:
            return self._complain(str(error))
        except Exception as error:  # a model of the reader's may fail in any way
            return self._complain(f"The translation failed, with {type(error).__name__}: {error}")
        for number in range(1, len(found.steps) + 1 if seconds_per_token else 1):
            self.steps.value = to_html(found, number)
            time.sleep(seconds_per_token)
        self.trace, self._shown, self.steps.value = found, sentence, to_html(found)
        viewer = AttentionViewer.of_translation(found.translation)
        data = {"text/html": viewer._repr_html_(), "text/plain": repr(viewer)}
        self.attention.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _complain(self, message: str) -> None:
        self.trace, self.steps.value = None, f'<p role="alert">{html.escape(message)}</p>'

    def __repr__(self) -> str:
        return to_text(self.trace) if self.trace else "LiveTranslator"

    def _repr_mimebundle_(self, **kwargs) -> dict:
        """Return the widget, and a static version for where none can run."""
        static = self.steps.value + "".join(output["data"]["text/html"] for output in self.attention.outputs)
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {"application/vnd.jupyter.widget-view+json": view, "text/html": static, "text/plain": repr(self)}
