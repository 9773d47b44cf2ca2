"""The program ``transformer-lib``, which is also ``python -m transformer_lib``."""

import sys


def main() -> int:
    """Run the command line. Ctrl-C ends it with one line, also while PyTorch is still being loaded."""
    try:
        from transformer_lib.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
