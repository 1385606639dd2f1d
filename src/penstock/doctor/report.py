"""The figures of a profile: as values, as a table, as JSON, and as a picture, which needs matplotlib."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock._contracts.version import VERSION
from penstock._storage.urls import redacted
from penstock.doctor.probes import Probe, Tally, percentile_ns
from penstock.doctor.profile import FeedGroup, Profiler
from penstock.errors import MissingExtra
from penstock.observe.diagnose import judge


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFigures:
    """What one operator of a feed did. Times are wall seconds of all its calls, in all threads, without the operators that they call.

    Attributes:
        feed: the number of the feed, from 1.
        kind: "read", "map", "filter", "flat_map", "batch", ..., or "penstock" for what the tasks of the feed took beside the operators.
        name: of the function, of the source, or of several image operators that run as one.
        where: file:line of the user's function; None for other code.
        num_calls: of a source reads, of a batch batches, of "penstock" tasks.
        wall_s: of an async function the time from the call to its result.
        cpu_s: CPU time.
        gil_share: the estimated part of its wall time in which it held the GIL, from 0 to 1; None where there were too few samples.
        p50_s, p99_s: the wall time that half, and 99 %, of its calls did not exceed; None where calls are not measured one by one.
        bytes_out: what it returned.
        peak_bytes: the most that one call allocated beyond what there was before; None where that was not measured.
        share_percent: its part of the wall time of all operators of all feeds, a multiple of 0.1; they add up to 100.
    """

    feed: int
    kind: str
    name: str
    where: str | None
    num_calls: int
    wall_s: float
    cpu_s: float
    gil_share: float | None
    p50_s: float | None
    p99_s: float | None
    bytes_out: int
    peak_bytes: int | None
    share_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFigures:
    """What took from the feeds of one plan saw.

    Attributes:
        number: from 1.
        plan: its lines, from the source up.
        num_feeds: how many were made of this plan.
        num_batches: how many batches (or elements) were delivered.
        first_wait_s: the waiting for the first one of each feed.
        wait_s: the waiting for all others.
        step_s: from the first to the last, without the waiting: the training steps.
        in_consumer: whether the thread that took them made them too: its waiting is the work of the operators.
        verdict: the bottleneck, in a sentence; None where memory was measured, which changes it.
    """

    number: int
    plan: tuple[str, ...]
    num_feeds: int
    num_batches: int
    first_wait_s: float
    wait_s: float
    step_s: float
    in_consumer: bool
    verdict: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All figures of a run.

    Attributes:
        penstock: the version.
        script: what was run, with its arguments; passwords and the like are removed.
        status: its exit status.
        sorted_by: "time" or "memory".
        elapsed_s: of the script.
        cpu_s: of the whole process.
        peak_rss_bytes: the most memory that the process had; None where the system does not tell.
        doctor_s: what measuring took in all threads; it is in no operator.
        operators: the largest first.
        pipeline: the same, from the source up.
        feeds: in the order in which they were made.
    """

    penstock: str
    script: tuple[str, ...]
    status: int
    sorted_by: str
    elapsed_s: float
    cpu_s: float
    peak_rss_bytes: int | None
    doctor_s: float
    operators: tuple[OperatorFigures, ...]
    pipeline: tuple[OperatorFigures, ...]
    feeds: tuple[FeedFigures, ...]

    def as_json(self) -> dict[str, Any]:
        """Return a dict that JSON can hold; no NaN or infinity is in it. The operators are in it once, the largest first."""
        out = asdict(self)
        del out["pipeline"]
        return out

    def lines(self) -> Iterator[str]:
        """Give the report as text, of up to 120 columns."""
        yield f"penstock doctor {' '.join(self.script)}: {time_words(self.elapsed_s)}, {time_words(self.cpu_s)} of CPU time" + (
            "" if self.peak_rss_bytes is None else f", at most {size_words(self.peak_rss_bytes)} of memory"
        )
        if not self.operators:
            yield "No feed of Penstock delivered anything."
            return
        yield ""
        yield from _table(self.operators, several=len(self.feeds) > 1)
        yield ""
        for feed in self.feeds:
            yield from _feed_lines(feed)
        yield ""
        yield from self._notes()

    def _notes(self) -> Iterator[str]:
        yield "share: part of the wall time of all rows. wall: time in calls, added up over all threads and calls in flight."
        if self.sorted_by == "memory":
            yield "peak: the most memory that one call allocated, of Python and NumPy. The feeds ran in the training loop's own thread."
            yield "Tracing memory makes Python code several times slower: for times use --sort time."
        else:
            yield "GIL: part of the wall time in which the operator held the GIL, estimated from samples; - where there are too few."
        yield f"Measuring took {time_words(self.doctor_s)}, which is in no row."


def _without_secrets(before: str, argument: str) -> str:
    """Return an argument as it may be shown; the one behind `--token` is a secret, whatever it looks like."""
    given = f"{before}=x"
    names_one = before.startswith("-") and "=" not in before and redacted(given) != given
    return "[removed]" if names_one else redacted(argument)


def report_of(profiler: Profiler, script: Sequence[str], status: int) -> Report:
    """Return the figures of a profiler that was stopped."""
    recorder, groups = profiler.recorder, profiler.groups
    tallies = {probe: recorder.total(probe) for group in groups for probe in group.probes}
    in_operators_s = sum(tally.cpu_ns for tally in tallies.values()) / 1e9
    others = max(0.0, profiler.cpu_s - in_operators_s - recorder.own_ns / 1e9) / max(profiler.elapsed_s, 1e-9)
    cpu_shares = {probe: tally.cpu_ns / tally.running_ns for probe, tally in tallies.items() if tally.running_ns}
    held = profiler.sampler.shares(cpu_shares, others)
    rows = _merged((probe, tallies[probe]) for group in groups for probe in group.probes)
    shares = tenths([tally.wall_ns for _, tally in rows])
    figures = [_figures(probe, tally, share, held, memory=recorder.memory) for (probe, tally), share in zip(rows, shares, strict=True)]
    by_memory = recorder.memory
    return Report(
        penstock=VERSION,
        script=tuple(map(_without_secrets, ("", *script), script)),
        status=status,
        sorted_by="memory" if by_memory else "time",
        elapsed_s=profiler.elapsed_s,
        cpu_s=profiler.cpu_s,
        peak_rss_bytes=_peak_rss(),
        doctor_s=recorder.own_ns / 1e9,
        operators=tuple(sorted(figures, key=lambda one: -(one.peak_bytes or 0) if by_memory else -one.wall_s)),
        pipeline=tuple(figures),
        feeds=tuple(_feed_figures(group, judged=not by_memory) for group in groups),
    )


def _merged(pairs: Iterator[tuple[Probe, Tally]]) -> list[tuple[Probe, Tally]]:
    """Join the two probes of a batch, which is filled inside of tasks and finished behind them; leave out what never ran."""
    out: list[tuple[Probe, Tally]] = []
    for probe, tally in pairs:
        last = out[-1] if out else None
        if last is not None and probe.kind == "batch" == last[0].kind and (probe.feed, probe.name) == (last[0].feed, last[0].name):
            last[1].add(tally)
        elif tally.wall_ns:
            out.append((probe, tally))
    return out


def _figures(probe: Probe, tally: Tally, share: float, held: Mapping[Hashable, float], *, memory: bool) -> OperatorFigures:
    gil = held.get(probe)
    p50, p99 = (percentile_ns(tally.lasted, part) for part in (0.5, 0.99))
    return OperatorFigures(
        feed=probe.feed,
        kind=probe.kind,
        name=probe.name,
        where=probe.where or None,
        num_calls=tally.num_calls,
        wall_s=tally.wall_ns / 1e9,
        cpu_s=tally.cpu_ns / 1e9,
        gil_share=None if gil is None else min(1.0, gil * tally.running_ns / max(1, tally.wall_ns)),
        p50_s=None if p50 is None else p50 / 1e9,
        p99_s=None if p99 is None else p99 / 1e9,
        bytes_out=tally.bytes_out,
        peak_bytes=tally.peak_bytes if memory and probe.kind != "penstock" else None,
        share_percent=share,
    )


def tenths(parts: Sequence[int]) -> list[float]:
    """Return each part in per cent of their sum, in tenths that add up to exactly 100: the largest remainders are rounded up."""
    total = sum(parts)
    if not total:
        return [0.0] * len(parts)
    whole = [part * 1000 // total for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda number: -(parts[number] * 1000 % total))
    for number in by_remainder[: 1000 - sum(whole)]:
        whole[number] += 1
    return [tenth / 10 for tenth in whole]


def _feed_figures(group: FeedGroup, *, judged: bool) -> FeedFigures:
    snapshots = [stats.snapshot() for stats in group.stats]
    consumers = [snapshot.consumer for snapshot in snapshots]
    verdict = judge(max(snapshots, key=lambda snapshot: snapshot.elapsed_s)) if judged else None
    return FeedFigures(
        number=group.number,
        plan=tuple(group.plan),
        num_feeds=len(snapshots),
        num_batches=sum(one.num_batches for one in consumers),
        first_wait_s=sum(one.first_wait_s for one in consumers),
        wait_s=sum(one.wait_s for one in consumers),
        step_s=sum(max(0.0, one.span_s - one.wait_s) for one in consumers),
        in_consumer=any(snapshot.in_line for snapshot in snapshots),
        verdict=None if verdict is None else verdict.headline,
    )


def _peak_rss() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    import sys

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# -- as text ----------------------------------------------------------------------------------------------------------------------------

_COLUMNS = (("share", 7), ("wall", 8), ("CPU", 8), ("GIL", 6), ("calls", 9), ("p50", 8), ("p99", 8), ("out", 8), ("peak", 8))
_NAME = 22
_LINE = 110


def _table(operators: Sequence[OperatorFigures], *, several: bool) -> Iterator[str]:
    yield f"{'operator':<{_NAME}}" + "".join(f"{name:>{width}}" for name, width in _COLUMNS) + "  where"
    for one in operators:
        cells = (
            f"{one.share_percent:.1f} %",
            time_words(one.wall_s),
            time_words(one.cpu_s),
            "-" if one.gil_share is None else f"~{100 * one.gil_share:.0f} %",
            f"{one.num_calls:,}",
            "-" if one.p50_s is None else time_words(one.p50_s),
            "-" if one.p99_s is None else time_words(one.p99_s),
            size_words(one.bytes_out),
            "-" if one.peak_bytes is None else size_words(one.peak_bytes),
        )
        row = "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
        yield f"{short_name(one, _NAME - 1, several=several):<{_NAME}}{row}  {_near(one.where)}".rstrip()


def short_name(one: OperatorFigures, width: int, *, several: bool) -> str:
    """Name an operator in at most `width` characters, with the number of its feed where there are several."""
    number = f" #{one.feed}" if several else ""
    name = one.name if one.kind in ("penstock", "batch", "read", "cache", "unbatch") else f"{one.kind} {one.name}"
    room = width - len(number)
    return (name if len(name) <= room else name[: room - 3] + "...") + number


def _near(where: str | None) -> str:
    """Shorten a path that lies below the working folder."""
    if where is None:
        return ""
    relative = os.path.relpath(where)
    return where if relative.startswith("..") else relative


def _feed_lines(feed: FeedFigures) -> Iterator[str]:
    times = "" if feed.num_feeds == 1 else f" ({feed.num_feeds} feeds)"
    yield from _wrapped(f"feed {feed.number}{times}: {' > '.join(line.strip() for line in feed.plan)}")
    waited = "making them took" if feed.in_consumer else "waited"
    waits = f"{waited} {time_words(feed.first_wait_s)} for the first and {time_words(feed.wait_s)} for the others"
    yield from _wrapped(f"  training loop: {feed.num_batches:,} batches; {waits}, steps took {time_words(feed.step_s)}")
    for text in filter(None, [feed.verdict]):
        yield from _wrapped(f"  {text}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _LINE, subsequent_indent=" " * 4, break_long_words=False, break_on_hyphens=False)


def time_words(seconds: float) -> str:
    """Say a time in three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}" if seconds < 999.5 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds * 1e6:.3g} us"


def size_words(num_bytes: int) -> str:
    """Say a number of bytes in three digits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= 0.9995 * size:
            return f"{num_bytes / size:.3g} {unit}" if num_bytes < 999.5 * size else f"{num_bytes / size:,.0f} {unit}"
    return f"{num_bytes} B"


_TIME, _MEMORY, _STEP, _WAIT, _BOX = "#3d6fb6", "#b6743d", "#1f9d62", "#e4572e", "#eef2f7"
_ROW = 0.52
"""Inches of one operator."""


def draw(report: Report, path: str | Path) -> None:
    """Write a PNG: for each feed its pipe from the top down, beside each operator bars of its time and its memory.

    The memory is the peak of one call where it was measured, else what one call returned. The last box of a pipe is the training loop:
    its steps and its waiting.

    Args:
        report: with at least one operator.
        path: the file; replaced when it exists.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure_class, canvas_class = _matplotlib()
    pipes = [(feed, [one for one in report.pipeline if one.feed == feed.number]) for feed in report.feeds]
    heights = [len(operators) + 1 for _, operators in pipes]
    figure = figure_class(figsize=(11.0, 1.0 + _ROW * sum(heights) + 0.75 * len(pipes)), dpi=100, layout="constrained")
    canvas_class(figure)
    axes = figure.subplots(len(pipes), 3, squeeze=False, width_ratios=[1.2, 1.5, 1.2], height_ratios=heights)
    longest_s = max([one.wall_s for one in report.operators] + [feed.step_s + feed.wait_s + feed.first_wait_s for feed in report.feeds])
    largest = max([_memory(one) for one in report.operators] + [1.0])
    for row, (feed, operators) in zip(axes, pipes, strict=True):
        _draw_pipe(row[0], feed, operators, several=len(pipes) > 1)
        _draw_time(row[1], feed, operators, longest_s)
        _draw_memory(row[2], operators, largest, peak=report.sorted_by == "memory")
        for axis in row:
            axis.set_ylim(len(operators) + 0.6, -0.6)
            axis.set_yticks([])
    figure.suptitle(f"{Path(report.script[0]).name}: {time_words(report.elapsed_s)}", fontsize=12, fontweight="bold")
    figure.savefig(path, format="png")


def _draw_pipe(axis: Any, feed: FeedFigures, operators: list[OperatorFigures], *, several: bool) -> None:
    axis.set_xlim(0, 1)
    axis.axis("off")
    axis.set_title(f"feed {feed.number}" if several else "the pipe", fontsize=10, loc="left")
    names = [short_name(one, 34, several=False) for one in operators]
    for place, name in enumerate([*names, "training loop"]):
        box = {"boxstyle": "round,pad=0.35", "facecolor": _BOX, "edgecolor": "0.6"}
        axis.text(0.5, place, name, ha="center", va="center", fontsize=9, bbox=box)
        if place:
            axis.annotate("", (0.5, place - 0.28), (0.5, place - 0.72), arrowprops={"arrowstyle": "->", "color": "0.4"})


def _draw_time(axis: Any, feed: FeedFigures, operators: list[OperatorFigures], longest_s: float) -> None:
    axis.set_title("time in all threads", fontsize=10, loc="left")
    for place, one in enumerate(operators):
        axis.barh(place, one.wall_s, height=0.5, color=_TIME)
        axis.text(one.wall_s, place, f"  {time_words(one.wall_s)}, {one.share_percent:.1f} %", va="center", fontsize=8)
    waited_s, place = feed.wait_s + feed.first_wait_s, len(operators)
    axis.barh(place, feed.step_s, height=0.5, color=_STEP)
    axis.barh(place, waited_s, left=feed.step_s, height=0.5, color=_WAIT)
    words = f"  steps {time_words(feed.step_s)}, {'making' if feed.in_consumer else 'waiting'} {time_words(waited_s)}"
    axis.text(feed.step_s + waited_s, place, words, va="center", fontsize=8)
    _finish(axis, longest_s)


def _draw_memory(axis: Any, operators: list[OperatorFigures], largest: float, *, peak: bool) -> None:
    axis.set_title("peak memory of one call" if peak else "bytes returned by one call", fontsize=10, loc="left")
    for place, one in enumerate(operators):
        if one.kind != "penstock":
            axis.barh(place, _memory(one), height=0.5, color=_MEMORY)
            axis.text(_memory(one), place, f"  {size_words(round(_memory(one)))}", va="center", fontsize=8)
    _finish(axis, largest)


def _finish(axis: Any, largest: float) -> None:
    axis.set_xlim(0, 1.7 * largest or 1.0)
    axis.set_xticks([])
    axis.spines[["top", "right", "bottom"]].set_visible(False)


def _memory(one: OperatorFigures) -> float:
    return one.bytes_out / max(1, one.num_calls) if one.peak_bytes is None else one.peak_bytes


def require_matplotlib() -> None:
    """Check that a picture can be drawn, before the script runs for minutes.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    _matplotlib()


def _matplotlib() -> tuple[Any, Any]:
    """Return the Figure and Agg canvas classes, which keep no state and open no window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib is not installed", where="penstock doctor --picture", fix='pip install "penstock[demo]"') from error
    return Figure, FigureCanvasAgg
