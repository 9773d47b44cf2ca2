"""A clone that has an address, after `make repository`: the tests of its pages and notebooks pass there, too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_notebooks import set_repository

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "runs", "__pycache__", ".*_cache", ".ipynb_checkpoints")
READERS = "book commands contributing cookbook from_tutorials notebooks references supply_chain where_tutorials_break"


@pytest.mark.slow
@pytest.mark.parametrize("url", ["https://github.com/a-reader/their.fork", "https://codeberg.org/a-reader/theirs"])
def test_what_reads_pages_and_notebooks_passes_with_an_address(url, tmp_path):
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=LEFT_OUT)
    set_repository.main(url, clone)
    tests = [f"tests/project/test_{name}.py" for name in [*READERS.split(), "workflows"]]
    paths = os.pathsep.join([str(clone), str(clone / "notebooks")])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:nbval", "-q", *tests],
        cwd=clone,
        env={**environment, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
