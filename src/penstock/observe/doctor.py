"""The report of every feed that a script makes, as text and as JSON."""

from __future__ import annotations

import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from types import TracebackType
from typing import Any, Self

from penstock._contracts.event import BatchDelivered, Event, Listener
from penstock._contracts.version import VERSION
from penstock._system.lazy import dataclass
from penstock._system.text import redacted, size_words
from penstock.observe.diagnose import explain
from penstock.observe.stats import Snapshot, Stats, watchers

_wrapped = partial(textwrap.wrap, width=110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedReport:
    """What the feeds of one plan did.

    Attributes:
        plan: its lines, from the source up.
        num_feeds: how many were made of this plan, such as one for each epoch.
        num_batches: how many batches (or elements) they delivered.
        report: `feed.report()` of the feed that took longest.
        stats: `feed.stats()` of that feed.
    """

    plan: tuple[str, ...]
    num_feeds: int
    num_batches: int
    report: str
    stats: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run of a script did.

    Attributes:
        penstock: the version.
        script: what was run, with its arguments; passwords and the like are removed.
        status: its exit status.
        elapsed_s: of the script.
        cpu_s: of the whole process.
        peak_rss_bytes: the most memory that the process had; None where the system does not tell.
        feeds: in the order in which they were made.
    """

    penstock: str
    script: tuple[str, ...]
    status: int
    elapsed_s: float
    cpu_s: float
    peak_rss_bytes: int | None
    feeds: tuple[FeedReport, ...]

    def as_json(self) -> dict[str, Any]:
        """Return a dict that JSON can hold."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Give the report as text."""
        memory = "" if self.peak_rss_bytes is None else f", at most {size_words(self.peak_rss_bytes)} of memory"
        yield f"penstock doctor {' '.join(self.script)}: {self.elapsed_s:.2f} s, {self.cpu_s:.2f} s of CPU time{memory}"
        if not self.feeds:
            yield "No feed of Penstock delivered anything."
        for number, feed in enumerate(self.feeds, 1):
            yield ""
            times = "" if feed.num_feeds == 1 else f" ({feed.num_feeds} feeds, {feed.num_batches:,} batches; the longest feed:)"
            plan = f"feed {number}: {' > '.join(line.strip() for line in feed.plan)}{times}"
            yield from _wrapped(plan)
            for line in feed.report.splitlines():
                yield from _wrapped(line, initial_indent="  ")


class FeedWatch:
    """Keeps the figures of the feeds that are made in a `with` block.

    Args:
        least_steps: interrupt the main thread, as Ctrl-C does, when so many batches were used up and a feed is asked for more; None never.
    """

    def __init__(self, least_steps: int | None = None) -> None:
        self.interrupted = False
        self._least_steps = least_steps
        self._num_delivered = 0
        self._feeds: dict[tuple[str, ...], list[Stats]] = {}
        self._begun = 0.0, 0.0

    def __enter__(self) -> Self:
        self._begun = time.perf_counter(), time.process_time()
        watchers().append(self._begin)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        watchers().remove(self._begin)

    def report(self, script: Sequence[str], status: int) -> Report:
        """Return what was seen since the block began.

        Args:
            script: with its arguments.
            status: its exit status.
        """
        begun_s, begun_cpu_s = self._begun
        feeds = [_feed_report(plan, [stats.snapshot() for stats in all_stats]) for plan, all_stats in self._feeds.items()]
        return Report(
            penstock=VERSION,
            script=tuple(map(_without_secrets, ("", *script), script)),
            status=status,
            elapsed_s=time.perf_counter() - begun_s,
            cpu_s=time.process_time() - begun_cpu_s,
            peak_rss_bytes=_peak_rss(),
            feeds=tuple(feed for feed in feeds if feed.num_batches or feed.stats.stages),
        )

    def _begin(self, plan: tuple[str, ...], stats: Stats) -> Listener:
        made = self._feeds.setdefault(plan, [])
        if made:
            made[-1].snapshot()  # adds up what it has kept, so that a thousand feeds take little memory
        made.append(stats)
        return self._count

    def _count(self, event: Event) -> None:
        """Count what a feed delivers, several batches at once perhaps; interrupt the main thread when those before it were enough."""
        if not isinstance(event, BatchDelivered):
            return
        enough = self._least_steps is not None and self._num_delivered >= self._least_steps
        self._num_delivered += event.num_delivered
        if enough and not self.interrupted:
            self.interrupted = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _feed_report(plan: tuple[str, ...], snapshots: list[Snapshot]) -> FeedReport:
    longest = max(snapshots, key=lambda snapshot: snapshot.elapsed_s)
    num_batches = sum(snapshot.consumer.num_batches for snapshot in snapshots)
    return FeedReport(plan=plan, num_feeds=len(snapshots), num_batches=num_batches, report=explain(longest), stats=longest)


def _without_secrets(before: str, argument: str) -> str:
    """Return an argument as it may be shown; the one behind `--token` is a secret, whatever it looks like."""
    given = f"{before}=x"
    names_one = before.startswith("-") and "=" not in before and redacted(given) != given
    return "[removed]" if names_one else redacted(argument)


def _peak_rss() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
