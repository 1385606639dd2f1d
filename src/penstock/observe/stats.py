"""Collects a feed's events into a few figures, cheaply enough to stay on in every run; the feeds that run in this process.

Also: how long a thread was ready to run and got no CPU, and whether others hold the GIL. It tells a worker that sleeps from others.
"""

from __future__ import annotations

import functools
import os
import pickle
import threading
import time
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, NamedTuple, TypeVar

from penstock._contracts.event import (
    BatchDelivered,
    BlockDone,
    ElementLost,
    ElementRetried,
    Event,
    Notice,
    RowsPacked,
    RunBegun,
    SlowElement,
)
from penstock._system.lazy import dataclass
from penstock._system.memory import available_cpus
from penstock._system.parking import thread_times
from penstock._system.process import OwnLocks
from penstock.observe.memory import MemoryStats, RunMemory

_Figures = TypeVar("_Figures", "StageStats", "ConsumerStats")


def note_running(feed: Any) -> None:
    """Remember a feed that has begun; it is forgotten when it is closed or gone."""
    _begun().add(feed)


def running_feeds() -> list[Any]:
    """Return the feeds that have begun and are not closed."""
    return [feed for feed in list(_begun()) if not feed.is_closed()]


@functools.cache
def _begun() -> weakref.WeakSet[Any]:
    return weakref.WeakSet()


@functools.cache
def watchers() -> list[Callable[[Any, Any], Any]]:
    """Return what is called with the plan and the figures of each new feed, and gives a listener: one function under `penstock doctor`."""
    return []


_EVERY_NS = 50_000_000
"""A look costs 10 us, and lets go of the GIL three times: at most one in 50 ms and thread."""


_AWAY_S = 100e-6
"""A thread that is away so long finds the GIL taken if another one runs Python code; after 10 us it has it back before the other wakes."""

_TAKEN_NS = 1_000_000
"""A waiting thread asks for the GIL after 5 ms; Python code between two calls into C, as that of a feed, has it for far less than 1 ms."""


class QueueClock(threading.local):
    """The clock of each thread that asks it; `due_ns` says when it is worth another look."""

    def __init__(self) -> None:
        self.due_ns = 0
        self._seen: tuple[int, int] | None = None

    def look(self, now_ns: int) -> tuple[int, int]:
        """Return the time since the thread's last look, and how long of it it was queued; zeros at the first, and where nothing tells."""
        self.due_ns = now_ns + _EVERY_NS
        times = thread_times()
        queued_ns = None if times is None else times[1]
        before, self._seen = self._seen, None if queued_ns is None else (now_ns, queued_ns)
        if before is None or queued_ns is None:
            return 0, 0
        return now_ns - before[0], queued_ns - before[1]


def gil_taken(away_s: float = _AWAY_S) -> bool | None:
    """Let go of the GIL for a moment, and tell whether it had to be waited for, beside any wait for a CPU; None where nothing tells.

    Costs 0.1 ms more than `away_s`, or as long as another thread holds the GIL.
    """
    before, begin_ns = thread_times(), time.perf_counter_ns()
    time.sleep(away_s)
    end_ns, after = time.perf_counter_ns(), thread_times()
    if before is None or after is None:
        return None
    awake_ns = sum(after) - sum(before)
    return end_ns - begin_ns - awake_ns - int(away_s * 1e9) >= _TAKEN_NS


_FOLD_AT = 1024
"""Events that wait to be added up: 100 kB at most, and one fold per this many keeps the cost of one event under 1 us."""

_MAX_NOTICES = 100
_FEWEST_GIL_LOOKS = 5
_GIL_LOOKS_AT_ONCE = 10
_GIL_EVERY_NS = 100_000_000
"""A look for the GIL costs 0.2 ms: but for the first ones of a thread, at most one in 100 ms, 0.2 % of its time."""
_FORGOTTEN = Exception()


_SLOW_BUCKETS = 3
"""Powers of two above the median from which on an element is slow: at least four times, on average eight."""

_MOST_SLOWEST = 5
_SLOW_NS = 10_000_000
"""Faster elements are not worth naming."""


class SlowSample(NamedTuple):
    """An element that took long: for `lasted_s` seconds at least, its (epoch, index), and its place in words where that is known."""

    lasted_s: float
    key: tuple[int, int]
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStats:
    """What one stage did.

    Times are sums over its workers; `busy_s` is wall time inside its blocks, `cpu_s` their threads' CPU time. `busiest_s` is the wall
    time of the busiest worker alone: the engine may let the others stand by. In `queued_s` of `watched_s` its
    threads were ready to run and got no CPU; both are 0 where the system does not tell. `num_gil_looks` times one of its threads let go
    of the GIL while others worked; `num_gil_waits` times it then had to wait for it.

    `first_s` is the longest time that a worker took for its first block. Of the other blocks, `median_us` is the usual time of an
    element, within a factor of 1.5; `num_slow` blocks were far slower, in `slow_s` of the busy time, and `slowest` are the slowest
    elements. `concurrency` is that of its operator, None where it has none of its own. `in_program` says that one thread of the program
    runs it, beside the shared workers, because it calls functions of the user's.
    """

    name: str
    num_elements: int
    num_blocks: int
    busy_s: float
    cpu_s: float
    workers: tuple[int, ...]
    busiest_s: float = 0.0
    watched_s: float = 0.0
    queued_s: float = 0.0
    num_gil_looks: int = 0
    num_gil_waits: int = 0
    first_s: float = 0.0
    median_us: float = 0.0
    num_slow: int = 0
    slow_s: float = 0.0
    slowest: tuple[SlowSample, ...] = ()
    concurrency: int | None = None
    in_program: bool = False

    @property
    def us_per_element(self) -> float:
        """Return microseconds of one worker per element; 0.0 before the first block."""
        return self.busy_s * 1e6 / self.num_elements if self.num_elements else 0.0

    @property
    def cpu_share(self) -> float:
        """Return the part of the busy time that was CPU time; 1.0 before the first block."""
        return min(1.0, self.cpu_s / self.busy_s) if self.busy_s > 0 else 1.0

    @property
    def queued_share(self) -> float | None:
        """Return the part of the time in which its threads were ready to run and got no CPU; None where that is not known."""
        return min(1.0, self.queued_s / self.watched_s) if self.watched_s > 0 else None

    @property
    def gil_share(self) -> float | None:
        """Return how often a thread found the GIL held by another one that worked; None where it looked too rarely."""
        return self.num_gil_waits / self.num_gil_looks if self.num_gil_looks >= _FEWEST_GIL_LOOKS else None

    def busy_share(self, elapsed_s: float) -> float:
        """Return the part of `elapsed_s` in which a worker of this stage was busy, on average."""
        return self.busy_s / (elapsed_s * len(self.workers)) if elapsed_s > 0 and self.workers else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStats:
    """What policies did about elements that failed in one stage, in this process; `wait_s` were the pauses before retries."""

    stage: str
    num_skipped: int
    num_replaced: int
    num_retries: int
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """What the training loop saw.

    Attributes:
        num_batches: what was delivered: batches of a feed, elements of a queue.
        first_wait_s: how long the first delivery was waited for.
        wait_s: the waiting inside `span_s`.
        span_s: from the first delivery to the last. Of several threads that take, each has its own, and both times are sums over them.
        mean_ready: what stood ready at a delivery, on average.
        num_calls: how many deliveries there were; one may bring several batches or elements.
        num_consumers: how many threads took.
        mean_kept: how many earlier deliveries the training loop still referred to, on average.
        most: how many deliveries may exist at once: in work, ready or kept; 0 where that is not known.
        full_share: the part of the deliveries at which so many were ready that workers had to pause.
    """

    num_batches: int
    first_wait_s: float
    wait_s: float
    span_s: float
    mean_ready: float
    num_calls: int = 0
    num_consumers: int = 1
    mean_kept: float = 0.0
    most: int = 0
    full_share: float = 0.0

    @property
    def wait_share(self) -> float:
        """Return the part of the time after its first batch in which the training loop, or one that takes, waited for the next one."""
        return min(1.0, self.wait_s / self.span_s) if self.span_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The figures of a run up to now.

    `elapsed_s` runs from the first event's start to the last event. `machine_share` is the part of the whole machine's CPU time since
    the first event that was in use, by this program or any other; None where the system does not tell. `packed_tokens` of
    `packed_places` in the rows of `pack_sequences` hold a token. `num_skipped` and `num_replaced`
    include those before the state that the run began with; they may be ahead of what was delivered, as the reading is. `in_line` says
    that the thread that took the batches made them too. `memory_bytes` is the budget for what is in flight, 0 where that is not known.
    `num_before_first` elements were read before the first delivery. `is_stream` says that one thread reads a generator or an iterator,
    `in_order` that nothing goes on before what comes earlier in the order is finished,
    `is_alone` that some of the worker threads stand by, because they did not make it faster; `no_processes` why worker processes cannot be.
    """

    elapsed_s: float
    num_cpus: int
    stages: tuple[StageStats, ...]
    consumer: ConsumerStats
    notices: tuple[str, ...]
    machine_share: float | None = None
    failures: tuple[FailureStats, ...] = ()
    num_skipped: int = 0
    num_replaced: int = 0
    packed_tokens: int = 0
    packed_places: int = 0
    in_line: bool = False
    memory_bytes: int = 0
    num_before_first: int = 0
    is_stream: bool = False
    in_order: bool = True
    is_alone: bool = False
    no_processes: str = ""
    memory: MemoryStats = MemoryStats()

    def __repr__(self) -> str:
        """Show the figures with their units in a few lines, as `feed.report()` does, without its verdict."""
        from penstock.observe.diagnose import summary  # which needs this module

        return summary(self)

    @property
    def padding_share(self) -> float | None:
        """Return the part of all packed rows that is padding; None when nothing was packed."""
        return 1 - self.packed_tokens / self.packed_places if self.packed_places else None


def since(before: Snapshot, now: Snapshot) -> Snapshot:
    """Return the figures of the time between two snapshots of a run: what was made, taken and waited, and the CPU time for it."""
    known = {stage.name: stage for stage in before.stages}
    names = "num_elements", "busy_s", "cpu_s", "queued_s"
    stages = (_less(stage, known[stage.name], *names) if stage.name in known else stage for stage in now.stages)
    return replace(now, stages=tuple(stages), consumer=_less(now.consumer, before.consumer, "num_batches", "wait_s", "span_s"))


def _less(now: _Figures, before: _Figures, *names: str) -> _Figures:
    return replace(now, **{name: getattr(now, name) - getattr(before, name) for name in names})


@dataclass(slots=True)
class _StageSum:
    num_elements: int = 0
    num_blocks: int = 0
    busy_ns: int = 0
    cpu_ns: int = 0
    worker_ns: dict[int, int] = field(default_factory=dict)
    watched_ns: int = 0
    queued_ns: int = 0
    num_gil_looks: int = 0
    num_gil_waits: int = 0
    first_ns: int = 0
    costs: dict[int, list[int]] = field(default_factory=dict)
    """For each power of two of ns per element: elements, blocks, time."""
    slowest: dict[tuple[int, int], SlowSample] = field(default_factory=dict)

    def note_slow(self, sample: SlowSample) -> None:
        """Keep an element if it is among the slowest; of one that is there already the longer time counts."""
        before = self.slowest.get(sample.key)
        if before is not None:
            sample = SlowSample(max(before.lasted_s, sample.lasted_s), sample.key, sample.where or before.where)
        elif len(self.slowest) >= _MOST_SLOWEST:
            least = min(self.slowest.values())
            if sample.lasted_s <= least.lasted_s:
                return
            del self.slowest[least.key]
        self.slowest[sample.key] = sample


@dataclass(slots=True)
class _ConsumerSum:
    first_ns: int
    last_ns: int
    wait_ns: int = 0


_Taken = tuple[BatchDelivered, int, bool]
"""A delivery, the thread that took it, and whether that works as well."""


class _Looked(NamedTuple):
    """How long the thread of a stage was queued, in the time that was watched, and whether it found the GIL taken, if it looked."""

    stage: str
    watched_ns: int
    queued_ns: int
    gil_taken: bool | None = None


class Sums(NamedTuple):
    """What the figures of a run are added up in, for another process.

    Attributes:
        until_ns: when the last delivery in it was, by `time.perf_counter_ns`.
        content: all but the memory, pickled.
        memory: of the process.
    """

    until_ns: int
    content: bytes
    memory: MemoryStats


_OF_PROCESS = ("memory", "_fresh", "_append", "_folding", "_seat", "_worked")
"""What of `Stats` another process has itself."""


class _Seat(QueueClock):
    """What is known of each thread that announces."""

    works = False
    num_gil_looks = 0
    gil_due_ns = 0


class Stats:
    """Listen to a feed and add up what it announces.

    Call it with events from any thread; an event costs about 0.7 us, memory stays bounded however long the run is. It starts
    nothing and needs no closing.

    Args:
        num_cpus: CPUs that the process may use; asked of the system when None.
        memory: of the run; that of this process when None.

    Attributes:
        consumer: a number for what takes; None where each thread that announces deliveries is one.
    """

    def __init__(self, num_cpus: int | None = None, memory: RunMemory | None = None) -> None:
        self.consumer: int | None = None
        self.memory = memory or RunMemory()
        self._num_cpus = num_cpus if num_cpus is not None else available_cpus()
        self._fresh: deque[Event | _Taken | _Looked] = deque()
        self._folding = OwnLocks()  # a forked process may ask for the figures of its parent's feed
        self._append: Callable[[Event | _Taken | _Looked], None] = self._fresh.append
        self._seat = _Seat()
        self._worked: dict[int, int] = {}  # when each thread last ended a block, as far as it looked
        self._stages: defaultdict[str, _StageSum] = defaultdict(_StageSum)
        self._notices: deque[str] = deque(maxlen=_MAX_NOTICES)
        self._machine: tuple[int, int] | None = None
        self._is_alone, self._workers_text = False, ""
        self._first_ns: int | None = None
        self._last_ns = 0
        self._consumers: dict[int, _ConsumerSum] = {}
        self._in_line = False
        self._first_wait_ns = 0
        self._num_batches = 0
        self._ready_sum = 0
        self._num_calls = 0
        self._packed_tokens = 0
        self._packed_places = 0
        self._failed: Counter[tuple[str, str]] = Counter()  # (stage, what was done)
        self._wait_s: defaultdict[str, float] = defaultdict(float)  # of each stage of these
        self._num_before_first = 0
        self._run = RunBegun(0)
        self._kept_sum = self._num_full = self._most = 0
        self._before = 0, 0

    def begin_from(self, num_skipped: int, num_replaced: int) -> None:
        """Count on from what was skipped and replaced before a saved state; what this process did up to now is that of another run."""
        with self._folding.own():
            self._fold()
            self._failed = Counter({which: count for which, count in self._failed.items() if which[1] == "retried"})
            self._before = num_skipped, num_replaced

    def sums(self) -> Sums:
        """Return what was added up; from any thread."""
        memory = self.memory.stats()
        with self._folding.own():
            self._fold()
            until_ns = max((one.last_ns for one in self._consumers.values()), default=0)
            content = {name: value for name, value in vars(self).items() if name not in _OF_PROCESS}
            return Sums(until_ns, pickle.dumps(content), memory)

    def go_on(self, sums: Sums) -> None:
        """Add to what another process has added up. Call it before the first event."""
        vars(self).update(pickle.loads(sums.content))
        self.memory = RunMemory(ended=sums.memory)

    def __call__(self, event: Event) -> None:
        """Take one event. Appending to a deque is atomic; now and then one caller adds up what has gathered."""
        if isinstance(event, BlockDone):
            if event.end_ns >= self._seat.due_ns:
                self._look(event)
            self._append(event)
        elif isinstance(event, BatchDelivered):
            self._append((event, self.consumer or threading.get_ident(), self._seat.works))
            if event.time_ns >= self.memory.due_ns:
                self.memory.look(event.time_ns, self)
        elif isinstance(event, RunBegun):
            self._run = event
        else:
            if isinstance(event, (ElementLost, ElementRetried)):
                event = event._replace(error=_FORGOTTEN)  # it holds on to the frames, and so the elements, that it passed through
            self._append(event)
        if self._machine is None:
            self._machine = _machine_ticks()
            self.memory.begin_once()
        if len(self._fresh) >= _FOLD_AT and (folding := self._folding.own()).acquire(blocking=False):
            try:
                self._fold()
            finally:
                folding.release()

    def _look(self, event: BlockDone) -> None:
        """Note that this thread works, and how long it was queued for a CPU."""
        seat, now_ns, me = self._seat, event.end_ns, threading.get_ident()
        seat.works = True
        if now_ns >= self.memory.due_ns:
            self.memory.look(now_ns, self)
        watched_ns, queued_ns = seat.look(now_ns)
        taken = None
        self._worked[me] = now_ns
        if now_ns >= seat.gil_due_ns and any(thread != me and now_ns - at < _GIL_EVERY_NS for thread, at in list(self._worked.items())):
            seat.num_gil_looks += 1
            seat.gil_due_ns = now_ns + (_GIL_EVERY_NS if seat.num_gil_looks > _GIL_LOOKS_AT_ONCE else 0)
            taken = gil_taken()
        self._append(_Looked(event.stage, watched_ns, queued_ns, taken))

    def snapshot(self) -> Snapshot:
        """Return the figures up to now; from any thread, also while events arrive."""
        memory = self.memory.stats()
        with self._folding.own():
            self._fold()
            stages = tuple(
                _stage_stats(name, total, self._run.concurrency.get(name), name in self._run.in_program)
                for name, total in self._stages.items()
                if total.worker_ns
            )
            failures = tuple(
                FailureStats(
                    stage=stage,
                    num_skipped=self._failed[stage, "skipped"],
                    num_replaced=self._failed[stage, "replaced"],
                    num_retries=self._failed[stage, "retried"],
                    wait_s=wait_s,
                )
                for stage, wait_s in self._wait_s.items()
            )
            return Snapshot(
                elapsed_s=(self._last_ns - self._first_ns) / 1e9 if self._first_ns is not None else 0.0,
                num_cpus=self._num_cpus,
                stages=stages,
                consumer=self._consumer(),
                notices=tuple(self._notices),
                machine_share=_machine_share(self._machine),
                packed_tokens=self._packed_tokens,
                packed_places=self._packed_places,
                in_line=self._in_line,
                failures=failures,
                num_skipped=self._before[0] + sum(one.num_skipped for one in failures),
                num_replaced=self._before[1] + sum(one.num_replaced for one in failures),
                memory_bytes=self._run.memory_bytes,
                num_before_first=self._num_before_first,
                is_stream=self._run.is_stream,
                in_order=self._run.in_order,
                is_alone=self._is_alone,
                no_processes=self._run.no_processes,
                memory=memory,
            )

    def _consumer(self) -> ConsumerStats:
        consumers = self._consumers.values()
        return ConsumerStats(
            num_batches=self._num_batches,
            first_wait_s=self._first_wait_ns / 1e9,
            wait_s=sum(one.wait_ns for one in consumers) / 1e9,
            span_s=sum(one.last_ns - one.first_ns for one in consumers) / 1e9,
            mean_ready=self._ready_sum / (self._num_calls - 1) if self._num_calls > 1 else 0.0,
            num_calls=self._num_calls,
            num_consumers=max(1, len(consumers)),
            mean_kept=self._kept_sum / self._num_calls if self._num_calls else 0.0,
            most=self._most,
            full_share=self._num_full / self._num_calls if self._num_calls else 0.0,
        )

    def _fold(self) -> None:
        """Add up the events seen so far; the caller holds the lock. Bounded, so that writers cannot keep one thread here for ever."""
        for _ in range(len(self._fresh)):
            event = self._fresh.popleft()
            if isinstance(event, BlockDone):
                self._add_block(event)
            elif type(event) is tuple:
                self._add_delivery(*event)
            elif isinstance(event, _Looked):
                total = self._stages[event.stage]
                total.watched_ns += event.watched_ns
                total.queued_ns += event.queued_ns
                total.num_gil_looks += event.gil_taken is not None
                total.num_gil_waits += event.gil_taken is True
            elif isinstance(event, SlowElement):
                self._stages[event.stage].note_slow(SlowSample(event.lasted_ns / 1e9, event.key, event.where))
            elif isinstance(event, RowsPacked):
                self._packed_tokens += event.num_used
                self._packed_places += event.num_places
            elif isinstance(event, Notice):
                old = event.text  # each epoch says some things again
                if event.kind in ("alone", "workers"):  # only how many work now is of interest
                    old, self._workers_text = self._workers_text, event.text
                    self._is_alone = event.kind == "alone"
                with suppress(ValueError):
                    self._notices.remove(old)
                self._notices.append(event.text)
            elif isinstance(event, ElementLost):
                self._failed[event.stage, event.action] += 1
                self._wait_s[event.stage] += 0.0
            elif isinstance(event, ElementRetried):
                self._failed[event.stage, "retried"] += 1
                self._wait_s[event.stage] += event.wait_s

    def _add_block(self, event: BlockDone) -> None:
        total = self._stages[event.stage]
        total.num_elements += event.num_elements
        total.num_blocks += 1
        lasted_ns = event.end_ns - event.start_ns
        total.busy_ns += lasted_ns
        total.cpu_ns += event.cpu_ns
        before_ns = total.worker_ns.get(event.worker)
        if before_ns is None:
            total.worker_ns[event.worker] = lasted_ns
            total.first_ns = max(total.first_ns, lasted_ns)
        else:
            total.worker_ns[event.worker] = before_ns + lasted_ns
            cost = total.costs.setdefault((lasted_ns // max(1, event.num_elements)).bit_length(), [0, 0, 0])
            cost[0] += event.num_elements
            cost[1] += 1
            cost[2] += lasted_ns
            if event.num_elements == 1 and event.first is not None and lasted_ns >= _SLOW_NS:
                total.note_slow(SlowSample(lasted_ns / 1e9, event.first))
        self._stretch(event.start_ns, event.end_ns)

    def _add_delivery(self, event: BatchDelivered, thread: int, in_line: bool) -> None:
        # The end of the data is announced as a hand-over of nothing.
        if event.num_delivered == 0:
            return
        # The first wait is the start of the pipeline, not its pace: it is kept apart, or short runs would all look starved.
        if self._num_calls == 0:
            self._first_wait_ns = event.wait_ns
            self._num_before_first = max((total.num_elements for total in self._stages.values()), default=0)
        else:
            self._ready_sum += event.num_ready
        consumer = self._consumers.get(thread)
        if consumer is None:
            self._consumers[thread] = _ConsumerSum(event.time_ns, event.time_ns)
        else:
            consumer.wait_ns += event.wait_ns
            consumer.last_ns = max(consumer.last_ns, event.time_ns)
        self._num_calls += 1
        self._kept_sum += event.num_kept
        self._most = event.most
        self._num_full += 4 * (event.num_ready + 1) >= 3 * event.most > 0
        self._num_batches += event.num_delivered
        self._in_line |= in_line
        self._stretch(event.time_ns - event.wait_ns, event.time_ns)

    def _stretch(self, start_ns: int, end_ns: int) -> None:
        self._first_ns = start_ns if self._first_ns is None else min(self._first_ns, start_ns)
        self._last_ns = max(self._last_ns, end_ns)


def _stage_stats(name: str, total: _StageSum, concurrency: int | None, in_program: bool) -> StageStats:
    median_ns, num_slow, slow_ns = _slow(total.costs)
    return StageStats(
        name=name,
        num_elements=total.num_elements,
        num_blocks=total.num_blocks,
        busy_s=total.busy_ns / 1e9,
        cpu_s=total.cpu_ns / 1e9,
        workers=tuple(sorted(total.worker_ns)),
        busiest_s=max(total.worker_ns.values()) / 1e9,
        watched_s=total.watched_ns / 1e9,
        queued_s=total.queued_ns / 1e9,
        num_gil_looks=total.num_gil_looks,
        num_gil_waits=total.num_gil_waits,
        first_s=total.first_ns / 1e9,
        median_us=median_ns / 1e3,
        num_slow=num_slow,
        slow_s=slow_ns / 1e9,
        slowest=tuple(sorted(total.slowest.values(), reverse=True)),
        concurrency=concurrency,
        in_program=in_program,
    )


def _slow(costs: dict[int, list[int]]) -> tuple[float, int, int]:
    """Return the median ns of an element, and the number and the ns of the blocks whose elements took far longer."""
    seen, half = 0, sum(cost[0] for cost in costs.values()) / 2
    for bucket in sorted(costs):
        seen += costs[bucket][0]
        if seen >= half:
            slow = [cost for other, cost in costs.items() if other >= bucket + _SLOW_BUCKETS]
            return 0.75 * (1 << bucket), sum(cost[1] for cost in slow), sum(cost[2] for cost in slow)
    return 0.0, 0, 0


def _machine_ticks() -> tuple[int, int]:
    """Return (ticks in use, all ticks) of all CPUs since boot; zeros where there is no /proc/stat."""
    try:
        file = os.open("/proc/stat", os.O_RDONLY)  # while the interpreter ends, `open` is gone
    except OSError:
        return 0, 0
    try:
        ticks = [int(number) for number in os.read(file, 512).split()[1:9]]
    finally:
        os.close(file)
    # user nice system idle iowait irq softirq steal: waiting for a disk leaves the CPU free, time stolen by a neighbour does not.
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _machine_share(before: tuple[int, int] | None) -> float | None:
    if before is None:
        return None
    used, total = (now - then for now, then in zip(_machine_ticks(), before, strict=True))
    # A tick is 10 ms: below a tenth of a second on each of two CPUs the share says nothing.
    return used / total if total >= 20 else None
