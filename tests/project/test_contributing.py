"""CONTRIBUTING.md: its picture of the house, its map of these tests, and the places that it sends people to."""

import re
from collections import Counter
from pathlib import Path

from test_package import PACKAGE, ROOMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section(heading):
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_picture_of_the_house_has_its_rooms_from_the_bottom_up():
    drawn = re.findall(r"^│ (\w+) ", section("The house"), re.MULTILINE)
    assert drawn[::-1] == ROOMS


def test_the_map_has_every_file_of_these_tests_once():
    rows = re.findall(r"^\| (`.+?) \|", section("Two sets of tests"), re.MULTILINE)
    named = Counter(name for row in rows for name in re.findall(r"`([\w./]+)`", row))
    folder = Path(__file__).parent
    files = {path.name for path in folder.glob("*.py")} | {f"{path.parent.name}/" for path in folder.glob("*/*.py")}
    assert named == dict.fromkeys(files, 1)


def test_files_are_where_the_table_says_and_hold_the_names_beside_them():
    """A place is written `name` (`folder/module.py`), or `name` and `Class.method` (`folder/module.py`)."""
    places = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) \(`([\w/.]+\.py)`\)", section("Where to put your code"))
    assert len(places) > 20
    for names, module in places:
        source = (PACKAGE / module).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            for part in name.split("."):
                defined = rf"^ *(def|class) {part}\b|^ *{part}\b.*="
                assert re.search(defined, source, re.MULTILINE), f"{name} is not in {module}"
    for module in re.findall(r"`([\w/]+\.(?:py|js|json|md))`", section("Where to put your code")):
        roots = (PACKAGE, ROOT, PACKAGE / "training", PACKAGE / "page")
        assert any((root / module).is_file() for root in roots), module
