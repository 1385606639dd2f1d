"""The unit of work: a run of elements with their keys; and what a failing element leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, Structure, unflatten
from penstock._contracts.policy import Policy
from penstock._contracts.source import ColumnSource, RowFailed, TransientSource
from penstock._contracts.transform import Scratch
from penstock.errors import LengthMismatch

__all__ = ["Block", "ElementFailed", "Gathers", "Ints", "Keys", "split", "zeros"]

Ints = NDArray[np.int64]
Keys = tuple[Ints, Ints, NDArray[np.uint64]]
"""Epochs, indices and lanes."""


class ElementFailed(Exception):
    """A user's function, or a read, failed on one element of a block. Internal: the engine unwraps it."""

    def __init__(
        self,
        offset: int,
        stage: str,
        error: BaseException,
        policy: Policy | None = None,
        *,
        element: int | None = None,
        whole: bool = False,
    ) -> None:
        super().__init__(offset, stage, error)
        self.offset = offset
        self.stage = stage
        self.error = error
        self.policy = policy  # of the operator; None for the feed's
        self.element = offset if element is None else element  # in the block, where `offset` is that of an input which gave several
        self.whole = whole  # the block failed as one: which element it was is not known
        self.inner: tuple[int, int] | None = None  # step, and number among the elements that its input gave
        self.key: tuple[int, int, int] | None = None
        self.stalled = False  # it did not fail, it did not end

    def moved(self, offset: int) -> ElementFailed:
        """Return the same failure at another offset, as the block of a parent counts."""
        return ElementFailed(offset, self.stage, self.error, self.policy, whole=self.whole)


def zeros(count: int) -> NDArray[np.uint64]:
    """Return the lanes of elements that need none."""
    return np.zeros(count, np.uint64)


class Gathers(Protocol):
    """What rows can be read from."""

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index; when one cannot be read, `len(rows)` tells which."""


class Block:
    """Elements with their keys, as rows or as columns, or still to be gathered from an array source.

    A key is (epoch, index, lane): the pass, the number in the source, and what tells apart elements that share both.
    """

    __slots__ = (
        "_column_source",
        "_columns",
        "_progress",
        "_rows",
        "_source",
        "_structure",
        "_transient",
        "epochs",
        "indices",
        "lanes",
        "origins",
    )

    def __init__(
        self,
        epochs: Ints,
        indices: Ints,
        lanes: NDArray[np.uint64],
        *,
        rows: list[Any] | None = None,
        source: Gathers | None = None,
        column_source: ColumnSource | None = None,
        transient: TransientSource | None = None,
        columns: tuple[Structure, list[NDArray[Any]]] | None = None,
    ) -> None:
        self.epochs = epochs
        self.indices = indices
        self.lanes = lanes
        self.origins: Ints | None = None  # behind a filter or flat_map: the offset of the input that each element came from
        self._progress: Any = None  # what grows or shrinks with each element: see `begun`
        self._rows = rows
        self._source = source
        self._column_source = column_source
        self._transient = transient
        self._structure: Structure = LEAF if columns is None else columns[0]
        self._columns: list[NDArray[Any]] | None = None if columns is None else columns[1]

    def __len__(self) -> int:
        return len(self.indices)

    def with_rows(self, rows: list[Any]) -> Block:
        """Return other elements under the same keys."""
        return Block(self.epochs, self.indices, self.lanes, rows=rows)

    def with_columns(self, structure: Structure, columns: list[NDArray[Any]]) -> Block:
        """Return other columns under the same keys."""
        return Block(self.epochs, self.indices, self.lanes, columns=(structure, columns))

    def select(self, offsets: Any) -> Block:
        """Return the elements at `offsets` (a slice or an int64 array); rows only."""
        rows = self.rows()
        part = rows[offsets] if isinstance(offsets, slice) else [rows[offset] for offset in offsets.tolist()]
        out = Block(self.epochs[offsets], self.indices[offsets], self.lanes[offsets], rows=part)
        out.origins = None if self.origins is None else self.origins[offsets]
        return out

    def rows(self) -> list[Any]:
        """Return the elements one by one, reading or splitting them now if need be.

        Raises:
            ElementFailed: when the source could not read one of them.
        """
        if self._rows is None:
            if self._columns is not None:
                self._rows = split(self._structure, self._columns)
            else:
                self._rows = self._gather()
        return self._rows

    def each(self) -> Iterator[Any]:
        """Iterate over the elements so that `begun` tells how far it is. Free of cost per element: a list's iterator knows what is left."""
        self._progress = left = iter(self.rows())
        return left

    def key_of(self, offset: int) -> tuple[int, int, int]:
        """Return the key of one element."""
        return int(self.epochs[offset]), int(self.indices[offset]), int(self.lanes[offset])

    @property
    def begun(self) -> int | None:
        """The offset of the element that is being read, or was taken from `each` last; None when that is not known. From any thread."""
        progress = self._progress
        if progress is None or isinstance(progress, int):
            return progress
        count = len(progress) if isinstance(progress, list) else len(self) - length_hint(progress) - 1
        return min(max(count, 0), len(self) - 1)

    @property
    def reading(self) -> bool:
        """Tell whether the source is being asked for elements now."""
        return isinstance(self._progress, list)

    def transient(self, field: str) -> bool:
        """Tell whether `each_transient` can read this block, with `field` in working memory."""
        return self._transient is not None and self._rows is None and self._transient.transient_field == field

    def read_transient(self, offset: int, scratch: Scratch) -> Any:
        """Read one element; its bytes are valid until the next call with this scratch.

        Raises:
            ElementFailed: when the source could not read it.
        """
        assert self._transient is not None
        self._progress = offset
        try:
            return self._transient.read_transient(int(self.indices[offset]), scratch, self.indices[offset + 1 :])
        except BaseException as error:
            raise ElementFailed(offset, "read", error) from error

    def first(self) -> Any:
        """Return the first element of a columnar block, without the others."""
        if self._columns is not None:
            return split(self._structure, [column[:1] for column in self._columns])[0]
        return Block(self.epochs[:1], self.indices[:1], self.lanes[:1], source=self._source).rows()[0]

    @property
    def columnar(self) -> bool:
        """Tell whether `columns` can give whole arrays."""
        return self._rows is None and (self._columns is not None or self._column_source is not None)

    def structure(self) -> Structure:
        """Return the structure of a columnar block's elements."""
        if self._columns is not None or self._column_source is None:
            return self._structure
        return self._column_source.structure()

    def leaf_types(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of each leaf of one element of a columnar block."""
        if self._columns is not None:
            return [(column.shape[1:], column.dtype) for column in self._columns]
        assert self._column_source is not None
        return self._column_source.leaves()

    def columns(self, out: list[NDArray[Any]] | None = None) -> list[NDArray[Any]]:
        """Return one array per leaf, the block's length first; written into `out` when it is given.

        Raises:
            ElementFailed: when the source could not read one of them; `whole` when it does not say which.
        """
        if self._columns is None:
            assert self._column_source is not None
            try:
                return self._column_source.gather_columns(self.indices, out)
            except RowFailed as failed:
                raise ElementFailed(min(failed.row, len(self) - 1), "read", failed.error) from failed.error
            except BaseException as error:
                raise ElementFailed(0, "read", error, whole=True) from error
        if out is None:
            return self._columns
        for target, column in zip(out, self._columns, strict=True):
            np.copyto(target, column)
        return out

    def _gather(self) -> list[Any]:
        assert self._source is not None
        rows: list[Any] = []
        self._progress = rows
        try:
            self._source.gather(self.indices.tolist(), rows)
        except BaseException as error:
            raise ElementFailed(min(len(rows), len(self) - 1), "read", error) from error
        self._progress = None
        if len(rows) != len(self):
            raise ElementFailed(min(len(rows), len(self) - 1), "read", _miscounted(len(rows), len(self)))
        return rows


def _miscounted(num_rows: int, num_asked: int) -> LengthMismatch:
    return LengthMismatch(
        f"the source was asked for {num_asked} elements at once and gave {num_rows}",
        where="gather() of the source",
        fix="let it append one element per index, or raise",
    )


def split(structure: Structure, columns: Sequence[NDArray[Any]]) -> list[Any]:
    """Return the elements that lie in arrays, one leaf each."""
    if structure is LEAF:
        return list(columns[0])
    if structure[0] == "dict" and all(child is LEAF for child in structure[2]):
        keys = structure[1]
        return [dict(zip(keys, leaves, strict=True)) for leaves in zip(*columns, strict=True)]
    return [unflatten(structure, iter(leaves)) for leaves in zip(*columns, strict=True)]
