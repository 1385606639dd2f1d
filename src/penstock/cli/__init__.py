"""The command `penstock`."""

from __future__ import annotations

from penstock.cli.command import main

__all__ = ["main"]
