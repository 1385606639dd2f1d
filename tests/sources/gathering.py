"""Files for tests, and what a source gives of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def fill(folder: Path, *names: str) -> None:
    """Write files that hold their names."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(name))


def gathered(source: Any, indices: Any = None) -> list[Any]:
    """Return the elements with these numbers, or all."""
    rows: list[Any] = []
    source.gather(range(len(source)) if indices is None else indices, rows)
    return rows
