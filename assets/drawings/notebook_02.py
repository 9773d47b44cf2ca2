"""The figures of notebook 02: attention."""

import math

from drawings.kit import BODY, DASHED, INK, KINDS, PANEL_EDGE, SEEN, Figure


def multi_head_attention() -> Figure:
    """Draw multi-head attention, with the scaled dot product of every head opened up."""
    figure = Figure(
        "multi_head_attention",
        368,
        846,
        "Multi-head attention",
        "From bottom to top: query, key and value, each of shape [batch, len, d_model], pass a linear projection each "
        "and are split into heads of d_k = d_model / num_heads dimensions. In every head, queries times transposed "
        "keys, divided by √d_k, are scores of shape [query_len, key_len]; these become minus infinity where the mask "
        "hides; softmax turns them into weights, which are multiplied with the values. The heads' outputs are "
        "concatenated to [batch, query_len, d_model] and pass the output projection.",
    )
    columns = (70, 184, 298)
    left = 118
    value_x = 320
    data = [
        figure.box("data", x, 806, 100, 30, name) for x, name in zip(columns, ("query", "key", "value"), strict=True)
    ]
    figure.text(184, 822, "each [batch, len, d_model]", "middle", code=True)
    split = figure.box("operation", 184, 682, 332, 46, "Split into heads", "[batch, heads, len, d_k]")
    for box in data:
        projection = figure.box("linear", box.x, box.top - 24, 100, 46, "Linear", f"{'qkv'[data.index(box)]}_proj")
        figure.up(box, projection)
        figure.up(projection, split, x=box.x)
    for offset in (12, 6, 0):
        panel = figure.panel(178 + offset, split.top - 24 - offset, 312, 368, "heads")
    figure.text(panel.left + 14, panel.top + 22, "Scaled dot-product attention", size=BODY, bold=True, colour=INK)
    figure.text(panel.left + 14, panel.top + 42, "in every head at once")
    products = figure.box("step", left, panel.bottom - 20, 176, 34, "queries × keysᵀ")
    scores = figure.box("step", left, products.top - 20, 176, 34, "÷ √d_k")
    masked = figure.box("step", left, scores.top - 38, 176, 34, "−∞ where hidden")
    softmax = figure.box("step", left, masked.top - 20, 176, 34, "softmax over keys")
    weighted = figure.box("step", 178, softmax.top - 38, 296, 34, "weights × values")
    for x, box in zip((columns[0], columns[1], value_x), (products, products, weighted), strict=True):
        figure.arrow((x, split.top), (x, box.bottom))
    figure.up(products, scores)
    figure.up(scores, masked, "[query_len, key_len]")
    figure.up(masked, softmax)
    figure.up(softmax, weighted, "[query_len, key_len]", x=left)
    mask = figure.box("data", 270, masked.middle + 15, 68, 30, "mask", dash=DASHED)
    figure.arrow((mask.left, mask.middle), (masked.right, mask.middle), dash=DASHED)
    concatenate = figure.box(
        "operation", 178, panel.top - 38, 282, 46, "Concatenate heads", "[batch, query_len, d_model]"
    )
    figure.up(weighted, concatenate, x=306)
    projection = figure.box("linear", 178, concatenate.top - 22, 282, 46, "Linear", "out_proj")
    figure.up(concatenate, projection)
    output = figure.box("data", 178, projection.top - 22, 282, 46, "output", "[batch, query_len, d_model]")
    figure.up(projection, output)
    return figure


def _vector(figure: Figure, start: tuple[float, float], tip: tuple[float, float], colour: str) -> None:
    """Draw a vector of any direction, with an open arrowhead."""
    to_the_right = tip[0] - start[0]
    downwards = tip[1] - start[1]
    length = math.hypot(to_the_right, downwards)
    x = 9 * to_the_right / length
    y = 9 * downwards / length
    figure.line(start, tip, colour=colour, width=2.5)
    for side in (0.6, -0.6):
        figure.line((tip[0] - x + side * y, tip[1] - y - side * x), tip, colour=colour, width=2.5)


def query_and_keys() -> Figure:
    """Draw the query of *bellt* and three keys as arrows, and what softmax makes of their dot products."""
    figure = Figure(
        "query_and_keys",
        368,
        306,
        "A query among three keys",
        "A plane whose axes mean noun and verb. The query of bellt points two units to the right and one up. The key "
        "of Hund points one unit to the right, that of bellt one up, and that of Der is the point zero. Below, the dot "
        "products and the weights: Der 0 and 0.14, Hund 2 and 0.58, bellt 1 and 0.28.",
    )
    orange = KINDS["attention"][1]
    x = 96
    y = 150
    unit = 84
    figure.line((x, y), (310, y), colour=PANEL_EDGE)
    figure.line((x, y), (x, 42), colour=PANEL_EDGE)
    figure.text(316, y, "noun")
    figure.text(x, 32, "verb", "middle")
    _vector(figure, (x, y), (x + 2 * unit, y - unit), orange)
    for tip in ((x + unit, y), (x, y - unit)):
        _vector(figure, (x, y), tip, SEEN)
    figure.rectangle(x - 4, y - 4, 8, 8, SEEN, SEEN, radius=4)
    figure.text(x + 2 * unit, y - unit - 18, "query of bellt", "middle", bold=True, colour=orange)
    figure.text(x - 10, y + 18, "Der", "end", bold=True, colour=SEEN)
    figure.text(x + unit, y + 18, "Hund", "middle", bold=True, colour=SEEN)
    figure.text(x - 12, y - unit, "bellt", "end", bold=True, colour=SEEN)
    for left, heading in ((24, "key"), (82, "query · key"), (222, "weight")):
        figure.text(left, 204, heading)
    scores = {"Der": (0, 0), "Hund": (1, 0), "bellt": (0, 1)}
    powers = {word: math.exp((2 * key[0] + key[1]) / math.sqrt(2)) for word, key in scores.items()}
    for row, (word, key) in enumerate(scores.items()):
        middle = 230 + 26 * row
        weight = powers[word] / sum(powers.values())
        figure.text(24, middle, word, bold=True, colour=SEEN)
        figure.text(82, middle, f"(2, 1)·({key[0]}, {key[1]}) = {2 * key[0] + key[1]}", code=True, colour=INK)
        figure.rectangle(222, middle - 8, 130 * weight, 16, SEEN, SEEN, radius=2)
        figure.text(230 + 130 * weight, middle, f"{weight:.2f}", colour=INK)
    return figure


def heads_side_by_side() -> Figure:
    """Draw what one head makes of two neighbours, and how two heads keep them apart."""
    figure = Figure(
        "heads_side_by_side",
        368,
        326,
        "One head, and two side by side",
        "Two drawings, from bottom to top, of the words der, hund and und, where hund asks for both its neighbours. "
        "Left, one head takes half of der and half of und, and adds them up: what came first is lost. Right, head 1 "
        "takes der and head 2 takes und; their outputs lie side by side, and W^O mixes them.",
    )
    for left, title, note in ((24, "one head", "which came first?"), (200, "two heads", "kept apart")):
        figure.text(left, 32, title, size=BODY, bold=True, colour=INK)
        figure.text(left, 52, note)
    words = {}
    for first in (46, 222):
        for number, word in enumerate(("der", "hund", "und")):
            kind = "embedding" if word == "hund" else "data"
            words[first, word] = figure.box(kind, first + 50 * number, 284, 46, 28, word)
    one = figure.box("attention", 96, 222, 136, 34, "head")
    mixed = figure.box("data", 96, 160, 136, 30, "½ der + ½ und")
    figure.up(one, mixed)
    heads = [figure.box("attention", x, 222, 66, 34, f"head {number}") for number, x in ((1, 236), (2, 308))]
    joined = [figure.box("data", x, 160, 72, 30, word) for word, x in (("der", 236), ("und", 308))]
    for word in ("der", "und"):
        figure.up(words[46, word], one, x=words[46, word].x)
    for word, head, output in zip(("der", "und"), heads, joined, strict=True):
        figure.up(words[222, word], head, x=words[222, word].x)
        figure.up(head, output)
    mix = figure.box("linear", 272, 108, 144, 30, "W^O")
    figure.arrow((272, joined[0].top), (272, mix.bottom))
    figure.arrow((272, mix.top), (272, 62))
    figure.text(184, 302, "hund asks for both its neighbours", "middle")
    return figure


FIGURES = (query_and_keys, heads_side_by_side, multi_head_attention)
