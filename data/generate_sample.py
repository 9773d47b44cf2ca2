"""Write the sample corpus: `python data/generate_sample.py` rewrites data/sample/, always with the same bytes.

`--stats` prints figures about the corpus instead, `--show N` prints N random pairs with their alignments.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from sample_grammar.choose import Chooser  # noqa: E402
from sample_grammar.generate import make_splits, statistics, write_splits  # noqa: E402


def main() -> None:
    """Read the command line and write, measure or show the corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "sample", help="folder to write to (default: data/sample)")
    parser.add_argument("--stats", action="store_true", help="print figures and write nothing")
    parser.add_argument("--show", type=int, metavar="N", help="print N random train pairs and write nothing")
    parser.add_argument("--seed", type=int, default=0, help="which random pairs --show picks (default: 0)")
    options = parser.parse_args()

    splits = make_splits()
    if options.stats:
        print(statistics(splits))
    elif options.show:
        chooser = Chooser(options.seed)
        for pair in (chooser.pick(splits["train"]) for _ in range(options.show)):
            alignment = " ".join(f"{i}-{j}" for i, j in pair.alignment)
            print(f"{pair.german_text}\n{pair.english_text}\n{alignment}  [{pair.pattern}]\n")
    else:
        write_splits(splits, options.out)
        print(f"wrote {', '.join(splits)} to {options.out}")


if __name__ == "__main__":
    main()
