"""Notebook 17: each of its tests tells the patients that it is meant for from the healthy model, and no healthy one."""

import ast
import inspect
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformer_exercises import notebook_17
from transformer_exercises.notebook_17 import FAULTS, Patient

from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference.search import beam_search
from transformer_lib.model.masks import padding_mask
from transformer_lib.model.transformer import Transformer
from transformer_lib.notebook import plots

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "17_the_clinic.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
NUMBER = {case.fault: number for number, case in notebook_17._CASES.items()}
ON_WEIGHTS = [NUMBER[name] for name in ("no eval", "hasty beam")]  # their models are healthy


def rows_of_the_closing_table():
    """Each fault on the list in the notebook's closing table, and the name of the test that decides."""
    text = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    rows = [row.split("|")[2:4] for row in text.splitlines() if re.fullmatch(r"\|(.+\|){3}", row)]
    return [
        (fault, test)
        for cause, decides in rows
        for fault in re.findall("`([^`]+)`", cause)
        for test in re.findall(r"`(\w+_test)`", decides)
        if fault in FAULTS
    ]


@pytest.fixture(scope="module")
def clinic():
    """The names that the notebook's tests use, on a few short sentences, and a brief training for all patients."""
    corpus = load_corpus("sample")
    german, english = WordTokenizer("de"), WordTokenizer("en")
    train_set, test_set = (make_dataset(corpus[split][:300], german, english) for split in ("train", "test"))
    build_vocabularies(train_set, min_freq=1, joint=True)
    pairs = [pair for pair, example in zip(corpus["test"], test_set.examples, strict=False) if len(example.src) == 8]
    names = {
        "torch": torch, "math": math, "Patient": Patient, "german": german, "english": english,
        "train_set": train_set, "test_set": test_set, "V": len(english.vocab), "quick": False, "few_pairs": pairs[:8],
        "sentences": [pair.src for pair in pairs[:8]], "session": SimpleNamespace(device=torch.device("cpu")),
        "padding_changes": notebook_17.padding_changes,
    }  # fmt: skip
    for cell in CELLS:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "%pip" not in source:
            for node in ast.parse(source).body:
                needed = isinstance(node, ast.FunctionDef) and re.fullmatch(r"log_prob|(?!my_)\w+_test", node.name)
                if needed or ast.unparse(node).startswith(("probe =", "src, tgt =")):
                    exec(compile(ast.Module([node], []), NOTEBOOK.name, "exec"), names)
    names["patients"] = {}
    for number in (0, *notebook_17._CASES):
        patient = names["patients"][number] = Patient(number, german, english)
        if number in ON_WEIGHTS:
            patient.model.load_state_dict(names["patients"][0].model.state_dict())
        else:
            learn(patient, names["src"], names["tgt"])
    return SimpleNamespace(**names)


def learn(patient, src, tgt, steps=60):
    """Train briefly on eight sentences, and on the same with their words reversed and another's target.

    Only the order of the words tells which target is wanted, so a healthy patient has to read it.
    """
    src, tgt = src[:8], tgt[:8]
    src = torch.cat([src, torch.cat([src[:, :1], src[:, 1:-1].flip(1), src[:, -1:]], dim=1)])
    tgt = torch.cat([tgt, tgt.roll(1, dims=0)])
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(patient.model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    patient.model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        patient.loss(src, tgt).backward()
        optimizer.step()


def reading(clinic, test, number):
    """What a test reads of a patient, as numbers and words in one list."""
    result = getattr(clinic, test)(clinic.patients[number])
    return list(result) if isinstance(result, tuple) else [result]


def differs(healthy, ill):
    """Return whether two readings differ by more than rounding; a change that should be nothing counts from 1e-5 on."""
    if isinstance(healthy, float):
        return (abs(healthy) < 1e-5) != (abs(ill) < 1e-5) or abs(healthy - ill) > 0.2 * max(abs(healthy), abs(ill), 0.1)
    return healthy != ill


def test_every_fault_of_a_patient_has_its_row_and_its_test():
    assert {fault for fault, _ in rows_of_the_closing_table()} >= set(NUMBER)


@pytest.mark.slow
def test_the_test_that_decides_tells_the_patient_from_the_healthy_one(clinic):
    for fault, test in rows_of_the_closing_table():
        if fault in NUMBER:
            healthy, patient = (reading(clinic, test, number) for number in (0, NUMBER[fault]))
            assert any(differs(*pair) for pair in zip(healthy, patient, strict=True)), (fault, healthy, patient)


@pytest.mark.slow
def test_the_healthy_one_passes_every_test(clinic):
    assert clinic.future_test(clinic.patients[0]) == "·······x"
    assert clinic.wanted_test(clinic.patients[0]) != "<sos>"
    assert max(map(abs, clinic.padding_test(clinic.patients[0]))) < 1e-5
    assert min(map(abs, clinic.source_test(clinic.patients[0]))) > 0.1
    assert clinic.company_test(clinic.patients[0]) < 1e-4
    assert abs(clinic.start_test(clinic.patients[0]) - math.log(clinic.V)) < 1
    assert clinic.count_test(clinic.patients[0])[1] == "+0"
    assert clinic.overfit_test(clinic.patients[0]) < 0.1
    assert clinic.twice_test(clinic.patients[0]) == clinic.search_test(clinic.patients[0]) == 0


@pytest.mark.slow
def test_two_readings_of_one_test_tell_faults_apart(clinic):
    for fault, test, places in (
        ("padding in the loss", "padding_test", (1,)),
        ("mask upside down", "padding_test", (0,)),
        ("mask upside down", "source_test", (0, 1)),
        ("positions along the batch", "source_test", (0,)),
        ("heads without transpose", "padding_test", (0, 1)),
        ("no transpose back", "padding_test", (0, 1)),
    ):
        for place in places:
            healthy, patient = (reading(clinic, test, number)[place] for number in (0, NUMBER[fault]))
            assert (abs(healthy) < 1e-5) != (abs(patient) < 1e-5), (fault, test, healthy, patient)


@pytest.mark.slow
def test_two_layers_pass_a_leak_of_one_position_on_by_two(clinic):
    assert clinic.future_test(clinic.patients[NUMBER["leak"]]) == "·····xxx"


@pytest.mark.slow
def test_heads_that_are_not_put_back_mix_words_and_heads_cut_from_the_sequence_do_not(clinic):
    """The first need no training to show it, as the notebook says."""
    untrained = Patient(NUMBER["no transpose back"], clinic.german, clinic.english)
    assert clinic.future_test(untrained) == "xxxxxxxx"
    assert min(map(abs, clinic.padding_test(untrained))) > 1e-3
    assert clinic.future_test(clinic.patients[NUMBER["heads without transpose"]]) == "·······x"


class _NoCausalMask(Transformer):
    def decode(self, tgt, memory, memory_mask):
        return self.output(self.decoder(self.tgt_embedding(tgt), memory, padding_mask(tgt, 1), memory_mask)[0])


class _NoSourceMask(Transformer):
    def encode(self, src):
        mask = torch.ones_like(src, dtype=torch.bool)[:, None, None, :]
        return self.encoder(self.src_embedding(src), mask)[0], mask


@pytest.mark.slow
def test_faults_that_no_patient_has_look_as_the_list_says(clinic):
    without = {name: Patient(0, clinic.german, clinic.english) for name in ("causal mask", "source mask", "positions")}
    without["causal mask"].model.__class__ = _NoCausalMask
    without["source mask"].model.__class__ = _NoSourceMask
    for embedding in (without["positions"].model.src_embedding, without["positions"].model.tgt_embedding):
        embedding.positions.table.zero_()
    assert clinic.future_test(without["causal mask"]) == "xxxxxxxx"
    by_source, by_target = map(abs, clinic.padding_test(without["source mask"]))
    assert by_source > 1e-4 > by_target
    by_order, by_neighbour = map(abs, clinic.source_test(without["positions"]))
    assert by_order < 1e-5 < by_neighbour
    assert clinic.company_test(without["positions"]) < 1e-4


@pytest.mark.slow
def test_a_third_of_a_rate_that_is_too_high_learns_the_batch(clinic):
    assert clinic.overfit_test(clinic.patients[0], lr=2e-2) > 0.1 > clinic.overfit_test(clinic.patients[0], lr=2e-2 / 3)


@pytest.mark.slow
def test_a_beam_without_length_penalty_makes_no_search_error_and_nothing_longer_than_with_one(clinic):
    lengths = []
    for penalty in (0.0, 0.6):
        patient = Patient(0, clinic.german, clinic.english)
        patient.model = clinic.patients[0].model
        patient._search = lambda *args, penalty=penalty, **options: [
            hypotheses[0] for hypotheses in beam_search(*args, length_penalty=penalty, **options)
        ]
        lengths.append(clinic.length_test(patient))
        assert penalty or clinic.search_test(patient) == 0
    assert lengths[0] <= lengths[1]


def test_a_picture_of_curves_has_one_legend_which_shows_each_as_it_is_drawn():
    source = next("".join(cell["source"]) for cell in CELLS if "def draw(" in "".join(cell["source"]))
    (draw,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == "draw")
    names = {"plots": plots, "curves": {"healthy": [3.0, 2.0], "patient 1": [3.0, 1.0], "patient 2": [3.0, 2.5]}}
    exec(compile(ast.Module([draw], []), NOTEBOOK.name, "exec"), names)
    picture = names["draw"](2)
    (legend,), (axes,) = picture.legends, picture.axes
    assert axes.get_legend() is None
    assert [text.get_text() for text in legend.get_texts()] == ["healthy", "patient 2"]
    for drawn, shown in zip(axes.lines, legend.get_lines(), strict=True):
        for look in ("linewidth", "alpha", "linestyle", "marker", "color"):
            assert getattr(drawn, f"get_{look}")() == getattr(shown, f"get_{look}")(), look


def test_the_lines_that_the_checks_show_are_lines_that_run():
    source = Path(notebook_17.__file__).read_text(encoding="utf-8").split("class _Case(")[0]
    assert not [case.line for case in notebook_17._CASES.values() if case.line not in source]


@pytest.mark.slow
def test_patients_differ_by_their_fault_alone_and_do_not_show_it(clinic):
    """The same seed gives the same weights, so a difference between two curves is the fault's."""
    healthy = Patient(0, clinic.german, clinic.english).model
    for fault, number in NUMBER.items():
        model = Patient(number, clinic.german, clinic.english).model
        assert str(model) == str(healthy)
        if fault != "no root of d_model":
            torch.testing.assert_close(model.state_dict(), healthy.state_dict(), rtol=0, atol=0)


def test_what_pads_in_the_notebook_is_the_answer_in_its_fold():
    """As the cells call it, it has types; in the fold it has none."""
    (fold,) = re.findall(
        r"(?s)```python\n(def padding_changes.*?)\n```", "\n".join("".join(c["source"]) for c in CELLS)
    )
    shown, used = (ast.parse(text).body[0].body for text in (fold, inspect.getsource(notebook_17.padding_changes)))
    assert [ast.unparse(node) for node in shown[1:]] == [ast.unparse(node) for node in used[2:]]
    assert ast.unparse(shown[0].body) == ast.unparse(used[1].body)  # how a side gets its columns
