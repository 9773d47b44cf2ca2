"""The program ``python -m transformer_exercises``: each command is added by the module that carries it out."""

import argparse
import sys
from collections.abc import Sequence

from transformer_exercises.handout import add_handout
from transformer_exercises.marking import add_mark
from transformer_exercises.report import add_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m transformer_exercises", description="Around the notebooks.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_handout(commands)
    add_mark(commands)
    add_report(commands)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
