"""A timeline of a run as a Chrome trace, which Perfetto and chrome://tracing open: workers, operators, buffers, the loop, queues."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock._contracts.event import (
    BatchDelivered,
    BatchEnqueued,
    BlockDone,
    ElementLost,
    ElementRetried,
    Event,
    Fill,
    Listener,
    Notice,
    SlowElement,
)
from penstock._contracts.storage import RAW, write_all
from penstock._system.failing import words_of
from penstock._system.memory import resident_memory
from penstock._system.process import call_in_forked
from penstock._system.text import redacted
from penstock.errors import PlanError
from penstock.observe.curves import Watched, watched_of
from penstock.observe.memory import parts_of
from penstock.observe.ticker import Ticked, Ticker, host_of
from penstock.queues.base import Queue

_EVERY_S = 0.1
_WRITE_S = 0.5
_MOST_BYTES = 100_000_000
_MOST_CHUNKS = 4096
"""Chunks whose blocks are remembered for arrows: more than any engine has at once."""

_Chunk = tuple[int, int]


class _Seen(NamedTuple):
    """An event, of what, and the thread in which it was announced; with `by_worker` it belongs to the worker that it names."""

    event: Event
    source: str
    thread: int
    name: str
    by_worker: bool


class _End(NamedTuple):
    """The end of a span, where an arrow begins."""

    at_ns: int
    row: int


class _Step(NamedTuple):
    """What the loop does with the batches of one hand-over: the first one's number, from 1, and how many there are."""

    begin_ns: int
    row: int
    number: int
    num_batches: int


class _File:
    """A JSON array that is strict JSON after each write: what follows is written over the closing bracket."""

    def __init__(self, path: Path) -> None:
        if path.is_file() and not path.is_symlink():  # another that is still written goes on without a name: they do not mix
            path.unlink()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | RAW, 0o644)
        self._pid = os.getpid()
        self.num_bytes = 0
        self._put(b"[\n]\n", 0)

    def add(self, lines: Sequence[str]) -> None:
        """Append records, each a line of JSON, in one system call. In a forked process nothing is written."""
        if lines and os.getpid() == self._pid:
            body = (",\n" if self.num_bytes else "[\n").encode() + ",\n".join(lines).encode()
            self._put(body + b"\n]\n", self.num_bytes)
            self.num_bytes += len(body)

    def close(self) -> None:
        os.close(self._descriptor)

    def _put(self, data: bytes, at: int) -> None:
        os.lseek(self._descriptor, at, os.SEEK_SET)
        write_all(self._descriptor, data)


class _Drawing:
    """Turns events into records of the trace event format. One thread at a time."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._redacted: dict[str, str] = {}  # of each name
        self._rows: dict[Any, int] = {}
        self._lines: list[str] = []  # drawn, and not taken yet
        self._blocks: dict[tuple[str, _Chunk], list[_End]] = {}
        self._steps: dict[tuple[str, int], _Step] = {}  # of a feed in a thread
        self._ready: list[int] = []  # until when each row of the ready buffer is taken
        self._num_steps: dict[str, int] = {}
        self._num_arrows = 0
        self._parts: dict[str, int] = {}
        self._line("M", "process_name", 0, args={"name": f"penstock, process {self._pid}"})

    def draw(self, seen: _Seen) -> list[str]:
        """Return the records of an event."""
        event, source = seen.event, seen.source
        row = self._row_of(seen)
        if isinstance(event, BlockDone):
            self._block(event, row, seen)
        elif isinstance(event, BatchDelivered):
            begin_ns = event.time_ns - event.wait_ns
            if source.startswith("queue "):
                self._span(f"dequeue {source[6:]}", row, begin_ns, event.time_ns, elements=event.num_delivered, left=event.num_ready)
            else:
                self._delivered(event, row, seen)
        elif isinstance(event, BatchEnqueued):
            begin_ns = event.time_ns - event.wait_ns
            self._span(f"enqueue {source[6:]}", row, begin_ns, event.time_ns, elements=event.num_enqueued, now=event.num_ready)
        elif isinstance(event, ElementRetried):
            self._instant(f"retry {event.retry}", row, event.time_ns, stage=event.stage, key=event.key, error=_words(event.error))
        elif isinstance(event, ElementLost):
            more = {"stage": event.stage, "where": redacted(event.where), "keys": event.keys[:100], "error": _words(event.error)}
            self._instant(event.action, row, event.time_ns, **more)
        elif isinstance(event, SlowElement):
            slow: dict[str, Any] = {"where": redacted(event.where), "key": event.key, "lasted_ms": event.lasted_ns / 1e6}
            self._instant("slow element", row, event.time_ns, stage=event.stage, **slow)
        elif isinstance(event, Notice):
            self._instant(event.kind, row, event.time_ns, text=redacted(event.text))
        return self._taken()

    def counters(self, at_ns: int, fills: Sequence[Fill], num_bytes: int, parts: Mapping[str, int]) -> list[str]:
        """Return the records of how many elements stand in buffers, of the memory of the process, and of its parts in feeds and queues."""
        for fill in fills:
            self._line("C", fill.name, 0, at_ns, args={"size": fill.size})
        if num_bytes:
            self._line("C", "memory of the process", 0, at_ns, args={"MB": num_bytes // 1_000_000})
        self._parts = {**dict.fromkeys(self._parts, 0), **parts}  # all of them each time: they are drawn one above the other
        if self._parts:
            megabytes = {f"{name}_MB": round(size / 1e6, 1) for name, size in self._parts.items()}
            self._line("C", "memory of feeds and queues", 0, at_ns, args=megabytes)
        return self._taken()

    def finish(self, at_ns: int) -> list[str]:
        """Return the records of the steps that run now."""
        for key in list(self._steps):
            self._end_step(key, at_ns)
        return self._taken()

    def note(self, at_ns: int, text: str) -> list[str]:
        """Return the record of a remark about the trace itself."""
        self._instant("trace", self._row("trace"), at_ns, text=text)
        return self._taken()

    def _row_of(self, seen: _Seen) -> int:
        event = seen.event
        if seen.by_worker and isinstance(event, (BlockDone, ElementLost, ElementRetried)):
            return self._row(f"{seen.source}: worker {event.worker}")
        if isinstance(event, BlockDone) and event.chunk is None:  # calls of an async function run side by side in one thread
            return self._row(f"{seen.source}: {event.stage}, call {event.worker}")
        if seen.name.startswith("penstock-"):
            return self._row(f"{seen.source}: {seen.name.removeprefix('penstock-').partition('+')[0]}")
        return self._row(seen.name, seen.thread)

    def _row(self, name: str, key: Any = None) -> int:
        key = name if key is None else key
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._rows) + 1
            self._line("M", "thread_name", row, args={"name": redacted(name)})
        return row

    def _taken(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def _block(self, event: BlockDone, row: int, seen: _Seen) -> None:
        more: dict[str, Any] = {"elements": event.num_elements, "cpu_ms": event.cpu_ns / 1e6, "bytes": event.num_bytes}
        if seen.by_worker and event.chunk is not None:
            more["number"] = event.chunk[1]
        if event.first is not None and event.last is not None:
            more.update(epoch=event.first[0], first=event.first[1], last=event.last[1])
        self._span(event.stage, row, event.start_ns, event.end_ns, **more)
        if event.chunk is None:
            return
        key = seen.source, event.chunk
        before = self._blocks.get(key) or self._blocks.get((seen.source, event.made_of or event.chunk))
        ends = [end for end in before or () if end.at_ns <= event.start_ns]
        if ends:
            self._arrow(max(ends), _End(event.start_ns, row))
        if key not in self._blocks and len(self._blocks) >= _MOST_CHUNKS:
            del self._blocks[next(iter(self._blocks))]
        self._blocks.setdefault(key, []).append(_End(event.end_ns, row))

    def _delivered(self, event: BatchDelivered, row: int, seen: _Seen) -> None:
        source, now_ns = seen.source, event.time_ns
        self._end_step((source, seen.thread), now_ns - event.wait_ns)
        self._span("wait", row, now_ns - event.wait_ns, now_ns, ready=event.num_ready)
        if not event.num_delivered:  # the end
            return
        self._line("C", f"{source}/ready", 0, now_ns, args={"size": event.num_ready})
        number = self._num_steps.get(source, 0)
        self._num_steps[source] = number + event.num_delivered
        self._steps[source, seen.thread] = _Step(now_ns, row, number + 1, event.num_delivered)
        ends = self._blocks.pop((source, event.chunk), ()) if event.chunk is not None else ()
        if ends:
            made, step = max(ends), _End(now_ns, row)
            slot = self._buffered(made.at_ns, now_ns)
            self._span("ready", slot, made.at_ns, now_ns, batches=event.num_delivered)
            self._arrow(made, _End(made.at_ns, slot))
            self._arrow(_End(now_ns, slot), step)

    def _buffered(self, begin_ns: int, end_ns: int) -> int:
        """Return a row of the ready buffer that is free between two times."""
        free = next((number for number, until_ns in enumerate(self._ready) if until_ns <= begin_ns), len(self._ready))
        self._ready[free : free + 1] = [end_ns]
        return self._row(f"ready {free + 1}")

    def _end_step(self, key: tuple[str, int], at_ns: int) -> None:
        step = self._steps.pop(key, None)
        if step is not None:
            name = "step" if step.num_batches == 1 else f"{step.num_batches} steps"
            self._span(name, step.row, step.begin_ns, max(step.begin_ns, at_ns), number=step.number, batches=step.num_batches)

    def _arrow(self, begin: _End, end: _End) -> None:
        self._num_arrows += 1
        more = {"id": self._num_arrows, "cat": "way"}
        self._line("s", "way", begin.row, begin.at_ns - 1, **more)  # inside the span that ends there
        self._line("f", "way", end.row, end.at_ns, bp="e", **more)

    def _span(self, name: str, row: int, begin_ns: int, end_ns: int, **args: Any) -> None:
        self._line("X", name, row, begin_ns, dur=(end_ns - begin_ns) / 1000, args=args)

    def _instant(self, name: str, row: int, at_ns: int, **args: Any) -> None:
        self._line("i", name, row, at_ns, s="t", args=args)

    def _line(self, kind: str, name: str, row: int, at_ns: int | None = None, **more: Any) -> None:
        shown = self._redacted.get(name)
        if shown is None:
            shown = self._redacted[name] = redacted(name)
        record: dict[str, Any] = {"ph": kind, "name": shown, "pid": self._pid, "tid": row}
        if at_ns is not None:
            record["ts"] = at_ns / 1000
        self._lines.append(json.dumps({**record, **more}, allow_nan=False, separators=(",", ":")))


def _words(error: BaseException) -> str:
    return redacted(words_of(error))[:500]


class Trace(Ticked):
    """A timeline that is being written. Use `trace()`. From any thread.

    Training goes on when the file cannot be written: there is one warning.
    """

    def __init__(
        self, path: str | Path, targets: Sequence[tuple[Watched, Any]] = (), *, last_s: float | None = None, most_bytes: int = _MOST_BYTES
    ) -> None:
        self.path = Path(path)
        self.num_dropped = 0
        self._file = _File(self.path)
        self._seen: deque[_Seen] = deque()
        self._kept: deque[tuple[int, list[str]]] = deque()
        self._last_s, self._most_bytes = last_s, most_bytes
        self._drawing = _Drawing()
        self._written_s = time.monotonic()
        self._waiting: list[str] = []
        self._watched = [watched for watched, _ in targets]
        self._closed = self._failed = False
        host = host_of([target for _, target in targets])
        for watched, target in targets:
            source = f"queue {watched.name}" if isinstance(target, Queue) else watched.name
            elsewhere = host is not None or (not isinstance(target, Queue) and not hasattr(target, "step"))
            target.add_listener(self.listener(source, by_worker=elsewhere))
        call_in_forked(self, Trace._leave_to_parent)
        self._ticker = Ticker("penstock-trace", _EVERY_S, self._tick, self._end, host)

    def _leave_to_parent(self) -> None:
        """Forget, in a process that was just forked: no thread is here that would write."""
        self._closed = True
        self._seen.clear()

    def listener(self, source: str, *, by_worker: bool = False) -> Listener:
        """Return what draws the events of something else, until `close`.

        Args:
            source: what rows and counters call it.
            by_worker: whether events stand in the row of the worker that they name, wherever they are announced.
        """
        seen, ident, current = self._seen, threading.get_ident, threading.current_thread

        def listen(event: Event) -> None:
            if not self._closed:
                seen.append(_Seen(event, source, ident(), current().name, by_worker))

        return listen

    def _tick(self) -> bool:
        self._draw()
        self._count(time.perf_counter_ns())
        if time.monotonic() - self._written_s >= _WRITE_S:
            self._write()
        return bool(self._watched) and all(watched.has_ended() for watched in self._watched)

    def _count(self, now_ns: int) -> None:
        fills = [fill for watched in self._watched for fill in watched.fills()]
        parts = parts_of((watched.name, watched.target()) for watched in self._watched)
        self._add(now_ns, self._drawing.counters(now_ns, fills, resident_memory(), parts))

    def _end(self) -> None:
        self._closed = True
        try:
            self._write_rest(time.perf_counter_ns())
        finally:
            self._file.close()

    def _write_rest(self, now_ns: int) -> None:
        self._draw()
        self._count(now_ns)
        self._add(now_ns, self._drawing.finish(now_ns))
        for _, lines in self._kept:
            self._waiting += lines
        if self.num_dropped:
            self._waiting += self._drawing.note(now_ns, f"{self.num_dropped} records were dropped: the trace has {self._most_bytes} bytes")
        self._write()

    def _draw(self) -> None:
        seen = self._seen
        while seen:
            one = seen.popleft()
            self._add(one.event.end_ns if isinstance(one.event, BlockDone) else one.event.time_ns, self._drawing.draw(one))

    def _add(self, at_ns: int, lines: list[str]) -> None:
        """Keep records for the next write, or, with `last_s`, for the end."""
        if self._last_s is not None:
            names = [line for line in lines if line.startswith('{"ph":"M"')]
            self._waiting += names
            self._kept.append((at_ns, [line for line in lines if line not in names]))
            while self._kept[0][0] < at_ns - self._last_s * 1e9:
                self._kept.popleft()
        elif self._file.num_bytes < self._most_bytes:
            self._waiting += lines
        else:
            self.num_dropped += len(lines)

    def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        self._written_s = time.monotonic()
        try:
            self._file.add(lines)
        except OSError as error:
            self.num_dropped += len(lines)
            if not self._failed:
                self._failed = True
                warnings.warn(f"the timeline {self.path} is cut: {error}; training goes on without it", RuntimeWarning, stacklevel=1)


def trace(path: str | Path, target: Any, *, last_s: float | None = None, most_bytes: int = _MOST_BYTES) -> Trace:
    """Write a timeline of feeds, enqueuers and queues while they are used: open it in Perfetto (ui.perfetto.dev) or chrome://tracing.

    Each worker has a row with a span for each operator and block, or each item, and each thread of yours one with its steps and waits, or
    with its queue calls. Rows "ready n" show batches between the worker that made them and the loop. Arrows lead from the read to the step.
    Counters show how many elements stand in each buffer, and the memory of the process. Costs 1 us an event.

    The file is strict JSON after each write, twice a second. A killed program leaves a file that loads.

    Args:
        path: the file; replaced when it exists.
        target: a feed, a GeneratorEnqueuer, a queue, or a list of them. `ps.parallel_jobs` and `ps.pack` have an argument `trace`.
        last_s: keep so many seconds, and write them at the end; None writes all of the run.
        most_bytes: of the file; what comes behind that is counted and dropped.

    Returns:
        What is written; `close()` ends it early. It ends by itself when all targets are closed and empty, or gone.

    Raises:
        PlanError: a target is none of these.
        OSError: the file cannot be made.
    """
    if last_s is not None and not last_s > 0:
        raise PlanError(
            f"last_s is {last_s!r}", where="observe.trace()", fix="give a number of seconds above 0, or None for all of the run"
        )
    refusal = PlanError(
        f"a trace of {target!r}: it is no queue, feed or enqueuer",
        where="observe.trace()",
        fix="give a penstock queue, a feed, a GeneratorEnqueuer, or a list; parallel_jobs and pack have an argument trace=",
    )
    return Trace(path, watched_of(target, ("fills", "add_listener", "is_closed"), refusal), last_s=last_s, most_bytes=most_bytes)
