"""Looks at the workers of an engine while its consumer waits: who runs what since when, and whether somebody is stuck.

There is no thread for it. The consumer waits in slices and looks after each; what it costs a worker is four attributes per block, and an
async call nothing but to be listed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock._contracts.event import SlowElement
from penstock._engine.calls import LoopWatch
from penstock._engine.flow import Flow
from penstock._engine.lanes import Lanes
from penstock._engine.pools import MENDER
from penstock._engine.posts import Post
from penstock._engine.stacks import stacks_of
from penstock._engine.stall import Frame, Kind, RunClock, Situation, WorkerFacts, slice_of
from penstock._engine.unit import Task
from penstock._engine.whereabouts import element_of, place_of, pool_words, row_of, stage_of
from penstock._ops.worker import WorkerContext

__all__ = ["Glances", "OnStall", "Watch"]

OnStall = Literal["raise", "warn"]

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

    __slots__ = ("_begin_ns", "_flow", "_last_ns", "_posts", "_seen")

    def __init__(self, posts: Sequence[Post], flow: Flow) -> None:
        """Begin a wait."""
        self._posts, self._flow = posts, flow
        self._begin_ns = self._last_ns = time.perf_counter_ns()
        self._seen: dict[Post, _Seen] = {}

    def pause_s(self, most_s: float) -> float:
        """Return how long to wait until the next glance, `most_s` at most."""
        waited_s = (time.perf_counter_ns() - self._begin_ns) / 1e9
        return max(0.0, min(most_s, max(_GLANCE_S, _GLANCE_SHARE * waited_s)))

    def look(self) -> list[SlowElement]:
        """Look at each worker; return the slow elements that one has left since the last glance."""
        now_ns, left = time.perf_counter_ns(), []
        for post in list(self._posts):
            task, seen = post.task, self._seen.get(post)
            marker = None if task is None or task.read else (post.serial, post.worker.place())
            if task is None or marker is None or seen is None or seen.marker != marker:
                left.append(None if seen is None else seen.ended((self._last_ns + now_ns) // 2))
                self._seen[post] = _Seen(marker, now_ns)
            elif seen.slow is None and now_ns - seen.since_ns >= 0.9e9 * _GLANCE_S:
                seen.slow = self._slow(post, task, now_ns, now_ns - seen.since_ns)
        self._last_ns = now_ns
        return [slow for slow in left if slow is not None]

    def end(self) -> list[SlowElement]:
        """Return the slow elements that workers stood at: what ended the wait is most likely the end of one."""
        now_ns = time.perf_counter_ns()
        return [slow for seen in self._seen.values() if (slow := seen.ended(now_ns)) is not None]

    def _slow(self, post: Post, task: Task, now_ns: int, lasted_ns: int) -> SlowElement | None:
        row, segment = row_of(post.worker, task), self._flow.segments[task.segment]
        if row is None or lasted_ns < _DEAR * segment.blocks[task.stage].found[0]:
            return None
        found = place_of(segment, task, row)
        if found is None:
            return None
        where, key = found
        return SlowElement(now_ns, segment.plan.stages[task.stage].name or "batch", key, where, lasted_ns)


class Watch:
    """The clock of a feed's waits, and the posts of its workers. One consumer looks at a time.

    Attributes:
        clock: the time in which the process was seen running.
        slice_s: how long to wait between two looks; None when nobody looks.
        on_stall: what the engine does about a stall.
        posts: all workers, in the order in which they started.
        loops: the event loops, at most one.
    """

    def __init__(self, timeout_s: float | None, on_stall: OnStall = "raise") -> None:
        """Watch for elements and waits of more than `timeout_s`; None never looks."""
        self.timeout_s = None if timeout_s is None or timeout_s == float("inf") else timeout_s
        self.on_stall = on_stall
        self.slice_s = slice_of(self.timeout_s)
        self.clock = RunClock(int(1e9 * (self.slice_s or 0.5)))
        self.posts: list[Post] = []
        self.loops: list[LoopWatch] = []
        self._timeout_ns = int(1e9 * (self.timeout_s or 0))
        self._looked_ns = self._process_ns = 0
        self._delivered = -1
        self._num_begun = 0
        self.restart()

    def enlist(self, pool: str, worker: WorkerContext) -> Post:
        """Make a post for the calling thread."""
        post = Post(pool, worker)
        self.posts.append(post)
        return post

    def enlist_loop(self, lanes: Sequence[Lanes], ask: Callable[[Callable[[], None]], None]) -> None:
        """Look at the event loop of the calling thread too, as `LoopWatch` does."""
        self.loops.append(LoopWatch(lanes, ask))

    def begin(self, delivered: int) -> None:
        """Begin a wait; `delivered` tells whether it is still the wait for the same hand-over."""
        if self.slice_s is None:
            return
        self.clock.tick(time.perf_counter_ns())
        if delivered != self._delivered:
            self._delivered = delivered
            self.restart()

    def restart(self) -> None:
        """Begin the wait anew: what held it up was seen to."""
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
        before, self._num_begun = self._num_begun, sum(post.serial for post in self.posts)
        wanted_ns = used_ns + sum(post.sample() for post in self.posts) + sum(loop.queued_ns for loop in self.loops)
        moved = [post.observe(ran_ns, elapsed_ns, wanted_ns, num_read) for post in self.posts]
        moved += [loop.observe(now_ns, elapsed_ns, wanted_ns) for loop in self.loops]
        moves = any(moved) or self._num_begun != before
        self._waited_ns += waited_ns
        self._still_ns = 0 if moves else self._still_ns + waited_ns
        works = any(post.task is not None for post in self.posts) or any(loop.busy for loop in self.loops)
        self._idle_ns = 0 if moves or works else self._idle_ns + waited_ns
        return self._verdict()

    def _verdict(self) -> Kind | None:
        overdue = [post for post in self.posts if post.task is not None and post.age_ns >= max(post.due_ns, self._timeout_ns)]
        late = [loop for loop in self.loops if loop.overdue(self._timeout_ns)]
        if overdue or late:
            for post in overdue:
                post.due_ns = 2 * post.age_ns
            return "stuck"
        if self._idle_ns >= self._idle_due_ns:
            self._idle_due_ns = 2 * self._idle_ns
            return "idle"
        # Who has not moved for half the time may be stuck: that is said when it is certain.
        ages_ns = [post.age_ns for post in self.posts if post.task is not None] + [loop.oldest_ns for loop in self.loops]
        if self._waited_ns >= self._slow_due_ns and 2 * max([self._still_ns, *ages_ns]) < self._timeout_ns:
            self._slow_due_ns = 2 * self._waited_ns
            return "slow"
        return None

    def situation(self, kind: Kind, flow: Flow) -> Situation:
        """Gather the facts of a stall. Without the engine's mutex: a source may be asked to describe an element."""
        seen = [(post, post.task) for post in self.posts]
        workers = Counter(pool_words(flow, post.pool) for post, _ in seen if post.pool != MENDER)
        idle = Counter(pool_words(flow, post.pool) for post, task in seen if task is None and post.pool != MENDER)
        stacks = stacks_of({post.ident for post, task in seen if task is not None})
        calls, more, more_stuck = self._calls(flow)
        return Situation(
            kind=kind,
            waited_s=self._waited_ns / 1e9,
            timeout_s=self.timeout_s or 0.0,
            busy=(*(self._facts(flow, post, task, stacks.get(post.ident, ())) for post, task in seen if task is not None), *calls),
            more_calls=more,
            more_stuck=more_stuck,
            idle=tuple(f"{count} of {workers[words]} {words}: nothing to do" for words, count in idle.items()),
            kept=flow.kept,
            oldest=_oldest(flow),
            limit=flow.limit,
            state=f"state: {len(flow.ready)} ready, segments {[segment.position() for segment in flow.segments]}",
        )

    def _facts(self, flow: Flow, post: Post, task: Task, stack: tuple[Frame, ...]) -> WorkerFacts:
        return WorkerFacts(
            index=post.worker.index,
            thread=post.thread,
            stage=stage_of(flow, post, task),
            element=element_of(flow, post, task),
            lasted_s=post.watched_ns / 1e9,
            cpu_share=post.cpu_share,
            stack=stack,
            stuck=self._is_stuck(post),
            reader=bool(task.read),
        )

    def _calls(self, flow: Flow) -> tuple[list[WorkerFacts], int, int]:
        found: list[WorkerFacts] = []
        more = late = 0
        for loop in self.loops:
            facts, others, too_late = loop.facts(flow, self._timeout_ns)
            found, more, late = found + facts, more + others, late + too_late
        return found, more, late

    def _is_stuck(self, post: Post) -> bool:
        return post.task is not None and post.age_ns >= self._timeout_ns


def _oldest(flow: Flow) -> str:
    kept = flow.handed_over.kept(flow.handed_over.step)
    return f", {kept.num_bytes / 1e6:.1f} MB beside the last one, the oldest {kept.oldest}" if kept.num else ""
