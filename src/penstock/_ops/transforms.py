"""A run of fused transforms: intermediate values stay in the worker's scratch, the last one goes straight into the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from penstock import kernels
from penstock._contracts.element import LEAF
from penstock._contracts.transform import BlockTransform, Transform
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.operator import RowSink
from penstock._ops.worker import WorkerContext

__all__ = ["Step", "TransformsOp"]


@dataclass(frozen=True, slots=True)
class Step:
    """One transform with its random stream. `last` tells that no later step of the run writes its field."""

    transform: Transform
    name: str
    seed: int
    stage: int
    last: bool


@dataclass(frozen=True, slots=True)
class TransformsOp:
    """Several transforms, one after the other, on each element (or on whole columns when all of them can)."""

    steps: tuple[Step, ...]
    number: int
    blockwise: bool

    @property
    def name(self) -> str:
        return "+".join(step.name for step in self.steps)

    def down(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions

    def up(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        if self._blockwise(block):
            done = self._columns(block, worker, None)
            if done is not None:
                return block.with_columns(*done)
        out: list[Any] = []
        draws = self._draws(block)
        for offset, element in enumerate(block.rows()):
            out.append(self._one(element, offset, draws, worker, None, 0)[0])
        return block.with_rows(out)

    def up_into(self, block: Block, worker: WorkerContext, sink: RowSink, row: int) -> None:
        """Write each element into its row; the last transform of a field writes there itself."""
        if self._blockwise(block) and self._columns_into(block, worker, sink, row):
            return
        draws = self._draws(block)
        for offset, element in enumerate(block.rows()):
            element, done = self._one(element, offset, draws, worker, sink, row + offset)
            sink.put(row + offset, element, done)

    def _one(
        self, element: Any, offset: int, draws: list[list[list[float]]], worker: WorkerContext, sink: RowSink | None, row: int
    ) -> tuple[Any, str | None]:
        """Run the steps on one element; return it and the field that already stands in the batch."""
        number = 0
        done: str | None = None
        try:
            if type(element) is not dict:
                element = _as_dict(element, self.steps[0])
            element = element.copy()
            for number, step in enumerate(self.steps):
                transform = step.transform
                out = sink.row_of(transform.out_field, row) if step.last and sink is not None else None
                scratch = worker.scratch(self.number, number) if out is not None or not step.last else None
                result = transform.apply(element[transform.field], draws[number][offset], scratch, out)
                if out is not None and result is out:
                    done = transform.out_field
                elif step.last and result.base is not None:
                    result = result.copy()  # it may be a view of somebody's scratch
                element[transform.out_field] = result
        except BaseException as error:
            raise ElementFailed(offset, self.steps[number].name, _named(error, element, self.steps[number])) from error
        return element, done

    def _draws(self, block: Block) -> list[list[list[float]]]:
        nothing: list[list[float]] = [[]] * len(block)
        return [self._uniform(step, block).tolist() if step.transform.num_draws else nothing for step in self.steps]

    def _uniform(self, step: Step, block: Block) -> NDArray[np.float64]:
        return kernels.philox_uniform(
            step.seed, step.stage, block.epochs, block.indices, block.lanes, step.transform.num_draws
        )

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

    def _columns(
        self, block: Block, worker: WorkerContext, out: dict[str, NDArray[Any]] | None
    ) -> tuple[Any, list[NDArray[Any]]] | None:
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
                raise ElementFailed(0, step.name, error) from error
            if result is None:
                return None
            if step.last and target is None and result.base is not None:
                result = result.copy()
            columns[transform.out_field] = result
        return structure, [columns[key] for key in structure[1]]

    def _columns_into(self, block: Block, worker: WorkerContext, sink: RowSink, row: int) -> bool:
        structure = block.structure()
        arrays = sink.columns_of(structure, row, len(block))
        targets = None if arrays is None else dict(zip(structure[1], arrays, strict=True))
        done = self._columns(block, worker, targets)
        if done is None:
            return False
        if targets is None or not _stored(structure[1], done[1], targets):
            sink.put_block(row, block.with_columns(*done))
        return True


def _stored(keys: tuple[Any, ...], columns: list[NDArray[Any]], targets: dict[Any, NDArray[Any]]) -> bool:
    """Copy what is not in its place yet; False when something does not fit there."""
    for key, column in zip(keys, columns, strict=True):
        target = targets[key]
        if column is target:
            continue
        if column.shape != target.shape or column.dtype != target.dtype:
            return False
        np.copyto(target, column)
    return True


def _as_dict(element: Any, step: Step) -> dict[str, Any]:
    if isinstance(element, dict):
        return dict(element)
    raise TypeError(f"{step.name} reads the field {step.transform.field!r} of a dict, but the element is a {type(element).__name__}")


def _named(error: BaseException, element: Any, step: Step) -> BaseException:
    """Say which fields there are when the one asked for is missing."""
    if isinstance(error, KeyError) and isinstance(element, dict) and step.transform.field not in element:
        return KeyError(f"{step.name} reads the field {step.transform.field!r}, but the element has {sorted(map(str, element))}")
    return error
