"""How the rows of a batch become one element: stacked, padded, or joined as ragged arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, ArraySpec, Structure, flatten, leaf_paths, sizes_of, spec_of, structure_of, unflatten
from penstock._ops.padding import fill_for, shapes_of, values_of
from penstock._ops.stack import BatchSpec, Names, can_stand, refuse_row, stack_rows, words_of
from penstock.errors import SpecError

__all__ = ["Collation", "Pad", "Ragged", "Stack"]

_OBJECT = np.dtype(object)


class Collation(Protocol):
    """How rows are collated. Frozen; shared by all workers."""

    @property
    def words(self) -> str:
        """Say it for `explain`."""

    @property
    def in_place(self) -> bool:
        """Tell whether the shape of a batch is known from one of its rows, so that workers may write theirs before the others are done."""

    def collate(self, rows: list[Any], names: Names) -> Any:
        """Make one element of all rows of a batch (at least one). Raises SpecError when two of them do not fit each other."""


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
        columns = _columns(rows, spec, names, lambda number, found, leaf: len(found.shape) == len(leaf.shape))
        out = [_pad_leaf(number, column, spec, shapes[number], values[number], names) for number, column in enumerate(columns)]
        return unflatten(spec.structure, iter(out))


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

        columns = _columns(rows, spec, names, fits)
        out = [(_join if ragged[number] else _stack)(column, spec.leaves[number]) for number, column in enumerate(columns)]
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


def _columns(rows: list[Any], spec: BatchSpec, names: Names, fits: Callable[[int, ArraySpec, ArraySpec], bool]) -> list[list[Any]]:
    """Return the values of each leaf, once every one has the first one's dtype and a shape that `fits`.

    Raises:
        SpecError: naming the two elements and the leaf that does not fit.
    """
    columns: list[list[Any]] = [[] for _ in spec.leaves]
    for row, given in enumerate(rows):
        element = spec.ordered(given)
        if structure_of(element) != spec.structure:
            refuse_row(spec, 0, row, element, names)
        for number, (column, value) in enumerate(zip(columns, flatten(element), strict=True)):
            found, leaf = spec_of(value), spec.leaves[number]
            if not can_stand(value, found):
                BatchSpec(element, lambda row=row: names(row))  # type: ignore[misc]  # says which field it is
            if found.dtype != leaf.dtype or not fits(number, found, leaf):
                path = leaf_paths(spec.structure)[number] or "the element"
                raise SpecError(
                    f"two elements of one batch differ: {path} is {leaf} in one and {found} in the other",
                    where=f"stage 'batch', element {names(0)} and element {names(row)}",
                    fix="cast to one dtype and number of dimensions in a map before; only sizes may differ: any of them for padded_batch, "
                    "the first of its ragged fields for ragged_batch",
                )
            column.append(value)
    return columns


def _stack(column: list[Any], leaf: ArraySpec) -> NDArray[Any]:
    array = np.empty((len(column), *sizes_of(leaf)), leaf.dtype)
    for row, item in enumerate(column):
        array[row] = item
    return array


def _join(column: list[Any], leaf: ArraySpec) -> dict[str, NDArray[Any]]:
    splits = np.zeros(len(column) + 1, np.int64)
    np.cumsum([len(item) for item in column], out=splits[1:])
    values = np.empty((int(splits[-1]), *sizes_of(leaf)[1:]), leaf.dtype)
    borders = splits.tolist()
    for row, item in enumerate(column):
        values[borders[row] : borders[row + 1]] = item
    return {"values": values, "row_splits": splits}


def _pad_leaf(
    number: int,
    column: list[Any],
    spec: BatchSpec,
    wanted: Sequence[int | None] | None,
    value: Any,
    names: Names,
) -> NDArray[Any]:
    leaf = spec.leaves[number]
    found = [sizes_of(spec_of(item)) for item in column]
    longest = tuple(max(sizes) for sizes in zip(*found, strict=True)) if leaf.shape else ()
    if wanted is not None:
        longest = _fit(number, wanted, found, longest, spec, names)
    array = np.empty((len(column), *longest), leaf.dtype)
    if leaf.shape:
        array[...] = _fill(number, value, spec)
    for row, item in enumerate(column):
        corner: tuple[int | slice, ...] = (row, *(slice(0, size) for size in found[row]))
        array[corner] = item
    return array


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
