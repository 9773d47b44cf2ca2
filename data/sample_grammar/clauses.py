"""Clauses: one set of constituents, said in German main-clause, subordinate or infinitive order and in English."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import english, german
from .frames import ENGLISH_SIMPLE
from .phrases import Leaf, Link, Node, NounPhrase, PrepositionalPhrase, Token
from .verbs import Verb

# Places in the German middle field (between finite verb and verb end), lowest first. English orders by ENGLISH_RANK.
GERMAN_RANK = {
    "dative": 0,
    "frequency": 1,
    "time": 2,
    "definite object": 3,
    "manner": 4,
    "companion": 5,
    "place": 6,
    "indefinite object": 7,
    "agent": 7,
    "not": 8,
    "negated place": 9,
    "direction": 10,
}
ENGLISH_RANK = {
    "object": 0,
    "dative": 1,
    "agent": 1,
    "manner": 2,
    "direction": 3,
    "companion": 4,
    "place": 5,
    "time": 6,
}


@dataclass
class Part:
    """A constituent other than subject and verb. `role` is one of the keys of ENGLISH_RANK, or "frequency"."""

    role: str
    content: Any
    case: str = ""

    def german(self) -> list[Token]:
        """Return the German tokens."""
        return self.content.german(self.case) if self.case else self.content.german()


@dataclass
class Clause:
    """A subject, a verb and its parts.

    `tense` is "present" (English progressive, save for stative verbs), "simple" (habits: English simple present),
    "perfect", "passive", or a modal verb. `negation` is "" or "nicht"; kein is in the object's determiner.
    """

    subject: Any
    verb: Verb
    parts: list[Part] = field(default_factory=list)
    tense: str = "present"
    negation: str = ""

    def __post_init__(self) -> None:
        self.main_link, self.auxiliary_link, self.not_link, self.to_link = Link(), Link(), Link(), Link()

    # German ----------------------------------------------------------------------------------------------------------

    def _rank(self, part: Part) -> int:
        role = part.role
        if role == "object":
            role = "definite object" if part.content.definite else "indefinite object"
        if role == "place" and self.negation:
            role = "negated place"
        return GERMAN_RANK[role]

    def middle_field(self, without: Part | None = None) -> list[Token]:
        """Return the parts in German order, with nicht where it belongs; `without` stands in front of the verb."""
        ranked = sorted(((self._rank(part), part.german()) for part in self.parts if part is not without), key=_first)
        if self.negation:
            ranked.append((GERMAN_RANK["not"], [Token("nicht", [self.not_link])]))
            ranked.sort(key=_first)
        return [token for _, tokens in ranked for token in tokens]

    def _verb_tokens(self) -> tuple[list[Token], list[Token]]:
        """Return the finite verb, and the rest of the verb group that closes the clause."""
        verb, number = self.verb, self.subject.number
        main, auxiliary = [self.main_link], [self.auxiliary_link]
        if self.tense in ("present", "simple"):
            prefix = [Token(verb.prefix, main)] if verb.prefix else []
            return [Token(german.finite(verb, number), main)], prefix
        if self.tense in ("perfect", "passive"):
            name = verb.auxiliary if self.tense == "perfect" else "werden"
            return [Token(german.AUXILIARIES[name][number], auxiliary)], [Token(verb.participle, main)]
        return [Token(german.AUXILIARIES[self.tense][number], auxiliary)], [Token(german.infinitive(verb), main)]

    def main(self, front: Part | None = None) -> list[Token]:
        """Return verb second: the subject, or the part `front` and then the subject after the verb."""
        finite, end = self._verb_tokens()
        subject = self.subject.german("nom")
        if front is None:
            return subject + finite + self.middle_field() + end
        return front.german() + finite + subject + self.middle_field(without=front) + end

    def predicate(self) -> list[Token]:
        """Return finite verb, middle field and end: the second half of "sitzt ... und liest ..."."""
        finite, end = self._verb_tokens()
        return finite + self.middle_field() + end

    def inverted(self) -> list[Token]:
        """Return verb, subject, rest: the main clause after a subordinate clause in front."""
        finite, end = self._verb_tokens()
        return finite + self.subject.german("nom") + self.middle_field() + end

    def subordinate(self, opening: list[Token], with_subject: bool = True) -> list[Token]:
        """Return verb last. `opening` is the conjunction or relative pronoun."""
        finite, end = self._verb_tokens()
        if self.tense in ("present", "simple"):
            end = [Token(end[0].text + finite[0].text if end else finite[0].text, finite[0].links)]
        else:
            end = end + finite
        return opening + (self.subject.german("nom") if with_subject else []) + self.middle_field() + end

    def purpose(self) -> list[Token]:
        """Um ... zu: the middle field and the infinitive with zu."""
        tokens = german.zu_infinitive(self.verb)
        both = [self.to_link, self.main_link]
        end = [Token(tokens[0], both)] if len(tokens) == 1 else []
        end = end or [Token(tokens[0], [self.to_link]), Token(tokens[1], [self.main_link])]
        return self.middle_field() + end

    # English ---------------------------------------------------------------------------------------------------------

    def _english_parts(self, without: tuple[Part, ...]) -> list[Node | Leaf]:
        chosen = [part for part in self.parts if part.role in ENGLISH_RANK and part not in without]
        return [self._english_part(part) for part in sorted(chosen, key=lambda part: ENGLISH_RANK[part.role])]

    def _english_part(self, part: Part) -> Node:
        tree = part.content.english()
        if part.role == "object" and self.verb.preposition:
            return Node("PP", [Leaf("IN", self.verb.preposition, [self.main_link]), tree])
        return tree

    def _negation(self) -> list[Leaf]:
        if self.negation:
            return [Leaf("RB", "not", [self.not_link])]
        for part in self.parts:
            if part.role == "object" and getattr(part.content, "det", "") == "kein":
                return [Leaf("RB", "not", [part.content.det_link])]
        return []

    def verb_phrase(self, form: str = "", without: tuple[Part, ...] = ()) -> Node:
        """Return the English verb phrase; `form` asks for a part of the group only ("gerund", "base", "present")."""
        verb, number, link = self.verb, self.subject.number, [self.main_link]
        rest: list[Node | Leaf] = [Node("PRT", [Leaf("RP", verb.particle, link)])] if verb.particle else []
        rest += self._english_parts(without)
        if verb.particle == "along":  # take the bag along
            rest = rest[1:2] + rest[:1] + rest[2:]
        lead: list[Node | Leaf] = [part.content.english() for part in self.parts if part.role == "frequency"]
        form = form or self.tense
        if form == "present" and verb.name in ENGLISH_SIMPLE:
            form = "simple"
        if form == "gerund":
            return Node("VP", [Leaf("VBG", verb.gerund, link), *rest])
        if form == "base":
            return Node("VP", [Leaf("VB", verb.base, link), *rest])
        tag = english.BE_TAG[number]
        if form == "simple":
            return Node("VP", [*lead, Leaf(tag, english.present(verb, number), link), *rest])
        no = self._negation()
        if form == "present":
            return Node("VP", [Leaf(tag, english.BE[number], link), *no, *lead, self.verb_phrase("gerund", without)])
        auxiliary = [self.auxiliary_link]
        participle = Node("VP", [Leaf("VBN", verb.past_participle, link), *rest])
        if form == "perfect":
            return Node("VP", [Leaf(tag, english.HAVE[number], auxiliary), *no, participle])
        if form == "passive":
            inner = Node("VP", [Leaf("VBG", "being", auxiliary), participle])
            return Node("VP", [Leaf(tag, english.BE[number], auxiliary), *no, inner])
        return self._modal(no, self.verb_phrase("base", without))

    def _modal(self, no: list[Leaf], inner: Node) -> Node:
        number, links = self.subject.number, [self.auxiliary_link]
        wording = english.MODALS[self.tense][number == "pl"].split()
        infinitive = Node("S", [Node("VP", [Leaf("TO", "to", links), inner])])
        if len(wording) == 1:
            return Node("VP", [Leaf("MD", wording[0], links), *no, inner])
        if len(wording) == 2:
            return Node("VP", [Leaf(english.BE_TAG[number], wording[0], links), infinitive])
        tags = ("MD", "VB") if wording[0] == "would" else (english.BE_TAG[number], "VBN")
        first, second = (Leaf(tag, word, links) for tag, word in zip(tags, wording, strict=False))
        return Node("VP", [first, *no, Node("VP", [second, infinitive])])

    def english(self, front: Part | None = None) -> Node:
        """Return the English sentence without its full stop; `front` (a time) comes first, with a comma."""
        without = (front,) if front else ()
        core = [self.subject.english(), self.verb_phrase(without=without)]
        if front:
            core = [front.content.english(), Leaf(",", ",", []), *core]
        return Node("S", core)

    def to_infinitive(self) -> Node:
        """To + base form."""
        return Node("S", [Node("VP", [Leaf("TO", "to", [self.to_link]), self.verb_phrase("base")])])


def _first(pair: tuple[int, list[Token]]) -> int:
    return pair[0]


class RelativeClause:
    """A relative clause after `head`; the head is `role` in it ("nom", "acc", or a preposition with the dative)."""

    def __init__(self, head: NounPhrase, clause: Clause, role: str, place: PrepositionalPhrase | None = None) -> None:
        self.head, self.clause, self.role, self.place = head, clause, role, place
        self.link = Link()

    def german(self) -> list[Token]:
        """Return the German tokens."""
        column = {"nom": 0, "acc": 1, "dat": 2}[self.role]
        pronoun = Token(german.RELATIVE[self.head.gender][column], [self.link])
        opening = [pronoun]
        if self.place:
            opening = [Token(self.place.preposition, [self.place.link]), pronoun]
        body = self.clause.subordinate(opening, with_subject=self.role != "nom")
        return [Token(",", []), *body, Token(",", [])]

    def english(self) -> Node:
        """Return the English tree."""
        if self.role == "nom":
            pronoun = Leaf("WP", "who", [self.link]) if self.head.is_person else Leaf("WDT", "that", [self.link])
            return Node("SBAR", [Node("WHNP", [pronoun]), Node("S", [self.clause.verb_phrase()])])
        if self.role == "acc":
            pronoun = Leaf("WP", "whom", [self.link]) if self.head.is_person else Leaf("WDT", "that", [self.link])
            verb_phrase = self.clause.verb_phrase()
            if self.clause.verb.preposition:
                raise ValueError("a prepositional verb would strand its preposition")
            return Node("SBAR", [Node("WHNP", [pronoun]), Node("S", [self.clause.subject.english(), verb_phrase])])
        opening = [Leaf("IN", word, [self.place.link]) for word in self.place.english_preposition.split()]
        which = Node("WHPP", [*opening, Node("WHNP", [Leaf("WDT", "which", [self.link])])])
        return Node("SBAR", [which, Node("S", [self.clause.subject.english(), self.clause.verb_phrase()])])


@dataclass
class Sentence:
    """German tokens and English tree, both without the full stop."""

    german: list[Token]
    english: Node
