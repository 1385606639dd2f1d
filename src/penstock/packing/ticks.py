"""How far the workers are, told through a named pipe: a shard is a job of minutes, and a bar that moves once a minute helps nobody."""

from __future__ import annotations

import os
import selectors
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from penstock._contracts.event import Listener
from penstock.observe.progress import Progress
from penstock.observe.trace import Trace

__all__ = ["Ticker", "Ticks", "Watching"]

_COUNT = struct.Struct("<I")
_EVERY_S = 0.1
_READ_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What shows how far it is.

    Attributes:
        progress: a bar, as for `pack`.
        timeline: None for none.
    """

    progress: bool | Literal["always"] = False
    timeline: Trace | None = None

    @contextmanager
    def bar(self, what: str, total: int | None) -> Iterator[Callable[[float], object] | None]:
        """Draw a bar for as long as the `with` block takes; give what moves it, None where none is to be seen.

        Args:
            what: is being done.
            total: elements; None where that is not known.
        """
        if not self.progress or (self.progress is True and not (sys.stderr and sys.stderr.isatty())):
            yield None
            return
        with Progress(what, total, unit="elements") as drawn:
            yield drawn.advance

    def listener(self, what: str, *, by_worker: bool = False) -> Listener | None:
        """Return what draws events into the timeline, if there is one; see `Trace.listener`."""
        return None if self.timeline is None else self.timeline.listener(what, by_worker=by_worker)


class Ticks:
    """The worker's end: counts elements, and tells ten times a second. Used from one thread."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._pipe = -1
        self._held = 0
        self._next_s = time.perf_counter() + _EVERY_S

    def add(self, count: int = 1) -> None:
        """Say that so many more elements are done."""
        self._held += count
        if self._path is not None and self._held and time.perf_counter() >= self._next_s:
            self._tell()

    def close(self) -> None:
        """Tell the rest, and close."""
        if self._path is not None and self._held:
            self._tell()
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)

    def _tell(self) -> None:
        self._next_s = time.perf_counter() + _EVERY_S
        try:
            if self._pipe < 0:
                self._pipe = os.open(self._path or "", os.O_WRONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
            os.write(self._pipe, _COUNT.pack(self._held))
        except OSError:  # nobody listens, or the pipe is full: a bar is no reason to fail
            return
        self._held = 0


class Ticker:
    """The packer's end: a thread that hands on what workers tell. `path` is None where the file system has no named pipes."""

    def __init__(self, path: str, advance: Callable[[int], object]) -> None:
        """Make the pipe `path`, and begin to listen. `advance` is called from a thread of its own, one call at a time."""
        self.path: str | None = path
        try:
            os.mkfifo(path)
        except OSError:
            self.path = None
            return
        # Opened for both, so that it does not end while no worker writes.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        # The end is told by a pipe of its own, which is never full: nothing that workers write, or leave unread, holds it up.
        self._end, self._end_told = os.pipe()
        self._advance = advance
        self._thread = threading.Thread(target=self._listen, name="penstock-pack-ticks")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self.path is None:
            return
        os.close(self._end_told)
        self._thread.join()
        os.close(self._end)
        os.close(self._pipe)
        try:
            os.unlink(self.path)
        except OSError:  # the destination was taken away; whoever packs says so
            pass

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            selector.register(self._end, selectors.EVENT_READ)
            ended = False
            while not ended:
                ended = any(key.fd == self._end for key, _ in selector.select())
                self._hand_on()

    def _hand_on(self) -> None:
        """Hand on all that is in the pipe now."""
        while True:
            try:
                data = os.read(self._pipe, _READ_BYTES)
            except BlockingIOError:
                return
            for (count,) in _COUNT.iter_unpack(data):
                self._advance(count)
