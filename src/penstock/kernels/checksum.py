"""The one check sum of index files and of what they describe."""

from __future__ import annotations

import zlib
from typing import Any

__all__ = ["checksum"]


def checksum(data: Any, before: int = 0) -> int:
    """Return the check sum of a contiguous buffer, going on from that of the bytes before it. From any thread."""
    return zlib.crc32(data, before)
