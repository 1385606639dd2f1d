"""The running epoch of a feed on the terminal: one line, or a picture of its stages, the buffers between them, and the bottleneck.

The line says how far the epoch is, its rate, the time left, and how long the training loop waits.
"""

from __future__ import annotations

import importlib
import io
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TextIO

from penstock._contracts.event import Fill
from penstock._system.process import call_in_forked
from penstock.errors import MissingExtra
from penstock.observe.diagnose import NO_WAIT, judge
from penstock.observe.progress import StatusLine, pace
from penstock.observe.stats import Snapshot, since
from penstock.observe.ticker import Ticked, Ticker, guarded, host_of

_DRAW_EVERY_S, _LOG_EVERY_S = 0.2, 30.0
_MARK_EVERY_S, _HORIZON_S = 1.0, 30.0


class FeedPlace(NamedTuple):
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

    def now(self) -> tuple[float, float]:
        """Return batches a second, and the part of the time in which the training loop waited; zeros before the second batch."""
        time_s, num_done, waited_s = self._last
        first = self._marks[0] if self._marks else self._last
        lasted_s = time_s - first.time_s
        return ((num_done - first.num_done) / lasted_s, min(1.0, (waited_s - first.waited_s) / lasted_s)) if lasted_s > 0 else (0.0, 0.0)


def lasting(seconds: float) -> str:
    """Return a time as 2:05 or 1:02:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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


def _line_on(stream: TextIO | None) -> StatusLine | NotebookLine | None:
    """Return where to draw: in the notebook that this runs in, unless a stream is given; None in a program without stderr."""
    if stream is not None or sys.stderr is None:
        return None if stream is None else StatusLine(stream)
    return notebook_line() or StatusLine(stream)


def followed(
    batches: Iterator[Any],
    place: Callable[[], FeedPlace],
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
        self, place: Callable[[], FeedPlace], stats: Callable[[], Snapshot], stream: TextIO | None, clock: Callable[[], float]
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
        place, (rate, waited) = self._place(), self._rates.now()
        parts = [place.words()]
        if rate > 0:
            parts += [f"{lasting((place.total - place.num_done) / rate)} left"] if place.total is not None else []
            parts += [pace(rate), self._wait_words(waited)]
            parts += [f"{rate * place.batch_size:,.0f} elements/s"] if place.batch_size is not None else []
        columns = self._line.columns() if self._line is not None else None
        while columns is not None and len(parts) > 1 and len(", ".join(parts)) > columns:
            parts.pop()
        return ", ".join(parts)[:columns]

    def _wait_words(self, share: float) -> str:
        stage = judge(self._stats()).stage if share >= NO_WAIT else None
        return f"waited {100 * share:.0f} %" + (f" for '{stage}'" if stage is not None else "")

    def _write(self, call: str, text: str) -> None:
        if self._line is None:
            return
        if not guarded("no progress is shown any more", getattr(self._line, call), text)[0]:
            self._line = None  # the stream is closed, or its terminal is not there any more


_PICTURE_EVERY_S = 0.25
_PICTURE_HORIZON_S = 5.0
"""Rates and busy shares are those of the last 5 s."""

_BAR_COLUMNS = 16
_NOTEBOOK_COLUMNS = 100


class FeedLook(NamedTuple):
    """What is seen of a feed at one time."""

    time_s: float
    place: FeedPlace
    stats: Snapshot
    fills: Sequence[Fill]


class Show(Ticked):
    """A picture of a feed, drawn four times a second: by a thread, or in `next()` where the feed has a process; made by `feed.show()`.

    It ends with `close()`, at the end of a `with` block, and with the feed; the last picture stays. What the program prints meanwhile
    stands above it. Where the output is no terminal, only the last picture is written. When it cannot be drawn there is one warning, and
    training goes on.
    """

    def __init__(self, feed: Any, place: Any, stream: TextIO | None) -> None:
        """Begin to draw. `place` is the bound method of the feed that says where it is; the feed is not kept alive."""
        self._feed, self._place, self._live = weakref.ref(feed), weakref.WeakMethod(place), _live(stream)
        self._looks: deque[FeedLook] = deque()
        call_in_forked(self, Show._give_streams_back)
        self._ticker = Ticker("penstock-show", _PICTURE_EVERY_S, self._draw, self._end, host_of([feed]))

    def _draw(self) -> bool:
        feed, place = self._feed(), self._place()
        if feed is None or place is None:
            return True
        fills = feed.fills()
        if not self._looks:
            self._live.__enter__()
        elif not fills:  # between two epochs, and at the end
            fills = [fill._replace(size=0) for fill in self._looks[-1].fills]
        self._looks.append(FeedLook(time.monotonic(), place(), feed.stats(), fills))
        while len(self._looks) > 2 and self._looks[1].time_s <= self._looks[-1].time_s - _PICTURE_HORIZON_S:
            self._looks.popleft()
        self._live.update(picture(self._looks[0], self._looks[-1]), refresh=True)
        return bool(feed.is_closed())

    def _end(self) -> None:
        try:
            self._draw()
        finally:
            self._live.__exit__(None, None, None)

    def _give_streams_back(self) -> None:
        """Let a forked process print as before: here no thread draws, and one may have held the lock of the console."""
        sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
        sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)


class _InNotebook(nullcontext[None]):
    """Shows a picture below the cell of a notebook, as text: rich itself would need ipywidgets."""

    def __init__(self, line: NotebookLine) -> None:
        super().__init__()
        self._line = line

    def update(self, drawn: Any, *, refresh: bool) -> None:
        """Show a picture in place of the one before it."""
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=_NOTEBOOK_COLUMNS, force_jupyter=False, force_terminal=False).print(drawn)
        self._line.draw(text.getvalue())


def _live(stream: TextIO | None) -> Any:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError as error:
        raise MissingExtra("rich is not installed", where="feed.show()", fix='pip install "penstock[live]"') from error
    line = notebook_line() if stream is None else None
    if line is not None:
        return _InNotebook(line)
    console = Console(file=stream, stderr=stream is None)
    return Live(console=console, auto_refresh=False, vertical_overflow="crop")


def picture(before: FeedLook, now: FeedLook) -> Any:
    """Draw a feed with rich: a row for each stage and buffer, from the source to the training loop, and the sentence of its report.

    Args:
        before: an earlier look; rates and shares are of the time between.
        now: what is drawn.
    """
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    verdict = judge(now.stats)
    limiting = verdict.stage if now.stats.consumer.wait_share >= NO_WAIT else None
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True)
    fills = list(now.fills)

    def add_row(name: str, share: float, text: str, style: str = "") -> None:
        bar = ProgressBar(total=1.0, completed=share, width=_BAR_COLUMNS, complete_style=style or "cyan", finished_style=style or "cyan")
        table.add_row(Text(name, style=style), bar, Text(text, style=style))

    def add_buffer(fill: Fill, name: str) -> None:
        add_row(f"  {name}", fill.fraction, f"{fill.size} of {fill.capacity}", "dim")

    lasted_s, done = now.time_s - before.time_s, since(before.stats, now.stats)

    def each_s(count: int) -> float:
        return count / lasted_s if lasted_s > 0 else 0.0

    for stage in done.stages:
        for fill in [fill for fill in fills if fill.name == f"before_{stage.name}"]:
            add_buffer(fill, "waiting")
            fills.remove(fill)
        share, is_limiting = min(1.0, stage.busy_share(lasted_s)), stage.name == limiting
        workers = "1 worker" if len(stage.workers) == 1 else f"{len(stage.workers)} workers"
        text = f"{pace(each_s(stage.num_elements))}, {workers} {100 * share:.0f} % busy{', bottleneck' * is_limiting}"
        add_row(stage.name, share, text, "bold red" if is_limiting else "")
    for fill in fills:
        add_buffer(fill, fill.name)
    per_s, wait_share = each_s(done.consumer.num_batches), done.consumer.wait_share
    add_row("training loop", 1 - wait_share, f"{pace(per_s)}, waits {100 * wait_share:.0f} %", "green" if verdict.kind == "step" else "")
    return Group(Text(_head(now.place, per_s), style="bold"), table, Text(verdict.headline))


def _head(place: FeedPlace, per_s: float) -> str:
    left = f", {lasting((place.total - place.num_done) / per_s)} left" if place.total is not None and per_s > 0 else ""
    return place.words() + left
