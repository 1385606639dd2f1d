"""What a program asks of a feed while it runs, or lets draw and write."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from penstock._contracts.event import Fill, Listener
from penstock.observe.curves import Curves
from penstock.observe.curves import tensorboard as curves_of
from penstock.observe.diagnose import explain
from penstock.observe.live import FeedPlace, Show, followed
from penstock.observe.stats import Snapshot
from penstock.observe.trace import Trace
from penstock.observe.trace import trace as trace_of


class Observed:
    """A feed as its figures show it. What draws or writes them goes on until it, or the feed, is closed."""

    _observers: list[Curves | Show | Trace]

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Iterate over the next epoch."""

    @abstractmethod
    def fills(self) -> list[Fill]:
        """Return how full its buffers are now."""

    @abstractmethod
    def is_closed(self) -> bool:
        """Return whether it was closed, or has stopped at an error."""

    @abstractmethod
    def _place(self) -> FeedPlace:
        """Say where it is."""

    @abstractmethod
    def stats(self) -> Snapshot:
        """Return what was measured so far: work per stage, waiting of the consumer, notices."""

    @abstractmethod
    def add_listener(self, listener: Listener) -> None:
        """Announce every event to one more listener."""

    def report(self) -> str:
        """Say in words what limited the run so far, by how much, and what to change."""
        return explain(self.stats())

    def progress(self, *, stream: TextIO | None = None) -> Iterator[Any]:
        """Return an iterator of the next epoch, as `iter(feed)`, that writes one line about it while it runs.

        The line says how many batches of how many are done, the time left, the rate, and how long the training loop waited in the last
        30 s; from 5 % on with the stage that is the bottleneck. On a terminal it is drawn again 5 times a second at most, when a batch is
        delivered; in a notebook it is a line below the cell; elsewhere, as in a log file, there is a line every 30 s. The last one, with
        the rate of the whole epoch, stays. A batch costs 0.5 us more.

        Args:
            stream: where to write; None for the notebook that this runs in, else stderr.

        Raises:
            FeedClosed: after `close()` or after an error; in a process forked from the one that made the feed.
        """
        return followed(iter(self), self._place, self.stats, stream)

    def show(self, *, stream: TextIO | None = None) -> Show:
        """Draw the feed while it runs, 4 times a second: its stages, the buffers between them, and the bottleneck.

        Each stage has a bar of how busy its workers are, and its rate; each buffer one of how full it is. Below stands the first sentence
        of `report()`. It needs the extra `live`. It is drawn on a terminal or in a notebook, by a thread or in `next()`, until the feed or
        what is returned here is closed, or a `with` ends.

        Args:
            stream: where to write; None for the notebook that this runs in, else stderr.

        Raises:
            MissingExtra: rich is not installed.
        """
        shown = Show(self, self._place, stream)
        self._observers.append(shown)
        return shown

    def observe(self, *, tensorboard: str | Path, step: Callable[[], int] | None = None) -> Curves:
        """Write how full its buffers are to a TensorBoard log directory, from now until it is closed; see `observe.tensorboard`.

        Args:
            tensorboard: the log directory.
            step: returns the training step; by default its own.

        Raises:
            OSError: the file cannot be made.
        """
        curves = curves_of(self, tensorboard, step=step)
        self._observers.append(curves)
        return curves

    def trace(self, path: str | Path, *, last_s: float | None = None) -> Trace:
        """Write a timeline of the run from now until it is closed, for Perfetto and chrome://tracing; see `observe.trace`.

        Args:
            path: the file; replaced when it exists.
            last_s: keep so many seconds, and write them at the end; None writes all of the run.

        Raises:
            OSError: the file cannot be made.
        """
        timeline = trace_of(path, self, last_s=last_s)
        self._observers.append(timeline)
        return timeline
