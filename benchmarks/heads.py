"""How much worse the shipped model predicts without each of its heads: what frames the heads on the page "Try it".

A head is switched off as notebook 08 does it, section 4: its part of the joined heads is set to zero before
``out_proj``. Of each sentence of Multi30k's validation split, the loss is the mean over its tokens; what counts is how
much it rises, in the mean over all sentences, with a 95 % interval from 10,000 bootstrap samples of sentences.

Results go to ``benchmarks/results/heads.json``, or to ``--output``. A head that is there is not measured again:

    python benchmarks/heads.py
"""

import argparse
import collections
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from contenders import CORPUS, SMALL, machine, write
from torch import Tensor, nn

from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.corpora import load_corpus
from transformer_lib.inference.translator import Translator

RESULTS = Path(__file__).parent / "results" / "heads.json"
SAMPLES = 10_000


def attentions(model: nn.Module) -> dict[str, nn.Module]:
    """Return the model's attentions by kind and layer, such as "cross 3": "encoder", "decoder" or "cross", from 1."""
    found = {f"encoder {n}": layer.self_attn for n, layer in enumerate(model.encoder.layers, start=1)}
    found |= {f"decoder {n}": layer.self_attn for n, layer in enumerate(model.decoder.layers, start=1)}
    return found | {f"cross {n}": layer.cross_attn for n, layer in enumerate(model.decoder.layers, start=1)}


@torch.no_grad()
def losses(model: nn.Module, batches: list[tuple[Tensor, Tensor]], pad_id: int) -> Tensor:
    """Return each sentence's loss, the mean over its tokens in nats: ``[sentences]``."""
    options = {"ignore_index": pad_id, "reduction": "none"}
    sums = [F.cross_entropy(model(src, tgt[:, :-1]).mT, tgt[:, 1:], **options).sum(dim=1) for src, tgt in batches]
    counts = [(tgt[:, 1:] != pad_id).sum(dim=1) for _, tgt in batches]
    return torch.cat(sums) / torch.cat(counts)


@torch.no_grad()
def habits(model: nn.Module, batches: list[tuple[Tensor, Tensor]], pad_id: int) -> dict[str, dict[str, float]]:
    """Return the mean weight on the word before ("back"), the word itself and the next, for each "encoder 1.1"."""
    seen = collections.defaultdict(list)
    for src, tgt in batches:
        for source, target in zip(src, tgt, strict=True):
            maps = model.attention_maps(source[None, source != pad_id], target[None, target != pad_id][:, :-1])
            for kind in ("encoder", "decoder"):
                for layer, heads in enumerate(getattr(maps, kind), start=1):
                    for number, head in enumerate(heads[0], start=1):
                        for habit, step in (("back", -1), ("self", 0), ("next", 1)):
                            seen[f"{kind} {layer}.{number}", habit].append(head.diagonal(step))
    found = collections.defaultdict(dict)
    for (name, habit), weights in seen.items():
        found[name][habit] = round(torch.cat(weights).mean().item(), 3)
    return found


def interval(differences: Tensor) -> tuple[float, float]:
    """Return where 95 % of the means of bootstrap samples lie."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randint(len(differences), (len(differences),), generator=generator) for _ in range(SAMPLES)]
    means = torch.stack([differences[sample].mean() for sample in drawn])
    low, high = means.quantile(torch.tensor([0.025, 0.975])).tolist()
    return low, high


def main() -> None:
    """Measure what is not measured yet, and write it down head by head."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, help="the first so many of the split only (all)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the JSON file for the results (%(default)s)")
    args = parser.parse_args()

    translator = Translator.load()
    model, config = translator.model.eval(), translator.model.config
    pairs = load_corpus(CORPUS)["val"][: 20 if SMALL else args.sentences]
    dataset = make_dataset(pairs, translator.src_tokenizer, translator.tgt_tokenizer, config.max_len)
    batches = list(BucketBatches(dataset, batch_size=50))
    complete = losses(model, batches, config.pad_id)
    result = json.loads(args.output.read_text(encoding="utf-8")) if args.output.exists() else {"heads": {}}
    about = {"sentences": len(complete), "loss": complete.mean().item()}
    if result["heads"] and result["sentences"] != about["sentences"]:
        parser.error(
            f"{args.output} is of {result['sentences']} sentences, these are {about['sentences']}: move it away"
        )

    habit = habits(model, batches, config.pad_id)
    d_k = config.d_model // config.num_heads
    for name, attention in attentions(model).items():
        for head in range(config.num_heads):
            if f"{name}.{head + 1}" in result["heads"]:
                continue

            def silence(_: nn.Module, inputs: tuple[Tensor], first: int = head * d_k) -> Tensor:
                joined = inputs[0].clone()
                joined[..., first : first + d_k] = 0
                return joined

            with attention.out_proj.register_forward_pre_hook(silence):
                differences = losses(model, batches, config.pad_id) - complete
            low, high = interval(differences)
            rise = {"rise": differences.mean().item(), "low": low, "high": high}
            rise = {key: round(value, 5) for key, value in rise.items()}
            result["heads"][f"{name}.{head + 1}"] = rise | habit.get(f"{name}.{head + 1}", {})
            print(f"without {name}.{head + 1}: {rise['rise']:+.4f} ({low:+.4f} to {high:+.4f})", flush=True)
            result = {"machine": machine(torch.device("cpu")), **about, "heads": result["heads"]}
            write(args.output, result)


if __name__ == "__main__":
    main()
