"""The machines of notebook 14: a fair race, a profile by kinds of operations, a device's speed limit, the plain way."""

import copy
import functools
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from IPython.display import Markdown, display
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib import Transformer
from transformer_lib.data.batches import Batch
from transformer_lib.files import shipped
from transformer_lib.model.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lib.notebook import plots
from transformer_lib.notebook.session import show_source
from transformer_lib.training.loss import sequence_loss

Step = Callable[[], Any]


def folded(*objects: Any) -> Markdown:
    """Show the source of functions or classes, folded away."""
    names = ", ".join(one.__qualname__ for one in objects)
    summary = f"<summary>Going deeper: the source of {names}</summary>"
    return Markdown(f"<details>{summary}\n\n{show_source(*objects).data}\n\n</details>")


class Workbench:
    """Measure how long things take on a device.

    Args:
        device: on which all that is measured computes.
        quick: measure everything once, which says that it runs, and not how fast.
    """

    def __init__(self, device: torch.device, quick: bool = False):
        self.device, self.quick = device, quick

    def wait(self) -> None:
        """Wait until a GPU has done what it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def time(self, step: Step, calls: int = 1) -> float:
        """Return how many milliseconds a call takes, on average over several."""
        self.wait()
        started = time.perf_counter()
        for _ in range(calls):
            step()
        self.wait()
        return 1000 * (time.perf_counter() - started) / calls

    def race(self, steps: Mapping[str, Step], rounds: int = 5, show: bool = True) -> dict[str, float]:
        """Run functions in turn, and return their median times in milliseconds.

        It shows each median, with the lowest and the highest time, and how many times as fast it is as the first,
        unless the two ranges overlap. It also says where a range overlaps that of the row above.
        """
        calls = {name: self._calls_of(step) for name, step in steps.items()}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(1 if self.quick else rounds):
            for name, step in steps.items():
                times[name].append(self.time(step, calls[name]))
        if show:
            first, above = next(iter(times.values())), None
            for name, values in times.items():
                spread = f"({min(values):.2f} to {max(values):.2f})"
                print(f"{name:36}{median(values):9.2f} ms{spread:>24}{_compared(values, first, above)}")
                above = values
        return {name: median(values) for name, values in times.items()}

    def _calls_of(self, step: Step) -> int:
        """Return how many calls take about a tenth of a second, after a first one that does not count."""
        if self.time(step) > 1000 or self.quick:
            return 1
        return max(1, int(100 / self.time(step)))

    def speed_limit(self, dtype: torch.dtype) -> float:
        """Return how many operations a second large matrix products reach at best."""
        in_small = self.device.type == "cpu" or self.quick
        sizes = [(2048, 256, 512), (2048, 512, 2048)] if in_small else [(4096, 4096, 4096)]
        return max(self._rate_of(dtype, *size) for size in sizes)

    def _rate_of(self, dtype: torch.dtype, rows: int, inner: int, columns: int) -> float:
        a = torch.randn(rows, inner, device=self.device).to(dtype)
        b = torch.randn(inner, columns, device=self.device).to(dtype)
        seconds = min(self.time(lambda: a @ b, calls=5) for _ in range(3 if self.quick else 20)) / 1000
        return 2 * rows * inner * columns / seconds

    # Profiles

    @property
    def kinds(self) -> dict[str, tuple[str, ...]]:
        """Kinds of operations, by how their names begin."""
        dropout = "dropout" if self.device.type == "cuda" else "random numbers of dropout"
        return {
            "linear layers": ("addmm", "mm"),
            "attention's products": ("bmm", "baddbmm"),
            "attention's mask and softmax": ("masked_fill", "_softmax"),
            "fused attention": ("_scaled_dot", "_efficient_attention", "_flash_attention", "_cudnn_attention"),
            dropout: ("bernoulli_", "native_dropout", "random_"),
            "multiplying, adding, comparing": ("mul", "add", "div", "sum", "ge", "clamp_min", "threshold"),
            "the loss": ("_log_softmax", "nll_loss"),
            "copying": ("copy_", "clone", "cat", "fill_", "zero_", "index"),
            "layer norm": ("native_layer_norm",),
            "Adam": ("Optimizer.step",),
        }

    def profile(self, step: Step, times: int = 3) -> dict[str, float]:
        """Return how many milliseconds each kind of operation takes in a step: of several runs, in the fastest.

        An Apple GPU's are not seen by PyTorch's profiler, and then there are none.
        """
        if self.device.type == "mps":
            print("PyTorch's profiler does not see what an Apple GPU computes, so there is no profile here")
            return {}
        step()
        profiles = [self._profile_once(step) for _ in range(1 if self.quick else times)]
        return min(profiles, key=lambda spent: sum(spent.values()))

    def _profile_once(self, step: Step) -> dict[str, float]:
        from torch.autograd import DeviceType
        from torch.profiler import profile

        with profile() as profiler:  # of all that this PyTorch can profile
            step()
            self.wait()
        spent = dict.fromkeys([*self.kinds, "all else"], 0.0)
        for event in profiler.events():
            if event.device_type == DeviceType.CPU:  # an operation, with the time of the GPU's kernels it launched
                on_gpu = self.device.type == "cuda"
                microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
                spent[_kind_of(event, self.kinds)] += microseconds / 1000
        return spent

    def show_profile(self, step: Step) -> None:
        """Draw a step's profile in percent, and compare its sum with the time of a step that nobody watches."""
        if spent := self.profile(step):
            shares = _percent(spent)
            whose = "the kernels'" if self.device.type == "cuda" else "a training step's"
            display(plots.bars(shares, f"share of {whose} time, in percent", label="{:.0f}"))
            own = sum(share for kind, share in shares.items() if "attention" in kind)
            print(
                f"linear layers {shares['linear layers']:.0f}%; attention's own products, mask and softmax {own:.0f}%"
            )
            alone = self.race({"step": step}, rounds=3, show=False)["step"]
            print(f"all bars: {sum(spent.values()):.0f} ms; a step without the profiler: {alone:.0f} ms")

    def compare_profiles(self, before: Step, after: Step) -> None:
        """Print which kinds of operations take another time in one step than in another, and what is largest now."""
        old, new = self.profile(before), self.profile(after)
        print("the three largest changes:")
        for kind in sorted(old, key=lambda kind: -abs(new[kind] - old[kind]))[:3]:
            print(f"{kind:32}{old[kind]:9.1f} ms before, {new[kind]:9.1f} ms after")
        if new:
            shares = _percent(new)
            largest = max(shares, key=lambda kind: shares[kind])
            print(f"now largest: {largest}, {shares[largest]:.0f}% of the step; Adam takes {shares['Adam']:.0f}%")

    # Attention alone

    def race_attention(self, d_k: int, num_heads: int, lengths: Iterable[int]) -> dict[str, list[float]]:
        """Return how many milliseconds readable and fused attention take on 32 sentences of each length."""
        curves: dict[str, list[float]] = {"readable": [], "fused": []}
        for length in lengths:
            q, k, v = (torch.randn(32, num_heads, length, d_k, device=self.device) for _ in range(3))
            mask = torch.ones(32, 1, 1, length, dtype=torch.bool, device=self.device)
            mask[::2, :, :, -2:] = False
            readable = functools.partial(scaled_dot_product_attention, q, k, v, mask)
            fused = functools.partial(F.scaled_dot_product_attention, q, k, v, mask)
            with torch.no_grad():
                torch.testing.assert_close(readable()[0], fused(), rtol=1e-4, atol=1e-4)
                times = self.race({"readable": readable, "fused": fused}, show=False)
            for name, milliseconds in times.items():
                curves[name].append(milliseconds)
            print(f"{length:3} tokens: the fused kernel is {times['readable'] / times['fused']:4.1f} times as fast")
        return curves


def _compared(times: list[float], first: list[float], above: list[float] | None) -> str:
    """Say how many times as fast something is as the first, and where ranges overlap."""
    if above is None:
        return ""
    if _overlap(first, times):
        return "   ranges overlap"
    ratio = f"{median(first) / median(times):8.2f} times as fast"
    return f"{ratio}, overlaps the row above" if _overlap(above, times) else ratio


def _overlap(some: list[float], others: list[float]) -> bool:
    return min(some) <= max(others) and min(others) <= max(some)


def _kind_of(event: Any, kinds: Mapping[str, tuple[str, ...]]) -> str:
    """Sort an event of a profile: it belongs to the outermost operation that has a kind."""
    names: list[str] = []
    while event is not None:
        names.insert(0, event.name.removeprefix("aten::"))
        event = event.cpu_parent
    return next((kind for name in names for kind, known in kinds.items() if name.startswith(known)), "all else")


def _percent(spent: Mapping[str, float]) -> dict[str, float]:
    return {kind: 100 * milliseconds / (sum(spent.values()) or 1) for kind, milliseconds in spent.items()}


# The plain way, and what is counted and compared


class PlainAttention(MultiHeadAttention):
    """Attention as most people write it first: the map of every head is computed and kept, always."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Do what the library's own does."""
        _, weights = scaled_dot_product_attention(q, k, v, mask)
        weights = F.dropout(weights, self.dropout, self.training)
        return weights @ v, weights


def with_plain_attention(model: Transformer) -> Transformer:
    """Return a copy of a model that computes the same, with ``PlainAttention``."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.__class__ = PlainAttention
    return model


def medium_batch(batches: Iterable[Batch]) -> Batch:
    """Return the one of medium size of the first 40 batches."""
    some = sorted(itertools.islice(batches, 40), key=lambda batch: batch.src.numel() + batch.tgt.numel())
    return some[len(some) // 2]


def needed_operations(model: Transformer, batch: Batch, pad_id: int) -> int:
    """Count the operations in the matrix products of a training step on a batch's words, without its padding."""
    total = 0
    for src, tgt in zip(batch.src, batch.tgt, strict=True):
        with FlopCounterMode(display=False) as counter:
            model(src[src != pad_id][None], tgt[tgt != pad_id][None, :-1]).sum().backward()
        total += counter.get_total_flops()
    model.zero_grad()
    return total


def share_of_padding(batches: Iterable[Batch], pad_id: int) -> float:
    """Return how much of all positions is padding, on both sides together."""
    real = positions = 0
    for batch in batches:
        for ids in (batch.src, batch.tgt):
            real += int((ids != pad_id).sum())
            positions += ids.numel()
    return 1 - real / positions


def loss_and_gradient(model: Transformer, batch: Batch, pad_id: int) -> tuple[float, Tensor]:
    """Return a model's loss on a batch, without dropout, and its gradient as one vector."""
    was_training = model.training
    logits, targets = model.eval().logits_and_targets(batch.src, batch.tgt)
    loss = sequence_loss(logits, targets, pad_id)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    model.train(was_training)
    return loss.item(), nn.utils.parameters_to_vector(gradients)


def train_in(processes: int, in_small: bool = False) -> str:
    """Train on the sample corpus for an epoch in so many processes, and return what was printed about it."""
    pairs = [f"{shipped('data/sample')}/val.{side}" for side in ("de", "en")] if in_small else ["sample"]
    with tempfile.TemporaryDirectory() as folder:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [*(launcher if processes > 1 else []), "-m", "transformer_lib", "train", "--corpus", *pairs]
        command += ["--epochs", "1", "--device", "cpu", "--output", str(Path(folder) / "model")]
        command += ["--set", "d_model=32", "d_ff=64", "num_layers=1"] if in_small else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"the training in {processes} processes ended with:\n{done.stderr}")
    return next(line for line in done.stdout.splitlines() if line.startswith("epoch"))


def race_engines(engines: Mapping[str, Callable[..., Iterable[str]]], sentences: list[str]) -> None:
    """Let engines translate sentences, greedily and with a beam of 4, and print their times.

    Beside each time stands how many of the texts are those of the first engine.
    """
    first, *_ = engines.values()
    texts = {beam_size: list(first(sentences, beam_size)) for beam_size in (1, 4)}
    print(f"{torch.get_num_threads()} threads, {len(sentences):,} sentences")
    print("                greedy: seconds   our text   beam of 4: seconds   our text")
    for name, translate in engines.items():
        row = f"{name:14}"
        for beam_size, ours in texts.items():
            translate(sentences[-64:], beam_size)  # to warm up
            started = time.perf_counter()
            written = translate(sentences, beam_size)
            seconds = time.perf_counter() - started
            same = sum(one == other for one, other in zip(written, ours, strict=True))
            row += f"{seconds:17.1f}{same:11,}" if beam_size == 1 else f"{seconds:21.1f}{same:11,}"
        print(row)
