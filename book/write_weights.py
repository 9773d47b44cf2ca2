"""Write what the page "Try it" loads, with the shipped model's weights, into a folder. `make book` calls this."""

import json
import shutil
import sys
from pathlib import Path

from transformer_lib.inference.translator import Translator
from transformer_lib.page.writer import describe, write_scripts

ROOT = Path(__file__).resolve().parents[1]
TOUR = ROOT / "book" / "tour"  # which is about the shipped model
HEADS = ROOT / "benchmarks" / "results" / "heads.json"  # how much the loss rises without each head

if __name__ == "__main__":
    translator = Translator.load()
    heads = json.loads(HEADS.read_text(encoding="utf-8"))
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    write_scripts(translator, folder, describe(translator, "multi30k") | {"heads": heads})
    for path in TOUR.iterdir():
        shutil.copyfile(path, folder / path.name)
