import contextlib
import csv
import gzip
import http.server
import multiprocessing
import os
import pickle
import random
import re
import sys
import threading
import time
import unicodedata
from pathlib import Path

import pytest
import requests
from conftest import as_guest
from downloader import load_val

from transformer_lib.data import corpora, download
from transformer_lib.data.corpora import CorpusError, Pair, load_corpus, read_text
from transformer_lib.language_model import texts
from transformer_lib.language_model.texts import load_text

SHARED_DATA = Path(__file__).parent.parent.parent / "shared" / "data"
needs_wikitext2 = pytest.mark.skipif(not (SHARED_DATA / "wikitext-2").is_dir(), reason="WikiText-2 is not there")
needs_multi30k = pytest.mark.skipif(not (SHARED_DATA / "multi30k").is_dir(), reason="the real Multi30k is not there")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch):
    """A local HTTP server in place of Multi30k's: ``answers[path]`` is a body, or a function of the handler."""
    answers, asked = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer = answers.get(self.path)
            if callable(answer):
                answer(self)
            elif answer is None:
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        for module, url in ((corpora, "MULTI30K_URL"), (texts, "WIKITEXT2_URL")):
            monkeypatch.setattr(module, url, f"http://127.0.0.1:{httpd.server_port}/")
        yield answers, asked
        httpd.shutdown()


def packed(lines):
    return gzip.compress("".join(f"{line}\n" for line in lines).encode())


@pytest.fixture
def published(server, monkeypatch):
    """A two-sentence Multi30k that the server serves with matching checksums."""
    import hashlib

    answers, asked = server
    answers["/val.de.gz"] = packed(["Ein Hund.", "Eine Katze."])
    answers["/val.en.gz"] = packed(["A dog.", "A cat."])
    sums = {path[1:]: hashlib.sha256(body).hexdigest() for path, body in answers.items()}
    monkeypatch.setattr(corpora, "MULTI30K_SHA256", sums)
    return answers, asked


def test_a_download_is_checked_cached_and_not_repeated(published, cache):
    _, asked = published
    expected = [Pair("Ein Hund.", "A dog."), Pair("Eine Katze.", "A cat.")]
    assert load_corpus("multi30k")["val"] == expected
    assert load_corpus("multi30k")["val"] == expected
    assert asked == ["/val.de.gz", "/val.en.gz"]
    assert sorted(path.name for path in (cache / "multi30k").iterdir()) == ["val.de.gz", "val.en.gz"]


def cut_off(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"only the beginning")


def stall(handler):
    cut_off(handler)
    time.sleep(1)  # the client waits for a tenth of that


def bomb(handler):
    """Send a kilobyte that requests unpacks to a megabyte, before anybody looks at a checksum."""
    body = gzip.compress(bytes(2**20))
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(ConnectionError):  # the client goes away
        while True:
            handler.wfile.write(bytes(2**14))


BAD_ANSWERS = {
    "the wrong bytes": (packed(["something else"]), "it is cut off or changed"),
    "a login page": (b"\n<!DOCTYPE html><title>Log in</title>", "a web page, perhaps one to log in to this network"),
    "cut off": (cut_off, ""),
    "stalls": (stall, "timed out"),
    "404": (None, "404"),
    "500": (lambda handler: handler.send_error(500), "500"),
    "a gzip bomb on the way": (bomb, "longer than 300,000 bytes"),
    "a gzip bomb as the file": (gzip.compress(bytes(2**22)), "it is cut off or changed"),
    "more and more": (endless, "longer than 300,000 bytes"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_bad_download_leaves_nothing_and_says_what_to_do(published, cache, name, monkeypatch, tried):
    if name == "stalls":
        monkeypatch.setattr(download, "_TIMEOUT_S", 0.1)
    monkeypatch.setattr(download, "_MOST_BYTES", 300_000)
    answers, _ = published
    answers["/val.de.gz"], cause = BAD_ANSWERS[name]
    with pytest.raises(
        CorpusError,
        match=rf"val\.de\.gz of corpus 'multi30k' .* http://127.0.0.1.*{cause}.*TRANSFORMER_LIB_DATA.*'sample'",
    ) as error:
        load_corpus("multi30k")["val"]
    assert not [path for path in cache.rglob("*") if path.is_file()]
    tried(f"download: {name}", 1, "nothing, and nothing is cached", re.sub(r"127\S+/|: /\S*", "…/", str(error.value)))


@pytest.mark.skipif(sys.platform == "win32", reason="processes start differently there")
def test_processes_that_download_at_once_do_not_disturb_each_other(published, cache, tried):
    answers, asked = published
    body, together = answers["/val.de.gz"], threading.Barrier(2, timeout=60)

    def half_each(handler):
        """Let both clients have the first half before either gets the second."""
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:20])
        together.wait()
        handler.wfile.write(body[20:])

    answers["/val.de.gz"] = half_each
    context = multiprocessing.get_context("forkserver")
    arguments = (cache, corpora.MULTI30K_URL, corpora.MULTI30K_SHA256)
    processes = [context.Process(target=load_val, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert asked.count("/val.de.gz") == 2
    assert {path.name: path.read_bytes() for path in (cache / "multi30k").iterdir()} == {
        "val.de.gz": body,
        "val.en.gz": answers["/val.en.gz"],
    }
    tried("download: two processes at once", 2, "nothing", "the corpus")


def test_no_network_says_what_to_do(cache, monkeypatch):
    monkeypatch.setattr(corpora, "MULTI30K_URL", "http://127.0.0.1:9/")  # nobody listens there
    with pytest.raises(CorpusError, match=r"train\.de\.gz .* could not be downloaded .* TRANSFORMER_LIB_DATA"):
        load_corpus("multi30k")["train"]


def test_a_firewall_that_drops_packets_costs_seconds_and_a_line_says_what_is_tried(cache, monkeypatch, capsys):
    def dropped(url, timeout, **more):
        raise requests.ConnectTimeout(f"no answer within {timeout[0]} s")

    monkeypatch.setattr(requests, "get", dropped)
    with pytest.raises(CorpusError, match="no answer within 5 s"):
        load_corpus("multi30k")["train"]
    assert capsys.readouterr().err == f"downloading {corpora.MULTI30K_URL}train.de.gz\n"


def test_a_damaged_file_in_the_cache_is_refused_but_never_removed(published, cache):
    (cache / "multi30k").mkdir(parents=True)
    (cache / "multi30k" / "val.de.gz").write_bytes(b"mine")
    with pytest.raises(CorpusError, match=r"val\.de\.gz: its sha256 checksum is .*, expected .* Remove it"):
        load_corpus("multi30k")["val"]
    assert (cache / "multi30k" / "val.de.gz").read_bytes() == b"mine"


def test_a_read_only_cache_that_has_the_files_is_enough(published, guest_folder, monkeypatch, tried):
    _, asked = published
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(guest_folder))
    expected = load_corpus("multi30k")["val"]
    asked.clear()
    folder = guest_folder / "multi30k"
    with as_guest(guest_folder):
        folder.chmod(0o555)
        assert load_corpus("multi30k")["val"] == expected
        assert asked == []
        folder.chmod(0o755)
        (folder / "val.en.gz").unlink()
        folder.chmod(0o555)
        with pytest.raises(CorpusError, match=r"val\.en\.gz .* could not be downloaded .*ermission"):
            load_corpus("multi30k")["val"]
        folder.chmod(0o755)
    tried("download: read-only cache that has the files", 1, "nothing", "the corpus, without a network")


def test_unknown_names_list_the_known_ones():
    with pytest.raises(CorpusError, match="corpus is 'multi31k', expected one of sample, multi30k, or a folder"):
        load_corpus("multi31k")
    with pytest.raises(CorpusError, match="split is 'dev', but corpus 'sample' has train, val, test"):
        load_corpus("sample")["dev"]
    with pytest.raises(CorpusError, match="tgt='fr', but corpus 'multi30k' has 'de' and 'en'"):
        load_corpus("multi30k", "de", "fr")
    with pytest.raises(CorpusError, match=r"corpus 'sample' has no train\.fr"):
        load_corpus("sample", "de", "fr")


def test_the_sample_corpus_is_there_in_both_directions():
    corpus = load_corpus()
    assert corpus.splits == ("train", "val", "test")
    assert [len(corpus[split]) for split in corpus.splits] == [8000, 500, 500]
    assert len(corpus.lines("test", "align")) == len(corpus.lines("test", "tree")) == 500
    assert [pair[::-1] for pair in load_corpus("sample", "en", "de")["val"]] == [tuple(pair) for pair in corpus["val"]]


def test_your_own_folder_plain_or_packed(tmp_path):
    (tmp_path / "train.de").write_text("Ein Hund.\r\nEine Katze.\r\n", encoding="utf-8-sig")  # as Windows writes it
    (tmp_path / "train.en").write_text("A dog.\nA cat.", encoding="utf-8")  # no newline at the end
    (tmp_path / "val.de.gz").write_bytes(packed(["Ein Vogel."]))
    (tmp_path / "val.en.gz").write_bytes(packed(["A bird."]))
    (tmp_path / "test_news.de").write_text("Ein Haus.\n")
    (tmp_path / "test_news.en").write_text("A house.\n")
    (tmp_path / "test_news.de.gz").write_bytes(packed(["Ein Haus."]))  # the same once more
    corpus = load_corpus(tmp_path)
    assert corpus.splits == ("train", "val", "test_news")
    assert corpus["train"] == [Pair("Ein Hund.", "A dog."), Pair("Eine Katze.", "A cat.")]
    assert corpus["val"] == [Pair("Ein Vogel.", "A bird.")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        ("eins\nzwei\ngr\xfcn\n".encode("latin1"), "is not UTF-8: line 3 holds the byte 0xfc"),
        (b"\xef\xbb\xbfeins\n\xfc\n", "is not UTF-8: line 2 holds the byte 0xfc"),
        ("eins\n".encode("utf-16-le"), "holds zero bytes, as UTF-16 does"),
        ("grün\n".encode("utf-16"), "holds zero bytes, as UTF-16 does"),
        (None, "does not exist"),
    ],
)
def test_a_text_that_cannot_be_used_is_named(tmp_path, content, message):
    path = tmp_path / "text.de"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=rf"text\.de {message}"):
        read_text(path)


def numbered(number, first=0):
    """Pairs of sentences of many lengths."""
    rng = random.Random(number)
    return [
        (f"der Satz {i}{' und so weiter' * more}", f"the sentence {i}{' and so on' * more}")
        for i, more in ((i, rng.randrange(9)) for i in range(first, first + number))
    ]


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def everything(corpus):
    return sorted(tuple(pair) for split in corpus.splits for pair in corpus[split])


def write_sides(folder, pairs, name="text"):
    return tuple(
        write_lines(folder / f"{name}.{code}", side)
        for code, side in zip(("de", "en"), zip(*pairs, strict=True), strict=True)
    )


def parts_of(corpus):
    return {split: [tuple(pair) for pair in corpus[split]] for split in corpus.splits}


def own_sources(folder, pairs):
    """The same pairs, in every form that load_corpus takes."""
    quoted = [f'"{src}","{tgt}, yes"' for src, tgt in pairs]
    (folder / "train").mkdir()
    write_sides(folder / "train", pairs, "train")
    gz = folder / "packed.tsv.gz"
    gz.write_bytes(packed("\t".join(pair) for pair in pairs))
    return {
        "a list": pairs,
        "two files": write_sides(folder, pairs),
        "a folder": folder / "train",
        "a table": write_lines(folder / "pairs.tsv", ["\t".join(pair) for pair in pairs]),
        "a packed table": gz,
        "other columns": write_lines(
            folder / "more.tsv", ["id\tEN\tde", *(f"{i}\t{b}\t{a}" for i, (a, b) in enumerate(pairs))]
        ),
        "with commas": write_lines(folder / "pairs.csv", [line.replace(", yes", "") for line in quoted]),
        "with semicolons": write_lines(folder / "semi.csv", ["de;en", *(f"{a};{b}" for a, b in pairs)]),
    }


def test_your_own_pairs_come_in_many_forms_and_are_split_alike(tmp_path):
    pairs = numbered(60)
    expected = parts_of(load_corpus(pairs))
    assert {split: len(part) for split, part in expected.items()} == {"train": 54, "val": 3, "test": 3}
    assert sorted(pair for part in expected.values() for pair in part) == sorted(pairs)
    for kind, source in own_sources(tmp_path, pairs).items():
        corpus = load_corpus(source)
        assert corpus.splits == ("train", "val", "test"), kind
        assert parts_of(corpus) == expected, kind
        if kind != "a list":
            assert parts_of(load_corpus(corpus.path)) == expected, kind  # as `evaluate` finds it again
            assert all(Path(line).is_absolute() for line in corpus.path.splitlines()), kind


def test_commas_and_quotes_within_a_sentence(tmp_path):
    pairs = [(f'Ein "Hund", der {i} Katzen sieht', f"A dog, who sees {i} cats; yes") for i in range(20)]
    quoted = [",".join('"' + side.replace('"', '""') + '"' for side in pair) for pair in pairs]
    assert everything(load_corpus(write_lines(tmp_path / "a.csv", quoted))) == sorted(pairs)
    tabs = ["\t".join(pair) for pair in pairs]  # in which a quotation mark is a letter
    assert everything(load_corpus(write_lines(tmp_path / "a.tsv", tabs))) == sorted(pairs)
    quoted[3] = '"Ein Hund,A dog'  # a quotation mark that nobody closes costs its line, not all that follow
    assert everything(load_corpus(write_lines(tmp_path / "a.csv", quoted))) == sorted([*pairs[:3], *pairs[4:]])


@pytest.mark.parametrize(
    "rows",
    [
        ["id;de;en", *(f"{i};Satz {i}, der hier ist;Line {i}, which is here" for i in range(20))],
        [f"Satz {i}, der hier ist;Line {i} is here" for i in range(20)],
        [f'"Satz {i}, der hier ist", "Line {i}, which is here"' for i in range(20)],
        ["de,en,note", *(f'"Satz {i}; ja",Line {i},' for i in range(20))],
        [f"Satz {i},Line {i},CC-BY {i}" for i in range(20)],
        [f"Satz {i};Line {i};a, b" for i in range(20)],
        [f"Satz {i}{'; ja' * (i > 15)},Line {i},CC-BY" for i in range(20)],
        [f"Satz {i}{', ja' * (i % 3)};Line {i}, yes" for i in range(20)],
    ],
)
def test_the_delimiter_of_a_table_is_the_one_that_makes_two_columns_or_a_header(tmp_path, rows):
    pairs = everything(load_corpus(write_lines(tmp_path / "a.csv", rows)))
    assert len(pairs) == 20 and all(src.startswith("Satz") and tgt.startswith("Line") for src, tgt in pairs)


def test_an_empty_first_column_does_not_move_the_others(tmp_path):
    rows = ["de\ten\tnote", *(f"Satz {i}\tLine {i}\tok" for i in range(20)), "\tLine 20\tok"]
    assert len(everything(load_corpus(write_lines(tmp_path / "a.tsv", rows)))) == 20


def test_both_sides_may_be_of_one_language(tmp_path):
    """Simpler English, say, or tokens of no language at all."""
    pairs = [(f"{i} difficult", f"{i} easy") for i in range(20)]
    rows = [f"{src}\t{tgt}" for src, tgt in pairs]
    for language in ("en", None):
        for source in (write_sides(tmp_path, pairs), write_lines(tmp_path / "a.tsv", rows)):
            assert everything(load_corpus(source, language, language)) == sorted(pairs)
    assert everything(load_corpus(write_lines(tmp_path / "b.tsv", ["en\ten", *rows]), "en", "en")) == sorted(pairs)
    with pytest.raises(CorpusError, match="src and tgt are both 'en', but a folder has one file for a language"):
        load_corpus("sample", "en", "en")


def test_files_whose_names_say_other_languages_are_noticed(tmp_path, capsys):
    sides = [write_lines(tmp_path / name, [f"{i} uno"] * 9) for i, name in enumerate(("text.es", "text.en"))]
    load_corpus(sides, "es", "en")
    packed = [side.with_name(f"{side.name}.gz") for side in sides]
    for side, file in zip(sides, packed, strict=True):
        file.write_bytes(gzip.compress(side.read_bytes()))
    load_corpus(packed, "es", "en")
    assert not capsys.readouterr().err
    load_corpus(sides)
    assert "text.es is read as 'de', text.en as 'en': is that right?" in capsys.readouterr().err


def test_a_folders_files_that_are_not_read_are_named_and_half_a_split_is_refused(tmp_path, capsys):
    for split in ("train", "valid"):
        write_sides(tmp_path, numbered(40), split)
    assert load_corpus(tmp_path).splits == ("train", "val", "test")
    assert "valid.de is not read: the pairs to validate on are called val.de and val.en" in capsys.readouterr().err
    write_sides(tmp_path, numbered(40), "val")
    assert load_corpus(tmp_path).splits == ("train", "val") and not capsys.readouterr().err
    write_lines(tmp_path / "test_b.en", ["a dog"])
    with pytest.raises(CorpusError, match=r"has no test_b\.de"):
        load_corpus(tmp_path)


def test_a_split_without_a_file_of_its_own_has_no_lines(tmp_path):
    write_sides(tmp_path, numbered(40), "train")
    corpus = load_corpus(tmp_path)
    assert len(corpus.lines("train", "de")) == 40
    for one in (corpus, load_corpus(numbered(40))):
        with pytest.raises(CorpusError, match="has no file for 'val' alone"):
            one.lines("val", "de")


def test_held_out_pairs_stay_the_same_and_are_never_trained_on(tmp_path):
    pairs = numbered(100)
    before = parts_of(load_corpus(pairs))
    doubled = [*pairs[::-1], *pairs, *((src, f"{tgt} too") for src, tgt in pairs)]
    after = parts_of(load_corpus(doubled))
    assert set(before["val"]) < set(after["val"]) and set(before["test"]) < set(after["test"])
    sources = [{src for src, _ in part} for part in after.values()]
    assert sum(map(len, sources)) == len(set().union(*sources)) == 100
    assert len(after["val"]) == len(set(after["val"])) == 10
    more = parts_of(load_corpus([*numbered(20, first=100), *pairs]))
    assert len(set(before["val"]) & {*more["val"], *more["test"]}) >= 4  # of five: adding lines moves few
    assert [len(part) for part in parts_of(load_corpus(numbered(30_000))).values()] == [28_000, 1_000, 1_000]
    with pytest.raises(CorpusError, match="'pairs': it has 3 different source sentences, expected at least 4"):
        load_corpus(numbered(3))["train"]


def test_a_held_out_sentence_is_not_in_train_in_another_spelling():
    """Here, each sentence comes in four that a lower-casing model reads alike."""
    pairs = [(f"Mädchen Nummer {i}", f"girl number {i}") for i in range(100)]
    spelled = [str.upper, lambda src: unicodedata.normalize("NFD", src), lambda src: src.replace(" ", "\xa0 ")]
    parts = parts_of(load_corpus([*pairs, *((spell(src), tgt) for spell in spelled for src, tgt in pairs)]))
    targets = [{tgt for _, tgt in part} for part in parts.values()]
    assert [len(part) for part in targets] == [90, 5, 5] and len(set().union(*targets)) == 100


def test_pairs_may_come_from_any_iterable():
    sides = [f"Satz {i}" for i in range(40)], [f"sentence {i}" for i in range(40)]
    rows = csv.reader(f"{src},{tgt}" for src, tgt in zip(*sides, strict=True))
    for source in (zip(*sides, strict=True), rows):
        assert parts_of(load_corpus(source)) == parts_of(load_corpus(list(zip(*sides, strict=True))))


def test_only_what_is_missing_is_held_out(tmp_path):
    write_sides(tmp_path, numbered(40), "train")
    write_sides(tmp_path, numbered(5, first=40), "test_news")
    corpus = load_corpus(tmp_path)
    assert {split: len(corpus[split]) for split in corpus.splits} == {"train": 38, "val": 2, "test_news": 5}
    write_sides(tmp_path, numbered(4, first=50), "val")
    corpus = load_corpus(tmp_path)
    assert {split: len(corpus[split]) for split in corpus.splits} == {"train": 40, "val": 4, "test_news": 5}


def test_what_cannot_be_used_is_left_out_counted_and_shown(tmp_path, capsys):
    lines = ["\t".join(pair) for pair in numbered(40)]
    for place, line in (
        (3, "nur deutsch"),
        (8, "\ttwo"),
        (9, " "),
        (11, "\t"),
        (12, "eins\t"),
        (15, "ja\t" + "yes " * 20),
    ):
        lines[place] = line
    corpus = load_corpus(write_lines(tmp_path / "my\x1b[2J.tsv", lines))
    assert sum(len(corpus[split]) for split in corpus.splits) == 34
    printed = capsys.readouterr().err.splitlines()
    assert printed[0].endswith("3 of 40 pairs left out, empty: 9 ('', 'two'); 12 ('', ''); 13 ('eins', '')")
    assert printed[1].endswith("2 of 40 pairs left out, no pair: 4 ('nur deutsch',); 10 ('',)")
    assert "1 of 40 pairs left out, not aligned: 16 ('ja', 'yes yes" in printed[2]
    assert printed[3].endswith("32 pairs for train, 1 pairs for val, 1 pairs for test") and len(printed) == 4
    assert "\x1b" not in "".join(printed)
    pairs = [*numbered(20), ("", "x"), ["Ein Hund"], "Ein Hund", ("Ein Hund", None), ("Ein Hund", "A dog")]
    assert sum(map(len, parts_of(load_corpus(pairs)).values())) == 21


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["Ein Hund schläft"] * 9,
            ": 9 of 9 pairs left out, no pair: 1 .*not two texts: does a file have another delimiter",
        ),
        (["Ein Hund;A dog"] * 9, ": .*, no pair: 1 .'Ein Hund;A dog',.*; 2 .* delimiter, or a list anything but"),
        (["a\t" + "b " * 40] * 9, ": .*, not aligned: 1 .* is a line missing in a file"),
    ],
)
def test_a_corpus_of_which_most_cannot_be_used_is_refused_with_the_likely_cause(tmp_path, lines, message):
    with pytest.raises(CorpusError, match=f"corpus 'pairs': most pairs cannot be used{message}"):
        load_corpus(write_lines(tmp_path / "pairs.tsv", lines))["train"]
    with pytest.raises(CorpusError, match=r"pairs\.tsv is empty"):
        load_corpus(write_lines(tmp_path / "pairs.tsv", [""]))["train"]


def test_swapped_languages_are_noticed(tmp_path):
    pairs = load_corpus("sample")["val"]
    assert len(load_corpus(pairs)["train"]) == 450
    for swapped in (load_corpus(pairs, "en", "de"), load_corpus(write_sides(tmp_path, pairs)[::-1], "de", "en")):
        with pytest.raises(
            CorpusError, match=r"the languages look swapped: src is '(de|en)', but the source side reads"
        ):
            swapped["train"]
    assert len(load_corpus(pairs, "xx9", "de")["train"]) == 450  # nobody knows the words of xx9


@pytest.mark.parametrize("place", [1, 77, 200])
def test_a_line_too_many_is_located(tmp_path, place):
    pairs = [tuple(pair) for pair in load_corpus("sample")["val"][:200]]
    de, en = write_sides(tmp_path, pairs)
    write_lines(en, [*(tgt for _, tgt in pairs[: place - 1]), "one more", *(tgt for _, tgt in pairs[place - 1 :])])
    with pytest.raises(CorpusError, match=r"train has 201 lines in 'en' but 200 in 'de': line n of one") as error:
        load_corpus((de, en))["train"]
    found = re.search(r"'en' has one too many near line (\d+)", str(error.value))
    assert abs(int(found[1]) - place) <= 2


def test_where_lengths_say_nothing_no_line_is_named(tmp_path):
    files = write_sides(tmp_path, [("eins zwei", "one two")] * 50)
    write_lines(files[1], ["one two"] * 30)
    with pytest.raises(CorpusError, match="has 50 lines in 'de' but 30 in 'en'") as error:
        load_corpus(files)["train"]
    assert "near line" not in str(error.value)


def test_files_of_your_own_that_are_not_there(tmp_path):
    for files in (
        (tmp_path / "a.de", tmp_path / "a.en"),
        ["a", "b", "c"],
        ["Ein Hund\tA dog", "Eine Katze\tA cat"],
        [],
    ):
        with pytest.raises(CorpusError, match="expected two files that exist, one for de and one for en"):
            load_corpus(files)
    assert load_corpus(["sample"]) == load_corpus("sample")  # as a command line hands it over
    (tmp_path / "latin.tsv").write_bytes("gr\xfcn\tgreen\n".encode("latin1"))
    with pytest.raises(CorpusError, match=r"latin\.tsv is not UTF-8: line 1 holds the byte 0xfc"):
        load_corpus(tmp_path / "latin.tsv")["train"]


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(b"one\ntwo\n" * 99)[:-20]], ids=["not gzip", "cut off"])
def test_a_damaged_gzip_file_is_named(tmp_path, content):
    (tmp_path / "text.gz").write_bytes(content)
    with pytest.raises(CorpusError, match=r"text\.gz cannot be read .* completely"):
        read_text(tmp_path / "text.gz")


def test_a_gzip_bomb_of_ones_own_is_refused_and_a_dull_text_is_not(tmp_path, monkeypatch, tried):
    monkeypatch.setattr(corpora, "_MOST_UNPACKED", (2**20, 100))
    path = tmp_path / "train.de.gz"
    path.write_bytes(gzip.compress(b"a\n" * 2**21))
    with pytest.raises(CorpusError, match="holds more than 1,048,576, which no text does: is it a gzip bomb") as error:
        read_text(path)
    tried("text: a gzip bomb of one's own", 1, "nothing", str(error.value).replace(str(tmp_path), "…"))
    path.write_bytes(gzip.compress(b"the same again\n" * 2**15))
    assert len(read_text(path)) == 2**15


def test_the_limits_are_those_that_the_page_on_security_promises():
    security = (Path(__file__).parent.parent / "SECURITY.md").read_text(encoding="utf-8")
    unpacked, times = corpora._MOST_UNPACKED
    assert f"unpacks to more than {unpacked / 2**20:g} MiB and more than a hundred times its size" in security
    assert times == 100 and download._TIMEOUT_S[1] == 30
    assert f"at most {download._MOST_BYTES / 2**20:g} MiB; given up after thirty seconds without a byte" in security


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "train.de")
    with pytest.raises(CorpusError, match=r"train\.de is not a file"):
        read_text(tmp_path / "train.de")


def test_lines_end_at_newlines_or_in_a_file_without_any_at_carriage_returns(tmp_path):
    for content, lines in (
        ("eins\u2028zwei\x0cdrei\rvier\n", ["eins\u2028zwei\x0cdrei\rvier"]),
        ("eins\r\nzwei\r\n", ["eins", "zwei"]),
        ("eins\rzwei\r", ["eins", "zwei"]),
    ):
        (tmp_path / "text").write_bytes(content.encode())
        assert read_text(tmp_path / "text") == lines


@needs_multi30k
def test_the_real_multi30k(monkeypatch):
    from transformer_lib.data.batches import BucketBatches, build_vocabularies, make_dataset
    from transformer_lib.data.tokenizers import WordTokenizer

    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(SHARED_DATA))
    corpus = load_corpus("multi30k")
    assert [len(corpus[split]) for split in ("train", "val", "test_2016_flickr")] == [29_000, 1_014, 1_000]
    src_tokenizer, tgt_tokenizer = WordTokenizer("de"), WordTokenizer("en")
    train = make_dataset(corpus["train"], src_tokenizer, tgt_tokenizer, max_len=100)
    build_vocabularies(train, min_freq=2)
    assert (len(src_tokenizer.vocab), len(tgt_tokenizer.vocab)) == (7_853, 5_893)
    assert train[0].src == [
        *("zwei", "junge", "weiße", "männer", "sind", "im", "freien"),
        *("in", "der", "nähe", "vieler", "büsche", "."),
    ]
    assert train[0].tgt == [
        *("two", "young", ",", "white", "males", "are", "outside", "near", "many", "bushes", "."),
    ]

    padding, positions = [0, 0], [0, 0]
    for batch in BucketBatches(train, 128, train=True):
        for side, ids in enumerate((batch.src, batch.tgt)):
            padding[side] += ids.eq(1).sum().item()
            positions[side] += ids.numel()
    assert padding[0] / positions[0] < 0.1
    assert padding[1] / positions[1] < 0.1


TRAIN, VALID, TEST = b" = Title = \n \n One two . \n", b"One\n\n" * 10, b"two two\n"


@pytest.fixture
def published_text(server, monkeypatch):
    """A few words of WikiText-2, served under the real names, with matching checksums."""
    import hashlib

    answers, asked = server
    answers |= {"/train.txt": TRAIN, "/valid.txt": VALID, "/test.txt": TEST}
    checksums = {
        "train.txt": "git-blob:7ebed753081fa35831dd148ada517a02b6ac0531",  # what `git hash-object` prints
        "valid.txt": f"sha256:{hashlib.sha256(VALID).hexdigest()}",
        "test.txt": f"sha256:{hashlib.sha256(TEST).hexdigest()}",
    }
    assert list(checksums) == list(texts.WIKITEXT2_CHECKSUMS)
    monkeypatch.setattr(texts, "WIKITEXT2_CHECKSUMS", checksums)
    return answers, asked


def test_wikitext2_is_downloaded_checked_cached_and_not_repeated(published_text, cache):
    _, asked = published_text
    text = load_text("wikitext-2")
    for _ in range(2):
        assert text["train"] == ["= Title =", "", "One two ."]
        assert text["valid"] == ["One", ""] * 10
        assert text["test"] == ["two two"]
    assert asked == ["/train.txt", "/valid.txt", "/test.txt"]
    assert sorted(path.name for path in (cache / "wikitext-2").iterdir()) == ["test.txt", "train.txt", "valid.txt"]
    assert (cache / "wikitext-2" / "train.txt").read_bytes() == TRAIN


def test_without_its_training_file_nine_tenths_of_the_validation_file_take_its_place(published_text, cache):
    _, asked = published_text
    text = load_text("wikitext-2-valid")
    assert [text[split] for split in text.splits] == [["One", ""] * 9, ["One", ""], ["two two"]]
    assert "/train.txt" not in asked


@pytest.mark.parametrize("split", ["train", "valid"])  # one with a checksum of git's, one with a SHA-256
@pytest.mark.parametrize("answer", [TRAIN[:-1], TEST, b"<html>please log in</html>", b"", cut_off, None])
def test_a_broken_file_of_wikitext2_is_refused_and_removed(published_text, cache, split, answer):
    answers, _ = published_text
    answers[f"/{split}.txt"] = answer
    text = load_text("wikitext-2")
    assert text["test"] == ["two two"]
    with pytest.raises(
        CorpusError, match=rf"{split}\.txt of corpus 'wikitext-2' .* http://127.0.0.1.*TRANSFORMER_LIB_DATA.*'sample'"
    ):
        text[split]
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["test.txt"]


def test_what_is_served_is_checked_against_the_real_checksums(server, cache):
    answers, _ = server
    answers["/train.txt"] = TRAIN
    with pytest.raises(CorpusError, match=r"checksum is 7ebed753.*, expected 2d84b35af79e411d73ea7cae83c73964c6ac83b4"):
        load_text("wikitext-2")["train"]
    assert not [path for path in cache.rglob("*") if path.is_file()]


@needs_wikitext2
def test_the_real_files_come_through_the_download(server, cache):
    answers, _ = server
    for split in ("valid", "test"):
        answers[f"/{split}.txt"] = (SHARED_DATA / "wikitext-2" / f"{split}.txt").read_bytes()
    text = load_text("wikitext-2")
    assert [sum(len(line.split()) + 1 for line in text[split]) for split in ("valid", "test")] == [217_646, 245_569]
    part = load_text("wikitext-2-valid")
    assert part["train"] + part["valid"] == text["valid"]
    assert part["test"] == text["test"]
    assert len(part["train"]) == round(0.9 * len(text["valid"]))


def test_a_novel_comes_with_the_library():
    text = load_text("pride-and-prejudice")
    assert (text.language, text.splits, text.path) == ("en", ("train", "valid", "test"), "")
    lines = [line for split in text.splits for line in text[split]]
    assert lines[:2] == [
        "Chapter 1",
        "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of "
        "a wife.",
    ]
    assert lines[-1].endswith("had been the means of uniting them.")
    assert [line for line in lines if line.startswith("Chapter ")] == [f"Chapter {i}" for i in range(1, 62)]
    assert len("\n".join(lines).encode()) < 800_000 and all(lines)
    assert [round(len(text[split]) / len(lines), 2) for split in text.splits] == [0.9, 0.05, 0.05]
    with pytest.raises(CorpusError, match="language is 'de', but text 'pride-and-prejudice' is in English"):
        load_text("pride-and-prejudice", "de")


def test_one_side_of_a_parallel_corpus_is_a_text():
    text = load_text("sample")
    assert (text.language, text.splits) == ("en", ("train", "val", "test"))
    assert text["test"] == [pair.tgt for pair in load_corpus()["test"]]
    assert load_text("sample", "de")["test"] == [pair.src for pair in load_corpus()["test"]]
    with pytest.raises(CorpusError, match="language is 'fr', but corpus 'sample' has de and en"):
        load_text("sample", "fr")


def test_a_path_is_a_folder_of_ones_own_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("sample", "wikitext-2", "pride-and-prejudice"):
        (tmp_path / name).mkdir()
        for split in ("train", "valid"):
            (tmp_path / name / f"{split}.txt").write_text(f"our own {split}\n", encoding="utf-8")
        assert load_text(Path(name))["train"] == ["our own train"]
    for side in ("de", "en"):
        (tmp_path / "sample" / f"train.{side}").write_text("our own\n" * 40, encoding="utf-8")
        (tmp_path / "sample" / f"val.{side}").write_text("our own\n", encoding="utf-8")
    assert load_corpus(Path("sample"))["val"] == [("our own", "our own")]


def test_corpora_and_texts_can_be_pickled(tmp_path):
    novel = tmp_path / "novel.txt"
    novel.write_text("one\ntwo\n" * 20, encoding="utf-8")
    for one in (
        load_corpus("sample", "en", "de"),
        load_corpus(numbered(20)),
        load_text("sample", "de"),
        load_text("pride-and-prejudice"),
        load_text(novel, "en"),
    ):
        again = pickle.loads(pickle.dumps(one))
        assert (again.name, again.splits, again.path) == (one.name, one.splits, one.path)
        assert again["test"] == one["test"]


def test_a_text_file_is_cut_into_three_parts(tmp_path):
    lines = [f"line {i}" for i in range(20)]
    (tmp_path / "my.novel.txt").write_text("\n".join(lines), encoding="utf-8")
    text = load_text(tmp_path / "my.novel.txt", "en")
    assert (text.name, text.language, text.splits) == ("my.novel", "en", ("train", "valid", "test"))
    assert [text[split] for split in text.splits] == [lines[:16], lines[16:18], lines[18:]]
    (tmp_path / "short.txt").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(
        CorpusError, match=r"short\.txt has 2 lines, and no text in those from 3 to 2, its part 'test': break"
    ):
        load_text(tmp_path / "short.txt")["test"]


def test_a_folder_of_text_files_is_a_text(tmp_path):
    for name in ("train.txt", "test_b.txt", "test_a.txt", "test_a.txt.bak", "test_a.txt~"):
        (tmp_path / name).write_text(f"{name}\n\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"has no valid\.txt or valid\.txt\.gz in "):
        load_text(tmp_path)
    (tmp_path / "valid.txt.gz").write_bytes(gzip.compress(b"packed\n"))
    text = load_text(tmp_path)
    assert text.splits == ("train", "valid", "test_a", "test_b")
    assert text.language is None
    assert text["train"] == ["train.txt", ""]
    assert text["valid"] == ["packed"]
    (tmp_path / "valid.txt").write_text("plain\n", encoding="utf-8")
    assert load_text(tmp_path)["valid"] == ["plain"]  # as with sentence pairs, where there are both


def test_unknown_texts_and_splits_list_the_known_ones(tmp_path):
    with pytest.raises(CorpusError, match="text is 'wikitext-103', expected one of wikitext-2, wikitext-2-valid"):
        load_text("wikitext-103")
    with pytest.raises(CorpusError, match="language is 'en', but text 'wikitext-2' is cut into tokens already"):
        load_text("wikitext-2", "en")
    with pytest.raises(CorpusError, match="split is 'val', but text 'wikitext-2' has train, valid, test"):
        load_text("wikitext-2")["val"]


def test_a_text_may_have_empty_lines_but_not_be_empty(tmp_path):
    (tmp_path / "file").write_text("\nRed .\n\n", encoding="utf-8")
    assert read_text(tmp_path / "file") == ["", "Red .", ""]
    (tmp_path / "file").write_text(" \n\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="file is empty"):
        read_text(tmp_path / "file")


def test_a_path_is_a_folder_whatever_it_is_called(tmp_path, monkeypatch):
    """Path("./sample") is Path("sample"): what somebody means by it is a folder of their own."""
    monkeypatch.chdir(tmp_path)
    for name in ("sample", "multi30k"):
        (tmp_path / name).mkdir()
        for side in ("train.de", "train.en", "val.de", "val.en", "test.de", "test.en"):
            (tmp_path / name / side).write_text(f"{name} {side}\n", encoding="utf-8")
        assert load_corpus(Path(name))["val"][0].src == f"{name} val.de"
