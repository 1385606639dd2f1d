"""Elements to a batch: the spec that its first element sets, the check of every other one, stacking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import (
    LEAF,
    ArraySpec,
    EmptyList,
    Structure,
    array_of,
    entries_of,
    flatten,
    is_masked,
    items_of,
    kind_of,
    leaf_paths,
    sizes_of,
    spec_of,
    structure_of,
    unflatten,
)
from penstock._system.failing import failure_of, text_of
from penstock.errors import SpecError

Names = Callable[[int], str]
"""Says which element stands in a row, for errors."""

Fits = Callable[[int, ArraySpec, ArraySpec], bool]
"""Tells whether a value may have the first spec where an element before it has the second; the number is that of the leaf."""

_OBJECT = np.dtype(object)
_TEXTS = {str, bytes}
_OWN = {str: _OBJECT, bytes: _OBJECT, int: np.dtype(np.int64), float: np.dtype(np.float64)}
"""The dtypes that values of Python's commonest types are stored as."""
_SHOWN_BITS = 256


class BatchSpec:
    """Structure, shapes and dtypes of one element of a batch."""

    __slots__ = ("_flat_keys", "_flat_kind", "_has_dicts", "_quick", "has_objects", "leaves", "row_bytes", "structure")

    def __init__(self, element: Any, name: Callable[[], str]) -> None:
        """Read the spec off an element.

        Raises:
            SpecError: when a leaf cannot stand in a batch, such as None or an int beyond 64 bits.
        """
        structure, values = structure_of(element), flatten(element)
        leaves = [spec_of(value) for value in values]
        for number, (value, leaf) in enumerate(zip(values, leaves, strict=True)):
            if not can_stand(value, leaf):
                refuse_leaf(value, leaf_paths(structure)[number], f"stage 'batch', element {name()}")
        self._begin(structure, leaves)

    def _begin(self, structure: Structure, leaves: list[ArraySpec]) -> None:
        self.structure = structure
        self.leaves = leaves
        self.has_objects = any(leaf.dtype.hasobject for leaf in leaves)
        self._has_dicts = _has_dicts(structure)
        self._flat_keys: tuple[Any, ...] | None = None
        self._flat_kind: type | None = None  # of a dict or tuple of leaves
        if structure is not LEAF and structure[0] is not list and all(child is LEAF for child in structure[2]):
            self._flat_kind = structure[0]
            if structure[0] == "dict":
                self._flat_kind, self._flat_keys = dict, structure[1]
        # Third, the type of NumPy's scalars that are such a leaf whatever their value: of times and texts unit or length may differ.
        self._quick = [
            (
                leaf.shape,
                None if leaf.dtype == _OBJECT else leaf.dtype,
                None if leaf.shape or leaf.dtype.kind not in "biufc" or not leaf.dtype.isnative else leaf.dtype.type,
                leaf,
            )
            for leaf in leaves
        ]
        self.row_bytes = sum(leaf.dtype.itemsize * int(np.prod(sizes_of(leaf), dtype=np.int64)) for leaf in leaves)

    def __reduce__(self) -> tuple[Any, ...]:
        """Make the dtypes those of the process that reads it: `put` compares them by identity."""
        return _spec_of, (self.structure, [(leaf.shape, leaf.dtype) for leaf in self.leaves])

    def fits(self, element: Any) -> bool:
        """Tell whether an element has the structure, shapes and dtypes of this."""
        return structure_of(element) == self.structure and list(map(spec_of, flatten(element))) == self.leaves

    def place_of(self, field: str) -> int | None:
        """Return the number of the leaf `field` of flat dicts, or None."""
        keys = self._flat_keys
        return keys.index(field) if keys is not None and field in keys else None

    def put(self, arrays: Sequence[NDArray[Any]], row: int, element: Any, done: str | None) -> bool:
        """Write one element into row `row` of `arrays`; False, and nothing useful written, when it does not fit."""
        kind: Any = type(element)
        if kind is not self._flat_kind:
            if self.structure is LEAF:
                return _store(arrays[0], row, element, self.leaves[0])
            if structure_of(element) != self.structure:
                return False
            return all(_store(array, row, value, leaf) for array, value, leaf in zip(arrays, flatten(element), self.leaves, strict=True))
        keys, values = self._flat_keys, element
        if keys is not None:
            if tuple(element) != keys:  # the batch's keys stand in the order of its first element's
                return False
            if done is not None:
                return self._put_others(arrays, row, element, done)
            values = element.values()
        elif len(element) != len(arrays):
            return False
        for value, array, (shape, dtype, scalar, leaf) in zip(values, arrays, self._quick, strict=False):
            kind = type(value)
            if kind is scalar or (kind is np.ndarray and value.dtype is dtype and value.shape == shape):
                array[row] = value
            elif not _store(array, row, value, leaf):
                return False
        return True

    def _put_others(self, arrays: Sequence[NDArray[Any]], row: int, element: Any, done: str) -> bool:
        """Write the fields of a flat dict but `done`, which is written already."""
        fields = zip(element.items(), arrays, self.leaves, strict=True)
        return all(key == done or _store(array, row, value, leaf) for (key, value), array, leaf in fields)

    def put_many(self, arrays: Sequence[NDArray[Any]], row: int, elements: list[Any]) -> bool:
        """Write many elements of scalars, str or bytes, a column at a time; False, with nothing useful written, when it cannot."""
        if any(leaf.shape or leaf.dtype.kind in "mMV" for leaf in self.leaves):  # scalars of one type may differ in unit or size there
            return False
        columns = self._columns_of(elements)
        if columns is None:
            return False
        for array, column, leaf in zip(arrays, columns, self.leaves, strict=True):
            kinds = set(map(type, column))
            if leaf.dtype == _OBJECT:
                if not kinds <= _TEXTS:
                    return False
            elif len(kinds) != 1 or spec_of(column[0]) != leaf or not isinstance(column[0], (int, float, np.generic)):
                return False
            try:
                array[row : row + len(column)] = column
            except OverflowError:  # an int beyond 64 bits: element by element finds out which
                return False
        return True

    def _columns_of(self, elements: list[Any]) -> list[list[Any]] | None:
        if self.structure is LEAF:
            return [elements]
        if set(map(type, elements)) != {self._flat_kind}:
            return None
        if self._flat_keys is not None:
            keys = self._flat_keys
            if any(tuple(element) != keys for element in elements):
                return None
            return [[element[key] for element in elements] for key in keys]
        if {len(element) for element in elements} != {len(self.leaves)}:
            return None
        return [list(column) for column in zip(*elements, strict=True)]

    def ordered(self, element: Any) -> Any:
        """Return the element, its dicts with their keys in the spec's order where they have the same ones."""
        return _ordered(element, self.structure) if self._has_dicts else element

    def difference(self, element: Any) -> str | None:
        """Say how `element` differs, or return None."""
        element = self.ordered(element)
        structure = structure_of(element)
        if structure != self.structure:
            return _two_structures(self.structure, structure)
        for path, value, leaf in zip(leaf_paths(self.structure), flatten(element), self.leaves, strict=True):
            other = spec_of(value)
            if other != leaf:
                return f"{path or 'the element'} is {leaf} in one and {other} in the other"
            if not can_stand(value, leaf):
                return f"{path or 'the element'} {flaw_of(value)[0]}"
        return None


def _has_dicts(structure: Structure) -> bool:
    return structure is not LEAF and (structure[0] == "dict" or any(map(_has_dicts, structure[2])))


def _ordered(tree: Any, structure: Structure) -> Any:
    """Return `tree` with the keys of its dicts in the order of `structure`, as far down as both are alike."""
    if structure is LEAF:
        return tree
    kind, keys, children = structure
    if kind == "dict":
        entries = entries_of(tree)
        if entries is None or entries.keys() != set(keys):
            return tree
        return {key: entries[key] if child is LEAF else _ordered(entries[key], child) for key, child in zip(keys, children, strict=True)}
    if kind_of(tree) is not kind or len(tree) != len(children):
        return tree
    items = list(map(_ordered, tree, children))
    return items if kind is list else tuple(items) if kind is tuple else kind(*items)


def can_stand(value: Any, leaf: ArraySpec) -> bool:
    """Tell whether a value with the spec `leaf` can stand in a batch at all."""
    if leaf.dtype == _OBJECT:
        return isinstance(value, (str, bytes, np.ndarray, np.generic))
    if is_masked(value):  # its mask would be lost
        return False
    return type(value) is not int or -(2**63) <= value < 2**63


def flaw_of(value: Any) -> tuple[str, str]:
    """Say why a value cannot stand in a batch, and what to do."""
    if isinstance(value, list):
        return _flaw_of_list(value)
    if type(value) is not int:
        reason = _no_array(value)
        if reason:
            return (
                f"is a {type(value).__name__} that gives no array: {reason}",
                "return a NumPy array from a map before batch; of a tensor, for example, value.detach().cpu().float().numpy()",
            )
        return (
            f"is a {type(value).__name__}, which cannot stand in a batch",
            "return arrays, numbers, str or bytes from a map, as np.datetime64(date), sparse.toarray(); or give batch a collate_fn",
        )
    return (
        f"= {shown_int(value)} does not fit int64",
        "declare the field as np.uint64 or np.float64 where it is read, or return such a number from a map before batch",
    )


def _no_array(value: Any) -> str:
    """Say why a value with `__array__`, such as a tensor of bfloat16, gives none; "" of any other value."""
    error = failure_of(np.asarray, value) if hasattr(value, "__array__") else None
    return "" if error is None else text_of(error).partition("\n")[0]


def _flaw_of_list(value: list[Any]) -> tuple[str, str]:
    """Say why a list of numbers is no array, and what to do."""
    numbers = items_of(value)
    large = next((number for number in numbers if type(number) is int and not -(2**63) <= number < 2**63), None)
    cast = "return np.array(value, dtype) with the dtype that you mean, such as np.uint64 or np.float64, from a map before batch"
    if large is not None:
        return f"is a list with {shown_int(large)}, which does not fit int64", cast
    try:
        dtype = np.asarray(value).dtype
    except ValueError:
        return (
            "is a list of lists of different lengths, which is no array",
            "join the inner lists to one in a map before, with their lengths as another field, and use ragged_batch; or pad them there",
        )
    rounded = next(number for number in numbers if isinstance(number, (int, np.integer)) and int(dtype.type(number).real) != number)
    return f"is a list with {rounded} among numbers of other types, which {dtype} does not hold as it is", cast


def shown_int(value: int) -> str:
    return str(value) if value.bit_length() <= _SHOWN_BITS else f"an int of {value.bit_length()} bits"


def refuse_leaf(value: Any, path: str, where: str) -> NoReturn:
    """Raise the SpecError for a leaf that cannot stand in a batch."""
    flaw, fix = flaw_of(value)
    raise SpecError(f"{path or 'the element'} {flaw}", where=where, fix=fix)


def _spec_of(structure: Structure, leaves: list[tuple[tuple[int, ...], np.dtype[Any]]]) -> BatchSpec:
    spec = BatchSpec.__new__(BatchSpec)
    # The dtypes that arrays of this process have: a pickled one is another object.
    own = [np.dtype(dtype.type) if dtype.kind in "biufcO" and dtype.isnative else dtype for _, dtype in leaves]
    spec._begin(structure, [ArraySpec(shape, dtype) for (shape, _), dtype in zip(leaves, own, strict=True)])
    return spec


def _store(array: NDArray[Any], row: int, value: Any, leaf: ArraySpec) -> bool:
    kind = type(value)
    if kind is np.ndarray:
        if value.shape != leaf.shape or (value.dtype.kind not in "OUS" if leaf.dtype == _OBJECT else value.dtype != leaf.dtype):
            return False
        array[row, ...] = value
        return True
    if issubclass(kind, np.generic) and kind is leaf.dtype.type and not leaf.shape and value.dtype == leaf.dtype:
        pass
    elif kind in _OWN:
        if leaf.dtype != _OWN[kind] or leaf.shape or (kind is int and not -(2**63) <= value < 2**63):
            return False
    elif isinstance(value, list):
        made = array_of(value)
        # A list that is empty has the dtype of its neighbours, which only the whole batch tells.
        return type(made) is np.ndarray and _store(array, row, made, leaf)
    elif kind is EmptyList or spec_of(value) != leaf or not can_stand(value, leaf):
        return False
    array[row] = value
    return True


def only_texts(columns: Iterable[NDArray[Any]]) -> bool:
    """Tell whether all single objects in columns are str or bytes: of what else may lie there, each element is judged for itself."""
    return all(set(map(type, column)) <= _TEXTS for column in columns if column.dtype == _OBJECT and column.ndim == 1)


def stack_rows(rows: list[Any], names: Names) -> Any:
    """Stack elements into new arrays.

    Raises:
        SpecError: when two of them differ; both are named with `names`.
    """
    spec = BatchSpec(rows[0], lambda: names(0))
    arrays = [np.empty((len(rows), *sizes_of(leaf)), leaf.dtype) for leaf in spec.leaves]
    if all(spec.put(arrays, row, element, None) or spec.put(arrays, row, spec.ordered(element), None) for row, element in enumerate(rows)):
        return unflatten(spec.structure, iter(arrays))
    columns = columns_of_rows(rows, spec, names, lambda number, found, leaf: found.shape == leaf.shape, _EQUAL)
    return unflatten(spec.structure, map(stack_column, columns, spec.leaves))


_EQUAL = (
    "make them equal before batch (resize, crop, cast; drop_remainder=True of window), or use padded_batch or ragged_batch for lengths "
    "that vary, or batch(n, collate_fn=list) for a list of elements as they are, as detection has them"
)


def stack_column(column: list[Any], leaf: ArraySpec) -> NDArray[Any]:
    """Return the values of one leaf, all of its spec, as rows of a new array; the column lets go of them."""
    array = np.empty((len(column), *sizes_of(leaf)), leaf.dtype)
    for row, item in let_go(column):
        write(array, (row,), item)
    return array


def write(array: NDArray[Any], place: tuple[int | slice, ...], value: Any) -> None:
    """Write a value; of an array without dimensions what it holds, in whose place NumPy would put the array itself among objects."""
    array[(*place, ...) if isinstance(value, np.ndarray) else place] = value


def let_go(column: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the items of a column with their numbers; the column lets go of each."""
    for row in range(len(column)):
        item, column[row] = column[row], None
        yield row, item
        del item


def columns_of_rows(rows: list[Any], spec: BatchSpec, names: Names, fits: Fits, fix: str) -> list[list[Any]]:
    """Return the values of each leaf, once every one has the first one's dtype and a shape that `fits`.

    A list that is empty takes the dtype of the first value beside it that is none, and the sizes behind its first dimension; `spec` then
    has what that one has.

    Args:
        rows: the elements of a batch.
        spec: that of the first; changed as said.
        names: say which element stands in a row.
        fits: the rule for shapes.
        fix: what to do about shapes that do not fit.

    Raises:
        SpecError: naming the two elements and the leaf that does not fit.
    """
    columns: list[list[Any]] = [[] for _ in spec.leaves]
    doubtful: set[int] = set()
    for row, given in enumerate(rows):
        element = spec.ordered(given)
        structure = structure_of(element)
        if structure != spec.structure:
            BatchSpec(element, partial(names, row))  # refuses what can stand in no batch
            raise SpecError(
                f"two elements of one batch differ: {_two_structures(spec.structure, structure)}",
                where=f"stage 'batch', element {names(0)} and element {names(row)}",
                fix="make them equal before batch: the same keys, and tuples and lists of the same lengths; only arrays may differ in "
                "length, in padded_batch and ragged_batch, and a list of numbers is one; batch(n, collate_fn=list) gives a list of "
                "elements as they are",
            )
        for number, (column, value) in enumerate(zip(columns, flatten(element), strict=True)):
            found, leaf = spec_of(value), spec.leaves[number]
            if not can_stand(value, found):
                BatchSpec(element, partial(names, row))  # says which field it is
            column.append(value)
            if found.dtype != leaf.dtype or not fits(number, found, leaf):
                doubtful.add(number)
                first = _first_with_dtype(column)
                if first == row:  # beside none but empty lists so far
                    spec.leaves[number] = found
                elif type(value) is not EmptyList:
                    _refuse_value(leaf_paths(spec.structure)[number], column, (first, row), names, fix)
    for number in sorted(doubtful):
        column, leaf = columns[number], spec.leaves[number]
        for row, value in enumerate(column):
            if type(value) is EmptyList:
                column[row] = _beside(value, leaf)
                if not fits(number, spec_of(column[row]), leaf):
                    _refuse_value(leaf_paths(spec.structure)[number], column, (_first_with_dtype(column), row), names, fix)
    return columns


def _first_with_dtype(column: list[Any]) -> int:
    """Return the place of the first value that is no empty list; 0 when all are."""
    return next((row for row, value in enumerate(column) if type(value) is not EmptyList), 0)


def _beside(empty: NDArray[Any], leaf: ArraySpec) -> NDArray[Any]:
    """Return an empty list as an array that stands beside values of a spec."""
    return np.empty((0, *sizes_of(leaf)[1:]) if empty.ndim == 1 and leaf.shape else empty.shape, leaf.dtype)


def _refuse_value(path: str, column: list[Any], rows: tuple[int, int], names: Names, fix: str) -> NoReturn:
    one, other = (spec_of(column[row]) for row in rows)
    if one.dtype != other.dtype:
        numbers = one.dtype.kind in "biufc" and other.dtype.kind in "biufc"
        such = f", such as np.asarray(value, np.{np.result_type(one.dtype, other.dtype).name})" if numbers else ""
        fix = f"make them equal before batch: cast to one dtype in a map{such}"
    raise SpecError(
        f"two elements of one batch differ: {path or 'the element'} is {one} in one and {other} in the other",
        where=f"stage 'batch', element {names(rows[0])} and element {names(rows[1])}",
        fix=fix,
    )


def _two_structures(one: Structure, other: Structure) -> str:
    return f"the structure is {words_of(one)} in one and {words_of(other)} in the other"


def words_of(structure: Structure) -> str:
    """Say a structure in words, such as "{'image': array, 'label': array}"."""
    if structure is LEAF:
        return "array"
    kind, keys, children = structure
    words = list(map(words_of, children))
    if kind == "dict":
        return "{" + ", ".join(map("{!r}: {}".format, keys, words)) + "}"
    return f"[{', '.join(words)}]" if kind is list else f"({', '.join(words)})"
