"""Numbers of bytes in words."""

from __future__ import annotations

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size_words(num_bytes: int) -> str:
    """Return a size in the unit that leaves one to three digits before the point, in powers of 1000."""
    size, unit = float(num_bytes), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{num_bytes} bytes" if unit == 0 else f"{size:.3g} {_UNITS[unit]}"
