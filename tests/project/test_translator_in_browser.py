"""The page "Try it": the model in JavaScript computes what the library computes, and readers can use the page."""

import contextlib
import functools
import html
import http.server
import importlib
import itertools
import json
import re
import shutil
import subprocess
import sys
import threading
import unicodedata
import urllib.parse
from pathlib import Path

import pytest
import torch
from browser import press_keys
from test_nasty_text import NASTY

from transformer_lib.data.corpora import CorpusError, load_corpus
from transformer_lib.inference.search import beam_search, greedy_search
from transformer_lib.inference.translator import Translator
from transformer_lib.model.masks import padding_mask

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "book"
BODY = ROOT / "transformer_lib" / "page" / "body.html"
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
let settings;
function answer([what, ...rest]) {
  settings ??= unpack(bytes());
  const { src: tokenizer, tgt } = settings, model = new Transformer(settings);
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
    return finished.map(({ ids, logProb, score }) => ({ ids, logProb, score, text: tgt.decode(ids) }));
  };
  const hint = (sentence) => remark(sentence, tokenizer.encode(sentence), settings);
  const doubts = (sentence, beamSize) => doubt(translate(sentence, beamSize)[0]);
  const elsewhere = (sentence, beamSize) => { // the same model, with its special tokens at the end
    const { pieces, charsmap } = tokenizer, { d_model } = settings.config;
    const order = [...pieces.keys()].slice(4).concat([3, 2, 1, 0]);
    const weights = structuredClone(settings.weights), { table } = weights.src_embedding.tokens;
    const changed = new SubwordTokenizer({ pieces: order.map((id) => pieces[id]), charsmap, lower: true });
    const moved = { ...settings, weights, specials: changed.specials };
    table.weight = join(order.map((id) => split(settings.weights.src_embedding.tokens.table.weight, d_model)[id]));
    weights.output.bias = settings.weights.output.bias.map((_, i) => settings.weights.output.bias[order[i]]);
    const model = new Transformer(moved), { ids } = changed.encode(sentence);
    let finished;
    for ({ finished } of beamSearch(model, model.encode(ids).memory, beamSize, settings.search.length_penalty));
    return { names: ids.map((id) => changed.pieces[id]), text: changed.decode(finished[0].ids) };
  };
  const seconds = (sentence) => { // of a model whose table changes no letters: ours makes spaces of all ▁
    const { pieces } = tokenizer, charsmap = new Uint32Array([4, 0]).buffer;
    const plain = new SubwordTokenizer({ pieces, lower: true, charsmap });
    const before = performance.now();
    plain.normalize(sentence);
    return (performance.now() - before) / 1000;
  };
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
    return lists(explain(written.length, { number: 1, model, tgt, ids, written }));
  };
  const answers = { encode, logits, translate, hint, doubts, elsewhere, seconds, lookups, trace };
  return answers[what](...rest);
}
"""
WORKER = ("tokenizer", "words", "model", "search", "worker")
PARTS = "const PARTS = []; var receiveWeights = (part) => PARTS.push(part);"
BYTES = "const bytes = () => Uint8Array.from(atob(PARTS.join('')), (letter) => letter.charCodeAt(0)).buffer;"


@pytest.fixture(scope="module")
def translator():
    return Translator.load()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the page, its scripts and its weights, without the book around it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, BOOK / "write_weights.py", folder / "translator"]
    subprocess.run(command, check=True)
    markdown, body = ((BOOK / "try_it.md").read_text(encoding="utf-8"), BODY.read_text(encoding="utf-8"))
    parts = "\n".join(re.findall(r"```\{raw\} html\n(.*?)```", markdown, re.DOTALL)).replace(
        ":file: translator.html", body
    )
    page = '<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8">'
    page += f'<meta name="viewport" content="width=device-width"><title>Try it</title><article>{parts}</article>'
    (folder / "try_it.html").write_text(page, encoding="utf-8")
    (folder / "without_the_tour.html").write_text(page.replace(parts, body), encoding="utf-8")
    return folder


@contextlib.contextmanager
def in_node(scripts_folder):
    """Call a function of ``ANSWER`` in node, once for each of a list of arguments. (Chromium has the same engine.)"""
    if not (node := shutil.which("node")):
        pytest.skip("node is not installed: apt-get install nodejs")
    scripts = [scripts_folder / f"{name}.js" for name in WORKER]
    weights = sorted(scripts_folder.glob("weights_*.js"))
    listen = "require('readline').createInterface(process.stdin).on('line', (line) => "
    listen += "console.log(JSON.stringify(JSON.parse(line).map(answer))));"
    worker, loads = ([path.read_text(encoding="utf-8") for path in paths] for paths in (scripts, weights))
    program = scripts_folder.parent / "program.js"
    program.write_text("\n".join([*worker, PARTS, BYTES, *loads, ANSWER, listen]), encoding="utf-8")
    with subprocess.Popen([node, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def answers(*calls):
            process.stdin.write(json.dumps(calls) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield answers
        process.stdin.close()


@pytest.fixture(scope="module")
def ask(site):
    with in_node(site / "translator") as answers:
        yield answers


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
            ids = translator.src_tokenizer.encode(text)
        except ValueError:
            assert "error" in answer, name
        else:
            tokens = translator.src_tokenizer.tokenize(text)
            assert answer.get("tokens") == ["<sos>", *tokens, "<eos>"], name
            assert answer["ids"] == ids, name


@pytest.mark.slow
def test_a_word_twice_as_long_takes_hardly_more_than_twice_the_work(ask):
    short, long = ask(*(["lookups", ("donaudampfschifffahrt" * 200)[:length]] for length in (2_000, 4_000)))
    assert 4_000 < long < 2.2 * short


@pytest.mark.slow
def test_text_with_many_separators_takes_no_time(ask):
    """A generous bound: where each ▁ looks for the end again, this takes minutes."""
    assert ask(["seconds", "▁" * 200_000 + "a"])[0] < 10


@pytest.mark.slow
def test_special_tokens_are_known_by_name_wherever_they_stand(ask, translator):
    for text in (SENTENCE, "Ein 犬 läuft."):  # with an unknown letter
        (found,) = ask(["elsewhere", text, 4])
        expected = ["<unk>" if "犬" in token else token for token in translator.source_tokens(text)]
        assert found["names"] == expected
        assert found["text"] == translator.translate([text])[0].text


@pytest.mark.slow
def test_english_is_remarked_upon_and_german_is_not(ask):
    """Which language a sentence has is only guessed, from a few words: so of German none, and of English nearly all."""
    german, english = sentences()
    german += [unicodedata.normalize("NFD", text) for text in german] + ["a\u0308lter", "Ein a\u0308lterer Mann."]
    assert not any("English" in answer for answer in ask(*(["hint", text] for text in german)))
    remarked = sum("English" in answer for answer in ask(*(["hint", text] for text in english)))
    assert remarked >= 0.95 * len(english)


@pytest.mark.slow
def test_nonsense_is_doubted_and_captions_are_not(ask):
    nonsense = ["Ich liebe dich.", "Ich habe gestern meine Hausaufgaben vergessen.", "Wie spät ist es?", "Hallo Welt!"]
    assert all(ask(*(["doubts", text, beam_size] for text in nonsense for beam_size in (1, 4))))
    try:
        captions = [pair.src for pair in load_corpus("multi30k")["test_2016_flickr"]][:100]
    except CorpusError:
        pytest.skip("Multi30k is not here")
    assert sum(map(bool, ask(*(["doubts", text, 4] for text in captions)))) <= 3


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
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_beams_finish_the_librarys_hypotheses_also_with_something_taken_away(ask, translator, changes):
    model, texts = translator.model, sentences()[0][:6]
    for beam_size, penalty in ((1, 0.0), (4, translator.length_penalty)):
        found = ask(*(["translate", text, beam_size, [], changes] for text in texts))
        with changed(model, **changes):
            sources = [torch.tensor([ids_of(translator, text)]) for text in texts]
            expected = [beam_search(model, src, 2, 3, beam_size, penalty, use_cache=False)[0] for src in sources]
        for ours, theirs in zip(found, expected, strict=True):
            assert [one["ids"] for one in ours] == [one.ids for one in theirs]
            log_probs = torch.tensor([one.log_prob for one in theirs])
            torch.testing.assert_close(torch.tensor([one["logProb"] for one in ours]), log_probs, rtol=0, atol=1e-3)


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
def test_an_example_can_be_undone_and_leaves_the_focus_where_it_was(page):
    translate(page, "Ein Hund")
    press_keys(page, " rennt")
    example = page.get_by_role("group", name="Examples").get_by_role("button", name="Der Mann hebt den Ball auf.")
    example.press("Enter")
    wait(page)
    assert translation(page) == "the man is raising the ball."
    assert example.evaluate("one => one === document.activeElement")
    field(page).press("ControlOrMeta+z")
    assert field(page).input_value() == "Ein Hund rennt"


@pytest.mark.slow
def test_nothing_of_an_older_sentence_can_be_picked_and_the_page_says_why(page):
    translate(page)
    place = page.locator(".alternatives li button").first.bounding_box()
    page.locator("textarea").click()
    page.keyboard.press("End")
    press_keys(page, " x")
    assert "sentence before" in page.locator(".status").inner_text()
    page.mouse.click(place["x"] + 5, place["y"] + 5)
    assert translation(page) == TRANSLATION and not page.locator(".again").is_visible()
    page.locator("textarea").click()
    page.keyboard.press("End")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    assert not page.locator(".status").inner_text()
    page.mouse.click(place["x"] + 5, place["y"] + 5)
    page.locator(".again", has_text="You picked").wait_for()


@pytest.mark.slow
def test_on_a_phone_what_was_asked_for_comes_into_sight(show):
    page = show()
    page.set_viewport_size({"width": 390, "height": 420})  # the book has a bar on top, and a text above
    in_sight = "() => { const { top, bottom } = document.querySelector('.translation').getBoundingClientRect()"
    in_sight += "; return top >= 0 && bottom <= innerHeight }"
    page.get_by_role("button", name="Load the model").click()
    wait(page)
    assert page.evaluate(in_sight) and page.evaluate("scrollY") > 0
    page.evaluate("scrollTo(0, 0)")
    assert not page.evaluate(in_sight)
    page.get_by_role("radio", name="Greedy").check()
    wait(page)
    assert page.evaluate(in_sight)
    translate(page, "Ich liebe dich.")
    remark = page.locator(".remark")
    assert "unsure" in remark.inner_text() and page.evaluate(in_sight)
    assert remark.bounding_box()["y"] + remark.bounding_box()["height"] <= 420


@pytest.mark.slow
def test_all_fits_into_the_window_can_be_hit_and_has_a_name(page):
    controls = """all => all.filter((one) => one.checkVisibility() && one.getRootNode() === document).flatMap((one) => {
      const { width, height } = (one.closest("label") ?? one).getBoundingClientRect()
      const isIn = one.closest(".note p, p.note")  // a sentence: its lines are as high as they are
      const isNamed = one.textContent.trim() || one.ariaLabel || one.labels?.length
      return isNamed && (isIn || Math.min(width, height) >= 24) ? [] : [`${one.className} ${one.textContent} ${height}`]
    })"""
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        translate(page, "Ein Mädchen mit roter Mütze zieht ihren Schlitten den verschneiten Hügel hinauf.")
        for view in VIEWS:
            open_view(page, view)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            assert not page.locator("#translator :is(button, input, select, textarea)").evaluate_all(controls), view


LONG = "hund " * 200  # of which the model never finds an end
# Notes what the worker says, and holds back the last of it while `isHeld`.
LISTEN = """
const { set } = Object.getOwnPropertyDescriptor(Worker.prototype, "onmessage");
Object.assign(window, { kinds: [], held: [], isHeld: false });
Object.defineProperty(Worker.prototype, "onmessage", { set(receive) {
  window.receive = receive;
  set.call(this, (event) => {
    kinds.push(event.data.kind);
    (isHeld && event.data.kind === "done") ? held.push(event) : receive(event);
  });
} });
"""


@pytest.mark.slow
def test_long_work_shows_how_far_it_is_and_ends_by_stop_by_escape_and_by_a_newer_sentence(show):
    page = show()
    page.evaluate(LISTEN)
    for way in ("Stop", "Escape", "newer"):
        translate(page)
        assert translation(page) == TRANSLATION
        enter(page, LONG)
        page.get_by_text(re.compile(r"^about \d+ s more$")).wait_for()
        bar = page.get_by_role("progressbar")
        first = bar.evaluate("bar => bar.value")
        page.wait_for_function("first => document.querySelector('progress').value > first", arg=first)
        if way == "newer":
            continue
        if way == "Escape":
            page.keyboard.press("Escape")
        else:
            page.get_by_role("button", name="Stop").click()
            assert page.evaluate("document.activeElement.className") == "go"  # the focus is not lost with the button
        page.get_by_role("status").get_by_text("Stopped").wait_for()
        left = translation(page)
        assert left.startswith("dog ") and not bar.is_visible()
        page.wait_for_timeout(500)  # what was on its way
        before = page.evaluate("kinds.length")
        page.wait_for_timeout(1_000)
        assert page.evaluate("kinds.length") == before and translation(page) == left  # the worker has stopped, too
    translate(page)
    assert translation(page) == TRANSLATION


@pytest.mark.slow
def test_the_page_answers_while_the_worker_computes(show):
    page = show()
    page.evaluate(LISTEN)
    page.evaluate("isHeld = true")
    enter(page, "Ein Hund spielt.")
    page.wait_for_function("held.length === 1")
    page.keyboard.press("ControlOrMeta+A")
    press_keys(page, "Ich schreibe schon weiter.")
    assert page.locator(".results.busy").count() == 1
    page.evaluate("held.forEach(receive)")
    page.locator(".results:not(.busy)").wait_for()
    assert translation(page) == "a dog is playing."
    assert field(page).input_value() == "Ich schreibe schon weiter." and page.locator(".results[inert]").count() == 1
    assert page.evaluate("typeof Transformer") == "undefined"  # it has no model to compute with


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
def test_what_is_unusual_is_remarked_upon_and_what_cannot_be_translated_refused_in_words(page):
    for text, said in (
        ("A dog is running.", "English"),
        ("Собака бежит по траве.", "unknown to the model"),
        (LONG, "captions of one sentence"),
        ("Der Hund läuft. Die Katze schläft. Das Kind spielt.", "learned from single sentences"),
    ):
        enter(page, text)
        page.get_by_role("status").get_by_text(said).wait_for()
        translate(page)
        assert translation(page) == TRANSLATION and not page.locator(".remark").inner_text()
    for text, said in (
        ("  ", "at least one word"),
        ("hund " * 300, "The model can read 256 subwords, some 1100 characters"),
        ("hund" * 16_000, "64,000 characters"),  # these two are refused before what would take a minute and more
        ("a" + "\u0301\u0323" * 32_000, "64,001 characters"),
    ):
        enter(page, text)
        page.get_by_role("status").get_by_text(said).wait_for()
        assert not page.locator(".results").is_visible()
    translate(page)


@pytest.mark.slow
def test_a_browser_that_lacks_something_and_a_model_that_cannot_be_loaded_are_said_in_words(_chromium, site):
    address = (site / "try_it.html").as_uri()
    for missing in ("scripts", "window.Worker", "Array.prototype.at", "the model"):
        context = _chromium.chromium.new_context(java_script_enabled=missing != "scripts")
        page = context.new_page()
        if "." in missing:
            page.add_init_script(f"delete {missing}")
        page.route("**/weights_03.js", lambda route: route.abort())
        page.goto(address)
        if missing == "the model":
            page.get_by_role("button", name="Load the model").click()
            page.get_by_role("status").get_by_text("could not be loaded").wait_for()
        else:
            assert page.get_by_text("your browser is too old").is_visible(), missing
            assert not page.get_by_role("textbox").is_visible()
        context.close()


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
    page.locator(".again", has_text="You picked “play”").wait_for()
    wait(page)
    assert translation(page).startswith("two children play ") and translation(page).endswith(".")
    assert token(page, 2).get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="Translate").click()
    page.locator(".again", has_text="You picked").wait_for(state="hidden")
    wait(page)
    assert translation(page) == TRANSLATION


@pytest.mark.slow
def test_a_pick_is_taken_back_by_its_button_and_by_the_models_own_word(page):
    for way in ("button", "own word"):
        translate(page)
        own = token(page, 2).inner_text().split()[0]
        token(page, 2).click()
        panel = open_view(page, "Alternatives")
        panel.get_by_role("button", name=re.compile("^play ")).press("Enter")
        page.locator(".again", has_text="You picked “play”").wait_for()
        settle(page)
        assert "&begin=two+children+play&" in address(page) and translation(page) != TRANSLATION
        if way == "button":
            page.get_by_role("button", name="Back to the model’s own").press("Enter")
        else:
            panel.get_by_role("button", name=re.compile(f"^{own} ")).press("Enter")
        page.locator(".again", has_text="You picked").wait_for(state="hidden")
        settle(page)
        assert translation(page) == TRANSLATION and "begin=" not in address(page)
        assert token(page, 2).evaluate("one => one === document.activeElement")


@pytest.mark.slow
def test_a_switch_keeps_the_step_and_a_new_sentence_begins_where_the_model_is_least_sure(page):
    def step():
        settle(page)
        return int(re.search(r"step=(\d+)", address(page))[1])

    translate(page, "Ein Hund rennt.")
    sureness = [float(text.split()[1]) for text in page.locator(".target button").all_inner_texts()]
    assert step() == 1 + sureness.index(min(sureness)) != 4
    token(page, 3).click()
    page.get_by_role("checkbox", name="the positions").press("Space")
    assert step() == 4
    page.get_by_role("button", name="Bring all back").press("Enter")
    assert step() == 4 and token(page, 3).evaluate("one => one === document.activeElement")
    long = "Der Mann hebt den Ball auf, und eine alte Frau füttert die Tauben."
    translate(page, long)
    last = page.locator(".target button").count()
    token(page, last - 1).click()
    cross = open_view(page, "Heads").get_by_role("group", name="Cross-attention").get_by_role("button")
    cross.first.press("Enter")
    settle(page)
    assert step() == min(last, page.locator(".target button").count())
    page.get_by_role("button", name="Bring all back").click()
    settle(page)


@pytest.mark.slow
def test_the_viewer_follows_the_translation_and_shows_the_librarys_heads(page, translator):
    viewer = open_view(page, "Attention").locator(".attention-viewer")
    for text in ("Ein Hund rennt.", SENTENCE):
        translate(page, text)
        token(page, 1).press("Enter")
        maps = translator.translate([text], attention=True)[0].attention
        for kind, name in (("cross", "Cross-attention"), ("decoder", "Decoder self-attention")):
            viewer.get_by_role("combobox", name="Kind").select_option(name)
            viewer.get_by_role("combobox", name="Layer").select_option("2")
            token(page, 1).press("Enter")
            shown = viewer.locator(".keys .word + span").all_inner_texts()
            expected = getattr(maps, kind)[1][0, 0, 1]
            torch.testing.assert_close(torch.tensor([float(text) for text in shown]), expected, rtol=0, atol=0.0011)


@pytest.mark.slow
def test_each_box_of_figure_1_opens_by_its_key_with_a_line_of_its_own(page):
    translate(page)
    open_view(page, "Figure 1")
    page.locator(".panel[aria-busy=false]").wait_for()
    panel, boxes, lines = page.get_by_role("region", name="The open box"), page.locator(".model button"), {}
    for number, name in enumerate(boxes.evaluate_all("all => all.map((one) => one.dataset.title)")):
        boxes.nth(number).press(("Enter", "Space")[number % 2])
        title = panel.get_by_role("heading", level=3)
        assert title.inner_text() == name and title.evaluate("one => one === document.activeElement")
        steps = panel.locator("[data-step]:visible")
        assert steps.count() and all(step.locator(".numbers").inner_text() for step in steps.all()), name
        lines[name] = panel.locator(".line:visible code").first.inner_text()
    assert len(lines) == boxes.count()
    assert "self.norm(x)" in lines["Norm, the last"] and "norm1" in lines["Norm before self-attention of the decoder"]


@pytest.mark.slow
def test_the_figure_is_one_stop_of_tab_that_arrows_walk_and_the_panel_says_what_a_head_looks_at(page):
    translate(page)
    open_view(page, "Figure 1")
    page.locator(".panel[aria-busy=false]").wait_for()
    boxes, focused = page.locator(".model button"), "document.activeElement.dataset.title"
    cross = boxes.and_(page.locator("[data-title=Cross-attention]"))
    cross.press("Enter")
    assert boxes.evaluate_all("all => all.filter((one) => one.tabIndex === 0).length") == 1
    cross.focus()
    for key, name in {
        "ArrowDown": "Norm before cross-attention",
        "ArrowUp": "Cross-attention",
        "ArrowLeft": "Memory",
        "ArrowRight": "Cross-attention",
    }.items():
        page.keyboard.press(key)
        if key != "ArrowLeft":  # which of the encoder's boxes is beside depends on the letters' size
            assert page.evaluate(focused) == name
        else:
            assert "decoder" not in page.evaluate(focused) != "Cross-attention"
            cross.focus()
    panel = page.get_by_role("region", name="The open box")
    choose(panel, "Head", "3")
    rows = panel.locator("[data-step=scores] tbody tr").all_inner_texts()
    best = max((row.split("\t") for row in rows), key=lambda cells: float(cells[-2]))
    said = panel.get_by_role("status").inner_text()
    assert "head 3" in said and f"“{best[0]}”" in said and best[-2] in said


@pytest.mark.slow
def test_on_a_phone_the_open_box_is_not_covered_and_the_beams_scores_are_in_sight(page):
    try:
        page.set_viewport_size({"width": 360, "height": 800})
        translate(page)
        open_view(page, "Figure 1")
        page.locator(".panel[aria-busy=false]").wait_for()
        page.locator(".model [data-title=Softmax]").press("Enter")
        stays, title = (page.locator(one).bounding_box() for one in (".stays", ".panel .title"))
        assert stays["y"] + stays["height"] <= title["y"] < 800
        for small in page.locator(".model .box > small").all():
            inside, around = small.bounding_box(), small.locator("..").bounding_box()
            assert inside["y"] + inside["height"] <= around["y"] + around["height"], small.inner_text()
        table = open_view(page, "Beam").get_by_role("region", name="Finished")
        page.set_viewport_size({"width": 300, "height": 800})  # the book's margins and its letters are wider than here
        score = table.locator("tbody td:last-child").first.bounding_box()
        assert score["x"] + score["width"] <= 300
    finally:
        page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.slow
def test_the_page_says_where_an_open_hypothesis_might_score_better(page):
    translate(page)
    open_view(page, "Beam")
    said = page.get_by_text("The search stopped here")
    assert said.is_visible()
    page.get_by_role("radio", name="Greedy").check()  # which goes on with one, and none is left
    page.wait_for_function("document.querySelector('.translation').textContent.startsWith('two children playing')")
    wait(page)
    assert not said.is_visible()
    page.get_by_role("radio", name="Beam of 4").check()
    wait(page)


def english(translator, text, **changes):
    with changed(translator.model, **changes):
        src = torch.tensor([ids_of(translator, text)])
        best = beam_search(translator.model, src, 2, 3, 4, translator.length_penalty, use_cache=False)[0][0]
    return translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(best.ids))


@pytest.mark.slow
def test_each_switch_begins_with_a_sentence_that_changes_and_leaves_a_typed_one_alone(page, translator):
    for typed in (False, True):
        for changes, name in (
            ({"mask": False}, "the causal mask"),
            ({"scale": False}, "÷ root of d k"),
            ({"positions": False}, "the positions"),
        ):
            text = "Ein Hund schläft." if typed else "Der Mann hebt den Ball auf."  # the page's own
            translate(page, text)
            page.get_by_role("checkbox", name=name).press("Space")
            wait(page)
            chosen = field(page).input_value()
            assert (chosen == text) == typed
            was, found = english(translator, chosen), english(translator, chosen, **changes)
            assert translation(page) == found and (typed or found != was)
            compared = page.locator(".was")
            assert compared.locator(".plain").inner_text() == was
            assert ("(the same)" in compared.inner_text()) == (found == was)
            marked = page.locator(".translation mark, .plain mark").all_inner_texts()
            assert bool(marked) == (found != was) and not any(word != word.strip() for word in marked)
            assert page.get_by_role("checkbox", name=name).evaluate("one => one === document.activeElement")
            if found == was:  # it would look as if the switch did nothing
                page.get_by_role("button", name="A sentence that changes").press("Enter")
                wait(page)
                text = field(page).input_value()
                assert text != chosen and translation(page) == english(translator, text, **changes)
                assert translation(page) != english(translator, text)
                field(page).press("ControlOrMeta+z")
                assert field(page).input_value() == chosen
                page.keyboard.press("Enter")
                wait(page)
            page.get_by_role("button", name="Bring all back").press("Enter")
            wait(page)
            assert translation(page) == was


@pytest.mark.slow
def test_heads_are_walked_by_arrows_and_silenced_by_key_and_come_back(page, translator):
    translate(page)
    panel = open_view(page, "Heads")
    measured = json.loads((ROOT / "benchmarks" / "results" / "heads.json").read_text(encoding="utf-8"))["heads"]
    heads = panel.get_by_role("button").filter(has=page.locator("canvas"))
    shown = [text.replace("−", "-").split() for text in heads.all_inner_texts()]
    assert [float(words[1]) for words in shown] == [
        pytest.approx(1000 * found["rise"], abs=0.051) for found in measured.values()
    ]
    page.get_by_role("radio", name="Heads").focus()
    for _ in range(2):  # past "all 12"
        page.keyboard.press("Tab")
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    wait(page)
    assert page.locator(".silenced").inner_text() == "Silenced: encoder 2.2."
    cross = panel.get_by_role("group", name="Cross-attention").get_by_role("button")
    for place in (1, 5, 12):  # after "all 12"
        cross.nth(place).press("Enter")
        wait(page)
    silenced = ["encoder 2.2", "cross 1.1", "cross 2.1", "cross 3.4"]
    assert translation(page) == english(translator, SENTENCE, silenced=silenced)
    cross.first.press("Enter")
    wait(page)
    assert "fisherman" in translation(page)  # as the page says: nothing of the source comes through
    page.get_by_role("button", name="Bring all back").click()
    wait(page)
    assert not panel.locator("[aria-pressed=true]").count() and translation(page) == TRANSLATION


# What the page shows, as its address, and the tour, whose stops are such addresses.
SHOWN = """() => {
  const read = (node) => [...node.childNodes].map((one) => {
    if (one.nodeType === Node.TEXT_NODE) return one.textContent;
    if (!one.checkVisibility?.() || one.matches("style, select, [role=status].unseen")) return "";
    const text = read(one.shadowRoot ?? one);
    return getComputedStyle(one).display === "inline" ? text : ` ${text} `;
  }).join("");
  const parts = [...document.querySelectorAll("#translator > :not(.tour)")];
  return parts.filter((one) => one.checkVisibility()).map(read).join(" ");
}"""
CHOSEN = """() => {
  const viewer = document.querySelector(".attention-viewer")?.shadowRoot;
  const all = [...document.querySelectorAll("#translator"), ...(viewer ? [viewer] : [])];
  const seen = all.flatMap((one) => [...one.querySelectorAll("textarea, select, input, [aria-pressed]")]);
  const value = (one) => one.matches("[type=radio], [type=checkbox]") ? one.checked : one.value;
  return seen.filter((one) => one.checkVisibility()).map((one) => one.getAttribute("aria-pressed") ?? value(one));
}"""


def settle(page):
    """Wait until the page has followed what was pressed, and until its address has followed the page."""
    page.wait_for_timeout(100)
    wait(page)
    page.locator(".panel:not([aria-busy=false]):visible").wait_for(state="hidden")
    page.wait_for_timeout(100)


def shown(page):
    """All that can be read beside the tour's card, and all that is chosen, down into the viewer of maps."""
    settle(page)
    text = page.evaluate(SHOWN).replace("\u2068", "").replace("\u2069", "")
    return " ".join(text.split()), page.evaluate(CHOSEN)


def choose(place, name, label):
    place.get_by_role("combobox", name=name, exact=True).select_option(label)


def address(page):
    return page.evaluate("location.hash")


def left_out(page):
    return page.locator(".left-out").inner_text().partition(": ")[2]


def figure_with_another_head(page):
    token(page, 3).click()
    open_view(page, "Figure 1")
    page.get_by_role("button", name=re.compile("^Self-attention of the encoder")).press("Enter")
    panel = page.get_by_role("region", name="The open box")
    page.locator(".panel[aria-busy=false]").wait_for()
    for name, label in (("Layer", "2"), ("Head", "3"), ("Word", "kinder")):
        choose(panel, name, label)


def figure_at_an_earlier_word(page):
    open_view(page, "Figure 1")
    page.get_by_role("button", name="Next step").click()
    page.get_by_role("button", name=re.compile("^Feed-forward of the decoder")).click()
    page.locator(".panel[aria-busy=false]").wait_for()
    panel = page.get_by_role("region", name="The open box")
    choose(panel, "Layer", "3")
    choose(panel, "Word", "two → children")


def map_of_the_encoder(page):
    viewer = open_view(page, "Attention").locator(".attention-viewer")
    choose(viewer, "Kind", "Encoder self-attention")
    choose(viewer, "Layer", "1")
    viewer.get_by_role("button", name="Head 4").click()
    viewer.get_by_role("radio").nth(6).press("Space")


def map_between_the_two(page):
    viewer = open_view(page, "Attention").locator(".attention-viewer")
    choose(viewer, "Layer", "2")
    token(page, 4).press("Enter")


def heads_silenced(page):
    panel = open_view(page, "Heads")
    panel.get_by_role("button", name=re.compile(r"^2\.3\b")).nth(1).click()
    settle(page)
    panel.get_by_role("group", name="Encoder self-attention").get_by_role("button").first.press("Enter")


def something_taken_away(page):
    translate(page, "Ein Hund beißt eine Katze.")  # of an example, a switch takes another
    page.get_by_role("checkbox", name="the positions").press("Space")
    settle(page)
    page.get_by_role("checkbox", name="÷ root of d k").click()


def an_alternative_picked(page):
    token(page, 2).click()
    open_view(page, "Alternatives").get_by_role("button", name=re.compile("^play ")).click()
    page.locator(".again", has_text="You picked “play”").wait_for()


def a_greedy_beam(page):
    page.get_by_role("radio", name="Greedy").check()
    page.wait_for_function("document.querySelector('.translation').textContent.startsWith('two children playing')")
    open_view(page, "Beam")


STATES = {
    figure_with_another_head: "step=4&box=self-attention-of-the-encoder&layer=2&head=3&word=6",
    figure_at_an_earlier_word: "step=4&box=feed-forward-of-the-decoder&layer=3&word=2",
    map_of_the_encoder: "view=attention&kind=encoder&layer=1&head=4&word=7",
    map_between_the_two: "step=5&view=attention&kind=cross&layer=2&head=1&word=5",
    heads_silenced: "&silenced=encoder,decoder+2.3&",
    something_taken_away: "&without=scale,positions&",
    an_alternative_picked: "&begin=two+children+play&step=3&view=alternatives",
    a_greedy_beam: "&search=greedy&",
}


@pytest.mark.slow
@pytest.mark.parametrize("reach", STATES, ids=lambda reach: reach.__name__)
def test_an_address_leads_back_to_what_was_shown(show, reach):
    page = show()
    translate(page)
    reach(page)
    expected = shown(page)
    kept = address(page)
    assert kept.startswith("#de=") and STATES[reach] in kept
    opened = show(page.url)
    found = shown(opened)
    if reach is an_alternative_picked:  # what is said of the pick is the same, too
        assert "You picked “play”" in found[0]
    assert found == expected and address(opened) == kept and not left_out(opened)


@pytest.mark.slow
def test_a_link_can_be_copied_where_the_clipboard_is_open_and_where_it_is_not(_chromium, show, server):
    for here in (server, None):
        page = show(here)
        if here:
            page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        else:
            page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        translate(page, "Ein Hund & eine Katze: 1 + 1 = 2, #3?")
        page.get_by_role("button", name="Copy link").press("Enter")
        page.get_by_text("Copied.").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()") if here else page.locator(".link").input_value()
        assert copied == page.url and "#de=Ein+Hund+%26+eine+Katze" in copied
        open_view(page, "Heads")
        assert not page.get_by_text("Copied.").is_visible()  # what was copied is of another view
        opened = show(copied)
        assert shown(opened)[0].endswith(shown(opened)[0])
        assert field(opened).input_value() == "Ein Hund & eine Katze: 1 + 1 = 2, #3?"


@pytest.mark.slow
def test_back_leads_to_the_translation_before_and_looking_leaves_no_trace(show):
    page = show()
    before = page.evaluate("history.length")
    translate(page)
    open_view(page, "Beam")
    token(page, 1).click()
    settle(page)
    first, was = address(page), shown(page)
    assert page.evaluate("history.length") == before  # the first translation takes the page's own place
    translate(page, "Ein Hund rennt.")
    open_view(page, "Heads")
    settle(page)
    assert page.evaluate("history.length") == before + 1
    page.evaluate("history.back()")
    page.wait_for_function("address => location.hash === address", arg=first)
    page.locator("textarea").evaluate("field => field.value.startsWith('Im Park') || Promise.reject(field.value)")
    assert shown(page) == was and address(page) == first
    page.evaluate("history.forward()")
    page.wait_for_function("document.querySelector('textarea').value.startsWith('Ein Hund')")
    settle(page)
    assert translation(page) == "a dog runs." and page.locator(".view.heads").is_visible()
    assert page.evaluate("history.length") == before + 1


@pytest.mark.slow
def test_what_an_address_asks_for_in_vain_is_left_out_and_named(show):
    page = show()
    for asked, named in {
        "layer=9&box=cross&head=5&word=99": "layer=9 · head=5 · word=99",
        "layer=0&head=-1&word=1e1&step=x": "layer=0 · head=-1 · word=1e1 · step=x",
        "box=norm": "box=norm",  # the beginning of several
        "view=none&kind=&search=best": "view=none · kind= · search=best",
        "without=mask,gravity&silenced=cross 9.9,encoder 1.1": "without=gravity · silenced=cross 9.9",
        "begin=the qqq": "begin=the qqq",
        "begin=the·<eos>·dog": "begin=the·<eos>·dog",
        "step=77&step=2&tour=99": "tour=99 · step=2 · step=77",
        "__proto__=1&constructor=2": "__proto__=1 · constructor=2",
        "x=<img src=x onerror=alert(1)>": "x=<img src=x onerror=alert(1)>",
        f"word={'9' * 500}": f"word={'9' * 55}…",
    }.items():
        page.evaluate("asked => { location.hash = `#de=Ein+Hund+rennt.&${asked}` }", asked)
        page.wait_for_function("document.querySelector('.left-out').textContent")
        settle(page)
        assert left_out(page) != "" and sorted(left_out(page).split(" · ")) == sorted(named.split(" · "))
        assert "dog" in translation(page) and "left out" in page.locator(".left-out").inner_text()
        assert page.locator("#translator img").count() == 0
    translate(page)
    assert not left_out(page) and translation(page) == TRANSLATION  # one's own question has nothing to leave out
    for nothing in ("#x=1", "#=", "#de=%20", "#de=%E0%A4%A"):  # of the last, a browser reads what it can
        opened = show(page.url.partition("#")[0] + nothing)
        opened.wait_for_timeout(300)
        assert bool(left_out(opened)) == (nothing != "#de=%E0%A4%A") and field(opened).is_visible()
    place = show(page.url.partition("#")[0] + "#keys")  # an address of the page around
    assert not left_out(place) and not weights_loaded(place)


def stops():
    script = (BOOK / "tour" / "stops.js").read_text(encoding="utf-8")
    return json.loads(script.partition("window.TOUR =")[2].strip().removesuffix(";"))


def heading(page):
    return page.get_by_role("region", name="Tour").get_by_role("heading")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["keys", "finger"])
def test_each_stop_of_the_tour_shows_what_it_speaks_of(show, by):
    page = show()
    page.set_viewport_size({"width": 1280, "height": 800} if by == "keys" else {"width": 390, "height": 844})
    press = (lambda one: one.press("Enter")) if by == "keys" else (lambda one: one.click())
    press(page.get_by_role("button", name="Take the tour"))
    card, all_stops = page.get_by_role("region", name="Tour"), stops()
    for number, stop in enumerate(all_stops, start=1):
        settle(page)
        assert heading(page).inner_text() == f"Stop {number} of {len(all_stops)} {stop['question']}"
        assert heading(page).evaluate("one => one === document.activeElement")
        assert address(page).startswith(f"#tour={number}&de=")
        fold = card.locator("details")
        assert fold.get_attribute("open") is None and not fold.locator("p").is_visible()
        wanted = dict(urllib.parse.parse_qsl(stop["address"][1:]))
        assert field(page).input_value() == wanted["de"]
        if "box" in wanted:
            title = page.locator(".panel .title").inner_text()
            assert re.sub(r"[^a-z]+", "-", title.lower()).strip("-") == wanted["box"]
        edge = card.bounding_box()["y"]
        if sight := stop.get("sight"):  # below the book's bar and above the card
            box = page.locator(f"#translator {sight} >> visible=true").bounding_box()
            assert 0 <= box["y"] < edge - 40, stop["question"]
        texts = shown(page)[0]
        press(card.locator("summary"))
        for link in card.get_by_role("link").all():
            press(link)
            texts += shown(page)[0]
            assert heading(page).inner_text().startswith(f"Stop {number} ") and fold.get_attribute("open") is not None
        said = re.sub(r"\]\(#.*?\)", "]", f"{stop['claim']} {stop['answer']}")
        seen = re.findall(r"\*(.+?)\*", said)
        assert seen and not [words for words in seen if words.lower() not in texts.lower()], stop["question"]
        numbers = re.findall(r"−?\d+(?:\.\d+)?(?: %)?", said)
        missing = [one for one in numbers if not re.search(rf"(?<![\d.]){re.escape(one)}(?!\d)", texts)]
        assert not missing, stop["question"]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        small = "all => all.filter((one) => one.getBoundingClientRect().height < 24).length"
        assert not card.locator("button, summary").evaluate_all(small)
        if number == len(all_stops):
            break
        if by == "keys":
            heading(page).focus()
            page.keyboard.press("ArrowRight")
        else:
            card.get_by_role("button", name="Next").click()
    assert card.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"


@pytest.mark.slow
def test_the_tour_is_left_and_gone_on_with_and_gives_back_what_was_typed(show):
    page = show()
    translate(page, "Ein Hund schläft.")
    page.get_by_role("button", name="Take the tour").press("Enter")
    settle(page)
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    settle(page)
    assert heading(page).inner_text().startswith("Stop 2 of ")
    page.get_by_role("button", name="Go to it").press("Enter")
    assert page.evaluate("document.activeElement.ariaLabel") == "The open box"
    page.keyboard.press("ArrowRight")  # the tour has not the focus
    page.keyboard.press("Escape")
    assert heading(page).inner_text().startswith("Stop 2 of ") and heading(page).evaluate(
        "one => one === document.activeElement"
    )
    page.keyboard.press("Escape")
    again = page.get_by_role("button", name="Go on with the tour")
    assert again.evaluate("one => one === document.activeElement") and not heading(page).is_visible()
    settle(page)
    assert address(page).startswith("#de=Der+Hund+bei%C3%9Ft+den+Mann.&without=positions")  # where it was left
    again.press("Enter")
    settle(page)
    assert heading(page).inner_text().startswith("Stop 2 of ")
    page.get_by_role("button", name="Leave").click()
    page.get_by_role("button", name="Back to “Ein Hund schläft.”").click()
    settle(page)
    assert field(page).input_value() == "Ein Hund schläft." and translation(page) == "a dog is sleeping."
    assert not page.get_by_role("checkbox", name="the positions").is_checked()
    page.evaluate("history.back()")
    page.wait_for_function("location.hash.startsWith('#de=Der+Hund') || location.hash.startsWith('#tour=2')")


@pytest.mark.slow
def test_a_stop_has_an_address_and_a_page_without_the_tour_says_so(show, site):
    page = show((site / "try_it.html").as_uri() + "#tour=6")
    settle(page)
    assert heading(page).inner_text().startswith("Stop 6 of ") and "0.985" in shown(page)[0]
    alone = show((site / "without_the_tour.html").as_uri() + "#tour=6&de=Ein+Hund+rennt.&view=heads")
    settle(alone)
    assert left_out(alone) == "tour=6" and translation(alone) == "a dog runs."
    assert (
        not alone.get_by_role("button", name="Take the tour").is_visible() and alone.locator(".view.heads").is_visible()
    )


def linked():
    """Addresses of what the page shows, in the book and in the notebooks."""
    paths = [*BOOK.glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
    found = [
        re.findall(r"\]\((?:\.\./book/)?(?:try_it\.md)?(#(?:de|tour)=[^)]*)\)", path.read_text(encoding="utf-8"))
        for path in paths
    ]
    return sorted({*itertools.chain(*found), *(stop["address"] for stop in stops())})


@pytest.mark.slow
def test_addresses_in_the_book_and_the_notebooks_lead_to_what_they_say(page):
    assert len(linked()) > 15
    for one in linked():
        page.evaluate("address => { location.hash = address }", one)
        page.wait_for_timeout(50)
        settle(page)
        assert not left_out(page), one
        wanted = dict(urllib.parse.parse_qsl(one[1:]))
        assert wanted["de"] == field(page).input_value()
        assert dict(urllib.parse.parse_qsl(address(page)[1:])).items() >= wanted.items(), one


@torch.inference_mode()
def test_what_the_page_says_of_its_examples_is_so(translator):
    page = " ".join((BODY.read_text(encoding="utf-8") + (BOOK / "try_it.md").read_text(encoding="utf-8")).split())
    page = re.sub(r"\[([^\[\]]*)\]\(#[^)]*\)", r"\1", page)  # a link's text
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
    old, girl = (text for text in re.findall(r'data-sentence="(.*?)"', page) if text.startswith(("Eine alte", "Ein M")))
    if not old.startswith("Eine"):
        old, girl = girl, old
    said = re.search(r"she feeds the pigeons \*(.*?)\*", page)[1]
    assert english(translator, old, positions=False).endswith(f"{said}.")
    assert len(english(translator, girl, mask=False)) < len(english(translator, girl))  # "can lose its end"
    assert english(translator, "Der Hund beißt den Mann.", positions=False) == "the man is biting the dog."
    park = torch.tensor([ids_of(translator, SENTENCE)])  # greedy search finds the more probable one, and the shorter
    beam = beam_search(model, park, 2, 3, 4, translator.length_penalty)[0][0]
    greedy = greedy_search(model, park, 2, 3)[0]
    text = translator.tgt_tokenizer.join(translator.tgt_tokenizer.decode(greedy.ids))
    assert f"Greedy search writes *{text.removesuffix('.')}*" in page
    assert greedy.log_prob > beam.log_prob and len(greedy.ids) < len(beam.ids)


@torch.inference_mode()
def test_the_opened_box_of_notebook_04_has_the_shipped_models_numbers(translator):
    drawn = importlib.import_module("drawings.notebook_04")
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
    page = BODY.read_text(encoding="utf-8")
    lines = re.findall(r'<p class="line"[^>]*><code>(.*?)</code> <a href="notebooks/(\w+)\.html#([\w-]+)">', page)
    assert len(lines) > 20
    for line, name, anchor in lines:
        notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
        sources = ["".join(cell["source"]) for cell in notebook["cells"]]
        assert any(html.unescape(line) in map(str.strip, source.split("\n")) for source in sources), line
        headings = re.findall(r"^##+ (?:\d+\. )?(.*)", "\n".join(sources), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w]+", "-", heading.lower().replace("_", "-")) for heading in headings}, anchor
