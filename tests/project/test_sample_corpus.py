"""The sample corpus and the novel: the bytes that everybody has, whose they are, and what the notebooks rely on.

The bytes are frozen, since stored outputs come from them. Whoever changes the grammar changes ``SHA256`` with it, and
has the sentences read by somebody who speaks both languages.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import spacy
from conftest import multi30k

DATA = Path(__file__).resolve().parents[2] / "data"
SIZES = {"train": 8000, "val": 500, "test": 500}
SHA256 = {
    "sample/train.de": "924326ecc8ff78e1dc18f069601f392f62c59f397ac7d66654bdfc0a64e7d483",
    "sample/train.en": "c0f5159d301226b66af486ec712c77af40f9221aa633d6b2fe0ae7a68e2abbdc",
    "sample/train.align": "3b880a293c15155c0a3a1ea357bf9bb73a1f2652a970a7d9588b6b8b465e52ec",
    "sample/train.tree": "0ac0c6404c23d71e0bcb62fbb8e49e220a67c27aa9064ec4ea1d6ae92714d3fa",
    "sample/val.de": "ef436300247f8fc5a7e2958dd674d6bb56121de2865e2494fceb5d909bd3cae7",
    "sample/val.en": "99585acbcf91d40bcad5794ad825859794ca931b958288d7205ab443138304ec",
    "sample/val.align": "3b2530a4629a94dd21272571c2a3f9fe730a58c7e1eb9796778aee63739ff3df",
    "sample/val.tree": "06686cbaf97fe7621fd3ad7bdcf36ead50c2603a7ef3831394501a770042079d",
    "sample/test.de": "90dcded4e849c830ab4e6fa534c4facc2bd73fb8f58d150ffd9a7a1d91309c41",
    "sample/test.en": "6da6bd164442598147e284788de9e28fcc5e8b7ac2a6494a1ce4badbc214ae1b",
    "sample/test.align": "d6ae7b34cbb1954182a539837148910155aef2ffd7416ac59958bbb4f3ca515e",
    "sample/test.tree": "4e46f8992ab9ae57d3cde14a2e3379c8246e2a36142804c1d2264df7f0fefa6e",
    "texts/pride-and-prejudice.txt": "0d621c9280c49a47b2bd443331d8342876826043cbdcb6eb11f10c8c0f604b20",
}


def lines_of(split, suffix):
    return (DATA / "sample" / f"{split}.{suffix}").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def tokens():
    """What spaCy's rules cut each sentence into, by split and language: what alignments and trees count."""
    cut = {language: spacy.blank(language).tokenizer for language in ("de", "en")}
    return {
        (split, language): [[token.text for token in cut[language](line)] for line in lines_of(split, language)]
        for split in SIZES
        for language in cut
    }


def test_the_files_are_the_ones_that_stored_outputs_come_from():
    stored = [path for folder in ("sample", "texts") for path in (DATA / folder).glob("[!.]*")]
    assert {path.relative_to(DATA).as_posix() for path in stored} == SHA256.keys()
    for name, expected in SHA256.items():
        assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == expected, name


@pytest.mark.slow
def test_the_generator_writes_the_same_bytes_on_every_machine(tmp_path):
    """Whatever the order that Python's sets have there."""
    command = [sys.executable, str(DATA / "generate_sample.py"), "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    written = {f"sample/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    assert written == {name: digest for name, digest in SHA256.items() if name.startswith("sample/")}


def test_no_sentence_occurs_twice_within_a_split_or_across_splits():
    for language in ("de", "en"):
        splits = {split: lines_of(split, language) for split in SIZES}
        assert {split: len(lines) for split, lines in splits.items()} == SIZES
        assert len({line for lines in splits.values() for line in lines}) == sum(SIZES.values())


@pytest.mark.slow
def test_no_sentence_is_one_of_multi30ks():
    """Multi30k's are for research alone; these are under the MIT licence, and in the repository and in the wheel."""

    def letters(sentence):
        return re.sub(r"\W+", " ", sentence.lower()).strip()

    theirs = [pair for split in ("train", "val", "test_2016_flickr") for pair in multi30k(split)]
    for side, language in enumerate(("de", "en")):
        ours = {letters(line) for split in SIZES for line in lines_of(split, language)}
        assert not ours & {letters(pair[side]) for pair in theirs}


def test_every_split_has_an_alignment_whose_links_fit_its_tokens(tokens):
    """Notebook 08 measures heads by them: a link too far, or a word without any, would count against every head."""
    for split in SIZES:
        rows = zip(lines_of(split, "align"), tokens[split, "de"], tokens[split, "en"], strict=True)
        for line, german, english in rows:
            links = [tuple(map(int, link.split("-"))) for link in line.split()]
            assert links == sorted(set(links)), line
            for aligned, words in ((0, german), (1, english)):
                linked = {link[aligned] for link in links}
                assert linked <= {*range(len(words))}, (line, words)
                assert {place for place, word in enumerate(words) if word != ","} <= linked, (line, words)


def test_every_english_sentence_has_a_tree_whose_leaves_are_its_tokens(tokens):
    """Notebook 15 reads and writes them."""
    for split in SIZES:
        for line, english in zip(lines_of(split, "tree"), tokens[split, "en"], strict=True):
            assert re.findall(r"\(\S+ ([^\s()]+)\)", line) == english
            depths = [line[: end + 1].count("(") - line[: end + 1].count(")") for end in range(len(line))]
            assert line.startswith("(S ") and depths[-1] == 0 and min(depths[:-1]) > 0
