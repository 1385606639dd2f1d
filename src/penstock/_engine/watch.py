"""Looks at the workers of an engine while its consumer waits: who runs what since when, and whether somebody is stuck.

There is no thread for it. The consumer waits in slices and looks after each; what it costs a worker is four attributes per block.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from collections import Counter
from typing import Any, Literal

from penstock._engine.flow import Flow
from penstock._engine.pools import READER, SHARED
from penstock._engine.segment import Segment
from penstock._engine.stall import Frame, Kind, RunClock, Situation, WorkerFacts, counted_ns, slice_of
from penstock._engine.unit import Task
from penstock._ops.worker import WorkerContext

__all__ = ["OnStall", "Post", "Watch"]

OnStall = Literal["raise", "warn"]

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Post:
    """One worker thread, as the watch sees it. `begin` and `end` are the worker's own; everything else is the watching consumer's.

    Attributes:
        task: what it runs, or None.
        serial: how many tasks it has begun.
        age_ns: the counted time of the element that it runs.
        due_ns: the age at which that is reported next.
    """

    __slots__ = (
        "_clock_id", "_cpu_ns", "_cpu_used_ns", "_first_cpu_ns", "_first_queued_ns", "_marker", "_native_id", "_queued_for_ns",
        "_queued_ns", "age_ns", "due_ns", "ident", "pool", "serial", "task", "thread", "watched_ns", "worker",
    )  # fmt: skip

    def __init__(self, pool: str, worker: WorkerContext) -> None:
        """Enlist the calling thread."""
        thread = threading.current_thread()
        self.pool, self.worker = pool, worker
        self.thread, self.ident, self._native_id = thread.name, threading.get_ident(), threading.get_native_id()
        # Asked for by the thread itself: for one that has ended the call may crash, while reading the clock of one gives an OSError.
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        self._clock_id = None if clock_of is None else clock_of(self.ident)
        self.task: Task | None = None
        self.serial = self.age_ns = self.due_ns = self.watched_ns = 0
        self._cpu_ns: int | None = None
        self._first_cpu_ns: int | None = None
        self._cpu_used_ns: int | None = None
        self._queued_ns = self._queued_for_ns = self._first_queued_ns = 0
        self._marker: Any = None

    def begin(self, task: Task) -> None:
        """Note the task that the worker begins."""
        self.worker.began = None  # first: the begin of the task before must not be taken for that of this one
        self.serial += 1
        self.task = task

    def end(self) -> None:
        """Note that it has nothing to do, and let go of its elements."""
        self.task = None
        self.worker.rest()

    def sample(self) -> int:
        """Read the clocks of a busy worker's thread; return how long it has waited for a CPU since the last look."""
        if self.task is None:
            return 0
        before, self._cpu_ns = self._cpu_ns, self._cpu_now()
        self._cpu_used_ns = None if before is None or self._cpu_ns is None else self._cpu_ns - before
        queued_ns = self._queued_now()
        self._queued_for_ns, self._queued_ns = queued_ns - self._queued_ns, queued_ns
        return self._queued_for_ns

    def observe(self, ran_ns: int, elapsed_ns: int, wanted_ns: int, num_read: int) -> bool:
        """Look at the worker, after `sample`; return whether it has moved on since the last look."""
        task = self.task
        if task is None:
            self._marker = None
            return False
        marker = (self.serial, num_read if task.read else self.worker.place())
        before, self._marker = self._marker, marker
        if marker == before:
            self.age_ns += counted_ns(elapsed_ns, self._cpu_used_ns, self._queued_for_ns, wanted_ns)
            self.watched_ns += elapsed_ns
        else:
            self.age_ns = self.watched_ns = self.due_ns = 0
            self._first_cpu_ns, self._first_queued_ns = self._cpu_ns, self._queued_ns
            if (before is None or before[0] != self.serial) and (task.read or task.end - task.begin == 1):
                self._look_back(ran_ns)
        return bool(marker != before)

    def _look_back(self, ran_ns: int) -> None:
        """Begin with the age of the task: it is one element. How busy the machine was meanwhile is not known; the worst is assumed."""
        began = self.worker.began
        if began is None:
            return
        began_ran_ns, began_cpu_ns = began
        self.watched_ns = max(0, ran_ns - began_ran_ns)
        self._first_cpu_ns = began_cpu_ns
        cpu = None if self._cpu_ns is None else max(0, self._cpu_ns - began_cpu_ns)
        self.age_ns = counted_ns(self.watched_ns, cpu, 0, self.watched_ns)

    @property
    def cpu_share(self) -> float | None:
        """CPU time over elapsed time since the element was first seen, without the time in which the thread was queued for a CPU."""
        if self._cpu_ns is None or self._first_cpu_ns is None or self.watched_ns == 0:
            return None
        used_ns = self._cpu_ns - self._first_cpu_ns
        return used_ns / max(1, used_ns, self.watched_ns - (self._queued_ns - self._first_queued_ns))

    def _cpu_now(self) -> int | None:
        try:
            return None if self._clock_id is None else time.clock_gettime_ns(self._clock_id)
        except OSError:  # the thread has ended
            return None

    def _queued_now(self) -> int:
        """Return how long the thread was ready to run and got no CPU; 0 where the system does not tell."""
        try:
            with open(f"/proc/self/task/{self._native_id}/schedstat", "rb") as figures:
                return int(figures.read().split()[1])
        except (OSError, IndexError, ValueError):
            return 0


class Watch:
    """The clock of a feed's waits, and the posts of its workers. One consumer looks at a time.

    Attributes:
        clock: the time in which the process was seen running.
        slice_s: how long to wait between two looks; None when nobody looks.
        on_stall: what the engine does about a stall.
        posts: all workers, in the order in which they started.
    """

    def __init__(self, timeout_s: float | None, on_stall: OnStall = "raise") -> None:
        """Watch for elements and waits of more than `timeout_s`; None never looks."""
        self.timeout_s = None if timeout_s is None or timeout_s == float("inf") else timeout_s
        self.on_stall = on_stall
        self.slice_s = slice_of(self.timeout_s)
        self.clock = RunClock(int(1e9 * (self.slice_s or 0.5)))
        self.posts: list[Post] = []
        self._timeout_ns = int(1e9 * (self.timeout_s or 0))
        self._looked_ns = self._process_ns = 0
        self._delivered = -1
        self._num_begun = 0
        self._restart()

    def enlist(self, pool: str, worker: WorkerContext) -> Post:
        """Make a post for the calling thread."""
        post = Post(pool, worker)
        self.posts.append(post)
        return post

    def begin(self, delivered: int) -> None:
        """Begin a wait; `delivered` tells whether it is still the wait for the same hand-over."""
        if self.slice_s is None:
            return
        self.clock.tick(time.perf_counter_ns())
        if delivered != self._delivered:
            self._delivered = delivered
            self._restart()

    def _restart(self) -> None:
        self._waited_ns = self._idle_ns = self._still_ns = 0
        self._slow_due_ns = self._idle_due_ns = self._timeout_ns

    def look(self, num_read: int) -> Kind | None:
        """Look at everybody after a slice of waiting; return what is wrong, once, and again when it has lasted twice as long.

        Args:
            num_read: elements that the generator has given so far.
        """
        ran_ns = self.clock.tick(time.perf_counter_ns())
        process_ns = time.process_time_ns()
        elapsed_ns, used_ns = ran_ns - self._looked_ns, process_ns - self._process_ns
        self._looked_ns, self._process_ns = ran_ns, process_ns
        waited_ns = min(elapsed_ns, int(1e9 * (self.slice_s or 0)))  # what lies before this wait is none
        before, self._num_begun = self._num_begun, sum(post.serial for post in self.posts)
        wanted_ns = used_ns + sum(post.sample() for post in self.posts)
        moved = [post.observe(ran_ns, elapsed_ns, wanted_ns, num_read) for post in self.posts]
        moves = any(moved) or self._num_begun != before
        self._waited_ns += waited_ns
        self._still_ns = 0 if moves else self._still_ns + waited_ns
        self._idle_ns = 0 if moves or any(post.task is not None for post in self.posts) else self._idle_ns + waited_ns
        return self._verdict()

    def _verdict(self) -> Kind | None:
        overdue = [post for post in self.posts if post.task is not None and post.age_ns >= max(post.due_ns, self._timeout_ns)]
        if overdue:
            for post in overdue:
                post.due_ns = 2 * post.age_ns
            return "stuck"
        if self._idle_ns >= self._idle_due_ns:
            self._idle_due_ns = 2 * self._idle_ns
            return "idle"
        # Who has not moved for half the time may be stuck: that is said when it is certain.
        if self._waited_ns >= self._slow_due_ns and 2 * self._still_ns < self._timeout_ns:
            self._slow_due_ns = 2 * self._waited_ns
            return "slow"
        return None

    def situation(self, kind: Kind, flow: Flow) -> Situation:
        """Gather the facts of a stall. Without the engine's mutex: a source may be asked to describe an element."""
        seen = [(post, post.task) for post in self.posts]
        workers = Counter(_pool_words(flow, post.pool) for post, _ in seen)
        idle = Counter(_pool_words(flow, post.pool) for post, task in seen if task is None)
        stacks = _stacks({post.ident for post, task in seen if task is not None})
        return Situation(
            kind=kind,
            waited_s=self._waited_ns / 1e9,
            timeout_s=self.timeout_s or 0.0,
            busy=tuple(self._facts(flow, post, task, stacks.get(post.ident, ())) for post, task in seen if task is not None),
            idle=tuple(f"{count} of {workers[words]} {words}: nothing to do" for words, count in idle.items()),
            kept=flow.kept,
            limit=flow.limit,
            state=f"state: {len(flow.ready)} ready, segments {[segment.position() for segment in flow.segments]}",
        )

    def _facts(self, flow: Flow, post: Post, task: Task, stack: tuple[Frame, ...]) -> WorkerFacts:
        return WorkerFacts(
            index=post.worker.index,
            thread=post.thread,
            stage=_stage(flow, post, task),
            element=_element(flow, post, task),
            lasted_s=post.watched_ns / 1e9,
            cpu_share=post.cpu_share,
            stack=stack,
            stuck=self._is_stuck(post),
            reader=bool(task.read),
        )

    def _is_stuck(self, post: Post) -> bool:
        return post.task is not None and post.age_ns >= self._timeout_ns


def _stacks(threads: set[int]) -> dict[int, tuple[Frame, ...]]:
    frames = sys._current_frames()
    stacks = {thread: stack_of(frame) for thread, frame in frames.items() if thread in threads}
    frames.clear()  # this function's own frame is among them: a cycle that would keep the feed alive
    return stacks


def stack_of(frame: Any) -> tuple[Frame, ...]:
    """Return the calls of a stack, innermost last, without those that lead from the thread's start to the user's function."""
    found: list[Frame] = []
    while frame is not None:
        code = frame.f_code
        line = frame.f_lineno or code.co_firstlineno
        text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        found.append(Frame(code.co_filename, line, code.co_qualname, text))
        frame = frame.f_back
    found.reverse()
    ours = [call.file.startswith(_OURS) for call in found]
    start = ours.index(True) if True in ours else 0
    while start < len(found) and ours[start]:
        start += 1
    return tuple(found[start:] or found[-2:])


def _stage(flow: Flow, post: Post, task: Task) -> str:
    block, operator = post.worker.block, post.worker.operator
    if task.read or (block is not None and block.reading):
        return "read"
    return getattr(operator, "name", "") or flow.segments[task.segment].plan.stages[task.stage].name or "batch"


def _element(flow: Flow, post: Post, task: Task) -> str:
    """Name the element, or the first of those among which it is."""
    if task.read:
        assert flow.reader is not None
        number = flow.reader.num_read
        return f"element epoch {flow.reader.pass_number} index {number} ({flow.reader.describe(number)})"
    segment, row = flow.segments[task.segment], _row(post.worker, task)
    if row is not None:
        return f"element {_name(segment, task, row)}"
    return f"one of {task.end - task.begin} elements from {_name(segment, task, task.begin)} on"


def _name(segment: Segment, task: Task, row: int) -> str:
    unit = task.unit
    if unit is None or (unit.given is None and not unit.levels):  # it failed meanwhile, and was finished without this worker
        return "an element that is not wanted any more"
    words, key = segment.where(unit, row)
    return f"epoch {key[0]} index {key[1]}" + (f" ({words})" if words else "")


def _row(worker: WorkerContext, task: Task) -> int | None:
    """Return the row of the unit that a worker is with; None inside a branch or a whole column, where rows are others or all at once."""
    block, origins, unit = worker.block, worker.origins, task.unit
    begun = None if block is None else block.begun
    if block is None or begun is None or unit is None:
        return task.begin if task.end - task.begin == 1 else None
    offset = begun if origins is None else int(origins[begun]) if begun < len(origins) else None
    if offset is None:
        return None
    if worker.finishing:
        return sum(unit.sizes[:offset]) if unit.sizes is not None else offset
    return task.begin + offset if origins is not None or len(block) == task.end - task.begin else None


def _pool_words(flow: Flow, pool: str) -> str:
    if pool == SHARED:
        return "shared workers"
    if pool == READER:
        return "readers of the generator"
    segment, _, stage = pool.partition(".")
    return f"workers of stage {flow.segments[int(segment)].plan.stages[int(stage)].name!r}"
