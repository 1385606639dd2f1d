"""The profile of a run: a probe for each operator of each feed, and what its tasks and its consumer did.

Probes go into the program: the same operators, with the user's functions, sources and batches measured; the plan stays as it is. Which
operators hold the GIL is estimated: a thread asks for it 100 times a second, and notes whether it had to wait, and what ran.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from penstock._contracts.element import bytes_of, bytes_of_all
from penstock._contracts.event import BatchDelivered, BlockDone, Event
from penstock._contracts.options import Options
from penstock._engine.program import Program, SegmentPlan
from penstock._ops.map import AwaitedOp, MapOp, Step, TransformsOp
from penstock._ops.operator import ChainOp
from penstock._ops.reading import BatchLeaf, CacheLeaf, MixLeaf, ReadLeaf
from penstock._ops.rows import Rows
from penstock._ops.streams import FilterOp, FlatMapOp, GatherOp, UnbatchOp, WeighOp, rows_of
from penstock._plan.base import walk
from penstock._plan.facts import lines
from penstock._plan.node import Node
from penstock.doctor.probes import Probe, ProbeRecorder, Span
from penstock.observe.stats import Stats, gil_wait_ns, profilers

_EVERY_S = 0.01
_HELD_NS = 100_000
"""The timer of the system alone is less than 0.1 ms late. Python code that holds the GIL lets it go after 5 ms."""

_FEWEST_SAMPLES = 20
_LEAST = 0.01
_PRIOR = 10
"""What the CPU time of an operator counts, in samples: a few samples that went wrong (the host took the CPU away) decide nothing then."""

_ROUNDS = 100

OTHERS = "others"
"""All other threads of the process, such as the training loop."""

Samples = Mapping[tuple[Hashable, ...], tuple[int, int]]
"""For each combination of what ran at a sample: how many samples there were, and in how many the GIL was held."""


class GilSampler:
    """Samples the GIL in a thread of its own, from `start` to `stop`."""

    def __init__(self, recorder: ProbeRecorder) -> None:
        self._recorder = recorder
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.samples: dict[tuple[Hashable, ...], tuple[int, int]] = {}

    def start(self) -> None:
        """Begin to sample; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-doctor-gil", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread; blocks for at most a few hundredths of a second."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            waited_ns = gil_wait_ns(_EVERY_S)
            if waited_ns is None:
                continue
            asked_ns = time.perf_counter_ns() - waited_ns
            running = [probe for record in list(self._recorder.records) if (probe := record.at(asked_ns)) is not None]
            if running:
                key = (*sorted(running, key=id), OTHERS)
                count, held = self.samples.get(key, (0, 0))
                self.samples[key] = count + 1, held + (waited_ns >= _HELD_NS)

    def shares(self, cpu_shares: Mapping[Probe, float], others: float) -> dict[Hashable, float]:
        """Return the part of its running time in which each operator held the GIL, as `holding_shares` does."""
        known: dict[Hashable, float] = {probe: share for probe, share in cpu_shares.items()}  # noqa: C416 - dict() keeps the type of the keys
        return holding_shares(self.samples, {**known, OTHERS: others})


def holding_shares(samples: Samples, cpu_shares: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Estimate for each thing that ran in which part of its time it held the GIL; without those that ran in fewer than 20 samples.

    One of those that ran at a sample held the GIL. The samples do not say which one: what shows is that it is held more often when some of
    them run. This finds the shares under which the samples are most likely (expectation maximisation), and the shares of their
    time that they were on a CPU count as ten samples more: a thread that sleeps rarely holds the GIL.
    """
    totals: dict[Hashable, int] = {}
    for running, (count, _) in samples.items():
        for one in running:
            totals[one] = totals.get(one, 0) + count
    prior = {one: max(_LEAST, min(1.0, cpu_shares.get(one, 1.0))) for one in totals}
    shares, credits = prior, dict.fromkeys(totals, 0.0)
    for _ in range(_ROUNDS):
        credits = dict.fromkeys(totals, 0.0)
        for running, (_, held) in samples.items():
            weight = sum(shares[one] for one in running)
            for one in running:
                credits[one] += held * shares[one] / weight if weight else 0.0
        shares = {one: (credits[one] + _PRIOR * prior[one]) / (totals[one] + _PRIOR) for one in totals}
    return {one: credits[one] / totals[one] for one in totals if totals[one] >= _FEWEST_SAMPLES}


class MakeProbe(Protocol):
    """Makes the probes of a program, in the order of the operators, from the source up."""

    def __call__(self, kind: str, name: str, fn: Any = None, *, in_task: bool = True) -> Probe:
        """Return the probe of the next operator; `fn` is the user's function or data source, if it has one."""


def measured_program(program: Program, make: MakeProbe) -> Program:
    """Return a program whose operators are measured; what it computes, and its states, are the same."""
    segments = tuple(_segment(segment, make) for segment in program.segments)
    if not any(segment.batch is not None or segment.batch_in_place is not None for segment in segments):
        return replace(program, segments=segments)
    rows, finish = make("batch", "batch"), make("batch", "batch", in_task=False)
    return replace(program, segments=segments, make_rows=functools.partial(_rows, rows, finish))


def _segment(segment: SegmentPlan, make: MakeProbe) -> SegmentPlan:
    leaf = None if segment.leaf is None else _leaf(segment.leaf, make)
    stream = None if segment.stream is None else _stream(segment.stream, make)
    stages = tuple(
        replace(
            stage,
            operators=tuple(_operator(one, make) for one in stage.operators),
            filter_steps=tuple(_operator(one, make) for one in stage.filter_steps),
        )
        for stage in segment.stages
    )
    above = functools.partial(make, in_task=False)  # batches are finished behind the task
    return replace(segment, leaf=leaf, stream=stream, stages=stages, batch_ops=tuple(_operator(one, above) for one in segment.batch_ops))


# -- operators --------------------------------------------------------------------------------------------------------------------------


def _operator(operator: Any, make: MakeProbe) -> Any:
    match operator:
        case MapOp():
            return replace(operator, fn=make("map", operator.name, operator.fn).around(operator.fn))
        case TransformsOp():
            return replace(operator, steps=tuple(_step(step, make) for step in operator.steps))
        case AwaitedOp():
            return replace(operator, fn=make("map", operator.name, operator.fn, in_task=False).around_async(operator.fn))
        case FilterOp():
            return replace(operator, fn=make("filter", operator.name, operator.fn).around(operator.fn, _size_if_kept))
        case FlatMapOp():
            return replace(operator, fn=make("flat_map", operator.name, operator.fn).around(operator.fn, _size_of_all, list))
        case UnbatchOp():
            return FlatMapOp(make("unbatch", "unbatch").around(rows_of, _size_of_all), operator.name)
        case WeighOp():
            return replace(operator, fn=make("measure", operator.name, operator.fn).around(operator.fn))
        case GatherOp():
            return replace(operator, fn=make("gather", operator.name).around(operator.fn))
    return operator  # arithmetic on positions


def _size_if_kept(kept: Any, arguments: tuple[Any, ...]) -> int:
    return bytes_of(arguments[0]) if kept else 0


def _size_of_all(elements: Any, arguments: tuple[Any, ...]) -> int:
    return bytes_of_all(elements or [])


def _step(step: Step, make: MakeProbe) -> Step:
    return replace(step, transform=_Transform(step.transform, make("map", step.name)))


class _Transform:
    """An operator of `ps.image`, or several that run as one."""

    def __init__(self, transform: Any, probe: Probe) -> None:
        self.field, self.out_field, self.num_draws = transform.field, transform.out_field, transform.num_draws
        self.apply = probe.around(transform.apply)
        if hasattr(transform, "apply_block"):
            self.apply_block = probe.around(transform.apply_block)


# -- sources ----------------------------------------------------------------------------------------------------------------------------


def _leaf(leaf: Any, make: MakeProbe) -> Any:
    match leaf:
        case ReadLeaf():
            source = _Source(leaf.source, make("read", leaf.source.label().partition("(")[0], leaf.source))
            return ReadLeaf(source, source if leaf.columns is not None else None, source if leaf.transient is not None else None)
        case CacheLeaf():
            child = _leaf(leaf.child, make)
            return replace(leaf, child=child, store=_Store(leaf.store, make("cache", "cache")))
        case BatchLeaf():
            child = _leaf(leaf.child, make)
            return replace(leaf, child=child, collation=_Collation(leaf.collation, make("batch", "inner batch")))
        case ChainOp():
            return replace(leaf, leaf=_leaf(leaf.leaf, make), operators=tuple(_operator(one, make) for one in leaf.operators))
        case MixLeaf():  # `in_turn` reads the objects of all sources in one loop, past their probes
            return replace(leaf, branches=tuple(_leaf(branch, make) for branch in leaf.branches), in_turn=None)
    return replace(leaf, branches=tuple(_leaf(branch, make) for branch in leaf.branches))


class _Source:
    """An indexed source whose reads are measured."""

    def __init__(self, source: Any, probe: Probe) -> None:
        self._source, self._probe = source, probe
        if hasattr(source, "rows_at_once"):
            self.rows_at_once = source.rows_at_once
        if hasattr(source, "gather_columns"):
            self.gather_columns = probe.around(source.gather_columns, lambda columns, _: bytes_of_all(columns or []))
        if hasattr(source, "read_transient"):
            self.read_transient = probe.around(source.read_transient)

    def __len__(self) -> int:
        return len(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def gather(self, indices: Any, rows: list[Any]) -> None:
        """Append one element per index."""
        before = len(rows)
        span = Span(self._probe)
        try:
            self._source.gather(indices, rows)
        finally:
            span.end(lambda: bytes_of_all(rows[before:]))


class _Delegate:
    """Gives all but a few methods of another object."""

    def __init__(self, target: Any, probe: Probe) -> None:
        self._target, self._probe = target, probe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class _Store(_Delegate):
    def __init__(self, store: Any, probe: Probe) -> None:
        super().__init__(store, probe)
        self.get = probe.around(store.get, lambda records, _: sum(len(record) for record in records or [] if record is not None))
        self.put = probe.around(store.put)


class _Collation(_Delegate):
    def __init__(self, collation: Any, probe: Probe) -> None:
        super().__init__(collation, probe)
        self.collate = probe.around(collation.collate)


def _stream(stream: Any, make: MakeProbe) -> Any:
    probe = make("read", stream.label().partition("(")[0], stream)
    return (_StatefulStream if hasattr(stream, "open_at") and hasattr(stream, "state") else _Stream)(stream, probe)


class _Stream(_Delegate):
    """All methods are written out: from Python 3.12 on, `isinstance` with a protocol does not see what `__getattr__` gives."""

    def can_fast_forward(self) -> bool:
        """Tell whether earlier elements may be read again."""
        return bool(self._target.can_fast_forward())

    def describe(self, index: int) -> str:
        """Say where an element comes from."""
        return str(self._target.describe(index))

    def fingerprint(self) -> dict[str, Any]:
        """Say which data it reads."""
        return dict(self._target.fingerprint())

    def label(self) -> str:
        """Name it."""
        return str(self._target.label())

    def open(self, pass_number: int) -> Iterator[Any]:
        """Start a pass."""
        return self._probe.iterate(iter(self._target.open(pass_number)))

    def declared_length(self) -> Any:
        """Return what a pass promises."""
        return self._target.declared_length()


class _StatefulStream(_Stream):
    def state(self) -> Any:
        """Return where the open pass is."""
        return self._target.state()

    def open_at(self, pass_number: int, state: Any) -> Iterator[Any]:
        """Start a pass behind a place."""
        return self._probe.iterate(iter(self._target.open_at(pass_number, state)))


# -- batches ----------------------------------------------------------------------------------------------------------------------------


def _rows(probe: Probe, finish: Probe, *arguments: Any) -> Any:
    return _Rows(Rows(*arguments), probe, finish)


class _Rows(_Delegate):
    """The rows of batches under construction: writing them, and finishing the batches, is measured."""

    def __init__(self, rows: Rows, probe: Probe, finish: Probe) -> None:
        super().__init__(rows, probe)
        self._finish = finish
        self.put, self.put_rows, self.put_block = (self._part(method) for method in (rows.put, rows.put_rows, rows.put_block))

    def _part(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            span = Span(self._probe)
            try:
                return method(*arguments)
            finally:
                span.end(0, counts=False)

        return measured

    def finish(self, *arguments: Any, **keywords: Any) -> list[Any]:
        """Return the batches; they are the calls that are counted."""
        span = Span(self._finish)
        batches: list[Any] = []
        try:
            batches = self._target.finish(*arguments, **keywords)
        finally:
            span.end(0, counts=False)
            tally = span.record.tally(self._finish)
            tally.num_calls += len(batches)
            tally.bytes_out += bytes_of_all(batches)
        return batches


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

    def __init__(self, recorder: ProbeRecorder, number: int, root: Node) -> None:
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
        self.recorder = ProbeRecorder(memory=memory)
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
