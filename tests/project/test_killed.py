"""A training that is killed at any moment loses at most what it did since it last saved: here, two steps."""

import multiprocessing
import random
import sys
import time

import pytest
from training_to_kill import LIBRARY, RECIPE, train

from transformer_lib.checkpoint import MODEL_FILE, load_model
from transformer_lib.files import STATE_FILE, load_training_state

pytestmark = [
    pytest.mark.slow,  # starts a process for each kill; what is interrupted and resumed is in tests/test_trainer.py
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
]
KILLED = -9
PLACES = {
    "any line of the library": LIBRARY,
    "a line that reads or writes files": (f"{LIBRARY}/checkpoint.py", f"{LIBRARY}/files.py"),
}


@pytest.fixture(scope="module")
def processes():
    """Start processes that have everything imported already, which takes longer than the training."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training_to_kill"])
    return context


def run(processes, *arguments, seconds=None):
    """Train in a process of its own, killed after so many seconds if it is not over by then; return its exit code."""
    process = processes.Process(target=train, args=arguments)
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")
def straight(processes, tmp_path_factory):
    """What a training that nobody kills ends with, how many lines it executes in each place, and how long it takes."""
    lines = {}
    for place, files in PLACES.items():
        folder = tmp_path_factory.mktemp("straight")
        began = time.perf_counter()
        assert run(processes, folder, 0, files) == 0
        lines[place] = int((folder / "lines").read_text())
    return folder / "run", lines, time.perf_counter() - began


def completed_epochs(folder):
    """Open what a killed training left, and return how many epochs it can go on after."""
    logged = (folder / "epochs").read_text().count("epoch") if (folder / "epochs").exists() else 0
    if not (folder / "run" / STATE_FILE).exists():
        assert logged == 0
        return 0
    saved = len(load_training_state(folder / "run" / STATE_FILE)["history"]["val_loss"])
    assert saved >= logged  # what it said was complete is there
    if (folder / "run" / MODEL_FILE).exists():  # whole, if it is there
        assert load_model(folder / "run").notes["history"]["val_loss"]
    return saved


def assert_same_end(folder, straight):
    """Compare all that two trainings have left, except for the time that they took."""
    expected, found = (load_training_state(run / STATE_FILE) for run in (straight, folder / "run"))
    assert found["history"]["val_loss"] == expected["history"]["val_loss"]
    assert all(weights.equal(found["model"][name]) for name, weights in expected["model"].items())
    expected, found = (load_model(run).model.state_dict() for run in (straight, folder / "run"))
    assert all(weights.equal(found[name]) for name, weights in expected.items())
    assert sorted(path.name for path in (folder / "run").glob("[!.]*")) == [MODEL_FILE, STATE_FILE]


@pytest.mark.parametrize("place", PLACES)
def test_a_training_killed_at_any_line_ends_as_if_nothing_had_happened(processes, straight, tmp_path, place):
    straight_run, lines, _ = straight
    rng = random.Random(place)
    killed, number, epochs = 0, 0, 0
    folder = tmp_path / "0"
    folder.mkdir()
    while killed < 25:
        exit_code = run(processes, folder, rng.randint(1, lines[place]), PLACES[place])
        assert exit_code in (0, KILLED)
        killed += exit_code == KILLED
        before, epochs = epochs, completed_epochs(folder)
        assert epochs >= before
        if exit_code == 0:  # the line was past the end
            assert epochs == RECIPE.epochs
            assert_same_end(folder, straight_run)
            number, epochs = number + 1, 0
            folder = tmp_path / str(number)
            folder.mkdir()
    assert run(processes, folder) == 0
    assert_same_end(folder, straight_run)


def test_a_training_killed_at_any_time_ends_as_if_nothing_had_happened(processes, straight, tmp_path):
    """Between lines too: in the middle of a matrix product, or of a file."""
    straight_run, _, seconds = straight
    rng = random.Random(0)
    killed, number = 0, 0
    while killed < 25:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        patience = seconds
        while run(processes, folder, seconds=rng.uniform(0, patience)) == KILLED:
            killed += 1
            patience *= 1.2  # a machine that has become slower gets to the end, too
            completed_epochs(folder)
        assert_same_end(folder, straight_run)
