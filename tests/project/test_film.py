"""The film of a training that notebooks 00 and 06 show: every epoch is in it, and the slider shows one of them."""

import re

import pytest
import torch
from transformer_exercises.film import Film

from transformer_lib.inference.translator import Translation
from transformer_lib.model.transformer import AttentionMaps

SOURCE = ["<sos>", "▁ein", "▁hund", "<eos>"]
TOKENS = (["▁a", "<eos>"], ["▁a", "▁<b>", "<eos>"], ["▁a", "▁dog", "<eos>"])
LOSSES = [4.0, 3.0, 2.5], [3.5, 2.0, 1.5]


def translations():
    made = []
    for tokens in TOKENS:
        cross = [torch.rand(1, 2, len(tokens), len(SOURCE)).softmax(-1) for _ in range(3)]
        text = " ".join(tokens[:-1]).replace("▁", "")
        made.append(Translation(text, SOURCE, tokens, -1.0, -1.0, AttentionMaps([], [], cross)))
    return made


def test_every_epoch_is_there_without_a_script_and_nothing_is_taken_for_markup():
    page = Film(*LOSSES, translations())._repr_html_()
    assert re.findall(r'<div data-epoch="(\d)">', page) == ["1", "2", "3"]
    assert "training 3.000, validation 2.000<br><b>a &lt;b&gt;</b>" in page
    assert page.count("<rect") == sum(len(tokens) * len(SOURCE) for tokens in TOKENS)
    assert '<label style="display: none">' in page  # a slider that would do nothing is not shown


def test_what_an_untrusted_notebook_shows_of_it_is_sentences():
    """JupyterLab and GitHub leave out scripts, and of everything else, the tags that they do not know."""
    page = Film(*LOSSES, translations())._repr_html_()
    shown = re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<(script|label).*?</\1>", "", page)).split()
    said = " ".join(shown)
    assert said.startswith("after epoch 1: training 4.000, validation 3.500 a after epoch 2:")
    assert "hund" not in said and "run this cell" in said


def test_epochs_that_do_not_fit_and_translations_without_attention_are_named():
    with pytest.raises(ValueError, match=r"\(2, 3, 3\)"):
        Film(LOSSES[0][:2], LOSSES[1], translations())
    without = Translation("a", SOURCE, TOKENS[0], -1.0, -1.0)
    with pytest.raises(ValueError, match="attention=True"):
        Film([1.0], [1.0], [without])


@pytest.mark.parametrize("ends", [(0.05, 0.05), (0.05, 0.06), (0.06, 0.05), (2.5, 1.5)])
def test_the_names_of_two_curves_that_meet_do_not_lie_on_each_other(ends):
    page = Film([4.0, ends[0]], [3.5, ends[1]], translations()[:2])._repr_html_()
    training, validation = (
        float(re.search(rf'y="([\d.]+)"[^>]*>{name}<', page)[1]) for name in ("training", "validation")
    )
    assert abs(training - validation) >= 12
    assert ends[0] == ends[1] or (training < validation) == (ends[0] > ends[1])  # the higher loss on top


def test_the_slider_shows_one_epoch_by_keyboard(browser, tmp_path):
    page_file = tmp_path / "film.html"
    film = Film(*LOSSES, translations())._repr_html_()
    page_file.write_text(f'<!doctype html><meta charset="utf-8"><title>a film</title>{film}{film}', encoding="utf-8")
    page, problems = browser.open(page_file, width=390)
    shown = page.locator("div[data-epoch]:visible")
    assert shown.count() == 2 and "after epoch 3" in shown.first.inner_text()  # two films, each at its end
    page.locator("input").first.focus()
    page.keyboard.press("ArrowLeft")
    assert "after epoch 2" in shown.first.inner_text() and "after epoch 3" in shown.last.inner_text()
    assert page.locator("circle[data-epoch='2']:visible").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= 390") and not problems
