import copy
import dataclasses
import re

import pytest
import torch
from transformer_exercises import live_translator
from transformer_exercises.live_translator import LiveTranslator, to_html, trace

from transformer_lib import Translator

SENTENCE = "Eine Katze schläft im Garten."


@pytest.fixture(scope="module")
def found(trained):
    return trace(trained, SENTENCE)


@pytest.fixture
def widget(trained, monkeypatch):
    pytest.importorskip("ipywidgets")
    monkeypatch.setattr(live_translator, "_SECONDS_PER_TOKEN", 0.0)
    return LiveTranslator(trained, SENTENCE)


@pytest.fixture
def shown(widget):
    """What IPython sends to a notebook when the widget is a cell's value, and afterwards."""
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.display_pub = CapturingDisplayPublisher()
    shell.display_formatter.format(widget)
    yield shell.display_pub.outputs
    InteractiveShell.clear_instance()


@torch.no_grad()
def test_each_steps_probabilities_are_the_models_own_given_what_is_written(trained, found):
    src_tokenizer, tgt_tokenizer = trained.src_tokenizer, trained.tgt_tokenizer
    src, written = torch.tensor([src_tokenizer.encode(SENTENCE)]), [tgt_tokenizer.sos_id]
    for written_token, probability, alternatives in found.steps:
        log_probs = trained.model(src, torch.tensor([written]))[0, -1].log_softmax(dim=-1)
        log_probs[[tgt_tokenizer.pad_id, tgt_tokenizer.sos_id]] = -torch.inf  # never written
        log_probs -= log_probs.logsumexp(dim=-1)
        token = tgt_tokenizer.vocab.stoi[written_token]
        assert probability == pytest.approx(log_probs[token].exp().item(), rel=1e-4)
        best = log_probs.argsort(descending=True)[:5].tolist()
        assert list(alternatives) == [tgt_tokenizer.vocab.itos[i] for i in best]
        expected = log_probs[best].exp().tolist()
        assert list(alternatives.values()) == pytest.approx(expected, rel=1e-4)
        written.append(token)
    translation = trained.translate([SENTENCE], beam_size=4)[0]
    assert [token for token, _, _ in found.steps] == translation.tgt_tokens


def test_the_steps_multiply_to_the_translations_probability(found):
    log_prob = torch.tensor([probability for _, probability, _ in found.steps]).log().sum().item()
    assert log_prob == pytest.approx(found.translation.log_prob, abs=1e-4)


def test_the_beam_is_that_of_beam_search(trained, found):
    [best] = trained.translate([SENTENCE], beam_size=4, n_best=4)
    assert found.translation == best and found.translation.alternatives == best.alternatives
    assert len({one.text for one in (best, *best.alternatives)}) == 4


def test_dropout_is_off_whatever_mode_the_model_is_in(trained, found):
    training = copy.deepcopy(trained)
    training.model.train()
    for module in training.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    assert trace(training, SENTENCE).steps == trace(training, SENTENCE).steps == found.steps
    assert all(module.training for module in training.model.modules())  # it is the reader's


def test_unknown_words_are_named(trained, found):
    assert found.unknown == []
    assert trace(trained, "Ein Zebra schläft.").unknown == ["zebra"]
    assert "unknown to it, so read as &lt;unk&gt;: zebra" in to_html(trace(trained, "Ein Zebra schläft."))


def test_every_step_and_the_beam_are_shown(found):
    html = to_html(found)
    for _, _, alternatives in found.steps:
        for token, probability in alternatives.items():
            assert f"{token} {probability:.1%}".replace("<", "&lt;").replace(">", "&gt;") in html
    for one in (found.translation, *found.translation.alternatives):
        assert f"{one.log_prob:.3f}" in html
        assert one.text.replace("<", "&lt;").replace(">", "&gt;") in html and f"{one.score:.3f}" in html
    assert html.count("<tr>") == 1 + len(found.steps) + 1 + 4
    assert f"It writes: <strong>{found.translation.text}</strong>" in html
    assert to_html(found, 2).count("<tr>") == 1 + 2


def test_scores_are_said_to_be_of_the_search_that_made_them(trained):
    for length_penalty in (0.6, 3.0):
        translator = Translator(trained.model, trained.src_tokenizer, trained.tgt_tokenizer, 4, length_penalty)
        [best] = translator.translate([SENTENCE])
        html = to_html(trace(translator, SENTENCE))
        assert f"α = {length_penalty:g})" in html and f"{best.score:.3f}" in html


def test_headings_stand_above_all_columns(found):
    for table in re.findall(r"<table.*?</table>", to_html(found)):
        heading, *rows = re.findall(r"<tr>(.*?)</tr>", table)
        spans = [int(span or 1) for span in re.findall(r'<th(?: colspan="(\d+)")?', heading)]
        assert {row.count("<td") for row in rows} == {sum(spans)}


def test_no_token_becomes_a_tag(found):
    hostile = "<img src=x onerror=alert(1)>"
    steps = [(hostile, 0.5, {hostile: 0.5})]
    translation = dataclasses.replace(found.translation, text=hostile, alternatives=[])
    changed = found._replace(steps=steps, unknown=[hostile], translation=translation)
    assert "<img" not in to_html(changed) and to_html(changed).count("&lt;img") == 5


def test_what_is_typed_is_translated(widget, shown, trained):
    shown.clear()
    widget.field.value = "Das Kind schläft."
    assert widget.trace.translation.text == trained("Das Kind schläft.", beam_size=4)
    *steps, last = [output["data"]["text/html"] for output in shown]
    assert [html.count("<tr>") for html in steps] == [*range(2, 2 + len(widget.trace.steps))]  # token by token
    assert to_html(widget.trace) in last and "attention-viewer" in last


def test_what_cannot_be_translated_gets_a_message_and_the_next_sentence_a_translation(widget):
    for sentence, message in (
        ("   ", "expected at least one word"),
        ("Hund " * 199, "has 201 tokens, expected at most 100"),
        ("\ud800 Hund", "\\ud800"),
    ):
        widget.field.value = sentence
        assert message in widget.html and 'role="alert"' in widget.html
        assert "attention-viewer" not in widget.html and widget.trace is None
        widget.field.value = SENTENCE
        assert "a cat is sleeping in the garden" in widget.html and "attention-viewer" in widget.html


def test_a_model_that_fails_gets_a_message_without_a_stack_trace(widget, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(widget.translator.model, "encode", lambda src: 1 / 0)
        widget.field.value = "Ein Hund schläft."
    assert "Not translated (ZeroDivisionError): division by zero" in widget.html
    assert "Traceback" not in widget.html and capsys.readouterr() == ("", "")
    widget.field.value = "Ein Hund schläft"
    assert "a dog is sleeping" in widget.html


def test_what_a_notebook_stores_can_be_read_where_no_widget_runs(widget, shown):
    field, below = (output["data"] for output in shown)
    assert field["application/vnd.jupyter.widget-view+json"]["model_id"] == widget.field.model_id
    assert "Run this cell to type" in field["text/html"] and "Run this cell to type" in field["text/plain"]
    assert {*below} == {"text/html", "text/plain"} and below[
        "text/plain"
    ] == f"LiveTranslator: {SENTENCE} → {widget.trace.translation}"
    assert to_html(widget.trace) in below["text/html"] and "attention-viewer" in below["text/html"]


def test_the_sentence_that_was_typed_last_is_the_one_that_is_stored(widget, shown):
    stored = shown[1]["transient"]["display_id"]
    widget.field.value = "Das Kind schläft."
    assert shown[-1]["update"] and shown[-1]["transient"]["display_id"] == stored
    assert shown[-1]["data"]["text/plain"].startswith("LiveTranslator: Das Kind schläft. → the child")
    assert to_html(widget.trace) in shown[-1]["data"]["text/html"]


def test_shown_twice_both_places_follow_what_is_typed(widget, shown):
    from IPython.core.formatters import DisplayFormatter

    DisplayFormatter().format(widget)
    places = {output["transient"]["display_id"] for output in shown if output.get("transient")}
    assert len(places) == 2
    shown.clear()
    widget.field.value = "Das Kind schläft."
    last = {output["transient"]["display_id"]: output["data"]["text/plain"] for output in shown}
    assert {*last} == places and all("the child" in text for text in last.values())
