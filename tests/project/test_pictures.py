"""The pictures that one notebook alone shows."""

import torch
from transformer_exercises.pictures import beam_tree, histogram, padding, positions, vectors

TOKENS = ["the", "a", "dog", "cat", "<eos>"]
ASKED = {  # of each prefix in the beam, what may follow
    (): torch.tensor([-0.92, -0.51, -7, -8, -9]),
    (0,): torch.tensor([-9, -8, -0.10, -7, -9]),
    (1,): torch.tensor([-9, -8, -0.92, -1.05, -7]),
    (0, 2): torch.tensor([-9, -9.1, -9.2, -9.3, 0]),
    (1, 2): torch.tensor([-9.4, -9.5, -9.6, -9.7, -8]),
}
BEST = (0, 2, 4)


def tree_labels(figure):
    """Return each box's text with its place: step and row."""
    return {text.get_text().replace("\n", " "): text.get_position() for text in figure.axes[0].texts}


def test_a_beam_tree_shows_every_prefix_at_its_step_and_the_best_along_the_top():
    figure = beam_tree(ASKED, TOKENS, BEST, shown=3)
    assert tree_labels(figure) == {
        "<sos>": (0, 0),
        "the -0.92": (1, 0),
        "dog -1.02": (2, 0),
        "<eos> -1.02": (3, 0),
        "a -0.51": (1, 1),
        "dog -1.43": (2, 1),
        "cat -1.56": (2, 2),
        "dog -7.00": (1, 2),
        "the -10.02": (3, 1),
        "<eos> -9.43": (3, 2),
    }
    fills = {text.get_text(): text.get_bbox_patch().get_facecolor() for text in figure.axes[0].texts}
    edges = {text.get_text(): text.get_bbox_patch().get_edgecolor() for text in figure.axes[0].texts}
    assert fills["the\n-0.92"] == fills["<eos>\n-1.02"] != fills["a\n-0.51"] == fills["cat\n-1.56"]
    assert edges["a\n-0.51"] == edges["dog\n-1.43"] != edges["cat\n-1.56"]
    assert len(figure.axes[0].lines) == len(tree_labels(figure)) - 1


def test_no_box_of_a_beam_tree_overlaps_another_or_is_clipped():
    tokens = ["a", "$", "children", "extraordinarily", "x"]
    row = torch.arange(5.0).log_softmax(0)
    asked = dict.fromkeys([(), (4,), (3,), (2,), (4, 4), (3, 4), (3, 3)], row)
    figure = beam_tree(asked, tokens, (3, 3, 4))
    figure.draw_without_rendering()
    boxes = [text.get_bbox_patch().get_window_extent() for text in figure.axes[0].texts]
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    box = figure.get_tightbbox().padded(-0.01)
    assert box.xmin >= 0 and box.ymin >= 0
    assert box.xmax <= figure.get_figwidth() and box.ymax <= figure.get_figheight()


def test_a_histogram_counts_every_sample_over_the_same_bins():
    samples = {"de": [1, 1, 31], "en": [2, 2, 2, 30]}
    axes = histogram(samples, "tokens", "sentences").axes[0]
    outlines = [patch.get_xy() for patch in axes.patches]
    assert [{float(y) for y in outline[:, 1]} for outline in outlines] == [{0, 1, 2}, {0, 1, 3}]
    assert {float(x) for x in outlines[0][:, 0]} == {float(x) for x in outlines[1][:, 0]} == {*map(float, range(1, 32))}


def test_a_histogram_of_a_matrix_counts_all_its_numbers():
    (outline,) = histogram({"weights": torch.tensor([[0.0, 3.0], [3.0, 3.0]])}, "weight", "count").axes[0].patches
    assert {float(y) for y in outline.get_xy()[:, 1]} == {0, 1, 3}


def test_vectors_are_arrows_from_the_origin_with_their_names():
    figure = vectors({"query": (2, 1), "$key": (-1, 2)})
    axes = figure.axes[0]
    arrows = [text for text in axes.texts if text.arrow_patch]
    assert [(arrow.xyann, arrow.xy) for arrow in arrows] == [((0, 0), (2, 1)), ((0, 0), (-1, 2))]
    names = [text for text in axes.texts if text.get_text()]
    assert [(name.get_text(), name.xy) for name in names] == [("query", (2, 1)), ("$key", (-1, 2))]
    figure.draw_without_rendering()
    assert axes.get_aspect() == 1  # angles can be read off
    box = axes.get_window_extent()
    assert all(box.contains(*corner) for name in names for corner in name.get_window_extent().corners())


def test_padding_is_light_and_tokens_are_dark():
    figure = padding(torch.tensor([[2, 5, 3], [2, 3, 1]]), pad_id=1, title="a batch")
    axes = figure.axes[0]
    assert axes.images[0].get_array().tolist() == [[True, True, True], [True, True, False]]
    light, dark = (sum(axes.images[0].cmap(value)[:3]) for value in (0, 1))
    assert light > dark
    assert axes.get_title() == "a batch" and axes.get_xlabel() and axes.get_ylabel()


def test_positions_are_drawn_as_they_are_on_a_scale_that_is_even_around_zero():
    table = torch.tensor([[0.5, -2.0], [1.0, 0.0]])
    image = positions(table).axes[0].images[0]
    torch.testing.assert_close(torch.tensor(image.get_array()), table)
    assert image.get_clim() == (-2, 2)
