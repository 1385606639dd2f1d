"""Elements that are computed twice: which they are, what is noted of each step, and how two computations differ."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

import numpy as np

from penstock import kernels
from penstock._contracts.element import array_of
from penstock._engine.chunk import Key, WorkItem
from penstock._engine.program import SegmentPlan
from penstock._ops.block import Block, ElementFailed, Ints, Keys
from penstock._ops.worker import WorkerContext
from penstock._system.failing import attempt, words_of
from penstock.errors import NotRepeatable

T = TypeVar("T")

_SEED = 0x7E91F1
_SHOWN = 60
_NUMBER = "the number of elements"


def chosen(share: float, keys: Keys) -> Ints:
    """Return the places of those of some elements that are computed twice: by their keys alone, so the same ones everywhere."""
    return np.flatnonzero(kernels.philox_uniform(_SEED, 0, *keys, 1)[:, 0] < share)


def rows_twice(share: float, plan: SegmentPlan, item: WorkItem) -> frozenset[int]:
    """Return the rows of an item that are computed twice. Async calls are not."""
    if plan.stages[item.stage].awaited is not None:
        return frozenset()
    if item.given is not None:
        keys = item.given.epochs, item.given.indices, item.given.lanes
    else:
        assert plan.leaf is not None
        keys = plan.leaf.keys(*item.positions_per_op[0])
    return frozenset((chosen(share, keys) + item.begin).tolist())


def copied(values: list[Any]) -> list[Any] | None:
    """Return copies of what a function will be given, before it may change them; None where there are none."""
    return attempt(copy.deepcopy, values)


class StepLog:
    """What each step of one computation gave, noted before a later step may change it.

    Attributes:
        steps: of each step its name and what its elements hold, by field.
        unknown: the types of objects that cannot be compared.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[str, dict[str, _Leaf]]] = []
        self.unknown: set[str] = set()

    def note(self, name: str, block: Block) -> None:
        """Note the elements behind a step."""
        rows = block.rows()
        leaves = {_NUMBER: _Leaf("", len(rows))}
        for number, row in enumerate(rows):
            self._add(leaves, "" if len(rows) == 1 else f" of element {number}", row)
        self.steps.append((name, leaves))

    def _add(self, leaves: dict[str, _Leaf], path: str, value: Any) -> None:
        if isinstance(value, list) and isinstance(array := array_of(value), np.ndarray):
            value = array
        items: Any = None
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype.hasobject and value.dtype.names is None):
            items = enumerate(value if isinstance(value, (list, tuple)) else value.ravel().tolist())
        if items is None:
            leaf = attempt(_leaf, value)
            leaves[path] = leaf or _Leaf(type(value).__name__, None)
            if leaf is None:
                self.unknown.add(type(value).__name__)
            return
        leaves[path] = _Leaf(type(value).__name__, len(value))
        for key, item in items:
            self._add(leaves, f"{path}[{key!r}]", item)


def _leaf(value: Any) -> _Leaf:
    kind = type(value).__name__
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return _Leaf(kind, repr(value) if isinstance(value, (float, complex)) else value)  # so NaN equals NaN
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
        return _Leaf(f"{array.dtype.name}{list(array.shape)}", array.tobytes(), array.dtype if array.dtype.kind in "fc" else None)
    return _Leaf(kind, sorted(map(repr, value))) if isinstance(value, (set, frozenset)) else _Leaf(kind, pickle.dumps(value, 5), pickle)


class _Leaf(NamedTuple):
    """A part of an element: of an array the bytes, of an object its pickle. `how` tells what to look at where those differ."""

    kind: str
    data: Any
    how: Any = None

    def equals(self, other: _Leaf) -> bool:
        """Tell whether two are the same; NaN equals NaN, and objects may say themselves that they are equal."""
        if self.kind != other.kind or self.data == other.data:
            return self.kind == other.kind
        if self.how is pickle:
            return attempt(lambda: bool(pickle.loads(self.data) == pickle.loads(other.data))) or False
        if self.how is None:
            return False
        return np.array_equal(np.frombuffer(self.data, self.how), np.frombuffer(other.data, self.how), equal_nan=True)

    def against(self, other: _Leaf) -> str:
        """Say how two differ."""
        if self.kind != other.kind:
            return f"{self.kind}, then {other.kind}"
        if self.how is pickle or not isinstance(self.data, (bytes, str, int)):
            return f"a {self.kind}, then another"
        if isinstance(self.data, bytes) and self.kind != "bytes":
            return f"{self.kind}, then the same with other numbers"
        return f"{_cut(self.data)}, then {_cut(other.data)}"


def _cut(data: Any) -> str:
    text = str(data) if isinstance(data, int) else repr(data)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


Where = Callable[[], tuple[Key, str]]
"""Says which element it is: its key, and where it comes from."""


def computed_twice(worker: WorkerContext, first: Callable[[], T], again: Callable[[], object], where: Where) -> tuple[T, frozenset[str]]:
    """Compute something, and a second time while no other thread of the feed computes; return it with types that cannot be compared.

    Raises:
        ElementFailed: the first time it failed, or the second time gave another result.
    """
    one, other, failed = StepLog(), StepLog(), None
    with _noted_in(worker, one):
        out = first()
    room = worker.room, worker.kept
    with nullcontext() if worker.gate is None else worker.gate.exclusive(), _noted_in(worker, other):
        try:
            again()
        except ElementFailed as found:
            failed = found.with_traceback(None)
    worker.room, worker.kept = room
    error = _difference(one, other, failed, where)
    if error is not None:
        raise error from error.error
    return out, frozenset(one.unknown)


@contextmanager
def _noted_in(worker: WorkerContext, trace: StepLog) -> Iterator[None]:
    worker.trace = trace
    try:
        yield
    finally:
        worker.trace = None


def _difference(first: StepLog, second: StepLog, failed: ElementFailed | None, where: Where) -> ElementFailed | None:
    """Return the failure of the first step that did not give the same twice, or None; `failed` is how the second computation failed."""
    for (name, before), (_, after) in zip(first.steps, second.steps, strict=False):
        for path in (*before, *(path for path in after if path not in before)):
            one, other = before.get(path), after.get(path)
            if one is None or other is None:
                return _failure(name, f"{path or 'the result'} was there only once", where)
            if not one.equals(other):
                return _failure(name, f"{path or 'the result'} was {one.against(other)}{_suspects(name, first)}", where)
    if failed is not None:
        return _failure(failed.stage, f"the second time it raised {words_of(failed.error)}", where)
    return None


def _suspects(name: str, first: StepLog) -> str:
    """Name those who may have changed what was read."""
    later = [repr(step) for step, _ in first.steps[1:] if step] if name == "read" else []
    return f"; {' or '.join(later)} may have changed it in place" if later else ""


def _failure(name: str, words: str, where: Where) -> ElementFailed:
    (epoch, index, _), place = where()
    error = NotRepeatable(
        f"{name!r} was computed twice for one element, the second time alone, and did not give the same: {words}",
        where=f"stage {name!r}, element epoch {epoch} index {index}" + (f" ({place})" if place else ""),
        fix="where other calls of the function run meanwhile, it or an object in it is not thread-safe: leave executor= out (one call at a "
        "time), or give num_workers=N (worker processes with a copy each). Where it draws random numbers, take a parameter rng=; where it "
        "counts, tells the time, or changes an element of the source in place, no two runs are the same: mend that, or leave verify= out",
    )
    failed = ElementFailed(0, name, error)
    failed.final = True
    return failed
