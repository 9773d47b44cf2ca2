"""A training whose disk fails says so in one line, loses no completed epoch, and goes on when the disk is mended."""

import contextlib

import pytest
import torch
from conftest import PAIRS, as_guest

from transformer_lib import Transformer, cli
from transformer_lib.checkpoint import MODEL_FILE, load_model
from transformer_lib.data.corpora import Corpus
from transformer_lib.files import STATE_FILE, load_training_state, save_training_state
from transformer_lib.training import trainer
from transformer_lib.training.device import seed_everything
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

RECIPE = Recipe(epochs=3, batch_size=3, learning_rate=2e-3)


def run(dataset, config, output, resume=False, log=print):
    """Train a fresh tiny model and return its weights."""
    seed_everything(RECIPE.seed)
    model = Transformer(config)
    fit(model, dataset, dataset, RECIPE, output, resume, log=log)
    return model.state_dict()


def same(a, b):
    return all(weights.equal(b[name]) for name, weights in a.items())


def fill_up(output, stack, full):
    stack.enter_context(full())


def make_read_only(output, stack, full):
    output.chmod(0o555)
    stack.callback(output.chmod, 0o755)


FAULTS = {"disk full": (fill_up, "File too large"), "read-only folder": (make_read_only, "Permission denied")}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_happens_to_the_disk_costs_no_completed_epoch(
    dataset, tiny_config, guest_folder, almost_full_disk, fault, tried
):
    expected = run(dataset, tiny_config, guest_folder / "straight")
    output, lines = guest_folder / "run", []
    happen, reason = FAULTS[fault]
    with as_guest(guest_folder), contextlib.ExitStack() as stack:

        def log(line):
            lines.append(line)
            if len(lines) == 2:
                happen(output, stack, almost_full_disk)

        with pytest.raises(
            OSError, match=f"run.* cannot be written .*{reason}.*; what was there before is unchanged"
        ) as error:
            run(dataset, tiny_config, output, log=log)
        assert len(load_training_state(output / STATE_FILE)["history"]["val_loss"]) == 2
        assert len(load_model(output).notes["history"]["val_loss"]) == 2
    assert {path.name for path in output.glob("[!.]*")} == {MODEL_FILE, STATE_FILE}
    assert len(lines) == 2
    assert same(run(dataset, tiny_config, output, resume=True), expected)
    tried(f"disk: {fault} while training", 1, "the epoch it was in", str(error.value).replace(str(guest_folder), "…"))


def interrupted_run(dataset, config, output):
    """Leave a run that has two epochs to go."""

    def stop(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(dataset, config, output, log=stop)


def never(*arguments):
    pytest.fail("it trains")


def test_a_folder_that_became_read_only_is_named_before_training_goes_on(
    dataset, tiny_config, guest_folder, monkeypatch
):
    output = guest_folder / "run"
    interrupted_run(dataset, tiny_config, output)
    monkeypatch.setattr(trainer, "train_epoch", never)
    with as_guest(guest_folder):
        output.chmod(0o555)
        with pytest.raises(OSError, match=r"Permission denied.*; what was there before is unchanged"):
            run(dataset, tiny_config, output, resume=True)
        output.chmod(0o755)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("optimizer"),
        lambda state: state["history"].update(more=1),
        lambda state: state["optimizer"]["state"][0].update(
            exp_avg=torch.zeros(3)
        ),  # a step would write beyond its end
        lambda state: state["model"].popitem(),
    ],
)
def test_a_training_state_that_does_not_fit_together_is_refused(dataset, tiny_config, tmp_path, change):
    output = tmp_path / "run"
    interrupted_run(dataset, tiny_config, output)
    state = load_training_state(output / STATE_FILE)
    change(state)
    save_training_state(output / STATE_FILE, state)
    with pytest.raises((KeyError, RuntimeError, TypeError, ValueError)):
        run(dataset, tiny_config, output, resume=True)


def test_a_folder_that_cannot_be_written_to_is_named_before_training(
    dataset, tiny_config, guest_folder, monkeypatch, tried
):
    run(dataset, tiny_config, None)  # imports all that is needed
    monkeypatch.setattr(trainer, "train_epoch", never)
    with as_guest(guest_folder):
        guest_folder.chmod(0o555)
        with pytest.raises(PermissionError, match="run") as error:
            run(dataset, tiny_config, guest_folder / "run")
        guest_folder.chmod(0o755)
    tried("disk: permission denied", 1, "nothing", str(error.value).replace(str(guest_folder), "…"))


def test_a_file_that_may_not_be_read_is_named(guest_folder, capsys):
    path = guest_folder / "model.safetensors"
    path.write_bytes(b"x")
    path.chmod(0)
    with as_guest(guest_folder):
        assert cli.main(["translate", "--model", str(path), "Ein Hund."]) == 1
    message = capsys.readouterr().err
    assert "Permission denied" in message and str(path) in message and message.count("\n") == 1


def test_the_command_line_says_it_in_one_line(tmp_path, monkeypatch, capsys, almost_full_disk):
    corpus = Corpus("tiny", "de", "en", source=("tiny",), pairs=dict.fromkeys(("train", "val", "test"), PAIRS))
    monkeypatch.setattr(cli, "load_corpus", lambda *arguments: corpus)
    output = tmp_path / "run"
    arguments = ["train", "--output", str(output), "--epochs", "1", "--min-freq", "1", "--device", "cpu"]
    with almost_full_disk():
        assert cli.main(arguments) == 1
    message = capsys.readouterr().err
    assert "File too large" in message and message.count("\n") == 1
    assert cli.main(arguments) == 0
