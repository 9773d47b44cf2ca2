"""The command line in two processes: it speaks once."""

import pytest
from two_processes import torchrun

from transformer_lib.checkpoint import MODEL_FILE, load_model


@pytest.fixture
def corpus(tmp_path, pairs):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split in ("train", "val", "test"):
        for side, language in enumerate(("de", "en")):
            (folder / f"{split}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_the_command_line_prints_once_and_stops_when_a_process_does(corpus, tmp_path):
    output = tmp_path / "run"
    train = ("-m", "transformer_lib", "train", "--corpus", corpus, "--preset", "multi30k-fast", "--output", output)
    train = (*train, "--epochs", 1, "--set", "subwords=80", "--device", "cpu")
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
    again = torchrun(*train)
    assert again.returncode != 0
    assert "holds a training run: resume it" in again.stderr
