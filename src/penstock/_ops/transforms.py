"""A run of fused transforms: intermediate values stay in the worker's scratch, the last one goes straight into the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.element import LEAF, bytes_of
from penstock._contracts.policy import Policy
from penstock._contracts.transform import BlockTransform, Scratch, Transform
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.expected import Expected
from penstock._ops.operator import RowSink
from penstock._ops.stack import only_texts
from penstock._ops.worker import WorkerContext
from penstock.errors import SpecError

__all__ = ["Step", "TransformsOp"]


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
class TransformsOp:
    """Several transforms, one after the other, on each element (or on whole columns when all of them can)."""

    steps: tuple[Step, ...]
    number: int
    blockwise: bool

    @property
    def name(self) -> str:
        return "+".join(step.name for step in self.steps)

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions

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

    def apply_into(self, block: Block, worker: WorkerContext, sink: RowSink, row: int) -> tuple[int, int]:
        """Write each element into its row; the last transform of a field writes there itself."""
        if self._blockwise(block):
            kept = self._columns_into(block, worker, sink, row)
            if kept is not None:
                return len(block), kept
        targets = [sink.array_of(step.transform.out_field) if step.last else None for step in self.steps]
        place, kept = row, 0
        for element, done in self._each(block, worker, targets, row):
            kept += sink.put(place, element, done)
            place += 1
            if kept > block.room - block.num_bytes:
                break
        return place - row, kept

    def _elements(self, block: Block, worker: WorkerContext) -> Iterable[Any]:
        """Return the block's elements; bytes that the first step replaces are read one at a time, into working memory."""
        first = self.steps[0].transform
        if first.field != first.out_field or not block.transient(first.field):
            return block.each()
        scratch = worker.scratch(self.number, -1)
        return (block.read_transient(offset, scratch) for offset in range(len(block)))

    def _each(self, block: Block, worker: WorkerContext, targets: list[NDArray[Any] | None], row: int) -> Iterator[tuple[Any, str | None]]:
        """Yield each element after all steps, with the field that already stands in its row of `targets`."""
        plan = [
            (step.transform.apply, step.transform.field, step.transform.out_field, step.last, step.expected, target, scratch, draws)
            for step, target, scratch, draws in zip(self.steps, targets, self._scratches(worker, targets), self._draws(block), strict=True)
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
            return np.concatenate([self._uniform(part, block) for part in step.parts], axis=1)
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

    def _columns_into(self, block: Block, worker: WorkerContext, sink: RowSink, row: int) -> int | None:
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
    if isinstance(element, dict):
        return dict(element)
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
        return KeyError(f"{step.name} reads the field {step.transform.field!r}, but the element has {sorted(map(str, element))}")
    return error
