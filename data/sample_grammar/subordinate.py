"""Patterns with a conjunction: weil, obwohl, während, wenn, dass, um ... zu. The German verb stands last there."""

from __future__ import annotations

from .builders import acting, located, moving
from .choose import Chooser, Rejected, pronoun
from .clauses import Clause, Part, Sentence
from .frames import ENGLISH_SIMPLE, FRAMES
from .nouns import ADJECTIVES
from .phrases import Coordination, Fixed, Leaf, Link, Node, NounPhrase, PrepositionalPhrase, Token
from .verbs import VERBS

RAINING = ("es:1 regnet:2", "(S (NP PRP/it:1) (VP VBZ/is:2 (VP VBG/raining:2)))")
SNOWING = ("es:1 schneit:2", "(S (NP PRP/it:1) (VP VBZ/is:2 (VP VBG/snowing:2)))")
COLD = ("es:1 kalt:2 ist:3", "(S (NP PRP/it:1) (VP VBZ/is:3 (ADJP JJ/cold:2)))")
DARK = ("es:1 dunkel:2 ist:3", "(S (NP PRP/it:1) (VP VBZ/is:3 (ADJP JJ/dark:2)))")
SUNNY = ("die:1 Sonne:2 scheint:3", "(S (NP DT/the:1 NN/sun:2) (VP VBZ/is:3 (VP VBG/shining:3)))")
NICE = ("das:1 Wetter:2 schön:3 ist:4", "(S (NP DT/the:1 NN/weather:2) (VP VBZ/is:4 (ADJP JJ/beautiful:3)))")
LOUD = ("die:1 Musik:2 laut:3 ist:4", "(S (NP DT/the:1 NN/music:2) (VP VBZ/is:4 (ADJP JJ/loud:3)))")
LATE = ("der:1 Zug:2 Verspätung:3 hat:4", "(S (NP DT/the:1 NN/train:2) (VP VBZ/is:4 (ADJP JJ/late:3)))")
# After wenn both clauses speak of what usually happens: simple present.
RAINS = ("es:1 regnet:2", "(S (NP PRP/it:1) (VP VBZ/rains:2))")
SNOWS = ("es:1 schneit:2", "(S (NP PRP/it:1) (VP VBZ/snows:2))")
SHINES = ("die:1 Sonne:2 scheint:3", "(S (NP DT/the:1 NN/sun:2) (VP VBZ/shines:3))")

# What someone feels, as predicate adjective, and the verbs it explains (weil) or does not stop (obwohl).
WEIL_FEELING = {
    "müde": "schlafen sitzen liegen weinen einschlafen",
    "traurig": "weinen",
    "fröhlich": "singen tanzen lachen",
    "glücklich": "singen tanzen lachen",
    "hungrig": "essen backen kochen kaufen weinen",
    "durstig": "trinken",
}
OBWOHL_FEELING = {
    "müde": "arbeiten spielen tanzen lesen lachen putzen aufräumen wandern singen",
    "traurig": "singen tanzen lachen arbeiten",
    "hungrig": "arbeiten spielen schlafen warten lesen",
}
# Weather and the like: the frames (verb, or verb and kind of place) it explains or does not stop.
WEIL_WORLD = (
    (SUNNY, "spielen baden angeln wandern schwimmen"),
    (NICE, "spielen arbeiten wandern baden angeln"),
    (LOUD, "tanzen"),
    (COLD, "tragen anziehen trinken"),
    (DARK, "anschalten anzünden"),
    (LATE, "warten"),
)
OBWOHL_WORLD = (
    (RAINING, "angeln wandern spielen tanzen grasen singen"),
    (SNOWING, "arbeiten wandern spielen schlafen"),
    (COLD, "baden schwimmen angeln spielen tanzen"),
    (DARK, "arbeiten spielen wandern lesen"),
    (LOUD, "schlafen lesen einschlafen arbeiten"),
)
INDOORS = ("Bett", "Sofa", "Teppich", "Boden", "Büro", "Haus", "Küche", "Restaurant", "Bibliothek", "Zimmer", "Zug")


def some_action(chooser: Chooser, verbs: str) -> Clause:
    """Return a clause with one of these verbs, from whichever table has it."""
    name = chooser.pick(verbs.split())
    kinds = [
        kind for kind in ("located", "transitive", "separable", "motion") for f in FRAMES[kind] if f.verb.name == name
    ]
    for _ in range(60):
        frame_kind = chooser.pick(kinds)
        build = {"located": located, "motion": moving}.get(frame_kind)
        clause = build(chooser) if build else acting(chooser, frame_kind, place=0.3)
        if clause.verb.name == name:
            return clause
    raise Rejected


def _places(clause: Clause) -> list[str]:
    return [part.content.phrase.lemma for part in clause.parts if part.role in ("place", "direction")]


def _people(subject: NounPhrase | Coordination) -> set[str]:
    """Return the nouns in a subject."""
    if isinstance(subject, Coordination):
        return {subject.first.lemma, subject.second.lemma}
    return {subject.lemma}


def _join(main: Clause, english: str, german_clause: list[Token], english_clause: Node, link: Link) -> Sentence:
    sbar = Node("SBAR", [Leaf("IN", english, [link]), english_clause])
    sentence = main.english()
    sentence.children[-1].children.append(sbar)
    return Sentence([*main.main(), Token(",", []), *german_clause], sentence)


def _feeling(main: Clause, adjective: str) -> tuple[list[Token], Node]:
    """Return the clause er müde ist, he is tired."""
    subject, be, feeling = pronoun(main.subject), Link(), Link()
    is_word, tag, ist = ("is", "VBZ", "ist") if subject.number == "sg" else ("are", "VBP", "sind")
    german = [*subject.german("nom"), Token(adjective, [feeling]), Token(ist, [be])]
    predicate = Node("ADJP", [Leaf("JJ", ADJECTIVES[adjective].english, [feeling])])
    return german, Node("S", [subject.english(), Node("VP", [Leaf(tag, is_word, [be]), predicate])])


def _reasoned(chooser: Chooser, word: str, english: str, feelings: dict[str, str], world: tuple) -> Sentence:
    link = Link()
    if chooser.chance(0.5):
        adjective = chooser.pick(tuple(feelings))
        main = some_action(chooser, feelings[adjective])
        if (
            not main.subject.is_person
            or getattr(getattr(main.subject, "first", main.subject), "adjective", "")
            or main.subject.sex == ""
        ):
            raise Rejected
        if adjective == "hungrig" and main.verb.name == "kaufen" and main.parts[0].content.noun.group != "food":
            raise Rejected
        german, tree = _feeling(main, adjective)
    else:
        state, verbs = chooser.pick(world)
        main = some_action(chooser, verbs)
        if not _fits(state, main):
            raise Rejected
        fixed = Fixed(*state)
        german, tree = fixed.german(), fixed.english()
    return _join(main, english, [Token(word, [link]), *german], tree, link)


def _fits(state: tuple[str, str], main: Clause) -> bool:
    places, name = _places(main), main.verb.name
    thing = main.parts[0].content if main.parts and main.parts[0].role == "object" else None
    if state == COLD and not isinstance(main.subject, Coordination):  # "es" must not read as the girl or the child
        place_words = [part.content.phrase.adjective for part in main.parts if part.role == "place"]
        if (main.subject.number == "sg" and main.subject.noun.gender == "n") or "kalt" in place_words:
            return False
    if state in (SUNNY, NICE, RAINING, SNOWING) and (set(places) & set(INDOORS) or not places):
        return False
    if state in (SUNNY, NICE) and set(places) & {"Schnee", "Wald"}:
        return False
    if state == COLD and name in ("tragen", "anziehen"):
        return thing.lemma in ("Mütze", "Jacke", "Mantel", "Schal", "Handschuh", "Stiefel")
    if state == COLD and name == "trinken":
        return thing.lemma in ("Tee", "Kaffee") and not set(places)
    if state == LATE:
        return "Bahnhof" in places
    if state == LOUD and name == "tanzen":
        return not set(places) & {"Strand"}
    if state == DARK and name == "lesen":
        return not set(places) & {"Bibliothek", "Zimmer", "Zug", "Bett", "Sofa"}
    return True


def because(chooser: Chooser) -> Sentence:
    """Die Frau schläft, weil sie müde ist."""
    return _reasoned(chooser, "weil", "because", WEIL_FEELING, WEIL_WORLD)


def although(chooser: Chooser) -> Sentence:
    """Die Kinder spielen im Garten, obwohl es regnet."""
    return _reasoned(chooser, "obwohl", "although", OBWOHL_FEELING, OBWOHL_WORLD)


def laughing(chooser: Chooser) -> Sentence:
    """Die Kinder lachen, weil der Hund den Ball aufhebt."""
    link = Link()
    main = Clause(chooser.subject("person"), VERBS[chooser.pick(("lachen", "lächeln", "lachen"))])
    reason = some_action(chooser, "fangen jagen springen tanzen klettern kriechen")
    if _people(reason.subject) & _people(main.subject) or not reason.subject.definite:
        raise Rejected
    return _join(main, "because", reason.subordinate([Token("weil", [link])]), reason.english(), link)


def while_clause(chooser: Chooser) -> Sentence:
    """Der Mann liest ein Buch, während die Frau im Garten arbeitet."""
    link = Link()
    main, other = (chooser.pick((located, acting))(chooser) for _ in range(2))
    for clause in (main, other):
        if clause.verb.name in (*ENGLISH_SIMPLE, "wohnen", "halten", "tragen", "stehen", "einschlafen", "grasen"):
            raise Rejected
        if not clause.subject.is_person or not isinstance(clause.subject, NounPhrase):
            raise Rejected
    things = {part.content.lemma for part in main.parts if part.role == "object"}
    if things & set(_places(other)):
        raise Rejected
    if main.subject.lemma == other.subject.lemma or main.verb == other.verb or set(_places(main)) & set(_places(other)):
        raise Rejected
    if not (main.subject.definite == other.subject.definite):
        raise Rejected
    return _join(main, "while", other.subordinate([Token("während", [link])]), other.english(), link)


def when_clause(chooser: Chooser) -> Sentence:
    """Wenn es regnet, bleibt der Hund im Haus."""
    state = chooser.pick((RAINS, SNOWS, SHINES))
    condition, link, comma = Fixed(*state), Link(), Link()
    if chooser.chance(0.35):
        clause = some_action(chooser, "spielen" if state != RAINS else "lesen")
    elif state == SHINES:
        clause = some_action(chooser, "spielen arbeiten baden lesen angeln wandern singen trinken liegen")
    else:
        home = ("Haus", "Küche", "Hütte", "Zimmer") if chooser.chance(0.7) else ("Zelt", "Museum", "Bibliothek")
        place = PrepositionalPhrase("in", "dat", NounPhrase(chooser.pick(home), "der"), "in")
        subject = chooser.subject("sleeper" if home[0] == "Haus" else "person")
        clause = Clause(subject, VERBS["bleiben"], [Part("place", place)])
    if not clause.subject.definite:
        raise Rejected
    places = set(_places(clause))
    indoors = bool(places & {*INDOORS, "Hütte", "Zelt", "Museum"})
    if (state == SHINES and (indoors or not places or "Schnee" in places)) or (state == RAINS and not indoors):
        raise Rejected
    if state == SNOWS and places & {"Wiese", "Sand", "Strand", "Baum"}:
        raise Rejected
    clause.tense = "simple"
    opening = [Token("wenn", [link]), *condition.german(), Token(",", [comma])]
    sbar = Node("SBAR", [Leaf("WRB", "when", [link]), condition.english()])
    main = clause.english()
    return Sentence(opening + clause.inverted(), Node("S", [sbar, Leaf(",", ",", [comma]), *main.children]))


def that_clause(chooser: Chooser) -> Sentence:
    """Die Frau sieht, dass der Hund schläft."""
    link = Link()
    main = Clause(chooser.subject("person"), VERBS[chooser.pick(("sehen", "merken", "glauben"))])
    other = chooser.pick((located, moving, acting))(chooser)
    if other.verb.name in ENGLISH_SIMPLE or main.subject.lemma in _people(other.subject):
        raise Rejected
    if other.subject.number == "sg" and not other.subject.definite and main.verb.name == "glauben":
        raise Rejected
    return _join(main, "that", other.subordinate([Token("dass", [link])]), other.english(), link)


# where someone goes (verb, direction as in the tables, English), and what for: verb, kind of frame.
ERRANDS = (
    ("gehen", "in Garten", "into", "pflücken gießen spielen"),
    ("gehen", "in Küche", "into", "kochen backen trinken"),
    ("gehen", "in Laden", "into", "kaufen"),
    ("gehen", "zu Markt", "to", "kaufen verkaufen"),
    ("gehen", "in Park", "into", "spielen lesen laufen"),
    ("gehen", "zu See", "to", "angeln baden schwimmen"),
    ("gehen", "in Bibliothek", "into", "lesen"),
    ("gehen", "in Restaurant", "into", "essen trinken"),
    ("gehen", "in Zimmer", "into", "schlafen lesen"),
    ("laufen", "zu Strand", "to", "baden spielen fangen"),
    ("fahren", "in Stadt", "into", "einkaufen kaufen arbeiten"),
    ("fahren", "zu Fluss", "to", "angeln schwimmen"),
    ("fahren", "zu Bahnhof", "to", "abholen"),
    ("fahren", "zu Wald", "to", "wandern"),
)


def purpose(chooser: Chooser) -> Sentence:
    """Die Frau geht in den Garten, um Blumen zu pflücken."""
    verb, direction, english, errands = chooser.pick(ERRANDS)
    preposition, noun = direction.split()
    inner = some_action(chooser, errands)
    if not isinstance(inner.subject, NounPhrase) or not inner.subject.is_person:
        raise Rejected
    inner.parts = [part for part in inner.parts if part.role != "place"]
    if any(part.role == "direction" for part in inner.parts) or (
        inner.verb.name in ("laufen", "wandern") and inner.parts
    ):
        raise Rejected
    things = [part.content for part in inner.parts if part.role == "object"]
    if noun == "Markt" and things and things[0].noun.group not in ("food", "house", "clothing"):
        raise Rejected
    for thing in things:  # what one sets out for is not known yet
        if thing.det == "der" and thing.owner is None and thing.noun.group not in ("child", "girl", "boy", "toy"):
            thing.det = "ein" if thing.number == "sg" else ""
    case = "dat" if preposition == "zu" else "acc"
    phrase = PrepositionalPhrase(
        preposition, case, NounPhrase(noun, "der", "sg", chooser.adjective(noun, 0.1)), english
    )
    main = Clause(inner.subject, VERBS[verb], [Part("direction", phrase)])
    um = Link()
    german = [*main.main(), Token(",", []), Token("um", [um]), *inner.purpose()]
    tree = main.english()
    order = [Leaf("IN", "in", [um]), Leaf("NN", "order", [um])]
    tree.children[-1].children.append(Node("SBAR", [*order, inner.to_infinitive()]))
    return Sentence(german, tree)
