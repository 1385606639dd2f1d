"""What `padded_shapes`, `padding_values` and `padding_value` may be, as far as it shows without an element."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock._contracts.element import is_masked
from penstock.errors import PlanError

__all__ = ["check_padding", "check_padding_value"]

_NESTS = (dict, list, tuple)


def check_padding(operator: str, shapes: Any, values: Any) -> None:
    """Let pass a tree of shapes and a tree of single values, or None.

    Raises:
        PlanError: a shape is no tuple of sizes, a size no whole number, or a value an array.
    """
    if shapes is not None:
        _check_shapes(shapes, operator, "padded_shapes")
    _check_values(values, operator, "padding_values")


def check_padding_value(operator: str, value: Any) -> None:
    """Let pass one single value.

    Raises:
        PlanError: it is an array, dict, tuple or list.
    """
    _check_value(value, operator, "padding_value")


def _check_shapes(given: Any, operator: str, path: str) -> None:
    if isinstance(given, dict):
        parts = list(given.items())
    elif not isinstance(given, (tuple, list)):
        raise _refusal(f"{path}={given!r:.60} is no shape", operator)
    elif not any(isinstance(item, _NESTS) for item in given):
        for size in given:
            if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < -1):
                raise _refusal(f"{path}={given!r:.60} has the size {size!r:.60}, which is no whole number >= 0", operator)
        return
    else:
        parts = list(enumerate(given))
    for key, part in parts:
        if part is not None:
            _check_shapes(part, operator, f"{path}[{key!r}]")


def _refusal(what: str, operator: str) -> PlanError:
    return PlanError(
        what,
        where=f"{operator}()",
        fix="give a tuple with one size per dimension, None for the longest of the batch, or a tree like the element of such tuples",
    )


def _check_values(given: Any, operator: str, path: str) -> None:
    if not isinstance(given, _NESTS):
        _check_value(given, operator, path)
        return
    for key, part in given.items() if isinstance(given, dict) else enumerate(given):
        _check_values(part, operator, f"{path}[{key!r}]")


def _check_value(value: Any, operator: str, path: str) -> None:
    if isinstance(value, _NESTS) or is_masked(value) or np.ndim(value):
        raise PlanError(f"{path}={value!r:.60} is no single value", where=f"{operator}()", fix="give one number, or one text for texts")
