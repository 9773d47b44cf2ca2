"""What readers make themselves, models, tokenisers and batches, goes through the same functions as what is here."""

import copy
import dataclasses
import multiprocessing
import random
import sys
from typing import NamedTuple

import own_models
import pytest
import torch
from own_models import LEARNT, MODELS, RECIPE, TorchTransformer, make_data, make_model, train
from torch import Tensor, nn
from torch.utils.data import DataLoader

from transformer_lib import Transformer, Translator, WordTokenizer
from transformer_lib.checkpoint import MODEL_FILE, load_model, save_model
from transformer_lib.data.batches import build_vocabularies, make_dataset
from transformer_lib.files import STATE_FILE, CheckpointError, load_training_state
from transformer_lib.inference.search import beam_search, greedy_search
from transformer_lib.training import run as trainer
from transformer_lib.training.loop import evaluate
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

# PyTorch's encoder makes nested tensors of padded batches
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
SHORT = Recipe(epochs=3, batch_size=2, learning_rate=2e-3)


def silent(line):
    pass


def same_weights(a, b):
    return a.state_dict().keys() == b.state_dict().keys() and all(
        weights.equal(b.state_dict()[name]) for name, weights in a.state_dict().items()
    )


@pytest.fixture
def interrupted(monkeypatch):
    """Call a function, and interrupt it in the second epoch, when that has been trained and not yet written down."""

    def call(function, *arguments, **options):
        real, epochs = trainer.train_steps, []

        def stopped(*arguments, **options):
            yield from real(*arguments, **options)
            epochs.append(1)
            if len(epochs) == 2:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(trainer, "train_steps", stopped)
            function(*arguments, **options)
        torch.manual_seed(99)  # whatever happens to the random numbers in between does not matter

    return call


@pytest.fixture(scope="module", params=MODELS, ids=lambda model_class: model_class.__name__)
def own(request, tmp_path_factory):
    """A model of a reader's, trained by nobody else's function: its class, itself, and its folder."""
    folder = tmp_path_factory.mktemp("own") / "run"
    return request.param, train(request.param, folder), folder


@pytest.mark.parametrize("model_class", MODELS)
def test_an_own_model_that_is_interrupted_and_resumed_ends_as_if_nothing_had_happened(
    model_class, tmp_path, interrupted
):
    straight, output = train(model_class, tmp_path / "straight", epochs=3), tmp_path / "broken"
    interrupted(train, model_class, output, epochs=3)
    assert len(load_training_state(output / STATE_FILE)["history"]["val_loss"]) == 1
    assert same_weights(train(model_class, output, resume=True, epochs=3), straight)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_an_own_model_whose_training_is_killed_ends_as_if_nothing_had_happened(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["own_models"])
    in_second_epoch, never = len(LEARNT) + 1, 10**9
    for steps, exit_code in ((in_second_epoch, -9), (never, 0)):
        process = context.Process(target=own_models.train_until_killed, args=(TorchTransformer, tmp_path, steps))
        process.start()
        process.join()
        assert process.exitcode == exit_code
        epochs = len(load_training_state(tmp_path / STATE_FILE)["history"]["val_loss"])
        assert epochs == (1 if exit_code else RECIPE.epochs)
    straight = train(TorchTransformer, tmp_path / "straight")
    assert same_weights(load_model(tmp_path, TorchTransformer).model, straight)


@torch.no_grad()
def test_an_own_model_comes_back_as_exactly_its_class_and_computes_the_same(own, tmp_path):
    model_class, model, folder = own
    save_model(tmp_path / "copy", model, make_data().tokenizers)
    batch = make_data().collate(make_data().examples)
    expected = model.eval()(*batch)
    for path in (folder, tmp_path / "copy"):
        again = load_model(path, model_class).model
        assert type(again) is model_class
        assert same_weights(again, model)
        assert again(*batch).equal(expected)


@pytest.mark.filterwarnings("ignore:NoPositions, RelativeAttention:UserWarning")  # which say nothing of a cache
def test_an_own_model_translates_what_it_has_learnt(own):
    model_class, _, folder = own
    translator = Translator.load(folder, model_class)
    sentences = [pair.src for pair in LEARNT]
    for beam_size in (1, 3):
        both = (translator.translate(sentences, beam_size, use_cache=use_cache) for use_cache in (True, False))
        cached, computed = both
        assert [translation.text for translation in cached] == [pair.tgt.lower() for pair in LEARNT]
        for with_cache, without in zip(cached, computed, strict=True):
            assert with_cache.tokens == without.tokens
            assert with_cache.log_prob == pytest.approx(without.log_prob, abs=1e-5)


def test_without_its_class_an_own_model_is_refused_and_the_class_is_named(own):
    model_class, _, folder = own
    for load in (load_model, Translator.load):
        with pytest.raises(CheckpointError, match=rf"it needs {model_class.__name__}, .*load_model\(path, "):
            load(folder)


def test_a_weight_that_is_a_single_number_is_trained_too(own):
    model_class, model, _ = own
    start = dict(make_model(model_class, make_data()).named_parameters())
    assert [name for name, weights in model.named_parameters() if weights.equal(start[name])] == []


class LouderOnTheWay(Transformer):
    def forward(self, src, tgt):
        return 3 * super().forward(src, tgt)


class LouderInBoth(LouderOnTheWay):
    def decode(self, tgt, memory, memory_mask):
        return 2 * super().decode(tgt, memory, memory_mask)


class OnlyForward(nn.Module):
    config_class = Transformer.config_class

    def __init__(self, config):
        super().__init__()
        self.config = config


@pytest.mark.parametrize("search", [greedy_search, beam_search])
def test_what_a_class_adds_in_forward_alone_is_never_left_out_of_a_translation(search):
    dataset = make_data()
    src = dataset.collate(dataset.examples).src
    with pytest.raises(TypeError, match=r"model is a LouderOnTheWay, which has a forward but no decode"):
        search(make_model(LouderOnTheWay, dataset).eval(), src, 2, 3)
    with pytest.raises(TypeError, match=r"model is a OnlyForward, which has .* no decode"):
        search(make_model(OnlyForward, dataset), src, 2, 3)
    assert len(search(make_model(LouderInBoth, dataset).eval(), src, 2, 3)) == len(LEARNT)


class WithStatistics(Transformer):
    """What it validates with is not all in its parameters."""

    def __init__(self, config):
        super().__init__(config)
        self.statistics = nn.BatchNorm1d(config.tgt_vocab_size)

    def decode(self, tgt, memory, memory_mask):
        return self.statistics(super().decode(tgt, memory, memory_mask).transpose(1, 2)).transpose(1, 2)


@pytest.mark.parametrize("changes", [{}, {"ema_decay": 0.5}, {"precision": "bfloat16"}], ids=str)
def test_statistics_that_a_model_gathers_while_it_trains_are_kept(tmp_path, changes):
    dataset = make_data()
    model = make_model(WithStatistics, dataset)
    fit(model, dataset, dataset, dataclasses.replace(SHORT, **changes), tmp_path, log=silent)
    for kept in (model, load_model(tmp_path, WithStatistics).model):
        assert kept.statistics.num_batches_tracked > 0
        assert not kept.statistics.running_mean.equal(torch.zeros(model.config.tgt_vocab_size))


class LetterTokenizer(WordTokenizer):
    def split(self, sentence):
        return list(sentence)


def test_an_own_tokenizer_class_is_restored_if_it_is_handed_over_and_named_if_not(tmp_path):
    dataset = make_dataset(LEARNT, LetterTokenizer("de"), LetterTokenizer("en"))
    build_vocabularies(dataset, min_freq=1)
    save_model(tmp_path / "model", make_model(Transformer, dataset), dataset.tokenizers)
    with pytest.raises(CheckpointError, match="it needs LetterTokenizer"):
        load_model(tmp_path / "model")
    again = load_model(tmp_path / "model", LetterTokenizer).tokenizers
    assert type(again["src"]) is LetterTokenizer
    assert again["src"].encode("Ein Hund.") == dataset.tokenizers["src"].encode("Ein Hund.")


def test_a_model_that_was_saved_without_tokenizers_says_so_when_it_is_to_translate(tmp_path):
    save_model(tmp_path / "model", make_model(Transformer, make_data()), {})
    assert load_model(tmp_path / "model").tokenizers == {}
    with pytest.raises(CheckpointError, match="expected a translator's, src and tgt"):
        Translator.load(tmp_path / "model")


class Ids(NamedTuple):
    tgt: Tensor
    lengths: list[int]
    src: Tensor


@dataclasses.dataclass
class Sides:
    tgt: Tensor
    src: Tensor


def to_ids(batch):
    return Ids(batch.tgt, [len(batch.src)], batch.src)


KINDS = {
    "a dictionary": lambda batch: batch._asdict(),
    "a tuple": tuple,
    "a named tuple in another order": to_ids,
    "a dataclass": lambda batch: Sides(batch.tgt, batch.src),
}


def fit_from_loader(output, to_kind=tuple, resume=False, **options):
    """Train from batches that somebody else's code makes, shuffled anew in every epoch."""
    dataset = make_data()
    model = make_model(Transformer, dataset)
    train_set, val_set = (
        DataLoader(dataset, 2, collate_fn=lambda examples: to_kind(dataset.collate(examples)), **more)
        for more in (options or {"shuffle": True}, {})
    )
    fit(model, train_set, val_set, SHORT, output, resume, tokenizers=dataset.tokenizers, log=silent)
    return model


def test_a_data_loader_of_any_kind_of_batches_trains_and_resumes(tmp_path, interrupted):
    straight = fit_from_loader(tmp_path / "straight", KINDS["a dictionary"])
    assert same_weights(load_model(tmp_path / "straight").model, straight)
    for kind, to_kind in KINDS.items():  # of the same sentences
        interrupted(fit_from_loader, tmp_path / kind, to_kind)
        assert same_weights(fit_from_loader(tmp_path / kind, to_kind, resume=True), straight), kind


def with_lost_words(batch):
    """Blank out some words, with random numbers of torch and of Python, a little at a time."""
    lost = torch.zeros(batch.src.shape, dtype=torch.bool)
    for _ in range(200):
        lost |= torch.rand(batch.src.shape) < 0.001 * random.random()
    return batch.src.masked_fill(lost & (batch.src > 3), 0), batch.tgt


def test_a_collate_function_that_draws_random_numbers_can_be_repeated_and_resumed(tmp_path, interrupted):
    straight = fit_from_loader(tmp_path / "straight", with_lost_words)
    assert same_weights(fit_from_loader(tmp_path / "again", with_lost_words), straight)
    interrupted(fit_from_loader, tmp_path / "broken", with_lost_words)
    random.seed(99)
    assert same_weights(fit_from_loader(tmp_path / "broken", with_lost_words, resume=True), straight)


def test_a_batch_that_lacks_what_the_model_asks_for_says_what_there_is(tmp_path):
    with pytest.raises(KeyError, match="src"):
        fit_from_loader(tmp_path, lambda batch: {"source": batch.src, "tgt": batch.tgt})


def test_a_fine_tuned_model_goes_on_searching_as_its_notes_say(tmp_path, trained, dataset):
    tokenizers = {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer}
    search = {"beam_size": 3, "length_penalty": 1.2}
    save_model(tmp_path / "model", trained.model, tokenizers, {"search": search, "corpus": "tiny"})
    saved = load_model(tmp_path / "model")
    fit(saved.model, dataset, dataset, SHORT, tmp_path / "run", notes=saved.notes, log=silent)
    again = Translator.load(tmp_path / "run")
    assert (again.beam_size, again.length_penalty) == (3, 1.2)
    assert load_model(tmp_path / "run").notes["recipe"]["epochs"] == SHORT.epochs  # of this training


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("ema_decay", [0.0, 0.5])
def test_fine_tuning_that_only_makes_it_worse_leaves_the_model_as_it_was(tmp_path, trained, dataset, kept, ema_decay):
    model, recipe = copy.deepcopy(trained.model), Recipe(epochs=2, batch_size=2, learning_rate=0.1, ema_decay=ema_decay)
    before = evaluate(model, dataset.batches_for(recipe, torch.device("cpu"), train=False))
    history = fit(model, dataset, dataset, recipe, tmp_path / "run" if kept else None, log=silent)
    assert history.first_val_loss == before < min(history.val_loss)
    assert history.best_epoch == 0
    assert same_weights(model, trained.model)
    if kept:
        assert same_weights(load_model(tmp_path / "run" / MODEL_FILE).model, trained.model)
