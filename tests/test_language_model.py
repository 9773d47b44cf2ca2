import copy
import dataclasses
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from weights import shake

from transformer_lib import LanguageModelConfig, TransformerLanguageModel, causal_mask, to_torch
from transformer_lib.language_model.stream import StreamTokenizer, TextDataset
from transformer_lib.training.recipe import Recipe
from transformer_lib.training.trainer import fit

CONFIG = LanguageModelConfig(vocab_size=17, d_model=16, num_heads=2, d_ff=24, max_len=9)


def model_of(config=CONFIG, seed=0):
    torch.manual_seed(seed)
    return TransformerLanguageModel(config)


@pytest.fixture
def ids():
    return torch.randint(2, 17, (3, 8), generator=torch.Generator().manual_seed(1))


def test_no_position_sees_what_comes_later(ids):
    model = model_of().eval()
    logits = model(ids)
    assert logits.shape == (3, 8, 17)
    for position in range(1, 8):
        changed = ids.clone()
        changed[:, position:] = (changed[:, position:] + 1) % 17
        torch.testing.assert_close(model(changed)[:, :position], logits[:, :position])
        assert not torch.allclose(model(changed)[:, position:], logits[:, position:])


def test_its_encoder_is_the_tutorials():
    """PyTorch's own, under a causal mask, with a norm after the stack or without."""
    for final_norm in (False, True):
        model = model_of(dataclasses.replace(CONFIG, final_norm=final_norm)).eval()
        shake(model)
        theirs, x = to_torch(model.encoder), torch.randn(3, 8, 16)
        assert isinstance(theirs, nn.TransformerEncoder) and (theirs.norm is not None) == final_norm
        mask = nn.Transformer.generate_square_subsequent_mask(8)
        torch.testing.assert_close(model.encoder(x, causal_mask(8))[0], theirs(x, mask), atol=1e-5, rtol=0)


def test_it_is_the_tutorials_model():
    """The logits written out with PyTorch's functions: embeddings times the root of d_model, plus sines and cosines."""
    model = model_of().eval()
    ids = torch.tensor([[3, 5, 4]])
    position = torch.arange(3.0)[:, None]
    divisor = torch.exp(torch.arange(0, 16, 2) * (-math.log(10_000.0) / 16))
    positions = torch.zeros(3, 16)
    positions[:, 0::2], positions[:, 1::2] = torch.sin(position * divisor), torch.cos(position * divisor)
    x = model.embedding.tokens.table.weight[ids] * math.sqrt(16) + positions
    x = to_torch(model.encoder)(x, mask=nn.Transformer.generate_square_subsequent_mask(3))
    expected = x @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model(ids), expected)
    weights = torch.cat([model.embedding.tokens.table.weight.flatten(), model.output.weight.flatten()])
    assert weights.abs().max() <= 0.1 and weights.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.1)
    assert model.output.bias.eq(0).all()


def test_the_tutorials_sizes():
    """28,782 word types, 200 wide, two layers: counted by hand."""
    with torch.device("meta"):
        model = TransformerLanguageModel(LanguageModelConfig(28_782))
    layer = 4 * (200 * 200 + 200) + (200 * 200 + 200) * 2 + 2 * 2 * 200
    assert model.num_parameters() == 28_782 * 200 + 2 * layer + 28_782 * 200 + 28_782


def test_a_chunk_that_is_too_long_and_an_id_outside_the_table_are_refused(ids):
    model = model_of()
    with pytest.raises(ValueError, match="length is 10, expected at most max_len=9 positions"):
        model(torch.zeros(1, 10, dtype=torch.long))
    with pytest.raises(ValueError, match="ids holds the id 17, expected 0 to 16"):
        model(torch.tensor([[3, 17]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 15}, "d_model=15 is not divisible by num_heads=2"),
        ({"vocab_size": 0}, "vocab_size is 0, expected a positive whole number"),
        ({"dropout": 1.0}, r"dropout is 1\.0, expected a probability"),
    ],
)
def test_an_impossible_configuration_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_an_untrained_model_can_begin_as_a_table_of_frequencies(ids):
    model = model_of()
    counts = torch.arange(17)
    model.init_bias_from_unigrams(counts)
    expected = (counts + 1) / (17 * 16 / 2 + 17)
    torch.testing.assert_close(model(ids).softmax(-1), expected.expand(3, 8, 17))


def test_training_with_sgd_follows_the_clipped_gradient_and_decays():
    """Two epochs of one chunk each, written out."""
    tokenizer = StreamTokenizer()
    stream = TextDataset(["a b c d e f g h i j k"], tokenizer)  # 12 tokens with <eos>: two rows of six
    tokenizer.build_vocab([stream.tokens])
    model = model_of(dataclasses.replace(CONFIG, vocab_size=len(tokenizer.vocab), dropout=0.0))
    expected = copy.deepcopy(model)
    recipe = Recipe(
        epochs=2,
        batch_size=2,
        bptt=9,
        optimizer="sgd",
        learning_rate=2.0,
        schedule="exponential",
        lr_decay=0.5,
        max_grad_norm=0.1,
    )
    history = fit(model, stream, stream, recipe, log=lambda line: None)
    assert history.best_epoch == 2
    rows = stream.ids().view(2, 6)
    for learning_rate in (2.0, 1.0):
        expected.zero_grad()
        F.cross_entropy(expected(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).backward()
        norm = torch.cat([p.grad.flatten() for p in expected.parameters()]).norm()
        assert norm > 0.1
        with torch.no_grad():
            for p in expected.parameters():
                p -= learning_rate * p.grad * 0.1 / norm
    for name, weight in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, atol=1e-5, rtol=1e-4)


class Counting(TransformerLanguageModel):
    """Expects, after token t, token t + 1 most and t + 2 next; nothing else."""

    def forward(self, ids):
        assert ids.shape[1] <= self.config.max_len
        logits = torch.full((*ids.shape, self.config.vocab_size), -30.0)
        logits.scatter_(2, ((ids + 1) % 17)[..., None], math.log(3.0))
        return logits.scatter_(2, ((ids + 2) % 17)[..., None], 0.0)


def test_generating_draws_from_what_the_model_expects():
    model = Counting(CONFIG)
    prompt = torch.zeros(4000, 1, dtype=torch.long)

    def share_of_ones(**options):
        drawn = model.generate(prompt, 1, generator=torch.Generator().manual_seed(0), **options)[:, 1]
        assert set(drawn.tolist()) <= {1, 2}
        return drawn.eq(1).float().mean().item()

    assert share_of_ones() == pytest.approx(3 / 4, abs=0.03)
    assert share_of_ones(temperature=0.5) == pytest.approx(9 / 10, abs=0.03)  # 3² to 1
    assert share_of_ones(temperature=2.0) == pytest.approx(math.sqrt(3) / (math.sqrt(3) + 1), abs=0.03)
    assert share_of_ones(top_k=1) == share_of_ones(temperature=0) == 1
    assert share_of_ones(top_k=2) == pytest.approx(3 / 4, abs=0.03)
    assert share_of_ones(excluded=(1,)) == 0


@pytest.mark.parametrize("temperature", [1e-30, 1e-45, 1e-320])
def test_a_temperature_almost_zero_takes_the_likeliest_as_zero_does(temperature, ids):
    model = model_of()
    with torch.no_grad():
        model.output.weight.mul_(1000)
    assert model.generate(ids, 5, temperature).equal(model.generate(ids, 5, temperature=0))


def test_an_id_that_is_excluded_twice_counts_once():
    drawn = Counting(CONFIG).generate(torch.zeros(4000, 1, dtype=torch.long), 1, excluded=(1,) * 17)
    assert set(drawn[:, 1].tolist()) == {2}


def test_generating_goes_on_from_the_prompt_and_past_the_positions():
    model = Counting(CONFIG).train()
    prompt = torch.tensor([[3, 4], [7, 8]])
    text = model.generate(prompt, 12, temperature=0)
    assert text.tolist() == [[i % 17 for i in range(3, 17)], [i % 17 for i in range(7, 21)]]
    assert model.training  # the mode is left as it was
    assert model.generate(prompt, 0).equal(prompt)


def test_generating_is_repeatable_and_has_dropout_off(ids):
    model = model_of(dataclasses.replace(CONFIG, dropout=0.9)).train()
    texts = [model.generate(ids, 20, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert texts[0].equal(texts[1])
    torch.manual_seed(5)
    assert not model.generate(ids, 20, generator=torch.Generator().manual_seed(6)).equal(texts[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.5}, "temperature is -0.5, expected 0"),
        ({"temperature": math.nan}, "temperature is nan, expected 0"),
        ({"temperature": math.inf}, "temperature is inf, expected 0"),
        ({"top_k": -1}, "top_k is -1, expected 1"),
        ({"top_k": 0}, "top_k is 0, expected 1"),
        ({"prompt": torch.zeros(1, 0, dtype=torch.long)}, r"ids has shape \[1, 0\]"),
        ({"prompt": torch.tensor([[99]])}, "ids holds the id 99, expected 0 to 16"),
    ],
)
def test_impossible_requests_are_refused(options, message, ids):
    with pytest.raises(ValueError, match=message):
        model_of().generate(**{"prompt": ids, "length": 2, **options})


def test_a_model_that_predicts_nan_writes_nothing(ids):
    model = model_of()
    with torch.no_grad():
        model.output.bias.fill_(torch.nan)
    for temperature in (0, 1):
        with pytest.raises(FloatingPointError, match="predicts nan"):
            model.generate(ids, 2, temperature)


def test_a_model_can_be_copied_and_pickled(ids):
    model = model_of().eval()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert again.config == model.config
        assert again(ids).equal(model(ids))


def test_the_targets_are_the_tokens_one_step_later(ids):
    model = model_of().eval()
    logits, targets = model.logits_and_targets(text=ids[:, :-1], target=ids[:, 1:])
    assert logits.equal(model(ids[:, :-1])) and targets.equal(ids[:, 1:])
