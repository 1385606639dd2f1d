"""How the rows of a batch become one element: stacked, padded, or joined as ragged arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, ArraySpec, Structure, leaf_paths, sizes_of, spec_of, unflatten
from penstock._ops.padding import fill_for, shapes_of, values_of
from penstock._ops.stack import BatchSpec, Names, columns_of_rows, let_go, stack_column, stack_rows, words_of
from penstock.errors import SpecError

__all__ = ["Collate", "Collation", "Pad", "Ragged", "Stack"]

_OBJECT = np.dtype(object)
_ONLY_SIZES = (
    "give both the same number of dimensions in a map before; only sizes may differ: any of them for padded_batch, the first of its ragged "
    "fields for ragged_batch"
)
_AT_ONCE = 1 << 20  # bytes of padding that are written before the items


class Collation(Protocol):
    """How rows are collated. Frozen; shared by all workers."""

    @property
    def words(self) -> str:
        """Say it for `explain`."""

    @property
    def in_place(self) -> bool:
        """Tell whether the shape of a batch is known from one of its rows, so that workers may write theirs before the others are done."""

    def collate(self, rows: list[Any], names: Names) -> Any:
        """Make one element of all rows of a batch (at least one). Raises SpecError when two of them do not fit each other.

        `rows` may be emptied once all of them fit: then each is let go when it is copied, and large ones do not lie in memory twice.
        """


@dataclass(frozen=True, slots=True)
class Stack:
    """Equal shapes along a new first dimension."""

    @property
    def words(self) -> str:
        return "rows written straight into recycled batch slots"

    @property
    def in_place(self) -> bool:
        return True

    def collate(self, rows: list[Any], names: Names) -> Any:
        return stack_rows(rows, names)


@dataclass(frozen=True, slots=True)
class Collate:
    """What a function of the user's makes of a list of rows."""

    fn: Callable[[list[Any]], Any]

    @property
    def words(self) -> str:
        return "batches made by collate_fn"

    @property
    def in_place(self) -> bool:
        return False

    def collate(self, rows: list[Any], names: Names) -> Any:
        return self.fn(rows)


@dataclass(frozen=True, slots=True)
class Pad:
    """Leaves that differ in length, each dimension padded to the longest of the batch or to what `shapes` says.

    `shapes` and `values` are None or a tree of the elements' structure, `values` also one for all leaves. A shape may hold None or -1 for
    "the longest of this batch", and one that is left out is None.
    """

    shapes: Any = None
    values: Any = None

    @property
    def words(self) -> str:
        return "padded batches"

    @property
    def in_place(self) -> bool:
        return False

    def collate(self, rows: list[Any], names: Names) -> Any:
        spec = BatchSpec(rows[0], lambda: names(0))
        shapes, values = shapes_of(self.shapes, spec.structure), values_of(self.values, spec.structure)
        columns = columns_of_rows(rows, spec, names, lambda number, found, leaf: len(found.shape) == len(leaf.shape), _ONLY_SIZES)
        shaped = [_padded(number, column, spec, shapes[number], values[number], names) for number, column in enumerate(columns)]
        rows.clear()
        for column, (array, fill) in zip(columns, shaped, strict=True):
            _pad_into(array, column, fill)
        return unflatten(spec.structure, (array for array, _ in shaped))


@dataclass(frozen=True, slots=True)
class Ragged:
    """Leaves of `fields` joined along their first dimension, which may differ; the others stacked.

    A field is a key of the elements' dict, or a place in their tuple or list; None stands for every leaf that has a first dimension. A
    joined leaf is {"values": all rows one after the other, "row_splits": int64 array of n + 1 borders in it}.
    """

    fields: tuple[str | int, ...] | None = None

    @property
    def words(self) -> str:
        return "ragged batches"

    @property
    def in_place(self) -> bool:
        return False

    def collate(self, rows: list[Any], names: Names) -> Any:
        spec = BatchSpec(rows[0], lambda: names(0))
        ragged = self._ragged_leaves(spec, names)

        def fits(number: int, found: ArraySpec, leaf: ArraySpec) -> bool:
            free = 1 if ragged[number] else 0
            return len(found.shape) == len(leaf.shape) and found.shape[free:] == leaf.shape[free:]

        columns = columns_of_rows(rows, spec, names, fits, _ONLY_SIZES)
        rows.clear()
        out = [(_join if ragged[number] else stack_column)(column, spec.leaves[number]) for number, column in enumerate(columns)]
        return unflatten(spec.structure, iter(out))

    def _ragged_leaves(self, spec: BatchSpec, names: Names) -> list[bool]:
        """Tell of each leaf whether it is joined."""
        if self.fields is None:
            return [bool(leaf.shape) for leaf in spec.leaves]
        tops = _tops(spec.structure)
        for field in self.fields:
            if field not in tops:
                raise SpecError(
                    f"ragged names the field {field!r}, but the element is {words_of(spec.structure)}",
                    where=f"stage 'ragged_batch', element {names(0)}",
                    fix="name keys of the element's dict, or places in its tuple; leave ragged out to join every array",
                )
        for top, leaf, path in zip(tops, spec.leaves, leaf_paths(spec.structure), strict=True):
            if top in self.fields and not leaf.shape:
                raise SpecError(
                    f"{path} is {leaf}, which has no first dimension to join along",
                    where=f"stage 'ragged_batch', element {names(0)}",
                    fix="name only fields that are arrays in ragged=; numbers and texts are stacked",
                )
        return [top in self.fields for top in tops]


def _tops(structure: Structure) -> list[Any]:
    """Return the key or place in the whole element that each leaf belongs to; None for a bare leaf."""
    if structure is LEAF:
        return [None]
    keys = structure[1] if structure[0] == "dict" else range(len(structure[-1]))
    return [key for key, child in zip(keys, structure[-1], strict=True) for _ in leaf_paths(child)]


def _join(column: list[Any], leaf: ArraySpec) -> dict[str, NDArray[Any]]:
    splits = np.zeros(len(column) + 1, np.int64)
    np.cumsum([len(item) for item in column], out=splits[1:])
    values = np.empty((int(splits[-1]), *sizes_of(leaf)[1:]), leaf.dtype)
    borders = splits.tolist()
    for row, item in let_go(column):
        values[borders[row] : borders[row + 1]] = item
    return {"values": values, "row_splits": splits}


def _padded(
    number: int,
    column: list[Any],
    spec: BatchSpec,
    wanted: Sequence[int | None] | None,
    value: Any,
    names: Names,
) -> tuple[NDArray[Any], Any]:
    """Return an array for a padded leaf, and what is to stand where no element does."""
    leaf = spec.leaves[number]
    found = [sizes_of(spec_of(item)) for item in column]
    longest = tuple(max(sizes) for sizes in zip(*found, strict=True)) if leaf.shape else ()
    if wanted is not None:
        longest = _fit(number, wanted, found, longest, spec, names)
    return np.empty((len(column), *longest), leaf.dtype), _fill(number, value, spec) if leaf.shape else None


def _pad_into(array: NDArray[Any], column: list[Any], fill: Any) -> None:
    at_once = array.ndim > 1 and array.nbytes <= _AT_ONCE
    if at_once:
        array[...] = fill
    for row, item in let_go(column):
        if array.ndim > 1 and not at_once:
            array[row] = fill  # now: its pages take the place of the items before
        corner: tuple[int | slice, ...] = (row, *(slice(0, size) for size in sizes_of(spec_of(item))))
        array[corner] = item


def _fill(number: int, value: Any, spec: BatchSpec) -> Any:
    dtype = spec.leaves[number].dtype
    if value is None:
        return None if dtype == _OBJECT else 0
    fill = fill_for(value, dtype)
    if fill is None:
        path = leaf_paths(spec.structure)[number] or "the element"
        raise SpecError(
            f"padding_values gives {path} {value!r:.60}, which {dtype} does not hold as it is",
            where="padded_batch()",
            fix="give a value of the field's dtype, with a tree like the element where fields differ; or cast the field in a map before",
        )
    return fill


def _fit(
    number: int,
    wanted: Sequence[int | None],
    found: list[tuple[int, ...]],
    longest: tuple[int, ...],
    spec: BatchSpec,
    names: Names,
) -> tuple[int, ...]:
    path = leaf_paths(spec.structure)[number] or "the element"
    if len(wanted) != len(longest):
        raise SpecError(
            f"padded_shapes gives {path} {len(wanted)} dimensions, but it has {len(longest)}",
            where=f"stage 'padded_batch', element {names(0)}",
            fix="give one size per dimension, None for the longest of the batch",
        )
    sizes = tuple(size if want in (None, -1) else int(want) for want, size in zip(wanted, longest, strict=True))
    for row, shape in enumerate(found):
        if any(have > size for have, size in zip(shape, sizes, strict=True)):
            raise SpecError(
                f"{path} has shape {list(shape)}, longer than the padded shape {list(sizes)}",
                where=f"stage 'padded_batch', element {names(row)}",
                fix="cut it in a map before padded_batch, or give a larger padded_shapes",
            )
    return sizes
