"""Corpus BLEU three ways: by its definition, torchtext's and sacreBLEU's (Papineni et al. 2002). Notebook 08.

BLEU depends on who tokenised. The first two take tokens as they come, lower-cased spaCy tokens in the tutorials'
measure; sacreBLEU, which papers quote, tokenises whole sentences itself. References are the raw text, never words
looked up in a vocabulary: an ``<unk>`` in a reference would be easy to hit. A score's signature says what was counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sacrebleu

from transformer_lib.data.tokenizers import WITHOUT_SPACES, WordTokenizer, normalize, two_letters
from transformer_lib.inference.translator import Translation

Tokens = Sequence[Sequence[str]]  # of each sentence
MAX_ORDER = 4
SACRE_TOKENIZERS = ("13a", "intl", "zh", "char", "none")  # that download nothing
# sacreBLEU's own for Japanese and Korean need further packages
_SACRE_TOKENIZER_OF = {**dict.fromkeys(("ko", *WITHOUT_SPACES), "char"), "zh": "zh"}


@dataclass(frozen=True)
class Score:
    """BLEU or chrF on the scale of 0 to 100, and how it was measured."""

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def by_definition(hypotheses: Tokens, references: Tokens) -> float:
    """Compute BP · exp(Σ ¼ log p_n) from clipped n-gram precisions p_1 to p_4 and the brevity penalty BP.

    Arguments are the tokens of each translation, and of its one reference. The result is from 0 to 100, and 0 if some
    n-gram length has no match at all (no smoothing). Raises a ValueError if the two differ in number or there are none,
    and a TypeError if a sentence is anything but a list of strings.
    """
    return float(bleu_from_ngram_counts(sentence_counts(hypotheses, references).sum(axis=0)))


def sentence_counts(hypotheses: Tokens, references: Tokens) -> np.ndarray:
    """Count what BLEU is made of, ``[sentences, 9]``; arguments and errors as ``by_definition``.

    That is: matching 1-grams to 4-grams, the hypothesis's 1-grams to 4-grams, and the reference's length.
    """
    _check(hypotheses, references)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ngrams = [[_ngrams(tokens, order) for order in range(1, MAX_ORDER + 1)] for tokens in (hypothesis, reference)]
        matches = [(ours & theirs).total() for ours, theirs in zip(*ngrams, strict=True)]  # & clips to the reference's
        rows.append([*matches, *(ours.total() for ours in ngrams[0]), len(reference)])
    return np.array(rows)


def bleu_from_ngram_counts(counts: np.ndarray) -> np.ndarray:
    """Compute BLEU, 0 to 100, from sums of ``sentence_counts``, ``[..., 9]``."""
    matches, totals = counts[..., :MAX_ORDER], counts[..., MAX_ORDER:-1]
    hypothesis_length, reference_length = totals[..., 0], counts[..., -1]
    with np.errstate(divide="ignore"):  # no match: log 0 is -inf, and e to the power of that is 0
        mean_log_precision = np.log(matches / np.maximum(totals, 1)).mean(axis=-1)
    brevity_penalty = np.exp(np.minimum(0, 1 - reference_length / np.maximum(hypothesis_length, 1)))
    return 100 * brevity_penalty * np.exp(mean_log_precision)


def bootstrap(hypotheses: Tokens, references: Tokens, samples: int = 1000, seed: int = 12345) -> np.ndarray:
    """Compute BLEU of test sets drawn from this one, ``[samples]``: as many sentences, picked with replacement.

    The middle 95 % of the values are a confidence interval of BLEU. Two systems' values, drawn with the same seed, are
    of the same sentences, place by place: their differences tell whether one system is better (Koehn 2004). The default
    seed is sacreBLEU's, which draws the same sentences. Arguments and errors as in ``by_definition``.
    """
    counts = sentence_counts(hypotheses, references)
    picks = np.random.default_rng(seed).choice(len(counts), size=(samples, len(counts)))
    return np.array([bleu_from_ngram_counts(counts[pick].sum(axis=0)) for pick in picks])


def torchtext_bleu(hypotheses: Tokens, references: Tokens, counted: str = "tokens as given") -> Score:
    """Compute torchtext's ``bleu_score``, the tutorials' measure; the signature says ``counted``."""
    from torchtext.data.metrics import bleu_score

    _check(hypotheses, references)
    # bleu_score itself joins and splits n-grams at spaces
    ours, theirs = ([[t.replace(" ", "␣") for t in tokens] for tokens in side] for side in (hypotheses, references))
    value = 100 * bleu_score(ours, [[reference] for reference in theirs])
    return Score(value, f"torchtext bleu_score, {counted}, no smoothing")


def sacre_bleu(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False, tokenize: str = "13a"
) -> Score:
    """Compute sacreBLEU's measure on detokenised sentences and raw references, with its signature.

    Both are normalised first (see ``normalize``), which the signature says where it changed something; it also says if
    case was ignored, as a model that writes lower case needs. ``tokenize`` is one of ``SACRE_TOKENIZERS``: ``"13a"`` is
    for words with spaces between them, ``"zh"`` for Chinese; ``"char"`` counts characters. Errors as ``by_definition``.
    """
    if tokenize not in SACRE_TOKENIZERS:
        raise ValueError(f"tokenize is {tokenize!r}, expected one of {', '.join(SACRE_TOKENIZERS)}")
    return _sacre(sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """Compute sacreBLEU's chrF (Popović 2015), the F-score of matching character n-grams; see ``sacre_bleu``."""
    return _sacre(sacrebleu.CHRF(lowercase=lowercase), hypotheses, references)


def words_of(
    translations: Sequence[Translation], references: Sequence[str], tgt_tokenizer: WordTokenizer
) -> tuple[list[list[str]], list[list[str]]]:
    """Split translations and raw references into the words that ``score`` counts, as ``by_definition`` takes them.

    A translation's words are its tokens, if those are words, otherwise ``WordTokenizer.words`` of its text. Errors as
    ``by_definition``; also a TypeError if ``translations`` are not what ``Translator.translate`` returned.
    """
    if wrong := [translation for translation in translations if not isinstance(translation, Translation)]:
        raise TypeError(f"translations holds {wrong[0]!r}, expected what Translator.translate returned")
    texts = [translation.text for translation in translations]
    _check(texts, references, tokenised=False)
    if tgt_tokenizer.whole_words:
        hypotheses = [[t for t in translation.tokens if not t.isspace()] for translation in translations]
    else:
        hypotheses = [_words_like(*pair, tgt_tokenizer) for pair in zip(texts, references, strict=True)]
    return hypotheses, [tgt_tokenizer.words(reference) for reference in references]


def score(
    translations: Sequence[Translation], references: Sequence[str], tgt_tokenizer: WordTokenizer, tokenize: str = ""
) -> tuple[Score, Score]:
    """Score translations by the tutorials' measure (BLEU-4 of spaCy tokens), and by sacreBLEU's.

    The first counts the words of ``words_of``, whose errors it raises; the second tokenises as ``tokenize`` says, or as
    suits the target language by default. Case counts if the tokeniser keeps it. Each signature says what was counted.
    """
    words = words_of(translations, references, tgt_tokenizer)
    texts = [translation.text for translation in translations]
    tokenize = tokenize or _SACRE_TOKENIZER_OF.get(two_letters(tgt_tokenizer.language), "13a")
    sacre = sacre_bleu(texts, references, tgt_tokenizer.lower, tokenize)
    return torchtext_bleu(*words, tgt_tokenizer.counted), sacre


def _words_like(text: str, reference: str, tokenizer: WordTokenizer) -> list[str]:
    """Split a text into words; what stands between spaces in the reference, too, is split as it is there.

    spaCy's rules look at case: "U.S." is one word, but "u.s.", as a lower-cased model writes it, would be two.
    """
    spelled = str.lower if tokenizer.lower else str
    known = {spelled(part): tokenizer.words(part) for part in normalize(reference).split()}
    return [word for part in normalize(text).split() for word in known.get(part) or tokenizer.words(part)]


def _sacre(metric: sacrebleu.BLEU | sacrebleu.CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    _check(hypotheses, references, tokenised=False)
    texts = [[normalize(sentence) for sentence in side] for side in (hypotheses, references)]
    value = metric.corpus_score(texts[0], [texts[1]]).score
    note = "" if texts == [[*hypotheses], [*references]] else " of normalised text"
    return Score(value, f"sacreBLEU {metric.get_signature()}{note}")


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def _check(hypotheses: Sequence, references: Sequence, tokenised: bool = True) -> None:
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(sentences, str):
            raise TypeError(f"{name} is the string {sentences!r}, expected a list of sentences")
        for i, sentence in enumerate(sentences):
            if isinstance(sentence, str) == tokenised:
                kind = "list of tokens" if tokenised else "string"
                raise TypeError(f"{name}[{i}] is {sentence!r}, expected a {kind}")
            if wrong := [token for token in sentence if not isinstance(token, str)]:
                raise TypeError(f"{name}[{i}] holds {wrong[0]!r}, expected the tokens of its one sentence")
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(f"{len(hypotheses)} hypotheses and {len(references)} references, expected one each, and some")
