"""``benchmarks/blocks.py``: its parts are notebook 11's and compute what they should, and each is measured once."""

import ast
import json
import sys
from pathlib import Path

import blocks
import pytest
import torch
import torch.nn.functional as F
from test_readers_code import definitions
from torch import nn
from torch.testing import assert_close
from weights import shake

from transformer_lib import MultiHeadAttention, Transformer, TransformerConfig, causal_mask
from transformer_lib.inference.kv_cache import can_cache
from transformer_lib.inference.search import beam_search

SRC = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 1, 1]])


def build(row):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2, "max_len": 20}
    model = blocks.with_parts(Transformer(TransformerConfig.preset(blocks.PRESET, 20, 20, **sizes)), blocks.ROWS[row])
    shake(model)
    return model.eval()


def without_docstrings(source):
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node) is not None:
                del node.body[0]
            node.body = [statement for statement in node.body if not isinstance(statement, ast.Pass)]
    return ast.dump(tree)


def test_notebook_11_shows_the_parts_that_are_measured():
    shown, source = definitions("11"), Path(blocks.__file__).read_text(encoding="utf-8")
    measured = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    both = [name for name in measured if name in shown]
    assert len(both) == 5  # and `rotate`, which is the course's own in both
    for name in both:
        assert without_docstrings(shown[name]) == without_docstrings(ast.get_source_segment(source, measured[name]))


def test_a_rotation_multiplies_pairs_by_numbers_of_length_one():
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    pairs = torch.view_as_complex(x.unflatten(-1, (4, 2)))
    angle = torch.arange(5, 12, dtype=torch.float64)[:, None] / 10_000 ** (torch.arange(4) / 4)
    expected = torch.view_as_real(pairs * torch.exp(1j * angle)).flatten(-2)
    assert_close(blocks.rotate(x, 5), expected, rtol=1e-5, atol=1e-5)
    assert blocks.rotate(x.bfloat16(), 5).dtype == torch.bfloat16


def test_rotary_scores_depend_on_the_distance_alone():
    query, key = torch.randn(2, 1, 1, 1, 16)

    def score(i, j):
        return (blocks.rotate(query, i) * blocks.rotate(key, j)).sum()

    assert_close(score(9, 4), score(5, 0))
    assert_close(score(104, 99), score(5, 0), rtol=1e-3, atol=1e-3)
    assert not torch.isclose(score(9, 5), score(5, 0), atol=1e-2)


def test_swiglu_is_what_the_paper_says():
    part, x = blocks.SwiGLU(8, 12), torch.randn(2, 5, 8)
    gate = part.gate(x) * torch.sigmoid(part.gate(x))
    assert_close(part(x), part.linear2(gate * part.linear1(x)))


def test_groups_of_one_are_multi_head_attention():
    grouped, plain, x = blocks.GroupedAttention(16, 4, kv_heads=4), MultiHeadAttention(16, 4), torch.randn(2, 5, 16)
    grouped.load_state_dict(plain.state_dict())
    assert_close(grouped(x, x, x, causal_mask(5))[0], plain(x, x, x, causal_mask(5))[0])


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_queries_are_pytorchs(kv_heads):
    attention, x = blocks.GroupedAttention(16, 4, kv_heads=kv_heads).eval(), torch.randn(2, 5, 16)
    q, k, v = (attention.split_heads(p(x)) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    assert k.shape == v.shape == (2, kv_heads, 5, 4)
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=causal_mask(5), enable_gqa=True)
    expected = attention.out_proj(attention.join_heads(heads))
    assert_close(attention(x, x, x, causal_mask(5))[0], expected)
    with_maps, maps = attention(x, x, x, causal_mask(5), need_weights=True)
    assert_close(with_maps, expected)
    assert maps.shape == (2, 4, 5, 5)


def test_each_row_exchanges_what_it_says_and_nothing_else():
    def kinds(row):
        return {name: type(module) for name, module in build(row).named_modules()}

    plain = kinds("2017")
    changed = {
        row: {name.rpartition(".")[2] for name, kind in kinds(row).items() if plain.get(name) is not kind}
        for row in blocks.PARTS
    }
    norms = {"norm", "norm1", "norm2", "norm3"}
    attentions = {"self_attn", "cross_attn"}
    assert changed == {
        "RMSNorm": norms,
        "SwiGLU": {"feed_forward", "gate"},
        "rotary": {"self_attn"},
        "grouped": attentions,
    }
    assert nn.LayerNorm not in kinds("all four").values()
    embeddings = {row: build(row).src_embedding.positions.table for row in ("2017", "rotary", "all four")}
    assert embeddings["2017"].any() and not embeddings["rotary"].any() and not embeddings["all four"].any()


def test_no_row_is_larger_than_2017s():
    sizes = {row: build(row).num_parameters() for row in blocks.ROWS}
    assert max(sizes.values()) == sizes["2017"] == sizes["rotary"] > sizes["all four"]


@pytest.mark.parametrize("row", blocks.ROWS)
def test_each_row_translates_with_a_cache_what_it_translates_without(row):
    model = build(row)
    assert can_cache(model)
    cached, anew = (
        [hypothesis for beam in beam_search(model, SRC, 2, 3, use_cache=use_cache) for hypothesis in beam]
        for use_cache in (True, False)
    )
    for one, other in zip(cached, anew, strict=True):
        assert one.ids == other.ids and one.score == pytest.approx(other.score, rel=1e-4)


def made_up(row, seed):
    offset = {"2017": 0.0, "rotary": 1.0}.get(row, 0.0)
    numbers = {"val_loss": [3.0, 2.0 - offset + seed / 100], "bleu": 30 + seed + offset}
    return {"row": row, "seed": seed, "epochs": 2, "parameters": 1000, "seconds_per_epoch": 1.5, **numbers}


def test_a_difference_is_seen_where_the_seeds_do_not_overlap():
    text = blocks.table([made_up(row, seed) for row in ("2017", "rotary", "SwiGLU") for seed in (1, 2, 3)])
    lines = {line.split()[0]: line for line in text.splitlines()[1:]}
    assert lines["rotary"].count("not seen") == 1 and lines["rotary"].endswith("not seen")  # the loss, and not BLEU
    assert lines["SwiGLU"].count("not seen") == 2 and "32.00 (31.00 to 33.00)" in lines["SwiGLU"]
    assert "2.020 (2.010 to 2.030)" in lines["2017"] and "seen" not in lines["2017"]


def test_what_has_a_result_is_not_run_again(tmp_path, monkeypatch):
    file, ran = tmp_path / "blocks.json", []
    file.write_text(json.dumps([made_up("rotary", 1)]), encoding="utf-8")

    def run(row, seed, epochs, *data):
        ran.append((row, seed))
        return made_up(row, seed)

    monkeypatch.setattr(blocks, "run", run)
    monkeypatch.setattr(blocks, "load_data", lambda: ())
    options = ["--only", "2017", "rotary", "--seeds", "1", "2", "--epochs", "2", "--output", str(file)]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["blocks.py", *options])
        blocks.main()
    assert ran == [("2017", 1), ("2017", 2), ("rotary", 2)]
    written = [(one["row"], one["seed"]) for one in json.loads(file.read_text(encoding="utf-8"))]
    assert written == [("2017", 1), ("2017", 2), ("rotary", 1), ("rotary", 2)]
    monkeypatch.setattr(sys, "argv", ["blocks.py", *options[:-4], "--epochs", "3", "--output", str(file)])
    with pytest.raises(SystemExit):  # runs of other lengths cannot be compared
        blocks.main()


def test_rotary_positions_take_the_place_of_sinusoids_and_never_stand_beside_learned_ones():
    model = Transformer(TransformerConfig.preset(blocks.PRESET, 20, 20, positions="learned"))
    with pytest.raises(RuntimeError):  # zeros that are trained would be positions again
        blocks.with_parts(model, ("rotary",))
