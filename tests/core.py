"""Which cells of a matrix `make test` runs; `make check` runs the others too."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def core(values: Iterable[Any], kept: int | Collection[Any] = 1) -> list[Any]:
    """Mark the values of a parameter slow, but for the first ones or those that are named. A tuple is of several parameters."""
    cells = list(values)
    chosen = cells[:kept] if isinstance(kept, int) else kept
    assert all(value in cells for value in chosen)
    return [
        cell if cell in chosen else pytest.param(*(cell if isinstance(cell, tuple) else [cell]), marks=pytest.mark.slow) for cell in cells
    ]
