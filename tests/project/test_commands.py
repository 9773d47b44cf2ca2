"""Every command that the documents and the Makefile name is run, small: a new one that nothing runs fails here."""

import argparse
import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_notebooks import set_repository
from test_translator_in_browser import site  # noqa: F401 - a fixture

from transformer_lib import cli
from transformer_lib.__main__ import main
from transformer_lib.data.corpora import load_corpus

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "data/README.md", "assets/MODEL_CARD.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "book").glob("*.md"))
PROGRAMS = {"transformer-lib", "torchrun", "python", "python3", "py", "make", "pip", "pipx", "conda", "jupyter", "git"}
BENCHMARKS = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"contenders"}

# How each begins, and why it is not run here.
NOT_RUN = {
    "transformer-lib download": "takes a network; tests/test_corpora.py downloads from a server of its own",
    "transformer-lib --version": "tests/test_cli.py runs it",
    "conda": "takes a network",
    "git branch -m main": "tests/project/test_published.py runs what is beside it",
    "git clone": "takes a network",
    "git diff": "it only shows",
    **{f"git {word}": "tests/project/test_published.py runs it" for word in ("init", "add", "commit", "push")},
    "pip": "takes a network; the workflows install, and tests/project/test_wheel.py does so without one",
    "pipx": "takes a network",
    "python -m pip": "the workflows run it",
    "python -m spacy download": "takes a network",
    "python the_transformer.py": "takes minutes, and Multi30k; tests/test_the_transformer.py runs its commands, small",
    "python3 -m venv": "the workflows run it",
    "py -m venv": "the same, on Windows",
    "jupyter lab": "opens a browser",
    "jupyter nbconvert --execute": "takes minutes, and Multi30k; nbval runs the notebooks' cells",
    "python -m transformer_exercises": "its own tests do, in tests/project",
    "python -m pytest --nbval-lax tests notebooks": "it is what runs this",
    "python assets/draw_figures.py": "writes into the tree; tests/project/test_figures.py draws elsewhere",
    "py tools/set_repository.py": "changes files; tests/project/test_notebooks.py does so in a copy",
    "python assets/draw_try_it.py": "takes the whole book, and writes into the tree",
    "python tools/listings.py": "changes the notebooks; tests/test_session.py runs what it calls",
    "python tools/trust_notebooks.py": "changes what Jupyter trusts; test_notebooks.py runs what it calls",
    "python tests/project/list_licences.py": "tests/project/test_supply_chain.py compares what it prints",
    "python tests/project/test_devices.py": "takes hours; as a test, the file runs a part",
    "python tests/project/versions.py": "takes a network, and hours",
}
# The targets of make that neither a workflow nor a test below runs, and why.
TARGETS = {
    "notebooks": "takes many minutes; make test runs each notebook, small",
    "check": "a part of make test",
    "lab": "opens a browser",
    "lint": "changes files; make test runs both of its commands without",
    "outputs": "changes the notebooks; takes hours",
    "repository": "changes files; tests/project/test_notebooks.py does so in a copy",
    "clean": "removes the environment that runs this",
}


def named_in(text):
    """The commands in blocks and in the text, without comments; each by its program's own name."""
    fences = r"^```(\w*)\n(.*?)^```$"
    blocks = [
        code for kind, code in re.findall(fences, text, re.MULTILINE | re.DOTALL) if kind in ("", "bash", "shell")
    ]
    text = re.sub(fences, "", text, flags=re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^(?: {4}.+\n)+", text, re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *(" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text))]:
        command = re.sub(r"\s+#.*", "", line.strip())
        command = re.sub(r"^([A-Z_]+=\S+ )*(\.venv[/\\](bin|Scripts)[/\\])?", "", command)
        if command.split(" ")[0] in PROGRAMS and " " in command and "…" not in command:
            yield command


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def texts_of(page):
    """A page as it is, and the README also as it is once the repository has an address, on GitHub or elsewhere."""
    addresses = ["", "https://github.com/some-one/one", "https://codeberg.org/some-one/one"] * (page == "README.md")
    return [read(page), *(set_repository.with_address(read(page), address) for address in addresses)]


def of_make(*targets):
    """What make would run."""
    if not shutil.which("make"):
        pytest.skip("there is no make here")
    make = ["make", "-C", ROOT, "--dry-run", "--no-print-directory", "--old-file=.venv/ready", *targets]
    printed = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    return [re.sub(r"^\s*\.venv/bin/", "", line) for line in re.split("\n|; ", printed)]


COMMANDS = [(page, command) for page in PAGES for command in dict.fromkeys(named_in("\n".join(texts_of(page))))]


def words_after(command, *programs):
    """The words of a command after the name of one of these programs, or None if it starts another."""
    words = shlex.split(command.split(" > ")[0])
    return next((words[number + 1 :] for number, word in enumerate(words) if word in programs), None)


def benchmark_of(command):
    """The name of the benchmark that a command starts, if it starts one."""
    started = re.match(r"(?:python|torchrun .*) benchmarks/(\w+)\.py\b", command)
    return started and started[1]


def reason_not_to_run(command):
    return next((reason for start, reason in NOT_RUN.items() if command.startswith(start)), None)


def test_every_command_is_run_by_a_test_below_or_has_a_reason():
    for page, command in COMMANDS:
        known = words_after(command, "transformer-lib", "transformer_lib", "make") or benchmark_of(command)
        known = known or command.startswith(
            ("python -m pytest tests/", "python data/generate_sample.py", "python tools/measure_voice.py")
        )
        assert known or reason_not_to_run(command), f"{page}: nothing runs {command!r}"
    for start in NOT_RUN:
        assert any(command.startswith(start) for _, command in COMMANDS), f"no page names {start!r} any more"


# the library's own command


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the files that the commands name, of few sentences."""
    monkeypatch.chdir(tmp_path)
    pairs = load_corpus("sample")["train"][:24]
    for language in ("de", "en", "es"):
        lines = "".join(f"{pair.tgt if language == 'en' else pair.src}\n" for pair in pairs)
        for name in ("text", "multi30k", "few/train", "few/val", "few/test"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / f"{name}.{language}").write_text(lines, encoding="utf-8")
    shutil.copy("text.de", "german.txt")
    (tmp_path / "assets").mkdir()
    shutil.copy(ROOT / "assets" / "multi30k_best.safetensors", "assets")
    return tmp_path


def run_small(words):
    """Run a command with what makes it small behind it; train the model that it names before, if it is not there."""
    name, small = words[0], []
    if name == "train":
        small = ["--set", "d_model=16", "d_ff=16", "num_heads=2", "num_layers=1", "subwords=0"]
        small += ["--epochs", "2" if "--resume" in words else "1", "--device", "cpu"]
        if not any(word.startswith(("text.", "multi30k.")) for word in words):
            small += ["--corpus", "few"]
        if "--resume" not in words:
            shutil.rmtree("runs", ignore_errors=True)
    elif name == "evaluate":
        small = ["--corpus", "few", "--split", "test"]
    for word in words[1:]:
        if name != "train" and re.fullmatch("MODEL|run|runs/.*", word) and not Path(word).exists():
            run_small(["train", "--output", word])
    assert cli.main([*words, *small]) == 0, [*words, *small]


def of_the_library(commands):
    """The words of each command that starts the library and that can be run here."""
    words = [words_after(command, "transformer-lib", "transformer_lib") for command in commands]
    return [these for these, command in zip(words, commands, strict=True) if these and not reason_not_to_run(command)]


def run_with_input(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Ein Hund.\n")))
    run_small(words)
    assert capsys.readouterr().out.strip(), words


def test_of_each_command_of_the_library_the_first_that_a_page_has_runs(workplace, monkeypatch, capsys):
    first = {words[0]: words for words in reversed(of_the_library([command for _, command in COMMANDS]))}
    assert {"train", "translate", "evaluate", "export"} <= set(first)
    for words in first.values():
        run_with_input(words, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*PAGES, "make train"])
def test_a_page_s_commands_of_the_library_run_one_after_the_other(page, workplace, monkeypatch, capsys):
    for words in of_the_library(of_make("train") if page == "make train" else list(named_in(read(page)))):
        run_with_input(words, monkeypatch, capsys)


@pytest.mark.slow
def test_torchrun_trains_with_two_processes_as_the_results_say(workplace):
    command, *_ = [command for command in named_in(read("book/results.md")) if command.startswith("torchrun")]
    small = ["--corpus", "few", "--epochs", "1", "--set", "d_model=16", "num_heads=2", "subwords=0", "--device", "cpu"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run([*torchrun, *shlex.split(command)[1:], *small], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(Path("runs").glob("*/model.safetensors"))


def test_the_command_is_installed():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="transformer-lib")
    assert command.load() is main and shutil.which(command.name, path=Path(sys.executable).parent)


# benchmarks

SMALLER = {  # than TRANSFORMER_LIB_FAST_DEV_RUN=1 makes them, where a command asks for more
    "fast": ["--rounds", "1"],
    "recipes": ["checkpoints", "--seeds", "1"],
    "gpu": ["--stand-in", "--only", "float16", "notebooks"],
}


def of_benchmarks():
    """The commands that start benchmarks: those of the pages, of make, and of the benchmarks' own docstrings."""
    docstrings = "".join(read(f"benchmarks/{name}.py").split('"""')[1] for name in sorted(BENCHMARKS))
    commands = [*(command for _, command in COMMANDS), *of_make("bench", "bench-gpu"), *named_in(docstrings)]
    return [command for command in commands if benchmark_of(command)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_benchmark_runs_to_its_end_and_writes_its_file(name, tmp_path, request):
    pytest.importorskip("resource", reason="Windows measures memory in another way")
    commands = [command for command in of_benchmarks() if benchmark_of(command) == name]
    command = next(command for command in commands if not command.endswith(("--plan", "--draw")))  # which only print
    smaller = SMALLER.get(name, [])
    if name == "translator_page":
        if not shutil.which("node"):
            pytest.skip("node is not installed: apt-get install nodejs")
        request.getfixturevalue("_chromium")
        smaller = ["--book", request.getfixturevalue("site")]
    elif name == "gpu":
        smaller = [*smaller, "--folder", tmp_path / "gpu"]
    program, *words = shlex.split(command.replace("benchmarks/", f"{ROOT}/benchmarks/"))
    start = [sys.executable] if program == "python" else [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = {**os.environ, "TRANSFORMER_LIB_FAST_DEV_RUN": "1", "OMP_NUM_THREADS": "1"}
    file = tmp_path / "result.json"
    arguments = [*start, *words, *smaller, "--output", file]
    done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.read_text(encoding="utf-8"))
    if name == "gpu":
        assert [stage["ended"] for stage in result["stages"].values()] == ["well", "well"], result


class Understood(Exception):
    pass


def test_benchmarks_know_the_options_that_they_are_said_to_have(monkeypatch):
    pytest.importorskip("resource", reason="Windows measures memory in another way")
    understand = argparse.ArgumentParser.parse_args

    def only_parse(parser, *arguments):
        understand(parser, *arguments)
        raise Understood

    for command in of_benchmarks():
        name = benchmark_of(command)
        listed = ["--list"] if name == "recipes" else []  # which says what it would do, once it knows the rows
        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", understand if listed else only_parse)
        monkeypatch.setattr(sys, "argv", [name, *words_after(command, f"benchmarks/{name}.py"), *listed])
        with contextlib.suppress(Understood):
            importlib.import_module(name).main()


# make, and everything else


def test_make_lists_its_targets_and_each_is_run_or_has_a_reason():
    targets = set(re.search(r"^\.PHONY: (.+)$", read("Makefile"), re.MULTILINE)[1].split())
    if shutil.which("make"):
        helped = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True).stdout
        assert {*re.findall(r"^make ([\w-]+)", helped, re.MULTILINE), "help"} == targets
    workflows = "".join(path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    run = {"help", "train", "bench", "bench-gpu", *re.findall(r"^ *- run: make ([\w-]+)", workflows, re.MULTILINE)}
    assert run | set(TARGETS) == targets and not run & set(TARGETS)
    for page, command in COMMANDS:
        if command.startswith("make "):
            assert set(re.sub(r"[A-Z]+=\S+", "", command).split()[1:]) <= targets, f"{page}: {command}"


def test_pytest_finds_tests_where_the_pages_say():
    for page, command in COMMANDS:
        if command.startswith("python -m pytest tests/"):
            file, *options = words_after(command, "pytest")
            which = options[options.index("-k") + 1] if "-k" in options else ""
            assert re.search(rf"^def test_\w*{which}", read(file), re.MULTILINE), f"{page}: {command}"


@pytest.mark.slow
def test_the_sample_corpus_is_generated_and_described_as_its_page_says(tmp_path):
    for command in named_in(read("data/README.md")):
        if words := words_after(command, "data/generate_sample.py"):
            generate = [sys.executable, ROOT / "data" / "generate_sample.py", *words, "--out", tmp_path]
            assert subprocess.run(generate, capture_output=True, text=True, check=True).stdout.strip(), command


def test_the_readme_s_three_lines_print_what_they_say():
    (code,) = re.findall(r"^```python\n(from.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().strip() == code.rpartition("# ")[2].strip()


def test_how_a_notebook_sounds_is_measured():
    ((_, command),) = [given for given in COMMANDS if "measure_voice" in given[1]]
    program, *arguments = command.split()[1:]
    done = subprocess.run([sys.executable, ROOT / program, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.match(r"03_masks +\d+ words +\d+\.\d a sentence  we \d", done.stdout)
    measure_voice = importlib.import_module("measure_voice")
    sound = measure_voice.measure(
        "We’ve cut it (it was too long). Now it isn't `a b`; it holds 3 (of 4).".replace("’", "'")
    )
    assert sound[1:4] == (2, 1, 2) and sound.brackets == ["it was too long"]
