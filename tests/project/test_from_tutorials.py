"""The book's page for those who come from a tutorial: its names exist, its links lead there, its code runs."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
import torch
from test_tutorials import HEADS, seq2seq
from test_where_tutorials_break import ROOT, headings, links_of

import transformer_lib
from transformer_lib.data.corpora import CorpusError
from transformer_lib.inference.kv_cache import can_cache

PAGE = "from_tutorials.md"
TEXT = (ROOT / "book" / PAGE).read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
NAMES = re.findall(r"^\| (.+?) \| (.+?) \| .*\|$", TEXT.partition("## Names\n")[2].partition("\n## ")[0], re.M)[2:]


def test_links_lead_to_the_headings_that_they_name():
    assert len(links_of(PAGE)) > 40
    for text, notebook, anchor in links_of(PAGE):
        places = headings(notebook)
        title = places[anchor][0] if anchor else next(iter(places.values()))[0].partition(" · ")[2]
        assert text == f"{Path(notebook).name[:2]} · {title}"


def test_every_name_of_this_library_exists():
    names = {name for _, here in NAMES for name in re.findall(r"`([^`]+)`", here)}
    for name in names:
        first, *rest = name.split(".")
        if callable(getattr(transformer_lib, first, None)):
            meant = getattr(transformer_lib, first)
        else:
            meant, rest = importlib.import_module(f"transformer_lib.{first}.{rest[0]}"), rest[1:]
            assert rest, name
        for part in rest:
            meant = getattr(meant, part)
        assert callable(meant), name
    assert names


def test_the_page_has_all_names_that_people_look_for():
    assert {name for names, _ in NAMES for name in re.findall(r"`(\w+)", names)} >= {
        *("SRC", "TRG", "MultiHeadAttentionLayer", "PositionwiseFeedforwardLayer", "translate_sentence"),
        *("display_attention", "calculate_bleu", "count_parameters", "initialize_weights", "init_weights", "batchify"),
        *("get_batch", "PositionalEncoding", "pos_encoder", "split_head", "create_padding_mask"),
        *("create_look_ahead_mask", "create_masks"),
    }


def test_the_two_sentences_are_translated_as_it_says():
    rows = re.findall(r"^\| (German|the included translator) \| (.+) \| (.+) \|$", TEXT, re.M)
    (_, *german), (_, *english) = rows
    assert transformer_lib.Translator.load()(german) == english


def test_the_code_runs_with_a_file_and_fields_of_the_tutorial(tmp_path, monkeypatch, capsys):
    data = pytest.importorskip("torchtext.data")
    monkeypatch.chdir(tmp_path)
    fields = {}
    for name, words in (
        ("SRC", "ein hund schläft im garten . eine katze läuft"),
        ("TRG", "a dog sleeps in the garden ."),
    ):
        fields[name] = data.Field(init_token="<sos>", eos_token="<eos>", lower=True, batch_first=True)
        fields[name].build_vocab([words.split()])
    assert [len(fields[name].vocab) for name in ("SRC", "TRG")] == [13, 11]
    torch.save(seq2seq()[1], "tut6-model.pt")
    code = CODE[0]
    names = dict(fields)
    exec(compile(code.replace("num_heads=8", f"num_heads={HEADS}"), PAGE, "exec"), names)
    assert capsys.readouterr().out.strip() == str(names["translator"]("Ein Hund schläft im Garten.", beam_size=4))
    assert Path("model.safetensors").is_file()


def test_a_decoder_of_other_sizes_comes_back_as_it_was_and_translates_with_its_cache(tmp_path):
    names = {"__name__": "the_page"}
    exec(compile(CODE[1], PAGE, "exec"), names)
    model, kind = names["model"].eval(), names["Uneven"]
    assert len(model.encoder.layers) == 6 and len(model.decoder.layers) == 1
    assert model.decoder.layers[0].feed_forward.linear1.out_features == 256
    transformer_lib.save_model(tmp_path / "model.safetensors", model, {})
    again, *_ = transformer_lib.load_model(tmp_path / "model.safetensors", kind)
    src, tgt = torch.randint(4, 5000, (2, 7)), torch.randint(4, 5000, (2, 5))
    assert again(src, tgt).equal(model(src, tgt))
    assert can_cache(model)


def test_a_model_whose_pad_was_moved_computes_what_it_did():
    names = {}
    exec(compile(CODE[2], PAGE, "exec"), names)
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 1}
    config = transformer_lib.TransformerConfig(src_vocab_size=9, tgt_vocab_size=9, **sizes)
    model = transformer_lib.Transformer(config).eval()
    words = ["<unk>", "<pad>", "<sos>", "<eos>", *"abcde"]
    there = [words[i] for i in (0, 4, 2, 3, 1, 5, 6, 7, 8)]  # <pad> has the id 4
    sentence = ["<sos>", "b", "a", "<eos>"]
    ids = torch.tensor([[words.index(word) for word in sentence]])
    theirs = torch.tensor([[there.index(word) for word in sentence]])
    table = model.src_embedding.tokens.table.weight
    names["exchange"](words[:], table, 1, 4)  # as a model would be that was trained with these ids
    before = model.src_embedding(theirs)
    names["exchange"](there, table, 1, 4)
    assert there == words and model.src_embedding(ids).equal(before)


def test_the_language_model_of_the_tutorial_trains_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = transformer_lib.load_text("sample")
    few = dataclasses.replace(text, lines={split: text[split][:20] for split in text.splits})
    monkeypatch.setattr(transformer_lib, "load_text", lambda name: few)
    exec(compile(CODE[3], PAGE, "exec"), {})
    assert "model     tutorial: " in capsys.readouterr().out
    assert Path("runs/wikitext/model.safetensors").is_file()


def test_what_the_page_counts_is_in_the_text(capsys):
    try:
        transformer_lib.load_text("wikitext-2-valid")["test"]
    except CorpusError:
        pytest.skip("WikiText-2 cannot be had here")
    exec(compile(CODE[4], PAGE, "exec"), {})
    assert f"```text\n{capsys.readouterr().out}```" in TEXT


def test_the_sizes_that_the_page_names():
    model = transformer_lib.TransformerLanguageModel(transformer_lib.LanguageModelConfig(12951))
    ends = [*model.embedding.parameters(), *model.output.parameters()]
    whole = sum(weight.numel() for weight in model.parameters())
    assert f"{whole:,} parameters, of which {sum(weight.numel() for weight in ends) / whole:.0%}" in TEXT
    assert list(model(torch.zeros(20, 35, dtype=torch.long)).shape) == [20, 35, 12951]
