"""Two gloo processes, started by torchrun, do what one process does."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from conftest import PAIRS
from two_processes import RECIPE, make_data, make_model, one_epoch, torchrun

from transformer_lib.checkpoint import MODEL_FILE, load_model
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.prepared import PreparedDataset, prepare
from transformer_lib.training import distributed
from transformer_lib.training.trainer import fit

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def data():
    return make_data()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    """Where two processes have been at work; ``one`` in it is a training that one process had begun."""
    folder = tmp_path_factory.mktemp("two")
    fit(make_model(data), data, data, RECIPE, folder / "one", log=str)
    prepare(load_corpus(PAIRS * 20), folder / "prepared", processes=1, log=str)
    done = torchrun(Path(__file__).parent / "two_processes.py", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def found(folder):
    """What each of the two found."""
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in (0, 1)]


def test_two_processes_are_two_and_have_the_first_ones_weights(found):
    assert [process["world size"] for process in found] == [2, 2]
    assert found[0]["copied"].equal(found[1]["copied"]) and not found[1]["copied"].any()


def test_only_the_first_process_says_how_an_epoch_went(found):
    assert [len(process["lines"]) for process in found] == [1, 0]


def test_when_training_diverges_all_processes_have_the_best_weights_so_far(data, found):
    (said, weights), (said_there, weights_there) = (process["diverged"] for process in found)
    assert "training has diverged" in said and said_there == said
    for name, tensor in make_model(data).state_dict().items():  # those that it began with
        assert weights[name].equal(tensor) and weights_there[name].equal(tensor)


@pytest.mark.parametrize(
    ("kind", "how", "tolerance"),
    [("float32", ["float32"], 1e-5), ("bfloat16", ["bfloat16"], 1e-2), ("accumulated", ["float32", 2], 1e-5)],
)
def test_an_epoch_of_two_processes_is_that_of_one_on_the_union_of_their_sentences(data, found, kind, how, tolerance):
    alone = one_epoch(data, *how)
    for process in found:
        together = process[kind]
        assert together["train loss"] == pytest.approx(alone["train loss"], rel=tolerance)
        assert together["val loss"] == pytest.approx(alone["val loss"], rel=tolerance)
        torch.testing.assert_close(together["weights"], alone["weights"], rtol=0, atol=tolerance)
    assert all(torch.equal(found[0][kind]["weights"][name], w) for name, w in found[1][kind]["weights"].items())


def test_gradients_travel_once_a_step(found):
    for process in found:
        assert process["float32"]["sent"] == 3
        assert process["accumulated"]["sent"] == 2  # of three batches, two make a step, and the last one


def test_what_two_processes_train_one_can_go_on_with_and_the_other_way_round(data, folder, found, tmp_path):
    shutil.copytree(folder / "two", tmp_path / "two")
    longer = replace(RECIPE, epochs=3)
    alone = asdict(fit(make_model(data), data, data, longer, log=str))
    after_two = asdict(fit(make_model(data), data, data, longer, tmp_path / "two", resume=True, log=str))
    for losses in ("train_loss", "val_loss"):
        assert after_two[losses] == pytest.approx(alone[losses], rel=1e-4)
        for process in found:
            assert process["history"][losses] == pytest.approx(alone[losses][:2], rel=1e-4)
            assert process["resumed"][losses] == pytest.approx(alone[losses], rel=1e-4)


def test_two_processes_share_a_prepared_corpus(found, folder):
    prepared = PreparedDataset(folder / "prepared")
    model = make_model(prepared).double()  # in 60 steps, float32's rounding grows to a thousandth
    alone = fit(model, prepared, prepared, RECIPE, log=str)
    for process in found:
        assert process["prepared"]["train_loss"] == pytest.approx(alone.train_loss, rel=1e-5)
        assert process["prepared"]["val_loss"] == pytest.approx(alone.val_loss, rel=1e-5)


def test_all_processes_end_with_the_model_that_is_on_disk(found, folder):
    on_disk = load_model(folder / "two" / MODEL_FILE).model.state_dict()
    for name, weights in found[0]["fitted"].items():
        assert weights.equal(found[1]["fitted"][name])
        assert weights.equal(on_disk[name])


def test_batches_that_each_process_would_make_for_itself_are_refused(found):
    for process in found:
        assert "train_set is a DataLoader, expected a data set that processes can share" in process["loader"]


def test_dropout_differs_between_processes(found):
    assert not found[0]["random state"].equal(found[1]["random state"])


def test_one_process_alone_needs_no_group():
    rows, model = torch.arange(4), make_model(make_data())
    assert distributed.world_size == 1
    assert distributed.is_first()
    assert distributed.all_reduce_sum(rows) is rows
    assert distributed.replicate(model) == model.logits_and_targets


def test_a_lone_process_is_the_first_whatever_number_a_scheduler_gave_it(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert distributed.is_first()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not distributed.is_first()


@pytest.fixture
def left(monkeypatch):
    """What this process, one of several that are connected, will not wait for when it ends."""
    left = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.atexit, "unregister", left.append)
    return left


def test_a_process_that_fails_does_not_wait_for_the_others_when_it_ends(left):
    with distributed.process_group(torch.device("cpu")):
        assert distributed.world_size == 2
    assert not left and distributed.world_size == 1
    with pytest.raises(MemoryError), distributed.process_group(torch.device("cpu")):
        raise MemoryError
    assert left == [torch.distributed.destroy_process_group]
