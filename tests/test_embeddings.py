import math

import pytest
import torch

from transformer_lib.model.embeddings import (
    InputEmbedding,
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    check_ids,
)


def test_token_embedding_is_scaled_by_the_root_of_d_model():
    embedding = TokenEmbedding(10, 16)
    torch.testing.assert_close(embedding(torch.tensor([[3]]))[0, 0], embedding.table.weight[3] * 4)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[3, 10]]), "src holds the id 10, expected 0 to 9: was it made with another vocabulary"),
        (torch.tensor([[3, -1]]), "src holds the id -1, expected 0 to 9"),
        (torch.tensor([3, 4]), r"src has shape \[2\], expected \[batch, seq_len\]"),
        (torch.zeros(2, 0, dtype=torch.long), r"src has shape \[2, 0\], expected .* at least one position"),
        (torch.zeros(2, 3), r"src has dtype torch.float32, expected torch.int64"),
    ],
)
def test_ids_that_cannot_be_looked_up_are_named(ids, message):
    with pytest.raises(ValueError, match=message):
        check_ids("src", ids, vocab_size=10)


@pytest.mark.parametrize(
    "ids", [torch.tensor([[0, 9]]), torch.zeros(1, 2, dtype=torch.int32), torch.zeros(0, 3, dtype=torch.long)]
)
def test_ids_that_can_be_looked_up_pass(ids):
    check_ids("src", ids, vocab_size=10)
    assert TokenEmbedding(10, 16)(ids).shape == (*ids.shape, 16)


def test_sinusoids_follow_the_papers_formula():
    table = SinusoidalPositionalEncoding(50, 8)(50)
    for position, i in [(0, 0), (1, 0), (7, 2), (49, 3)]:
        angle = position / 10_000 ** (2 * i / 8)
        assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_a_shift_of_sinusoids_is_a_linear_map_that_does_not_depend_on_the_position():
    table = SinusoidalPositionalEncoding(60, 8)(60).double()
    shift = torch.linalg.lstsq(table[:40], table[5:45]).solution
    torch.testing.assert_close(table[40:55] @ shift, table[45:60], atol=1e-4, rtol=0)


def test_sinusoids_are_neither_trained_nor_saved():
    positions = SinusoidalPositionalEncoding(5, 8)
    assert not list(positions.parameters())
    assert not positions.state_dict()


def test_sinusoids_need_an_even_d_model():
    with pytest.raises(ValueError, match="d_model is 7, expected an even number"):
        SinusoidalPositionalEncoding(5, 7)


@pytest.mark.parametrize("kind", [LearnedPositionalEncoding, SinusoidalPositionalEncoding])
def test_positions_are_the_first_ones_and_end_with_a_clear_error(kind):
    positions = kind(10, 8)
    assert positions(10).shape == (10, 8) and positions(4).equal(positions(10)[:4])
    with pytest.raises(ValueError, match=r"length is 11, expected at most max_len=10.*batch_first"):
        positions(11)


def test_embedding_adds_tokens_and_positions():
    embedding = InputEmbedding(TokenEmbedding(10, 8), LearnedPositionalEncoding(5, 8), dropout=0.0)
    ids = torch.tensor([[3, 4], [4, 3]])
    torch.testing.assert_close(embedding(ids)[1, 1], embedding.tokens(ids)[1, 1] + embedding.positions(2)[1])


def test_embedding_drops_in_training_only():
    embedding = InputEmbedding(TokenEmbedding(10, 8), SinusoidalPositionalEncoding(50, 8), dropout=0.5)
    ids = torch.arange(10)[None]
    assert (embedding(ids) == 0).any() and not (embedding.eval()(ids) == 0).any()


def test_a_batch_that_is_not_batch_first_names_the_likely_cause():
    embedding = InputEmbedding(TokenEmbedding(10, 8), LearnedPositionalEncoding(100, 8), dropout=0.0)
    with pytest.raises(ValueError, match=r"length is 128, expected at most max_len=100 positions.*batch_first=True"):
        embedding(torch.zeros(20, 128, dtype=torch.long))  # [seq_len, batch]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sinusoids_are_as_exact_as_float32_whatever_the_default_dtype(dtype):
    """A model may be built in one precision and compute in another, as a loaded one does."""
    expected = SinusoidalPositionalEncoding(200, 16)(200)
    torch.set_default_dtype(dtype)
    try:
        table = SinusoidalPositionalEncoding(200, 16)(200)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(table.float(), expected, rtol=0, atol=0)
