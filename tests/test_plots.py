import dataclasses
import xml.etree.ElementTree as ET

import pytest
import torch
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from IPython.core.formatters import DisplayFormatter
from matplotlib import font_manager
from matplotlib.text import Text

from transformer_lib.notebook import plots


@pytest.fixture(scope="module")
def translation(trained):
    return trained.translate(["Eine Katze schläft im Garten."], attention=True)[0]


def labels(axes):
    return [label.get_text() for label in axes.get_xticklabels()], [
        label.get_text() for label in axes.get_yticklabels()
    ]


def panels(figure):
    return [axes for axes in figure.axes if axes.images and axes.get_title()]


def overlapping(texts, renderer):
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
    return [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]


def test_all_heads_are_drawn_with_the_right_weights_and_labels(translation):
    drawn = panels(plots.attention_heads(translation))
    assert [axes.get_title() for axes in drawn] == ["head 1", "head 2", "head 3", "head 4"]
    for axes, head in zip(drawn, translation.attention.cross[-1][0], strict=True):
        torch.testing.assert_close(torch.tensor(axes.images[0].get_array()), head)
        assert axes.images[0].get_clim() == (0, 1)  # heads can be compared
    assert labels(drawn[-1])[0] == translation.src_tokens
    assert labels(drawn[0])[1] == translation.tgt_tokens


@pytest.mark.parametrize("heads", [1, 2, 5, 6, 7, 8])
def test_the_lowest_panel_of_each_column_has_labels(translation, heads):
    weights = torch.rand(1, heads, len(translation.tgt_tokens), len(translation.src_tokens))
    shown = dataclasses.replace(translation, attention=translation.attention._replace(cross=[weights]))
    drawn = panels(plots.attention_heads(shown))
    across = len({axes.get_subplotspec().colspan.start for axes in drawn})
    labelled = [axes.get_title() for axes in drawn if labels(axes)[0] == translation.src_tokens]
    assert labelled == [f"head {number}" for number in range(heads - across + 1, heads + 1)]


def test_nothing_is_clipped(translation):
    figure = plots.attention_heads(translation)
    figure.draw_without_rendering()
    box = figure.get_tightbbox().padded(-0.01)
    assert box.xmin >= 0 and box.ymin >= 0
    assert box.xmax <= figure.get_figwidth() and box.ymax <= figure.get_figheight()


def test_one_map():
    figure = plots.attention_map(torch.eye(2), ["ein", "hund"], ["a", "dog"], "one head")
    assert labels(panels(figure)[0]) == (["ein", "hund"], ["a", "dog"])
    with pytest.raises(ValueError, match="labels"):
        plots.attention_map(torch.eye(2), ["ein", "hund"], ["a"])


def test_a_dollar_is_a_dollar():
    title, names = "from $5 to $6", ["plain", "$5 to $6"]
    with_titles = [
        plots.attention_map(torch.eye(2), names, names, title),
        plots.bars(dict.fromkeys(names, 1.0), "count", title),
    ]
    curves = {name: [1.0, 2.0] for name in names}
    with_legend = plots.lines([1, 2], curves, "x", "y")
    for figure in (*with_titles, with_legend):
        figure.draw_without_rendering()
        texts = [text for text in figure.findobj(Text) if "$" in text.get_text() and text.get_visible()]
        assert texts and not any(text.get_parse_math() for text in texts)
    assert [text.get_text() for text in with_legend.legends[0].get_texts()] == names


def test_a_translation_without_attention_says_how_to_get_it(trained):
    with pytest.raises(ValueError, match="translate with attention=True"):
        plots.attention_heads(trained.translate(["Ein Hund."])[0])


def font_with(characters, name, path):
    """Write a font in which each of these characters is a black square."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0)), pen.lineTo((0, 800)), pen.lineTo((800, 800)), pen.lineTo((800, 0)), pen.closePath()
    builder = FontBuilder(1000)
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({ord(character): "square" for character in characters})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "square": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (900, 0), "square": (900, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    return str(path)


KOREAN, CHINESE = ["고양이가" * 3, "잔다", "<eos>"], ["猫", "在睡觉", "<eos>"]


def test_characters_that_matplotlibs_font_lacks_come_from_fonts_that_have_them(tmp_path, monkeypatch):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*font_manager.fontManager.ttflist])
    for name, words in (("K", KOREAN[:2]), ("C", CHINESE[:2])):
        font_manager.fontManager.addfont(font_with("".join(words), name, tmp_path / name))
    assert plots.STYLE["font.family"][0] == "DejaVu Sans"
    monkeypatch.setitem(plots.STYLE, "font.family", ["DejaVu Sans", "K", "C"])
    figure = plots.attention_map(torch.eye(3), KOREAN, CHINESE, "고양이")
    figure.draw_without_rendering()  # a missing glyph would warn, and a warning fails
    figure = plots.matrices({"고양이가": torch.eye(3)}, KOREAN, CHINESE)  # these characters are twice as wide
    figure.draw_without_rendering()
    box = figure.get_tightbbox().padded(-0.01)
    assert box.xmin >= 0 and box.xmax <= figure.get_figwidth()


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure_can_be_saved(translation, tmp_path, ending):
    plots.attention_heads(translation).savefig(tmp_path / f"map.{ending}")
    assert (tmp_path / f"map.{ending}").stat().st_size > 1000


def test_matrices_carry_their_numbers_labels_titles_and_signs(monkeypatch):
    scores = torch.tensor([[0.5, -torch.inf, -0.001], [1, 2, torch.nan]])
    panels = {"scores": scores, "mask": scores > 0, "whole": torch.tensor([[1.0], [-2.0]]), "zeros": torch.zeros(1, 1)}
    monkeypatch.setattr(plots, "WIDTH", 9)  # all in one line
    figure = plots.matrices(panels, ["$a", "b"], ["x", "y", "zebra"], ["→", "·", "="])
    axes = figure.axes[0]
    written = {(text.get_text(), text.get_rotation()) for text in axes.texts}
    words = {"0.50", "−∞", "0.00", "nan", "1", "0", "−2", "$a", "scores", "mask", "whole", "zeros", "→", "·", "="}
    assert words <= {text for text, _ in written}
    assert ("zebra", 60) in written  # slanted, because the mask's columns are narrow
    assert sum(text.get_text() == "x" for text in axes.texts) == 2  # above each matrix that has three columns
    hidden = [mesh.get_array().mask.tolist() for mesh in axes.collections[:2]]
    assert hidden == [[[False, True, False], [False, False, True]], [[False, True, True], [False, False, True]]]
    figure.draw_without_rendering()
    assert not overlapping([text for text in axes.texts if not text.get_rotation()], None)
    box = figure.get_tightbbox().padded(-0.01)
    assert box.xmin >= 0 and box.ymin >= 0
    assert box.xmax <= figure.get_figwidth() and box.ymax <= figure.get_figheight()
    mesh = axes.collections[2]
    assert mesh.get_clim() == (-2, 2) and min(mesh.cmap(0.0)[:3]) > 0.3  # light enough for black numbers


def test_no_sign_hangs_at_the_end_of_a_line():
    square, wide = torch.eye(3), torch.rand(3, 9)
    for panels, signs in (
        ({"Q": square, "K": square, "scores": wide, "scaled": wide}, ["·", "=", "→"]),
        ({"words": wide, "head 1": square, "head 2": square, "a title as long as a line": wide}, ["→", "&", "→"]),
        ({"padding": wide, "causal": square, "target": square}, ["&", "="]),
    ):
        axes = plots.matrices(panels, between=signs).axes[0]
        corners = [mesh.get_coordinates() for mesh in axes.collections]
        matrices = [(xy[0, 0, 0], xy[0, 0, 1] - 0.5, xy[-1, -1, 1]) for xy in corners]  # left; top, with title; bottom
        drawn = [text for text in axes.texts if text.get_text() in (*signs, "↳")]
        assert len(drawn) == len(signs)
        for sign, (left, top, bottom) in zip(drawn, matrices[1:], strict=True):
            x, y = sign.get_position()
            assert top <= y <= bottom  # it stands in the line of the matrix that comes after it
            title = next(text for text in axes.texts if text.get_text() == list(panels)[drawn.index(sign) + 1])
            assert x > 0.05 and x < max(left, title.get_window_extent().x0)
        assert len({top for _, top, _ in matrices}) > 1  # there is more than one line
        assert drawn[-1].get_text() == {"→": "↳"}.get(signs[-1], signs[-1])


def test_where_no_picture_is_shown_words_say_what_it_shows(translation):
    panels = {"Q": torch.tensor([[1.0, 0], [0, 2]]), "masked": torch.tensor([[1.0, -torch.inf]])}
    curves = {"training": [4.0, 1.0], "healthy": [1.0, 0.0]}
    figure, axes = plots.new_axes(3, 3)
    axes.set(xlabel="position", title="a batch")
    for picture, words in (
        (plots.attention_heads(translation), ["head 1", "head 4", "source word looked at", *translation.tgt_tokens]),
        (plots.matrices(panels, ["Der", "Hund"], ["x", "y"], ["→"]), ["Der  1  0", "Hund  0  2", "→  masked", "−∞"]),
        (plots.lines([1, 2], curves, "epoch", "loss"), ["loss", "epoch", "training", "healthy"]),
        (plots.bars({"random": 49.04, "sorted": 8.0}, "padding (%)"), ["padding (%)", "random 49.0", "sorted 8.0"]),
        (figure, ["position", "a batch"]),
    ):
        assert all(word in repr(picture) for word in words), repr(picture)
    figure.alt = "A batch of two"
    assert repr(figure) == "Picture: A batch of two"


def test_lines_are_the_curves_with_plain_numbers_on_logarithmic_axes():
    figure = plots.lines([1, 10, 100], {"up": [0.1, 1, 10], "down": [10, 1, 0.1]}, "x", "y", log="xy")
    axes = figure.axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.1, 1, 10], [10, 1, 0.1]]
    assert axes.lines[0].get_linestyle() != axes.lines[1].get_linestyle()  # told apart without colours
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["up", "down"]
    assert axes.get_xlabel() == "x, log scale" and axes.get_ylabel() == "y, log scale"
    figure.draw_without_rendering()
    assert labels(axes)[0] == ["1", "10", "100"]
    assert {"0.1", "1", "10"} <= set(labels(axes)[1])
    linear = plots.lines([1, 2], {"one": [1, 2]}, "x", "y").axes[0]
    assert linear.get_yscale() == "linear" and linear.get_ylabel() == "y"


@pytest.mark.parametrize("points", [3, 30])
def test_each_of_five_curves_looks_different_without_its_colour(points):
    figure = plots.lines(range(points), {name: range(points) for name in "abcde"}, "x", "y")
    looks = {(curve.get_linestyle(), str(curve._dash_pattern), curve.get_marker()) for curve in figure.axes[0].lines}
    assert len(looks) == 5
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert not box.overlaps(figure.axes[0].get_window_extent())  # the legend covers no curve


def test_matrices_side_by_side_share_one_scale_and_steps_of_a_calculation_do_not():
    panels = {"weak": torch.tensor([[0.24]]), "strong": torch.tensor([[-0.45, torch.inf]])}
    scales = [mesh.get_clim() for mesh in plots.matrices(panels).axes[0].collections]
    assert scales == [pytest.approx((-0.45, 0.45))] * 2
    scales = [mesh.get_clim() for mesh in plots.matrices(panels, between=["→"]).axes[0].collections]
    assert scales == [pytest.approx((-0.24, 0.24)), pytest.approx((-0.45, 0.45))]


def test_a_telephone_shows_letters_of_ten_pixels(translation):
    tokens, six = ["<sos>", "a", "dog", "<eos>", "<pad>", "<pad>"], torch.eye(6)
    names = "self-attention, restricted to near neighbours", "recurrent"
    figures = [
        plots.attention_heads(translation),
        plots.matrices({"padding": six, "causal": six, "target": six}, tokens, tokens, ["&", "="]),
        plots.lines(
            [1, 2], {name: [1, 2] for name in names}, "length n", "operations of one layer (millions)", log="xy"
        ),
        plots.bars(dict.fromkeys(names, 1.0), "count"),
    ]
    for figure in figures:
        width = float(ET.fromstring(figure.svg()).get("width").removesuffix("pt")) * 96 / 72
        shrunk = min(1, 358 / width)  # what is left of 390 pixels beside the margins
        sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
        assert min(sizes) * 96 / 72 * shrunk >= 10


def test_a_notebook_stores_an_svg_of_letters_that_is_the_same_each_time(translation, monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "display", lambda bundle, raw: shown.append(bundle))
    for _ in range(2):
        assert DisplayFormatter().format(plots.attention_heads(translation)) == ({}, {})  # and nothing else beside it
    assert {*shown[0]} == {"image/svg+xml", "text/plain"}
    first, second = (bundle["image/svg+xml"] for bundle in shown)
    assert first == second
    written = {text.text for text in ET.fromstring(first).iter("{http://www.w3.org/2000/svg}text")}
    assert {*translation.src_tokens, *translation.tgt_tokens, "head 1", "attention weight"} <= written
    assert "prefers-color-scheme: dark" in first


def test_axes_of_whole_numbers_have_whole_ticks():
    for length in (3, 30):
        axes = plots.lines(range(length), {"a": range(length)}, "step", "loss").axes[0]
        assert all(tick == round(tick) for tick in axes.get_xticks())


def test_bars_stand_from_top_to_bottom_with_their_numbers():
    axes = plots.bars({"random": 49.04, "sorted": 8.0}, "padding (%)", label="{:.2f}").axes[0]
    assert [bar.get_width() for bar in axes.patches] == [49.04, 8.0]
    assert [text.get_text() for text in axes.texts] == ["49.04", "8.00"]
    assert labels(axes)[1] == ["random", "sorted"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first is on top
