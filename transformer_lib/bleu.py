"""Corpus BLEU three ways: by its definition, torchtext's and sacreBLEU's (Papineni et al. 2002).

BLEU compares tokens, so it depends on who cut the tokens. The first two take them as they come; in the tutorials'
measure these are lower-cased spaCy tokens. sacreBLEU takes whole sentences and cuts them itself, which is what papers
quote. References are always the raw text, never words looked up in a vocabulary: an ``<unk>`` in a reference would be
easy to hit.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sacrebleu
from torchtext.data.metrics import bleu_score

if TYPE_CHECKING:
    from transformer_lib.text import TextField
    from transformer_lib.translator import Translation

MAX_ORDER = 4


@dataclass(frozen=True)
class Score:
    """BLEU on the scale of 0 to 100, and how it was measured."""

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def by_definition(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Compute BP · exp(Σ ¼ log p_n) from clipped n-gram precisions p_1 to p_4 and the brevity penalty BP.

    Args:
        hypotheses: tokens of each translation.
        references: tokens of each reference, one reference a sentence.

    Returns:
        0 to 100; 0 if some n-gram length has no match at all (no smoothing).

    Raises:
        ValueError: the two differ in number, or there are none.
    """
    _check(hypotheses, references)
    matches, totals = [0] * MAX_ORDER, [0] * MAX_ORDER
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for order in range(1, MAX_ORDER + 1):
            found, wanted = _ngrams(hypothesis, order), _ngrams(reference, order)
            matches[order - 1] += (found & wanted).total()  # & clips: no n-gram counts more often than in the reference
            totals[order - 1] += found.total()
    if 0 in matches:
        return 0.0
    mean_log_precision = sum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / MAX_ORDER
    hypothesis_length, reference_length = sum(map(len, hypotheses)), sum(map(len, references))
    brevity_penalty = min(1.0, math.exp(1 - reference_length / hypothesis_length))
    return 100 * brevity_penalty * math.exp(mean_log_precision)


def torchtext_bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Score:
    """Compute the tutorials' measure with ``torchtext.data.metrics.bleu_score``; arguments as ``by_definition``."""
    _check(hypotheses, references)

    def without_spaces(sentence: Sequence[str]) -> list[str]:
        return [token.replace(" ", "␣") for token in sentence]  # bleu_score itself joins and splits n-grams at spaces

    value = 100 * bleu_score(
        [without_spaces(hypothesis) for hypothesis in hypotheses],
        [[without_spaces(reference)] for reference in references],
    )
    return Score(value, "torchtext bleu_score, tokens as given, no smoothing")


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = True) -> Score:
    """Compute sacreBLEU's measure on detokenised sentences, with its signature.

    Args:
        hypotheses: translations.
        references: raw references, one a sentence.
        lowercase: ignore case; models of this library write lower case.

    Raises:
        ValueError: the two differ in number, or there are none.
    """
    _check(hypotheses, references)
    metric = sacrebleu.BLEU(lowercase=lowercase)
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(value, f"sacreBLEU {metric.get_signature()}")


def score(
    translations: Sequence["Translation"], references: Sequence[str], tgt_field: "TextField"
) -> tuple[Score, Score]:
    """Score translations both ways: the tutorials' (torchtext, lower-cased spaCy tokens) and sacreBLEU's.

    Args:
        translations: what ``Translator.translate`` returned.
        references: raw references, one a sentence.
        tgt_field: cuts the references into tokens.
    """
    return (
        torchtext_bleu([t.tokens for t in translations], [tgt_field.tokens(reference) for reference in references]),
        sacre_bleu([t.text for t in translations], references),
    )


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def _check(hypotheses: Sequence, references: Sequence) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses but {len(references)} references, expected one each")
    if not hypotheses:
        raise ValueError("hypotheses is empty, expected at least one sentence")
