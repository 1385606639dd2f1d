"""Operators of streams: what keeps, drops or multiplies elements, with the offset of the input of each; what a fold asks of an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import index
from typing import Any, NamedTuple

import numpy as np

from penstock._contracts.element import bytes_of, bytes_of_all, flatten, structure_of, unflatten
from penstock._contracts.policy import Policy
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.operator import OneToOne
from penstock._ops.worker import WorkerContext
from penstock._system.lazy import dataclass
from penstock.errors import SpecError


@dataclass(frozen=True, slots=True)
class FilterOp:
    """Only the elements for which `fn` is true."""

    fn: Callable[[Any], Any]
    name: str
    policy: Policy | None = None

    def filter_step(self, block: Block, origins: Ints) -> tuple[Block, Ints]:
        """Return what is left, and where it came from."""
        kept: list[int] = []
        rows, fn, offset = block.each(), self.fn, 0
        try:
            for offset, row in enumerate(rows):
                if fn(row):
                    kept.append(offset)
        except BaseException as error:
            raise ElementFailed(int(origins[offset]), self.name, error, self.policy, element=offset) from error
        if len(kept) == len(block):
            return block, origins
        chosen = np.array(kept, np.int64)
        return block.select(chosen), origins[chosen]


@dataclass(frozen=True, slots=True)
class FlatMapOp:
    """All elements of `fn(element)`, which returns a list or any iterable."""

    fn: Callable[[Any], Any]
    name: str
    policy: Policy | None = None

    def filter_step(self, block: Block, origins: Ints) -> tuple[Block, Ints]:
        """Return all results, and where each came from. Their lanes tell apart the results of one element."""
        rows: list[Any] = []
        counts: list[int] = []
        elements, fn = block.each(), self.fn
        left = room = block.room - block.num_bytes
        try:
            for row in elements:
                before, results = len(rows), fn(row)
                if isinstance(results, (Mapping, str)):
                    raise SpecError(
                        f"a {type(results).__name__} is no list of elements",
                        where=f"stage {self.name!r}",
                        fix="return a list of elements; of a single one [element], or use map",
                    )
                rows.extend(results)
                counts.append(len(rows) - before)
                left -= bytes_of_all(rows[before:])
                if left < 0 and (len(counts) == len(block) or origins[len(counts)] != origins[len(counts) - 1]):
                    break
        except BaseException as error:
            raise ElementFailed(int(origins[len(counts)]), self.name, error, self.policy, element=len(counts)) from error
        parents = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        numbers = np.arange(len(rows)) - np.cumsum([0, *counts])[parents]
        # The first result of an element stays in its lane, as one to one operators do.
        lanes = block.lanes[parents] * np.uint64(0x9E3779B97F4A7C15) + numbers.astype(np.uint64)
        out = Block(block.epochs[parents], block.indices[parents], lanes, rows=rows)
        out.room, out.num_bytes = block.room, room - left
        out.taken = None if len(counts) == len(block) else len(counts)
        return out, origins[parents]


def rows_of(element: Any) -> list[Any]:
    """Return the rows of an element: every leaf gives up its first dimension."""
    leaves = [_array(leaf) for leaf in flatten(element)]
    structure = structure_of(element)
    lengths = {len(leaf) if isinstance(leaf, np.ndarray) and leaf.ndim else -1 for leaf in leaves}
    if len(lengths) != 1 or -1 in lengths:
        shapes = [getattr(leaf, "shape", type(leaf).__name__) for leaf in leaves]
        raise SpecError(
            f"unbatch needs arrays with equal first dimensions, got {shapes}",
            where="unbatch()",
            fix="unbatch what batch() made, or give every leaf the same first dimension",
        )
    return [unflatten(structure, iter(row)) for row in zip(*leaves, strict=True)]


def _array(leaf: Any) -> Any:
    """Return the array of a tensor, as `spec_of` counts it, and anything else as it is."""
    return np.asarray(leaf) if hasattr(leaf, "__array__") and not isinstance(leaf, np.ndarray) else leaf


# -- what a fold asks of an element -----------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """An element on its way to a fold, with what the fold asks of it."""

    value: Any
    weight: Any


class Gathered(NamedTuple):
    """Elements that a fold put together, and how they lie."""

    values: tuple[Any, ...]
    layout: Any


@dataclass(frozen=True, slots=True)
class WeighOp(OneToOne):
    """Each element with `fn(element)`."""

    fn: Callable[[Any], Any]
    name: str

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        out: list[Any] = []
        append, fn, rows = out.append, self.fn, block.each()
        try:
            for row in rows:
                append(Measured(row, fn(row)))
        except BaseException as error:
            raise ElementFailed(len(out), self.name, error) from error
        return block.with_rows(out, block.num_bytes)


@dataclass(frozen=True, slots=True)
class GatherOp(OneToOne):
    """Each group of elements through `fn(values, layout)`.

    `measure` tells how many of the places of such an element are in use, and how many it has; the worker counts both.
    """

    fn: Callable[[tuple[Any, ...], Any], Any]
    name: str
    measure: Callable[[Any], tuple[int, int]] | None = None

    def apply(self, block: Block, epochs: Ints, positions: Ints, worker: WorkerContext) -> Block:
        out: list[Any] = []
        append, fn, groups = out.append, self.fn, block.each()
        left = room = block.room - block.num_bytes
        try:
            for group in groups:
                append(element := fn(group.values, group.layout))
                left -= bytes_of(element)
                if left < 0:
                    break
        except BaseException as error:
            failed = ElementFailed(len(out), self.name, error)
            failed.final = True  # the elements are good, they only do not fit each other: no policy leaves them out
            raise failed from error
        if self.measure is not None:
            for element in out:
                worker.packed(*self.measure(element))
        return block.with_rows(out, room - left)


def whole_number(value: Any, what: str, limit: int | None, where: str) -> int:
    """Return a user's number as an int in 0..limit-1.

    Raises:
        SpecError: it is another.
    """
    try:
        number = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = -1
    if number < 0 or (limit is not None and number >= limit):
        wanted = "a whole number >= 0" if limit is None else f"a whole number in 0..{limit - 1}"
        raise SpecError(f"{value!r} is not {what}", where=where, fix=f"return {wanted}")
    return number
