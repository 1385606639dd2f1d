"""What a user gave for a number, a flag, a list or a path, as Python's own; None for what is none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from operator import index
from typing import Any

import numpy as np

_FLAGS = (bool, np.bool_)
_WHOLE = (int, np.integer)
_TEXTS = (str, bytes, bytearray)


def whole_number(value: Any) -> int | None:
    """Return a whole number of any kind as an int, NumPy's among them; None for a bool."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def is_whole(value: Any, least: int) -> bool:
    """Tell whether something is an integer, Python's or NumPy's, but no bool, and not less than `least`."""
    number = whole_number(value)
    return number is not None and number >= least


def real_number(value: Any) -> float | None:
    """Return a number of any kind as a float; None for a bool and for text."""
    if isinstance(value, (*_FLAGS, *_TEXTS)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # no number, or larger than any float
        return None


def flag(value: Any) -> bool | None:
    """Return True, False, 1 or 0, Python's or NumPy's, as a bool; None for what only counts as one of them, such as "no"."""
    return bool(value) if isinstance(value, _FLAGS) or (isinstance(value, _WHOLE) and value in (0, 1)) else None


def listed(values: Any) -> list[Any] | None:
    """List what has an order and parts; None for text, sets and mappings."""
    if isinstance(values, (*_TEXTS, Set, Mapping)):
        return None
    try:
        return list(values)
    except TypeError:
        return None


def path_name(value: Any) -> str | None:
    """Return a path as an absolute one; None for what is none, the empty text among them."""
    try:
        name = os.fsdecode(value)
    except TypeError:
        return None
    return os.path.abspath(name) if name else None
