"""Rows of one or several batches under construction, filled by several workers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import Structure, sizes_of, unflatten
from penstock._ops.block import Block, ElementFailed, split
from penstock._ops.collation import Collation
from penstock._ops.stack import BatchSpec, only_texts
from penstock.errors import SpecError

__all__ = ["Allocate", "Rows"]

Allocate = Callable[[Sequence[tuple[tuple[int, ...], np.dtype[Any]]]], list[NDArray[Any]]]
"""Makes arrays of the given shapes and dtypes over one buffer."""

_SMALL_BYTES = 64


class Rows:
    """The rows of a unit.

    The first finished element, or the unit before, sets the guess of their spec; what does not fit it is kept aside and judged when all
    rows are there, so that the outcome does not depend on who was first.

    Thread-safe for different rows.
    """

    __slots__ = ("_allocate", "_arrays", "_collation", "_guess", "_in_place", "_lock", "_loose", "_names", "_num_rows", "_sizes")

    def __init__(
        self,
        sizes: Sequence[int],
        guess: BatchSpec | None,
        allocate: Allocate,
        names: Callable[[int], str],
        collation: Collation,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Prepare for batches of the given sizes.

        Args:
            sizes: rows of each batch.
            guess: the spec of the unit before, or None.
            allocate: gives the memory.
            names: says which element stands in a row, for errors.
            collation: what becomes of the rows of a batch.
            lock: held while the arrays are made; None when one thread writes.
        """
        self._sizes = sizes
        self._num_rows = sum(sizes)
        self._guess = guess
        self._allocate = allocate
        self._names = names
        self._collation = collation
        self._in_place = collation.in_place
        self._arrays: list[NDArray[Any]] | None = None
        self._loose: dict[int, Any] = {}
        self._lock = lock or nullcontext()

    @property
    def spec(self) -> BatchSpec | None:
        """The spec that rows are written with, once known."""
        return self._guess

    @property
    def small(self) -> bool:
        """Tell whether elements are known to be small."""
        return self._guess is not None and self._guess.row_bytes <= _SMALL_BYTES

    def put(self, row: int, element: Any, done: str | None = None) -> None:
        """Write one element."""
        if not self._in_place:
            self._loose[row] = element
            return
        arrays = self._try_open(element, row)
        if arrays is None or self._guess is None or not self._guess.put(arrays, row, element, done):
            self._loose[row] = element

    def put_rows(self, row: int, elements: list[Any]) -> None:
        """Write several elements from `row` on."""
        if self._in_place and elements:
            arrays = self._try_open(elements[0], row)
            if arrays is not None and self._guess is not None and self._guess.put_many(arrays, row, elements):
                return
        for offset, element in enumerate(elements):
            self.put(row + offset, element)

    def put_block(self, row: int, block: Block) -> None:
        """Write a whole block from `row` on, column by column where it has columns."""
        if self._in_place and block.columnar:
            arrays = self.columns_of(block.structure(), row, len(block))
            if arrays is None and self._guess is None:
                self._try_open(block.first(), row)
                arrays = self.columns_of(block.structure(), row, len(block))
            types = block.leaf_types()
            if arrays is not None and all(
                array.shape[1:] == shape and array.dtype == dtype for array, (shape, dtype) in zip(arrays, types, strict=True)
            ):
                block.columns(arrays)
                if only_texts(arrays):
                    return
        self.put_rows(row, block.rows())

    def array_of(self, field: str) -> NDArray[Any] | None:
        """Return the array of a field of flat dicts, or None when it is not known."""
        if self._guess is None or not self._in_place:
            return None
        place = self._guess.place_of(field)
        return None if place is None else self._open(None, 0)[place]

    def columns_of(self, structure: Structure, row: int, count: int) -> list[NDArray[Any]] | None:
        """Return the rows of every leaf, or None when no spec is known or it is another one."""
        if self._guess is None or not self._in_place or self._guess.structure != structure:
            return None
        return [array[row : row + count] for array in self._open(None, row)]

    def finish(self, num_batches: int) -> list[Any]:
        """Return the first `num_batches` batches, in order. All their rows must have been put.

        Raises:
            ElementFailed: with the offset of a batch that has elements which do not fit each other.
        """
        out: list[Any] = []
        start = 0
        for number, size in enumerate(self._sizes[:num_batches]):
            try:
                out.append(self._batch(start, size))
            except Exception as error:
                raise ElementFailed(number, "batch", error) from error
            start += size
        return out

    def elements(self) -> list[Any]:
        """Return the elements of all rows again: of what was written into arrays, views. A row that was never put has any element."""
        if self._arrays is None or self._guess is None:
            return [self._loose.get(row) for row in range(self._num_rows)]
        out = split(self._guess.structure, self._arrays)
        for row, element in self._loose.items():
            out[row] = element
        return out

    def _batch(self, start: int, size: int) -> Any:
        loose = [self._loose.get(row, self) for row in range(start, start + size)] if self._loose else []
        if not any(element is not self for element in loose):
            assert self._arrays is not None
            assert self._guess is not None
            whole = len(self._sizes) == 1 and size == self._num_rows
            leaves = self._arrays if whole else [array[start : start + size] for array in self._arrays]
            return unflatten(self._guess.structure, iter(leaves))

        def names(row: int) -> str:
            return self._names(start + row)

        for row, element in enumerate(loose):
            if element is self:
                loose[row] = self._element(start + row)
        return self._collation.collate(loose, names)

    def _element(self, row: int) -> Any:
        assert self._arrays is not None
        assert self._guess is not None
        return unflatten(self._guess.structure, iter([array[row] for array in self._arrays]))

    def _try_open(self, element: Any, row: int) -> list[NDArray[Any]] | None:
        """Return the arrays, or None for a first element that cannot stand in a batch: it is judged when the batch is complete."""
        try:
            return self._open(element, row)
        except SpecError:
            return None

    def _open(self, element: Any, row: int) -> list[NDArray[Any]]:
        arrays = self._arrays
        if arrays is not None:
            return arrays
        with self._lock:
            if self._arrays is None:
                if self._guess is None:
                    self._guess = BatchSpec(element, lambda: self._names(row))
                leaves = self._guess.leaves
                plain = [((self._num_rows, *sizes_of(leaf)), leaf.dtype) for leaf in leaves if not leaf.dtype.hasobject]
                given = iter(self._allocate(plain) if plain else [])
                self._arrays = [
                    np.empty((self._num_rows, *sizes_of(leaf)), leaf.dtype) if leaf.dtype.hasobject else next(given) for leaf in leaves
                ]
            return self._arrays
