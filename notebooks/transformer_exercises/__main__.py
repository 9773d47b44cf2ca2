"""``python -m transformer_exercises``: what can be done with one's own work outside the notebooks."""

import argparse
import sys
from collections.abc import Sequence

from transformer_exercises.report import add_report
from transformer_lib.cli import complain
from transformer_lib.files import accept_any_text

_COMMANDS = (add_report,)  # each adds one to the subparsers, with the function that runs it as its ``command``


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    accept_any_text()
    parser = argparse.ArgumentParser("python -m transformer_exercises", description=__doc__.partition(": ")[2])
    subparsers = parser.add_subparsers(required=True, metavar="command")
    for add in _COMMANDS:
        add(subparsers)
    options = vars(parser.parse_args(arguments))
    command = options.pop("command")
    try:
        command(**options)
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        complain(f"transformer_exercises: error: {' '.join(str(error).split())}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
