"""What a user of the library would write, for the type checker to read (see test_types.py); nobody runs it."""

from pathlib import Path

import torch
from typing_extensions import assert_type

from transformer_lib import (
    AttentionViewer,
    Encoder,
    EncoderLayer,
    LanguageModelConfig,
    MultiHeadAttention,
    PositionwiseFeedForward,
    Recipe,
    TextGenerator,
    Transformer,
    TransformerConfig,
    TransformerLanguageModel,
    Translator,
    WordTokenizer,
    causal_mask,
    evaluate,
    fit,
    from_torch,
    load_corpus,
    load_model,
    load_text,
    padding_mask,
    save_model,
    scaled_dot_product_attention,
    target_mask,
    to_torch,
    train_language_model,
    train_translator,
)
from transformer_lib.data.batches import BucketBatches, build_vocabularies, make_dataset
from transformer_lib.data.corpora import Corpus, Pair
from transformer_lib.page.writer import to_page
from transformer_lib.training.loop import History

ids = torch.tensor([[2, 5, 3, 1]])
assert_type(padding_mask(ids, pad_id=1) & causal_mask(4), torch.Tensor)
assert_type(target_mask(ids, 1), torch.Tensor)
assert_type(scaled_dot_product_attention(ids, ids, ids)[1], torch.Tensor)
attention = MultiHeadAttention(512, num_heads=8)
encoder = Encoder(EncoderLayer(512, 8, 2048, activation="gelu") for _ in range(6))
feed_forward: torch.nn.Module = PositionwiseFeedForward(512, 2048)
theirs: torch.nn.Module = to_torch(encoder)
from_torch(theirs)

corpus = load_corpus("multi30k")
assert_type(corpus, Corpus)
assert_type(corpus["train"], list[Pair])
german, english = WordTokenizer("de"), WordTokenizer("en")
train_set, val_set = (make_dataset(corpus[split], german, english) for split in ("train", "val"))
build_vocabularies(train_set)
model = Transformer(TransformerConfig(len(german.vocab), len(english.vocab), activation="gelu"))
assert_type(model.num_parameters(), int)
history = fit(model, train_set, val_set, Recipe(epochs=1), output=Path("runs/mine"))
assert_type(history, History)
assert_type(evaluate(model, BucketBatches(val_set, 128)), float)
save_model("model.safetensors", model, train_set.tokenizers)
saved = load_model("model.safetensors", device="cpu")

translator = train_translator(corpus, preset="small")
assert_type(translator, Translator)
assert_type(translator("Der Mann hebt den Ball auf."), str)
assert_type(translator(["Ein Hund.", "Zwei Hunde."]), list[str])
AttentionViewer.of_translation(translator.translate(["Ein Hund."], attention=True)[0])
to_page(translator, Path("page"), examples=["Ein Hund."])

writer = train_language_model(load_text("wikitext-2"))
assert_type(writer, TextGenerator)
assert_type(writer("The"), str)
TransformerLanguageModel(LanguageModelConfig(vocab_size=100))
