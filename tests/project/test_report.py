"""The report of one's own run: its numbers are sacreBLEU's, it needs nothing else, and it is complete or not there."""

import html
import json
import math
import os
import re
import shlex
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
import torch
from conftest import PAIRS
from transformer_exercises import report_page, taking_home
from transformer_exercises.__main__ import main
from transformer_exercises.report import (
    DRAWS,
    EPOCHS_FILE,
    REPORT_FILE,
    SEED,
    Report,
    keep_epochs,
    report,
    write_report,
)

from transformer_lib import TransformerConfig, cli
from transformer_lib.checkpoint import MODEL_FILE, save_model
from transformer_lib.data.corpora import Corpus, Pair
from transformer_lib.inference import bleu
from transformer_lib.training.loop import History
from transformer_lib.training.recipe import RECIPES

RESULTS = (Path(__file__).parents[2] / "book" / "results.md").read_text(encoding="utf-8")
HOSTILE = "Ein <script>alert(1)</script> & ein Hund schläft."
TEST = [
    *PAIRS,
    Pair("Ein Kind schläft im Garten.", "A child sleeps in the <b>garden</b> & dreams."),
    Pair("Die Frau liest.", "The woman is reading a newspaper, and she is happy."),
    Pair(HOSTILE, "A <script>alert(2)</script> dog is sleeping."),
]
THROUGH_EPOCHS = [["a a <img src=x onerror=alert(3)>", "a dog"], ["a dog is sleeping.", "a cat is sleeping."]]
HISTORY = History([4.0, 2.5], [3.25, 1.75], [1.0, 1.0], [2, 4], 5.0)


class Page(HTMLParser):
    """What a browser would load and run of a page, and its text."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.loads, self.handlers, self.words = [], [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            self.handlers += [name] if name.startswith("on") else []
            loads = name in ("src", "srcset", "data", "poster", "background") or (name == "href" and tag != "a")
            self.loads += [value] if loads else []

    def handle_data(self, text):
        self.words.append(text)


def said(source):
    return " ".join(" ".join(Page(source).words).split())


@pytest.fixture
def corpus():
    return Corpus("tiny", "de", "en", pairs={"train": list(PAIRS), "val": list(PAIRS), "test": list(TEST)})


@pytest.fixture
def run(trained, tmp_path):
    """The folder of a run as notebook 06 leaves it."""
    folder = tmp_path / "runs" / "mine"
    tokenizers = {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}
    save_model(folder / MODEL_FILE, trained.model, tokenizers, {"corpus": "tiny"})
    keep_epochs(folder, HISTORY.train_loss, HISTORY.val_loss, [TEST[0], TEST[-1]], THROUGH_EPOCHS)
    return folder


def text_of(run, corpus, **options):
    return write_report(run, corpus, device="cpu", **options).read_text(encoding="utf-8")


def table_of(source):
    """The rows of scores: BLEU, its interval, and sacreBLEU's signature."""
    rows = re.findall(r'<td class="number">([\d.]+)</td><td class="number">([^<]+)</td></tr>', source)
    signatures = re.findall(r'<td class="signature"[^>]*><code>([^<]+)</code>', source)
    return [(*row, signature) for row, signature in zip(rows, signatures, strict=True)]


# Numbers


def test_scores_are_sacrebleus_and_what_evaluate_prints(trained, run, corpus):
    sources, references = [pair.src for pair in TEST], [pair.tgt for pair in TEST]
    rows = table_of(text_of(run, corpus))
    assert len(rows) == 3
    for row, (size, penalty) in zip(rows, [(1, 0.0), (4, 1.0), (4, 1.0)], strict=True):
        translations = trained.translate(sources, size, penalty)
        by_words, by_papers = bleu.score(translations, references, trained.tgt_tokenizer)
        if row is rows[2]:
            texts = [translation.text for translation in translations]
            metric = sacrebleu.BLEU(lowercase=True)
            assert row[0] == f"{metric.corpus_score(texts, [references]).score:.2f}" == f"{by_papers.value:.2f}"
            assert row[2] == str(metric.get_signature())
        else:
            assert row[0] == f"{by_words.value:.2f}"
            assert "tok:none" in row[2]
    assert 0 < float(rows[0][0]) < 100


def test_an_interval_is_the_middle_of_what_sacrebleu_gives_to_drawn_test_sets(trained, run, corpus):
    sources, references = [pair.src for pair in TEST], [pair.tgt for pair in TEST]
    translations = trained.translate(sources, 1)
    hypotheses = [" ".join(translation.tokens) for translation in translations]
    references = [" ".join(trained.tgt_tokenizer.words(reference)) for reference in references]
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    scores = []
    for pick in np.random.default_rng(SEED).choice(len(TEST), size=(DRAWS, len(TEST))):
        drawn = [[side[place] for place in pick] for side in (hypotheses, references)]
        scores.append(metric.corpus_score(drawn[0], [drawn[1]]).score)
    low, high = np.quantile(scores, [0.025, 0.975])
    assert table_of(text_of(run, corpus))[0][1] == f"{low:.2f} to {high:.2f}"


def test_where_nothing_matches_there_is_a_score_and_no_interval(run, corpus):
    corpus.pairs["test"] = [Pair("Ein Hund schläft.", "An entirely different sentence with other words.")]
    rows = table_of(text_of(run, corpus))
    assert [row[1] for row in rows] == ["–"] * 3 and rows[0][0] == "0.00"


def test_the_best_is_none_that_it_has_learned_from_and_the_worst_has_the_least_chrf(trained, run, corpus):
    source = text_of(run, corpus)
    translations = trained.translate([pair.src for pair in TEST], 4, 1.0)
    metric = sacrebleu.CHRF(lowercase=True)
    scores = [metric.sentence_score(one.text, [pair.tgt]).score for one, pair in zip(translations, TEST, strict=True)]
    titles = re.findall(r"<h3>(?:The best|The worst)[^<]*: ([\d.]+)</h3>", source)
    assert titles == [f"{max(scores[len(PAIRS) :]):.1f}", f"{min(scores):.1f}"]
    assert max(scores) == 100 and titles[0] != "100.0"  # it knows the training sentences by heart


def test_ribbons_are_as_wide_as_the_attention_and_name_it(trained, run, corpus):
    source = text_of(run, corpus)
    (translation,) = trained.translate(["Der Mann hebt den Ball auf."], 4, 1.0, attention=True)
    drawn = re.findall(r'stroke-width="([\d.]+)"><title>(\S+) looks at (\S+): ([\d.]+)</title>', source)
    drawn = [tuple(map(html.unescape, one)) for one in drawn]
    assert drawn
    found = []
    for weights in translation.attention.cross:
        mean = weights[0].mean(dim=0)
        found.append(
            {
                (tgt, src): mean[i, j].item()
                for i, tgt in enumerate(translation.tgt_tokens)
                for j, src in enumerate(translation.src_tokens)
            }
        )
    said_of = {(tgt, src): float(weight) for _, tgt, src, weight in drawn}
    assert any(all(abs(layer.get(pair, 9) - weight) < 6e-4 for pair, weight in said_of.items()) for layer in found)
    widths = [float(width) / float(weight) for width, _, _, weight in drawn]
    assert max(widths) / min(widths) < 1.03  # rounded
    assert not {"<sos>", "<eos>", "."} & {word for pair in said_of for word in pair}


def test_the_tutorials_stand_beside_it_only_where_they_were_measured(run, corpus):
    assert "other sentences" in said(text_of(run, corpus))
    same = replace(corpus, name="multi30k", splits=("train", "val", "test_2016_flickr"))
    same.pairs["test_2016_flickr"] = list(TEST)
    source = text_of(run, same)
    assert "on the same sentences" in said(source) and "var(--band)" in source.partition("<body>")[2]
    published = re.search(r"Six revisions .*? scores: ([^B]+) BLEU", RESULTS, re.DOTALL)[1]
    scores = [float(score) for score in re.findall(r"[\d.]+\d", published)]
    assert len(scores) == 6 and (min(scores), max(scores)) == report_page.TUTORIALS_BLEU


def test_a_run_gives_the_same_report_twice(run, corpus):
    assert text_of(run, corpus) == text_of(run, corpus)


# What it shows of a run


def test_the_epochs_are_all_there_and_shared_words_are_bold(run, corpus):
    source = text_of(run, corpus)
    for texts in THROUGH_EPOCHS:
        for text in texts:
            assert " ".join(text.split()) in said(source)
    first, second = re.findall(r"<polyline", source), re.findall(r"<circle[^>]*r=\"3.5\"", source)
    assert (len(first), len(second)) == (2, 4)
    assert "<dt>epoch 2</dt><dd><bdi><b>a</b> <b>dog</b> <b>is</b> <b>sleeping.</b></bdi></dd>" in source
    assert "3.25 nats" in said(source) and "ends at 1.75" in said(source)


def test_what_a_run_has_not_kept_is_named_and_the_rest_is_shown(trained, run, corpus):
    (run / EPOCHS_FILE).unlink()
    source = text_of(run, corpus)
    missing = re.findall(r'<p class="missing">(.*?)</p>', source, re.DOTALL)
    assert ["losses" in missing[0], "translations" in missing[1], "my_transformer.py" in missing[2]] == [True] * 3
    assert "how it was trained" in missing[3] and len(missing) == 4
    assert all("notebook" in text.lower() for text in missing)  # how to get it
    assert len(table_of(source)) == 3 and "<polyline" not in source


@pytest.fixture
def by_the_library(trained, tmp_path):
    """A folder as ``transformer-lib train`` leaves it."""
    recipe = replace(RECIPES["small"], epochs=2, seed=7, label_smoothing=0.25)
    notes = {"corpus": ["sample"], "preset": "small", "recipe": asdict(recipe), "history": asdict(HISTORY)}
    tokenizers = {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}
    save_model(tmp_path / "library" / MODEL_FILE, trained.model, tokenizers, notes)
    return tmp_path / "library"


def test_a_run_of_the_command_has_its_curve_and_the_command_that_repeats_it(trained, by_the_library, corpus):
    source = text_of(by_the_library, corpus)
    assert "3.25 nats" in said(source) and source.count("<polyline") == 2
    command = html.unescape(re.sub("<[^>]*>", "", re.search(r"The training</h3><pre>(.*?)</pre>", source)[1]))
    options = vars(cli.parser().parse_args(shlex.split(command)[1:]))
    assert (options["preset"], options["epochs"], options["seed"]) == ("small", 2, 7)
    config, changes = trained.model.config, dict(options["changes"])
    assert changes.pop("label_smoothing") == 0.25
    sizes = config.src_vocab_size, config.tgt_vocab_size
    assert TransformerConfig.preset("small", *sizes, **changes) == config


@pytest.mark.parametrize(
    "history",
    [[], {"train_loss": [1.0]}, {"train_loss": [1.0], "val_loss": ["<b>"]}, {"train_loss": [], "val_loss": []}],
)
def test_a_history_that_is_none_counts_as_missing(trained, tmp_path, corpus, history):
    tokenizers = {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}
    save_model(tmp_path / MODEL_FILE, trained.model, tokenizers, {"history": history})
    assert "kept no losses" in said(text_of(tmp_path, corpus))


def test_the_readers_parts_are_those_that_my_transformer_counts(run, corpus):
    mine = {"padding_mask", "Transformer", "corpus_bleu"}
    file = run.parent / taking_home.FILE
    for parts in (mine, set(taking_home.PARTS), set()):
        file.write_text(taking_home._head(parts) + "\nimport torch\n", encoding="utf-8")
        assert taking_home.whose(file) == parts
    file.write_text(taking_home._head(mine), encoding="utf-8")
    source = text_of(run, corpus)
    assert f"3 of the {len(taking_home.PARTS)} parts" in said(source)
    rows = dict(re.findall(r"<dt>notebook (\d\d)</dt>((?:<dd>.*?</dd>)+)", source))
    assert rows["05"] == "<dd>yours: <code>Transformer</code></dd>"
    assert rows["03"].startswith(
        "<dd>yours: <code>padding_mask</code></dd><dd>the course's: <code>causal_mask</code>, "
    )
    for text in ("", taking_home._head(mine).replace("3 of", "4 of"), "print('mine')"):
        file.write_text(text, encoding="utf-8")
        assert taking_home.whose(file) is None
    assert "don't count" in said(text_of(run, corpus))


# One page, safe and self-contained


def test_nothing_of_a_sentence_is_taken_for_markup(run, corpus):
    corpus.pairs["test"] = [TEST[-1]]
    source = text_of(run, corpus)
    page = Page(source)
    assert not page.handlers and not {"script", "img", "iframe", "object", "embed"} & {*page.tags}
    assert "<script" not in source and html.escape(HOSTILE) in source
    assert "alert(1)" in said(source) and "alert(2)" in said(source) and "alert(3)" in said(source)


def test_nothing_is_loaded_and_no_script_runs(run, corpus):
    source = text_of(run, corpus)
    page = Page(source)
    assert not page.loads and "link" not in page.tags and "script" not in page.tags
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)[1]
    assert not re.search(r"url\(|@import|@font-face", style)


def luminance(colour):
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_words_stand_out_in_the_light_and_in_the_dark():
    palettes = [
        dict(re.findall(r"--([\w-]+): (#\w{6})", block))
        for block in re.findall(r":root \{(.*?)\}", report_page._STYLE, re.DOTALL)
    ]
    assert len(palettes) == 2 and palettes[0].keys() == palettes[1].keys()
    pages = [luminance(palette["page"]) for palette in palettes]
    assert pages[1] < 0.05 < 0.9 < pages[0]
    for palette, page in zip(palettes, pages, strict=True):
        for name in palette.keys() - {"page", "edge", "panel", "band"}:
            dark, light = sorted((page, luminance(palette[name])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, name


def test_a_browser_shows_it_light_dark_and_narrow_and_prints_it_light(run, corpus, browser):
    file = write_report(run, corpus, device="cpu")
    shown = {}
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            page, problems = browser.open(file, width=width, colour_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width and not problems
            shown[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
            if width == 390:  # the smallest letters of its drawings
                sizes = page.evaluate(
                    "[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height)"
                )
                assert min(sizes) >= 11
        page.emulate_media(media="print", color_scheme=scheme)
        ink = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()")
        assert luminance(ink) < 0.1  # dark on paper
        page.emulate_media(media="screen", color_scheme=scheme)
    assert shown["light"] != shown["dark"]


def test_the_stylesheet_knows_paper():
    printed = report_page._STYLE.partition("@media print")[2]
    assert "size: A4" in report_page._STYLE and "break-inside: avoid" in printed
    assert "@media screen and (prefers-color-scheme: dark)" in report_page._STYLE  # so that paper is light


# Complete, or not there


def test_a_full_disk_or_an_interruption_leaves_the_report_that_was_there(run, corpus, almost_full_disk, monkeypatch):
    (run / REPORT_FILE).write_text("an older one", encoding="utf-8")
    before = sorted(path.name for path in run.iterdir())
    with almost_full_disk(), pytest.raises(OSError, match=REPORT_FILE):
        write_report(run, corpus, device="cpu")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_report(run, corpus, device="cpu")
    assert (run / REPORT_FILE).read_text(encoding="utf-8") == "an older one"
    assert sorted(path.name for path in run.iterdir()) == before


def test_bad_input_is_one_line_and_writes_nothing(run, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / MODEL_FILE).write_bytes(b"no model")
    cases = {
        str(tmp_path / "nowhere"): (["--corpus", "sample"], "nowhere"),
        str(tmp_path / "empty"): (["--corpus", "sample"], MODEL_FILE),
        str(tmp_path / "broken"): (["--corpus", "sample"], "broken"),
        str(run): (["--corpus", "sample", "--test", "exam"], "exam"),
        f"{run}/": (["--corpus", "no-such-folder"], "no-such-folder"),
        f"{run}/.": (["--corpus", "sample", "--output", str(tmp_path / "a" / "b.html")], "output"),
    }
    for name, (options, expected) in cases.items():
        assert main(["report", name, *options]) == 1
        printed = capsys.readouterr()
        assert expected in printed.err and len(printed.err.splitlines()) == 1 and not printed.out
    (run / EPOCHS_FILE).write_text('{"train_loss": [1, 2]}', encoding="utf-8")
    assert main(["report", str(run), "--corpus", "sample"]) == 1
    assert EPOCHS_FILE in capsys.readouterr().err
    assert not [*tmp_path.rglob("*.html")]


def test_the_command_says_where_its_report_is(run, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split in ("train", "val", "test"):
        for language, side in (("de", 0), ("en", 1)):
            lines = "".join(f"{pair[side]}\n" for pair in TEST[:6])
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["report", "runs/mine", "--corpus", "corpus", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith(f"runs/mine/{REPORT_FILE}: ")
    assert "report runs/mine --corpus" in said((run / REPORT_FILE).read_text(encoding="utf-8"))


def test_only_sentences_that_the_model_can_read_are_measured_and_the_others_counted(run, corpus):
    corpus.pairs["test"] = [*TEST[:3], Pair("", "Nothing."), Pair("Ein " * 500, "A."), Pair("Ein Hund.", "")]
    assert "3 sentences" in said(text_of(run, corpus)) and "3 more" in said(text_of(run, corpus))
    corpus.pairs["test"] = [Pair("", "")]
    with pytest.raises(ValueError, match="test is 'test'"):
        write_report(run, corpus, device="cpu")


# What notebooks 06 and 09 call


def test_epochs_are_kept_as_far_as_they_came_to_their_end(tmp_path):
    keep_epochs(tmp_path, [3.0, 2.0], [2.5], PAIRS[:1], [["a dog"]])  # interrupted within epoch 2
    kept = json.loads((tmp_path / EPOCHS_FILE).read_text(encoding="utf-8"))
    assert (kept["train_loss"], kept["val_loss"]) == ([3.0], [2.5])
    assert kept["sentences"] == [{"src": PAIRS[0].src, "tgt": PAIRS[0].tgt, "translations": ["a dog"]}]
    with pytest.raises(ValueError, match="val_losses"):
        keep_epochs(tmp_path, [3.0, 2.0], [2.5], PAIRS[:1], [["a dog"], ["a dog"]])
    with pytest.raises(ValueError, match="epoch 1"):
        keep_epochs(tmp_path, [3.0], [2.5], PAIRS[:2], [["a dog"]])
    assert json.loads((tmp_path / EPOCHS_FILE).read_text(encoding="utf-8")) == kept


def test_a_training_without_an_epoch_has_nothing_to_show(run, corpus):
    keep_epochs(run, [], [], TEST[:5], [])
    assert "kept no losses" in said(text_of(run, corpus)) and "kept no translations" in said(text_of(run, corpus))


def test_a_notebook_gets_its_report_or_one_of_the_librarys_model(run, corpus, tmp_path, capsys):
    session = SimpleNamespace(runs=run.parent / "tiny-small", corpus=corpus, test="test", device=torch.device("cpu"))
    assert report(session).path == run / REPORT_FILE
    assert not capsys.readouterr().out
    (tmp_path / "other").mkdir()
    session.runs = tmp_path / "other" / "tiny-small"
    assert report(session).path == tmp_path / "other" / REPORT_FILE
    assert "notebook 06 has left no model" in capsys.readouterr().out
    assert "own model" in said((tmp_path / "other" / REPORT_FILE).read_text(encoding="utf-8"))


def test_what_a_notebook_stores_of_it_is_a_sentence_and_a_link_only_where_somebody_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = Report(tmp_path / "runs" / REPORT_FILE)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert repr(shown).startswith(f"runs/{REPORT_FILE}: ") and shown._repr_html_() is None
    monkeypatch.setenv("JPY_SESSION_NAME", "09_bleu.ipynb")
    assert f'href="runs/{REPORT_FILE}"' in shown._repr_html_()
    assert Report(tmp_path.parent / REPORT_FILE)._repr_html_() is None  # no page leads there


def test_losses_that_meet_or_stay_the_same_are_drawn(run, corpus):
    for losses in ([2.0], [2.0, 2.0], [1e-9, 0.0], [900.0, 800.0]):
        keep_epochs(run, losses, losses, TEST[:1], [["a dog"]] * len(losses))
        source = text_of(run, corpus)
        numbers = [float(number) for number in re.findall(r'c[xy]="([^"]+)"', source)]
        assert numbers and all(math.isfinite(number) for number in numbers)
