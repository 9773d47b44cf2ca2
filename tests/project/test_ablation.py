"""The experiments of ``benchmarks/recipes.py``: their rows, their table, and what the library itself has not."""

from dataclasses import replace
from pathlib import Path

import pytest
import recipes
import torch
from torch import nn
from torch.testing import assert_close

from transformer_lib.checkpoint import load_model, save_model
from transformer_lib.inference.kv_cache import CachedDecoder, can_cache
from transformer_lib.training.recipe import RECIPES


def test_every_row_is_possible_changes_what_it_says_and_is_there_once():
    rows = list(recipes.ROWS.values())
    for name, row in recipes.ROWS.items():
        preset = recipes.model_class(row).config_class.preset
        plain, config = preset(row.preset, 10, 10), preset(row.preset, 10, 10, **row.config)
        recipe = replace(RECIPES[row.preset], **row.recipe)
        assert all(getattr(config, field) != getattr(plain, field) for field in row.config), name
        assert all(getattr(recipe, field) != getattr(RECIPES[row.preset], field) for field in row.recipe), name
        assert rows.count(row) == 1, name


def test_the_last_checkpoints_are_averaged_and_until_then_the_model_itself_is_kept():
    model = nn.Linear(1, 1, bias=False)
    average = recipes.LastCheckpoints(model, 0.5, steps=[4, 6, 8])
    seen = []
    for step in range(1, 9):
        nn.init.constant_(model.weight, step)
        average.update_parameters(model)
        seen.append(average.module.weight.item())
    assert seen == pytest.approx([1, 2, 3, 4, 4, (4 + 6) / 2, (4 + 6) / 2, (4 + 6 + 8) / 3])


@pytest.fixture
def narrow():
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 8, "num_layers": 1, "dropout": 0.0, "d_k": 3}
    return recipes.NarrowTransformer(recipes.NarrowConfig(9, 9, **sizes)).eval()


def test_only_queries_and_keys_are_narrower(narrow):
    wide = recipes.Transformer(recipes.TransformerConfig(9, 9, d_model=16, num_heads=2, d_ff=8, num_layers=1))
    # three attentions, in each two projections, from 16 to 2 · 3 instead of 16 to 16, with their biases
    assert wide.num_parameters() - narrow.num_parameters() == 3 * 2 * (16 + 1) * (16 - 2 * 3)


def test_narrow_heads_compute_attention_with_their_own_scale(narrow):
    attention, x = narrow.encoder.layers[0].self_attn, torch.randn(2, 5, 16)
    q, k, v = (attention.split_heads(project(x)) for project in (attention.q_proj, attention.k_proj, attention.v_proj))
    assert q.shape[-1] == k.shape[-1] == 3 and v.shape[-1] == 8
    expected = attention.out_proj(attention.join_heads((q @ k.mT / 3**0.5).softmax(-1) @ v))
    assert_close(attention(x, x, x)[0], expected)
    assert_close(attention(x, x, x, need_weights=True)[0], expected)


def test_narrow_heads_are_saved_and_searched_with(narrow, tmp_path):
    save_model(tmp_path / "narrow.safetensors", narrow, {}, {})
    loaded = load_model(tmp_path / "narrow.safetensors", recipes.NarrowTransformer).model
    src, tgt = torch.randint(4, 9, (2, 4)), torch.randint(4, 9, (2, 5))
    memory, mask = loaded.encode(src)
    assert can_cache(loaded)
    cached = CachedDecoder(loaded, memory, mask)
    steps = torch.cat([cached.step(tgt[:, i : i + 1]) for i in range(5)], dim=1)
    assert_close(steps, narrow.decode(tgt, *narrow.encode(src)))


def test_without_its_factor_an_embedding_is_a_row_of_its_table_and_nothing_else_is_different(tmp_path):
    models = {}
    for name in ("untied", "untied no factor"):
        row, sizes = recipes.ROWS[name], {"d_model": 16, "num_heads": 2, "d_ff": 8, "num_layers": 1}
        torch.manual_seed(0)
        kind = recipes.model_class(row)
        models[name] = kind(kind.config_class.preset(row.preset, 9, 9, **{**row.config, **sizes})).eval()
    with_factor, without = models.values()
    assert_close(without.state_dict(), with_factor.state_dict(), rtol=0, atol=0)
    ids = torch.randint(4, 9, (2, 5))
    for side in ("src_embedding", "tgt_embedding"):
        tokens = getattr(without, side).tokens
        assert_close(tokens(ids), tokens.table(ids), rtol=0, atol=0)
        assert_close(getattr(with_factor, side).tokens(ids), 4 * tokens(ids))  # √16
    save_model(tmp_path / "model.safetensors", without, {}, {})
    loaded = load_model(tmp_path / "model.safetensors", recipes.FactorTransformer).model
    memory, mask = loaded.encode(ids)
    assert can_cache(loaded)
    cached = CachedDecoder(loaded, memory, mask)
    steps = torch.cat([cached.step(ids[:, i : i + 1]) for i in range(5)], dim=1)
    assert_close(steps, without.decode(ids, *without.encode(ids)))


def test_rows_are_compared_with_one_that_differs_in_one_thing():
    for name in recipes.FACTOR:
        base = recipes.ROWS[recipes.baseline(name, {})]
        row = recipes.ROWS[name]
        assert row.recipe == base.recipe and (row == base or row.config == {**base.config, "factor": False})


def test_the_page_of_results_shows_what_the_table_prints():
    page = (Path(__file__).parents[2] / "book" / "results.md").read_text(encoding="utf-8")
    assert recipes.table(recipes.RESULTS) in page
