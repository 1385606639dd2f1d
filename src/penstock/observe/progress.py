"""A line on a terminal that is written again and again, and a small progress bar for anything that takes longer than two seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

_SILENT_S = 2.0
_REDRAW_S = 0.1
_LOG_EVERY_S = 10.0
_BAR_COLUMNS = 30


class StatusLine:
    """One line of a stream that replaces itself on a terminal; elsewhere each text is a line of its own. Used from one thread."""

    def __init__(self, stream: TextIO | None) -> None:
        """Write to `stream`; to stderr when None."""
        self._stream = stream if stream is not None else sys.stderr
        self.on_terminal = self._stream.isatty()
        self._drawn = 0

    def columns(self) -> int | None:
        """Return how many columns a text may have, so that it stays one line; None where a line may be of any length."""
        if not self.on_terminal:
            return None
        try:
            return (os.get_terminal_size(self._stream.fileno()).columns or 80) - 1
        except (OSError, ValueError):  # it is no real one, and has no size
            return 79

    def draw(self, text: str) -> None:
        """Write a text over the one before it."""
        if self.on_terminal:
            self._stream.write("\r" + text.ljust(self._drawn))
            self._drawn = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def end(self, text: str) -> None:
        """Write the last text, which stays."""
        self.draw(text)
        if self.on_terminal:
            self._stream.write("\n")
            self._stream.flush()

    def wipe(self) -> None:
        """Leave nothing of the line on a terminal."""
        if self._drawn:
            self._stream.write("\r" + " " * self._drawn + "\r")
            self._stream.flush()


class Progress:
    """Show how far a task is, its rate and the time left, on one line that is wiped at the end.

    Shows nothing in the first two seconds. On a terminal the line is redrawn ten times a second; into a file one line is written
    every ten seconds. Used from one thread; leaving the `with` block wipes the line.

    Args:
        what: what is being done, such as "cutting crops".
        total: how many units there are; None where that is not known.
        unit: what they are called; "s" when the units are seconds, which have no rate.
        stream: where to draw; stderr when None.
        clock: returns seconds and never goes back.
    """

    def __init__(
        self, what: str, total: float | None, *, unit: str, stream: TextIO | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._status = StatusLine(stream)
        self._clock = clock
        self._done = 0.0
        self._start_s = clock()
        self._next_s = self._start_s + (_SILENT_S if self._status.on_terminal else _LOG_EVERY_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.wipe()

    def advance(self, count: float = 1) -> None:
        """Say that `count` more units are done; costs 0.2 us when nothing is drawn."""
        self._done += count
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (_REDRAW_S if self._status.on_terminal else _LOG_EVERY_S)
        self._status.draw(self._line(now_s - self._start_s))

    def _line(self, elapsed_s: float) -> str:
        rate = self._done / elapsed_s if elapsed_s > 0 else 0.0
        # Seconds per second would tell nobody anything.
        speed = "" if self._unit == "s" or rate == 0 else f", {pace(rate)}"
        if self._total is None:
            return f"{self._what} {self._done:,.0f} {self._unit}{speed}"
        share = min(1.0, self._done / self._total) if self._total else 1.0
        left = f"{(self._total - self._done) / rate:.0f} s left" if rate > 0 else "time left unknown"
        filled = round(share * _BAR_COLUMNS)
        bar = "#" * filled + "." * (_BAR_COLUMNS - filled)
        return f"{self._what} [{bar}] {self._done:,.0f}/{self._total:,.0f} {self._unit}{speed}, {left}"


def pace(rate: float) -> str:
    """Return units per second in words that have a figure other than 0, also for slow tasks."""
    if rate >= 1 or rate == 0:
        return f"{rate:,.0f}/s" if rate >= 10 or rate == 0 else f"{rate:.2g}/s"
    return f"{60 * rate:.2g}/min" if rate >= 1 / 60 else f"{1 / rate:,.0f} s each"
