"""Rows of one or several batches under construction, filled by several workers at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import Structure, bytes_of, sizes_of, unflatten
from penstock._ops.block import UNLIMITED, Block, ElementFailed
from penstock._ops.collation import Collation, Stack
from penstock._ops.stack import BatchSpec, only_texts
from penstock.errors import SpecError

Allocate = Callable[[Sequence[tuple[tuple[int, ...], np.dtype[Any]]]], list[NDArray[Any]] | None]
"""Makes arrays of the given shapes and dtypes over one buffer; None when there is no room for them: rows are then kept beside."""

_SMALL_BYTES = 64


class Rows:
    """The rows of a chunk.

    The first finished element, or the chunk before, sets the spec that is expected of all. What does not fit it is kept beside and judged
    when all rows are there, so that the outcome does not depend on which was first.

    Thread-safe for different rows.
    """

    __slots__ = (
        "_allocate",
        "_arrays",
        "_beside",
        "_collation",
        "_expected_spec",
        "_in_place",
        "_largest",
        "_lock",
        "_most_bytes",
        "_names",
        "_num_rows",
        "_sizes",
    )

    def __init__(
        self,
        sizes: Sequence[int],
        expected_spec: BatchSpec | None,
        allocate: Allocate,
        names: Callable[[int], str],
        collation: Collation,
        lock: AbstractContextManager[Any] | None = None,
        most_bytes: int = UNLIMITED,
    ) -> None:
        """Prepare for batches of the given sizes.

        Args:
            sizes: rows of each batch.
            expected_spec: the spec of the chunk before, or None.
            allocate: gives the memory.
            names: says which element stands in a row, for errors.
            collation: what becomes of the rows of a batch.
            lock: held while the arrays are made; None when one thread writes.
            most_bytes: of arrays for several batches; where they would be larger, all rows are kept beside.
        """
        self._sizes = sizes
        self._num_rows = sum(sizes)
        self._expected_spec = expected_spec
        self._allocate = allocate
        self._names = names
        self._collation = collation
        self._in_place = collation.in_place
        self._arrays: list[NDArray[Any]] | None = None
        self._beside: dict[int, Any] = {}
        self._largest = 0
        self._lock = lock or nullcontext()
        self._most_bytes = most_bytes

    @property
    def spec(self) -> BatchSpec | None:
        """The spec that the rows of the next chunk are expected to have, once known."""
        if self._in_place and len(self._beside) == self._num_rows:  # another process wrote none of them: they have changed
            with suppress(SpecError):
                return BatchSpec(self._beside[0], lambda: self._names(0))
        return self._expected_spec

    @property
    def beside(self) -> bool:
        """Tell whether some rows are kept beside the arrays: then a batch is made of them in memory of its own."""
        return bool(self._beside)

    @property
    def batch_bytes(self) -> int:
        """What a batch of all rows that are kept beside may take at most, at its end."""
        return len(self._beside) * self._largest

    @property
    def small(self) -> bool:
        """Tell whether elements are known to be small."""
        return self._expected_spec is not None and self._expected_spec.row_bytes <= _SMALL_BYTES

    def memory(self) -> tuple[BatchSpec, list[NDArray[Any]]] | None:
        """Return what another process writes rows with, and into; None where there are none yet, or rows are kept beside."""
        arrays = self._open(None, 0) if self._expected_spec is not None and self._in_place else None
        return (self._expected_spec, arrays) if self._expected_spec is not None and arrays else None

    def merge(self, begin: int, columns: Sequence[NDArray[Any] | None], beside: dict[int, Any]) -> int:
        """Put what another process could not write: rows of fields from row `begin` on, and rows; return the bytes of rows kept beside."""
        for array, rows in zip(self._arrays or (), columns, strict=False):
            if rows is not None:
                array[begin : begin + len(rows)] = rows
        return sum(self.put(row, element) for row, element in beside.items())

    def put(self, row: int, element: Any, done: str | None = None) -> int:
        """Write one element, or keep it beside the arrays; return the bytes of one that is kept."""
        if self._in_place:
            arrays = self._try_open(element, row)
            if arrays is not None and self._expected_spec is not None and self._expected_spec.put(arrays, row, element, done):
                return 0
        self._beside[row] = element
        num_bytes = bytes_of(element)
        self._largest = max(self._largest, num_bytes)
        return num_bytes

    def put_rows(self, row: int, elements: list[Any]) -> int:
        """Write several elements from `row` on; return the bytes of those that are kept beside the arrays."""
        if self._in_place and elements:
            arrays = self._try_open(elements[0], row)
            if arrays is not None and self._expected_spec is not None and self._expected_spec.put_many(arrays, row, elements):
                return 0
        return sum(self.put(row + offset, element) for offset, element in enumerate(elements))

    def put_block(self, row: int, block: Block) -> int:
        """Write a whole block from `row` on, column by column where it has columns; return as `put_rows`."""
        if self._in_place and block.columnar:
            arrays = self.columns_of(block.structure(), row, len(block))
            if arrays is None and self._expected_spec is None:
                self._try_open(block.first(), row)
                arrays = self.columns_of(block.structure(), row, len(block))
            types = block.leaf_types()
            if arrays is not None and all(
                array.shape[1:] == shape and array.dtype == dtype for array, (shape, dtype) in zip(arrays, types, strict=True)
            ):
                block.columns(arrays)
                if only_texts(arrays):
                    return 0
        if block.unread and not self.small and self._expected_spec is not None and not self._expected_spec.has_objects:
            return block.read_into(self.put, row)  # texts would be held, and not counted
        return self.put_rows(row, block.rows())

    def array_of(self, field: str) -> NDArray[Any] | None:
        """Return the array of a field of flat dicts, or None when it is not known."""
        if self._expected_spec is None or not self._in_place:
            return None
        place = self._expected_spec.place_of(field)
        arrays = None if place is None else self._open(None, 0)
        return None if arrays is None or place is None else arrays[place]

    def columns_of(self, structure: Structure, row: int, count: int) -> list[NDArray[Any]] | None:
        """Return the rows of every leaf, or None when no spec is known or it is another one."""
        if self._expected_spec is None or not self._in_place or self._expected_spec.structure != structure:
            return None
        arrays = self._open(None, row)
        return None if arrays is None else [array[row : row + count] for array in arrays]

    def finish(
        self,
        num_batches: int,
        bad: dict[int, ElementFailed] | None = None,
        *,
        missing: Collection[int] = (),
        collation: Collation | None = None,
    ) -> list[Any]:
        """Return the first `num_batches` batches, in order, without their `missing` rows; None for one that has no row left.

        All other rows must have been put. `collation` takes the place of its own.

        With `bad`, it gets the failures of batches that have elements which do not fit each other, and None takes their places.

        Raises:
            ElementFailed: with the offset of such a batch, without `bad`.
        """
        out: list[Any] = []
        start = 0
        self._collation = collation or self._collation
        for number, size in enumerate(self._sizes[:num_batches]):
            try:
                out.append(self._checked_batch(number, start, size, missing))
            except ElementFailed as failed:
                if bad is None:
                    raise
                bad[number] = failed
                out.append(None)
            start += size
        return out

    def _checked_batch(self, number: int, start: int, size: int, missing: Collection[int]) -> Any:
        kept = [row for row in range(start, start + size) if row not in missing] if missing else range(start, start + size)
        try:
            return self._batch(start, size) if len(kept) == size else self._short_batch(list(kept)) if kept else None
        except Exception as error:
            failed = ElementFailed(number, "batch", error)
            failed.final = True  # its elements are good: no policy leaves them out
            raise failed from error

    def _short_batch(self, kept: list[int]) -> Any:
        """Return the batch of some rows, in memory of its own."""
        if self._arrays is not None and self._expected_spec is not None and not any(row in self._beside for row in kept):
            return unflatten(self._expected_spec.structure, iter([array[kept] for array in self._arrays]))
        rows = [self._beside[row] if row in self._beside else self._element(row) for row in kept]
        return self._collation.collate(rows, lambda place: self._names(kept[place]))

    def _batch(self, start: int, size: int) -> Any:
        rows = [self._beside.get(row, self) for row in range(start, start + size)] if self._beside else []
        if not any(element is not self for element in rows):
            assert self._arrays is not None
            assert self._expected_spec is not None
            whole = len(self._sizes) == 1 and size == self._num_rows
            leaves = self._arrays if whole else [array[start : start + size] for array in self._arrays]
            return unflatten(self._expected_spec.structure, iter(leaves))

        def names(row: int) -> str:
            return self._names(start + row)

        for row, element in enumerate(rows):
            if element is self:
                rows[row] = self._element(start + row)
        if len(self._sizes) > 1:
            return self._collation.collate(rows, names)
        self._beside = {}  # the only batch: its rows are let go while it is made
        try:
            return self._collation.collate(rows, names)
        except BaseException:
            self._beside = dict(enumerate(rows))
            raise

    def _element(self, row: int) -> Any:
        assert self._arrays is not None
        assert self._expected_spec is not None
        return unflatten(self._expected_spec.structure, iter([array[row] for array in self._arrays]))

    def _try_open(self, element: Any, row: int) -> list[NDArray[Any]] | None:
        """Return the arrays, or None for a first element that cannot stand in a batch: it is judged when the batch is complete."""
        try:
            return self._open(element, row)
        except SpecError:
            return None

    def _open(self, element: Any, row: int) -> list[NDArray[Any]] | None:
        arrays = self._arrays
        if arrays is not None:
            return arrays
        with self._lock:
            if self._arrays is None:
                if self._expected_spec is None or (element is not None and not self._expected_spec.fits(element)):
                    self._expected_spec = BatchSpec(element, lambda: self._names(row))  # from here on others are as large, perhaps
                if len(self._sizes) > 1 and self._num_rows * self._expected_spec.row_bytes > self._most_bytes:
                    self._in_place = False
                    return None
                leaves = self._expected_spec.leaves
                plain = [((self._num_rows, *sizes_of(leaf)), leaf.dtype) for leaf in leaves if not leaf.dtype.hasobject]
                memory = self._allocate(plain) if plain else []
                if memory is None:
                    self._in_place = False
                    return None
                given = iter(memory)
                self._arrays = [
                    np.empty((self._num_rows, *sizes_of(leaf)), leaf.dtype) if leaf.dtype.hasobject else next(given) for leaf in leaves
                ]
            return self._arrays


class RowsElsewhere(Rows):
    """Rows of a chunk of another process: written into its memory, or kept for it."""

    __slots__ = ("_returned",)

    def __init__(self, num_rows: int, spec: BatchSpec | None, arrays: list[NDArray[Any]] | None, returned: Sequence[bool] = ()) -> None:
        """Write rows with `spec` into `arrays`; None keeps all. `returned` tells which arrays the other process has to be sent."""
        super().__init__([num_rows], spec, lambda leaves: None, str, Stack())
        self._arrays = arrays
        self._in_place = arrays is not None
        self._returned = returned

    @property
    def beside_rows(self) -> dict[int, Any]:
        """The rows that were not written into the arrays."""
        return self._beside

    def columns(self, begin: int, end: int) -> list[NDArray[Any] | None]:
        """Return rows of the arrays that the other process has to be sent; None for others. Nothing when it has to be sent none."""
        if not any(self._returned):
            return []
        return [array[begin:end] if returned else None for array, returned in zip(self._arrays or (), self._returned, strict=True)]
