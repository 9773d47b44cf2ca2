"""The attention viewer as readers use it: with a mouse, with a keyboard, on a phone, on light and dark pages."""

import re

import pytest
import torch

from transformer_lib.notebook.attention_viewer import AttentionViewer

PAGE = (
    '<!doctype html><html {html}><meta charset="utf-8"><title>a page</title><style>{css}</style><body {body}>{viewers}'
)
JUPYTERLAB = "html {{ --jp-layout-color0: {}; --jp-content-font-color0: {}; background: {} }}"
THEMES = {  # whose pages they are: what the reader's system prefers, attributes of <html> and <body>, and style
    "plain, light": ("light", "", "", ""),
    "plain, dark": ("dark", "", "", ""),
    "pydata, dark": ("light", 'data-theme="dark"', "", "html { background: #14181e }"),
    "pydata, light": ("dark", 'data-theme="light"', "", "html { background: #fff }"),
    "Colab, dark": ("light", 'theme="dark"', "", "html { background: #383838 }"),
    "JupyterLab, dark": ("light", "", 'data-jp-theme-light="false"', JUPYTERLAB.format("#111", "#fff", "#111")),
    "JupyterLab, light": ("dark", "", 'data-jp-theme-light="true"', JUPYTERLAB.format("#fff", "#000", "#fff")),
}

# the smallest contrast, as WCAG 2 defines it, of any text in the first viewer with the colours behind it
SMALLEST_CONTRAST = """
() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (colour, below) => {  // what is seen of a colour over another
    context.fillStyle = `rgb(${below})`; context.fillRect(0, 0, 1, 1);
    context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const brightness = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const host = document.querySelector(".attention-viewer");
  const behind = (node) => {
    const below = node === host ? [255, 0, 0] : behind(node.parentElement ?? host);  // the host hides the page
    return over(getComputedStyle(node).backgroundColor, below);
  };
  const contrasts = [...host.shadowRoot.querySelectorAll("*")]
    .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()))
    .filter((node) => node.localName !== "style")
    .map((node) => {
      const back = behind(node);
      const pair = [brightness(over(getComputedStyle(node).color, back)), brightness(back)];
      return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    });
  return [contrasts.length, Math.min(...contrasts)];
}
"""
# where "looks" and each number of the sentence begin, in the first viewer
PLACES = r"""
() => {
  const text = document.querySelector(".attention-viewer").shadowRoot.querySelector(".summary").firstChild;
  const range = new Range();
  return [...text.data.matchAll(/looks|\d\.\d+/g)].map((found) => {
    range.setStart(text, found.index);
    range.setEnd(text, found.index + found[0].length);
    return range.getBoundingClientRect().left;
  });
}
"""
# pairs of words that overlap, in the first viewer
OVERLAPS = """
() => {
  const root = document.querySelector(".attention-viewer").shadowRoot;
  const boxes = [...root.querySelectorAll(".queries span, .keys li")].map((node) => node.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(
    (b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)).length;
}
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def translations(trained):
    return trained.translate(["Eine Katze schläft im Garten.", "Ein Hund schläft."], attention=True)


@pytest.fixture
def show(browser, tmp_path):
    """Show viewers on one page, and see that no problem comes up: no error, and no request to anywhere."""
    pages = []

    def open_page(*viewers, theme="plain, light", **window):
        scheme, html, body, css = THEMES[theme]
        text = PAGE.format(html=html, body=body, css=css, viewers="\n".join(viewer._repr_html_() for viewer in viewers))
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        page, problems = browser.open(tmp_path / "page.html", colour_scheme=scheme, **window)
        pages.append(problems)
        return page

    yield open_page
    assert not any(pages)


def pick(viewer, **choices):
    for name, number in choices.items():
        viewer.get_by_role("combobox", name=name).select_option(index=number)


def shown(viewer):
    """The weights under the words that can be looked at."""
    return torch.tensor([float(text) for text in viewer.locator(".keys .word + span").all_inner_texts()])


def assert_shown(viewer, weights):
    torch.testing.assert_close(shown(viewer), weights, rtol=0, atol=0.00051)


def open_table(viewer):
    """Open the table of all weights, which is filled when it is first seen."""
    viewer.get_by_text("All weights of this head").click()
    viewer.locator(".scroller td").last.wait_for()
    return viewer.locator(".scroller")


def words(viewer, part):
    return viewer.locator({"rows": ".queries span", "columns": ".keys .word"}[part]).all_inner_texts()


def test_it_begins_with_cross_attention_of_the_last_layer(show, translations):
    viewer = show(AttentionViewer.of_translation(translations[0])).locator(".attention-viewer")
    assert viewer.get_by_role("combobox").evaluate_all("menus => menus.map((menu) => menu.value)") == [
        *("Cross-attention", "2", "1")
    ]
    assert words(viewer, "rows") == translations[0].tgt_tokens
    assert words(viewer, "columns") == translations[0].src_tokens
    assert_shown(viewer, translations[0].attention.cross[1][0, 0, 0])
    assert not viewer.get_by_text("Scripts do not run here").is_visible()


def test_menus_and_small_maps_pick_kind_layer_and_head(show, translations):
    attention = translations[0].attention
    viewer = show(AttentionViewer.of_translation(translations[0])).locator(".attention-viewer")
    pick(viewer, Kind=0, Layer=0, Head=2)
    assert words(viewer, "rows") == words(viewer, "columns") == translations[0].src_tokens
    assert_shown(viewer, attention.encoder[0][0, 2, 0])
    viewer.get_by_role("button", name="Head 4").click()
    assert_shown(viewer, attention.encoder[0][0, 3, 0])
    assert viewer.get_by_role("combobox", name="Head").input_value() == "4"
    assert viewer.get_by_role("button", pressed=True).inner_text().strip() == "Head 4"
    pick(viewer, Kind=1, Layer=1)
    assert words(viewer, "rows")[0] == "<sos>"
    assert_shown(viewer, attention.decoder[1][0, 3, 0])


def test_small_maps_show_all_heads_of_the_layer(show, translations):
    viewer = show(AttentionViewer.of_translation(translations[0])).locator(".attention-viewer")
    drawn = viewer.locator("canvas").evaluate_all(
        "all => all.map((map) => [...map.getContext('2d').getImageData(0, 0, map.width, map.height).data])"
    )
    opacity = torch.tensor(drawn).unflatten(1, (-1, 4))[:, :, 3] / 255  # [heads, pixels]
    expected = translations[0].attention.cross[1][0]  # [heads, rows, columns]
    torch.testing.assert_close(opacity.reshape(expected.shape), expected, rtol=0, atol=0.003)


def test_a_word_under_the_mouse_shows_its_weights_and_a_click_keeps_them(show, translations):
    page = show(AttentionViewer.of_translation(translations[0]))
    viewer, weights = page.locator(".attention-viewer"), translations[0].attention.cross[1][0, 0]
    for row, word in enumerate(translations[0].tgt_tokens):
        viewer.locator(".queries label").nth(row).hover()
        assert_shown(viewer, weights[row])
        largest, place = weights[row].max(dim=0)
        strongest = f"“{word}” looks most at “{translations[0].src_tokens[place]}” {largest:.3f}"
        summary = viewer.locator(".summary").inner_text()
        assert re.sub("[\u2068\u2069]", "", summary).startswith(strongest)  # without the marks around each word
    viewer.locator(".title").last.hover()  # away from the words
    assert_shown(viewer, weights[0])
    viewer.locator(".queries label").nth(2).click()
    viewer.locator(".title").last.hover()
    assert_shown(viewer, weights[2])


def test_the_keyboard_does_the_same(show, translations):
    page = show(AttentionViewer.of_translation(translations[0]))
    viewer, attention = page.locator(".attention-viewer"), translations[0].attention
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")  # kind: from cross-attention to the decoder's
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")  # layer: from 2 to 1
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # head: from 1 to 2
    assert_shown(viewer, attention.decoder[0][0, 1, 0])
    page.keyboard.press("Tab")  # into the words
    for row in (1, 2):
        page.keyboard.press("ArrowRight")
        assert_shown(viewer, attention.decoder[0][0, 1, row])
    outline = "getComputedStyle(document.querySelector('.attention-viewer').shadowRoot.activeElement.nextSibling)"
    assert page.evaluate(f"{outline}.outlineStyle") == "solid"  # where the keyboard is can be seen
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # on the third small map
    assert_shown(viewer, attention.decoder[0][0, 2, 2])
    assert viewer.locator(".summary").get_attribute("aria-live") == "polite"


def test_a_table_holds_all_weights_of_the_head(show, translations):
    viewer = show(AttentionViewer.of_translation(translations[0])).locator(".attention-viewer")
    table = open_table(viewer)
    pick(viewer, Head=1)
    assert table.locator("caption").inner_text() == "Cross-attention, layer 2, head 2"
    assert table.locator("th[scope=col]").all_inner_texts() == translations[0].src_tokens
    assert table.locator("th[scope=row]").all_inner_texts() == translations[0].tgt_tokens
    cells = torch.tensor([float(text) for text in table.get_by_role("cell").all_inner_texts() if text])
    expected = translations[0].attention.cross[1][0, 1]
    torch.testing.assert_close(cells.reshape(expected.shape), expected, rtol=0, atol=0.00051)


def test_viewers_on_one_page_do_not_meet(show, translations):
    page = show(*(AttentionViewer.of_translation(translation) for translation in (*translations, translations[0])))
    first, second, third = page.locator(".attention-viewer").all()
    before = shown(second), shown(third)
    pick(first, Layer=0, Head=3)
    first.locator(".queries label").nth(1).click()
    assert_shown(first, translations[0].attention.cross[0][0, 3, 1])
    assert shown(second).equal(before[0]) and shown(third).equal(before[1])
    second.locator(".queries label").nth(2).click()
    assert_shown(second, translations[1].attention.cross[1][0, 0, 2])
    assert_shown(first, translations[0].attention.cross[0][0, 3, 1])


def test_text_is_readable_on_light_and_dark_pages(show):
    bright = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.2, 0.8]]])  # the strongest colours that there are
    for theme in THEMES:
        page = show(AttentionViewer({"encoder": [bright]}, ["ein", "hund"]), theme=theme)
        open_table(page)
        texts, contrast = page.evaluate(SMALLEST_CONTRAST)
        assert texts > 20 and contrast >= 4.5, theme
        host = page.locator(".attention-viewer")
        back = host.evaluate("host => getComputedStyle(host).backgroundColor")
        assert (sum(map(int, back[4:-1].split(","))) < 3 * 128) == theme.endswith("dark"), theme


def test_a_page_may_change_its_theme(show, translations):
    page = show(AttentionViewer.of_translation(translations[0]), theme="pydata, light")
    host = page.locator(".attention-viewer")
    colours = []
    for theme in ("light", "dark", "light"):
        page.evaluate("theme => (document.documentElement.dataset.theme = theme)", theme)
        colours.append(host.evaluate("host => getComputedStyle(host).backgroundColor"))
    assert colours[0] == colours[2] != colours[1]


def test_arabic_words_leave_the_order_of_the_sentence_as_it_is(show):
    page = show(AttentionViewer({"self": [torch.full((1, 3, 3), 1 / 3)]}, ["القطة", "تنام", "هنا"]))
    places = page.evaluate(PLACES)
    assert len(places) == 4 and places == sorted(places)


def test_a_long_sentence_stays_inside_a_phone_and_a_laptop(show):
    words = [f"donaudampfschifffahrtsgesellschaft{number}"[number % 30 :] for number in range(60)]
    words[7] = 60 * "w"
    maps = [torch.rand(16, 60, 60).softmax(dim=-1)]
    for width in (360, 1280):
        page = show(AttentionViewer({"encoder": maps}, words), width=width)
        open_table(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERLAPS) == 0, width


def test_a_hostile_token_is_text(show):
    tokens = [
        "</script><script>window.hacked = 1</script>",
        '<img src=x onerror="window.hacked = 1">',
        '"><svg onload=window.hacked=1>',
        "</style><b>",
        "<!--<script >",  # would swallow the end of the script that it stands in
    ]
    page = show(AttentionViewer({"encoder": [torch.full((1, 5, 5), 0.2)]}, tokens))
    viewer = page.locator(".attention-viewer")
    open_table(viewer)
    assert words(viewer, "rows") == words(viewer, "columns") == tokens
    assert viewer.locator("img, b, svg").count() == 0
    assert page.evaluate("window.hacked") is None
