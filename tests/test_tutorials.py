"""Weights of well-known tutorials: models of PyTorch's own modules and lists of names, against ours.

``pytest -s`` prints the largest differences.
"""

import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from weights import shake

from transformer_lib import (
    Transformer,
    TransformerLanguageModel,
    Translator,
    WordTokenizer,
    causal_mask,
    load_model,
    save_model,
)
from transformer_lib.interop.tutorials import from_tutorial

HEADS, D_MODEL, D_FF, LAYERS, MAX_LEN, SRC_VOCAB, TGT_VOCAB, PAD = 4, 16, 24, 2, 20, 13, 11, 1
SRC = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 3, PAD], [2, 12, 3, PAD, PAD]])
TGT = torch.tensor([[2, 5, 6, 4], [2, 7, 8, PAD], [2, 10, PAD, PAD]])
OF_SRC, OF_TGT = SRC == PAD, TGT == PAD  # where PyTorch is not to look
LATER, LATER_OF_5 = (torch.ones(length, length, dtype=torch.bool).triu(1) for length in (4, 5))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def nested(parts):
    """Put modules under dotted names, so that the state dictionary has these names."""
    root = nn.Module()
    for name, part in parts.items():
        *parents, last = name.split(".")
        at = root
        for parent in parents:
            if not hasattr(at, parent):
                at.add_module(parent, nn.Module())
            at = getattr(at, parent)
        at.add_module(last, part)
    shake(root)
    return root


def assert_same(kind, ours, theirs):
    """Compare lists of tensors: logits first, then maps."""
    assert len(ours) == len(theirs)
    logits, *maps = [(one - other).abs().max().item() for one, other in zip(ours, theirs, strict=True)]
    print(f"\n{kind}: logits differ by {logits:.1e} at most, maps by {max(maps, default=0):.1e}")
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def attend(query, key, parts, mask):
    """PyTorch's attention with four linear layers. Returns the output and each head's map."""
    q, k, v, out = parts
    bias = torch.cat([q.bias, k.bias, v.bias])
    x, weights = F.multi_head_attention_forward(
        *(one.transpose(0, 1) for one in (query, key, key)),
        *(D_MODEL, HEADS, None, bias, None, None, False, 0.0, out.weight, out.bias),
        attn_mask=mask.repeat_interleave(HEADS, dim=0),
        **{"use_separate_proj_weight": True, "average_attn_weights": False},
        **{"q_proj_weight": q.weight, "k_proj_weight": k.weight, "v_proj_weight": v.weight},
    )
    return x.transpose(0, 1), weights


# The tutorials' Seq2Seq


def parts_of_seq2seq(convolution=False):
    """Name its modules, as the tutorial does today."""
    parts = {"decoder.fc_out": nn.Linear(D_MODEL, TGT_VOCAB)}
    for stack, vocabulary in (("encoder", SRC_VOCAB), ("decoder", TGT_VOCAB)):
        parts[f"{stack}.tok_embedding"] = nn.Embedding(vocabulary, D_MODEL)
        parts[f"{stack}.pos_embedding"] = nn.Embedding(MAX_LEN, D_MODEL)
        attentions = {"self_attention": "self_attn", "encoder_attention": "enc_attn"}
        for i in range(LAYERS):
            layer = f"{stack}.layers.{i}"
            for attention, norm in list(attentions.items())[: 1 if stack == "encoder" else 2]:
                parts |= {f"{layer}.{attention}.fc_{x}": nn.Linear(D_MODEL, D_MODEL) for x in "qkvo"}
                parts[f"{layer}.{norm}_layer_norm"] = nn.LayerNorm(D_MODEL)
            parts[f"{layer}.ff_layer_norm"] = nn.LayerNorm(D_MODEL)
            for name, size in {"fc_1": (D_MODEL, D_FF), "fc_2": (D_FF, D_MODEL)}.items():
                part = nn.Conv1d(*size, kernel_size=1) if convolution else nn.Linear(*size)
                parts[f"{layer}.positionwise_feedforward.{name}"] = part
    return parts


@torch.no_grad()
def run_seq2seq(parts):
    """Compute logits and maps, as the tutorial describes it."""
    maps = {"encoder": [], "decoder": [], "cross": []}

    def embed(stack, ids):
        positions = torch.arange(ids.shape[1])
        return parts[f"{stack}.tok_embedding"](ids) * math.sqrt(D_MODEL) + parts[f"{stack}.pos_embedding"](positions)

    def sub_layer(layer, attention, norm, x, other, mask, kind):
        inside = [parts[f"{layer}.{attention}.fc_{y}"] for y in "qkvo"]
        y, found = attend(x, other, inside, mask)
        maps[kind].append(found)
        return parts[f"{layer}.{norm}_layer_norm"](x + y)

    def feed_forward(layer, x):
        one, two = (parts[f"{layer}.positionwise_feedforward.fc_{i}"] for i in (1, 2))
        y = two(one(x.transpose(1, 2)).relu()).transpose(1, 2) if isinstance(one, nn.Conv1d) else two(one(x).relu())
        return parts[f"{layer}.ff_layer_norm"](x + y)

    memory = embed("encoder", SRC)
    for i in range(LAYERS):
        layer, mask = f"encoder.layers.{i}", OF_SRC[:, None].expand(-1, SRC.shape[1], -1)
        memory = sub_layer(layer, "self_attention", "self_attn", memory, memory, mask, "encoder")
        memory = feed_forward(layer, memory)
    x = embed("decoder", TGT)
    for i in range(LAYERS):
        layer, mask = f"decoder.layers.{i}", OF_SRC[:, None].expand(-1, TGT.shape[1], -1)
        x = sub_layer(layer, "self_attention", "self_attn", x, x, OF_TGT[:, None] | LATER, "decoder")
        x = sub_layer(layer, "encoder_attention", "enc_attn", x, memory, mask, "cross")
        x = feed_forward(layer, x)
    return [parts["decoder.fc_out"](x), *maps["encoder"], *maps["decoder"], *maps["cross"]]


def with_one_norm(parts):
    """Let each layer use its first norm everywhere, as the tutorial did until 2020."""
    firsts = {}
    return {
        name: firsts.setdefault(name.split("_norm")[0].rpartition(".")[0], part) if "_layer_norm" in name else part
        for name, part in parts.items()
    }


SHORT = {
    "self_attention": "sa",
    "encoder_attention": "ea",
    "positionwise_feedforward": "pf",
    "decoder.fc_out": "decoder.fc",
}
SPELLINGS = {  # how copies of the tutorial call the same
    "as today": {},
    "other words": {
        "encoder_attention": "cross_attention",
        "positionwise_feedforward": "feedforward",
        ".fc_1": ".fc1",
        ".fc_2": ".fc2",
    },
    "one layer_norm": {
        "self_attn_layer_norm": "layer_norm",
        "enc_attn_layer_norm": "layer_norm",
        "ff_layer_norm": "layer_norm",
    },
    "older": {
        **SHORT,
        "self_attn_layer_norm": "ln",
        "enc_attn_layer_norm": "ln",
        "ff_layer_norm": "ln",
        ".fc_q": ".w_q",
        ".fc_k": ".w_k",
        ".fc_v": ".w_v",
        ".fc_o": ".fc",
    },
}


def spelled(name, spelling):
    for old, new in SPELLINGS[spelling].items():
        name = name.replace(old, new)
    return name


def seq2seq(spelling="as today"):
    """Return the parts and the state dictionary of a Seq2Seq."""
    parts = parts_of_seq2seq(convolution=spelling == "older")
    if spelling in ("one layer_norm", "older"):
        parts = with_one_norm(parts)
    return parts, nested({spelled(name, spelling): part for name, part in parts.items()}).state_dict()


def run_ours(model):
    with torch.no_grad():
        maps = model.attention_maps(SRC, TGT)
        return [model(SRC, TGT), *maps.encoder, *maps.decoder, *maps.cross]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_tutorials_seq2seq(spelling):
    parts, weights = seq2seq(spelling)
    model = from_tutorial(weights, num_heads=HEADS)
    assert type(model) is Transformer and not model.training
    assert model.config.max_len == MAX_LEN and model.config.num_layers == LAYERS and model.config.d_ff == D_FF
    assert_same(f"Seq2Seq, {spelling}", run_ours(model), run_seq2seq(parts))


def test_the_names_are_those_that_people_have():
    """The names in today's tutorial, the older one, and those that its copies share."""
    today, old = seq2seq()[1], seq2seq("older")[1]
    assert {"encoder.layers.0.self_attention.fc_q.weight", "decoder.layers.1.encoder_attention.fc_o.bias"} <= set(today)
    assert {"decoder.layers.0.enc_attn_layer_norm.weight", "encoder.layers.0.ff_layer_norm.bias"} <= set(today)
    assert {"decoder.layers.0.ea.w_q.weight", "encoder.layers.1.sa.fc.bias", "decoder.layers.1.ln.weight"} <= set(old)
    assert {"decoder.fc.weight", "encoder.layers.0.pf.fc_1.weight"} <= set(old)
    assert old["encoder.layers.0.pf.fc_1.weight"].shape == (D_FF, D_MODEL, 1)
    assert len(seq2seq("one layer_norm")[1]) == len(today) - 2 * LAYERS * (1 + 2)  # weights and biases of norms


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module."])
def test_what_wraps_a_model_is_no_part_of_the_names(prefix):
    parts, weights = seq2seq()
    model = from_tutorial({prefix + name: tensor for name, tensor in weights.items()}, num_heads=HEADS)
    assert_same("Seq2Seq, wrapped", run_ours(model), run_seq2seq(parts))


# A model around nn.Transformer


def around_transformer(names, norm_first=False, activation="relu", pe=True):
    sizes = {"dim_feedforward": D_FF, "dropout": 0.0, "batch_first": True}
    core = nn.Transformer(D_MODEL, HEADS, LAYERS, LAYERS, norm_first=norm_first, activation=activation, **sizes)
    modules = [nn.Embedding(SRC_VOCAB, D_MODEL), nn.Embedding(TGT_VOCAB, D_MODEL), nn.Linear(D_MODEL, TGT_VOCAB), core]
    root = nested(dict(zip(names, modules, strict=True)))
    if pe:
        holder = nn.Module()
        holder.register_buffer("pos_embedding", sines(50)[:, None])  # [50, 1, d_model]
        root.add_module("positional_encoding", holder)
    return root.eval(), modules


def sines(length):
    """Section 3.5, number by number."""
    table = torch.zeros(length, D_MODEL)
    for position in range(length):
        for i in range(0, D_MODEL, 2):
            angle = position / 10000 ** (i / D_MODEL)
            table[position, i], table[position, i + 1] = math.sin(angle), math.cos(angle)
    return table


@torch.no_grad()
def run_around(modules, src_positions, tgt_positions, scale, masks=True):
    src_embedding, tgt_embedding, output, core = modules
    maps = []
    for layer in [*core.encoder.layers, *core.decoder.layers]:
        for attention in (layer.self_attn, getattr(layer, "multihead_attn", None)):
            if attention is not None:  # nn.Transformer itself asks for no maps
                attention.register_forward_pre_hook(wants_maps, with_kwargs=True)
                attention.register_forward_hook(lambda module, inputs, found: maps.append((module, found[1])))
    padding = {"tgt_key_padding_mask": OF_TGT, "memory_key_padding_mask": OF_SRC, "src_key_padding_mask": OF_SRC}
    src, tgt = src_embedding(SRC) * scale + src_positions[:5], tgt_embedding(TGT) * scale + tgt_positions[:4]
    logits = output(core.train()(src, tgt, tgt_mask=LATER, **padding if masks else {}))
    kinds = [[layer.self_attn for layer in stack.layers] for stack in (core.encoder, core.decoder)]
    kinds.append([layer.multihead_attn for layer in core.decoder.layers])
    return [logits, *(found for kind in kinds for module in kind for at, found in maps if at is module)]


def wants_maps(module, inputs, options):
    return inputs, {**options, "need_weights": True, "average_attn_weights": False}


TRANSLATION = ["src_tok_emb.embedding", "tgt_tok_emb.embedding", "generator", "transformer"]


@pytest.mark.parametrize(
    ("names", "norm_first", "activation"),
    [
        (TRANSLATION, False, "relu"),
        (TRANSLATION, True, "gelu"),
        (["source_embedding", "target_embedding", "fc_out", "core"], False, "gelu"),
        (["src_emb", "trg_emb", "fc_out", "a.b"], True, "relu"),
    ],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_a_model_around_nn_transformer(names, norm_first, activation):
    root, modules = around_transformer(names, norm_first, activation)
    model = from_tutorial(root.state_dict(), HEADS, norm_first=norm_first, activation=activation)
    assert type(model) is Transformer and model.config.max_len == 50 and model.config.final_norm == (not norm_first)
    theirs = run_around(modules, sines(50), sines(50), math.sqrt(D_MODEL))
    assert_same(f"around nn.Transformer, {norm_first=}, {activation}", run_ours(model), theirs)


def test_embeddings_that_theirs_does_not_scale():
    names = ["src_word_embedding", "trg_word_embedding", "fc_out", "transformer"]
    root, modules = around_transformer(names, pe=False)
    positions = nn.Embedding(MAX_LEN, D_MODEL), nn.Embedding(MAX_LEN, D_MODEL)
    root.src_position_embedding, root.trg_position_embedding = positions
    theirs = run_around(modules, *(one.weight for one in positions), scale=1)
    model = from_tutorial(root.state_dict(), num_heads=HEADS)
    assert_same("around nn.Transformer, learned positions, not scaled", run_ours(model), theirs)
    renamed = {name.replace("_word_", "_tok_"): tensor for name, tensor in root.state_dict().items()}
    assert_same("the same", run_ours(from_tutorial(renamed, HEADS, scaled_embeddings=False)), theirs)
    assert not torch.allclose(from_tutorial(renamed, HEADS)(SRC, TGT), theirs[0], atol=1e-2)


def test_final_norms_survive_saving(tmp_path):
    root, _ = around_transformer(TRANSLATION)
    model = from_tutorial(root.state_dict(), HEADS)
    tokenizers = {"src": tokenizer_of(SRC_VOCAB), "tgt": tokenizer_of(TGT_VOCAB)}
    save_model(tmp_path / "model.safetensors", model, tokenizers)
    again = load_model(tmp_path / "model.safetensors").model
    assert_same("saved and loaded", run_ours(again), run_ours(model))
    assert Translator(again, *tokenizers.values()).translate(["1 2"])[0].tgt_tokens


def tokenizer_of(size):
    itos = ["<unk>", "<pad>", "<sos>", "<eos>", *map(str, range(size - 4))]  # a Field's order
    return WordTokenizer.from_dict({"language": None, "lower": True, "tokens": itos})


# PyTorch's TransformerModel, a language model


def language_model(names, norm=False):
    tokens, output = nn.Embedding(SRC_VOCAB, D_MODEL), nn.Linear(D_MODEL, SRC_VOCAB)
    layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, D_FF, dropout=0.0)  # sequence first, as there
    stack = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(D_MODEL) if norm else None, enable_nested_tensor=False)
    root = nested(dict(zip(names, (tokens, stack, output), strict=True)))
    holder = nn.Module()
    holder.register_buffer("pe", sines(MAX_LEN)[:, None])
    root.add_module("pos_encoder", holder)
    return root, (tokens, stack, output)


@pytest.mark.parametrize(
    ("names", "norm"),
    [
        (["encoder", "transformer_encoder", "decoder"], False),
        (["embedding", "transformer_encoder", "linear"], False),
        (["input_emb", "encoder", "decoder"], True),
    ],
)
def test_pytorchs_transformer_model(names, norm):
    root, (tokens, stack, output) = language_model(names, norm)
    model = from_tutorial(root.state_dict(), num_heads=HEADS)
    assert type(model) is TransformerLanguageModel and model.config.max_len == MAX_LEN and not model.training
    theirs, x = [], tokens(SRC.T) * math.sqrt(D_MODEL) + sines(5)[:, None]
    for layer in stack.layers:
        theirs.append(layer.self_attn(x, x, x, attn_mask=LATER_OF_5, average_attn_weights=False)[1])
        x = layer(x, src_mask=LATER_OF_5)
    theirs.insert(0, output(stack.norm(x) if norm else x).transpose(0, 1))
    _, maps = model.encoder(model.embedding(SRC), causal_mask(5), need_weights=True)
    assert_same(f"TransformerModel, {', '.join(names)}", [model(SRC), *maps], theirs)


def test_a_window_shorter_than_the_table_of_positions():
    root, _ = language_model(["encoder", "transformer_encoder", "decoder"])
    model = from_tutorial(root.state_dict(), HEADS, max_len=5, dropout=0.2)
    assert model.config.max_len == 5 and model.config.dropout == 0.2
    assert model.generate(SRC[:1], 7).shape == (1, 12)


# What else people hand over


def test_a_file_and_what_else_is_in_it(tmp_path):
    parts, weights = seq2seq()
    theirs = run_seq2seq(parts)
    for number, content in enumerate(
        [weights, {"epoch": 3, "model_state_dict": weights, "optimizer": {"state": {}}}, {"state_dict": weights}]
    ):
        for zipped in (True, False):  # before PyTorch 1.6, files were not
            path = tmp_path / f"{number}{zipped}.pt"
            torch.save(content, path, _use_new_zipfile_serialization=zipped)
            assert_same("from a file", run_ours(from_tutorial(path, HEADS)), theirs)
            assert_same("from its name", run_ours(from_tutorial(str(path), num_heads=HEADS)), theirs)


def test_precision_becomes_float32_and_the_copy_is_a_copy():
    weights = seq2seq()[1]
    model = from_tutorial({name: tensor.double() for name, tensor in weights.items()}, HEADS)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(parameter.requires_grad for parameter in model.parameters())
    before = {name: tensor.clone() for name, tensor in weights.items()}
    shake(from_tutorial(weights, HEADS))
    assert all(tensor.equal(before[name]) for name, tensor in weights.items())


class Malicious:
    """Whoever unpickles it creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_a_file_is_executed_and_what_would_run_code_is_named(tmp_path, zipped):
    traces, path = tmp_path / "executed", tmp_path / "weights.pt"
    for content, name in (({"a": Malicious(traces)}, r"(_?io|builtins)\.open"), (nn.Linear(2, 2), r"torch\.nn")):
        torch.save(content, path, _use_new_zipfile_serialization=zipped)
        with pytest.raises(pickle.UnpicklingError, match=name):
            from_tutorial(path, HEADS)
    assert not traces.exists()


def without(weights, *parts):
    return {name: tensor for name, tensor in weights.items() if not any(part in name for part in parts)}


SEQ2SEQ = seq2seq()[1]
AROUND = around_transformer(TRANSLATION)[0].state_dict()
RNN = {"encoder.rnn.weight_ih_l0": torch.ones(4, 4), "decoder.rnn.weight_ih_l0": torch.ones(4, 4)}
ANNOTATED = {
    "encoder.layers.0.self_attn.linears.0.weight": torch.ones(16, 16),
    "encoder.layers.0.feed_forward.w_1.weight": torch.ones(24, 16),
    "decoder.layers.0.src_attn.linears.0.weight": torch.ones(16, 16),
    "src_embed.0.lut.weight": torch.ones(13, 16),
}


WRONG_SHAPE = SEQ2SEQ | {"decoder.pos_embedding.weight": torch.ones(7, D_MODEL)}
WRONG_TABLE = AROUND | {"positional_encoding.pos_embedding": torch.zeros(50, 1, D_MODEL)}


def test_what_does_not_fit_is_named():
    for weights, message in (
        (RNN, r"encoder\.layers\.0\.feed_forward"),
        ({}, r"encoder\.layers\.0\.feed_forward"),
        (ANNOTATED, r"encoder\.layers\.0\.feed_forward"),
        (without(SEQ2SEQ, "fc_out.bias"), r"Missing.*output\.bias"),
        (without(SEQ2SEQ, "decoder.layers.1"), r"Missing.*decoder\.layers\.1\."),
        (without(SEQ2SEQ, "_1.weight"), r"encoder\.layers\.0\.feed_forward\.linear1\.weight"),
        (without(SEQ2SEQ, "tok_embedding"), r"src_embedding\.tokens\.table\.weight"),
        (without(AROUND, "transformer.encoder.norm.bias"), r"Missing.*encoder\.norm\.bias"),
        (SEQ2SEQ | {"decoder.gate.weight": torch.ones(3)}, r"Unexpected.*decoder\.gate\.weight"),
        (SEQ2SEQ | {"decoder.fc.weight": torch.ones(3)}, r"output\.weight twice"),  # it is fc_out's
        (SEQ2SEQ | {"output.weight": torch.ones(3)}, r"output\.weight twice"),  # so is this
        (WRONG_SHAPE, r"tgt_embedding\.positions\.table.*\[7, 16\].*\[20, 16\]"),
        (WRONG_TABLE, r"positional_encoding\.pos_embedding.* sines and cosines of the paper"),
        (SEQ2SEQ | {"step": 3}, r"Unexpected.*step"),
        (SEQ2SEQ | {"emb" * 10_000: torch.ones(3)}, "500 characters"),  # or it would be looked at for minutes
    ):
        with pytest.raises((KeyError, RuntimeError, ValueError), match=f"(?s){message}"):
            from_tutorial(weights, num_heads=HEADS)


def test_a_wrong_setting_is_named():
    for settings, message in (
        ({"num_heads": 3}, "d_model=16 is not divisible by num_heads=3"),
        ({"num_heads": 0}, "num_heads is 0"),
        ({"num_heads": HEADS, "d_model": 32}, "'d_model'"),  # which the weights decide
        ({"num_heads": HEADS, "max_len": 50}, "'max_len'"),
        ({"num_heads": HEADS, "n_layers": 2}, "'n_layers'"),
        ({"num_heads": HEADS, "pad_id": 99}, "pad_id is 99, expected an id that both vocabularies have"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            from_tutorial(SEQ2SEQ, **settings)


def test_the_model_itself_is_as_good_as_its_weights():
    model = nested(parts_of_seq2seq())
    assert_same("model", run_ours(from_tutorial(model, HEADS)), run_ours(from_tutorial(model.state_dict(), HEADS)))


def test_a_name_of_your_own_can_be_renamed_to_what_the_error_says():
    weights = dict(SEQ2SEQ)
    weights["last.weight"] = weights.pop("decoder.fc_out.weight")
    with pytest.raises(RuntimeError, match=r"(?s)output\.weight.*last\.weight"):
        from_tutorial(weights, HEADS)
    weights["output.weight"] = weights.pop("last.weight")
    assert_same("renamed", run_ours(from_tutorial(weights, HEADS)), run_ours(from_tutorial(SEQ2SEQ, HEADS)))


def test_it_translates_with_the_vocabularies_of_the_tutorials_fields():
    """As the book's page says: torchtext's ``itos`` becomes a tokeniser's vocabulary."""
    src_tokenizer, tgt_tokenizer = tokenizer_of(SRC_VOCAB), tokenizer_of(TGT_VOCAB)
    assert [src_tokenizer.pad_id, src_tokenizer.sos_id, src_tokenizer.eos_id] == [PAD, 2, 3]
    translator = Translator(from_tutorial(SEQ2SEQ, HEADS), src_tokenizer, tgt_tokenizer)
    assert set(translator.translate(["1 2 8"])[0].tgt_tokens) <= {*tgt_tokenizer.vocab.itos}
