"""Put the repository's address wherever it is named: in pyproject.toml, the README, the badges and the setup cells.

Run by `make repository URL=https://github.com/OWNER/NAME`. As long as nobody has said where the repository is,
OWNER/NAME stands in pyproject.toml, and no badge and no command leads there; with this address, that comes back.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNNAMED = "OWNER/NAME"
# a host, and two names that begin with a letter, a digit or an underscore: no user, port, query or other path
URL = re.compile(r"https://([a-z0-9-]+(?:\.[a-z0-9-]+)+)/(\w[\w.-]*/\w[\w.-]*?)(?:\.git)?/?", re.ASCII)

COLAB = "https://colab.research.google.com"
BRANCH = "main"  # that badges lead to, and whose pushes publish the book: .github/workflows/book.yml
BESIDE = re.compile(r"(?m)^(Reading time|Worked answers|A worked answer).*$")  # the line of a notebook with the badge
BADGE = re.compile(rf"( &nbsp; |\n\n)\[!\[Open in Colab\]\({COLAB}/assets/[^)]*\)\]\([^)]*\)")
# In each notebook's first cell of code: what brings the library along where it is missing, and says so if it cannot.
MISSING = 'if importlib.util.find_spec("transformer_lib") is None:'
SETUP = re.compile(rf"(?ms)^{re.escape(MISSING)}\n.*?^    raise ModuleNotFoundError\(.*?\)\n")
WHEEL = f"""\
{MISSING}
    # Only Colab needs these lines: upload the file that `pip wheel --no-deps .` makes in the library's folder.
    from pathlib import Path

    for wheel in sorted(Path().glob("transformer_step_by_step-*.whl")):
        wheel = wheel.replace(wheel.name.split("any")[0] + "any.whl")  # pip does not take "… (1).whl"
        %pip install --quiet {{wheel}}
{MISSING}
    raise ModuleNotFoundError("upload transformer_step_by_step-….whl and run this again; no pip? `uv pip install` it")
"""
ADDRESS = f"""\
{MISSING}
    %pip install --quiet "transformer-step-by-step @ git+{{url}}"
{MISSING}
    raise ModuleNotFoundError("pip says above why it could not install the library; no pip? `uv pip install` the same")
"""
# What the README says as long as the repository has no address, and what it says then. The second part is for GitHub:
# Colab opens notebooks from there alone, and a workflow publishes the book.
README = (
    (
        "In the library's folder, with Python 3.10 or newer:",
        "In a clone (`git clone {url} transformer`, then `cd transformer`), with Python 3.10 or newer:",
    ),
    ("`pip install path/to/this/folder`.", '`pip install "transformer-step-by-step @ git+{url}"`.'),
)
README_ON_GITHUB = (
    (
        "In your browser: `make book`, then open `build/book/try_it.html`.",
        "[In your browser](https://{owner}.github.io/{repository}/try_it.html), where there is nothing to install.",
    ),
    (
        "In Colab: upload a notebook; its first cell says how to bring the library along.",
        f"In Colab: [![Open in Colab]({COLAB}/assets/colab-badge.svg)]"
        f"({COLAB}/github/{{owner}}/{{repository}}/blob/{BRANCH}/notebooks/00_quick_tour.ipynb)",
    ),
)


def address(pyproject: str) -> tuple[str, str]:
    """Return the host and OWNER/NAME that pyproject.toml names."""
    return URL.fullmatch(re.search(r'^Repository = "([^"]+)"', pyproject, re.MULTILINE)[1]).groups()


def named_repository(pyproject: str) -> str:
    """Return OWNER/NAME, as pyproject.toml names it."""
    return address(pyproject)[1]


def main(url: str, root: Path = ROOT) -> None:
    """Replace the repository that pyproject.toml names by the one at ``url``, in every file that names it."""
    found = URL.fullmatch(url)
    if not found:
        sys.exit(f"URL is {url!r}, expected https://github.com/OWNER/NAME, or OWNER/NAME at another host")
    host, name = found.groups()
    new = "" if name == UNNAMED else f"https://{host}/{name}"
    if new and host != "github.com":
        print("Colab opens notebooks from GitHub only, so there are no badges")
    elif new:
        print("the README leads to the book on GitHub Pages; to publish it: Settings, Pages, Source: GitHub Actions")
        print(f"Colab opens the notebooks from the branch {BRANCH}, and only once the repository is public")
        if (branch := _current_branch(root)) not in ("", BRANCH):
            print(f"your branch is called {branch}: `git branch -m {BRANCH}` before you push it")
    old = "/".join(address((root / "pyproject.toml").read_text(encoding="utf-8")))
    _change(root / "pyproject.toml", lambda text: text.replace(f"https://{old}", f"https://{host}/{name}"))
    _change(root / "README.md", lambda text: with_address(text, new))
    for path in sorted((root / "notebooks").rglob("*.ipynb")):
        badge = (
            f"{COLAB}/github/{name}/blob/{BRANCH}/{path.relative_to(root).as_posix()}" if host == "github.com" else ""
        )
        _change(path, lambda text, badge=badge: _notebook(text, new, badge if new else ""))


def _current_branch(root: Path) -> str:
    """Return the name of the branch that is checked out, or an empty string where there is none."""
    try:
        git = subprocess.run(["git", "symbolic-ref", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
    except OSError:  # no git
        return ""
    return git.stdout.strip()


def _change(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text(encoding="utf-8")
    if (changed := change(text)) != text:
        path.write_text(changed, encoding="utf-8", newline="\n")
        print(path.name)


def with_address(readme: str, url: str) -> str:
    """Return the README with the address in its sentences, or without it if ``url`` is empty."""
    host, name = URL.fullmatch(url).groups() if url else ("", "/")
    owner, repository = name.split("/")
    for sentences, is_named in ((README, bool(url)), (README_ON_GITHUB, host == "github.com")):
        for unnamed, named in sentences:
            new = named.format(url=url, owner=owner, repository=repository) if is_named else unnamed
            with_any = re.sub(r"\\{\w+\\}", r"[^\\s\"`)]+", re.escape(named))
            readme = re.sub(f"{with_any}|{re.escape(unnamed)}", lambda _, new=new: new, readme)
    return readme


def _notebook(text: str, url: str, badge: str) -> str:
    """Return a notebook with the badge below its title and the address in its setup cell, if there are any."""
    notebook = json.loads(text)
    head, setup = notebook["cells"][0], next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    picture = f" &nbsp; [![Open in Colab]({COLAB}/assets/colab-badge.svg)]({badge})" if badge else ""
    title = BADGE.sub("", "".join(head["source"]))
    title = BESIDE.sub(lambda line: line[0] + picture, title, count=1)
    install = ADDRESS.format(url=url) if url else WHEEL
    head["source"] = title.splitlines(keepends=True)
    setup["source"] = SETUP.sub(lambda _: install, "".join(setup["source"])).splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
