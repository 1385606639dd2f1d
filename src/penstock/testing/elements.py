"""When two elements are the same, and how they differ in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["alike", "exact", "first_difference", "plain", "shown"]

_MOST_CHARACTERS = 100


def plain(item: Any) -> Any:
    """Turn an element into lists, dicts and Python numbers that == can compare: what a reference in plain Python gives."""
    if isinstance(item, np.ndarray):
        return item.tolist()
    if isinstance(item, np.generic):
        return item.item()
    if isinstance(item, (tuple, list)):
        return [plain(part) for part in item]
    if isinstance(item, dict):
        return {key: plain(value) for key, value in item.items()}
    return item


def exact(item: Any) -> Any:
    """Copy an element into a value that is equal only to that of the same element: same nesting, types, dtypes, shapes and bits.

    Bytes may lie in working memory: `bytes`, `bytearray` and `memoryview` count as the same. An object of a class of yours is compared
    by its own `==`, or as an array where it offers `__array__`.
    """
    if isinstance(item, dict):
        return "dict", tuple((key, exact(value)) for key, value in item.items())
    if isinstance(item, (tuple, list)):
        return type(item).__name__, tuple(exact(part) for part in item)
    if isinstance(item, (bytes, bytearray, memoryview)):
        return "bytes", bytes(item)
    if isinstance(item, float):  # not a number is the same as not a number, and 0.0 is not -0.0
        return type(item).__name__, repr(item)
    if isinstance(item, np.ndarray) and item.dtype.hasobject:
        return "array", item.dtype.str, item.shape, exact(item.tolist())
    if isinstance(item, (np.ndarray, np.generic)) or hasattr(item, "__array__"):
        array = np.asarray(item)
        return type(item).__name__, str(array.dtype), array.shape, array.tobytes()
    return type(item).__name__, item


def alike(one: Any, other: Any) -> bool:
    """Tell whether two elements have the same values: an array is like a list of its numbers, and not a number is like itself."""
    return _alike(plain(one), plain(other))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_alike(one[key], other[key]) for key in one)
    return bool(one == other) or (one != one and other != other)


def first_difference(got: Sequence[Any], wanted: Sequence[Any], same: Callable[[Any, Any], bool]) -> str | None:
    """Say where two runs of elements begin to differ, or None."""
    for place, (one, other) in enumerate(zip(got, wanted, strict=False)):
        if not same(one, other):
            return f"element {place} is {shown(one)}, not {shown(other)}"
    if len(got) < len(wanted):
        return f"{len(got)} elements came instead of {len(wanted)}; the first that is missing is {shown(wanted[len(got)])}"
    if len(got) > len(wanted):
        return f"{len(got)} elements came instead of {len(wanted)}; the first too many is {shown(got[len(wanted)])}"
    return None


def shown(item: Any) -> str:
    """Return an element in at most 100 characters."""
    text = " ".join(repr(item).split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
