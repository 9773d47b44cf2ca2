"""Corpus BLEU three ways: by its definition, torchtext's and sacreBLEU's (Papineni et al. 2002). Notebook 09.

BLEU depends on who tokenised. The first two take tokens as they come, lower-cased spaCy tokens in the tutorials'
measure; sacreBLEU, which papers quote, tokenises whole sentences itself. References are the raw text, never words
looked up in a vocabulary: an ``<unk>`` in a reference would be easy to hit.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sacrebleu

from transformer_lib.data.text import WITHOUT_SPACES, normalize, two_letters
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference.translator import Translation

Tokens = Sequence[Sequence[str]]  # of each sentence
Texts = Sequence[str]
MAX_ORDER = 4
# sacreBLEU's own for Japanese and Korean need further packages
_SACRE_TOKENIZER_OF = {**dict.fromkeys(("ko", *WITHOUT_SPACES), "char"), "zh": "zh"}


@dataclass(frozen=True)
class Score:
    """BLEU on the scale of 0 to 100, and how it was measured."""

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def by_definition(hypotheses: Tokens, references: Tokens) -> float:
    """Compute BP · exp(Σ ¼ log p_n) from clipped n-gram precisions p_1 to p_4 and the brevity penalty BP, 0 to 100.

    Arguments are the tokens of each translation, and of its one reference. Nothing is smoothed: the result is 0 if some
    n-gram length has no match at all. Raises a ValueError if the two differ in number or there are none, and a
    TypeError if a sentence is a string, which would be counted character by character.
    """
    return float(bleu_from_ngram_counts(sentence_counts(hypotheses, references).sum(axis=0)))


def sentence_counts(hypotheses: Tokens, references: Tokens) -> np.ndarray:
    """Count what BLEU is made of, ``[sentences, 9]``; arguments and errors as ``by_definition``.

    That is: matching 1-grams to 4-grams, the hypothesis's 1-grams to 4-grams, and the reference's length.
    """
    _check(hypotheses, references, tokenised=True)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found = _ngrams(hypothesis)
        matches = [(ours & theirs).total() for ours, theirs in zip(found, _ngrams(reference), strict=True)]  # & clips
        rows.append([*matches, *(ours.total() for ours in found), len(reference)])
    return np.array(rows)


def _ngrams(tokens: Sequence[str]) -> list[Counter]:
    """Count a sentence's 1-grams to 4-grams."""
    shifted = [tokens[start:] for start in range(MAX_ORDER)]
    return [Counter(zip(*shifted[:order], strict=False)) for order in range(1, MAX_ORDER + 1)]


def bleu_from_ngram_counts(counts: np.ndarray) -> np.ndarray:
    """Compute BLEU, 0 to 100, from sums of ``sentence_counts``, ``[..., 9]``."""
    matches = counts[..., :MAX_ORDER]
    totals = counts[..., MAX_ORDER:-1]
    hypothesis_length = totals[..., 0]
    reference_length = counts[..., -1]
    with np.errstate(divide="ignore"):  # no match: log 0 is -inf, and e to the power of that is 0
        mean_log_precision = np.log(matches / np.maximum(totals, 1)).mean(axis=-1)
    brevity_penalty = np.exp(np.minimum(0, 1 - reference_length / np.maximum(hypothesis_length, 1)))
    return 100 * brevity_penalty * np.exp(mean_log_precision)


def bootstrap(hypotheses: Tokens, references: Tokens, samples: int = 1000, seed: int = 12345) -> np.ndarray:
    """Compute BLEU of test sets drawn from this one, ``[samples]``: as many sentences, picked with replacement.

    The middle 95 % of the values are a confidence interval. With the same seed (this one is sacreBLEU's), two systems
    get the same test sets: their differences tell whether one is better (Koehn 2004). Errors as ``by_definition``.
    """
    counts = sentence_counts(hypotheses, references)
    picks = np.random.default_rng(seed).choice(len(counts), size=(samples, len(counts)))
    return np.array([bleu_from_ngram_counts(counts[pick].sum(axis=0)) for pick in picks])


def torchtext_bleu(hypotheses: Tokens, references: Tokens, counted: str = "tokens as given") -> Score:
    """Compute torchtext's ``bleu_score``, the tutorials' measure; the signature says ``counted``."""
    from torchtext.data.metrics import bleu_score

    _check(hypotheses, references, tokenised=True)
    value = bleu_score(hypotheses, [[reference] for reference in references])
    return Score(100 * value, f"torchtext bleu_score, {counted}, no smoothing")


def sacre_bleu(hypotheses: Texts, references: Texts, lowercase: bool = False, tokenize: str = "13a") -> Score:
    """Compute sacreBLEU's measure on detokenised sentences and raw references, with its signature.

    Both are normalised first (see ``normalize``), which the signature says where it changed something, as it says if
    case was ignored. ``tokenize`` is sacreBLEU's: ``"13a"`` is for words with spaces between them, ``"zh"`` for
    Chinese; ``"char"`` counts characters. Errors as ``by_definition``.
    """
    _check(hypotheses, references, tokenised=False)
    texts = [[normalize(sentence) for sentence in side] for side in (hypotheses, references)]
    metric = sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize)
    value = metric.corpus_score(texts[0], [texts[1]]).score
    note = "" if texts == [[*hypotheses], [*references]] else " of normalised text"
    return Score(value, f"sacreBLEU {metric.get_signature()}{note}")


def score(translations: Sequence[Translation], references: Texts, tgt_tokenizer: WordTokenizer) -> tuple[Score, Score]:
    """Score translations by the tutorials' measure (BLEU-4 of spaCy tokens), and by sacreBLEU's.

    The first counts a translation's tokens if they are words, otherwise the words of its text; the second tokenises as
    suits the target language. Case counts if the tokeniser keeps it. Errors as ``by_definition``.
    """
    texts = [translation.text for translation in translations]
    if tgt_tokenizer.whole_words:
        hypotheses = [[t for t in translation.tokens if not t.isspace()] for translation in translations]
    else:
        hypotheses = [words_like(*pair, tgt_tokenizer) for pair in zip(texts, references, strict=True)]
    reference_words = [tgt_tokenizer.words(reference) for reference in references]
    tokenize = _SACRE_TOKENIZER_OF.get(two_letters(tgt_tokenizer.language), "13a")
    sacre = sacre_bleu(texts, references, tgt_tokenizer.lower, tokenize)
    return torchtext_bleu(hypotheses, reference_words, tgt_tokenizer.counted), sacre


def words_like(text: str, reference: str, tokenizer: WordTokenizer) -> list[str]:
    """Split a text into words as its reference is split: spaCy takes "U.S." for one word, but "u.s." for two."""
    parts = {part.lower() if tokenizer.lower else part: tokenizer.words(part) for part in normalize(reference).split()}
    words = []
    for part in normalize(text).split():
        try:
            words += parts.get(part) or tokenizer.words(part)
        except ValueError:  # it is endless, as only a model writes it
            words.append(part)
    return words


def _check(hypotheses: Sequence, references: Sequence, tokenised: bool) -> None:
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(sentences, str):
            raise TypeError(f"{name} is the string {sentences!r}, expected a list of sentences")
        for i, sentence in enumerate(sentences):
            if tokenised and isinstance(sentence, str):
                raise TypeError(f"{name}[{i}] is {sentence!r}, expected a list of tokens")
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(f"{len(hypotheses)} hypotheses and {len(references)} references, expected one each, and some")
