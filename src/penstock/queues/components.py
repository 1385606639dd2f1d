"""The declared components of a queue's elements: what is checked, in the thread of who adds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import is_masked, spec_of
from penstock.errors import PlanError, SpecError
from penstock.queues.trees import MASKED, PLAIN, array_of, is_sliceable, kinds_of, masked_error

__all__ = ["Component", "Components", "Priority", "declare"]

_OBJECT = np.dtype(object)
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
            array = np.asarray(value)
            if array.dtype != dtype:
                name = dtype.name if dtype.isnative and dtype.names is None else str(dtype)
                told = name if dtype.names is not None else repr(name)
                raise self._error(f"is {spec_of(array)}, the queue takes {name}", where, f"convert it before: .astype({told})")
            return array
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
            array = np.asarray(value, dtype)
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
    numbers = {"dtypes": kinds, "shapes": forms, "names": labels and labels[len(first) :]}
    counts = {what: len(given) for what, given in numbers.items() if given is not None}
    count = next(iter(counts.values()))
    if len(set(counts.values())) > 1 or count == 0 or (labels and len(labels) < len(first)):
        told = ", ".join(f"{what} has {number}" for what, number in counts.items())
        raise PlanError(
            f"dtypes, shapes and names must have one entry for each component: {told}"
            + (f" besides the first {len(first)}" if first else ""),
            where="dtypes, shapes, names",
            fix="give as many of each, or leave one out",
        )
    parts = []
    for number in range(count):
        place = number + len(first)
        path = f"component {labels[place]!r}" if labels else f"component {place}" if count + len(first) > 1 else ""
        parts.append(Component(path, kinds and kinds[number], forms[number] if forms else None))
    return Components([*first, *parts], labels)


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
