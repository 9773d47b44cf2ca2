"""Write what the page "Try it" loads: its scripts, and the shipped model's weights as scripts. `make book` calls this."""

import json
import sys
from pathlib import Path

from transformer_lib.inference.translator import Translator
from transformer_lib.page.writer import describe, write_scripts

HEADS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "heads.json"

if __name__ == "__main__":
    translator = Translator.load()
    heads = json.loads(HEADS.read_text(encoding="utf-8"))  # how much the loss rises without each head
    write_scripts(translator, Path(sys.argv[1]), describe(translator, "multi30k", heads=heads))
