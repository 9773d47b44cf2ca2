"""The book's page of error messages: the code above a message gives it, and the code of a remedy runs."""

import contextlib
import io
import json
import logging
import re
import warnings
from pathlib import Path

import pytest
import sacrebleu

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "where_tutorials_break.md").read_text(encoding="utf-8")
ENTRIES = {
    heading: re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    for heading, text in re.findall(r"^##+ (.+)\n((?:(?!^##).*\n)*)", PAGE, re.M)
}
PRELUDE = re.search(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)[1]


def outcome(code):
    """Run a piece of code, and return what it prints, or the error or the warning with which it ends."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            exec(compile(PRELUDE + code, "the page", "exec"), {"__name__": "the_page"})
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return printed.getvalue()


def matches(message, quoted):
    """Say whether a message is as quoted, where … stands for anything, and white space is white space."""
    message, quoted = (" ".join(text.split()) for text in (message, quoted))
    return re.fullmatch(".*".join(map(re.escape, quoted.split("…"))), message)


@pytest.mark.parametrize("heading", [heading for heading, fences in ENTRIES.items() if ("python" in dict(fences))])
def test_code_gives_the_message_below_it_and_remedies_run(heading, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fences = ENTRIES[heading]
    for (kind, code), (next_kind, quoted) in zip(fences, [*fences[1:], ("", "")], strict=True):
        if kind == "python":
            assert matches(outcome(code), quoted if next_kind == "text" else ""), (outcome(code), quoted)


def test_what_a_heading_quotes_stands_in_its_entry_too():
    entries = re.split(r"^##+ ", PAGE, flags=re.M)[1:]
    quotes = {quote: text for text in entries for _, quote in re.findall(r"(`+) ?(.+?) ?\1(?!`)", text.split("\n")[0])}
    assert len(quotes) > 25
    for quote, text in quotes.items():
        body = " ".join(text.split("\n", 1)[1].split())
        assert re.search(".*".join(re.escape(part.strip()) for part in quote.split("…")), body), quote


def test_sacrebleu_still_says_what_the_page_quotes(caplog):
    tokenised = ["a dog is here ."] * 100
    with caplog.at_level(logging.WARNING, logger="sacrebleu"):
        sacrebleu.corpus_bleu(tokenised, [tokenised])
    heading = "`It looks like you forgot to detokenize your test data, which may hurt your score.`"
    assert heading in ENTRIES
    assert heading.strip("`") in caplog.text


def anchors(notebook):
    """Return the addresses of a notebook's headings."""
    cells = json.loads((ROOT / "book" / notebook).read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ["where_tutorials_break.md", "glossary.md"])
def test_links_lead_to_sections_that_are_there(page):
    text = (ROOT / "book" / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((\.\./notebooks/\w+\.ipynb)(?:#([\w-]+))?\)", text)
    assert links
    for notebook, anchor in links:
        assert not anchor or anchor in anchors(notebook), (notebook, anchor)
