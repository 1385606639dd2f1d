"""The calls in flight on an event loop, as the watch sees them: how long each has been awaited, and whether the loop still goes round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock._engine.flow import Flow
from penstock._engine.lanes import Call, Lanes
from penstock._engine.pools import SHARED
from penstock._engine.posts import Post
from penstock._engine.stacks import awaits_of, waits_of
from penstock._engine.stall import WorkerFacts
from penstock._engine.whereabouts import call_of
from penstock._ops.worker import WorkerContext

if TYPE_CHECKING:
    import asyncio

__all__ = ["LoopWatch"]

_MOST_FACTS = 4  # calls that a report lists: a thousand may be in flight

Flying = tuple[Lanes, "asyncio.Task[Any]", Call]


class LoopWatch:
    """One event loop. Made by its thread; everything else is the watching consumer's.

    At each look the loop is asked for a sign of life. A call that awaits something does not keep it from giving one, a call that blocks
    does.
    """

    __slots__ = ("_answers", "_ask", "_asked", "_due_ns", "_lanes", "_marker", "_post", "_silence_due_ns")

    def __init__(self, lanes: Sequence[Lanes], ask: Callable[[Callable[[], None]], None]) -> None:
        """Enlist the calling thread.

        Args:
            lanes: all calls of the loop.
            ask: lets the loop call a function, from any thread.
        """
        self._lanes, self._ask = lanes, ask
        self._post = Post(SHARED, WorkerContext(0))
        self._post.read_clocks()
        self._asked = self._answers = 0
        self._due_ns = self._silence_due_ns = 0
        self._marker: Any = None

    @property
    def busy(self) -> bool:
        """Tell whether calls are in flight that somebody waits for."""
        return bool(self._flying())

    @property
    def oldest_ns(self) -> int:
        """The counted time of the oldest call."""
        return max((call.age_ns for _, _, call in self._flying()), default=0)

    @property
    def queued_ns(self) -> int:
        """Read the clocks of the loop's thread; return how long it has waited for a CPU since the last look."""
        return self._post.read_clocks()

    def observe(self, now_ns: int, elapsed_ns: int, wanted_ns: int) -> bool:
        """Look at all calls, after `queued_ns`; return whether one has begun or ended since the last look.

        Args:
            now_ns: `time.perf_counter_ns`, as the begin of a call.
            elapsed_ns: the time run since the last look.
            wanted_ns: as `counted_ns` takes it.
        """
        if self._answers == self._asked:
            self._asked += 1
            self._ask(self._answer)
            self._post.restart()
        else:
            self._post.grow(elapsed_ns, wanted_ns)
        counted_ns = self._post.counted_ns(elapsed_ns, wanted_ns)
        for _, _, call in self._flying():
            span_ns = min(elapsed_ns, now_ns - call.begin_ns)
            call.watched_ns += span_ns
            call.age_ns += counted_ns * span_ns // max(1, elapsed_ns)
        before, self._marker = self._marker, [(lanes.num_started, len(lanes)) for lanes in self._lanes]
        return bool(before != self._marker)

    def overdue(self, timeout_ns: int) -> bool:
        """Tell whether a call, or the silence of the loop, has lasted too long; again when it has lasted twice as long."""
        oldest_ns = self.oldest_ns
        if oldest_ns < timeout_ns:
            self._due_ns = 0
        if self._post.age_ns < timeout_ns:
            self._silence_due_ns = 0
        calls, silent = oldest_ns >= max(self._due_ns, timeout_ns), self._post.age_ns >= max(self._silence_due_ns, timeout_ns)
        if calls:
            self._due_ns = 2 * oldest_ns
        if silent:
            self._silence_due_ns = 2 * self._post.age_ns
        return calls or silent

    def facts(self, flow: Flow, timeout_ns: int) -> tuple[list[WorkerFacts], int, int]:
        """Return what is known of the calls that have lasted longest, how many more there are, and how many of these too long as well.

        Args:
            flow: names the elements.
            timeout_ns: the limit.
        """
        flying = sorted(self._flying(), key=lambda one: one[2].begin_ns)
        blocking = None if 2 * self._post.age_ns < timeout_ns else self._blocking(flow, flying)
        facts = []
        if blocking is not None:
            facts.append(blocking[0])
            flying = [one for one in flying if one[2] is not blocking[1]]
        for lanes, task, call in flying[:_MOST_FACTS]:
            stuck = blocking is None and call.age_ns >= timeout_ns
            facts.append(self._flown(flow, lanes, task, call, stuck=stuck))
        rest = flying[_MOST_FACTS:]
        return facts, len(rest), sum(call.age_ns >= timeout_ns for _, _, call in rest)

    def _blocking(self, flow: Flow, flying: Sequence[Flying]) -> tuple[WorkerFacts, Call | None] | None:
        """Say who holds up the loop: a call of ours, or something else that runs there; None when it only got no CPU."""
        stack, frames = waits_of(self._post.ident)
        try:
            found = next(((lanes, call) for lanes, task, call in flying if any(frame is _frame_of(task) for frame in frames)), None)
        finally:
            frames.clear()
        if not stack:
            return None
        lasted_s = self._post.watched_ns / 1e9
        if found is not None:
            return self._fact(flow, *found, lasted_s, stack=stack, stuck=True, blocks=True), found[1]
        facts = WorkerFacts(
            index=0, thread=self._post.thread, stage="", element="none of the calls of the feed", lasted_s=lasted_s,
            cpu_share=self._post.cpu_share, stack=stack, stuck=True, blocks=True,
        )  # fmt: skip
        return facts, None

    def _flown(self, flow: Flow, lanes: Lanes, task: asyncio.Task[Any], call: Call, *, stuck: bool) -> WorkerFacts:
        return self._fact(flow, lanes, call, call.watched_ns / 1e9, stack=awaits_of(task), stuck=stuck)

    def _fact(self, flow: Flow, lanes: Lanes, call: Call, lasted_s: float, **more: Any) -> WorkerFacts:
        return WorkerFacts(
            index=call.lane,
            thread=self._post.thread,
            stage=lanes.name,
            element=call_of(flow, call.task, call.block, call.offset),
            lasted_s=lasted_s,
            cpu_share=self._post.cpu_share if more.get("blocks") else None,
            call=True,
            **more,
        )

    def _flying(self) -> list[Flying]:
        return [(lanes, task, call) for lanes in self._lanes for task, call in lanes.in_flight()]

    def _answer(self) -> None:
        self._answers = self._asked


def _frame_of(task: asyncio.Task[Any]) -> Any:
    return getattr(task.get_coro(), "cr_frame", None)
