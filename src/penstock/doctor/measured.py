"""Puts probes into a program: the same operators, with the user's functions, sources and batches measured. The plan stays as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from penstock._contracts.element import bytes_of, bytes_of_all
from penstock._engine.program import Program, SegmentPlan
from penstock._ops.map import AwaitedOp, MapOp, Step, TransformsOp
from penstock._ops.operator import ChainOp
from penstock._ops.reading import BatchLeaf, CacheLeaf, MixLeaf, ReadLeaf
from penstock._ops.rows import Rows
from penstock._ops.streams import FilterOp, FlatMapOp, GatherOp, UnbatchOp, WeighOp, rows_of
from penstock.doctor.probes import Probe, Span

__all__ = ["MakeProbe", "measured_program"]


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
