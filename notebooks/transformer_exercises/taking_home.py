"""``my_transformer.py``: what readers wrote, in one file that runs; ``the_transformer.py`` gives the rest.

What ``keep`` wrote down is put in the place of the file's own, with its comments, and with the imports, helpers and
constants that it uses. The file is run in a process of its own before it replaces an older one: what does not fit is
left out, with the reason.
"""

import ast
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import filelock

from transformer_exercises import course, keeping
from transformer_lib.files import replacing, shipped

FILE = "my_transformer.py"
PARTS = {  # in the order of the file; the notebook that writes each, and, if the file has none, what it is a part of
    "padding_mask": ("03", ""),
    "causal_mask": ("03", ""),
    "target_mask": ("03", ""),
    "scaled_dot_product_attention": ("03", ""),
    "MultiHeadAttention": ("03", ""),
    "PositionwiseFeedForward": ("04", ""),
    "EncoderLayer": ("04", ""),
    "DecoderLayer": ("04", ""),
    "Decoder": ("04", "Transformer"),
    "TokenEmbedding": ("04", "Transformer"),
    "SinusoidalPositionalEncoding": ("04", ""),
    "InputEmbedding": ("04", "Transformer"),
    "Transformer": ("05", ""),
    "token_loss": ("06", ""),
    "train_one_epoch": ("06", ""),
    "beam_one": ("07", "beam"),
    "beam": ("07", ""),
    "clipped_matches": ("09", "corpus_bleu"),
    "brevity_penalty": ("09", "corpus_bleu"),
    "corpus_bleu": ("09", ""),
}
_NARROWER = {"EncoderLayer", "DecoderLayer"}  # the file's own know one order of norm and sub-layer, and not two
_HEAD = '''"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), from two texts to a translator.

{0}

    python my_transformer.py train --texts my.de my.en --test test.de test.en --epochs 5
    python my_transformer.py translate "Zwei Hunde spielen im Schnee."

Line n of my.en translates line n of my.de; without --texts, it looks for Multi30k's files in a folder multi30k. All it
needs is PyTorch. (3.2.1) is a section of the paper.
"""'''
_SEAL = "# {:.16}: as long as this number fits, the notebooks write this file again; a changed one they set aside.\n"
_CONFIG = """
    # what its model asks for besides
    pad_id, max_len, positions, norm_first, tie_embeddings = 1, 256, "sinusoidal", True, True
    src_vocab_size = tgt_vocab_size = property(lambda self: self.vocab_size)
"""
_CHANGES = {  # of the file's text, before any part
    '"the_transformer.pt"': '"my_transformer.pt"',
    'os.path.join(os.environ.get("TRANSFORMER_LIB_DATA", "data/cache"), "multi30k")': '"multi30k"',
}
_TRIAL = """
import contextlib, faulthandler, io, json, runpy, sys, traceback
import torch

torch.set_num_threads(1)
sentences = {"de": "ein hund\\nzwei hunde\\nein kind\\nzwei kinder\\n"}
sentences["en"] = "a dog\\ntwo dogs\\na child\\ntwo children\\n"
for side, text in sentences.items():
    with open(f"trial.{side}", "w", encoding="utf-8") as file:
        file.write(text)
texts = ["trial.de", "trial.en"]
sizes = "--epochs 2 --vocab_size 40 --d_model 8 --num_heads 2 --d_ff 16 --num_layers 2 --max_tokens 20".split()
said = open(sys.argv[1], "w", encoding="utf-8")
for path in sys.argv[2:]:
    faulthandler.dump_traceback_later(60, exit=True)  # what has no end by then, has none
    found, lines, model = "", [], ["--model", path + ".pt"]
    for command in (["--help"], [*model, "train", "--texts", *texts, "--test", *texts, *sizes],
                    [*model, "translate", "ein hund", "zwei kinder"]):
        sys.argv = [path, *command]
        try:
            with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()):
                runpy.run_path(path, run_name="__main__")
        except SystemExit as ended:
            found = str(ended.code or "")
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        if not found and "loss nan" in printed.getvalue():
            found = "the loss is nan"
        if found:
            break
    ours = {name.partition(".")[0] for name in sys.modules} & {"transformer_lib", "transformer_exercises"}
    found = found or " ".join(f"it imports {name}" for name in sorted(ours))
    print(json.dumps([found, lines]), file=said, flush=True)
"""


@dataclass
class Written:
    """What is in ``written.py``: statements and imports by the names that they give, and which parts are right."""

    blocks: dict[str, keeping.Block] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # what is meant, and the line
    right: set[str] = field(default_factory=set)
    wrong: dict[str, str] = field(default_factory=dict)  # parts, and why


def write(folder: str | Path, check: keeping.Check) -> None:
    """Write ``my_transformer.py``, and say how many of its parts are the reader's and why others are not."""
    folder = Path(folder).resolve()
    file = folder / FILE
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / f".{FILE}.lock", timeout=600):  # two notebooks may come to their ends at once
        before = _text_of(file)
        try:
            written = read(folder / keeping.FILE, check)
        except (OSError, SyntaxError, ValueError) as error:
            print(f"{keeping.FILE} cannot be read: {type(error).__name__}: {error}")
            if before is not None:
                print(f"{FILE} stays as it is")
                return
            written = Written()
        mine, reasons = chosen(written, written.right)
        text = assembled(written, mine)
        if mine and text != before:
            mine, reasons = fitting(written)
            text = assembled(written, mine)
        if before not in (None, text) and before != _sealed(before.rpartition("# ")[0]):
            print(f"{FILE} was changed by hand: it is {_set_aside(file)} now")
        if text != before:
            with replacing(file) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")
    below = file.relative_to(Path.cwd()).as_posix() if file.is_relative_to(Path.cwd()) else ""
    print(f"{FILE}: {len(mine)} of {len(PARTS)} parts are yours" + (f" ({below})" if below else ""))
    for reason in dict.fromkeys(reasons[name] for name in PARTS if name in reasons):
        print(f"{', '.join(name for name in PARTS if reasons.get(name) == reason)}: {reason}")


def _text_of(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _sealed(text: str) -> str:
    return text + _SEAL.format(hashlib.sha256(text.encode()).hexdigest())


def _set_aside(file: Path) -> str:
    """Copy a file to the first free name of its kind, and return that."""
    number = next(n for n in range(1, 10_000) if not file.with_name(f"{file.stem}.{n}.py").exists())
    return Path(shutil.copy2(file, file.with_name(f"{file.stem}.{number}.py"))).name


# What readers wrote, and what of it can be in the file


def read(file: Path, check: keeping.Check) -> Written:
    """Read ``written.py``, and check each part that is in it, with the course's own in the place of those not right.

    Raises an OSError, a SyntaxError or a ValueError if it cannot be read.
    """
    written = Written()
    if not file.exists():
        return written
    module, stopped = keeping.run(file)
    text = file.read_text(encoding="utf-8")
    for block in keeping.statements(text.splitlines(), ast.parse(text)):
        if block.imports:
            written.imports |= _imports(ast.parse(block.text).body[0])
        else:
            written.blocks |= dict.fromkeys(block.names, block)
    for name in PARTS:
        if name not in written.blocks:
            continue
        if name in stopped:
            written.wrong[name] = f"left out, it cannot be run: {type(stopped[name]).__name__}: {stopped[name]}"
        elif verdict := check(name, getattr(module, name, None)):
            written.right.add(name)
            continue
        else:
            written.wrong[name] = f"left out, it is not right: {verdict.message}"
        setattr(module, name, course.own(name))  # what is built of it is judged by itself
    return written


def _imports(node: ast.stmt) -> dict[str, tuple[str, str]]:
    """Return, for each name that an import gives, what it means, such as ``torch.nn``, and a line for it alone."""
    found = {}
    for alias in getattr(node, "names", ()):
        line = ast.unparse(
            ast.ImportFrom(node.module, [alias], node.level)
            if isinstance(node, ast.ImportFrom)
            else ast.Import([alias])
        )
        name = alias.asname or alias.name.partition(".")[0]
        whole = alias.name if alias.asname else name
        if isinstance(node, ast.ImportFrom):
            whole = f"{'.' * node.level}{node.module or ''}.{alias.name}"
        found[name] = whole, line
    return found


def _is_config(meant: str) -> bool:
    return meant.startswith("transformer_lib.") and meant.endswith(".TransformerConfig")


def _is_everywhere(module: str) -> bool:
    root = module.partition(".")[0]
    return root == "torch" or root in sys.stdlib_module_names


def lacks(name: str, written: Written, mine: set[str]) -> str:
    """Return what keeps a part out of a file in which these are the reader's: another part, or a reason, or nothing."""
    whole, names = PARTS[name][1], [name]
    if whole and whole not in mine:
        return whole
    own_names, own_imports = _names_of_the_file()
    for used in names:  # which grows
        block = written.blocks[used]
        for node in ast.walk(ast.parse(block.text)):
            for meant, line in _imports(node).values() if isinstance(node, ast.Import | ast.ImportFrom) else ():
                if not _is_everywhere(meant):
                    return f"left out, `{line}` needs more than PyTorch"
        for other in keeping.names_used(block.text):
            if other in PARTS:
                if other not in mine and (PARTS[other][1] or other in _NARROWER):
                    return other
            elif other in written.blocks:
                if other in own_names or other in own_imports:
                    return f"left out, its `{other}` has the name of something else in the file: give it another"
                names += [other] if other not in names else []
            elif other in written.imports:
                meant, line = written.imports[other]
                if _is_config(meant):
                    continue
                if not _is_everywhere(meant):
                    return f"left out, `{line}` needs more than PyTorch"
                if other in own_names or own_imports.get(other, (meant,))[0] != meant:
                    return f"left out, `{line}` has the name of something else in the file: give it another"
            else:
                return f"left out, it uses `{other}`, which {keeping.FILE} does not have"
    return ""


def chosen(written: Written, names: Iterable[str]) -> tuple[set[str], dict[str, str]]:
    """Return as many of these parts as can be in the file together, and why the others cannot."""
    mine = set(names)
    reasons: dict[str, str] = {}
    while out := {name: lack for name in mine if (lack := lacks(name, written, mine))}:
        mine -= out.keys()
        reasons |= out
    waiting = {name: f"waiting for {lack}" if lack in PARTS else lack for name, lack in reasons.items()}
    return mine, written.wrong | waiting


def fitting(written: Written) -> tuple[set[str], dict[str, str]]:
    """Return the parts with which the file runs, in a process of its own, and why the others are not among them."""
    refused: dict[str, str] = {}
    mine, reasons = chosen(written, written.right)
    if _outcomes([assembled(written, mine)])[0][0]:  # which of them is it?
        names = [name for name in PARTS if name in mine and not PARTS[name][1]]
        alone = [chosen(written, _with_what_it_needs(name, written))[0] for name in names]
        for name, (error, _) in zip(names, _outcomes([assembled(written, some) for some in alone]), strict=True):
            if error:
                refused[name] = error
        mine, reasons = chosen(written, written.right - refused.keys())
        while mine:  # each may run alone, and not with the others
            text = assembled(written, mine)
            error, lines = _outcomes([text])[0]
            if not error:
                break
            refused[_part_of(text, lines, mine)] = error
            mine, reasons = chosen(written, written.right - refused.keys())
    return mine, reasons | {name: f"left out, the file does not run with it: {refused[name]}" for name in refused}


def _with_what_it_needs(name: str, written: Written) -> set[str]:
    needed = {name}
    while more := {lack for one in needed if (lack := lacks(one, written, needed))}:
        needed |= more
    return needed


def _part_of(text: str, lines: list[int], mine: set[str]) -> str:
    """Return the reader's part in which a traceback ends, of those that the file has a place for."""
    spans = {node.name: (node.lineno, node.end_lineno or 0) for node in ast.parse(text).body if hasattr(node, "name")}
    for line in reversed(lines):
        for name, (first, last) in spans.items():
            if name in mine and first <= line <= last:
                return PARTS[name][1] or name
    return next(name for name in reversed(PARTS) if name in mine and not PARTS[name][1])


def _outcomes(texts: list[str]) -> list[tuple[str, list[int]]]:
    """Run files in a process that knows nothing of this project, and return what stops each, and the lines it is in."""
    found: list[tuple[str, list[int]]] = []
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.py") for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8", newline="\n")
        while len(found) < len(texts):
            said = Path(folder, f"{len(found)}.txt")
            said.touch()
            rest = [said, *files[len(found) :]]
            subprocess.run([sys.executable, "-I", "-c", _TRIAL, *map(str, rest)], cwd=folder, capture_output=True)
            found += [tuple(json.loads(line)) for line in said.read_text(encoding="utf-8").splitlines()]
            if len(found) < len(texts):
                found.append(("it finds no end, or ends its process", []))
    return [(" ".join(error.split()), lines) for error, lines in found]


# The file


@cache
def _own_text() -> str:
    """Return the text of ``the_transformer.py``, with the names and places that suit a file of the reader's."""
    text = shipped("the_transformer.py").read_text(encoding="utf-8")
    for before, after in _CHANGES.items():
        text = _changed(text, before, after)
    return text


def _changed(text: str, before: str, after: str) -> str:
    if text.count(before) != 1:
        raise AssertionError(f"the_transformer.py has {before!r} {text.count(before)} times, expected once")
    return text.replace(before, after)


@cache
def _names_of_the_file() -> tuple[set[str], dict[str, tuple[str, str]]]:
    """Return the names that ``the_transformer.py`` gives, other than its parts, and those that it imports."""
    text = _own_text()
    names: set[str] = set()
    imports: dict[str, tuple[str, str]] = {}
    for block in keeping.statements(text.splitlines(), ast.parse(text)):
        if block.imports:
            imports |= _imports(ast.parse(block.text).body[0])
        else:
            names |= {*block.names} - PARTS.keys()
    return names, imports


def assembled(written: Written, mine: set[str]) -> str:
    """Return the text of the file in which these parts are the reader's, with all that they use."""
    own = _own_text()
    for layer in _NARROWER & mine if "Transformer" not in mine else ():
        own = _changed(own, f"{layer}(*sizes)", f"{layer}(*sizes, norm_first=True)")
    body, lines = ast.parse(own).body, own.splitlines()
    blocks = _blocks(written, mine)
    used = {name for some in blocks.values() for block in some for name in keeping.names_used(block.text)}
    imports = {name: written.imports[name] for name in used - PARTS.keys() if name in written.imports}
    configs = sorted(name for name, (meant, _) in imports.items() if _is_config(meant))
    given = _names_of_the_file()[1].keys() | {*configs}
    last = max(number for number, node in enumerate(body) if isinstance(node, ast.Import | ast.ImportFrom))
    pieces, end = [_head(mine)], body[0].end_lineno or 0
    for number, node in enumerate(body):
        name, after = getattr(node, "name", ""), []
        if number == last:
            after = sorted(line for name, (_, line) in imports.items() if name not in given)
        if name == "Config":
            after = [_CONFIG.rstrip()] if "Transformer" in mine else []
            after += [f"\n\n{name} = Config" for name in configs]
        if name in mine:
            pieces += lines[end : node.lineno - 1]
            text = "\n\n\n".join(block.text for block in blocks[name])
            pieces += ["", text] if pieces[-1].startswith("#") else [text]  # the file's headings are no part's
        else:
            pieces += lines[end : node.end_lineno]
        pieces += after
        end = node.end_lineno or 0
    return _sealed("\n".join([*pieces, *lines[end:]]) + "\n\n")


def _blocks(written: Written, mine: set[str]) -> dict[str, list[keeping.Block]]:
    """Return, for each part that the file has a place for, what stands there: what it uses, and then itself."""
    done: list[keeping.Block] = []

    def put(name: str) -> None:
        block = written.blocks[name]
        if block not in done:
            done.append(block)  # now, so that what calls itself ends
            for other in keeping.names_used(block.text):
                if other in written.blocks and (other not in PARTS or (other in mine and PARTS[other][1])):
                    put(other)
            done.append(done.pop(done.index(block)))

    found = {}
    for place in (name for name in PARTS if name in mine and not PARTS[name][1]):
        begin = len(done)
        for name, (_, whole) in PARTS.items():
            if name in mine and whole == place:
                put(name)
        put(place)
        found[place] = done[begin:]
    return found


def _head(mine: set[str]) -> str:
    others: dict[str, list[str]] = {}
    for name, (notebook, _) in PARTS.items():
        if name not in mine:
            others.setdefault(notebook, []).append(name)
    line = f"{len(mine)} of {len(PARTS)} parts are yours."
    if others:
        rest = (f"{', '.join(names)} (notebook {notebook})" for notebook, names in sorted(others.items()))
        line += f" Not yours: {'; '.join(rest)}."
    return _HEAD.format(textwrap.fill(line, 120))


def whose(file: Path) -> set[str] | None:
    """Return which parts a file's first lines count as the reader's; None if they do not say so, or not any more."""
    text = " ".join((_text_of(file) or "").partition("python my_transformer.py")[0].split())
    counted = re.search(r"(\d+) of (\d+) parts are yours\.(?: Not yours: (.*?)\.)? *$", text)
    if not counted:
        return None
    mine = set(PARTS) - set(re.findall(r"\w+", counted[3] or ""))
    return mine if (len(mine), len(PARTS)) == (int(counted[1]), int(counted[2])) else None
