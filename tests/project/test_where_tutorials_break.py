"""The book's page of error messages: the code above a message gives it, and the code of a remedy runs."""

import contextlib
import io
import itertools
import json
import logging
import re
import warnings
from pathlib import Path

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
    """Return whether a message is as quoted, where … stands for anything, and white space is white space."""
    message, quoted = (" ".join(text.split()) for text in (message, quoted))
    return re.fullmatch(".*".join(map(re.escape, quoted.split("…"))), message)


def test_code_gives_the_message_below_it_and_remedies_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for heading, fences in ENTRIES.items():
        for (kind, code), (next_kind, quoted) in itertools.pairwise([*fences, ("", "")]):
            if kind == "python":
                said = outcome(code)
                assert matches(said, quoted if next_kind == "text" else ""), (heading, said, quoted)


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


def headings(notebook):
    """Return a notebook's headings by their addresses, each with the section, "## …", that it is in."""
    cells = json.loads((ROOT / "book" / notebook).read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    places, section = {}, ""
    for marks, heading in re.findall(r"^(#+) (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        section = heading if len(marks) == 2 else section
        places[re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")] = heading, section
    return places


def links_of(page):
    """Return a page's links to notebooks: text, notebook, and address of a heading."""
    text = (ROOT / "book" / page).read_text(encoding="utf-8")
    return re.findall(r"\[([^\]]+)\]\((\.\./notebooks/\w+\.ipynb)(?:#([\w-]+))?\)", text)


def test_links_lead_to_the_notebook_and_the_section_that_they_name():
    for page in ("where_tutorials_break.md", "results.md"):
        assert links_of(page)
        for text, notebook, anchor in links_of(page):
            assert not anchor or anchor in headings(notebook), (notebook, anchor)
            if named := re.search(r"[Nn]otebook\s+(\d\d)(?:,\s+section\s+(\d+))?", text):
                assert Path(notebook).name.startswith(named[1]), (text, notebook)
                assert not named[2] or headings(notebook)[anchor][1].startswith(f"{named[2]}. "), (text, anchor)


def test_entries_of_the_glossary_name_the_heading_that_they_lead_to():
    assert links_of("glossary.md")
    for text, notebook, anchor in links_of("glossary.md"):
        assert text == f"{Path(notebook).name[:2]} · {headings(notebook)[anchor][0]}"
