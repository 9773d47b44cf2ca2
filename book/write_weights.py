"""Write what the page "Try it" loads: the shipped model's weights as scripts, and its scripts.

A page that was opened from a disk may not fetch anything, but it may load scripts. So the weights are text in scripts,
a megabyte each, which is also how the page knows how far it has come. They stay in half precision: int8 would halve
them, but change the translations of 37 in 1,000 sentences (`python benchmarks/translator_page.py`). `make book` calls
this; it needs numpy only.
"""

import base64
import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "transformer_lib" / "page"
TOUR = ROOT / "book" / "tour"  # which is about the shipped model
MODEL = ROOT / "assets" / "multi30k_best.safetensors"
HEADS = ROOT / "benchmarks" / "results" / "heads.json"  # how much the loss rises without each head
PART = 750_000  # bytes, which are a million letters in base64
WORKER = ("tokenizer", "model", "search", "worker")  # a page from a disk may start no worker from a file, but from text
PIECES, NORMALIZER, CHARSMAP = 1, 3, 2  # numbers of fields in a sentencepiece model


def read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return what a file says about its model, and its weights, which are in half precision."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    about = header.pop("__metadata__")
    tensors = {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], "<f2").reshape(entry["shape"])
        for name, entry in header.items()
    }
    return about, tensors


def fields(message: bytes) -> list[tuple[int, bytes | int]]:
    """Split a protocol buffer, as which sentencepiece saves, into its fields: numbers and values."""
    found, i = [], 0

    def varint() -> int:
        nonlocal i
        value = shift = 0
        while True:
            byte = message[i]
            i += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while i < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            found.append((number, varint()))
        else:
            length = {1: 8, 5: 4}.get(kind) or varint()
            found.append((number, message[i : i + length]))
            i += length
    return found


def packed(path: Path) -> bytes:
    """Return four bytes with a length, as much JSON, sentencepiece's table of letters, and the weights."""
    about, tensors = read_safetensors(path)
    sentencepiece = fields(base64.b64decode(json.loads(about["tokenizers"])["src"]["subwords"]))
    pieces = [dict(fields(value))[1].decode() for number, value in sentencepiece if number == PIECES]
    normalizer = dict(fields(dict(sentencepiece)[NORMALIZER]))
    charsmap = normalizer[CHARSMAP] + bytes(-len(normalizer[CHARSMAP]) % 4)  # numbers begin at multiples of 4
    header = {
        "config": json.loads(about["config"]),
        "search": json.loads(about["notes"])["search"],
        "pieces": pieces,
        "charsmap": len(charsmap),
        "sizes": {name: tensor.size for name, tensor in tensors.items()},
    }
    body = b"".join(tensor.tobytes() for tensor in tensors.values())
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    return struct.pack("<I", len(text)) + text + charsmap + body


def write(folder: Path) -> None:
    """Write into a folder all that the page loads."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*HERE.glob("*.js"), *HERE.glob("*.css"), *TOUR.iterdir()]:
        shutil.copyfile(path, folder / path.name)
    content = packed(MODEL)
    parts = [base64.b64encode(content[i : i + PART]).decode() for i in range(0, len(content), PART)]
    for old in folder.glob("weights_*.js"):
        old.unlink()
    scripts = [f'receiveWeights("{part}");\n' for part in parts]
    for number, script in enumerate(scripts):
        (folder / f"weights_{number:02}.js").write_text(script, encoding="ascii")
    notebook = ROOT / "transformer_lib" / "notebook"
    viewer, style = ((notebook / f"viewer.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
    source = "\n".join((HERE / f"{name}.js").read_text(encoding="utf-8") for name in WORKER)
    (folder / "generated.js").write_text(
        "// Written by write_weights.py: sizes, what the worker runs, what heads are worth, the notebooks' viewer.\n"
        f"const WEIGHTS = {json.dumps({'parts': len(parts), 'megabytes': round(sum(map(len, scripts)) / 1e6, 1)})};\n"
        f"const WORKER_SOURCE = {json.dumps(source)};\n"
        f"const HEADS = {HEADS.read_text(encoding='utf-8').strip()};\n"
        f"function startViewers() {{\nconst STYLE = {json.dumps(style)};\n{viewer}}}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
