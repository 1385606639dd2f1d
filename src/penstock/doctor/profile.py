"""The profile of a run: a probe for each operator of each feed, and what its tasks and its consumer did."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from dataclasses import replace
from typing import Any

from penstock._contracts.event import BatchDelivered, BlockDone, Event
from penstock._contracts.options import Options
from penstock._engine.program import Program
from penstock._plan.describe import lines
from penstock._plan.length import walk
from penstock._plan.node import Node
from penstock.doctor.gil import GilSampler
from penstock.doctor.measured import measured_program
from penstock.doctor.probes import Probe, Recorder
from penstock.observe.stats import Stats, profilers

__all__ = ["FeedGroup", "Profiler", "where_of"]

_HERE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
"""The folder of Penstock."""


class FeedGroup:
    """The feeds of one plan: a script may make one for each epoch.

    Attributes:
        number: from 1, in the order in which they were made.
        plan: its lines, from the source up.
        probes: of its operators, from the source up.
        overhead: what its tasks took beside them.
        stats: of each feed.
    """

    def __init__(self, recorder: Recorder, number: int, root: Node) -> None:
        self.number = number
        self.plan = lines(root)
        self.overhead = Probe(recorder, number, "penstock", "penstock itself")
        self.stats: list[Stats] = []
        self._recorder = recorder
        self._probes: dict[tuple[int, str, str], Probe] = {}
        self._functions = {getattr(node, "name", ""): getattr(node, "fn", None) for node in reversed(walk(root))}

    @property
    def probes(self) -> list[Probe]:
        """All probes, from the source up; some may never have been called."""
        return [*self._probes.values(), self.overhead]

    def measured(self, program: Program) -> Program:
        """Return a program of this plan with the probes in it; those of an earlier feed, where it is the same."""
        numbers = iter(range(1 << 30))

        def make(kind: str, name: str, fn: Any = None, *, in_task: bool = True) -> Probe:
            key = next(numbers), kind, name
            if key not in self._probes:
                where = where_of(fn) or where_of(self._functions.get(name))
                self._probes[key] = Probe(self._recorder, self.number, kind, name, where, in_task=in_task)
            return self._probes[key]

        return measured_program(program, make)


class _FeedProfile:
    """What one feed asks: its options, its program, and where to announce."""

    def __init__(self, profiler: Profiler, group: FeedGroup) -> None:
        self._profiler, self._group = profiler, group
        self._awaited: set[str] = set()

    def options(self, options: Options) -> Options:
        """Return the options to run with: memory is measured in one thread."""
        return replace(options, num_workers=0, executor="inline") if self._profiler.recorder.memory else options

    def program(self, program: Program) -> Program:
        """Return the program to run."""
        self._awaited = {stage.name for segment in program.segments for stage in segment.stages if stage.awaited is not None}
        if not self._profiler.recorder.memory:  # tracing holds the GIL far longer than the operators do
            self._profiler.sampler.start()
        return self._group.measured(program)

    def __call__(self, event: Event) -> None:
        """Count what a task took beside its operators, in the thread that ran it; and what was delivered."""
        if isinstance(event, BlockDone):
            if event.stage in self._awaited:
                return  # one call, not a task
            record = self._profiler.recorder.here()
            tally = record.tally(self._group.overhead)
            wall_ns = max(0, event.end_ns - event.start_ns - record.task_ns)
            tally.num_calls += 1
            tally.wall_ns += wall_ns
            tally.running_ns += wall_ns
            tally.cpu_ns += min(wall_ns, max(0, event.cpu_ns - record.task_cpu_ns))
            record.task_ns = record.task_cpu_ns = 0
        elif isinstance(event, BatchDelivered):
            self._profiler.count(event.num_delivered)


class Profiler:
    """Profiles the feeds that are made between `start` and `stop`.

    Args:
        memory: whether to measure memory; tracemalloc must be tracing. All feeds then run in the threads of their consumers.
        least_steps: interrupt the main thread, as Ctrl-C does, when so many batches were used up and a feed is asked for more; None never.
    """

    def __init__(self, *, memory: bool = False, least_steps: int | None = None) -> None:
        self.recorder = Recorder(memory=memory)
        self.sampler = GilSampler(self.recorder)
        self.interrupted = False
        self._groups: dict[tuple[str, ...], FeedGroup] = {}
        self._least_steps = least_steps
        self._num_delivered = 0
        self._begin_ns, self._begin_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        self.elapsed_s = self.cpu_s = 0.0

    def start(self) -> None:
        """Profile the feeds that are made from now on."""
        self._begin_ns, self._begin_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        profilers().append(self._begin)

    def stop(self) -> None:
        """Profile no more new feeds. Those that run go on."""
        profilers().remove(self._begin)
        self.sampler.stop()
        self.elapsed_s = (time.perf_counter_ns() - self._begin_ns) / 1e9
        self.cpu_s = (time.process_time_ns() - self._begin_cpu_ns) / 1e9

    @property
    def groups(self) -> list[FeedGroup]:
        """The feeds that ran, by plan."""
        return [group for group in self._groups.values() if len(group.probes) > 1]

    def count(self, num_delivered: int) -> None:
        """Count what a feed delivers, several batches at once perhaps; interrupt the main thread when those before it were enough."""
        enough = self._least_steps is not None and self._num_delivered >= self._least_steps
        self._num_delivered += num_delivered
        if enough and not self.interrupted:
            self.interrupted = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _begin(self, root: Node, stats: Stats) -> _FeedProfile:
        plan = tuple(lines(root))
        if plan not in self._groups:
            self._groups[plan] = FeedGroup(self.recorder, len(self._groups) + 1, root)
        group = self._groups[plan]
        if group.stats:
            group.stats[-1].snapshot()  # adds up what it has kept, so that a thousand feeds take little memory
        group.stats.append(stats)
        return _FeedProfile(self, group)


def where_of(fn: Any) -> str:
    """Return "file:line" of a user's function, or of the method that a data source or a callable object calls; "" for other code."""
    held = getattr(fn, "held", None)
    if callable(held):
        held = held()
        fn = held[0] if isinstance(held, tuple) and held else held
    for one in _codes_of(fn):
        code = getattr(one, "__code__", None)
        if code is not None and not code.co_filename.startswith((_HERE, "<frozen")):
            return f"{code.co_filename}:{code.co_firstlineno}"
    return ""


def _codes_of(fn: Any) -> list[Any]:
    """List what may hold the code of a function: itself without its wrappers, or methods of its type."""
    import inspect

    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn) if callable(fn) else fn
    names = ("__call__", "__getitems__", "__getitem__", "__iter__")
    return [getattr(fn, "__func__", fn), *(inspect.unwrap(method) for name in names if callable(method := getattr(type(fn), name, None)))]
