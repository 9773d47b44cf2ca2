import dataclasses

import pytest
import torch

from transformer_lib import TextGenerator, TransformerLanguageModel, Translator, load_text, train_language_model
from transformer_lib.checkpoint import load_model, save_model
from transformer_lib.data.batches import make_dataset
from transformer_lib.data.tokenizers import UNK, WordTokenizer
from transformer_lib.files import CheckpointError
from transformer_lib.language_model import train
from transformer_lib.language_model.model import LanguageModelConfig
from transformer_lib.language_model.stream import BPTTBatches, StreamTokenizer, TextDataset
from transformer_lib.training.loop import evaluate
from transformer_lib.training.recipe import LANGUAGE_MODEL_RECIPES, Recipe
from transformer_lib.training.trainer import fit

COLOURS = "Red orange yellow green blue indigo violet"  # after each, there is one way to go on
RECIPE = Recipe(epochs=15, batch_size=2, bptt=8, learning_rate=2e-3)


def silent(line):
    pass


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts") / "colours"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(f"{COLOURS}\n" * 12, encoding="utf-8")
    return load_text(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "run"


@pytest.fixture(scope="module")
def generator(text, folder):
    """Shared by all tests: do not train it further."""
    return train_language_model(text, recipe=RECIPE, output=folder, device="cpu", log=silent)


def test_a_text_goes_in_and_what_goes_on_with_it_comes_out(generator, text, folder):
    assert generator("Red", length=9, temperature=0) == f"{COLOURS}\nRed orange"
    assert generator("Red orange", length=2, top_k=1) == "Red orange yellow green"
    assert TextGenerator.load(folder)("indigo", 1, temperature=0) == "indigo violet"
    notes = load_model(folder).notes
    assert (notes["corpus"], notes["preset"]) == (text.name, "tutorial")
    assert generator.model.config.max_len == RECIPE.bptt


def test_a_prompt_may_have_several_lines_and_be_longer_than_the_positions(generator):
    assert generator("violet\nRed", length=1, temperature=0) == "violet\nRed orange"
    assert generator(f"{COLOURS}\n{COLOURS}", length=2, temperature=0) == f"{COLOURS}\n{COLOURS}\nRed"


def test_a_seed_makes_it_repeatable_and_unknown_words_are_never_written(generator):
    torch.manual_seed(0)
    first = generator("Red", length=200, temperature=5.0, seed=3)
    assert first == generator("Red", length=200, temperature=5.0, seed=3)
    assert first != generator("Red", length=200, temperature=5.0, seed=4)
    assert "<unk>" not in first and "<pad>" not in first


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("red or Black", r"prompt holds \['Black', 'or', 'red'\], expected words of the training text .case counts"),
        ("  ", "prompt is '  ', expected at least one word"),
    ],
)
def test_a_prompt_with_unknown_words_or_none_is_refused(generator, prompt, message):
    with pytest.raises(ValueError, match=message):
        generator(prompt)


class CharacterTokenizer(StreamTokenizer):
    def split(self, sentence):
        return list(sentence)

    def join(self, tokens):
        return "".join(tokens)


@pytest.mark.parametrize("language", [None, "en"])
def test_a_tokenisers_own_join_gets_the_spaces_among_its_tokens(language, tmp_path):
    tokenizer = CharacterTokenizer(language)
    stream = TextDataset(["so it is  so", "", "it is"], tokenizer)
    tokenizer.build_vocab([stream.tokens])
    save_model(tmp_path / "model", Parrot(LanguageModelConfig(len(tokenizer.vocab))), {"text": tokenizer})
    generator = TextGenerator.load(tmp_path / "model", Parrot, CharacterTokenizer)
    assert generator("so it is  so\n\nit is", length=2) == "so it is  so\n\nit isss"


@pytest.mark.parametrize(("language", "expected"), [(None, "the dogs , (it 's)"), ("en", "the dogs, (it's)")])
def test_words_are_put_together_as_people_write_the_language(language, expected):
    words = ["the", "dogs", ",", "(it", "'s)"] if language is None else ["the", "  ", "dogs", ",", "(", "it", "'s", ")"]
    assert StreamTokenizer(language).join(words) == expected


def test_each_kind_of_model_says_what_it_is(generator, folder, trained, tmp_path):
    save_model(tmp_path / "translator", trained.model, {"src": trained.src_tokenizer, "tgt": trained.tgt_tokenizer})
    with pytest.raises(CheckpointError, match="expected a language model"):
        TextGenerator.load(tmp_path / "translator")
    with pytest.raises(CheckpointError, match="expected a translator"):
        Translator.load(folder)


def test_a_language_model_whose_file_names_another_kind_of_tokeniser_is_refused(generator, tmp_path):
    """Anybody may have written it, and what reads running text is not what reads sentences."""
    tokenizer = type("Sentences", (WordTokenizer,), {"specials": ("<unk>", "<pad>")})(None)
    tokenizer.vocab = generator.tokenizer.vocab
    save_model(tmp_path / "model", generator.model, {"text": tokenizer})
    with pytest.raises(CheckpointError, match="expected a language model"):
        TextGenerator.load(tmp_path / "model", type(tokenizer))


class OtherOrder(StreamTokenizer):
    specials = ("<pad>", "<unk>")


def test_special_tokens_may_have_any_ids(text, monkeypatch):
    monkeypatch.setattr(train, "StreamTokenizer", OtherOrder)
    generator = train_language_model(text, recipe=dataclasses.replace(RECIPE, epochs=1), device="cpu", log=silent)
    assert generator.model.config.pad_id == generator.tokenizer.pad_id == 0
    assert "<unk>" not in generator("Red", length=200, temperature=9.0)


class Parrot(torch.nn.Module):
    """A language model of one's own, which repeats the last token."""

    config_class = LanguageModelConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def generate(self, prompt, length, *options):
        return torch.cat([prompt, prompt[:, -1:].expand(-1, length)], dim=1)


def test_a_language_model_of_ones_own_continues_a_text(generator, tmp_path):
    save_model(tmp_path / "model", Parrot(generator.model.config), {"text": generator.tokenizer})
    assert TextGenerator.load(tmp_path / "model", Parrot)("violet", length=2) == "violet violet violet"


def test_a_model_comes_back_as_it_was_with_a_norm_after_its_stack_or_without(generator, tmp_path):
    for final_norm in (False, True):
        config = dataclasses.replace(generator.model.config, final_norm=final_norm)
        model = TransformerLanguageModel(config).eval()
        save_model(tmp_path / "model", model, {"text": generator.tokenizer}, {"why": "test"})
        saved = load_model(tmp_path / "model")
        ids = torch.tensor([[2, 3, 4]])
        assert saved.model(ids).equal(model(ids))
        assert saved.tokenizers["text"].vocab.itos == generator.tokenizer.vocab.itos
        assert saved.tokenizers["text"].encode("violet") == generator.tokenizer.encode("violet")


def test_the_tutorials_training_resumes_where_it_stopped_with_the_same_numbers(text, tmp_path):
    recipe = dataclasses.replace(LANGUAGE_MODEL_RECIPES["tutorial"], batch_size=2, bptt=8)

    def train(output, epochs, resume=False):
        return train_language_model(
            text,
            recipe=dataclasses.replace(recipe, epochs=epochs),
            output=output,
            resume=resume,
            device="cpu",
            log=silent,
        )

    unbroken = train(tmp_path / "a", 4).model.state_dict()
    train(tmp_path / "b", 2)
    resumed = train(tmp_path / "b", 4, resume=True).model.state_dict()
    assert all(weight.equal(resumed[name]) for name, weight in unbroken.items())


@pytest.fixture
def train_backwards(tmp_path):
    """Trains on a text and validates on it backwards: to learn the one is to unlearn the other.

    Returns the validation loss of each epoch, and that of the model that training leaves.
    """
    for split, words in (("train", COLOURS.split()), ("valid", COLOURS.split()[::-1])):
        (tmp_path / f"{split}.txt").write_text(f"{' '.join(words)}\n" * 12, encoding="utf-8")
    text, lines = load_text(tmp_path), []

    def train(learning_rate):
        recipe = dataclasses.replace(RECIPE, epochs=4, learning_rate=learning_rate)
        generator = train_language_model(text, recipe=recipe, device="cpu", log=lines.append)
        losses = [float(line.split("val loss")[1].split()[0]) for line in lines if "val loss" in line]
        stream = TextDataset(text["valid"], generator.tokenizer)
        return losses, evaluate(generator.model, BPTTBatches(stream, 2, 8))

    return train


def test_training_leaves_the_weights_that_validated_best(train_backwards):
    losses, left = train_backwards(learning_rate=5e-5)
    assert left == pytest.approx(min(losses), abs=1e-3)
    assert losses[-1] > min(losses)  # so that it mattered


def test_training_that_only_makes_it_worse_leaves_the_model_as_it_was(train_backwards):
    losses, left = train_backwards(learning_rate=2e-3)
    assert left < 3 < min(losses)  # it knew nothing: log 10 is 2.3


def test_the_vocabulary_comes_from_the_training_text_only(tmp_path):
    for split, words in (("train", "red green blue " * 20), ("valid", "red green black " * 20)):
        (tmp_path / f"{split}.txt").write_text(words, encoding="utf-8")
    recipe = Recipe(epochs=1, batch_size=2)
    tokenizer = train_language_model(load_text(tmp_path), recipe=recipe, device="cpu", log=silent).tokenizer
    assert sorted(tokenizer.vocab.itos) == ["<eos>", "<pad>", "<unk>", "blue", "green", "red"]


def test_the_tuned_recipe_starts_from_the_training_texts_frequencies(tmp_path):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text(f"a a a b {UNK}\n" * 8, encoding="utf-8")
    recipe = dataclasses.replace(LANGUAGE_MODEL_RECIPES["tuned"], learning_rate=1e-30, epochs=1, batch_size=2)
    generator = train_language_model(load_text(tmp_path), "tuned", recipe, device="cpu", log=silent)
    probabilities = generator.model(torch.tensor([[2]])).softmax(-1)[0, 0]
    assert generator.tokenizer.vocab.itos == [UNK, "<pad>", "a", "<eos>", "b"]
    torch.testing.assert_close(probabilities, torch.tensor([9, 1, 25, 9, 9]) / 53)


def test_a_vocabulary_of_another_size_is_refused(generator, text):
    tokenizer = StreamTokenizer()
    tokenizer.build_vocab([["a", "b", "<eos>"]])
    with pytest.raises(ValueError, match="text_tokenizer has 5 types, expected the model's"):
        TextGenerator(generator.model, tokenizer)
    stream = TextDataset(text["train"], tokenizer)
    with pytest.raises(ValueError, match="text_tokenizer has 5 types"):
        fit(generator.model, stream, stream, RECIPE, log=silent)
    stream = TextDataset(text["train"], StreamTokenizer())
    with pytest.raises(ValueError, match="text_tokenizer has no vocabulary yet"):
        fit(generator.model, stream, stream, RECIPE, log=silent)


def test_sentence_pairs_are_not_for_a_language_model(generator, trained, pairs):
    pairs = make_dataset(pairs, trained.src_tokenizer, trained.tgt_tokenizer)
    with pytest.raises(ValueError, match=r"src_tokenizer has \d+ types, expected the model's None"):
        fit(generator.model, pairs, pairs, RECIPE, log=silent)


def test_an_average_starts_from_counts_too(text):
    recipe = dataclasses.replace(
        RECIPE, init_bias_from_unigrams=True, ema_decay=0.5, learning_rate=1e-30, epochs=1, bptt=100
    )
    generator = train_language_model(text, recipe=recipe, device="cpu", log=silent)
    probabilities = generator.model(torch.tensor([[2]])).softmax(-1)[0, 0]
    torch.testing.assert_close(probabilities[2:], torch.full((8,), 13 / 106))  # each of eight types 12 times, plus one


def test_a_short_validation_text_does_not_stop_the_training(tmp_path):
    (tmp_path / "train.txt").write_text(f"{COLOURS}\n" * 12, encoding="utf-8")
    (tmp_path / "valid.txt").write_text(COLOURS, encoding="utf-8")
    train_language_model(load_text(tmp_path), recipe=Recipe(epochs=1, batch_size=20), device="cpu", log=silent)


def test_an_unknown_word_can_be_asked_for():
    tokenizer = StreamTokenizer()
    tokenizer.build_vocab([["the", "dog", "sees", "<eos>"]])
    tokens = ["the", UNK, "sees", "<eos>", "the", "dog"]
    assert tokenizer.decode(tokenizer.encode("the <unk> sees\nthe dog")) == tokens


def test_an_unknown_preset_says_which_there_are(text):
    with pytest.raises(ValueError, match="preset is 'gpt', expected one of tutorial, tuned"):
        train_language_model(text, "gpt")
