import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from transformer_lib import files
from transformer_lib.files import CheckpointError, load_training_state, replacing, save_training_state


def write(path, content):
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be replaced there")
def test_whoever_has_the_old_file_open_reads_it_to_the_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old" * 1000)
    with open(path, "rb", buffering=0) as reader:
        reader.read(3)
        write(path, b"new")
        assert reader.read() == b"old" * 999
    assert path.read_bytes() == b"new"


def test_an_interruption_while_writing_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_bytes(b"half of what")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_threads_that_write_one_file_leave_one_of_their_contents(tmp_path):
    def write_often(letter):
        for _ in range(20):
            write(tmp_path / "file", letter * 100_000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write_often, (b"a", b"b", b"c", b"d")))
    content = (tmp_path / "file").read_bytes()
    assert len(content) == 100_000 and len(set(content)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_training_state_comes_back_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "state"
    save_training_state(path, {"weights": torch.arange(1000), "epoch": 3})
    assert load_training_state(path)["weights"].equal(torch.arange(1000))
    whole = path.read_bytes()
    at = whole.index(torch.arange(500, 505).numpy().tobytes())  # a weight, whose change torch.load would not notice
    for damaged in (whole[:-500], whole[:at] + b"x" + whole[at + 1 :]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="is not a complete training state"):
            load_training_state(path)
    with pytest.raises(CheckpointError, match="No such file"):
        load_training_state(tmp_path / "other")


def test_what_is_no_training_state_is_refused(tmp_path):
    class Malicious:
        def __reduce__(self):
            return print, ("this must not be printed",)

    for content in ([1, 2], {"weights": torch.zeros(2)}, {"format": "another"}, {"model": Malicious()}):
        torch.save(content, tmp_path / "state")
        with pytest.raises(CheckpointError, match="is not a complete training state of this library"):
            load_training_state(tmp_path / "state")


@pytest.mark.processes
def test_a_process_that_is_killed_holds_no_lock(tmp_path):
    script = (
        "import os, sys, transformer_lib.files as files; lock = files.locked(files.Path(sys.argv[1])); "
        "lock.__enter__(); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().strip() == b"locked"
        with pytest.raises(TimeoutError, match=r"\.training\.lock"), files.locked(tmp_path):
            pass
        process.kill()
    with files.locked(tmp_path):
        pass
