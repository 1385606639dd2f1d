"""Maps: functions of the user, transforms on fields, coroutines, and what their results are declared to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple, cast

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.element import LEAF, WEIGHTLESS, ArraySpec, bytes_of, entries_of, flatten, kind_of, map_leaves, spec_of
from penstock._contracts.policy import Policy
from penstock._contracts.transform import BlockFunction, BlockTransform, Scratch, Transform, Writer, WritingTransform
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.operator import OneToOne
from penstock._ops.rows import Rows
from penstock._ops.stack import only_texts, shown_int
from penstock._ops.worker import WorkerContext, generator_of
from penstock._system.failing import cause_of
from penstock._system.lazy import dataclass
from penstock.errors import SpecError


@dataclass(frozen=True, slots=True)
class MapOp(OneToOne):
    """`fn` on every element; with `random`, `fn(element, rng=generator of the element's key)`."""

    fn: Callable[..., Any]
    name: str
    seed: int
    stage: int
    random: bool
    policy: Policy | None = None

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        out: list[Any] = []
        append, rows = out.append, block.each()
        fn = worker.function(self, block)
        left = room = block.room - block.num_bytes
        light: Any = None  # the type of elements that need not be measured
        all_light = WEIGHTLESS.issuperset
        try:
            if self.random:
                at = worker.keyed(self.seed, self.stage).at
                keys = zip(rows, block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
                for row, epoch, index, lane in keys:
                    append(value := fn(row, rng=at(epoch, index, lane)))
                    kind = type(value)
                    if kind not in WEIGHTLESS and not (kind is dict and all_light(map(type, value.values()))):
                        left -= bytes_of(value)
                        if left < 0:
                            break
            else:
                for row in rows:
                    append(value := fn(row))
                    kind = type(value)
                    if kind is not light:
                        if kind in WEIGHTLESS:
                            light = kind
                            continue
                        if kind is dict and all_light(map(type, value.values())):  # 0.15 us, and measuring it 0.7
                            continue
                        left -= value.nbytes if kind is ndarray else bytes_of(value)
                        if left < 0:
                            break
        except BaseException as error:
            raise ElementFailed(len(out), self.name, error, self.policy) from error
        return block.with_rows(out, room - left)

    def apply_into(self, block: Block, worker: WorkerContext, sink: Rows, row: int) -> tuple[int, int]:
        """Write each result into its row before the next is computed: it is still in the cache."""
        values: list[Any] = []
        small = sink.small  # asked once: another worker may set the spec meanwhile
        if small and self.random:
            values = self.apply(block, block.epochs, block.indices, worker).rows()
            return len(values), sink.put_rows(row, values)
        rows, put = block.each(), sink.put
        fn = worker.function(self, block)
        if small:  # 64 bytes at most: measuring each would cost as much as handing it on
            append = values.append
            try:
                for element in rows:
                    append(fn(element))
            except BaseException as error:
                raise ElementFailed(len(values), self.name, error, self.policy) from error
            return len(values), sink.put_rows(row, values)
        done = kept = 0
        room = block.room - block.num_bytes
        try:
            if self.random:
                at = worker.keyed(self.seed, self.stage).at
                keys = zip(rows, block.epochs.tolist(), block.indices.tolist(), block.lanes.tolist(), strict=True)
                for element, epoch, index, lane in keys:
                    kept += put(row + done, fn(element, rng=at(epoch, index, lane)))
                    done += 1
                    if kept > room:
                        break
            else:
                for element in rows:
                    kept += put(row + done, fn(element))
                    done += 1
                    if kept > room:
                        break
        except BaseException as error:
            raise ElementFailed(done, self.name, error, self.policy) from error
        return done, kept


# -- transforms -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One transform with its random stream. `last` tells that no later step of the run writes its field.

    `parts`, if any, are the steps that this one does in one: each has a random stream of its own. `expected` is what the element is
    declared to be behind the last of them.
    """

    transform: Transform
    name: str
    seed: int
    stage: int
    last: bool
    parts: tuple[Step, ...] = ()
    policy: Policy | None = None
    expected: Expected | None = None


@dataclass(frozen=True, slots=True)
class TransformsOp(OneToOne):
    """Several transforms, one after the other, on each element (or on whole columns when all of them can)."""

    steps: tuple[Step, ...]
    number: int
    blockwise: bool

    @property
    def name(self) -> str:
        return "+".join(step.name for step in self.steps)

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        if self._blockwise(block):
            done = self._columns(block, worker, None)
            if done is not None:
                return block.with_columns(*done)
        targets: list[NDArray[Any] | None] = [None] * len(self.steps)
        out, num_bytes = [], 0
        for element, _ in self._each(block, worker, targets, 0):
            out.append(element)
            num_bytes += bytes_of(element)
            if num_bytes > block.room - block.num_bytes:
                break
        return block.with_rows(out, num_bytes)

    def apply_into(self, block: Block, worker: WorkerContext, sink: Rows, row: int) -> tuple[int, int]:
        """Write each element into its row; the last transform of a field writes there itself."""
        if self._blockwise(block):
            kept = self._columns_into(block, worker, sink, row)
            if kept is not None:
                return len(block), kept
        targets = [sink.array_of(step.transform.out_field) if step.last else None for step in self.steps]
        last = self.steps[-1].transform
        writer = last.writer() if targets[-1] is not None and isinstance(last, WritingTransform) else None
        place, kept = row, 0
        for element, done in self._each(block, worker, targets, row, writer):
            kept += sink.put(place, element, done)
            place += 1
            if kept > block.room - block.num_bytes:
                break
        if writer is not None:
            writer.finish()
        return place - row, kept

    def _elements(self, block: Block, worker: WorkerContext) -> Iterable[Any]:
        """Return the block's elements; bytes that the first step replaces are read one at a time, into working memory."""
        first = self.steps[0].transform
        if first.field != first.out_field or not block.transient(first.field):
            return block.each()
        scratch = worker.scratch(self.number, -1)
        return (block.read_transient(offset, scratch) for offset in range(len(block)))

    def _each(
        self, block: Block, worker: WorkerContext, targets: list[NDArray[Any] | None], row: int, writer: Writer | None = None
    ) -> Iterator[tuple[Any, str | None]]:
        """Yield each element after all steps, with the field that stands in its row of `targets`: of the last step as `writer` has it."""
        applies: list[Any] = [step.transform.apply for step in self.steps]
        if writer is not None:
            applies[-1] = writer.apply
        lent = zip(targets, self._scratches(worker, targets), self._draws(block), strict=True)
        plan = [
            (apply, step.transform.field, step.transform.out_field, step.last, step.expected, target, scratch, draws)
            for apply, step, (target, scratch, draws) in zip(applies, self.steps, lent, strict=True)
        ]

        def draws_of(number: int, offset: int) -> list[float]:
            return plan[number][-1][offset]

        for offset, element in enumerate(self._elements(block, worker)):
            done: str | None = None
            number = 0
            try:
                element = element.copy() if type(element) is dict else _as_dict(element, self.steps[0])
                for number, (apply, field, out_field, last, expected, target, scratch, draws) in enumerate(plan):
                    out = None if target is None else target[row + offset, ...]  # an array for a leaf without dimensions too
                    result = apply(element[field], draws[offset], scratch, out)
                    if last:
                        if result is out:
                            done = out_field
                        elif result.base is not None:
                            result = result.copy()  # it may be a view of somebody's scratch
                    element[out_field] = result
                    if expected is not None:
                        _check(self.steps[number], element, offset)
            except ElementFailed:
                raise
            except BaseException as error:
                step = _failing(self.steps[number], element, draws_of(number, offset), error)
                raise ElementFailed(offset, step.name, _named(error, element, step), step.policy) from error
            yield element, done

    def _scratches(self, worker: WorkerContext, targets: list[NDArray[Any] | None]) -> list[Scratch | None]:
        """Return working memory for each step; none for a last step without a row to write to: its result leaves the worker."""
        return [
            None if step.last and target is None else worker.scratch(self.number, number)
            for number, (step, target) in enumerate(zip(self.steps, targets, strict=True))
        ]

    def _draws(self, block: Block) -> list[list[list[float]]]:
        nothing: list[list[float]] = [[]] * len(block)
        return [self._uniform(step, block).tolist() if step.transform.num_draws else nothing for step in self.steps]

    def _uniform(self, step: Step, block: Block) -> NDArray[np.float64]:
        if step.parts:
            return np.concatenate([self._uniform(part, block) for part in step.parts if part.transform.num_draws], axis=1)
        return kernels.philox_uniform(step.seed, step.stage, block.epochs, block.indices, block.lanes, step.transform.num_draws)

    def _blockwise(self, block: Block) -> bool:
        if not self.blockwise or not block.columnar:
            return False
        structure = block.structure()
        return (
            structure is not LEAF
            and structure[0] == "dict"
            and all(child is LEAF for child in structure[2])
            and all(step.transform.field in structure[1] for step in self.steps)
            and all(step.transform.field == step.transform.out_field for step in self.steps)
        )

    def _columns(self, block: Block, worker: WorkerContext, out: dict[str, NDArray[Any]] | None) -> tuple[Any, list[NDArray[Any]]] | None:
        """Do whole columns; None when a transform cannot do this block."""
        structure = block.structure()
        columns = dict(zip(structure[1], block.columns(), strict=True))
        for number, step in enumerate(self.steps):
            transform = step.transform
            draws = self._uniform(step, block) if transform.num_draws else np.empty((len(block), 0))
            target = out.get(transform.out_field) if out is not None and step.last else None
            scratch = worker.scratch(self.number, number) if target is not None or not step.last else None
            try:
                result = cast(BlockTransform, transform).apply_block(columns[transform.field], draws, scratch, target)
            except BaseException as error:
                raise ElementFailed(0, step.name, error, step.policy, whole=True) from error
            if result is None:
                return None
            if step.last and target is None and result.base is not None:
                result = result.copy()
            columns[transform.out_field] = result
            if step.expected is not None and len(block):
                _check(step, {key: columns[key][0] for key in structure[1]}, 0)  # all rows of a column are alike
        return structure, [columns[key] for key in structure[1]]

    def _columns_into(self, block: Block, worker: WorkerContext, sink: Rows, row: int) -> int | None:
        structure = block.structure()
        arrays = sink.columns_of(structure, row, len(block))
        targets = None if arrays is None else dict(zip(structure[1], arrays, strict=True))
        done = self._columns(block, worker, targets)
        if done is None:
            return None
        if targets is None or not _stored(structure[1], done[1], targets):
            return sink.put_block(row, block.with_columns(*done))
        return 0


def _check(step: Step, element: Any, offset: int) -> None:
    assert step.expected is not None
    try:
        step.expected.check(element)
    except SpecError as error:
        last = step.parts[-1] if step.parts else step
        raise ElementFailed(offset, last.name, error, last.policy) from error


def _stored(keys: tuple[Any, ...], columns: list[NDArray[Any]], targets: dict[Any, NDArray[Any]]) -> bool:
    """Copy what is not in its place yet; False when something does not fit there, or has to be judged element by element."""
    for key, column in zip(keys, columns, strict=True):
        target = targets[key]
        if column is target:
            continue
        if column.shape != target.shape or column.dtype != target.dtype:
            return False
        np.copyto(target, column)
    return only_texts(targets.values())


def _as_dict(element: Any, step: Step) -> dict[str, Any]:
    entries = entries_of(element)
    if entries is not None:
        return dict(entries)
    raise SpecError(
        f"{step.name} reads the field {step.transform.field!r} of a dict, but the element is a {type(element).__name__}",
        where=f"stage {step.name!r}",
        fix="give elements with named fields, such as from_arrays({'image': images}); on a bare array call the operator itself in a map",
    )


def _failing(step: Step, element: Any, draws: list[float], error: BaseException) -> Step:
    """Return which of the steps that are done in one has failed: the first that fails alone, with an error of the same type."""
    if not step.parts or not isinstance(error, Exception) or not isinstance(element, dict) or step.transform.field not in element:
        return step.parts[0] if step.parts else step
    value, used = element[step.transform.field], 0
    for part in step.parts:
        try:
            value = part.transform.apply(value, draws[used : used + part.transform.num_draws], None, None)
        except Exception as again:
            return part if type(again) is type(error) else step.parts[0]
        used += part.transform.num_draws
    return step.parts[-1]


def _named(error: BaseException, element: Any, step: Step) -> BaseException:
    """Say which fields there are when the one asked for is missing."""
    if isinstance(error, KeyError) and isinstance(element, dict) and step.transform.field not in element:
        return SpecError(
            f"{step.name} reads the field {step.transform.field!r}, but the element has {sorted(map(str, element))}",
            where=f"stage {step.name!r}",
            fix="name one of the fields that the element has, or map a function that makes this one first",
        )
    return error


# -- declared results -------------------------------------------------------------------------------------------------------------

_OBJECT = np.dtype(object)
_MOST_LETTERS = 300

Fits = Callable[[Any], bool]


class Expected:
    """A tree of specs that each result of one stage must fit: structure, dtype and every size that is not None.

    Keys of a dict may stand in any order. Frozen; shared by all workers.

    Args:
        tree: dict, tuple and list over `ArraySpec`.
        name: of the stage, for errors.
    """

    __slots__ = ("_name", "_tree", "fits")

    def __init__(self, tree: Any, name: str) -> None:
        self._tree = tree
        self._name = name
        self.fits: Fits = _fits(tree)
        """Tells whether a result is as declared, at the cost of one comparison in C per array. Never raises."""

    def check(self, value: Any) -> None:
        """Refuse a result that is not as declared.

        Raises:
            SpecError: naming the stage, the field, what was declared for it and what came.
        """
        if not self.fits(value):
            raise self._refusal(value)

    def around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fn` with its result checked."""
        fits = self.fits

        def checked(element: Any, **rng: Any) -> Any:
            value = fn(element, **rng)
            if fits(value):
                return value
            raise self._refusal(value)

        checked.__wrapped__ = fn  # type: ignore[attr-defined]  # so it is known whose function it is
        if isinstance(fn, BlockFunction):
            checked.over_block = lambda rows: (own := fn.over_block(rows)) and self.around(own)
        return checked

    def around_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the async function `fn` with its result checked."""
        fits = self.fits

        async def checked(element: Any, **rng: Any) -> Any:
            value = await fn(element, **rng)
            if fits(value):
                return value
            raise self._refusal(value)

        checked.__wrapped__ = fn  # type: ignore[attr-defined]  # so it is known whose function it is
        return checked

    def _refusal(self, value: Any) -> SpecError:
        return SpecError(
            _difference(self._tree, value, ""),
            where=f"stage {self._name!r}",
            fix="return what output_spec declares (cast, resize, fill in the field), or declare what is returned: None stands for any size",
        )


def _fits(tree: Any) -> Fits:
    if isinstance(tree, ArraySpec):
        return _leaf(tree)
    if type(tree) is dict:
        return _dict(tree)
    children = [_fits(child) for child in tree]
    kind, count = kind_of(tree), len(children)

    def fits(value: Any) -> bool:
        return kind_of(value) is kind and len(value) == count and all(child(item) for child, item in zip(children, value, strict=True))

    return fits


def _dict(tree: dict[Any, Any]) -> Fits:
    nothing = object()
    parts = [(key, _whole(child), _fits(child)) for key, child in tree.items()]
    count = len(parts)

    def fits(value: Any) -> bool:
        if type(value) is not dict:
            value = entries_of(value)
        if value is None or len(value) != count:
            return False
        for key, wanted, child in parts:
            item = value.get(key, nothing)
            if type(item) is np.ndarray and (item.dtype, item.shape) == wanted:
                continue
            if item is nothing or not child(item):
                return False
        return True

    return fits


def _whole(tree: Any) -> Any:
    """Return what (dtype, shape) of an array must equal; nothing does when the shape is not all declared, or it is no array."""
    return (tree.dtype, tree.shape) if isinstance(tree, ArraySpec) else None


def _leaf(spec: ArraySpec) -> Fits:
    if None in spec.shape:
        return _loose_leaf(spec)
    wanted = _whole(spec)
    number = None if spec.shape else _NUMBERS.get(spec.dtype)
    scalar = None if spec.shape else spec.dtype.type

    def fits(value: Any) -> bool:
        if type(value) is np.ndarray and (value.dtype, value.shape) == wanted:
            return True
        if type(value) is number:
            return _in_range(value)
        if type(value) is scalar and value.dtype == spec.dtype:
            return True
        return kind_of(value) is None and spec_of(value) == spec and _in_range(value)

    return fits


_NUMBERS: dict[np.dtype[Any], type] = {np.dtype(np.bool_): bool, np.dtype(np.int64): int, np.dtype(np.float64): float}
"""What a number of Python becomes in a batch, the other way round: most labels are such."""


def _loose_leaf(spec: ArraySpec) -> Fits:
    """Compare the number of dimensions, and the sizes that are declared."""
    dtype, count = spec.dtype, len(spec.shape)
    places = [place for place, size in enumerate(spec.shape) if size is not None]
    pick = itemgetter(*places) if places else None
    wanted = None if pick is None else pick(spec.shape)

    def fits(value: Any) -> bool:
        if type(value) is np.ndarray and value.dtype == dtype:
            shape = value.shape
        elif kind_of(value) is not None:
            return False
        else:
            found = spec_of(value)
            if found.dtype != dtype:
                return False
            shape = found.shape
        return len(shape) == count and (pick is None or pick(shape) == wanted)

    return fits


def _in_range(value: Any) -> bool:
    return type(value) is not int or -(2**63) <= value < 2**63


def _difference(tree: Any, value: Any, path: str) -> str:
    """Say where the first field is that is not as declared, and how it is."""
    parts = _parts(tree, value)
    if parts is None:
        return f"{path or 'the result'} is declared as {_cut(repr(tree))} and came as {_came(value)}"
    for key, declared, found in parts:
        if not _fits(declared)(found):
            return _difference(declared, found, f"{path}[{key!r}]")
    return f"{path or 'the result'} is not as declared"


def _parts(tree: Any, value: Any) -> list[tuple[Any, Any, Any]] | None:
    """Return (key, declared, found) of each child; None when there are no children to compare one by one."""
    if isinstance(tree, dict):
        entries = entries_of(value) or {}
        return [(key, child, entries[key]) for key, child in tree.items()] if entries.keys() == tree.keys() else None
    if isinstance(tree, ArraySpec) or kind_of(value) is not kind_of(tree) or len(value) != len(tree):
        return None
    return [(place, *pair) for place, pair in enumerate(zip(tree, value, strict=True))]


def _came(value: Any) -> str:
    if kind_of(value) is not None:
        return _cut(repr(map_leaves(spec_of, value))) if len(flatten(value)) <= _MOST_LETTERS else f"a {type(value).__name__}"
    spec = spec_of(value)
    if not _in_range(value):
        return f"{shown_int(value)}, which does not fit int64"
    return type(value).__name__ if spec.dtype == _OBJECT and not isinstance(value, (np.ndarray, np.generic)) else repr(spec)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


# -- async functions --------------------------------------------------------------------------------------------------------------


class CallResult(NamedTuple):
    """What became of one element: its value, or the error. `worker` is the place among those in flight."""

    value: Any
    error: BaseException | None
    worker: int = 0


@dataclass(frozen=True, slots=True)
class AwaitedOp(OneToOne):
    """`await fn(element)` on every element, up to `concurrency` of them at once; with `random`, `fn(element, rng=a generator of its own)`.

    `gather` runs a whole block on a loop of its own, where no other loop waits for it: for `ds[i]` and inside of leaves.
    """

    fn: Callable[..., Any]
    name: str
    seed: int
    stage: int
    random: bool
    concurrency: int
    gather: Callable[[AwaitedOp, Block], list[CallResult]]
    policy: Policy | None = None

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        block.rows()  # what cannot be read is a failure of the read, not of the call
        outcomes = self.gather(self, block)
        last = outcomes[-1] if outcomes else None
        if last is not None and last.error is not None:
            raise ElementFailed(len(outcomes) - 1, self.name, last.error, self.policy) from last.error
        return block.with_rows([outcome.value for outcome in outcomes])

    async def outcome(self, block: Block, offset: int, worker: int) -> CallResult:
        """Compute one element. Never raises: SystemExit and KeyboardInterrupt would end the event loop, StopIteration the task."""
        try:
            row = block.rows()[offset]
            if self.random:
                key = int(block.epochs[offset]), int(block.indices[offset]), int(block.lanes[offset])
                return CallResult(await self.fn(row, rng=generator_of(self.seed, self.stage, *key)), None, worker)
            return CallResult(await self.fn(row), None, worker)
        except BaseException as error:
            return CallResult(None, _raised(error), worker)


def _raised(error: BaseException) -> BaseException:
    """Return what the user raised: Python makes a RuntimeError of a StopIteration that leaves a coroutine."""
    cause = cause_of(error)
    return cause if isinstance(error, RuntimeError) and isinstance(cause, StopIteration) else error
