import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from transformer_lib import files
from transformer_lib.files import CheckpointError, load_training_state, locked, replace_file, save_training_state


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be replaced there")
def test_whoever_has_the_old_file_open_reads_it_to_the_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old" * 1000)
    with open(path, "rb", buffering=0) as reader:
        reader.read(3)
        replace_file(path, b"new")
        assert reader.read() == b"old" * 999
    assert path.read_bytes() == b"new"


def test_an_interruption_while_writing_leaves_what_was_there(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    path = tmp_path / "file"
    path.write_bytes(b"before")
    monkeypatch.setattr(files.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, b"after")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_training_state_comes_back_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "state"
    save_training_state(path, {"weights": torch.arange(1000), "epoch": 3})
    assert load_training_state(path)["weights"].equal(torch.arange(1000))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match="is not a complete training state"):
        load_training_state(path)
    with pytest.raises(FileNotFoundError, match="there is no training to resume"):
        load_training_state(tmp_path / "other")


@pytest.mark.parametrize("content", [[1, 2], {"weights": torch.zeros(2)}])
def test_what_is_no_training_state_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "state")
    with pytest.raises(CheckpointError, match="is not a training state of this library"):
        load_training_state(tmp_path / "state")


@pytest.mark.skipif(sys.platform == "win32", reason="links and modes are something else there")
def test_a_link_stays_a_link_and_a_private_file_private(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    replace_file(pipe, b"content")
    reader.join()
    assert read == [b"content"] and pipe.is_fifo()


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="there is no /dev/stdout here")
def test_the_standard_output_may_be_a_pipe():
    script = "from transformer_lib.files import replace_file; replace_file('/dev/stdout', b'content')"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"content"


def test_threads_that_write_one_file_leave_one_of_their_contents(tmp_path):
    def write(letter):
        for _ in range(50):
            replace_file(tmp_path / "file", letter * 100_000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, (b"a", b"b", b"c", b"d")))
    content = (tmp_path / "file").read_bytes()
    assert len(content) == 100_000 and len(set(content)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_path_below_a_file_says_so(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="what was there before is unchanged"):
        replace_file(tmp_path / "file" / "model", b"content")


def test_reading_a_training_state_runs_no_code(tmp_path):
    class Malicious:
        def __reduce__(self):
            return print, ("this must not be printed",)

    torch.save({"model": Malicious()}, tmp_path / "state")
    with pytest.raises(CheckpointError, match="is not a complete training state"):
        load_training_state(tmp_path / "state")


def test_a_process_that_is_killed_holds_no_lock(tmp_path):
    script = (
        "import os, sys, transformer_lib.files as files; lock = files.locked(files.Path(sys.argv[1])); "
        "lock.__enter__(); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().strip() == b"locked"
        with pytest.raises(FileExistsError, match="is in use by another training"), files.locked(tmp_path):
            pass
        process.kill()
    with files.locked(tmp_path):
        pass


@pytest.mark.skipif(os.name == "nt", reason="Windows locks files in another way")
@pytest.mark.parametrize("reason", [errno.ENOTSUP, errno.ENOLCK])
def test_where_a_file_system_cannot_lock_training_goes_on_with_a_warning(tmp_path, monkeypatch, reason):
    def flock(file, operation):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.warns(UserWarning, match="cannot lock files"), locked(tmp_path / "runs"):
        (tmp_path / "runs" / "model").touch()
    assert os.listdir(tmp_path / "runs") == ["model"]


HOLD_WITHOUT_FLOCK = """
import errno, fcntl, os, pathlib, sys, warnings
from transformer_lib.files import locked
def flock(file, operation):
    raise OSError(errno.ENOSYS, "no flock")
fcntl.flock = flock
warnings.simplefilter("ignore")
with locked(pathlib.Path(sys.argv[1])):
    if sys.argv[2] == "die":
        os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows locks files in another way")
def test_a_killed_process_holds_no_lock_on_a_file_system_without_flock_either(tmp_path):
    for then in ("die", "end"):
        done = subprocess.run(
            [sys.executable, "-c", HOLD_WITHOUT_FLOCK, tmp_path, then], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
