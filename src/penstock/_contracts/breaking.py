"""Ends what a thread waits for from outside, such as an answer of a server that does not come to a worker that is to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import StorageError

__all__ = ["Breaker", "ReadBrokenOff", "breakable"]


class ReadBrokenOff(StorageError):
    """A read ended because its thread is to stop: nobody waits for it, and no policy says what becomes of it."""


class Breaker:
    """Ends the waits of the threads that attach themselves, now and from then on.

    `break_off` takes no lock and may be called from any thread, in finalisers and signal handlers.
    """

    __slots__ = ("_broken", "_ends")

    def __init__(self) -> None:
        self._broken = False
        self._ends: dict[int, Callable[[], object]] = {}

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have the waits of this thread end with this breaker, in the `with` block: the body of a worker."""
        before, _here.breaker = _here.breaker, self
        try:
            yield
        finally:
            _here.breaker = before

    @property
    def is_attached(self) -> bool:
        """Whether it is this thread that is attached."""
        return _here.breaker is self

    def break_off(self) -> None:
        """End all waits, and each later one as soon as it begins. A second call does nothing more."""
        self._broken = True
        for end in list(self._ends.values()):
            end()

    @contextmanager
    def _ending(self, end: Callable[[], object]) -> Iterator[None]:
        thread = threading.get_ident()
        self._ends[thread] = end
        if self._broken:  # looked at behind the entry: who breaks off looks at the entries behind its mark
            end()
        try:
            yield
        finally:
            del self._ends[thread]


class _Here(threading.local):
    breaker: Breaker | None = None


_here = _Here()


@contextmanager
def breakable(end: Callable[[], object], interrupted: type[BaseException], shown: str) -> Iterator[None]:
    """Have a wait of this thread ended by `end()` when its breaker breaks off.

    Args:
        end: ends the wait, from any thread; must not block.
        interrupted: what the wait raises then.
        shown: what is waited for, for the error.

    Raises:
        ReadBrokenOff: it was broken off.
    """
    breaker = _here.breaker
    if breaker is None:
        yield
        return
    try:
        with breaker._ending(end):
            yield
    except interrupted:
        if not breaker._broken:
            raise
        raise ReadBrokenOff(
            f"{shown!r} was being read when its feed was closed", where=shown, fix="close the feed behind the last read"
        ) from None
