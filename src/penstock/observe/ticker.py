"""Threads that do something at regular times until they are stopped, at the latest at the exit of the program; guards of observers.

An observer that fails is switched off, with one warning, and training goes on.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Self

from penstock._contracts.event import Event, Listener
from penstock._system.failing import words_of
from penstock._system.frames import warn


def guarded(what: str, function: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
    """Call a function; return (whether it did not raise, its result). An error becomes a warning that begins with `what`."""
    try:
        return True, function(*arguments)
    except Exception as error:
        warn(f"{what}: {words_of(error)}; training goes on")
        return False, None


class Guarded:
    """Calls a listener until it raises; then says so in one warning, and calls it no more."""

    def __init__(self, listener: Listener) -> None:
        self._listener: Listener | None = listener

    def __call__(self, event: Event) -> None:
        """Pass an event on."""
        listener = self._listener
        if listener is not None and not guarded(f"the listener {listener!r} is switched off", listener, event)[0]:
            self._listener = None


_JOIN_S = 2.0
"""A disk that hangs, or a signal handler that interrupted what the thread waits for, may keep it longer; `close` goes on."""


class Ticker:
    """Calls `tick()` every `every_s` seconds, and `end()` at the end, in a daemon thread of its own.

    It ends with `stop`, when `tick` returns False, or when the program exits. It keeps alive what the functions hold. From any thread; in
    a forked process nothing runs, and `stop` does nothing.
    """

    def __init__(self, name: str, every_s: float, tick: Callable[[], bool], end: Callable[[], None]) -> None:
        """Start the thread."""
        self._stopped = threading.Event()
        self._every_s, self._tick, self._end = every_s, tick, end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._at_exit = weakref.finalize(self, _stop, self._stopped, self._thread, os.getpid())
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Have `end()` called, and wait for it, 2 s at most; a second call does nothing."""
        self._at_exit()

    def join(self, timeout_s: float) -> None:
        """Wait until it has ended by itself, so many seconds at most."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._every_s) and guarded(f"{self._thread.name} has ended", self._tick)[1]:
                pass
        finally:
            guarded(f"{self._thread.name} could not write its end", self._end)


def _stop(stopped: threading.Event, thread: threading.Thread, pid: int) -> None:
    if os.getpid() != pid:  # the thread is not here, and may have held the lock of the event at the fork
        return
    stopped.set()
    if thread is not threading.current_thread():
        thread.join(_JOIN_S)


class Ticked:
    """What a ticker writes, until `close()` or the end of a `with` block. From any thread."""

    _ticker: Ticker

    @property
    def is_alive(self) -> bool:
        """Whether it is still written."""
        return self._ticker.is_alive

    def close(self) -> None:
        """Write what is left and end; a second call does nothing. Blocks for a few milliseconds."""
        self._ticker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
