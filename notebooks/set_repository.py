"""Put the repository's address wherever it is named: in pyproject.toml, the README, the badges and the setup cells.

Run by `make repository URL=https://github.com/OWNER/NAME`.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# a host, and two names that begin with a letter, a digit or an underscore: no user, port, query or other path
URL = re.compile(r"https://([a-z0-9-]+(?:\.[a-z0-9-]+)+)/(\w[\w.-]*/\w[\w.-]*?)(?:\.git)?/?", re.ASCII)


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
    old = "/".join(address((root / "pyproject.toml").read_text(encoding="utf-8")))
    places = [(re.compile(rf"(?<=https://){re.escape(old)}(?![\w-])"), f"{host}/{name}")]
    if host == "github.com":
        places.append((re.compile(r"(?<=colab\.research\.google\.com/github/)[^/\s]+/[^/\s]+(?=/blob/)"), name))
    else:
        print("Colab opens notebooks from GitHub only, so the badges stay as they are")
    named_in = [root / name for name in ("pyproject.toml", "README.md")]
    for path in (*named_in, *sorted((root / "notebooks").rglob("*.ipynb"))):
        text, changes = path.read_text(encoding="utf-8"), 0
        for place, new in places:
            text, count = place.subn(new, text)
            changes += count
        if changes:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(root)}: {changes}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
