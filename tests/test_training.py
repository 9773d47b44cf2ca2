import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from transformer_lib import Transformer
from transformer_lib.checkpoint import MODEL_FILE, load_model
from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.fast import precision
from transformer_lib.fast.worker import Worker
from transformer_lib.files import STATE_FILE, load_training_state, save_training_state
from transformer_lib.training import trainer
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.loop import evaluate, train_epoch
from transformer_lib.training.optimizer import learning_rate_schedule, make_optimizer
from transformer_lib.training.recipe import SCHEDULES, Recipe
from transformer_lib.training.trainer import fit

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
    train_epoch(model, batches, torch.optim.SGD(model.parameters(), lr=0.1), max_grad_norm=0.5)

    logits = expected(batch.src, batch.tgt[:, :-1]).transpose(1, 2)
    F.cross_entropy(logits, batch.tgt[:, 1:], ignore_index=PAD).backward()
    norm = torch.stack([p.grad.norm() for p in expected.parameters()]).norm()
    assert norm > 0.5
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs - 0.1 * theirs.grad * 0.5 / norm, atol=1e-5, rtol=1e-4)


def test_an_averaged_training_validates_and_keeps_the_average_and_goes_on_with_the_weights(
    dataset, tiny_config, tmp_path
):
    recipe = dataclasses.replace(RECIPE, ema_decay=0.99)
    averaged, history = run(dataset, tiny_config, tmp_path, recipe)
    plain, plain_history = run(dataset, tiny_config)
    assert history.train_loss == plain_history.train_loss  # the average is a bystander
    assert history.val_loss != plain_history.val_loss
    assert evaluate(averaged, BucketBatches(dataset, 8)) == pytest.approx(min(history.val_loss))
    assert not same_weights(averaged, plain)
    state = load_training_state(tmp_path / STATE_FILE)
    assert all(state["model"][name].equal(weights) for name, weights in plain.state_dict().items())


def test_training_lowers_the_loss_and_keeps_the_best_model(dataset, tiny_config, tmp_path):
    model, history = run(dataset, tiny_config, tmp_path)
    assert len(history.train_loss) == len(history.val_loss) == len(history.seconds) == 4
    assert history.val_loss[-1] < history.val_loss[0]
    best = load_model(tmp_path)
    assert evaluate(best.model, BucketBatches(dataset, 8)) == pytest.approx(min(history.val_loss))
    assert same_weights(best.model, model)
    assert best.notes["recipe"]["learning_rate"] == 2e-3


def test_the_best_model_is_not_the_last_one_if_that_is_worse(dataset, tiny_config, tmp_path, monkeypatch):
    losses = iter([3.0, 1.0, 2.0, 4.0])
    monkeypatch.setattr(trainer, "evaluate", lambda *arguments: next(losses))
    model, history = run(dataset, tiny_config, tmp_path)
    monkeypatch.undo()
    assert history.best_epoch == 2
    two_epochs, _ = run(dataset, tiny_config, recipe=dataclasses.replace(RECIPE, epochs=2))
    assert same_weights(model, two_epochs)
    assert same_weights(load_model(tmp_path).model, two_epochs)


@pytest.mark.parametrize("stop_in", ["epoch", "evaluation"])
@pytest.mark.parametrize(("schedule", "ema_decay"), [*((schedule, 0.0) for schedule in SCHEDULES), ("constant", 0.9)])
def test_resuming_after_an_interruption_gives_the_same_numbers(
    dataset, tiny_config, tmp_path, monkeypatch, stop_in, schedule, average
):
    recipe = dataclasses.replace(RECIPE, schedule=schedule, average=average)
    straight, straight_history = run(dataset, tiny_config, tmp_path / "straight", recipe)
    name = {"epoch": "train_epoch", "evaluation": "evaluate"}[stop_in]
    real, calls = getattr(trainer, name), []

    def interrupted(*arguments, **options):
        calls.append(1)
        result = real(*arguments, **options)
        if len(calls) == 3:
            raise KeyboardInterrupt  # after the third epoch's work, before any of it is written down
        return result

    monkeypatch.setattr(trainer, name, interrupted)
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

    monkeypatch.setattr(trainer, "train_epoch", interrupted)
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
    where = r"step 2 of the epoch \(learning rate 1e\+30, batch src \[3, \d+\], tgt \[3, \d+\]\)"
    with pytest.raises(FloatingPointError, match=f"the training loss is nan in {where}: .*lower learning rate"):
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
    with pytest.raises(
        ValueError, match=r"tgt_tokenizer has a vocabulary of \d+ types, but the model's tgt_vocab_size is"
    ):
        run(dataset, config, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_vocabulary_of_the_same_size_cannot_be_resumed_with(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    words = dataset.tokenizers["src"].vocab.itos
    words[5], words[6] = words[6], words[5]
    with pytest.raises(ValueError, match=r"another vocabulary .*: src was") as error:
        run(dataset, tiny_config, tmp_path, resume=True)
    assert len(str(error.value)) < 250


def test_perplexity_is_e_to_the_loss_however_large():
    assert trainer.perplexity(math.log(7)) == pytest.approx(7)
    assert trainer.perplexity(1e6) == math.inf


def test_of_several_processes_each_gets_a_gpu_or_is_told_that_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert pick_device() == torch.device("cuda:1")
    assert pick_device("cuda:0") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match=r"no GPU for process 3 of this machine, which has 2.*--nproc-per-node"):
        pick_device()


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
        ({"max_grad_norm": 0}, "max_grad_norm is 0"),
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"schedule": "cosine"}, "schedule is 'cosine', expected one of constant, inverse_sqrt, linear"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"average": 1.0}, "average is 1.0"),
        ({"rdrop_weight": -1.0}, "rdrop_weight is -1.0, expected 0 or more"),
        ({"weight_decay": math.inf}, "weight_decay is inf, expected 0 or more"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"precision": "float16"}, "precision is 'float16', expected one of float32, bfloat16"),
        ({"optimizer": "lion"}, "optimizer is 'lion', expected one of adam, muon, sgd"),
        ({"subwords": 80, "subword_dropout": 1.0}, "subword_dropout is 1.0"),
        ({"subword_dropout": 0.1}, "subword_dropout is 0.1, but subwords is 0: words have no parts"),
        ({"beam_size": 0}, "beam_size is 0"),
        ({"beam_size": 17}, "beam_size is 17, expected at most 16"),
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
    for name in ("bptt", "optimizer", "lr_decay", "init_bias_from_unigrams"):
        del state["recipe"][name]
    save_training_state(tmp_path / STATE_FILE, state)
    _, history = run(dataset, tiny_config, tmp_path, resume=True)
    assert len(history.val_loss) == RECIPE.epochs


EVERYTHING = dataclasses.replace(
    RECIPE,
    epochs=3,
    max_tokens=40,
    optimizer="muon",
    schedule="linear",
    weight_decay=0.1,
    label_smoothing=0.1,
    rdrop_weight=0.5,
    ema_decay=0.9,
    precision="bfloat16",
    subwords=80,
    subword_dropout=0.2,
)


@pytest.fixture
def subword_dataset(pairs):
    pieces = train_subwords(pairs, EVERYTHING.subwords)
    return make_dataset(pairs, SubwordTokenizer("de", pieces), SubwordTokenizer("en", pieces))


@pytest.fixture
def subword_config(tiny_config):
    return dataclasses.replace(
        tiny_config, src_vocab_size=80, tgt_vocab_size=80, tie_embeddings=True, norm_first=True, max_len=60
    )


def test_everything_at_once_can_be_resumed_too(subword_dataset, subword_config, tmp_path, monkeypatch):
    """Subwords cut anew in each epoch, Muon, two passes, bfloat16, the average: nothing of them is lost."""
    straight, straight_history = run(subword_dataset, subword_config, tmp_path / "straight", EVERYTHING)
    real, calls = trainer.train_epoch, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(trainer, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(subword_dataset, subword_config, tmp_path / "broken", EVERYTHING)
    monkeypatch.undo()
    resumed, history = run(subword_dataset, subword_config, tmp_path / "broken", EVERYTHING, resume=True)
    assert same_weights(resumed, straight)
    assert history.train_loss == straight_history.train_loss and history.val_loss == straight_history.val_loss


@pytest.mark.parametrize(
    "change",
    [
        {"rdrop_weight": 0.0},
        {"precision": "float32"},
        {"subword_dropout": 0.0},
        {"max_tokens": 0},
        {"optimizer": "adam"},
        {"weight_decay": 0.0},
        {"label_smoothing": 0.0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_part_of_the_recipe_has_an_effect(subword_dataset, subword_config, change):
    recipe = dataclasses.replace(EVERYTHING, epochs=2)
    _, history = run(subword_dataset, subword_config, recipe=recipe)
    _, other = run(subword_dataset, subword_config, recipe=dataclasses.replace(recipe, **change))
    assert history.train_loss != other.train_loss


def test_weights_and_what_is_saved_stay_in_float32(subword_dataset, subword_config, tmp_path):
    model, _ = run(subword_dataset, subword_config, tmp_path, EVERYTHING)
    state = load_training_state(tmp_path / STATE_FILE)
    tensors = [*model.parameters(), *load_model(tmp_path).model.parameters(), *state["model"].values()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


def test_a_gpu_without_bfloat16_learns_the_same_in_float16(subword_dataset, subword_config, monkeypatch):
    recipe = dataclasses.replace(EVERYTHING, subword_dropout=0.0, rdrop_weight=0.0)
    config = dataclasses.replace(subword_config, dropout=0.0)
    _, expected = run(subword_dataset, config, recipe=recipe)
    monkeypatch.setattr(precision, "half_precision", lambda device: torch.float16)
    model, history = run(subword_dataset, config, recipe=recipe)
    assert history.train_loss == pytest.approx(expected.train_loss, rel=0.02)
    assert history.train_loss != expected.train_loss
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_in_float16_the_scale_of_the_gradients_goes_on_from_epoch_to_epoch_and_when_resumed(
    dataset, tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr(precision, "half_precision", lambda device: torch.float16)
    recipe = dataclasses.replace(RECIPE, precision="bfloat16", epochs=2)

    def good_steps_in_a_row(output):
        return load_training_state(output / STATE_FILE)["scaler"]["_growth_tracker"]

    _, expected = run(dataset, tiny_config, tmp_path / "a", recipe)
    run(dataset, tiny_config, tmp_path / "b", dataclasses.replace(recipe, epochs=1))
    after_one = good_steps_in_a_row(tmp_path / "b")
    _, resumed = run(dataset, tiny_config, tmp_path / "b", recipe, resume=True)
    assert resumed.train_loss == expected.train_loss
    assert good_steps_in_a_row(tmp_path / "b") == good_steps_in_a_row(tmp_path / "a") == 2 * after_one > 0


def test_dropout_is_on_in_half_precision_whatever_mode_the_model_came_in(subword_dataset, subword_config):
    recipe = dataclasses.replace(RECIPE, epochs=1, precision="bfloat16")
    losses = []
    for in_training in (True, False):
        seed_everything(0)
        model = Transformer(dataclasses.replace(subword_config, dropout=0.5)).train(in_training)
        losses.append(fit(model, subword_dataset, subword_dataset, recipe, log=silent).train_loss)
    assert losses[0] == losses[1]


def test_in_half_precision_what_is_frozen_stays_frozen(subword_dataset, subword_config):
    seed_everything(0)
    model = Transformer(subword_config)
    frozen = model.encoder.layers[0].feed_forward.requires_grad_(False)
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_epoch(model, BucketBatches(subword_dataset, 4), optimizer, worker=Worker(model, "bfloat16"))
    still = {name for name, weights in model.state_dict().items() if weights.equal(before[name])}
    assert {f"encoder.layers.0.feed_forward.{name}" for name in frozen.state_dict()} <= still
    assert "decoder.layers.0.feed_forward.linear1.weight" not in still


def test_every_epoch_cuts_subwords_anew(subword_dataset, subword_config, monkeypatch):
    seen, real = [], trainer.train_epoch

    def spy(model, batches, *arguments):
        seen.append([example.tgt for example in batches.dataset.examples])
        return real(model, batches, *arguments)

    monkeypatch.setattr(trainer, "train_epoch", spy)
    run(subword_dataset, subword_config, recipe=EVERYTHING)
    assert len(seen) == 3 and seen[0] != seen[1] != seen[2]
    assert seen[0] != [example.tgt for example in subword_dataset.examples]


def test_a_step_does_not_wait_for_the_device(subword_config):
    """On the meta device, tensors have shapes and no numbers: whoever asks for a number, as ``nonzero`` does, fails."""
    model = Transformer(subword_config).to("meta")
    src, tgt = (torch.ones(4, length, dtype=torch.long, device="meta") for length in (5, 6))
    optimizer = make_optimizer(model, dataclasses.replace(EVERYTHING, optimizer="adamw"))
    schedule = learning_rate_schedule(optimizer, "linear", 1, 3)
    mixed = Worker(model, "bfloat16")
    with pytest.raises(NotImplementedError, match="no data"):  # all losses, once at the end
        train_epoch(model, [SimpleNamespace(src=src, tgt=tgt)] * 3, optimizer, schedule, 1.0, 0.1, 1.5, mixed)
    assert schedule.last_epoch == 3


def test_while_fitting_nobody_looks_for_unknown_ids(subword_dataset, subword_config, monkeypatch):
    seen, real = [], trainer.train_epoch

    def spy(model, *arguments):
        seen.append(model.src_embedding.tokens.checks_ids)
        return real(model, *arguments)

    monkeypatch.setattr(trainer, "train_epoch", spy)
    model, _ = run(subword_dataset, subword_config)
    assert seen == [False] * RECIPE.epochs
    with pytest.raises(ValueError, match="ids holds -1"):
        model(torch.tensor([[-1]]), torch.tensor([[2]]))


ITS_OWN = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch.compile's


@ITS_OWN
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_compiled_model_learns_the_same_and_only_in_training(subword_dataset, subword_config, monkeypatch, precision):
    """Without a compiler for kernels, which not every machine has: PyTorch then runs what it has recorded."""
    compiled, real = [], torch.nn.Module.compile

    def compile_without_kernels(module, **arguments):
        compiled.append(module)
        real(module, backend="aot_eager", **arguments)

    monkeypatch.setattr(torch.nn.Module, "compile", compile_without_kernels)
    config = dataclasses.replace(subword_config, dropout=0.0)
    recipe = dataclasses.replace(RECIPE, epochs=2, precision=precision)
    _, expected = run(subword_dataset, config, recipe=recipe)
    assert not compiled
    model, history = run(subword_dataset, config, recipe=dataclasses.replace(recipe, compile=True))
    assert history.train_loss == pytest.approx(expected.train_loss, rel=1e-3)
    assert history.val_loss == pytest.approx(expected.val_loss, rel=1e-3)
    assert len(compiled) == 2 * config.num_layers  # encoder and decoder, once for all epochs
    assert not {id(module) for module in model.modules()} & {id(module) for module in compiled}


@ITS_OWN
def test_where_nothing_can_be_compiled_one_is_told(subword_dataset, subword_config, monkeypatch):
    def no_compiler(graph, inputs):
        raise RuntimeError("no C++ compiler")

    real = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda module, **kwargs: real(module, backend=no_compiler, **kwargs)
    )
    with pytest.raises(ValueError, match=r"recipe.compile is True.*no C\+\+ compiler"):
        run(subword_dataset, subword_config, recipe=dataclasses.replace(RECIPE, compile=True))


def test_a_validation_set_of_other_vocabularies_is_refused(subword_dataset, subword_config, dataset):
    with pytest.raises(ValueError, match="vocabular"):
        fit(Transformer(subword_config), subword_dataset, dataset, RECIPE, log=silent)
