"""What the operator `cache` asks of the place where it keeps elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["RecordStore"]


class RecordStore(Protocol):
    """Bytes by number. Safe from several threads at once; holds no thread, lock or descriptor between calls."""

    def get(self, indices: Sequence[int]) -> list[bytes | None]:
        """Return one record per index, None for what is not there; never a record that is not as it was written."""

    def put(self, indices: Sequence[int], records: Sequence[bytes]) -> None:
        """Keep records, as far as they fit. When it is not possible, the records are simply not there later: never an error."""

    def label(self) -> str:
        """Say in one line where the records are, how many and how large they are, and how many were found and not found."""
