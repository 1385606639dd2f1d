"""Elements as users write them, the declared components of a queue's elements, and checks of the numbers that calls are given.

A tuple has components, a dict has named ones, anything else, a list too, is one array-like. An array-like becomes an array in which every
value stays what was written, or it is refused. Components are checked in the thread that adds the element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.arguments import is_whole
from penstock._contracts.element import is_masked, sizes_of, spec_of, structure_of, unflatten
from penstock.errors import PlanError, SpecError

Maker = Callable[[Sequence[Any], str], Any]
"""Makes one value of those at one place of several trees; the second argument is the place in words."""

_OBJECT = np.dtype(object)

MASKED: Final = "masked"
"""Stands for the kind of a masked array."""

_KINDS: Final[dict[type, str]] = {bool: "b", int: "i", float: "f", complex: "c", str: "U", bytes: "S"}
"""The kinds of what Python has of its own."""

_NUMBERS: Final = frozenset("biufc")
_WHOLE: Final = frozenset("biu")
_TEXTS: Final = (frozenset("U"), frozenset("S"))


def batch_of(entries: Sequence[Any], make: Maker, where: str) -> Any:
    """Make one tree of trees of one structure, component by component.

    Raises:
        SpecError: the elements differ in structure; and what `make` raises.
    """
    first = entries[0]
    if isinstance(first, dict):
        _same(all(isinstance(entry, dict) and entry.keys() == first.keys() for entry in entries), entries, where)
        return {key: batch_of([entry[key] for entry in entries], make, f"{where}, component {key!r}") for key in first}
    if isinstance(first, tuple):
        _same(all(isinstance(entry, tuple) and len(entry) == len(first) for entry in entries), entries, where)
        columns = (batch_of(column, make, f"{where}, component {number}") for number, column in enumerate(zip(*entries, strict=True)))
        return tuple(columns) if type(first) is tuple else type(first)(*columns)
    _same(not any(isinstance(entry, (dict, tuple)) for entry in entries), entries, where)
    return make(entries, where)


def _same(same: bool, entries: Sequence[Any], where: str) -> None:
    if not same:
        raise SpecError(
            f"elements of different structure cannot be stacked to one batch: {'; '.join(sorted(set(map(_form, entries))))}",
            where=where,
            fix="give all elements the same components, or take them one by one; nothing was taken",
        )


def _form(entry: Any) -> str:
    if isinstance(entry, dict):
        return f"dict with {list(entry)}"
    return f"tuple of {len(entry)}" if isinstance(entry, tuple) else f"one {type(entry).__name__}"


def slices_of(elements: Any, where: str) -> list[Any]:
    """Return the slices of a tree along dimension 0 of its leaves: views of arrays and of what array-likes become, the items of lists.

    Raises:
        SpecError: a leaf has no dimension 0, or another length than the others.
    """
    lengths, sliced = dict[str, int](), list[Any]()

    def measured(leaves: Sequence[Any], place: str) -> None:
        leaf = np.asarray(leaves[0]) if _is_array_like(leaves[0]) else leaves[0]  # by position: a Series takes a number for a label
        path = place[len(where) + 2 :] or "the element"
        if not is_sliceable(leaf):
            raise SpecError(
                f"{path} is a {type(leaf).__name__}, which has no dimension 0",
                where=where,
                fix="give arrays or lists, one slice for each element; enqueue adds a single element",
            )
        lengths[path] = len(leaf)
        sliced.append(leaf)

    structure = structure_of(batch_of([elements], measured, where))
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{path} has {length}" for path, length in lengths.items())
        raise SpecError(f"the first dimensions are not equal: {told}", where=where, fix="give as many slices of every component")
    if not lengths:
        raise SpecError("there is no component to slice", where=where, fix="give arrays, or tuples or dicts of them")
    return [unflatten(structure, iter(row)) for row in zip(*sliced, strict=True)]


def is_sliceable(value: Any) -> bool:
    """Tell whether a value has a dimension 0: a text has none, nor has a set or a mapping, whose items have no number."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, (str, bytes, bytearray, Mapping))


def _is_array_like(value: Any) -> bool:
    return hasattr(value, "__array__") and not isinstance(value, (np.ndarray, np.generic))


def stack(values: Sequence[Any], where: str, padded: bool = False) -> Any:
    """Stack leaves of one dtype and shape; with padding of one rank.

    Args:
        values: the leaves.
        where: for errors.
        padded: what is shorter than the longest of a dimension is filled with zeros or empty texts at the end.

    Raises:
        SpecError: they differ.
    """
    values = [_natural(value, f"a {type(value).__name__}", where) for value in values]
    specs = [spec_of(value) for value in values]
    shapes, dtype = [sizes_of(spec) for spec in specs], specs[0].dtype
    for spec in specs:
        if spec.dtype != dtype or (len(spec.shape) != len(shapes[0]) if padded else spec.shape != shapes[0]):
            done, same = ("padded", "number of dimensions") if padded else ("stacked", "shape")
            other = "take them one by one" if padded else "use a PaddingFIFOQueue, or take them one by one"
            raise SpecError(
                f"elements of {specs[0]} and {spec} cannot be {done} to one batch",
                where=where,
                fix=f"give them one {same} and dtype before enqueue, or {other}; nothing was taken",
            )
    if dtype != _OBJECT and not shapes[0]:
        return _scalars(values, dtype, where)
    if dtype != _OBJECT and len(set(shapes)) == 1:
        return np.stack(values)
    size = len(values), *map(max, zip(*shapes, strict=True))
    batch = np.full(size, _empty(values), _OBJECT) if dtype == _OBJECT else np.zeros(size, dtype)
    for row, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        place: tuple[Any, ...] = (row, *map(slice, shape))
        batch[place] = value
    return batch


def _scalars(values: Sequence[Any], dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    try:
        return np.array(values, dtype)
    except OverflowError as error:
        raise SpecError(
            f"an element is {max(values, key=abs)}, which does not fit {dtype.name}",
            where=where,
            fix="declare dtypes=np.uint64 or give floats; the elements are still in, to be taken one by one",
        ) from error


def _empty(values: Sequence[Any]) -> Any:
    """Return what fills up objects: an empty str or bytes, like the others, or None."""
    items = (item for value in values for item in (value.flat if isinstance(value, np.ndarray) else (value,)))
    first = next(items, None)
    return type(first)() if isinstance(first, (str, bytes)) else None


def _natural(value: Any, subject: str, where: str) -> Any:
    """Return the array of lists and array-likes, and anything else as it is."""
    if isinstance(value, np.ndarray) and is_masked(value):
        raise _masked_error(subject, where)
    return array_of(value, subject, where) if isinstance(value, list) or _is_array_like(value) else value


def kinds_of(values: Sequence[Any]) -> set[str]:
    """Return the kinds of dtype that the items of nested lists have each by itself; "O" for what is no number and no text."""
    kinds: set[str] = set()
    for kind in set(map(type, values)):
        if kind in _KINDS:
            kinds.add(_KINDS[kind])
        elif issubclass(kind, np.generic):
            kinds.add(np.dtype(kind).kind)
        elif issubclass(kind, (list, tuple)):
            kinds = kinds.union(*(kinds_of(item) for item in values if type(item) is kind))
        else:
            kinds.update(MASKED if is_masked(item) else np.asarray(item).dtype.kind for item in values if type(item) is kind)
    return kinds


def array_of(value: Any, subject: str, where: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Return the array of numbers, nested lists or an array-like, in which every value stays what it was.

    Args:
        value: what is to be an array.
        subject: what an error calls it.
        where: likewise.
        dtype: of numbers. Without one texts become an array of objects, and integers int64, or uint64 if they need it.

    Raises:
        SpecError: it has rows of different length, items of different or too wide a kind, a mask, or numbers beyond the dtype.
    """
    kinds = kinds_of((value,))
    _check_kinds(kinds, value, subject, where, dtype)
    texts = _texts(value, (str, bytes)) if dtype is None and kinds in _TEXTS else None
    if texts is not None:
        return texts
    try:
        array = np.asarray(value, dtype)
        if dtype is None and kinds and kinds <= _WHOLE and array.dtype.kind in "fO":
            array = np.asarray(value, np.uint64)
        fits = array.dtype != _OBJECT or not kinds <= _NUMBERS
        if array.ndim and array.dtype.kind in "iu":  # Python's integers are an OverflowError where they do not fit, NumPy's are wrapped
            fits = bool((array == np.asarray(value)).all())
    except (ValueError, OverflowError, TypeError) as error:
        raise SpecError(
            f"{subject} cannot become an array: {error}", where=where, fix="give an array, lists of equal length, or another dtype"
        ) from error
    if kinds and not fits:
        raise SpecError(
            f"{subject} is {value!r:.60}, which does not fit {dtype or 'a dtype'}", where=where, fix="give another dtype, or floats"
        )
    return array


def _texts(value: Any, kinds: type | tuple[type, ...]) -> NDArray[Any] | None:
    """Return the array of nested lists of texts, of objects: NumPy's own would lose the zeros at their ends. None where it is none."""
    array = np.asarray(value, _OBJECT)
    return array if all(isinstance(item, kinds) for item in array.flat) else None


def _check_kinds(kinds: set[str], value: Any, subject: str, where: str, dtype: np.dtype[Any] | None) -> None:
    """Refuse a value whose items have no array in common, or not of a dtype."""
    if MASKED in kinds:
        raise _masked_error(subject, where)
    if dtype is None:
        alike, told = len(kinds) < 2 or "O" in kinds or kinds <= _NUMBERS, "and items of different kinds have no array in common"
    else:
        alike, told = all(dtype.kind in _WIDENS.get(kind, kind) for kind in kinds), "the queue takes"
    if not alike:
        told += f" {dtype}" if dtype is not None else ""
        raise SpecError(f"{subject} is {value!r:.60}, {told}", where=where, fix="give items of one kind; a tuple has components")


def _masked_error(subject: str, where: str) -> SpecError:
    return SpecError(
        f"{subject} is a masked array, whose mask would be lost",
        where=where,
        fix="give value.filled(...), and the mask as a component of its own",
    )


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

    def __init__(self, path: str, dtype: Any, shape: tuple[int | None, ...] | None) -> None:
        given = None if dtype is None else np.dtype(dtype)
        self.path, self.shape = path or "the element", shape
        self.text = _TEXT_TYPES.get(given.kind) if given is not None else None
        self.dtype = _OBJECT if self.text is not None else given

    def fit(self, value: Any, where: str) -> Any:
        """Return the array or scalar that a value is, or raise SpecError. Arrays are not copied."""
        value = self._convert(value, where)
        shape, wanted = np.shape(value) if isinstance(value, np.ndarray) else (), self.shape
        if wanted is not None and (
            len(shape) != len(wanted) or any(want is not None and got != want for got, want in zip(shape, wanted, strict=True))
        ):
            raise self._error(
                f"has shape {list(shape)}, the queue takes {list(wanted)}", where, "reshape or crop it before, or declare another shape"
            )
        return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value

    def _convert(self, value: Any, where: str) -> Any:
        dtype = self.dtype
        if dtype is None:
            return _natural(list(value) if isinstance(value, tuple) else value, self.path, where)
        if _is_array_like(value):
            value = np.asarray(value)
        if isinstance(value, np.ndarray) and type(value) is not np.ndarray and is_masked(value):
            raise _masked_error(self.path, where)
        if self.text is not None:
            texts = _texts(value, self.text) if isinstance(value, (list, np.ndarray)) else value if isinstance(value, self.text) else None
            if texts is None:
                name = self.text.__name__
                raise self._error(f"is {value!r:.60}, the queue takes {name}", where, f"give {name}, or declare another dtype")
            return texts
        if isinstance(value, (np.ndarray, np.generic)):
            if value.dtype != dtype:
                raise self._error(f"is {spec_of(value)}, the queue takes {dtype}", where, f"convert it before: .astype({str(dtype)!r})")
            return value
        return value if dtype == _OBJECT else array_of(value, self.path, where, dtype)

    def _error(self, what: str, where: str, fix: str) -> SpecError:
        return SpecError(f"{self.path} {what}", where=where, fix=fix)


class Priority(Component):
    """The first component of a PriorityQueue: any integer that fits int64."""

    def __init__(self, path: str = "the priority, component 0,") -> None:
        super().__init__(path, np.int64, ())

    def fit(self, value: Any, where: str) -> Any:
        """Return it as np.int64, or raise SpecError."""
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
            return np.int64(value)
        raise self._error(f"is {value!r:.60}, the queue takes an int64", where, "give a whole number; the lowest comes first")


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
        values = [part.fit(value, where) for part, value in zip(self.parts, self._values(element, where), strict=True)]
        if self.names is not None:
            return dict(zip(self.names, values, strict=True))
        return values[0] if len(values) == 1 else tuple(values)

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
    kinds = None if dtypes is None else [_dtype(one) for one in (dtypes if isinstance(dtypes, (list, tuple)) else [dtypes])]
    forms = None if shapes is None else [_shape(one) for one in _shape_list(shapes)]
    labels = None if names is None else _names(names)
    count = _count({"dtypes": kinds, "shapes": forms, "names": labels and labels[len(first) :]}, len(first))
    parts = list(first)
    for number in range(count):
        place = number + len(first)
        path = f"component {labels[place]!r}" if labels else f"component {place}" if count + len(first) > 1 else ""
        parts.append(Component(path, kinds and kinds[number], forms[number] if forms else None))
    return Components(parts, labels)


def _count(given: dict[str, Sequence[Any] | None], num_first: int) -> int:
    """Return the number of declared components without the first ones."""
    counts = {what: len(one) for what, one in given.items() if one is not None}
    count = next(iter(counts.values()))
    if count == 0 or len(set(counts.values())) > 1:
        told = ", ".join(f"{what} has {number}" for what, number in counts.items()) + (
            f" besides the first {num_first}" if num_first else ""
        )
        raise PlanError(
            f"dtypes, shapes and names must have one entry for each component: {told}",
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
        raise PlanError(
            f"{given!r} is no dtype", where="dtypes", fix="give one, such as np.float32 or 'uint8', or a list of them"
        ) from error


def _shape_list(shapes: Any) -> list[Any]:
    if not isinstance(shapes, (list, tuple)):
        raise PlanError(f"{shapes!r} is no shape", where="shapes", fix="give a tuple of dimensions, or a list of such tuples")
    return [shapes] if all(one is None or isinstance(one, int) for one in shapes) else list(shapes)


def _shape(given: Any) -> tuple[int | None, ...] | None:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or any(one is not None and not is_whole(one, 0) for one in given):
        raise PlanError(f"{given!r} is no shape", where="shapes", fix="give whole numbers, 0 or more; None for a dimension that varies")
    return tuple(given)


def _names(names: Any) -> tuple[str, ...]:
    fits = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    if not fits:
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


def limit_of(timeout_s: Any, name: str = "timeout_s") -> float | None:
    """Return a time limit; None and infinity are none.

    Raises:
        PlanError: it is negative, not a number, or NaN.
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float, np.integer, np.floating)) or not timeout_s >= 0:
        raise PlanError(f"{name} is {timeout_s!r}", where=name, fix="give seconds, 0 or more; 0 does not block, None waits without limit")
    return None if timeout_s == math.inf else float(timeout_s)


def positive(number: Any, name: str, least: int = 1) -> int:
    """Return a count.

    Raises:
        PlanError: it is no whole number, or less than `least`.
    """
    if not is_whole(number, least):
        raise PlanError(f"{name} is {number!r}", where=name, fix=f"give a whole number, {least} or more")
    return int(number)
