"""Patterns with a relative clause, and two predicates that share a subject."""

from __future__ import annotations

from .builders import acting, located, moving
from .choose import Chooser, Rejected
from .clauses import Clause, Part, RelativeClause, Sentence
from .frames import ENGLISH_SIMPLE, FRAMES, PLACES, Frame
from .nouns import ADJECTIVES, NOUNS
from .phrases import Leaf, Link, Node, NounPhrase, PrepositionalPhrase, Token
from .subordinate import some_action
from .verbs import VERBS


def relative_subject(chooser: Chooser) -> Sentence:
    """Ein Mann, der einen Hut trägt, sitzt auf einer Bank."""
    main = chooser.pick((located, acting, moving))(chooser)
    subject = main.subject
    if (
        not isinstance(subject, NounPhrase)
        or subject.det == ""
        or main.verb.name in ("tragen", "anziehen", "ausziehen")
    ):
        raise Rejected
    if not subject.is_person or subject.lemma == "Baby" or main.verb.name in ("schwimmen", "baden", "schlafen"):
        raise Rejected
    free_hands = main.verb.name in ("tanzen", "singen", "lachen", "warten", "stehen", "gehen", "laufen")
    verbs = "tragen halten" if free_hands else "tragen"
    inner = some_action(chooser, verbs)
    _take_over(inner, subject)
    subject.after.append(RelativeClause(subject, inner, "nom"))
    return Sentence(main.main(), main.english())


# Whom one helps is busy, whom one follows is on the way.
WATCHED_OR_HELPED = {
    "helfen": "schleppen suchen arbeiten bauen kochen putzen reparieren waschen aufräumen pflücken schieben backen",
    "folgen": "laufen gehen wandern klettern schwimmen",
}


def relative_at_end(chooser: Chooser) -> Sentence:
    """Die Frau hilft einem Kind, das einen Ball sucht."""
    head = chooser.subject("person", plural=0.3)
    if head.det in ("", "dieser"):
        raise Rejected
    verbs = tuple(WATCHED_OR_HELPED)
    frame = chooser.pick([f for f in FRAMES["dative"] if f.verb.name in verbs and f.subjects == f.objects == "person"])
    person = chooser.subject("person", without=(head.lemma,))
    if chooser.chance(0.5):
        frame = Frame(VERBS[chooser.pick(("sehen", "fotografieren", "beobachten"))], "person", "person", "")
    case = "dat" if frame in FRAMES["dative"] else "acc"
    inner = chooser.pick((located, acting, moving))(chooser)
    if inner.verb.name in (*ENGLISH_SIMPLE, "wohnen") or not isinstance(inner.subject, NounPhrase):
        raise Rejected
    if not inner.subject.is_person or (
        case == "dat" and inner.verb.name in ("schlafen", "liegen", "einschlafen", "schwimmen")
    ):
        raise Rejected
    if inner.verb.name in ("besuchen", "umarmen", "abholen") or (case == "dat" and inner.subject.lemma == "Baby"):
        raise Rejected
    if any(getattr(getattr(part.content, "phrase", None), "lemma", "") == "Bett" for part in inner.parts):
        raise Rejected
    if inner.verb.name not in WATCHED_OR_HELPED.get(frame.verb.name, inner.verb.name).split():
        raise Rejected
    head = NounPhrase(
        inner.subject.lemma, head.det if head.number == inner.subject.number else "der", inner.subject.number
    )
    if head.lemma == person.lemma:
        raise Rejected
    _take_over(inner, head)
    head.after.append(RelativeClause(head, inner, "nom"))
    clause = Clause(person, frame.verb, [Part("object", head, case)])
    return Sentence(clause.main(), clause.english())


def _take_over(clause: Clause, subject: NounPhrase) -> None:
    """Give a clause another subject; possessives must not be left pointing at the old one."""
    for part in clause.parts:
        if getattr(part.content, "owner", None) is not None:
            raise Rejected
        if part.role == "object" and getattr(part.content, "lemma", "") == subject.lemma:
            raise Rejected
        plural_wearer = subject.number == "pl" and clause.verb.name in ("tragen", "halten")
        if plural_wearer and part.role == "object":
            part.content.number, part.content.det = "pl", ""
        elif part.role == "object" and clause.verb.name in ("tragen", "halten") and part.content.number == "pl":
            if part.content.noun.group != "footwear":
                part.content.number, part.content.det = "sg", "ein"
        elif clause.verb.name == "tragen" and part.content.det not in ("ein", ""):
            part.content.det = "ein"
    clause.subject = subject


def relative_object(chooser: Chooser) -> Sentence:
    """Der Ball, den der Junge wirft, ist rot."""
    inner = acting(chooser, "transitive", "separable", place=0.0, without=("verkaufen", "umarmen", "besuchen", "essen"))
    thing = inner.parts.pop(0).content
    if thing.owner or thing.noun.group == "drink" or inner.verb.preposition or inner.verb.particle == "along":
        raise Rejected
    if inner.verb.name in ("jagen", "malen", "bauen") or not inner.subject.definite:
        raise Rejected
    thing.det, adjective = "der", thing.adjective
    word = chooser.pick(
        [word for word in thing.noun.adjectives if word not in (adjective, "hungrig", "schnell", "sauber")]
    )
    thing.adjective = ""
    thing.after.append(RelativeClause(thing, inner, "acc"))
    return _is(thing, word)


def relative_place(chooser: Chooser) -> Sentence:
    """Die Bank, auf der der Mann sitzt, ist nass."""
    frame = chooser.frame("located", without=("lachen", "weinen", "bellen", "grasen", "einkaufen"))
    entry = chooser.pick(PLACES[frame.places])
    if entry.preposition not in ("in", "auf", "unter", "an") or not NOUNS[entry.noun].plural or entry.english == "at":
        raise Rejected
    head = NounPhrase(entry.noun, "der")
    inner = Clause(chooser.subject_or_pair(frame.subjects), frame.verb)
    if not inner.subject.definite and inner.subject.number == "sg":
        raise Rejected
    place = PrepositionalPhrase(entry.preposition, "dat", head, entry.english)
    head.after.append(RelativeClause(head, inner, "dat", place))
    return _is(head, chooser.pick([word for word in NOUNS[entry.noun].adjectives if word != "leer"]))


def _is(subject: NounPhrase, word: str) -> Sentence:
    be, link = Link(), Link()
    is_word, tag, ist = ("is", "VBZ", "ist") if subject.number == "sg" else ("are", "VBP", "sind")
    predicate = Node("ADJP", [Leaf("JJ", ADJECTIVES[word].english, [link])])
    german = [*subject.german("nom"), Token(ist, [be]), Token(word, [link])]
    return Sentence(german, Node("S", [subject.english(), Node("VP", [Leaf(tag, is_word, [be]), predicate])]))


def two_predicates(chooser: Chooser) -> Sentence:
    """Ein Mann sitzt auf einer Bank und liest eine Zeitung."""
    first_verb, second_verbs = chooser.pick(
        (
            ("sitzen", "lesen essen trinken halten singen schreiben"),
            ("stehen", "lachen singen fotografieren beobachten halten"),
            ("liegen", "lesen"),
            ("gehen", "singen essen"),
        )
    )
    main, other = some_action(chooser, first_verb), some_action(chooser, second_verbs)
    if not main.subject.is_person or getattr(main.subject, "lemma", "") == "Baby":
        raise Rejected
    if first_verb == "gehen" and main.parts[0].content.preposition not in ("durch", "über", "um"):
        raise Rejected
    if first_verb == "liegen" and main.parts[0].content.phrase.lemma == "Schnee":
        raise Rejected
    other.parts = [part for part in other.parts if part.role not in ("place", "manner")]
    if any(getattr(part.content, "det", "") in ("zwei", "drei", "einige", "viele") for part in other.parts):
        raise Rejected
    if any(part.role == "manner" for part in main.parts):
        raise Rejected
    if isinstance(main.subject, NounPhrase):
        _take_over(other, main.subject)
    elif any(getattr(part.content, "owner", None) for part in other.parts):
        raise Rejected
    else:
        other.subject = main.subject
    link = Link()
    tree = main.english()
    auxiliary, gerund = tree.children[-1].children
    joined = Node("VP", [gerund, Leaf("CC", "and", [link]), other.verb_phrase("gerund")])
    tree.children[-1].children = [auxiliary, joined]
    return Sentence([*main.main(), Token("und", [link]), *other.predicate()], tree)
