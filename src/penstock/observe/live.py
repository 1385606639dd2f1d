"""One line about the running epoch of a feed: how far it is, its rate, the time left, and how long the training loop waits."""

from __future__ import annotations

import importlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TextIO

from penstock.observe.diagnose import NO_WAIT, judge
from penstock.observe.guarded import guarded
from penstock.observe.progress import StatusLine, pace
from penstock.observe.stats import Snapshot

__all__ = ["Line", "NotebookLine", "Place", "Rates", "followed", "lasting", "notebook_line"]

_DRAW_EVERY_S, _LOG_EVERY_S = 0.2, 30.0
_MARK_EVERY_S, _HORIZON_S = 1.0, 30.0


class Place(NamedTuple):
    """Where a feed is.

    Attributes:
        epoch: its number, from 0.
        num_done: how many batches or elements of it were delivered, those before a resume included.
        total: how many it has; None where that is not known.
        unit: "batches" or "elements".
        batch_size: how many elements a batch has, the last one excepted; None where that is not known.
    """

    epoch: int
    num_done: int
    total: int | None
    unit: str
    batch_size: int | None

    def words(self) -> str:
        """Return `epoch 2: 1,234/5,000 batches (24 %)`."""
        if self.total is None:
            return f"epoch {self.epoch}: {self.num_done:,} {self.unit}"
        share = f" ({int(100 * self.num_done / self.total)} %)" if self.total else ""
        return f"epoch {self.epoch}: {self.num_done:,}/{self.total:,} {self.unit}{share}"


class _Mark(NamedTuple):
    time_s: float
    num_done: int
    waited_s: float


class Rates:
    """The rate and the share of waiting in the last 30 s, or since the first batch."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()
        self._last = _Mark(0.0, 0, 0.0)

    def add(self, time_s: float, num_done: int, waited_s: float) -> None:
        """Note what was done and waited up to now, in all."""
        self._last = _Mark(time_s, num_done, waited_s)
        if not self._marks or time_s - self._marks[-1].time_s >= _MARK_EVERY_S:
            self._marks.append(self._last)
        while len(self._marks) > 1 and self._marks[1].time_s <= time_s - _HORIZON_S:
            self._marks.popleft()

    def per_s(self) -> float:
        """Return batches a second; 0.0 before the second one."""
        lasted_s = self._last.time_s - self._marks[0].time_s if self._marks else 0.0
        return (self._last.num_done - self._marks[0].num_done) / lasted_s if lasted_s > 0 else 0.0

    def wait_share(self) -> float:
        """Return the part of the time in which the training loop waited."""
        lasted_s = self._last.time_s - self._marks[0].time_s if self._marks else 0.0
        return min(1.0, (self._last.waited_s - self._marks[0].waited_s) / lasted_s) if lasted_s > 0 else 0.0


def lasting(seconds: float) -> str:
    """Return a time as 2:05 or 1:02:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Line(Protocol):
    """Where a line is drawn: a terminal, a file or a notebook."""

    on_terminal: bool

    def columns(self) -> int | None:
        """Return how many columns it has; None where that does not matter."""

    def draw(self, text: str) -> None:
        """Show a text in place of the one before it."""

    def end(self, text: str) -> None:
        """Show the last text."""


class NotebookLine:
    """A text below a cell of a notebook."""

    on_terminal = True

    def __init__(self, display: Callable[..., Any]) -> None:
        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def columns(self) -> int | None:
        """Return None: a browser shows a line of any length."""
        return None

    def draw(self, text: str) -> None:
        """Show a text in place of the one before it."""
        self._handle.update({"text/plain": text}, raw=True)

    end = draw


def notebook_line() -> NotebookLine | None:
    """Begin a text below the cell that runs now; return None where this process is no kernel of a notebook."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if ask is None or not hasattr(ask(), "kernel"):
        return None
    return NotebookLine(importlib.import_module("IPython.display").display)


def _line_on(stream: TextIO | None) -> Line | None:
    """Return where to draw: in the notebook that this runs in, unless a stream is given; None in a program without stderr."""
    if stream is not None or sys.stderr is None:
        return None if stream is None else StatusLine(stream)
    return notebook_line() or StatusLine(stream)


def followed(
    batches: Iterator[Any],
    place: Callable[[], Place],
    stats: Callable[[], Snapshot],
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Any]:
    """Yield batches, and write how far the epoch is.

    Args:
        batches: of one epoch.
        place: says where the feed is.
        stats: gives its figures, which name the bottleneck.
        stream: where to write; None for the notebook that this runs in, else stderr.
        clock: returns seconds and never goes back.
    """
    shown = _Shown(place, stats, stream, clock)
    try:
        while True:
            begin_s = clock()
            try:
                held = [next(batches)]
            except StopIteration:
                return
            shown.delivered(begin_s)
            yield held.pop()  # from here on it is the training loop's alone
    finally:
        shown.end()


class _Shown:
    """What is written about one epoch. A line that cannot be written is no reason to stop: there is one warning."""

    def __init__(
        self, place: Callable[[], Place], stats: Callable[[], Snapshot], stream: TextIO | None, clock: Callable[[], float]
    ) -> None:
        self._place, self._stats, self._clock = place, stats, clock
        self._rates = Rates()
        self._waited_s = 0.0
        self._num_here = 0
        self._begin_s = self._first_s = self._last_s = clock()
        self._line = _line_on(stream)
        on_terminal = self._line is not None and self._line.on_terminal
        self._every_s = _DRAW_EVERY_S if on_terminal else _LOG_EVERY_S
        self._next_s = self._begin_s + self._every_s
        if on_terminal:
            self._write("draw", f"epoch {place().epoch}: waiting for the first batch")

    def delivered(self, begin_s: float) -> None:
        """Count a batch that was waited for since `begin_s`; write, if it is time to."""
        self._last_s = now_s = self._clock()
        if self._num_here:
            self._waited_s += now_s - begin_s
        else:
            self._first_s = now_s
        self._num_here += 1
        if now_s >= self._next_s or self._num_here == 1:
            self._rates.add(now_s, self._num_here, self._waited_s)
        if now_s >= self._next_s:
            self._next_s = now_s + self._every_s
            self._write("draw", self._text())

    def end(self) -> None:
        """Write what the epoch was like."""
        text = [f"{self._place().words()} in {lasting(self._clock() - self._begin_s)}"]
        span_s = self._last_s - self._first_s
        if span_s > 0:
            text += [pace((self._num_here - 1) / span_s), f"waited {100 * self._waited_s / span_s:.0f} %"]
        self._write("end", ", ".join(text))

    def _text(self) -> str:
        place, rate = self._place(), self._rates.per_s()
        parts = [place.words()]
        if rate > 0:
            parts += [f"{lasting((place.total - place.num_done) / rate)} left"] if place.total is not None else []
            parts += [pace(rate), self._wait_words()]
            parts += [f"{rate * place.batch_size:,.0f} elements/s"] if place.batch_size is not None else []
        columns = self._line.columns() if self._line is not None else None
        while columns is not None and len(parts) > 1 and len(", ".join(parts)) > columns:
            parts.pop()
        return ", ".join(parts)[:columns]

    def _wait_words(self) -> str:
        share = self._rates.wait_share()
        stage = judge(self._stats()).stage if share >= NO_WAIT else None
        return f"waited {100 * share:.0f} %" + (f" for '{stage}'" if stage is not None else "")

    def _write(self, call: str, text: str) -> None:
        if self._line is None:
            return
        if not guarded("no progress is shown any more", getattr(self._line, call), text)[0]:
            self._line = None  # the stream is closed, or its terminal is not there any more
