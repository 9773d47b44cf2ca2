"""What must hold on every kind of device; `test_devices.py` runs this file on the stand-in, as each of them.

`make bench-gpu` runs it on a GPU, where nobody counts waits and launches.
"""

import functools
import importlib
import inspect
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import PAIRS
from standin_device import KIND, OPS, SEEN, SYNCS
from transformer_exercises import check

from transformer_lib import LanguageModelConfig, Transformer, TransformerConfig, TransformerLanguageModel
from transformer_lib.checkpoint import load_model
from transformer_lib.data.batches import BucketBatches, build_vocabularies, make_dataset, tensors_of
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.tokenizers import WordTokenizer
from transformer_lib.inference.translator import Translator
from transformer_lib.language_model.generator import TextGenerator
from transformer_lib.language_model.stream import StreamTokenizer
from transformer_lib.training.device import pick_device, seed_everything
from transformer_lib.training.loop import evaluate, train_epoch
from transformer_lib.training.optimizer import MovingAverage, make_optimizer
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

SENTENCES = [pair.src for pair in load_corpus("sample")["val"][:16]]
ANSWERS = (Path(__file__).parent / "exercise_answers").glob("notebook_*.py")
NOTEBOOKS = sorted({path.stem[-2:] for path in ANSWERS} - {"17"})  # the clinic moves its patients itself


def make_data():
    dataset = make_dataset(PAIRS, WordTokenizer("de"), WordTokenizer("en"))
    build_vocabularies(dataset, min_freq=1)
    return dataset


def make_model(dataset, device, **changes):
    """The same weights on every device."""
    seed_everything(0)
    sizes = (len(tokenizer.vocab) for tokenizer in dataset.tokenizers.values())
    small = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2, "dropout": 0.0, "max_len": 64, **changes}
    return Transformer(TransformerConfig(*sizes, **small)).to(device)


def make_generator(device):
    tokenizer = StreamTokenizer("en")
    tokenizer.build_vocab([tokenizer.stream([pair.tgt for pair in PAIRS])], 1)
    seed_everything(0)
    config = LanguageModelConfig(len(tokenizer.vocab), d_model=16, num_heads=2, d_ff=32, max_len=9)
    return TextGenerator(TransformerLanguageModel(config).to(device), tokenizer)


def test_the_library_picks_it(monkeypatch):
    assert pick_device().type == SEEN.type
    if SEEN.type == "cuda":
        monkeypatch.setenv("WORLD_SIZE", "2")  # and no LOCAL_RANK, as some ways to start processes leave it
        assert pick_device() == SEEN


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_a_model_computes_what_it_computes_on_a_cpu(positions):
    dataset = make_data()
    (batch,) = BucketBatches(dataset, batch_size=8)
    model, here = (make_model(dataset, device, positions=positions).eval() for device in (SEEN, "cpu"))
    src, tgt = tensors_of(batch, ["src", "tgt"], SEEN)
    torch.testing.assert_close(model(src, tgt).cpu(), here(*batch), atol=1e-4, rtol=1e-4)
    assert evaluate(model, [batch]) == pytest.approx(evaluate(here, [batch]), rel=1e-5)
    for maps, expected in zip(model.attention_maps(src, tgt), here.attention_maps(*batch), strict=True):
        torch.testing.assert_close([weights.cpu() for weights in maps], expected)


@pytest.mark.parametrize("use_cache", [True, False])
def test_searches_find_what_they_find_on_a_cpu(use_cache):
    on_cpu, on_device = Translator.load(), Translator.load(device=SEEN)
    for beam_size in (1, 4):
        translations = on_device.translate(SENTENCES[:4], beam_size, use_cache=use_cache)
        assert [translation.text for translation in translations] == on_cpu(SENTENCES[:4], beam_size)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
def test_a_training_run_learns_what_it_learns_on_a_cpu(optimizer, tmp_path):
    dataset, losses = make_data(), []
    recipe = Recipe(epochs=2, batch_size=4, optimizer=optimizer, rdrop_weight=1.0, ema_decay=0.9, label_smoothing=0.1)
    for device in (SEEN, "cpu"):
        model = make_model(dataset, device)
        losses += [fit(model, dataset, dataset, recipe, tmp_path / str(device), log=lambda line: None).val_loss]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    for folder in (str(SEEN), "cpu"):  # each goes on with what the other has left, and anybody can load it
        assert load_model(tmp_path / folder).model.output.weight.device.type == "cpu"
    (tmp_path / "cpu").rename(tmp_path / "swapped")
    model, longer = make_model(dataset, SEEN), replace(recipe, epochs=3)
    assert len(fit(model, dataset, dataset, longer, tmp_path / "swapped", True, log=lambda line: None).val_loss) == 3
    assert model.output.weight.device.type == SEEN.type


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
@pytest.mark.skipif(KIND != "old", reason="computes in bfloat16, which does not overflow")
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # of a first step that was skipped
def test_a_first_step_that_overflows_is_skipped(optimizer):
    dataset = make_data()
    model = make_model(dataset, SEEN)
    hook = model.output.bias.register_hook(lambda gradient: hook.remove() or gradient * torch.inf)
    recipe = Recipe(epochs=1, batch_size=4, optimizer=optimizer, precision="bfloat16")
    fit(model, dataset, dataset, recipe, log=lambda line: None)
    assert all(weights.isfinite().all() for weights in model.parameters())


def test_a_language_model_writes_on():
    text = make_generator(SEEN)("A dog", 12, seed=1)
    assert text.startswith("A dog") or text.startswith("a dog")


def moved(answer):
    """Return an answer that is computed on the device."""
    if isinstance(answer, torch.Tensor):
        return answer.to(SEEN) if KIND != "mps" or answer.dtype != torch.float64 else answer
    if type(answer) in (list, tuple):
        return type(answer)(map(moved, answer))
    if inspect.isfunction(answer) and not inspect.isgeneratorfunction(answer):
        return functools.wraps(answer)(lambda *given, **named: moved(answer(*given, **named)))
    return answer


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_checks_take_answers_from_the_device(notebook):
    answers = importlib.import_module(f"exercise_answers.notebook_{notebook}")
    for name, rights in answers.RIGHT.items():
        for right in rights:
            assert check(name, *map(moved, right))
    for name, wrongs in answers.WRONG.items():
        for wrong, hint in wrongs:
            verdict = check(name, *map(moved, wrong if isinstance(wrong, tuple) else (wrong,)))
            assert not verdict and hint in verdict.message, verdict


def test_a_check_gives_random_numbers_back(monkeypatch):
    backend, given_back = getattr(torch, SEEN.type), []
    monkeypatch.setattr(backend, "set_rng_state", lambda *state: given_back.append(state))
    check("03.1", lambda *given: None)
    assert given_back


def test_where_fused_attention_is_wrong_the_translations_are_right(monkeypatch):
    here, translations = Translator.load()(SENTENCES), Translator.load(device=SEEN)
    assert translations(SENTENCES) == here
    if KIND == "mps":
        monkeypatch.setattr("transformer_lib.model.attention.use_fused_kernel", lambda q, dropout: True)
        assert translations(SENTENCES) != here  # or this test would show nothing


@pytest.mark.skipif(KIND == "mps", reason="has no cuDNN")
def test_attention_leaves_cudnns_kernel_alone_which_plans_for_each_new_shape(monkeypatch):
    may, attention = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*given, **named):
        may.append(torch.backends.cuda.cudnn_sdp_enabled())
        return attention(*given, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    Translator.load(device=SEEN)(SENTENCES[:1])
    assert may and not any(may)
    assert torch.backends.cuda.cudnn_sdp_enabled()  # elsewhere


# What makes the host wait. A wait costs some 20 µs and, worse, lets the GPU run out of work.


def count(action):
    SYNCS.clear(), OPS.clear()
    action()
    return sum(SYNCS.values()), sum(OPS.values())


def of_one_step(action):
    """Count the waits and launches of one more step."""
    few, many = count(lambda: action(4)), count(lambda: action(12))
    return [(more - less) / 8 for less, more in zip(few, many, strict=True)]


def of_a_training(**recipe):
    dataset, recipe = make_data(), Recipe(**recipe)
    model = make_model(dataset, SEEN)
    optimizer = make_optimizer(model, recipe)
    average = MovingAverage(model, recipe.ema_decay) if recipe.ema_decay else None
    batches = list(BucketBatches(dataset, batch_size=1, device=SEEN)) * 2
    options = {"recipe": Recipe(rdrop_weight=recipe.rdrop_weight), "average": average}
    train_epoch(model, batches[:1], optimizer, **options)  # makes the optimiser's state
    return of_one_step(lambda steps: train_epoch(model, batches[:steps], optimizer, **options))


def of_a_part(name):
    """Count for an update of the moving average, or Muon's."""
    model = make_model(make_data(), SEEN)
    if name == "average":
        average = MovingAverage(model, 0.99)
        return of_one_step(lambda steps: [average.update_parameters(model) for _ in range(steps)])
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    muon, _ = make_optimizer(model, Recipe(optimizer="muon")).optimizers
    return of_one_step(lambda steps: [muon.step() for _ in range(steps)])


def of_a_search(beam_size):
    translator, translations = Translator.load(device=SEEN), []
    translator(SENTENCES[:1])
    counts = count(lambda: translations.extend(translator.translate(SENTENCES, beam_size)))
    longest = max(len(translation.tgt_tokens) for translation in translations)
    return [number / longest for number in counts]


def of_a_text():
    generator = make_generator(SEEN)
    return of_one_step(lambda steps: generator("A dog", steps, seed=1))


STEPS = {  # what a step is of: how to count, and at most how many waits and launches it may have
    "training, AdamW": (lambda: of_a_training(), 0, 600),
    "training, Muon, R-Drop, average": (
        lambda: of_a_training(optimizer="muon", rdrop_weight=1, ema_decay=0.9),
        0,
        800,
    ),
    "moving average": (lambda: of_a_part("average"), 0, 2),
    "Muon": (lambda: of_a_part("muon"), 0, 100),
    "greedy search": (lambda: of_a_search(1), 5, 160),
    "beam search": (lambda: of_a_search(4), 9, 190),
    "generating": (of_a_text, 2, 75),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_makes_the_host_wait_no_more_than_it_must(name, request):
    measure, most_waits, most_launches = STEPS[name]
    waits, launches = measure()
    request.node.user_properties.append((name, f"{waits:.1f}, {launches:,.0f}"))
    assert waits <= most_waits, SYNCS
    assert launches <= most_launches or SEEN.type == "mps", OPS  # where Adam is not fused


def test_the_stand_in_refuses_what_a_gpu_refuses():
    """Mistakes with devices that nobody notices on a CPU."""
    table, ids = torch.zeros(4, 3, device=SEEN), torch.tensor([0, 2])
    mistakes = {
        "a sum of both": lambda: table + torch.ones(4, 3),
        "a mask": lambda: table.masked_fill(torch.ones(4, 3, dtype=torch.bool), 0.0),
        "rows to select": lambda: table.index_select(0, ids),
        "ids to look up": lambda: torch.nn.functional.embedding(ids, table),
        "one behind the other": lambda: torch.cat([table, torch.ones(1, 3)]),
        "a loss": lambda: torch.nn.functional.cross_entropy(table, torch.zeros(4, dtype=torch.long)),
        "a generator": lambda: torch.rand(3, device=SEEN, generator=torch.Generator()),
        "an array": lambda: table.numpy(),
    }
    for name, mistake in mistakes.items():
        with pytest.raises((RuntimeError, TypeError), match="device"):
            print(name, mistake())
    assert table.index_select(0, ids.to(SEEN)).device.type == SEEN.type
