import dataclasses
import itertools
import math

import pytest
import torch
from conftest import OPTIMIZER
from torch.nn.utils import prune
from torch.utils.data import DataLoader

from transformer_lib import Transformer, TransformerConfig, Translator
from transformer_lib.checkpoint import MODEL_FILE, load_model, save_model
from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.files import STATE_FILE, CheckpointError, load_training_state
from transformer_lib.inference.search import greedy_search
from transformer_lib.training import loop
from transformer_lib.training import run as trainer
from transformer_lib.training import trainer as saver
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import evaluate
from transformer_lib.training.recipe import SCHEDULES, Recipe
from transformer_lib.training.trainer import fit

PAD = 1
RECIPE = Recipe(epochs=4, batch_size=3, learning_rate=2e-3, warmup_steps=3, schedule="inverse_sqrt")


def silent(line):
    pass


def run(dataset, config, output=None, recipe=RECIPE, val_set=None, **arguments):
    """Train a fresh tiny model and return it with its history."""
    seed_everything(recipe.seed)
    model = Transformer(config)
    history = fit(model, dataset, val_set or dataset, recipe, output, log=silent, **arguments)
    return model, history


def same_weights(a, b):
    return all(weights.equal(b.state_dict()[name]) for name, weights in a.state_dict().items())


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
    assert all(seconds > 0 for seconds in history.seconds)
    assert history.val_loss[-1] < history.val_loss[0]
    best = load_model(tmp_path)
    assert evaluate(best.model, BucketBatches(dataset, 8)) == pytest.approx(min(history.val_loss))
    assert same_weights(best.model, model)
    assert best.notes["recipe"]["learning_rate"] == 2e-3


def test_a_run_ends_when_on_epoch_says_so_and_can_go_on_later(dataset, tiny_config, tmp_path):
    seen = []

    def stop_after_two(history, model):
        seen.append(evaluate(model, BucketBatches(dataset, 8)))
        return len(history.val_loss) == 2

    _, history = run(dataset, tiny_config, tmp_path, on_epoch=stop_after_two)
    assert len(history.val_loss) == 2 and seen == pytest.approx(history.val_loss)  # the model that was validated
    expected, _ = run(dataset, tiny_config)
    model, history = run(dataset, tiny_config, tmp_path, resume=True)
    assert len(history.val_loss) == 4 and same_weights(model, expected)


def test_the_best_model_is_not_the_last_one_if_that_is_worse(dataset, tiny_config, tmp_path, monkeypatch):
    losses = iter([5.0, 3.0, 1.0, 2.0, 4.0])  # the first before any training
    monkeypatch.setattr(trainer, "evaluate", lambda *arguments: next(losses))
    model, history = run(dataset, tiny_config, tmp_path)
    monkeypatch.undo()
    assert history.best_epoch == 2
    two_epochs, _ = run(dataset, tiny_config, recipe=dataclasses.replace(RECIPE, epochs=2))
    assert same_weights(model, two_epochs)
    assert same_weights(load_model(tmp_path).model, two_epochs)


def test_an_interrupted_model_has_the_best_weights_so_far(dataset, tiny_config, tmp_path, monkeypatch):
    real, calls = trainer.evaluate, []

    def interrupted(*arguments, **options):
        calls.append(real(*arguments, **options))
        if len(calls) == 4:  # in the third epoch: the weights have moved on
            raise KeyboardInterrupt
        return calls[-1]

    monkeypatch.setattr(trainer, "evaluate", interrupted)
    model = Transformer(tiny_config)
    with pytest.raises(KeyboardInterrupt):
        fit(model, dataset, dataset, RECIPE, tmp_path, log=silent)
    assert same_weights(model, load_model(tmp_path).model)


@pytest.mark.parametrize("stop_in", ["epoch", "evaluation"])
@pytest.mark.parametrize(("schedule", "ema_decay"), [*((schedule, 0.0) for schedule in SCHEDULES), ("constant", 0.9)])
def test_resuming_after_an_interruption_gives_the_same_numbers(
    dataset, tiny_config, tmp_path, monkeypatch, stop_in, schedule, ema_decay
):
    recipe = dataclasses.replace(RECIPE, schedule=schedule, ema_decay=ema_decay)
    straight, straight_history = run(dataset, tiny_config, tmp_path / "straight", recipe)
    real_steps, real_evaluate, calls = trainer.train_steps, trainer.evaluate, []

    def count():
        calls.append(1)
        if len(calls) == (3 if stop_in == "epoch" else 4):  # it is evaluated once before the first epoch
            raise KeyboardInterrupt  # after the third epoch's work, before any of it is written down

    def steps_of_an_epoch(*arguments, **options):
        yield from real_steps(*arguments, **options)
        count()

    def evaluated(*arguments, **options):
        loss = real_evaluate(*arguments, **options)
        count()
        return loss

    name, stand_in = {"epoch": ("train_steps", steps_of_an_epoch), "evaluation": ("evaluate", evaluated)}[stop_in]
    monkeypatch.setattr(trainer, name, stand_in)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, tiny_config, tmp_path / "broken", recipe)
    monkeypatch.undo()
    assert not load_model(tmp_path / "broken").model.training  # usable at once

    torch.manual_seed(99)  # whatever happened to the random numbers in between does not matter
    resumed, history = run(dataset, tiny_config, tmp_path / "broken", recipe, resume=True)
    assert same_weights(resumed, straight)
    assert history.val_loss == straight_history.val_loss
    assert history.train_loss == straight_history.train_loss


# two and a half epochs of four steps, of two batches of one sentence each: 4, 8, 10 steps
IN_STEPS = dataclasses.replace(RECIPE, epochs=2.5, batch_size=1, accumulate_steps=2, validate_every=3, save_every=2)


@pytest.mark.parametrize("kind", ["dataset", "loader"])
def test_a_run_resumes_in_the_middle_of_an_epoch_to_the_same_numbers(dataset, tiny_config, tmp_path, monkeypatch, kind):
    """It saves after steps 2, 3, 4 (twice, since the epoch ends), 6, 8 (twice), 9 and 10, and is killed at each."""
    train_set = dataset if kind == "dataset" else DataLoader(dataset, 1, shuffle=True, collate_fn=dataset.collate)
    how = {"recipe": dataclasses.replace(IN_STEPS, ema_decay=0.9), "val_set": dataset}
    real, calls = saver.save_training_state, []

    def killed(*arguments):
        real(*arguments)
        calls.append(1)
        if len(calls) == saves:
            raise KeyboardInterrupt

    monkeypatch.setattr(saver, "save_training_state", killed)
    saves = None
    straight, straight_history = run(train_set, tiny_config, tmp_path / "straight", **how)
    assert straight_history.steps == [3, 6, 9, 10] and len(calls) == 10
    for saves in range(1, 11) if kind == "dataset" else (1, 4, 9):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            run(train_set, tiny_config, tmp_path / f"{saves}", **how)
        torch.manual_seed(99)
        resumed, history = run(train_set, tiny_config, tmp_path / f"{saves}", resume=True, **how)
        assert same_weights(resumed, straight), f"killed after save {saves}"
        for losses in ("train_loss", "val_loss", "steps"):
            assert getattr(history, losses) == getattr(straight_history, losses), f"killed after save {saves}"


def test_whoever_translates_between_two_steps_does_not_switch_dropout_off(dataset, tiny_config):
    def translate(history, model):
        model.eval()  # as ``Translator`` does

    recipe = dataclasses.replace(RECIPE, epochs=2, batch_size=1, validate_every=1)
    config = dataclasses.replace(tiny_config, dropout=0.5)
    losses = []
    for on_epoch in (None, translate):
        torch.manual_seed(0)
        history = fit(Transformer(config), dataset, dataset, recipe, on_epoch=on_epoch, log=lambda line: None)
        losses.append(history.train_loss)
    assert losses[0] == losses[1]


def test_a_run_validates_when_the_recipe_says_so(dataset, tiny_config):
    lines, steps = [], []
    fit(
        Transformer(tiny_config),
        dataset,
        dataset,
        IN_STEPS,
        on_epoch=lambda history, model: steps.append(history.steps[-1]),
        log=lines.append,
    )
    assert steps == [3, 6, 9, 10]
    assert [line.split()[:4] for line in lines] == [
        ["epoch", f"{epoch}/2.5", "step", f"{step}/10"] for epoch, step in zip((1, 2, 3, 3), steps, strict=True)
    ]
    assert all("tokens/s" in line for line in lines)
    _, history = run(dataset, tiny_config, recipe=dataclasses.replace(RECIPE, epochs=0.5, batch_size=1))
    assert history.steps == [4]  # half of eight


def test_what_on_epoch_ends_in_the_middle_of_an_epoch_ends_there(dataset, tiny_config, tmp_path):
    _, history = run(dataset, tiny_config, tmp_path, IN_STEPS, on_epoch=lambda history, model: len(history.steps) == 2)
    assert history.steps == [3, 6]
    _, resumed = run(dataset, tiny_config, tmp_path, IN_STEPS, resume=True)
    _, straight = run(dataset, tiny_config, recipe=IN_STEPS)
    assert resumed.val_loss == straight.val_loss


def test_more_epochs_can_be_added_to_a_finished_training(dataset, tiny_config, tmp_path):
    straight, _ = run(dataset, tiny_config)
    run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, epochs=2))
    resumed, history = run(dataset, tiny_config, tmp_path, resume=True)
    assert len(history.val_loss) == 4
    assert same_weights(resumed, straight)


def test_a_training_that_ended_at_a_learning_rate_of_zero_is_not_continued(dataset, tiny_config, tmp_path):
    recipe = dataclasses.replace(RECIPE, epochs=2, schedule="linear")
    run(dataset, tiny_config, tmp_path, recipe)
    with pytest.raises(ValueError, match="another epochs: it was 2, now it is 4"):
        run(dataset, tiny_config, tmp_path, dataclasses.replace(recipe, epochs=4), resume=True)


def test_an_interruption_in_the_first_epoch_leaves_nothing_behind(dataset, tiny_config, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "train_steps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, tiny_config, tmp_path)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="training_state"):
        run(dataset, tiny_config, tmp_path, resume=True)
    assert same_weights(run(dataset, tiny_config, tmp_path)[0], run(dataset, tiny_config)[0])


def test_a_first_epoch_that_makes_it_worse_keeps_the_model_that_there_was(dataset, tiny_config, tmp_path, monkeypatch):
    losses = iter([1.0, 5.0])
    monkeypatch.setattr(trainer, "evaluate", lambda *arguments: next(losses))
    model, history = run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, epochs=1))
    seed_everything(RECIPE.seed)
    assert history.best_epoch == 0
    assert same_weights(model, Transformer(tiny_config)) and same_weights(load_model(tmp_path).model, model)


def test_a_training_that_is_there_is_never_overwritten(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError):
        run(dataset, tiny_config, tmp_path / MODEL_FILE)
    with pytest.raises(FileExistsError, match="holds a training run: resume it"):
        run(dataset, tiny_config, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_resuming_another_training_is_refused(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    with pytest.raises(ValueError, match=r"another learning_rate: it was 0.002, now it is 0.5"):
        run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, learning_rate=0.5), resume=True)
    with pytest.raises(ValueError, match="another d_ff: it was 64, now it is 32"):
        run(dataset, dataclasses.replace(tiny_config, d_ff=32), tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="training_state"):
        run(dataset, tiny_config, tmp_path / "elsewhere", resume=True)


def test_moments_of_other_shapes_are_refused_by_name(dataset, tiny_config, tmp_path):
    """A step would write beyond the weights: a damaged file, or one that somebody has made, must not go so far."""
    run(dataset, tiny_config, tmp_path)
    state = torch.load(tmp_path / STATE_FILE, weights_only=True)
    moments = next(iter(state["optimizer"]["state"].values()))
    moments["exp_avg"] = moments["exp_avg"][:1].clone()
    torch.save(state, tmp_path / STATE_FILE)
    with pytest.raises(ValueError, match="moments"):
        run(dataset, tiny_config, tmp_path, resume=True)


def test_a_model_that_a_killed_process_did_not_write_any_more_is_written_when_the_run_is_resumed(
    dataset, tiny_config, tmp_path
):
    model, _ = run(dataset, tiny_config, tmp_path)
    (tmp_path / MODEL_FILE).unlink()
    run(dataset, tiny_config, tmp_path, resume=True)
    assert same_weights(load_model(tmp_path).model, model)


def test_two_trainings_never_write_into_one_folder(dataset, tiny_config, tmp_path):
    refused = []

    def a_second_one(line):
        for resume in (False, True) if not refused else ():  # once, since each waits for a second
            with pytest.raises(TimeoutError, match=r"\.training\.lock"):
                run(dataset, tiny_config, tmp_path, resume=resume)
            refused.append(resume)

    seed_everything(RECIPE.seed)
    history = fit(Transformer(tiny_config), dataset, dataset, RECIPE, tmp_path, log=a_second_one)
    assert len(history.val_loss) == RECIPE.epochs and refused == [False, True]
    run(dataset, tiny_config, tmp_path, resume=True)  # the first one has ended


def test_a_vocabulary_that_is_not_the_models_is_refused_before_training(dataset, tiny_config, tmp_path):
    config = dataclasses.replace(tiny_config, tgt_vocab_size=tiny_config.tgt_vocab_size + 3)
    with pytest.raises(ValueError, match=r"tgt_tokenizer has \d+ types, expected the model's"):
        run(dataset, config, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_vocabulary_of_the_same_size_cannot_be_resumed_with(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    words = dataset.tokenizers["src"].vocab.itos
    words[5], words[6] = words[6], words[5]
    with pytest.raises(ValueError, match="had another tokenizers") as error:
        run(dataset, tiny_config, tmp_path, resume=True)
    assert len(str(error.value)) < 400


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_same_code_trains_on_cuda(dataset, tiny_config):
    model = Transformer(tiny_config).cuda()
    history = fit(model, dataset, dataset, RECIPE, log=silent)
    assert history.val_loss[-1] < history.val_loss[0]


EVERYTHING = dataclasses.replace(
    RECIPE,
    epochs=3,
    max_tokens=40,
    optimizer=OPTIMIZER,
    schedule="linear",
    weight_decay=0.1,
    label_smoothing=0.1,
    rdrop_weight=0.5,
    ema_decay=0.9,
    precision="bfloat16",
    subwords=80,
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


def test_two_vocabularies_of_one_size_are_not_trained_in_one_matrix(pairs, subword_config):
    """Both would be cut and looked up without an error, and unrelated pieces would share a row."""
    sides = zip(("de", "en"), zip(*pairs, strict=True), strict=True)
    apart = [
        SubwordTokenizer(language, train_subwords([(side, side) for side in text], 60)) for language, text in sides
    ]
    config = dataclasses.replace(subword_config, src_vocab_size=60, tgt_vocab_size=60)
    message = "tie_embeddings=True needs one vocabulary for src and tgt"
    with pytest.raises(ValueError, match=message):
        run(make_dataset(pairs, *apart), config)
    run(make_dataset(pairs, *apart), dataclasses.replace(config, tie_embeddings=False))


def test_everything_at_once_can_be_resumed_too(subword_dataset, subword_config, tmp_path, monkeypatch):
    """Subwords, Muon, two passes, bfloat16, the average: nothing of them is lost."""
    straight, straight_history = run(subword_dataset, subword_config, tmp_path / "straight", EVERYTHING)
    real, calls = trainer.train_steps, []

    def interrupted(*arguments, **options):
        yield from real(*arguments, **options)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "train_steps", interrupted)
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
        {"max_tokens": 0},
        {"optimizer": "sgd"},
        {"weight_decay": 0.0},
        {"label_smoothing": 0.0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_part_of_the_recipe_has_an_effect(subword_dataset, subword_config, change, with_bfloat16):
    recipe = dataclasses.replace(EVERYTHING, epochs=2)
    _, history = run(subword_dataset, subword_config, recipe=recipe)
    _, other = run(subword_dataset, subword_config, recipe=dataclasses.replace(recipe, **change))
    assert history.train_loss != other.train_loss


def test_weights_and_what_is_saved_stay_in_float32(subword_dataset, subword_config, tmp_path, with_bfloat16):
    model, _ = run(subword_dataset, subword_config, tmp_path, EVERYTHING)
    state = load_training_state(tmp_path / STATE_FILE)
    tensors = [*model.parameters(), *load_model(tmp_path).model.parameters(), *state["model"].values()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


def test_a_gpu_without_bfloat16_learns_the_same_in_float16(subword_dataset, subword_config, monkeypatch):
    recipe = dataclasses.replace(EVERYTHING, rdrop_weight=0.0)
    config = dataclasses.replace(subword_config, dropout=0.0)
    _, expected = run(subword_dataset, config, recipe=recipe)
    monkeypatch.setattr(loop, "fast_dtype", lambda device: torch.float16)
    model, history = run(subword_dataset, config, recipe=recipe)
    assert history.train_loss == pytest.approx(expected.train_loss, rel=0.02)
    assert history.train_loss != expected.train_loss
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_in_float16_the_scale_of_the_gradients_goes_on_from_epoch_to_epoch_and_when_resumed(
    dataset, tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "fast_dtype", lambda device: torch.float16)
    recipe = dataclasses.replace(RECIPE, precision="bfloat16", epochs=2)

    def good_steps_in_a_row(output):
        return load_training_state(output / STATE_FILE)["scaler"]["_growth_tracker"]

    _, expected = run(dataset, tiny_config, tmp_path / "a", recipe)
    run(dataset, tiny_config, tmp_path / "b", dataclasses.replace(recipe, epochs=1))
    after_one = good_steps_in_a_row(tmp_path / "b")
    _, resumed = run(dataset, tiny_config, tmp_path / "b", recipe, resume=True)
    assert resumed.train_loss == expected.train_loss
    assert good_steps_in_a_row(tmp_path / "b") == good_steps_in_a_row(tmp_path / "a") == 2 * after_one > 0


def test_dropout_is_on_in_half_precision_whatever_mode_the_model_came_in(
    subword_dataset, subword_config, with_bfloat16
):
    recipe = dataclasses.replace(RECIPE, epochs=1, precision="bfloat16")
    losses = []
    for in_training in (True, False):
        seed_everything(0)
        model = Transformer(dataclasses.replace(subword_config, dropout=0.5)).train(in_training)
        losses.append(fit(model, subword_dataset, subword_dataset, recipe, log=silent).train_loss)
    assert losses[0] == losses[1]


def test_ids_that_do_not_come_from_the_models_own_vocabularies_are_checked(subword_dataset, subword_config):
    batch = {"src": torch.tensor([[2, 80, 3]]), "tgt": torch.tensor([[2, 5, 3]])}
    with pytest.raises(ValueError, match="src holds the id 80, expected 0 to 79"):
        fit(Transformer(subword_config), [batch], subword_dataset, RECIPE, log=silent)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch.compile's
def test_a_compiled_model_learns_the_same(subword_dataset, subword_config):
    """Without a compiler for kernels, which not every machine has: PyTorch then runs what it has recorded."""
    config = dataclasses.replace(subword_config, dropout=0.0)
    recipe = dataclasses.replace(RECIPE, epochs=1, precision="bfloat16")
    _, expected = run(subword_dataset, config, recipe=recipe)
    seed_everything(RECIPE.seed)
    model = Transformer(config)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.compile(dynamic=True, backend="aot_eager")
    history = fit(model, subword_dataset, subword_dataset, recipe, log=silent)
    assert history.train_loss == pytest.approx(expected.train_loss, rel=1e-3)
    assert history.val_loss == pytest.approx(expected.val_loss, rel=1e-3)
    src = torch.tensor([[2, 5, 6, 3]])
    assert greedy_search(model, src, 2, 3)[0].ids == greedy_search(model, src, 2, 3, use_cache=False)[0].ids


@dataclasses.dataclass(frozen=True)
class OwnConfig(TransformerConfig):
    scale: "float | None" = None
    sizes: tuple[int, ...] = (3, 5)


class OwnModel(Transformer):
    config_class = OwnConfig


def test_whatever_a_configuration_of_ones_own_holds_a_run_resumes(dataset, tiny_config, tmp_path):
    for number, scale in enumerate([0.5, math.nan, None]):
        config = OwnConfig(**dataclasses.asdict(tiny_config), scale=scale)
        output = tmp_path / str(number)
        fit(OwnModel(config), dataset, dataset, RECIPE, output, log=silent)
        longer = dataclasses.replace(RECIPE, epochs=5)
        history = fit(OwnModel(config), dataset, dataset, longer, output, resume=True, log=silent)
        assert len(history.val_loss) == 5
        with pytest.raises(ValueError, match=r"another scale: it was .*, now it is 2"):
            other = OwnModel(dataclasses.replace(config, scale=2))
            fit(other, dataset, dataset, longer, output, resume=True, log=silent)


def test_what_cannot_be_saved_is_refused_before_it_is_trained(dataset, tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "train_steps", lambda *arguments: pytest.fail("it trains"))
    with pytest.raises(TypeError, match="JSON"):
        run(dataset, tiny_config, tmp_path / "new", notes={"set": {1, 2}})
    assert not (tmp_path / "new").exists()


def files_in(folder):
    return [path.name for path in folder.glob("[!.]*")]


def test_data_without_a_batch_are_refused_before_anything_is_written(dataset, tiny_config, tmp_path):
    none = torch.utils.data.DataLoader(dataset, batch_size=100, drop_last=True, collate_fn=dataset.collate)
    with pytest.raises(ValueError, match="batches hold no token to predict"):
        fit(Transformer(tiny_config), none, dataset, RECIPE, tmp_path, log=silent)
    with pytest.raises(ValueError, match="batches hold no token to predict"):
        fit(Transformer(tiny_config), dataset, none, RECIPE, tmp_path, log=silent)
    assert not files_in(tmp_path)


def test_resuming_with_another_recipe_says_so_also_where_that_needs_more_than_the_folder_has(
    dataset, tiny_config, tmp_path
):
    run(dataset, tiny_config, tmp_path)
    with pytest.raises(ValueError, match=r"another ema_decay: it was 0.0, now it is 0.9"):
        run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, ema_decay=0.9), resume=True)


def test_no_epoch_of_a_seed_repeats_one_of_another_seed(dataset, tiny_config, monkeypatch):
    """Else, runs with seeds 1, 2 and 3 would share most of their random numbers, and vary less than runs do."""
    drawn, real = [], trainer.train_steps

    def spy(model, batches, *arguments, **options):
        dropout, batches = torch.rand(1).item(), list(batches)
        drawn.append((dropout, *(tuple(batch.src.flatten().tolist()) for batch in batches)))
        return real(model, batches, *arguments, **options)

    monkeypatch.setattr(trainer, "train_steps", spy)
    loader = DataLoader(dataset, 1, shuffle=True, collate_fn=dataset.collate)
    for train_set, seed in itertools.product((dataset, loader), (1, 2, 3)):
        recipe = dataclasses.replace(RECIPE, epochs=3, seed=seed, batch_size=1)
        fit(Transformer(tiny_config), train_set, dataset, recipe, log=silent)
    dropout, *order = zip(*drawn, strict=True)
    assert len({*dropout}) == 9 and len({*zip(*order, strict=True)}) == 18


def test_a_shuffling_loader_resumes_to_the_same_numbers(dataset, tiny_config, tmp_path):
    loader = DataLoader(dataset, 4, shuffle=True, collate_fn=dataset.collate)
    straight, _ = run(loader, tiny_config, val_set=dataset)
    run(loader, tiny_config, tmp_path, dataclasses.replace(RECIPE, epochs=2), val_set=dataset)
    torch.rand(5)
    resumed, _ = run(loader, tiny_config, tmp_path, resume=True, val_set=dataset)
    assert same_weights(resumed, straight)


WRAPPERS = {
    "torch.compile": lambda model: torch.compile(model, backend="eager"),
    "data parallel": torch.nn.DataParallel,
    "an average": torch.optim.swa_utils.AveragedModel,
    "one of the user's": lambda model: torch.nn.Sequential(torch.nn.Sequential(model)),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_that_hides_a_models_class_is_refused_at_every_door(dataset, tiny_config, tmp_path, wrapper):
    model = Transformer(tiny_config)
    wrapped, tokenizers = WRAPPERS[wrapper](model), dataset.tokenizers
    for enter in (
        lambda: fit(wrapped, dataset, dataset, RECIPE, tmp_path / "run", log=silent),
        lambda: fit(wrapped, dataset, dataset, RECIPE, log=silent),
        lambda: loop.train_epoch(wrapped, dataset, torch.optim.SGD(model.parameters(), lr=0.1)),
        lambda: evaluate(wrapped, dataset),
        lambda: save_model(tmp_path / "model", wrapped, tokenizers),
        lambda: Translator(wrapped, *tokenizers.values()),
    ):
        with pytest.raises(TypeError, match=rf"model is a {type(wrapped).__name__}, .*wrapper.*model\.compile\(\)"):
            enter()
    assert list(tmp_path.iterdir()) == []


class LowRank(torch.nn.Module):
    """Adapts a layer that stays as it is (Hu et al. 2022)."""

    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = torch.nn.Linear(layer.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def add_lora(model):
    for layer in model.decoder.layers:
        layer.self_attn.q_proj = LowRank(layer.self_attn.q_proj)


def untie(model):
    model.output.weight = torch.nn.Parameter(model.output.weight.detach().clone())


REPLACED = {
    "LoRA": add_lora,
    "pruning": lambda model: prune.l1_unstructured(model.output, "weight", 0.5),
    "another head": lambda model: setattr(model, "output", torch.nn.Linear(model.config.d_model, 7)),
    "a layer less": lambda model: model.decoder.layers.pop(0),
    "a bias less": lambda model: setattr(model.output, "bias", None),
    "untied": untie,
}


@pytest.mark.parametrize("change", REPLACED)
def test_a_model_that_could_not_be_loaded_again_is_refused_before_it_is_trained(
    subword_dataset, subword_config, tmp_path, monkeypatch, change
):
    model = Transformer(subword_config)
    REPLACED[change](model)
    message = r"Transformer\(config\) would not make this model's weights: merge"
    with pytest.raises(ValueError, match=message):
        save_model(tmp_path / "model", model, subword_dataset.tokenizers)
    monkeypatch.setattr(trainer, "train_steps", lambda *arguments, **options: pytest.fail("it trains"))
    with pytest.raises(ValueError, match=message):
        fit(model, subword_dataset, subword_dataset, RECIPE, tmp_path / "run", log=silent)
    assert list(tmp_path.iterdir()) == []
    if change not in ("another head", "pruning"):  # a pruned model cannot be copied
        monkeypatch.undo()  # the others can be trained all the same, if nothing is to be saved
        fit(model, subword_dataset, subword_dataset, dataclasses.replace(RECIPE, epochs=1), log=silent)


class Looks(Transformer):
    """A model that computes with numbers, also random ones, while it is built."""

    def __init__(self, config):
        super().__init__(config)
        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, config.num_layers)]
        self.noise = torch.nn.Parameter(torch.randn(3, device="cpu"))


def test_looking_whether_a_model_can_be_built_again_draws_no_random_number_that_counts(dataset, tiny_config, tmp_path):
    for kind in (Transformer, Looks):
        model = kind(tiny_config)
        before = torch.get_rng_state()
        save_model(tmp_path / "model", model, dataset.tokenizers)
        assert torch.get_rng_state().equal(before)
        assert same_weights(load_model(tmp_path / "model", kind).model, model)


def test_what_was_added_to_the_weights_can_be_saved_when_it_is_merged(subword_dataset, subword_config, tmp_path):
    model = Transformer(subword_config)
    add_lora(model)
    fit(model, subword_dataset, subword_dataset, dataclasses.replace(RECIPE, epochs=1), log=silent)
    for layer in model.decoder.layers:
        adapted = layer.self_attn.q_proj
        with torch.no_grad():
            adapted.layer.weight += adapted.up.weight @ adapted.down.weight
        layer.self_attn.q_proj = adapted.layer
    save_model(tmp_path / "model", model, subword_dataset.tokenizers)
    assert same_weights(load_model(tmp_path / "model").model, model)


def test_nothing_can_be_resumed_without_a_folder(dataset, tiny_config):
    with pytest.raises(ValueError, match="resume is True and output None"):
        run(dataset, tiny_config, resume=True)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "constant", "exponential"])
def test_a_run_that_was_shorter_than_its_warm_up_goes_on_as_one_run_or_not_at_all(
    dataset, tiny_config, tmp_path, schedule
):
    """Of 12 steps, a tenth warms up; of 48, a warm-up of 30 would begin again at a third of its peak."""
    short = dataclasses.replace(RECIPE, epochs=3, batch_size=2, warmup_steps=30, schedule=schedule)
    run(dataset, tiny_config, tmp_path, short)
    longer = dataclasses.replace(short, epochs=12)
    with pytest.raises(ValueError, match="another warmup_steps: it was 1, now it is 30"):
        run(dataset, tiny_config, tmp_path, longer, resume=True)
    goes_on = dataclasses.replace(longer, warmup_steps=1)
    resumed, history = run(dataset, tiny_config, tmp_path, goes_on, resume=True)
    straight, straight_history = run(dataset, tiny_config, recipe=goes_on)
    assert same_weights(resumed, straight) and history.val_loss == straight_history.val_loss


def test_whose_order_a_resumed_run_may_not_repeat_is_said_once(dataset, tiny_config, tmp_path):
    batches, lines = list(BucketBatches(dataset, 8)), []
    recipe = dataclasses.replace(RECIPE, epochs=2)
    fit(Transformer(tiny_config), batches, dataset, recipe, tmp_path / "a", log=lines.append)
    assert [line for line in lines if "train_set is a list" in line] == lines[:1]
    assert "generator" in lines[0] and "persistent workers" in lines[0]
    fit(Transformer(tiny_config), dataset, dataset, recipe, tmp_path / "b", log=lines.append)  # its order is known
    fit(Transformer(tiny_config), batches, dataset, recipe, log=lines.append)  # nothing to resume
    assert sum("train_set is" in line for line in lines) == 1


def test_what_cannot_be_trained_is_refused_and_nothing_is_written(dataset, tiny_config, tmp_path):
    batches = [*BucketBatches(dataset, 4), {"src": torch.tensor([[2, 999, 3]]), "tgt": torch.tensor([[2, 5, 3]])}]
    text = dataclasses.replace(RECIPE, init_bias_from_unigrams=True)
    for model, train_set, recipe, error, message in (
        (Transformer(tiny_config), iter(batches), RECIPE, TypeError, "list_iterator"),
        (Transformer(tiny_config), batches, RECIPE, ValueError, "src holds the id 999"),
        (Transformer(tiny_config), dataset, text, AttributeError, "init_bias_from_unigrams"),
    ):
        with pytest.raises(error, match=message):
            fit(model, train_set, dataset, recipe, tmp_path, log=silent)
        assert not files_in(tmp_path)
