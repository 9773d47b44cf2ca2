import pytest
import torch

from transformer_lib.training.device import pick_device, seed_everything


def test_of_several_processes_each_gets_a_gpu_or_is_told_that_there_is_none(monkeypatch):
    def on_a_machine_with_two(size, device):
        if torch.device(device).index not in (None, 0, 1):
            raise RuntimeError("CUDA error: invalid device ordinal\nmore")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", on_a_machine_with_two)
    assert pick_device() == torch.device("cuda")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert pick_device() == torch.device("cuda:0")  # some ways to start processes tell no local rank
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert pick_device() == torch.device("cuda:1")
    assert pick_device("cuda:0") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="device is 'cuda:2', which this machine does not have: CUDA error"):
        pick_device()


def test_devices():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device().type in ("cpu", "cuda", "mps")
    for name in ("tpu", "cuda:99", "nonsense"):
        with pytest.raises(ValueError, match=f"device is '{name}', which this machine does not have"):
            pick_device(name)


def test_no_epoch_of_a_seed_has_the_random_numbers_of_another_seeds():
    drawn = []
    for seed in range(3):
        for epoch in range(3):
            seed_everything(seed, epoch)
            drawn.append(torch.rand(1).item())
    assert len({*drawn}) == 9
