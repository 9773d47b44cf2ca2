"""What adds up the gradients of several processes: this library's one exchange, and PyTorch's DistributedDataParallel.

Both train the ``tutorial`` model for a few steps on the same batches of Multi30k, in turn; the ratio is theirs to ours.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 benchmarks/processes.py --rounds 5
"""

import argparse
import copy
import itertools
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from contenders import CORPUS, PRESET, SMALL, few, machine, write
from fast import STEPS, measure
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_lib import Transformer, TransformerConfig, WordTokenizer, load_corpus
from transformer_lib.data.batches import BucketBatches, build_vocabularies, make_dataset
from transformer_lib.training import distributed
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.loss import sequence_loss


class Forward(nn.Module):
    """DistributedDataParallel watches ``forward``, and this library's models are trained by another method."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Run the model on this process's sentences."""
        return self.model.logits_and_targets(*tensors)


def steps(model: nn.Module, batches: list, theirs: bool) -> Callable[[], None]:
    """Return what takes a few steps in one of the two ways."""
    run = DistributedDataParallel(Forward(model)) if theirs else model.logits_and_targets
    optimizer, endless = torch.optim.Adam(model.parameters(), lr=1e-4), itertools.cycle(batches)

    def take() -> None:
        for batch in itertools.islice(endless, STEPS):
            logits, targets = run(*map(distributed.shard, batch))
            loss = sequence_loss(logits, targets, model.config.pad_id)
            model.zero_grad()
            loss.backward()
            if not theirs:
                distributed.add_gradients(model.parameters())
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return take


def main() -> None:
    """Measure, print, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1 if SMALL else 5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    device = pick_device(options.device)
    corpus, src, tgt = load_corpus(CORPUS), WordTokenizer("de"), WordTokenizer("en")
    dataset = make_dataset(few(corpus["train"]), src, tgt)
    build_vocabularies(dataset)
    seed_everything(1)
    model = Transformer(TransformerConfig.preset(PRESET, len(src.vocab), len(tgt.vocab))).to(device)
    batches = list(itertools.islice(BucketBatches(dataset, 64, train=True, device=device), 50))
    with distributed.process_group(device):
        ways = [steps(copy.deepcopy(model), batches, theirs) for theirs in (False, True)]
        measured = measure((ways[0], ways[1]), options.rounds, device)
        processes = dist.get_world_size()
    result = {
        "ours": measured["on"] / STEPS,
        "DistributedDataParallel": measured["off"] / STEPS,
        "ratio": measured["gain"],
        "range": measured["range"],
    }
    if distributed.is_first():
        print(f"{processes} processes, seconds a step: {result}")
        write(options.output, {"machine": machine(device), "processes": processes, "rounds": options.rounds, **result})


if __name__ == "__main__":
    main()
