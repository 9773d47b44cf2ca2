"""Write the repository's address wherever it stands: pyproject.toml, README, badges and setup cells.

Run by `make repository URL=https://github.com/OWNER/NAME`.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def named_repository(pyproject: str) -> str:
    """Return OWNER/NAME, as pyproject.toml names it."""
    return re.search(r'^Repository = "https://github\.com/([^"]+)"', pyproject, re.MULTILINE)[1]


def main(url: str, root: Path = ROOT) -> None:
    """Replace the repository that pyproject.toml names by the one at ``url``, in every file that names it."""
    new = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", url)
    if not new:
        sys.exit(f"URL is {url!r}, expected https://github.com/OWNER/NAME")
    old = named_repository((root / "pyproject.toml").read_text(encoding="utf-8"))
    address = re.compile(rf"(?<=github\.com/){re.escape(old)}(?![\w-])|(?<=com/github/){re.escape(old)}(?![\w-])")
    for path in (root / "pyproject.toml", root / "README.md", *sorted((root / "notebooks").rglob("*.ipynb"))):
        text = path.read_text(encoding="utf-8")
        changed, count = address.subn(new[1], text)
        if count:
            path.write_text(changed, encoding="utf-8")
            print(f"{path.relative_to(root)}: {count}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
