"""The boxes as the notebooks write them, worked out: what ``write`` goes on with until the reader's own are right.

There is a module for each notebook. The closed folds below the notebooks' ``write`` cells show its source
(``python tools/listings.py``), so that comments explain its lines.
"""

import importlib
import pkgutil
from typing import Any

MODULES = sorted(module.name for module in pkgutil.iter_modules(__path__))


def notebook_of(name: str) -> str:
    """Return the number of the notebook in which something of this name is written; an empty string if none."""
    for module in MODULES:
        if has(getattr(importlib.import_module(f"{__name__}.{module}"), name, None), module):
            return module[-2:]
    return ""


def own(name: str) -> Any:
    """Return the course's own function or class of this name.

    Raises:
        ValueError: there is none.
    """
    if not (notebook := notebook_of(name)):
        raise ValueError(f"written is called {name!r}, expected the name that the notebook gives it")
    return getattr(importlib.import_module(f"{__name__}.notebook_{notebook}"), name)


def has(item: Any, module: str = "") -> bool:
    """Return whether a function or class is the course's own, and of this module, if one is given."""
    where = getattr(item, "__module__", None) or ""
    return where == f"{__name__}.{module}" if module else where.startswith(f"{__name__}.")
