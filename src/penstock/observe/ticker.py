"""A thread that does something at regular times until it is stopped, at the latest at the exit of the program."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Self

from penstock.observe.guarded import guarded

__all__ = ["Ticked", "Ticker"]

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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
