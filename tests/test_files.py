import io
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import save_file

from transformer_lib import files
from transformer_lib.checkpoint import save_model
from transformer_lib.files import (
    CheckpointError,
    load_training_state,
    new_folder,
    replacing,
    save_training_state,
    say,
)


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


@pytest.mark.skipif(sys.platform == "win32", reason="permissions work differently there")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_may_be_read_by_whom_the_umask_says_and_an_old_one_by_the_same_as_before(tmp_path, trained, umask):
    def writers():
        tokenizers = {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}
        save_model(tmp_path / "model.safetensors", trained.model, tokenizers)
        save_training_state(tmp_path / "state.pt", {"weights": torch.zeros(2)})
        with new_folder(tmp_path / "folder") as temporary:
            (temporary / "deep").mkdir()
            save_file({"a": torch.zeros(2)}, temporary / "deep" / "tensors")

    def modes():
        return {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}

    before = os.umask(umask)
    try:
        writers()
        assert modes() == {0o666 & ~umask}
        files = [path for path in tmp_path.iterdir() if path.is_file()]
        (tmp_path / "folder" / "deep" / "tensors").unlink()
        (tmp_path / "folder" / "deep").rmdir()
        for path in files:
            path.chmod(0o640)
        writers()
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}
    finally:
        os.umask(before)


WRITE_A_FOLDER = """
import sys, time
from transformer_lib.files import new_folder
with new_folder(sys.argv[1]) as temporary:
    (temporary / "half").write_text("half of what was to be")
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.mark.processes
def test_what_a_killed_process_leaves_in_a_new_folder_does_not_stop_the_next(tmp_path):
    folder = tmp_path / "new"
    command = [sys.executable, "-c", WRITE_A_FOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().strip() == b"begun"
        with pytest.raises(FileExistsError, match="another process"), new_folder(folder):
            pass
        process.kill()
    with new_folder(folder) as temporary:
        (temporary / "whole").write_text("all of it")
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_an_error_leaves_no_folder_but_one_that_was_there(tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("there", "new", "new"):
        with pytest.raises(RuntimeError), new_folder(tmp_path / name) as temporary:
            (temporary / "half").write_text("half")
            raise RuntimeError
        assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_folder_that_holds_something_keeps_it(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="holds something"), new_folder(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("encoding", ["cp949", "ascii", "cp1252", "utf-8"])
def test_any_line_can_be_said_on_any_console(monkeypatch, encoding):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    say("ä – ⅓ 한 \ud800 \x1b[2J\n, and the rest")
    assert written.getvalue().decode(encoding).rstrip("\r\n").endswith(", and the rest")
    assert b"\x1b" not in written.getvalue() and written.getvalue().count(b"\n") == 1


def test_a_console_that_is_gone_ends_nothing(monkeypatch):
    class Broken(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    for gone in (Broken(), closed, None):
        monkeypatch.setattr(sys, "stdout", gone)
        say("still there")
