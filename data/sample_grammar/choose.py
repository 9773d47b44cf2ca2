"""Choosing words at random: subjects, objects, places and times that fit a frame."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from .clauses import Clause, Part
from .frames import DIRECTIONS, FRAMES, NOUN_KINDS, PLACES, Frame, Place
from .nouns import NOUNS
from .phrases import Coordination, Fixed, NounPhrase, PrepositionalPhrase, Pronoun

Item = TypeVar("Item")

# Things that are usually met in numbers, and how often the plural is chosen for other kinds of object.
ALWAYS_PLURAL = ("fruits", "sold")
PLURAL_SHARE = {"farm": 0.5, "zoo": 0.4, "petted": 0.15, "text": 0.15, "load": 0.25, "watered": 0.8, "food": 0.2}
PLURAL_SHARE.update({"given": 0.15, "chased": 0.4, "baked": 0.3, "seen": 0.3, "photographed": 0.25, "relative": 0.2})
OWNED_KINDS = (
    "clothing",
    "outerwear",
    "wearable",
    "sought",
    "washed",
    "tidied",
    "office",
    "taken",
    "relative",
    "put down",
    "unpacked",
)
USUALLY_OWNED = ("wearable", "outerwear", "tidied", "office")  # zieht seine Jacke aus, räumt das Zimmer auf
ONLY_DEFINITE = ("Schnee", "Sand", "Gras", "Wasser", "Boden", "Wand", "Küche", "Stadt", "Markt", "Strand", "Bibliothek")

# The last three are for people, the very last for adults (see `Chooser.time`).
TIMES = [
    ("am:1 Abend:2", "(PP IN/in:1 (NP DT/the:1 NN/evening:2))"),
    ("am:1 Morgen:2", "(PP IN/in:1 (NP DT/the:1 NN/morning:2))"),
    ("am:1 Nachmittag:2", "(PP IN/in:1 (NP DT/the:1 NN/afternoon:2))"),
    ("an:1 einem:2 sonnigen:3 Tag:4", "(PP IN/on:1 (NP DT/a:2 JJ/sunny:3 NN/day:4))"),
    ("heute:1", "(NP NN/today:1)"),
    ("jetzt:1", "(ADVP RB/now:1)"),
    ("am:1 Sonntag:2", "(PP IN/on:1 (NP NNP/Sunday:2))"),
    ("nach:1 dem:2 Essen:3", "(PP IN/after:1 (NP DT/the:2 NN/meal:3))"),
    ("nach:1 der:1 Arbeit:2", "(PP IN/after:1 (NP NN/work:2))"),
]
MOMENTS = [phrase for phrase in TIMES[:5] if "sonnigen" not in phrase[0]]
HABITS = [
    ("jeden:1 Morgen:2", "(NP DT/every:1 NN/morning:2)"),
    ("jeden:1 Abend:2", "(NP DT/every:1 NN/evening:2)"),
    ("jeden:1 Tag:2", "(NP DT/every:1 NN/day:2)"),
    ("am:1 Wochenende:2", "(PP IN/on:1 (NP DT/the:1 NN/weekend:2))"),
    ("im:1 Sommer:2", "(PP IN/in:1 (NP DT/the:1 NN/summer:2))"),
    ("sonntags:1", "(PP IN/on:1 (NP NNPS/Sundays:1))"),
]
FREQUENCIES = [("oft:1", "(ADVP RB/often:1)"), ("manchmal:1", "(ADVP RB/sometimes:1)")]
MANNERS = {
    "schnell": ("schnell:1", "(ADVP RB/quickly:1)"),
    "langsam": ("langsam:1", "(ADVP RB/slowly:1)"),
    "leise": ("leise:1", "(ADVP RB/quietly:1)"),
    "laut": ("laut:1", "(ADVP RB/loudly:1)"),
    "vorsichtig": ("vorsichtig:1", "(ADVP RB/carefully:1)"),
    "allein": ("allein:1", "(ADVP RB/alone:1)"),
    "zusammen": ("zusammen:1", "(ADVP RB/together:1)"),
}
MANNER_OF = {
    "laufen": "schnell langsam",
    "gehen": "langsam leise",
    "wandern": "langsam",
    "klettern": "vorsichtig schnell langsam",
    "schwimmen": "schnell langsam",
    "fliegen": "schnell langsam",
    "kriechen": "langsam schnell",
    "tanzen": "langsam",
    "singen": "laut leise",
    "lachen": "laut leise",
    "weinen": "leise laut",
    "spielen": "leise",
    "bellen": "laut",
}


class Chooser:
    """Random choices that give the same result on every Python version: only `Random.random` is used."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def chance(self, share: float) -> bool:
        """Return true with this probability."""
        return self._random.random() < share

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one item, all equally likely."""
        if not items:
            raise Rejected
        return items[int(self._random.random() * len(items))]

    def frame(self, *kinds: str, without: tuple[str, ...] = ()) -> Frame:
        """Return a frame of one of these kinds, save for the verbs named in `without`."""
        return self.pick([frame for kind in kinds for frame in FRAMES[kind] if frame.verb.name not in without])

    def noun(self, kind: str, without: tuple[str, ...] = ()) -> str:
        """Return a noun of a kind."""
        return self.pick([lemma for lemma in NOUN_KINDS[kind] if lemma not in without])

    def adjective(self, lemma: str, share: float) -> str:
        """With this probability an adjective that suits the noun, else ""."""
        return self.pick(NOUNS[lemma].adjectives) if self.chance(share) else ""

    def subject(self, kind: str, without: tuple[str, ...] = (), plural: float = 0.3) -> NounPhrase:
        """Return a subject with some determiner."""
        lemma = self.noun(kind, without)
        if self.chance(plural):
            det = self.pick(("der", "der", "zwei", "zwei", "drei", "vier", "fünf", "viele", "einige", "mehrere", ""))
            if lemma in ("Vater", "Mutter", "Baby", "Großvater", "Großmutter"):
                det = self.pick(("zwei", "der"))
            return NounPhrase(lemma, det, "pl", self.adjective(lemma, 0.35))
        det = self.pick(("ein",) * 5 + ("der",) * 4 + ("dieser",))
        return NounPhrase(lemma, det, "sg", self.adjective(lemma, 0.4))

    def subject_or_pair(self, kind: str, plural: float = 0.3) -> NounPhrase | Coordination:
        """Return a subject; now and then two of them joined by und."""
        first = self.subject(kind, plural=plural)
        if first.number == "pl" or not self.chance(0.12) or len(set(NOUN_KINDS[kind])) < 2:
            return first
        second = NounPhrase(self.noun(kind, (first.lemma,)), first.det if first.det != "dieser" else "der")
        if first.is_person != second.is_person:
            return first
        first.det = second.det
        return Coordination(first, second)

    def thing(self, kind: str, owner: NounPhrase | None = None, adjective: float = 0.35) -> NounPhrase:
        """Return an object; `owner` may take a possessive (sein, ihr) for a kind of thing that people own."""
        lemma = self.noun(kind, (owner.lemma,) if owner and hasattr(owner, "lemma") else ())
        noun = NOUNS[lemma]
        word = self.adjective(lemma, adjective)
        if lemma == "Kleid" and owner is not None and owner.sex != "f":
            raise Rejected
        if noun.group == "drink":
            return NounPhrase(lemma, "", "sg", word)
        owned = owner is not None and kind in OWNED_KINDS and has_possessive(owner) and owner.is_person
        plural = kind in ALWAYS_PLURAL or noun.group == "footwear" or self.chance(PLURAL_SHARE.get(kind, 0.0))
        if kind == "relative" and owner is not None and owner.number == "pl":
            return NounPhrase("Freund", "ihr", "pl", "", owner)
        if owned and noun.group in ("clothing", "load"):  # several people, several hats
            plural = owner.number == "pl"
        plural = plural and bool(noun.plural)
        if kind == "relative" or (owned and self.chance(1.0 if kind in USUALLY_OWNED else 0.5)):
            if not (owned and owner is not None):
                raise Rejected
            return NounPhrase(lemma, possessive(owner), "pl" if plural else "sg", word, owner)
        if plural:
            dets = ("", "", "der", "zwei", "drei", "einige", "viele")
            if noun.group in ("footwear", "clothing"):
                dets = ("der",) if kind in USUALLY_OWNED else ("",)
            return NounPhrase(lemma, self.pick(dets), "pl", word)
        if kind in USUALLY_OWNED:
            return NounPhrase(lemma, "der", "sg", word)
        dets = ("der",) if lemma in ONLY_DEFINITE else ("ein",) * 5 + ("der",) * 4
        return NounPhrase(lemma, self.pick(dets), "sg", word)

    def place(self, entry: Place, adjective: float = 0.2) -> PrepositionalPhrase:
        """Return a prepositional phrase for one entry of a place table."""
        indefinite = 0.0 if entry.noun in ONLY_DEFINITE else 0.3
        det = "ein" if self.chance(indefinite) else "der"
        word = self.adjective(entry.noun, adjective)
        return PrepositionalPhrase(
            entry.preposition, entry.case, NounPhrase(entry.noun, det, "sg", word), entry.english
        )

    def place_part(self, frame: Frame, adjective: float = 0.2) -> Part:
        """Return the place of a frame."""
        return Part("place", self.place(self.pick(PLACES[frame.places]), adjective))

    def direction_part(self, frame: Frame) -> Part:
        """Return the direction of a motion frame."""
        return Part("direction", self.place(self.pick(DIRECTIONS[frame.places])))

    def time(self, subject: NounPhrase | Coordination) -> Part:
        """Return a time; some times only make sense for people, and work only for adults."""
        people = [subject] if isinstance(subject, NounPhrase) else [subject.first, subject.second]
        adult = all(person.noun.group in ("man", "woman") for person in people)
        last = len(TIMES) if adult else len(TIMES) - 1 if subject.is_person else len(TIMES) - 3
        return self.fixed("time", TIMES[:last])

    def fixed(self, role: str, phrases: Sequence[tuple[str, str]]) -> Part:
        """Return a fixed adverbial."""
        return Part(role, Fixed(*self.pick(phrases)))

    def manner(self, clause: Clause, share: float) -> None:
        """With this probability, add an adverb of manner that suits the verb."""
        if clause.verb.name in MANNER_OF and self.chance(share):
            clause.parts.append(Part("manner", Fixed(*MANNERS[self.pick(MANNER_OF[clause.verb.name].split())])))


class Rejected(Exception):
    """The words chosen do not go together; choose again."""


def has_possessive(owner: NounPhrase | Coordination) -> bool:
    """Return true where it is clear whether sein or ihr is right."""
    return owner.number == "pl" or (owner.sex == "f" and owner.lemma != "Mädchen") or owner.sex == "m"


def possessive(owner: NounPhrase | Coordination) -> str:
    """Sein for men and boys, ihr for women and for any plural."""
    return "sein" if owner.number == "sg" and owner.sex == "m" else "ihr"


def pronoun(phrase: NounPhrase) -> Pronoun:
    """Return the pronoun for a person or people mentioned before."""
    if phrase.number == "sg" and (not phrase.sex or phrase.lemma == "Mädchen"):
        raise Rejected
    return Pronoun(phrase.number, phrase.sex)
