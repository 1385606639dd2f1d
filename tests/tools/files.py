from __future__ import annotations

from pathlib import Path


def write(root: Path, name: str, text: str = "") -> None:
    """Write a file below a folder, which gets the folders that it lacks."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
