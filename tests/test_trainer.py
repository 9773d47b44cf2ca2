import dataclasses
import enum
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import OPTIMIZER
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from transformer_lib import Transformer, TransformerConfig
from transformer_lib.checkpoint import MODEL_FILE, load_model
from transformer_lib.data.batches import BucketBatches, make_dataset
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.fast import worker
from transformer_lib.files import STATE_FILE, CheckpointError, load_training_state
from transformer_lib.training import loop, trainer
from transformer_lib.training.device import seed_everything
from transformer_lib.training.loop import evaluate
from transformer_lib.training.recipe import SCHEDULES, Recipe
from transformer_lib.training.trainer import fit

PAD = 1
RECIPE = Recipe(epochs=4, batch_size=3, learning_rate=2e-3, warmup_steps=3, schedule="inverse_sqrt")


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"init_bias_from_unigrams": True},
            "init_bias_from_unigrams is True, but this trains a Transformer and a Pair",
        ),
    ],
)
def test_what_this_model_or_this_data_cannot_do_is_refused(dataset, tiny_config, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, **change))
    assert not [*tmp_path.glob("*.*")]


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


def test_an_epoch_takes_the_seconds_from_its_start_to_the_end_of_its_validation(dataset, tiny_config, monkeypatch):
    now = [100.0]
    train_epoch, evaluate = loop.train_epoch, loop.evaluate

    def takes(seconds, function):
        def timed(*arguments):
            now[0] += seconds
            return function(*arguments)

        return timed

    monkeypatch.setattr(loop, "train_epoch", takes(60, train_epoch))
    monkeypatch.setattr(loop, "evaluate", takes(2, evaluate))
    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    _, history = run(dataset, tiny_config)
    assert history.seconds == [62.0] * 4


def test_the_best_model_is_not_the_last_one_if_that_is_worse(dataset, tiny_config, tmp_path, monkeypatch):
    losses = iter([5.0, 3.0, 1.0, 2.0, 4.0])  # the first before any training
    monkeypatch.setattr(loop, "evaluate", lambda *arguments: next(losses))
    model, history = run(dataset, tiny_config, tmp_path)
    monkeypatch.undo()
    assert history.best_epoch == 2
    two_epochs, _ = run(dataset, tiny_config, recipe=dataclasses.replace(RECIPE, epochs=2))
    assert same_weights(model, two_epochs)
    assert same_weights(load_model(tmp_path).model, two_epochs)


def test_an_interrupted_model_has_the_best_weights_so_far(dataset, tiny_config, tmp_path, monkeypatch):
    real, calls = loop.evaluate, []

    def interrupted(*arguments, **options):
        calls.append(real(*arguments, **options))
        if len(calls) == 4:  # in the third epoch: the weights have moved on
            raise KeyboardInterrupt
        return calls[-1]

    monkeypatch.setattr(loop, "evaluate", interrupted)
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
    name, in_third_epoch = {"epoch": ("train_epoch", 3), "evaluation": ("evaluate", 4)}[stop_in]
    real, calls = getattr(loop, name), []

    def interrupted(*arguments, **options):
        calls.append(1)
        result = real(*arguments, **options)
        if len(calls) == in_third_epoch:  # it is evaluated once before the first
            raise KeyboardInterrupt  # after the third epoch's work, before any of it is written down
        return result

    monkeypatch.setattr(loop, name, interrupted)
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

    monkeypatch.setattr(loop, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, tiny_config, tmp_path)
    monkeypatch.undo()
    assert {path.name for path in tmp_path.iterdir()} == {MODEL_FILE, STATE_FILE}
    load_model(tmp_path)
    assert same_weights(run(dataset, tiny_config, tmp_path, resume=True)[0], run(dataset, tiny_config)[0])


def test_a_training_that_is_there_is_never_overwritten(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match=r"output is .*, a file"):
        run(dataset, tiny_config, tmp_path / MODEL_FILE)
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


def test_resuming_with_other_sentences_is_refused(pairs, dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, epochs=1))
    fewer = make_dataset(pairs[:-1], *dataset.tokenizers.values())  # of the same vocabulary
    for train_set, val_set, which in ((fewer, dataset, "training"), (dataset, fewer, "validation")):
        with pytest.raises(ValueError, match=rf"was trained with another data set \(SHA-256\): {which} was"):
            fit(Transformer(tiny_config), train_set, val_set, RECIPE, tmp_path, resume=True, log=silent)


def test_resuming_with_another_models_weights_as_the_best_is_refused(dataset, tiny_config, tmp_path):
    one_epoch = dataclasses.replace(RECIPE, epochs=1)
    run(dataset, tiny_config, tmp_path / "run", one_epoch)
    run(dataset, dataclasses.replace(tiny_config, d_ff=32), tmp_path / "other", one_epoch)
    (tmp_path / "other" / MODEL_FILE).replace(tmp_path / "run" / MODEL_FILE)
    with pytest.raises(CheckpointError, match="holds another model's weights"):
        run(dataset, tiny_config, tmp_path / "run", resume=True)


def test_two_trainings_never_write_into_one_folder(dataset, tiny_config, tmp_path):
    def a_second_one(history):
        for resume in (False, True):
            with pytest.raises(FileExistsError, match="is in use by another training: wait until"):
                run(dataset, tiny_config, tmp_path, resume=resume)

    _, history = run(dataset, tiny_config, tmp_path, on_epoch=a_second_one)
    assert len(history.val_loss) == RECIPE.epochs
    run(dataset, tiny_config, tmp_path, resume=True)  # the first one has ended


def test_a_loss_that_is_nan_stops_training_and_the_best_model_stays(dataset, tiny_config, tmp_path):
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
    with pytest.raises(ValueError, match=r"tgt_tokenizer has a vocabulary of \d+ types, but tgt_vocab_size is"):
        run(dataset, config, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_vocabulary_of_the_same_size_cannot_be_resumed_with(dataset, tiny_config, tmp_path):
    run(dataset, tiny_config, tmp_path)
    words = dataset.tokenizers["src"].vocab.itos
    words[5], words[6] = words[6], words[5]
    with pytest.raises(ValueError, match=r"another vocabulary .*: src was") as error:
        run(dataset, tiny_config, tmp_path, resume=True)
    assert len(str(error.value)) < 250


def test_on_epoch_sees_the_history_grow(dataset, tiny_config):
    lengths = []
    run(dataset, tiny_config, on_epoch=lambda history: lengths.append(len(history.val_loss)))
    assert lengths == [1, 2, 3, 4]


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
    real, calls = loop.train_epoch, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(loop, "train_epoch", interrupted)
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
    monkeypatch.setattr(worker, "half_precision", lambda device: torch.float16)
    model, history = run(subword_dataset, config, recipe=recipe)
    assert history.train_loss == pytest.approx(expected.train_loss, rel=0.02)
    assert history.train_loss != expected.train_loss
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_in_float16_the_scale_of_the_gradients_goes_on_from_epoch_to_epoch_and_when_resumed(
    dataset, tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker, "half_precision", lambda device: torch.float16)
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


ITS_OWN = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch.compile's


@ITS_OWN
def test_a_compiled_model_learns_the_same_and_only_in_training(subword_dataset, subword_config, monkeypatch):
    """Without a compiler for kernels, which not every machine has: PyTorch then runs what it has recorded."""
    compiled, real = [], torch.nn.Module.compile

    def compile_without_kernels(module, **arguments):
        compiled.append(module)
        real(module, backend="aot_eager", **arguments)

    monkeypatch.setattr(torch.nn.Module, "compile", compile_without_kernels)
    config = dataclasses.replace(subword_config, dropout=0.0)
    recipe = dataclasses.replace(RECIPE, epochs=2, precision="bfloat16")
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


@dataclasses.dataclass(frozen=True)
class OwnConfig(TransformerConfig):
    scale: "float | None" = None
    sizes: tuple[int, ...] = (3, 5)


class OwnModel(Transformer):
    config_class = OwnConfig


class Mode(str, enum.Enum):
    FAST = "fast"


@pytest.mark.parametrize("scale", [np.float64(0.5), math.nan, Mode.FAST])
def test_whatever_a_configuration_of_ones_own_holds_a_training_resumes(dataset, tiny_config, tmp_path, scale):
    config = OwnConfig(**dataclasses.asdict(tiny_config), scale=scale)
    fit(OwnModel(config), dataset, dataset, RECIPE, tmp_path, log=silent)
    longer = dataclasses.replace(RECIPE, epochs=5)
    history = fit(OwnModel(config), dataset, dataset, longer, tmp_path, resume=True, log=silent)
    assert len(history.val_loss) == 5
    with pytest.raises(ValueError, match=r"another configuration: scale was .*, now it is 2"):
        other = OwnModel(dataclasses.replace(config, scale=2))
        fit(other, dataset, dataset, longer, tmp_path, resume=True, log=silent)


@pytest.mark.parametrize("kind", [np.float64, np.float32, torch.tensor])
def test_a_training_resumes_although_on_epoch_put_another_kind_of_number_into_the_history(
    dataset, tiny_config, tmp_path, kind
):
    def smooth(history):
        history.val_loss[-1] = kind(float(sum(history.val_loss)) / len(history.val_loss))

    run(dataset, tiny_config, tmp_path, on_epoch=smooth)
    _, history = run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, epochs=5), resume=True)
    assert len(history.val_loss) == 5


class ExtraState(Transformer):
    def get_extra_state(self):
        return {"a dictionary": "is no tensor"}

    def set_extra_state(self, state):
        pass


def test_a_model_that_cannot_be_saved_leaves_nothing_behind_whatever_the_error(dataset, tiny_config, tmp_path):
    with pytest.raises(Exception, match="dict"):
        fit(ExtraState(tiny_config), dataset, dataset, RECIPE, tmp_path / "new", log=silent)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("schedule", ["constant", "exponential"])
def test_data_without_a_batch_are_refused_before_anything_is_written(dataset, tiny_config, tmp_path, schedule):
    recipe = dataclasses.replace(RECIPE, schedule=schedule)
    none = torch.utils.data.DataLoader(dataset, batch_size=100, drop_last=True, collate_fn=dataset.collate)
    with pytest.raises(ValueError, match="train_set has no batches"):
        fit(Transformer(tiny_config), none, dataset, recipe, tmp_path / "new", log=silent)
    with pytest.raises(ValueError, match="batches hold no token to predict"):
        fit(Transformer(tiny_config), dataset, none, recipe, tmp_path / "new", log=silent)
    assert not (tmp_path / "new").exists()


def test_resuming_with_another_recipe_says_so_also_where_that_needs_more_than_the_folder_has(
    dataset, tiny_config, tmp_path
):
    run(dataset, tiny_config, tmp_path)
    with pytest.raises(ValueError, match=r"another recipe: ema_decay was 0.0, now it is 0.9"):
        run(dataset, tiny_config, tmp_path, dataclasses.replace(RECIPE, ema_decay=0.9), resume=True)


def test_no_epoch_of_a_seed_repeats_one_of_another_seed(dataset, tiny_config, monkeypatch):
    """Else, runs with seeds 1, 2 and 3 would share most of their random numbers, and vary less than runs do."""
    drawn = []

    def spy(model, batches, *arguments):
        drawn.append((torch.rand(1).item(), *(tuple(batch.src.flatten().tolist()) for batch in batches)))
        return loop.TrainedEpoch(1.0, 0)

    monkeypatch.setattr(loop, "train_epoch", spy)
    for seed in (1, 2, 3):
        loader = DataLoader(dataset, 1, shuffle=True, collate_fn=dataset.collate)
        recipe = dataclasses.replace(RECIPE, epochs=3, seed=seed)
        fit(Transformer(tiny_config), loader, dataset, recipe, log=silent)
    dropout, *order = zip(*drawn, strict=True)
    assert len({*dropout}) == len({*zip(*order, strict=True)}) == 9


def loaders(dataset):
    """Loaders of batches, and the name of what nobody brings back to the order it had, if there is one."""
    collate = {"collate_fn": dataset.collate}
    shuffled = RandomSampler(dataset, generator=torch.Generator())
    yield DataLoader(dataset, 4, shuffle=True, **collate), None
    yield DataLoader(dataset, 4, sampler=shuffled, **collate), None
    yield DataLoader(dataset, batch_sampler=BatchSampler(range(8), 4, False), **collate), None
    yield DataLoader(dataset, batch_sampler=BatchSampler(shuffled, 4, False), **collate), "RandomSampler"
    yield BucketBatches(dataset, 4, train=True), None
    yield [*BucketBatches(dataset, 4)], None
    yield dataset, None


def test_a_loader_whose_order_a_resumed_run_may_not_see_again_is_named_once(dataset, tiny_config, tmp_path):
    for number, (loader, part) in enumerate(loaders(dataset)):
        lines = []
        recipe = dataclasses.replace(RECIPE, epochs=2, warmup_steps=0)
        fit(Transformer(tiny_config), loader, dataset, recipe, tmp_path / str(number), log=lines.append)
        said = [line for line in lines if "resumed" in line]
        assert len(said) == (part is not None) and all(f"train_set's {part}" in line for line in said)


def test_a_warm_up_that_outlasts_the_run_is_cut_so_that_the_learning_rate_gets_to_its_peak(
    dataset, tiny_config, tmp_path
):
    lines = []
    recipe = dataclasses.replace(RECIPE, warmup_steps=1000, schedule="constant")
    fit(Transformer(tiny_config), dataset, dataset, recipe, tmp_path, log=lines.append)
    (line,) = [line for line in lines if "warmup_steps is 1000" in line]
    assert "12 steps" in line  # four epochs of three batches
    (group, _) = load_training_state(tmp_path / STATE_FILE)["optimizer"]["param_groups"]
    assert group["lr"] == recipe.learning_rate


def test_what_cannot_be_trained_is_refused_before_anything_is_written(dataset, pairs, tiny_config, tmp_path):
    frozen, short = Transformer(tiny_config).requires_grad_(False), dataclasses.replace(tiny_config, max_len=10)
    for model, train_set, error, message in (
        (frozen, dataset, ValueError, "model has no parameter with requires_grad=True"),
        (Transformer(short), dataset, ValueError, r"train_set: pair 5 takes 12 positions, .* max_len is 10"),
        (Transformer(tiny_config), iter([*BucketBatches(dataset, 4)]), TypeError, "train_set is a list_iterator with"),
    ):
        with pytest.raises(error, match=message):
            fit(model, train_set, dataset, RECIPE, tmp_path / "new", log=silent)
        assert not (tmp_path / "new").exists()
    exact = make_dataset(pairs[:4], *dataset.tokenizers.values(), max_len=10)
    fit(Transformer(short), exact, exact, dataclasses.replace(RECIPE, epochs=1), log=silent)


def test_an_error_in_the_first_epoch_leaves_no_training_behind(dataset, tiny_config, tmp_path):
    batches = [*BucketBatches(dataset, 4), {"src": torch.tensor([[2, 999, 3]]), "tgt": torch.tensor([[2, 5, 3]])}]
    with pytest.raises(ValueError, match="src holds the id 999"):
        fit(Transformer(tiny_config), batches, dataset, RECIPE, tmp_path / "new", log=silent)
    assert not (tmp_path / "new").exists()
