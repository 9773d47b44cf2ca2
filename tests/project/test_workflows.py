"""The workflows on GitHub do what pages and Makefile say, in versions that pyproject.toml allows, with few rights."""

import itertools
import re
import shlex
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

yaml = pytest.importorskip("yaml", reason="PyYAML, which comes with JupyterLab, is not installed")
tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# only where something is published, and in no job that runs code of ours
MAY_WRITE = {("book", "publish"): {"pages", "id-token"}, ("release", "publish"): {"id-token"}}


def parsed(path):
    return yaml.load(path.read_text("utf-8"), yaml.BaseLoader)  # whose "on" and "3.10" stay what they are


def jobs():
    return [(path.stem, name, job) for path in WORKFLOWS for name, job in parsed(path)["jobs"].items()]


pytestmark = pytest.mark.slow
project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def commands(job):
    """The words of each command that a job runs."""
    text = "\n".join(step["run"] for step in job["steps"] if "run" in step).replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def pythons(job):
    versions = job.get("strategy", {}).get("matrix", {}).get("python", [])
    return versions + [
        step["with"]["python-version"]
        for step in job["steps"]
        if "python-version" in step.get("with", {}) and "$" not in step["with"]["python-version"]
    ]


def test_a_workflow_may_read_knows_no_secret_and_stops_what_is_out_of_date():
    assert WORKFLOWS
    for path in WORKFLOWS:
        workflow = parsed(path)
        assert not re.search(r"secrets\.|GITHUB_TOKEN|password", path.read_text("utf-8")), path
        assert workflow["permissions"] == {"contents": "read"}, path
        assert "group" in workflow["concurrency"], path
        assert "pull_request_target" not in workflow["on"], path


def test_a_job_ends_has_few_rights_and_pins_what_it_uses():
    for workflow, name, job in jobs():
        assert int(job["timeout-minutes"]) <= (360 if workflow == "nightly" else 90), (workflow, name)
        rights = job.get("permissions", {})
        assert set(rights) == MAY_WRITE.get((workflow, name), set()), (workflow, name)
        assert not (rights and commands(job)), (workflow, name)
        for step in job["steps"]:
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] == "false", (workflow, name)


def test_the_commands_and_files_that_a_job_names_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for _, _, job in jobs():
        for words in commands(job):
            if words[0] == "make":
                assert set(words[1:]) <= targets, words
            for option, value in itertools.pairwise(words):
                if option in ("--ignore", "--conf-dir") or (option == "-c" and value.endswith(".txt")):
                    assert (ROOT / value).exists(), words
        for step in job["steps"]:
            if cached := step.get("with", {}).get("cache-dependency-path"):
                assert (ROOT / cached).is_file(), cached


def test_every_test_runs_each_night():
    nightly = parsed(ROOT / ".github" / "workflows" / "nightly.yml")
    assert nightly["on"]["schedule"]
    assert ["make", "test-all"] in [words for job in nightly["jobs"].values() for words in commands(job)]


def test_other_systems_run_what_the_page_on_installing_says_and_the_tests_that_make_test_runs():
    job = parsed(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["systems"]
    without_torch = [words for words in commands(job) if words[-1] != "torch"]
    install, test = (" ".join(words[1:]) for words in without_torch)
    page = (ROOT / "book" / "install.md").read_text("utf-8").replace('"', "")
    assert f".venv/bin/python {install}\n" in page and f".venv\\Scripts\\python {install}\n" in page
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for part in test.removeprefix("-m pytest ").split(" --nbval-lax "):
        assert part in makefile


def test_the_pythons_are_those_that_the_package_is_for():
    tested = {version for _, _, job in jobs() for version in pythons(job)}
    named = {name.split(" :: ")[-1] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)}
    assert tested == named
    assert min(tested, key=Version) == project["requires-python"].removeprefix(">=")


def test_colabs_versions_are_allowed():
    bounds = {need.name: need.specifier for need in map(Requirement, project["dependencies"])}
    pins = [Requirement(line) for line in (ROOT / ".github" / "colab.txt").read_text("utf-8").splitlines()[1:]]
    for pin in pins:
        (version,) = (part.version.removesuffix(".*") for part in pin.specifier)
        assert bounds.get(pin.name, SpecifierSet()).contains(version)
