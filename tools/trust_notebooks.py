"""Trust the series, as ``jupyter trust`` does, so that JupyterLab shows its pictures before anything is run.

Run by ``make lab``. What a notebook stores is trusted by its content: a cell's output that somebody changes later is
not. One process does it in a second, once; where all of it is trusted already, nothing is written.
"""

from pathlib import Path

import nbformat
from nbformat.sign import NotebookNotary

ROOT = Path(__file__).resolve().parent.parent


def trust(folder: Path = ROOT / "notebooks") -> list[str]:
    """Trust the notebooks in a folder and in its ``solutions``, and return the names of those that were not yet."""
    notary = NotebookNotary()
    new = []
    for path in sorted([*folder.glob("[0-9]*.ipynb"), *folder.glob("solutions/[0-9]*.ipynb")]):
        try:
            notebook = nbformat.read(path, as_version=4)
        except (ValueError, nbformat.ValidationError):  # JupyterLab will say what is wrong with it
            continue
        if not notary.check_signature(notebook):
            notary.sign(notebook)
            new.append(path.relative_to(folder).as_posix())
    notary.store.close()  # its database
    return new


if __name__ == "__main__":
    if new := trust():
        print(f"trusted, so that JupyterLab shows their pictures: {len(new)} notebooks")
