"""Records in the memory of this process."""

from __future__ import annotations

from collections.abc import Sequence

from penstock._contracts.forking import OwnLocks
from penstock.formats.sizes import size_words

__all__ = ["MemoryStore"]

_ENTRY_BYTES = 160
"""What a record costs beside its bytes: 33 of the bytes object, 32 of its number, up to 90 of the dict right after it has grown."""


class MemoryStore:
    """A dict of records inside a byte limit, shared by all feeds of a dataset and freed with it.

    First come, first kept: nothing is thrown out for a later record. Passes go through all elements, so the least recently used one is
    the next one needed, and throwing it out would leave no hits at all as soon as the limit is a little too small.
    """

    def __init__(self, max_bytes: int) -> None:
        """Keep records of at most `max_bytes` in all."""
        self._max_bytes = max_bytes
        self._records: dict[int, bytes] = {}
        self._locks = OwnLocks()
        self._bytes = self._hits = self._misses = 0

    def get(self, indices: Sequence[int]) -> list[bytes | None]:
        """Return one record per index, None for what is not there."""
        found = list(map(self._records.get, indices))
        misses = found.count(None)
        with self._locks.own():
            self._misses += misses
            self._hits += len(found) - misses
        return found

    def put(self, indices: Sequence[int], records: Sequence[bytes]) -> None:
        """Keep the records that fit, and of two for one index the first."""
        with self._locks.own():
            for index, record in zip(indices, records, strict=True):
                size = len(record) + _ENTRY_BYTES
                if index not in self._records and self._bytes + size <= self._max_bytes:
                    self._records[index] = record
                    self._bytes += size

    def label(self) -> str:
        """Say how full it is and how often it served."""
        with self._locks.own():
            kept, size = len(self._records), size_words(self._bytes)
            return f"in memory: {kept} elements, {size} of {size_words(self._max_bytes)}; {self._hits} hits, {self._misses} misses"
