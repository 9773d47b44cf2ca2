import dataclasses
import io
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from transformer_lib import Transformer
from transformer_lib.data.batches import BucketBatches
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import evaluate, perplexity, train_epoch, train_steps
from transformer_lib.training.optimizer import learning_rate_schedule, make_optimizer
from transformer_lib.training.recipe import Recipe

PAD = 1


def test_evaluation_does_not_depend_on_the_batches(dataset, tiny_config):
    seed_everything(0)
    model = Transformer(tiny_config).train()
    losses = [evaluate(model, BucketBatches(dataset, size)) for size in (1, 3, 8)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert model.training  # it leaves the mode as it was
    assert losses[0] == pytest.approx(math.log(tiny_config.tgt_vocab_size), rel=0.3)  # it knows nothing yet


def test_a_step_is_clipped_gradient_descent_on_the_shifted_target(dataset, tiny_config):
    """One batch, compared with the same step written out."""
    seed_everything(0)
    model = Transformer(tiny_config)
    expected = Transformer(tiny_config)
    expected.load_state_dict(model.state_dict())
    batches = BucketBatches(dataset, 8)
    batch = next(iter(batches))
    for m in (model, expected):
        for module in m.modules():  # dropout off, in both of its places
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            if hasattr(module, "dropout") and isinstance(module.dropout, float):
                module.dropout = 0.0
    train_epoch(model, batches, torch.optim.SGD(model.parameters(), lr=0.1), recipe=Recipe(max_grad_norm=0.5))

    logits = expected(batch.src, batch.tgt[:, :-1]).transpose(1, 2)
    F.cross_entropy(logits, batch.tgt[:, 1:], ignore_index=PAD).backward()
    norm = torch.stack([p.grad.norm() for p in expected.parameters()]).norm()
    assert norm > 0.5
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs - 0.1 * theirs.grad * 0.5 / norm, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "change",
    [{}, {"label_smoothing": 0.1, "rdrop_weight": 1.5}, {"max_grad_norm": 0.5}],
    ids=["plain", "two passes", "clipped"],
)
def test_small_batches_make_exactly_the_step_of_one_large_batch(dataset, tiny_config, change):
    """Three sentences, three, and two, of other lengths: each counts as many times as it has tokens.

    Clipping would hide how long a gradient is, so that two of the cases do without.
    """
    weights = []
    for batch_size, accumulate_steps in ((8, 1), (3, 3)):
        seed_everything(0)
        model = Transformer(dataclasses.replace(tiny_config, dropout=0.0))
        recipe = Recipe(accumulate_steps=accumulate_steps, **{"max_grad_norm": 1e9, **change})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = train_epoch(model, BucketBatches(dataset, batch_size), optimizer, recipe=recipe)
        weights.append([loss, *model.state_dict().values()])
    torch.testing.assert_close(*([torch.as_tensor(value) for value in values] for values in weights), rtol=0, atol=1e-6)


def test_the_last_step_of_an_epoch_takes_what_is_left(dataset, tiny_config):
    model = Transformer(tiny_config)
    optimizer = make_optimizer(model, Recipe())
    schedule, sums = learning_rate_schedule(optimizer, "constant", 0, 2), []
    recipe = Recipe(accumulate_steps=2)
    sums = list(train_steps(model, BucketBatches(dataset, 3), optimizer, schedule, recipe))
    assert schedule.last_epoch == len(sums) == 2
    targets = [(batch.tgt[:, 1:] != PAD).sum().item() for batch in BucketBatches(dataset, 3)]
    assert [tokens.item() for _, tokens in sums] == [targets[0] + targets[1], targets[2]]
    next(train_steps(model, BucketBatches(dataset, 3), optimizer, schedule))
    assert schedule.last_epoch == 3  # it ended after a step


def test_perplexity_is_e_to_the_loss_however_large():
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(1e6) == math.inf


def test_in_half_precision_what_is_frozen_stays_frozen(dataset, tiny_config, with_bfloat16):
    seed_everything(0)
    model = Transformer(tiny_config)
    frozen = model.encoder.layers[0].feed_forward.requires_grad_(False)
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_epoch(model, BucketBatches(dataset, 4), optimizer, recipe=Recipe(precision="bfloat16"))
    still = {name for name, weights in model.state_dict().items() if weights.equal(before[name])}
    assert {f"encoder.layers.0.feed_forward.{name}" for name in frozen.state_dict()} <= still
    assert "decoder.layers.0.feed_forward.linear1.weight" not in still


def test_a_step_does_not_wait_for_the_device(tiny_config):
    """On the meta device, tensors have shapes and no numbers: whoever asks for a number, as ``nonzero`` does, fails."""
    model = Transformer(tiny_config).to("meta")
    src, tgt = (torch.ones(4, length, dtype=torch.long, device="meta") for length in (5, 6))
    batches = [SimpleNamespace(src=src, tgt=tgt)] * 3
    optimizer = make_optimizer(model, Recipe())
    schedule = learning_rate_schedule(optimizer, "linear", 1, 3)
    with pytest.raises(NotImplementedError, match="no data"):  # all losses, once at the end
        train_epoch(model, batches, optimizer, schedule, Recipe(label_smoothing=0.1, rdrop_weight=1.5))
    assert schedule.last_epoch == 3


@pytest.mark.parametrize(("on_terminal", "progress"), [(True, None), (False, None), (True, False), (False, True)])
def test_a_terminal_gets_a_progress_bar_unless_told_otherwise(dataset, tiny_config, monkeypatch, on_terminal, progress):
    output = io.StringIO()
    output.isatty = lambda: on_terminal
    monkeypatch.setattr("sys.stdout", output)
    evaluate(Transformer(tiny_config), BucketBatches(dataset, 8), progress)
    shown = on_terminal if progress is None else progress
    assert ("evaluating" in output.getvalue()) == shown


@pytest.mark.parametrize("closed", [None, SimpleNamespace(write=len)])
def test_without_a_standard_output_there_is_no_progress_bar(dataset, tiny_config, monkeypatch, closed):
    """A service, or pythonw on Windows, has none; some programs put an object of their own there."""
    monkeypatch.setattr("sys.stdout", closed)
    assert math.isfinite(evaluate(Transformer(tiny_config), BucketBatches(dataset, 8)))


def test_batches_without_a_token_to_predict_are_not_called_divergence(dataset, tiny_config):
    model = Transformer(tiny_config)
    used_up = iter(BucketBatches(dataset, 8))
    evaluate(model, used_up)
    for batches in ([], used_up, [(torch.ones(2, 3).long(), torch.ones(2, 3).long())]):
        with pytest.raises(ValueError, match="batches hold no token to predict"):
            evaluate(model, batches)
        with pytest.raises(ValueError, match="batches hold no token to predict"):
            train_epoch(model, batches, make_optimizer(model, Recipe()))


def test_losses_are_summed_as_exactly_whatever_the_default_dtype(dataset, tiny_config):
    model, batches = Transformer(tiny_config), [*BucketBatches(dataset, 1)] * 10
    expected = evaluate(model, batches)
    torch.set_default_dtype(torch.bfloat16)
    try:
        loss = evaluate(model, batches)
    finally:
        torch.set_default_dtype(torch.float32)
    assert loss == expected


def test_a_data_set_is_evaluated_and_trained_on_as_its_batches_are(dataset, tiny_config):
    losses = []
    for batches in (dataset, BucketBatches(dataset, 128)):
        seed_everything(0)
        model = Transformer(tiny_config)
        losses.append(evaluate(model, batches))
    assert losses[0] == losses[1]
    for batches in (dataset, BucketBatches(dataset, 3, train=True, seed=5)):
        seed_everything(0)
        model = Transformer(tiny_config)
        recipe = Recipe(batch_size=3, seed=5)
        losses.append(train_epoch(model, batches, torch.optim.SGD(model.parameters(), lr=0.1), recipe=recipe))
    assert losses[2] == losses[3]


def test_outside_a_process_group_each_process_takes_the_whole_data_set(dataset, tiny_config, monkeypatch):
    """Torchrun has started two, and nobody adds up what they find."""
    model = Transformer(tiny_config)
    alone = evaluate(model, dataset)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert evaluate(model, dataset) == alone
