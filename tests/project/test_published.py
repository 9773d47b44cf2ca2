"""A clone that has an address, after `make repository`: the tests of its pages and notebooks pass there, too."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_notebooks import set_repository

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "runs", "__pycache__", ".*_cache", ".ipynb_checkpoints")
READERS = """
agents book commands contributing cookbook from_tutorials notebooks readme references supply_chain teaching
where_tutorials_break
"""


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


@pytest.mark.processes
@pytest.mark.skipif(not (shutil.which("git") and shutil.which("make")), reason="it takes git and make")
def test_the_five_commands_bring_a_folder_to_where_colab_finds_its_notebooks(tmp_path):
    """As book/publish.md has them, with a repository on this disk in the place of GitHub's."""
    page = (ROOT / "book" / "publish.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```\n(git init.*?)^```$", page, re.MULTILINE | re.DOTALL)
    folder, hub = tmp_path / "folder", tmp_path / "hub"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    subprocess.run(["git", "init", "--quiet", "--bare", hub], check=True)
    settings = {f"url.{hub.as_uri()}.insteadOf": "https://github.com/a-reader/theirs", "protocol.file.allow": "always"}
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    environment |= {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment |= {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    for command in block.replace("OWNER/NAME", "a-reader/theirs").splitlines():
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)

    def arrived(file):
        show = ["git", "--git-dir", hub, "show", f"main:{file}"]
        return subprocess.run(show, capture_output=True, check=True).stdout.decode()

    for path in [*(ROOT / "notebooks").glob("[0-9]*.ipynb"), *(ROOT / "notebooks" / "solutions").glob("[0-9]*.ipynb")]:
        file = path.relative_to(ROOT).as_posix()
        head, *others = json.loads(arrived(file))["cells"]
        setup = next(cell for cell in others if cell["cell_type"] == "code")
        assert f"/a-reader/theirs/blob/main/{file})" in "".join(head["source"]), file
        (installed,) = re.findall(r'pip install .*git\+(.*)"', "".join(setup["source"]))
        assert installed == "https://github.com/a-reader/theirs", file
    for file in ("LICENSE", "assets/multi30k_best.safetensors", ".github/workflows/book.yml", "data/sample/train.de"):
        assert subprocess.run(["git", "--git-dir", hub, "cat-file", "-e", f"main:{file}"]).returncode == 0, file
    named = len(re.findall(r"a-reader/theirs", arrived("README.md")))
    changed = {*(folder / "notebooks").rglob("[0-9]*.ipynb"), folder / "README.md", folder / "pyproject.toml"}
    assert named >= 3 and f"into {len(changed)} files" in page
