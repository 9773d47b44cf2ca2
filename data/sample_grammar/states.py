"""Main-clause patterns about how things are: ist, gibt es, comparison, genitive."""

from __future__ import annotations

from .choose import Chooser, Rejected
from .clauses import Sentence
from .nouns import ADJECTIVES, NOUNS
from .phrases import Leaf, Link, Node, NounPhrase, PrepositionalPhrase, Token


def copula(chooser: Chooser) -> Sentence:
    """Die Straße ist nass. / Der Hund ist größer als die Katze."""
    groups = (
        "vehicle",
        "building",
        "nature",
        "town",
        "room",
        "clothing",
        "load",
        "animal",
        "boy",
        "man",
        "woman",
        "food",
    )
    lemma = chooser.pick([lemma for lemma, noun in NOUNS.items() if noun.group in groups and noun.plural])
    det = chooser.pick(("der", "der", "der", "dieser"))
    plural = 0.3 if NOUNS[lemma].group in ("vehicle", "animal", "clothing", "food", "man", "woman") else 0.0
    subject = NounPhrase(lemma, det, "pl" if chooser.chance(plural) else "sg", chooser.adjective(lemma, 0.3))
    word = chooser.pick([word for word in NOUNS[lemma].adjectives if word not in (subject.adjective, "blond")])
    colors = ("rot", "blau", "grün", "gelb", "weiß", "schwarz", "braun", "grau", "bunt")
    opposites = (
        {"groß", "klein"},
        {"alt", "neu"},
        {"alt", "jung"},
        {"lang", "kurz"},
        {"leer", "voll"},
        {"nass", "trocken"},
    )
    if any({word, subject.adjective} == pair for pair in opposites) or (word in colors and subject.adjective in colors):
        raise Rejected
    link, adjective = Link(), Link()
    number = subject.number
    verb = Token("ist" if number == "sg" else "sind", [link])
    english_verb = Leaf("VBZ" if number == "sg" else "VBP", "is" if number == "sg" else "are", [link])
    predicate = Node("ADJP", [Leaf("JJ", ADJECTIVES[word].english, [adjective])])
    return Sentence(
        [*subject.german("nom"), verb, Token(word, [adjective])],
        Node("S", [subject.english(), Node("VP", [english_verb, predicate])]),
    )


# Each list runs from more to less, so that what is said is true.
SIZES = (
    "Elefant Bär Pferd Esel Ziege Hund Katze Hase",
    "Zug Bus Traktor Auto Fahrrad",
    "Kirche Haus Hütte",
    "Koffer Tasche",
)
COMPARATIVES = {
    "größer": ("bigger", SIZES),
    "kleiner": ("smaller", tuple(" ".join(reversed(row.split())) for row in SIZES)),
    "älter": (
        "older",
        ("Großvater Vater Junge", "Großmutter Mutter Mädchen", "Kirche Schule Haus", "Turm Brücke Bahnhof"),
    ),
    "schneller": ("faster", ("Zug Auto Bus Traktor", "Auto Fahrrad", "Pferd Hund Ente", "Pferd Kuh Schaf")),
    "schwerer": ("heavier", ("Kiste Koffer Rucksack Tasche", "Traktor Auto Fahrrad", "Elefant Pferd Schaf")),
    "schöner": ("more beautiful", ("Kleid Jacke Mantel", "Garten Hof", "Bild Lampe", "Kirche Schule Bahnhof")),
    "stärker": ("stronger", ("Bär Hund Katze", "Elefant Pferd Esel", "Arbeiter Student Junge")),
}


def comparison(chooser: Chooser) -> Sentence:
    """Der Bus ist größer als das Auto."""
    word = chooser.pick(tuple(COMPARATIVES))
    english, rows = COMPARATIVES[word]
    lemmas = chooser.pick(rows).split()
    first = chooser.pick(lemmas[:-1])
    second = chooser.pick(lemmas[lemmas.index(first) + 1 :])
    det = chooser.pick(("der", "der", "dieser"))
    subject = NounPhrase(first, det, "sg" if NOUNS[first].sex or chooser.chance(0.8) else "pl")
    other = NounPhrase(second, "der", subject.number)
    link, adjective, than = Link(), Link(), Link()
    is_word, tag = ("is", "VBZ") if subject.number == "sg" else ("are", "VBP")
    *more, last = english.split()
    degree = [Leaf("RBR", text, [adjective]) for text in more] + [Leaf("JJ" if more else "JJR", last, [adjective])]
    comparison_phrase = Node("ADJP", [*degree, Node("PP", [Leaf("IN", "than", [than]), other.english()])])
    verb = Token("ist" if subject.number == "sg" else "sind", [link])
    german = [*subject.german("nom"), verb, Token(word, [adjective]), Token("als", [than]), *other.german("nom")]
    return Sentence(german, Node("S", [subject.english(), Node("VP", [Leaf(tag, is_word, [link]), comparison_phrase])]))


def there_is(chooser: Chooser) -> Sentence:
    """Im Park gibt es einen kleinen See. / Es gibt viele Blumen in dem Garten."""
    things = {
        "Park": ("See", "Bank", "Baum", "Spielplatz", "Blume", "Ente"),
        "Garten": ("Baum", "Blume", "Hütte", "Bank", "Hase"),
        "Stadt": ("Park", "Museum", "Kirche", "Markt", "Bahnhof", "Brücke", "Bibliothek", "Schule", "Restaurant"),
        "Dorf": ("Kirche", "Schule", "Laden", "Restaurant", "Brücke", "Platz"),
        "See": ("Insel", "Fisch", "Ente"),
        "Zimmer": ("Sofa", "Bett", "Lampe", "Schrank", "Spiegel", "Fenster", "Regal", "Bild"),
        "Küche": ("Tisch", "Stuhl", "Lampe", "Fenster", "Regal"),
        "Wald": ("Hütte", "Bär", "Vogel", "See", "Fluss", "Hase"),
    }
    where = chooser.pick(tuple(things))
    lemma = chooser.pick(things[where])
    one_of_a_kind = ("See", "Fluss", "Spielplatz", "Markt", "Bahnhof")
    if chooser.chance(0.4) and lemma not in one_of_a_kind:
        det = chooser.pick(("zwei", "drei", "viele", "einige", "mehrere"))
        thing = NounPhrase(lemma, det, "pl", chooser.adjective(lemma, 0.4))
    else:
        thing = NounPhrase(lemma, "ein", "sg", chooser.adjective(lemma, 0.6))
    place_noun = NounPhrase(where, chooser.pick(("der", "der", "dieser")), "sg", chooser.adjective(where, 0.3))
    place = PrepositionalPhrase("in", "dat", place_noun, "in")
    es, verb = Link(), Link()
    german = [*place.german(), Token("gibt", [verb]), Token("es", [es]), *thing.german("acc")]
    be, tag = ("is", "VBZ") if thing.number == "sg" else ("are", "VBP")
    english = Node("VP", [Leaf(tag, be, [verb]), thing.english(), place.english()])
    return Sentence(german, Node("S", [Node("NP", [Leaf("EX", "there", [es])]), english]))


def genitive(chooser: Chooser) -> Sentence:
    """Das Dach des alten Hauses ist rot."""
    part, words = chooser.pick(
        (
            ("Dach", "rot neu nass"),
            ("Tür", "grün neu alt"),
            ("Fenster", "klein sauber rund"),
            ("Mauer", "alt lang dick"),
        )
    )
    whole = chooser.pick(("Haus", "Kirche", "Schule", "Museum", "Hütte", "Bahnhof", "Turm", "Restaurant", "Bibliothek"))
    owner = NounPhrase(whole, "der", "sg", chooser.adjective(whole, 0.5))
    number = "pl" if part == "Fenster" and chooser.chance(0.7) else "sg"
    head = NounPhrase(part, "der", number, after=[Genitive(owner)])
    word, link, adjective = chooser.pick(words.split()), Link(), Link()
    if word == owner.adjective:
        raise Rejected
    be, tag, verb = ("is", "VBZ", "ist") if number == "sg" else ("are", "VBP", "sind")
    predicate = Node("ADJP", [Leaf("JJ", ADJECTIVES[word].english, [adjective])])
    german = [*head.german("nom"), Token(verb, [link]), Token(word, [adjective])]
    return Sentence(german, Node("S", [head.english(), Node("VP", [Leaf(tag, be, [link]), predicate])]))


class Genitive:
    """A genitive after the noun; its article answers for "of" as well as "the"."""

    def __init__(self, phrase: NounPhrase) -> None:
        self.phrase = phrase

    def german(self) -> list[Token]:
        """Return the German tokens."""
        return self.phrase.german("gen")

    def english(self) -> Node:
        """Return the English tree."""
        return Node("PP", [Leaf("IN", "of", [self.phrase.det_link]), self.phrase.english()])
