"""Draw the README's picture: what the translator looks at while it writes, as ribbons from word to word.

``python assets/draw_ribbons.py`` writes ``assets/ribbons_light.svg`` and ``assets/ribbons_dark.svg``. Each English word
appears with its ribbons, one after the other, and then the picture stands still; who has asked for less motion sees it
stand still at once. A ribbon is as wide as the cross-attention from the word below to the word above, which its title
says in numbers. Coordinates are as in ``drawings/kit.py``.
"""

import re
from html import escape
from itertools import accumulate
from pathlib import Path

from drawings.kit import CARD, CARD_EDGE, INK, KINDS, SANS, in_the_dark

from transformer_lib import Translator

SENTENCE = "Im Regen geht eine Frau mit ihrem Hund spazieren."
LAYER = 1  # the second of three decoder layers; of its heads, the mean
PHRASES = {  # German words that belong together have one colour: here, the two halves of the verb
    "Im Regen": KINDS["feed_forward"][1],
    "geht spazieren": KINDS["attention"][1],
    "eine Frau": KINDS["linear"][1],
    "mit ihrem Hund": KINDS["embedding"][1],
}

WIDTH = 390
HEIGHT = 240
MARGIN = 16
GERMAN_LINE = 35  # baselines
ENGLISH_LINE = 218
RIBBONS = 46, 200  # the ys of their upper and their lower ends
FULL = 19  # how wide a ribbon is that all the attention flows through
LEAST = 0.05  # less is not drawn
FONT_SIZE = 14
START = 0.4  # seconds until the first word
PAUSE = 0.55  # seconds from word to word


def look(translator: Translator) -> tuple[str, list[list[float]]]:
    """Return the translation, and how much each of its words looks at each of the German ones, in thousandths.

    In this sentence every word is one token. The last of both languages is the full stop, which is left out, as are
    ``<sos>`` and ``<eos>``.
    """
    translation = translator.translate([SENTENCE], attention=True)[0]
    attention = translation.attention.cross[LAYER][0].mean(dim=0)  # [tgt_len, src_len]
    words = attention[: len(translation.text.split()), 1 : 1 + len(SENTENCE.split())]
    return translation.text, [[round(weight, 3) for weight in row] for row in words.tolist()]


def width_of(word: str) -> float:
    """Return about how wide a word is in a sans-serif font; ``textLength`` makes it exactly that in all of them."""
    ems = {**dict.fromkeys("ijl.I", 0.27), **dict.fromkeys("frst", 0.42), **dict.fromkeys("mw", 0.84)}
    return round(FONT_SIZE * sum(ems.get(letter, 0.57) for letter in word), 1)


def middles(words: list[str]) -> list[float]:
    """Return the x of each word's middle, when a line of them is spread over the picture."""
    widths = [width_of(word) for word in words]
    gap = (WIDTH - 2 * MARGIN - sum(widths)) / (len(words) - 1)
    ends = accumulate(widths, lambda end, width: end + gap + width)
    return [MARGIN + end - width / 2 for end, width in zip(ends, widths, strict=True)]


def side_by_side(middle: float, widths: list[float]) -> list[float]:
    """Return the x of each ribbon's middle, when they lie side by side around a word's."""
    return [middle + end - width / 2 - sum(widths) / 2 for end, width in zip(accumulate(widths), widths, strict=True)]


def text(word: str, x: float, y: float, colour: str, bold: bool = False) -> str:
    """Write a word around an x."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="middle" textLength="{width_of(word):g}" '
        f'lengthAdjust="spacingAndGlyphs" fill="{colour}"{weight}>{escape(word)}</text>'
    )


def draw(english: str, attention: list[list[float]]) -> str:
    """Return the picture on a light page: ``attention[i][j]`` is English word i's to German word j."""
    source = SENTENCE.split()
    target = english.split()
    colour_of = {word: colour for phrase, colour in PHRASES.items() for word in phrase.split()}
    colours = [colour_of[word.strip(".")] for word in source]
    widths = [[FULL * weight if weight >= LEAST else 0 for weight in row] for row in attention]
    above = middles(source)
    below = middles(target)
    columns = [list(column) for column in zip(*widths, strict=True)]
    starts = [side_by_side(x, column) for x, column in zip(above, columns, strict=True)]
    ends = [side_by_side(x, row) for x, row in zip(below, widths, strict=True)]
    top, bottom = RIBBONS
    steps = []
    for i, word in enumerate(target):
        ribbons = [
            f'<path d="M{starts[j][i]:.2f} {top} C{starts[j][i]:.2f} {top + 85} {ends[i][j]:.2f} {bottom - 85} '
            f'{ends[i][j]:.2f} {bottom}" pathLength="1" stroke="{colours[j]}" stroke-width="{widths[i][j]:.3f}">'
            f"<title>{escape(source[j].strip('.'))} → {escape(word.strip('.'))}: {attention[i][j]:.3f}</title></path>"
            for j in range(len(source))
            if widths[i][j]
        ]
        steps += [
            f'<g style="--at: {START + i * PAUSE:.2f}s">',
            *ribbons,
            text(word, below[i], ENGLISH_LINE, INK),
            "</g>",
        ]
    card = (
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12" fill="{CARD}" stroke="{CARD_EDGE}"/>'
    )
    german = zip(source, above, colours, strict=True)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-labelledby="title" font-family="{SANS}" font-size="{FONT_SIZE}">',
        f'<title id="title">“{SENTENCE}” becomes “{english}”</title>',
        "<style>",
        "path { fill: none; opacity: 0.7 }",
        "@media (prefers-reduced-motion: no-preference) {",
        "  path { animation: flow 0.9s var(--at) ease-in-out backwards }",
        "  g text { animation: appear 0.4s calc(var(--at) + 0.6s) backwards }",
        "}",
        "@keyframes flow { from { stroke-dasharray: 0 1; opacity: 1 } to { stroke-dasharray: 1 0; opacity: 0.7 } }",
        "@keyframes appear { from { opacity: 0 } }",
        "</style>",
        card,
        *[text(word, x, GERMAN_LINE, colour, bold=True) for word, x, colour in german],
        *steps,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def both(english: str, attention: list[list[float]]) -> dict[str, str]:
    """Return the picture on a light page, and the same with the colours for a dark one, by the names of their files."""
    light = draw(english, attention)
    dark = re.sub("#[0-9a-f]{6}", lambda colour: in_the_dark(colour[0]), light)
    return {"ribbons_light.svg": light, "ribbons_dark.svg": dark}


def main() -> None:
    """Write both pictures."""
    for name, picture in both(*look(Translator.load())).items():
        Path(__file__).with_name(name).write_text(picture, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
