import pytest
import torch

from transformer_lib.fast.attention import fused_attention_is_right
from transformer_lib.training import device
from transformer_lib.training.device import pick_device


def test_of_several_processes_each_gets_a_gpu_or_is_told_that_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(device, "_computes", lambda kind: True)
    assert pick_device() == torch.device("cuda")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert pick_device() == torch.device("cuda:0")  # some ways to start processes tell no local rank
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert pick_device() == torch.device("cuda:1")
    assert pick_device("cuda:0") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match=r"device is 'cuda:2', but this machine has 1 cpu, 2 cuda"):
        pick_device()


def test_devices():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device().type in ("cpu", "cuda", "mps")
    for name in ("tpu", "cuda:99", "nonsense"):
        with pytest.raises(ValueError, match=rf"device is '{name}', but this machine has .*cpu"):
            pick_device(name)


def test_a_gpu_that_cannot_compute_is_not_picked(monkeypatch):
    fused_attention_is_right.cache_clear()  # a device that was asked before
    to = torch.Tensor.to

    def no_kernel(tensor, device):
        if device.type == "cuda":
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")
        return to(tensor, device)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.Tensor, "to", no_kernel)
    with pytest.warns(UserWarning, match=r"device 'cuda', but it cannot compute: CUDA error: no kernel image.*device$"):
        assert pick_device() == torch.device("cpu")
