"""Files by byte ranges: local ones, remote ones, and how finished files get their names."""

from __future__ import annotations

from penstock._storage.opening import open_storage

__all__ = ["open_storage"]
