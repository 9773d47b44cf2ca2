"""The core's tests and the notebooks, in small, with the pinned dependencies on every other Python that there is.

Also with the lowest on the oldest Python, the newest on the newest, and what Google's Colab has installed on its
Python; there, installing the library must not replace anything. `python tests/project/versions.py` runs all; `python
tests/project/versions.py 3.12:newest tests/test_fast.py` one row, in part; `python tests/project/versions.py colab
notebooks/06_training.ipynb` a notebook as Colab would run it. Where PyPI's torch is a CUDA build of several GB,
PyTorch's own index has a smaller one: `PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from test_devices import ROOT, passed_of, read_report

BUILD = ROOT / "build" / "versions"
SETS = {
    "lowest": ["--constraint", BUILD / "lowest.txt", "--editable", ".[notebooks,test]"],
    "pinned": ["--constraint", "constraints.txt", "--editable", ".[notebooks,test]"],
    "newest": ["--editable", ".[notebooks,test]"],
    "colab": ["--editable", ".[test]"],
}
COLAB = ("3.13", ["--requirement", ".github/colab.txt", "ipykernel<7"])  # its Python, and what it has installed
IN_BROWSER = ["tests/project/test_live_translator_in_browser.py", "tests/project/test_viewer_in_browser.py"]
ABOUT = "import sys, numpy, torch; print(sys.version.split()[0], torch.__version__, numpy.__version__, sep=' | ')"


def pythons():
    """Find Pythons on the path and pyenv's: the command of each, by its version."""
    commands = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python")
    for command in (sys.executable, *(shutil.which(f"python3.{minor}") for minor in range(10, 20)), *sorted(pyenv)):
        asked = [command, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
        told = subprocess.run(asked, capture_output=True, text=True) if command else None
        if told and not told.returncode and int(told.stdout.split(".")[1]) >= 10:
            commands.setdefault(told.stdout.strip(), command)
    return dict(sorted(commands.items(), key=lambda item: int(item[0].split(".")[1])))


def write_lowest():
    """Write constraints that are pyproject.toml's lower bounds."""
    BUILD.mkdir(parents=True, exist_ok=True)
    bounds = re.findall(r'"([\w.-]+)>=([\w.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (BUILD / "lowest.txt").write_text("".join(f"{name}=={bound}\n" for name, bound in dict(bounds).items()))


def pip(python, *arguments):
    """Run pip in an environment."""
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def cell(version, command, dependencies, *what):
    """Return a row of the table, and the names of what failed."""
    folder = BUILD / f"{version}-{dependencies}"
    start, python = f"| {version} | {dependencies} |", folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([command, "-m", "venv", "--clear", folder], check=True)
        before = set()
        for packages in [COLAB[1], SETS[dependencies]][dependencies != "colab" :]:
            done = pip(python, "install", "--quiet", *packages)
            if done.returncode:
                return f"{start} cannot be installed: {done.stderr.strip().splitlines()[-1][:100]} |  |  |  |", []
            after = set(pip(python, "freeze").stdout.splitlines())
            if before - after:
                replaced = ", ".join(sorted(before - after))
                return f"{start} replaces {replaced} |  |  |  |", [replaced]
            before = after
        (folder / "ready").touch()
    about = subprocess.run([python, "-c", ABOUT], capture_output=True, text=True).stdout.strip()
    report = folder / "report.xml"
    pytest = [python, "-m", "pytest", "-q", "--nbval-lax", f"--junitxml={report}", "-o", "junit_family=xunit1"]
    pytest += ["--numprocesses", "2", "--dist", "loadfile", "-m", "slow or not slow"]
    library = sorted(ROOT.glob("tests/test_*.py"))
    pytest += what or [*library, *(IN_BROWSER if dependencies == "colab" else []), "notebooks"]
    environment = {**os.environ, "TRANSFORMER_LIB_FAST_DEV_RUN": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        subprocess.run(pytest, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    counts, _, failed = read_report(report)
    return f"{start} {about} | {passed_of(counts, 'tests')} | {passed_of(counts, 'cells')} |", failed


def rows(commands):
    """Return the table's rows, as they are asked for on the command line; Pythons come from old to new."""
    oldest, *_, newest = commands
    others = [
        version for version, command in commands.items() if command != sys.executable
    ]  # this one is `make test`'s
    pinned = [f"{version}:pinned" for version in others]
    return [f"{oldest}:lowest", *pinned, f"{newest}:newest", *([f"{COLAB[0]}:colab"] if COLAB[0] in commands else [])]


def main():
    """Run the cells that were asked for, or all."""
    write_lowest()
    commands = pythons()
    asked = [f"{COLAB[0]}:colab" if row == "colab" else row for row in sys.argv[1:2]]
    asked = asked or rows(commands)
    print("| Python | dependencies | exactly | torch | numpy | tests passed | cells passed |\n|" + "---|" * 7)
    everything = []
    for name in asked:
        version, dependencies = name.split(":")
        row, failed = cell(version, commands[version], dependencies, *sys.argv[2:])
        print(row, flush=True)
        everything += [f"{name}  {test}" for test in failed]
    print(*everything, sep="\n")
    return bool(everything)


if __name__ == "__main__":
    sys.exit(main())
