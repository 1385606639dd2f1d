"""Who could end a wait, and what they are doing: asked by the thread that waits, so no thread watches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

__all__ = ["PATIENCE_S", "Producer", "Users", "alone"]

PATIENCE_S = 60.0
"""How long a call waits before it says so."""


class Producer(Protocol):
    """Somebody who fills a queue with threads of its own, such as a QueueRunner."""

    @property
    def name(self) -> str:
        """What to call it in a warning."""

    def threads(self) -> Sequence[threading.Thread]:
        """Return its threads, those that have ended included; empty before it was started."""


class Users:
    """The threads that were seen at one end of a queue, and those who said that they are there."""

    __slots__ = ("_seen", "registered")

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}
        self.registered: list[Producer] = []

    def note(self) -> None:
        """Note the calling thread."""
        ident = threading.get_ident()
        if ident not in self._seen:
            self._seen[ident] = threading.current_thread().name

    def words(self) -> str:
        """Name them."""
        return f"seen before: {', '.join(self._seen.values()) or 'nobody'}"


def alone() -> bool:
    """Return whether no other thread is alive."""
    return threading.active_count() == 1
