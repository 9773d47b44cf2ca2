"""Draw the figures of the series into ``assets/figures``: ``python assets/draw_figures.py``.

``drawings/kit.py`` is what they are drawn with, and ``drawings/notebook_02.py`` has the figures of notebook 02.
``--check`` writes nothing, and names each file there that is missing, differs from what is drawn, or is not drawn.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

ASSETS = Path(__file__).parent
FOLDER = ASSETS / "figures"


def draw_all() -> dict[str, bytes]:
    """Draw every figure of every notebook, and return the files by their names."""
    files = {}
    for path in sorted((ASSETS / "drawings").glob("notebook_*.py")):
        for draw in import_module(f"drawings.{path.stem}").FIGURES:
            figure = draw()
            files[f"{figure.name}.svg"] = figure.svg().encode()
    return files


def write(files: dict[str, bytes], folder: Path) -> None:
    """Write files into a folder, which is made if it is not there."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def stale(files: dict[str, bytes], folder: Path) -> list[str]:
    """Return the names of what is in one of the two and not, or not the same, in the other."""
    stored = {path.name: path.read_bytes() for path in folder.glob("*.svg")}
    return sorted(name for name in files.keys() | stored.keys() if files.get(name) != stored.get(name))


def main() -> None:
    """Write all figures, or compare them with what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and name what is not up to date")
    check = parser.parse_args().check
    files = draw_all()
    if not check:
        write(files, FOLDER)
    elif stale(files, FOLDER):
        sys.exit(f"not up to date: {', '.join(stale(files, FOLDER))}")


if __name__ == "__main__":
    main()
