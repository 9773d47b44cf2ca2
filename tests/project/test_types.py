from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")
pytestmark = pytest.mark.slow  # without mypy's cache, as in a fresh clone, half a minute: it reads all of torch


def test_the_public_api_is_what_a_type_checker_expects():
    """Every name of the package, used as the README and the notebooks use it."""
    printed, errors, failed = api.run([str(Path(__file__).parent / "typed_usage.py")])
    assert not failed, printed + errors
