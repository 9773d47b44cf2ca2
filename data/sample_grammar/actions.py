"""Main-clause patterns about what someone does. Each is a function from a `Chooser` to a `Sentence`."""

from __future__ import annotations

from .builders import (
    HABITUAL,
    MODALS,
    NO_PERFECT,
    PASSIVE,
    acting,
    giving_clause,
    located,
    moving,
    statement,
    with_clothes,
)
from .choose import FREQUENCIES, HABITS, MOMENTS, Chooser, Rejected, has_possessive, possessive
from .clauses import Clause, Part, Sentence
from .frames import DIRECTIONS, ENGLISH_SIMPLE, NOUN_KINDS, PLACES
from .phrases import Leaf, Node, NounPhrase, PrepositionalPhrase, Token
from .verbs import VERBS


def place_statement(chooser: Chooser) -> Sentence:
    """Ein kleiner Hund schläft auf dem Sofa."""
    return statement(located(chooser))


def motion(chooser: Chooser) -> Sentence:
    """Ein Hund läuft über die nasse Wiese."""
    return statement(moving(chooser))


def transitive(chooser: Chooser) -> Sentence:
    """Eine Frau liest im Park ein Buch."""
    return statement(acting(chooser, "transitive", place=0.6))


def separable(chooser: Chooser) -> Sentence:
    """Der Mann hebt den Ball auf."""
    clause = acting(chooser, "separable")
    if chooser.chance(0.35):
        clause.parts.append(chooser.fixed("time", MOMENTS))
    return statement(clause)


def placing(chooser: Chooser) -> Sentence:
    """Die Frau stellt die Vase auf den Tisch."""
    frame = chooser.frame("placing")
    thing = chooser.thing(frame.objects)
    return statement(
        Clause(
            chooser.subject(frame.subjects), frame.verb, [Part("object", thing, "acc"), chooser.direction_part(frame)]
        )
    )


def static(chooser: Chooser) -> Sentence:
    """Die Vase steht auf dem Tisch. / Auf dem Tisch steht eine Vase."""
    frame = chooser.frame("static")
    clause = Clause(chooser.subject(frame.subjects, plural=0.25), frame.verb, [chooser.place_part(frame)])
    return statement(clause, clause.parts[0] if chooser.chance(0.5) else None)


def place_first(chooser: Chooser) -> Sentence:
    """Im Park spielen zwei Kinder."""
    clause = located(chooser, without=("wohnen", "einschlafen"))
    clause.parts = [part for part in clause.parts if part.role == "place"]
    place = clause.parts[0]
    return statement(clause, place)


def time_first(chooser: Chooser) -> Sentence:
    """Am Abend liest die Frau ein Buch."""
    build = chooser.pick((located, moving, acting))
    clause = build(chooser)
    if clause.verb.name in ENGLISH_SIMPLE:
        raise Rejected
    clause.parts.append(chooser.time(clause.subject))
    return statement(clause, clause.parts[-1])


def habit(chooser: Chooser) -> Sentence:
    """Jeden Morgen läuft der Hund durch den Park. / Der Lehrer liest oft im Garten."""
    if chooser.chance(0.5):
        clause = chooser.pick((located, moving))(chooser)
    else:
        clause = acting(chooser, "transitive")
        if clause.verb.name not in HABITUAL or clause.parts[0].content.det in ("zwei", "drei", "einige", "viele"):
            raise Rejected
        consumed = clause.verb.name in ("essen", "trinken", "kaufen", "verkaufen", "backen", "kochen", "malen", "lesen")
        if consumed and clause.parts[0].content.det == "der":  # not the same roll every morning
            raise Rejected
    if clause.verb.name in ("wohnen", "einschlafen", "weinen", "liegen", "kriechen") or not clause.subject.definite:
        raise Rejected
    if any(getattr(part.content, "preposition", "") == "aus" for part in clause.parts):
        raise Rejected
    clause.tense = "simple"
    if chooser.chance(0.4):
        clause.parts.append(chooser.fixed("frequency", FREQUENCIES))
        return statement(clause)
    clause.parts.append(chooser.fixed("time", HABITS))
    return statement(clause, clause.parts[-1] if chooser.chance(0.6) else None)


def object_first(chooser: Chooser) -> Sentence:
    """Den roten Ball fängt ein kleiner Hund."""
    clause = acting(chooser, without=("essen", "trinken", "brauchen"))
    thing = clause.parts[0]
    if thing.content.noun.gender != "m" or thing.content.det != "der" or thing.content.number == "pl":
        raise Rejected
    if isinstance(clause.subject, NounPhrase) and not clause.subject.det:
        raise Rejected
    return statement(clause, thing)


def modal(chooser: Chooser) -> Sentence:
    """Der Junge will den Ball aufheben."""
    clause = chooser.pick((acting, acting, moving))(chooser)
    if clause.verb.name in ENGLISH_SIMPLE or clause.verb.name == "halten":
        raise Rejected
    if clause.subject.definite is False and clause.subject.is_person is False:
        raise Rejected
    clause.tense = chooser.pick(MODALS)
    if not clause.subject.is_person:
        clause.tense = chooser.pick(("wollen", "können"))
    return statement(clause)


def perfect(chooser: Chooser) -> Sentence:
    """Das Mädchen hat einen Apfel gegessen. / Der Hund ist in den See gesprungen."""
    clause = chooser.pick((acting, acting, moving))(chooser)
    if clause.verb.name in NO_PERFECT:
        raise Rejected
    clause.tense = "perfect"
    return statement(clause)


def passive(chooser: Chooser) -> Sentence:
    """Der Wagen wird von zwei Pferden gezogen."""
    frame = chooser.frame("transitive")
    if frame.verb.name not in PASSIVE:
        raise Rejected
    agent = PrepositionalPhrase("von", "dat", chooser.subject(frame.subjects), "by")
    clause = Clause(chooser.thing(frame.objects), frame.verb, [Part("agent", agent)], "passive")
    if frame.places and chooser.chance(0.2):
        clause.parts.append(chooser.place_part(frame))
    return statement(clause)


def giving(chooser: Chooser) -> Sentence:
    """Der Vater gibt dem Kind einen Ball."""
    clause = giving_clause(chooser)
    if chooser.chance(0.2):
        clause.tense = "perfect"
    elif chooser.chance(0.2):
        clause.tense = chooser.pick(("wollen", "möchten"))
    return statement(clause)


def dative_verb(chooser: Chooser) -> Sentence:
    """Der Junge hilft der alten Frau."""
    frame = chooser.frame("dative")
    subject = chooser.subject(frame.subjects)
    other = chooser.subject(frame.objects, without=(subject.lemma,))
    if other.det in ("", "dieser"):
        other.det = "der"
    return statement(Clause(subject, frame.verb, [Part("object", other, "dat")]))


def not_statement(chooser: Chooser) -> Sentence:
    """Der Hund schläft nicht auf dem Sofa."""
    if chooser.chance(0.5):
        clause = located(chooser, place=0.6)
    else:
        clause = acting(chooser, "transitive", "separable", place=0.0, without=ENGLISH_SIMPLE)
        thing = clause.parts[0].content
        if not thing.definite:
            raise Rejected
    if clause.verb.name in ENGLISH_SIMPLE or not clause.subject.definite:
        raise Rejected
    clause.parts = [part for part in clause.parts if part.role != "manner"]
    clause.negation = "nicht"
    return statement(clause)


def no_object(chooser: Chooser) -> Sentence:
    """Die Frau trägt keinen Hut."""
    verbs = ("tragen", "essen", "trinken", "kaufen", "lesen", "anziehen", "mitnehmen", "schreiben", "backen")
    clause = acting(chooser, place=0.0)
    thing = clause.parts[0].content
    if clause.verb.name not in verbs or not clause.subject.definite or thing.det in ("sein", "ihr"):
        raise Rejected
    if thing.lemma in ("Blume", "Apfel", "Banane", "Brötchen"):
        thing.number = "pl"
    thing.det = "kein"
    return statement(clause)


def with_phrase(chooser: Chooser) -> Sentence:
    """Eine Frau mit einem roten Hut sitzt auf einer Bank."""
    clause = chooser.pick((located, moving, acting))(chooser)
    subject = clause.subject
    if not isinstance(subject, NounPhrase) or not subject.is_person or subject.lemma == "Baby":
        raise Rejected
    if subject.det in ("sein", "ihr") or clause.verb.name in ("tragen", "anziehen", "ausziehen", "schwimmen", "baden"):
        raise Rejected
    subject.adjective = "" if chooser.chance(0.7) or subject.adjective == "blond" else subject.adjective
    with_clothes(chooser, subject)
    return statement(clause)


def with_pet(chooser: Chooser) -> Sentence:
    """Der Junge spielt mit seinem Hund im Garten."""
    verb, kind, places = chooser.pick((("spielen", "young", "play"), ("gehen", "person", ""), ("laufen", "person", "")))
    subject = chooser.subject(kind, plural=0.2)
    if not has_possessive(subject):
        raise Rejected
    if verb == "spielen":
        place = Part("place", chooser.place(chooser.pick(PLACES[places])))
    else:
        place = Part(
            "direction",
            chooser.place(chooser.pick([entry for entry in DIRECTIONS["walk"] if entry.preposition != "in"])),
        )
    mate = chooser.pick(("Hund", "Hund", *NOUN_KINDS["relative"]) if subject.number == "sg" else ("Hund",))
    phrase = NounPhrase(mate, possessive(subject), "sg", chooser.adjective(mate, 0.3), subject)
    companion = Part("companion", PrepositionalPhrase("mit", "dat", phrase, "with"))
    return statement(Clause(subject, VERBS[verb], [companion, place]))


def riding(chooser: Chooser) -> Sentence:
    """Die Frau fährt mit dem Bus in die Stadt. / Der Junge reitet auf einem weißen Pferd durch den Wald."""
    if chooser.chance(0.5):
        subject = chooser.subject("person")
        vehicle = chooser.pick(("Bus", "Zug", "Auto", "Fahrrad"))
        phrase = NounPhrase(vehicle, "der", english_bare=True)
        companion = Part("companion", PrepositionalPhrase("mit", "dat", phrase, "by"))
        direction = Part("direction", chooser.place(chooser.pick(DIRECTIONS["ride"]), 0.15))
        return statement(Clause(subject, VERBS["fahren"], [companion, direction]))
    subject = chooser.subject("rider")
    mount = NounPhrase(chooser.pick(("Pferd", "Pferd", "Esel")), "ein", "sg")
    mount.adjective = chooser.adjective(mount.lemma, 0.6)
    if subject.number == "pl":
        mount.number, mount.det = "pl", ""
    companion = Part("companion", PrepositionalPhrase("auf", "dat", mount, "on"))
    direction = Part("direction", chooser.place(chooser.pick(DIRECTIONS["gallop"])))
    return statement(Clause(subject, VERBS["reiten"], [companion, direction]))


def music(chooser: Chooser) -> Sentence:
    """Ein Mädchen spielt im Park Gitarre."""
    subject = chooser.subject_or_pair("person")
    instrument = NounPhrase(chooser.noun("instrument"), "")
    clause = Clause(subject, VERBS["spielen"], [Part("object", Instrument(instrument))])
    if chooser.chance(0.8):
        clause.parts.append(Part("place", chooser.place(chooser.pick(PLACES["stage"]))))
    return statement(clause)


class Instrument:
    """Gitarre without article, "the guitar" in English."""

    definite = False

    def __init__(self, phrase: NounPhrase) -> None:
        self.phrase = phrase

    def german(self) -> list[Token]:
        """Return the German tokens."""
        return self.phrase.german("acc")

    def english(self) -> Node:
        """Return the English tree."""
        noun = self.phrase.english()
        return Node("NP", [Leaf("DT", "the", [self.phrase.noun_link]), *noun.children])
