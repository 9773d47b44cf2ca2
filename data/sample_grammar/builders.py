"""Clauses built from the frames: the blocks that the sentence patterns put together."""

from __future__ import annotations

from .choose import Chooser, Rejected
from .clauses import Clause, Part, Sentence
from .nouns import NOUNS
from .phrases import Leaf, Node, NounPhrase, PrepositionalPhrase, Token

# Verbs that would sound odd in the perfect, verbs that captions use in the passive, and things done day by day.
NO_PERFECT = ("brauchen", "halten", "wohnen", "tragen", "sehen", "stehen", "sitzen", "liegen", "suchen", "grasen")
PASSIVE = (
    "ziehen",
    "schieben",
    "waschen",
    "putzen",
    "füttern",
    "streicheln",
    "reparieren",
    "bauen",
    "malen",
    "fotografieren",
    "beobachten",
    "schleppen",
    "backen",
)
FOR_ONE = ("Stuhl", "Leiter")  # places with room for one person
HABITUAL = (
    "lesen",
    "trinken",
    "essen",
    "füttern",
    "kaufen",
    "verkaufen",
    "putzen",
    "kochen",
    "backen",
    "gießen",
    "streicheln",
    "malen",
    "schreiben",
    "waschen",
)
MODALS = ("wollen", "können", "müssen", "dürfen", "möchten", "sollen")


def statement(clause: Clause, front: Part | None = None) -> Sentence:
    """Return a main clause. A time in front goes in front in English too; all else keeps its English place."""
    time_in_front = front if front is not None and front.role == "time" else None
    return Sentence(clause.main(front), clause.english(time_in_front))


# Building blocks ------------------------------------------------------------------------------------------------------


def located(chooser: Chooser, place: float = 1.0, without: tuple[str, ...] = ()) -> Clause:
    """Someone does something somewhere: schläft auf dem Sofa."""
    frame = chooser.frame("located", without=without)
    clause = Clause(chooser.subject_or_pair(frame.subjects), frame.verb)
    if chooser.chance(place) or frame.verb.name in ("wohnen", "stehen", "liegen"):
        clause.parts.append(chooser.place_part(frame))
    if clause.subject.number == "pl" and any(part.content.phrase.lemma in FOR_ONE for part in clause.parts):
        raise Rejected
    chooser.manner(clause, 0.2)
    return clause


def moving(chooser: Chooser) -> Clause:
    """Someone goes somewhere: läuft über die Wiese."""
    frame = chooser.frame("motion")
    clause = Clause(chooser.subject_or_pair(frame.subjects), frame.verb, [chooser.direction_part(frame)])
    chooser.manner(clause, 0.25)
    return clause


def acting(chooser: Chooser, *kinds: str, place: float = 0.4, without: tuple[str, ...] = ()) -> Clause:
    """Someone does something to something: liest ein Buch."""
    frame = chooser.frame(*(kinds or ("transitive", "separable")), without=without)
    subject = chooser.subject_or_pair(frame.subjects, plural=0.25)
    clause = Clause(subject, frame.verb, [Part("object", chooser.thing(frame.objects, subject), "acc")])
    thing = clause.parts[0].content
    if frame.verb.name == "tragen" and thing.lemma == "Schuh" and not thing.adjective:
        raise Rejected
    if frame.verb.name in ("putzen", "waschen") and thing.adjective == "sauber":
        raise Rejected
    if frame.verb.name == "wegwerfen":  # what is thrown away is old
        thing.adjective = "alt" if "alt" in thing.noun.adjectives and chooser.chance(0.5) else ""
    if frame.places and chooser.chance(place):
        clause.parts.append(chooser.place_part(frame))
    return clause


def giving_clause(chooser: Chooser) -> Clause:
    """Someone gives someone something; English puts the receiver last, with to."""
    frame = chooser.frame("giving")
    subject = chooser.subject(frame.subjects, plural=0.2)
    receiver = chooser.subject(frame.places, without=(subject.lemma,), plural=0.2)
    if receiver.det in ("dieser", "", "viele"):
        receiver.det = "der"
    parts = [Part("dative", Receiver(receiver)), Part("object", chooser.thing(frame.objects), "acc")]
    return Clause(subject, frame.verb, parts)


class Receiver:
    """A dative noun phrase that English says with to. The German word that shows the case answers for "to" as well."""

    def __init__(self, phrase: NounPhrase) -> None:
        self.phrase = phrase

    def german(self) -> list[Token]:
        """Return the German tokens."""
        return self.phrase.german("dat")

    def english(self) -> Node:
        """Return the English tree."""
        shows_case = self.phrase.det not in ("", "zwei", "drei", "vier", "fünf")
        link = self.phrase.det_link if shows_case else self.phrase.noun_link
        return Node("PP", [Leaf("TO", "to", [link]), self.phrase.english()])


def with_clothes(chooser: Chooser, person: NounPhrase) -> NounPhrase:
    """Add mit + clothing or hair: eine Frau mit einem roten Hut."""
    if chooser.chance(0.3) and person.number == "sg":
        thing = NounPhrase("Haar", "", "pl", chooser.pick(NOUNS["Haar"].adjectives))
    else:
        lemma = chooser.pick(("Hut", "Mütze", "Jacke", "Mantel", "Schal", "Helm", "Rucksack", "Korb", "Koffer", "Hund"))
        number = "sg" if person.number == "sg" else "pl"
        thing = NounPhrase(lemma, "ein" if number == "sg" else "", number, chooser.adjective(lemma, 1.0))
    person.after.append(PrepositionalPhrase("mit", "dat", thing, "with"))
    return person
