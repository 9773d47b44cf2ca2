import json
import re
from html.parser import HTMLParser

import pytest
import torch

from transformer_lib.notebook.attention_viewer import AttentionViewer, readable

HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&lt;b&gt;", '"', "'", "$a$", "\u2028"]


@pytest.fixture(scope="module")
def translation(trained):
    return trained.translate(["Eine Katze schläft im Garten."], attention=True)[0]


def data(viewer):
    """What viewer.js reads, by the name of each kind."""
    text = re.search(r'<script type="application/json">(.*?)</script>', viewer._repr_html_(), re.DOTALL)[1]
    return {kind["name"]: kind for kind in json.loads(text)}


def weights(*shape):
    return torch.rand(*shape).softmax(dim=-1)


class Page(HTMLParser):
    """What a browser without scripts makes of HTML: its tags, and the text of its table's cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.attributes = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}
        if tag in ("td", "th", "p"):
            self.cells.append("")

    def handle_data(self, text):
        if self.cells and self.tags[-1] in ("td", "th", "p", "bdi"):
            self.cells[-1] += text.rstrip("\n")


def test_the_page_gets_every_weight_to_three_digits_and_the_words_of_rows_and_columns(translation):
    src, tgt, inputs = translation.src_tokens, translation.tgt_tokens, ["<sos>", *translation.tgt_tokens[:-1]]
    kinds = data(AttentionViewer.of_translation(translation))
    expected = {
        "Encoder self-attention": (translation.attention.encoder, src, src),
        "Decoder self-attention": (translation.attention.decoder, inputs, inputs),
        "Cross-attention": (translation.attention.cross, tgt, src),
    }
    assert list(kinds) == list(expected)
    for name, (layers, rows, columns) in expected.items():
        assert (kinds[name]["rows"], kinds[name]["columns"]) == (rows, columns)
        shown = torch.tensor(kinds[name]["layers"]).reshape(len(layers), *layers[0].shape[1:]) / 1000
        torch.testing.assert_close(shown, torch.cat(layers), rtol=0, atol=0.00051)


def test_a_translation_without_attention_says_how_to_get_it(trained):
    with pytest.raises(ValueError, match="translate with attention=True"):
        AttentionViewer.of_translation(trained.translate(["Ein Hund."])[0])


def test_layers_may_come_one_by_one_or_as_a_single_tensor():
    layers = [weights(3, 2, 5) for _ in range(4)]
    expected = AttentionViewer({"cross": layers}, list("abcde"), ["x", "y"])._repr_html_()
    for same in (torch.stack(layers), (layer for layer in layers)):
        assert AttentionViewer({"cross": same}, list("abcde"), ["x", "y"])._repr_html_() == expected


def test_any_model_of_your_own_can_be_shown():
    cross = [weights(3, 2, 5), weights(1, 1, 2, 5)]  # the second layer has a single head, and is a batch of one
    (kind,) = data(AttentionViewer({"cross": cross}, list("abcde"), ["x", "y"])).values()
    assert [len(layer) for layer in kind["layers"]] == [3, 1]
    assert kind["rows"] == ["x", "y"] and kind["columns"] == list("abcde")
    (kind,) = data(AttentionViewer({"decoder": [weights(2, 3, 3)]}, tgt_tokens=list("abc"))).values()
    assert kind["rows"] == kind["columns"] == ["<sos>", "a", "b"]


def test_what_hugging_faces_models_return_can_be_shown():
    """Their ``attentions`` are a tuple with a tensor a layer, [batch, heads, query, key], gradients and all."""
    src, tgt = ["▁Ein", "▁Hund", "</s>"], ["▁A", "▁dog", "</s>"]

    def attentions(dtype):
        logits = torch.randn(1, 8, 3, 3, requires_grad=True)
        return tuple((logits + layer).softmax(dim=-1).to(dtype) for layer in range(6))

    for dtype in (torch.float32, torch.bfloat16):
        encoder, decoder, cross = (attentions(dtype) for _ in range(3))
        kinds = data(AttentionViewer({"encoder": encoder, "decoder": decoder, "cross": cross}, src, tgt))
        assert [len(kind["layers"]) for kind in kinds.values()] == [6, 6, 6]
        assert len(kinds["Cross-attention"]["layers"][5]) == 8
        shown = torch.tensor(kinds["Cross-attention"]["layers"][5][7]) / 1000
        torch.testing.assert_close(shown, cross[5][0, 7].flatten().float(), rtol=0, atol=0.00051)
    (kind,) = data(AttentionViewer({"self": attentions(torch.float32)}, ["[CLS]", "dog", "[SEP]"])).values()
    assert kind["name"] == "Self-attention" and kind["rows"] == kind["columns"] == ["[CLS]", "dog", "[SEP]"]


def test_what_does_not_fit_is_named():
    for attention, message in (
        (
            {"cross": [weights(4, 3, 2), weights(4, 2, 3)]},
            r"cross, layer 2, has shape \[4, 2, 3\], expected \[heads, 3, 2\]",
        ),
        ({"encoder": [weights(5, 2, 2, 2)]}, r"encoder, layer 1, has shape \[5, 2, 2, 2\]"),  # of five sentences
        ({"encoder": [torch.full((1, 2, 2), 3.5)]}, "encoder, layer 1, .* 0 and 1"),
        ({"encoder": [torch.full((1, 2, 2), torch.nan)]}, "encoder, layer 1, .* 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            AttentionViewer(attention, ["a", "b"], ["x", "y", "z"])
    with pytest.raises(KeyError, match="own"):
        AttentionViewer({"own": [weights(1, 2, 2)]}, ["a", "b"])


def test_no_token_becomes_a_tag_or_ends_the_script():
    size = len(HOSTILE)
    viewer = AttentionViewer({"encoder": [weights(1, size, size)]}, HOSTILE)
    page = Page(viewer._repr_html_())
    expected = {"div", "p", "table", "tr", "th", "td", "bdi", "script"}
    assert page.tags.count("script") == 2 and set(page.tags) == expected
    assert not {"onerror", "src", "href"} & page.attributes
    expected = [token.strip() or "␣" for token in HOSTILE]
    assert [text for text in page.cells[3::2]] == expected
    (kind,) = data(viewer).values()
    assert kind["rows"] == expected


def test_without_scripts_there_is_a_table_of_the_largest_weights(translation):
    text = re.sub(
        r"<script.*?</script>", "", AttentionViewer.of_translation(translation)._repr_html_(), flags=re.DOTALL
    )
    caption, _, _, *cells = Page(text).cells
    assert "Cross-attention, layer 2, head 1" in caption and "Jupyter or Colab" in caption
    assert cells[::2] == translation.tgt_tokens
    for looks, row in zip(cells[1::2], translation.attention.cross[-1][0, 0], strict=True):
        order = row.argsort(descending=True)[:3].tolist()
        assert looks == "; ".join(f"{translation.src_tokens[i]} {row[i]:.3f}" for i in order)
    assert "{" not in text  # nothing of the script's or its style's


def test_without_scripts_too_an_arabic_word_leaves_the_order_around_it_as_it_is():
    words = ["القطة", "تنام", "."]
    table = AttentionViewer({"self": [weights(1, 3, 3)]}, words)._table()
    assert all(table.count(word) == table.count(f"<bdi>{word}</bdi>") == 4 for word in words[:2])  # a row, three links


def test_it_asks_for_nothing_from_elsewhere_and_says_in_plain_text_what_it_holds(translation):
    viewer = AttentionViewer.of_translation(translation)
    assert not re.search(r"https?:|//\w+\.|@import|url\(|\bimport\(", viewer._repr_html_())
    assert repr(viewer) == "AttentionViewer: Encoder self-attention, Decoder self-attention, Cross-attention"


def test_subwords_are_readable():
    assert readable(["<sos>", "▁berg", "st", "eiger", ",", "▁", "▁5", "<eos>"]) == [
        *("<sos>", "berg", "·st", "·eiger", ",", "␣", "5", "<eos>")
    ]
    assert readable(["ein", "hund", " ", "."]) == ["ein", "hund", "␣", "."]  # whole words stay as they are
