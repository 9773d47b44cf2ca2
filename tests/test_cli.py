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
import sacrebleu
from conftest import OPTIMIZER, PAIRS

from transformer_lib import Translator, cli
from transformer_lib.checkpoint import save_model
from transformer_lib.console import read_lines
from transformer_lib.data.corpora import CorpusError, Pair, load_corpus
from transformer_lib.options import EXAMPLES, parser

COMMANDS = ["train", "translate", "train-lm", "generate", "evaluate", "export", "download", "info"]


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
        options = ["--min-freq", "1", "--epochs", "60", "--batch-size", "4", "--device", "cpu"]
        assert cli.main([*arguments, *options]) == 0
    return folder / "run", printed.getvalue()


@pytest.fixture
def trained_folder(trained_once, tmp_path):
    shutil.copytree(trained_once[0], tmp_path / "run")
    return tmp_path / "run", trained_once[1]


def type_in(monkeypatch, typed, encoding="utf-8"):
    """Let the standard input hold these bytes, on a system whose locale has this encoding."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding=encoding))


def test_from_training_to_translations(trained_folder, corpus_folder, capsys, tmp_path, monkeypatch):
    folder, output = trained_folder
    assert "epoch  60/60" in output
    assert "test: 8 pairs, perplexity 1." in output
    assert "torchtext bleu_score" in output and "sacreBLEU nrefs:1|case:lc|eff:no|tok:13a" in output

    assert cli.main(["evaluate", str(folder)]) == 0
    evaluated = capsys.readouterr().out
    bleu_lines = [line for line in output.splitlines() if line.startswith("BLEU")]
    assert bleu_lines and [line for line in evaluated.splitlines() if line.startswith("BLEU")] == bleu_lines

    assert cli.main(["translate", "--model", str(folder), "Ein Hund schläft.", "Das Kind schläft."]) == 0
    assert capsys.readouterr().out == "a dog is sleeping.\nthe child is sleeping.\n"

    for unseen in ("\u200b", "\ue000"):
        assert cli.main(["translate", "--model", str(folder), unseen, "Ein Hund schläft."]) == 0
        assert capsys.readouterr().out.splitlines()[1:] == ["a dog is sleeping."]

    picture = tmp_path / "map.png"
    assert cli.main(["translate", "--model", str(folder), "--attention", str(picture), "Ein Hund schläft."]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()

    type_in(monkeypatch, "Ein Hund schläft.\n\n".encode())
    assert cli.main(["translate", "--model", str(folder), "--attention", str(tmp_path / "map.svg")]) == 0
    assert capsys.readouterr().out == "a dog is sleeping.\n\n"

    type_in(monkeypatch, "Ein Hund schläft.\n\nDas Kind schläft.\n".encode())
    assert cli.main(["translate", "--model", str(folder), "--beam-size", "3"]) == 0
    assert capsys.readouterr().out == "a dog is sleeping.\n\nthe child is sleeping.\n"

    assert cli.main(["info", str(folder)]) == 0
    assert "d_model" in capsys.readouterr().out


def test_the_lines_of_a_file_are_translated_and_a_file_in_place_of_a_sentence_is_noticed(
    trained_folder, tmp_path, capsys, monkeypatch
):
    translate = ["translate", "--model", str(trained_folder[0]), "--scores"]
    file = tmp_path / "german.txt"
    file.write_text("Ein Hund schläft.\n\nEin Hund schläft.\n", encoding="utf-8")
    assert cli.main([*translate, "--input", str(file)]) == 0
    first, empty, last, _ = capsys.readouterr().out.split("\n")
    assert first == last and first.startswith("a dog is sleeping.\t-") and empty == ""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert cli.main([*translate, "--input", "-"]) == 0
    assert capsys.readouterr().out.split("\n")[:3] == [first, empty, last]
    for path in (tmp_path, tmp_path / "missing.txt"):
        assert cli.main([*translate, "--input", str(path)]) == 1
        assert f"--input is {path}, expected a file" in capsys.readouterr().err
    assert cli.main([*translate, "--input", str(file), "Ein Hund."]) == 1
    assert "--input is for the lines of a file, but there are sentences" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert cli.main([*translate, "german.txt"]) == 0
    assert "german.txt is a file, translated as a sentence: did you mean --input?" in capsys.readouterr().err
    assert cli.main([*translate, f"Ein {'ä' * 300} schläft."]) == 0  # too long for the name of a file


def test_the_standard_input_is_utf_8_whatever_the_locale_and_a_bad_line_loses_that_line(
    trained_folder, capsys, monkeypatch
):
    translate = ["translate", "--model", str(trained_folder[0])]
    sentence = "Ein Hund schläft.\n".encode()
    for typed, encoding in ((codecs.BOM_UTF8 + sentence, "utf-8"), (sentence, "latin-1"), (sentence, "ascii")):
        type_in(monkeypatch, typed, encoding)
        assert cli.main(translate) == 0
        assert capsys.readouterr().out == "a dog is sleeping.\n"

    too_long = b"ein " * 300 + b"\n"
    type_in(monkeypatch, sentence + b"\n" + "schläft\n".encode("latin-1") + too_long + sentence)
    assert cli.main(translate) == 1
    captured = capsys.readouterr()
    assert captured.out == "a dog is sleeping.\n\n\n\na dog is sleeping.\n"
    assert "line 3: it is not UTF-8" in captured.err and "line 4: sentence has 302 tokens" in captured.err
    assert "2 of 5 lines could not be used" in captured.err

    type_in(monkeypatch, "Ein Kind.\n".encode("utf-16-le"))
    assert cli.main(translate) == 1 and "line 1: it holds zero bytes, as UTF-16 does" in capsys.readouterr().err

    monkeypatch.setattr(sys, "stdin", None)  # `<&-`
    assert cli.main(translate) == 1 and "the standard input is closed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"ein\nhund", ["ein", "hund"]),
        (b"ein\r\n\r\nhund\r\n", ["ein", "", "hund"]),
        (codecs.BOM_UTF8 + b"ein\rhund\r", ["ein", "hund"]),
        (codecs.BOM_UTF8 + b"ein\n\n\xff\nhund\n", ["ein", "", None, "hund"]),
        ("ein\nhunä\n\n".encode() * 20_000, ["ein", "hunä", ""] * 20_000),
        (b"ein\n" + b" " * 300_000 + b"hund\nein", ["ein", "hund", "ein"]),
    ],
    ids=["nothing", "no end", "Windows", "old Mac", "with a mark", "many lines", "a long line"],
)
def test_a_file_is_read_line_by_line_however_it_is_cut_into_blocks(trained, tmp_path, content, expected, capsys):
    (tmp_path / "file").write_bytes(content)
    blocks = list(read_lines(trained, tmp_path / "file"))
    assert [line for block in blocks for line in block] == expected
    assert len(blocks) >= len(content) // 2**16 or len(expected) == 3  # a block is whole lines


@pytest.mark.skipif(sys.platform == "win32", reason="another process is interrupted in another way there")
def test_a_line_is_translated_when_it_comes_and_an_interruption_loses_nothing(trained_folder):
    command = [sys.executable, "-m", "transformer_lib", "translate", "--model", str(trained_folder[0])]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # which a shell's background ignores
    with subprocess.Popen([*command, "--device", "cpu"], **pipes, env=buffered, preexec_fn=heard) as process:
        giving_up = threading.Timer(300, process.kill)
        giving_up.start()
        for _ in range(2):
            process.stdin.write("Ein Hund schläft.\n\n".encode())
            process.stdin.flush()
            assert process.stdout.readline() + process.stdout.readline() == b"a dog is sleeping.\n\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert re.match(rb"[24] lines translated\n", process.stderr.read())
        giving_up.cancel()


def test_a_folder_called_sample_is_not_the_sample_corpus(corpus_folder, tmp_path, capsys):
    folder = corpus_folder.rename(corpus_folder.with_name("sample"))
    run, exported = str(tmp_path / "run"), str(tmp_path / "exported.safetensors")
    assert cli.main(["train", "--corpus", str(folder), "--output", run, "--min-freq", "1", "--epochs", "1"]) == 0
    capsys.readouterr()
    assert cli.main(["evaluate", run]) == 0
    assert capsys.readouterr().out.startswith("sample test: 8 pairs")  # the embedded corpus has more

    for file in ("model.safetensors", "training_state.pt"):
        assert cli.main(["export", run, str(tmp_path / "run" / file)]) == 1
        assert "is a model itself, or a training's, which would be lost" in capsys.readouterr().err
    assert cli.main(["export", run]) == 1  # the name of the new file was forgotten
    assert "usage: export MODEL FILE" in capsys.readouterr().err
    assert cli.main(["export", run, exported]) == 0 and cli.main(["info", exported]) == 0
    assert str(tmp_path) not in capsys.readouterr().out.partition("configuration")[2]  # where it was trained
    assert cli.main(["evaluate", exported]) == 1
    assert "corpus is '…/sample', expected one of sample, multi30k" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be called that there")
def test_what_files_and_folders_are_called_does_not_reach_the_terminal_as_commands(corpus_folder, tmp_path, capsys):
    for ending in ("de", "en"):
        (corpus_folder / f"test.{ending}").rename(corpus_folder / f"test\x1b[2J.{ending}")
    corpus_folder = corpus_folder.rename(corpus_folder.with_name("tiny\x1b[31m"))
    run = ["--corpus", str(corpus_folder), "--output", str(tmp_path / "run\x1b[1m")]
    assert cli.main(["train", *run, "--min-freq", "1", "--epochs", "1"]) == 0
    assert cli.main(["evaluate", run[-1]]) == 0
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err and "test [2J: 8 pairs" in printed.out


def test_the_command_that_a_training_suggests_can_be_pasted(trained_folder, capsys):
    _, output = trained_folder
    program, *arguments = shlex.split(output.splitlines()[-1].removeprefix("Try it:"))
    assert program == "transformer-lib" and cli.main(arguments) == 0
    assert capsys.readouterr().out == "a dog is sleeping.\n"  # what its first validation sentence means


def test_the_best_recipe_on_a_corpus_of_ones_own(corpus_folder, tmp_path, capsys):
    best, exported = str(tmp_path / "best"), str(tmp_path / "exported.safetensors")
    arguments = ["train", "--corpus", str(corpus_folder), "--preset", "multi30k-best", "--output", best]
    changes = "precision=float32", f"optimizer={OPTIMIZER}"
    assert cli.main([*arguments, "--subwords", "80", "--epochs", "2", "--set", *changes]) == 0
    output = capsys.readouterr().out
    assert "subwords  80 types" in output and "model     multi30k_best" in output
    assert "BLEU, beam 4, length penalty " in output

    assert cli.main(["export", best, exported]) == 0
    assert capsys.readouterr().out.startswith(f"{exported}: ")
    sizes = [
        path.stat().st_size for path in (tmp_path / "best" / "model.safetensors", tmp_path / "exported.safetensors")
    ]
    assert 1.9 < sizes[0] / sizes[1] < 2.1
    scores = []
    for model in (best, exported):
        assert cli.main(["evaluate", model, "--corpus", str(corpus_folder), "--split", "test"]) == 0
        scores.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("BLEU")])
    assert scores[0] == [line for line in output.splitlines() if line.startswith("BLEU")]
    assert [line.split(":")[0] for line in scores[1]] == [line.split(":")[0] for line in scores[0]]
    assert cli.main(["evaluate", best, "--beam-size", "2", "--length-penalty", "0.4"]) == 0
    assert "BLEU, beam 2, length penalty 0.4" in capsys.readouterr().out


def test_multi30ks_own_preset_trains_on_multi30k(monkeypatch):
    asked = []

    def not_now(name, *languages):
        asked.append(name)
        raise CorpusError("not now")

    monkeypatch.setattr(cli, "load_corpus", not_now)
    assert [cli.main(["train", "--preset", preset]) for preset in ("multi30k-best", "small")] == [1, 1]
    assert asked == ["multi30k", "sample"]


def test_from_training_a_language_model_to_text(tmp_path, capsys):
    novel = tmp_path / "novel.txt"
    novel.write_text("Red orange yellow green blue .\n" * 40, encoding="utf-8")
    folder = tmp_path / "lm"
    arguments = ["train-lm", "--corpus", str(novel), "--language", "en", "--output", str(folder), "--device", "cpu"]
    options = ["--batch-size", "2", "--bptt", "8", "--learning-rate", "0.5"]
    assert cli.main([*arguments, *options, "--epochs", "2"]) == 0
    output = capsys.readouterr().out
    assert "text      novel: 224 tokens to train on, 28 to validate" in output
    assert "epoch   2/2" in output
    assert "novel test: 28 tokens, 0.0% of them <unk>, loss " in output
    assert output.endswith(f"generate --model {folder} Red\n")

    assert cli.main([*arguments, *options, "--epochs", "3"]) == 1
    assert "resume it (--resume)" in capsys.readouterr().err
    assert cli.main([*arguments, *options, "--epochs", "4", "--resume"]) == 0
    resumed = capsys.readouterr().out
    assert "epoch   4/4" in resumed and "epoch   2/" not in resumed

    assert cli.main(["evaluate", str(folder)]) == 0
    assert capsys.readouterr().out == next(line for line in resumed.splitlines(True) if line.startswith("novel test"))
    assert cli.main(["evaluate", str(folder), "--split", "valid"]) == 0
    assert capsys.readouterr().out.startswith("novel valid: 28 tokens")
    assert cli.main(["info", str(folder)]) == 0
    assert "vocab_size         9" in capsys.readouterr().out

    request = ["generate", "--model", str(folder), "--temperature", "0", "Red"]
    assert cli.main([*request, "--length", "5"]) == 0
    assert capsys.readouterr().out == "Red orange yellow green blue.\n"
    drawn = []
    for seed in range(4):
        assert cli.main(["generate", "--model", str(folder), "--temperature", "50", "--seed", str(seed), "Red"]) == 0
        drawn.append(capsys.readouterr().out)
    assert len(set(drawn)) > 1  # all words are nearly as likely now
    assert cli.main([*request, "--top-k", "0"]) == 1
    assert "top_k is 0" in capsys.readouterr().err
    for option, value in (("precision", "int8"), ("beam-size", "1"), ("length-penalty", "0")):
        assert cli.main(["evaluate", str(folder), f"--{option}", value]) == 1
        assert f"--{option} needs a translator, but this model is a language model" in capsys.readouterr().err
    assert cli.main(["evaluate", str(folder), "--corpus", str(novel), str(novel)]) == 1
    assert "--corpus has 2 files, but a language model reads one text" in capsys.readouterr().err
    novel.write_text("Red orange .\n" * 4, encoding="utf-8")
    assert cli.main(["train-lm", "--corpus", str(novel), "--output", str(tmp_path / "new")]) == 1
    printed = capsys.readouterr()
    assert "no text in those from 5 to 4, its part 'test'" in printed.err and "epoch" not in printed.out
    assert cli.main(["translate", "--model", str(folder), "Hallo"]) == 1
    assert "holds a language model, expected a translator" in capsys.readouterr().err


def test_a_second_training_does_not_overwrite_the_first_but_can_resume_it(trained_folder, corpus_folder, capsys):
    folder, _ = trained_folder
    again = ["train", "--corpus", str(corpus_folder), "--output", str(folder), "--min-freq", "1", "--batch-size", "4"]
    assert cli.main(again) == 1
    assert "resume it (--resume)" in capsys.readouterr().err
    assert cli.main([*again, "--epochs", "61", "--resume"]) == 0
    output = capsys.readouterr().out
    assert "epoch  61/61" in output and "epoch  60/" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--corpus", "nowhere"], "corpus is 'nowhere', expected one of sample, multi30k"),
        (["train", "--device", "tpu"], "device is 'tpu'"),
        (["train", "--epochs", "0"], "epochs is 0, expected a positive whole number"),
        (["train", "--src", "fr"], "corpus 'sample' has no train.fr"),
        (["translate", "--model", "nowhere", "Hallo"], "nowhere does not exist: train a model first"),
        (["evaluate", "nowhere"], "nowhere does not exist"),
        (["info", "nowhere"], "nowhere does not exist"),
        (["train-lm", "--corpus", "nowhere"], "text is 'nowhere', expected one of wikitext-2, "),
        (["train-lm", "--corpus", "sample", "--language", "fr"], "language is 'fr'"),
        (["train-lm", "--corpus", "sample", "--bptt", "0"], "bptt is 0, expected a positive whole number"),
        (["train-lm", "--corpus", "sample", "--batch-size", "90000"], "expected at least 180000, two for each of"),
        (["train-lm", "--corpus", "sample", "--bptt", "20000", "--output", "."], "20,000"),
        (["generate", "Hello"], "`transformer-lib train-lm` (a language model)"),
        (
            ["train", "--batch-size", "4", "--max-tokens", "99"],
            "batch_size is 4 and max_tokens is 99, which say the same in two units",
        ),
        (
            ["train", "--set", "batch_size=4", "max_tokens=99"],
            "batch_size is 4 and max_tokens is 99, which say the same in two units",
        ),
        (["train", "--subwords", "99", "--min-freq", "2"], "min_freq is 2, which is for words, but there will be 99"),
        (["translate", "--length-penalty", "500", "Hallo"], "length_penalty is 500.0, expected 0"),
        (["translate", "--beam-size", "1", "--length-penalty", "1", "Hallo"], "--length-penalty is for a beam"),
        (["evaluate", "--beam-size", "1", "--length-penalty", "1"], "--length-penalty is for a beam"),
    ],
)
def test_an_error_is_one_line_without_a_traceback(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"transformer-lib {arguments[0]}: error: ")
    assert message in printed
    assert printed.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # and nothing half-made is left


def test_scores_come_with_chrf_and_another_tokenizer_if_asked_for(trained_folder, corpus_folder, capsys):
    folder, _ = trained_folder
    pairs = load_corpus(corpus_folder)["test"]
    pairs = [Pair(pair.src, f"{pair.tgt} tomorrow") for pair in pairs]  # as no translation is
    for side, text in (("de", [pair.src for pair in pairs]), ("en", [pair.tgt for pair in pairs])):
        (corpus_folder / f"test.{side}").write_text("\n".join(text) + "\n", encoding="utf-8")
    scores = ["--chrf", "--sacrebleu-tokenize", "char"]
    assert cli.main(["evaluate", str(folder), "--corpus", str(corpus_folder), *scores]) == 0
    printed = capsys.readouterr().out
    translations = [one.text for one in Translator.load(folder).translate([pair.src for pair in pairs])]
    references = [[pair.tgt for pair in pairs]]
    expected = sacrebleu.corpus_bleu(translations, references, tokenize="char", lowercase=True).score
    assert "|tok:char|" in printed and f" {expected:.2f} " in printed.split("sacreBLEU")[0].splitlines()[-1]
    expected = sacrebleu.CHRF(lowercase=True).corpus_score(translations, references).score
    assert f" {expected:.2f} " in next(line for line in printed.splitlines() if line.startswith("chrF"))


@pytest.mark.skipif(importlib.util.find_spec("ctranslate2") is None, reason="ctranslate2 is not installed")
def test_an_export_for_ctranslate2_is_quantized_if_asked_for(trained_folder, tmp_path, capsys):
    import ctranslate2

    folder, _ = trained_folder
    sizes = []
    for more in ([], ["--quantization", "int8"]):
        output = tmp_path / f"exported{len(more)}"
        assert cli.main(["export", str(folder), str(output), "--to", "ctranslate2", *more]) == 0
        assert str(output) in capsys.readouterr().out
        sizes.append((output / "model.bin").stat().st_size)
        theirs = ctranslate2.Translator(str(output), intra_threads=1)
        (result,) = theirs.translate_batch([["ein", "hund", "schläft", "."]])
        assert " ".join(result.hypotheses[0]) == "a dog is sleeping ."
    assert sizes[1] < sizes[0]


def test_an_export_replaces_no_file(trained_folder, tmp_path, capsys):
    """Whoever forgets to name the new file names an old one: their model."""
    folder, _ = trained_folder
    mine, thesis = tmp_path / "mine.safetensors", tmp_path / "thesis.txt"
    assert cli.main(["export", str(folder), str(mine)]) == 0
    thesis.write_text("precious")
    before = mine.read_bytes()
    for arguments in ([str(mine)], [str(mine), str(thesis)]):
        capsys.readouterr()
        assert cli.main(["export", *arguments]) == 1
        assert "exists: name a new file, or remove it first" in capsys.readouterr().err
    assert mine.read_bytes() == before and thesis.read_text() == "precious"
    assert cli.main(["export", str(mine), str(tmp_path / "new"), "--quantization", "float32"]) == 1
    assert "--quantization is for --to ctranslate2" in capsys.readouterr().err


def test_a_sentence_that_is_too_long_costs_that_sentence_and_not_the_score(corpus_folder, tmp_path, capsys):
    for side, sentence in (("de", "Ein Hund"), ("en", "a dog")):
        with open(corpus_folder / f"test.{side}", "a", encoding="utf-8") as file:
            file.write(" ".join([sentence] * 20) + "\n")
    small = ["--set", "max_len=30", "d_model=16", "d_ff=16", "num_heads=2", "num_layers=1"]
    run = ["--corpus", str(corpus_folder), "--output", str(tmp_path / "run"), "--epochs", "1", "--min-freq", "1"]
    assert cli.main(["train", *run, *small]) == 0
    printed = capsys.readouterr().out
    assert "1 of 9 pairs left out, too long" in printed and "test: 8 pairs, perplexity" in printed
    assert cli.main(["evaluate", str(tmp_path / "run"), "--corpus", str(corpus_folder)]) == 0
    assert "test: 8 pairs, perplexity" in capsys.readouterr().out


def test_wrong_usage_exits_with_2(capsys):
    for arguments in ([], ["fly"], ["train", "--preset", "huge"], ["train", "--epochs", "many"]):
        with pytest.raises(SystemExit) as exit_info:
            cli.main(arguments)
        assert exit_info.value.code == 2


def test_ctrl_c_is_one_line_even_while_pytorch_is_being_loaded(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(cli.__file__).parent.parent}")
    result = subprocess.run([sys.executable, "-m", "transformer_lib", "info"], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently there")
def test_who_reads_the_beginning_of_the_output_only_sees_no_error():
    read, write = os.pipe()
    os.close(read)  # as `head` does when it has enough
    result = subprocess.run([sys.executable, "-m", "transformer_lib", "info"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (result.returncode, result.stderr) == (1, b"")


def test_a_terminal_without_umlauts_gets_the_help_all_the_same(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    with pytest.raises(SystemExit):
        cli.main(["translate", "--help"])
    terminal.seek(0)
    assert "Zwei junge M?nner spielen" in terminal.read()


def test_what_goes_to_a_file_or_a_pipe_is_utf_8_whatever_the_locale(monkeypatch):
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, encoding="cp1252"))
    with pytest.raises(SystemExit):
        cli.main(["translate", "--help"])
    sys.stdout.flush()
    assert "Zwei junge Männer spielen" in file.getvalue().decode()


def test_an_option_and_a_change_of_the_same_name_are_refused(tmp_path, capsys):
    assert cli.main(["train", "--epochs", "3", "--set", "epochs=1", "--output", str(tmp_path / "run")]) == 1
    assert "--epochs and --set epochs say the same: give one of them" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_model_that_does_not_say_what_it_was_trained_on_is_not_scored_on_something_else(trained, tmp_path, capsys):
    save_model(tmp_path / "m.safetensors", trained.model, {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer})
    assert cli.main(["evaluate", str(tmp_path / "m.safetensors")]) == 1
    assert "the model does not say what it was trained on, or that was a list: give --corpus" in capsys.readouterr().err


def test_only_the_end_of_a_line_ends_a_line(trained_folder, tmp_path, capsys):
    file = tmp_path / "german.txt"
    file.write_bytes("Ein Hund\rschläft.\r\n\u2028\nEin Hund schläft.".encode())
    assert cli.main(["translate", "--model", str(trained_folder[0]), "--input", str(file)]) == 0
    assert capsys.readouterr().out == "a dog is sleeping.\n\na dog is sleeping.\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_shows_examples_that_parse(command, capsys):
    with pytest.raises(SystemExit) as exit_info:
        cli.main([command, "--help"])
    assert exit_info.value.code == 0
    printed = capsys.readouterr().out
    assert f"examples:\n  transformer-lib {command}" in printed
    for line in EXAMPLES[command].splitlines()[1:]:
        words = shlex.split(line.split("     (")[0].split(" < ")[0])
        program = "transformer_lib" if words[0] == "torchrun" else "transformer-lib"
        parser().parse_args(words[words.index(program) + 1 :])


def test_info_describes_the_installation(capsys):
    assert cli.main(["info"]) == 0
    printed = capsys.readouterr().out
    assert "transformer-lib" in printed and "sample, multi30k" in printed
    assert f"Python {platform.python_version()}" in printed


def test_python_dash_m_runs_it():
    result = subprocess.run(
        [sys.executable, "-m", "transformer_lib", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("transformer-lib ")


def test_a_test_split_that_cannot_be_read_is_known_before_training(corpus_folder, tmp_path, capsys):
    (corpus_folder / "test.de").write_bytes(b"Ein \xff\n")
    output = tmp_path / "runs"
    assert cli.main(["train", "--corpus", str(corpus_folder), "--epochs", "1", "--output", str(output)]) == 1
    assert "test.de is not UTF-8" in capsys.readouterr().err
    assert not output.exists()
