"""German morphology: articles, adjective endings, noun cases, pronouns, verb forms, contractions.

Cases are "nom", "acc", "dat", "gen"; numbers are "sg" and "pl"; a plural noun phrase has the gender "pl", because
German articles and adjectives make no difference of gender in the plural.
"""

from __future__ import annotations

from .nouns import Adjective, Noun
from .verbs import Verb

CASES = ("nom", "acc", "dat", "gen")

DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "pl": ("die", "die", "den", "der"),
}
# Relative pronouns are the definite article, save for the genitive (not used here) and the dative plural.
RELATIVE = {
    "m": ("der", "den", "dem"),
    "f": ("die", "die", "der"),
    "n": ("das", "das", "dem"),
    "pl": ("die", "die", "denen"),
}
# Endings of ein, kein, sein, ihr.
EIN_ENDINGS = {
    "m": ("", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("", "", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
# Endings of an adjective that no determiner precedes. dieser takes them too (its genitive would differ: dieses).
STRONG = {
    "m": ("er", "en", "em", "en"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "en"),
    "pl": ("e", "e", "en", "er"),
}
WEAK = {
    "m": ("e", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("e", "e", "en", "en"),
    "pl": ("en", "en", "en", "en"),
}
MIXED = {
    "m": ("er", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("es", "es", "en", "en"),
    "pl": ("en", "en", "en", "en"),
}

EIN_WORDS = ("ein", "kein", "sein", "ihr")
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
}


def agreement_gender(noun: Noun, number: str) -> str:
    """Return the column of the tables above: the noun's gender, or "pl"."""
    return "pl" if number == "pl" else noun.gender


def determiner(word: str, gender: str, case: str) -> str:
    """Return the determiner `word` ("der", "dieser", "ein", "kein", "sein", "ihr", "viele", "zwei", ...) in a case."""
    column = CASES.index(case)
    if word == "der":
        return DEFINITE[gender][column]
    if word in EIN_WORDS:
        return word + EIN_ENDINGS[gender][column]
    if word == "dieser":
        return "dies" + STRONG[gender][column]
    if word in ("viele", "einige", "mehrere"):
        return word[:-1] + STRONG["pl"][column]
    return word  # numerals do not change


def adjective(entry: Adjective, det: str, gender: str, case: str) -> str:
    """Return the adjective's attributive form after the determiner `det` ("" for none)."""
    if det in ("der", "dieser"):
        endings = WEAK
    elif det in EIN_WORDS:
        endings = MIXED
    else:
        endings = STRONG
    return entry.stem + endings[gender][CASES.index(case)]


def noun_form(noun: Noun, number: str, case: str) -> str:
    """Return the noun in a number and case: dative plural -n, genitive -s or -es, n-declension."""
    if number == "pl":
        if case == "dat" and not noun.plural.endswith(("n", "s")):
            return noun.plural + "n"
        return noun.plural
    if noun.weak and case != "nom":
        return noun.plural
    if case == "gen" and noun.gender != "f":
        if noun.lemma == "Museum":
            return "Museums"
        long_ending = noun.lemma.endswith(("s", "ß", "z", "sch", "st")) or noun.lemma in (
            "Wald",
            "Dorf",
            "Feld",
            "Turm",
        )
        return noun.lemma + ("es" if long_ending else "s")
    return noun.lemma


def contract(preposition: str, article: str) -> str | None:
    """Return the contraction of a preposition and an article ("in" + "dem" gives "im"), or None where there is none."""
    return CONTRACTIONS.get((preposition, article))


def finite(verb: Verb, number: str) -> str:
    """Return the third person present, without its separable prefix."""
    return verb.third if number == "sg" else verb.infinitive


def infinitive(verb: Verb) -> str:
    """Return the infinitive with its prefix: "aufheben"."""
    return verb.prefix + verb.infinitive


def zu_infinitive(verb: Verb) -> list[str]:
    """Return the infinitive with zu, one word for separable verbs: ["aufzuheben"], but ["zu", "lesen"]."""
    return [verb.prefix + "zu" + verb.infinitive] if verb.prefix else ["zu", verb.infinitive]


AUXILIARIES = {
    "haben": {"sg": "hat", "pl": "haben"},
    "sein": {"sg": "ist", "pl": "sind"},
    "werden": {"sg": "wird", "pl": "werden"},
    "wollen": {"sg": "will", "pl": "wollen"},
    "können": {"sg": "kann", "pl": "können"},
    "müssen": {"sg": "muss", "pl": "müssen"},
    "dürfen": {"sg": "darf", "pl": "dürfen"},
    "möchten": {"sg": "möchte", "pl": "möchten"},
    "sollen": {"sg": "soll", "pl": "sollen"},
}
