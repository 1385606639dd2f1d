"""Objects as they were found, and parts of them on their way."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KeptPart", "Part", "RemoteObject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteObject:
    """One object as it was when it was found.

    Attributes:
        key: what the transport asks for.
        shown: its URL without secrets.
        size: bytes.
        etag: its version as the store names it, or "".
        modified: when it was changed, as the store says it, or "".
    """

    key: str
    shown: str
    size: int
    etag: str
    modified: str

    @property
    def version(self) -> str:
        """Return what tells this version from another."""
        return self.etag or self.modified


class Part:
    """Bytes to be fetched with one request: what of them is there already is not asked for again."""

    __slots__ = ("_view", "found", "num_got", "size", "start")

    def __init__(self, found: RemoteObject, start: int, view: memoryview) -> None:
        self.found = found
        self.start = start
        self.size = len(view)
        self.num_got = 0
        self._view = view

    @property
    def begin(self) -> int:
        """Return the offset of the first byte that is missing."""
        return self.start + self.num_got

    @property
    def end(self) -> int:
        """Return the offset behind the last byte."""
        return self.start + self.size

    @property
    def shown(self) -> str:
        """Say what is missing."""
        return f"bytes {self.begin} to {self.end - 1} of {self.found.shown!r}"

    def add(self, data: Any) -> None:
        """Put the next bytes in their place."""
        count = len(data)
        self._view[self.num_got : self.num_got + count] = data
        self.num_got += count

    def body(self, begin: int) -> memoryview:
        """Return what came from offset `begin` of the object on."""
        return self._view[begin - self.start : self.num_got]


class KeptPart(Part):
    """A part whose bytes are kept as they come, in pieces, and copied when somebody wants them."""

    __slots__ = ("_pieces", "_starts")

    def __init__(self, found: RemoteObject, start: int, size: int) -> None:
        super().__init__(found, start, memoryview(b""))
        self.size = size
        self._pieces: list[memoryview] = []
        self._starts: list[int] = []  # of the pieces, counted from the beginning of the part

    def add(self, data: Any) -> None:
        """Take the next bytes."""
        while self._starts and self._starts[-1] >= self.num_got:  # a try was given up, and what it brought does not count
            self._starts.pop()
            self._pieces.pop()
        self._starts.append(self.num_got)
        self._pieces.append(memoryview(data).cast("B"))
        self.num_got += len(self._pieces[-1])

    def body(self, begin: int) -> memoryview:
        """Return what came from offset `begin` of the object on."""
        return memoryview(b"".join(self._pieces))[begin - self.start : self.num_got]

    def copy(self, begin: int, target: NDArray[np.uint8]) -> None:
        """Fill `target`, uint8 [n], with what came from offset `begin` of the object on; from any thread when all is there."""
        place, end, got = begin - self.start, begin - self.start + len(target), 0
        number = bisect_right(self._starts, place) - 1
        while place < end:
            piece = np.frombuffer(self._pieces[number], np.uint8)[place - self._starts[number] : end - self._starts[number]]
            np.copyto(target[got : got + len(piece)], piece)
            place, got, number = place + len(piece), got + len(piece), number + 1
