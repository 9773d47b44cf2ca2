"""The library, its exercises and the series on devices that this machine lacks: `standin_device.py`, as each of three.

`make test` runs a small part of it, as Apple's; this file run as a program, as `make test-all` does, runs all, or what
is named (`test_devices.py cuda old`), says what failed as soon as a device is through, and prints two tables.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
KINDS = {"cuda": "NVIDIA's", "old": "NVIDIA's, old (T4)", "mps": "Apple's"}
IN_SMALL = "picks or refuses or computes_what_it_computes_on_a_cpu and learned"
ELSEWHERE = {"test_cli.py", "test_distributed.py", "test_package.py"}  # start processes, which know no stand-in
STARTUP = "import standin_device\nstandin_device.install()\n"  # of a notebook's kernel


def run(kind, folder, *what):
    """Run tests and notebooks on the stand-in.

    Returns:
        What ``read_report`` does, and what was printed.
    """
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "stand_in.py").write_text(STARTUP, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"STANDIN": kind, "IPYTHONDIR": str(folder), "PYTHONPATH": str(ROOT / "tests")}
    environment |= {"TRANSFORMER_LIB_FAST_DEV_RUN": "1", "OMP_NUM_THREADS": "1"}
    report = folder / "report.xml"
    nbval = ["--nbval-lax"] if any(str(one).endswith(".ipynb") for one in what) else ["-p", "no:nbval"]
    options = ["-p", "standin_device", *nbval, "-q", f"--junitxml={report}", "-o", "junit_family=xunit1"]
    command = [sys.executable, "-m", "pytest", *options, *map(str, what)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8")
    return *read_report(report), done.stdout + done.stderr


def read_report(report):
    """Return how many tests and cells passed or not, what they noted down, and the names of those that failed."""
    counts, notes, failures = Counter(), {}, []
    for case in ElementTree.parse(report).iter("testcase"):
        noted = {noted.get("name"): noted.get("value") for noted in case.iter("property")}
        what = "cells" if case.get("name").startswith("Cell ") else "tests"
        failed = case.find("failure") is not None or case.find("error") is not None
        if case.find("skipped") is None:
            counts[what, "failed" if failed else "passed"] += 1
            counts["used"] += not failed and noted.pop("operations", "0") != "0"
        failures += [f"{case.get('classname')}::{case.get('name')}"] * failed
        if "on_a_device" in case.get("classname"):
            notes |= {name: value for name, value in noted.items() if name != "operations"}
    return counts, notes, failures


def test_the_library_works_on_a_stand_in_for_apples_gpu(tmp_path):
    counts, _, _, printed = run("mps", tmp_path, ROOT / "tests/project/on_a_device.py", "-k", IN_SMALL)
    assert counts["tests", "passed"] and not counts["tests", "failed"], printed


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_works_on_a_device_like(kind, tmp_path):
    files = ROOT / "tests/project/on_a_device.py", ROOT / "notebooks" / "05_the_transformer.ipynb"
    counts, _, _, printed = run(kind, tmp_path, *files)
    assert counts["tests", "passed"] and counts["cells", "passed"], printed
    assert not counts["tests", "failed"] + counts["cells", "failed"], printed


def passed_of(counts, what):
    passed = counts[what, "passed"]
    return f"{passed:,} of {passed + counts[what, 'failed']:,}"


def main(kinds):
    """Run everything as each kind of device, and print what failed, and the two tables."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        sys.exit(f"device is {unknown[0]!r}, expected one of {', '.join(KINDS)}")
    tests = [path for path in sorted((ROOT / "tests").glob("test_*.py")) if path.name not in ELSEWHERE]
    tests += [ROOT / "tests/project/on_a_device.py", ROOT / "tests/project/test_exercises.py"]
    notebooks = sorted((ROOT / "notebooks").rglob("[0-9]*.ipynb"))
    options = ["--numprocesses", "2", "--dist", "loadfile"]
    rows, failed, steps = [], [], {}
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            counts, steps[kind], failures, _ = run(kind, Path(folder), *tests, *notebooks, *options)
        numbers = [passed_of(counts, what) for what in ("cells", "tests")]
        rows.append(f"| {KINDS[kind]} | {' | '.join(numbers)} | {counts['used']:,} |")
        failed += failures
        print(rows[-1], *(f"failed: {failure}" for failure in failures), sep="\n", flush=True)
    print("\n| device | cells passed | tests passed | that computed on it |", "|---|---|---|---|", *rows, sep="\n")
    print("\n| waits and launches a step |", " | ".join(map(KINDS.get, kinds)), "|\n|---" + "|---" * len(kinds) + "|")
    for step in steps[kinds[0]]:
        print(f"| {step} | " + " | ".join(steps[kind].get(step, "") for kind in kinds) + " |")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [*KINDS]))
