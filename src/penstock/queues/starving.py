"""Who could end a wait, and what they are doing: asked by the thread that waits, so no thread watches."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

__all__ = ["PATIENCE_S", "Producer", "Users", "alone", "level_of_caller"]

PATIENCE_S = 60.0
"""How long a call waits before it says so."""

_MOST_NAMED = 8
_NUM_CALLS = 3  # the innermost is often one of threading's
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Producer(Protocol):
    """Somebody who fills a queue with threads of its own, such as a QueueRunner."""

    @property
    def name(self) -> str:
        """What to call it in a warning."""

    def threads(self) -> Sequence[threading.Thread]:
        """Return its threads, those that have ended included; empty before it was started."""


class Users:
    """The threads that were seen at one end of a queue, and the producers that were registered there."""

    __slots__ = ("registered", "seen")

    def __init__(self) -> None:
        self.seen: dict[int, str] = {}
        self.registered: list[Producer] = []

    def note(self) -> None:
        """Note the calling thread."""
        ident = threading.get_ident()
        if ident not in self.seen:
            self.seen[ident] = threading.current_thread().name

    def words(self) -> str:
        """Say of each but the calling thread where it is in its stack, and then of all other threads: not all that come are seen."""
        alive = {thread.ident: thread for thread in threading.enumerate() if thread.ident is not None}
        frames = sys._current_frames()
        try:
            told = list(self._tell(alive, frames))
        finally:
            frames.clear()  # this function's own frame is among them: a cycle that would keep the elements alive
        more = f"; and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
        return "; ".join(told[:_MOST_NAMED]) + more if told else "none is known"

    def _tell(self, alive: dict[int, threading.Thread], frames: dict[int, Any]) -> Iterator[str]:
        told = {threading.get_ident()}
        for producer in list(self.registered):
            threads = list(producer.threads())
            running = [thread for thread in threads if thread.is_alive()]
            if not threads:
                yield f"{producer.name!r} has not been started"
            elif not running:
                yield f"{producer.name!r} has ended"
            for thread in running:
                told.add(thread.ident or 0)
                yield f"{producer.name!r}, thread {thread.name!r}, is {_place(frames.get(thread.ident or 0))}"
        for ident, name in list(self.seen.items()):
            if ident not in told:
                found = alive.get(ident)
                told.add(ident)
                yield f"thread {name!r} has ended" if found is None else f"thread {found.name!r} is {_place(frames.get(ident))}"
        for other, thread in alive.items():
            if other not in told:
                yield f"another thread, {thread.name!r}, is {_place(frames.get(other))}"


def alone() -> bool:
    """Return whether no other thread is alive; the main thread is not, once the interpreter waits for the others to exit."""
    if threading.active_count() > 2:
        return False
    own = threading.get_ident()
    return not any(thread.is_alive() for thread in threading.enumerate() if thread.ident != own)


def level_of_caller() -> int:
    """Return the `stacklevel` of the innermost call outside this room, seen from the function that asks."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    return level


def _place(frame: Any) -> str:
    """Say where a stack is: its innermost calls outside this room, innermost last, and whether they wait for a queue."""
    within = ""
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        within = f" (in {frame.f_code.co_name} of a queue)" if not frame.f_code.co_name.startswith("_") else within
        frame = frame.f_back
    calls: list[str] = []
    while frame is not None and len(calls) < _NUM_CALLS:
        code, line = frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
        text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        calls.insert(0, f"{code.co_filename}:{line} in {code.co_qualname}" + (f": {text}" if text else ""))
        frame = frame.f_back
    return "at " + " > ".join(calls) + within if calls else "about to start or to end"
