"""What readers do to a notebook: restart it and run it all again, run cells twice, stop a training, write boxes."""

import asyncio
import hashlib
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from exercise_answers import worked
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from safetensors import safe_open
from transformer_exercises import course, taking_home

from transformer_lib.checkpoint import load_model
from transformer_lib.files import STATE_FILE, load_training_state

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# A part of the cell in which the library trains what a notebook is about, and where it keeps the state, if it does.
TRAINS = {
    "00_quick_tour": ("history = fit(", None),
    "13_what_is_a_change_worth": ("train_translator(corpus, preset", "folder/runs/sample-best"),
    "14_fast": ("train_in(processes, ", "temporary/*/model"),
}
READERS_OWN = {  # loops in cells keep no state
    "02_attention",
    "05_the_transformer",
    "06_training",
    "08_looking_inside",
    "10_from_here_to_gpt",
    "11_a_block_since_2017",
    "17_the_clinic",
}
WITHOUT_TRAINING = {
    "01_from_sentences_to_batches",
    "03_masks",
    "04_the_boxes",
    "07_translating",
    "09_bleu",
    "15_why_attention",
    "16_pytorchs_transformer",
    "12_subwords",
}

MY_FILE = f"runs/{taking_home.FILE}"  # which notebooks 02 to 09 write
KEEPS = {path.stem: {MY_FILE} for path in NOTEBOOKS if path.stem[:2] in course.WRITTEN and path.stem[:2] < "10"}
KEEPS["06_training"] |= {"runs/mine/model.safetensors", "runs/mine/epochs.json"}  # for 07 to 09
KEEPS["08_looking_inside"] |= {"runs/my_page"}  # a folder; of the library's model: here, 06 has left none
KEEPS["09_bleu"] |= {"runs/report.html"}  # likewise

# The kernels run this first: a fast development run, but with so many epochs, and with runs/ where a full run has it.
# It can also hold a training at the third step of a cell, so that an interrupt never comes too late.
STARTUP = """
def prepare():
    import dataclasses
    import os
    import time
    from pathlib import Path
    from types import SimpleNamespace

    from torch.optim.optimizer import register_optimizer_step_post_hook

    from transformer_lib.notebook import session

    steps = Path(os.environ["STEPS"])

    def hold(*_):
        if steps.exists():
            with steps.open("a") as file:
                file.write(".")
            while steps.exists() and steps.stat().st_size >= 3:
                time.sleep(0.01)

    session.tempfile = SimpleNamespace(mkdtemp=lambda: "runs")
    epochs = {"epochs": int(os.environ["EPOCHS"])}
    session.replace = lambda it, **what: dataclasses.replace(it, **(epochs if "epochs" in what else what))
    register_optimizer_step_post_hook(hold)


prepare()
del prepare
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for a notebook to run in, with nothing of the user's around it."""
    for name in [name for name in os.environ if name.startswith("TRANSFORMER_LIB_")]:
        monkeypatch.delenv(name)
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    for new in (startup, tmp_path / "temporary", tmp_path / "folder"):
        new.mkdir(parents=True)
    (startup / "prepare.py").write_text(STARTUP, encoding="utf-8")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))
    monkeypatch.setenv("EPOCHS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as in conftest.py
    monkeypatch.setenv("TRANSFORMER_LIB_FAST_DEV_RUN", "1")
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path / "cache"))
    return tmp_path / "folder"


def open_notebook(path, folder):
    """Return a client that has the notebook, but no kernel yet."""
    resources = {"metadata": {"path": str(folder)}}  # where the kernel works
    return NotebookClient(
        nbformat.read(path, as_version=4),
        resources=resources,
        kernel_name="python3",
        coalesce_streams=True,
        timeout=900,
        shutdown_kernel="immediate",
    )


def code_of(client):
    return [(index, cell) for index, cell in enumerate(client.nb.cells) if cell.cell_type == "code"]


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def fixed(client):
    """Return what the cells have printed whose text follows from the code alone, as CONTRIBUTING.md says."""
    return {
        index: printed(cell) for index, cell in code_of(client) if "nbval-check-output" in cell.metadata.get("tags", [])
    }


def files_in(folder):
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".lock"]  # locks hold nothing
    return {file.relative_to(folder).as_posix(): content_of(file) for file in files}


def content_of(file):
    """Return what stands for a file's content; safetensors writes what it is told about a model in any order."""
    if file.suffix != ".safetensors":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    with safe_open(file, "numpy") as model:
        weights = b"".join(model.get_tensor(name).tobytes() for name in sorted(model.keys()))
        return model.metadata(), hashlib.sha256(weights).hexdigest()


def keeps_its_model(path):
    return (TRAINS.get(path.stem, ("", None))[1] or "").startswith("folder/")


def epochs_of(run):
    """Return the losses of the epochs that a folder in runs/ holds: of the best model, and of the training's state."""
    model, state = load_model(run), load_training_state(run / STATE_FILE)
    return model.notes["history"]["val_loss"], state["history"]["val_loss"]


def test_every_notebook_is_known_here():
    assert sorted(path.stem for path in NOTEBOOKS) == sorted([*TRAINS, *READERS_OWN, *WITHOUT_TRAINING])


@each_notebook
def test_running_all_of_it_a_second_time_finds_what_the_first_left(path, folder):
    first, second = (open_notebook(path, folder) for _ in range(2))
    first.execute()
    left = files_in(folder)
    second.execute()  # in a kernel of its own
    assert files_in(folder) == left
    assert fixed(second) == fixed(first)
    if keeps_its_model(path):
        part, where = TRAINS[path.stem]
        run = folder.parent / where
        assert {(folder / file).parent for file in left} == {run}
        trained, loaded = (
            printed(cell) for client in (first, second) for _, cell in code_of(client) if part in cell.source
        )
        assert "epoch   1/" in trained and "epoch   1/" not in loaded
        assert all(epochs_of(run))
    else:
        kept = {re.sub(r"(?<=/my_page)/.*", "", name) for name in left}
        assert kept == KEEPS.get(path.stem, set())


@each_notebook
def test_every_cell_can_be_run_twice_in_a_row(path, folder):
    client = open_notebook(path, folder)
    once, again = {}, {}
    with client.setup_kernel():
        for index, cell in code_of(client):
            for lines in (once, again):
                client.execute_cell(cell, index)
                lines[index] = printed(cell)
    certain = fixed(client)
    assert {index: again[index] for index in certain} == {index: once[index] for index in certain}


@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path.stem not in WITHOUT_TRAINING], ids=lambda path: path.stem
)
def test_a_cell_that_was_stopped_while_it_trained_can_be_run_again(path, folder, monkeypatch):
    monkeypatch.setenv("EPOCHS", "2")
    client = open_notebook(path, folder)
    stored = fixed(client)
    for _, cell in code_of(client):
        cell.outputs = []  # or they would be taken for a sign that it trains
    part, where = TRAINS.get(path.stem, (None, None))
    stopped = asyncio.run(stop_and_go_on(client, folder.parent, part, where))
    assert fixed(client) == stored
    main = [index for index in stopped if part is not None and part in client.nb.cells[index].source]
    assert stopped and len(main) == (part is not None)


async def stop_and_go_on(client, tmp_path, part, where):
    """Run all cells, stop each one that trains, and run it again; return which were stopped."""
    steps, stopped = tmp_path / "steps", []
    async with client.async_setup_kernel():
        for index, cell in code_of(client):
            main = part is not None and part in cell.source
            if not main:
                steps.touch()  # from now on, the third step is held
            running = asyncio.ensure_future(client.async_execute_cell(cell, index))
            while not running.done() and not (
                has_trained_an_epoch(cell, tmp_path, where) if main else steps.stat().st_size >= 3
            ):
                await asyncio.sleep(0.02)
            if running.done():
                await running  # raises what the cell raised
            else:
                await interrupt(client, running, steps)
                with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
                    await running
                stopped.append(index)
                steps.unlink(missing_ok=True)
                before = what_is_kept(cell, tmp_path, where) if main else []
                assert not await left_behind(client, tmp_path)
                await client.async_execute_cell(cell, index)
                assert not before or what_is_kept(cell, tmp_path, where)[:1] == before
            steps.unlink(missing_ok=True)
    return stopped


async def interrupt(client, running, steps):
    """Stop a cell, and once more where it goes on, as one of notebook 14 does, which catches the first interrupt."""
    taken = steps.stat().st_size if steps.exists() else 0
    await client.km.interrupt_kernel()
    while not running.done():
        if steps.exists() and steps.stat().st_size > taken:  # the next step is held
            taken = steps.stat().st_size
            await client.km.interrupt_kernel()
        await asyncio.sleep(0.02)


def has_trained_an_epoch(cell, tmp_path, where):
    """Return whether the first epoch is over and the training goes on; in another process, whether it has begun."""
    if where is not None and where.startswith("temporary/"):  # what that prints is shown when it has ended
        return any(tmp_path.glob(f"{where}/*"))
    return "epoch   1/" in printed(cell) and (where is None or any(tmp_path.glob(f"{where}/{STATE_FILE}")))


def what_is_kept(cell, tmp_path, where):
    """Return the losses of the epochs that are on the disk, after a look at what the cell says about them."""
    if where is None or not where.startswith("folder/"):
        return []
    best, state = epochs_of(tmp_path / where)
    if len(state) == 1:
        assert best == state
        assert "epoch   1/2" in printed(cell) and "epoch   2/2" not in printed(cell)
    else:
        assert len(state) == 2 and min(best) == min(state)
        assert "epoch   1/2" not in printed(cell) and "epoch   2/2" in printed(cell)
    return state


async def left_behind(client, tmp_path):
    """Return what a stopped cell has left: processes that it started, and folders that they wrote to."""
    kernel = client.km.provisioner.process.pid
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(tmp_path / "temporary") and process.pid != kernel:
                processes.append(process)
        except psutil.Error:  # it has ended, or is someone else's
            pass
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, timeout=60)
    return [*alive, *(tmp_path / "temporary").glob("*/model")]


ALL = [name for names in course.WRITTEN.values() for name in names]
HALVES = [random.Random(seed).sample(ALL, len(ALL) // 2) for seed in (1, 2, 3)]


@pytest.mark.parametrize("solved", [[], ALL, *HALVES], ids=["none", "all", "half1", "half2", "half3"])
def test_whatever_readers_have_written_the_series_goes_on_and_their_file_trains(solved, folder):
    for path in (path for path in NOTEBOOKS if path.stem[:2] in course.WRITTEN):
        client = open_notebook(path, folder)
        for cell, fold in zip(client.nb.cells, client.nb.cells[1:], strict=False):
            for name, call in worked.asked_for(cell.source).items():
                if name in solved:
                    (answer,) = worked.FOLD.findall(fold.source)
                    cell.source = f"# mine: {name}\n{answer}\n\n\n{call}"
        client.execute()
        said = {cell.source: shown(cell) for _, cell in code_of(client)}
        for name in course.WRITTEN[path.stem[:2]]:
            (verdict,) = (text for source, text in said.items() if name in worked.asked_for(source))
            assert f"{name} · {'right' if name in solved else 'not solved yet'}" in verdict
    text = (folder / MY_FILE).read_text(encoding="utf-8")
    parts = [name for name in taking_home.PARTS if f"# mine: {name}\n" in text]
    assert f"{len(parts)} of {len(taking_home.PARTS)} parts are yours" in text
    assert solved or not parts
    assert len(parts) == len(taking_home.PARTS) or solved != ALL
    sample = Path(__file__).parents[2] / "data" / "sample"
    files = {split: [str(sample / f"{split}.{side}") for side in ("de", "en")] for split in ("train", "test")}
    command = [sys.executable, "-I", MY_FILE]  # which keeps this project out
    small = "--epochs 4 --vocab_size 600 --d_model 64 --d_ff 128 --num_layers 2 --max_tokens 512 --learning_rate 4e-3"
    train = [*command, "train", "--texts", *files["train"], "--test", *files["test"], *small.split()]
    printed_by = subprocess.run(train, cwd=folder, capture_output=True, text=True, check=True).stdout
    scores = [float(score) for score in re.findall(r"BLEU .*: ([\d.]+)", printed_by)]
    assert len(scores) == 2 and min(scores) > 60, printed_by
    translate = [*command, "translate", "Ein Hund schläft."]
    assert subprocess.run(translate, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def shown(cell):
    return printed(cell) + "".join(output.data.get("text/plain", "") for output in cell.outputs if "data" in output)
