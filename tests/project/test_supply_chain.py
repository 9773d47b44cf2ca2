"""What the library stands on: packages in exact versions, under known licences, and none that calls home."""

import email
import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

import list_licences
import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def needed():
    """What this project needs, where constraints.txt chose the versions; its first line says for which Python."""
    python, system = re.search(r"CPython (\d+\.\d+), (\w+)", list_licences.CONSTRAINTS.read_text("utf-8")).groups()
    here = (platform.python_implementation(), ".".join(platform.python_version_tuple()[:2]), platform.system())
    if here != ("CPython", python, system):
        pytest.skip(f"constraints.txt is for CPython {python} on {system}; other packages may be needed here")
    try:
        packages = list_licences.needed()
    except PackageNotFoundError as error:
        pytest.skip(f"{error.name} is not installed here, so this is not the environment that make sets up")
    if len(other_versions(packages)) > len(packages) / 2:
        pytest.skip("most versions here are not those of constraints.txt: something else, such as Colab, chose them")
    return packages


def other_versions(packages):
    """Packages that are not installed in the version that is pinned. A build, such as torch's +cpu, is no version."""
    pins = list_licences.pins()
    return {name: version(name) for name in packages if name in pins and not pins[name].contains(version(name), True)}


def pins_for(python):
    """The exact pins of constraints.txt that count on a Python, as Linux has it: {package: version}."""
    here = {**default_environment(), "python_version": python, "python_full_version": f"{python}.20"}
    lines = [line for line in list_licences.CONSTRAINTS.read_text("utf-8").splitlines() if line and line[0] != "#"]
    counting = [need for need in map(Requirement, lines) if need.marker is None or need.marker.evaluate(here)]
    return here, {canonicalize_name(need.name): str(need.specifier).removeprefix("==") for need in counting}


def conflicts(here, pins, packages):
    """What a pinned package says of itself that these pins do not allow: its Python, and what it needs."""
    found = []
    for package in packages:
        name = canonicalize_name(package.name)
        if package.version.split("+")[0] != pins.get(name) and name != list_licences.PROJECT:
            continue
        pythons = SpecifierSet(package.metadata.get("Requires-Python") or "")
        if not pythons.contains(here["python_full_version"]):
            found.append(f"{name} {package.version} needs Python {pythons}")
        for need in map(Requirement, package.requires or ()):
            extras = ("", "book", "notebooks", "test", "export", "cookbook") if name == list_licences.PROJECT else ("",)
            applies = need.marker is None or any(need.marker.evaluate({**here, "extra": extra}) for extra in extras)
            pinned = pins.get(canonicalize_name(need.name))
            if applies and pinned and not need.specifier.contains(pinned, prereleases=True):
                found.append(f"{name} {package.version} needs {need}, pinned is {pinned}")
    return found


def test_the_pins_fit_every_python_that_the_package_is_for():
    """Offline, by what is installed: what the packages of these versions say of themselves.

    A pin of what is not installed here needs a network: see "Versions" in CONTRIBUTING.md.
    """
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    pythons = re.findall(r'^ +"Programming Language :: Python :: (3\.\d+)",$', project, re.M)
    assert "3.10" in pythons and len(pythons) >= 5
    packages = list(distributions())
    _, here = pins_for(".".join(platform.python_version_tuple()[:2]))
    as_pinned = [one for one in packages if one.version.split("+")[0] == here.get(canonicalize_name(one.name))]
    if len(as_pinned) < len(here) / 2:
        pytest.skip("most versions here are not those of constraints.txt: something else, such as Colab, chose them")
    found = {python: conflicts(*pins_for(python), packages) for python in pythons}
    assert not any(found.values()), found


def table():
    """The rows of LICENSES.md by package: version, licence, purposes and what brings it."""
    rows = re.findall(
        r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", (ROOT / "LICENSES.md").read_text("utf-8"), re.M
    )
    return {name: rest for name, *rest in rows[2:]}


@pytest.mark.slow
def test_every_package_that_is_needed_is_pinned_to_the_version_that_is_tested(needed):
    pins = {name: str(pin) for name, pin in list_licences.pins().items()}
    assert not [name for name in needed if not re.fullmatch(r"==[^*,]+", pins.get(name, ""))]
    assert not other_versions(needed)


@pytest.mark.slow
def test_the_list_of_licences_is_what_its_script_writes_from_what_is_needed(needed):
    """Versions, purposes and all; where this fails, run the script again."""
    assert set(table()) == set(needed)
    assert "UNKNOWN" not in [row[1] for row in table().values()]
    assert (ROOT / "LICENSES.md").read_text("utf-8") == list_licences.page()


@pytest.mark.slow
def test_copyleft_licences_are_pointed_out():
    sentence = (ROOT / "LICENSES.md").read_text("utf-8").splitlines()[-1]
    copyleft = {name for name, row in table().items() if re.search("GPL|MPL|GNU|Mozilla|EPL|EUPL|CDDL|BY-SA", row[1])}
    assert set(re.findall(r"[:,] ([\w-]+) \(", sentence)) == copyleft


def test_a_licence_is_read_from_where_the_metadata_says_most():
    for fields, licence in (
        ("License-Expression: MIT OR Apache-2.0\nLicense: BSD", "MIT OR Apache-2.0"),
        ("License: BSD-3-Clause\nClassifier: License :: OSI Approved :: BSD License", "BSD-3-Clause"),
        ("License: Copyright …\nClassifier: License :: OSI Approved :: MIT License", "MIT"),
        ("License: mine\nClassifier: License :: A\nClassifier: License :: B", "A, B"),
        ("License: Ask me\n first", "Ask me"),
        ("Name: nobody", "UNKNOWN"),
    ):
        assert list_licences.licence(email.message_from_string(fields)) == licence


# Runs alone, in a new interpreter: a hook cannot be taken away again. It stops what it sees, so that nothing is sent.
CALLS_HOME = """
import json, sys

CALLS = {"connect", "getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo", "sendto", "sendmsg", "bind"}
EVENTS = {f"socket.{call}" for call in CALLS} | {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty"}
EVENTS |= {"os.posix_spawn", "os.spawn"}
seen = []

def hook(event, args):
    if event == "socket.bind" and args[1][0] in ("127.0.0.1", "::1"):
        return  # urllib3 tries out on import whether this machine has IPv6; nobody else can reach that address
    if event == "subprocess.Popen" and args[0] in ("fc-list", "system_profiler", "/sbin/ldconfig"):
        return  # matplotlib asks the system for its fonts when first used, a CUDA build of PyTorch for a library
    if event in EVENTS:
        seen.append(f"{event} {args}")
        raise PermissionError(seen[-1])

sys.addaudithook(hook)

import importlib, os, pkgutil, socket, subprocess
import torch
import transformer_lib

torch.set_num_threads(1)
modules = {module.name for module in pkgutil.walk_packages(transformer_lib.__path__, "transformer_lib.")}
modules.remove("transformer_lib.__main__")  # would run the command line
for module in modules:
    importlib.import_module(module)
from transformer_lib import Transformer, TransformerConfig, Translator, load_corpus
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import CorpusError, Pair
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

tokenizers = WordTokenizer("de"), WordTokenizer("en")
data = make_dataset([Pair("Ein Hund schläft.", "A dog sleeps."), Pair("Eine Katze.", "A cat.")], *tokenizers)
build_vocabularies(data, min_freq=1)
sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "max_len": 20}
model = Transformer(TransformerConfig(*(len(tokenizer.vocab) for tokenizer in tokenizers), **sizes))
fit(model, data, data, Recipe(epochs=1, batch_size=2), log=lambda line: None)
translation = Translator(model, *tokenizers)("Ein Hund schläft.")
work = list(seen)

noticed = {}
def attempt(event, call, error=PermissionError):
    seen.clear()
    try:
        call()
    except error:
        pass
    noticed[event] = [line.split()[0] for line in seen]

udp = socket.socket(type=socket.SOCK_DGRAM)
attempt("socket.connect", lambda: socket.socket().connect(("127.0.0.1", 9)))
attempt("socket.sendto", lambda: udp.sendto(b"", ("127.0.0.1", 9)))
attempt("socket.bind", lambda: udp.bind(("", 0)))
attempt("socket.gethostbyname", lambda: socket.gethostbyname("localhost"))
attempt("subprocess.Popen", lambda: subprocess.run([sys.executable, "-c", ""]))
attempt("os.system", lambda: os.system("true"))
attempt("socket.getaddrinfo", lambda: load_corpus("multi30k")["val"], CorpusError)  # as a user downloads
print(json.dumps({"modules": sorted(modules), "translation": translation, "work": work, "noticed": noticed}))
"""


@pytest.fixture(scope="module")
def calls_home(tmp_path_factory):
    """What was seen of calls to the network and to other programs while the library worked, then while we made some."""
    environment = {
        **os.environ,
        "TRANSFORMER_LIB_DATA": str(tmp_path_factory.mktemp("nothing")),
        "OMP_NUM_THREADS": "1",
    }
    result = subprocess.run([sys.executable, "-c", CALLS_HOME], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
def test_neither_importing_nor_training_nor_translating_touches_the_network_or_starts_a_program(calls_home):
    loaded = {module.removeprefix("transformer_lib.") for module in calls_home["modules"]}
    assert {"model.attention", "data.corpora", "training.trainer", "cli"} <= loaded
    assert isinstance(calls_home["translation"], str)
    assert calls_home["work"] == []


@pytest.mark.slow
def test_a_call_to_the_network_or_a_program_would_have_been_noticed(calls_home):
    for event, seen in calls_home["noticed"].items():
        assert set(seen) == {event}
