"""Looks at the workers of an engine while its consumer waits: where each stands, since when, and whether one is stuck.

There is no thread for it. The consumer waits in slices and looks after each. It costs a worker four attributes per block, and an async
call nothing but to be listed. A stack of another thread is a snapshot: that thread may move on meanwhile.
"""

from __future__ import annotations

import linecache
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock._contracts.event import SlowElement
from penstock._engine.async_calls import AsyncCalls, Call
from penstock._engine.chunk import Claim
from penstock._engine.program import IN_PROGRAM, SHARED
from penstock._engine.scheduler import Scheduler
from penstock._engine.segment import READER, RETRY_WORKER, Segment
from penstock._engine.stall_report import Kind, RunClock, Situation, WorkerFacts, counted_ns, slice_of
from penstock._ops.block import Block
from penstock._ops.worker import WorkerContext
from penstock._system.failing import attempt
from penstock._system.frames import Frame, call_of_frame, frames_of, is_ours
from penstock._system.lazy import dataclass
from penstock._system.parking import thread_times
from penstock._system.process import current_frames

if TYPE_CHECKING:
    import asyncio

_STARTER = f"{os.sep}multiprocessing{os.sep}"
"""Calls of it stand between two of ours where a worker process begins."""


def stacks_of(threads: set[int]) -> dict[int, tuple[Frame, ...]]:
    frames = current_frames()
    stacks = {thread: stack_of(frame) for thread, frame in frames.items() if thread in threads}
    frames.clear()  # this function's own frame is among them: a cycle that would keep the feed alive
    return stacks


def stack_of(frame: Any) -> tuple[Frame, ...]:
    """Return the calls of a stack, innermost last, without those that lead from the thread's start to the user's function."""
    found = [call_of_frame(frame) for frame in frames_of(frame)]
    found.reverse()
    return users_part(found)


def users_part(found: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return calls, innermost last, without those that lead from the start of the thread or process to the user's function."""
    ours = [is_ours(call.file) or _STARTER in call.file for call in found]
    start = ours.index(True) if True in ours else 0
    while start < len(found) and ours[start]:
        start += 1
    return tuple(found[start:] or found[-2:])


def waits_of(thread: int | None) -> tuple[tuple[Frame, ...], list[Any]]:
    """Return the calls of an event loop's thread that a callback or task of the loop made, innermost last, and the frames of its stack.

    There are no such calls while the loop waits, or goes round. The frames keep alive what they hold: drop them soon.
    """
    every = current_frames()
    frames = list(frames_of(every.get(-1 if thread is None else thread)))
    every.clear()
    calls = [call_of_frame(frame) for frame in reversed(frames)]
    begins = [place for place, call in enumerate(calls) if call.function in _BEGINS]
    return tuple(calls[begins[-1] + 1 :] if begins else ()), frames


_BEGINS = ("AwaitedOp.outcome", "Handle._run")
_MOST_AWAITS = 100


def awaits_of(task: Any) -> tuple[Frame, ...]:
    """Return the chain of what a task of asyncio awaits, innermost last, without our own call: through coroutines and further tasks."""
    found: list[Frame] = []
    seen: set[int] = set()
    while task is not None and id(task) not in seen and len(found) < _MOST_AWAITS:
        seen.add(id(task))
        here = task.get_coro() if hasattr(task, "get_coro") else None
        while here is not None and len(found) < _MOST_AWAITS:
            frame, here = _step(here)
            if frame is None:
                break
            found.append(call_of_frame(frame))
            del frame
        task = _awaited_future(task)
    return tuple(call for call in found if not is_ours(call.file))


def _step(awaited: Any) -> tuple[Any, Any]:
    """Return the frame of something awaited and what it awaits itself; (None, None) where that is not Python code."""
    for kind, further in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
        frame = getattr(awaited, f"{kind}_frame", None)
        if frame is not None:
            return frame, getattr(awaited, further, None)
    return None, None


def _awaited_future(task: Any) -> Any:
    """Return the future that a task waits for, of a `gather` the first that is not done; None when asyncio does not tell."""
    waiter = getattr(task, "_fut_waiter", None)
    children = getattr(waiter, "_children", None) or ()
    return next((child for child in children if not child.done()), waiter)


def element_of(scheduler: Scheduler, monitor: WorkerMonitor, task: Claim) -> str:
    """Name the element, or the first of those among which it is."""
    if task.read:
        assert scheduler.reader is not None
        number = scheduler.reader.num_read
        return f"element epoch {scheduler.reader.pass_number} index {number} ({scheduler.reader.describe(number)})"
    segment, row = scheduler.segments[task.segment], row_of(monitor.worker, task)
    if row is not None:
        return f"element {_name(segment, task, row)}"
    return f"one of {task.end - task.begin} elements from {_name(segment, task, task.begin)} on"


def call_of(scheduler: Scheduler, task: Claim | None, block: Block, offset: int) -> str:
    """Name the element of an async call."""
    if task is None:
        return "an element"
    row = offset if block.origins is None else int(block.origins[offset])
    return f"element {_name(scheduler.segments[task.segment], task, task.begin + row)}"


def _name(segment: Segment, task: Claim, row: int) -> str:
    return attempt(segment.name_of, task.chunk, row) or "an element that is not wanted any more"


def row_of(worker: WorkerContext, task: Claim) -> int | None:
    """Return the row of the chunk that a worker is with, of a batch its first."""
    row = worker.row()
    if row is None:
        return task.begin if task.end - task.begin == 1 and not worker.finishing else None
    return task.chunk.first_row(row) if worker.finishing else row


def pool_words(scheduler: Scheduler, pool: str) -> str:
    if pool == SHARED:
        return "shared workers"
    if pool == READER:
        return "readers of the generator"
    if pool == IN_PROGRAM.pool:
        return "thread that calls the functions of the program"
    segment, _, stage = pool.partition(".")
    return f"workers of stage {scheduler.segments[int(segment)].plan.stages[int(stage)].name!r}"


Clocks = tuple[int | None, int]
"""What a thread has used of a CPU, None when the system does not tell; and how long it has waited for one."""


def _used(begin: Clocks, end: Clocks) -> int | None:
    return None if begin[0] is None or end[0] is None else max(0, end[0] - begin[0])


class WorkerMonitor:
    """One worker thread, as the watch sees it. `begin` and `end` are the worker's own; everything else is the watching consumer's.

    Attributes:
        task: what it runs, or None.
        serial: how many tasks it has begun.
        age_ns: the counted time of the element that it runs.
        due_ns: the age at which that is reported next.
    """

    def __init__(self, pool: str, worker: WorkerContext) -> None:
        """Enlist the calling thread."""
        thread = threading.current_thread()
        self.pool, self.worker = pool, worker
        self.thread, self.ident, self._native_id = thread.name, threading.get_ident(), threading.get_native_id()
        # Asked for by the thread itself: for one that has ended the call may crash, while reading the clock of one gives an OSError.
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        self._clock_id = None if clock_of is None else clock_of(self.ident)
        self.task: Claim | None = None
        self.serial = self.age_ns = self.due_ns = self.watched_ns = 0
        self._first: Clocks = None, 0  # when the element was first seen
        self._before: Clocks = None, 0  # at the look before the last one
        self._now: Clocks = None, 0
        self._marker: Any = None

    def begin(self, task: Claim) -> None:
        """Note the task that the worker begins."""
        self.worker.began = None  # first: the begin of the task before must not be taken for that of this one
        self.serial += 1
        self.task = task

    def end(self) -> None:
        """Note that it has nothing to do, and let go of its elements."""
        self.task = None
        self.worker.rest()

    def read_clocks(self) -> int:
        """Read the clocks of the thread; return how long it has waited for a CPU since the last time."""
        self._before, self._now = self._now, (self._cpu_now(), self._queued_now())
        return self._now[1] - self._before[1]

    def observe(self, ran_ns: int, elapsed_ns: int, wanted_ns: int, num_read: int) -> bool:
        """Look at the worker, after `read_clocks`; return whether it has moved on since the last look."""
        task = self.task
        if task is None:
            self._marker = None
            return False
        marker = (self.serial, num_read if task.read else self.worker.place())
        before, self._marker = self._marker, marker
        if marker == before:
            self.grow(elapsed_ns, wanted_ns)
        else:
            self.restart()
            if (before is None or before[0] != self.serial) and (task.read or task.end - task.begin == 1):
                self._look_back(ran_ns)
        return bool(marker != before)

    def grow(self, elapsed_ns: int, wanted_ns: int) -> None:
        """Count the time since the last look against what the thread does."""
        self.age_ns += self.counted_ns(elapsed_ns, wanted_ns)
        self.watched_ns += elapsed_ns

    def restart(self) -> None:
        """Begin with what the thread does now: it has moved on."""
        self.age_ns = self.watched_ns = self.due_ns = 0
        self._first = self._now

    def overdue(self, timeout_ns: int) -> bool:
        """Tell whether the element has lasted too long; again when it has lasted twice as long."""
        if self.age_ns < max(self.due_ns, timeout_ns):
            return False
        self.due_ns = 2 * self.age_ns
        return True

    def counted_ns(self, elapsed_ns: int, wanted_ns: int) -> int:
        """Return how much of the time since the last look counts, by the clocks of the thread."""
        return counted_ns(elapsed_ns, _used(self._before, self._now), self._now[1] - self._before[1], wanted_ns)

    def _look_back(self, ran_ns: int) -> None:
        """Begin with the age of the task: it is one element. How busy the machine was meanwhile is not known; the worst is assumed."""
        began = self.worker.began
        if began is None:
            return
        began_ran_ns, began_cpu_ns = began
        self.watched_ns = max(0, ran_ns - began_ran_ns)
        self._first = began_cpu_ns, self._now[1]
        self.age_ns = counted_ns(self.watched_ns, _used(self._first, self._now), 0, self.watched_ns)

    @property
    def cpu_share(self) -> float | None:
        """CPU time over elapsed time since the element was first seen, without the time in which the thread was queued for a CPU."""
        used_ns = _used(self._first, self._now)
        if used_ns is None or self.watched_ns == 0:
            return None
        return used_ns / max(1, used_ns, self.watched_ns - (self._now[1] - self._first[1]))

    def _cpu_now(self) -> int | None:
        pid = self.worker.pid
        if pid == 0:  # it is another machine's
            return None
        clock_id = self._clock_id if pid is None else (~pid << 3) | 2  # as clock_getcpuclockid(3) makes it on Linux
        try:
            return None if clock_id is None else time.clock_gettime_ns(clock_id)
        except OSError:  # the thread has ended
            return None

    def _queued_now(self) -> int:
        """Return how long the thread was ready to run and got no CPU; 0 where the system does not tell."""
        pid = self.worker.pid
        times = thread_times(f"/proc/self/task/{self._native_id}/schedstat" if pid is None else f"/proc/{pid}/schedstat")
        return 0 if times is None else times[1]


_MOST_FACTS = 4  # calls that a report lists: a thousand may be in flight

Flying = tuple[AsyncCalls, "asyncio.Task[Any]", Call]


class LoopWatch:
    """One event loop. Made by its thread; everything else is the watching consumer's.

    At each look the loop is asked for a sign of life. A call that awaits something does not keep it from giving one, a call that blocks
    does.
    """

    def __init__(self, lanes: Sequence[AsyncCalls], ask: Callable[[Callable[[], None]], None]) -> None:
        """Enlist the calling thread.

        Args:
            lanes: all calls of the loop.
            ask: lets the loop call a function, from any thread.
        """
        self._lanes, self._ask = lanes, ask
        self.monitor = WorkerMonitor(SHARED, WorkerContext(0))
        self.monitor.read_clocks()
        self._has_answered = True
        self._due_ns = 0
        self._marker: Any = None

    @property
    def busy(self) -> bool:
        """Tell whether calls are in flight."""
        return bool(self._flying())

    @property
    def oldest_ns(self) -> int:
        """The counted time of the oldest call."""
        return max((call.age_ns for _, _, call in self._flying()), default=0)

    def observe(self, now_ns: int, elapsed_ns: int, wanted_ns: int) -> bool:
        """Look at all calls, after the clocks of `monitor` were read; return whether one has begun or ended since the last look.

        Args:
            now_ns: `time.perf_counter_ns`, as the begin of a call.
            elapsed_ns: the time run since the last look.
            wanted_ns: as `counted_ns` takes it.
        """
        if self._has_answered:
            self._has_answered = False
            self._ask(self._answer)
            self.monitor.restart()
        else:
            self.monitor.grow(elapsed_ns, wanted_ns)
        counted_ns = self.monitor.counted_ns(elapsed_ns, wanted_ns)
        for _, _, call in self._flying():
            span_ns = min(elapsed_ns, now_ns - call.begin_ns)
            call.watched_ns += span_ns
            call.age_ns += counted_ns * span_ns // max(1, elapsed_ns)
        before, self._marker = self._marker, [(lanes.num_started, len(lanes)) for lanes in self._lanes]
        return bool(before != self._marker)

    def restart(self) -> None:
        """Restart the clock of all calls: their time so far does not count."""
        self.monitor.restart()
        for _, _, call in self._flying():
            call.age_ns = call.watched_ns = 0

    def overdue(self, timeout_ns: int) -> bool:
        """Tell whether a call, or the silence of the loop, has lasted too long; again when it has lasted twice as long."""
        oldest_ns = self.oldest_ns
        if oldest_ns < timeout_ns:
            self._due_ns = 0
        calls, silent = oldest_ns >= max(self._due_ns, timeout_ns), self.monitor.overdue(timeout_ns)
        if calls:
            self._due_ns = 2 * oldest_ns
        return calls or silent

    def facts(self, scheduler: Scheduler, timeout_ns: int) -> tuple[list[WorkerFacts], int, int]:
        """Return what is known of the calls that have lasted longest, how many more there are, and how many of these too long as well.

        Args:
            scheduler: names the elements.
            timeout_ns: the limit.
        """
        flying = sorted(self._flying(), key=lambda one: one[2].begin_ns)
        blocking = None if 2 * self.monitor.age_ns < timeout_ns else self._blocking(scheduler, flying)
        facts = []
        if blocking is not None:
            facts.append(blocking[0])
            flying = [one for one in flying if one[2] is not blocking[1]]
        for lanes, task, call in flying[:_MOST_FACTS]:
            stuck = blocking is None and call.age_ns >= timeout_ns
            facts.append(self._fact(scheduler, lanes, call, call.watched_ns / 1e9, stack=awaits_of(task), stuck=stuck))
        rest = flying[_MOST_FACTS:]
        return facts, len(rest), sum(call.age_ns >= timeout_ns for _, _, call in rest)

    def _blocking(self, scheduler: Scheduler, flying: Sequence[Flying]) -> tuple[WorkerFacts, Call | None] | None:
        """Say who holds up the loop: a call of ours, or something else that runs there; None when it only got no CPU."""
        stack, frames = waits_of(self.monitor.ident)
        try:
            found = next(((lanes, call) for lanes, task, call in flying if getattr(task.get_coro(), "cr_frame", None) in frames), None)
        finally:
            frames.clear()
        if not stack:
            return None
        lasted_s = self.monitor.watched_ns / 1e9
        if found is not None:
            return self._fact(scheduler, *found, lasted_s, stack=stack, stuck=True, blocks=True), found[1]
        facts = WorkerFacts(
            index=0, thread=self.monitor.thread, stage="", element="none of the calls of the feed", lasted_s=lasted_s,
            cpu_share=self.monitor.cpu_share, stack=stack, stuck=True, blocks=True,
        )  # fmt: skip
        return facts, None

    def _fact(self, scheduler: Scheduler, lanes: AsyncCalls, call: Call, lasted_s: float, **more: Any) -> WorkerFacts:
        return WorkerFacts(
            index=call.call_slot,
            thread=self.monitor.thread,
            stage=lanes.name,
            element=call_of(scheduler, call.task, call.block, call.offset),
            lasted_s=lasted_s,
            cpu_share=self.monitor.cpu_share if more.get("blocks") else None,
            call=True,
            **more,
        )

    def _flying(self) -> list[Flying]:
        return [(lanes, task, call) for lanes in self._lanes for task, call in lanes.in_flight()]

    def _answer(self) -> None:
        self._has_answered = True


OnStall = Literal["raise", "warn", "skip"]

_DEBUGGERS = frozenset({"bdb.py", "pydevd.py"})
"""Files of Python's debugger, on which pdb, ipdb and pudb are built, and of that of PyCharm and Visual Studio Code."""

_GLANCE_S = 0.02
_GLANCE_SHARE = 0.25  # of the wait so far: the time of a slow element is known that well
_DEAR = 4  # times the usual cost of an element, as the engine knows it


@dataclass(slots=True)
class _Seen:
    """Where a worker stood at the last glance, since when, and the element if it is slow."""

    marker: Any
    since_ns: int
    slow: SlowElement | None = None

    def ended(self, at_ns: int) -> SlowElement | None:
        """Return the element with the time that it took if it ended then."""
        return None if self.slow is None else self.slow._replace(time_ns=at_ns, lasted_ns=at_ns - self.since_ns)


class Glances:
    """Looks at where the workers are while one wait lasts, and finds the elements that take them much longer than usual.

    A wait of less than 20 ms has no glance. A glance costs 1 us for each worker, and 20 us more for an element that is slow.
    """

    def __init__(self, monitors: Sequence[WorkerMonitor], scheduler: Scheduler) -> None:
        """Begin a wait."""
        self._monitors, self._scheduler = monitors, scheduler
        self._begin_ns = self._last_ns = time.perf_counter_ns()
        self._seen: dict[WorkerMonitor, _Seen] = {}

    def pause_s(self, most_s: float) -> float:
        """Return how long to wait until the next glance, `most_s` at most."""
        waited_s = (time.perf_counter_ns() - self._begin_ns) / 1e9
        return max(0.0, min(most_s, max(_GLANCE_S, _GLANCE_SHARE * waited_s)))

    def look(self) -> list[SlowElement]:
        """Look at each worker; return the slow elements that one has left since the last glance."""
        now_ns, left = time.perf_counter_ns(), []
        for monitor in list(self._monitors):
            task, seen = monitor.task, self._seen.get(monitor)
            marker = None if task is None or task.read else (monitor.serial, monitor.worker.place())
            if task is None or marker is None or seen is None or seen.marker != marker:
                left.append(None if seen is None else seen.ended((self._last_ns + now_ns) // 2))
                self._seen[monitor] = _Seen(marker, now_ns)
            elif seen.slow is None and now_ns - seen.since_ns >= 0.9e9 * _GLANCE_S:
                seen.slow = self._slow(monitor, task, now_ns, now_ns - seen.since_ns)
        self._last_ns = now_ns
        return [slow for slow in left if slow is not None]

    def end(self) -> list[SlowElement]:
        """Return the slow elements that workers stood at: what ended the wait is most likely the end of one."""
        now_ns = time.perf_counter_ns()
        return [slow for seen in self._seen.values() if (slow := seen.ended(now_ns)) is not None]

    def _slow(self, monitor: WorkerMonitor, task: Claim, now_ns: int, lasted_ns: int) -> SlowElement | None:
        row, segment = row_of(monitor.worker, task), self._scheduler.segments[task.segment]
        if row is None or lasted_ns < _DEAR * segment.blocks[task.stage].cost_ns:
            return None
        found = attempt(segment.where, task.chunk, row)  # it asks the user's source, and the chunk may have been cut meanwhile
        if found is None:
            return None
        where, key = found
        return SlowElement(now_ns, segment.plan.stages[task.stage].name or "batch", key, where, lasted_ns)


class Watch:
    """The clock of a feed's waits, and the posts of its workers. One consumer looks at a time.

    Attributes:
        clock: the time in which the process was seen running.
        slice_s: how long to wait between two looks; None without looks.
        on_stall: what the engine does about a stall.
        awaited: whether the training loop waits; it may not where another thread takes ahead of it.
        posts: all workers, in the order in which they started.
        loops: the event loops, at most one.
    """

    def __init__(self, timeout_s: float | None, on_stall: OnStall = "raise") -> None:
        """Watch for elements and waits of more than `timeout_s`; None never looks."""
        self.timeout_s = None if timeout_s is None or timeout_s == float("inf") else timeout_s
        self.on_stall, self.awaited = on_stall, True
        self.slice_s = slice_of(self.timeout_s)
        self.clock = RunClock(int(1e9 * (self.slice_s or 0.5)))
        self.monitors: list[WorkerMonitor] = []
        self.loops: list[LoopWatch] = []
        self._looked_ns = self._process_ns = 0
        self._delivered = -1
        self._num_begun = 0
        self.restart()

    @property
    def _timeout_ns(self) -> int:
        return int(1e9 * (self.timeout_s or 0))

    def enlist(self, pool: str, worker: WorkerContext) -> WorkerMonitor:
        """Make a post for the calling thread."""
        monitor = WorkerMonitor(pool, worker)
        self.monitors.append(monitor)
        return monitor

    def begin(self, delivered: int) -> None:
        """Begin a wait; `delivered` tells whether it is still the wait for the same hand-over."""
        if self.slice_s is None:
            return
        self.clock.tick(time.perf_counter_ns())
        if delivered != self._delivered:
            self._delivered = delivered
            self.restart()

    def restart(self) -> None:
        """Begin the wait again: what held it up has been reported."""
        self._waited_ns = self._idle_ns = self._still_ns = 0
        self._slow_due_ns = self._idle_due_ns = self._timeout_ns

    def look(self, num_read: int) -> Kind | None:
        """Look at everybody after a slice of waiting; return what is wrong, once, and again when it has lasted twice as long.

        Args:
            num_read: elements that the generator has given so far.
        """
        now_ns = time.perf_counter_ns()
        ran_ns = self.clock.tick(now_ns)
        process_ns = time.process_time_ns()
        elapsed_ns, used_ns = ran_ns - self._looked_ns, process_ns - self._process_ns
        self._looked_ns, self._process_ns = ran_ns, process_ns
        waited_ns = min(elapsed_ns, int(1e9 * (self.slice_s or 0)))  # what lies before this wait is none
        before, self._num_begun = self._num_begun, sum(monitor.serial for monitor in self.monitors)
        clocks = [monitor for monitor in self.monitors if monitor.task is not None] + [loop.monitor for loop in self.loops]
        wanted_ns = used_ns + sum(monitor.read_clocks() for monitor in clocks)
        moved = [monitor.observe(ran_ns, elapsed_ns, wanted_ns, num_read) for monitor in self.monitors]
        moved += [loop.observe(now_ns, elapsed_ns, wanted_ns) for loop in self.loops]
        moves = any(moved) or self._num_begun != before
        self._waited_ns += waited_ns
        if any(monitor.task is not None and monitor.worker.starts for monitor in self.monitors):
            self._slow_due_ns += waited_ns  # 64 processes on 2 CPUs start in 10 s
        self._still_ns = 0 if moves else self._still_ns + waited_ns
        works = any(monitor.task is not None for monitor in self.monitors) or any(loop.busy for loop in self.loops)
        self._idle_ns = 0 if moves or works else self._idle_ns + waited_ns
        kind = self._verdict()
        if kind is not None and (not self.awaited or self._is_debugged()):
            watched: list[WorkerMonitor | LoopWatch] = [*self.monitors, *self.loops]
            for one in watched:
                one.restart()
            self.restart()
            return None
        return kind

    def _is_debugged(self) -> bool:
        """Tell whether a thread of the program, or a worker process, stands in a debugger, such as at a `breakpoint()`."""
        frames = current_frames()
        files = {frame.f_code.co_filename for top in frames.values() for frame in frames_of(top)}
        frames.clear()
        elsewhere = [monitor.worker.calls() for monitor in self.monitors if monitor.task is not None]
        files |= {file for calls in elsewhere for file, _, _ in calls or ()}
        return not _DEBUGGERS.isdisjoint(map(os.path.basename, files))

    def _verdict(self) -> Kind | None:
        busy = [monitor for monitor in self.monitors if monitor.task is not None]
        late = [monitor.overdue(self._timeout_ns) for monitor in busy] + [loop.overdue(self._timeout_ns) for loop in self.loops]
        if any(late):
            return "stuck"
        if self._idle_ns >= self._idle_due_ns:
            self._idle_due_ns = 2 * self._idle_ns
            return "idle"
        # Who has not moved for half the time may be stuck: that is said when it is certain.
        ages_ns = [monitor.age_ns for monitor in busy] + [loop.oldest_ns for loop in self.loops]
        if self._waited_ns >= self._slow_due_ns and 2 * max([self._still_ns, *ages_ns]) < self._timeout_ns:
            self._slow_due_ns = 2 * self._waited_ns
            return "slow"
        return None

    def situation(self, kind: Kind, scheduler: Scheduler) -> Situation:
        """Gather the facts of a stall. Without the engine's mutex: a source may be asked to describe an element."""
        seen = [(monitor, monitor.task) for monitor in self.monitors]
        workers = Counter(pool_words(scheduler, monitor.pool) for monitor, _ in seen if monitor.pool != RETRY_WORKER)
        idle = Counter(pool_words(scheduler, monitor.pool) for monitor, task in seen if task is None and monitor.pool != RETRY_WORKER)
        stacks = stacks_of({monitor.ident for monitor, task in seen if task is not None})
        for monitor, task in seen:
            elsewhere = None if task is None else monitor.worker.calls()
            if elsewhere is not None:
                frames = [Frame(file, line, name, linecache.getline(file, line).strip()) for file, line, name in elsewhere]
                stacks[monitor.ident] = users_part(frames)
        calls, more, more_stuck = self.loops[0].facts(scheduler, self._timeout_ns) if self.loops else ([], 0, 0)
        stages = [segment.plan.stages for segment in scheduler.segments]
        busy = [
            WorkerFacts(
                index=monitor.worker.index,
                thread=monitor.thread,
                stage="read" if task.read else monitor.worker.step_name or stages[task.segment][task.stage].name or "batch",
                element=element_of(scheduler, monitor, task),
                lasted_s=monitor.watched_ns / 1e9,
                cpu_share=monitor.cpu_share,
                stack=stacks.get(monitor.ident, ()),
                stuck=self._is_stuck(monitor),
                reader=bool(task.read),
            )
            for monitor, task in seen
            if task is not None
        ]
        return Situation(
            kind=kind,
            waited_s=self._waited_ns / 1e9,
            timeout_s=self.timeout_s or 0.0,
            busy=(*busy, *calls),
            more_calls=more,
            more_stuck=more_stuck,
            idle=tuple(f"{count} of {workers[words]} {words}: nothing to do" for words, count in idle.items()),
            kept=scheduler.kept,
            oldest=_oldest(scheduler),
            limit=scheduler.limit,
            state=f"state: {len(scheduler.ready)} ready, segments {[segment.position() for segment in scheduler.segments]}",
        )

    def give_up(self, error: BaseException) -> bool:
        """Let the elements that are stuck in worker processes fail with `error`; return whether there is one."""
        num_given_up = sum(monitor.worker.give_up(error) for monitor in self.monitors if self._is_stuck(monitor))
        if num_given_up:
            self.restart()
        return num_given_up > 0

    def _is_stuck(self, monitor: WorkerMonitor) -> bool:
        return monitor.task is not None and monitor.age_ns >= self._timeout_ns


def _oldest(scheduler: Scheduler) -> str:
    kept = scheduler.handed_over.kept(scheduler.handed_over.step)
    return f", {kept.num_bytes / 1e6:.1f} MB beside the last one, the oldest {kept.oldest}" if kept.num else ""
