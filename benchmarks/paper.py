"""The numbers of "Attention Is All You Need", recomputed: what book/paper.md shows, part by part, in about a minute.

What the paper prints is written down here. The rest is counted with the library's own model, which has the paper's two
presets, or measured in seconds on one CPU thread:

    python benchmarks/paper.py
    python benchmarks/paper.py sizes table_2

What each part has printed goes into a JSON file with ``--output``. Only ``scores``, ``adam`` and ``warmup`` draw random
numbers; with another version of PyTorch, their last digits may differ.
"""

import argparse
import contextlib
import io
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from contenders import SMALL, machine, write
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib import Transformer, TransformerConfig, scaled_dot_product_attention
from transformer_lib.model.embeddings import SinusoidalPositionalEncoding
from transformer_lib.model.encoder import Encoder, EncoderLayer
from transformer_lib.model.masks import local_mask
from transformer_lib.model.sublayers import PositionwiseFeedForward
from transformer_lib.training.optimizer import learning_rate_schedule

BASE_COST, BIG_COST = 3.3e18, 2.3e19  # floating-point operations, from table 2
TABLE_2 = {  # BLEU and cost: English to German, English to French
    "ByteNet": (23.75, None, None, None),
    "Deep-Att + PosUnk": (None, 39.2, None, 1.0e20),
    "GNMT + RL": (24.6, 39.92, 2.3e19, 1.4e20),
    "ConvS2S": (25.16, 40.46, 9.6e18, 1.5e20),
    "MoE": (26.03, 40.56, 2.0e19, 1.2e20),
    "Deep-Att + PosUnk ensemble": (None, 40.4, None, 8.0e20),
    "GNMT + RL ensemble": (26.30, 41.16, 1.8e20, 1.1e21),
    "ConvS2S ensemble": (26.36, 41.29, 7.7e19, 1.2e21),
    "Transformer (base)": (27.3, 38.1, BASE_COST, BASE_COST),
    "Transformer (big)": (28.4, 41.8, BIG_COST, BIG_COST),
}
TABLE_3 = {  # perplexity and BLEU on newstest2013, and millions of parameters where the paper prints them
    "base": (4.92, 25.8, 65),
    "(A) 1 head of 512": (5.29, 24.9, None),
    "(A) 4 heads of 128": (5.00, 25.5, None),
    "(A) 16 heads of 32": (4.91, 25.8, None),
    "(A) 32 heads of 16": (5.01, 25.4, None),
    "(B) keys of 16": (5.16, 25.1, 58),
    "(B) keys of 32": (5.01, 25.4, 60),
    "(C) 2 layers": (6.11, 23.7, 36),
    "(C) 4 layers": (5.19, 25.3, 50),
    "(C) 8 layers": (4.88, 25.5, 80),
    "(C) d_model 256, heads of 32": (5.75, 24.5, 28),
    "(C) d_model 1024, heads of 128": (4.66, 26.0, 168),
    "(C) d_ff 1024": (5.12, 25.4, 53),
    "(C) d_ff 4096": (4.75, 26.2, 90),
    "(D) no dropout": (5.77, 24.6, None),
    "(D) dropout 0.2": (4.95, 25.5, None),
    "(D) no label smoothing": (4.67, 25.3, None),
    "(D) label smoothing 0.2": (5.47, 25.7, None),
    "(E) learned positions": (4.92, 25.7, None),
    "big": (4.33, 26.4, 213),
}
SIZES = {  # the lines of table 3 that a preset of the library can be changed into
    "base": ("paper_base", {}),
    "(C) 2 layers": ("paper_base", {"num_layers": 2}),
    "(C) 4 layers": ("paper_base", {"num_layers": 4}),
    "(C) 8 layers": ("paper_base", {"num_layers": 8}),
    "(C) d_model 256, heads of 32": ("paper_base", {"d_model": 256}),
    "(C) d_model 1024, heads of 128": ("paper_base", {"d_model": 1024}),
    "(C) d_ff 1024": ("paper_base", {"d_ff": 1024}),
    "(C) d_ff 4096": ("paper_base", {"d_ff": 4096}),
    "big": ("paper_big", {}),
}
TABLE_4 = {  # F1
    "Vinyals & Kaiser et al. 2014": 88.3,
    "Petrov et al. 2006": 90.4,
    "Zhu et al. 2013": 90.4,
    "Dyer et al. 2016": 91.7,
    "Transformer (4 layers)": 91.3,
    "Zhu et al. 2013, semi-supervised": 91.3,
    "Huang & Harper 2009, semi-supervised": 91.3,
    "McClosky et al. 2006, semi-supervised": 92.1,
    "Vinyals & Kaiser et al. 2014, semi-supervised": 92.1,
    "Transformer (4 layers), semi-supervised": 92.7,
    "Luong et al. 2015, multi-task": 93.0,
    "Dyer et al. 2016, generative": 93.3,
}


def on_paper(preset: str, vocabulary: int = 37_000, **changes: int | bool) -> Transformer:
    """Return a model whose tensors have shapes and no content, with one vocabulary for both languages."""
    with torch.device("meta"):
        return Transformer(TransformerConfig.preset(preset, vocabulary, vocabulary, **changes))


def presets() -> None:
    """Sections 3 and 5.1: the sizes of base and big, and how many parameters they have with 37,000 token types."""
    configs = [TransformerConfig.preset(name, 37_000, 37_000) for name in ("paper_base", "paper_big")]
    print(f"{'':24}{'base':>12}{'big':>12}")
    for name in ("num_layers", "d_model", "d_ff", "num_heads", "dropout", "positions", "tie_embeddings"):
        print(f"{name:24}" + "".join(f"{getattr(config, name)!s:>12}" for config in configs))
    models = [on_paper(name) for name in ("paper_base", "paper_big")]
    shared = [model.output.weight.numel() for model in models]
    counts = [model.num_parameters() for model in models]
    rest = [count - table for count, table in zip(counts, shared, strict=True)]
    for name, numbers in {"shared embedding": shared, "everything else": rest, "in all": counts}.items():
        print(f"{name:24}" + "".join(f"{number / 1e6:10.1f} M" for number in numbers))
    print(f"{'the paper prints':24}" + "".join(f"{TABLE_3[name][2]:10} M" for name in ("base", "big")))
    separate = on_paper("paper_base", tie_embeddings=False).num_parameters()
    print(f"base without sharing: {separate / 1e6:.1f} M; token types that weigh as much as its layers: ", end="")
    print(f"{rest[0] / 512:,.0f}")


def convolutions() -> None:
    """Section 3.3: the feed-forward network is two convolutions of width 1, with a ReLU between."""
    feed_forward = PositionwiseFeedForward(d_model=8, d_ff=32)
    layers = [nn.Conv1d(8, 32, kernel_size=1), nn.Conv1d(32, 8, kernel_size=1)]
    for layer, linear in zip(layers, (feed_forward.linear1, feed_forward.linear2), strict=True):
        layer.weight.data = linear.weight.data[:, :, None]
        layer.bias.data = linear.bias.data
    x = torch.randn(2, 5, 8)
    assert_close(layers[1](layers[0](x.mT).relu()).mT, feed_forward(x))
    print(f"{list(x.shape)} -> {list(feed_forward(x).shape)}: equal")


def additive_scores(queries: Tensor, keys: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Return v · tanh(W q + U k) for every query and key: ``[queries, keys]``."""
    return torch.tanh((queries @ w.T)[:, None, :] + (keys @ u.T)[None, :, :]) @ v


def additive() -> None:
    """Section 3.2.1: additive attention with a pencil, and how many numbers it has to write down."""
    identity, v = torch.eye(2), torch.tensor([1.0, -1.0])
    keys = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # cat, dog, bird: furry or flying
    query = torch.tensor([[1.0, 0.0]])  # something furry
    for name, found in (
        ("additive", additive_scores(query, keys, identity, identity, v)),
        ("dot product", query @ keys.T),
    ):
        print(f"{name:12}" + "   ".join(f"{a} {b:.3f}" for a, b in zip(("cat", "dog", "bird"), found[0], strict=True)))
    print(f"pencil: cat  tanh(1 + 1) - tanh(0 + 0) = {math.tanh(2):.3f},  bird  tanh(1) - tanh(1) = 0")
    batch, length, d = 64, 50, 512
    for name, numbers in {"dot product": batch * length**2, "additive": batch * length**2 * d}.items():
        print(f"{name:12}{numbers:12,} numbers, {4 * numbers / 2**20:7.1f} MiB")


def milliseconds(way: Callable[..., Tensor], *inputs: Tensor) -> float:
    """Return how long a call takes at best, after a first one that does not count."""
    times = []
    for _ in range(3 if SMALL else 21):
        started = time.perf_counter()
        way(*inputs)
        times.append(1000 * (time.perf_counter() - started))
    return min(times[1:])


@torch.inference_mode()
def times() -> None:
    """Section 3.2.1: how long both kinds of scores take, projections included."""
    length, d = (32, 32) if SMALL else (256, 128)
    words, matrix, vector = torch.randn(length, d), torch.randn(d, d), torch.randn(d)
    slow = milliseconds(additive_scores, words, words, matrix, matrix, vector)
    fast = milliseconds(lambda queries, keys: (queries @ matrix.T) @ (keys @ matrix.T).T, words, words)
    print(f"{length} words, d = {d}: additive {slow:.2f} ms, dot product {fast:.2f} ms", end=", ")
    print(f"{slow / fast:.0f} times as long")


def scores() -> None:
    """Section 3.2.1: the weight of the best of 50 random keys, by three kinds of scores."""
    torch.manual_seed(0)
    print(" d_k   dot product   divided by √d_k   additive")
    for d_k in (4, 16, 64, 256, 1024):
        queries, keys = torch.randn(200, d_k), torch.randn(50, d_k)
        w, u = torch.randn(2, d_k, d_k) / math.sqrt(d_k)
        dots = queries @ keys.T
        by_network = additive_scores(queries, keys, w, u, torch.randn(d_k) / math.sqrt(d_k))
        kinds = (dots, dots / math.sqrt(d_k), by_network)
        largest = [kind.softmax(dim=-1).amax(dim=-1).mean() for kind in kinds]
        print("{:4}{:14.2f}{:18.2f}{:11.2f}".format(d_k, *largest))


def contiguous(n: int, k: int) -> int:
    """Return how many layers with kernels of width ``k`` connect all of ``n`` positions."""
    return math.ceil((n - 1) / (k // 2))


def dilated(n: int, k: int) -> int:
    """Do the same for gaps that grow ``k``-fold from layer to layer."""
    return next(layers for layers in range(n) if k**layers >= 2 * n - 1)


def paths() -> None:
    """Section 4: how many layers of convolutions connect all of 50 words."""
    widths = (3, 5, 9, 17, 33, 99)
    print("width of the kernel" + "".join(f"{k:5}" for k in widths))
    for name, layers in {"contiguous": contiguous, "dilated k-fold": dilated}.items():
        print(f"{name:19}" + "".join(f"{layers(50, k):5}" for k in widths))


def operations(function: Callable[..., object], *inputs: Tensor) -> int:
    """Return the operations of a call, as PyTorch counts them: a multiplication and its addition are two."""
    with FlopCounterMode(display=False) as counter:
        function(*inputs)
    return counter.get_total_flops()


def read_in_turn(cell: nn.RNNCell, x: Tensor) -> None:
    """Let a recurrent cell read ``x``, [1, n, d]."""
    state = torch.zeros(1, x.shape[2])
    for t in range(x.shape[1]):
        state = cell(x[:, t], state)


def counted() -> None:
    """Section 4, Table 1: the operations of real layers, divided by the table's formula."""
    d, k, r = 512, 3, 9
    cell, convolution = nn.RNNCell(d, d), nn.Conv1d(d, d, k, padding=1)
    print("counted / formula   self-attention   recurrent   convolutional   restricted attention")
    for n in (25, 50, 100):
        x = torch.randn(1, n, d)
        ratios = (
            operations(scaled_dot_product_attention, x, x, x) / (n * n * d),
            operations(read_in_turn, cell, x) / (n * d * d),
            operations(convolution, x.mT) / (k * n * d * d),
            operations(scaled_dot_product_attention, x, x, x, local_mask(n, r)) / (r * n * d),
        )
        print(f"n = {n:3}" + "{:27.1f}{:12.1f}{:16.1f}{:23.1f}".format(*ratios))


def data() -> None:
    """Section 5.1: how much text base reads, if a sentence has 25 tokens, which the paper does not say."""
    tokens, steps, length = 25_000, 100_000, 25
    print(f"{tokens / length:,.0f} sentence pairs in a batch")
    print(f"{steps * tokens / 1e9:.1f} billion target tokens in {steps:,} steps")
    print(f"{steps * tokens / length / 4.5e6:.0f} passes over 4.5 million pairs")


def cost() -> None:
    """Section 5.2 and footnote 5: time × number of GPUs × what one sustains."""
    rate = 8 * 9.5e12  # of eight P100s, in operations a second
    for name, steps, seconds, printed_hours, printed in (
        ("base", 100_000, 0.4, 12, BASE_COST),
        ("big", 300_000, 1.0, 84, BIG_COST),
    ):
        hours = steps * seconds / 3600
        print(f"{name}: {steps:,} steps of {seconds} s = {hours:.1f} h; printed: {printed_hours} h")
        print(f"  cost of {hours:.1f} h: {rate * hours * 3600:.1e}, ", end="")
        print(f"of {printed_hours} h: {rate * printed_hours * 3600:.1e}; printed: {printed:.1e}")
    dearest = TABLE_2["GNMT + RL ensemble"][3]
    days, models = dearest / rate / 86_400, dearest / BASE_COST
    print(f"the GNMT + RL ensemble's 1.1e21 operations: {days:.1f} days, or {models:.0f} base models")


def equation_3(step: int, d_model: int, warmup_steps: int = 4000) -> float:
    """Return the paper's learning rate at a step; they are counted from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def rates() -> None:
    """Section 5.3: equation 3, the library's schedule, and what happens at step 0."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=(512 * 4000) ** -0.5)
    schedule = learning_rate_schedule(optimizer, "inverse_sqrt", 4000, 8000)
    found = []
    for _ in range(8000):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert_close(torch.tensor(found), torch.tensor([equation_3(step, 512) for step in range(1, 8001)]))
    for step in (1, 10, 100, 2_000, 4_000, 8_000):
        print(f"base, step {step:6,}: {found[step - 1]:.2e}")
    for step in (2_000, 4_000, 16_000):
        print(f"big,  step {step:6,}: {equation_3(step, 1024):.2e}")
    print(f"big,  warm-up of 16,000 steps, at its peak: {equation_3(16_000, 1024, 16_000):.2e}")
    try:
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: equation_3(step, d_model=512))
    except ZeroDivisionError as error:
        print(f"as LambdaLR counts, from 0: {type(error).__name__}")


def adam() -> None:
    """Section 5.3: how far Adam moves 10,000 weights whose gradients are pure noise, in learning rates."""
    generator = torch.Generator().manual_seed(0)
    weights = nn.Parameter(torch.zeros(10_000, dtype=torch.float64))
    optimizer = torch.optim.Adam([weights], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 101):
        before = weights.detach().clone()
        weights.grad = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
        optimizer.step()
        if step in (1, 2, 5, 20, 100):
            print(f"step {step:3}: average move {(weights.detach() - before).abs().mean():.2f} learning rates")


def reverse_digits(seed: int, warmup_steps: int, norm_first: bool, learning_rate: float = 6e-3) -> float:
    """Let six layers learn to reverse five digits, and return the mean loss of the last ten steps."""
    torch.manual_seed(seed)
    d_model, steps = 64, 10 if SMALL else 150
    layers = [EncoderLayer(d_model, 4, 4 * d_model, 0.0, 0.0, norm_first) for _ in range(6)]  # no dropout
    encoder = Encoder(layers, norm=nn.LayerNorm(d_model) if norm_first else None)
    model = nn.ModuleList([nn.Embedding(10, d_model), encoder, nn.Linear(d_model, 10)])
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    positions = SinusoidalPositionalEncoding(5, d_model).table
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), eps=1e-9)
    schedule = learning_rate_schedule(optimizer, "constant", warmup_steps, steps)
    losses = []
    for _ in range(steps):
        digits = torch.randint(10, (16, 5))
        logits = model[2](encoder(math.sqrt(d_model) * model[0](digits) + positions)[0])  # [16, 5, 10]
        loss = F.cross_entropy(logits.flatten(0, 1), digits.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return statistics.mean(losses[-10:])


def warmup() -> None:
    """Section 5.3: a deep post-LN model without its warm-up, and three controls, with three seeds each."""
    print(f"{'mean loss of the last ten steps':36}seed 1  seed 2  seed 3")
    for name, options in {
        "post-LN, no warm-up": (0, False),
        "post-LN, 100 steps of warm-up": (100, False),
        "post-LN, no warm-up, half the rate": (0, False, 3e-3),
        "pre-LN, no warm-up": (0, True),
    }.items():
        print(f"{name:36}" + "  ".join(f"{reverse_digits(seed, *options):6.2f}" for seed in (1, 2, 3)))
    print(f"{'guessing':36}{math.log(10):6.2f}")


def lowest_loss(vocab_size: int, smoothing: float) -> float:
    """Return the loss, in nats, of a model whose probabilities are the smoothed targets: their entropy."""
    others = smoothing / vocab_size
    right = 1 - smoothing + others
    return -right * math.log(right) - (vocab_size - 1) * others * math.log(others)


def smoothing() -> None:
    """Section 5.4: what label smoothing of 0.1 costs a perfect model."""
    for vocab_size in (10, 1_000, 37_000):
        lowest = lowest_loss(vocab_size, 0.1)
        print(f"{vocab_size:6,} token types: the lowest loss is {lowest:.3f} nats")
    print(f"probability 0.9 for the right token: a perplexity of {1 / 0.9:.2f}")


def table_2() -> None:
    """Section 6.1: BLEU, and the cost as a multiple of base's."""
    print(f"{'BLEU, cost / cost of base':28}{'en-de':>7}{'cost':>6}{'en-fr':>8}{'cost':>6}")
    for name, (de, fr, *costs) in TABLE_2.items():
        de_times, fr_times = ("" if flops is None else f"{flops / BASE_COST:.0f}" for flops in costs)
        print(f"{name:28}{de or '':>7}{de_times:>6}{fr or '':>8}{fr_times:>6}".rstrip())
    print(f"en-de, big against the best ensemble: {28.4 - 26.36:+.2f} BLEU")
    print(f"en-fr, cost of big / cost of MoE: {BIG_COST / TABLE_2['MoE'][3]:.2f}")


def table_3() -> None:
    """Section 6.2: perplexity and BLEU of each change, and what it gained or lost."""
    print(f"{'':32}perplexity    BLEU   against base")
    for name, (perplexity, bleu, _) in TABLE_3.items():
        change = "" if name == "base" else f"{bleu - 25.8:+.1f}"
        print(f"{name:32}{perplexity:10.2f}{bleu:8.1f}{change:>15}".rstrip())


def sizes() -> None:
    """Table 3's sizes: which vocabularies would give the number that is printed, rounded to millions."""
    fits = []
    print(f"{'':32}counted   printed   vocabulary that would fit")
    for name, (preset, changes) in SIZES.items():
        printed = TABLE_3[name][2]
        count = on_paper(preset, **changes).num_parameters()
        per_type = on_paper(preset, 37_001, **changes).num_parameters() - count
        low, high = (37_000 + (1e6 * printed - count + rounding) / per_type for rounding in (-5e5, 5e5))
        fits.append((low, high))
        print(f"{name:32}{count / 1e6:7.1f}{printed:10}{low:14,.0f} to {high:,.0f}")
    low, high = max(low for low, _ in fits[:-1]), min(high for _, high in fits[:-1])
    print(f"fits all but the last: {low:,.0f} to {high:,.0f}")
    base = on_paper("paper_base", 41_000).num_parameters()
    for d_k in (16, 32):
        saved = 18 * 2 * 8 * (64 - d_k) * (512 + 1)  # 18 attentions, two matrices, eight heads; + 1 for the bias
        printed = TABLE_3[f"(B) keys of {d_k}"][2]
        print(f"(B) keys of {d_k}, with 41,000 types: {(base - saved) / 1e6:.1f}, printed {printed}")


def table_4() -> None:
    """Section 6.3: F1 on section 23 of the Wall Street Journal."""
    for name, f1 in TABLE_4.items():
        print(f"{'->' if name.startswith('Transformer') else '  '} {name:48}{f1:5.1f}")


def waves() -> None:
    """Section 3.5: the longest wavelength of the paper's formula, and of tensor2tensor's code."""
    last = 512 // 2 - 1
    longest = 2 * math.pi * 10_000 ** (2 * last / 512)
    table = SinusoidalPositionalEncoding(max_len=50, d_model=512).table
    assert_close(table[:, -2], torch.sin(2 * math.pi * torch.arange(50) / longest))  # the last sine
    print(f"longest: {longest:,.1f} positions; 10000 · 2π is {10_000 * 2 * math.pi:,.1f}")
    print(f"tensor2tensor's longest: {2 * math.pi * 10_000 ** (last / (512 // 2 - 1)):,.1f}")


FIRST = additive, times, scores, convolutions, presets, paths, counted, data, cost, rates, adam, warmup
PARTS = {part.__name__: part for part in (*FIRST, smoothing, table_2, table_3, sizes, table_4, waves)}


def printed_by(name: str) -> str:
    """Return what a part prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        PARTS[name]()
    return printed.getvalue()


def main() -> None:
    """Print the parts that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}")
    parser.add_argument("--output", type=Path, help="a JSON file for what is printed")
    args = parser.parse_args()
    if unknown := {*args.parts} - {*PARTS}:
        parser.error(f"PART is {', '.join(sorted(unknown))}, expected some of {', '.join(PARTS)}")
    torch.set_num_threads(1)
    texts = {}
    for name in args.parts or PARTS:
        texts[name] = printed_by(name)
        print(f"{name}: {PARTS[name].__doc__}\n\n{texts[name]}")
    write(args.output, {**machine(torch.device("cpu")), "printed": texts})


if __name__ == "__main__":
    main()
