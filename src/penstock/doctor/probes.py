"""Measures the calls of operators: each thread adds up its own calls, so nothing is locked."""

from __future__ import annotations

import functools
import math
import threading
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

from penstock._contracts.element import bytes_of

_STEPS = 16
"""Buckets of durations for each power of two: a percentile is off by at most 2.2 %."""


class Tally:
    """The sums of the calls of one operator. Times are nanoseconds of the operator alone, without those that it calls.

    Attributes:
        num_calls: finished calls.
        wall_ns: their wall time. Of an async function from the call to its result, whatever else the thread did meanwhile.
        running_ns: the wall time in which a thread ran them; the same but for async functions.
        cpu_ns: CPU time of the threads that ran them.
        bytes_out: what they returned: arrays, bytes and texts are counted, other objects as 8 bytes.
        peak_bytes: the most memory that one call had allocated beyond what there was at its begin; 0 where that is not measured.
        lasted: the number of calls by the logarithm of their wall time.
    """

    __slots__ = ("bytes_out", "cpu_ns", "lasted", "num_calls", "peak_bytes", "running_ns", "wall_ns")

    def __init__(self) -> None:
        self.num_calls = self.wall_ns = self.running_ns = self.cpu_ns = self.bytes_out = self.peak_bytes = 0
        self.lasted: dict[int, int] = {}

    def count(self, wall_ns: int, num_bytes: int) -> None:
        """Count one call, whose wall time stands in `wall_ns` already."""
        self.num_calls += 1
        self.bytes_out += num_bytes
        bucket = round(_STEPS * math.log2(wall_ns)) if wall_ns > 0 else 0
        self.lasted[bucket] = self.lasted.get(bucket, 0) + 1

    def add(self, other: Tally) -> None:
        """Add the sums of another thread, which may go on counting."""
        self.num_calls += other.num_calls
        self.wall_ns += other.wall_ns
        self.running_ns += other.running_ns
        self.cpu_ns += other.cpu_ns
        self.bytes_out += other.bytes_out
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        for bucket, count in list(other.lasted.items()):
            self.lasted[bucket] = self.lasted.get(bucket, 0) + count


def percentile_ns(lasted: dict[int, int], share: float) -> float | None:
    """Return the duration that `share` of the calls did not exceed, or None when none was counted one by one."""
    left = share * sum(lasted.values())
    for bucket in sorted(lasted):
        left -= lasted[bucket]
        if left <= 0:
            return float(2.0 ** (bucket / _STEPS))
    return None


class ThreadRecord:
    """What one thread has measured.

    Attributes:
        span: the call that it is in, or None.
        last: the operator whose call ended last, with its begin and its end, or None.
        tallies: of each operator.
        task_ns, task_cpu_ns: in calls of operators, the doctor's own work around them included, since the last task ended.
        own_ns: the doctor's own work.
    """

    __slots__ = ("last", "own_ns", "span", "tallies", "task_cpu_ns", "task_ns")

    def __init__(self) -> None:
        self.span: Span | None = None
        self.last: tuple[Probe, int, int] | None = None
        self.tallies: dict[Probe, Tally] = {}
        self.task_ns = self.task_cpu_ns = self.own_ns = 0

    def tally(self, probe: Probe) -> Tally:
        """Return the sums of an operator in this thread."""
        found = self.tallies.get(probe)
        if found is None:
            found = self.tallies[probe] = Tally()
        return found

    def at(self, time_ns: int) -> Probe | None:
        """Return the operator that ran in this thread at a moment that is no more than milliseconds ago, or None. From any thread.

        Of several calls that came after the moment only the last is known: it is taken for all of them.
        """
        span, last = self.span, self.last
        if last is not None and last[1] <= time_ns <= last[2]:
            return last[0]
        if span is not None and span.start_ns <= time_ns:
            return span.probe
        return last[0] if last is not None and last[2] >= time_ns else None


class _Here(threading.local):
    def __init__(self, records: list[ThreadRecord]) -> None:
        self.record = ThreadRecord()
        records.append(self.record)


class ProbeRecorder:
    """The records of all threads of a run. With `memory`, tracemalloc must be tracing, and operators must run in one thread only."""

    def __init__(self, *, memory: bool = False) -> None:
        self.memory = memory
        self.records: list[ThreadRecord] = []
        self._local = _Here(self.records)

    def here(self) -> ThreadRecord:
        """Return the record of the calling thread."""
        return self._local.record

    def total(self, probe: Probe) -> Tally:
        """Return the sums of an operator over all threads. From any thread, while others measure."""
        out = Tally()
        for record in list(self.records):
            tally = record.tallies.get(probe)
            if tally is not None:
                out.add(tally)
        return out

    @property
    def own_ns(self) -> int:
        """The doctor's own work in all threads."""
        return sum(record.own_ns for record in list(self.records))


class Span:
    """One call of an operator, or one stretch of an async one, in the thread that makes it. Spans nest: an outer one excludes the inner."""

    __slots__ = (
        "_begin_ns",
        "_begun_bytes",
        "_cpu_ns",
        "_inner_cpu_ns",
        "_inner_ns",
        "_outer",
        "_peak_bytes",
        "probe",
        "record",
        "start_ns",
    )

    def __init__(self, probe: Probe) -> None:
        self._begin_ns = time.perf_counter_ns()
        self.probe = probe
        self.record = record = probe.recorder.here()
        self._outer = record.span
        self._inner_ns = self._inner_cpu_ns = self._begun_bytes = self._peak_bytes = 0
        if probe.recorder.memory:
            self._begun_bytes, peak_bytes = tracemalloc.get_traced_memory()
            if self._outer is not None:
                self._outer._peak_bytes = max(self._outer._peak_bytes, peak_bytes)
            tracemalloc.reset_peak()
        self._cpu_ns = time.thread_time_ns()
        self.start_ns = time.perf_counter_ns()
        record.span = self  # only now: other threads look at it

    def end(self, num_bytes: int | Callable[[], int], *, counts: bool = True, waits: bool = False) -> None:
        """End the call.

        Args:
            num_bytes: what it returned, or a function that says so: it is not part of the call.
            counts: whether it is a call of its own.
            waits: whether its wall time is added elsewhere: that of an async function begins before and goes on after this stretch.
        """
        end_ns = time.perf_counter_ns()
        end_cpu_ns = time.thread_time_ns()
        record, probe, outer = self.record, self.probe, self._outer
        record.span, record.last = outer, (probe, self.start_ns, end_ns)
        if probe.recorder.memory:
            self._end_memory()
        tally = record.tally(probe)
        wall_ns = end_ns - self.start_ns - self._inner_ns
        cpu_ns = end_cpu_ns - self._cpu_ns
        tally.running_ns += wall_ns
        tally.wall_ns += 0 if waits else wall_ns
        tally.cpu_ns += min(wall_ns, max(0, cpu_ns - self._inner_cpu_ns))  # its clock is slow: it counts a little of itself
        if counts:
            tally.count(wall_ns, num_bytes if isinstance(num_bytes, int) else num_bytes())
        all_ns = time.perf_counter_ns() - self._begin_ns
        own_ns = all_ns - (end_ns - self.start_ns)
        record.own_ns += own_ns
        if outer is not None:
            outer._inner_ns += all_ns
            outer._inner_cpu_ns += cpu_ns + own_ns
        elif probe.in_task:
            record.task_ns += all_ns
            record.task_cpu_ns += cpu_ns + own_ns

    def _end_memory(self) -> None:
        self._peak_bytes = max(self._peak_bytes, tracemalloc.get_traced_memory()[1])
        tally, outer = self.record.tally(self.probe), self._outer
        tally.peak_bytes = max(tally.peak_bytes, self._peak_bytes - self._begun_bytes)
        if outer is not None:
            outer._peak_bytes = max(outer._peak_bytes, self._peak_bytes)
        tracemalloc.reset_peak()


_END: Any = object()


def _size_of_result(result: Any, arguments: tuple[Any, ...]) -> int:
    return 0 if result is None else bytes_of(result)


class Probe:
    """Measures one operator.

    Attributes:
        recorder: of the run.
        feed: the number of the feed, from 1.
        kind: such as "read", "map" or "batch".
        name: of the function, or of what is read.
        where: file and line of the user's function, or "".
        in_task: whether its calls are part of the tasks that workers announce.
    """

    __slots__ = ("feed", "in_task", "kind", "name", "recorder", "where")

    def __init__(self, recorder: ProbeRecorder, feed: int, kind: str, name: str, where: str = "", *, in_task: bool = True) -> None:
        self.recorder, self.feed, self.kind, self.name, self.where, self.in_task = recorder, feed, kind, name, where, in_task

    def around(
        self,
        fn: Callable[..., Any],
        size_of: Callable[[Any, tuple[Any, ...]], int] = _size_of_result,
        convert: Callable[[Any], Any] | None = None,
    ) -> Callable[..., Any]:
        """Return `fn` measured; `size_of(result, arguments)` says what a call gives, `convert(result)` is part of the call."""

        def measured(*arguments: Any, **keywords: Any) -> Any:
            span, result = Span(self), None
            try:
                result = fn(*arguments, **keywords) if convert is None else convert(fn(*arguments, **keywords))
                return result
            finally:
                span.end(lambda: size_of(result, arguments))

        return measured

    def around_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the async function `fn` measured: its wall time is that of the whole call, its CPU time that of its own steps."""

        def measured(*arguments: Any, **keywords: Any) -> _Awaited:
            return _Awaited(self, fn(*arguments, **keywords))

        return measured

    def iterate(self, iterator: Iterator[Any]) -> Generator[Any, None, None]:
        """Give the elements of an iterator; each is a call. Closing this closes the iterator."""
        try:
            while True:
                span, row = Span(self), _END
                try:
                    row = next(iterator, _END)
                finally:
                    span.end(functools.partial(_size_of_result, row, ()), counts=row is not _END)
                if row is _END:
                    return
                yield row
                del row
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()


class _Awaited:
    """An awaitable, and what steps through it: each step is measured."""

    __slots__ = ("_begin_ns", "_probe", "_steps")

    def __init__(self, probe: Probe, awaitable: Any) -> None:
        self._probe, self._steps = probe, awaitable.__await__()
        self._begin_ns = time.perf_counter_ns()

    def __await__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Go on with the result of what it waited for."""
        return self._step(self._steps.send, value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error of what it waited for, or with a cancellation."""
        return self._step(self._steps.throw, *error)

    def close(self) -> None:
        """End it where it waits."""
        self._steps.close()

    def _step(self, method: Callable[..., Any], *arguments: Any) -> Any:
        span, result, ended = Span(self._probe), None, True
        try:
            pending = method(*arguments)
            ended = False
            return pending
        except StopIteration as end:
            result = end.value
            raise
        finally:
            span.end(0, counts=False, waits=True)
            if ended:
                tally, wall_ns = span.record.tally(self._probe), time.perf_counter_ns() - self._begin_ns
                tally.wall_ns += wall_ns
                tally.count(wall_ns, _size_of_result(result, ()))
