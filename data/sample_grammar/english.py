"""English morphology: a or an, plurals, the auxiliary be, and the verb group with its parse tree."""

from __future__ import annotations

from .nouns import Noun
from .verbs import Verb

POSSESSIVES = {("m", "sg"): "his", ("f", "sg"): "her", ("m", "pl"): "their", ("f", "pl"): "their"}
BE = {"sg": "is", "pl": "are"}
HAVE = {"sg": "has", "pl": "have"}
BE_TAG = {"sg": "VBZ", "pl": "VBP"}

# German modal: the English words, singular then plural. "to" at the end asks for to + infinitive.
MODALS = {
    "wollen": ("wants to", "want to"),
    "können": ("can", "can"),
    "müssen": ("must", "must"),
    "dürfen": ("is allowed to", "are allowed to"),
    "möchten": ("would like to", "would like to"),
    "sollen": ("should", "should"),
}


def article(next_word: str) -> str:
    """Return a or an, by the first sound of the next word (no word here sounds other than it is spelt)."""
    return "an" if next_word[0] in "aeiou" else "a"


def noun_form(noun: Noun, number: str) -> str:
    """Return the English noun in a number."""
    return noun.english if number == "sg" else noun.english_plural


def present(verb: Verb, number: str) -> str:
    """Return the simple present, third person."""
    return verb.present if number == "sg" else verb.base
