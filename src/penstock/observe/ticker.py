"""What is done at regular times until it is stopped, at the latest at the exit of the program; guards of observers.

An observer that fails is switched off, with one warning, and training goes on.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
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
    """Calls `tick()` every `every_s` seconds, and `end()` at the end: in a daemon thread of its own, or when its host has it look.

    It ends with `stop`, when `tick` returns True, or when the program exits. It keeps alive what the functions hold. From any thread; in
    a forked process nothing runs, and `stop` does nothing.

    Attributes:
        is_alive: whether it runs.
        due_s: when its host has it look next, by `time.monotonic`.
    """

    def __init__(self, name: str, every_s: float, tick: Callable[[], object], end: Callable[[], object], host: Any = None) -> None:
        """Start the thread, or be one of the tickers of the host."""
        self._stopped, self._ticking = threading.Event(), threading.Lock()
        self._every_s, self._tick, self._end = every_s, tick, end
        self.is_alive, self.due_s = True, 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._at_exit = weakref.finalize(self, _stop, self._stopped, self._thread, os.getpid())
        if host is None:
            self._thread.start()
        else:
            host.tickers.append(self)

    def start(self) -> None:
        """Have a thread, where the host is no more."""
        self._thread.start()

    def stop(self) -> None:
        """Have `end()` called, and wait for it, 2 s at most; a second call does nothing."""
        self._at_exit()
        if self._stopped.is_set() and not self._thread.is_alive():
            self.look()

    def join(self, timeout_s: float) -> None:
        """Wait until it has ended by itself, so many seconds at most."""
        self._thread.join(timeout_s)

    def look(self) -> None:
        """Tick once, or end."""
        self.due_s = time.monotonic() + self._every_s
        if self.is_alive and self._ticking.acquire(timeout=_JOIN_S):
            try:
                self.is_alive = guarded(f"{self._thread.name} has ended", self._goes_on) == (True, True)
            finally:
                self._ticking.release()

    def _run(self) -> None:
        while self.is_alive:
            self._stopped.wait(self._every_s)
            self.look()

    def _goes_on(self) -> bool:
        over = True
        try:
            over = self._stopped.is_set() or bool(self._tick()) or self._stopped.is_set()
        finally:
            if over:
                self._end()
        return not over


def _stop(stopped: threading.Event, thread: threading.Thread, pid: int) -> None:
    if os.getpid() != pid:  # the thread is not here, and may have held the lock of the event at the fork
        return
    stopped.set()
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join(_JOIN_S)


def host_of(targets: Sequence[Any]) -> Any:
    """Return what runs the one feed that is looked at, where that is a process of its own, without a thread here; None if it is closed."""
    run = getattr(targets[0], "_run", None) if len(targets) == 1 else None
    return run if hasattr(run, "tickers") and not targets[0].is_closed() else None


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
