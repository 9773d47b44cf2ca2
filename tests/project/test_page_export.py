"""``transformer-lib export --to page``: a folder with one's own model, which computes what the library computes."""

import functools
import io
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import sentencepiece
import torch
from test_nasty_text import NASTY
from test_translator_in_browser import in_node

from transformer_lib.checkpoint import save_model
from transformer_lib.cli import main
from transformer_lib.data.corpora import load_corpus
from transformer_lib.data.subwords import SubwordTokenizer, train_subwords
from transformer_lib.data.tokenizers import WordTokenizer, spacy_rules
from transformer_lib.inference.search import beam_search
from transformer_lib.inference.translator import Translator
from transformer_lib.language_model.model import LanguageModelConfig, TransformerLanguageModel
from transformer_lib.model.config import TransformerConfig
from transformer_lib.model.transformer import Transformer
from transformer_lib.page.writer import to_page

PAGE = Path(__file__).parents[2] / "transformer_lib" / "page"
SENTENCE = "Der alte Lehrer liest im Park eine Zeitung."
SIZES = {
    "d_model": 20,
    "num_heads": 4,
    "d_ff": 24,
    "num_layers": 2,
    "max_len": 40,
}  # 5 numbers a head: not a multiple of 4
MODELS = {
    "pre-LN, sinusoids, tied": {"norm_first": True, "positions": "sinusoidal", "tie_embeddings": True},
    "pre-LN, learned, untied": {"norm_first": True, "d_model": 24},
    "post-LN, learned, untied": {"num_layers": 1, "num_heads": 2},
    "post-LN, a last norm, sinusoids": {"final_norm": True, "positions": "sinusoidal", "d_ff": 7},
}


@functools.cache
def pairs():
    return load_corpus("sample")["train"][:1000]


@functools.cache
def tokenizers(kind):
    if kind == "words":
        made = [WordTokenizer(language) for language in ("de", "en")]
        for side, tokenizer in enumerate(made):
            tokenizer.build_vocab((tokenizer.tokenize(pair[side]) for pair in pairs()), min_freq=2)
        return made
    pieces = train_subwords(pairs(), 300, lower=kind != "cased")
    return [SubwordTokenizer(language, pieces, lower=kind != "cased") for language in ("de", "en")]


def make(kind="subwords", **choices):
    """A translator with random weights, all of them: fresh norms and biases would hide that they are mixed up."""
    src, tgt = tokenizers(kind)
    config = TransformerConfig(len(src.vocab), len(tgt.vocab), **{**SIZES, **choices})
    torch.manual_seed(1)
    model = Transformer(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return Translator(model, src, tgt, 4, 0.6)


@pytest.fixture(params=MODELS)
def translator(request):
    return make(**MODELS[request.param])


def close(found, expected):
    torch.testing.assert_close(torch.tensor(found).flatten(), expected.flatten(), rtol=0, atol=1e-3)


def passed_through(model, src, tgt):
    """What enters each module, and what leaves it."""
    noted = {}

    def note(name, module, inputs, output):
        noted[name] = inputs, output

    hooks = [module.register_forward_hook(functools.partial(note, name)) for name, module in model.named_modules()]
    model(src, tgt)
    for hook in hooks:
        hook.remove()
    return noted


@torch.inference_mode()
def check(translator, folder, texts=(SENTENCE, "Ein Hund schläft.")):
    """In node: ids, logits, what each layer computes, and what a beam finishes are the library's."""
    model, tgt_tokenizer = translator.model, translator.tgt_tokenizer
    with in_node(folder / "translator") as ask:
        for text in texts:
            tokens = translator.source_tokens(text)
            answer = ask(["encode", text])[0]
            assert answer == {"tokens": tokens, "ids": translator.src_tokenizer.ids(tokens)}
            src = torch.tensor([answer["ids"]])
            for beam_size in (1, 4):
                found = ask(["translate", text, beam_size])[0]
                expected = beam_search(
                    model, src, 2, 3, beam_size, 0.0 if beam_size == 1 else translator.length_penalty
                )[0]
                assert [one["ids"] for one in found] == [one.ids for one in expected]
                close([one["score"] for one in found], torch.tensor([one.score for one in expected]))
                assert found[0]["text"] == tgt_tokenizer.join(tgt_tokenizer.decode(expected[0].ids))
            written = expected[0].ids[:5]
            tgt = torch.tensor([[2, *written]])
            close(ask(["logits", answer["ids"], tgt[0].tolist()])[0], model(src, tgt)[0])
            leaves = passed_through(model, src, tgt)
            trace = ask(["trace", text, written, {}])[0]
            for side, stack, last in (("source", "encoder", "norm2"), ("target", "decoder", "norm3")):
                close(trace[side]["x"], leaves[f"{stack}.layers.0"][0][0])
                close(trace[side]["output"], leaves[stack][1][0])
                for number, layer in trace[side]["layers"].items():
                    name = f"{stack}.layers.{number}"
                    close(layer["feed_forward"]["leaves"], leaves[name][1][0])
                    close(layer["feed_forward"]["reads"], leaves[f"{name}.feed_forward"][0][0])
                    close(layer["feed_forward"]["unnormed"], leaves[f"{name}.{last}"][0][0])
                    close(layer["feed_forward"]["norm"], leaves[f"{name}.{last}"][1])


def test_numbers_are_the_librarys_for_each_architecture(translator, tmp_path):
    to_page(translator, tmp_path / "page")
    check(translator, tmp_path / "page")


@pytest.mark.parametrize("kind", ["words", "cased"])
def test_numbers_are_the_librarys_for_words_and_for_capitals(kind, tmp_path):
    translator = make(kind)
    to_page(translator, tmp_path / "page")
    check(translator, tmp_path / "page", (SENTENCE, "Z.B. ein Hund, der „bellt“ - 3,50 € am 10.Mai?"))


def with_words(program, given):
    """Run a program in node beside the tokeniser of words: JSON in, JSON out."""
    if not (node := shutil.which("node")):
        pytest.skip("node is not installed: apt-get install nodejs")
    scripts = [(PAGE / f"{name}.js").read_text(encoding="utf-8") for name in ("tokenizer", "words")]
    command = [node, "-e", "\n".join([*scripts, program])]
    answer = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def test_what_spacy_takes_apart_the_page_takes_apart():
    """Of languages that have no rules of their own kind; a strange text is put together of what rules are about."""
    parts = [
        *"aB.,-'\"()5€$%:/@ß’…—ü漢🙂&#;!?^_",
        "km",
        "don't",
        "z.B.",
        "U.S.",
        "www.",
        ".com",
        "n't",
        ":)",
        "1,0",
        "est-ce",
    ]
    texts = [pair[side] for pair in pairs()[:50] for side in (0, 1)]
    texts += [text for text, *_ in NASTY.values() if len(text) < 5_000]
    generator = torch.Generator().manual_seed(1)
    for _ in range(400):
        chosen = torch.randint(len(parts) + 5, (8,), generator=generator).tolist()
        texts.append("x" + "".join(parts[i] if i < len(parts) else " " for i in chosen))
    program = """
const [rules, texts] = JSON.parse(require("fs").readFileSync(0));
const tokens = ["<unk>", "<pad>", "<sos>", "<eos>"];
const tokenizer = new WordTokenizer({ language: "de", lower: true, tokens, rules });
console.log(JSON.stringify(texts.map((text) => tokenizer.encode(text).tokens.slice(1, -1))));
"""
    for language in ("de", "en", "fr", None):
        tokenizer, expected = WordTokenizer(language), {}
        for text in texts:
            try:
                tokens = [token for token in tokenizer.tokenize(text) if not token.isspace()]
            except ValueError:
                continue
            if tokens and not {*tokens} & {*tokenizer.specials}:
                expected[text] = tokens
        found = with_words(program, [spacy_rules(language), [*expected]])
        assert dict(zip(expected, found, strict=True)) == expected, language


@pytest.mark.parametrize("language", ["en", "fr", "ja", None])
def test_words_are_put_together_as_the_library_does_it(language):
    lines = [
        'he said , " it \'s ten - year - old ( sic ) " .',
        "l' homme est -ce 3 , 5 %",
        "can not gon na do n't",
        "¿ a / b ?",
    ]
    tokenizer = WordTokenizer("xx")
    tokenizer.language = language
    vocabulary = [*tokenizer.specials, *dict.fromkeys(" ".join(lines).split())]
    program = """
const [described, lines] = JSON.parse(require("fs").readFileSync(0)), tokenizer = new WordTokenizer(described);
console.log(JSON.stringify(lines.map((words) => tokenizer.decode(words.map((word) => tokenizer.ids.get(word))))));
"""
    described = {"language": language, "lower": True, "tokens": vocabulary, "rules": None}
    found = with_words(program, [described, [line.split() for line in lines]])
    assert found == [tokenizer.join(line.split()) for line in lines]


def test_weights_keep_their_precision_and_take_a_third_more(tmp_path):
    translator = make()
    for half in (False, True):
        if half:
            translator.model.half().float()
        to_page(translator, tmp_path / "page")  # the second time over the first
        bytes_each = 2 if half else 4
        size = sum(path.stat().st_size for path in (tmp_path / "page").rglob("weights_*.js"))
        least = translator.model.num_parameters() * bytes_each * 4 / 3
        assert least < size < least + 40_000


class OfMyOwn(WordTokenizer):
    def split(self, sentence):
        return sentence.split("-")


def my_own():
    own = [OfMyOwn("de"), OfMyOwn("en")]
    for tokenizer in own:
        tokenizer.build_vocab([["a"]])
    sizes = [len(tokenizer.vocab) for tokenizer in own]
    return Translator(Transformer(TransformerConfig(*sizes, **SIZES)), *own)


def chinese():
    own = [WordTokenizer("zh"), WordTokenizer("en")]
    for tokenizer in own:
        tokenizer.build_vocab([["a"]])
    return Translator(Transformer(TransformerConfig(*[len(each.vocab) for each in own], **SIZES)), *own)


def another_order():
    """Pieces that were not learned in the order of their ids: one of them was given."""
    pieces = io.BytesIO()
    specials = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3}
    specials |= {"unk_piece": "<unk>", "pad_piece": "<pad>", "bos_piece": "<sos>", "eos_piece": "<eos>"}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([pair.src for pair in pairs()]),
        model_writer=pieces,
        model_type="bpe",
        vocab_size=100,
        user_defined_symbols=["<name>"],
        normalization_rule_name="identity",
        minloglevel=2,
        **specials,
    )
    own = [SubwordTokenizer(language, pieces.getvalue()) for language in ("de", "en")]
    return Translator(Transformer(TransformerConfig(*[len(each.vocab) for each in own], **SIZES)), *own)


def replaced():
    translator = make()
    translator.model.decoder.layers[0].cross_attn.v_proj = torch.nn.Identity()
    return translator


REFUSED = {
    "gelu": (lambda: make(activation="gelu"), ValueError, "activation='gelu'"),
    "a tokeniser of one's own": (my_own, ValueError, "OfMyOwn"),
    "Chinese": (chinese, ValueError, "language is 'zh'"),
    "pieces that were given": (another_order, ValueError, "SubwordTokenizer"),
    "a part replaced": (replaced, TypeError, "Transformer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_page_cannot_show_is_refused_by_name_and_nothing_is_written(case, tmp_path):
    build, kind, named = REFUSED[case]
    with pytest.raises(kind, match=named):
        to_page(build(), tmp_path / "page")
    assert not [*tmp_path.iterdir()]


def test_a_language_model_is_refused(tmp_path, capsys):
    text = WordTokenizer("en")
    text.build_vocab([["a"]])
    model = TransformerLanguageModel(LanguageModelConfig(vocab_size=len(text.vocab), d_model=8, num_heads=2, d_ff=8))
    save_model(tmp_path / "model.safetensors", model, {"text": text})
    assert main(["export", str(tmp_path / "model.safetensors"), str(tmp_path / "page"), "--to", "page"]) == 1
    assert "tokenizers holds ['text']" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


def test_the_folder_holds_all_that_the_page_loads(tmp_path):
    to_page(make(), tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r'<(?:script src|link rel="stylesheet" href)="([^"]+)"', page)
    assert len(loaded) > 5 and all((tmp_path / "page" / path).is_file() for path in loaded)
    assert "http" not in re.sub(r"<code>.*?</code>", "", page)


def test_only_an_earlier_export_is_replaced(tmp_path):
    translator, folder = make(), tmp_path / "page"
    to_page(translator, folder)
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    to_page(translator, folder, examples=["Ein Hund."])
    assert {path.relative_to(folder) for path in folder.rglob("*")} == before
    assert "Ein Hund." in (folder / "translator" / "generated.js").read_text(encoding="utf-8")
    for own in ("notes.txt", "translator/notes.txt"):
        (folder / own).write_text("mine", encoding="utf-8")
        with pytest.raises(FileExistsError):
            to_page(translator, folder)
        assert (folder / own).read_text(encoding="utf-8") == "mine"
        (folder / own).unlink()
    other = tmp_path / "site"
    other.mkdir()
    (other / "index.html").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError):
        to_page(translator, other)
    assert (other / "index.html").read_text(encoding="utf-8") == "mine"


def test_the_command_tells_of_a_corpus_that_it_knows_and_of_no_folder(tmp_path, capsys):
    translator = make()
    sides = {"src": translator.src_tokenizer, "tgt": translator.tgt_tokenizer}
    for corpus in ("sample", ["sample"], ["/home/me/secret.de", "/home/me/secret.en"]):
        save_model(tmp_path / "model.safetensors", translator.model, sides, {"corpus": corpus})
        assert main(["export", str(tmp_path / "model.safetensors"), str(tmp_path / "page"), "--to", "page"]) == 0
        written = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "page").rglob("*.*"))
        assert "secret" not in written and ('"corpus": "sample"' in written) == ("sample" in corpus)
    assert main(["export", str(tmp_path / "model.safetensors"), str(tmp_path / "x"), "--examples", "Ein Hund."]) == 1
    assert "--examples" in capsys.readouterr().err


def test_examples_of_the_sample_corpus_are_of_its_validation_split():
    script = (PAGE / "about.js").read_text(encoding="utf-8")
    examples = json.loads(script.partition("sample: ")[2].partition("]")[0] + "]")
    assert {*examples} <= {pair.src for pair in load_corpus("sample")["val"]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_a_page_from_a_disk_shows_ones_own_model(kind, tmp_path, browser):
    choices = {"num_heads": 2} if kind == "words" else {"norm_first": True, "positions": "sinusoidal"}
    translator = make(kind, num_layers=2, **choices)
    to_page(translator, tmp_path / "page", examples=[SENTENCE])
    (expected,) = translator.translate([SENTENCE], attention=True)
    page, problems = browser.open(tmp_path / "page" / "index.html")
    page.set_default_timeout(120_000)
    assert page.locator("#german").input_value() == SENTENCE
    page.get_by_role("button", name="Load the model").click()
    page.locator(".results:not(.busy) .target button").first.wait_for()
    assert page.locator(".translation").inner_text().split() == expected.text.split()
    for view in ("Figure 1", "Heads", "Alternatives", "Attention", "Beam"):
        page.get_by_role("radio", name=view, exact=True).check()
        page.get_by_role("region", name=view, exact=True).wait_for()
    page.get_by_role("radio", name="Figure 1", exact=True).check()
    for box in page.locator(".model button").all():
        box.click()
    text = page.locator("body").inner_text()
    for claim in ("4,000", "256", "Multi30k", "fisherman", "36"):
        assert claim not in text, claim
    assert "The Transformer, step by step" in page.get_by_role("contentinfo").inner_text()  # whose notebooks are named
    levels = page.get_by_role("heading").evaluate_all("all => all.map(({ tagName }) => Number(tagName[1]))")
    assert levels[0] == 1 and all(below <= above + 1 for above, below in itertools.pairwise(levels))
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".atlas canvas").count() == 3 * 2 * translator.model.config.num_heads
    assert not problems
