"""A report of one's own run, ``python -m transformer_exercises report``: how it learned, how good it is, whose it is.

What is measured is measured here; ``report_page`` makes one page of it, which needs nothing else.
"""

import argparse
import json
import math
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from transformer_exercises import taking_home
from transformer_exercises.report_page import page_of
from transformer_lib.checkpoint import MODEL_FILE, SHIPPED_MODEL, load_model
from transformer_lib.cli import complain, trained_on
from transformer_lib.data.corpora import Corpus, CorpusError, Pair, load_corpus
from transformer_lib.data.text import normalize
from transformer_lib.files import accept_any_text, replacing, say
from transformer_lib.inference import bleu
from transformer_lib.inference.translator import Translation, Translator
from transformer_lib.model.config import TransformerConfig
from transformer_lib.notebook.attention_viewer import readable
from transformer_lib.notebook.session import Session
from transformer_lib.training.device import pick_device
from transformer_lib.training.recipe import RECIPES

EPOCHS_FILE = "epochs.json"  # beside the model: what ``keep_epochs`` wrote
REPORT_FILE = "report.html"
DRAWS = 1000  # test sets of the bootstrap
SEED = 0  # of NumPy's default_rng, as in notebook 09
_OLD_FRIEND = "Der Mann hebt den Ball auf."  # whose verb stands in two places: notebooks 00, 06 and 08
_TUTORIALS_MEASURE = "multi30k", "de", "en", "test_2016_flickr"
_NOTEBOOK_06 = "jupyter nbconvert --to notebook --execute 06_training.ipynb --output 06_again.ipynb"


@dataclass(frozen=True)
class Followed:
    """A sentence that was translated after each epoch."""

    src: str
    tgt: str
    translations: list[str]


@dataclass(frozen=True)
class Measured:
    """BLEU of one way to search, with the middle 95 % of what drawn test sets have, if that can be said."""

    search: str
    words: str  # who cut them
    value: float
    signature: str  # sacreBLEU's
    middle: tuple[float, float] | None


@dataclass(frozen=True)
class Example:
    """A test sentence with a person's translation and the model's, and how close these are, by chrF."""

    src: str
    tgt: str
    translation: str
    chrf: float


@dataclass(frozen=True)
class Ribbons:
    """One layer's cross-attention, the mean of its heads, from words to words: ``weights[target][source]``."""

    src: list[str]
    tgt: list[str]
    weights: list[list[float]]
    text: str
    layer: int  # from 1 on
    layers: int
    heads: int


@dataclass
class Run:
    """All that the page says."""

    name: str
    languages: tuple[str, str]
    facts: list[str]
    test: str
    sentences: int
    unusable: int = 0
    train_losses: list[float] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    unit: str = "epoch"  # what the losses are counted in
    followed: list[Followed] = field(default_factory=list)
    scores: list[Measured] = field(default_factory=list)
    beside_tutorials: bool = False
    best: Example | None = None
    worst: Example | None = None
    mean_chrf: float = 0.0
    ribbons: Ribbons | None = None
    trained_by_library: bool = False
    parts: dict[str, tuple[str, bool]] | None = None  # the notebook of each, and whether it is the reader's
    parts_file: str = ""
    again: str = ""
    commands: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """Where a report was written. In a running Jupyter, it shows itself as a link; stored, as a sentence."""

    path: Path

    def __repr__(self) -> str:
        return f"{_shown(self.path)}: open it in a browser; it needs nothing else."

    def _repr_html_(self) -> str | None:
        below = _shown(self.path)
        if not os.environ.get("JPY_SESSION_NAME") or Path(below).is_absolute():  # nobody there to follow a link
            return None
        return f'<a href="{below}" target="_blank">{below}</a>: open it in a browser; it needs nothing else.'


def keep_epochs(
    folder: str | Path,
    train_losses: Sequence[float],
    val_losses: Sequence[float],
    pairs: Sequence[Pair],
    translations: Sequence[Sequence[str]],
    again: str = _NOTEBOOK_06,
) -> None:
    """Write down beside a model what its training showed, for the report: ``epochs.json``.

    Args:
        folder: where the model is.
        train_losses, val_losses: of each epoch, in nats per token.
        pairs: the sentences that were translated after each epoch, with a person's translation.
        translations: of these sentences, as texts; a list for each epoch that came to its end.
        again: the command that repeats the training.

    Raises:
        ValueError: there are fewer losses than epochs, or not as many translations as sentences.
    """
    epochs = len(translations)
    for name, losses in (("train_losses", train_losses), ("val_losses", val_losses)):
        if len(losses) < epochs:
            raise ValueError(f"{name} are of {len(losses)} epochs, expected {epochs}, as many as translations has")
    for number, texts in enumerate(translations, start=1):
        if len(texts) != len(pairs):
            raise ValueError(
                f"translations of epoch {number} are {len(texts)}, expected {len(pairs)}, one of each pair"
            )
    content = {
        "train_loss": [float(loss) for loss in train_losses[:epochs]],
        "val_loss": [float(loss) for loss in val_losses[:epochs]],
        "sentences": [
            {"src": src, "tgt": tgt, "translations": [texts[number] for texts in translations]}
            for number, (src, tgt) in enumerate(pairs)
        ],
        "again": again,
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    with replacing(Path(folder) / EPOCHS_FILE) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def report(session: Session) -> Report:
    """Write the report of notebook 06's model, for a notebook; without one, of the model that the library brings."""
    run = session.runs.parent / "mine"
    if (run / MODEL_FILE).exists():
        return Report(write_report(run, session.corpus, session.test, device=session.device))
    print(f"notebook 06 has left no model in {run}: this is about the library's")
    output = session.runs.parent / REPORT_FILE
    output.parent.mkdir(parents=True, exist_ok=True)
    return Report(write_report(SHIPPED_MODEL, session.corpus, session.test, output, session.device))


def write_report(
    run: str | Path,
    corpus: Corpus | Sequence[str] | None = None,
    test: str | None = None,
    output: str | Path | None = None,
    device: torch.device | str = "auto",
) -> Path:
    """Measure a model on test sentences and write one HTML file about its run; return that file's path.

    Args:
        run: the folder of a run, or a model's file. Notebook 06, ``fit`` and ``transformer-lib train`` write such ones.
        corpus: or what ``load_corpus`` opens it by; by default, what the model was trained on.
        test: the split to measure on; by default, the corpus's first test split.
        output: by default, ``report.html`` beside the model. It replaces what is there once it is complete.
        device: where to compute; see ``pick_device``.

    Raises a FileNotFoundError if there is no model, a CheckpointError if a file does not hold one, a CorpusError if the
    corpus is unavailable, and a ValueError if nothing says which it is, or ``epochs.json`` is damaged.
    """
    run = Path(run)
    file = run / MODEL_FILE if run.is_dir() else run
    if not file.is_file():
        raise FileNotFoundError(f"run is {run}, which holds no {MODEL_FILE}: notebook 06 and transformer-lib train do")
    output = Path(output) if output else file.parent / REPORT_FILE
    if output.is_dir() or not output.parent.is_dir():
        raise ValueError(f"output is {output}, expected a file in a folder that exists")
    saved = load_model(file, device=pick_device(str(device)))
    translator = Translator.from_saved(saved)
    if not isinstance(corpus, Corpus):
        languages = translator.src_tokenizer.language, translator.tgt_tokenizer.language
        corpus = load_corpus(corpus or trained_on(saved.notes), *languages)
    test = test or corpus.splits[:3][-1]
    pairs = [pair for pair in corpus[test] if pair.tgt.split() and _can_be_read(pair.src, translator)]
    if not pairs:
        raise ValueError(f"test is {test!r}, of whose {len(corpus[test])} sentences the model can read none")
    found = _about(run, file, translator, saved.notes, corpus, test, len(pairs))
    found.unusable = len(corpus[test]) - len(pairs)
    _measure(found, translator, pairs, corpus)
    with replacing(output) as temporary:
        temporary.write_text(page_of(found), encoding="utf-8", newline="\n")
    return output


def add_report(commands: Any) -> None:
    """Add the command ``report``."""
    text = "Write one HTML file about a run: how it learned, its BLEU, its best and its worst, whose its parts are."
    parser = commands.add_parser("report", help="write one page about a training run", description=text)
    default = Path(os.environ.get("TRANSFORMER_LIB_RUNS") or "runs").expanduser() / "mine"
    what = f"folder of a run, or a model's file (where notebook 06 leaves its model: {default})"
    parser.add_argument("folder", nargs="?", type=Path, default=default, metavar="RUN", help=what)
    parser.add_argument("--corpus", nargs="+", help="sample, multi30k, a folder, two files (what it was trained on)")
    parser.add_argument("--test", metavar="SPLIT", help="which part of the corpus (the first test split)")
    parser.add_argument("--output", type=Path, metavar="FILE", help=f"what to write ({REPORT_FILE} beside the model)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps or auto (auto)")
    parser.set_defaults(run=_command)


def _command(options: argparse.Namespace) -> int:
    accept_any_text()
    try:
        path = write_report(options.folder, options.corpus, options.test, options.output, options.device)
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        complain(f"report: error: {' '.join(str(error).split())}")
        return 1
    say(str(Report(path)))
    return 0


def _shown(path: Path) -> str:
    """Return a path as people who stand where this runs would write it."""
    path = path.resolve()
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else str(path)


def _can_be_read(sentence: str, translator: Translator) -> bool:
    try:
        translator.source_tokens(sentence)
    except ValueError:
        return False
    return True


# What the run's files say


def _about(
    run: Path, file: Path, translator: Translator, notes: dict[str, Any], corpus: Corpus, test: str, sentences: int
) -> Run:
    config = translator.model.config
    tokenizer = translator.tgt_tokenizer
    layers, heads = config.num_layers, config.num_heads
    kind = "words" if tokenizer.whole_words else "subwords"
    facts = [
        f"{sum(weights.numel() for weights in translator.model.parameters()):,} parameters",
        f"{layers} layer{'s' * (layers > 1)} of {heads} head{'s' * (heads > 1)}",
        f"d_model {config.d_model}",
        f"{len(tokenizer.vocab):,} {kind}",
    ]
    languages = translator.src_tokenizer.language, tokenizer.language
    name = "the library's own model" if file == SHIPPED_MODEL else _shown(run)
    found = Run(name, languages, facts, f"{corpus.name}, {test}", sentences)
    found.beside_tutorials = (corpus.name, corpus.src, corpus.tgt, test) == _TUTORIALS_MEASURE
    found.trained_by_library = "recipe" in notes
    if (kept := file.with_name(EPOCHS_FILE)).is_file():
        _read_epochs(kept, found)
    else:
        _read_history(notes, found)
        found.again = _training_command(notes, translator)
    parts_file = file.parent.parent / taking_home.FILE
    if not found.trained_by_library and parts_file.is_file():
        found.parts_file = _shown(parts_file)
        mine = taking_home.whose(parts_file)
        if mine is not None:
            found.parts = {name: (number, name in mine) for name, (number, _) in taking_home.PARTS.items()}
    model = _shown(run)
    measured = [*(["--corpus", *corpus.source] if corpus.source else [])]
    search = ["transformer-lib", "evaluate", model, *measured, "--split", test, "--beam-size", "1"]
    again = ["python", "-m", "transformer_exercises", "report", model, *measured, "--test", test]
    found.commands = [("its greedy score", shlex.join(search)), ("this report", shlex.join(again))]
    return found


def _read_epochs(file: Path, found: Run) -> None:
    """Read what ``keep_epochs`` wrote; a ValueError if it is something else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        found.train_losses = [float(loss) for loss in content["train_loss"]]
        found.val_losses = [float(loss) for loss in content["val_loss"]]
        found.followed = [
            Followed(str(row["src"]), str(row["tgt"]), [str(text) for text in row["translations"]])
            for row in content["sentences"]
        ]
        found.again = str(content["again"])
        lengths = {len(found.train_losses), len(found.val_losses), *(len(row.translations) for row in found.followed)}
        if len(lengths) > 1 or not all(map(math.isfinite, found.train_losses + found.val_losses)):
            raise ValueError(f"its epochs are {sorted(lengths)}, and its losses may not be finite")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not what notebook 06 writes ({error!r:.100}): run its cell `save` again") from None


def _read_history(notes: dict[str, Any], found: Run) -> None:
    """Take the losses from a model's notes, as ``fit`` writes them. Anybody may have written others: they are none."""
    history = notes.get("history")
    history = history if isinstance(history, dict) else {}
    losses = [history.get(name) for name in ("train_loss", "val_loss")]
    for values in losses:
        fits = isinstance(values, list) and len(values) == len(losses[0] or ()) > 0
        if not fits or not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
            return
    found.train_losses, found.val_losses = losses
    recipe = notes.get("recipe")
    if isinstance(recipe, dict) and recipe.get("validate_every"):
        found.unit = "validation"


def _training_command(notes: dict[str, Any], translator: Translator) -> str:
    """Return the command that trains such a model again, as far as its notes say; nothing, if they do not."""
    preset, recipe = notes.get("preset"), notes.get("recipe")
    if not isinstance(preset, str) or preset not in RECIPES or not isinstance(recipe, dict):
        return ""
    try:
        sources = trained_on(notes)
    except ValueError:
        return ""
    command = ["transformer-lib", "train", "--corpus", *sources, "--preset", preset.replace("_", "-")]
    for option, tokenizer in (("--src", translator.src_tokenizer), ("--tgt", translator.tgt_tokenizer)):
        command += [option, tokenizer.language] if (option, tokenizer.language) not in _GERMAN_TO_ENGLISH else []
    command += [] if translator.tgt_tokenizer.lower else ["--cased"]
    own = asdict(RECIPES[preset])
    changed = {name: recipe[name] for name in own if name in recipe and _plain(recipe[name]) != _plain(own[name])}
    if changed.get("subwords"):
        del changed["subwords"]  # how many a corpus gave, and not what was asked for
    config = translator.model.config
    like = TransformerConfig.preset(preset, config.src_vocab_size, config.tgt_vocab_size)
    if type(config) is TransformerConfig:
        names = (each.name for each in fields(config))
        changed |= {name: getattr(config, name) for name in names if getattr(config, name) != getattr(like, name)}
    changed.pop("pad_id", None)
    for name in ("epochs", "seed", "precision"):
        command += [f"--{name}", str(changed.pop(name))] if name in changed else []
    command += ["--set", *(f"{name}={_plain(value)}" for name, value in changed.items())] if changed else []
    return shlex.join(command)


_GERMAN_TO_ENGLISH = {("--src", "de"), ("--tgt", "en")}  # what the command takes if nothing is said


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # JSON has no tuples


# What is measured here


def _measure(found: Run, translator: Translator, pairs: list[Pair], corpus: Corpus) -> None:
    """Translate the test sentences greedily and with a beam, and add what comes out."""
    sources, references = [pair.src for pair in pairs], [pair.tgt for pair in pairs]
    size, penalty = (translator.beam_size, translator.length_penalty) if translator.beam_size > 1 else (4, 1.0)
    size = min(size, translator.model.config.tgt_vocab_size - 3)
    greedy = translator.translate(sources, 1)
    beam = translator.translate(sources, size, penalty)
    with_beam = f"a beam of {size}, α\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{penalty:g}"
    tokenizer = translator.tgt_tokenizer
    found.scores = [
        _by_words(search, texts, references, tokenizer) for search, texts in (("greedily", greedy), (with_beam, beam))
    ]
    found.scores.append(_as_papers_do(with_beam, beam, references, tokenizer))
    _add_best_and_worst(found, pairs, beam, tokenizer.lower, corpus)
    found.ribbons = _ribbons(found, translator, size, penalty)


def _by_words(search: str, translations: list[Translation], references: list[str], tokenizer: Any) -> Measured:
    """Score as the tutorials and ``bleu.score`` do; sacreBLEU is given the words, and counts."""
    if tokenizer.whole_words:
        hypothesis_words = [[word for word in one.tokens if not word.isspace()] for one in translations]
    else:
        both = zip(translations, references, strict=True)
        hypothesis_words = [bleu.words_like(one.text, reference, tokenizer) for one, reference in both]
    reference_words = [tokenizer.words(reference) for reference in references]
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    joined = [[" ".join(words) for words in side] for side in (hypothesis_words, reference_words)]
    value = metric.corpus_score(joined[0], [joined[1]]).score
    middle = _middle(hypothesis_words, reference_words)
    return Measured(search, tokenizer.counted, value, str(metric.get_signature()), middle)


def _as_papers_do(search: str, translations: list[Translation], references: list[str], tokenizer: Any) -> Measured:
    """Score whole sentences, which sacreBLEU cuts itself."""
    _, score = bleu.score(translations, references, tokenizer)
    cut_by = re.search(r"tok:([^|]+)", score.signature)[1]
    cut = sacrebleu.BLEU(tokenize=cut_by).tokenizer
    texts = [normalize(translation.text) for translation in translations], [*map(normalize, references)]
    sides = [[cut(text.lower() if tokenizer.lower else text).split() for text in side] for side in texts]
    return Measured(
        search, f"sacreBLEU's {cut_by}", score.value, score.signature.removeprefix("sacreBLEU "), _middle(*sides)
    )


def _middle(hypotheses: list[list[str]], references: list[list[str]]) -> tuple[float, float] | None:
    """Return between which scores the middle 95 % of drawn test sets lie; nothing if no four words in a row match."""
    if not bleu.by_definition(hypotheses, references):
        return None
    drawn = torch.from_numpy(bleu.bootstrap(hypotheses, references, DRAWS, SEED))
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=drawn.dtype)).tolist()
    return low, high


def _add_best_and_worst(found: Run, pairs: list[Pair], beam: list[Translation], lower: bool, corpus: Corpus) -> None:
    """Find the two by chrF: of equals, the longest. The best is none that the model has learned from."""
    metric = sacrebleu.CHRF(lowercase=lower)
    rows = [
        Example(pair.src, pair.tgt, translation.text, metric.sentence_score(translation.text, [pair.tgt]).score)
        for pair, translation in zip(pairs, beam, strict=True)
    ]
    found.mean_chrf = sum(row.chrf for row in rows) / len(rows)
    try:
        seen = {pair.src for pair in corpus["train"]}
    except CorpusError:  # it was prepared, or is not there
        seen = set()
    new = [row for row in rows if row.src not in seen] or rows
    found.best = max(new, key=lambda row: (round(row.chrf, 6), len(row.tgt.split())))
    found.worst = min(new, key=lambda row: (round(row.chrf, 6), -len(row.tgt.split())))


def _ribbons(found: Run, translator: Translator, beam_size: int, length_penalty: float) -> Ribbons | None:
    """Return where a translation's words look, in the layer whose weights are the most pointed."""
    sentence = _OLD_FRIEND if found.languages == ("de", "en") else found.best.src
    if not _can_be_read(sentence, translator):
        sentence = found.best.src
    (translation,) = translator.translate([sentence], beam_size, length_penalty, attention=True)
    source, target = _groups(translation.src_tokens), _groups(translation.tgt_tokens)
    if not source or not target:
        return None
    layers = []
    for weights in translation.attention.cross:
        mean = weights[0].mean(dim=0)  # [tgt_len, src_len]
        rows = [mean[places].mean(dim=0) for _, places in target]  # of a word's subwords, the mean
        layers.append([[row[places].sum().item() for _, places in source] for row in rows])
    pointed = [sum(map(max, rows)) / len(rows) for rows in layers]
    layer = pointed.index(max(pointed))
    heads = translation.attention.cross[0].shape[1]
    words = [word for word, _ in source], [word for word, _ in target]
    return Ribbons(*words, layers[layer], translation.text, layer + 1, len(layers), heads)


def _groups(tokens: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return words and the places of their tokens, without signs and punctuation."""
    groups: list[tuple[str, list[int]]] = []
    for place, (token, text) in enumerate(zip(tokens, readable(tokens), strict=True)):
        if text.startswith("·") and token != text and groups:
            word, places = groups[-1]
            groups[-1] = word + text[1:], [*places, place]
        else:
            groups.append((text, [place]))
    return [(word, places) for word, places in groups if any(map(str.isalnum, word)) and word not in ("<sos>", "<eos>")]
