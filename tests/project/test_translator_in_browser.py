"""The page "Try it": the model in JavaScript computes what the library computes, and readers can use the page."""

import contextlib
import functools
import html
import http.server
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from browser import press_keys
from test_nasty_text import NASTY

from transformer_lib.data.corpora import CorpusError, load_corpus
from transformer_lib.inference import bleu
from transformer_lib.inference.search import beam_search, greedy_search
from transformer_lib.inference.translator import Translator
from transformer_lib.model.masks import padding_mask

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "book"
VIEWS = ("Figure 1", "Heads", "Alternatives", "Attention", "Beam")
SENTENCE, TRANSLATION = "Im Park spielen zwei Kinder Fußball.", "two children are playing soccer in the park."
NASTIER = {  # what sentencepiece's table of letters changes, and what it leaves alone
    "one letter for two": "ﬁsch ﬀ ß ẞ ĳ Ǆ",
    "letters of mathematics": "𝗘𝗶𝗻 𝐇𝐮𝐧𝐝 𝕊𝕔𝕙𝕝ä𝒻𝓽 𝐀𝐁.",  # the table makes plain capitals of some
    "wide letters": "ＥＩＮ　Ｈｕｎｄ！ ①② ㎏ ½",
    "letters in parts": "fu\u0308r scho\u0308n A\u030a \u1e9b\u0323",
    "lower-casing": "İSTANBUL ΣΊΣΥΦΟΣ ÄÖÜ DŽ Ω",
    "Korean in parts": "한국어 \u1112\u1161\u11ab ﾡￂﾤ",
    "quotation marks and dashes": "„Hund“ ‚Katze‘ – — … ‐ \u00ad",
    "spaces of all kinds": "\u2003ein\u2009hund\u3000\u2028läuft\u0085schnell\x1c\x1f",
    "▁ at the ends": "▁▁ein▁ ▁hund▁▁",
    "unknown letters in a row": "日本語 ein 犬犬犬hund☃☃",
    "numbers and signs": "3,50 € für 2½ kg @home #1 50% a_b a/b",
    "a long word": "Donaudampfschifffahrtsgesellschaftskapitänsmütze",
    "one letter, often": "a" * 500,
    "words without a space": "".join(f"{article}haus{number}" for number in range(99) for article in ("das", "ein")),
}
# defined where the scripts of the page are: takes JSON, gives JSON
ANSWER = """
let settings, tokenizer;
function answer([what, ...rest]) {
  settings ??= unpack(bytes());
  const model = new Transformer(settings);
  tokenizer ??= new SubwordTokenizer(settings);
  const encode = (sentence) => {
    try { return tokenizer.encode(sentence); } catch (error) { return { error: error.message }; }
  };
  const logits = (src, tgt) => {
    let cache = model.startCache(model.encode(src).memory), logits;
    return tgt.map((id) => ([{ cache, logits }] = model.step([id], [cache]), [...logits]));
  };
  const translate = (sentence, beamSize, prefix = [], changes = {}) => {
    const model = new Transformer(settings, changes);
    const { memory } = model.encode(tokenizer.encode(sentence).ids);
    let finished;
    const penalty = beamSize > 1 ? settings.search.length_penalty : 0;
    for ({ finished } of beamSearch(model, memory, beamSize, penalty, prefix));
    return finished.map(({ ids, logProb, score }) => ({ ids, logProb, score, text: tokenizer.decode(ids) }));
  };
  const hint = (sentence) => remark(sentence, tokenizer.encode(sentence));
  const lookups = (word) => { // how often joining the pieces of a word asks whether two make one
    const { ids } = tokenizer;
    let count = 0;
    tokenizer.ids = { get: (piece) => (count++, ids.get(piece)) };
    tokenizer.merge([...word]);
    tokenizer.ids = ids;
    return count;
  };
  const trace = (text, written, changes) => {
    const { ids } = tokenizer.encode(text), model = new Transformer(settings, changes);
    const lists = (found) => ArrayBuffer.isView(found) ? [...found] : typeof found === "object" && found
      ? Object.fromEntries(Object.entries(found).map(([name, inner]) => [name, lists(inner)])) : found;
    return lists(explain(written.length, { number: 1, model, tokenizer, ids, written }));
  };
  return { encode, logits, translate, hint, lookups, trace }[what](...rest);
}
"""
WORKER = ("tokenizer", "model", "search", "worker")
PARTS = "const PARTS = []; var receiveWeights = (part) => PARTS.push(part);"
BYTES = "const bytes = () => Uint8Array.from(atob(PARTS.join('')), (letter) => letter.charCodeAt(0)).buffer;"


@pytest.fixture(scope="module")
def translator():
    return Translator.load()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the page, its scripts and its weights, without the book around it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, BOOK / "translator" / "write_weights.py", folder / "translator"]
    subprocess.run(command, check=True)
    markdown = (BOOK / "try_it.md").read_text(encoding="utf-8")
    parts = "\n".join(re.findall(r"```\{raw\} html\n(.*?)```", markdown, re.DOTALL))
    page = '<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8">'
    page += f'<meta name="viewport" content="width=device-width"><title>Try it</title><article>{parts}</article>'
    (folder / "try_it.html").write_text(page, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def ask(site):
    """Call a function of ``ANSWER`` in node, once for each of a list of arguments. (Chromium has the same engine.)"""
    if not (node := shutil.which("node")):
        pytest.skip("node is not installed: apt-get install nodejs")
    scripts = [site / "translator" / f"{name}.js" for name in WORKER]
    weights = sorted((site / "translator").glob("weights_*.js"))
    listen = "require('readline').createInterface(process.stdin).on('line', (line) => "
    listen += "console.log(JSON.stringify(JSON.parse(line).map(answer))));"
    worker, loads = ([path.read_text(encoding="utf-8") for path in paths] for paths in (scripts, weights))
    program = site / "program.js"
    program.write_text("\n".join([*worker, PARTS, BYTES, *loads, ANSWER, listen]), encoding="utf-8")
    with subprocess.Popen([node, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def answers(*calls):
            process.stdin.write(json.dumps(calls) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield answers
        process.stdin.close()


def sentences():
    """Test sentences and their references: Multi30k's where it is, else the sample corpus's."""
    try:
        pairs = load_corpus("multi30k")["test_2016_flickr"]
    except CorpusError:
        corpus = load_corpus("sample")
        pairs = corpus[corpus.splits[-1]]
    return [pair.src for pair in pairs], [pair.tgt for pair in pairs]


def ids_of(translator, sentence):
    return [translator.src_tokenizer.vocab[token] for token in translator.source_tokens(sentence)]


@pytest.mark.slow
def test_a_sentence_becomes_the_same_ids(ask, translator):
    texts, _ = sentences()
    answers = ask(*(["encode", text] for text in texts))
    assert [answer["tokens"] for answer in answers] == [translator.source_tokens(text) for text in texts]
    assert [answer["ids"] for answer in answers] == [ids_of(translator, text) for text in texts]


@pytest.mark.slow
def test_nasty_texts_become_the_same_ids_or_are_refused(ask, translator):
    # The page refuses longer ones by their number of characters: test_what_cannot_be_translated_is_refused_in_words.
    texts = {name: text for name, (text, *_) in NASTY.items() if len(text) < 64_000} | NASTIER
    for name, text in texts.items():
        answer = ask(["encode", text])[0]
        try:
            tokens = translator.src_tokenizer.tokenize(text)
        except ValueError:
            assert "error" in answer, name
        else:
            assert answer.get("tokens") == ["<sos>", *tokens, "<eos>"], name
            assert answer["ids"] == [translator.src_tokenizer.vocab[token] for token in answer["tokens"]], name


@pytest.mark.slow
def test_a_word_twice_as_long_takes_hardly_more_than_twice_the_work(ask):
    short, long = ask(*(["lookups", ("donaudampfschifffahrt" * 200)[:length]] for length in (2_000, 4_000)))
    assert 4_000 < long < 2.2 * short


@pytest.mark.slow
def test_english_is_remarked_upon_and_german_is_not(ask):
    """Which language a sentence has is only guessed, from a few words: so of German none, and of English nearly all."""
    german, english = sentences()
    assert not any("English" in answer for answer in ask(*(["hint", text] for text in german)))
    remarked = sum("English" in answer for answer in ask(*(["hint", text] for text in english)))
    assert remarked >= 0.95 * len(english)


@pytest.mark.slow
def test_the_longest_caption_is_as_long_as_the_page_says(translator):
    try:
        captions = load_corpus("multi30k")["train"]
    except CorpusError:
        pytest.skip("Multi30k is not here")
    longest = max(len(ids_of(translator, pair.src)) for pair in captions)
    said = re.search(r"LONGEST_CAPTION = (\d+)", (BOOK / "translator" / "worker.js").read_text(encoding="utf-8"))
    assert int(said[1]) == longest


@pytest.mark.slow
def test_a_subword_has_as_many_characters_as_the_page_says(translator):
    try:
        german = [pair.src for pair in load_corpus("multi30k")["train"][:5000]]
    except CorpusError:
        pytest.skip("Multi30k is not here")
    subwords = sum(len(translator.src_tokenizer.tokenize(sentence)) for sentence in german)
    source = (BOOK / "translator" / "worker.js").read_text(encoding="utf-8")
    said = re.search(r"CHARACTERS_A_SUBWORD = ([\d.]+)", source)
    assert float(said[1]) == pytest.approx(sum(map(len, german)) / subwords, abs=0.05)


@pytest.mark.slow
@torch.inference_mode()
def test_logits_are_those_of_pytorch(ask, translator):
    for text in sentences()[0][:3]:
        src = ids_of(translator, text)
        tgt = [translator.tgt_tokenizer.sos_id, *greedy_search(translator.model, torch.tensor([src]), 2, 3)[0].ids[:-1]]
        logits = torch.tensor(ask(["logits", src, tgt])[0])  # [tgt_len, vocab]
        expected = translator.model(torch.tensor([src]), torch.tensor([tgt]))[0]
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_translations_are_those_of_the_library(ask, translator):
    texts = sentences()[0][:30]
    for beam_size in (1, 4):
        best = [hypotheses[0] for hypotheses in ask(*(["translate", text, beam_size] for text in texts))]
        expected = translator.translate(texts, beam_size)
        assert [hypothesis["text"] for hypothesis in best] == [translation.text for translation in expected]
        for name, attribute in (("logProb", "log_prob"), ("score", "score")):
            torch.testing.assert_close(
                torch.tensor([hypothesis[name] for hypothesis in best]),
                torch.tensor([getattr(translation, attribute) for translation in expected]),
                rtol=0,
                atol=1e-3,
            )


@pytest.mark.slow
def test_a_beam_finishes_the_same_hypotheses(ask, translator):
    src = torch.tensor([ids_of(translator, SENTENCE)])
    expected = beam_search(translator.model, src, 2, 3, 4, translator.length_penalty)[0]
    assert [hypothesis["ids"] for hypothesis in ask(["translate", SENTENCE, 4])[0]] == [
        hypothesis.ids for hypothesis in expected
    ]


@pytest.mark.slow
def test_a_text_that_never_ends_stops_at_the_librarys_length(ask, translator):
    text = " ".join(["hund"] * 100)
    limit = min(len(ids_of(translator, text)) + 50, translator.model.config.max_len)
    best = ask(["translate", text, 1])[0][0]
    expected = translator.translate([text], 1)[0]
    assert best["text"] == expected.text and len(best["ids"]) == len(expected.tgt_tokens) <= limit


@pytest.mark.slow
def test_a_translation_goes_on_from_a_prefix(ask, translator):
    other = translator.tgt_tokenizer.vocab["▁dogs"]
    for beam_size in (1, 4):
        best = ask(["translate", SENTENCE, beam_size])[0][0]
        again = ask(["translate", SENTENCE, beam_size, best["ids"][:4]])[0][0]
        assert again["ids"] == best["ids"] and abs(again["logProb"] - best["logProb"]) < 1e-4
        ids = ask(["translate", SENTENCE, beam_size, [best["ids"][0], other]])[0][0]["ids"]
        assert ids[:2] == [best["ids"][0], other] and ids[-1] == 3
        assert ask(["translate", SENTENCE, beam_size, [*best["ids"]]])[0][0]["ids"] == best["ids"]


@pytest.mark.slow
def test_all_translations_are_those_of_the_library(ask, translator):
    """Half an hour's work on a slow machine: the whole test split, greedily."""
    texts, references = sentences()
    written = [hypotheses[0]["text"] for hypotheses in ask(*(["translate", text, 1] for text in texts))]
    translations = translator.translate(texts, 1)
    same = sum(text == translation.text for text, translation in zip(written, translations, strict=True))
    assert same >= 0.99 * len(texts)
    english = translator.tgt_tokenizer
    in_node = bleu.by_definition(
        [english.words(text) for text in written], [english.words(text) for text in references]
    )
    in_torch = bleu.score(translations, references, english)[0].value
    assert abs(in_node - in_torch) < 0.1


@contextlib.contextmanager
def changed(model, mask=True, scale=True, positions=True, silenced=()):
    """The library's model without the causal mask, without √d_k, without positions, or heads such as "cross 3.4"."""
    size = model.config.d_model // model.config.num_heads
    attentions = {f"encoder {n}": layer.self_attn for n, layer in enumerate(model.encoder.layers, start=1)}
    attentions |= {f"decoder {n}": layer.self_attn for n, layer in enumerate(model.decoder.layers, start=1)}
    attentions |= {f"cross {n}": layer.cross_attn for n, layer in enumerate(model.decoder.layers, start=1)}

    def silence(heads, inputs):
        joined = inputs[0].clone()
        for head in heads:
            joined[..., (head - 1) * size : head * size] = 0
        return joined

    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        if not mask:
            patch.setattr("transformer_lib.model.transformer.target_mask", padding_mask)
        for name, attention in attentions.items():
            heads = [int(one[-1]) for one in silenced if one[:-2] == name]
            hook = functools.partial(silence, heads)
            stack.enter_context(attention.out_proj.register_forward_pre_hook(lambda _, inputs, hook=hook: hook(inputs)))
            if not scale:
                # the queries become larger, before the scores are divided by as much
                stack.enter_context(attention.q_proj.register_forward_hook(lambda _, inputs, q: q * size**0.5))
        if not positions:
            for embedding in (model.src_embedding, model.tgt_embedding):
                stack.enter_context(embedding.positions.register_forward_hook(lambda _, inputs, table: 0 * table))
        yield


CHANGES = [
    {},
    {"mask": False},
    {"scale": False},
    {"positions": False},
    {"silenced": ["encoder 1.2", "decoder 3.1", "cross 1.1", "cross 3.4"]},
]


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_translations_with_something_taken_away_are_those_of_the_library_without_it(ask, translator, changes):
    texts = sentences()[0][:6]
    for beam_size, penalty in ((1, 0.0), (4, translator.length_penalty)):
        best = [found[0] for found in ask(*(["translate", text, beam_size, [], changes] for text in texts))]
        with changed(translator.model, **changes):
            expected = [
                beam_search(
                    translator.model,
                    torch.tensor([ids_of(translator, text)]),
                    2,
                    3,
                    beam_size,
                    penalty,
                    use_cache=False,
                )[0][0]
                for text in texts
            ]
        assert [one["ids"] for one in best] == [one.ids for one in expected]
        found, wanted = ([one["logProb"] for one in best], [one.log_prob for one in expected])
        torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), rtol=0, atol=1e-3)


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_each_number_of_the_figure_is_the_librarys(ask, translator, changes):
    """What each module of the library computes for this sentence, with the same taken away, noted by hooks."""
    model = translator.model.eval()
    heads = model.config.num_heads
    written = greedy_search(model, torch.tensor([ids_of(translator, SENTENCE)]), 2, 3)[0].ids[:4]
    src, tgt = torch.tensor([ids_of(translator, SENTENCE)]), torch.tensor([[2, *written]])
    trace = ask(["trace", SENTENCE, written, changes])[0]
    enters, leaves = {}, {}

    def note(name, module, inputs, output):
        enters[name], leaves[name] = inputs[0], output[0] if isinstance(output, tuple) else output

    hooks = [m.register_forward_hook(functools.partial(note, name)) for name, m in model.named_modules()]
    with changed(model, **changes):
        model(src, tgt)
        maps = model.attention_maps(src, tgt)
    for hook in hooks:
        hook.remove()

    def compare(found, expected):
        if isinstance(found, dict):  # rows, such as keys
            found = [found[str(i)] for i in range(len(found))]
        found = torch.tensor(found, dtype=torch.float32).flatten()
        torch.testing.assert_close(found, expected.flatten(), rtol=0, atol=1e-3)

    def layer_of(stack, number):
        return trace["source" if stack == "encoder" else "target"]["layers"][str(number)]

    for stack, side, ids in (("encoder", "source", src), ("decoder", "target", tgt)):
        embedding = {"encoder": "src_embedding", "decoder": "tgt_embedding"}[stack]
        compare(trace[side]["tokens"], translator.model.src_embedding.tokens(ids)[0])
        compare(trace[side]["places"], leaves[f"{embedding}.positions"] * changes.get("positions", True))
        compare(trace[side]["x"], enters[f"{stack}.layers.0"])
        compare(trace[side]["output"], leaves[f"{stack}.norm"])
        for number in range(model.config.num_layers):
            name, found = f"{stack}.layers.{number}", layer_of(stack, number)
            norms = {"self_attn": "norm1", "cross_attn": "norm2", "feed_forward": "norm3"}
            if stack == "encoder":
                norms = {"self_attn": "norm1", "feed_forward": "norm2"}
            x = enters[name]
            for part, norm in norms.items():
                compare(found[part]["enters"], x)
                compare(found[part]["norm"], leaves[f"{name}.{norm}"])
                compare(found[part]["out"], leaves[f"{name}.{part}"])
                x = x + leaves[f"{name}.{part}"]
                compare(found[part]["sum"], x)
            compare(found["feed_forward"]["inner"], leaves[f"{name}.feed_forward.linear1"].relu())
            compare(found["feed_forward"]["sum"], leaves[name])
            for part, kind in (("self_attn", stack), ("cross_attn", "cross")):
                if part not in norms:
                    continue
                q, k, v = (leaves[f"{name}.{part}.{which}_proj"] for which in "qkv")
                for which, expected in {"q": q, "keys": k, "values": v}.items():
                    compare(found[part][which], expected)
                compare(found[part]["joined"], enters[f"{name}.{part}.out_proj"])
                q, k = (x[0].unflatten(-1, (heads, -1)).transpose(0, 1) for x in (q, k))
                for head in range(heads):
                    compare(found[part]["dots"][str(head)], q[head] @ k[head].T)
                    compare(found[part]["maps"][str(head)], getattr(maps, kind)[number][0, head])

    for number in range(model.config.num_layers + 1):  # the lens: in place of what leaves the last layer
        x = enters["decoder.layers.0"] if not number else leaves[f"decoder.layers.{number - 1}"]
        logits = model.output(model.decoder.norm(x))[0]
        logits[:, [1, 2]] = -torch.inf
        log_probs, best = logits.log_softmax(dim=-1).topk(3)
        for position, of_position in trace["lens"][str(number)].items():
            of_position = [of_position[str(i)] for i in range(3)]
            assert [one["id"] for one in of_position] == best[int(position)].tolist()
            compare([one["logProb"] for one in of_position], log_probs[int(position)])
            compare([one["logit"] for one in of_position], logits[int(position), best[int(position)]])


# The page, as a reader uses it.
@pytest.fixture(scope="module")
def server(site):
    """The address of a web server that has the page."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_address[1]}/try_it.html"
        web.shutdown()
        thread.join()


@pytest.fixture
def show(_chromium, site):
    """Open the page, and see in the end that no problem came up: no error, and no request to anywhere else."""
    opened = []

    def open_page(address=None):
        page, problems = _chromium.open(address or site / "try_it.html")
        page.set_default_timeout(120_000)  # a busy machine may take long, and nothing here is about speed
        opened.append((page, problems))
        return page

    yield open_page
    for page, problems in opened:
        page.context.close()
        assert not problems


@pytest.fixture(scope="module")
def _loaded(_chromium, site):
    page, problems = _chromium.open(site / "try_it.html")
    page.set_default_timeout(120_000)
    translate(page)
    yield page, problems
    page.context.close()


@pytest.fixture
def page(_loaded):
    """The page with the model loaded, which takes a second: so tests share it, as a reader's visit goes on."""
    page, problems = _loaded
    open_view(page, "Alternatives")
    page.mouse.move(0, 0)
    yield page
    assert not problems


def field(page):
    return page.get_by_role("textbox", name="A German sentence")


def enter(page, text):
    """Click into the field, type over what is there, and press Enter; a long text is pasted."""
    field(page).click()
    page.keyboard.press("ControlOrMeta+A")
    (page.keyboard.insert_text if len(text) > 200 else functools.partial(press_keys, page))(text)
    page.keyboard.press("Enter")


def translate(page, sentence=SENTENCE):
    """Type a sentence, press Enter, and wait until its translation stands there."""
    enter(page, sentence)
    wait(page)


def wait(page):
    page.locator(".results:not(.busy) .target button").first.wait_for()
    page.wait_for_function("document.querySelector('.translator .status').textContent === ''")


def translation(page):
    return page.locator(".translation").inner_text()


def open_view(page, name):
    page.get_by_role("radio", name=name, exact=True).check()
    return page.get_by_role("region", name=name, exact=True)


def token(page, number):
    return page.get_by_role("group", name="What the model writes").get_by_role("button").nth(number)


def shown_words(viewer, part):
    return viewer.locator({"rows": ".queries span", "columns": ".keys .word"}[part]).all_inner_texts()


def shown_weights(viewer):
    return torch.tensor([float(text) for text in viewer.locator(".keys .word + span").all_inner_texts()])


@pytest.mark.slow
def test_a_sentence_is_translated_from_a_disk_and_from_a_server(show, server):
    for address in (None, server):
        page = show(address)
        translate(page)
        assert translation(page) == TRANSLATION
        assert page.get_by_role("list", name="What the model reads").locator("li").all_inner_texts() == [
            *("<sos>", "im", "park", "spielen", "zwei", "kinder", "fußball", ".", "<eos>")
        ]
        page.get_by_role("radio", name="Greedy").check()
        page.wait_for_function(
            "document.querySelector('.translation').textContent.startsWith('two children playing soccer')"
        )
        wait(page)
        assert translation(page) == "two children playing soccer in the park."


def weights_loaded(page):
    return page.locator("script[src*=weights]").count()


def test_keys_do_in_the_field_what_keys_do(show):
    """As a visitor arrives, who has loaded nothing yet, and presses nothing but keys."""
    page = show()
    field(page).focus()
    page.keyboard.press("ControlOrMeta+A")
    press_keys(page, "Große Hunde spielen im Grünnn")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    press_keys(page, "en.")
    page.keyboard.press("Shift+Enter")
    press_keys(page, "Ä")
    assert field(page).input_value() == "Große Hunde spielen im Grünen.\nÄ"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "search"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.id") == "german"
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    assert not weights_loaded(page) and not page.locator(".results").is_visible()
    page.keyboard.press("Enter")
    wait(page)
    assert "large dogs" in translation(page) or "big dogs" in translation(page)
    assert field(page).input_value() == "Große Hunde spielen im Grünen."


@pytest.mark.slow
def test_enter_that_ends_a_composition_does_not_translate(show):
    """Who writes with an input method presses Enter to take what it offers."""
    page = show()
    field(page).click()
    page.keyboard.press("ControlOrMeta+A")
    session = page.context.new_cdp_session(page)
    session.send("Input.imeSetComposition", {"text": "Hund", "selectionStart": 4, "selectionEnd": 4})
    page.keyboard.press("Enter")
    session.send("Input.insertText", {"text": "Hund"})
    assert not weights_loaded(page) and field(page).input_value().strip() == "Hund"
    page.keyboard.press("Enter")
    wait(page)


@pytest.mark.slow
def test_what_the_model_weighs_is_said_once_before_it_is_loaded(show, site):
    page = show()
    group = page.get_by_role("group", name="Examples")
    said = page.locator(f"#{group.get_attribute('aria-describedby')}")
    assert said.is_visible() and page.locator("#translator").inner_text().count("MB") == 1
    size = sum(path.stat().st_size for path in (site / "translator").glob("weights_*.js")) / 1e6
    assert f" {size:.1f} MB" in said.inner_text() and not weights_loaded(page)
    group.get_by_role("button", name="Im Park").click()
    wait(page)
    assert translation(page) == TRANSLATION and not said.is_visible()


LONG = "hund " * 200  # of which the model never finds an end


@pytest.mark.slow
def test_long_work_shows_how_far_it_is_and_can_be_stopped(page):
    for how in ("the button", "Escape"):
        translate(page)
        enter(page, LONG)
        page.get_by_text(re.compile(r"^about \d+ s more$")).wait_for()
        bar = page.get_by_role("progressbar")
        first = bar.evaluate("bar => bar.value")
        page.wait_for_function("first => document.querySelector('progress').value > first", arg=first)
        if how == "Escape":
            page.keyboard.press("Escape")
        else:
            page.get_by_role("button", name="Stop").click()
            assert page.evaluate("document.activeElement.className") == "go"  # the focus is not lost with the button
        page.get_by_role("status").get_by_text("Stopped").wait_for()
        left = translation(page)
        assert left.startswith("dog ") and not bar.is_visible()
        assert page.get_by_role("list", name="What the model reads").locator("li").count() == 202  # of the same text
        page.wait_for_timeout(300)
        assert translation(page) == left
    translate(page)
    assert translation(page) == TRANSLATION


@pytest.mark.slow
def test_stop_ends_what_the_worker_does(show):
    page = show()
    page.evaluate(
        "const { set } = Object.getOwnPropertyDescriptor(Worker.prototype, 'onmessage'); window.kinds = [];"
        "Object.defineProperty(Worker.prototype, 'onmessage', { set(receive) {"
        "set.call(this, (event) => { kinds.push(event.data.kind); receive(event); }) } })"
    )
    enter(page, LONG)
    page.wait_for_function("kinds.filter((kind) => kind === 'step').length > 3")
    page.keyboard.press("Escape")
    page.wait_for_timeout(500)  # what was on its way
    before = page.evaluate("kinds.length")
    page.wait_for_timeout(1_500)
    assert page.evaluate("kinds.length") == before and "done" not in page.evaluate("kinds")


@pytest.mark.slow
def test_loading_can_be_stopped_and_goes_on_where_it_was(show):
    page = show()
    waiting = []
    page.route("**/weights_05.js", lambda route: route.continue_() if waiting else waiting.append(route))
    enter(page, SENTENCE)
    page.get_by_text(re.compile(r"^\d+\.\d of [\d.]+ MB$")).wait_for()
    page.wait_for_function("document.querySelectorAll('script[src*=weights]').length === 6")
    page.get_by_role("button", name="Stop").click()
    waiting[0].continue_()
    page.wait_for_timeout(300)
    assert weights_loaded(page) == 6 and page.get_by_role("status").get_by_text("Stopped").is_visible()
    page.get_by_role("button", name="Load the model and translate").click()
    wait(page)
    assert translation(page) == TRANSLATION
    sources = page.locator("script[src*=weights]").evaluate_all("all => all.map(({ src }) => src)")
    assert len(sources) == len(set(sources))


@pytest.mark.slow
def test_what_the_model_has_not_learned_is_remarked_upon_and_translated(page):
    for text, said in (
        ("A dog is running.", "English"),
        ("Собака бежит по траве.", "unknown to the model"),
        (LONG, "captions of one sentence"),
        ("Der Hund läuft. Die Katze schläft. Das Kind spielt.", "learned from single sentences"),
    ):
        enter(page, text)
        page.get_by_role("status").get_by_text(said).wait_for()
        if text != LONG:
            wait(page)
        translate(page)
        assert translation(page) == TRANSLATION and not page.locator(".remark").inner_text()


@pytest.mark.slow
def test_nothing_of_an_older_sentence_can_be_picked_for_the_one_in_the_field(page):
    translate(page)
    place = page.locator(".alternatives li button").first.bounding_box()
    page.locator("textarea").click()
    page.keyboard.press("End")
    press_keys(page, " x")
    page.mouse.click(place["x"] + 5, place["y"] + 5)
    assert translation(page) == TRANSLATION and not page.locator(".again").is_visible()
    page.locator("textarea").click()
    page.keyboard.press("End")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.mouse.click(place["x"] + 5, place["y"] + 5)
    page.get_by_text("You picked").wait_for()


@pytest.mark.slow
def test_an_example_is_translated_by_a_click(page):
    page.get_by_role("group", name="Examples").get_by_role("button", name="Der Mann hebt den Ball auf.").click()
    wait(page)
    assert translation(page) == "the man is raising the ball."


@pytest.mark.slow
def test_the_page_answers_while_the_worker_computes(show):
    """The worker's last message is held back, so that it is not through before the page is looked at, however fast."""
    page = show()
    page.evaluate(
        "const { set } = Object.getOwnPropertyDescriptor(Worker.prototype, 'onmessage'); window.held = [];"
        "Object.defineProperty(Worker.prototype, 'onmessage', { set(receive) { window.receive = receive;"
        "set.call(this, (event) => (event.data.kind === 'done' ? held.push(event) : receive(event))) } })"
    )
    enter(page, "Ein Hund spielt.")
    page.wait_for_function("held.length === 1")
    assert page.locator(".results.busy").count() == 1
    page.keyboard.press("ControlOrMeta+A")
    press_keys(page, "Ich schreibe schon weiter.")
    assert page.locator(".results.busy").count() == 1
    page.evaluate("held.forEach(receive)")
    wait(page)
    assert translation(page) == "a dog is playing."
    assert field(page).input_value() == "Ich schreibe schon weiter."
    assert page.evaluate("typeof Transformer") == "undefined"  # it has no model to compute with


@pytest.mark.slow
def test_a_newer_sentence_takes_the_place_of_an_older_one(page):
    translate(page)
    enter(page, "Ein Hund " * 30)
    translate(page)
    assert translation(page) == TRANSLATION


@pytest.mark.slow
def test_what_cannot_be_translated_is_refused_in_words(page):
    for text, said in (
        ("  ", "at least one word"),
        ("hund " * 300, "The model can read 256 subwords, some 1100 characters"),
        ("hund" * 16_000, "64,000 characters"),  # these three are refused before what would take a minute and more
        ("a" + "\u0301\u0323" * 32_000, "64,001 characters"),
        ("▁" * 64_000 + "a", "64,001 characters"),
    ):
        enter(page, text)
        page.get_by_role("status").get_by_text(said).wait_for()
        assert not page.locator(".results").is_visible()
        translate(page)
        assert translation(page) == TRANSLATION


@pytest.mark.slow
def test_a_hostile_text_is_text(page):
    translate(page, "<img src=x onerror='window.hacked = 1'> </script><script>window.hacked = 1</script>")
    for view in VIEWS:
        open_view(page, view)
    assert page.evaluate("window.hacked") is None and page.locator("#translator img").count() == 0


@pytest.mark.slow
def test_the_alternatives_are_the_models_and_the_translation_goes_on_from_one(page, translator):
    translate(page)
    token(page, 2).click()
    panel = open_view(page, "Alternatives")
    model, vocab = translator.model, translator.tgt_tokenizer.vocab
    tgt = torch.tensor([[2, vocab["▁two"], vocab["▁children"]]])
    with torch.inference_mode():
        logits = model(torch.tensor([ids_of(translator, SENTENCE)]), tgt)[0, -1]
        logits[[1, 2]] = -torch.inf
    probabilities, ids = logits.softmax(dim=-1).topk(6)
    expected = [
        f"{vocab.itos[i].removeprefix('▁')} {100 * p:.1f} %"
        for i, p in zip(ids.tolist(), probabilities.tolist(), strict=True)
    ]
    lines = [
        " ".join(text.split()).removesuffix(" written") for text in panel.get_by_role("listitem").all_inner_texts()
    ]
    assert lines == expected
    panel.get_by_role("button", name=re.compile("^play ")).click()
    page.get_by_text("You picked “play”").wait_for()
    wait(page)
    assert translation(page).startswith("two children play ") and translation(page).endswith(".")
    assert token(page, 2).get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("You picked").wait_for(state="hidden")
    wait(page)
    assert translation(page) == TRANSLATION


@pytest.mark.slow
def test_the_source_is_shaded_for_the_token_under_the_mouse_and_under_the_keyboard(page):
    translate(page)
    shades = "[...document.querySelectorAll('.source li')].map((one) => Number(one.style.getPropertyValue('--weight')))"
    token(page, 1).hover()
    assert page.locator(".looks").inner_text().startswith("Writing “children”, it looks most at “kinder”")
    assert abs(sum(page.evaluate(shades)) - 1) < 0.02
    token(page, 4).focus()
    assert page.locator(".looks").inner_text().startswith("Writing “soccer”, it looks most at “fußball”")
    token(page, 4).blur()  # and what is said is about the chosen one again
    pressed = page.locator(".target [aria-pressed=true]").inner_text().split("\n")[0]
    assert page.locator(".looks").inner_text().startswith(f"Writing “{pressed}”")


@pytest.mark.slow
def test_the_heads_can_be_walked_by_keyboard_and_are_the_librarys(page, translator):
    translate(page)
    token(page, 0).click()
    page.get_by_role("radio", name="Alternatives").focus()
    page.keyboard.press("ArrowRight")
    viewer = page.get_by_role("region", name="Attention").locator(".attention-viewer")
    maps = translator.translate([SENTENCE], attention=True)[0].attention
    compare = functools.partial(torch.testing.assert_close, rtol=0, atol=0.0011)
    compare(shown_weights(viewer), maps.cross[2][0, 0, 0])
    token(page, 1).press("Enter")  # the viewer follows the token that is chosen
    compare(shown_weights(viewer), maps.cross[2][0, 0, 1])
    token(page, 0).press("Enter")
    page.get_by_role("radio", name="Attention").focus()
    page.keyboard.press("Tab")  # to the viewer's first menu
    page.keyboard.press("ArrowUp")  # kind: from cross-attention to the decoder's
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")  # layer: from 3 to 2
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # head: from 1 to 2
    page.keyboard.press("Tab")
    for row in (1, 2):
        page.keyboard.press("ArrowRight")
        compare(shown_weights(viewer), maps.decoder[1][0, 1, row])
    viewer.get_by_role("combobox", name="Kind").select_option("Encoder self-attention")
    compare(shown_weights(viewer), maps.encoder[1][0, 1, 2])
    translate(page, "Ein Hund rennt.")
    assert shown_words(viewer, "rows") == ["<sos>", "ein", "hund", "rennt", ".", "<eos>"]
    assert viewer.get_by_role("combobox").evaluate_all("all => all.map((menu) => menu.value)") == [
        *("Encoder self-attention", "2", "2")
    ]


# of each edge: does it go from the right of a box to the left of one in the next column?
EDGES = """
() => {
  const { left, top } = document.querySelector(".tree svg").getBoundingClientRect();
  const boxes = [...document.querySelectorAll(".tree li")].map((one) => one.getBoundingClientRect());
  const near = (x, y, edge) => boxes.some((box) =>
    Math.abs(box[edge] - left - x) < 2 && Math.abs((box.top + box.bottom) / 2 - top - y) < 2);
  const paths = [...document.querySelectorAll(".tree path")].map((path) => path.getAttribute("d").split("M").slice(1));
  const hang = paths.flat().map((curve) => curve.split(/[C ]/).map(Number))
    .map((n) => near(n[0], n[1], "right") && near(n[6], n[7], "left") && n[6] - n[0] === 20);
  return { boxes: boxes.length, hang };
}
"""


@pytest.mark.slow
def test_the_beams_tree_and_its_hypotheses_are_shown(page, translator):
    translate(page)
    panel = open_view(page, "Beam")
    tree = panel.get_by_role("list", name="The beam, step by step")
    best = [line.split("\n")[0] for line in tree.locator("li.best").all_inner_texts()]
    assert best[0] == "<sos>" and best[1:4] == ["two", "children", "are"]
    drawn = page.evaluate(EDGES)
    assert drawn["boxes"] == tree.get_by_role("listitem").count() == len(drawn["hang"]) + 1
    assert all(drawn["hang"])
    rows = [row.split("\t") for row in panel.get_by_role("row").all_inner_texts()[1:]]
    expected = beam_search(
        translator.model, torch.tensor([ids_of(translator, SENTENCE)]), 2, 3, 4, translator.length_penalty
    )[0]
    texts = [translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(hypothesis.ids)) for hypothesis in expected]
    assert [row[0].strip() for row in rows] == texts
    assert [row[3].strip() for row in rows] == [f"{hypothesis.score:.3f}".replace("-", "−") for hypothesis in expected]
    vocab = (
        translator.tgt_tokenizer.vocab
    )  # where greedy search, which the page says would write "playing", goes elsewhere
    tgt = torch.tensor([[2, vocab["▁two"], vocab["▁children"]]])
    with torch.inference_mode():
        logits = translator.model(torch.tensor([ids_of(translator, SENTENCE)]), tgt)[0, -1]
    likely, taken = (100 * logits.softmax(dim=-1)[vocab[f"▁{word}"]].item() for word in ("playing", "are"))
    assert likely == pytest.approx(100 * logits.softmax(dim=-1).max().item())
    said = (
        f"After “<sos> two children”, greedy search would take “playing” ({likely:.1f} %). The best hypothesis goes on "
    )
    assert panel.locator(".greedy").inner_text() == f"{said}with “are” ({taken:.1f} %)."


def opened(page):
    """The panel of figure 1, as soon as it shows what was computed."""
    page.locator(".panel[aria-busy=false]").wait_for()
    return page.get_by_role("region", name="The open box")


def press_box(page, name, stack):
    """Press a box of the encoder or decoder, the lowest of that name: by its keys."""
    boxes = page.locator(f"[data-stack={stack}] button, button[data-stack={stack}]").filter(
        has_text=re.compile(f"^{re.escape(name)}")
    )
    boxes.first.press("Enter")
    return opened(page)


def numbers(text):
    """The numbers of a vector as it is shown, the first few."""
    return torch.tensor([float(word) for word in text.replace("−", "-").strip("[]… ").rstrip(", …").split(", ")])


def shown_vectors(panel):
    return [numbers(text) for text in panel.locator(".vectors code:visible").all_inner_texts()]


def compare(found, expected, places=2):
    """Numbers on the page are rounded to so many decimal places."""
    torch.testing.assert_close(
        torch.as_tensor(found), torch.as_tensor(expected), rtol=0, atol=0.51 * 10**-places + 1e-3 * (places < 3)
    )


def column(panel, name):
    """The numbers in a column of the table that has it."""
    found = panel.locator("table:visible").filter(has=panel.page.get_by_role("columnheader", name=name, exact=True))
    place = found.first.get_by_role("columnheader").all_inner_texts().index(name)
    cells = found.first.locator(f"tbody td:nth-child({place + 1})").all_inner_texts()
    return torch.tensor([float(cell.replace("−", "-").replace("∞", "inf").removesuffix(" %")) for cell in cells])


@pytest.mark.slow
def test_each_box_of_figure_1_opens_by_click_and_by_key(page):
    translate(page)
    open_view(page, "Figure 1")
    panel, boxes = opened(page), page.locator(".model button")
    assert boxes.count() == 28
    names = boxes.evaluate_all("all => all.map((one) => one.dataset.title)")
    assert len(set(names)) == len(names)
    for number, name in enumerate(names):
        box = boxes.nth(number)
        (box.click if number % 3 == 0 else functools.partial(box.press, ("Enter", "Space")[number % 2]))()
        assert boxes.evaluate_all("all => all.map((one) => one.ariaPressed)").index("true") == number
        assert page.locator(".model [aria-pressed=true]").count() == 1
        assert panel.get_by_role("status").inner_text() == name
        steps = panel.locator("[data-step]:visible")
        assert steps.count() and all(step.locator(".numbers").inner_text() for step in steps.all()), name
        assert panel.locator(".line:visible a").count(), name


@pytest.mark.slow
def test_the_sentence_flows_through_figure_1(page):
    translate(page)
    open_view(page, "Figure 1")
    opened(page)
    model = page.locator(".model")
    assert model.locator(".words.encoder span").all_inner_texts() == [
        *("<sos>", "im", "park", "spielen", "zwei", "kinder", "fußball", ".", "<eos>")
    ]
    token(page, 0).click()
    for step, read in enumerate((["<sos>"], ["<sos>", "two"], ["<sos>", "two", "children"])):
        assert model.locator(".words.decoder span").all_inner_texts() == read
        likely = model.locator(".likely span").all_inner_texts()
        assert len(likely) == 3
        assert token(page, step).inner_text().replace("\n", " ") in likely
        page.get_by_role("button", name="Next step").press("Enter")


def fourth_step(page, translator):
    """Show figure 1 as it writes the fourth word; return the model, and what it has read of both languages."""
    translate(page)
    open_view(page, "Figure 1")
    token(page, 3).click()
    vocab = translator.tgt_tokenizer.vocab
    written = [2, *(vocab[f"▁{word}"] for word in ("two", "children", "are"))]
    return translator.model, torch.tensor([ids_of(translator, SENTENCE)]), torch.tensor([written])


@pytest.mark.slow
@torch.inference_mode()
def test_an_open_attention_shows_the_librarys_numbers_for_the_chosen_layer_head_and_word(page, translator):
    model, src, tgt = fourth_step(page, translator)
    kept = {}
    hooks = [
        module.register_forward_hook(lambda _, inputs, output, name=name: kept.update({name: (inputs[0], output)}))
        for name, module in model.named_modules()
    ]
    model(src, tgt)
    for hook in hooks:
        hook.remove()
    for stack, name, part, layer, head, word in (
        ("decoder", "Self-attention", "decoder.layers.1.self_attn", 2, 3, 1),
        ("decoder", "Cross-attention", "decoder.layers.2.cross_attn", 3, 4, 3),
        ("encoder", "Self-attention", "encoder.layers.0.self_attn", 1, 2, 5),
    ):
        panel = press_box(page, name, stack)
        for menu, value in (("Layer", layer), ("Head", head), ("Word", word)):
            panel.get_by_role("combobox", name=menu).select_option(index=value - (menu != "Word"))
        q, k, v = (kept[f"{part}.{which}_proj"][1][0].unflatten(-1, (4, 64))[:, head - 1] for which in "qkv")
        dots = k @ q[word]
        compare(column(panel, "q · k"), dots)
        compare(column(panel, "÷ √64"), dots / 8)
        scores = dots / 8
        if part.startswith("decoder.layers.1"):
            hidden = panel.locator("table:visible tbody td:nth-child(5)").all_inner_texts()
            assert hidden == ["sees", "sees", "−∞", "−∞"]
            scores[2:] = -torch.inf
        weights = scores.softmax(dim=0)
        compare(column(panel, "weight"), weights, 3)
        shown, joined = shown_vectors(panel), kept[f"{part}.out_proj"][0][0, word]
        compare(shown[1], q[word, :4])
        best = weights.argsort(descending=True)[:3]
        for vector, j in zip(shown[2:], best.tolist(), strict=False):
            compare(vector, v[j, :4])
        compare(shown[5], joined.unflatten(-1, (4, 64))[head - 1, :4])
        compare(shown[10], joined[:4])
        compare(shown[11], kept[f"{part}.out_proj"][1][0, word, :4])


@pytest.mark.slow
@torch.inference_mode()
def test_all_other_boxes_show_the_librarys_numbers(page, translator):
    model, src, tgt = fourth_step(page, translator)
    x, table = model.tgt_embedding(tgt)[0], model.output.weight
    memory, mask = model.encode(src)
    panel = press_box(page, "Token embedding", "decoder")
    for vector, expected in zip(shown_vectors(panel), (table[tgt[0, 3]], 16 * table[tgt[0, 3]]), strict=True):
        compare(vector, expected[:4])
    panel = press_box(page, "+ Positions", "decoder")
    compare(shown_vectors(panel)[1], model.tgt_embedding.positions(4)[3, :4])
    compare(shown_vectors(panel)[2], x[3, :4])
    layer, causal = model.decoder.layers[0], torch.ones(4, 4, dtype=torch.bool).tril()
    y = layer.norm1(x)
    panel = press_box(page, "Norm", "decoder")
    compare(shown_vectors(panel)[1], y[3, :4])
    found = layer.self_attn(y[None], y[None], y[None], causal)[0][0]
    panel = press_box(page, "Add", "decoder")
    for vector, expected in zip(shown_vectors(panel), (x, found, x + found), strict=True):
        compare(vector, expected[3, :4])
    x = x + found
    x = x + layer.cross_attn(layer.norm2(x)[None], memory, memory, mask)[0][0]
    y = layer.norm3(x)
    inner = layer.feed_forward.linear1(y).relu()
    panel = press_box(page, "Feed-forward", "decoder")
    for vector, expected in zip(shown_vectors(panel), (y, inner, layer.feed_forward(y)), strict=True):
        compare(vector, expected[3, :4])
    assert f"{(inner[3] > 0).sum()} of them are above 0" in panel.inner_text()

    passed = [model.tgt_embedding(tgt)]
    for layer in model.decoder.layers:
        passed.append(layer(passed[-1], memory, causal, mask)[0])
    panel = press_box(page, "Decoder", "decoder")
    for vector, expected in zip(shown_vectors(panel), passed, strict=True):
        compare(vector, expected[0, 3, :4])
    lens = model.output(model.decoder.norm(torch.cat(passed)))
    lens[..., [1, 2]] = -torch.inf
    rows = panel.locator("table:visible").first.locator("tbody tr").all_inner_texts()
    for row, of_layer in zip(rows, lens[:, 3], strict=True):
        probabilities, ids = of_layer.softmax(dim=-1).topk(3)
        expected = [
            f"{translator.tgt_tokenizer.vocab.itos[i].removeprefix('▁')} {100 * p:.1f} %"
            for i, p in zip(ids.tolist(), probabilities.tolist(), strict=True)
        ]
        assert [cell.removeprefix("·") for cell in row.split("\t")[1:]] == expected
    best = [
        [translator.tgt_tokenizer.vocab.itos[i].removeprefix("▁") for i in of_layer.argmax(dim=-1).tolist()]
        for of_layer in lens
    ]
    rows = panel.locator("table:visible").last.locator("tbody tr").all_inner_texts()
    assert [[cell.removeprefix("·") for cell in row.split("\t")[1:]] for row in rows] == best

    panel = press_box(page, "Memory", "encoder")
    for vector, expected in zip(shown_vectors(panel), memory[0], strict=True):
        compare(vector, expected[:4])
    logits = lens[-1, 3]
    panel = press_box(page, "Linear", "decoder")
    compare(shown_vectors(panel)[0], model.decoder.norm(passed[-1])[0, 3, :4])
    compare(column(panel, "logit"), logits.topk(6).values)
    panel = press_box(page, "Softmax", "decoder")
    compare(column(panel, "probability"), 100 * logits.softmax(dim=-1).topk(6).values, 1)


# the words that are not marked, of the translation and of what it was
UNMARKED = """() => ['.translation', '.plain'].map((selector) => {
  const texts = [...document.querySelector(selector).childNodes].filter((node) => node.nodeName === '#text')
  return texts.map(({ data }) => data.trim())
})"""


def pieces(text):
    """Words and punctuation marks, which are compared one by one."""
    return re.findall(r"[\w'’-]+|[^\w\s]", text)


@pytest.mark.slow
def test_a_switch_translates_anew_beside_what_it_was(page, translator):
    text = "Ein Mädchen mit roter Mütze zieht ihren Schlitten den verschneiten Hügel hinauf."
    translate(page, text)
    with_everything = translation(page)
    for changes, name in (
        ({"mask": False}, "the causal mask"),
        ({"scale": False}, "÷ √d_k"),
        ({"positions": False}, "the positions"),
    ):
        page.get_by_role("checkbox", name=name).press("Space")
        wait(page)
        with changed(translator.model, **changes):
            src = torch.tensor([ids_of(translator, text)])
            best = beam_search(translator.model, src, 2, 3, 4, translator.length_penalty, use_cache=False)[0][0]
        expected = translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(best.ids))
        assert translation(page) == expected
        compare_text = page.locator(".was")
        assert compare_text.locator(".plain").inner_text() == with_everything
        assert ("(the same)" in compare_text.inner_text()) == (expected == with_everything)
        unmarked = page.evaluate(UNMARKED)
        assert unmarked[0] == unmarked[1] and len(unmarked[0]) > 3
        marks = page.locator(".translation mark, .plain mark").count()
        assert marks == len(pieces(expected)) + len(pieces(with_everything)) - 2 * len(unmarked[0])
        assert page.locator(".note:visible").count() == 1
        page.get_by_role("button", name="Bring all back").press("Enter")
        wait(page)
        assert translation(page) == with_everything and not compare_text.is_visible()


@pytest.mark.slow
def test_of_two_switches_pressed_at_once_the_later_counts(page, translator):
    translate(page)
    page.get_by_role("checkbox", name="the positions").check()
    page.get_by_role("checkbox", name="the causal mask").check()
    wait(page)
    with changed(translator.model, positions=False, mask=False):
        src = torch.tensor([ids_of(translator, SENTENCE)])
        best = beam_search(translator.model, src, 2, 3, 4, translator.length_penalty, use_cache=False)[0][0]
    assert translation(page) == translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(best.ids))
    assert page.locator(".note:visible").count() == 2
    page.get_by_role("button", name="Bring all back").click()
    wait(page)


@pytest.mark.slow
def test_heads_are_silenced_by_key_and_come_back(page, translator):
    translate(page)
    panel = open_view(page, "Heads")
    heads = ["cross 1.1", "cross 2.1", "cross 3.4", "encoder 1.2"]
    for name in heads:
        kind, number = name.split()
        title = {"cross": "Cross-attention", "encoder": "Encoder self-attention"}[kind]
        button = (
            panel.get_by_role("group", name=title).get_by_role("button").filter(has=page.locator("b", has_text=number))
        )
        button.focus()
        place = button.bounding_box()
        button.press("Enter")
        wait(page)
        assert button.get_attribute("aria-pressed") == "true"
        assert button.evaluate("one => one === document.activeElement")  # so that the next is an arrow away
        assert button.bounding_box() == place  # and a second click meets it, too
        assert page.locator(".was").is_visible()
    with changed(translator.model, silenced=heads):
        src = torch.tensor([ids_of(translator, SENTENCE)])
        best = beam_search(translator.model, src, 2, 3, 4, translator.length_penalty)[0][0]
    assert translation(page) == translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(best.ids))
    assert page.locator(".silenced").inner_text() == f"Silenced: {', '.join(heads)}."
    page.get_by_role("button", name="Bring all back").click()
    wait(page)
    assert not panel.locator("[aria-pressed=true]").count() and translation(page) == TRANSLATION


@pytest.mark.slow
def test_arrows_lead_from_head_to_head_and_tab_past_them(page):
    translate(page)
    panel = open_view(page, "Heads")
    page.get_by_role("radio", name="Heads").focus()
    for _ in range(2):  # past "all 12"
        page.keyboard.press("Tab")
    numbers = []
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowUp", "ArrowUp"):
        numbers.append(page.evaluate("document.activeElement.querySelector('b').textContent"))
        page.keyboard.press(key)
    assert numbers == ["1.1", "1.2", "2.2", "2.1", "1.4", "1.4", "1.4"]  # nothing is above the first row
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "all 12"  # of the next kind
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.querySelector('b').textContent") == "1.4"
    assert panel.locator("[tabindex='0']").count() == 1


@pytest.mark.slow
def test_all_heads_of_a_kind_are_silenced_at_once_and_come_back(page, translator):
    said = set()
    for text in (SENTENCE, "Ein Hund rennt."):
        translate(page, text)
        with_everything = translation(page)
        group = open_view(page, "Heads").get_by_role("group", name="Cross-attention")
        group.get_by_role("button", name="all 12").press("Enter")
        wait(page)
        assert group.locator("[aria-pressed=true]").count() == 12
        said.add(translation(page))
        group.get_by_role("button", name="all 12").press("Enter")
        wait(page)
        assert translation(page) == with_everything and not page.locator(".was").is_visible()
    assert len(said) == 1 and "fisherman" in said.pop()  # as the page says: nothing of the source comes through


@pytest.mark.slow
def test_without_the_mask_maps_show_what_later_words_are_looked_at(page, translator):
    translate(page)
    page.get_by_role("checkbox", name="the causal mask").check()
    wait(page)
    panel = open_view(page, "Attention")
    viewer = panel.locator(".attention-viewer")
    for menu, choice in (("Kind", "Decoder self-attention"), ("Layer", "3"), ("Head", "1")):
        viewer.get_by_role("combobox", name=menu).select_option(choice)
    with changed(translator.model, mask=False):
        src = torch.tensor([ids_of(translator, SENTENCE)])
        best = beam_search(translator.model, src, 2, 3, 4, translator.length_penalty, use_cache=False)[0][0]
        maps = translator.model.attention_maps(src, torch.tensor([[2, *best.ids[:-1]]])).decoder
    token(page, 1).press("Enter")
    torch.testing.assert_close(shown_weights(viewer), maps[2][0, 0, 1], rtol=0, atol=0.0011)
    assert maps[2][0, 0, 1, 2:].sum() > 0.05
    panel = open_view(page, "Figure 1")
    press_box(page, "Self-attention", "decoder")
    assert "Without the mask, each word looks at all" in panel.inner_text()
    assert "see the mask hide" not in panel.inner_text()
    page.get_by_role("button", name="Bring all back").click()
    wait(page)
    assert "see the mask hide" in panel.inner_text()


@pytest.mark.slow
def test_the_atlas_shows_all_heads_with_what_was_measured_and_where_they_look(page, translator):
    translate(page)
    panel = open_view(page, "Heads")
    measured = json.loads((ROOT / "benchmarks" / "results" / "heads.json").read_text(encoding="utf-8"))["heads"]
    maps = translator.translate([SENTENCE], attention=True)[0].attention
    buttons = panel.get_by_role("button").filter(has=page.locator("canvas"))
    assert buttons.count() == len(measured) == 36
    pixels = """one => { const canvas = one.querySelector("canvas"), { width, height } = canvas
      return [...canvas.getContext("2d").getImageData(0, 0, width, height).data].filter((_, i) => i % 4 === 3) }"""
    for number, (name, found) in enumerate(measured.items()):
        kind, head = name.split()
        layer, head = (int(part) - 1 for part in head.split("."))
        said = buttons.nth(number).inner_text().replace("−", "-").split()
        assert said[0] == f"{layer + 1}.{head + 1}" and float(said[1]) == pytest.approx(1000 * found["rise"], abs=0.051)
        assert float(said[-3]) == pytest.approx(1000 * found["low"], abs=0.051)
        assert float(said[-1]) == pytest.approx(1000 * found["high"], abs=0.051)
        weights = getattr(maps, kind)[layer][0, head]
        drawn = torch.tensor(buttons.nth(number).evaluate(pixels)).view(weights.shape)
        torch.testing.assert_close(drawn / 255, weights, rtol=0, atol=0.0025)
        if kind != "cross":
            most = max(("back", "self", "next"), key=found.get)
            assert said[2] == most and float(said[3]) == pytest.approx(found[most], abs=0.0051)


@torch.inference_mode()
def test_what_the_page_says_of_its_examples_is_so(translator):
    page = " ".join((BOOK / "try_it.md").read_text(encoding="utf-8").split())
    model, vocab = translator.model, translator.tgt_tokenizer.vocab
    tgt = torch.tensor([[2, *(vocab[f"▁{word}"] for word in ("the", "man", "is", "picking"))]])
    texts = ("Der Mann hebt den Ball auf.", "Der Mann hebt den Ball.", "Der Mann den Ball auf.")
    ups = [
        model(torch.tensor([ids_of(translator, text)]), tgt)[0, -1].softmax(dim=-1)[vocab["▁up"]].item()
        for text in texts
    ]
    with_all, without_auf, without_hebt = (f"{100 * up:.1f} %" for up in ups)
    assert f"*up* has {with_all} after" in page and f"it still has {without_auf};" in page
    assert f"leave out *hebt* instead, and it has {without_hebt}." in page
    maps = model.attention_maps(torch.tensor([ids_of(translator, texts[0])]), tgt)
    assert maps.cross[-1][0, :, -1].mean(dim=0).topk(2).indices.tolist() == [4, 5]  # den, ball
    assert f"puts {maps.cross[0][0, 0, 3, 3]:.3f} of its weight on *hebt*" in page
    auf, hebt = 6, 3
    assert maps.encoder[1][0, 1, auf].argmax() == hebt
    assert f"it looks most at *hebt*, {maps.encoder[1][0, 1, auf, hebt]:.3f}" in page
    said = re.search(r"she feeds the pigeons \*(.*?)\*", page)[1]
    src = torch.tensor([ids_of(translator, "Eine alte Frau füttert vor der Kirche die Tauben.")])
    girl = torch.tensor(
        [ids_of(translator, "Ein Mädchen mit roter Mütze zieht ihren Schlitten den verschneiten Hügel hinauf.")]
    )

    def english(source, **changes):
        with changed(model, **changes):
            best = beam_search(model, source, 2, 3, 4, translator.length_penalty, use_cache=False)[0][0]
        return translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(best.ids))

    assert english(src, positions=False).endswith(f"{said}.")
    assert len(english(girl, mask=False)) < len(english(girl))  # "this one loses words"
    park = torch.tensor([ids_of(translator, SENTENCE)])  # greedy search finds the more probable one, and the shorter
    beam = beam_search(model, park, 2, 3, 4, translator.length_penalty)[0][0]
    greedy = greedy_search(model, park, 2, 3)[0]
    text = translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(greedy.ids))
    assert f"Greedy search writes *{text.removesuffix('.')}*" in page
    assert greedy.log_prob > beam.log_prob and len(greedy.ids) < len(beam.ids)
    dog = torch.tensor([ids_of(translator, "Ein Hund jagt eine Katze.")])
    assert english(dog, positions=False) != english(dog)


@torch.inference_mode()
def test_the_opened_box_of_notebook_04_has_the_shipped_models_numbers(translator):
    spec = importlib.util.spec_from_file_location("draw_figures", ROOT / "assets" / "draw_figures.py")
    drawn = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawn)
    model, vocab = translator.model, translator.tgt_tokenizer.vocab
    src = torch.tensor([ids_of(translator, "Der Mann hebt den Ball auf.")])
    tgt = torch.tensor([[2, *(vocab[f"▁{word}"] for word in ("the", "man", "is"))]])
    attention, kept = model.decoder.layers[0].cross_attn, []
    hooks = [
        module.register_forward_hook(lambda *args: kept.append(args[2]))
        for module in (attention.q_proj, attention.k_proj)
    ]
    logits = model(src, tgt)[0, -1]
    for hook in hooks:
        hook.remove()
    q, k = (x[0, :, :64] for x in kept)
    scores = k @ q[-1] / 8
    assert [*drawn.OPENED] == [token.strip("▁") for token in translator.source_tokens("Der Mann hebt den Ball auf.")]
    expected = zip(scores.tolist(), scores.softmax(dim=0).tolist(), strict=True)
    for (score, weight), (its_score, its_weight) in zip(drawn.OPENED.values(), expected, strict=True):
        assert abs(score - its_score) < 0.0051 and abs(weight - its_weight) < 0.00051
    logits[[1, 2]] = -torch.inf
    probabilities, ids = logits.softmax(dim=-1).topk(3)
    may_come = [
        f"{vocab.itos[i].strip('▁')} {100 * p:.0f} %" for i, p in zip(ids.tolist(), probabilities.tolist(), strict=True)
    ]
    assert ", ".join([*may_come, "…"]) == drawn.MAY_COME


def test_the_lines_beside_the_boxes_are_in_the_notebooks_that_they_name():
    page = (BOOK / "try_it.md").read_text(encoding="utf-8")
    lines = re.findall(r'<p class="line"><code>(.*?)</code> <a href="notebooks/(\w+)\.html#([\w-]+)">', page)
    assert len(lines) > 20
    for line, name, anchor in lines:
        notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
        sources = ["".join(cell["source"]) for cell in notebook["cells"]]
        assert any(html.unescape(line) in map(str.strip, source.split("\n")) for source in sources), line
        headings = re.findall(r"^##+ (?:\d+\. )?(.*)", "\n".join(sources), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w]+", "-", heading.lower().replace("_", "-")) for heading in headings}, anchor


def test_the_pages_scripts_stay_short():
    """Plain JavaScript without a framework, and so little of it that one person can read it all."""
    scripts = [*(BOOK / "translator").glob("*.js"), *(ROOT / "notebooks" / "transformer_exercises").glob("*.js")]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in scripts) <= 1200


@pytest.mark.slow
def test_nothing_scrolls_sideways(page):
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        translate(page, "Ein Mädchen mit roter Mütze zieht ihren Schlitten den verschneiten Hügel hinauf.")
        for view in VIEWS:
            open_view(page, view)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        enter(page, LONG)
        page.get_by_text(re.compile(r"^about \d+ s more$")).wait_for()
        stop = page.get_by_role("button", name="Stop")
        box = stop.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        stop.click()
        translate(page)  # after Stop, there is nothing to look at closer


@pytest.mark.slow
def test_everything_that_can_be_pressed_has_a_name(page):
    translate(page)
    nameless = (
        "[...document.querySelectorAll('#translator :is(button, input, textarea)')].filter((one) => "
        "!(one.textContent.trim() || one.ariaLabel || one.labels?.length)).length"
    )
    for view in ("Figure 1", "Heads", "Alternatives", "Beam"):
        open_view(page, view)
        assert page.evaluate(nameless) == 0


@pytest.mark.slow
def test_without_scripts_the_page_says_what_it_needs(_chromium, site):
    context = _chromium.chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "try_it.html").as_uri())
    assert page.get_by_text("your browser is too old").is_visible()
    context.close()


@pytest.mark.slow
def test_a_browser_that_is_too_old_is_told_so(_chromium, site):
    for missing in ("window.Worker", "Array.prototype.at"):
        context = _chromium.chromium.new_context()
        page = context.new_page()
        page.add_init_script(f"delete {missing}")
        page.goto((site / "try_it.html").as_uri())
        assert page.get_by_text("your browser is too old").is_visible()
        assert not page.get_by_role("textbox").is_visible()
        context.close()


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_said_in_words(_chromium, site):
    context = _chromium.chromium.new_context()
    page = context.new_page()
    page.route("**/weights_03.js", lambda route: route.abort())
    page.goto((site / "try_it.html").as_uri())
    page.get_by_role("button", name="Load the model").click()
    page.get_by_role("status").get_by_text("could not be loaded").wait_for()
    context.close()
