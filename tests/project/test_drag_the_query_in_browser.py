"""The query of notebook 02 as readers drag it: by keys, by mouse, by finger; what it shows is what PyTorch computes."""

import re

import pytest
import torch
import torch.nn.functional as F
from transformer_exercises.drag_the_query import DragTheQuery

WORDS = ["Der", "Hund", "bellt", "im", "Garten"]
KEYS = [(-2, -1), (5, 1), (1, 5), (-4, 2), (4, -3)]
VALUES = [(1, 1), (6, 0), (0, 6), (0, -1), (-2, -3)]
PAGE = '<!doctype html><meta charset="utf-8"><title>a page</title><body style="{}">{}<div style="height: 3000px">'
LIGHT, DARK = "background: #ffffff; color: #1a1a1f", "background: #14181e; color: #eceff4"
COLOURS = """host => [...host.shadowRoot.querySelectorAll("text, label, p")].map(node => {
  const style = getComputedStyle(node)
  return node.localName === "text" ? style.fill : style.color
})"""
pytestmark = pytest.mark.slow


def figure(words=WORDS):
    return DragTheQuery((4, 2), dict(zip(words, KEYS, strict=True)), VALUES, d_k=64, hidden=words[1])


@pytest.fixture
def show(browser, tmp_path):
    """Show figures on one page, and see that no problem comes up: no error, and no request to anywhere."""
    pages = []

    def open_page(*figures, style=LIGHT, **window):
        text = PAGE.format(style, "\n".join(figure._repr_html_() for figure in figures))
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        page, problems = browser.open(tmp_path / "page.html", **window)
        pages.append(problems)
        return page

    yield open_page
    assert not any(pages)


def computed(query, scale=True, mask=False):
    """What PyTorch computes of 64 numbers, the last 62 of which are 0: weights, and the average of the values."""
    long_query, long_keys = (F.pad(torch.tensor(rows).double(), (0, 62)) for rows in ([query], KEYS))
    may_attend = torch.tensor([[not mask or word != "Hund" for word in WORDS]])
    values = torch.cat([torch.eye(5), torch.tensor(VALUES)], dim=1).double()
    scaled = long_query if scale else 8 * long_query
    return F.scaled_dot_product_attention(scaled, long_keys, values, may_attend)[0].split([5, 2])


def assert_shown(host, query, **switches):
    """The numbers beside the bars, those that are read out, the bars, and the query's own."""
    weights, average = computed(query, **switches)
    texts = host.locator(".results .weight").all_text_contents()
    read_out = host.locator("[aria-live=polite]").inner_text()
    assert not re.search(r"-\d", read_out + " ".join(host.locator(".results text").all_text_contents()))  # minus is −
    said = [float(number) for number in re.findall(r"-?\d+\.\d+", read_out.replace("−", "-"))]
    bars = [float(bar.get_attribute("width")) / 100 for bar in host.locator(".results rect").all()]
    for shown in ([float(text) for text in texts], said[2:7], bars):
        torch.testing.assert_close(torch.tensor(shown).double(), weights, rtol=0, atol=1e-3)
    torch.testing.assert_close(torch.tensor(said[7:]).double(), average, rtol=0, atol=1e-3)
    assert said[:2] == pytest.approx(query)
    shown = f"({query[0]:.1f}, {query[1]:.1f})".replace("-", "−")
    assert host.get_by_role("slider").get_attribute("aria-valuetext") == shown


def middle(host):
    box = host.locator(".handle circle").last.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_keys_turn_the_query_and_switch(show):
    page = show(figure())
    host = page.locator(".drag-the-query")
    assert_shown(host, (4, 2))
    for _ in range(3):  # past both switches
        page.keyboard.press("Tab")
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    assert_shown(host, (4, -1))
    weights = host.locator(".results .weight").all_text_contents()
    assert weights[WORDS.index("Hund")] == weights[WORDS.index("Garten")]
    page.keyboard.press("ArrowDown")
    host.get_by_label("divide by √d_k = 8").click()
    assert host.locator(".results .weight").nth(WORDS.index("Garten")).text_content().startswith("0.88")
    host.get_by_label("divide by √d_k = 8").click()
    host.get_by_role("slider").focus()
    page.keyboard.press("ArrowUp")
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    assert_shown(host, (3, -1))
    assert page.evaluate("scrollY") == 0
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    assert_shown(host, (6, -1))  # the edge
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    assert_shown(host, (6, -1), mask=True)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    assert_shown(host, (6, -1), mask=True, scale=False)


@pytest.mark.parametrize("width", [360, 1280])
def test_a_mouse_drags_the_query_and_switches(show, width):
    page = show(figure(), width=width)
    host = page.locator(".drag-the-query")
    unit = 24 * host.locator(".plane").bounding_box()["width"] / 340
    x, y = middle(host)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 3 * unit, y + unit, steps=3)
    page.mouse.move(x - 6 * unit, y + 4 * unit, steps=3)
    page.mouse.up()
    assert_shown(host, (-2, -2))
    page.mouse.move(x, y, steps=3)  # nothing is held any longer
    assert_shown(host, (-2, -2))
    host.get_by_label("divide by √d_k = 8").click()
    assert_shown(host, (-2, -2), scale=False)
    host.get_by_label("hide Hund").click()
    assert_shown(host, (-2, -2), scale=False, mask=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_finger_drags_the_query_and_not_the_page(show):
    page = show(figure(), width=390)
    host, session = page.locator(".drag-the-query"), page.context.new_cdp_session(page)
    unit = 24 * host.locator(".plane").bounding_box()["width"] / 340
    x, y = middle(host)
    for step in range(5):
        touch = {"type": "touchMove" if step else "touchStart", "touchPoints": [{"x": x, "y": y - step * unit / 2}]}
        session.send("Input.dispatchTouchEvent", touch)
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert_shown(host, (4, 4))
    assert page.evaluate("scrollY") == 0


def test_two_on_one_page_do_not_meet(show):
    page = show(figure(), figure())
    first, second = page.locator(".drag-the-query").all()
    second.get_by_label("hide Hund").click()
    second.get_by_role("slider").focus()
    page.keyboard.press("ArrowUp")
    assert_shown(first, (4, 2))
    assert_shown(second, (4, 2.5), mask=True)


def test_it_has_the_colours_of_the_page(show):
    for style, colour in ((LIGHT, "rgb(26, 26, 31)"), (DARK, "rgb(236, 239, 244)")):
        host = show(figure(), style=style).locator(".drag-the-query")
        assert set(host.evaluate(COLOURS)) == {colour}


def test_words_are_text(show):
    words = ["Der", "<b>&amp;", "bellt", "im", "Garten"]
    host = show(figure(words)).locator(".drag-the-query")
    assert host.locator(".results .word").nth(1).text_content() == words[1]
    assert "<b>&amp; 0.6" in host.locator("[aria-live=polite]").inner_text()


def test_without_scripts_it_is_a_picture_and_a_table(browser, tmp_path):
    (tmp_path / "page.html").write_text(PAGE.format(LIGHT, figure()._repr_html_()), encoding="utf-8")
    page = browser.chromium.new_page(java_script_enabled=False)
    page.goto((tmp_path / "page.html").as_uri())
    picture = page.locator(".drag-the-query img")
    assert picture.is_visible() and picture.bounding_box()["width"] > 300
    assert picture.get_attribute("alt") == repr(figure())
    shown = [float(row.split("\t")[3]) for row in page.locator("tr").all_inner_texts()[1:]]
    torch.testing.assert_close(torch.tensor(shown).double(), computed((4, 2))[0], rtol=0, atol=1e-3)
    assert page.get_by_text("Scripts do not run here").is_visible()
