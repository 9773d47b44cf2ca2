"""Photograph the page *Try it* for the README: figure 1, with the cross-attention open while *rais* is written.

``make book``, then ``python assets/draw_try_it.py`` writes ``assets/try_it_light.webp`` and ``try_it_dark.webp``. It
takes playwright and a Chromium. Another book than ``build/book`` can be named behind it. What is photographed is an
address, as readers can copy it on the page.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from transformer_lib.files import replacing

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "#de=Der+Mann+hebt+den+Ball+auf.&step=4&view=figure&box=cross-attention&layer=1&head=1"
FROM, TO = ".view.figure .model", ".view.figure section[data-step=scores]"  # the picture's upper and lower end
SEEN = "rais", "hebt", "0.985"  # what must be in it
WIDTH = 1180  # of the window, without the book's side bars
MARGIN = 10
SCALE = 1.5  # pixels of the picture for one of the page's
MOST = 150_000  # bytes; the best quality is taken that needs no more
NAMES = ("chromium", "chromium-browser", "google-chrome")
ALONE = """
.bd-header, .bd-header-article, .bd-sidebar-primary, .bd-sidebar-secondary { display: none !important; }
.bd-main .bd-content .bd-article-container { max-width: none !important; }
"""


def photograph(page: Page, book: Path) -> Image.Image:
    """Return figure 1 with what is open beside it."""
    page.goto((book / "try_it.html").resolve().as_uri() + ADDRESS)
    page.add_style_tag(content=ALONE)
    text = ""
    for _ in range(300):  # until the model is loaded, and has translated
        page.wait_for_timeout(200)
        text = page.locator(".view.figure .opened").inner_text()
        if all(one in text for one in SEEN):
            break
    else:
        sys.exit(f"{SEEN} is not in figure 1 after a minute, which says: {text[:300]}")
    page.wait_for_timeout(1000)  # it scrolls to what is opened
    page.evaluate("document.activeElement.blur()")  # no frame around what has the focus
    frame, first, last = (page.locator(place).first.bounding_box() for place in (".view.figure .opened", FROM, TO))
    scrolled = page.evaluate("window.scrollY")
    left, top, bottom = frame["x"] - MARGIN, first["y"] - MARGIN, last["y"] + last["height"] + MARGIN
    clip = {"x": left, "y": top + scrolled, "width": frame["width"] + 2 * MARGIN, "height": bottom - top}
    return Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")


def compressed(picture: Image.Image) -> bytes:
    """Return a WebP of the best quality that is small enough."""
    for quality in range(90, 40, -2):
        file = io.BytesIO()
        picture.save(file, "WEBP", quality=quality, method=6)
        if len(file.getvalue()) <= MOST:
            break
    return file.getvalue()


def main(book: Path = ROOT / "build" / "book") -> None:
    """Write both pictures, each whole or not at all."""
    if not (book / "try_it.html").is_file():
        sys.exit(f"{book / 'try_it.html'} is not there: `make book` first, or name the folder of a book")
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, NAMES)), None)
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            window = {"viewport": {"width": WIDTH, "height": 900}, "device_scale_factor": SCALE}
            page = chromium.new_page(**window, color_scheme=scheme, reduced_motion="reduce")
            picture = photograph(page, book)
            file = ROOT / "assets" / f"try_it_{scheme}.webp"
            with replacing(file) as new:
                new.write_bytes(compressed(picture))
            print(f"{file.name}: {picture.width} x {picture.height} pixels, {file.stat().st_size:,} bytes")
            page.close()
        chromium.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
