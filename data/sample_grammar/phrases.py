"""Noun phrases and prepositional phrases that can be said in both languages.

Alignment works through links. A `Link` is a bare object that stands for one meaning; each German token and each English
leaf carries the links of the meanings it expresses, and two tokens are aligned when they share a link. "im" carries two
links, so it aligns with both "in" and "the".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import english, german
from .nouns import ADJECTIVES, NOUNS, Noun


class Link:
    """One meaning, shared by the German and the English tokens that express it."""


@dataclass
class Token:
    """A German word or punctuation mark and the links it carries."""

    text: str
    links: list[Link]


@dataclass
class Leaf:
    """An English word with its part-of-speech tag and the links it carries."""

    tag: str
    text: str
    links: list[Link]


@dataclass
class Node:
    """An inner node of the English tree."""

    label: str
    children: list[Node | Leaf]


def leaves(tree: Node | Leaf) -> list[Leaf]:
    """Return the leaves of a tree from left to right."""
    if isinstance(tree, Leaf):
        return [tree]
    return [leaf for child in tree.children for leaf in leaves(child)]


def words(tag_by_word: str, links: list[Link]) -> list[Leaf]:
    """Return leaves from "tag/word tag/word", all with the same links."""
    return [Leaf(*pair.split("/"), links) for pair in tag_by_word.split()]


QUANTIFIERS = {
    "zwei": "CD/two",
    "drei": "CD/three",
    "vier": "CD/four",
    "fünf": "CD/five",
    "viele": "JJ/many",
    "einige": "DT/some",
    "mehrere": "JJ/several",
}


@dataclass
class NounPhrase:
    """A noun with its determiner, adjective and what follows it.

    `det` is a German determiner ("der", "ein", "kein", "dieser", "sein", "ihr", "zwei", "viele", ...) or "" for none.
    `english_bare` leaves out the English article: mit dem Bus, by bus.
    `owner` is the phrase that sein or ihr points back to. `after` holds modifiers that follow the noun.
    """

    lemma: str
    det: str = "der"
    number: str = "sg"
    adjective: str = ""
    owner: NounPhrase | None = None
    after: list = field(default_factory=list)
    english_bare: bool = False

    def __post_init__(self) -> None:
        self.noun_link, self.det_link, self.adjective_link = Link(), Link(), Link()

    @property
    def noun(self) -> Noun:
        """Return the lexicon entry."""
        return NOUNS[self.lemma]

    @property
    def gender(self) -> str:
        """Return the gender, or "pl"."""
        return german.agreement_gender(self.noun, self.number)

    @property
    def definite(self) -> bool:
        """Return whether the phrase is definite."""
        return self.det in ("der", "dieser", "sein", "ihr")

    @property
    def sex(self) -> str:
        """Return whether he ("m") or she ("f") refers to it."""
        return self.noun.sex

    @property
    def is_person(self) -> bool:
        """Return whether it is someone, not something."""
        return self.noun.group in ("man", "woman", "boy", "girl", "child", "relative-m", "relative-f")

    def german(self, case: str) -> list[Token]:
        """Return the German tokens in a case."""
        tokens = []
        if self.det:
            tokens.append(Token(german.determiner(self.det, self.gender, case), [self.det_link]))
        if self.adjective:
            form = german.adjective(ADJECTIVES[self.adjective], self.det, self.gender, case)
            tokens.append(Token(form, [self.adjective_link]))
        tokens.append(Token(german.noun_form(self.noun, self.number, case), [self.noun_link]))
        return tokens + [token for modifier in self.after for token in modifier.german()]

    def english(self) -> Node:
        """Return the English noun phrase."""
        tail: list[Node | Leaf] = []
        if self.adjective:
            tail.append(Leaf("JJ", ADJECTIVES[self.adjective].english, [self.adjective_link]))
        tag = "NN" if self.number == "sg" or self.lemma == "Haar" else "NNS"
        tail += [Leaf(tag, word, [self.noun_link]) for word in english.noun_form(self.noun, self.number).split()]
        phrase = Node("NP", self._english_determiner(tail[0].text) + tail)
        if not self.after:
            return phrase
        return Node("NP", [phrase] + [modifier.english() for modifier in self.after])

    def _english_determiner(self, next_word: str) -> list[Leaf]:
        links = [self.det_link]
        if self.det == "der":
            return [] if self.english_bare else [Leaf("DT", "the", links)]
        if self.det == "dieser":
            return [Leaf("DT", "this" if self.number == "sg" else "these", links)]
        if self.det in ("sein", "ihr"):
            owner_key = ("f" if self.det == "ihr" else "m", self.owner.number)
            return [Leaf("PRP$", english.POSSESSIVES[owner_key], links)]
        if self.det == "ein" or (self.det == "kein" and self.number == "sg" and self.noun.plural):
            return [Leaf("DT", english.article(next_word), links)]
        if self.det == "kein":  # "not" stands with the verb: keine Schuhe, not ... any shoes
            return [Leaf("DT", "any", links)]
        if self.det:
            return words(QUANTIFIERS[self.det], links)
        return []


@dataclass
class Coordination:
    """Two noun phrases joined by und: plural for the verb."""

    first: NounPhrase
    second: NounPhrase
    number: str = "pl"
    sex: str = "f"

    def __post_init__(self) -> None:
        self.link = Link()
        self.is_person = self.first.is_person
        self.definite = self.first.definite

    def german(self, case: str) -> list[Token]:
        """Return the German tokens."""
        return [*self.first.german(case), Token("und", [self.link]), *self.second.german(case)]

    def english(self) -> Node:
        """Return the English tree."""
        return Node("NP", [self.first.english(), Leaf("CC", "and", [self.link]), self.second.english()])


@dataclass
class Pronoun:
    """er, sie or plural sie, standing for a noun phrase mentioned before."""

    number: str
    sex: str
    definite: bool = True

    def __post_init__(self) -> None:
        self.link = Link()

    def german(self, case: str) -> list[Token]:
        """Return the German tokens."""
        assert case == "nom"
        return [Token("er" if (self.sex, self.number) == ("m", "sg") else "sie", [self.link])]

    def english(self) -> Node:
        """Return the English tree."""
        word = "they" if self.number == "pl" else {"m": "he", "f": "she"}[self.sex]
        return Node("NP", [Leaf("PRP", word, [self.link])])


@dataclass
class PrepositionalPhrase:
    """A preposition with a noun phrase; German contracts it with a definite article where that is usual."""

    preposition: str
    case: str
    phrase: NounPhrase
    english_preposition: str

    def __post_init__(self) -> None:
        self.link = Link()

    def german(self) -> list[Token]:
        """Return the German tokens."""
        first, *rest = self.phrase.german(self.case)
        contracted = german.contract(self.preposition, first.text) if self._is_plain() else None
        if contracted:
            return [Token(contracted, [self.link, *first.links]), *rest]
        return [Token(self.preposition, [self.link]), first, *rest]

    def _is_plain(self) -> bool:
        return isinstance(self.phrase, NounPhrase) and self.phrase.det == "der" and self.phrase.number == "sg"

    def english(self) -> Node:
        """Return the English tree."""
        first, *others = self.english_preposition.split()
        bare = isinstance(self.phrase, NounPhrase) and self.phrase.english_bare
        head = [Leaf("IN", first, [self.link, self.phrase.det_link] if bare else [self.link])]
        if others == ["front", "of"]:
            head.append(Node("NP", [Leaf("NN", "front", [self.link])]))
            inner = Node("PP", [Leaf("IN", "of", [self.link]), self.phrase.english()])
            return Node("PP", [head[0], Node("NP", [head[1], inner])])
        head += [Leaf("TO" if word == "to" else "IN", word, [self.link]) for word in others]
        return Node("PP", [*head, self.phrase.english()])


class Fixed:
    """A phrase that never varies, written out: Fixed("am:1 Abend:2", "(PP IN/in:1 (NP DT/the:1 NN/evening:2))").

    Words with a digit in common are aligned.
    """

    def __init__(self, german_words: str, english_tree: str) -> None:
        self.german_words, self.english_tree = german_words, english_tree
        self.links = {digit: Link() for digit in "123456789"}

    def _split(self, word: str) -> tuple[str, list[Link]]:
        text, _, digits = word.partition(":")
        return text, [self.links[digit] for digit in digits]

    def german(self) -> list[Token]:
        """Return the German tokens."""
        return [Token(*self._split(word)) for word in self.german_words.split()]

    def english(self) -> Node:
        """Return the English tree."""
        stack = [Node("", [])]
        for word in self.english_tree.replace(")", " )").split():
            if word.startswith("("):
                stack.append(Node(word[1:], []))
            elif word == ")":
                closed = stack.pop()
                stack[-1].children.append(closed)
            else:
                body, links = self._split(word)
                stack[-1].children.append(Leaf(*body.split("/"), links))
        return stack[0].children[0]
