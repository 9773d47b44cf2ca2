"""The sample corpus is right German, right English, rightly aligned, and the same on every machine.

The grammatical checks use paradigm tables written out here by hand, not the generator's own inflection.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import spacy

DATA = Path(__file__).resolve().parents[2] / "data"
SAMPLE = DATA / "sample"
SPLITS = {"train": 8000, "val": 500, "test": 500}
SUFFIXES = ("de", "en", "align", "tree")

# Paradigms by hand: m f n pl, each nom acc dat gen -------------------------------------------------------------------

CASES = ("nom", "acc", "dat", "gen")
PARADIGMS = {
    "def": "der den dem des | die die der der | das das dem des | die die den der",
    "dieser": "dieser diesen diesem dieses | diese diese dieser dieser | dieses dieses diesem dieses"
    " | diese diese diesen dieser",
    "ein": "ein einen einem eines | eine eine einer einer | ein ein einem eines | - - - -",
    "kein": "kein keinen keinem keines | keine keine keiner keiner | kein kein keinem keines"
    " | keine keine keinen keiner",
    "sein": "sein seinen seinem seines | seine seine seiner seiner | sein sein seinem seines"
    " | seine seine seinen seiner",
    "ihr": "ihr ihren ihrem ihres | ihre ihre ihrer ihrer | ihr ihr ihrem ihres | ihre ihre ihren ihrer",
    "viele": "- - - - | - - - - | - - - - | viele viele vielen vieler",
    "einige": "- - - - | - - - - | - - - - | einige einige einigen einiger",
    "mehrere": "- - - - | - - - - | - - - - | mehrere mehrere mehreren mehrerer",
    "number": "- - - - | - - - - | - - - - | zwei zwei zwei zwei",
}
ENDINGS = {
    "weak": "e en en en | e e en en | e e en en | en en en en",
    "mixed": "er en en en | e e en en | es es en en | en en en en",
    "strong": "er en em en | e e er er | es es em en | e e en er",
}
DECLENSION = {"def": "weak", "dieser": "weak", "ein": "mixed", "kein": "mixed", "sein": "mixed", "ihr": "mixed"}
CONTRACTED = {"im": "dem", "ins": "das", "am": "dem", "ans": "das", "zum": "dem", "zur": "der", "vom": "dem"}
DATIVE = ("mit", "von", "zu", "aus", "nach", "im", "am", "zum", "zur", "vom")
GOVERNS = {word: {"dat"} for word in DATIVE}
GOVERNS |= {word: {"acc"} for word in ("durch", "um", "ins")}
GOVERNS |= {word: {"acc", "dat"} for word in ("in", "an", "auf", "über", "unter", "vor", "hinter", "neben")}
TWO_WAY = {"in", "an", "auf", "über", "unter", "vor", "hinter", "neben", "im", "am", "ins", "ans"}
RESTING = {"schläft", "sitzt", "liegt", "steht", "wohnt", "arbeitet", "wartet", "spielt", "tanzt", "grast", "badet"}
HEADING = {"legt", "stellt", "springt", "klettert"}
TIME_NOUNS = {"Abend": "m", "Morgen": "m", "Nachmittag": "m", "Sonntag": "m", "Wochenende": "n", "Sommer": "m"}
TIME_NOUNS |= {"Tag": "m", "Essen": "n", "Arbeit": "f", "Sonne": "f", "Wetter": "n", "Musik": "f"}
AUXILIARIES = {"ist": "sg", "sind": "pl", "hat": "sg", "haben": "pl", "wird": "sg", "werden": "pl", "will": "sg"}
AUXILIARIES |= {"kann": "sg", "muss": "sg", "darf": "sg", "möchte": "sg", "soll": "sg", "wollen": "pl", "können": "pl"}
AUXILIARIES |= {"müssen": "pl", "dürfen": "pl", "möchten": "pl", "sollen": "pl", "regnet": "sg", "schneit": "sg"}
AUXILIARIES |= {"scheint": "sg"}
SUBORDINATORS = {"weil", "obwohl", "während", "dass", "wenn"}
RELATIVE_PRONOUNS = {"der", "die", "das", "den", "dem", "denen"}


def columns(table):
    """{(gender, case): cell} of a paradigm line."""
    rows = [row.split() for row in table.split(" | ")]
    return {
        (gender, case): cell
        for gender, row in zip(("m", "f", "n", "pl"), rows, strict=True)
        for case, cell in zip(CASES, row, strict=True)
    }


PARADIGM_CELLS = {name: columns(table) for name, table in PARADIGMS.items()}
ENDING_CELLS = {name: columns(table) for name, table in ENDINGS.items()}


class Corpus:
    """The committed files and the readings that the lexicon's words have by the tables above."""

    def __init__(self, grammar):
        self.lines = {
            (split, suffix): (SAMPLE / f"{split}.{suffix}").read_text(encoding="utf-8").splitlines()
            for split in SPLITS
            for suffix in SUFFIXES
        }
        self.tokens = {
            key: [re.findall(r"\w+|[.,]", line) for line in lines]
            for key, lines in self.lines.items()
            if key[1] in ("de", "en")
        }
        self.german = [tokens for split in SPLITS for tokens in self.tokens[split, "de"]]
        self.alignments = {
            split: [[tuple(map(int, pair.split("-"))) for pair in line.split()] for line in self.lines[split, "align"]]
            for split in SPLITS
        }
        self.noun_readings = noun_readings(grammar.nouns.NOUNS.values())
        self.adjectives = {}
        for entry in grammar.nouns.ADJECTIVES.values():
            for ending in ("e", "en", "em", "er", "es"):
                self.adjectives[entry.stem + ending] = ending
        self.finite = dict(AUXILIARIES)
        self.joined = dict(AUXILIARIES)  # finite forms as they stand at the end: with their prefix
        self.prefixes = set()
        for verb in grammar.verbs.VERBS.values():
            self.finite |= {verb.third: "sg", verb.infinitive: "pl"}
            self.joined |= {verb.prefix + verb.third: "sg", verb.prefix + verb.infinitive: "pl"}
            self.prefixes |= {verb.prefix} - {""}

    def noun_phrases(self, tokens):
        """Every noun phrase: its first index, the noun's index, and the (gender, case) readings all words allow."""
        for end, word in enumerate(tokens):
            if word not in self.noun_readings or self.is_adjective_before_noun(tokens, end):
                continue
            start, readings = end, set(self.noun_readings[word])
            ending = ""
            if start and self.adjective_form(tokens, start - 1) in self.adjectives:
                start -= 1
                ending = self.adjectives[tokens[start].lower()]
            name, cells = ("", None)
            if start and not self.is_relative_pronoun(tokens, start - 1):
                name, cells = self.determiner(tokens[start - 1])
            if cells is not None:
                start -= 1
                readings &= cells
            if ending:
                table = ENDING_CELLS[DECLENSION.get(name, "strong")]
                readings &= {cell for cell, expected in table.items() if expected == ending}
            yield start, end, readings

    def adjective_form(self, tokens, index):
        """The word as an adjective is spelt: a capital later in the sentence belongs to a noun (zwei Jungen)."""
        return tokens[index] if index else tokens[index].lower()

    def is_adjective_before_noun(self, tokens, index):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        return self.adjective_form(tokens, index) in self.adjectives and following in self.noun_readings

    def is_relative_pronoun(self, tokens, index):
        """No noun phrase here follows a comma directly: der, die, das there, or after ", in", are pronouns."""
        if tokens[index].lower() not in RELATIVE_PRONOUNS:
            return False
        before = tokens[:index]
        return before[-1:] == [","] or (before[-2:-1] == [","] and before[-1] in GOVERNS and before[-1] != "um")

    def determiner(self, word):
        word = word.lower()
        word = CONTRACTED.get(word, word)
        word = "zwei" if word in ("drei", "vier", "fünf") else word
        for name, table in PARADIGM_CELLS.items():
            cells = {cell for cell, form in table.items() if form == word}
            if cells:
                return name, cells
        return "", None

    def governed(self, tokens):
        """(preposition, readings) for every prepositional phrase with a noun of the lexicon."""
        for start, _, readings in self.noun_phrases(tokens):
            first = tokens[start].lower()
            if first in CONTRACTED:
                yield first, readings
            elif start and tokens[start - 1].lower() in GOVERNS:
                yield tokens[start - 1].lower(), readings


def noun_readings(nouns):
    readings = {}

    def add(form, gender, *cases):
        readings.setdefault(form, set()).update((gender, case) for case in cases)

    for noun in nouns:
        add(noun.lemma, noun.gender, "nom")
        if noun.weak:
            add(noun.plural, "m", "acc", "dat", "gen")
        else:
            add(noun.lemma, noun.gender, "acc", "dat")
            genitives = (noun.lemma,) if noun.gender == "f" else (noun.lemma + "s", noun.lemma + "es")
            for form in genitives:
                add(form, noun.gender, "gen")
        if noun.plural:
            add(noun.plural, "pl", "nom", "acc", "gen")
            add(noun.plural if noun.plural[-1] in "ns" else noun.plural + "n", "pl", "dat")
    for word, gender in TIME_NOUNS.items():
        add(word, gender, "nom", "acc", "dat")
    return readings


@pytest.fixture(scope="module")
def grammar():
    """The generator's package, imported from data/."""
    sys.path.insert(0, str(DATA))
    try:
        import sample_grammar
        from sample_grammar import clauses, frames, generate, german, nouns, phrases, verbs  # noqa: F401
    finally:
        sys.path.remove(str(DATA))
    return sample_grammar


@pytest.fixture(scope="module")
def corpus(grammar):
    return Corpus(grammar)


@pytest.fixture(scope="module")
def splits(grammar):
    return grammar.generate.make_splits()


# Files ---------------------------------------------------------------------------------------------------------------


def test_every_file_has_its_number_of_lines_and_a_final_newline():
    for split, size in SPLITS.items():
        for suffix in SUFFIXES:
            content = (SAMPLE / f"{split}.{suffix}").read_bytes()
            assert content.endswith(b"\n") and b"\r" not in content
            assert content.count(b"\n") == size, f"{split}.{suffix}"


@pytest.mark.slow
def test_regenerating_gives_the_committed_bytes(tmp_path):
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(DATA / "generate_sample.py"), "--out", str(tmp_path)]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{s}.{x}" for s in SPLITS for x in SUFFIXES)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (SAMPLE / path.name).read_bytes(), path.name


@pytest.mark.slow
def test_sentences_and_vocabulary_have_the_sizes_that_they_should_and_no_sentence_occurs_twice(corpus):
    for suffix in ("de", "en"):
        lines = [line for split in SPLITS for line in corpus.lines[split, suffix]]
        assert len(set(lines)) == len(lines)
        sentences = [tokens for split in SPLITS for tokens in corpus.tokens[split, suffix]]
        assert len({word.lower() for tokens in sentences for word in tokens}) >= 300
        assert all(4 <= len(tokens) <= 25 for tokens in sentences)


@pytest.mark.slow
def test_held_out_words_occur_five_times_in_train(corpus):
    for suffix in ("de", "en"):
        counts = Counter(word.lower() for tokens in corpus.tokens["train", suffix] for word in tokens)
        for split in ("val", "test"):
            words = {word.lower() for tokens in corpus.tokens[split, suffix] for word in tokens}
            assert not [word for word in words if counts[word] < 5]


@pytest.mark.slow
def test_many_patterns_in_every_split(splits):
    for split, pairs in splits.items():
        assert len({pair.pattern for pair in pairs}) >= 12, split


@pytest.mark.slow
def test_spacy_finds_the_tokens_that_the_alignment_counts(corpus, splits):
    for language, side in {"de": "german", "en": "english"}.items():
        tokenizer = spacy.blank(language).tokenizer
        for split in SPLITS:
            for line, pair in zip(corpus.lines[split, language], splits[split], strict=True):
                assert tuple(token.text for token in tokenizer(line)) == getattr(pair, side)


@pytest.mark.slow
def test_sentences_begin_with_a_capital_and_end_with_a_full_stop(corpus):
    for split in SPLITS:
        for suffix in ("de", "en"):
            for line in corpus.lines[split, suffix]:
                assert re.fullmatch(r"[A-ZÄÖÜ][^.]*[^ .,]\.", line) and "  " not in line and " ," not in line, line


# Alignments and trees ------------------------------------------------------------------------------------------------


def test_alignment_indices_are_in_range_sorted_and_unique(corpus):
    for split in SPLITS:
        rows = zip(corpus.alignments[split], corpus.tokens[split, "de"], corpus.tokens[split, "en"], strict=True)
        for links, german, english in rows:
            assert links == sorted(set(links))
            assert all(0 <= i < len(german) and 0 <= j < len(english) for i, j in links)


def test_every_word_is_aligned(corpus):
    for split in SPLITS:
        rows = zip(corpus.alignments[split], corpus.tokens[split, "de"], corpus.tokens[split, "en"], strict=True)
        for links, german, english in rows:
            assert {i for i, word in enumerate(german) if word != ","} <= {i for i, _ in links}, german
            assert {j for j, word in enumerate(english) if word != ","} <= {j for _, j in links}, english


@pytest.mark.slow
def test_words_align_with_their_translation(corpus):
    meaning = {"und": "and", "nicht": "not", "zwei": "two", "drei": "three", "vier": "four", "weil": "because"}
    meaning |= {"während": "while", "er": "he", "hund": "dog", "frau": "woman", "roten": "red", "gegessen": "eaten"}
    meaning |= {"hebt": "is picking up", "läuft": "is running runs", "aufhebt": "is picking up", "im": "in the on"}
    meaning |= {
        "großvater": "grandfather",
        "viele": "many",
        "schwarzer": "black",
        "obwohl": "although",
        "zur": "to the",
    }
    seen = Counter()
    for split in SPLITS:
        rows = zip(corpus.alignments[split], corpus.tokens[split, "de"], corpus.tokens[split, "en"], strict=True)
        for links, german, english in rows:
            for i, j in links:
                word = german[i].lower()
                if word in meaning:
                    assert english[j].lower() in meaning[word].split(), (german, english, word)
                    seen[word] += 1
    assert all(seen[word] >= 3 for word in meaning), seen


@pytest.mark.slow
def test_word_order_differs_in_many_pairs(corpus):
    links = [alignment for split in SPLITS for alignment in corpus.alignments[split]]
    crossing = sum(any(i < k and j > m for i, j in pairs for k, m in pairs) for pairs in links)
    assert crossing / len(links) >= 0.4


def test_tree_leaves_are_the_english_tokens(corpus):
    for split in SPLITS:
        for line, tokens in zip(corpus.lines[split, "tree"], corpus.tokens[split, "en"], strict=True):
            assert re.findall(r"\(\S+ ([^\s()]+)\)", line) == tokens
            depths = [line[: end + 1].count("(") - line[: end + 1].count(")") for end in range(len(line))]
            assert line.startswith("(S ") and depths[-1] == 0 and min(depths[:-1]) > 0


# German --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_determiner_adjective_and_noun_agree(corpus):
    checked = 0
    for tokens in corpus.german:
        for start, end, readings in corpus.noun_phrases(tokens):
            assert readings, f"{' '.join(tokens[start : end + 1])!r} in {' '.join(tokens)!r}"
            checked += 1
    assert checked > 15000


@pytest.mark.slow
def test_prepositions_govern_their_case(corpus):
    seen = Counter()
    for tokens in corpus.german:
        for preposition, readings in corpus.governed(tokens):
            assert {case for _, case in readings} & GOVERNS[preposition], (preposition, " ".join(tokens))
            seen[preposition] += 1
    assert not set(GOVERNS) - set(seen)


@pytest.mark.slow
def test_two_way_prepositions_take_the_dative_at_rest_and_the_accusative_on_the_way(corpus):
    resting = heading = 0
    for tokens in corpus.german:
        verbs = {word for word in tokens if word in corpus.finite}
        for preposition, readings in corpus.governed(tokens):
            cases = {case for _, case in readings}
            if preposition not in TWO_WAY or "," in tokens or {"ein", "zu"} & {tokens[-2]}:
                continue
            if len(verbs) == 1 and verbs <= RESTING:
                assert "dat" in cases, " ".join(tokens)
                resting += 1
            if len(verbs) == 1 and verbs <= HEADING and preposition in ("auf", "in", "ins", "ans"):
                assert "acc" in cases, " ".join(tokens)
                heading += 1
    assert resting > 300 and heading > 100


def clauses_of(tokens):
    """The stretches between commas, without the full stop."""
    parts = [[]]
    for word in tokens[:-1]:
        if word == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def opens_subordinate(part):
    first, second = part[0].lower(), part[1].lower() if len(part) > 1 else ""
    return first in SUBORDINATORS or first in RELATIVE_PRONOUNS or (first in GOVERNS and second in RELATIVE_PRONOUNS)


def main_and_subordinate(tokens):
    """The main clause (its pieces put together again) and the subordinate clauses."""
    parts = clauses_of(tokens)
    main, subordinate = [], []
    for index, part in enumerate(parts):
        is_first = index == 0 and part[0] != "Wenn"
        if not is_first and part[0] == "um":
            continue
        (subordinate if not is_first and opens_subordinate(part) else main).append(part)
    return main, subordinate


@pytest.mark.slow
def test_subordinate_clauses_end_in_their_finite_verb(corpus):
    checked = 0
    for tokens in corpus.german:
        for part in main_and_subordinate(tokens)[1]:
            assert part[-1] in corpus.joined, " ".join(tokens)
            checked += 1
    assert checked > 1500


def constituent_shape(corpus, words):
    shape = ""
    for index, word in enumerate(words):
        lower = word.lower()
        if word in corpus.noun_readings and not corpus.is_adjective_before_noun(words, index):
            shape += "N"
        elif lower in CONTRACTED or (lower in GOVERNS and lower not in CONTRACTED):
            shape += "P"
        elif corpus.determiner(word)[1] is not None or lower == "jeden":
            shape += "D"
        elif lower in corpus.adjectives or lower == "sonnigen":
            shape += "A"
        elif lower == "und":
            shape += "U"
        elif lower in ("heute", "jetzt", "sonntags"):
            shape += "T"
        else:
            shape += "?"
    return shape


@pytest.mark.slow
def test_the_finite_verb_is_the_second_constituent_of_a_main_clause(corpus):
    phrase = "P?D?A?N"
    one_constituent = re.compile(f"T|{phrase}({phrase})?|{phrase}UD?A?N")
    for tokens in corpus.german:
        main, _ = main_and_subordinate(tokens)
        words = [word for part in main for word in part]
        position = next((index for index, word in enumerate(words) if word in corpus.finite), None)
        assert position is not None, " ".join(tokens)
        if tokens[0] == "Wenn":  # the whole wenn clause stands in front
            assert position == 0, " ".join(tokens)
            continue
        before = words[:position]
        assert one_constituent.fullmatch(constituent_shape(corpus, before)), " ".join(tokens)


@pytest.mark.slow
def test_subject_and_verb_agree_in_number(corpus):
    """Where no phrase is joined by und, some phrase can be the nominative that the finite verb's number asks for."""
    checked = 0
    for tokens in corpus.german:
        words = [word for part in main_and_subordinate(tokens)[0] for word in part]
        verb = next(word for word in words if word in corpus.finite)
        if "und" in words or "gibt" in words:
            continue
        phrases = list(corpus.noun_phrases(words))
        numbers = {
            "pl" if gender == "pl" else "sg" for _, _, cells in phrases for gender, case in cells if case == "nom"
        }
        assert corpus.finite[verb] in numbers, " ".join(tokens)
        if words.index(verb) and len(phrases) == 1:
            checked += 1
    assert checked > 200


@pytest.mark.slow
def test_separable_prefix_ends_its_clause(corpus):
    checked = 0
    for tokens in corpus.german:
        for index, word in enumerate(tokens):
            starts_phrase = any(start == index + 1 for start, _, _ in corpus.noun_phrases(tokens))
            relative = tokens[index + 1].lower() in RELATIVE_PRONOUNS if index + 1 < len(tokens) else False
            infinitive = word == "zu" and tokens[index + 1] in corpus.finite
            is_article = any(start == index for start, _, _ in corpus.noun_phrases(tokens))
            elsewhere = starts_phrase or relative or infinitive or is_article
            if word in corpus.prefixes and not elsewhere:
                assert tokens[index + 1] in (".", ","), " ".join(tokens)
                checked += 1
    assert checked > 300


@pytest.mark.slow
def test_perfect_and_modal_bracket(corpus, grammar):
    """hat, ist, wird and the modals have their participle or infinitive at the end of the clause."""
    participles = {verb.participle for verb in grammar.verbs.VERBS.values()}
    infinitives = {verb.prefix + verb.infinitive for verb in grammar.verbs.VERBS.values()}
    seen = Counter()
    for tokens in corpus.german:
        for part in main_and_subordinate(tokens)[0]:
            for modal in set(part) & {"hat", "haben", "wird", "werden"}:
                assert part[-1] in participles, " ".join(tokens)
                seen[modal] += 1
            for modal in set(part) & {"will", "kann", "muss", "darf", "möchte", "soll", "wollen", "können"}:
                assert part[-1] in infinitives, " ".join(tokens)
                seen[modal] += 1
    assert seen["hat"] > 100 and seen["wird"] > 100 and seen["will"] > 50


# English -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_and_an(corpus):
    for split in SPLITS:
        for tokens in corpus.tokens[split, "en"]:
            for word, following in pairwise(tokens):
                if word.lower() in ("a", "an"):
                    assert (word.lower() == "an") == (following[0] in "aeiou"), " ".join(tokens)


@pytest.mark.slow
def test_english_progressive_forms(grammar):
    gerunds = {verb.base: verb.gerund for verb in grammar.verbs.VERBS.values()}
    expected = "sit sitting,lie lying,run running,write writing,swim swimming,put putting,tidy tidying,hug hugging,"
    expected += "dance dancing,see seeing,cry crying,throw throwing,shop shopping,place placing"
    for pair in expected.split(","):
        base, gerund = pair.split()
        assert gerunds[base] == gerund


@pytest.mark.slow
def test_one_german_sentence_has_one_translation(corpus):
    """The English is a function of the German: the same German words in another sentence get the same English."""
    seen = {}
    for split in SPLITS:
        for german, english in zip(corpus.lines[split, "de"], corpus.lines[split, "en"], strict=True):
            assert seen.setdefault(german.lower(), english) == english


# Morphology against paradigms written by hand ------------------------------------------------------------------------

FULL_PARADIGMS = [
    ("Hund", "sg", "der", "klein", "der kleine Hund, den kleinen Hund, dem kleinen Hund, des kleinen Hunds"),
    ("Hund", "pl", "der", "klein", "die kleinen Hunde, die kleinen Hunde, den kleinen Hunden, der kleinen Hunde"),
    ("Hund", "sg", "ein", "klein", "ein kleiner Hund, einen kleinen Hund, einem kleinen Hund, eines kleinen Hunds"),
    ("Frau", "sg", "ein", "alt", "eine alte Frau, eine alte Frau, einer alten Frau, einer alten Frau"),
    ("Frau", "sg", "der", "müde", "die müde Frau, die müde Frau, der müden Frau, der müden Frau"),
    ("Haus", "sg", "kein", "alt", "kein altes Haus, kein altes Haus, keinem alten Haus, keines alten Hauses"),
    ("Haus", "pl", "kein", "alt", "keine alten Häuser, keine alten Häuser, keinen alten Häusern, keiner alten Häuser"),
    ("Haus", "sg", "der", "", "das Haus, das Haus, dem Haus, des Hauses"),
    ("Junge", "sg", "der", "", "der Junge, den Jungen, dem Jungen, des Jungen"),
    (
        "Elefant",
        "sg",
        "ein",
        "groß",
        "ein großer Elefant, einen großen Elefanten, einem großen Elefanten, eines großen Elefanten",
    ),
    ("Kind", "pl", "zwei", "müde", "zwei müde Kinder, zwei müde Kinder, zwei müden Kindern, zwei müder Kinder"),
    ("Auto", "pl", "viele", "rot", "viele rote Autos, viele rote Autos, vielen roten Autos, vieler roter Autos"),
    (
        "Tochter",
        "sg",
        "ihr",
        "klein",
        "ihre kleine Tochter, ihre kleine Tochter, ihrer kleinen Tochter, ihrer kleinen Tochter",
    ),
    ("Wasser", "sg", "", "kalt", "kaltes Wasser, kaltes Wasser, kaltem Wasser, kalten Wassers"),
    ("Wald", "sg", "dieser", "dunkel", "dieser dunkle Wald, diesen dunklen Wald, diesem dunklen Wald"),
    ("Buch", "sg", "sein", "neu", "sein neues Buch, sein neues Buch, seinem neuen Buch, seines neuen Buchs"),
]


# Gender and plural of every noun, checked by a reader; "-" means that only the singular is used.
NOUN_LIST = """
der Mann Männer; der Vater Väter; der Großvater Großväter; der Lehrer Lehrer; der Bauer Bauern
der Polizist Polizisten; der Student Studenten; der Arzt Ärzte; der Maler Maler; der Gärtner Gärtner
der Nachbar Nachbarn; der Arbeiter Arbeiter; der Tourist Touristen; der Koch Köche; die Frau Frauen
die Mutter Mütter; die Großmutter Großmütter; die Lehrerin Lehrerinnen; die Ärztin Ärztinnen
die Sängerin Sängerinnen; die Tänzerin Tänzerinnen; der Junge Jungen; das Mädchen Mädchen; das Kind Kinder
das Baby Babys; der Sohn Söhne; der Bruder Brüder; der Freund Freunde; die Tochter Töchter
die Schwester Schwestern; der Hund Hunde; die Katze Katzen; das Pferd Pferde; die Kuh Kühe; das Schaf Schafe
die Ziege Ziegen; der Esel Esel; der Vogel Vögel; die Ente Enten; der Affe Affen; der Bär Bären
der Elefant Elefanten; der Hase Hasen; der Fisch Fische; das Buch Bücher; die Zeitung Zeitungen; der Brief Briefe
der Apfel Äpfel; die Banane Bananen; die Kirsche Kirschen; der Kuchen Kuchen; das Brötchen Brötchen
das Brot Brote; die Suppe Suppen; die Pizza Pizzas; das Eis -; der Kaffee -; der Tee -; das Wasser -; die Milch -
der Saft -; der Ball Bälle; die Puppe Puppen; der Stein Steine; der Stock Stöcke; der Hut Hüte; die Mütze Mützen
das Hemd Hemden; das Kleid Kleider; die Jacke Jacken; der Mantel Mäntel; der Schal Schals; der Helm Helme
der Schuh Schuhe; der Stiefel Stiefel; der Handschuh Handschuhe; das Haar Haare; die Kiste Kisten; der Korb Körbe
die Tasche Taschen; der Koffer Koffer; der Eimer Eimer; der Rucksack Rucksäcke; die Leiter Leitern
die Gitarre Gitarren; die Flöte Flöten; die Geige Geigen; das Auto Autos; das Fahrrad Fahrräder; der Bus Busse
der Zug Züge; das Boot Boote; der Traktor Traktoren; der Wagen Wagen; der Schlitten Schlitten; der Tisch Tische
der Stuhl Stühle; das Sofa Sofas; das Bett Betten; die Lampe Lampen; der Schrank Schränke; das Regal Regale
die Vase Vasen; der Teppich Teppiche; das Bild Bilder; der Spiegel Spiegel; die Kerze Kerzen; der Teller Teller
die Tasse Tassen; die Blume Blumen; der Schlüssel Schlüssel; das Geschenk Geschenke; das Haus Häuser
die Kirche Kirchen; die Schule Schulen; der Turm Türme; das Dach Dächer; die Tür Türen; das Fenster Fenster
die Mauer Mauern; der Zaun Zäune; die Brücke Brücken; die Hütte Hütten; die Sandburg Sandburgen; der Park Parks
der Garten Gärten; die Wiese Wiesen; der Wald Wälder; das Feld Felder; der See Seen; der Fluss Flüsse
der Strand Strände; der Baum Bäume; der Felsen Felsen; die Insel Inseln; der Berg Berge; der Schnee -; der Sand -
das Gras -; die Straße Straßen; der Platz Plätze; der Markt Märkte; der Spielplatz Spielplätze; der Hof Höfe
die Stadt Städte; das Dorf Dörfer; der Bahnhof Bahnhöfe; die Bank Bänke; das Zelt Zelte; die Küche Küchen
das Zimmer Zimmer; das Restaurant Restaurants; der Laden Läden; das Büro Büros; der Stall Ställe
das Museum Museen; die Bibliothek Bibliotheken; der Boden Böden; die Wand Wände
"""
N_DECLENSION = "Bauer Polizist Student Nachbar Tourist Junge Affe Bär Elefant Hase"
VERB_LIST = """
schlafen schläft geschlafen; sitzen sitzt gesessen; stehen steht gestanden; liegen liegt gelegen; lesen liest gelesen
essen isst gegessen; trinken trinkt getrunken; werfen wirft geworfen; fangen fängt gefangen; halten hält gehalten
tragen trägt getragen; waschen wäscht gewaschen; schneiden schneidet geschnitten; ziehen zieht gezogen
laufen läuft gelaufen; gehen geht gegangen; springen springt gesprungen; schwimmen schwimmt geschwommen
fahren fährt gefahren; fliegen fliegt geflogen; geben gibt gegeben; helfen hilft geholfen; sehen sieht gesehen
aufheben hebt aufgehoben; anziehen zieht angezogen; einschlafen schläft eingeschlafen; wegwerfen wirft weggeworfen
vorlesen liest vorgelesen; mitnehmen nimmt mitgenommen; reparieren repariert repariert; gießen gießt gegossen
"""


@pytest.mark.slow
def test_gender_plural_and_declension_of_every_noun(grammar):
    articles = {"m": "der", "f": "die", "n": "das"}
    nouns = grammar.nouns.NOUNS.values()
    listed = {entry.strip() for entry in NOUN_LIST.replace("\n", ";").split(";") if entry.strip()}
    assert {f"{articles[noun.gender]} {noun.lemma} {noun.plural or '-'}" for noun in nouns} == listed
    assert {noun.lemma for noun in nouns if noun.weak} == set(N_DECLENSION.split())


@pytest.mark.slow
def test_forms_of_strong_verbs(grammar):
    for entry in VERB_LIST.replace("\n", ";").split(";"):
        if entry.strip():
            infinitive, third, participle = entry.split()
            verb = grammar.verbs.VERBS[infinitive]
            assert (verb.prefix + verb.infinitive, verb.third, verb.participle) == (infinitive, third, participle)


@pytest.mark.slow
def test_noun_phrase_paradigms(grammar):
    for lemma, number, determiner, adjective, expected in FULL_PARADIGMS:
        phrase = grammar.phrases.NounPhrase(lemma, determiner, number, adjective)
        forms = expected.split(", ")
        assert [" ".join(token.text for token in phrase.german(case)) for case in CASES[: len(forms)]] == forms


@pytest.mark.slow
def test_contractions_and_zu_infinitives(grammar):
    german, verbs = grammar.german, grammar.verbs.VERBS
    assert [german.contract(*pair.split()) for pair in ("in dem", "an das", "zu der", "von dem", "auf dem")] == [
        "im",
        "ans",
        "zur",
        "vom",
        None,
    ]
    assert german.zu_infinitive(verbs["aufheben"]) == ["aufzuheben"]
    assert german.zu_infinitive(verbs["lesen"]) == ["zu", "lesen"]


# Whole sentences, translated and aligned by hand --------------------------------------------------------------------


def simple_sentences(grammar):
    """Builds the sentences of BY_HAND from their words."""
    phrase, pp = grammar.phrases.NounPhrase, grammar.phrases.PrepositionalPhrase
    clause, part, verbs = grammar.clauses.Clause, grammar.clauses.Part, grammar.verbs.VERBS
    sentence, token, link = grammar.clauses.Sentence, grammar.phrases.Token, grammar.phrases.Link

    def plain(built, front=None):
        return sentence(built.main(front), built.english())

    yield plain(
        clause(
            phrase("Hund", "ein", adjective="klein"),
            verbs["laufen"],
            [part("direction", pp("über", "acc", phrase("Wiese", adjective="nass"), "across"))],
        )
    )
    yield plain(clause(phrase("Mann"), verbs["aufheben"], [part("object", phrase("Ball"), "acc")]))
    built = clause(
        phrase("Kind", "zwei", "pl"), verbs["spielen"], [part("place", pp("in", "dat", phrase("Park"), "in"))]
    )
    yield plain(built, built.parts[0])
    yield plain(clause(phrase("Junge"), verbs["essen"], [part("object", phrase("Apfel", "ein"), "acc")], "perfect"))
    yield plain(clause(phrase("Frau"), verbs["aufheben"], [part("object", phrase("Hut", "kein"), "acc")]))
    agent = pp("von", "dat", phrase("Pferd", "zwei", "pl"), "by")
    yield plain(clause(phrase("Wagen"), verbs["ziehen"], [part("agent", agent)], "passive"))
    inner = clause(phrase("Hund"), verbs["aufheben"], [part("object", phrase("Stock"), "acc")])
    outer, because = clause(phrase("Mädchen", "ein"), verbs["lachen"]), link()
    tree = outer.english()
    leaf, node = grammar.phrases.Leaf, grammar.phrases.Node
    tree.children.append(node("SBAR", [leaf("IN", "because", [because]), inner.english()]))
    yield sentence([*outer.main(), token(",", []), *inner.subordinate([token("weil", [because])])], tree)
    ball = phrase("Ball")
    thrower = clause(phrase("Junge"), verbs["werfen"])
    ball.after.append(grammar.clauses.RelativeClause(ball, thrower, "acc"))
    yield plain(clause(phrase("Katze"), verbs["suchen"], [part("object", ball, "acc")]))


BY_HAND = [
    (
        "Ein kleiner Hund läuft über die nasse Wiese.",
        "A small dog is running across the wet meadow.",
        "0-0 1-1 2-2 3-3 3-4 4-5 5-6 6-7 7-8 8-9",
    ),
    ("Der Mann hebt den Ball auf.", "The man is picking up the ball.", "0-0 1-1 2-2 2-3 2-4 3-5 4-6 5-2 5-3 5-4 6-7"),
    ("Im Park spielen zwei Kinder.", "Two children are playing in the park.", "0-4 0-5 1-6 2-2 2-3 3-0 4-1 5-7"),
    ("Der Junge hat einen Apfel gegessen.", "The boy has eaten an apple.", "0-0 1-1 2-2 3-4 4-5 5-3 6-6"),
    (
        "Die Frau hebt keinen Hut auf.",
        "The woman is not picking up a hat.",
        "0-0 1-1 2-2 2-4 2-5 3-3 3-6 4-7 5-2 5-4 5-5 6-8",
    ),
    (
        "Der Wagen wird von zwei Pferden gezogen.",
        "The cart is being pulled by two horses.",
        "0-0 1-1 2-2 2-3 3-5 4-6 5-7 6-4 7-8",
    ),
    (
        "Ein Mädchen lacht, weil der Hund den Stock aufhebt.",
        "A girl is laughing because the dog is picking up the stick.",
        "0-0 1-1 2-2 2-3 4-4 5-5 6-6 7-10 8-11 9-7 9-8 9-9 10-12",
    ),
    (
        "Die Katze sucht den Ball, den der Junge wirft.",
        "The cat is looking for the ball that the boy is throwing.",
        "0-0 1-1 2-2 2-3 2-4 3-5 4-6 6-7 7-8 8-9 9-10 9-11 10-12",
    ),
]


@pytest.mark.slow
def test_sentences_written_by_hand(grammar):
    pairs = [grammar.generate.finish(sentence, "by hand") for sentence in simple_sentences(grammar)]
    written = [(p.german_text, p.english_text, " ".join(f"{i}-{j}" for i, j in p.alignment)) for p in pairs]
    assert written == BY_HAND
