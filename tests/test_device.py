import pytest
import torch

from transformer_lib.training.device import pick_device, seed_everything


class OnAGPU(torch.Tensor):
    """A tensor on a stand-in for a GPU. On one that is too old, everything can be allocated, and nothing computed."""

    is_too_old = False

    @classmethod
    def __torch_function__(cls, function, kinds, arguments=(), options=None):
        if cls.is_too_old and function is torch.Tensor.matmul:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")
        return super().__torch_function__(function, kinds, arguments, options or {})


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine that seems to have two."""
    real = torch.ones

    def ones(*size, device=None, requires_grad=False):
        if torch.device(device).index not in (None, 0, 1):
            raise RuntimeError("CUDA error: invalid device ordinal\nmore")
        return real(*size, device="cpu").as_subclass(OnAGPU).requires_grad_(requires_grad)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", ones)


@pytest.mark.usefixtures("two_gpus")
def test_of_several_processes_each_gets_a_gpu_or_is_told_that_there_is_none(monkeypatch):
    assert pick_device() == torch.device("cuda")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert pick_device() == torch.device("cuda:0")  # some ways to start processes tell no local rank
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert pick_device() == torch.device("cuda:1")
    assert pick_device("cuda:0") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match=r"device is 'cuda:2', which this machine does not have.*: CUDA error"):
        pick_device()


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_too_old_to_compute_gives_way_to_the_cpu_unless_it_was_named(monkeypatch):
    monkeypatch.setattr(OnAGPU, "is_too_old", True)
    with pytest.warns(UserWarning, match=r"'cuda'.*no kernel image.*CPU") as said:
        assert pick_device() == torch.device("cpu")
    assert len(said) == 1 and "\n" not in str(said[0].message)
    with pytest.raises(ValueError, match=r"device is 'cuda'.*no kernel image"):
        pick_device("cuda")
    monkeypatch.setenv("WORLD_SIZE", "2")  # not one process on a GPU, and one on a CPU
    with pytest.raises(ValueError, match=r"device is 'cuda:0'.*no kernel image"):
        pick_device()


def test_a_device_is_tried_without_a_random_number():
    before = torch.get_rng_state()
    pick_device()
    assert torch.get_rng_state().equal(before)


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
