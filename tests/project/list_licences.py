"""Prints the list of packages that this project needs, with their licences, from what is installed.

``python tests/project/list_licences.py > LICENSES.md``, in the environment that ``make`` sets up.
"""

import re
from importlib.metadata import distribution, metadata
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "transformer-step-by-step"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
PURPOSES = {"": "run time", "notebooks": "notebooks", "book": "book", "test": "tests"}  # extra: what it is for
FOR_CUDA = ("cuda-", "nvidia-", "triton")  # what only a torch for GPUs brings; it names their versions itself
SPDX = {  # words that can mean one licence only
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
COPYLEFT = re.compile(r"GPL|MPL|EPL|EUPL|CDDL|GNU|Mozilla|BY-SA")


def requirements(name, extra=""):
    """Return what an installed package requires here with one extra, or without any: (name, extras) of each."""
    needs = map(Requirement, distribution(name).requires or ())
    here = (need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra}))
    packages = {(canonicalize_name(need.name), wanted) for need in here for wanted in ("", *need.extras)}
    return {(package, wanted) for package, wanted in packages if not package.startswith(FOR_CUDA)}


def needed():
    """Return all that this project needs, by package: for each purpose, the direct dependencies that bring it."""
    packages = {}
    for extra, purpose in PURPOSES.items():
        for direct in requirements(PROJECT, extra) - (requirements(PROJECT) if extra else set()):
            seen, ahead = set(), {direct}
            while ahead:
                seen |= ahead
                ahead = {need for package in ahead for need in requirements(*package)} - seen
            for name, _ in seen:
                packages.setdefault(name, {}).setdefault(purpose, set()).add(direct[0])
    return dict(sorted(packages.items()))


def pins():
    """Return the lines of constraints.txt that count here, by package."""
    lines = [line for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    counting = [need for need in map(Requirement, lines) if need.marker is None or need.marker.evaluate()]
    return {canonicalize_name(need.name): need.specifier for need in counting}


def licence(fields):
    """Read a licence out of a package's metadata: as SPDX writes it if anything there says which one, else in words."""
    first_line = ((fields.get("License") or "").strip().splitlines() or [""])[0]
    classifiers = [value.split(" :: ")[-1] for value in fields.get_all("Classifier", []) if value[:10] == "License ::"]
    said = [fields.get("License-Expression") or "", first_line, *(classifiers if len(classifiers) == 1 else [])]
    for text in said:
        try:
            return canonicalize_license_expression(SPDX.get(text, text))
        except InvalidLicenseExpression:  # words such as "BSD License", of which there are several
            pass
    return ", ".join(sorted(classifiers)) or first_line or "UNKNOWN"


def page():
    """Return LICENSES.md."""
    versions, packages = pins(), needed()
    licences = {name: licence(metadata(name)) for name in packages}
    copyleft = [f"{name} ({text})" for name, text in licences.items() if COPYLEFT.search(text)]
    lines = [
        f"What `{PROJECT}[notebooks,book,test]` needs, in the versions of [constraints.txt](constraints.txt), "
        "with\nthe licences that the packages' metadata name, as `python tests/project/list_licences.py > LICENSES.md` "
        "finds\nthem; what a torch for GPUs brings along from NVIDIA, under NVIDIA's terms, is left out.\n",
        "| package | version | licence | needed for | brought by |\n| --- | --- | --- | --- | --- |",
    ]
    for name, purposes in packages.items():
        uses = {"run time": purposes["run time"]} if "run time" in purposes else purposes  # what everyone needs anyway
        directs = set().union(*uses.values())
        by = "directly" if name in directs else ", ".join(sorted(directs))
        version = str(versions.get(name, "not pinned")).removeprefix("==")
        lines.append(f"| {name} | {version} | {licences[name]} | {', '.join(uses)} | {by} |")
    return "\n".join([*lines, f"\nUnder a copyleft licence: {', '.join(copyleft) or 'none'}.\n"])


if __name__ == "__main__":
    print(page(), end="")
