"""Corpus BLEU three ways: by its definition, torchtext's and sacreBLEU's (Papineni et al. 2002).

BLEU compares tokens, so it depends on who cut the tokens. The first two take them as they come; in the tutorials'
measure these are lower-cased spaCy tokens. sacreBLEU takes whole sentences and cuts them itself, which is what papers
quote. References are always the raw text, never words looked up in a vocabulary: an ``<unk>`` in a reference would be
easy to hit.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import sacrebleu

if TYPE_CHECKING:
    from transformer_lib.data.tokenizers import WordTokenizer
    from transformer_lib.inference.translator import Translation

MAX_ORDER = 4
# where words have no spaces between them; sacreBLEU's own for Japanese and Korean need further packages
_SACRE_TOKENIZERS = {"zh": "zh", **dict.fromkeys(("ja", "ko", "th", "lo", "km", "my"), "char")}


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
        TypeError: a sentence is a string, or holds something else than strings.
    """
    return float(bleu_from_ngram_counts(sentence_counts(hypotheses, references).sum(axis=0)))


def sentence_counts(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Count what BLEU is made of, sentence by sentence; arguments and errors as ``by_definition``.

    Returns:
        ``[sentences, 9]``: matching 1-grams to 4-grams, the hypothesis's 1-grams to 4-grams, the reference's length.
    """
    _check_tokens(hypotheses, references)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        matches, totals = [], []
        for order in range(1, MAX_ORDER + 1):
            found, wanted = _ngrams(hypothesis, order), _ngrams(reference, order)
            matches.append((found & wanted).total())  # & clips: no n-gram counts more often than in the reference
            totals.append(found.total())
        rows.append([*matches, *totals, len(reference)])
    return np.array(rows)


def bleu_from_ngram_counts(counts: np.ndarray) -> np.ndarray:
    """Compute BLEU, 0 to 100, from sums of ``sentence_counts``, ``[..., 9]``."""
    matches, totals = counts[..., :MAX_ORDER], counts[..., MAX_ORDER:-1]
    hypothesis_length, reference_length = totals[..., 0], counts[..., -1]
    with np.errstate(divide="ignore"):  # no match: log 0 is -inf, and e to the power of that is 0
        mean_log_precision = np.log(matches / np.maximum(totals, 1)).mean(axis=-1)
    brevity_penalty = np.exp(np.minimum(0, 1 - reference_length / np.maximum(hypothesis_length, 1)))
    return 100 * brevity_penalty * np.exp(mean_log_precision)


def bootstrap(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], samples: int = 1000, seed: int = 12345
) -> np.ndarray:
    """Compute BLEU of test sets drawn from this one: as many sentences, picked at random, some of them repeatedly.

    The middle 95 % of the values are a confidence interval of BLEU. Two systems' values, drawn with the same seed, are
    of the same sentences, place by place: their differences tell whether one system is better (Koehn 2004).

    Args:
        hypotheses, references: as in ``by_definition``, whose errors this raises.
        samples: how many test sets to draw.
        seed: sacreBLEU's by default, which draws the same sentences.

    Returns:
        ``[samples]``.
    """
    counts = sentence_counts(hypotheses, references)
    picks = np.random.default_rng(seed).choice(len(counts), size=(samples, len(counts)))
    return np.array([bleu_from_ngram_counts(counts[pick].sum(axis=0)) for pick in picks])


def torchtext_bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Score:
    """Compute the tutorials' measure with ``torchtext.data.metrics.bleu_score``; see ``by_definition``."""
    from torchtext.data.metrics import bleu_score  # only this needs torchtext

    _check_tokens(hypotheses, references)

    def without_spaces(sentence: Sequence[str]) -> list[str]:
        return [token.replace(" ", "␣") for token in sentence]  # bleu_score itself joins and splits n-grams at spaces

    value = 100 * bleu_score(
        [without_spaces(hypothesis) for hypothesis in hypotheses],
        [[without_spaces(reference)] for reference in references],
    )
    return Score(value, "torchtext bleu_score, tokens as given, no smoothing")


def sacre_bleu(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = True, tokenize: str = "13a"
) -> Score:
    """Compute sacreBLEU's measure on detokenised sentences, with its signature.

    Args:
        hypotheses: translations.
        references: raw references, one a sentence.
        lowercase: ignore case; models of this library write lower case.
        tokenize: how sacreBLEU cuts sentences; ``"zh"`` or ``"char"`` where words have no spaces between them.

    Raises:
        ValueError: the two differ in number, or there are none.
        TypeError: a sentence is not a string.
    """
    _check_number(hypotheses, references)
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        for i, sentence in enumerate(sentences):
            if not isinstance(sentence, str):
                raise TypeError(
                    f"{name}[{i}] is {sentence!r}, expected a string: sacreBLEU cuts sentences itself, and there "
                    "is one reference a sentence here"
                )
    metric = sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize)
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(value, f"sacreBLEU {metric.get_signature()}")


def score(
    translations: Sequence["Translation"], references: Sequence[str], tgt_tokenizer: "WordTokenizer"
) -> tuple[Score, Score]:
    """Score translations both ways: the tutorials' (BLEU-4 of lower-cased spaCy tokens) and sacreBLEU's.

    Args:
        translations: what ``Translator.translate`` returned.
        references: raw references, one a sentence.
        tgt_tokenizer: cuts the references into words, and the translations too if they were written in subwords.
    """
    return (
        torchtext_bleu(
            [t.tokens if tgt_tokenizer.whole_words else tgt_tokenizer.words(t.text) for t in translations],
            [tgt_tokenizer.words(reference) for reference in references],
        ),
        sacre_bleu(
            [t.text for t in translations], references, tokenize=_SACRE_TOKENIZERS.get(tgt_tokenizer.language, "13a")
        ),
    )


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def _check_tokens(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> None:
    _check_number(hypotheses, references)
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        for i, sentence in enumerate(sentences):
            if isinstance(sentence, str):
                raise TypeError(
                    f"{name}[{i}] is the string {sentence!r}, expected a list of tokens: a string would be scored "
                    "letter by letter. WordTokenizer.tokens cuts it"
                )
            for token in sentence:
                if not isinstance(token, str):
                    raise TypeError(
                        f"{name}[{i}] holds {token!r}, expected strings, the tokens of one sentence: neither ids nor "
                        "a list of references, for there is one reference a sentence here"
                    )


def _check_number(hypotheses: Sequence, references: Sequence) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses but {len(references)} references, expected one each")
    if not hypotheses:
        raise ValueError("hypotheses is empty, expected at least one sentence")
