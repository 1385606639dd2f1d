"""Decoded parts of files, kept in memory up to a number of bytes, each decoded by one thread while others wait for it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from penstock._contracts.forking import OwnLocks
from penstock.errors import PenstockError, RecordError

__all__ = ["Chunk", "Chunks"]

_MOST_FAILURES = 1024
_NUM_ORDERED = 3  # so many in a row are an order


class Chunk(Protocol):
    """What is kept."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""


Kept = TypeVar("Kept", bound=Chunk)


class _Flight:
    """A chunk that one thread is decoding."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = threading.Event()


class Chunks(Generic[Kept]):
    """Chunks by number. The one used longest ago goes first; the newest stays even when it alone is too large.

    A chunk whose bytes are not what they should be (RecordError) is remembered as bad and not decoded again, which would be once for each
    of its elements. Any other error is forgotten, so that a retry reads again. Thread-safe; waits only for another thread that decodes. A
    forked process has what was kept, and decodes anew what threads of its parent are decoding.

    Args:
        load: decodes a chunk.
        count: of the chunks that there are.
        max_bytes: of the chunks that are kept.
    """

    def __init__(self, load: Callable[[int], Kept], count: int, max_bytes: int) -> None:
        self._load, self._count, self._max_bytes = load, count, max_bytes
        self._locks = OwnLocks()
        self._kept: dict[int, Kept] = {}  # the one used longest ago first
        self._num_bytes = 0
        self._flights: dict[int, _Flight] = {}
        self._failures: dict[int, RecordError] = {}
        self._order: deque[int] = deque(maxlen=_NUM_ORDERED)  # what was decoded last
        self._most_bytes = 0  # of any chunk up to now
        self.num_loaded = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"load": self._load, "count": self._count, "max_bytes": self._max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def get(self, number: int) -> Kept:
        """Return a chunk; decode it, or wait for the thread that does.

        Raises:
            RecordError: its bytes are bad.
            Exception: what `load` raises, as it is.
        """
        while True:
            with self._locks.own():
                self._settle()
                chunk = self._kept.pop(number, None)
                if chunk is not None:
                    self._kept[number] = chunk
                    return chunk
                failure = self._failures.get(number)
                if failure is not None:
                    raise RecordError(failure.what, where=failure.where, fix=failure.fix)
                awaited = self._flights.get(number)
                wanted = number if awaited is None else self._foreseen(number)
                flight = None if wanted is None else self._take_off(wanted)
            if awaited is None:
                assert flight is not None
                return self._loaded(number, flight)
            if wanted is not None and flight is not None:
                # What cannot be read is said to whoever asks for it: RecordError is remembered, all else comes again then.
                with contextlib.suppress(PenstockError, OSError):
                    self._loaded(wanted, flight)
            awaited.done.wait()

    def _take_off(self, number: int) -> _Flight:
        self._order.append(number)
        flight = self._flights[number] = _Flight()
        return flight

    def _foreseen(self, number: int) -> int | None:
        """Return what will be asked for soon, if chunks are asked for in order and there is room: to decode instead of waiting."""
        if not self._kept or max(self._order) - min(self._order) != len(self._order) - 1:
            return None
        wanted = max(self._order) + 1
        if wanted >= self._count or any(wanted in there for there in (self._kept, self._flights, self._failures)):
            return None
        return wanted if (wanted - number + 2) * self._most_bytes <= self._max_bytes else None

    def soonest(self, numbers: Sequence[int]) -> int:
        """Return which of some chunks to ask for first: one that is there, else one that nobody decodes, else the first."""
        with self._locks.own():
            self._settle()
            for number in numbers:
                if number in self._kept:
                    return number
            return next((number for number in numbers if number not in self._flights), numbers[0])

    def _settle(self) -> None:
        """In a forked process, wait for no thread that is not there; a chunk may have been on its way in or out."""
        if self._locks.is_new():
            self._flights.clear()
            self._num_bytes = sum(chunk.nbytes for chunk in self._kept.values())

    def _loaded(self, number: int, flight: _Flight) -> Kept:
        chunk = failure = None
        try:
            chunk = self._load(number)
        except RecordError as error:
            failure = error
            raise
        finally:
            with self._locks.own():
                del self._flights[number]
                if failure is not None and len(self._failures) < _MOST_FAILURES:
                    self._failures[number] = failure
                if chunk is not None:
                    self._keep(number, chunk)
            flight.done.set()
        return chunk

    def _keep(self, number: int, chunk: Kept) -> None:
        self.num_loaded += 1
        self._kept[number] = chunk
        self._num_bytes += chunk.nbytes
        self._most_bytes = max(self._most_bytes, chunk.nbytes)
        while self._num_bytes > self._max_bytes and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self._num_bytes -= self._kept.pop(oldest).nbytes
