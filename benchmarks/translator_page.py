"""How long the book's page "Try it" takes, how much it loads, and how often it writes what the library writes.

The model in JavaScript translates the same sentences in node and in a headless Chromium, greedily and with a beam of 4.
In node a sentence's time is that of the search. In Chromium it is what a reader waits for on the page itself, opened
from the disk: from Enter until the translation is drawn, with all that the page shows about it. `longest task` is how
long the page could not answer. "Same text" and BLEU compare with `Translator`; fewer `--sentences` are picked evenly.
"int8" is the library with its matrices in int8 by rows, which would halve what the page loads.

    make book
    python benchmarks/translator_page.py --output build/translator_page.json

It needs node, and for Chromium, playwright.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from contenders import CORPUS, SMALL, TEST, machine, write

from transformer_lib.data.corpora import Pair, load_corpus
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translator

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "transformer_lib" / "page"
BEAMS = {"greedy": 1, "beam of 4": 4}
Timed = list[tuple[float, str]]  # milliseconds of each sentence, and its translation

IN_NODE = """
const settings = unpack(Uint8Array.from(atob(PARTS.join("")), (letter) => letter.charCodeAt(0)).buffer);
const model = new Transformer(settings), { src, tgt } = settings;
const [sentences, beamSize] = JSON.parse(require("fs").readFileSync(0));
function translate(sentence) {
  const started = performance.now(), { memory } = model.encode(src.encode(sentence).ids);
  let finished;
  const penalty = beamSize > 1 ? settings.search.length_penalty : 0;
  for ({ finished } of beamSearch(model, memory, beamSize, penalty));
  const text = tgt.decode(finished[0].ids);
  return [performance.now() - started, text];
}
sentences.slice(0, 3).forEach(translate); // until what is often called has been compiled
console.log(JSON.stringify(sentences.map(translate)));
"""
ON_THE_PAGE = """
([sentence, beamSize]) => new Promise((done) => {
  const find = (selector) => document.querySelector(`#translator ${selector}`);
  find("textarea").value = sentence;
  find(`[name=search][value="${beamSize}"]`).checked = true;
  const started = performance.now();
  const observer = new MutationObserver(() => {
    if (find(".results").matches(".busy") || find(".status").textContent) return;
    observer.disconnect();
    done([performance.now() - started, find(".translation").textContent]);
  });
  find("form").requestSubmit();
  observer.observe(find(".results"), { attributes: true, subtree: true, childList: true });
})
"""
LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map(({ duration }) => duration)))
  .observe({ type: "longtask" });
"""


def in_node(book: Path, sentences: list[str], beam_size: int) -> Timed:
    """Translate in a process of its own."""
    scripts = [book / "translator" / f"{name}.js" for name in ("tokenizer", "words", "model", "search")]
    parts = sorted((book / "translator").glob("weights_*.js"))
    text = [path.read_text(encoding="utf-8") for path in (*scripts, *parts)]
    program = "const PARTS = [], receiveWeights = (part) => PARTS.push(part);\n" + "\n".join([*text, IN_NODE])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.js")
        path.write_text(program, encoding="utf-8")
        question = json.dumps([sentences, beam_size])
        answer = subprocess.run(["node", path], input=question, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(answer.stdout)


def in_chromium(book: Path, sentences: list[str]) -> tuple[dict[str, Timed], dict[str, float]]:
    """Translate on the page; say how long loading took, and the longest task of the page while it translated."""
    from playwright.sync_api import sync_playwright

    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page()
        page.set_default_timeout(0)
        page.goto((book / "try_it.html").resolve().as_uri())
        loading, _ = page.evaluate(ON_THE_PAGE, [sentences[0], 1])
        for view in ("figure", "heads", "attention", "beam", "alternatives"):
            page.locator(f"[name=view][value={view}]").check()
        page.evaluate(LONG_TASKS)
        found = {way: [page.evaluate(ON_THE_PAGE, [one, size]) for one in sentences] for way, size in BEAMS.items()}
        for view in ("figure", "heads", "attention", "beam"):
            page.locator(f"[name=view][value={view}]").check()
            for sentence in sentences[:10]:
                page.evaluate(ON_THE_PAGE, [sentence, 4])
        longest = max([0, *page.evaluate("longTasks")])
    return found, {"seconds_to_first_translation": loading / 1000, "longest_task_milliseconds": longest}


def describe(way: str, timed: Timed, pairs: list[Pair], translator: Translator) -> dict[str, Any]:
    """Return the times of a way to search, and how its translations compare with the library's."""
    expected = translator.translate([pair.src for pair in pairs], BEAMS[way])
    references, words = [pair.tgt for pair in pairs], translator.tgt_tokenizer.words
    seconds = [milliseconds / 1000 for milliseconds, _ in timed if milliseconds]
    times = {}
    if seconds:
        times = {"seconds_median": statistics.median(seconds), "seconds_95th": statistics.quantiles(seconds, n=20)[-1]}
    return times | {
        "sentences": len(timed),
        "same_text": sum(text == one.text for (_, text), one in zip(timed, expected, strict=True)),
        "bleu": bleu.by_definition([words(text) for _, text in timed], [words(text) for text in references]),
        "bleu_of_the_library": bleu.score(expected, references, translator.tgt_tokenizer)[0].value,
    }


def in_int8(sentences: list[str]) -> dict[str, Timed]:
    """Translate with every matrix's rows rounded to 255 steps of their own; times are not taken."""
    translator = Translator.load()
    with torch.no_grad():
        for weight in translator.model.parameters():  # which names those that are shared once
            if weight.dim() == 2:
                step = weight.abs().amax(dim=1, keepdim=True) / 127
                weight.copy_((weight / step).round() * step)
    return {way: [(0.0, one.text) for one in translator.translate(sentences, size)] for way, size in BEAMS.items()}


def table(ways: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Yield the lines of a table in Markdown."""
    yield "| where | search | median | 95th percentile | same text | BLEU | library's |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for place, found in ways.items():
        for way, one in found.items():
            times = " | ".join(f"{one[t]:.3f} s" if t in one else "" for t in ("seconds_median", "seconds_95th"))
            same = f"{one['same_text']:,} of {one['sentences']:,}"
            yield f"| {place} | {way} | {times} | {same} | {one['bleu']:.2f} | {one['bleu_of_the_library']:.2f} |"


def main() -> None:
    """Measure, print, and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=1000, help="how many test sentences (all %(default)s)")
    parser.add_argument("--in-chromium", type=int, help="how many of them in Chromium too (all; 0 for none)")
    parser.add_argument("--book", type=Path, default=ROOT / "build" / "book", help="the book that has the page")
    parser.add_argument("--output", type=Path, help="a JSON file for the results")
    args = parser.parse_args()

    def pick(pairs: list[Pair], number: int) -> list[Pair]:
        number = min(number, len(pairs))
        return [pairs[i * len(pairs) // number] for i in range(number)]

    torch.set_num_threads(1)
    translator = Translator.load()
    pairs = pick(list(load_corpus(CORPUS)[TEST]), 2 if SMALL else args.sentences)
    weights = (args.book / "translator").glob("weights_*.js")
    result = {
        "machine": machine(torch.device("cpu")) | {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]},
        "lines_of_javascript": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in PAGE.glob("*.js")),
        "megabytes_of_weights": sum(path.stat().st_size for path in weights) / 1e6,
        "ways": {},
    }
    sentences = [pair.src for pair in pairs]
    result["ways"]["int8"] = {way: describe(way, timed, pairs, translator) for way, timed in in_int8(sentences).items()}
    result["ways"]["node"] = {
        way: describe(way, in_node(args.book, sentences, size), pairs, translator) for way, size in BEAMS.items()
    }
    if args.in_chromium != 0:
        pairs = pick(pairs, args.in_chromium or len(pairs))
        found, about = in_chromium(args.book, [pair.src for pair in pairs])
        result["ways"]["Chromium"] = {way: describe(way, timed, pairs, translator) for way, timed in found.items()}
        result |= about
    print("\n".join(table(result["ways"])))
    print({name: value for name, value in result.items() if name != "ways"})
    write(args.output, result)


if __name__ == "__main__":
    main()
