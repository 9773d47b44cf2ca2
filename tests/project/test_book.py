"""The book that `make book` builds: what it holds, where its links lead, and that it opens, searches and reads well."""

import functools
import http.server
import importlib
import inspect
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from test_notebooks import NOTEBOOKS, set_repository

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "build" / "book"
REPOSITORY = set_repository.named_repository((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MODULES = [
    ".".join(path.relative_to(ROOT / "transformer_lib").with_suffix("").parts)
    for path in (ROOT / "transformer_lib").rglob("*.py")
    if not path.stem.startswith("__")
]
pytestmark = pytest.mark.slow
LOADS = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
    "embed": "src",
}
LOADING_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"}


class Page(HTMLParser):
    """What a page links to, what it loads, the ids that can be linked to, and its text."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.ids, self.texts, self.alternatives = [], [], set(), [], []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join("".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if tag == "img" and "_images/" in attributes["src"]:
            self.alternatives.append(attributes.get("alt"))
        if tag == "link":
            loaded = LOADING_LINKS & set(attributes.get("rel", "").split())
            (self.loads if loaded else self.links).append(attributes["href"])
        if attributes.get(LOADS.get(tag)):
            self.loads.append(attributes[LOADS[tag]])
        self.loads += loaded_by_css(attributes.get("style") or "")

    def handle_data(self, data):
        self.texts.append(data)


def loaded_by_css(css):
    return re.findall(r"url\(\s*[\"']?([^\"')]+)", css) + re.findall(r"@import\s+[\"']([^\"']+)", css)


@pytest.fixture(scope="module")
def pages():
    """The book's pages by their paths in it. Only what has changed since the last time is built again."""
    for package in ("sphinx", "myst_nb", "sphinx_book_theme"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[book]'")
    if not shutil.which("make"):
        pytest.skip("there is no make here")
    command = ["make", "--old-file=.venv/ready", f"BIN={Path(sys.executable).parent}", "book"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    paths = [path for path in sorted(BOOK.rglob("*.html")) if "_static" not in path.parts]  # the theme's templates
    return {path.relative_to(BOOK).as_posix(): Page(path) for path in paths}


def inside(page, link):
    """Where in the book a page's link leads: a path and an id, or None if it leads elsewhere."""
    parts = urlsplit(urljoin(f"file:///{page}", link))
    return (unquote(parts.path).lstrip("/"), unquote(parts.fragment)) if parts.scheme == "file" else None


def test_every_link_leads_to_a_page_and_to_a_place_that_it_has(pages):
    links = [(page, link) for page, parsed in pages.items() for link in parsed.links]
    broken = []
    for page, link in links:
        if target := inside(page, link):
            path, place = target
            place_is_there = not place or path not in pages or place in pages[path].ids
            is_state = path == "try_it.html" and place.startswith(("de=", "tour="))  # test_translator_in_browser.py
            if not (BOOK / path).is_file() or not (place_is_there or is_state):
                broken.append(f"{page}: {link}")
    elsewhere = sum(inside(*link) is None for link in links)
    assert elsewhere < len(links) / 2 and not broken


def test_links_to_the_repository_lead_to_what_it_has_and_nowhere_as_long_as_it_has_no_address(pages):
    links = {link for parsed in pages.values() for link in parsed.links}
    assert not [link for link in links if set_repository.UNNAMED in link]
    start = re.compile(rf"https://[\w.-]+/{re.escape(REPOSITORY)}/(?:blob|tree)/main/")
    there = [ROOT / unquote(urlsplit(start.sub("", link)).path) for link in links if start.match(link)]
    assert not [path for path in there if not path.exists()]
    assert bool(there) == (REPOSITORY != set_repository.UNNAMED)


def test_what_the_pages_link_to_is_in_the_book(pages):
    for page, path in (("try_it", "assets/MODEL_CARD.html"), ("results", "data/README.html")):
        assert path in pages[f"{page}.html"].links
    (results,) = [link for link in pages["results.html"].links if link.endswith("/recipes.json")]
    assert (BOOK / results).read_bytes() == (ROOT / "benchmarks" / "results" / "recipes.json").read_bytes()


@pytest.mark.parametrize("builder", ["dummy", "gettext", "linkcheck"])
def test_other_builders_end_well(pages, builder, tmp_path):
    """As the workflow that checks links calls the last, but that no link is followed."""
    source = shutil.copytree(f"{BOOK}-source", tmp_path / "source")
    for page in ROOT.glob("*.md"):
        shutil.copy(page, source)
    command = [sys.executable, "-m", "sphinx", "--quiet", "--builder", builder, "--conf-dir", ROOT / "book"]
    for setting in ("linkcheck_ignore=.*", "suppress_warnings=toc.not_included,myst.xref_missing"):
        command += ["--define", setting]
    done = subprocess.run([*command, source, tmp_path / "out"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_missing(pages):
    loads = {(page, load) for page, parsed in pages.items() for load in parsed.loads}
    for sheet in BOOK.rglob("*.css"):
        loads |= {(sheet.relative_to(BOOK).as_posix(), load) for load in loaded_by_css(sheet.read_text("utf-8"))}
    loads = {(page, load) for page, load in loads if not load.startswith(("data:", "#"))}
    assert not [(page, load) for page, load in loads if inside(page, load) is None]
    assert not [(page, load) for page, load in loads if not (BOOK / inside(page, load)[0]).is_file()]


def test_formulas_are_drawn_in_the_page_and_by_no_script(pages):
    formulas = 0
    for path in pages:
        source = (BOOK / path).read_text(encoding="utf-8")
        scripts = re.findall(r"<script[^>]*>", source)
        assert not [script for script in scripts if "mathjax" in script.lower() or "http" in script], path
        assert 'class="math' not in source, path  # what waits for MathJax
        formulas += source.count("<math")
    assert formulas and "<msqrt>" in (BOOK / "glossary.html").read_text(encoding="utf-8")


def test_every_notebook_is_a_page_with_its_outputs_and_a_way_into_colab(pages):
    for notebook in [*NOTEBOOKS, *(ROOT / "notebooks" / "solutions").glob("*.ipynb")]:
        path = notebook.relative_to(ROOT)
        page = pages[path.with_suffix(".html").as_posix()]
        way = f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/{path.as_posix()}"
        assert (way in page.links) == (REPOSITORY != set_repository.UNNAMED)
        outputs = [
            output
            for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
            for output in cell.get("outputs", [])
        ]
        pictures = [output for output in outputs if {"image/png", "image/svg+xml"} & set(output.get("data", ()))]
        assert len([load for load in page.loads if "_images/" in load]) >= len(pictures)
        for output in outputs:
            assert " ".join("".join(output.get("text", "")).split()) in page.text


def test_every_image_has_a_description_of_its_own(pages):
    for page, parsed in pages.items():
        assert all(alternative and len(alternative.split()) > 3 for alternative in parsed.alternatives), page
    shown = pages["notebooks/04_the_boxes.html"].alternatives
    assert any(text.startswith("Each row is one position") for text in shown)  # a caption below a cell
    assert any(text.startswith("Gradient norm of each of twelve") for text in shown)  # a cell's metadata


def test_a_screen_reader_finds_a_name_for_all_that_it_meets(pages):
    """What axe-core calls serious, and empty headings of tables."""
    for path in pages:
        source = (BOOK / path).read_text(encoding="utf-8")
        assert "<summary><span" not in source  # an arrow alone
        assert "Toggle hidden content" not in source  # the summary says something else
        assert not re.search(r"<th[^>]*>(<p></p>)?</th>", source)
        assert not re.search(r"<dl>\s*<dd>", source)  # a list of terms that has none
        assert not re.search(r'<button[^>]*search-button-field[^>]*aria-label="Search"', source)  # it says "Ctrl+K" too


def test_notebooks_follow_each_other(pages):
    names = [f"notebooks/{notebook.stem}.html" for notebook in NOTEBOOKS]
    for page, following in itertools.pairwise(names):
        assert Path(following).name in pages[page].links
        assert Path(page).name in pages[following].links
    listed = [link for link in pages["index.html"].links if link in names]
    assert list(dict.fromkeys(listed)) == names


def public(name):
    module = importlib.import_module(f"transformer_lib.{name}")
    members = [member for word, member in vars(module).items() if not word.startswith("_")]
    defined = [member for member in members if inspect.isfunction(member) or inspect.isclass(member)]
    return [f"{module.__name__}.{member.__qualname__}" for member in defined if member.__module__ == module.__name__]


def test_all_of_the_library_has_an_entry(pages):
    links = " ".join(pages["api.html"].links)
    assert {*re.findall(r"api/transformer_lib\.([\w.]+)\.html", links)} == {*MODULES}
    for module in MODULES:
        page = pages[f"api/transformer_lib.{module}.html"]
        assert not [name for name in public(module) if name not in page.ids], module


def test_entries_lead_to_where_readers_write_or_see_them_and_notebooks_to_entries(pages):
    explained = [
        link
        for page, parsed in pages.items()
        if page.startswith("api/")
        for link in parsed.links
        if re.match(r"\.\./notebooks/\w+\.html#.", link)
    ]
    showing = {path.stem for path in NOTEBOOKS if "show_source(" in path.read_text(encoding="utf-8")}
    assert showing
    writing = {"02_attention", "03_masks", "04_the_boxes", "05_the_transformer"}
    assert {Path(urlsplit(link).path).stem for link in explained} == showing | writing
    for module, place in {
        "attention": "02_attention.html#all-heads-at-once",
        "masks": "03_masks.html#the-padding-mask",
        "decoder": "04_the_boxes.html#the-decoder-layer",
    }.items():
        assert f"../notebooks/{place}" in pages[f"api/transformer_lib.model.{module}.html"].links
    assert (
        "../api/transformer_lib.model.masks.html#transformer_lib.model.masks.padding_mask"
        in pages["notebooks/03_masks.html"].links
    )


def test_every_term_of_the_glossary_can_be_linked_to(pages):
    terms = re.findall(r"^(\S[^\n]*)\n  \S", (ROOT / "book" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len([name for name in pages["glossary.html"].ids if name and name.startswith("term-")]) >= len(terms) > 0


def test_each_letter_of_the_glossary_can_be_jumped_to(pages):
    terms = re.findall(r"^(\S)[^\n]*\n  \S", (ROOT / "book" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    letters = [*dict.fromkeys(letter.lower() for letter in terms)]
    jumps = [link for link in pages["glossary.html"].links if re.fullmatch(r"#[a-z]", link)]
    assert jumps[: len(letters)] == [
        f"#{letter}" for letter in letters
    ]  # above the terms; more are in the page's contents
    assert {*letters} <= pages["glossary.html"].ids


# What a reader's browser makes of it. Opened as files, as after `make book`.
SIDEWAYS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
FAINT = """() => {
  const channels = text => (text.match(/[\\d.]+/g) || []).map(Number)
  const luminance = colour => {
    const [r, g, b] = colour.map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const background = element => {
    for (; element; element = element.parentElement) {
      const [r, g, b, alpha = 1] = channels(getComputedStyle(element).backgroundColor)
      if (alpha > 0.99) return [r, g, b]
    }
    return [255, 255, 255]
  }
  const faint = new Set()
  const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({visibilityProperty: true})) continue
    const pair = [channels(getComputedStyle(element).color).slice(0, 3), background(element)]
    const [dark, light] = pair.map(luminance).sort((a, b) => a - b)
    const contrast = (light + 0.05) / (dark + 0.05)
    if (contrast < 4.5)
      faint.add(`${element.tagName} ${element.className} ${contrast.toFixed(2)} ${element.textContent}`)
  }
  return [...faint]
}"""


def test_every_page_opens_without_an_error_and_none_scrolls_sideways(pages, browser):
    page, problems = browser.open(BOOK / "index.html")
    # listings of source are all alike: one stands for the others
    listings = [path for path in pages if path.startswith("_modules/transformer_lib/")]
    wrong = []
    for path in [path for path in pages if path not in listings[1:]]:
        page.goto((BOOK / path).as_uri())
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            if page.evaluate(SIDEWAYS):
                wrong.append(f"{path} scrolls sideways at {width} pixels")
        wrong += [f"{path}: {problem}" for problem in problems]
        problems.clear()
    assert not wrong


SCROLLING = """() => [...document.querySelectorAll("article .cell_input pre, article .cell_output pre")]
  .filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"""


def test_code_and_what_it_prints_are_read_without_scrolling_sideways(pages, browser):
    for width in (1280, 1920):
        page, _ = browser.open(BOOK / "index.html", width=width - 15)  # a scroll bar's
        for path in (path for path in pages if path.startswith("notebooks/")):
            page.goto((BOOK / path).as_uri())
            assert page.locator(".cell_input pre").count() and not page.evaluate(SCROLLING), (path, width)


def test_the_contents_of_a_page_open_beside_its_code(pages, browser):
    page, problems = browser.open(BOOK / "notebooks" / "03_masks.html")
    link = page.locator(".page-toc a", has_text="Three masks")
    assert not link.is_visible()
    page.locator(".secondary-toggle").click()
    link.click()
    assert page.url.endswith("#three-masks") and not problems
    link.wait_for(state="hidden")  # the list would cover what it leads to


def test_a_cell_is_copied_with_a_click_and_without_its_output(pages, browser):
    page, _ = browser.open(BOOK / "notebooks" / "02_attention.html")
    cell = page.locator(".cell_input", has_text="plots.matrices(score_and_scale").first
    cell.hover()
    cell.get_by_role("button").click()
    page.locator(".search-button-field:visible").click()
    page.keyboard.press("Control+v")
    assert page.locator("input[name=q]:visible").input_value().startswith(cell.locator("pre").inner_text()[:20])
    assert page.locator(".stream button, .text_plain button").count() == 0


def test_the_search_shows_chapters_before_solutions_and_leads_to_them(pages, browser):
    page, problems = browser.open(BOOK / "index.html")
    page.locator(".bd-sidebar-primary .search-button__button").click()
    page.keyboard.type("padding mask")
    page.keyboard.press("Enter")
    page.get_by_text("Search finished").wait_for()
    results = [link.get_attribute("href") for link in page.locator("#search-results a").all()]
    are_solutions = [link.startswith("notebooks/solutions/") for link in results]
    assert True in are_solutions and are_solutions == sorted(are_solutions)  # all at the end
    page.locator("#search-results a[href*='03_masks.html']").first.click()
    page.wait_for_url("**/notebooks/03_masks.html*")
    assert not problems


@pytest.mark.parametrize("place", ["web", "disk"])
def test_results_of_a_search_come_with_excerpts(pages, browser, place):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=BOOK)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{web.server_port}" if place == "web" else BOOK.as_uri()
        page, problems = browser.open(f"{root}/search.html?q=label+smoothing")
        result = page.locator("#search-results li", has=page.locator("a[href*='06_training.html']")).first
        excerpt = result.locator("p.context")
        excerpt.wait_for()
        assert "smoothing" in excerpt.inner_text().lower() and not problems
        web.shutdown()


def test_no_picture_has_a_frame_or_a_light_ground_of_the_themes_in_the_dark(pages, browser):
    page, _ = browser.open(BOOK / "notebooks" / "03_masks.html", colour_scheme="dark")
    grounds = """() => [...document.querySelectorAll(".cell_output img[src$='.svg']")].map(image => {
      const {backgroundColor, padding, filter} = getComputedStyle(image)
      return `${backgroundColor} ${padding} ${filter}`
    })"""
    assert {*page.evaluate(grounds)} == {"rgba(0, 0, 0, 0) 0px none"}


def test_what_knows_the_dark_has_no_light_ground_in_it(pages, browser):
    ground = "all => all.map((one) => getComputedStyle(one).backgroundColor)"
    kinds = {"03_masks": "details[name^=guess-]", "06_training": ".training-film", "07_translating": "p:only-child"}
    for stem, kind in kinds.items():
        page, _ = browser.open(BOOK / "notebooks" / f"{stem}.html", colour_scheme="dark")
        outputs = page.locator(".cell_output .text_html").filter(has=page.locator(kind))
        assert {*outputs.evaluate_all(ground)} == {"rgba(0, 0, 0, 0)"}, stem


def test_pages_can_be_read_in_the_light_and_in_the_dark(pages, browser):
    masks = "api/transformer_lib.model.masks.html"
    for path in ("index.html", "try_it.html", "notebooks/07_translating.html", masks, "glossary.html"):
        page, problems = browser.open(BOOK / path)
        backgrounds = set()
        for mode in ("light", "dark"):
            page.locator(".theme-switch-button:visible").click()
            page.locator(f".theme-change-button[data-mode={mode}]:visible").click()
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert not page.evaluate(FAINT), (path, mode)
        assert len(backgrounds) == 2 and not problems, path


SHUT = "document.querySelectorAll('article details:not([open])').length"
CUT = """[...document.querySelectorAll("article pre, article table")]
  .filter((one) => one.parentElement.checkVisibility() && one.scrollWidth > one.clientWidth + 1).length"""


def test_a_printed_page_is_light_and_whole_and_afterwards_as_it_was(pages, browser):
    for stem in ("02_attention", "09_bleu"):
        page, _ = browser.open(BOOK / "notebooks" / f"{stem}.html", width=690, colour_scheme="dark")  # as wide as A4
        page.locator("article details").first.evaluate("fold => { fold.open = true }")
        shut = page.evaluate(SHUT)
        names = "[...document.querySelectorAll('article details')].map((fold) => fold.getAttribute('name'))"
        named = page.evaluate(names)
        assert shut > 5 and page.evaluate(CUT)
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert not page.evaluate(SHUT) and not page.evaluate(CUT), stem
        assert page.locator("html").get_attribute("data-theme") == "light"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.emulate_media(media="screen", color_scheme="dark")
        assert page.evaluate(SHUT) == shut and page.evaluate(names) == named
        assert page.locator("html").get_attribute("data-theme") == "dark"


def test_sentences_are_read_to_their_end_on_a_telephone_and_columns_stay_beneath_each_other(pages, browser):
    page, _ = browser.open(BOOK / "notebooks" / "02_attention.html", width=390)
    verdict = page.locator(".stream pre", has_text="The library's own stands in").first
    assert verdict.evaluate("one => one.scrollWidth <= one.clientWidth")
    table = page.locator(".stream pre", has_text="weight 0.140").first
    assert table.evaluate("one => getComputedStyle(one).whiteSpace") == "pre"


def test_a_formula_that_is_too_wide_scrolls_by_itself_and_by_keys(pages, browser):
    page, problems = browser.open(BOOK / "glossary.html", width=390)
    wide = "<math display='block'>" + "<mi>x</mi><mo>+</mo>" * 50 + "</math>"
    for formula, tab in ((wide, "0"), ("<math display='block'><mi>x</mi></math>", "-1")):
        box = f"<div class='formula'>{formula}</div>"
        page.evaluate("box => document.querySelector('article section').insertAdjacentHTML('afterbegin', box)", box)
        assert not page.evaluate(SIDEWAYS)
        page.evaluate("watchFormulas()")
        page.wait_for_function("tab => document.querySelector('.formula').tabIndex == tab", arg=tab)
    assert not problems


def test_what_nobody_has_solved_yet_is_grey(pages, browser):
    for mode in ("light", "dark"):
        page, _ = browser.open(BOOK / "notebooks" / "02_attention.html", colour_scheme=mode)
        colour = "one => getComputedStyle(one).color"
        stubs = page.locator(".unsolved pre")
        printed = page.locator(".stream:not(.unsolved) pre").first
        assert stubs.count() > 5 and stubs.first.evaluate(colour) != printed.evaluate(colour)


def test_nothing_touches_a_closed_fold_or_the_front_pages_picture(pages, browser):
    gap = """one => {
      const all = [...document.querySelectorAll("article *")]
        .filter((other) => !one.contains(other) && other.checkVisibility())
      const bottom = one.getBoundingClientRect().bottom
      return Math.min(...all.map((other) => other.getBoundingClientRect().top - bottom).filter((gap) => gap >= 0))
    }"""
    page, _ = browser.open(BOOK / "notebooks" / "02_attention.html")
    assert page.locator("details", has_text="Worked answer").first.evaluate(gap) >= 12
    page, _ = browser.open(BOOK / "index.html")
    assert page.locator("img:visible").first.evaluate(gap) >= 8


def test_the_viewers_of_pages_can_be_used(pages, browser):
    for stem in ("00_quick_tour", "07_translating", "08_looking_inside"):
        page, problems = browser.open(BOOK / "notebooks" / f"{stem}.html")
        viewer = page.locator(".attention-viewer")
        assert viewer.count() == 1, stem  # in 07, it is the live translator's
        shown = viewer.locator(".keys").inner_text()
        viewer.locator("select").nth(2).select_option("3")
        assert viewer.locator(".keys").inner_text() != shown, stem
        assert not problems, stem


def test_the_translator_of_the_book_translates_and_can_be_read(pages, browser):
    for mode in ("light", "dark"):
        page, problems = browser.open(BOOK / "try_it.html", colour_scheme=mode)
        page.set_default_timeout(120_000)
        page.get_by_role("button", name="Load the model").click()
        page.locator(".results:not(.busy) .target button").first.wait_for()
        assert page.locator(".translation").inner_text() == "the man is raising the ball."
        for tab in ("Figure 1", "Heads", "Alternatives", "Attention", "Beam"):
            page.get_by_role("radio", name=tab, exact=True).check()
            assert not page.evaluate(FAINT), (mode, tab)
        assert not problems, mode


def test_on_a_phone_the_translator_brings_into_sight_what_it_writes_and_what_its_tour_shows(pages, browser):
    page, problems = browser.open(BOOK / "try_it.html", width=390, height=844)
    page.set_default_timeout(120_000)
    hidden = """() => {
      const { top, bottom } = document.querySelector(".translation").getBoundingClientRect()
      const bar = document.querySelector(".bd-header-article").getBoundingClientRect().bottom
      const card = document.querySelector(".tour:not([hidden])")?.getBoundingClientRect().top ?? innerHeight
      return top < bar || bottom > card ? [top, bottom, bar, card] : []
    }"""
    page.get_by_role("button", name="Load the model").click()
    page.locator(".results:not(.busy) .target button").first.wait_for()
    assert not page.evaluate(hidden)
    page.evaluate("scrollTo(0, 0)")
    page.get_by_role("button", name="Take the tour").click()
    for _ in range(3):
        page.locator(".panel[aria-busy=false]").wait_for(state="attached")
        page.wait_for_function("document.querySelector('.translator .status').textContent === ''")
        assert not page.evaluate(hidden), page.locator(".tour h2").inner_text()
        page.locator(".tour").get_by_role("button", name="Next").click()
    assert not problems
