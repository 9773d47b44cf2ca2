import csv
import gc
import gzip
import hashlib
import http.server
import multiprocessing
import pickle
import random
import sys
import threading
import time
import unicodedata
from pathlib import Path

import pytest
import requests
from conftest import as_guest
from downloader import load_val

from transformer_lib.data import corpora
from transformer_lib.data.batches import make_dataset
from transformer_lib.data.corpora import CorpusError, Pair, load_corpus, read_text
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import WordTokenizer, spacy_tokenizer
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
        for corpus, (_, checksums) in corpora.DOWNLOADS.items():
            url = f"http://127.0.0.1:{httpd.server_port}/"
            monkeypatch.setitem(corpora.DOWNLOADS, corpus, (url, dict(checksums)))
        yield answers, asked
        httpd.shutdown()


def packed(lines):
    return gzip.compress("".join(f"{line}\n" for line in lines).encode())


@pytest.fixture
def published(server):
    """A two-sentence Multi30k that the server serves with matching checksums."""
    answers, asked = server
    answers["/val.de.gz"] = packed(["Ein Hund.", "Eine Katze."])
    answers["/val.en.gz"] = packed(["A dog.", "A cat."])
    sums = {path[1:]: hashlib.sha256(body).hexdigest() for path, body in answers.items()}
    corpora.DOWNLOADS["multi30k"][1].update(sums)
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


BAD_ANSWERS = {
    "the wrong bytes": packed(["something else"]),
    "a login page": b"\n<!DOCTYPE html><title>Log in</title>",
    "cut off": cut_off,
    "stalls": stall,
    "404": None,
    "500": lambda handler: handler.send_error(500),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pooch leaves sockets to be collected
def test_a_bad_download_leaves_nothing_and_says_what_to_do(published, cache, monkeypatch):
    monkeypatch.setattr(corpora, "_TIMEOUT_S", 0.1)
    answers, _ = published
    for name, answers["/val.de.gz"] in BAD_ANSWERS.items():
        with pytest.raises(
            CorpusError, match=r"val\.de\.gz of corpus 'multi30k' .* http://127.0.0.1.*TRANSFORMER_LIB_DATA.*'sample'"
        ):
            load_corpus("multi30k")["val"]
        assert not [path for path in cache.rglob("*") if path.is_file()], name
        gc.collect()


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="processes start differently there")
def test_processes_that_download_at_once_do_not_disturb_each_other(published, cache):
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
    arguments = (cache, corpora.DOWNLOADS["multi30k"])
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


def test_no_network_says_what_to_do(cache, monkeypatch):
    checksums = corpora.DOWNLOADS["multi30k"][1]
    monkeypatch.setitem(corpora.DOWNLOADS, "multi30k", ("http://127.0.0.1:9/", checksums))  # nobody listens there
    with pytest.raises(CorpusError, match=r"train\.de\.gz .* could not be downloaded .* TRANSFORMER_LIB_DATA"):
        load_corpus("multi30k")["train"]


def test_a_firewall_that_drops_packets_costs_seconds(cache, monkeypatch):
    def dropped(url, timeout, **more):
        raise requests.ConnectTimeout(f"no answer within {timeout[0]} s")

    monkeypatch.setattr(requests, "get", dropped)
    with pytest.raises(CorpusError, match="no answer within 5 s"):
        load_corpus("multi30k")["train"]


def test_a_damaged_file_in_the_cache_is_downloaded_again_and_kept_without_a_network(published, cache):
    answers, _ = published
    damaged = cache / "multi30k" / "val.de.gz"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    body, answers["/val.de.gz"] = answers["/val.de.gz"], None
    with pytest.raises(CorpusError, match=r"val\.de\.gz .* could not be downloaded"):
        load_corpus("multi30k")["val"]
    assert damaged.with_name("val.de.gz.refused").read_bytes() == b"damaged"
    answers["/val.de.gz"] = body
    assert load_corpus("multi30k")["val"][0] == Pair("Ein Hund.", "A dog.")
    assert damaged.read_bytes() == body


def test_a_read_only_cache_that_has_the_files_is_enough(published, guest_folder, monkeypatch):
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


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(CorpusError, match="corpus is 'multi31k', expected sample, multi30k, a folder"):
        load_corpus("multi31k")
    with pytest.raises(CorpusError, match="split is 'dev', but corpus 'sample' has train, val, test"):
        load_corpus("sample")["dev"]
    with pytest.raises(CorpusError, match=r"train\.fr\.gz of corpus 'multi30k'"):
        load_corpus("multi30k", "fr", "en")["train"]
    with pytest.raises(CorpusError, match=r"train\.fr cannot be read"):
        load_corpus("sample", "de", "fr")["train"]
    with pytest.raises(CorpusError, match=r"a\.de cannot be read"):
        load_corpus((tmp_path / "a.de", tmp_path / "a.en"))
    assert load_corpus(["sample"]) == load_corpus("sample")  # as a command line hands it over


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


def test_a_text_that_cannot_be_read_is_named(tmp_path):
    packed = gzip.compress(b"one\ntwo\n" * 99)
    for name, content in {
        "latin1": "eins\ngr\xfcn\n".encode("latin1"),
        "utf-16": "eins\n".encode("utf-16"),
        "not.gz": b"not gzip",
        "cut_off.gz": packed[:-20],
        "missing": None,
    }.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(CorpusError, match=f"{name}.* cannot be read as UTF-8"):
            read_text(tmp_path / name)


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


def write_sides(folder, pairs, name="text"):
    return tuple(
        write_lines(folder / f"{name}.{code}", side)
        for code, side in zip(("de", "en"), zip(*pairs, strict=True), strict=True)
    )


def parts_of(corpus):
    return {split: [tuple(pair) for pair in corpus[split]] for split in corpus.splits}


def test_your_own_pairs_come_in_many_forms_and_are_split_alike(tmp_path):
    pairs = numbered(60)
    expected = parts_of(load_corpus(pairs))
    assert {split: len(part) for split, part in expected.items()} == {"train": 54, "val": 3, "test": 3}
    assert sorted(pair for part in expected.values() for pair in part) == sorted(pairs)
    (tmp_path / "folder").mkdir()
    files = write_sides(tmp_path, pairs)
    packed_files = [file.with_name(f"{file.name}.gz") for file in files]
    for file, packed_file in zip(files, packed_files, strict=True):
        packed_file.write_bytes(gzip.compress(file.read_bytes()))
    write_sides(tmp_path / "folder", pairs, "train")
    rows = csv.reader(f"{src},{tgt}" for src, tgt in pairs)
    for source in (zip(*zip(*pairs, strict=True), strict=True), rows, files, packed_files, tmp_path / "folder"):
        corpus = load_corpus(source)
        assert corpus.splits == ("train", "val", "test")
        assert parts_of(corpus) == expected
        if corpus.source:
            assert parts_of(load_corpus(corpus.source)) == expected  # as `evaluate` finds it again
            assert all(Path(path).is_absolute() for path in corpus.source)
    assert load_corpus(files).source == (str(files[0]), str(files[1])) and load_corpus(pairs).source == ()


@pytest.mark.skipif(sys.platform == "win32", reason="no file there has a line end in its name")
def test_a_folder_may_have_a_line_end_in_its_name(tmp_path):
    folder = tmp_path / "my\ncorpus"
    folder.mkdir()
    write_sides(folder, numbered(40), "train")
    for opened in (load_corpus(folder), load_corpus(str(folder)), load_corpus(load_corpus(folder).source)):
        assert opened.source == (str(folder),) and len(opened["train"]) == 36


def test_what_is_no_pair_is_named():
    for row in (["nur deutsch"], "ja", ("Ein Hund", None), {"de": "Ein Hund", "en": "A dog"}, ("a", "b", "c")):
        with pytest.raises(ValueError, match=r"pair 41 is .*, expected a sentence and its translation"):
            load_corpus([*numbered(40), row])


def test_both_sides_may_be_of_one_language(tmp_path):
    """Simpler English, say, or tokens of no language at all."""
    pairs = [(f"{i} difficult", f"{i} easy") for i in range(20)]
    for language in ("en", None):
        parts = parts_of(load_corpus(write_sides(tmp_path, pairs), language, language))
        assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)


def test_a_split_without_a_file_of_its_own_has_no_lines(tmp_path):
    write_sides(tmp_path, numbered(40), "train")
    corpus = load_corpus(tmp_path)
    assert len(corpus.lines("train", "de")) == 40
    for without in (corpus, load_corpus(numbered(40))):
        with pytest.raises(CorpusError, match=r"val\.de"):
            without.lines("val", "de")


def test_held_out_pairs_stay_the_same_and_are_never_trained_on():
    pairs = numbered(100)
    before = parts_of(load_corpus(pairs))
    doubled = [*pairs[::-1], *pairs, *((src, f"{tgt} too") for src, tgt in pairs)]
    after = parts_of(load_corpus(doubled))
    assert set(before["val"]) < set(after["val"]) and set(before["test"]) < set(after["test"])
    sources = [{src for src, _ in part} for part in after.values()]
    assert sum(map(len, sources)) == len(set().union(*sources)) == 100
    assert len(set(after["val"])) == 10
    more = parts_of(load_corpus([*numbered(20, first=100), *pairs]))
    assert len(set(before["val"]) & {*more["val"], *more["test"]}) >= 4  # of five: adding lines moves few
    assert [len(part) for part in parts_of(load_corpus(numbered(30_000))).values()] == [28_000, 1_000, 1_000]
    with pytest.raises(CorpusError, match="'pairs' has 3 different source sentences, expected 4"):
        load_corpus(numbered(3))["train"]


def test_a_held_out_sentence_is_not_in_train_in_another_spelling():
    """Here, each sentence comes in four that a lower-casing model reads alike."""
    pairs = [(f"Mädchen Nummer {i}", f"girl number {i}") for i in range(100)]
    spelled = [str.upper, lambda src: unicodedata.normalize("NFD", src), lambda src: src.replace(" ", "\xa0 ")]
    parts = parts_of(load_corpus([*pairs, *((spell(src), tgt) for spell in spelled for src, tgt in pairs)]))
    targets = [{tgt for _, tgt in part} for part in parts.values()]
    assert [len(part) for part in targets] == [90, 5, 5] and len(set().union(*targets)) == 100


def test_a_held_out_sentence_is_not_in_train_as_tokens_between_spaces_either():
    """What a model reads of a test sentence, in words or in subwords, it has not read in training."""
    raw = load_corpus("sample")["train"][:2000]
    corpus = load_corpus([*raw, *((" ".join(spacy_tokenizer("de")(pair.src)), pair.tgt) for pair in raw)])
    subwords = SubwordTokenizer("de", train_subwords(raw, 500))
    for tokenizer in (WordTokenizer("de"), subwords):
        read = {split: {tuple(tokenizer.tokenize(pair.src)) for pair in corpus[split]} for split in corpus.splits}
        assert not read["train"] & (read["val"] | read["test"]) and not read["val"] & read["test"]


def test_what_version_0_2_0_held_out_is_held_out():
    """Or else a model of then would be scored on what it was trained on."""
    parts = parts_of(load_corpus(numbered(60)))
    assert [[pair[1].split()[2] for pair in parts[split]] for split in ("val", "test")] == [
        ["6", "11", "13"],
        ["19", "27", "45"],
    ]


def test_half_a_pair_of_surrogates_costs_its_pair_and_no_other():
    """Python makes such strings of bytes that are no UTF-8, and JSON of what some other program cut in two."""
    pairs = [*numbered(60), ("kaputt \ud800", "broken"), ("kaputt", "broken \udc80")]
    corpus = load_corpus(pairs)
    assert sum(len(corpus[split]) for split in corpus.splits) == 62
    lines = []
    tokenizers = WordTokenizer(None), WordTokenizer(None)
    for split in corpus.splits:
        make_dataset(corpus[split], *tokenizers, log=lines.append)
    assert sum(line.count("surrogates") for line in lines) == 2 and all(line.isprintable() for line in lines)
    assert train_subwords(pairs, 40) == train_subwords([*pairs[:60], ("broken", "kaputt")], 40)


def test_only_what_is_missing_is_held_out(tmp_path):
    write_sides(tmp_path, numbered(40), "train")
    write_sides(tmp_path, numbered(5, first=40), "test_news")
    corpus = load_corpus(tmp_path)
    assert {split: len(corpus[split]) for split in corpus.splits} == {"train": 38, "val": 2, "test_news": 5}
    write_sides(tmp_path, numbered(4, first=50), "val")
    corpus = load_corpus(tmp_path)
    assert {split: len(corpus[split]) for split in corpus.splits} == {"train": 40, "val": 4, "test_news": 5}


def test_a_file_may_be_called_anything_and_a_terminal_never_obeys_it():
    with pytest.raises(CorpusError) as error:
        load_corpus("my\x1b[2J")
    assert "\x1b" not in str(error.value)


def test_sides_that_differ_in_length_are_both_named(tmp_path):
    de, en = write_sides(tmp_path, numbered(50))
    write_lines(en, ["one"] * 30)
    with pytest.raises(CorpusError, match=r"text\.de has 50 lines but .*text\.en has 30, expected as many"):
        load_corpus((de, en))
    (tmp_path / "folder").mkdir()
    for split in ("train", "val"):
        write_sides(tmp_path / "folder", numbered(4), split)
    write_lines(tmp_path / "folder" / "val.en", ["one"])
    with pytest.raises(CorpusError, match=r"val\.de has 4 lines but .*val\.en has 1, expected as many"):
        load_corpus(tmp_path / "folder")["val"]


def test_lines_end_at_newlines_alone(tmp_path):
    for content, lines in (
        ("eins\u2028zwei\x0cdrei\rvier\n", ["eins\u2028zwei\x0cdrei\rvier"]),
        ("eins\r\nzwei\r\n", ["eins", "zwei"]),
    ):
        (tmp_path / "text").write_bytes(content.encode())
        assert read_text(tmp_path / "text") == lines


@pytest.mark.slow
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
def published_text(server):
    """A few words of WikiText-2, served under the real names, with matching checksums."""
    answers, asked = server
    answers |= {"/train.txt": TRAIN, "/valid.txt": VALID, "/test.txt": TEST}
    corpora.DOWNLOADS["wikitext-2"][1].update(
        {
            "train.txt": "git-blob:7ebed753081fa35831dd148ada517a02b6ac0531",  # what `git hash-object` prints
            "valid.txt": hashlib.sha256(VALID).hexdigest(),
            "test.txt": hashlib.sha256(TEST).hexdigest(),
        }
    )
    return answers, asked


def test_wikitext2_is_downloaded_checked_cached_and_not_repeated(published_text, cache):
    _, asked = published_text
    for _ in range(2):
        text = load_text("wikitext-2")
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


def test_a_broken_file_of_wikitext2_is_refused_and_removed(published_text, cache):
    answers, _ = published_text
    for split in ("train", "valid"):  # one with a checksum of git's, one with a SHA-256
        right = answers[f"/{split}.txt"]
        for answer in (TRAIN[:-1], TEST, b"<html>please log in</html>", b"", cut_off, None):
            answers[f"/{split}.txt"] = answer
            with pytest.raises(
                CorpusError, match=rf"{split}\.txt of corpus 'wikitext-2' .* http://127.0.0.1.*'sample'"
            ):
                load_text("wikitext-2")[split]
            assert f"{split}.txt" not in [path.name for path in cache.rglob("*") if path.is_file()]
        answers[f"/{split}.txt"] = right


@pytest.mark.parametrize(("split", "right"), [("train", TRAIN), ("valid", VALID)], ids=["git-blob", "SHA-256"])
def test_a_file_that_somebody_put_there_is_kept_beside_the_published_one(published_text, cache, capsys, split, right):
    (cache / "wikitext-2").mkdir(parents=True, exist_ok=True)
    file = cache / "wikitext-2" / f"{split}.txt"
    file.write_bytes(b"mine")
    load_text("wikitext-2")
    assert file.read_bytes() == right
    assert file.with_name(f"{split}.txt.refused").read_bytes() == b"mine"
    assert f"{split}.txt.refused" in capsys.readouterr().out


def test_a_split_that_a_text_does_not_have_is_named():
    with pytest.raises(CorpusError, match=r"'tset'.*train, valid, test"):
        load_text("pride-and-prejudice")["tset"]


def test_what_is_served_is_checked_against_the_real_checksums(server, cache):
    answers, _ = server
    answers["/train.txt"] = TRAIN
    with pytest.raises(
        CorpusError, match=r"is git-blob:7ebed753.*, expected git-blob:2d84b35af79e411d73ea7cae83c73964c6ac83b4"
    ):
        load_text("wikitext-2")["train"]
    assert not [path for path in cache.rglob("*") if path.is_file()]


@needs_wikitext2
def test_the_real_files_come_through_the_download(server, cache):
    answers, _ = server
    lines = {}
    for split in ("valid", "test"):
        answers[f"/{split}.txt"] = (SHARED_DATA / "wikitext-2" / f"{split}.txt").read_bytes()
        lines[split] = answers[f"/{split}.txt"].decode().removesuffix("\n").split("\n")
    assert [sum(len(line.split()) + 1 for line in lines[split]) for split in lines] == [217_646, 245_569]
    text = load_text("wikitext-2-valid")
    assert text["train"] + text["valid"] == [line.strip() for line in lines["valid"]]
    assert text["test"] == [line.strip() for line in lines["test"]]
    assert len(text["train"]) == round(0.9 * len(lines["valid"]))


def test_a_novel_comes_with_the_library():
    text = load_text("pride-and-prejudice")
    assert (text.language, text.splits) == ("en", ("train", "valid", "test"))
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


def test_one_side_of_a_parallel_corpus_is_a_text():
    text = load_text("sample")
    assert (text.language, text.splits) == ("en", ("train", "val", "test"))
    assert text["test"] == [pair.tgt for pair in load_corpus()["test"]]
    assert load_text("sample", "de")["test"] == [pair.src for pair in load_corpus()["test"]]
    with pytest.raises(CorpusError, match=r"train\.fr cannot be read"):
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
        assert (again.name, again.splits) == (one.name, one.splits)
        assert again["test"] == one["test"]


def test_a_text_file_is_split_into_three_parts(tmp_path):
    lines = [f"line {i}" for i in range(20)]
    (tmp_path / "my.novel.txt").write_text("\n".join(lines), encoding="utf-8")
    text = load_text(tmp_path / "my.novel.txt", "en")
    assert (text.name, text.language, text.splits) == ("my.novel", "en", ("train", "valid", "test"))
    assert [text[split] for split in text.splits] == [lines[:18], lines[18:19], lines[19:]]


def test_each_split_of_a_short_text_has_a_line(tmp_path):
    for n in (3, 4, 8, 9, 10, 11, 19, 20, 100):
        lines = [f"line {i}" for i in range(n)]
        (tmp_path / "short.txt").write_text("\n".join(lines), encoding="utf-8")
        text = load_text(tmp_path / "short.txt")
        assert [*text["train"], *text["valid"], *text["test"]] == lines
        assert min(len(text["valid"]), len(text["test"])) >= 1 and len(text["train"]) >= 0.9 * n - 2


def test_a_folder_of_text_files_is_a_text(tmp_path):
    for name in ("train.txt", "test_b.txt", "test_a.txt", "test_a.txt.bak", "test_a.txt~"):
        (tmp_path / name).write_text(f"{name}\n\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"valid\.txt cannot be read"):
        load_text(tmp_path)
    (tmp_path / "valid.txt.gz").write_bytes(gzip.compress(b"packed\n"))
    text = load_text(tmp_path)
    assert text.splits == ("train", "valid", "test_a", "test_b")
    assert text.language is None
    assert text["train"] == ["train.txt", ""]
    assert text["valid"] == ["packed"]


def test_an_unknown_text_lists_the_known_ones():
    with pytest.raises(CorpusError, match="text is 'wikitext-103', expected one of wikitext-2, wikitext-2-valid"):
        load_text("wikitext-103")
