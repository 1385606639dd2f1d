"""What a fold needs to know of an element, found by the workers: user code never runs where the folds do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

from penstock._contracts.element import bytes_of
from penstock._ops.block import Block, ElementFailed, Ints
from penstock._ops.worker import WorkerContext
from penstock.errors import SpecError

__all__ = ["GatherOp", "Gathered", "Measured", "WeighOp", "whole_number"]


class Measured(NamedTuple):
    """An element on its way to a fold, with what the fold asks of it."""

    value: Any
    weight: Any


class Gathered(NamedTuple):
    """Elements that a fold put together, and how they lie."""

    values: tuple[Any, ...]
    layout: Any


class _OneToOne:
    """An operator that leaves positions alone."""

    __slots__ = ()

    def source_positions(self, epochs: Ints, positions: Ints) -> tuple[Ints, Ints]:
        return epochs, positions


@dataclass(frozen=True, slots=True)
class WeighOp(_OneToOne):
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
class GatherOp(_OneToOne):
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
