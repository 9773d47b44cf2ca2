"""Lets ``python -m transformer_lib`` run the command line."""

import sys

from transformer_lib.cli import main

sys.exit(main())
