"""Draw the README's picture: what two heads of the translator look at while it reorders a sentence.

python assets/draw_attention.py
"""

from dataclasses import replace
from pathlib import Path

from transformer_lib import Translator
from transformer_lib.notebook import plots

SENTENCE = "Im Park spielen zwei Kinder Fußball."
LAYER, HEADS = 1, slice(0, 2)  # the second of three decoder layers, and the first two of its four heads

translation = Translator.load().translate([SENTENCE], attention=True)[0]
cross = [translation.attention.cross[LAYER][:, HEADS]]  # [1, 2, tgt_len, src_len]
translation = replace(
    translation,
    src_tokens=[token.lstrip("▁") for token in translation.src_tokens],  # the mark of a word's beginning
    tgt_tokens=[token.lstrip("▁") for token in translation.tgt_tokens],
    attention=translation.attention._replace(cross=cross),
)
print(translation.text)
figure = plots.attention_heads(translation)
# dpi: twice the size at which it is shown, for sharp screens
figure.savefig(Path(__file__).parent / "attention.png", dpi=220, bbox_inches="tight")
