"""Values as users write them to what the lists of a Feature hold: float32, int64 or bytes, and nothing changed on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import is_masked
from penstock.errors import SpecError
from penstock.kernels.messages import BYTES, FLOAT, INT64

__all__ = ["TEXTS", "Values", "values_of"]

TEXTS: Final = (bytes, bytearray, memoryview, str)
_NESTS: Final = (list, tuple)
_NUMBERS: Final = (int, float, np.number, np.bool_)
_FLAT: Final = frozenset({bytes, str})
_PLAIN: Final = frozenset({int, float, bool, np.int64, np.float64, np.float32})
"""Types that need no closer look before NumPy takes them."""


Values: TypeAlias = tuple[int, tuple[int, ...], NDArray[Any] | list[bytes]]
"""Kind (BYTES, FLOAT or INT64; 0 for an empty list, which may become any), shape, and the items: an array of numbers, or each text."""


def values_of(value: Any, where: str) -> Values:
    """Return the values of a number, a text, an array, or nested lists of them.

    Raises:
        SpecError: a value that none of the three lists can hold as it is.
    """
    if isinstance(value, TEXTS):
        return (BYTES, (), [_as_bytes(value, where)])
    if isinstance(value, _NESTS):
        return _listed(value, where)
    if isinstance(value, np.ndarray) and is_masked(value):
        raise _masked(where)
    return _of_array(np.asarray(value), where)


def _listed(value: Any, where: str) -> Values:
    if not value:
        return (0, (0,), [])
    types = set(map(type, value))
    if not types <= _PLAIN:
        types = _leaf_types(value, types)
    if not types or not types <= _PLAIN:
        if all(issubclass(kind, TEXTS) for kind in types):
            return _texts(value, where)
        if any(is_masked(leaf) for leaf in _leaves(value)):
            raise _masked(where)
        if any(issubclass(kind, TEXTS) for kind in types):
            raise _unfit(_leaves(value), where)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise _ragged(str(error), where) from error
    if _is_changed(array, types, value):
        raise _unfit(_leaves(value), where)
    return _of_array(array, where)


def _is_changed(array: NDArray[Any], types: set[type], value: Any) -> bool:
    """Tell whether NumPy took texts for numbers, or floats for integers that no dtype of its own holds together."""
    kind = array.dtype.kind
    if kind not in "fSU" or (kind == "f" and (float in types or any(issubclass(one, np.floating) for one in types))):
        return False
    kinds = {np.asarray(leaf).dtype.kind for leaf in _leaves(value)}
    return kinds <= set("iub") if kind == "f" else not kinds <= set("SU")


def _of_array(array: NDArray[Any], where: str) -> Values:
    kind = array.dtype.kind
    if kind == "f":
        return (FLOAT, array.shape, array)
    if kind in "iub":
        if kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) >= 1 << 63:
            raise _too_large(int(array.max()), where)
        return (INT64, array.shape, array)
    if kind in "SUO":
        items = array.reshape(-1).tolist()
        if kind == "O" and not all(isinstance(item, TEXTS) for item in items):
            raise _unfit(iter(items), where)
        return (BYTES, array.shape, [_as_bytes(item, where) for item in items])
    raise SpecError(f"dtype {array.dtype} has no place in a record", where=where, fix="convert it to float32, int64 or bytes")


def _texts(value: Any, where: str) -> Values:
    """Read nested lists that hold nothing but texts; NumPy's own texts would lose the zero bytes at their ends."""
    shape = _shape_of(value)
    if shape is None:
        raise _ragged("its lists are not equally long", where)
    items = [_as_bytes(leaf, where) for leaf in (value if len(shape) == 1 else _leaves(value))]
    return (BYTES if items else 0, shape, items)


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of nested lists, or None when they have none."""
    if not isinstance(value, _NESTS):
        return ()
    if set(map(type, value)) <= _FLAT:
        return (len(value),)
    shapes = {_shape_of(item) for item in value}
    inner = shapes.pop()
    return None if shapes or inner is None else (len(value), *inner)


def _leaf_types(value: Any, types: set[type]) -> set[type]:
    """Return the types of all that is no list, given those of the items."""
    if any(issubclass(kind, _NESTS) for kind in types):
        types = {kind for kind in types if not issubclass(kind, _NESTS)}
        for item in value:
            if isinstance(item, _NESTS):
                types |= _leaf_types(item, set(map(type, item)))
    return types


def _leaves(value: Any) -> Iterator[Any]:
    for item in value:
        if isinstance(item, _NESTS):
            yield from _leaves(item)
        else:
            yield item


def _as_bytes(value: Any, where: str) -> bytes:
    if not isinstance(value, str):
        return bytes(value)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{value!r:.60} is no UTF-8", where=where, fix='encode it yourself, for example with "surrogateescape"') from error


def _unfit(leaves: Iterator[Any], where: str) -> SpecError:
    """Return the error of items of which at least one cannot stand in a list, or not beside the others."""
    items = list(leaves)
    for item in items:
        if isinstance(item, (int, np.integer)) and not -(1 << 63) <= int(item) < 1 << 63:
            return _too_large(int(item), where)
    for item in items:
        if not isinstance(item, (*TEXTS, *_NUMBERS, np.ndarray)):
            return SpecError(
                f"{type(item).__name__} has no place in a record", where=where, fix="give numbers, bytes, str, or arrays of them"
            )
    texts, others = [[item for item in items if isinstance(item, TEXTS) is wanted] for wanted in (True, False)]
    if not texts:
        return SpecError(
            "the numbers have no dtype in common", where=where, fix="convert them with np.asarray(value, np.int64) or np.float32"
        )
    return SpecError(
        f"texts and numbers are mixed: {texts[0]!r:.40} and {others[0]!r:.40}",
        where=where,
        fix="make them two features, or all of them texts",
    )


def _too_large(number: int, where: str) -> SpecError:
    told = f"{number}" if number.bit_length() <= 128 else f"an int of {number.bit_length()} bits"
    return SpecError(f"{told} does not fit int64", where=where, fix="store it as bytes, or as two integers")


def _ragged(reason: str, where: str) -> SpecError:
    return SpecError(f"the value is ragged: {reason}", where=where, fix="flatten it, and store its lengths as a feature")


def _masked(where: str) -> SpecError:
    return SpecError(
        "the value is a masked array, whose mask would be lost",
        where=where,
        fix="give value.filled(...), and the mask as a feature of its own",
    )
