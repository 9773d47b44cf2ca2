"""The command line, as its users type it: what goes in, what comes out, what a mistake says."""

import codecs
import contextlib
import functools
import importlib.util
import io
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from conftest import OPTIMIZER, PAIRS

from transformer_lib import Translator, cli, load_model, save_model
from transformer_lib.data.corpora import CorpusError
from transformer_lib.interop.hugging_face import to_hugging_face

SMALL = ["d_model=32", "d_ff=64", "num_heads=4", "dropout=0", "learning_rate=3e-3", "warmup_steps=0"]
COMMANDS = ["train", "translate", "evaluate", "export", "download"]


def write_corpus(folder):
    folder.mkdir()
    for split in ("train", "val", "test"):
        (folder / f"{split}.de").write_text("".join(f"{pair.src}\n" for pair in PAIRS), encoding="utf-8")
        (folder / f"{split}.en").write_text("".join(f"{pair.tgt}\n" for pair in PAIRS), encoding="utf-8")
    return folder


@pytest.fixture
def corpus_folder(tmp_path):
    return write_corpus(tmp_path / "tiny")


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    folder, printed = tmp_path_factory.mktemp("trained"), io.StringIO()
    arguments = ["train", "--corpus", str(write_corpus(folder / "tiny")), "--output", str(folder / "run")]
    with contextlib.redirect_stdout(printed):
        options = ["--min-freq", "1", "--epochs", "15", "--device", "cpu", "--set", "batch_size=1", *SMALL]
        assert cli.main([*arguments, *options]) == 0
    return folder / "run", printed.getvalue()


@pytest.fixture
def trained_folder(trained_once, tmp_path):
    shutil.copytree(trained_once[0], tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def printed_by(capsys):
    """Run a command, compare its exit code, and return what it printed."""

    def run(*words, code=0):
        capsys.readouterr()
        assert cli.main([str(word) for word in words]) == code
        return capsys.readouterr()

    return run


def type_in(monkeypatch, typed, encoding="utf-8"):
    """Let the standard input hold these bytes, on a system whose locale has this encoding."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding=encoding))


def scores_in(printed):
    return [line for line in printed.splitlines() if line.startswith("BLEU")]


# training, and what comes after


def test_from_training_to_scores_and_translations(trained_once, printed_by, tmp_path):
    folder, output = trained_once
    assert "epoch  15/15" in output and "test: 8 pairs, perplexity 1." in output
    assert "torchtext bleu_score" in output and "sacreBLEU nrefs:1|case:lc|eff:no|tok:13a" in output
    assert scores_in(printed_by("evaluate", folder).out) == scores_in(output) != []

    translate = ["translate", "--model", folder]
    both = printed_by(*translate, "--beam-size", "3", "Ein Hund schläft.", " ", "Das Kind schläft.").out
    assert both == "a dog is sleeping.\n\nthe child is sleeping.\n"
    picture = tmp_path / "map.png"
    assert printed_by(*translate, "--attention", picture, "Ein Hund schläft.").out == "a dog is sleeping.\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert (
        "--attention draws one sentence, but there are 2"
        in printed_by(*translate, "--attention", picture, "Ein Hund.", "Ein Kind.", code=1).err
    )


def test_the_command_that_a_training_run_suggests_can_be_pasted(trained_once, printed_by):
    program, *arguments = shlex.split(trained_once[1].splitlines()[-1].removeprefix("Try it:"))
    assert program == "transformer-lib"
    assert printed_by(*arguments).out == "a dog is sleeping.\n"  # what its first validation sentence means


def test_a_second_training_run_does_not_overwrite_the_first_but_can_resume_it(
    trained_folder, corpus_folder, printed_by
):
    again = ["train", "--corpus", corpus_folder, "--output", trained_folder, "--min-freq", "1"]
    again += ["--set", "batch_size=1", *SMALL]
    assert "resume it (--resume)" in printed_by(*again, code=1).err
    output = printed_by(*again, "--epochs", "16", "--resume").out
    assert "epoch  16/16" in output and "epoch  15/" not in output


def test_the_best_recipe_on_a_corpus_of_ones_own_and_its_export(corpus_folder, tmp_path, printed_by):
    best, exported = tmp_path / "best", tmp_path / "exported.safetensors"
    arguments = ["train", "--corpus", corpus_folder, "--preset", "multi30k-best", "--output", best]
    changes = "precision=float32", f"optimizer={OPTIMIZER}", "d_model=64", "d_ff=128", "max_len=24"
    output = printed_by(*arguments, "--epochs", "1", "--set", "subwords=80", *changes).out
    assert "subwords  80 de" in output and "BLEU, beam 4, length penalty " in output

    assert str(exported) in printed_by("export", best, exported).out
    assert 1.9 < (best / "model.safetensors").stat().st_size / exported.stat().st_size < 2.1
    assert scores_in(printed_by("evaluate", best).out) == scores_in(output)
    scores = scores_in(printed_by("evaluate", exported, "--corpus", corpus_folder, "--split", "test").out)
    assert [score.split(":")[0] for score in scores] == [score.split(":")[0] for score in scores_in(output)]
    searching = ["--beam-size", "2", "--length-penalty", "0.4"]
    assert "BLEU, beam 2, length penalty 0.4" in printed_by("evaluate", best, *searching).out


@pytest.fixture
def opened(monkeypatch):
    """What ``load_corpus`` is asked for, which it does not return."""
    asked = []

    def not_now(name, *languages):
        asked.append((name, *languages))
        raise CorpusError("not now")

    monkeypatch.setattr(cli, "load_corpus", not_now)
    return asked


def test_what_two_files_names_end_in_are_their_languages(opened, printed_by, trained_once, tmp_path):
    for names, options, languages in (
        (["text.en", "text.ko"], [], ("en", "ko")),
        (["text.en.gz", "a.b/text.zh_CN"], [], ("en", "zh")),
        (["text.en", "text.ko"], ["--src", "en"], ("en", "ko")),
        (["text.txt", "text.raw"], [], ("de", "en")),
        (["en/text.zh", "text.tok"], ["--src", "zh_TW", "--tgt", "fr"], ("zh_TW", "fr")),
        (["folder.ko"], [], ("de", "en")),
    ):
        for command in (["train", "--corpus", *names], ["prepare", *names, "--output", tmp_path / "new"]):
            assert "languages" not in printed_by(*command, *options, code=1).out
            assert opened.pop()[1:] == languages
    printed = printed_by("train", "--corpus", "text.en", "text.ko", "--src", "en", "--tgt", "kr", code=1).out
    assert opened.pop()[1:] == ("en", "kr")
    (line,) = printed.splitlines()
    assert "text.ko" in line and "'kr'" in line
    printed = printed_by("evaluate", trained_once[0], "--corpus", "text.en", "text.de", code=1).out
    assert "text.en" in printed and "text.de" in printed  # which are in the wrong order


def test_what_an_export_would_need_is_said_before_the_training(trained_once, corpus_folder, tmp_path, printed_by):
    before, _, _ = trained_once[1].partition("model  ")
    (change,) = re.findall(r"Hugging Face.*--set (.*)", before)
    small = ["--epochs", "1", "--min-freq", "1", "--device", "cpu", "--set", *SMALL, *change.split()]
    output = printed_by("train", "--corpus", corpus_folder, "--output", tmp_path / "run", *small).out
    assert "Hugging Face" not in output
    pytest.importorskip("transformers")
    to_hugging_face(Translator.load(tmp_path / "run"), tmp_path / "theirs")
    with pytest.raises(ValueError, match=change.split()[0].partition("=")[0]):
        to_hugging_face(Translator.load(trained_once[0]), tmp_path / "not there")


def test_multi30ks_own_presets_train_on_multi30k(opened):
    assert [cli.main(["train", "--preset", preset]) for preset in ("multi30k-best", "small")] == [1, 1]
    assert [asked[0] for asked in opened] == [["multi30k"], ["sample"]]


def test_a_sentence_that_is_too_long_costs_that_sentence_and_not_the_score(corpus_folder, tmp_path, printed_by):
    for side, words in (("de", "Ein Hund"), ("en", "a dog")):
        with open(corpus_folder / f"test.{side}", "a", encoding="utf-8") as file:
            file.write(" ".join([words] * 20) + "\n")
    small = ["--set", "max_len=30", "d_model=16", "d_ff=16", "num_heads=2", "num_layers=1"]
    run = ["--corpus", corpus_folder, "--output", tmp_path / "run", "--epochs", "1", "--min-freq", "1"]
    output = printed_by("train", *run, *small).out
    assert "1 of 9 pairs left out: pair " in output and "test: 8 pairs, perplexity" in output


# lines in, lines out


def test_a_line_in_is_a_line_out_and_one_that_cannot_be_used_is_named_and_stays_empty(
    trained_once, tmp_path, printed_by, monkeypatch
):
    translate = ["translate", "--model", trained_once[0]]
    sentence = "Ein Hund schläft.\r\n".encode()
    for typed, encoding in ((codecs.BOM_UTF8 + sentence, "utf-8"), (sentence, "latin-1"), (sentence, "ascii")):
        type_in(monkeypatch, typed, encoding)
        assert printed_by(*translate).out == "a dog is sleeping.\n"

    bad = ["schläft\n".encode("latin-1"), b"ein " * 300 + b"\n"]
    mixed = sentence + "\n\u2028\n".encode() + b"".join(bad) + "Ein Hund\rschläft.".encode()
    file = tmp_path / "german.txt"
    file.write_bytes(mixed)
    for source in (file, "-"):
        type_in(monkeypatch, mixed)
        printed = printed_by(*translate, "--input", source, code=1)
        assert printed.out == "a dog is sleeping.\n" + "\n" * 4 + "a dog is sleeping.\n"
        named = re.findall(r"^line (\d+): (.*)$", printed.err, re.MULTILINE)
        assert [number for number, _ in named] == ["4", "5"]
        assert "UTF-8" in named[0][1] and "302 tokens" in named[1][1]
        assert "2 of 6 lines could not be used" in printed.err

    file.write_text("Ein Hund schläft.\n\nEin Hund schläft.\n", encoding="utf-8")
    first, empty, last, _ = printed_by(*translate, "--scores", "--input", file).out.split("\n")
    assert first == last and re.fullmatch(r"a dog is sleeping\.\t-\d+\.\d{3}", first) and empty == ""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="another process is interrupted in another way there")
def test_a_line_that_is_typed_is_translated_at_once_until_ctrl_c(trained_once):
    terminal, typed_at = os.openpty()
    command = [sys.executable, "-m", "transformer_lib", "translate", "--model", str(trained_once[0])]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # which a shell's background ignores
    with subprocess.Popen([*command, "--device", "cpu"], stdin=typed_at, **pipes, preexec_fn=heard) as process:
        giving_up = threading.Timer(300, process.kill)
        giving_up.start()
        for _ in range(2):
            os.write(terminal, "Ein Hund schläft.\n\n".encode())
            assert process.stdout.readline() + process.stdout.readline() == b"a dog is sleeping.\n\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == b"interrupted\n"
        giving_up.cancel()


# handing a model on


def test_an_export_replaces_nothing(trained_folder, tmp_path, printed_by):
    """Whoever forgets to name the new file names an old one: their model."""
    mine, thesis = tmp_path / "mine.safetensors", tmp_path / "thesis.txt"
    printed_by("export", trained_folder, mine)
    thesis.write_text("precious")
    files = [mine, thesis, *trained_folder.iterdir()]
    before = [file.read_bytes() for file in files]
    for names in [[mine], [trained_folder], *([trained_folder, file] for file in files)]:
        assert f"{names[-1]} exists" in printed_by("export", *names, code=1).err
    assert [file.read_bytes() for file in files] == before


def test_an_export_does_not_say_where_the_corpus_is_nor_take_it_for_another(corpus_folder, tmp_path, printed_by):
    folder = corpus_folder.rename(corpus_folder.with_name("sample"))
    run, exported = tmp_path / "run", tmp_path / "exported.safetensors"
    printed_by("train", "--corpus", folder, "--output", run, "--min-freq", "1", "--epochs", "1")
    assert printed_by("evaluate", run).out.startswith("sample test: 8 pairs")  # the embedded corpus has more
    printed_by("export", run, exported)
    assert str(tmp_path) not in str(load_model(exported).notes)
    assert "say so with --corpus" in printed_by("evaluate", exported, code=1).err


def test_an_export_keeps_every_weight_finite(trained_folder, tmp_path, printed_by):
    saved, exported = load_model(trained_folder), tmp_path / "exported.safetensors"
    name, weight = next(iter(saved.model.state_dict().items()))
    with torch.no_grad():
        weight.flatten()[0] = 70_000.0
    save_model(tmp_path / "large.safetensors", saved.model, saved.tokenizers)
    assert "70,000" in printed_by("export", tmp_path / "large.safetensors", exported).out
    assert load_model(exported).model.state_dict()[name].equal(weight)


@pytest.mark.skipif(importlib.util.find_spec("ctranslate2") is None, reason="ctranslate2 is not installed")
def test_an_export_for_ctranslate2_is_quantized_if_asked_for(trained_once, tmp_path, printed_by):
    import ctranslate2

    sizes = []
    for more in ([], ["--quantization", "int8"]):
        output = tmp_path / f"exported{len(more)}"
        (output / ".unfinished").mkdir(parents=True)  # an earlier call was killed
        assert str(output) in printed_by("export", trained_once[0], output, "--to", "ctranslate2", *more).out
        sizes.append((output / "model.bin").stat().st_size)
        theirs = ctranslate2.Translator(str(output), intra_threads=1)
        (result,) = theirs.translate_batch([["ein", "hund", "schläft", "."]])
        assert " ".join(result.hypotheses[0]) == "a dog is sleeping ."
    assert sizes[1] < sizes[0]


def test_no_quantization_is_asked_for_in_vain(trained_once, tmp_path, printed_by):
    exported = tmp_path / "exported.safetensors"
    error = printed_by("export", trained_once[0], exported, "--quantization", "int8", code=1).err
    assert "quantization is int8" in error and not exported.exists()


def test_a_model_is_scored_neither_on_something_else_nor_on_what_another_machine_has(trained, tmp_path, printed_by):
    path, tokenizers = tmp_path / "m.safetensors", {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}
    remote = (
        "//host/share",
        "\\\\host\\share",
        "\\/host/share",
        "mine.de\n//host/mine.en",
        ["mine.de", "//host/mine.en"],
    )
    for corpus in (*remote, "", "pairs", [], None, 5, {"a": 1}, ["sample", 5]):
        save_model(path, trained.model, tokenizers, {"corpus": corpus})
        assert "say so with --corpus" in printed_by("evaluate", path, code=1).err


def test_a_model_finds_its_corpus_again_also_if_version_0_2_0_wrote_it(trained, tmp_path, printed_by):
    model, tokenizers = tmp_path / "m.safetensors", {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}
    files = [str(tmp_path / f"text.{language}") for language in ("de", "en")]
    for side, file in enumerate(files):
        Path(file).write_text("".join(f"{pair[side]} {i}\n" for i in range(5) for pair in PAIRS), encoding="utf-8")
    for noted in ("\n".join(files), files):
        save_model(model, trained.model, tokenizers, {"corpus": noted})
        assert printed_by("evaluate", model).out.startswith("text test: 2 pairs")
    for noted in ("sample", ["sample"]):
        save_model(model, trained.model, tokenizers, {"corpus": noted})
        assert "sample val: 500 pairs" in printed_by("evaluate", model, "--split", "val").out


# mistakes, and the terminal


def test_a_mistake_is_one_line_without_a_traceback(printed_by, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command, message in {
        "train --corpus nowhere": "corpus is 'nowhere'",
        "train --device tpu": "device is 'tpu'",
        "train --epochs 0": "epochs is 0",
        "train --src fr": "train.fr",
        "train --set epochs": "epochs is ''",
        "train --set src_vocab_size=3": "src_vocab_size",
        "translate --model nowhere Hallo": "nowhere",
        "translate --length-penalty 500 Hallo": "length_penalty is 500.0",
        "translate --input nowhere": "nowhere",
        "translate --input .": "'.'",
        "evaluate nowhere": "nowhere",
        "translate --input nowhere Hallo": "--input is nowhere",
    }.items():
        printed = printed_by(*command.split(), code=1).err
        assert printed.startswith("transformer-lib: error: ") and message in printed, printed
        assert printed.count("\n") == 1
        assert list(tmp_path.iterdir()) == []  # and nothing half-made is left


def test_wrong_usage_exits_with_2():
    for command in (
        "",
        "fly",
        "train --preset huge",
        "train --epochs many",
        "train --set d_modle=3",
        "train --precision int8",
    ):
        with pytest.raises(SystemExit) as exit_info:
            cli.main(command.split())
        assert exit_info.value.code == 2, command


def test_every_command_has_a_help_whose_examples_parse(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as exit_info:
            cli.main([command, "--help"])
        assert exit_info.value.code == 0
        for line in re.findall(
            r"^(?:transformer-lib|torchrun.* -m transformer_lib) (.*)", capsys.readouterr().out, re.M
        ):
            assert line.startswith(command) and cli.parser().parse_args(shlex.split(line.split(" > ")[0]))


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be called that there")
def test_what_files_and_folders_are_called_does_not_reach_the_terminal_as_commands(corpus_folder, tmp_path, printed_by):
    for ending in ("de", "en"):
        (corpus_folder / f"test.{ending}").rename(corpus_folder / f"test\x1b[2J.{ending}")
    run = tmp_path / "run\x1b[1m"
    trained = ["--corpus", corpus_folder.rename(corpus_folder.with_name("tiny\x1b[31m")), "--output", run]
    printed = [printed_by("train", *trained, "--min-freq", "1", "--epochs", "1"), printed_by("evaluate", run)]
    printed.append(printed_by("export", run, tmp_path / "new\x1b[1m.safetensors"))
    assert "\x1b" not in "".join(page.out + page.err for page in printed) and "test [2J: 8 pairs" in printed[0].out


def test_a_file_or_a_pipe_gets_utf_8_whatever_the_locale_and_a_terminal_what_it_can_show(monkeypatch):
    for encoding, is_terminal, expected in (("cp1252", False, "schläft"), ("ascii", True, "schl?ft")):
        output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        output.isatty = lambda is_terminal=is_terminal: is_terminal
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit):
            cli.main(["translate", "--help"])
        output.flush()
        assert expected in output.buffer.getvalue().decode()


def test_a_picture_that_cannot_be_written_leaves_the_old_one(trained_once, tmp_path, printed_by, monkeypatch):
    def half(figure, file, **options):
        Path(file).write_bytes(b"half")
        raise OSError("no space left")

    picture = tmp_path / "map.png"
    picture.write_bytes(b"precious")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    translate = ["translate", "--model", trained_once[0], "--attention", picture, "Ein Hund schläft."]
    assert "no space left" in printed_by(*translate, code=1).err
    assert picture.read_bytes() == b"precious" and [*tmp_path.iterdir()] == [picture]


def test_the_version_says_what_runs_where(capsys):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["--version"])
    printed = capsys.readouterr().out
    assert exit_info.value.code == 0
    assert printed.startswith("transformer-lib ") and f"Python {platform.python_version()}" in printed
