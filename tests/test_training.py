import dataclasses
import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from transformer_lib import Transformer, training
from transformer_lib.batching import Batches
from transformer_lib.checkpoint import MODEL_FILE, STATE_FILE, load_model, load_training_state, save_training_state
from transformer_lib.recipes import SCHEDULES, Recipe
from transformer_lib.training import (
    average_weights,
    evaluate,
    fit,
    pick_device,
    seed_everything,
    sequence_loss,
    train_epoch,
)

PAD = 1
RECIPE = Recipe(epochs=4, batch_size=3, learning_rate=2e-3, warmup_steps=5, schedule="inverse_sqrt")


def silent(line):
    pass


def run(dataset, config, output=None, recipe=RECIPE, **arguments):
    """Train a fresh tiny model and return it with its history."""
    seed_everything(recipe.seed)
    model = Transformer(config)
    history = fit(model, dataset, dataset, recipe, output, log=silent, **arguments)
    return model, history


def same_weights(a, b):
    return all(weights.equal(b.state_dict()[name]) for name, weights in a.state_dict().items())


def test_the_loss_is_the_mean_over_real_tokens_only():
    logits = torch.randn(2, 3, 7)
    targets = torch.tensor([[4, 5, 3], [6, PAD, PAD]])
    by_hand = [-logits[i, j].log_softmax(-1)[targets[i, j]] for i, j in [(0, 0), (0, 1), (0, 2), (1, 0)]]
    torch.testing.assert_close(sequence_loss(logits, targets, PAD), torch.stack(by_hand).mean())
    torch.testing.assert_close(sequence_loss(logits, targets, PAD, reduction="sum"), torch.stack(by_hand).sum())


def test_label_smoothing_spreads_its_share_over_all_tokens():
    logits, targets = torch.randn(1, 1, 7), torch.tensor([[4]])
    log_probs = logits[0, 0].log_softmax(-1)
    expected = -(0.9 * log_probs[4] + 0.1 * log_probs.mean())
    torch.testing.assert_close(sequence_loss(logits, targets, PAD, label_smoothing=0.1), expected)


def learning_rates(kind, peak, warmup, total):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    schedule = training.learning_rate_schedule(optimizer, kind, warmup, total)
    rates = []
    for _ in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def test_the_learning_rate_warms_up_and_falls_as_in_the_paper():
    d_model, warmup = 512, 400
    rates = learning_rates("inverse_sqrt", d_model**-0.5 * warmup**-0.5, warmup, 2000)
    for step in (1, 100, 399, 400, 401, 2000):
        assert rates[step - 1] == pytest.approx(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))  # equation 3


def test_a_linear_schedule_peaks_after_the_warm_up_and_ends_next_to_zero():
    rates = learning_rates("linear", 0.5, warmup=10, total=100)
    assert rates[9] == max(rates) == 0.5
    steps_up, steps_down = rates[1:10], rates[10:]
    assert [b - a for a, b in itertools.pairwise(steps_up)] == pytest.approx([0.05] * 8)
    assert [a - b for a, b in itertools.pairwise(steps_down)] == pytest.approx([0.5 / 91] * 89)
    assert rates[-1] == pytest.approx(0.5 / 91)


def test_an_exponential_schedule_falls_after_each_epoch_and_only_then():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=5.0)
    schedule = training.learning_rate_schedule(optimizer, "exponential", 0, total_steps=12, epochs=3, decay=0.95)
    rates = []
    for _ in range(12):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([5.0] * 4 + [5.0 * 0.95] * 4 + [5.0 * 0.95**2] * 4)


@pytest.mark.parametrize("warmup", [0, 4])
def test_a_constant_schedule_stays_at_its_peak(warmup):
    assert learning_rates("constant", 0.3, warmup, 10)[warmup:] == [0.3] * (10 - warmup)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_no_warm_up_starts_at_the_peak(kind):
    assert learning_rates(kind, 0.3, 0, 5)[0] == pytest.approx(0.3, rel=0.2)


def test_evaluation_does_not_depend_on_the_batches(dataset, tiny_config):
    model = Transformer(tiny_config).train()
    losses = [evaluate(model, Batches(dataset, size)) for size in (1, 3, 8)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert model.training  # it leaves the mode as it was
    assert losses[0] == pytest.approx(math.log(tiny_config.tgt_vocab_size), rel=0.3)  # it knows nothing yet


def test_a_step_is_clipped_gradient_descent_on_the_shifted_target(dataset, tiny_config):
    """One batch, compared with the same step written out."""
    seed_everything(0)
    model = Transformer(tiny_config)
    expected = Transformer(tiny_config)
    expected.load_state_dict(model.state_dict())
    batches = Batches(dataset, 8)
    batch = next(iter(batches))
    for m in (model, expected):
        for module in m.modules():  # dropout off, in both of its places
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            if hasattr(module, "dropout") and isinstance(module.dropout, float):
                module.dropout = 0.0
    train_epoch(model, batches, torch.optim.SGD(model.parameters(), lr=0.1), clip=0.5)

    logits = expected(batch.src, batch.tgt[:, :-1]).transpose(1, 2)
    F.cross_entropy(logits, batch.tgt[:, 1:], ignore_index=PAD).backward()
    norm = torch.stack([p.grad.norm() for p in expected.parameters()]).norm()
    assert norm > 0.5
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs - 0.1 * theirs.grad * 0.5 / norm, atol=1e-5, rtol=1e-4)


def test_the_average_of_the_weights_is_what_arithmetic_says(tiny_config):
    model = Transformer(tiny_config)
    average = average_weights(model, decay=0.3)
    weights, averaged = model.output.bias, average.module.output.bias
    by_hand = None
    for n, value in enumerate([1.0, 5.0, 2.0, -4.0]):
        with torch.no_grad():
            weights.fill_(value)
        average.update_parameters(model)
        keep = min(0.3, (1 + n) / (10 + n))  # 2/11, 3/12, then 0.3
        by_hand = value if n == 0 else keep * by_hand + (1 - keep) * value
        torch.testing.assert_close(averaged, torch.full_like(averaged, by_hand))


def test_an_averaged_training_validates_and_keeps_the_average_and_goes_on_with_the_weights(
    dataset, tiny_config, tmp_path
):
    recipe = dataclasses.replace(RECIPE, average=0.99)
    averaged, history = run(dataset, tiny_config, tmp_path, recipe)
    plain, plain_history = run(dataset, tiny_config)
    assert history.train_loss == plain_history.train_loss  # the average is a bystander
    assert history.val_loss != plain_history.val_loss
    assert evaluate(averaged, Batches(dataset, 8)) == pytest.approx(min(history.val_loss))
    assert not same_weights(averaged, plain)
    state = load_training_state(tmp_path / STATE_FILE)
    assert all(state["model"][name].equal(weights) for name, weights in plain.state_dict().items())


def test_training_lowers_the_loss_and_keeps_the_best_model(dataset, tiny_config, tmp_path):
    model, history = run(dataset, tiny_config, tmp_path)
    assert len(history.train_loss) == len(history.val_loss) == len(history.seconds) == 4
    assert history.val_loss[-1] < history.val_loss[0]
    best = load_model(tmp_path)
    assert evaluate(best.model, Batches(dataset, 8)) == pytest.approx(min(history.val_loss))
    assert same_weights(best.model, model)
    assert best.notes["recipe"]["learning_rate"] == 2e-3


def test_the_best_model_is_not_the_last_one_if_that_is_worse(dataset, tiny_config, tmp_path, monkeypatch):
    losses = iter([3.0, 1.0, 2.0, 4.0])
    monkeypatch.setattr(training, "evaluate", lambda *arguments: next(losses))
    model, history = run(dataset, tiny_config, tmp_path)
    monkeypatch.undo()
    assert history.best_epoch == 2
    two_epochs, _ = run(dataset, tiny_config, recipe=dataclasses.replace(RECIPE, epochs=2))
    assert same_weights(model, two_epochs)
    assert same_weights(load_model(tmp_path).model, two_epochs)


@pytest.mark.parametrize("stop_in", ["epoch", "evaluation"])
@pytest.mark.parametrize(("schedule", "average"), [*((schedule, 0.0) for schedule in SCHEDULES), ("constant", 0.9)])
def test_resuming_after_an_interruption_gives_the_same_numbers(
    dataset, tiny_config, tmp_path, monkeypatch, stop_in, schedule, average
):
    recipe = dataclasses.replace(RECIPE, schedule=schedule, average=average)
    straight, straight_history = run(dataset, tiny_config, tmp_path / "straight", recipe)
    name = {"epoch": "train_epoch", "evaluation": "evaluate"}[stop_in]
    real, calls = getattr(training, name), []

    def interrupted(*arguments, **options):
        calls.append(1)
        result = real(*arguments, **options)
        if len(calls) == 3:
            raise KeyboardInterrupt  # after the third epoch's work, before any of it is written down
        return result

    monkeypatch.setattr(training, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, tiny_config, tmp_path / "broken", recipe)
    monkeypatch.undo()
    assert not load_model(tmp_path / "broken").model.training  # usable at once

    torch.manual_seed(99)  # whatever happened to the random numbers in between does not matter
    resumed, history = run(dataset, tiny_config, tmp_path / "broken", recipe, resume=True)
    assert same_weights(resumed, straight)
    assert history.val_loss == straight_history.val_loss
    assert history.train_loss == straight_history.train_loss


def test_more_epochs_can_be_added_to_a_finished_training(dataset, tiny_config, tmp_path):
    straight, _ = run(dataset, tiny_config)
    run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, epochs=2))
    resumed, history = run(dataset, tiny_config, tmp_path, resume=True)
    assert len(history.val_loss) == 4
    assert same_weights(resumed, straight)


def test_a_training_that_ended_at_a_learning_rate_of_zero_is_not_continued(dataset, tiny_config, tmp_path):
    recipe = dataclasses.replace(RECIPE, epochs=2, schedule="linear")
    run(dataset, tiny_config, tmp_path, recipe)
    with pytest.raises(ValueError, match="another recipe: epochs was 2, now it is 4"):
        run(dataset, tiny_config, tmp_path, dataclasses.replace(recipe, epochs=4), resume=True)


def test_an_interruption_in_the_first_epoch_can_be_resumed_too(dataset, tiny_config, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, tiny_config, tmp_path)
    monkeypatch.undo()
    assert {path.name for path in tmp_path.iterdir()} == {MODEL_FILE, STATE_FILE}
    load_model(tmp_path)
    assert same_weights(run(dataset, tiny_config, tmp_path, resume=True)[0], run(dataset, tiny_config)[0])


def test_a_training_that_is_there_is_never_overwritten(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match="holds a training: resume it"):
        run(dataset, tiny_config, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_resuming_another_training_is_refused(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    with pytest.raises(ValueError, match=r"another recipe: learning_rate was 0.002, now it is 0.5"):
        run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, learning_rate=0.5), resume=True)
    with pytest.raises(ValueError, match="another configuration: d_ff was 64, now it is 32"):
        run(dataset, dataclasses.replace(tiny_config, d_ff=32), tmp_path, resume=True)
    with pytest.raises(ValueError, match="needs the output folder"):
        run(dataset, tiny_config, None, resume=True)
    with pytest.raises(FileNotFoundError, match="no training to resume"):
        run(dataset, tiny_config, tmp_path / "elsewhere", resume=True)


def test_a_loss_that_is_no_number_stops_training_and_the_best_model_stays(dataset, tiny_config, tmp_path):
    with pytest.raises(FloatingPointError, match=r"the training loss is nan: .*lower learning rate"):
        run(dataset, tiny_config, tmp_path, Recipe(epochs=3, batch_size=3, learning_rate=1e30, warmup_steps=0))
    assert all(weights.isfinite().all() for weights in load_model(tmp_path).model.state_dict().values())


def test_a_model_that_breaks_in_an_epochs_last_step_is_not_written_down(dataset, tiny_config, tmp_path):
    recipe = Recipe(
        epochs=3, batch_size=8, learning_rate=1e30, warmup_steps=0
    )  # one step an epoch: its loss is still fine
    with pytest.raises(FloatingPointError, match="the validation loss is nan"):
        run(dataset, tiny_config, tmp_path, recipe)
    assert all(weights.isfinite().all() for weights in load_model(tmp_path).model.state_dict().values())
    state = load_training_state(tmp_path / STATE_FILE)
    assert state["history"]["val_loss"] == []
    assert all(weights.isfinite().all() for weights in state["model"].values())


def test_a_vocabulary_that_is_not_the_models_is_refused_before_training(dataset, tiny_config, tmp_path):
    config = dataclasses.replace(tiny_config, tgt_vocab_size=tiny_config.tgt_vocab_size + 3)
    with pytest.raises(ValueError, match=r"tgt_field has a vocabulary of \d+ types, but the model's tgt_vocab_size is"):
        run(dataset, config, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_vocabulary_of_the_same_size_cannot_be_resumed_with(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    words = dataset.fields["src"].vocab.itos
    words[5], words[6] = words[6], words[5]
    with pytest.raises(ValueError, match=r"another vocabulary .*: src was") as error:
        run(dataset, tiny_config, tmp_path, resume=True)
    assert len(str(error.value)) < 250


def test_half_precision_logits_do_not_overflow_the_loss():
    logits = torch.zeros(128, 100, 50, dtype=torch.float16)
    targets = torch.full((128, 100), 4)
    expected = 128 * 100 * math.log(50)
    assert sequence_loss(logits, targets, PAD, reduction="sum").item() == pytest.approx(expected, rel=1e-4)


def test_perplexity_is_e_to_the_loss_however_large():
    assert training.perplexity(math.log(7)) == pytest.approx(7)
    assert training.perplexity(1e6) == math.inf


def test_on_epoch_sees_the_history_grow(dataset, tiny_config):
    lengths = []
    run(dataset, tiny_config, on_epoch=lambda history: lengths.append(len(history.val_loss)))
    assert lengths == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs is 0, expected a positive whole number"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"learning_rate": math.nan}, "learning_rate is nan, expected a positive number"),
        ({"clip": 0}, "clip is 0"),
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"schedule": "cosine"}, "schedule is 'cosine', expected one of constant, inverse_sqrt, linear"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"average": 1.0}, "average is 1.0"),
    ],
)
def test_an_impossible_recipe_says_why(values, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**values)


def test_devices():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device().type in ("cpu", "cuda", "mps")
    for name in ("tpu", "cuda:99", "nonsense"):
        with pytest.raises(ValueError, match=rf"device is '{name}', but this machine has .*cpu"):
            pick_device(name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_same_code_trains_on_cuda(dataset, tiny_config):
    model = Transformer(tiny_config).cuda()
    history = fit(model, dataset, dataset, RECIPE, log=silent)
    assert history.val_loss[-1] < history.val_loss[0]


def test_a_training_from_before_a_recipe_had_all_its_fields_can_be_resumed(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    state = load_training_state(tmp_path / STATE_FILE)
    for name in ("bptt", "optimizer", "decay", "from_counts"):
        del state["recipe"][name]
    save_training_state(tmp_path / STATE_FILE, state)
    _, history = run(dataset, tiny_config, tmp_path, resume=True)
    assert len(history.val_loss) == RECIPE.epochs
