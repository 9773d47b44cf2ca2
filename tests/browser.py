"""A headless Chromium, for tests of pages as readers see them. Where there is none, they are skipped, and say why."""

import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
LOCAL = ("file:", "data:", "blob:", "http://127.0.0.1:")  # where a page may get things from


KEYS = {"ä": "Quote", "ö": "Semicolon", "ü": "BracketLeft", "ß": "Minus"}  # where a German keyboard has them


def press_keys(page, text):
    """Press a key for each letter, whoever has the focus. Playwright has no keys for umlauts: it only inserts them."""
    session = page.context.new_cdp_session(page)
    for letter in text:
        if letter not in KEYS:
            page.keyboard.type(letter)
            continue
        for kind in ("keyDown", "keyUp"):
            key = {"type": kind, "key": letter, "text": letter, "code": KEYS[letter]}
            session.send("Input.dispatchKeyEvent", key if kind == "keyDown" else key | {"text": ""})
    session.detach()


class Browser:
    """Opens pages, and notes what went wrong in each."""

    def __init__(self, chromium):
        self.chromium = chromium

    def open(self, address, width=1280, height=800, colour_scheme="light"):
        """Open a file or an address in a window of its own, that has seen nothing before.

        Returns:
            The page, as playwright has it, and a list that fills with its problems: errors on its console and in its
            scripts, and requests that leave this machine, which get no answer. It should stay empty.
        """
        if isinstance(address, Path):
            address = address.resolve().as_uri()
        viewport = {"width": width, "height": height}
        page = self.chromium.new_page(viewport=viewport, color_scheme=colour_scheme)
        problems = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(LOCAL) else problems.append(request.url))
        page.route(lambda url: not url.startswith(LOCAL), lambda route: route.abort())
        page.goto(address)
        return page, problems

    def close_pages(self):
        """Close what was opened."""
        for context in self.chromium.contexts:
            context.close()


@pytest.fixture(scope="module")
def _chromium():
    """One Chromium for all tests of a file; playwright's event loop must be gone when a notebook is run after them."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield Browser(chromium)
        chromium.close()


@pytest.fixture
def browser(_chromium):
    """A ``Browser``: ``page, problems = browser.open(path)``. Its pages are closed after each test."""
    yield _chromium
    _chromium.close_pages()
