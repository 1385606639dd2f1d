"""Elements as users write them, the declared components of a queue's elements, and checks of the numbers that calls are given.

A tuple has components, a dict has named ones, anything else, a list too, is one array-like. An array-like becomes an array in which every
value stays what was written, or it is refused. Components are checked in the thread that adds the element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import ArraySpec, is_masked, sizes_of, spec_of
from penstock.errors import PlanError, SpecError

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


_TEXT_TYPES = {"U": str, "S": bytes}
_WIDENS = {"i": "iufc", "u": "iufc", "f": "fc"}
"""Kinds of dtype that a Python number of a kind may become: one that was written down has no dtype of its own. A bool stays a bool."""


_TENSORFLOWS = {
    "float": ("is float32 in TensorFlow and float64 in NumPy", 'write dtypes="float32", or dtypes="float64"'),
    "string": ("is a name of TensorFlow's", "write dtypes=bytes, or dtypes=str"),
}
"""Names of dtypes that NumPy has not, or means otherwise."""


class Component:
    """One array of an element.

    Args:
        path: its name in errors.
        dtype: None takes any; str and bytes stand for texts of any length.
        shape: None takes any; a dimension that is None may vary.
    """

    __slots__ = ("dtype", "path", "shape", "text")

    def __init__(self, path: str, dtype: Any, shape: tuple[int | None, ...] | None) -> None:
        given = None if dtype is None else np.dtype(dtype)
        self.path, self.shape = path, shape
        self.text = _TEXT_TYPES.get(given.kind) if given is not None else None
        self.dtype = _OBJECT if self.text is not None else given

    def fit(self, value: Any, where: str) -> Any:
        """Return the array or scalar that a value is, or raise SpecError. Arrays are not copied."""
        dtype = self.dtype
        if isinstance(value, np.ndarray) and type(value) is not np.ndarray and is_masked(value):
            raise masked_error(self._subject(), where)
        if dtype is not None and not (isinstance(value, (np.ndarray, np.generic)) and value.dtype == dtype):
            value = self._convert(value, dtype, where)
        elif dtype is None:
            value = self._natural(value, where)
        self._check_shape(np.shape(value) if isinstance(value, np.ndarray) else (), where)
        return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value

    def rows(self, values: Any, where: str) -> list[Any]:
        """Return the slices along dimension 0, each as `fit` does, or raise SpecError."""
        if is_masked(values):
            raise masked_error(self._subject(), where)
        if hasattr(values, "__array__"):
            array = np.asarray(values)
            if array.ndim == 0:
                raise self._error("is a single value, which has no dimension 0", where, "give one slice for each element")
            if self.dtype is not None and array.dtype != self.dtype:
                array = self._convert(array, self.dtype, where)
            self._check_shape(array.shape[1:], where)
            return [array[number] for number in range(len(array))]
        if not is_sliceable(values):
            raise self._error(f"is a {type(values).__name__}, which has no dimension 0", where, "give one slice for each element")
        return [self.fit(value, where) for value in values]

    def _convert(self, value: Any, dtype: np.dtype[Any], where: str) -> Any:
        if self.text is not None:
            return self._texts(value, self.text, where)
        if dtype == _OBJECT and not isinstance(value, (np.ndarray, np.generic)):
            return value
        if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
            array: NDArray[Any] = np.asarray(value)
            if array.dtype != dtype:
                name = dtype.name if dtype.isnative and dtype.names is None else str(dtype)
                told = name if dtype.names is not None else repr(name)
                raise self._error(f"is {spec_of(array)}, the queue takes {name}", where, f"convert it before: .astype({told})")
            return array
        return self._numbers(value, dtype, where)

    def _numbers(self, value: Any, dtype: np.dtype[Any], where: str) -> NDArray[Any]:
        """Return the array of Python numbers, none of which may be wrapped around or be of a wider kind."""
        plain = PLAIN.get(type(value))
        kinds = kinds_of(value if isinstance(value, (list, tuple)) else (value,)) if plain is None else (plain,)
        if MASKED in kinds:
            raise masked_error(self._subject(), where)
        for kind in kinds:
            if dtype.kind not in _WIDENS.get(kind, kind):
                raise self._error(
                    f"is {value!r:.60}, the queue takes {dtype.name}", where, "give numbers of this kind, or declare another dtype"
                )
        try:
            array: NDArray[Any] = np.asarray(value, dtype)
            wrapped = plain is None and dtype.kind in "iu" and not _same_numbers(array, np.asarray(value))
        except (ValueError, OverflowError, TypeError) as error:
            fix = "declare another dtype" if isinstance(error, OverflowError) else "give an array, or lists of equal length"
            raise self._error(f"cannot become an array of {dtype.name}: {error}", where, fix) from error
        if wrapped:
            raise self._error(f"is {value!r:.60}, which does not fit {dtype.name}", where, "declare another dtype")
        return array

    def _texts(self, value: Any, kind: type, where: str) -> Any:
        if isinstance(value, kind):
            return value
        if isinstance(value, (list, np.ndarray)):
            array = np.asarray(value, _OBJECT)
            if all(isinstance(item, kind) for item in array.flat):
                return array
        raise self._error(f"is {value!r:.60}, the queue takes {kind.__name__}", where, f"give {kind.__name__}, or declare another dtype")

    def _natural(self, value: Any, where: str) -> Any:
        """Return the array of lists and array-likes, and anything else as it is."""
        if isinstance(value, (list, tuple)) or (hasattr(value, "__array__") and not isinstance(value, (np.ndarray, np.generic))):
            return array_of(value, self._subject(), where)
        return value

    def _check_shape(self, shape: tuple[int, ...], where: str) -> None:
        wanted = self.shape
        if wanted is None or shape == wanted:
            return
        if len(shape) != len(wanted) or any(want is not None and got != want for got, want in zip(shape, wanted, strict=True)):
            raise self._error(
                f"has shape {list(shape)}, the queue takes {list(wanted)}", where, "reshape or crop it before, or declare another shape"
            )

    def _subject(self) -> str:
        return self.path or "the element"

    def _error(self, what: str, where: str, fix: str) -> SpecError:
        return SpecError(f"{self._subject()} {what}", where=where, fix=fix)


def _same_numbers(array: NDArray[Any], natural: NDArray[Any]) -> bool:
    """Tell whether no integer of NumPy's own was wrapped around; Python's are an error of NumPy."""
    return natural.dtype == array.dtype or bool((natural == array).all())


class Priority(Component):
    """The first component of a PriorityQueue: any integer that fits int64."""

    __slots__ = ()

    def __init__(self, path: str = "the priority, component 0,") -> None:
        super().__init__(path, np.int64, ())

    def fit(self, value: Any, where: str) -> Any:
        """Return it as np.int64, or raise SpecError."""
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
            return np.int64(value)
        raise self._error(f"is {value!r:.60}, the queue takes an int64", where, "give a whole number; the lowest comes first")

    def rows(self, values: Any, where: str) -> list[Any]:
        """Return all priorities, or raise SpecError."""
        if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__len__") or np.ndim(values) != 1:
            raise self._error(f"is {values!r:.60}, which has no dimension 0", where, "give one priority for each element")
        return [self.fit(value, where) for value in values]


class Components:
    """What the elements of a queue look like.

    Args:
        parts: the components in order.
        names: their names, when elements are dicts; else one component is an array, and several are a tuple.
    """

    def __init__(self, parts: Sequence[Component], names: tuple[str, ...] | None) -> None:
        self.parts, self.names = tuple(parts), names

    def entry(self, element: Any, where: str) -> Any:
        """Check an element and bring it into its form: arrays and NumPy scalars, dict entries in the declared order.

        Raises:
            SpecError: it has other components, or one of another dtype or shape.
        """
        values = self._values(element, where)
        return self._join([part.fit(value, where) for part, value in zip(self.parts, values, strict=True)])

    def entries(self, elements: Any, where: str) -> list[Any]:
        """Do the same with every slice of `elements` along dimension 0.

        Raises:
            SpecError: as for `entry`, or the first dimensions are not equal.
        """
        values = self._values(elements, where)
        columns = [part.rows(value, where) for part, value in zip(self.parts, values, strict=True)]
        if any(len(column) != len(columns[0]) for column in columns):
            told = ", ".join(f"{part.path} has {len(column)}" for part, column in zip(self.parts, columns, strict=True))
            raise SpecError(f"the first dimensions are not equal: {told}", where=where, fix="give as many slices of every component")
        return [self._join(row) for row in zip(*columns, strict=True)]

    def _values(self, element: Any, where: str) -> Sequence[Any]:
        if self.names is not None:
            if not isinstance(element, dict) or element.keys() != set(self.names):
                got = f"a dict with {list(element)}" if isinstance(element, dict) else f"a {type(element).__name__}"
                raise SpecError(
                    f"the element is {got}, the queue takes dicts with {list(self.names)}", where=where, fix="give exactly these keys"
                )
            return [element[name] for name in self.names]
        if not isinstance(element, tuple) and len(self.parts) == 1 and not isinstance(element, dict):
            return (element,)
        if not isinstance(element, tuple) or len(element) != len(self.parts):
            got = f"a tuple of {len(element)}" if isinstance(element, tuple) else f"a {type(element).__name__}"
            wanted = "one array" if len(self.parts) == 1 else f"tuples of {len(self.parts)}"
            raise SpecError(
                f"the element is {got}, the queue takes {wanted}",
                where=where,
                fix="give a tuple with one value for each component; a list is one array, and dicts need names=",
            )
        return element

    def _join(self, values: Sequence[Any]) -> Any:
        if self.names is not None:
            return dict(zip(self.names, values, strict=True))
        return values[0] if len(self.parts) == 1 else tuple(values)


def declare(dtypes: Any, shapes: Any, names: Sequence[str] | None, first: tuple[Component, ...] = ()) -> Components | None:
    """Read what a queue was told of its elements; None when that was nothing.

    Args:
        dtypes: one, or a list with one for each component, or None.
        shapes: one, or a list with one for each component, or None.
        names: one for each component, `first` included, or None.
        first: components that come before those.

    Raises:
        PlanError: they do not fit each other, or are none.
    """
    if dtypes is None and shapes is None and names is None:
        return None
    if isinstance(dtypes, (Mapping, Set)):
        raise PlanError(f"dtypes is {dtypes!r:.60}", where="dtypes", fix="give a list with one for each component; names= names them")
    kinds = None if dtypes is None else [_dtype(one) for one in (dtypes if isinstance(dtypes, (list, tuple)) else [dtypes])]
    forms = None if shapes is None else [_shape(one) for one in _shape_list(shapes)]
    labels = None if names is None else _names(names)
    parts = []
    count = _count_of(kinds, forms, labels, len(first))
    for number in range(count):
        place = number + len(first)
        path = f"component {labels[place]!r}" if labels else f"component {place}" if count + len(first) > 1 else ""
        parts.append(Component(path, kinds and kinds[number], forms[number] if forms else None))
    return Components([*first, *parts], labels)


def _count_of(kinds: Sequence[Any] | None, forms: Sequence[Any] | None, labels: Sequence[str] | None, num_first: int) -> int:
    """Return the number of declared components without the first ones."""
    numbers = {"dtypes": kinds, "shapes": forms, "names": labels and labels[num_first:]}
    counts = {what: len(given) for what, given in numbers.items() if given is not None}
    count = next(iter(counts.values()))
    if len(set(counts.values())) > 1 or count == 0 or (labels and len(labels) < num_first):
        told = ", ".join(f"{what} has {number}" for what, number in counts.items())
        raise PlanError(
            f"dtypes, shapes and names must have one entry for each component: {told}"
            + (f" besides the first {num_first}" if num_first else ""),
            where="dtypes, shapes, names",
            fix="give as many of each, or leave one out",
        )
    return count


def _dtype(given: Any) -> np.dtype[Any] | None:
    if given is None:
        return None
    if isinstance(given, str) and given in _TENSORFLOWS:
        raise PlanError(f"dtypes={given!r} {_TENSORFLOWS[given][0]}", where="dtypes", fix=_TENSORFLOWS[given][1])
    try:
        dtype: np.dtype[Any] = np.dtype(given)
        return dtype
    except (TypeError, ValueError) as error:
        raise PlanError(f"{given!r} is no dtype", where="dtypes", fix="give a NumPy dtype, such as np.float32 or 'uint8'") from error


def _shape_list(shapes: Any) -> list[Any]:
    if isinstance(shapes, int) or not isinstance(shapes, (list, tuple)):
        raise PlanError(f"{shapes!r} is no shape", where="shapes", fix="give a tuple of dimensions, or a list of such tuples")
    return [shapes] if all(one is None or isinstance(one, int) for one in shapes) else list(shapes)


def _shape(given: Any) -> tuple[int | None, ...] | None:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or any(
        one is not None and (isinstance(one, bool) or not isinstance(one, int) or one < 0) for one in given
    ):
        raise PlanError(f"{given!r} is no shape", where="shapes", fix="give whole numbers, 0 or more; None for a dimension that varies")
    return tuple(given)


def _names(names: Sequence[str]) -> tuple[str, ...]:
    if (
        not isinstance(names, Sequence)
        or isinstance(names, str)
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) != len(names)
    ):
        raise PlanError(f"names is {names!r}", where="names", fix="give a list of different names, in the order of the components")
    return tuple(names)


_OURS = {
    "stop_grace_period_secs": "its name is stop_grace_period_s here, an argument of Coordinator.join()",
    "sess": "there is no session here: leave it out",
    "timeout": "its name is timeout_s here",
    "close_op": "a runner closes its queue by itself when its last thread ends: leave it out",
    "cancel_op": "the stop of the coordinator cancels by itself: leave it out",
}
"""What TensorFlow's keywords are here."""


def no_such_keywords(call: str, given: dict[str, Any]) -> None:
    """Refuse keywords that a call has not got, with our word for those of TensorFlow.

    Raises:
        PlanError: there is one.
    """
    for name in given:
        raise PlanError(f"{call} has no argument {name!r}", where=call, fix=_OURS.get(name, "look at the arguments in its docstring"))


def limit_of(timeout_s: Any) -> float | None:
    """Return a time limit; None and infinity are none.

    Raises:
        PlanError: it is negative, not a number, NaN, or beyond all floats.
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float, np.integer, np.floating)) or not timeout_s >= 0:
        raise _no_limit(f"{timeout_s!r}")
    try:
        limit_s = float(timeout_s)
    except OverflowError as error:
        raise _no_limit(number_words(int(timeout_s))) from error
    return None if limit_s == math.inf else limit_s


def _no_limit(told: str) -> PlanError:
    return PlanError(f"timeout_s is {told}", where="timeout_s", fix="give seconds, 0 or more; 0 does not block, None waits without limit")


def positive(number: Any, name: str, least: int = 1) -> int:
    """Return a count.

    Raises:
        PlanError: it is no whole number, or less than `least`.
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < least:
        raise PlanError(f"{name} is {number!r}", where=name, fix=f"give a whole number, {least} or more")
    return int(number)
