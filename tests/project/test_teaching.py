"""The page for teachers: what it assigns exists, its hours are the notebooks', and its patient is ill."""

import re
from pathlib import Path

import torch
from test_exercises import BOXES, NAMES, SERIES

from transformer_lib.model.attention import MultiHeadAttention

PAGE = (Path(__file__).parents[2] / "book" / "teaching.md").read_text(encoding="utf-8")


def test_what_a_session_has_in_it_is_in_its_notebooks():
    table = PAGE.partition("\n## Seven sessions\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d) · .*$", table, re.MULTILINE)
    assert rows == list("1234567")
    assigned = re.findall(r"\b\d\d\.\d\b", table)
    assert len(assigned) > 8 and set(assigned) <= set(NAMES)
    written = set(re.findall(r"`(\w+)`", table))
    assert "MultiHeadAttention" in written and written <= {box.partition(",")[0] for box in BOXES} | {"guess"}


def test_the_hours_are_those_at_the_notebooks_heads():
    heads = ["".join(SERIES[f"{number:02}"]["cells"][0]["source"]) for number in range(10)]
    minutes = sum(int(re.search(r"Reading time: \d+ minutes, (\d+) with", head)[1]) for head in heads)
    words = {17: "seventeen", 18: "eighteen", 19: "nineteen"}
    assert f"takes a beginner {words[round(minutes / 60)]} hours" in PAGE


def test_the_patient_is_ill_where_key_and_value_differ_and_nowhere_else():
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names = {}
    exec(code, names)
    torch.manual_seed(0)
    healthy = MultiHeadAttention(16, 4).eval()
    patient = names["Patient"](16, 4).eval()
    patient.load_state_dict(healthy.state_dict())
    x, other = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    torch.testing.assert_close(patient(x, x, x)[0], healthy(x, x, x)[0])
    assert not torch.allclose(patient(x, other, x)[0], healthy(x, other, x)[0])
