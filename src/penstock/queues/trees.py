"""Elements as users write them: a tuple has components, a dict has named ones, anything else, a list too, is one array-like.

An array-like becomes an array in which every value stays what was written, or it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import ArraySpec, is_masked, sizes_of, spec_of
from penstock.errors import SpecError

__all__ = [
    "MASKED",
    "PLAIN",
    "array_of",
    "batch_of",
    "is_sliceable",
    "kinds_of",
    "masked_error",
    "number_words",
    "pad",
    "slices_of",
    "stack",
]

Stacker = Callable[[Sequence[Any], str], Any]
"""Makes one array of the values of a component, whose name in words is the second argument."""

_OBJECT = np.dtype(object)

MASKED: Final = "masked"
"""Stands for the kind of a masked array."""

PLAIN: Final[dict[type, str]] = {bool: "b", int: "i", float: "f", complex: "c", str: "U", bytes: "S"}
"""The kinds of what Python has of its own."""

_NUMBERS: Final = frozenset("biufc")
_WHOLE: Final = frozenset("iu")
_TEXTS: Final = (frozenset("U"), frozenset("S"))


def slices_of(elements: Any, where: str) -> list[Any]:
    """Return the slices of a tree along dimension 0 of its leaves: views of arrays and of what array-likes become, the items of lists.

    Raises:
        SpecError: a leaf has no dimension 0, or another length than the others.
    """
    elements = _by_position(elements)
    leaves = list(_leaves(elements, ""))
    lengths = {path: _length(leaf, path, where) for path, leaf in leaves}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{path} has {length}" for path, length in lengths.items())
        raise SpecError(f"the first dimensions are not equal: {told}", where=where, fix="give as many slices of every component")
    if not lengths:
        raise SpecError("there is no component to slice", where=where, fix="give arrays, or tuples or dicts of them")
    return [_slice(elements, number) for number in range(next(iter(lengths.values())))]


def batch_of(entries: Sequence[Any], stacker: Stacker, where: str) -> Any:
    """Stack elements of one structure, component by component.

    Raises:
        SpecError: the elements differ in structure, or their leaves in shape or dtype.
    """
    first = entries[0]
    if isinstance(first, dict):
        _same(all(isinstance(entry, dict) and entry.keys() == first.keys() for entry in entries), entries, where)
        return {key: batch_of([entry[key] for entry in entries], stacker, f"{where}, component {key!r}") for key in first}
    if isinstance(first, tuple):
        _same(all(isinstance(entry, tuple) and len(entry) == len(first) for entry in entries), entries, where)
        columns = (batch_of(column, stacker, f"{where}, component {number}") for number, column in enumerate(zip(*entries, strict=True)))
        return tuple(columns) if type(first) is tuple else type(first)(*columns)
    _same(not any(isinstance(entry, (dict, tuple)) for entry in entries), entries, where)
    return stacker(entries, where)


def stack(values: Sequence[Any], where: str) -> Any:
    """Stack leaves of one shape and dtype.

    Raises:
        SpecError: they differ.
    """
    values, specs = _read(values, where)
    if any(spec != specs[0] for spec in specs):
        other = next(spec for spec in specs if spec != specs[0])
        raise SpecError(
            f"elements of {specs[0]} and {other} cannot be stacked to one batch",
            where=where,
            fix="give them one shape and dtype before enqueue, use a PaddingFIFOQueue, or take them one by one; nothing was taken",
        )
    if specs[0].dtype == _OBJECT:
        return _fill(values, sizes_of(specs[0]))
    return np.stack(values) if specs[0].shape else _scalars(values, specs[0].dtype, where)


def pad(values: Sequence[Any], where: str) -> Any:
    """Stack leaves of one rank and dtype; what is shorter than the longest of a dimension is filled with zeros or empty texts at the end.

    Raises:
        SpecError: they differ in rank or dtype.
    """
    values, specs = _read(values, where)
    if any(len(spec.shape) != len(specs[0].shape) or spec.dtype != specs[0].dtype for spec in specs):
        other = next(spec for spec in specs if len(spec.shape) != len(specs[0].shape) or spec.dtype != specs[0].dtype)
        raise SpecError(
            f"elements of {specs[0]} and {other} cannot be padded to one batch",
            where=where,
            fix="give them one number of dimensions and one dtype before enqueue, or take them one by one; nothing was taken",
        )
    shape = tuple(max(lengths) for lengths in zip(*(spec.shape for spec in specs), strict=True))
    if specs[0].dtype == _OBJECT:
        return _fill(values, shape)
    if not shape:
        return _scalars(values, specs[0].dtype, where)
    padded = np.zeros((len(values), *shape), specs[0].dtype)
    for row, (value, spec) in enumerate(zip(values, specs, strict=True)):
        padded[row][tuple(slice(length) for length in spec.shape)] = value
    return padded


def _fill(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Make an array of objects; where an element is too short stands an empty str or bytes, like the others, or None."""
    filled = np.full((len(values), *shape), _empty(values), _OBJECT)
    for row, value in enumerate(values):
        if shape:
            filled[row][tuple(slice(length) for length in value.shape)] = value
        else:
            filled[row] = value
    return filled


def _empty(values: Sequence[Any]) -> Any:
    for value in values:
        for item in value.flat if isinstance(value, np.ndarray) else (value,):
            return type(item)() if isinstance(item, (str, bytes)) else None
    return None


def _read(values: Sequence[Any], where: str) -> tuple[list[Any], list[ArraySpec]]:
    arrays = [_array(value, where) for value in values]
    return arrays, [spec_of(value) for value in arrays]


def _array(value: Any, where: str) -> Any:
    kind = type(value)
    if kind is np.ndarray or kind in PLAIN:
        return value
    if isinstance(value, np.ndarray) and is_masked(value):
        raise masked_error("an element", where)
    if isinstance(value, (np.ndarray, np.generic)) or not (isinstance(value, list) or hasattr(value, "__array__")):
        return value
    return array_of(value, "a list" if kind is list else f"a {kind.__name__}", where)


def _scalars(values: Sequence[Any], dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    try:
        return np.array(values, dtype)
    except OverflowError as error:
        beyond = next(value for value in values if not -(1 << 63) <= value < 1 << 63)
        raise SpecError(
            f"an element is {number_words(beyond)}, which does not fit {dtype.name}",
            where=where,
            fix="declare dtypes=np.uint64 or give floats; the elements are still in, to be taken one by one",
        ) from error


def _by_position(tree: Any) -> Any:
    """Return a tree whose array-likes are arrays: a Series takes a number for a label."""
    if isinstance(tree, dict):
        return {key: _by_position(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        parts = [_by_position(value) for value in tree]
        return tuple(parts) if type(tree) is tuple else type(tree)(*parts)
    return np.asarray(tree) if hasattr(tree, "__array__") and not isinstance(tree, (np.ndarray, np.generic)) else tree


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}[{key!r}]")
    elif isinstance(tree, tuple):
        for number, value in enumerate(tree):
            yield from _leaves(value, f"{path}[{number}]")
    else:
        yield path, tree


def _length(leaf: Any, path: str, where: str) -> int:
    if is_sliceable(leaf):
        return len(leaf)
    raise SpecError(
        f"{path or 'the element'} is a {type(leaf).__name__}, which has no dimension 0",
        where=where,
        fix="give arrays or lists, one slice for each element; enqueue adds a single element",
    )


def _slice(tree: Any, number: int) -> Any:
    if isinstance(tree, dict):
        return {key: _slice(value, number) for key, value in tree.items()}
    if isinstance(tree, tuple):
        parts = [_slice(value, number) for value in tree]
        return tuple(parts) if type(tree) is tuple else type(tree)(*parts)
    return tree[number]


def _same(same: bool, entries: Sequence[Any], where: str) -> None:
    if not same:
        forms = sorted({_form(entry) for entry in entries})
        raise SpecError(
            f"elements of different structure cannot be stacked to one batch: {'; '.join(forms)}",
            where=where,
            fix="give all elements the same components, or take them one by one; nothing was taken",
        )


def _form(entry: Any) -> str:
    if isinstance(entry, dict):
        return f"dict with {sorted(map(repr, entry))}"
    return f"tuple of {len(entry)}" if isinstance(entry, tuple) else f"one {type(entry).__name__}"


def kinds_of(values: list[Any] | tuple[Any, ...]) -> set[str]:
    """Return the kinds of dtype that the items of nested lists have each by itself; "O" for what is no number and no text."""
    kinds: set[str] = set()
    for kind in set(map(type, values)):
        known = PLAIN.get(kind)
        if known is not None:
            kinds.add(known)
        elif issubclass(kind, np.generic):
            kinds.add(np.dtype(kind).kind)
        elif issubclass(kind, (list, tuple)):
            for item in values:
                if type(item) is kind:
                    kinds |= kinds_of(item)
        else:
            kinds.update(MASKED if is_masked(item) else np.asarray(item).dtype.kind for item in values if type(item) is kind)
    return kinds


def array_of(value: Any, subject: str, where: str) -> NDArray[Any]:
    """Return the array of nested lists or of an array-like. Texts become an array of objects; integers int64, or uint64 if they need it.

    Args:
        value: what is to be an array.
        subject: what an error calls it.
        where: likewise.

    Raises:
        SpecError: it has rows of different length, items of different kinds, a mask, or integers that no 64-bit type holds together.
    """
    kinds = kinds_of(value) if isinstance(value, (list, tuple)) else set()
    if MASKED in kinds:
        raise masked_error(subject, where)
    if len(kinds) > 1 and "O" not in kinds and not kinds <= _NUMBERS:
        raise SpecError(
            f"{subject} is {value!r:.60}: items of different kinds have no array in common",
            where=where,
            fix="give items of one kind, or a tuple, whose items are components",
        )
    try:
        array = _texts(value) if kinds in _TEXTS else np.asarray(value)
    except (ValueError, OverflowError, TypeError) as error:
        raise SpecError(f"{subject} cannot become an array: {error}", where=where, fix="give an array, or lists of equal length") from error
    kind = array.dtype.kind
    if kind not in kinds and kinds and kinds <= _NUMBERS and (kind == "O" or (kind not in _WHOLE and kinds <= _WHOLE)):
        return _unsigned(value, subject, where)
    return array


def masked_error(subject: str, where: str) -> SpecError:
    """Return the error of a masked array."""
    return SpecError(
        f"{subject} is a masked array, whose mask would be lost",
        where=where,
        fix="give value.filled(...), and the mask as a component of its own",
    )


def is_sliceable(value: Any) -> bool:
    """Tell whether a value has a dimension 0: a text has none, nor has a set or a mapping, whose items have no number."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, (str, bytes, bytearray, Mapping))


def number_words(number: int) -> str:
    """Return an integer as an error shows it; Python refuses to write very long ones."""
    return str(number) if number.bit_length() <= 128 else f"an int of {number.bit_length()} bits"


def _texts(value: Any) -> NDArray[Any]:
    """Keep texts as they are: NumPy's own would lose the zeros at their ends."""
    array = np.asarray(value, object)
    if any(isinstance(item, (list, tuple, np.ndarray)) for item in array.flat):
        np.asarray(value)  # raises: its rows are not equally long
    return array


def _unsigned(value: Any, subject: str, where: str) -> NDArray[Any]:
    """Return integers of which some are beyond int64, and for which NumPy took floats or objects."""
    numbers = np.asarray(value, object)
    whole = [number for number in numbers.flat if isinstance(number, (int, np.integer))]
    low, high = int(min(whole)), int(max(whole))
    if low < 0 or high >= 1 << 64 or len(whole) < numbers.size:
        beyond = high if high >= 1 << 63 else low
        others = " together with the others" if 0 <= beyond < 1 << 64 else ""
        raise SpecError(
            f"{subject} holds {number_words(beyond)}, which no 64-bit integer holds{others}",
            where=where,
            fix="give smaller numbers, floats, or texts",
        )
    return numbers.astype(np.uint64)
