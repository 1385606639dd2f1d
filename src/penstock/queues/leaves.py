"""Lists and array-likes as arrays: every value stays what was written, or they are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import is_masked
from penstock.errors import SpecError

__all__ = ["MASKED", "PLAIN", "array_of", "is_sliceable", "kinds_of", "masked_error", "number_words"]

MASKED: Final = "masked"
"""Stands for the kind of a masked array."""

PLAIN: Final[dict[type, str]] = {bool: "b", int: "i", float: "f", complex: "c", str: "U", bytes: "S"}
"""The kinds of what Python has of its own."""

_NUMBERS: Final = frozenset("biufc")
_WHOLE: Final = frozenset("iu")
_TEXTS: Final = (frozenset("U"), frozenset("S"))


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
