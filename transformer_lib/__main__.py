"""The program ``transformer-lib``, which is also ``python -m transformer_lib``."""

import sys

from transformer_lib.cli import main

if __name__ == "__main__":
    sys.exit(main())
