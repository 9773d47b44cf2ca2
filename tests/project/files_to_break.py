"""What ``test_untrusted.py`` does to files, in processes of their own: a crash there is found, and costs nothing."""

import json
import random
import signal
from pathlib import Path

import torch

from transformer_lib.checkpoint import load_model
from transformer_lib.data.subwords import SubwordTokenizer
from transformer_lib.files import CheckpointError, load_training_state
from transformer_lib.inference.translator import Translator
from transformer_lib.language_model.generator import TextGenerator
from transformer_lib.model.transformer import Transformer

ROOM = 2**28  # bytes that reading a file of some kilobytes, and translating with it, may take
SECONDS = 60  # after which a process that does not come back is killed
NASTY = [0, 1, -1, 2, 7, 2**31, 2**63, 10**9, 10**40, 0.5, 1e308, float("nan"), float("inf"), True, None, "", "x", "\0"]
NASTY += ["Transformer", "TransformerLanguageModel", "WordTokenizer", "SubwordTokenizer", "StreamTokenizer"]
NASTY += ["../../etc/passwd", "os", "de.examples", "\x1b[2J", [], [1], {}, {"a": 1}, "a" * 10_000, [[[[]]]], "F8_E4M3"]


def read(path: Path) -> str:
    """Do with a file what a user would: say what came of it, in one word if it was allowed to."""
    try:
        if path.suffix == ".pt":
            state = load_training_state(path)
            return "loaded" if isinstance(state, dict) else f"a {type(state).__name__}"
        if isinstance(load_model(path).model, Transformer):
            Translator.load(path).translate(["Ein Hund schläft.", "Das ist"])
        else:
            TextGenerator.load(path)("a", length=3, seed=1)
        return "loaded"
    except CheckpointError as error:
        return f"out of memory: {error}" if "allocate memory" in str(error) else "refused"
    except (ValueError, FloatingPointError):  # a vocabulary without the word, weights that are far too large
        return "loaded"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def break_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change, remove, add or repeat some bytes, most often near the beginning, where what they mean stands."""
    broken = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 50))):
        end = max(1, rng.choice((8, 64, len(broken), len(broken))))
        i = rng.randrange(min(end, len(broken) or 1))
        some = slice(i, i + rng.choice((1, 8, 100)))
        kind = rng.randrange(5)
        if kind == 0:
            broken[some] = rng.randbytes(len(broken[some]))
        elif kind == 1:
            del broken[some]
        elif kind == 2:
            broken[i:i] = rng.randbytes(8)
        elif kind == 3:
            broken[i:i] = broken[some]
        else:
            del broken[rng.randrange(len(broken) + 1) :]
    return bytes(broken)


def break_json(value, rng: random.Random):
    """Replace, remove or add a value somewhere in what JSON can hold; in a text that is JSON itself, inside it."""
    if isinstance(value, str) and value[:1] in "[{" and value and rng.random() < 0.9:
        return json.dumps(break_json(json.loads(value), rng))
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        kind = rng.random()
        if kind < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.2:
            return {**value, rng.choice(("extra", "search", "", key.upper())): rng.choice(NASTY)}
        return {**value, key: break_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        i = rng.randrange(len(value))
        return [*value[:i], break_json(value[i], rng), *value[i + 1 :]]
    return rng.choice(NASTY)


def break_header(content: bytes, rng: random.Random) -> bytes:
    """Change what a safetensors file says about itself: tensors' shapes and places, configuration, words, notes."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if rng.random() < 0.7:
        header["__metadata__"] = break_json(header["__metadata__"], rng)
    else:
        header = break_json(header, rng)
    if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):  # or the format refuses it unread
        metadata = header["__metadata__"].items()
        header["__metadata__"] = {key: v if isinstance(v, str) else json.dumps(v) for key, v in metadata}
    changed = json.dumps(header).encode()
    return len(changed).to_bytes(8, "little") + changed + content[8 + length :]


def attack_subwords(proto: bytes, first: int, last: int) -> None:
    """Cut sentences with sentencepiece models that were made to crash it, as sentencepiece 0.2.1 does.

    Even numbers lead the table by which it replaces letters astray, odd ones have a piece of a megabyte (its issues
    1269 and 1263). A model that is refused, or that cuts sentences, is fine.
    """
    for number in range(first, last):
        rng = random.Random(number)
        broken = bytearray(proto)
        if number % 2:
            piece = b"a" * 2**20
            piece = b"\x0a" + length_of(piece) + piece + b"\x15\0\0\x80\xbf"  # its score: -1
            broken += b"\x0a" + length_of(piece) + piece
        else:
            table = broken.index(b"nmt_nfkc\x12") + 9
            while broken[table] & 128:  # its length
                table += 1
            for unit in (0, *(rng.randrange(1000) for _ in range(rng.choice((0, 0, 100))))):
                start = table + 1 + 4 + 4 * unit
                broken[start : start + 4] = rng.randbytes(4)
        try:
            tokenizer = SubwordTokenizer("de", bytes(broken))
            for sentence in ("Zwei junge Männer ﬁ ½ Ａ 😀", "\u3300"):
                tokenizer.join(tokenizer.tokenize(sentence))
        except ValueError:
            pass


def length_of(content: bytes) -> bytes:
    """Write a length as protobuf does: seven bits a byte, the lowest first."""
    length, written = len(content), b""
    while length > 127:
        written += bytes([length & 127 | 128])
        length >>= 7
    return written + bytes([length])


def read_broken(path: Path, first: int, last: int, results: Path) -> None:
    """Break a file in the ways that these numbers stand for, and write what came of each into ``results``."""
    import resource  # which Windows has not

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    content = path.read_bytes()
    read(path)  # takes what is taken once
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, -1))
    broken = results.with_suffix(path.suffix)
    with open(results, "a", buffering=1) as lines:
        for number in range(first, last):
            rng = random.Random(f"{path.name}, {number}")
            breaks = break_header if path.suffix == ".safetensors" and rng.random() < 0.7 else break_bytes
            broken.write_bytes(breaks(content, rng))
            signal.alarm(SECONDS)
            print(" ".join(f"{number} {read(broken)}".split()), file=lines)
            signal.alarm(0)
