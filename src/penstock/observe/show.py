"""A picture of a running feed on the terminal, drawn again and again: its stages, the buffers between them, and the bottleneck."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TextIO

from penstock._contracts.fill import Fill
from penstock._contracts.forking import call_in_forked
from penstock.errors import MissingExtra
from penstock.observe.diagnose import NO_WAIT, judge
from penstock.observe.guarded import guarded
from penstock.observe.live import NotebookLine, Place, lasting, notebook_line
from penstock.observe.progress import pace
from penstock.observe.stats import Snapshot, StageStats

__all__ = ["Look", "Show", "picture"]

_PICTURE_EVERY_S = 0.25
_PICTURE_HORIZON_S = 5.0
"""Rates and busy shares are those of the last 5 s."""

_BAR_COLUMNS = 16
_NOTEBOOK_COLUMNS = 100

_JOIN_S = 2.0
"""A signal handler that closes the feed may have interrupted a `print`, which the thread that draws waits for."""


class _Feed(Protocol):
    def fills(self) -> list[Fill]:
        """Return how full its buffers are."""

    def stats(self) -> Snapshot:
        """Return its figures."""

    def is_closed(self) -> bool:
        """Return whether nothing will run any more."""


class Look(NamedTuple):
    """What is seen of a feed at one time."""

    time_s: float
    place: Place
    stats: Snapshot
    fills: Sequence[Fill]


class Show:
    """A picture of a feed, drawn four times a second by a thread; made by `feed.show()`.

    It ends with `close()`, at the end of a `with` block, and with the feed; the last picture stays. What the program prints meanwhile
    stands above it. Where the output is no terminal, only the last picture is written. When it cannot be drawn there is one warning, and
    training goes on.
    """

    def __init__(self, feed: _Feed, place: Any, stream: TextIO | None) -> None:
        """Begin to draw. `place` is the bound method of the feed that says where it is; the feed is not kept alive."""
        self._drawing = _Drawing(weakref.ref(feed), weakref.WeakMethod(place), _live(stream))
        self._at_exit = weakref.finalize(self, self._drawing.stop)

    def close(self) -> None:
        """Draw the last picture and end; a second call does nothing. Blocks for a few milliseconds."""
        self._at_exit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Drawing:
    """The thread that draws, and what it draws with."""

    def __init__(self, feed: weakref.ref[_Feed], place: weakref.WeakMethod[Any], live: Any) -> None:
        self._feed, self._place, self._live = feed, place, live
        self._looks: deque[Look] = deque()
        self._stopped, self._pid = threading.Event(), os.getpid()
        call_in_forked(self, _Drawing._give_streams_back)
        self._thread = threading.Thread(target=self._run, name="penstock-show", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have the last picture drawn, and wait for the thread; in a forked process do nothing."""
        if os.getpid() != self._pid:
            return
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        guarded("the feed is not shown any more", self._draw_all)  # the stream may be closed, or its terminal gone

    def _draw_all(self) -> None:
        with self._live:
            while self._draw() and not self._stopped.wait(_PICTURE_EVERY_S):
                pass
            self._draw()

    def _draw(self) -> bool:
        feed, place = self._feed(), self._place()
        if feed is None or place is None:
            return False
        fills = feed.fills()
        if not fills and self._looks:  # between two epochs, and at the end
            fills = [fill._replace(size=0) for fill in self._looks[-1].fills]
        self._looks.append(Look(time.monotonic(), place(), feed.stats(), fills))
        while len(self._looks) > 2 and self._looks[1].time_s <= self._looks[-1].time_s - _PICTURE_HORIZON_S:
            self._looks.popleft()
        self._live.update(picture(self._looks[0], self._looks[-1]), refresh=True)
        return not feed.is_closed()

    def _give_streams_back(self) -> None:
        """Let a forked process print as before: here no thread draws, and one may have held the lock of the console."""
        sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
        sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)


class _InNotebook:
    """Shows a picture below the cell of a notebook, as text: rich itself would need ipywidgets."""

    def __init__(self, line: NotebookLine) -> None:
        self._line = line

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

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
        raise MissingExtra("rich is not installed", where="feed.show()", fix="pip install 'penstock[live]'") from error
    line = notebook_line() if stream is None else None
    if line is not None:
        return _InNotebook(line)
    console = Console(file=stream, stderr=stream is None)
    return Live(console=console, auto_refresh=False, vertical_overflow="crop")


def picture(before: Look, now: Look) -> Any:
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

    lasted_s = now.time_s - before.time_s
    earlier = {stage.name: stage for stage in before.stats.stages}
    for stage in now.stats.stages:
        for fill in [fill for fill in fills if fill.name == f"before_{stage.name}"]:
            add_buffer(fill, "waiting")
            fills.remove(fill)
        share, text = _stage_words(stage, earlier.get(stage.name), lasted_s)
        is_limiting = stage.name == limiting
        add_row(stage.name, share, text + (", bottleneck" if is_limiting else ""), "bold red" if is_limiting else "")
    for fill in fills:
        add_buffer(fill, fill.name)
    per_s, wait_share = _consumed(before, now)
    add_row("training loop", 1 - wait_share, f"{pace(per_s)}, waits {100 * wait_share:.0f} %", "green" if verdict.kind == "step" else "")
    return Group(Text(_head(now.place, per_s), style="bold"), table, Text(verdict.headline))


def _head(place: Place, per_s: float) -> str:
    left = f", {lasting((place.total - place.num_done) / per_s)} left" if place.total is not None and per_s > 0 else ""
    return place.words() + left


def _stage_words(stage: StageStats, before: StageStats | None, lasted_s: float) -> tuple[float, str]:
    """Return how busy the workers of a stage were, from 0.0 to 1.0, and its rate in words."""
    busy_s = stage.busy_s - (before.busy_s if before is not None else 0.0)
    count = stage.num_elements - (before.num_elements if before is not None else 0)
    share = min(1.0, busy_s / (lasted_s * len(stage.workers))) if lasted_s > 0 else 0.0
    workers = "1 worker" if len(stage.workers) == 1 else f"{len(stage.workers)} workers"
    return share, f"{pace(count / lasted_s if lasted_s > 0 else 0.0)}, {workers} {100 * share:.0f} % busy"


def _consumed(before: Look, now: Look) -> tuple[float, float]:
    """Return batches a second, and the share of waiting of the training loop."""
    lasted_s = now.time_s - before.time_s
    first, last = before.stats.consumer, now.stats.consumer
    span_s = last.span_s - first.span_s
    return (
        (last.num_batches - first.num_batches) / lasted_s if lasted_s > 0 else 0.0,
        min(1.0, (last.wait_s - first.wait_s) / span_s) if span_s > 0 else 0.0,
    )
