"""Runs the command as `python -m penstock`."""

from __future__ import annotations

import sys

from penstock.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
