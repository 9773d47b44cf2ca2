import io
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib import Transformer
from transformer_lib.data.batches import BucketBatches
from transformer_lib.fast.worker import Worker
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import evaluate, perplexity, train_epoch
from transformer_lib.training.optimizer import learning_rate_schedule, make_optimizer
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

PAD = 1


def test_evaluation_does_not_depend_on_the_batches(dataset, tiny_config):
    seed_everything(0)
    model = Transformer(tiny_config).train()
    losses = [evaluate(model, BucketBatches(dataset, size)) for size in (1, 3, 8)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert model.training  # it leaves the mode as it was
    assert losses[0] == pytest.approx(math.log(tiny_config.tgt_vocab_size), rel=0.3)  # it knows nothing yet


class Listed(nn.Module):
    """Reaches its modules by way of a plain list as well, and counts its calls."""

    def __init__(self, config):
        super().__init__()
        self.config, self.calls = config, 0
        self.table, self.dropout = nn.Embedding(5, 8), nn.Dropout(0.5)
        self.output = nn.Linear(8, 5)
        self.stages = [self.table, self.dropout, self.output]

    def logits_and_targets(self, ids):
        self.calls += 1
        x = ids
        for stage in self.stages:
            x = stage(x)
        return x, ids


def test_a_model_may_keep_its_modules_in_a_list_and_count():
    model, batches = Listed(SimpleNamespace()), [{"ids": torch.arange(5).expand(3, 5)}] * 4
    model.train()
    losses = [evaluate(model, batches) for _ in range(2)]
    assert losses[0] == losses[1]  # no dropout
    assert model.calls == 8 and model.dropout.training
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train_epoch(model, batches, optimizer)
    assert model.calls == 12
    state = vars(model).keys()
    assert state == vars(Listed(SimpleNamespace())).keys()  # and nothing of the twin's has come along


def test_what_hooks_and_forward_note_down_stays_in_the_model(dataset, tiny_config, tmp_path):
    """On the model itself, or on a part of it that is exchanged for a faster one; before a training, and in it."""

    class Noting(Transformer):
        def decode(self, tgt, memory, memory_mask):
            self.last = memory
            return super().decode(tgt, memory, memory_mask)

    model, attention = Noting(tiny_config), lambda model: model.encoder.layers[0].self_attn
    model.calls = 0

    def count(*_):
        model.calls += 1  # past the twin

    def count_too(module, *_):
        module.seen = getattr(module, "seen", 0) + 1

    model.register_forward_pre_hook(count)
    attention(model).register_forward_hook(count_too)
    batches = list(BucketBatches(dataset, 4))
    recipe = Recipe(epochs=1, ema_decay=0.9)
    for name in "ab":  # the second one copies the model, with what it has noted down
        fit(model, batches, batches, recipe, tmp_path / name, log=lambda line: None)
    assert attention(model).seen == 2 * len(batches)  # in training: a copy, the average, is validated
    assert model.calls > attention(model).seen
    assert model.last.grad_fn is None


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
    train_epoch(model, batches, torch.optim.SGD(model.parameters(), lr=0.1), max_grad_norm=0.5)

    logits = expected(batch.src, batch.tgt[:, :-1]).transpose(1, 2)
    F.cross_entropy(logits, batch.tgt[:, 1:], ignore_index=PAD).backward()
    norm = torch.stack([p.grad.norm() for p in expected.parameters()]).norm()
    assert norm > 0.5
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs - 0.1 * theirs.grad * 0.5 / norm, atol=1e-5, rtol=1e-4)


def test_perplexity_is_e_to_the_loss_however_large():
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(1e6) == math.inf


def test_in_half_precision_what_is_frozen_stays_frozen(dataset, tiny_config, with_bfloat16):
    seed_everything(0)
    model = Transformer(tiny_config)
    frozen = model.encoder.layers[0].feed_forward.requires_grad_(False)
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_epoch(model, BucketBatches(dataset, 4), optimizer, worker=Worker(model, "bfloat16"))
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
        train_epoch(model, batches, optimizer, schedule, label_smoothing=0.1, rdrop_weight=1.5)
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


class NeverUnknown(Transformer):
    """Rules ``<unk>`` out, as some models do."""

    def decode(self, tgt, memory, memory_mask):
        logits = super().decode(tgt, memory, memory_mask)
        return logits.index_fill(-1, torch.tensor([0]), -math.inf)


def test_label_smoothing_is_named_where_it_asks_for_a_token_that_the_model_rules_out(dataset, tiny_config):
    batches, model = [*BucketBatches(dataset, 4)], NeverUnknown(tiny_config)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert math.isfinite(train_epoch(model, batches, optimizer).loss)
    with pytest.raises(FloatingPointError, match=r"loss is inf .*label_smoothing is 0\.1") as error:
        train_epoch(model, batches, optimizer, label_smoothing=0.1)
    assert "learning rate or" not in str(error.value)


def test_losses_are_summed_as_exactly_whatever_the_default_dtype(dataset, tiny_config):
    model, batches = Transformer(tiny_config), [*BucketBatches(dataset, 1)] * 10
    expected = evaluate(model, batches)
    torch.set_default_dtype(torch.bfloat16)
    try:
        loss = evaluate(model, batches)
    finally:
        torch.set_default_dtype(torch.float32)
    assert loss == expected
