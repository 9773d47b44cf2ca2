"""Measure how notebooks sound: words a sentence, who speaks, contractions, and brackets that hold a verb.

    python tools/measure_voice.py notebooks/0*.ipynb            # a line for each notebook, and one for all
    python tools/measure_voice.py notebooks/03_masks.ipynb -b   # and each bracket with a verb

Of the markdown cells, what is read as prose is counted: no headings, tables, code blocks or links to the neighbours. A
formula is one word, and so is code with spaces in it. It is a measure, and no test: a number tells whoever writes where
to listen again, and nobody what to write.
"""

import argparse
import json
import re
from pathlib import Path
from typing import NamedTuple

# Forms by which a sentence in brackets is told from a note. Some are nouns, too ("run", "test"): read the list.
FORMS = """
is are was were be been being has have had do does did can could will would shall should may might must isn't
aren't doesn't don't make makes made take takes took give gives gave get gets got go goes went come comes came
say says said see sees saw know knows knew need needs needed use uses used read reads write writes wrote learn
learns learned learnt show shows showed keep keeps kept let lets put puts hold holds held find finds found mean
means meant become becomes became begin begins began end ends ended stand stands stood work works worked cost
costs lose loses lost help helps tell tells told ask asks asked explain explains train trains trained change
changes changed run runs ran look looks looked count counts counted call calls called multiplies adds divides
compute computes computed return returns build builds built want wants turn turns turned stay stays stop stops
start starts contain contains appear appears remain remains fall falls fell rise rises rose exist exists belong
belongs follow follows expect expects test tests tested measure measures measured skip skips leave leaves left
think thinks try tries fit fits draw draws drew teach teaches taught choose chooses chose matter matters hide
hides split splits sum sums average averages
"""
VERBS = set(FORMS.split())
WE = {"we", "us", "our", "ours", "we're", "we've", "we'll", "we'd", "let's"}
CONTRACTION = re.compile(r"n't$|'(re|ve|ll|d|m)$|^(it|that|there|here|what|who|let|he|she|where|how)'s$", re.IGNORECASE)
NOT_PROSE = {
    r"(?s)```.*?```": "",
    r"<[^>]+>": " ",
    r"(?s)\$\$.*?\$\$": " ",
    r"(?m)^\|.*$": "",  # tables
    r"(?m)^#.*$": "",
    r"(?m)^(Previous|Next): .*$": "",
    r"!?\[([^\]]*)\]\([^)]*\)": r"\1",  # of a link, its text
    r"\$[^$]*\$": "formula",
    r"[*_]": "",
    "’": "'",
}
CODE = re.compile(r"`([^`]*)`")


class Sound(NamedTuple):
    """What is counted in a text: words, sentences, "we", contractions, and the brackets with a verb in them."""

    words: int
    sentences: int
    we: int
    contractions: int
    brackets: list[str]

    def __str__(self) -> str:
        hundred = max(self.words, 1) / 100
        return (
            f"{self.words:6} words  {self.words / max(self.sentences, 1):5.1f} a sentence  we {self.we / hundred:.2f}  "
            f"contractions {self.contractions / hundred:.2f}  brackets with a verb {len(self.brackets)}"
        )


def prose(cells: list[dict]) -> str:
    """Return what is read as prose of a notebook's cells."""
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for pattern, instead in NOT_PROSE.items():
        text = re.sub(pattern, instead, text)
    return CODE.sub(lambda code: "code" if " " in code[1] else code[1], text)


def measure(text: str) -> Sound:
    """Count in a text of prose. A point of a list is a sentence, and so is what ends in a colon."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*[-\d])", text)
    ends = r"(?<=[.!?:])[\"”)]*\s+(?=[A-Z0-9\"“(])"
    sentences = [part for block in blocks for part in re.split(ends, " ".join(block.split())) if len(part.split()) > 1]
    words = [word.strip("'") for word in re.findall(r"[\w'-]+", text)]
    brackets = re.findall(r"\(([^()]{8,})\)", text)
    return Sound(
        len(words),
        len(sentences),
        sum(word.lower() in WE for word in words),
        sum(bool(CONTRACTION.search(word)) for word in words),
        [" ".join(one.split()) for one in brackets if VERBS & {*re.findall(r"[a-z']+", one.lower())}],
    )


def main() -> None:
    """Print a line for each notebook, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("-b", "--brackets", action="store_true", help="list each bracket with a verb in it")
    given = parser.parse_args()
    texts = [prose(json.loads(path.read_text(encoding="utf-8"))["cells"]) for path in given.notebooks]
    for path, text in zip(given.notebooks, texts, strict=True):
        sound = measure(text)
        print(f"{path.stem:30}{sound}")
        for bracket in sound.brackets if given.brackets else ():
            print(f"    ({bracket})")
    together = "\n\n".join(texts)
    print(f"{'in all':30}{measure(together)}")


if __name__ == "__main__":
    main()
