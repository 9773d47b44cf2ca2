"""Sampling sentences, splitting them into train, val and test, and writing the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import actions, relative, states, subordinate
from .choose import Chooser, Rejected
from .clauses import Sentence
from .phrases import Leaf, Link, Node, Token, leaves

SEED = 2017
SIZES = {"train": 8000, "val": 500, "test": 500}
MIN_LENGTH, MAX_LENGTH = 4, 25
MIN_TRAIN_COUNT = 5  # how often a word of val or test occurs in train at least
SUFFIXES = ("de", "en", "align", "tree")

PATTERNS: list[tuple[Callable[[Chooser], Sentence], int]] = [
    (actions.place_statement, 7),
    (actions.motion, 7),
    (actions.transitive, 8),
    (actions.separable, 6),
    (actions.placing, 4),
    (actions.static, 2),
    (actions.place_first, 5),
    (actions.time_first, 6),
    (actions.habit, 4),
    (actions.object_first, 2),
    (actions.modal, 6),
    (actions.perfect, 6),
    (actions.passive, 4),
    (actions.giving, 6),
    (actions.dative_verb, 3),
    (actions.not_statement, 2),
    (actions.no_object, 2),
    (actions.with_phrase, 3),
    (actions.with_pet, 2),
    (actions.riding, 2),
    (actions.music, 2),
    (states.copula, 2),
    (states.comparison, 2),
    (states.there_is, 2),
    (states.genitive, 1),
    (subordinate.because, 4),
    (subordinate.although, 3),
    (subordinate.laughing, 2),
    (subordinate.while_clause, 4),
    (subordinate.when_clause, 2),
    (subordinate.that_clause, 4),
    (relative.relative_subject, 4),
    (relative.relative_at_end, 3),
    (relative.relative_object, 3),
    (relative.relative_place, 2),
    (subordinate.purpose, 3),
    (relative.two_predicates, 4),
]


@dataclass(frozen=True)
class Pair:
    """A finished sentence pair, as it stands in the files."""

    pattern: str
    german: tuple[str, ...]
    english: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    tree: str

    @property
    def german_text(self) -> str:
        """Return the raw German line."""
        return detokenize(self.german)

    @property
    def english_text(self) -> str:
        """Return the raw English line."""
        return detokenize(self.english)

    @property
    def crossing(self) -> bool:
        """Return true when two alignment links cross, so that no left-to-right copy can be right."""
        return any(i < k and j > m for i, j in self.alignment for k, m in self.alignment)


def detokenize(tokens: tuple[str, ...]) -> str:
    """Return the raw text: no space before a comma or full stop."""
    return " ".join(tokens).replace(" ,", ",").replace(" .", ".")


def _bracket(tree: Node | Leaf) -> str:
    if isinstance(tree, Leaf):
        return f"({tree.tag} {tree.text})"
    return f"({tree.label} {' '.join(_bracket(child) for child in tree.children)})"


def finish(sentence: Sentence, pattern: str) -> Pair:
    """Add the full stop and capitals, drops doubled commas, and turns links into index pairs."""
    stop = Link()
    german = [*sentence.german, Token(".", [stop])]
    german = [token for token, after in zip(german, [*german[1:], stop], strict=True) if not _needless(token, after)]
    tree = Node(sentence.english.label, [*sentence.english.children, Leaf(".", ".", [stop])])
    english = leaves(tree)
    for first in (german[0], english[0]):
        first.text = first.text[0].upper() + first.text[1:]
    return Pair(
        pattern=pattern,
        german=tuple(token.text for token in german),
        english=tuple(leaf.text for leaf in english),
        alignment=tuple(
            (i, j)
            for i, token in enumerate(german)
            for j, leaf in enumerate(english)
            if any(link is other for link in token.links for other in leaf.links)
        ),
        tree=_bracket(tree),
    )


def _needless(token: Token, after: object) -> bool:
    """Return a relative clause ends in a comma, save before another comma or the full stop."""
    return token.text == "," and isinstance(after, Token) and after.text in (",", ".")


def make_pair(chooser: Chooser, pattern: Callable[[Chooser], Sentence]) -> Pair:
    """Return one pair of a pattern; tries until the words chosen go together."""
    while True:
        try:
            return finish(pattern(chooser), pattern.__name__)
        except Rejected:
            continue


def _fresh_pairs(chooser: Chooser, count: int) -> list[Pair]:
    """Return pairs of the right length, no German and no English sentence twice."""
    deck = [pattern for pattern, weight in PATTERNS for _ in range(weight)]
    seen: set[str] = set()
    pairs: list[Pair] = []
    while len(pairs) < count:
        pair = make_pair(chooser, chooser.pick(deck))
        lengths_fit = all(MIN_LENGTH <= len(side) <= MAX_LENGTH for side in (pair.german, pair.english))
        texts = {pair.german_text, pair.english_text}
        if lengths_fit and not texts & seen:
            seen |= texts
            pairs.append(pair)
    return pairs


def make_splits(seed: int = SEED) -> dict[str, list[Pair]]:
    """Return the three splits. Held-out sentences use only words that train has often enough."""
    held_out = SIZES["val"] + SIZES["test"]
    pairs = _fresh_pairs(Chooser(seed), SIZES["train"] + 2 * held_out)
    train, candidates = pairs[: SIZES["train"]], pairs[SIZES["train"] :]
    counts = Counter(word for pair in train for word in _word_keys(pair))
    known = [pair for pair in candidates if all(counts[word] >= MIN_TRAIN_COUNT for word in _word_keys(pair))]
    if len(known) < held_out:
        raise RuntimeError(f"only {len(known)} held-out sentences use words that train has often enough")
    return {"train": train, "val": known[: SIZES["val"]], "test": known[SIZES["val"] : held_out]}


def _word_keys(pair: Pair) -> list[tuple[str, str]]:
    return [("de", word.lower()) for word in pair.german] + [("en", word.lower()) for word in pair.english]


def write_splits(splits: dict[str, list[Pair]], folder: Path) -> None:
    """Write every file under a temporary name first, then renames, so that no half-written file is left behind."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits.items():
        lines = {
            "de": [pair.german_text for pair in pairs],
            "en": [pair.english_text for pair in pairs],
            "align": [" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs],
            "tree": [pair.tree for pair in pairs],
        }
        for suffix in SUFFIXES:
            target = folder / f"{split}.{suffix}"
            temporary = target.with_name(target.name + ".tmp")
            temporary.write_bytes(("\n".join(lines[suffix]) + "\n").encode("utf-8"))
            temporary.replace(target)


def statistics(splits: dict[str, list[Pair]]) -> str:
    """Return the figures that data/README.md quotes."""
    lines = []
    for split, pairs in splits.items():
        lines.append(f"{split}: {len(pairs)} pairs, {sum(pair.crossing for pair in pairs) / len(pairs):.1%} crossing")
        for name, side in (("de", "german"), ("en", "english")):
            tokens = [getattr(pair, side) for pair in pairs]
            counts = Counter(word.lower() for sentence in tokens for word in sentence)
            lengths = sorted(map(len, tokens))
            lines.append(
                f"  {name}: {sum(lengths)} tokens, {len(counts)} lower-cased types "
                f"({sum(count >= 2 for count in counts.values())} occur twice or more), "
                f"length {lengths[0]} to {lengths[-1]}, mean {sum(lengths) / len(lengths):.1f}"
            )
    counts = Counter(pair.pattern for pair in splits["train"])
    lines.append(f"patterns in train: {len(counts)}")
    lines += [f"  {pattern.__name__}: {counts[pattern.__name__]}" for pattern, _ in PATTERNS]
    return "\n".join(lines)
