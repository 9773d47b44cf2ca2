"""The command line in two processes: it speaks once, and stops where one of them does."""

import os
import socket
import subprocess
import sys
import threading

import pytest
from two_processes import torchrun

from transformer_lib.checkpoint import MODEL_FILE, load_model
from transformer_lib.files import STATE_FILE, load_training_state


@pytest.fixture
def corpus(tmp_path, pairs):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split in ("train", "val", "test"):
        for side, language in enumerate(("de", "en")):
            (folder / f"{split}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return folder


def test_the_command_line_prints_once_and_stops_when_a_process_does(corpus, tmp_path):
    output = tmp_path / "run"
    train = ("-m", "transformer_lib", "train", "--corpus", corpus, "--preset", "multi30k-fast", "--output", output)
    train = (*train, "--epochs", 1, "--subwords", 80, "--device", "cpu")
    done = torchrun(*train)
    assert done.returncode == 0, done.stderr
    for line in ("corpus    ", "epoch   1/1", "beam 4, BLEU on val", "test: 8 pairs", "Try it:"):
        assert done.stdout.count(line) == 1
    notes = load_model(output / MODEL_FILE).notes
    assert len(notes["history"]["val_loss"]) == 1
    tried = next(line for line in done.stdout.splitlines() if line.startswith("beam 4")).split(": ")[1]
    scores = {
        float(length_penalty): float(bleu) for length_penalty, bleu in (both.split() for both in tried.split(", "))
    }
    assert len(scores) == 7
    assert scores[notes["search"]["length_penalty"]] == max(scores.values())
    text = corpus / "test.en"
    lm = ("-m", "transformer_lib", "train-lm", "--corpus", text, "--epochs", 1, "--device", "cpu")
    done = torchrun(*lm, "--bptt", 4, "--batch-size", 2, "--output", tmp_path / "lm")
    assert done.returncode == 0, done.stderr
    for line in ("text      ", "epoch   1/1", "Try it:"):
        assert done.stdout.count(line) == 1
    again = torchrun(*train)
    assert again.returncode != 0
    assert "holds a training: resume it" in again.stderr


def test_when_one_process_is_killed_the_other_says_so_and_the_training_can_go_on(corpus, tmp_path):
    """Without torchrun, which would end the other process before it could say anything."""
    output = tmp_path / "run"
    train = [sys.executable, "-m", "transformer_lib", "train", "--corpus", corpus, "--output", output]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    train += ["--device", "cpu", "--preset", "tutorial"]
    endless = [*train, "--epochs", "1000"]
    first, second = (
        subprocess.Popen(
            endless, env={**world, "RANK": rank}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    )
    too_long = threading.Timer(300, first.kill)
    too_long.start()
    try:
        line = first.stdout.readline()
        while line and not line.startswith("epoch   1/"):
            line = first.stdout.readline()
        second.kill()
        _, said = first.communicate(timeout=300)
    finally:
        too_long.cancel()
        for process in (first, second):
            process.kill()
            process.communicate()
    assert first.returncode == 1
    assert "error: another process of this training has stopped" in said
    done = len(load_training_state(output / STATE_FILE)["history"]["val_loss"])
    assert done >= 1
    alone = [*train, "--epochs", str(done + 1), "--resume"]
    resumed = subprocess.run(alone, capture_output=True, text=True, timeout=300)
    assert resumed.returncode == 0, resumed.stderr
    assert f"epoch {done + 1:3d}/" in resumed.stdout
